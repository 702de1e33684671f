/* Records what real threads do with a store, and judges it (sim/linear.h). A store is what struct
 * linear_store says; a test hands one in that works, and one that is broken, which must be caught.
 *
 * A run has rounds. In each, THREADS threads do a number of calls on few chunks; then the history
 * of each chunk ID is checked and all chunks are removed, so that the next round starts with none.
 * IDs that are handed out again within a round are the same register, created anew. */
#ifndef TESTS_LINEAR_RUN_INT_H
#define TESTS_LINEAR_RUN_INT_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "shoal/shoal.h"
#include "sim/linear.h"

#define LINEAR_THREADS 4
#define LINEAR_CALLS                                                                               \
    100                   /* of each thread in a round; THREADS times as many are OPS_MAX at most  \
                           */
#define LINEAR_IDS 4      /* chunks at a time, more or less */
#define LINEAR_WIDTHS 5   /* sizes that chunks have */
#define LINEAR_BYTES 4096 /* the largest of them */

_Static_assert(LINEAR_THREADS *LINEAR_CALLS <= LINEAR_OPS_MAX, "a history fits, even of one ID");

/* Calls as those of shoal.h; err other than those that a record may have fails the test. */
struct linear_store {
    void *arg;
    enum shoal_err (*create)(void *arg, uint32_t size, shoal_cid *cid_out);
    enum shoal_err (*get)(void *arg, shoal_cid cid, void *into, uint32_t room, uint32_t *size_out);
    enum shoal_err (*put)(void *arg, shoal_cid cid, const void *data, uint32_t size);
    enum shoal_err (*put_if)(void *arg, shoal_cid cid, const void *expected, const void *data,
                             uint32_t size);
    enum shoal_err (*add)(void *arg, shoal_cid cid, uint64_t delta, uint64_t *old_out);
    enum shoal_err (*resize)(void *arg, shoal_cid cid, uint32_t size);
    enum shoal_err (*remove)(void *arg, shoal_cid cid);
    /* Creates under a given ID, with content; NULL: the store has no such call. */
    enum shoal_err (*adopt)(void *arg, shoal_cid cid, const void *data, uint32_t size);
    /* Does something that no record may show; NULL: nothing. */
    void (*disturb)(void *arg);
};

struct linear_run {
    const struct linear_store *store;
    bool has_sizes; /* chunks of several sizes that are resized; else counters of 8 bytes */
    uint64_t seed;
    _Atomic uint64_t clock;
    _Atomic uint64_t ids[LINEAR_IDS];
    _Atomic uint64_t values;  /* given out, so that each put has its own */
    _Atomic unsigned waiting; /* threads that have not begun */
    struct linear_op ops[LINEAR_THREADS * LINEAR_CALLS];
};

struct linear_thread {
    pthread_t thread;
    struct linear_run *run;
    uint64_t random;
    struct linear_op *ops;
    const char *trouble; /* a call ended as none may */
    uint8_t bytes[LINEAR_BYTES], expected[LINEAR_BYTES];
};

static inline uint64_t linear_draw(struct linear_thread *thread)
{
    thread->random += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(thread->random);
}

static inline uint64_t linear_tick(struct linear_run *run)
{
    /* acq_rel: no part of a call may move past the moments that are recorded for it */
    return 1 + atomic_fetch_add_explicit(&run->clock, 1, memory_order_acq_rel);
}

/* --- Content ------------------------------------------------------------------------------- */

static inline void linear_fill(uint8_t *bytes, uint64_t value, uint32_t size)
{
    for (uint32_t at = 0; at < size; at += 8)
        memcpy(bytes + at, &value, 8);
}

/* Says what was read. Content that nobody has written is a value that nobody has put. */
static inline void linear_read(const uint8_t *bytes, uint32_t size, struct linear_op *op)
{
    uint64_t first = 0, word;
    uint32_t filled = 0;
    if (size >= 8)
        memcpy(&first, bytes, 8);
    for (; first && filled < size; filled += 8) {
        memcpy(&word, bytes + filled, 8);
        if (word != first)
            break;
    }
    for (uint32_t at = filled; at < size; at++) {
        if (bytes[at])
            first = UINT64_MAX;
    }
    op->got = first;
    op->got_size = size;
    op->got_filled = filled;
}

static inline uint32_t linear_width(struct linear_thread *thread)
{
    static const uint32_t widths[LINEAR_WIDTHS] = {8, 24, 248, 264, LINEAR_BYTES};
    return thread->run->has_sizes ? widths[linear_draw(thread) % LINEAR_WIDTHS] : 8;
}

/* --- Calls --------------------------------------------------------------------------------- */

/* Creates a chunk and makes it one of those that are used. */
static inline enum shoal_err linear_create(struct linear_thread *thread, struct linear_op *op)
{
    struct linear_run *run = thread->run;
    shoal_cid cid;
    op->kind = LINEAR_CREATE;
    op->arg = 0;
    op->size = linear_width(thread);
    enum shoal_err err = run->store->create(run->store->arg, op->size, &cid);
    if (err == SHOAL_OK) {
        op->key = cid.v;
        atomic_store_explicit(&run->ids[linear_draw(thread) % LINEAR_IDS], cid.v,
                              memory_order_relaxed);
    }
    return err;
}

static inline enum shoal_err linear_call(struct linear_thread *thread, struct linear_op *op)
{
    const struct linear_store *store = thread->run->store;
    shoal_cid cid = {op->key};
    uint32_t got_size = 0;
    uint64_t old = 0;
    enum shoal_err err;
    switch (op->kind) {
    case LINEAR_CREATE:
        return store->adopt(store->arg, cid, thread->bytes, op->size);
    case LINEAR_PUT:
        return store->put(store->arg, cid, thread->bytes, op->size);
    case LINEAR_CAS:
        linear_fill(thread->expected, op->expected, op->size);
        return store->put_if(store->arg, cid, thread->expected, thread->bytes, op->size);
    case LINEAR_REMOVE:
        return store->remove(store->arg, cid);
    case LINEAR_RESIZE:
        return store->resize(store->arg, cid, op->size);
    case LINEAR_ADD:
        err = store->add(store->arg, cid, op->arg, &old);
        op->got = old + op->arg;
        return err;
    default:
        err = store->get(store->arg, cid, thread->bytes, LINEAR_BYTES, &got_size);
        if (err == SHOAL_OK)
            linear_read(thread->bytes, got_size, op);
        return err;
    }
}

/* False: nothing can be said of the call. */
static inline bool linear_result_set(struct linear_thread *thread, struct linear_op *op,
                                     enum shoal_err err)
{
    switch (err) {
    case SHOAL_OK:
        op->result = LINEAR_OK;
        return true;
    case SHOAL_ENOCHUNK:
        op->result = LINEAR_ABSENT;
        return true;
    case SHOAL_EEXIST:
        /* The ID may still be in the hands of who has just removed it (store.h): that says nothing
         * about the register, and has changed nothing. */
        return false;
    case SHOAL_ESIZE:
        op->result = LINEAR_SIZE;
        return true;
    case SHOAL_EDIFFERS:
        op->result = LINEAR_DIFFERS;
        return true;
    case SHOAL_ETIMEOUT:
    case SHOAL_ECONNLOST:
        op->end = LINEAR_PENDING;
        return op->kind != LINEAR_CREATE; /* whose ID nobody knows */
    default:
        thread->trouble = shoal_err_name(err);
        return false;
    }
}

/* Draws what to do, with which chunk. `seen` is what this thread has read last, the most likely
 * content to be expected. */
static inline void linear_choose(struct linear_thread *thread, const struct linear_op *seen,
                                 struct linear_op *op)
{
    struct linear_run *run = thread->run;
    unsigned dice = (unsigned)(linear_draw(thread) % 100);
    *op = (struct linear_op){.size = linear_width(thread)};
    op->key =
        atomic_load_explicit(&run->ids[linear_draw(thread) % LINEAR_IDS], memory_order_relaxed);
    op->arg = 1 + atomic_fetch_add_explicit(&run->values, 1, memory_order_relaxed);
    if (dice < 35) {
        op->kind = LINEAR_GET;
    } else if (dice < 55) {
        op->kind = LINEAR_PUT;
    } else if (dice < 75) {
        op->kind = LINEAR_CAS;
        if (linear_draw(thread) % 4) {
            op->key = seen->key ? seen->key : op->key;
            op->expected = seen->got;
            op->size = seen->got_size ? seen->got_size : op->size;
        }
    } else if (dice < 88) {
        op->kind = run->has_sizes ? LINEAR_RESIZE : LINEAR_ADD;
    } else {
        op->kind = dice < 95 ? LINEAR_REMOVE : LINEAR_CREATE;
    }
    if (op->kind == LINEAR_GET || op->kind == LINEAR_REMOVE || op->kind == LINEAR_ADD)
        op->size = 0;
}

static inline void *linear_main(void *arg)
{
    struct linear_thread *thread = arg;
    struct linear_run *run = thread->run;
    const struct linear_store *store = run->store;
    struct linear_op seen = {.kind = LINEAR_GET};
    /* Begin together: waking up takes longer than all that a thread does here. */
    atomic_fetch_sub_explicit(&run->waiting, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&run->waiting, memory_order_acquire) > 0)
        sched_yield();
    for (unsigned i = 0; i < LINEAR_CALLS && !thread->trouble; i++) {
        struct linear_op *op = &thread->ops[i];
        linear_choose(thread, &seen, op);
        if (store->disturb && linear_draw(thread) % 16 == 0)
            store->disturb(store->arg);
        bool is_new = op->key == 0 || (op->kind == LINEAR_CREATE &&
                                       (!store->adopt || linear_draw(thread) % 2 == 0));
        linear_fill(thread->bytes, op->arg, op->size);
        op->begin = linear_tick(run);
        enum shoal_err err = is_new ? linear_create(thread, op) : linear_call(thread, op);
        op->end = linear_tick(run);
        if (!linear_result_set(thread, op, err))
            *op = (struct linear_op){.end = LINEAR_PENDING};
        if (op->kind == LINEAR_GET && op->result == LINEAR_OK)
            seen = *op;
        if (!run->has_sizes)
            op->size = op->got_size = op->got_filled = 0;
    }
    return NULL;
}

/* --- Rounds -------------------------------------------------------------------------------- */

/* Judges each ID once; false when one is not linearizable, which is printed if `tells`. */
static inline bool linear_judge(struct linear_run *run, bool tells)
{
    static struct linear_op part[LINEAR_OPS_MAX];
    const size_t count = LINEAR_THREADS * LINEAR_CALLS;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = run->ops[i].key;
        size_t before = 0;
        while (before < i && run->ops[before].key != key)
            before++;
        if (key == 0 || before < i || linear_check(run->ops, count, key) != LINEAR_NO)
            continue;
        unsigned size = tells ? linear_shortest(run->ops, count, key, part) : 0;
        size = linear_shrink(part, size);
        if (tells)
            printf("chunk %016" PRIx64 ", seed %" PRIu64 ": no order explains its last answer:\n",
                   key, run->seed);
        linear_print(stdout, part, size);
        return false;
    }
    return true;
}

/* Removes what is left. What was never created, or is gone, does not matter. */
static inline void linear_clean(struct linear_run *run)
{
    for (size_t i = 0; i < LINEAR_THREADS * LINEAR_CALLS; i++) {
        enum shoal_err err = SHOAL_OK;
        if (run->ops[i].kind == LINEAR_CREATE && run->ops[i].key != 0)
            err = run->store->remove(run->store->arg, (shoal_cid){run->ops[i].key});
        (void)err;
    }
    for (size_t i = 0; i < LINEAR_IDS; i++)
        atomic_store_explicit(&run->ids[i], 0, memory_order_relaxed);
}

/* Does rounds until one fails; returns how many were good. tells: says why one failed. A call that
 * ended as none may ends the test. */
static inline unsigned linear_rounds(const struct linear_store *store, bool has_sizes,
                                     uint64_t seed, unsigned rounds, bool tells)
{
    static struct linear_run run;
    static struct linear_thread threads[LINEAR_THREADS];
    unsigned round = 0;
    uint64_t overlaps = 0;
    bool is_good = true;
    for (; round < rounds && is_good; round += is_good) {
        memset(&run, 0, sizeof run);
        run.store = store;
        run.has_sizes = has_sizes;
        run.seed = seed;
        atomic_store_explicit(&run.waiting, LINEAR_THREADS, memory_order_relaxed);
        for (unsigned i = 0; i < LINEAR_THREADS; i++) {
            threads[i] = (struct linear_thread){.run = &run, .ops = run.ops + i * LINEAR_CALLS};
            threads[i].random = sh_mix64(seed + round * LINEAR_THREADS + i);
            if (pthread_create(&threads[i].thread, NULL, linear_main, &threads[i]) != 0)
                abort();
        }
        for (unsigned i = 0; i < LINEAR_THREADS; i++)
            pthread_join(threads[i].thread, NULL);
        for (size_t i = 0; i < LINEAR_THREADS * LINEAR_CALLS; i++)
            overlaps += run.ops[i].end != run.ops[i].begin + 1;
        for (unsigned i = 0; i < LINEAR_THREADS; i++) {
            if (threads[i].trouble)
                printf("a call ended with %s\n", threads[i].trouble);
            is_good = is_good && !threads[i].trouble;
        }
        is_good = is_good && linear_judge(&run, tells);
        linear_clean(&run);
    }
    if (tells)
        printf("%u rounds, %" PRIu64 " calls beside others\n", round, overlaps);
    return round;
}

/* --- Broken stores ------------------------------------------------------------------------- */

/* A store in front of a good one that now and then answers a get with what it has read before, or
 * adds in two steps, between which others may write. */
struct linear_broken {
    struct linear_store store; /* hand this one in */
    const struct linear_store *good;
    _Atomic unsigned gets;
};

static inline enum shoal_err linear_stale_get(void *arg, shoal_cid cid, void *into, uint32_t room,
                                              uint32_t *size_out)
{
    static _Thread_local struct {
        uint64_t id;
        uint32_t size;
        uint8_t bytes[LINEAR_BYTES];
    } last;
    struct linear_broken *broken = arg;
    if (last.id == cid.v && atomic_fetch_add(&broken->gets, 1) % 8 == 0) {
        memcpy(into, last.bytes, last.size);
        *size_out = last.size;
        return SHOAL_OK;
    }
    enum shoal_err err = broken->good->get(broken->good->arg, cid, into, room, size_out);
    if (err == SHOAL_OK) {
        last.id = cid.v;
        last.size = *size_out;
        memcpy(last.bytes, into, last.size);
    }
    return err;
}

static inline enum shoal_err linear_torn_add(void *arg, shoal_cid cid, uint64_t delta,
                                             uint64_t *old_out)
{
    struct linear_broken *broken = arg;
    const struct linear_store *good = broken->good;
    uint8_t bytes[LINEAR_BYTES];
    uint64_t sum;
    uint32_t size;
    enum shoal_err err = good->get(good->arg, cid, bytes, sizeof bytes, &size);
    if (err != SHOAL_OK)
        return err;
    memcpy(old_out, bytes, 8);
    sum = *old_out + delta;
    sched_yield();
    return good->put(good->arg, cid, &sum, 8);
}

#define LINEAR_PASS_ON(name, parameters, arguments)                                                \
    static inline enum shoal_err linear_on_##name parameters                                       \
    {                                                                                              \
        const struct linear_store *good = ((struct linear_broken *)arg)->good;                     \
        return good->name arguments;                                                               \
    }
LINEAR_PASS_ON(create, (void *arg, uint32_t size, shoal_cid *cid_out), (good->arg, size, cid_out))
LINEAR_PASS_ON(get, (void *arg, shoal_cid cid, void *into, uint32_t room, uint32_t *size_out),
               (good->arg, cid, into, room, size_out))
LINEAR_PASS_ON(put, (void *arg, shoal_cid cid, const void *data, uint32_t size),
               (good->arg, cid, data, size))
LINEAR_PASS_ON(put_if,
               (void *arg, shoal_cid cid, const void *expected, const void *data, uint32_t size),
               (good->arg, cid, expected, data, size))
LINEAR_PASS_ON(add, (void *arg, shoal_cid cid, uint64_t delta, uint64_t *old_out),
               (good->arg, cid, delta, old_out))
LINEAR_PASS_ON(resize, (void *arg, shoal_cid cid, uint32_t size), (good->arg, cid, size))
LINEAR_PASS_ON(remove, (void *arg, shoal_cid cid), (good->arg, cid))
#undef LINEAR_PASS_ON

static inline void linear_broken_make(struct linear_broken *broken, const struct linear_store *good)
{
    *broken = (struct linear_broken){
        .store = {.arg = broken,
                  .create = linear_on_create,
                  .get = linear_on_get,
                  .put = linear_on_put,
                  .put_if = linear_on_put_if,
                  .add = linear_on_add,
                  .resize = linear_on_resize,
                  .remove = linear_on_remove},
        .good = good,
    };
}

#endif
