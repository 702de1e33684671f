/* Reading and writing one chunk. */
#include "base/assert.h"
#include "base/hash.h"
#include "store/witness_int.h"

/* A reader that failed so often takes the chunk's write bit, so that it is served for certain. */
#define TRIES 64
/* Longer ones do so after the first failure: the copy that was lost is dear. */
#define LONG_BYTES 65536

enum seen { SEEN_TORN, SEEN_ABSENT, SEEN_CHUNK };

/* Looks for a chunk without a lock. */
static inline enum seen look(const struct sh_store *store, const struct sh_group *group,
                             unsigned index, uint64_t *sequence_out, struct sh_spot *spot_out)
{
    if (!sh_group_read_begin(group, index, sequence_out))
        return SEEN_TORN;
    struct sh_layout layout = sh_group_layout(group);
    unsigned code = sh_layout_code(&layout, index);
    if (code < SH_CODE_FIRST)
        return sh_group_read_good(group, index, *sequence_out) ? SEEN_ABSENT : SEEN_TORN;
    uint8_t *block = sh_alloc_at(store->alloc, sh_layout_offset(&layout));
    spot_out->at = block + sh_layout_place(&layout, block, index, &spot_out->size);
    spot_out->long_block = 0;
    if (code != SH_CODE_LONG)
        return SEEN_CHUNK;
    uint64_t offset;
    sh_copy_out(&offset, spot_out->at, sizeof offset);
    /* Not to be followed before it is known to be one, nor the size used before it is. */
    if (!sh_group_read_good(group, index, *sequence_out))
        return SEEN_TORN;
    spot_out->size =
        (uint32_t)atomic_load_explicit(sh_long_header(store, offset), memory_order_relaxed);
    spot_out->at = sh_alloc_at(store->alloc, offset) + SH_LONG_HEADER;
    spot_out->long_block = offset;
    return sh_group_read_good(group, index, *sequence_out) ? SEEN_CHUNK : SEEN_TORN;
}

enum shoal_err sh_store_hold(struct sh_store *store, shoal_cid cid, struct sh_hold *hold_out)
{
    struct sh_group *group = sh_store_group(store, cid);
    unsigned index = sh_store_index(cid);
    if (!group)
        return SHOAL_ENOCHUNK;
    /* Who asks for what does not exist writes nothing, not even a bit. */
    struct sh_layout layout = sh_group_layout(group);
    if (sh_layout_code(&layout, index) == SH_CODE_ABSENT)
        return SHOAL_ENOCHUNK;
    sh_group_write_begin(group, index);
    layout = sh_group_layout(group);
    if (!sh_store_spot(store, &layout, index, &hold_out->spot)) {
        sh_group_write_end(group, index, false);
        return SHOAL_ENOCHUNK;
    }
    hold_out->group = group;
    hold_out->index = index;
    return SHOAL_OK;
}

/* What to copy out: all of a chunk, or a part. */
struct want {
    void *into;
    uint32_t offset;
    size_t room;
    bool is_part;
    struct sh_mark *mark; /* NULL, or what is to say which bytes they were */
};

static bool want_fits(const struct want *want, uint32_t size)
{
    return want->is_part ? want->offset <= size && want->room <= size - want->offset
                         : size <= want->room;
}

static void want_copy(const struct sh_store *store, const struct want *want,
                      const struct sh_spot *spot)
{
    if (want->mark)
        *want->mark = sh_mark_of(store, spot);
    sh_copy_out(want->into, spot->at + want->offset, want->is_part ? want->room : spot->size);
}

static enum shoal_err copy_held(struct sh_store *store, shoal_cid cid, const struct want *want,
                                uint32_t *size_out)
{
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    bool fits = want_fits(want, hold.spot.size);
    if (fits)
        want_copy(store, want, &hold.spot);
    *size_out = hold.spot.size;
    sh_store_let_go(&hold, false);
    return fits ? SHOAL_OK : SHOAL_ESIZE;
}

static inline enum shoal_err copy(struct sh_store *store, shoal_cid cid, const struct want *want,
                                  uint32_t *size_out)
{
    const struct sh_group *group = sh_store_group(store, cid);
    unsigned index = sh_store_index(cid);
    if (!group)
        return SHOAL_ENOCHUNK;
    for (unsigned i = 0; i < TRIES; i++) {
        uint64_t sequence;
        struct sh_spot spot;
        enum seen seen = look(store, group, index, &sequence, &spot);
        if (seen == SEEN_ABSENT)
            return SHOAL_ENOCHUNK;
        if (seen == SEEN_CHUNK) {
            bool fits = want_fits(want, spot.size);
            if (fits)
                want_copy(store, want, &spot);
            if (sh_group_read_good(group, index, sequence)) {
                *size_out = spot.size;
                return fits ? SHOAL_OK : SHOAL_ESIZE;
            }
            if (fits && spot.size > LONG_BYTES)
                break;
        }
        sh_cpu_relax();
    }
    return copy_held(store, cid, want, size_out);
}

enum shoal_err sh_store_size(struct sh_store *store, shoal_cid cid, uint32_t *size_out)
{
    struct want want = {.is_part = true};
    return copy(store, cid, &want, size_out);
}

enum shoal_err sh_store_copy_out(struct sh_store *store, shoal_cid cid, void *into, size_t room,
                                 uint32_t *size_out)
{
    struct want want = {.into = into, .room = room};
    return copy(store, cid, &want, size_out);
}

enum shoal_err sh_store_get(struct sh_store *store, shoal_cid cid, void *into, size_t room,
                            uint32_t *size_out)
{
    enum shoal_err err = sh_store_copy_out(store, cid, into, room, size_out);
    if (!err)
        sh_tally_add(&sh_store_tally(store)->gets, 1);
    return err;
}

enum shoal_err sh_store_get_part(struct sh_store *store, shoal_cid cid, uint32_t offset, void *into,
                                 uint32_t size)
{
    struct want want = {.into = into, .offset = offset, .room = size, .is_part = true};
    uint32_t whole;
    enum shoal_err err = copy(store, cid, &want, &whole);
    if (!err)
        sh_tally_add(&sh_store_tally(store)->gets, 1);
    return err;
}

enum shoal_err sh_store_copy_part(struct sh_store *store, shoal_cid cid, uint32_t offset,
                                  void *into, uint32_t size, uint32_t *whole_out,
                                  struct sh_mark *mark_out)
{
    struct want want = {
        .into = into, .offset = offset, .room = size, .is_part = true, .mark = mark_out};
    return copy(store, cid, &want, whole_out);
}

enum shoal_err sh_store_copy_in(struct sh_store *store, shoal_cid cid, struct sh_bytes data)
{
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    err = data.size == hold.spot.size ? sh_witness_write(store, cid, hold.spot.size) : SHOAL_ESIZE;
    if (!err) {
        sh_copy_in(hold.spot.at, data.at, data.size);
        sh_witness_written(store, cid, &hold.spot);
    }
    sh_store_let_go(&hold, !err);
    return err;
}

/* The put has been done or not: counts it. */
static enum shoal_err put_count(struct sh_store *store, enum shoal_err err)
{
    if (!err)
        sh_tally_add(&sh_store_tally(store)->puts, 1);
    return err;
}

enum shoal_err sh_store_put(struct sh_store *store, shoal_cid cid, struct sh_bytes data)
{
    return put_count(store, sh_store_copy_in(store, cid, data));
}

enum shoal_err sh_store_put_part(struct sh_store *store, shoal_cid cid, uint32_t offset,
                                 struct sh_bytes data)
{
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    bool fits = offset <= hold.spot.size && data.size <= hold.spot.size - offset;
    err = fits ? sh_witness_write(store, cid, hold.spot.size) : SHOAL_ESIZE;
    if (!err) {
        sh_copy_in(hold.spot.at + offset, data.at, data.size);
        sh_witness_written(store, cid, &hold.spot);
    }
    sh_store_let_go(&hold, !err);
    return put_count(store, err);
}

enum shoal_err sh_store_put_if(struct sh_store *store, shoal_cid cid, struct sh_bytes expected,
                               struct sh_bytes data)
{
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    if (data.size != hold.spot.size)
        err = SHOAL_ESIZE;
    else if (expected.size != data.size ||
             (data.size > 0 && memcmp(hold.spot.at, expected.at, data.size) != 0))
        err = SHOAL_EDIFFERS;
    else
        err = sh_witness_write(store, cid, hold.spot.size);
    if (!err) {
        sh_copy_in(hold.spot.at, data.at, data.size);
        sh_witness_written(store, cid, &hold.spot);
    }
    sh_store_let_go(&hold, err == SHOAL_OK);
    return put_count(store, err);
}

enum shoal_err sh_store_put_if_hash(struct sh_store *store, shoal_cid cid, uint64_t expected,
                                    struct sh_bytes data)
{
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    if (data.size != hold.spot.size)
        err = SHOAL_ESIZE;
    else if (sh_hash64(sh_bytes_make(hold.spot.at, hold.spot.size), 0) != expected)
        err = SHOAL_EDIFFERS;
    else
        err = sh_witness_write(store, cid, hold.spot.size);
    if (!err) {
        sh_copy_in(hold.spot.at, data.at, data.size);
        sh_witness_written(store, cid, &hold.spot);
    }
    sh_store_let_go(&hold, err == SHOAL_OK);
    return put_count(store, err);
}

enum shoal_err sh_store_add(struct sh_store *store, shoal_cid cid, uint32_t offset, unsigned width,
                            uint64_t delta, uint64_t *old_out)
{
    SH_ASSERT(width == 4 || width == 8);
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    bool fits = offset <= hold.spot.size && width <= hold.spot.size - offset;
    err = fits ? sh_witness_write(store, cid, hold.spot.size) : SHOAL_ESIZE;
    if (!err) {
        *old_out = sh_field_add(hold.spot.at + offset, width, delta);
        sh_witness_written(store, cid, &hold.spot);
    }
    sh_store_let_go(&hold, !err);
    return put_count(store, err);
}

enum shoal_err sh_store_read(struct sh_store *store, shoal_cid cid,
                             void (*read)(void *arg, struct sh_bytes chunk), void *arg)
{
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    read(arg, sh_bytes_make(hold.spot.at, hold.spot.size));
    sh_store_let_go(&hold, false);
    sh_tally_add(&sh_store_tally(store)->gets, 1);
    return SHOAL_OK;
}
