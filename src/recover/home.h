/* Bringing a node back from its own disk: what its log has of its zones goes into its store, before anybody uses that.
 *
 * Zones are read from the highest number down, as of two that claim a chunk the one with the higher number has it
 * (docs/backup.md). Each is loaded (its versions), then read (its slots, one while the one before is looked at), and then
 * written to again, in a new life.
 *
 * Waits for the disk. One thread. */
#ifndef SH_RECOVER_HOME_H
#define SH_RECOVER_HOME_H

#include "backup/backup.h"
#include "backup/completion.h"
#include "env/env.h"

struct sh_recover_home {
    struct sh_replog *log; /* open, on that disk */
    struct sh_disk *disk;
    struct sh_backup *backup; /* whose home is not set yet */
    struct sh_store *store;   /* empty */
    shoal_nid nid;            /* whose zones are brought back */
    bool is_nameless;         /* the store has no node ID, its own chunks are that node's */
    struct sh_clock clock;
    /* Gets the completion record of each request that a client may repeat (completion.h), of that node's life before; called at the end. NULL: nobody
     * wants to know. */
    void (*completed)(void *arg, const struct sh_completion *completion);
    void *arg;
};

struct sh_recovered {
    uint64_t zones, chunks, payload_bytes;
    uint64_t completions; /* that were told */
    uint64_t left;        /* images in zones that do not have the chunk (any more): these go */
    uint64_t zone;        /* the number of the zone that was looked at last */
};

/* EFULL, ETOOBIG: the store has no room for a chunk. ECORRUPT: the log of a zone is damaged. EIO, ENOMEM. The store and the backup
 * are of no use then. */
SHOAL_NODISCARD enum shoal_err sh_recover_home_run(const struct sh_recover_home *home,
                                                   struct sh_recovered *found_out);

#endif
