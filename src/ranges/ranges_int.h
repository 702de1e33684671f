/* The inside of a tree of ranges: nodes as words, pools of them, the table of values.
 *
 * Node memory is read beside being written, so it is made of atomic words. Readers load with
 * acquire and writers store with release, for one reason everywhere: whoever has read a word of a
 * node's next life sees, when it looks at the head again, that life's generation, which was stored
 * before (sh_pool_take).
 *
 *   head        generation 32 | count 8 | kind 8 | 0        word 0
 *   link        the next in the queue of retired nodes      word 1, changer only
 *   leaf        first ID; boundaries; values; of raw kinds the mask of gaps in the last word
 *   inner       the firsts of children 16, 32, ... 96 from word 2, then all 112 firsts from word 8
 *               and 112 references from word 120
 *   reference   generation 32 | index 31 | is_inner 1
 */
#ifndef SH_RANGES_RANGES_INT_H
#define SH_RANGES_RANGES_INT_H

#include <stdatomic.h>

#include "base/assert.h"
#include "ranges/ranges.h"

typedef _Atomic uint64_t sh_word;

#define SH_LEAF_WORDS 64
#define SH_LEAF_MOST 80 /* boundaries in a leaf of the densest kind */
#define SH_LEAF_FEW 20  /* fewer are joined with a neighbour's */
#define SH_INNER_WORDS 232
#define SH_FAN 112
#define SH_INNER_FEW 32
#define SH_INNER_SAMPLES 2
#define SH_INNER_GROUP 16 /* children, whose firsts are two lines */
#define SH_INNER_FIRST 8
#define SH_INNER_REF (SH_INNER_FIRST + SH_FAN)
/* Inner nodes are split in halves: 2^31 leaves need 6 levels. */
#define SH_LEVELS_MAX 8
#define SH_KEYS_AT 3

/* Values by number: 0 is a gap, RAW one that there is no number for. Small values are in no table: their numbers follow from them. */
#define SH_CODES (1u << 16)
#define SH_VALUES_SMALL (1u << 14)
#define SH_CODES_TABLED (SH_CODES - SH_VALUES_SMALL) /* the number of value 0 */
#define SH_CODE_GAP 0
#define SH_CODE_RAW UINT32_MAX

/* The leaf kinds: near IDs are 32-bit distances, far ones 64 bits; raw values are 64 bits. */
enum sh_leaf_kind { SH_NEAR, SH_NEAR_RAW, SH_FAR, SH_FAR_RAW, SH_LEAF_KINDS };
#define SH_KIND_INNER SH_LEAF_KINDS
#define SH_GAPS_AT (SH_LEAF_WORDS - 1)

struct sh_leaf_shape {
    bool is_far, is_raw;
    uint8_t most;
    uint8_t values_at;
};
static const struct sh_leaf_shape sh_leaf_shapes[SH_LEAF_KINDS] = {
    [SH_NEAR] = {false, false, 80, SH_KEYS_AT + 40},
    [SH_NEAR_RAW] = {false, true, 40, SH_KEYS_AT + 20},
    [SH_FAR] = {true, false, 48, SH_KEYS_AT + 48},
    [SH_FAR_RAW] = {true, true, 30, SH_KEYS_AT + 30},
};

/* Nodes of one size, in one range of addresses. */
struct sh_pool {
    sh_word *words;
    uint32_t words_each;
    uint32_t nodes_max;
    uint32_t reserve;  /* kept for removals */
    uint32_t deferred; /* so many wait before the oldest is taken again */
    _Atomic uint32_t touched;
    uint32_t retired, oldest, newest;
};

/* The distinct values that are not small. Readers look at `values` only. */
struct sh_codes {
    void *map;
    sh_word *values;  /* by code */
    uint32_t *counts; /* users of each code: boundaries of leaves not taken again, and holds */
    uint16_t *slots;  /* open addressing from a value's hash to its code */
    uint16_t *spare;  /* codes that were given back */
    uint32_t spares;
    _Atomic uint32_t used; /* codes ever given out */
};

/* From this ID on: this value. */
struct sh_boundary {
    uint64_t key;
    uint64_t value; /* meaningful with RAW only */
    uint32_t code;
    bool is_held; /* the list holds the code */
};

struct sh_child {
    uint64_t first;
    uint64_t ref;
};

struct sh_ranges {
    sh_word root;
    _Atomic size_t count;
    struct sh_pool leaves;
    struct sh_pool inners;
    struct sh_codes codes;
    unsigned levels;          /* of inner nodes */
    struct sh_change *change; /* what a change works with; ranges/change.c */
};

/* acquire: pairs with the release in sh_word_set */
static inline uint64_t sh_word_get(const sh_word *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/* release: whatever was stored before, the generation above all; pairs with sh_word_get */
static inline void sh_word_set(sh_word *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static inline uint64_t sh_head_make(uint32_t generation, uint32_t count, uint32_t kind)
{
    return generation | (uint64_t)count << 32 | (uint64_t)kind << 40;
}
static inline uint32_t sh_head_count(uint64_t head)
{
    return head >> 32 & 0xff;
}
static inline uint32_t sh_head_kind(uint64_t head)
{
    return head >> 40 & 0xff;
}

static inline uint64_t sh_ref_make(uint32_t generation, uint32_t index, bool is_inner)
{
    return generation | (uint64_t)index << 32 | (uint64_t)is_inner << 63;
}
static inline bool sh_ref_is_inner(uint64_t ref)
{
    return ref >> 63;
}
static inline uint32_t sh_ref_index(uint64_t ref)
{
    return ref >> 32 & INT32_MAX;
}

static inline sh_word *sh_pool_node(const struct sh_pool *pool, uint32_t index)
{
    return pool->words + (size_t)index * pool->words_each;
}

static inline sh_word *sh_node_of(const struct sh_ranges *ranges, uint64_t ref)
{
    return sh_pool_node(sh_ref_is_inner(ref) ? &ranges->inners : &ranges->leaves,
                        sh_ref_index(ref));
}

/* The ID at which a leaf's boundary begins. */
static inline uint64_t sh_leaf_key(const sh_word *leaf, const struct sh_leaf_shape *shape,
                                   uint32_t index)
{
    if (shape->is_far)
        return sh_word_get(&leaf[SH_KEYS_AT + index]);
    uint64_t pair = sh_word_get(&leaf[SH_KEYS_AT + index / 2]);
    return sh_word_get(&leaf[2]) + (uint32_t)(pair >> index % 2 * 32);
}

static inline uint32_t sh_leaf_code(const sh_word *leaf, const struct sh_leaf_shape *shape,
                                    uint32_t index)
{
    return sh_word_get(&leaf[shape->values_at + index / 4]) >> index % 4 * 16 & 0xffff;
}

/* Searches count the words that are at most the key, first one of each group, then those of the
 * group found: loads that depend on nothing and comparisons without a branch, where a binary search
 * has a chain of both. Places that are not used hold the largest key; the index is cut to those
 * that are. What a torn read may find is within the node. */

/* How many of four words, `stride` apart, are at most key; without a loop, as compilers don't
 * unroll by themselves at our level of optimization. */
static inline uint32_t sh_words_count(const sh_word *words, unsigned stride, uint64_t key)
{
    return (uint32_t)(sh_word_get(&words[0]) <= key) +
           (uint32_t)(sh_word_get(&words[stride]) <= key) +
           (uint32_t)(sh_word_get(&words[2 * stride]) <= key) +
           (uint32_t)(sh_word_get(&words[3 * stride]) <= key);
}

/* How many of the four distances in two words are at most near. */
static inline uint32_t sh_pairs_count(const sh_word *words, uint32_t near)
{
    uint64_t a = sh_word_get(&words[0]);
    uint64_t b = sh_word_get(&words[1]);
    return (uint32_t)((uint32_t)a <= near) + (uint32_t)((uint32_t)(a >> 32) <= near) +
           (uint32_t)((uint32_t)b <= near) + (uint32_t)((uint32_t)(b >> 32) <= near);
}

/* The first child of the group that holds the last first at most key. One line is looked at, and
 * those that come next are asked for. */
static inline uint32_t sh_inner_group(const sh_word *inner, uint64_t key)
{
    const sh_word *samples = &inner[SH_INNER_SAMPLES];
    uint32_t group = sh_words_count(samples, 1, key) + (uint32_t)(sh_word_get(&samples[4]) <= key) +
                     (uint32_t)(sh_word_get(&samples[5]) <= key);
    uint32_t start = group * SH_INNER_GROUP;
    __builtin_prefetch((const void *)&inner[SH_INNER_FIRST + start]);
    __builtin_prefetch((const void *)&inner[SH_INNER_FIRST + start + 8]);
    __builtin_prefetch((const void *)&inner[SH_INNER_REF + start]);
    __builtin_prefetch((const void *)&inner[SH_INNER_REF + start + 8]);
    return start;
}

/* The last of an inner node's firsts that is at most key, which is in the group. */
static inline uint32_t sh_inner_search(const sh_word *inner, uint32_t count, uint32_t start,
                                       uint64_t key)
{
    const sh_word *words = &inner[SH_INNER_FIRST + start];
    uint32_t index = start - 1 + sh_words_count(words, 1, key) + sh_words_count(words + 4, 1, key) +
                     sh_words_count(words + 8, 1, key) + sh_words_count(words + 12, 1, key);
    return index < count ? index : count - 1;
}

/* The same in a leaf with far IDs, whose kinds are rare. */
static inline uint32_t sh_leaf_search_far(const sh_word *leaf, uint32_t count, uint64_t key)
{
    uint32_t low = 0;
    while (count > 1) {
        uint32_t half = count / 2;
        low = sh_word_get(&leaf[SH_KEYS_AT + low + half]) <= key ? low + half : low;
        count -= half;
    }
    return low;
}

/* The boundary of a leaf that rules key: the last at or below it. */
static inline uint32_t sh_leaf_search(const sh_word *leaf, const struct sh_leaf_shape *shape,
                                      uint32_t count, uint64_t key)
{
    if (shape->is_far)
        return sh_leaf_search_far(leaf, count, key);
    uint64_t distance = key - sh_word_get(&leaf[2]);
    uint32_t near = distance < UINT32_MAX ? (uint32_t)distance : UINT32_MAX;
    uint32_t end = shape->values_at;
    uint32_t group = 0;
    for (uint32_t at = 8; at < end; at += 8)
        group += (uint32_t)sh_word_get(&leaf[at]) <= near;
    uint32_t start = group ? group * 8 : SH_KEYS_AT;
    start = start + 8 <= end ? start : end - 8;
    const sh_word *pairs = &leaf[start];
    uint32_t index = (start - SH_KEYS_AT) * 2 - 1 + sh_pairs_count(pairs, near) +
                     sh_pairs_count(pairs + 2, near) + sh_pairs_count(pairs + 4, near) +
                     sh_pairs_count(pairs + 6, near);
    return index < count ? index : count - 1;
}

/* pool.c. Reserves addresses for nodes; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_pool_create(struct sh_pool *pool, uint32_t words_each,
                                              uint32_t nodes_max, uint32_t reserve,
                                              uint32_t deferred);
void sh_pool_destroy(struct sh_pool *pool);
/* A node to write: its old life's content is still there, its head says count 0 and the new
 * generation. False at the limit, which the reserve belongs to only with may_dip. */
bool sh_pool_take(struct sh_pool *pool, bool may_dip, uint32_t *index_out);
/* Queues a node that is not reachable any more. */
void sh_pool_retire(struct sh_pool *pool, uint32_t index);

/* codes.c. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_codes_create(struct sh_codes *codes);
void sh_codes_destroy(struct sh_codes *codes);
/* The value's code with one more user, given out if there is one left; RAW if not. */
uint32_t sh_codes_hold(struct sh_codes *codes, uint64_t value);
/* One user fewer, of a code of 1 and more; without any it may be given to another value. */
void sh_codes_drop(struct sh_codes *codes, uint32_t code);
size_t sh_codes_bytes(const struct sh_codes *codes);
static inline uint64_t sh_codes_value(const struct sh_codes *codes, uint32_t code)
{
    return code < SH_CODES_TABLED ? sh_word_get(&codes->values[code]) : code - SH_CODES_TABLED;
}
/* One more user of a code that is held, or whose leaf is written. */
static inline void sh_codes_use(struct sh_codes *codes, uint32_t code)
{
    if (code < SH_CODES_TABLED)
        codes->counts[code]++;
}

/* leaf.c. Reads a leaf's boundaries into a list with room for SH_LEAF_MOST; returns how many. */
uint32_t sh_leaf_read(const struct sh_ranges *ranges, uint32_t index, struct sh_boundary *list_out);
/* How many of count boundaries from the list's beginning on fit into one leaf of which `spare`
 * thirty-seconds stay free; the leaf's kind. */
uint32_t sh_leaf_fit(const struct sh_boundary *list, uint32_t count, uint32_t spare,
                     enum sh_leaf_kind *kind_out);
/* Makes a leaf of 1 and more boundaries, which fit. False at the limit. */
bool sh_leaf_make(struct sh_ranges *ranges, bool may_dip, const struct sh_boundary *list,
                  uint32_t count, struct sh_child *child_out);
/* Makes an inner node of 1 to SH_FAN children. False at the limit. */
bool sh_inner_make(struct sh_ranges *ranges, bool may_dip, const struct sh_child *list,
                   uint32_t count, struct sh_child *child_out);
/* Retires a node, with_all: and all below it. Returns how many ranges were in the leaves that were
 * retired because of with_all. */
size_t sh_node_retire(struct sh_ranges *ranges, uint64_t ref, bool with_all);

static inline uint64_t sh_boundary_value(const struct sh_ranges *ranges,
                                         const struct sh_boundary *boundary)
{
    return boundary->code == SH_CODE_RAW ? boundary->value
                                         : sh_codes_value(&ranges->codes, boundary->code);
}
/* Whether two boundaries say the same. */
static inline bool sh_boundary_same(const struct sh_ranges *ranges, const struct sh_boundary *a,
                                    const struct sh_boundary *b)
{
    if (a->code == SH_CODE_GAP || b->code == SH_CODE_GAP)
        return a->code == b->code;
    return sh_boundary_value(ranges, a) == sh_boundary_value(ranges, b);
}

/* What a lookup finds: the stretch of IDs around a key that has one value, or none. */
struct sh_stretch {
    uint64_t first, last, value;
    bool is_gap;
};
/* ranges.c. Any thread. */
void sh_ranges_look(const struct sh_ranges *ranges, uint64_t key, struct sh_stretch *stretch_out);

/* change.c. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_change_create(struct sh_change **change_out);
void sh_change_destroy(struct sh_change *change);
size_t sh_change_bytes(void);

#endif
