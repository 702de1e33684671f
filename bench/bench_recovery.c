/* Bringing back what logs have. The cases cluster, under-load and cold are of real processes (recovery_cluster.h).
 *
 *   zone        one zone (--zones) of --zone-bytes (256 MiB), around the page cache
 *
 * (src/recover): a log of zones of chunks of --size bytes (64) is made, unmeasured, with a load and
 * twice as many updates of rows of --batch chunks (10), so that it is as full of outdated entries as a log gets; then it is opened,
 * and all of its chunks go into an empty store.
 *
 * An operation is a chunk that is back, as it was written last. --vs disk reads as many bytes as the log's primary log and its slots in use have, of a file that it has
 * just written, in reads of 8 MiB with O_DIRECT, four of them in flight. --seconds has no effect.
 *
 * Prediction: docs/recovery.md, "Reading a replica". */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "bench/benches.h"
#include "bench/cluster.h"
#include "bench/disk_base.h"
#include "bench/log_run.h"
#include "bench/recovery_cluster.h"
#include "recover/home.h"

#define BATCH 10
#define SAMPLE 4096u /* chunks that are compared */
#define WINDOW_BYTES (UINT64_C(16) << 20)
#define STORE_EACH 80 /* bytes of a chunk of 64, and something */
/* Bar: times what the disk takes. */
#define DISK_MAX 1.3

#define CASES 4
#define ZONE 0 /* the place of that case */

static const struct sh_log_defaults defaults = {
    .zones = 1, .zone_bytes = 256 << 20, .segment_bytes = 8 << 20, .buffer_bytes = 64 << 20};

const char *const sh_bench_recovery_cases[] = {"zone", "cluster", "under-load", "cold", NULL};
const char *const sh_bench_recovery_baselines[] = {"disk", "redis", NULL};

struct recovery_bench {
    struct sh_bench *bench;
    struct sh_log_plan plan;
    uint64_t expected[SAMPLE];
    char folder[256];
    char extra[256];
};

/* --- A run ------------------------------------------------------------------------------------- */

static void wake(void *arg)
{
    (void)arg;
}

static enum shoal_err parts_make(const struct sh_log_plan *plan, struct sh_store **store_out,
                                 struct sh_backup **backup_out)
{
    uint64_t chunks = sh_log_plan_count(plan);
    const struct sh_store_config stored = {.bytes_max =
                                               (64 << 20) + chunks * (plan->size + STORE_EACH),
                                           .chunk_bytes_max = plan->segment_bytes,
                                           .nid = {SH_LOG_OWNER}};
    enum shoal_err err = sh_store_create(&stored, store_out);
    if (err)
        return err;
    const struct sh_backup_config backed = {.store = *store_out,
                                            .nid = {SH_LOG_OWNER},
                                            .zone_bytes = plan->zone_bytes,
                                            .window_bytes = WINDOW_BYTES,
                                            .wake = wake};
    return sh_backup_create(&backed, backup_out);
}

/* Bytes that are read at least: of the primary log, and of the slots in use. */
static uint64_t read_bytes(const struct sh_replog *log)
{
    struct sh_replog_status status;
    sh_replog_status_get(log, &status);
    struct sh_replog_look look = sh_replog_look(log);
    return look.primary_bytes + (uint64_t)(status.slots - status.slots_free) * look.slot_bytes;
}

static void hash_take(void *arg, struct sh_bytes chunk)
{
    *(uint64_t *)arg = sh_hash64(chunk, 0);
}

/* Whether the sampled chunks are as they were written last. */
static enum shoal_err sample_check(const struct recovery_bench *recovery, struct sh_store *store)
{
    uint64_t count = sh_log_plan_count(&recovery->plan), hash = 0;
    enum shoal_err err = SHOAL_OK;
    for (uint64_t key = 0; !err && key < SAMPLE && key < count; key++) {
        err = sh_store_read(store, shoal_cid_make((shoal_nid){SH_LOG_OWNER}, key + 1), hash_take,
                            &hash);
        if (!err && hash != recovery->expected[key])
            err = SHOAL_ECORRUPT;
    }
    return err;
}

static enum shoal_err measure(struct recovery_bench *recovery, struct sh_disk *disk,
                              struct sh_bench_result *result_out)
{
    struct sh_log_plan *plan = &recovery->plan;
    struct sh_replog_config config = sh_log_plan_config(plan, disk);
    config.slots *= 2; /* what is back is written to, by other reckoning of what a zone may take */
    struct sh_recovered found = {0};
    struct sh_recover_home home = {.disk = disk, .nid = {SH_LOG_OWNER}, .clock = sh_real_clock()};
    uint64_t begin_ns = sh_bench_now_ns(), cpu_ns = sh_bench_cpu_ns();
    enum shoal_err err = sh_replog_open(&config, begin_ns, 1, &home.log);
    if (!err) {
        plan->run_bytes = read_bytes(home.log);
        err = parts_make(plan, &home.store, &home.backup);
    }
    if (!err)
        err = sh_recover_home_run(&home, &found);
    result_out->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->ops = plan->run_ops = found.chunks;
    result_out->bytes = plan->run_bytes;
    result_out->digest = plan->run_bytes;
    if (!err && found.chunks != sh_log_plan_count(plan))
        err = SHOAL_ECORRUPT;
    if (!err)
        err = sample_check(recovery, home.store);
    sh_backup_destroy(home.backup);
    sh_replog_close(home.log);
    sh_store_destroy(home.store);
    return err;
}

static enum shoal_err run(void *arg, const struct sh_bench_flags *flags,
                          enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct recovery_bench *recovery = arg;
    const struct sh_log_plan *plan = &recovery->plan;
    struct sh_disk *disk;
    (void)flags;
    sh_bench_pin(placement, 0);
    enum shoal_err err = sh_real_disk_create(plan->folder, plan->is_direct, &disk);
    if (err)
        return err;
    err = measure(recovery, disk, result_out);
    disk->ops->destroy(disk);
    return err;
}

/* --- What the flags ask for -------------------------------------------------------------------- */

static enum shoal_err plan_make(struct sh_bench *bench, struct sh_log_plan *plan)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    if (flags->access && strcmp(flags->access, "raw") == 0)
        return sh_bench_refuse(bench,
                               "--access is direct or cached: a log is read alike from a raw disk");
    sh_log_plan_make(flags, &defaults, plan);
    plan->what = SH_LOG_RANDOM;
    plan->batch = flags->batch ? flags->batch : BATCH;
    plan->seconds = 0;
    plan->has_claims = true;
    return sh_log_plan_check(bench, plan);
}

/* What the sampled chunks, the first ones, have been written last; of each a hash. */
static void expected_make(struct recovery_bench *recovery)
{
    struct sh_log_target target;
    for (unsigned loads = 2; loads-- > 0;) {
        struct sh_log_draws draws;
        sh_log_draws_init(&draws, &recovery->plan, loads);
        while (sh_log_draw(&draws, &target)) {
            uint64_t key = sh_log_key(&recovery->plan, &target);
            if (key < SAMPLE)
                recovery->expected[key] = sh_hash64(sh_log_payload(&draws), 0);
        }
    }
}

static enum shoal_err zone_rows(struct recovery_bench *recovery, const char *vs)
{
    struct sh_log_plan *plan = &recovery->plan;
    const struct sh_bench_system systems[] = {{"shoal", run, recovery},
                                              {vs, sh_disk_base_read_run, plan}};
    struct sh_bench_medians medians[2];
    snprintf(recovery->extra, sizeof recovery->extra,
             "size=%u zones=%u count=%" PRIu64 " segment_bytes=%u batch=%u access=%s", plan->size,
             plan->zones, sh_log_plan_count(plan), plan->segment_bytes, plan->batch,
             plan->is_direct ? "direct" : "cached");
    enum shoal_err err = sh_log_make(plan);
    if (!err)
        expected_make(recovery);
    if (!err)
        err = sh_bench_measure_all(recovery->bench, "zone", SH_PLACE_FREE, recovery->extra, systems,
                                   vs ? 2 : 1, vs, medians);
    if (err || !vs || medians[0].mb_per_s <= 0)
        return err;
    const struct sh_bench_bar bar = {.case_name = "zone",
                                     .placement = SH_PLACE_FREE,
                                     .extra = recovery->extra,
                                     .what = "times what the disk takes to read as much",
                                     .figure = medians[1].mb_per_s / medians[0].mb_per_s,
                                     .limit = DISK_MAX};
    sh_bench_bar_print(recovery->bench, &bar);
    return SHOAL_OK;
}

/* Of a plan that has been made. */
static enum shoal_err zone_measure(struct recovery_bench *recovery, const char *vs)
{
    const char *above = sh_bench_flags_get(recovery->bench)->folder;
    enum shoal_err err =
        sh_bench_folder_make_in(above, "recovery", recovery->folder, sizeof recovery->folder);
    if (err)
        return err;
    recovery->plan.folder = recovery->folder;
    uint8_t *source = sh_log_source_make(&recovery->plan);
    recovery->plan.source = source;
    /* The log, and what the disk alone reads. */
    err = source ? sh_log_space_check(recovery->bench, recovery->folder,
                                      2 * sh_log_plan_file_bytes(&recovery->plan))
                 : SHOAL_ENOMEM;
    if (!err)
        err = zone_rows(recovery, vs);
    free(source);
    sh_bench_folder_remove(recovery->folder);
    return err;
}

/* --- All cases --------------------------------------------------------------------------------- */

/* The baseline of a case, if it is the one that was asked for: NULL if not. */
static const char *vs_of(const struct sh_bench *bench, const char *name)
{
    const char *vs = sh_bench_flags_get(bench)->vs;
    bool is_zone = strcmp(name, "zone") == 0;
    if (!vs || strcmp(name, "under-load") == 0)
        return NULL;
    return strcmp(vs, is_zone ? "disk" : "redis") == 0 ? vs : NULL;
}

enum shoal_err sh_bench_recovery(struct sh_bench *bench)
{
    static struct recovery_bench recovery;
    static struct sh_recovery_plan plans[CASES];
    const char *const *names = sh_bench_recovery_cases;
    enum shoal_err err = SHOAL_OK;
    recovery = (struct recovery_bench){.bench = bench};
    /* What can't be measured is refused before anything is. */
    for (size_t i = 0; names[i] && !err; i++) {
        SH_ASSERT(i < CASES);
        if (sh_bench_case_wanted(bench, names[i]))
            err = i == ZONE ? plan_make(bench, &recovery.plan)
                            : sh_recovery_plan_make(bench, names[i], vs_of(bench, names[i]) != NULL,
                                                    &plans[i]);
    }
    for (size_t i = 0; names[i] && !err; i++) {
        const char *vs = vs_of(bench, names[i]);
        if (!sh_bench_case_wanted(bench, names[i]))
            continue;
        if (sh_bench_flags_get(bench)->vs && !vs)
            sh_bench_note(bench, "--vs disk is for zone, and --vs redis for cluster and cold");
        err = i == ZONE ? zone_measure(&recovery, vs)
                        : sh_recovery_cluster_measure(bench, &plans[i], vs);
    }
    return err;
}
