/* The loopback wire.
 *
 *   end A: links ---> pair <--- links :end B
 *                 two pipes, one for each direction
 *   bell of A: which of its links have news; who rings it holds the pair, the pair holds the bell
 *
 * A pipe is a ring of bytes with one writer and one reader; its positions only grow. Who changes
 * something that the other end must hear of (bytes, room, an end) changes it first, then marks the
 * link in the other's bell and rings it. Both go through accesses that are seq_cst: each side
 * writes its word and then reads the other's, and one of the two must see the other.
 *
 * Reclamation: pairs and bells are counted; a pair goes when both ends have closed it, a bell when
 * its wire and all its pairs have gone. What is pulled is never touched by anybody else. */
#include "msg/loopback.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/lock.h"
#include "base/log.h"
#include "msg/msg.h"

#define INDEX_BITS 20
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define USE_MASK 0xFFFu
#define NO_INDEX UINT32_MAX
#define ROOM_MASK (SH_LOOPBACK_ROOM - 1)
#define LISTENERS_MAX 4
#define REGIONS_MAX 256
#define PREFIX "loop:"

_Static_assert((SH_LOOPBACK_ROOM & ROOM_MASK) == 0, "positions are masked");

struct region {
    uint8_t *memory; /* NULL: free */
    size_t size;
    uint32_t use;
};

/* What others may touch of an end. */
struct bell {
    _Atomic uint32_t holders;
    int fd; /* an eventfd, written to when somebody sleeps */
    uint32_t words;
    _Alignas(64) _Atomic bool rung;
    _Atomic bool is_written; /* fd has been written to and not read since */
    _Atomic uint32_t sleepers;
    struct sh_lock lock; /* guards the regions */
    struct region regions[REGIONS_MAX];
    _Atomic uint64_t marks[]; /* a bit for each link that has news */
};

struct pipe_ring {
    _Alignas(64) _Atomic uint64_t head; /* bytes pushed */
    _Alignas(64) _Atomic uint64_t tail; /* bytes pulled */
    _Atomic bool is_wanted;             /* a push took less than all */
    uint8_t *bytes;
};

struct pair {
    struct pipe_ring pipes[2]; /* by who pushes; 0 is the end that opened it */
    struct bell *bells[2];
    _Atomic uint32_t index[2]; /* the link in each end; NO_INDEX: not accepted yet */
    _Atomic bool is_closed[2];
    _Atomic uint32_t holders;
    struct pair *next; /* in the list of those to accept */
};

struct loop_link {
    struct pair *pair; /* NULL: free, or lost before it was open */
    uint32_t use;
    uint32_t next_free;
    uint8_t side;
    bool is_used, is_opening, is_accepting, is_paused;
    uint64_t tag;
};

struct loopback {
    struct sh_wire wire;
    struct bell *bell;
    uint32_t links_max;
    uint32_t free_head;
    struct loop_link *links;
    uint64_t *active;              /* a bit for each link that poll must look at */
    _Atomic uint32_t active_count; /* written by poll's thread, read by watch */
    uint32_t word_next;
    unsigned listeners_count;
    /* Under registry_lock, but for the flag. */
    struct pair *to_accept;
    _Atomic bool has_to_accept;
};

struct listener {
    char name[SH_MSG_ADDRESS_MAX];
    struct loopback *loopback;
    struct listener *next;
};

static struct sh_lock registry_lock = SH_LOCK_STATIC(SH_LOCK_MSG_LOOPBACK);
static struct listener *registry;
static uint64_t name_next = 1;

static struct loopback *loopback_of(struct sh_wire *wire)
{
    return (struct loopback *)wire;
}

/* --- Bells ------------------------------------------------------------------------------- */

static struct bell *bell_new(uint32_t links_max)
{
    uint32_t words = (links_max + 63) / 64;
    size_t bytes = (sizeof(struct bell) + words * sizeof(uint64_t) + 63) / 64 * 64;
    struct bell *bell = aligned_alloc(64, bytes);
    if (!bell)
        return NULL;
    memset(bell, 0, bytes);
    bell->words = words;
    bell->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    atomic_init(&bell->holders, 1);
    sh_lock_init(&bell->lock, SH_LOCK_MSG_LOOPBACK);
    return bell;
}

static void bell_release(struct bell *bell)
{
    /* acq_rel: what the others did to it comes before freeing it */
    if (atomic_fetch_sub_explicit(&bell->holders, 1, memory_order_acq_rel) > 1)
        return;
    sh_lock_destroy(&bell->lock);
    if (bell->fd >= 0)
        close(bell->fd);
    free(bell);
}

static void bell_ring(struct bell *bell)
{
    /* seq_cst: before the look at sleepers; pairs with bell_wait */
    if (atomic_exchange(&bell->rung, true))
        return;
    if (atomic_load(&bell->sleepers) == 0 || atomic_exchange(&bell->is_written, true))
        return;
    uint64_t one = 1;
    ssize_t size = write(bell->fd, &one, sizeof one);
    (void)size; /* full means readable already */
}

static void bell_mark(struct bell *bell, uint32_t index)
{
    if (index == NO_INDEX)
        return; /* the other end looks when it accepts */
    /* seq_cst: what happened is written; pairs with marks_take */
    atomic_fetch_or(&bell->marks[index / 64], UINT64_C(1) << index % 64);
    bell_ring(bell);
}

/* Waits until the bell has been rung, or is, or the time is over. */
static void bell_wait(struct bell *bell, uint64_t timeout_ns, bool consumes)
{
    struct pollfd watched = {.fd = bell->fd, .events = POLLIN};
    struct timespec wait = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    bool is_forever = timeout_ns > UINT64_C(1000000000) * 86400;
    /* seq_cst: before the look at rung; pairs with bell_ring */
    atomic_fetch_add(&bell->sleepers, 1);
    int ready = 0;
    if (!atomic_load(&bell->rung))
        ready = ppoll(&watched, 1, is_forever ? NULL : &wait, NULL);
    atomic_fetch_sub(&bell->sleepers, 1);
    if (ready > 0 && consumes) {
        uint64_t drained;
        ssize_t size = read(bell->fd, &drained, sizeof drained);
        (void)size;
        /* seq_cst, after the read: a ring in between wrote nothing, but rung says it */
        atomic_store(&bell->is_written, false);
    }
}

/* --- Links and pairs --------------------------------------------------------------------- */

static sh_link link_number(const struct loopback *loopback, const struct loop_link *link)
{
    return (link->use & USE_MASK) << INDEX_BITS | (uint32_t)(link - loopback->links);
}

static struct loop_link *link_of(struct loopback *loopback, sh_link number)
{
    uint32_t index = number & INDEX_MASK;
    if (index >= loopback->links_max)
        return NULL;
    struct loop_link *link = &loopback->links[index];
    return link->is_used && link_number(loopback, link) == number ? link : NULL;
}

static void activate(struct loopback *loopback, uint32_t index)
{
    uint64_t bit = UINT64_C(1) << index % 64;
    if (loopback->active[index / 64] & bit)
        return;
    loopback->active[index / 64] |= bit;
    uint32_t count = atomic_load_explicit(&loopback->active_count, memory_order_relaxed);
    /* relaxed: one writer; watch only needs to see it some time */
    atomic_store_explicit(&loopback->active_count, count + 1, memory_order_relaxed);
}

static void deactivate(struct loopback *loopback, uint32_t index)
{
    uint64_t bit = UINT64_C(1) << index % 64;
    if (!(loopback->active[index / 64] & bit))
        return;
    loopback->active[index / 64] &= ~bit;
    uint32_t count = atomic_load_explicit(&loopback->active_count, memory_order_relaxed);
    atomic_store_explicit(&loopback->active_count, count - 1, memory_order_relaxed);
}

static struct loop_link *link_new(struct loopback *loopback, struct pair *pair, uint8_t side)
{
    if (loopback->free_head == NO_INDEX)
        return NULL;
    uint32_t index = loopback->free_head;
    struct loop_link *link = &loopback->links[index];
    loopback->free_head = link->next_free;
    uint32_t use = (link->use + 1) & USE_MASK;
    *link = (struct loop_link){
        .pair = pair, .side = side, .is_used = true, .use = use == USE_MASK ? 0 : use};
    /* seq_cst: before this end looks for bytes; pairs with push, which looks for the index after
     * it has written them */
    if (pair)
        atomic_store(&pair->index[side], index);
    activate(loopback, index);
    return link;
}

static void pair_release(struct pair *pair)
{
    /* acq_rel: what the other end did to it comes before freeing it */
    if (atomic_fetch_sub_explicit(&pair->holders, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned side = 0; side < 2; side++) {
        bell_release(pair->bells[side]);
        free(pair->pipes[side].bytes);
    }
    free(pair);
}

static struct pair *pair_new(struct bell *opener, struct bell *acceptor)
{
    struct pair *pair = aligned_alloc(64, (sizeof *pair + 63) / 64 * 64);
    if (!pair)
        return NULL;
    memset(pair, 0, sizeof *pair);
    pair->bells[0] = opener;
    pair->bells[1] = acceptor;
    atomic_init(&pair->holders, 2);
    for (unsigned side = 0; side < 2; side++) {
        /* relaxed: a holder gives it away */
        atomic_fetch_add_explicit(&pair->bells[side]->holders, 1, memory_order_relaxed);
        atomic_init(&pair->index[side], NO_INDEX);
        pair->pipes[side].bytes = malloc(SH_LOOPBACK_ROOM);
    }
    if (pair->pipes[0].bytes && pair->pipes[1].bytes)
        return pair;
    pair_release(pair);
    pair_release(pair);
    return NULL;
}

static void pair_close(struct pair *pair, unsigned side)
{
    /* seq_cst: after all that was pushed, before the other end is told */
    atomic_store(&pair->is_closed[side], true);
    bell_mark(pair->bells[!side], atomic_load(&pair->index[!side]));
    pair_release(pair);
}

static void link_free(struct loopback *loopback, struct loop_link *link)
{
    uint32_t index = (uint32_t)(link - loopback->links);
    if (link->pair)
        pair_close(link->pair, link->side);
    link->pair = NULL;
    link->is_used = false;
    link->next_free = loopback->free_head;
    loopback->free_head = index;
    deactivate(loopback, index);
}

/* --- Listening and opening --------------------------------------------------------------- */

static bool address_is_right(const char *address)
{
    size_t size = strlen(address);
    return strncmp(address, PREFIX, sizeof PREFIX - 1) == 0 && size > sizeof PREFIX - 1 &&
           size < SH_MSG_ADDRESS_MAX;
}

static struct listener *listener_find(const char *name)
{
    sh_lock_assert_held(&registry_lock);
    struct listener *listener = registry;
    while (listener && strcmp(listener->name, name) != 0)
        listener = listener->next;
    return listener;
}

static enum shoal_err loopback_listen(struct sh_wire *wire, const char *address, char *bound_out)
{
    struct loopback *loopback = loopback_of(wire);
    if (!address_is_right(address))
        return SHOAL_EADDRESS;
    if (loopback->listeners_count == LISTENERS_MAX)
        return SHOAL_EADDRINUSE;
    struct listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return SHOAL_EIO;
    listener->loopback = loopback;
    snprintf(listener->name, sizeof listener->name, "%s", address);
    sh_lock_take(&registry_lock);
    bool picks = strcmp(address, PREFIX "0") == 0;
    do {
        if (picks)
            snprintf(listener->name, sizeof listener->name, PREFIX "%llu",
                     (unsigned long long)name_next++);
    } while (picks && listener_find(listener->name));
    bool is_taken = listener_find(listener->name) != NULL;
    if (!is_taken) {
        listener->next = registry;
        registry = listener;
    }
    sh_lock_release(&registry_lock);
    if (is_taken) {
        free(listener);
        return SHOAL_EADDRINUSE;
    }
    loopback->listeners_count++;
    snprintf(bound_out, SH_MSG_ADDRESS_MAX, "%s", listener->name);
    return SHOAL_OK;
}

/* Finds who listens and leaves a pair with it; NULL and OK: nobody does. */
static enum shoal_err pair_offer(struct loopback *loopback, const char *address,
                                 struct pair **pair_out)
{
    enum shoal_err err = SHOAL_OK;
    struct pair *pair = NULL;
    struct bell *bell = NULL;
    sh_lock_take(&registry_lock);
    struct listener *listener = listener_find(address);
    if (listener) {
        pair = pair_new(loopback->bell, listener->loopback->bell);
        err = pair ? SHOAL_OK : SHOAL_ENOMEM;
    }
    if (pair) {
        pair->next = NULL;
        struct pair **at = &listener->loopback->to_accept;
        while (*at)
            at = &(*at)->next;
        *at = pair;
        /* seq_cst: after the list, which the lock guards; pairs with accept_some */
        atomic_store(&listener->loopback->has_to_accept, true);
        bell = pair->bells[1];
    }
    sh_lock_release(&registry_lock);
    if (bell)
        bell_ring(bell);
    *pair_out = pair;
    return err;
}

static enum shoal_err loopback_open(struct sh_wire *wire, const char *address, uint64_t tag,
                                    sh_link *link_out)
{
    struct loopback *loopback = loopback_of(wire);
    if (!address_is_right(address))
        return SHOAL_EADDRESS;
    if (loopback->free_head == NO_INDEX)
        return SHOAL_ELIMIT;
    struct pair *pair;
    enum shoal_err err = pair_offer(loopback, address, &pair);
    if (err != SHOAL_OK)
        return err;
    struct loop_link *link = link_new(loopback, pair, 0);
    SH_ASSERT(link != NULL);
    link->is_opening = true;
    link->tag = tag;
    *link_out = link_number(loopback, link);
    return SHOAL_OK;
}

static struct pair *accept_next(struct loopback *loopback)
{
    sh_lock_take(&registry_lock);
    struct pair *pair = loopback->to_accept;
    if (pair)
        loopback->to_accept = pair->next;
    else
        atomic_store(&loopback->has_to_accept, false);
    sh_lock_release(&registry_lock);
    return pair;
}

static void accept_all(struct loopback *loopback)
{
    struct pair *pair;
    /* seq_cst: pairs with pair_offer, which rings afterwards */
    while (atomic_load(&loopback->has_to_accept) && (pair = accept_next(loopback))) {
        struct loop_link *link = link_new(loopback, pair, 1);
        if (link) {
            link->is_accepting = true;
            continue;
        }
        SH_WARN("msg", "connection limit reached: refused one",
                SH_U64("links_max", loopback->links_max));
        pair_close(pair, 1);
    }
}

/* --- Bytes ------------------------------------------------------------------------------- */

static void loopback_close(struct sh_wire *wire, sh_link number)
{
    struct loopback *loopback = loopback_of(wire);
    struct loop_link *link = link_of(loopback, number);
    if (link)
        link_free(loopback, link);
}

static void copy_in(struct pipe_ring *ring, uint64_t head, const uint8_t *from, size_t size)
{
    size_t at = head & ROOM_MASK, first = SH_LOOPBACK_ROOM - at;
    if (first > size)
        first = size;
    memcpy(ring->bytes + at, from, first);
    memcpy(ring->bytes, from + first, size - first);
}

static size_t loopback_push(struct sh_wire *wire, sh_link number, struct sh_bytes bytes)
{
    struct loop_link *link = link_of(loopback_of(wire), number);
    if (!link || !link->pair || link->is_opening || bytes.size == 0)
        return 0;
    struct pair *pair = link->pair;
    unsigned other = !link->side;
    /* relaxed: the other end has closed, or will be found to have */
    if (atomic_load_explicit(&pair->is_closed[other], memory_order_relaxed))
        return 0;
    struct pipe_ring *ring = &pair->pipes[link->side];
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* ours */
    /* acquire: the bytes have been read; pairs with pull */
    uint64_t room =
        SH_LOOPBACK_ROOM - (head - atomic_load_explicit(&ring->tail, memory_order_acquire));
    if (room < bytes.size) {
        /* seq_cst: before the second look; pairs with pull */
        atomic_store(&ring->is_wanted, true);
        room = SH_LOOPBACK_ROOM - (head - atomic_load(&ring->tail));
    }
    size_t taken = bytes.size < room ? bytes.size : room;
    SH_ASSERT(room <= SH_LOOPBACK_ROOM);
    if (taken == 0)
        return 0;
    copy_in(ring, head, bytes.at, taken);
    /* seq_cst, and so release: the bytes; pairs with pull and readable */
    atomic_store(&ring->head, head + taken);
    bell_mark(pair->bells[other], atomic_load(&pair->index[other]));
    return taken;
}

static size_t loopback_pull(struct sh_wire *wire, sh_link number, void *into, size_t room)
{
    struct loop_link *link = link_of(loopback_of(wire), number);
    if (!link || !link->pair || room == 0)
        return 0;
    struct pair *pair = link->pair;
    unsigned other = !link->side;
    struct pipe_ring *ring = &pair->pipes[other];
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* ours */
    /* acquire: the bytes; pairs with push */
    uint64_t there = atomic_load_explicit(&ring->head, memory_order_acquire) - tail;
    SH_ASSERT(there <= SH_LOOPBACK_ROOM);
    size_t got = there < room ? there : room;
    if (got == 0)
        return 0;
    size_t at = tail & ROOM_MASK, first = SH_LOOPBACK_ROOM - at;
    if (first > got)
        first = got;
    memcpy(into, ring->bytes + at, first);
    memcpy((uint8_t *)into + first, ring->bytes, got - first);
    /* seq_cst: before the look at is_wanted, and release: we are done with the bytes; both pair
     * with push. The flag stays until that end has seen that there is room. */
    atomic_store(&ring->tail, tail + got);
    if (atomic_load(&ring->is_wanted))
        bell_mark(pair->bells[other], atomic_load(&pair->index[other]));
    return got;
}

/* --- Events ------------------------------------------------------------------------------ */

/* What is to be said of a link; false: nothing, it rests until it is marked. */
static bool link_event(struct loopback *loopback, struct loop_link *link,
                       struct sh_wire_event *event_out)
{
    struct pair *pair = link->pair;
    struct sh_wire_event event = {.link = link_number(loopback, link), .tag = link->tag};
    if (!pair) {
        event.kind = SH_WIRE_LOST;
        event.err = SHOAL_EUNREACHABLE;
        event.is_refused = true;
        link_free(loopback, link);
        *event_out = event;
        return true;
    }
    unsigned other = !link->side;
    struct pipe_ring *out = &pair->pipes[link->side], *in = &pair->pipes[other];
    /* seq_cst: before the look at its bytes, since it closes after it has pushed */
    bool is_closed = atomic_load(&pair->is_closed[other]);
    if (link->is_opening) {
        link->is_opening = false;
        event.kind = SH_WIRE_OPENED;
    } else if (link->is_accepting) {
        link->is_accepting = false;
        event.kind = SH_WIRE_ACCEPTED;
    } else if (!is_closed && atomic_load(&out->is_wanted) &&
               atomic_load(&out->head) - atomic_load(&out->tail) < SH_LOOPBACK_ROOM) {
        atomic_store(&out->is_wanted, false);
        event.kind = SH_WIRE_WRITABLE;
    } else if (atomic_load(&in->head) != atomic_load_explicit(&in->tail, memory_order_relaxed)) {
        if (link->is_paused)
            return false;
        event.kind = SH_WIRE_READABLE;
    } else if (is_closed) {
        event.kind = SH_WIRE_LOST;
        event.err = SHOAL_ECONNLOST;
        link_free(loopback, link);
    } else {
        return false;
    }
    *event_out = event;
    return true;
}

static void loopback_pause(struct sh_wire *wire, sh_link number, bool is_paused)
{
    struct loopback *loopback = loopback_of(wire);
    struct loop_link *link = link_of(loopback, number);
    if (!link)
        return;
    link->is_paused = is_paused;
    if (!is_paused)
        activate(loopback, (uint32_t)(link - loopback->links));
}

/* Takes note of what the bell was rung for; false: it was not. */
static bool marks_take(struct loopback *loopback)
{
    struct bell *bell = loopback->bell;
    /* seq_cst: before the marks are read; a later ring sets it again */
    if (!atomic_load_explicit(&bell->rung, memory_order_relaxed) ||
        !atomic_exchange(&bell->rung, false))
        return false;
    accept_all(loopback);
    for (uint32_t i = 0; i < bell->words; i++) {
        /* relaxed first look: what was marked before the ring is seen by now */
        if (atomic_load_explicit(&bell->marks[i], memory_order_relaxed) == 0)
            continue;
        uint64_t marks = atomic_exchange(&bell->marks[i], 0); /* seq_cst: pairs with bell_mark */
        for (; marks; marks &= marks - 1) {
            uint32_t index = i * 64 + (uint32_t)__builtin_ctzll(marks);
            if (loopback->links[index].is_used)
                activate(loopback, index);
        }
    }
    return true;
}

static unsigned report(struct loopback *loopback, struct sh_wire_event *events, unsigned events_max)
{
    unsigned count = 0;
    uint32_t words = loopback->bell->words;
    if (atomic_load_explicit(&loopback->active_count, memory_order_relaxed) == 0)
        return 0;
    uint32_t start = loopback->word_next;
    for (uint32_t i = 0; i < words && count < events_max; i++) {
        uint32_t word = (start + i) % words;
        uint64_t active = loopback->active[word];
        for (; active && count < events_max; active &= active - 1) {
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(active);
            if (link_event(loopback, &loopback->links[index], &events[count]))
                count++;
            else
                deactivate(loopback, index);
        }
        loopback->word_next = (word + 1) % words;
    }
    return count;
}

static unsigned loopback_poll(struct sh_wire *wire, struct sh_wire_event *events,
                              unsigned events_max, uint64_t timeout_ns)
{
    struct loopback *loopback = loopback_of(wire);
    bool was_rung = marks_take(loopback); /* maybe by signal, which has no link */
    unsigned count = report(loopback, events, events_max);
    if (was_rung || count > 0 || timeout_ns == 0)
        return count;
    bell_wait(loopback->bell, timeout_ns, true);
    (void)marks_take(loopback);
    return report(loopback, events, events_max);
}

static void loopback_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    struct loopback *loopback = loopback_of(wire);
    if (atomic_load_explicit(&loopback->active_count, memory_order_relaxed) == 0)
        bell_wait(loopback->bell, timeout_ns, false);
}

static void loopback_signal(struct sh_wire *wire)
{
    bell_ring(loopback_of(wire)->bell);
}

/* --- One-sided writes -------------------------------------------------------------------- */

/* A key is a region's index and how often it has been used. */
static struct region *region_of(struct bell *bell, uint64_t key)
{
    sh_lock_assert_held(&bell->lock);
    struct region *region = &bell->regions[key % REGIONS_MAX];
    return region->memory && region->use == key / REGIONS_MAX ? region : NULL;
}

static enum shoal_err loopback_region_add(struct sh_wire *wire, void *memory, size_t size,
                                          uint64_t *key_out)
{
    struct bell *bell = loopback_of(wire)->bell;
    SH_ASSERT(memory != NULL && size > 0);
    enum shoal_err err = SHOAL_ELIMIT;
    sh_lock_take(&bell->lock);
    for (uint32_t i = 0; i < REGIONS_MAX && err != SHOAL_OK; i++) {
        struct region *region = &bell->regions[i];
        if (region->memory)
            continue;
        *region = (struct region){.memory = memory, .size = size, .use = region->use + 1};
        *key_out = (uint64_t)region->use * REGIONS_MAX + i;
        err = SHOAL_OK;
    }
    sh_lock_release(&bell->lock);
    return err;
}

static void loopback_region_remove(struct sh_wire *wire, uint64_t key)
{
    struct bell *bell = loopback_of(wire)->bell;
    sh_lock_take(&bell->lock);
    struct region *region = region_of(bell, key);
    SH_ASSERT(region != NULL);
    region->memory = NULL;
    sh_lock_release(&bell->lock);
}

static enum shoal_err loopback_write(struct sh_wire *wire, sh_link number, uint64_t key,
                                     uint64_t offset, struct sh_bytes bytes)
{
    struct loop_link *link = link_of(loopback_of(wire), number);
    SH_ASSERT(bytes.size <= SH_WIRE_WRITE_MAX);
    if (!link || !link->pair ||
        atomic_load_explicit(&link->pair->is_closed[!link->side], memory_order_relaxed))
        return SHOAL_ECONNLOST;
    struct bell *bell = link->pair->bells[!link->side];
    enum shoal_err err = SHOAL_ENONAME;
    sh_lock_take(&bell->lock);
    struct region *region = region_of(bell, key);
    if (region && offset <= region->size && bytes.size <= region->size - offset) {
        uint8_t *to = region->memory + offset;
        if (bytes.size == 8 && (uintptr_t)to % 8 == 0) {
            uint64_t value;
            memcpy(&value, bytes.at, sizeof value);
            /* release: what was written before; pairs with the reader's acquire */
            atomic_store_explicit((_Atomic uint64_t *)(void *)to, value, memory_order_release);
        } else {
            memcpy(to, bytes.at, bytes.size);
        }
        err = SHOAL_OK;
    }
    sh_lock_release(&bell->lock);
    return err;
}

/* --- Making it --------------------------------------------------------------------------- */

/* Takes all that has to do with a wire off the registry; returns what it had not accepted. */
static struct pair *registry_leave(struct loopback *loopback)
{
    sh_lock_take(&registry_lock);
    for (struct listener **at = &registry; *at;) {
        struct listener *listener = *at;
        if (listener->loopback != loopback) {
            at = &listener->next;
            continue;
        }
        *at = listener->next;
        free(listener);
    }
    struct pair *pairs = loopback->to_accept;
    loopback->to_accept = NULL;
    sh_lock_release(&registry_lock);
    return pairs;
}

static void loopback_destroy(struct sh_wire *wire)
{
    struct loopback *loopback = loopback_of(wire);
    struct pair *pairs = registry_leave(loopback);
    while (pairs) {
        struct pair *next = pairs->next;
        pair_close(pairs, 1);
        pairs = next;
    }
    for (uint32_t i = 0; loopback->links && i < loopback->links_max; i++) {
        if (loopback->links[i].is_used)
            link_free(loopback, &loopback->links[i]);
    }
    if (loopback->bell) {
        /* Others may still hold the bell, but write nowhere any more. */
        sh_lock_take(&loopback->bell->lock);
        memset(loopback->bell->regions, 0, sizeof loopback->bell->regions);
        sh_lock_release(&loopback->bell->lock);
        bell_release(loopback->bell);
    }
    free(loopback->active);
    free(loopback->links);
    free(loopback);
}

/* There are no strangers within a process. */
static void loopback_peer(struct sh_wire *wire, sh_link link, char *text_out)
{
    (void)wire;
    snprintf(text_out, SH_WIRE_ADDRESS_MAX, "loop, link %u", link);
}

static const struct sh_wire_ops loopback_ops = {
    .listen = loopback_listen,
    .open = loopback_open,
    .close = loopback_close,
    .push = loopback_push,
    .pull = loopback_pull,
    .poll = loopback_poll,
    .watch = loopback_watch,
    .signal = loopback_signal,
    .destroy = loopback_destroy,
    .peer = loopback_peer,
    .pause = loopback_pause,
    .abilities = SH_WIRE_WRITES,
    .region_add = loopback_region_add,
    .region_remove = loopback_region_remove,
    .write = loopback_write,
};

enum shoal_err sh_loopback_create(uint32_t links_max, struct sh_wire **wire_out)
{
    SH_ASSERT(links_max > 0 && links_max < INDEX_MASK);
    struct loopback *loopback = calloc(1, sizeof *loopback);
    if (!loopback)
        return SHOAL_ENOMEM;
    loopback->wire.ops = &loopback_ops;
    loopback->links_max = links_max;
    loopback->bell = bell_new(links_max);
    loopback->links = calloc(links_max, sizeof *loopback->links);
    loopback->active = calloc((links_max + 63) / 64, sizeof *loopback->active);
    if (!loopback->bell || !loopback->links || !loopback->active || loopback->bell->fd < 0) {
        enum shoal_err err = loopback->bell && loopback->bell->fd < 0 ? SHOAL_EIO : SHOAL_ENOMEM;
        loopback_destroy(&loopback->wire);
        return err;
    }
    for (uint32_t i = 0; i < links_max; i++)
        loopback->links[i].next_free = i + 1 < links_max ? i + 1 : NO_INDEX;
    *wire_out = &loopback->wire;
    return SHOAL_OK;
}
