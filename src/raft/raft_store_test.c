/* What the journal gives back to a server when it begins to read behind the last whole snapshot but
 * one: a snapshot that was given up, as the process ended, and the one that took its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "raft/raft_int.h"
#include "raft/raft_journal_test.h"

static unsigned restored;
static enum shoal_err got; /* what the state machine says of a snapshot */
static size_t size_expected = 1;

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    (void)arg;
    (void)index;
    (void)term;
    (void)command;
}

static size_t snapshot_size(void *arg)
{
    (void)arg;
    return 1;
}

static void snapshot_put(void *arg, struct sh_writer *w)
{
    (void)arg;
    sh_put8(w, 'S');
}

static enum shoal_err snapshot_get(void *arg, struct sh_bytes snapshot)
{
    (void)arg;
    assert_int_equal(snapshot.size, size_expected);
    restored++;
    return got;
}

/* As raft_store.c writes it: of server 1, in a log with number 9 of three voters. */
static void load_state(const struct sh_journal_stream *stream, uint64_t term)
{
    uint8_t state[44];
    struct sh_writer w = sh_writer_make(state, sizeof state);
    sh_put8(&w, 0);
    sh_put8(&w, 0);
    sh_put8(&w, 1);
    sh_put8(&w, 0);
    sh_put64(&w, term);
    sh_put64(&w, 9);
    sh_put64(&w, 1);
    sh_put64(&w, 14);
    sh_put64(&w, 0);
    assert_int_equal(stream->load_state(stream->arg, sh_bytes_make(state, sizeof state)), SHOAL_OK);
}

static enum shoal_err load_entry(const struct sh_journal_stream *stream, uint64_t index,
                                 uint64_t term)
{
    return stream->load_entry(stream->arg, index, term, SH_RAFT_COMMAND, sh_bytes_text("x"));
}

static void load_piece(const struct sh_journal_stream *stream)
{
    uint8_t piece[17];
    struct sh_writer w = sh_writer_make(piece, sizeof piece);
    sh_put64(&w, 14);
    sh_put64(&w, 0);
    sh_put8(&w, 'S');
    assert_int_equal(stream->load_snapshot_piece(stream->arg, sh_bytes_make(piece, sizeof piece)),
                     SHOAL_OK);
}

static struct sh_raft *raft;
static struct sh_journal_stream stream;

static struct sh_raft *raft_make(uint64_t voters)
{
    struct sh_raft *made;
    struct sh_raft_config config = {
        .server = 1,
        .first = {.voters = voters},
        .election_ns = 200000000,
        .heartbeat_ns = 40000000,
        .snapshot_entries = 1000,
        .piece_bytes = 4096,
        .seed = 1,
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, NULL}};
    assert_int_equal(sh_raft_create(&config, &made), SHOAL_OK);
    return made;
}

static int setup(void **state)
{
    (void)state;
    raft = raft_make(14);
    stream = sh_raft_stream(raft);
    restored = 0;
    got = SHOAL_OK;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_raft_destroy(raft);
    return 0;
}

static void a_snapshot_was_given_up(void **state)
{
    (void)state;
    /* The one that was given up, with the entries behind it, and one that came then. */
    assert_int_equal(stream.load_snapshot_begin(raft, 100, 2, true), SHOAL_OK);
    load_state(&stream, 3);
    assert_int_equal(load_entry(&stream, 101, 2), SHOAL_OK);
    load_piece(&stream);
    assert_int_equal(load_entry(&stream, 102, 3), SHOAL_OK);
    /* The next process had the snapshot of before, which is older. */
    assert_int_equal(stream.load_snapshot_begin(raft, 90, 2, true), SHOAL_OK);
    load_state(&stream, 3);
    for (uint64_t index = 91; index <= 103; index++)
        assert_int_equal(load_entry(&stream, index, index < 102 ? 2 : 3), SHOAL_OK);
    load_piece(&stream);
    assert_int_equal(stream.load_snapshot_end(raft, false), SHOAL_OK);
    assert_int_equal(restored, 1);
    assert_int_equal(raft->snapshot.index, 90);
    assert_int_equal(sh_raft_log_last(raft), 103);
    assert_int_equal(load_entry(&stream, 105, 3), SHOAL_ECORRUPT);
}

/* --- What is not taken --------------------------------------------------------------------------------- */

/* A state, of which a case changes something. */
struct stored {
    uint8_t flags, vote, server, zero;
    uint64_t term, log_id, founding, voters, learners;
    size_t size;
};

static const struct stored sound = {0, 2, 1, 0, 5, 9, 1, 14, 16, 44};

static enum shoal_err load(struct stored stored)
{
    uint8_t bytes[64] = {0};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put8(&w, stored.flags);
    sh_put8(&w, stored.vote);
    sh_put8(&w, stored.server);
    sh_put8(&w, stored.zero);
    sh_put64(&w, stored.term);
    sh_put64(&w, stored.log_id);
    sh_put64(&w, stored.founding);
    sh_put64(&w, stored.voters);
    sh_put64(&w, stored.learners);
    return stream.load_state(raft, sh_bytes_make(bytes, stored.size));
}

#define BUT(field, value)                                                                          \
    {                                                                                              \
        struct stored stored = sound;                                                              \
        stored.field = (value);                                                                    \
        assert_int_equal(load(stored), SHOAL_ECORRUPT);                                            \
    }

static void a_state_is_as_it_was_stored(void **state)
{
    (void)state;
    BUT(size, 43);
    BUT(size, 45);
    BUT(flags, 4);
    BUT(zero, 1);
    BUT(learners, 2);
    BUT(log_id, 0);
    struct stored other = sound;
    other.server = 2;
    assert_int_equal(load(other), SHOAL_ECLUSTER);
    assert_true(sh_raft_is_new(raft));
    assert_int_equal(load(sound), SHOAL_OK);
    assert_true(!sh_raft_is_new(raft) && !raft->is_forced && !sh_raft_is_recovering(raft));
    assert_true(sh_raft_term(raft) == 5 && raft->vote == 2 && sh_raft_log_id(raft) == 9 &&
                raft->founding == 1);
    assert_true(raft->config.first.voters == 14 && raft->config.first.learners == 16);
    assert_true(sh_raft_members(raft).voters == 14 && sh_raft_members(raft).learners == 16);
    BUT(term, 4); /* terms do not fall, and the log stays the same one */
    BUT(log_id, 8);
    other = sound;
    other.flags = 2; /* but when a survivor went on alone */
    other.log_id = 8;
    assert_int_equal(load(other), SHOAL_OK);
    assert_true(raft->is_forced && sh_raft_log_id(raft) == 8);
}

/* Without a log it has promised nothing: it is in no term, and asks the others first. */
static void without_a_log_there_is_no_promise(void **state)
{
    (void)state;
    struct stored none = sound;
    none.log_id = 0;
    none.flags = 1;
    assert_int_equal(load(none), SHOAL_ECORRUPT);
    none.term = 0;
    none.flags = 0;
    assert_int_equal(load(none), SHOAL_ECORRUPT);
    none.flags = 1;
    assert_int_equal(load(none), SHOAL_OK);
    assert_true(sh_raft_is_recovering(raft));
}

/* The only founder draws a log's number before it reads that it has one. */
static void a_log_that_was_founded_is_not_founded_again(void **state)
{
    (void)state;
    sh_raft_destroy(raft);
    raft = raft_make(2);
    stream = sh_raft_stream(raft);
    assert_true(sh_raft_log_id(raft) != 0 && sh_raft_log_id(raft) != 9);
    assert_int_equal(load(sound), SHOAL_OK);
    assert_int_equal(sh_raft_log_id(raft), 9);
}

static void snapshot_at(uint64_t index, uint64_t term)
{
    assert_int_equal(stream.load_snapshot_begin(raft, index, term, true), SHOAL_OK);
    load_piece(&stream);
    assert_int_equal(stream.load_snapshot_end(raft, false), SHOAL_OK);
}

static void an_entry_is_as_it_was_stored(void **state)
{
    (void)state;
    uint8_t members[16];
    sh_store64(members, 6);
    sh_store64(members + 8, 2);
    load_state(&stream, 3);
    snapshot_at(90, 2);
    assert_int_equal(load_entry(&stream, 90, 2), SHOAL_ECORRUPT); /* it is in the snapshot */
    assert_int_equal(load_entry(&stream, 92, 2), SHOAL_ECORRUPT); /* one is missing */
    assert_int_equal(load_entry(&stream, 91, 1), SHOAL_ECORRUPT); /* terms do not fall */
    assert_int_equal(load_entry(&stream, 91, 4), SHOAL_ECORRUPT); /* it has not been in that term */
    for (uint8_t kind = 0; kind <= 4; kind += 4)
        assert_int_equal(stream.load_entry(raft, 91, 2, kind, sh_bytes_text("x")), SHOAL_ECORRUPT);
    assert_int_equal(
        stream.load_entry(raft, 91, 2, SH_RAFT_MEMBERS, sh_bytes_make(members, sizeof members)),
        SHOAL_ECORRUPT);
    assert_int_equal(load_entry(&stream, 91, 2), SHOAL_OK);
    assert_int_equal(load_entry(&stream, 92, 3), SHOAL_OK);
    assert_int_equal(load_entry(&stream, 91, 3), SHOAL_OK); /* in the place of both */
    assert_int_equal(sh_raft_log_last(raft), 91);
    /* Whatever it is told of where the log begins, what is in the snapshot is over. */
    assert_int_equal(stream.load_snapshot_begin(raft, 89, 2, true), SHOAL_OK);
    assert_int_equal(load_entry(&stream, 90, 2), SHOAL_ECORRUPT);
}

/* The members are a snapshot's, whatever a state says that comes behind it of the first ones. */
static void members_are_those_of_the_snapshot(void **state)
{
    (void)state;
    struct stored first = sound;
    first.voters = 6;
    snapshot_at(90, 2);
    assert_int_equal(load(first), SHOAL_OK);
    assert_true(sh_raft_members(raft).voters == 14 && sh_raft_members(raft).learners == 0);
}

/* A snapshot's end makes it count: not one that lacks its members, that is older than the last one, of
 * an entry that is not there, or that the state machine does not take. */
static void a_snapshot_is_as_it_was_stored(void **state)
{
    (void)state;
    uint8_t bytes[17] = {14};
    load_state(&stream, 3);
    snapshot_at(90, 2);
    assert_int_equal(raft->log.base, 90);
    assert_int_equal(load_entry(&stream, 91, 2), SHOAL_OK);
    assert_int_equal(load_entry(&stream, 92, 2), SHOAL_OK);
    static const struct {
        uint64_t index, term;
        size_t size;
        uint8_t learners;
        enum shoal_err got, err;
    } cases[] = {{91, 2, 15, 0, SHOAL_OK, SHOAL_ECORRUPT},
                 {91, 3, 17, 0, SHOAL_OK, SHOAL_ECORRUPT},
                 {93, 2, 17, 0, SHOAL_OK, SHOAL_ECORRUPT},
                 {91, 2, 17, 2, SHOAL_OK, SHOAL_ECORRUPT},
                 {91, 2, 17, 0, SHOAL_ENOMEM, SHOAL_ENOMEM}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        got = cases[i].got;
        bytes[8] = cases[i].learners;
        assert_int_equal(stream.load_snapshot_begin(raft, cases[i].index, cases[i].term, false),
                         SHOAL_OK);
        assert_int_equal(stream.load_snapshot_piece(raft, sh_bytes_make(bytes, cases[i].size)),
                         SHOAL_OK);
        assert_int_equal(stream.load_snapshot_end(raft, false), cases[i].err);
        assert_true(raft->snapshot.index == 90 && raft->commit == 90 && raft->log.base == 90);
    }
    got = SHOAL_OK;
    bytes[8] = 0;
    assert_int_equal(stream.load_snapshot_begin(raft, 91, 2, false), SHOAL_OK);
    assert_int_equal(stream.load_snapshot_piece(raft, sh_bytes_make(bytes, 17)), SHOAL_OK);
    assert_int_equal(stream.load_snapshot_end(raft, false), SHOAL_OK);
    assert_true(raft->snapshot.index == 91 && raft->commit == 91 && raft->log.base == 91);
    assert_int_equal(sh_raft_log_last(raft), 92);
    for (uint64_t index = 91; index >= 90; index--) { /* from elsewhere, of before */
        assert_int_equal(stream.load_snapshot_begin(raft, index, 2, false), SHOAL_OK);
        assert_int_equal(stream.load_snapshot_piece(raft, sh_bytes_make(bytes, 17)), SHOAL_OK);
        assert_int_equal(stream.load_snapshot_end(raft, true),
                         index == 91 ? SHOAL_OK : SHOAL_ECORRUPT);
    }
}

/* The beginning has no state. */
static void the_first_snapshot_is_empty(void **state)
{
    (void)state;
    uint8_t bytes[17] = {14};
    for (size_t size = 17; size >= 16; size--) {
        assert_int_equal(stream.load_snapshot_begin(raft, 0, 0, true), SHOAL_OK);
        assert_int_equal(stream.load_snapshot_piece(raft, sh_bytes_make(bytes, size)), SHOAL_OK);
        assert_int_equal(stream.load_snapshot_end(raft, false),
                         size == 16 ? SHOAL_OK : SHOAL_ECORRUPT);
    }
    assert_int_equal(restored, 0);
}

static void pieces_are_put_together_up_to_a_limit(void **state)
{
    (void)state;
    uint8_t bytes[100];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(stream.load_snapshot_begin(raft, 1, 1, true), SHOAL_OK);
    static const size_t sizes[] = {3, 50, 0, 47};
    size_t at = 0;
    for (unsigned i = 0; i < 4; at += sizes[i++])
        assert_int_equal(stream.load_snapshot_piece(raft, sh_bytes_make(bytes + at, sizes[i])),
                         SHOAL_OK);
    assert_int_equal(raft->loading.size, 100);
    assert_true(raft->loading.room >= 100);
    assert_memory_equal(raft->loading.bytes, bytes, 100);
    raft->loading.size = raft->loading.room =
        SH_RAFT_SNAPSHOT_BYTES_MAX + 16 - 1; /* as if it had come */
    assert_int_equal(stream.load_snapshot_piece(raft, sh_bytes_make(bytes, 2)), SHOAL_ECORRUPT);
    assert_int_equal(stream.load_snapshot_piece(raft, sh_bytes_make(bytes, 1)), SHOAL_OK);
}

/* --- What is given to the journal -------------------------------------------------------------------------- */

/* Whatever a snapshot's size, it is read as it was. */
static void a_large_snapshot_is_installed(void **state)
{
    (void)state;
    struct memory_journal memory = {.now_ns = 1, .segment_bytes = 1u << 20};
    memory_journal_open(&memory, raft);
    sh_raft_start(raft, memory.journal, 0, UINT64_C(1) << 32 | 1, 1);
    for (uint32_t size = 150000; size <= 2 * SH_JOURNAL_PIECE_BYTES_MAX + 20000;
         size += 2 * SH_JOURNAL_PIECE_BYTES_MAX) {
        struct sh_raft_snapshot snapshot = {.index = 7 + size, .term = 1, .members = {14, 0}};
        snapshot.size = size;
        snapshot.bytes = malloc(size);
        assert_non_null(snapshot.bytes);
        for (uint32_t i = 0; i < size; i++)
            snapshot.bytes[i] = (uint8_t)(i * 7 + i / 65536);
        free(raft->snapshot.bytes);
        raft->snapshot = snapshot;
        sh_raft_store_install(raft);
    }
    (void)memory_journal_sync(&memory, raft, 1);
    memory_journal_close(&memory);
    struct sh_raft *again = raft_make(14);
    size_expected = raft->snapshot.size;
    assert_int_equal(memory_journal_load(&memory, again), SHOAL_OK);
    assert_int_equal(again->snapshot.size, raft->snapshot.size);
    assert_memory_equal(again->snapshot.bytes, raft->snapshot.bytes, raft->snapshot.size);
    assert_false(again->is_forced);
    size_expected = 1;
    memory_journal_close(&memory);
    memory.disk->ops->destroy(memory.disk);
    sh_raft_destroy(again);
}

/* What the journal asks for is the state of now, not the last snapshot that was taken. */
static void the_journal_gets_what_is_applied(void **state)
{
    (void)state;
    struct memory_journal memory = {.now_ns = 1};
    uint64_t index, term;
    load_state(&stream, 3);
    snapshot_at(90, 2);
    assert_int_equal(load_entry(&stream, 91, 2), SHOAL_OK);
    memory_journal_open(&memory, raft);
    raft->journal = memory.journal;
    raft->commit = 91;
    sh_raft_apply(raft);
    assert_true(stream.snapshot_begin(raft, &index, &term));
    assert_true(index == 91 && term == 2);
    stream.snapshot_end(raft, true);
    memory_journal_close(&memory);
    memory.disk->ops->destroy(memory.disk);
}

/* What the log had when it was loaded is that no more where it was cut off, whatever comes in its place. */
static void what_was_loaded_is_known(void **state)
{
    (void)state;
    struct memory_journal memory = {.now_ns = 1};
    load_state(&stream, 3);
    snapshot_at(90, 2);
    for (uint64_t index = 91; index <= 93; index++)
        assert_int_equal(load_entry(&stream, index, 2), SHOAL_OK);
    memory_journal_open(&memory, raft);
    sh_raft_start(raft, memory.journal, 0, UINT64_C(1) << 32 | 1, 1);
    assert_int_equal(sh_raft_loaded_last(raft), 93);
    sh_raft_log_cut(raft, 93);
    assert_int_equal(sh_raft_loaded_last(raft), 92);
    sh_raft_log_cut(raft, 92);
    assert_int_equal(sh_raft_loaded_last(raft), 91);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sh_raft_log_append(raft, 3, SH_RAFT_COMMAND, sh_bytes_text("x")),
                         SHOAL_OK);
    assert_int_equal(sh_raft_last(raft), 93);
    assert_int_equal(sh_raft_loaded_last(raft), 91);
    sh_raft_log_cut(raft, 93);
    assert_int_equal(sh_raft_loaded_last(raft), 91);
    memory_journal_close(&memory);
    memory.disk->ops->destroy(memory.disk);
}

int main(void)
{
    if (sh_log_output_set("/dev/null", SH_LOG_AS_TEXT))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_snapshot_was_given_up),
        CASE(a_state_is_as_it_was_stored),
        CASE(without_a_log_there_is_no_promise),
        CASE(a_log_that_was_founded_is_not_founded_again),
        CASE(an_entry_is_as_it_was_stored),
        CASE(members_are_those_of_the_snapshot),
        CASE(a_snapshot_is_as_it_was_stored),
        CASE(the_first_snapshot_is_empty),
        CASE(pieces_are_put_together_up_to_a_limit),
        CASE(a_large_snapshot_is_installed),
        CASE(the_journal_gets_what_is_applied),
        CASE(what_was_loaded_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
