/* The simulator's memory: apart, so that a test in which allocations fail can spare it
 * (tests/alloc_int.h). */
#include <stdlib.h>

#include "base/assert.h"
#include "sim/world_int.h"

void *sh_sim_alloc(size_t size)
{
    void *got = calloc(1, size ? size : 1);
    SH_ASSERT(got);
    return got;
}

void *sh_sim_realloc(void *old, size_t size)
{
    void *got = realloc(old, size ? size : 1);
    SH_ASSERT(got);
    return got;
}
