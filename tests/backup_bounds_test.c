/* Superpeers know of zones that are concluded that they are, and the first and last of the owner's own IDs in them, which are those of the zone's claims. They
 * are told once for each zone, whatever is removed and made again. */
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

#define SECOND (1000 * FAKE_MS)
#define CHUNKS 12000u
#define CHUNK_BYTES 100u
#define CLAIM_IDS 1024u
#define OTHER 99 /* node ID, of one whose chunks have come here */

static shoal_cid cids[CHUNKS];

static unsigned shard(void)
{
    return sh_zone_shard(sh_zone_id((shoal_nid){FAKE_OWNER}, 1));
}

static uint64_t chunk_of(uint64_t local)
{
    return owner_cid(local).v;
}

/* --- What has to hold -------------------------------------------------------------------------- */

/* The bounds of what a replica's claims have of the owner's own IDs. */
static void assert_bounds_are_claimed(const struct sh_zone *record)
{
    const struct fake_zone *zone =
        fake_find(&owner.backups[record->backups[0].nid.v - FAKE_OWNER - 1], record->id);
    uint64_t first = UINT64_MAX, last = 0;
    assert_non_null(zone);
    for (size_t i = 0; i < zone->now.claims_count; i++) {
        uint64_t from = zone->now.claims[i].first, to = zone->now.claims[i].last;
        if (from > to || from >> 48 != FAKE_OWNER)
            continue;
        first = from < first ? from : first;
        last = to > last ? to : last;
    }
    assert_int_equal(record->first.v, last ? first : 0);
    assert_int_equal(record->last.v, last);
}

static struct sh_zone record_of(uint64_t chunk)
{
    uint64_t number;
    struct sh_zone record;
    assert_true(sh_backup_zone_number(owner.backup, (shoal_cid){chunk}, &number));
    assert_true(sh_metadata_zone(owner.superpeer.metadata,
                                 sh_zone_id((shoal_nid){FAKE_OWNER}, number), &record));
    return record;
}

static void assert_is_within(uint64_t chunk)
{
    const struct sh_zone record = record_of(chunk);
    if (record.flags & SH_ZONE_CONCLUDED)
        assert_in_range(chunk, record.first.v, record.last.v);
}

/* All zones but the open one and the spare one are concluded; returns how many are. */
static unsigned assert_bounds(void)
{
    unsigned concluded = 0, others = 0;
    struct sh_zone record = {.id = 0};
    while (sh_metadata_zone_next(owner.superpeer.metadata, shard(), record.id, &record)) {
        bool is_concluded = record.flags & SH_ZONE_CONCLUDED;
        concluded += is_concluded;
        others += !is_concluded;
        if (is_concluded)
            assert_bounds_are_claimed(&record);
        else
            assert_true(!record.first.v && !record.last.v);
    }
    assert_int_equal(others, 2);
    return concluded;
}

static void settle(void)
{
    owner_settle_only(&owner);
    owner_pass(&owner, 2 * SECOND); /* what was asked of the superpeers is answered */
}

/* --- Many chunks, which are not in the model --------------------------------------------------- */

static void open_lenient(void)
{
    owner_open(&owner, &calm, 2, 2, 2);
    owner.backups[0].is_lenient = owner.backups[1].is_lenient = true;
    owner_pass(&owner, 3 * SECOND);
}

/* Where there is no room the world goes on. */
static shoal_cid make_one(void)
{
    const struct sh_store_wish wish = {.size = CHUNK_BYTES, .count = 1};
    struct sh_write write;
    shoal_cid cid;
    enum shoal_err err;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    while ((err = sh_backup_new_as(owner.backup, &write, &wish, &cid, NULL)) == SHOAL_EAGAIN)
        owner_pass(&owner, FAKE_MS);
    assert_int_equal(err, SHOAL_OK);
    return cid;
}

static void remove_one(shoal_cid cid)
{
    struct sh_write write;
    enum shoal_err err;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    while ((err = sh_backup_remove(owner.backup, &write, cid)) == SHOAL_EAGAIN)
        owner_pass(&owner, FAKE_MS);
    assert_int_equal(err, SHOAL_OK);
}

static bool is_there(shoal_cid cid)
{
    uint32_t size;
    return sh_store_size(owner.store, cid, &size) == SHOAL_OK;
}

/* Zones are runs of IDs, one behind the other, and each costs two updates. Chunks that are removed and made again change no record. */
static void fresh_zones_follow_each_other(void **state)
{
    (void)state;
    struct sh_zone record = {.id = 0};
    open_lenient();
    for (unsigned i = 0; i < CHUNKS; i++)
        cids[i] = make_one();
    settle();
    unsigned concluded = assert_bounds(), changes = owner.superpeer.changes;
    assert_true(concluded >= CHUNKS * (CHUNK_BYTES + SH_ZONE_CHUNK_BYTES) / OWNER_ZONE_BYTES - 1);
    assert_int_equal(changes, 2 * concluded + 2);
    uint64_t next = chunk_of(0), first = 0;
    while (sh_metadata_zone_next(owner.superpeer.metadata, shard(), record.id, &record)) {
        if (!(record.flags & SH_ZONE_CONCLUDED))
            continue;
        /* The rest of the last zone's last claim goes to this one, and is within the bounds of both. */
        assert_true(record.first.v > first || !first);
        assert_in_range(record.first.v, first ? next - CLAIM_IDS + 1 : next, next);
        assert_int_equal((record.last.v + 1) % CLAIM_IDS, 0);
        first = record.first.v;
        next = record.last.v + 1;
    }
    for (unsigned round = 0; round < 3; round++) {
        /* Not at the ends only, and in another order. */
        for (unsigned i = 0; i < CHUNKS / 2; i++) {
            unsigned at = i * 7919 % (CHUNKS - 1000);
            if (is_there(cids[at]))
                remove_one(cids[at]);
        }
        for (unsigned i = 0; i < CHUNKS / 2; i++) {
            unsigned at = i * 7919 % (CHUNKS - 1000);
            if (!is_there(cids[at]))
                (void)make_one();
        }
    }
    settle();
    assert_int_equal(assert_bounds(), concluded);
    assert_int_equal(owner.superpeer.changes, changes);
    for (unsigned i = 0; i < CHUNKS; i += 11)
        assert_is_within(chunk_of(cids[i].v & FAKE_LOCALS));
    owner_close(&owner);
}

/* Chunks of another creator are in the zone, and not within its bounds. */
static void others_chunks_do_not_count(void **state)
{
    (void)state;
    static uint8_t data[50000];
    struct sh_write write;
    open_lenient();
    for (unsigned i = 0; i < 40; i++) {
        const shoal_cid cid = {(uint64_t)OTHER << 48 | (5000 * i + 1)};
        enum shoal_err err;
        sh_write_begin(&write, SH_LEVEL_ASYNC);
        while ((err = sh_backup_take_over(owner.backup, &write, cid,
                                          sh_bytes_make(data, sizeof data))) == SHOAL_EAGAIN)
            owner_pass(&owner, FAKE_MS);
        assert_int_equal(err, SHOAL_OK);
        /* In the last zones there are both. */
        if (i >= 20)
            cids[i] = make_one();
    }
    settle();
    assert_true(assert_bounds() > 5);
    const struct sh_zone first = record_of((uint64_t)OTHER << 48 | 1);
    assert_true(first.flags & SH_ZONE_CONCLUDED);
    assert_true(!first.first.v && !first.last.v);
    assert_int_equal(record_of(cids[20].v).last.v >> 48, FAKE_OWNER);
    owner_close(&owner);
}

/* --- Chunks that move -------------------------------------------------------------------------- */

/* Chunks outgrow their zones, others are removed, and their IDs used again where there is room; zones with few chunks are emptied, and go; the IDs are then
 * other zones'. */
static void bounds_go_with_what_moves(void **state)
{
    (void)state;
    unsigned concluded = 0;
    owner.config.sparse_zones = 1;
    owner_open(&owner, &calm, 3, 3, 2);
    owner.config.sparse_zones = 0; /* of the next owner */
    for (unsigned round = 0; round < 6; round++) {
        write_for(400 * FAKE_MS);
        if (round == 3) {
            for (uint64_t local = 1; local < FAKE_CHUNKS; local++) {
                if (owner.chunks[local].is_there && !owner.chunks[local].op)
                    (void)owner_change(&owner, OWNER_REMOVE, local, 0);
            }
        }
        settle();
        concluded += assert_bounds();
        for (uint64_t local = 1; local < FAKE_CHUNKS; local++) {
            if (owner.chunks[local].is_there)
                assert_is_within(chunk_of(local));
        }
    }
    assert_true(concluded > 12 && owner_status(&owner).dropped > 3);
    owner_close(&owner);
}

/* A chunk is on its way to the open zone, in pieces, when that is concluded, as the next one does not fit: the bounds wait for it. */
static void bounds_wait_for_what_is_on_its_way(void **state)
{
    (void)state;
    owner.zone_bytes_next = 1 << 20;
    owner_open(&owner, &calm, 2, 2, 2);
    uint64_t grows = owner_change(&owner, OWNER_NEW, 0, 200000);
    (void)owner_change(&owner, OWNER_NEW, 0, 400000);
    (void)owner_change(&owner, OWNER_NEW, 0, 400000);
    uint64_t beside = owner_change(&owner, OWNER_NEW, 0, 400000);
    assert_int_not_equal(record_of(chunk_of(grows)).id, record_of(chunk_of(beside)).id);
    struct owner_op *op = owner_op_begin(&owner, OWNER_RESIZE, grows, 500000, SH_LEVEL_REPLICATED);
    const struct sh_store_rewrite grow = {
        .kind = SH_STORE_RESIZE, .cid = owner_cid(grows), .size = 500000};
    assert_int_equal(sh_store_rewriting_begin(owner.store, &grow, &op->rewriting), SHOAL_OK);
    op->waits = true; /* the owner's step leaves it alone */
    struct sh_zone_state zone;
    do {
        assert_false(sh_backup_rewriting_step(owner.backup, &op->write, op->rewriting));
        uint64_t number = record_of(chunk_of(beside)).id & FAKE_LOCALS;
        assert_true(sh_backup_zone_state(owner.backup, number, &zone));
    } while (!zone.backups[0].pending_bytes);
    (void)owner_change(&owner, OWNER_NEW, 0, 690000);
    owner_pass(&owner, 3 * SECOND);
    assert_false(record_of(chunk_of(beside)).flags & SH_ZONE_CONCLUDED);
    op->waits = false;
    owner_until(&owner, owner_op_is_over, op);
    settle();
    const struct sh_zone record = record_of(chunk_of(grows));
    assert_int_equal(record.id, record_of(chunk_of(beside)).id);
    assert_true(record.flags & SH_ZONE_CONCLUDED);
    assert_int_equal(record.first.v, chunk_of(grows));
    assert_int_equal(record.last.v, chunk_of(beside));
    assert_true(assert_bounds() == 2);
    owner_close(&owner);
    owner.zone_bytes_next = 0;
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_zones_follow_each_other),
        cmocka_unit_test(others_chunks_do_not_count),
        cmocka_unit_test(bounds_go_with_what_moves),
        cmocka_unit_test(bounds_wait_for_what_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
