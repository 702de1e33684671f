/* A record of recorder_int.h as a file, for programs that build what a disk may have after a power failure: where SHOAL_TEST_TRACE names
 * a file, a test writes its record there. One record behind the other, in the order in which they happened, little-endian:
 *
 *   0  u32 type    8  i64 offset   24  u32 flags of the open(2)
 *   4  u32 file   16  u64 bytes    28  u32 bytes of the path, which follows; then the data
 *
 *   1 CREATE   the path names the file from here on
 *   2 WRITE    the data, at the offset
 *   3 TRUNCATE the file has the offset as its size
 *   4 SYNC     all records of the file before this one are on stable storage
 *   7 MARK     the data is a line of text: what has been acknowledged by now
 *   8 SYNC_DIR all names before this one are on stable storage
 *
 * (5 and 6 rename and unlink, which a log does not.) After a power failure behind any record, what a SYNC covers is there, and of the
 * rest any records, or any sectors of them; and each mark must hold.
 *
 * A SYNC of the file knows no exceptions, but the disk door does: a sync covers what had completed when it was submitted, and a write
 * that is synced itself covers itself alone. So a change that no sync has covered yet comes into the file just before the SYNC that covers it,
 * however long it had been there by then; no state is left out of the trace but those in which it is there, and later synced writes are
 * not. A discard is written as zeros, a reservation as the size that the file grows to. */
#ifndef TESTS_RECORDER_TRACE_INT_H
#define TESTS_RECORDER_TRACE_INT_H

#include <fcntl.h>
#include <stdio.h>

#include "tests/recorder_int.h"

enum trace_type {
    TRACE_CREATE = 1,
    TRACE_WRITE,
    TRACE_TRUNCATE,
    TRACE_SYNC,
    TRACE_MARK = 7,
    TRACE_SYNC_DIR
};

struct trace {
    const struct recorder *recorder;
    FILE *file;
    uint64_t size;   /* of the recorded file, by now */
    size_t *pending; /* changes that have completed, and that no sync covers */
    size_t pending_count;
    size_t records;
};

static inline void trace_put(struct trace *trace, enum trace_type type, uint64_t offset,
                             const void *data, size_t size)
{
    struct {
        uint32_t type, file;
        int64_t offset;
        uint64_t size;
        uint32_t flags, path;
    } head = {.type = type, .file = 1, .offset = (int64_t)offset, .size = size};
    const char *path = type == TRACE_CREATE ? trace->recorder->name : "";
    head.path = (uint32_t)strlen(path);
    head.flags = type == TRACE_CREATE ? O_CREAT | O_RDWR : O_RDWR;
    _Static_assert(sizeof head == 32, "no padding");
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");
    bool is_written = fwrite(&head, sizeof head, 1, trace->file) == 1 &&
                      fwrite(path, 1, head.path, trace->file) == head.path &&
                      fwrite(data, 1, size, trace->file) == size;
    assert_true(is_written);
    trace->records++;
}

static inline void trace_change(struct trace *trace, const struct recorded_change *change)
{
    uint64_t end = change->offset + change->size;
    bool grows = end > trace->size;
    trace->size = grows ? end : trace->size;
    if (!change->size)
        return;
    if (change->kind == SH_DISK_ALLOCATE) {
        if (grows)
            trace_put(trace, TRACE_TRUNCATE, end, "", 0);
        return;
    }
    uint8_t *zeros = change->bytes ? NULL : calloc(1, change->size + 1);
    trace_put(trace, TRACE_WRITE, change->offset, zeros ? zeros : change->bytes, change->size);
    free(zeros);
}

/* Writes the pending changes that completed before that place, and keeps the others. */
static inline void trace_pending(struct trace *trace, size_t before)
{
    size_t kept = 0;
    for (size_t i = 0; i < trace->pending_count; i++) {
        const struct recorded_change *change = &trace->recorder->changes[trace->pending[i]];
        if (change->done < before)
            trace_change(trace, change);
        else
            trace->pending[kept++] = trace->pending[i];
    }
    trace->pending_count = kept;
}

static inline bool trace_overlaps(const struct trace *trace, const struct recorded_change *change)
{
    for (size_t i = 0; i < trace->pending_count; i++) {
        const struct recorded_change *other = &trace->recorder->changes[trace->pending[i]];
        if (change->offset < other->offset + other->size &&
            other->offset < change->offset + change->size)
            return true;
    }
    return false;
}

/* A change has completed. */
static inline void trace_done(struct trace *trace, size_t number)
{
    const struct recorded_change *change = &trace->recorder->changes[number];
    switch (change->kind) {
    case SH_DISK_SYNC:
        trace_pending(trace, change->submitted);
        trace_put(trace, TRACE_SYNC, 0, "", 0);
        break;
    case SH_DISK_SYNC_DIR:
        trace_put(trace, TRACE_SYNC_DIR, 0, "", 0);
        break;
    case SH_DISK_WRITE_SYNC:
        /* Two writes of one place keep their order. */
        if (trace_overlaps(trace, change))
            trace_pending(trace, SIZE_MAX);
        trace_change(trace, change);
        trace_put(trace, TRACE_SYNC, 0, "", 0);
        break;
    default:
        trace->pending[trace->pending_count++] = number;
        break;
    }
}

/* Writes the record to the file that SHOAL_TEST_TRACE names, with the name of the run behind it, if it names one. */
static inline void recorder_trace(const struct recorder *recorder, const char *name)
{
    const char *path = getenv("SHOAL_TEST_TRACE");
    char full[4096];
    if (!path || !*path)
        return;
    int length = snprintf(full, sizeof full, "%s.%s", path, name);
    assert_true(length > 0 && (size_t)length < sizeof full);
    struct trace trace = {.recorder = recorder, .file = fopen(full, "wb")};
    trace.pending = calloc(recorder->changes_count + 1, sizeof *trace.pending);
    assert_true(trace.file && trace.pending);
    size_t mark = 0;
    for (size_t i = 0; i <= recorder->events_count; i++) {
        for (; mark < recorder->marks_count && recorder->marks[mark].place == i; mark++) {
            const char *text = recorder->marks[mark].text;
            trace_put(&trace, TRACE_MARK, 0, text, strlen(text));
        }
        if (i == recorder->created)
            trace_put(&trace, TRACE_CREATE, 0, "", 0);
        if (i < recorder->events_count && recorder->events[i].is_done)
            trace_done(&trace, recorder->events[i].change);
    }
    trace_pending(&trace, SIZE_MAX);
    assert_int_equal(fclose(trace.file), 0);
    free(trace.pending);
    print_message("%zu records of the run are in %s\n", trace.records, full);
}

#endif
