/* Crews whose steps application threads run while they wait. */
#include <pthread.h>
#include <string.h>

#include "base/crew_test.h"

/* Polls a waiter that nobody waits for until it is done; fails after PATIENCE_NS. */
static void await_done(const struct sh_waiter *waiter)
{
    uint64_t start_ns = now_ns(NULL);
    while (!sh_waiter_done(waiter)) {
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
        sched_yield();
    }
}

/* Lending, with a request that goes out through the client's step to a server's crew and back. */

struct call {
    struct call *next;
    struct sh_waiter waiter;
    uint64_t value; /* the server adds 1 */
};

struct box {
    struct call *_Atomic head;
};

static void box_put(struct box *box, struct call *call)
{
    call->next = atomic_load_explicit(&box->head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&box->head, &call->next, call,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

static struct call *box_take(struct box *box)
{
    if (atomic_load_explicit(&box->head, memory_order_relaxed) == NULL) {
        return NULL;
    }
    return atomic_exchange_explicit(&box->head, NULL, memory_order_acquire);
}

struct net {
    struct box outgoing;  /* application to client's step */
    struct box serving;   /* client's step to server's */
    struct box returning; /* server's step to client's */
    struct rig client;
    struct rig server;
    _Atomic uint64_t completed;
    _Atomic bool deaf;             /* the server keeps what it gets */
    _Atomic bool server_completes; /* the server's thread completes the waiters itself */
    _Atomic uint64_t async;        /* calls under way that nobody waits for */
};

static unsigned client_run(void *arg)
{
    struct net *net = arg;
    unsigned work = 0;
    struct call *next;
    for (struct call *call = box_take(&net->outgoing); call != NULL; call = next, work++) {
        next = call->next;
        box_put(&net->serving, call);
        sh_crew_wake(net->server.crew, 0);
    }
    for (struct call *call = box_take(&net->returning); call != NULL; call = next, work++) {
        next = call->next;
        sh_waiter_complete(&call->waiter); /* the call may be gone */
        atomic_fetch_add(&net->completed, 1);
    }
    return work;
}

static unsigned server_run(void *arg)
{
    struct net *net = arg;
    unsigned work = 0;
    struct call *next;
    if (atomic_load(&net->deaf)) {
        return 0;
    }
    for (struct call *call = box_take(&net->serving); call != NULL; call = next, work++) {
        next = call->next;
        call->value++;
        if (atomic_load(&net->server_completes)) {
            sh_waiter_complete(&call->waiter);
            atomic_fetch_add(&net->completed, 1);
        } else {
            box_put(&net->returning, call);
            sh_crew_wake(net->client.crew, 0);
        }
    }
    return work;
}

static bool net_busy(void *arg)
{
    return atomic_load(&((struct net *)arg)->async) > 0;
}

static void net_make(struct net *net, struct sh_idle_policy idle, bool with_parker)
{
    struct sh_crew_config client = {.idle = idle, .lends = true, .busy = net_busy, .busy_arg = net};
    struct sh_crew_config server = {.idle = idle};
    memset(net, 0, sizeof *net);
    rig_make(&net->client, client, with_parker, (struct sh_step){.run = client_run, .arg = net});
    rig_make(&net->server, server, with_parker, (struct sh_step){.run = server_run, .arg = net});
    assert_int_equal(sh_crew_start(net->server.crew), SHOAL_OK);
    assert_int_equal(sh_crew_start(net->client.crew), SHOAL_OK);
}

static void net_end(struct net *net)
{
    sh_crew_stop(net->client.crew);
    sh_crew_stop(net->server.crew);
    rig_end(&net->client);
    rig_end(&net->server);
}

/* The call is on this stack: a late touch of it is for the sanitizers to find. */
static void call_once(struct net *net, uint64_t value)
{
    struct call call = {.value = value};
    box_put(&net->outgoing, &call);
    sh_crew_wake(net->client.crew, 0);
    assert_true(sh_crew_wait(net->client.crew, 0, &call.waiter, now_ns(NULL) + PATIENCE_NS));
    assert_true(sh_waiter_done(&call.waiter));
    assert_int_equal(call.value, value + 1);
}

static void test_lending_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct net net;
        net_make(&net, i < 2 ? usual : sleeper, i % 2 == 1);
        for (uint64_t calls = 0; calls < 2000; calls++) {
            call_once(&net, calls);
        }
        await(&net.completed, 2000);
        assert_int_equal(atomic_load(&net.completed), 2000);
        assert_true(sh_crew_stats_get(net.client.crew, 0).lent_rounds > 0);
        net_end(&net);
    }
}

struct caller {
    struct net *net;
    uint64_t calls;
};

static void *caller_main(void *arg)
{
    struct caller *caller = arg;
    for (uint64_t i = 0; i < caller->calls; i++) {
        call_once(caller->net, i);
    }
    return NULL;
}

static void lending_crowd(struct sh_idle_policy idle, bool with_parker, unsigned count,
                          uint64_t calls, bool server_completes)
{
    struct net net;
    pthread_t threads[64];
    struct caller caller = {.net = &net, .calls = calls};
    net_make(&net, idle, with_parker);
    atomic_store(&net.server_completes, server_completes);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, caller_main, &caller), 0);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    await(&net.completed, count * calls);
    assert_int_equal(atomic_load(&net.completed), count * calls);
    net_end(&net);
}

static void test_lending_many(void **state)
{
    (void)state;
    lending_crowd(usual, true, 64, 100, false);
    lending_crowd(mixed, false, 8, 500, false);
    lending_crowd(mixed, true, 3, 1000, false);
    lending_crowd(sleeper, false, 2, 2000, false);
    lending_crowd(sleeper, true, 8, 500, false);
}

/* Completed by a thread that does not run the lane: the lender rests in the parker, not on its
 * waiter. */
static void test_completed_from_elsewhere(void **state)
{
    (void)state;
    lending_crowd(sleeper, true, 1, 1000, true);
    lending_crowd(sleeper, false, 1, 1000, true);
    lending_crowd(mixed, true, 4, 500, true);
}

static void test_deadline(void **state)
{
    (void)state;
    struct net net;
    for (int i = 0; i < 2; i++) {
        struct call call = {.value = 1};
        net_make(&net, i == 0 ? usual : sleeper, i == 0);
        atomic_store(&net.deaf, true);
        box_put(&net.outgoing, &call);
        sh_crew_wake(net.client.crew, 0);
        uint64_t deadline_ns = now_ns(NULL) + 10 * MS;
        assert_false(sh_crew_wait(net.client.crew, 0, &call.waiter, deadline_ns));
        assert_true(now_ns(NULL) >= deadline_ns);
        assert_false(sh_waiter_done(&call.waiter));
        assert_false(sh_crew_wait(net.client.crew, 0, &call.waiter, 0));
        atomic_store(&net.deaf, false);
        sh_crew_wake(net.server.crew, 0);
        assert_true(sh_crew_wait(net.client.crew, 0, &call.waiter, SH_NEVER));
        assert_true(sh_crew_wait(net.client.crew, 0, &call.waiter, 0));
        assert_int_equal(call.value, 2);
        await(&net.completed, 1);
        net_end(&net);
    }
}

/* What nobody waits for is done by the crew's own thread soon after a lender was there: 4 ms at
 * most, where the machine lets it. The tries go on until one takes less than ten times that, on a
 * slow machine for as long as PATIENCE_NS; they are TAKE_OVER_TRIES at least, to meet the
 * transitions.
 */
#define TAKE_OVER_TRIES 20
#define TAKE_OVER_NS (40 * MS)

static bool goes_on(uint64_t tries, uint64_t best_ns, uint64_t start_ns)
{
    assert_true(best_ns < TAKE_OVER_NS || now_ns(NULL) - start_ns < PATIENCE_NS);
    return tries < TAKE_OVER_TRIES || best_ns >= TAKE_OVER_NS;
}

/* How long the call takes whose first half was just done. */
static uint64_t done_after_ns(const struct call *call)
{
    uint64_t start_ns = now_ns(NULL);
    await_done(&call->waiter);
    return now_ns(NULL) - start_ns;
}

/* A post right after another call was waited for, whether or not `busy` knows of it. */
static void test_post_after_lender(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct net net;
        uint64_t best_ns = SH_NEVER, tries = 0, start_ns = now_ns(NULL);
        net_make(&net, i < 2 ? usual : sleeper, i >= 2);
        while (goes_on(tries, best_ns, start_ns)) {
            struct call call = {0};
            call_once(&net, tries++);
            atomic_store(&net.async, i % 2);
            box_put(&net.outgoing, &call);
            sh_crew_wake(net.client.crew, 0);
            uint64_t took_ns = done_after_ns(&call);
            best_ns = took_ns < best_ns ? took_ns : best_ns;
            atomic_store(&net.async, 0);
        }
        await(&net.completed, 2 * tries);
        net_end(&net);
    }
}

/* An answer that comes after the last lender left, as over a socket: only the parker tells of it.
 */
static void test_answer_after_lender(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct net net;
        uint64_t best_ns = SH_NEVER, tries = 0, start_ns = now_ns(NULL);
        net_make(&net, usual, true);
        while (goes_on(tries, best_ns, start_ns)) {
            struct call call = {0};
            atomic_store(&net.async, i);
            call_once(&net, tries++);
            box_put(&net.returning, &call);
            parker_wake(&net.client.fd);
            uint64_t took_ns = done_after_ns(&call);
            best_ns = took_ns < best_ns ? took_ns : best_ns;
            atomic_store(&net.async, 0);
        }
        await(&net.completed, 2 * tries);
        net_end(&net);
    }
}

/* A lender that waits for long lets the own thread sleep without a timer, and wakes it in the end.
 */
static void test_long_tenure(void **state)
{
    (void)state;
    struct net net;
    struct call call = {0};
    struct call later = {0};
    net_make(&net, usual, true);
    atomic_store(&net.deaf, true);
    box_put(&net.outgoing, &call);
    sh_crew_wake(net.client.crew, 0);
    assert_false(sh_crew_wait(net.client.crew, 0, &call.waiter, now_ns(NULL) + 50 * MS));
    atomic_store(&net.deaf, false);
    sh_crew_wake(net.server.crew, 0);
    box_put(&net.outgoing, &later);
    sh_crew_wake(net.client.crew, 0);
    await(&net.completed, 2);
    net_end(&net);
}

static void test_wait_without_lending(void **state)
{
    (void)state;
    struct net net;
    net_make(&net, mixed, false);
    atomic_store(&net.server_completes, true);
    for (uint64_t i = 0; i < 500; i++) {
        struct call call = {.value = i};
        box_put(&net.serving, &call);
        sh_crew_wake(net.server.crew, 0);
        assert_true(sh_crew_wait(net.server.crew, 0, &call.waiter, now_ns(NULL) + PATIENCE_NS));
        assert_int_equal(call.value, i + 1);
    }
    await(&net.completed, 500);
    struct sh_waiter never = {0};
    assert_false(sh_crew_wait(net.server.crew, 0, &never, now_ns(NULL) + MS));
    assert_int_equal(sh_crew_stats_get(net.server.crew, 0).lent_rounds, 0);
    net_end(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lending_alone),
        cmocka_unit_test(test_lending_many),
        cmocka_unit_test(test_completed_from_elsewhere),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_post_after_lender),
        cmocka_unit_test(test_answer_after_lender),
        cmocka_unit_test(test_long_tenure),
        cmocka_unit_test(test_wait_without_lending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
