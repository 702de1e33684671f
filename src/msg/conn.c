/* Connections: made on first use, opened by the transport step, lost as a whole. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "msg/msg_int.h"

struct sh_conn *sh_conn_find(struct sh_msg *msg, shoal_nid nid)
{
    /* acquire: the conn's first contents; pairs with the release in sh_conn_make */
    return atomic_load_explicit(&msg->conns[nid.v], memory_order_acquire);
}

/* The same as sh_conn_make, under the table's lock. */
static struct sh_conn *make_locked(struct sh_msg *msg, shoal_nid nid)
{
    sh_lock_assert_held(&msg->table_lock);
    struct sh_conn *conn = sh_conn_find(msg, nid);
    if (conn)
        return conn;
    conn = aligned_alloc(_Alignof(struct sh_conn), sizeof *conn);
    if (!conn)
        return NULL;
    memset(conn, 0, sizeof *conn);
    sh_outring_init(&conn->out, &msg->unmaps);
    conn->slots_first = SH_NO_SLOT;
    conn->nid = nid;
    sh_spin_init(&conn->lock, SH_LOCK_MSG_CONN);
    atomic_init(&conn->generation, 1);
    sh_flow_reset(&conn->flow, 1);
    /* relaxed: under the table's lock */
    conn->made_next = atomic_load_explicit(&msg->made, memory_order_relaxed);
    /* release, both: the fields above */
    atomic_store_explicit(&msg->made, conn, memory_order_release);
    atomic_store_explicit(&msg->conns[nid.v], conn, memory_order_release);
    return conn;
}

struct sh_conn *sh_conn_make(struct sh_msg *msg, shoal_nid nid)
{
    struct sh_conn *conn = sh_conn_find(msg, nid);
    if (conn)
        return conn;
    sh_lock_take(&msg->table_lock);
    conn = make_locked(msg, nid);
    sh_lock_release(&msg->table_lock);
    return conn;
}

static uint32_t hash_of(const char *address)
{
    return (uint32_t)sh_hash64(sh_bytes_text(address), 0) | 1;
}

/* Says where a connection leads. Under its lock. */
static void address_set(struct sh_msg *msg, struct sh_conn *conn, const char *address)
{
    memcpy(conn->address, address, strlen(address) + 1);
    conn->is_known = true;
    if (conn->nid.v >= SH_MSG_ALIAS_MIN)
        /* relaxed: whoever reads it takes the lock before the address itself */
        atomic_store_explicit(&msg->alias_hashes[conn->nid.v - SH_MSG_ALIAS_MIN], hash_of(address),
                              memory_order_relaxed);
}

enum shoal_err sh_msg_node_set(struct sh_msg *msg, shoal_nid nid, const char *address)
{
    SH_ASSERT(nid.v != 0 && nid.v <= SH_MSG_ALIAS_MAX);
    size_t size = strlen(address) + 1;
    if (size < 2 || size > SH_MSG_ADDRESS_MAX)
        return SHOAL_EADDRESS;
    struct sh_conn *conn = sh_conn_make(msg, nid);
    if (!conn)
        return SHOAL_ENOMEM;
    sh_spin_take(&conn->lock);
    bool is_changed = conn->is_known && strcmp(conn->address, address) != 0;
    address_set(msg, conn, address);
    sh_spin_release(&conn->lock);
    if (is_changed) {
        /* release: pairs with the exchange in sh_conn_service */
        atomic_store_explicit(&conn->close_wanted, true, memory_order_release);
        sh_conn_mark_dirty(msg, conn);
    }
    return SHOAL_OK;
}

void sh_msg_node_instance_set(struct sh_msg *msg, shoal_nid nid, uint64_t instance)
{
    SH_ASSERT(nid.v != 0 && nid.v <= SH_MSG_NID_MAX);
    struct sh_conn *conn = sh_conn_make(msg, nid);
    if (!conn)
        return; /* out of memory: nothing can be sent to it either */
    sh_spin_take(&conn->lock);
    conn->expected = instance;
    bool is_other = instance && conn->met && conn->met != instance && !sh_sole_is(msg, conn->nid);
    conn->met = is_other ? 0 : conn->met;
    sh_spin_release(&conn->lock);
    if (is_other) {
        /* release: pairs with the exchange in sh_conn_service */
        atomic_store_explicit(&conn->close_wanted, true, memory_order_release);
        sh_conn_mark_dirty(msg, conn);
    }
}

bool sh_conn_meet(struct sh_msg *msg, struct sh_conn *conn, uint64_t instance, bool is_dialled)
{
    if (sh_sole_is(msg, conn->nid))
        return sh_sole_meet(msg, conn, instance);
    sh_spin_take(&conn->lock);
    bool is_later = !is_dialled && instance >> 32 > conn->expected >> 32;
    bool is_it = !conn->expected || conn->expected == instance || is_later;
    if (is_it)
        conn->met = instance;
    sh_spin_release(&conn->lock);
    return is_it;
}

void sh_msg_node_remove(struct sh_msg *msg, shoal_nid nid)
{
    struct sh_conn *conn = sh_conn_find(msg, nid);
    if (!conn)
        return;
    sh_spin_take(&conn->lock);
    conn->is_known = false;
    sh_spin_release(&conn->lock);
    atomic_store_explicit(&conn->close_wanted, true, memory_order_release);
    sh_conn_mark_dirty(msg, conn);
}

bool sh_msg_was_refused(struct sh_msg *msg, shoal_nid nid)
{
    struct sh_conn *conn = sh_conn_find(msg, nid);
    return conn && conn->was_refused;
}

bool sh_msg_is_connected(struct sh_msg *msg, shoal_nid nid)
{
    struct sh_conn *conn = sh_conn_find(msg, nid);
    return conn && conn->sends_on;
}

/* An alias that names nobody now, in turn, so that a fresh one is not soon mistaken for the last.
 * 0: none left. */
static uint16_t alias_unused(struct sh_msg *msg)
{
    sh_lock_assert_held(&msg->table_lock);
    const unsigned count = SH_MSG_ALIAS_MAX - SH_MSG_ALIAS_MIN + 1;
    for (unsigned i = 0; i < count; i++) {
        unsigned alias = SH_MSG_ALIAS_MIN + (msg->alias_next + i) % count;
        struct sh_conn *conn = sh_conn_find(msg, (shoal_nid){(uint16_t)alias});
        bool is_used = false;
        if (conn) {
            sh_spin_take(&conn->lock);
            /* relaxed: it grows before the state becomes IDLE */
            is_used = conn->is_known || conn->state != SH_CONN_IDLE ||
                      atomic_load_explicit(&conn->lingering, memory_order_relaxed) > 0;
            sh_spin_release(&conn->lock);
        }
        if (!is_used) {
            msg->alias_next = (uint16_t)((alias + 1 - SH_MSG_ALIAS_MIN) % count);
            return (uint16_t)alias;
        }
    }
    return 0;
}

/* The alias that already stands for an address, or 0. There are thousands, so their hashes lie
 * together, and the locks of other addresses' connections are left alone. */
static uint16_t alias_of(struct sh_msg *msg, const char *address)
{
    uint32_t hash = hash_of(address);
    for (unsigned alias = SH_MSG_ALIAS_MIN; alias <= SH_MSG_ALIAS_MAX; alias++) {
        /* relaxed: a hint; the address is read under the lock */
        if (atomic_load_explicit(&msg->alias_hashes[alias - SH_MSG_ALIAS_MIN],
                                 memory_order_relaxed) != hash)
            continue;
        struct sh_conn *conn = sh_conn_find(msg, (shoal_nid){(uint16_t)alias});
        if (!conn)
            continue;
        sh_spin_take(&conn->lock);
        bool is_it = conn->is_known && strcmp(conn->address, address) == 0;
        sh_spin_release(&conn->lock);
        if (is_it)
            return (uint16_t)alias;
    }
    return 0;
}

/* Takes an alias that names nobody: for an address, or (NULL) for a client that was accepted. Under
 * the table's lock, so that nobody else takes it. */
static enum shoal_err alias_take(struct sh_msg *msg, const char *address, struct sh_conn **conn_out)
{
    uint16_t alias = alias_unused(msg);
    if (!alias)
        return SHOAL_ELIMIT;
    struct sh_conn *conn = make_locked(msg, (shoal_nid){alias});
    if (!conn)
        return SHOAL_ENOMEM;
    sh_spin_take(&conn->lock);
    if (address)
        address_set(msg, conn, address);
    else
        conn->state = SH_CONN_OPENING;
    sh_spin_release(&conn->lock);
    *conn_out = conn;
    return SHOAL_OK;
}

enum shoal_err sh_msg_contact(struct sh_msg *msg, const char *address, shoal_nid *alias_out)
{
    size_t size = strlen(address) + 1;
    if (size < 2 || size > SH_MSG_ADDRESS_MAX)
        return SHOAL_EADDRESS;
    sh_lock_take(&msg->table_lock);
    uint16_t alias = alias_of(msg, address);
    struct sh_conn *conn = NULL;
    enum shoal_err err = alias ? SHOAL_OK : alias_take(msg, address, &conn);
    sh_lock_release(&msg->table_lock);
    if (err == SHOAL_OK)
        *alias_out = alias ? (shoal_nid){alias} : conn->nid;
    return err;
}

static void event(struct sh_msg *msg, enum sh_msg_event_kind kind, shoal_nid nid,
                  shoal_nid real_nid, enum shoal_err err)
{
    struct sh_msg_event said = {kind, nid, real_nid, err};
    if (msg->config.on_event)
        msg->config.on_event(msg->config.arg, &said);
}

static struct sh_work *ordered_take_all(struct sh_conn *conn)
{
    struct sh_work *list = conn->ordered_first;
    conn->ordered_first = conn->ordered_last = NULL;
    return list;
}

void sh_conn_lost(struct sh_msg *msg, struct sh_conn *conn, enum shoal_err err)
{
    struct sh_stream *streams[2] = {conn->dialled, conn->accepted};
    conn->dialled = conn->accepted = conn->sends_on = NULL;
    conn->push_blocked = false;
    atomic_store_explicit(&conn->epoch_heard, 0, memory_order_relaxed);
    sh_beat_stop(msg, conn);
    sh_close_over(msg, conn);
    for (int i = 0; i < 2; i++) {
        if (streams[i]) {
            streams[i]->conn = NULL;
            sh_stream_drop(msg, streams[i], true);
        }
    }
    sh_spin_take(&conn->lock);
    bool was_open = conn->state == SH_CONN_OPEN;
    conn->state = SH_CONN_IDLE;
    sh_outring_drop(&conn->out);
    struct sh_room_waiter *waiters = conn->room_waiters;
    conn->room_waiters = NULL;
    struct sh_work *ordered = ordered_take_all(conn);
    struct sh_object_out *objects = sh_objects_take(conn);
    sh_late_drop(conn, &objects);
    sh_large_give_back(msg, conn);
    /* release: pairs with sh_requests_arm; what is in the table now is failed below */
    uint32_t before = atomic_fetch_add_explicit(&conn->generation, 1, memory_order_release);
    sh_flow_reset(&conn->flow, before + 1);
    sh_spin_release(&conn->lock);
    sh_works_drop(msg, ordered);
    sh_objects_fail(msg, objects, err);
    sh_room_waiters_complete(conn, waiters);
    if (was_open) {
        sh_sole_lost(msg, conn);
        sh_count(&msg->lost, 1);
        SH_DEBUG("msg", "connection lost", SH_U64("nid", conn->nid.v), SH_ERR(err));
    }
    /* ENOMEM would say of them that they were not done, but they may have been sent. */
    bool may_be_done = was_open && err == SHOAL_ENOMEM;
    sh_requests_fail(msg, conn, may_be_done ? SHOAL_ECONNLOST : err);
    event(msg, SH_MSG_LOST, conn->nid, SHOAL_NID_NONE, err);
}

void sh_conn_closed(struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    SH_ASSERT(!conn->late_first); /* it was idle, and what was owed would have kept it open */
    conn->state = SH_CONN_IDLE;
    sh_outring_drop(&conn->out);
    sh_large_give_back(msg, conn);
    struct sh_room_waiter *waiters = conn->room_waiters;
    conn->room_waiters = NULL;
    /* release: as in sh_conn_lost. Ordered works go on. */
    uint32_t before = atomic_fetch_add_explicit(&conn->generation, 1, memory_order_release);
    sh_flow_reset(&conn->flow, before + 1);
    sh_spin_release(&conn->lock);
    sh_room_waiters_complete(conn, waiters);
    sh_requests_fail(msg, conn, SHOAL_ECONNLOST); /* their slots: all were given up */
    SH_DEBUG("msg", "idle connection closed", SH_U64("nid", conn->nid.v));
    event(msg, SH_MSG_CLOSED, conn->nid, SHOAL_NID_NONE, SHOAL_OK);
}

static void overflow_log(struct sh_msg *msg, const struct sh_conn *conn, uint64_t now_ns)
{
    uint64_t left_out;
    if (sh_rate_allows(&msg->overflows, now_ns, &left_out))
        SH_WARN("msg", "connection limit reached: not opened", SH_U64("nid", conn->nid.v),
                SH_U64("connections_max", msg->config.connections_max),
                SH_U64("left_out", left_out));
}

/* Begins to open a stream to where the node is said to be. */
static void dial(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    char address[SH_MSG_ADDRESS_MAX];
    sh_spin_take(&conn->lock);
    memcpy(address, conn->address, sizeof address);
    bool is_known = conn->is_known;
    conn->state = SH_CONN_OPENING;
    sh_spin_release(&conn->lock);
    conn->was_refused = false;
    struct sh_wire *wire = msg->config.env.wire;
    sh_link link;
    enum shoal_err err = is_known ? SHOAL_OK : SHOAL_EUNREACHABLE;
    if (err == SHOAL_OK && msg->streams_count >= msg->config.connections_max) {
        err = SHOAL_ELIMIT;
        overflow_log(msg, conn, now_ns);
    }
    if (err == SHOAL_OK)
        err = wire->ops->open(wire, address, conn->nid.v, &link);
    struct sh_stream *stream = NULL;
    if (err == SHOAL_OK) {
        stream = sh_stream_add(msg, link, true, now_ns);
        if (!stream) {
            wire->ops->close(wire, link);
            err = SHOAL_ENOMEM;
        }
    }
    if (err != SHOAL_OK) {
        sh_conn_lost(msg, conn, err);
        return;
    }
    stream->conn = conn;
    conn->dialled = stream;
}

void sh_conn_service(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    /* acquire: the address or removal that made it wanted */
    if (atomic_exchange_explicit(&conn->close_wanted, false, memory_order_acquire) &&
        (conn->dialled || conn->accepted))
        sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
    sh_spin_take(&conn->lock);
    bool is_wanted = conn->state == SH_CONN_WANTED;
    sh_spin_release(&conn->lock);
    if (is_wanted && conn->dial_due_ns == 0 &&
        atomic_load_explicit(&conn->lingering, memory_order_relaxed) == 0) {
        /* First come, first served. */
        bool has_room = msg->streams_count < msg->config.connections_max && !msg->dials_first;
        if (!has_room && (sh_close_one(msg) || msg->closing_count > 0))
            sh_dial_wait(msg, conn, now_ns);
        else
            dial(msg, conn, now_ns);
    }
    if (conn->close_heard)
        sh_close_service(msg, conn);
    sh_control_flow(msg, conn);
    sh_epoch_tell(msg, conn, false);
    sh_out_flush(msg, conn);
}

void sh_conns_dial(struct sh_msg *msg, uint64_t now_ns)
{
    struct sh_conn *conn;
    while ((conn = sh_dial_next(msg, now_ns))) {
        sh_spin_take(&conn->lock);
        bool is_wanted = conn->state == SH_CONN_WANTED; /* or the other side was faster */
        sh_spin_release(&conn->lock);
        if (is_wanted)
            dial(msg, conn, now_ns);
    }
}

/* The connection that an accepted stream belongs to: its node's, or a fresh alias for a client. */
static struct sh_conn *conn_for_accepted(struct sh_msg *msg, shoal_nid real_nid)
{
    if (real_nid.v != 0)
        return sh_conn_make(msg, real_nid);
    struct sh_conn *conn = NULL;
    sh_lock_take(&msg->table_lock);
    enum shoal_err err = alias_take(msg, NULL, &conn);
    sh_lock_release(&msg->table_lock);
    return err == SHOAL_OK ? conn : NULL;
}

bool sh_conn_attach(struct sh_msg *msg, struct sh_stream *stream, shoal_nid real_nid)
{
    struct sh_conn *conn = stream->conn ? stream->conn : conn_for_accepted(msg, real_nid);
    if (!conn)
        return false;
    /* A second stream accepted from a node means that it has lost the first, and one that comes
     * after it agreed to close, that it has ended the connection: in good order or not. */
    if (!stream->is_dialled && (conn->accepted || conn->close_agreed))
        sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
    /* The other side begins anew: what it has not confirmed by now it may not have read. */
    if (!stream->is_dialled)
        sh_close_unconfirmed(msg, conn);
    stream->conn = conn;
    stream->state = SH_STREAM_READY;
    sh_stream_hello_over(msg, stream);
    if (stream->is_dialled)
        conn->dialled = stream;
    else
        conn->accepted = stream;
    bool is_first = conn->sends_on == NULL;
    if (is_first) {
        conn->sends_on = stream;
        conn->was_refused = false;
        conn->answers_allowed = conn->answers_due_ns = 0;
        sh_spin_take(&conn->lock);
        conn->state = SH_CONN_OPEN;
        if (stream->version >= 2)
            sh_flow_begin(&conn->flow);
        sh_spin_release(&conn->lock);
        sh_count(&msg->opened, 1);
        sh_count_alone(&conn->opened, 1);
        sh_beat_start(msg, conn, sh_now(&msg->config.env.clock));
        SH_DEBUG("msg", "connection open", SH_U64("nid", conn->nid.v),
                 SH_U64("real_nid", real_nid.v));
        conn->epoch_told = 0;
        sh_epoch_tell(msg, conn, true);
        event(msg, SH_MSG_UP, conn->nid, real_nid, SHOAL_OK);
        sh_out_flush(msg, conn);
    }
    return true;
}
