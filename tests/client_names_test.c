/* Names, barriers and scratch by libshoal: the same checks on a cluster and on a store in this
 * process; more threads than a client has places for calls under way; and names in a dump. */
#include <pthread.h>
#include <stdatomic.h>

#include "shoal/names.h"
#include "tests/client_rig.h"

#define MEMBERS 80 /* more than the 64 calls that a client has under way */
#define WAIT_NS UINT64_C(60000000000)

static const shoal_cid first = {UINT64_C(65) << 48 | 1}, second = {UINT64_C(65) << 48 | 2};

static bool name_count(void *arg, const char *name, shoal_cid cid)
{
    (void)name;
    assert_true(cid.v != 0);
    return ++*(unsigned *)arg < 1000;
}

static bool scratch_count(void *arg, const char *key, uint32_t size)
{
    (void)key;
    (void)size;
    ++*(unsigned *)arg;
    return true;
}

static void check_names(shoal *store)
{
    char name[SHOAL_NAME_MAX + 2];
    unsigned count = 0;
    shoal_cid cid;
    assert_int_equal(shoal_name_get(store, "leader", &cid), SHOAL_ENONAME);
    assert_int_equal(shoal_name_wait(store, "leader", MS, &cid), SHOAL_ETIMEOUT);
    assert_int_equal(
        shoal_name_set(store, "leader", first, SHOAL_NAME_ABSENT, SHOAL_CID_NONE, NULL), SHOAL_OK);
    assert_int_equal(
        shoal_name_set(store, "leader", second, SHOAL_NAME_ABSENT, SHOAL_CID_NONE, &cid),
        SHOAL_EEXIST);
    assert_true(cid.v == first.v);
    assert_int_equal(shoal_name_set(store, "leader", second, SHOAL_NAME_CURRENT, first, &cid),
                     SHOAL_OK);
    assert_int_equal(shoal_name_get(store, "leader", &cid), SHOAL_OK);
    assert_true(cid.v == second.v);
    assert_int_equal(shoal_name_set(store, "leader", second, SHOAL_NAME_CURRENT, first, &cid),
                     SHOAL_EDIFFERS);
    assert_true(cid.v == second.v);
    assert_int_equal(shoal_name_remove(store, "leader", SHOAL_NAME_CURRENT, first, NULL),
                     SHOAL_EDIFFERS);
    assert_int_equal(shoal_name_remove(store, "leader", SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL),
                     SHOAL_OK);
    assert_int_equal(shoal_name_remove(store, "leader", SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL),
                     SHOAL_ENONAME);
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "many/%u", i);
        assert_int_equal(
            shoal_name_set(store, name, first, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL), SHOAL_OK);
    }
    assert_int_equal(shoal_name_list(store, "many/", name_count, &count), SHOAL_OK);
    assert_int_equal(count, 300);
    memset(name, 'x', sizeof name);
    name[SHOAL_NAME_MAX + 1] = '\0';
    assert_int_equal(shoal_name_get(store, name, &cid), SHOAL_EINVAL);
}

static void check_scratch(shoal *store)
{
    char value[SHOAL_SCRATCH_MAX + 1] = "running";
    unsigned count = 0;
    uint32_t size;
    assert_int_equal(shoal_scratch_get(store, "job/7", value, sizeof value, &size), SHOAL_ENONAME);
    assert_int_equal(shoal_scratch_put(store, "job/7", value, 7), SHOAL_OK);
    assert_int_equal(shoal_scratch_put(store, "job/8", NULL, 0), SHOAL_OK);
    assert_int_equal(shoal_scratch_put(store, "job/9", value, sizeof value), SHOAL_ETOOBIG);
    assert_int_equal(shoal_scratch_get(store, "job/7", value, 6, &size), SHOAL_ESIZE);
    assert_int_equal(size, 7);
    assert_int_equal(shoal_scratch_get(store, "job/7", value, 7, &size), SHOAL_OK);
    assert_memory_equal(value, "running", 7);
    assert_int_equal(shoal_scratch_list(store, "job/", scratch_count, &count), SHOAL_OK);
    assert_int_equal(count, 2);
    assert_int_equal(shoal_scratch_remove(store, "job/7"), SHOAL_OK);
    assert_int_equal(shoal_scratch_remove(store, "job/7"), SHOAL_ENONAME);
}

/* --- Threads ------------------------------------------------------------------------------- */

struct member {
    shoal *store;
    shoal_barrier barrier;
    pthread_t thread;
    uint32_t index;
    const char *problem; /* NULL: none */
};

static void *member_run(void *arg)
{
    struct member *member = arg;
    for (unsigned round = 1; round <= 2; round++) {
        struct shoal_barrier_round *over;
        uint64_t sum = 0;
        enum shoal_err err = shoal_barrier_wait(member->store, member->barrier, &member->index,
                                                sizeof member->index, WAIT_NS, &over);
        if (err || over->number != round || over->count != MEMBERS) {
            member->problem = shoal_err_text(err);
            return NULL;
        }
        for (uint32_t i = 0; i < over->count; i++) {
            uint32_t index;
            memcpy(&index, over->members[i].data, sizeof index);
            sum += index;
        }
        shoal_barrier_round_free(over);
        if (sum != MEMBERS * (MEMBERS - 1) / 2)
            member->problem = "a member's data is missing";
    }
    return NULL;
}

static bool info_look(void *arg, const struct shoal_barrier_info *info)
{
    struct shoal_barrier_info *wanted = arg;
    if (info->barrier.v == wanted->barrier.v)
        *wanted = *info;
    return true;
}

static void check_barrier_list(shoal *store)
{
    struct shoal_barrier_info a = {.size = 0}, b = {.size = 0};
    struct shoal_barrier_round *round;
    assert_int_equal(shoal_barrier_create(store, 1, SHOAL_BARRIER_SURVIVORS, &a.barrier), SHOAL_OK);
    assert_int_equal(shoal_barrier_create(store, 9, SHOAL_BARRIER_TELL, &b.barrier), SHOAL_OK);
    assert_int_equal(shoal_barrier_wait(store, a.barrier, NULL, 0, WAIT_NS, &round), SHOAL_OK);
    shoal_barrier_round_free(round);
    assert_int_equal(shoal_barrier_list(store, info_look, &a), SHOAL_OK);
    assert_int_equal(shoal_barrier_list(store, info_look, &b), SHOAL_OK);
    assert_true(a.size == 1 && a.survivors && a.round == 2 && a.count == 0);
    assert_true(b.size == 9 && !b.survivors && b.round == 1 && b.count == 0);
    assert_int_equal(shoal_barrier_free(store, a.barrier), SHOAL_OK);
    assert_int_equal(shoal_barrier_free(store, b.barrier), SHOAL_OK);
}

static void check_barrier(shoal *store)
{
    static struct member members[MEMBERS];
    struct shoal_barrier_round *round;
    shoal_barrier barrier;
    assert_int_equal(shoal_barrier_create(store, MEMBERS, SHOAL_BARRIER_TELL, &barrier), SHOAL_OK);
    assert_int_equal(shoal_barrier_wait(store, barrier, NULL, 0, MS, &round), SHOAL_ETIMEOUT);
    assert_null(round);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        members[i] = (struct member){.store = store, .barrier = barrier, .index = i};
        assert_int_equal(pthread_create(&members[i].thread, NULL, member_run, &members[i]), 0);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        pthread_join(members[i].thread, NULL);
        if (members[i].problem)
            fail_msg("member %u: %s", i, members[i].problem);
    }
    assert_int_equal(shoal_barrier_status(store, barrier, &round), SHOAL_OK);
    assert_int_equal(round->number, 3);
    assert_int_equal(round->count, 0);
    shoal_barrier_round_free(round);
    assert_int_equal(shoal_barrier_resize(store, barrier, 1), SHOAL_OK);
    assert_int_equal(shoal_barrier_wait(store, barrier, "x", 1, WAIT_NS, &round), SHOAL_OK);
    assert_int_equal(round->size, 1);
    assert_true(round->members[0].id == round->self);
    shoal_barrier_round_free(round);
    assert_int_equal(shoal_barrier_free(store, barrier), SHOAL_OK);
    assert_int_equal(shoal_barrier_free(store, barrier), SHOAL_ENONAME);
}

struct taker {
    shoal *store;
    pthread_t thread;
    unsigned index, taken;
    enum shoal_err err;
};

/* Each step of one name is taken by exactly one of all threads: a change is done once. */
static void *taker_run(void *arg)
{
    struct taker *taker = arg;
    for (uint64_t step = 1; step <= 5; step++) {
        shoal_cid was = {step}, next = {step + 1}, now;
        enum shoal_err err =
            shoal_name_set(taker->store, "step", next, SHOAL_NAME_CURRENT, was, &now);
        taker->taken += err == SHOAL_OK;
        if (err && err != SHOAL_EDIFFERS)
            taker->err = err;
        if (err == SHOAL_EDIFFERS && now.v < was.v)
            step--; /* others are behind */
    }
    return NULL;
}

static void check_takers(shoal *store)
{
    static struct taker takers[MEMBERS];
    unsigned taken = 0;
    shoal_cid cid;
    assert_int_equal(
        shoal_name_set(store, "step", (shoal_cid){1}, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL),
        SHOAL_OK);
    for (unsigned i = 0; i < MEMBERS; i++) {
        takers[i] = (struct taker){.store = store, .index = i};
        assert_int_equal(pthread_create(&takers[i].thread, NULL, taker_run, &takers[i]), 0);
    }
    for (unsigned i = 0; i < MEMBERS; i++) {
        pthread_join(takers[i].thread, NULL);
        assert_int_equal(takers[i].err, SHOAL_OK);
        taken += takers[i].taken;
    }
    assert_int_equal(taken, 5);
    assert_int_equal(shoal_name_get(store, "step", &cid), SHOAL_OK);
    assert_true(cid.v == 6);
}

struct waiter {
    shoal *store;
    enum shoal_err err;
    shoal_cid cid;
};

static void *waiter_run(void *arg)
{
    struct waiter *waiter = arg;
    waiter->err = shoal_name_wait(waiter->store, "later", WAIT_NS, &waiter->cid);
    return NULL;
}

static void check_wait(shoal *store)
{
    struct waiter waiter = {.store = store};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &waiter), 0);
    assert_int_equal(
        shoal_name_set(store, "later", second, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL), SHOAL_OK);
    pthread_join(thread, NULL);
    assert_int_equal(waiter.err, SHOAL_OK);
    assert_true(waiter.cid.v == second.v);
}

#define CALLS 500

struct counted {
    struct shoal_call call;
    _Atomic unsigned *done;
};

static void on_counted(struct shoal_call *call)
{
    struct counted *counted = call->arg;
    atomic_fetch_add(counted->done, 1);
}

/* More calls than a client has places for, half of them called back, the others waited for. */
static void check_async(shoal *store)
{
    static struct counted calls[CALLS];
    static _Atomic unsigned done;
    struct shoal_call call = {.done = NULL};
    char name[32], value[8];
    atomic_store(&done, 0);
    for (unsigned i = 0; i < CALLS; i++) {
        snprintf(name, sizeof name, "async/%u", i);
        calls[i] = (struct counted){.done = &done};
        calls[i].call.done = i % 2 ? on_counted : NULL;
        calls[i].call.arg = &calls[i];
        assert_int_equal(shoal_name_set_async(store, name, (shoal_cid){i + 1}, SHOAL_NAME_ABSENT,
                                              SHOAL_CID_NONE, &calls[i].call),
                         SHOAL_OK);
    }
    for (unsigned i = 0; i < CALLS; i += 2)
        assert_int_equal(shoal_wait(store, &calls[i].call), SHOAL_OK);
    uint64_t deadline_ns = rig_now() + DEADLINE_NS;
    while (atomic_load(&done) < CALLS / 2) {
        (void)shoal_poll(store);
        assert_true(rig_now() < deadline_ns);
    }
    for (unsigned i = 1; i < CALLS; i += 2)
        assert_int_equal(calls[i].call.err, SHOAL_OK);
    assert_int_equal(shoal_name_get_async(store, "async/7", &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_true(call.cid.v == 8);
    assert_int_equal(
        shoal_name_set_async(store, "async/7", first, SHOAL_NAME_CURRENT, second, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_EDIFFERS);
    assert_true(call.cid.v == 8);
    assert_int_equal(
        shoal_name_remove_async(store, "async/7", SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, &call),
        SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_name_get_async(store, "async/7", &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_ENONAME);
    assert_int_equal(shoal_scratch_put_async(store, "async", "value", 5, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_scratch_get_async(store, "async", value, 4, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_ESIZE);
    assert_int_equal(call.size, 5);
    assert_int_equal(shoal_scratch_get_async(store, "async", value, sizeof value, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_memory_equal(value, "value", 5);
    assert_int_equal(shoal_scratch_remove_async(store, "async", &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_name_get_async(store, "", &call), SHOAL_EINVAL);
    assert_int_equal(shoal_wait(store, &call), SHOAL_EINVAL);
    assert_int_equal(shoal_scratch_put_async(store, "async", name, 1025, &call), SHOAL_ETOOBIG);
}

static void check_all(shoal *store)
{
    check_names(store);
    check_scratch(store);
    check_wait(store);
    check_takers(store);
    check_barrier_list(store);
    check_barrier(store);
    check_async(store);
}

/* What a call is repeated after, while there is time, and may end with. */
static bool is_without_superpeer(enum shoal_err err)
{
    return err == SHOAL_ESTOPPED || err == SHOAL_ETIMEOUT || err == SHOAL_ECONNLOST ||
           err == SHOAL_EUNREACHABLE || err == SHOAL_ENONODE || err == SHOAL_EBUSY ||
           err == SHOAL_ELIMIT;
}

/* What is under way when the superpeer is gone ends when the store is closed. */
static void test_closed(void **state)
{
    (void)state;
    static struct shoal_call calls[CALLS];
    struct rig_node superpeer;
    unsigned ended = 0;
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    shoal *store = rig_open(sh_node_address(superpeer.node), DEADLINE_NS);
    assert_int_equal(shoal_name_set(store, "a", first, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL),
                     SHOAL_OK);
    rig_node_end(&superpeer);
    for (unsigned i = 0; i < CALLS; i++) {
        calls[i] = (struct shoal_call){.err = SHOAL_OK};
        enum shoal_err err = i % 2 ? shoal_name_get_async(store, "a", &calls[i])
                                   : shoal_scratch_put_async(store, "a", "b", 1, &calls[i]);
        assert_int_equal(err, SHOAL_OK);
    }
    shoal_close(store);
    for (unsigned i = 0; i < CALLS; i++)
        ended += is_without_superpeer(calls[i].err);
    assert_int_equal(ended, CALLS);
}

/* --- The two kinds of stores --------------------------------------------------------------- */

static void test_cluster(void **state)
{
    (void)state;
    struct rig_node superpeer, peer;
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    rig_node_run(&peer, "peer", "127.0.0.1:0", sh_node_address(superpeer.node));
    shoal *store = rig_open(sh_node_address(superpeer.node), DEADLINE_NS);
    check_all(store);
    shoal_close(store);
    rig_node_end(&peer);
    rig_node_end(&superpeer);
}

static void test_embedded(void **state)
{
    (void)state;
    shoal *store;
    assert_int_equal(shoal_open(NULL, &store), SHOAL_OK);
    check_all(store);
    shoal_close(store);
}

/* What an embedded store has of names is in its dump, and added to another's. */
static void test_dump(void **state)
{
    (void)state;
    char folder[] = "/tmp/shoal-names-XXXXXX", path[64];
    shoal *store, *other;
    struct shoal_dump_sums sums;
    shoal_cid cid, chunk;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/all", folder);
    assert_int_equal(shoal_open(NULL, &store), SHOAL_OK);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 64, &chunk), SHOAL_OK);
    check_names(store);
    assert_int_equal(shoal_name_set(store, "root", chunk, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL),
                     SHOAL_OK);
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, path, NULL, NULL, &sums), SHOAL_OK);
    assert_int_equal(sums.chunks, 2);
    assert_int_equal(shoal_open(NULL, &other), SHOAL_OK);
    assert_int_equal(
        shoal_name_set(other, "many/7", second, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL), SHOAL_OK);
    assert_int_equal(shoal_load(other, SHOAL_NID_NONE, path, SHOAL_LOAD_SAME, NULL, NULL, &sums),
                     SHOAL_OK);
    assert_int_equal(shoal_name_get(other, "root", &cid), SHOAL_OK);
    assert_true(cid.v == chunk.v);
    assert_int_equal(shoal_name_get(other, "many/8", &cid), SHOAL_OK);
    assert_true(cid.v == first.v);
    assert_int_equal(shoal_name_get(other, "many/7", &cid), SHOAL_OK);
    assert_true(cid.v == second.v);
    /* Nothing but the chunk is left in either store. */
    assert_int_equal(shoal_remove(store, chunk), SHOAL_OK);
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, path, NULL, NULL, &sums), SHOAL_OK);
    assert_int_equal(sums.chunks, 1);
    shoal_close(other);
    shoal_close(store);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedded),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_cluster),
        cmocka_unit_test(test_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
