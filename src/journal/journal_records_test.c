/* What opening makes of records, good ones and ones that no journal writes: a batch made by hand behind
 * what a journal has written, as if it had been the last one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "journal/journal_int.h"

#define SEGMENT 65536u
#define LABEL "a test"
#define REFUSED 1000      /* the state machine does not take an entry with that index */
#define BEHIND_A_GAP 2000 /* the state machine says that entries before that index are missing */

static struct sh_disk *disk;
static struct sh_journal *journal;
static uint64_t draws;
static const char *label = LABEL;

/* --- A state machine: what it was given -------------------------------------------------------------- */

static uint64_t read_last;
static unsigned states, state_bytes, firsts, pieces, ends;

static enum shoal_err load_state(void *arg, struct sh_bytes state)
{
    (void)arg;
    states++;
    state_bytes = (unsigned)state.size;
    return SHOAL_OK;
}

static enum shoal_err load_entry(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    (void)arg;
    (void)bytes;
    assert_true(term == 3 && kind == 7);
    read_last = index;
    if (index == BEHIND_A_GAP)
        return SHOAL_ECORRUPT;
    return index == REFUSED ? SHOAL_ECLUSTER : SHOAL_OK;
}

static enum shoal_err load_snapshot_begin(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    (void)arg;
    assert_true(index == 4 && term == 3);
    firsts += is_first;
    return SHOAL_OK;
}

static enum shoal_err load_snapshot_piece(void *arg, struct sh_bytes piece)
{
    (void)arg;
    (void)piece;
    pieces++;
    return SHOAL_OK;
}

static enum shoal_err load_snapshot_end(void *arg, bool is_reset)
{
    (void)arg;
    (void)is_reset;
    ends++;
    return SHOAL_OK;
}

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return 1;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, (int)++draws, size);
}

static enum shoal_err journal_open(void)
{
    struct sh_journal_stream stream = {.load_state = load_state,
                                       .load_entry = load_entry,
                                       .load_snapshot_begin = load_snapshot_begin,
                                       .load_snapshot_piece = load_snapshot_piece,
                                       .load_snapshot_end = load_snapshot_end};
    struct sh_journal_config config = {
        .env = {.clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}, .disk = disk},
        .label = sh_bytes_text(label),
        .segment_bytes = SEGMENT,
        .streams = &stream,
        .streams_count = 1};
    read_last = states = state_bytes = firsts = pieces = ends = 0;
    journal = NULL;
    return sh_journal_open(&config, &journal);
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    return journal_open() != SHOAL_OK;
}

static int teardown(void **state)
{
    (void)state;
    sh_journal_close(journal);
    disk->ops->destroy(disk);
    return 0;
}

/* --- Records by hand ----------------------------------------------------------------------------------- */

static uint8_t bytes[SH_JOURNAL_BLOCK];
static struct sh_writer records;

static void records_begin(void)
{
    records = sh_writer_make(bytes + SH_JOURNAL_HEAD_BYTES, sizeof bytes - SH_JOURNAL_HEAD_BYTES);
}

/* A record's head; its bytes follow. */
static struct sh_writer *record(unsigned kind, unsigned stream, unsigned zero, size_t size)
{
    sh_put8(&records, (uint8_t)kind);
    sh_put8(&records, (uint8_t)stream);
    sh_put16(&records, (uint16_t)zero);
    sh_put32(&records, (uint32_t)size);
    return &records;
}

static void start(void)
{
    (void)record(SH_JOURNAL_START, 0, 0, 0);
}

static void drop(void)
{
    (void)record(SH_JOURNAL_DROP, 0, 0, 0);
}

static void state_of(size_t size)
{
    static const uint8_t zeros[SH_JOURNAL_STATE_BYTES_MAX + 1];
    sh_put_raw(record(SH_JOURNAL_STATE, 0, 0, size), sh_bytes_make(zeros, size));
}

/* The first `size` bytes of an entry's record, or more. */
static void entry(unsigned kind, uint64_t index, size_t size)
{
    uint8_t body[32] = {0};
    sh_store64(body, index);
    sh_store64(body + 8, 3);
    body[16] = 7;
    sh_put_raw(record(kind, 0, 0, size), sh_bytes_make(body, size));
}

static void begin(unsigned is_install, size_t size)
{
    uint8_t body[32] = {0};
    sh_store64(body, 4);
    sh_store64(body + 8, 3);
    body[16] = (uint8_t)is_install;
    sh_put_raw(record(SH_JOURNAL_BEGIN, 0, 0, size), sh_bytes_make(body, size));
}

static void piece(void)
{
    sh_put8(record(SH_JOURNAL_PIECE, 0, 0, 1), 0);
}

static void end(unsigned is_install, size_t size)
{
    const uint8_t body[2] = {(uint8_t)is_install, 0};
    sh_put_raw(record(SH_JOURNAL_END, 0, 0, size), sh_bytes_make(body, size));
}

static uint64_t block_at(uint64_t number)
{
    return number * SH_JOURNAL_BLOCK;
}

/* Reads or writes one block of a segment's file. */
static void block_do(enum sh_disk_kind kind, unsigned slot, uint64_t offset, uint8_t *block)
{
    char name[SH_JOURNAL_NAME_BYTES];
    int file;
    sh_journal_name(name, slot);
    assert_int_equal(sh_disk_open(disk, name, false, &file), SHOAL_OK);
    struct sh_disk_op op = {
        .kind = kind, .file = file, .offset = offset, .data = block, .size = SH_JOURNAL_BLOCK};
    assert_int_equal(sh_disk_do(disk, &op), SHOAL_OK);
    disk->ops->close(disk, file);
}

static void block_clear(unsigned slot, uint64_t number)
{
    static uint8_t zeros[SH_JOURNAL_BLOCK];
    block_do(SH_DISK_WRITE, slot, block_at(number), zeros);
}

static void block_copy(unsigned from, uint64_t number, unsigned to, uint64_t to_number)
{
    uint8_t block[SH_JOURNAL_BLOCK];
    block_do(SH_DISK_READ, from, block_at(number), block);
    block_do(SH_DISK_WRITE, to, block_at(to_number), block);
}

static void journal_shut(void)
{
    sh_journal_close(journal);
    journal = NULL;
}

/* Writes the records behind what the journal has written, and opens it again. */
static enum shoal_err reopen(void)
{
    assert_true(sh_writer_ok(&records));
    size_t size = (size_t)(records.at - bytes);
    struct sh_writer w = sh_writer_make(bytes, SH_JOURNAL_HEAD_BYTES);
    sh_put64(&w, SH_JOURNAL_BATCH_MAGIC);
    sh_put64(&w, journal->id);
    sh_put64(&w, journal->batch);
    sh_put32(&w, (uint32_t)(size - SH_JOURNAL_HEAD_BYTES));
    sh_put32(&w, 0);
    sh_store32(bytes + SH_JOURNAL_HEAD_BYTES - 4,
               sh_journal_crc(bytes, size, SH_JOURNAL_HEAD_BYTES - 4));
    uint64_t offset = journal->offset;
    unsigned slot = journal->slot;
    journal_shut();
    block_do(SH_DISK_WRITE, slot, offset, bytes);
    records_begin();
    return journal_open();
}

/* The same, of a journal that holds nothing else; it is gone afterwards if it could not be opened. */
static void assert_reopens(enum shoal_err err)
{
    assert_int_equal(reopen(), err);
    (void)teardown(NULL);
    assert_int_equal(setup(NULL), 0);
}

/* --- Rules ------------------------------------------------------------------------------------------- */

static void a_record_is_as_it_is_written(void **state)
{
    (void)state;
    records_begin();
    (void)record(0, 0, 0, 0);
    assert_reopens(SHOAL_ECORRUPT);
    (void)record(SH_JOURNAL_AGAIN + 1, 0, 0, 0);
    assert_reopens(SHOAL_ECORRUPT);
    (void)record(SH_JOURNAL_START, 1, 0, 0); /* there is one stream */
    assert_reopens(SHOAL_ECORRUPT);
    (void)record(SH_JOURNAL_START, 0, 1, 0);
    assert_reopens(SHOAL_ECORRUPT);
    (void)record(SH_JOURNAL_START, 0, 0, 1); /* and nothing follows */
    assert_reopens(SHOAL_ECORRUPT);
    sh_put32(&records, 0); /* half a head */
    assert_reopens(SHOAL_ECORRUPT);
}

static void a_state_is_no_longer_than_there_is_room_for(void **state)
{
    (void)state;
    records_begin();
    start();
    state_of(SH_JOURNAL_STATE_BYTES_MAX + 1);
    assert_reopens(SHOAL_ECORRUPT);
    start();
    state_of(SH_JOURNAL_STATE_BYTES_MAX);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_int_equal(state_bytes, SH_JOURNAL_STATE_BYTES_MAX);
    assert_int_equal(journal->streams[0].state_size, SH_JOURNAL_STATE_BYTES_MAX);
}

static void an_entry_has_an_index_a_term_and_a_kind(void **state)
{
    (void)state;
    records_begin();
    for (unsigned i = 0; i < 2; i++) {
        start();
        entry(i ? SH_JOURNAL_AGAIN : SH_JOURNAL_ENTRY, 1, 16);
        assert_reopens(SHOAL_ECORRUPT);
    }
    start();
    entry(SH_JOURNAL_ENTRY, 1, 17);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_int_equal(read_last, 1);
}

static void a_snapshot_begins_and_ends_in_one_way(void **state)
{
    (void)state;
    records_begin();
    static const struct {
        uint8_t begins_as, begin_size, ends_as, end_size;
        enum shoal_err err;
    } cases[] = {
        {0, 17, 0, 1, SHOAL_OK},       {1, 17, 1, 1, SHOAL_OK},       {0, 16, 0, 1, SHOAL_ECORRUPT},
        {0, 18, 0, 1, SHOAL_ECORRUPT}, {2, 17, 2, 1, SHOAL_ECORRUPT}, {0, 17, 1, 1, SHOAL_ECORRUPT},
        {1, 17, 0, 1, SHOAL_ECORRUPT}, {0, 17, 0, 0, SHOAL_ECORRUPT}, {0, 17, 0, 2, SHOAL_ECORRUPT},
        {1, 17, 1, 2, SHOAL_ECORRUPT},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(cases[i].begins_as, cases[i].begin_size);
        end(cases[i].ends_as, cases[i].end_size);
        assert_reopens(cases[i].err);
    }
    begin(2, 17);
    assert_reopens(SHOAL_ECORRUPT);
}

/* Of a stream that begins with a snapshot, and of which its entries are read before the snapshot is
 * whole, nothing is known without its end. One from elsewhere begins nothing before it ends. */
static void a_stream_is_read_as_a_whole(void **state)
{
    (void)state;
    records_begin();
    begin(0, 17);
    entry(SH_JOURNAL_AGAIN, 5, 17);
    assert_reopens(SHOAL_ECORRUPT);
    begin(0, 17);
    entry(SH_JOURNAL_AGAIN, 5, 17);
    entry(SH_JOURNAL_ENTRY, 6, 17);
    end(0, 1);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_true(read_last == 6 && firsts == 1 && ends == 1);
    drop();
    begin(1, 17);
    piece();
    entry(SH_JOURNAL_ENTRY, 9, 17);
    state_of(1);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_true(read_last == 6 && firsts == 1 && pieces == 1 && ends == 1 && states == 0);
    assert_false(journal->streams[0].is_there);
    assert_int_equal(journal->streams[0].segment, 0);
}

/* An entry that is said once more is from before those behind it: it must not cut them off. */
static void entries_said_again_are_for_who_begins_there(void **state)
{
    (void)state;
    records_begin();
    start();
    entry(SH_JOURNAL_ENTRY, 5, 17);
    entry(SH_JOURNAL_ENTRY, 6, 17);
    begin(0, 17);
    entry(SH_JOURNAL_AGAIN, 5, 17);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_true(read_last == 6 && firsts == 0);
}

/* What was dropped is as if it had never been: entries, state, and the size of its snapshot. */
static void nothing_is_left_of_what_was_dropped(void **state)
{
    (void)state;
    records_begin();
    start();
    state_of(3);
    begin(1, 17);
    piece();
    end(1, 1);
    drop();
    entry(SH_JOURNAL_ENTRY, 5, 17);
    state_of(2);
    piece();
    end(1, 1);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_true(read_last == 0 && states == 1 && pieces == 1 && ends == 1);
    assert_false(journal->streams[0].is_there);
    assert_int_equal(journal->streams[0].state_size, 0);
    assert_int_equal(sh_journal_allowed(journal), journal->bytes_kept);
    /* Begun again, it is there, in the same batch. */
    drop();
    start();
    entry(SH_JOURNAL_ENTRY, 1, 17);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_true(read_last == 1 && journal->streams[0].is_there);
}

/* The snapshot that counts is the last whole one: its pieces, and the segment that it begins in. */
static void the_last_whole_snapshot_counts(void **state)
{
    (void)state;
    records_begin();
    start();
    begin(1, 17);
    piece(); /* given up */
    begin(1, 17);
    piece();
    piece();
    end(1, 1);
    piece(); /* of none */
    end(1, 1);
    begin(1, 17);
    piece(); /* not ended either */
    assert_int_equal(reopen(), SHOAL_OK);
    assert_int_equal(pieces, 4);
    assert_int_equal(ends, 1);
    assert_int_equal(sh_journal_allowed(journal), journal->bytes_kept + 2 * 2);
    assert_false(journal->streams[0].is_installing);
    assert_int_equal(journal->streams[0].beginning, 0);
    /* (Opening moves the batch that it reads last; so an empty one comes behind it.) */
    assert_int_equal(reopen(), SHOAL_OK);
    uint64_t before = sh_journal_needed(journal);
    begin(1, 17);
    end(1, 1);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_true(sh_journal_needed(journal) > before);
    /* One that has not ended changes nothing of that. */
    assert_int_equal(reopen(), SHOAL_OK);
    before = sh_journal_needed(journal);
    begin(1, 17);
    assert_int_equal(reopen(), SHOAL_OK);
    assert_int_equal(sh_journal_needed(journal), before);
    begin(1, 17);
    end(1, 1);
    start(); /* a stream that begins needs what is behind it */
    assert_int_equal(reopen(), SHOAL_OK);
    assert_int_equal(sh_journal_allowed(journal), journal->bytes_kept);
}

/* A snapshot that a process gave up lacks entries, so that the entries behind it leave a gap. The journal is good
 * if a whole snapshot follows, and damaged if none does. */
static void what_was_given_up_may_have_gaps(void **state)
{
    for (unsigned is_ended = 0; is_ended < 2; is_ended++) {
        (void)teardown(state);
        (void)setup(state);
        records_begin();
        begin(0, 17);
        entry(SH_JOURNAL_AGAIN, 5, 17);
        entry(SH_JOURNAL_ENTRY, BEHIND_A_GAP, 17);
        end(0, 1); /* of none */
        entry(SH_JOURNAL_ENTRY, 6, 17);
        if (is_ended) {
            begin(0, 17);
            entry(SH_JOURNAL_AGAIN, 7, 17);
            piece();
            end(0, 1);
            entry(SH_JOURNAL_ENTRY, 8, 17);
        }
        assert_int_equal(reopen(), is_ended ? SHOAL_OK : SHOAL_ECORRUPT);
        assert_int_equal(read_last, is_ended ? 8 : BEHIND_A_GAP);
        assert_int_equal(ends, is_ended);
        assert_int_equal(firsts, 1 + is_ended);
    }
    /* A snapshot of another server's that comes takes their place, if it is whole. */
    for (unsigned is_ended = 0; is_ended < 2; is_ended++) {
        (void)teardown(state);
        (void)setup(state);
        records_begin();
        begin(0, 17);
        entry(SH_JOURNAL_AGAIN, 5, 17);
        begin(1, 17);
        piece();
        entry(SH_JOURNAL_ENTRY, BEHIND_A_GAP, 17);
        piece();
        if (is_ended)
            end(1, 1);
        assert_int_equal(reopen(), is_ended ? SHOAL_OK : SHOAL_ECORRUPT);
        assert_int_equal(ends, is_ended);
        assert_int_equal(pieces, 2);
    }
    /* A stream that has been read as a whole has no gap. */
    records_begin();
    entry(SH_JOURNAL_ENTRY, BEHIND_A_GAP, 17);
    assert_int_equal(reopen(), SHOAL_ECORRUPT);
    /* A stream that is dropped afterwards needs no snapshot. */
    (void)teardown(state);
    (void)setup(state);
    records_begin();
    begin(0, 17);
    entry(SH_JOURNAL_ENTRY, BEHIND_A_GAP, 17);
    drop();
    assert_int_equal(reopen(), SHOAL_OK);
}

/* --- Heads ------------------------------------------------------------------------------------------- */

static enum shoal_err header_with(size_t at, size_t size, uint64_t value)
{
    uint8_t block[SH_JOURNAL_BLOCK];
    struct sh_journal_header header;
    sh_journal_header_put(block, journal);
    for (size_t i = 0; i < size; i++)
        block[at + i] = (uint8_t)(value >> 8 * i);
    sh_store32(block + SH_JOURNAL_BLOCK - 4,
               sh_journal_crc(block, SH_JOURNAL_BLOCK, SH_JOURNAL_BLOCK - 4));
    enum shoal_err err = sh_journal_header_get(sh_bytes_make(block, SH_JOURNAL_BLOCK), &header);
    if (!err) {
        assert_int_equal(sh_journal_header_get(sh_bytes_make(block, SH_JOURNAL_BLOCK - 1), &header),
                         SHOAL_ECORRUPT);
        block[SH_JOURNAL_BLOCK - 5] ^= 1;
        assert_int_equal(sh_journal_header_get(sh_bytes_make(block, SH_JOURNAL_BLOCK), &header),
                         SHOAL_ECORRUPT);
    }
    return err;
}

/* Even if all of it is as it was written. */
static void a_header_is_sound(void **state)
{
    (void)state;
    static const struct {
        size_t at, size;
        uint64_t value;
        enum shoal_err err;
    } cases[] = {
        {0, 1, 0, SHOAL_ECORRUPT},     {8, 2, 2, SHOAL_EVERSION},    {10, 2, 0, SHOAL_ECORRUPT},
        {10, 2, 128, SHOAL_OK},        {10, 2, 129, SHOAL_ECORRUPT}, {12, 4, 1, SHOAL_ECORRUPT},
        {16, 8, 0, SHOAL_ECORRUPT},    {24, 8, 0, SHOAL_ECORRUPT},   {32, 8, 0, SHOAL_ECORRUPT},
        {32, 8, 1000, SHOAL_ECORRUPT}, {40, 8, 0, SHOAL_ECORRUPT}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(header_with(cases[i].at, cases[i].size, cases[i].value), cases[i].err);
}

/* A batch of that many bytes at the end of a file that says it has others. */
static bool batch_with(size_t size, uint32_t said, uint8_t magic, uint64_t of)
{
    struct sh_journal_batch batch;
    uint8_t file[2 * SH_JOURNAL_BLOCK] = {0};
    size_t at = sizeof file - SH_JOURNAL_HEAD_BYTES - size;
    sh_store64(file + at, SH_JOURNAL_BATCH_MAGIC ^ magic);
    sh_store64(file + at + 8, 9);
    sh_store64(file + at + 16, 5);
    sh_store32(file + at + 24, said);
    sh_store32(file + at + 28, sh_journal_crc(file + at, SH_JOURNAL_HEAD_BYTES + size, 28));
    assert_false(
        sh_journal_batch_get(sh_bytes_make(file, sizeof file), sizeof file - 31, 0, &batch));
    assert_false(
        sh_journal_batch_get(sh_bytes_make(file, sizeof file), sizeof file + 1, 0, &batch));
    bool is_there = sh_journal_batch_get(sh_bytes_make(file, sizeof file), at, of, &batch);
    assert_true(!is_there || (batch.number == 5 && batch.records.size == size));
    return is_there;
}

static void a_batch_lies_within_its_file(void **state)
{
    (void)state;
    assert_true(batch_with(0, 0, 0, 9));
    assert_true(batch_with(100, 100, 0, 0));
    assert_false(batch_with(100, 101, 0, 9));
    assert_false(batch_with(100, UINT32_MAX, 0, 9));
    assert_false(batch_with(100, 100, 1, 9)); /* no batch's magic */
    assert_false(batch_with(100, 100, 0, 8)); /* of another journal */
}

/* --- Segments ---------------------------------------------------------------------------------------- */

/* Stores an entry, in a batch of its own. */
static void append(uint64_t index)
{
    static const uint8_t none[1];
    (void)sh_journal_append(journal, 0, index, 3, 7, sh_bytes_make(none, 1));
    while (sh_journal_synced(journal) < sh_journal_last(journal))
        (void)sh_journal_step(journal, 1);
}

/* Three batches with an entry each, in one segment; the third once more in the next one, which opening
 * has begun. Shut. The segments are in slot *old_out, at blocks 2, 3 and 4 behind an empty batch, and
 * *next_out, at block 1. */
static void two_segments(unsigned *old_out, unsigned *next_out)
{
    *old_out = journal->slot;
    for (uint64_t i = 1; i <= 3; i++)
        append(i);
    assert_int_equal(journal->offset, block_at(5));
    journal_shut();
    assert_int_equal(journal_open(), SHOAL_OK);
    *next_out = journal->slot;
    assert_true(*old_out != *next_out && journal->offset == block_at(2));
    journal_shut();
}

static void the_last_batch_may_be_lost(void **state)
{
    (void)state;
    unsigned old, next;
    two_segments(&old, &next);
    block_clear(next, 1);
    block_clear(old, 4);
    assert_int_equal(journal_open(), SHOAL_OK);
    assert_int_equal(read_last, 2);
}

static void no_other_batch_may(void **state)
{
    (void)state;
    unsigned old, next;
    for (uint64_t block = 1; block <= 3; block++) {
        two_segments(&old, &next);
        block_clear(old, block);
        block_clear(old, 4); /* one with that number counts in the next segment only */
        assert_int_equal(journal_open(), SHOAL_ECORRUPT);
        (void)teardown(NULL);
        assert_int_equal(setup(NULL), 0);
    }
    /* Nor does another one do in its place. */
    two_segments(&old, &next);
    block_copy(old, 3, old, 2);
    assert_int_equal(journal_open(), SHOAL_ECORRUPT);
    (void)teardown(NULL);
    assert_int_equal(setup(NULL), 0);
    /* Nor the first one of the last segment, when there is a second. */
    two_segments(&old, &next);
    assert_int_equal(journal_open(), SHOAL_OK);
    next = journal->slot;
    append(4);
    journal_shut();
    block_clear(next, 1);
    assert_int_equal(journal_open(), SHOAL_ECORRUPT);
}

/* A header and the first batch are written together, and one of both may have arrived. */
static void a_header_and_its_batch_may_be_torn_apart(void **state)
{
    (void)state;
    unsigned old, next;
    two_segments(&old, &next);
    block_copy(old, 2, next, 1); /* of before, in a file that is used again */
    assert_int_equal(journal_open(), SHOAL_OK);
    assert_int_equal(read_last, 3);
    (void)teardown(NULL);
    assert_int_equal(setup(NULL), 0);
    two_segments(&old, &next);
    block_clear(next, 0);
    block_clear(old, 4);
    assert_int_equal(journal_open(), SHOAL_OK);
    assert_int_equal(read_last, 3);
}

/* A stream that begins in such a batch needs the segment in which the batch is written once more: the file
 * without a header has no number that a later start could find. */
static void a_stream_begins_behind_a_lost_header(void **state)
{
    (void)state;
    unsigned old = journal->slot;
    records_begin();
    start();
    entry(SH_JOURNAL_ENTRY, 1, 17);
    assert_int_equal(reopen(), SHOAL_OK);
    unsigned next = journal->slot;
    journal_shut();
    block_clear(next, 0);
    block_clear(old, 2);
    assert_int_equal(journal_open(), SHOAL_OK);
    assert_int_equal(read_last, 1);
    assert_int_equal(sh_journal_needed(journal), journal->segment);
    assert_int_equal(journal->slots[next].kind, SH_JOURNAL_FREE_FILE);
    append(2);
    /* What is needed stays that, and is found, when a later segment's header says so. */
    for (unsigned i = 0; i < 3; i++) {
        journal_shut();
        assert_int_equal(journal_open(), SHOAL_OK);
        assert_int_equal(read_last, 2);
    }
}

/* Such a batch is the only one in its file: with a second one the header has been there. */
static void a_header_with_two_batches_is_needed(void **state)
{
    (void)state;
    unsigned old = journal->slot;
    records_begin();
    start();
    assert_int_equal(reopen(), SHOAL_OK);
    unsigned next = journal->slot;
    entry(SH_JOURNAL_ENTRY, 1, 17);
    assert_int_equal(reopen(), SHOAL_OK);
    unsigned last = journal->slot;
    journal_shut();
    block_clear(last, 0);
    block_clear(last, 1);
    block_clear(next, 0);
    block_clear(old, 2);
    assert_int_equal(journal_open(), SHOAL_ECORRUPT);
}

static void what_a_stream_refuses_is_said(void **state)
{
    (void)state;
    records_begin();
    start();
    entry(SH_JOURNAL_ENTRY, REFUSED, 17);
    entry(SH_JOURNAL_ENTRY, 1, 17);
    assert_int_equal(reopen(), SHOAL_ECLUSTER);
}

static void a_label_is_compared_as_a_whole(void **state)
{
    (void)state;
    static const char *const others[] = {"a tes", "a test ", "a text"};
    journal_shut();
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        label = others[i];
        assert_int_equal(journal_open(), SHOAL_ECLUSTER);
    }
    label = LABEL;
    assert_int_equal(journal_open(), SHOAL_OK);
}

int main(void)
{
    if (sh_log_output_set("/dev/null", SH_LOG_AS_TEXT))
        return 1; /* every error here is meant to be */
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_record_is_as_it_is_written),
        CASE(a_state_is_no_longer_than_there_is_room_for),
        CASE(an_entry_has_an_index_a_term_and_a_kind),
        CASE(a_snapshot_begins_and_ends_in_one_way),
        CASE(a_stream_is_read_as_a_whole),
        CASE(entries_said_again_are_for_who_begins_there),
        CASE(nothing_is_left_of_what_was_dropped),
        CASE(the_last_whole_snapshot_counts),
        CASE(what_was_given_up_may_have_gaps),
        CASE(a_header_is_sound),
        CASE(a_batch_lies_within_its_file),
        CASE(the_last_batch_may_be_lost),
        CASE(no_other_batch_may),
        CASE(a_header_and_its_batch_may_be_torn_apart),
        CASE(a_stream_begins_behind_a_lost_header),
        CASE(a_header_with_two_batches_is_needed),
        CASE(what_a_stream_refuses_is_said),
        CASE(a_label_is_compared_as_a_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
