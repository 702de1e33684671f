/* Filling a tree from sorted ranges: leaves and inner nodes are made full, from the left and from
 * below, beside the tree that is there; then one store replaces it. */
#include <stdlib.h>
#include <string.h>

#include "ranges/ranges_int.h"

struct level {
    struct sh_child children[SH_FAN];
    uint32_t count;
};

struct filling {
    struct sh_ranges *ranges;
    struct sh_boundary list[SH_LEAF_MOST + 2]; /* boundaries that are in no leaf yet */
    uint32_t count;
    size_t total;
    struct level levels[SH_LEVELS_MAX + 1]; /* of children that are in no node yet; 0: leaves */
};

static bool level_flush(struct filling *filling, unsigned at);

static bool level_push(struct filling *filling, unsigned at, const struct sh_child *child)
{
    SH_ASSERT(at <= SH_LEVELS_MAX);
    struct level *level = &filling->levels[at];
    if (level->count == SH_FAN && !level_flush(filling, at)) {
        (void)sh_node_retire(filling->ranges, child->ref, true);
        return false;
    }
    level->children[level->count++] = *child;
    return true;
}

/* Makes a node of a level's children. */
static bool level_flush(struct filling *filling, unsigned at)
{
    struct level *level = &filling->levels[at];
    struct sh_child inner;
    if (!sh_inner_make(filling->ranges, false, level->children, level->count, &inner))
        return false;
    level->count = 0;
    return level_push(filling, at + 1, &inner);
}

/* Makes a leaf of as much of the list as fits. */
static bool list_flush(struct filling *filling)
{
    struct sh_boundary *list = filling->list;
    enum sh_leaf_kind kind;
    uint32_t count = sh_leaf_fit(list, filling->count, 0, &kind);
    struct sh_child leaf;
    if (!sh_leaf_make(filling->ranges, false, list, count, &leaf))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (list[i].is_held)
            sh_codes_drop(&filling->ranges->codes, list[i].code);
    filling->count -= count;
    memmove(list, &list[count], filling->count * sizeof *list);
    return level_push(filling, 0, &leaf);
}

static bool boundary_push(struct filling *filling, uint64_t key, bool is_gap, uint64_t value)
{
    struct sh_boundary *to = &filling->list[filling->count++];
    *to = (struct sh_boundary){.key = key, .value = value, .code = SH_CODE_GAP};
    if (!is_gap) {
        to->code = sh_codes_hold(&filling->ranges->codes, value);
        to->is_held = to->code != SH_CODE_RAW;
        filling->total++;
    }
    return filling->count <= SH_LEAF_MOST || list_flush(filling);
}

static enum shoal_err source_read(struct filling *filling, sh_ranges_source source, void *arg)
{
    uint64_t next = 0; /* the ID behind the last range */
    bool is_end = false;
    bool has_last = false;
    struct sh_range range, last = {.value = 0};
    while (source(arg, &range)) {
        if (range.first.v > range.last.v || range.first.v < next || is_end)
            return SHOAL_EINVAL;
        bool touches = has_last && range.first.v == next;
        if (!touches && range.first.v > next && !boundary_push(filling, next, true, 0))
            return SHOAL_ELIMIT;
        if (!(touches && range.value == last.value) &&
            !boundary_push(filling, range.first.v, false, range.value))
            return SHOAL_ELIMIT;
        is_end = range.last.v == UINT64_MAX;
        next = range.last.v + 1;
        last = range;
        has_last = true;
    }
    if (!is_end && !boundary_push(filling, next, true, 0))
        return SHOAL_ELIMIT;
    while (filling->count)
        if (!list_flush(filling))
            return SHOAL_ELIMIT;
    return SHOAL_OK;
}

/* Makes nodes of what is left on each level; the last one is the root. */
static bool root_make(struct filling *filling, uint64_t *root_out, unsigned *levels_out)
{
    unsigned at = 0;
    for (;;) {
        bool is_top = true;
        for (unsigned above = at + 1; above <= SH_LEVELS_MAX; above++)
            is_top = is_top && !filling->levels[above].count;
        if (is_top && filling->levels[at].count == 1)
            break;
        if (filling->levels[at].count && !level_flush(filling, at))
            return false;
        at++;
    }
    *root_out = filling->levels[at].children[0].ref;
    *levels_out = at;
    return true;
}

static void filling_undo(struct filling *filling)
{
    for (uint32_t i = 0; i < filling->count; i++)
        if (filling->list[i].is_held)
            sh_codes_drop(&filling->ranges->codes, filling->list[i].code);
    for (unsigned at = 0; at <= SH_LEVELS_MAX; at++)
        for (uint32_t i = 0; i < filling->levels[at].count; i++)
            (void)sh_node_retire(filling->ranges, filling->levels[at].children[i].ref, true);
}

enum shoal_err sh_ranges_fill(struct sh_ranges *ranges, sh_ranges_source source, void *arg)
{
    struct filling *filling = calloc(1, sizeof *filling);
    if (!filling)
        return SHOAL_ENOMEM;
    filling->ranges = ranges;
    uint64_t root = 0;
    unsigned levels = 0;
    enum shoal_err err = source_read(filling, source, arg);
    if (!err && !root_make(filling, &root, &levels))
        err = SHOAL_ELIMIT;
    if (err) {
        filling_undo(filling);
        free(filling);
        return err;
    }
    uint64_t old = sh_word_get(&ranges->root);
    sh_word_set(&ranges->root, root);
    ranges->levels = levels;
    /* relaxed: a plain counter; it publishes nothing */
    atomic_store_explicit(&ranges->count, filling->total, memory_order_relaxed);
    (void)sh_node_retire(ranges, old, true);
    free(filling);
    return SHOAL_OK;
}
