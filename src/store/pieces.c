/* One large chunk in pieces: reading, and writing by putting another block in its place.
 *
 *            +--------------- others have written: again ---------------+
 *            v                                                          |
 *   LOOK --> COMPARE (put_if) --> OPEN --> COPY, old and new bytes --> SWAP --> OVER
 *      \                             \                                          ^
 *       \--> AT_ONCE (pinned; short) <-+ no memory for a second block            |
 *               +-----------------------------------------------------------------+
 *
 * It is as if all had been done at the SWAP: that takes the group's layout bit and looks whether the
 * chunk's mark is still the one that the old bytes were compared and copied under. Marks rise with
 * each write (sh_store_let_go), and no two blocks begin with the same. A put of all bytes needs no
 * old ones, so it does not matter to it who has written meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "store/store_int.h"

/* --- Reading ------------------------------------------------------------------------------- */

/* All of it with one copy. */
static enum shoal_err read_at_once(struct sh_store *store, struct sh_store_reading *reading)
{
    uint32_t size;
    if (!reading->is_whole)
        return sh_store_get_part(store, reading->cid, reading->offset, reading->into,
                                 reading->size);
    enum shoal_err err = sh_store_get(store, reading->cid, reading->into, reading->size, &size);
    return !err && size != reading->size ? SHOAL_ESIZE : err;
}

bool sh_store_reading_step(struct sh_store *store, struct sh_store_reading *reading,
                           enum shoal_err *err_out)
{
    uint32_t left = reading->size - reading->done, whole;
    uint32_t some = left < SH_STORE_STEP_BYTES ? left : SH_STORE_STEP_BYTES;
    struct sh_mark mark, before = {reading->block, reading->stamp};
    SH_ASSERT(reading->done <= reading->size && reading->tries <= SH_STORE_TRIES);
    if (reading->tries == SH_STORE_TRIES) {
        *err_out = read_at_once(store, reading);
        return true;
    }
    enum shoal_err err = sh_store_copy_part(store, reading->cid, reading->offset + reading->done,
                                            reading->into + reading->done, some, &whole, &mark);
    if (!err && reading->is_whole && whole != reading->size)
        err = SHOAL_ESIZE;
    if (err) {
        *err_out = err;
        return true;
    }
    bool is_first = reading->done == 0;
    if ((is_first && some < left && !mark.block) || (!is_first && !sh_mark_is(mark, before))) {
        reading->done = 0;
        reading->tries = mark.block ? reading->tries + 1 : SH_STORE_TRIES;
        return false;
    }
    reading->done += some;
    reading->block = mark.block;
    reading->stamp = mark.stamp;
    if (some < left)
        return false;
    sh_tally_add(&sh_store_tally(store)->gets, 1);
    *err_out = SHOAL_OK;
    return true;
}

/* --- Writing ------------------------------------------------------------------------------- */

enum phase { LOOK, COMPARE, OPEN, COPY, SWAP, AT_ONCE, OVER };

struct sh_store_rewriting {
    struct sh_store *store;
    struct sh_store_rewrite rewrite;
    enum phase phase;
    unsigned tries;
    enum shoal_err err;
    struct sh_mark mark;    /* from LOOK on; not of a FILL */
    uint32_t before, after; /* sizes of the chunk */
    uint32_t done;          /* bytes compared, or copied */
    uint64_t block;         /* the new one; 0: none */
    struct sh_hash64 *hash; /* of what was compared */
};

enum shoal_err sh_store_rewrite_do(struct sh_store *store, const struct sh_store_rewrite *rewrite)
{
    shoal_cid cid = rewrite->cid;
    switch (rewrite->kind) {
    case SH_STORE_PUT:
        return sh_store_put(store, cid, rewrite->data);
    case SH_STORE_PUT_PART:
        return sh_store_put_part(store, cid, rewrite->offset, rewrite->data);
    case SH_STORE_PUT_IF:
        return sh_store_put_if(store, cid, rewrite->expected, rewrite->data);
    case SH_STORE_PUT_IF_HASH:
        return sh_store_put_if_hash(store, cid, rewrite->hash, rewrite->data);
    case SH_STORE_RESIZE:
        return sh_store_resize(store, cid, rewrite->size);
    default:
        SH_ASSERT(rewrite->kind == SH_STORE_FILL);
        return sh_store_fill(store, cid, rewrite->data);
    }
}

enum shoal_err sh_store_rewriting_begin(struct sh_store *store,
                                        const struct sh_store_rewrite *rewrite,
                                        struct sh_store_rewriting **rewriting_out)
{
    struct sh_store_rewriting *rewriting = calloc(1, sizeof *rewriting);
    if (!rewriting)
        return SHOAL_ENOMEM;
    rewriting->store = store;
    rewriting->rewrite = *rewrite;
    *rewriting_out = rewriting;
    return SHOAL_OK;
}

static void over(struct sh_store_rewriting *rewriting, enum shoal_err err)
{
    rewriting->err = err;
    rewriting->phase = OVER;
}

static void block_free(struct sh_store_rewriting *rewriting)
{
    if (rewriting->block)
        sh_long_free(rewriting->store, rewriting->block, rewriting->after);
    rewriting->block = 0;
}

/* Others have written to the chunk, or made another of it. */
static void start_again(struct sh_store_rewriting *rewriting)
{
    block_free(rewriting);
    rewriting->done = 0;
    rewriting->phase = ++rewriting->tries == SH_STORE_TRIES ? AT_ONCE : LOOK;
}

/* Whether the chunk's old bytes matter to what is written. */
static bool needs_old(const struct sh_store_rewriting *rewriting)
{
    return rewriting->rewrite.kind != SH_STORE_PUT && rewriting->rewrite.kind != SH_STORE_FILL;
}

/* What can be said by the chunk's size. */
static enum shoal_err sizes_check(const struct sh_store_rewriting *rewriting)
{
    const struct sh_store_rewrite *rewrite = &rewriting->rewrite;
    uint32_t size = rewriting->before;
    size_t bytes = rewrite->data.size;
    if (rewrite->kind == SH_STORE_RESIZE)
        return SHOAL_OK;
    if (rewrite->kind == SH_STORE_PUT_PART)
        return rewrite->offset <= size && bytes <= size - rewrite->offset ? SHOAL_OK : SHOAL_ESIZE;
    if (bytes != size)
        return SHOAL_ESIZE;
    bool differs = rewrite->kind == SH_STORE_PUT_IF && rewrite->expected.size != bytes;
    return differs ? SHOAL_EDIFFERS : SHOAL_OK;
}

/* Looks at what is there, and whether it is done in pieces. */
static void look(struct sh_store_rewriting *rewriting)
{
    const struct sh_store_rewrite *rewrite = &rewriting->rewrite;
    struct sh_hold hold;
    if (rewrite->kind == SH_STORE_FILL) {
        bool is_small = rewrite->data.size <= SH_STORE_PIECE_BYTES ||
                        rewrite->data.size > rewriting->store->chunk_bytes_max;
        rewriting->after = (uint32_t)rewrite->data.size;
        rewriting->phase = is_small ? AT_ONCE : OPEN;
        return;
    }
    enum shoal_err err = sh_store_hold(rewriting->store, rewrite->cid, &hold);
    if (err) {
        over(rewriting, err);
        return;
    }
    rewriting->mark = sh_mark_of(rewriting->store, &hold.spot);
    rewriting->before = hold.spot.size;
    bool is_pinned = hold.spot.pins > 0;
    sh_store_let_go(&hold, false);
    rewriting->after = rewrite->kind == SH_STORE_RESIZE ? rewrite->size : rewriting->before;
    err = sizes_check(rewriting);
    if (err)
        over(rewriting, err);
    else if (is_pinned || rewriting->after <= SH_STORE_PIECE_BYTES ||
             rewriting->after > rewriting->store->chunk_bytes_max)
        rewriting->phase = AT_ONCE;
    else if (rewrite->kind == SH_STORE_PUT_IF || rewrite->kind == SH_STORE_PUT_IF_HASH)
        rewriting->phase = COMPARE;
    else
        rewriting->phase = OPEN;
}

/* Holds the chunk if it is what it was. */
static bool hold_same(struct sh_store_rewriting *rewriting, struct sh_hold *hold_out)
{
    if (sh_store_hold(rewriting->store, rewriting->rewrite.cid, hold_out))
        return false;
    if (sh_mark_is(sh_mark_of(rewriting->store, &hold_out->spot), rewriting->mark))
        return true;
    sh_store_let_go(hold_out, false);
    return false;
}

/* Whether the next bytes are as they should be, as far as that can be said before the last. */
static bool compare_some(struct sh_store_rewriting *rewriting, struct sh_bytes bytes)
{
    const struct sh_store_rewrite *rewrite = &rewriting->rewrite;
    if (rewrite->kind == SH_STORE_PUT_IF)
        return memcmp(bytes.at, rewrite->expected.at + rewriting->done, bytes.size) == 0;
    sh_hash64_add(rewriting->hash, bytes);
    if (rewriting->done + bytes.size < rewriting->before)
        return true;
    uint64_t hash = sh_hash64_end(rewriting->hash);
    rewriting->hash = NULL;
    return hash == rewrite->hash;
}

static void compare(struct sh_store_rewriting *rewriting)
{
    struct sh_hold hold;
    uint32_t left = rewriting->before - rewriting->done;
    uint32_t some = left < SH_STORE_STEP_BYTES ? left : SH_STORE_STEP_BYTES;
    if (rewriting->done == 0 && rewriting->rewrite.kind == SH_STORE_PUT_IF_HASH) {
        (void)sh_hash64_end(rewriting->hash);
        rewriting->hash = sh_hash64_begin(0);
        if (!rewriting->hash) {
            over(rewriting, SHOAL_ENOMEM);
            return;
        }
    }
    if (!hold_same(rewriting, &hold)) {
        start_again(rewriting);
        return;
    }
    bool is_same = compare_some(rewriting, sh_bytes_make(hold.spot.at + rewriting->done, some));
    sh_store_let_go(&hold, false);
    rewriting->done += some;
    if (!is_same) {
        over(rewriting, SHOAL_EDIFFERS);
    } else if (some == left) {
        rewriting->done = 0;
        rewriting->phase = OPEN;
    }
}

static void open_block(struct sh_store_rewriting *rewriting)
{
    enum sh_store_rewrite_kind kind = rewriting->rewrite.kind;
    bool gets_larger = kind == SH_STORE_FILL || rewriting->after > rewriting->before;
    /* The old block is given back soon: the reserve may be used until then. */
    enum shoal_err err =
        sh_long_open(rewriting->store, rewriting->after, !gets_larger, &rewriting->block);
    if (!err)
        rewriting->phase = COPY;
    else if (gets_larger)
        over(rewriting, err);
    else
        rewriting->phase = AT_ONCE;
}

/* Where the next bytes come from, and how many of them: the old chunk, data (*data_out), or zeros.
 */
static uint32_t source_next(const struct sh_store_rewriting *rewriting, bool *is_old_out,
                            const uint8_t **data_out)
{
    const struct sh_store_rewrite *rewrite = &rewriting->rewrite;
    uint32_t done = rewriting->done, end = rewriting->after;
    *is_old_out = false;
    *data_out = NULL;
    if (rewrite->kind == SH_STORE_RESIZE) {
        *is_old_out = done < rewriting->before && rewriting->mark.block;
        end = *is_old_out && rewriting->before < end ? rewriting->before : end;
    } else {
        uint32_t first = rewrite->kind == SH_STORE_PUT_PART ? rewrite->offset : 0;
        uint32_t last = first + (uint32_t)rewrite->data.size;
        *is_old_out = done < first || done >= last;
        if (!*is_old_out)
            *data_out = rewrite->data.at + (done - first);
        end = done < first ? first : done < last ? last : end;
    }
    return end - done < SH_STORE_STEP_BYTES ? end - done : SH_STORE_STEP_BYTES;
}

static void copy(struct sh_store_rewriting *rewriting)
{
    struct sh_hold hold;
    const uint8_t *data;
    bool is_old;
    uint32_t some = source_next(rewriting, &is_old, &data);
    if (is_old && !hold_same(rewriting, &hold)) {
        start_again(rewriting);
        return;
    }
    if (is_old)
        data = hold.spot.at + rewriting->done;
    sh_long_write(rewriting->store, rewriting->block, rewriting->done, data, some);
    if (is_old)
        sh_store_let_go(&hold, false);
    rewriting->done += some;
    if (rewriting->done == rewriting->after)
        rewriting->phase = SWAP;
}

static void count(struct sh_store_rewriting *rewriting)
{
    struct sh_tally *tally = sh_store_tally(rewriting->store);
    if (rewriting->rewrite.kind == SH_STORE_RESIZE)
        sh_tally_add(&tally->payload_bytes, (uint64_t)rewriting->after - rewriting->before);
    else
        sh_tally_add(&tally->puts, 1);
}

/* Whether the chunk is what it was, as far as that matters. */
static bool is_as_before(const struct sh_store_rewriting *rewriting, const struct sh_spot *spot)
{
    struct sh_mark mark = sh_mark_of(rewriting->store, spot);
    if (spot->pins > 0 || !mark.block != !rewriting->mark.block)
        return false;
    if (needs_old(rewriting) && mark.block)
        return sh_mark_is(mark, rewriting->mark);
    return spot->size == rewriting->before;
}

/* Puts the new block in the old one's place, if that is what it was. The bytes of a chunk that was
 * too short for a block of its own are copied now. */
static void swap(struct sh_store_rewriting *rewriting)
{
    struct sh_store *store = rewriting->store;
    struct sh_group *group;
    struct sh_change change;
    struct sh_spot spot;
    shoal_cid cid = rewriting->rewrite.cid;
    if (rewriting->rewrite.kind == SH_STORE_FILL) {
        over(rewriting, sh_long_fill(store, cid, rewriting->block, rewriting->after));
        rewriting->block = 0;
        return;
    }
    if (sh_chunk_change_begin(store, cid, &group, &change, &spot)) {
        start_again(rewriting);
        return;
    }
    if (!is_as_before(rewriting, &spot)) {
        sh_group_layout_end(group, false);
        start_again(rewriting);
        return;
    }
    if (!spot.long_block)
        sh_long_write(store, rewriting->block, 0, spot.at, spot.size);
    sh_change_long(&change, sh_store_index(cid), &rewriting->block);
    enum shoal_err err = sh_group_change(store, group, &change);
    sh_group_layout_end(group, !err);
    if (!err) {
        rewriting->block = 0;
        count(rewriting);
        if (spot.long_block)
            sh_long_free(store, spot.long_block, spot.size);
    }
    over(rewriting, err);
}

bool sh_store_rewriting_step(struct sh_store_rewriting *rewriting)
{
    switch (rewriting->phase) {
    case LOOK:
        look(rewriting);
        break;
    case COMPARE:
        compare(rewriting);
        break;
    case OPEN:
        open_block(rewriting);
        break;
    case COPY:
        copy(rewriting);
        break;
    case SWAP:
        swap(rewriting);
        break;
    case AT_ONCE:
        over(rewriting, sh_store_rewrite_do(rewriting->store, &rewriting->rewrite));
        break;
    case OVER:
        SH_ASSERT(!"over");
    }
    return rewriting->phase == OVER;
}

enum shoal_err sh_store_rewriting_end(struct sh_store_rewriting *rewriting)
{
    enum shoal_err err = rewriting->phase == OVER ? rewriting->err : SHOAL_ECANCELED;
    block_free(rewriting);
    (void)sh_hash64_end(rewriting->hash);
    free(rewriting);
    return err;
}
