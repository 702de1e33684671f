/* Where the store's memory comes from: reserved address ranges, and one budget for all of it.
 *
 * A range is mapped once, without being backed: the kernel gives a page of zeros when it is first
 * touched. Whoever is about to touch pages charges them to the budget first, so that the sum of
 * the charges is what the store can have resident at most. */
#ifndef SH_STORE_MEMORY_INT_H
#define SH_STORE_MEMORY_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shoal/err.h"

#define SH_PAGE_BITS 12
#define SH_PAGE_BYTES (UINT64_C(1) << SH_PAGE_BITS)

/* Whole pages that hold so many bytes. */
static inline uint64_t sh_pages(uint64_t bytes)
{
    return (bytes + SH_PAGE_BYTES - 1) >> SH_PAGE_BITS;
}

struct sh_vm {
    uint8_t *at;
    uint64_t bytes;
};

/* Reserves a range of zeros, in small pages, that begins where a huge page can. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_vm_reserve(uint64_t bytes, struct sh_vm *vm_out);
/* Unmaps it. A range that was never reserved (all zero) is allowed. */
void sh_vm_release(struct sh_vm *vm);
/* Hands whole pages back to the kernel; they read as zeros afterwards. False when the kernel keeps
 * them resident (locked memory): their content is then unchanged. */
bool sh_vm_discard(const struct sh_vm *vm, uint64_t offset, uint64_t bytes);

/* Asks for huge pages in a part of the range; without them it works as well, only slower. Then up
 * to SH_HUGE_BYTES around what is touched may be resident without being charged: for long arrays.
 */
void sh_vm_huge(const struct sh_vm *vm, uint64_t offset, uint64_t bytes);
#define SH_HUGE_BYTES (UINT64_C(2) << 20)
/* Has the kernel back a part of the range that nobody uses. It may lose its content. */
void sh_vm_populate(const struct sh_vm *vm, uint64_t offset, uint64_t bytes);
/* Takes huge pages back. False: the kernel can't (too many mappings), and huge pages may come. */
bool sh_vm_small(const struct sh_vm *vm, uint64_t offset, uint64_t bytes);

struct sh_budget {
    _Atomic uint64_t used; /* never above max */
    uint64_t max;
    uint64_t reserve; /* what only charges that may dip may use; below max */
};

/* Charges bytes. False, changing nothing, if they would go over the maximum. may_dip: into the
 * reserve. Any thread. */
static inline bool sh_budget_charge(struct sh_budget *budget, uint64_t bytes, bool may_dip)
{
    /* relaxed: a plain counter; it publishes nothing */
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    do {
        uint64_t max = may_dip ? budget->max : budget->max - budget->reserve;
        if (used > max || bytes > max - used)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->used, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* True when some of the reserve is used. */
static inline bool sh_budget_has_dipped(const struct sh_budget *budget)
{
    return atomic_load_explicit(&budget->used, memory_order_relaxed) >
           budget->max - budget->reserve;
}

static inline void sh_budget_refund(struct sh_budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

#endif
