/* What should be empty once all is quiet: looked at in every peer, also for chunks that no checker
 * follows. A chunk in a store that its node does not serve is an orphan: the superpeers have decided
 * about every batch, and their decisions last, so that in the end exactly one side of each migration
 * has let go. */
#include "sim/cluster_world_int.h"

/* Whether chunks stand still: a batch that its source froze, and neither gave away nor thawed. */
static bool has_frozen(const struct cw_host *host, shoal_cid *cid_out)
{
    const struct sh_holdings *holdings = sh_chunks_holdings(host->chunks);
    shoal_cid from = {0};
    struct sh_range range;
    enum sh_holding what;
    shoal_nid other;
    while (sh_holdings_next(holdings, from, &range, &what, &other)) {
        *cid_out = range.first;
        if (what == SH_HOLDING_NO_WRITES || what == SH_HOLDING_NOTHING)
            return true;
        if (range.last.v == UINT64_MAX)
            return false;
        from.v = range.last.v + 1;
    }
    return false;
}

/* Whether the store has chunks that the node does not serve: a batch that came and was never decided
 * about, or one that went and was not let go. */
static bool has_orphan(const struct cw_host *host, shoal_cid *cid_out)
{
    const struct sh_holdings *holdings = sh_chunks_holdings(host->chunks);
    shoal_nid self = sh_msg_nid(host->msg);
    sh_lid from = {0}, first, last, found;
    while (sh_store_range(host->store, from, &first, &last)) {
        for (sh_lid lid = first; lid.v <= last.v; lid.v++) {
            *cid_out = sh_holdings_cid(self, lid);
            if (sh_holdings_look(holdings, self, *cid_out, false, &found) != SHOAL_OK)
                return true;
        }
        from.v = last.v + 1;
    }
    return false;
}

const char *cw_leftover(const struct cw_world *world, const struct cw_host **host_out,
                        shoal_cid *cid_out)
{
    for (unsigned i = 0; i < world->config.peers; i++) {
        const struct cw_host *host = &world->hosts[world->config.superpeers + i];
        *host_out = host;
        *cid_out = SHOAL_CID_NONE;
        if (!host->chunks)
            continue;
        struct sh_step locks = sh_locks_step(host->locks), moves = sh_moves_step(host->moves);
        if (has_frozen(host, cid_out))
            return "chunks that stand still";
        if (has_orphan(host, cid_out))
            return "chunks that it does not serve";
        if (moves.due_ns(moves.arg) != SH_NEVER)
            return "a migration that is not over";
        /* Every lock has a deadline, and every owner has stopped asking for more. */
        if (locks.due_ns(locks.arg) != SH_NEVER)
            return "a lock that nobody frees";
    }
    *host_out = NULL;
    return NULL;
}
