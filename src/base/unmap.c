#include "base/unmap.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/assert.h"

/* Lies in the mapping's first bytes. */
struct sh_unmap {
    struct sh_unmap *next;
    size_t bytes; /* that are left of the mapping */
    size_t file_bytes;
};

void sh_unmaps_init(struct sh_unmaps *unmaps)
{
    sh_spin_init(&unmaps->lock, SH_LOCK_UNMAPS);
    atomic_init(&unmaps->first, NULL);
}

void sh_unmaps_add(struct sh_unmaps *unmaps, void *at, size_t bytes, size_t file_bytes)
{
    SH_ASSERT(bytes > sizeof(struct sh_unmap) && file_bytes <= bytes);
    if (bytes <= SH_UNMAP_BYTES) {
        munmap(at, bytes);
        return;
    }
    struct sh_unmap *unmap = at;
    unmap->bytes = bytes;
    unmap->file_bytes = file_bytes;
    sh_spin_take(&unmaps->lock);
    /* relaxed, both: under the lock, but for looks that are repeated */
    unmap->next = atomic_load_explicit(&unmaps->first, memory_order_relaxed);
    atomic_store_explicit(&unmaps->first, unmap, memory_order_relaxed);
    sh_spin_release(&unmaps->lock);
}

unsigned sh_unmaps_run(struct sh_unmaps *unmaps)
{
    if (!sh_unmaps_are_left(unmaps))
        return 0;
    sh_spin_take(&unmaps->lock);
    struct sh_unmap *unmap = atomic_load_explicit(&unmaps->first, memory_order_relaxed);
    size_t some = unmap->bytes < SH_UNMAP_BYTES ? unmap->bytes : SH_UNMAP_BYTES;
    unmap->bytes -= some;
    size_t first = unmap->bytes;
    uint8_t *at = (uint8_t *)unmap + first;
    size_t of_file = unmap->file_bytes > first ? unmap->file_bytes - first : 0;
    if (of_file > 0)
        unmap->file_bytes = first;
    if (first == 0)
        atomic_store_explicit(&unmaps->first, unmap->next, memory_order_relaxed);
    sh_spin_release(&unmaps->lock);
    /* If the kernel refuses that, the file's pages go with its last mapping. */
    if (of_file > 0)
        (void)madvise(at, of_file, MADV_REMOVE);
    munmap(at, some);
    return 1;
}
