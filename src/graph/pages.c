#include "graph/pages_int.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

#define PAGE_BYTES ((size_t)4096) /* larger ones do as well: the kernel rounds up likewise */

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

static void *pages_map(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* The thread sanitizer sees mappings come and go, but not move: it takes what another thread wrote to the
 * same addresses before for a race. */
static void *pages_move(void *at, size_t before, size_t bytes)
{
#if defined(__SANITIZE_THREAD__)
    void *grown = pages_map(bytes);
    if (grown != MAP_FAILED) {
        memcpy(grown, at, before);
        munmap(at, before);
    }
    return grown;
#else
    return mremap(at, before, bytes, MREMAP_MAYMOVE);
#endif
}

void *sh_pages_grow(void *at, size_t before, size_t bytes)
{
    SH_ASSERT(bytes > before && (at != NULL) == (before > 0));
    if (bytes > SIZE_MAX - PAGE_BYTES)
        return NULL;
    void *grown = at ? pages_move(at, whole_pages(before), whole_pages(bytes))
                     : pages_map(whole_pages(bytes));
    return grown == MAP_FAILED ? NULL : grown;
}

void sh_pages_trim(void *at, size_t before, size_t bytes)
{
    SH_ASSERT(at && bytes > 0 && bytes <= before);
    if (whole_pages(bytes) < whole_pages(before))
        munmap((uint8_t *)at + whole_pages(bytes), whole_pages(before) - whole_pages(bytes));
}

void sh_pages_discard(void *at, size_t bytes, struct sh_unmaps *unmaps)
{
    SH_ASSERT((at != NULL) == (bytes > 0));
    if (!at)
        return;
    if (unmaps)
        sh_unmaps_add(unmaps, at, whole_pages(bytes), 0);
    else
        munmap(at, whole_pages(bytes));
}
