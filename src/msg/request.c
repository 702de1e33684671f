/* Requests that wait for an answer: a table by ID, and a timer wheel.
 *
 * The table grows in pieces of 4096 slots (128 KiB), as more are outstanding than ever before, and
 * keeps them: 32 MiB for 2^20. The slots of one connection form a list, so that its loss touches no
 * others.
 *
 * An ID is a slot's index and its generation, which grows with each use: an answer to an earlier
 * generation is dropped. A slot whose request was given up (canceled, timed out) may be used again
 * at once, but is the last to be: 4095 uses later its generation is the same again, and the answer
 * that did not come may still be under way.
 *
 *            reserve                arm                    answer, loss
 *   free ------------> reserved ----------> outstanding ------------------> free
 *                          ^                     | cancel, time-out           ^
 *                          |    reserve          v          late answer, loss |
 *                          +------------------ given up ----------------------+
 *
 * The given up ones are used again only when no slot is free and the table is as large as it may
 * be, the oldest first. Such a slot is marked, and goes to the end of that same list whenever its
 * later requests are over. So a slow peer takes no slots from the others, and where n slots are
 * marked, an ID comes back after n * 4095 requests. The answer to it would have to come from the
 * same peer, over the connection of the request, to be taken for another. */
#include <stdlib.h>

#include "msg/msg_int.h"

#define INDEX_BITS 20
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define GENERATION_MAX 0xFFF

static struct sh_request_slot *slot_at(const struct sh_requests *table, uint32_t index)
{
    return &table->pieces[index / SH_REQUEST_PIECE_SLOTS][index % SH_REQUEST_PIECE_SLOTS];
}

/* Adds a piece to the table, unless another thread has meanwhile. ELIMIT: it is as large as it may
 * be. ENOMEM. */
static enum shoal_err grow(struct sh_msg *msg)
{
    struct sh_requests *table = &msg->requests;
    uint32_t max = msg->config.requests_max;
    uint32_t count = max < SH_REQUEST_PIECE_SLOTS ? max : SH_REQUEST_PIECE_SLOTS;
    enum shoal_err err = SHOAL_OK;
    struct sh_request_slot *piece = calloc(count, sizeof *piece);
    if (!piece)
        return SHOAL_ENOMEM;
    sh_spin_take(&table->lock);
    uint32_t first = atomic_load_explicit(&table->count, memory_order_relaxed);
    if (table->free_head == SH_NO_SLOT && first == max) {
        err = SHOAL_ELIMIT;
    } else if (table->free_head == SH_NO_SLOT) {

        SH_ASSERT(first % count == 0 && first + count <= max);
        for (uint32_t i = 0; i < count; i++)
            piece[i] = (struct sh_request_slot){.next = first + i + 1, .generation = 1};
        piece[count - 1].next = SH_NO_SLOT;
        table->pieces[first / SH_REQUEST_PIECE_SLOTS] = piece;
        /* relaxed, under the lock */
        atomic_store_explicit(&table->count, first + count, memory_order_relaxed);
        table->free_head = first;
        piece = NULL;
    }
    sh_spin_release(&table->lock);
    free(piece);
    return err;
}

enum shoal_err sh_requests_init(struct sh_msg *msg)
{
    uint32_t count = msg->config.requests_max;
    SH_ASSERT(count > 0 && count <= 1u << INDEX_BITS && (count & (count - 1)) == 0);
    struct sh_requests *table = &msg->requests;
    sh_spin_init(&table->lock, SH_LOCK_MSG_REQUESTS);
    table->free_head = table->old_head = table->old_tail = SH_NO_SLOT;
    table->wheel_tick = sh_now(&msg->config.env.clock) / SH_WHEEL_TICK_NS;
    return grow(msg);
}

void sh_requests_destroy(struct sh_msg *msg)
{
    for (uint32_t i = 0; i < SH_REQUEST_PIECES; i++)
        free(msg->requests.pieces[i]);
}

static struct sh_request **wheel_slot(struct sh_requests *table, uint64_t deadline_ns)
{
    return &table->wheel[(deadline_ns / SH_WHEEL_TICK_NS) % SH_WHEEL_SLOTS];
}

static void wheel_add(struct sh_requests *table, struct sh_request *request)
{
    struct sh_request **slot = wheel_slot(table, request->deadline_ns);
    request->prev = NULL;
    request->next = *slot;
    if (request->next)
        request->next->prev = request;
    *slot = request;
}

static void wheel_remove(struct sh_requests *table, struct sh_request *request)
{
    if (request->prev)
        request->prev->next = request->next;
    else
        *wheel_slot(table, request->deadline_ns) = request->next;
    if (request->next)
        request->next->prev = request->prev;
}

static void slot_link(struct sh_requests *table, uint32_t index, struct sh_conn *conn)
{
    struct sh_request_slot *slot = slot_at(table, index);
    slot->prev = SH_NO_SLOT;
    slot->next = conn->slots_first;
    if (slot->next != SH_NO_SLOT)
        slot_at(table, slot->next)->prev = index;
    conn->slots_first = index;
}

static void slot_unlink(struct sh_requests *table, uint32_t index, struct sh_conn *conn)
{
    const struct sh_request_slot *slot = slot_at(table, index);
    if (slot->prev != SH_NO_SLOT) {
        slot_at(table, slot->prev)->next = slot->next;
    } else {
        SH_ASSERT(conn->slots_first == index);
        conn->slots_first = slot->next;
    }
    if (slot->next != SH_NO_SLOT)
        slot_at(table, slot->next)->prev = slot->prev;
}

/* Appends to the slots that are the last to be used again. */
static void old_add(struct sh_requests *table, uint32_t index)
{
    struct sh_request_slot *slot = slot_at(table, index);
    SH_ASSERT(!slot->is_old && slot->request == NULL);
    slot->is_old = true;
    slot->old_next = SH_NO_SLOT;
    slot->old_prev = table->old_tail;
    if (table->old_tail == SH_NO_SLOT)
        table->old_head = index;
    else
        slot_at(table, table->old_tail)->old_next = index;
    table->old_tail = index;
}

static void old_remove(struct sh_requests *table, uint32_t index)
{
    struct sh_request_slot *slot = slot_at(table, index);
    SH_ASSERT(slot->is_old);
    slot->is_old = false;
    if (slot->old_prev == SH_NO_SLOT)
        table->old_head = slot->old_next;
    else
        slot_at(table, slot->old_prev)->old_next = slot->old_next;
    if (slot->old_next == SH_NO_SLOT)
        table->old_tail = slot->old_prev;
    else
        slot_at(table, slot->old_next)->old_prev = slot->old_prev;
}

/* Ends a use of the slot: answers to it are dropped from now on. */
static void slot_renew(struct sh_msg *msg, uint32_t index)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request_slot *slot = slot_at(table, index);
    if (slot->nid != 0)
        slot_unlink(table, index, sh_conn_find(msg, (shoal_nid){slot->nid}));
    if (slot->is_old)
        old_remove(table, index);
    slot->request = NULL;
    slot->nid = 0;
    slot->generation = slot->generation == GENERATION_MAX ? 1 : slot->generation + 1;
}

static void slot_free(struct sh_msg *msg, uint32_t index)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request_slot *slot = slot_at(table, index);
    slot_renew(msg, index);
    if (slot->is_marked) {
        old_add(table, index);
        return;
    }
    slot->next = table->free_head;
    table->free_head = index;
}

static void pending_add(struct sh_requests *table, int by)
{
    /* relaxed, under the lock: readers want a recent value */
    atomic_fetch_add_explicit(&table->pending, (uint32_t)by, memory_order_relaxed);
}

/* Unlinks a slot's request, which the caller then completes or gives up: nobody waits for the
 * answer any more. Lock held. */
static struct sh_request *slot_take(struct sh_msg *msg, uint32_t index)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request_slot *slot = slot_at(table, index);
    struct sh_request *request = slot->request;
    /* relaxed: closing looks at it when nothing is under way */
    atomic_fetch_sub_explicit(&sh_conn_find(msg, (shoal_nid){slot->nid})->awaited, 1,
                              memory_order_relaxed);
    slot->request = NULL;
    wheel_remove(table, request);
    request->deadline_ns = 0;
    request->id = 0;
    pending_add(table, -1);
    return request;
}

/* Gives a request up: its slot may be used again before the late answer has come. */
static struct sh_request *slot_give_up(struct sh_msg *msg, uint32_t index)
{
    struct sh_request *request = slot_take(msg, index);
    old_add(&msg->requests, index);
    return request;
}

/* Takes the slot that was given up first, if the table can't grow. SH_NO_SLOT: none. Lock held. */
static uint32_t old_take(struct sh_msg *msg)
{
    struct sh_requests *table = &msg->requests;
    uint32_t index = table->old_head;
    /* relaxed: changed under the lock */
    if (index == SH_NO_SLOT ||
        atomic_load_explicit(&table->count, memory_order_relaxed) < msg->config.requests_max)
        return SH_NO_SLOT;
    slot_renew(msg, index);
    slot_at(table, index)->is_marked = true;
    return index;
}

/* True when there was one to be used. */
static bool reserve(struct sh_msg *msg, uint32_t *id_out)
{
    struct sh_requests *table = &msg->requests;
    sh_spin_take(&table->lock);
    uint32_t index = table->free_head;
    if (index != SH_NO_SLOT)
        table->free_head = slot_at(table, index)->next;
    else
        index = old_take(msg);
    if (index != SH_NO_SLOT)
        *id_out = (uint32_t)slot_at(table, index)->generation << INDEX_BITS | index;
    sh_spin_release(&table->lock);
    return index != SH_NO_SLOT;
}

enum shoal_err sh_requests_reserve(struct sh_msg *msg, uint32_t *id_out)
{
    struct sh_requests *table = &msg->requests;
    while (!reserve(msg, id_out)) {
        /* relaxed: grow looks again, under the lock; this saves making a piece in vain */
        if (atomic_load_explicit(&table->count, memory_order_relaxed) == msg->config.requests_max)
            return SHOAL_ELIMIT;
        enum shoal_err err = grow(msg);
        if (err != SHOAL_OK)
            return err;
    }
    return SHOAL_OK;
}

void sh_requests_arm(struct sh_msg *msg, uint32_t id, struct sh_conn *conn, uint32_t generation,
                     struct sh_request *request)
{
    struct sh_requests *table = &msg->requests;
    uint64_t timeout = request->timeout_ns ? request->timeout_ns : msg->config.request_timeout_ns;
    if (request->deadline_ns == 0)
        request->deadline_ns = sh_now(&msg->config.env.clock) + timeout;
    request->to = conn->nid;
    request->id = id;
    request->answering = NULL;
    sh_spin_take(&table->lock);
    /* acquire: sh_conn_lost raises the generation before it fails, under this lock, what it finds
     * in the table; so either it finds this request or we see that it was there. */
    bool is_late = atomic_load_explicit(&conn->generation, memory_order_acquire) != generation;
    struct sh_request_slot *slot = slot_at(table, id & INDEX_MASK);
    SH_ASSERT(slot->nid == 0 && slot->request == NULL);
    /* The message of a late one is gone: no answer to it will come. */
    slot->nid = is_late ? 0 : conn->nid.v;
    if (!is_late) {
        slot_link(table, id & INDEX_MASK, conn);
        /* relaxed: published by the message's end */
        atomic_fetch_add_explicit(&conn->awaited, 1, memory_order_relaxed);
    }
    /* The wheel does not look at earlier ticks again before it has gone round. */
    uint64_t soonest_ns = table->wheel_tick * SH_WHEEL_TICK_NS;
    if (request->deadline_ns < soonest_ns)
        request->deadline_ns = soonest_ns;
    if (is_late) {
        request->next = atomic_load_explicit(&table->late, memory_order_relaxed);
        atomic_store_explicit(&table->late, request, memory_order_relaxed);
    } else {
        slot->request = request;
        wheel_add(table, request);
    }
    pending_add(table, 1);
    sh_spin_release(&table->lock);
}

void sh_requests_free(struct sh_msg *msg, uint32_t id)
{
    struct sh_requests *table = &msg->requests;
    sh_spin_take(&table->lock);
    slot_free(msg, id & INDEX_MASK);
    sh_spin_release(&table->lock);
}

/* The slot that an ID names, if it is still meant. Lock held. */
static struct sh_request_slot *slot_of(const struct sh_msg *msg, uint32_t id)
{
    uint32_t index = id & INDEX_MASK;
    /* relaxed: changed under the lock */
    if (index >= atomic_load_explicit(&msg->requests.count, memory_order_relaxed))
        return NULL;
    struct sh_request_slot *slot = slot_at(&msg->requests, index);
    return slot->generation == id >> INDEX_BITS ? slot : NULL;
}

/* Frees the slot of a request that was armed too late, which may be used again. Lock held. */
static void late_free(struct sh_msg *msg, struct sh_request *request)
{
    pending_add(&msg->requests, -1);
    slot_free(msg, request->id & INDEX_MASK);
    request->deadline_ns = 0;
    request->id = 0;
}

/* Takes a request out of those that were armed too late, if it is among them. Lock held. */
static bool late_remove(struct sh_msg *msg, struct sh_request *request)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request *first = atomic_load_explicit(&table->late, memory_order_relaxed);
    if (first == request) {
        atomic_store_explicit(&table->late, request->next, memory_order_relaxed);
        late_free(msg, request);
        return true;
    }
    for (struct sh_request *at = first; at; at = at->next) {
        if (at->next == request) {
            at->next = request->next;
            late_free(msg, request);
            return true;
        }
    }
    return false;
}

/* The request that is being written for, if any. Lock held. */
static const struct sh_request *feeding_of(const struct sh_requests *table)
{
    /* acquire: what was written before it was cleared; pairs as in feed_await */
    return atomic_load_explicit(&table->feeding, memory_order_acquire);
}

/* Waits until the transport step does not write for a request any more that has been taken out of
 * the table, and that was feeding_of under the lock. It can't begin again with that one. */
static void feed_await(const struct sh_requests *table, const struct sh_request *request)
{
    unsigned spins = 0;
    /* acquire: its writes come before what the caller does with the memory; pairs with the release
     * in sh_requests_answer_feed */
    while (atomic_load_explicit(&table->feeding, memory_order_acquire) == request)
        sh_spin_wait(&spins); /* a copy of at most 256 KiB, what one pull takes */
}

bool sh_msg_cancel(struct sh_msg *msg, struct sh_request *request)
{
    struct sh_requests *table = &msg->requests;
    sh_spin_take(&table->lock);
    struct sh_request_slot *slot = request->id ? slot_of(msg, request->id) : NULL;
    bool is_there = slot && slot->request == request;
    if (is_there)
        (void)slot_give_up(msg, request->id & INDEX_MASK);
    else
        is_there = late_remove(msg, request);
    bool is_fed = is_there && feeding_of(table) == request;
    sh_spin_release(&table->lock);
    if (is_fed)
        feed_await(table, request);
    return is_there;
}

uint32_t sh_msg_requests_pending(const struct sh_msg *msg)
{
    return atomic_load_explicit(&msg->requests.pending, memory_order_relaxed);
}

static void complete(struct sh_request *request, enum shoal_err err, struct sh_bytes payload)
{
    struct sh_reader reader = sh_reader_make(payload.at ? payload : sh_bytes_text(""));
    request->done(request, err, &reader);
}

/* The error in an error answer; its text is left in *payload. */
static enum shoal_err error_read(struct sh_bytes *payload)
{
    struct sh_reader r = sh_reader_make(*payload);
    enum shoal_err err = (enum shoal_err)sh_get16(&r);
    *payload = sh_get_text(&r);
    return sh_reader_done(&r) && err != SHOAL_OK ? err : SHOAL_EPROTO;
}

/* A slot's answer has come whole: frees the slot and returns the request that waited for it; NULL:
 * it was given up. Lock held. */
static struct sh_request *answered(struct sh_msg *msg, const struct sh_request_slot *slot,
                                   uint32_t id)
{
    struct sh_request *request = NULL;
    if (slot->request)
        request = slot_take(msg, id & INDEX_MASK);
    slot_free(msg, id & INDEX_MASK);
    return request;
}

void sh_requests_answer(struct sh_msg *msg, shoal_nid from, uint32_t id, enum sh_kind kind,
                        struct sh_bytes payload)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request *request = NULL;
    sh_spin_take(&table->lock);
    struct sh_request_slot *slot = slot_of(msg, id);
    /* Of two answers to one request, which no honest node sends, the first to begin counts: the
     * object may hold half of it, and no description expects that. */
    if (slot && slot->nid == from.v && !(slot->request && slot->request->answering))
        request = answered(msg, slot, id);
    sh_spin_release(&table->lock);
    if (!request) {
        sh_count(&msg->dropped, 1);
        return;
    }
    enum shoal_err err = kind == SH_KIND_ERROR ? error_read(&payload) : SHOAL_OK;
    if (request->describe && err == SHOAL_OK) {
        /* Taken out of the table: nobody can cancel it any more. */
        struct sh_codec codec = sh_codec_reader(payload.size);
        err = sh_codec_read(&codec, request->describe, request->object, payload);
        payload = sh_bytes_text("");
    }
    complete(request, err, payload);
}

/* The slot of an answer that comes in pieces, if its request still waits for this one. Lock held.
 */
static struct sh_request_slot *slot_answering(struct sh_msg *msg, shoal_nid from,
                                              const struct sh_partial *partial)
{
    struct sh_request_slot *slot = partial->request ? slot_of(msg, partial->id) : NULL;
    bool is_awaited = slot && slot->nid == from.v && slot->request == partial->request &&
                      slot->request->answering == partial;
    return is_awaited ? slot : NULL;
}

bool sh_requests_answer_begin(struct sh_msg *msg, shoal_nid from, struct sh_partial *partial)
{
    struct sh_requests *table = &msg->requests;
    bool has_description = true;
    sh_spin_take(&table->lock);
    const struct sh_request_slot *slot = slot_of(msg, partial->id);
    struct sh_request *request = slot && slot->nid == from.v ? slot->request : NULL;
    if (request)
        has_description = request->describe != NULL;
    if (request && has_description && !request->answering) {
        request->answering = partial;
        partial->request = request;
    }
    sh_spin_release(&table->lock);
    return has_description;
}

void sh_requests_answer_feed(struct sh_msg *msg, shoal_nid from, struct sh_partial *partial,
                             struct sh_bytes bytes)
{
    struct sh_requests *table = &msg->requests;
    if (!partial->request || partial->err != SHOAL_OK)
        return;
    sh_codec_describe describe = NULL;
    void *object = NULL;
    sh_spin_take(&table->lock);
    const struct sh_request_slot *slot = slot_answering(msg, from, partial);
    if (slot) {
        describe = slot->request->describe;
        object = slot->request->object;
        /* relaxed, under the lock: who cancels takes it too */
        atomic_store_explicit(&table->feeding, slot->request, memory_order_relaxed);
    } else {
        partial->request = NULL; /* given up: it will not be looked for again */
    }
    sh_spin_release(&table->lock);
    if (!describe)
        return;
    partial->err = sh_codec_read(&partial->codec, describe, object, bytes);
    /* release: what was written; pairs with the acquire in feed_await */
    atomic_store_explicit(&table->feeding, NULL, memory_order_release);
}

void sh_requests_answer_end(struct sh_msg *msg, shoal_nid from, struct sh_partial *partial)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request *request = NULL;
    sh_spin_take(&table->lock);
    struct sh_request_slot *slot = slot_of(msg, partial->id);
    bool is_ours = slot && slot->nid == from.v;
    if (is_ours && (!slot->request || slot_answering(msg, from, partial)))
        request = answered(msg, slot, partial->id);
    sh_spin_release(&table->lock);
    if (request)
        complete(request, partial->err, sh_bytes_text(""));
    else
        sh_count(&msg->dropped, 1);
}

static void complete_all(struct sh_request *list, enum shoal_err err)
{
    while (list) {
        struct sh_request *next = list->next;
        complete(list, err, (struct sh_bytes){NULL, 0});
        list = next;
    }
}

void sh_requests_fail(struct sh_msg *msg, struct sh_conn *conn, enum shoal_err err)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request *failed = NULL;
    sh_spin_take(&table->lock);
    while (conn->slots_first != SH_NO_SLOT) {
        uint32_t index = conn->slots_first;
        if (slot_at(table, index)->request) {
            struct sh_request *request = slot_take(msg, index);
            request->next = failed;
            failed = request;
        }
        slot_free(msg, index);
    }
    sh_spin_release(&table->lock);
    complete_all(failed, err);
}

unsigned sh_msg_cancel_node(struct sh_msg *msg, shoal_nid nid)
{
    struct sh_requests *table = &msg->requests;
    struct sh_request *canceled = NULL;
    const struct sh_request *fed = NULL;
    unsigned cancels = 0;
    const struct sh_conn *conn = sh_conn_find(msg, nid);
    if (!conn)
        return 0;
    sh_spin_take(&table->lock);
    for (uint32_t i = conn->slots_first; i != SH_NO_SLOT; i = slot_at(table, i)->next) {
        if (slot_at(table, i)->request == NULL)
            continue;
        struct sh_request *request = slot_give_up(msg, i);
        request->next = canceled;
        canceled = request;
        cancels++;
        if (feeding_of(table) == request)
            fed = request;
    }
    sh_spin_release(&table->lock);
    if (fed)
        feed_await(table, fed);
    complete_all(canceled, SHOAL_ECANCELED);
    return cancels;
}

/* Takes the requests of one tick whose time is over. Lock held. */
static struct sh_request *expired_in(struct sh_msg *msg, uint64_t tick, uint64_t now_ns,
                                     struct sh_request *expired)
{
    struct sh_request *request = msg->requests.wheel[tick % SH_WHEEL_SLOTS];
    while (request) {
        struct sh_request *next = request->next;
        if (request->deadline_ns <= now_ns) {
            (void)slot_give_up(msg, request->id & INDEX_MASK);
            request->next = expired;
            expired = request;
        }
        request = next;
    }
    return expired;
}

unsigned sh_requests_late(struct sh_msg *msg, enum shoal_err err)
{
    struct sh_requests *table = &msg->requests;
    unsigned count = 0;
    /* relaxed: the message's end, which wakes the transport step, has published it */
    if (!atomic_load_explicit(&table->late, memory_order_relaxed))
        return 0;
    sh_spin_take(&table->lock);
    struct sh_request *late = atomic_load_explicit(&table->late, memory_order_relaxed);
    atomic_store_explicit(&table->late, NULL, memory_order_relaxed);
    for (struct sh_request *request = late; request; request = request->next) {
        late_free(msg, request);
        count++;
    }
    sh_spin_release(&table->lock);
    complete_all(late, err);
    return count;
}

unsigned sh_requests_expire(struct sh_msg *msg, uint64_t now_ns)
{
    struct sh_requests *table = &msg->requests;
    uint64_t tick_now = now_ns / SH_WHEEL_TICK_NS;
    if (tick_now <= table->wheel_tick)
        return 0;
    uint64_t first = table->wheel_tick;
    if (tick_now - first >= SH_WHEEL_SLOTS)
        first = tick_now - SH_WHEEL_SLOTS + 1;
    struct sh_request *expired = NULL;
    sh_spin_take(&table->lock);
    for (uint64_t tick = first; tick <= tick_now; tick++)
        expired = expired_in(msg, tick, now_ns, expired);
    table->wheel_tick = tick_now;
    sh_spin_release(&table->lock);
    unsigned count = 0;
    for (struct sh_request *request = expired; request; request = request->next)
        count++;
    sh_count(&msg->timed_out, count);
    complete_all(expired, SHOAL_ETIMEOUT);
    return count;
}

uint64_t sh_requests_due(const struct sh_msg *msg)
{
    if (sh_msg_requests_pending(msg) == 0)
        return SH_NEVER;
    return (msg->requests.wheel_tick + 1) * SH_WHEEL_TICK_NS;
}
