/* Chunks of which some pieces were appended and then abandoned: they are what they were, whatever else happens. */
#include "log/replog_cut_test.h"

static struct rig_taken taken;
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

static void assert_read(uint64_t end)
{
    rig_take_begin(&rig, 0, 0, RIG_CHUNKS, &taken);
    for (unsigned i = 0; !taken.is_over; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
    assert_int_equal(taken.err, SHOAL_OK);
    assert_int_equal(taken.end, end);
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        const struct rig_chunk *should = &rig.zones[0].chunks[i];
        bool is_there = should->is_there && !should->is_removal;
        assert_true(taken.chunks[i].is_there == is_there);
        assert_true(!is_there || taken.chunks[i].stamp == should->stamp);
    }
}

static void reopen(bool is_cut)
{
    cleaned += status().slots_cleaned;
    shut();
    if (is_cut)
        cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
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
    assert_read(end);
    rig_zone_add(&rig, 0, 1, end);
    append(0, 8, 6, 30000);
    rig_sync(&rig, 1);
    reopen(is_cut);
    assert_read(end + 1);
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
    assert_read(5);
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
        assert_read(end);
        zone_add_config(0, rig_zone_config(0, 1, end, (uint64_t)zone_slots * 65536));
    }
    rig_sync(&rig, 1);
    assert_true(cleaned + status().slots_cleaned > 5);
    uint64_t end = sh_replog_next(zone());
    reopen(true);
    assert_read(end);
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
    assert_read(end);
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
    assert_read(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_process_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cleaned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_cleaned_too_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lives_are_forgotten, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
