/* Several operations in one call: their cache misses overlap.
 *
 * A get is two dependent misses, group and data. Groups of GROUP are taken through three passes:
 * ask for the groups, ask for the data they name, do the operations. What the second pass has seen
 * of a short chunk is good for the third as long as the sequence word says so; all else is looked
 * up again. */
#include "store/store_int.h"

/* Enough to fill the line fill buffers of current cores (10 to 24) for both passes, few enough to
 * stay in L1. */
#define GROUP 32
#define LINE_BYTES 64
/* The hardware follows a longer run by itself. */
#define LINES_MAX 4

/* A chunk that was seen without a lock. */
struct glance {
    const struct sh_group *group; /* NULL: there is none */
    const uint8_t *at;            /* NULL: look again */
    uint64_t sequence;
    uint32_t size;
};

static inline void group_prefetch(const struct sh_store *store, shoal_cid cid,
                                  struct glance *glance_out)
{
    glance_out->group = sh_store_group(store, cid);
    glance_out->at = NULL;
    if (glance_out->group)
        __builtin_prefetch(glance_out->group, 1);
}

static inline void data_prefetch(const struct sh_store *store, shoal_cid cid, struct glance *glance)
{
    unsigned index = sh_store_index(cid);
    if (!glance->group || !sh_group_read_begin(glance->group, index, &glance->sequence))
        return;
    /* Maybe torn: then another line is asked for, which does no harm. */
    struct sh_layout layout = sh_group_layout(glance->group);
    unsigned code = sh_layout_code(&layout, index);
    uint32_t size = sh_code_footprint(code);
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
    if (code < SH_CODE_MEDIUM) {
        glance->at = at;
        glance->size = size;
    }
}

/* Reads what was seen. False: it may have changed, or does not fit. */
static inline bool glance_copy(const struct glance *glance, struct sh_store_op *op)
{
    if (!glance->at || glance->size > op->size)
        return false;
    sh_copy_out(op->data, glance->at, glance->size);
    if (!sh_group_read_good(glance->group, sh_store_index(op->lid), glance->sequence))
        return false;
    op->size = glance->size;
    op->err = SHOAL_OK;
    return true;
}

void sh_store_prefetch(const struct sh_store *store, shoal_cid cid, enum sh_store_part part)
{
    struct glance glance;
    group_prefetch(store, cid, &glance);
    if (part == SH_STORE_DATA)
        data_prefetch(store, cid, &glance);
}

static void ops_prefetch(const struct sh_store *store, const struct sh_store_op *ops, size_t count,
                         struct glance *glances_out)
{
    for (size_t i = 0; i < count; i++)
        group_prefetch(store, ops[i].lid, &glances_out[i]);
    for (size_t i = 0; i < count; i++)
        data_prefetch(store, ops[i].lid, &glances_out[i]);
}

size_t sh_store_get_multi(struct sh_store *store, struct sh_store_op *ops, size_t count)
{
    size_t good = 0;
    for (size_t at = 0; at < count; at += GROUP) {
        size_t some = count - at < GROUP ? count - at : GROUP;
        struct glance glances[GROUP];
        ops_prefetch(store, ops + at, some, glances);
        for (size_t i = 0; i < some; i++) {
            struct sh_store_op *op = &ops[at + i];
            if (!glance_copy(&glances[i], op))
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
        struct glance glances[GROUP];
        ops_prefetch(store, ops + at, some, glances);
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
        struct glance glances[GROUP];
        ops_prefetch(store, ops + at, some, glances);
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
            sh_store_prefetch(store, cids[i], SH_STORE_ENTRY);
        for (size_t i = at; i < at + some; i++) {
            uint32_t size;
            errs_out[i] = sh_store_drop(store, cids[i], SH_CODE_ABSENT, SH_STORE_REMOVED, &size);
            if (errs_out[i])
                continue;
            payload += size;
            good++;
            if (sh_store_is_own(store, cids[i]) && sh_store_place(store, cids[i]) != 0)
                gone[removed++] = (sh_lid){sh_store_place(store, cids[i])};
        }
        sh_idpool_give(store->pool, gone, removed);
    }
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, -payload);
    sh_tally_add(&tally->removes, good);
    return good;
}
