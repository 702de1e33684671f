/* One graph's part on a peer: the sorted names of its vertices and the local IDs of their chunks.
 *
 *   names   8 bytes a vertex, ascending; a vertex's place there is its index
 *   runs    24 bytes for each run of consecutive local IDs: usually one in all
 *
 * A name is found by binary search; an ID's index too, over the runs. */
#ifndef SH_GRAPH_PART_INT_H
#define SH_GRAPH_PART_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backup/backup.h"
#include "base/bytes.h"
#include "base/unmap.h"
#include "msg/msg.h"
#include "shoal/err.h"
#include "store/store.h"

/* count consecutive local IDs from lid on belong to the vertices from index first on. */
struct sh_part_run {
    uint64_t lid;
    uint32_t first;
    uint32_t count;
};

struct sh_part {
    uint64_t graph_id;
    bool typed;
    uint32_t rank; /* ours among the peers */
    uint32_t peer_count;
    shoal_nid *peers;
    uint32_t count; /* vertices whose chunks exist */
    uint32_t names_room;
    uint64_t *names;
    struct sh_part_run *runs; /* by index */
    uint32_t *runs_by_lid;    /* places in runs, by lid; made by sh_part_finish */
    uint32_t run_count;
    uint32_t run_room;
    uint8_t *types; /* texts, one after the other */
    size_t types_size;
    size_t types_room;
    uint32_t types_count;
    uint64_t edges;    /* that leave its vertices */
    uint64_t parallel; /* of them, those that repeat another's target and relation */
    uint64_t records;
    uint64_t record_bytes;
    uint64_t chunk_bytes;
    /* On the way out: who waits for that. */
    struct sh_part *next;
    bool reply_wanted;
    struct sh_reply_to reply_to;
    sh_msg_type reply_type;
};

SHOAL_NODISCARD enum shoal_err sh_part_create(uint64_t graph_id, uint32_t peer_count,
                                              struct sh_part **part_out);
/* Frees it, once it has no vertices. NULL is allowed. The list takes what is large; NULL: at once. */
void sh_part_free(struct sh_part *part, struct sh_unmaps *unmaps);

/* Adds a vertex, whose chunk's ID is retained (sh_store_wish); names must come in ascending order.
 * ENOMEM changes nothing; ELIMIT likewise. */
SHOAL_NODISCARD enum shoal_err sh_part_add(struct sh_part *part, uint64_t name, sh_lid lid);
/* After the last sh_part_add: gives back spare room and makes IDs findable. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_part_finish(struct sh_part *part);

bool sh_part_find_name(const struct sh_part *part, uint64_t name, uint32_t *index_out);
bool sh_part_find_lid(const struct sh_part *part, sh_lid lid, uint32_t *index_out);
sh_lid sh_part_lid(const struct sh_part *part, uint32_t index);
/* Which peer a node ID is; false for none. hint: the last answer, tried first. */
bool sh_part_find_peer(const struct sh_part *part, shoal_nid nid, uint32_t *rank_inout);

/* Removes up to 1024 of its chunks from the store, the last first; true when none is left. Chunks
 * that others have created since it was loaded stay. */
bool sh_part_remove_some(struct sh_part *part, struct sh_store *store, struct sh_backup *backup);
/* Its chunks stay in the store as any others; the part has no vertices any more. */
void sh_part_let_go(struct sh_part *part, struct sh_store *store);

uint64_t sh_part_index_bytes(const struct sh_part *part);
uint64_t sh_part_payload_bytes(const struct sh_part *part);

#endif
