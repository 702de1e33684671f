#include "bench/log_run.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/resident.h"
#include "bench/slow_disk.h"
#include "env/env.h"
#include "log/replog.h"

#define FILE_NAME "log"
#define PATH_BYTES 512
#define SYNC_EVERY_MAX 4096 /* --sync-every */
#define STEP_EVERY 64
#define LINGER_NS UINT64_C(100000000)
#define SAMPLE_NS UINT64_C(20000000)
#define STUCK_NS UINT64_C(60000000000)
#define BATCH_BYTES (128u << 10)
#define BLOCK_BYTES 4096u
#define PRIMARY_BYTES_MAX (UINT64_C(256) << 20)
/* A table of versions has a slot for so many chunks of its zone, within bounds. */
#define VERSIONS_EACH 16
#define VERSIONS_MIN 1024
#define VERSIONS_MAX 65536
#define REST_MAX 16 /* chunks outside of a zone's range: none */

struct run {
    struct sh_log_plan *plan;
    struct sh_disk *disk;
    struct sh_replog *log;
    struct sh_replog_zone **zones;
    uint64_t start_ns, now_ns;
    uint64_t idle_ns;   /* processor time of steps that did nothing */
    uint64_t waited_ns; /* when the wait that goes on began */
    uint32_t slots_most;
    unsigned round[SYNC_EVERY_MAX],
        round_count;             /* zones of the writes since the last --sync-every */
    uint64_t slots_sum, samples; /* of slots in use */
    uint64_t resident_before, resident_most, sampled_ns;
    struct sh_replog_status before; /* the measured part */
    uint64_t begin_ns, cpu_ns;
};

static uint64_t primary_bytes(const struct sh_log_plan *plan)
{
    if (!plan->has_primary)
        return 0;
    return plan->buffer_bytes < PRIMARY_BYTES_MAX ? plan->buffer_bytes : PRIMARY_BYTES_MAX;
}

static uint64_t slots_of(const struct sh_log_plan *plan)
{
    return (uint64_t)plan->zones * plan->slots_each + SH_REPLOG_SPARE_SLOTS;
}

uint64_t sh_log_plan_file_bytes(const struct sh_log_plan *plan)
{
    return BLOCK_BYTES + primary_bytes(plan) + slots_of(plan) * plan->segment_bytes;
}

/* --- Steps ------------------------------------------------------------------------------------- */

/* The log tells these only while it is in use. */
static void sample(struct run *run)
{
    struct sh_replog_status status;
    sh_replog_status_get(run->log, &status);
    uint32_t used = status.slots - status.slots_free;
    run->slots_most = used > run->slots_most ? used : run->slots_most;
    if (run->now_ns < run->sampled_ns + SAMPLE_NS)
        return;
    run->sampled_ns = run->now_ns;
    run->slots_sum += used;
    run->samples++;
    uint64_t resident = sh_resident_bytes();
    run->resident_most = resident > run->resident_most ? resident : run->resident_most;
}

static unsigned step(struct run *run)
{
    run->now_ns = sh_bench_now_ns();
    uint32_t seconds = 1 + (uint32_t)((run->now_ns - run->start_ns) / UINT64_C(1000000000));
    unsigned work = sh_replog_step(run->log, run->now_ns, seconds);
    sample(run);
    return work;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    SH_ASSERT(!failed);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* A step of a thread that has nothing else to do. ETIMEOUT: it has waited for too long. */
static enum shoal_err wait_step(struct run *run)
{
    uint64_t begin_ns = thread_cpu_ns();
    if (!step(run))
        run->idle_ns += thread_cpu_ns() - begin_ns;
    if (run->now_ns < run->waited_ns + STUCK_NS)
        return SHOAL_OK;
    struct sh_replog_status status;
    sh_replog_status_get(run->log, &status);
    SH_ERROR("bench", "the log is stuck: no write has gone on for a minute",
             SH_U64("buffer_used", status.buffer_used), SH_U64("slots_free", status.slots_free),
             SH_U64("slots_cleaned", status.slots_cleaned));
    return SHOAL_ETIMEOUT;
}

/* --- Writes ------------------------------------------------------------------------------------ */

static enum shoal_err append(struct run *run, unsigned number, const struct sh_replog_write *write)
{
    struct sh_replog_zone *zone = run->zones[number];
    enum shoal_err err = sh_replog_append(zone, write);
    if (err == SHOAL_EAGAIN)
        run->waited_ns = sh_bench_now_ns();
    while (err == SHOAL_EAGAIN) {
        err = wait_step(run);
        if (!err)
            err = sh_replog_append(zone, write);
    }
    if (err == SHOAL_ENOSPC)
        SH_ERROR("bench", "the log has no slot left for a zone", SH_U64("zone", number),
                 SH_U64("slots_each", run->plan->slots_each), SH_U64("in_use", run->slots_most));
    return err;
}

static enum shoal_err image_append(struct run *run, const struct sh_log_target *target,
                                   struct sh_bytes payload)
{
    const struct sh_replog_write write = {.local_id = sh_log_key(run->plan, target) + 1,
                                          .creator = SH_LOG_OWNER,
                                          .pieces = 1,
                                          .payload = payload};
    return append(run, target->zone, &write);
}

/* A zone claims all of its chunks, as a node's zones do (docs/backup.md). */
static enum shoal_err claim_append(struct run *run, unsigned number)
{
    const struct sh_log_target first = {.zone = number};
    uint64_t key = (uint64_t)SH_LOG_OWNER << 48 | (sh_log_key(run->plan, &first) + 1);
    uint8_t range[16];
    sh_store64(range, key);
    sh_store64(range + 8, key + run->plan->chunks - 1);
    const struct sh_replog_write write = {
        .local_id = 1, .pieces = 1, .payload = sh_bytes_make(range, sizeof range)};
    return append(run, number, &write);
}

/* Waits until the zone's writes are durable, which has been asked for. */
static enum shoal_err durable_await(struct run *run, const struct sh_replog_zone *zone)
{
    enum shoal_err err = SHOAL_OK;
    run->waited_ns = sh_bench_now_ns();
    while (!err && sh_replog_durable(zone) < sh_replog_next(zone)) {
        err = wait_step(run);
        if (!err)
            err = sh_replog_trouble(run->log);
    }
    return err;
}

/* After --sync-every writes nothing goes on before these are durable, as if owners had so many outstanding, and waited for
 * them. Not while a load goes on. */
static enum shoal_err round_end(struct run *run, const struct sh_log_target *target)
{
    enum shoal_err err = SHOAL_OK;
    run->round[run->round_count++] = target->zone;
    if (run->round_count < run->plan->sync_every)
        return SHOAL_OK;
    for (unsigned i = 0; i < run->round_count; i++)
        sh_replog_sync(run->zones[run->round[i]]);
    for (unsigned i = 0; i < run->round_count && !err; i++)
        err = durable_await(run, run->zones[run->round[i]]);
    run->round_count = 0;
    return err;
}

/* Appends what is drawn, until the deadline; counts it. */
static enum shoal_err drawn_append(struct run *run, struct sh_log_draws *draws,
                                   uint64_t deadline_ns)
{
    struct sh_log_target target;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_log_draw(draws, &target)) {
        err = image_append(run, &target, sh_log_payload(draws));
        if (!err && run->plan->sync_every && !draws->loads)
            err = round_end(run, &target);
        if (draws->drawn % STEP_EVERY)
            continue;
        (void)step(run);
        if (run->now_ns >= deadline_ns)
            break;
    }
    return err;
}

/* Waits until all that was appended is durable. */
static enum shoal_err all_sync(struct run *run)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < run->plan->zones; i++)
        sh_replog_sync(run->zones[i]);
    for (unsigned i = 0; i < run->plan->zones && !err; i++)
        err = durable_await(run, run->zones[i]);
    return err;
}

static enum shoal_err load(struct run *run)
{
    struct sh_log_draws draws;
    enum shoal_err err = SHOAL_OK;
    sh_log_draws_init(&draws, run->plan, true);
    for (unsigned i = 0; !err && run->plan->has_claims && i < run->plan->zones; i++)
        err = claim_append(run, i);
    if (!err)
        err = drawn_append(run, &draws, UINT64_MAX);
    return err ? err : all_sync(run);
}

/* --- The measured part ------------------------------------------------------------------------- */

/* Where writes are to chunks drawn uniformly, and `live` of the bytes in use are current: of slots that are taken at random, as much;
 * of the oldest ones p, where live = (1 - p) / -ln p, by halving. 1 / (1 - p) bytes are written for one. The other selections, too, take the oldest ones
 * then: all chunks are alike, so what a slot's age says is all that there is to know of it. */
double sh_log_theory(enum sh_replog_selection selection, double live)
{
    double low = 0, high = 1;
    if (live <= 0 || live >= 1)
        return 0;
    if (selection == SH_REPLOG_RANDOM)
        return 1 / (1 - live);
    for (unsigned i = 0; i < 60; i++) {
        double current = (low + high) / 2;
        if ((1 - current) / -log(current) < live)
            low = current;
        else
            high = current;
    }
    return 1 / (1 - low);
}

static void figures_take(const struct run *run, struct sh_bench_figures *figures)
{
    const struct sh_log_plan *plan = run->plan;
    const struct sh_replog_status *before = &run->before;
    struct sh_replog_status after;
    sh_replog_status_get(run->log, &after);
    double payload = (double)(after.appended_bytes - before->appended_bytes);
    double writes = (double)(after.slot_writes - before->slot_writes);
    double slots = (double)(after.slot_bytes - before->slot_bytes);
    double primary = (double)(after.primary_bytes - before->primary_bytes);
    double survivors = (double)(after.survivor_bytes - before->survivor_bytes);
    double versions = (double)(after.version_bytes - before->version_bytes);
    double cleaning = survivors + versions;
    double memory = (double)(run->resident_most - run->resident_before);
    double in_use = (double)run->slots_most;
    double entries = slots - cleaning, written = (double)(after.appended - before->appended);
    double mean = run->samples ? (double)run->slots_sum / (double)run->samples : 0;
    double live = written > 0 ? entries / written * (double)sh_log_plan_count(plan) : 0;
    double room = mean * plan->segment_bytes;
    sh_bench_figure_add(figures, "bytes_per_write", writes > 0 ? slots / writes : 0);
    sh_bench_figure_add(figures, "fill_percent", 100 * in_use / plan->zones / plan->slots_each);
    sh_bench_figure_add(figures, "fill_mean_percent", 100 * mean / plan->zones / plan->slots_each);
    sh_bench_figure_add(figures, "memory_bytes", memory);
    sh_bench_figure_add(figures, "log_per_memory",
                        memory > 0 ? in_use * plan->segment_bytes / memory : 0);
    sh_bench_figure_add(figures, "amplification_all", (primary + slots) / payload);
    sh_bench_figure_add(figures, "amplification_primary", primary / payload);
    sh_bench_figure_add(figures, "amplification_slots", (slots - cleaning) / payload);
    sh_bench_figure_add(figures, "amplification_survivors", survivors / payload);
    sh_bench_figure_add(figures, "amplification_versions", versions / payload);
    double segments = entries > 0 ? slots / entries : 0;
    double theory = room > 0 ? sh_log_theory(plan->selection, live / room) : 0;
    sh_bench_figure_add(figures, "amplification_segments", segments);
    sh_bench_figure_add(figures, "theory", theory);
    sh_bench_figure_add(figures, "of_theory", theory > 0 ? segments / theory : 0);
    sh_bench_figure_add(figures, "slots_cleaned",
                        (double)(after.slots_cleaned - before->slots_cleaned));
    run->plan->run_bytes = (uint64_t)(primary + slots);
}

static enum shoal_err measure(struct run *run, struct sh_bench_result *result_out)
{
    struct sh_log_plan *plan = run->plan;
    struct sh_log_draws draws;
    sh_log_draws_init(&draws, plan, false);
    sh_replog_status_get(run->log, &run->before);
    run->slots_most = 0;
    run->slots_sum = run->samples = 0;
    run->idle_ns = 0;
    uint64_t begin_ns = sh_bench_now_ns(), cpu_ns = sh_bench_cpu_ns();
    enum shoal_err err = drawn_append(run, &draws, sh_log_plan_deadline_ns(plan, begin_ns));
    if (!err)
        err = all_sync(run);
    if (err)
        return err;
    result_out->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns - run->idle_ns;
    result_out->ops = plan->run_ops = draws.drawn;
    result_out->bytes = draws.drawn * plan->size;
    result_out->digest = draws.digest;
    run->sampled_ns = 0;
    sample(run);
    figures_take(run, &result_out->figures);
    return SHOAL_OK;
}

/* --- A log ------------------------------------------------------------------------------------- */

static size_t versions_max(const struct sh_log_plan *plan)
{
    size_t slots = VERSIONS_MIN;
    while (slots < VERSIONS_MAX && slots * VERSIONS_EACH < plan->chunks)
        slots *= 2;
    return slots;
}

struct sh_replog_config sh_log_plan_config(const struct sh_log_plan *plan, struct sh_disk *disk)
{
    uint32_t segment = plan->segment_bytes;
    SH_ASSERT(slots_of(plan) <= UINT32_MAX); /* they would not fit on the disk */
    return (struct sh_replog_config){
        .disk = disk,
        .name = FILE_NAME,
        .random = sh_real_random(),
        .cluster = 1,
        .node = SH_LOG_OWNER + 1,
        .slot_bytes = segment,
        .slots = (uint32_t)slots_of(plan),
        .primary_blocks = (uint32_t)(primary_bytes(plan) / BLOCK_BYTES),
        .buffer_bytes = plan->buffer_bytes,
        .batch_bytes = segment / 4 < BATCH_BYTES ? segment / 4 : BATCH_BYTES,
        .linger_ns = LINGER_NS,
        .versions_max = versions_max(plan),
        .selection = plan->selection};
}

static enum shoal_err log_open(struct run *run)
{
    const struct sh_log_plan *plan = run->plan;
    const struct sh_replog_config config = sh_log_plan_config(plan, run->disk);
    run->start_ns = run->now_ns = sh_bench_now_ns();
    enum shoal_err err = sh_replog_open(&config, run->now_ns, 1, &run->log);
    if (err == SHOAL_EINVAL)
        SH_ERROR("bench", "the log takes no buffer of so few bytes: give more --buffer-bytes",
                 SH_U64("buffer_bytes", plan->buffer_bytes));
    return err;
}

static enum shoal_err zones_add(struct run *run)
{
    const struct sh_log_plan *plan = run->plan;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < plan->zones && !err; i++) {
        const struct sh_log_target first = {.zone = i};
        const struct sh_replog_zone_config config = {.id = (uint64_t)SH_LOG_OWNER << 48 | (i + 1),
                                                     .owner = SH_LOG_OWNER,
                                                     .incarnation = 1,
                                                     .bytes_max = plan->log_bytes,
                                                     .range_first = (uint64_t)SH_LOG_OWNER << 48 |
                                                                    (sh_log_key(plan, &first) + 1),
                                                     .range_count = plan->chunks,
                                                     .rest_max = REST_MAX};
        err = sh_replog_zone_add(run->log, &config, &run->zones[i]);
    }
    return err;
}

static enum shoal_err run_in(struct run *run, struct sh_bench_result *result_out)
{
    (void)malloc_trim(0); /* what the last run had is not to be had for nothing by this one */
    run->resident_before = run->resident_most = sh_resident_bytes();
    enum shoal_err err = log_open(run);
    if (!err)
        err = zones_add(run);
    if (!err && run->plan->what != SH_LOG_LOAD)
        err = load(run);
    if (!err)
        err = measure(run, result_out);
    sh_replog_close(run->log);
    return err;
}

/* Makes the file of a raw disk, with zeros of which each has its place. */
static enum shoal_err raw_make(const struct sh_log_plan *plan, char *path, size_t room)
{
    int size = snprintf(path, room, "%s/%s", plan->folder, FILE_NAME);
    SH_ASSERT(size > 0 && (size_t)size < room);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int failed = file < 0 ? errno : posix_fallocate(file, 0, (off_t)sh_log_plan_file_bytes(plan));
    if (file >= 0)
        close(file);
    if (!failed)
        return SHOAL_OK;
    SH_ERROR("bench", "no file for a raw disk", SH_TEXT("path", path),
             SH_TEXT("cause", strerror(failed)));
    return SHOAL_EIO;
}

/* The disk that the plan wants, and a slow one over it. */
static enum shoal_err disk_make(const struct sh_log_plan *plan, struct sh_disk **disk_out)
{
    char path[PATH_BYTES];
    struct sh_disk *disk, *slow;
    enum shoal_err err = plan->is_raw ? raw_make(plan, path, sizeof path) : SHOAL_OK;
    if (!err)
        err = plan->is_raw ? sh_raw_disk_create(path, FILE_NAME, true, &disk)
                           : sh_real_disk_create(plan->folder, plan->is_direct, &disk);
    if (err || !plan->disk_writes) {
        if (!err)
            *disk_out = disk;
        return err;
    }
    err = sh_slow_disk_create(disk, plan->disk_writes, &slow);
    if (err)
        disk->ops->destroy(disk);
    else
        *disk_out = slow;
    return err;
}

static void file_remove(const struct sh_log_plan *plan)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", plan->folder, FILE_NAME);
    (void)unlink(path); /* the folder goes anyway */
}

/* In the plan's folder, on the disk that it wants. */
static enum shoal_err run_there(struct run *run, struct sh_bench_result *result_out)
{
    run->zones = calloc(run->plan->zones, sizeof *run->zones);
    if (!run->zones)
        return SHOAL_ENOMEM;
    enum shoal_err err = disk_make(run->plan, &run->disk);
    if (!err) {
        err = run_in(run, result_out);
        run->disk->ops->destroy(run->disk);
    }
    free(run->zones);
    return err;
}

enum shoal_err sh_log_run(void *arg, const struct sh_bench_flags *flags,
                          enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct run run = {.plan = arg};
    (void)flags;
    sh_bench_pin(placement, 0);
    enum shoal_err err = run_there(&run, result_out);
    file_remove(run.plan);
    return err;
}

enum shoal_err sh_log_make(struct sh_log_plan *plan)
{
    struct run run = {.plan = plan};
    struct sh_bench_result unseen = {.seconds = 0};
    return run_there(&run, &unseen);
}
