#include "bench/redis_log_base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/cluster.h"
#include "bench/redis_server.h"
#include "bench/resp.h"

#define KEY_FIRST UINT64_C(10000000) /* 8 digits */
#define ROUND 256                    /* commands of one send; two rounds are in flight */
#define IN_BYTES 65536u
#define WAIT_S 30

struct client {
    const struct sh_log_plan *plan;
    int fd;
    uint8_t *out; /* a round */
    uint8_t in[IN_BYTES];
    size_t in_size;
    uint64_t sent, answered;
};

static enum shoal_err lost(const char *what, int cause)
{
    SH_ERROR("bench", "connection to the Redis server failed", SH_TEXT("in", what),
             SH_TEXT("cause", strerror(cause)));
    return cause == EAGAIN ? SHOAL_ETIMEOUT : SHOAL_ECONNLOST;
}

/* Sends a round of what is drawn; *more_out: there may be another. */
static enum shoal_err round_send(struct client *client, struct sh_log_draws *draws, bool *more_out)
{
    struct sh_log_target target;
    uint8_t *at = client->out, *value;
    unsigned count = 0;
    while (count < ROUND && sh_log_draw(draws, &target)) {
        struct sh_bytes payload = sh_log_payload(draws);
        at = sh_resp_set(at, KEY_FIRST + sh_log_key(client->plan, &target), payload.size, &value);
        memcpy(value, payload.at, payload.size);
        count++;
    }
    *more_out = count == ROUND;
    client->sent += count;
    for (const uint8_t *from = client->out; from < at;) {
        ssize_t sent = send(client->fd, from, (size_t)(at - from), MSG_NOSIGNAL);
        if (sent <= 0)
            return lost("send", errno);
        from += sent;
    }
    return SHOAL_OK;
}

/* Takes what has come, waiting for it. */
static enum shoal_err answers_take(struct client *client)
{
    ssize_t got = recv(client->fd, client->in + client->in_size, IN_BYTES - client->in_size, 0);
    if (got <= 0)
        return lost("recv", got < 0 ? errno : ECONNRESET);
    client->in_size += (size_t)got;
    size_t taken = 0;
    for (;;) {
        struct sh_resp reply =
            sh_resp_read(sh_bytes_make(client->in + taken, client->in_size - taken));
        if (reply.kind == SH_RESP_PARTIAL)
            break;
        if (reply.kind != SH_RESP_STATUS || client->answered == client->sent) {
            SH_ERROR("bench", "unexpected reply from the Redis server",
                     SH_U64("kind", (uint64_t)reply.kind));
            return SHOAL_EPROTO;
        }
        client->answered++;
        taken += reply.taken;
    }
    client->in_size -= taken;
    memmove(client->in, client->in + taken, client->in_size);
    return SHOAL_OK;
}

/* Keeps two rounds in flight, which are small beside what the server takes without an answer. */
static enum shoal_err drawn_set(struct client *client, struct sh_log_draws *draws,
                                uint64_t deadline_ns)
{
    bool has_more = true;
    enum shoal_err err = SHOAL_OK;
    while (!err && (has_more || client->answered < client->sent)) {
        if (has_more && client->sent - client->answered <= ROUND)
            err = round_send(client, draws, &has_more);
        else
            err = answers_take(client);
        if (has_more && sh_bench_now_ns() >= deadline_ns)
            has_more = false;
    }
    return err;
}

static enum shoal_err client_measure(struct client *client, const struct sh_child *server,
                                     struct sh_bench_result *result_out)
{
    const struct sh_log_plan *plan = client->plan;
    struct sh_log_draws draws;
    enum shoal_err err = SHOAL_OK;
    sh_log_draws_init(&draws, plan, true);
    if (plan->what != SH_LOG_LOAD)
        err = drawn_set(client, &draws, UINT64_MAX);
    if (err)
        return err;
    sh_log_draws_init(&draws, plan, false);
    uint64_t begin_ns = sh_bench_now_ns(), cpu_ns = sh_children_cpu_ns(server, 1);
    err = drawn_set(client, &draws, sh_log_plan_deadline_ns(plan, begin_ns));
    result_out->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result_out->cpu_ns = sh_children_cpu_ns(server, 1) - cpu_ns;
    result_out->ops = draws.drawn;
    result_out->bytes = draws.drawn * plan->size;
    result_out->digest = draws.digest;
    return err;
}

static enum shoal_err client_open(struct client *client, uint16_t port)
{
    struct timeval limit = {.tv_sec = WAIT_S};
    client->out = malloc(ROUND * SH_RESP_COMMAND_BYTES(1, client->plan->size));
    if (!client->out)
        return SHOAL_ENOMEM;
    client->fd = sh_child_connect(port);
    if (client->fd < 0 || fcntl(client->fd, F_SETFL, 0) != 0 ||
        setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return lost("connect", errno);
    return SHOAL_OK;
}

static void client_free(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    free(client->out);
    free(client);
}

enum shoal_err sh_redis_log_base_run(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out)
{
    const struct sh_log_plan *plan = arg;
    struct sh_child server = {.pid = 0};
    char folder[512] = "";
    (void)flags;
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return SHOAL_ENOMEM;
    client->plan = plan;
    client->fd = -1;
    enum shoal_err err = sh_bench_folder_make_in(plan->folder, "redis", folder, sizeof folder);
    if (!err)
        err = sh_redis_server_start_logged(placement, folder, &server);
    if (!err)
        err = client_open(client, server.port);
    if (!err)
        err = client_measure(client, &server, result_out);
    sh_child_stop(&server);
    if (folder[0])
        sh_bench_folder_remove(folder);
    client_free(client);
    return err;
}
