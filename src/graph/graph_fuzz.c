/* Hostile payloads for the handlers of a peer's part of graphs, over a real end on a wire in
 * memory, and hostile answers to what the peer asks the other end (RESOLVE, VISIT, OUTCOME). Each
 * request is answered exactly once, and the store holds together.
 *
 * An input is any number of: u8 operation (of enum sh_graph_op) with 0x80 set for a one-way message
 * and 0x40 for "let the steps run first", u16 length, payload. Loads and traversals are named by
 * their first 8 bytes; peer 5 is this one, 6 the other end. Two operations are no messages:
 *   0x3f  the payload are the answers to what the peer asks next, each u8 error (0: none), u8 size, and
 *         so many bytes; with no answers left, ENOTYPE
 *   0x3e  time goes on, by an eighth of TIMEOUT_NS for each of the length, which no payload follows */
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "graph/graph.h"
#include "graph/wire_int.h"
#include "msg/memwire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NID 5
#define OTHER 6
#define MESSAGES_MAX 200
#define PAYLOAD_BYTES_MAX (1u << 20)
#define STORE_BYTES_MAX (4u << 20)
#define TIMEOUT_NS UINT64_C(1000000000)
#define ANSWERS 0x3f
#define TIME 0x3e
#define PASSES_MAX 64

/* One of two ends: the node, and the one whose hello is honest and whose requests are not. */
struct end {
    struct sh_memwire memwire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
};

static struct end node, other;
static struct sh_graph *graph;
static size_t carried[2]; /* from node, from other */
static struct sh_step graph_step;
static unsigned asked, answered;
static struct sh_reader answers;

static void wake(void *arg)
{
    (void)arg;
}

static void end_open(struct end *end, uint16_t nid)
{
    sh_memwire_init(&end->memwire);
    end->memwire.random = nid;
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "fuzz",
        .connections_max = 8,
        .requests_max = 256,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = PAYLOAD_BYTES_MAX,
        .request_timeout_ns = TIMEOUT_NS * 60,
        .connect_timeout_ns = TIMEOUT_NS,
        .env = sh_memwire_env(&end->memwire),
        .wake_transport = wake,
        .wake_handlers = wake,
    };
    enum shoal_err err = sh_msg_create(&config, &end->msg);
    SH_ASSERT(err == SHOAL_OK);
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
}

static void end_close(struct end *end)
{
    sh_msg_destroy(end->msg);
    sh_memwire_free(&end->memwire);
}

static unsigned run(bool with_handlers)
{
    unsigned done = other.transport.run(other.msg) + node.transport.run(node.msg);
    done += other.handlers.run(other.handlers.arg);
    if (with_handlers)
        done += node.handlers.run(node.handlers.arg) + graph_step.run(graph_step.arg);
    done += sh_memwire_carry(&node.memwire, 0, &carried[0], &other.memwire, 0) > 0;
    done += sh_memwire_carry(&other.memwire, 0, &carried[1], &node.memwire, 0) > 0;
    return done;
}

/* As long as something happens; a peer may repeat what it asks of others for ever. */
static void run_some(void)
{
    for (unsigned i = 0; i < 100 && run(true); i++)
        ;
}

static void pass(uint64_t ns)
{
    node.memwire.now_ns += ns;
    other.memwire.now_ns += ns;
    run_some();
}

/* The peer asks the other end something. */
static void on_asked(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    if (!in->is_request)
        return;
    uint8_t err = sh_reader_left(&answers) ? sh_get8(&answers) : SHOAL_ENOTYPE;
    size_t size = sh_reader_left(&answers) ? sh_get8(&answers) : 0;
    size = size < sh_reader_left(&answers) ? size : sh_reader_left(&answers);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&answers, size), size);
    if (err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, sh_err_get(err), "a lie");
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, size, &out)) {
        sh_put_raw(&out.w, bytes);
        sh_msg_end(in->msg, &out);
    }
}

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    bool *is_pending = request->arg;
    (void)err;
    (void)payload;
    SH_ASSERT(*is_pending);
    *is_pending = false;
    answered++;
}

static void send(uint8_t head, struct sh_bytes payload, struct sh_request *request,
                 bool *is_pending)
{
    sh_msg_type type = SH_GRAPH_TYPE(head & 0x3f);
    struct sh_out out;
    enum shoal_err err;
    if (head & 0x80) {
        err = sh_msg_begin(other.msg, (shoal_nid){NID}, type, payload.size, &out);
    } else {
        *request = (struct sh_request){.done = on_done, .arg = is_pending};
        err = sh_msg_request(other.msg, (shoal_nid){NID}, type, payload.size, request, &out);
    }
    if (err)
        return; /* no room, as the peer has not answered what was asked before */
    *is_pending = !(head & 0x80);
    asked += *is_pending;
    sh_put_raw(&out.w, payload);
    sh_msg_end(other.msg, &out);
}

static void meet(void)
{
    struct sh_out out;
    enum shoal_err err = sh_msg_node_set(other.msg, (shoal_nid){NID}, "node:1");
    SH_ASSERT(!err);
    sh_msg_handler_set(other.msg, SH_GRAPH_TYPE(SH_GRAPH_RESOLVE), SH_MSG_INLINE, on_asked, NULL);
    sh_msg_handler_set(other.msg, SH_GRAPH_TYPE(SH_GRAPH_BFS_VISIT), SH_MSG_INLINE, on_asked, NULL);
    sh_msg_handler_set(other.msg, SH_GRAPH_TYPE(SH_GRAPH_OUTCOME), SH_MSG_INLINE, on_asked, NULL);
    err = sh_msg_begin(other.msg, (shoal_nid){NID}, SH_GRAPH_TYPE(SH_GRAPH_OPS), 0, &out);
    SH_ASSERT(!err);
    sh_msg_end(other.msg, &out);
    other.transport.run(other.msg);
    sh_memwire_accept(&node.memwire);
    run_some();
}

static void messages(struct sh_reader *r)
{
    static struct sh_request requests[MESSAGES_MAX];
    static bool is_pending[MESSAGES_MAX];
    for (unsigned i = 0; i < MESSAGES_MAX && sh_reader_left(r) > 0; i++) {
        uint8_t head = sh_get8(r);
        size_t size = sh_get16(r);
        if (head == TIME) {
            for (size_t k = 0; k < size % PASSES_MAX; k++)
                pass(TIMEOUT_NS / 8);
            continue;
        }
        if (size > sh_reader_left(r))
            size = sh_reader_left(r);
        struct sh_bytes payload = sh_bytes_make(sh_reader_take(r, size), size);
        if (head == ANSWERS) {
            answers = sh_reader_make(payload);
            continue;
        }
        if (head & 0x40)
            pass(TIMEOUT_NS / 8);
        is_pending[i] = false;
        send(head, payload, &requests[i], &is_pending[i]);
    }
}

static void peer_open(struct sh_store **store_out, struct sh_backup **backup_out)
{
    struct sh_store_config config = {.bytes_max = STORE_BYTES_MAX, .chunk_bytes_max = 65536};
    static struct sh_clock clock;
    enum shoal_err err = sh_store_create(&config, store_out);
    SH_ASSERT(!err);
    sh_store_nid_set(*store_out, (shoal_nid){NID});
    err = sh_backup_create(&(struct sh_backup_config){.store = *store_out}, backup_out);
    SH_ASSERT(!err);
    clock = sh_memwire_env(&node.memwire).clock;
    struct sh_graph_config graphs = {.msg = node.msg,
                                     .store = *store_out,
                                     .backup = *backup_out,
                                     .clock = &clock,
                                     .staging_bytes_max = 1 << 20,
                                     .load_timeout_ns = 4 * TIMEOUT_NS,
                                     .bfs_timeout_ns = 4 * TIMEOUT_NS,
                                     .wake = wake};
    err = sh_graph_create(&graphs, &graph);
    SH_ASSERT(!err);
    graph_step = sh_graph_step(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_store *store;
    struct sh_backup *backup;
    const char *bad;
    size_t bad_size;
    enum shoal_err err = sh_log_levels_set("error", &bad, &bad_size);
    SH_ASSERT(!err);
    asked = answered = 0;
    carried[0] = carried[1] = 0;
    end_open(&node, NID);
    end_open(&other, OTHER);
    peer_open(&store, &backup);
    meet();
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    answers = sh_reader_make(sh_bytes_make(data, 0));
    messages(&r);
    for (unsigned i = 0; i < 100 && asked != answered; i++)
        pass(TIMEOUT_NS);
    SH_ASSERT(asked == answered);
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    SH_ASSERT(status.used_bytes <= status.bytes_max);
    end_close(&other);
    end_close(&node);
    sh_graph_destroy(graph);
    sh_backup_destroy(backup);
    sh_store_destroy(store);
    return 0;
}
