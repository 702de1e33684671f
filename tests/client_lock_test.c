/* Locks through libshoal: who gets them, in which order, and when they fall; on a cluster whose
 * nodes are processes, with two handles, and in this process. */
#include <pthread.h>

#include "base/log.h"
#include "base/random_test.h"
#include "tests/client_rig.h"

#define LONG_NS (600000 * MS)
/* Waits that must succeed end long before this. */
#define WAIT_NS DEADLINE_NS

/* Two that lock: owners of two handles on a cluster, or two owners of the one handle embedded. */
struct parties {
    shoal *stores[2];
    shoal_owner owners[2];
    shoal_nid where;
    struct rig_cluster cluster;
    bool is_embedded;
};

static void parties_open(struct parties *parties, bool is_embedded)
{
    *parties = (struct parties){.is_embedded = is_embedded};
    if (is_embedded) {
        parties->stores[0] = parties->stores[1] = rig_open("", 0);
        parties->owners[0].v = 1;
        parties->owners[1].v = 2;
        return;
    }
    rig_cluster_spawn(&parties->cluster);
    parties->where = parties->cluster.peers[0].nid;
    for (int i = 0; i < 2; i++)
        parties->stores[i] = rig_open(parties->cluster.superpeer.address, 0);
}

static void parties_close(struct parties *parties)
{
    shoal_close(parties->stores[0]);
    if (parties->is_embedded)
        return;
    shoal_close(parties->stores[1]);
    rig_cluster_kill(&parties->cluster);
}

static shoal_cid chunk_make(struct parties *parties)
{
    shoal_cid cid;
    assert_int_equal(shoal_create(parties->stores[0], parties->where, 8, &cid), SHOAL_OK);
    return cid;
}

static enum shoal_err lock(struct parties *parties, int who, shoal_cid cid,
                           enum shoal_lock_mode mode, uint64_t lease_ns, uint64_t wait_ns)
{
    return shoal_lock(parties->stores[who], cid, parties->owners[who], mode, lease_ns, wait_ns);
}

static enum shoal_err unlock(struct parties *parties, int who, shoal_cid cid)
{
    return shoal_unlock(parties->stores[who], cid, parties->owners[who]);
}

static enum shoal_err swap(struct parties *parties, int who, shoal_cid cid,
                           enum shoal_lock_mode mode)
{
    return shoal_lock_swap(parties->stores[who], cid, parties->owners[who], mode, LONG_NS);
}

static enum shoal_err extend(struct parties *parties, int who, shoal_cid cid, uint64_t lease_ns)
{
    return shoal_lock_extend(parties->stores[who], cid, parties->owners[who], lease_ns);
}

/* --- Counting ------------------------------------------------------------------------------ */

struct counted {
    shoal_cid cid; /* NONE: all */
    uint32_t held, waiting;
    shoal_cid last;
    bool in_order;
};

static bool count_one(void *arg, const struct shoal_lock_info *lock)
{
    struct counted *counted = arg;
    assert_true(lock->mode == SHOAL_LOCK_READ || lock->mode == SHOAL_LOCK_WRITE);
    counted->in_order &= lock->cid.v >= counted->last.v;
    counted->last = lock->cid;
    if (counted->cid.v != 0 && lock->cid.v != counted->cid.v)
        return true;
    counted->held += !lock->is_waiting;
    counted->waiting += lock->is_waiting;
    return true;
}

static struct counted count(struct parties *parties, shoal_cid cid)
{
    struct counted counted = {.cid = cid, .in_order = true};
    assert_int_equal(shoal_locks(parties->stores[0], parties->where, count_one, &counted),
                     SHOAL_OK);
    assert_true(counted.in_order);
    return counted;
}

static void await_waiting(struct parties *parties, shoal_cid cid, uint32_t waiting)
{
    uint64_t deadline = rig_now() + DEADLINE_NS;
    while (count(parties, cid).waiting != waiting)
        assert_true(rig_now() < deadline);
}

/* --- Exclusion ----------------------------------------------------------------------------- */

static void exclude(struct parties *parties)
{
    shoal_cid cid = chunk_make(parties);
    assert_int_equal(unlock(parties, 0, cid), SHOAL_ENOLOCK);
    assert_int_equal(extend(parties, 0, cid, LONG_NS), SHOAL_ENOLOCK);
    assert_int_equal(swap(parties, 0, cid, SHOAL_LOCK_READ), SHOAL_ENOLOCK);

    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_OK);
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_OK);
    assert_int_equal(lock(parties, 1, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_EBUSY);
    assert_non_null(strstr(shoal_error_detail(), "is in the way, for writing, for "));
    assert_int_equal(lock(parties, 1, cid, SHOAL_LOCK_READ, LONG_NS, 0), SHOAL_EBUSY);
    assert_int_equal(unlock(parties, 1, cid), SHOAL_ENOLOCK);
    assert_int_equal(count(parties, cid).held, 1);

    /* Readers share; one among others can't become a writer, and one alone can. */
    assert_int_equal(swap(parties, 0, cid, SHOAL_LOCK_READ), SHOAL_OK);
    assert_int_equal(lock(parties, 1, cid, SHOAL_LOCK_READ, LONG_NS, 0), SHOAL_OK);
    assert_int_equal(count(parties, cid).held, 2);
    assert_int_equal(swap(parties, 1, cid, SHOAL_LOCK_WRITE), SHOAL_EBUSY);
    assert_non_null(strstr(shoal_error_detail(), "for reading"));
    assert_int_equal(unlock(parties, 0, cid), SHOAL_OK);
    assert_int_equal(swap(parties, 1, cid, SHOAL_LOCK_WRITE), SHOAL_OK);
    assert_int_equal(extend(parties, 1, cid, LONG_NS), SHOAL_OK);
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_READ, LONG_NS, 0), SHOAL_EBUSY);
    assert_int_equal(unlock(parties, 1, cid), SHOAL_OK);
    assert_int_equal(count(parties, SHOAL_CID_NONE).held, 0);

    /* Locks are advisory. */
    uint64_t value = 5;
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_OK);
    assert_int_equal(shoal_put(parties->stores[1], cid, &value, 8), SHOAL_OK);
    assert_int_equal(shoal_remove(parties->stores[1], cid), SHOAL_OK);
    assert_int_equal(count(parties, SHOAL_CID_NONE).held, 0);
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_ENOCHUNK);
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, WAIT_NS), SHOAL_ENOCHUNK);
}

static void refuse_nonsense(struct parties *parties)
{
    shoal_cid cid = chunk_make(parties);
    shoal *store = parties->stores[0];
    struct shoal_call call = {0};
    assert_int_equal(lock(parties, 0, cid, (enum shoal_lock_mode)0, LONG_NS, 0), SHOAL_EINVAL);
    assert_int_equal(lock(parties, 0, cid, (enum shoal_lock_mode)3, LONG_NS, 0), SHOAL_EINVAL);
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_READ, 0, 0), SHOAL_EINVAL);
    assert_int_equal(extend(parties, 0, cid, 0), SHOAL_EINVAL);
    assert_int_equal(swap(parties, 0, cid, (enum shoal_lock_mode)7), SHOAL_EINVAL);
    assert_int_equal(lock(parties, 0, SHOAL_CID_NONE, SHOAL_LOCK_READ, 1, 0), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_lock(NULL, cid, SHOAL_OWNER_HANDLE, SHOAL_LOCK_READ, 1, 0),
                     SHOAL_EINVAL);
    assert_int_equal(shoal_lock_async(store, cid, parties->owners[0], SHOAL_LOCK_READ, 0, 0, &call),
                     SHOAL_EINVAL);
    assert_int_equal(shoal_wait(store, &call), SHOAL_EINVAL);
    assert_int_equal(shoal_locks(store, parties->where, NULL, NULL), SHOAL_EINVAL);
    assert_int_equal(shoal_locks(store, (shoal_nid){999}, count_one, NULL), SHOAL_ENONODE);
    /* The longest lease is cut to a day, and the longest wait has no end. */
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_READ, UINT64_MAX, UINT64_MAX), SHOAL_OK);
    assert_int_equal(unlock(parties, 0, cid), SHOAL_OK);
    assert_int_not_equal(shoal_owner_thread().v, 0);
    assert_true(shoal_owner_thread().v == shoal_owner_thread().v);
}

/* --- Order --------------------------------------------------------------------------------- */

#define WAITERS 5

static bool is_done(struct parties *parties, struct shoal_call *call)
{
    shoal_poll(parties->stores[1]);
    return atomic_load((_Atomic uint64_t *)call->arg) > 0;
}

static _Atomic uint64_t done_order;

static void on_done(struct shoal_call *call)
{
    atomic_store((_Atomic uint64_t *)call->arg, atomic_fetch_add(&done_order, 1) + 1);
}

static void await_done(struct parties *parties, struct shoal_call *call)
{
    uint64_t deadline = rig_now() + DEADLINE_NS;
    while (!is_done(parties, call))
        assert_true(rig_now() < deadline);
    assert_int_equal(call->err, SHOAL_OK);
}

/* A writer holds; behind it come a reader, a writer, two readers, a writer. */
static void in_order_of_arrival(struct parties *parties)
{
    static const enum shoal_lock_mode modes[WAITERS] = {
        SHOAL_LOCK_READ, SHOAL_LOCK_WRITE, SHOAL_LOCK_READ, SHOAL_LOCK_READ, SHOAL_LOCK_WRITE};
    static _Atomic uint64_t order[WAITERS];
    struct shoal_call calls[WAITERS];
    shoal *store = parties->stores[1];
    shoal_cid cid = chunk_make(parties);
    atomic_store(&done_order, 0);
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_OK);
    for (size_t i = 0; i < WAITERS; i++) {
        atomic_store(&order[i], 0);
        calls[i] = (struct shoal_call){.done = on_done, .arg = &order[i]};
        assert_int_equal(shoal_lock_async(store, cid, (shoal_owner){10 + i}, modes[i], LONG_NS,
                                          WAIT_NS, &calls[i]),
                         SHOAL_OK);
        await_waiting(parties, cid, (uint32_t)i + 1);
    }
    assert_int_equal(unlock(parties, 0, cid), SHOAL_OK);
    await_done(parties, &calls[0]);
    assert_int_equal(count(parties, cid).waiting, 4);
    /* A reader that comes now does not overtake the writer that waits. */
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_READ, LONG_NS, 0), SHOAL_EBUSY);
    assert_int_equal(shoal_unlock(store, cid, (shoal_owner){10}), SHOAL_OK);
    await_done(parties, &calls[1]);
    assert_int_equal(count(parties, cid).waiting, 3);
    assert_int_equal(shoal_unlock(store, cid, (shoal_owner){11}), SHOAL_OK);
    await_done(parties, &calls[2]);
    await_done(parties, &calls[3]);
    assert_int_equal(count(parties, cid).waiting, 1);
    assert_int_equal(shoal_unlock(store, cid, (shoal_owner){13}), SHOAL_OK);
    assert_int_equal(count(parties, cid).waiting, 1);
    assert_int_equal(shoal_unlock(store, cid, (shoal_owner){12}), SHOAL_OK);
    await_done(parties, &calls[4]);
    assert_true(order[0] == 1 && order[1] == 2 && order[4] == 5);
    assert_int_equal(shoal_unlock(store, cid, (shoal_owner){14}), SHOAL_OK);
    assert_int_equal(count(parties, SHOAL_CID_NONE).held, 0);
}

/* A wait ends when its owner unlocks, when the chunk is removed, or when its time is over. */
static void waits_end(struct parties *parties)
{
    struct shoal_call calls[3];
    shoal *store = parties->stores[1];
    shoal_cid cid = chunk_make(parties);
    memset(calls, 0, sizeof calls);
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(shoal_lock_async(store, cid, (shoal_owner){20 + i}, SHOAL_LOCK_WRITE,
                                          LONG_NS, UINT64_MAX, &calls[i]),
                         SHOAL_OK);
    await_waiting(parties, cid, 3);
    assert_int_equal(shoal_unlock(store, cid, (shoal_owner){21}), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &calls[1]), SHOAL_ECANCELED);
    uint64_t begun = rig_now();
    assert_int_equal(lock(parties, 1, cid, SHOAL_LOCK_READ, LONG_NS, 30 * MS), SHOAL_ETIMEOUT);
    assert_non_null(strstr(shoal_error_detail(), "is in the way"));
    assert_true(rig_now() - begun >= 30 * MS);
    await_waiting(parties, cid, 2);
    struct shoal_op op = {.cid = cid};
    assert_int_equal(shoal_multi_remove(store, &op, 1), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &calls[0]), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_wait(store, &calls[2]), SHOAL_ENOCHUNK);
    struct counted none = count(parties, SHOAL_CID_NONE);
    assert_true(none.held == 0 && none.waiting == 0);
}

/* --- Time ---------------------------------------------------------------------------------- */

static void leases_run_out(struct parties *parties)
{
    shoal_cid cid = chunk_make(parties);
    uint64_t begun = rig_now();
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, 50 * MS, 0), SHOAL_OK);
    assert_int_equal(lock(parties, 1, cid, SHOAL_LOCK_WRITE, LONG_NS, WAIT_NS), SHOAL_OK);
    assert_true(rig_now() - begun >= 50 * MS);
    assert_int_equal(extend(parties, 0, cid, LONG_NS), SHOAL_ENOLOCK);
    assert_int_equal(unlock(parties, 0, cid), SHOAL_ENOLOCK);
    assert_int_equal(unlock(parties, 1, cid), SHOAL_OK);
    /* One that is extended lasts. */
    begun = rig_now();
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_WRITE, 10 * MS, 0), SHOAL_OK);
    enum shoal_err err = extend(parties, 0, cid, LONG_NS);
    if (err == SHOAL_OK) {
        assert_int_equal(lock(parties, 1, cid, SHOAL_LOCK_WRITE, LONG_NS, 100 * MS),
                         SHOAL_ETIMEOUT);
        assert_int_equal(unlock(parties, 0, cid), SHOAL_OK);
    } else {
        /* A slow machine: the lease was over before it could be extended, and rightly so. */
        assert_int_equal(err, SHOAL_ENOLOCK);
        assert_true(rig_now() - begun >= 10 * MS);
    }
    /* Nobody needs to ask for a lease to run out. */
    assert_int_equal(lock(parties, 0, cid, SHOAL_LOCK_READ, MS, 0), SHOAL_OK);
    uint64_t deadline = rig_now() + DEADLINE_NS;
    while (lock(parties, 1, cid, SHOAL_LOCK_WRITE, LONG_NS, 0) == SHOAL_EBUSY)
        assert_true(rig_now() < deadline);
    assert_int_equal(unlock(parties, 1, cid), SHOAL_OK);
}

/* --- Many ---------------------------------------------------------------------------------- */

#define MANY 2500 /* more than two pages of a list */

static bool stop_at_ten(void *arg, const struct shoal_lock_info *lock)
{
    unsigned *seen = arg;
    assert_true(lock->left_ns <= LONG_NS);
    assert_int_equal(lock->holders, 1);
    return ++*seen < 10;
}

/* Locks or unlocks; where too much is under way, some must come to its end first. */
static void begin(shoal *store, shoal_cid cid, uint64_t owner, bool locks, struct shoal_call *call)
{
    uint64_t deadline = rig_now() + DEADLINE_NS;
    enum shoal_err err;
    do {
        *call = (struct shoal_call){0};
        err = locks ? shoal_lock_async(store, cid, (shoal_owner){owner}, SHOAL_LOCK_WRITE, LONG_NS,
                                       0, call)
                    : shoal_unlock_async(store, cid, (shoal_owner){owner}, call);
        shoal_poll(store);
    } while (err == SHOAL_EBUSY && rig_now() < deadline);
    assert_int_equal(err, SHOAL_OK);
}

static void listed_by_pages(struct parties *parties)
{
    static shoal_cid cids[MANY];
    static struct shoal_call calls[MANY];
    shoal *store = parties->stores[0];
    unsigned seen = 0;
    assert_int_equal(shoal_create_many(store, parties->where, 8, MANY, cids), SHOAL_OK);
    for (size_t i = 0; i < MANY; i++)
        begin(store, cids[i], i % 3, true, &calls[i]);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
    assert_int_equal(count(parties, SHOAL_CID_NONE).held, MANY);
    assert_int_equal(shoal_locks(store, parties->where, stop_at_ten, &seen), SHOAL_OK);
    assert_int_equal(seen, 10);
    for (size_t i = 0; i < MANY; i++)
        begin(store, cids[i], i % 3, false, &calls[i]);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
    assert_int_equal(count(parties, SHOAL_CID_NONE).held, 0);
}

/* --- Counting under a lock ----------------------------------------------------------------- */

#define THREADS 6
#define INCREMENTS 60

struct counter {
    pthread_t thread;
    shoal *store;
    shoal_cid cid;
};

/* Each adds to a number by reading and writing it, which loses additions unless it is alone. */
static void *counter_main(void *arg)
{
    struct counter *counter = arg;
    shoal_owner self = shoal_owner_thread();
    for (int i = 0; i < INCREMENTS; i++) {
        uint64_t value;
        assert_int_equal(
            shoal_lock(counter->store, counter->cid, self, SHOAL_LOCK_WRITE, LONG_NS, WAIT_NS),
            SHOAL_OK);
        assert_int_equal(shoal_get(counter->store, counter->cid, &value, 8, NULL), SHOAL_OK);
        value++;
        assert_int_equal(shoal_put(counter->store, counter->cid, &value, 8), SHOAL_OK);
        assert_int_equal(shoal_unlock(counter->store, counter->cid, self), SHOAL_OK);
    }
    return NULL;
}

static void counted_exactly(struct parties *parties)
{
    struct counter counters[THREADS];
    shoal_cid cid = chunk_make(parties);
    uint64_t value;
    for (size_t i = 0; i < THREADS; i++) {
        counters[i] = (struct counter){.store = parties->stores[i % 2], .cid = cid};
        assert_int_equal(pthread_create(&counters[i].thread, NULL, counter_main, &counters[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(counters[i].thread, NULL);
    assert_int_equal(shoal_get(parties->stores[0], cid, &value, 8, NULL), SHOAL_OK);
    assert_int_equal(value, THREADS * INCREMENTS);
    assert_int_equal(count(parties, SHOAL_CID_NONE).held, 0);
}

/* --- Ends of handles, clients and nodes ---------------------------------------------------- */

static void all_of_it(bool is_embedded)
{
    struct parties parties;
    parties_open(&parties, is_embedded);
    exclude(&parties);
    refuse_nonsense(&parties);
    in_order_of_arrival(&parties);
    waits_end(&parties);
    leases_run_out(&parties);
    listed_by_pages(&parties);
    counted_exactly(&parties);
    parties_close(&parties);
}

static void on_a_cluster(void **state)
{
    (void)state;
    all_of_it(false);
}

static void in_this_process(void **state)
{
    (void)state;
    all_of_it(true);
}

/* A handle that closes ends its waits, and its locks fall. */
static void closed(bool is_embedded)
{
    struct parties parties;
    struct shoal_call call = {0};
    parties_open(&parties, is_embedded);
    shoal_cid cid = chunk_make(&parties);
    shoal *store = parties.stores[1];
    assert_int_equal(lock(&parties, 0, cid, SHOAL_LOCK_WRITE, LONG_NS, 0), SHOAL_OK);
    assert_int_equal(shoal_lock_async(store, cid, (shoal_owner){9}, SHOAL_LOCK_WRITE, LONG_NS,
                                      UINT64_MAX, &call),
                     SHOAL_OK);
    await_waiting(&parties, cid, 1);
    shoal_close(store);
    assert_int_equal(call.err, SHOAL_ESTOPPED);
    if (is_embedded)
        return;
    await_waiting(&parties, cid, 0);
    parties.stores[1] = rig_open(parties.cluster.superpeer.address, 0);
    shoal_close(parties.stores[0]);
    assert_int_equal(lock(&parties, 1, cid, SHOAL_LOCK_WRITE, LONG_NS, WAIT_NS), SHOAL_OK);
    shoal_close(parties.stores[1]);
    rig_cluster_kill(&parties.cluster);
}

static void closing_frees(void **state)
{
    (void)state;
    closed(false);
    closed(true);
}

/* A process that locks a chunk, says so, and stands there until it is killed. */
static pid_t holder_spawn(const char *address, shoal_nid where, shoal_cid *cid_out)
{
    int ends[2];
    shoal_cid cid;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        shoal *store = rig_open(address, 0);
        assert_int_equal(shoal_create(store, where, 8, &cid), SHOAL_OK);
        assert_int_equal(shoal_lock(store, cid, SHOAL_OWNER_HANDLE, SHOAL_LOCK_WRITE, LONG_NS, 0),
                         SHOAL_OK);
        if (write(ends[1], &cid, sizeof cid) != (ssize_t)sizeof cid)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], cid_out, sizeof *cid_out), sizeof *cid_out);
    close(ends[0]);
    return pid;
}

static void killed_client_frees(void **state)
{
    (void)state;
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal_cid cid;
    struct shoal_call call = {0};
    pid_t holder = holder_spawn(cluster.superpeer.address, cluster.peers[0].nid, &cid);
    shoal *store = rig_open(cluster.superpeer.address, 0);
    assert_int_equal(shoal_lock(store, cid, SHOAL_OWNER_HANDLE, SHOAL_LOCK_READ, LONG_NS, 0),
                     SHOAL_EBUSY);
    assert_int_equal(
        shoal_lock_async(store, cid, SHOAL_OWNER_HANDLE, SHOAL_LOCK_WRITE, LONG_NS, WAIT_NS, &call),
        SHOAL_OK);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    uint64_t begun = rig_now();
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_true(rig_now() - begun < WAIT_NS); /* and not when its lease of ten minutes is over */
    assert_int_equal(shoal_unlock(store, cid, SHOAL_OWNER_HANDLE), SHOAL_OK);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

/* The chunk's node is killed: nobody waits for ever. */
static void killed_node_ends_waits(void **state)
{
    (void)state;
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, 2000 * MS);
    shoal_cid cid;
    struct shoal_call call = {0};
    assert_int_equal(shoal_create(store, cluster.peers[0].nid, 8, &cid), SHOAL_OK);
    assert_int_equal(shoal_lock(store, cid, (shoal_owner){1}, SHOAL_LOCK_WRITE, LONG_NS, 0),
                     SHOAL_OK);
    assert_int_equal(shoal_lock_async(store, cid, (shoal_owner){2}, SHOAL_LOCK_WRITE, LONG_NS,
                                      UINT64_MAX, &call),
                     SHOAL_OK);
    rig_kill(&cluster.peers[0]);
    assert_int_equal(shoal_wait(store, &call), SHOAL_EFAILED);
    assert_int_equal(shoal_lock_extend(store, cid, (shoal_owner){1}, LONG_NS), SHOAL_EFAILED);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

/* --- A node of several threads ------------------------------------------------------------- */

#define RACERS 4
#define RACE_ROUNDS 150
#define RACE_CHUNKS 3

/* Racers lock, list and remove the same few chunks, so that the node's handler threads drop locks
 * while its first thread grants them. */
struct racer {
    pthread_t thread;
    shoal *store;
    shoal_nid where;
    uint64_t random;
    _Atomic uint64_t *cids;
};

static uint64_t draw(struct racer *racer)
{
    return test_draw(&racer->random);
}

static bool is_one_of(enum shoal_err err, enum shoal_err a, enum shoal_err b, enum shoal_err c)
{
    return err == SHOAL_OK || err == a || err == b || err == c;
}

static void race_once(struct racer *racer)
{
    shoal_owner self = shoal_owner_thread();
    _Atomic uint64_t *slot = &racer->cids[draw(racer) % RACE_CHUNKS];
    shoal_cid cid = {atomic_load(slot)};
    struct shoal_op op = {.cid = cid};
    struct counted counted = {.in_order = true};
    switch (draw(racer) % 8) {
    case 0:
        assert_true(is_one_of(shoal_multi_remove(racer->store, &op, 1), SHOAL_ENOCHUNK, 0, 0));
        assert_int_equal(shoal_create(racer->store, racer->where, 8, &cid), SHOAL_OK);
        atomic_store(slot, cid.v);
        return;
    case 1:
        assert_int_equal(shoal_locks(racer->store, racer->where, count_one, &counted), SHOAL_OK);
        return;
    default:
        break;
    }
    enum shoal_lock_mode mode = draw(racer) % 2 ? SHOAL_LOCK_READ : SHOAL_LOCK_WRITE;
    uint64_t wait_ns = draw(racer) % 3 * 10 * MS, lease_ns = draw(racer) % 4 ? LONG_NS : MS;
    enum shoal_err err = shoal_lock(racer->store, cid, self, mode, lease_ns, wait_ns);
    assert_true(is_one_of(err, SHOAL_EBUSY, SHOAL_ETIMEOUT, SHOAL_ENOCHUNK));
    if (err != SHOAL_OK)
        return;
    err = shoal_lock_swap(racer->store, cid, self, SHOAL_LOCK_WRITE, LONG_NS);
    assert_true(is_one_of(err, SHOAL_EBUSY, SHOAL_ENOLOCK, 0));
    err = shoal_unlock(racer->store, cid, self);
    assert_true(is_one_of(err, SHOAL_ENOLOCK, 0, 0));
}

static void *racer_main(void *arg)
{
    for (int i = 0; i < RACE_ROUNDS; i++)
        race_once(arg);
    return NULL;
}

static void race(struct parties *parties, uint64_t seed)
{
    struct racer racers[RACERS];
    _Atomic uint64_t cids[RACE_CHUNKS];
    for (size_t i = 0; i < RACE_CHUNKS; i++)
        atomic_init(&cids[i], chunk_make(parties).v);
    for (size_t i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.store = parties->stores[i % 2],
                                   .where = parties->where,
                                   .random = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1,
                                   .cids = cids};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, racer_main, &racers[i]), 0);
    }
    for (size_t i = 0; i < RACERS; i++)
        pthread_join(racers[i].thread, NULL);
    uint64_t deadline = rig_now() + DEADLINE_NS;
    struct counted left;
    do {
        left = count(parties, SHOAL_CID_NONE);
        assert_true(rig_now() < deadline);
    } while (left.held + left.waiting > 0);
}

static void node_run(struct rig_node *running, const char *role, const char *superpeers)
{
    char detail[256];
    assert_int_equal(sh_options_init(&running->options), SHOAL_OK);
    rig_set(&running->options, "roles", role);
    rig_set(&running->options, "registry", "memory");
    rig_set(&running->options, "listen", "127.0.0.1:0");
    rig_set(&running->options, "superpeers", superpeers);
    rig_set(&running->options, "store_bytes_max", "32MiB");
    rig_set(&running->options, "threads", "4");
    assert_int_equal(sh_node_create(&running->options, &running->node, detail), SHOAL_OK);
    assert_int_equal(sh_node_start(running->node), SHOAL_OK);
    assert_true(sh_node_wait_ready(running->node));
}

static void raced(void **state)
{
    struct rig_node superpeer, peer;
    struct parties parties = {.is_embedded = false};
    uint64_t seed = test_seed(rig_now());
    (void)state;
    node_run(&superpeer, "superpeer", "");
    node_run(&peer, "peer", sh_node_address(superpeer.node));
    parties.where = sh_node_nid(peer.node);
    for (int i = 0; i < 2; i++)
        parties.stores[i] = rig_open(sh_node_address(superpeer.node), 0);
    race(&parties, seed);
    shoal_close(parties.stores[0]);
    shoal_close(parties.stores[1]);
    rig_node_end(&peer);
    rig_node_end(&superpeer);
    parties_open(&parties, true);
    race(&parties, seed);
    parties_close(&parties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_cluster),           cmocka_unit_test(in_this_process),
        cmocka_unit_test(closing_frees),          cmocka_unit_test(killed_client_frees),
        cmocka_unit_test(killed_node_ends_waits), cmocka_unit_test(raced),
    };
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size) != SHOAL_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
