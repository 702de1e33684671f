/* Once zones have been written to and cleaned, the log takes nothing from the heap: not to append, nor to write to the disk, to end epochs, or
 * to clean. */
#include "base/alloc_test.h"

#include "log/replog_cut_test.h"

#define ZONES 3u
#define LARGE 5u /* its chunks from 0 on are written in pieces */
#define PLAIN 500u
#define WRITES_MAX 40000u

static uint64_t seed;
static uint32_t stamp;
static bool has_completions; /* of which a file read back knows nothing */

static unsigned draw(unsigned below)
{
    return (unsigned)(test_draw(&seed) % below);
}

/* A row, as a load has them. */
static void row_append(unsigned zone)
{
    unsigned first = LARGE + draw(PLAIN - LARGE - 10);
    for (unsigned i = 0; i < 10; i++)
        append(zone, first + i, ++stamp, 64);
}

static void pair_append(unsigned zone)
{
    assert_int_equal(rig_append_with(&rig, zone, LARGE + draw(PLAIN - LARGE), ++stamp, 40,
                                     RIG_OF_ZONE + draw(RIG_CHUNKS - RIG_OF_ZONE), 30),
                     SHOAL_OK);
}

/* As a request's: the completion record comes with the write. */
static void completion_append(unsigned zone)
{
    static const uint8_t record[20] = "of a request";
    unsigned chunk = LARGE + draw(PLAIN - LARGE);
    enum shoal_err err;
    do {
        struct sh_replog_write write = rig_write(&rig, chunk, stamp + 1, 50, 0);
        write.completion = sh_bytes_make(record, sizeof record);
        err = sh_replog_append(rig.zones[zone].zone, &write);
        if (err)
            rig_step(&rig, RIG_MS);
    } while (err == SHOAL_EAGAIN);
    assert_int_equal(err, SHOAL_OK);
    rig_written(&rig, zone, chunk, ++stamp, 50);
}

static void write_some(void)
{
    unsigned zone = draw(ZONES), what = draw(100);
    if (what < 3)
        append(zone, draw(LARGE), ++stamp, 20000 + draw(60000));
    else if (what < 15)
        row_append(zone);
    else if (what < 25)
        pair_append(zone);
    else if (what < 30 && has_completions)
        completion_append(zone);
    else if (what < 55)
        assert_int_equal(rig_append(&rig, zone, LARGE + draw(PLAIN - LARGE), ++stamp, 0, true),
                         SHOAL_OK);
    else
        append(zone, LARGE + draw(PLAIN - LARGE), ++stamp, 4 + draw(300));
    if (draw(10) == 0)
        rig_sync(&rig, ZONES);
    else if (draw(3) == 0)
        rig_step(&rig, draw(2) ? 0 : 300 * RIG_MS);
}

/* All that there is to be done happens several times. */
static bool is_much(const struct sh_replog_status *now, const struct sh_replog_status *before,
                    const uint16_t *epochs)
{
    bool is_much =
        now->cleanings >= before->cleanings + 20 && now->compactions >= before->compactions + 2 &&
        (!rig.config.primary_blocks || now->primary_writes >= before->primary_writes + 100) &&
        now->slot_writes >= before->slot_writes + 100 &&
        now->marks_dropped > before->marks_dropped &&
        now->entries_kept > before->entries_kept + 1000;
    for (unsigned i = 0; i < ZONES; i++)
        is_much = is_much && rig.zones[i].zone->epoch > epochs[i] + 10;
    return is_much;
}

/* Writes until all of that has happened; returns how many allocations were tried. */
static size_t phase(bool is_without)
{
    struct sh_replog_status before = status(), now = before;
    uint16_t epochs[ZONES];
    for (unsigned i = 0; i < ZONES; i++)
        epochs[i] = rig.zones[i].zone->epoch;
    if (is_without)
        alloc_fail_at(1, SIZE_MAX);
    for (unsigned i = 0; !is_much(&now, &before, epochs); i++, now = status()) {
        assert_true(i < WRITES_MAX);
        write_some();
    }
    rig_sync(&rig, ZONES);
    return alloc_fail_end();
}

static void open_zones(uint32_t primary_blocks)
{
    seed = test_seed(30);
    stamp = 0;
    has_completions = false;
    rig.config.primary_blocks = primary_blocks;
    rig.config.slots = 6 + ZONES * 28 + 16;
    rig.config.versions_max = 256; /* fewer than there are chunks: epochs end */
    rig.zeros_one_in = 7;
    rig_open(&rig);
    for (unsigned i = 0; i < ZONES; i++)
        zone_add_config(i, rig_zone_config(i, 1, 0, 24 * 65536));
}

static void test_steady_state(void **state)
{
    (void)state;
    open_zones(512);
    (void)phase(false);
    assert_int_equal(phase(true), 0);
    shut();
    cut_power(cut_of(rig.config.disk));
    (void)rig_assert_all(&rig, ZONES);
}

/* The same with completion records, and without a primary log. */
static void test_with_completions(void **state)
{
    (void)state;
    open_zones(0);
    has_completions = true;
    (void)phase(false);
    assert_int_equal(phase(true), 0);
}

/* The zone that was cleaned last has had most slots; one that has had fewer needs no more than that, and a zone that is new nothing of its own. */
static void test_zone_that_is_new(void **state)
{
    (void)state;
    open_zones(512);
    (void)phase(false);
    zone_add_config(ZONES, rig_zone_config(ZONES, 1, 0, 12 * 65536));
    uint64_t before = status().cleanings;
    unsigned cleaned = 0;
    alloc_fail_at(1, SIZE_MAX);
    for (unsigned i = 0; cleaned < 3; i++) {
        assert_true(i < WRITES_MAX);
        append(ZONES, LARGE + draw(PLAIN - LARGE), ++stamp, 200);
        cleaned = (unsigned)(status().cleanings - before);
    }
    rig_sync(&rig, ZONES + 1);
    assert_int_equal(alloc_fail_end(), 0);
    (void)rig_assert_all(&rig, ZONES + 1);
}

/* Where there is no memory for a cleaning the zone is cleaned later; the log goes on. */
static void test_no_memory_to_clean(void **state)
{
    (void)state;
    open_zones(512);
    alloc_fail_at(1, SIZE_MAX);
    unsigned writes = 0;
    for (; !alloc_plan.failed; writes++) {
        assert_true(writes < WRITES_MAX);
        write_some();
    }
    assert_int_equal(status().cleanings, 0);
    assert_true(alloc_fail_end() > 0);
    (void)phase(false);
    (void)rig_assert_all(&rig, ZONES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_steady_state, setup, teardown),
        cmocka_unit_test_setup_teardown(test_with_completions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zone_that_is_new, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory_to_clean, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
