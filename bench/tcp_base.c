#include "bench/tcp_base.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/child.h"
#include "bench/tcp_base_int.h"

#define WAIT_MS 30000
#define THREADS_MAX 128
#define SPINS_CHECKED (1u << 16)
#define NS_PER_S 1e9

struct client_conn {
    int fd;
    bool watches_out;
    uint64_t unsent;  /* bytes asked for and not yet taken by the socket */
    uint64_t sent;    /* bytes taken so far */
    uint64_t arrived; /* bytes of the message that is coming in */
    uint64_t *stamps; /* when each message in flight was asked for; a ring of `outstanding` */
    unsigned head;
    unsigned in_flight;
};

/* One thread of the client. */
struct client {
    const struct sh_bench_flags *shape;
    enum sh_placement placement;
    const struct sh_child *servers; /* one for each connection */
    enum shoal_err (*drive)(struct client *client);
    int epoll;
    struct client_conn *conns;
    uint8_t *block;  /* SH_TCP_BLOCK_BYTES, what is sent */
    uint8_t *buffer; /* SH_TCP_READ_BYTES, what is received */
    uint64_t share;  /* messages that this thread sends; UINT64_MAX: until the deadline */
    uint64_t issued;
    uint64_t done;
    uint64_t in_flight;
    uint64_t begin_ns;
    uint64_t deadline_ns;
    uint64_t end_ns;
    enum shoal_err err;
    struct sh_hist latency_ns;
};

static enum shoal_err lost(const char *what)
{
    SH_ERROR("bench", "baseline connection failed", SH_TEXT("in", what),
             SH_TEXT("cause", strerror(errno)));
    return SHOAL_ECONNLOST;
}

static bool conn_watch(struct client *client, struct client_conn *conn, bool out)
{
    if (conn->watches_out == out)
        return true;
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = conn};
    conn->watches_out = out;
    return epoll_ctl(client->epoll, EPOLL_CTL_MOD, conn->fd, &event) == 0;
}

/* Sends what was asked for, as far as the socket takes it. */
static enum shoal_err conn_push(struct client *client, struct client_conn *conn)
{
    while (conn->unsent > 0) {
        size_t part = conn->unsent < SH_TCP_BLOCK_BYTES ? conn->unsent : SH_TCP_BLOCK_BYTES;
        ssize_t sent = send(conn->fd, client->block, part, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return conn_watch(client, conn, true) ? SHOAL_OK : lost("epoll_ctl");
        if (sent < 0)
            return lost("send");
        conn->unsent -= (uint64_t)sent;
        conn->sent += (uint64_t)sent;
    }
    return conn_watch(client, conn, false) ? SHOAL_OK : lost("epoll_ctl");
}

/* Asks for as many more messages as keep `outstanding` in flight, unless the time is over. */
static enum shoal_err conn_issue(struct client *client, struct client_conn *conn, uint64_t now_ns)
{
    unsigned outstanding = client->shape->outstanding;
    while (conn->in_flight < outstanding && client->issued < client->share &&
           now_ns < client->deadline_ns) {
        conn->stamps[(conn->head + conn->in_flight) % outstanding] = now_ns;
        conn->in_flight++;
        conn->unsent += client->shape->size;
        client->in_flight++;
        client->issued++;
    }
    return conn_push(client, conn);
}

static enum shoal_err conn_receive(struct client *client, struct client_conn *conn)
{
    ssize_t got = recv(conn->fd, client->buffer, SH_TCP_READ_BYTES, 0);
    if (got < 0 && errno == EAGAIN)
        return SHOAL_OK;
    if (got <= 0)
        return lost("recv");
    uint64_t now_ns = sh_bench_now_ns();
    conn->arrived += (uint64_t)got;
    while (conn->arrived >= client->shape->size) {
        SH_ASSERT(conn->in_flight > 0);
        conn->arrived -= client->shape->size;
        sh_hist_add(&client->latency_ns, now_ns - conn->stamps[conn->head]);
        conn->head = (conn->head + 1) % client->shape->outstanding;
        conn->in_flight--;
        client->in_flight--;
        client->done++;
    }
    return conn_issue(client, conn, now_ns);
}

/* Waits for events, spinning or blocking as placed; half a minute of nothing is an error. */
static enum shoal_err client_wait(struct client *client, struct epoll_event *events, int *count_out)
{
    bool spins = sh_bench_spins(client->placement);
    uint64_t limit_ns = 0;
    for (unsigned spin = 0;; spin++) {
        int count = epoll_wait(client->epoll, events, SH_TCP_EVENTS, spins ? 0 : WAIT_MS);
        if (count > 0) {
            *count_out = count;
            return SHOAL_OK;
        }
        if (count < 0 && errno != EINTR)
            return lost("epoll_wait");
        if (spins && spin % SPINS_CHECKED != SPINS_CHECKED - 1)
            continue;
        uint64_t now_ns = sh_bench_now_ns();
        if (limit_ns == 0 && spins)
            limit_ns = now_ns + WAIT_MS * UINT64_C(1000000);
        else if (count == 0 && now_ns > limit_ns)
            return SHOAL_ETIMEOUT;
    }
}

static enum shoal_err request_drive(struct client *client)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < client->shape->connections; i++)
        err = conn_issue(client, &client->conns[i], sh_bench_now_ns());
    struct epoll_event events[SH_TCP_EVENTS];
    while (!err && client->in_flight > 0) {
        int count = 0;
        err = client_wait(client, events, &count);
        for (int i = 0; !err && i < count; i++) {
            struct client_conn *conn = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                err = conn_push(client, conn);
            if (!err && (events[i].events & ~(uint32_t)EPOLLOUT))
                err = conn_receive(client, conn);
        }
    }
    return err;
}

/* Sends one block on a connection and waits while the socket is full. The block is filled message
 * by message, since a program that has messages must put them there. */
static enum shoal_err oneway_block(struct client *client, struct client_conn *conn)
{
    uint64_t size = client->shape->size;
    uint64_t left = client->share - client->issued;
    uint64_t messages = size >= SH_TCP_BLOCK_BYTES ? 1 : SH_TCP_BLOCK_BYTES / size;
    if (messages > left)
        messages = left;
    for (uint64_t i = 0; size < SH_TCP_BLOCK_BYTES && i < messages; i++)
        memcpy(client->block + i * size, client->buffer, size);
    conn->unsent = messages * size;
    client->issued += messages;
    enum shoal_err err = conn_push(client, conn);
    struct epoll_event events[SH_TCP_EVENTS];
    int count = 0;
    while (!err && conn->unsent > 0) {
        err = client_wait(client, events, &count);
        if (!err)
            err = conn_push(client, conn);
    }
    return err;
}

/* Ends the stream and waits until the server says that it has read all. */
static enum shoal_err oneway_finish(struct client *client, struct client_conn *conn)
{
    if (shutdown(conn->fd, SHUT_WR) != 0)
        return lost("shutdown");
    uint8_t total[8];
    size_t have = 0;
    while (have < sizeof total) {
        struct epoll_event events[SH_TCP_EVENTS];
        int count = 0;
        ssize_t got = recv(conn->fd, total + have, sizeof total - have, 0);
        enum shoal_err err = SHOAL_OK;
        if (got > 0)
            have += (size_t)got;
        else if (got == 0 || errno != EAGAIN)
            return lost("recv");
        else
            err = client_wait(client, events, &count);
        if (err)
            return err;
    }
    if (sh_load64(total) != conn->sent) {
        SH_ERROR("bench", "baseline server counted other bytes", SH_U64("sent", conn->sent),
                 SH_U64("counted", sh_load64(total)));
        return SHOAL_EINTERNAL;
    }
    return SHOAL_OK;
}

static enum shoal_err oneway_drive(struct client *client)
{
    enum shoal_err err = SHOAL_OK;
    unsigned next = 0;
    while (!err && client->issued < client->share && sh_bench_now_ns() < client->deadline_ns) {
        err = oneway_block(client, &client->conns[next]);
        next = (next + 1) % client->shape->connections;
    }
    for (unsigned i = 0; !err && i < client->shape->connections; i++)
        err = oneway_finish(client, &client->conns[i]);
    client->done = client->issued;
    return err;
}

static enum shoal_err client_open(struct client *client)
{
    const struct sh_bench_flags *shape = client->shape;
    client->epoll = epoll_create1(EPOLL_CLOEXEC);
    client->conns = calloc(shape->connections, sizeof *client->conns);
    client->block = malloc(SH_TCP_BLOCK_BYTES);
    client->buffer = malloc(SH_TCP_READ_BYTES);
    if (!client->conns || !client->block || !client->buffer)
        return SHOAL_ENOMEM;
    if (client->epoll < 0)
        return lost("epoll_create");
    for (size_t i = 0; i < SH_TCP_BLOCK_BYTES; i += 8)
        sh_store64(client->block + i, sh_mix64(shape->seed + i));
    memcpy(client->buffer, client->block, SH_TCP_BLOCK_BYTES);
    for (unsigned i = 0; i < shape->connections; i++)
        client->conns[i].fd = -1;
    for (unsigned i = 0; i < shape->connections; i++) {
        struct client_conn *conn = &client->conns[i];
        conn->stamps = calloc(shape->outstanding, sizeof *conn->stamps);
        if (!conn->stamps)
            return SHOAL_ENOMEM;
        conn->fd = sh_child_connect(client->servers[i].port);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
        if (conn->fd < 0 || epoll_ctl(client->epoll, EPOLL_CTL_ADD, conn->fd, &event) != 0)
            return lost("connect");
    }
    return SHOAL_OK;
}

static void client_close(struct client *client)
{
    for (unsigned i = 0; client->conns && i < client->shape->connections; i++) {
        if (client->conns[i].fd >= 0)
            close(client->conns[i].fd);
        free(client->conns[i].stamps);
    }
    if (client->epoll >= 0)
        close(client->epoll);
    free(client->conns);
    free(client->block);
    free(client->buffer);
}

static void *client_thread(void *arg)
{
    struct client *client = arg;
    sh_bench_pin(client->placement, 0);
    client->begin_ns = sh_bench_now_ns();
    client->deadline_ns = UINT64_MAX;
    if (client->share == UINT64_MAX)
        client->deadline_ns = client->begin_ns + (uint64_t)(client->shape->seconds * NS_PER_S);
    client->err = client->drive(client);
    client->end_ns = sh_bench_now_ns();
    return NULL;
}

/* Makes the threads' connections, before any thread runs. On failure too, all can be closed. */
static enum shoal_err clients_open(struct client *clients, const struct sh_bench_flags *shape,
                                   enum sh_placement placement, const struct sh_child *servers,
                                   bool echoes)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < shape->threads; i++) {
        clients[i].shape = shape;
        clients[i].placement = placement;
        clients[i].servers = servers;
        clients[i].drive = echoes ? request_drive : oneway_drive;
        clients[i].epoll = -1;
        clients[i].share = UINT64_MAX;
        if (shape->count)
            clients[i].share = shape->count / shape->threads + (i < shape->count % shape->threads);
        if (!err)
            err = client_open(&clients[i]);
    }
    return err;
}

/* Sums the threads up. Returns the first error. */
static enum shoal_err clients_sum(const struct client *clients, const struct sh_bench_flags *shape,
                                  struct sh_bench_result *result)
{
    uint64_t begin_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    for (unsigned i = 0; i < shape->threads; i++) {
        const struct client *client = &clients[i];
        if (client->err)
            return client->err;
        begin_ns = client->begin_ns < begin_ns ? client->begin_ns : begin_ns;
        end_ns = client->end_ns > end_ns ? client->end_ns : end_ns;
        result->ops += client->done;
        sh_hist_merge(&result->latency_ns, &client->latency_ns);
    }
    result->seconds = (double)(end_ns - begin_ns) / NS_PER_S;
    result->bytes = result->ops * shape->size;
    result->digest = sh_mix64(shape->seed ^ result->bytes);
    return SHOAL_OK;
}

/* Runs every client, the first on the calling thread, and waits for all. */
static enum shoal_err clients_run(struct client *clients, unsigned threads)
{
    pthread_t ids[THREADS_MAX];
    SH_ASSERT(threads >= 1 && threads <= THREADS_MAX);
    enum shoal_err err = SHOAL_OK;
    unsigned made = 1;
    while (made < threads && !err) {
        if (pthread_create(&ids[made], NULL, client_thread, &clients[made]) == 0)
            made++;
        else
            err = SHOAL_ENOMEM;
    }
    if (!err)
        client_thread(&clients[0]);
    for (unsigned i = 1; i < made; i++)
        (void)pthread_join(ids[i], NULL);
    return err;
}

/* Measures with servers that run. */
static enum shoal_err base_measure(struct client *clients, const struct sh_bench_flags *shape,
                                   enum sh_placement placement, const struct sh_child *servers,
                                   bool echoes, struct sh_bench_result *result)
{
    enum shoal_err err = clients_open(clients, shape, placement, servers, echoes);
    uint64_t cpu_ns = sh_children_cpu_ns(servers, shape->connections);
    if (!err)
        err = clients_run(clients, shape->threads);
    result->cpu_ns = sh_children_cpu_ns(servers, shape->connections) - cpu_ns;
    if (!err)
        err = clients_sum(clients, shape, result);
    for (unsigned i = 0; i < shape->threads; i++)
        client_close(&clients[i]);
    return err;
}

static enum shoal_err base_run(const struct sh_bench_flags *shape, enum sh_placement placement,
                               bool echoes, struct sh_bench_result *result_out)
{
    SH_ASSERT(shape->size > 0 && shape->outstanding > 0 && shape->connections > 0);
    SH_ASSERT(shape->seconds > 0 || shape->count > 0);
    struct sh_tcp_server what = {.spins = sh_bench_spins(placement), .echoes = echoes};
    struct client *clients = calloc(shape->threads, sizeof *clients);
    struct sh_child *servers = calloc(shape->connections, sizeof *servers);
    enum shoal_err err = clients && servers ? SHOAL_OK : SHOAL_ENOMEM;
    for (unsigned i = 0; !err && i < shape->connections; i++)
        err = sh_child_start(sh_tcp_server_main, &what, placement, &servers[i]);
    if (!err)
        err = base_measure(clients, shape, placement, servers, echoes, result_out);
    for (unsigned i = 0; servers && i < shape->connections; i++)
        sh_child_stop(&servers[i]);
    free(servers);
    free(clients);
    return err;
}

enum shoal_err sh_tcp_base_request(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return base_run(arg, placement, true, result_out);
}

enum shoal_err sh_tcp_base_oneway(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return base_run(arg, placement, false, result_out);
}
