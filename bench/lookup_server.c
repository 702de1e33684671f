#include "bench/lookup_server.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/ranges_layout.h"
#include "bench/server_node.h"
#include "client/client.h"
#include "cluster/proto.h"
#include "metadata/metadata.h"

#define SUPERPEER 1
#define PATIENCE_US 10000
#define TRIES 500

struct server_args {
    const struct sh_lookup_shape *shape;
    enum sh_placement placement;
};

/* --- The layout ------------------------------------------------------------------------------ */

/* Batches that are told to the superpeer. */
struct teller {
    struct sh_caller caller;
    uint64_t sequence;
    shoal_nid from, to;
    uint64_t life; /* of the node `to` */
    size_t count;
    uint8_t bytes[SH_COMMIT_BYTES + 16 * SH_METADATA_RUNS_MAX];
};

/* Asks until the superpeer has heard of all peers. */
static enum shoal_err ask(struct teller *teller, sh_msg_type type, struct sh_bytes payload,
                          uint8_t **answer_out, size_t *size_out)
{
    enum shoal_err err = SHOAL_EBUSY;
    char detail[256] = "";
    for (unsigned i = 0; err == SHOAL_EBUSY && i < TRIES; i++) {
        if (i > 0)
            (void)usleep(PATIENCE_US);
        err = sh_call(&teller->caller, (shoal_nid){SUPERPEER}, type, payload, 0, answer_out,
                      size_out, detail);
    }
    if (err)
        SH_ERROR("bench", "superpeer was not told where chunks are", SH_ERR(err),
                 SH_TEXT("detail", detail));
    return err;
}

static enum shoal_err batch_send(struct teller *teller)
{
    if (!teller->count)
        return SHOAL_OK;
    struct sh_writer w = sh_writer_make(teller->bytes, SH_COMMIT_BYTES);
    sh_put64(&w, sh_msg_instance(teller->caller.msg));
    sh_put16(&w, teller->from.v);
    sh_put16(&w, teller->to.v);
    sh_put64(&w, teller->life);
    sh_put64(&w, ++teller->sequence);
    sh_put16(&w, (uint16_t)teller->count);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    size_t size = SH_COMMIT_BYTES + 16 * teller->count;
    teller->count = 0;
    return ask(teller, SH_CLUSTER_COMMIT, sh_bytes_make(teller->bytes, size), NULL, NULL);
}

static enum shoal_err run_add(struct teller *teller, const struct sh_range *run)
{
    uint64_t first = run->first.v - SH_LAYOUT_FIRST + 1;
    uint64_t last = run->last.v - SH_LAYOUT_FIRST + 1;
    uint8_t *at = teller->bytes + SH_COMMIT_BYTES + 16 * teller->count;
    sh_store64(at, shoal_cid_make(teller->from, first).v);
    sh_store64(at + 8, shoal_cid_make(teller->from, last).v);
    teller->count++;
    return teller->count == SH_METADATA_RUNS_MAX ? batch_send(teller) : SHOAL_OK;
}

/* Tells one creator's runs that go to the peer so many places behind him. */
static enum shoal_err target_tell(struct teller *teller, const struct sh_layout *layout,
                                  unsigned step, unsigned steps)
{
    enum shoal_err err = SHOAL_OK;
    for (uint64_t i = 0; i < layout->runs && !err; i++) {
        if (sh_mix64(layout->seed ^ i) % steps + 1 != step)
            continue;
        struct sh_range run = sh_layout_run(layout, i);
        err = run_add(teller, &run);
    }
    return err ? err : batch_send(teller);
}

/* Each peer tells what it has given away. */
static enum shoal_err layout_tell(const struct sh_lookup_shape *shape,
                                  struct sh_node_run *const *peers)
{
    struct teller *teller = calloc(1, sizeof *teller);
    if (!teller)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < shape->nodes && !err; i++) {
        struct sh_layout layout = {.chunks = sh_lookup_each(shape),
                                   .percent = shape->percent,
                                   .length = shape->length,
                                   .seed = shape->seed + i};
        layout.runs = layout.chunks * layout.percent / 100 / layout.length;
        teller->caller = sh_node_caller(peers[i]);
        teller->from = sh_node_nid(peers[i]);
        for (unsigned step = 1; step < shape->nodes && !err; step++) {
            const struct sh_node_run *target = peers[(i + step) % shape->nodes];
            teller->to = sh_node_nid(target);
            teller->life = sh_msg_instance(sh_node_caller(target).msg);
            err = target_tell(teller, &layout, step, shape->nodes - 1);
        }
    }
    free(teller);
    return err;
}

/* --- Nodes ----------------------------------------------------------------------------------- */

static void server_main(void *arg, int report_fd)
{
    const struct server_args *args = arg;
    const char *bad = NULL;
    size_t bad_len = 0;
    if (sh_log_levels_set("warn", &bad, &bad_len))
        return;
    bool spins = sh_bench_spins(args->placement);
    bool is_free = args->placement == SH_PLACE_FREE;
    const struct sh_server_setting first[] = {
        {"cluster", "bench"},
        {"roles", "superpeer"},
        {"registry", "memory"},
        {"listen", "127.0.0.1:0"},
        {"heartbeat_ns", "500ms"},
        {"failure_ns", "60s"},
        {"spin_ns", is_free ? NULL
                    : spins ? "1s"
                            : "0"},
        {"park_ns", is_free || spins ? NULL : "0"},
    };
    struct sh_node_run *superpeer = NULL;
    if (sh_server_node_run(first, sizeof first / sizeof *first, &superpeer))
        return;
    struct sh_node_run *peers[SH_LOOKUP_PEERS_MAX];
    for (unsigned i = 0; i < args->shape->nodes; i++) {
        /* They only have to be there, and share the superpeer's core. */
        const struct sh_server_setting second[] = {
            {"cluster", "bench"},
            {"roles", "peer"},
            {"listen", "127.0.0.1:0"},
            {"superpeers", sh_node_address(superpeer)},
            {"store_bytes_max", "64MiB"},
            {"chunk_bytes_max", "1MiB"},
            {"heartbeat_ns", "500ms"},
            {"failure_ns", "60s"},
            {"spin_ns", "0"},
            {"park_ns", "0"},
        };
        if (sh_server_node_run(second, sizeof second / sizeof *second, &peers[i]))
            return;
    }
    if (args->shape->percent && layout_tell(args->shape, peers))
        return;
    sh_server_serve(superpeer, report_fd);
}

enum shoal_err sh_lookup_server_start(const struct sh_lookup_shape *shape,
                                      enum sh_placement placement, struct sh_child *server_out)
{
    struct server_args args = {.shape = shape, .placement = placement};
    SH_ASSERT(shape->nodes > 0 && shape->nodes <= SH_LOOKUP_PEERS_MAX);
    return sh_child_start(server_main, &args, placement, server_out);
}
