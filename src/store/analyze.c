#include "store/analyze.h"

#include <stdlib.h>

#include "base/assert.h"
#include "store/walk_int.h"

#define WORDS (sizeof(struct sh_analysis) / sizeof(uint64_t))
/* The number is part of the wire format (docs/wire-format.md). */
_Static_assert(WORDS == 372, "an analysis is u64 only");
_Static_assert(sizeof(shoal_cid) == sizeof(uint64_t), "an analysis is u64 only");

struct sh_analyze {
    struct sh_store *store;
    shoal_nid own;
    struct sh_walk walk;
    bool is_over;
    struct sh_id_run used; /* the run of chunks at hand, to which the next ID may belong */
    uint64_t own_next;     /* the first place behind the last own ID that was in use */
    struct sh_analysis found;
};

/* --- Runs of IDs --------------------------------------------------------------------------- */

/* Notes a run among the longest, which stay sorted; of equals the first. */
static void run_note(struct sh_id_run *longest, struct sh_id_run run)
{
    for (unsigned i = 0; i < SH_ANALYZE_RUNS && run.count > 0; i++) {
        if (run.count <= longest[i].count)
            continue;
        struct sh_id_run shorter = longest[i];
        longest[i] = run;
        run = shorter;
    }
}

static void used_end(struct sh_analyze *analyze)
{
    if (analyze->used.count == 0)
        return;
    analyze->found.used_runs++;
    run_note(analyze->found.longest_used, analyze->used);
    analyze->used.count = 0;
}

static void used_add(struct sh_analyze *analyze, uint64_t cid)
{
    struct sh_id_run *used = &analyze->used;
    /* A creator's first ID goes on with nothing. */
    if (used->count > 0 && used->first.v + used->count == cid &&
        shoal_cid_local((shoal_cid){cid}) != 0) {
        used->count++;
        return;
    }
    used_end(analyze);
    *used = (struct sh_id_run){.first = {cid}, .count = 1};
}

/* An own ID is in use: those between the last one and it are free. */
static void own_used(struct sh_analyze *analyze, uint64_t place)
{
    uint64_t count = place - analyze->own_next;
    if (count > 0) {
        struct sh_id_run run = {
            .first = sh_store_cid(analyze->store, analyze->own, analyze->own_next), count};
        analyze->found.free_ids += count;
        analyze->found.free_runs++;
        run_note(analyze->found.longest_free, run);
    }
    analyze->own_next = place + 1;
}

/* --- Groups -------------------------------------------------------------------------------- */

/* What a group holds, at one moment. */
struct look {
    struct sh_layout layout;
    uint16_t bytes[SH_GROUP_IDS]; /* of each chunk in the group's block */
    uint32_t total;               /* of these, and of the bytes at the block's end */
    uint32_t mediums;             /* how many of these there are */
};

static struct look layout_look(const struct sh_store *store, const struct sh_group *group)
{
    struct look look = {.layout = sh_group_layout(group)};
    uint8_t *block = sh_alloc_at(store->alloc, sh_layout_offset(&look.layout));
    unsigned mediums;
    (void)sh_layout_footprints(&look.layout, look.bytes);
    look.total = sh_layout_sum(&look.layout, SH_GROUP_IDS, &mediums);
    look.total += sh_layout_mediums(&look.layout, block, mediums, look.bytes);
    look.mediums = (uint32_t)__builtin_popcount(mediums);
    look.total += look.mediums;
    return look;
}

/* Of one moment, or, where somebody is always faster, of a few. */
static struct look group_look(const struct sh_store *store, const struct sh_group *group)
{
    struct look look = {0};
    unsigned spins = 0;
    for (unsigned attempt = 0; attempt < 64; attempt++) {
        /* acquire: the layout of that version; pairs with the releases in sh_group_*_end */
        uint64_t before = atomic_load_explicit(&group->sequence, memory_order_acquire);
        look = layout_look(store, group);
        SH_GROUP_FENCE(memory_order_acquire); /* pairs with the fences in sh_group_*_begin */
        uint64_t after = atomic_load_explicit(&group->sequence, memory_order_relaxed);
        if (!(before & SH_GROUP_LAYOUT) && ((before ^ after) & ~SH_GROUP_WRITERS) == 0)
            break;
        sh_spin_wait(&spins);
    }
    return look;
}

static unsigned power_of(uint32_t size)
{
    return size == 0 ? 0 : 32 - (unsigned)__builtin_clz(size);
}

static void size_note(struct sh_analysis *found, uint32_t size)
{
    unsigned power = power_of(size);
    SH_ASSERT(power < SH_ANALYZE_POWERS);
    found->chunks++;
    found->payload_bytes += size;
    found->powers[power].chunks++;
    found->powers[power].payload_bytes += size;
    if (size < SH_ANALYZE_EXACT)
        found->exact[size]++;
}

/* False: it is gone. */
static bool long_note(struct sh_analyze *analyze, shoal_cid cid)
{
    struct sh_analysis *found = &analyze->found;
    struct sh_hold hold;
    if (sh_store_hold(analyze->store, cid, &hold))
        return false;
    struct sh_spot spot = hold.spot;
    sh_store_let_go(&hold, false);
    if (spot.long_block == 0) {
        found->packed++; /* it was folded back, or made anew */
    } else {
        uint64_t bytes = (uint64_t)spot.size + SH_LONG_HEADER;
        found->longs++;
        found->pinned += spot.pins > 0;
        found->pointer_bytes += SH_POINTER_BYTES;
        found->header_bytes += SH_LONG_HEADER;
        found->rounding_bytes += sh_alloc_block_bytes((uint32_t)bytes) - bytes;
    }
    size_note(found, spot.size);
    return true;
}

/* Notes one ID of a group; false when it is free. */
static bool id_note(struct sh_analyze *analyze, shoal_cid cid, const struct look *look,
                    unsigned index, bool *is_chunk_out)
{
    unsigned code = sh_layout_code(&look->layout, index);
    *is_chunk_out = false;
    if (code == SH_CODE_ABSENT)
        return false;
    if (code == SH_CODE_RESERVED) {
        analyze->found.reserved++;
        return true;
    }
    if (code == SH_CODE_LONG) {
        *is_chunk_out = long_note(analyze, cid);
        return *is_chunk_out;
    }
    analyze->found.packed++;
    size_note(&analyze->found, look->bytes[index]);
    *is_chunk_out = true;
    return true;
}

/* What the group's block holds beside its chunks. */
static void block_note(struct sh_analysis *found, const struct look *look)
{
    uint32_t capacity = sh_layout_capacity(&look->layout);
    uint32_t total = look->total;
    if (capacity == 0 || total > capacity)
        return;
    found->header_bytes += look->mediums;
    /* A block is rounded up for what it holds; the rest was kept for what is to come. */
    uint64_t tight = sh_alloc_block_bytes(total);
    uint64_t whole = sh_alloc_block_bytes(capacity);
    if (tight > whole)
        tight = whole;
    found->rounding_bytes += tight - total;
    found->room_bytes += whole - tight;
}

static void group_note(struct sh_analyze *analyze, const struct sh_walk_group *group)
{
    struct look look = group_look(analyze->store, group->group);
    uint64_t chunks_before = analyze->found.chunks;
    for (unsigned i = 0; i < SH_GROUP_IDS; i++) {
        bool is_chunk;
        shoal_cid cid = sh_walk_cid(analyze->store, group, i);
        uint64_t place = group->first.v + i;
        bool is_used = id_note(analyze, cid, &look, i, &is_chunk);
        if (is_chunk)
            used_add(analyze,
                     shoal_cid_creator(cid).v ? cid.v : shoal_cid_make(analyze->own, cid.v).v);
        else
            used_end(analyze);
        if (is_used && !group->is_foreign && place > 0)
            own_used(analyze, place);
        analyze->found.foreign += is_chunk && group->is_foreign;
    }
    analyze->found.groups += analyze->found.chunks > chunks_before;
    block_note(&analyze->found, &look);
}

/* --- Steps --------------------------------------------------------------------------------- */

static void finish(struct sh_analyze *analyze)
{
    struct sh_store_status status;
    used_end(analyze);
    sh_store_status_get(analyze->store, &status);
    analyze->found.table_bytes = status.table_bytes;
    analyze->found.free_bytes = status.free_bytes;
    analyze->found.other_bytes = status.other_bytes;
    analyze->found.used_bytes = status.used_bytes;
    analyze->found.bytes_max = status.bytes_max;
    analyze->is_over = true;
}

enum shoal_err sh_analyze_begin(struct sh_store *store, shoal_nid own,
                                struct sh_analyze **analyze_out)
{
    struct sh_analyze *analyze = calloc(1, sizeof *analyze);
    if (!analyze)
        return SHOAL_ENOMEM;
    analyze->store = store;
    analyze->own = own.v ? own : sh_store_nid(store);
    analyze->own_next = 1; /* ID 0 is never handed out */
    *analyze_out = analyze;
    return SHOAL_OK;
}

bool sh_analyze_step(struct sh_analyze *analyze, unsigned groups)
{
    struct sh_walk_group group;
    SH_ASSERT(groups > 0);
    if (analyze->is_over)
        return false;
    while (sh_walk_next(analyze->store, &analyze->walk, &groups, &group))
        group_note(analyze, &group);
    if (analyze->walk.is_over)
        finish(analyze);
    return !analyze->is_over;
}

void sh_analyze_progress(const struct sh_analyze *analyze, uint64_t *done_out, uint64_t *all_out)
{
    sh_walk_progress(analyze->store, &analyze->walk, done_out, all_out);
}

const struct sh_analysis *sh_analyze_result(const struct sh_analyze *analyze)
{
    return &analyze->found;
}

void sh_analyze_end(struct sh_analyze *analyze)
{
    free(analyze);
}

enum shoal_err sh_store_analyze(struct sh_store *store, shoal_nid own,
                                struct sh_analysis *analysis_out)
{
    struct sh_analyze *analyze;
    enum shoal_err err = sh_analyze_begin(store, own, &analyze);
    if (err)
        return err;
    while (sh_analyze_step(analyze, 1024))
        continue;
    *analysis_out = *sh_analyze_result(analyze);
    sh_analyze_end(analyze);
    return SHOAL_OK;
}

/* --- Bytes --------------------------------------------------------------------------------- */

void sh_analysis_put(struct sh_writer *w, const struct sh_analysis *analysis)
{
    uint64_t words[WORDS];
    memcpy(words, analysis, sizeof words);
    for (size_t i = 0; i < WORDS; i++)
        sh_put64(w, words[i]);
}

bool sh_analysis_get(struct sh_reader *r, struct sh_analysis *analysis_out)
{
    uint64_t words[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        words[i] = sh_get64(r);
    if (!sh_reader_done(r))
        return false;
    memcpy(analysis_out, words, sizeof words);
    return true;
}
