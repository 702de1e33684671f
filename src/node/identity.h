/* Who a peer is, on its disk: cluster, node ID, life, and up to which local ID it may hand out.
 *
 * A peer that is started again on its data_dir is the same node with a new life. Local IDs begin above
 * those that any process before may have handed out.
 *
 * Starts count only those that the registry has confirmed:
 *
 *   [confirmed] --a process begins: starts + 1, new random bits--> [unconfirmed] --admitted--> [confirmed]
 *                                                                    |  ^
 *                                                                    '--' another process begins: goes on with it
 *
 * Each state is on the disk before anybody hears of it, and nothing is served under a life that is not
 * stored as confirmed (the peer's lease waits for it: member.h). A life that the registry has admitted and declared
 * over since is stored as confirmed, too, so that the next process begins another one.
 *
 * 1. A life that was admitted, but is not confirmed on the disk, may be gone on with: the process before
 *    has served nothing under it, so nobody can tell the two processes from one that was slow.
 * 2. Of two copies of one state only one gets in. Both propose starts + 1 with random bits of their own;
 *    the registry takes the first, and refuses what is not above that (superpeer/registry.h). A copy that
 *    was refused stays unconfirmed, and so is refused with every start, however often that is.
 * 3. So never copy a folder whose peer has not been admitted yet: both copies would be the same life.
 *    Of these the registry keeps out the second one while the first one is up.
 *
 * The file `identity`, little-endian, 128 bytes, replaced as a whole:
 *   0   u64  magic "SHOALPID"
 *   8   u16  format (2)
 *   10  u16  node ID; 0: the registry has not given one yet
 *   12  u32  CRC32C of all, with this field zero
 *   16  u64  life: how many starts on this folder were confirmed, this one included; 32 random bits below
 *   24  u64  the cluster's ID (superpeer/registry.h); 0: not known yet
 *   32  u64  local IDs below it may have been handed out
 *   40  u16  flags; 1: the registry has confirmed the life
 *   42  text the cluster's name, at most 63 bytes; zeros
 *
 * Whoever opens it has taken the folder (env/disk.h), so nobody else writes. Threads: the one that also
 * polls the disk. */
#ifndef SH_NODE_IDENTITY_H
#define SH_NODE_IDENTITY_H

#include <stdbool.h>

#include "base/crew.h"
#include "env/env.h"
#include "shoal/err.h"
#include "shoal/types.h"
#include "store/store.h"

struct sh_identity;

/* Reads the file of env.disk's folder, or begins one, and has this process's life on the disk. Waits for the
 * disk. cluster: its name; store: whose local IDs it bounds, kept until close. detail (256 bytes) says
 * what is wrong, with what to do: ECLUSTER (of a cluster of another name), ECORRUPT, EVERSION, EIO,
 * ENOSPC, ELIMIT; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_identity_open(const struct sh_env *env, const char *cluster,
                                                struct sh_store *store,
                                                struct sh_identity **identity_out, char *detail);
/* Waits for a write that is under way. NULL is allowed. */
void sh_identity_close(struct sh_identity *identity);

/* What an earlier life had stored; NONE and 0: nothing. */
shoal_nid sh_identity_nid(const struct sh_identity *identity);
uint64_t sh_identity_cluster(const struct sh_identity *identity);
/* This life. */
uint64_t sh_identity_life(const struct sh_identity *identity);
/* The registry has admitted this life: stored by the step. */
void sh_identity_joined(struct sh_identity *identity, shoal_nid nid, uint64_t cluster);
/* The registry says that this very life is over: stored by the step, so that no process goes on with it. */
void sh_identity_spent(struct sh_identity *identity);
/* Calls that, once, from the step, when the disk says that the node has joined in this life: from then on its next process knows which node it is. Before the step runs. */
void sh_identity_confirmed_set(struct sh_identity *identity, void (*confirmed)(void *arg),
                               void *arg);
/* Whether that is on the disk: nothing may be served before. */
bool sh_identity_is_confirmed(const struct sh_identity *identity);
/* Stores what has changed, and has the store's IDs allowed ahead of those that are handed out: their end
 * is on the disk first. Failed writes are tried again each second. */
struct sh_step sh_identity_step(struct sh_identity *identity);

#endif
