/* Which chunks of a peer are vertices of a graph, and an order in which a name is found among them.
 *
 *   extent   40 bytes for each run of consecutive local IDs whose names ascend
 *
 * A load creates vertices in the order of their names, so that a peer has one extent in all, or a few where it filled
 * holes in its IDs; each stretch of chunks that moves away or comes makes one more. Nothing is kept for each vertex: its
 * name is in its chunk, and a name is found by reading the chunks that a binary search comes by.
 *
 * Owned by one step. */
#ifndef SH_GRAPH_EXTENTS_INT_H
#define SH_GRAPH_EXTENTS_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal/err.h"
#include "store/store.h"

#define SH_EXTENTS_MAX (UINT32_C(1) << 20) /* 40 MiB */

struct sh_extent {
    sh_lid first;
    uint32_t count;
    uint32_t index; /* of the first one among all vertices: sh_extents_number */
    /* Bounds of its vertices' names, which are exact until a part of it was cut off. */
    uint64_t name_first, name_last;
    bool is_retained; /* the IDs are (sh_store_wish) */
};

/* Zero-initialize: empty. */
struct sh_extents {
    struct sh_extent *at; /* by ascending ID; none overlaps another */
    uint32_t count, room;
    uint32_t vertices;
};

/* Which peer has the vertices among some chunk IDs. */
struct sh_route {
    shoal_cid first, last;
    uint32_t rank;
};

void sh_extents_free(struct sh_extents *extents);

/* Adds extent->count vertices (at least one; index is ignored), none of which is there. ENOMEM, ELIMIT change nothing. Moves what is
 * behind it: in ascending order it takes no time. */
SHOAL_NODISCARD enum shoal_err sh_extents_add(struct sh_extents *extents,
                                              const struct sh_extent *extent);

/* Takes the first stretch of vertices from `first` to `last` out. False: there is none. A stretch in the middle of an extent needs memory for
 * another one: without it what is behind the stretch is taken out with it, and *lost_out is set. */
bool sh_extents_cut(struct sh_extents *extents, sh_lid first, sh_lid last,
                    struct sh_extent *cut_out, bool *lost_out);

/* The extent that has a vertex; NULL: none. hint_inout: where the last one was, looked at first. */
const struct sh_extent *sh_extents_find(const struct sh_extents *extents, sh_lid lid,
                                        uint32_t *hint_inout);

/* Gives the vertices numbers from 0 on, in the order of their IDs, which are good until the next change. */
void sh_extents_number(struct sh_extents *extents);
/* The vertex of that number. */
sh_lid sh_extents_lid(const struct sh_extents *extents, uint32_t index);

#endif
