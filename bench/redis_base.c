#include "bench/redis_base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/redis_server.h"
#include "bench/resp.h"

#define KEY_FIRST UINT64_C(10000000) /* 8 digits: the shortest of the keys that we compare with */
#define READ_BYTES (256 * 1024)
#define WAIT_S 30
#define THREADS_MAX 128
#define LOAD_OUTSTANDING 256

/* A command in flight. */
struct slot {
    uint64_t begin_ns;
    struct sh_kv_op op;
    unsigned answered; /* values of a multi get that have come */
};

struct redis {
    const struct sh_kv_shape *shape;
    enum sh_placement placement;
    int fd;
    bool loads; /* puts every object once, instead of what the case says */
    uint64_t load_next;
    unsigned outstanding;
    struct slot *slots; /* a ring of `outstanding` */
    uint64_t *indexes;  /* the slots' */
    unsigned head;
    unsigned in_flight;
    uint8_t *out; /* commands; out_from to out_to are not sent yet */
    size_t out_bytes, out_from, out_to;
    uint8_t *in;
    size_t in_bytes, in_from, in_to;
    uint64_t deadline_ns;
    struct sh_kv_source source;
    struct sh_kv_tally tally;
    enum shoal_err err;
};

static enum shoal_err lost(const char *what, int cause)
{
    SH_ERROR("bench", "connection to the Redis server failed", SH_TEXT("in", what),
             SH_TEXT("cause", strerror(cause)));
    return cause == EAGAIN ? SHOAL_ETIMEOUT : SHOAL_ECONNLOST;
}

/* Draws the next operation into the slot. False when there are no more. */
static bool slot_fill(struct redis *redis, struct slot *slot, uint64_t now_ns)
{
    if (now_ns >= redis->deadline_ns)
        return false;
    slot->begin_ns = now_ns;
    slot->answered = 0;
    if (!redis->loads) {
        sh_kv_next(&redis->source, &slot->op);
        sh_kv_drawn(&redis->tally, &slot->op);
        return true;
    }
    if (redis->load_next == redis->shape->flags.count)
        return false;
    slot->op.put = true;
    slot->op.count = 1;
    slot->op.indexes[0] = redis->load_next++;
    return true;
}

static void command_put(struct redis *redis, const struct sh_kv_op *op)
{
    uint64_t keys[4096];
    SH_ASSERT(op->count <= sizeof keys / sizeof *keys);
    uint8_t *at = redis->out + redis->out_to;
    uint8_t *value = NULL;
    for (unsigned i = 0; i < op->count; i++)
        keys[i] = KEY_FIRST + op->indexes[i];
    if (op->put) {
        at = sh_resp_set(at, keys[0], redis->shape->flags.size, &value);
        sh_kv_value(op->indexes[0], value, redis->shape->flags.size);
    } else if (redis->shape->what == SH_KV_MULTI) {
        at = sh_resp_mget(at, keys, op->count);
    } else {
        at = sh_resp_get(at, keys[0]);
    }
    redis->out_to = (size_t)(at - redis->out);
    SH_ASSERT(redis->out_to <= redis->out_bytes);
}

/* Sends what can be sent without waiting. */
static enum shoal_err redis_push(struct redis *redis)
{
    while (redis->out_from < redis->out_to) {
        ssize_t sent = send(redis->fd, redis->out + redis->out_from,
                            redis->out_to - redis->out_from, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN)
            return SHOAL_OK;
        if (sent < 0)
            return lost("send", errno);
        redis->out_from += (size_t)sent;
    }
    redis->out_from = redis->out_to = 0;
    return SHOAL_OK;
}

static enum shoal_err redis_issue(struct redis *redis, uint64_t now_ns)
{
    /* The buffer holds every command in flight, so once what is unsent is at its front the rest of
     * them fit behind it. */
    if (redis->out_from > 0) {
        memmove(redis->out, redis->out + redis->out_from, redis->out_to - redis->out_from);
        redis->out_to -= redis->out_from;
        redis->out_from = 0;
    }
    while (redis->in_flight < redis->outstanding) {
        struct slot *slot = &redis->slots[(redis->head + redis->in_flight) % redis->outstanding];
        if (!slot_fill(redis, slot, now_ns))
            break;
        command_put(redis, &slot->op);
        redis->in_flight++;
    }
    return redis_push(redis);
}

static void slot_done(struct redis *redis, uint64_t now_ns)
{
    struct slot *slot = &redis->slots[redis->head];
    sh_hist_add(&redis->tally.latency_ns, now_ns - slot->begin_ns);
    redis->tally.objects += slot->op.count;
    redis->head = (redis->head + 1) % redis->outstanding;
    redis->in_flight--;
}

/* Takes one reply as (part of) the answer to the oldest command. */
static enum shoal_err reply_take(struct redis *redis, const struct sh_resp *reply, uint64_t now_ns)
{
    if (redis->in_flight == 0 || reply->kind == SH_RESP_BAD)
        return SHOAL_EPROTO;
    struct slot *slot = &redis->slots[redis->head];
    bool multi = slot->op.count > 1 || (redis->shape->what == SH_KV_MULTI && !redis->loads);
    if (slot->op.put) {
        if (reply->kind != SH_RESP_STATUS)
            return SHOAL_EPROTO;
        slot_done(redis, now_ns);
    } else if (reply->kind == SH_RESP_BULK) {
        if (slot->answered == slot->op.count)
            return SHOAL_EPROTO;
        uint64_t index = slot->op.indexes[slot->answered++];
        redis->tally.wrong +=
            !sh_kv_value_is(index, reply->bytes.at, reply->bytes.size, redis->shape->flags.size);
        if (slot->answered == slot->op.count)
            slot_done(redis, now_ns);
    } else if (!multi || reply->kind != SH_RESP_ARRAY || reply->count != slot->op.count) {
        return SHOAL_EPROTO;
    }
    return SHOAL_OK;
}

/* Takes the replies that are whole. */
static enum shoal_err replies_take(struct redis *redis)
{
    uint64_t now_ns = sh_bench_now_ns();
    for (;;) {
        struct sh_resp reply =
            sh_resp_read(sh_bytes_make(redis->in + redis->in_from, redis->in_to - redis->in_from));
        if (reply.kind == SH_RESP_PARTIAL)
            break;
        enum shoal_err err = reply_take(redis, &reply, now_ns);
        if (err) {
            SH_ERROR("bench", "unexpected reply from the Redis server",
                     SH_U64("kind", (uint64_t)reply.kind));
            return err;
        }
        redis->in_from += reply.taken;
    }
    memmove(redis->in, redis->in + redis->in_from, redis->in_to - redis->in_from);
    redis->in_to -= redis->in_from;
    redis->in_from = 0;
    SH_ASSERT(redis->in_to < redis->in_bytes);
    return redis_issue(redis, now_ns);
}

/* Waits for bytes and reads them: by spinning or blocked in recv; in poll only while commands wait
 * to be sent as well. */
static enum shoal_err redis_read(struct redis *redis)
{
    bool unsent = redis->out_from < redis->out_to;
    if (unsent && !sh_bench_spins(redis->placement)) {
        struct pollfd wait = {.fd = redis->fd, .events = POLLIN | POLLOUT};
        if (poll(&wait, 1, WAIT_S * 1000) <= 0)
            return lost("poll", EAGAIN);
    }
    if (unsent) {
        enum shoal_err err = redis_push(redis);
        if (err)
            return err;
    }
    bool waits = !unsent && !sh_bench_spins(redis->placement);
    ssize_t got = recv(redis->fd, redis->in + redis->in_to, redis->in_bytes - redis->in_to,
                       waits ? 0 : MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN && !waits)
        return SHOAL_OK;
    if (got <= 0)
        return lost("recv", got < 0 ? errno : ECONNRESET);
    redis->in_to += (size_t)got;
    return replies_take(redis);
}

/* Spinning never ends by itself when the server hangs: a look at the clock now and then does. */
static enum shoal_err redis_drive(struct redis *redis)
{
    enum shoal_err err = redis_issue(redis, sh_bench_now_ns());
    unsigned idle = 0;
    uint64_t idle_since_ns = sh_bench_now_ns();
    while (!err && redis->in_flight > 0) {
        uint64_t before = redis->tally.objects;
        err = redis_read(redis);
        idle = redis->tally.objects == before ? idle + 1 : 0;
        if (idle == 1)
            idle_since_ns = sh_bench_now_ns();
        if (idle % 65536 == 65535 &&
            sh_bench_now_ns() - idle_since_ns > WAIT_S * UINT64_C(1000000000))
            err = lost("recv", EAGAIN);
    }
    return err;
}

static enum shoal_err redis_connect(struct redis *redis, uint16_t port)
{
    redis->fd = sh_child_connect(port);
    struct timeval limit = {.tv_sec = WAIT_S};
    if (redis->fd < 0 || fcntl(redis->fd, F_SETFL, 0) != 0 ||
        setsockopt(redis->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        return lost("connect", errno);
    return SHOAL_OK;
}

static enum shoal_err redis_open(struct redis *redis, const struct sh_kv_shape *shape,
                                 enum sh_placement placement, uint16_t port, unsigned thread)
{
    unsigned batch = sh_kv_batch(shape);
    size_t command = SH_RESP_COMMAND_BYTES(batch, shape->flags.size);
    redis->shape = shape;
    redis->placement = placement;
    redis->outstanding = redis->loads ? LOAD_OUTSTANDING : shape->flags.outstanding;
    redis->deadline_ns = UINT64_MAX;
    redis->out_bytes = redis->outstanding * command;
    redis->in_bytes = READ_BYTES + shape->flags.size + 64;
    redis->slots = calloc(redis->outstanding, sizeof *redis->slots);
    redis->indexes = calloc((size_t)redis->outstanding * batch, sizeof *redis->indexes);
    redis->out = malloc(redis->out_bytes);
    redis->in = malloc(redis->in_bytes);
    if (!redis->slots || !redis->indexes || !redis->out || !redis->in)
        return SHOAL_ENOMEM;
    for (unsigned i = 0; i < redis->outstanding; i++)
        redis->slots[i].op.indexes = redis->indexes + (size_t)i * batch;
    sh_kv_source_init(&redis->source, shape, thread);
    return redis_connect(redis, port);
}

static void redis_close(struct redis *redis)
{
    if (redis->fd >= 0)
        close(redis->fd);
    free(redis->slots);
    free(redis->indexes);
    free(redis->out);
    free(redis->in);
}

/* Puts every object once. */
static enum shoal_err redis_load(const struct sh_kv_shape *shape, enum sh_placement placement,
                                 uint16_t port)
{
    struct redis *redis = calloc(1, sizeof *redis);
    if (!redis)
        return SHOAL_ENOMEM;
    redis->loads = true;
    redis->fd = -1;
    enum shoal_err err = redis_open(redis, shape, placement, port, 0);
    if (!err)
        err = redis_drive(redis);
    redis_close(redis);
    free(redis);
    return err;
}

static void *redis_thread(void *arg)
{
    struct redis *redis = arg;
    sh_bench_pin(redis->placement, 0);
    redis->tally.begin_ns = sh_bench_now_ns();
    redis->deadline_ns = redis->tally.begin_ns + (uint64_t)(redis->shape->flags.seconds * 1e9);
    redis->err = redis_drive(redis);
    redis->tally.end_ns = sh_bench_now_ns();
    return NULL;
}

/* Runs every client, the first on the calling thread; returns the first error. */
static enum shoal_err clients_run(struct redis *clients, unsigned threads)
{
    pthread_t ids[THREADS_MAX];
    SH_ASSERT(threads >= 1 && threads <= THREADS_MAX);
    enum shoal_err err = SHOAL_OK;
    unsigned made = 1;
    while (made < threads && !err) {
        if (pthread_create(&ids[made], NULL, redis_thread, &clients[made]) == 0)
            made++;
        else
            err = SHOAL_ENOMEM;
    }
    if (!err)
        redis_thread(&clients[0]);
    for (unsigned i = 1; i < made; i++)
        (void)pthread_join(ids[i], NULL);
    for (unsigned i = 0; !err && i < threads; i++)
        err = clients[i].err;
    return err;
}

static enum shoal_err clients_sum(const struct redis *clients, const struct sh_kv_shape *shape,
                                  struct sh_bench_result *result)
{
    struct sh_kv_tally *tallies = calloc(shape->flags.threads, sizeof *tallies);
    if (!tallies)
        return SHOAL_ENOMEM;
    for (unsigned i = 0; i < shape->flags.threads; i++)
        tallies[i] = clients[i].tally;
    enum shoal_err err = sh_kv_sum(tallies, shape->flags.threads, shape->flags.size, result);
    free(tallies);
    return err;
}

enum shoal_err sh_redis_base_run(void *arg, const struct sh_bench_flags *flags,
                                 enum sh_placement placement, struct sh_bench_result *result_out)
{
    const struct sh_kv_shape *shape = arg;
    unsigned threads = shape->flags.threads;
    (void)flags;
    SH_ASSERT(shape->flags.outstanding > 0 && shape->flags.size > 0);
    struct redis *clients = calloc(threads, sizeof *clients);
    struct sh_child server = {.pid = 0};
    if (!clients)
        return SHOAL_ENOMEM;
    for (unsigned i = 0; i < threads; i++)
        clients[i].fd = -1;
    enum shoal_err err = sh_redis_server_start(placement, &server);
    if (err)
        goto out_free;
    err = redis_load(shape, placement, server.port);
    for (unsigned i = 0; !err && i < threads; i++)
        err = redis_open(&clients[i], shape, placement, server.port, i);
    uint64_t cpu_ns = sh_children_cpu_ns(&server, 1);
    if (!err)
        err = clients_run(clients, threads);
    result_out->cpu_ns = sh_children_cpu_ns(&server, 1) - cpu_ns;
    if (!err)
        err = clients_sum(clients, shape, result_out);
    for (unsigned i = 0; i < threads; i++)
        redis_close(&clients[i]);
    sh_child_stop(&server);
out_free:
    free(clients);
    return err;
}
