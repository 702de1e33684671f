/* Making, reading and retiring nodes. */
#include "ranges/ranges_int.h"

/* Takes a leaf; the codes that its last life used have one user fewer each. */
static bool leaf_take(struct sh_ranges *ranges, bool may_dip, uint32_t *index_out)
{
    /* The pool clears the count: it is looked up before, in the node that will be taken. */
    struct sh_pool *pool = &ranges->leaves;
    uint32_t oldest = pool->oldest;
    uint64_t head = pool->retired ? sh_word_get(&sh_pool_node(pool, oldest)[0]) : 0;
    uint32_t index;
    if (!sh_pool_take(pool, may_dip, &index))
        return false;
    const struct sh_leaf_shape *shape = &sh_leaf_shapes[sh_head_kind(head)];
    if (index == oldest && !shape->is_raw) {
        const sh_word *leaf = sh_pool_node(pool, index);
        for (uint32_t i = 0; i < sh_head_count(head); i++) {
            uint32_t code = sh_leaf_code(leaf, shape, i);
            if (code != SH_CODE_GAP)
                sh_codes_drop(&ranges->codes, code);
        }
    }
    *index_out = index;
    return true;
}

uint32_t sh_leaf_read(const struct sh_ranges *ranges, uint32_t index, struct sh_boundary *list_out)
{
    const sh_word *leaf = sh_pool_node(&ranges->leaves, index);
    uint64_t head = sh_word_get(&leaf[0]);
    uint32_t count = sh_head_count(head);
    SH_ASSERT(count && sh_head_kind(head) < SH_LEAF_KINDS);
    const struct sh_leaf_shape *shape = &sh_leaf_shapes[sh_head_kind(head)];
    uint64_t gaps = shape->is_raw ? sh_word_get(&leaf[SH_GAPS_AT]) : 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sh_boundary *to = &list_out[i];
        to->key = sh_leaf_key(leaf, shape, i);
        to->is_held = false;
        if (!shape->is_raw) {
            to->code = sh_leaf_code(leaf, shape, i);
            continue;
        }
        to->code = gaps >> i & 1 ? SH_CODE_GAP : SH_CODE_RAW;
        to->value = sh_word_get(&leaf[shape->values_at + i]);
    }
    return count;
}

uint32_t sh_leaf_fit(const struct sh_boundary *list, uint32_t count, uint32_t spare,
                     enum sh_leaf_kind *kind_out)
{
    SH_ASSERT(count);
    enum sh_leaf_kind kind = SH_NEAR;
    uint32_t fits = 0;
    for (; fits < count; fits++) {
        bool is_far = list[fits].key - list[0].key > UINT32_MAX;
        bool is_raw = list[fits].code == SH_CODE_RAW;
        enum sh_leaf_kind with = kind;
        if (is_far)
            with |= SH_FAR;
        if (is_raw)
            with |= SH_NEAR_RAW;
        uint32_t most = sh_leaf_shapes[with].most;
        if (fits + 1 > most - most * spare / 32)
            break;
        kind = with;
    }
    *kind_out = kind;
    return fits;
}

static void keys_write(sh_word *leaf, const struct sh_leaf_shape *shape,
                       const struct sh_boundary *list, uint32_t count)
{
    sh_word_set(&leaf[2], list[0].key);
    if (shape->is_far) {
        for (uint32_t i = 0; i < count; i++)
            sh_word_set(&leaf[SH_KEYS_AT + i], list[i].key);
        return;
    }
    uint64_t unused = UINT32_MAX;
    for (uint32_t i = 0; i < shape->most; i += 2) {
        uint64_t low = i < count ? list[i].key - list[0].key : unused;
        uint64_t high = i + 1 < count ? list[i + 1].key - list[0].key : unused;
        sh_word_set(&leaf[SH_KEYS_AT + i / 2], low | high << 32);
    }
}

static void raw_write(struct sh_ranges *ranges, sh_word *leaf, const struct sh_leaf_shape *shape,
                      const struct sh_boundary *list, uint32_t count)
{
    uint64_t gaps = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool is_gap = list[i].code == SH_CODE_GAP;
        gaps |= (uint64_t)is_gap << i;
        sh_word_set(&leaf[shape->values_at + i], is_gap ? 0 : sh_boundary_value(ranges, &list[i]));
    }
    sh_word_set(&leaf[SH_GAPS_AT], gaps);
}

static void codes_write(struct sh_ranges *ranges, sh_word *leaf, const struct sh_leaf_shape *shape,
                        const struct sh_boundary *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += 4) {
        uint64_t four = 0;
        for (uint32_t k = 0; k < 4 && i + k < count; k++) {
            uint32_t code = list[i + k].code;
            if (code != SH_CODE_GAP)
                sh_codes_use(&ranges->codes, code);
            four |= (uint64_t)code << 16 * k;
        }
        sh_word_set(&leaf[shape->values_at + i / 4], four);
    }
}

bool sh_leaf_make(struct sh_ranges *ranges, bool may_dip, const struct sh_boundary *list,
                  uint32_t count, struct sh_child *child_out)
{
    enum sh_leaf_kind kind;
    uint32_t fits = sh_leaf_fit(list, count, 0, &kind);
    SH_ASSERT(count && fits == count);
    uint32_t index;
    if (!leaf_take(ranges, may_dip, &index))
        return false;
    sh_word *leaf = sh_pool_node(&ranges->leaves, index);
    const struct sh_leaf_shape *shape = &sh_leaf_shapes[kind];
    keys_write(leaf, shape, list, count);
    if (shape->is_raw)
        raw_write(ranges, leaf, shape, list, count);
    else
        codes_write(ranges, leaf, shape, list, count);
    uint32_t generation = (uint32_t)sh_word_get(&leaf[0]);
    sh_word_set(&leaf[0], sh_head_make(generation, count, kind));
    *child_out = (struct sh_child){list[0].key, sh_ref_make(generation, index, false)};
    return true;
}

bool sh_inner_make(struct sh_ranges *ranges, bool may_dip, const struct sh_child *list,
                   uint32_t count, struct sh_child *child_out)
{
    SH_ASSERT(count && count <= SH_FAN);
    uint32_t index;
    if (!sh_pool_take(&ranges->inners, may_dip, &index))
        return false;
    sh_word *inner = sh_pool_node(&ranges->inners, index);
    for (uint32_t i = 0; i < count; i++) {
        sh_word_set(&inner[SH_INNER_FIRST + i], list[i].first);
        sh_word_set(&inner[SH_INNER_REF + i], list[i].ref);
    }
    for (uint32_t i = count; i < SH_FAN; i++)
        sh_word_set(&inner[SH_INNER_FIRST + i], UINT64_MAX);
    for (uint32_t i = SH_INNER_GROUP; i < SH_FAN; i += SH_INNER_GROUP)
        sh_word_set(&inner[SH_INNER_SAMPLES + i / SH_INNER_GROUP - 1],
                    i < count ? list[i].first : UINT64_MAX);
    uint32_t generation = (uint32_t)sh_word_get(&inner[0]);
    sh_word_set(&inner[0], sh_head_make(generation, count, SH_KIND_INNER));
    *child_out = (struct sh_child){list[0].first, sh_ref_make(generation, index, true)};
    return true;
}

size_t sh_node_retire(struct sh_ranges *ranges, uint64_t ref, bool with_all)
{
    size_t count = 0;
    uint32_t index = sh_ref_index(ref);
    if (!sh_ref_is_inner(ref)) {
        struct sh_boundary list[SH_LEAF_MOST];
        uint32_t boundaries = with_all ? sh_leaf_read(ranges, index, list) : 0;
        for (uint32_t i = 0; i < boundaries; i++)
            count += list[i].code != SH_CODE_GAP;
        sh_pool_retire(&ranges->leaves, index);
        return count;
    }
    const sh_word *inner = sh_node_of(ranges, ref);
    uint32_t children = with_all ? sh_head_count(sh_word_get(&inner[0])) : 0;
    for (uint32_t i = 0; i < children; i++)
        count += sh_node_retire(ranges, sh_word_get(&inner[SH_INNER_REF + i]), true);
    sh_pool_retire(&ranges->inners, index);
    return count;
}
