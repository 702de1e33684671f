/* The B+ tree of ranges.h.
 *
 * Leaves hold the entries in order; an inner node holds its children and for each a lower bound of
 * what is in it. Bounds are not tightened when entries go, so the entry before a key may lie in the
 * leaf to the left of the one that the bounds lead to; lookups step over. No leaf is ever empty,
 * but for the root of an empty tree.
 *
 * Every change is made of deletes and at most two inserts. Before it begins, the nodes that two
 * inserts can need at worst are set aside, so that nothing can fail in the middle.
 */
#include "ranges/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define FAN 32
#define MERGE_MAX                                                                                  \
    (FAN * 3 / 4)     /* siblings that fit into this are one: the rest is room to grow             \
                       */
#define HEIGHT_MAX 16 /* inner nodes are split in halves: 16^16 entries are never reached */
#define INSERTS_MAX 2

struct node {
    uint32_t count;
    bool is_leaf;
    uint64_t first[FAN]; /* leaf: of the entry; inner: lower bound of the child */
    union {
        struct {
            uint64_t last[FAN];
            uint64_t value[FAN];
        };
        struct node *child[FAN];
        struct node *next_free;
    };
};
_Static_assert(sizeof(struct node) == 776, "the header promises 776 bytes a node");

struct entry {
    uint64_t first, last, value;
};

struct sh_ranges {
    struct node *root;
    unsigned height; /* 1: the root is a leaf */
    size_t count;
    size_t nodes; /* allocated, used or free */
    size_t nodes_max;
    struct node *free;
    size_t free_count;
};

/* A place in a leaf, and how it was reached. */
struct path {
    struct node *node[HEIGHT_MAX];
    uint32_t index[HEIGHT_MAX];
};

static struct node *node_take(struct sh_ranges *ranges, bool is_leaf)
{
    struct node *node = ranges->free;
    SH_ASSERT(node);
    ranges->free = node->next_free;
    ranges->free_count--;
    node->count = 0;
    node->is_leaf = is_leaf;
    return node;
}

static void node_return(struct sh_ranges *ranges, struct node *node)
{
    node->next_free = ranges->free;
    ranges->free = node;
    ranges->free_count++;
}

/* Sets aside what INSERTS_MAX inserts can need: a split on each level and a new root, each. */
static enum shoal_err reserve(struct sh_ranges *ranges)
{
    size_t need = INSERTS_MAX * ((size_t)ranges->height + 1);
    while (ranges->free_count < need) {
        if (ranges->nodes == ranges->nodes_max)
            return SHOAL_ELIMIT;
        struct node *node = malloc(sizeof *node);
        if (!node)
            return SHOAL_ENOMEM;
        ranges->nodes++;
        node_return(ranges, node);
    }
    return SHOAL_OK;
}

/* How many of the node's bounds are at most key. */
static uint32_t upper(const struct node *node, uint64_t key)
{
    uint32_t low = 0;
    uint32_t high = node->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (node->first[middle] <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The child of an inner node that key belongs to. */
static uint32_t child_of(const struct node *node, uint64_t key)
{
    uint32_t above = upper(node, key);
    return above ? above - 1 : 0;
}

static struct entry entry_at(const struct node *leaf, uint32_t index)
{
    SH_ASSERT(leaf->is_leaf && index < leaf->count);
    return (struct entry){leaf->first[index], leaf->last[index], leaf->value[index]};
}

/* The entry with the greatest first that is at most key. */
static bool find_floor(const struct sh_ranges *ranges, uint64_t key, struct node **leaf_out,
                       uint32_t *index_out)
{
    struct node *node = ranges->root;
    struct node *left = NULL;
    while (!node->is_leaf) {
        uint32_t index = child_of(node, key);
        if (index)
            left = node->child[index - 1];
        node = node->child[index];
    }
    uint32_t above = upper(node, key);
    if (!above) {
        if (!left)
            return false;
        while (!left->is_leaf)
            left = left->child[left->count - 1];
        node = left;
        above = left->count;
        SH_ASSERT(above);
    }
    *leaf_out = node;
    *index_out = above - 1;
    return true;
}

/* The entry with the smallest first that is at least key. */
static bool find_ceiling(const struct sh_ranges *ranges, uint64_t key, struct node **leaf_out,
                         uint32_t *index_out)
{
    struct node *node = ranges->root;
    struct node *right = NULL;
    while (!node->is_leaf) {
        uint32_t index = child_of(node, key);
        if (index + 1 < node->count)
            right = node->child[index + 1];
        node = node->child[index];
    }
    uint32_t index = key ? upper(node, key - 1) : 0;
    if (index == node->count) {
        if (!right)
            return false;
        while (!right->is_leaf)
            right = right->child[0];
        node = right;
        index = 0;
        SH_ASSERT(right->count);
    }
    *leaf_out = node;
    *index_out = index;
    return true;
}

static void shift(struct node *node, uint32_t from, uint32_t to)
{
    uint32_t moved = node->count - from;
    memmove(&node->first[to], &node->first[from], moved * sizeof node->first[0]);
    if (node->is_leaf) {
        memmove(&node->last[to], &node->last[from], moved * sizeof node->last[0]);
        memmove(&node->value[to], &node->value[from], moved * sizeof node->value[0]);
    } else {
        memmove(&node->child[to], &node->child[from], moved * sizeof node->child[0]);
    }
}

/* Appends count of from's slots, beginning at `at`, to into. */
static void append(struct node *into, const struct node *from, uint32_t at, uint32_t count)
{
    SH_ASSERT(into->is_leaf == from->is_leaf);
    SH_ASSERT(into->count + count <= FAN);
    uint32_t to = into->count;
    memcpy(&into->first[to], &from->first[at], count * sizeof from->first[0]);
    if (into->is_leaf) {
        memcpy(&into->last[to], &from->last[at], count * sizeof from->last[0]);
        memcpy(&into->value[to], &from->value[at], count * sizeof from->value[0]);
    } else {
        memcpy(&into->child[to], &from->child[at], count * sizeof from->child[0]);
    }
    into->count += count;
}

static void child_insert(struct node *parent, uint32_t at, struct node *child)
{
    SH_ASSERT(!parent->is_leaf && parent->count < FAN);
    shift(parent, at, at + 1);
    parent->first[at] = child->first[0];
    parent->child[at] = child;
    parent->count++;
}

/* Moves the upper half of the full child at `index` to a new sibling. A sequence of IDs is mostly
 * appended at its end: then the split leaves the old leaf full. */
static void split_child(struct sh_ranges *ranges, struct node *parent, uint32_t index, uint64_t key)
{
    struct node *child = parent->child[index];
    SH_ASSERT(child->count == FAN);
    uint32_t kept = key > child->first[FAN - 1] && child->is_leaf ? FAN - 1 : FAN / 2;
    struct node *sibling = node_take(ranges, child->is_leaf);
    append(sibling, child, kept, FAN - kept);
    child->count = kept;
    child_insert(parent, index + 1, sibling);
}

static void insert(struct sh_ranges *ranges, struct entry entry)
{
    SH_ASSERT(entry.first <= entry.last);
    if (ranges->root->count == FAN) {
        struct node *root = node_take(ranges, false);
        root->first[0] = 0;
        root->child[0] = ranges->root;
        root->count = 1;
        ranges->root = root;
        ranges->height++;
        SH_ASSERT(ranges->height <= HEIGHT_MAX);
        split_child(ranges, root, 0, entry.first);
    }
    struct node *node = ranges->root;
    while (!node->is_leaf) {
        uint32_t index = child_of(node, entry.first);
        if (node->child[index]->count == FAN) {
            split_child(ranges, node, index, entry.first);
            index = child_of(node, entry.first);
        }
        node = node->child[index];
    }
    uint32_t at = upper(node, entry.first);
    SH_ASSERT(!at || node->first[at - 1] < entry.first);
    shift(node, at, at + 1);
    node->first[at] = entry.first;
    node->last[at] = entry.last;
    node->value[at] = entry.value;
    node->count++;
    ranges->count++;
}

static void slot_remove(struct node *node, uint32_t index)
{
    SH_ASSERT(index < node->count);
    shift(node, index + 1, index);
    node->count--;
}

/* After a delete below the parent's child at `index`: frees it if it is empty, or makes one of it
 * and a sibling if they fit. */
static void mend_child(struct sh_ranges *ranges, struct node *parent, uint32_t index)
{
    struct node *child = parent->child[index];
    if (!child->count) {
        slot_remove(parent, index);
        node_return(ranges, child);
        return;
    }
    for (uint32_t left = index ? index - 1 : 0; left <= index; left++) {
        if (left + 1 >= parent->count)
            return;
        struct node *into = parent->child[left];
        struct node *from = parent->child[left + 1];
        if (into->count + from->count > MERGE_MAX)
            continue;
        /* The first bound of an inner node is never compared with, so it may be stale. */
        if (!from->is_leaf)
            from->first[0] = parent->first[left + 1];
        append(into, from, 0, from->count);
        slot_remove(parent, left + 1);
        node_return(ranges, from);
        return;
    }
}

/* The path to the entry that begins at first; it must be there. */
static void path_find(const struct sh_ranges *ranges, uint64_t first, struct path *path_out)
{
    struct node *node = ranges->root;
    unsigned depth = 0;
    for (;;) {
        uint32_t index = child_of(node, first);
        path_out->node[depth] = node;
        path_out->index[depth] = index;
        if (node->is_leaf)
            break;
        node = node->child[index];
        depth++;
    }
    SH_ASSERT(depth + 1 == ranges->height);
    SH_ASSERT(node->count && node->first[path_out->index[depth]] == first);
}

static void erase(struct sh_ranges *ranges, uint64_t first)
{
    struct path path;
    path_find(ranges, first, &path);
    unsigned depth = ranges->height - 1;
    slot_remove(path.node[depth], path.index[depth]);
    ranges->count--;
    while (depth > 0) {
        depth--;
        mend_child(ranges, path.node[depth], path.index[depth]);
    }
    while (!ranges->root->is_leaf && ranges->root->count <= 1) {
        SH_ASSERT(ranges->root->count == 1);
        struct node *root = ranges->root;
        ranges->root = root->child[0];
        ranges->height--;
        node_return(ranges, root);
    }
}

/* Takes first to last out; inserts at most one entry (a range's part above last). */
static void carve(struct sh_ranges *ranges, uint64_t first, uint64_t last)
{
    struct node *leaf;
    uint32_t index;
    if (find_floor(ranges, first, &leaf, &index)) {
        struct entry entry = entry_at(leaf, index);
        if (entry.first < first && entry.last >= first) {
            leaf->last[index] = first - 1;
            if (entry.last > last) {
                insert(ranges, (struct entry){last + 1, entry.last, entry.value});
                return;
            }
        }
    }
    while (find_ceiling(ranges, first, &leaf, &index)) {
        struct entry entry = entry_at(leaf, index);
        if (entry.first > last)
            return;
        erase(ranges, entry.first);
        if (entry.last > last) {
            insert(ranges, (struct entry){last + 1, entry.last, entry.value});
            return;
        }
    }
}

enum shoal_err sh_ranges_create(size_t nodes_max, struct sh_ranges **ranges_out)
{
    SH_ASSERT(nodes_max >= 64);
    struct sh_ranges *ranges = calloc(1, sizeof *ranges);
    if (!ranges)
        return SHOAL_ENOMEM;
    ranges->nodes_max = nodes_max;
    enum shoal_err err = reserve(ranges);
    if (err) {
        sh_ranges_destroy(ranges);
        return err;
    }
    ranges->root = node_take(ranges, true);
    ranges->height = 1;
    *ranges_out = ranges;
    return SHOAL_OK;
}

static void tree_return(struct sh_ranges *ranges, struct node *node)
{
    for (uint32_t i = 0; !node->is_leaf && i < node->count; i++)
        tree_return(ranges, node->child[i]);
    node_return(ranges, node);
}

void sh_ranges_destroy(struct sh_ranges *ranges)
{
    if (!ranges)
        return;
    if (ranges->root)
        tree_return(ranges, ranges->root);
    while (ranges->free) {
        struct node *node = ranges->free;
        ranges->free = node->next_free;
        free(node);
    }
    free(ranges);
}

enum shoal_err sh_ranges_set(struct sh_ranges *ranges, shoal_cid first, shoal_cid last,
                             uint64_t value)
{
    SH_ASSERT(first.v <= last.v);
    enum shoal_err err = reserve(ranges);
    if (err)
        return err;
    carve(ranges, first.v, last.v);
    struct entry entry = {first.v, last.v, value};
    struct node *leaf;
    uint32_t index;
    if (last.v != UINT64_MAX && find_ceiling(ranges, last.v, &leaf, &index)) {
        struct entry right = entry_at(leaf, index);
        if (right.first == last.v + 1 && right.value == value) {
            entry.last = right.last;
            erase(ranges, right.first);
        }
    }
    if (first.v && find_floor(ranges, first.v - 1, &leaf, &index)) {
        struct entry left = entry_at(leaf, index);
        if (left.last == first.v - 1 && left.value == value) {
            leaf->last[index] = entry.last;
            return SHOAL_OK;
        }
    }
    insert(ranges, entry);
    return SHOAL_OK;
}

enum shoal_err sh_ranges_remove(struct sh_ranges *ranges, shoal_cid first, shoal_cid last)
{
    SH_ASSERT(first.v <= last.v);
    struct sh_range cut;
    if (sh_ranges_find(ranges, last, &cut) && cut.last.v > last.v) {
        enum shoal_err err = reserve(ranges);
        if (err)
            return err;
    }
    carve(ranges, first.v, last.v);
    return SHOAL_OK;
}

static struct sh_range range_of(struct entry entry)
{
    return (struct sh_range){{entry.first}, {entry.last}, entry.value};
}

bool sh_ranges_find(const struct sh_ranges *ranges, shoal_cid cid, struct sh_range *range_out)
{
    struct node *leaf;
    uint32_t index;
    if (!find_floor(ranges, cid.v, &leaf, &index) || leaf->last[index] < cid.v)
        return false;
    *range_out = range_of(entry_at(leaf, index));
    return true;
}

bool sh_ranges_next(const struct sh_ranges *ranges, shoal_cid from, struct sh_range *range_out)
{
    if (sh_ranges_find(ranges, from, range_out))
        return true;
    struct node *leaf;
    uint32_t index;
    if (!find_ceiling(ranges, from.v, &leaf, &index))
        return false;
    *range_out = range_of(entry_at(leaf, index));
    return true;
}

void sh_ranges_clear(struct sh_ranges *ranges)
{
    tree_return(ranges, ranges->root);
    ranges->root = node_take(ranges, true);
    ranges->height = 1;
    ranges->count = 0;
}

size_t sh_ranges_count(const struct sh_ranges *ranges)
{
    return ranges->count;
}

size_t sh_ranges_bytes(const struct sh_ranges *ranges)
{
    return sizeof *ranges + ranges->nodes * sizeof(struct node);
}

struct check {
    size_t nodes, entries;
    bool has_last;
    struct entry last;
};

static void check_node(const struct node *node, unsigned height, uint64_t low, uint64_t high,
                       struct check *check)
{
    check->nodes++;
    SH_ASSERT(node->is_leaf == (height == 1));
    SH_ASSERT(node->count <= FAN);
    for (uint32_t i = 0; i < node->count; i++) {
        SH_ASSERT(!i || node->first[i - 1] < node->first[i]);
        if (!node->is_leaf) {
            SH_ASSERT(node->child[i]->count);
            uint64_t above = i + 1 < node->count ? node->first[i + 1] - 1 : high;
            check_node(node->child[i], height - 1, i ? node->first[i] : low, above, check);
            continue;
        }
        struct entry entry = entry_at(node, i);
        SH_ASSERT(entry.first >= low && entry.first <= high);
        SH_ASSERT(entry.last >= entry.first);
        if (check->has_last) {
            SH_ASSERT(check->last.last < entry.first);
            SH_ASSERT(check->last.last + 1 < entry.first || check->last.value != entry.value);
        }
        check->has_last = true;
        check->last = entry;
        check->entries++;
    }
}

void sh_ranges_check(const struct sh_ranges *ranges)
{
    struct check check = {0};
    check_node(ranges->root, ranges->height, 0, UINT64_MAX, &check);
    SH_ASSERT(check.entries == ranges->count);
    SH_ASSERT(check.nodes + ranges->free_count == ranges->nodes);
    SH_ASSERT(ranges->nodes <= ranges->nodes_max);
}
