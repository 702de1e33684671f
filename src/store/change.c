/* What changes a group's layout for one chunk: fill, adopt, resize, remove, pin. */
#include "base/assert.h"
#include "store/witness_int.h"

#define PINS_MAX (UINT32_C(1) << 31)

/* New content for one chunk; where it is long its block is made beforehand. */
struct content {
    const void *data; /* NULL: zeros */
    uint32_t size;
    uint64_t long_block;
    struct sh_store_telling
        *telling; /* by which the witness was told the block; NULL: told at once */
};

static enum shoal_err content_make(struct sh_store *store, const void *data, uint32_t size,
                                   bool may_dip, struct content *content_out)
{
    *content_out = (struct content){.data = data, .size = size};
    if (size <= SH_PACKED_CHUNK_MAX)
        return SHOAL_OK;
    return sh_long_make(store, data, size, may_dip, &content_out->long_block);
}

static void content_free(struct sh_store *store, const struct content *content)
{
    if (content->long_block)
        sh_long_free(store, content->long_block, content->size);
}

static void content_set(struct sh_change *change, unsigned index, const struct content *content)
{
    if (content->long_block)
        sh_change_long(change, index, &content->long_block);
    else
        sh_change_chunk(change, index, content->size, content->data);
}

/* The content has been put in place, or not: says so. */
static void content_tell(struct sh_store *store, shoal_cid cid, enum sh_store_event event,
                         const struct content *content, enum shoal_err err)
{
    if (content->telling) {
        sh_witness_end(store, cid, content->telling, 0, err == SHOAL_OK);
        sh_cut_leave(store);
    } else {
        sh_witness_record(store, cid, event, sh_bytes_make(content->data, content->size), err);
    }
}

/* Makes a chunk where its ID's code is `expected`, else fails with ENOCHUNK. */
static enum shoal_err content_install(struct sh_store *store, struct sh_group *group, shoal_cid cid,
                                      unsigned expected, const struct content *content,
                                      bool may_dip)
{
    unsigned index = sh_store_index(cid);
    enum shoal_err err = SHOAL_OK;
    sh_group_layout_begin(group);
    struct sh_change change;
    sh_change_begin(store, group, &change);
    change.may_dip = may_dip;
    if (sh_layout_code(&change.before, index) != expected)
        err = SHOAL_ENOCHUNK;
    else if (content->telling)
        sh_cut_enter(store, cid, true);
    else
        err = sh_witness_admit(store, cid, SH_STORE_MADE, 0, content->size, !content->data);
    if (!err) {
        if (sh_store_is_own(store, cid))
            sh_idtable_version(&store->table, group);
        content_set(&change, index, content);
        err = sh_group_change(store, group, &change);
        content_tell(store, cid, SH_STORE_MADE, content, err);
    }
    sh_group_layout_end(group, !err);
    if (err) {
        content_free(store, content);
        return err;
    }
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, content->size);
    sh_tally_add(&tally->creates, 1);
    return SHOAL_OK;
}

/* telling: NULL, or the witness has been told the data by it. */
static enum shoal_err chunk_make(struct sh_store *store, struct sh_group *group, shoal_cid cid,
                                 unsigned expected, struct sh_bytes data, bool may_dip,
                                 struct sh_store_telling *telling)
{
    struct content content;
    enum shoal_err err = content_make(store, data.at, (uint32_t)data.size, may_dip, &content);
    content.telling = telling;
    return err ? err : content_install(store, group, cid, expected, &content, may_dip);
}

/* Makes the chunk of such a block, which is gone where that fails. */
static enum shoal_err long_install(struct sh_store *store, struct sh_group *group, shoal_cid cid,
                                   unsigned expected, struct content *content, bool may_dip)
{
    enum shoal_err err = SHOAL_ENOCHUNK;
    if (group)
        err = content_install(store, group, cid, expected, content, may_dip);
    else
        content_free(store, content);
    sh_witness_end(store, cid, content->telling, 0, false); /* if it was not made */
    return err;
}

enum shoal_err sh_long_fill(struct sh_store *store, shoal_cid cid, uint64_t block, uint32_t size,
                            struct sh_store_telling *telling)
{
    struct content content = {.size = size, .long_block = block, .telling = telling};
    return long_install(store, sh_store_group(store, cid), cid, SH_CODE_RESERVED, &content, false);
}

enum shoal_err sh_store_fill(struct sh_store *store, shoal_cid cid, struct sh_bytes data)
{
    struct sh_group *group = sh_store_group(store, cid);
    if (data.size > store->chunk_bytes_max)
        return SHOAL_ETOOBIG;
    if (!group)
        return SHOAL_ENOCHUNK;
    bool is_zero = sh_store_is_own(store, cid) && shoal_cid_local(cid) == 0;
    return chunk_make(store, group, cid, is_zero ? SH_CODE_ABSENT : SH_CODE_RESERVED, data, false,
                      NULL);
}

enum shoal_err sh_store_unreserve(struct sh_store *store, shoal_cid cid)
{
    struct sh_group *group = sh_store_group(store, cid);
    unsigned index = sh_store_index(cid);
    if (!group)
        return SHOAL_ENOCHUNK;
    sh_group_layout_begin(group);
    struct sh_layout layout = sh_group_layout(group);
    bool is_reserved = sh_layout_code(&layout, index) == SH_CODE_RESERVED;
    if (is_reserved) {
        sh_layout_code_set(&layout, index, SH_CODE_ABSENT);
        sh_group_layout_set(group, &layout);
    }
    sh_group_layout_end(group, is_reserved);
    if (!is_reserved)
        return SHOAL_ENOCHUNK;
    sh_lid lid = {sh_store_place(store, cid)};
    sh_idpool_give(store->pool, &lid, 1);
    return SHOAL_OK;
}

/* Counts a chunk that has come here, or has not. */
static enum shoal_err arrived(struct sh_store *store, enum shoal_err err)
{
    if (!err)
        atomic_fetch_add(&store->arrivals, 1);
    return err;
}

static enum shoal_err adopt_own(struct sh_store *store, shoal_cid cid, struct sh_bytes data,
                                bool retain, struct sh_store_telling *telling)
{
    sh_lid lid = {sh_store_place(store, cid)};
    if (lid.v >= SH_OWN_IDS_MAX)
        return SHOAL_EINVAL;
    /* ID 0 is never in the pool. */
    enum shoal_err err = lid.v == 0 ? SHOAL_OK : sh_idpool_claim(store->pool, lid.v);
    if (err)
        return err == SHOAL_EFULL ? sh_store_short(store, 2 * lid.v) : err;
    if (retain)
        sh_idpool_retain(store->pool, &lid, 1);
    struct sh_group *group = sh_idtable_find(&store->table, lid.v);
    err = chunk_make(store, group, cid, SH_CODE_ABSENT, data, true, telling);
    if (err && retain)
        sh_idpool_unretain(store->pool, &lid, 1);
    if (err && lid.v != 0)
        sh_idpool_give(store->pool, &lid, 1);
    return err == SHOAL_ENOCHUNK ? SHOAL_EEXIST : err;
}

/* The group of another node's chunk. EFULL. */
static enum shoal_err foreign_group(struct sh_store *store, shoal_cid cid,
                                    struct sh_group **group_out)
{
    enum shoal_err err = sh_foreign_make(&store->foreign, cid.v >> SH_GROUP_BITS, group_out);
    return err ? sh_store_short(store, SH_PAGE_BYTES) : SHOAL_OK;
}

static enum shoal_err adopt_foreign(struct sh_store *store, shoal_cid cid, struct sh_bytes data,
                                    struct sh_store_telling *telling)
{
    struct sh_group *group;
    enum shoal_err err = foreign_group(store, cid, &group);
    if (!err)
        err = chunk_make(store, group, cid, SH_CODE_ABSENT, data, true, telling);
    return err == SHOAL_ENOCHUNK ? SHOAL_EEXIST : err;
}

enum shoal_err sh_store_adopt_as(struct sh_store *store, shoal_cid cid, struct sh_bytes data,
                                 bool retain, struct sh_store_telling *telling)
{
    enum shoal_err err = SHOAL_ETOOBIG;
    SH_ASSERT(!retain || (sh_store_is_own(store, cid) && sh_store_place(store, cid) != 0));
    if (data.size <= store->chunk_bytes_max)
        err = sh_store_is_own(store, cid) ? adopt_own(store, cid, data, retain, telling)
                                          : adopt_foreign(store, cid, data, telling);
    if (telling)
        sh_witness_end(store, cid, telling, 0, false); /* if it has not been ended by being made */
    return arrived(store, err);
}

enum shoal_err sh_store_adopt(struct sh_store *store, shoal_cid cid, struct sh_bytes data)
{
    return sh_store_adopt_as(store, cid, data, false, NULL);
}

enum shoal_err sh_chunk_change_begin(struct sh_store *store, shoal_cid cid,
                                     struct sh_group **group_out, struct sh_change *change_out,
                                     struct sh_spot *spot_out)
{
    struct sh_group *group = sh_store_group(store, cid);
    unsigned index = sh_store_index(cid);
    if (!group)
        return SHOAL_ENOCHUNK;
    struct sh_layout layout = sh_group_layout(group);
    if (sh_layout_code(&layout, index) == SH_CODE_ABSENT)
        return SHOAL_ENOCHUNK;
    sh_group_layout_begin(group);
    sh_change_begin(store, group, change_out);
    if (!sh_store_spot(store, &change_out->before, index, spot_out)) {
        sh_group_layout_end(group, false);
        return SHOAL_ENOCHUNK;
    }
    *group_out = group;
    return SHOAL_OK;
}

enum shoal_err sh_store_drop(struct sh_store *store, shoal_cid cid, unsigned code,
                             enum sh_store_event event, uint32_t *size_out)
{
    struct sh_group *group;
    struct sh_change change;
    struct sh_spot spot;
    enum shoal_err err = sh_chunk_change_begin(store, cid, &group, &change, &spot);
    if (err)
        return err;
    err = spot.pins > 0 ? SHOAL_EBUSY : sh_witness_admit(store, cid, event, spot.size, 0, true);
    if (err) {
        sh_group_layout_end(group, false);
        return err;
    }
    sh_change_none(&change, sh_store_index(cid), code);
    err = sh_group_change(store, group, &change);
    SH_ASSERT(err == SHOAL_OK); /* it gets smaller and stays */
    sh_witness_record(store, cid, event, sh_bytes_make(NULL, 0), SHOAL_OK);
    sh_group_layout_end(group, true);
    if (spot.long_block)
        sh_long_free(store, spot.long_block, spot.size);
    *size_out = spot.size;
    return SHOAL_OK;
}

static enum shoal_err let_go(struct sh_store *store, shoal_cid cid, enum sh_store_event event)
{
    uint32_t size;
    unsigned code = sh_store_is_own(store, cid) ? SH_CODE_RESERVED : SH_CODE_ABSENT;
    enum shoal_err err = sh_store_drop(store, cid, code, event, &size);
    if (err)
        return err;
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, -(uint64_t)size);
    sh_tally_add(&tally->removes, 1);
    return SHOAL_OK;
}

enum shoal_err sh_store_release(struct sh_store *store, shoal_cid cid)
{
    return let_go(store, cid, SH_STORE_RELEASED);
}

enum shoal_err sh_store_hand_back(struct sh_store *store, shoal_cid cid)
{
    return let_go(store, cid, SH_STORE_UNMADE);
}

enum shoal_err sh_store_take_over(struct sh_store *store, shoal_cid cid, struct sh_bytes data)
{
    if (!sh_store_is_own(store, cid))
        return sh_store_adopt(store, cid, data);
    if (data.size > store->chunk_bytes_max)
        return SHOAL_ETOOBIG;
    struct sh_group *group = sh_store_group(store, cid);
    return arrived(store, group ? chunk_make(store, group, cid, SH_CODE_RESERVED, data, true, NULL)
                                : SHOAL_ENOCHUNK);
}

enum shoal_err sh_store_arriving_begin(struct sh_store *store, shoal_cid cid, uint32_t size,
                                       struct sh_store_arriving *arriving_out)
{
    SH_ASSERT(size > SH_STORE_PIECE_BYTES);
    *arriving_out = (struct sh_store_arriving){.cid = cid, .size = size};
    if (size > store->chunk_bytes_max)
        return SHOAL_ETOOBIG;
    return sh_long_open(store, size, true, &arriving_out->block);
}

void sh_store_arriving_put(struct sh_store *store, struct sh_store_arriving *arriving,
                           struct sh_bytes data)
{
    SH_ASSERT(arriving->block && data.at && data.size <= arriving->size - arriving->done);
    sh_long_write(store, arriving->block, arriving->done, data.at, (uint32_t)data.size);
    arriving->done += (uint32_t)data.size;
}

enum shoal_err sh_store_arriving_end(struct sh_store *store, struct sh_store_arriving *arriving)
{
    SH_ASSERT(arriving->block && arriving->done == arriving->size);
    bool is_own = sh_store_is_own(store, arriving->cid);
    struct sh_group *group = is_own ? sh_store_group(store, arriving->cid) : NULL;
    enum shoal_err err = is_own ? SHOAL_OK : foreign_group(store, arriving->cid, &group);
    if (!err && sh_store_is_witnessed(store))
        err = sh_witness_tell(store, arriving->cid, sh_long_bytes(store, arriving->block),
                              arriving->size, &arriving->telling);
    if (err == SHOAL_EAGAIN)
        return err;
    if (err) {
        sh_store_arriving_drop(store, arriving);
        return err;
    }
    struct content content = {
        .size = arriving->size, .long_block = arriving->block, .telling = &arriving->telling};
    err = long_install(store, group, arriving->cid, is_own ? SH_CODE_RESERVED : SH_CODE_ABSENT,
                       &content, true);
    arriving->block = 0;
    return arrived(store, err == SHOAL_ENOCHUNK && !is_own ? SHOAL_EEXIST : err);
}

void sh_store_arriving_drop(struct sh_store *store, struct sh_store_arriving *arriving)
{
    sh_witness_end(store, arriving->cid, &arriving->telling, 0, false);
    if (arriving->block)
        sh_long_free(store, arriving->block, arriving->size);
    arriving->block = 0;
}

enum shoal_err sh_store_remove(struct sh_store *store, shoal_cid cid)
{
    enum shoal_err err;
    (void)sh_store_remove_multi(store, &cid, 1, &err);
    return err;
}

/* Content of a new size that begins like the old. `room` is for short content. */
static void content_copy(struct sh_store *store, const struct sh_spot *spot,
                         struct content *content, uint8_t *room)
{
    uint32_t common = spot->size < content->size ? spot->size : content->size;
    if (content->long_block) {
        sh_copy_in(sh_long_bytes(store, content->long_block), spot->at, common);
        content->data = common > 0 ? sh_long_bytes(store, content->long_block) : NULL;
        return;
    }
    memcpy(room, spot->at, common);
    memset(room + common, 0, content->size - common);
    content->data = room;
}

/* True when a long chunk's new size is less: that must go in a full store too, so its new block may
 * use the reserve, until the old one is given back. Should another thread resize it just now, it is
 * a guess. */
static bool gets_shorter(struct sh_store *store, shoal_cid cid, uint32_t size)
{
    uint32_t old;
    return size > SH_PACKED_CHUNK_MAX && sh_store_size(store, cid, &old) == SHOAL_OK && size < old;
}

enum shoal_err sh_store_resize(struct sh_store *store, shoal_cid cid, uint32_t size)
{
    uint8_t room[SH_PACKED_CHUNK_MAX];
    struct content content;
    struct sh_group *group;
    struct sh_change change;
    struct sh_spot spot;
    if (size > store->chunk_bytes_max)
        return SHOAL_ETOOBIG;
    enum shoal_err err = content_make(store, NULL, size, gets_shorter(store, cid, size), &content);
    if (err)
        return err;
    err = sh_chunk_change_begin(store, cid, &group, &change, &spot);
    if (err)
        goto out_free;
    if (spot.pins > 0)
        err = SHOAL_EBUSY;
    else
        err = sh_witness_admit(store, cid, SH_STORE_WRITTEN, spot.size, size, spot.size == 0);
    if (!err) {
        content_copy(store, &spot, &content, room);
        change.may_dip = size < spot.size;
        content_set(&change, sh_store_index(cid), &content);
        err = sh_group_change(store, group, &change);
        content_tell(store, cid, SH_STORE_WRITTEN, &content, err);
    }
    sh_group_layout_end(group, !err);
    if (err)
        goto out_free;
    if (spot.long_block)
        sh_long_free(store, spot.long_block, spot.size);
    sh_tally_add(&sh_store_tally(store)->payload_bytes, (uint64_t)size - spot.size);
    return SHOAL_OK;
out_free:
    content_free(store, &content);
    return err;
}

/* Moves a chunk to a block of its own. */
static enum shoal_err chunk_part(struct sh_store *store, struct sh_group *group, unsigned index,
                                 struct sh_change *change, struct sh_spot *spot)
{
    uint64_t offset;
    enum shoal_err err = sh_long_make(store, spot->at, spot->size, false, &offset);
    if (err)
        return err;
    sh_change_long(change, index, &offset);
    err = sh_group_change(store, group, change);
    if (err) {
        sh_long_free(store, offset, spot->size);
        return err;
    }
    spot->long_block = offset;
    spot->at = sh_alloc_at(store->alloc, offset) + SH_LONG_HEADER;
    return SHOAL_OK;
}

static void pins_set(struct sh_store *store, const struct sh_spot *spot, uint32_t pins)
{
    /* relaxed: sh_group_layout_end releases it */
    atomic_store_explicit(sh_long_header(store, spot->long_block),
                          (uint64_t)pins << 32 | spot->size, memory_order_relaxed);
}

enum shoal_err sh_store_pin(struct sh_store *store, shoal_cid cid, uint8_t **at_out,
                            uint32_t *size_out)
{
    struct sh_group *group;
    struct sh_change change;
    struct sh_spot spot;
    enum shoal_err err = sh_chunk_change_begin(store, cid, &group, &change, &spot);
    if (err)
        return err;
    if (spot.pins == PINS_MAX)
        err = SHOAL_ELIMIT;
    else if (!spot.long_block)
        err = chunk_part(store, group, sh_store_index(cid), &change, &spot);
    if (!err) {
        pins_set(store, &spot, spot.pins + 1);
        *at_out = spot.at;
        *size_out = spot.size;
    }
    sh_group_layout_end(group, !err);
    return err;
}

enum shoal_err sh_store_unpin(struct sh_store *store, shoal_cid cid)
{
    struct sh_group *group;
    struct sh_change change;
    struct sh_spot spot;
    enum shoal_err err = sh_chunk_change_begin(store, cid, &group, &change, &spot);
    if (err)
        return err;
    bool is_pinned = spot.pins > 0;
    if (is_pinned)
        pins_set(store, &spot, spot.pins - 1);
    sh_group_layout_end(group, is_pinned);
    return is_pinned ? SHOAL_OK : SHOAL_EINVAL;
}
