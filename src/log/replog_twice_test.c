/* Entries that are there twice, as a process ended, or failed, while the cleaner had copied them and had not given their slots away yet, or as a
 * start has put into slots what was in slots already: they do not fill a zone, and are there once in the end. */
#include "log/replog_clean_int.h"
#include "log/replog_cut_test.h"

#define ZONE_SLOTS 20
#define RING_SLOTS 16 /* of which the primary log has the size, where there is one */
#define SMALL 560     /* chunks from there on are small */
/* Slots beside those with which a cleaning begins: copies of those that one cleaning takes, and some that are half full. */
#define MORE_MAX (SH_REPLOG_CLEAN_SLOTS + 4)

static uint64_t
    twice; /* entries that the cleaner has dropped as others were the same, in all lives */

static struct sh_replog_zone *zone(void)
{
    return rig.zones[0].zone;
}

static void add(uint64_t first)
{
    twice = first ? twice : 0;
    zone_add_config(0, rig_zone_config(0, 1, first, (uint64_t)ZONE_SLOTS * 65536));
}

/* The process ends, and another one finds what was appended, all of which was durable, and writes to the zone. */
static void live_again(bool is_cut)
{
    uint64_t end = sh_replog_next(zone());
    twice += status().entries_twice;
    start_again(is_cut);
    assert_int_equal(taken_is_all(0), end);
    add(end);
}

/* A write of a chunk: of two large ones, of 25 that fill a quarter of a slot each, of small ones, or a removal of one of these. */
static void write_one(uint64_t *seed, uint32_t stamp, bool is_small)
{
    uint64_t draw = test_draw(seed);
    unsigned small = SMALL + (unsigned)(draw >> 8) % 30;
    if (is_small || draw % 4 == 0)
        append(0, small, stamp, draw % 32 == 4 ? 0 : 4 + (draw >> 30) % 300);
    else if (draw % 16 == 1)
        append(0, draw & 256 ? 5 : 9, stamp, 100000);
    else
        append(0, 100 + (unsigned)(draw >> 8) % 25, stamp, 4 + (draw >> 30) % 16000);
}

static bool cleans(void)
{
    return rig.log->clean;
}

/* Writes until the zone is being cleaned. */
static void write_until_cleaned(uint64_t *seed, uint32_t *stamp, bool is_small)
{
    for (unsigned i = 0; !cleans(); i++) {
        assert_true(i < 200000);
        write_one(seed, (*stamp)++, is_small);
        if (i % 50 == 0)
            rig_sync(&rig, 1);
        rig_step(&rig, RIG_MS);
    }
    rig_sync(&rig, 1);
}

/* Whether there are slots that may have what another one has. */
static bool has_former(void)
{
    const struct sh_log_slot *slots = rig.log->slots.slots;
    for (uint32_t i = zone()->slots.first; i != SH_SLOT_NONE; i = slots[i].next) {
        bool is_former = slots[i].is_found || slots[i].order < zone()->twice_order;
        if (is_former && slots[i].kind != SH_SLOT_VERSIONS)
            return true;
    }
    return false;
}

/* How often the zone's slots have the newest version of a chunk, piece by piece. */
static uint8_t times[RIG_CHUNKS][16];

static void span_count(const struct rig *found, const struct sh_span *span, struct sh_reader *r)
{
    struct sh_replog_context context = span->context;
    struct sh_replog_entry entry;
    while (sh_replog_entry_get(r, &context, &entry) == SH_REPLOG_ENTRY) {
        const struct rig_chunk *chunk = &found->zones[0].chunks[entry.local_id - 1];
        if (chunk->version.epoch == entry.version.epoch &&
            chunk->version.number == entry.version.number)
            times[entry.local_id - 1][entry.piece]++;
    }
}

/* The zone's slots have each current entry, and once. */
static void assert_once(void)
{
    static uint8_t bytes[64 << 10];
    const struct rig *found = rig_assert_all(&rig, 1);
    memset(times, 0, sizeof times);
    for (uint32_t i = 0; i < rig.config.slots; i++) {
        struct sh_log_slot_head slot;
        rig_read(rig.config.disk, 1, slots_at() + (uint64_t)i * sizeof bytes, bytes, sizeof bytes);
        if (!sh_log_slot_get(bytes, rig.log->head.number, &slot) || slot.kind == SH_SLOT_VERSIONS)
            continue;
        struct sh_scan scan = {
            .bytes = sh_bytes_make(bytes + SH_SLOT_HEAD_BYTES, sizeof bytes - SH_SLOT_HEAD_BYTES),
            .use = slot.use,
            .mask = UINT64_MAX};
        struct sh_span span;
        struct sh_reader entries;
        while (sh_scan_next(&scan, &span, &entries))
            span_count(found, &span, &entries);
    }
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        const struct rig_chunk *should = &rig.zones[0].chunks[i];
        if (!should->is_there || should->is_removal)
            continue;
        for (unsigned piece = 0; piece < rig_pieces(&rig, should->size); piece++)
            assert_true(times[i][piece] <= 1);
    }
}

/* Goes on until no slot is left that was there when a cleaning ended too early: then nothing is there twice. */
static void assert_once_in_the_end(uint64_t *seed, uint32_t *stamp)
{
    for (unsigned i = 0; has_former(); i++) {
        assert_true(i < 200000);
        write_one(seed, (*stamp)++, false);
        rig_step(&rig, RIG_MS);
    }
    for (unsigned i = 0; cleans(); i++) {
        assert_true(i < 10000);
        rig_step(&rig, RIG_MS);
    }
    rig_sync(&rig, 1);
    assert_once();
    live_again(true);
    assert_true(twice > 0);
}

/* Steps into a phase of the cleaning that goes on, or to its end. */
static void step_into(enum sh_replog_clean_phase phase, unsigned more)
{
    for (unsigned i = 0; cleans() && rig.log->clean->phase < phase; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
    while (cleans() && more--)
        rig_step(&rig, RIG_MS);
}

/* The process ends in the middle of one cleaning after the other. */
static void end_in_cleanings(bool is_small, uint64_t seed)
{
    uint32_t stamp = 1;
    unsigned most = 0, first = 0, ring = rig.config.primary_blocks ? RING_SLOTS : 0;
    rig_open(&rig);
    add(0);
    append(0, 5, stamp++, 100000);
    append(0, 9, stamp++, 100000);
    for (unsigned life = 0; life < 40; life++) {
        uint64_t draw = test_draw(&seed);
        write_until_cleaned(&seed, &stamp, is_small);
        if (!first)
            first = zone()->slots.count;
        step_into(COPIES + (draw % 8 < 4 ? 0 : draw % 4), draw >> 8 & 7);
        live_again(draw >> 20 & 1);
        most = zone()->slots.count > most ? zone()->slots.count : most;
    }
    print_message("%u slots at first, %u at most\n", first, most);
    assert_true(most <= first + MORE_MAX + ring);
    assert_once_in_the_end(&seed, &stamp);
}

static void test_ends_in_cleanings(void **state)
{
    (void)state;
    rig.config.primary_blocks = 0;
    end_in_cleanings(false, test_seed(41));
}

static void test_ends_with_small_writes(void **state)
{
    (void)state;
    rig.config.primary_blocks = RING_SLOTS * 16;
    end_in_cleanings(true, test_seed(42));
}

/* Lets the last slot that is cleaned fail to be read, when those before it have been copied; false: nothing could be cleaned, or all was over before. */
static bool fail_cleaning(void)
{
    uint64_t cleaned = status().slots_cleaned;
    step_into(COPIES, 0);
    const struct sh_replog_clean *clean = rig.log->clean;
    if (!clean || !clean->count)
        return false;
    cut_of(rig.config.disk)->fails_at =
        sh_log_slot_at(&rig.log->head, clean->slots[clean->count - 1]);
    for (unsigned i = 0; cleans(); i++) {
        assert_true(i < 10000);
        rig_step(&rig, RIG_MS);
    }
    cut_of(rig.config.disk)->fails_at = 0;
    return status().slots_cleaned == cleaned;
}

/* Cleanings fail when they have copied some, again and again. */
static void test_cleanings_fail(void **state)
{
    (void)state;
    uint64_t seed = test_seed(43);
    uint32_t stamp = 1;
    rig_open(&rig);
    add(0);
    write_until_cleaned(&seed, &stamp, false);
    unsigned first = zone()->slots.count, fails = 0;
    for (unsigned i = 0; i < 60; i++) {
        fails += fail_cleaning();
        for (unsigned k = 0; k < 30; k++)
            write_one(&seed, stamp++, true);
        rig_step(&rig, 2000 * RIG_MS); /* it is tried again */
        write_until_cleaned(&seed, &stamp, true);
    }
    assert_true(fails > 30);
    assert_true(zone()->slots.count <= first + MORE_MAX);
    assert_true(status().survivor_bytes < 4 << 20); /* it is not copied each time */
    assert_once_in_the_end(&seed, &stamp);
}

/* Where the slots have an entry of that chunk first; 0: nowhere. */
static uint64_t entry_at(unsigned chunk)
{
    static uint8_t bytes[64 << 10];
    for (uint32_t i = 0; i < rig.config.slots; i++) {
        struct sh_log_slot_head slot;
        uint64_t at = slots_at() + (uint64_t)i * sizeof bytes;
        rig_read(rig.config.disk, 1, at, bytes, sizeof bytes);
        if (!sh_log_slot_get(bytes, rig.log->head.number, &slot) || slot.kind != SH_SLOT_ENTRIES)
            continue;
        struct sh_replog_walk walk;
        struct sh_replog_entry entry;
        enum sh_replog_walked got;
        sh_replog_walk_begin(&walk, NULL, bytes, sizeof bytes, slot.use);
        while ((got = sh_replog_walk_next(&walk, &entry)) != SH_REPLOG_WALKED_END) {
            if (got == SH_REPLOG_WALKED_ENTRY && entry.local_id == chunk + 1)
                return at + (uint64_t)(entry.payload.at - bytes);
        }
    }
    return 0;
}

/* Lets the power fail while a slot is written, of which the disk has what is before the end of a chunk's entry */
static void cut_within(unsigned chunk)
{
    static uint8_t bytes[64 << 10];
    struct cut *cut = cut_of(rig.config.disk);
    unsigned i = 0;
    while (i < cut->count && !holds_slots(cut, cut->ops[i]))
        i++;
    assert_true(i < cut->count && cut->ops[i]->size <= sizeof bytes);
    uint64_t from = cut->ops[i]->offset;
    sh_disk_gather(cut->ops[i], bytes);
    memcpy(cut->now + from, bytes, cut->ops[i]->size);
    uint64_t at = entry_at(chunk) + 50;
    assert_true(at > from && at < from + cut->ops[i]->size);
    shut();
    cut_power(cut);
    memcpy(cut->now + from, bytes, at - from);
    cut->size = cut->size > at ? cut->size : at;
}

/* A slot that a crash has torn has the first of a pair, and not the second: the cleaner does not drop another slot's copy of that first one. */
static void test_torn_pair_is_no_copy(void **state)
{
    (void)state;
    uint64_t seed = test_seed(44);
    uint32_t stamp = 10;
    struct cut *cut = cut_of(rig.config.disk);
    rig.config.primary_blocks = RING_SLOTS * 16;
    rig_open(&rig);
    add(0);
    append(0, 5, 1, 40000); /* what the torn slot is kept for */
    assert_int_equal(sh_replog_batch_flush(zone()->filling, SH_REPLOG_FLUSH_FULL), SHOAL_OK);
    rig_sync(&rig, 1);
    assert_int_equal(rig_append_with(&rig, 0, 3, 2, 100, RIG_OF_ZONE, 100), SHOAL_OK);
    rig_sync(&rig, 1);
    cut->holds = holds_slots;
    uint64_t end = sh_replog_next(zone());
    for (unsigned i = 0; !cut->held_seen; i++) {
        assert_true(i < 1000);
        append(0, 9, 3, 40000); /* with it the slot gets the pair, too */
        rig_step(&rig, RIG_MS);
    }
    rig.zones[0].chunks[9].is_there = false;
    cut_within(3);
    cut->holds = NULL;
    rig_open(&rig);
    assert_int_equal(taken_is_all(0), end);
    add(end);
    uint64_t copy = entry_at(3);
    assert_true(copy);
    for (unsigned i = 0; !cleans(); i++) {
        assert_true(i < 100000);
        write_one(&seed, stamp++, true);
        rig_step(&rig, RIG_MS);
    }
    rig.log->clean->chosen[0] = (uint32_t)((copy - slots_at()) / rig.config.slot_bytes);
    rig.log->clean->chosen_count = 1;
    step_into(GIVES, 1000);
    assert_true(entry_at(3) != copy);
    rig_sync(&rig, 1);
    live_again(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ends_in_cleanings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_with_small_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cleanings_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_pair_is_no_copy, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
