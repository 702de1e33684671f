#include <string.h>

#include "base/assert.h"
#include "bench/kv_bench_int.h"
#include "bench/rounds_base.h"

#define LEVELS 3
/* Bars, of puts with three backups. */
#define BAR_REPLICAS 3
#define ROUND_DEPTH 64
#define DEEP_DEPTH 1024
#define REPLICATED_MIN 0.4
#define ROUND_MAX 1.3
#define DURABLE_MIN 0.25

/* The strongest first. */
static const struct {
    const char *name;
    enum shoal_level level;
    enum sh_rounds_level rounds;
} levels[LEVELS] = {{"durable", SHOAL_DURABLE, SH_ROUNDS_DISK},
                    {"replicated", SHOAL_REPLICATED, SH_ROUNDS_MEMORY},
                    {"async", SHOAL_ASYNC, SH_ROUNDS_ASYNC}};
enum { DURABLE, REPLICATED, ASYNC };

/* The bare program of a run. */
struct bare {
    const struct sh_kv_shape *shape;
    enum sh_rounds_level level;
};

/* The systems that the run measures side by side, and where each is in the medians. */
struct levels_run {
    struct sh_kv_shape shapes[LEVELS];
    struct bare bare;
    struct sh_bench_system systems[LEVELS + 1];
    unsigned count;
    int at[LEVELS]; /* -1: not there */
    int bare_at;
};

/* --- Costs ------------------------------------------------------------------------------------- */

static enum shoal_err counts_take(const struct sh_kv_servers *servers, struct sh_kv_counts *counts)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < servers->count; i++)
        err = sh_kv_servers_count(servers, i, &counts[i]);
    return err;
}

enum shoal_err sh_kv_costs_begin(const struct sh_kv_servers *servers, struct sh_kv_costs *costs_out)
{
    enum shoal_err err = counts_take(servers, costs_out->counts);
    costs_out->client_ns = sh_bench_cpu_ns();
    return err;
}

enum shoal_err sh_kv_costs_end(const struct sh_kv_servers *servers, const struct sh_kv_costs *costs,
                               const struct sh_kv_shape *shape, struct sh_bench_result *result)
{
    struct sh_kv_counts after[SH_KV_SERVERS_MAX];
    struct sh_kv_counts owner = {0}, others = {0};
    uint64_t client_ns = sh_bench_cpu_ns() - costs->client_ns;
    enum shoal_err err = counts_take(servers, after);
    if (err)
        return err;
    for (unsigned i = 0; i < servers->count; i++) {
        const struct sh_kv_counts *before = &costs->counts[i];
        struct sh_kv_counts *sum = i == sh_kv_servers_owner(servers) ? &owner : &others;
        sum->messages += after[i].messages - before->messages;
        sum->bytes += after[i].bytes - before->bytes;
        sum->blocks_out += after[i].blocks_out - before->blocks_out;
        sum->cpu_ns += after[i].cpu_ns - before->cpu_ns;
        sum->disk_bytes += after[i].disk_bytes - before->disk_bytes;
    }
    result->cpu_ns = client_ns + owner.cpu_ns + others.cpu_ns;
    if (!shape->replicas || !result->ops)
        return SHOAL_OK;
    struct sh_bench_figures *figures = &result->figures;
    double ops = (double)result->ops;
    sh_bench_figure_add(figures, "messages", (double)owner.messages / ops);
    sh_bench_figure_add(figures, "messages_backups", (double)others.messages / ops);
    sh_bench_figure_add(figures, "bytes", (double)owner.bytes / ops);
    sh_bench_figure_add(figures, "bytes_backups", (double)others.bytes / ops);
    sh_bench_figure_add(figures, "blocks_owner", (double)owner.blocks_out / ops);
    sh_bench_figure_add(figures, "cpu_ns_client", (double)client_ns / ops);
    sh_bench_figure_add(figures, "cpu_ns_owner", (double)owner.cpu_ns / ops);
    sh_bench_figure_add(figures, "cpu_ns_backups", (double)others.cpu_ns / ops);
    sh_bench_figure_add(figures, "disk_bytes",
                        (double)(owner.disk_bytes + others.disk_bytes) / ops);
    return SHOAL_OK;
}

/* --- The bare program -------------------------------------------------------------------------- */

/* As large as the messages of shoal for a put, whose headers these are. 64 values of 64 bytes are a block of
 * 4 KiB: of a write, what describes the values is not counted. */
static void bare_shape(const struct bare *bare, struct sh_rounds_shape *shape_out)
{
    const struct sh_bench_flags *flags = &bare->shape->flags;
    *shape_out = (struct sh_rounds_shape){
        .replicas = bare->shape->nodes > 1 ? bare->shape->replicas : 0,
        .owner_writes = bare->shape->nodes == 1,
        .level = bare->level,
        .request_bytes = flags->size + 30,
        .answer_bytes = 22,
        .append_bytes = 64,
        .entry_bytes = flags->size + 14,
        .confirm_bytes = 60,
        .written_bytes = flags->size,
        .outstanding_max = flags->outstanding,
    };
}

static enum shoal_err bare_run(void *arg, const struct sh_bench_flags *flags,
                               enum sh_placement placement, struct sh_bench_result *result_out)
{
    const struct bare *bare = arg;
    const struct sh_bench_flags *of_shape = &bare->shape->flags;
    struct sh_rounds_base base;
    struct sh_rounds_shape shape;
    bare_shape(bare, &shape);
    enum shoal_err err = sh_rounds_base_start(&base, &shape);
    if (err)
        return err;
    base.outstanding = of_shape->outstanding;
    base.seconds = of_shape->seconds;
    err = sh_rounds_base_run(&base, flags, placement, result_out);
    result_out->bytes = result_out->ops * of_shape->size;
    result_out->digest = base.outstanding;
    sh_rounds_base_stop(&base);
    return err;
}

/* --- Levels beside each other ------------------------------------------------------------------ */

static void system_add(struct levels_run *run, const char *name, sh_bench_run system_run, void *arg,
                       int *at_out)
{
    *at_out = (int)run->count;
    run->systems[run->count++] = (struct sh_bench_system){name, system_run, arg};
}

/* The wanted level is ours, so it comes first; the bare program that ratios are to, if any, is the second; then the other
 * levels, of which async is always there. */
static void systems_choose(struct levels_run *run, const struct sh_kv_shape *shape)
{
    const char *wanted = shape->flags.durability;
    bool is_all = !wanted || strcmp(wanted, "all") == 0, is_first = true;
    *run = (struct levels_run){.at = {-1, -1, -1}, .bare_at = -1};
    for (unsigned i = 0; i < LEVELS; i++) {
        run->shapes[i] = *shape;
        run->shapes[i].level = levels[i].level;
        if (!is_all && i != ASYNC && strcmp(wanted, levels[i].name) != 0)
            continue;
        system_add(run, levels[i].name, sh_kv_run, &run->shapes[i], &run->at[i]);
        if (is_first && shape->flags.vs) {
            run->bare = (struct bare){&run->shapes[i], levels[i].rounds};
            system_add(run, "bare", bare_run, &run->bare, &run->bare_at);
        }
        is_first = false;
    }
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Everything is as often done at one level as at the other, so that a ratio of rates is also one of the times of rounds. */
static void bars_print(struct sh_bench *bench, const struct levels_run *run,
                       struct sh_bench_bar *bar, const struct sh_bench_medians *medians,
                       unsigned outstanding)
{
    const struct sh_bench_medians *of[LEVELS], *bare;
    for (unsigned i = 0; i < LEVELS; i++)
        of[i] = run->at[i] >= 0 ? &medians[run->at[i]] : NULL;
    bare = run->bare_at >= 0 ? &medians[run->bare_at] : NULL;
    bar->at_least = true;
    if (of[REPLICATED] && outstanding == ROUND_DEPTH) {
        bar->what = "times the puts of async, replicated";
        bar->figure = ratio(of[REPLICATED]->ops_per_s, of[ASYNC]->ops_per_s);
        bar->figure_cpu = ratio(of[ASYNC]->cpu_ns_per_op, of[REPLICATED]->cpu_ns_per_op);
        bar->limit = REPLICATED_MIN;
        sh_bench_bar_print(bench, bar);
    }
    if (of[DURABLE] && outstanding == DEEP_DEPTH) {
        bar->what = "times the puts of async, durable";
        bar->figure = ratio(of[DURABLE]->ops_per_s, of[ASYNC]->ops_per_s);
        bar->figure_cpu = ratio(of[ASYNC]->cpu_ns_per_op, of[DURABLE]->cpu_ns_per_op);
        bar->limit = DURABLE_MIN;
        sh_bench_bar_print(bench, bar);
    }
    if (of[DURABLE] && bare && outstanding == ROUND_DEPTH) {
        bar->what = "times the bare program's round, durable";
        bar->figure = ratio(bare->ops_per_s, of[DURABLE]->ops_per_s);
        bar->figure_cpu = ratio(of[DURABLE]->cpu_ns_per_op, bare->cpu_ns_per_op);
        bar->limit = ROUND_MAX;
        bar->at_least = false;
        sh_bench_bar_print(bench, bar);
    }
}

enum shoal_err sh_kv_levels_measure(struct sh_bench *bench, const char *case_name,
                                    enum sh_placement placement, const char *extra,
                                    const struct sh_kv_shape *shape)
{
    struct levels_run run;
    struct sh_bench_medians medians[LEVELS + 1];
    SH_ASSERT(shape->replicas > 0 && shape->nodes > 0);
    systems_choose(&run, shape);
    enum shoal_err err = sh_bench_measure_all(bench, case_name, placement, extra, run.systems,
                                              run.count, run.bare_at >= 0, medians);
    struct sh_bench_bar bar = {.case_name = case_name, .placement = placement, .extra = extra};
    if (!err && shape->what == SH_KV_PUT && shape->replicas == BAR_REPLICAS &&
        shape->flags.threads == 1)
        bars_print(bench, &run, &bar, medians, shape->flags.outstanding);
    return err;
}
