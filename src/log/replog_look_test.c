/* A log tells of its zones and slots without reading them: of all of them, each once, whatever the size of a page. */
#include "log/replog_cut_test.h"

#define ZONES 3u
#define LOOKED_MAX 512u

static struct sh_replog_look_zone zones[LOOKED_MAX];
static struct sh_replog_look_slot slots[LOOKED_MAX];

static size_t all_zones(size_t page)
{
    uint64_t cursor = 0;
    size_t count = 0;
    do {
        size_t more = sh_replog_look_zones(rig.log, &cursor, &zones[count], page);
        assert_true(more <= page);
        count += more;
        assert_true(count + page <= LOOKED_MAX);
    } while (cursor);
    return count;
}

static size_t all_slots(size_t page)
{
    uint64_t cursor = 0;
    size_t count = 0;
    do {
        size_t more = sh_replog_look_slots(rig.log, &cursor, &slots[count], page);
        assert_true(more <= page);
        count += more;
        assert_true(count + page <= LOOKED_MAX);
    } while (cursor);
    return count;
}

static const struct sh_replog_look_zone *zone_of(uint64_t id, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (zones[i].id == id)
            return &zones[i];
    }
    return NULL;
}

static void check_page(size_t page)
{
    struct sh_replog_status status;
    uint64_t bytes[ZONES] = {0};
    uint32_t found[ZONES] = {0};
    sh_replog_status_get(rig.log, &status);
    size_t zone_count = all_zones(page), slot_count = all_slots(page);
    assert_int_equal(zone_count, ZONES);
    assert_int_equal(slot_count, status.slots - status.slots_free);
    for (size_t i = 0; i < slot_count; i++) {
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(slots[i].slot, slots[j].slot);
        for (unsigned zone = 0; zone < ZONES; zone++) {
            if (slots[i].zone == rig_zone_id(zone)) {
                found[zone]++;
                bytes[zone] += slots[i].filled_bytes;
            }
        }
    }
    for (unsigned zone = 0; zone < ZONES; zone++) {
        const struct sh_replog_look_zone *look = zone_of(rig_zone_id(zone), zone_count);
        assert_non_null(look);
        assert_int_equal(look->slots, found[zone]);
        assert_int_equal(look->slot_bytes, bytes[zone]);
        assert_int_equal(look->next, sh_replog_next(rig.zones[zone].zone));
        assert_int_equal(look->durable, sh_replog_durable(rig.zones[zone].zone));
        assert_int_equal(look->known.incarnation, 3);
        assert_true(look->known.is_added && look->slots <= look->slots_max);
    }
}

static void test_pages(void **state)
{
    (void)state;
    rig_open(&rig);
    for (unsigned zone = 0; zone < ZONES; zone++) {
        rig_zone_add(&rig, zone, 3, 0);
        for (unsigned i = 0; i < 400; i++)
            append(zone, i % 100, i, 600);
    }
    rig_sync(&rig, ZONES);
    for (size_t page = 1; page < 20; page++)
        check_page(page);
    assert_true(all_slots(64) > ZONES);
}

/* A start tells of the zones that an earlier process has left. */
static void test_found(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 3, 0);
    for (unsigned i = 0; i < 400; i++)
        append(0, i % 100, i, 600);
    rig_sync(&rig, 1);
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
    size_t count = all_slots(3);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++)
        assert_true(slots[i].is_found && slots[i].is_closed && slots[i].zone == rig_zone_id(0));
    assert_int_equal(all_zones(3), 1);
    assert_int_equal(zones[0].slots, count);
    assert_false(zones[0].known.is_added);
    assert_int_equal(zones[0].next, 0);
}

static void test_nothing(void **state)
{
    (void)state;
    rig_open(&rig);
    assert_int_equal(all_zones(1), 0);
    assert_int_equal(all_slots(1), 0);
    uint64_t cursor = UINT64_MAX; /* as from a wire */
    assert_int_equal(sh_replog_look_slots(rig.log, &cursor, slots, 1), 0);
    assert_int_equal(cursor, 0);
    assert_int_equal(sh_replog_look(rig.log).slot_bytes, rig.config.slot_bytes);
}

/* The log counts bytes by what they are, and each batch by why it went to its slot. */
static void test_counts(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 3000; i++) /* large batches, which wait for memory now and then */
        append(0, i % 300, i, 900);
    rig_sync(&rig, 1);
    struct sh_replog_status is = status();
    assert_true(is.flushes[SH_REPLOG_FLUSH_LARGE] + is.flushes[SH_REPLOG_FLUSH_FULL] > 20);
    uint64_t flushes = 0;
    for (unsigned i = 0; i < SH_REPLOG_FLUSHES; i++)
        flushes += is.flushes[i];
    assert_true(flushes > 0 && flushes <= is.slot_writes);
    assert_true(is.slot_largest >= is.slot_bytes / is.slot_writes &&
                is.slot_largest <= rig.config.slot_bytes);
    assert_true(is.slot_padding < is.slot_writes * SH_BLOCK_BYTES);
    assert_true(is.head_bytes >= SH_SLOT_HEAD_BYTES * (is.slots - is.slots_free));
    assert_int_equal(is.head_bytes % SH_SLOT_HEAD_BYTES, 0);
    assert_int_equal(is.read_errors, 0);
    /* The cleaner has had its turns. */
    assert_true(is.slots_cleaned && is.cleanings && is.cleanings <= is.slots_cleaned);
    assert_true(is.clean_read_bytes >= is.slots_cleaned * rig.config.slot_bytes);
    assert_true(is.clean_ns > 0);
    /* Small ones: a pack of its own for each, most of which is padding. */
    uint64_t before = is.primary_padding, packs = is.primary_writes;
    for (unsigned i = 0; i < 1500; i++) {
        append(0, i % 100, i, 40);
        rig_sync(&rig, 1);
    }
    is = status();
    packs = is.primary_writes - packs;
    assert_true(packs > 1000);
    assert_true(is.primary_padding - before > packs * 3500);
    assert_true(is.primary_largest >= SH_BLOCK_BYTES);
    assert_true(is.flushes[SH_REPLOG_FLUSH_PRIMARY] > 0);
}

/* Appends that have to wait are counted. */
static void test_waits(void **state)
{
    (void)state;
    unsigned waits = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    assert_int_equal(status().waits, 0);
    for (unsigned i = 0; i < 4000; i++) {
        const struct sh_replog_write write = rig_write(&rig, i % 300, i, 4000, 0);
        enum shoal_err err = sh_replog_append(rig.zones[0].zone, &write);
        waits += err == SHOAL_EAGAIN;
        if (err)
            rig_step(&rig, RIG_MS);
    }
    assert_true(waits > 0);
    assert_int_equal(status().waits, waits);
    uint64_t number;
    rig_sync(&rig, 1);
    cut_of(rig.config.disk)->fails_at =
        slots_at() + (uint64_t)rig.zones[0].zone->slots.first * rig.config.slot_bytes + 100;
    assert_int_equal(sh_replog_scrub_begin(rig.log, 0, UINT64_C(1) << 30, &number), SHOAL_OK);
    for (unsigned i = 0; !status().read_errors; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
