#include "bench/metadata_base.h"

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
#include "bench/names.h"

/* Bytes on the wire, as many as shoal sends for a name of 13 bytes, frames included. */
#define REQUEST_BYTES 84
#define APPEND_BYTES 64 /* and for each update: */
#define ENTRY_BYTES 80
#define CONFIRM_BYTES 60
#define ANSWER_BYTES 29
#define BLOCK 4096u
#define FILE_BYTES (16u << 20)
#define HEAD_BYTES 32 /* of a round in the file */
#define ROUND_BYTES(updates) (((updates)*ENTRY_BYTES + HEAD_BYTES + BLOCK - 1) / BLOCK * BLOCK)
#define ROUND_MAX SH_BENCH_NAMES_OUTSTANDING_MAX
#define REPLICAS 2

/* One child's. */
struct server {
    const struct sh_metadata_base *base;
    unsigned index;
    int listener, file;
    uint64_t offset;
    uint8_t *block;
};

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

/* Writes and syncs a round of updates. */
static bool round_write(struct server *server, size_t updates)
{
    if (!server->base->is_durable)
        return true;
    size_t size = ROUND_BYTES(updates);
    struct iovec from = {server->block, size};
    if (server->offset + size > FILE_BYTES)
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

/* Answers the owner until it goes. */
static void replica_serve(struct server *server, int owner)
{
    static uint8_t bytes[APPEND_BYTES + ROUND_MAX * ENTRY_BYTES];
    while (receive_all(owner, bytes, APPEND_BYTES)) {
        size_t updates = bytes[0];
        if (!receive_all(owner, bytes + APPEND_BYTES, updates * ENTRY_BYTES) ||
            !round_write(server, updates) || !send_all(owner, bytes, CONFIRM_BYTES))
            return;
    }
}

/* Answers one client until it goes. */
static void owner_serve(struct server *server, int client, const int *replicas)
{
    static uint8_t requests[ROUND_MAX * REQUEST_BYTES];
    static uint8_t bytes[APPEND_BYTES + ROUND_MAX * ENTRY_BYTES];
    size_t updates;
    while ((updates = receive_some(client, requests, sizeof requests, REQUEST_BYTES))) {
        bytes[0] = (uint8_t)updates;
        for (unsigned i = 0; i < REPLICAS; i++) {
            if (!send_all(replicas[i], bytes, APPEND_BYTES + updates * ENTRY_BYTES))
                return;
        }
        if (!round_write(server, updates))
            return;
        for (unsigned i = 0; i < REPLICAS; i++) {
            if (!receive_all(replicas[i], requests, CONFIRM_BYTES))
                return;
        }
        if (!send_all(client, bytes, updates * ANSWER_BYTES))
            return;
    }
}

/* Makes the file, written to its end. */
static bool file_make(struct server *server)
{
    char path[160];
    server->block = aligned_alloc(BLOCK, ROUND_BYTES(ROUND_MAX));
    snprintf(path, sizeof path, "%s/file%u", server->base->folder, server->index);
    server->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (server->file < 0 || !server->block)
        return false;
    memset(server->block, 1, ROUND_BYTES(ROUND_MAX));
    for (off_t at = 0; at < (off_t)FILE_BYTES; at += BLOCK) {
        if (pwrite(server->file, server->block, BLOCK, at) != (ssize_t)BLOCK)
            return false;
    }
    return fsync(server->file) == 0;
}

static void server_main(void *arg, int report_fd)
{
    struct server *server = arg;
    int replicas[REPLICAS];
    uint16_t port = 0;
    server->listener = sh_child_listen(&port);
    if (server->listener < 0 || (server->base->is_durable && !file_make(server)))
        return;
    bool is_owner = server->index == REPLICAS;
    for (unsigned i = 0; is_owner && i < REPLICAS; i++) {
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
        if (is_owner)
            owner_serve(server, fd, replicas);
        else
            replica_serve(server, fd);
        close(fd);
    }
}

enum shoal_err sh_metadata_base_start(struct sh_metadata_base *base, bool is_durable)
{
    *base = (struct sh_metadata_base){.is_durable = is_durable};
    enum shoal_err err = sh_bench_folder_make("bare", base->folder, sizeof base->folder);
    for (unsigned i = 0; !err && i <= REPLICAS; i++) {
        struct server server = {.base = base, .index = i};
        err = sh_child_start(server_main, &server, SH_PLACE_FREE, &base->children[i]);
    }
    if (err)
        sh_metadata_base_stop(base);
    return err;
}

void sh_metadata_base_stop(struct sh_metadata_base *base)
{
    for (unsigned i = 0; i <= REPLICAS; i++)
        sh_child_stop(&base->children[i]);
    if (base->folder[0])
        sh_bench_folder_remove(base->folder);
    base->folder[0] = '\0';
}

/* Keeps `outstanding` requests under way until the time is over; answers come in their order. */
static bool client_run(const struct sh_metadata_base *base, int owner,
                       struct sh_bench_result *result_out)
{
    static uint8_t bytes[ROUND_MAX * REQUEST_BYTES];
    uint64_t begun_ns[ROUND_MAX];
    uint64_t start_ns = sh_bench_now_ns(), now_ns = start_ns, sent = 0, done = 0;
    uint64_t end_ns = start_ns + (uint64_t)(base->seconds * 1e9);
    size_t wanted = base->outstanding;
    while (wanted || done < sent) {
        for (size_t i = 0; i < wanted; i++)
            begun_ns[sent++ % ROUND_MAX] = now_ns;
        if (wanted && !send_all(owner, bytes, wanted * REQUEST_BYTES))
            return false;
        size_t answers = receive_some(owner, bytes, sizeof bytes, ANSWER_BYTES);
        now_ns = sh_bench_now_ns();
        if (!answers || answers > sent - done)
            return false;
        for (size_t i = 0; i < answers; i++)
            sh_hist_add(&result_out->latency_ns, now_ns - begun_ns[done++ % ROUND_MAX]);
        wanted = now_ns < end_ns ? answers : 0;
    }
    result_out->ops = done;
    result_out->seconds = (double)(now_ns - start_ns) / 1e9;
    return true;
}

enum shoal_err sh_metadata_base_run(void *arg, const struct sh_bench_flags *flags,
                                    enum sh_placement placement, struct sh_bench_result *result_out)
{
    const struct sh_metadata_base *base = arg;
    (void)flags;
    (void)placement;
    SH_ASSERT(base->outstanding && base->outstanding <= ROUND_MAX);
    int owner = sh_child_connect(base->children[REPLICAS].port);
    if (owner < 0)
        return SHOAL_EIO;
    sock_block(owner);
    uint64_t cpu_ns = sh_children_cpu_ns(base->children, REPLICAS + 1);
    bool is_good = client_run(base, owner, result_out);
    result_out->cpu_ns = sh_children_cpu_ns(base->children, REPLICAS + 1) - cpu_ns;
    close(owner);
    if (!is_good)
        SH_ERROR("bench", "the bare program has failed", SH_TEXT("cause", strerror(errno)));
    return is_good ? SHOAL_OK : SHOAL_EIO;
}
