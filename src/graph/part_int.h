/* One graph's part on a peer: which of the peer's chunks are its vertices, and what the peer knows of all of it.
 *
 *   a draft (of a load)    names    8 bytes a vertex, ascending; a vertex's place there is its index
 *                          runs     24 bytes for each run of consecutive local IDs: usually one in all
 *   once it is live        extents  extents_int.h; names and runs go
 *
 * In a draft, whose chunks are still empty, a name is found by binary search; later its chunks say it. */
#ifndef SH_GRAPH_PART_INT_H
#define SH_GRAPH_PART_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backup/backup.h"
#include "base/bytes.h"
#include "base/unmap.h"
#include "graph/extents_int.h"
#include "graph/manifest_int.h"
#include "graph/vertex.h"
#include "msg/msg.h"
#include "shoal/err.h"
#include "store/store.h"

/* count consecutive local IDs from lid on belong to the vertices from index first on. */
struct sh_part_run {
    uint64_t lid;
    uint32_t first;
    uint32_t count;
};

/* A chunk of a manifest of the graph, which is here. */
struct sh_part_manifest {
    sh_lid lid;
    bool is_retained;
};

struct sh_part {
    uint64_t graph_id, generation;
    bool typed;
    uint32_t rank; /* of a draft: ours among the peers */
    /* The peers that it is, or was, loaded onto. 0: not known, as there was no manifest here. */
    uint32_t peer_count;
    shoal_nid *peers;
    /* Of a draft. */
    uint32_t count; /* vertices whose chunks exist */
    uint32_t names_room;
    uint64_t *names;
    struct sh_part_run *runs; /* by index */
    uint32_t run_count;
    uint32_t run_room;
    uint64_t parallel; /* edges that repeat another's target and relation */
    /* From sh_part_finish on. */
    bool is_finished;
    struct sh_extents extents;
    struct sh_part_manifest *manifests;
    uint32_t manifest_count, manifest_room;
    /* All of the graph, as a manifest says, or the load's coordinator. */
    bool knows_all;
    uint64_t all_vertices, all_edges;
    uint8_t *types; /* texts, one after the other */
    size_t types_size;
    size_t types_room;
    uint32_t types_count;
    /* Of the vertices that are here. Of those that others removed or overwrote it still counts what they were. */
    uint64_t edges; /* that leave them */
    uint64_t records;
    uint64_t record_bytes;
    uint64_t chunk_bytes;
    /* On the way out: who waits for that. */
    struct sh_part *next;
    bool reply_wanted;
    struct sh_reply_to reply_to;
    sh_msg_type reply_type;
};

/* peer_count 0: not known. */
SHOAL_NODISCARD enum shoal_err sh_part_create(uint64_t graph_id, uint32_t peer_count,
                                              struct sh_part **part_out);
/* Frees it, once it has no vertices. NULL is allowed. The list takes what is large; NULL: at once. */
void sh_part_free(struct sh_part *part, struct sh_unmaps *unmaps);

/* --- A draft ---------------------------------------------------------------------------------- */

/* Adds a vertex, whose chunk's ID is retained (sh_store_wish); names must come in ascending order.
 * ENOMEM changes nothing; ELIMIT likewise. */
SHOAL_NODISCARD enum shoal_err sh_part_add(struct sh_part *part, uint64_t name, sh_lid lid);
/* After the last sh_part_add: gives back spare room and makes the extents. ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_part_finish(struct sh_part *part);
/* It is a draft no more. */
void sh_part_publish(struct sh_part *part, struct sh_unmaps *unmaps);

bool sh_part_find_name(const struct sh_part *part, uint64_t name, uint32_t *index_out);
sh_lid sh_part_lid(const struct sh_part *part, uint32_t index);

/* --- Live ------------------------------------------------------------------------------------- */

/* A chunk with a manifest is here. ENOMEM; EEXIST: it is known. */
SHOAL_NODISCARD enum shoal_err sh_part_manifest_add(struct sh_part *part, sh_lid lid,
                                                    bool is_retained);
/* Takes what a manifest says, if nothing was known. ENOMEM changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_part_learn(struct sh_part *part,
                                             const struct sh_manifest *manifest);
/* A vertex of it is here, of a chunk of so many bytes. EEXIST: it is known; ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_part_enter(struct sh_part *part, sh_lid lid,
                                             const struct sh_vertex *vertex, size_t size);
/* Those from first to last are not here any more, but their chunks still are. Returns how many there were, manifests included; *lost_out:
 * there was no memory, and some behind them have to be entered again. */
uint64_t sh_part_leave(struct sh_part *part, struct sh_store *store, sh_lid first, sh_lid last,
                       bool *lost_out);
/* Which vertex has a name, by reading chunks: false: none of those here. */
bool sh_part_look_up(const struct sh_part *part, struct sh_store *store, uint64_t name,
                     sh_lid *lid_out);

/* Whose chunks are removed, and which of them may be now: serves as in struct sh_graph_config. */
struct sh_part_removal {
    struct sh_store *store;
    struct sh_backup *backup;
    shoal_nid self;
    bool (*serves)(void *arg, shoal_cid cid, shoal_cid *last_out);
    void *arg;
};
/* Removes up to 256 of its chunks from the store, manifests first and then the last vertex first; true when none is left. Chunks
 * that others have put in the place of a vertex stay. One that stands still, as it moves, is waited for: it leaves the part, or is served
 * again. *done_out: how many were removed. */
bool sh_part_remove_some(struct sh_part *part, const struct sh_part_removal *removal,
                         size_t *done_out);
/* Its chunks stay in the store as any others; the part has no vertices any more. */
void sh_part_let_go(struct sh_part *part, struct sh_store *store);

/* Vertices here. */
static inline uint32_t sh_part_vertices(const struct sh_part *part)
{
    return part->is_finished ? part->extents.vertices : part->count;
}
uint64_t sh_part_index_bytes(const struct sh_part *part);
uint64_t sh_part_payload_bytes(const struct sh_part *part);

/* The chunk of a local ID, and back. */
static inline shoal_cid sh_part_cid(shoal_nid self, sh_lid lid)
{
    return shoal_cid_creator(lid).v == 0 ? shoal_cid_make(self, lid.v) : lid;
}

#endif
