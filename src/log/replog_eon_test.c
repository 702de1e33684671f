/* Eons: a zone's epochs are used up again and again, and what is old does not pass for new. tests/replog_crash_test.c does that with
 * crashes. */
#include "log/replog_cut_test.h"

#define COLD 40u  /* chunks that are written once, at the beginning */
#define LARGE 20u /* of these, come in pieces */
#define EPOCHS 16u

static void small_eons(void)
{
    rig.config.epoch_max = EPOCHS;
    rig.config.versions_max = 32;
}

/* Writes to chunks behind the cold ones, until so many eons have ended. */
static void write_for(unsigned zone, uint64_t eons, uint32_t *stamp)
{
    for (uint64_t until = status().eons + eons; status().eons < until; ++*stamp) {
        unsigned chunk = COLD + *stamp % (RIG_OF_ZONE - COLD);
        assert_true(*stamp < 200000);
        assert_int_equal(rig_append(&rig, zone, chunk, *stamp, 100 + *stamp % 300, *stamp % 7 == 0),
                         SHOAL_OK);
    }
}

static void cold_write(unsigned zone)
{
    for (unsigned i = 0; i < COLD; i++)
        append(zone, i, i + 1, i < LARGE ? 30000 + i : 100 + i);
    append(zone, 3, 1000, 40000); /* of two versions of the chunk in pieces, one is to stay */
    assert_int_equal(rig_append(&rig, zone, 5, 1001, 0, true), SHOAL_OK);
}

/* Chunks that were written once stay as they are through all eons, and through restarts within them; marks of removals do not get lost. */
static void test_cold(void **state)
{
    (void)state;
    uint32_t stamp = 5000;
    small_eons();
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    cold_write(0);
    for (unsigned round = 0; round < 4; round++) {
        write_for(0, 2 + round % 2, &stamp);
        rig_sync(&rig, 1);
        (void)rig_assert_all(&rig, 1);
        shut();
        cut_power(cut_of(rig.config.disk));
        rig_open(&rig);
        (void)rig_assert_all(&rig, 1);
        taken_is_all(0);
        struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(0));
        rig_zone_add(&rig, 0, 1, zone->end);
        write_for(0, 1, &stamp);
    }
    assert_true(status().slots_cleaned > 10);
}

/* The log has nothing to write to its primary log; it is made to go on, so that the eon can end. */
static void test_idle_ring(void **state)
{
    (void)state;
    uint32_t stamp = 1;
    small_eons();
    rig.config.linger_ns = 1000 * 1000 * RIG_MS;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    cold_write(0);
    write_for(0, 3, &stamp);
    assert_true(rig.log->lap >= SH_REPLOG_LAPS);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

/* A damaged zone is not cleaned, so its epochs can't be counted anew. */
static void test_damaged(void **state)
{
    (void)state;
    uint32_t stamp = 1;
    enum shoal_err err = SHOAL_OK;
    small_eons();
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    cold_write(0);
    write_for(0, 1, &stamp);
    rig.zones[0].zone->is_damaged = true;
    while (!err && ++stamp < 100000)
        err = append_or_say(0, 50 + stamp % 100, stamp, 100);
    assert_int_equal(err, SHOAL_EFULL);
}

/* A life that is abandoned takes an epoch, too. */
static void test_abandoned(void **state)
{
    (void)state;
    small_eons();
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    append(0, 1, 1, 100);
    for (unsigned i = 0; status().eons < 4; i++) {
        const struct sh_replog_write piece = rig_write(&rig, 2, i + 10, 40000, 0);
        enum shoal_err err;
        assert_true(i < 500);
        for (unsigned tries = 0;
             (err = sh_replog_append(rig.zones[0].zone, &piece)) == SHOAL_EAGAIN; tries++) {
            assert_true(tries < 20000);
            rig_step(&rig, RIG_MS);
        }
        assert_int_equal(err, SHOAL_OK);
        assert_int_equal(sh_replog_abandon(rig.zones[0].zone), SHOAL_OK);
        if (i % 5 == 0)
            append(0, 1, i + 10, 100);
    }
    append(0, 2, 1000, 40000);
    rig_sync(&rig, 1);
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
    taken_is_all(0);
}

/* Versions keep their order by the next eon's name, and are older than what is written in that. */
static void test_names(void **state)
{
    (void)state;
    const struct sh_replog_version old[] = {{0, 0}, {1, 0},      {1, 1},          {1, 0xffff},
                                            {2, 0}, {0x7fff, 5}, {0x7fff, 0xffff}};
    const unsigned count = sizeof old / sizeof old[0];
    const uint16_t eon = SH_REPLOG_EON;
    for (unsigned i = 0; i < count; i++) {
        struct sh_replog_version is = sh_replog_version_in(old[i], eon);
        assert_int_equal(is.epoch, eon);
        assert_true(is.number <= SH_REPLOG_NUMBER_MAX);
        assert_true(!i || sh_replog_is_newer(is, sh_replog_version_in(old[i - 1], eon)));
        assert_true(sh_replog_is_newer((struct sh_replog_version){eon | 1, 0}, is));
        struct sh_replog_version again = sh_replog_version_in(is, eon);
        assert_true(again.epoch == is.epoch && again.number == is.number);
        assert_int_equal(sh_replog_version_in(is, 0).number, 0);
        assert_int_equal(sh_replog_version_in(is, 0).epoch, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cold, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_abandoned, setup, teardown),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
