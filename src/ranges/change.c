/* Changes: a run of leaves is read into a list, the list is changed, new leaves are made of it, and
 * so on upwards until one store into a reference that nobody else needs changed makes it visible.
 *
 * Usually that store is into the parent of the one leaf that changed. When the number of leaves or
 * a leaf's first differs afterwards, the parent is made anew too. Nothing is published before
 * everything is made, so a change that finds no memory has changed nothing; nothing is retired
 * before it is out of reach. */
#include <stdlib.h>
#include <string.h>

#include "ranges/ranges_int.h"

#define LIST_MOST 336     /* two cut leaves, what is set, two neighbours: 322 */
#define PIECES_MOST 16    /* 322 boundaries at 28 a leaf */
#define GATHERED_MOST 512 /* two inner nodes, a neighbour, the pieces */
#define DOOMED_MOST ((SH_LEVELS_MAX + 1) * 260)
#define FRESH_MOST 64
/* After sharing with a neighbour, room for some more: else the next change would share again. */
#define SHARE_SPARE 1 /* thirty-seconds of a leaf */
#define JOIN_SPARE 8
#define INNER_SPARE 16 /* children */

struct doomed {
    uint64_t ref;
    bool with_all;
};

struct sh_change {
    struct sh_boundary list[LIST_MOST];
    uint32_t count;
    uint32_t cut; /* the list's first that comes from the run's second leaf; 0: one leaf */
    bool packs;   /* growing at the end: leaves on the left stay full */
    bool may_dip;
    uint32_t before; /* ranges in the leaves that were read */
    uint32_t ends[PIECES_MOST];
    uint32_t pieces;
    struct sh_child children[PIECES_MOST]; /* what replaces the run on the current level */
    uint32_t child_count;
    struct sh_child gathered[GATHERED_MOST];
    struct doomed doomed[DOOMED_MOST];
    uint32_t doomed_count;
    uint64_t fresh[FRESH_MOST];
    uint32_t fresh_count;
};

/* The way from the root to a leaf: steps[0] is the leaf's parent. */
struct path {
    uint64_t leaf;
    struct {
        uint64_t ref;
        uint32_t slot;
    } steps[SH_LEVELS_MAX];
};

enum shoal_err sh_change_create(struct sh_change **change_out)
{
    struct sh_change *change = calloc(1, sizeof *change);
    if (!change)
        return SHOAL_ENOMEM;
    *change_out = change;
    return SHOAL_OK;
}

void sh_change_destroy(struct sh_change *change)
{
    free(change);
}

size_t sh_change_bytes(void)
{
    return sizeof(struct sh_change);
}

static uint32_t node_count(const struct sh_ranges *ranges, uint64_t ref)
{
    return sh_head_count(sh_word_get(&sh_node_of(ranges, ref)[0]));
}

static struct sh_child inner_child(const struct sh_ranges *ranges, uint64_t ref, uint32_t slot)
{
    const sh_word *inner = sh_node_of(ranges, ref);
    return (struct sh_child){sh_word_get(&inner[SH_INNER_FIRST + slot]),
                             sh_word_get(&inner[SH_INNER_REF + slot])};
}

static void path_find(const struct sh_ranges *ranges, uint64_t key, struct path *path_out)
{
    uint64_t ref = sh_word_get(&ranges->root);
    for (unsigned level = ranges->levels; level > 0; level--) {
        uint32_t count = node_count(ranges, ref);
        const sh_word *inner = sh_node_of(ranges, ref);
        uint32_t slot = sh_inner_search(inner, count, sh_inner_group(inner, key), key);
        path_out->steps[level - 1].ref = ref;
        path_out->steps[level - 1].slot = slot;
        ref = inner_child(ranges, ref, slot).ref;
    }
    SH_ASSERT(!sh_ref_is_inner(ref));
    path_out->leaf = ref;
}

static void doom(struct sh_change *change, uint64_t ref, bool with_all)
{
    SH_ASSERT(change->doomed_count < DOOMED_MOST);
    change->doomed[change->doomed_count++] = (struct doomed){ref, with_all};
}

/* Dooms what lies between the two paths, on every level. */
static void between_doom(struct sh_ranges *ranges, const struct path *left,
                         const struct path *right)
{
    for (unsigned level = 0; level < ranges->levels; level++) {
        uint64_t ref = left->steps[level].ref;
        bool is_one = ref == right->steps[level].ref;
        uint32_t end = is_one ? right->steps[level].slot : node_count(ranges, ref);
        for (uint32_t i = left->steps[level].slot + 1; i < end; i++)
            doom(ranges->change, inner_child(ranges, ref, i).ref, true);
        if (is_one)
            continue;
        ref = right->steps[level].ref;
        for (uint32_t i = 0; i < right->steps[level].slot; i++)
            doom(ranges->change, inner_child(ranges, ref, i).ref, true);
    }
}

static uint32_t ranges_in(const struct sh_boundary *list, uint32_t count)
{
    uint32_t ranges = 0;
    for (uint32_t i = 0; i < count; i++)
        ranges += list[i].code != SH_CODE_GAP;
    return ranges;
}

static void list_push(struct sh_change *change, const struct sh_boundary *boundary, uint64_t key)
{
    SH_ASSERT(change->count < LIST_MOST);
    struct sh_boundary *to = &change->list[change->count++];
    *to = *boundary;
    to->key = key;
    to->is_held = false;
}

/* What the ID before the leaf's first says. */
static struct sh_boundary boundary_before(const struct sh_ranges *ranges, uint64_t key)
{
    struct sh_stretch stretch;
    sh_ranges_look(ranges, key - 1, &stretch);
    return (struct sh_boundary){.value = stretch.value,
                                .code = stretch.is_gap ? SH_CODE_GAP : SH_CODE_RAW};
}

/* Makes the list: the left leaf's boundaries before first, what is set, the right leaf's ones after
 * last. */
static void list_make(struct sh_ranges *ranges, uint64_t first, uint64_t last,
                      const struct sh_boundary *what, const struct path *left,
                      const struct path *right)
{
    struct sh_change *change = ranges->change;
    uint32_t count = sh_leaf_read(ranges, sh_ref_index(left->leaf), change->list);
    change->before = ranges_in(change->list, count);
    struct sh_boundary other[SH_LEAF_MOST];
    uint32_t others = count;
    if (left->leaf == right->leaf) {
        memcpy(other, change->list, count * sizeof *other);
    } else {
        others = sh_leaf_read(ranges, sh_ref_index(right->leaf), other);
        change->before += ranges_in(other, others);
    }
    uint32_t kept = 0;
    while (kept < count && change->list[kept].key < first)
        kept++;
    change->count = kept;
    bool is_needed = true; /* the first boundary of all is always there */
    if (kept) {
        is_needed = !sh_boundary_same(ranges, &change->list[kept - 1], what);
    } else if (first) {
        struct sh_boundary before = boundary_before(ranges, first);
        is_needed = !sh_boundary_same(ranges, &before, what);
    }
    if (is_needed)
        list_push(change, what, first);
    change->cut = left->leaf == right->leaf ? 0 : change->count;
    change->packs = true;
    if (last == UINT64_MAX)
        return;
    uint32_t at = 0;
    while (at + 1 < others && other[at + 1].key <= last + 1)
        at++;
    if (!sh_boundary_same(ranges, &other[at], what))
        list_push(change, &other[at], last + 1);
    change->packs = at + 1 == others;
    while (++at < others)
        list_push(change, &other[at], other[at].key);
}

/* Numbers for the raw values of the list, as far as there are any; held until list_drop. */
static void list_hold(struct sh_ranges *ranges)
{
    struct sh_change *change = ranges->change;
    for (uint32_t i = 0; i < change->count; i++) {
        struct sh_boundary *boundary = &change->list[i];
        if (boundary->code != SH_CODE_RAW)
            continue;
        boundary->code = sh_codes_hold(&ranges->codes, boundary->value);
        boundary->is_held = boundary->code != SH_CODE_RAW;
    }
}

static void list_drop(struct sh_ranges *ranges)
{
    struct sh_change *change = ranges->change;
    for (uint32_t i = 0; i < change->count; i++)
        if (change->list[i].is_held)
            sh_codes_drop(&ranges->codes, change->list[i].code);
}

static bool fits(const struct sh_change *change, uint32_t from, uint32_t to, uint32_t spare)
{
    enum sh_leaf_kind kind;
    return sh_leaf_fit(&change->list[from], to - from, spare, &kind) == to - from;
}

static void greedy_plan(struct sh_change *change)
{
    change->pieces = 0;
    for (uint32_t at = 0; at < change->count;) {
        enum sh_leaf_kind kind;
        at += sh_leaf_fit(&change->list[at], change->count - at, 0, &kind);
        SH_ASSERT(change->pieces < PIECES_MOST);
        change->ends[change->pieces++] = at;
    }
}

/* Cuts the list into leaves of which `spare` thirty-seconds stay free: one if it can be, or where
 * two leaves met before, or full ones from the left, or equal ones. */
static void list_plan(struct sh_change *change, uint32_t spare)
{
    uint32_t count = change->count;
    change->pieces = 1;
    change->ends[0] = count;
    if (count == 0)
        change->pieces = 0;
    if (count == 0 || fits(change, 0, count, spare))
        return;
    uint32_t cut = change->cut;
    if (!spare && cut && cut < count && fits(change, 0, cut, 0) && fits(change, cut, count, 0)) {
        change->ends[0] = cut;
        change->ends[1] = count;
        change->pieces = 2;
        return;
    }
    if (!spare && change->packs) {
        greedy_plan(change);
        return;
    }
    bool good = false;
    while (!good) {
        uint32_t pieces = ++change->pieces;
        SH_ASSERT(pieces <= PIECES_MOST);
        good = true;
        for (uint32_t i = 0; i < pieces; i++) {
            uint32_t from = count * i / pieces;
            change->ends[i] = count * (i + 1) / pieces;
            good = good && fits(change, from, change->ends[i], spare);
        }
    }
}

/* The emptier of the run's neighbours under the same parents, which are on this level of the paths.
 * False if there is none. */
static bool neighbour_find(const struct sh_ranges *ranges, unsigned level, const struct path *left,
                           const struct path *right, bool *goes_right_out, uint64_t *ref_out)
{
    uint64_t parent = right->steps[level].ref;
    uint32_t slot = right->steps[level].slot + 1;
    uint32_t after = UINT32_MAX; /* how full */
    uint32_t before = UINT32_MAX;
    uint64_t refs[2] = {0, 0};
    if (slot < node_count(ranges, parent)) {
        refs[true] = inner_child(ranges, parent, slot).ref;
        after = node_count(ranges, refs[true]);
    }
    if (left->steps[level].slot) {
        refs[false] = inner_child(ranges, left->steps[level].ref, left->steps[level].slot - 1).ref;
        before = node_count(ranges, refs[false]);
    }
    *goes_right_out = after <= before;
    *ref_out = refs[after <= before];
    return after != before || after != UINT32_MAX;
}

/* Takes a neighbour under the same parent into the run: to share with, or to be one with if both
 * fit into one leaf. If that does not work out, all is as before. */
static void run_extend(struct sh_ranges *ranges, struct path *left, struct path *right, bool joins)
{
    struct sh_change *change = ranges->change;
    uint64_t parent = right->steps[0].ref;
    bool goes_right = right->steps[0].slot + 1 < node_count(ranges, parent);
    if (!goes_right && left->steps[0].slot == 0)
        return;
    uint64_t neighbour = goes_right
                             ? inner_child(ranges, parent, right->steps[0].slot + 1).ref
                             : inner_child(ranges, left->steps[0].ref, left->steps[0].slot - 1).ref;
    struct sh_boundary other[SH_LEAF_MOST];
    uint32_t others = sh_leaf_read(ranges, sh_ref_index(neighbour), other);
    uint32_t count = change->count;
    struct sh_boundary *list = change->list;
    SH_ASSERT(count + others <= LIST_MOST);
    if (!goes_right)
        memmove(&list[others], list, count * sizeof *list);
    memcpy(goes_right ? &list[count] : list, other, others * sizeof *list);
    change->count += others;
    list_plan(change, joins ? JOIN_SPARE : SHARE_SPARE);
    if (joins && change->pieces > 1) {
        if (!goes_right)
            memmove(list, &list[others], count * sizeof *list);
        change->count = count;
        list_plan(change, 0);
        return;
    }
    change->before += ranges_in(other, others);
    doom(change, neighbour, false);
    if (goes_right)
        right->steps[0].slot++;
    else
        left->steps[0].slot--;
}

static bool fresh_add(struct sh_change *change, bool made, uint32_t at)
{
    if (!made)
        return false;
    SH_ASSERT(change->fresh_count < FRESH_MOST);
    change->fresh[change->fresh_count++] = change->children[at].ref;
    return true;
}

static bool leaves_make(struct sh_ranges *ranges)
{
    struct sh_change *change = ranges->change;
    uint32_t from = 0;
    for (uint32_t i = 0; i < change->pieces; i++) {
        bool made = sh_leaf_make(ranges, change->may_dip, &change->list[from],
                                 change->ends[i] - from, &change->children[i]);
        if (!fresh_add(change, made, i))
            return false;
        from = change->ends[i];
    }
    change->child_count = change->pieces;
    return true;
}

static uint32_t gather(struct sh_ranges *ranges, uint64_t ref, uint32_t from, uint32_t to,
                       uint32_t count)
{
    struct sh_change *change = ranges->change;
    SH_ASSERT(count + (to - from) <= GATHERED_MOST);
    for (uint32_t i = from; i < to; i++)
        change->gathered[count++] = inner_child(ranges, ref, i);
    return count;
}

/* The children that the run's parents have afterwards. */
static uint32_t children_gather(struct sh_ranges *ranges, unsigned level, const struct path *left,
                                const struct path *right)
{
    struct sh_change *change = ranges->change;
    uint32_t count = gather(ranges, left->steps[level].ref, 0, left->steps[level].slot, 0);
    for (uint32_t i = 0; i < change->child_count; i++)
        change->gathered[count++] = change->children[i];
    uint64_t ref = right->steps[level].ref;
    uint32_t children = node_count(ranges, ref);
    change->packs = change->packs && right->steps[level].slot + 1 == children;
    return gather(ranges, ref, right->steps[level].slot + 1, children, count);
}

/* Joins few children with those of a neighbour of their node, if they are not too many then. */
static uint32_t inner_join(struct sh_ranges *ranges, unsigned level, struct path *left,
                           struct path *right, uint32_t count)
{
    struct sh_change *change = ranges->change;
    bool goes_right;
    uint64_t neighbour;
    if (!neighbour_find(ranges, level + 1, left, right, &goes_right, &neighbour))
        return count;
    uint32_t others = node_count(ranges, neighbour);
    if (count + others > SH_FAN - INNER_SPARE)
        return count;
    doom(change, neighbour, false);
    if (goes_right) {
        right->steps[level + 1].slot++;
        return gather(ranges, neighbour, 0, others, count);
    }
    left->steps[level + 1].slot--;
    memmove(&change->gathered[others], change->gathered, count * sizeof change->gathered[0]);
    (void)gather(ranges, neighbour, 0, others, 0);
    return count + others;
}

static bool inners_make(struct sh_ranges *ranges, uint32_t count)
{
    struct sh_change *change = ranges->change;
    uint32_t pieces = (count + SH_FAN - 1) / SH_FAN;
    uint32_t from = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t to = count * (i + 1) / pieces;
        if (change->packs && i + 1 < pieces)
            to = SH_FAN * (i + 1);
        bool made = sh_inner_make(ranges, change->may_dip, &change->gathered[from], to - from,
                                  &change->children[i]);
        if (!fresh_add(change, made, i))
            return false;
        from = to;
    }
    change->child_count = pieces;
    return true;
}

/* Replaces the root by the children. */
static bool root_replace(struct sh_ranges *ranges)
{
    struct sh_change *change = ranges->change;
    SH_ASSERT(change->child_count);
    if (change->child_count > 1) {
        SH_ASSERT(ranges->levels < SH_LEVELS_MAX);
        memcpy(change->gathered, change->children,
               change->child_count * sizeof change->children[0]);
        if (!inners_make(ranges, change->child_count))
            return false;
        ranges->levels++;
    }
    sh_word_set(&ranges->root, change->children[0].ref);
    return true;
}

/* Carries the new nodes upwards until a single store publishes them. False at the limit. */
static bool climb(struct sh_ranges *ranges, struct path *left, struct path *right)
{
    struct sh_change *change = ranges->change;
    for (unsigned level = 0; level < ranges->levels; level++) {
        uint64_t ref = left->steps[level].ref;
        uint32_t slot = left->steps[level].slot;
        bool is_one = ref == right->steps[level].ref;
        if (is_one && slot == right->steps[level].slot && change->child_count == 1 &&
            change->children[0].first == inner_child(ranges, ref, slot).first) {
            sh_word_set(&sh_node_of(ranges, ref)[SH_INNER_REF + slot], change->children[0].ref);
            return true;
        }
        uint32_t count = children_gather(ranges, level, left, right);
        doom(change, ref, false);
        if (!is_one)
            doom(change, right->steps[level].ref, false);
        if (count && count < SH_INNER_FEW && level + 1 < ranges->levels)
            count = inner_join(ranges, level, left, right, count);
        if (!inners_make(ranges, count))
            return false;
    }
    return root_replace(ranges);
}

/* A root with one child is none. */
static void root_collapse(struct sh_ranges *ranges)
{
    uint64_t root = sh_word_get(&ranges->root);
    while (sh_ref_is_inner(root) && node_count(ranges, root) == 1) {
        uint64_t child = inner_child(ranges, root, 0).ref;
        sh_word_set(&ranges->root, child);
        ranges->levels--;
        (void)sh_node_retire(ranges, root, false);
        root = child;
    }
}

static void count_set(struct sh_ranges *ranges, size_t count)
{
    /* relaxed: a plain counter; it publishes nothing */
    atomic_store_explicit(&ranges->count, count, memory_order_relaxed);
}

/* Gives the IDs first to last what the boundary says. */
static enum shoal_err change_make(struct sh_ranges *ranges, uint64_t first, uint64_t last,
                                  const struct sh_boundary *what, bool may_dip)
{
    struct sh_change *change = ranges->change;
    struct path left, right;
    change->doomed_count = change->fresh_count = 0;
    change->may_dip = may_dip;
    path_find(ranges, first, &left);
    path_find(ranges, last == UINT64_MAX ? last : last + 1, &right);
    between_doom(ranges, &left, &right);
    doom(change, left.leaf, false);
    if (left.leaf != right.leaf)
        doom(change, right.leaf, false);
    list_make(ranges, first, last, what, &left, &right);
    list_hold(ranges);
    list_plan(change, 0);
    bool is_over = change->pieces > (left.leaf == right.leaf ? 1 : 2) && !change->packs;
    bool is_few = change->count && change->count < SH_LEAF_FEW;
    if (ranges->levels && (is_over || is_few))
        run_extend(ranges, &left, &right, is_few);
    /* Three into four rather than two into three: fuller leaves. */
    if (ranges->levels && is_over && change->pieces > 2 && left.leaf == right.leaf)
        run_extend(ranges, &left, &right, false);
    bool done = leaves_make(ranges) && climb(ranges, &left, &right);
    if (done) {
        size_t count = sh_ranges_count(ranges) - change->before;
        for (uint32_t i = 0; i < change->doomed_count; i++)
            count -= sh_node_retire(ranges, change->doomed[i].ref, change->doomed[i].with_all);
        count_set(ranges, count + ranges_in(change->list, change->count));
        root_collapse(ranges);
    } else {
        for (uint32_t i = 0; i < change->fresh_count; i++)
            (void)sh_node_retire(ranges, change->fresh[i], false);
    }
    list_drop(ranges);
    return done ? SHOAL_OK : SHOAL_ELIMIT;
}

enum shoal_err sh_ranges_set(struct sh_ranges *ranges, shoal_cid first, shoal_cid last,
                             uint64_t value)
{
    SH_ASSERT(first.v <= last.v);
    struct sh_stretch stretch;
    sh_ranges_look(ranges, first.v, &stretch);
    if (!stretch.is_gap && stretch.value == value && stretch.last >= last.v)
        return SHOAL_OK;
    struct sh_boundary what = {.value = value};
    what.code = sh_codes_hold(&ranges->codes, value);
    enum shoal_err err = change_make(ranges, first.v, last.v, &what, false);
    if (what.code != SH_CODE_RAW)
        sh_codes_drop(&ranges->codes, what.code);
    return err;
}

enum shoal_err sh_ranges_remove(struct sh_ranges *ranges, shoal_cid first, shoal_cid last)
{
    SH_ASSERT(first.v <= last.v);
    struct sh_stretch stretch;
    sh_ranges_look(ranges, last.v, &stretch);
    bool is_whole = stretch.is_gap || stretch.last == last.v;
    sh_ranges_look(ranges, first.v, &stretch);
    is_whole = is_whole && (stretch.is_gap || stretch.first == first.v);
    if (stretch.is_gap && stretch.last >= last.v)
        return SHOAL_OK;
    struct sh_boundary what = {.code = SH_CODE_GAP};
    return change_make(ranges, first.v, last.v, &what, is_whole);
}

void sh_ranges_clear(struct sh_ranges *ranges)
{
    struct sh_boundary nothing = {.code = SH_CODE_GAP};
    struct sh_child root;
    bool made = sh_leaf_make(ranges, true, &nothing, 1, &root);
    SH_ASSERT(made); /* the reserve is whole between changes */
    uint64_t old = sh_word_get(&ranges->root);
    sh_word_set(&ranges->root, root.ref);
    ranges->levels = 0;
    (void)sh_node_retire(ranges, old, true);
    count_set(ranges, 0);
}
