/* The server side of a benchmark: a child process that listens on loopback.
 *
 * The child is pinned to its placement's core, tells its port through a pipe, and dies with its
 * parent. It is stopped by its process ID. */
#ifndef SH_BENCH_CHILD_H
#define SH_BENCH_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#include "bench/bench.h"

struct sh_child {
    pid_t pid; /* 0: none */
    uint16_t port;
};

/* What the child runs: it listens on a free port, calls sh_child_report once, and serves until it
 * is killed. It returns only when it failed. */
typedef void (*sh_child_main)(void *arg, int report_fd);

/* Forks the child as side 1 of the placement and waits, at most half a minute, for its port. EIO
 * when it can't be made or ends first, ETIMEOUT. The caller must have no other threads. */
SHOAL_NODISCARD enum shoal_err sh_child_start(sh_child_main main, void *arg,
                                              enum sh_placement placement,
                                              struct sh_child *child_out);
void sh_child_report(int report_fd, uint16_t port);

/* Stops the child (SIGTERM, and SIGKILL ten seconds later) and waits for its end. A child that is
 * none is allowed. */
void sh_child_stop(struct sh_child *child);

/* True while the child has not ended. */
bool sh_child_lives(const struct sh_child *child);

/* The child's processor time so far, user and system, all its threads. 0 when it is gone. */
uint64_t sh_child_cpu_ns(const struct sh_child *child);

/* The same for several, and this process with them: what a run used, as a difference. */
uint64_t sh_children_cpu_ns(const struct sh_child *children, unsigned count);

/* A socket that listens on a free port of 127.0.0.1, non-blocking; -1 on failure, errno set. */
int sh_child_listen(uint16_t *port_out);
/* A connected, non-blocking socket with TCP_NODELAY; -1 on failure, errno set. Blocks. */
int sh_child_connect(uint16_t port);

#endif
