/* A backup's log (src/log): updates of chunks of --size bytes (64) in --zones (20), appended by one
 * thread that owns the log and its disk, until they are durable.
 *
 *   load        all zones from empty, one after the other
 *   sequential  the same order again, twice
 *   random      rows of --batch chunks (10) from a chunk drawn uniformly
 *   zipf        chunks drawn by Zipf's law, one by one
 *   hotcold     90 % of the writes to every tenth chunk, one by one
 *
 * The cases but load begin, unmeasured, with a load, and write twice as many chunks as there are. A
 * zone's chunks are --zone-bytes with headers, --fill percent (50) of what its log may take, in slots of
 * --segment-bytes, which are cleaned by --selection. --vs disk writes the same number of bytes to the same place (disk_base.h); --vs one-level is the log
 * without its primary log.
 *
 * Prediction: docs/log.md, "What limits it": 50 ns for a chunk of 64 bytes are the disk's at
 * 1.5 GB/s, and 25 the log's where IDs follow each other. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/benches.h"
#include "bench/cluster.h"
#include "bench/disk_base.h"
#include "bench/log_run.h"
#include "bench/redis_log_base.h"
#include "bench/rocksdb_base.h"
#include "log/replog.h"

#define SIZE 64
#define RANDOM_BATCH 10
#define OTHER_TIMES 4
#define OTHER_ENTRY_BYTES 40
/* Bars. */
#define LOAD_MIN 5.0
#define DISK_MIN 0.85
#define DISK_SIZE 1024
#define RANDOM_MIN 2.0
#define ROCKSDB_MIN 4.0
#define FILL_MAX 85.0
#define AMPLIFICATION_MAX 5.0
#define THEORY_MAX 1.1
#define LEVELS_SLOW_MIN 5.0
#define LEVELS_MIN 1.0
#define LEVELS_ZONES 2000
#define MEMORY_ZONES 1000
#define MEMORY_MIN 500.0

static const struct sh_log_defaults defaults = {
    .zones = 20, .zone_bytes = 16 << 20, .segment_bytes = 1 << 20, .buffer_bytes = 32 << 20};

const char *const sh_bench_log_cases[] = {"load", "sequential", "random", "zipf", "hotcold", NULL};
const char *const sh_bench_log_baselines[] = {"disk", "rocksdb", "redis", "one-level", NULL};

struct log_bench {
    struct sh_bench *bench;
    const char *name; /* of the case */
    struct sh_log_plan plan;
    struct sh_log_plan one_level; /* the same without a primary log */
    bool has_batch;               /* --batch */
    char folder[256];
    char extra[256];
    const char *vs;
};

static bool is_vs(const struct log_bench *log, const char *baseline)
{
    return log->vs && strcmp(log->vs, baseline) == 0;
}

/* --- What the flags ask for -------------------------------------------------------------------- */

/* Bytes that a run takes in the folder at most. The other systems have each write on the disk, and some twice
 * while they sort (RocksDB) or write anew (Redis). */
static uint64_t folder_bytes(const struct log_bench *log)
{
    const struct sh_log_plan *plan = &log->plan;
    uint64_t ours = sh_log_plan_file_bytes(plan);
    uint64_t other =
        OTHER_TIMES * sh_log_plan_count(plan) * (plan->size + (uint64_t)OTHER_ENTRY_BYTES);
    bool is_other = is_vs(log, "rocksdb") || is_vs(log, "redis");
    return is_other && other > ours ? other : ours;
}

static const char *access_name(const struct sh_log_plan *plan)
{
    if (plan->is_raw)
        return "raw";
    return plan->is_direct ? "direct" : "cached";
}

static void extra_make(struct log_bench *log)
{
    const struct sh_log_plan *plan = &log->plan;
    snprintf(log->extra, sizeof log->extra,
             "size=%u zones=%u count=%" PRIu64 " segment_bytes=%u buffer_bytes=%" PRIu64
             " batch=%u access=%s levels=%u selection=%s fill=%u",
             plan->size, plan->zones, sh_log_plan_count(plan), plan->segment_bytes,
             plan->buffer_bytes, plan->batch, access_name(plan), plan->has_primary ? 2 : 1,
             sh_replog_selection_names[plan->selection],
             (unsigned)(plan->zone_bytes * 100 / plan->log_bytes));
    size_t used = strlen(log->extra);
    if (plan->sync_every)
        snprintf(log->extra + used, sizeof log->extra - used, " sync_every=%u", plan->sync_every);
    used = strlen(log->extra);
    if (plan->disk_writes)
        snprintf(log->extra + used, sizeof log->extra - used, " disk_writes=%" PRIu64,
                 plan->disk_writes);
}

/* --- Bars -------------------------------------------------------------------------------------- */

static void bar_print(const struct log_bench *log, const char *what, double figure,
                      double figure_cpu, double limit, bool at_least)
{
    const struct sh_bench_bar bar = {.case_name = log->name,
                                     .placement = SH_PLACE_FREE,
                                     .extra = log->extra,
                                     .what = what,
                                     .figure = figure,
                                     .figure_cpu = figure_cpu,
                                     .limit = limit,
                                     .at_least = at_least};
    sh_bench_bar_print(log->bench, &bar);
}

static double millions_by_cpu(const struct sh_bench_medians *medians)
{
    return medians->cpu_ns_per_op > 0 ? 1e3 / medians->cpu_ns_per_op : 0;
}

static void load_bars(const struct log_bench *log, const struct sh_bench_medians *medians)
{
    const struct sh_log_plan *plan = &log->plan;
    if (plan->zones == 1 && plan->size == SIZE)
        bar_print(log, "million chunks a second of one zone", medians[0].ops_per_s / 1e6,
                  millions_by_cpu(medians), LOAD_MIN, true);
    if (is_vs(log, "disk") && plan->size >= DISK_SIZE && medians[1].mb_per_s > 0)
        bar_print(log, "times the raw disk's MB/s", medians[0].mb_per_s / medians[1].mb_per_s, 0,
                  DISK_MIN, true);
}

/* Judges how many bytes of log the run held for one byte of memory. */
static void memory_bar(const struct log_bench *log, const struct sh_bench_medians *medians)
{
    double memory = sh_bench_figure_get(&medians->figures, "memory_bytes");
    if (log->plan.zones >= MEMORY_ZONES && memory > 0)
        bar_print(log, "bytes of log for one of memory",
                  (double)sh_log_plan_file_bytes(&log->plan) / memory, 0, MEMORY_MIN, true);
}

static void random_bars(const struct log_bench *log, const struct sh_bench_medians *medians)
{
    const struct sh_log_plan *plan = &log->plan;
    if (plan->batch == 1 && is_vs(log, "rocksdb") && medians[1].ops_per_s > 0)
        bar_print(log, "times RocksDB's puts", medians[0].ops_per_s / medians[1].ops_per_s,
                  medians[0].cpu_ns_per_op > 0 ? medians[1].cpu_ns_per_op / medians[0].cpu_ns_per_op
                                               : 0,
                  ROCKSDB_MIN, true);
    if (is_vs(log, "one-level") && plan->zones >= LEVELS_ZONES && medians[1].ops_per_s > 0)
        bar_print(log, "times the chunks of one level", medians[0].ops_per_s / medians[1].ops_per_s,
                  medians[0].cpu_ns_per_op > 0 ? medians[1].cpu_ns_per_op / medians[0].cpu_ns_per_op
                                               : 0,
                  plan->disk_writes ? LEVELS_SLOW_MIN : LEVELS_MIN, true);
    memory_bar(log, medians);
    if (plan->batch != RANDOM_BATCH || plan->size != SIZE || plan->disk_writes || plan->sync_every)
        return;
    bar_print(log, "million chunks a second", medians->ops_per_s / 1e6, millions_by_cpu(medians),
              RANDOM_MIN, true);
    bar_print(log, "percent of the slots in use",
              sh_bench_figure_get(&medians->figures, "fill_percent"), 0, FILL_MAX, false);
    double of_theory = sh_bench_figure_get(&medians->figures, "of_theory");
    if (of_theory > 0)
        bar_print(log, "times the theory of its selection", of_theory, 0, THEORY_MAX, false);
    bar_print(log, "bytes written for one",
              sh_bench_figure_get(&medians->figures, "amplification_all"), 0, AMPLIFICATION_MAX,
              false);
}

/* --- Cases ------------------------------------------------------------------------------------- */

static sh_bench_run base_run_of(const struct log_bench *log)
{
    if (is_vs(log, "one-level"))
        return sh_log_run;
    if (is_vs(log, "rocksdb"))
        return sh_rocksdb_base_run;
    return is_vs(log, "redis") ? sh_redis_log_base_run : sh_disk_base_run;
}

static enum shoal_err case_measure(struct log_bench *log)
{
    struct sh_log_plan *plan = &log->plan;
    struct sh_log_plan *base_plan = is_vs(log, "one-level") ? &log->one_level : plan;
    const struct sh_bench_system systems[] = {{"shoal", sh_log_run, plan},
                                              {log->vs, base_run_of(log), base_plan}};
    struct sh_bench_medians medians[2];
    if (plan->what == SH_LOG_ZIPF)
        sh_zipf_init(&plan->zipf, sh_log_plan_count(plan));
    if (!log->has_batch)
        plan->batch = plan->what == SH_LOG_RANDOM ? RANDOM_BATCH : 1;
    extra_make(log);
    log->one_level = *plan;
    log->one_level.has_primary = false;
    enum shoal_err err = sh_bench_measure_all(log->bench, log->name, SH_PLACE_FREE, log->extra,
                                              systems, log->vs ? 2 : 1, log->vs, medians);
    if (err)
        return err;
    if (plan->what == SH_LOG_LOAD)
        load_bars(log, medians);
    if (plan->what == SH_LOG_RANDOM)
        random_bars(log, medians);
    return SHOAL_OK;
}

static enum shoal_err cases_measure(struct log_bench *log)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < SH_LOG_CASES && !err; i++) {
        log->name = sh_bench_log_cases[i];
        log->plan.what = (enum sh_log_case)i;
        if (sh_bench_case_wanted(log->bench, log->name))
            err = case_measure(log);
    }
    return err;
}

enum shoal_err sh_bench_log(struct sh_bench *bench)
{
    static struct log_bench log;
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    log = (struct log_bench){.bench = bench, .vs = flags->vs};
    sh_log_plan_make(flags, &defaults, &log.plan);
    log.plan.batch = flags->batch;
    log.has_batch = flags->batch > 0;
    enum shoal_err err = sh_log_plan_check(bench, &log.plan);
    if (err)
        return err;
    if (is_vs(&log, "one-level") && !log.plan.has_primary)
        return sh_bench_refuse(bench, "--vs one-level and --levels 1 are the same log twice");
    err = sh_bench_folder_make_in(flags->folder, "log", log.folder, sizeof log.folder);
    if (err)
        return err;
    log.plan.folder = log.folder;
    uint8_t *source = sh_log_source_make(&log.plan);
    log.plan.source = source;
    err = source ? sh_log_space_check(bench, log.folder, folder_bytes(&log)) : SHOAL_ENOMEM;
    if (!err)
        err = cases_measure(&log);
    free(source);
    sh_bench_folder_remove(log.folder);
    return err;
}
