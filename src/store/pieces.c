/* One large chunk in pieces: reading, and writing by putting another block in its place.
 *
 *            +--------------- others have written: again ---------------+
 *            v                                                          |
 *   LOOK --> COMPARE (put_if) --> OPEN --> COPY, old and new bytes --> SWAP --> OVER
 *      \                             \                                          ^
 *       \--> AT_ONCE (pinned; short) <-+ no memory for a second block            |
 *               +-----------------------------------------------------------------+
 *
 * With a witness, which is told all of a large image before the swap, nothing is done at once:
 *
 *   LOOK --> COMPARE --> OPEN --> COPY --> BEGIN --> TELL --> SWAP --> OVER
 *   LOOK --> BEGIN --> COMPARE --> OPEN --> COPY --> TELL --> SWAP --> OVER   started again too often
 *   LOOK --> BEGIN --> TELL --> OVER                                          a chunk that is retold
 *
 * From BEGIN on the witness admits no change of the chunk by others, so after one more look nobody makes
 * the rewriting start again.
 *
 * It is as if all had been done at the SWAP: that takes the group's layout bit and looks whether the
 * chunk's mark is still the one that the old bytes were compared and copied under. Marks rise with
 * each write (sh_store_let_go), and no two blocks begin with the same. A put of all bytes needs no
 * old ones, so it does not matter to it who has written meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "store/witness_int.h"

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

enum phase { LOOK, COMPARE, OPEN, COPY, BEGIN, TELL, SWAP, AT_ONCE, OVER };

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
    uint64_t old;           /* of an addition: what was there */
    struct sh_store_telling telling;
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
    case SH_STORE_ADD:
        return sh_store_add(store, cid, rewrite->offset, rewrite->width, rewrite->delta,
                            rewrite->old_out);
    case SH_STORE_RETELL:
        return sh_store_retell(store, cid);
    default:
        SH_ASSERT(rewrite->kind == SH_STORE_FILL);
        return sh_store_fill(store, cid, rewrite->data);
    }
}

enum shoal_err sh_store_rewriting_begin(struct sh_store *store,
                                        const struct sh_store_rewrite *rewrite,
                                        struct sh_store_rewriting **rewriting_out)
{
    SH_ASSERT(rewrite->kind != SH_STORE_ADD || rewrite->width == 4 || rewrite->width == 8);
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
    sh_witness_end(rewriting->store, rewriting->rewrite.cid, &rewriting->telling, 0, false);
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
    bool is_last = rewriting->tries == SH_STORE_TRIES - 1;
    sh_witness_end(rewriting->store, rewriting->rewrite.cid, &rewriting->telling, 0, false);
    block_free(rewriting);
    rewriting->done = 0;
    rewriting->tries += rewriting->tries < SH_STORE_TRIES;
    rewriting->phase = is_last && !sh_store_is_witnessed(rewriting->store) ? AT_ONCE : LOOK;
}

/* Whether all of the new bytes are zeros, which the witness is told at once. */
static bool is_zeros(const struct sh_store_rewriting *rewriting)
{
    return rewriting->rewrite.kind == SH_STORE_RESIZE && rewriting->before == 0;
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
    if (rewrite->kind == SH_STORE_RESIZE || rewrite->kind == SH_STORE_RETELL)
        return SHOAL_OK;
    if (rewrite->kind == SH_STORE_ADD)
        bytes = rewrite->width;
    if (rewrite->kind == SH_STORE_PUT_PART || rewrite->kind == SH_STORE_ADD)
        return rewrite->offset <= size && bytes <= size - rewrite->offset ? SHOAL_OK : SHOAL_ESIZE;
    if (bytes != size)
        return SHOAL_ESIZE;
    bool differs = rewrite->kind == SH_STORE_PUT_IF && rewrite->expected.size != bytes;
    return differs ? SHOAL_EDIFFERS : SHOAL_OK;
}

static enum phase first_of(const struct sh_store_rewriting *rewriting)
{
    enum sh_store_rewrite_kind kind = rewriting->rewrite.kind;
    return kind == SH_STORE_PUT_IF || kind == SH_STORE_PUT_IF_HASH ? COMPARE : OPEN;
}

/* Where it goes on with a large image of which a witness is to be told. */
static void look_told(struct sh_store_rewriting *rewriting, bool is_pinned)
{
    bool is_retold = rewriting->rewrite.kind == SH_STORE_RETELL;
    if (is_pinned && !is_retold)
        over(rewriting, SHOAL_EBUSY);
    else if (is_retold || (rewriting->tries == SH_STORE_TRIES && !is_zeros(rewriting)))
        rewriting->phase = BEGIN;
    else
        rewriting->phase = first_of(rewriting);
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
    else if (rewriting->after <= SH_STORE_PIECE_BYTES ||
             rewriting->after > rewriting->store->chunk_bytes_max)
        rewriting->phase = AT_ONCE;
    else if (sh_store_is_witnessed(rewriting->store))
        look_told(rewriting, is_pinned);
    else if (is_pinned || rewrite->kind == SH_STORE_ADD || rewrite->kind == SH_STORE_RETELL)
        rewriting->phase = AT_ONCE;
    else
        rewriting->phase = first_of(rewriting);
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
    else if (gets_larger || sh_store_is_witnessed(rewriting->store))
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
    } else if (rewrite->kind == SH_STORE_ADD) {
        *is_old_out = true;
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

/* The witness admits no change by others any more: begins to tell it, if the chunk is still what the new
 * bytes were made of. Of a chunk that was too short for a block of its own, which has no mark, they
 * are copied now. */
static void tell_copied(struct sh_store_rewriting *rewriting)
{
    struct sh_hold hold;
    SH_ASSERT(rewriting->telling.has_begun && rewriting->block);
    rewriting->phase = TELL;
    if (rewriting->rewrite.kind == SH_STORE_FILL)
        return;
    if (sh_store_hold(rewriting->store, rewriting->rewrite.cid, &hold)) {
        start_again(rewriting);
        return;
    }
    bool is_same = is_as_before(rewriting, &hold.spot);
    if (is_same && !hold.spot.long_block)
        sh_long_write(rewriting->store, rewriting->block, 0, hold.spot.at, hold.spot.size);
    sh_store_let_go(&hold, false);
    if (!is_same)
        start_again(rewriting);
}

/* The new block has all that is to be in it, but for the field of an addition. */
static void copied(struct sh_store_rewriting *rewriting)
{
    const struct sh_store_rewrite *rewrite = &rewriting->rewrite;
    if (rewrite->kind == SH_STORE_ADD)
        rewriting->old =
            sh_field_add(sh_long_bytes(rewriting->store, rewriting->block) + rewrite->offset,
                         rewrite->width, rewrite->delta);
    if (rewriting->telling.has_begun)
        tell_copied(rewriting);
    else
        rewriting->phase =
            sh_store_is_witnessed(rewriting->store) && !is_zeros(rewriting) ? BEGIN : SWAP;
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
        copied(rewriting);
}

/* Begins to tell the witness; before the new bytes are there, where others have made it start again too
 * often. */
static void begin(struct sh_store_rewriting *rewriting)
{
    enum shoal_err err = sh_witness_begin(rewriting->store, rewriting->rewrite.cid,
                                          rewriting->before, rewriting->after, &rewriting->telling);
    if (err == SHOAL_EAGAIN)
        return;
    if (err)
        over(rewriting, err);
    else if (rewriting->rewrite.kind == SH_STORE_RETELL)
        rewriting->phase = TELL;
    else if (rewriting->block)
        tell_copied(rewriting);
    else
        rewriting->phase = first_of(rewriting);
}

/* The next piece of the chunk as it is, and the end with the last one. Which bytes these are is settled
 * with the first piece, as since the look others may have written. */
static void retell(struct sh_store_rewriting *rewriting)
{
    struct sh_store *store = rewriting->store;
    struct sh_store_telling *telling = &rewriting->telling;
    struct sh_hold hold;
    shoal_cid cid = rewriting->rewrite.cid;
    if (sh_store_hold(store, cid, &hold)) {
        start_again(rewriting);
        return;
    }
    struct sh_mark mark = sh_mark_of(store, &hold.spot);
    if (telling->told == 0)
        rewriting->mark = mark;
    if (hold.spot.size != rewriting->after || !sh_mark_is(mark, rewriting->mark)) {
        sh_store_let_go(&hold, false);
        start_again(rewriting);
        return;
    }
    enum shoal_err err = sh_witness_piece(store, cid, hold.spot.at, hold.spot.size, telling);
    bool is_last = !err && telling->told == rewriting->after;
    if (is_last)
        sh_witness_end(store, cid, telling, rewriting->after, true);
    sh_store_let_go(&hold, false);
    if (is_last || (err && err != SHOAL_EAGAIN))
        over(rewriting, err);
}

static void tell(struct sh_store_rewriting *rewriting)
{
    if (rewriting->rewrite.kind == SH_STORE_RETELL) {
        retell(rewriting);
        return;
    }
    enum shoal_err err = sh_witness_piece(rewriting->store, rewriting->rewrite.cid,
                                          sh_long_bytes(rewriting->store, rewriting->block),
                                          rewriting->after, &rewriting->telling);
    if (err && err != SHOAL_EAGAIN)
        over(rewriting, err);
    else if (rewriting->telling.told == rewriting->after)
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

/* The first bytes are those of a chunk that is too short for a block of its own: copies them. Where they
 * have been told, false: they are others by now, written through a pin that is gone. */
static bool short_copied(struct sh_store_rewriting *rewriting, const struct sh_spot *spot)
{
    if (rewriting->telling.has_begun)
        return memcmp(sh_long_bytes(rewriting->store, rewriting->block), spot->at, spot->size) == 0;
    sh_long_write(rewriting->store, rewriting->block, 0, spot->at, spot->size);
    return true;
}

/* Puts the new block in the chunk's place, whose group is held, and tells the witness that it is there. */
static enum shoal_err block_install(struct sh_store_rewriting *rewriting, struct sh_group *group,
                                    struct sh_change *change)
{
    struct sh_store *store = rewriting->store;
    shoal_cid cid = rewriting->rewrite.cid;
    bool is_told = rewriting->telling.has_begun;
    enum shoal_err err = SHOAL_OK;
    if (is_told)
        sh_cut_enter(store, cid, false);
    else
        err = sh_witness_admit(store, cid, SH_STORE_WRITTEN, rewriting->before, rewriting->after,
                               true);
    if (err)
        return err;
    sh_change_long(change, sh_store_index(cid), &rewriting->block);
    err = sh_group_change(store, group, change);
    if (is_told) {
        sh_witness_end(store, cid, &rewriting->telling, rewriting->before, err == SHOAL_OK);
        sh_cut_leave(store);
    } else {
        sh_witness_record(store, cid, SH_STORE_WRITTEN, sh_bytes_make(NULL, rewriting->after), err);
    }
    return err;
}

/* Puts the new block in the old one's place, if that is what it was. */
static void swap(struct sh_store_rewriting *rewriting)
{
    struct sh_store *store = rewriting->store;
    struct sh_group *group;
    struct sh_change change;
    struct sh_spot spot;
    shoal_cid cid = rewriting->rewrite.cid;
    if (rewriting->rewrite.kind == SH_STORE_FILL) {
        over(rewriting,
             sh_long_fill(store, cid, rewriting->block, rewriting->after, &rewriting->telling));
        rewriting->block = 0;
        return;
    }
    if (sh_chunk_change_begin(store, cid, &group, &change, &spot)) {
        start_again(rewriting);
        return;
    }
    if (!is_as_before(rewriting, &spot) || (!spot.long_block && !short_copied(rewriting, &spot))) {
        sh_group_layout_end(group, false);
        start_again(rewriting);
        return;
    }
    enum shoal_err err = block_install(rewriting, group, &change);
    sh_group_layout_end(group, !err);
    if (err == SHOAL_EAGAIN)
        return;
    if (!err) {
        rewriting->block = 0;
        count(rewriting);
        if (rewriting->rewrite.kind == SH_STORE_ADD)
            *rewriting->rewrite.old_out = rewriting->old;
        if (spot.long_block)
            sh_long_free(store, spot.long_block, spot.size);
    }
    over(rewriting, err);
}

/* With the function for it. Where the witness has no room, later; where the chunk has got so large
 * meanwhile that the witness is told in pieces, after another look. */
static void do_at_once(struct sh_store_rewriting *rewriting)
{
    enum shoal_err err = sh_store_rewrite_do(rewriting->store, &rewriting->rewrite);
    if (!sh_store_is_witnessed(rewriting->store) || (err != SHOAL_EAGAIN && err != SHOAL_ELIMIT))
        over(rewriting, err);
    else if (err == SHOAL_ELIMIT)
        rewriting->phase = LOOK;
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
    case BEGIN:
        begin(rewriting);
        break;
    case TELL:
        tell(rewriting);
        break;
    case SWAP:
        swap(rewriting);
        break;
    case AT_ONCE:
        do_at_once(rewriting);
        break;
    case OVER:
        SH_ASSERT(!"over");
    }
    return rewriting->phase == OVER;
}

enum shoal_err sh_store_rewriting_end(struct sh_store_rewriting *rewriting)
{
    enum shoal_err err = rewriting->phase == OVER ? rewriting->err : SHOAL_ECANCELED;
    sh_witness_end(rewriting->store, rewriting->rewrite.cid, &rewriting->telling, 0, false);
    block_free(rewriting);
    (void)sh_hash64_end(rewriting->hash);
    free(rewriting);
    return err;
}
