#include "bench/zeromq_base.h"

#include "bench/msg_base.h"

#ifdef SHOAL_HAS_ZEROMQ

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/log.h"
#include "bench/child.h"

struct socket {
    void *zmq;
    int flags; /* ZMQ_DONTWAIT where the placement spins */
};

static enum shoal_err failed(const char *what)
{
    SH_ERROR("bench", "ZeroMQ failed", SH_TEXT("in", what),
             SH_TEXT("cause", zmq_strerror(zmq_errno())));
    return SHOAL_EIO;
}

static void options_set(void *zmq, size_t size)
{
    int queue = sh_msg_base_queue(size);
    int linger = 0;
    /* A refused option shows in the figures alone, and these two are never refused. */
    (void)zmq_setsockopt(zmq, ZMQ_SNDHWM, &queue, sizeof queue);
    (void)zmq_setsockopt(zmq, ZMQ_RCVHWM, &queue, sizeof queue);
    (void)zmq_setsockopt(zmq, ZMQ_LINGER, &linger, sizeof linger);
}

static int message_receive(zmq_msg_t *message, void *zmq, int flags)
{
    int got;
    do
        got = zmq_msg_recv(message, zmq, flags);
    while (got < 0 && (zmq_errno() == EAGAIN || zmq_errno() == EINTR));
    return got;
}

static int message_send(zmq_msg_t *message, void *zmq, int flags)
{
    int sent;
    do
        sent = zmq_msg_send(message, zmq, flags);
    while (sent < 0 && (zmq_errno() == EAGAIN || zmq_errno() == EINTR));
    return sent;
}

/* Each request is two parts: whom to answer, which ROUTER puts first, and the payload. */
static void echo_serve(void *zmq, int flags)
{
    zmq_msg_t whom, payload;
    zmq_msg_init(&whom);
    zmq_msg_init(&payload);
    while (message_receive(&whom, zmq, flags) >= 0 && message_receive(&payload, zmq, flags) >= 0 &&
           message_send(&whom, zmq, ZMQ_SNDMORE) >= 0 && message_send(&payload, zmq, flags) >= 0)
        ;
}

static void count_serve(void *zmq, int flags, _Atomic uint64_t *received)
{
    zmq_msg_t message;
    zmq_msg_init(&message);
    int size;
    while ((size = message_receive(&message, zmq, flags)) >= 0)
        atomic_fetch_add_explicit(received, (uint64_t)size, memory_order_relaxed); /* a sum */
}

static void serve(const struct sh_msg_base_server *server, int report_fd)
{
    void *context = zmq_ctx_new();
    void *zmq = context ? zmq_socket(context, server->echoes ? ZMQ_ROUTER : ZMQ_PULL) : NULL;
    char address[64] = "";
    size_t room = sizeof address;
    if (!zmq) {
        (void)failed("socket");
        return;
    }
    options_set(zmq, server->size);
    if (zmq_bind(zmq, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(zmq, ZMQ_LAST_ENDPOINT, address, &room) != 0) {
        (void)failed("bind");
        return;
    }
    sh_child_report(report_fd, (uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    int flags = server->spins ? ZMQ_DONTWAIT : 0;
    if (server->echoes)
        echo_serve(zmq, flags);
    else
        count_serve(zmq, flags, server->received);
    (void)failed("serve");
}

static enum shoal_err client_open(void **client_out)
{
    *client_out = zmq_ctx_new();
    return *client_out ? SHOAL_OK : failed("context");
}

static void client_close(void *client)
{
    (void)zmq_ctx_term(client);
}

static enum shoal_err open_socket(void *client, const struct sh_msg_base_server *server,
                                  uint16_t port, void **socket_out)
{
    struct socket *socket = malloc(sizeof *socket);
    if (!socket)
        return SHOAL_ENOMEM;
    socket->flags = server->spins ? ZMQ_DONTWAIT : 0;
    socket->zmq = zmq_socket(client, server->echoes ? ZMQ_DEALER : ZMQ_PUSH);
    char address[64];
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    if (!socket->zmq) {
        free(socket);
        return failed("socket");
    }
    options_set(socket->zmq, server->size);
    *socket_out = socket;
    return zmq_connect(socket->zmq, address) == 0 ? SHOAL_OK : failed("connect");
}

static void close_socket(void *arg)
{
    struct socket *socket = arg;
    (void)zmq_close(socket->zmq);
    free(socket);
}

static enum shoal_err send_message(void *arg, const void *payload, size_t size)
{
    struct socket *socket = arg;
    int sent;
    do
        sent = zmq_send(socket->zmq, payload, size, socket->flags);
    while (sent < 0 && (zmq_errno() == EAGAIN || zmq_errno() == EINTR));
    return sent == (int)size ? SHOAL_OK : failed("send");
}

static enum shoal_err receive_message(void *arg, size_t size)
{
    struct socket *socket = arg;
    zmq_msg_t message;
    zmq_msg_init(&message);
    int got = message_receive(&message, socket->zmq, socket->flags);
    zmq_msg_close(&message);
    return got == (int)size ? SHOAL_OK : failed("receive");
}

static const struct sh_msg_base_ops ops = {
    .name = "zeromq",
    .package = "libzmq3-dev",
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

static const struct sh_msg_base_ops ops = {.name = "zeromq", .package = "libzmq3-dev"};

#endif

enum shoal_err sh_zeromq_base_request(void *arg, const struct sh_bench_flags *flags,
                                      enum sh_placement placement,
                                      struct sh_bench_result *result_out)
{
    (void)flags;
    return sh_msg_base_run(&ops, arg, placement, true, result_out);
}

enum shoal_err sh_zeromq_base_oneway(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out)
{
    (void)flags;
    return sh_msg_base_run(&ops, arg, placement, false, result_out);
}
