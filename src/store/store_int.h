/* The store's inside, shared by the files of its operations. */
#ifndef SH_STORE_STORE_INT_H
#define SH_STORE_STORE_INT_H

#include "store/alloc_int.h"
#include "store/copy_int.h"
#include "store/cut_int.h"
#include "store/foreign_int.h"
#include "store/idpool_int.h"
#include "store/idtable_int.h"
#include "store/store.h"

/* Own chunks have places below it. */
#define SH_OWN_IDS_MAX (UINT64_C(1) << 40)

/* Counters are spread over lines so that threads do not fight for one. */
#define SH_STORE_TALLIES 16

struct sh_tally {
    _Alignas(64) _Atomic uint64_t creates;
    _Atomic uint64_t removes;
    _Atomic uint64_t gets;
    _Atomic uint64_t puts;
    _Atomic uint64_t payload_bytes; /* modulo 2^64: only the sum over all tallies means something */
};

/* One round of defragmentation, by whoever holds `busy`. */
struct sh_defrag {
    _Atomic bool busy;
    bool running; /* between two steps of a round */
    enum sh_defrag_stage {
        SH_DEFRAG_PACK, /* first pass over the groups */
        SH_DEFRAG_MARK, /* which packs to empty */
        SH_DEFRAG_MOVE, /* second pass */
        SH_DEFRAG_TRIM
    } stage;
    struct sh_drain drain;
    uint64_t own_next;           /* next own group */
    uint64_t foreign_next;       /* next foreign group, once the own ones are done */
    uint64_t waste_before;       /* when the round began */
    _Atomic uint64_t waste_left; /* what the last round could not remove */
};

struct sh_store {
    struct sh_idtable table;
    struct sh_foreign foreign;
    struct sh_alloc *alloc;
    const struct sh_store_witness *witness; /* NULL: none; else witness_own */
    struct sh_ready *ready;                 /* NULL: huge pages are touched where they are used */
    struct sh_idpool *pool;
    _Atomic uint32_t nid;
    uint32_t chunk_bytes_max;
    uint64_t
        ids_base; /* local IDs up to this one were an earlier life's; set before the first create */
    struct sh_alloc alloc_own;
    struct sh_idpool pool_own;
    struct sh_budget budget;
    struct sh_defrag defrag;
    _Atomic uint64_t arrivals;   /* chunks that were adopted or taken over */
    _Atomic uint64_t longs_made; /* blocks of long chunks, ever */
    struct sh_store_witness witness_own;
    struct sh_cut cut;
    struct sh_tally tallies[SH_STORE_TALLIES];
};

/* ready.c: a thread that makes huge pages ready from now on. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_ready_open(struct sh_alloc *alloc, struct sh_ready **ready_out);
/* NULL is allowed. */
void sh_ready_close(struct sh_ready *ready);

/* The calling thread's tally. */
struct sh_tally *sh_store_tally(struct sh_store *store);

static inline void sh_tally_add(_Atomic uint64_t *counter, uint64_t count)
{
    /* relaxed: a plain counter; it publishes nothing */
    atomic_fetch_add_explicit(counter, count, memory_order_relaxed);
}

static inline shoal_nid sh_store_nid(const struct sh_store *store)
{
    /* relaxed: set once, before it matters */
    return (shoal_nid){(uint16_t)atomic_load_explicit(&store->nid, memory_order_relaxed)};
}

/* An own chunk is in the table, at its local ID less the base; 0 stays 0, and what an earlier life has
 * created is kept like another node's. */
static inline bool sh_store_is_own(const struct sh_store *store, shoal_cid cid)
{
    uint16_t creator = shoal_cid_creator(cid).v;
    uint64_t local = shoal_cid_local(cid);
    return (creator == 0 || creator == sh_store_nid(store).v) &&
           (local > store->ids_base || local == 0);
}

/* The place of an own chunk in the table. */
static inline uint64_t sh_store_place(const struct sh_store *store, shoal_cid cid)
{
    uint64_t local = shoal_cid_local(cid);
    return local ? local - store->ids_base : 0;
}

/* The ID of the chunk at a place, with that node ID or none. */
static inline shoal_cid sh_store_cid(const struct sh_store *store, shoal_nid nid, uint64_t place)
{
    return shoal_cid_make(nid, place ? place + store->ids_base : 0);
}

/* The chunk's group, or NULL where there is none. */
static inline struct sh_group *sh_store_group(const struct sh_store *store, shoal_cid cid)
{
    return sh_store_is_own(store, cid) ? sh_idtable_find(&store->table, sh_store_place(store, cid))
                                       : sh_foreign_find(&store->foreign, cid.v >> SH_GROUP_BITS);
}

static inline unsigned sh_store_index(shoal_cid cid)
{
    return (unsigned)(cid.v & (SH_GROUP_IDS - 1));
}

/* Where a chunk is that the caller holds, by its write bit or its group's layout bit. */
struct sh_spot {
    uint8_t *at;
    uint32_t size;
    uint64_t long_block; /* offset of its own block; 0: it is in the group's */
    uint32_t pins;
    _Atomic uint64_t *stamp; /* of a long chunk (sh_long_stamp); else NULL */
};
/* False when there is no such chunk. */
bool sh_store_spot(const struct sh_store *store, const struct sh_layout *layout, unsigned index,
                   struct sh_spot *spot_out);

/* Finds a chunk and holds it by its write bit; ENOCHUNK holds nothing. */
struct sh_hold {
    struct sh_group *group;
    unsigned index;
    struct sh_spot spot;
};
SHOAL_NODISCARD enum shoal_err sh_store_hold(struct sh_store *store, shoal_cid cid,
                                             struct sh_hold *hold_out);
static inline void sh_store_let_go(struct sh_hold *hold, bool is_changed)
{
    /* relaxed: the write bit's holder alone writes it, and its end publishes it */
    if (is_changed && hold->spot.stamp)
        atomic_store_explicit(hold->spot.stamp,
                              atomic_load_explicit(hold->spot.stamp, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    sh_group_write_end(hold->group, hold->index, is_changed);
}

/* A change of a group whose layout bit the caller holds. */
struct sh_change {
    struct sh_layout before;
    struct sh_layout after;   /* its block is set by sh_group_change */
    uint32_t total;           /* footprints afterwards */
    uint16_t existed, exists; /* which chunks do */
    uint16_t mediums;         /* which are medium ones afterwards */
    uint16_t was[16], is[16]; /* footprints before and after */
    uint16_t mask;            /* who changes */
    const void *sources[16];  /* of these: footprint bytes of new content; NULL: zeros */
    uint32_t expected; /* bytes of a chunk that is still to come; 0: as the others on average */
    bool may_dip;
    bool tight; /* to a new block without room to grow, though there is room in the old one */
};
void sh_change_begin(const struct sh_store *store, const struct sh_group *group,
                     struct sh_change *change_out);
/* The chunk becomes one of at most SH_PACKED_CHUNK_MAX bytes. */
void sh_change_chunk(struct sh_change *change, unsigned index, uint32_t size, const void *source);
/* The chunk has a block of its own, at *offset. */
void sh_change_long(struct sh_change *change, unsigned index, const uint64_t *offset);
/* Begins a change of a chunk that exists, with its group held. ENOCHUNK holds nothing. */
SHOAL_NODISCARD enum shoal_err sh_chunk_change_begin(struct sh_store *store, shoal_cid cid,
                                                     struct sh_group **group_out,
                                                     struct sh_change *change_out,
                                                     struct sh_spot *spot_out);
/* SH_CODE_ABSENT or SH_CODE_RESERVED. */
void sh_change_none(struct sh_change *change, unsigned index, unsigned code);
/* Bytes that the group's block must have afterwards. */
uint32_t sh_change_total(const struct sh_change *change);
/* EFULL changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_group_change(struct sh_store *store, struct sh_group *group,
                                               struct sh_change *change);

/* Makes a block for a long chunk whose bytes are still to be written, all of them. EFULL. */
SHOAL_NODISCARD enum shoal_err sh_long_open(struct sh_store *store, uint32_t size, bool may_dip,
                                            uint64_t *offset_out);
/* Writes a part of them: of data, or zeros where that is NULL. */
void sh_long_write(struct sh_store *store, uint64_t block, uint32_t at, const void *data,
                   uint32_t size);
/* Both: of these bytes, or of zeros where data is NULL. EFULL. */
SHOAL_NODISCARD enum shoal_err sh_long_make(struct sh_store *store, const void *data, uint32_t size,
                                            bool may_dip, uint64_t *offset_out);
/* Makes the chunk of a reserved ID of such a block, which it takes, and whose bytes the witness, if
 * there is one, has been told; that ends. As sh_store_fill. */
SHOAL_NODISCARD enum shoal_err sh_long_fill(struct sh_store *store, shoal_cid cid, uint64_t block,
                                            uint32_t size, struct sh_store_telling *telling);
void sh_long_free(struct sh_store *store, uint64_t offset, uint32_t size);

static inline _Atomic uint64_t *sh_long_header(const struct sh_store *store, uint64_t offset)
{
    return (_Atomic uint64_t *)(void *)sh_alloc_at(store->alloc, offset);
}

static inline uint8_t *sh_long_bytes(const struct sh_store *store, uint64_t offset)
{
    return sh_alloc_at(store->alloc, offset) + SH_LONG_HEADER;
}

/* What says whether a long chunk is as it was: no two blocks are made with the same, and each write
 * to one adds 1. */
#define SH_LONG_WRITES_BITS 32
static inline _Atomic uint64_t *sh_long_stamp(const struct sh_store *store, uint64_t offset)
{
    return sh_long_header(store, offset) + 1;
}

/* Notes for sh_store_shortage_last what could not be had. Returns EFULL. */
enum shoal_err sh_store_short(struct sh_store *store, uint64_t needed_bytes);

/* Which bytes a long chunk had at some moment: where two marks are the same, the bytes are. */
struct sh_mark {
    uint64_t block; /* 0: it was not long, so nothing is known */
    uint64_t stamp;
};
static inline struct sh_mark sh_mark_of(const struct sh_store *store, const struct sh_spot *spot)
{
    struct sh_mark mark = {.block = spot->long_block};
    /* relaxed: read before the check that nothing has changed since the chunk was looked up */
    if (mark.block)
        mark.stamp = atomic_load_explicit(sh_long_stamp(store, mark.block), memory_order_relaxed);
    return mark;
}
static inline bool sh_mark_is(struct sh_mark a, struct sh_mark b)
{
    return a.block != 0 && a.block == b.block && a.stamp == b.stamp;
}
/* Copies a part, and says of which bytes. ENOCHUNK, ESIZE. */
SHOAL_NODISCARD enum shoal_err sh_store_copy_part(struct sh_store *store, shoal_cid cid,
                                                  uint32_t offset, void *into, uint32_t size,
                                                  uint32_t *whole_out, struct sh_mark *mark_out);

/* sh_store_get and sh_store_put without counting; remove and resize without giving back the ID. */
SHOAL_NODISCARD enum shoal_err sh_store_copy_out(struct sh_store *store, shoal_cid cid, void *into,
                                                 size_t room, uint32_t *size_out);
SHOAL_NODISCARD enum shoal_err sh_store_copy_in(struct sh_store *store, shoal_cid cid,
                                                struct sh_bytes data);
/* As sh_store_adopt. retain: of an own ID but 0, which the caller retains where it succeeds. telling: the
 * witness has been told the bytes, which ends here where it has begun; or NULL. */
SHOAL_NODISCARD enum shoal_err sh_store_adopt_as(struct sh_store *store, shoal_cid cid,
                                                 struct sh_bytes data, bool retain,
                                                 struct sh_store_telling *telling);
/* code: what the ID's becomes, SH_CODE_ABSENT or SH_CODE_RESERVED; event: what the witness is told. */
SHOAL_NODISCARD enum shoal_err sh_store_drop(struct sh_store *store, shoal_cid cid, unsigned code,
                                             enum sh_store_event event, uint32_t *size_out);

/* Adds to a field of width 4 or 8 bytes in the store's memory, which the caller holds; returns what was
 * there. */
static inline uint64_t sh_field_add(uint8_t *at, unsigned width, uint64_t delta)
{
    uint8_t bytes[8];
    sh_copy_out(bytes, at, width);
    uint64_t old = width == 4 ? sh_load32(bytes) : sh_load64(bytes);
    if (width == 4)
        sh_store32(bytes, (uint32_t)(old + delta));
    else
        sh_store64(bytes, old + delta);
    sh_copy_in(at, bytes, width);
    return old;
}

#endif
