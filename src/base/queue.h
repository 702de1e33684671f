/* A bounded ring of pointers between threads: any number of producers and consumers, no locks.
 *
 * Vyukov's bounded MPMC queue: each slot carries a sequence number that says whose turn it is.
 * A full ring refuses, an empty one returns NULL; neither blocks. Order is FIFO per producer.
 * Reclamation: slots live as long as the ring, so no pointer is ever followed after free. */
#ifndef SH_BASE_QUEUE_H
#define SH_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "shoal/err.h"

struct sh_queue;

/* Makes a ring of `slots` entries (a power of two, 2 to 2^24). ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_queue_create(size_t slots, struct sh_queue **ring_out);

/* Frees the ring, not what its pointers name. NULL is allowed. No thread may be using it. */
void sh_queue_destroy(struct sh_queue *ring);

/* Adds item (not NULL). False when full. Any thread. */
SHOAL_NODISCARD bool sh_queue_push(struct sh_queue *ring, void *item);

/* Takes the oldest item, or NULL when empty. Any thread. */
void *sh_queue_pop(struct sh_queue *ring);

/* How many items are in it: exact when nobody else uses it, else a recent value. */
size_t sh_queue_count(const struct sh_queue *ring);

#endif
