/* A zone that is being cleaned: what replog_clean.c and replog_clean_slots.c share. */
#ifndef SH_LOG_REPLOG_CLEAN_INT_H
#define SH_LOG_REPLOG_CLEAN_INT_H

#include "log/currents.h"
#include "log/replog_int.h"
#include "log/version_log.h"

enum sh_replog_clean_phase { LOADS_VERSIONS, COMPACTS, COPIES, SETTLES, RECORDS, GIVES };

struct sh_replog_clean {
    struct sh_replog_zone *zone;
    enum sh_replog_clean_phase phase;
    struct sh_currents *currents;
    struct sh_replog_reader reader;
    uint32_t *slots; /* those that are read: of versions, then those that are cleaned */
    unsigned count;
    struct sh_replog_compaction compaction;
    uint32_t *gone; /* slots that are given away at the end */
    unsigned gone_count;
    /* Where we are in the slot that is looked at. */
    bool is_of_eon; /* the cleaner visits only slots with entries of the eon before */
    bool is_open;
    struct sh_replog_walk walk;
    struct sh_replog_entry held; /* for which there was no memory */
    bool is_held;
    size_t at; /* in a slot of versions */
    struct sh_version_reader tuples;
    struct sh_version_tuple tuple; /* what is left of one; first 0: nothing */
    struct sh_replog_batch *survivors;
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

/* --- replog_clean_slots.c ----------------------------------------------------------------------- */

/* Whether the zone has slots from an earlier process. */
bool sh_replog_clean_has_found(const struct sh_replog_clean *clean);
/* Lists in clean->slots the slots of the zone that have to be read to know the versions, or that can be cleaned; without those to which
 * something is on its way; the oldest first. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_clean_list_tellers(struct sh_replog_clean *clean);
SHOAL_NODISCARD enum shoal_err sh_replog_clean_list_cleanable(struct sh_replog_clean *clean);
/* When the slots were begun that were begun first. */
void sh_replog_clean_since_find(struct sh_replog_clean *clean);

#endif
