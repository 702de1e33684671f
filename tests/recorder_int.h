/* A recorder at the disk door: a disk that passes everything on to another disk, usually a real one, and writes down each change
 * with its bytes, when it was submitted and when its completion was seen. From the record, a replay builds what the disk may have
 * after a power failure, or after the end of the process, at any place of the record:
 *
 *   power failure    each change that a completed sync covers, that is, whose completion was seen before the sync was submitted;
 *                    of every other change, any sectors of 512 bytes
 *   end of process   each change whose completion was seen; of those in flight, any sectors
 *
 * Some completions are held back for a few polls, so that others overtake them on any disk, one that does everything in turn included.
 *
 * A place is a number of events: 0 is before the first. States are built at places that rise, each as the changes since the one
 * before on an image whose blocks are shared (sim/image.h). The record is of one file, whose name is safe after SH_DISK_SYNC_DIR.
 *
 * A state is a disk of its own (state_disk), in memory: what it is given to do is done at once, and completed by the next poll.
 * Threads: one. */
#ifndef TESTS_RECORDER_INT_H
#define TESTS_RECORDER_INT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "env/disk.h"
#include "sim/image.h"
#include "sim/prng.h"

#define RECORDER_SECTOR_BYTES 512u
#define RECORDER_NEVER SIZE_MAX

struct recorded_change {
    enum sh_disk_kind kind;
    uint64_t offset;
    size_t size;
    uint8_t *bytes; /* of a write */
    size_t submitted, done;
};

struct recorded_event {
    size_t change;
    bool is_done; /* its completion; else its submission */
};

/* The test has learned there that something is acknowledged. */
struct recorded_mark {
    size_t place;
    char text[64];
};

struct recorder {
    struct sh_disk base;
    struct sh_disk *inner;
    struct recorded_change *changes;
    struct recorded_event *events;
    struct recorded_mark *marks;
    size_t *acks; /* the places of acknowledgements, each once */
    size_t changes_count, changes_room, events_count, events_room, marks_count, marks_room;
    size_t acks_count, acks_room;
    size_t created; /* the place where the file was opened first */
    char name[64];
    uint64_t bytes; /* of writes */
    struct sh_prng prng;
    struct recorder_op *held; /* completed, but nobody knows */
};

#define RECORDER_POLLS_HELD 40u /* at most */

/* What is on its way through the recorder. */
struct recorder_op {
    struct sh_disk_op op; /* first: as the inner disk has it */
    struct sh_disk_op *outer;
    struct recorder *recorder;
    size_t change; /* RECORDER_NEVER: a read */
    struct recorder_op *next_held;
    unsigned polls; /* it is held for so many more */
};

static inline void *recorder_more(void *array, size_t count, size_t *room, size_t each)
{
    if (count < *room)
        return array;
    *room = *room ? 2 * *room : 1024;
    array = realloc(array, *room * each);
    assert_non_null(array);
    return array;
}

static inline void recorder_event(struct recorder *recorder, size_t change, bool is_done)
{
    recorder->events = recorder_more(recorder->events, recorder->events_count,
                                     &recorder->events_room, sizeof *recorder->events);
    size_t *at = is_done ? &recorder->changes[change].done : &recorder->changes[change].submitted;
    *at = recorder->events_count;
    recorder->events[recorder->events_count++] = (struct recorded_event){change, is_done};
}

/* Keeps a change, with its bytes; it is in the record once it is submitted. */
static inline void recorder_change(struct recorder *recorder, const struct sh_disk_op *op)
{
    recorder->changes = recorder_more(recorder->changes, recorder->changes_count,
                                      &recorder->changes_room, sizeof *recorder->changes);
    struct recorded_change *change = &recorder->changes[recorder->changes_count];
    *change = (struct recorded_change){.kind = op->kind,
                                       .offset = op->offset,
                                       .size = op->size,
                                       .submitted = RECORDER_NEVER,
                                       .done = RECORDER_NEVER};
    if (!sh_disk_is_write(op))
        return;
    change->bytes = malloc(op->size ? op->size : 1);
    assert_non_null(change->bytes);
    sh_disk_gather(op, change->bytes);
}

/* Something is acknowledged here. */
static inline void recorder_acked(struct recorder *recorder)
{
    size_t place = recorder->events_count;
    if (recorder->acks_count && recorder->acks[recorder->acks_count - 1] == place)
        return;
    recorder->acks = recorder_more(recorder->acks, recorder->acks_count, &recorder->acks_room,
                                   sizeof *recorder->acks);
    recorder->acks[recorder->acks_count++] = place;
}

/* Says what is acknowledged, for the record's file (recorder_trace_int.h). */
__attribute__((format(printf, 2, 3))) static inline void recorder_mark(struct recorder *recorder,
                                                                       const char *format, ...)
{
    va_list args;
    recorder->marks = recorder_more(recorder->marks, recorder->marks_count, &recorder->marks_room,
                                    sizeof *recorder->marks);
    struct recorded_mark *mark = &recorder->marks[recorder->marks_count++];
    mark->place = recorder->events_count;
    va_start(args, format);
    int length = vsnprintf(mark->text, sizeof mark->text, format, args);
    va_end(args);
    assert_true(length > 0 && (size_t)length < sizeof mark->text);
}

/* A change has ended: so it stands in the record, and its owner hears of it. */
static inline void recorder_tell(struct recorder_op *passed)
{
    struct sh_disk_op *outer = passed->outer;
    if (passed->change != RECORDER_NEVER)
        recorder_event(passed->recorder, passed->change, true);
    outer->err = passed->op.err;
    outer->done_bytes = passed->op.done_bytes;
    free(passed);
    outer->done(outer);
}

static inline void recorder_done(struct sh_disk_op *op)
{
    struct recorder_op *passed = op->arg;
    struct recorder *recorder = passed->recorder;
    if (passed->change != RECORDER_NEVER) {
        assert_int_equal(op->err, SHOAL_OK);
        if (sh_disk_is_range(op) && !op->done_bytes)
            recorder->changes[passed->change].size = 0; /* the disk has no such operation */
        if (sh_prng_below(&recorder->prng, 3) == 0) {
            passed->polls = (unsigned)sh_prng_below(&recorder->prng, RECORDER_POLLS_HELD);
            passed->next_held = recorder->held;
            recorder->held = passed;
            return;
        }
    }
    recorder_tell(passed);
}

/* Tells those that were held long enough; all, if somebody waits. */
static inline unsigned recorder_release(struct recorder *recorder, bool all)
{
    struct recorder_op *held = recorder->held, *next;
    unsigned told = 0;
    recorder->held = NULL;
    for (; held; held = next) {
        next = held->next_held;
        if (!all && held->polls) {
            held->polls--;
            held->next_held = recorder->held;
            recorder->held = held;
            continue;
        }
        recorder_tell(held);
        told++;
    }
    return told;
}

static inline enum shoal_err recorder_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct recorder *recorder = (struct recorder *)disk;
    struct recorder_op *passed = malloc(sizeof *passed);
    assert_non_null(passed);
    *passed = (struct recorder_op){
        .op = *op, .outer = op, .recorder = recorder, .change = RECORDER_NEVER};
    passed->op.done = recorder_done;
    passed->op.arg = passed;
    if (op->kind != SH_DISK_READ)
        recorder_change(recorder, op);
    enum shoal_err err = sh_disk_submit(recorder->inner, &passed->op);
    if (err) {
        if (op->kind != SH_DISK_READ)
            free(recorder->changes[recorder->changes_count].bytes);
        free(passed);
        return err;
    }
    if (op->kind != SH_DISK_READ) {
        passed->change = recorder->changes_count++;
        recorder->bytes += sh_disk_is_write(op) ? op->size : 0;
        recorder_event(recorder, passed->change, false);
    }
    return SHOAL_OK;
}

static inline enum shoal_err recorder_open(struct sh_disk *disk, const char *name, bool create,
                                           int *file_out)
{
    struct recorder *recorder = (struct recorder *)disk;
    enum shoal_err err = sh_disk_open(recorder->inner, name, create, file_out);
    assert_true(!recorder->name[0] || !strcmp(recorder->name, name));
    if (!err && !recorder->name[0]) {
        assert_true(strlen(name) < sizeof recorder->name);
        strcpy(recorder->name, name);
        recorder->created = recorder->events_count;
    }
    return err;
}

static inline void recorder_close(struct sh_disk *disk, int file)
{
    struct sh_disk *inner = ((struct recorder *)disk)->inner;
    inner->ops->close(inner, file);
}

static inline enum shoal_err recorder_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    struct sh_disk *inner = ((struct recorder *)disk)->inner;
    return inner->ops->size(inner, file, bytes_out);
}

static inline enum shoal_err recorder_space(struct sh_disk *disk, uint64_t *bytes_out,
                                            uint64_t *free_out)
{
    return sh_disk_space(((struct recorder *)disk)->inner, bytes_out, free_out);
}

static inline unsigned recorder_poll(struct sh_disk *disk, bool wait)
{
    struct recorder *recorder = (struct recorder *)disk;
    unsigned told = recorder_release(recorder, wait);
    return told + sh_disk_poll(recorder->inner, wait && !told) + recorder_release(recorder, wait);
}

/* A disk in front of that one, which is borrowed. Names are neither claimed, renamed nor removed through it. */
static inline struct recorder *recorder_create(struct sh_disk *inner, struct sh_prng prng)
{
    static const struct sh_disk_ops ops = {.open = recorder_open,
                                           .close = recorder_close,
                                           .size = recorder_size,
                                           .space = recorder_space,
                                           .submit = recorder_submit,
                                           .poll = recorder_poll};
    struct recorder *recorder = calloc(1, sizeof *recorder);
    assert_non_null(recorder);
    recorder->base.ops = &ops;
    recorder->inner = inner;
    recorder->prng = prng;
    return recorder;
}

static inline void recorder_destroy(struct recorder *recorder)
{
    for (size_t i = 0; i < recorder->changes_count; i++)
        free(recorder->changes[i].bytes);
    free(recorder->changes);
    free(recorder->events);
    free(recorder->marks);
    free(recorder->acks);
    free(recorder);
}

static inline int recorder_place_compare(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* Draws so many places, which rise; the caller frees them. Half of them are those of acknowledgements, where what was said too early
 * shows. */
static inline size_t *recorder_places(const struct recorder *recorder, size_t count,
                                      struct sh_prng *prng)
{
    size_t *places = malloc((count + 1) * sizeof *places);
    assert_non_null(places);
    for (size_t i = 0; i < count; i++)
        places[i] = sh_prng_below(prng, 2)
                        ? recorder->acks[sh_prng_below(prng, recorder->acks_count)]
                        : (size_t)sh_prng_below(prng, recorder->events_count + 1);
    qsort(places, count, sizeof *places, recorder_place_compare);
    return places;
}

/* --- Replay ------------------------------------------------------------------------------------ */

/* How the changes fare that need not be there. */
enum replay_luck {
    REPLAY_ALL,
    REPLAY_NONE,
    REPLAY_FIRST,   /* so many of the oldest, and some sectors of the next one */
    REPLAY_BUT_ONE, /* all but some sectors of one */
    REPLAY_CHANGES, /* each change whole, or not at all */
    REPLAY_SECTORS, /* each sector for itself */
    REPLAY_LUCKS
};

#define REPLAY_CHANGES_MAX 4096u

struct replay {
    const struct recorder *recorder;
    size_t at;             /* this many events are done */
    struct sh_image image; /* of the changes that are safe, but for those behind one that is not */
    bool is_name_safe;
    struct {
        size_t change;
        bool is_safe;
    } done[REPLAY_CHANGES_MAX];        /* completed, in the order of their completion */
    size_t flying[REPLAY_CHANGES_MAX]; /* in flight, in the order of their submission */
    size_t done_count, flying_count;
};

static inline void replay_apply(struct sh_image *image, const struct recorded_change *change,
                                uint64_t from, size_t size)
{
    if (change->kind == SH_DISK_DISCARD)
        sh_image_discard(image, change->offset + from, size);
    else if (change->kind == SH_DISK_ALLOCATE)
        sh_image_reserve(image, change->offset + from, size);
    else
        sh_image_write(image, change->offset + from, change->bytes + from, size);
}

/* Moves what is safe, up to the first change that is not, to the image: later changes may have the same place. */
static inline void replay_fold(struct replay *replay)
{
    size_t safe = 0;
    while (safe < replay->done_count && replay->done[safe].is_safe) {
        const struct recorded_change *change =
            &replay->recorder->changes[replay->done[safe].change];
        replay_apply(&replay->image, change, 0, change->size);
        safe++;
    }
    replay->done_count -= safe;
    memmove(replay->done, replay->done + safe, replay->done_count * sizeof *replay->done);
}

static inline void replay_synced(struct replay *replay, const struct recorded_change *sync)
{
    for (size_t i = 0; i < replay->done_count; i++) {
        if (replay->recorder->changes[replay->done[i].change].done < sync->submitted)
            replay->done[i].is_safe = true;
    }
}

static inline void replay_done(struct replay *replay, size_t number)
{
    const struct recorded_change *change = &replay->recorder->changes[number];
    size_t i = 0;
    while (replay->flying[i] != number)
        i++;
    replay->flying_count--;
    memmove(replay->flying + i, replay->flying + i + 1,
            (replay->flying_count - i) * sizeof *replay->flying);
    assert_true(replay->done_count < REPLAY_CHANGES_MAX);
    replay->done[replay->done_count].change = number;
    replay->done[replay->done_count++].is_safe = change->kind == SH_DISK_WRITE_SYNC;
}

/* Goes on to a place, which is not before the one where it is. */
static inline void replay_to(struct replay *replay, size_t place)
{
    for (; replay->at < place; replay->at++) {
        const struct recorded_event *event = &replay->recorder->events[replay->at];
        const struct recorded_change *change = &replay->recorder->changes[event->change];
        bool is_sync = change->kind == SH_DISK_SYNC || change->kind == SH_DISK_SYNC_DIR;
        if (!event->is_done && !is_sync) {
            assert_true(replay->flying_count < REPLAY_CHANGES_MAX);
            replay->flying[replay->flying_count++] = event->change;
        } else if (event->is_done && !is_sync) {
            replay_done(replay, event->change);
        } else if (event->is_done && change->kind == SH_DISK_SYNC) {
            replay_synced(replay, change);
        } else if (event->is_done) {
            replay->is_name_safe = true;
        }
    }
    replay_fold(replay);
}

/* Some sectors of a change, or blocks of a range, each of them or not. */
static inline void replay_torn(struct sh_image *image, const struct recorded_change *change,
                               struct sh_prng *prng)
{
    bool is_range = change->kind == SH_DISK_DISCARD || change->kind == SH_DISK_ALLOCATE;
    size_t unit = is_range ? SH_DISK_RANGE_BYTES : RECORDER_SECTOR_BYTES;
    for (size_t from = 0; from < change->size;) {
        size_t size = unit - (size_t)((change->offset + from) % unit);
        size = size < change->size - from ? size : change->size - from;
        if (sh_prng_below(prng, 2))
            replay_apply(image, change, from, size);
        from += size;
    }
}

/* Whether change number i of so many, which need not be there, is: 0 no, 1 in part, 2 whole. */
static inline unsigned replay_fares(enum replay_luck luck, size_t i, size_t chosen,
                                    struct sh_prng *prng)
{
    switch (luck) {
    case REPLAY_ALL:
        return 2;
    case REPLAY_NONE:
        return 0;
    case REPLAY_FIRST:
        return i < chosen ? 2 : i == chosen;
    case REPLAY_BUT_ONE:
        return i == chosen ? 1 : 2;
    case REPLAY_CHANGES:
        return sh_prng_below(prng, 2) ? 2 : 0;
    default:
        return 1;
    }
}

/* Builds a state where the replay is, into image_out, which was empty; returns whether the file's name is there. */
static inline bool replay_state(const struct replay *replay, bool is_power, enum replay_luck luck,
                                struct sh_prng *prng, struct sh_image *image_out)
{
    const struct recorded_change *changes = replay->recorder->changes;
    size_t loose = 0, i = 0;
    sh_image_copy(image_out, &replay->image);
    for (size_t k = 0; is_power && k < replay->done_count; k++)
        loose += !replay->done[k].is_safe;
    loose += replay->flying_count;
    size_t chosen = loose ? (size_t)sh_prng_below(prng, loose) : 0;
    for (size_t k = 0; k < replay->done_count + replay->flying_count; k++) {
        bool is_done = k < replay->done_count;
        const struct recorded_change *change =
            &changes[is_done ? replay->done[k].change : replay->flying[k - replay->done_count]];
        bool is_there = is_done && (!is_power || replay->done[k].is_safe);
        unsigned fares = is_there ? 2 : replay_fares(luck, i++, chosen, prng);
        if (fares == 2)
            replay_apply(image_out, change, 0, change->size);
        else if (fares == 1)
            replay_torn(image_out, change, prng);
    }
    bool is_created = replay->recorder->name[0] && replay->recorder->created <= replay->at;
    return is_created && (!is_power || replay->is_name_safe || sh_prng_below(prng, 2));
}

/* --- A state as a disk ------------------------------------------------------------------------- */

#define STATE_OPS 64u

struct state_disk {
    struct sh_disk base;
    struct sh_image image;
    const char *name; /* of the one file */
    bool is_there;
    struct sh_disk_op *done[STATE_OPS];
    unsigned done_count;
};

static inline enum shoal_err state_open(struct sh_disk *disk, const char *name, bool create,
                                        int *file_out)
{
    struct state_disk *state = (struct state_disk *)disk;
    if (strcmp(name, state->name) != 0 || (!state->is_there && !create))
        return SHOAL_ENONAME;
    if (!state->is_there)
        sh_image_clear(&state->image);
    state->is_there = true;
    *file_out = 1;
    return SHOAL_OK;
}

static inline void state_close(struct sh_disk *disk, int file)
{
    (void)disk;
    assert_int_equal(file, 1);
}

static inline enum shoal_err state_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    (void)file;
    *bytes_out = ((struct state_disk *)disk)->image.size;
    return SHOAL_OK;
}

static inline enum shoal_err state_space(struct sh_disk *disk, uint64_t *bytes_out,
                                         uint64_t *free_out)
{
    (void)disk;
    *bytes_out = *free_out = UINT64_MAX;
    return SHOAL_OK;
}

static inline void state_write(struct sh_image *image, const struct sh_disk_op *op)
{
    uint64_t at = op->offset;
    if (!op->pieces_count)
        sh_image_write(image, at, op->data, op->size);
    for (unsigned i = 0; i < op->pieces_count; i++) {
        sh_image_write(image, at, op->pieces[i].iov_base, op->pieces[i].iov_len);
        at += op->pieces[i].iov_len;
    }
}

static inline enum shoal_err state_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct state_disk *state = (struct state_disk *)disk;
    if (state->done_count == STATE_OPS)
        return SHOAL_EAGAIN;
    size_t there = op->offset < state->image.size ? state->image.size - (size_t)op->offset : 0;
    op->err = SHOAL_OK;
    op->done_bytes = op->size;
    if (op->kind == SH_DISK_READ) {
        op->done_bytes = there < op->size ? there : op->size;
        if (op->done_bytes)
            sh_image_read(&state->image, op->offset, op->data, op->done_bytes);
    } else if (op->kind == SH_DISK_DISCARD) {
        sh_image_discard(&state->image, op->offset, op->size);
    } else if (op->kind == SH_DISK_ALLOCATE) {
        sh_image_reserve(&state->image, op->offset, op->size);
    } else if (sh_disk_is_write(op)) {
        state_write(&state->image, op);
    }
    state->done[state->done_count++] = op;
    return SHOAL_OK;
}

static inline unsigned state_poll(struct sh_disk *disk, bool wait)
{
    struct state_disk *state = (struct state_disk *)disk;
    struct sh_disk_op *done[STATE_OPS];
    unsigned count = state->done_count;
    (void)wait;
    memcpy(done, state->done, count * sizeof *done);
    state->done_count = 0;
    for (unsigned i = 0; i < count; i++)
        done[i]->done(done[i]);
    return count;
}

/* Begins as an empty image that has no file; its name is borrowed. */
static inline void state_disk_init(struct state_disk *state, const char *name)
{
    static const struct sh_disk_ops ops = {.open = state_open,
                                           .close = state_close,
                                           .size = state_size,
                                           .space = state_space,
                                           .submit = state_submit,
                                           .poll = state_poll};
    *state = (struct state_disk){.base.ops = &ops, .name = name};
}

#endif
