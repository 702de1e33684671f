/* The ordered map. A change goes down by recursion, makes each page on its way its own (refs 1),
 * and repairs on its way up: a page that was split adds an item above, one that got empty or small
 * is taken out or joined. */
#include "metadata/map_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct sh_map_page {
    struct sh_cell cell;
    uint16_t count;
    uint16_t heap; /* where the lowest item begins */
    uint16_t dead; /* bytes among the items that belong to none */
    uint16_t at[]; /* where each item begins */
};

#define HEAD_BYTES offsetof(struct sh_map_page, at)
#define ROOM_BYTES (SH_CELL_BYTES - HEAD_BYTES)
#define LEAF_HEAD 3
#define INNER_HEAD 9

_Static_assert(sizeof(void *) == 8 && SH_CELL_BYTES % 8 == 0, "references are aligned");
/* Half of a full page and one more item, and another half, fit. */
_Static_assert((ROOM_BYTES + 5 + SH_MAP_KEY_MAX + SH_MAP_VALUE_MAX) / 2 + 5 + SH_MAP_KEY_MAX +
                       SH_MAP_VALUE_MAX <=
                   ROOM_BYTES,
               "both halves of a split have room");
_Static_assert(ROOM_BYTES / (16 + 2) <= SH_CELL_CHILDREN_MAX,
               "an inner item has 16 bytes at least");

int sh_bytes_order(struct sh_bytes a, struct sh_bytes b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size ? memcmp(a.at, b.at, size) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* --- Pages ----------------------------------------------------------------------------------- */

static struct sh_map_page *page_of(struct sh_cell *cell)
{
    return (struct sh_map_page *)cell;
}

static bool is_leaf(const struct sh_map_page *page)
{
    return page->cell.kind == SH_CELL_LEAF;
}

static uint8_t *item_at(const struct sh_map_page *page, unsigned i)
{
    SH_VERIFY(i < page->count);
    return (uint8_t *)(uintptr_t)page + page->at[i];
}

static struct sh_bytes key_of(const struct sh_map_page *page, unsigned i)
{
    const uint8_t *item = item_at(page, i);
    return is_leaf(page) ? sh_bytes_make(item + LEAF_HEAD, item[0] + 1u)
                         : sh_bytes_make(item + INNER_HEAD, item[8] + 1u);
}

/* Of an inner item: the bytes of its reference. */
static struct sh_bytes value_of(const struct sh_map_page *page, unsigned i)
{
    const uint8_t *item = item_at(page, i);
    return is_leaf(page) ? sh_bytes_make(item + LEAF_HEAD + item[0] + 1, sh_load16(item + 1))
                         : sh_bytes_make(item, 8);
}

static struct sh_cell **child_of(const struct sh_map_page *page, unsigned i)
{
    SH_VERIFY(!is_leaf(page));
    return (struct sh_cell **)(void *)item_at(page, i);
}

static size_t item_bytes(bool leaf, size_t key_size, size_t value_size)
{
    return leaf ? LEAF_HEAD + key_size + value_size : (INNER_HEAD + key_size + 7) / 8 * 8;
}

static size_t bytes_of(const struct sh_map_page *page, unsigned i)
{
    return item_bytes(is_leaf(page), key_of(page, i).size, value_of(page, i).size);
}

/* Offsets and items. */
static size_t used_of(const struct sh_map_page *page)
{
    return SH_CELL_BYTES - (size_t)page->heap - page->dead + 2 * (size_t)page->count;
}

static void page_empty(struct sh_map_page *page)
{
    page->count = page->dead = 0;
    page->heap = SH_CELL_BYTES;
}

static struct sh_map_page *page_new(struct sh_map *map, struct sh_cells *cells, uint8_t kind)
{
    struct sh_map_page *page = sh_cells_take(cells, SH_CELL_BYTES, kind);
    page_empty(page);
    map->pages++;
    return page;
}

/* Puts an item in as the i-th. False: there is no room. */
static bool page_add(struct sh_map_page *page, unsigned i, struct sh_bytes key,
                     struct sh_bytes value);

/* Moves items together, so that all room is in one piece. */
static void page_compact(struct sh_map_page *page)
{
    uint8_t copy[SH_CELL_BYTES] __attribute__((aligned(16)));
    memcpy(copy, page, SH_CELL_BYTES);
    const struct sh_map_page *old = (const struct sh_map_page *)(const void *)copy;
    page_empty(page);
    for (unsigned i = 0; i < old->count; i++) {
        bool fits = page_add(page, i, key_of(old, i), value_of(old, i));
        SH_ASSERT(fits);
    }
}

static bool page_add(struct sh_map_page *page, unsigned i, struct sh_bytes key,
                     struct sh_bytes value)
{
    SH_ASSERT(key.size && key.size <= SH_MAP_KEY_MAX && i <= page->count);
    size_t size = item_bytes(is_leaf(page), key.size, value.size);
    if (used_of(page) + size + 2 > ROOM_BYTES)
        return false;
    if (HEAD_BYTES + 2 * (page->count + (size_t)1) + size > page->heap)
        page_compact(page);
    memmove(&page->at[i + 1], &page->at[i], (page->count - i) * sizeof page->at[0]);
    page->heap = (uint16_t)(page->heap - size);
    page->at[i] = page->heap;
    page->count++;
    uint8_t *item = item_at(page, i);
    if (!is_leaf(page)) {
        memset(item + size - 8, 0, 8);
        memcpy(item, value.at, 8);
        item[8] = (uint8_t)(key.size - 1);
        memcpy(item + INNER_HEAD, key.at, key.size);
        return true;
    }
    item[0] = (uint8_t)(key.size - 1);
    sh_store16(item + 1, (uint16_t)value.size);
    memcpy(item + LEAF_HEAD, key.at, key.size);
    if (value.size)
        memcpy(item + LEAF_HEAD + key.size, value.at, value.size);
    return true;
}

static void page_take_out(struct sh_map_page *page, unsigned i)
{
    page->dead = (uint16_t)(page->dead + bytes_of(page, i));
    page->count--;
    memmove(&page->at[i], &page->at[i + 1], (page->count - i) * sizeof page->at[0]);
    if (!page->count)
        page_empty(page);
}

/* The first item whose key is not below. */
static unsigned page_lower(const struct sh_map_page *page, struct sh_bytes key, bool *found_out)
{
    unsigned low = 0, high = page->count;
    *found_out = false;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        int order = sh_bytes_order(key_of(page, middle), key);
        if (order == 0) {
            *found_out = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How a change finds its way down. */
enum way {
    SEARCH,      /* by keys */
    SEARCH_LAST, /* by keys, so far at the last page of each level */
    APPEND,      /* behind all keys */
};

/* The page below in which a key is, or would be. */
static unsigned page_child(const struct sh_map_page *page, struct sh_bytes key)
{
    bool found;
    unsigned i = page_lower(page, key, &found);
    return found || !i ? i : i - 1;
}

static void children_share(const struct sh_map_page *page)
{
    for (unsigned i = 0; !is_leaf(page) && i < page->count; i++)
        (*child_of(page, i))->refs++;
}

void sh_map_children_drop(struct sh_cells *cells, struct sh_cell *cell)
{
    const struct sh_map_page *page = page_of(cell);
    for (unsigned i = 0; i < page->count; i++)
        sh_cells_drop(cells, *child_of(page, i));
}

/* The page at *place, which may be changed: a copy in its place if others refer to it. */
static struct sh_map_page *page_own(struct sh_cells *cells, struct sh_cell **place)
{
    struct sh_map_page *page = page_of(*place);
    if (page->cell.refs == 1)
        return page;
    struct sh_map_page *copy = sh_cells_take(cells, SH_CELL_BYTES, page->cell.kind);
    memcpy((uint8_t *)copy + sizeof copy->cell, (uint8_t *)page + sizeof page->cell,
           SH_CELL_BYTES - sizeof copy->cell);
    children_share(copy);
    sh_cells_drop(cells, &page->cell);
    *place = &copy->cell;
    return copy;
}

/* --- Insertion ------------------------------------------------------------------------------- */

struct item {
    struct sh_bytes key, value;
};

/* A page that was split off, and from which key on it has the items. */
struct split {
    struct sh_cell *page; /* NULL: none was */
    size_t key_size;
    uint8_t key[SH_MAP_KEY_MAX];
};

/* The item of the page that was split off, in the page above. */
static struct item split_item(const struct split *split)
{
    return (struct item){sh_bytes_make(split->key, split->key_size),
                         sh_bytes_make(&split->page, sizeof split->page)};
}

/* The shortest key that is above left's last and not above right's first; above leaves, right's
 * first: it bounds what lies below already. */
static void split_key(const struct sh_map_page *left, const struct sh_map_page *right,
                      struct split *split)
{
    struct sh_bytes low = key_of(left, left->count - 1u), high = key_of(right, 0);
    size_t same = 0;
    while (same < low.size && same < high.size && low.at[same] == high.at[same])
        same++;
    SH_ASSERT(same < high.size);
    split->key_size = is_leaf(left) ? same + 1 : high.size;
    memcpy(split->key, high.at, split->key_size);
}

/* Up to how many bytes the left one of two pages is to have that a page with another i-th item is divided
 * into: half of them, or three quarters where the item comes behind so many. So pages that are filled in order
 * somewhere in the middle, as by a node whose zones have rising IDs, stay three quarters full, and one that is
 * split again has taken in a quarter of a page since all the same (sh_map_cells_max). */
static size_t split_point(const struct sh_map_page *page, unsigned i, size_t item_size)
{
    size_t before = 0, most = ROOM_BYTES / 4 * 3;
    for (unsigned at = 0; at < i; at++)
        before += 2 + bytes_of(page, at);
    return before >= most ? most : (used_of(page) + 2 + item_size) / 2;
}

/* Divides a page that has no room for another i-th item, with that, by bytes. An item
 * behind all others of the map (is_last: nothing is right of the page) gets a page of its own: so
 * pages that are filled in order are full. */
static void page_split(struct sh_map *map, struct sh_cells *cells, struct sh_map_page *left,
                       unsigned i, struct item item, bool is_last, struct split *split)
{
    struct sh_bytes key = item.key, value = item.value;
    uint8_t copy[SH_CELL_BYTES] __attribute__((aligned(16)));
    memcpy(copy, left, SH_CELL_BYTES);
    const struct sh_map_page *old = (const struct sh_map_page *)(const void *)copy;
    struct sh_map_page *right = page_new(map, cells, left->cell.kind);
    struct sh_map_page *to = left;
    size_t most = split_point(old, i, item_bytes(is_leaf(old), key.size, value.size));
    size_t sum = 0;
    page_empty(left);
    for (unsigned at = 0; at <= old->count; at++) {
        struct sh_bytes k = at == i ? key : key_of(old, at - (at > i));
        struct sh_bytes v = at == i ? value : value_of(old, at - (at > i));
        sum += 2 + item_bytes(is_leaf(old), k.size, v.size);
        if (is_last && i == old->count ? at == i : left->count && sum > most)
            to = right;
        bool fits = page_add(to, to->count, k, v);
        SH_ASSERT(fits);
    }
    split->page = &right->cell;
    split_key(left, right, split);
}

static void page_insert(struct sh_map *map, struct sh_cells *cells, struct sh_map_page *page,
                        unsigned i, struct item item, bool is_last, struct split *split)
{
    if (!page_add(page, i, item.key, item.value))
        page_split(map, cells, page, i, item, is_last, split);
}

static bool put_below(struct sh_map *map, struct sh_cells *cells, struct sh_cell **place,
                      struct item item, enum way way, struct split *split);

/* True: the key was not there. */
static bool put_leaf(struct sh_map *map, struct sh_cells *cells, struct sh_map_page *page,
                     struct item item, enum way way, struct split *split)
{
    bool found = false;
    unsigned i = way == APPEND ? page->count : page_lower(page, item.key, &found);
    SH_VERIFY(way != APPEND || !i || sh_bytes_order(key_of(page, i - 1), item.key) < 0);
    struct sh_bytes old = found ? value_of(page, i) : (struct sh_bytes){NULL, 0};
    if (found && old.size == item.value.size) {
        if (old.size)
            memcpy((uint8_t *)(uintptr_t)old.at, item.value.at, old.size);
        return false;
    }
    if (found)
        page_take_out(page, i);
    page_insert(map, cells, page, i, item, way != SEARCH, split);
    return !found;
}

static bool put_below(struct sh_map *map, struct sh_cells *cells, struct sh_cell **place,
                      struct item item, enum way way, struct split *split)
{
    struct sh_map_page *page = page_own(cells, place);
    if (is_leaf(page))
        return put_leaf(map, cells, page, item, way, split);
    struct split below;
    below.page = NULL;
    unsigned i = way == APPEND ? page->count - 1u : page_child(page, item.key);
    enum way on = way == SEARCH_LAST && i + 1u < page->count ? SEARCH : way;
    bool is_new = put_below(map, cells, child_of(page, i), item, on, &below);
    if (below.page)
        page_insert(map, cells, page, i + 1, split_item(&below), way != SEARCH, split);
    return is_new;
}

static bool put(struct sh_map *map, struct sh_cells *cells, struct item item, enum way way)
{
    SH_ASSERT(item.key.size && item.key.size <= SH_MAP_KEY_MAX);
    SH_ASSERT(item.value.size <= SH_MAP_VALUE_MAX);
    static const uint8_t lowest[1] = {0};
    if (!map->root) {
        map->root = &page_new(map, cells, SH_CELL_LEAF)->cell;
        map->height = 1;
    }
    struct split split;
    split.page = NULL;
    bool is_new = put_below(map, cells, &map->root, item, way, &split);
    if (split.page) {
        struct sh_map_page *root = page_new(map, cells, SH_CELL_INNER);
        struct item right = split_item(&split);
        bool fits = page_add(root, 0, sh_bytes_make(lowest, 1), sh_bytes_make(&map->root, 8)) &&
                    page_add(root, 1, right.key, right.value);
        SH_ASSERT(fits && map->height < SH_MAP_HEIGHT_MAX);
        map->root = &root->cell;
        map->height++;
    }
    return is_new;
}

bool sh_map_put(struct sh_map *map, struct sh_cells *cells, struct sh_bytes key,
                struct sh_bytes value)
{
    return put(map, cells, (struct item){key, value}, SEARCH_LAST);
}

void sh_map_append(struct sh_map *map, struct sh_cells *cells, struct sh_bytes key,
                   struct sh_bytes value)
{
    bool is_new = put(map, cells, (struct item){key, value}, APPEND);
    SH_ASSERT(is_new);
}

/* --- Removal --------------------------------------------------------------------------------- */

/* Drops a page of which nothing is left, whose children others have. */
static void page_end(struct sh_map *map, struct sh_cells *cells, struct sh_map_page *page)
{
    page_empty(page);
    sh_cells_drop(cells, &page->cell);
    map->pages--;
}

/* Joins the page below at i + 1 with that at i. */
static void join(struct sh_map *map, struct sh_cells *cells, struct sh_map_page *page, unsigned i)
{
    struct sh_map_page *left = page_own(cells, child_of(page, i));
    struct sh_map_page *right = page_of(*child_of(page, i + 1));
    for (unsigned at = 0; at < right->count; at++) {
        bool fits = page_add(left, left->count, key_of(right, at), value_of(right, at));
        SH_ASSERT(fits);
    }
    if (right->cell.refs == 1) {
        page_end(map, cells, right);
    } else {
        children_share(right);
        sh_cells_drop(cells, &right->cell);
        map->pages--;
    }
    page_take_out(page, i + 1);
}

/* Something was removed from the page below at i: takes it out if it is empty, or joins it with a
 * neighbour. What is at 0 keeps its key, which bounds all that is below. */
static void child_repair(struct sh_map *map, struct sh_cells *cells, struct sh_map_page *page,
                         unsigned i)
{
    struct sh_map_page *child = page_of(*child_of(page, i));
    if (!child->count) {
        page_end(map, cells, child);
        if (!i && page->count > 1)
            *child_of(page, 0) = *child_of(page, 1);
        page_take_out(page, !i && page->count > 1 ? 1 : i);
        return;
    }
    const size_t small = ROOM_BYTES / 4, enough = ROOM_BYTES / 4 * 3;
    size_t used = used_of(child);
    if (used >= small)
        return;
    if (i + 1u < page->count && used + used_of(page_of(*child_of(page, i + 1))) <= enough)
        join(map, cells, page, i);
    else if (i && used + used_of(page_of(*child_of(page, i - 1))) <= enough)
        join(map, cells, page, i - 1);
}

static void remove_below(struct sh_map *map, struct sh_cells *cells, struct sh_cell **place,
                         struct sh_bytes key)
{
    struct sh_map_page *page = page_own(cells, place);
    if (!is_leaf(page)) {
        unsigned i = page_child(page, key);
        remove_below(map, cells, child_of(page, i), key);
        child_repair(map, cells, page, i);
        return;
    }
    bool found;
    unsigned i = page_lower(page, key, &found);
    SH_ASSERT(found);
    page_take_out(page, i);
}

bool sh_map_remove(struct sh_map *map, struct sh_cells *cells, struct sh_bytes key)
{
    struct sh_bytes value;
    if (!sh_map_get(map, key, &value))
        return false;
    remove_below(map, cells, &map->root, key);
    struct sh_map_page *root = page_of(map->root);
    while (!is_leaf(root) && root->count == 1) {
        map->root = *child_of(root, 0);
        map->height--;
        page_end(map, cells, root);
        root = page_of(map->root);
    }
    if (!root->count) {
        page_end(map, cells, root);
        SH_ASSERT(!map->pages);
        *map = (struct sh_map){.root = NULL};
    }
    return true;
}

void sh_map_clear(struct sh_map *map, struct sh_cells *cells)
{
    sh_cells_drop(cells, map->root);
    *map = (struct sh_map){.root = NULL};
}

/* --- Looking --------------------------------------------------------------------------------- */

bool sh_map_get(const struct sh_map *map, struct sh_bytes key, struct sh_bytes *value_out)
{
    const struct sh_map_page *page = page_of(map->root);
    while (page && !is_leaf(page))
        page = page_of(*child_of(page, page_child(page, key)));
    bool found = false;
    unsigned i = page ? page_lower(page, key, &found) : 0;
    if (found)
        *value_out = value_of(page, i);
    return found;
}

/* Goes down from a page to a leaf, to its first items or to its last ones. */
static void cursor_descend(struct sh_map_cursor *cursor, const struct sh_map_page *page,
                           bool is_last)
{
    for (;;) {
        cursor->pages[cursor->depth] = page;
        cursor->at[cursor->depth] = (uint16_t)(is_last ? page->count - 1 : 0);
        cursor->depth++;
        if (is_leaf(page))
            return;
        page = page_of(*child_of(page, cursor->at[cursor->depth - 1]));
    }
}

/* The cursor is behind its leaf's last item: goes to the next leaf. */
static void cursor_pass(struct sh_map_cursor *cursor)
{
    while (cursor->depth &&
           ++cursor->at[cursor->depth - 1] >= cursor->pages[cursor->depth - 1]->count)
        cursor->depth--;
    if (!cursor->depth)
        return;
    const struct sh_map_page *page = cursor->pages[cursor->depth - 1];
    cursor_descend(cursor, page_of(*child_of(page, cursor->at[cursor->depth - 1])), false);
}

void sh_map_seek(const struct sh_map *map, struct sh_bytes key, struct sh_map_cursor *cursor)
{
    cursor->depth = 0;
    const struct sh_map_page *page = page_of(map->root);
    for (; page; page = page_of(*child_of(page, cursor->at[cursor->depth - 1]))) {
        bool found;
        cursor->pages[cursor->depth] = page;
        cursor->at[cursor->depth] =
            (uint16_t)(is_leaf(page) ? page_lower(page, key, &found) : page_child(page, key));
        cursor->depth++;
        if (is_leaf(page))
            break;
    }
    if (page && cursor->at[cursor->depth - 1] >= page->count) {
        cursor->depth--;
        cursor_pass(cursor);
    }
}

bool sh_map_floor(const struct sh_map *map, struct sh_bytes key, struct sh_bytes *key_out,
                  struct sh_bytes *value_out)
{
    struct sh_map_cursor cursor = {.depth = 0};
    const struct sh_map_page *page = page_of(map->root);
    /* The last page on the way that has something before it: what is below there is the floor if
     * the leaf has none. */
    const struct sh_map_page *before = NULL;
    unsigned before_at = 0;
    while (page && !is_leaf(page)) {
        unsigned i = page_child(page, key);
        if (i) {
            before = page;
            before_at = i - 1;
        }
        page = page_of(*child_of(page, i));
    }
    bool found = false;
    unsigned i = page ? page_lower(page, key, &found) : 0;
    if (page && (found || i)) {
        i -= !found;
    } else if (before) {
        cursor_descend(&cursor, page_of(*child_of(before, before_at)), true);
        page = cursor.pages[cursor.depth - 1];
        i = page->count - 1u;
    } else {
        return false;
    }
    *key_out = key_of(page, i);
    *value_out = value_of(page, i);
    return true;
}

bool sh_map_item(const struct sh_map_cursor *cursor, struct sh_bytes *key_out,
                 struct sh_bytes *value_out)
{
    if (!cursor->depth)
        return false;
    unsigned level = cursor->depth - 1;
    *key_out = key_of(cursor->pages[level], cursor->at[level]);
    *value_out = value_of(cursor->pages[level], cursor->at[level]);
    return true;
}

void sh_map_next(struct sh_map_cursor *cursor)
{
    SH_ASSERT(cursor->depth);
    unsigned level = cursor->depth - 1;
    if (++cursor->at[level] < cursor->pages[level]->count)
        return;
    cursor->depth--;
    cursor_pass(cursor);
}

/* --- Memory ---------------------------------------------------------------------------------- */

/* Two bounds, of which the lower one counts. By changes: each copies the pages on its way and for
 * a removal a neighbour of each, or splits each, and may make a root; the map may get two levels
 * higher meanwhile. By pages: each page is copied once at most (until the next snapshot is begun)
 * and split once; what is split again has taken in a quarter of a page since, and each split adds
 * an item above, so that all splits take at most twice the bytes' share. */
size_t sh_map_cells_max(const struct sh_map *map, size_t changes, size_t bytes)
{
    size_t levels = map->height + 2;
    size_t by_changes = changes * (2 * levels + 1);
    size_t by_pages = 2 * map->pages + 2 * (bytes / (SH_CELL_BYTES / 4) + 1) + 2 * levels;
    return by_changes < by_pages ? by_changes : by_pages;
}

/* Returns how many pages there are at and below a page, whose keys are from low on and below high
 * (size 0: no bound). */
static size_t page_check(struct sh_cell *cell, unsigned level, struct sh_bytes low,
                         struct sh_bytes high)
{
    const struct sh_map_page *page = page_of(cell);
    SH_ASSERT(cell->refs && page->count && is_leaf(page) == (level == 1));
    SH_ASSERT(HEAD_BYTES + 2 * (size_t)page->count <= page->heap && used_of(page) <= ROOM_BYTES);
    size_t pages = 1, bytes = 0;
    for (unsigned i = 0; i < page->count; i++) {
        struct sh_bytes key = key_of(page, i);
        SH_ASSERT(!i || sh_bytes_order(key_of(page, i - 1), key) < 0);
        SH_ASSERT(!low.size || sh_bytes_order(low, key) <= 0);
        SH_ASSERT(!high.size || sh_bytes_order(key, high) < 0);
        bytes += bytes_of(page, i);
        if (!is_leaf(page))
            pages += page_check(*child_of(page, i), level - 1, key,
                                i + 1u < page->count ? key_of(page, i + 1) : high);
    }
    SH_ASSERT(bytes + page->dead + page->heap == SH_CELL_BYTES);
    return pages;
}

void sh_map_check(const struct sh_map *map)
{
    const struct sh_bytes none = {NULL, 0};
    SH_ASSERT(!map->root == !map->height);
    SH_ASSERT(map->pages == (map->root ? page_check(map->root, map->height, none, none) : 0));
}
