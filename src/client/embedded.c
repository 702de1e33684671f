/* A store inside this process: every call runs at once, in the calling thread. */
#include "client/client_int.h"

enum shoal_err sh_embedded_lid(shoal_cid cid, sh_lid *lid_out)
{
    if (shoal_cid_creator(cid).v != SH_EMBEDDED_NID)
        return SHOAL_ENOCHUNK;
    *lid_out = (sh_lid){shoal_cid_local(cid)};
    return SHOAL_OK;
}

/* Says, for people, what a size error or a full store is about, as a node's answer would. */
void sh_embedded_explain(struct shoal *store, sh_lid lid, enum shoal_err err)
{
    uint32_t size;
    if (err == SHOAL_ESIZE && sh_store_size(store->store, lid, &size) == SHOAL_OK) {
        sh_client_detail_set("the chunk is %u bytes", size);
    } else if (err == SHOAL_ETOOBIG) {
        sh_client_detail_set("a chunk here is at most %u bytes", store->chunk_bytes_max);
    } else if (err == SHOAL_ENOSPC) {
        sh_client_detail_set(
            "the store's log has no room for the chunk, nor for another zone of chunks: remove "
            "chunks, make room on its disk, or open the store with more store_bytes_max");
    } else if (err == SHOAL_EFULL) {
        char text[160];
        sh_store_shortage_text(store->store, text, sizeof text);
        sh_client_detail_set("%s", text);
    }
}

/* --- Waiting ------------------------------------------------------------------------------- */

struct settling {
    struct sh_waiter waiter;
    enum shoal_err err;
};

static void on_settled(void *arg, enum shoal_err err)
{
    struct settling *settling = arg;
    settling->err = err;
    sh_waiter_complete(&settling->waiter);
}

static enum shoal_err settle(struct shoal *store, struct settling *settling)
{
    bool is_done = sh_crew_wait(store->crew, 0, &settling->waiter, SH_NEVER);
    SH_ASSERT(is_done);
    return settling->err;
}

enum shoal_err sh_embedded_settle(struct shoal *store, struct sh_write *write)
{
    struct settling settling = {0};
    return sh_write_wait(store->backup, write, on_settled, &settling) ? settle(store, &settling)
                                                                      : SHOAL_OK;
}

enum shoal_err sh_embedded_room(struct shoal *store, struct sh_write *write)
{
    struct settling settling = {0};
    sh_backup_room_wait(store->backup, write, on_settled, &settling);
    return settle(store, &settling);
}

/* All pieces of a large one, in the calling thread. */
static enum shoal_err large_change(struct shoal *store, struct sh_write *write,
                                   const struct sh_store_rewrite *rewrite)
{
    struct sh_store_rewriting *rewriting;
    enum shoal_err err = sh_store_rewriting_begin(store->store, rewrite, &rewriting);
    if (err != SHOAL_OK)
        return err;
    while (!sh_backup_rewriting_step(store->backup, write, rewriting)) {
        if (sh_write_was_refused(write) && (err = sh_embedded_room(store, write)) != SHOAL_OK)
            break;
    }
    enum shoal_err outcome = sh_store_rewriting_end(rewriting);
    return err != SHOAL_OK ? err : outcome;
}

enum shoal_err sh_embedded_change(struct shoal *store, struct sh_write *write,
                                  const struct sh_store_rewrite *rewrite)
{
    for (;;) {
        enum shoal_err err = sh_backup_rewrite(store->backup, write, rewrite);
        if (err == SHOAL_ELIMIT)
            return large_change(store, write, rewrite);
        if (err != SHOAL_EAGAIN)
            return err;
        err = sh_embedded_room(store, write);
        if (err != SHOAL_OK)
            return err;
    }
}

/* --- Creating ------------------------------------------------------------------------------ */

/* More are made in pieces where they are logged: a backlog has no room for all of them. */
#define CREATED_AT_ONCE 256

static enum shoal_err create_in_pieces(struct shoal *store, struct sh_write *write,
                                       const struct sh_store_wish *wish, shoal_cid *cids_out)
{
    struct sh_store_making *making;
    enum shoal_err err = sh_store_making_begin(store->store, wish, cids_out, &making);
    if (err != SHOAL_OK)
        return err;
    while (!sh_backup_making_step(store->backup, write, making, CREATED_AT_ONCE)) {
        if (!sh_write_was_refused(write))
            continue;
        err = sh_embedded_room(store, write);
        if (err != SHOAL_OK)
            sh_store_making_fail(making, err);
    }
    return sh_store_making_end(making);
}

enum shoal_err sh_embedded_create_as(struct shoal *store, const struct sh_store_wish *wish,
                                     shoal_cid *cids_out)
{
    struct sh_write write;
    enum shoal_err err = sh_embedded_level_check(store), settled;
    if (err != SHOAL_OK)
        return err;
    sh_write_begin(&write, sh_embedded_level(store));
    if (store->durable && wish->count > CREATED_AT_ONCE && !wish->reserve) {
        err = create_in_pieces(store, &write, wish, cids_out);
    } else {
        while ((err = sh_backup_new_as(store->backup, &write, wish, cids_out, NULL)) ==
               SHOAL_EAGAIN) {
            err = sh_embedded_room(store, &write);
            if (err != SHOAL_OK)
                break;
        }
    }
    settled = sh_embedded_settle(store, &write);
    if (err == SHOAL_OK)
        err = settled;
    sh_embedded_explain(store, (sh_lid){0}, err);
    /* The store has no node ID of its own, so what it gives out are local IDs. */
    for (size_t i = 0; err == SHOAL_OK && i < wish->count; i++)
        cids_out[i] = shoal_cid_make((shoal_nid){SH_EMBEDDED_NID}, cids_out[i].v);
    return err;
}

static enum shoal_err create(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    const struct sh_ask *ask = &state->ask;
    struct sh_store_wish wish = {.size = (uint32_t)ask->size, .count = 1};
    if (ask->where.v != 0 && ask->where.v != SH_EMBEDDED_NID)
        return SHOAL_ENONODE;
    shoal_cid cid;
    enum shoal_err err = sh_backup_new_as(store->backup, &state->write, &wish, &cid, NULL);
    if (err == SHOAL_OK)
        call->cid = shoal_cid_make((shoal_nid){SH_EMBEDDED_NID}, cid.v);
    sh_embedded_explain(store, (sh_lid){0}, err);
    return err;
}

/* --- One chunk ----------------------------------------------------------------------------- */

static enum shoal_err part_get(struct shoal *store, struct shoal_call *call, sh_lid lid)
{
    const struct sh_ask *ask = &sh_call_state_of(call)->ask;
    uint32_t size = ask->size > UINT32_MAX ? UINT32_MAX : (uint32_t)ask->size;
    enum shoal_err err = sh_store_get_part(store->store, lid, ask->offset, ask->into, size);
    if (err == SHOAL_OK)
        call->size = size;
    else if (err == SHOAL_ESIZE)
        err = sh_store_size(store->store, lid, &call->size) == SHOAL_OK ? err : SHOAL_ENOCHUNK;
    return err;
}

/* A change of a chunk that is there, or reserved, as the store knows it; not its removal. */
static struct sh_store_rewrite rewrite_of(struct shoal_call *call, sh_lid lid)
{
    static const enum sh_store_rewrite_kind kinds[] = {
        [SH_CALL_PUT] = SH_STORE_PUT,
        [SH_CALL_PUT_PART] = SH_STORE_PUT_PART,
        [SH_CALL_RESIZE] = SH_STORE_RESIZE,
        [SH_CALL_PUT_IF] = SH_STORE_PUT_IF,
        [SH_CALL_PUT_HASH] = SH_STORE_PUT_IF_HASH,
        [SH_CALL_ADD] = SH_STORE_ADD,
        [SH_CALL_FILL] = SH_STORE_FILL,
    };
    const struct sh_ask *ask = &sh_call_state_of(call)->ask;
    struct sh_store_rewrite rewrite = {.kind = kinds[ask->kind], .cid = lid, .offset = ask->offset};
    switch (ask->kind) {
    case SH_CALL_RESIZE:
        rewrite.size = (uint32_t)ask->size;
        break;
    case SH_CALL_ADD:
        rewrite.width = ask->width;
        rewrite.delta = ask->value;
        rewrite.old_out = &call->value;
        break;
    case SH_CALL_PUT_IF:
        rewrite.expected = sh_bytes_make(ask->expected, ask->expected_size);
        rewrite.data = sh_bytes_make(ask->from, ask->size);
        break;
    default:
        rewrite.hash = ask->kind == SH_CALL_PUT_HASH ? ask->value : 0;
        rewrite.data = sh_bytes_make(ask->from, ask->size);
    }
    return rewrite;
}

/* Goes on with a large chunk; EAGAIN: there is no room. */
static enum shoal_err large_go_on(struct shoal *store, struct sh_call_state *state)
{
    while (!sh_backup_rewriting_step(store->backup, &state->write, state->rewriting)) {
        if (sh_write_was_refused(&state->write))
            return SHOAL_EAGAIN;
    }
    struct sh_store_rewriting *rewriting = state->rewriting;
    state->rewriting = NULL;
    return sh_store_rewriting_end(rewriting);
}

static enum shoal_err change(struct shoal *store, struct shoal_call *call, sh_lid lid)
{
    struct sh_call_state *state = sh_call_state_of(call);
    const struct sh_ask *ask = &state->ask;
    struct sh_store_rewrite rewrite;
    enum shoal_err err;
    if (state->rewriting)
        return large_go_on(store, state);
    if (ask->kind == SH_CALL_PUT) {
        err = sh_backup_put(store->backup, &state->write, lid, sh_bytes_make(ask->from, ask->size));
    } else {
        rewrite = rewrite_of(call, lid);
        err = sh_backup_rewrite(store->backup, &state->write, &rewrite);
    }
    if (err != SHOAL_ELIMIT)
        return err;
    rewrite = rewrite_of(call, lid);
    err = sh_store_rewriting_begin(store->store, &rewrite, &state->rewriting);
    return err == SHOAL_OK ? large_go_on(store, state) : err;
}

/* Does it, as far as there is room: else EAGAIN. */
static enum shoal_err attempt(struct shoal *store, struct shoal_call *call, sh_lid lid)
{
    struct sh_call_state *state = sh_call_state_of(call);
    const struct sh_ask *ask = &state->ask;
    enum shoal_err err;
    switch (ask->kind) {
    case SH_CALL_CREATE:
        return create(store, call);
    case SH_CALL_GET:
        return sh_store_get(store->store, lid, ask->into, ask->size, &call->size);
    case SH_CALL_GET_PART:
        return part_get(store, call, lid);
    case SH_CALL_FREE:
        err = sh_store_unreserve(store->store, lid);
        break;
    case SH_CALL_REMOVE:
        err = sh_embedded_remove(store, &state->write, lid);
        break;
    default:
        err = change(store, call, lid);
    }
    sh_embedded_explain(store, lid, err);
    return err;
}

static void on_room(void *arg, enum shoal_err err);

/* The store is not closed from here on, until the wait, and what its end completes, is over. */
static void wait_begin(struct shoal *store)
{
    atomic_fetch_add_explicit(&store->awaited, 1, memory_order_relaxed);
}

static void wait_end(struct shoal *store)
{
    atomic_fetch_sub_explicit(&store->awaited, 1, memory_order_release);
}

static void on_acked(void *arg, enum shoal_err err)
{
    struct shoal_call *call = arg;
    struct sh_call_state *state = sh_call_state_of(call);
    struct shoal *store = state->store;
    sh_call_complete(state, err == SHOAL_OK ? state->outcome : err);
    wait_end(store);
}

/* Whether a call tells nothing of the chunk but that it was there: it was written, for nobody who waits. */
static bool tells_nothing(const struct sh_call_state *state)
{
    enum sh_call_kind kind = state->ask.kind;
    return state->write.level == SH_LEVEL_ASYNC && state->outcome == SHOAL_OK &&
           !sh_call_reads(kind) && kind != SH_CALL_ADD && kind != SH_CALL_PUT_IF &&
           kind != SH_CALL_PUT_HASH;
}

/* Goes on with a call; true: it is over, else it will be completed. */
static bool go_on(struct shoal *store, struct shoal_call *call, enum shoal_err *err_out)
{
    struct sh_call_state *state = sh_call_state_of(call);
    bool has_chunk = state->ask.kind != SH_CALL_CREATE;
    sh_lid lid = {0};
    enum shoal_err err = has_chunk ? sh_embedded_lid(call->cid, &lid) : SHOAL_OK;
    if (err == SHOAL_OK)
        err = attempt(store, call, lid);
    *err_out = state->outcome = err;
    if (!store->durable)
        return true;
    if (err == SHOAL_EAGAIN) {
        wait_begin(store);
        sh_backup_room_wait(store->backup, &state->write, on_room, call);
        return false;
    }
    if (tells_nothing(state))
        return true;
    /* What others wrote, and what it says of the chunk, is not to be known before they know it. */
    bool has_written = state->write.marks_count > 0;
    if (has_chunk && !has_written && sh_backup_read_is_clean(store->backup, lid, &state->write))
        return true;
    wait_begin(store);
    if (sh_write_wait(store->backup, &state->write, on_acked, call))
        return false;
    wait_end(store);
    return true;
}

static void on_room(void *arg, enum shoal_err err)
{
    struct shoal_call *call = arg;
    struct sh_call_state *state = sh_call_state_of(call);
    struct shoal *store = state->store;
    if (err != SHOAL_OK && state->rewriting) {
        (void)!sh_store_rewriting_end(state->rewriting);
        state->rewriting = NULL;
    }
    if (err != SHOAL_OK || go_on(store, call, &err))
        sh_call_complete(state, err);
    wait_end(store);
}

bool sh_embedded_start(struct shoal *store, struct shoal_call *call, enum shoal_err *err_out)
{
    struct sh_call_state *state = sh_call_state_of(call);
    if (!sh_call_reads(state->ask.kind)) {
        *err_out = sh_embedded_level_check(store);
        if (*err_out != SHOAL_OK)
            return true;
    }
    sh_write_begin(&state->write, sh_embedded_level(store));
    state->rewriting = NULL;
    return go_on(store, call, err_out);
}
