#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/assert.h"
#include "base/json.h"
#include "bench/bench_int.h"

/* How a metric is named in JSON, headed in the table, and scaled there. */
static const struct metric_look {
    const char *key;
    const char *head;
    double scale;
} looks[SH_METRICS] = {
    [SH_METRIC_OPS] = {"ops_per_s", "ops/s", 1},
    [SH_METRIC_MB] = {"mb_per_s", "MB/s", 1},
    [SH_METRIC_P50] = {"p50_ns", "p50 us", 1e-3},
    [SH_METRIC_P99] = {"p99_ns", "p99 us", 1e-3},
    [SH_METRIC_P999] = {"p999_ns", "p99.9 us", 1e-3},
    [SH_METRIC_CHUNK] = {"bytes_per_chunk", "B/chunk", 1},
    [SH_METRIC_OVER] = {"over_per_chunk", "B over", 1},
    [SH_METRIC_STATUS] = {"status_per_chunk", "B status", 1},
    [SH_METRIC_SECONDS] = {"seconds", "s", 1},
    [SH_METRIC_CPU] = {"cpu_ns_per_op", "cpu ns/op", 1},
    [SH_METRIC_BLOCK] = {"messages_per_block", "msg/block", 1},
    [SH_METRIC_CONN] = {"bytes_per_connection", "B/conn", 1},
};

static double per(double amount, double by)
{
    return by > 0 ? amount / by : 0;
}

/* The figures of a run, before it is counted. */
static void figures_add(struct sh_series *series, const struct sh_bench_figures *figures)
{
    SH_ASSERT(series->runs == 0 || series->figures == figures->count);
    series->figures = figures->count;
    for (unsigned i = 0; i < figures->count; i++) {
        SH_ASSERT(series->runs == 0 || strcmp(series->figure_keys[i], figures->keys[i]) == 0);
        series->figure_keys[i] = figures->keys[i];
        series->figure_values[i][series->runs] = figures->values[i];
    }
}

void sh_series_add(struct sh_series *series, const struct sh_bench_result *result)
{
    SH_ASSERT(series->runs < SH_BENCH_RUNS_MAX);
    SH_ASSERT(result->seconds >= 0);
    unsigned run = series->runs;
    figures_add(series, &result->figures);
    series->runs++;
    const struct sh_hist *hist = &result->latency_ns;
    series->digest = result->digest;
    series->values[SH_METRIC_OPS][run] = per((double)result->ops, result->seconds);
    series->values[SH_METRIC_MB][run] = per((double)result->bytes / 1e6, result->seconds);
    series->values[SH_METRIC_P50][run] = (double)sh_hist_percentile(hist, 50);
    series->values[SH_METRIC_P99][run] = (double)sh_hist_percentile(hist, 99);
    series->values[SH_METRIC_P999][run] = (double)sh_hist_percentile(hist, 99.9);
    series->values[SH_METRIC_CHUNK][run] = result->bytes_per_chunk;
    series->values[SH_METRIC_OVER][run] = result->over_per_chunk;
    series->values[SH_METRIC_STATUS][run] = result->status_per_chunk;
    series->values[SH_METRIC_SECONDS][run] = result->seconds;
    series->values[SH_METRIC_CPU][run] = per((double)result->cpu_ns, (double)result->ops);
    series->values[SH_METRIC_BLOCK][run] = result->messages_per_block;
    series->values[SH_METRIC_CONN][run] = result->bytes_per_connection;
}

static int double_compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The runs' values in order; sorted has room for every run. */
static void values_sort(const double *values, unsigned runs, double sorted[SH_BENCH_RUNS_MAX])
{
    SH_ASSERT(runs > 0);
    memcpy(sorted, values, runs * sizeof *sorted);
    qsort(sorted, runs, sizeof *sorted, double_compare);
}

static void series_sort(const struct sh_series *series, enum sh_metric metric,
                        double sorted[SH_BENCH_RUNS_MAX])
{
    values_sort(series->values[metric], series->runs, sorted);
}

static double median_of(const double *values, unsigned runs)
{
    double sorted[SH_BENCH_RUNS_MAX];
    values_sort(values, runs, sorted);
    unsigned half = runs / 2;
    return runs % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double sh_series_median(const struct sh_series *series, enum sh_metric metric)
{
    return median_of(series->values[metric], series->runs);
}

void sh_series_figures(const struct sh_series *series, struct sh_bench_figures *medians_out)
{
    medians_out->count = 0;
    for (unsigned i = 0; i < series->figures; i++)
        sh_bench_figure_add(medians_out, series->figure_keys[i],
                            median_of(series->figure_values[i], series->runs));
}

/* Adds "key=value key=value" as members; a value of digits alone is a number. */
static void extra_to_json(struct sh_json *row, const char *extra)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", extra ? extra : "");
    char *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        SH_ASSERT(equals != NULL);
        *equals = '\0';
        char *end = NULL;
        errno = 0;
        unsigned long long number = strtoull(equals + 1, &end, 10);
        if (errno == 0 && equals[1] >= '0' && equals[1] <= '9' && *end == '\0')
            sh_json_set_u64(row, word, number);
        else
            sh_json_set_text(row, word, equals + 1);
    }
}

/* What ours is compared with the baseline by. */
static const enum sh_metric ratios[] = {SH_METRIC_OPS, SH_METRIC_MB,   SH_METRIC_P50,
                                        SH_METRIC_P99, SH_METRIC_P999, SH_METRIC_CHUNK,
                                        SH_METRIC_CPU};
#define RATIOS (sizeof ratios / sizeof *ratios)

/* 0 where the metric does not apply to both. */
static double ratio_of(const struct sh_bench_row *row, enum sh_metric metric)
{
    return per(sh_series_median(row->series, metric), sh_series_median(row->base, metric));
}

static void ratios_to_json(struct sh_json *json, const struct sh_bench_row *row)
{
    sh_json_set_text(json, "vs", row->base_name);
    for (size_t i = 0; i < RATIOS; i++) {
        char key[40];
        double ratio = ratio_of(row, ratios[i]);
        snprintf(key, sizeof key, "ratio_%s", looks[ratios[i]].key);
        if (ratio > 0)
            sh_json_set_f64(json, key, ratio);
    }
}

static void row_print_json(struct sh_bench *bench, const struct sh_bench_row *row)
{
    struct sh_json *json = sh_json_object();
    sh_json_set_text(json, "bench", bench->entry->name);
    sh_json_set_text(json, "case", row->case_name);
    sh_json_set_text(json, "system", row->system);
    sh_json_set_text(json, "placement", sh_placement_name(row->placement));
    extra_to_json(json, row->extra);
    sh_json_set_u64(json, "runs", row->series->runs);
    sh_json_set_u64(json, "seed", bench->flags.seed);
    for (int i = 0; i < SH_METRICS; i++) {
        double median = sh_series_median(row->series, (enum sh_metric)i);
        if (median > 0)
            sh_json_set_f64(json, looks[i].key, median);
    }
    struct sh_bench_figures figures;
    sh_series_figures(row->series, &figures);
    for (unsigned i = 0; i < figures.count; i++)
        sh_json_set_f64(json, figures.keys[i], figures.values[i]);
    double sorted[SH_BENCH_RUNS_MAX];
    series_sort(row->series, SH_METRIC_OPS, sorted);
    sh_json_set_f64(json, "ops_per_s_min", sorted[0]);
    sh_json_set_f64(json, "ops_per_s_max", sorted[row->series->runs - 1]);
    if (row->base)
        ratios_to_json(json, row);
    char digest[20];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)row->series->digest);
    sh_json_set_text(json, "digest", digest);
    sh_json_set_text(json, "machine", bench->machine);
    sh_json_print(json, bench->out);
    sh_json_free(json);
}

/* A number short enough for a column. */
static void number_print(FILE *out, int width, double value)
{
    char text[32];
    if (value >= 1e7)
        snprintf(text, sizeof text, "%.2fM", value / 1e6);
    else if (value >= 1e4)
        snprintf(text, sizeof text, "%.1fk", value / 1e3);
    else
        snprintf(text, sizeof text, value < 100 ? "%.2f" : "%.1f", value);
    fprintf(out, " %*s", width, text);
}

/* The same of a metric, which is 0 where it does not apply. */
static void metric_print(FILE *out, int width, double value)
{
    if (value > 0)
        number_print(out, width, value);
    else
        fprintf(out, " %*s", width, "-");
}

static void figures_print(FILE *out, const struct sh_series *series)
{
    struct sh_bench_figures figures;
    sh_series_figures(series, &figures);
    for (unsigned i = 0; i < figures.count; i++) {
        fprintf(out, "%s%s", i ? ", " : "  ", figures.keys[i]);
        number_print(out, 0, figures.values[i]);
    }
    if (figures.count)
        fprintf(out, "\n");
}

static void header_print(struct sh_bench *bench)
{
    fprintf(bench->out, "%s: %s\nmachine: %s\nmedians of %u runs after a warm-up; seed %llu\n\n",
            bench->entry->name, bench->entry->summary, bench->machine, bench->flags.runs,
            (unsigned long long)bench->flags.seed);
    fprintf(bench->out, "%-14s %-13s %-10s", "case", "system", "placement");
    for (int i = 0; i < SH_METRICS; i++)
        fprintf(bench->out, " %9s", looks[i].head);
    fprintf(bench->out, " %6s %16s  parameters\n", "spread", "digest");
    bench->header_printed = true;
}

/* How far the runs lie apart: largest less smallest rate, in percent of the median. */
static double spread_percent(const struct sh_series *series)
{
    double sorted[SH_BENCH_RUNS_MAX];
    series_sort(series, SH_METRIC_OPS, sorted);
    double median = sh_series_median(series, SH_METRIC_OPS);
    return per(100 * (sorted[series->runs - 1] - sorted[0]), median);
}

static void ratios_print(FILE *out, const struct sh_bench_row *row)
{
    fprintf(out, "  ratio of medians, shoal to %s:", row->base_name);
    for (size_t i = 0; i < RATIOS; i++) {
        double ratio = ratio_of(row, ratios[i]);
        if (ratio > 0)
            fprintf(out, " %s %.2fx", looks[ratios[i]].head, ratio);
    }
    fprintf(out, "\n");
}

static void row_print_text(struct sh_bench *bench, const struct sh_bench_row *row)
{
    if (!bench->header_printed)
        header_print(bench);
    fprintf(bench->out, "%-14s %-13s %-10s", row->case_name, row->system,
            sh_placement_name(row->placement));
    for (int i = 0; i < SH_METRICS; i++)
        metric_print(bench->out, 9,
                     sh_series_median(row->series, (enum sh_metric)i) * looks[i].scale);
    fprintf(bench->out, " %5.1f%% %016llx  %s\n", spread_percent(row->series),
            (unsigned long long)row->series->digest, row->extra ? row->extra : "");
    figures_print(bench->out, row->series);
    if (row->base)
        ratios_print(bench->out, row);
}

void sh_bench_row_print(struct sh_bench *bench, const struct sh_bench_row *row)
{
    SH_ASSERT(row->series != NULL);
    SH_ASSERT(row->case_name != NULL && row->system != NULL);
    if (bench->flags.json)
        row_print_json(bench, row);
    else
        row_print_text(bench, row);
    fflush(bench->out);
}

static void bar_print_json(struct sh_bench *bench, const struct sh_bench_bar *bar, bool met)
{
    struct sh_json *json = sh_json_object();
    sh_json_set_text(json, "bench", bench->entry->name);
    sh_json_set_text(json, "case", bar->case_name);
    sh_json_set_text(json, "bar", bar->what);
    sh_json_set_text(json, "placement", sh_placement_name(bar->placement));
    extra_to_json(json, bar->extra);
    sh_json_set_f64(json, "figure", bar->figure);
    if (bar->figure_cpu > 0)
        sh_json_set_f64(json, "figure_cpu", bar->figure_cpu);
    sh_json_set_f64(json, "limit", bar->limit);
    sh_json_set_bool(json, "at_least", bar->at_least);
    sh_json_set_bool(json, "met", met);
    sh_json_set_text(json, "machine", bench->machine);
    sh_json_print(json, bench->out);
    sh_json_free(json);
}

void sh_bench_bar_print(struct sh_bench *bench, const struct sh_bench_bar *bar)
{
    SH_ASSERT(bar->what != NULL && bar->case_name != NULL);
    bool met = bar->at_least ? bar->figure >= bar->limit : bar->figure <= bar->limit;
    char by_cpu[48] = "";
    if (bar->figure_cpu > 0)
        snprintf(by_cpu, sizeof by_cpu, " (%.2f by processor time)", bar->figure_cpu);
    if (bench->flags.json)
        bar_print_json(bench, bar, met);
    else
        fprintf(bench->out, "  bar: %s %.2f%s, at %s %.2f: %s\n", bar->what, bar->figure, by_cpu,
                bar->at_least ? "least" : "most", bar->limit, met ? "met" : "missed");
    fflush(bench->out);
}

/* The processor's name as the kernel tells it; "unknown processor" where it does not. */
static void processor_name(char *into, size_t room)
{
    snprintf(into, room, "unknown processor");
    FILE *info = fopen("/proc/cpuinfo", "re");
    if (!info)
        return;
    char line[256];
    while (fgets(line, sizeof line, info)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(into, room, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    fclose(info);
}

void sh_bench_machine(char *into, size_t room)
{
    char processor[96];
    processor_name(processor, sizeof processor);
    struct utsname kernel;
    bool named = uname(&kernel) == 0;
    unsigned cores = sh_bench_cores();
    snprintf(into, room, "%s, %u core%s, %.10s %.40s %.16s", processor, cores,
             cores == 1 ? "" : "s", named ? kernel.sysname : "", named ? kernel.release : "",
             named ? kernel.machine : "");
}
