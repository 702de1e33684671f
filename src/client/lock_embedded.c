/* Locks of a store in this process. Calls that need not wait run in the calling thread. Those that
 * wait end in whichever call freed the chunk, or by the step of a crew, which the first call that
 * may wait makes: it is there for what only time brings about. */
#include "client/client_int.h"

#define ENDS_AT_ONCE 64
#define EXPIRED_AT_ONCE 256
#define LISTED_AT_ONCE 64

static struct sh_lease_owner owner_of(const struct sh_call_state *state)
{
    return (struct sh_lease_owner){.token = state->ask.owner.v, .nid = {SH_EMBEDDED_NID}};
}

static uint64_t left_ns(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns == SH_LEASES_NEVER)
        return SH_LEASES_NEVER;
    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

static void info_of(const struct sh_lease *lease, uint64_t now_ns, struct shoal_lock_info *info_out)
{
    *info_out = (struct shoal_lock_info){
        .cid = lease->cid,
        .owner = {lease->owner.token},
        .node = lease->owner.nid,
        .mode = (enum shoal_lock_mode)lease->mode,
        .is_waiting = lease->waiting,
        .left_ns = left_ns(lease->deadline_ns, now_ns),
        .holders = lease->holders,
        .waiters = lease->waiters,
    };
}

/* The detail names the first other owner that holds the chunk. */
static void explain(struct shoal *store, const struct sh_call_state *state, shoal_cid cid)
{
    struct sh_lease found[LISTED_AT_ONCE];
    struct sh_lease_owner first = {0};
    size_t count = sh_leases_list(store->leases, cid, first, found, LISTED_AT_ONCE);
    for (size_t i = 0; i < count && found[i].cid.v == cid.v; i++) {
        if (found[i].waiting || found[i].owner.token == state->ask.owner.v)
            continue;
        sh_lock_explain(state->detail, found[i].owner.nid, found[i].owner.token, found[i].mode,
                        left_ns(found[i].deadline_ns, sh_now(&store->env.clock)));
        return;
    }
}

/* Completes calls whose wait is over; returns how many. */
static unsigned ends_complete(struct shoal *store)
{
    struct sh_lease_end ends[ENDS_AT_ONCE];
    unsigned done = 0;
    size_t count;
    while (sh_leases_ended_count(store->leases) > 0 &&
           (count = sh_leases_ended(store->leases, ends, ENDS_AT_ONCE)) > 0) {
        for (size_t i = 0; i < count; i++) {
            struct sh_call_state *state = (struct sh_call_state *)(uintptr_t)ends[i].cookie;
            enum shoal_err err = ends[i].err;
            if (err == SHOAL_ETIMEOUT)
                explain(store, state, ends[i].cid);
            /* What is granted while all locks are dropped is of no use any more. */
            if (sh_client_closing(store) && (err == SHOAL_OK || err == SHOAL_ECANCELED))
                err = SHOAL_ESTOPPED;
            sh_call_complete(state, err);
        }
        done += (unsigned)count;
    }
    return done;
}

/* --- The crew ------------------------------------------------------------------------------ */

static unsigned run(void *arg)
{
    struct shoal *store = arg;
    uint64_t now = sh_now(&store->env.clock);
    size_t expired = 0;
    if (sh_leases_due_ns(store->leases) <= now)
        expired = sh_leases_expire(store->leases, now, EXPIRED_AT_ONCE);
    return (unsigned)expired + ends_complete(store);
}

static uint64_t due_ns(void *arg)
{
    struct shoal *store = arg;
    return sh_leases_due_ns(store->leases);
}

enum shoal_err sh_embedded_crew_make(struct shoal *store, struct sh_crew **crew_out)
{
    struct sh_crew_config config = {
        .name = "shoal-node",
        .threads = 1,
        .lends = true,
        .now_ns = store->env.clock.now_ns,
        .now_arg = store->env.clock.arg,
    };
    struct sh_crew *crew;
    enum shoal_err err = sh_crew_create(&config, &crew);
    if (err != SHOAL_OK)
        return err;
    sh_crew_step_add(crew, 0,
                     (struct sh_step){.name = "locks", .run = run, .due_ns = due_ns, .arg = store});
    if (store->durable) {
        sh_crew_step_add(crew, 0, sh_durable_names_step(store));
        sh_crew_step_add(crew, 0, sh_durable_step(store));
    }
    *crew_out = crew;
    return SHOAL_OK;
}

/* Two may be made at once; then one is enough. */
enum shoal_err sh_embedded_crew(struct shoal *store)
{
    struct sh_crew *made = NULL;
    sh_lock_take(&store->crew_lock);
    bool is_there = store->crew != NULL;
    sh_lock_release(&store->crew_lock);
    if (is_there)
        return SHOAL_OK;
    enum shoal_err err = sh_embedded_crew_make(store, &made);
    if (err == SHOAL_OK)
        err = sh_crew_start(made);
    if (err != SHOAL_OK) {
        sh_crew_destroy(made);
        return err;
    }
    sh_lock_take(&store->crew_lock);
    if (!store->crew) {
        store->crew = made;
        made = NULL;
    }
    sh_lock_release(&store->crew_lock);
    sh_crew_destroy(made);
    return SHOAL_OK;
}

/* --- Calls --------------------------------------------------------------------------------- */

static bool exists(struct shoal *store, shoal_cid cid)
{
    sh_lid lid;
    uint32_t size;
    return sh_embedded_lid(cid, &lid) == SHOAL_OK &&
           sh_store_size(store->store, lid, &size) == SHOAL_OK;
}

/* EAGAIN: the call waits, and may be over by now. */
static enum shoal_err acquire(struct shoal *store, struct sh_call_state *state, shoal_cid cid)
{
    uint64_t now = sh_now(&store->env.clock), deadline;
    struct sh_lease_wish wish = {.cid = cid,
                                 .owner = owner_of(state),
                                 .mode = (enum sh_lease_mode)state->ask.mode,
                                 .lease_ns = state->ask.lease_ns,
                                 .wait_until_ns = state->ask.wait_until_ns,
                                 .cookie = (uintptr_t)state};
    if (wish.wait_until_ns > now) {
        enum shoal_err err = sh_embedded_crew(store);
        if (err != SHOAL_OK)
            return err;
    }
    if (sh_leases_due_ns(store->leases) <= now)
        (void)sh_leases_expire(store->leases, now, EXPIRED_AT_ONCE);
    struct sh_lock *stripe = sh_stripe_of(&store->stripes, cid);
    sh_lock_take(stripe);
    enum shoal_err err = exists(store, cid) ? SHOAL_OK : SHOAL_ENOCHUNK;
    if (err == SHOAL_OK)
        err = sh_leases_acquire(store->leases, &wish, now, &deadline);
    sh_lock_release(stripe);
    return err;
}

bool sh_embedded_lock(struct shoal *store, struct shoal_call *call, enum shoal_err *err_out)
{
    struct sh_call_state *state = sh_call_state_of(call);
    shoal_cid cid = call->cid;
    uint64_t now = sh_now(&store->env.clock), deadline;
    enum shoal_err err = SHOAL_OK;
    if (sh_client_closing(store))
        err = SHOAL_ESTOPPED;
    else if (state->ask.kind == SH_CALL_LOCK)
        err = acquire(store, state, cid);
    else if (state->ask.kind == SH_CALL_UNLOCK)
        err = sh_leases_quit(store->leases, cid, owner_of(state), now);
    else if (state->ask.kind == SH_CALL_EXTEND)
        err = sh_leases_extend(store->leases, cid, owner_of(state), state->ask.lease_ns, now,
                               &deadline);
    else
        err =
            sh_leases_swap(store->leases, cid, owner_of(state), (enum sh_lease_mode)state->ask.mode,
                           state->ask.lease_ns, now, &deadline);
    bool is_over = err != SHOAL_EAGAIN;
    if (err == SHOAL_EBUSY)
        explain(store, state, cid);
    *err_out = err;
    (void)ends_complete(store);
    /* The crew rests until what was due when it went to rest. */
    if (!is_over)
        sh_crew_wake(store->crew, 0);
    return is_over;
}

enum shoal_err sh_embedded_remove(struct shoal *store, struct sh_write *write, sh_lid lid)
{
    shoal_cid cid = shoal_cid_make((shoal_nid){SH_EMBEDDED_NID}, lid.v);
    struct sh_lock *stripe = sh_stripe_of(&store->stripes, cid);
    size_t dropped = 0;
    sh_lock_take(stripe);
    enum shoal_err err = sh_backup_remove(store->backup, write, lid);
    if (err == SHOAL_OK)
        dropped = sh_leases_chunk_drop(store->leases, cid);
    sh_lock_release(stripe);
    if (dropped > 0)
        (void)ends_complete(store);
    return err;
}

enum shoal_err sh_embedded_locks(struct shoal *store,
                                 bool (*each)(void *arg, const struct shoal_lock_info *lock),
                                 void *arg)
{
    struct sh_lease found[LISTED_AT_ONCE];
    shoal_cid from = {0};
    struct sh_lease_owner owner = {0};
    size_t count = LISTED_AT_ONCE;
    while (count == LISTED_AT_ONCE) {
        count = sh_leases_list(store->leases, from, owner, found, LISTED_AT_ONCE);
        uint64_t now = sh_now(&store->env.clock);
        for (size_t i = 0; i < count; i++) {
            struct shoal_lock_info info;
            info_of(&found[i], now, &info);
            if (!each(arg, &info))
                return SHOAL_OK;
        }
        if (count > 0 && !sh_lease_after(&found[count - 1], &from, &owner))
            return SHOAL_OK;
    }
    return SHOAL_OK;
}

void sh_embedded_locks_fail(struct shoal *store)
{
    size_t dropped;
    do {
        dropped = sh_leases_node_drop(store->leases, (shoal_nid){SH_EMBEDDED_NID},
                                      sh_now(&store->env.clock), ENDS_AT_ONCE);
        (void)ends_complete(store);
    } while (dropped > 0);
}
