/* The journal, rule by rule: on a disk that fails when this test says, and with files that were put there
 * by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "journal/journal_int.h"

#define SEGMENT 65536u
#define ENTRY_BYTES 3000
#define S UINT64_C(1000000000)
#define FILES_MAX 1024
#define ROUNDS_MAX 10000

/* --- A disk that fails ---------------------------------------------------------------------------- */

enum fault { FAULT_NONE, FAULT_ERROR, FAULT_SHORT, FAULT_SYNC };

struct faulty {
    struct sh_disk base;
    struct sh_disk *under;
    unsigned slots[FILES_MAX];        /* of open files */
    enum fault fault;                 /* of the next write */
    bool is_for_zeros;                /* the next one of zeros: the file for the next segment */
    bool keeps_files;                 /* none can be removed */
    bool is_spoilt[SH_JOURNAL_SLOTS]; /* a write to that file has failed, and it is still there */
    bool is_named[SH_JOURNAL_SLOTS];  /* its name has been synced since this process began */
    unsigned failures, wrong;  /* wrong: writes to spoilt or unnamed files, and without a sync */
    unsigned reads_left;       /* until one fails; 0: none does */
    struct sh_disk_op *failed; /* to be completed by the next poll */
};

static struct faulty *faulty_of(struct sh_disk *disk)
{
    return (struct faulty *)disk;
}

static unsigned slot_of(const char *name)
{
    unsigned slot = SH_JOURNAL_SLOTS;
    (void)sscanf(name, "journal.%u", &slot);
    return slot;
}

static enum shoal_err faulty_open(struct sh_disk *disk, const char *name, bool create,
                                  int *file_out)
{
    struct faulty *faulty = faulty_of(disk);
    enum shoal_err err = sh_disk_open(faulty->under, name, create, file_out);
    assert_true(err || *file_out < FILES_MAX);
    if (!err)
        faulty->slots[*file_out] = slot_of(name);
    if (!err && create && slot_of(name) < SH_JOURNAL_SLOTS)
        faulty->is_named[slot_of(name)] = false;
    return err;
}

static void faulty_close(struct sh_disk *disk, int file)
{
    faulty_of(disk)->under->ops->close(faulty_of(disk)->under, file);
}

static enum shoal_err faulty_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    return faulty_of(disk)->under->ops->size(faulty_of(disk)->under, file, bytes_out);
}

static enum shoal_err faulty_remove(struct sh_disk *disk, const char *name)
{
    struct faulty *faulty = faulty_of(disk);
    if (faulty->keeps_files)
        return SHOAL_EIO;
    if (slot_of(name) < SH_JOURNAL_SLOTS)
        faulty->is_spoilt[slot_of(name)] = false;
    return faulty->under->ops->remove(faulty->under, name);
}

/* Half of what is written arrives; or all of it, where only the sync fails. */
static enum shoal_err half_write(struct faulty *faulty, struct sh_disk_op *op)
{
    struct sh_disk_op half = *op;
    half.size = faulty->fault == FAULT_SYNC ? op->size : op->size / 2;
    enum shoal_err err = sh_disk_do(faulty->under, &half);
    op->err = faulty->fault == FAULT_SHORT ? SHOAL_OK : SHOAL_EIO;
    op->done_bytes = half.size;
    faulty->failed = op;
    faulty->fault = FAULT_NONE;
    faulty->failures++;
    faulty->is_spoilt[faulty->slots[op->file]] = true;
    return err;
}

static enum shoal_err faulty_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct faulty *faulty = faulty_of(disk);
    bool is_write = op->kind == SH_DISK_WRITE_SYNC || op->kind == SH_DISK_WRITE;
    if (faulty->failed)
        return SHOAL_EAGAIN;
    if (op->kind == SH_DISK_READ && faulty->reads_left && --faulty->reads_left == 0)
        return SHOAL_EIO;
    if (op->kind == SH_DISK_SYNC_DIR)
        memset(faulty->is_named, true, sizeof faulty->is_named);
    faulty->wrong += is_write && (faulty->is_spoilt[faulty->slots[op->file]] ||
                                  !faulty->is_named[faulty->slots[op->file]]);
    faulty->wrong += op->kind == SH_DISK_WRITE; /* a batch's sync would have to wait for it */
    bool is_zeros = is_write && sh_load64(op->data) == 0;
    if (is_write && faulty->fault && is_zeros == faulty->is_for_zeros)
        return half_write(faulty, op);
    return sh_disk_submit(faulty->under, op);
}

static unsigned faulty_poll(struct sh_disk *disk, bool wait)
{
    struct faulty *faulty = faulty_of(disk);
    struct sh_disk_op *op = faulty->failed;
    faulty->failed = NULL;
    if (op)
        op->done(op);
    return sh_disk_poll(faulty->under, wait && !op) + (op != NULL);
}

static struct faulty disk;
static struct sh_journal *journal;
static uint64_t now_ns, draws;

/* --- A state machine: the index that it has got to -------------------------------------------------- */

static uint64_t last, read_last, snapshot_index, snapshot_left, ended, unapplied;

static enum shoal_err load_entry(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    (void)arg;
    (void)term;
    (void)kind;
    (void)bytes;
    if (index > read_last + 1)
        return SHOAL_ECORRUPT; /* one is missing */
    read_last = index;
    return SHOAL_OK;
}

static enum shoal_err load_snapshot_begin(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    (void)arg;
    (void)term;
    snapshot_index = index;
    if (is_first)
        read_last = index;
    return SHOAL_OK;
}

static enum shoal_err load_drop(void *arg)
{
    (void)arg;
    read_last = 0;
    return SHOAL_OK;
}

static bool snapshot_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    (void)arg;
    *index_out = snapshot_index = last > unapplied ? last - unapplied : 0;
    *term_out = 1;
    return true;
}

static void snapshot_entries(void *arg);

static size_t snapshot_next(void *arg, uint8_t *into, size_t room)
{
    (void)arg;
    if (!snapshot_left)
        return 0;
    snapshot_left--;
    memset(into, 1, room);
    return room;
}

static void snapshot_end(void *arg, bool is_done)
{
    (void)arg;
    (void)is_done;
    ended++;
}

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return now_ns;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, (int)++draws, size);
}

static enum shoal_err journal_open(void)
{
    struct sh_journal_stream stream = {.load_entry = load_entry,
                                       .load_snapshot_begin = load_snapshot_begin,
                                       .load_drop = load_drop,
                                       .snapshot_begin = snapshot_begin,
                                       .snapshot_entries = snapshot_entries,
                                       .snapshot_next = snapshot_next,
                                       .snapshot_end = snapshot_end};
    struct sh_journal_config config = {.env = {.clock = {clock_now, clock_now, NULL},
                                               .random = {random_fill, NULL},
                                               .disk = &disk.base},
                                       .label = sh_bytes_text("a test"),
                                       .segment_bytes = SEGMENT,
                                       .bytes_kept = 4 * SEGMENT,
                                       .piece_bytes = 4096,
                                       .streams = &stream,
                                       .streams_count = 1};
    read_last = 0;
    /* A process that begins knows of no failed write; it begins a new segment. Nor does it know whether the
     * one before it had the names synced. */
    memset(disk.is_spoilt, 0, sizeof disk.is_spoilt);
    memset(disk.is_named, 0, sizeof disk.is_named);
    return sh_journal_open(&config, &journal);
}

static int setup(void **state)
{
    static const struct sh_disk_ops ops = {.open = faulty_open,
                                           .close = faulty_close,
                                           .size = faulty_size,
                                           .remove = faulty_remove,
                                           .submit = faulty_submit,
                                           .poll = faulty_poll};
    (void)state;
    disk = (struct faulty){.base = {&ops}};
    now_ns = S;
    last = snapshot_left = ended = unapplied = 0;
    assert_int_equal(sh_memory_disk_create(&disk.under), SHOAL_OK);
    return journal_open() != SHOAL_OK;
}

static int teardown(void **state)
{
    (void)state;
    sh_journal_close(journal);
    disk.under->ops->destroy(disk.under);
    return 0;
}

static void append_at(uint64_t index)
{
    static const uint8_t bytes[ENTRY_BYTES] = {7};
    (void)sh_journal_append(journal, 0, index, 1, 1, sh_bytes_make(bytes, sizeof bytes));
}

static void append(void)
{
    append_at(++last);
}

static void snapshot_entries(void *arg)
{
    (void)arg;
    for (uint64_t i = snapshot_index + 1; i <= last; i++)
        append_at(i);
}

/* Steps until all that was said is stored, however often the disk fails. */
static void store(void)
{
    sh_lsn said = sh_journal_last(journal);
    for (unsigned i = 0; sh_journal_synced(journal) < said; i++) {
        assert_true(i < ROUNDS_MAX);
        now_ns += S / 10;
        (void)sh_journal_step(journal, now_ns);
    }
}

static void assert_read_back(void)
{
    sh_journal_close(journal);
    journal = NULL;
    assert_int_equal(journal_open(), SHOAL_OK);
    assert_int_equal(read_last, last);
}

/* --- Disks that fail ------------------------------------------------------------------------------ */

/* Writes much more than is kept, so that files are used again and again; some writes fail. */
static void fail_often(enum fault fault, bool is_for_zeros, bool keeps_files)
{
    for (unsigned i = 0; i < 600; i++) {
        append();
        if (i % 17 == 5) {
            disk.fault = fault;
            disk.is_for_zeros = is_for_zeros;
        }
        disk.keeps_files = keeps_files && i % 100 < 50;
        store();
        if (i % 150 == 149)
            assert_read_back();
    }
    assert_true(disk.failures > 0);
    assert_int_equal(disk.wrong, 0);
    assert_read_back();
}

static void a_file_whose_write_failed_is_left_alone(void **state)
{
    (void)state;
    fail_often(FAULT_ERROR, false, false);
}

static void also_one_that_can_not_be_removed(void **state)
{
    (void)state;
    fail_often(FAULT_ERROR, false, true);
}

static void also_one_that_was_being_made_ready(void **state)
{
    (void)state;
    fail_often(FAULT_ERROR, true, true);
}

static void a_short_write_has_failed(void **state)
{
    (void)state;
    fail_often(FAULT_SHORT, false, false);
}

/* What was written and not synced is there when a process reads it, and so may be once more in the next
 * segment. */
static void a_failed_sync_leaves_a_batch_twice(void **state)
{
    (void)state;
    fail_often(FAULT_SYNC, false, false);
}

static void also_in_files_that_stay(void **state)
{
    (void)state;
    fail_often(FAULT_SYNC, false, true);
}

/* Whichever read fails, opening says so, and changes nothing. */
static void what_can_not_be_read_is_said(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        append();
        store();
    }
    sh_journal_close(journal);
    journal = NULL;
    unsigned reads = 0;
    enum shoal_err err;
    do {
        disk.reads_left = ++reads;
        err = journal_open();
        assert_int_equal(err, disk.reads_left ? SHOAL_OK : SHOAL_EIO);
    } while (err);
    assert_in_range(reads, 5, 1000);
    assert_int_equal(read_last, last);
}

/* What is to be said has room, until the journal is full: then nothing is taken, and it is not lost. */
static void a_journal_that_is_full_says_so(void **state)
{
    (void)state;
    unsigned count = 0;
    for (; !sh_journal_is_full(journal); count++)
        append();
    assert_in_range(count, SH_JOURNAL_CHUNKS_FULL, 1u << 20);
    assert_int_equal(journal->chunks_count, SH_JOURNAL_CHUNKS_FULL);
    store();
    assert_false(sh_journal_is_full(journal));
    assert_read_back();
}

/* --- Snapshots -------------------------------------------------------------------------------------- */

/* A stream that is dropped while its snapshot is being written has none any more. */
static void a_dropped_stream_is_not_saved(void **state)
{
    (void)state;
    snapshot_left = 1000000;
    while (!sh_journal_is_saving(journal)) {
        append();
        store();
    }
    uint64_t before = ended;
    (void)sh_journal_drop(journal, 0);
    assert_false(sh_journal_is_saving(journal));
    assert_int_equal(ended, before + 1);
    last = 0;
    append();
    store();
    assert_read_back();
}

/* Entries behind a snapshot are said once more, in several batches: cut off between them, all entries
 * are there, for they were before. */
static void entries_said_again_cut_none_off(void **state)
{
    (void)state;
    unapplied = 60;
    snapshot_left = SIZE_MAX;
    while (!sh_journal_is_saving(journal)) {
        append();
        store();
    }
    sh_lsn before = sh_journal_synced(journal);
    while (sh_journal_synced(journal) == before)
        (void)sh_journal_step(journal, now_ns);
    assert_true(journal->chunks_count > 1);
    assert_read_back();
}

/* Those who begin to read at the snapshot get them. */
static void entries_said_again_are_all_of_them(void **state)
{
    (void)state;
    unapplied = 30;
    for (unsigned i = 0; i < 300; i++) {
        append();
        store();
        if (i % 50 == 49)
            assert_read_back();
    }
    assert_true(sh_journal_needed(journal) > 2);
}

/* An install that a process did not end keeps no file for ever. */
static void a_cut_off_install_is_forgotten(void **state)
{
    (void)state;
    append();
    sh_journal_install_begin(journal, 0, 9, 1);
    store();
    assert_read_back();
    for (unsigned i = 0; i < 300; i++) {
        append();
        store();
    }
    assert_in_range(sh_journal_bytes(journal), 0, 8 * SEGMENT);
    assert_read_back();
}

/* --- Files of others -------------------------------------------------------------------------------- */

static uint8_t *file_read(unsigned slot, size_t *size_out)
{
    uint8_t *bytes;
    assert_int_equal(sh_journal_read(disk.under, slot, SIZE_MAX, &bytes, size_out), SHOAL_OK);
    return bytes;
}

static void file_write(unsigned slot, uint64_t offset, struct sh_bytes bytes)
{
    char name[SH_JOURNAL_NAME_BYTES];
    int file;
    sh_journal_name(name, slot);
    assert_int_equal(sh_disk_open(disk.under, name, true, &file), SHOAL_OK);
    struct sh_disk_op op = {.kind = SH_DISK_WRITE,
                            .file = file,
                            .offset = offset,
                            .data = (void *)(uintptr_t)bytes.at,
                            .size = bytes.size};
    assert_int_equal(sh_disk_do(disk.under, &op), SHOAL_OK);
    disk.under->ops->close(disk.under, file);
}

static size_t batch_at(unsigned number)
{
    return SH_JOURNAL_BLOCK + number * (size_t)SH_JOURNAL_BLOCK;
}

/* Another journal of the same label, with as many batches and one more. Gives back its only segment. */
static uint8_t *another_journal(unsigned batches, size_t *size_out)
{
    struct faulty first = disk;
    struct sh_journal *first_journal = journal;
    uint64_t first_last = last;
    (void)setup(NULL);
    for (unsigned i = 0; i < batches; i++) {
        append();
        store();
    }
    unsigned slot = journal->slot;
    sh_journal_close(journal);
    uint8_t *bytes = file_read(slot, size_out);
    disk.under->ops->destroy(disk.under);
    disk = first;
    journal = first_journal;
    last = first_last;
    return bytes;
}

static void another_journals_batch_is_none(void **state)
{
    (void)state;
    size_t size, theirs_size;
    for (unsigned i = 0; i < 3; i++) {
        append();
        store();
    }
    unsigned slot = journal->slot;
    uint8_t *theirs = another_journal(4, &theirs_size);
    sh_journal_close(journal);
    journal = NULL;
    /* Behind the last batch: the one that opening has written, and those of the three entries. */
    uint8_t *bytes = file_read(slot, &size);
    struct sh_journal_batch batch;
    size_t at = batch_at(4);
    assert_true(sh_journal_batch_get(sh_bytes_make(bytes, size), batch_at(3), 0, &batch));
    assert_false(sh_journal_batch_get(sh_bytes_make(bytes, size), at, 0, &batch));
    assert_true(sh_journal_batch_get(sh_bytes_make(theirs, theirs_size), at, 0, &batch));
    file_write(slot, at, sh_bytes_make(theirs + at, SH_JOURNAL_BLOCK));
    free(bytes);
    free(theirs);
    assert_int_equal(journal_open(), SHOAL_OK);
    assert_int_equal(read_last, 3);
}

static void two_journals_are_none(void **state)
{
    (void)state;
    size_t size;
    append();
    store();
    uint8_t *theirs = another_journal(1, &size);
    sh_journal_close(journal);
    journal = NULL;
    file_write(SH_JOURNAL_SLOTS - 1, 0, sh_bytes_make(theirs, size));
    free(theirs);
    assert_int_equal(journal_open(), SHOAL_ECORRUPT);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_file_whose_write_failed_is_left_alone),
        CASE(also_one_that_can_not_be_removed),
        CASE(also_one_that_was_being_made_ready),
        CASE(a_short_write_has_failed),
        CASE(a_failed_sync_leaves_a_batch_twice),
        CASE(also_in_files_that_stay),
        CASE(what_can_not_be_read_is_said),
        CASE(a_journal_that_is_full_says_so),
        CASE(a_dropped_stream_is_not_saved),
        CASE(entries_said_again_cut_none_off),
        CASE(entries_said_again_are_all_of_them),
        CASE(a_cut_off_install_is_forgotten),
        CASE(another_journals_batch_is_none),
        CASE(two_journals_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
