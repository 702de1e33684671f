/* The parts of a simulated node: for the worlds that put whole nodes together (cluster_hosts.c,
 * tests/migrate_rig_int.h), how a node's messages, its directory, and a peer's chunks and locks
 * begin, and in which order all parts of a node end. */
#ifndef SIM_PARTS_H
#define SIM_PARTS_H

#include "cluster/directory.h"
#include "cluster/member.h"
#include "node/chunks.h"
#include "node/locks.h"
#include "node/moves.h"
#include "sim/world.h"
#include "superpeer/superpeer.h"

/* Where a world keeps a node's parts; each is NULL while there is none. */
struct sh_sim_parts {
    struct sh_msg **msg;
    struct sh_superpeer **superpeer;
    struct sh_directory **directory;
    struct sh_member **member;
    struct sh_store **store;
    struct sh_backup **backup;
    struct sh_chunks **chunks;
    struct sh_locks **locks;
    struct sh_moves **moves;
    /* Of the config of the moves, with arg, as in node/moves.h; NULL: no peer has had a former life; no zone of one is lost. */
    bool (*are_former_over)(void *arg);
    bool (*are_former_lost)(void *arg);
    void *arg;
};

/* Those of a host that has them as members of these names. */
#define SH_SIM_PARTS(host)                                                                         \
    ((struct sh_sim_parts){.msg = &(host)->msg,                                                    \
                           .superpeer = &(host)->superpeer,                                        \
                           .directory = &(host)->directory,                                        \
                           .member = &(host)->member,                                              \
                           .store = &(host)->store,                                                \
                           .backup = &(host)->backup,                                              \
                           .chunks = &(host)->chunks,                                              \
                           .locks = &(host)->locks,                                                \
                           .moves = &(host)->moves})

/* What the msg of every node of these worlds is made with; nid, connections_max, on_event and arg
 * are the caller's to add. */
struct sh_msg_config sh_sim_msg_config(const struct sh_env *env);

/* Makes a node's msg, which listens at "nodeN:1", and adds its steps. bound_out gets that address,
 * SH_MSG_ADDRESS_MAX bytes; NULL: the node listens nowhere. */
void sh_sim_parts_talk(const struct sh_sim_parts *parts, const struct sh_msg_config *config,
                       struct sh_world *sim, unsigned node, char *bound_out);

/* Makes the directory of a peer or a client. There is msg. */
void sh_sim_parts_know(const struct sh_sim_parts *parts, const struct sh_env *env, bool is_client);

/* Makes a peer's store, chunks, locks and moves. There are msg and directory; the steps are the
 * caller's. */
void sh_sim_parts_hold(const struct sh_sim_parts *parts, const struct sh_env *env,
                       uint32_t chunk_bytes_max);

/* Destroys what there is, and leaves NULLs. A client's requests end with errors when msg goes, and
 * may ask the directory once more, so that one goes after it; elsewhere the directory's own
 * requests are taken back first. */
void sh_sim_parts_drop(const struct sh_sim_parts *parts, bool is_client);

#endif
