#include "store/leases_int.h"

static struct sh_lease lease_of(const struct sh_leases *leases, uint32_t index)
{
    const struct sh_lease_record *record = sh_lease_record_at(leases, index);
    const struct sh_lease_chunk *chunk = sh_lease_chunk_at(leases, record->chunk);
    return (struct sh_lease){.cid = {record->cid},
                             .owner = {.token = record->token, .nid = {record->nid}},
                             .deadline_ns = record->deadline_ns,
                             .mode = (enum sh_lease_mode)record->mode,
                             .waiting = record->waiting,
                             .holders = chunk->holders,
                             .waiters = chunk->waiters};
}

enum shoal_err sh_leases_find(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                              struct sh_lease *lease_out)
{
    if (sh_leases_none(leases))
        return SHOAL_ENOLOCK;
    sh_lock_take(&leases->lock);
    uint32_t index = sh_lease_of(leases, cid, owner);
    if (index)
        *lease_out = lease_of(leases, index);
    sh_lock_release(&leases->lock);
    return index ? SHOAL_OK : SHOAL_ENOLOCK;
}

bool sh_leases_holds(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                     enum sh_lease_mode mode, uint64_t now_ns)
{
    struct sh_lease lease;
    if (sh_leases_find(leases, cid, owner, &lease))
        return false;
    return !lease.waiting && lease.mode >= mode && lease.deadline_ns > now_ns;
}

size_t sh_leases_list(struct sh_leases *leases, shoal_cid from, struct sh_lease_owner from_owner,
                      struct sh_lease *leases_out, size_t max)
{
    if (sh_leases_none(leases) || max == 0)
        return 0;
    const struct sh_lease_record key = {
        .cid = from.v, .nid = from_owner.nid.v, .token = from_owner.token};
    size_t count = 0;
    sh_lock_take(&leases->lock);
    uint32_t index = sh_lease_from(leases, SH_LEASE_BY_CHUNK, &key);
    while (index) {
        leases_out[count++] = lease_of(leases, index);
        if (count == max)
            break;
        index = sh_lease_behind(leases, SH_LEASE_BY_CHUNK, sh_lease_record_at(leases, index));
    }
    sh_lock_release(&leases->lock);
    return count;
}

bool sh_lease_after(const struct sh_lease *last, shoal_cid *from_out,
                    struct sh_lease_owner *from_owner_out)
{
    shoal_cid cid = last->cid;
    struct sh_lease_owner owner = last->owner;
    owner.token++;
    if (owner.token == 0) {
        owner.nid.v++;
        if (owner.nid.v == 0)
            cid.v++;
    }
    if (cid.v == 0)
        return false;
    *from_out = cid;
    *from_owner_out = owner;
    return true;
}

void sh_leases_status_get(struct sh_leases *leases, struct sh_leases_status *status_out)
{
    sh_lock_take(&leases->lock);
    *status_out = leases->status;
    status_out->chunks = leases->chunks.used;
    status_out->ended = leases->ends.used;
    status_out->bytes = sh_lease_slots_bytes(&leases->records) +
                        sh_lease_slots_bytes(&leases->chunks) + sh_lease_slots_bytes(&leases->ends);
    sh_lock_release(&leases->lock);
}
