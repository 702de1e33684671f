#include "bench/recovery_cluster.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/thread.h"
#include "bench/recovery_load.h"
#include "bench/redis_restart_base.h"
#include "env/env.h"

/* Bars, for at least as many chunks of 64 bytes. */
#define BAR_SIZE 64
#define CLUSTER_COUNT UINT64_C(10000000)
#define CLUSTER_S_MAX 2.5
#define CALL_S_MAX 3.0
#define COLD_COUNT UINT64_C(40000000)
#define COLD_RATE_MIN 5e6

struct recovery {
    const struct sh_recovery_plan *plan;
    struct sh_recovery_rig rig;
    struct sh_probes probes;
    struct sh_recovery_load load; /* of the last run */
    double longest_s; /* of all runs: until all was back, or under load the longest call */
};

/* --- Watching ---------------------------------------------------------------------------------- */

/* A thread that waits until it is told that a node has failed, as any program can. */
struct watcher {
    const struct sh_bench_cluster *cluster;
    shoal_nid nid;
    pthread_t thread;
    atomic_bool has_begun, is_over;
    _Atomic uint64_t heard_ns; /* 0: not yet */
    enum shoal_err err;
};

static bool on_event(void *arg, const struct shoal_event *event)
{
    struct watcher *watcher = arg;
    /* relaxed, all: each is looked at again, or read once the thread has ended */
    if (!event)
        atomic_store_explicit(&watcher->has_begun, true, memory_order_relaxed);
    bool is_heard =
        event && event->kind == SHOAL_EVENT_FAILED && event->node.nid.v == watcher->nid.v;
    if (is_heard)
        atomic_store_explicit(&watcher->heard_ns, sh_bench_now_ns(), memory_order_relaxed);
    return !is_heard && !atomic_load_explicit(&watcher->is_over, memory_order_relaxed);
}

static void *watcher_main(void *arg)
{
    struct watcher *watcher = arg;
    shoal *store;
    watcher->err = sh_bench_cluster_open(watcher->cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (!watcher->err) {
        watcher->err = shoal_watch(store, on_event, watcher);
        shoal_close(store);
    }
    atomic_store_explicit(&watcher->has_begun, true, memory_order_relaxed);
    return NULL;
}

/* Waits until the thread knows of all nodes. */
static enum shoal_err watcher_start(struct watcher *watcher)
{
    if (sh_thread_start(&watcher->thread, watcher_main, watcher, "bench-watch"))
        return SHOAL_EINTERNAL;
    while (!atomic_load_explicit(&watcher->has_begun, memory_order_relaxed))
        (void)poll(NULL, 0, 1);
    return SHOAL_OK;
}

static enum shoal_err watcher_end(struct watcher *watcher)
{
    atomic_store_explicit(&watcher->is_over, true, memory_order_relaxed);
    (void)pthread_join(watcher->thread, NULL);
    return watcher->err;
}

/* --- Figures ----------------------------------------------------------------------------------- */

/* When processes were killed or started, by both clocks, and what processor time those that are measured had used by then. */
struct begun {
    uint64_t now_ns, wall_ns, cpu_ns;
};

/* Of the superpeer, and all peers but the first `without`. */
static uint64_t cpu_of(const struct sh_bench_cluster *cluster, unsigned without)
{
    uint64_t used_ns = sh_child_cpu_ns(&cluster->superpeers[0]);
    for (unsigned i = without; i < cluster->shape.peers; i++)
        used_ns += sh_child_cpu_ns(&cluster->peers[i]);
    return used_ns;
}

static struct begun begun_now(void)
{
    struct sh_clock clock = sh_real_clock();
    return (struct begun){.now_ns = sh_bench_now_ns(), .wall_ns = clock.wall_ns(clock.arg)};
}

static struct begun first_peer_kill(const struct sh_bench_cluster *cluster)
{
    uint64_t cpu_ns = cpu_of(cluster, 1);
    struct begun begun = begun_now();
    begun.cpu_ns = cpu_ns;
    (void)kill(cluster->peers[0].pid, SIGKILL);
    return begun;
}

/* From then on; 0 where it was before, or never. */
static double ms_since(uint64_t begin_ns, uint64_t at_ns)
{
    return at_ns > begin_ns ? (double)(at_ns - begin_ns) / 1e6 : 0;
}

/* Adds what the nodes have logged, and what the client was told. Returns the seconds until all was back. */
static double steps_add(const struct recovery *recovery, const struct begun *begun,
                        struct sh_bench_figures *figures)
{
    const struct sh_bench_cluster *cluster = &recovery->rig.cluster;
    const struct sh_probes *probes = &recovery->probes;
    uint64_t wall_ns = begun->wall_ns;
    struct sh_bench_said failed = sh_bench_cluster_said(cluster, true, "node failed", wall_ns);
    struct sh_bench_said owners =
        sh_bench_cluster_said(cluster, true, "a zone gets another owner", wall_ns);
    struct sh_bench_said back = sh_bench_cluster_said(cluster, false, "a zone is back", wall_ns);
    double served_ms = ms_since(wall_ns, back.last_ns);
    double all_ms = ms_since(begun->now_ns, probes->last_ns);
    sh_bench_figure_add(figures, "detect_ms", ms_since(wall_ns, failed.first_ns));
    sh_bench_figure_add(figures, "owners_ms", ms_since(wall_ns, owners.last_ns));
    sh_bench_figure_add(figures, "served_ms", served_ms);
    sh_bench_figure_add(figures, "first_ms", ms_since(begun->now_ns, probes->first_ns));
    sh_bench_figure_add(figures, "all_ms", all_ms);
    sh_bench_figure_add(figures, "zone_longest_ms", (double)back.longest_ns / 1e6);
    sh_bench_figure_add(figures, "zones", back.count);
    return (all_ms > served_ms ? all_ms : served_ms) / 1e3;
}

/* Reads all, and says how long that took. */
static enum shoal_err all_check(const struct recovery *recovery, struct sh_bench_figures *figures)
{
    uint64_t begin_ns = sh_bench_now_ns();
    enum shoal_err err = sh_recovery_rig_check(&recovery->rig);
    sh_bench_figure_add(figures, "check_s", (double)(sh_bench_now_ns() - begin_ns) / 1e9);
    return err;
}

static void longest_keep(struct recovery *recovery, double seconds)
{
    recovery->longest_s = seconds > recovery->longest_s ? seconds : recovery->longest_s;
}

/* --- Cases ------------------------------------------------------------------------------------- */

/* Waits until the killed peer's chunks are back, and the watcher has been told. */
static enum shoal_err back_await(struct recovery *recovery, struct watcher *watcher)
{
    sh_probes_begin(&recovery->probes, &recovery->rig.filled, recovery->rig.store);
    enum shoal_err err = sh_probes_wait(&recovery->probes);
    enum shoal_err heard = watcher_end(watcher);
    if (!err && !heard && !watcher->heard_ns)
        heard = SHOAL_EFAILED;
    return err ? err : heard;
}

static enum shoal_err cluster_run(struct recovery *recovery, struct sh_bench_result *result)
{
    struct sh_recovery_rig *rig = &recovery->rig;
    struct watcher watcher = {.cluster = &rig->cluster, .nid = rig->nids[0]};
    enum shoal_err err = watcher_start(&watcher);
    if (err)
        return err;
    struct begun begun = first_peer_kill(&rig->cluster);
    err = back_await(recovery, &watcher);
    result->cpu_ns = cpu_of(&rig->cluster, 1) - begun.cpu_ns;
    if (err)
        return err;
    sh_bench_figure_add(&result->figures, "declared_ms", ms_since(begun.now_ns, watcher.heard_ns));
    result->seconds = steps_add(recovery, &begun, &result->figures);
    result->ops = recovery->plan->count;
    result->bytes = rig->filled.payload_bytes;
    longest_keep(recovery, result->seconds);
    return all_check(recovery, &result->figures);
}

static void seconds_pass(double seconds)
{
    uint64_t until_ns = sh_bench_now_ns() + (uint64_t)(seconds * 1e9);
    while (sh_bench_now_ns() < until_ns)
        (void)poll(NULL, 0, 1);
}

static void load_add(struct recovery *recovery, struct sh_bench_result *result)
{
    const struct sh_recovery_load *load = &recovery->load;
    struct sh_bench_figures *figures = &result->figures;
    static const char *const keys[] = {"before_per_s", "during_per_s", "after_per_s"};
    static const char *const others_keys[] = {"others_before_per_s", "others_during_per_s", NULL};
    for (unsigned i = 0; i < SH_RECOVERY_PHASES; i++) {
        result->ops += load->calls[i];
        result->seconds += load->seconds[i];
        sh_bench_figure_add(figures, keys[i], sh_recovery_load_rate(load, i, false));
        if (others_keys[i])
            sh_bench_figure_add(figures, others_keys[i], sh_recovery_load_rate(load, i, true));
    }
    result->latency_ns = load->latency_ns;
    sh_bench_figure_add(figures, "longest_ms", (double)load->longest_ns / 1e6);
    sh_bench_figure_add(figures, "lost", (double)load->lost);
    longest_keep(recovery, (double)load->longest_ns / 1e9);
}

/* Kills the peer after --seconds, and goes on for as long again once all is back. */
static enum shoal_err under_load_run(struct recovery *recovery, struct sh_bench_result *result)
{
    struct sh_recovery_rig *rig = &recovery->rig;
    const struct sh_recovery_plan *plan = recovery->plan;
    struct watcher watcher = {.cluster = &rig->cluster, .nid = rig->nids[0]};
    recovery->load = (struct sh_recovery_load){.filled = &rig->filled,
                                               .others = &rig->others,
                                               .store = rig->store,
                                               .threads = plan->threads,
                                               .reads = plan->reads};
    enum shoal_err err = watcher_start(&watcher);
    if (err)
        return err;
    err = sh_recovery_load_start(&recovery->load);
    if (err) {
        (void)watcher_end(&watcher);
        return err;
    }
    seconds_pass(plan->seconds);
    struct begun begun = first_peer_kill(&rig->cluster);
    sh_recovery_load_next(&recovery->load);
    err = back_await(recovery, &watcher);
    sh_recovery_load_next(&recovery->load);
    seconds_pass(err ? 0 : plan->seconds);
    sh_recovery_load_stop(&recovery->load);
    load_add(recovery, result);
    if (!err && recovery->load.lost)
        err = SHOAL_EFAILED;
    if (err)
        return err;
    sh_bench_figure_add(&result->figures, "declared_ms", ms_since(begun.now_ns, watcher.heard_ns));
    (void)steps_add(recovery, &begun, &result->figures);
    return sh_recovery_rig_check(rig);
}

/* The store is closed meanwhile, as children are started by a process of one thread (child.h). */
static enum shoal_err cold_run(struct recovery *recovery, struct sh_bench_result *result)
{
    struct sh_recovery_rig *rig = &recovery->rig;
    sh_recovery_rig_close(rig);
    sh_bench_cluster_kill_all(&rig->cluster);
    sh_bench_cluster_reap_all(&rig->cluster);
    struct begun begun = begun_now();
    enum shoal_err err = sh_bench_cluster_restart_all(&rig->cluster);
    if (!err)
        err = sh_recovery_rig_open(rig);
    if (err)
        return err;
    sh_probes_begin(&recovery->probes, &rig->filled, rig->store);
    err = sh_probes_wait(&recovery->probes);
    result->cpu_ns = cpu_of(&rig->cluster, 0);
    if (err)
        return err;
    result->seconds = steps_add(recovery, &begun, &result->figures);
    result->ops = recovery->plan->count;
    result->bytes = rig->filled.payload_bytes;
    longest_keep(recovery, result->seconds);
    return all_check(recovery, &result->figures);
}

static enum shoal_err run(void *arg, const struct sh_bench_flags *flags,
                          enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct recovery *recovery = arg;
    (void)flags;
    (void)placement;
    enum shoal_err err = sh_recovery_rig_begin(&recovery->rig, recovery->plan);
    result_out->digest = recovery->rig.filled.payload_bytes;
    if (!err && recovery->plan->what == SH_RECOVERY_CLUSTER)
        err = cluster_run(recovery, result_out);
    else if (!err && recovery->plan->what == SH_RECOVERY_UNDER_LOAD)
        err = under_load_run(recovery, result_out);
    else if (!err)
        err = cold_run(recovery, result_out);
    if (err)
        SH_ERROR("bench", "recovery not measured", SH_TEXT("case", recovery->plan->name),
                 SH_ERR(err), SH_TEXT("detail", shoal_error_detail()));
    sh_recovery_rig_end(&recovery->rig);
    return err;
}

/* --- What is printed --------------------------------------------------------------------------- */

static void bar_print(struct sh_bench *bench, const struct recovery *recovery, double rate)
{
    const struct sh_recovery_plan *plan = recovery->plan;
    struct sh_bench_bar bar = {
        .case_name = plan->name, .placement = SH_PLACE_FREE, .extra = plan->extra};
    bool is_cold = plan->what == SH_RECOVERY_COLD;
    if (plan->size != BAR_SIZE || plan->count < (is_cold ? COLD_COUNT : CLUSTER_COUNT))
        return;
    bar.at_least = is_cold;
    bar.figure = is_cold ? rate : recovery->longest_s;
    if (plan->what == SH_RECOVERY_CLUSTER) {
        bar.what = "s from SIGKILL until all chunks are back, the longest";
        bar.limit = CLUSTER_S_MAX;
    } else if (plan->what == SH_RECOVERY_UNDER_LOAD) {
        bar.what = "s, the longest call";
        bar.limit = CALL_S_MAX;
    } else {
        bar.what = "chunks a second";
        bar.limit = COLD_RATE_MIN;
    }
    sh_bench_bar_print(bench, &bar);
}

/* The last run, second by second. */
static void load_print(struct sh_bench *bench, const struct sh_recovery_load *load)
{
    char text[128];
    for (unsigned i = 0; i < load->seconds_count; i++) {
        snprintf(text, sizeof text,
                 "second %+.1f from the kill: %" PRIu64 " calls, longest %.1f ms",
                 i - load->seconds[SH_RECOVERY_BEFORE], load->each[i].calls,
                 (double)load->each[i].longest_ns / 1e6);
        sh_bench_note(bench, text);
    }
}

enum shoal_err sh_recovery_cluster_measure(struct sh_bench *bench,
                                           const struct sh_recovery_plan *plan, const char *vs)
{
    static struct recovery recovery;
    struct sh_redis_restart redis = {
        .above = plan->above, .count = plan->count, .size = plan->size, .seed = plan->seed};
    const struct sh_bench_system systems[] = {{"shoal", run, &recovery},
                                              {vs, sh_redis_restart_base_run, &redis}};
    struct sh_bench_medians medians[2];
    SH_ASSERT(!vs || plan->what != SH_RECOVERY_UNDER_LOAD);
    recovery = (struct recovery){.plan = plan};
    enum shoal_err err = sh_bench_measure_all(bench, plan->name, SH_PLACE_FREE, plan->extra,
                                              systems, vs ? 2 : 1, vs != NULL, medians);
    if (err)
        return err;
    if (plan->what == SH_RECOVERY_UNDER_LOAD)
        load_print(bench, &recovery.load);
    bar_print(bench, &recovery, medians[0].ops_per_s);
    return SHOAL_OK;
}
