/* A node knows which zone a chunk is of at a cost that is counted here over a million chunks: each zone is one range of the map and one claim, and a zone's stream has a
 * claim for each 1024 fresh IDs; IDs that are removed, made again, or that move away and come back, cost nothing. */
#define ZONES 64u
#define LIMIT (UINT64_C(2) << 20)
#include "backup/zones_test.h"

#define OTHER UINT64_C(77)
#define CHUNKS (1u << 20) /* a power of two */
#define OTHERS 40000u
#define BATCH 1024u
#define SIZE 8u
#define CLAIM_IDS 1024u

static unsigned zones_made;
static shoal_cid cids[BATCH];

/* Entries of all streams, since they were counted last. */
static uint64_t claims_told, chunks_told;

static void zone_add(struct sh_own_zone **at)
{
    assert_true(zones_made < ZONES);
    assert_int_equal(sh_zone_make(backup, zones_made, 1, at), SHOAL_OK);
    zones[zones_made++] = *at;
}

/* Reads all streams to their ends, and has the next zone ready. */
static void go_on(void)
{
    struct sh_own_zone *zone;
    struct sh_backlog_entry entry;
    uint64_t number;
    for (unsigned i = 0; i < zones_made; i++) {
        struct sh_backlog_cursor *cursor = &zones[i]->sinks[0].cursor;
        while (sh_backlog_read(cursor, &entry, &number, scratch)) {
            claims_told += !(entry.chunk >> 48);
            chunks_told += entry.chunk >> 48 != 0;
        }
        (void)sh_backlog_take(cursor);
    }
    if (!backup->zones.spare) {
        zone_add(&zone);
        backup->zones.spare = zone;
    }
}

static int claims_setup(void **state)
{
    (void)state;
    struct sh_own_zone *zone;
    backup_make(96 << 20);
    zones_made = 0;
    zone_add(&zone);
    backup->zones.open = zone;
    sh_backup_witness_set(backup);
    backup->is_on = true;
    go_on();
    claims_told = chunks_told = 0;
    return 0;
}

/* --- Changes ----------------------------------------------------------------------------------- */

/* Local IDs from 1 on, each once, in another order. */
static shoal_cid own(uint32_t i)
{
    return (shoal_cid){NID << 48 | (1 + (i * 0x9E3779B1u) % CHUNKS)};
}

static shoal_cid others(uint32_t i)
{
    return (shoal_cid){OTHER << 48 | (5000 + i)};
}

static void many_make(unsigned count)
{
    for (unsigned made = 0; made < count; made += BATCH) {
        struct sh_write write;
        sh_write_begin(&write, SH_LEVEL_ASYNC);
        enum shoal_err err = sh_backup_new_many(backup, &write, SIZE, BATCH, cids);
        assert_int_equal(err, SHOAL_OK);
        go_on();
    }
}

static void each_do(enum shoal_err (*change)(shoal_cid cid), shoal_cid (*nth)(uint32_t i),
                    uint32_t from, uint32_t count)
{
    for (uint32_t i = from; i < from + count; i++) {
        assert_int_equal(change(nth(i)), SHOAL_OK);
        if (i % BATCH == 0)
            go_on();
    }
    go_on();
}

static enum shoal_err removed(shoal_cid cid)
{
    return sh_store_remove(store, cid);
}

static enum shoal_err let_go(shoal_cid cid)
{
    return sh_store_release(store, cid);
}

static enum shoal_err taken(shoal_cid cid)
{
    static const uint8_t data[SIZE];
    return sh_store_take_over(store, cid, sh_bytes_make(data, SIZE));
}

/* --- Counting ---------------------------------------------------------------------------------- */

static uint64_t claims_count(void)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < zones_made; i++)
        count += zones[i]->claims_count;
    return count;
}

static unsigned zones_in_use(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < zones_made; i++)
        count += zones[i]->live > 0;
    return count;
}

/* No claim was told since the last look, and nothing was split. */
static void assert_nothing_is_claimed(uint64_t ranges, uint64_t claims, uint64_t changes)
{
    assert_int_equal(chunks_told, changes);
    assert_int_equal(claims_told, 0);
    assert_int_equal(sh_ranges_count(backup->zones.map), ranges);
    assert_int_equal(claims_count(), claims);
    chunks_told = 0;
}

/* --- Cases ------------------------------------------------------------------------------------- */

static void test_own(void **state)
{
    (void)state;
    many_make(CHUNKS);
    unsigned used = zones_in_use();
    /* A zone has a sixteenth more than its limit, of IDs that it has claimed. */
    uint64_t bytes = (uint64_t)CHUNKS * (SIZE + SH_ZONE_CHUNK_BYTES);
    assert_in_range(used, bytes / (LIMIT + LIMIT / 16), bytes / LIMIT + 1);
    assert_int_equal(sh_ranges_count(backup->zones.map), used);
    assert_int_equal(claims_count(), used);
    assert_int_equal(chunks_told, CHUNKS);
    /* A claim for each 1024 fresh IDs; and where one zone ends within these, the next zone claims them one by one. */
    uint64_t blocks = CHUNKS / CLAIM_IDS + 1;
    assert_in_range(claims_told, blocks, blocks + (uint64_t)(used - 1) * CLAIM_IDS);
    claims_told = chunks_told = 0;
    each_do(removed, own, 0, CHUNKS / 2);
    assert_nothing_is_claimed(used, used, CHUNKS / 2);
    many_make(CHUNKS / 4);
    assert_nothing_is_claimed(used, used, CHUNKS / 4);
    each_do(let_go, own, CHUNKS / 2, CHUNKS / 4);
    assert_nothing_is_claimed(used, used, CHUNKS / 4);
    each_do(taken, own, CHUNKS / 2, CHUNKS / 8);
    many_make(CHUNKS / 4);
    assert_nothing_is_claimed(used, used, CHUNKS / 8 + CHUNKS / 4);
    assert_int_equal(zones_in_use(), used);
}

/* Chunks of another creator that come one by one are claimed by range, too. */
static void test_others(void **state)
{
    (void)state;
    each_do(taken, others, 0, OTHERS);
    unsigned used = zones_in_use();
    assert_int_equal(used, 1);
    assert_int_equal(sh_ranges_count(backup->zones.map), 1);
    assert_int_equal(claims_count(), 1);
    assert_in_range(claims_told, OTHERS / CLAIM_IDS, OTHERS / CLAIM_IDS + 2);
    claims_told = chunks_told = 0;
    each_do(let_go, others, 0, OTHERS / 2);
    each_do(taken, others, 0, OTHERS / 4);
    each_do(removed, others, OTHERS / 2, OTHERS / 4);
    assert_nothing_is_claimed(used, used, OTHERS);
}

/* Bytes of a map of so many zones that follow each other, as they are made one after the other. */
static size_t map_bytes(uint64_t count, uint64_t each)
{
    struct sh_ranges *map;
    assert_int_equal(sh_ranges_create(1 << 16, &map), SHOAL_OK);
    for (uint64_t i = 0; i < count; i++) {
        const shoal_cid first = {NID << 48 | i * each}, last = {first.v + each - 1};
        assert_int_equal(sh_ranges_set(map, first, last, i + 1), SHOAL_OK);
    }
    assert_int_equal(sh_ranges_count(map), count);
    size_t bytes = sh_ranges_bytes(map);
    sh_ranges_destroy(map);
    return bytes;
}

/* A billion chunks of 64 bytes, in zones of 256 MiB, are 328 ranges: 2.2 KB of the map (6.6 bytes a boundary), counted as what as many more take in a large
 * one. The streams have 38 bytes for each 1024 IDs: less than a thousandth of the images. */
static void test_a_billion(void **state)
{
    (void)state;
    const uint64_t billion = 1000000000, each = (UINT64_C(256) << 20) / (64 + SH_ZONE_CHUNK_BYTES);
    const uint64_t count = billion / each + 1, less = 4000, more = 12000;
    assert_int_equal(count, 328);
    size_t bytes = map_bytes(more, each) - map_bytes(less, each);
    assert_true(bytes * count / (more - less) < 2600);
    uint64_t told = billion / CLAIM_IDS * SH_CLAIM_BYTES + count * CLAIM_IDS * SH_CLAIM_BYTES;
    assert_true(told < billion * (SH_BACKLOG_HEAD_BYTES + 64) / 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_own, claims_setup, teardown),
        cmocka_unit_test_setup_teardown(test_others, claims_setup, teardown),
        cmocka_unit_test(test_a_billion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
