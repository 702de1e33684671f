#include "bench/bench.h"

#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "bench/bench_int.h"

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
