/* Messages between two processes: requests that are answered with the same bytes, and one-way
 * messages that are counted. The servers run inline handlers on one thread. An application thread
 * keeps its requests in flight, waits for the oldest, and sends another for each that is done;
 * while it waits it runs the client's transport step itself (base/crew.h), as any program's would.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/benches.h"
#include "bench/child.h"
#include "bench/endpoint.h"
#include "bench/tcp_base.h"

#define TYPE_ECHO SH_MSG_TYPE(60, 1)
#define TYPE_COUNT SH_MSG_TYPE(60, 2)
#define TYPE_TOTAL SH_MSG_TYPE(60, 3)
#define THREADS_MAX 64
#define CLOCK_EVERY 64 /* one-way messages between two looks at the clock */

const char *const sh_bench_msg_cases[] = {"request", "oneway", NULL};
const char *const sh_bench_msg_baselines[] = {"tcp", NULL};

/* --- Server ------------------------------------------------------------------------------ */

struct server_args {
    size_t size;
    enum sh_placement placement;
    unsigned number; /* its node ID */
};

static void on_echo(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    size_t size = sh_reader_left(&in->payload);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return; /* the client is gone; the server is about to be stopped */
    sh_put_raw(&out.w, sh_bytes_make(in->payload.at, size));
    sh_msg_end(in->msg, &out);
}

static void on_count(void *arg, struct sh_msg_in *in)
{
    uint64_t *received = arg;
    *received += sh_reader_left(&in->payload);
}

static void on_total(void *arg, struct sh_msg_in *in)
{
    const uint64_t *received = arg;
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sizeof *received, &out))
        return;
    sh_put64(&out.w, *received);
    sh_msg_end(in->msg, &out);
}

static void server_main(void *arg, int report_fd)
{
    const struct server_args *args = arg;
    struct sh_endpoint endpoint;
    uint64_t received = 0;
    char bound[SH_MSG_ADDRESS_MAX];
    struct sh_endpoint_config config = {.nid = {(uint16_t)args->number},
                                        .placement = args->placement,
                                        .payload_bytes_max = args->size + 64,
                                        .requests_max = 64};
    if (sh_endpoint_open(&endpoint, &config))
        return;
    sh_msg_handler_set(endpoint.msg, TYPE_ECHO, SH_MSG_INLINE, on_echo, NULL);
    sh_msg_handler_set(endpoint.msg, TYPE_COUNT, SH_MSG_INLINE, on_count, &received);
    sh_msg_handler_set(endpoint.msg, TYPE_TOTAL, SH_MSG_INLINE, on_total, &received);
    if (sh_msg_listen(endpoint.msg, "127.0.0.1:0", bound) || sh_endpoint_start(&endpoint))
        return;
    const char *colon = strrchr(bound, ':');
    SH_ASSERT(colon != NULL);
    sh_child_report(report_fd, (uint16_t)strtoul(colon + 1, NULL, 10));
    for (;;)
        (void)pause();
}

/* --- Client ------------------------------------------------------------------------------ */

struct slot {
    struct sh_request request;
    struct sh_waiter waiter;
    uint64_t begin_ns;
    shoal_nid to;
    enum shoal_err err;
    size_t size; /* of the answer */
};

struct sender {
    const struct sh_bench_flags *shape;
    enum sh_placement placement;
    struct sh_caller caller;
    enum shoal_err (*drive)(struct sender *sender);
    const uint8_t *payload;
    uint64_t share; /* messages to send; UINT64_MAX: until the deadline */
    uint64_t issued;
    uint64_t done;
    uint64_t begin_ns, deadline_ns, end_ns;
    enum shoal_err err;
    struct sh_hist latency_ns;
};

struct client {
    struct sh_endpoint endpoint;
    struct sh_child *servers;
    struct sender *senders;
    uint8_t *payload;
};

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct slot *slot = request->arg;
    slot->err = err;
    slot->size = err ? 0 : sh_reader_left(payload);
    sh_waiter_complete(&slot->waiter);
}

static enum shoal_err slot_send(struct sender *sender, struct slot *slot, uint64_t now_ns)
{
    struct sh_out out;
    memset(&slot->waiter, 0, sizeof slot->waiter);
    slot->request = (struct sh_request){.done = on_answer, .arg = slot};
    slot->begin_ns = now_ns;
    enum shoal_err err = sh_call_begin(&sender->caller, slot->to, TYPE_ECHO, sender->shape->size,
                                       &slot->request, &out);
    if (err)
        return err;
    sh_put_raw(&out.w, sh_bytes_make(sender->payload, sender->shape->size));
    sh_msg_end(sender->caller.msg, &out);
    sender->issued++;
    return SHOAL_OK;
}

static enum shoal_err slot_await(struct sender *sender, struct slot *slot)
{
    bool done = sh_crew_wait(sender->caller.crew, 0, &slot->waiter, SH_NEVER);
    SH_ASSERT(done);
    if (slot->err || slot->size == sender->shape->size)
        return slot->err;
    SH_ERROR("bench", "answer of another size", SH_U64("bytes", slot->size));
    return SHOAL_EINTERNAL;
}

static bool sender_goes_on(const struct sender *sender, uint64_t now_ns)
{
    return sender->issued < sender->share && now_ns < sender->deadline_ns;
}

/* Slots are a ring: head is the oldest in flight. Those in flight are waited for also after an
 * error, since messaging keeps them until then. */
static enum shoal_err request_drive(struct sender *sender)
{
    unsigned count = sender->shape->outstanding * sender->shape->connections;
    struct slot *slots = calloc(count, sizeof *slots);
    if (!slots)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_OK;
    unsigned in_flight = 0;
    uint64_t now_ns = sh_bench_now_ns();
    for (unsigned i = 0; !err && i < count && sender_goes_on(sender, now_ns); i++) {
        slots[i].to.v = (uint16_t)(1 + i % sender->shape->connections);
        err = slot_send(sender, &slots[i], now_ns);
        in_flight += !err;
    }
    for (unsigned head = 0; in_flight > 0; head = (head + 1) % count) {
        struct slot *slot = &slots[head];
        enum shoal_err slot_err = slot_await(sender, slot);
        in_flight--;
        now_ns = sh_bench_now_ns();
        if (slot_err) {
            err = err ? err : slot_err;
            continue;
        }
        sh_hist_add(&sender->latency_ns, now_ns - slot->begin_ns);
        sender->done++;
        if (!err && sender_goes_on(sender, now_ns)) {
            err = slot_send(sender, slot, now_ns);
            in_flight += !err;
        }
    }
    free(slots);
    return err;
}

static enum shoal_err oneway_send(struct sender *sender, shoal_nid to)
{
    struct sh_out out;
    enum shoal_err err = SHOAL_EAGAIN;
    while (err == SHOAL_EAGAIN) {
        err = sh_msg_begin(sender->caller.msg, to, TYPE_COUNT, sender->shape->size, &out);
        if (err != SHOAL_EAGAIN)
            break;
        struct sh_waiter room = {0};
        sh_msg_wait_room(sender->caller.msg, to, sender->shape->size, &room);
        bool done = sh_crew_wait(sender->caller.crew, 0, &room, SH_NEVER);
        SH_ASSERT(done);
    }
    if (err)
        return err;
    sh_put_raw(&out.w, sh_bytes_make(sender->payload, sender->shape->size));
    sh_msg_end(sender->caller.msg, &out);
    return SHOAL_OK;
}

/* Asks a server how many bytes it has counted, which it answers after all that was sent before. */
static enum shoal_err total_ask(const struct sh_caller *caller, shoal_nid server,
                                uint64_t *total_out)
{
    uint8_t *answer = NULL;
    size_t size = 0;
    enum shoal_err err =
        sh_call(caller, server, TYPE_TOTAL, (struct sh_bytes){NULL, 0}, 0, &answer, &size, NULL);
    if (err)
        return err;
    if (size == 8)
        *total_out = sh_load64(answer);
    free(answer);
    return size == 8 ? SHOAL_OK : SHOAL_EPROTO;
}

static enum shoal_err oneway_drive(struct sender *sender)
{
    enum shoal_err err = SHOAL_OK;
    uint64_t now_ns = sender->begin_ns;
    while (!err && sender_goes_on(sender, now_ns)) {
        shoal_nid to = {(uint16_t)(1 + sender->issued % sender->shape->connections)};
        err = oneway_send(sender, to);
        sender->issued++;
        if (sender->issued % CLOCK_EVERY == 0)
            now_ns = sh_bench_now_ns();
    }
    uint64_t total = 0;
    for (unsigned i = 0; !err && i < sender->shape->connections; i++)
        err = total_ask(&sender->caller, (shoal_nid){(uint16_t)(1 + i)}, &total);
    sender->done = sender->issued;
    return err;
}

static void *sender_thread(void *arg)
{
    struct sender *sender = arg;
    sh_bench_pin(sender->placement, 0);
    sender->begin_ns = sh_bench_now_ns();
    sender->deadline_ns = UINT64_MAX;
    if (sender->share == UINT64_MAX)
        sender->deadline_ns = sender->begin_ns + (uint64_t)(sender->shape->seconds * 1e9);
    sender->err = sender->drive(sender);
    sender->end_ns = sh_bench_now_ns();
    return NULL;
}

/* --- A run ------------------------------------------------------------------------------- */

/* Runs every sender, the first on the calling thread, and waits for all. */
static enum shoal_err senders_run(struct sender *senders, unsigned threads)
{
    pthread_t ids[THREADS_MAX];
    SH_ASSERT(threads >= 1 && threads <= THREADS_MAX);
    enum shoal_err err = SHOAL_OK;
    unsigned made = 1;
    while (made < threads && !err) {
        if (pthread_create(&ids[made], NULL, sender_thread, &senders[made]) == 0)
            made++;
        else
            err = SHOAL_ENOMEM;
    }
    if (!err)
        sender_thread(&senders[0]);
    for (unsigned i = 1; i < made; i++)
        (void)pthread_join(ids[i], NULL);
    for (unsigned i = 0; !err && i < threads; i++)
        err = senders[i].err;
    return err;
}

static void senders_sum(const struct sender *senders, const struct sh_bench_flags *shape,
                        struct sh_bench_result *result)
{
    uint64_t begin_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    for (unsigned i = 0; i < shape->threads; i++) {
        begin_ns = senders[i].begin_ns < begin_ns ? senders[i].begin_ns : begin_ns;
        end_ns = senders[i].end_ns > end_ns ? senders[i].end_ns : end_ns;
        result->ops += senders[i].done;
        sh_hist_merge(&result->latency_ns, &senders[i].latency_ns);
    }
    result->seconds = (double)(end_ns - begin_ns) / 1e9;
    result->bytes = result->ops * shape->size;
    result->digest = sh_mix64(shape->seed ^ result->bytes);
}

/* Starts the servers and the client's end, which must come after the last fork. */
static enum shoal_err client_open(struct client *client, const struct sh_bench_flags *shape,
                                  enum sh_placement placement)
{
    client->servers = calloc(shape->connections, sizeof *client->servers);
    client->senders = calloc(shape->threads, sizeof *client->senders);
    client->payload = malloc(shape->size);
    enum shoal_err err =
        client->servers && client->senders && client->payload ? SHOAL_OK : SHOAL_ENOMEM;
    for (unsigned i = 0; !err && i < shape->connections; i++) {
        struct server_args args = {.size = shape->size, .placement = placement, .number = i + 1};
        err = sh_child_start(server_main, &args, placement, &client->servers[i]);
    }
    if (err)
        return err;
    for (size_t i = 0; i < shape->size; i++)
        client->payload[i] = (uint8_t)sh_mix64(shape->seed + i);
    uint32_t requests_max = 64;
    while (requests_max < UINT64_C(2) * shape->threads * shape->outstanding * shape->connections)
        requests_max *= 2;
    struct sh_endpoint_config config = {.nid = SHOAL_NID_NONE,
                                        .placement = placement,
                                        .payload_bytes_max = shape->size + 64,
                                        .requests_max = requests_max};
    sh_bench_pin(placement, 0);
    err = sh_endpoint_open(&client->endpoint, &config);
    for (unsigned i = 0; !err && i < shape->connections; i++) {
        char address[SH_MSG_ADDRESS_MAX];
        snprintf(address, sizeof address, "127.0.0.1:%u", client->servers[i].port);
        err = sh_msg_node_set(client->endpoint.msg, (shoal_nid){(uint16_t)(1 + i)}, address);
    }
    return err ? err : sh_endpoint_start(&client->endpoint);
}

static void client_close(struct client *client, const struct sh_bench_flags *shape)
{
    sh_endpoint_close(&client->endpoint);
    for (unsigned i = 0; client->servers && i < shape->connections; i++)
        sh_child_stop(&client->servers[i]);
    free(client->servers);
    free(client->senders);
    free(client->payload);
}

/* Opens the connections by asking every server for its count, and at the end of a one-way run holds
 * the counts against what was sent. */
static enum shoal_err totals_ask(struct client *client, const struct sh_bench_flags *shape,
                                 uint64_t *total_out)
{
    struct sh_caller caller = sh_endpoint_caller(&client->endpoint);
    enum shoal_err err = SHOAL_OK;
    uint64_t sum = 0;
    for (unsigned i = 0; !err && i < shape->connections; i++) {
        uint64_t total = 0;
        err = total_ask(&caller, (shoal_nid){(uint16_t)(1 + i)}, &total);
        sum += total;
    }
    *total_out = sum;
    return err;
}

static enum shoal_err msg_measure(struct client *client, const struct sh_bench_flags *shape,
                                  enum sh_placement placement,
                                  enum shoal_err (*drive)(struct sender *sender),
                                  struct sh_bench_result *result)
{
    uint64_t total = 0;
    enum shoal_err err = totals_ask(client, shape, &total);
    if (err)
        return err;
    for (unsigned i = 0; i < shape->threads; i++) {
        struct sender *sender = &client->senders[i];
        sender->shape = shape;
        sender->placement = placement;
        sender->caller = sh_endpoint_caller(&client->endpoint);
        sender->drive = drive;
        sender->payload = client->payload;
        sender->share = UINT64_MAX;
        if (shape->count)
            sender->share = shape->count / shape->threads + (i < shape->count % shape->threads);
    }
    uint64_t cpu_ns = sh_children_cpu_ns(client->servers, shape->connections);
    err = senders_run(client->senders, shape->threads);
    result->cpu_ns = sh_children_cpu_ns(client->servers, shape->connections) - cpu_ns;
    if (err)
        return err;
    senders_sum(client->senders, shape, result);
    err = totals_ask(client, shape, &total);
    if (err || drive != oneway_drive || total == result->bytes)
        return err;
    SH_ERROR("bench", "servers counted other bytes", SH_U64("sent", result->bytes),
             SH_U64("counted", total));
    return SHOAL_EINTERNAL;
}

static enum shoal_err msg_run(const struct sh_bench_flags *shape, enum sh_placement placement,
                              enum shoal_err (*drive)(struct sender *sender),
                              struct sh_bench_result *result_out)
{
    struct client client;
    memset(&client, 0, sizeof client);
    enum shoal_err err = client_open(&client, shape, placement);
    if (!err)
        err = msg_measure(&client, shape, placement, drive, result_out);
    client_close(&client, shape);
    return err;
}

static enum shoal_err request_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return msg_run(arg, placement, request_drive, result_out);
}

static enum shoal_err oneway_run(void *arg, const struct sh_bench_flags *flags,
                                 enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return msg_run(arg, placement, oneway_drive, result_out);
}

static struct sh_bench_flags shape_of(const struct sh_bench_flags *flags)
{
    struct sh_bench_flags shape = *flags;
    shape.size = shape.size ? shape.size : 64;
    shape.threads = shape.threads ? shape.threads : 1;
    shape.outstanding = shape.outstanding ? shape.outstanding : 1;
    shape.connections = shape.connections ? shape.connections : 1;
    if (shape.seconds <= 0 && shape.count == 0)
        shape.seconds = 1;
    return shape;
}

enum shoal_err sh_bench_msg(struct sh_bench *bench)
{
    struct sh_bench_flags shape = shape_of(sh_bench_flags_get(bench));
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(bench, placements);
    const char *base = shape.vs;
    char extra[160];
    int length = snprintf(
        extra, sizeof extra, "size=%llu threads=%u connections=%u outstanding=%u transport=tcp",
        (unsigned long long)shape.size, shape.threads, shape.connections, shape.outstanding);
    if (shape.count)
        snprintf(extra + length, sizeof extra - (size_t)length, " count=%llu",
                 (unsigned long long)shape.count);
    enum shoal_err err = SHOAL_OK;
    if (sh_bench_case_wanted(bench, "request")) {
        for (unsigned i = 0; !err && i < count; i++)
            err = sh_bench_measure(bench, "request", placements[i], extra, request_run, &shape,
                                   base, base ? sh_tcp_base_request : NULL, &shape);
    }
    if (!err && sh_bench_case_wanted(bench, "oneway")) {
        for (unsigned i = 0; !err && i < count; i++)
            err = sh_bench_measure(bench, "oneway", placements[i], extra, oneway_run, &shape, base,
                                   base ? sh_tcp_base_oneway : NULL, &shape);
    }
    return err;
}
