/* The invariants of a whole tree, for tests. */
#include <stdlib.h>

#include "ranges/ranges_int.h"

struct check {
    const struct sh_ranges *ranges;
    uint32_t leaves, inners;
    size_t count;
    bool has_before;
    struct sh_boundary before;
    uint32_t *counts; /* users of each code */
};

static void leaf_check(struct check *check, uint64_t ref, uint64_t first, uint64_t last)
{
    const struct sh_ranges *ranges = check->ranges;
    uint64_t head = sh_word_get(&sh_node_of(ranges, ref)[0]);
    SH_ASSERT((uint32_t)head == (uint32_t)ref);
    struct sh_boundary list[SH_LEAF_MOST];
    uint32_t count = sh_leaf_read(ranges, sh_ref_index(ref), list);
    SH_ASSERT(count <= sh_leaf_shapes[sh_head_kind(head)].most);
    SH_ASSERT(list[0].key == first);
    for (uint32_t i = 0; i < count; i++) {
        SH_ASSERT(list[i].key <= last);
        SH_ASSERT(!i || list[i - 1].key < list[i].key);
        SH_ASSERT(!check->has_before || !sh_boundary_same(ranges, &check->before, &list[i]));
        check->before = list[i];
        check->has_before = true;
        check->count += list[i].code != SH_CODE_GAP;
    }
    check->leaves++;
}

static void node_check(struct check *check, uint64_t ref, unsigned level, uint64_t first,
                       uint64_t last)
{
    SH_ASSERT(sh_ref_is_inner(ref) == (level > 0));
    if (!level) {
        leaf_check(check, ref, first, last);
        return;
    }
    check->inners++;
    const sh_word *inner = sh_node_of(check->ranges, ref);
    uint64_t head = sh_word_get(&inner[0]);
    uint32_t count = sh_head_count(head);
    SH_ASSERT((uint32_t)head == (uint32_t)ref && sh_head_kind(head) == SH_KIND_INNER);
    SH_ASSERT(count && count <= SH_FAN);
    SH_ASSERT(sh_word_get(&inner[SH_INNER_FIRST]) == first);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = sh_word_get(&inner[SH_INNER_FIRST + i]);
        uint64_t to = i + 1 < count ? sh_word_get(&inner[SH_INNER_FIRST + i + 1]) - 1 : last;
        SH_ASSERT(from <= to);
        node_check(check, sh_word_get(&inner[SH_INNER_REF + i]), level - 1, from, to);
    }
}

/* Counts what each leaf, reachable or retired, uses, and compares with the accounts. */
static void codes_check(struct check *check)
{
    const struct sh_ranges *ranges = check->ranges;
    uint32_t touched = atomic_load_explicit(&ranges->leaves.touched, memory_order_relaxed);
    struct sh_boundary list[SH_LEAF_MOST];
    for (uint32_t index = 0; index < touched; index++) {
        uint64_t head = sh_word_get(&sh_pool_node(&ranges->leaves, index)[0]);
        if (sh_leaf_shapes[sh_head_kind(head)].is_raw)
            continue;
        uint32_t count = sh_leaf_read(ranges, index, list);
        for (uint32_t i = 0; i < count; i++)
            check->counts[list[i].code]++;
    }
    for (uint32_t code = 1; code < SH_CODES_TABLED; code++)
        SH_ASSERT(check->counts[code] == ranges->codes.counts[code]);
}

void sh_ranges_check(const struct sh_ranges *ranges)
{
    struct check check = {.ranges = ranges};
    check.counts = calloc(SH_CODES, sizeof *check.counts);
    SH_ASSERT(check.counts);
    node_check(&check, sh_word_get(&ranges->root), ranges->levels, 0, UINT64_MAX);
    SH_ASSERT(check.count == sh_ranges_count(ranges));
    const struct sh_pool *leaves = &ranges->leaves;
    const struct sh_pool *inners = &ranges->inners;
    SH_ASSERT(check.leaves + leaves->retired == leaves->touched);
    SH_ASSERT(check.inners + inners->retired == inners->touched);
    SH_ASSERT(leaves->nodes_max - check.leaves >= leaves->reserve);
    SH_ASSERT(inners->nodes_max - check.inners >= inners->reserve);
    codes_check(&check);
    free(check.counts);
}
