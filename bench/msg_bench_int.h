/* Inside the benchmark of messages: its parameters, its servers, its cases.
 *
 *   bench_msg.c    flags, cases, baselines
 *   msg_server.c   one server: echoes requests, counts one-way messages
 *   msg_pair.c     request, oneway and silence: the client's threads against its servers
 *   msg_all.c      alltoall: every node sends to every other
 */
#ifndef SH_BENCH_MSG_BENCH_INT_H
#define SH_BENCH_MSG_BENCH_INT_H

#include <stdatomic.h>

#include "bench/bench.h"
#include "bench/child.h"
#include "bench/endpoint.h"

#define SH_MSG_BENCH_ECHO SH_MSG_TYPE(60, 1)
#define SH_MSG_BENCH_COUNT SH_MSG_TYPE(60, 2)
#define SH_MSG_BENCH_TOTAL SH_MSG_TYPE(60, 3)
#define SH_MSG_BENCH_THREADS_MAX 128
#define SH_MSG_BENCH_CLOCK_EVERY 64 /* one-way messages between two looks at the clock */

/* What a server and its clients both see: memory that a fork shares. The counter is on a cache line
 * of its own, since the server writes it with each message. */
struct sh_msg_board {
    char address[SH_MSG_ADDRESS_MAX];
    _Alignas(64) _Atomic uint64_t received; /* bytes of one-way messages */
};

/* A server that runs: a process, or over loopback, which does not leave the process, an end in this
 * one. */
struct sh_msg_server {
    struct sh_child child;
    struct sh_msg_board *board;
    struct sh_endpoint endpoint;
    bool is_here;
};

/* Starts server number 0, 1, ...; its node ID is one more. shape: size, handlers, transport, idle.
 * Before the client has threads. server must stay where it is; stop it also after a failure. */
SHOAL_NODISCARD enum shoal_err sh_msg_server_start(struct sh_msg_server *server,
                                                   const struct sh_bench_flags *shape,
                                                   enum sh_placement placement, unsigned number);
void sh_msg_server_stop(struct sh_msg_server *server);

/* Sets the handlers of an end: echo and count, and total, which answers with received. board is
 * kept. Pooled where the end has handler threads. */
void sh_msg_server_handlers(struct sh_endpoint *endpoint, struct sh_msg_board *board);

/* Listens where the transport of the shape does; the address goes to the board. */
SHOAL_NODISCARD enum shoal_err sh_msg_server_listen(struct sh_endpoint *endpoint,
                                                    const struct sh_bench_flags *shape,
                                                    struct sh_msg_board *board);

/* Removes what a server that is gone may have left: the file of a Unix-domain socket. */
void sh_msg_board_clean(const struct sh_msg_board *board);

/* Memory that is shared with processes forked later; NULL: there is none. */
void *sh_msg_shared_alloc(size_t bytes);
void sh_msg_shared_free(void *memory, size_t bytes);

/* Runs for sh_bench_measure; arg is a const struct sh_bench_flags with size, threads, outstanding,
 * connections (of alltoall: nodes, processes), transport and one of seconds and count filled in. */
SHOAL_NODISCARD enum shoal_err sh_msg_request_run(void *arg, const struct sh_bench_flags *flags,
                                                  enum sh_placement placement,
                                                  struct sh_bench_result *result_out);
SHOAL_NODISCARD enum shoal_err sh_msg_oneway_run(void *arg, const struct sh_bench_flags *flags,
                                                 enum sh_placement placement,
                                                 struct sh_bench_result *result_out);
SHOAL_NODISCARD enum shoal_err sh_msg_silence_run(void *arg, const struct sh_bench_flags *flags,
                                                  enum sh_placement placement,
                                                  struct sh_bench_result *result_out);
SHOAL_NODISCARD enum shoal_err sh_msg_alltoall_run(void *arg, const struct sh_bench_flags *flags,
                                                   enum sh_placement placement,
                                                   struct sh_bench_result *result_out);

#endif
