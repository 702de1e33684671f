/* Inside the frame: the benchmark under way, its flags and its rows. */
#ifndef SH_BENCH_BENCH_INT_H
#define SH_BENCH_BENCH_INT_H

#include "bench/bench.h"

#define SH_BENCH_RUNS_MAX 101
#define SH_BENCH_RUNS 5
#define SH_BENCH_SEED 1

/* What a row can carry, in the order of its columns. */
enum sh_metric {
    SH_METRIC_OPS,
    SH_METRIC_MB,
    SH_METRIC_P50,
    SH_METRIC_P99,
    SH_METRIC_P999,
    SH_METRIC_CHUNK,
    SH_METRIC_OVER,
    SH_METRIC_STATUS,
    SH_METRIC_SECONDS,
    SH_METRIC_CPU,
    SH_METRIC_BLOCK,
    SH_METRIC_CONN,
    SH_METRICS
};

/* The runs of one system: a value for each run and metric; 0 where the metric does not apply. */
struct sh_series {
    unsigned runs;
    uint64_t digest; /* of the last run */
    double values[SH_METRICS][SH_BENCH_RUNS_MAX];
    unsigned figures;
    const char *figure_keys[SH_BENCH_FIGURES_MAX];
    double figure_values[SH_BENCH_FIGURES_MAX][SH_BENCH_RUNS_MAX];
};

struct sh_bench {
    const struct sh_bench_entry *entry;
    struct sh_bench_flags flags;
    FILE *out;
    bool header_printed;
    bool is_refused; /* sh_bench_refuse has said why */
    char machine[192];
};

/* Parsed words that are not parameters. */
struct sh_bench_words {
    bool help;
    bool list;
};

struct sh_bench_error {
    char text[256];
};

/* Reads flags (argv[0] is the first of them) and holds --case, --vs, --placement and --keys against
 * what there is (entry NULL: no benchmark was named, then any case passes). EOPTION, EPARSE, ERANGE
 * with a sentence that names the nearest known word, or all known ones; EOPTION also for a flag
 * that the benchmark does not take. */
SHOAL_NODISCARD enum shoal_err sh_bench_flags_parse(int argc, char **argv,
                                                    const struct sh_bench_entry *entry,
                                                    struct sh_bench_flags *flags_out,
                                                    struct sh_bench_words *words_out,
                                                    struct sh_bench_error *error_out);
void sh_bench_flags_help(FILE *out);

void sh_series_add(struct sh_series *series, const struct sh_bench_result *result);
double sh_series_median(const struct sh_series *series, enum sh_metric metric);
void sh_series_figures(const struct sh_series *series, struct sh_bench_figures *medians_out);

/* One system's row. `base` is NULL for the baseline's own row and where there is none; then the row
 * has no ratios. */
struct sh_bench_row {
    const char *case_name;
    const char *system;
    enum sh_placement placement;
    const char *extra;
    const struct sh_series *series;
    const char *base_name;
    const struct sh_series *base;
};
void sh_bench_row_print(struct sh_bench *bench, const struct sh_bench_row *row);

/* "AMD EPYC, 2 cores, Linux 6.18", into a text of `room` bytes. */
void sh_bench_machine(char *into, size_t room);

/* Remembers the cores that the program was started with; the first call counts. */
void sh_bench_cores_init(void);
/* How many those are. */
unsigned sh_bench_cores(void);

#endif
