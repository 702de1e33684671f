#include "bench/rounds_base.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/cluster.h"

#define BLOCK 4096u
#define FILE_BYTES ((size_t)16 << 20)

/* One child's. */
struct server {
    const struct sh_rounds_base *base;
    unsigned index;
    int listener, file;
    size_t file_bytes, offset;
    uint8_t *block;            /* of the largest round's write */
    uint8_t *requests, *round; /* those of a round, and the append that it becomes */
};

static bool is_owner(const struct server *server)
{
    return server->index == server->base->shape.replicas;
}

/* Bytes of a round's write, whole blocks. */
static size_t written_bytes(const struct sh_rounds_shape *shape, size_t updates)
{
    return (updates * shape->written_bytes + shape->write_bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static size_t append_bytes(const struct sh_rounds_shape *shape, size_t updates)
{
    return shape->append_bytes + updates * shape->entry_bytes;
}

static bool send_all(int fd, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    while (size) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int fd, void *bytes, size_t size)
{
    return recv(fd, bytes, size, MSG_WAITALL) == (ssize_t)size;
}

/* Receives whole messages of one size, at least one; returns their number. 0: the other side is gone. */
static size_t receive_some(int fd, uint8_t *bytes, size_t room, size_t message)
{
    ssize_t got = recv(fd, bytes, room, 0);
    if (got <= 0)
        return 0;
    size_t odd = (size_t)got % message;
    if (odd && !receive_all(fd, bytes + got, message - odd))
        return 0;
    return ((size_t)got + message - 1) / message;
}

/* Writes and syncs a round of updates, where this process does. */
static bool round_write(struct server *server, size_t updates)
{
    const struct sh_rounds_shape *shape = &server->base->shape;
    size_t size = written_bytes(shape, updates);
    struct iovec from = {server->block, size};
    if (!server->block)
        return true;
    if (server->offset + size > server->file_bytes)
        server->offset = 0;
    ssize_t wrote = pwritev2(server->file, &from, 1, (off_t)server->offset, RWF_DSYNC);
    server->offset += size;
    return wrote == (ssize_t)size;
}

static int accept_blocking(int listener)
{
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    while (poll(&ready, 1, -1) < 0 && errno == EINTR)
        continue;
    int fd = accept(listener, NULL, NULL), on = 1;
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void sock_block(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

/* Takes the owner's rounds until the owner goes. */
static void replica_serve(struct server *server, int owner)
{
    const struct sh_rounds_shape *shape = &server->base->shape;
    uint32_t updates;
    while (receive_all(owner, server->round, shape->append_bytes)) {
        memcpy(&updates, server->round, sizeof updates);
        if (!receive_all(owner, server->round + shape->append_bytes,
                         updates * shape->entry_bytes) ||
            !round_write(server, updates) ||
            (shape->level != SH_ROUNDS_ASYNC &&
             !send_all(owner, server->round, shape->confirm_bytes)))
            return;
    }
}

static bool round_send(struct server *server, const int *replicas, uint32_t updates)
{
    const struct sh_rounds_shape *shape = &server->base->shape;
    memcpy(server->round, &updates, sizeof updates);
    for (unsigned i = 0; i < shape->replicas; i++) {
        if (!send_all(replicas[i], server->round, append_bytes(shape, updates)))
            return false;
    }
    return true;
}

/* Answers one client until it goes. */
static void owner_serve(struct server *server, int client, const int *replicas)
{
    const struct sh_rounds_shape *shape = &server->base->shape;
    size_t room = shape->outstanding_max * shape->request_bytes, updates;
    bool is_async = shape->level == SH_ROUNDS_ASYNC;
    while ((updates = receive_some(client, server->requests, room, shape->request_bytes))) {
        if (is_async && !send_all(client, server->round, updates * shape->answer_bytes))
            return;
        if (!round_send(server, replicas, (uint32_t)updates) || !round_write(server, updates))
            return;
        for (unsigned i = 0; !is_async && i < shape->replicas; i++) {
            if (!receive_all(replicas[i], server->requests, shape->confirm_bytes))
                return;
        }
        if (!is_async && !send_all(client, server->round, updates * shape->answer_bytes))
            return;
    }
}

/* Makes the file, written to its end. */
static bool file_make(struct server *server)
{
    const struct sh_rounds_shape *shape = &server->base->shape;
    size_t most = written_bytes(shape, shape->outstanding_max);
    char path[160];
    server->block = aligned_alloc(BLOCK, most);
    server->file_bytes = most > FILE_BYTES ? most : FILE_BYTES;
    snprintf(path, sizeof path, "%s/file%u", server->base->folder, server->index);
    server->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (server->file < 0 || !server->block)
        return false;
    memset(server->block, 1, most);
    for (size_t at = 0; at < server->file_bytes; at += BLOCK) {
        if (pwrite(server->file, server->block, BLOCK, (off_t)at) != (ssize_t)BLOCK)
            return false;
    }
    return fsync(server->file) == 0;
}

/* Buffers for the largest round. An answer is no larger than what a round has for its update. */
static bool buffers_make(struct server *server)
{
    const struct sh_rounds_shape *shape = &server->base->shape;
    size_t answers = shape->outstanding_max * shape->answer_bytes;
    size_t append = append_bytes(shape, shape->outstanding_max);
    server->requests = calloc(shape->outstanding_max, shape->request_bytes);
    server->round = calloc(1, append > answers ? append : answers);
    return server->requests && server->round;
}

static void server_main(void *arg, int report_fd)
{
    struct server *server = arg;
    const struct sh_rounds_shape *shape = &server->base->shape;
    int replicas[SH_ROUNDS_REPLICAS_MAX];
    uint16_t port = 0;
    bool writes = shape->level == SH_ROUNDS_DISK && (!is_owner(server) || shape->owner_writes);
    server->listener = sh_child_listen(&port);
    if (server->listener < 0 || !buffers_make(server) || (writes && !file_make(server)))
        return;
    for (unsigned i = 0; is_owner(server) && i < shape->replicas; i++) {
        replicas[i] = sh_child_connect(server->base->children[i].port);
        if (replicas[i] < 0)
            return;
        sock_block(replicas[i]);
    }
    sh_child_report(report_fd, port);
    for (;;) {
        int fd = accept_blocking(server->listener);
        if (fd < 0)
            return;
        if (is_owner(server))
            owner_serve(server, fd, replicas);
        else
            replica_serve(server, fd);
        close(fd);
    }
}

enum shoal_err sh_rounds_base_start(struct sh_rounds_base *base,
                                    const struct sh_rounds_shape *shape)
{
    SH_ASSERT(shape->replicas <= SH_ROUNDS_REPLICAS_MAX && shape->outstanding_max > 0);
    SH_ASSERT(shape->request_bytes && shape->answer_bytes && shape->confirm_bytes);
    SH_ASSERT(shape->append_bytes >= sizeof(uint32_t));
    SH_ASSERT(shape->confirm_bytes <= shape->outstanding_max * shape->request_bytes);
    *base = (struct sh_rounds_base){.shape = *shape};
    enum shoal_err err = sh_bench_folder_make("bare", base->folder, sizeof base->folder);
    for (unsigned i = 0; !err && i <= shape->replicas; i++) {
        struct server server = {.base = base, .index = i};
        err = sh_child_start(server_main, &server, SH_PLACE_FREE, &base->children[i]);
    }
    if (err)
        sh_rounds_base_stop(base);
    return err;
}

void sh_rounds_base_stop(struct sh_rounds_base *base)
{
    for (unsigned i = 0; i <= SH_ROUNDS_REPLICAS_MAX; i++)
        sh_child_stop(&base->children[i]);
    if (base->folder[0])
        sh_bench_folder_remove(base->folder);
    base->folder[0] = '\0';
}

/* Keeps `outstanding` requests under way until the time is over; answers come in their order. */
static bool requests_run(const struct sh_rounds_base *base, int owner, uint8_t *bytes,
                         uint64_t *begun_ns, struct sh_bench_result *result_out)
{
    const struct sh_rounds_shape *shape = &base->shape;
    uint64_t start_ns = sh_bench_now_ns(), now_ns = start_ns, sent = 0, done = 0;
    uint64_t end_ns = start_ns + (uint64_t)(base->seconds * 1e9);
    size_t wanted = base->outstanding;
    while (wanted || done < sent) {
        for (size_t i = 0; i < wanted; i++)
            begun_ns[sent++ % base->outstanding] = now_ns;
        if (wanted && !send_all(owner, bytes, wanted * shape->request_bytes))
            return false;
        size_t answers = receive_some(owner, bytes, base->outstanding * shape->answer_bytes,
                                      shape->answer_bytes);
        now_ns = sh_bench_now_ns();
        if (!answers || answers > sent - done)
            return false;
        for (size_t i = 0; i < answers; i++)
            sh_hist_add(&result_out->latency_ns, now_ns - begun_ns[done++ % base->outstanding]);
        wanted = now_ns < end_ns ? answers : 0;
    }
    result_out->ops = done;
    result_out->seconds = (double)(now_ns - start_ns) / 1e9;
    return true;
}

static bool client_run(const struct sh_rounds_base *base, int owner,
                       struct sh_bench_result *result_out)
{
    const struct sh_rounds_shape *shape = &base->shape;
    size_t each =
        shape->request_bytes > shape->answer_bytes ? shape->request_bytes : shape->answer_bytes;
    uint8_t *bytes = calloc(base->outstanding, each);
    uint64_t *begun_ns = calloc(base->outstanding, sizeof *begun_ns);
    bool is_good = bytes && begun_ns && requests_run(base, owner, bytes, begun_ns, result_out);
    free(bytes);
    free(begun_ns);
    return is_good;
}

enum shoal_err sh_rounds_base_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    const struct sh_rounds_base *base = arg;
    unsigned count = base->shape.replicas + 1;
    (void)flags;
    (void)placement;
    SH_ASSERT(base->outstanding && base->outstanding <= base->shape.outstanding_max);
    int owner = sh_child_connect(base->children[base->shape.replicas].port);
    if (owner < 0)
        return SHOAL_EIO;
    sock_block(owner);
    uint64_t cpu_ns = sh_children_cpu_ns(base->children, count);
    bool is_good = client_run(base, owner, result_out);
    result_out->cpu_ns = sh_children_cpu_ns(base->children, count) - cpu_ns;
    close(owner);
    if (!is_good)
        SH_ERROR("bench", "the bare program has failed", SH_TEXT("cause", strerror(errno)));
    return is_good ? SHOAL_OK : SHOAL_EIO;
}
