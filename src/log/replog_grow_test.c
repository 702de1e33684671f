/* A zone whose chunk has outgrown its log: the log may have more slots where there are any, and what was given up of a chunk goes. */
#include "log/replog_cut_test.h"

#define CHUNK 5u
#define SIZE 1000000u /* of the chunk: 62 pieces */
#define STEPS_MAX 20000u

static struct rig_taken taken;

static struct sh_replog_zone *zone(void)
{
    return rig.zones[0].zone;
}

/* Appends the first pieces of the chunk, and grows the zone where that is allowed. The log's error. */
static enum shoal_err pieces_append(uint32_t stamp, unsigned pieces, bool may_grow)
{
    for (unsigned piece = 0, tries = 0; piece < pieces; tries++) {
        assert_true(tries < STEPS_MAX);
        const struct sh_replog_write write = rig_write(&rig, CHUNK, stamp, SIZE, piece);
        enum shoal_err err = sh_replog_append(zone(), &write);
        if (err == SHOAL_ENOSPC && may_grow)
            err = sh_replog_zone_grow(zone()) ? err : SHOAL_EAGAIN;
        if (err && err != SHOAL_EAGAIN)
            return err;
        piece += !err;
        if (err)
            rig_step(&rig, RIG_MS);
    }
    if (pieces == rig_pieces(&rig, SIZE))
        rig_written(&rig, 0, CHUNK, stamp, SIZE);
    return SHOAL_OK;
}

static enum shoal_err put(uint32_t stamp, bool may_grow)
{
    return pieces_append(stamp, rig_pieces(&rig, SIZE), may_grow);
}

static void give_up(uint32_t stamp, unsigned pieces, bool may_grow)
{
    assert_int_equal(pieces_append(stamp, pieces, may_grow), SHOAL_OK);
    assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
}

static void open_with(uint64_t bytes_max)
{
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, bytes_max));
}

static void on_gone(void *arg, uint64_t id, enum shoal_err err)
{
    (void)id;
    assert_int_equal(err, SHOAL_OK);
    *(bool *)arg = true;
}

/* A start finds all that was written, and nothing else. */
static void assert_found(bool is_cut)
{
    rig_sync(&rig, 1);
    uint64_t end = sh_replog_next(zone());
    start_again(is_cut);
    rig_take_begin(&rig, 0, 0, true, &taken);
    for (unsigned i = 0; !taken.is_over; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
    assert_int_equal(taken.err, SHOAL_OK);
    assert_int_equal(taken.end, end);
    assert_true(taken.chunks[CHUNK].is_there);
    assert_int_equal(taken.chunks[CHUNK].stamp, rig.zones[0].chunks[CHUNK].stamp);
}

/* A log for one version of the chunk grows to what two of them take, and no further, however often the chunk is written. */
static void test_grows(void **state)
{
    (void)state;
    open_with(SIZE);
    uint32_t before = zone()->slots_max;
    for (uint32_t i = 1; i < 12; i++)
        assert_int_equal(put(i, true), SHOAL_OK);
    assert_true(zone()->slots_max > before);
    assert_true((uint64_t)zone()->slots_max * 65536 < UINT64_C(4) * SIZE);
    assert_found(true);
}

/* Attempts that were given up leave nothing for long, also where nothing else is written between. */
static void test_given_up_go(void **state)
{
    (void)state;
    uint64_t seed = test_seed(12);
    open_with(SIZE);
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(put(i, true), SHOAL_OK);
    uint32_t most = zone()->slots_max;
    for (uint32_t i = 4; i < 14; i++)
        give_up(i, 40 + (unsigned)test_draw(&seed) % 22, false);
    /* Some slots are gained late, as survivors are spread. */
    assert_int_equal(put(14, true), SHOAL_OK);
    assert_true(zone()->slots_max <= most + most / 2);
    assert_found(false);
    zone_add_config(0, rig_zone_config(0, 1, taken.end, 4 * SIZE));
    give_up(15, 60, false);
    give_up(16, 60, false);
    assert_found(true); /* of the two nothing */
}

/* Where the log has no more slots a zone that is full stays as it is, and an attempt that is given up gives it room again. */
static void test_no_room(void **state)
{
    (void)state;
    rig.config.slots = 6 + 2 * (32 + 4);
    open_with(32 * 65536);
    zone_add_config(1, rig_zone_config(1, 1, 0, 32 * 65536));
    assert_int_equal(put(1, false), SHOAL_OK);
    uint32_t most = zone()->slots_max;
    assert_int_equal(put(2, true), SHOAL_ENOSPC);
    assert_int_equal(sh_replog_zone_grow(zone()), SHOAL_ENOSPC);
    assert_int_equal(zone()->slots_max, most);
    assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
    for (uint32_t i = 3; i < 20; i++)
        assert_int_equal(rig_append(&rig, 0, CHUNK + 1, i, 1000, false), SHOAL_OK);
    /* The slots that the other zone was promised are free once that is gone. */
    bool is_gone = false;
    assert_int_equal(sh_replog_zone_drop(rig.zones[1].zone, on_gone, &is_gone), SHOAL_OK);
    unsigned steps = 0;
    while (!is_gone) {
        assert_true(steps++ < STEPS_MAX);
        rig_step(&rig, RIG_MS);
    }
    assert_int_equal(put(20, true), SHOAL_OK);
    assert_true(zone()->slots_max > most);
    assert_found(true);
}

static uint32_t slots_of_file(void)
{
    struct sh_replog_status got;
    sh_replog_status_get(rig.log, &got);
    return got.slots;
}

/* Opens the file again as it is to be by now, after a power failure right behind the last open, too. */
static void open_as(uint32_t slot_bytes, uint32_t slots, bool is_cut)
{
    rig.config.slot_bytes = slot_bytes;
    rig.config.slots = slots;
    rig_open(&rig);
    if (!is_cut)
        return;
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
}

/* A file gets more slots when it is opened for more, by what they have together; what was there stays. It never gets fewer. */
static void test_more_slots(void **state)
{
    (void)state;
    rig.config.slots = 6 + 36;
    open_with(32 * 65536);
    assert_int_equal(put(1, false), SHOAL_OK);
    assert_int_equal(put(2, true), SHOAL_ENOSPC);
    assert_int_equal(sh_replog_abandon(zone()), SHOAL_OK);
    assert_found(false);
    uint64_t end = taken.end;
    for (unsigned i = 0; i < 2; i++) {
        shut();
        open_as(128 << 10, 60, i);
        assert_int_equal(slots_of_file(), 120);
    }
    assert_int_equal(rig_load(&rig, 0).end, end);
    zone_add_config(0, rig_zone_config(0, 1, end, 100 * 65536));
    for (uint32_t i = 3; i < 6; i++)
        assert_int_equal(put(i, false), SHOAL_OK);
    assert_found(true);
    shut();
    open_as(64 << 10, 50, false);
    assert_int_equal(slots_of_file(), 120);
}

/* A zone that is not cleaned any more gets half as many slots more, for what tells that its chunks are elsewhere; one that goes, nothing. */
static void test_refused(void **state)
{
    (void)state;
    open_with(SIZE);
    uint32_t before = zone()->slots_max;
    enum shoal_err err;
    zone()->is_damaged = true;
    zone()->slots_sound = before;
    while ((err = sh_replog_zone_grow(zone())) == SHOAL_OK)
        ;
    assert_int_equal(err, SHOAL_ECORRUPT);
    assert_true(zone()->slots_max >= before + before / 2 &&
                zone()->slots_max <= before + before / 4 * 3);
    zone()->is_damaged = false;
    bool is_gone = false;
    assert_int_equal(sh_replog_zone_drop(zone(), on_gone, &is_gone), SHOAL_OK);
    assert_int_equal(sh_replog_zone_grow(zone()), SHOAL_EBUSY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_up_go, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
