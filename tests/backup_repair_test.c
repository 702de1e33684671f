/* A node alone whose log goes bad while it runs: bits of its slots flip, the scrub finds them, and the zone's chunks are written once more. Then
 * the store has what it had, a scrub finds nothing, and so does a start after the process was killed: no chunk is missing, none is
 * as it was before, and none that was removed is back. */
#include <string.h>

#include "backup/alone_test.h"
#include "log/slot.h"
#include "recover/home.h"
#include "tests/seed_int.h"

#define LIMIT (UINT64_C(1) << 20) /* of a zone */
#define IDS 3000u
#define LARGE (3u << 20) /* bytes of a chunk that has a zone of its own */
#define FAST (UINT64_C(1) << 30)

static uint64_t draws, copy_rate;
static uint8_t data[LARGE], found[LARGE];
static uint32_t slots;

/* A chunk's bytes follow from its ID and stamp. */
static struct chunk {
    bool is_there;
    uint32_t size, stamp;
} chunks[IDS];
static unsigned ids; /* above all that were ever there */

static uint64_t time_ns(void *arg)
{
    (void)arg;
    return now_ns;
}

static uint64_t passing_ns(void *arg)
{
    (void)arg;
    return now_ns += MS;
}

/* --- The node ---------------------------------------------------------------------------------- */

static enum shoal_err node_begin(void)
{
    struct sh_recovered recovered;
    store_open(64 << 20, (struct sh_backup_config){.zone_bytes = LIMIT,
                                                   .sparse_zones = UINT32_MAX,
                                                   .window_bytes = 8 << 20,
                                                   .cluster.copy_bytes_per_s = copy_rate});
    struct sh_replog_config logged = log_config(slots);
    logged.batch_bytes = 16 << 10;
    logged.damaged = sh_backup_damaged;
    assert_int_equal(sh_replog_open(&logged, now_ns, 1, &replicas), SHOAL_OK);
    const struct sh_recover_home home = {.log = replicas,
                                         .disk = disk,
                                         .backup = backup,
                                         .store = store,
                                         .nid = {NID},
                                         .clock = {.now_ns = passing_ns, .wall_ns = time_ns}};
    enum shoal_err err = sh_recover_home_run(&home, &recovered);
    if (!err)
        sh_backup_home_set(backup, replicas);
    return err;
}

static int setup(void **state)
{
    (void)state;
    now_ns = 1000 * MS;
    draws = 7;
    copy_rate = 0;
    slots = 400;
    ids = 0;
    memset(chunks, 0, sizeof chunks);
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    assert_int_equal(node_begin(), SHOAL_OK);
    return 0;
}

/* Another node, with an empty log. */
static void anew(uint32_t its_slots, uint64_t its_rate)
{
    node_end();
    disk->ops->destroy(disk);
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    slots = its_slots;
    copy_rate = its_rate;
    assert_int_equal(node_begin(), SHOAL_OK);
}

/* --- Chunks ------------------------------------------------------------------------------------ */

static shoal_cid cid_of(unsigned id)
{
    return (shoal_cid){NID << 48 | id};
}

static const uint8_t *bytes_of(unsigned id)
{
    const struct chunk *chunk = &chunks[id];
    uint32_t stamp = chunk->stamp * 2654435761u + id;
    memset(data, (int)(stamp >> 24), chunk->size);
    memcpy(data, &stamp, chunk->size < sizeof stamp ? chunk->size : sizeof stamp);
    return data;
}

static void put(unsigned id)
{
    struct sh_write write;
    struct sh_store_rewriting *rewriting;
    chunks[id].stamp++;
    const struct sh_store_rewrite rewrite = {.kind = SH_STORE_PUT,
                                             .cid = cid_of(id),
                                             .data = sh_bytes_make(bytes_of(id), chunks[id].size)};
    enum shoal_err err = chunk_rewrite(SH_LEVEL_ASYNC, &write, &rewrite);
    if (err == SHOAL_ELIMIT) {
        assert_int_equal(sh_store_rewriting_begin(store, &rewrite, &rewriting), SHOAL_OK);
        for (unsigned i = 0; !sh_backup_rewriting_step(backup, &write, rewriting); i++) {
            assert_true(i < STEPS_MAX);
            step();
        }
        err = sh_store_rewriting_end(rewriting);
    }
    assert_int_equal(err, SHOAL_OK);
}

static unsigned make(uint32_t size)
{
    shoal_cid cid;
    assert_int_equal(chunk_new(SH_LEVEL_ASYNC, size, &cid), SHOAL_OK);
    unsigned id = (unsigned)shoal_cid_local(cid);
    assert_true(id < IDS);
    ids = id >= ids ? id + 1 : ids;
    chunks[id] = (struct chunk){true, size, chunks[id].stamp};
    put(id);
    return id;
}

static void removed(unsigned id)
{
    struct sh_write write;
    enum shoal_err err;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (unsigned i = 0; (err = sh_backup_remove(backup, &write, cid_of(id))) == SHOAL_EAGAIN;
         i++) {
        assert_true(i < STEPS_MAX);
        step();
    }
    assert_int_equal(err, SHOAL_OK);
    chunks[id].is_there = false;
}

static void act(void)
{
    unsigned id = ids ? (unsigned)(test_draw(&draws) % ids) : 0, kind = test_draw(&draws) % 8;
    if (!kind || !id || !chunks[id].is_there)
        (void)make(test_draw(&draws) % 50 ? (uint32_t)(test_draw(&draws) % 3000)
                                          : 300000 + (uint32_t)(test_draw(&draws) % 90000));
    else if (kind == 1)
        removed(id);
    else
        put(id);
}

/* All that was written is durable, and in slots. */
static void settle(void)
{
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_DURABLE);
    sh_backup_write_all(backup, &write);
    write_settle(&write);
}

static void check(void)
{
    uint32_t size;
    for (unsigned id = 1; id < ids; id++) {
        enum shoal_err err = sh_store_get(store, cid_of(id), found, sizeof found, &size);
        if (err != (chunks[id].is_there ? SHOAL_OK : SHOAL_ENOCHUNK))
            fail_msg("chunk %u: %s", id, shoal_err_name(err));
        if (!err && (size != chunks[id].size || memcmp(found, bytes_of(id), size) != 0))
            fail_msg("chunk %u is as it was", id);
    }
}

/* --- Damage ------------------------------------------------------------------------------------ */

static void on_disk_done(struct sh_disk_op *op)
{
    (void)op;
}

static void disk_do(enum sh_disk_kind kind, uint64_t offset, uint8_t *bytes)
{
    int file;
    assert_int_equal(sh_disk_open(disk, "log", false, &file), SHOAL_OK);
    struct sh_disk_op op = {.kind = kind,
                            .file = file,
                            .offset = offset,
                            .data = bytes,
                            .size = SH_SLOT_HEAD_BYTES,
                            .done = on_disk_done};
    assert_int_equal(disk->ops->submit(disk, &op), SHOAL_OK);
    while (sh_disk_poll(disk, false))
        ;
    assert_int_equal(op.err, SHOAL_OK);
    disk->ops->close(disk, file);
}

static void flip(uint64_t at)
{
    uint8_t block[SH_SLOT_HEAD_BYTES];
    uint64_t begin = at / sizeof block * sizeof block;
    disk_do(SH_DISK_READ, begin, block);
    block[at - begin] ^= (uint8_t)(1u << at % 8);
    disk_do(SH_DISK_WRITE, begin, block);
}

/* Flips a bit of a slot in use, of that zone or of any: 0. */
static void flip_some(uint64_t zone)
{
    static struct sh_replog_look_slot seen[400];
    uint64_t cursor = 0;
    size_t count = sh_replog_look_slots(replicas, &cursor, seen, 400), mine = 0;
    for (size_t i = 0; i < count; i++) {
        if ((!zone || seen[i].zone == zone) && !seen[i].pending)
            seen[mine++] = seen[i];
    }
    assert_true(mine > 0);
    const struct sh_replog_look_slot *slot = &seen[test_draw(&draws) % mine];
    struct sh_replog_look look = sh_replog_look(replicas);
    flip(SH_SLOT_HEAD_BYTES + look.primary_bytes + (uint64_t)slot->slot * look.slot_bytes +
         test_draw(&draws) % slot->filled_bytes);
}

/* How many damaged places a scrub finds, but for copies of heads of which the other copy is well. */
static size_t scrub(void)
{
    static struct sh_replog_place places[SH_REPLOG_PLACES_MAX];
    uint64_t number, cursor = 0;
    size_t harmed = 0;
    assert_int_equal(sh_replog_scrub_begin(replicas, 0, FAST, &number), SHOAL_OK);
    for (unsigned i = 0; sh_replog_scrub_state(replicas).is_running; i++) {
        assert_true(i < STEPS_MAX);
        step();
    }
    size_t count = sh_replog_scrub_places(replicas, &cursor, places, SH_REPLOG_PLACES_MAX);
    for (size_t i = 0; i < count; i++)
        harmed += places[i].harm != SH_REPLOG_HARM_HALF && !places[i].is_gone;
    return harmed;
}

/* Flips bits until a scrub finds damage. */
static void damage(uint64_t zone)
{
    uint64_t before = status().repaired;
    for (unsigned i = 0; !scrub() && status().repaired == before && !status().damaged; i++) {
        assert_true(i < 1000);
        flip_some(zone);
    }
}

static void repaired(void)
{
    for (unsigned i = 0; status().damaged; i++) {
        assert_true(i < STEPS_MAX);
        step();
    }
    assert_true(status().repaired > 0);
}

/* The process is killed, and the next one finds all. */
static void killed(void)
{
    settle();
    node_end();
    assert_int_equal(node_begin(), SHOAL_OK);
    check();
    assert_int_equal(scrub(), 0);
}

/* --- Tests ------------------------------------------------------------------------------------- */

/* Wherever it is, and whatever is written meanwhile. */
static void test_anywhere(void **state)
{
    (void)state;
    draws = test_seed(7);
    unsigned all = 0;
    for (unsigned round = 0; round < 25; round++) {
        for (unsigned i = 0; i < 150; i++)
            act();
        settle();
        damage(0);
        for (unsigned i = 0; i < 60; i++) {
            act();
            step();
        }
        repaired();
        all += (unsigned)status().repaired;
        settle();
        check();
        assert_int_equal(scrub(), 0);
        killed();
    }
    assert_true(all >= 25);
}

/* Slots of a zone go bad by the dozen: what was removed does not come back, and nothing is as it was. */
static void test_much(void **state)
{
    (void)state;
    unsigned first = make(100);
    for (unsigned i = 0; i < 500; i++)
        (void)make(1000);
    settle();
    for (unsigned id = first; id < ids; id++) {
        if (id % 3)
            put(id);
        else
            removed(id);
    }
    settle();
    for (unsigned i = 0; i < 40; i++)
        flip_some(0);
    damage(0);
    repaired();
    killed();
}

/* A chunk that has a zone of its own. */
static void test_large(void **state)
{
    (void)state;
    unsigned id = make(LARGE);
    uint64_t number;
    for (unsigned i = 0; i < 100; i++)
        (void)make(1000);
    put(id);
    settle();
    assert_true(sh_backup_zone_number(backup, cid_of(id), &number));
    damage(NID << 48 | number);
    repaired();
    killed();
}

/* A chunk that needs more room in its zone's log, which is not cleaned any more. */
static void test_full(void **state)
{
    (void)state;
    uint64_t number;
    anew(slots, 64 << 10);
    (void)make(100);
    unsigned id = make(LARGE);
    put(id);
    settle();
    assert_true(sh_backup_zone_number(backup, cid_of(id), &number));
    for (unsigned i = 0; i < 20; i++)
        flip_some(NID << 48 | number);
    uint64_t scrub_number;
    assert_int_equal(sh_replog_scrub_begin(replicas, 0, FAST, &scrub_number), SHOAL_OK);
    put(id); /* the damage is found meanwhile */
    damage(NID << 48 | number);
    repaired();
    killed();
}

/* Not faster than copies are. */
static void test_throttled(void **state)
{
    (void)state;
    anew(slots, 256 << 10);
    unsigned id = make(1000);
    uint64_t number;
    for (unsigned i = 0; i < 900; i++)
        (void)make(1000);
    settle();
    assert_true(sh_backup_zone_number(backup, cid_of(id), &number));
    damage(NID << 48 | number);
    uint64_t begin = now_ns, bytes = status().copied_bytes;
    repaired();
    bytes = status().copied_bytes - bytes;
    assert_true(bytes > 500000);
    assert_true(now_ns - begin > 1200 * MS && now_ns - begin < 8000 * MS);
    killed();
}

/* Where there is no room for its chunks it stays as it is, until there is. */
static void test_no_room(void **state)
{
    (void)state;
    anew(48, 0); /* two zones, with their spare slots */
    unsigned first = ids;
    while (status().live_bytes < 2 * LIMIT - 40000)
        (void)make(3000);
    settle();
    uint64_t number;
    assert_true(sh_backup_zone_number(backup, cid_of(first ? first : 1), &number));
    damage(NID << 48 | number);
    for (unsigned i = 0; i < 3000; i++)
        step();
    assert_int_equal(status().damaged, 1);
    for (unsigned id = 1; id < ids; id++) {
        if (chunks[id].is_there && id % 4)
            removed(id);
    }
    repaired();
    killed();
}

/* Killed at any time: once the zone is repaired, all is there. Before that a start may refuse the log, or take what is damaged for the torn end of a
 * slot (docs/log.md, Damage). */
static void test_killed_meanwhile(void **state)
{
    (void)state;
    unsigned late = 0, early = 0;
    for (unsigned steps = 0; steps < 6000; steps += 50 + steps / 4) {
        teardown(NULL);
        setup(NULL);
        anew(slots, 256 << 10);
        draws = 7 + steps;
        for (unsigned i = 0; i < 300; i++)
            act();
        settle();
        damage(0);
        for (unsigned i = 0; i < steps; i++)
            step();
        bool is_repaired = !status().damaged;
        node_end();
        enum shoal_err err = node_begin();
        assert_true(!err || (err == SHOAL_ECORRUPT && !is_repaired));
        if (is_repaired)
            check();
        late += is_repaired;
        early += !is_repaired;
    }
    assert_true(late && early);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    /* Errors are provoked. */
    if (!getenv("SHOAL_TEST_LOG"))
        (void)!sh_log_output_set("/dev/null", SH_LOG_AS_TEXT);
    (void)!sh_log_levels_set("info", &bad, &bad_size);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_much, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_throttled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_meanwhile, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
