/* Large arrays that grow and go within steps: whole pages, whose mapping the kernel moves when they grow,
 * where realloc would copy 10 MB in 5 ms, and which struct sh_unmaps gives back piece by piece. */
#ifndef SH_GRAPH_PAGES_INT_H
#define SH_GRAPH_PAGES_INT_H

#include <stddef.h>

#include "base/unmap.h"

/* Makes room for `bytes` (more than `before`) where there was room for `before` (0: `at` is NULL);
 * new bytes are zero. NULL: there is no memory, and nothing has changed. */
void *sh_pages_grow(void *at, size_t before, size_t bytes);

/* Gives back what is behind the first `bytes` (not 0) of `before`, if they are pages. */
void sh_pages_trim(void *at, size_t before, size_t bytes);

/* Takes the memory, by and by through the list, or at once without (NULL). */
void sh_pages_discard(void *at, size_t bytes, struct sh_unmaps *unmaps);

#endif
