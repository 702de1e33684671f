#include "bench/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/options.h"
#include "client/client.h"
#include "node/node.h"

/* What one child runs. */
struct member {
    const struct sh_bench_cluster *cluster;
    bool is_superpeer;
    bool is_awaited; /* a peer: until it has joined */
    unsigned index;
};

static bool option_set(struct sh_options *options, const char *name, const char *value)
{
    struct sh_options_error error = {""};
    if (!sh_options_set(options, name, value, "bench", &error))
        return true;
    SH_ERROR("bench", "no node to measure", SH_TEXT("option", error.text));
    return false;
}

static bool settings_set(struct sh_options *options, const struct sh_bench_cluster_shape *shape)
{
    for (size_t i = 0; i < shape->settings_count; i++) {
        const struct sh_server_setting *setting = &shape->settings[i];
        if (setting->value && !option_set(options, setting->name, setting->value))
            return false;
    }
    return true;
}

static void member_main(void *arg, int report_fd)
{
    const struct member *member = arg;
    const struct sh_bench_cluster *cluster = member->cluster;
    const struct sh_bench_cluster_shape *shape = &cluster->shape;
    static struct sh_options options;
    char folder[288], log[320], detail[256] = "";
    const char *bad;
    size_t bad_len;
    struct sh_options_error error = {""};
    struct sh_node_run *node;
    snprintf(folder, sizeof folder, "%s/%s%u", cluster->folder,
             member->is_superpeer ? "superpeer" : "peer", member->index + 1);
    (void)mkdir(folder, 0700);
    snprintf(log, sizeof log, "%s/log", folder);
    const char *listen = member->is_superpeer ? cluster->addresses[member->index] : "127.0.0.1:0";
    /* Superpeers read their folders side by side: a majority of them has to be there first. */
    if (!member->is_awaited)
        sh_child_report(report_fd, 1);
    if (!freopen(log, "a", stderr) || sh_log_levels_set("info", &bad, &bad_len) ||
        sh_options_init(&options) || !option_set(&options, "cluster", "bench") ||
        !option_set(&options, "roles", member->is_superpeer ? "superpeer" : "peer") ||
        !option_set(&options, "listen", listen) ||
        !option_set(&options, "registry", shape->is_durable ? "raft" : "memory") ||
        (shape->is_durable && !option_set(&options, "data_dir", folder)) ||
        (!member->is_superpeer && !settings_set(&options, shape)) ||
        !option_set(&options, "superpeers", cluster->all) || sh_options_check(&options, &error) ||
        sh_node_create(&options, &node, detail) || sh_node_start(node)) {
        fprintf(stderr, "%s %s\n", error.text, detail);
        return;
    }
    if (member->is_awaited) {
        if (!sh_node_wait_ready(node))
            return;
        sh_child_report(report_fd, 1);
    }
    for (;;)
        (void)pause();
}

static enum shoal_err member_start(struct sh_bench_cluster *cluster, struct member member)
{
    struct sh_child *children = member.is_superpeer ? cluster->superpeers : cluster->peers;
    member.cluster = cluster;
    return sh_child_start(member_main, &member, SH_PLACE_FREE, &children[member.index]);
}

/* Chooses ports of loopback at which nothing listens, all different. */
static enum shoal_err addresses_choose(struct sh_bench_cluster *cluster)
{
    int sockets[SH_BENCH_SUPERPEERS_MAX];
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < cluster->shape.superpeers; i++) {
        uint16_t port = 0;
        sockets[i] = sh_child_listen(&port);
        if (sockets[i] < 0)
            err = SHOAL_EIO;
        snprintf(cluster->addresses[i], sizeof cluster->addresses[i], "127.0.0.1:%u",
                 (unsigned)port);
        snprintf(cluster->all + strlen(cluster->all), sizeof cluster->all - strlen(cluster->all),
                 "%s%s", i ? "," : "", cluster->addresses[i]);
    }
    for (unsigned i = 0; i < cluster->shape.superpeers; i++) {
        if (sockets[i] >= 0)
            close(sockets[i]);
    }
    return err;
}

enum shoal_err sh_bench_folder_make_in(const char *above, const char *name, char *folder_out,
                                       size_t room)
{
    const char *usual = getenv("TMPDIR");
    if (!above)
        above = usual && *usual ? usual : "/tmp";
    int size = snprintf(folder_out, room, "%s/shoal-%s-XXXXXX", above, name);
    if (size > 0 && (size_t)size < room && mkdtemp(folder_out))
        return SHOAL_OK;
    SH_ERROR("bench", "no folder can be made there", SH_TEXT("folder", folder_out),
             SH_TEXT("cause", strerror(errno)));
    folder_out[0] = '\0';
    return SHOAL_EIO;
}

enum shoal_err sh_bench_folder_make(const char *name, char *folder_out, size_t room)
{
    return sh_bench_folder_make_in(NULL, name, folder_out, room);
}

void sh_bench_folder_remove(const char *folder)
{
    char path[512];
    DIR *directory = opendir(folder);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int size = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (size > 0 && (size_t)size < sizeof path && unlink(path) != 0)
            sh_bench_folder_remove(path);
    }
    if (directory)
        closedir(directory);
    (void)rmdir(folder);
}

static void each_signal(const struct sh_child *children, unsigned count, int signal)
{
    for (unsigned i = 0; i < count; i++)
        (void)(children[i].pid > 0 && kill(children[i].pid, signal));
}

static void each_stop(struct sh_child *children, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        sh_child_stop(&children[i]);
}

void sh_bench_cluster_stop(struct sh_bench_cluster *cluster)
{
    each_signal(cluster->peers, SH_BENCH_PEERS_MAX, SIGCONT);
    each_signal(cluster->superpeers, SH_BENCH_SUPERPEERS_MAX, SIGCONT);
    each_stop(cluster->peers, SH_BENCH_PEERS_MAX);
    each_stop(cluster->superpeers, SH_BENCH_SUPERPEERS_MAX);
    if (cluster->folder[0])
        sh_bench_folder_remove(cluster->folder);
    cluster->folder[0] = '\0';
}

void sh_bench_cluster_kill(const struct sh_bench_cluster *cluster)
{
    each_signal(cluster->superpeers, cluster->shape.superpeers, SIGKILL);
}

void sh_bench_cluster_reap(struct sh_bench_cluster *cluster)
{
    each_stop(cluster->superpeers, cluster->shape.superpeers);
}

enum shoal_err sh_bench_cluster_restart(struct sh_bench_cluster *cluster)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < cluster->shape.superpeers && !err; i++)
        err = member_start(cluster, (struct member){.is_superpeer = true, .index = i});
    return err;
}

void sh_bench_cluster_kill_all(const struct sh_bench_cluster *cluster)
{
    each_signal(cluster->peers, cluster->shape.peers, SIGKILL);
    sh_bench_cluster_kill(cluster);
}

void sh_bench_cluster_reap_all(struct sh_bench_cluster *cluster)
{
    each_stop(cluster->peers, cluster->shape.peers);
    sh_bench_cluster_reap(cluster);
}

enum shoal_err sh_bench_cluster_restart_all(struct sh_bench_cluster *cluster)
{
    enum shoal_err err = sh_bench_cluster_restart(cluster);
    for (unsigned i = 0; i < cluster->shape.peers && !err; i++)
        err = member_start(cluster, (struct member){.index = i});
    return err;
}

enum shoal_err sh_bench_cluster_start(struct sh_bench_cluster *cluster,
                                      const struct sh_bench_cluster_shape *shape)
{
    SH_ASSERT(shape->peers <= SH_BENCH_PEERS_MAX);
    SH_ASSERT(shape->superpeers > 0 && shape->superpeers <= SH_BENCH_SUPERPEERS_MAX);
    *cluster = (struct sh_bench_cluster){.shape = *shape};
    enum shoal_err err =
        sh_bench_folder_make_in(shape->above, shape->name, cluster->folder, sizeof cluster->folder);
    if (!err)
        err = addresses_choose(cluster);
    if (!err)
        err = sh_bench_cluster_restart(cluster);
    for (unsigned i = 0; i < shape->peers && !err; i++)
        err = member_start(cluster, (struct member){.is_awaited = true, .index = i});
    if (err)
        sh_bench_cluster_stop(cluster);
    return err;
}

enum shoal_err sh_bench_cluster_open(const struct sh_bench_cluster *cluster, uint64_t timeout_ns,
                                     shoal **store_out)
{
    struct shoal_options options = {
        .addresses = cluster->all, .cluster = "bench", .timeout_ns = timeout_ns};
    uint64_t deadline_ns = sh_bench_now_ns() + timeout_ns;
    enum shoal_err err;
    /* A superpeer's process may not listen yet. */
    while ((err = shoal_open(&options, store_out)) == SHOAL_EUNREACHABLE &&
           sh_bench_now_ns() < deadline_ns)
        (void)poll(NULL, 0, 1);
    return err;
}

/* Whether a superpeer says that each shard is at all superpeers. */
static bool is_whole(const struct sh_report *report, unsigned superpeers)
{
    bool is_whole = report->shard_count > 0;
    for (unsigned i = 0; i < report->shard_count; i++)
        is_whole &= report->shards[i].owner &&
                    (unsigned)__builtin_popcountll(report->shards[i].replicas) == superpeers;
    return is_whole;
}

enum shoal_err sh_bench_cluster_await(const struct sh_bench_cluster *cluster, shoal *store)
{
    static struct sh_report report;
    uint64_t deadline_ns = sh_bench_now_ns() + SH_BENCH_TIMEOUT_NS;
    while (sh_client_report(store, (shoal_nid){1}, &report) ||
           !is_whole(&report, cluster->shape.superpeers)) {
        if (sh_bench_now_ns() > deadline_ns)
            return SHOAL_ETIMEOUT;
        (void)poll(NULL, 0, 10);
    }
    return SHOAL_OK;
}

/* The log of a node; NULL: it cannot be read. */
static FILE *log_open(const struct sh_bench_cluster *cluster, bool is_superpeer, unsigned index)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s%u/log", cluster->folder, is_superpeer ? "superpeer" : "peer",
             index + 1);
    return fopen(path, "re");
}

unsigned sh_bench_cluster_leader(const struct sh_bench_cluster *cluster)
{
    unsigned leader = 0;
    uint64_t best = 0;
    for (unsigned i = 0; i < cluster->shape.superpeers; i++) {
        char line[512];
        FILE *file = log_open(cluster, true, i);
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

/* The time of day that a line of a log begins with (log.h); 0: it begins with none. */
static uint64_t line_time_ns(const char *line)
{
    struct tm tm = {0};
    const char *rest = strptime(line, "%Y-%m-%dT%H:%M:%S.", &tm);
    time_t seconds = rest ? timegm(&tm) : -1;
    return seconds < 0 ? 0
                       : (uint64_t)seconds * UINT64_C(1000000000) +
                             (uint64_t)strtoull(rest, NULL, 10) * 1000;
}

static void said_add(struct sh_bench_said *said, const char *line, uint64_t at_ns)
{
    const char *field = strstr(line, " ns=");
    uint64_t took_ns = field ? strtoull(field + 4, NULL, 10) : 0;
    said->count++;
    if (!said->first_ns || at_ns < said->first_ns)
        said->first_ns = at_ns;
    if (at_ns > said->last_ns)
        said->last_ns = at_ns;
    if (took_ns > said->longest_ns)
        said->longest_ns = took_ns;
}

struct sh_bench_said sh_bench_cluster_said(const struct sh_bench_cluster *cluster,
                                           bool of_superpeers, const char *text, uint64_t since_ns)
{
    struct sh_bench_said said = {0};
    unsigned count = of_superpeers ? cluster->shape.superpeers : cluster->shape.peers;
    for (unsigned i = 0; i < count; i++) {
        char line[512];
        FILE *file = log_open(cluster, of_superpeers, i);
        while (file && fgets(line, sizeof line, file)) {
            uint64_t at_ns = strstr(line, text) ? line_time_ns(line) : 0;
            if (at_ns && at_ns / 1000 >= since_ns / 1000)
                said_add(&said, line, at_ns);
        }
        if (file)
            fclose(file);
    }
    return said;
}

bool sh_bench_cluster_says(const struct sh_bench_cluster *cluster, bool of_superpeers,
                           const char *text)
{
    return sh_bench_cluster_said(cluster, of_superpeers, text, 0).count > 0;
}
