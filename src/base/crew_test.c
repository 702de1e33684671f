/* Crews: rounds, wake-ups, rest. Lending is in crew_lend_test.c. */
#include <pthread.h>
#include <stdlib.h>

#include "base/crew_test.h"

static void await_sleeps(struct sh_crew *crew, uint64_t at_least)
{
    uint64_t start_ns = now_ns(NULL);
    while (sh_crew_stats_get(crew, 0).sleeps < at_least) {
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
    await(&ticker->runs, 1);
    await_sleeps(rig->crew, 1);
    uint64_t used_ns = cpu_ns(ticker->cpu_clock);
    uint64_t start_ns = now_ns(NULL);
    while (now_ns(NULL) - start_ns < 300 * MS) {
        poll(NULL, 0, 10); /* the measured interval itself, not a wait for something */
    }
    return cpu_ns(ticker->cpu_clock) - used_ns;
}

/* Whether a crew uses less than so much of a core while it is idle. On a machine that is slow or
 * has others to serve one measurement may say anything, so they go on until one does. */
static void assert_idle_below(struct rig *rig, struct ticker *ticker, uint64_t limit_ns)
{
    uint64_t start_ns = now_ns(NULL);
    while (idle_cpu_ns(rig, ticker) >= limit_ns)
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
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
        assert_int_equal(sh_crew_start(rig.crew), SHOAL_OK);
        /* 5 %, where one that spins or parks uses 15 to 100 */
        assert_idle_below(&rig, &ticker, 15 * MS);
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
        assert_int_equal(sh_crew_start(rig.crew), SHOAL_OK);
        assert_idle_below(&rig, &ticker, 60 * MS);
        await(&ticker.ticks, 10); /* nobody wakes it */
        rig_end(&rig);
    }
}

static struct sh_crew_stats stats_once_asleep(void)
{
    struct rig rig;
    struct ticker ticker = {.next_ns = SH_NEVER};
    struct sh_crew_config config = {.idle = usual};
    rig_make(&rig, config, false, (struct sh_step){.run = ticker_run, .arg = &ticker});
    assert_int_equal(sh_crew_start(rig.crew), SHOAL_OK);
    await_sleeps(rig.crew, 1);
    struct sh_crew_stats stats = sh_crew_stats_get(rig.crew, 0);
    rig_end(&rig);
    return stats;
}

/* On a crowded machine a thread sleeps at once, and one that was off its core for the whole silence
 * has nothing left to park for: so it may take several tries to see it park. */
static void test_parks_then_sleeps(void **state)
{
    (void)state;
    struct sh_crew_stats stats = {0};
    uint64_t start_ns = now_ns(NULL);
    while (stats.parks == 0 && !stats.crowded) {
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
        stats = stats_once_asleep();
        assert_int_equal(stats.wakes, 0);
        assert_int_equal(stats.lent_rounds, 0);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_in_order),     cmocka_unit_test(test_ping_pong_futex),
        cmocka_unit_test(test_ping_pong_parker),   cmocka_unit_test(test_publishers),
        cmocka_unit_test(test_idle_costs_nothing), cmocka_unit_test(test_timer_runs_and_lets_sleep),
        cmocka_unit_test(test_parks_then_sleeps),  cmocka_unit_test(test_crowded_does_not_spin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
