/* Placements: which cores the two sides of a benchmark run on. */
#include <sched.h>
#include <string.h>

#include "base/assert.h"
#include "bench/bench_int.h"

static const char *const placement_names[SH_PLACEMENTS] = {
    [SH_PLACE_FREE] = "free",
    [SH_PLACE_SPIN] = "spin",
    [SH_PLACE_ONE_CORE] = "one-core",
    [SH_PLACE_CROSS_CORE] = "cross-core",
};

/* The cores that the program was started with. Written once, by the main thread, before any run. */
static cpu_set_t cores_given;
static unsigned cores_count;

void sh_bench_cores_init(void)
{
    if (cores_count)
        return;
    CPU_ZERO(&cores_given);
    if (sched_getaffinity(0, sizeof cores_given, &cores_given) != 0)
        CPU_SET(0, &cores_given);
    cores_count = (unsigned)CPU_COUNT(&cores_given);
    SH_ASSERT(cores_count > 0);
}

unsigned sh_bench_cores(void)
{
    sh_bench_cores_init();
    return cores_count;
}

/* The index-th of the cores that the program was started with. */
static int core_at(unsigned index)
{
    SH_ASSERT(index < cores_count);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &cores_given) && index-- == 0)
            return core;
    }
    return 0;
}

void sh_bench_pin(enum sh_placement placement, unsigned side)
{
    SH_ASSERT(side < 2);
    sh_bench_cores_init();
    cpu_set_t cores = cores_given;
    if (placement != SH_PLACE_FREE) {
        unsigned index = placement == SH_PLACE_ONE_CORE ? 0 : side % cores_count;
        CPU_ZERO(&cores);
        CPU_SET(core_at(index), &cores);
    }
    /* The cores were ours at the start; should one have been taken away since, the run goes on
     * unpinned, and the spread of the rows shows it. */
    (void)sched_setaffinity(0, sizeof cores, &cores);
}

const char *sh_placement_name(enum sh_placement placement)
{
    SH_ASSERT((unsigned)placement < SH_PLACEMENTS);
    return placement_names[placement];
}

unsigned sh_bench_placements(const struct sh_bench *bench, enum sh_placement out[SH_PLACEMENTS])
{
    const char *wanted = bench->flags.placement ? bench->flags.placement : "free";
    bool all = strcmp(wanted, "all") == 0;
    unsigned count = 0;
    for (unsigned i = 0; i < SH_PLACEMENTS; i++) {
        bool two_cores = i == SH_PLACE_SPIN || i == SH_PLACE_CROSS_CORE;
        if (two_cores && sh_bench_cores() < 2)
            continue;
        if (all || strcmp(wanted, placement_names[i]) == 0)
            out[count++] = (enum sh_placement)i;
    }
    return count;
}
