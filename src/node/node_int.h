/* The inside of a node, shared by node.c, life.c and promoted.c. */
#ifndef SH_NODE_NODE_INT_H
#define SH_NODE_NODE_INT_H

#include <semaphore.h>
#include <stdatomic.h>

#include "cluster/directory.h"
#include "cluster/member.h"
#include "cluster/secret.h"
#include "env/env.h"
#include "graph/graph.h"
#include "node/chunks.h"
#include "node/dumps.h"
#include "node/identity.h"
#include "node/locks.h"
#include "node/logs.h"
#include "node/moves.h"
#include "node/node.h"
#include "node/promoted.h"
#include "node/room.h"
#include "node/saves.h"
#include "node/superhost.h"

#define SH_NODE_DETAIL_BYTES 256

struct sh_node_run {
    const struct sh_options *options;
    const struct sh_node_world *world; /* NULL: the real one */
    struct sh_secret secret;
    struct sh_env env;
    struct sh_msg *msg;
    struct sh_crew *crew;
    char address[SH_MSG_ADDRESS_MAX]; /* the one that others are told */
    /* A superpeer's. */
    struct sh_superhost *superhost;
    /* A peer's. */
    struct sh_store *store;
    struct sh_disk *
        log_disk; /* the folder of env.disk, around the page cache; NULL: that one serves the log */
    struct sh_backup *backup;
    struct sh_logs *logs;         /* NULL: its chunks are logged nowhere */
    shoal_nid logs_nid;           /* whose chunks they have */
    struct sh_identity *identity; /* NULL: it has no folder, and is another node with each start */
    unsigned defrag_rest;         /* rounds until the step looks again */
    struct sh_directory *directory;
    struct sh_member *member;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_moves *moves;
    struct sh_room *room; /* of a peer in a cluster */
    struct sh_dumps *dumps;
    struct sh_saves *saves;
    struct sh_graph *graph;
    struct sh_promoted *promoted;
    const struct sh_node_origin *origin; /* while it is made */
    bool is_inner;                       /* a superpeer in a peer's process */
    /* Life cycle. The semaphore is posted whenever one of the flags changes; in a world the waiter is
     * completed instead. */
    sem_t changed;
    struct sh_waiter waiter;
    _Atomic bool is_ready;
    _Atomic bool is_stopping;
    _Atomic uint32_t
        back_ms; /* within which it will be started again once it has stopped; 0: it will not */
    _Atomic bool has_left;
    _Atomic int stop_reason;
    bool is_started;
};

/* What a node begins with. */
struct sh_node_origin {
    bool is_inner; /* it is inside another node's process, whose ID stays on the log's lines */
    /* Of a peer's next life, what the former one leaves. */
    struct sh_promoted *promoted; /* taken, also on failure; NULL: none */
    struct sh_disk *folder;       /* has taken data_dir, and hands it on; NULL: data_dir is free */
};
/* Like sh_node_create. world: NULL, or its own where the process is simulated. */
SHOAL_NODISCARD enum shoal_err sh_node_create_from(const struct sh_options *options,
                                                   const struct sh_node_world *world,
                                                   const struct sh_node_origin *origin,
                                                   struct sh_node_run **node_out, char *detail);

/* node.c: the transport step is to run. */
void sh_node_wake(void *arg);

/* backed.c: */
/* Opens the log of the node that the peer is from now on; of no effect where it is open. Errors of sh_logs_open. */
SHOAL_NODISCARD enum shoal_err sh_node_logs_open(struct sh_node_run *node, shoal_nid nid,
                                                 uint64_t cluster, char *detail);
/* Opens the backup, and the log on the peer's disk, with its chunks if the peer has been a node before. */
SHOAL_NODISCARD enum shoal_err sh_node_backup_open(struct sh_node_run *node, char *detail);
void sh_node_completed(void *arg, const struct sh_completion *completion);
bool sh_node_former_are_over(void *arg);
bool sh_node_former_are_lost(void *arg);
bool sh_node_is_opening(void *arg);
bool sh_node_is_filling(void *arg);

/* life.c: */
void sh_node_flag_set(struct sh_node_run *node, _Atomic bool *flag);
/* It is a superpeer from now on. */
void sh_node_serves(void *arg);
/* The handler of SH_NODE_PROMOTE. */
void sh_node_on_promote(void *arg, struct sh_msg_in *in);

#endif
