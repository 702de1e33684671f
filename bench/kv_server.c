#include "bench/kv_server.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "bench/server_node.h"

#define STORE_BYTES_MIN (UINT64_C(1) << 30)
#define CHUNK_BYTES_MIN (UINT64_C(1) << 26)

struct server_args {
    const struct sh_kv_shape *shape;
    enum sh_placement placement;
};

/* How long the peer spins and parks: always, never, or as by default. */
static const char *peer_spin(enum sh_placement placement)
{
    if (placement == SH_PLACE_FREE)
        return NULL;
    return sh_bench_spins(placement) ? "1s" : "0";
}

static const char *peer_park(enum sh_placement placement)
{
    return placement == SH_PLACE_FREE || sh_bench_spins(placement) ? NULL : "0";
}

static void server_main(void *arg, int report_fd)
{
    const struct server_args *args = arg;
    const struct sh_bench_flags *flags = &args->shape->flags;
    const char *bad = NULL;
    size_t bad_len = 0;
    if (sh_log_levels_set("warn", &bad, &bad_len))
        return;
    struct sh_node_run *superpeer = NULL;
    /* It shares the peer's core, so it takes it only when it has something to do. */
    const struct sh_server_setting first[] = {{"cluster", "bench"},   {"roles", "superpeer"},
                                              {"registry", "memory"}, {"listen", "127.0.0.1:0"},
                                              {"spin_ns", "0"},       {"park_ns", "0"}};
    if (sh_server_node_run(first, sizeof first / sizeof *first, &superpeer))
        return;
    uint64_t store_bytes = 2 * flags->count * (flags->size + 64);
    char store[24];
    char chunk[24];
    snprintf(store, sizeof store, "%" PRIu64,
             store_bytes > STORE_BYTES_MIN ? store_bytes : STORE_BYTES_MIN);
    snprintf(chunk, sizeof chunk, "%" PRIu64,
             flags->size > CHUNK_BYTES_MIN ? flags->size : CHUNK_BYTES_MIN);
    struct sh_node_run *peer = NULL;
    const struct sh_server_setting second[] = {{"cluster", "bench"},
                                               {"roles", "peer"},
                                               {"listen", "127.0.0.1:0"},
                                               {"superpeers", sh_node_address(superpeer)},
                                               {"store_bytes_max", store},
                                               {"chunk_bytes_max", chunk},
                                               {"spin_ns", peer_spin(args->placement)},
                                               {"park_ns", peer_park(args->placement)}};
    if (!sh_server_node_run(second, sizeof second / sizeof *second, &peer))
        sh_server_serve(superpeer, report_fd);
}

enum shoal_err sh_kv_server_start(const struct sh_kv_shape *shape, enum sh_placement placement,
                                  struct sh_child *server_out)
{
    struct server_args args = {.shape = shape, .placement = placement};
    return sh_child_start(server_main, &args, placement, server_out);
}
