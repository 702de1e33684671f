/* Application locks on several threads: whoever has a lock has it alone, every wait ends once, and
 * nothing is left over. What the locks protect is plain memory, so that the thread sanitizer sees
 * a lock that was given to two. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "store/leases_int.h"

#define THREADS 4
#define CHUNKS 5
#define ROUNDS 20000
#define LEASE_NS SH_LEASE_NS_MAX /* nothing runs out: the clock below counts calls */
#define DEADLINE_S 120

/* Where a thread finds how its wait ended. */
struct mailbox {
    _Atomic uint64_t told; /* cookie << 8 | error */
};

struct shared {
    struct sh_leases *leases;
    _Atomic uint64_t clock;
    _Atomic unsigned wrong;
    struct mailbox mail[THREADS];
    uint64_t values[CHUNKS][2]; /* guarded by the leases alone */
    uint64_t added[THREADS];    /* each by its thread */
    uint64_t waited[THREADS];   /* waits that ended with the lock */
};

struct actor {
    struct shared *shared;
    unsigned at;
    uint64_t rng;
    uint64_t cookie;
    struct sh_lease_owner owner;
};

/* Threads must not assert by cmocka: they count what is wrong. */
static void wrong_if(struct shared *shared, bool condition)
{
    if (condition)
        atomic_fetch_add(&shared->wrong, 1);
}

static uint64_t tick(struct shared *shared)
{
    return atomic_fetch_add(&shared->clock, 1);
}

/* Anybody drains, for all. */
static void deliver(struct shared *shared)
{
    struct sh_lease_end ends[8];
    size_t count = sh_leases_ended(shared->leases, ends, 8);
    for (size_t i = 0; i < count; i++) {
        uint64_t to = ends[i].cookie % THREADS;
        uint64_t before = atomic_load(&shared->mail[to].told);
        /* No cookie ends twice, or before an earlier one of its thread. */
        wrong_if(shared, before >> 8 >= ends[i].cookie);
        atomic_store(&shared->mail[to].told, ends[i].cookie << 8 | ends[i].err);
    }
}

static bool late(const struct timespec *since)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - since->tv_sec > DEADLINE_S;
}

static enum shoal_err await(struct actor *actor)
{
    struct shared *shared = actor->shared;
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    for (;;) {
        deliver(shared);
        (void)sh_leases_expire(shared->leases, tick(shared), 4);
        uint64_t told = atomic_load(&shared->mail[actor->at].told);
        if (told >> 8 == actor->cookie)
            return (enum shoal_err)(told & 0xff);
        if (late(&since)) {
            wrong_if(shared, true);
            return SHOAL_ETIMEOUT;
        }
        sched_yield();
    }
}

/* Cancels the wait now and then, which may come too late. */
static enum shoal_err wait_end(struct actor *actor, shoal_cid cid)
{
    struct shared *shared = actor->shared;
    if (test_draw(&actor->rng) % 8 == 0) {
        enum shoal_err err = sh_leases_cancel(shared->leases, cid, actor->owner, tick(shared));
        wrong_if(shared, err != SHOAL_OK && err != SHOAL_ENOLOCK);
    }
    enum shoal_err err = await(actor);
    wrong_if(shared, err != SHOAL_OK && err != SHOAL_ETIMEOUT && err != SHOAL_ECANCELED);
    shared->waited[actor->at] += err == SHOAL_OK;
    return err;
}

static void write_both(struct actor *actor, size_t chunk)
{
    actor->shared->values[chunk][0]++;
    actor->shared->values[chunk][1]++;
    actor->shared->added[actor->at]++;
}

static void read_both(struct actor *actor, size_t chunk)
{
    wrong_if(actor->shared, actor->shared->values[chunk][0] != actor->shared->values[chunk][1]);
}

/* Works on a chunk that the actor has locked, changing the mode now and then. */
static void work(struct actor *actor, size_t chunk, enum sh_lease_mode mode)
{
    struct shared *shared = actor->shared;
    shoal_cid cid = {chunk + 1};
    uint64_t deadline, dice = test_draw(&actor->rng) % 16;
    if (mode == SH_LEASE_WRITER)
        write_both(actor, chunk);
    else
        read_both(actor, chunk);
    wrong_if(shared, !sh_leases_holds(shared->leases, cid, actor->owner, mode, tick(shared)));
    if (dice < 6) {
        enum sh_lease_mode other = mode == SH_LEASE_WRITER ? SH_LEASE_READER : SH_LEASE_WRITER;
        enum shoal_err err = sh_leases_swap(shared->leases, cid, actor->owner, other, LEASE_NS,
                                            tick(shared), &deadline);
        wrong_if(shared, err != SHOAL_OK && (err != SHOAL_EBUSY || other == SH_LEASE_READER));
        if (err == SHOAL_OK && other == SH_LEASE_WRITER)
            write_both(actor, chunk);
        else
            read_both(actor, chunk);
    } else if (dice < 8) {
        wrong_if(shared, sh_leases_extend(shared->leases, cid, actor->owner, LEASE_NS, tick(shared),
                                          &deadline) != SHOAL_OK);
    }
    if (dice == 9)
        wrong_if(shared, sh_leases_owner_drop(shared->leases, actor->owner, tick(shared), 10) != 1);
    else
        wrong_if(shared,
                 sh_leases_release(shared->leases, cid, actor->owner, tick(shared)) != SHOAL_OK);
}

static void look(struct actor *actor)
{
    struct sh_lease rows[THREADS * 2];
    struct sh_leases_status status;
    struct sh_lease_owner from = {0};
    size_t count = sh_leases_list(actor->shared->leases, SHOAL_CID_NONE, from, rows, THREADS * 2);
    wrong_if(actor->shared, count > THREADS);
    sh_leases_status_get(actor->shared->leases, &status);
    wrong_if(actor->shared, status.readers + status.writers + status.waiters > THREADS);
    sh_leases_check(actor->shared->leases);
}

static void *act(void *arg)
{
    struct actor *actor = arg;
    struct shared *shared = actor->shared;
    for (unsigned i = 0; i < ROUNDS && atomic_load(&shared->wrong) == 0; i++) {
        uint64_t now = tick(shared), deadline;
        size_t chunk = test_draw(&actor->rng) % CHUNKS;
        struct sh_lease_wish wish = {
            .cid = {chunk + 1},
            .owner = actor->owner,
            .mode = test_draw(&actor->rng) % 3 ? SH_LEASE_READER : SH_LEASE_WRITER,
            .lease_ns = LEASE_NS,
        };
        if (test_draw(&actor->rng) % 4)
            wish.wait_until_ns = now + 1 + test_draw(&actor->rng) % 1000;
        actor->cookie += THREADS;
        wish.cookie = actor->cookie;
        enum shoal_err err = sh_leases_acquire(shared->leases, &wish, now, &deadline);
        wrong_if(shared, err != SHOAL_OK && err != SHOAL_EAGAIN && err != SHOAL_EBUSY);
        if (err == SHOAL_EAGAIN)
            err = wait_end(actor, wish.cid);
        if (err == SHOAL_OK)
            work(actor, chunk, wish.mode);
        if (i % 512 == 0)
            look(actor);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261121);
    struct shared *shared = calloc(1, sizeof *shared);
    assert_non_null(shared);
    struct sh_leases_config config = {.locks_max = 64, .waiters_max = 16, .seed = seed};
    assert_int_equal(sh_leases_create(&config, &shared->leases), SHOAL_OK);
    struct actor actors[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        actors[i] = (struct actor){.shared = shared,
                                   .at = i,
                                   .rng = seed + i * 1000003,
                                   .cookie = i,
                                   .owner = {.token = i, .nid = {7}}};
        assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
    }
    uint64_t added = 0, waited = 0, values = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        added += shared->added[i];
        waited += shared->waited[i];
    }
    assert_int_equal(atomic_load(&shared->wrong), 0);
    for (size_t i = 0; i < CHUNKS; i++)
        values += shared->values[i][0];
    assert_int_equal(values, added);
    struct sh_leases_status status;
    sh_leases_status_get(shared->leases, &status);
    print_message("%llu granted, %llu after a wait; %llu timed out, %llu refused\n",
                  (unsigned long long)status.granted, (unsigned long long)waited,
                  (unsigned long long)status.timed_out, (unsigned long long)status.refused);
    assert_int_equal(status.chunks + status.waiters + status.ended, 0);
    sh_leases_check(shared->leases);
    sh_leases_destroy(shared->leases);
    free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
