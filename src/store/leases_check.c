#include "store/leases_int.h"

/* Walks a tree in its order, keeping the last record seen; returns how many there are. */
static uint32_t tree_check(const struct sh_leases *leases, enum sh_lease_order order, uint32_t at,
                           const struct sh_lease_record **last)
{
    if (!at)
        return 0;
    const struct sh_lease_record *record = sh_lease_record_at(leases, at);
    for (unsigned side = 0; side < 2; side++) {
        uint32_t below = record->links[order][side];
        SH_ASSERT(!below || sh_lease_priority(leases, below) <= sh_lease_priority(leases, at));
    }
    uint32_t count = tree_check(leases, order, record->links[order][0], last);
    SH_ASSERT(!*last || sh_lease_less(order, *last, record));
    *last = record;
    return count + 1 + tree_check(leases, order, record->links[order][1], last);
}

static void queue_check(const struct sh_leases *leases, uint32_t index)
{
    const struct sh_lease_chunk *chunk = sh_lease_chunk_at(leases, index);
    uint32_t waiters = 0, prev = 0;
    for (uint32_t at = chunk->first; at; waiters++) {
        const struct sh_lease_record *record = sh_lease_record_at(leases, at);
        SH_ASSERT(record->waiting && record->chunk == index && record->prev == prev);
        prev = at;
        at = record->next;
    }
    SH_ASSERT(chunk->last == prev);
    SH_ASSERT(chunk->waiters == waiters);
    /* Nobody waits for what could be had. */
    SH_ASSERT(chunk->holders > 0);
    if (chunk->first)
        SH_ASSERT(chunk->mode == SH_LEASE_WRITER ||
                  sh_lease_record_at(leases, chunk->first)->mode == SH_LEASE_WRITER);
}

/* Goes over the records by chunk, and over each chunk's queue once. */
static void chunks_check(const struct sh_leases *leases)
{
    struct sh_leases_status sums = {.chunks = 0};
    uint32_t at = sh_lease_first(leases, SH_LEASE_BY_CHUNK);
    while (at) {
        const struct sh_lease_record *record = sh_lease_record_at(leases, at);
        const uint64_t cid = record->cid;
        const uint32_t index = record->chunk;
        const struct sh_lease_chunk *chunk = sh_lease_chunk_at(leases, index);
        uint32_t holders = 0, waiters = 0;
        for (; at; at = sh_lease_behind(leases, SH_LEASE_BY_CHUNK, record)) {
            record = sh_lease_record_at(leases, at);
            if (record->cid != cid)
                break;
            SH_ASSERT(record->chunk == index);
            SH_ASSERT(record->waiting || record->mode == chunk->mode);
            waiters += record->waiting;
            holders += !record->waiting;
        }
        SH_ASSERT(chunk->holders == holders && chunk->waiters == waiters);
        SH_ASSERT(holders <= 1 || chunk->mode == SH_LEASE_READER);
        queue_check(leases, index);
        sums.chunks++;
        sums.waiters += waiters;
        sums.readers += chunk->mode == SH_LEASE_READER ? holders : 0;
        sums.writers += chunk->mode == SH_LEASE_WRITER ? holders : 0;
    }
    SH_ASSERT(sums.chunks == leases->chunks.used);
    SH_ASSERT(sums.waiters == leases->status.waiters);
    SH_ASSERT(sums.readers == leases->status.readers);
    SH_ASSERT(sums.writers == leases->status.writers);
}

static void ends_check(const struct sh_leases *leases)
{
    uint32_t count = 0, last = 0;
    for (uint32_t at = leases->ended_first; at; count++) {
        const struct sh_lease_told *told = sh_lease_slots_at(&leases->ends, at);
        last = at;
        at = told->next;
    }
    SH_ASSERT(last == leases->ended_last);
    SH_ASSERT(count == leases->ends.used && count == atomic_load(&leases->ended_count));
    SH_ASSERT(count + leases->status.waiters <= leases->config.waiters_max);
}

void sh_leases_check(struct sh_leases *leases)
{
    sh_lock_take(&leases->lock);
    for (int order = 0; order < SH_LEASE_ORDERS; order++) {
        const struct sh_lease_record *last = NULL;
        uint32_t count =
            tree_check(leases, (enum sh_lease_order)order, leases->roots[order], &last);
        SH_ASSERT(count == leases->records.used);
    }
    SH_ASSERT(leases->records.used == atomic_load(&leases->records_count));
    uint32_t first = sh_lease_first(leases, SH_LEASE_BY_TIME);
    uint64_t due = first ? sh_lease_record_at(leases, first)->deadline_ns : SH_LEASES_NEVER;
    SH_ASSERT(due == atomic_load(&leases->due_ns));
    chunks_check(leases);
    ends_check(leases);
    sh_lock_release(&leases->lock);
}
