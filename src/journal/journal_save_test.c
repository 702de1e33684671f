/* When a snapshot of the journal's own is due, whose it is, and how much of it goes into a batch: by
 * fields of the journal that are set by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crew.h"
#include "journal/journal_int.h"

#define SEGMENT 65536u
#define STREAMS 3
#define NOW 1000 /* ns */
#define MS UINT64_C(1000000)

static struct sh_disk *disk;
static struct sh_journal *journal;
static unsigned numbers[STREAMS] = {0, 1, 2};

/* --- State machines ------------------------------------------------------------------------------------ */

static int begun = -1; /* whose snapshot was begun last */
static bool is_busy;   /* none may begin */
static size_t left, piece_bytes;
static unsigned pieces, done, given_up;
static uint64_t repeated; /* entries that the stream says once more */

static bool snapshot_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    if (is_busy)
        return false;
    begun = (int)*(unsigned *)arg;
    *index_out = *term_out = 1;
    return true;
}

static void snapshot_entries(void *arg)
{
    static const uint8_t none[1];
    for (uint64_t i = 0; i < repeated; i++)
        (void)sh_journal_append(journal, *(unsigned *)arg, 2 + i, 1, 1, sh_bytes_make(none, 1));
}

static size_t snapshot_next(void *arg, uint8_t *into, size_t room)
{
    (void)arg;
    assert_true(room >= piece_bytes);
    if (!left)
        return 0;
    left--;
    pieces++;
    memset(into, 1, piece_bytes);
    return piece_bytes;
}

static void snapshot_end(void *arg, bool is_done)
{
    (void)arg;
    done += is_done;
    given_up += !is_done;
}

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return NOW;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, 7, size);
}

/* The segments take more than they are to, and each of the streams has a snapshot in an old one: the
 * second in the oldest. */
static int setup(void **state)
{
    (void)state;
    struct sh_journal_stream streams[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++)
        streams[i] = (struct sh_journal_stream){.snapshot_begin = snapshot_begin,
                                                .snapshot_entries = snapshot_entries,
                                                .snapshot_next = snapshot_next,
                                                .snapshot_end = snapshot_end,
                                                .arg = &numbers[i]};
    struct sh_journal_config config = {
        .env = {.clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}},
        .label = sh_bytes_text("a test"),
        .segment_bytes = SEGMENT,
        .bytes_kept = SEGMENT,
        .streams = streams,
        .streams_count = STREAMS};
    begun = -1;
    is_busy = false;
    left = pieces = done = given_up = 0;
    repeated = 0;
    piece_bytes = 4096;
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    config.env.disk = disk;
    if (sh_journal_open(&config, &journal))
        return -1;
    for (unsigned i = 0; i < STREAMS; i++) {
        journal->slots[100 + i].kind = SH_JOURNAL_SEGMENT;
        journal->streams[i].is_there = true;
        journal->streams[i].segment = i == 1 ? 2 : 4;
    }
    journal->segment = 9;
    journal->needed = 2;
    journal->save_ns = NOW - 1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_journal_close(journal);
    disk->ops->destroy(disk);
    return 0;
}

static void is_due(void)
{
    assert_true(sh_journal_save_due_ns(journal) == NOW - 1);
}

static void nothing_is_due(void)
{
    assert_true(sh_journal_save_due_ns(journal) == SH_NEVER);
}

/* A step at that time, at which the records of before are written. */
static void step_at(uint64_t now_ns)
{
    journal->now_ns = now_ns;
    sh_journal_save_step(journal, now_ns);
}

static struct sh_journal_stream_log *stream(unsigned number)
{
    return &journal->streams[number];
}

/* --- Rules --------------------------------------------------------------------------------------------- */

static void the_oldest_begins(void **state)
{
    (void)state;
    static const struct {
        uint64_t segments[STREAMS];
        int first;
    } cases[] = {{{4, 2, 4}, 1}, {{2, 3, 4}, 0}, {{4, 3, 2}, 2}, {{9, 9, 8}, 2}};
    piece_bytes = 1;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (unsigned j = 0; j < STREAMS; j++)
            stream(j)->segment = cases[i].segments[j];
        left = SIZE_MAX;
        step_at(NOW);
        assert_int_equal(begun, cases[i].first);
        assert_int_equal(journal->saving, begun);
        sh_journal_save_give_up(journal);
    }
    assert_int_equal(given_up, 4);
    sh_journal_save_give_up(journal); /* there is none */
    assert_int_equal(given_up, 4);
}

/* A stream that has none, or whose last one is as young as can be, or not known to be safe yet. */
static void some_streams_need_none(void **state)
{
    (void)state;
    journal->needed = 9; /* no new segment would help */
    is_due();
    stream(0)->is_there = false; /* dropped, and that is not synced yet */
    stream(1)->segment = 0;      /* begun, and that is not synced yet */
    stream(2)->segment = 8;
    is_due();
    stream(2)->segment = 9; /* the one that is being written */
    nothing_is_due();
    stream(2)->segment = 8;
    stream(2)->is_saved = true; /* its end waits for the disk */
    nothing_is_due();
    step_at(NOW);
    assert_int_equal(begun, -1);
}

static void while_the_oldest_is_installed_others_wait(void **state)
{
    (void)state;
    stream(0)->is_installing = true;
    is_due();
    stream(1)->is_installing = true;
    nothing_is_due();
}

/* What is kept: so many bytes, and twice those of all snapshots. */
static void what_is_small_stays(void **state)
{
    (void)state;
    uint64_t bytes = sh_journal_bytes(journal);
    assert_int_equal(bytes % SEGMENT, 0);
    assert_in_range(bytes, 4 * SEGMENT,
                    6 * SEGMENT);    /* a free file is among them, or a spare one */
    uint64_t segments = 4 * SEGMENT; /* three by hand, and the journal's first one */
    assert_int_equal(sh_journal_allowed(journal), SEGMENT);
    stream(0)->bytes = 10000;
    stream(2)->bytes = 20000;
    assert_int_equal(sh_journal_allowed(journal), SEGMENT + 60000);
    journal->bytes_kept = segments - 60001;
    is_due();
    journal->bytes_kept++;
    nothing_is_due();
}

static void what_is_needed_is_what_the_oldest_needs(void **state)
{
    (void)state;
    assert_int_equal(sh_journal_needed(journal), 2);
    stream(1)->segment = 0; /* nothing of it is in a segment yet */
    assert_int_equal(sh_journal_needed(journal), 4);
    stream(0)->segment = stream(2)->segment = 0;
    assert_int_equal(sh_journal_needed(journal), 9);
}

/* A new segment says that old ones are not needed any more, when that helps. */
static void a_new_segment_lets_old_ones_go(void **state)
{
    (void)state;
    journal->needed = 1;
    assert_false(sh_journal_save_is_over(journal)); /* a snapshot comes first */
    for (unsigned i = 0; i < STREAMS; i++)
        stream(i)->segment = 9;
    assert_true(sh_journal_save_is_over(journal));
    is_due();
    journal->saving = 0;
    assert_false(sh_journal_save_is_over(journal));
    journal->saving = -1;
    journal->needed = 9; /* the last one has said so already */
    assert_false(sh_journal_save_is_over(journal));
    nothing_is_due();
    journal->saving = 0;
    is_due();
    assert_true(sh_journal_is_saving(journal));
    stream(1)->segment = 2;
    left = 1;
    step_at(NOW);
    assert_int_equal(begun, 1); /* once the one of stream 0 has ended */
    assert_int_equal(done, 2);
    stream(1)->segment = 9;
    stream(1)->is_saved = stream(0)->is_saved = false;
    journal->needed = 8;
    assert_true(sh_journal_save_is_over(journal));
    journal->bytes_kept = 4 * SEGMENT;
    assert_false(sh_journal_save_is_over(journal));
}

static void a_stream_that_can_not_is_asked_again_later(void **state)
{
    (void)state;
    is_busy = true;
    step_at(NOW);
    assert_int_equal(journal->saving, -1);
    assert_true(sh_journal_save_due_ns(journal) == NOW + 10 * MS);
    is_busy = false;
    step_at(NOW + 10 * MS - 1);
    assert_int_equal(journal->saving, -1);
    left = SIZE_MAX;
    step_at(NOW + 10 * MS);
    assert_int_equal(journal->saving, 1);
}

/* So that updates do not wait for long; and nothing behind a batch that waits already. */
static void so_much_goes_into_a_batch(void **state)
{
    (void)state;
    left = SIZE_MAX;
    step_at(NOW);
    assert_int_equal(pieces, (32u << 10) / 4096);
    piece_bytes = 1;
    step_at(NOW);
    assert_int_equal(pieces, (32u << 10) / 4096 + 32);
    uint8_t bytes[32000] = {0};
    for (uint64_t i = 1; i <= 3; i++)
        (void)sh_journal_append(journal, 0, i, 1, 1, sh_bytes_make(bytes, sizeof bytes));
    assert_true(journal->chunks->next);
    step_at(NOW);
    assert_int_equal(pieces, (32u << 10) / 4096 + 32);
}

static void one_that_has_ended_is_waited_for(void **state)
{
    (void)state;
    left = 2;
    step_at(NOW);
    assert_true(pieces == 2 && done == 3 && given_up == 0); /* those of others are empty */
    assert_true(stream(1)->is_saved && stream(1)->bytes_now == 2 * 4096);
    assert_true(stream(0)->is_saved && stream(2)->is_saved);
    nothing_is_due();
    assert_int_equal(journal->counts.snapshots, 3);
    assert_int_equal(journal->counts.snapshot_bytes, 2 * 4096);
    while (journal->synced < journal->last)
        (void)sh_journal_step(journal, NOW);
    assert_false(stream(1)->is_saved);
    assert_int_equal(stream(1)->bytes, 2 * 4096);
    assert_int_equal(stream(1)->segment, 9);
}

/* Entries that are said again are marked so; those that come then are not. */
static void entries_are_said_again_as_such(void **state)
{
    (void)state;
    static const uint8_t none[1];
    repeated = 1;
    left = SIZE_MAX;
    step_at(NOW);
    const uint8_t *at = journal->chunks->bytes + SH_JOURNAL_BLOCK + SH_JOURNAL_HEAD_BYTES;
    assert_int_equal(at[0], SH_JOURNAL_BEGIN);
    assert_int_equal(at[SH_JOURNAL_RECORD_BYTES + 17], SH_JOURNAL_AGAIN);
    at += journal->chunks->size;
    (void)sh_journal_append(journal, 0, 9, 1, 1, sh_bytes_make(none, 1));
    assert_int_equal(at[0], SH_JOURNAL_ENTRY);
}

static void the_time_of_snapshots_is_counted(void **state)
{
    (void)state;
    uint64_t before = sh_journal_counts(journal).saving_ns;
    left = SIZE_MAX;
    step_at(NOW);
    journal->now_ns = NOW + 300;
    assert_int_equal(sh_journal_counts(journal).saving_ns, before + 300);
    sh_journal_save_give_up(journal);
    journal->now_ns = NOW + 1000;
    assert_int_equal(sh_journal_counts(journal).saving_ns, before + 300);
    for (unsigned i = 1; i < STREAMS; i++)
        stream(i)->segment = 9;
    stream(0)->segment = 2;
    step_at(NOW + 2000);
    assert_int_equal(journal->saving, 0);
    journal->now_ns = NOW + 2050;
    assert_int_equal(sh_journal_counts(journal).saving_ns, before + 350);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_oldest_begins),
        CASE(some_streams_need_none),
        CASE(while_the_oldest_is_installed_others_wait),
        CASE(what_is_small_stays),
        CASE(what_is_needed_is_what_the_oldest_needs),
        CASE(a_new_segment_lets_old_ones_go),
        CASE(a_stream_that_can_not_is_asked_again_later),
        CASE(so_much_goes_into_a_batch),
        CASE(one_that_has_ended_is_waited_for),
        CASE(entries_are_said_again_as_such),
        CASE(the_time_of_snapshots_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
