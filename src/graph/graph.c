#include "graph/graph.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/steptime.h"
#include "graph/graph_int.h"

/* Coordinators keep a few batches in flight and peers a few asks: far below these. */
#define INBOX_ITEMS 4096
#define INBOX_BYTES_MAX (UINT64_C(256) << 20)
#define ANSWER_SLOTS 4096
#define ITEMS_AT_ONCE 32
#define REMOVALS_AT_ONCE 4
#define BLOCKED_RETRY_NS 50000
#define FORMER_NS 10000000

typedef void (*item_handler)(struct sh_graph *graph, const struct sh_graph_item *item);

static const item_handler handlers[SH_GRAPH_OPS] = {
    [SH_GRAPH_STATUS] = sh_graph_on_status,
    [SH_GRAPH_BEGIN] = sh_graph_on_begin,
    [SH_GRAPH_EDGES] = sh_graph_on_edges,
    [SH_GRAPH_RECORDS] = sh_graph_on_records,
    [SH_GRAPH_TYPES] = sh_graph_on_types,
    [SH_GRAPH_ADVANCE] = sh_graph_on_advance,
    [SH_GRAPH_END] = sh_graph_on_end,
    [SH_GRAPH_ABORT] = sh_graph_on_abort,
    [SH_GRAPH_RESOLVE] = sh_graph_on_resolve,
    [SH_GRAPH_LOOKUP] = sh_graph_on_lookup,
    [SH_GRAPH_DROP] = sh_graph_on_drop,
    [SH_GRAPH_TYPES_GET] = sh_graph_on_types_get,
    [SH_GRAPH_BFS_BEGIN] = sh_graph_on_bfs_begin,
    [SH_GRAPH_BFS_LEVEL] = sh_graph_on_bfs_level,
    [SH_GRAPH_BFS_VISIT] = sh_graph_on_bfs_visit,
    [SH_GRAPH_BFS_END] = sh_graph_on_bfs_end,
    [SH_GRAPH_OUTCOME] = sh_graph_on_outcome,
    [SH_GRAPH_BFS_EXTENTS] = sh_graph_on_bfs_extents,
    [SH_GRAPH_BFS_ROUTES] = sh_graph_on_bfs_routes,
};

/* Inline handler of every type: copies the message into the inbox. In the transport step. */
static void on_message(void *arg, struct sh_msg_in *in)
{
    struct sh_graph *graph = arg;
    if (!in->is_request)
        return; /* none of ours is a one-way message */
    size_t size = sh_reader_left(&in->payload);
    uint64_t before = atomic_fetch_add_explicit(&graph->inbox_bytes, size, memory_order_relaxed);
    struct sh_graph_item *item =
        before + size <= INBOX_BYTES_MAX ? malloc(sizeof *item + size) : NULL;
    if (item) {
        item->type = in->type;
        item->reply_to = in->reply_to;
        item->size = size;
        memcpy(item->bytes, in->payload.at, size);
        if (sh_queue_push(graph->inbox, item)) {
            graph->config.wake(graph->config.arg);
            return;
        }
        free(item);
    }
    (void)atomic_fetch_sub_explicit(&graph->inbox_bytes, size, memory_order_relaxed);
    sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY,
                       "the peer's inbox for graph work is full");
}

/* Takes in messages; returns how many. */
static unsigned take_items(struct sh_graph *graph)
{
    unsigned count = 0;
    while (count < ITEMS_AT_ONCE && !(count > 0 && sh_step_spent())) {
        struct sh_graph_item *item = sh_queue_pop(graph->inbox);
        if (!item)
            break;
        count++;
        (void)atomic_fetch_sub_explicit(&graph->inbox_bytes, item->size, memory_order_relaxed);
        handlers[item->type & 0xff](graph, item);
        free(item);
    }
    return count;
}

static unsigned take_answers(struct sh_graph *graph)
{
    unsigned count = 0;
    struct sh_graph_ask *ask;
    while (count < ITEMS_AT_ONCE && !(count > 0 && sh_step_spent()) &&
           (ask = sh_queue_pop(graph->answers))) {
        count++;
        SH_ASSERT(graph->asks > 0);
        graph->asks--;
        if (ask->type == SH_GRAPH_TYPE(SH_GRAPH_BFS_VISIT))
            sh_bfs_answered(graph, ask);
        else
            sh_load_answered(graph, ask);
        sh_graph_ask_free(ask);
    }
    return count;
}

/* Removes chunks of the first part that is on its way out. */
static unsigned bury_some(struct sh_graph *graph)
{
    struct sh_part *part = graph->dying;
    if (!part)
        return 0;
    const struct sh_part_removal removal = {.store = graph->config.store,
                                            .backup = graph->config.backup,
                                            .self = sh_msg_nid(graph->config.msg),
                                            .serves = graph->config.serves,
                                            .arg = graph->config.arg};
    bool is_gone = false;
    size_t done = 1;
    for (unsigned i = 0; i < REMOVALS_AT_ONCE && !is_gone && done && !(i > 0 && sh_step_spent());
         i++)
        is_gone = sh_part_remove_some(part, &removal, &done);
    if (!is_gone && done == 0)
        graph->blocked = true; /* by the log, or by chunks that stand still */
    if (is_gone) {
        graph->dying = part->next;
        if (part->reply_wanted)
            sh_msg_reply_ok(graph->config.msg, part->reply_to, part->reply_type);
        sh_part_free(part, &graph->unmaps);
    }
    return is_gone || done > 0;
}

void sh_graph_bury(struct sh_graph *graph, struct sh_part *part)
{
    SH_ASSERT(part != graph->live);
    bool is_noted = false;
    for (unsigned i = 0; i < SH_GRAPH_BURIED_MAX; i++)
        is_noted |= graph->buried[i] == part->graph_id;
    if (!is_noted)
        graph->buried[graph->buried_next++ % SH_GRAPH_BURIED_MAX] = part->graph_id;
    part->next = graph->dying;
    graph->dying = part;
}

static unsigned unmap_some(struct sh_graph *graph)
{
    return sh_unmaps_run(&graph->unmaps);
}

static unsigned (*const works[])(struct sh_graph *graph) = {
    take_answers, take_items, sh_load_work,    sh_bfs_work,
    sh_scan_work, bury_some,  sh_publish_work, unmap_some};
#define WORKS (sizeof works / sizeof *works)

/* Does each kind of work once, or as many kinds as there is time for: the next round goes on behind
 * the last, so that messages that keep coming hold up neither a load nor a traversal. */
static unsigned run(void *arg)
{
    struct sh_graph *graph = arg;
    graph->now_ns = sh_now(graph->config.clock);
    graph->blocked = false;
    SH_ASSERT(graph->work_first < WORKS);
    unsigned done = 0;
    for (unsigned i = 0; i < WORKS; i++) {
        unsigned work = (graph->work_first + i) % WORKS;
        done += works[work](graph);
        if (sh_step_spent()) {
            graph->work_first = (work + 1) % WORKS;
            return done + 1; /* the others have not had their turn */
        }
    }
    return done;
}

static uint64_t due_ns(void *arg)
{
    struct sh_graph *graph = arg;
    uint64_t due = sh_load_due_ns(graph);
    uint64_t bfs_due = sh_bfs_due_ns(graph);
    if (bfs_due < due)
        due = bfs_due;
    if (graph->former && graph->scan.count == 0) /* which it is not told that it may remove */
        due = due < graph->now_ns + FORMER_NS ? due : graph->now_ns + FORMER_NS;
    uint64_t retry = graph->now_ns + BLOCKED_RETRY_NS;
    return graph->blocked && retry < due ? retry : due;
}

enum shoal_err sh_graph_create(const struct sh_graph_config *config, struct sh_graph **graph_out)
{
    SH_ASSERT(config->msg && config->store && config->clock && config->wake);
    struct sh_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return SHOAL_ENOMEM;
    graph->config = *config;
    sh_unmaps_init(&graph->unmaps);
    if (graph->config.load_timeout_ns == 0)
        graph->config.load_timeout_ns = UINT64_C(60000000000);
    if (graph->config.bfs_timeout_ns == 0)
        graph->config.bfs_timeout_ns = UINT64_C(30000000000);
    enum shoal_err err = sh_queue_create(INBOX_ITEMS, &graph->inbox);
    if (!err)
        err = sh_queue_create(ANSWER_SLOTS, &graph->answers);
    if (err) {
        sh_graph_destroy(graph);
        return err;
    }
    for (int op = 1; op < SH_GRAPH_OPS; op++)
        sh_msg_handler_set(config->msg, SH_GRAPH_TYPE(op), SH_MSG_INLINE, on_message, graph);
    *graph_out = graph;
    return SHOAL_OK;
}

void sh_graph_destroy(struct sh_graph *graph)
{
    if (!graph)
        return;
    if (graph->inbox) {
        for (struct sh_graph_item *item; (item = sh_queue_pop(graph->inbox));)
            free(item);
    }
    if (graph->answers) {
        for (struct sh_graph_ask *ask; (ask = sh_queue_pop(graph->answers));)
            sh_graph_ask_free(ask);
    }
    sh_bfs_end_all(graph, NULL);
    if (graph->load && graph->load->part)
        sh_part_let_go(graph->load->part, graph->config.store);
    sh_load_free(graph->load);
    sh_publish_abandon(graph);
    sh_scan_bury_former(graph);
    while (graph->dying) {
        struct sh_part *part = graph->dying;
        graph->dying = part->next;
        sh_part_let_go(part, graph->config.store);
        sh_part_free(part, NULL);
    }
    if (graph->live)
        sh_part_let_go(graph->live, graph->config.store);
    sh_part_free(graph->live, NULL);
    while (sh_unmaps_run(&graph->unmaps) > 0)
        continue;
    sh_queue_destroy(graph->inbox);
    sh_queue_destroy(graph->answers);
    free(graph);
}

bool sh_graph_may_move(const struct sh_graph *graph)
{
    return !graph->load && !graph->dying && !graph->publishing.part;
}

struct sh_step sh_graph_step(struct sh_graph *graph)
{
    return (struct sh_step){.name = "graph", .run = run, .due_ns = due_ns, .arg = graph};
}
