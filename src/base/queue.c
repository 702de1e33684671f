#include "base/queue.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define LINE_BYTES 64
#define SLOTS_MAX ((size_t)1 << 24)

/* A slot at position p is free for the push number p when turn == p, holds its item when
 * turn == p + 1, and is free for the next lap when turn == p + slots. */
struct slot {
    _Atomic size_t turn;
    void *item;
};

/* 16 bytes a slot. Producers and consumers contend on a line each. */
struct sh_queue {
    _Alignas(LINE_BYTES) _Atomic size_t pushed; /* number of the next push */
    _Alignas(LINE_BYTES) _Atomic size_t popped; /* number of the next pop */
    _Alignas(LINE_BYTES) size_t mask;
    struct slot slots[];
};

enum shoal_err sh_queue_create(size_t slots, struct sh_queue **ring_out)
{
    SH_ASSERT(slots >= 2 && slots <= SLOTS_MAX);
    SH_ASSERT((slots & (slots - 1)) == 0);
    size_t bytes = sizeof(struct sh_queue) + slots * sizeof(struct slot);
    bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    struct sh_queue *ring = aligned_alloc(LINE_BYTES, bytes);
    if (!ring)
        return SHOAL_ENOMEM;
    memset(ring, 0, bytes);
    ring->mask = slots - 1;
    atomic_init(&ring->pushed, 0);
    atomic_init(&ring->popped, 0);
    for (size_t i = 0; i < slots; i++)
        atomic_init(&ring->slots[i].turn, i);
    *ring_out = ring;
    return SHOAL_OK;
}

void sh_queue_destroy(struct sh_queue *ring)
{
    free(ring);
}

bool sh_queue_push(struct sh_queue *ring, void *item)
{
    SH_ASSERT(item != NULL);
    /* relaxed: a guess; the slot's turn says whether it is right. */
    size_t at = atomic_load_explicit(&ring->pushed, memory_order_relaxed);
    for (;;) {
        struct slot *slot = &ring->slots[at & ring->mask];
        /* acquire: the consumer has read the old item; pairs with release in sh_queue_pop */
        size_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        intptr_t ahead = (intptr_t)(turn - at);
        if (ahead < 0)
            return false; /* the item of the lap before is still there */
        /* relaxed: claims the number only; turn publishes the item. */
        if (ahead > 0) {
            at = atomic_load_explicit(&ring->pushed, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(
                       &ring->pushed, &at, at + 1, memory_order_relaxed, memory_order_relaxed)) {
            slot->item = item;
            /* release: the item; pairs with acquire in sh_queue_pop */
            atomic_store_explicit(&slot->turn, at + 1, memory_order_release);
            return true;
        }
    }
}

void *sh_queue_pop(struct sh_queue *ring)
{
    /* relaxed: a guess; the slot's turn says whether it is right. */
    size_t at = atomic_load_explicit(&ring->popped, memory_order_relaxed);
    for (;;) {
        struct slot *slot = &ring->slots[at & ring->mask];
        /* acquire: the item; pairs with release in sh_queue_push */
        size_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        intptr_t ahead = (intptr_t)(turn - (at + 1));
        if (ahead < 0)
            return NULL; /* not pushed yet, or its producer is between claim and store */
        /* relaxed: claims the number only; turn hands the slot back. */
        if (ahead > 0) {
            at = atomic_load_explicit(&ring->popped, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(
                       &ring->popped, &at, at + 1, memory_order_relaxed, memory_order_relaxed)) {
            void *item = slot->item;
            /* release: the item has been read; pairs with acquire in sh_queue_push */
            atomic_store_explicit(&slot->turn, at + ring->mask + 1, memory_order_release);
            SH_ASSERT(item != NULL);
            return item;
        }
    }
}

size_t sh_queue_count(const struct sh_queue *ring)
{
    /* relaxed: a number for people and heuristics. Popped first: it can't overtake pushed. */
    size_t popped = atomic_load_explicit(&ring->popped, memory_order_relaxed);
    size_t pushed = atomic_load_explicit(&ring->pushed, memory_order_relaxed);
    size_t count = pushed - popped;
    return count <= ring->mask + 1 ? count : ring->mask + 1;
}
