/* What the baselines that are messaging libraries share: the client's threads, their times and the
 * end of a run. A library gives its operations; see bench/zeromq_base.c and bench/nng_base.c.
 *
 * Each application thread has a socket, hence a connection, of its own to each server, as these
 * libraries' manuals recommend, since their sockets belong to one thread or serialize those that
 * share them. Servers are processes whose one application thread receives; both sides have the
 * threads for input and output that the library starts by itself. Where the placement spins,
 * application threads poll without waiting; the library's own threads block.
 *
 * Request: the oldest of `outstanding` on each socket is waited for, then another is sent. One-way:
 * the time ends when the servers have counted all bytes. */
#ifndef SH_BENCH_MSG_BASE_H
#define SH_BENCH_MSG_BASE_H

#include <stdatomic.h>

#include "bench/bench.h"

/* What one server does. Lives until the server is stopped. */
struct sh_msg_base_server {
    size_t size; /* of a message */
    bool echoes; /* else it counts */
    bool spins;
    _Atomic uint64_t *received; /* bytes counted; shared with the client's process */
};

struct sh_msg_base_ops {
    const char *name;
    const char *package; /* Debian's, for who has built without it */
    bool is_built;
    /* Listens on a port of 127.0.0.1, calls sh_child_report, serves; returns only on failure. */
    void (*serve)(const struct sh_msg_base_server *server, int report_fd);
    /* The client's side of the library, and one socket of it. Errors are logged there. */
    enum shoal_err (*client_open)(void **client_out);
    void (*client_close)(void *client);
    enum shoal_err (*open)(void *client, const struct sh_msg_base_server *server, uint16_t port,
                           void **socket_out);
    enum shoal_err (*send)(void *socket, const void *payload, size_t size);
    /* Takes the next answer; its size must be `size`. */
    enum shoal_err (*receive)(void *socket, size_t size);
    void (*close)(void *socket);
};

/* Runs it as sh_bench_measure wants it; shape as in bench/tcp_base.h. EINVAL, with a line in the
 * log that names the package, where the library was not there when shoal was built. */
SHOAL_NODISCARD enum shoal_err sh_msg_base_run(const struct sh_msg_base_ops *ops,
                                               const struct sh_bench_flags *shape,
                                               enum sh_placement placement, bool echoes,
                                               struct sh_bench_result *result_out);

/* How many messages a socket may hold: 64 MiB of them, 16 to 100,000. */
int sh_msg_base_queue(size_t size);

#endif
