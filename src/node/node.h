/* One node: its modules put together from the options, its life cycle.
 *
 *   superpeer:  wire -- msg -- superpeer, directory
 *   peer:       wire -- msg -- member, directory, store, chunk handlers, locks, dumps, graph
 *
 * All its active parts are steps of one crew. With threads = 1 one thread runs them all, so that a
 * request is read, executed and answered without a hand-over; with more, thread 0 has everything
 * but the handler steps, which the others run.
 *
 * Threads: create, start and destroy from one thread; stop from any, also a signal handler's
 * helper thread. */
#ifndef SH_NODE_NODE_H
#define SH_NODE_NODE_H

#include <stdbool.h>

#include "base/crew.h"
#include "base/options.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/call.h"
#include "shoal/err.h"
#include "store/store.h"

struct sh_node_run;

/* What a node has for its outside where that is simulated: in place of the real clock, random numbers,
 * disk, wire and threads. Of options it heeds neither transport and tls, nor what data_dir is. */
struct sh_node_world {
    struct sh_env env; /* disk and wire are destroyed with the node */
    struct sh_crew_world crew;
    /* The same for the superpeer that a peer is promoted to. */
    const struct sh_node_world *inner;
    /* Another thread of the node's process; and waits until it has ended. */
    void *(*thread_start)(void *arg, void *(*run)(void *run_arg), void *run_arg);
    void (*thread_join)(void *arg, void *thread);
    void (*on_view)(void *arg, const struct sh_view *view); /* each that the node goes by */
    /* The process has died: nothing waits any more, and nobody is told anything. Then the threads have
     * to end, and the node is to be destroyed, which only frees. */
    bool has_crashed;
    void *arg;
};

/* Makes a node from options that were checked (sh_options_check): opens what it needs (secret,
 * data folder, listening socket, chunk memory) and undoes it all on failure. detail (256 bytes)
 * says more for people. EINVAL, EROLE: the options can't be; EBUSY: another node
 * has the data folder; EADDRINUSE, EADDRESS, EIO, ENOSPC, ENOMEM, ECORRUPT... */
SHOAL_NODISCARD enum shoal_err sh_node_create(const struct sh_options *options,
                                              struct sh_node_run **node_out, char *detail);

/* The same in a world, which is kept. */
SHOAL_NODISCARD enum shoal_err sh_node_create_in(const struct sh_options *options,
                                                 const struct sh_node_world *world,
                                                 struct sh_node_run **node_out, char *detail);

/* Starts the threads. A superpeer serves at once, a peer joins by itself. */
SHOAL_NODISCARD enum shoal_err sh_node_start(struct sh_node_run *node);

/* Waits until the node serves (true), or was told to stop before (false). */
bool sh_node_wait_ready(struct sh_node_run *node);

/* Asks the node to stop; returns at once. Any thread; safe in a signal handler. */
void sh_node_stop(struct sh_node_run *node);

/* Waits until somebody asked it to stop; then leaves the cluster in order (giving up after
 * failure_ns), sends what waits to be sent, and stops the threads. OK, or why it had to stop by
 * itself (EFENCED: it was declared failed; EEXIST: another node has its ID). */
SHOAL_NODISCARD enum shoal_err sh_node_wait_stopped(struct sh_node_run *node);

/* Whether the node has stopped by itself as a peer that can go on as its next life: its life was declared
 * failed (EFENCED), or its ID is another node's or forgotten by now (EEXIST). */
bool sh_node_is_over(const struct sh_node_run *node);

/* Makes the next life of such a peer, in this process, of the same options: as sh_node_create does after
 * sh_node_destroy, but for the superpeer beside a promoted peer, which runs on, and data_dir, which nobody else can
 * take meanwhile. It is to be started. On failure there is no node any more, and no superpeer; *node_inout is
 * NULL. In a world disk and wire are used on, and go only with the last of the lives. */
SHOAL_NODISCARD enum shoal_err sh_node_renew(struct sh_node_run **node_inout, char *detail);

/* Frees everything. NULL is allowed. After sh_node_wait_stopped, or if it never was started. */
void sh_node_destroy(struct sh_node_run *node);

/* The address that others are told (node/advertise.h); its ID, NONE before it has joined. */
const char *sh_node_address(const struct sh_node_run *node);
shoal_nid sh_node_nid(const struct sh_node_run *node);

/* For questions in the node's name, from threads that are not its own. */
struct sh_caller sh_node_caller(const struct sh_node_run *node);

/* For a simulator's checkers. NULL where the node has no such part, or not yet. */
struct sh_node_parts {
    struct sh_msg *msg;
    struct sh_superpeer *superpeer;
    struct sh_directory *directory;
    struct sh_member *member;
    struct sh_identity *identity;
    struct sh_store *store;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_moves *moves;
    struct sh_node_run *promoted; /* the superpeer in its process */
};
struct sh_node_parts sh_node_parts(const struct sh_node_run *node);

#endif
