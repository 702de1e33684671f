/* The scrub finds what has been damaged while the log runs, where it is and once; and a slot whose head is damaged is not taken for free. */
#include "log/replog_cut_test.h"

#define ZONES_USED 3u
#define RATE (UINT64_C(16) << 20)

struct told {
    unsigned times;
    struct sh_replog_zone *zone;
    uint32_t slot;
    uint64_t offset;
};
static struct told told;

static void on_damaged(void *arg, struct sh_replog_zone *zone, uint32_t slot, uint64_t offset)
{
    assert_null(arg);
    told = (struct told){told.times + 1, zone, slot, offset};
}

static void begin(uint64_t rate)
{
    memset(&told, 0, sizeof told);
    rig.config.scrub_bytes = rate;
    rig.config.damaged = on_damaged;
    rig_open(&rig);
    for (unsigned i = 0; i < ZONES_USED; i++)
        rig_zone_add(&rig, i, 1, 0);
}

static void write_some(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        append(i % ZONES_USED, i % 300, i, 20 + i % 900);
    rig_sync(&rig, ZONES_USED);
}

static void flip(uint64_t at)
{
    struct cut *cut = cut_of(rig.config.disk);
    cut->now[at] ^= 4;
    cut->stable[at] ^= 4;
}

/* Until so many passes more are over. */
static void passes(unsigned count)
{
    uint64_t until = status().scrub_passes + count;
    for (unsigned i = 0; status().scrub_passes < until; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
}

/* A slot of the zone of that kind, filled so far that it has several writes. */
static uint32_t slot_of(unsigned zone, enum sh_log_slot_kind kind)
{
    const struct sh_log_slot *slots = rig.log->slots.slots;
    uint32_t i = rig.zones[zone].zone->slots.first;
    while (i != SH_SLOT_NONE && (slots[i].kind != kind || slots[i].pending ||
                                 (kind == SH_SLOT_ENTRIES && slots[i].filled < 40000)))
        i = slots[i].next;
    assert_int_not_equal(i, SH_SLOT_NONE);
    return i;
}

static uint64_t at_of(uint32_t slot, uint64_t offset)
{
    return slots_at() + (uint64_t)slot * rig.config.slot_bytes + offset;
}

/* Nothing is found where nothing is damaged, whatever is written, cleaned and dropped meanwhile. */
static void test_sound(void **state)
{
    (void)state;
    uint64_t draws = test_seed(31);
    begin(256 * RATE);
    for (unsigned i = 0; i < 20000; i++) {
        unsigned zone = (unsigned)(test_draw(&draws) % ZONES_USED);
        append(zone, (unsigned)(test_draw(&draws) % 500), i, 20 + test_draw(&draws) % 900);
        if (i % 4 == 0)
            rig_step(&rig, RIG_MS / 4);
    }
    rig_sync(&rig, ZONES_USED);
    passes(2);
    assert_true(status().slots_cleaned > 10 && status().scrub_bytes > (4 << 20));
    assert_int_equal(told.times, 0);
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
    passes(2);
    assert_int_equal(told.times, 0);
    assert_int_equal(status().damaged, 0);
}

/* A bit of a slot flips: the scrub tells which zone, which slot, and where; once, though it goes on. */
static void test_damage(void **state)
{
    (void)state;
    begin(RATE);
    write_some(1500);
    passes(1);
    assert_int_equal(told.times, 0);
    uint32_t slot = slot_of(1, SH_SLOT_ENTRIES);
    flip(at_of(slot, 5000));
    passes(3);
    assert_int_equal(told.times, 1);
    assert_ptr_equal(told.zone, rig.zones[1].zone);
    assert_int_equal(told.slot, slot);
    assert_true(told.offset >= at_of(slot, 4096) && told.offset <= at_of(slot, 5000));
    assert_int_equal(status().damaged, 1);
    assert_int_equal(sh_replog_zone_damage(told.zone).slots, 1);
    assert_int_equal(sh_replog_zone_damage(told.zone).offset, told.offset);
    append(1, 1, 1, 100); /* the log goes on */
    rig_sync(&rig, ZONES_USED);
}

/* So it is found in a slot's last write, of which no later one says that it had been on the disk; and in the slot's head, both copies. */
static void test_damage_of_the_last(void **state)
{
    (void)state;
    begin(RATE);
    write_some(1500);
    uint32_t slot = slot_of(2, SH_SLOT_ENTRIES);
    uint32_t last = rig.log->slots.slots[slot].filled;
    while (!cut_of(rig.config.disk)->now[at_of(slot, last - 1)])
        last--; /* padding */
    flip(at_of(slot, last - 1));
    passes(2);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.slot, slot);
    slot = slot_of(0, SH_SLOT_ENTRIES);
    flip(at_of(slot, 20));
    passes(2);
    assert_int_equal(told.times, 1); /* there is another copy */
    flip(at_of(slot, 2048 + 20));
    passes(2);
    assert_int_equal(told.times, 2);
    assert_int_equal(told.slot, slot);
    assert_int_equal(told.offset, at_of(slot, 0));
    assert_ptr_equal(told.zone, rig.zones[0].zone);
}

/* The version log's sums are checked, too, and what the disk can't read is damage. */
static void test_damage_of_versions(void **state)
{
    (void)state;
    rig.config.versions_max = 64;
    begin(RATE);
    write_some(1500);
    passes(1);
    uint32_t slot = slot_of(0, SH_SLOT_VERSIONS);
    flip(at_of(slot, 4096 + 30)); /* of the first piece's header */
    passes(2);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.slot, slot);
    cut_of(rig.config.disk)->fails_at = at_of(slot_of(1, SH_SLOT_ENTRIES), 9000);
    passes(2);
    assert_int_equal(told.times, 2);
    assert_ptr_equal(told.zone, rig.zones[1].zone);
}

/* How many tuples the largest piece of a slot of the version log has. */
static unsigned tuples_of_largest(uint32_t slot, size_t size)
{
    const struct cut *cut = cut_of(rig.config.disk);
    struct sh_bytes bytes = sh_bytes_make(cut->now + at_of(slot, SH_SLOT_HEAD_BYTES), size);
    struct sh_version_reader reader;
    struct sh_version_tuple tuple;
    unsigned most = 0;
    for (size_t at = 0; sh_version_piece_next(bytes, &at, rig_zone_id(0), 0, &reader);) {
        unsigned count = 0;
        while (sh_version_reader_next(&reader, &tuple) == SH_VERSION_TUPLE)
            count++;
        most = count > most ? count : most;
    }
    return most;
}

/* Pieces of the version log that have more tuples than are looked at in a step are looked at to their end. */
static void test_large_pieces(void **state)
{
    (void)state;
    rig.config.slot_bytes = 256 << 10;
    rig.config.slots = 200;
    rig.config.buffer_bytes = 4 << 20;
    begin(16 * RATE);
    for (unsigned i = 0; i < 8000; i++) {
        const struct sh_replog_write write = {.local_id = 2 * (i % 4000) + 1,
                                              .creator = RIG_OWNER,
                                              .pieces = 1,
                                              .payload = {NULL, 100}};
        while (sh_replog_append(rig.zones[0].zone, &write) == SHOAL_EAGAIN)
            rig_step(&rig, RIG_MS);
    }
    rig_sync(&rig, ZONES_USED);
    passes(2);
    uint32_t slot = slot_of(0, SH_SLOT_VERSIONS);
    assert_true(tuples_of_largest(slot, rig.config.slot_bytes - SH_SLOT_HEAD_BYTES) > 2000);
    assert_int_equal(told.times, 0);
    flip(at_of(slot, 8192)); /* in its middle */
    passes(2);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.slot, slot);
}

/* So many bytes a second, and not many more. */
static void test_rate(void **state)
{
    (void)state;
    begin(256 << 10);
    write_some(1500);
    uint64_t before = status().scrub_bytes;
    for (unsigned i = 0; i < 2000; i++)
        rig_step(&rig, RIG_MS);
    uint64_t bytes = status().scrub_bytes - before;
    assert_true(bytes >= (256 << 10) && bytes <= (512 << 10) + 65536);
    assert_true(sh_replog_due_ns(rig.log) > rig.now_ns);
}

/* Both copies of a head are damaged before a start: the slot is not used, and the zone is damaged, as spans in the slot say whose it is. */
static void test_lost_head(void **state)
{
    (void)state;
    begin(0);
    for (unsigned i = 0; i < 15; i++) { /* so that later writes say that the head is on the disk */
        write_some(200);
        for (unsigned k = 0; k < 200; k++)
            rig_step(&rig, RIG_MS);
    }
    uint32_t slot = slot_of(1, SH_SLOT_ENTRIES);
    shut();
    cut_power(cut_of(rig.config.disk));
    flip(at_of(slot, 10));
    rig_open(&rig);
    assert_int_equal(status().slots_lost, 0);
    assert_int_equal(rig_load(&rig, 1).err, SHOAL_OK); /* one copy is enough */
    shut();
    flip(at_of(slot, 2048 + 37));
    rig_open(&rig);
    assert_int_equal(status().slots_lost, 1);
    assert_int_equal(rig_load(&rig, 0).err, SHOAL_OK);
    assert_int_equal(rig_load(&rig, 1).err, SHOAL_ECORRUPT);
    for (unsigned i = 3; i < 6; i++) {
        rig_zone_add(&rig, i, 1, 0);
        for (unsigned k = 0; k < 2500; k++)
            append(i, k % 500, k, 900);
    }
    assert_int_equal(rig.log->slots.slots[slot].kind, SH_SLOT_LOST);
}

/* A head that a crash tore while it was being written is no damage: nothing was there for certain. */
static void test_torn_head(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    begin(0);
    write_some(100);
    shut();
    cut_power(cut);
    uint64_t at = at_of(rig.config.slots - 1, 0);
    uint8_t block[SH_SLOT_HEAD_BYTES];
    const struct sh_log_slot_head head = {.zone = rig_zone_id(1),
                                          .use = UINT64_C(0x1234567890abcdef),
                                          .file = 7,
                                          .owner = RIG_OWNER,
                                          .kind = SH_SLOT_ENTRIES,
                                          .incarnation = 1};
    sh_log_slot_put(&head, block);
    memcpy(cut->now + at, block, 20);
    memcpy(cut->now + at + 2048 + 24, block + 24, 40);
    cut->size = at + 4096;
    rig_open(&rig);
    assert_int_equal(status().slots_lost, 0);
    for (unsigned i = 0; i < ZONES_USED; i++)
        assert_int_equal(rig_load(&rig, i).err, SHOAL_OK);
}

/* --- A scrub that is asked for ------------------------------------------------------------------ */

/* Asks for a scrub, of all zones or of one. */
static void ask(uint64_t zone)
{
    uint64_t before = sh_replog_scrub_state(rig.log).number, number;
    assert_int_equal(sh_replog_scrub_begin(rig.log, zone, RATE, &number), SHOAL_OK);
    assert_int_equal(number, before + 1);
}

static struct sh_replog_scrub_state asked_end(void)
{
    for (unsigned i = 0; sh_replog_scrub_state(rig.log).is_running; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
    return sh_replog_scrub_state(rig.log);
}

/* The places that were found, a few at a time. */
static size_t places(struct sh_replog_place *places_out, size_t room)
{
    uint64_t cursor = 0;
    size_t count = 0;
    do {
        assert_true(count + 2 <= room);
        count += sh_replog_scrub_places(rig.log, &cursor, places_out + count, 2);
    } while (cursor);
    return count;
}

/* All places are found, of slots of which damage was told before, too; and nothing is told twice. The background's scrub reads next to nothing. */
static void test_asked(void **state)
{
    (void)state;
    struct sh_replog_place found[16];
    begin(1);
    write_some(1500);
    uint32_t slot = slot_of(1, SH_SLOT_ENTRIES), half = slot_of(0, SH_SLOT_ENTRIES);
    ask(0);
    struct sh_replog_scrub_state seen = asked_end();
    assert_true(seen.slots > 3 && seen.slots_done == seen.slots && !seen.slots_passed_over);
    assert_true(seen.bytes > (uint64_t)seen.slots * 4096);
    assert_int_equal(seen.places, 0);
    assert_int_equal(places(found, 16), 0);
    flip(at_of(slot, 5000));
    flip(at_of(slot, rig.log->slots.slots[slot].filled - 8192));
    flip(at_of(half, 20));
    for (unsigned again = 0; again < 2; again++) {
        ask(0);
        seen = asked_end();
        assert_int_equal(seen.places, 3);
        assert_int_equal(places(found, 16), 3);
        unsigned damaged = 0;
        for (unsigned i = 0; i < 3; i++) {
            bool is_half = found[i].slot == half;
            damaged += !is_half;
            assert_int_equal(found[i].harm, is_half ? SH_REPLOG_HARM_HALF : SH_REPLOG_HARM_DAMAGED);
            assert_true(is_half || found[i].slot == slot);
            assert_int_equal(found[i].zone, rig_zone_id(is_half ? 0 : 1));
            assert_int_equal(found[i].kind, SH_SLOT_ENTRIES);
            assert_false(found[i].is_gone);
            assert_true(found[i].offset >= at_of(found[i].slot, 0) &&
                        found[i].offset < at_of(found[i].slot + 1, 0));
        }
        assert_int_equal(damaged, 2);
        assert_int_equal(told.times, 1);
        assert_int_equal(status().damaged, 1);
    }
}

/* Of one zone only its slots are read; a zone that is not there is refused, and another scrub ends the one before. Without a scrub in the
 * background nothing more is read then. */
static void test_asked_of_a_zone(void **state)
{
    (void)state;
    uint64_t number;
    struct sh_replog_place found[16];
    begin(0);
    write_some(1500);
    assert_int_equal(sh_replog_scrub_state(rig.log).number, 0);
    flip(at_of(slot_of(1, SH_SLOT_ENTRIES), 5000));
    flip(at_of(slot_of(2, SH_SLOT_ENTRIES), 5000));
    assert_int_equal(sh_replog_scrub_begin(rig.log, rig_zone_id(7), RATE, &number), SHOAL_ENONAME);
    ask(0);
    rig_step(&rig, RIG_MS);
    ask(rig_zone_id(2));
    struct sh_replog_scrub_state seen = asked_end();
    assert_int_equal(seen.zone, rig_zone_id(2));
    assert_int_equal(seen.slots, rig.zones[2].zone->slots.count);
    assert_int_equal(places(found, 16), 1);
    assert_int_equal(found[0].zone, rig_zone_id(2));
    assert_int_equal(status().scrub_passes, 0);
    uint64_t bytes = status().scrub_bytes;
    for (unsigned i = 0; i < 100; i++)
        rig_step(&rig, 100 * RIG_MS);
    assert_int_equal(status().scrub_bytes, bytes);
}

/* While zones are written to: what is durable is read, and nothing is found. A slot that was given away since is said to be gone. */
static void test_asked_while_written(void **state)
{
    (void)state;
    struct sh_replog_place found[16];
    unsigned passes_over = 0;
    begin(0);
    write_some(1500);
    for (unsigned i = 0; i < 6000; i++) {
        if (!sh_replog_scrub_state(rig.log).is_running) {
            passes_over += i > 0;
            ask(i % 2 ? rig_zone_id(i % ZONES_USED) : 0);
        }
        append(i % ZONES_USED, i % 300, i, 20 + i % 900);
        rig_step(&rig, RIG_MS / 2);
    }
    assert_true(passes_over > 3);
    assert_int_equal(asked_end().places, 0);
    assert_int_equal(told.times, 0);
    rig_sync(&rig, ZONES_USED);
    uint32_t slot = slot_of(1, SH_SLOT_ENTRIES);
    flip(at_of(slot, 5000));
    ask(rig_zone_id(1));
    assert_true(asked_end().places > 0);
    assert_true(places(found, 16) > 0 && !found[0].is_gone);
    rig.log->slots.slots[slot].use++; /* as another use of it has */
    assert_true(places(found, 16) > 0 && found[0].is_gone);
    rig.log->slots.slots[slot].use--;
}

/* A slot to which something is on its way is read up to that. */
static void test_asked_of_what_is_durable(void **state)
{
    (void)state;
    begin(0);
    write_some(1500);
    uint32_t slot = slot_of(1, SH_SLOT_ENTRIES);
    uint32_t filled = rig.log->slots.slots[slot].filled;
    assert_int_equal(sh_replog_slot_durable(rig.zones[1].zone, slot), filled);
    rig.log->slots.slots[slot].pending++; /* of somebody else than the zone's writes */
    assert_int_equal(sh_replog_slot_durable(rig.zones[1].zone, slot), 0);
    ask(rig_zone_id(1));
    struct sh_replog_scrub_state seen = asked_end();
    assert_int_equal(seen.slots_passed_over, 1);
    assert_int_equal(seen.slots_done, seen.slots);
    rig.log->slots.slots[slot].pending--;
    /* The zone's last batch goes to a slot that has something, and is not durable there at once. */
    append(1, 1, 1, 600);
    assert_int_equal(sh_replog_batch_ready(rig.zones[1].zone->filling), SHOAL_OK);
    slot = rig.zones[1].zone->newest->slot;
    uint32_t durable = sh_replog_slot_durable(rig.zones[1].zone, slot);
    assert_true(durable < rig.log->slots.slots[slot].filled);
    assert_true(!durable || at_of(slot, durable) == rig.zones[1].zone->newest->offset);
    rig_sync(&rig, ZONES_USED);
}

/* However slow a scrub was asked to be, the background's does not wait long for it. */
static void test_asked_slowly(void **state)
{
    (void)state;
    uint64_t number;
    begin(RATE);
    write_some(1500);
    assert_int_equal(sh_replog_scrub_begin(rig.log, 0, 1, &number), SHOAL_OK);
    for (unsigned i = 0; sh_replog_scrub_state(rig.log).is_running; i++) {
        assert_true(i < 2000);
        rig_step(&rig, RIG_MS);
    }
    uint64_t until = status().scrub_passes + 1;
    flip(at_of(slot_of(1, SH_SLOT_ENTRIES), 5000));
    for (unsigned i = 0; status().scrub_passes < until; i++) {
        assert_true(i < 3000);
        rig_step(&rig, RIG_MS);
    }
    assert_int_equal(told.times, 1);
}

/* A crash may have torn the last write of an earlier process to a slot, until a load has read it: from then on it is damage if it can't be read. */
static void test_damage_since_a_load(void **state)
{
    (void)state;
    begin(0);
    write_some(1500);
    shut();
    cut_power(cut_of(rig.config.disk));
    rig.config.scrub_bytes = 256 * RATE;
    rig_open(&rig);
    for (unsigned i = 0; i < ZONES_USED; i++)
        assert_int_equal(rig_load(&rig, i).err, SHOAL_OK);
    passes(2);
    assert_int_equal(told.times, 0);
    uint32_t slot = sh_replog_zone_find(rig.log, rig_zone_id(1))->slots.first;
    uint32_t last = rig.log->slots.slots[slot].filled;
    assert_true(rig.log->slots.slots[slot].is_found && last < rig.config.slot_bytes);
    while (!cut_of(rig.config.disk)->now[at_of(slot, last - 1)])
        last--; /* padding */
    flip(at_of(slot, last - 1));
    passes(2);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.slot, slot);
}

/* The cleaner tells of damage that it finds, too, and gives nothing away. */
static void test_cleaner_tells(void **state)
{
    (void)state;
    begin(0);
    write_some(1500);
    uint32_t slot = slot_of(1, SH_SLOT_ENTRIES);
    uint64_t use = rig.log->slots.slots[slot].use;
    flip(at_of(slot, 5000));
    for (unsigned i = 0; !told.times; i++) {
        assert_true(i < 20000);
        append(1, i % 300, i, 900);
        rig_step(&rig, RIG_MS); /* so that it is not full before that */
    }
    assert_ptr_equal(told.zone, rig.zones[1].zone);
    assert_int_equal(told.slot, slot);
    assert_true(told.offset >= at_of(slot, 4096) && told.offset <= at_of(slot, 5000));
    assert_int_equal(sh_replog_zone_damage(told.zone).slots, 1);
    for (unsigned i = 0; i < 3000; i++)
        rig_step(&rig, RIG_MS);
    assert_int_equal(told.times, 1);
    assert_true(rig.log->slots.slots[slot].kind && rig.log->slots.slots[slot].use == use);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_of_the_last, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_of_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked_of_a_zone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked_while_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked_of_what_is_durable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked_slowly, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_since_a_load, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cleaner_tells, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
