/* Random updates of one shard, of all kinds, and a digest of its state that is made without the
 * code that writes snapshots. */
#ifndef SH_METADATA_UPDATES_TEST_H
#define SH_METADATA_UPDATES_TEST_H

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/node_ids.h"
#include "base/random_test.h"
#include "metadata/metadata_int.h"

#define TEST_SHARD 0
#define TEST_CREATOR 64
#define TEST_CREATORS 3
#define TEST_PEERS 6
#define TEST_CHUNKS 4000
#define TEST_BARRIERS 4
#define TEST_NAMES_MAX 4096

struct test_updates {
    uint64_t draws;
    unsigned names; /* how many different ones, and keys of scratch */
    unsigned members;
    uint64_t numbers[8]; /* callers' last */
    uint64_t sequences[TEST_PEERS];
    uint16_t creators[TEST_CREATORS]; /* whose chunks are in the shard */
    struct sh_metadata_update update;
    char name[SH_NAME_BYTES_MAX + 1];
    uint8_t value[SH_SCRATCH_VALUE_MAX];
};

static inline uint64_t test_below(struct test_updates *test, uint64_t bound)
{
    return test_draw(&test->draws) % bound;
}

static inline void test_updates_init(struct test_updates *test, uint64_t seed)
{
    *test = (struct test_updates){.draws = seed, .names = 600, .members = 40};
    unsigned count = 0;
    for (uint16_t nid = TEST_CREATOR; count < TEST_CREATORS; nid++)
        if (sh_arc_shard((shoal_nid){nid}) == TEST_SHARD)
            test->creators[count++] = nid;
}

/* The next name of a number that is of the shard: some are long. */
static inline struct sh_bytes test_name(struct test_updates *test, unsigned number)
{
    for (unsigned i = 0;; i++) {
        int size = snprintf(test->name, sizeof test->name, "%x/%u.%0*u", number % 16, number,
                            number % 9 ? 3 : 200, i);
        struct sh_bytes name = sh_bytes_make(test->name, (size_t)size);
        if (sh_arc_shard_of_name(name) == TEST_SHARD)
            return name;
    }
}

/* Runs of chunks that are the source's, if the draw is lucky. */
static inline void test_runs(struct test_updates *test, const struct sh_metadata *metadata)
{
    struct sh_metadata_update *update = &test->update;
    shoal_nid creator = {test->creators[test_below(test, TEST_CREATORS)]};
    uint64_t at = test_below(test, TEST_CHUNKS);
    size_t most = test_below(test, 8) ? 4 : SH_METADATA_RUNS_MAX;
    update->from = sh_metadata_find(metadata, shoal_cid_make(creator, at)).note.owner;
    while (update->count < most && at < TEST_CHUNKS) {
        shoal_cid first = shoal_cid_make(creator, at);
        struct sh_metadata_range range = sh_metadata_find(metadata, first);
        uint64_t last = at + test_below(test, 6);
        if (range.note.owner.v != update->from.v && test_below(test, 500)) {
            at = shoal_cid_local(range.last) + 1;
            continue;
        }
        if (last > shoal_cid_local(range.last))
            last = shoal_cid_local(range.last);
        update->runs[update->count++] =
            (struct sh_metadata_run){first, shoal_cid_make(creator, last)};
        at = last + 2 + test_below(test, 4);
    }
}

static inline void test_batch(struct test_updates *test, const struct sh_metadata *metadata)
{
    struct sh_metadata_update *update = &test->update;
    update->kind = test_below(test, 8) ? SH_METADATA_MOVE : SH_METADATA_REFUSE;
    test_runs(test, metadata);
    update->to.v = (uint16_t)(TEST_CREATOR + test_below(test, TEST_PEERS));
    if (update->to.v == update->from.v)
        update->to.v++;
    uint64_t *last = &test->sequences[update->from.v % TEST_PEERS];
    update->sequence = test_below(test, 10) ? ++*last : *last + !*last;
    if (!test_below(test, 10)) {
        update->kind = SH_METADATA_RESOLVE;
        update->count = 1;
    }
    if (!test_below(test, 10)) {
        update->kind = SH_METADATA_TAKE; /* and of what others have, too */
        update->zone = (struct sh_zone){
            .id = sh_zone_id((shoal_nid){TEST_CREATOR}, 1 + test_below(test, 3)),
            .incarnation = 1 + (uint32_t)test_below(test, 3),
            .owner = update->to,
            .life = 1 + test_below(test, 2),
            .former = sh_metadata_is_peer(update->from) ? update->from : update->to,
            .former_life = 3};
        for (size_t i = 0; i + 1 < update->count; i++)
            update->runs[i].last.v = update->runs[i + 1].first.v - 1;
        update->runs[update->count - 1].last.v += test_below(test, 100);
    }
}

/* A zone of one of the shard's nodes, with the next number or one that is there, and its version or another. */
static inline void test_zone(struct test_updates *test, const struct sh_metadata *metadata)
{
    struct sh_metadata_update *update = &test->update;
    shoal_nid creator = {test->creators[test_below(test, TEST_CREATORS)]};
    uint64_t last = sh_metadata_zone_last(metadata, creator);
    uint64_t number = 1 + test_below(test, last + 1);
    struct sh_zone zone = {.version = 1, .incarnation = 1};
    bool is_there = sh_metadata_zone(metadata, sh_zone_id(creator, number), &zone);
    update->kind = (uint8_t)(is_there ? SH_METADATA_ZONE_CHANGE : SH_METADATA_ZONE_NEW);
    if (is_there && !test_below(test, 3))
        update->kind = SH_METADATA_ZONE_REMOVE;
    update->from.v = (uint16_t)(TEST_CREATOR + test_below(test, 2));
    update->sequence = 1 + test_below(test, 2);
    zone.id = sh_zone_id(creator, number);
    zone.flags &= (uint8_t)~SH_ZONE_OLD;
    zone.version += !test_below(test, 8);
    if (update->kind != SH_METADATA_ZONE_CHANGE || !test_below(test, 3)) {
        zone.owner = update->from;
        zone.life = update->sequence;
    }
    update->condition = (uint8_t)test_below(test, 2);
    zone.wanted = (uint8_t)test_below(test, SH_ZONE_BACKUPS_MAX + 1);
    zone.count = (uint8_t)test_below(test, SH_ZONE_BACKUPS_MAX + 1);
    for (unsigned i = 0; i < zone.count; i++)
        zone.backups[i] =
            (struct sh_zone_backup){{(uint16_t)(TEST_CREATOR + 50 * test_below(test, 30))},
                                    10 * test_below(test, 9) + 1 + i};
    if (!test_below(test, 3))
        zone.flags ^= SH_ZONE_LOST;
    if (!(zone.flags & SH_ZONE_CONCLUDED) && !test_below(test, 3)) {
        zone.flags |= SH_ZONE_CONCLUDED;
        zone.first = shoal_cid_make(creator, test_below(test, 9));
        zone.last = shoal_cid_make(creator, 9 + test_below(test, 9));
    }
    if (!test_below(test, 4))
        sh_zone_older_set(&zone, (uint32_t)test_below(test, 4));
    if (!test_below(test, 4))
        sh_zone_former_set(&zone, (shoal_nid){(uint16_t)(TEST_CREATOR + test_below(test, 2))},
                           1 + test_below(test, 2));
    else if (!test_below(test, 3))
        sh_zone_former_set(&zone, SHOAL_NID_NONE, 0);
    update->zone = zone;
}

static inline void test_barrier(struct test_updates *test, const struct sh_metadata *metadata)
{
    struct sh_metadata_update *update = &test->update;
    uint64_t which = test_below(test, TEST_BARRIERS);
    update->kind = (uint8_t)(SH_METADATA_BARRIER_NEW + test_below(test, 30));
    if (update->kind > SH_METADATA_BARRIER_GONE)
        update->kind = SH_METADATA_BARRIER_SIGN;
    if (update->kind == SH_METADATA_BARRIER_FREE && test_below(test, 8))
        update->kind = SH_METADATA_BARRIER_NEW;
    update->barrier = which << 20 | TEST_SHARD;
    update->size = 1 + (uint32_t)test_below(test, test->members);
    update->flags = (uint8_t)test_below(test, 2);
    update->member = 1 + test_below(test, test->members);
    const struct sh_barrier *barrier = sh_metadata_barrier(metadata, update->barrier);
    update->round = barrier ? barrier->open.number : 1;
    if (update->kind == SH_METADATA_BARRIER_SIGN)
        update->value = sh_bytes_make(
            test->value, test_below(test, test_below(test, 4) ? 20 : SH_BARRIER_DATA_MAX));
}

/* The next update; borrowed until the next one. */
static inline const struct sh_metadata_update *test_update(struct test_updates *test,
                                                           const struct sh_metadata *metadata)
{
    struct sh_metadata_update *update = &test->update;
    memset(update, 0, sizeof *update);
    memset(test->value, (int)test_below(test, 256), sizeof test->value);
    uint64_t kind = test_below(test, 12);
    if (kind < 2) {
        test_batch(test, metadata);
        return update;
    }
    if (kind > 9) {
        test_zone(test, metadata);
        return update;
    }
    uint64_t caller = test_below(test, 8);
    if (caller) {
        update->caller = caller;
        update->number = test->numbers[caller] += test_below(test, 8) > 0 || !test->numbers[caller];
    }
    if (kind < 4) {
        test_barrier(test, metadata);
        return update;
    }
    update->kind = (uint8_t)(SH_METADATA_NAME + test_below(test, 4));
    update->name = test_name(test, (unsigned)test_below(test, test->names));
    update->condition = (uint8_t)(test_below(test, 4) ? SH_NAME_ANY : test_below(test, 3));
    uint64_t which = test_below(test, 9);
    shoal_nid creator = {(uint16_t)(TEST_CREATOR + 100 * (which % 4))};
    update->cid = update->expected = shoal_cid_make(creator, 1 + which);
    if (update->kind == SH_METADATA_SCRATCH_PUT)
        update->value = sh_bytes_make(
            test->value, test_below(test, test_below(test, 4) ? 50 : SH_SCRATCH_VALUE_MAX + 1));
    return update;
}

static inline uint64_t test_round_digest(const struct sh_barrier_round *round, uint64_t digest)
{
    digest = sh_mix64(digest ^ round->number) ^ round->gone ^ (round->count << 32);
    for (size_t i = 0; i < round->count; i++) {
        const struct sh_barrier_member *member = sh_barrier_member(round, i);
        digest =
            sh_hash64(sh_bytes_make(member->bytes, member->size), sh_mix64(digest ^ member->id));
    }
    return digest;
}

/* Counts a zone for each node that it names. */
static inline void test_zone_refs(struct sh_metadata_refs *found, const struct sh_zone *zone)
{
    shoal_nid nids[3 + SH_ZONE_BACKUPS_MAX] = {sh_zone_creator(zone->id), zone->owner,
                                               zone->former};
    for (unsigned i = 0; i < zone->count; i++)
        nids[3 + i] = zone->backups[i].nid;
    for (unsigned i = 0; i < 3u + zone->count; i++) {
        bool is_again = !nids[i].v;
        for (unsigned k = 0; k < i; k++)
            is_again |= nids[k].v == nids[i].v;
        found[nids[i].v].zones += !is_again;
    }
}

/* What refers to each node is what there is of names, ranges and zones. */
static inline void test_refs_check(const struct sh_metadata *metadata)
{
    static struct sh_metadata_refs found[UINT16_MAX + 1];
    size_t zones = 0, zones_short = 0, zones_recovering = 0, zones_lost = 0;
    struct sh_zone zone;
    const struct sh_metadata_shard *shard = &metadata->shards[TEST_SHARD];
    struct sh_map_cursor cursor;
    struct sh_bytes key, value;
    memset(found, 0, sizeof found);
    sh_map_seek(&shard->items, sh_bytes_text("\1"), &cursor);
    for (; sh_map_item(&cursor, &key, &value); sh_map_next(&cursor)) {
        uint16_t creator = 0;
        if (key.at[0] == SH_ITEM_NAME)
            found[shoal_cid_creator((shoal_cid){sh_load64(value.at)}).v].names++;
        if (key.at[0] == SH_ITEM_ZONE) {
            bool is_good =
                sh_metadata_zone_read(sh_bytes_make(key.at + 1, key.size - 1), value, &zone);
            SH_ASSERT(is_good);
            test_zone_refs(found, &zone);
            zones++;
            zones_short += sh_zone_is_short(&zone);
            zones_lost += (zone.flags & SH_ZONE_LOST) != 0;
            zones_recovering += zone.former.v && !(zone.flags & SH_ZONE_LOST);
        }
        if (key.at[0] == SH_ITEM_RANGE)
            creator = (uint16_t)(key.at[1] << 8 | key.at[2]);
        uint16_t owner = creator ? sh_load16(value.at) : 0;
        found[owner].ranges += owner != creator;
        found[creator].ranges += owner && owner != creator;
    }
    for (uint32_t nid = SH_PEER_NID_MIN; nid <= SH_PEER_NID_MAX; nid++) {
        struct sh_metadata_refs refs =
            sh_metadata_refs(metadata, TEST_SHARD, (shoal_nid){(uint16_t)nid});
        SH_ASSERT(refs.names == found[nid].names && refs.ranges == found[nid].ranges);
        SH_ASSERT(refs.zones == found[nid].zones);
    }
    struct sh_metadata_sizes sizes = sh_metadata_measure(metadata, TEST_SHARD);
    SH_ASSERT(sizes.zones == zones && sizes.zones_short == zones_short &&
              sizes.zones_recovering == zones_recovering && sizes.zones_lost == zones_lost);
}

/* Of all that a shard holds; without scratch: durable. */
static inline uint64_t test_digest(const struct sh_metadata *metadata, bool durable)
{
    const struct sh_metadata_shard *shard = &metadata->shards[TEST_SHARD];
    const uint64_t numbers[] = {shard->incarnation,
                                shard->counts[SH_ITEM_RANGE],
                                shard->counts[SH_ITEM_SOURCE],
                                shard->counts[SH_ITEM_NAME],
                                shard->counts[SH_ITEM_ZONE],
                                shard->counts[SH_ITEM_LAST],
                                durable ? 0 : shard->counts[SH_ITEM_SCRATCH],
                                shard->barrier_bytes,
                                durable ? 0 : shard->scratch_bytes,
                                shard->barrier_count,
                                shard->completion_count,
                                shard->updates,
                                shard->forgotten,
                                shard->is_known};
    uint64_t digest = sh_hash64(sh_bytes_make(numbers, sizeof numbers), 1);
    struct sh_map_cursor cursor;
    struct sh_bytes key, value;
    sh_map_check(&shard->items);
    test_refs_check(metadata);
    sh_map_seek(&shard->items, sh_bytes_text("\1"), &cursor);
    for (; sh_map_item(&cursor, &key, &value); sh_map_next(&cursor))
        if (!durable || key.at[0] != SH_ITEM_SCRATCH)
            digest = sh_hash64(value, sh_hash64(key, digest));
    for (size_t i = 0; i < shard->completion_count; i++) {
        const struct sh_metadata_completion *done = &shard->completions[i];
        const uint64_t fields[] = {done->caller, done->number, done->update, done->result.cid.v,
                                   done->result.err};
        digest = sh_hash64(sh_bytes_make(fields, sizeof fields), digest);
    }
    for (size_t i = 0; i < shard->barrier_count; i++) {
        const struct sh_barrier *barrier = shard->barriers[i];
        digest = sh_mix64(digest ^ barrier->id) ^ barrier->size ^ (uint64_t)barrier->flags << 40;
        digest = test_round_digest(&barrier->last, test_round_digest(&barrier->open, digest));
    }
    return digest;
}

#endif
