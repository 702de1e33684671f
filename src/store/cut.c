/* Cuts: what sections do, and the reader.
 *
 * The moment.
 *   1. The reader says ARMED, and only then looks at a group (all of this is seq_cst, and a section's hold of its chunk, a locked instruction,
 *      with the fence behind it, is a full barrier on the machines that we know).
 *   2. A section holds its chunk before it looks at was_begun and the phase. If it has not seen ARMED it held the chunk before 1, and the
 *      reader, that sees each group once with nobody's old bit in it, sees that one when the section is over.
 *   3. So when the pass is over, each open section is counted, or began in CLOSING, and waits.
 *   4. A section counts itself, and looks once more: the reader, that says CLOSING and then looks at the count, has either seen it, or the section has
 *      seen CLOSING, and takes itself out again.
 *   5. So where the reader sees none in CLOSING, none is open but those that wait, before they have changed anything: this is the moment. What ended before is in
 *      the cut, all else is not.
 *
 * A chunk is handed out as it was.
 *   6. Whoever sets its bit decides what: the reader, once it has a whole copy, or a section, before it changes the chunk.
 *   7. If the reader sets it, the copy is of before that, and no section that changes the chunk after the moment has passed its own look at
 *      the bit by then: the copy is what was there at the moment.
 *   8. Else the section has kept what was there, as nobody else has changed it since the moment: whoever had would have set the bit.
 *   9. The reader is over when it has seen all groups, and then nobody in `keeping`, and then nothing that is kept. */
#include "store/cut_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/lock.h"
#include "store/store_int.h"

#define GROUP_COST 16u
#define CHUNK_COST 64u
#define PIECE_BYTES_LEAST 4096u /* less room than that is none */
#define CLOSING_SPINS 4096u
#define HELD (SH_GROUP_LAYOUT | SH_GROUP_WRITERS)

struct sh_cut_kept {
    struct sh_cut_kept *next;
    shoal_cid cid; /* as in the records */
    uint32_t size;
    uint8_t bytes[];
};

/* Changes of the section that the thread is in, since it was counted. */
static _Thread_local unsigned depth;

/* --- Sections -------------------------------------------------------------------------------- */

/* The group's word in `settled`; NULL: it came after the moment. */
static _Atomic uint16_t *word_of(const struct sh_store *store, const struct sh_group *group)
{
    const struct sh_cut *cut = &store->cut;
    const uint8_t *at = (const uint8_t *)group;
    const struct sh_vm *own = &store->table.vm, *foreign = &store->foreign.vm;
    uint64_t number;
    if (at >= own->at && at < own->at + own->bytes) {
        number = (uint64_t)(at - own->at) / sizeof(struct sh_group);
        if (number >= cut->own_groups)
            return NULL;
    } else {
        SH_ASSERT(at >= foreign->at && at < foreign->at + foreign->bytes);
        number = (uint64_t)(at - foreign->at) / sizeof(struct sh_group);
        if (number >= cut->foreign_groups)
            return NULL;
        number += cut->own_groups;
    }
    return (_Atomic uint16_t *)(void *)cut->settled.at + number;
}

/* Settles a chunk. False: it was settled. */
static bool settle(const struct sh_store *store, const struct sh_group *group, unsigned index)
{
    _Atomic uint16_t *word = word_of(store, group);
    uint16_t bit = (uint16_t)(1u << index);
    /* relaxed: bits are only ever set */
    if (!word || atomic_load_explicit(word, memory_order_relaxed) & bit)
        return false;
    return !(atomic_fetch_or(word, bit) & bit);
}

static shoal_cid cid_in_records(const struct sh_store *store, shoal_cid cid)
{
    return sh_store_is_own(store, cid)
               ? sh_store_cid(store, store->cut.own, sh_store_place(store, cid))
               : cid;
}

static void spoil(struct sh_cut *cut, enum shoal_err err)
{
    atomic_store(&cut->spoiled, err);
}

static void kept_push(struct sh_cut *cut, struct sh_cut_kept *kept)
{
    kept->next = atomic_load(&cut->kept);
    while (!atomic_compare_exchange_weak(&cut->kept, &kept->next, kept))
        continue;
}

/* Keeps the bytes of a chunk that the thread holds. */
static void bytes_keep(struct sh_store *store, shoal_cid cid, const struct sh_spot *spot)
{
    struct sh_cut *cut = &store->cut;
    uint64_t cost = (uint64_t)spot->size + SH_CUT_KEPT_COST;
    if (atomic_load(&cut->spoiled))
        return;
    if (atomic_fetch_add(&cut->kept_bytes, cost) + cost > cut->kept_bytes_max) {
        atomic_fetch_sub(&cut->kept_bytes, cost);
        spoil(cut, SHOAL_ELIMIT);
        return;
    }
    struct sh_cut_kept *kept = malloc(sizeof *kept + spot->size);
    if (!kept) {
        atomic_fetch_sub(&cut->kept_bytes, cost);
        spoil(cut, SHOAL_ENOMEM);
        return;
    }
    kept->cid = cid_in_records(store, cid);
    kept->size = spot->size;
    sh_copy_out(kept->bytes, spot->at, spot->size);
    kept_push(cut, kept);
}

/* The chunk is about to be changed. False: the cut has just ended. */
static bool keep(struct sh_store *store, shoal_cid cid, bool is_made)
{
    struct sh_cut *cut = &store->cut;
    struct sh_group *group = sh_store_group(store, cid);
    unsigned index = sh_store_index(cid);
    SH_ASSERT(group);
    atomic_fetch_add(&cut->keeping, 1);
    bool is_taken = atomic_load(&cut->phase) == SH_CUT_TAKEN;
    if (is_taken && settle(store, group, index) && !is_made) {
        struct sh_layout layout = sh_group_layout(group);
        struct sh_spot spot;
        bool is_there = sh_store_spot(store, &layout, index, &spot);
        SH_ASSERT(is_there);
        bytes_keep(store, cid, &spot);
    }
    atomic_fetch_sub(&cut->keeping, 1);
    return is_taken;
}

void sh_cut_enter_as(struct sh_store *store, shoal_cid cid, bool is_made)
{
    struct sh_cut *cut = &store->cut;
    unsigned spins = 0;
    if (depth > 0) {
        depth++;
        return;
    }
    for (;;) {
        switch ((enum sh_cut_phase)atomic_load(&cut->phase)) {
        case SH_CUT_NONE:
            return;
        case SH_CUT_ARMED:
            atomic_fetch_add(&cut->open, 1);
            if (atomic_load(&cut->phase) == SH_CUT_ARMED) {
                depth = 1;
                return;
            }
            atomic_fetch_sub(&cut->open, 1);
            break;
        case SH_CUT_CLOSING:
            sh_spin_wait(&spins);
            break;
        case SH_CUT_TAKEN:
            if (keep(store, cid, is_made))
                return;
            break;
        }
    }
}

void sh_cut_leave_as(struct sh_store *store)
{
    if (depth > 0 && --depth == 0)
        atomic_fetch_sub(&store->cut.open, 1);
}

/* --- Towards the moment ------------------------------------------------------------------------ */

/* The group at hand of the own ones, and then of the others; NULL: there are no more. */
static struct sh_group *group_at_hand(struct sh_store *store)
{
    struct sh_cut *cut = &store->cut;
    if (!cut->is_foreign) {
        struct sh_group *group = sh_idtable_find(&store->table, cut->next << SH_GROUP_BITS);
        bool is_behind = cut->is_armed && cut->next >= cut->own_groups;
        if (group && !is_behind)
            return group;
        cut->is_foreign = true;
        cut->next = 0;
    }
    return sh_foreign_next(&store->foreign, cut->next, UINT64_MAX, &cut->next);
}

static void walk_begin(struct sh_cut *cut)
{
    cut->is_foreign = false;
    cut->next = 0;
    cut->mask = 0;
}

/* Sees groups with nobody in them who was there before. `mask` has who was still there of the group at hand. */
static unsigned arm_some(struct sh_store *store, unsigned budget)
{
    struct sh_cut *cut = &store->cut;
    unsigned done = 0;
    while (done < budget) {
        const struct sh_group *group = group_at_hand(store);
        if (!group) {
            cut->is_armed = true;
            walk_begin(cut);
            return done + 1;
        }
        uint32_t held = (uint32_t)(atomic_load(&group->sequence) & HELD);
        cut->mask = cut->mask ? cut->mask & held : held;
        if (cut->mask)
            return done;
        cut->next++;
        done += GROUP_COST;
    }
    return done;
}

/* Says what there is at the moment. No section is open. */
static enum shoal_err bounds_take(struct sh_store *store)
{
    struct sh_cut *cut = &store->cut;
    uint64_t limit = sh_idtable_limit(&store->table);
    cut->own_groups = (limit + SH_GROUP_IDS - 1) >> SH_GROUP_BITS;
    cut->foreign_groups = sh_foreign_bytes(&store->foreign) / sizeof(struct sh_group);
    return sh_vm_reserve((cut->own_groups + cut->foreign_groups + 1) * sizeof(uint16_t),
                         &cut->settled);
}

/* Tries to have the moment now. */
static void moment_try(struct sh_store *store)
{
    struct sh_cut *cut = &store->cut;
    enum shoal_err err = SHOAL_OK;
    bool is_none = false;
    atomic_store(&cut->phase, SH_CUT_CLOSING);
    for (unsigned i = 0; !is_none && i < CLOSING_SPINS; i++)
        is_none = atomic_load(&cut->open) == 0;
    if (is_none)
        err = bounds_take(store);
    if (err)
        spoil(cut, err);
    atomic_store(&cut->phase, is_none && !err ? SH_CUT_TAKEN : SH_CUT_ARMED);
}

/* --- Records ----------------------------------------------------------------------------------- */

static size_t room_of(const struct sh_writer *w)
{
    return (size_t)(w->end - w->at);
}

static void head_put(struct sh_writer *w, shoal_cid cid, uint32_t size)
{
    sh_put64(w, cid.v);
    sh_put32(w, size);
}

static void counted(struct sh_cut *cut, uint32_t size)
{
    cut->chunks++;
    cut->payload_bytes += size;
}

/* The next piece of `large`. False: no room. */
static bool piece_put(struct sh_cut *cut, struct sh_writer *w, unsigned *done_inout)
{
    struct sh_cut_kept *large = cut->large;
    uint32_t left = large->size - cut->large_at;
    uint32_t least = left < PIECE_BYTES_LEAST ? left : PIECE_BYTES_LEAST;
    if (room_of(w) < SH_CUT_PIECE_RECORD_BYTES + least)
        return false;
    size_t room = room_of(w) - SH_CUT_PIECE_RECORD_BYTES;
    uint32_t some = left < room ? left : (uint32_t)room;
    head_put(w, large->cid, large->size | SH_CUT_PIECE);
    sh_put32(w, cut->large_at);
    sh_put32(w, some);
    sh_put_raw(w, sh_bytes_make(large->bytes + cut->large_at, some));
    SH_ASSERT(sh_writer_ok(w));
    cut->large_at += some;
    *done_inout += some + CHUNK_COST;
    if (cut->large_at == large->size) {
        counted(cut, large->size);
        cut->large = NULL;
        free(large);
    }
    return true;
}

/* The first of what was kept. False: no room. */
static bool kept_put(struct sh_cut *cut, struct sh_writer *w, unsigned *done_inout)
{
    struct sh_cut_kept *kept = cut->out;
    bool is_large = kept->size > SH_CUT_LARGE_BYTES;
    if (!is_large && room_of(w) < SH_CUT_RECORD_BYTES + (size_t)kept->size)
        return false;
    cut->out = kept->next;
    atomic_fetch_sub(&cut->kept_bytes, (uint64_t)kept->size + SH_CUT_KEPT_COST);
    if (is_large) {
        cut->large = kept;
        cut->large_at = 0;
        return true;
    }
    head_put(w, kept->cid, kept->size);
    sh_put_raw(w, sh_bytes_make(kept->bytes, kept->size));
    SH_ASSERT(sh_writer_ok(w));
    counted(cut, kept->size);
    *done_inout += kept->size + CHUNK_COST;
    free(kept);
    return true;
}

/* The ID of a chunk of the group at hand, as the store takes it. */
static shoal_cid cid_of(const struct sh_store *store, unsigned index)
{
    uint64_t at = (store->cut.group << SH_GROUP_BITS) + index;
    return store->cut.is_foreign ? (shoal_cid){at} : sh_store_cid(store, SHOAL_NID_NONE, at);
}

static const struct sh_group *group_of(const struct sh_store *store)
{
    const struct sh_cut *cut = &store->cut;
    return cut->is_foreign ? sh_foreign_find(&store->foreign, cut->group)
                           : (struct sh_group *)store->table.vm.at + cut->group;
}

/* Begins to copy a chunk that is too long to be copied at once. */
static void copy_begin(struct sh_store *store, shoal_cid cid, uint32_t size, unsigned index)
{
    struct sh_cut *cut = &store->cut;
    struct sh_cut_kept *into = malloc(sizeof *into + size);
    if (!into) {
        spoil(cut, SHOAL_ENOMEM);
        return;
    }
    *into = (struct sh_cut_kept){.cid = cid_in_records(store, cid), .size = size};
    cut->copy.into = into;
    cut->copy.index = index;
    cut->copy.reading =
        (struct sh_store_reading){.cid = cid, .into = into->bytes, .size = size, .is_whole = true};
}

/* A piece of that copy. Of another size by now, or gone, it was changed, and is kept or came after the moment. */
static void copy_some(struct sh_store *store, unsigned *done_inout)
{
    struct sh_cut *cut = &store->cut;
    struct sh_cut_kept *into = cut->copy.into;
    enum shoal_err err;
    *done_inout += SH_STORE_STEP_BYTES;
    if (!sh_store_reading_step(store, &cut->copy.reading, &err))
        return;
    cut->copy.into = NULL;
    cut->mask &= ~(1u << cut->copy.index);
    if (!err && settle(store, group_of(store), cut->copy.index)) {
        cut->large = into;
        cut->large_at = 0;
        return;
    }
    free(into);
}

/* The next chunk of the group at hand. False: no room. */
static bool chunk_put(struct sh_store *store, struct sh_writer *w, unsigned *done_inout)
{
    struct sh_cut *cut = &store->cut;
    unsigned index = (unsigned)__builtin_ctz(cut->mask);
    shoal_cid cid = cid_of(store, index);
    uint32_t size = 0;
    if (room_of(w) < SH_CUT_RECORD_BYTES)
        return false;
    size_t room = room_of(w) - SH_CUT_RECORD_BYTES;
    enum shoal_err err =
        sh_store_copy_out(store, cid, w->at + SH_CUT_RECORD_BYTES,
                          room < SH_CUT_LARGE_BYTES ? room : SH_CUT_LARGE_BYTES, &size);
    *done_inout += CHUNK_COST;
    if (err == SHOAL_ESIZE && size > SH_CUT_LARGE_BYTES) {
        copy_begin(store, cid, size, index);
        return true;
    }
    if (err == SHOAL_ESIZE)
        return false;
    cut->mask &= cut->mask - 1;
    if (err || !settle(store, group_of(store), index))
        return true;
    head_put(w, cid_in_records(store, cid), size);
    (void)sh_writer_take(w, size); /* they are there */
    SH_ASSERT(sh_writer_ok(w));
    counted(cut, size);
    *done_inout += size;
    return true;
}

/* Goes to the next group. False: there is none. */
static bool group_next(struct sh_store *store, unsigned *done_inout)
{
    struct sh_cut *cut = &store->cut;
    const struct sh_group *group = group_at_hand(store);
    if (!group)
        return false;
    *done_inout += GROUP_COST;
    cut->group = cut->next++;
    if (!word_of(store, group))
        return true;
    struct sh_layout layout = sh_group_layout(group);
    for (unsigned i = 0; i < SH_GROUP_IDS; i++)
        cut->mask |= (uint32_t)(sh_layout_code(&layout, i) >= SH_CODE_FIRST) << i;
    if (!cut->is_foreign && cut->group == 0)
        cut->mask &= ~1u; /* the chunk of names */
    return true;
}

/* Takes what was kept meanwhile. False: nothing. */
static bool kept_take(struct sh_cut *cut)
{
    cut->out = atomic_exchange(&cut->kept, NULL);
    return cut->out;
}

/* All groups were seen: is it over? */
static bool is_at_end(struct sh_cut *cut)
{
    if (atomic_load(&cut->keeping))
        return false;
    return !kept_take(cut);
}

static void over(struct sh_cut *cut)
{
    cut->is_over = true;
    atomic_store(&cut->phase, SH_CUT_NONE);
}

/* One more record, or what brings it nearer. False: no room, or it is over. */
static bool record_next(struct sh_store *store, struct sh_writer *w, unsigned *done_inout,
                        bool *is_full_out)
{
    struct sh_cut *cut = &store->cut;
    bool has_room = true;
    if (cut->large) {
        has_room = piece_put(cut, w, done_inout);
    } else if (cut->out) {
        has_room = kept_put(cut, w, done_inout);
    } else if (cut->copy.into) {
        copy_some(store, done_inout);
    } else if (cut->mask) {
        has_room = chunk_put(store, w, done_inout);
    } else if (!kept_take(cut) && !group_next(store, done_inout) && is_at_end(cut)) {
        over(cut);
        return false;
    }
    (*done_inout)++;
    *is_full_out = !has_room;
    return has_room;
}

/* --- The reader -------------------------------------------------------------------------------- */

static bool is_taken(const struct sh_cut *cut)
{
    return cut->settled.at != NULL;
}

enum shoal_err sh_cut_begin(struct sh_store *store, shoal_nid own, uint64_t kept_bytes_max)
{
    struct sh_cut *cut = &store->cut;
    struct sh_store_status status;
    if (cut->is_active)
        return SHOAL_EBUSY;
    SH_ASSERT(!cut->settled.at && !cut->out && !cut->large && !cut->copy.into);
    sh_store_status_get(store, &status);
    cut->is_active = true;
    cut->is_armed = cut->is_over = false;
    cut->own = own;
    cut->kept_bytes_max = kept_bytes_max;
    cut->chunks = cut->payload_bytes = 0;
    cut->all_bytes = status.payload_bytes;
    atomic_store(&cut->spoiled, SHOAL_OK);
    walk_begin(cut);
    atomic_store(&cut->phase, SH_CUT_ARMED);
    atomic_store(&cut->was_begun, true);
    atomic_thread_fence(memory_order_seq_cst); /* 1 */
    return SHOAL_OK;
}

unsigned sh_cut_fill(struct sh_store *store, struct sh_writer *w, unsigned budget,
                     bool *is_full_out)
{
    struct sh_cut *cut = &store->cut;
    unsigned done = 0;
    *is_full_out = false;
    SH_ASSERT(cut->is_active);
    if (cut->is_over)
        return 0;
    if (!cut->is_armed)
        return arm_some(store, budget);
    if (!is_taken(cut))
        moment_try(store);
    while (done < budget && is_taken(cut) && !atomic_load(&cut->spoiled) &&
           record_next(store, w, &done, is_full_out))
        continue;
    if (atomic_load(&cut->spoiled))
        over(cut);
    return done;
}

struct sh_cut_state sh_cut_state_get(const struct sh_store *store)
{
    const struct sh_cut *cut = &store->cut;
    return (struct sh_cut_state){.is_taken = is_taken(cut),
                                 .is_over = cut->is_over,
                                 .err = atomic_load(&cut->spoiled),
                                 .chunks = cut->chunks,
                                 .payload_bytes = cut->payload_bytes,
                                 .all_bytes = cut->all_bytes};
}

static void list_free(struct sh_cut_kept *list)
{
    while (list) {
        struct sh_cut_kept *next = list->next;
        free(list);
        list = next;
    }
}

void sh_cut_end(struct sh_store *store)
{
    struct sh_cut *cut = &store->cut;
    unsigned spins = 0;
    if (!cut->is_active)
        return;
    atomic_store(&cut->phase, SH_CUT_NONE);
    while (atomic_load(&cut->keeping))
        sh_spin_wait(&spins);
    sh_vm_release(&cut->settled);
    cut->settled = (struct sh_vm){0};
    list_free(cut->out);
    list_free(atomic_exchange(&cut->kept, NULL));
    free(cut->large);
    free(cut->copy.into);
    cut->out = cut->large = cut->copy.into = NULL;
    atomic_store(&cut->kept_bytes, 0);
    cut->is_active = false;
}

uint64_t sh_store_arrivals(const struct sh_store *store)
{
    return atomic_load(&store->arrivals);
}

/* --- Reading records --------------------------------------------------------------------------- */

bool sh_cut_record_get(struct sh_reader *r, struct sh_cut_record *record_out)
{
    if (sh_reader_left(r) == 0)
        return false;
    struct sh_cut_record record = {.cid = {sh_get64(r)}};
    uint32_t size = sh_get32(r);
    bool is_piece = size & SH_CUT_PIECE;
    record.size = size & ~SH_CUT_PIECE;
    record.offset = is_piece ? sh_get32(r) : 0;
    uint32_t count = is_piece ? sh_get32(r) : record.size;
    record.bytes = sh_bytes_make(sh_reader_take(r, count), count);
    bool is_good = is_piece
                       ? record.size > SH_CUT_LARGE_BYTES && count > 0 &&
                             record.offset < record.size && count <= record.size - record.offset
                       : record.size <= SH_CUT_LARGE_BYTES;
    if (!is_good || shoal_cid_local(record.cid) == 0 || shoal_cid_creator(record.cid).v == 0)
        r->bad = true;
    if (!sh_reader_ok(r))
        return false;
    *record_out = record;
    return true;
}
