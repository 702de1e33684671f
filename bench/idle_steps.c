#include "bench/idle_steps.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread.h"
#include "bench/bench_int.h"

#define STEP_NS 250000
#define TRIALS 1000
#define TRIAL_TURNS 100000

struct idler {
    pthread_t thread;
    double seconds;
    struct sh_idle_steps steps;
};

static uint64_t used_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

__attribute__((noinline)) static uint64_t step_ns(uint64_t turns)
{
    uint64_t began_ns = used_ns();
    for (uint64_t i = 0; i < turns; i++)
        __asm__ volatile("" ::: "memory");
    return used_ns() - began_ns;
}

/* How many turns take STEP_NS when nothing comes between. */
static uint64_t turns_find(void)
{
    uint64_t least_ns = UINT64_MAX;
    for (unsigned i = 0; i < TRIALS; i++) {
        uint64_t took_ns = step_ns(TRIAL_TURNS);
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return (uint64_t)TRIAL_TURNS * STEP_NS / (least_ns ? least_ns : 1);
}

static void *idler_main(void *arg)
{
    struct idler *idler = arg;
    struct sh_idle_steps *steps = &idler->steps;
    uint64_t turns = turns_find();
    uint64_t end_ns = sh_bench_now_ns() + (uint64_t)(idler->seconds * 1e9);
    while (sh_bench_now_ns() < end_ns) {
        uint64_t took_ns = step_ns(turns);
        steps->count++;
        steps->over_1ms += took_ns > 1000000;
        steps->longest_ns = took_ns > steps->longest_ns ? took_ns : steps->longest_ns;
    }
    return NULL;
}

enum shoal_err sh_idle_steps_measure(double seconds, struct sh_idle_steps *steps_out)
{
    unsigned cores = sh_bench_cores(), started = 0;
    struct idler *idlers = calloc(cores, sizeof *idlers);
    if (!idlers)
        return SHOAL_ENOMEM;
    struct sh_idle_steps all = {.cores = cores};
    for (; started < cores; started++) {
        idlers[started] = (struct idler){.seconds = seconds};
        if (sh_thread_start(&idlers[started].thread, idler_main, &idlers[started], "idler"))
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(idlers[i].thread, NULL);
        const struct sh_idle_steps *steps = &idlers[i].steps;
        all.count += steps->count;
        all.over_1ms += steps->over_1ms;
        if (steps->longest_ns > all.longest_ns)
            all.longest_ns = steps->longest_ns;
    }
    free(idlers);
    if (started < cores)
        return SHOAL_ENOMEM;
    *steps_out = all;
    return SHOAL_OK;
}
