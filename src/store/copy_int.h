/* Copies that may race: between the store's memory and a caller's own.
 *
 * Whoever changes store memory that a reader may be looking at does so in whole atomic accesses,
 * and so does the reader; the group's sequence word then tells the reader whether to believe what
 * it has. Inside a run these are aligned 8-byte words, at its edges bytes, because the other bytes
 * of an edge's word belong to a neighbour that another thread may be writing. All accesses are
 * relaxed: order comes from the sequence word (group_int.h). */
#ifndef SH_STORE_COPY_INT_H
#define SH_STORE_COPY_INT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline size_t sh_copy_edge(const void *at, size_t size)
{
    size_t edge = (0 - (uintptr_t)at) & 7;
    return edge < size ? edge : size;
}

/* Store memory to the caller's. */
static inline void sh_copy_out(void *into, const uint8_t *from, size_t size)
{
    uint8_t *to = into;
    size_t edge = sh_copy_edge(from, size);
    for (size_t i = 0; i < edge; i++)
        to[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
    size_t at = edge;
    for (; at + 8 <= size; at += 8) {
        uint64_t word =
            __atomic_load_n((const uint64_t *)(const void *)(from + at), __ATOMIC_RELAXED);
        memcpy(to + at, &word, 8);
    }
    for (; at < size; at++)
        to[at] = __atomic_load_n(from + at, __ATOMIC_RELAXED);
}

/* The caller's memory to the store's. */
static inline void sh_copy_in(uint8_t *to, const void *source, size_t size)
{
    const uint8_t *from = source;
    size_t edge = sh_copy_edge(to, size);
    for (size_t i = 0; i < edge; i++)
        __atomic_store_n(to + i, from[i], __ATOMIC_RELAXED);
    size_t at = edge;
    for (; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, from + at, 8);
        __atomic_store_n((uint64_t *)(void *)(to + at), word, __ATOMIC_RELAXED);
    }
    for (; at < size; at++)
        __atomic_store_n(to + at, from[at], __ATOMIC_RELAXED);
}

static inline void sh_copy_zero(uint8_t *to, size_t size)
{
    size_t edge = sh_copy_edge(to, size);
    for (size_t i = 0; i < edge; i++)
        __atomic_store_n(to + i, 0, __ATOMIC_RELAXED);
    size_t at = edge;
    for (; at + 8 <= size; at += 8)
        __atomic_store_n((uint64_t *)(void *)(to + at), 0, __ATOMIC_RELAXED);
    for (; at < size; at++)
        __atomic_store_n(to + at, 0, __ATOMIC_RELAXED);
}

#endif
