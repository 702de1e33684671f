#include "bench/filled.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

#define BATCH_MAX 65536u
#define BATCH_BYTES (UINT64_C(16) << 20)
#define NODES_MAX 64
#define PUT_TRIES 10

/* --- What a chunk holds ------------------------------------------------------------------------ */

shoal_cid sh_filled_cid(const struct sh_filled *filled, uint64_t key)
{
    SH_ASSERT(key < filled->made);
    return (shoal_cid){filled->firsts[key / filled->batch] + key % filled->batch};
}

static uint64_t word_of(const struct sh_filled *filled, uint64_t key)
{
    return sh_mix64(filled->seed + sh_mix64(key + 1));
}

uint32_t sh_filled_size(const struct sh_filled *filled, uint64_t key)
{
    return sh_sizes_draw(&filled->sizes, word_of(filled, key));
}

void sh_filled_bytes(const struct sh_filled *filled, uint64_t key, uint8_t *into, uint32_t size)
{
    uint64_t word = word_of(filled, key);
    for (uint32_t at = 0; at < size; at += sizeof word, word += UINT64_C(0x9e3779b97f4a7c15))
        memcpy(into + at, &word, size - at < sizeof word ? size - at : sizeof word);
}

/* --- Making ------------------------------------------------------------------------------------ */

/* Room for a batch. */
struct batch {
    uint32_t *sizes;
    shoal_cid *cids;
    struct shoal_op *ops;
    uint8_t *bytes;
};

static void batch_end(struct batch *batch)
{
    free(batch->sizes);
    free(batch->cids);
    free(batch->ops);
    free(batch->bytes);
}

static enum shoal_err batch_begin(struct batch *batch, const struct sh_filled *filled)
{
    size_t count = filled->batch;
    *batch = (struct batch){.sizes = calloc(count, sizeof *batch->sizes),
                            .cids = calloc(count, sizeof *batch->cids),
                            .ops = calloc(count, sizeof *batch->ops),
                            .bytes = malloc(count * (filled->sizes.most + 1))};
    return batch->sizes && batch->cids && batch->ops && batch->bytes ? SHOAL_OK : SHOAL_ENOMEM;
}

/* IDs follow each other where nothing was removed before, as on a new peer. */
static enum shoal_err batch_create(struct batch *batch, shoal *store, shoal_nid node,
                                   uint32_t count)
{
    enum shoal_err err = shoal_create_sizes(store, node, batch->sizes, count, batch->cids);
    for (uint32_t i = 1; !err && i < count; i++) {
        if (batch->cids[i].v != batch->cids[0].v + i)
            err = SHOAL_EDIFFERS;
    }
    return err;
}

/* Writes the batch's bytes; once more where a busy machine has cost a connection, as a write that was done twice is the same. */
static enum shoal_err batch_put(const struct batch *batch, shoal *store, uint32_t count)
{
    enum shoal_err err = SHOAL_ECONNLOST;
    for (int i = 0; i < PUT_TRIES && (err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT); i++)
        err = shoal_multi_put(store, batch->ops, count);
    return err;
}

/* Makes the chunks of the next keys, at most a batch. */
static enum shoal_err batch_make(struct sh_filled *filled, struct batch *batch, shoal *store,
                                 shoal_nid node, uint32_t count)
{
    uint8_t *at = batch->bytes;
    for (uint32_t i = 0; i < count; i++)
        batch->sizes[i] = sh_filled_size(filled, filled->made + i);
    enum shoal_err err = batch_create(batch, store, node, count);
    if (err)
        return err;
    for (uint32_t i = 0; i < count; i++) {
        sh_filled_bytes(filled, filled->made + i, at, batch->sizes[i]);
        batch->ops[i] =
            (struct shoal_op){.cid = batch->cids[i], .data = at, .size = batch->sizes[i]};
        at += batch->sizes[i];
    }
    err = batch_put(batch, store, count);
    if (err)
        return err;
    filled->firsts[filled->made / filled->batch] = batch->cids[0].v;
    filled->made += count;
    filled->payload_bytes += (uint64_t)(at - batch->bytes);
    return SHOAL_OK;
}

/* A node gets whole batches, so that the IDs of each follow each other. */
static enum shoal_err nodes_fill(struct sh_filled *filled, struct batch *batch, shoal *store,
                                 const shoal_nid *nodes, unsigned nodes_count)
{
    uint64_t batches = (filled->count + filled->batch - 1) / filled->batch;
    enum shoal_err err = SHOAL_OK;
    for (uint64_t i = 0; !err && i < batches; i++) {
        uint64_t left = filled->count - filled->made;
        err = batch_make(filled, batch, store, nodes[i * nodes_count / batches],
                         left < filled->batch ? (uint32_t)left : filled->batch);
    }
    return err;
}

enum shoal_err sh_filled_make(struct sh_filled *filled, shoal *store, const shoal_nid *nodes,
                              unsigned nodes_count)
{
    struct batch batch;
    uint64_t each = (filled->count + nodes_count - 1) / nodes_count;
    uint64_t fit = BATCH_BYTES / (filled->sizes.most + 1);
    SH_ASSERT(filled->count && nodes_count && !filled->firsts);
    fit = fit > BATCH_MAX ? BATCH_MAX : fit ? fit : 1;
    filled->batch = (uint32_t)(each < fit ? each : fit);
    filled->firsts = calloc(filled->count / filled->batch + 1, sizeof *filled->firsts);
    if (!filled->firsts)
        return SHOAL_ENOMEM;
    enum shoal_err err = shoal_level_use(SHOAL_ASYNC);
    SH_ASSERT(!err);
    err = batch_begin(&batch, filled);
    if (!err)
        err = nodes_fill(filled, &batch, store, nodes, nodes_count);
    if (!err)
        err = shoal_sync(store);
    batch_end(&batch);
    enum shoal_err used = shoal_level_use(SHOAL_LEVEL_DEFAULT);
    SH_ASSERT(!used);
    if (err)
        SH_ERROR("bench", "chunks could not be made", SH_U64("made", filled->made), SH_ERR(err),
                 SH_TEXT("detail", shoal_error_detail()));
    return err;
}

void sh_filled_end(struct sh_filled *filled)
{
    free(filled->firsts);
    filled->firsts = NULL;
    filled->made = filled->payload_bytes = 0;
}

/* --- Checking ---------------------------------------------------------------------------------- */

static enum shoal_err sample_compare(const struct sh_filled *filled, uint64_t key,
                                     const struct shoal_op *op, uint8_t *expected)
{
    uint32_t size = sh_filled_size(filled, key);
    sh_filled_bytes(filled, key, expected, size);
    if (op->size == size && memcmp(op->data, expected, size) == 0)
        return SHOAL_OK;
    SH_ERROR("bench", "a chunk does not hold what was written", SH_U64("key", key),
             SH_U64("chunk", op->cid.v));
    return SHOAL_EDIFFERS;
}

/* Reads and compares the samples number `from` and the next ones. */
static enum shoal_err samples_check(const struct sh_filled *filled, shoal *store,
                                    struct batch *batch, uint64_t from, uint32_t count,
                                    uint64_t samples)
{
    uint32_t most = filled->sizes.most + 1;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = samples > 1 ? (from + i) * (filled->made - 1) / (samples - 1) : 0;
        batch->ops[i] = (struct shoal_op){.cid = sh_filled_cid(filled, key),
                                          .data = batch->bytes + (size_t)i * most,
                                          .size = most};
    }
    enum shoal_err err = shoal_multi_get(store, batch->ops, count);
    uint8_t *expected = err ? NULL : malloc(most);
    if (!err && !expected)
        err = SHOAL_ENOMEM;
    for (uint32_t i = 0; !err && i < count; i++) {
        uint64_t key = samples > 1 ? (from + i) * (filled->made - 1) / (samples - 1) : 0;
        err = sample_compare(filled, key, &batch->ops[i], expected);
    }
    free(expected);
    return err;
}

enum shoal_err sh_filled_check(const struct sh_filled *filled, shoal *store, uint64_t samples)
{
    struct batch batch;
    SH_ASSERT(samples && filled->made);
    samples = samples < filled->made ? samples : filled->made;
    enum shoal_err err = batch_begin(&batch, filled);
    for (uint64_t from = 0; !err && from < samples; from += filled->batch) {
        uint64_t left = samples - from;
        err = samples_check(filled, store, &batch, from,
                            left < filled->batch ? (uint32_t)left : filled->batch, samples);
    }
    batch_end(&batch);
    return err;
}

enum shoal_err sh_filled_count_check(shoal *store, uint64_t count)
{
    struct shoal_node nodes[NODES_MAX];
    struct shoal_status status;
    size_t nodes_count;
    uint64_t chunks = 0;
    enum shoal_err err = shoal_nodes(store, nodes, NODES_MAX, &nodes_count);
    SH_ASSERT(err || nodes_count <= NODES_MAX);
    for (size_t i = 0; !err && i < nodes_count; i++) {
        if (nodes[i].role != SHOAL_PEER || nodes[i].state != SHOAL_NODE_UP)
            continue;
        err = shoal_status(store, nodes[i].nid, &status);
        chunks += err ? 0 : status.chunks;
    }
    if (err || chunks == count)
        return err;
    SH_ERROR("bench", "the peers do not have all chunks", SH_U64("have", chunks),
             SH_U64("made", count));
    return SHOAL_EDIFFERS;
}

/* --- Probes ------------------------------------------------------------------------------------ */

static void err_keep(struct sh_probes *probes, enum shoal_err err)
{
    int none = SHOAL_OK;
    /* relaxed: read once `done` has been */
    if (err)
        (void)atomic_compare_exchange_strong_explicit(&probes->err, &none, (int)err,
                                                      memory_order_relaxed, memory_order_relaxed);
}

/* relaxed, both: read once `done` has been. */
static void time_keep(struct sh_probes *probes, uint64_t now_ns)
{
    uint64_t first_ns = 0;
    (void)atomic_compare_exchange_strong_explicit(&probes->first_ns, &first_ns, now_ns,
                                                  memory_order_relaxed, memory_order_relaxed);
    uint64_t last_ns = atomic_load_explicit(&probes->last_ns, memory_order_relaxed);
    while (last_ns < now_ns &&
           !atomic_compare_exchange_weak_explicit(&probes->last_ns, &last_ns, now_ns,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void probe_done(struct shoal_call *call)
{
    struct sh_probe *probe = call->arg;
    struct sh_probes *probes = probe->probes;
    uint8_t expected[SH_PROBE_BYTES];
    enum shoal_err err = call->err;
    if (!err) {
        sh_filled_bytes(probes->filled, probe->key, expected, call->size);
        if (memcmp(expected, probe->bytes, call->size) != 0)
            err = SHOAL_EDIFFERS;
        time_keep(probes, sh_bench_now_ns());
    }
    err_keep(probes, err);
    /* release: what was kept above; pairs with the acquire in sh_probes_are_done */
    atomic_fetch_add_explicit(&probes->done, 1, memory_order_release);
}

static enum shoal_err probe_begin(struct sh_probe *probe, shoal *store)
{
    const struct sh_filled *filled = probe->probes->filled;
    uint32_t size = sh_filled_size(filled, probe->key);
    probe->call = (struct shoal_call){.done = probe_done, .arg = probe};
    return shoal_get_part_async(store, sh_filled_cid(filled, probe->key), 0, probe->bytes,
                                size < SH_PROBE_BYTES ? size : SH_PROBE_BYTES, &probe->call);
}

void sh_probes_begin(struct sh_probes *probes, const struct sh_filled *filled, shoal *store)
{
    memset(probes, 0, sizeof *probes);
    probes->filled = filled;
    probes->count = filled->made < SH_PROBES ? (unsigned)filled->made : SH_PROBES;
    for (unsigned i = 0; i < probes->count; i++) {
        struct sh_probe *probe = &probes->probes[i];
        probe->probes = probes;
        probe->key = probes->count > 1 ? i * (filled->made - 1) / (probes->count - 1) : 0;
        enum shoal_err err = probe_begin(probe, store);
        err_keep(probes, err);
        if (err)
            atomic_fetch_add_explicit(&probes->done, 1, memory_order_release);
    }
}

bool sh_probes_are_done(struct sh_probes *probes)
{
    /* acquire: the times and the error; pairs with the release of who is done */
    return atomic_load_explicit(&probes->done, memory_order_acquire) == probes->count;
}

enum shoal_err sh_probes_wait(struct sh_probes *probes)
{
    while (!sh_probes_are_done(probes))
        (void)poll(NULL, 0, 1);
    return (enum shoal_err)atomic_load_explicit(&probes->err, memory_order_relaxed);
}
