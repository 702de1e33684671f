#include "msg/sock_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "env/env.h"
#include "msg/msg.h"

#define BACKLOG 256
#define UNIX_PREFIX "unix:"
#define UNIX_PREFIX_BYTES (sizeof UNIX_PREFIX - 1)

_Static_assert(sizeof(((struct sh_sock_listener *)0)->path) == SH_MSG_ADDRESS_MAX,
               "a path that fits an address fits the listener");

/* --- Addresses --------------------------------------------------------------------------- */

static bool is_unix(const char *address)
{
    return strncmp(address, UNIX_PREFIX, UNIX_PREFIX_BYTES) == 0;
}

/* Splits HOST:PORT or [HOST]:PORT; host_out has room for 256 bytes. */
static bool address_split(const char *address, char *host_out, const char **port_out)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || colon[1] == '\0')
        return false;
    const char *from = address;
    size_t size = (size_t)(colon - address);
    if (*from == '[' && from[size - 1] == ']') {
        from++;
        size -= 2;
    } else if (memchr(address, ':', size)) {
        return false;
    }
    if (size == 0 || size > 255)
        return false;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || port > 65535)
        return false;
    memcpy(host_out, from, size);
    host_out[size] = '\0';
    *port_out = colon + 1;
    return true;
}

static enum shoal_err resolve_unix(const char *path, struct sh_sock_address *out)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof un.sun_path || size + UNIX_PREFIX_BYTES >= SH_MSG_ADDRESS_MAX)
        return SHOAL_EADDRESS;
    memcpy(un.sun_path, path, size + 1);
    memcpy(&out->bytes, &un, sizeof un);
    out->size = sizeof un;
    return SHOAL_OK;
}

/* flags of getaddrinfo; with AI_NUMERICHOST *is_name_out says that it is a name instead. */
static enum shoal_err resolve(const char *address, int flags, struct sh_sock_address *out,
                              bool *is_name_out)
{
    *is_name_out = false;
    if (is_unix(address))
        return resolve_unix(address + UNIX_PREFIX_BYTES, out);
    char host[256];
    const char *port;
    if (!address_split(address, host, &port))
        return SHOAL_EADDRESS;
    struct addrinfo *info, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    int result = getaddrinfo(host, port, &hints, &info);
    if (result != 0) {
        *is_name_out = flags & AI_NUMERICHOST && result == EAI_NONAME;
        return SHOAL_EADDRESS;
    }
    SH_ASSERT(info->ai_addrlen <= sizeof out->bytes);
    memcpy(&out->bytes, info->ai_addr, info->ai_addrlen);
    out->size = info->ai_addrlen;
    freeaddrinfo(info);
    return SHOAL_OK;
}

enum shoal_err sh_sock_address_find(const char *address, struct sh_sock_address *address_out)
{
    bool is_name;
    enum shoal_err err = resolve(address, 0, address_out, &is_name);
    if (err != SHOAL_OK)
        SH_INFO("msg", "address not found", SH_TEXT("address", address));
    return err;
}

static void bound_print(int fd, char *out)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char host[INET6_ADDRSTRLEN] = "", port[8] = "";
    if (getsockname(fd, (struct sockaddr *)&bound, &size) == 0)
        (void)getnameinfo((struct sockaddr *)&bound, size, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV);
    bool is_v6 = bound.ss_family == AF_INET6;
    snprintf(out, SH_MSG_ADDRESS_MAX, is_v6 ? "[%s]:%s" : "%s:%s", host, port);
}

static int socket_new(const struct sh_sock_address *address)
{
    return socket(address->bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int place_holder(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* --- Listening --------------------------------------------------------------------------- */

static int bind_to(int fd, const struct sh_sock_address *address)
{
    return bind(fd, (const struct sockaddr *)&address->bytes, address->size);
}

/* Removes the socket file of a process that is gone: a socket that refuses connections. What is no
 * socket, or has somebody who listens, stays. */
static bool stale_remove(const char *path, const struct sh_sock_address *address)
{
    struct stat file;
    if (lstat(path, &file) != 0 || !S_ISSOCK(file.st_mode))
        return false;
    int fd = socket_new(address);
    if (fd < 0)
        return false;
    int result = connect(fd, (const struct sockaddr *)&address->bytes, address->size);
    bool is_stale = result != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!is_stale || unlink(path) != 0)
        return false;
    SH_INFO("msg", "replaced the socket file of a process that is gone", SH_TEXT("path", path));
    return true;
}

static enum shoal_err bind_unix(int fd, const struct sh_sock_address *address,
                                struct sh_sock_listener *listener)
{
    const char *path = ((const struct sockaddr_un *)&address->bytes)->sun_path;
    /* Set on the socket, so that the file never exists with a wider mode. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) != 0)
        return SHOAL_EIO;
    int result = bind_to(fd, address);
    if (result != 0 && errno == EADDRINUSE) {
        if (!stale_remove(path, address))
            return SHOAL_EADDRINUSE;
        result = bind_to(fd, address);
    }
    if (result != 0)
        return errno == EADDRINUSE ? SHOAL_EADDRINUSE : SHOAL_EADDRESS;
    struct stat file;
    if (lstat(path, &file) != 0)
        return SHOAL_EIO;
    SH_ASSERT(strlen(path) < sizeof listener->path);
    memcpy(listener->path, path, strlen(path) + 1);
    listener->device = file.st_dev;
    listener->inode = file.st_ino;
    return SHOAL_OK;
}

static enum shoal_err bind_tcp(int fd, const struct sh_sock_address *address)
{
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        return SHOAL_EIO;
    if (bind_to(fd, address) != 0)
        return errno == EADDRINUSE ? SHOAL_EADDRINUSE : SHOAL_EADDRESS;
    return SHOAL_OK;
}

enum shoal_err sh_sock_listen(const char *address, struct sh_sock_listener *listener_out,
                              char *bound_out)
{
    struct sh_sock_address to;
    bool is_name;
    enum shoal_err err = resolve(address, AI_PASSIVE, &to, &is_name);
    if (err != SHOAL_OK)
        return err;
    struct sh_sock_listener listener = {.fd = socket_new(&to)};
    if (listener.fd < 0)
        return SHOAL_EIO;
    err = is_unix(address) ? bind_unix(listener.fd, &to, &listener) : bind_tcp(listener.fd, &to);
    if (err == SHOAL_OK && listen(listener.fd, BACKLOG) != 0)
        err = errno == EADDRINUSE ? SHOAL_EADDRINUSE : SHOAL_EIO;
    if (err != SHOAL_OK) {
        sh_sock_listener_close(&listener);
        return err;
    }
    if (is_unix(address))
        snprintf(bound_out, SH_MSG_ADDRESS_MAX, "%s", address);
    else
        bound_print(listener.fd, bound_out);
    *listener_out = listener;
    return SHOAL_OK;
}

void sh_sock_listener_close(struct sh_sock_listener *listener)
{
    struct stat file;
    if (listener->path[0] != '\0' && lstat(listener->path, &file) == 0 &&
        file.st_dev == listener->device && file.st_ino == listener->inode)
        (void)unlink(listener->path);
    listener->path[0] = '\0';
    if (listener->fd >= 0)
        close(listener->fd);
    listener->fd = -1;
}

/* --- Connections ------------------------------------------------------------------------- */

static enum sh_sock_dialled connect_begin(int fd, const struct sh_sock_address *to)
{
    int result = connect(fd, (const struct sockaddr *)&to->bytes, to->size);
    if (result == 0 || errno == EINPROGRESS)
        return SH_SOCK_CONNECTS;
    return errno == ECONNREFUSED ? SH_SOCK_REFUSED : SH_SOCK_FAILED;
}

enum shoal_err sh_sock_dial(const char *address, int *fd_out, enum sh_sock_dialled *dialled_out)
{
    struct sh_sock_address to;
    bool is_name;
    enum shoal_err err = resolve(address, AI_NUMERICHOST, &to, &is_name);
    if (err != SHOAL_OK && !is_name)
        return err;
    int fd = is_name ? place_holder() : socket_new(&to);
    if (fd < 0)
        return SHOAL_ELIMIT;
    *dialled_out = is_name ? SH_SOCK_IS_NAME : connect_begin(fd, &to);
    *fd_out = fd;
    return SHOAL_OK;
}

enum sh_sock_dialled sh_sock_dial_at(int fd, const struct sh_sock_address *address)
{
    int socket_fd = socket_new(address);
    if (socket_fd < 0)
        return SH_SOCK_FAILED;
    bool is_placed = dup3(socket_fd, fd, O_CLOEXEC) == fd;
    close(socket_fd);
    if (!is_placed)
        return SH_SOCK_FAILED;
    sh_sock_tune(fd);
    return connect_begin(fd, address);
}

static bool warning_allowed(struct sh_sock_acceptor *acceptor, uint64_t *left_out_out)
{
    struct sh_clock clock = sh_real_clock();
    return sh_rate_allows(&acceptor->warnings, sh_now(&clock), left_out_out);
}

static void out_of_descriptors(struct sh_sock_acceptor *acceptor, int error)
{
    uint64_t left_out;
    if (warning_allowed(acceptor, &left_out))
        SH_WARN("msg", "out of file descriptors: refused a connection",
                SH_TEXT("reason", strerror(error)), SH_U64("left_out", left_out));
}

static pid_t peer_pid(int fd)
{
    struct ucred who = {0};
    socklen_t size = sizeof who;
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
    return who.pid;
}

int sh_sock_accept(const struct sh_sock_listener *listener, struct sh_sock_acceptor *acceptor,
                   struct sh_sock_peer *peer_out)
{
    struct sh_sock_peer peer = {0};
    socklen_t size = sizeof peer.at; /* a longer address (a path) is cut */
    int fd = accept4(listener->fd, &peer.at.any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        if (peer.at.any.sa_family == AF_UNIX)
            peer.pid = peer_pid(fd);
        *peer_out = peer;
        return fd;
    }
    if ((errno != EMFILE && errno != ENFILE) || acceptor->spare < 0)
        return -1;
    out_of_descriptors(acceptor, errno);
    close(acceptor->spare);
    fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    sh_sock_acceptor_open(acceptor);
    return -1;
}

void sh_sock_refuse(struct sh_sock_acceptor *acceptor, int fd, uint32_t links_max)
{
    uint64_t left_out;
    if (warning_allowed(acceptor, &left_out))
        SH_WARN("msg", "connection limit reached: refused one", SH_U64("links_max", links_max),
                SH_U64("left_out", left_out));
    close(fd);
}

void sh_sock_peer_print(const struct sh_sock_peer *peer, char *out)
{
    char host[INET6_ADDRSTRLEN] = "";
    out[0] = '\0';
    switch (peer->at.any.sa_family) {
    case AF_INET:
        (void)inet_ntop(AF_INET, &peer->at.v4.sin_addr, host, sizeof host);
        snprintf(out, SH_WIRE_ADDRESS_MAX, "%s:%u", host, ntohs(peer->at.v4.sin_port));
        break;
    case AF_INET6:
        (void)inet_ntop(AF_INET6, &peer->at.v6.sin6_addr, host, sizeof host);
        snprintf(out, SH_WIRE_ADDRESS_MAX, "[%s]:%u", host, ntohs(peer->at.v6.sin6_port));
        break;
    case AF_UNIX:
        snprintf(out, SH_WIRE_ADDRESS_MAX, "unix, process %d", (int)peer->pid);
        break;
    default:
        break;
    }
}

void sh_sock_acceptor_open(struct sh_sock_acceptor *acceptor)
{
    acceptor->spare = place_holder();
}

void sh_sock_acceptor_close(struct sh_sock_acceptor *acceptor)
{
    if (acceptor->spare >= 0)
        close(acceptor->spare);
    acceptor->spare = -1;
}

void sh_sock_tune(int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
