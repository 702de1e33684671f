/* Memory that fails in a simulated world (base/alloc_test.h): what the simulator allocates never does. */
#ifndef TESTS_ALLOC_INT_H
#define TESTS_ALLOC_INT_H

#include "base/alloc_test.h"

void *__real_sh_sim_alloc(size_t size);
void *__real_sh_sim_realloc(void *old, size_t size);
void *__wrap_sh_sim_alloc(size_t size);
void *__wrap_sh_sim_realloc(void *old, size_t size);

void *__wrap_sh_sim_alloc(size_t size)
{
    bool was_held = alloc_plan.is_held;
    alloc_plan.is_held = true;
    void *got = __real_sh_sim_alloc(size);
    alloc_plan.is_held = was_held;
    return got;
}

void *__wrap_sh_sim_realloc(void *old, size_t size)
{
    bool was_held = alloc_plan.is_held;
    alloc_plan.is_held = true;
    void *got = __real_sh_sim_realloc(old, size);
    alloc_plan.is_held = was_held;
    return got;
}

#endif
