/* Defragmentation in rounds of two passes over all groups. The first packs each group's block and
 * folds unpinned chunks back, which leaves holes in the packs. Then the emptiest packs are marked,
 * as many as there is room to copy; the second pass moves what is in them, and free slots go to the
 * kernel. A group is looked at under its layout bit, for at most a copy of its block and of its
 * long chunks up to 256 KiB. */
#include "base/assert.h"
#include "store/store_int.h"

#define WASTE_LEAST (UINT64_C(1) << 20)
#define WASTE_SHARE 16

struct moves {
    uint64_t pointers[SH_GROUP_IDS];
    struct sh_spot freed[SH_GROUP_IDS];
    unsigned freed_count;
    uint64_t made[SH_GROUP_IDS]; /* blocks of freed[i]'s size that replace it; 0: folded */
};

/* Folds or moves one long chunk where that saves something. */
static void long_move(struct sh_store *store, struct sh_change *change, unsigned index,
                      struct moves *moves)
{
    struct sh_spot spot;
    if (!sh_store_spot(store, &change->before, index, &spot) || spot.pins > 0)
        return;
    unsigned nth = moves->freed_count;
    if (spot.size <= SH_PACKED_CHUNK_MAX) {
        sh_change_chunk(change, index, spot.size, spot.at);
        moves->made[nth] = 0;
    } else {
        if (spot.size + SH_LONG_HEADER > SH_PACKED_MAX ||
            !sh_alloc_is_draining(store->alloc, spot.long_block) ||
            sh_long_make(store, spot.at, spot.size, true, &moves->pointers[index]) != SHOAL_OK)
            return;
        moves->made[nth] = moves->pointers[index];
        sh_change_long(change, index, &moves->pointers[index]);
    }
    moves->freed[nth] = spot;
    moves->freed_count++;
}

/* True when the group's block should be another. */
static bool block_moves(const struct sh_store *store, const struct sh_change *change)
{
    uint32_t capacity = sh_layout_capacity(&change->before);
    if (capacity == 0)
        return false;
    return sh_alloc_block_bytes(sh_change_total(change)) < capacity ||
           sh_alloc_is_draining(store->alloc, sh_layout_offset(&change->before));
}

static void group_pack(struct sh_store *store, struct sh_group *group)
{
    struct sh_layout seen = sh_group_layout(group);
    if (sh_layout_capacity(&seen) == 0)
        return;
    struct moves moves = {.freed_count = 0};
    struct sh_change change;
    sh_group_layout_begin(group);
    sh_change_begin(store, group, &change);
    /* The reserve is for what frees more than it takes: emptying packs. */
    change.may_dip = sh_alloc_is_draining(store->alloc, sh_layout_offset(&change.before));
    for (unsigned i = 0; i < SH_GROUP_IDS; i++)
        if (sh_layout_code(&change.before, i) == SH_CODE_LONG)
            long_move(store, &change, i, &moves);
    change.tight = block_moves(store, &change);
    bool is_changed =
        (change.tight || change.mask != 0) && sh_group_change(store, group, &change) == SHOAL_OK;
    sh_group_layout_end(group, is_changed);
    for (unsigned i = 0; i < moves.freed_count; i++) {
        const struct sh_spot *spot = &moves.freed[i];
        if (is_changed)
            sh_long_free(store, spot->long_block, spot->size);
        else if (moves.made[i])
            sh_long_free(store, moves.made[i], spot->size);
    }
}

static uint64_t payload_of(const struct sh_store *store)
{
    uint64_t payload = 0;
    for (unsigned i = 0; i < SH_STORE_TALLIES; i++)
        payload += atomic_load_explicit(&store->tallies[i].payload_bytes, memory_order_relaxed);
    return payload;
}

static uint64_t waste_of(const struct sh_store *store)
{
    uint64_t touched = sh_alloc_status_get(store->alloc).touched_bytes;
    uint64_t payload = payload_of(store);
    return touched > payload ? touched - payload : 0;
}

bool sh_store_waste_is_high(const struct sh_store *store)
{
    uint64_t least = payload_of(store) / WASTE_SHARE;
    uint64_t left = atomic_load_explicit(&store->defrag.waste_left, memory_order_relaxed);
    if (least < WASTE_LEAST)
        least = WASTE_LEAST;
    /* What the last round could not remove is no reason for another. */
    return waste_of(store) > least + left;
}

/* Goes over up to `budget` groups from where the round is; false when that was the last. */
static bool groups_pack(struct sh_store *store, unsigned budget, unsigned *seen)
{
    struct sh_defrag *defrag = &store->defrag;
    while (*seen < budget) {
        struct sh_group *group = sh_idtable_find(&store->table, defrag->own_next << SH_GROUP_BITS);
        if (group) {
            defrag->own_next++;
        } else {
            uint64_t number;
            group = sh_foreign_next(&store->foreign, defrag->foreign_next, UINT64_MAX, &number);
            if (!group)
                return false;
            defrag->foreign_next = number + 1;
        }
        group_pack(store, group);
        ++*seen;
    }
    return true;
}

static void pass_begin(struct sh_defrag *defrag, enum sh_defrag_stage stage)
{
    defrag->own_next = 0;
    defrag->foreign_next = 0;
    defrag->stage = stage;
}

/* Begins a round if there is reason to. */
static bool round_begin(struct sh_store *store, bool force)
{
    struct sh_defrag *defrag = &store->defrag;
    uint64_t waste = waste_of(store);
    if (!force && !sh_store_waste_is_high(store)) {
        /* What went away by itself is not what a round could not remove. */
        if (waste < atomic_load_explicit(&defrag->waste_left, memory_order_relaxed))
            atomic_store_explicit(&defrag->waste_left, waste, memory_order_relaxed);
        return false;
    }
    pass_begin(defrag, SH_DEFRAG_PACK);
    defrag->waste_before = waste;
    defrag->running = true;
    return true;
}

static void round_end(struct sh_store *store)
{
    struct sh_defrag *defrag = &store->defrag;
    uint64_t left = waste_of(store);
    /* Where it was short of memory and made some, another goes further. */
    if (store->alloc->is_short && left + left / 64 < defrag->waste_before)
        left = 0;
    atomic_store_explicit(&defrag->waste_left, left, memory_order_relaxed);
    defrag->running = false;
}

static unsigned step(struct sh_store *store, unsigned budget, bool force)
{
    struct sh_defrag *defrag = &store->defrag;
    unsigned seen = 0;
    if (sh_alloc_trim_deferred(store->alloc))
        return 1;
    if (!defrag->running && sh_idpool_trim(store->pool))
        return 1;
    if (!defrag->running && !round_begin(store, force))
        return 0;
    switch (defrag->stage) {
    case SH_DEFRAG_PACK:
        if (!groups_pack(store, budget, &seen)) {
            sh_drain_init(&defrag->drain);
            defrag->stage = SH_DEFRAG_MARK;
        }
        break;
    case SH_DEFRAG_MARK:
        if (!sh_alloc_drain_begin(store->alloc, &defrag->drain))
            pass_begin(defrag, SH_DEFRAG_MOVE);
        break;
    case SH_DEFRAG_MOVE:
        if (!groups_pack(store, budget, &seen))
            defrag->stage = SH_DEFRAG_TRIM;
        break;
    case SH_DEFRAG_TRIM:
        if (!sh_alloc_drain_end(store->alloc, &defrag->drain))
            round_end(store);
        break;
    }
    return seen > 0 ? seen : 1;
}

unsigned sh_store_defrag(struct sh_store *store, unsigned budget, bool force)
{
    /* acquire and release: the round's state */
    if (atomic_exchange_explicit(&store->defrag.busy, true, memory_order_acquire))
        return 0;
    unsigned seen = step(store, budget > 0 ? budget : 1, force);
    atomic_store_explicit(&store->defrag.busy, false, memory_order_release);
    return seen;
}

#define ALL_BUDGET 1024

void sh_store_defrag_all(struct sh_store *store)
{
    unsigned spins = 0;
    while (atomic_exchange_explicit(&store->defrag.busy, true, memory_order_acquire))
        sh_spin_wait(&spins);
    /* A round that somebody began has seen less than all. */
    while (store->defrag.running)
        (void)step(store, ALL_BUDGET, true);
    while (sh_idpool_trim(store->pool))
        continue;
    do
        (void)step(store, ALL_BUDGET, true);
    while (store->defrag.running);
    atomic_store_explicit(&store->defrag.busy, false, memory_order_release);
}
