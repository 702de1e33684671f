/* Inside the TCP baseline: what client and server share. */
#ifndef SH_BENCH_TCP_BASE_INT_H
#define SH_BENCH_TCP_BASE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SH_TCP_BLOCK_BYTES (64 * 1024)
#define SH_TCP_READ_BYTES (256 * 1024)
#define SH_TCP_EVENTS 64

struct sh_tcp_server {
    bool spins;
    bool echoes; /* else counts, and answers the number of bytes (8 bytes) at the end of input */
};

/* A sh_child_main; arg is a struct sh_tcp_server. */
void sh_tcp_server_main(void *arg, int report_fd);

#endif
