/* One server of the benchmark of messages. Its handlers run inline on the transport thread, or with
 * --handlers on threads of their own. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/msg_bench_int.h"

#define LISTEN_TCP "127.0.0.1:0"
#define LISTEN_LOOPBACK "loop:0"
#define UNIX_PREFIX "unix:"

void *sh_msg_shared_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void sh_msg_shared_free(void *memory, size_t bytes)
{
    if (memory)
        (void)munmap(memory, bytes);
}

static void on_echo(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    size_t size = sh_reader_left(&in->payload);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return; /* the client is gone; the server is about to be stopped */
    sh_put_raw(&out.w, sh_bytes_make(in->payload.at, size));
    sh_msg_end(in->msg, &out);
}

/* relaxed: a sum that is read when the run is over; what orders it with the end of the run is the
 * answer of TOTAL, or that it has reached what was sent. */
static void on_count_alone(void *arg, struct sh_msg_in *in)
{
    struct sh_msg_board *board = arg;
    uint64_t received = atomic_load_explicit(&board->received, memory_order_relaxed);
    atomic_store_explicit(&board->received, received + sh_reader_left(&in->payload),
                          memory_order_relaxed);
}

static void on_count_shared(void *arg, struct sh_msg_in *in)
{
    struct sh_msg_board *board = arg;
    atomic_fetch_add_explicit(&board->received, sh_reader_left(&in->payload),
                              memory_order_relaxed); /* as in on_count_alone */
}

static void on_total(void *arg, struct sh_msg_in *in)
{
    struct sh_msg_board *board = arg;
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sizeof(uint64_t), &out))
        return;
    sh_put64(&out.w, atomic_load_explicit(&board->received, memory_order_relaxed));
    sh_msg_end(in->msg, &out);
}

void sh_msg_server_handlers(struct sh_endpoint *endpoint, struct sh_msg_board *board)
{
    bool pooled = endpoint->handlers > 0;
    enum sh_msg_mode mode = pooled ? SH_MSG_POOLED : SH_MSG_INLINE;
    sh_msg_handler_set(endpoint->msg, SH_MSG_BENCH_ECHO, mode, on_echo, NULL);
    sh_msg_handler_set(endpoint->msg, SH_MSG_BENCH_COUNT, mode,
                       pooled ? on_count_shared : on_count_alone, board);
    sh_msg_handler_set(endpoint->msg, SH_MSG_BENCH_TOTAL, mode, on_total, board);
}

enum shoal_err sh_msg_server_listen(struct sh_endpoint *endpoint,
                                    const struct sh_bench_flags *shape, struct sh_msg_board *board)
{
    char address[SH_MSG_ADDRESS_MAX];
    const char *transport = shape->transport ? shape->transport : "tcp";
    snprintf(address, sizeof address, "%s",
             strcmp(transport, "loopback") == 0 ? LISTEN_LOOPBACK : LISTEN_TCP);
    if (strcmp(transport, "unix") == 0)
        snprintf(address, sizeof address, UNIX_PREFIX "/tmp/shoal-bench-%d-%u", (int)getpid(),
                 sh_msg_nid(endpoint->msg).v);
    return sh_msg_listen(endpoint->msg, address, board->address);
}

static enum shoal_err server_open(struct sh_endpoint *endpoint, struct sh_msg_board *board,
                                  const struct sh_bench_flags *shape, enum sh_placement placement,
                                  unsigned number)
{
    struct sh_endpoint_config config = {.nid = {(uint16_t)(number + 1)},
                                        .placement = placement,
                                        .transport = shape->transport,
                                        .idle = shape->idle,
                                        .handlers = shape->handlers,
                                        .payload_bytes_max = shape->size + 64,
                                        .requests_max = 64};
    enum shoal_err err = sh_endpoint_open(endpoint, &config);
    if (err)
        return err;
    sh_msg_server_handlers(endpoint, board);
    err = sh_msg_server_listen(endpoint, shape, board);
    return err ? err : sh_endpoint_start(endpoint);
}

struct server_args {
    const struct sh_bench_flags *shape;
    struct sh_msg_board *board;
    enum sh_placement placement;
    unsigned number;
};

static void server_main(void *arg, int report_fd)
{
    const struct server_args *args = arg;
    struct sh_endpoint endpoint;
    if (server_open(&endpoint, args->board, args->shape, args->placement, args->number))
        return;
    sh_child_report(report_fd, (uint16_t)(args->number + 1));
    for (;;)
        (void)pause();
}

enum shoal_err sh_msg_server_start(struct sh_msg_server *server, const struct sh_bench_flags *shape,
                                   enum sh_placement placement, unsigned number)
{
    memset(server, 0, sizeof *server);
    server->board = sh_msg_shared_alloc(sizeof *server->board);
    if (!server->board)
        return SHOAL_ENOMEM;
    if (shape->transport && strcmp(shape->transport, "loopback") == 0) {
        server->is_here = true;
        sh_bench_pin(placement, 1);
        return server_open(&server->endpoint, server->board, shape, placement, number);
    }
    struct server_args args = {
        .shape = shape, .board = server->board, .placement = placement, .number = number};
    return sh_child_start(server_main, &args, placement, &server->child);
}

/* A process that was stopped has not removed the file of its socket. */
void sh_msg_board_clean(const struct sh_msg_board *board)
{
    if (strncmp(board->address, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        (void)unlink(board->address + strlen(UNIX_PREFIX));
}

void sh_msg_server_stop(struct sh_msg_server *server)
{
    sh_child_stop(&server->child);
    if (server->is_here)
        sh_endpoint_close(&server->endpoint);
    if (server->board)
        sh_msg_board_clean(server->board);
    sh_msg_shared_free(server->board, sizeof *server->board);
    server->board = NULL;
}
