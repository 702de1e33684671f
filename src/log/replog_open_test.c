/* What an open and a load find after power cuts and kills at chosen places, damage, and of files that are not what they say. Each was a
 * fault once. */
#include "log/replog_cut_test.h"

#include "base/hash.h"

/* --- A write of a former life that survived beyond a gap ----------------------------------------- */

/* Appends chunks from 10 on, until a batch is on its way to a slot, which is held back. */
static void fill_a_slot(const struct cut *cut)
{
    for (unsigned i = 10; i < 60 && !cut->count; i++) {
        append(0, i, i, 500);
        rig_step(&rig, 0);
    }
    assert_true(cut->count > 0);
}

/* Appends a chunk, which the primary log gets; the five writes before the gap stay all that is durable. Then the power is cut, and the
 * log opened again. */
static void write_beyond_the_gap(struct cut *cut, unsigned chunk)
{
    append(0, chunk, 2000, 100);
    sh_replog_sync(rig.zones[0].zone);
    for (unsigned i = 0; i < 50; i++)
        rig_step(&rig, RIG_MS);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), 5);
    shut();
    cut_power(cut);
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).end, 5);
}

static void test_gap(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 5; i++)
        append(0, i, i, 100);
    rig_sync(&rig, 1);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), 5);
    /* Sequences 5 to n - 1 go to a slot, whose write is not over; n goes to the primary log and is. */
    cut->holds = holds_slots;
    append(0, 100, 1000, 100); /* chunk 100, the older write: sequence 5 */
    fill_a_slot(cut);
    uint64_t n = sh_replog_next(rig.zones[0].zone);
    write_beyond_the_gap(cut, 100); /* the newer write: sequence n */
    /* Second life: the owner sends again what is missing, from 5 on; before it comes to n there is another power cut. */
    rig_zone_add(&rig, 0, 1, 5);
    append(0, 100, 1000, 100);
    for (unsigned i = 10; sh_replog_next(rig.zones[0].zone) < n; i++)
        append(0, i, i, 500);
    rig_sync(&rig, 1);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), n);
    shut();
    cut_power(cut);
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, 0);
    static struct rig found;
    rig_read_all(rig.config.disk, &found);
    const struct rig_chunk *chunk = &found.zones[0].chunks[100];
    /* Either sequence n is not said to be there, or it is what counts. */
    assert_true(loaded.end <= n || chunk->stamp == 2000);
}

/* What was written beyond a gap, and did not count when the zone was loaded, neither survives a cleaning nor supersedes anything. */
static void test_void_is_forgotten(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    for (unsigned i = 98; i < 103; i++)
        append(0, i, 1, 100);
    rig_sync(&rig, 1);
    cut->holds = holds_slots;
    fill_a_slot(cut);
    write_beyond_the_gap(cut, 100);
    zone_add_config(0, rig_zone_config(0, 1, 5, 10 * 65536));
    for (unsigned i = 0; i < 5000; i++)
        append(0, 500 + i % 20, i, 1000);
    rig_sync(&rig, 1);
    assert_true(status().slots_cleaned > 20);
    static struct rig found;
    rig_read_all(rig.config.disk, &found);
    assert_true(found.zones[0].chunks[100].is_there);
    assert_int_equal(found.zones[0].chunks[100].stamp, 1);
}

/* The first pieces of a chunk went to a slot and are lost, the last one to the primary log: the chunk is not there, nor is what came
 * behind it. */
static void test_pieces_are_missing(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig.config.batch_bytes = 32000; /* two pieces */
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 4; i++)
        append(0, i, i, 100);
    rig_sync(&rig, 1);
    cut->holds = holds_slots;
    for (unsigned piece = 0; piece < 3; piece++) {
        const struct sh_replog_write write = rig_write(&rig, 9, 9, 48000, piece);
        assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_OK);
        rig_step(&rig, 0);
        if (piece == 1)
            assert_true(cut->count > 0);
    }
    append(0, 5, 5, 100);
    sh_replog_sync(rig.zones[0].zone);
    uint64_t packs = status().primary_writes;
    for (unsigned i = 0; i < 50; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().primary_writes > packs);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), 4);
    shut();
    cut_power(cut);
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).end, 4);
}

static void open_after_a_cut(void)
{
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
}

static void steps(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        rig_step(&rig, RIG_MS);
}

/* A life of which nothing is left but what heads of spans say is not given again. */
static void test_life_is_not_used_twice(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    for (unsigned i = 0; i < 150; i++)
        append(0, i, 1, 800);
    rig_sync(&rig, 1);
    uint64_t end = sh_replog_durable(rig.zones[0].zone);
    open_after_a_cut();
    assert_int_equal(rig_load(&rig, 0).end, end);
    zone_add_config(0, rig_zone_config(0, 1, end, 10 * 65536));
    /* Life 2 has only what lies behind a gap. */
    cut->holds = holds_slots;
    fill_a_slot(cut);
    append(0, 100, 2000, 100);
    sh_replog_sync(rig.zones[0].zone);
    steps(50);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), end);
    open_after_a_cut();
    /* Life 3 cleans, and writes nothing. */
    assert_int_equal(rig_load(&rig, 0).end, end);
    zone_add_config(0, rig_zone_config(0, 1, end, 0));
    assert_int_equal(rig.zones[0].zone->life, 3);
    steps(5000);
    assert_true(status().slots_cleaned > 0);
    open_after_a_cut();
    assert_int_equal(rig_load(&rig, 0).end, end);
    zone_add_config(0, rig_zone_config(0, 1, end, 10 * 65536));
    assert_int_equal(rig.zones[0].zone->life, 4);
    for (unsigned i = 200; i < 220; i++)
        append(0, i, 5, 100);
    rig_sync(&rig, 1);
    open_after_a_cut();
    assert_int_equal(rig_load(&rig, 0).end, end + 20);
}

static uint64_t held_at;

static bool holds_one(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind == SH_DISK_WRITE && op->offset == held_at;
}

/* Life 2 of zone 0 leaves writes behind a gap, in a slot of a high number; returns up to where all is durable. *void_out: the number of
 * one of them, of chunk 100. Zone 1 gives low slots away. */
static uint64_t leave_a_void(struct cut *cut, uint64_t *void_out)
{
    assert_int_equal(rig_load(&rig, 0).end, 5);
    uint64_t others = rig_load(&rig, 1).end;
    struct sh_replog_zone **zone = &rig.zones[0].zone;
    unsigned i = 10;
    zone_add_config(0, rig_zone_config(0, 1, 5, 10 * 65536));
    while ((*zone)->slots.count < 2)
        append(0, i, i, 500), i++;
    rig_sync(&rig, 1);
    uint64_t durable = sh_replog_durable(*zone);
    const struct sh_log_slot *slot = &rig.log->slots.slots[(*zone)->slots.first];
    steps(300);
    held_at = slots_at() + (uint64_t)(*zone)->slots.first * 65536 + slot->filled;
    cut->holds = holds_one;
    while (!cut->held_seen) {
        append(0, i, i, 500), i++;
        rig_step(&rig, 0);
    }
    *void_out = sh_replog_next(*zone);
    append(0, 100, 2000, 100);
    for (uint32_t filled = slot->filled; slot->filled == filled && (*zone)->slots.count == 2; i++) {
        append(0, i, i, 500);
        rig_step(&rig, 0);
    }
    zone_add_config(1, rig_zone_config(1, 1, others, 0));
    steps(3000);
    assert_int_equal(sh_replog_durable(*zone), durable);
    return durable;
}

/* What did not count in a life does not count when all slots of that life have been given away. */
static void test_void_stays_void(void **state)
{
    (void)state;
    static struct rig found;
    rig_open(&rig);
    zone_add_config(1, rig_zone_config(1, 1, 0, 20 * 65536));
    for (unsigned i = 0; i < 500; i++)
        append(1, i % 10, i, 1000);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    for (unsigned i = 98; i < 103; i++)
        append(0, i, 1, 100);
    rig_sync(&rig, 2);
    open_after_a_cut();
    uint64_t number, durable = leave_a_void(cut_of(rig.config.disk), &number);
    open_after_a_cut();
    /* Life 3 gives its numbers again. */
    assert_int_equal(rig_load(&rig, 0).end, durable);
    zone_add_config(0, rig_zone_config(0, 1, durable, 10 * 65536));
    for (unsigned i = 200; sh_replog_next(rig.zones[0].zone) < number + 60; i++)
        append(0, i, 7, 500);
    rig_sync(&rig, 1);
    open_after_a_cut();
    open_after_a_cut();
    uint64_t end = rig_load(&rig, 0).end;
    /* Life 4 gives the slots of life 3 away, and a life 5 cleans the others. */
    for (unsigned life = 4; life <= 5; life++) {
        zone_add_config(0, rig_zone_config(0, 1, end, 0));
        for (unsigned i = 0; i < 3000 && (life == 5 || !status().slots_cleaned); i++)
            rig_step(&rig, RIG_MS);
        assert_true(status().slots_cleaned > 0);
        open_after_a_cut();
        assert_int_equal(rig_load(&rig, 0).end, end);
        rig_read_all(rig.config.disk, &found);
        assert_int_equal(found.zones[0].chunks[100].stamp, 1);
    }
}

/* --- Epochs -------------------------------------------------------------------------------------- */

static bool holds_writes(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind != SH_DISK_READ;
}

/* The power is cut, and of the sectors that were written since `before` some are left. */
static void open_with_some(struct cut *cut, const uint8_t *before, unsigned left)
{
    shut();
    for (size_t at = 0; at < cut->room; at += 512) {
        bool is_of_a_slot = at >= slots_at() && (at - slots_at()) % 65536 >= SH_SLOT_HEAD_BYTES;
        bool is_left = left == 1 ? is_of_a_slot : left > 1 && at / 512 % 2 == left % 2;
        memcpy(cut->stable + at, (is_left ? cut->now : before) + at, 512);
    }
    cut->stable_size = cut->size;
    cut_power(cut);
    rig_open(&rig);
}

/* Life 2 writes a chunk often, in epoch 2, of which the disk keeps nothing (left 0), only what no slot's head leads to (1), or every other sector (2, 3).
 * Life 3 writes it once, perhaps in epoch 2 again. That counts, now and when the slots of life 2 are used. */
static void epoch_used_twice(unsigned left)
{
    struct cut *cut = cut_of(rig.config.disk);
    uint8_t *before = malloc(cut->room);
    struct sh_replog_zone **zone = &rig.zones[0].zone;
    assert_non_null(before);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 9; i++)
        append(0, i % 3, i, 100);
    rig_sync(&rig, 1);
    open_after_a_cut();
    assert_int_equal(rig_load(&rig, 0).end, 9);
    rig_zone_add(&rig, 0, 1, 9);
    assert_int_equal((*zone)->epoch, 2);
    memcpy(before, cut->stable, cut->room);
    static struct rig_chunk chunks[RIG_CHUNKS];
    memcpy(chunks, rig.zones[0].chunks, sizeof chunks);
    cut->holds = holds_writes;
    append(0, 1, 1000, 100);
    sh_replog_sync(*zone);
    steps(5);
    for (unsigned i = 0; i < 130; i++) /* several batches in a slot */
        append(0, i % 3, 1001 + i, 500);
    steps(50);
    assert_true(cut->count > 1 && sh_replog_durable(*zone) == 9);
    open_with_some(cut, before, left);
    free(before);
    memcpy(rig.zones[0].chunks, chunks, sizeof chunks);
    uint64_t end = rig_load(&rig, 0).end;
    if (end > 9) /* of epoch 2 something counts */
        return;
    rig_zone_add(&rig, 0, 1, end);
    assert_int_equal((*zone)->epoch, left < 2 ? 2 : (*zone)->epoch);
    append(0, 1, 2000, 100);
    for (unsigned i = 0; i < 60; i++) /* up to numbers that life 2 gave in its later batches */
        append(0, 20 + i, i, 60);
    rig_sync(&rig, 1);
    end = sh_replog_durable(*zone);
    open_after_a_cut();
    taken_is_all(0);
    rig_zone_add(&rig, 0, 1, end);
    for (unsigned i = 0; i < 200; i++)
        append(0, 20 + i, i, 500);
    rig_sync(&rig, 1);
    open_after_a_cut();
    taken_is_all(0);
}

static void test_epoch_is_used_twice(void **state)
{
    for (unsigned left = 0; left < 4; left++) {
        if (left) {
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
        }
        epoch_used_twice(left);
    }
}

/* --- A process that was killed, then a power cut ------------------------------------------------- */

static void test_kill_then_cut(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; status().slot_writes == 0;
         i++) { /* large batches: nothing was ever packed */
        append(0, i % 100, i, 1000);
        rig.now_ns++;
        (void)sh_replog_step(rig.log, rig.now_ns, 1);
    }
    shut(); /* killed: what was written is in the page cache, and not synced */
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, 0);
    rig_zone_add(&rig, 0, 1, loaded.end);
    uint64_t durable = sh_replog_durable(rig.zones[0].zone);
    for (unsigned i = 0; i < 1000; i++)
        rig_step(&rig, RIG_MS);
    shut();
    cut_power(cut);
    rig_open(&rig);
    if (!sh_replog_zone_find(rig.log, rig_zone_id(0)))
        fail_msg("after the power cut: the log has nothing of the zone");
    loaded = rig_load(&rig, 0);
    assert_true(loaded.end >= durable);
}

/* --- Starts without a write between -------------------------------------------------------------- */

static void test_starts(void **state)
{
    (void)state;
    rig.config.slots = 60;
    rig_open(&rig);
    for (unsigned i = 0; i < 4; i++) {
        zone_add_config(i, rig_zone_config(i, 1, 0, 4 * 65536));
        append(i, i, 1, 100);
    }
    rig_sync(&rig, 4);
    for (unsigned life = 0; life < 20; life++) {
        sh_replog_close(rig.log);
        rig.log = NULL;
        enum shoal_err err = sh_replog_open(&rig.config, rig.now_ns, 1, &rig.log);
        if (err)
            fail_msg("start %u of a log with four chunks: error %d", life, err);
    }
}

/* Copies with one version are never told apart: they stay, whatever the cleaner does. */
static void test_copies(void **state)
{
    (void)state;
    rig.config.slots = 300;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 20 * 65536));
    for (unsigned i = 0; i < 40; i++) {
        append(0, i, i, 1000);
        if (i % 8 == 0)
            rig_sync(&rig, 1);
    }
    rig_sync(&rig, 1);
    for (unsigned life = 0; life < 30; life++) {
        shut();
        rig_open(&rig);
    }
    struct rig_loaded loaded = rig_load(&rig, 0);
    zone_add_config(0, rig_zone_config(0, 1, loaded.end, 20 * 65536));
    for (unsigned i = 0; i < 20000; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().slots - status().slots_free < 10);
}

/* --- Damage that a load does not see ------------------------------------------------------------- */

static void test_damage(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 200; i++) {
        append(0, i, i, 1000);
        if (i % 10 == 0)
            rig_sync(&rig, 1);
    }
    rig_sync(&rig, 1);
    for (unsigned i = 0; i < 300; i++)
        rig_step(&rig, RIG_MS);
    uint64_t end = sh_replog_next(rig.zones[0].zone);
    shut();
    cut->now[slots_at() + 4096 + 200] ^= 1; /* in the first batch of the first slot */
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, 0);
    static struct rig found;
    rig_read_all(rig.config.disk, &found);
    unsigned missing = 0;
    for (unsigned i = 0; i < 200; i++)
        missing += !found.zones[0].chunks[i].is_there;
    assert_true(!missing || loaded.err || loaded.end < end);
}

/* One bit of a span's head: what lies behind it in the slot is whole, and is not looked at. */

/* --- A primary log with more than the buffer holds ----------------------------------------------- */

static struct sh_replog_zone *many[300];

/* Many zones, and little memory. */
static void many_config(void)
{
    rig.config.disk->ops->destroy(rig.config.disk);
    rig.config.disk = cut_create((size_t)128 << 20);
    rig.config.slots = 1100;
    rig.config.versions_max = 256;
    rig.config.buffer_bytes = 576 << 10;
    rig_open(&rig);
}

static void many_add(unsigned number)
{
    struct sh_replog_zone_config config = rig_zone_config(number, 1, 0, 65536);
    assert_int_equal(sh_replog_zone_add(rig.log, &config, &many[number]), SHOAL_OK);
}

static void many_write(unsigned number, unsigned chunk)
{
    static uint8_t payload[300];
    struct sh_replog_write write = {.local_id = chunk + 1,
                                    .creator = RIG_OWNER,
                                    .pieces = 1,
                                    .payload = {payload, sizeof payload}};
    while (sh_replog_append(many[number], &write) == SHOAL_EAGAIN)
        rig_step(&rig, RIG_MS);
    sh_replog_sync(many[number]);
    for (unsigned i = 0; sh_replog_durable(many[number]) < sh_replog_next(many[number]); i++) {
        assert_true(i < 10000);
        rig_step(&rig, RIG_MS);
    }
}

static void reopen_many(void)
{
    shut();
    enum shoal_err err = sh_replog_open(&rig.config, rig.now_ns, 1, &rig.log);
    if (err)
        rig.log = NULL;
    assert_int_equal(err, SHOAL_OK);
}

/* 200 zones with a chunk each; blocks for 128. */
static void test_open_many_zones(void **state)
{
    (void)state;
    many_config();
    for (unsigned i = 0; i < 200; i++) {
        many_add(i);
        many_write(i, 0);
    }
    reopen_many();
}

/* 100 zones, of which 40 come late; blocks for 256, and a primary log of 4096. */
static void test_open_late_zones(void **state)
{
    (void)state;
    rig.config.primary_blocks = 4096;
    many_config();
    for (unsigned i = 0; i < 60; i++)
        many_add(i);
    for (unsigned i = 0; i < 3400; i++)
        many_write(i % 60, i / 60 % 600);
    for (unsigned late = 60; late < 100; late++) {
        many_add(late);
        many_write(late, 0);
        for (unsigned i = 0; i < 7; i++)
            many_write((late * 7 + i) % 60, 300 + i);
    }
    /* Less than one lap: all of it is read. */
    reopen_many();
}

/* --- A sector that cannot be read ---------------------------------------------------------------- */

static void test_sector(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    for (unsigned z = 0; z < 2; z++) {
        rig_zone_add(&rig, z, 1, 0);
        for (unsigned i = 0; i < 100; i++)
            append(z, i, i, 1000);
    }
    rig_sync(&rig, 2);
    shut();
    rig_open(&rig);
    cut->fails_at = slots_at() + 20000;
    assert_int_equal(rig_load(&rig, 0).err, SHOAL_EIO);
    cut->fails_at = 0;
    struct rig_loaded other = rig_load(&rig, 1);
    assert_int_equal(other.err, SHOAL_OK);
}

/* --- What is refused ------------------------------------------------------------------------------ */

/* A file whose head says that, with a right sum. */
static void head_is_refused(unsigned at, uint32_t value)
{
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    shut();
    sh_store32(cut->now + at, value);
    sh_store32(cut->now + 4, sh_crc32c(0, sh_bytes_make(cut->now + 8, 56)));
    assert_int_equal(sh_replog_open(&rig.config, 0, 0, &rig.log), SHOAL_ECORRUPT);
    rig.log = NULL;
}

static void test_head_slots(void **state)
{
    (void)state;
    head_is_refused(24, UINT32_MAX);
}

static void test_head_slot_bytes(void **state)
{
    (void)state;
    head_is_refused(20, 8192);
}

/* Less memory than a log can go on with; batches that no pack has room for. */
static void test_memory_refused(void **state)
{
    (void)state;
    rig.config.buffer_bytes = 256 << 10;
    assert_int_equal(sh_replog_open(&rig.config, 0, 0, &rig.log), SHOAL_EINVAL);
    rig.config.slot_bytes = 8 << 20;
    rig.config.buffer_bytes = 32 << 20;
    rig.config.batch_bytes = 2 << 20;
    rig.config.slots = 8;
    rig.config.name = "other";
    cut_of(rig.config.disk)->size = 0;
    memset(cut_of(rig.config.disk)->now, 0, 4096);
    assert_int_equal(sh_replog_open(&rig.config, 0, 0, &rig.log), SHOAL_EINVAL);
    rig.log = NULL;
}

/* One bit of a span's head: what lies behind it in the slot is whole, and counts. The cleaner gives nothing of it away. */
static void test_damage_head(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 20 * 65536));
    for (unsigned i = 0; i < 200; i++) {
        append(0, i, i, 1000);
        if (i % 10 == 0)
            rig_sync(&rig, 1);
    }
    rig_sync(&rig, 1);
    for (unsigned i = 0; i < 300; i++)
        rig_step(&rig, RIG_MS);
    cut->now[slots_at() + 4096 + 10] ^= 1;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < 4000 && !err; i++) /* it would be cleaned */
        err = append_or_say(0, 500 + i % 20, i, 1000);
    assert_int_equal(err, SHOAL_ENOSPC);
    assert_int_equal(status().damaged, 1);
    struct sh_replog_damage damage = sh_replog_zone_damage(rig.zones[0].zone);
    assert_int_equal(damage.slots, 1);
    assert_int_equal(damage.slot, 0);
    assert_int_equal(damage.offset, slots_at() + 4096);
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).err, SHOAL_ECORRUPT);
    damage = sh_replog_zone_damage(sh_replog_zone_find(rig.log, rig_zone_id(0)));
    assert_int_equal(damage.slots, 1);
    assert_int_equal(damage.offset, slots_at() + 4096);
    static struct rig found;
    rig_read_all(rig.config.disk, &found);
    unsigned missing = 0;
    for (unsigned i = 0; i < 200; i++)
        missing += !found.zones[0].chunks[i].is_there;
    assert_true(missing > 0 && missing < 20);
}

/* An orderly end: what is in memory is on the disk, of all zones, also while one is cleaned. */
static void test_flush(void **state)
{
    (void)state;
    uint64_t seed = test_seed(61);
    uint32_t stamp = 1;
    rig_open(&rig);
    for (unsigned i = 0; i < 3; i++)
        rig_zone_add(&rig, i, 1, 0);
    for (unsigned life = 0; life < 12; life++) {
        unsigned writes = 1 + (unsigned)(test_draw(&seed) % (life % 3 ? 40 : 2000));
        bool was_cleaned = false;
        for (unsigned i = 0; i < writes || (life % 3 == 0 && !was_cleaned); i++) {
            uint64_t draw = test_draw(&seed);
            assert_true(i < 100000);
            append(draw % 3, (draw >> 8) % 100, stamp++, 4 + (draw >> 20) % 3000);
            if (draw >> 40 & 1)
                rig_step(&rig, RIG_MS / 10);
            was_cleaned = rig.log->clean;
        }
        uint64_t ends[3];
        for (unsigned i = 0; i < 3; i++)
            ends[i] = sh_replog_next(rig.zones[i].zone);
        assert_int_equal(sh_replog_flush(rig.log), SHOAL_OK);
        shut();
        cut_power(cut_of(rig.config.disk));
        rig_open(&rig);
        (void)rig_assert_all(&rig, 3);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(rig_load(&rig, i).end, ends[i]);
            rig_zone_add(&rig, i, 1, ends[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flush, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_void_is_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pieces_are_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_life_is_not_used_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_void_stays_void, setup, teardown),
        cmocka_unit_test_setup_teardown(test_epoch_is_used_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kill_then_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_starts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_head_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(test_head_slot_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_many_zones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_late_zones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sector, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
