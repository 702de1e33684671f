/* Names as the bytes of a chunk: while a node is dumped, those of the chunks that it created, or all
 * names of an embedded store, are in its chunk with the local ID 0, so that the dump has them.
 *
 *   0 "shoalnam"  8 version: 2  10 the node whose chunk it is: 2  12 zero: 4
 *   16 bytes of entries: 8  24 CRC32C of the entries: 4  28 CRC32C of 0 to 27: 4
 *   32 entries, each u64 chunk ID, text name; in any order, and a name may be there twice: then the
 *      first counts
 *
 * Little-endian. Without state; any thread. */
#ifndef SH_METADATA_NAMECHUNK_H
#define SH_METADATA_NAMECHUNK_H

#include "base/bytes.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_NAME_CHUNK_HEAD_BYTES 32
#define SH_NAME_ENTRY_HEAD_BYTES 10 /* and the name's bytes */

/* Writes the header before the entries, which are there already: chunk is all of it. */
void sh_name_chunk_head(uint8_t *chunk, size_t size, shoal_nid nid);

/* Checks all of it, entries too: *entries_out are within the chunk. ECORRUPT, EVERSION. */
SHOAL_NODISCARD enum shoal_err sh_name_chunk_get(struct sh_bytes chunk, shoal_nid *nid_out,
                                                 struct sh_bytes *entries_out);

/* The next entry. False: there is none, or what is there is none: then sh_reader_done says false.
 */
bool sh_name_entry_get(struct sh_reader *r, shoal_cid *cid_out, struct sh_bytes *name_out);

/* Where an entry's chunk is after a load by `self` of what `was` wrote: chunks that `was` created
 * have become self's. */
static inline shoal_cid sh_name_entry_renamed(shoal_cid cid, shoal_nid was, shoal_nid self)
{
    return shoal_cid_creator(cid).v == was.v ? shoal_cid_make(self, shoal_cid_local(cid)) : cid;
}

#endif
