#include "bench/kv_server.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/options.h"
#include "node/node.h"

#define STORE_BYTES_MIN (UINT64_C(1) << 30)
#define CHUNK_BYTES_MIN (UINT64_C(1) << 26)

struct server_args {
    const struct sh_kv_shape *shape;
    enum sh_placement placement;
};

struct setting {
    const char *name;
    const char *value; /* NULL: as it is by default */
};

/* Makes and starts a node; it is never destroyed, since the process is killed when the run ends. */
static enum shoal_err node_run(const struct setting *settings, size_t count,
                               struct sh_node_run **node_out)
{
    static struct sh_options options[2];
    static unsigned used;
    SH_ASSERT(used < 2);
    struct sh_options *mine = &options[used++]; /* nodes borrow their options */
    struct sh_options_error error = {""};
    char detail[256] = "";
    enum shoal_err err = sh_options_init(mine);
    for (size_t i = 0; !err && i < count; i++) {
        if (settings[i].value)
            err = sh_options_set(mine, settings[i].name, settings[i].value, "bench", &error);
    }
    if (!err)
        err = sh_options_check(mine, &error);
    if (!err)
        err = sh_node_create(mine, node_out, detail);
    if (!err)
        err = sh_node_start(*node_out);
    if (err)
        SH_ERROR("bench", "no node to measure", SH_ERR(err), SH_TEXT("option", error.text),
                 SH_TEXT("detail", detail));
    return err;
}

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
    const struct setting first[] = {{"cluster", "bench"},
                                    {"roles", "superpeer"},
                                    {"listen", "127.0.0.1:0"},
                                    {"spin_ns", "0"},
                                    {"park_ns", "0"}};
    if (node_run(first, sizeof first / sizeof *first, &superpeer) || !sh_node_wait_ready(superpeer))
        return;
    uint64_t store_bytes = 2 * flags->count * (flags->size + 64);
    char store[24];
    char chunk[24];
    snprintf(store, sizeof store, "%" PRIu64,
             store_bytes > STORE_BYTES_MIN ? store_bytes : STORE_BYTES_MIN);
    snprintf(chunk, sizeof chunk, "%" PRIu64,
             flags->size > CHUNK_BYTES_MIN ? flags->size : CHUNK_BYTES_MIN);
    struct sh_node_run *peer = NULL;
    const struct setting second[] = {{"cluster", "bench"},
                                     {"roles", "peer"},
                                     {"listen", "127.0.0.1:0"},
                                     {"superpeers", sh_node_address(superpeer)},
                                     {"store_bytes_max", store},
                                     {"chunk_bytes_max", chunk},
                                     {"spin_ns", peer_spin(args->placement)},
                                     {"park_ns", peer_park(args->placement)}};
    if (node_run(second, sizeof second / sizeof *second, &peer) || !sh_node_wait_ready(peer))
        return;
    const char *colon = strrchr(sh_node_address(superpeer), ':');
    SH_ASSERT(colon != NULL);
    sh_child_report(report_fd, (uint16_t)strtoul(colon + 1, NULL, 10));
    for (;;)
        (void)pause();
}

enum shoal_err sh_kv_server_start(const struct sh_kv_shape *shape, enum sh_placement placement,
                                  struct sh_child *server_out)
{
    struct server_args args = {.shape = shape, .placement = placement};
    return sh_child_start(server_main, &args, placement, server_out);
}
