/* What should be empty once all is quiet: looked at in every peer, also for chunks that no checker
 * follows. A chunk in a store that its node does not serve is an orphan: the superpeers have decided
 * about every batch, and their decisions last, so that in the end exactly one side of each migration
 * has let go. */
#include "sim/cluster_world_int.h"

#define LOCKS_AT_ONCE 16
/* Heartbeats and the like are always under way. */
#define REQUESTS_MOST 8

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

/* Every lock has a deadline, and every owner has stopped asking for more, or is dead. What is left came
 * with a chunk, and its owner was never here: it falls with its lease only. */
static bool has_lock(const struct cw_host *host, shoal_cid *cid_out)
{
    struct sh_lease found[LOCKS_AT_ONCE];
    struct sh_lease_owner owner = {0};
    shoal_cid from = {0};
    for (;;) {
        size_t count = sh_locks_list(host->locks, from, owner, found, LOCKS_AT_ONCE);
        for (size_t i = 0; i < count; i++) {
            *cid_out = found[i].cid;
            bool is_stray = found[i].owner.nid.v == SH_LOCKS_STRAY_NID && !found[i].waiting;
            if (!is_stray)
                return true;
        }
        if (count < LOCKS_AT_ONCE || !sh_lease_after(&found[count - 1], &from, &owner))
            return false;
    }
}

/* What costs little to see. */
static const char *unfinished(const struct cw_host *host, shoal_cid *cid_out)
{
    struct sh_step locks = sh_locks_step(host->locks), moves = sh_moves_step(host->moves);
    if (moves.due_ns(moves.arg) != SH_NEVER || sh_moves_has_staged(host->moves))
        return "a migration that is not over";
    if (sh_locks_waiting(host->locks))
        return "a request that waits for a lock";
    if (locks.due_ns(locks.arg) != SH_NEVER && has_lock(host, cid_out))
        return "a lock that nobody frees";
    return NULL;
}

/* Looks at every chunk. */
static const char *misplaced(const struct cw_host *host, shoal_cid *cid_out)
{
    if (has_frozen(host, cid_out))
        return "chunks that stand still";
    return has_orphan(host, cid_out) ? "chunks that it does not serve" : NULL;
}

/* How many clients there have been. */
static uint64_t lives(const struct cw_world *world)
{
    uint64_t lives = 0;
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        bool is_client = host->kind == CW_CLIENT || host->kind == CW_PROGRAM;
        lives += is_client ? host->boots : 0;
    }
    return lives;
}

/* What a node has more of than all that ever began can account for: it would grow for as long as the
 * node lives. */
static const char *grown(const struct cw_world *world, const struct cw_host *host)
{
    struct sh_superpeer_kept kept = {0};
    uint32_t clients = 0, results = 0;
    if (host->superpeer)
        kept = sh_superpeer_kept(host->superpeer);
    if (host->chunks)
        sh_once_count(sh_chunks_once(host->chunks), &clients, &results);
    if (sh_msg_requests_pending(host->msg) > REQUESTS_MOST ||
        (host->superpeer_msg && sh_msg_requests_pending(host->superpeer_msg) > REQUESTS_MOST))
        return "requests that nobody waits for";
    if (kept.askers)
        return "questions that nobody waits for";
    if (kept.barriers > cw_barriers_most(world))
        return "more barriers than were created and not freed";
    if (clients > lives(world))
        return "results of more clients than there were";
    return results > clients * SH_ONCE_WINDOW ? "more results than clients may ask for" : NULL;
}

const char *cw_leftover(const struct cw_world *world, const struct cw_host **host_out,
                        shoal_cid *cid_out)
{
    static const char *(*const looks[])(const struct cw_host *, shoal_cid *) = {unfinished,
                                                                                misplaced};
    const char *what = NULL;
    *cid_out = SHOAL_CID_NONE;
    for (unsigned i = 0; i < world->count && !what; i++) {
        *host_out = &world->hosts[i];
        what = world->hosts[i].msg ? grown(world, &world->hosts[i]) : NULL;
    }
    for (unsigned i = 0; i < 2 * world->config.peers && !what; i++) {
        const struct cw_host *host =
            &world->hosts[world->config.superpeers + i % world->config.peers];
        *host_out = host;
        *cid_out = SHOAL_CID_NONE;
        what = host->chunks ? looks[i / world->config.peers](host, cid_out) : NULL;
    }
    return what;
}
