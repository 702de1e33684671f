/* The store's baseline: an open-addressing hash table from a key to an object of malloc.
 *
 * What a careful C program has without shoal: 16 bytes a slot at most two thirds full, linear
 * probing, striped spin locks around every access so that reads are not torn. */
#ifndef SH_BENCH_MALLOC_BASE_H
#define SH_BENCH_MALLOC_BASE_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal/err.h"

struct sh_malloc_base;

/* Makes an empty table for so many objects. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_malloc_base_create(uint64_t objects_max,
                                                     struct sh_malloc_base **base_out);
/* Frees the objects too, and makes malloc give back what it can. NULL is allowed. */
void sh_malloc_base_destroy(struct sh_malloc_base *base);

/* Adds an object of zeros under a new key, not UINT64_MAX. One thread at a time, and nobody else
 * meanwhile. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_malloc_base_add(struct sh_malloc_base *base, uint64_t key,
                                                  uint32_t size);
/* Copies size bytes out of an object, or into it. False when there is no such key. Any thread. */
SHOAL_NODISCARD bool sh_malloc_base_get(struct sh_malloc_base *base, uint64_t key, void *into,
                                        uint32_t size);
SHOAL_NODISCARD bool sh_malloc_base_put(struct sh_malloc_base *base, uint64_t key, const void *from,
                                        uint32_t size);

#endif
