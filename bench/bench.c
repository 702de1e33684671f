#include "bench/bench.h"

#include <sched.h>
#include <string.h>
#include <time.h>

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

const struct sh_bench_flags *sh_bench_flags_get(const struct sh_bench *bench)
{
    return &bench->flags;
}

bool sh_bench_case_wanted(const struct sh_bench *bench, const char *case_name)
{
    const char *wanted = bench->flags.cases;
    return !wanted || strcmp(wanted, "all") == 0 || strcmp(wanted, case_name) == 0;
}

void sh_bench_note(struct sh_bench *bench, const char *text)
{
    if (!bench->flags.json)
        fprintf(bench->out, "note: %s\n", text);
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

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    int failed = clock_gettime(clock, &now);
    SH_ASSERT(!failed);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t sh_bench_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t sh_bench_cpu_ns(void)
{
    return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* One run, from the cores that the program was started with, whatever the run before pinned. A NULL
 * series is a warm-up. */
static enum shoal_err run_once(struct sh_bench *bench, enum sh_placement placement,
                               sh_bench_run run, void *arg, struct sh_series *series)
{
    struct sh_bench_result result;
    memset(&result, 0, sizeof result);
    sh_bench_pin(SH_PLACE_FREE, 0);
    enum shoal_err err = run(arg, &bench->flags, placement, &result);
    sh_bench_pin(SH_PLACE_FREE, 0);
    if (!err && series)
        sh_series_add(series, &result);
    return err;
}

enum shoal_err sh_bench_measure(struct sh_bench *bench, const char *case_name,
                                enum sh_placement placement, const char *extra, sh_bench_run run,
                                void *run_arg, const char *base_name, sh_bench_run base_run,
                                void *base_arg)
{
    SH_ASSERT(run != NULL);
    SH_ASSERT(!base_run || base_name);
    struct sh_series ours = {.runs = 0};
    struct sh_series base = {.runs = 0};
    enum shoal_err err = run_once(bench, placement, run, run_arg, NULL);
    if (!err && base_run)
        err = run_once(bench, placement, base_run, base_arg, NULL);
    for (unsigned i = 0; !err && i < bench->flags.runs; i++) {
        err = run_once(bench, placement, run, run_arg, &ours);
        if (!err && base_run)
            err = run_once(bench, placement, base_run, base_arg, &base);
    }
    if (err)
        return err;
    struct sh_bench_row row = {.case_name = case_name,
                               .system = "shoal",
                               .placement = placement,
                               .extra = extra,
                               .series = &ours};
    if (base_run) {
        struct sh_bench_row base_row = row;
        base_row.system = base_name;
        base_row.series = &base;
        sh_bench_row_print(bench, &base_row);
        row.base_name = base_name;
        row.base = &base;
    }
    sh_bench_row_print(bench, &row);
    return SHOAL_OK;
}
