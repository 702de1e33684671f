/* The baseline that messaging is held against: what a bare epoll program does over loopback TCP.
 *
 * Two processes. Request: the client keeps `outstanding` messages of `size` bytes in flight on each
 * connection; the server sends back what it reads; each side costs epoll_wait, recv and send per
 * round, and as many messages as have arrived share one. One-way: the client fills a 64 KiB block
 * message by message and sends it, the server reads and counts, and the time runs until the
 * server has told the client that it has read all. No framing, no checks: nothing that a messaging
 * library adds. TCP_NODELAY. Each of `threads` has a socket to each of `connections` servers, which
 * are processes of one thread. Where the placement spins, both sides call epoll_wait without a
 * time-out; elsewhere they block in it. */
#ifndef SH_BENCH_TCP_BASE_H
#define SH_BENCH_TCP_BASE_H

#include "bench/bench.h"

/* Runs for sh_bench_measure. arg is a const struct sh_bench_flags with size, threads, outstanding,
 * connections and one of seconds and count (messages, in all) filled in; the frame's own flags are
 * not looked at. EIO, ETIMEOUT, ECONNLOST, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_tcp_base_request(void *arg, const struct sh_bench_flags *flags,
                                                   enum sh_placement placement,
                                                   struct sh_bench_result *result_out);
SHOAL_NODISCARD enum shoal_err sh_tcp_base_oneway(void *arg, const struct sh_bench_flags *flags,
                                                  enum sh_placement placement,
                                                  struct sh_bench_result *result_out);

#endif
