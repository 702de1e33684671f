/* `shoal bench graph`: loading a graph and traversing it, with --nodes peers.
 *
 * The peers and the coordinator are threads of this process, each with its own messaging, talking
 * over loopback TCP as separate processes would; what they share is the processor. The graph has
 * --count edges over a sixteenth as many vertices, drawn from --seed: sources uniform, targets the
 * smaller of two draws, so that degrees differ as in real graphs, mildly.
 *
 * load   reads the edge list from a file and ends with the live graph; an operation is an edge.
 * bfs    directed traversals from the same root, for --seconds; an operation is an edge traversed.
 *        The latency is that of a whole traversal.
 *
 * The digest is that of the level counts (load: of the counts of vertices and edges). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "bench/bench.h"
#include "bench/benches.h"
#include "graph/bfs.h"
#include "graph/load.h"
#include "msg/tcp.h"

#define PEERS_MAX 16
#define EDGES_PER_VERTEX 16

const char *const sh_bench_graph_cases[] = {"load", "bfs", NULL};
const char *const sh_bench_graph_baselines[] = {NULL};

struct plan {
    uint64_t edges;
    uint64_t vertices;
    unsigned nodes;
    double seconds;
    uint64_t seed;
};

/* A peer; or, with the number `nodes`, the coordinator, which has neither store nor graph. */
struct member {
    struct ring *ring;
    unsigned thread;
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_graph *graph;
    char address[SH_MSG_ADDRESS_MAX];
};

/* The cluster under measurement. */
struct ring {
    const struct plan *plan;
    struct sh_clock clock;
    struct sh_crew *crew;
    struct member members[PEERS_MAX + 1];
    shoal_nid peers[PEERS_MAX];
    struct sh_caller caller;
    bool loaded;
    char path[64]; /* of the edge list */
};

static void wake(void *arg)
{
    struct member *member = arg;
    sh_crew_wake(member->ring->crew, member->thread);
}

static uint64_t crew_now(void *arg)
{
    return sh_now(arg);
}

static enum shoal_err member_serve(struct member *member)
{
    struct ring *ring = member->ring;
    enum shoal_err err = sh_msg_listen(member->msg, "127.0.0.1:0", member->address);
    if (err)
        return err;
    struct sh_store_config store = {
        .bytes_max = (UINT64_C(64) << 20) + ring->plan->edges * 64,
        .chunk_bytes_max = 64u << 20,
    };
    err = sh_store_create(&store, &member->store);
    if (!err)
        err = sh_backup_create(&(struct sh_backup_config){.store = member->store}, &member->backup);
    if (err)
        return err;
    struct sh_graph_config graph = {.msg = member->msg,
                                    .store = member->store,
                                    .backup = member->backup,
                                    .clock = &ring->clock,
                                    .wake = wake,
                                    .arg = member};
    err = sh_graph_create(&graph, &member->graph);
    if (!err)
        sh_crew_step_add(ring->crew, member->thread, sh_graph_step(member->graph));
    return err;
}

static enum shoal_err member_open(struct ring *ring, unsigned index)
{
    struct member *member = &ring->members[index];
    bool peer = index < ring->plan->nodes;
    member->ring = ring;
    member->thread = index;
    enum shoal_err err = sh_tcp_create(2 * PEERS_MAX, &member->wire);
    if (err)
        return err;
    struct sh_msg_config config = {
        .nid = {(uint16_t)(peer ? index + 1 : 0)},
        .cluster = "bench",
        .connections_max = 2 * PEERS_MAX,
        .requests_max = 1024,
        .ring_bytes = 1u << 20,
        .payload_bytes_max = 64u << 20,
        .request_timeout_ns = UINT64_C(60000000000),
        .connect_timeout_ns = UINT64_C(10000000000),
        .env = {.clock = ring->clock, .random = sh_real_random(), .wire = member->wire},
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = member,
    };
    err = sh_msg_create(&config, &member->msg);
    if (err)
        return err;
    sh_crew_step_add(ring->crew, index, sh_msg_transport_step(member->msg));
    sh_crew_step_add(ring->crew, index, sh_msg_handler_step(member->msg));
    sh_crew_parker_set(ring->crew, index, sh_msg_parker(member->msg));
    return peer ? member_serve(member) : SHOAL_OK;
}

static void ring_close(struct ring *ring)
{
    if (ring->crew)
        sh_crew_stop(ring->crew);
    for (unsigned i = 0; i <= ring->plan->nodes; i++) {
        struct member *member = &ring->members[i];
        if (member->msg)
            sh_msg_destroy(member->msg);
        sh_graph_destroy(member->graph);
        sh_backup_destroy(member->backup);
        sh_store_destroy(member->store);
        if (member->wire)
            member->wire->ops->destroy(member->wire);
    }
    sh_crew_destroy(ring->crew);
    if (ring->path[0])
        (void)unlink(ring->path);
}

static enum shoal_err ring_open(struct ring *ring)
{
    unsigned nodes = ring->plan->nodes;
    ring->clock = sh_real_clock();
    struct sh_crew_config crew = {
        .name = "graph",
        .threads = nodes + 1,
        .lends = true,
        .idle = {.spin_ns = 10000, .park_ns = 20000, .silence_ns = 1000000000},
        .now_ns = crew_now,
        .now_arg = &ring->clock,
    };
    enum shoal_err err = sh_crew_create(&crew, &ring->crew);
    for (unsigned i = 0; i <= nodes && !err; i++)
        err = member_open(ring, i);
    for (unsigned i = 0; i < nodes && !err; i++) {
        ring->peers[i].v = (uint16_t)(i + 1);
        for (unsigned j = 0; j <= nodes && !err; j++) {
            if (i != j)
                err =
                    sh_msg_node_set(ring->members[j].msg, ring->peers[i], ring->members[i].address);
        }
    }
    if (!err)
        err = sh_crew_start(ring->crew);
    ring->caller = (struct sh_caller){.msg = ring->members[nodes].msg,
                                      .crew = ring->crew,
                                      .thread = nodes,
                                      .clock = &ring->clock};
    return err;
}

/* Writes the edge list; the first edge leaves vertex 0, the root of the traversals. */
static enum shoal_err edges_write(struct ring *ring)
{
    const struct plan *plan = ring->plan;
    const char *folder = getenv("TMPDIR");
    (void)snprintf(ring->path, sizeof ring->path, "%.32s/shoal-bench-XXXXXX",
                   folder ? folder : "/tmp");
    int fd = mkstemp(ring->path);
    if (fd < 0) {
        ring->path[0] = '\0';
        return SHOAL_EIO;
    }
    FILE *file = fdopen(fd, "w");
    if (!file) {
        (void)close(fd);
        return SHOAL_EIO;
    }
    bool good = fprintf(file, "0 1\n") > 0;
    for (uint64_t i = 1; i < plan->edges && good; i++) {
        uint64_t draw = plan->seed * UINT64_C(0x9e3779b97f4a7c15) + 4 * i;
        uint64_t source = sh_mix64(draw) % plan->vertices;
        uint64_t a = sh_mix64(draw + 1) % plan->vertices;
        uint64_t b = sh_mix64(draw + 2) % plan->vertices;
        good = fprintf(file, "%llu %llu\n", (unsigned long long)source,
                       (unsigned long long)(a < b ? a : b)) > 0;
    }
    return fclose(file) == 0 && good ? SHOAL_OK : SHOAL_EIO;
}

static enum shoal_err load(struct ring *ring, struct sh_graph_load_report *report_out)
{
    struct sh_graph_load_options options = {.edges_path = ring->path};
    enum shoal_err err =
        sh_graph_load(&ring->caller, ring->peers, ring->plan->nodes, &options, report_out, NULL);
    ring->loaded = !err;
    return err;
}

static enum shoal_err unload(struct ring *ring)
{
    if (!ring->loaded)
        return SHOAL_OK;
    ring->loaded = false;
    return sh_graph_drop(&ring->caller, ring->peers, ring->plan->nodes, NULL);
}

static enum shoal_err load_run(void *arg, const struct sh_bench_flags *flags,
                               enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct ring *ring = arg;
    sh_bench_pin(placement, 0);
    enum shoal_err err = unload(ring);
    if (err)
        return err;
    uint64_t cpu_ns = sh_bench_cpu_ns();
    struct sh_graph_load_report report;
    err = load(ring, &report);
    if (err)
        return err;
    uint64_t counts[2] = {report.vertices, report.edges};
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->seconds = report.seconds;
    result_out->ops = report.lines;
    result_out->bytes_per_chunk = (double)report.chunk_bytes / (double)report.vertices;
    result_out->digest = sh_hash64(sh_bytes_make(counts, sizeof counts), 0);
    return SHOAL_OK;
}

static enum shoal_err bfs_run(void *arg, const struct sh_bench_flags *flags,
                              enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct ring *ring = arg;
    sh_bench_pin(placement, 0);
    struct sh_graph_load_report report;
    enum shoal_err err = ring->loaded ? SHOAL_OK : load(ring, &report);
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    while (!err && result_out->seconds < ring->plan->seconds) {
        struct sh_graph_bfs_result result;
        err = sh_graph_bfs(&ring->caller, ring->peers, ring->plan->nodes, 0, false, &result, NULL);
        if (err)
            break;
        result_out->ops += result.edges_traversed;
        sh_hist_add(&result_out->latency_ns, (uint64_t)(result.seconds * 1e9));
        result_out->digest =
            sh_hash64(sh_bytes_make(result.levels, (size_t)(result.depth + 1) * 8), 0);
        sh_graph_bfs_result_free(&result);
        result_out->seconds = (double)(sh_bench_now_ns() - start_ns) / 1e9;
    }
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    return err;
}

static enum shoal_err case_measure(struct sh_bench *bench, const char *name, sh_bench_run run,
                                   struct ring *ring)
{
    if (!sh_bench_case_wanted(bench, name))
        return SHOAL_OK;
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(bench, placements);
    char extra[96];
    (void)snprintf(extra, sizeof extra, "count=%llu nodes=%u",
                   (unsigned long long)ring->plan->edges, ring->plan->nodes);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < count && !err; i++)
        err = sh_bench_measure(bench, name, placements[i], extra, run, ring, NULL, NULL, NULL);
    return err;
}

enum shoal_err sh_bench_graph(struct sh_bench *bench)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    struct plan plan = {
        .edges = flags->count ? flags->count : 1000000,
        .nodes = flags->nodes ? flags->nodes : 1,
        .seconds = flags->seconds > 0 ? flags->seconds : 1,
        .seed = flags->seed,
    };
    plan.vertices = plan.edges / EDGES_PER_VERTEX + 2;
    if (plan.nodes > PEERS_MAX || plan.edges > UINT64_C(1) << 32) {
        return sh_bench_refuse(bench, "it takes --nodes to 16 and --count to 2^32");
    }
    struct ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return SHOAL_ENOMEM;
    ring->plan = &plan;
    enum shoal_err err = ring_open(ring);
    if (!err)
        err = edges_write(ring);
    if (!err)
        err = case_measure(bench, "load", load_run, ring);
    if (!err)
        err = case_measure(bench, "bfs", bfs_run, ring);
    ring_close(ring);
    free(ring);
    return err;
}
