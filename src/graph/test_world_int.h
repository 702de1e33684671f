/* What the tests of graphs share: a client and several peers in one process, over real TCP on
 * loopback, each with a crew of one thread, so that one of them can be killed. Failures abort. */
#ifndef SH_GRAPH_TEST_WORLD_INT_H
#define SH_GRAPH_TEST_WORLD_INT_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "graph/load.h"
#include "msg/tcp.h"

#define PEERS_MAX 3
#define STORE_BYTES (256u << 20)

/* What another thread wants a peer's step to be told of chunks, as its node would. */
struct told {
    _Atomic int state; /* 1: it is to be told; 2: it was */
    struct sh_graph *graph;
    shoal_cid first, last;
    bool came;
    /* What left last: the store has it still, which is why it has to be told that it is not served. */
    _Atomic bool left;
    shoal_cid left_first, left_last; /* the step's */
};

static inline unsigned told_run(void *arg)
{
    struct told *told = arg;
    if (atomic_load(&told->state) != 1)
        return 0;
    if (told->came)
        sh_graph_chunks_came(told->graph, told->first, told->last);
    else
        sh_graph_chunks_left(told->graph, told->first, told->last);
    told->left_first = told->first;
    told->left_last = told->last;
    atomic_store(&told->left, !told->came);
    atomic_store(&told->state, 2);
    return 1;
}

/* One node: peers have a store and a graph, the client (the last) has neither. All NULL: killed. */
struct node {
    struct sh_crew *crew;
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_graph *graph;
    struct told told;
    char address[SH_MSG_ADDRESS_MAX];
};

static inline bool told_serves(void *arg, shoal_cid cid, shoal_cid *last_out)
{
    const struct node *node = arg;
    const struct told *told = &node->told;
    *last_out = (shoal_cid){UINT64_MAX};
    if (!atomic_load(&told->left) || cid.v > told->left_last.v)
        return true;
    bool is_served = cid.v < told->left_first.v;
    last_out->v = is_served ? told->left_first.v - 1 : told->left_last.v;
    return is_served;
}

struct world {
    struct sh_clock clock;
    unsigned peer_count;
    struct node nodes[PEERS_MAX + 1];
    shoal_nid peers[PEERS_MAX];
    struct sh_caller caller;
};

static inline void test_ok(enum shoal_err err)
{
    SH_ASSERT(err == SHOAL_OK);
}

static inline void wake(void *arg)
{
    struct node *node = arg;
    sh_crew_wake(node->crew, 0);
}

static inline uint64_t crew_now(void *arg)
{
    return sh_now(arg);
}

static inline void node_open(struct world *world, unsigned index, uint64_t store_bytes,
                             uint64_t timeout_ns)
{
    struct node *node = &world->nodes[index];
    bool peer = index < world->peer_count;
    struct sh_crew_config crew = {
        .name = "test",
        .threads = 1,
        .lends = true,
        .idle = {.spin_ns = 0, .park_ns = 20000, .silence_ns = 100000000},
        .now_ns = crew_now,
        .now_arg = &world->clock,
    };
    test_ok(sh_crew_create(&crew, &node->crew));
    test_ok(sh_tcp_create(16, &node->wire));
    struct sh_msg_config config = {
        .nid = {(uint16_t)(peer ? index + 1 : 0)},
        .cluster = "test",
        .secret = sh_bytes_text("a secret of the test"),
        .connections_max = 16,
        .requests_max = 1024,
        .ring_bytes = 128 * 1024,
        .payload_bytes_max = 16u << 20,
        .request_timeout_ns = UINT64_C(20000000000),
        .connect_timeout_ns = UINT64_C(10000000000),
        .env = {.clock = world->clock, .random = sh_real_random(), .wire = node->wire},
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = node,
    };
    test_ok(sh_msg_create(&config, &node->msg));
    sh_crew_step_add(node->crew, 0, sh_msg_transport_step(node->msg));
    sh_crew_step_add(node->crew, 0, sh_msg_handler_step(node->msg));
    sh_crew_parker_set(node->crew, 0, sh_msg_parker(node->msg));
    if (!peer)
        return;
    world->peers[index].v = (uint16_t)(index + 1);
    test_ok(sh_msg_listen(node->msg, "127.0.0.1:0", node->address));
    struct sh_store_config store = {.bytes_max = store_bytes, .chunk_bytes_max = 1u << 20};
    test_ok(sh_store_create(&store, &node->store));
    test_ok(sh_backup_create(&(struct sh_backup_config){.store = node->store}, &node->backup));
    struct sh_graph_config graph = {
        .msg = node->msg,
        .store = node->store,
        .backup = node->backup,
        .clock = &world->clock,
        .load_timeout_ns = timeout_ns,
        .bfs_timeout_ns = timeout_ns,
        .wake = wake,
        .serves = told_serves,
        .arg = node,
    };
    test_ok(sh_graph_create(&graph, &node->graph));
    sh_crew_step_add(node->crew, 0, sh_graph_step(node->graph));
    node->told.graph = node->graph;
    sh_crew_step_add(node->crew, 0,
                     (struct sh_step){.name = "told", .run = told_run, .arg = &node->told});
}

/* Has a peer's graph be told that chunks came or left, and waits until it was. */
static inline void node_tell(struct node *node, shoal_cid first, shoal_cid last, bool came)
{
    SH_ASSERT(atomic_load(&node->told.state) != 1);
    node->told.first = first;
    node->told.last = last;
    node->told.came = came;
    atomic_store(&node->told.state, 1);
    while (atomic_load(&node->told.state) != 2) {
        sh_crew_wake(node->crew, 0);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static inline struct world *world_open(unsigned peer_count, uint64_t store_bytes,
                                       uint64_t timeout_ns)
{
    struct world *world = calloc(1, sizeof *world);
    SH_ASSERT(world != NULL);
    world->clock = sh_real_clock();
    world->peer_count = peer_count;
    for (unsigned i = 0; i <= peer_count; i++)
        node_open(world, i, store_bytes, timeout_ns);
    for (unsigned i = 0; i <= peer_count; i++) {
        for (unsigned j = 0; j < peer_count; j++) {
            if (i != j)
                test_ok(
                    sh_msg_node_set(world->nodes[i].msg, world->peers[j], world->nodes[j].address));
        }
    }
    for (unsigned i = 0; i <= peer_count; i++)
        test_ok(sh_crew_start(world->nodes[i].crew));
    world->caller = (struct sh_caller){.msg = world->nodes[peer_count].msg,
                                       .crew = world->nodes[peer_count].crew,
                                       .clock = &world->clock};
    return world;
}

/* Ends a node as a crash would: nobody is told, its connections break. */
static inline void node_kill(struct node *node)
{
    sh_crew_stop(node->crew);
    sh_msg_destroy(node->msg);
    sh_graph_destroy(node->graph);
    sh_backup_destroy(node->backup);
    sh_store_destroy(node->store);
    node->wire->ops->destroy(node->wire);
    sh_crew_destroy(node->crew);
    *node = (struct node){0};
}

static inline void world_close(struct world *world)
{
    for (unsigned i = 0; i <= world->peer_count; i++) {
        if (world->nodes[i].crew)
            node_kill(&world->nodes[i]);
    }
    free(world);
}

/* In the stores of all peers that live. */
static inline uint64_t chunks(const struct world *world)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < world->peer_count; i++) {
        struct sh_store_status status;
        if (!world->nodes[i].store)
            continue;
        sh_store_status_get(world->nodes[i].store, &status);
        count += status.chunks;
    }
    return count;
}

static inline void wait_for_chunks(const struct world *world, uint64_t count)
{
    uint64_t deadline = sh_now(&world->clock) + UINT64_C(30000000000);
    while (chunks(world) != count) {
        SH_ASSERT(sh_now(&world->clock) < deadline);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Writes text to a new file; path has room for 32 bytes. */
static inline void file_make(char *path, const char *text, size_t size)
{
    strcpy(path, "/tmp/shoal-graph-XXXXXX");
    int fd = mkstemp(path);
    SH_ASSERT(fd >= 0);
    SH_ASSERT(write(fd, text, size) == (ssize_t)size);
    close(fd);
}

static inline enum shoal_err load_text(struct world *world, const char *edges, const char *vertices,
                                       bool typed, bool replace,
                                       struct sh_graph_load_report *report,
                                       struct sh_graph_problem *problem)
{
    char edges_path[32];
    char vertices_path[32];
    file_make(edges_path, edges, strlen(edges));
    if (vertices)
        file_make(vertices_path, vertices, strlen(vertices));
    struct sh_graph_load_options options = {.edges_path = edges_path,
                                            .vertices_path = vertices ? vertices_path : NULL,
                                            .typed = typed,
                                            .replace = replace};
    enum shoal_err err =
        sh_graph_load(&world->caller, world->peers, world->peer_count, &options, report, problem);
    unlink(edges_path);
    if (vertices)
        unlink(vertices_path);
    return err;
}

#endif
