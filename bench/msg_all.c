/* The case alltoall: every node sends one-way messages to every other in turn, with --threads
 * application threads each; the nodes are in one process, or with --processes in one each.
 *
 * A node is a function that runs on a thread or in a child, and a stage by which the coordinator
 * leads all of them: OPEN (listen), CONNECT (to every other), RUN, END. Each node counts itself in
 * when it has done a stage's work and waits for the next; one that fails ends the run for all. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/resident.h"
#include "bench/msg_bench_int.h"

#define STAGE_TIMEOUT_NS UINT64_C(60000000000)
#define NS_PER_S 1e9

enum stage { STAGE_OPEN, STAGE_CONNECT, STAGE_RUN, STAGE_END };

/* What a node tells. Plain members are written before it counts itself in for STAGE_RUN. */
struct node_board {
    struct sh_msg_board board;
    uint64_t sent; /* messages */
    uint64_t blocks;
    uint64_t begin_ns, end_ns;
};

/* What all see; memory that a fork shares. */
struct meeting {
    _Atomic unsigned stage;
    _Atomic unsigned arrived[STAGE_END]; /* nodes that have done a stage's work */
    _Atomic unsigned err;                /* of the first node that failed */
    struct node_board nodes[];
};

struct node {
    struct meeting *meeting;
    const struct sh_bench_flags *shape;
    enum sh_placement placement;
    unsigned number;
    struct sh_endpoint endpoint;
};

/* One application thread of a node. */
struct sender {
    struct node *node;
    const uint8_t *payload;
    unsigned number;
    uint64_t sent;
    enum shoal_err err;
};

/* --- A node ------------------------------------------------------------------------------ */

/* Counts the node in and waits for the next stage; ESTOPPED when the run ends early. */
static enum shoal_err stage_await(struct node *node, enum stage done)
{
    struct meeting *meeting = node->meeting;
    /* release, acquire: what a stage wrote; pair with each other and with stages_lead */
    atomic_fetch_add_explicit(&meeting->arrived[done], 1, memory_order_release);
    uint64_t deadline_ns =
        sh_bench_now_ns() + 2 * STAGE_TIMEOUT_NS + (uint64_t)(node->shape->seconds * NS_PER_S);
    for (;;) {
        unsigned stage = atomic_load_explicit(&meeting->stage, memory_order_acquire);
        if (stage == STAGE_END && done != STAGE_RUN)
            return SHOAL_ESTOPPED;
        if (stage > done)
            return SHOAL_OK;
        if (sh_bench_now_ns() > deadline_ns)
            return SHOAL_ETIMEOUT;
        (void)poll(NULL, 0, 1);
    }
}

static enum shoal_err node_open(struct node *node)
{
    const struct sh_bench_flags *shape = node->shape;
    struct sh_endpoint_config config = {.nid = {(uint16_t)(node->number + 1)},
                                        .lends = true,
                                        .placement = node->placement,
                                        .transport = shape->transport,
                                        .idle = shape->idle,
                                        .handlers = shape->handlers,
                                        .payload_bytes_max = shape->size + 64,
                                        .requests_max = 1024};
    enum shoal_err err = sh_endpoint_open(&node->endpoint, &config);
    if (err)
        return err;
    struct sh_msg_board *board = &node->meeting->nodes[node->number].board;
    sh_msg_server_handlers(&node->endpoint, board);
    err = sh_msg_server_listen(&node->endpoint, shape, board);
    return err ? err : sh_endpoint_start(&node->endpoint);
}

/* Asks every other node for its count: which opens the connections, and after a run is answered
 * behind all that was sent before. */
static enum shoal_err others_ask(struct node *node)
{
    struct sh_caller caller = sh_endpoint_caller(&node->endpoint);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 1; !err && i < node->shape->nodes; i++) {
        shoal_nid to = {(uint16_t)((node->number + i) % node->shape->nodes + 1)};
        err = sh_call(&caller, to, SH_MSG_BENCH_TOTAL, (struct sh_bytes){NULL, 0}, 0, NULL, NULL,
                      NULL);
    }
    return err;
}

static enum shoal_err node_connect(struct node *node)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < node->shape->nodes; i++) {
        if (i != node->number)
            err = sh_msg_node_set(node->endpoint.msg, (shoal_nid){(uint16_t)(i + 1)},
                                  node->meeting->nodes[i].board.address);
    }
    return err ? err : others_ask(node);
}

static enum shoal_err message_send(const struct sender *sender, const struct sh_caller *caller,
                                   shoal_nid to)
{
    size_t size = sender->node->shape->size;
    struct sh_out out;
    enum shoal_err err;
    while ((err = sh_msg_begin(caller->msg, to, SH_MSG_BENCH_COUNT, size, &out)) == SHOAL_EAGAIN) {
        err = sh_call_wait_room(caller, to, size, SH_NEVER);
        if (err)
            return err;
    }
    if (err)
        return err;
    sh_put_raw(&out.w, sh_bytes_make(sender->payload, size));
    sh_msg_end(caller->msg, &out);
    return SHOAL_OK;
}

static void *sender_main(void *arg)
{
    struct sender *sender = arg;
    struct node *node = sender->node;
    const struct sh_bench_flags *shape = node->shape;
    uint64_t senders = (uint64_t)shape->nodes * shape->threads;
    uint64_t place = (uint64_t)node->number * shape->threads + sender->number;
    uint64_t share = UINT64_MAX;
    if (shape->count)
        share = shape->count / senders + (place < shape->count % senders);
    uint64_t now_ns = sh_bench_now_ns();
    uint64_t deadline_ns = UINT64_MAX;
    if (!shape->count)
        deadline_ns = now_ns + (uint64_t)(shape->seconds * NS_PER_S);
    struct sh_caller caller = sh_endpoint_caller(&node->endpoint);
    while (!sender->err && sender->sent < share && now_ns < deadline_ns) {
        unsigned step = 1 + (unsigned)(sender->sent % (shape->nodes - 1));
        shoal_nid to = {(uint16_t)((node->number + step) % shape->nodes + 1)};
        sender->err = message_send(sender, &caller, to);
        sender->sent += !sender->err;
        if (sender->sent % SH_MSG_BENCH_CLOCK_EVERY == 0)
            now_ns = sh_bench_now_ns();
    }
    if (!sender->err)
        sender->err = others_ask(node);
    return NULL;
}

static enum shoal_err senders_run(struct node *node, struct sender *senders, uint8_t *payload)
{
    const struct sh_bench_flags *shape = node->shape;
    pthread_t ids[SH_MSG_BENCH_THREADS_MAX];
    enum shoal_err err = SHOAL_OK;
    unsigned made = 0;
    for (size_t i = 0; i < shape->size; i++)
        payload[i] = (uint8_t)sh_mix64(shape->seed + i);
    for (; !err && made < shape->threads; made += !err) {
        senders[made] = (struct sender){.node = node, .payload = payload, .number = made};
        if (pthread_create(&ids[made], NULL, sender_main, &senders[made]) != 0)
            err = SHOAL_ENOMEM;
    }
    for (unsigned i = 0; i < made; i++)
        (void)pthread_join(ids[i], NULL);
    for (unsigned i = 0; !err && i < made; i++) {
        err = senders[i].err;
        node->meeting->nodes[node->number].sent += senders[i].sent;
    }
    return err;
}

static enum shoal_err node_send(struct node *node)
{
    struct node_board *board = &node->meeting->nodes[node->number];
    struct sender *senders = calloc(node->shape->threads, sizeof *senders);
    uint8_t *payload = malloc(node->shape->size);
    struct sh_msg_stats before, after;
    sh_msg_stats_get(node->endpoint.msg, &before);
    board->begin_ns = sh_bench_now_ns();
    enum shoal_err err = SHOAL_ENOMEM;
    if (senders && payload)
        err = senders_run(node, senders, payload);
    board->end_ns = sh_bench_now_ns();
    sh_msg_stats_get(node->endpoint.msg, &after);
    board->blocks = after.blocks_out - before.blocks_out;
    free(senders);
    free(payload);
    return err;
}

/* All of a node's life. */
static void node_run(struct node *node)
{
    sh_bench_pin(node->placement, node->number % 2);
    enum shoal_err err = node_open(node);
    err = err ? err : stage_await(node, STAGE_OPEN);
    err = err ? err : node_connect(node);
    err = err ? err : stage_await(node, STAGE_CONNECT);
    err = err ? err : node_send(node);
    err = err ? err : stage_await(node, STAGE_RUN);
    unsigned none = SHOAL_OK;
    /* relaxed: a number that is read again and again until it is seen */
    if (err)
        (void)atomic_compare_exchange_strong_explicit(&node->meeting->err, &none, err,
                                                      memory_order_relaxed, memory_order_relaxed);
    sh_endpoint_close(&node->endpoint);
}

static void *node_thread(void *arg)
{
    node_run(arg);
    return NULL;
}

static void node_child(void *arg, int report_fd)
{
    struct node *node = arg;
    sh_child_report(report_fd, (uint16_t)(node->number + 1));
    node_run(node);
    for (;;) /* until it is stopped, so that its processor time can be read */
        (void)pause();
}

/* --- The coordinator ---------------------------------------------------------------------- */

struct cast {
    const struct sh_bench_flags *shape;
    struct meeting *meeting;
    struct node *nodes;
    pthread_t *threads;
    struct sh_child *children;
    unsigned made;
    bool is_many; /* processes */
};

static enum shoal_err stage_lead(struct cast *cast, enum stage done)
{
    struct meeting *meeting = cast->meeting;
    uint64_t deadline_ns =
        sh_bench_now_ns() + STAGE_TIMEOUT_NS + (uint64_t)(cast->shape->seconds * NS_PER_S);
    /* acquire: pairs with the release of stage_await */
    while (atomic_load_explicit(&meeting->arrived[done], memory_order_acquire) <
           cast->shape->nodes) {
        enum shoal_err err =
            (enum shoal_err)atomic_load_explicit(&meeting->err, memory_order_relaxed);
        if (!err && sh_bench_now_ns() > deadline_ns) {
            SH_ERROR("bench", "nodes do not get on", SH_U64("stage", done));
            err = SHOAL_ETIMEOUT;
        }
        if (err)
            return err;
        (void)poll(NULL, 0, 1);
    }
    return SHOAL_OK;
}

static void stage_set(struct cast *cast, enum stage stage)
{
    /* release: pairs with the acquire of stage_await */
    atomic_store_explicit(&cast->meeting->stage, stage, memory_order_release);
}

static uint64_t cpu_sum_ns(const struct cast *cast)
{
    return cast->is_many ? sh_children_cpu_ns(cast->children, cast->made) : sh_bench_cpu_ns();
}

static enum shoal_err result_sum(const struct cast *cast, struct sh_bench_result *result)
{
    uint64_t begin_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    uint64_t received = 0;
    uint64_t blocks = 0;
    for (unsigned i = 0; i < cast->shape->nodes; i++) {
        struct node_board *board = &cast->meeting->nodes[i];
        begin_ns = board->begin_ns < begin_ns ? board->begin_ns : begin_ns;
        end_ns = board->end_ns > end_ns ? board->end_ns : end_ns;
        result->ops += board->sent;
        blocks += board->blocks;
        received += atomic_load_explicit(&board->board.received, memory_order_relaxed);
    }
    result->bytes = result->ops * cast->shape->size;
    result->seconds = (double)(end_ns - begin_ns) / NS_PER_S;
    result->digest = sh_mix64(cast->shape->seed ^ result->bytes);
    result->messages_per_block = blocks ? (double)result->ops / (double)blocks : 0;
    if (received == result->bytes)
        return SHOAL_OK;
    SH_ERROR("bench", "nodes counted other bytes", SH_U64("sent", result->bytes),
             SH_U64("counted", received));
    return SHOAL_EINTERNAL;
}

static enum shoal_err stages_lead(struct cast *cast, struct sh_bench_result *result)
{
    unsigned nodes = cast->shape->nodes;
    enum shoal_err err = stage_lead(cast, STAGE_OPEN);
    uint64_t resident = sh_resident_bytes();
    if (!err) {
        stage_set(cast, STAGE_CONNECT);
        err = stage_lead(cast, STAGE_CONNECT);
    }
    uint64_t resident_then = sh_resident_bytes();
    uint64_t cpu_ns = cpu_sum_ns(cast);
    if (!err) {
        stage_set(cast, STAGE_RUN);
        err = stage_lead(cast, STAGE_RUN);
    }
    if (err)
        return err;
    result->cpu_ns = cpu_sum_ns(cast) - cpu_ns;
    if (!cast->is_many && resident_then > resident)
        result->bytes_per_connection =
            (double)(resident_then - resident) / ((double)nodes * (nodes - 1));
    return SHOAL_OK;
}

static enum shoal_err nodes_start(struct cast *cast, enum sh_placement placement)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < cast->shape->nodes; i++) {
        cast->nodes[i] = (struct node){
            .meeting = cast->meeting, .shape = cast->shape, .placement = placement, .number = i};
        if (cast->is_many)
            err = sh_child_start(node_child, &cast->nodes[i], placement, &cast->children[i]);
        else if (pthread_create(&cast->threads[i], NULL, node_thread, &cast->nodes[i]) != 0)
            err = SHOAL_ENOMEM;
        cast->made += !err;
    }
    return err;
}

static void nodes_stop(struct cast *cast)
{
    for (unsigned i = 0; i < cast->made; i++) {
        if (cast->is_many)
            sh_child_stop(&cast->children[i]);
        else
            (void)pthread_join(cast->threads[i], NULL);
    }
}

/* Each node has a socket for each other one, or two where both dialled at once. */
static void descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* where it stays too low, opening says so */
}

enum shoal_err sh_msg_alltoall_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    const struct sh_bench_flags *shape = arg;
    SH_ASSERT(shape->nodes >= 2);
    struct cast cast = {.shape = shape, .is_many = shape->processes > 1};
    size_t bytes = sizeof *cast.meeting + shape->nodes * sizeof *cast.meeting->nodes;
    descriptors_raise();
    cast.meeting = sh_msg_shared_alloc(bytes);
    cast.nodes = calloc(shape->nodes, sizeof *cast.nodes);
    cast.threads = calloc(shape->nodes, sizeof *cast.threads);
    cast.children = calloc(shape->nodes, sizeof *cast.children);
    enum shoal_err err = SHOAL_ENOMEM;
    if (cast.meeting && cast.nodes && cast.threads && cast.children)
        err = nodes_start(&cast, placement);
    if (!err)
        err = stages_lead(&cast, result_out);
    if (cast.meeting)
        stage_set(&cast, STAGE_END);
    nodes_stop(&cast);
    if (!err)
        err = result_sum(&cast, result_out);
    for (unsigned i = 0; cast.meeting && i < shape->nodes; i++)
        sh_msg_board_clean(&cast.meeting->nodes[i].board);
    sh_msg_shared_free(cast.meeting, bytes);
    free(cast.nodes);
    free(cast.threads);
    free(cast.children);
    return err;
}
