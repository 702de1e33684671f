/* The inside of a shard's state, shared by metadata*.c.
 *
 * Sources, ranges, names, zones and scratch are items of one ordered map (map_int.h), whose keys begin
 * with their kind; barriers and completion records have tables of their own:
 *
 *   SOURCE    node, big-endian (2 bytes)       u64 last, the last batch that was decided about
 *   RANGE     first chunk ID, big-endian (8)   u16 owner; by TAKE also u64 life, u64 zone, u32 incarnation;
 *                                              up to the next range of that creator. Of a creator with moved chunks all
 *                                              IDs are in ranges
 *   NAME      the name                         u64 chunk ID
 *   ZONE      zone ID, big-endian (8)          u32 era, the record without its ID (zone.h)
 *   LAST      node, big-endian (2)             u64 number of the last zone that it has created
 *   SCRATCH   the key                          the value
 *
 * The owner NONE: nobody's, since all replicas were lost, unless a target says that it has them. LOST:
 * nobody's, whoever may still have a copy of before. The era is made of the shard's incarnation in which the
 * record was written; in another one the record is old. */
#ifndef SH_METADATA_METADATA_INT_H
#define SH_METADATA_METADATA_INT_H

#include "metadata/map_int.h"
#include "metadata/metadata.h"
#include "metadata/metadata_barriers.h"
#include "ring/arcs.h"

#define SH_METADATA_LOST UINT16_MAX

#define SH_NOTE_BYTES 2
#define SH_NOTE_TAKEN_BYTES 22

enum sh_metadata_item {
    SH_ITEM_SOURCE = 1,
    SH_ITEM_RANGE,
    SH_ITEM_NAME,
    SH_ITEM_ZONE,
    SH_ITEM_LAST,
    SH_ITEM_SCRATCH,
    SH_ITEM_KINDS,
};

/* A completion record: the result of a caller's last update. */
struct sh_metadata_completion {
    uint64_t caller, number;
    uint64_t update; /* which update of the shard it was */
    struct sh_metadata_result result;
};

/* What updates that are reserved and not applied may take at most (metadata_reserve.c). */
struct sh_metadata_need {
    uint32_t updates;
    size_t changes; /* of the map; SIZE_MAX: any number */
    size_t bytes;   /* of keys and values that they put into the map */
    size_t cells;   /* beside the map */
};

struct sh_metadata_shard {
    struct sh_cells *cells; /* of all shards */
    uint64_t incarnation;
    bool is_known;
    struct sh_map items;
    size_t counts[SH_ITEM_KINDS]; /* of items */
    size_t scratch_bytes;         /* keys and values */
    size_t zones_short, zones_recovering, zones_lost;
    size_t barrier_count, barrier_bytes;
    size_t completion_count;
    uint64_t updates;              /* by callers */
    uint64_t forgotten;            /* up to this update completion records may have been dropped */
    struct sh_metadata_refs *refs; /* metadata_refs.c: of each peer's ID, up to refs_room of them */
    size_t refs_room;
    struct sh_barrier *barriers[SH_BARRIERS_MAX]; /* by ascending ID */
    struct sh_metadata_completion completions[SH_METADATA_CALLERS_MAX];
};

/* Reservations of a shard, in windows of SH_METADATA_AHEAD_MAX updates. */
struct sh_metadata_ahead {
    struct sh_metadata_need older, newer;
    size_t cells; /* what both may take */
};

struct sh_metadata {
    struct sh_cells cells;
    size_t reserved; /* cells that all shards' reservations may take */
    size_t open;     /* snapshots and restores */
    struct sh_metadata_ahead ahead[SH_SHARDS];
    struct sh_metadata_shard shards[SH_SHARDS];
};

/* metadata.c */
/* Empties a shard's state; its memory becomes garbage. */
void sh_metadata_shard_clear(struct sh_metadata_shard *shard);

/* metadata_items.c: items by kind and key without the kind. */
bool sh_metadata_item_get(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                          struct sh_bytes key, struct sh_bytes *value_out);
void sh_metadata_item_put(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                          struct sh_bytes key, struct sh_bytes value);
/* The same with an item behind all items. */
void sh_metadata_item_append(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                             struct sh_bytes key, struct sh_bytes value);
/* The item is there. */
void sh_metadata_item_remove(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                             struct sh_bytes key);
/* The first item at or, if is_after, behind a key. False: there is none of that kind. */
bool sh_metadata_item_next(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                           struct sh_bytes key, bool is_after, struct sh_bytes *key_out,
                           struct sh_bytes *value_out);
/* The last item at or before a key. */
bool sh_metadata_item_floor(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                            struct sh_bytes key, struct sh_bytes *key_out,
                            struct sh_bytes *value_out);
/* The first key that is greater than `after` (NULL at: from the beginning) and begins with prefix.
 */
bool sh_metadata_item_search(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                             struct sh_bytes prefix, struct sh_bytes after,
                             struct sh_bytes *key_out, struct sh_bytes *value_out);
/* Whether bytes may be a name or key: 1 to SH_NAME_BYTES_MAX, without a NUL, as C programs read
 * them. */
bool sh_metadata_is_name(struct sh_bytes name);
bool sh_metadata_is_peer(shoal_nid nid);
bool sh_metadata_is_batch(uint8_t kind);

/* metadata_names.c, metadata_scratch.c, metadata_barriers.c, metadata_moves.c: carry out updates.
 */
struct sh_metadata_result sh_metadata_name_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update);
struct sh_metadata_result sh_metadata_scratch_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update);
struct sh_metadata_result sh_metadata_barrier_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update);
struct sh_metadata_result sh_metadata_move_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update);
/* metadata_zones.c */
struct sh_metadata_result sh_metadata_zone_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update);
bool sh_metadata_is_zone(uint8_t kind);
/* An update of a zone as bytes, with the kind read or put already. */
void sh_metadata_zone_update_put(struct sh_writer *w, const struct sh_metadata_update *update);
/* Whether it is one. */
bool sh_metadata_zone_update_get(struct sh_reader *r, struct sh_metadata_update *update);
#define SH_ZONE_VALUE_MAX (4 + SH_ZONE_BYTES_MAX - 8)
/* Reads an item. False: it is none. */
bool sh_metadata_zone_read(struct sh_bytes key, struct sh_bytes value, struct sh_zone *zone_out);
/* An item was put in (is_more) or taken out. */
void sh_metadata_zone_count(struct sh_metadata_shard *shard, struct sh_bytes value, bool is_more);

/* Whether a range's value is a good one. */
bool sh_metadata_is_note(struct sh_bytes value);
struct sh_metadata_note sh_metadata_note_read(struct sh_bytes value);
static inline bool sh_metadata_note_is_same(const struct sh_metadata_note *a,
                                            const struct sh_metadata_note *b)
{
    return a->owner.v == b->owner.v && a->life == b->life && a->zone == b->zone &&
           a->incarnation == b->incarnation;
}
/* Forgets where chunks are, and what was decided about batches. */
void sh_metadata_moves_clear(struct sh_metadata_shard *shard);

/* metadata_refs.c. ENOMEM: an update, or an item, must not be taken. Room once made stays. */
SHOAL_NODISCARD enum shoal_err sh_metadata_refs_grow(struct sh_metadata_shard *shard, size_t room);
SHOAL_NODISCARD enum shoal_err sh_metadata_refs_fill(struct sh_metadata_shard *shard,
                                                     const struct sh_metadata_update *update);
SHOAL_NODISCARD enum shoal_err sh_metadata_refs_fill_item(struct sh_metadata_shard *shard,
                                                          enum sh_metadata_item kind,
                                                          struct sh_bytes key,
                                                          struct sh_bytes value);
/* An item was put in (is_more) or taken out. */
void sh_metadata_refs_count(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                            struct sh_bytes key, struct sh_bytes value, bool is_more);

/* metadata_services.c: updates that have a caller, as bytes, with the kind read or put already. */
void sh_metadata_service_put(struct sh_writer *w, const struct sh_metadata_update *update);
/* Whether it is one. */
bool sh_metadata_service_get(struct sh_reader *r, struct sh_metadata_update *update);
unsigned sh_metadata_service_shard(const struct sh_metadata_update *update);
/* Carries an update out, if that was not done yet. */
struct sh_metadata_result sh_metadata_service_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update);

/* metadata_barriers.c */
#define SH_METADATA_CHUNK_MEMBERS 256 /* of a round, in one cell */
/* Puts a barrier in at its place, without members. Takes one cell. */
struct sh_barrier *sh_metadata_barrier_insert(struct sh_metadata_shard *shard,
                                              const struct sh_barrier *made);
/* Adds a member to a round, behind the others. Takes two cells. */
void sh_metadata_member_add(struct sh_metadata_shard *shard, struct sh_barrier_round *round,
                            uint64_t id, struct sh_bytes data);
/* Another reference to all members of a round, which is a copy. */
void sh_metadata_round_share(struct sh_barrier_round *round);
void sh_metadata_round_drop(struct sh_cells *cells, struct sh_barrier_round *round);
void sh_metadata_barriers_clear(struct sh_metadata_shard *shard);
/* cells.c: a cell of kind SH_CELL_MEMBERS is freed. */
void sh_metadata_members_drop(struct sh_cells *cells, struct sh_cell *cell);
/* Bytes of all members' data. */
size_t sh_metadata_round_bytes(const struct sh_barrier_round *round);

/* metadata_reserve.c. ENOMEM: apply would lack memory. Nothing to do where the update was reserved.
 */
SHOAL_NODISCARD enum shoal_err sh_metadata_ahead_check(struct sh_metadata *metadata,
                                                       unsigned number,
                                                       const struct sh_metadata_update *update);
/* An update was applied. */
void sh_metadata_ahead_done(struct sh_metadata *metadata, unsigned number,
                            const struct sh_metadata_update *update);
/* Sees to it that what is reserved has its spares again: a snapshot was begun, or a state
 * installed. */
SHOAL_NODISCARD enum shoal_err sh_metadata_ahead_fill(struct sh_metadata *metadata,
                                                      unsigned number);

#endif
