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

enum shoal_err sh_bench_refuse(struct sh_bench *bench, const char *text)
{
    fprintf(stderr, "shoal bench %s: %s\n", bench->entry->name, text);
    bench->is_refused = true;
    return SHOAL_ERANGE;
}

void sh_bench_figure_add(struct sh_bench_figures *figures, const char *key, double value)
{
    SH_ASSERT(figures->count < SH_BENCH_FIGURES_MAX && key != NULL);
    figures->keys[figures->count] = key;
    figures->values[figures->count++] = value;
}

double sh_bench_figure_get(const struct sh_bench_figures *figures, const char *key)
{
    for (unsigned i = 0; i < figures->count; i++) {
        if (strcmp(figures->keys[i], key) == 0)
            return figures->values[i];
    }
    return 0;
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

/* A warm-up of each system, then their runs in turn. */
static enum shoal_err systems_run(struct sh_bench *bench, enum sh_placement placement,
                                  const struct sh_bench_system *systems, unsigned count,
                                  struct sh_series *series)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned run = 0; !err && run <= bench->flags.runs; run++) {
        for (unsigned i = 0; !err && i < count; i++)
            err =
                run_once(bench, placement, systems[i].run, systems[i].arg, run ? &series[i] : NULL);
    }
    return err;
}

static void medians_take(const struct sh_series *series, struct sh_bench_medians *medians_out)
{
    *medians_out = (struct sh_bench_medians){
        .ops_per_s = sh_series_median(series, SH_METRIC_OPS),
        .mb_per_s = sh_series_median(series, SH_METRIC_MB),
        .bytes_per_chunk = sh_series_median(series, SH_METRIC_CHUNK),
        .over_per_chunk = sh_series_median(series, SH_METRIC_OVER),
        .status_per_chunk = sh_series_median(series, SH_METRIC_STATUS),
        .cpu_ns_per_op = sh_series_median(series, SH_METRIC_CPU),
        .p50_ns = sh_series_median(series, SH_METRIC_P50),
        .p99_ns = sh_series_median(series, SH_METRIC_P99),
    };
    sh_series_figures(series, &medians_out->figures);
}

enum shoal_err sh_bench_measure_all(struct sh_bench *bench, const char *case_name,
                                    enum sh_placement placement, const char *extra,
                                    const struct sh_bench_system *systems, unsigned count,
                                    bool is_vs, struct sh_bench_medians *medians_out)
{
    SH_ASSERT(count > 0 && count <= SH_BENCH_SYSTEMS_MAX);
    SH_ASSERT(count > 1 || !is_vs);
    struct sh_series series[SH_BENCH_SYSTEMS_MAX];
    for (unsigned i = 0; i < count; i++) {
        SH_ASSERT(systems[i].run != NULL && systems[i].name != NULL);
        series[i].runs = 0;
    }
    enum shoal_err err = systems_run(bench, placement, systems, count, series);
    if (err)
        return err;
    for (unsigned i = 1; i <= count; i++) {
        unsigned at = i % count; /* ours comes last, with its ratios */
        struct sh_bench_row row = {.case_name = case_name,
                                   .system = systems[at].name,
                                   .placement = placement,
                                   .extra = extra,
                                   .series = &series[at]};
        row.base_name = at == 0 && is_vs ? systems[1].name : NULL;
        row.base = at == 0 && is_vs ? &series[1] : NULL;
        sh_bench_row_print(bench, &row);
        medians_take(&series[at], &medians_out[at]);
    }
    return SHOAL_OK;
}

enum shoal_err sh_bench_measure(struct sh_bench *bench, const char *case_name,
                                enum sh_placement placement, const char *extra, sh_bench_run run,
                                void *run_arg, const char *base_name, sh_bench_run base_run,
                                void *base_arg)
{
    SH_ASSERT(!base_run || base_name);
    const struct sh_bench_system systems[] = {{"shoal", run, run_arg},
                                              {base_name, base_run, base_arg}};
    struct sh_bench_medians medians[2];
    bool is_vs = base_run != NULL;
    return sh_bench_measure_all(bench, case_name, placement, extra, systems, is_vs ? 2 : 1, is_vs,
                                medians);
}
