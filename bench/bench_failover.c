/* How long a cluster of real processes is without what it has lost. Each run starts three
 * superpeers that share their registry and two peers, with default options, kills one or two with
 * SIGKILL, and measures until others can go on:
 *
 *   peer-event    a peer is killed: until a program that watches hears that it has failed
 *   peer-call     a peer is killed: until a call for a chunk of it ends
 *   superpeer     the superpeer of an arc is killed: until a lookup on that arc is answered
 *   leader-event  the leading superpeer is killed, and a peer: until a program hears of the peer
 *   restart       all superpeers are killed, while names are registered, and started again: until a
 *                 name of each shard is found (failover_restart.h)
 *   stopped       a peer is stopped (SIGSTOP): until a program hears that it has failed
 *   load          nothing is killed, but two busy loops for each core run beside the cluster for
 *                 --seconds: how long calls take meanwhile; it fails if a node is declared failed
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/benches.h"
#include "bench/cluster.h"
#include "bench/failover_restart.h"
#include "cluster/view.h"
#include "shoal/shoal.h"

#define PEERS 2
#define KILLS_MAX 1000
#define CHUNK_BYTES 64
#define LOAD_SECONDS 10
#define SETTLE_NS UINT64_C(3000000000)
#define BUSY_MAX 64

const char *const sh_bench_failover_cases[] = {
    "peer-event", "peer-call", "superpeer", "leader-event", "restart", "stopped", "load", NULL};
const char *const sh_bench_failover_baselines[] = {NULL};

/* What is to be reached by the longest of all times. */
static const struct {
    const char *name;
    double limit_ms;
} bars[] = {{"peer-event", 1000}, {"superpeer", 1000}, {"leader-event", 1000}, {"restart", 2000}};

struct failover {
    const char *name;
    struct sh_failover_restart restart;
    uint64_t took_ns[KILLS_MAX];
    unsigned kills;
};

static void child_kill(struct sh_child *child)
{
    (void)kill(child->pid, SIGKILL);
}

/* --- Cases --------------------------------------------------------------------------------- */

/* The peer that is killed is the first one, with the lowest ID. */
static enum shoal_err victim_find(shoal *store, shoal_nid *nid_out)
{
    struct shoal_node nodes[SH_BENCH_SUPERPEERS + PEERS];
    size_t count;
    enum shoal_err err = shoal_nodes(store, nodes, SH_BENCH_SUPERPEERS + PEERS, &count);
    for (size_t i = 0; !err && i < count && i < SH_BENCH_SUPERPEERS + PEERS; i++) {
        if (nodes[i].role == SHOAL_PEER) {
            *nid_out = nodes[i].nid;
            return SHOAL_OK;
        }
    }
    return err ? err : SHOAL_ENONODE;
}

struct watched {
    struct sh_bench_cluster *cluster;
    bool with_leader;
    int signal;
    uint64_t begun_ns, settle_ns;
    shoal_nid victim;
    uint64_t killed_ns, heard_ns; /* 0: not yet */
};

static bool on_event(void *arg, const struct shoal_event *event)
{
    struct watched *watched = arg;
    /* A leader waits for a while before it blames anybody. */
    bool is_time = sh_bench_now_ns() >= watched->begun_ns + watched->settle_ns;
    if (!event && !watched->killed_ns && is_time) {
        if (watched->with_leader)
            child_kill(&watched->cluster->superpeers[sh_bench_cluster_leader(watched->cluster)]);
        watched->killed_ns = sh_bench_now_ns();
        (void)kill(watched->cluster->peers[0].pid, watched->signal);
    }
    if (event && event->kind == SHOAL_EVENT_FAILED && event->node.nid.v == watched->victim.v)
        watched->heard_ns = sh_bench_now_ns();
    return !watched->heard_ns;
}

static enum shoal_err event_run(struct sh_bench_cluster *cluster, bool with_leader, int signal,
                                uint64_t *took_ns_out)
{
    struct watched watched = {.cluster = cluster, .with_leader = with_leader, .signal = signal};
    watched.settle_ns = signal == SIGSTOP ? SETTLE_NS : 0;
    shoal *store;
    enum shoal_err err = sh_bench_cluster_open(cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (err)
        return err;
    err = sh_bench_cluster_await(cluster, store);
    if (!err)
        err = victim_find(store, &watched.victim);
    watched.begun_ns = sh_bench_now_ns();
    if (!err)
        err = shoal_watch(store, on_event, &watched);
    if (!err)
        *took_ns_out = watched.heard_ns - watched.killed_ns;
    shoal_close(store);
    return err;
}

static enum shoal_err call_run(struct sh_bench_cluster *cluster, bool is_superpeer,
                               uint64_t *took_ns_out)
{
    shoal *store, *fresh = NULL;
    shoal_nid victim;
    shoal_cid cid;
    char bytes[CHUNK_BYTES];
    uint32_t size;
    enum shoal_err err = sh_bench_cluster_open(cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (err)
        return err;
    err = sh_bench_cluster_await(cluster, store);
    if (!err)
        err = victim_find(store, &victim);
    if (!err)
        err = shoal_create(store, victim, CHUNK_BYTES, &cid);
    /* Another one that has looked nothing up yet. */
    if (!err)
        err = sh_bench_cluster_open(cluster, SH_BENCH_TIMEOUT_NS, &fresh);
    if (err)
        goto out_close;
    shoal_nid superpeer = sh_arc_superpeer(victim, SH_BENCH_SUPERPEERS);
    child_kill(is_superpeer ? &cluster->superpeers[superpeer.v - 1] : &cluster->peers[0]);
    uint64_t killed_ns = sh_bench_now_ns();
    err = shoal_get(is_superpeer ? fresh : store, cid, bytes, sizeof bytes, &size);
    *took_ns_out = sh_bench_now_ns() - killed_ns;
    if (err == SHOAL_EFAILED && !is_superpeer)
        err = SHOAL_OK;
    else if (!err && !is_superpeer)
        err = SHOAL_EINTERNAL; /* it answered after its end */
out_close:
    shoal_close(fresh);
    shoal_close(store);
    return err;
}

static void busy_main(void *arg, int report_fd)
{
    (void)arg;
    sh_child_report(report_fd, 1);
    for (volatile uint64_t turns = 0;;)
        turns++;
}

/* Calls under load, and whether all nodes are up after it and have been all the while. */
static enum shoal_err calls_run(shoal *store, double seconds, struct sh_bench_result *result_out)
{
    shoal_nid victim;
    shoal_cid cid;
    char bytes[CHUNK_BYTES];
    uint32_t size;
    struct shoal_node nodes[SH_BENCH_SUPERPEERS + PEERS];
    size_t count = 0;
    enum shoal_err err = victim_find(store, &victim);
    if (!err)
        err = shoal_create(store, victim, CHUNK_BYTES, &cid);
    uint64_t begun_ns = sh_bench_now_ns(), now_ns = begun_ns;
    while (!err && (double)(now_ns - begun_ns) / 1e9 < seconds) {
        err = shoal_get(store, cid, bytes, sizeof bytes, &size);
        uint64_t done_ns = sh_bench_now_ns();
        sh_hist_add(&result_out->latency_ns, done_ns - now_ns);
        result_out->ops++;
        now_ns = done_ns;
    }
    result_out->seconds = (double)(now_ns - begun_ns) / 1e9;
    if (!err)
        err = shoal_nodes(store, nodes, SH_BENCH_SUPERPEERS + PEERS, &count);
    for (size_t i = 0; !err && i < count && i < SH_BENCH_SUPERPEERS + PEERS; i++) {
        if (nodes[i].state != SHOAL_NODE_UP)
            err = SHOAL_EFAILED;
    }
    return err;
}

static enum shoal_err load_run(struct sh_bench_cluster *cluster, double seconds,
                               struct sh_bench_result *result_out)
{
    struct sh_child busy[BUSY_MAX] = {{0}};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned wanted = cores > 0 && 2 * cores < BUSY_MAX ? (unsigned)(2 * cores) : BUSY_MAX;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < wanted && !err; i++)
        err = sh_child_start(busy_main, NULL, SH_PLACE_FREE, &busy[i]);
    shoal *store = NULL;
    if (!err)
        err = sh_bench_cluster_open(cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (!err)
        err = calls_run(store, seconds, result_out);
    shoal_close(store);
    for (unsigned i = 0; i < wanted; i++)
        sh_child_stop(&busy[i]);
    if (!err && (sh_bench_cluster_says(cluster, true, "node failed") ||
                 sh_bench_cluster_says(cluster, true, "superpeer is silent")))
        err = SHOAL_EFAILED;
    if (!err && sh_bench_cluster_says(cluster, false, "fenced: the lease has run out"))
        err = SHOAL_EFENCED;
    return err;
}

/* A cluster of its own for each run, but for `restart`. */
static enum shoal_err case_run(struct failover *failover, const struct sh_bench_flags *flags,
                               struct sh_bench_result *result_out, uint64_t *took_ns_out)
{
    static struct sh_bench_cluster cluster;
    enum shoal_err err;
    if (strcmp(failover->name, "restart") == 0)
        return sh_failover_restart_run(&failover->restart, flags->count, took_ns_out);
    const struct sh_bench_cluster_shape shape = {
        .name = "failover", .superpeers = SH_BENCH_SUPERPEERS, .peers = PEERS, .is_durable = true};
    err = sh_bench_cluster_start(&cluster, &shape);
    if (err)
        return err;
    if (strcmp(failover->name, "peer-event") == 0)
        err = event_run(&cluster, false, SIGKILL, took_ns_out);
    else if (strcmp(failover->name, "leader-event") == 0)
        err = event_run(&cluster, true, SIGKILL, took_ns_out);
    else if (strcmp(failover->name, "stopped") == 0)
        err = event_run(&cluster, false, SIGSTOP, took_ns_out);
    else if (strcmp(failover->name, "load") == 0)
        err = load_run(&cluster, flags->seconds > 0 ? flags->seconds : LOAD_SECONDS, result_out);
    else
        err = call_run(&cluster, strcmp(failover->name, "superpeer") == 0, took_ns_out);
    sh_bench_cluster_stop(&cluster);
    return err;
}

static enum shoal_err failover_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct failover *failover = arg;
    uint64_t took_ns = 0;
    (void)placement;
    enum shoal_err err = case_run(failover, flags, result_out, &took_ns);
    if (err) {
        SH_ERROR("bench", "failover not measured", SH_TEXT("case", failover->name), SH_ERR(err),
                 SH_TEXT("detail", shoal_error_detail()));
        return err;
    }
    if (!took_ns)
        return SHOAL_OK;
    result_out->ops = 1;
    result_out->seconds = (double)took_ns / 1e9;
    sh_hist_add(&result_out->latency_ns, took_ns);
    if (failover->kills < KILLS_MAX)
        failover->took_ns[failover->kills++] = took_ns;
    return SHOAL_OK;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum shoal_err failover_measure(struct sh_bench *bench, const char *name)
{
    static struct failover failover;
    failover = (struct failover){.name = name};
    enum shoal_err err = sh_bench_measure(bench, name, SH_PLACE_FREE, "superpeers=3 nodes=2",
                                          failover_run, &failover, NULL, NULL, NULL);
    sh_failover_restart_end(&failover.restart);
    if (err || !failover.kills)
        return err;
    char text[160];
    qsort(failover.took_ns, failover.kills, sizeof failover.took_ns[0], by_size);
    double longest_ms = (double)failover.took_ns[failover.kills - 1] / 1e6;
    snprintf(text, sizeof text, "%s: %u kills, median %.1f ms, longest %.1f ms", name,
             failover.kills, (double)failover.took_ns[failover.kills / 2] / 1e6, longest_ms);
    sh_bench_note(bench, text);
    for (size_t i = 0; i < sizeof bars / sizeof bars[0]; i++) {
        struct sh_bench_bar bar = {.case_name = name,
                                   .placement = SH_PLACE_FREE,
                                   .extra = "superpeers=3",
                                   .what = "ms, the longest",
                                   .figure = longest_ms,
                                   .limit = bars[i].limit_ms};
        if (strcmp(bars[i].name, name) == 0)
            sh_bench_bar_print(bench, &bar);
    }
    return SHOAL_OK;
}

enum shoal_err sh_bench_failover(struct sh_bench *bench)
{
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; sh_bench_failover_cases[i] && !err; i++) {
        if (sh_bench_case_wanted(bench, sh_bench_failover_cases[i]))
            err = failover_measure(bench, sh_bench_failover_cases[i]);
    }
    return err;
}
