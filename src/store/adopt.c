/* Adopting, or taking over, several chunks: those of one group get their IDs by one hold of the pool's lock, and its block is
 * made once. */
#include "base/assert.h"
#include "store/witness_int.h"

typedef enum shoal_err one_fn(struct sh_store *store, shoal_cid cid, struct sh_bytes data);

/* A long chunk has a block of its own, and the pool knows neither ID 0 nor those from 2^40 on, nor those that were let go of: these come
 * alone. */
static bool is_joinable(const struct sh_store *store, const struct sh_store_op *op, one_fn *one)
{
    uint64_t place = sh_store_place(store, op->lid);
    if (op->size > SH_PACKED_CHUNK_MAX || op->size > store->chunk_bytes_max)
        return false;
    return !sh_store_is_own(store, op->lid) ||
           (one == sh_store_adopt && place != 0 && place < SH_OWN_IDS_MAX);
}

/* How many of the next ops are of one group, and made at once: these ascend, so that each is another chunk. */
static size_t group_length(const struct sh_store *store, const struct sh_store_op *ops,
                           size_t count, one_fn *one)
{
    size_t some = 1;
    if (!is_joinable(store, &ops[0], one))
        return 1;
    bool is_own = sh_store_is_own(store, ops[0].lid);
    while (some < count && ops[some].lid.v >> SH_GROUP_BITS == ops[0].lid.v >> SH_GROUP_BITS &&
           ops[some].lid.v > ops[some - 1].lid.v && is_joinable(store, &ops[some], one) &&
           sh_store_is_own(store, ops[some].lid) == is_own)
        some++;
    return some;
}

static void make_each(struct sh_store *store, struct sh_store_op *ops, size_t count, one_fn *one)
{
    for (size_t i = 0; i < count; i++)
        ops[i].err = one(store, ops[i].lid, sh_bytes_make(ops[i].data, ops[i].size));
}

/* Finds or makes their group, and says which of its IDs are the caller's now: where the group is another node's, all
 * are. */
static enum shoal_err group_take(struct sh_store *store, const struct sh_store_op *ops,
                                 size_t count, struct sh_group **group_out, uint16_t *taken_out)
{
    if (!sh_store_is_own(store, ops[0].lid)) {
        *taken_out = UINT16_MAX;
        return sh_foreign_make(&store->foreign, ops[0].lid.v >> SH_GROUP_BITS, group_out);
    }
    uint64_t place = sh_store_place(store, ops[0].lid), mask = 0, claimed;
    unsigned shift = (unsigned)(place & 63 & ~(uint64_t)(SH_GROUP_IDS - 1));
    for (size_t i = 0; i < count; i++)
        mask |= UINT64_C(1) << (shift + sh_store_index(ops[i].lid));
    enum shoal_err err = sh_idpool_claim_some(store->pool, place >> 6, mask, &claimed);
    if (err)
        return err;
    *taken_out = (uint16_t)(claimed >> shift);
    *group_out = sh_idtable_find(&store->table, place);
    return SHOAL_OK;
}

/* Those of the own IDs that were taken, but have no chunk, go back. */
static void ids_give(struct sh_store *store, const struct sh_store_op *ops, size_t count,
                     uint16_t taken)
{
    sh_lid lids[SH_GROUP_IDS];
    size_t given = 0;
    if (!sh_store_is_own(store, ops[0].lid))
        return;
    for (size_t i = 0; i < count; i++)
        if (ops[i].err && taken >> sh_store_index(ops[i].lid) & 1)
            lids[given++] = (sh_lid){sh_store_place(store, ops[i].lid)};
    if (given > 0)
        sh_idpool_give(store->pool, lids, given);
}

/* Changes the group, which the caller holds, by those that may be made; each gets its err, EFULL all of those.
 * Returns how many were made. */
static size_t group_change(struct sh_store *store, struct sh_group *group, struct sh_store_op *ops,
                           size_t count, uint16_t taken)
{
    struct sh_change change;
    size_t changed = 0, made = 0;
    sh_change_begin(store, group, &change);
    change.may_dip = true;
    for (size_t i = 0; i < count; i++) {
        struct sh_store_op *op = &ops[i];
        unsigned index = sh_store_index(op->lid);
        bool is_free =
            taken >> index & 1 && sh_layout_code(&change.before, index) == SH_CODE_ABSENT;
        op->err = is_free ? sh_witness_admit(store, op->lid, SH_STORE_MADE, 0, op->size, !op->data)
                          : SHOAL_EEXIST;
        if (op->err)
            continue;
        sh_change_chunk(&change, index, op->size, op->data);
        changed++;
    }
    if (changed == 0)
        return 0;
    if (sh_store_is_own(store, ops[0].lid))
        sh_idtable_version(&store->table, group);
    enum shoal_err err = sh_group_change(store, group, &change);
    for (size_t i = 0; i < count; i++) {
        if (ops[i].err)
            continue;
        sh_witness_record(store, ops[i].lid, SH_STORE_MADE, sh_bytes_make(ops[i].data, ops[i].size),
                          err);
        ops[i].err = err;
        made += !err;
    }
    return made;
}

static bool has_full(const struct sh_store_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i].err == SHOAL_EFULL)
            return true;
    return false;
}

/* Makes chunks of one group at once. Where memory is short, as many as there is room for: alone. */
static void group_make(struct sh_store *store, struct sh_store_op *ops, size_t count, one_fn *one)
{
    struct sh_group *group;
    uint16_t taken;
    SH_ASSERT(count > 1 && count <= SH_GROUP_IDS);
    if (group_take(store, ops, count, &group, &taken)) {
        make_each(store, ops, count, one);
        return;
    }
    sh_group_layout_begin(group);
    size_t made = group_change(store, group, ops, count, taken);
    sh_group_layout_end(group, made > 0);
    ids_give(store, ops, count, taken);
    if (made == 0) {
        if (has_full(ops, count))
            make_each(store, ops, count, one);
        return;
    }
    uint64_t payload = 0;
    for (size_t i = 0; i < count; i++)
        payload += ops[i].err ? 0 : ops[i].size;
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, payload);
    sh_tally_add(&tally->creates, made);
    atomic_fetch_add(&store->arrivals, made);
}

static size_t make_multi(struct sh_store *store, struct sh_store_op *ops, size_t count, one_fn *one)
{
    size_t good = 0;
    for (size_t at = 0, some; at < count; at += some) {
        some = group_length(store, ops + at, count - at, one);
        if (some > 1)
            group_make(store, ops + at, some, one);
        else
            make_each(store, ops + at, 1, one);
        for (size_t i = at; i < at + some; i++)
            good += ops[i].err == SHOAL_OK;
    }
    return good;
}

size_t sh_store_adopt_multi(struct sh_store *store, struct sh_store_op *ops, size_t count)
{
    return make_multi(store, ops, count, sh_store_adopt);
}

size_t sh_store_take_over_multi(struct sh_store *store, struct sh_store_op *ops, size_t count)
{
    return make_multi(store, ops, count, sh_store_take_over);
}
