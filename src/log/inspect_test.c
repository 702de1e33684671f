/* A look at a log's file: it says what a start and a load would find, and where what is damaged lies. */
#include "log/inspect.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "log/replog_cut_test.h"

#define NAME "log"
#define FOLDER_BYTES 128

/* --- A log in a real folder ---------------------------------------------------------------------- */

static char folder[FOLDER_BYTES];

static void path_of(char path_out[FOLDER_BYTES + 16])
{
    snprintf(path_out, FOLDER_BYTES + 16, "%s/%s", folder, NAME);
}

/* A real disk takes its time. */
static void disk_wait(struct rig *of)
{
    if (of->log->in_flight)
        (void)sh_disk_poll(of->config.disk, true);
}

static int setup_folder(void **state)
{
    (void)state;
    struct sh_disk *disk;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/shoal-inspect-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder) || sh_real_disk_create(folder, false, &disk))
        return -1;
    memset(&rig, 0, sizeof rig);
    rig.now_ns = 1000 * RIG_MS;
    rig_config(&rig, disk);
    rig.step_begin = disk_wait;
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[FOLDER_BYTES + 16];
    sh_replog_close(rig.log);
    rig.log = NULL;
    rig.config.disk->ops->destroy(rig.config.disk);
    path_of(path);
    unlink(path);
    return rmdir(folder);
}

static void stop(void)
{
    sh_replog_close(rig.log);
    rig.log = NULL;
}

static uint8_t byte_at(uint64_t offset)
{
    char path[FOLDER_BYTES + 16];
    uint8_t byte;
    path_of(path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(file, &byte, 1, (off_t)offset), 1);
    close(file);
    return byte;
}

static void byte_set(uint64_t offset, uint8_t byte)
{
    char path[FOLDER_BYTES + 16];
    path_of(path);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(file, &byte, 1, (off_t)offset), 1);
    close(file);
}

static void flip(uint64_t offset)
{
    byte_set(offset, (uint8_t)(byte_at(offset) ^ 0x10));
}

/* --- Told by a look -------------------------------------------------------------------------- */

#define SLOTS_TOLD 400
#define PLACES_TOLD 100

static struct {
    struct sh_inspect_slot slots[SLOTS_TOLD];
    unsigned slots_count;
    struct sh_inspect_place places[PLACES_TOLD];
    unsigned places_count;
} told;

static void on_slot(void *arg, const struct sh_inspect_slot *slot)
{
    (void)arg;
    assert_true(told.slots_count < SLOTS_TOLD);
    assert_true(!told.slots_count || told.slots[told.slots_count - 1].slot < slot->slot);
    told.slots[told.slots_count++] = *slot;
}

static void on_harm(void *arg, const struct sh_inspect_place *place)
{
    (void)arg;
    assert_true(told.places_count < PLACES_TOLD);
    told.places[told.places_count++] = *place;
}

static enum shoal_err read_zone(struct sh_disk *disk, uint64_t zone,
                                struct sh_inspect **inspect_out)
{
    const struct sh_inspect_calls calls = {.slot = on_slot, .harm = on_harm};
    memset(&told, 0, sizeof told);
    assert_int_equal(sh_inspect_open(disk, NAME, inspect_out), SHOAL_OK);
    return sh_inspect_read(*inspect_out, zone, &calls);
}

/* Looks at the folder, with a disk of its own. */
static struct sh_inspect *look(struct sh_disk **disk_out)
{
    struct sh_inspect *inspect;
    assert_int_equal(sh_real_disk_look(folder, disk_out), SHOAL_OK);
    assert_int_equal(read_zone(*disk_out, 0, &inspect), SHOAL_OK);
    return inspect;
}

static void look_end(struct sh_disk *disk, struct sh_inspect *inspect)
{
    sh_inspect_close(inspect);
    disk->ops->destroy(disk);
}

/* Counts of a dump of a zone, whose entries are compared with the writes of the rig. */
struct dumped {
    const struct rig_zone *zone;
    unsigned current, superseded, voids;
    bool is_there[RIG_CHUNKS];
    unsigned most; /* after so many it is enough */
};

static bool on_entry(void *arg, const struct sh_inspect_entry *found)
{
    struct dumped *dumped = arg;
    const struct sh_replog_entry *entry = &found->entry;
    const struct rig_chunk *chunk = &dumped->zone->chunks[entry->local_id - 1];
    dumped->superseded += found->standing == SH_INSPECT_SUPERSEDED;
    dumped->voids += found->standing == SH_INSPECT_VOID;
    if (found->standing == SH_INSPECT_CURRENT) {
        dumped->current++;
        dumped->is_there[entry->local_id - 1] = true;
        assert_int_equal(entry->is_removal, chunk->is_removal);
        assert_true(entry->is_removal || sh_load32(entry->payload.at) == chunk->stamp);
    }
    return --dumped->most > 0;
}

/* The zone's entries are those that the rig has written last, and older ones. */
static struct dumped zone_is_told(struct sh_inspect *inspect, unsigned number)
{
    struct dumped dumped = {.zone = &rig.zones[number], .most = UINT32_MAX};
    assert_int_equal(sh_inspect_dump(inspect, rig_zone_id(number), 0, on_entry, &dumped), SHOAL_OK);
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        const struct rig_chunk *chunk = &rig.zones[number].chunks[i];
        /* The mark of a removal may have been dropped. */
        bool may_lack = !chunk->is_there || chunk->is_removal;
        assert_true(dumped.is_there[i] ? chunk->is_there : may_lack);
    }
    return dumped;
}

/* --- Tests --------------------------------------------------------------------------------------- */

/* Random writes of two zones over several lives, with removals, pieces and cleaning: a look says what a load finds. */
static void test_as_a_load_finds(void **state)
{
    (void)state;
    uint64_t draws = test_seed(11);
    unsigned superseded = 0, survivors = 0, tuples = 0, lives = 0;
    rig.config.versions_max = 64;
    uint64_t ends[2] = {0}, begun[2];
    for (unsigned life = 1; life <= 4; life++) {
        rig_open(&rig);
        for (unsigned z = 0; z < 2; z++) {
            if (life > 1)
                assert_int_equal(rig_load(&rig, z).end, ends[z]);
            zone_add_config(z, rig_zone_config(z, life, ends[z], 12 * 65536));
            begun[z] = ends[z];
        }
        for (unsigned i = 0; i < (life % 2 ? 2500u : 100u); i++) {
            unsigned z = (unsigned)(test_draw(&draws) % 2), chunk = test_draw(&draws) % 200;
            size_t size = chunk < 4 ? 20000 + chunk * 5000 : 4 + test_draw(&draws) % 400;
            bool is_removal = test_draw(&draws) % 10 == 0;
            assert_int_equal(
                rig_append(&rig, z, chunk, (uint32_t)(life * 10000 + i), size, is_removal),
                SHOAL_OK);
        }
        rig_sync(&rig, 2);
        uint32_t used = status().slots - status().slots_free;
        for (unsigned z = 0; z < 2; z++)
            ends[z] = sh_replog_next(rig.zones[z].zone);
        bool is_cleaning = rig.log->clean;
        stop();
        struct sh_disk *disk;
        struct sh_inspect *inspect = look(&disk);
        const struct sh_inspect_seen *seen = sh_inspect_seen(inspect);
        assert_int_equal(seen->damaged, 0);
        assert_true(is_cleaning || seen->slots_used == used);
        assert_int_equal(told.slots_count, seen->slots_used);
        assert_int_equal(seen->file.node, RIG_NODE);
        assert_int_equal(seen->file.cluster, RIG_CLUSTER);
        assert_null(sh_inspect_zone_at(inspect, 2));
        for (unsigned z = 0; z < 2; z++) {
            const struct sh_inspect_zone *zone = sh_inspect_zone_find(inspect, rig_zone_id(z));
            assert_ptr_equal(zone, sh_inspect_zone_at(inspect, z));
            assert_int_equal(zone->whole, ends[z]);
            assert_int_equal(zone->incarnation, life);
            assert_int_equal(zone->lives[zone->lives_count - 1].first, begun[z]);
            assert_int_equal(zone->last, ends[z] - 1);
            survivors += zone->slots[SH_SLOT_SURVIVORS];
            tuples += (unsigned)zone->tuples;
            lives += zone->lives_count;
            superseded += zone_is_told(inspect, z).superseded;
        }
        look_end(disk, inspect);
    }
    print_message("%u superseded, %u slots of survivors, %u tuples, %u lives\n", superseded,
                  survivors, tuples, lives);
    assert_true(superseded > 100 && survivors > 4 && tuples > 100 && lives > 8);
}

/* Two zones in slots, each batch synced, and more of them in the primary log. */
static void write_synced(void)
{
    rig_open(&rig);
    for (unsigned z = 0; z < 2; z++)
        rig_zone_add(&rig, z, 1, 0);
    for (unsigned i = 0; i < 200; i++) {
        append(i % 2, i, i, 1000);
        if (i % 40 == 39)
            rig_sync(&rig, 2);
    }
    for (unsigned i = 0; i < 300; i++)
        rig_step(&rig, RIG_MS);
    for (unsigned i = 0; i < 5; i++) {
        append(0, i, 1000 + i, 100);
        rig_sync(&rig, 2);
    }
    stop();
}

static uint64_t slot_begin(uint32_t slot)
{
    return slots_at() + (uint64_t)slot * rig.config.slot_bytes;
}

/* Bits that flip anywhere in what was written to a slot, but for padding, are found there; behind the last write's beginning they may
 * pass for torn. */
static void test_flipped(void **state)
{
    (void)state;
    uint64_t draws = test_seed(12);
    struct sh_disk *disk;
    write_synced();
    struct sh_inspect *inspect = look(&disk);
    uint64_t entries = sh_inspect_seen(inspect)->entries;
    unsigned count = told.slots_count, damaged = 0, heads = 0, early = 0;
    static struct sh_inspect_slot slots[SLOTS_TOLD];
    memcpy(slots, told.slots, sizeof slots);
    assert_int_equal(sh_inspect_seen(inspect)->torn, 0);
    look_end(disk, inspect);
    for (unsigned i = 0; i < 200; i++) {
        const struct sh_inspect_slot *slot = &slots[test_draw(&draws) % count];
        uint64_t at = i % 5 ? test_draw(&draws) % slot->filled : test_draw(&draws) % 64;
        if (at >= 64 && at < SH_SLOT_HEAD_BYTES)
            continue; /* zeros that nobody reads */
        flip(slot_begin(slot->slot) + at);
        inspect = look(&disk);
        const struct sh_inspect_seen *seen = sh_inspect_seen(inspect);
        if (at < 64) {
            assert_int_equal(seen->damaged, 1);
            assert_int_equal(told.places[0].harm, SH_INSPECT_HEAD);
            assert_int_equal(told.places[0].slot, slot->slot);
            heads++;
        } else if (seen->damaged + seen->torn) {
            const struct sh_inspect_place *place = &told.places[0];
            /* Of the last span of a slot another one may tell that it had been on the disk. */
            assert_int_equal(told.places_count, 1 + (seen->torn && seen->damaged));
            /* Without its head nothing says where that span was. */
            bool is_head = at % SH_SLOT_HEAD_BYTES < SH_SPAN_HEAD_BYTES;
            assert_true(place->slot == slot->slot ||
                        (is_head && place->slot == SH_INSPECT_UNKNOWN));
            assert_int_equal(place->zone, slot->head.zone);
            assert_true(place->offset <= slot_begin(slot->slot) + at);
            assert_true(seen->entries < entries || slot->head.kind == SH_SLOT_VERSIONS);
            assert_int_equal(sh_inspect_zone_find(inspect, place->zone)->damaged, seen->damaged);
            damaged += seen->damaged;
            /* Later spans say that the first block was on the disk. */
            bool is_early = slot->head.kind == SH_SLOT_ENTRIES && slot->spans > 2 &&
                            at < 2 * SH_SLOT_HEAD_BYTES;
            early += is_early;
            assert_true(!is_early || place->harm == SH_INSPECT_DAMAGED);
        } else {
            /* Padding; or the head of the last span, behind which nothing tells that it was there. */
            bool is_padding = byte_at(slot_begin(slot->slot) + at) == 0x10;
            assert_true(is_padding || seen->entries < entries);
        }
        look_end(disk, inspect);
        flip(slot_begin(slot->slot) + at);
    }
    assert_true(damaged > 30 && heads > 20 && early > 0);
}

/* In the primary log what lies before a later pack of the lap is damage; the last pack may be torn. */
static void test_flipped_in_primary(void **state)
{
    (void)state;
    struct sh_disk *disk;
    write_synced();
    struct sh_inspect *inspect = look(&disk);
    const struct sh_inspect_seen *seen = sh_inspect_seen(inspect);
    assert_true(seen->primary_spans >= 5 && seen->lap >= 2);
    uint64_t whole = sh_inspect_zone_find(inspect, rig_zone_id(0))->whole;
    look_end(disk, inspect);
    /* The last blocks that begin a span, from the end. */
    uint64_t places[2];
    unsigned found = 0;
    for (uint64_t at = slots_at() - 4096; at > 0 && found < 2; at -= 4096) {
        uint8_t size = byte_at(at + 32);
        if (byte_at(at + 4) == 1 && size)
            places[found++] = at;
    }
    assert_int_equal(found, 2);
    for (unsigned i = 0; i < 2; i++) {
        flip(places[i] + SH_SPAN_HEAD_BYTES + 20);
        inspect = look(&disk);
        seen = sh_inspect_seen(inspect);
        assert_int_equal(told.places_count, 1);
        assert_int_equal(told.places[0].slot, SH_INSPECT_PRIMARY);
        assert_int_equal(told.places[0].offset, places[i]);
        assert_int_equal(told.places[0].harm, i ? SH_INSPECT_DAMAGED : SH_INSPECT_TORN);
        assert_int_equal(told.places[0].zone, rig_zone_id(0));
        assert_int_equal(sh_inspect_zone_find(inspect, rig_zone_id(0))->whole,
                         i ? whole : whole - 1);
        look_end(disk, inspect);
        flip(places[i] + SH_SPAN_HEAD_BYTES + 20);
    }
}

/* Entries that a start has copied to slots are not told a second time, though the primary log has them still. */
static void test_started(void **state)
{
    (void)state;
    struct sh_disk *disk;
    write_synced();
    struct sh_inspect *inspect = look(&disk);
    uint32_t lap = sh_inspect_seen(inspect)->lap;
    uint64_t whole = sh_inspect_zone_find(inspect, rig_zone_id(0))->whole;
    look_end(disk, inspect);
    rig_open(&rig);
    stop();
    inspect = look(&disk);
    assert_true(sh_inspect_seen(inspect)->lap > lap);
    assert_int_equal(sh_inspect_seen(inspect)->primary_spans, 0);
    assert_int_equal(sh_inspect_zone_find(inspect, rig_zone_id(0))->whole, whole);
    (void)zone_is_told(inspect, 0);
    look_end(disk, inspect);
}

/* A dump of one chunk, and one that ends early; of a zone that is not there. */
static void test_dump(void **state)
{
    (void)state;
    struct sh_disk *disk;
    write_synced();
    struct sh_inspect *inspect = look(&disk);
    struct dumped dumped = zone_is_told(inspect, 0);
    /* The even chunks, and two more that were written at the end. A chunk that is both in a slot and in the primary log is told twice. */
    unsigned there = 0;
    for (unsigned i = 0; i < RIG_CHUNKS; i++)
        there += dumped.is_there[i];
    assert_int_equal(there, 102);
    assert_true(dumped.current >= 102 && dumped.superseded >= 3 && !dumped.voids);
    struct dumped one = {.zone = &rig.zones[0], .most = UINT32_MAX};
    uint64_t chunk = (uint64_t)RIG_OWNER << 48 | 3;
    assert_int_equal(sh_inspect_dump(inspect, rig_zone_id(0), chunk, on_entry, &one), SHOAL_OK);
    assert_true(one.current >= 1 && one.superseded >= 1);
    assert_true(one.current + one.superseded <= 4);
    struct dumped few = {.zone = &rig.zones[0], .most = 7};
    assert_int_equal(sh_inspect_dump(inspect, rig_zone_id(0), 0, on_entry, &few), SHOAL_OK);
    assert_int_equal(few.current + few.superseded, 7);
    assert_int_equal(sh_inspect_dump(inspect, rig_zone_id(5), 0, on_entry, &few), SHOAL_ENONAME);
    look_end(disk, inspect);
    /* Of one zone alone. */
    assert_int_equal(sh_real_disk_look(folder, &disk), SHOAL_OK);
    assert_int_equal(read_zone(disk, rig_zone_id(1), &inspect), SHOAL_OK);
    for (unsigned i = 0; i < told.slots_count; i++)
        assert_int_equal(told.slots[i].head.zone, rig_zone_id(1));
    assert_null(sh_inspect_zone_find(inspect, rig_zone_id(0)));
    (void)zone_is_told(inspect, 1);
    look_end(disk, inspect);
}

static struct sh_inspect_entry kinds[16];
static unsigned kinds_count;

static bool on_kind(void *arg, const struct sh_inspect_entry *found)
{
    (void)arg;
    assert_true(kinds_count < 16);
    kinds[kinds_count++] = *found;
    return true;
}

/* A pair has one number, zeros have no bytes, and a piece says where it belongs; in a slot and in the primary log alike. */
static void test_kinds(void **state)
{
    (void)state;
    struct sh_disk *disk;
    for (unsigned round = 0; round < 2; round++) {
        rig.config.primary_blocks = round ? 256 : 0;
        rig.config.batch_bytes = 40000;
        rig_open(&rig);
        rig_zone_add(&rig, 0, 1, 0);
        size_t large = sh_replog_piece_max(rig.log) + 1000;
        assert_int_equal(rig_append(&rig, 0, 4, 9, large, 0), SHOAL_OK);
        rig.zeros_one_in = 1;
        assert_int_equal(rig_append(&rig, 0, 5, 9, 3000, 0), SHOAL_OK);
        rig.zeros_one_in = 0;
        assert_int_equal(rig_append_with(&rig, 0, 6, 9, 20, RIG_OF_ZONE, 30), SHOAL_OK);
        rig_sync(&rig, 1);
        stop();
        struct sh_inspect *inspect = look(&disk);
        const struct sh_inspect_zone *zone = sh_inspect_zone_find(inspect, rig_zone_id(0));
        assert_int_equal(zone->whole, 3);
        assert_int_equal(zone->last, 2);
        assert_int_equal(zone->entries, 5);
        assert_int_equal(zone->payload_bytes, large + 50);
        kinds_count = 0;
        assert_int_equal(sh_inspect_dump(inspect, rig_zone_id(0), 0, on_kind, NULL), SHOAL_OK);
        assert_int_equal(kinds_count, 5);
        static const uint64_t sequences[] = {0, 0, 1, 2, 2};
        for (unsigned i = 0; i < 5; i++) {
            const struct sh_replog_entry *entry = &kinds[i].entry;
            assert_int_equal(kinds[i].sequence, sequences[i]);
            assert_int_equal(kinds[i].standing, SH_INSPECT_CURRENT);
            assert_int_equal(kinds[i].slot == SH_INSPECT_PRIMARY, round);
            assert_int_equal(entry->is_with_next, i == 3);
            assert_int_equal(entry->total, i < 2 ? large : 0);
            assert_int_equal(sh_replog_entry_stored(entry), i == 2 ? 0 : entry->payload.size);
        }
        assert_int_equal(kinds[1].entry.offset, kinds[0].entry.payload.size);
        assert_int_equal(kinds[2].entry.payload.size, 3000);
        look_end(disk, inspect);
        (void)remove_folder(NULL);
        (void)setup_folder(NULL);
    }
}

/* Where packs are synced later, a crash may leave any that no sync has covered torn; what a span says had been on the disk is damage. */
static void test_torn_before_sync(void **state)
{
    (void)state;
    struct sh_disk *disk;
    rig.config.syncs_later = true;
    rig.config.linger_ns = 1000 * 1000 * RIG_MS;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    uint64_t places[6];
    for (unsigned i = 0; i < 6; i++) {
        places[i] = sh_log_primary_at() + rig.log->primary_at * 4096;
        append(0, i, i, 100);
        if (i == 2)
            rig_sync(&rig, 1);
        sh_replog_hand(rig.zones[0].zone);
        while (sh_replog_handed(rig.zones[0].zone) <= i)
            rig_step(&rig, 0);
    }
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), 3);
    stop();
    for (unsigned i = 0; i < 6; i++) {
        flip(places[i] + SH_SPAN_HEAD_BYTES + 20);
        struct sh_inspect *inspect = look(&disk);
        assert_int_equal(told.places_count, 1);
        assert_int_equal(told.places[0].offset, places[i]);
        assert_int_equal(told.places[0].harm, i < 3 ? SH_INSPECT_DAMAGED : SH_INSPECT_TORN);
        look_end(disk, inspect);
        flip(places[i] + SH_SPAN_HEAD_BYTES + 20);
    }
}

/* Of a zone that was dropped nothing is told, though the primary log has spans of it. */
static void test_dropped(void **state)
{
    (void)state;
    struct sh_disk *disk;
    rig_open(&rig);
    for (unsigned z = 0; z < 2; z++) {
        rig_zone_add(&rig, z, 1, 0);
        append(z, 1, 1, 100);
    }
    rig_sync(&rig, 2);
    assert_int_equal(sh_replog_zone_drop(rig.zones[0].zone, NULL, NULL), SHOAL_OK);
    while (sh_replog_zone_find(rig.log, rig_zone_id(0)))
        rig_step(&rig, RIG_MS);
    stop();
    struct sh_inspect *inspect = look(&disk);
    assert_null(sh_inspect_zone_find(inspect, rig_zone_id(0)));
    assert_non_null(sh_inspect_zone_find(inspect, rig_zone_id(1)));
    assert_int_equal(sh_inspect_seen(inspect)->entries, 1);
    look_end(disk, inspect);
}

/* A file that is no log is refused, and not touched. */
static void test_refused(void **state)
{
    (void)state;
    struct sh_disk *disk;
    struct sh_inspect *inspect = NULL;
    assert_int_equal(sh_real_disk_look(folder, &disk), SHOAL_OK);
    assert_int_equal(sh_inspect_open(disk, NAME, &inspect), SHOAL_ENONAME);
    assert_int_equal(sh_inspect_open(disk, NAME, &inspect), SHOAL_ENONAME); /* it made none */
    rig_open(&rig);
    stop();
    flip(20);
    assert_int_equal(sh_inspect_open(disk, NAME, &inspect), SHOAL_ECORRUPT);
    flip(20);
    char path[FOLDER_BYTES + 16];
    path_of(path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(sh_inspect_open(disk, NAME, &inspect), SHOAL_EPARSE);
    assert_null(inspect);
    disk->ops->destroy(disk);
}

/* A sector that can't be read: the rest of the slot, and of the others, is told. */
static void test_sector(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    struct sh_inspect *inspect;
    write_synced();
    assert_int_equal(read_zone(rig.config.disk, 0, &inspect), SHOAL_OK);
    uint64_t entries = sh_inspect_seen(inspect)->entries;
    sh_inspect_close(inspect);
    cut->fails_at = slot_begin(0) + 20000;
    assert_int_equal(read_zone(rig.config.disk, 0, &inspect), SHOAL_OK);
    const struct sh_inspect_seen *seen = sh_inspect_seen(inspect);
    assert_true(told.slots[0].is_unreadable && !told.slots[1].is_unreadable);
    assert_int_equal(told.places[0].harm, SH_INSPECT_UNREADABLE);
    assert_int_equal(told.places[0].offset, slot_begin(0) + 16384);
    assert_true(seen->entries < entries && seen->entries > entries - 60);
    sh_inspect_close(inspect);
    /* The heads of slots, and the primary log. */
    cut->fails_at = slot_begin(1) + 1;
    assert_int_equal(read_zone(rig.config.disk, 0, &inspect), SHOAL_EIO);
    assert_true(sh_inspect_seen(inspect)->entries > 100);
    sh_inspect_close(inspect);
    cut->fails_at = sh_log_primary_at() + 1;
    assert_int_equal(read_zone(rig.config.disk, 0, &inspect), SHOAL_EIO);
    assert_int_equal(told.places[0].slot, SH_INSPECT_PRIMARY);
    sh_inspect_close(inspect);
    cut->fails_at = 0;
}

/* Operations that a test holds back: writes to slots. */
/* Entries behind a gap are void, as a load finds. */
static void test_gap(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    struct sh_inspect *inspect;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 5; i++)
        append(0, i, i, 100);
    rig_sync(&rig, 1);
    cut->holds = holds_slots;
    for (unsigned i = 10; i < 60 && !cut->count; i++) {
        append(0, i, i, 500);
        rig_step(&rig, 0);
    }
    append(0, 2, 2000, 100);
    sh_replog_sync(rig.zones[0].zone);
    for (unsigned i = 0; i < 50; i++)
        rig_step(&rig, RIG_MS);
    shut();
    cut_power(cut);
    assert_int_equal(read_zone(rig.config.disk, 0, &inspect), SHOAL_OK);
    assert_int_equal(sh_inspect_zone_at(inspect, 0)->whole, 5);
    rig.zones[0].chunks[2].stamp = 2;
    for (unsigned i = 10; i < 60; i++)
        rig.zones[0].chunks[i].is_there = false;
    struct dumped dumped = zone_is_told(inspect, 0);
    assert_int_equal(dumped.voids, 1);
    assert_int_equal(dumped.current, 5);
    sh_inspect_close(inspect);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_as_a_load_finds, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_flipped, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_flipped_in_primary, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_started, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_dump, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_kinds, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_torn_before_sync, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_dropped, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refused, setup_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_sector, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gap, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
