/* All chunks of a store as they were at one moment, while everybody goes on reading and writing: a cut.
 *
 *   sh_cut_begin -> sh_cut_fill ... until the state says that it is over -> sh_cut_end
 *
 *              every section that began         no section         all chunks
 *              before has ended                 is open            were handed out
 *   [ARMING] ──────────────────────► [ARMED] ──────────► [TAKEN] ──────────────► [OVER]
 *                                              the moment
 *
 * Method: copy on write. From the moment on, whoever is about to change or remove a chunk that has not been handed out yet keeps its
 * old bytes first, within the chunk's write section. The reader goes over the groups once, and hands out what is kept, and of the rest
 * what is there. A bit for each ID says that its chunk is settled: handed out, kept, or made after the moment.
 *
 * The moment: a section that is open when the moment comes would be in the cut though one that began later, and ended before, is not.
 * So sections are counted for some milliseconds before (ARMED), and the moment is one at which none is open; those that begin while
 * the reader looks whether one is, wait some hundred nanoseconds. Sections that were open when counting began are not counted: the
 * reader goes over all groups, and sees each one held by nobody once (ARMING).
 *
 * Cost: without a cut a load and a branch for each change. Memory, beside the store's own bytes_max: 2 bytes for each group of 16 IDs; what is
 * kept, up to a limit; and a chunk of more than SH_CUT_LARGE_BYTES while it is handed out. A chunk is kept in one go, so who changes one
 * of n bytes first waits for a copy of n bytes, once: 20 ms for 64 MiB.
 *
 * Not in a cut: what a program writes through a pin (sh_store_pin) tells nobody, so a pinned chunk is as it was at some moment; reserved
 * IDs; the chunk with the local ID 0 (names, docs/names.md).
 *
 * Threads: one at a time for all of this; others use the store meanwhile. One cut of a store at a time. */
#ifndef SH_STORE_CUT_H
#define SH_STORE_CUT_H

#include "base/bytes.h"
#include "store/store.h"

/* What sh_cut_fill writes: records, one behind the other.
 *
 *   [chunk ID: 8][size: 4][bytes]                              a chunk
 *   [chunk ID: 8][size | SH_CUT_PIECE: 4][offset: 4][count: 4][bytes]  a piece of one; its pieces follow each other, from offset 0 to its size
 */
#define SH_CUT_PIECE (UINT32_C(1) << 31)
#define SH_CUT_RECORD_BYTES 12
#define SH_CUT_PIECE_RECORD_BYTES 20
/* Chunks of more bytes come in pieces. A buffer for records has room for SH_CUT_BYTES_MIN at least. */
#define SH_CUT_LARGE_BYTES (UINT32_C(32) << 10)
#define SH_CUT_BYTES_MIN (SH_CUT_RECORD_BYTES + SH_CUT_LARGE_BYTES)

struct sh_cut_record {
    shoal_cid cid;
    uint32_t size;   /* of the chunk */
    uint32_t offset; /* of the bytes, in it */
    struct sh_bytes bytes;
};
/* Reads the next record. False: there is none, or, with the reader turned bad, none that is right by itself. */
bool sh_cut_record_get(struct sh_reader *r, struct sh_cut_record *record_out);

struct sh_cut_state {
    bool is_taken;      /* the moment is past */
    bool is_over;       /* all was handed out */
    enum shoal_err err; /* ELIMIT: more was changed than may be kept; ENOMEM. It is over then */
    uint64_t chunks, payload_bytes; /* handed out so far; of pieces all with the last one */
    uint64_t all_bytes;             /* payload of the store at the moment, about */
};

/* Begins one. own: the node that the store's own chunks bear in the records. kept_bytes_max: of old bytes, with 64 for each chunk. EBUSY: another one has not ended. */
SHOAL_NODISCARD enum shoal_err sh_cut_begin(struct sh_store *store, shoal_nid own,
                                            uint64_t kept_bytes_max);
/* Goes on: does about so many bytes of work (a chunk counts 64 more, a group 16), and adds records to the buffer. *is_full_out: the
 * next one finds no room. Returns how much it did; 0: it is over, full, or waits for another thread's section. */
unsigned sh_cut_fill(struct sh_store *store, struct sh_writer *w, unsigned budget,
                     bool *is_full_out);
struct sh_cut_state sh_cut_state_get(const struct sh_store *store);
/* Chunks that came to the store under an ID that somebody gave them (loaded, restored, moved here), so far. Who compares two numbers knows
 * whether a chunk of another store may have come between. Any thread. */
uint64_t sh_store_arrivals(const struct sh_store *store);
/* Ends it, wherever it is. Waits for sections that keep bytes at this moment. Without a cut it does nothing. */
void sh_cut_end(struct sh_store *store);

#endif
