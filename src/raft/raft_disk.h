/* Raft's storage: the file raft.log, written batch by batch, each synced before the next.
 *
 * A batch is padded with zeros to a multiple of 512 bytes; its head, little-endian:
 *   0   u64  magic "SHOALRFT"
 *   8   u16  format (2; 1 had no identities)
 *   10  u16  zero
 *   12  u32  bytes of records (raft_int.h) behind this head
 *   16  u64  nonce: drawn for each file, the same in all of its batches
 *   24  u64  number: 0, 1, 2, ... in the file
 *   32  u32  zero
 *   36  u32  CRC32C of head and records, with this field zero
 * Batch 0 is a base. A new base is written into raft.new, synced, and renamed to raft.log; so where
 * raft.log exists its base was complete. A bad batch at the end is one whose sync never ended, and
 * nothing was ever promised on it; a bad batch that a good one follows is damage (ECORRUPT). Damage
 * to the last batch alone can't be told from an interrupted write.
 *
 * After an error of the disk everything is written anew as a base, a second later.
 *
 * Threads: as raft's. */
#ifndef SH_RAFT_RAFT_DISK_H
#define SH_RAFT_RAFT_DISK_H

#include "env/env.h"
#include "raft/raft.h"

struct sh_raft_disk;

/* Loads what is stored into a raft that was not started (waits for the disk). Keeps both. env needs
 * clock, random and disk. *is_new_out: nothing was stored. ECORRUPT, ECLUSTER, EVERSION (of a newer
 * shoal), EIO, ENOMEM, or what raft's snapshot_get says; each is logged. */
SHOAL_NODISCARD enum shoal_err sh_raft_disk_open(const struct sh_env *env, struct sh_raft *raft,
                                                 struct sh_raft_disk **disk_out, bool *is_new_out);
/* The number of the server whose log the disk holds. ENONAME: there is none. Other errors as above.
 */
SHOAL_NODISCARD enum shoal_err sh_raft_disk_server(const struct sh_env *env, uint8_t *server_out);
/* Removes what is stored, if there is something; not while it is open. */
void sh_raft_disk_remove(const struct sh_env *env);
/* Waits for what is in flight. Before raft is destroyed. NULL is allowed. */
void sh_raft_disk_close(struct sh_raft_disk *disk);

/* Carries storing on, and tells raft what is stored; returns how much was done. */
unsigned sh_raft_disk_step(struct sh_raft_disk *disk, uint64_t now_ns);
/* When step has work, unless raft gets some. */
uint64_t sh_raft_disk_due_ns(const struct sh_raft_disk *disk, uint64_t now_ns);
/* The last error, until something was stored again. */
enum shoal_err sh_raft_disk_trouble(const struct sh_raft_disk *disk);

#endif
