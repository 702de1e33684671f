#include "bench/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

static void member_main(void *arg, int report_fd)
{
    const struct member *member = arg;
    const struct sh_bench_cluster *cluster = member->cluster;
    static struct sh_options options;
    char folder[160], log[192], detail[256] = "";
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
    if (member->is_superpeer)
        sh_child_report(report_fd, 1);
    if (!freopen(log, "a", stderr) || sh_log_levels_set("info", &bad, &bad_len) ||
        sh_options_init(&options) || !option_set(&options, "cluster", "bench") ||
        !option_set(&options, "roles", member->is_superpeer ? "superpeer" : "peer") ||
        !option_set(&options, "listen", listen) ||
        !option_set(&options, "registry", cluster->is_durable ? "raft" : "memory") ||
        (cluster->is_durable && !option_set(&options, "data_dir", folder)) ||
        !option_set(&options, "superpeers", cluster->all) || sh_options_check(&options, &error) ||
        sh_node_create(&options, &node, detail) || sh_node_start(node)) {
        fprintf(stderr, "%s %s\n", error.text, detail);
        return;
    }
    if (!member->is_superpeer) {
        if (!sh_node_wait_ready(node))
            return;
        sh_child_report(report_fd, 1);
    }
    for (;;)
        (void)pause();
}

static enum shoal_err member_start(struct sh_bench_cluster *cluster, bool is_superpeer,
                                   unsigned index)
{
    struct member member = {cluster, is_superpeer, index};
    return sh_child_start(member_main, &member, SH_PLACE_FREE,
                          is_superpeer ? &cluster->superpeers[index] : &cluster->peers[index]);
}

/* Chooses ports of loopback at which nothing listens, all different. */
static enum shoal_err addresses_choose(struct sh_bench_cluster *cluster)
{
    int sockets[SH_BENCH_SUPERPEERS];
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < SH_BENCH_SUPERPEERS; i++) {
        uint16_t port = 0;
        sockets[i] = sh_child_listen(&port);
        if (sockets[i] < 0)
            err = SHOAL_EIO;
        snprintf(cluster->addresses[i], sizeof cluster->addresses[i], "127.0.0.1:%u",
                 (unsigned)port);
        snprintf(cluster->all + strlen(cluster->all), sizeof cluster->all - strlen(cluster->all),
                 "%s%s", i ? "," : "", cluster->addresses[i]);
    }
    for (unsigned i = 0; i < SH_BENCH_SUPERPEERS; i++) {
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

void sh_bench_cluster_stop(struct sh_bench_cluster *cluster)
{
    struct sh_child *children[SH_BENCH_SUPERPEERS + SH_BENCH_PEERS_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < SH_BENCH_PEERS_MAX; i++)
        children[count++] = &cluster->peers[i];
    for (unsigned i = 0; i < SH_BENCH_SUPERPEERS; i++)
        children[count++] = &cluster->superpeers[i];
    for (unsigned i = 0; i < count; i++)
        (void)(children[i]->pid > 0 && kill(children[i]->pid, SIGCONT));
    for (unsigned i = 0; i < count; i++)
        sh_child_stop(children[i]);
    if (cluster->folder[0])
        sh_bench_folder_remove(cluster->folder);
    cluster->folder[0] = '\0';
}

void sh_bench_cluster_kill(const struct sh_bench_cluster *cluster)
{
    for (unsigned i = 0; i < SH_BENCH_SUPERPEERS; i++)
        (void)(cluster->superpeers[i].pid > 0 && kill(cluster->superpeers[i].pid, SIGKILL));
}

void sh_bench_cluster_reap(struct sh_bench_cluster *cluster)
{
    for (unsigned i = 0; i < SH_BENCH_SUPERPEERS; i++)
        sh_child_stop(&cluster->superpeers[i]);
}

enum shoal_err sh_bench_cluster_restart(struct sh_bench_cluster *cluster)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < SH_BENCH_SUPERPEERS && !err; i++)
        err = member_start(cluster, true, i);
    return err;
}

enum shoal_err sh_bench_cluster_start(struct sh_bench_cluster *cluster, const char *name,
                                      unsigned peers, bool is_durable)
{
    SH_ASSERT(peers <= SH_BENCH_PEERS_MAX);
    *cluster = (struct sh_bench_cluster){.peers_count = peers, .is_durable = is_durable};
    enum shoal_err err = sh_bench_folder_make(name, cluster->folder, sizeof cluster->folder);
    if (!err)
        err = addresses_choose(cluster);
    if (!err)
        err = sh_bench_cluster_restart(cluster);
    for (unsigned i = 0; i < peers && !err; i++)
        err = member_start(cluster, false, i);
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
static bool is_whole(const struct sh_report *report)
{
    bool is_whole = report->shard_count > 0;
    for (unsigned i = 0; i < report->shard_count; i++)
        is_whole &= report->shards[i].owner &&
                    __builtin_popcountll(report->shards[i].replicas) == SH_BENCH_SUPERPEERS;
    return is_whole;
}

enum shoal_err sh_bench_cluster_await(shoal *store)
{
    static struct sh_report report;
    uint64_t deadline_ns = sh_bench_now_ns() + SH_BENCH_TIMEOUT_NS;
    while (sh_client_report(store, (shoal_nid){1}, &report) || !is_whole(&report)) {
        if (sh_bench_now_ns() > deadline_ns)
            return SHOAL_ETIMEOUT;
        (void)poll(NULL, 0, 10);
    }
    return SHOAL_OK;
}

unsigned sh_bench_cluster_leader(const struct sh_bench_cluster *cluster)
{
    unsigned leader = 0;
    uint64_t best = 0;
    for (unsigned i = 0; i < SH_BENCH_SUPERPEERS; i++) {
        char path[192], line[512];
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

bool sh_bench_cluster_says(const struct sh_bench_cluster *cluster, bool of_superpeers,
                           const char *text)
{
    bool is_said = false;
    for (unsigned i = 0; i < (of_superpeers ? SH_BENCH_SUPERPEERS : cluster->peers_count); i++) {
        char path[192], line[512];
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
