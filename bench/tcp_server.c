#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "bench/child.h"
#include "bench/tcp_base_int.h"

/* One accepted connection. What the socket did not take at once waits in held, and nothing more is
 * read until it is gone. */
struct server_conn {
    int fd;
    uint64_t received;
    uint8_t *held;
    size_t held_from;
    size_t held_to;
};

struct server {
    const struct sh_tcp_server *what;
    int epoll;
    int listener;
    uint8_t *buffer; /* SH_TCP_READ_BYTES */
};

static bool server_watch(struct server *server, struct server_conn *conn, int fd, int operation,
                         uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = conn};
    return epoll_ctl(server->epoll, operation, fd, &event) == 0;
}

static void conn_close(struct server_conn *conn)
{
    close(conn->fd);
    free(conn->held);
    free(conn);
}

static bool conn_accept(struct server *server)
{
    int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
    int on = 1;
    struct server_conn *conn = calloc(1, sizeof *conn);
    if (!conn || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        free(conn);
        close(fd);
        return false;
    }
    conn->fd = fd;
    return server_watch(server, conn, fd, EPOLL_CTL_ADD, EPOLLIN);
}

/* Sends, and holds what does not go. False when the connection is gone. */
static bool conn_echo(struct server *server, struct server_conn *conn, size_t size)
{
    ssize_t sent = send(conn->fd, server->buffer, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        return false;
    size_t gone = sent < 0 ? 0 : (size_t)sent;
    if (gone == size)
        return true;
    if (!conn->held)
        conn->held = malloc(SH_TCP_READ_BYTES);
    if (!conn->held)
        return false;
    memcpy(conn->held, server->buffer + gone, size - gone);
    conn->held_from = 0;
    conn->held_to = size - gone;
    return server_watch(server, conn, conn->fd, EPOLL_CTL_MOD, EPOLLOUT);
}

static bool conn_flush(struct server *server, struct server_conn *conn)
{
    ssize_t sent =
        send(conn->fd, conn->held + conn->held_from, conn->held_to - conn->held_from, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN;
    conn->held_from += (size_t)sent;
    if (conn->held_from < conn->held_to)
        return true;
    return server_watch(server, conn, conn->fd, EPOLL_CTL_MOD, EPOLLIN);
}

/* The end of the input: a counting server says how much it was, which always fits the socket. */
static void conn_finish(struct server *server, struct server_conn *conn)
{
    uint8_t total[8];
    sh_store64(total, conn->received);
    if (!server->what->echoes)
        (void)!send(conn->fd, total, sizeof total, MSG_NOSIGNAL);
    conn_close(conn);
}

static void conn_ready(struct server *server, struct server_conn *conn, uint32_t events)
{
    if (events & EPOLLOUT) {
        if (!conn_flush(server, conn))
            conn_close(conn);
        return;
    }
    ssize_t got = recv(conn->fd, server->buffer, SH_TCP_READ_BYTES, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        conn_finish(server, conn);
        return;
    }
    conn->received += (uint64_t)got;
    if (server->what->echoes && !conn_echo(server, conn, (size_t)got))
        conn_close(conn);
}

void sh_tcp_server_main(void *arg, int report_fd)
{
    struct server server = {.what = arg};
    uint16_t port = 0;
    server.listener = sh_child_listen(&port);
    server.epoll = epoll_create1(EPOLL_CLOEXEC);
    server.buffer = malloc(SH_TCP_READ_BYTES);
    if (server.listener < 0 || server.epoll < 0 || !server.buffer ||
        !server_watch(&server, NULL, server.listener, EPOLL_CTL_ADD, EPOLLIN))
        return;
    sh_child_report(report_fd, port);
    struct epoll_event events[SH_TCP_EVENTS];
    for (;;) {
        int count = epoll_wait(server.epoll, events, SH_TCP_EVENTS, server.what->spins ? 0 : -1);
        if (count < 0 && errno != EINTR)
            return;
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr)
                conn_ready(&server, events[i].data.ptr, events[i].events);
            else if (!conn_accept(&server))
                return;
        }
    }
}
