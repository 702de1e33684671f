/* A peer's log of its own chunks, on its own disk (option replicas, backup/backup.h): what a peer has comes back from it when the peer
 * is started again.
 *
 *   the peer was there before:  create --> open --> joins, and learns what is its own by now (moves_former.c) --> serves
 *   it is new:                  create --> joins --> open --> serves
 *
 * A log names its node and its cluster, so it is opened once these are known, and always before anything is served: nothing changes
 * a chunk that no log hears of. Only a peer that comes back as the same node can have one (node/identity.h).
 *
 * Threads: that of the transport step, to which the disk belongs; the end is asked for by any. */
#ifndef SH_NODE_LOGS_H
#define SH_NODE_LOGS_H

#include "backup/backup.h"
#include "base/crew.h"
#include "base/options.h"
#include "env/env.h"

struct sh_logs;

struct sh_logs_config {
    const struct sh_options *options; /* kept, like the store and the backup */
    struct sh_env env;                /* has the disk of data_dir; NULL: there is none */
    struct sh_store *store;
    struct sh_backup *backup; /* sh_logs_window is its window */
};

/* The level of changes that name none. */
enum sh_level sh_logs_level(const struct sh_options *options);
/* How many bytes of backlog a peer with these options needs; 0: it logs nothing. */
uint64_t sh_logs_window(const struct sh_options *options);

/* *logs_out: NULL where the peer has no log. detail (256 bytes) says what is wrong. EINVAL: replicas without a data_dir, or none
 * where data_dir has a log, whose chunks would come back some other time; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_logs_create(const struct sh_logs_config *config,
                                              struct sh_logs **logs_out, char *detail);
/* What is not synced may be lost: sh_logs_sync_begin. After the backup is destroyed, before the disk is. NULL is allowed. */
void sh_logs_close(struct sh_logs *logs);

/* Opens the node's log in its cluster and brings back what it has. Once; waits for the disk. detail (256 bytes): what is
 * wrong, and what to do. EINVAL: the log is of another node, or the cluster does not take the peer back as the same one (cluster
 * 0); else errors of sh_replog_open and sh_recover_home_run. */
SHOAL_NODISCARD enum shoal_err sh_logs_open(struct sh_logs *logs, shoal_nid nid, uint64_t cluster,
                                            char *detail);
bool sh_logs_is_open(const struct sh_logs *logs);

/* Moves changes to the log. */
struct sh_step sh_logs_step(struct sh_logs *logs);

/* Begins to sync all that was written so far, and says whether that has ended, well or not. Any thread; begun once, before
 * sh_logs_close. */
void sh_logs_sync_begin(struct sh_logs *logs);
bool sh_logs_is_synced(struct sh_logs *logs);

#endif
