/* Damage of what nothing in its own slot tells of: of the last span of a slot, of a slot's head, and of the version log. */
#include "log/replog_cut_test.h"

#define WRITES 240u

static uint8_t *kept; /* of the file */

/* Writes to a zone, which are cleaned meanwhile, and ends the process. */
static void write_all(void)
{
    struct cut *cut = cut_of(rig.config.disk);
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
    kept = realloc(kept, cut->size);
    memcpy(kept, cut->now, cut->size);
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
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, 0);
    *flushes_out = sh_replog_zone_find(rig.log, rig_zone_id(0))->flushes;
    shut();
    memcpy(cut->now, kept, cut->size);
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

static int finish(void **state)
{
    free(kept);
    kept = NULL;
    return teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_last_spans, setup, finish),
        cmocka_unit_test_setup_teardown(test_version_log_lost, setup, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
