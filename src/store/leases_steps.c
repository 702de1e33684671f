#include "store/leases_int.h"

static struct sh_lease_record key_of(shoal_cid cid, struct sh_lease_owner owner)
{
    return (struct sh_lease_record){.cid = cid.v, .nid = owner.nid.v, .token = owner.token};
}

uint32_t sh_lease_of(const struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner)
{
    struct sh_lease_record key = key_of(cid, owner);
    uint32_t index = sh_lease_from(leases, SH_LEASE_BY_CHUNK, &key);
    if (!index)
        return 0;
    const struct sh_lease_record *record = sh_lease_record_at(leases, index);
    bool same = record->cid == key.cid && record->nid == key.nid && record->token == key.token;
    return same ? index : 0;
}

uint32_t sh_lease_any_of(const struct sh_leases *leases, shoal_cid cid)
{
    struct sh_lease_record key = {.cid = cid.v};
    uint32_t index = sh_lease_from(leases, SH_LEASE_BY_CHUNK, &key);
    return index && sh_lease_record_at(leases, index)->cid == cid.v ? index : 0;
}

uint64_t sh_lease_deadline(uint64_t now_ns, uint64_t lease_ns)
{
    uint64_t last = SH_LEASES_NEVER - 1;
    return now_ns >= last || lease_ns >= last - now_ns ? last : now_ns + lease_ns;
}

/* --- Time -------------------------------------------------------------------------------- */

static void due_find(struct sh_leases *leases)
{
    uint32_t first = sh_lease_first(leases, SH_LEASE_BY_TIME);
    uint64_t due = first ? sh_lease_record_at(leases, first)->deadline_ns : SH_LEASES_NEVER;
    /* relaxed: a hint */
    atomic_store_explicit(&leases->due_ns, due, memory_order_relaxed);
}

static void time_insert(struct sh_leases *leases, uint32_t index)
{
    uint64_t deadline_ns = sh_lease_record_at(leases, index)->deadline_ns;
    sh_lease_insert(leases, SH_LEASE_BY_TIME, index);
    if (deadline_ns < atomic_load_explicit(&leases->due_ns, memory_order_relaxed))
        atomic_store_explicit(&leases->due_ns, deadline_ns, memory_order_relaxed);
}

static void time_remove(struct sh_leases *leases, uint32_t index)
{
    sh_lease_remove(leases, SH_LEASE_BY_TIME, index);
    if (sh_lease_record_at(leases, index)->deadline_ns ==
        atomic_load_explicit(&leases->due_ns, memory_order_relaxed))
        due_find(leases);
}

void sh_lease_deadline_set(struct sh_leases *leases, uint32_t index, uint64_t deadline_ns)
{
    struct sh_lease_record *record = sh_lease_record_at(leases, index);
    if (record->deadline_ns == deadline_ns)
        return;
    time_remove(leases, index);
    record->deadline_ns = deadline_ns;
    time_insert(leases, index);
}

/* --- Records and chunks ------------------------------------------------------------------ */

static void count_note(struct sh_leases *leases)
{
    atomic_store_explicit(&leases->records_count, leases->records.used, memory_order_relaxed);
}

/* Puts a record into all orders, and makes the chunk if this is its first. */
static uint32_t record_add(struct sh_leases *leases, struct sh_lease_record record)
{
    SH_ASSERT(leases->records.used < leases->config.locks_max);
    if (!record.chunk) {
        record.chunk = sh_lease_slots_take(&leases->chunks);
        *sh_lease_chunk_at(leases, record.chunk) = (struct sh_lease_chunk){.first = 0};
    }
    uint32_t index = sh_lease_slots_take(&leases->records);
    *sh_lease_record_at(leases, index) = record;
    sh_lease_insert(leases, SH_LEASE_BY_CHUNK, index);
    sh_lease_insert(leases, SH_LEASE_BY_OWNER, index);
    time_insert(leases, index);
    count_note(leases);
    return index;
}

static void record_take(struct sh_leases *leases, uint32_t index)
{
    sh_lease_remove(leases, SH_LEASE_BY_CHUNK, index);
    sh_lease_remove(leases, SH_LEASE_BY_OWNER, index);
    time_remove(leases, index);
    sh_lease_slots_give(&leases->records, index);
    count_note(leases);
}

static uint32_t *count_of(struct sh_leases *leases, uint32_t mode)
{
    return mode == SH_LEASE_WRITER ? &leases->status.writers : &leases->status.readers;
}

static void hold_count(struct sh_leases *leases, const struct sh_lease_record *record)
{
    struct sh_lease_chunk *chunk = sh_lease_chunk_at(leases, record->chunk);
    SH_ASSERT(chunk->holders == 0 ||
              (chunk->mode == SH_LEASE_READER && record->mode == SH_LEASE_READER));
    chunk->holders++;
    chunk->mode = record->mode;
    ++*count_of(leases, record->mode);
    leases->status.granted++;
}

void sh_lease_hold_add(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                       enum sh_lease_mode mode, uint64_t deadline_ns, uint32_t chunk)
{
    struct sh_lease_record record = key_of(cid, owner);
    record.mode = (uint8_t)mode;
    record.deadline_ns = deadline_ns;
    record.chunk = chunk;
    hold_count(leases, sh_lease_record_at(leases, record_add(leases, record)));
}

void sh_lease_mode_set(struct sh_leases *leases, uint32_t index, enum sh_lease_mode mode)
{
    struct sh_lease_record *record = sh_lease_record_at(leases, index);
    struct sh_lease_chunk *chunk = sh_lease_chunk_at(leases, record->chunk);
    SH_ASSERT(!record->waiting);
    SH_ASSERT(chunk->holders == 1);
    --*count_of(leases, record->mode);
    ++*count_of(leases, mode);
    record->mode = (uint8_t)mode;
    chunk->mode = mode;
}

void sh_lease_hold_take(struct sh_leases *leases, uint32_t index)
{
    struct sh_lease_record *record = sh_lease_record_at(leases, index);
    struct sh_lease_chunk *chunk = sh_lease_chunk_at(leases, record->chunk);
    SH_ASSERT(!record->waiting);
    SH_ASSERT(chunk->holders > 0);
    chunk->holders--;
    --*count_of(leases, record->mode);
    record_take(leases, index);
}

/* --- Waits ------------------------------------------------------------------------------- */

void sh_lease_wait_add(struct sh_leases *leases, const struct sh_lease_wish *wish, uint32_t chunk)
{
    SH_ASSERT(chunk != 0);
    struct sh_lease_record record = key_of(wish->cid, wish->owner);
    record.mode = (uint8_t)wish->mode;
    record.waiting = 1;
    record.deadline_ns = wish->wait_until_ns;
    record.lease_ns = wish->lease_ns;
    record.cookie = wish->cookie;
    record.chunk = chunk;
    struct sh_lease_chunk *of = sh_lease_chunk_at(leases, chunk);
    record.prev = of->last;
    uint32_t index = record_add(leases, record);
    if (of->last)
        sh_lease_record_at(leases, of->last)->next = index;
    else
        of->first = index;
    of->last = index;
    of->waiters++;
    leases->status.waiters++;
}

static void queue_leave(struct sh_leases *leases, const struct sh_lease_record *record)
{
    struct sh_lease_chunk *chunk = sh_lease_chunk_at(leases, record->chunk);
    SH_ASSERT(record->waiting);
    SH_ASSERT(chunk->waiters > 0);
    if (record->prev)
        sh_lease_record_at(leases, record->prev)->next = record->next;
    else
        chunk->first = record->next;
    if (record->next)
        sh_lease_record_at(leases, record->next)->prev = record->prev;
    else
        chunk->last = record->prev;
    chunk->waiters--;
    leases->status.waiters--;
}

void sh_lease_tell(struct sh_leases *leases, const struct sh_lease_record *record,
                   enum shoal_err err)
{
    uint32_t index = sh_lease_slots_take(&leases->ends);
    struct sh_lease_told *told = sh_lease_slots_at(&leases->ends, index);
    *told = (struct sh_lease_told){.end = {.cookie = record->cookie,
                                           .cid = {record->cid},
                                           .owner = {.token = record->token, .nid = {record->nid}},
                                           .deadline_ns = err == SHOAL_OK ? record->deadline_ns : 0,
                                           .mode = (enum sh_lease_mode)record->mode,
                                           .err = err}};
    if (leases->ended_last) {
        struct sh_lease_told *last = sh_lease_slots_at(&leases->ends, leases->ended_last);
        last->next = index;
    } else {
        leases->ended_first = index;
    }
    leases->ended_last = index;
    atomic_store_explicit(&leases->ended_count, leases->ends.used, memory_order_relaxed);
}

void sh_lease_wait_end(struct sh_leases *leases, uint32_t index, enum shoal_err err)
{
    const struct sh_lease_record *record = sh_lease_record_at(leases, index);
    SH_ASSERT(err != SHOAL_OK);
    queue_leave(leases, record);
    sh_lease_tell(leases, record, err);
    if (err == SHOAL_ETIMEOUT)
        leases->status.timed_out++;
    record_take(leases, index);
}

void sh_lease_waits_end(struct sh_leases *leases, uint32_t chunk, enum shoal_err err)
{
    struct sh_lease_chunk *of = sh_lease_chunk_at(leases, chunk);
    while (of->first)
        sh_lease_wait_end(leases, of->first, err);
}

void sh_lease_grant(struct sh_leases *leases, uint32_t index, uint64_t deadline_ns)
{
    struct sh_lease_record *record = sh_lease_record_at(leases, index);
    queue_leave(leases, record);
    time_remove(leases, index);
    record->waiting = 0;
    record->next = 0;
    record->prev = 0;
    record->deadline_ns = deadline_ns;
    time_insert(leases, index);
    hold_count(leases, record);
    sh_lease_tell(leases, record, SHOAL_OK);
}

void sh_lease_tidy(struct sh_leases *leases, uint32_t chunk)
{
    const struct sh_lease_chunk *of = sh_lease_chunk_at(leases, chunk);
    if (of->holders == 0 && of->waiters == 0)
        sh_lease_slots_give(&leases->chunks, chunk);
}

void sh_lease_serve(struct sh_leases *leases, uint32_t chunk, uint64_t now_ns)
{
    const struct sh_lease_chunk *of = sh_lease_chunk_at(leases, chunk);
    while (of->first) {
        const struct sh_lease_record *head = sh_lease_record_at(leases, of->first);
        bool can =
            of->holders == 0 || (of->mode == SH_LEASE_READER && head->mode == SH_LEASE_READER);
        /* Whoever has given up by now must not get a lock that it knows nothing of. */
        if (head->deadline_ns <= now_ns)
            sh_lease_wait_end(leases, of->first, SHOAL_ETIMEOUT);
        else if (can)
            sh_lease_grant(leases, of->first, sh_lease_deadline(now_ns, head->lease_ns));
        else
            break;
    }
    sh_lease_tidy(leases, chunk);
}
