/* Snapshots of a shard (metadata.h) in pieces, written and read beside updates.
 *
 *   begin ---> next, next, ... 0 ---> end      a state as it was at begin, whatever is applied since
 *   begin ---> piece, piece, ...  ---> end     takes the place of the shard's state, or of nothing
 *
 * A snapshot refers to the cells of the state (cells_int.h) that it was begun with: begin takes one
 * reference to the map of items and one to each 256 members of a barrier's round; an update copies
 * what it changes while a snapshot refers to it. So any number of snapshots may be open, and each
 * costs what was changed since: at most once the shard's memory.
 *
 * A piece, little-endian:
 *
 *   0 CRC32C of all behind it: 4   4 number, from 0: 4   8 whole records
 *
 * A record begins with its kind (1 byte). In this order:
 *
 *   7 head         version: 1, parts: 1, whether it is known: 1, incarnation: 8, updates: 8, up to which
 *                  of them completion records may have been dropped: 8
 *   1 source       \
 *   2 range         |
 *   3 name          | key size: 1, value size: 2, key, value (metadata_int.h), by ascending kind
 *   4 zone          | and key
 *   5 last zone     |
 *   6 scratch      /
 *   8 completion   caller: 8, number: 8, update: 8, value: 8, error: 2
 *   9 barrier      ID: 8, size: 4, flags: 1, and of the open and of the last round number: 8, member
 *                  that broke it: 8, members: 4. By ascending ID. Behind it its members, open round
 *                  first:
 *   10 member      ID: 8, text data
 *   11 end         records before it: 8
 *
 * Images of the version before (3), which had no zones, are read too: their kinds from 6 on were two less.
 *
 * Two shards are equal if and only if the pieces of one size of both are. */
#ifndef SH_METADATA_SNAPSHOT_H
#define SH_METADATA_SNAPSHOT_H

#include "metadata/metadata.h"

enum sh_metadata_parts {
    SH_METADATA_DURABLE = 1, /* all but scratch */
    SH_METADATA_ALL,
};

#define SH_METADATA_PIECE_BYTES_MIN 4096 /* no record is larger than 1.4 KB */

struct sh_metadata_snapshot;
struct sh_metadata_restore;

/* Begins a snapshot of a shard's state as it is now; the metadata must outlive it. Takes some µs,
 * up to 100 with 256 full barriers. ENOMEM. */
SHOAL_NODISCARD enum shoal_err
sh_metadata_snapshot_begin(struct sh_metadata *metadata, unsigned shard,
                           enum sh_metadata_parts parts,
                           struct sh_metadata_snapshot **snapshot_out);
/* Writes the next piece, at most room bytes (SH_METADATA_PIECE_BYTES_MIN or more), and returns its
 * size; 0: there is no more. Takes about 3 ns a byte of ranges, less of what is larger. */
size_t sh_metadata_snapshot_next(struct sh_metadata_snapshot *snapshot, uint8_t *into, size_t room);
/* Gives a snapshot up or back, at any time; NULL is allowed. Memory that it alone referred to is
 * freed by sh_metadata_sweep. */
void sh_metadata_snapshot_end(struct sh_metadata_snapshot *snapshot);

/* Begins to read a snapshot that is to take the place of a shard's state, which stays as it is
 * until then. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_restore_begin(struct sh_metadata *metadata,
                                                         unsigned shard,
                                                         struct sh_metadata_restore **restore_out);
/* Reads the next piece, borrowed. EPROTO: damaged, malformed, of another shard, or not the next
 * one; ENOMEM. After an error it can only be ended. */
SHOAL_NODISCARD enum shoal_err sh_metadata_restore_piece(struct sh_metadata_restore *restore,
                                                         struct sh_bytes piece);
/* Ends reading, and with install gives the shard the state that was read, by exchange of pointers;
 * the old state's memory is freed by sh_metadata_sweep. EPROTO (pieces are missing), ENOMEM: the
 * shard stays as it is, and the restore has ended all the same. Without install, or of NULL, no
 * error. */
SHOAL_NODISCARD enum shoal_err sh_metadata_restore_end(struct sh_metadata_restore *restore,
                                                       bool install);

#endif
