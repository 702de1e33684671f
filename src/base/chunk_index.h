/* Finds the records that a module keeps about chunks by the chunk: a hash table of lists, into which the module links its
 * own records. Neighbours share a list, so that the records of a run of chunks are found without a look
 * at all others: as many lists are walked as the run has groups of 64 IDs.
 *
 * All zero is an empty index, of 64 KiB. Threads: one at a time. */
#ifndef SH_BASE_CHUNK_INDEX_H
#define SH_BASE_CHUNK_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#define SH_CHUNK_INDEX_LISTS 8192
#define SH_CHUNK_INDEX_GROUP_BITS                                                                  \
    6 /* of an ID: those above are the group, whose records share a list */

/* A part of a record. It must not be moved while it is linked. */
struct sh_chunk_link {
    uint64_t chunk;
    struct sh_chunk_link *next, **from; /* from: what points here; NULL: it is not linked */
};

struct sh_chunk_index {
    struct sh_chunk_link *lists[SH_CHUNK_INDEX_LISTS];
};

void sh_chunk_link(struct sh_chunk_index *index, struct sh_chunk_link *link, uint64_t chunk);
/* Nothing, where it is not linked. */
void sh_chunk_unlink(struct sh_chunk_link *link);

/* Calls each for all links of the chunks first to last, the latest first in each list. It must change no link. */
void sh_chunk_index_each(const struct sh_chunk_index *index, uint64_t first, uint64_t last,
                         void (*each)(void *arg, const struct sh_chunk_link *link), void *arg);

#endif
