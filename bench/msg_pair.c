/* The cases request, oneway and silence: requests that are answered with the same bytes, and
 * one-way messages that are counted. An application thread keeps its requests in flight, waits for
 * the oldest, and sends another for each that is done; while it waits it runs the client's
 * transport step itself (base/crew.h), as any program's would.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/msg_bench_int.h"

#define SILENCE_S 0.1
#define COUNTED_TIMEOUT_NS UINT64_C(30000000000)

/* With --catch-up off: who ends a message waits for those that began theirs before, as in a ring
 * that only knows how far it is complete. The lock makes the tickets rise as the places do. */
struct turnstile {
    atomic_flag beginning;
    uint32_t next; /* under beginning */
    _Alignas(64) _Atomic uint32_t turn;
};

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
    struct turnstile *turnstiles; /* one for each server; NULL: catch-up is on */
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
    struct sh_msg_server *servers;
    struct turnstile *turnstiles;
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

/* Begins a message by `begin`, and takes a ticket with it where catch-up is off. */
static enum shoal_err ticketed_begin(struct sender *sender, shoal_nid to, struct slot *slot,
                                     struct sh_out *out, uint32_t *ticket_out)
{
    size_t size = sender->shape->size;
    struct sh_msg *msg = sender->caller.msg;
    if (!sender->turnstiles)
        return slot ? sh_msg_request(msg, to, SH_MSG_BENCH_ECHO, size, &slot->request, out)
                    : sh_msg_begin(msg, to, SH_MSG_BENCH_COUNT, size, out);
    struct turnstile *turnstile = &sender->turnstiles[to.v - 1];
    /* acquire, release: next and the order of places; pair with each other */
    while (atomic_flag_test_and_set_explicit(&turnstile->beginning, memory_order_acquire))
        (void)sched_yield();
    enum shoal_err err = slot
                             ? sh_msg_request(msg, to, SH_MSG_BENCH_ECHO, size, &slot->request, out)
                             : sh_msg_begin(msg, to, SH_MSG_BENCH_COUNT, size, out);
    if (!err)
        *ticket_out = turnstile->next++;
    atomic_flag_clear_explicit(&turnstile->beginning, memory_order_release);
    return err;
}

/* Writes the payload and ends the message, without catch-up when its turn has come. */
static void ticketed_end(struct sender *sender, shoal_nid to, struct sh_out *out, uint32_t ticket)
{
    sh_put_raw(&out->w, sh_bytes_make(sender->payload, sender->shape->size));
    struct turnstile *turnstile = sender->turnstiles ? &sender->turnstiles[to.v - 1] : NULL;
    /* acquire: pairs with the release below, of the one before */
    while (turnstile && atomic_load_explicit(&turnstile->turn, memory_order_acquire) != ticket)
        (void)sched_yield();
    sh_msg_end(sender->caller.msg, out);
    if (turnstile)
        atomic_store_explicit(&turnstile->turn, ticket + 1, memory_order_release);
}

/* Begins, writes and ends one message; slot is its request, NULL for one-way. */
static enum shoal_err message_send(struct sender *sender, shoal_nid to, struct slot *slot)
{
    struct sh_out out;
    uint32_t ticket = 0;
    enum shoal_err err = SHOAL_EAGAIN;
    while (err == SHOAL_EAGAIN) {
        err = ticketed_begin(sender, to, slot, &out, &ticket);
        if (err != SHOAL_EAGAIN)
            break;
        err = sh_call_wait_room(&sender->caller, to, sender->shape->size, SH_NEVER);
        err = err ? err : SHOAL_EAGAIN;
    }
    if (!err)
        ticketed_end(sender, to, &out, ticket);
    return err;
}

static enum shoal_err slot_send(struct sender *sender, struct slot *slot, uint64_t now_ns)
{
    memset(&slot->waiter, 0, sizeof slot->waiter);
    slot->request = (struct sh_request){.done = on_answer, .arg = slot};
    slot->begin_ns = now_ns;
    enum shoal_err err = message_send(sender, slot->to, slot);
    if (err)
        return err;
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

/* Nothing for --seconds, and then one request: what a node costs that has nothing to do, and how
 * long it takes to come back. */
static enum shoal_err silence_drive(struct sender *sender)
{
    double seconds = sender->shape->seconds > 0 ? sender->shape->seconds : SILENCE_S;
    uint64_t until_ns = sender->begin_ns + (uint64_t)(seconds * 1e9);
    struct slot slot = {.to = {1}};
    uint64_t now_ns = sh_bench_now_ns();
    for (; now_ns < until_ns; now_ns = sh_bench_now_ns()) {
        uint64_t left_ms = (until_ns - now_ns) / 1000000 + 1;
        (void)poll(NULL, 0, left_ms < 1000 ? (int)left_ms : 1000);
    }
    enum shoal_err err = slot_send(sender, &slot, now_ns);
    err = err ? err : slot_await(sender, &slot);
    if (err)
        return err;
    sh_hist_add(&sender->latency_ns, sh_bench_now_ns() - slot.begin_ns);
    sender->done++;
    return SHOAL_OK;
}

/* Asks a server how many bytes it has counted, which it answers after all that was sent before. */
static enum shoal_err total_ask(const struct sh_caller *caller, shoal_nid server,
                                uint64_t *total_out)
{
    uint8_t *answer = NULL;
    size_t size = 0;
    enum shoal_err err = sh_call(caller, server, SH_MSG_BENCH_TOTAL, (struct sh_bytes){NULL, 0}, 0,
                                 &answer, &size, NULL);
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
        err = message_send(sender, to, NULL);
        sender->issued++;
        if (sender->issued % SH_MSG_BENCH_CLOCK_EVERY == 0)
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
    pthread_t ids[SH_MSG_BENCH_THREADS_MAX];
    SH_ASSERT(threads >= 1 && threads <= SH_MSG_BENCH_THREADS_MAX);
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

static enum shoal_err client_alloc(struct client *client, const struct sh_bench_flags *shape)
{
    client->servers = calloc(shape->connections, sizeof *client->servers);
    client->senders = calloc(shape->threads, sizeof *client->senders);
    client->payload = malloc(shape->size);
    if (!client->servers || !client->senders || !client->payload)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < shape->size; i++)
        client->payload[i] = (uint8_t)sh_mix64(shape->seed + i);
    if (!shape->catch_up || strcmp(shape->catch_up, "off") != 0)
        return SHOAL_OK;
    size_t bytes = shape->connections * sizeof *client->turnstiles;
    client->turnstiles = aligned_alloc(_Alignof(struct turnstile), bytes);
    if (!client->turnstiles)
        return SHOAL_ENOMEM;
    memset(client->turnstiles, 0, bytes);
    return SHOAL_OK;
}

/* Starts the servers and the client's end, which must come after the last fork. */
static enum shoal_err client_open(struct client *client, const struct sh_bench_flags *shape,
                                  enum sh_placement placement)
{
    enum shoal_err err = client_alloc(client, shape);
    for (unsigned i = 0; !err && i < shape->connections; i++)
        err = sh_msg_server_start(&client->servers[i], shape, placement, i);
    if (err)
        return err;
    uint32_t requests_max = 64;
    while (requests_max < UINT64_C(2) * shape->threads * shape->outstanding * shape->connections)
        requests_max *= 2;
    struct sh_endpoint_config config = {.nid = SHOAL_NID_NONE,
                                        .lends = true,
                                        .placement = placement,
                                        .transport = shape->transport,
                                        .idle = shape->idle,
                                        .payload_bytes_max = shape->size + 64,
                                        .requests_max = requests_max};
    sh_bench_pin(placement, 0);
    err = sh_endpoint_open(&client->endpoint, &config);
    for (unsigned i = 0; !err && i < shape->connections; i++)
        err = sh_msg_node_set(client->endpoint.msg, (shoal_nid){(uint16_t)(1 + i)},
                              client->servers[i].board->address);
    return err ? err : sh_endpoint_start(&client->endpoint);
}

static void client_close(struct client *client, const struct sh_bench_flags *shape)
{
    sh_endpoint_close(&client->endpoint);
    for (unsigned i = 0; client->servers && i < shape->connections; i++)
        sh_msg_server_stop(&client->servers[i]);
    free(client->servers);
    free(client->turnstiles);
    free(client->senders);
    free(client->payload);
}

/* Opens the connections by asking every server for its count. */
static enum shoal_err totals_ask(struct client *client, const struct sh_bench_flags *shape)
{
    struct sh_caller caller = sh_endpoint_caller(&client->endpoint);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < shape->connections; i++) {
        uint64_t total = 0;
        err = total_ask(&caller, (shoal_nid){(uint16_t)(1 + i)}, &total);
    }
    return err;
}

/* Waits until the servers have counted as many bytes as were sent. With inline handlers they have,
 * since each sender asked for the count behind its messages; pooled ones may still be at it. */
static enum shoal_err counts_await(const struct client *client, const struct sh_bench_flags *shape,
                                   uint64_t sent)
{
    uint64_t deadline_ns = sh_bench_now_ns() + COUNTED_TIMEOUT_NS;
    for (;;) {
        uint64_t counted = 0;
        for (unsigned i = 0; i < shape->connections; i++)
            counted += atomic_load_explicit(&client->servers[i].board->received,
                                            memory_order_relaxed); /* see on_count_alone */
        if (counted == sent)
            return SHOAL_OK;
        if (counted > sent || shape->handlers == 0 || sh_bench_now_ns() > deadline_ns) {
            SH_ERROR("bench", "servers counted other bytes", SH_U64("sent", sent),
                     SH_U64("counted", counted));
            return SHOAL_EINTERNAL;
        }
        (void)sched_yield();
    }
}

/* Processor time of this process and all servers. */
static uint64_t cpu_sum_ns(const struct client *client, const struct sh_bench_flags *shape)
{
    uint64_t sum_ns = sh_bench_cpu_ns();
    for (unsigned i = 0; i < shape->connections; i++)
        sum_ns += sh_child_cpu_ns(&client->servers[i].child);
    return sum_ns;
}

static void senders_init(struct client *client, const struct sh_bench_flags *shape,
                         enum sh_placement placement,
                         enum shoal_err (*drive)(struct sender *sender))
{
    for (unsigned i = 0; i < shape->threads; i++) {
        struct sender *sender = &client->senders[i];
        sender->shape = shape;
        sender->placement = placement;
        sender->caller = sh_endpoint_caller(&client->endpoint);
        sender->turnstiles = client->turnstiles;
        sender->drive = drive;
        sender->payload = client->payload;
        sender->share = UINT64_MAX;
        if (shape->count)
            sender->share = shape->count / shape->threads + (i < shape->count % shape->threads);
    }
}

/* What the pushes of the run have carried. */
static double blocks_rate(const struct sh_msg_stats *before, const struct sh_msg_stats *after)
{
    uint64_t blocks = after->blocks_out - before->blocks_out;
    return blocks ? (double)(after->messages_out - before->messages_out) / (double)blocks : 0;
}

static enum shoal_err msg_measure(struct client *client, const struct sh_bench_flags *shape,
                                  enum sh_placement placement,
                                  enum shoal_err (*drive)(struct sender *sender),
                                  struct sh_bench_result *result)
{
    struct sh_msg_stats before, after;
    enum shoal_err err = totals_ask(client, shape);
    if (err)
        return err;
    senders_init(client, shape, placement, drive);
    sh_msg_stats_get(client->endpoint.msg, &before);
    uint64_t cpu_ns = cpu_sum_ns(client, shape);
    uint64_t begin_ns = sh_bench_now_ns();
    err = senders_run(client->senders, shape->threads);
    if (err)
        return err;
    sh_msg_stats_get(client->endpoint.msg, &after);
    senders_sum(client->senders, shape, result);
    if (drive == oneway_drive)
        err = counts_await(client, shape, result->bytes);
    if (drive == oneway_drive && shape->handlers)
        result->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result->cpu_ns = cpu_sum_ns(client, shape) - cpu_ns;
    result->messages_per_block = blocks_rate(&before, &after);
    return err;
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

enum shoal_err sh_msg_request_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return msg_run(arg, placement, request_drive, result_out);
}

enum shoal_err sh_msg_oneway_run(void *arg, const struct sh_bench_flags *flags,
                                 enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return msg_run(arg, placement, oneway_drive, result_out);
}

enum shoal_err sh_msg_silence_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return msg_run(arg, placement, silence_drive, result_out);
}
