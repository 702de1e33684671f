/* Several operations in one call: their cache misses overlap.
 *
 * A get is two dependent misses, group and data. Groups of GROUP are taken through three passes:
 * ask for the groups, ask for the data they name, do the operations. The passes only ask; the
 * operation looks everything up again for itself, so it does not matter what changed in
 * between. */
#include "store/store_int.h"

/* Enough to fill the line fill buffers of current cores (10 to 24) for both passes, few enough to
 * stay in L1. */
#define GROUP 32
#define LINE_BYTES 64
/* The hardware follows a longer run by itself. */
#define LINES_MAX 4

static void entry_prefetch(const struct sh_store *store, shoal_cid cid)
{
    const struct sh_group *group = sh_store_group(store, cid);
    if (group)
        __builtin_prefetch(group, 1);
}

static void data_prefetch(const struct sh_store *store, shoal_cid cid)
{
    const struct sh_group *group = sh_store_group(store, cid);
    if (!group)
        return;
    /* Maybe torn: then another line is asked for, which does no harm. */
    struct sh_layout layout = sh_group_layout(group);
    unsigned index = sh_store_index(cid);
    uint32_t size = sh_code_footprint(sh_layout_code(&layout, index));
    if (size == 0)
        return;
    unsigned mediums;
    uint8_t *block = sh_alloc_at(store->alloc, sh_layout_offset(&layout));
    const uint8_t *at = block + sh_layout_sum(&layout, index, &mediums);
    if (mediums) {
        /* Where the chunk begins takes a look at the block's end, which may be a miss itself. */
        __builtin_prefetch(sh_layout_low(&layout, block, 0));
        return;
    }
    const uint8_t *last = at + size - 1;
    __builtin_prefetch(at);
    for (unsigned line = 1; line < LINES_MAX && at + line * LINE_BYTES < last; line++)
        __builtin_prefetch(at + line * LINE_BYTES);
    __builtin_prefetch(last);
}

void sh_store_prefetch(const struct sh_store *store, shoal_cid lid, enum sh_store_part part)
{
    if (part == SH_STORE_ENTRY)
        entry_prefetch(store, lid);
    else
        data_prefetch(store, lid);
}

static void ops_prefetch(const struct sh_store *store, const struct sh_store_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        entry_prefetch(store, ops[i].lid);
    for (size_t i = 0; i < count; i++)
        data_prefetch(store, ops[i].lid);
}

size_t sh_store_get_multi(struct sh_store *store, struct sh_store_op *ops, size_t count)
{
    size_t good = 0;
    for (size_t at = 0; at < count; at += GROUP) {
        size_t some = count - at < GROUP ? count - at : GROUP;
        ops_prefetch(store, ops + at, some);
        for (struct sh_store_op *op = ops + at; op < ops + at + some; op++) {
            op->err = sh_store_copy_out(store, op->lid, op->data, op->size, &op->size);
            good += op->err == SHOAL_OK;
        }
    }
    sh_tally_add(&sh_store_tally(store)->gets, good);
    return good;
}

size_t sh_store_put_multi(struct sh_store *store, struct sh_store_op *ops, size_t count)
{
    size_t good = 0;
    for (size_t at = 0; at < count; at += GROUP) {
        size_t some = count - at < GROUP ? count - at : GROUP;
        ops_prefetch(store, ops + at, some);
        for (struct sh_store_op *op = ops + at; op < ops + at + some; op++) {
            op->err = sh_store_copy_in(store, op->lid, sh_bytes_make(op->data, op->size));
            good += op->err == SHOAL_OK;
        }
    }
    sh_tally_add(&sh_store_tally(store)->puts, good);
    return good;
}

size_t sh_store_resize_multi(struct sh_store *store, struct sh_store_op *ops, size_t count)
{
    size_t good = 0;
    for (size_t at = 0; at < count; at += GROUP) {
        size_t some = count - at < GROUP ? count - at : GROUP;
        ops_prefetch(store, ops + at, some);
        for (struct sh_store_op *op = ops + at; op < ops + at + some; op++) {
            op->err = sh_store_resize(store, op->lid, op->size);
            good += op->err == SHOAL_OK;
        }
    }
    return good;
}

size_t sh_store_remove_multi(struct sh_store *store, const shoal_cid *cids, size_t count,
                             enum shoal_err *errs_out)
{
    size_t good = 0;
    uint64_t payload = 0;
    for (size_t at = 0; at < count; at += GROUP) {
        size_t some = count - at < GROUP ? count - at : GROUP;
        sh_lid gone[GROUP];
        size_t removed = 0;
        for (size_t i = at; i < at + some; i++)
            entry_prefetch(store, cids[i]);
        for (size_t i = at; i < at + some; i++) {
            uint32_t size;
            errs_out[i] = sh_store_drop(store, cids[i], &size);
            if (errs_out[i])
                continue;
            payload += size;
            good++;
            if (sh_store_is_own(store, cids[i]) && shoal_cid_local(cids[i]) != 0)
                gone[removed++] = (sh_lid){shoal_cid_local(cids[i])};
        }
        sh_idpool_give(store->pool, gone, removed);
    }
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, -payload);
    sh_tally_add(&tally->removes, good);
    return good;
}
