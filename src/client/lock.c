/* Locks: the public calls, and their requests on a cluster (proto/locks.h). */
#include <stdio.h>
#include <stdlib.h>

#include "client/client_int.h"
#include "proto/locks.h"

_Static_assert(SHOAL_LOCK_READ == (int)SH_LEASE_READER && SHOAL_LOCK_WRITE == (int)SH_LEASE_WRITER,
               "modes of the API are those of the wire and of the store");
_Static_assert(SHOAL_LEASE_MAX_NS == SH_LEASE_NS_MAX, "the longest lease");

shoal_owner shoal_owner_thread(void)
{
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t thread;
    if (thread == 0) /* relaxed: only a number */
        thread = (UINT64_C(1) << 63) + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed);
    return (shoal_owner){thread};
}

/* --- Requests ------------------------------------------------------------------------------ */

/* With the client's number at the end. */
size_t sh_lock_request_bytes(enum sh_call_kind kind)
{
    switch (kind) {
    case SH_CALL_LOCK:
        return 33 + 8;
    case SH_CALL_UNLOCK:
        return 16 + 8;
    case SH_CALL_EXTEND:
        return 24 + 8;
    default:
        return 25 + 8;
    }
}

sh_msg_type sh_lock_request_type(enum sh_call_kind kind)
{
    static const sh_msg_type types[] = {SH_LOCKS_LOCK, SH_LOCKS_UNLOCK, SH_LOCKS_EXTEND,
                                        SH_LOCKS_SWAP};
    SH_ASSERT(kind >= SH_CALL_LOCK && kind <= SH_CALL_SWAP);
    return types[kind - SH_CALL_LOCK];
}

void sh_lock_request_write(const struct sh_ask *ask, shoal_cid cid, uint64_t client,
                           uint64_t now_ns, struct sh_writer *w)
{
    sh_put64(w, cid.v);
    sh_put64(w, ask->owner.v);
    if (ask->kind != SH_CALL_UNLOCK)
        sh_put64(w, ask->lease_ns);
    if (ask->kind == SH_CALL_LOCK) {
        uint64_t until = ask->wait_until_ns;
        uint64_t left = until > now_ns ? until - now_ns : 0;
        sh_put64(w, until == SH_LEASES_NEVER ? SH_LEASES_NEVER : left);
    }
    if (ask->kind == SH_CALL_LOCK || ask->kind == SH_CALL_SWAP)
        sh_put8(w, ask->mode);
    sh_put64(w, client);
}

void sh_lock_explain(char *detail, shoal_nid node, uint64_t owner, unsigned mode, uint64_t left_ns)
{
    if (!detail || mode == 0)
        return;
    char left[64] = "without end";
    if (left_ns != SH_LEASES_NEVER)
        snprintf(left, sizeof left, "for %.3f s more", (double)left_ns / 1e9);
    snprintf(detail, SH_DETAIL_BYTES, "owner %llu of %s %u is in the way, for %s, %s",
             (unsigned long long)owner, node.v >= SH_MSG_ALIAS_MIN ? "client" : "node", node.v,
             mode == SHOAL_LOCK_READ ? "reading" : "writing", left);
}

enum shoal_err sh_lock_answer_read(struct sh_call_state *state, struct sh_reader *payload)
{
    enum shoal_err err = sh_err_get(sh_get16(payload));
    uint8_t mode = sh_get8(payload);
    shoal_nid node = {sh_get16(payload)};
    uint64_t owner = sh_get64(payload);
    uint64_t left_ns = sh_get64(payload);
    if (!sh_reader_done(payload) || mode > SHOAL_LOCK_WRITE)
        return SHOAL_EPROTO;
    /* The locks of a connection that was lost have fallen, so that this is what was wanted. */
    if (err == SHOAL_ENOLOCK && state->ask.kind == SH_CALL_UNLOCK && state->was_lost)
        return SHOAL_OK;
    sh_lock_explain(state->detail, node, owner, mode, left_ns);
    return err;
}

/* --- Public calls -------------------------------------------------------------------------- */

enum shoal_err sh_lock_check(const struct sh_ask *ask)
{
    bool has_mode = ask->kind == SH_CALL_LOCK || ask->kind == SH_CALL_SWAP;
    if (has_mode && ask->mode != SHOAL_LOCK_READ && ask->mode != SHOAL_LOCK_WRITE) {
        sh_client_detail_set("a lock is for reading or for writing");
        return SHOAL_EINVAL;
    }
    if (ask->kind != SH_CALL_UNLOCK && ask->lease_ns == 0) {
        sh_client_detail_set("a lease must last for 1 ns at least");
        return SHOAL_EINVAL;
    }
    return SHOAL_OK;
}

enum shoal_err shoal_lock(shoal *store, shoal_cid cid, shoal_owner owner, enum shoal_lock_mode mode,
                          uint64_t lease_ns, uint64_t wait_ns)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_LOCK,
                         .owner = owner,
                         .mode = (uint8_t)mode,
                         .lease_ns = lease_ns,
                         .wait_ns = wait_ns};
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_unlock(shoal *store, shoal_cid cid, shoal_owner owner)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_UNLOCK, .owner = owner};
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_lock_extend(shoal *store, shoal_cid cid, shoal_owner owner, uint64_t lease_ns)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_EXTEND, .owner = owner, .lease_ns = lease_ns};
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_lock_swap(shoal *store, shoal_cid cid, shoal_owner owner,
                               enum shoal_lock_mode mode, uint64_t lease_ns)
{
    struct shoal_call call;
    struct sh_ask ask = {
        .kind = SH_CALL_SWAP, .owner = owner, .mode = (uint8_t)mode, .lease_ns = lease_ns};
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_lock_async(shoal *store, shoal_cid cid, shoal_owner owner,
                                enum shoal_lock_mode mode, uint64_t lease_ns, uint64_t wait_ns,
                                struct shoal_call *call)
{
    struct sh_ask ask = {.kind = SH_CALL_LOCK,
                         .owner = owner,
                         .mode = (uint8_t)mode,
                         .lease_ns = lease_ns,
                         .wait_ns = wait_ns};
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_unlock_async(shoal *store, shoal_cid cid, shoal_owner owner,
                                  struct shoal_call *call)
{
    struct sh_ask ask = {.kind = SH_CALL_UNLOCK, .owner = owner};
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_lock_extend_async(shoal *store, shoal_cid cid, shoal_owner owner,
                                       uint64_t lease_ns, struct shoal_call *call)
{
    struct sh_ask ask = {.kind = SH_CALL_EXTEND, .owner = owner, .lease_ns = lease_ns};
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_lock_swap_async(shoal *store, shoal_cid cid, shoal_owner owner,
                                     enum shoal_lock_mode mode, uint64_t lease_ns,
                                     struct shoal_call *call)
{
    struct sh_ask ask = {
        .kind = SH_CALL_SWAP, .owner = owner, .mode = (uint8_t)mode, .lease_ns = lease_ns};
    return sh_ask_begin(store, &ask, cid, call);
}

/* --- The list ------------------------------------------------------------------------------ */

typedef bool (*lock_each)(void *arg, const struct shoal_lock_info *lock);

static enum shoal_err info_read(struct sh_reader *r, struct shoal_lock_info *info_out)
{
    struct shoal_lock_info info = {.cid = {sh_get64(r)}};
    info.owner.v = sh_get64(r);
    info.node.v = sh_get16(r);
    uint8_t mode = sh_get8(r), waiting = sh_get8(r);
    info.left_ns = sh_get64(r);
    info.holders = sh_get32(r);
    info.waiters = sh_get32(r);
    bool is_mode = mode == SHOAL_LOCK_READ || mode == SHOAL_LOCK_WRITE;
    if (!sh_reader_ok(r) || !is_mode || waiting > 1)
        return SHOAL_EPROTO;
    info.mode = (enum shoal_lock_mode)mode;
    info.is_waiting = waiting == 1;
    *info_out = info;
    return SHOAL_OK;
}

/* Where the next page begins. */
struct place {
    shoal_cid cid;
    struct sh_lease_owner owner;
};

static bool is_behind(const struct shoal_lock_info *info, const struct place *place)
{
    if (info->cid.v != place->cid.v)
        return info->cid.v > place->cid.v;
    if (info->node.v != place->owner.nid.v)
        return info->node.v > place->owner.nid.v;
    return info->owner.v >= place->owner.token;
}

/* Reads an answer and moves the place behind its last lock; *more_out: go on. */
static enum shoal_err page_read(struct sh_bytes answer, struct place *place, lock_each each,
                                void *arg, bool *more_out)
{
    struct sh_reader r = sh_reader_make(answer);
    bool more = answer.size == (size_t)SH_LOCKS_LIST_MAX * SH_LOCKS_LIST_BYTES;
    bool goes_on = true;
    while (goes_on && sh_reader_left(&r) > 0) {
        struct shoal_lock_info info;
        if (info_read(&r, &info) != SHOAL_OK || !is_behind(&info, place))
            return SHOAL_EPROTO;
        struct sh_lease last = {.cid = info.cid,
                                .owner = {.token = info.owner.v, .nid = info.node}};
        goes_on = each(arg, &info) && sh_lease_after(&last, &place->cid, &place->owner);
    }
    *more_out = more && goes_on;
    return SHOAL_OK;
}

static enum shoal_err page(shoal *store, shoal_nid node, struct place *place, lock_each each,
                           void *arg, bool *more_out)
{
    uint8_t request[18];
    uint8_t *answer;
    size_t size;
    struct sh_writer w = sh_writer_make(request, sizeof request);
    sh_put64(&w, place->cid.v);
    sh_put16(&w, place->owner.nid.v);
    sh_put64(&w, place->owner.token);
    struct sh_caller caller = sh_client_caller(store);
    enum shoal_err err =
        sh_call(&caller, node, SH_LOCKS_LIST, sh_bytes_make(request, sizeof request),
                store->timeout_ns, &answer, &size, sh_client_detail());
    if (err != SHOAL_OK)
        return err;
    err = page_read(sh_bytes_make(answer, size), place, each, arg, more_out);
    free(answer);
    return err;
}

enum shoal_err shoal_locks(shoal *store, shoal_nid node, lock_each each, void *arg)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store || !each)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (store->is_embedded)
        return node.v == 0 || node.v == SH_EMBEDDED_NID ? sh_embedded_locks(store, each, arg)
                                                        : SHOAL_ENONODE;
    err = sh_client_peer_check(store, node);
    struct place place = {.cid = {0}};
    bool more = true;
    while (err == SHOAL_OK && more)
        err = page(store, node, &place, each, arg, &more);
    return err;
}
