/* A chunk's table entry: one 64-bit word that says where its bytes are, how many, and whether
 * somebody is at them.
 *
 *    63..62   61..43                     42..0
 *   [state] [size, or SH_ENTRY_LARGE] [block's offset / 8]
 *
 * The word is its chunk's lock as well. An operation turns LIVE to HELD with a compare-and-swap,
 * works on the bytes and stores the word back. PENDING is a chunk that its creator has not
 * finished: to everybody else it does not exist. Only the creator of a PENDING chunk and the holder
 * of a HELD one may change the word. No other lock is taken while a chunk is held, so these locks
 * have no rank and can't be part of a deadlock.
 */
#ifndef SH_STORE_ENTRY_INT_H
#define SH_STORE_ENTRY_INT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

#define SH_ENTRY_ADDRESS_BITS 43
#define SH_ENTRY_SIZE_BITS 19
/* The size of a chunk with this mark is kept by the allocator (sh_alloc_large_size). */
#define SH_ENTRY_LARGE ((UINT64_C(1) << SH_ENTRY_SIZE_BITS) - 1)

#define SH_ENTRY_STATE (UINT64_C(3) << 62)
#define SH_ENTRY_PENDING (UINT64_C(1) << 62)
#define SH_ENTRY_LIVE (UINT64_C(2) << 62)
#define SH_ENTRY_HELD (UINT64_C(3) << 62)

_Static_assert(SH_ENTRY_ADDRESS_BITS + SH_ENTRY_SIZE_BITS + 2 == 64, "an entry is one word");

typedef _Atomic uint64_t sh_entry;

static inline uint64_t sh_entry_state(uint64_t word)
{
    return word & SH_ENTRY_STATE;
}

static inline uint64_t sh_entry_with_state(uint64_t word, uint64_t state)
{
    return (word & ~SH_ENTRY_STATE) | state;
}

/* Where the chunk's bytes are, as an offset into the blocks' range. */
static inline uint64_t sh_entry_block(uint64_t word)
{
    return (word & ((UINT64_C(1) << SH_ENTRY_ADDRESS_BITS) - 1)) << 3;
}

static inline uint64_t sh_entry_size(uint64_t word)
{
    return (word >> SH_ENTRY_ADDRESS_BITS) & SH_ENTRY_LARGE;
}

static inline uint64_t sh_entry_make(uint64_t block, uint64_t size)
{
    uint64_t code = size < SH_ENTRY_LARGE ? size : SH_ENTRY_LARGE;
    return (code << SH_ENTRY_ADDRESS_BITS) | (block >> 3);
}

/* True when the word is that of a chunk that exists. */
static inline bool sh_entry_exists(uint64_t word)
{
    return word >= SH_ENTRY_LIVE;
}

/* Spins so many times on a held chunk before it gives its time slice away: a copy of a few cache
 * lines is over by then, unless its holder was descheduled. */
#define SH_ENTRY_SPINS 128

static inline void sh_entry_pause(unsigned *spins)
{
    if (++*spins < SH_ENTRY_SPINS) {
        sh_cpu_relax();
        return;
    }
    *spins = 0;
    sched_yield();
}

/* Holds the chunk and returns its word (state HELD); 0 when there is no such chunk. */
static inline uint64_t sh_entry_hold(sh_entry *entry)
{
    unsigned spins = 0;
    for (;;) {
        uint64_t word = atomic_load_explicit(entry, memory_order_relaxed);
        if (!sh_entry_exists(word))
            return 0;
        uint64_t held = sh_entry_with_state(word, SH_ENTRY_HELD);
        /* acquire: the chunk's bytes; pairs with the releases in sh_entry_let_go and
         * sh_entry_publish */
        if (word != held && atomic_compare_exchange_weak_explicit(
                                entry, &word, held, memory_order_acquire, memory_order_relaxed))
            return held;
        sh_entry_pause(&spins);
    }
}

/* Ends a hold. */
static inline void sh_entry_let_go(sh_entry *entry, uint64_t word)
{
    /* release: what was done to the bytes; pairs with the acquire in sh_entry_hold */
    atomic_store_explicit(entry, sh_entry_with_state(word, SH_ENTRY_LIVE), memory_order_release);
}

/* Makes a pending chunk exist. */
static inline void sh_entry_publish(sh_entry *entry)
{
    uint64_t word = atomic_load_explicit(entry, memory_order_relaxed);
    /* release: the zeroed bytes; pairs with the acquire in sh_entry_hold */
    atomic_store_explicit(entry, sh_entry_with_state(word, SH_ENTRY_LIVE), memory_order_release);
}

#endif
