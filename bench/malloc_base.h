/* The store's baseline: an open-addressing hash table from a key to an object of an allocator.
 *
 * What a careful C program has without shoal: 16 bytes a slot at most two thirds full, linear
 * probing, striped spin locks around every access so that reads are not torn. The objects are
 * glibc's (calloc, free) or mimalloc's (mi_calloc, mi_free); mimalloc is loaded when it is asked
 * for and reached through pointers, as glibc's then is too, so that nothing else in the process,
 * ours least of all, is allocated by it.
 *
 * Threads: every function but create and destroy may be called from any. Probing takes no lock: a
 * slot's key is published after its object, and checked again under the key's lock. */
#ifndef SH_BENCH_MALLOC_BASE_H
#define SH_BENCH_MALLOC_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal/err.h"

struct sh_malloc_base;

/* Where objects come from. */
struct sh_allocator {
    void *(*calloc)(size_t count, size_t size);
    void (*free)(void *object);
    void (*trim)(void); /* gives unused memory back, as far as the allocator can */
};

/* "malloc" (glibc) or "mimalloc" (libmimalloc.so.2). ENONAME where it is not installed, which is
 * logged. Loaded libraries stay until the process ends. */
SHOAL_NODISCARD enum shoal_err sh_allocator_find(const char *name,
                                                 const struct sh_allocator **allocator_out);

/* Makes an empty table for so many objects; keeps allocator. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_malloc_base_create(const struct sh_allocator *allocator,
                                                     uint64_t objects_max,
                                                     struct sh_malloc_base **base_out);
/* Frees the objects too, and makes the allocator give back what it can. NULL is allowed. */
void sh_malloc_base_destroy(struct sh_malloc_base *base);

/* Adds an object of zeros under a new key, below 2^63. No other thread may be adding the same key.
 * ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_malloc_base_add(struct sh_malloc_base *base, uint64_t key,
                                                  uint32_t size);
/* Copies size bytes out of an object, or into it. False when there is no such key. */
SHOAL_NODISCARD bool sh_malloc_base_get(struct sh_malloc_base *base, uint64_t key, void *into,
                                        uint32_t size);
SHOAL_NODISCARD bool sh_malloc_base_put(struct sh_malloc_base *base, uint64_t key, const void *from,
                                        uint32_t size);
/* Removes the object. False when there is no such key. */
SHOAL_NODISCARD bool sh_malloc_base_remove(struct sh_malloc_base *base, uint64_t key);

#endif
