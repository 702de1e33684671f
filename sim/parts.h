/* The parts of a simulated node: for the worlds that put whole nodes together (cluster_hosts.c,
 * tests/migrate_rig_int.h), how a peer's chunks and locks begin, and in which order all parts of a
 * node end. */
#ifndef SIM_PARTS_H
#define SIM_PARTS_H

#include "cluster/directory.h"
#include "cluster/member.h"
#include "cluster/superpeer.h"
#include "node/chunks.h"
#include "node/locks.h"
#include "node/moves.h"

/* Where a world keeps a node's parts; each is NULL while there is none. */
struct sh_sim_parts {
    struct sh_msg **msg;
    struct sh_superpeer **superpeer;
    struct sh_directory **directory;
    struct sh_member **member;
    struct sh_store **store;
    struct sh_chunks **chunks;
    struct sh_locks **locks;
    struct sh_moves **moves;
};

/* Makes a peer's store, chunks, locks and moves. There are msg and directory; the steps are the
 * caller's. */
void sh_sim_parts_hold(const struct sh_sim_parts *parts, const struct sh_env *env,
                       uint32_t chunk_bytes_max);

/* Destroys what there is, and leaves NULLs. A client's requests end with errors when msg goes, and
 * may ask the directory once more, so that one goes after it; elsewhere the directory's own
 * requests are taken back first. */
void sh_sim_parts_drop(const struct sh_sim_parts *parts, bool is_client);

#endif
