/* A peer's side of backup, put together (options replicas and replicas_at):
 *
 *   self    its chunks are in its own log, and come back from it when the peer is started again
 *   peers   its chunks are in the logs of other peers (backup/backup.h)
 *
 * In both cases it has a log, and keeps replicas of other peers there (backup/keeper.h). When it is opened:
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
#include "backup/completion.h"
#include "base/crew.h"
#include "base/options.h"
#include "cluster/directory.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/msg.h"
#include "node/logs_told.h"
#include "recover/log_place.h"
#include "recover/restorer.h"

struct sh_logs;

struct sh_logs_config {
    const struct sh_options *options; /* kept, like all that is named here */
    struct sh_env env;                /* has the disk of the log; NULL: there is no data_dir */
    struct sh_disk *folder;           /* that of data_dir, perhaps the same; NULL: there is none */
    struct sh_store *store;
    struct sh_msg *msg;
    struct sh_directory *directory;
    uint64_t life; /* of this process; 0: it has none, as it has no data_dir */
    void (*wake)(void *arg);
    bool (*is_confirmed)(void *arg); /* as of struct sh_keeper_config, like the next one */
    void (*view_wanted)(void *arg);
    /* Of zones that the peer brings back (recover/restorer.h). */
    bool (*may_take)(void *arg, shoal_nid former);
    bool (*may_have)(void *arg, shoal_cid cid);
    bool (*serves)(void *arg, shoal_cid first, shoal_cid last);
    void (*completed)(void *arg, const struct sh_completion *completion);
    enum shoal_err (*make_room)(void *arg, const struct sh_room_wish *wish,
                                struct sh_room_found *found_out);
    /* As of struct sh_backup_config. */
    void (*results)(void *arg, uint64_t first, uint64_t last,
                    void (*each)(void *each_arg, const struct sh_completion *completion),
                    void *each_arg);
    void *arg;
};

/* Where the log is by these options, which have been checked. */
struct sh_log_place sh_logs_place(const struct sh_options *options);
/* The level of changes that name none. */
enum sh_level sh_logs_level(const struct sh_options *options);
/* Makes the peer's backup, and *logs_out: NULL where the peer has no log. detail (256 bytes) says what is wrong. EINVAL: replicas without a data_dir, or none
 * where data_dir has a log, or a note of one on a device, whose chunks would come back some other time; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_logs_create(const struct sh_logs_config *config,
                                              struct sh_backup **backup_out,
                                              struct sh_logs **logs_out, char *detail);
/* Takes no more part in the cluster, once what other nodes' zones have is on the disk: before msg, the backup and the directory are destroyed, and when
 * the crew has stopped. NULL is allowed. */
void sh_logs_leave(struct sh_logs *logs);
/* Changes that are not synced may be lost: sh_logs_sync_begin. After the backup is destroyed, before the disk is. NULL is allowed. */
void sh_logs_close(struct sh_logs *logs);

/* Makes the log of a peer that is no node yet, or opens one that such a peer has made: so that there is nothing to wait for, but for its name, when the peer has joined, whose lease runs then.
 * Waits for the disk. Errors, and detail, as below. */
SHOAL_NODISCARD enum shoal_err sh_logs_make(struct sh_logs *logs, char *detail);
/* Opens the node's log in its cluster and brings back what it has. Once; waits for the disk. detail (256 bytes): what is
 * wrong, and what to do. EINVAL: the log is of another node, or the cluster does not take the peer back as the same one (cluster
 * 0); else errors of sh_replog_open and sh_recover_home_run. */
SHOAL_NODISCARD enum shoal_err sh_logs_open(struct sh_logs *logs, shoal_nid nid, uint64_t cluster,
                                            char *detail);
/* Calls each for what came of requests before this life, as far as a client may repeat them (recover/home.h); once. NULL has none. */
void sh_logs_completed(struct sh_logs *logs,
                       void (*each)(void *arg, const struct sh_completion *completion), void *arg);
bool sh_logs_is_open(const struct sh_logs *logs);

/* Moves changes to the logs. */
struct sh_step sh_logs_step(struct sh_logs *logs);
/* The superpeers' answers about zones; where there are any. */
struct sh_step sh_logs_zones_step(struct sh_logs *logs);

/* The nodes as they are now; borrowed. msg tells of a connection. */
void sh_logs_view(struct sh_logs *logs, const struct sh_view *view);
void sh_logs_link_event(struct sh_logs *logs, const struct sh_msg_event *event);

/* Whether nothing that this node had in former lives is still to be brought back: by others, or by this one. */
bool sh_logs_are_former_over(const struct sh_logs *logs);
/* They are over, and some of it is lost, for good. */
bool sh_logs_are_former_lost(const struct sh_logs *logs);
/* As sh_restorer_is_opening. */
bool sh_logs_is_opening(const struct sh_logs *logs);
/* As sh_restorer_is_filling. */
bool sh_logs_is_filling(const struct sh_logs *logs);

/* Whether the peer's chunks are in its own log. */
bool sh_logs_is_self(const struct sh_logs *logs);
/* Whether it asks the superpeers about zones: of its own, or of replicas that it keeps. */
bool sh_logs_has_zones(const struct sh_logs *logs);

/* Begins to sync all that was written so far, and says whether that has ended, well or not. Any thread; begun once, before
 * sh_logs_close. */
void sh_logs_sync_begin(struct sh_logs *logs);
bool sh_logs_is_synced(struct sh_logs *logs);
/* Whether nothing of the peer's own zones is damaged in its own log, which the next start would refuse. Any thread. */
bool sh_logs_is_repaired(const struct sh_logs *logs);

/* The sources of an answer to LOG_TABLE, LOG_SCRUB and LOG_DUMP (logs_told.h): all NULL while the log is not open. logs may be NULL. */
struct sh_logs_told sh_logs_told(struct sh_logs *logs);

#endif
