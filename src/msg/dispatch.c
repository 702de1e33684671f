/* From a received message to whoever it is for: a handler in the parse step, a handler step, or the
 * request that it answers. */
#include <stdlib.h>

#include "msg/msg_int.h"

enum shoal_err sh_dispatch_init(struct sh_msg *msg)
{
    msg->works = calloc(SH_WORKS_MAX, sizeof *msg->works);
    if (!msg->works)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_queue_create(SH_WORKS_MAX, &msg->works_free);
    if (err == SHOAL_OK)
        err = sh_queue_create(SH_WORKS_MAX, &msg->works_ready);
    for (size_t i = 0; err == SHOAL_OK && i < SH_WORKS_MAX; i++) {
        bool fits = sh_queue_push(msg->works_free, &msg->works[i]);
        SH_ASSERT(fits);
    }
    return err;
}

/* A ring has as many places as there are works, so each fits. It is refused all the same while the
 * thread that took the place's last one has been stopped before it could say so; that thread goes
 * on by itself. */
static void put_back(struct sh_queue *ring, struct sh_work *work)
{
    unsigned spins = 0;
    while (!sh_queue_push(ring, work))
        sh_spin_wait(&spins);
}

bool sh_works_have_room(const struct sh_msg *msg, struct sh_conn *conn, uint32_t spare)
{
    /* acquire: pairs with work_free, where the count falls before the work is there again */
    uint32_t taken = atomic_load_explicit(&conn->works, memory_order_acquire);
    return taken + spare < sh_queue_count(msg->works_free) && !sh_blocks_are_many(msg);
}

/* Gives back a work that ran, or was a turn. */
static void work_free(struct sh_msg *msg, struct sh_work *work)
{
    if (work->block)
        sh_block_release(msg, work->block);
    /* release: pairs with sh_works_have_room */
    uint32_t before = atomic_fetch_sub_explicit(&work->conn->works, 1, memory_order_release);
    SH_ASSERT(before > 0);
    work->block = NULL;
    work->next = NULL;
    put_back(msg->works_free, work);
    /* acq_rel, and an exchange of nothing for a load: either it sees the flag, or the exchange in
     * sh_streams_resume comes after it and sees what was pushed */
    if (atomic_fetch_add_explicit(&msg->works_wanted, 0, memory_order_acq_rel))
        msg->config.wake_transport(msg->config.arg);
}

/* Gives back a work that will not run, and its object to whom it belongs. */
static void work_drop(struct sh_msg *msg, struct sh_work *work, enum shoal_err err)
{
    if (work->object) {
        const struct sh_handler_entry *entry = sh_handler_of(msg, work->in.type);
        entry->done(entry->arg, &work->in, work->object, err);
    } else if (work->in.goes_on) {
        work->in.is_ending = true;
        sh_message_run(sh_handler_of(msg, work->in.type), work->conn, &work->in);
    }
    work_free(msg, work);
}

void sh_works_drop(struct sh_msg *msg, struct sh_work *list)
{
    while (list) {
        struct sh_work *next = list->next;
        work_drop(msg, list, SHOAL_ECONNLOST);
        list = next;
    }
}

void sh_dispatch_destroy(struct sh_msg *msg)
{
    struct sh_work *work;
    for (unsigned i = 0; i < msg->handler_steps_count; i++) {
        if (msg->handler_steps[i].unfinished)
            work_drop(msg, msg->handler_steps[i].unfinished, SHOAL_ESTOPPED);
    }
    while (msg->works_ready && (work = sh_queue_pop(msg->works_ready)))
        work_drop(msg, work, SHOAL_ESTOPPED);
    sh_queue_destroy(msg->works_free);
    sh_queue_destroy(msg->works_ready);
    free(msg->works);
    for (size_t i = 0; i < sizeof msg->handlers / sizeof msg->handlers[0]; i++)
        free(msg->handlers[i]);
}

struct sh_handler_entry *sh_handler_add(struct sh_msg *msg, sh_msg_type type)
{
    SH_ASSERT(type < SH_MSG_TYPES && type >> 8 != 0);
    struct sh_handler_entry **module = &msg->handlers[type >> 8];
    if (!*module)
        *module = calloc(256, sizeof **module);
    SH_ASSERT(*module != NULL); /* start-up: there is nothing to fall back on */
    return &(*module)[type & 0xFF];
}

void sh_msg_handler_set(struct sh_msg *msg, sh_msg_type type, enum sh_msg_mode mode,
                        sh_msg_handler handler, void *arg)
{
    SH_ASSERT(handler != NULL);
    *sh_handler_add(msg, type) =
        (struct sh_handler_entry){.handler = handler, .arg = arg, .mode = mode};
}

void sh_msg_handlers_drop(struct sh_msg *msg, const void *arg)
{
    for (size_t i = 0; i < sizeof msg->handlers / sizeof msg->handlers[0]; i++) {
        for (unsigned k = 0; msg->handlers[i] && k < 256; k++) {
            if (msg->handlers[i][k].arg == arg)
                msg->handlers[i][k] = (struct sh_handler_entry){0};
        }
    }
}

static struct sh_handler_entry *handler_of(const struct sh_msg *msg, sh_msg_type type)
{
    struct sh_handler_entry *module = msg->handlers[type >> 8];
    struct sh_handler_entry *entry = module ? &module[type & 0xFF] : NULL;
    return entry && (entry->handler || entry->describe) ? entry : NULL;
}

struct sh_handler_entry *sh_handler_of(const struct sh_msg *msg, sh_msg_type type)
{
    return handler_of(msg, type);
}

void sh_msg_prefetch_set(struct sh_msg *msg, sh_msg_type type, sh_msg_prefetch prefetch)
{
    struct sh_handler_entry *entry = handler_of(msg, type);
    SH_ASSERT(entry && entry->handler && entry->mode == SH_MSG_INLINE);
    entry->prefetch = prefetch;
}

void sh_dispatch_prefetch(struct sh_msg *msg, sh_msg_type type, struct sh_bytes payload,
                          unsigned round)
{
    struct sh_handler_entry *entry = handler_of(msg, type);
    if (entry && entry->prefetch)
        entry->prefetch(entry->arg, payload, round);
}

/* Puts an ordered message behind those of its connection; true: it gets the turn that is to run
 * them. */
static bool ordered_append(struct sh_conn *conn, struct sh_work *work)
{
    sh_spin_take(&conn->lock);
    if (conn->ordered_last)
        conn->ordered_last->next = work;
    else
        conn->ordered_first = work;
    conn->ordered_last = work;
    bool is_running = conn->ordered_running;
    conn->ordered_running = true;
    sh_spin_release(&conn->lock);
    return !is_running;
}

bool sh_work_add(struct sh_msg *msg, const struct sh_work *what, enum sh_msg_mode mode)
{
    struct sh_conn *conn = what->conn;
    if (!sh_works_have_room(msg, conn, 0))
        return false;
    struct sh_work *work = sh_queue_pop(msg->works_free);
    struct sh_work *turn = NULL;
    if (!work)
        return false;
    if (mode == SH_MSG_ORDERED && !(turn = sh_queue_pop(msg->works_free))) {
        put_back(msg->works_free, work);
        return false;
    }
    /* relaxed: this step looks at it, and who takes from it has it from here through a ring */
    atomic_fetch_add_explicit(&conn->works, turn ? 2 : 1, memory_order_relaxed);
    *work = *what;
    if (work->block) {
        sh_block_share(work->block);
        work->bytes = SH_MSG_HEADER_BYTES + sh_reader_left(&work->in.payload);
        sh_flow_handed_on(&conn->flow, work->bytes);
    }
    struct sh_work *ready = work;
    if (mode == SH_MSG_ORDERED) {
        /* `turn` stands for the connection's turn in the handler steps: one at a time. */
        *turn = (struct sh_work){.conn = conn, .is_turn = true};
        ready = ordered_append(conn, work) ? turn : NULL;
        if (!ready)
            work_free(msg, turn);
    }
    if (ready) {
        put_back(msg->works_ready, ready);
        sh_handlers_wake(msg);
    }
    return true;
}

static void no_handler(struct sh_msg *msg, const struct sh_msg_in *in)
{
    SH_DEBUG("msg", "message without a handler", SH_U64("type", in->type),
             SH_U64("nid", in->reply_to.nid.v));
    sh_count(&msg->dropped, 1);
    sh_msg_reply_error(msg, in->reply_to, in->type, SHOAL_ENOTYPE, NULL);
}

struct sh_msg_in sh_msg_in_make(struct sh_msg *msg, const struct sh_conn *conn, enum sh_kind kind,
                                sh_msg_type type, uint32_t id, struct sh_bytes payload)
{
    return (struct sh_msg_in){
        .msg = msg,
        .type = type,
        .is_request = kind == SH_KIND_REQUEST,
        .reply_to = {conn->nid, kind == SH_KIND_REQUEST ? id : 0,
                     /* relaxed: only the transport step changes it, which we are in */
                     atomic_load_explicit(&conn->generation, memory_order_relaxed)},
        .payload = sh_reader_make(payload),
    };
}

void sh_message_run(const struct sh_handler_entry *entry, const struct sh_conn *conn,
                    struct sh_msg_in *in)
{
    if (!in->goes_on && entry->is_leased && sh_lease_refuses(in->msg, conn, in))
        return;
    if (entry->describe)
        sh_object_receive(entry, in);
    else
        entry->handler(entry->arg, in);
}

enum sh_dispatched sh_dispatch(struct sh_msg *msg, struct sh_stream *stream, enum sh_kind kind,
                               sh_msg_type type, uint32_t id, struct sh_bytes payload)
{
    struct sh_conn *conn = stream->conn;
    if (kind == SH_KIND_ANSWER || kind == SH_KIND_ERROR) {
        sh_requests_answer(msg, conn->nid, id, kind, payload);
        sh_message_done(msg, &msg->part_times[SH_MSG_PART_ANSWER]);
        return SH_DISPATCHED;
    }
    if (kind == SH_KIND_MESSAGE && type >> 8 == 0) {
        sh_control_receive(msg, conn, (enum sh_control)type, payload);
        return SH_DISPATCHED;
    }
    sh_close_used(msg, conn);
    struct sh_msg_in in = sh_msg_in_make(msg, conn, kind, type, id, payload);
    struct sh_handler_entry *entry = handler_of(msg, type);
    if (!entry) {
        no_handler(msg, &in);
    } else if (entry->mode == SH_MSG_INLINE) {
        sh_message_run(entry, conn, &in);
        sh_message_done(msg, &entry->time);
        if (in.goes_on)
            sh_held_add(msg, stream, entry, &in);
    } else {
        struct sh_work work = {.block = stream->block, .conn = conn, .in = in};
        if (!sh_work_add(msg, &work, entry->mode))
            return SH_DISPATCH_LATER;
    }
    return SH_DISPATCHED;
}

/* True: the handler goes on. */
static bool message_work_run(struct sh_msg *msg, struct sh_work *work)
{
    struct sh_handler_entry *entry = handler_of(msg, work->in.type);
    SH_ASSERT(entry != NULL);
    uint64_t began = sh_step_ticks();
    if (work->object) {
        bool is_late = entry->is_leased && sh_msg_is_fenced(msg);
        entry->done(entry->arg, &work->in, work->object, is_late ? SHOAL_EFENCED : work->err);
        sh_step_time_add(&entry->time, began, sh_step_ticks());
        work_free(msg, work);
        return false;
    }
    struct sh_conn *conn = work->conn;
    uint32_t generation = work->in.reply_to.generation;
    uint64_t bytes = work->bytes;
    sh_message_run(entry, conn, &work->in);
    sh_step_time_add(&entry->time, began, sh_step_ticks());
    if (work->in.goes_on) {
        SH_ASSERT(entry->mode == SH_MSG_POOLED);
        return true;
    }
    work_free(msg, work);
    if (sh_flow_finished(&conn->flow, generation, bytes))
        sh_conn_mark_dirty(msg, conn);
    return false;
}

/* Runs the oldest ordered message of the turn's connection, and passes the turn on. */
static void turn_run(struct sh_msg *msg, struct sh_work *turn)
{
    struct sh_conn *conn = turn->conn;
    sh_spin_take(&conn->lock);
    struct sh_work *work = conn->ordered_first;
    if (work) {
        conn->ordered_first = work->next;
        if (!work->next)
            conn->ordered_last = NULL;
    } else {
        conn->ordered_running = false;
    }
    sh_spin_release(&conn->lock);
    if (!work) {
        work_free(msg, turn);
        return;
    }
    (void)message_work_run(msg, work);
    put_back(msg->works_ready, turn);
}

bool sh_work_run(struct sh_msg *msg, struct sh_work *work)
{
    if (!work->is_turn)
        return message_work_run(msg, work);
    turn_run(msg, work);
    return false;
}
