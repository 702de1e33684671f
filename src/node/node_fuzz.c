/* Any requests and messages, with any payload, to a whole peer as it is put together, from a client. It
 * has not joined a cluster, so most are refused; those that any node answers (LOG_LEVELS, STEPS, PROMOTE,
 * STOP, STATUS) are not. Each request is answered exactly once.
 *
 * The input is any number of: u16 type (its module modulo 4; with 0x8000 set one-way), u8 size, and
 * so many bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "env/env_fuzz.h"
#include "msg/loopback.h"
#include "node/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MS UINT64_C(1000000)
#define MESSAGES_MAX 64
#define STEPS_MAX 32
#define ROUNDS_MAX 400
#define NODE_ADDRESS "loop:node"

static struct {
    struct sh_options options;
    struct sh_node_world world;
    struct sh_node_run *node;
    struct sh_step steps[STEPS_MAX];
    unsigned step_count;
    /* The client's end, which calls the node by a name of its own for it. */
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
    shoal_nid to;
    unsigned asked, answered;
} rig;

static void on_step_add(void *arg, struct sh_step step)
{
    (void)arg;
    SH_ASSERT(rig.step_count < STEPS_MAX);
    rig.steps[rig.step_count++] = step;
}

/* Nobody waits: the node's main thread does not run. */
static bool on_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    (void)arg;
    (void)waiter;
    (void)deadline_ns;
    return false;
}

static void on_view(void *arg, const struct sh_view *view)
{
    (void)arg;
    (void)view;
}

static void carry(void)
{
    for (unsigned i = 0, idle = 0; i < ROUNDS_MAX && idle < 3; i++) {
        unsigned work = rig.transport.run(rig.transport.arg) + rig.handlers.run(rig.handlers.arg);
        for (unsigned k = 0; k < rig.step_count; k++)
            work += rig.steps[k].run(rig.steps[k].arg);
        idle = work ? 0 : idle + 1;
    }
}

static void option_set(const char *name, const char *value)
{
    struct sh_options_error error;
    enum shoal_err err = sh_options_set(&rig.options, name, value, "fuzz", &error);
    SH_ASSERT(err == SHOAL_OK);
}

static void node_open(void)
{
    char detail[256];
    struct sh_wire *wire;
    if (sh_options_init(&rig.options) || sh_loopback_create(8, &wire))
        abort();
    option_set("roles", "peer");
    option_set("cluster", "fuzz");
    option_set("listen", NODE_ADDRESS);
    option_set("superpeers", "loop:nobody");
    rig.options.huge_pages = false;
    rig.options.store_bytes_max = 32 << 20;
    rig.options.connections_max = 8;
    rig.options.ring_bytes = 65536;
    rig.options.cache_ranges_max = 16;
    rig.world = (struct sh_node_world){
        .env = {.clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}, .wire = wire},
        .crew = {.step_add = on_step_add, .wait = on_wait},
        .on_view = on_view};
    enum shoal_err err = sh_node_create_in(&rig.options, &rig.world, &rig.node, detail);
    SH_ASSERT(err == SHOAL_OK);
    err = sh_node_start(rig.node);
    SH_ASSERT(err == SHOAL_OK);
}

static void client_open(void)
{
    if (sh_loopback_create(8, &rig.wire))
        abort();
    struct sh_msg_config config = {.cluster = "fuzz",
                                   .connections_max = 8,
                                   .requests_max = 256,
                                   .ring_bytes = 1 << 16,
                                   .payload_bytes_max = 1 << 16,
                                   .request_timeout_ns = 1000 * MS,
                                   .connect_timeout_ns = 1000 * MS,
                                   .env = {.clock = {clock_now, clock_now, NULL},
                                           .random = {random_fill, NULL},
                                           .wire = rig.wire},
                                   .wake_transport = wake,
                                   .wake_handlers = wake};
    if (sh_msg_create(&config, &rig.msg) || sh_msg_contact(rig.msg, NODE_ADDRESS, &rig.to))
        abort();
    rig.transport = sh_msg_transport_step(rig.msg);
    rig.handlers = sh_msg_handler_step(rig.msg);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    (void)err;
    (void)payload;
    rig.answered++;
}

static void say(struct sh_reader *r, struct sh_request *request)
{
    uint16_t word = sh_get16(r);
    sh_msg_type type = SH_MSG_TYPE((word >> 8 & 0x7f) % 4, word & 0xff);
    size_t size = sh_get8(r), left = sh_reader_left(r);
    size = size < left ? size : left;
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(r, size), size);
    struct sh_out out;
    *request = (struct sh_request){.done = on_answer};
    enum shoal_err err = word & 0x8000 ? sh_msg_begin(rig.msg, rig.to, type, size, &out)
                                       : sh_msg_request(rig.msg, rig.to, type, size, request, &out);
    if (err)
        return; /* the node gave the connection up */
    rig.asked += !(word & 0x8000);
    sh_put_raw(&out.w, bytes);
    sh_msg_end(rig.msg, &out);
}

static void quiet(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_request requests[MESSAGES_MAX];
    memset(&rig, 0, sizeof rig);
    outside_begin();
    quiet();
    node_open();
    client_open();
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    for (unsigned i = 0; i < MESSAGES_MAX && sh_reader_left(&r) >= 3; i++) {
        say(&r, &requests[i]);
        carry();
        quiet();
        now_ns += MS;
    }
    for (unsigned i = 0; i < 30 && rig.asked != rig.answered; i++) {
        now_ns += 100 * MS;
        carry();
    }
    SH_ASSERT(rig.asked == rig.answered);
    rig.world.has_crashed = true;
    enum shoal_err err = sh_node_wait_stopped(rig.node);
    SH_ASSERT(err == SHOAL_OK);
    sh_msg_destroy(rig.msg);
    sh_node_destroy(rig.node);
    rig.wire->ops->destroy(rig.wire);
    sh_options_destroy(&rig.options);
    return 0;
}
