/* Many operations at once: grouped by owner, sent as batches to all owners together, and what was
 * refused or lost is tried again in a next round, until its time is over. */
#include <stdio.h>
#include <stdlib.h>

#include "client/client_int.h"
#include "proto/chunks.h"

#define BATCH_OPS_MAX 2048
#define BATCH_BYTES_MAX (1u << 20)
#define MANY_MAX (1u << 20)
#define AHEAD_MAX 32 /* lookups under way at once */

/* One operation of the caller's, where it goes, and what the answer to a get says of it. */
struct placed {
    uint32_t op;
    shoal_nid nid;
    uint16_t got_err;
    uint32_t got_size;
};

struct multi;

/* Operations [first, first + count) of multi->placed: one request to one node. */
struct batch {
    struct sh_request request;
    struct multi *multi;
    size_t first, count;
    size_t bytes;
};

struct multi {
    shoal *store;
    enum sh_call_kind kind;
    struct shoal_op *ops;
    shoal_nid *asked; /* of each operation: where it was sent last, or NONE */
    struct placed *placed;
    size_t placed_count;
    struct batch *batches;
    size_t batch_count;
    _Atomic size_t unanswered; /* batches, and one for the thread that sends them */
    struct sh_waiter waiter;
    uint64_t deadline_ns;
    uint64_t
        mark; /* before the round's first lookup, or 0: one answer will do for all chunks of a range */
};

static struct shoal_op *op_of(const struct multi *multi, size_t place)
{
    return &multi->ops[multi->placed[place].op];
}

/* --- Placing ------------------------------------------------------------------------------- */

static void locate_begin(struct multi *multi, shoal_cid cid, struct sh_waited_locate *waited)
{
    struct sh_directory *directory = multi->store->directory;
    if (!multi->mark)
        multi->mark = sh_directory_mark(directory);
    sh_client_locate_begin(multi->store, cid, multi->deadline_ns, multi->mark, waited);
}

/* Looks up together, as far as the cache does not know it, where the next operations' chunks are,
 * so that those of many creators take the time of one question; for one range there is only one
 * question in any case. What came of it is in the cache, or will be asked for again. Returns behind
 * the last operation that it looked at. */
static size_t locate_ahead(struct multi *multi, size_t at, size_t count)
{
    struct sh_waited_locate waited[AHEAD_MAX];
    size_t begun = 0;
    shoal_nid nid;
    for (; at < count && begun < AHEAD_MAX; at++) {
        shoal_cid cid = multi->ops[at].cid;
        if (multi->ops[at].err == SHOAL_EAGAIN && cid.v &&
            sh_directory_owner(multi->store->directory, cid, &nid) == SHOAL_EAGAIN)
            locate_begin(multi, cid, &waited[begun++]);
    }
    for (size_t i = 0; i < begun; i++)
        (void)!sh_client_locate_wait(multi->store, &waited[i], &nid);
    return at;
}

/* As sh_client_locate, for one of many. */
static enum shoal_err locate(struct multi *multi, shoal_cid cid, shoal_nid *nid_out)
{
    enum shoal_err err = sh_directory_owner(multi->store->directory, cid, nid_out);
    if (err != SHOAL_EAGAIN)
        return err;
    struct sh_waited_locate waited;
    locate_begin(multi, cid, &waited);
    return sh_client_locate_wait(multi->store, &waited, nid_out);
}

static int by_node(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->nid.v != y->nid.v)
        return x->nid.v < y->nid.v ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

/* Finds the owners of the operations that are still to be done (err EAGAIN). What could not be said
 * of one chunk is not asked again in this round for the next ones of the same creator. */
static void place(struct multi *multi, size_t count)
{
    size_t ahead = 0;
    shoal_nid unknown = SHOAL_NID_NONE;
    enum shoal_err why = SHOAL_OK;
    multi->placed_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct shoal_op *op = &multi->ops[i];
        shoal_nid nid, creator = shoal_cid_creator(op->cid);
        if (op->err != SHOAL_EAGAIN)
            continue;
        if (i >= ahead && !why)
            ahead = locate_ahead(multi, i, count);
        enum shoal_err err = SHOAL_ENOCHUNK;
        if (op->cid.v)
            err = why && creator.v == unknown.v ? why : locate(multi, op->cid, &nid);
        if (err == SHOAL_OK) {
            multi->placed[multi->placed_count++] = (struct placed){.op = (uint32_t)i, .nid = nid};
            multi->asked[i] = nid;
            continue;
        }
        op->err = err;
        /* These are of one chunk; its creator's others may be elsewhere. */
        if (err != SHOAL_ENOCHUNK && err != SHOAL_EFAILED && err != SHOAL_ELOST) {
            unknown = creator;
            why = err;
        }
    }
    qsort(multi->placed, multi->placed_count, sizeof *multi->placed, by_node);
}

/* --- Batches ------------------------------------------------------------------------------- */

static size_t request_bytes(enum sh_call_kind kind, const struct shoal_op *op)
{
    return kind == SH_CALL_REMOVE ? 8 : 12 + (kind == SH_CALL_PUT ? (size_t)op->size : 0);
}

/* What an operation adds to the larger of request and answer. */
static size_t weight(enum sh_call_kind kind, const struct shoal_op *op)
{
    bool has_bytes = kind == SH_CALL_GET || kind == SH_CALL_PUT;
    return SH_CHUNKS_GET_HEAD_BYTES + 12 + (has_bytes ? (size_t)op->size : 0);
}

static void cut_batches(struct multi *multi)
{
    multi->batch_count = 0;
    for (size_t i = 0; i < multi->placed_count;) {
        struct batch *batch = &multi->batches[multi->batch_count++];
        *batch = (struct batch){.multi = multi, .first = i};
        size_t heavy = 0;
        while (i < multi->placed_count && batch->count < BATCH_OPS_MAX &&
               multi->placed[i].nid.v == multi->placed[batch->first].nid.v) {
            const struct shoal_op *op = op_of(multi, i);
            heavy += weight(multi->kind, op);
            if (batch->count > 0 && heavy > BATCH_BYTES_MAX)
                break;
            batch->bytes += request_bytes(multi->kind, op);
            batch->count++;
            i++;
        }
    }
}

static void set_all(struct batch *batch, enum shoal_err err)
{
    for (size_t i = 0; i < batch->count; i++)
        op_of(batch->multi, batch->first + i)->err = err;
}

/* The answer to a batch of gets: each chunk's bytes land where the caller wants them, while they
 * come. Sizes are kept aside, for an operation's own is the room until all is there. */
static void describe_got(struct sh_codec *c, void *object)
{
    struct batch *batch = object;
    struct multi *multi = batch->multi;
    struct sh_codec_loop loop = sh_codec_loop(c, batch->count);
    for (; sh_codec_next(c, &loop); loop.index++) {
        struct placed *placed = &multi->placed[batch->first + loop.index];
        const struct shoal_op *op = &multi->ops[placed->op];
        sh_codec_u16(c, &placed->got_err);
        sh_codec_u32(c, &placed->got_size);
        if (sh_codec_reading(c))
            sh_call_describe_bytes(c, placed->got_err, placed->got_size, op->data, op->size);
    }
}

static void get_answer(struct multi *multi, size_t place)
{
    const struct placed *placed = &multi->placed[place];
    struct shoal_op *op = op_of(multi, place);
    op->err = sh_err_get(placed->got_err);
    if (op->err == SHOAL_OK || op->err == SHOAL_ESIZE)
        op->size = placed->got_size;
}

static void answered(struct multi *multi)
{
    /* acq_rel: every batch's results are visible to who is woken by the last */
    if (atomic_fetch_sub_explicit(&multi->unanswered, 1, memory_order_acq_rel) == 1)
        sh_waiter_complete(&multi->waiter);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct batch *batch = request->arg;
    if (err != SHOAL_OK) {
        set_all(batch, sh_err_get(err));
    } else {
        for (size_t i = 0; i < batch->count; i++) {
            if (batch->multi->kind == SH_CALL_GET)
                get_answer(batch->multi, batch->first + i);
            else
                op_of(batch->multi, batch->first + i)->err = sh_err_get(sh_get16(payload));
        }
        if (!sh_reader_done(payload))
            set_all(batch, SHOAL_EPROTO);
    }
    answered(batch->multi);
}

static void write_batch(const struct multi *multi, size_t first, size_t count, struct sh_writer *w)
{
    for (size_t i = 0; i < count; i++) {
        const struct shoal_op *op = op_of(multi, first + i);
        sh_put64(w, op->cid.v);
        if (multi->kind == SH_CALL_REMOVE)
            continue;
        sh_put32(w, op->size);
        if (multi->kind == SH_CALL_PUT)
            sh_put_raw(w, sh_bytes_make(op->data, op->size));
    }
}

static void send_batch(struct multi *multi, struct batch *batch)
{
    static const sh_msg_type types[] = {
        [SH_CALL_GET] = SH_CHUNKS_MULTI_GET,
        [SH_CALL_PUT] = SH_CHUNKS_MULTI_PUT,
        [SH_CALL_REMOVE] = SH_CHUNKS_MULTI_REMOVE,
        [SH_CALL_RESIZE] = SH_CHUNKS_MULTI_RESIZE,
    };
    struct sh_caller caller = sh_client_caller(multi->store);
    sh_msg_type type = types[multi->kind];
    if (multi->kind != SH_CALL_GET)
        type = sh_client_type(type, sh_client_level(multi->store));
    batch->request =
        (struct sh_request){.done = on_answer, .arg = batch, .deadline_ns = multi->deadline_ns};
    if (multi->kind == SH_CALL_GET) {
        batch->request.describe = describe_got;
        batch->request.object = batch;
    }
    atomic_fetch_add_explicit(&multi->unanswered, 1, memory_order_relaxed);
    struct sh_out out;
    enum shoal_err err = sh_call_begin(&caller, multi->placed[batch->first].nid, type, batch->bytes,
                                       &batch->request, &out);
    if (err == SHOAL_OK) {
        write_batch(multi, batch->first, batch->count, &out.w);
        sh_msg_end(multi->store->msg, &out);
    } else {
        set_all(batch, err);
        answered(multi);
    }
}

/* Sends all batches and waits for all answers. */
static void do_round(struct multi *multi)
{
    atomic_store_explicit(&multi->unanswered, 1, memory_order_relaxed);
    multi->waiter = (struct sh_waiter){0};
    for (size_t i = 0; i < multi->batch_count; i++)
        send_batch(multi, &multi->batches[i]);
    answered(multi);
    bool is_done = sh_crew_wait(multi->store->crew, 0, &multi->waiter, SH_NEVER);
    SH_ASSERT(is_done);
}

/* Marks what may be tried again; true when there is any and time is left. */
static bool another_round(struct multi *multi, size_t count)
{
    uint64_t now = sh_now(&multi->store->env.clock);
    bool has_time = now + SH_ROUND_PAUSE_NS < multi->deadline_ns;
    bool is_any = false;
    for (size_t i = 0; i < count; i++) {
        struct shoal_op *op = &multi->ops[i];
        /* One whose node has failed was not sent. */
        if (!sh_call_may_retry(multi->kind, op->err) &&
            !sh_client_awaits_node(multi->store, op->err, multi->asked[i],
                                   shoal_cid_creator(op->cid)))
            continue;
        if (!has_time) {
            op->err = op->err == SHOAL_EAGAIN ? SHOAL_ETIMEOUT : op->err;
            continue;
        }
        sh_directory_forget(multi->store->directory, op->cid);
        op->err = SHOAL_EAGAIN;
        is_any = true;
    }
    if (is_any) {
        struct sh_waiter pause = {0};
        multi->mark = 0; /* what was answered in this round is over */
        sh_client_refresh_begin(multi->store);
        (void)sh_crew_wait(multi->store->crew, 0, &pause, now + SH_ROUND_PAUSE_NS);
    }
    return is_any;
}

static enum shoal_err run_on_cluster(struct multi *multi, size_t count)
{
    multi->asked = calloc(count, sizeof *multi->asked);
    multi->placed = malloc(count * sizeof *multi->placed);
    multi->batches = malloc(count * sizeof *multi->batches);
    bool has_memory = multi->asked && multi->placed && multi->batches;
    enum shoal_err err = has_memory ? SHOAL_OK : SHOAL_ENOMEM;
    if (err == SHOAL_OK) {
        do {
            place(multi, count);
            cut_batches(multi);
            do_round(multi);
        } while (another_round(multi, count));
    }
    free(multi->asked);
    free(multi->placed);
    free(multi->batches);
    return err;
}

/* --- Embedded ------------------------------------------------------------------------------ */

/* Reads one, and waits until what it saw is acknowledged. */
static enum shoal_err get_embedded(struct shoal *store, struct shoal_op *op, sh_lid lid)
{
    struct sh_write seen;
    uint32_t size = op->size;
    enum shoal_err err = sh_store_get(store->store, lid, op->data, size, &op->size), settled;
    if (sh_backup_read_is_clean(store->backup, lid, &seen))
        return err;
    settled = sh_embedded_settle(store, &seen);
    return settled != SHOAL_OK ? settled : err;
}

static enum shoal_err change_embedded(struct multi *multi, struct sh_write *write,
                                      struct shoal_op *op, sh_lid lid)
{
    struct shoal *store = multi->store;
    enum shoal_err err = SHOAL_OK;
    if (multi->kind == SH_CALL_REMOVE) {
        while (err == SHOAL_OK && (err = sh_embedded_remove(store, write, lid)) == SHOAL_EAGAIN)
            err = sh_embedded_room(store, write);
        return err;
    }
    struct sh_store_rewrite rewrite = {.kind = SH_STORE_RESIZE, .cid = lid, .size = op->size};
    if (multi->kind == SH_CALL_RESIZE)
        return sh_embedded_change(store, write, &rewrite);
    const struct sh_bytes data = sh_bytes_make(op->data, op->size);
    err = sh_backup_put(store->backup, write, lid, data);
    if (err != SHOAL_EAGAIN && err != SHOAL_ELIMIT)
        return err;
    rewrite.kind = SH_STORE_PUT;
    rewrite.data = data;
    return sh_embedded_change(store, write, &rewrite);
}

/* Why a change failed may be what others did to the chunk, a removal above all: that is not to be known before they know that it stays. The
 * operation then waits at their level, too. */
static void failure_join(struct shoal *store, struct sh_write *write, sh_lid lid)
{
    struct sh_write seen;
    if (!sh_backup_read_is_clean(store->backup, lid, &seen))
        sh_write_join(write, &seen);
}

/* Does all, and then waits for all. */
static enum shoal_err run_embedded(struct multi *multi, size_t count)
{
    struct sh_write write;
    enum shoal_err refused =
        multi->kind == SH_CALL_GET ? SHOAL_OK : sh_embedded_level_check(multi->store);
    sh_write_begin(&write, sh_embedded_level(multi->store));
    for (size_t i = 0; i < count; i++) {
        struct shoal_op *op = &multi->ops[i];
        sh_lid lid;
        op->err = refused != SHOAL_OK ? refused : sh_embedded_lid(op->cid, &lid);
        if (op->err != SHOAL_OK)
            continue;
        op->err = multi->kind == SH_CALL_GET ? get_embedded(multi->store, op, lid)
                                             : change_embedded(multi, &write, op, lid);
        if (op->err != SHOAL_OK && multi->kind != SH_CALL_GET)
            failure_join(multi->store, &write, lid);
    }
    return sh_embedded_settle(multi->store, &write);
}

static enum shoal_err run_multi(shoal *store, enum sh_call_kind kind, struct shoal_op *ops,
                                size_t count)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK)
        return err;
    if (!store || (count > 0 && !ops) || count > MANY_MAX) {
        sh_client_detail_set("at most %u operations at once, and no NULL", MANY_MAX);
        return SHOAL_EINVAL;
    }
    struct multi multi = {.store = store, .kind = kind, .ops = ops};
    for (size_t i = 0; i < count; i++)
        ops[i].err = SHOAL_EAGAIN;
    if (store->is_embedded) {
        err = run_embedded(&multi, count);
    } else if (count > 0) {
        multi.deadline_ns = sh_client_deadline_ns(store);
        sh_client_refresh_if_due(store, multi.deadline_ns - store->timeout_ns);
        err = run_on_cluster(&multi, count);
    }
    for (size_t i = 0; err == SHOAL_OK && i < count; i++) {
        err = ops[i].err;
        if (err != SHOAL_OK)
            sh_client_detail_set("operation %zu of %zu failed first", i, count);
    }
    return err;
}

enum shoal_err shoal_multi_get(shoal *store, struct shoal_op *ops, size_t count)
{
    return run_multi(store, SH_CALL_GET, ops, count);
}

enum shoal_err shoal_multi_put(shoal *store, struct shoal_op *ops, size_t count)
{
    return run_multi(store, SH_CALL_PUT, ops, count);
}

enum shoal_err shoal_multi_remove(shoal *store, struct shoal_op *ops, size_t count)
{
    return run_multi(store, SH_CALL_REMOVE, ops, count);
}

enum shoal_err shoal_multi_resize(shoal *store, struct shoal_op *ops, size_t count)
{
    return run_multi(store, SH_CALL_RESIZE, ops, count);
}
