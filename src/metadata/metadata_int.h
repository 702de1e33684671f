/* The inside of a shard's state, shared by metadata*.c. */
#ifndef SH_METADATA_METADATA_INT_H
#define SH_METADATA_METADATA_INT_H

#include "metadata/metadata.h"
#include "ring/arcs.h"

struct sh_metadata_name {
    shoal_cid cid;
    uint8_t *bytes; /* size of them */
    uint8_t size;
};

/* decided: sequence << 1 | whether it was committed. before: bit n, whether the one whose sequence
 * is lower by 1 + n was. */
struct sh_metadata_source {
    shoal_nid nid;
    uint64_t decided, before;
};

struct sh_metadata_scratch {
    uint8_t *bytes; /* the key, then the value */
    uint16_t value_size;
    uint8_t key_size;
};

/* What came of a caller's last update. */
struct sh_metadata_caller {
    uint64_t caller, number;
    uint64_t update; /* which update of the shard it was */
    struct sh_metadata_result result;
};

struct sh_metadata_shard {
    uint64_t incarnation;
    bool is_known, is_partial;
    bool is_short;   /* a CLAIM had no room: it can't be known what is where */
    uint64_t missed; /* CLAIMs that came too early: their nodes are asked again */
    /* Of each creator with moved chunks all IDs; NULL: there is none. */
    struct sh_ranges *ranges;
    struct sh_metadata_source *sources; /* by ascending ID */
    size_t source_count, source_room;
    struct sh_metadata_name *names; /* ascending */
    size_t name_count, name_room;
    struct sh_metadata_scratch *scratch; /* ascending */
    size_t scratch_count, scratch_room, scratch_bytes;
    struct sh_barrier **barriers; /* by ascending ID */
    size_t barrier_count, barrier_room, barrier_bytes;
    struct sh_metadata_caller *callers; /* SH_METADATA_CALLERS_MAX; NULL: none yet */
    size_t caller_count;
    uint64_t updates; /* by callers */
    uint64_t name_changes;
    uint64_t name_base; /* the highest number of a gathered list that is in it; 0: none */
    bool names_known;
    uint64_t forgotten; /* up to this update callers may be forgotten */
};

struct sh_metadata {
    struct sh_metadata_shard shards[SH_SHARDS];
};

/* metadata_names.c. The order of names. */
int sh_metadata_compare(struct sh_bytes a, struct sh_bytes b);
/* Whether bytes may be a name or key: 1 to SH_NAME_BYTES_MAX, without a NUL, as C programs read
 * them. */
bool sh_metadata_is_name(struct sh_bytes name);
/* Where a name is, or would be. */
size_t sh_metadata_name_lower(const struct sh_metadata_shard *shard, struct sh_bytes name,
                              bool *found_out);
/* Puts a name in at its place. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_name_insert(struct sh_metadata_shard *shard, size_t at,
                                                       struct sh_bytes name, shoal_cid cid);
struct sh_metadata_result sh_metadata_name_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update);
void sh_metadata_names_clear(struct sh_metadata_shard *shard);

/* metadata_services.c: updates that have a caller, as bytes, with the kind read or put already; and
 * what a shard has beside moved chunks and names. */
void sh_metadata_service_put(struct sh_writer *w, const struct sh_metadata_update *update);
/* Whether it is one. */
bool sh_metadata_service_get(struct sh_reader *r, unsigned shard,
                             struct sh_metadata_update *update);
unsigned sh_metadata_service_shard(const struct sh_metadata_update *update);
/* Carries it out, if it was not yet. */
struct sh_metadata_result sh_metadata_service_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update);
size_t sh_metadata_services_size(const struct sh_metadata_shard *shard);
void sh_metadata_services_put(const struct sh_metadata_shard *shard, struct sh_writer *w);
/* EPROTO, ENOMEM leave something that is to be cleared. */
SHOAL_NODISCARD enum shoal_err sh_metadata_services_get(struct sh_metadata_shard *shard,
                                                        struct sh_reader *r);
void sh_metadata_services_clear(struct sh_metadata_shard *shard);

/* metadata_scratch.c, metadata_barriers.c: the same for each. */
struct sh_metadata_result sh_metadata_scratch_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update);
size_t sh_metadata_scratch_size(const struct sh_metadata_shard *shard);
void sh_metadata_scratch_put(const struct sh_metadata_shard *shard, struct sh_writer *w);
SHOAL_NODISCARD enum shoal_err sh_metadata_scratch_read(struct sh_metadata_shard *shard,
                                                        struct sh_reader *r);
void sh_metadata_scratch_clear(struct sh_metadata_shard *shard);
struct sh_metadata_result sh_metadata_barrier_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update);
size_t sh_metadata_barriers_size(const struct sh_metadata_shard *shard);
void sh_metadata_barriers_put(const struct sh_metadata_shard *shard, struct sh_writer *w);
SHOAL_NODISCARD enum shoal_err sh_metadata_barriers_read(struct sh_metadata_shard *shard,
                                                         struct sh_reader *r);
void sh_metadata_barriers_clear(struct sh_metadata_shard *shard);

/* metadata_moves.c. The source's entry; a new one with nothing decided. NULL: out of memory. */
struct sh_metadata_source *sh_metadata_source(struct sh_metadata_shard *shard, shoal_nid nid);
/* Sees to it that SH_METADATA_AHEAD_MAX updates about moves have the memory that they may take.
 * ENOMEM changes nothing that can be seen. */
SHOAL_NODISCARD enum shoal_err sh_metadata_moves_reserve(struct sh_metadata_shard *shard);
/* The shard's tree, made if there is none. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_ranges(struct sh_metadata_shard *shard);
struct sh_metadata_result sh_metadata_move_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update);

#endif
