#include "bench/nng_base.h"

#include "bench/msg_base.h"

#ifdef SHOAL_HAS_NNG

#include <errno.h>
#include <nng/nng.h>
#include <nng/protocol/pipeline0/pull.h>
#include <nng/protocol/pipeline0/push.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdlib.h>

#include "base/log.h"
#include "bench/child.h"

#define QUEUE_MAX 8192 /* of nng's own limits */

struct socket {
    nng_socket nng;
    int flags;   /* NNG_FLAG_NONBLOCK where the placement spins */
    bool asks;   /* raw REQ: messages carry an ID in their header */
    uint32_t id; /* of the last request */
};

static enum shoal_err failed(const char *what, int cause)
{
    SH_ERROR("bench", "nng failed", SH_TEXT("in", what), SH_TEXT("cause", nng_strerror(cause)));
    return SHOAL_EIO;
}

static void options_set(nng_socket nng, size_t size)
{
    int queue = sh_msg_base_queue(size);
    if (queue > QUEUE_MAX)
        queue = QUEUE_MAX;
    /* Some protocols have no queue in one of the directions and say so. */
    (void)nng_socket_set_int(nng, NNG_OPT_SENDBUF, queue);
    (void)nng_socket_set_int(nng, NNG_OPT_RECVBUF, queue);
    (void)nng_socket_set_size(nng, NNG_OPT_RECVMAXSZ, 0);
    (void)nng_socket_set_bool(nng, NNG_OPT_TCP_NODELAY, true);
}

static int message_receive(nng_socket nng, nng_msg **message_out, int flags)
{
    int cause;
    do
        cause = nng_recvmsg(nng, message_out, flags);
    while (cause == NNG_EAGAIN);
    return cause;
}

/* Takes the message, whatever comes of it. */
static int message_send(nng_socket nng, nng_msg *message, int flags)
{
    int cause;
    do
        cause = nng_sendmsg(nng, message, flags);
    while (cause == NNG_EAGAIN);
    if (cause)
        nng_msg_free(message);
    return cause;
}

static void serve(const struct sh_msg_base_server *server, int report_fd)
{
    nng_socket nng;
    nng_listener listener;
    int port = 0;
    int flags = server->spins ? NNG_FLAG_NONBLOCK : 0;
    int cause = server->echoes ? nng_rep0_open_raw(&nng) : nng_pull0_open(&nng);
    if (!cause) {
        options_set(nng, server->size);
        cause = nng_listen(nng, "tcp://127.0.0.1:0", &listener, 0);
    }
    if (!cause)
        cause = nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port);
    if (!cause)
        sh_child_report(report_fd, (uint16_t)port);
    while (!cause) {
        nng_msg *message = NULL;
        cause = message_receive(nng, &message, flags);
        if (!cause && server->echoes) {
            cause = message_send(nng, message, flags);
        } else if (!cause) {
            atomic_fetch_add_explicit(server->received, nng_msg_len(message),
                                      memory_order_relaxed); /* a sum */
            nng_msg_free(message);
        }
    }
    (void)failed("serve", cause);
}

/* nng keeps its state by itself; the client is a mark that it is there. */
static char client_there;

static enum shoal_err client_open(void **client_out)
{
    *client_out = &client_there;
    return SHOAL_OK;
}

static void client_close(void *client)
{
    (void)client;
}

static enum shoal_err open_socket(void *client, const struct sh_msg_base_server *server,
                                  uint16_t port, void **socket_out)
{
    (void)client;
    struct socket *socket = calloc(1, sizeof *socket);
    if (!socket)
        return SHOAL_ENOMEM;
    socket->flags = server->spins ? NNG_FLAG_NONBLOCK : 0;
    socket->asks = server->echoes;
    int cause = socket->asks ? nng_req0_open_raw(&socket->nng) : nng_push0_open(&socket->nng);
    if (cause) {
        free(socket);
        return failed("open", cause);
    }
    options_set(socket->nng, server->size);
    *socket_out = socket;
    char address[64];
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    cause = nng_dial(socket->nng, address, NULL, 0);
    return cause ? failed("dial", cause) : SHOAL_OK;
}

static void close_socket(void *arg)
{
    struct socket *socket = arg;
    (void)nng_close(socket->nng);
    free(socket);
}

static enum shoal_err send_message(void *arg, const void *payload, size_t size)
{
    struct socket *socket = arg;
    nng_msg *message = NULL;
    int cause = nng_msg_alloc(&message, 0);
    if (!cause)
        cause = nng_msg_append(message, payload, size);
    /* The upper bit marks the last ID of a request's way, as the protocol has it. */
    if (!cause && socket->asks)
        cause = nng_msg_header_append_u32(message, UINT32_C(0x80000000) | ++socket->id);
    if (cause)
        return failed("message", cause);
    cause = message_send(socket->nng, message, socket->flags);
    return cause ? failed("send", cause) : SHOAL_OK;
}

static enum shoal_err receive_message(void *arg, size_t size)
{
    struct socket *socket = arg;
    nng_msg *message = NULL;
    int cause = message_receive(socket->nng, &message, socket->flags);
    if (cause)
        return failed("receive", cause);
    size_t got = nng_msg_len(message);
    nng_msg_free(message);
    return got == size ? SHOAL_OK : failed("size of an answer", NNG_EPROTO);
}

static const struct sh_msg_base_ops ops = {
    .name = "nng",
    .package = "libnng-dev",
    .is_built = true,
    .serve = serve,
    .client_open = client_open,
    .client_close = client_close,
    .open = open_socket,
    .send = send_message,
    .receive = receive_message,
    .close = close_socket,
};

#else

static const struct sh_msg_base_ops ops = {.name = "nng", .package = "libnng-dev"};

#endif

enum shoal_err sh_nng_base_request(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return sh_msg_base_run(&ops, arg, placement, true, result_out);
}

enum shoal_err sh_nng_base_oneway(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return sh_msg_base_run(&ops, arg, placement, false, result_out);
}
