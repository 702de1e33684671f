/* A cut (cut.h) inside the store: what sections tell it. */
#ifndef SH_STORE_CUT_INT_H
#define SH_STORE_CUT_INT_H

#include <stdatomic.h>

#include "store/cut.h"
#include "store/memory_int.h"

struct sh_cut_kept; /* old bytes of a chunk */

enum sh_cut_phase {
    SH_CUT_NONE,
    SH_CUT_ARMED,   /* sections are counted; also while it is ARMING */
    SH_CUT_CLOSING, /* sections that begin wait: the reader looks whether one is open */
    SH_CUT_TAKEN,   /* sections keep old bytes */
};

struct sh_cut {
    _Atomic bool was_begun; /* once, ever: else sections have nothing to do with cuts */
    _Atomic unsigned phase;
    /* Sections that are open, since they are counted. */
    _Alignas(64) _Atomic uint64_t open;
    /* TAKEN: sections that look at `settled` or keep bytes at this moment. */
    _Alignas(64) _Atomic uint64_t keeping;
    _Atomic(struct sh_cut_kept *) kept; /* a stack of what is to be handed out */
    _Atomic uint64_t kept_bytes;        /* of these, with SH_CUT_KEPT_COST for each */
    _Atomic enum shoal_err spoiled;     /* something could not be kept */
    uint64_t kept_bytes_max;
    /* Set before TAKEN: a word for each group that there is, 16 bits; first the own ones, then the others by their place in memory. */
    struct sh_vm settled;
    uint64_t own_groups, foreign_groups;
    /* The reader's. */
    shoal_nid own;
    bool is_active, is_armed, is_over;
    bool is_foreign;           /* where it is: own groups are done */
    uint64_t next;             /* group's number */
    uint64_t group;            /* whose chunks are handed out: its number, */
    uint32_t mask;             /* those that are left, */
    struct sh_cut_kept *out;   /* what was kept and is being handed out */
    struct sh_cut_kept *large; /* the first of these, or a chunk that was read, in pieces: */
    uint32_t large_at;         /* so much of it is out */
    struct sh_cut_copy {
        struct sh_cut_kept *into; /* NULL: none is read */
        struct sh_store_reading reading;
        unsigned index;
    } copy;
    uint64_t chunks, payload_bytes, all_bytes;
};

#define SH_CUT_KEPT_COST 64

static inline bool sh_cut_was_begun(const struct sh_cut *cut)
{
    /* relaxed: see "The moment" in cut.c, 2 */
    return __builtin_expect(atomic_load_explicit(&cut->was_begun, memory_order_relaxed), false);
}

struct sh_store;
/* A section begins with a change of a chunk, which it holds; or goes on with the next one. Each is followed by one leave. */
void sh_cut_enter_as(struct sh_store *store, shoal_cid cid, bool is_made);
/* Before the section ends, changed or not. */
void sh_cut_leave_as(struct sh_store *store);

#endif
