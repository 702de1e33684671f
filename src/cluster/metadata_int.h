/* The inside of a sector's state, shared by metadata*.c. */
#ifndef SH_CLUSTER_METADATA_INT_H
#define SH_CLUSTER_METADATA_INT_H

#include "cluster/arcs.h"
#include "cluster/metadata.h"

struct sh_metadata_name {
    shoal_cid cid;
    uint8_t *bytes; /* size of them */
    uint8_t size;
};

/* decided: sequence << 1 | whether it was committed. */
struct sh_metadata_source {
    shoal_nid nid;
    uint64_t decided;
};

struct sh_metadata_sector {
    uint64_t incarnation;
    bool is_known;
    /* Of each creator with moved chunks all IDs; NULL: there is none. */
    struct sh_ranges *ranges;
    struct sh_metadata_source *sources; /* by ascending ID */
    size_t source_count, source_room;
    struct sh_metadata_name *names; /* ascending */
    size_t name_count, name_room;
};

struct sh_metadata {
    struct sh_metadata_sector sectors[SH_SECTORS];
};

/* metadata_names.c. Where a name is, or would be. */
size_t sh_metadata_name_lower(const struct sh_metadata_sector *sector, struct sh_bytes name,
                              bool *found_out);
/* Puts a name in at its place. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_name_insert(struct sh_metadata_sector *sector, size_t at,
                                                       struct sh_bytes name, shoal_cid cid);
struct sh_metadata_result sh_metadata_name_apply(struct sh_metadata_sector *sector,
                                                 const struct sh_metadata_update *update);
void sh_metadata_names_clear(struct sh_metadata_sector *sector);

/* metadata_moves.c. The source's entry; a new one with nothing decided. NULL: out of memory. */
struct sh_metadata_source *sh_metadata_source(struct sh_metadata_sector *sector, shoal_nid nid);
/* The sector's tree, made if there is none. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_ranges(struct sh_metadata_sector *sector);
struct sh_metadata_result sh_metadata_move_apply(struct sh_metadata_sector *sector,
                                                 const struct sh_metadata_update *update);

#endif
