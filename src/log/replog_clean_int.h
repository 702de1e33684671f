/* A zone that is being cleaned: what replog_clean.c, replog_clean_slots.c and replog_clean_kept.c share. */
#ifndef SH_LOG_REPLOG_CLEAN_INT_H
#define SH_LOG_REPLOG_CLEAN_INT_H

#include "log/currents.h"
#include "log/replog_int.h"
#include "log/version_log.h"

#define SH_REPLOG_CLEAN_SLOTS 8 /* cleaned for one load of the versions */

/* Pieces of large chunks that are kept: a hash table with linear probing. */
struct sh_replog_kept_pieces {
    struct sh_replog_kept_piece {
        uint64_t chunk; /* 0: free */
        struct sh_replog_version version;
        uint16_t piece;
    } * pieces;         /* borrowed; NULL: there was no memory, and none is known to be kept */
    size_t room, count; /* count < room */
};

enum sh_replog_clean_phase { LOADS_VERSIONS, COMPACTS, COPIES, SETTLES, RECORDS, GIVES };

struct sh_replog_clean_memory;

struct sh_replog_clean {
    struct sh_replog_zone *zone;
    enum sh_replog_clean_phase phase;
    struct sh_currents *currents;
    struct sh_replog_reader reader;
    /* Borrowed (replog_clean_memory.c). Those that are read: of versions, then those that are cleaned; and room to sort them. */
    uint32_t *slots;
    uint64_t *listed;
    unsigned count;
    /* Slots that were chosen when the cleaning began: no other one is cleaned. */
    uint32_t chosen[SH_REPLOG_CLEAN_SLOTS];
    unsigned chosen_count;
    struct sh_replog_kept_pieces kept;
    struct sh_replog_compaction compaction;
    uint32_t *gone; /* slots that are given away at the end; borrowed */
    unsigned gone_count;
    /* Where we are in the slot that is looked at. */
    bool is_of_eon; /* the cleaner visits only slots with entries of the eon before */
    bool is_open;
    bool stays; /* it is not among those that were chosen */
    struct sh_replog_walk walk;
    struct sh_replog_entry held; /* for which there was no memory */
    bool is_held;
    size_t at; /* in a slot of versions */
    struct sh_version_reader tuples;
    struct sh_version_tuple tuple; /* what is left of one; first 0: nothing */
    struct sh_replog_batch *survivors;
    struct sh_replog_tally tallies[SH_SLOT_GENERATION_MAX + 1];
    unsigned on_their_way; /* batches, of survivors and of a compaction */
    uint32_t begun;        /* slots that had been taken, and seconds, when it began */
    uint32_t seconds;
    uint32_t since_least,
        since_next; /* of slots that are not of versions: the least, and the least but for one of those */
    uint64_t wanted;   /* sequence number before which all has to be durable */
    unsigned recorded; /* lives */
    struct sh_replog_giving giving;
    enum shoal_err err;
};

/* --- replog_clean_memory.c ---------------------------------------------------------------------- */

struct sh_replog_clean_memory {
    struct sh_replog_clean clean;
    uint8_t *buffers[2]; /* of a slot each */
    void *currents;      /* a mapping; zeros while no zone is cleaned */
    size_t currents_bytes;
    uint32_t *slots, *gone;
    uint64_t *listed;
    struct sh_replog_kept_piece *pieces;
    size_t slots_room, gone_room, listed_room, pieces_room;
};

/* Memory for a cleaning of the zone, with so many bytes for what is current: what is there, or more. ENOMEM. */
SHOAL_NODISCARD enum shoal_err
sh_replog_clean_memory_take(const struct sh_replog_zone *zone, size_t currents_bytes,
                            struct sh_replog_clean_memory **memory_out);
/* Room for so many pieces, all free; NULL: there is no memory. */
struct sh_replog_kept_piece *sh_replog_clean_memory_pieces(struct sh_replog_clean_memory *memory,
                                                           size_t count);
/* The cleaning is over. */
void sh_replog_clean_memory_settle(struct sh_replog_clean_memory *memory);

/* --- replog_clean_slots.c ----------------------------------------------------------------------- */

/* Whether the zone has slots from an earlier process. */
bool sh_replog_clean_has_found(const struct sh_replog_clean *clean);
/* Lists in clean->slots the slots of the zone that have to be read to know the versions, without those to which something is on its way. */
void sh_replog_clean_list_tellers(struct sh_replog_clean *clean);
/* Chooses some of the slots that can be cleaned (replog_select.c), not more than half of them. */
void sh_replog_clean_choose(struct sh_replog_clean *clean);
bool sh_replog_clean_is_chosen(const struct sh_replog_clean *clean, uint32_t slot);
/* Lists in clean->slots those of the chosen ones that can still be cleaned, at most so many. */
void sh_replog_clean_list_chosen(struct sh_replog_clean *clean, unsigned most);
/* When the slots were begun that were begun first. */
void sh_replog_clean_since_find(struct sh_replog_clean *clean);

/* --- replog_clean_kept.c ------------------------------------------------------------------------ */

/* Of each current entry one has to stay. It is kept once it has been read in a slot that is not cleaned now, or has been copied: whatever
 * other entries of that chunk, version and piece the cleaner meets are dropped. For what is no piece of a large chunk a bit beside its version
 * says so; for pieces, a table. The entry is one that counts, is no completion record, and its version has the name that it has in the
 * zone's eon. */
void sh_replog_clean_keep(struct sh_replog_clean *clean, const struct sh_replog_entry *entry);
bool sh_replog_clean_is_kept(const struct sh_replog_clean *clean,
                             const struct sh_replog_entry *entry);
void sh_replog_kept_pieces_make(struct sh_replog_kept_pieces *kept,
                                const struct sh_replog_zone *zone,
                                struct sh_replog_clean_memory *memory);

#endif
