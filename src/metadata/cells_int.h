/* Cells: the pieces of memory that a shard's state is made of, at most SH_CELL_BYTES each, with a
 * count of references. A cell that has more than one is never changed, but copied before: so a
 * snapshot keeps a state by one reference to its root. sh_cells_take never fails while
 * sh_cells_fill has seen to spare cells before, so a change that was begun is finished.
 *
 *   take ---> refs 1 ---drop, refs 0---> garbage ---sweep---> children dropped, memory free
 *
 * Freeing is in pieces: a drop puts a cell among the garbage, and each cell that is swept drops its
 * children, at most SH_CELL_CHILDREN_MAX. Threads: one at a time. */
#ifndef SH_METADATA_CELLS_INT_H
#define SH_METADATA_CELLS_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal/err.h"

#define SH_CELL_BYTES 4080 /* with malloc's head one page */
#define SH_CELL_CHILDREN_MAX 400

enum sh_cell_kind {
    SH_CELL_LEAF = 1, /* map.c: items */
    SH_CELL_INNER,    /* map.c: references to pages below */
    SH_CELL_MEMBERS,  /* metadata_barriers.c: references to members of a round */
    SH_CELL_PLAIN,    /* without references */
};

struct sh_cell {
    struct sh_cell *next; /* in the list of spares or of garbage */
    uint32_t refs;
    uint8_t kind;
};

struct sh_cells {
    struct sh_cell *spares; /* each of SH_CELL_BYTES, for when malloc fails */
    struct sh_cell *garbage;
    size_t spare_count;
    size_t garbage_count;
    size_t count;        /* that are taken, garbage included */
    size_t failures_due; /* tests: the allocation from now on that fails, and all behind; 0: none */
};

/* A cell of `bytes`, kind and one reference; the rest is not initialized. A spare one if malloc has
 * none. Asserts that there is one. */
void *sh_cells_take(struct sh_cells *cells, size_t bytes, enum sh_cell_kind kind);
/* Gives a reference back; a cell without any is garbage. NULL is allowed. */
void sh_cells_drop(struct sh_cells *cells, struct sh_cell *cell);
/* Sees to it that there are so many spares. ENOMEM: there are fewer, and no fewer than before. */
SHOAL_NODISCARD enum shoal_err sh_cells_fill(struct sh_cells *cells, size_t count);
/* Frees spares beyond a count, at most `most` of them. */
void sh_cells_trim(struct sh_cells *cells, size_t count, size_t most);
/* Frees at most `most` cells of the garbage. True: there is more. */
bool sh_cells_sweep(struct sh_cells *cells, size_t most);
/* malloc, but for failures_due. */
void *sh_cells_malloc(struct sh_cells *cells, size_t bytes);

#endif
