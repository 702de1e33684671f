/* Who a peer is, on its disk: cluster, node ID, life, and up to which local ID it may hand out.
 *
 * A peer that is started again on its data_dir is the same node with a new life. Each start adds one to
 * the life, on the disk before anybody hears of it; local IDs begin above those that any earlier life
 * may have handed out. The registry refuses a life that is not above the last (superpeer/registry.h).
 *
 * The file `identity`, little-endian, 128 bytes, replaced as a whole:
 *   0   u64  magic "SHOALPID"
 *   8   u16  format (1)
 *   10  u16  node ID; 0: the registry has not given one yet
 *   12  u32  CRC32C of all, with this field zero
 *   16  u64  life: how often the peer was started on this folder, and 32 random bits below that
 *   24  u64  the cluster's ID (superpeer/registry.h); 0: not known yet
 *   32  u64  local IDs below it may have been handed out
 *   40  text the cluster's name, at most 63 bytes; zeros
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

/* Reads the file of env.disk's folder, or begins one, and has the new life on the disk. Waits for the
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
/* Whether all that is known is on the disk. Any thread. */
bool sh_identity_is_stored(const struct sh_identity *identity);
/* Stores what has changed, and has the store's IDs allowed ahead of those that are handed out: their end
 * is on the disk first. Failed writes are tried again each second. */
struct sh_step sh_identity_step(struct sh_identity *identity);

#endif
