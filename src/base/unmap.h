/* Mappings to be unmapped: to give the kernel 64 MiB takes it 10 ms and more, so a step (transport,
 * graph) takes over the mapping, and unmaps a piece in each round, the last bytes first.
 *
 * Threads: any. The list may be added to under the lock of a connection. */
#ifndef SH_BASE_UNMAP_H
#define SH_BASE_UNMAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/lock.h"

/* Unmapped in one go: 100 to 250 us. */
#define SH_UNMAP_BYTES ((size_t)512 << 10)

struct sh_unmap;
struct sh_unmaps {
    struct sh_spin lock;
    struct sh_unmap *_Atomic first;
};

void sh_unmaps_init(struct sh_unmaps *unmaps);

/* Takes a mapping: whole pages, writable, which nobody uses any more. The first file_bytes map a file
 * that is mapped nowhere else; its pages are given up piece by piece with those bytes. A mapping of
 * one piece is unmapped at once. */
void sh_unmaps_add(struct sh_unmaps *unmaps, void *at, size_t bytes, size_t file_bytes);

/* Unmaps a piece; returns how many: 0 when nothing is left. One thread at a time. */
unsigned sh_unmaps_run(struct sh_unmaps *unmaps);

static inline bool sh_unmaps_are_left(const struct sh_unmaps *unmaps)
{
    /* relaxed: a look without the lock, which is repeated */
    return atomic_load_explicit(&unmaps->first, memory_order_relaxed) != NULL;
}

#endif
