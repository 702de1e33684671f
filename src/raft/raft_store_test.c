/* What the journal gives back to a server when it begins to read behind the last whole snapshot but
 * one: a snapshot that was given up, as the process ended, and the one that took its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "raft/raft_int.h"

static unsigned restored;

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
    assert_int_equal(snapshot.size, 1);
    restored++;
    return SHOAL_OK;
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

static void a_snapshot_was_given_up(void **state)
{
    (void)state;
    struct sh_raft *raft;
    struct sh_raft_config config = {
        .server = 1,
        .first = {.voters = 14},
        .election_ns = 200000000,
        .heartbeat_ns = 40000000,
        .snapshot_entries = 1000,
        .piece_bytes = 4096,
        .seed = 1,
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, NULL}};
    assert_int_equal(sh_raft_create(&config, &raft), SHOAL_OK);
    struct sh_journal_stream stream = sh_raft_stream(raft);
    restored = 0;
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
    sh_raft_destroy(raft);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_was_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
