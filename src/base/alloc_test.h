/* Memory that fails when a test says: the linker hands this file what the code under test asks of malloc,
 * calloc, realloc and aligned_alloc (--wrap, for each test that includes it: cmake/ShoalModules.cmake).
 * What the test itself allocates never fails, nor what the C library or the simulator does.
 *
 * Include it before other headers of tests. Counting is for one thread; by size, others may run as well. */
#ifndef SH_BASE_ALLOC_TEST_H
#define SH_BASE_ALLOC_TEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);

static struct {
    _Atomic size_t due;   /* the allocation that fails, counted from 1; 0: none does */
    _Atomic size_t times; /* how many fail, that one and those behind it */
    _Atomic size_t bytes; /* only those of this size fail and count; 0: all do */
    _Atomic size_t failed;
    bool is_held; /* none fails and none counts */
} alloc_plan;

static inline bool alloc_fails(size_t bytes)
{
    if (!alloc_plan.due || alloc_plan.is_held || (alloc_plan.bytes && alloc_plan.bytes != bytes))
        return false;
    if (alloc_plan.due > 1) {
        alloc_plan.due--;
        return false;
    }
    alloc_plan.failed++;
    alloc_plan.due = alloc_plan.failed < alloc_plan.times ? 1 : 0;
    return true;
}

/* From here on the n-th allocation fails, and so many with it. */
static inline void alloc_fail_at(size_t due, size_t times)
{
    alloc_plan.times = times;
    alloc_plan.bytes = 0;
    alloc_plan.failed = 0;
    alloc_plan.due = due;
}

/* From here on the next allocation of exactly so many bytes fails. */
static inline void alloc_fail_sized(size_t bytes)
{
    alloc_plan.times = 1;
    alloc_plan.bytes = bytes;
    alloc_plan.failed = 0;
    alloc_plan.due = 1;
}

/* Memory is back. Returns how many allocations failed. */
static inline size_t alloc_fail_end(void)
{
    alloc_plan.due = 0;
    return alloc_plan.failed;
}

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    return alloc_fails(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return alloc_fails(count * size) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    return alloc_fails(size) ? NULL : __real_realloc(at, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return alloc_fails(size) ? NULL : __real_aligned_alloc(alignment, size);
}

/* The test's own. */
#define malloc(size) __real_malloc(size)
#define calloc(count, size) __real_calloc(count, size)
#define realloc(at, size) __real_realloc(at, size)

#endif
