#include "bench/redis_log_base.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/cluster.h"
#include "bench/redis_client.h"
#include "bench/redis_server.h"

#define KEY_FIRST UINT64_C(10000000) /* 8 digits */
#define ROUND 256                    /* commands of one send; two rounds are in flight */
#define IN_BYTES 65536u
#define WAIT_S 30

struct client {
    const struct sh_log_plan *plan;
    struct sh_redis_client redis;
    uint8_t *out; /* a round */
    uint64_t sent, answered;
};

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
    return sh_redis_client_send(&client->redis, client->out, (size_t)(at - client->out));
}

static enum shoal_err reply_take(void *arg, const struct sh_resp *reply)
{
    struct client *client = arg;
    if (reply->kind != SH_RESP_STATUS || client->answered == client->sent) {
        SH_ERROR("bench", "unexpected reply from the Redis server",
                 SH_U64("kind", (uint64_t)reply->kind));
        return SHOAL_EPROTO;
    }
    client->answered++;
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
            err = sh_redis_client_take(&client->redis, reply_take, client);
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

enum shoal_err sh_redis_log_base_run(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out)
{
    const struct sh_log_plan *plan = arg;
    struct sh_child server = {.pid = 0};
    char folder[512] = "";
    (void)flags;
    struct client client = {.plan = plan,
                            .redis = {.fd = -1},
                            .out = malloc(ROUND * SH_RESP_COMMAND_BYTES(1, plan->size))};
    if (!client.out)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_bench_folder_make_in(plan->folder, "redis", folder, sizeof folder);
    if (!err)
        err = sh_redis_server_start_logged(placement, folder, SH_REDIS_START_NS, &server);
    if (!err)
        err = sh_redis_client_open(&client.redis, server.port, IN_BYTES, WAIT_S);
    if (!err)
        err = client_measure(&client, &server, result_out);
    sh_child_stop(&server);
    if (folder[0])
        sh_bench_folder_remove(folder);
    sh_redis_client_close(&client.redis);
    free(client.out);
    return err;
}
