/* Damage of what nothing in its own slot tells of: of the last span of a slot, of a slot's head, of what a crash has left of a span, of the mark of a
 * drop, and of the version log. */
#include "log/replog_clean_int.h"
#include "log/replog_cut_test.h"

#define WRITES 240u

static uint8_t *kept; /* of the file */
static size_t kept_size;

static void file_keep(void)
{
    const struct cut *cut = cut_of(rig.config.disk);
    kept_size = cut->size;
    kept = realloc(kept, kept_size);
    memcpy(kept, cut->now, kept_size);
}

/* It grows when it is opened. */
static void file_restore(void)
{
    struct cut *cut = cut_of(rig.config.disk);
    memcpy(cut->now, kept, kept_size);
    memset(cut->now + kept_size, 0, cut->size - kept_size);
    cut->size = kept_size;
}

/* Writes to a zone, which are cleaned meanwhile, and ends the process. */
static void write_all(void)
{
    rig.config.versions_max = 16;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 8 * 65536));
    for (unsigned i = 0; i < WRITES; i++) {
        append(0, i % 50, i, 3000);
        if (i % 3 == 0)
            rig_sync(&rig, 1);
    }
    rig_sync(&rig, 1);
    shut();
    file_keep();
}

/* Where the slot's last span begins, in the file; 0: it has none, or is of another kind. */
static size_t last_span(const struct cut *cut, uint32_t slot, uint64_t number, bool is_versions)
{
    const uint8_t *bytes = cut->now + slots_at() + (size_t)slot * 65536;
    struct sh_log_slot_head head;
    struct sh_span span;
    struct sh_reader entries;
    size_t last = 0;
    if (!sh_log_slot_get(bytes, number, &head) || (head.kind == SH_SLOT_VERSIONS) != is_versions)
        return 0;
    struct sh_scan scan = {
        .bytes = sh_bytes_make(bytes + SH_SLOT_HEAD_BYTES, 65536 - SH_SLOT_HEAD_BYTES),
        .use = head.use,
        .mask = UINT64_MAX};
    while (sh_scan_next(&scan, &span, &entries))
        last = (size_t)(bytes - cut->now) + SH_SLOT_HEAD_BYTES + scan.begin;
    return is_versions ? (size_t)(bytes - cut->now) : last;
}

static uint64_t number_of(const struct cut *cut)
{
    struct sh_log_file file;
    assert_int_equal(sh_log_file_get(cut->now, &file), SHOAL_OK);
    return file.number;
}

/* Loads the zone from the file as it is now, and ends the process; then the file is what it was. */
static struct rig_loaded load_and_restore(uint64_t *flushes_out)
{
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, 0);
    *flushes_out = sh_replog_zone_find(rig.log, rig_zone_id(0))->flushes;
    shut();
    file_restore();
    return loaded;
}

/* A bit of the entries, or of the head, of each slot's last span: the load says so, or ends before what was durable. */
static void test_last_spans(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    write_all();
    uint64_t number = number_of(cut), flushes;
    unsigned told = 0, short_of = 0;
    struct rig_loaded loaded = load_and_restore(&flushes);
    assert_int_equal(loaded.err, SHOAL_OK);
    assert_int_equal(loaded.end, WRITES);
    for (uint32_t slot = 0; slot < 30; slot++) {
        size_t last = last_span(cut, slot, number, false);
        bool has_entries = last && sh_load32(cut->now + last + 32);
        for (unsigned k = 0; last && k < 1 + (unsigned)has_entries; k++) {
            cut->now[last + (k ? SH_SPAN_HEAD_BYTES + 20 : 30)] ^= 1;
            loaded = load_and_restore(&flushes);
            assert_true(loaded.err == SHOAL_ECORRUPT || loaded.end < WRITES);
            told += loaded.err == SHOAL_ECORRUPT;
            short_of += loaded.err == SHOAL_OK;
        }
    }
    assert_true(told > 4 && short_of <= 2);
}

/* Both copies of the heads of all slots of the version log: chunks are what they were, and numbers of flushes are not given again. */
static void test_version_log_lost(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    write_all();
    uint64_t number = number_of(cut), flushes, later;
    unsigned lost = 0;
    assert_int_equal(load_and_restore(&flushes).err, SHOAL_OK);
    for (uint32_t slot = 0; slot < 30; slot++) {
        size_t head = last_span(cut, slot, number, true);
        if (!head)
            continue;
        cut->now[head + 40] ^= 1;
        cut->now[head + 2048 + 40] ^= 1;
        lost++;
    }
    assert_true(lost > 0);
    assert_int_equal(load_and_restore(&later).end, WRITES);
    assert_true(later >= flushes);
}

static bool is_given[64];

static bool is_zeroing(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind == SH_DISK_WRITE && op->data == rig.log->zeros && op->offset >= slots_at();
}

/* A crash comes while the cleaner gives slots away, before any is gone: what is there of them does not make up for spans of others that are damaged. */
static void test_while_giving(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    uint64_t flushes, writes = 0;
    unsigned told = 0, given = 0;
    rig.config.versions_max = 16;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 20 * 65536));
    cut->holds = is_zeroing;
    for (; !cut->held_seen; writes++) {
        assert_true(writes < 3000);
        append(0, writes % 50, (uint32_t)writes, 3000);
        sh_replog_sync(rig.zones[0].zone);
        rig_step(&rig, RIG_MS);
    }
    assert_non_null(rig.log->clean);
    uint64_t durable = sh_replog_durable(rig.zones[0].zone);
    memset(is_given, 0, sizeof is_given);
    for (unsigned i = 0; i < rig.log->clean->gone_count; i++)
        is_given[rig.log->clean->gone[i]] = true;
    uint64_t number = number_of(cut);
    file_keep();
    shut();
    file_restore();
    struct rig_loaded loaded = load_and_restore(&flushes);
    assert_int_equal(loaded.err, SHOAL_OK);
    assert_true(loaded.end >= durable);
    for (uint32_t slot = 0; slot < 40; slot++) {
        size_t last = last_span(cut, slot, number, false);
        given += last && is_given[slot];
        if (!last || is_given[slot])
            continue;
        cut->now[last + 30] ^= 1;
        loaded = load_and_restore(&flushes);
        assert_true(loaded.err == SHOAL_ECORRUPT || loaded.end < durable);
        told += loaded.err == SHOAL_ECORRUPT;
    }
    assert_true(told > 2 && given > 0);
}

/* A crash has torn a span, of which the first entries are there, and count: a bit of these goes bad later. */
static void test_torn_span(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    uint64_t flushes;
    rig.config.primary_blocks = 0;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 8 * 65536));
    for (unsigned i = 0; i < 8; i++)
        append(0, i, i, 1000);
    rig_sync(&rig, 1);
    shut();
    size_t last = 0;
    for (uint32_t slot = 0; slot < 30 && !last; slot++)
        last = last_span(cut, slot, number_of(cut), false);
    assert_true(last > 0);
    memset(cut->now + last + 4096, 0, 4096);
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, 0);
    assert_int_equal(loaded.err, SHOAL_OK);
    assert_true(loaded.end > 0 && loaded.end < 8);
    zone_add_config(0, rig_zone_config(0, 2, loaded.end, 8 * 65536));
    for (unsigned i = 0; i < 8; i++) {
        append(0, 8 + i, 8 + i, 1000);
        rig_sync(&rig, 1);
    }
    shut();
    file_keep();
    assert_int_equal(load_and_restore(&flushes).err, SHOAL_OK);
    cut->now[last + SH_SPAN_HEAD_BYTES + 20] ^= 1;
    assert_int_equal(load_and_restore(&flushes).err, SHOAL_ECORRUPT);
}

static bool is_dropped;

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    (void)arg, (void)id;
    assert_int_equal(err, SHOAL_OK);
    is_dropped = true;
}

/* The mark of a drop, of a zone that was added again since: what the primary log has of the former incarnation does not come back. */
static void test_mark_lost(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 8 * 65536));
    for (unsigned i = 0; i < 20; i++)
        append(0, i, i, 50);
    rig_sync(&rig, 1);
    is_dropped = false;
    assert_int_equal(sh_replog_zone_drop(rig.zones[0].zone, on_dropped, NULL), SHOAL_OK);
    for (unsigned i = 0; !is_dropped; i++) {
        assert_true(i < 1000);
        rig_step(&rig, RIG_MS);
    }
    zone_add_config(0, rig_zone_config(0, 2, 0, 8 * 65536));
    append(0, 100, 100, 50);
    rig_sync(&rig, 1);
    shut();
    struct sh_log_file file;
    struct sh_span span;
    struct sh_reader entries;
    unsigned marks = 0;
    assert_int_equal(sh_log_file_get(cut->now, &file), SHOAL_OK);
    struct sh_scan scan = sh_replog_ring_scan(&file, cut->now + sh_log_primary_at());
    while (sh_scan_next(&scan, &span, &entries)) {
        if (!span.zone || span.life)
            continue;
        cut->now[sh_log_primary_at() + scan.begin + 30] ^= 1;
        marks++;
    }
    assert_int_equal(marks, 1);
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, 0);
    assert_int_equal(loaded.err, SHOAL_OK);
    assert_int_equal(loaded.end, 1);
    shut();
}

static int finish(void **state)
{
    free(kept);
    kept = NULL;
    return teardown(state);
}

static bool holds_laps(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->offset == sh_log_primary_at() && op->kind != SH_DISK_READ;
}

/* A zone is added when a lap has begun of which the disk has nothing yet, and the power fails. Ordinals of what the next start puts into slots are above
 * those of the zone's spans all the same. */
static void test_lap_that_is_not_there(void **state)
{
    (void)state;
    rig.config.primary_blocks = 256;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    uint32_t lap = rig.log->lap;
    cut_of(rig.config.disk)->holds = holds_laps;
    for (unsigned i = 0; rig.log->lap == lap; i++) {
        assert_true(i < 100000);
        append(0, i % 50, i, 1000);
        sh_replog_sync(rig.zones[0].zone);
        rig_step(&rig, RIG_MS);
    }
    rig_zone_add(&rig, 1, 1, 0);
    for (unsigned i = 0; sh_replog_durable(rig.zones[1].zone) == 0; i++) {
        assert_true(i < 10000);
        append(1, i % 50, i, 1000);
        rig_step(&rig, RIG_MS);
    }
    uint32_t era = rig.zones[1].zone->era;
    assert_true(era > rig.log->lap);
    file_keep();
    shut(); /* which writes what was held back */
    file_restore();
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 1).err, SHOAL_OK);
    assert_int_equal(sh_replog_zone_find(rig.log, rig_zone_id(1))->ordinal_found >> 32, era);
    assert_true(rig.log->lap > era);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lap_that_is_not_there, setup, finish),
        cmocka_unit_test_setup_teardown(test_last_spans, setup, finish),
        cmocka_unit_test_setup_teardown(test_while_giving, setup, finish),
        cmocka_unit_test_setup_teardown(test_torn_span, setup, finish),
        cmocka_unit_test_setup_teardown(test_mark_lost, setup, finish),
        cmocka_unit_test_setup_teardown(test_version_log_lost, setup, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
