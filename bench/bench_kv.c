/* Chunks got and put by a client process from a server process. An application thread keeps its
 * calls in flight with the library's asynchronous forms, waits for the oldest, and begins another
 * for each that is done; `multi` calls the blocking multi get.
 *
 * With --durability or --replicas the chunks are one peer's and are logged: kv_levels.c. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/log.h"
#include "bench/benches.h"
#include "bench/kv.h"
#include "bench/kv_bench_int.h"
#include "bench/kv_server.h"
#include "bench/redis_base.h"
#include "shoal/shoal.h"

#define THREADS_MAX 128
#define CREATE_MAX ((size_t)1 << 20)
#define LOAD_BATCH 1024
#define LOAD_BYTES_MAX ((size_t)64 << 20)

const char *const sh_bench_kv_cases[] = {"get", "put", "mixed", "multi", "add", NULL};
const char *const sh_bench_kv_baselines[] = {"redis", "bare", NULL};

struct slot {
    struct shoal_call call;
    struct sh_kv_op op;
    uint64_t index;
    uint64_t begin_ns;
    uint8_t *data;
};

struct worker {
    const struct sh_kv_shape *shape;
    enum sh_placement placement;
    shoal *store;
    const shoal_cid *cids;
    uint64_t deadline_ns;
    struct sh_kv_source source;
    enum shoal_err err;
};

struct client {
    struct sh_kv_servers servers;
    shoal_nid owner; /* whose the chunks are */
    shoal *store;
    shoal_cid *cids;
    struct worker *workers;
    struct sh_kv_tally *tallies; /* one for each worker */
};

/* What a worker's thread gets. */
struct work {
    struct worker *worker;
    struct sh_kv_tally *tally;
};

static enum shoal_err failed(const char *what, enum shoal_err err)
{
    SH_ERROR("bench", "call of the client library failed", SH_TEXT("call", what), SH_ERR(err),
             SH_TEXT("detail", shoal_error_detail()));
    return err;
}

/* --- Operations -------------------------------------------------------------------------- */

static enum shoal_err slot_begin(struct worker *worker, struct sh_kv_tally *tally,
                                 struct slot *slot, uint64_t now_ns)
{
    size_t size = worker->shape->flags.size;
    enum shoal_err err;
    sh_kv_next(&worker->source, &slot->op);
    sh_kv_drawn(tally, &slot->op);
    slot->begin_ns = now_ns;
    slot->call.done = NULL;
    shoal_cid cid = worker->cids[slot->index];
    if (worker->shape->what == SH_KV_ADD) {
        err = shoal_add_async(worker->store, cid, 0, sh_kv_add_width(size), 1, &slot->call);
    } else if (slot->op.put) {
        sh_kv_value(slot->index, slot->data, size);
        err = shoal_put_async(worker->store, cid, slot->data, (uint32_t)size, &slot->call);
    } else {
        err = shoal_get_async(worker->store, cid, slot->data, size, &slot->call);
    }
    return err ? failed("shoal_put_async, _get_async or _add_async", err) : SHOAL_OK;
}

static enum shoal_err slot_end(struct worker *worker, struct sh_kv_tally *tally, struct slot *slot)
{
    enum shoal_err err = shoal_wait(worker->store, &slot->call);
    if (err)
        return failed("shoal_wait", err);
    if (!slot->op.put)
        tally->wrong +=
            !sh_kv_value_is(slot->index, slot->data, slot->call.size, worker->shape->flags.size);
    tally->objects++;
    return SHOAL_OK;
}

/* Calls are a ring: head is the oldest in flight. Those in flight are waited for also after an
 * error, since the library keeps them until then. */
static enum shoal_err slots_drive(struct worker *worker, struct sh_kv_tally *tally,
                                  struct slot *slots, unsigned count)
{
    enum shoal_err err = SHOAL_OK;
    unsigned in_flight = 0;
    uint64_t now_ns = tally->begin_ns;
    while (!err && in_flight < count) {
        err = slot_begin(worker, tally, &slots[in_flight], now_ns);
        in_flight += !err;
    }
    for (unsigned head = 0; in_flight > 0; head = (head + 1) % count) {
        struct slot *slot = &slots[head];
        enum shoal_err slot_err = slot_end(worker, tally, slot);
        in_flight--;
        err = err ? err : slot_err;
        now_ns = sh_bench_now_ns();
        sh_hist_add(&tally->latency_ns, now_ns - slot->begin_ns);
        if (!err && now_ns < worker->deadline_ns) {
            err = slot_begin(worker, tally, slot, now_ns);
            in_flight += !err;
        }
    }
    return err;
}

static enum shoal_err single_drive(struct worker *worker, struct sh_kv_tally *tally)
{
    unsigned count = worker->shape->flags.outstanding;
    size_t size = worker->shape->flags.size;
    struct slot *slots = calloc(count, sizeof *slots);
    uint8_t *data = malloc(count * size);
    enum shoal_err err = slots && data ? SHOAL_OK : SHOAL_ENOMEM;
    for (unsigned i = 0; !err && i < count; i++) {
        slots[i].data = data + i * size;
        slots[i].op.indexes = &slots[i].index;
    }
    if (!err)
        err = slots_drive(worker, tally, slots, count);
    free(slots);
    free(data);
    return err;
}

static enum shoal_err multi_once(struct worker *worker, struct sh_kv_tally *tally,
                                 struct sh_kv_op *op, struct shoal_op *gets, uint8_t *data)
{
    size_t size = worker->shape->flags.size;
    sh_kv_next(&worker->source, op);
    sh_kv_drawn(tally, op);
    for (unsigned i = 0; i < op->count; i++)
        gets[i] = (struct shoal_op){
            .cid = worker->cids[op->indexes[i]], .data = data + i * size, .size = (uint32_t)size};
    enum shoal_err err = shoal_multi_get(worker->store, gets, op->count);
    if (err)
        return failed("shoal_multi_get", err);
    for (unsigned i = 0; i < op->count; i++)
        tally->wrong += !sh_kv_value_is(op->indexes[i], data + i * size, gets[i].size, size);
    tally->objects += op->count;
    return SHOAL_OK;
}

static enum shoal_err multi_drive(struct worker *worker, struct sh_kv_tally *tally)
{
    unsigned batch = worker->shape->flags.batch;
    struct sh_kv_op op = {.indexes = calloc(batch, sizeof *op.indexes)};
    struct shoal_op *gets = calloc(batch, sizeof *gets);
    uint8_t *data = malloc(batch * worker->shape->flags.size);
    enum shoal_err err = op.indexes && gets && data ? SHOAL_OK : SHOAL_ENOMEM;
    uint64_t now_ns = tally->begin_ns;
    while (!err && now_ns < worker->deadline_ns) {
        uint64_t begin_ns = now_ns;
        err = multi_once(worker, tally, &op, gets, data);
        now_ns = sh_bench_now_ns();
        sh_hist_add(&tally->latency_ns, now_ns - begin_ns);
    }
    free(op.indexes);
    free(gets);
    free(data);
    return err;
}

static void *worker_thread(void *arg)
{
    struct work *work = arg;
    struct worker *worker = work->worker;
    struct sh_kv_tally *tally = work->tally;
    sh_bench_pin(worker->placement, 0);
    tally->begin_ns = sh_bench_now_ns();
    worker->deadline_ns = tally->begin_ns + (uint64_t)(worker->shape->flags.seconds * 1e9);
    worker->err = worker->shape->what == SH_KV_MULTI ? multi_drive(worker, tally)
                                                     : single_drive(worker, tally);
    tally->end_ns = sh_bench_now_ns();
    return NULL;
}

/* --- A run ------------------------------------------------------------------------------- */

/* Runs every worker, the first on the calling thread, and waits for all. */
static enum shoal_err workers_run(struct client *client, unsigned threads)
{
    pthread_t ids[THREADS_MAX];
    struct work works[THREADS_MAX];
    SH_ASSERT(threads >= 1 && threads <= THREADS_MAX);
    enum shoal_err err = SHOAL_OK;
    unsigned made = 1;
    for (unsigned i = 0; i < threads; i++)
        works[i] = (struct work){&client->workers[i], &client->tallies[i]};
    while (made < threads && !err) {
        if (pthread_create(&ids[made], NULL, worker_thread, &works[made]) == 0)
            made++;
        else
            err = SHOAL_ENOMEM;
    }
    if (!err)
        worker_thread(&works[0]);
    for (unsigned i = 1; i < made; i++)
        (void)pthread_join(ids[i], NULL);
    for (unsigned i = 0; !err && i < threads; i++)
        err = client->workers[i].err;
    return err;
}

/* Puts the values of `count` chunks from the index `first` on. */
static enum shoal_err load_batch(const struct client *client, uint64_t first, size_t count,
                                 size_t size, struct shoal_op *ops, uint8_t *data)
{
    for (size_t i = 0; i < count; i++) {
        sh_kv_value(first + i, data + i * size, size);
        ops[i] = (struct shoal_op){
            .cid = client->cids[first + i], .data = data + i * size, .size = (uint32_t)size};
    }
    enum shoal_err err = shoal_multi_put(client->store, ops, count);
    return err ? failed("shoal_multi_put", err) : SHOAL_OK;
}

/* Chunks of one request, while they are loaded. */
static size_t batch_of(size_t size)
{
    size_t batch = LOAD_BYTES_MAX / size < LOAD_BATCH ? LOAD_BYTES_MAX / size : LOAD_BATCH;
    return batch ? batch : 1;
}

/* Creates the chunks and fills them. */
static enum shoal_err client_load(struct client *client, const struct sh_kv_shape *shape)
{
    size_t size = shape->flags.size;
    uint64_t total = shape->flags.count;
    size_t batch = batch_of(size);
    struct shoal_op *ops = calloc(batch, sizeof *ops);
    uint8_t *data = malloc(batch * size);
    enum shoal_err err = ops && data ? SHOAL_OK : SHOAL_ENOMEM;
    for (uint64_t at = 0; !err && at < total; at += CREATE_MAX) {
        size_t part = total - at < CREATE_MAX ? (size_t)(total - at) : CREATE_MAX;
        err = shoal_create_many(client->store, client->owner, (uint32_t)size, part,
                                client->cids + at);
        if (err)
            err = failed("shoal_create_many", err);
    }
    for (uint64_t at = 0; !err && at < total; at += batch) {
        size_t part = total - at < batch ? (size_t)(total - at) : batch;
        err = load_batch(client, at, part, size, ops, data);
    }
    free(ops);
    free(data);
    return err;
}

/* Starts the server and then, since nothing may be forked later, the client library. */
static enum shoal_err client_open(struct client *client, const struct sh_kv_shape *shape,
                                  enum sh_placement placement)
{
    unsigned threads = shape->flags.threads;
    client->cids = calloc(shape->flags.count, sizeof *client->cids);
    client->workers = calloc(threads, sizeof *client->workers);
    client->tallies = calloc(threads, sizeof *client->tallies);
    if (!client->cids || !client->workers || !client->tallies)
        return SHOAL_ENOMEM;
    struct sh_kv_counts counts;
    enum shoal_err err = sh_kv_servers_start(shape, placement, &client->servers);
    if (!err)
        err = sh_kv_servers_count(&client->servers, sh_kv_servers_owner(&client->servers), &counts);
    if (err)
        return err;
    client->owner.v = (uint16_t)counts.nid;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", client->servers.children[0].port);
    struct shoal_options options = {.addresses = address,
                                    .cluster = "bench",
                                    .level = shape->level,
                                    .timeout_ns = UINT64_C(30000000000),
                                    .spin_ns = 1};
    if (sh_bench_spins(placement))
        options.spin_ns = UINT64_MAX;
    else if (placement == SH_PLACE_FREE)
        options.spin_ns = 0;
    sh_bench_pin(placement, 0);
    err = shoal_open(&options, &client->store);
    if (err)
        return failed("shoal_open", err);
    for (unsigned i = 0; i < threads; i++) {
        struct worker *worker = &client->workers[i];
        worker->shape = shape;
        worker->placement = placement;
        worker->store = client->store;
        worker->cids = client->cids;
        sh_kv_source_init(&worker->source, shape, i);
    }
    return client_load(client, shape);
}

static void client_close(struct client *client)
{
    shoal_close(client->store);
    sh_kv_servers_stop(&client->servers);
    free(client->cids);
    free(client->workers);
    free(client->tallies);
}

/* How much `count` chunks from the index `first` on have grown. */
static enum shoal_err growth_read(const struct client *client, uint64_t first, size_t count,
                                  size_t size, struct shoal_op *ops, uint8_t *data,
                                  uint64_t *growth)
{
    unsigned width = sh_kv_add_width(size);
    for (size_t i = 0; i < count; i++)
        ops[i] = (struct shoal_op){
            .cid = client->cids[first + i], .data = data + i * size, .size = (uint32_t)size};
    enum shoal_err err = shoal_multi_get(client->store, ops, count);
    if (err)
        return failed("shoal_multi_get", err);
    for (size_t i = 0; i < count; i++) {
        uint8_t then[8], *now = data + i * size;
        sh_kv_value(first + i, then, sizeof then);
        *growth += width == 8 ? sh_load64(now) - sh_load64(then)
                              : (uint32_t)(sh_load32(now) - sh_load32(then));
    }
    return SHOAL_OK;
}

/* All chunks together have grown by the number of additions, if each was made once. */
static enum shoal_err additions_check(const struct client *client, const struct sh_kv_shape *shape,
                                      uint64_t additions)
{
    size_t size = shape->flags.size, batch = batch_of(size);
    struct shoal_op *ops = calloc(batch, sizeof *ops);
    uint8_t *data = malloc(batch * size);
    enum shoal_err err = ops && data ? SHOAL_OK : SHOAL_ENOMEM;
    uint64_t growth = 0, total = shape->flags.count;
    for (uint64_t at = 0; !err && at < total; at += batch)
        err = growth_read(client, at, total - at < batch ? (size_t)(total - at) : batch, size, ops,
                          data, &growth);
    free(ops);
    free(data);
    if (err || growth == additions)
        return err;
    SH_ERROR("bench", "additions have been lost, or made twice", SH_U64("made", growth),
             SH_U64("answered", additions));
    return SHOAL_EINTERNAL;
}

static enum shoal_err kv_measure(struct client *client, const struct sh_kv_shape *shape,
                                 struct sh_bench_result *result)
{
    struct shoal_status status;
    struct sh_kv_costs costs;
    enum shoal_err err = shoal_status(client->store, client->owner, &status);
    if (err)
        return failed("shoal_status", err);
    result->bytes_per_chunk = (double)status.used_bytes / (double)status.chunks;
    err = sh_kv_costs_begin(&client->servers, &costs);
    if (!err)
        err = workers_run(client, shape->flags.threads);
    if (!err)
        err = sh_kv_sum(client->tallies, shape->flags.threads, shape->flags.size, result);
    if (!err)
        err = sh_kv_costs_end(&client->servers, &costs, shape, result);
    if (!err && shape->what == SH_KV_ADD)
        err = additions_check(client, shape, result->ops);
    return err;
}

/* Not a part of the measurement is what the load left to be done. */
static enum shoal_err load_sync(const struct client *client, const struct sh_kv_shape *shape)
{
    enum shoal_err err = shape->replicas ? shoal_sync(client->store) : SHOAL_OK;
    return err ? failed("shoal_sync", err) : SHOAL_OK;
}

enum shoal_err sh_kv_run(void *arg, const struct sh_bench_flags *flags, enum sh_placement placement,
                         struct sh_bench_result *result_out)
{
    const struct sh_kv_shape *shape = arg;
    struct client client;
    (void)flags;
    memset(&client, 0, sizeof client);
    enum shoal_err err = client_open(&client, shape, placement);
    if (!err)
        err = load_sync(&client, shape);
    if (!err)
        err = kv_measure(&client, shape, result_out);
    client_close(&client);
    return err;
}

/* --- Cases ------------------------------------------------------------------------------- */

/* The blocking multi get has one request in flight; so has the baseline's. */
static void shape_fill(struct sh_kv_shape *shape, const struct sh_bench_flags *flags,
                       enum sh_kv_case what)
{
    shape->what = what;
    shape->flags = *flags;
    struct sh_bench_flags *f = &shape->flags;
    f->size = f->size ? f->size : 64;
    f->count = f->count ? f->count : 100000;
    f->threads = f->threads ? f->threads : 1;
    f->outstanding = f->outstanding ? f->outstanding : 64;
    f->batch = f->batch ? f->batch : 32;
    f->seconds = f->seconds > 0 ? f->seconds : 1;
    f->keys = f->keys ? f->keys : "uniform";
    if (what == SH_KV_MULTI)
        f->outstanding = 1;
}

/* Which levels of durability are asked for; replicas without a level are all of them. */
static enum shoal_err replicas_fill(struct sh_bench *bench, struct sh_kv_shape *shape)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    bool is_logged = flags->durability || flags->replicas;
    bool is_bare = flags->vs && strcmp(flags->vs, "bare") == 0;
    if (!is_logged && (flags->nodes || is_bare))
        return sh_bench_refuse(bench, "--nodes and --vs bare are for --durability or --replicas");
    if (is_logged && flags->vs && !is_bare)
        return sh_bench_refuse(bench, "with --durability or --replicas there is --vs bare alone");
    if (!is_logged)
        return SHOAL_OK;
    shape->replicas = flags->replicas ? flags->replicas : SH_KV_REPLICAS;
    unsigned least = shape->replicas == 1 ? 1 : shape->replicas + 1;
    shape->nodes = flags->nodes ? flags->nodes : least;
    if (shape->nodes < least || shape->nodes > SH_KV_NODES_MAX)
        return sh_bench_refuse(bench, "--nodes are the owner and a node for each of its replicas "
                                      "(with one replica the owner alone), at most 16");
    return SHOAL_OK;
}

static enum shoal_err case_measure(struct sh_bench *bench, struct sh_kv_shape *shape)
{
    const struct sh_bench_flags *flags = &shape->flags;
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(bench, placements);
    const char *name = sh_bench_kv_cases[shape->what], *vs = flags->vs;
    char extra[192];
    if (shape->what == SH_KV_ADD && (vs && !shape->replicas)) {
        sh_bench_note(bench, "add has no baseline here");
        vs = NULL;
    }
    int used = snprintf(extra, sizeof extra,
                        "size=%llu count=%llu threads=%u outstanding=%u batch=%u keys=%s "
                        "transport=tcp",
                        (unsigned long long)flags->size, (unsigned long long)flags->count,
                        flags->threads, flags->outstanding, sh_kv_batch(shape), flags->keys);
    if (shape->replicas)
        snprintf(extra + used, sizeof extra - (size_t)used, " replicas=%u nodes=%u",
                 shape->replicas, shape->nodes);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < count; i++) {
        if (shape->replicas)
            err = sh_kv_levels_measure(bench, name, placements[i], extra, shape);
        else
            err = sh_bench_measure(bench, name, placements[i], extra, sh_kv_run, shape, vs,
                                   vs ? sh_redis_base_run : NULL, shape);
    }
    return err;
}

enum shoal_err sh_bench_kv(struct sh_bench *bench)
{
    struct sh_zipf zipf;
    struct sh_kv_shape shape = {.zipf = NULL};
    shape_fill(&shape, sh_bench_flags_get(bench), SH_KV_GET);
    enum shoal_err err = replicas_fill(bench, &shape);
    if (err)
        return err;
    if (strcmp(shape.flags.keys, "zipfian") == 0 && shape.flags.count >= 2) {
        sh_zipf_init(&zipf, shape.flags.count);
        shape.zipf = &zipf;
    }
    for (unsigned what = 0; !err && sh_bench_kv_cases[what]; what++) {
        if (!sh_bench_case_wanted(bench, sh_bench_kv_cases[what]))
            continue;
        shape_fill(&shape, sh_bench_flags_get(bench), (enum sh_kv_case)what);
        if (what == SH_KV_ADD && !sh_kv_add_width(shape.flags.size)) {
            sh_bench_note(bench, "add is left out: chunks of less than 4 bytes have no number");
            continue;
        }
        err = case_measure(bench, &shape);
    }
    return err;
}
