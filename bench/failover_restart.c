#include "bench/failover_restart.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "bench/names.h"
#include "ring/arcs.h"
#include "shoal/names.h"

#define COUNT UINT64_C(1000000)
#define MORE_MAX UINT64_C(20000)
#define MORE_MIN 8
/* The time-out of updates, some of which no superpeer will answer any more. */
#define PATIENCE_NS UINT64_C(500000000)

/* Starts the cluster and registers the names that all runs find. */
static enum shoal_err begin(struct sh_failover_restart *restart, uint64_t count)
{
    static struct sh_bench_result result;
    struct sh_bench_names names = {.outstanding = SH_BENCH_NAMES_OUTSTANDING_MAX};
    shoal *store;
    restart->count = names.count = count ? count : COUNT;
    restart->more = restart->count / 8 < MORE_MAX ? restart->count / 8 + MORE_MIN : MORE_MAX;
    restart->acknowledged = calloc(restart->more, 1);
    if (!restart->acknowledged)
        return SHOAL_ENOMEM;
    const struct sh_bench_cluster_shape shape = {
        .name = "restart", .superpeers = SH_BENCH_SUPERPEERS, .is_durable = true};
    enum shoal_err err = sh_bench_cluster_start(&restart->cluster, &shape);
    if (!err)
        err = sh_bench_cluster_open(&restart->cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (err)
        return err;
    err = sh_bench_cluster_await(&restart->cluster, store);
    if (!err)
        err = sh_bench_names_set(store, &names, &result);
    shoal_close(store);
    return err;
}

/* Half of the names behind are acknowledged, and others are under way. */
static void on_half(void *arg)
{
    sh_bench_cluster_kill(arg);
}

/* Kills all superpeers while names are being registered. */
static enum shoal_err kill_all(struct sh_failover_restart *restart)
{
    static struct sh_bench_result result;
    struct sh_bench_names names = {.first = restart->count,
                                   .count = restart->more,
                                   .outstanding = SH_BENCH_NAMES_OUTSTANDING_MAX,
                                   .acknowledged = restart->acknowledged,
                                   .may_end = true,
                                   .hook = on_half,
                                   .hook_arg = &restart->cluster,
                                   .hook_at = restart->more / 2};
    shoal *store;
    enum shoal_err err = sh_bench_cluster_open(&restart->cluster, PATIENCE_NS, &store);
    if (err)
        return err;
    result = (struct sh_bench_result){0};
    err = sh_bench_names_set(store, &names, &result);
    shoal_close(store);
    if (!err && result.ops < names.hook_at)
        err = SHOAL_EFAILED; /* updates failed before a superpeer was killed */
    sh_bench_cluster_kill(&restart->cluster);
    sh_bench_cluster_reap(&restart->cluster);
    return err;
}

/* Finds a name of each shard. */
static enum shoal_err shards_ask(const struct sh_failover_restart *restart, shoal *store)
{
    uint64_t asked = 0;
    enum shoal_err err = SHOAL_OK;
    for (uint64_t i = 0; i < restart->count && !err && ~asked; i++) {
        char name[SH_BENCH_NAME_BYTES];
        shoal_cid cid;
        sh_bench_name(i, name);
        unsigned shard = sh_arc_shard_of_name(sh_bytes_text(name));
        if (!(asked >> shard & 1))
            err = shoal_name_get(store, name, &cid);
        asked |= UINT64_C(1) << shard;
    }
    return err;
}

enum shoal_err sh_failover_restart_run(struct sh_failover_restart *restart, uint64_t count,
                                       uint64_t *took_ns_out)
{
    shoal *store;
    enum shoal_err err = restart->count ? SHOAL_OK : begin(restart, count);
    if (!err)
        err = kill_all(restart);
    uint64_t begun_ns = sh_bench_now_ns();
    if (!err)
        err = sh_bench_cluster_restart(&restart->cluster);
    if (!err)
        err = sh_bench_cluster_open(&restart->cluster, SH_BENCH_TIMEOUT_NS, &store);
    if (err)
        return err;
    err = shards_ask(restart, store);
    if (!err)
        *took_ns_out = sh_bench_now_ns() - begun_ns;
    if (!err)
        err = sh_bench_names_check(store, restart->count, restart->acknowledged, restart->more);
    if (!err)
        err = sh_bench_cluster_await(&restart->cluster, store);
    shoal_close(store);
    return err;
}

void sh_failover_restart_end(struct sh_failover_restart *restart)
{
    if (restart->count)
        sh_bench_cluster_stop(&restart->cluster);
    free(restart->acknowledged);
    restart->acknowledged = NULL;
}
