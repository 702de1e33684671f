/* Creating chunks: all of a batch, or none, or as far as it goes. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "store/witness_int.h"

#define NONE UINT64_MAX

static uint32_t wish_size(const struct sh_store_wish *wish, size_t index)
{
    return wish->sizes ? wish->sizes[index] : wish->size;
}

/* Looks at the sizes from `from` to before `end`, and adds them up. */
static enum shoal_err sizes_check(const struct sh_store *store, const struct sh_store_wish *wish,
                                  size_t from, size_t end, uint64_t *payload)
{
    for (size_t i = from; i < end; i++) {
        if (wish->sizes[i] > store->chunk_bytes_max)
            return SHOAL_ETOOBIG;
        *payload += wish->sizes[i];
    }
    return SHOAL_OK;
}

static enum shoal_err wish_check(struct sh_store *store, const struct sh_store_wish *wish,
                                 uint64_t *payload_out)
{
    uint64_t payload = 0;
    *payload_out = 0;
    if (wish->reserve)
        return SHOAL_OK;
    if (wish->sizes) {
        enum shoal_err err = sizes_check(store, wish, 0, wish->count, &payload);
        if (err)
            return err;
    } else {
        if (wish->count > 0 && wish->size > store->chunk_bytes_max)
            return SHOAL_ETOOBIG;
        if (__builtin_mul_overflow((uint64_t)wish->size, (uint64_t)wish->count, &payload))
            return sh_store_short(store, UINT64_MAX);
    }
    *payload_out = payload;
    return SHOAL_OK;
}

/* True when the payload alone can't fit, so that a hopeless batch is refused before any work. */
static bool hopeless(const struct sh_store *store, const struct sh_store_wish *wish,
                     uint64_t payload_bytes)
{
    if (wish->partial || (wish->count <= 256 && payload_bytes < store->budget.max))
        return false;
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    uint64_t taken = status.used_bytes - status.free_bytes;
    return taken > status.bytes_max || payload_bytes > status.bytes_max - taken;
}

/* The blocks of the long ones among the next chunks, all of one group. */
struct longs {
    size_t count;                  /* chunks that were looked at */
    uint32_t zeroed;               /* bytes of the last one's block */
    uint64_t blocks[SH_GROUP_IDS]; /* NONE: the chunk is not long */
};

static void longs_free(struct sh_store *store, const struct sh_store_wish *wish, size_t at,
                       struct longs *longs)
{
    for (size_t i = 0; i < longs->count; i++)
        if (longs->blocks[i] != NONE)
            sh_long_free(store, longs->blocks[i], wish_size(wish, at + i));
    longs->count = longs->zeroed = 0;
}

/* Makes blocks for `count` chunks, and zeroes as many of their bytes as *bytes_left says, of which
 * it takes them. True: there are none left to make. EFULL frees them all. */
static bool longs_make(struct sh_store *store, const struct sh_store_wish *wish, size_t at,
                       size_t count, struct longs *longs, uint64_t *bytes_left,
                       enum shoal_err *err_out)
{
    SH_ASSERT(count > 0 && count <= SH_GROUP_IDS);
    while (longs->count < count || longs->zeroed > 0) {
        size_t i = longs->zeroed > 0 ? longs->count - 1 : longs->count;
        uint32_t size = wish->reserve ? 0 : wish_size(wish, at + i);
        if (size <= SH_PACKED_CHUNK_MAX) {
            longs->blocks[longs->count++] = NONE;
            continue;
        }
        if (*bytes_left == 0)
            return false;
        if (i == longs->count) {
            *err_out = sh_long_open(store, size, false, &longs->blocks[i]);
            if (*err_out) {
                longs_free(store, wish, at, longs);
                return true;
            }
            longs->count++;
        }
        uint32_t left = size - longs->zeroed;
        uint32_t some = left < *bytes_left ? left : (uint32_t)*bytes_left;
        sh_long_write(store, longs->blocks[i], longs->zeroed, NULL, some);
        *bytes_left -= some;
        longs->zeroed = some == left ? 0 : longs->zeroed + some;
    }
    return true;
}

/* Some chunks of one group have been made, or have not: tells the witness. */
static void group_tell(struct sh_store *store, const struct sh_store_wish *wish, size_t at,
                       size_t count, const shoal_cid *lids, enum shoal_err err)
{
    if (wish->reserve)
        return;
    for (size_t i = at; i < at + count; i++)
        sh_witness_record(store, sh_store_cid(store, SHOAL_NID_NONE, lids[i].v), SH_STORE_MADE,
                          sh_bytes_make(NULL, wish_size(wish, i)), err);
}

/* Asks the witness for room for all of them, or none. */
static enum shoal_err group_admit(struct sh_store *store, const struct sh_store_wish *wish,
                                  size_t at, size_t count, const shoal_cid *lids)
{
    if (wish->reserve)
        return SHOAL_OK;
    for (size_t i = 0; i < count; i++) {
        enum shoal_err err =
            sh_witness_admit(store, sh_store_cid(store, SHOAL_NID_NONE, lids[at + i].v),
                             SH_STORE_MADE, 0, wish_size(wish, at + i), true);
        if (err) {
            group_tell(store, wish, at, i, lids, err);
            return err;
        }
    }
    return SHOAL_OK;
}

/* Makes some chunks of one group, whose IDs were handed out, and whose long ones have their blocks.
 * EFULL, and EAGAIN for lack of room at the witness, change nothing. */
static enum shoal_err group_fill(struct sh_store *store, const struct sh_store_wish *wish,
                                 size_t at, size_t count, uint32_t expected, const shoal_cid *lids,
                                 struct longs *longs)
{
    SH_ASSERT(longs->count == count && longs->zeroed == 0);
    struct sh_group *group = sh_idtable_find(&store->table, lids[at].v);
    SH_ASSERT(group != NULL);
    sh_group_layout_begin(group);
    enum shoal_err err = group_admit(store, wish, at, count, lids);
    if (err) {
        sh_group_layout_end(group, false);
        return err;
    }
    sh_idtable_version(&store->table, group);
    struct sh_change change;
    sh_change_begin(store, group, &change);
    change.expected = expected;
    for (size_t i = 0; i < count; i++) {
        unsigned index = sh_store_index(lids[at + i]);
        SH_ASSERT(sh_layout_code(&change.before, index) == SH_CODE_ABSENT);
        if (wish->reserve)
            sh_change_none(&change, index, SH_CODE_RESERVED);
        else if (longs->blocks[i] == NONE)
            sh_change_chunk(&change, index, wish_size(wish, at + i), NULL);
        else
            sh_change_long(&change, index, &longs->blocks[i]);
    }
    err = sh_group_change(store, group, &change);
    group_tell(store, wish, at, count, lids, err);
    sh_group_layout_end(group, !err);
    if (!err)
        longs->count = 0;
    return err;
}

static void count_one(struct sh_store *store, uint32_t size)
{
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, size);
    sh_tally_add(&tally->creates, 1);
}

/* Takes the first `made` chunks back. Their IDs are retained, so none is another chunk's. */
static void undo(struct sh_store *store, const struct sh_store_wish *wish, size_t made,
                 const shoal_cid *lids)
{
    for (size_t i = 0; i < made; i++) {
        uint32_t size;
        shoal_cid cid = sh_store_cid(store, SHOAL_NID_NONE, lids[i].v);
        if (sh_store_drop(store, cid, SH_CODE_ABSENT, SH_STORE_UNMADE, &size) == SHOAL_OK)
            sh_idpool_give(store->pool, &lids[i], 1);
        else if (!wish->reserve) /* others found it, and counted its removal or will */
            count_one(store, wish_size(wish, i));
    }
}

static enum shoal_err ids_take(struct sh_store *store, const struct sh_store_wish *wish,
                               shoal_cid *lids_out)
{
    return wish->consecutive ? sh_idpool_take_run(store->pool, wish->count, lids_out)
                             : sh_idpool_take(store->pool, wish->count, lids_out);
}

/* There are no IDs, nor anything left to give up for them. */
static enum shoal_err ids_short(struct sh_store *store, const struct sh_store_wish *wish)
{
    uint64_t needed;
    if (__builtin_mul_overflow((uint64_t)wish->count, UINT64_C(2), &needed))
        needed = UINT64_MAX;
    return sh_store_short(store, needed);
}

/* What a chunk of a batch of different sizes takes up in its group's block on average; 0: the sizes
 * say nothing about those to come. */
static uint32_t wish_footprint(const struct sh_store_wish *wish)
{
    uint64_t sum = 0;
    if (!wish->sizes || wish->reserve || wish->count <= SH_GROUP_IDS)
        return 0;
    for (size_t i = 0; i < wish->count; i++)
        sum += wish->sizes[i] > SH_PACKED_CHUNK_MAX ? SH_POINTER_BYTES : wish->sizes[i];
    return (uint32_t)((sum + wish->count - 1) / wish->count);
}

/* Makes the chunks of all IDs, group by group; returns how many it made. */
static size_t fill(struct sh_store *store, const struct sh_store_wish *wish, const shoal_cid *lids,
                   enum shoal_err *err_out)
{
    size_t made = 0;
    uint32_t expected = wish_footprint(wish);
    *err_out = SHOAL_OK;
    while (made < wish->count) {
        size_t some = 1;
        while (made + some < wish->count &&
               lids[made + some].v >> SH_GROUP_BITS == lids[made].v >> SH_GROUP_BITS)
            some++;
        struct longs longs = {0};
        uint64_t bytes = UINT64_MAX;
        (void)longs_make(store, wish, made, some, &longs, &bytes, err_out);
        if (!*err_out)
            *err_out = group_fill(store, wish, made, some, expected, lids, &longs);
        if (*err_out) {
            longs_free(store, wish, made, &longs);
            break;
        }
        made += some;
    }
    return made;
}

/* As fill, but where the wish is for all or nothing, none is left when it fails. IDs that were not
 * used go back. */
static size_t fill_or_undo(struct sh_store *store, const struct sh_store_wish *wish,
                           shoal_cid *lids, enum shoal_err *err_out)
{
    /* What is in one group is made at once. */
    bool is_batch =
        !wish->partial && lids[0].v >> SH_GROUP_BITS != lids[wish->count - 1].v >> SH_GROUP_BITS;
    bool is_retained = is_batch || wish->retain;
    if (is_retained)
        sh_idpool_retain(store->pool, lids, wish->count);
    size_t made = fill(store, wish, lids, err_out);
    if (is_batch && *err_out)
        undo(store, wish, made, lids);
    if (is_retained && (*err_out || !wish->retain))
        sh_idpool_unretain(store->pool, lids, wish->count);
    if (*err_out)
        sh_idpool_give(store->pool, lids + made, wish->count - made);
    return *err_out && is_batch ? 0 : made;
}

static void count_made(struct sh_store *store, const struct sh_store_wish *wish, size_t made,
                       uint64_t payload)
{
    if (wish->reserve)
        return;
    if (made < wish->count) {
        payload = 0;
        for (size_t i = 0; i < made; i++)
            payload += wish_size(wish, i);
    }
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, payload);
    sh_tally_add(&tally->creates, made);
}

static enum shoal_err make(struct sh_store *store, const struct sh_store_wish *wish,
                           shoal_cid *cids_out, size_t *made_out)
{
    SH_ASSERT(wish->count == 0 || cids_out != NULL);
    SH_ASSERT(!wish->retain || !wish->partial);
    uint64_t payload;
    enum shoal_err err = wish_check(store, wish, &payload);
    size_t made = 0;
    if (err)
        return err;
    if (wish->count > 0) {
        if (hopeless(store, wish, payload))
            return sh_store_short(store, payload);
        err = ids_take(store, wish, cids_out);
        if (err == SHOAL_EFULL) { /* the table can grow into what free slots hold */
            sh_alloc_trim(store->alloc);
            err = ids_take(store, wish, cids_out);
        }
        if (err)
            return err == SHOAL_EFULL ? ids_short(store, wish) : err;
        made = fill_or_undo(store, wish, cids_out, &err);
    }
    if (err) {
        if (!wish->partial || made == 0) {
            /* What was charged for this and never touched is free now; say so to the kernel and
             * the budget alike. */
            if (err == SHOAL_EAGAIN) /* it is wanted again soon */
                return err;
            sh_alloc_trim(store->alloc);
            SH_DEBUG("store", "no chunk memory for a batch", SH_U64("chunks", wish->count),
                     SH_U64("payload_bytes", payload));
            return err;
        }
    }
    count_made(store, wish, made, payload);
    for (size_t i = 0; i < made; i++)
        cids_out[i] = sh_store_cid(store, sh_store_nid(store), cids_out[i].v);
    if (made_out)
        *made_out = made;
    return SHOAL_OK;
}

static enum shoal_err make_or_trim(struct sh_store *store, const struct sh_store_wish *wish,
                                   shoal_cid *cids_out, size_t *made_out)
{
    uint64_t limit = sh_idtable_limit(&store->table);
    enum shoal_err err = make(store, wish, cids_out, made_out);
    if (err != SHOAL_EFULL)
        return err;
    /* Free IDs at the table's end may have held memory: giving this call's back gives up some. */
    while (sh_idpool_trim(store->pool))
        continue;
    if (sh_idtable_limit(&store->table) >= limit)
        return err;
    return make(store, wish, cids_out, made_out);
}

/* So many of a batch that may be had in part get their IDs at a time, and the table's memory with
 * them, so that it leaves room for chunks. */
#define PARTIAL_PIECE 4096

static enum shoal_err make_pieces(struct sh_store *store, const struct sh_store_wish *wish,
                                  shoal_cid *cids_out, size_t *made_out)
{
    uint64_t payload;
    enum shoal_err err = wish_check(store, wish, &payload);
    size_t made = 0, some, of;
    if (err)
        return err;
    do {
        struct sh_store_wish piece = *wish;
        of = wish->count - made < PARTIAL_PIECE ? wish->count - made : PARTIAL_PIECE;
        piece.count = of;
        piece.sizes = wish->sizes ? wish->sizes + made : NULL;
        some = 0;
        err = make_or_trim(store, &piece, cids_out + made, &some);
        made += some;
    } while (!err && some == of && made < wish->count);
    if (made == 0)
        return err;
    if (made_out)
        *made_out = made;
    return SHOAL_OK;
}

/* --- In pieces ----------------------------------------------------------------------------- */

/* IDs that are taken, or let go of, at once. */
#define PART_IDS ((size_t)1 << 15)
#define COUNT_MAX ((size_t)1 << 20)

struct sh_store_making {
    struct sh_store *store;
    struct sh_store_wish wish;
    shoal_cid *lids;
    uint64_t payload;
    uint64_t limit; /* the table's, at the beginning */
    uint32_t expected;
    size_t checked;     /* sizes */
    size_t taken;       /* IDs */
    size_t retained;    /* of these: those of chunks that are made or next */
    size_t made;        /* chunks, of these */
    struct longs longs; /* of those that are next */
    size_t undone;      /* of the chunks, once err is set */
    uint64_t trim_left; /* pages of free slots that may go to the kernel */
    size_t ended;       /* IDs that are let go of, once nothing is left to make or undo */
    enum shoal_err err;
    bool is_retried;
    bool is_over;
};

enum shoal_err sh_store_making_begin(struct sh_store *store, const struct sh_store_wish *wish,
                                     shoal_cid *cids, struct sh_store_making **making_out)
{
    SH_ASSERT(wish->count > 0 && wish->count <= COUNT_MAX && cids);
    SH_ASSERT(!wish->partial && !wish->retain);
    const bool is_checked = !wish->sizes || wish->reserve; /* else sizes_check_some does it */
    uint64_t payload = 0;
    enum shoal_err err = is_checked ? wish_check(store, wish, &payload) : SHOAL_OK;
    if (!err && hopeless(store, wish, payload))
        err = sh_store_short(store, payload);
    if (err)
        return err;
    struct sh_store_making *making = calloc(1, sizeof *making);
    if (!making)
        return SHOAL_ENOMEM;
    making->store = store;
    making->wish = *wish;
    making->lids = cids;
    making->payload = payload;
    making->checked = is_checked ? wish->count : 0;
    making->trim_left = UINT64_MAX;
    making->limit = sh_idtable_limit(&store->table);
    /* The first ones speak for the rest: to look at all would take its time. */
    struct sh_store_wish first = *wish;
    first.count = wish->count < PART_IDS ? wish->count : PART_IDS;
    making->expected = wish_footprint(&first);
    *making_out = making;
    return SHOAL_OK;
}

/* Looks at the next sizes. Nothing has been taken yet, so it is over where they are refused. */
static void sizes_check_some(struct sh_store_making *making)
{
    const size_t count = making->wish.count, left = count - making->checked;
    const size_t end = making->checked + (left < PART_IDS ? left : PART_IDS);
    SH_ASSERT(making->taken == 0);
    making->err = sizes_check(making->store, &making->wish, making->checked, end, &making->payload);
    making->checked = end;
    if (!making->err && end == count && hopeless(making->store, &making->wish, making->payload))
        making->err = sh_store_short(making->store, making->payload);
    making->is_over = making->err != SHOAL_OK;
}

/* Takes the next IDs; all at once where they must follow each other. Where there are none, a piece of
 * what free slots hold goes to the kernel, as the table can grow into that. */
static void part_begin(struct sh_store_making *making)
{
    struct sh_store_wish part = making->wish;
    size_t left = making->wish.count - making->taken;
    part.count = part.consecutive || left < PART_IDS ? left : PART_IDS;
    enum shoal_err err = ids_take(making->store, &part, making->lids + making->taken);
    if (!err)
        making->taken += part.count;
    else if (err != SHOAL_EFULL)
        making->err = err;
    else if (!sh_alloc_trim_piece(making->store->alloc, &making->trim_left))
        making->err = ids_short(making->store, &part);
}

/* Lets go of the next IDs: they are the pool's again if they came free, or were never used. */
static void part_end(struct sh_store_making *making)
{
    struct sh_store *store = making->store;
    shoal_cid *lids = making->lids + making->ended;
    size_t left = making->taken - making->ended, count = left < PART_IDS ? left : PART_IDS;
    size_t retained = making->retained < making->ended ? 0 : making->retained - making->ended;
    size_t made = making->made < making->ended ? 0 : making->made - making->ended;
    made = made < count ? made : count;
    sh_idpool_unretain(store->pool, lids, retained < count ? retained : count);
    if (made < count)
        sh_idpool_give(store->pool, lids + made, count - made);
    for (size_t i = 0; i < made && !making->err; i++)
        lids[i] = sh_store_cid(store, sh_store_nid(store), lids[i].v);
    making->ended += count;
}

/* Nothing is left of what failed: gives up a piece of what it held. Free IDs at the table's end may
 * have held memory: then it is tried once more. */
static void failed_end(struct sh_store_making *making)
{
    struct sh_store *store = making->store;
    if (sh_alloc_trim_piece(store->alloc, &making->trim_left) ||
        (making->err == SHOAL_EFULL && !making->is_retried && sh_idpool_trim(store->pool)))
        return;
    if (making->is_retried || sh_idtable_limit(&store->table) >= making->limit) {
        making->is_over = true;
        return;
    }
    making->taken = making->retained = making->made = making->undone = making->ended = 0;
    making->err = SHOAL_OK;
    making->trim_left = UINT64_MAX;
    making->is_retried = true;
}

static void undo_some(struct sh_store_making *making, size_t most)
{
    struct sh_store_wish rest = making->wish;
    size_t left = making->made - making->undone, some = left < most ? left : most;
    rest.sizes = rest.sizes ? rest.sizes + making->undone : NULL;
    undo(making->store, &rest, some, making->lids + making->undone);
    making->undone += some;
}

static void fill_some(struct sh_store_making *making, size_t most)
{
    struct sh_store *store = making->store;
    const shoal_cid *lids = making->lids;
    SH_ASSERT(making->made <= making->retained && making->retained <= making->taken);
    size_t left = making->taken - making->made, next = most + SH_GROUP_IDS;
    size_t wanted = making->made + (left < next ? left : next);
    if (making->retained < wanted)
        sh_idpool_retain(store->pool, lids + making->retained, wanted - making->retained);
    making->retained = making->retained < wanted ? wanted : making->retained;
    uint64_t bytes = SH_STORE_PIECE_BYTES;
    for (size_t end = making->made + most; making->made < end && making->made < making->taken;) {
        size_t at = making->made, some = 1;
        while (at + some < making->taken &&
               lids[at + some].v >> SH_GROUP_BITS == lids[at].v >> SH_GROUP_BITS)
            some++;
        if (!longs_make(store, &making->wish, at, some, &making->longs, &bytes, &making->err))
            return;
        enum shoal_err err = making->err;
        if (!err)
            err =
                group_fill(store, &making->wish, at, some, making->expected, lids, &making->longs);
        if (err == SHOAL_EAGAIN) /* no room at the witness: in a later step, with the same blocks */
            return;
        making->err = err;
        if (err)
            return;
        making->made += some;
    }
}

bool sh_store_making_step(struct sh_store_making *making, size_t chunks_most)
{
    SH_ASSERT(!making->is_over && chunks_most > 0);
    bool is_all = making->made == making->wish.count;
    if (making->err && making->longs.count > 0)
        longs_free(making->store, &making->wish, making->made, &making->longs);
    if (making->err && making->undone < making->made) {
        undo_some(making, chunks_most);
    } else if ((making->err || is_all) && making->ended < making->taken) {
        part_end(making);
    } else if (making->err) {
        failed_end(making);
    } else if (is_all) {
        count_made(making->store, &making->wish, making->made, making->payload);
        making->is_over = true;
    } else if (making->checked < making->wish.count) {
        sizes_check_some(making);
    } else if (making->made == making->taken) {
        part_begin(making);
    } else {
        fill_some(making, chunks_most);
    }
    return making->is_over;
}

void sh_store_making_fail(struct sh_store_making *making, enum shoal_err err)
{
    SH_ASSERT(err != SHOAL_OK && err != SHOAL_EFULL);
    if (!making->err && making->ended == 0)
        making->err = err;
}

enum shoal_err sh_store_making_end(struct sh_store_making *making)
{
    SH_ASSERT(making->is_over);
    enum shoal_err err = making->err;
    free(making);
    return err;
}

enum shoal_err sh_store_new_as(struct sh_store *store, const struct sh_store_wish *wish,
                               shoal_cid *cids_out, size_t *made_out)
{
    if (wish->partial && !wish->consecutive && wish->count > PARTIAL_PIECE)
        return make_pieces(store, wish, cids_out, made_out);
    return make_or_trim(store, wish, cids_out, made_out);
}

void sh_store_unretain(struct sh_store *store, const shoal_cid *cids, size_t count)
{
    shoal_cid lids[256];
    for (size_t done = 0; done < count;) {
        size_t some = 0;
        for (; some < sizeof lids / sizeof lids[0] && done + some < count; some++)
            lids[some] = (shoal_cid){sh_store_place(store, cids[done + some])};
        sh_idpool_unretain(store->pool, lids, some);
        done += some;
    }
}

enum shoal_err sh_store_new(struct sh_store *store, const uint32_t *sizes, size_t count,
                            shoal_cid *cids_out)
{
    SH_ASSERT(count == 0 || sizes != NULL);
    struct sh_store_wish wish = {.sizes = sizes, .count = count};
    return sh_store_new_as(store, &wish, cids_out, NULL);
}

enum shoal_err sh_store_new_many(struct sh_store *store, uint32_t size, size_t count,
                                 shoal_cid *cids_out)
{
    struct sh_store_wish wish = {.size = size, .count = count};
    return sh_store_new_as(store, &wish, cids_out, NULL);
}
