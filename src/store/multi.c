/* Several operations in one call: their cache misses overlap.
 *
 * A get is two dependent misses, entry and data. Groups of GROUP are taken through three passes:
 * ask for the entries, ask for the data they name, do the operations. The passes only ask; the
 * operation looks everything up again under the chunk's hold, so it does not matter what changed in
 * between. */
#include "store/store_int.h"

/* Enough to fill the line fill buffers of current cores (10 to 24) for both passes, few enough to
 * stay in L1. */
#define GROUP 32
#define LINE_BYTES 64
/* The hardware follows a longer run by itself. */
#define LINES_MAX 4

static void entry_prefetch(const struct sh_store *store, sh_lid lid)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    if (entry)
        __builtin_prefetch((const void *)entry, 1);
}

static void data_prefetch(const struct sh_store *store, sh_lid lid)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    uint64_t word = entry ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    if (!sh_entry_exists(word))
        return;
    uint64_t size = sh_entry_size(word);
    const uint8_t *at = sh_alloc_at(store->alloc, sh_entry_block(word));
    const uint8_t *end = at + (size < LINES_MAX * LINE_BYTES ? size : LINES_MAX * LINE_BYTES);
    for (; at < end; at += LINE_BYTES)
        __builtin_prefetch(at);
}

void sh_store_prefetch(const struct sh_store *store, sh_lid lid, enum sh_store_part part)
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

size_t sh_store_remove_multi(struct sh_store *store, const sh_lid *lids, size_t count,
                             enum shoal_err *errs_out)
{
    size_t good = 0;
    uint64_t payload = 0;
    for (size_t at = 0; at < count; at += GROUP) {
        size_t some = count - at < GROUP ? count - at : GROUP;
        struct sh_block blocks[GROUP];
        sh_lid gone[GROUP];
        size_t removed = 0;
        for (size_t i = at; i < at + some; i++)
            entry_prefetch(store, lids[i]);
        for (size_t i = at; i < at + some; i++) {
            errs_out[i] = sh_store_detach(store, lids[i], &blocks[removed]);
            if (errs_out[i])
                continue;
            payload += blocks[removed].size;
            gone[removed++] = lids[i];
        }
        sh_alloc_give(store->alloc, blocks, removed);
        sh_idpool_give(store->pool, gone, removed);
        good += removed;
    }
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, -payload);
    sh_tally_add(&tally->removes, good);
    return good;
}
