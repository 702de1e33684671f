/* An ordered map from keys of 1 to SH_MAP_KEY_MAX bytes to values of at most SH_MAP_VALUE_MAX, by
 * the order of the keys' bytes: a B+ tree of pages, which are cells and so are copied before a
 * change when a snapshot refers to them too.
 *
 *   page    header, offsets of the items in the keys' order (2 bytes each), room, items
 *   leaf    item: key size - 1 (1 byte), value size (2), key, value
 *   inner   item: the page below (8 bytes), key size - 1 (1), key, zeros up to a multiple of 8. The
 *           keys in the page below are at or above the item's key, and below the next item's
 *
 * Memory of an item: 5 bytes beside key and value; pages are 69 % full after insertions in no order
 * (so times 1.45), full after ascending ones behind all items, three quarters full after ascending ones
 * between others. A page that is less than a quarter full is joined
 * with a neighbour if both take at most three quarters.
 *
 * Time: each operation looks at one page of each level; 2^18 names of 16 bytes have 3 levels. A
 * copy of an inner page adds a reference to each page below, at most SH_CELL_CHILDREN_MAX.
 *
 * Memory that a change may take: sh_map_cells_max. */
#ifndef SH_METADATA_MAP_INT_H
#define SH_METADATA_MAP_INT_H

#include "base/bytes.h"
#include "metadata/cells_int.h"

#define SH_MAP_KEY_MAX 256
#define SH_MAP_VALUE_MAX 1024
#define SH_MAP_HEIGHT_MAX 16

/* All zero: empty. */
struct sh_map {
    struct sh_cell *root; /* NULL: empty */
    unsigned height;      /* levels of pages; 0: empty */
    size_t pages;
};

/* A place in a map: an item, or the end. Void after a change of the map, unless another reference
 * holds the root that it was made with. */
struct sh_map_cursor {
    const struct sh_map_page *pages[SH_MAP_HEIGHT_MAX];
    uint16_t at[SH_MAP_HEIGHT_MAX];
    unsigned depth; /* 0: the end */
};

/* False: not there. The value is borrowed until the next change. */
bool sh_map_get(const struct sh_map *map, struct sh_bytes key, struct sh_bytes *value_out);
/* Gives a key its value, copied; neither may lie in the map. True: the key was not there. */
bool sh_map_put(struct sh_map *map, struct sh_cells *cells, struct sh_bytes key,
                struct sh_bytes value);
/* The same with a key above all that are there, which takes no search. */
void sh_map_append(struct sh_map *map, struct sh_cells *cells, struct sh_bytes key,
                   struct sh_bytes value);
/* False: it was not there. */
bool sh_map_remove(struct sh_map *map, struct sh_cells *cells, struct sh_bytes key);
void sh_map_clear(struct sh_map *map, struct sh_cells *cells);

/* The first item whose key is not below. */
void sh_map_seek(const struct sh_map *map, struct sh_bytes key, struct sh_map_cursor *cursor);
/* The last item whose key is not above. False: there is none. */
bool sh_map_floor(const struct sh_map *map, struct sh_bytes key, struct sh_bytes *key_out,
                  struct sh_bytes *value_out);
/* False: at the end. */
bool sh_map_item(const struct sh_map_cursor *cursor, struct sh_bytes *key_out,
                 struct sh_bytes *value_out);
void sh_map_next(struct sh_map_cursor *cursor);

/* Cells that so many changes with so many bytes of keys and values may take in all. */
size_t sh_map_cells_max(const struct sh_map *map, size_t changes, size_t bytes);
/* Order, fill and references, by assertions: for tests. */
void sh_map_check(const struct sh_map *map);
/* cells.c: an inner page is freed. */
void sh_map_children_drop(struct sh_cells *cells, struct sh_cell *page);

/* As memcmp, and a prefix comes before what it is one of. */
int sh_bytes_order(struct sh_bytes a, struct sh_bytes b);

#endif
