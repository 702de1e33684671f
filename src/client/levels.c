/* How far a change gets before its call returns, and waiting for all that were made. */
#include <stdlib.h>

#include "client/client_int.h"
#include "proto/chunks.h"

/* The level that the thread has chosen; SHOAL_LEVEL_DEFAULT: none. */
static _Thread_local enum shoal_level chosen;

static enum shoal_level level_of(const struct shoal *store)
{
    return chosen != SHOAL_LEVEL_DEFAULT ? chosen : store->level;
}

_Static_assert(SHOAL_ASYNC - 1 == (int)SH_LEVEL_ASYNC && SHOAL_DURABLE - 1 == (int)SH_LEVEL_DURABLE,
               "the public levels are those of backup.h, and none before them");

enum sh_level sh_embedded_level(const struct shoal *store)
{
    enum shoal_level level = level_of(store);
    if (!store->durable)
        return SH_LEVEL_ASYNC;
    return level == SHOAL_LEVEL_DEFAULT ? SH_LEVEL_REPLICATED : (enum sh_level)(level - 1);
}

enum shoal_err sh_embedded_level_check(const struct shoal *store)
{
    if (store->durable || level_of(store) <= SHOAL_ASYNC)
        return SHOAL_OK;
    sh_client_detail_set("this store has no data_dir, so it keeps what is written at the level "
                         "async only");
    return SHOAL_ENOBACKUP;
}

sh_msg_type sh_client_type(sh_msg_type form, enum shoal_level level)
{
    return level == SHOAL_LEVEL_DEFAULT ? form : SH_CHUNKS_AT(form, level - 1);
}

enum shoal_level sh_client_level(const struct shoal *store)
{
    return level_of(store);
}

enum shoal_level sh_client_level_swap(enum shoal_level level)
{
    enum shoal_level before = chosen;
    chosen = level;
    return before;
}

enum shoal_err shoal_level_use(enum shoal_level level)
{
    if (level > SHOAL_DURABLE) {
        sh_client_detail_set("a level is SHOAL_LEVEL_DEFAULT, _ASYNC, _REPLICATED or _DURABLE");
        return SHOAL_EINVAL;
    }
    chosen = level;
    return SHOAL_OK;
}

/* --- Waiting for the disks --------------------------------------------------------------------- */

static enum shoal_err sync_embedded(shoal *store)
{
    struct sh_write write;
    if (!store->durable) {
        sh_client_detail_set("this store logs to no disk: open it with a data_dir");
        return SHOAL_ENOBACKUP;
    }
    sh_write_begin(&write, SH_LEVEL_DURABLE);
    sh_backup_write_all(store->backup, &write);
    return sh_embedded_settle(store, &write);
}

/* A peer that is down has nothing that could be synced; what its failure has lost, other calls say. */
static bool is_asked(const struct sh_node *node)
{
    return node->role == SH_ROLE_PEER && node->state == SH_NODE_UP;
}

/* One peer after the other: each syncs once for all that it was told before. Chunks of a peer without a log can't be synced; what its
 * caller wrote elsewhere is, all the same. */
static enum shoal_err sync_cluster(shoal *store)
{
    struct sh_caller caller = sh_client_caller(store);
    struct sh_node *nodes;
    size_t count;
    uint64_t deadline = sh_client_deadline_ns(store);
    enum shoal_err err = sh_client_nodes(store, &nodes, &count);
    shoal_nid unlogged = SHOAL_NID_NONE;
    bool is_any = false;
    for (size_t i = 0; i < count && err == SHOAL_OK; i++) {
        uint64_t now = sh_now(&store->env.clock);
        if (!is_asked(&nodes[i]))
            continue;
        err = now < deadline
                  ? sh_call(&caller, nodes[i].nid, SH_CHUNKS_SYNC, (struct sh_bytes){NULL, 0},
                            deadline - now, NULL, NULL, sh_client_detail())
                  : SHOAL_ETIMEOUT;
        is_any |= err == SHOAL_OK;
        /* ENOTYPE: it is too old for logs. EINVAL: it is an older node without one, which says so like that. */
        if (err == SHOAL_ENOBACKUP || err == SHOAL_ENOTYPE || err == SHOAL_EINVAL) {
            unlogged = nodes[i].nid;
            err = SHOAL_OK;
        }
    }
    free(nodes);
    if (err != SHOAL_OK)
        return err;
    if (is_any && !unlogged.v)
        return SHOAL_OK;
    if (is_any)
        sh_client_detail_set("node %u has no log, and its chunks are on no disk: start it with the "
                             "option replicas; the other peers have synced",
                             unlogged.v);
    else
        sh_client_detail_set("no peer of the cluster logs its chunks: see the option replicas");
    return SHOAL_ENOBACKUP;
}

enum shoal_err shoal_sync(shoal *store)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    return store->is_embedded ? sync_embedded(store) : sync_cluster(store);
}
