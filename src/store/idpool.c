#include "store/idpool_int.h"

#include <stdlib.h>

#include "base/assert.h"

_Static_assert(SH_IDTABLE_IDS_MAX <= (UINT64_C(1) << (6 * SH_IDPOOL_LEVELS)), "levels suffice");

/* Words of a level for so many IDs. */
static uint64_t level_words(uint64_t ids, unsigned level)
{
    unsigned bits = 6 * (level + 1);
    return (ids + (UINT64_C(1) << bits) - 1) >> bits;
}

/* What the levels and the bitmap of retained IDs may have resident at most for so many IDs. */
static uint64_t levels_bytes(uint64_t ids)
{
    uint64_t bytes = sh_pages(level_words(ids, 0) * 8) << SH_PAGE_BITS;
    for (unsigned level = 0; level < SH_IDPOOL_LEVELS; level++)
        bytes += sh_pages(level_words(ids, level) * 8) << SH_PAGE_BITS;
    return bytes;
}

void sh_idpool_destroy(struct sh_idpool *pool)
{
    if (pool->vm.at)
        sh_lock_destroy(&pool->lock);
    sh_vm_release(&pool->vm);
}

/* Moves the table's limit up, with the bitmap's charge. */
static enum shoal_err grow(struct sh_idpool *pool, uint64_t limit, bool may_dip)
{
    if (limit > pool->table->ids_max)
        return SHOAL_EFULL;
    /* relaxed: numbers that publish nothing; under the lock, but for the readers of wanted */
    if (limit > atomic_load_explicit(&pool->wanted, memory_order_relaxed))
        atomic_store_explicit(&pool->wanted, limit, memory_order_relaxed);
    if (limit > atomic_load_explicit(&pool->end, memory_order_relaxed))
        return SHOAL_EBUSY;
    uint64_t kept = pool->table->kept;
    uint64_t more = limit > kept ? levels_bytes(limit) - levels_bytes(kept) : 0;
    if (!sh_budget_charge(pool->budget, more, may_dip))
        return SHOAL_EFULL;
    enum shoal_err err = sh_idtable_grow(pool->table, limit, may_dip);
    if (err)
        sh_budget_refund(pool->budget, more);
    return err;
}

void sh_idpool_end_set(struct sh_idpool *pool, uint64_t end)
{
    /* relaxed: a number that publishes nothing */
    atomic_store_explicit(&pool->end, end, memory_order_relaxed);
}

uint64_t sh_idpool_wanted(const struct sh_idpool *pool)
{
    return atomic_load_explicit(&pool->wanted, memory_order_relaxed);
}

enum shoal_err sh_idpool_init(struct sh_idpool *pool, struct sh_idtable *table,
                              struct sh_budget *budget)
{
    pool->table = table;
    pool->budget = budget;
    atomic_init(&pool->end, UINT64_MAX);
    enum shoal_err err = sh_vm_reserve(levels_bytes(table->ids_max), &pool->vm);
    if (err)
        return err;
    uint8_t *at = pool->vm.at;
    for (unsigned level = 0; level < SH_IDPOOL_LEVELS; level++) {
        pool->levels[level] = (uint64_t *)at;
        at += sh_pages(level_words(table->ids_max, level) * 8) << SH_PAGE_BITS;
    }
    pool->retained = (uint64_t *)at;
    at += sh_pages(level_words(table->ids_max, 0) * 8) << SH_PAGE_BITS;
    SH_ASSERT(at == pool->vm.at + pool->vm.bytes);
    sh_lock_init(&pool->lock, SH_LOCK_STORE_IDS);
    return grow(pool, 1, true); /* 0 is kept for the node's names chunk */
}

/* Sets bits in a word of level 0 and tells the levels above. */
static void bits_set(struct sh_idpool *pool, uint64_t word, uint64_t mask)
{
    for (unsigned level = 0; level < SH_IDPOOL_LEVELS; level++) {
        uint64_t old = pool->levels[level][word];
        SH_ASSERT(level > 0 || (old & mask) == 0);
        pool->levels[level][word] = old | mask;
        if (old != 0)
            return;
        mask = UINT64_C(1) << (word & 63);
        word >>= 6;
    }
}

static void bits_clear(struct sh_idpool *pool, uint64_t word, uint64_t mask)
{
    for (unsigned level = 0; level < SH_IDPOOL_LEVELS; level++) {
        uint64_t left = pool->levels[level][word] & ~mask;
        pool->levels[level][word] = left;
        if (left != 0)
            return;
        mask = UINT64_C(1) << (word & 63);
        word >>= 6;
    }
}

/* The word of level 0 that holds the smallest free ID. False when all bits are zero. */
static bool first_word(const struct sh_idpool *pool, uint64_t *word_out)
{
    uint64_t word = 0;
    for (unsigned level = SH_IDPOOL_LEVELS; level-- > 0;) {
        uint64_t bits = pool->levels[level][word];
        if (bits == 0) {
            SH_ASSERT(level == SH_IDPOOL_LEVELS - 1);
            return false;
        }
        if (level > 0)
            word = (word << 6) | (uint64_t)__builtin_ctzll(bits);
    }
    *word_out = word;
    return true;
}

/* Takes up to count free IDs of one word, smallest first; returns how many. */
static size_t take_from_word(struct sh_idpool *pool, uint64_t word, size_t count, sh_lid *lids_out)
{
    uint64_t bits = pool->levels[0][word];
    uint64_t taken = 0;
    size_t done = 0;
    while (bits != 0 && done < count) {
        uint64_t bit = bits & -bits;
        lids_out[done++] = (sh_lid){(word << 6) | (uint64_t)__builtin_ctzll(bits)};
        taken |= bit;
        bits &= ~bit;
    }
    bits_clear(pool, word, taken);
    return done;
}

/* Takes one ID back. If it is retained, that is all there is to do: unretain frees it. */
static void give_one(struct sh_idpool *pool, uint64_t lid)
{
    uint64_t limit = sh_idtable_limit(pool->table), bit = UINT64_C(1) << (lid & 63);
    SH_ASSERT(lid > 0);
    SH_ASSERT(lid < limit);
    if (pool->retained[lid >> 6] & bit)
        pool->retained[lid >> 6] &= ~bit;
    else
        bits_set(pool, lid >> 6, bit);
}

/* IDs that are handed out or taken back under one hold of the lock. */
#define PIECE_IDS ((size_t)1 << 16)

static enum shoal_err take_piece(struct sh_idpool *pool, size_t count, sh_lid *lids_out)
{
    sh_lock_take(&pool->lock);
    enum shoal_err err = SHOAL_OK;
    size_t done = 0;
    uint64_t word;
    while (done < count && first_word(pool, &word))
        done += take_from_word(pool, word, count - done, lids_out + done);
    if (done < count) {
        uint64_t first = sh_idtable_limit(pool->table);
        uint64_t fresh = count - done;
        err = grow(pool, first + fresh, false);
        if (err) {
            for (size_t i = 0; i < done; i++)
                give_one(pool, lids_out[i].v);
        } else {
            for (uint64_t i = 0; i < fresh; i++)
                lids_out[done + i] = (sh_lid){first + i};
        }
    }
    sh_lock_release(&pool->lock);
    return err;
}

static int lid_compare(const void *a, const void *b)
{
    uint64_t left = ((const sh_lid *)a)->v, right = ((const sh_lid *)b)->v;
    return left < right ? -1 : left > right;
}

enum shoal_err sh_idpool_take(struct sh_idpool *pool, size_t count, sh_lid *lids_out)
{
    if (count > pool->table->ids_max)
        return SHOAL_EFULL;
    bool is_rising = true;
    for (size_t done = 0; done < count;) {
        size_t some = count - done < PIECE_IDS ? count - done : PIECE_IDS;
        enum shoal_err err = take_piece(pool, some, lids_out + done);
        if (err) {
            sh_idpool_give(pool, lids_out, done);
            return err;
        }
        /* Smaller ones may have come back between two pieces. */
        is_rising = is_rising && (done == 0 || lids_out[done - 1].v < lids_out[done].v);
        done += some;
    }
    if (!is_rising)
        qsort(lids_out, count, sizeof *lids_out, lid_compare);
    return SHOAL_OK;
}

enum shoal_err sh_idpool_take_run(struct sh_idpool *pool, size_t count, sh_lid *lids_out)
{
    sh_lock_take(&pool->lock);
    uint64_t first = sh_idtable_limit(pool->table);
    enum shoal_err err =
        count > pool->table->ids_max ? SHOAL_EFULL : grow(pool, first + count, false);
    for (size_t i = 0; !err && i < count; i++)
        lids_out[i] = (sh_lid){first + i};
    sh_lock_release(&pool->lock);
    return err;
}

/* Marks the IDs from first on, to before end, as free. */
static void range_free(struct sh_idpool *pool, uint64_t first, uint64_t end)
{
    while (first < end) {
        unsigned low = (unsigned)(first & 63);
        uint64_t stop = (first | 63) + 1 < end ? (first | 63) + 1 : end;
        uint64_t ones = stop - first == 64 ? UINT64_MAX : (UINT64_C(1) << (stop - first)) - 1;
        bits_set(pool, first >> 6, ones << low);
        first = stop;
    }
}

enum shoal_err sh_idpool_claim_some(struct sh_idpool *pool, uint64_t word, uint64_t mask,
                                    uint64_t *claimed_out)
{
    SH_ASSERT(mask != 0 && !(word == 0 && mask & 1));
    const uint64_t end = (word << 6) + 64 - (unsigned)__builtin_clzll(mask);
    sh_lock_take(&pool->lock);
    enum shoal_err err = SHOAL_OK;
    uint64_t limit = sh_idtable_limit(pool->table);
    if (end > limit)
        err = end > pool->table->ids_max ? SHOAL_EFULL : grow(pool, end, true);
    if (!err) {
        range_free(pool, limit, end); /* none where the table did not grow */
        *claimed_out = pool->levels[0][word] & mask;
        bits_clear(pool, word, *claimed_out);
    }
    sh_lock_release(&pool->lock);
    return err;
}

enum shoal_err sh_idpool_claim(struct sh_idpool *pool, uint64_t lid)
{
    uint64_t claimed;
    enum shoal_err err = sh_idpool_claim_some(pool, lid >> 6, UINT64_C(1) << (lid & 63), &claimed);
    return !err && !claimed ? SHOAL_EEXIST : err;
}

/* So much of the table's memory may be spare beyond its end: handing pages to the kernel interrupts
 * every thread of the process, so creates and removes at the end must not do it each time. */
#define SPARE_SHARE 32

/* Hands a bitmap's pages back; returns how many bytes. */
static uint64_t discard_pages(struct sh_idpool *pool, const uint64_t *bitmap, uint64_t old,
                              uint64_t kept)
{
    uint64_t start = (uint64_t)((const uint8_t *)bitmap - pool->vm.at);
    (void)sh_vm_discard(&pool->vm, start + (kept << SH_PAGE_BITS), (old - kept) << SH_PAGE_BITS);
    return (old - kept) << SH_PAGE_BITS;
}

/* Gives back what the bitmaps needed for IDs from the limit on; their bits are all zero. */
static void shrink_levels(struct sh_idpool *pool, uint64_t old_limit, uint64_t limit)
{
    uint64_t bytes = 0;
    for (unsigned level = 0; level < SH_IDPOOL_LEVELS; level++) {
        uint64_t old = sh_pages(level_words(old_limit, level) * 8);
        uint64_t kept = sh_pages(level_words(limit, level) * 8);
        if (old == kept)
            break; /* nor do the levels above change */
        bytes += discard_pages(pool, pool->levels[level], old, kept);
        if (level == 0)
            bytes += discard_pages(pool, pool->retained, old, kept);
    }
    sh_budget_refund(pool->budget, bytes);
}

/* The limit comes down, and memory goes back, for about so many IDs at a time, so that nobody waits
 * long for the lock. */
#define LOWER_MOST (UINT64_C(1) << 18)

/* Brings the limit down over free IDs at the top. False: there was nothing to do. */
static bool lower_limit(struct sh_idpool *pool)
{
    const uint64_t old_limit = sh_idtable_limit(pool->table), were_kept = pool->table->kept;
    uint64_t limit = old_limit, kept = were_kept;
    while (limit > 1 && old_limit - limit < LOWER_MOST) {
        uint64_t word = (limit - 1) >> 6;
        unsigned valid = (unsigned)((limit - 1) & 63) + 1;
        uint64_t used = ~pool->levels[0][word] << (64 - valid);
        unsigned run = used == 0 ? valid : (unsigned)__builtin_clzll(used);
        if (run == 0)
            break;
        uint64_t ones = run == 64 ? UINT64_MAX : (UINT64_C(1) << run) - 1;
        bits_clear(pool, word, ones << (valid - run));
        limit -= run;
        if (run < valid)
            break;
    }
    if (were_kept - limit > were_kept / SPARE_SHARE)
        kept = were_kept - limit > LOWER_MOST ? were_kept - LOWER_MOST : limit;
    if (limit == old_limit && kept == were_kept)
        return false;
    sh_idtable_shrink(pool->table, limit, kept);
    shrink_levels(pool, were_kept, kept);
    return true;
}

bool sh_idpool_trim(struct sh_idpool *pool)
{
    sh_lock_take(&pool->lock);
    bool is_lower = lower_limit(pool);
    sh_lock_release(&pool->lock);
    return is_lower;
}

/* The bits, in one word, of the IDs from the first on that lie in it; returns how many these are.
 */
static size_t word_mask(const sh_lid *lids, size_t count, uint64_t *word_out, uint64_t *mask_out)
{
    uint64_t word = lids[0].v >> 6, mask = 0;
    size_t some = 0;
    for (; some < count && lids[some].v >> 6 == word; some++)
        mask |= UINT64_C(1) << (lids[some].v & 63);
    *word_out = word;
    *mask_out = mask;
    return some;
}

void sh_idpool_retain(struct sh_idpool *pool, const sh_lid *lids, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t end = count - done < PIECE_IDS ? count : done + PIECE_IDS;
        sh_lock_take(&pool->lock);
        while (done < end) {
            uint64_t word, mask;
            done += word_mask(lids + done, end - done, &word, &mask);
            SH_ASSERT((pool->retained[word] & mask) == 0);
            SH_ASSERT((pool->levels[0][word] & mask) == 0);
            pool->retained[word] |= mask;
        }
        sh_lock_release(&pool->lock);
    }
}

void sh_idpool_unretain(struct sh_idpool *pool, const sh_lid *lids, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t end = count - done < PIECE_IDS ? count : done + PIECE_IDS;
        sh_lock_take(&pool->lock);
        while (done < end) {
            uint64_t word, mask;
            done += word_mask(lids + done, end - done, &word, &mask);
            uint64_t given = mask & ~pool->retained[word];
            pool->retained[word] &= ~mask;
            if (given != 0)
                bits_set(pool, word, given);
        }
        if (done == count)
            (void)lower_limit(pool);
        sh_lock_release(&pool->lock);
    }
}

void sh_idpool_give(struct sh_idpool *pool, const sh_lid *lids, size_t count)
{
    do {
        size_t some = count < PIECE_IDS ? count : PIECE_IDS;
        sh_lock_take(&pool->lock);
        for (size_t i = 0; i < some; i++)
            if (lids[i].v != 0)
                give_one(pool, lids[i].v);
        if (some == count)
            (void)lower_limit(pool);
        sh_lock_release(&pool->lock);
        lids += some;
        count -= some;
    } while (count > 0);
}

uint64_t sh_idpool_bytes(struct sh_idpool *pool)
{
    sh_lock_take(&pool->lock);
    uint64_t kept = pool->table->kept;
    uint64_t bytes = levels_bytes(kept) + sh_idtable_bytes(kept);
    sh_lock_release(&pool->lock);
    return bytes;
}
