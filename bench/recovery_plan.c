#include "bench/recovery_plan.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/assert.h"
#include "client/client.h"

#define PEERS 4
#define REPLICAS 2
#define REPLICAS_MAX 4
#define COUNT UINT64_C(10000000)
#define COLD_COUNT UINT64_C(40000000)
#define OTHERS_PART 10 /* of the chunks are what the other peers have beside them */
#define SIZE 64
#define SIZE_MAX_ONE (UINT64_C(16) << 20)
#define THREADS 4
#define READS 95
#define SECONDS 5
#define MINIATURE_COUNT 100000
#define MINIATURE_STORE_BYTES (UINT64_C(128) << 20)
#define STORE_BYTES (UINT64_C(8) << 30)  /* store_bytes_max by default */
#define CHUNK_BYTES (UINT64_C(64) << 20) /* chunk_bytes_max by default */
#define ZONE_BYTES_MIN (UINT64_C(1) << 20)
#define PATIENCE_NS UINT64_C(600000000000)
#define ZONES_NS UINT64_C(120000000000)
#define SAMPLES UINT64_C(65536)
/* Memory and disk that must be free, as much as runs took (docs/benchmarks.md): for each chunk beside its bytes, and for each peer. */
#define MEMORY_EACH 64
#define MEMORY_PEER (UINT64_C(256) << 20)
#define DISK_EACH 24
#define DISK_PEER (UINT64_C(128) << 20)
#define REDIS_MEMORY_EACH 128
#define REDIS_DISK_EACH 64

/* --- What the flags ask for -------------------------------------------------------------------- */

static enum sh_recovery_case case_of(const char *name)
{
    if (strcmp(name, "cluster") == 0)
        return SH_RECOVERY_CLUSTER;
    SH_ASSERT(strcmp(name, "cold") == 0 || strcmp(name, "under-load") == 0);
    return strcmp(name, "cold") == 0 ? SH_RECOVERY_COLD : SH_RECOVERY_UNDER_LOAD;
}

static void setting_add(struct sh_recovery_plan *plan, const char *name, const char *value)
{
    SH_ASSERT(plan->settings_count < sizeof plan->settings / sizeof *plan->settings);
    plan->settings[plan->settings_count++] = (struct sh_server_setting){name, value};
}

/* All options are as they are by default, but for replicas, room for what a peer may get, and --zone-bytes, which a chunk must not
 * exceed. In miniature stores and logs are small as well: a new peer writes its whole primary log and looks at each slot, as many as its store
 * may need, before it sends its first heartbeat. On a busy disk that takes longer than the silence after which it is declared failed. */
static void settings_make(struct sh_recovery_plan *plan, uint64_t zone_bytes)
{
    uint64_t store_bytes = (plan->count + plan->others) * (plan->size + MEMORY_EACH);
    bool is_miniature = plan->count < MINIATURE_COUNT;
    snprintf(plan->replicas_text, sizeof plan->replicas_text, "%u", plan->replicas);
    setting_add(plan, "replicas", plan->replicas_text);
    setting_add(plan, "replicas_at", "peers");
    if (is_miniature) {
        store_bytes += MINIATURE_STORE_BYTES;
        setting_add(plan, "log_primary_bytes", "1MiB");
    }
    if (is_miniature || store_bytes > STORE_BYTES) {
        snprintf(plan->store_bytes, sizeof plan->store_bytes, "%" PRIu64, store_bytes);
        setting_add(plan, "store_bytes_max", plan->store_bytes);
    }
    if (!zone_bytes)
        return;
    snprintf(plan->zone_bytes, sizeof plan->zone_bytes, "%" PRIu64, zone_bytes);
    setting_add(plan, "zone_bytes", plan->zone_bytes);
    if (zone_bytes < CHUNK_BYTES)
        setting_add(plan, "chunk_bytes_max", plan->zone_bytes);
}

/* Free memory as the kernel estimates it; 0: it does not say. */
static uint64_t memory_free(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *info = fopen("/proc/meminfo", "re");
    while (info && !kib && fgets(line, sizeof line, info))
        (void)sscanf(line, "MemAvailable: %llu kB", &kib);
    if (info)
        fclose(info);
    return (uint64_t)kib << 10;
}

static uint64_t disk_free(const char *folder)
{
    struct statvfs facts;
    const char *usual = getenv("TMPDIR");
    if (!folder)
        folder = usual && *usual ? usual : "/tmp";
    return statvfs(folder, &facts) == 0 ? (uint64_t)facts.f_bavail * facts.f_frsize : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static enum shoal_err room_check(struct sh_bench *bench, const struct sh_recovery_plan *plan,
                                 bool with_redis)
{
    char text[256];
    uint64_t count = plan->count + plan->others;
    uint64_t memory = count * (plan->size + MEMORY_EACH) + plan->peers * MEMORY_PEER;
    /* Each chunk that comes to another peer has a replica more for a while. */
    uint64_t disk =
        (plan->replicas + 1) * count * (plan->size + DISK_EACH) + plan->peers * DISK_PEER;
    if (with_redis) {
        memory = larger(memory, plan->count * (plan->size + REDIS_MEMORY_EACH));
        disk = larger(disk, 2 * plan->count * (plan->size + REDIS_DISK_EACH));
    }
    if (memory_free() && memory_free() < memory) {
        snprintf(text, sizeof text,
                 "%s takes about %" PRIu64 " MiB of memory, and the machine has %" PRIu64
                 " free: give a smaller --count",
                 plan->name, memory >> 20, memory_free() >> 20);
        return sh_bench_refuse(bench, text);
    }
    if (disk_free(plan->above) < disk) {
        snprintf(text, sizeof text,
                 "%s takes up to %" PRIu64 " MiB of disk, and its folder has %" PRIu64
                 " free: give a smaller --count, or another --folder",
                 plan->name, disk >> 20, disk_free(plan->above) >> 20);
        return sh_bench_refuse(bench, text);
    }
    return SHOAL_OK;
}

static enum shoal_err flags_check(struct sh_bench *bench, const struct sh_recovery_plan *plan)
{
    uint64_t zone_bytes = sh_bench_flags_get(bench)->zone_bytes;
    if (plan->peers > SH_BENCH_PEERS_MAX || plan->peers <= plan->replicas)
        return sh_bench_refuse(bench, "--nodes is at most 32, and more than --replicas, as those "
                                      "are at other peers");
    if (plan->count < 2 * plan->peers)
        return sh_bench_refuse(bench, "--count is at least two chunks for each of --nodes");
    if (zone_bytes && (zone_bytes < ZONE_BYTES_MIN || plan->size > zone_bytes / 4))
        return sh_bench_refuse(bench, "--zone-bytes is at least 1 MiB, and four times --size");
    return SHOAL_OK;
}

enum shoal_err sh_recovery_plan_make(struct sh_bench *bench, const char *name, bool with_redis,
                                     struct sh_recovery_plan *plan)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    if (flags->size > SIZE_MAX_ONE)
        return sh_bench_refuse(bench, "--size is at most 16 MiB in a cluster");
    *plan = (struct sh_recovery_plan){.what = case_of(name),
                                      .name = name,
                                      .above = flags->folder,
                                      .peers = flags->nodes ? flags->nodes : PEERS,
                                      .replicas = flags->replicas ? flags->replicas : REPLICAS,
                                      .threads = flags->threads ? flags->threads : THREADS,
                                      .reads = flags->reads ? flags->reads : READS,
                                      .seconds = flags->seconds > 0 ? flags->seconds : SECONDS,
                                      .size = flags->size ? (uint32_t)flags->size : SIZE,
                                      .seed = flags->seed};
    plan->count = flags->count ? flags->count : plan->what == SH_RECOVERY_COLD ? COLD_COUNT : COUNT;
    enum shoal_err err = flags_check(bench, plan);
    if (err)
        return err;
    if (plan->what == SH_RECOVERY_UNDER_LOAD)
        plan->others = larger(plan->count / OTHERS_PART, plan->peers - 1);
    settings_make(plan, flags->zone_bytes);
    int size =
        snprintf(plan->extra, sizeof plan->extra, "size=%u count=%" PRIu64 " nodes=%u replicas=%u",
                 plan->size, plan->count, plan->peers, plan->replicas);
    if (flags->zone_bytes)
        size += snprintf(plan->extra + size, sizeof plan->extra - (size_t)size,
                         " zone_bytes=%" PRIu64, flags->zone_bytes);
    if (plan->what == SH_RECOVERY_UNDER_LOAD)
        snprintf(plan->extra + size, sizeof plan->extra - (size_t)size,
                 " others=%" PRIu64 " threads=%u reads=%u", plan->others, plan->threads,
                 plan->reads);
    return room_check(bench, plan, with_redis);
}

/* --- The cluster ------------------------------------------------------------------------------- */

/* Waits until zones are there, and all of them have all backups. */
static enum shoal_err zones_await(shoal *store)
{
    static struct sh_report report;
    uint64_t deadline_ns = sh_bench_now_ns() + ZONES_NS, zones = 0, lacking = 0;
    do {
        if (sh_bench_now_ns() > deadline_ns)
            return SHOAL_ETIMEOUT;
        (void)poll(NULL, 0, 5);
        enum shoal_err err = sh_client_report(store, (shoal_nid){1}, &report);
        zones = lacking = 0;
        for (unsigned i = 0; !err && i < report.shard_count; i++) {
            zones += report.shards[i].zones;
            lacking += report.shards[i].zones_short + report.shards[i].zones_lost;
        }
    } while (!zones || lacking);
    return SHOAL_OK;
}

/* Peers join one after the other, so that they have rising IDs. */
static enum shoal_err nids_find(struct sh_recovery_rig *rig)
{
    size_t count = 0;
    enum shoal_err err = sh_client_peers(rig->store, rig->nids, SH_BENCH_PEERS_MAX, &count);
    if (!err && count != rig->plan->peers)
        err = SHOAL_ENONODE;
    return err;
}

enum shoal_err sh_recovery_rig_open(struct sh_recovery_rig *rig)
{
    SH_ASSERT(!rig->store);
    return sh_bench_cluster_open(&rig->cluster, PATIENCE_NS, &rig->store);
}

void sh_recovery_rig_close(struct sh_recovery_rig *rig)
{
    shoal_close(rig->store);
    rig->store = NULL;
}

static enum shoal_err chunks_make(struct sh_recovery_rig *rig)
{
    const struct sh_recovery_plan *plan = rig->plan;
    rig->filled = (struct sh_filled){.count = plan->count, .seed = plan->seed};
    rig->others = (struct sh_filled){.count = plan->others, .seed = plan->seed + 1};
    sh_sizes_init(&rig->filled.sizes, NULL, plan->size);
    sh_sizes_init(&rig->others.sizes, NULL, plan->size);
    enum shoal_err err = sh_filled_make(&rig->filled, rig->store, rig->nids,
                                        plan->what == SH_RECOVERY_COLD ? plan->peers : 1);
    if (!err && plan->others)
        err = sh_filled_make(&rig->others, rig->store, rig->nids + 1, plan->peers - 1);
    return err;
}

/* Reads so many chunks of each kind, or all, and counts them all. */
static enum shoal_err chunks_check(const struct sh_recovery_rig *rig, uint64_t samples)
{
    enum shoal_err err = sh_filled_check(&rig->filled, rig->store, samples);
    if (!err && rig->others.made)
        err = sh_filled_check(&rig->others, rig->store, samples);
    return err ? err : sh_filled_count_check(rig->store, rig->filled.made + rig->others.made);
}

enum shoal_err sh_recovery_rig_begin(struct sh_recovery_rig *rig,
                                     const struct sh_recovery_plan *plan)
{
    const struct sh_bench_cluster_shape shape = {.name = "recovery",
                                                 .above = plan->above,
                                                 .superpeers = 1,
                                                 .peers = plan->peers,
                                                 .is_durable = true,
                                                 .settings = plan->settings,
                                                 .settings_count = plan->settings_count};
    *rig = (struct sh_recovery_rig){.plan = plan};
    enum shoal_err err = sh_bench_cluster_start(&rig->cluster, &shape);
    if (!err)
        err = sh_recovery_rig_open(rig);
    if (!err)
        err = sh_bench_cluster_await(&rig->cluster, rig->store);
    if (!err)
        err = nids_find(rig);
    if (!err)
        err = chunks_make(rig);
    if (!err)
        err = zones_await(rig->store);
    if (!err)
        err = chunks_check(rig, SAMPLES);
    return err;
}

enum shoal_err sh_recovery_rig_check(const struct sh_recovery_rig *rig)
{
    return chunks_check(rig, UINT64_MAX);
}

void sh_recovery_rig_end(struct sh_recovery_rig *rig)
{
    if (rig->store)
        sh_recovery_rig_close(rig);
    sh_bench_cluster_stop(&rig->cluster);
    sh_filled_end(&rig->filled);
    sh_filled_end(&rig->others);
}
