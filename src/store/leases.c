#include "store/leases.h"

#include <stdlib.h>

#include "store/leases_int.h"

enum shoal_err sh_leases_create(const struct sh_leases_config *config,
                                struct sh_leases **leases_out)
{
    if (config->locks_max == 0 || config->locks_max > SH_LEASES_LOCKS_MAX ||
        config->waiters_max > config->locks_max)
        return SHOAL_EINVAL;
    struct sh_leases *leases = calloc(1, sizeof *leases);
    if (!leases)
        return SHOAL_ENOMEM;
    leases->config = *config;
    sh_lock_init(&leases->lock, SH_LOCK_STORE_LEASES);
    atomic_init(&leases->due_ns, SH_LEASES_NEVER);
    uint32_t ends_max = config->waiters_max ? config->waiters_max : 1;
    enum shoal_err err =
        sh_lease_slots_init(&leases->records, sizeof(struct sh_lease_record), config->locks_max);
    if (!err)
        err =
            sh_lease_slots_init(&leases->chunks, sizeof(struct sh_lease_chunk), config->locks_max);
    if (!err)
        err = sh_lease_slots_init(&leases->ends, sizeof(struct sh_lease_told), ends_max);
    if (err) {
        sh_leases_destroy(leases);
        return err;
    }
    *leases_out = leases;
    return SHOAL_OK;
}

void sh_leases_destroy(struct sh_leases *leases)
{
    if (!leases)
        return;
    sh_lease_slots_destroy(&leases->ends);
    sh_lease_slots_destroy(&leases->chunks);
    sh_lease_slots_destroy(&leases->records);
    sh_lock_destroy(&leases->lock);
    free(leases);
}

static bool mode_is(enum sh_lease_mode mode)
{
    return mode == SH_LEASE_READER || mode == SH_LEASE_WRITER;
}

static bool lease_is(uint64_t lease_ns)
{
    return lease_ns >= 1 && lease_ns <= SH_LEASE_NS_MAX;
}

/* --- Acquire ----------------------------------------------------------------------------- */

static enum shoal_err refuse(struct sh_leases *leases, enum shoal_err err)
{
    leases->status.refused++;
    return err;
}

/* Whether one more wait, or one more end of a wait, has a place. Each wait keeps one for its end.
 */
static bool end_has_place(const struct sh_leases *leases)
{
    return leases->status.waiters + leases->ends.used < leases->config.waiters_max;
}

static uint64_t extend(struct sh_leases *leases, uint32_t index, uint64_t lease_ns, uint64_t now_ns)
{
    uint64_t deadline_ns = sh_lease_deadline(now_ns, lease_ns);
    const struct sh_lease_record *record = sh_lease_record_at(leases, index);
    if (deadline_ns > record->deadline_ns)
        sh_lease_deadline_set(leases, index, deadline_ns);
    return record->deadline_ns;
}

/* A reader who wants to be the writer. EBUSY when there are other readers. */
static enum shoal_err upgrade(struct sh_leases *leases, uint32_t index)
{
    const struct sh_lease_record *record = sh_lease_record_at(leases, index);
    SH_ASSERT(record->mode == SH_LEASE_READER);
    if (sh_lease_chunk_at(leases, record->chunk)->holders > 1)
        return refuse(leases, SHOAL_EBUSY);
    sh_lease_mode_set(leases, index, SH_LEASE_WRITER);
    return SHOAL_OK;
}

static enum shoal_err acquire_held(struct sh_leases *leases, uint32_t index,
                                   const struct sh_lease_wish *wish, uint64_t now_ns,
                                   uint64_t *deadline_ns_out)
{
    enum shoal_err err = SHOAL_OK;
    if (wish->mode > sh_lease_record_at(leases, index)->mode)
        err = upgrade(leases, index);
    if (!err)
        *deadline_ns_out = extend(leases, index, wish->lease_ns, now_ns);
    return err;
}

/* The wish of somebody who neither holds the chunk nor waits for it. */
static enum shoal_err acquire_fresh(struct sh_leases *leases, const struct sh_lease_wish *wish,
                                    uint64_t now_ns, uint64_t *deadline_ns_out)
{
    uint32_t any = sh_lease_any_of(leases, wish->cid);
    uint32_t chunk = any ? sh_lease_record_at(leases, any)->chunk : 0;
    bool full = leases->records.used >= leases->config.locks_max;
    bool free = chunk == 0;
    if (chunk) {
        const struct sh_lease_chunk *of = sh_lease_chunk_at(leases, chunk);
        SH_ASSERT(of->holders > 0);
        free = of->waiters == 0 && of->mode == SH_LEASE_READER && wish->mode == SH_LEASE_READER;
    }
    if (!free && wish->wait_until_ns <= now_ns)
        return refuse(leases, SHOAL_EBUSY);
    if (full || (!free && !end_has_place(leases)))
        return refuse(leases, SHOAL_ELIMIT);
    if (!free) {
        sh_lease_wait_add(leases, wish, chunk);
        return SHOAL_EAGAIN;
    }
    uint64_t deadline_ns = sh_lease_deadline(now_ns, wish->lease_ns);
    sh_lease_hold_add(leases, wish->cid, wish->owner, wish->mode, deadline_ns, chunk);
    *deadline_ns_out = deadline_ns;
    return SHOAL_OK;
}

/* The wish of somebody who waits already. */
static enum shoal_err acquire_waiting(struct sh_leases *leases, uint32_t index,
                                      const struct sh_lease_wish *wish, uint64_t now_ns,
                                      uint64_t *deadline_ns_out)
{
    struct sh_lease_record *record = sh_lease_record_at(leases, index);
    bool waits = wish->wait_until_ns > now_ns;
    if (waits && !end_has_place(leases))
        return refuse(leases, SHOAL_ELIMIT);
    if (waits && record->mode == wish->mode) {
        sh_lease_tell(leases, record, SHOAL_ECANCELED);
        record->cookie = wish->cookie;
        record->lease_ns = wish->lease_ns;
        sh_lease_deadline_set(leases, index, wish->wait_until_ns);
        return SHOAL_EAGAIN;
    }
    uint32_t chunk = record->chunk;
    sh_lease_wait_end(leases, index, SHOAL_ECANCELED);
    sh_lease_serve(leases, chunk, now_ns);
    return acquire_fresh(leases, wish, now_ns, deadline_ns_out);
}

enum shoal_err sh_leases_acquire(struct sh_leases *leases, const struct sh_lease_wish *wish,
                                 uint64_t now_ns, uint64_t *deadline_ns_out)
{
    if (wish->cid.v == 0 || !mode_is(wish->mode) || !lease_is(wish->lease_ns))
        return SHOAL_EINVAL;
    enum shoal_err err;
    sh_lock_take(&leases->lock);
    uint32_t own = sh_lease_of(leases, wish->cid, wish->owner);
    if (!own)
        err = acquire_fresh(leases, wish, now_ns, deadline_ns_out);
    else if (sh_lease_record_at(leases, own)->waiting)
        err = acquire_waiting(leases, own, wish, now_ns, deadline_ns_out);
    else
        err = acquire_held(leases, own, wish, now_ns, deadline_ns_out);
    sh_lock_release(&leases->lock);
    return err;
}

/* --- What an owner does with what it has ------------------------------------------------- */

/* The owner's lock (or wait) on the chunk, 0 if it has none. */
static uint32_t own(const struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                    bool waiting)
{
    uint32_t index = sh_lease_of(leases, cid, owner);
    return index && sh_lease_record_at(leases, index)->waiting == waiting ? index : 0;
}

enum shoal_err sh_leases_extend(struct sh_leases *leases, shoal_cid cid,
                                struct sh_lease_owner owner, uint64_t lease_ns, uint64_t now_ns,
                                uint64_t *deadline_ns_out)
{
    if (!lease_is(lease_ns))
        return SHOAL_EINVAL;
    if (sh_leases_none(leases))
        return SHOAL_ENOLOCK;
    sh_lock_take(&leases->lock);
    uint32_t index = own(leases, cid, owner, false);
    if (index)
        *deadline_ns_out = extend(leases, index, lease_ns, now_ns);
    sh_lock_release(&leases->lock);
    return index ? SHOAL_OK : SHOAL_ENOLOCK;
}

static enum shoal_err swap(struct sh_leases *leases, uint32_t index, enum sh_lease_mode mode,
                           uint64_t lease_ns, uint64_t now_ns, uint64_t *deadline_ns_out)
{
    const struct sh_lease_record *record = sh_lease_record_at(leases, index);
    enum sh_lease_mode before = (enum sh_lease_mode)record->mode;
    enum shoal_err err = SHOAL_OK;
    if (mode > before)
        err = upgrade(leases, index);
    else if (mode < before)
        sh_lease_mode_set(leases, index, mode);
    if (err)
        return err;
    *deadline_ns_out = extend(leases, index, lease_ns, now_ns);
    if (mode < before)
        sh_lease_serve(leases, record->chunk, now_ns);
    return SHOAL_OK;
}

enum shoal_err sh_leases_swap(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                              enum sh_lease_mode mode, uint64_t lease_ns, uint64_t now_ns,
                              uint64_t *deadline_ns_out)
{
    if (!mode_is(mode) || !lease_is(lease_ns))
        return SHOAL_EINVAL;
    if (sh_leases_none(leases))
        return SHOAL_ENOLOCK;
    enum shoal_err err = SHOAL_ENOLOCK;
    sh_lock_take(&leases->lock);
    uint32_t index = own(leases, cid, owner, false);
    if (index)
        err = swap(leases, index, mode, lease_ns, now_ns, deadline_ns_out);
    sh_lock_release(&leases->lock);
    return err;
}

/* Takes a lock or a wait away and lets in who can come now. */
static void take_away(struct sh_leases *leases, uint32_t index, enum shoal_err err, uint64_t now_ns)
{
    const struct sh_lease_record *record = sh_lease_record_at(leases, index);
    uint32_t chunk = record->chunk;
    if (record->waiting)
        sh_lease_wait_end(leases, index, err);
    else
        sh_lease_hold_take(leases, index);
    sh_lease_serve(leases, chunk, now_ns);
}

static enum shoal_err own_take(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                               bool waiting, uint64_t now_ns)
{
    if (sh_leases_none(leases))
        return SHOAL_ENOLOCK;
    sh_lock_take(&leases->lock);
    uint32_t index = own(leases, cid, owner, waiting);
    if (index)
        take_away(leases, index, SHOAL_ECANCELED, now_ns);
    sh_lock_release(&leases->lock);
    return index ? SHOAL_OK : SHOAL_ENOLOCK;
}

enum shoal_err sh_leases_release(struct sh_leases *leases, shoal_cid cid,
                                 struct sh_lease_owner owner, uint64_t now_ns)
{
    return own_take(leases, cid, owner, false, now_ns);
}

enum shoal_err sh_leases_cancel(struct sh_leases *leases, shoal_cid cid,
                                struct sh_lease_owner owner, uint64_t now_ns)
{
    return own_take(leases, cid, owner, true, now_ns);
}

enum shoal_err sh_leases_quit(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                              uint64_t now_ns)
{
    /* In this order: a wait may become a lock in between, but never a lock a wait. */
    enum shoal_err err = sh_leases_cancel(leases, cid, owner, now_ns);
    return err == SHOAL_ENOLOCK ? sh_leases_release(leases, cid, owner, now_ns) : err;
}

/* --- Ends -------------------------------------------------------------------------------- */

size_t sh_leases_ended(struct sh_leases *leases, struct sh_lease_end *ends_out, size_t max)
{
    if (sh_leases_ended_count(leases) == 0)
        return 0;
    size_t count = 0;
    sh_lock_take(&leases->lock);
    while (count < max && leases->ended_first) {
        uint32_t index = leases->ended_first;
        const struct sh_lease_told *told = sh_lease_slots_at(&leases->ends, index);
        ends_out[count++] = told->end;
        leases->ended_first = told->next;
        sh_lease_slots_give(&leases->ends, index);
    }
    if (!leases->ended_first)
        leases->ended_last = 0;
    atomic_store_explicit(&leases->ended_count, leases->ends.used, memory_order_relaxed);
    sh_lock_release(&leases->lock);
    return count;
}

size_t sh_leases_ended_count(const struct sh_leases *leases)
{
    return atomic_load_explicit(&leases->ended_count, memory_order_relaxed);
}

/* --- Time and owners --------------------------------------------------------------------- */

size_t sh_leases_expire(struct sh_leases *leases, uint64_t now_ns, size_t max)
{
    if (sh_leases_due_ns(leases) > now_ns || max == 0)
        return 0;
    size_t count = 0;
    sh_lock_take(&leases->lock);
    while (count < max) {
        uint32_t index = sh_lease_first(leases, SH_LEASE_BY_TIME);
        if (!index || sh_lease_record_at(leases, index)->deadline_ns > now_ns)
            break;
        if (!sh_lease_record_at(leases, index)->waiting)
            leases->status.expired++;
        take_away(leases, index, SHOAL_ETIMEOUT, now_ns);
        count++;
    }
    sh_lock_release(&leases->lock);
    return count;
}

uint64_t sh_leases_due_ns(const struct sh_leases *leases)
{
    return atomic_load_explicit(&leases->due_ns, memory_order_relaxed);
}

/* Takes what an owner has, or with `any_token` what a node's owners have. */
static size_t drop(struct sh_leases *leases, struct sh_lease_owner owner, bool any_token,
                   uint64_t now_ns, size_t max)
{
    if (sh_leases_none(leases))
        return 0;
    const struct sh_lease_record key = {.nid = owner.nid.v, .token = any_token ? 0 : owner.token};
    size_t count = 0;
    sh_lock_take(&leases->lock);
    while (count < max) {
        uint32_t index = sh_lease_from(leases, SH_LEASE_BY_OWNER, &key);
        const struct sh_lease_record *record = index ? sh_lease_record_at(leases, index) : NULL;
        if (!record || record->nid != key.nid || (!any_token && record->token != key.token))
            break;
        take_away(leases, index, SHOAL_ECANCELED, now_ns);
        count++;
    }
    sh_lock_release(&leases->lock);
    return count;
}

size_t sh_leases_owner_drop(struct sh_leases *leases, struct sh_lease_owner owner, uint64_t now_ns,
                            size_t max)
{
    return drop(leases, owner, false, now_ns, max);
}

size_t sh_leases_node_drop(struct sh_leases *leases, shoal_nid nid, uint64_t now_ns, size_t max)
{
    return drop(leases, (struct sh_lease_owner){.nid = nid}, true, now_ns, max);
}

size_t sh_leases_chunk_drop(struct sh_leases *leases, shoal_cid cid)
{
    if (sh_leases_none(leases))
        return 0;
    size_t count = 0;
    sh_lock_take(&leases->lock);
    uint32_t index = sh_lease_any_of(leases, cid);
    if (index) {
        uint32_t chunk = sh_lease_record_at(leases, index)->chunk;
        count = sh_lease_chunk_at(leases, chunk)->waiters;
        sh_lease_waits_end(leases, chunk, SHOAL_ENOCHUNK);
        for (; (index = sh_lease_any_of(leases, cid)) != 0; count++)
            sh_lease_hold_take(leases, index);
        sh_lease_tidy(leases, chunk);
    }
    sh_lock_release(&leases->lock);
    return count;
}
