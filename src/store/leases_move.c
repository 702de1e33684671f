#include "store/leases_int.h"

/* One lock as it travels. */
struct travelling {
    shoal_cid cid;
    struct sh_lease_owner owner;
    enum sh_lease_mode mode;
    uint64_t left_ns;
};

/* The first record of the chunks first to last, 0 if there is none. */
static uint32_t first_in(const struct sh_leases *leases, shoal_cid first, shoal_cid last)
{
    const struct sh_lease_record key = {.cid = first.v};
    uint32_t index = sh_lease_from(leases, SH_LEASE_BY_CHUNK, &key);
    return index && sh_lease_record_at(leases, index)->cid <= last.v ? index : 0;
}

static void lock_put(struct sh_writer *w, const struct sh_lease_record *record, uint64_t now_ns)
{
    sh_put64(w, record->cid);
    sh_put64(w, record->token);
    sh_put16(w, record->nid);
    sh_put8(w, record->mode);
    sh_put8(w, 0);
    uint64_t left_ns = record->deadline_ns > now_ns ? record->deadline_ns - now_ns : 0;
    /* Callers' clocks may differ by a little, so that an hour ago may be an hour and a bit. */
    sh_put64(w, left_ns < SH_LEASE_NS_MAX ? left_ns : SH_LEASE_NS_MAX);
}

enum shoal_err sh_leases_export(struct sh_leases *leases, shoal_cid first, shoal_cid last,
                                uint64_t now_ns, void *into, size_t room, size_t *size_out)
{
    if (first.v > last.v || room < SH_LEASES_HEAD_BYTES + SH_LEASES_LOCK_BYTES)
        return SHOAL_EINVAL;
    struct sh_writer w = sh_writer_make(into, room);
    uint32_t count = 0;
    sh_put16(&w, SH_LEASES_EXPORT_VERSION);
    sh_put16(&w, 0);
    sh_put32(&w, 0);
    sh_lock_take(&leases->lock);
    uint32_t index;
    while ((size_t)(w.end - w.at) >= SH_LEASES_LOCK_BYTES &&
           (index = first_in(leases, first, last)) != 0) {
        uint32_t chunk = sh_lease_record_at(leases, index)->chunk;
        /* Before any lock goes, so that none of them can be granted on the way. */
        sh_lease_waits_end(leases, chunk, SHOAL_ENOTOWNER);
        index = first_in(leases, first, last);
        lock_put(&w, sh_lease_record_at(leases, index), now_ns);
        count++;
        sh_lease_hold_take(leases, index);
        sh_lease_tidy(leases, chunk);
    }
    sh_lock_release(&leases->lock);
    SH_ASSERT(sh_writer_ok(&w));
    sh_store32((uint8_t *)into + 4, count);
    *size_out = (size_t)(w.at - (uint8_t *)into);
    return SHOAL_OK;
}

/* --- Import ------------------------------------------------------------------------------ */

static enum shoal_err head_get(struct sh_reader *r, uint32_t *count_out)
{
    uint16_t version = sh_get16(r);
    uint16_t zero = sh_get16(r);
    uint32_t count = sh_get32(r);
    if (!sh_reader_ok(r))
        return SHOAL_EPROTO;
    if (version != SH_LEASES_EXPORT_VERSION)
        return SHOAL_EVERSION;
    if (zero != 0 || sh_reader_left(r) != (uint64_t)count * SH_LEASES_LOCK_BYTES)
        return SHOAL_EPROTO;
    *count_out = count;
    return SHOAL_OK;
}

static bool lock_get(struct sh_reader *r, struct travelling *lock_out)
{
    uint64_t cid = sh_get64(r);
    uint64_t token = sh_get64(r);
    uint16_t nid = sh_get16(r);
    uint8_t mode = sh_get8(r);
    uint8_t zero = sh_get8(r);
    uint64_t left_ns = sh_get64(r);
    if (!sh_reader_ok(r) || cid == 0 || zero != 0 || left_ns > SH_LEASE_NS_MAX ||
        (mode != SH_LEASE_READER && mode != SH_LEASE_WRITER))
        return false;
    *lock_out = (struct travelling){.cid = {cid},
                                    .owner = {.token = token, .nid = {nid}},
                                    .mode = (enum sh_lease_mode)mode,
                                    .left_ns = left_ns};
    return true;
}

/* Whether b may come right behind a: in order, and not both of one chunk unless both read. */
static bool may_follow(const struct travelling *a, const struct travelling *b)
{
    if (a->cid.v != b->cid.v)
        return a->cid.v < b->cid.v;
    if (a->mode != SH_LEASE_READER || b->mode != SH_LEASE_READER)
        return false;
    if (a->owner.nid.v != b->owner.nid.v)
        return a->owner.nid.v < b->owner.nid.v;
    return a->owner.token < b->owner.token;
}

/* EBUSY when what is held here excludes the lock. *new_out: whether it needs a record. */
static enum shoal_err lock_check(const struct sh_leases *leases, const struct travelling *lock,
                                 bool *new_out)
{
    uint32_t own = sh_lease_of(leases, lock->cid, lock->owner);
    const struct sh_lease_record *record = own ? sh_lease_record_at(leases, own) : NULL;
    *new_out = !record;
    if (record && !record->waiting && record->mode == lock->mode)
        return SHOAL_OK;
    uint32_t any = sh_lease_any_of(leases, lock->cid);
    if (!any)
        return SHOAL_OK;
    uint32_t mode = sh_lease_chunk_at(leases, sh_lease_record_at(leases, any)->chunk)->mode;
    return mode == SH_LEASE_READER && lock->mode == SH_LEASE_READER ? SHOAL_OK : SHOAL_EBUSY;
}

/* Goes over all of it without a change. */
static enum shoal_err check(const struct sh_leases *leases, struct sh_reader r, uint32_t count)
{
    struct travelling before = {.cid = {0}}, lock;
    uint64_t used = leases->records.used;
    for (uint32_t i = 0; i < count; i++, before = lock) {
        if (!lock_get(&r, &lock) || !may_follow(&before, &lock))
            return SHOAL_EPROTO;
        bool new;
        enum shoal_err err = lock_check(leases, &lock, &new);
        if (err)
            return err;
        used += new;
    }
    return used > leases->config.locks_max ? SHOAL_ELIMIT : SHOAL_OK;
}

static void lock_put_in(struct sh_leases *leases, const struct travelling *lock, uint64_t now_ns)
{
    uint64_t deadline_ns = sh_lease_deadline(now_ns, lock->left_ns);
    uint32_t own = sh_lease_of(leases, lock->cid, lock->owner);
    struct sh_lease_record *record = own ? sh_lease_record_at(leases, own) : NULL;
    if (record && !record->waiting) {
        if (deadline_ns > record->deadline_ns)
            sh_lease_deadline_set(leases, own, deadline_ns);
        return;
    }
    uint32_t any = sh_lease_any_of(leases, lock->cid);
    uint32_t chunk = any ? sh_lease_record_at(leases, any)->chunk : 0;
    if (record && record->mode == lock->mode) {
        sh_lease_grant(leases, own, deadline_ns);
    } else {
        if (record)
            sh_lease_wait_end(leases, own, SHOAL_ECANCELED);
        sh_lease_hold_add(leases, lock->cid, lock->owner, lock->mode, deadline_ns, chunk);
    }
    /* Whoever stood behind a wait that is gone. There are holders, so the chunk stays. */
    if (record)
        sh_lease_serve(leases, chunk, now_ns);
}

enum shoal_err sh_leases_import(struct sh_leases *leases, struct sh_bytes bytes, uint64_t now_ns)
{
    struct sh_reader r = sh_reader_make(bytes);
    uint32_t count;
    enum shoal_err err = head_get(&r, &count);
    if (err)
        return err;
    sh_lock_take(&leases->lock);
    err = check(leases, r, count);
    for (uint32_t i = 0; !err && i < count; i++) {
        struct travelling lock;
        bool got = lock_get(&r, &lock);
        SH_ASSERT(got); /* check has read it */
        lock_put_in(leases, &lock, now_ns);
    }
    sh_lock_release(&leases->lock);
    return err;
}
