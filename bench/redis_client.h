/* A connection to a Redis server that blocks, for benchmarks that send many commands ahead. One thread. */
#ifndef SH_BENCH_REDIS_CLIENT_H
#define SH_BENCH_REDIS_CLIENT_H

#include "bench/resp.h"
#include "shoal/err.h"

struct sh_redis_client {
    int fd; /* -1: it is not connected */
    uint8_t *in;
    size_t in_room, in_size;
};

/* Connects to a port of this machine. in_bytes: room for answers, one whole one at least. Each call waits for so many seconds. ENOMEM, ECONNLOST;
 * sh_redis_client_close also then. */
SHOAL_NODISCARD enum shoal_err sh_redis_client_open(struct sh_redis_client *client, uint16_t port,
                                                    size_t in_bytes, unsigned seconds);
/* Sends all of it. ETIMEOUT, ECONNLOST: the reason is logged. */
SHOAL_NODISCARD enum shoal_err sh_redis_client_send(const struct sh_redis_client *client,
                                                    const void *bytes, size_t size);
/* Takes what has come, waiting for it, and calls back for each whole answer, whose bytes are lent; an error ends it. ETIMEOUT, ECONNLOST: the reason is logged. */
SHOAL_NODISCARD enum shoal_err
sh_redis_client_take(struct sh_redis_client *client,
                     enum shoal_err (*each)(void *arg, const struct sh_resp *reply), void *arg);
/* Sends an inline command, while no other one is under way; text_out: its answer, cut off at room - 1. ETIMEOUT, ECONNLOST: the reason is logged. */
SHOAL_NODISCARD enum shoal_err sh_redis_client_ask(const struct sh_redis_client *client,
                                                   const char *command, char *text_out,
                                                   size_t room);
void sh_redis_client_close(struct sh_redis_client *client);

#endif
