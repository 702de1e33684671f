/* Inside the table of application locks: slots, orders, and the steps that its calls are made of.
 *
 *   record  one lock or one wait, 80 bytes, in three orders at once: by chunk, by owner, by time
 *   chunk   20 bytes for each chunk that has a record: how many hold it, and the queue
 *   end     a wait that has ended and was not drained
 *
 * Records are found by searching in their orders alone; there is no table by hash. Nothing depends
 * on addresses, so the same calls with the same seed do the same. */
#ifndef SH_STORE_LEASES_INT_H
#define SH_STORE_LEASES_INT_H

#include <stdatomic.h>

#include "base/assert.h"
#include "base/lock.h"
#include "store/leases.h"
#include "store/memory_int.h"

/* --- Slots: leases_slots.c --------------------------------------------------------------- */

/* Slots of one size, named by an index from 1 on; 0 names none. 1024 of them are a piece, whose
 * pages go back to the kernel when its last slot is given back, unless it is the only such piece.
 * The lowest piece that has room is filled first, so that the high ones empty. */
#define SH_LEASE_SLOTS_BITS 10
#define SH_LEASE_SLOTS_OF_PIECE (UINT32_C(1) << SH_LEASE_SLOTS_BITS)

struct sh_lease_slots_piece {
    uint32_t free;  /* index of the first free slot, each of which begins with the next one's */
    uint16_t used;  /* slots in use */
    uint16_t fresh; /* slots from here on were never used since the piece was empty */
};

struct sh_lease_slots {
    struct sh_vm vm;
    struct sh_lease_slots_piece *pieces; /* 8 bytes for 1024 slots */
    uint32_t slot_bytes;                 /* a multiple of 4, so that a piece is whole pages */
    uint32_t slots_max;
    uint32_t used;
    uint32_t room_from; /* no piece below has room */
    uint32_t resident;  /* pieces */
    uint32_t spare;     /* an empty resident piece, or UINT32_MAX */
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_lease_slots_init(struct sh_lease_slots *slots,
                                                   uint32_t slot_bytes, uint32_t slots_max);
/* All zero is allowed. */
void sh_lease_slots_destroy(struct sh_lease_slots *slots);
/* The caller knows that fewer than slots_max are in use. The slot's bytes are whatever they are. */
uint32_t sh_lease_slots_take(struct sh_lease_slots *slots);
void sh_lease_slots_give(struct sh_lease_slots *slots, uint32_t index);
uint64_t sh_lease_slots_bytes(const struct sh_lease_slots *slots);

static inline void *sh_lease_slots_at(const struct sh_lease_slots *slots, uint32_t index)
{
    return slots->vm.at + (uint64_t)(index - 1) * slots->slot_bytes;
}

/* --- What is in them --------------------------------------------------------------------- */

enum sh_lease_order {
    SH_LEASE_BY_CHUNK, /* chunk ID, node ID, token: unique */
    SH_LEASE_BY_OWNER, /* node ID, token, chunk ID: unique */
    SH_LEASE_BY_TIME,  /* deadline, locks before waits, then as by chunk */
    SH_LEASE_ORDERS,
};

struct sh_lease_record {
    uint64_t cid;
    uint64_t token;
    uint64_t deadline_ns;
    uint64_t lease_ns;                  /* of a wait: the lease that it asks for */
    uint64_t cookie;                    /* of a wait */
    uint32_t links[SH_LEASE_ORDERS][2]; /* below it, before and after it */
    uint32_t next, prev;                /* of a wait: in the chunk's queue */
    uint32_t chunk;
    uint16_t nid;
    uint8_t mode;
    uint8_t waiting;
};
_Static_assert(sizeof(struct sh_lease_record) == 80, "docs/store.md tells what a lock costs");

struct sh_lease_chunk {
    uint32_t first, last; /* the queue */
    uint32_t holders;
    uint32_t waiters;
    uint32_t mode; /* of the holders; means nothing without any */
};
_Static_assert(sizeof(struct sh_lease_chunk) == 20, "docs/store.md tells what a lock costs");

struct sh_lease_told {
    struct sh_lease_end end;
    uint32_t next;
    uint32_t zero;
};
_Static_assert(sizeof(struct sh_lease_told) == 56, "docs/store.md tells what a lock costs");

struct sh_leases {
    struct sh_lock lock; /* STORE_LEASES: guards all below */
    struct sh_leases_config config;
    struct sh_lease_slots records;
    struct sh_lease_slots chunks;
    struct sh_lease_slots ends;
    uint32_t roots[SH_LEASE_ORDERS];
    uint32_t ended_first, ended_last;
    struct sh_leases_status status; /* all but chunks, ended and bytes */
    /* Written under the lock, read without it: each alone, so that relaxed will do. What it hints
     * at is looked at under the lock. */
    _Atomic uint32_t records_count;
    _Atomic uint32_t ended_count;
    _Atomic uint64_t due_ns;
};

static inline struct sh_lease_record *sh_lease_record_at(const struct sh_leases *leases,
                                                         uint32_t index)
{
    SH_ASSERT(index != 0);
    return sh_lease_slots_at(&leases->records, index);
}

static inline struct sh_lease_chunk *sh_lease_chunk_at(const struct sh_leases *leases,
                                                       uint32_t index)
{
    SH_ASSERT(index != 0);
    return sh_lease_slots_at(&leases->chunks, index);
}

static inline bool sh_leases_none(const struct sh_leases *leases)
{
    return atomic_load_explicit(&leases->records_count, memory_order_relaxed) == 0;
}

/* --- The orders: leases_order.c; all with the lock held ---------------------------------- */

/* Three treaps over the records. A record's priority is a mix of its index and the table's seed, so
 * each tree's expected depth is 2 ln n whatever is locked in which order. Seidel and Aragon,
 * Randomized Search Trees, 1996; insertion splits and removal joins, without rotations. */
bool sh_lease_less(enum sh_lease_order order, const struct sh_lease_record *a,
                   const struct sh_lease_record *b);
uint64_t sh_lease_priority(const struct sh_leases *leases, uint32_t index);
void sh_lease_insert(struct sh_leases *leases, enum sh_lease_order order, uint32_t index);
void sh_lease_remove(struct sh_leases *leases, enum sh_lease_order order, uint32_t index);
/* The first record that is not before key, or that is after it; 0: there is none. */
uint32_t sh_lease_from(const struct sh_leases *leases, enum sh_lease_order order,
                       const struct sh_lease_record *key);
uint32_t sh_lease_behind(const struct sh_leases *leases, enum sh_lease_order order,
                         const struct sh_lease_record *key);
/* The first of all, or 0. */
uint32_t sh_lease_first(const struct sh_leases *leases, enum sh_lease_order order);

/* --- Steps: leases_steps.c; all with the lock held --------------------------------------- */

/* The record of an owner on a chunk, or 0; any record of a chunk, or 0. */
uint32_t sh_lease_of(const struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner);
uint32_t sh_lease_any_of(const struct sh_leases *leases, shoal_cid cid);
/* now + lease, which never reaches SH_LEASES_NEVER. */
uint64_t sh_lease_deadline(uint64_t now_ns, uint64_t lease_ns);

/* A new lock of the chunk `chunk`, 0: which has no record yet. */
void sh_lease_hold_add(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                       enum sh_lease_mode mode, uint64_t deadline_ns, uint32_t chunk);
/* A new wait at the end of the chunk's queue. */
void sh_lease_wait_add(struct sh_leases *leases, const struct sh_lease_wish *wish, uint32_t chunk);
/* Moves a deadline. */
void sh_lease_deadline_set(struct sh_leases *leases, uint32_t index, uint64_t deadline_ns);
/* The mode of a lock. */
void sh_lease_mode_set(struct sh_leases *leases, uint32_t index, enum sh_lease_mode mode);
/* A wait becomes a lock, and its end is put on the list. */
void sh_lease_grant(struct sh_leases *leases, uint32_t index, uint64_t deadline_ns);
/* Puts the end of a wait on the list; the wait itself stays as it is. */
void sh_lease_tell(struct sh_leases *leases, const struct sh_lease_record *record,
                   enum shoal_err err);

/* These two take a record away, and nothing more: sh_lease_serve or sh_lease_tidy must follow. */
void sh_lease_hold_take(struct sh_leases *leases, uint32_t index);
void sh_lease_wait_end(struct sh_leases *leases, uint32_t index, enum shoal_err err);
/* Ends all waits of a chunk. */
void sh_lease_waits_end(struct sh_leases *leases, uint32_t chunk, enum shoal_err err);

/* Forgets the chunk if nobody holds it or waits for it. */
void sh_lease_tidy(struct sh_leases *leases, uint32_t chunk);
/* Grants the chunk to those at the head of the queue who can have it, then tidies. */
void sh_lease_serve(struct sh_leases *leases, uint32_t chunk, uint64_t now_ns);

/* --- For tests: leases_check.c ----------------------------------------------------------- */

/* Walks everything and aborts where something does not fit. Takes the lock. */
void sh_leases_check(struct sh_leases *leases);

#endif
