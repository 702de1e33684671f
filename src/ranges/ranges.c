/* The tree's life and its readers. How nodes change is in change.c, how they look in ranges_int.h.
 *
 * The invariants that lookups rest on: the first boundary of all is at ID 0; a node's first is
 * exactly its first boundary, in its parent as in itself; two boundaries in a row, in one leaf or
 * over its end, say different things. So the stretch around an ID ends before the next boundary of
 * its leaf or, in the leaf's last, before the next first that was passed on the way down. */
#include "ranges/ranges.h"

#include <stdlib.h>

#include "ranges/ranges_int.h"

/* What a removal of whole ranges may need before it gives nodes back: at most as many as it
 * replaces, which are two on each level and two more to join them with. */
#define LEAVES_RESERVED 8
#define INNERS_RESERVED (4 * SH_LEVELS_MAX)
#define LEAVES_DEFERRED 256
#define INNERS_DEFERRED 16
#define NODES_MIN 64
#define LANES 16

enum shoal_err sh_ranges_create(size_t nodes_max, struct sh_ranges **ranges_out)
{
    SH_ASSERT(nodes_max >= NODES_MIN && nodes_max <= INT32_MAX);
    struct sh_ranges *ranges = calloc(1, sizeof *ranges);
    if (!ranges)
        return SHOAL_ENOMEM;
    uint32_t leaves = (uint32_t)nodes_max;
    uint32_t inners = leaves / 8 + INNERS_RESERVED + INNERS_DEFERRED;
    enum shoal_err err =
        sh_pool_create(&ranges->leaves, SH_LEAF_WORDS, leaves, LEAVES_RESERVED, LEAVES_DEFERRED);
    if (!err)
        err = sh_pool_create(&ranges->inners, SH_INNER_WORDS, inners, INNERS_RESERVED,
                             INNERS_DEFERRED);
    if (!err)
        err = sh_codes_create(&ranges->codes);
    if (!err)
        err = sh_change_create(&ranges->change);
    if (err) {
        sh_ranges_destroy(ranges);
        return err;
    }
    struct sh_boundary nothing = {.key = 0, .code = SH_CODE_GAP};
    struct sh_child root;
    bool made = sh_leaf_make(ranges, false, &nothing, 1, &root);
    SH_ASSERT(made);
    sh_word_set(&ranges->root, root.ref);
    *ranges_out = ranges;
    return SHOAL_OK;
}

void sh_ranges_destroy(struct sh_ranges *ranges)
{
    if (!ranges)
        return;
    sh_change_destroy(ranges->change);
    sh_codes_destroy(&ranges->codes);
    sh_pool_destroy(&ranges->inners);
    sh_pool_destroy(&ranges->leaves);
    free(ranges);
}

/* Ask for all lines of a leaf, or all that have an inner node's firsts, so that their misses
 * overlap. Always inlined: gcc takes a function that only prefetches for one without effect, and
 * drops the call. */
static inline __attribute__((always_inline)) void words_prefetch(const sh_word *node, unsigned end)
{
    for (unsigned at = 0; at < end; at += 8)
        __builtin_prefetch((const void *)&node[at]);
}
#define leaf_prefetch(leaf) words_prefetch(leaf, SH_LEAF_WORDS)
#define inner_prefetch(inner) words_prefetch(inner, SH_INNER_REF)

/* Looks a key up in the leaf of a reference; false if it isn't that leaf any more. */
static bool leaf_look(const struct sh_ranges *ranges, uint64_t ref, uint64_t key,
                      struct sh_stretch *stretch)
{
    const sh_word *leaf = sh_node_of(ranges, ref);
    uint64_t head = sh_word_get(&leaf[0]);
    uint32_t count = sh_head_count(head);
    if ((uint32_t)head != (uint32_t)ref || !count)
        return false;
    const struct sh_leaf_shape *shape = &sh_leaf_shapes[sh_head_kind(head)];
    uint32_t index = sh_leaf_search(leaf, shape, count, key);
    stretch->first = sh_leaf_key(leaf, shape, index);
    if (index + 1 < count)
        stretch->last = sh_leaf_key(leaf, shape, index + 1) - 1;
    if (shape->is_raw) {
        stretch->is_gap = sh_word_get(&leaf[SH_GAPS_AT]) >> index & 1;
        stretch->value = sh_word_get(&leaf[shape->values_at + index]);
    } else {
        uint32_t code = sh_leaf_code(leaf, shape, index);
        stretch->is_gap = code == SH_CODE_GAP;
        stretch->value = sh_codes_value(&ranges->codes, code);
    }
    return sh_word_get(&leaf[0]) == head;
}

/* One step down, from an inner node to its child, of which the group is known; false if the node
 * was taken again. */
static bool inner_look(const struct sh_ranges *ranges, uint64_t *ref, uint32_t group, uint64_t key,
                       struct sh_stretch *stretch)
{
    const sh_word *inner = sh_node_of(ranges, *ref);
    uint64_t head = sh_word_get(&inner[0]);
    uint32_t count = sh_head_count(head);
    if ((uint32_t)head != (uint32_t)*ref || !count)
        return false;
    uint32_t index = sh_inner_search(inner, count, group, key);
    if (index + 1 < count)
        stretch->last = sh_word_get(&inner[SH_INNER_FIRST + index + 1]) - 1;
    *ref = sh_word_get(&inner[SH_INNER_REF + index]);
    return sh_word_get(&inner[0]) == head;
}

/* One way down; false if a node on it was taken again meanwhile. A group that was found in a node's
 * next life is no harm: the node's head tells. */
static bool look_once(const struct sh_ranges *ranges, uint64_t key, struct sh_stretch *stretch)
{
    uint64_t ref = sh_word_get(&ranges->root);
    stretch->last = UINT64_MAX;
    while (sh_ref_is_inner(ref)) {
        inner_prefetch(sh_node_of(ranges, ref));
        uint32_t group = sh_inner_group(sh_node_of(ranges, ref), key);
        if (!inner_look(ranges, &ref, group, key, stretch))
            return false;
    }
    leaf_prefetch(sh_node_of(ranges, ref));
    return leaf_look(ranges, ref, key, stretch);
}

void sh_ranges_look(const struct sh_ranges *ranges, uint64_t key, struct sh_stretch *stretch_out)
{
    /* Each failure means that the changer has finished many changes since; it can't last. */
    while (!look_once(ranges, key, stretch_out))
        ;
    SH_VERIFY(stretch_out->first <= key && key <= stretch_out->last);
}

bool sh_ranges_find(const struct sh_ranges *ranges, shoal_cid cid, struct sh_range *range_out)
{
    struct sh_stretch stretch;
    sh_ranges_look(ranges, cid.v, &stretch);
    if (stretch.is_gap)
        return false;
    *range_out = (struct sh_range){{stretch.first}, {stretch.last}, stretch.value};
    return true;
}

/* Lookups side by side: a step of each, then the next step of each, so that their misses overlap. A
 * lane whose node was taken again starts again alone. */
struct lanes {
    const shoal_cid *cids;
    unsigned count;
    uint64_t refs[LANES];
    uint32_t groups[LANES];
    bool failed[LANES];
    struct sh_stretch stretches[LANES];
};

/* All lanes that are at inner nodes go one level down; false if none was. */
static bool lanes_down(const struct sh_ranges *ranges, struct lanes *lanes)
{
    bool any = false;
    for (unsigned i = 0; i < lanes->count; i++)
        if (sh_ref_is_inner(lanes->refs[i]))
            lanes->groups[i] = sh_inner_group(sh_node_of(ranges, lanes->refs[i]), lanes->cids[i].v);
    for (unsigned i = 0; i < lanes->count; i++) {
        if (!sh_ref_is_inner(lanes->refs[i]))
            continue;
        any = true;
        lanes->failed[i] = !inner_look(ranges, &lanes->refs[i], lanes->groups[i], lanes->cids[i].v,
                                       &lanes->stretches[i]);
        if (lanes->failed[i])
            lanes->refs[i] = 0; /* goes no further */
        else if (sh_ref_is_inner(lanes->refs[i]))
            __builtin_prefetch((const void *)sh_node_of(ranges, lanes->refs[i]));
        else
            leaf_prefetch(sh_node_of(ranges, lanes->refs[i]));
    }
    return any;
}

static void lanes_look(const struct sh_ranges *ranges, struct lanes *lanes)
{
    uint64_t root = sh_word_get(&ranges->root);
    for (unsigned i = 0; i < lanes->count; i++) {
        lanes->refs[i] = root;
        lanes->failed[i] = false;
        lanes->stretches[i].last = UINT64_MAX;
    }
    while (lanes_down(ranges, lanes))
        ;
    for (unsigned i = 0; i < lanes->count; i++) {
        struct sh_stretch *stretch = &lanes->stretches[i];
        if (lanes->failed[i] || !leaf_look(ranges, lanes->refs[i], lanes->cids[i].v, stretch))
            sh_ranges_look(ranges, lanes->cids[i].v, stretch);
    }
}

size_t sh_ranges_find_multi(const struct sh_ranges *ranges, const shoal_cid *cids, size_t count,
                            struct sh_range *ranges_out)
{
    size_t found = 0;
    for (size_t at = 0; at < count; at += LANES) {
        struct lanes lanes;
        lanes.cids = &cids[at];
        lanes.count = count - at < LANES ? (unsigned)(count - at) : LANES;
        lanes_look(ranges, &lanes);
        for (unsigned i = 0; i < lanes.count; i++) {
            const struct sh_stretch *from = &lanes.stretches[i];
            struct sh_range *to = &ranges_out[at + i];
            /* No range: its end comes before its beginning. */
            *to = (struct sh_range){{1}, {0}, 0};
            if (!from->is_gap)
                *to = (struct sh_range){{from->first}, {from->last}, from->value};
            found += !from->is_gap;
        }
    }
    return found;
}

bool sh_ranges_next(const struct sh_ranges *ranges, shoal_cid from, struct sh_range *range_out)
{
    /* A gap is followed by a range, unless a change has come between the two looks. */
    while (!sh_ranges_find(ranges, from, range_out)) {
        struct sh_stretch stretch;
        sh_ranges_look(ranges, from.v, &stretch);
        if (stretch.is_gap && stretch.last == UINT64_MAX)
            return false;
        if (stretch.is_gap)
            from.v = stretch.last + 1;
    }
    return true;
}

size_t sh_ranges_count(const struct sh_ranges *ranges)
{
    /* relaxed: a plain counter; it publishes nothing */
    return atomic_load_explicit(&ranges->count, memory_order_relaxed);
}

static size_t pool_bytes(const struct sh_pool *pool)
{
    size_t touched = atomic_load_explicit(&pool->touched, memory_order_relaxed);
    return touched * pool->words_each * sizeof(sh_word);
}

size_t sh_ranges_bytes(const struct sh_ranges *ranges)
{
    return sizeof *ranges + sh_change_bytes() + pool_bytes(&ranges->leaves) +
           pool_bytes(&ranges->inners) + sh_codes_bytes(&ranges->codes);
}
