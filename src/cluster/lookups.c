#include "cluster/lookups.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

#define STRIPES 16
#define CHANCES_MAX 32 /* marked ranges that one eviction passes over */
#define RETRIES_MAX 64 /* evictions for one put, where the tree has no node left */
/* The emptiest leaf that is usual has 20 boundaries, and a range at most two. The changes' own
 * nodes, and those that wait to be taken again, come on top. */
#define RANGES_PER_LEAF 10
#define LEAVES_MORE 1024
#define LEAF_BYTES (512 + 1856 / 8) /* with its part of an inner node */
#define VALUES_BYTES 1310720        /* the table of distinct values, if all owners are in it */

/* What threads count, each in a line of its own as long as there are not more than stripes. */
struct stripe {
    _Alignas(64) _Atomic uint64_t hits;
    _Atomic uint64_t misses;
};

struct sh_lookups {
    struct stripe stripes[STRIPES];
    struct sh_ranges *ranges;
    /* By hash of a range's first ID: used since the hand came by. All accesses are relaxed: a mark
     * says nothing about other memory. */
    _Atomic uint8_t *marks;
    uint64_t mark_mask;
    uint32_t ranges_max;
    shoal_cid hand;
    /* Written by the changer alone, read by anyone; relaxed. */
    _Atomic uint64_t puts, evictions, drops;
};

static size_t leaves_max(uint32_t ranges_max)
{
    return ranges_max / RANGES_PER_LEAF + LEAVES_MORE;
}

size_t sh_lookups_bytes_max(uint32_t ranges_max)
{
    return leaves_max(ranges_max) * LEAF_BYTES + VALUES_BYTES + 4 * (size_t)ranges_max + 65536;
}

enum shoal_err sh_lookups_create(uint32_t ranges_max, struct sh_lookups **lookups_out)
{
    SH_ASSERT(ranges_max > 0);
    struct sh_lookups *lookups = aligned_alloc(64, sizeof *lookups);
    if (!lookups)
        return SHOAL_ENOMEM;
    *lookups = (struct sh_lookups){.ranges_max = ranges_max, .mark_mask = 63};
    while (lookups->mark_mask + 1 < ranges_max)
        lookups->mark_mask = lookups->mark_mask * 2 + 1;
    lookups->marks = calloc(lookups->mark_mask + 1, 1);
    enum shoal_err err = SHOAL_ENOMEM;
    if (lookups->marks)
        err = sh_ranges_create(leaves_max(ranges_max), &lookups->ranges);
    if (err) {
        sh_lookups_destroy(lookups);
        return err;
    }
    *lookups_out = lookups;
    return SHOAL_OK;
}

void sh_lookups_destroy(struct sh_lookups *lookups)
{
    if (!lookups)
        return;
    sh_ranges_destroy(lookups->ranges);
    free((void *)lookups->marks);
    free(lookups);
}

/* --- Readers --------------------------------------------------------------------------------- */

/* The calling thread's stripe. It only decides where is counted, never what is done. */
static struct stripe *stripe_of(struct sh_lookups *lookups)
{
    static _Atomic unsigned next;
    static _Thread_local unsigned mine; /* 0: not chosen yet */
    if (!mine)
        mine = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % STRIPES + 1;
    return &lookups->stripes[mine - 1];
}

static _Atomic uint8_t *mark_of(const struct sh_lookups *lookups, const struct sh_range *range)
{
    return &lookups->marks[sh_mix64(range->first.v) & lookups->mark_mask];
}

bool sh_lookups_find(struct sh_lookups *lookups, shoal_cid cid, shoal_nid *owner_out)
{
    struct sh_range range;
    struct stripe *stripe = stripe_of(lookups);
    if (!sh_ranges_find(lookups->ranges, cid, &range)) {
        atomic_fetch_add_explicit(&stripe->misses, 1, memory_order_relaxed);
        return false;
    }
    atomic_fetch_add_explicit(&stripe->hits, 1, memory_order_relaxed);
    /* Looked at first, since most are marked already and a store takes the line from others. */
    _Atomic uint8_t *mark = mark_of(lookups, &range);
    if (!atomic_load_explicit(mark, memory_order_relaxed))
        atomic_store_explicit(mark, 1, memory_order_relaxed);
    *owner_out = (shoal_nid){(uint16_t)range.value};
    return true;
}

bool sh_lookups_look(const struct sh_lookups *lookups, shoal_cid cid, struct sh_range *range_out)
{
    return sh_ranges_find(lookups->ranges, cid, range_out);
}

struct sh_lookups_stats sh_lookups_stats(const struct sh_lookups *lookups)
{
    struct sh_lookups_stats stats = {
        .puts = atomic_load_explicit(&lookups->puts, memory_order_relaxed),
        .evictions = atomic_load_explicit(&lookups->evictions, memory_order_relaxed),
        .drops = atomic_load_explicit(&lookups->drops, memory_order_relaxed),
        .ranges = sh_ranges_count(lookups->ranges),
        .bytes =
            sh_ranges_bytes(lookups->ranges) + lookups->mark_mask + 1 + sizeof(struct sh_lookups),
    };
    for (unsigned i = 0; i < STRIPES; i++) {
        const struct stripe *stripe = &lookups->stripes[i];
        stats.hits += atomic_load_explicit(&stripe->hits, memory_order_relaxed);
        stats.misses += atomic_load_explicit(&stripe->misses, memory_order_relaxed);
    }
    return stats;
}

/* --- The changer ----------------------------------------------------------------------------- */

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void range_remove(struct sh_lookups *lookups, const struct sh_range *range)
{
    enum shoal_err err = sh_ranges_remove(lookups->ranges, range->first, range->last);
    SH_ASSERT(!err); /* a whole range */
}

/* Takes out the next range that has not been used since the hand came by, but not the one that
 * holds `spared`; the next one at all after CHANCES_MAX that were used, or where readers mark as
 * fast as this clears. False: there is none. */
static bool evict(struct sh_lookups *lookups, shoal_cid spared)
{
    unsigned chances = CHANCES_MAX, rounds = 0;
    while (rounds <= 2) {
        struct sh_range range;
        if (!sh_ranges_next(lookups->ranges, lookups->hand, &range)) {
            lookups->hand.v = 0;
            rounds++;
            continue;
        }
        bool is_last = range.last.v == UINT64_MAX;
        lookups->hand.v = is_last ? 0 : range.last.v + 1;
        rounds += is_last;
        if (range.first.v <= spared.v && spared.v <= range.last.v)
            continue;
        _Atomic uint8_t *mark = mark_of(lookups, &range);
        if (rounds < 2 && chances && atomic_load_explicit(mark, memory_order_relaxed)) {
            atomic_store_explicit(mark, 0, memory_order_relaxed);
            chances--;
            continue;
        }
        range_remove(lookups, &range);
        count(&lookups->evictions);
        return true;
    }
    return false;
}

/* Takes out all ranges of which a part is in another one. */
static void overlaps_drop(struct sh_lookups *lookups, const struct sh_range *range)
{
    struct sh_range old;
    while (sh_ranges_next(lookups->ranges, range->first, &old) && old.first.v <= range->last.v) {
        range_remove(lookups, &old);
        count(&lookups->drops);
    }
}

void sh_lookups_put(struct sh_lookups *lookups, const struct sh_range *range)
{
    SH_ASSERT(range->first.v <= range->last.v);
    enum shoal_err err;
    unsigned retries = RETRIES_MAX;
    do {
        err = sh_ranges_set(lookups->ranges, range->first, range->last, range->value);
    } while (err == SHOAL_ELIMIT && retries-- && evict(lookups, range->first));
    if (err) {
        SH_DEBUG("cluster", "lookup not cached", SH_ERR(err));
        overlaps_drop(lookups, range);
        return;
    }
    count(&lookups->puts);
    while (sh_ranges_count(lookups->ranges) > lookups->ranges_max) {
        bool is_evicted = evict(lookups, range->first);
        SH_ASSERT(is_evicted); /* there are two at least, and one is spared */
    }
}

void sh_lookups_put_many(struct sh_lookups *lookups, const struct sh_range *ranges, size_t count)
{
    SH_ASSERT(count > 0);
    size_t others = count - 1 < lookups->ranges_max / 8 ? count - 1 : lookups->ranges_max / 8;
    for (size_t i = 1; i <= others; i++)
        sh_lookups_put(lookups, &ranges[i]);
    sh_lookups_put(lookups, &ranges[0]); /* the last one is not evicted by the others */
}

void sh_lookups_drop(struct sh_lookups *lookups, shoal_cid cid)
{
    struct sh_range range;
    if (!sh_ranges_find(lookups->ranges, cid, &range))
        return;
    range_remove(lookups, &range);
    count(&lookups->drops);
}

void sh_lookups_prune(struct sh_lookups *lookups, bool (*keeps)(const void *arg, shoal_nid owner),
                      const void *arg)
{
    struct sh_range range;
    shoal_cid from = {0};
    while (sh_ranges_next(lookups->ranges, from, &range)) {
        if (!keeps(arg, (shoal_nid){(uint16_t)range.value})) {
            range_remove(lookups, &range);
            count(&lookups->drops);
        }
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
}
