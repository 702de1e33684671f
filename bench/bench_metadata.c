/* Updates of the superpeers' metadata: names that one client registers with three superpeers, real
 * processes with default options on one machine.
 *
 *   durable   the superpeers have a data_dir each, on one disk; 1, 8 and 64 updates outstanding
 *   memory    the same with the option registry = memory
 *   snapshot  as durable, 64 outstanding, for longer; the row's times are of those updates only that
 *             ended while a superpeer was writing a snapshot of its metadata (in 20 ms, at most, of
 *             which it wrote some)
 *
 * --count names (a million) are there before anything is measured, and one operation registers one
 * of them, drawn, once more. `--vs bare` alternates with a bare program (rounds_base.h). A case's
 * processes serve all of its runs; those of the other system wait meanwhile. */
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/benches.h"
#include "bench/cluster.h"
#include "bench/names.h"
#include "bench/rounds_base.h"
#include "client/client.h"

#define COUNT UINT64_C(1000000)
#define SECONDS 5.0
#define SNAPSHOT_SECONDS 30.0
#define SILENCE_SECONDS 1.2
#define RATIO_MAX 1.3
#define UPDATES_MIN 20000.0
#define P99_MAX_MS 20.0

const char *const sh_bench_metadata_cases[] = {"durable", "memory", "snapshot", NULL};
const char *const sh_bench_metadata_baselines[] = {"bare", NULL};

static const unsigned depths[] = {1, 8, 64};
#define DEPTHS (sizeof depths / sizeof *depths)

struct metadata {
    struct sh_bench *bench;
    const char *name;
    bool is_durable, is_snapshot;
    uint64_t count;
    unsigned outstanding;
    double seconds;
    uint64_t seed;
    struct sh_bench_cluster cluster;
    struct sh_rounds_base base;
    shoal *store;        /* of the run; borrowed */
    struct sh_report at; /* what journals_sum said last */
    /* What the superpeers' journals did in all runs of a row. */
    uint64_t updates, writes, bytes, snapshots, snapshot_bytes, saving_ns;
    double measured_seconds;
};

/* Adds up what the journals of all superpeers have done so far. */
static enum shoal_err journals_sum(shoal *store, struct sh_report *sum_out)
{
    static struct sh_report report;
    *sum_out = (struct sh_report){0};
    for (unsigned i = 1; i <= SH_BENCH_SUPERPEERS; i++) {
        enum shoal_err err = sh_client_report(store, (shoal_nid){(uint16_t)i}, &report);
        if (err)
            return err;
        sum_out->journal_batches += report.journal_batches;
        sum_out->journal_bytes += report.journal_bytes;
        sum_out->journal_snapshots += report.journal_snapshots;
        sum_out->journal_snapshot_bytes += report.journal_snapshot_bytes;
        sum_out->journal_saving_ns += report.journal_saving_ns;
    }
    return SHOAL_OK;
}

static void journals_add(struct metadata *metadata, const struct sh_report *before,
                         const struct sh_report *after, const struct sh_bench_result *result)
{
    metadata->updates += result->ops;
    metadata->measured_seconds += result->seconds;
    metadata->writes += after->journal_batches - before->journal_batches;
    metadata->bytes += after->journal_bytes - before->journal_bytes;
    metadata->snapshots += after->journal_snapshots - before->journal_snapshots;
    metadata->snapshot_bytes += after->journal_snapshot_bytes - before->journal_snapshot_bytes;
    metadata->saving_ns += after->journal_saving_ns - before->journal_saving_ns;
}

/* Whether a superpeer has been writing a snapshot since this was asked last. */
static bool was_saving(void *arg)
{
    static struct sh_report now;
    struct metadata *metadata = arg;
    if (journals_sum(metadata->store, &now))
        return false;
    bool was_saving = now.journal_saving_ns > metadata->at.journal_saving_ns ||
                      now.journal_snapshots > metadata->at.journal_snapshots;
    metadata->at = now;
    return was_saving;
}

static enum shoal_err metadata_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    static struct sh_report before, after;
    struct metadata *metadata = arg;
    struct sh_bench_names names = {.count = metadata->count,
                                   .is_drawn = true,
                                   .seconds = metadata->seconds,
                                   .outstanding = metadata->outstanding,
                                   .seed = metadata->seed++};
    shoal *store;
    (void)flags;
    (void)placement;
    enum shoal_err err = sh_bench_cluster_open(&metadata->cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (err)
        return err;
    metadata->store = store;
    if (metadata->is_snapshot) {
        names.counts = was_saving;
        names.counts_arg = metadata;
    }
    err = journals_sum(store, &before);
    metadata->at = before;
    uint64_t cpu_ns = sh_children_cpu_ns(metadata->cluster.superpeers, SH_BENCH_SUPERPEERS);
    if (!err)
        err = sh_bench_names_set(store, &names, result_out);
    result_out->cpu_ns =
        sh_children_cpu_ns(metadata->cluster.superpeers, SH_BENCH_SUPERPEERS) - cpu_ns;
    if (!err)
        err = journals_sum(store, &after);
    shoal_close(store);
    if (!err)
        journals_add(metadata, &before, &after, result_out);
    return err;
}

/* The bare program's run. The superpeers' threads park 20 us at a time until their silence_ns is
 * over, and sleep then: until that is so, no longer than the run itself, the program waits. */
static enum shoal_err base_run(void *arg, const struct sh_bench_flags *flags,
                               enum sh_placement placement, struct sh_bench_result *result_out)
{
    const struct sh_rounds_base *base = arg;
    double pause = base->seconds < SILENCE_SECONDS ? base->seconds : SILENCE_SECONDS;
    (void)poll(NULL, 0, (int)(pause * 1000));
    return sh_rounds_base_run(arg, flags, placement, result_out);
}

/* Says what the journals did for each update: the arithmetic of docs/benchmarks.md. */
static void journals_note(const struct metadata *metadata)
{
    char text[256];
    double updates = metadata->updates ? (double)metadata->updates : 1;
    snprintf(text, sizeof text,
             "%s, %u outstanding: %.2f synced writes and %.0f bytes an update at each superpeer; "
             "%" PRIu64 " snapshots of %.1f MB in all, written in %.0f %% of the time",
             metadata->name, metadata->outstanding,
             (double)metadata->writes / updates / SH_BENCH_SUPERPEERS,
             (double)metadata->bytes / updates / SH_BENCH_SUPERPEERS, metadata->snapshots,
             (double)metadata->snapshot_bytes / 1e6,
             (double)metadata->saving_ns / 1e7 / SH_BENCH_SUPERPEERS / metadata->measured_seconds);
    sh_bench_note(metadata->bench, text);
}

static void bar_print(const struct metadata *metadata, const char *extra, const char *what,
                      double figure, double limit, bool at_least)
{
    struct sh_bench_bar bar = {.case_name = metadata->name,
                               .placement = SH_PLACE_FREE,
                               .extra = extra,
                               .what = what,
                               .figure = figure,
                               .limit = limit,
                               .at_least = at_least};
    sh_bench_bar_print(metadata->bench, &bar);
}

static void bars_print(const struct metadata *metadata, const char *extra,
                       const struct sh_bench_medians *medians, bool is_vs)
{
    if (!metadata->is_durable)
        return;
    if (is_vs && metadata->outstanding == 1 && medians[1].p50_ns > 0)
        bar_print(metadata, extra, "times the bare program's median",
                  medians[0].p50_ns / medians[1].p50_ns, RATIO_MAX, false);
    if (metadata->outstanding == 64)
        bar_print(metadata, extra, "updates a second", medians[0].ops_per_s, UPDATES_MIN, true);
    if (metadata->is_snapshot && metadata->snapshots)
        bar_print(metadata, extra, "ms, p99 while snapshots are written", medians[0].p99_ns / 1e6,
                  P99_MAX_MS, false);
}

static enum shoal_err depth_measure(struct metadata *metadata, unsigned outstanding, bool is_vs)
{
    struct sh_bench_system systems[] = {{.name = "shoal", .run = metadata_run, .arg = metadata},
                                        {.name = "bare", .run = base_run, .arg = &metadata->base}};
    struct sh_bench_medians medians[2] = {{0}};
    char extra[96];
    metadata->outstanding = metadata->base.outstanding = outstanding;
    metadata->base.seconds = metadata->seconds;
    metadata->updates = metadata->writes = metadata->bytes = 0;
    metadata->snapshots = metadata->snapshot_bytes = metadata->saving_ns = 0;
    metadata->measured_seconds = 0;
    snprintf(extra, sizeof extra, "superpeers=3 count=%" PRIu64 " outstanding=%u", metadata->count,
             outstanding);
    enum shoal_err err = sh_bench_measure_all(metadata->bench, metadata->name, SH_PLACE_FREE, extra,
                                              systems, is_vs ? 2 : 1, is_vs, medians);
    if (err)
        return err;
    if (metadata->is_durable)
        journals_note(metadata);
    bars_print(metadata, extra, medians, is_vs);
    return SHOAL_OK;
}

/* Registers all names. */
static enum shoal_err names_load(const struct metadata *metadata)
{
    static struct sh_bench_result result;
    struct sh_bench_names names = {.count = metadata->count,
                                   .outstanding = SH_BENCH_NAMES_OUTSTANDING_MAX};
    shoal *store;
    char text[96];
    result = (struct sh_bench_result){0};
    enum shoal_err err = sh_bench_cluster_open(&metadata->cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (err)
        return err;
    err = sh_bench_cluster_await(&metadata->cluster, store);
    if (!err)
        err = sh_bench_names_set(store, &names, &result);
    shoal_close(store);
    snprintf(text, sizeof text, "%s: %" PRIu64 " names loaded in %.1f s", metadata->name,
             metadata->count, result.seconds);
    if (!err)
        sh_bench_note(metadata->bench, text);
    return err;
}

/* The bare program: an owner and two replicas. Its messages are as large as those of shoal for a name of 13
 * bytes, frames included. */
static enum shoal_err base_start(struct metadata *metadata)
{
    const struct sh_rounds_shape shape = {.replicas = SH_BENCH_SUPERPEERS - 1,
                                          .owner_writes = true,
                                          .level = metadata->is_durable ? SH_ROUNDS_DISK
                                                                        : SH_ROUNDS_MEMORY,
                                          .request_bytes = 84,
                                          .answer_bytes = 29,
                                          .append_bytes = 64,
                                          .entry_bytes = 80,
                                          .confirm_bytes = 60,
                                          .write_bytes = 32,
                                          .written_bytes = 80,
                                          .outstanding_max = SH_BENCH_NAMES_OUTSTANDING_MAX};
    return sh_rounds_base_start(&metadata->base, &shape);
}

static enum shoal_err case_measure(struct metadata *metadata, const struct sh_bench_flags *flags)
{
    bool is_vs = flags->vs != NULL;
    const struct sh_bench_cluster_shape shape = {
        .name = "metadata", .superpeers = SH_BENCH_SUPERPEERS, .is_durable = metadata->is_durable};
    enum shoal_err err = SHOAL_OK;
    if (is_vs)
        err = base_start(metadata);
    if (!err)
        err = sh_bench_cluster_start(&metadata->cluster, &shape);
    if (!err)
        err = names_load(metadata);
    for (size_t i = 0; i < DEPTHS && !err; i++) {
        bool is_wanted = metadata->is_snapshot ? depths[i] == 64 : true;
        if (flags->outstanding)
            is_wanted = i == 0;
        if (is_wanted)
            err =
                depth_measure(metadata, flags->outstanding ? flags->outstanding : depths[i], is_vs);
    }
    sh_bench_cluster_stop(&metadata->cluster);
    sh_rounds_base_stop(&metadata->base);
    return err;
}

enum shoal_err sh_bench_metadata(struct sh_bench *bench)
{
    static struct metadata metadata;
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    enum shoal_err err = SHOAL_OK;
    if (flags->outstanding > SH_BENCH_NAMES_OUTSTANDING_MAX)
        return sh_bench_refuse(bench, "--outstanding is at most 64, what one client has under way");
    for (size_t i = 0; sh_bench_metadata_cases[i] && !err; i++) {
        const char *name = sh_bench_metadata_cases[i];
        if (!sh_bench_case_wanted(bench, name))
            continue;
        bool is_snapshot = strcmp(name, "snapshot") == 0;
        metadata = (struct metadata){.bench = bench,
                                     .name = name,
                                     .is_durable = strcmp(name, "memory") != 0,
                                     .is_snapshot = is_snapshot,
                                     .count = flags->count ? flags->count : COUNT,
                                     .seconds = is_snapshot ? SNAPSHOT_SECONDS : SECONDS,
                                     .seed = flags->seed};
        if (flags->seconds > 0)
            metadata.seconds = flags->seconds;
        err = case_measure(&metadata, flags);
    }
    return err;
}
