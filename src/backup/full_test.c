/* Zones that outgrow their logs: a node alone, with a log on a disk in memory. */
#include <string.h>

#include "backup/backup_int.h"
#include "base/log.h"

#include "backup/alone_test.h"

#define LIMIT (UINT64_C(1) << 20) /* of a zone */
#define LARGE (3u << 20)
#define FOREIGN (UINT64_C(99) << 48) /* another owner's zone in the log */

static uint8_t data[LARGE];

static void open_with(uint32_t slots)
{
    const char *bad;
    size_t bad_size;
    /* Errors are provoked. */
    assert_int_equal(sh_log_output_set("/dev/null", SH_LOG_AS_TEXT), SHOAL_OK);
    assert_int_equal(sh_log_levels_set("error", &bad, &bad_size), SHOAL_OK);
    now_ns = 1000 * MS;
    store_open(32 << 20, (struct sh_backup_config){.zone_bytes = LIMIT, .window_bytes = 4 << 20});
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    struct sh_replog_config logged = log_config(slots);
    logged.versions_max = 1024;
    assert_int_equal(sh_replog_open(&logged, now_ns, 1, &replicas), SHOAL_OK);
}

static void begin(uint32_t slots)
{
    open_with(slots);
    home_set();
}

static enum shoal_err make(uint32_t size, shoal_cid *cid_out)
{
    return chunk_new(SH_LEVEL_REPLICATED, size, cid_out);
}

/* A change of any size, all of it acknowledged. */
static enum shoal_err change(const struct sh_store_rewrite *rewrite)
{
    struct sh_write write;
    struct sh_store_rewriting *rewriting;
    sh_write_begin(&write, SH_LEVEL_REPLICATED);
    assert_int_equal(sh_store_rewriting_begin(store, rewrite, &rewriting), SHOAL_OK);
    for (unsigned i = 0; !sh_backup_rewriting_step(backup, &write, rewriting); i++) {
        assert_true(i < STEPS_MAX);
        if (sh_write_was_refused(&write))
            step();
    }
    enum shoal_err err = sh_store_rewriting_end(rewriting);
    if (!err)
        write_settle(&write);
    return err;
}

static enum shoal_err put(shoal_cid cid, uint8_t fill, uint32_t size)
{
    memset(data, fill, size);
    const struct sh_store_rewrite rewrite = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(data, size)};
    return change(&rewrite);
}

static enum shoal_err resize(shoal_cid cid, uint32_t size)
{
    const struct sh_store_rewrite rewrite = {.kind = SH_STORE_RESIZE, .cid = cid, .size = size};
    return change(&rewrite);
}

static void assert_filled(shoal_cid cid, uint8_t fill, uint32_t size)
{
    uint32_t got;
    assert_int_equal(sh_store_get(store, cid, data, sizeof data, &got), SHOAL_OK);
    assert_int_equal(got, size);
    assert_true(data[0] == fill && data[size / 2] == fill && data[size - 1] == fill);
}

static uint64_t zone_of(shoal_cid cid)
{
    uint64_t number;
    assert_non_null(sh_zones_find_numbered(backup, cid.v, &number));
    return number;
}

/* A chunk that is larger than a zone has one of its own, whose log takes it as often as it is written. */
static void test_larger_than_a_zone(void **state)
{
    (void)state;
    shoal_cid small, large, later;
    begin(400);
    assert_int_equal(make(1000, &small), SHOAL_OK);
    assert_int_equal(make(LARGE, &large), SHOAL_OK);
    for (uint8_t i = 1; i < 10; i++)
        assert_int_equal(put(large, i, LARGE), SHOAL_OK);
    assert_int_equal(make(1000, &later), SHOAL_OK);
    assert_true(zone_of(large) > zone_of(small));
    assert_int_equal(backup->zones.all[zone_of(large)]->live, LARGE + SH_ZONE_CHUNK_BYTES);
    assert_filled(large, 9, LARGE);
    assert_int_equal(status().full, 0);
    assert_int_equal(status().trouble, SHOAL_OK);
}

/* So has one that grows to it; it takes nothing of the zone that it came from. */
static void test_grows(void **state)
{
    (void)state;
    shoal_cid grows, stays;
    begin(400);
    assert_int_equal(make(LIMIT / 2, &grows), SHOAL_OK);
    assert_int_equal(make(LIMIT / 4, &stays), SHOAL_OK);
    assert_int_equal(zone_of(grows), zone_of(stays));
    assert_int_equal(put(grows, 1, LIMIT / 2), SHOAL_OK);
    assert_int_equal(resize(grows, LARGE), SHOAL_OK);
    assert_true(zone_of(grows) > zone_of(stays));
    for (uint8_t i = 1; i < 6; i++)
        assert_int_equal(put(grows, i, LARGE), SHOAL_OK);
    assert_filled(grows, 5, LARGE);
    assert_int_equal(sh_zone_log_bytes(backup->zones.all[zone_of(grows)]),
                     2 * (uint64_t)(LARGE + SH_ZONE_CHUNK_BYTES));
    assert_int_equal(sh_zone_log_bytes(backup->zones.all[zone_of(stays)]), 2 * LIMIT);
}

/* Where the log has no room for it the write is refused, and has changed nothing; the zone takes smaller ones at once. */
static void test_refused(void **state)
{
    (void)state;
    shoal_cid large, small;
    uint32_t each = sh_replog_slots_for(SLOT_BYTES, 2 * LIMIT);
    begin(SH_REPLOG_SPARE_SLOTS + 2 * each + 2);
    assert_int_equal(make(LIMIT, &large), SHOAL_OK);
    assert_int_equal(make(100, &small), SHOAL_OK);
    assert_int_equal(put(large, 1, LIMIT), SHOAL_OK);
    for (unsigned i = 0; i < 3; i++) {
        const struct sh_store_rewrite rewrite = {
            .kind = SH_STORE_RESIZE, .cid = large, .size = LARGE};
        assert_int_equal(change(&rewrite), SHOAL_ENOSPC);
        assert_filled(large, 1, LIMIT);
        for (unsigned steps = 0; status().full; steps++) {
            assert_true(steps < STEPS_MAX);
            step();
        }
        assert_int_equal(put(small, (uint8_t)i, 100), SHOAL_OK);
    }
    assert_int_equal(resize(large, 1000), SHOAL_OK);
    assert_int_equal(put(large, 4, 1000), SHOAL_OK);
    assert_int_equal(status().trouble, SHOAL_OK);
}

static void on_foreign_gone(void *arg, uint64_t id, enum shoal_err err)
{
    (void)id;
    assert_int_equal(err, SHOAL_OK);
    *(bool *)arg = true;
}

/* Writes small chunks until the log has no room for the zone. The chunks, of which the last one waits. */
static unsigned fill_up(shoal_cid *cids, unsigned room, struct sh_write *last,
                        struct waited *waited)
{
    for (unsigned i = 0; i < room; i++)
        assert_int_equal(make(20000, &cids[i]), SHOAL_OK); /* zeros take no room */
    for (unsigned count = 0; count < room; count++) {
        memset(data, (int)count, 20000);
        const struct sh_store_rewrite rewrite = {
            .kind = SH_STORE_PUT, .cid = cids[count], .data = sh_bytes_make(data, 20000)};
        sh_write_begin(last, SH_LEVEL_REPLICATED);
        assert_int_equal(sh_backup_rewrite(backup, last, &rewrite), SHOAL_OK);
        *waited = (struct waited){false, SHOAL_OK};
        if (!sh_write_wait(backup, last, on_done, waited))
            continue;
        while (!waited->is_over && !status().full)
            step();
        if (!waited->is_over)
            return count + 1;
    }
    return 0;
}

/* A zone of which all is current, and that gets no more: what was recorded waits, the zone says that it is full, its chunks go to
 * another one when they are written, and as soon as there is room all is as before. */
static void test_full(void **state)
{
    (void)state;
    static shoal_cid cids[300];
    uint32_t each = sh_replog_slots_for(SLOT_BYTES, 2 * LIMIT);
    const struct sh_replog_zone_config foreign = {
        .id = FOREIGN, .owner = 99, .incarnation = 1, .bytes_max = 2 * LIMIT};
    struct sh_replog_zone *other;
    struct sh_write last;
    struct waited waited;
    open_with(SH_REPLOG_SPARE_SLOTS + 3 * each);
    assert_int_equal(sh_replog_zone_add(replicas, &foreign, &other), SHOAL_OK);
    home_set();
    shoal_cid first; /* opens a zone, so that there is another one to come */
    assert_int_equal(make(100, &first), SHOAL_OK);
    for (unsigned i = 0; i < 10; i++)
        step();
    assert_non_null(backup->zones.spare);
    backup->config.zone_bytes = 8 * LIMIT; /* for which the log was not made */
    unsigned count = fill_up(cids, 300, &last, &waited);
    assert_true(count > 50);
    uint64_t number = zone_of(cids[0]);
    struct sh_zone_state zone;
    assert_int_equal(status().full, 1);
    assert_true(sh_backup_zone_state(backup, number, &zone) && zone.number == number);
    assert_int_equal(zone.backups[0].state, SH_SINK_FULL);
    assert_int_equal(zone.backups[0].why, SHOAL_ENOSPC);
    /* Another zone takes what is written now. */
    assert_int_equal(put(cids[3], 77, 20000), SHOAL_OK);
    assert_true(zone_of(cids[3]) > number);
    /* There is none any more. */
    sh_lock_take(&backup->zones.lock);
    backup->zones.open = backup->zones.all[number];
    sh_lock_release(&backup->zones.lock);
    assert_int_equal(put(cids[4], 78, 20000), SHOAL_ENOSPC);
    assert_false(waited.is_over);
    bool is_gone = false;
    assert_int_equal(sh_replog_zone_drop(other, on_foreign_gone, &is_gone), SHOAL_OK);
    for (unsigned i = 0; !waited.is_over; i++) {
        assert_true(i < STEPS_MAX);
        step();
    }
    assert_true(is_gone && waited.err == SHOAL_OK);
    assert_int_equal(put(cids[4], 79, 20000), SHOAL_OK);
    assert_int_equal(zone_of(cids[4]), number);
    assert_int_equal(status().full, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_larger_than_a_zone, teardown),
        cmocka_unit_test_teardown(test_grows, teardown),
        cmocka_unit_test_teardown(test_refused, teardown),
        cmocka_unit_test_teardown(test_full, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
