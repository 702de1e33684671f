/* A log on a disk that is full, or would be: zones are refused before it is, writes wait until there is room, and what is free is
 * given back. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "log/replog_cut_test.h"

#define SLOT_BLOCKS 16u /* of 4 KiB */
#define CHUNKS 200u
#define CHUNKS_MAX 590u

static struct cut *disk_of(void)
{
    return cut_of(rig.config.disk);
}

static uint64_t blocks_of(uint64_t slots)
{
    return 1 + rig.config.primary_blocks + slots * SLOT_BLOCKS;
}

static void steps(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        rig_step(&rig, RIG_MS);
}

static enum shoal_err add(unsigned zone, uint64_t bytes_max)
{
    const struct sh_replog_zone_config config = rig_zone_config(zone, 1, 0, bytes_max);
    rig.zones[zone].id = rig_zone_id(zone);
    return sh_replog_zone_add(rig.log, &config, &rig.zones[zone].zone);
}

/* Appends if there is room; how often there was not. */
static unsigned append_some(unsigned zone, unsigned chunks, unsigned count, size_t size)
{
    unsigned refused = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct sh_replog_write write = rig_write(&rig, i % chunks, i, size, 0);
        enum shoal_err err = sh_replog_append(rig.zones[zone].zone, &write);
        assert_true(!err || err == SHOAL_EAGAIN);
        if (!err)
            rig_written(&rig, zone, i % chunks, i, size);
        refused += err == SHOAL_EAGAIN;
        rig_step(&rig, RIG_MS);
    }
    return refused;
}

/* A zone may take 16 slots, and the log keeps six more; what others have of it counts. */
static void test_zones_are_refused(void **state)
{
    (void)state;
    struct cut *disk = disk_of();
    const uint64_t bytes = 12 * 65536;
    disk->limit = blocks_of(16 + SH_REPLOG_SPARE_SLOTS) - 1;
    rig_open(&rig);
    assert_int_equal(add(0, bytes), SHOAL_ENOSPC);
    disk->limit++;
    assert_int_equal(add(0, bytes), SHOAL_OK);
    assert_int_equal(add(1, bytes), SHOAL_ENOSPC);
    disk->limit = blocks_of(32 + SH_REPLOG_SPARE_SLOTS);
    rig.log->config.reserve_bytes = 1;
    assert_int_equal(add(1, bytes), SHOAL_ENOSPC);
    assert_int_equal(sh_replog_zone_fits(rig.log, bytes), SHOAL_ENOSPC);
    disk->limit++;
    assert_int_equal(sh_replog_zone_fits(rig.log, bytes), SHOAL_OK);
    assert_int_equal(add(1, bytes), SHOAL_OK);
    assert_int_equal(append_some(0, CHUNKS, CHUNKS, 2000), 0);
    assert_int_equal(add(2, bytes), SHOAL_ENOSPC);
    assert_false(status().is_full);
}

/* Makes the disk a raw one, of so many blocks. */
static void raw_begin(uint64_t blocks)
{
    struct cut *disk = disk_of();
    disk->limit = disk->used = blocks;
    memset(disk->backed, 1, blocks);
    disk->size = blocks * 4096;
}

static uint64_t bytes_changed(const uint8_t *before)
{
    uint64_t changed = 0;
    for (size_t i = 0; i < disk_of()->size; i++)
        changed += disk_of()->now[i] != before[i];
    return changed;
}

/* An open fails with that, and changes nothing. */
static void refused_untouched(enum shoal_err expected)
{
    struct cut *disk = disk_of();
    uint8_t *before = malloc(disk->size);
    assert_non_null(before);
    memcpy(before, disk->now, disk->size);
    assert_int_equal(sh_replog_open(&rig.config, rig.now_ns, 1, &rig.log), expected);
    assert_int_equal(bytes_changed(before), 0);
    free(before);
}

/* A raw disk has nothing free, and is the log's. */
static void test_raw(void **state)
{
    (void)state;
    raw_begin(blocks_of(rig.config.slots) - 1);
    refused_untouched(SHOAL_ENOSPC);
    raw_begin(blocks_of(rig.config.slots));
    /* A log finds bytes of others, wherever in the first MiB they begin. */
    static const size_t places[] = {0, 1080, 4096, 65536, (1 << 20) - 1};
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        disk_of()->now[places[i]] = 0x53;
        refused_untouched(SHOAL_ECORRUPT);
        disk_of()->now[places[i]] = 0;
    }
    disk_of()->now[1 << 20] = 0x53; /* left by a log that was there, say */
    rig_open(&rig);
    assert_int_equal(add(0, 12 * 65536), SHOAL_OK);
    assert_int_equal(append_some(0, CHUNKS, CHUNKS, 2000), 0);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
    shut();
    /* Cut off: nothing is read as if it were zero. */
    raw_begin(blocks_of(rig.config.slots) - 1);
    refused_untouched(SHOAL_ENOSPC);
    raw_begin(blocks_of(rig.config.slots));
    rig_open(&rig);
}

/* Others fill the disk while a zone is written to: writes wait, and go on when there is room again. */
static void full_and_not(bool has_no_ranges)
{
    struct cut *disk = disk_of();
    disk->has_no_ranges = has_no_ranges;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    rig_sync(&rig, 1);
    disk->limit = disk->used + 2 * SLOT_BLOCKS;
    unsigned refused = append_some(0, CHUNKS_MAX, 5000, 3500);
    assert_true(refused > 1000);
    assert_true(status().is_full && status().refused > 3);
    assert_int_equal(sh_replog_trouble(rig.log), SHOAL_OK);
    assert_true(sh_replog_due_ns(rig.log) < rig.now_ns + 1000 * RIG_MS);
    assert_true(sh_replog_durable(rig.zones[0].zone) > 0);
    disk->limit = 0;
    append(0, 7, 70000, 900);
    rig_sync(&rig, 1);
    assert_false(status().is_full);
    (void)rig_assert_all(&rig, 1);
    shut();
    cut_power(disk);
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).err, SHOAL_OK);
    (void)rig_assert_all(&rig, 1);
}

static void test_full_disk(void **state)
{
    (void)state;
    full_and_not(false);
    assert_int_equal(disk_of()->refused, 0); /* slots have their room before they are written to */
}

static void test_full_disk_that_reserves_nothing(void **state)
{
    (void)state;
    full_and_not(true);
    assert_true(disk_of()->refused > 3);
}

/* How many lines of a file have such words. */
static unsigned lines_with(const char *path, const char *words)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        count += strstr(line, words) != NULL;
    fclose(file);
    return count;
}

/* The disk stays full, and the same chunks are written on and on: the cleaner makes room. That the disk is full is told once. */
static void test_cleaned_while_full(void **state)
{
    (void)state;
    struct cut *disk = disk_of();
    char path[] = "/tmp/replog_room_test-XXXXXX";
    int told = mkstemp(path);
    assert_true(told >= 0);
    assert_int_equal(sh_log_output_set(path, SH_LOG_AS_TEXT), SHOAL_OK);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    assert_int_equal(append_some(0, CHUNKS, 1500, 1000), 0);
    rig_sync(&rig, 1);
    disk->limit = disk->used;
    uint64_t before = sh_replog_next(rig.zones[0].zone);
    for (unsigned i = 0; i < 8000; i++)
        append(0, i % CHUNKS, 10000 + i, 1000);
    assert_int_equal(sh_replog_next(rig.zones[0].zone), before + 8000);
    assert_true(status().slots_cleaned > 30 && disk->used <= disk->limit);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
    assert_int_equal(sh_log_output_set("", SH_LOG_AS_TEXT), SHOAL_OK);
    assert_int_equal(lines_with(path, "the disk is full"), 1);
    assert_int_equal(lines_with(path, "has room again"), 0);
    close(told);
    unlink(path);
}

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    (void)id;
    assert_int_equal(err, SHOAL_OK);
    *(bool *)arg = true;
}

/* Slots that stay free give their room back, but for those that are kept; and get it again. */
static void test_discards(void **state)
{
    (void)state;
    struct cut *disk = disk_of();
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned round = 0; round < 3; round++) {
        append_some(0, CHUNKS, 2000, 1000);
        rig_sync(&rig, 1);
        uint64_t used = disk->used, discards = status().discards;
        bool is_dropped = false;
        assert_int_equal(sh_replog_zone_drop(rig.zones[0].zone, on_dropped, &is_dropped), SHOAL_OK);
        for (unsigned i = 0; !is_dropped || i < 50; i++) {
            assert_true(i < 5000);
            rig_step(&rig, RIG_MS);
        }
        assert_int_equal(status().slots_free, 400);
        steps(3200);
        assert_true(status().discards > discards && status().discards == disk->discards);
        assert_int_equal(status().slots_reserved, 32);
        assert_true(used > disk->used && disk->used <= blocks_of(32) + 400);
        assert_int_equal(status().discarded_bytes, disk->discards * (65536 - 4096));
        memset(&rig.zones[0], 0, sizeof rig.zones[0]);
        rig_zone_add(&rig, 0, round + 2, 0);
    }
    append_some(0, CHUNKS, 2000, 1000);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

/* As steps, but of an idle log, which is stepped when it says so, or its disk wakes it; at most that often. */
static void idle_steps(uint64_t ns, unsigned most)
{
    uint64_t end = rig.now_ns + ns;
    for (unsigned count = 0;; count++) {
        uint64_t due = rig.log->in_flight ? rig.now_ns : sh_replog_due_ns(rig.log);
        if (due >= end)
            break;
        assert_true(count < most);
        rig_step(&rig, due > rig.now_ns ? due - rig.now_ns : RIG_MS / 100);
    }
    rig.now_ns = end;
}

/* Leaves a file that has room in ten slots that are free, as a process may that ends; opens the log again. */
static void leave_behind(struct cut *disk)
{
    rig_open(&rig);
    steps(10);
    shut();
    uint64_t begin = slots_at() / 4096;
    for (unsigned slot = 100; slot < 110; slot++) {
        for (unsigned i = 0; i < SLOT_BLOCKS; i++, disk->used++)
            disk->backed[begin + slot * SLOT_BLOCKS + i] = 1;
    }
    disk->size = slots_at() + 110 * 65536;
    rig_open(&rig);
}

static void assert_given_back(const struct cut *disk)
{
    uint64_t begin = slots_at() / 4096;
    for (unsigned slot = 100; slot < 110; slot++)
        assert_int_equal(disk->backed[begin + slot * SLOT_BLOCKS + 1], 0);
}

/* Room that a process leaves in slots that are free is given back in time. */
static void test_left_behind(void **state)
{
    (void)state;
    struct cut *disk = disk_of();
    leave_behind(disk);
    uint64_t used = disk->used;
    steps(9000);
    assert_int_equal(disk->used, used);
    steps(3000);
    assert_given_back(disk);
    uint64_t discards = disk->discards;
    steps(3000);
    assert_int_equal(disk->discards, discards); /* once */
    assert_true(sh_replog_due_ns(rig.log) == UINT64_MAX);
}

/* Also where nobody writes: the log says when it wants to be stepped for it, and no more often than there is to do. */
static void test_left_behind_idle(void **state)
{
    (void)state;
    struct cut *disk = disk_of();
    leave_behind(disk);
    steps(100); /* what an open leaves to do */
    uint64_t used = disk->used;
    idle_steps(9000 * RIG_MS, 0);
    assert_int_equal(disk->used, used);
    idle_steps(3000 * RIG_MS, 1000);
    assert_given_back(disk);
    assert_true(sh_replog_due_ns(rig.log) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_zones_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_raw, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk_that_reserves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cleaned_while_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_discards, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_behind_idle, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
