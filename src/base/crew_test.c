#include "base/crew.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
/* Generous: reached only by a test that fails. */
#define PATIENCE_NS (60000 * MS)

static uint64_t now_ns(void *arg)
{
    struct timespec now;
    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static const struct sh_idle_policy sleeper = {.spin_ns = 0, .park_ns = 0, .silence_ns = 0};
/* Through every stage within microseconds, so that stress meets all the transitions. */
static const struct sh_idle_policy mixed = {.spin_ns = 2000, .park_ns = 5000, .silence_ns = 20000};
static const struct sh_idle_policy usual = {
    .spin_ns = 20000, .park_ns = 20000, .silence_ns = 1000 * MS};

/* A parker on an eventfd, as a transport would have one on its epoll. */

static void eventfd_poll(int fd, uint64_t timeout_ns)
{
    struct pollfd waited = {.fd = fd, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000U),
                             .tv_nsec = (long)(timeout_ns % 1000000000U)};
    (void)ppoll(&waited, 1, timeout_ns == SH_NEVER ? NULL : &limit, NULL);
}

static void parker_wait(void *arg, uint64_t timeout_ns)
{
    uint64_t count;
    int fd = *(int *)arg;
    eventfd_poll(fd, timeout_ns);
    (void)!read(fd, &count, sizeof count);
}

static void parker_watch(void *arg, uint64_t timeout_ns)
{
    eventfd_poll(*(int *)arg, timeout_ns);
}

static void parker_wake(void *arg)
{
    uint64_t one = 1;
    (void)!write(*(int *)arg, &one, sizeof one);
}

/* A crew of one thread with one step. */

struct rig {
    struct sh_crew *crew;
    int fd; /* of the parker; -1: none */
};

static void rig_make(struct rig *rig, struct sh_crew_config config, bool with_parker,
                     struct sh_step step)
{
    config.name = config.name != NULL ? config.name : "test";
    config.threads = 1;
    config.now_ns = now_ns;
    rig->fd = -1;
    assert_int_equal(sh_crew_create(&config, &rig->crew), SHOAL_OK);
    sh_crew_step_add(rig->crew, 0, step);
    if (with_parker) {
        rig->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        assert_true(rig->fd >= 0);
        sh_crew_parker_set(
            rig->crew, 0,
            (struct sh_parker){
                .wait = parker_wait, .watch = parker_watch, .wake = parker_wake, .arg = &rig->fd});
    }
}

static void rig_end(struct rig *rig)
{
    sh_crew_destroy(rig->crew);
    if (rig->fd >= 0) {
        close(rig->fd);
    }
}

/* Polls a counter until it has reached a value; fails after PATIENCE_NS. */
static void await(const _Atomic uint64_t *value, uint64_t at_least)
{
    uint64_t start_ns = now_ns(NULL);
    while (atomic_load(value) < at_least) {
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
        sched_yield();
    }
}

static void await_sleeps(struct sh_crew *crew, uint64_t at_least)
{
    uint64_t start_ns = now_ns(NULL);
    while (sh_crew_stats_get(crew, 0).sleeps < at_least) {
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
        sched_yield();
    }
}

/* The same for a waiter that nobody waits for. */
static void await_done(const struct sh_waiter *waiter)
{
    uint64_t start_ns = now_ns(NULL);
    while (!sh_waiter_done(waiter)) {
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
        sched_yield();
    }
}

/* Steps run in order on their threads. */

struct traced {
    _Atomic uint64_t runs;
    char trace[8];
    unsigned traced;
};

struct trace_step {
    struct traced *traced;
    char letter;
};

static unsigned trace_run(void *arg)
{
    struct trace_step *step = arg;
    if (step->traced->traced < sizeof step->traced->trace) {
        step->traced->trace[step->traced->traced++] = step->letter;
    }
    atomic_fetch_add(&step->traced->runs, 1);
    return 0;
}

static void test_steps_in_order(void **state)
{
    (void)state;
    struct traced traced[2] = {0};
    struct trace_step steps[4] = {
        {&traced[0], 'a'}, {&traced[0], 'b'}, {&traced[1], 'x'}, {&traced[1], 'y'}};
    struct sh_crew_config config = {.name = "a-name-longer-than-the-kernel-allows",
                                    .threads = 2,
                                    .idle = usual,
                                    .now_ns = now_ns};
    struct sh_crew *crew;
    assert_int_equal(sh_crew_create(&config, &crew), SHOAL_OK);
    for (unsigned i = 0; i < 4; i++) {
        sh_crew_step_add(crew, i / 2, (struct sh_step){.run = trace_run, .arg = &steps[i]});
    }
    assert_int_equal(sh_crew_start(crew), SHOAL_OK);
    /* Where threads outnumber cores each round has to be asked for. */
    for (uint64_t round = 1; round <= 4; round++) {
        for (unsigned i = 0; i < 2; i++) {
            sh_crew_wake(crew, i);
            await(&traced[i].runs, 2 * round);
        }
    }
    sh_crew_stop(crew);
    assert_memory_equal(traced[0].trace, "abababab", 8);
    assert_memory_equal(traced[1].trace, "xyxyxyxy", 8);
    uint64_t rounds = sh_crew_stats_get(crew, 0).rounds;
    assert_int_equal(rounds * 2, atomic_load(&traced[0].runs));
    sh_crew_stop(crew); /* twice is allowed */
    sh_crew_destroy(crew);
    sh_crew_destroy(NULL);
}

/* No lost wake-up: two crews hand a ball to and fro, each publishing with no more than release. */

struct player {
    _Atomic uint64_t inbox;
    struct player *other;
    struct sh_crew *other_crew;
    uint64_t seen;
    uint64_t rallies;
    _Atomic uint64_t done;
};

static unsigned player_run(void *arg)
{
    struct player *player = arg;
    uint64_t ball = atomic_load_explicit(&player->inbox, memory_order_acquire);
    if (ball == player->seen) {
        return 0;
    }
    player->seen = ball;
    if (ball >= player->rallies) {
        atomic_store(&player->done, 1);
    }
    atomic_store_explicit(&player->other->inbox, ball + 1, memory_order_release);
    sh_crew_wake(player->other_crew, 0);
    return 1;
}

static void ping_pong(struct sh_idle_policy idle, bool with_parker, uint64_t rallies)
{
    struct rig rigs[2];
    struct player players[2] = {{.rallies = rallies}, {.rallies = rallies}};
    for (int i = 0; i < 2; i++) {
        rig_make(&rigs[i], (struct sh_crew_config){.idle = idle}, with_parker,
                 (struct sh_step){.run = player_run, .arg = &players[i]});
    }
    for (int i = 0; i < 2; i++) {
        players[i].other = &players[1 - i];
        players[i].other_crew = rigs[1 - i].crew;
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sh_crew_start(rigs[i].crew), SHOAL_OK);
    }
    atomic_store_explicit(&players[0].inbox, 1, memory_order_release);
    sh_crew_wake(rigs[0].crew, 0);
    await(&players[0].done, 1);
    await(&players[1].done, 1);
    /* Each step of one crew wakes the other: stop both before freeing either. */
    sh_crew_stop(rigs[0].crew);
    sh_crew_stop(rigs[1].crew);
    rig_end(&rigs[0]);
    rig_end(&rigs[1]);
}

static void test_ping_pong_futex(void **state)
{
    (void)state;
    ping_pong(sleeper, false, 20000);
    ping_pong(mixed, false, 20000);
    ping_pong(usual, false, 5000);
}

static void test_ping_pong_parker(void **state)
{
    (void)state;
    ping_pong(sleeper, true, 20000);
    ping_pong(mixed, true, 20000);
    ping_pong(usual, true, 5000);
}

/* Many publishers; each waits until its item was taken before it publishes the next, so that one
 * lost wake-up stops it for good. */

#define PUBLISHERS 4

struct published {
    _Atomic uint64_t posted[PUBLISHERS];
    _Atomic uint64_t taken[PUBLISHERS];
};

struct publisher {
    struct published *published;
    struct sh_crew *crew;
    unsigned index;
    uint64_t count;
};

static unsigned consume(void *arg)
{
    struct published *published = arg;
    unsigned work = 0;
    for (unsigned i = 0; i < PUBLISHERS; i++) {
        uint64_t posted = atomic_load_explicit(&published->posted[i], memory_order_acquire);
        uint64_t taken = atomic_load_explicit(&published->taken[i], memory_order_relaxed);
        if (taken != posted) {
            atomic_store_explicit(&published->taken[i], posted, memory_order_release);
            work++;
        }
    }
    return work;
}

static void *publish(void *arg)
{
    struct publisher *publisher = arg;
    struct published *published = publisher->published;
    for (uint64_t i = 1; i <= publisher->count; i++) {
        atomic_store_explicit(&published->posted[publisher->index], i, memory_order_release);
        sh_crew_wake(publisher->crew, 0);
        await(&published->taken[publisher->index], i);
    }
    return NULL;
}

static void publishers(struct sh_crew_config config, bool with_parker, uint64_t count)
{
    struct rig rig;
    struct published published = {0};
    struct publisher args[PUBLISHERS];
    pthread_t threads[PUBLISHERS];
    rig_make(&rig, config, with_parker, (struct sh_step){.run = consume, .arg = &published});
    assert_int_equal(sh_crew_start(rig.crew), SHOAL_OK);
    for (unsigned i = 0; i < PUBLISHERS; i++) {
        args[i] = (struct publisher){&published, rig.crew, i, count};
        assert_int_equal(pthread_create(&threads[i], NULL, publish, &args[i]), 0);
    }
    for (unsigned i = 0; i < PUBLISHERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&published.taken[i]), count);
    }
    rig_end(&rig);
}

static void test_publishers(void **state)
{
    (void)state;
    publishers((struct sh_crew_config){.idle = sleeper}, false, 3000);
    publishers((struct sh_crew_config){.idle = mixed}, false, 3000);
    publishers((struct sh_crew_config){.idle = sleeper}, true, 3000);
    publishers((struct sh_crew_config){.idle = mixed}, true, 3000);
    publishers((struct sh_crew_config){.idle = sleeper, .lends = true}, false, 2000);
    publishers((struct sh_crew_config){.idle = mixed, .lends = true}, true, 2000);
}

/* Idle threads cost no CPU, and a timer's work does not keep them awake. */

struct ticker {
    _Atomic uint64_t runs;
    _Atomic uint64_t ticks;
    uint64_t next_ns; /* SH_NEVER: no ticks */
    uint64_t period_ns;
    clockid_t cpu_clock;
};

static unsigned ticker_run(void *arg)
{
    struct ticker *ticker = arg;
    if (atomic_load_explicit(&ticker->runs, memory_order_relaxed) == 0) {
        pthread_getcpuclockid(pthread_self(), &ticker->cpu_clock);
    }
    atomic_fetch_add(&ticker->runs, 1);
    if (now_ns(NULL) < ticker->next_ns) {
        return 0;
    }
    ticker->next_ns += ticker->period_ns;
    atomic_fetch_add(&ticker->ticks, 1);
    return 1;
}

static uint64_t ticker_due(void *arg)
{
    return ((struct ticker *)arg)->next_ns;
}

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec used;
    assert_int_equal(clock_gettime(clock, &used), 0);
    return (uint64_t)used.tv_sec * 1000000000U + (uint64_t)used.tv_nsec;
}

/* CPU time of the crew's thread while 300 ms of wall time pass, from when it first slept. */
static uint64_t idle_cpu_ns(struct rig *rig, struct ticker *ticker)
{
    assert_int_equal(sh_crew_start(rig->crew), SHOAL_OK);
    await(&ticker->runs, 1);
    await_sleeps(rig->crew, 1);
    uint64_t used_ns = cpu_ns(ticker->cpu_clock);
    uint64_t start_ns = now_ns(NULL);
    while (now_ns(NULL) - start_ns < 300 * MS) {
        poll(NULL, 0, 10); /* the measured interval itself, not a wait for something */
    }
    return cpu_ns(ticker->cpu_clock) - used_ns;
}

static void test_idle_costs_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig rig;
        struct ticker ticker = {.next_ns = SH_NEVER};
        struct sh_crew_config config = {.idle = usual, .lends = i >= 2};
        config.idle.silence_ns = 20 * MS;
        rig_make(&rig, config, i % 2 == 1, (struct sh_step){.run = ticker_run, .arg = &ticker});
        uint64_t used_ns = idle_cpu_ns(&rig, &ticker);
        assert_true(used_ns < 15 * MS); /* 5 %, where one that spins or parks uses 15 to 100 */
        uint64_t runs = atomic_load(&ticker.runs);
        sh_crew_wake(rig.crew, 0);
        await(&ticker.runs, runs + 1);
        assert_true(sh_crew_stats_get(rig.crew, 0).wakes >= 1);
        rig_end(&rig);
    }
}

static void test_timer_runs_and_lets_sleep(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        struct ticker ticker = {.next_ns = now_ns(NULL), .period_ns = 20 * MS};
        struct sh_crew_config config = {.idle = usual, .lends = i == 1};
        rig_make(&rig, config, i == 1,
                 (struct sh_step){.run = ticker_run, .due_ns = ticker_due, .arg = &ticker});
        uint64_t used_ns = idle_cpu_ns(&rig, &ticker);
        assert_true(used_ns < 60 * MS);
        await(&ticker.ticks, 10); /* nobody wakes it */
        rig_end(&rig);
    }
}

static void test_parks_then_sleeps(void **state)
{
    (void)state;
    struct rig rig;
    struct ticker ticker = {.next_ns = SH_NEVER};
    struct sh_crew_config config = {.idle = usual};
    rig_make(&rig, config, false, (struct sh_step){.run = ticker_run, .arg = &ticker});
    assert_int_equal(sh_crew_start(rig.crew), SHOAL_OK);
    await_sleeps(rig.crew, 1);
    struct sh_crew_stats stats = sh_crew_stats_get(rig.crew, 0);
    /* On a crowded machine it sleeps at once. */
    assert_true(stats.parks >= 1 || stats.crowded);
    assert_int_equal(stats.wakes, 0);
    assert_int_equal(stats.lent_rounds, 0);
    rig_end(&rig);
}

/* Threads beyond the cores do not spin, not even where the policy says for ever. */
static void test_crowded_does_not_spin(void **state)
{
    (void)state;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    unsigned threads = (unsigned)CPU_COUNT(&set) + 2;
    if (threads > SH_CREW_THREADS_MAX) {
        skip();
    }
    struct sh_crew_config config = {.name = "crowd", .threads = threads, .now_ns = now_ns};
    config.idle = (struct sh_idle_policy){SH_NEVER, 20000, 1 * MS};
    struct sh_crew *crew;
    struct ticker *tickers = calloc(threads, sizeof *tickers);
    assert_non_null(tickers);
    assert_int_equal(sh_crew_create(&config, &crew), SHOAL_OK);
    for (unsigned i = 0; i < threads; i++) {
        tickers[i].next_ns = SH_NEVER;
        sh_crew_step_add(crew, i, (struct sh_step){.run = ticker_run, .arg = &tickers[i]});
    }
    assert_int_equal(sh_crew_start(crew), SHOAL_OK);
    uint64_t start_ns = now_ns(NULL);
    for (uint64_t sleeps = 0; sleeps < 2;) {
        sleeps = 0;
        for (unsigned i = 0; i < threads; i++) {
            sleeps += sh_crew_stats_get(crew, i).sleeps > 0;
        }
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
    }
    bool crowded = false;
    for (unsigned i = 0; i < threads; i++) {
        crowded = crowded || sh_crew_stats_get(crew, i).crowded;
    }
    assert_true(crowded);
    sh_crew_destroy(crew);
    free(tickers);
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

/* The crew's own thread serves calls that nobody waits for, right after others were waited for,
 * whether or not `busy` knows of them. */
static void test_own_thread_takes_over(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct net net;
        struct call calls[20] = {0};
        net_make(&net, i < 2 ? usual : sleeper, i >= 2);
        for (uint64_t n = 0; n < 20; n++) {
            call_once(&net, n);
            atomic_store(&net.async, i % 2);
            box_put(&net.outgoing, &calls[n]);
            sh_crew_wake(net.client.crew, 0);
            await_done(&calls[n].waiter);
            atomic_store(&net.async, 0);
        }
        await(&net.completed, 40);
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
        cmocka_unit_test(test_steps_in_order),
        cmocka_unit_test(test_ping_pong_futex),
        cmocka_unit_test(test_ping_pong_parker),
        cmocka_unit_test(test_publishers),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_timer_runs_and_lets_sleep),
        cmocka_unit_test(test_parks_then_sleeps),
        cmocka_unit_test(test_crowded_does_not_spin),
        cmocka_unit_test(test_lending_alone),
        cmocka_unit_test(test_lending_many),
        cmocka_unit_test(test_completed_from_elsewhere),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_own_thread_takes_over),
        cmocka_unit_test(test_long_tenure),
        cmocka_unit_test(test_wait_without_lending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
