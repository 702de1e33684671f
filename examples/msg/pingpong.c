/* Two ends in one process send requests back and forth over TCP; prints how long one takes.
 *
 *     cc pingpong.c $(pkg-config --cflags --libs shoalmsg) -o pingpong && ./pingpong
 *
 * Nothing changes when the ends are in two processes: each makes its own end as below, and the
 * asking one is told the other's address. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoalmsg/call.h>
#include <shoalmsg/crew.h>
#include <shoalmsg/msg.h>
#include <shoalmsg/tcp.h>

#define PING SH_MSG_TYPE(1, 1)
#define ROUNDS 10000

/* One end: a wire that carries bytes, messaging on it, and the thread that runs its steps. */
struct end {
    struct sh_clock clock;
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_crew *crew;
};

static void wake(void *arg)
{
    struct end *end = arg;
    sh_crew_wake(end->crew, 0);
}

/* Runs in the transport step, on the bytes in the receive buffer: short, and never waiting. */
static void on_ping(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    size_t size = sh_reader_left(&in->payload);
    (void)arg;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out) == SHOAL_OK) {
        sh_put_raw(&out.w, sh_bytes_make(sh_reader_take(&in->payload, size), size));
        sh_msg_end(in->msg, &out);
    }
}

static enum shoal_err end_open(struct end *end, uint16_t number)
{
    end->clock = sh_real_clock();
    struct sh_crew_config crew = {
        .name = number == 1 ? "ponger" : "pinger",
        .threads = 1,
        .lends = true, /* who waits in sh_call runs the steps itself */
        .idle = {.spin_ns = 10000, .park_ns = 20000, .silence_ns = 1000000000},
        .now_ns = end->clock.now_ns,
        .now_arg = end->clock.arg,
    };
    enum shoal_err err = sh_crew_create(&crew, &end->crew);
    if (err == SHOAL_OK) {
        err = sh_tcp_create(64, &end->wire);
    }
    if (err != SHOAL_OK) {
        return err;
    }
    struct sh_msg_config config = {
        .nid = {number},
        .cluster = "pingpong",
        .connections_max = 16,
        .requests_max = 1024,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = 5000000000,
        .connect_timeout_ns = 3000000000,
        .env = {.clock = end->clock, .random = sh_real_random(), .wire = end->wire},
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = end,
    };
    err = sh_msg_create(&config, &end->msg);
    if (err != SHOAL_OK) {
        return err;
    }
    sh_msg_handler_set(end->msg, PING, SH_MSG_INLINE, on_ping, NULL);
    sh_crew_parker_set(end->crew, 0, sh_msg_parker(end->msg));
    sh_crew_step_add(end->crew, 0, sh_msg_transport_step(end->msg));
    sh_crew_step_add(end->crew, 0, sh_msg_handler_step(end->msg));
    return SHOAL_OK;
}

/* Threads first, then what they use. */
static void end_close(struct end *end)
{
    if (end->crew) {
        sh_crew_stop(end->crew);
    }
    if (end->msg) {
        sh_msg_destroy(end->msg);
    }
    if (end->wire) {
        end->wire->ops->destroy(end->wire);
    }
    sh_crew_destroy(end->crew);
}

static enum shoal_err play(struct end *end)
{
    struct sh_caller caller = {.msg = end->msg, .crew = end->crew, .clock = &end->clock};
    const char ball[] = "ping";
    uint64_t begun_ns = sh_now(&end->clock);

    for (int round = 0; round < ROUNDS; round++) {
        uint8_t *answer = NULL;
        size_t size = 0;
        enum shoal_err err = sh_call(&caller, (shoal_nid){1}, PING,
                                     sh_bytes_make(ball, sizeof ball), 0, &answer, &size, NULL);
        if (err == SHOAL_OK && (size != sizeof ball || memcmp(answer, ball, size) != 0)) {
            err = SHOAL_EPROTO;
        }
        free(answer);
        if (err != SHOAL_OK) {
            return err;
        }
    }
    double us = (double)(sh_now(&end->clock) - begun_ns) / 1000.0;
    printf("%d round trips, %.1f us each\n", ROUNDS, us / ROUNDS);
    return SHOAL_OK;
}

int main(void)
{
    struct end ponger = {0}, pinger = {0};
    char address[SH_MSG_ADDRESS_MAX];

    enum shoal_err err = end_open(&ponger, 1);
    if (err == SHOAL_OK) {
        err = end_open(&pinger, 2);
    }
    if (err == SHOAL_OK) {
        err = sh_msg_listen(ponger.msg, "127.0.0.1:0", address);
    }
    if (err == SHOAL_OK) {
        err = sh_msg_node_set(pinger.msg, (shoal_nid){1}, address);
    }
    if (err == SHOAL_OK) {
        err = sh_crew_start(ponger.crew);
    }
    if (err == SHOAL_OK) {
        err = sh_crew_start(pinger.crew);
    }
    if (err == SHOAL_OK) {
        err = play(&pinger);
    }
    end_close(&pinger);
    end_close(&ponger);
    if (err != SHOAL_OK) {
        fprintf(stderr, "pingpong: %s (%s)\n", shoal_err_text(err), shoal_err_hint(err));
    }
    return err == SHOAL_OK ? 0 : 1;
}
