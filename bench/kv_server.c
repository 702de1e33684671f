#include "bench/kv_server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/cluster.h"
#include "bench/server_node.h"
#include "msg/msg.h"

#define STORE_BYTES_MIN (UINT64_C(1) << 30)
#define CHUNK_BYTES_MIN (UINT64_C(1) << 26)
#define ZONE_BYTES_MIN (UINT64_C(1) << 28)

/* One process's. */
struct server {
    const struct sh_kv_shape *shape;
    enum sh_placement placement;
    const struct sh_kv_servers *servers;
    unsigned index;
    bool has_superpeer, has_peer;
    int asked; /* the child's end of its socket */
};

/* How long the peer spins and parks: always, never, or as by default. */
static const char *peer_spin(enum sh_placement placement)
{
    if (placement == SH_PLACE_FREE)
        return NULL;
    return sh_bench_spins(placement) ? "1s" : "0";
}

static const char *peer_park(enum sh_placement placement)
{
    return placement == SH_PLACE_FREE || sh_bench_spins(placement) ? NULL : "0";
}

/* The folder of a process, which is made; NULL where nothing is logged. */
static const char *folder_of(const struct server *server, char *into, size_t room)
{
    if (!server->shape->replicas)
        return NULL;
    snprintf(into, room, "%s/%u", server->servers->folder, server->index);
    (void)mkdir(into, 0700);
    return into;
}

static enum shoal_err superpeer_run(const struct server *server, struct sh_node_run **node_out)
{
    char folder[160];
    const char *data_dir = folder_of(server, folder, sizeof folder);
    /* It shares the peer's core, so it takes it only when it has something to do. */
    const struct sh_server_setting settings[] = {
        {"cluster", "bench"},  {"roles", "superpeer"}, {"registry", data_dir ? "raft" : "memory"},
        {"spin_ns", "0"},      {"park_ns", "0"},       {"listen", "127.0.0.1:0"},
        {"data_dir", data_dir}};
    return sh_server_node_run(settings, sizeof settings / sizeof *settings, node_out);
}

static uint64_t at_least(uint64_t bytes, uint64_t least)
{
    return bytes > least ? bytes : least;
}

/* A peer, with replicas in logs where the shape wants them. */
static enum shoal_err peer_run(const struct server *server, const char *superpeers,
                               struct sh_node_run **node_out)
{
    const struct sh_bench_flags *flags = &server->shape->flags;
    char store[24], chunk[24], zone[24], replicas[12], folder[160];
    uint64_t chunk_bytes = at_least(flags->size, CHUNK_BYTES_MIN);
    bool is_logged = server->shape->replicas > 0;
    snprintf(store, sizeof store, "%" PRIu64,
             at_least(2 * flags->count * (flags->size + 64), STORE_BYTES_MIN));
    snprintf(chunk, sizeof chunk, "%" PRIu64, chunk_bytes);
    snprintf(zone, sizeof zone, "%" PRIu64, at_least(chunk_bytes, ZONE_BYTES_MIN));
    snprintf(replicas, sizeof replicas, "%u", server->shape->replicas);
    const struct sh_server_setting settings[] = {
        {"cluster", "bench"},
        {"roles", "peer"},
        {"listen", "127.0.0.1:0"},
        {"superpeers", superpeers},
        {"store_bytes_max", store},
        {"chunk_bytes_max", chunk},
        {"spin_ns", peer_spin(server->placement)},
        {"park_ns", peer_park(server->placement)},
        {"data_dir", folder_of(server, folder, sizeof folder)},
        {"replicas", is_logged ? replicas : NULL},
        {"replicas_at", !is_logged                 ? NULL
                        : server->shape->nodes > 1 ? "peers"
                                                   : "self"},
        {"zone_bytes", is_logged ? zone : NULL},
    };
    return sh_server_node_run(settings, sizeof settings / sizeof *settings, node_out);
}

/* The bytes that this process gave to disks; 0 where the kernel does not tell. */
static uint64_t disk_bytes(void)
{
    char line[128];
    uint64_t bytes = 0;
    FILE *file = fopen("/proc/self/io", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "write_bytes: ", 13) == 0)
            bytes = strtoull(line + 13, NULL, 10);
    }
    if (file)
        fclose(file);
    return bytes;
}

static void count(const struct sh_node_run *node, struct sh_kv_counts *counts_out)
{
    struct sh_msg_stats stats;
    sh_msg_stats_get(sh_node_parts(node).msg, &stats);
    *counts_out = (struct sh_kv_counts){.nid = sh_node_nid(node).v,
                                        .messages = stats.messages_in + stats.messages_out,
                                        .bytes = stats.bytes_in + stats.bytes_out,
                                        .blocks_out = stats.blocks_out,
                                        .cpu_ns = sh_bench_cpu_ns(),
                                        .disk_bytes = disk_bytes()};
}

/* Reports the port, and answers the parent until it is gone. */
static void questions_answer(const struct server *server, const struct sh_node_run *node,
                             uint16_t port, int report_fd)
{
    struct sh_kv_counts counts;
    char question;
    sh_child_report(report_fd, port);
    while (recv(server->asked, &question, 1, 0) == 1) {
        count(node, &counts);
        if (send(server->asked, &counts, sizeof counts, MSG_NOSIGNAL) != (ssize_t)sizeof counts)
            return;
    }
}

static void server_main(void *arg, int report_fd)
{
    const struct server *server = arg;
    struct sh_node_run *superpeer = NULL, *peer = NULL;
    char superpeers[64];
    const char *bad = NULL;
    size_t bad_len = 0;
    if (sh_log_levels_set("warn", &bad, &bad_len) ||
        (server->has_superpeer && superpeer_run(server, &superpeer)))
        return;
    uint16_t port = superpeer ? sh_server_port(superpeer) : server->servers->children[0].port;
    snprintf(superpeers, sizeof superpeers, "127.0.0.1:%u", (unsigned)port);
    if (server->has_peer && peer_run(server, superpeers, &peer))
        return;
    questions_answer(server, peer ? peer : superpeer, port, report_fd);
}

static enum shoal_err server_start(struct sh_kv_servers *servers, const struct sh_kv_shape *shape,
                                   enum sh_placement placement, bool has_peer)
{
    int ends[2];
    SH_ASSERT(servers->count < SH_KV_SERVERS_MAX);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        SH_ERROR("bench", "no socket to a server process", SH_TEXT("cause", strerror(errno)));
        return SHOAL_EIO;
    }
    struct server server = {.shape = shape,
                            .placement = placement,
                            .servers = servers,
                            .index = servers->count,
                            .has_superpeer = servers->count == 0,
                            .has_peer = has_peer,
                            .asked = ends[1]};
    enum shoal_err err =
        sh_child_start(server_main, &server, placement, &servers->children[servers->count]);
    close(ends[1]);
    if (err)
        close(ends[0]);
    else
        servers->asks[servers->count++] = ends[0];
    return err;
}

enum shoal_err sh_kv_servers_start(const struct sh_kv_shape *shape, enum sh_placement placement,
                                   struct sh_kv_servers *servers_out)
{
    bool is_logged = shape->replicas > 0;
    *servers_out = (struct sh_kv_servers){.count = 0};
    SH_ASSERT(shape->nodes <= SH_KV_NODES_MAX);
    enum shoal_err err = SHOAL_OK;
    if (is_logged)
        err = sh_bench_folder_make("kv", servers_out->folder, sizeof servers_out->folder);
    if (!err)
        err = server_start(servers_out, shape, placement, !is_logged);
    for (unsigned i = 0; !err && is_logged && i < shape->nodes; i++)
        err = server_start(servers_out, shape, placement, true);
    return err;
}

void sh_kv_servers_stop(struct sh_kv_servers *servers)
{
    for (unsigned i = servers->count; i-- > 0;) {
        sh_child_stop(&servers->children[i]);
        close(servers->asks[i]);
    }
    servers->count = 0;
    if (servers->folder[0])
        sh_bench_folder_remove(servers->folder);
    servers->folder[0] = '\0';
}

enum shoal_err sh_kv_servers_count(const struct sh_kv_servers *servers, unsigned index,
                                   struct sh_kv_counts *counts_out)
{
    struct sh_kv_counts counts;
    SH_ASSERT(index < servers->count);
    int fd = servers->asks[index];
    if (send(fd, "?", 1, MSG_NOSIGNAL) != 1 ||
        recv(fd, &counts, sizeof counts, 0) != (ssize_t)sizeof counts) {
        SH_ERROR("bench", "a server process has ended", SH_U64("index", index));
        return SHOAL_EIO;
    }
    *counts_out = counts;
    return SHOAL_OK;
}
