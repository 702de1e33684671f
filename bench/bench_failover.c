/* How long a cluster of real processes is without what it has lost. Each run starts three
 * superpeers that share their registry and two peers, with default options, kills one or two with
 * SIGKILL, and measures until others can go on:
 *
 *   peer-event    a peer is killed: until a program that watches hears that it has failed
 *   peer-call     a peer is killed: until a call for a chunk of it ends
 *   superpeer     the superpeer of an arc is killed: until a lookup on that arc is answered
 *   leader-event  the leading superpeer is killed, and a peer: until a program hears of the peer
 *   stopped       a peer is stopped (SIGSTOP): until a program hears that it has failed
 *   load          nothing is killed, but two busy loops for each core run beside the cluster for
 *                 --seconds: how long calls take meanwhile; it fails if a node is declared failed
 */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/options.h"
#include "bench/benches.h"
#include "bench/child.h"
#include "cluster/view.h"
#include "node/node.h"
#include "shoal/shoal.h"

#define SUPERPEERS 3
#define PEERS 2
#define KILLS_MAX 1000
#define CHUNK_BYTES 64
#define LOAD_SECONDS 10
#define SETTLE_NS UINT64_C(3000000000)
#define BUSY_MAX 64
#define TIMEOUT_NS UINT64_C(30000000000)

const char *const sh_bench_failover_cases[] = {
    "peer-event", "peer-call", "superpeer", "leader-event", "stopped", "load", NULL};
const char *const sh_bench_failover_baselines[] = {NULL};

/* A cluster of child processes, in a folder of its own. */
struct cluster {
    char folder[64];
    char addresses[SUPERPEERS][32];
    char all[3 * 32];
    struct sh_child superpeers[SUPERPEERS], peers[PEERS];
};

/* What one child runs. */
struct member {
    const struct cluster *cluster;
    bool is_superpeer;
    unsigned index;
};

struct failover {
    const char *name;
    uint64_t took_ns[KILLS_MAX];
    unsigned kills;
};

/* --- Nodes --------------------------------------------------------------------------------- */

static bool option_set(struct sh_options *options, const char *name, const char *value)
{
    struct sh_options_error error = {""};
    if (!sh_options_set(options, name, value, "bench", &error))
        return true;
    SH_ERROR("bench", "no node to measure", SH_TEXT("option", error.text));
    return false;
}

static void member_main(void *arg, int report_fd)
{
    const struct member *member = arg;
    static struct sh_options options;
    char folder[96], detail[256] = "";
    const char *bad;
    size_t bad_len;
    struct sh_options_error error = {""};
    struct sh_node_run *node;
    snprintf(folder, sizeof folder, "%s/%s%u", member->cluster->folder,
             member->is_superpeer ? "superpeer" : "peer", member->index + 1);
    (void)mkdir(folder, 0700);
    const char *listen =
        member->is_superpeer ? member->cluster->addresses[member->index] : "127.0.0.1:0";
    char log[128];
    snprintf(log, sizeof log, "%s/log", folder);
    if (!freopen(log, "w", stderr) || sh_log_levels_set("info", &bad, &bad_len) ||
        sh_options_init(&options) || !option_set(&options, "cluster", "bench") ||
        !option_set(&options, "roles", member->is_superpeer ? "superpeer" : "peer") ||
        !option_set(&options, "listen", listen) || !option_set(&options, "data_dir", folder) ||
        !option_set(&options, "superpeers", member->cluster->all) ||
        sh_options_check(&options, &error) || sh_node_create(&options, &node, detail) ||
        sh_node_start(node)) {
        fprintf(stderr, "%s %s\n", error.text, detail);
        return;
    }
    /* A superpeer serves when a majority of them is there, which begins with this one. */
    if (!member->is_superpeer && !sh_node_wait_ready(node))
        return;
    sh_child_report(report_fd, 1);
    for (;;)
        (void)pause();
}

static enum shoal_err member_start(struct cluster *cluster, bool is_superpeer, unsigned index)
{
    struct member member = {cluster, is_superpeer, index};
    return sh_child_start(member_main, &member, SH_PLACE_FREE,
                          is_superpeer ? &cluster->superpeers[index] : &cluster->peers[index]);
}

/* Ports that nobody listens at, all different. */
static enum shoal_err addresses_choose(struct cluster *cluster)
{
    int sockets[SUPERPEERS];
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < SUPERPEERS; i++) {
        uint16_t port = 0;
        sockets[i] = sh_child_listen(&port);
        if (sockets[i] < 0)
            err = SHOAL_EIO;
        snprintf(cluster->addresses[i], sizeof cluster->addresses[i], "127.0.0.1:%u",
                 (unsigned)port);
        snprintf(cluster->all + strlen(cluster->all), sizeof cluster->all - strlen(cluster->all),
                 "%s%s", i ? "," : "", cluster->addresses[i]);
    }
    for (unsigned i = 0; i < SUPERPEERS; i++) {
        if (sockets[i] >= 0)
            close(sockets[i]);
    }
    return err;
}

static void folder_remove(const char *folder)
{
    char path[400];
    DIR *directory = opendir(folder);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path) != 0)
            folder_remove(path);
    }
    if (directory)
        closedir(directory);
    (void)rmdir(folder);
}

static void cluster_stop(struct cluster *cluster)
{
    struct sh_child *children[SUPERPEERS + PEERS];
    for (unsigned i = 0; i < SUPERPEERS + PEERS; i++)
        children[i] = i < SUPERPEERS ? &cluster->superpeers[i] : &cluster->peers[i - SUPERPEERS];
    for (unsigned i = 0; i < SUPERPEERS + PEERS; i++)
        (void)(children[i]->pid > 0 && kill(children[i]->pid, SIGCONT));
    for (unsigned i = 0; i < SUPERPEERS + PEERS; i++)
        sh_child_stop(children[i]);
    folder_remove(cluster->folder);
}

static enum shoal_err cluster_start(struct cluster *cluster)
{
    *cluster = (struct cluster){.folder = "/tmp/shoal-failover-XXXXXX"};
    if (!mkdtemp(cluster->folder))
        return SHOAL_EIO;
    enum shoal_err err = addresses_choose(cluster);
    for (unsigned i = 0; i < SUPERPEERS && !err; i++)
        err = member_start(cluster, true, i);
    for (unsigned i = 0; i < PEERS && !err; i++)
        err = member_start(cluster, false, i);
    if (err)
        cluster_stop(cluster);
    return err;
}

static void child_kill(struct sh_child *child)
{
    (void)kill(child->pid, SIGKILL);
}

/* Who leads, as the logs say it: the index of the superpeer that last came to. */
static unsigned leader_of(const struct cluster *cluster)
{
    unsigned leader = 0;
    uint64_t best = 0;
    for (unsigned i = 0; i < SUPERPEERS; i++) {
        char path[128], line[512];
        snprintf(path, sizeof path, "%s/superpeer%u/log", cluster->folder, i + 1);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file)) {
            const char *term = strstr(line, " leads ") ? strstr(line, "term=") : NULL;
            if (term && strtoull(term + 5, NULL, 10) > best) {
                best = strtoull(term + 5, NULL, 10);
                leader = i;
            }
        }
        if (file)
            fclose(file);
    }
    return leader;
}

/* --- Cases --------------------------------------------------------------------------------- */

static enum shoal_err store_open(const struct cluster *cluster, shoal **store_out)
{
    struct shoal_options options = {
        .addresses = cluster->all, .cluster = "bench", .timeout_ns = TIMEOUT_NS};
    return shoal_open(&options, store_out);
}

/* The peer that is killed is the first one, with the lowest ID. */
static enum shoal_err victim_find(shoal *store, shoal_nid *nid_out)
{
    struct shoal_node nodes[SUPERPEERS + PEERS];
    size_t count;
    enum shoal_err err = shoal_nodes(store, nodes, SUPERPEERS + PEERS, &count);
    for (size_t i = 0; !err && i < count && i < SUPERPEERS + PEERS; i++) {
        if (nodes[i].role == SHOAL_PEER) {
            *nid_out = nodes[i].nid;
            return SHOAL_OK;
        }
    }
    return err ? err : SHOAL_ENONODE;
}

struct watched {
    struct cluster *cluster;
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
            child_kill(&watched->cluster->superpeers[leader_of(watched->cluster)]);
        watched->killed_ns = sh_bench_now_ns();
        (void)kill(watched->cluster->peers[0].pid, watched->signal);
    }
    if (event && event->kind == SHOAL_EVENT_FAILED && event->node.nid.v == watched->victim.v)
        watched->heard_ns = sh_bench_now_ns();
    return !watched->heard_ns;
}

static enum shoal_err event_run(struct cluster *cluster, bool with_leader, int signal,
                                uint64_t *took_ns_out)
{
    struct watched watched = {.cluster = cluster, .with_leader = with_leader, .signal = signal};
    watched.begun_ns = sh_bench_now_ns();
    watched.settle_ns = signal == SIGSTOP ? SETTLE_NS : 0;
    shoal *store;
    enum shoal_err err = store_open(cluster, &store);
    if (err)
        return err;
    err = victim_find(store, &watched.victim);
    if (!err)
        err = shoal_watch(store, on_event, &watched);
    if (!err)
        *took_ns_out = watched.heard_ns - watched.killed_ns;
    shoal_close(store);
    return err;
}

static enum shoal_err call_run(struct cluster *cluster, bool is_superpeer, uint64_t *took_ns_out)
{
    shoal *store, *fresh = NULL;
    shoal_nid victim;
    shoal_cid cid;
    char bytes[CHUNK_BYTES];
    uint32_t size;
    enum shoal_err err = store_open(cluster, &store);
    if (err)
        return err;
    err = victim_find(store, &victim);
    if (!err)
        err = shoal_create(store, victim, CHUNK_BYTES, &cid);
    /* Another one that has looked nothing up yet. */
    if (!err)
        err = store_open(cluster, &fresh);
    if (err)
        goto out_close;
    shoal_nid superpeer = sh_arc_superpeer(victim, SUPERPEERS);
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
    struct shoal_node nodes[SUPERPEERS + PEERS];
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
        err = shoal_nodes(store, nodes, SUPERPEERS + PEERS, &count);
    for (size_t i = 0; !err && i < count && i < SUPERPEERS + PEERS; i++) {
        if (nodes[i].state != SHOAL_NODE_UP)
            err = SHOAL_EFAILED;
    }
    return err;
}

/* Whether a log of the superpeers, or of the peers, says so. */
static bool log_says(const struct cluster *cluster, bool of_superpeers, const char *text)
{
    bool is_said = false;
    for (unsigned i = 0; i < (of_superpeers ? SUPERPEERS : PEERS); i++) {
        char path[128], line[512];
        snprintf(path, sizeof path, "%s/%s%u/log", cluster->folder,
                 of_superpeers ? "superpeer" : "peer", i + 1);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file))
            is_said |= strstr(line, text) != NULL;
        if (file)
            fclose(file);
    }
    return is_said;
}

static enum shoal_err load_run(struct cluster *cluster, double seconds,
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
        err = store_open(cluster, &store);
    if (!err)
        err = calls_run(store, seconds, result_out);
    shoal_close(store);
    for (unsigned i = 0; i < wanted; i++)
        sh_child_stop(&busy[i]);
    if (!err &&
        (log_says(cluster, true, "node failed") || log_says(cluster, true, "superpeer is silent")))
        err = SHOAL_EFAILED;
    if (!err && log_says(cluster, false, "fenced: the lease has run out"))
        err = SHOAL_EFENCED;
    return err;
}

static enum shoal_err failover_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct failover *failover = arg;
    static struct cluster cluster;
    uint64_t took_ns = 0;
    (void)placement;
    enum shoal_err err = cluster_start(&cluster);
    if (err)
        return err;
    if (strcmp(failover->name, "peer-event") == 0)
        err = event_run(&cluster, false, SIGKILL, &took_ns);
    else if (strcmp(failover->name, "leader-event") == 0)
        err = event_run(&cluster, true, SIGKILL, &took_ns);
    else if (strcmp(failover->name, "stopped") == 0)
        err = event_run(&cluster, false, SIGSTOP, &took_ns);
    else if (strcmp(failover->name, "load") == 0)
        err = load_run(&cluster, flags->seconds > 0 ? flags->seconds : LOAD_SECONDS, result_out);
    else
        err = call_run(&cluster, strcmp(failover->name, "superpeer") == 0, &took_ns);
    cluster_stop(&cluster);
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
    if (err || !failover.kills)
        return err;
    char text[160];
    qsort(failover.took_ns, failover.kills, sizeof failover.took_ns[0], by_size);
    snprintf(text, sizeof text, "%s: %u kills, median %.1f ms, longest %.1f ms", name,
             failover.kills, (double)failover.took_ns[failover.kills / 2] / 1e6,
             (double)failover.took_ns[failover.kills - 1] / 1e6);
    sh_bench_note(bench, text);
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
