/* Chunks of which some pieces were appended and then abandoned: they are what they were, whatever else happens. */
#include "log/replog_cut_test.h"

static uint64_t cleaned; /* slots, by the processes before this one */

static struct sh_replog_zone *zone(void)
{
    return rig.zones[0].zone;
}

static void steps(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        rig_step(&rig, RIG_MS);
}

/* Appends so many pieces of a write of a chunk, with one of RIG_OF_ZONE, and abandons it. */
static void abandon(unsigned chunk, uint32_t stamp, unsigned pieces)
{
    uint64_t next = sh_replog_next(zone());
    for (unsigned piece = 0; piece < pieces;) {
        struct sh_replog_write write = rig_write(&rig, chunk, stamp, 100000, piece);
        const struct sh_replog_write with = rig_write(&rig, RIG_OF_ZONE, stamp, 50, 0);
        write.with = piece ? NULL : &with;
        enum shoal_err err = sh_replog_append(zone(), &write);
        assert_true(!err || err == SHOAL_EAGAIN);
        piece += !err;
        if (err)
            rig_step(&rig, RIG_MS);
    }
    assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
    assert_int_equal(sh_replog_next(zone()), next);
}

static void reopen(bool is_cut)
{
    cleaned += status().slots_cleaned;
    start_again(is_cut);
}

/* The pieces are nowhere but in memory, in the primary log, or in a slot; the process ends before another write, or behind it. */
static void abandon_at(unsigned pieces, bool is_synced, bool is_written, bool is_cut)
{
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    append(0, 5, 1, 60000);
    append(0, RIG_OF_ZONE, 2, 50);
    rig_sync(&rig, 1);
    abandon(5, 3, pieces);
    if (is_synced)
        steps(200);
    if (is_written) {
        append(0, 6, 4, 40000);
        append(0, 7, 5, 100);
        rig_sync(&rig, 1);
    }
    uint64_t end = sh_replog_next(zone());
    reopen(is_cut);
    assert_int_equal(taken_is_all(0), end);
    rig_zone_add(&rig, 0, 1, end);
    append(0, 8, 6, 30000);
    rig_sync(&rig, 1);
    reopen(is_cut);
    assert_int_equal(taken_is_all(0), end + 1);
}

static void test_process_ends(void **state)
{
    for (unsigned i = 0; i < 32; i++) {
        if (i) {
            (void)teardown(state);
            (void)setup(state);
        }
        abandon_at(1 + i / 8, i & 1, i & 2, i & 4);
    }
}

/* Without a piece that is missing nothing happens; the chunk can be written at once, and removed. */
static void test_goes_on(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    uint16_t epoch = zone()->epoch;
    append(0, 5, 1, 40000);
    assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
    append(0, 6, 2, 100);
    assert_int_equal(zone()->epoch, epoch);
    abandon(5, 3, 2);
    assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
    append(0, 5, 4, 100);
    assert_int_equal(zone()->epoch, epoch + 1);
    abandon(6, 5, 1);
    append(0, 6, 6, 0);
    abandon(5, 7, 3);
    append(0, 7, 8, 50000);
    rig_sync(&rig, 1);
    reopen(true);
    assert_int_equal(taken_is_all(0), 5);
}

/* Many are abandoned while the zone is cleaned again and again: nothing of them survives, though all slots of the lives between
 * are given away, and what the primary log has of them comes back. */
static void abandon_and_clean(unsigned zone_slots, uint64_t seed)
{
    cleaned = 0;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, (uint64_t)zone_slots * 65536));
    append(0, 5, 1, 60000);
    append(0, 9, 1, 40000);
    append(0, RIG_OF_ZONE, 2, 50);
    for (unsigned i = 10; i < 6000; i++) {
        uint64_t draw = test_draw(&seed);
        if (draw % 50 == 0)
            abandon(draw & 256 ? 5 : 9, i, 1 + draw / 64 % 6);
        append(0, 100 + draw / 1024 % 30, i, 4 + (draw >> 30) % 1500);
        if (draw / 64 % 8 == 0)
            sh_replog_sync(zone());
        rig_step(&rig, draw >> 50 & 1 ? RIG_MS : 20 * RIG_MS);
        if (draw >> 20 & 511)
            continue;
        rig_sync(&rig, 1);
        uint64_t end = sh_replog_next(zone());
        reopen(draw >> 40 & 1);
        assert_int_equal(taken_is_all(0), end);
        zone_add_config(0, rig_zone_config(0, 1, end, (uint64_t)zone_slots * 65536));
    }
    rig_sync(&rig, 1);
    assert_true(cleaned + status().slots_cleaned > 5);
    uint64_t end = sh_replog_next(zone());
    reopen(true);
    assert_int_equal(taken_is_all(0), end);
}

static void test_cleaned(void **state)
{
    (void)state;
    abandon_and_clean(10, test_seed(31));
}

/* The slot that has the pieces is not cleaned before a write has said that they do not count, though all that came before is durable. */
static void test_not_cleaned_too_early(void **state)
{
    (void)state;
    rig.config.primary_blocks = 0;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    append(0, 5, 1, 60000);
    append(0, RIG_OF_ZONE, 2, 50);
    for (unsigned i = 100; zone()->slots.count < 9; i++) { /* all is current */
        append(0, i, i, 16000);
        rig_sync(&rig, 1);
    }
    abandon(5, 3, 3);
    sh_replog_sync(zone());
    steps(8000);
    assert_true(status().slots_cleaned > 9);
    append(0, 6, 4, 100);
    rig_sync(&rig, 1);
    uint64_t end = sh_replog_next(zone());
    reopen(true);
    assert_int_equal(taken_is_all(0), end);
}

/* Once nothing of them can come back, lives are forgotten. */
static void test_lives_are_forgotten(void **state)
{
    (void)state;
    rig.config.primary_blocks = 256;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    append(0, 5, 1, 60000);
    for (unsigned i = 0; i < 5; i++) {
        abandon(5, 2, 3);
        append(0, 6, 3, 100);
    }
    assert_int_equal(zone()->lives.count, 6);
    for (unsigned i = 0; i < 20000 && zone()->lives.count > 1; i++) {
        append(0, 100 + i % 20, i, 1000);
        if (i % 100 == 0)
            rig_sync(&rig, 1);
        rig_step(&rig, 20 * RIG_MS);
    }
    assert_int_equal(zone()->lives.count, 1);
    assert_int_equal(zone()->lives.lives[0].life, zone()->life);
    rig_sync(&rig, 1);
    uint64_t end = sh_replog_next(zone());
    reopen(true);
    assert_int_equal(taken_is_all(0), end);
}

/* A chunk of half of what the zone's log has room for. Four pieces are a slot. */
#define LARGE_PIECES 64
#define LARGE_PIECE 15100u

/* Appends pieces of it from the first one on, as many as are told, with one error or another. */
static enum shoal_err append_large(uint32_t stamp, unsigned pieces)
{
    static uint8_t payload[LARGE_PIECE];
    for (unsigned piece = 0, tries = 0; piece < pieces; tries++) {
        rig_payload(6 + piece, stamp, payload, sizeof payload);
        const struct sh_replog_write write = {.local_id = 6,
                                              .creator = RIG_OWNER,
                                              .piece = (uint16_t)piece,
                                              .pieces = LARGE_PIECES,
                                              .total = LARGE_PIECES * LARGE_PIECE,
                                              .payload = {payload, sizeof payload}};
        enum shoal_err err = sh_replog_append(zone(), &write);
        assert_true(tries < 50000);
        if (err && err != SHOAL_EAGAIN)
            return err;
        piece += !err;
        if (err)
            rig_step(&rig, RIG_MS);
    }
    if (pieces == LARGE_PIECES)
        rig_written(&rig, 0, 5, stamp, (size_t)LARGE_PIECES * LARGE_PIECE);
    return SHOAL_OK;
}

/* A chunk as large as a zone can be is written nearly to its end, abandoned, and written again: the zone's log has room for two such versions,
 * and what was abandoned makes room for the third. All may have been cleaned before, in vain. */
static void large_again(uint32_t primary_blocks, bool waits)
{
    rig.config.primary_blocks = primary_blocks;
    rig.config.batch_bytes = 60000;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 2 * LARGE_PIECES / 4 * 65536));
    if (waits)
        append(0, 9, 1, 50000); /* takes the last slot */
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(append_large(10 + 3 * i, LARGE_PIECES), SHOAL_OK);
        rig_sync(&rig, 1);
        for (unsigned k = 0; k <= i % 3; k++) {
            assert_int_equal(append_large(11 + 3 * i, LARGE_PIECES - 3), SHOAL_OK);
            assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
            sh_replog_sync(zone());
            steps(waits ? 3000 : 0);
        }
    }
    assert_int_equal(append_large(1, LARGE_PIECES), SHOAL_OK);
    rig_sync(&rig, 1);
    uint64_t end = sh_replog_next(zone());
    reopen(true);
    assert_int_equal(taken_is_all(0), end);
}

/* The process ends while what was abandoned is cleaned, or has been, and what comes behind it is not there yet. */
static void large_ends(unsigned lives, uint64_t seed)
{
    uint64_t end = 0;
    const uint64_t bytes_max = 2 * LARGE_PIECES / 4 * 65536;
    rig.config.batch_bytes = 60000;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, bytes_max));
    for (uint32_t i = 0; i < lives; i++) {
        uint64_t draw = test_draw(&seed);
        if (i % 4 == 0)
            assert_int_equal(append_large(10 + 3 * i, LARGE_PIECES), SHOAL_OK);
        append(0, 9, 12 + 3 * i, 100);
        rig_sync(&rig, 1);
        assert_int_equal(append_large(11 + 3 * i, LARGE_PIECES - 3), SHOAL_OK);
        assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
        end = sh_replog_next(zone());
        assert_int_equal(append_large(13 + 3 * i, 1 + draw % 4), SHOAL_OK);
        steps((draw >> 8) % 64);
        reopen(draw >> 20 & 1);
        assert_int_equal(taken_is_all(0), end);
        zone_add_config(0, rig_zone_config(0, 1, end, bytes_max));
    }
}

static void test_large_is_written_again(void **state)
{
    for (unsigned i = 0; i < 4; i++) {
        if (i) {
            (void)teardown(state);
            (void)setup(state);
        }
        large_again(i & 1 ? 512 : 0, i & 2);
    }
}

static void test_large_ends(void **state)
{
    (void)state;
    cleaned = 0;
    large_ends(40, test_seed(32));
    assert_true(cleaned > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_process_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cleaned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_cleaned_too_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lives_are_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_is_written_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_ends, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
