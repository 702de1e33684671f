/* The store's inside, shared by the files of its operations. */
#ifndef SH_STORE_STORE_INT_H
#define SH_STORE_STORE_INT_H

#include "store/alloc_int.h"
#include "store/idpool_int.h"
#include "store/idtable_int.h"
#include "store/store.h"

/* Counters are spread over lines so that threads do not fight for one. */
#define SH_STORE_TALLIES 16

struct sh_tally {
    _Alignas(64) _Atomic uint64_t creates;
    _Atomic uint64_t removes;
    _Atomic uint64_t gets;
    _Atomic uint64_t puts;
    _Atomic uint64_t payload_bytes; /* modulo 2^64: only the sum over all tallies means something */
};

struct sh_store {
    struct sh_idtable table;
    struct sh_alloc *alloc;
    struct sh_idpool *pool;
    uint32_t chunk_bytes_max;
    struct sh_alloc alloc_own;
    struct sh_idpool pool_own;
    struct sh_budget budget;
    struct sh_tally tallies[SH_STORE_TALLIES];
};

/* The calling thread's tally. */
struct sh_tally *sh_store_tally(struct sh_store *store);

static inline void sh_tally_add(_Atomic uint64_t *counter, uint64_t count)
{
    /* relaxed: a plain counter; it publishes nothing */
    atomic_fetch_add_explicit(counter, count, memory_order_relaxed);
}

/* The size of a chunk that the caller holds. */
static inline uint32_t sh_store_held_size(const struct sh_store *store, uint64_t word)
{
    uint64_t size = sh_entry_size(word);
    return size < SH_ENTRY_LARGE ? (uint32_t)size
                                 : sh_alloc_large_size(store->alloc, sh_entry_block(word));
}

/* sh_store_get and sh_store_put without counting. */
SHOAL_NODISCARD enum shoal_err sh_store_copy_out(struct sh_store *store, sh_lid lid, void *into,
                                                 size_t room, uint32_t *size_out);
SHOAL_NODISCARD enum shoal_err sh_store_copy_in(struct sh_store *store, sh_lid lid,
                                                struct sh_bytes data);

/* Takes a chunk out of the table; its block is the caller's to give back, then its ID. ENOCHUNK. */
SHOAL_NODISCARD enum shoal_err sh_store_detach(struct sh_store *store, sh_lid lid,
                                               struct sh_block *block_out);

#endif
