/* Answers and control messages that the outgoing ring can't take now, because others are in the
 * middle of their messages: the ring can't grow before they are through, or all its slots are
 * taken. Whoever answers must not wait for that, least of all the transport step. So such a message
 * is written into memory of its own, and the transport step moves it into the ring when it is
 * complete and the ring takes it.
 *
 * While there are some the ring is closed to all: further answers are late as well, and others find
 * it full, so that the order is kept. */
#include <stddef.h>
#include <stdlib.h>

#include "msg/msg_int.h"

enum { LATE_WRITING, LATE_COMPLETE, LATE_DROPPED };

struct sh_late {
    struct sh_late *next;
    struct sh_object_out *object; /* NULL, or: it is the header of that */
    _Atomic uint32_t state;
    uint32_t bytes;
    uint8_t data[];
};

bool sh_late_add(struct sh_conn *conn, uint64_t bytes, struct sh_object_out *object,
                 struct sh_outring_place *place_out)
{
    sh_spin_assert_held(&conn->lock);
    SH_ASSERT(bytes <= UINT32_MAX);
    struct sh_late *late = malloc(sizeof *late + bytes);
    if (!late)
        return false;
    late->next = NULL;
    late->object = object;
    late->bytes = (uint32_t)bytes;
    atomic_init(&late->state, LATE_WRITING);
    *(conn->late_last ? &conn->late_last->next : &conn->late_first) = late;
    conn->late_last = late;
    /* relaxed: under the lock; who looks without it looks again */
    atomic_fetch_add_explicit(&conn->late_bytes, bytes, memory_order_relaxed);
    sh_outring_close(&conn->out);
    *place_out = (struct sh_outring_place){.at = late->data, .slot = SH_LATE_SLOT};
    return true;
}

void sh_late_end(uint8_t *data)
{
    struct sh_late *late = (struct sh_late *)(void *)(data - offsetof(struct sh_late, data));
    /* acq_rel: what was written; pairs with move and with the exchange in sh_late_drop */
    if (atomic_exchange_explicit(&late->state, LATE_COMPLETE, memory_order_acq_rel) == LATE_DROPPED)
        free(late);
}

static struct sh_late *first_take(struct sh_conn *conn)
{
    struct sh_late *late = conn->late_first;
    conn->late_first = late->next;
    if (!late->next)
        conn->late_last = NULL;
    atomic_fetch_sub_explicit(&conn->late_bytes, late->bytes, memory_order_relaxed);
    return late;
}

/* Moves one into the ring; false: not yet. */
static bool move(const struct sh_msg *msg, struct sh_conn *conn, const struct sh_late *late)
{
    struct sh_outring *ring = &conn->out;
    struct sh_outring_place place;
    /* acquire: pairs with sh_late_end */
    if (atomic_load_explicit(&late->state, memory_order_acquire) != LATE_COMPLETE ||
        !sh_outring_drained(ring))
        return false;
    sh_outring_collect(ring);
    if (sh_outring_used(ring) + late->bytes > ring->room &&
        (!sh_outring_is_quiet(ring) ||
         sh_outring_grow(ring, late->bytes, msg->config.ring_bytes) != SHOAL_OK))
        return false;
    if (!sh_outring_append(ring, late->bytes, &place))
        return false;
    memcpy(place.at, late->data, late->bytes);
    sh_outring_complete(ring, place.slot, late->bytes);
    if (late->object)
        sh_object_append(conn, late->object, &place);
    return true;
}

void sh_late_move(const struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_assert_held(&conn->lock);
    SH_ASSERT(conn->late_first && !sh_outring_is_open(&conn->out));
    while (conn->late_first && move(msg, conn, conn->late_first))
        free(first_take(conn));
    /* relaxed: only changed under the lock */
    if (!conn->late_first)
        sh_outring_open(&conn->out, atomic_load_explicit(&conn->generation, memory_order_relaxed));
}

void sh_late_drop(struct sh_conn *conn, struct sh_object_out **objects)
{
    sh_spin_assert_held(&conn->lock);
    while (*objects)
        objects = &(*objects)->next;
    while (conn->late_first) {
        struct sh_late *late = first_take(conn);
        if (late->object) {
            late->object->next = NULL;
            *objects = late->object;
            objects = &late->object->next;
        }
        /* acq_rel: pairs with sh_late_end. Who still writes frees it then. */
        if (atomic_exchange_explicit(&late->state, LATE_DROPPED, memory_order_acq_rel) ==
            LATE_COMPLETE)
            free(late);
    }
}
