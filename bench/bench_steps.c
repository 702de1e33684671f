/* The longest steps of nodes under the largest requests that there are. Each run starts a superpeer
 * and two peers, processes with default options, and sends them one kind of request after the other
 * for --seconds, or in `mix` all kinds at once, each from a client of its own:
 *
 *   create    --count chunks (2^20) with one request, of one size and of many; reserved, filled,
 *             freed
 *   huge      one chunk of --size bytes (64 MiB): created, put, got, compared, resized, removed
 *   multi     --count / 16 chunks: many written, read, resized and removed with one call
 *   dump      all that one peer has: --count / 4 chunks, and what the other kinds create there
 *   migrate   --count / 64 chunks, to the other peer and back
 *   connect   clients that come and go
 *   connect-tls  the same where all speak TLS, with certificates made by the program openssl; not in
 *             `mix`
 *   graph     --count edges over --count / 8 vertices: loaded from a file, traversed from the root both
 *             ways, dropped; not in `mix`, for peers with a graph take no migrations
 *
 * One operation is one round of these. What is wanted is not how many there are, but what nodes say
 * of their steps afterwards (`shoal status`): the bar is that none took more than 1 ms of a
 * processor. For as long again the machine is asked, without nodes, how long steps seem to take that do
 * nothing (bench/idle_steps.h).
 */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/benches.h"
#include "bench/child.h"
#include "bench/idle_steps.h"
#include "bench/server_node.h"
#include "client/client.h"
#include "graph/bfs.h"
#include "graph/load.h"
#include "shoal/shoal.h"

#define PEERS 2
#define NODES_MAX (PEERS + 1)
#define KINDS 6 /* of `mix` */
#define EDGES_PER_VERTEX 8
#define COUNT (UINT64_C(1) << 20)
#define SIZE (UINT64_C(64) << 20)
#define SECONDS 3.0
#define TIMEOUT_NS UINT64_C(120000000000)
#define STORE_BYTES "2GiB"
#define ROWS_SHOWN 10

const char *const sh_bench_steps_cases[] = {"create",  "huge", "multi",       "dump",  "migrate",
                                            "connect", "mix",  "connect-tls", "graph", NULL};
const char *const sh_bench_steps_baselines[] = {NULL};

/* A superpeer and two peers; the folders of the latter. */
struct cluster {
    char folder[64];
    char address[32]; /* the superpeer's */
    struct sh_child superpeer, peers[PEERS];
    bool has_tls;
    char cert[96], key[96], ca[96]; /* files, with TLS */
    shoal_nid nids[PEERS];
};

/* One client and what it does. */
struct client {
    const struct cluster *cluster;
    enum shoal_err (*round)(struct client *client);
    shoal *store;
    uint64_t count, size;
    uint64_t until_ns;
    uint64_t rounds;
    enum shoal_err err;
    char detail[200];
};

/* --- Nodes --------------------------------------------------------------------------------- */

struct member {
    const struct cluster *cluster;
    unsigned index; /* of a peer */
    bool is_superpeer;
};

static void member_main(void *arg, int report_fd)
{
    const struct member *member = arg;
    struct sh_node_run *node;
    const char *bad = NULL;
    size_t bad_len = 0;
    char folder[96];
    snprintf(folder, sizeof folder, "%s/peer%u", member->cluster->folder, member->index);
    const struct cluster *cluster = member->cluster;
    bool is_peer = !member->is_superpeer, has_tls = cluster->has_tls;
    const struct sh_server_setting settings[] = {
        {"cluster", "bench"},
        {"roles", is_peer ? "peer" : "superpeer"},
        {"listen", "127.0.0.1:0"},
        {"registry", is_peer ? NULL : "memory"},
        {"superpeers", is_peer ? cluster->address : NULL},
        {"data_dir", is_peer ? folder : NULL},
        {"store_bytes_max", is_peer ? STORE_BYTES : NULL},
        {"tls", has_tls ? "on" : NULL},
        {"tls_cert_file", has_tls ? cluster->cert : NULL},
        {"tls_key_file", has_tls ? cluster->key : NULL},
        {"tls_ca_file", has_tls ? cluster->ca : NULL},
    };
    if (sh_log_levels_set("warn", &bad, &bad_len))
        return;
    if (!sh_server_node_run(settings, sizeof settings / sizeof *settings, &node))
        sh_server_serve(node, report_fd);
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
    for (unsigned i = 0; i < PEERS; i++)
        sh_child_stop(&cluster->peers[i]);
    sh_child_stop(&cluster->superpeer);
    folder_remove(cluster->folder);
}

/* Makes an authority and a certificate that it has signed, for all nodes and clients. */
static enum shoal_err certificates_make(struct cluster *cluster)
{
    char command[1024];
    snprintf(cluster->ca, sizeof cluster->ca, "%s/ca.pem", cluster->folder);
    snprintf(cluster->cert, sizeof cluster->cert, "%s/node.pem", cluster->folder);
    snprintf(cluster->key, sizeof cluster->key, "%s/node.key", cluster->folder);
    snprintf(command, sizeof command,
             "cd %s && k='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes' && "
             "openssl req -x509 $k -keyout ca.key -out ca.pem -subj /CN=ca -days 3 2>log && "
             "openssl req $k -keyout node.key -out node.csr -subj /CN=node 2>log && "
             "openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial "
             "-out node.pem -days 3 2>log",
             cluster->folder);
    if (system(command) == 0)
        return SHOAL_OK;
    SH_ERROR("bench", "no certificates: the program openssl made none",
             SH_TEXT("folder", cluster->folder));
    return SHOAL_EIO;
}

static enum shoal_err cluster_start(struct cluster *cluster, bool has_tls)
{
    *cluster = (struct cluster){.folder = "/tmp/shoal-steps-XXXXXX", .has_tls = has_tls};
    if (!mkdtemp(cluster->folder) || (has_tls && certificates_make(cluster)))
        return SHOAL_EIO;
    struct member member = {.cluster = cluster, .is_superpeer = true};
    enum shoal_err err = sh_child_start(member_main, &member, SH_PLACE_FREE, &cluster->superpeer);
    snprintf(cluster->address, sizeof cluster->address, "127.0.0.1:%u",
             (unsigned)cluster->superpeer.port);
    member.is_superpeer = false;
    for (member.index = 0; member.index < PEERS && !err; member.index++)
        err = sh_child_start(member_main, &member, SH_PLACE_FREE, &cluster->peers[member.index]);
    if (err)
        cluster_stop(cluster);
    return err;
}

static enum shoal_err store_open(const struct cluster *cluster, shoal **store_out)
{
    struct shoal_options options = {
        .addresses = cluster->address, .cluster = "bench", .timeout_ns = TIMEOUT_NS};
    if (cluster->has_tls) {
        options.tls_cert_file = cluster->cert;
        options.tls_key_file = cluster->key;
        options.tls_ca_file = cluster->ca;
    }
    return shoal_open(&options, store_out);
}

static enum shoal_err peers_find(struct cluster *cluster, shoal *store)
{
    struct shoal_node nodes[NODES_MAX];
    size_t count = 0, found = 0;
    enum shoal_err err = shoal_nodes(store, nodes, NODES_MAX, &count);
    for (size_t i = 0; !err && i < count && i < NODES_MAX; i++) {
        if (nodes[i].role == SHOAL_PEER && found < PEERS)
            cluster->nids[found++] = nodes[i].nid;
    }
    return err ? err : found == PEERS ? SHOAL_OK : SHOAL_ENONODE;
}

/* --- What is asked ------------------------------------------------------------------------- */

enum multi { GET, PUT, RESIZE, REMOVE };

/* Does one thing to all of the chunks with one call, whose bytes lie in one array. */
static enum shoal_err all_do(shoal *store, enum multi what, const shoal_cid *cids, uint64_t count,
                             uint8_t *bytes, uint32_t size)
{
    struct shoal_op *ops = calloc(count, sizeof *ops);
    if (!ops)
        return SHOAL_ENOMEM;
    for (uint64_t i = 0; i < count; i++)
        ops[i] = (struct shoal_op){.cid = cids[i], .data = bytes + i * size, .size = size};
    enum shoal_err err = what == GET      ? shoal_multi_get(store, ops, count)
                         : what == PUT    ? shoal_multi_put(store, ops, count)
                         : what == RESIZE ? shoal_multi_resize(store, ops, count)
                                          : shoal_multi_remove(store, ops, count);
    free(ops);
    return err;
}

static enum shoal_err create_round(struct client *client)
{
    uint64_t count = client->count;
    shoal_cid *cids = calloc(count, sizeof *cids);
    uint32_t *sizes = calloc(count, sizeof *sizes);
    uint8_t none = 0;
    enum shoal_err err = cids && sizes ? SHOAL_OK : SHOAL_ENOMEM;
    for (uint64_t i = 0; !err && i < count; i++)
        sizes[i] = i % 4096 == 0 ? (uint32_t)(client->size / 1024) : (uint32_t)(i % 64);
    shoal_nid where = client->cluster->nids[0];
    if (!err)
        err = shoal_create_many(client->store, where, 16, count, cids);
    if (!err)
        err = all_do(client->store, REMOVE, cids, count, &none, 0);
    if (!err)
        err = shoal_create_sizes(client->store, where, sizes, count, cids);
    if (!err)
        err = all_do(client->store, REMOVE, cids, count, &none, 0);
    if (!err)
        err = shoal_create_consecutive(client->store, where, 64, count / 4, cids);
    if (!err)
        err = all_do(client->store, REMOVE, cids, count / 4, &none, 0);
    free(sizes);
    free(cids);
    return err;
}

static enum shoal_err huge_round(struct client *client)
{
    uint32_t size = (uint32_t)client->size, got;
    uint8_t *bytes = malloc(size), *others = malloc(size);
    shoal_cid cid;
    enum shoal_err err = bytes && others ? SHOAL_OK : SHOAL_ENOMEM;
    if (!err)
        err = shoal_create(client->store, client->cluster->nids[1], size, &cid);
    if (err)
        goto out;
    memset(bytes, 1, size);
    memset(others, 2, size);
    err = shoal_put(client->store, cid, bytes, size);
    if (!err)
        err = shoal_get(client->store, cid, others, size, &got);
    if (!err && memcmp(bytes, others, size) != 0)
        err = SHOAL_EINTERNAL;
    if (!err)
        err = shoal_put_if(client->store, cid, others, size, bytes, size);
    if (!err)
        err = shoal_resize(client->store, cid, size / 2);
    if (!err)
        err = shoal_remove(client->store, cid);
out:
    free(others);
    free(bytes);
    return err;
}

static enum shoal_err multi_round(struct client *client)
{
    uint64_t count = client->count / 16 + 1;
    const uint32_t size = 64, larger = 200;
    shoal_cid *cids = calloc(count, sizeof *cids);
    uint8_t *bytes = calloc(count, larger);
    enum shoal_err err = cids && bytes ? SHOAL_OK : SHOAL_ENOMEM;
    if (!err)
        err = shoal_create_many(client->store, client->cluster->nids[0], size, count, cids);
    if (!err)
        err = all_do(client->store, PUT, cids, count, bytes, size);
    if (!err)
        err = all_do(client->store, GET, cids, count, bytes, size);
    if (!err)
        err = all_do(client->store, RESIZE, cids, count, bytes, larger);
    if (!err)
        err = all_do(client->store, GET, cids, count, bytes, larger);
    if (!err)
        err = all_do(client->store, REMOVE, cids, count, bytes, larger);
    free(bytes);
    free(cids);
    return err;
}

/* Waits while the peer is at another job of that kind, or chunks are just on their way. */
static bool is_passing(const struct client *client, enum shoal_err err)
{
    return err == SHOAL_EBUSY && sh_bench_now_ns() < client->until_ns;
}

static enum shoal_err dump_round(struct client *client)
{
    struct shoal_dump_sums sums;
    shoal_nid where = client->cluster->nids[1];
    enum shoal_err err = SHOAL_OK;
    uint64_t count = client->rounds == 0 ? client->count / 4 + 1 : 0;
    shoal_cid *cids = calloc(count + 1, sizeof *cids);
    if (!cids)
        return SHOAL_ENOMEM;
    if (count > 0)
        err = shoal_create_many(client->store, where, 100, count, cids);
    free(cids);
    if (err)
        return err;
    do {
        err = shoal_dump(client->store, where, "steps", NULL, NULL, &sums);
    } while (is_passing(client, err));
    return err == SHOAL_EBUSY ? SHOAL_OK : err;
}

static enum shoal_err migrate_round(struct client *client)
{
    uint64_t count = client->count / 64 + 1;
    const shoal_nid *nids = client->cluster->nids;
    shoal_cid *cids = calloc(count, sizeof *cids);
    uint8_t none = 0;
    struct shoal_migration_sums sums;
    if (!cids)
        return SHOAL_ENOMEM;
    enum shoal_err err = shoal_create_consecutive(client->store, nids[0], 64, count, cids);
    for (unsigned i = 0; i < 2 && !err; i++) {
        struct shoal_migration way = {
            .first = cids[0], .last = cids[count - 1], .target = nids[1 - i % 2]};
        do {
            err = shoal_migrate(client->store, nids[i % 2], &way, NULL, NULL, &sums);
        } while (is_passing(client, err));
        if (err == SHOAL_EBUSY)
            err = SHOAL_OK;
    }
    if (!err)
        err = all_do(client->store, REMOVE, cids, count, &none, 0);
    free(cids);
    return err;
}

static enum shoal_err connect_round(struct client *client)
{
    shoal *stores[8] = {NULL};
    shoal_cid cid;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < 8 && !err; i++) {
        err = store_open(client->cluster, &stores[i]);
        if (!err)
            err = shoal_create(stores[i], client->cluster->nids[i % PEERS], 8, &cid);
        if (!err)
            err = shoal_remove(stores[i], cid);
    }
    for (unsigned i = 0; i < 8; i++)
        shoal_close(stores[i]);
    return err;
}

/* Vertex 0 has an edge to each 64th vertex, the others lead anywhere: a hub in the middle of a graph
 * without places. */
static enum shoal_err edges_write(const struct client *client, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return SHOAL_EIO;
    uint64_t vertices = client->count / EDGES_PER_VERTEX + 2;
    for (uint64_t i = 0; i < client->count; i++) {
        bool is_hubs = i % 64 == 0;
        uint64_t source = is_hubs ? UINT64_C(0) : sh_mix64(2 * i) % vertices;
        uint64_t target = (is_hubs ? i : sh_mix64(2 * i + 1)) % vertices;
        fprintf(file, "%" PRIu64 " %" PRIu64 "\n", source, target);
    }
    bool is_written = !ferror(file);
    return fclose(file) == 0 && is_written ? SHOAL_OK : SHOAL_EIO;
}

static enum shoal_err graph_round(struct client *client)
{
    char path[96];
    snprintf(path, sizeof path, "%s/edges", client->cluster->folder);
    const shoal_nid *nids = client->cluster->nids;
    struct sh_caller caller = sh_client_caller(client->store);
    struct sh_graph_load_options options = {.edges_path = path};
    struct sh_graph_load_report report;
    enum shoal_err err = client->rounds == 0 ? edges_write(client, path) : SHOAL_OK;
    if (!err)
        err = sh_graph_load(&caller, nids, PEERS, &options, &report, NULL);
    for (unsigned i = 0; i < 2 && !err; i++) {
        struct sh_graph_bfs_result result;
        err = sh_graph_bfs(&caller, nids, PEERS, 0, i == 1, &result, NULL);
        if (!err)
            sh_graph_bfs_result_free(&result);
    }
    return err ? err : sh_graph_drop(&caller, nids, PEERS, NULL);
}

static enum shoal_err (*const rounds[])(struct client *client) = {
    create_round,  huge_round,    multi_round,   dump_round,
    migrate_round, connect_round, connect_round, graph_round};

/* --- Running ------------------------------------------------------------------------------- */

static void *client_main(void *arg)
{
    struct client *client = arg;
    client->err = store_open(client->cluster, &client->store);
    while (!client->err && (client->rounds == 0 || sh_bench_now_ns() < client->until_ns)) {
        client->err = client->round(client);
        client->rounds++;
    }
    if (client->err)
        snprintf(client->detail, sizeof client->detail, "%s", shoal_error_detail());
    shoal_close(client->store);
    return NULL;
}

/* Adds a node's longest steps to what there is of each kind. */
static void rows_add(struct sh_steps_row *all, size_t *all_count, const struct sh_steps_row *rows,
                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < *all_count && strcmp(all[at].name, rows[i].name) != 0)
            at++;
        if (at == SH_STEPS_ROWS_MAX)
            return;
        if (at == *all_count)
            all[(*all_count)++] = rows[i];
        else
            sh_step_report_merge(&all[at].time, rows[i].time);
    }
}

static int longest_first(const void *a, const void *b)
{
    uint64_t x = ((const struct sh_steps_row *)a)->time.longest_ns;
    uint64_t y = ((const struct sh_steps_row *)b)->time.longest_ns;
    return (x < y) - (x > y);
}

/* What a case has found, over all runs. */
struct found {
    const char *name;
    bool has_tls;
    unsigned first, count; /* of rounds */
    struct sh_steps_row rows[SH_STEPS_ROWS_MAX];
    size_t rows_count;
};

static enum shoal_err steps_collect(const struct cluster *cluster, struct found *found)
{
    static struct sh_steps_row rows[SH_STEPS_ROWS_MAX];
    struct shoal_node nodes[NODES_MAX];
    size_t count = 0, rows_count;
    shoal *store;
    enum shoal_err err = store_open(cluster, &store);
    if (err)
        return err;
    err = shoal_nodes(store, nodes, NODES_MAX, &count);
    for (size_t i = 0; i < count && i < NODES_MAX && !err; i++) {
        err = nodes[i].state == SHOAL_NODE_UP
                  ? sh_client_steps(store, nodes[i].nid, rows, &rows_count)
                  : SHOAL_EFAILED; /* nothing that is asked may cost a node its lease */
        if (!err)
            rows_add(found->rows, &found->rows_count, rows, rows_count);
    }
    shoal_close(store);
    return err;
}

static enum shoal_err clients_run(const struct cluster *cluster, const struct found *found,
                                  const struct sh_bench_flags *flags,
                                  struct sh_bench_result *result_out)
{
    static struct client clients[KINDS];
    pthread_t threads[KINDS];
    uint64_t begun_ns = sh_bench_now_ns();
    double seconds = flags->seconds > 0 ? flags->seconds : SECONDS;
    enum shoal_err err = SHOAL_OK;
    unsigned started = 0;
    for (; started < found->count && !err; started++) {
        /* --count makes the huge ones small too, so that a tiny run is one. */
        uint64_t count = flags->count ? flags->count : COUNT;
        uint64_t size = flags->size ? flags->size : count * (SIZE / COUNT);
        clients[started] = (struct client){.cluster = cluster,
                                           .round = rounds[found->first + started],
                                           .count = count < COUNT ? count : COUNT,
                                           .size = size < SIZE ? size : SIZE,
                                           .until_ns = begun_ns + (uint64_t)(seconds * 1e9)};
        if (pthread_create(&threads[started], NULL, client_main, &clients[started]) != 0)
            err = SHOAL_ENOMEM;
    }
    for (unsigned i = 0; i < started - (err != SHOAL_OK); i++) {
        pthread_join(threads[i], NULL);
        result_out->ops += clients[i].rounds;
        if (clients[i].err && !err) {
            err = clients[i].err;
            SH_ERROR("bench", "a client failed", SH_TEXT("case", found->name), SH_U64("client", i),
                     SH_ERR(err), SH_TEXT("detail", clients[i].detail));
        }
    }
    result_out->seconds = (double)(sh_bench_now_ns() - begun_ns) / 1e9;
    return err;
}

static enum shoal_err steps_run(void *arg, const struct sh_bench_flags *flags,
                                enum sh_placement placement, struct sh_bench_result *result_out)
{
    static struct cluster cluster;
    struct found *found = arg;
    shoal *store = NULL;
    (void)placement;
    enum shoal_err err = cluster_start(&cluster, found->has_tls);
    if (err)
        return err;
    err = store_open(&cluster, &store);
    if (!err)
        err = peers_find(&cluster, store);
    shoal_close(store);
    if (!err)
        err = clients_run(&cluster, found, flags, result_out);
    if (!err)
        err = steps_collect(&cluster, found);
    cluster_stop(&cluster);
    if (err)
        SH_ERROR("bench", "steps not measured", SH_TEXT("case", found->name), SH_ERR(err));
    return err;
}

static enum shoal_err idle_print(struct sh_bench *bench, const struct found *found)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    char text[160];
    struct sh_idle_steps steps;
    double seconds = flags->seconds > 0 ? flags->seconds : SECONDS;
    enum shoal_err err = sh_idle_steps_measure(seconds * (flags->runs + 1), &steps);
    if (err) {
        SH_ERROR("bench", "no threads for steps that do nothing", SH_TEXT("case", found->name),
                 SH_ERR(err));
        return err;
    }
    snprintf(text, sizeof text,
             "  of %" PRIu64 " steps that do nothing for 250 us: %.3f ms, %" PRIu64 " above 1 ms",
             steps.count, (double)steps.longest_ns / 1e6, steps.over_1ms);
    sh_bench_note(bench, text);
    return SHOAL_OK;
}

static void found_print(struct sh_bench *bench, struct found *found)
{
    char text[160];
    qsort(found->rows, found->rows_count, sizeof found->rows[0], longest_first);
    for (size_t i = 0; i < found->rows_count && i < ROWS_SHOWN; i++) {
        snprintf(text, sizeof text, "  %-32s %10.3f ms  %8" PRIu64 " above 1 ms",
                 found->rows[i].name, (double)found->rows[i].time.longest_ns / 1e6,
                 found->rows[i].time.over);
        sh_bench_note(bench, text);
    }
    double longest_ms = found->rows_count > 0 ? (double)found->rows[0].time.longest_ns / 1e6 : 0;
    struct sh_bench_bar bar = {.case_name = found->name,
                               .placement = SH_PLACE_FREE,
                               .extra = "nodes=3",
                               .what = "ms of processor time, the longest step",
                               .figure = longest_ms,
                               .limit = 1.0};
    sh_bench_bar_print(bench, &bar);
}

enum shoal_err sh_bench_steps(struct sh_bench *bench)
{
    static struct found found;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; sh_bench_steps_cases[i] && !err; i++) {
        if (!sh_bench_case_wanted(bench, sh_bench_steps_cases[i]))
            continue;
        found = (struct found){.name = sh_bench_steps_cases[i], .first = i, .count = 1};
        if (i == KINDS) {
            found.first = 0;
            found.count = KINDS;
        } else if (i > KINDS) {
            found.first = i - 1; /* `mix` is none of the kinds */
            found.has_tls = i == KINDS + 1;
        }
        err = sh_bench_measure(bench, found.name, SH_PLACE_FREE, "nodes=3", steps_run, &found, NULL,
                               NULL, NULL);
        if (!err)
            found_print(bench, &found);
        if (!err)
            err = idle_print(bench, &found);
    }
    return err;
}
