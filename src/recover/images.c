#include "recover/images.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/node_ids.h"

#define PLACES_MAX (UINT64_C(1) << 24) /* of claims: four times what a zone of 256 MiB can use */
#define DROPS_A_STEP 4096u             /* chunks that are looked at: a millisecond at most */
#define LOOK_COST 4u                   /* of them, of a claim, or of what lies between two */

static void *grown(void *array, size_t *room, size_t wanted, size_t each)
{
    if (wanted <= *room)
        return array;
    size_t more = 2 * *room > wanted ? 2 * *room : wanted + 7;
    void *larger = realloc(array, more * each);
    if (larger)
        *room = more;
    return larger;
}

/* Whether it can be a claim that an owner has recorded; empty ones are what is left of others. */
static bool is_claim(const struct sh_images *images, const struct sh_zone_claim *claim)
{
    shoal_nid creator = shoal_cid_creator((shoal_cid){claim->first});
    if (claim->first > claim->last)
        return true;
    return creator.v && creator.v == claim->last >> 48 &&
           (!images->is_online || sh_nid_is_peer(creator));
}

static enum shoal_err claim_take(struct sh_images *images, uint64_t place,
                                 const struct sh_replog_item *item)
{
    if (item->payload.size != 16 || !item->payload.at || place >= PLACES_MAX)
        return SHOAL_ECORRUPT;
    const struct sh_zone_claim claim = {sh_load64(item->payload.at),
                                        sh_load64(item->payload.at + 8)};
    if (!is_claim(images, &claim))
        return SHOAL_ECORRUPT;
    struct sh_zone_claim *claims =
        grown(images->claims, &images->claims_room, place + 1, sizeof *images->claims);
    if (!claims)
        return SHOAL_ENOMEM;
    images->claims = claims;
    for (; images->claims_count <= place; images->claims_count++)
        claims[images->claims_count] = (struct sh_zone_claim){.first = 1};
    claims[place] = claim;
    return SHOAL_OK;
}

static enum shoal_err completion_take(struct sh_images *images, struct sh_bytes bytes)
{
    struct sh_completion completion;
    if (!sh_completion_get(bytes, &completion))
        return SHOAL_ECORRUPT;
    images->has_completions = true;
    if (!images->is_online)
        sh_backup_completion_found(images->backup, bytes);
    if (!completion.node)
        completion.node = images->completer.v;
    return images->completions ? sh_completions_add(images->completions, &completion) : SHOAL_OK;
}

static enum shoal_err left_note(struct sh_images *images, uint64_t chunk, bool is_dropped)
{
    if (images->left_count) {
        const struct sh_images_left *last = &images->left[images->left_count - 1];
        if (last->chunk == chunk && last->is_dropped == is_dropped)
            return SHOAL_OK; /* another piece of it */
    }
    if (images->left_count == UINT32_MAX)
        return SHOAL_ELIMIT;
    struct sh_images_left *left =
        grown(images->left, &images->left_room, images->left_count + 1, sizeof *images->left);
    if (!left)
        return SHOAL_ENOMEM;
    images->left = left;
    left[images->left_count] =
        (struct sh_images_left){chunk, (uint32_t)images->left_count, is_dropped};
    images->left_count++;
    return SHOAL_OK;
}

static enum shoal_err left_add(struct sh_images *images, uint64_t chunk)
{
    return left_note(images, chunk, false);
}

shoal_cid sh_images_cid(const struct sh_images *images, uint64_t chunk)
{
    bool is_own = chunk >> 48 == images->nid.v;
    return (shoal_cid){is_own && images->is_nameless ? chunk & ~(UINT64_MAX << 48) : chunk};
}

/* Notes a chunk that is about to be put into the store. */
static enum shoal_err hull_add(struct sh_images *images, uint64_t chunk)
{
    size_t i = 0;
    while (i < images->hulls_count && images->hulls[i].first >> 48 != chunk >> 48)
        i++;
    if (i == images->hulls_count) {
        struct sh_zone_claim *hulls =
            grown(images->hulls, &images->hulls_room, i + 1, sizeof *images->hulls);
        if (!hulls)
            return SHOAL_ENOMEM;
        images->hulls = hulls;
        images->hulls[images->hulls_count++] = (struct sh_zone_claim){chunk, chunk};
    }
    struct sh_zone_claim *hull = &images->hulls[i];
    hull->first = chunk < hull->first ? chunk : hull->first;
    hull->last = chunk > hull->last ? chunk : hull->last;
    return SHOAL_OK;
}

static void count(struct sh_images *images, uint32_t size)
{
    images->live += size + SH_ZONE_CHUNK_BYTES;
    images->chunks++;
    images->payload_bytes += size;
}

static void uncount(struct sh_images *images, uint32_t size)
{
    images->live -= size + SH_ZONE_CHUNK_BYTES;
    images->chunks--;
    images->payload_bytes -= size;
}

/* Of a node that serves, an own ID whose chunk was elsewhere is taken, and nobody else is given it. EEXIST: the chunk is there already. */
static enum shoal_err store_put(struct sh_images *images, shoal_cid cid, struct sh_bytes bytes)
{
    uint32_t size;
    if (!images->is_online)
        return sh_store_adopt(images->store, cid, bytes);
    enum shoal_err err = sh_store_take_over(images->store, cid, bytes);
    bool is_there = err == SHOAL_ENOCHUNK && !sh_store_size(images->store, cid, &size);
    return is_there ? SHOAL_EEXIST : err; /* an own one is not to be taken over any more */
}

/* Puts the chunks that wait into the store. One that is there already was found twice. */
static enum shoal_err ops_flush(struct sh_images *images)
{
    struct sh_store *store = images->store;
    enum shoal_err err = SHOAL_OK;
    uint32_t size;
    if (images->is_online)
        (void)sh_store_take_over_multi(store, images->ops, images->ops_count);
    else
        (void)sh_store_adopt_multi(store, images->ops, images->ops_count);
    for (size_t i = 0; i < images->ops_count; i++) {
        const struct sh_store_op *op = &images->ops[i];
        bool is_there = op->err == SHOAL_EEXIST ||
                        (op->err == SHOAL_ENOCHUNK && !sh_store_size(store, op->lid, &size));
        if (!op->err)
            count(images, op->size);
        else if (op->err == SHOAL_EFULL && images->counts_missing)
            images->missing += op->size + SH_ZONE_CHUNK_BYTES;
        else if (!is_there && !err)
            err = op->err;
    }
    images->ops_count = 0;
    return err;
}

static enum shoal_err op_add(struct sh_images *images, uint64_t chunk, struct sh_bytes payload)
{
    enum shoal_err err = images->ops_count == SH_IMAGES_OPS ? ops_flush(images) : SHOAL_OK;
    if (images->missing) {
        images->missing += payload.size + SH_ZONE_CHUNK_BYTES;
        return err;
    }
    images->ops[images->ops_count++] =
        (struct sh_store_op){.lid = sh_images_cid(images, chunk),
                             .data = (void *)(uintptr_t)payload.at, /* only read */
                             .size = (uint32_t)payload.size};
    return err;
}

static enum shoal_err store_remove(struct sh_images *images, shoal_cid cid)
{
    return images->is_online ? sh_store_hand_back(images->store, cid)
                             : sh_store_remove(images->store, cid);
}

/* A piece goes to its place in the chunk, which the first one that comes makes. */
static enum shoal_err piece_take(struct sh_images *images, uint64_t chunk,
                                 const struct sh_replog_item *item)
{
    shoal_cid cid = sh_images_cid(images, chunk);
    enum shoal_err err = store_put(images, cid, sh_bytes_make(NULL, item->total));
    if (!err) {
        count(images, item->total); /* perhaps of zeros by now */
    } else if (err == SHOAL_EEXIST) {
        err = SHOAL_OK;
    } else if (err == SHOAL_EFULL && images->counts_missing) {
        images->missing += item->payload.size; /* the other pieces come, too */
        return SHOAL_OK;
    }
    if (!err && item->payload.at)
        err = sh_store_put_part(images->store, cid, item->offset, item->payload);
    return err;
}

static enum shoal_err returned_add(struct sh_images *images, uint64_t chunk)
{
    if (images->returned_count && images->returned[images->returned_count - 1] == chunk)
        return SHOAL_OK; /* another piece of it */
    uint64_t *returned = grown(images->returned, &images->returned_room, images->returned_count + 1,
                               sizeof *images->returned);
    if (!returned)
        return SHOAL_ENOMEM;
    images->returned = returned;
    returned[images->returned_count++] = chunk;
    return SHOAL_OK;
}

/* Whether another zone claims the chunk, and that counts. */
static bool is_others(const struct sh_images *images, uint64_t chunk, uint64_t number)
{
    return !images->counts || images->counts(images->arg, (shoal_cid){chunk}, number);
}

static enum shoal_err chunk_take(struct sh_images *images, uint64_t chunk,
                                 const struct sh_replog_item *item)
{
    uint64_t number;
    bool is_claimed_too =
        sh_backup_zone_number(images->backup, sh_images_cid(images, chunk), &number);
    if (is_claimed_too && is_others(images, chunk, number))
        return left_add(images, chunk); /* a later zone has it, or has removed it */
    enum shoal_err err = is_claimed_too ? returned_add(images, chunk) : SHOAL_OK;
    if (!err)
        err = hull_add(images, chunk);
    if (err)
        return err;
    if (item->pieces > 1)
        return piece_take(images, chunk, item);
    return op_add(images, chunk, item->payload);
}

enum shoal_err sh_images_take(struct sh_images *images, const struct sh_replog_item *item)
{
    uint64_t chunk = (uint64_t)item->creator << 48 | item->local_id;
    if (item->creator == 0 && item->local_id == SH_REPLOG_COMPLETION_ID)
        return completion_take(images, item->payload);
    if (item->creator == 0)
        return claim_take(images, item->local_id - 1, item);
    sh_store_witness_pause(images->is_online);
    enum shoal_err err = chunk_take(images, chunk, item);
    sh_store_witness_pause(false);
    return err;
}

enum shoal_err sh_images_flush(struct sh_images *images)
{
    sh_store_witness_pause(images->is_online);
    enum shoal_err err = ops_flush(images);
    sh_store_witness_pause(false);
    return err;
}

/* Whether another zone claims the chunk, and that counts: by now, for whose it is may have changed since the image was taken, as a zone that is being brought back has found it to be its own. */
static bool has_another(const struct sh_images *images, uint64_t chunk)
{
    uint64_t number;
    return sh_backup_zone_number(images->backup, sh_images_cid(images, chunk), &number) &&
           is_others(images, chunk, number);
}

/* The log has found a newer version of the chunk, or that it is removed, or that the write does not count. Whether the chunk was left is asked by
 * what the store has: whose it is may have changed since it was taken. */
static enum shoal_err chunk_drop(struct sh_images *images, uint64_t chunk)
{
    uint32_t size;
    shoal_cid cid = sh_images_cid(images, chunk);
    if (has_another(images, chunk) || sh_store_size(images->store, cid, &size))
        return left_note(images, chunk, true);
    enum shoal_err err = store_remove(images, cid);
    if (err)
        return err == SHOAL_EBUSY ? SHOAL_EAGAIN : err; /* EBUSY: it is pinned */
    uncount(images, size);
    return SHOAL_OK;
}

enum shoal_err sh_images_drop(struct sh_images *images, uint16_t creator, uint64_t local_id)
{
    if (creator == 0) { /* a claim; completion records are not dropped */
        SH_ASSERT(local_id >= 1 && local_id <= images->claims_count);
        images->claims[local_id - 1] = (struct sh_zone_claim){.first = 1};
        return SHOAL_OK;
    }
    sh_store_witness_pause(images->is_online);
    enum shoal_err err = ops_flush(images);
    if (!err)
        err = chunk_drop(images, (uint64_t)creator << 48 | local_id);
    sh_store_witness_pause(false);
    return err;
}

static int left_compare(const void *a, const void *b)
{
    const struct sh_images_left *one = a, *other = b;
    if (one->chunk != other->chunk)
        return one->chunk < other->chunk ? -1 : 1;
    return one->turn < other->turn ? -1 : one->turn > other->turn;
}

static void left_settle(struct sh_images *images)
{
    struct sh_images_left *left = images->left;
    size_t count = 0;
    if (images->left_count)
        qsort(left, images->left_count, sizeof *left, left_compare);
    for (size_t i = 0; i < images->left_count; i++) {
        bool is_last = i + 1 == images->left_count || left[i + 1].chunk != left[i].chunk;
        if (is_last && !left[i].is_dropped)
            left[count++] = left[i];
    }
    images->left_count = count;
}

static int run_compare(const void *a, const void *b)
{
    const struct sh_metadata_run *x = a, *y = b;
    return x->first.v < y->first.v ? -1 : x->first.v > y->first.v;
}

/* Puts the zone's claims in order, and joins those that touch. */
static enum shoal_err runs_make(struct sh_images *images)
{
    struct sh_metadata_run *runs = malloc((images->claims_count + 1) * sizeof *runs);
    size_t count = 0, kept = 0;
    if (!runs)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < images->claims_count; i++) {
        const struct sh_zone_claim *claim = &images->claims[i];
        if (claim->first <= claim->last)
            runs[count++] = (struct sh_metadata_run){{claim->first}, {claim->last}};
    }
    qsort(runs, count, sizeof *runs, run_compare);
    for (size_t i = 0; i < count; i++) {
        struct sh_metadata_run *last = kept ? &runs[kept - 1] : NULL;
        bool is_one = last && runs[i].first.v <= last->last.v + 1 &&
                      shoal_cid_creator(runs[i].first).v == shoal_cid_creator(last->first).v;
        if (!is_one)
            runs[kept++] = runs[i];
        else if (runs[i].last.v > last->last.v)
            last->last = runs[i].last;
    }
    images->runs = runs;
    images->runs_count = kept;
    return SHOAL_OK;
}

/* Whether a chunk in the store is the zone's, by what the backup says. */
static bool is_its(struct sh_images *images, uint64_t number, uint64_t chunk)
{
    uint64_t found;
    bool has_zone = sh_backup_zone_number(images->backup, sh_images_cid(images, chunk), &found);
    if (has_zone && found != number && !number)
        return !is_others(images, chunk, found);
    return has_zone ? found == number : !number;
}

static enum shoal_err one_drop(struct sh_images *images, uint64_t chunk, bool is_left)
{
    shoal_cid cid = sh_images_cid(images, chunk);
    uint32_t size;
    if (sh_store_size(images->store, cid, &size))
        return SHOAL_OK;
    enum shoal_err err = store_remove(images, cid);
    if (!err)
        uncount(images, size);
    return !err && is_left ? left_add(images, chunk) : err;
}

/* Goes over what the store has of some IDs, from where the last call has come; 0: from the first. EAGAIN: there is more, as so many chunks of a step were looked at. */
static enum shoal_err each_drop(struct sh_images *images, uint64_t number,
                                const struct sh_zone_claim *all, uint64_t *from, bool are_left,
                                unsigned *looks)
{
    uint64_t chunk = *from ? *from : all->first;
    enum shoal_err err = SHOAL_OK;
    SH_ASSERT(all->first <= chunk && chunk <= all->last);
    *from = 0;
    sh_store_witness_pause(images->is_online);
    while (sh_backup_chunk_next(images->backup, all, chunk, &chunk)) {
        uint64_t last = chunk;
        if (++*looks > DROPS_A_STEP)
            err = SHOAL_EAGAIN;
        else if (is_its(images, number, chunk))
            err = one_drop(images, chunk, are_left);
        else if (!images->counts) /* all that the other zone claims is passed over */
            (void)sh_backup_claimant(images->backup, chunk, &last);
        if (err) {
            *from = chunk;
            break;
        }
        if (last >= all->last)
            break;
        chunk = last + 1;
    }
    sh_store_witness_pause(false);
    return err;
}

enum shoal_err sh_images_leave(struct sh_images *images, uint64_t number, uint64_t first,
                               uint64_t last)
{
    unsigned looks = 0;
    SH_ASSERT(number);
    return each_drop(images, number, &(struct sh_zone_claim){first, last}, &images->leave_from,
                     true, &looks);
}

/* The chunks of a hull that no claim has. EAGAIN: there are more. */
static enum shoal_err strays_leave(struct sh_images *images, const struct sh_zone_claim *hull,
                                   unsigned *looks)
{
    const struct sh_metadata_run *runs = images->runs;
    uint64_t from = images->settle_from ? images->settle_from : hull->first;
    while (from <= hull->last) {
        size_t at = sh_metadata_runs_find(runs, images->runs_count, from);
        bool is_claimed = at < images->runs_count && runs[at].first.v <= from;
        uint64_t to = at == images->runs_count ? hull->last
                      : is_claimed             ? runs[at].last.v
                                               : runs[at].first.v - 1;
        const struct sh_zone_claim gap = {from, to < hull->last ? to : hull->last};
        images->settle_from = from;
        *looks += LOOK_COST;
        enum shoal_err err = *looks > DROPS_A_STEP ? SHOAL_EAGAIN : SHOAL_OK;
        if (!err && !is_claimed)
            err = each_drop(images, 0, &gap, &images->leave_from, true, looks);
        if (err)
            return err;
        from = gap.last + 1;
    }
    images->settle_from = 0;
    return SHOAL_OK;
}

/* Of what another zone claims this one keeps what is in the store, and is not dropped, if the claim still does not count. EAGAIN: there are more. */
static enum shoal_err returned_settle(struct sh_images *images, unsigned *looks)
{
    enum shoal_err err = SHOAL_OK;
    uint32_t size;
    sh_store_witness_pause(images->is_online);
    for (; !err && images->returned_at < images->returned_count; images->returned_at += !err) {
        uint64_t chunk = images->returned[images->returned_at];
        bool is_there = !sh_store_size(images->store, sh_images_cid(images, chunk), &size);
        if (++*looks > DROPS_A_STEP)
            err = SHOAL_EAGAIN;
        else if (is_there && has_another(images, chunk))
            err = one_drop(images, chunk, true);
        else if (is_there)
            images->returned[images->returned_kept++] = chunk;
    }
    sh_store_witness_pause(false);
    return err;
}

enum shoal_err sh_images_settle(struct sh_images *images)
{
    SH_ASSERT(!images->ops_count);
    enum shoal_err err = images->runs ? SHOAL_OK : runs_make(images);
    unsigned looks = 0;
    for (; !err && images->settle_hull < images->hulls_count; images->settle_hull += !err)
        err = strays_leave(images, &images->hulls[images->settle_hull], &looks);
    if (!err)
        err = returned_settle(images, &looks);
    if (err)
        return err;
    images->returned_count = images->returned_kept;
    left_settle(images);
    return SHOAL_OK;
}

/* These first: no claim may tell them as the zone's any more. */
static enum shoal_err returned_undo(struct sh_images *images, unsigned *looks)
{
    enum shoal_err err = SHOAL_OK;
    sh_store_witness_pause(images->is_online);
    for (; !err && images->returned_count; images->returned_count -= !err) {
        if (++*looks > DROPS_A_STEP)
            err = SHOAL_EAGAIN;
        else
            err = one_drop(images, images->returned[images->returned_count - 1], false);
    }
    sh_store_witness_pause(false);
    return err;
}

enum shoal_err sh_images_undo(struct sh_images *images, uint64_t number)
{
    unsigned looks = 0;
    images->ops_count = 0; /* those will not be */
    if (!images->hulls_count)
        return SHOAL_OK;
    enum shoal_err err = number ? SHOAL_OK : returned_undo(images, &looks);
    if (err)
        return err;
    err = each_drop(images, number, &images->hulls[images->hulls_count - 1], &images->undo_from,
                    false, &looks);
    if (!err)
        images->hulls_count--;
    return !err && images->hulls_count ? SHOAL_EAGAIN : err;
}

void sh_images_begin(struct sh_images *images)
{
    free(images->runs);
    images->runs = NULL;
    images->claims_count = images->runs_count = images->left_count = images->hulls_count = 0;
    images->returned_count = images->ops_count = 0;
    images->live = images->chunks = images->payload_bytes = images->missing = 0;
    images->leave_from = images->undo_from = images->settle_from = 0;
    images->settle_hull = images->returned_at = images->returned_kept = 0;
    images->has_completions = false;
}

void sh_images_end(struct sh_images *images)
{
    free(images->claims);
    free(images->runs);
    free(images->left);
    free(images->returned);
    free(images->hulls);
    images->claims = images->hulls = NULL;
    images->runs = NULL;
    images->left = NULL;
    images->returned = NULL;
    images->returned_count = images->returned_room = 0;
    images->claims_count = images->runs_count = images->left_count = images->hulls_count = 0;
    images->claims_room = images->left_room = images->hulls_room = 0;
}
