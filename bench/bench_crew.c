/* `shoal bench crew`: what it takes to get a thread going.
 *
 * Two threads hand a ball to and fro; a figure is the time from just before one wakes the other
 * until the other runs. Each side of the crews is a crew of one thread with one step.
 *
 * wakeup  a crew thread that sleeps at once when it has nothing to do; beside it, with --vs futex,
 *         two threads that do the same with a bare futex. In the placement spin nobody sleeps: both
 *         sides poll for ever, and the figure is that of a cache line on its way.
 * parked  a crew thread in timed parks of 20 us, which nobody ends; the baseline stays the same. A
 *         side keeps the ball until it has parked itself, so that the other surely has; compare the
 *         latencies, not the rates. There is no such case where nobody parks (spin).
 *
 * Prediction: a wake-up is the kernel's (2 us on bare metal, 5 to 70 us on virtual machines), and
 * ours adds a round of steps, two clock readings and three read-modify-writes, 0.2 us. A park adds
 * what is left of it, at most 20 us, and the timer's interrupt, which costs what a wake-up costs.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/hash.h"
#include "bench/bench.h"
#include "bench/benches.h"

#define PARK_NS 20000
#define SECONDS_DEFAULT 1.0
/* Tells a side of the baseline that the game is over. */
#define END_BALL UINT32_MAX

const char *const sh_bench_crew_cases[] = {"wakeup", "parked", NULL};
const char *const sh_bench_crew_baselines[] = {"futex", NULL};

/* What both systems play: the ball's number rises with each hand-over. A side owns its fields but
 * for the ball, which the other side throws. */
struct side {
    _Alignas(64) _Atomic uint32_t ball; /* futex of the baseline */
    uint64_t thrown_ns;                 /* published by the ball */
    struct side *other;
    struct sh_crew *crew; /* ours only, and so the next three */
    bool parks;           /* keep the ball until this side has parked */
    bool holds;           /* the ball was caught and is kept */
    uint64_t parks_before;
    uint32_t caught;
    struct sh_hist latency_ns;
    struct game *game;
    enum sh_placement placement; /* baseline only */
    unsigned index;              /* baseline only */
};

struct game {
    struct side sides[2];
    uint64_t begin_ns;
    uint64_t deadline_ns;
    uint32_t balls;  /* hand-overs at most, less than END_BALL */
    uint64_t end_ns; /* by the side that ended it, published by `over` */
    sem_t over;
};

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return sh_bench_now_ns();
}

static void game_prepare(struct game *game, const struct sh_bench_flags *flags)
{
    for (unsigned i = 0; i < 2; i++) {
        game->sides[i].other = &game->sides[1 - i];
        game->sides[i].game = game;
        sh_hist_reset(&game->sides[i].latency_ns);
    }
    uint64_t count = flags->count;
    SH_ASSERT(count < END_BALL);
    double seconds = flags->seconds > 0 ? flags->seconds : SECONDS_DEFAULT;
    game->balls = count > 0 ? (uint32_t)count : END_BALL - 1;
    game->begin_ns = sh_bench_now_ns();
    /* A count alone is not cut short by the default length. */
    game->deadline_ns =
        count > 0 && flags->seconds <= 0 ? UINT64_MAX : game->begin_ns + (uint64_t)(seconds * 1e9);
}

static void game_result(const struct game *game, const struct sh_bench_flags *flags,
                        struct sh_bench_result *result)
{
    sh_hist_merge(&result->latency_ns, &game->sides[0].latency_ns);
    sh_hist_merge(&result->latency_ns, &game->sides[1].latency_ns);
    result->ops = result->latency_ns.count;
    result->seconds = (double)(game->end_ns - game->begin_ns) / 1e9;
    SH_ASSERT(result->ops > 0);
    /* Every ball was caught, in order, or an assertion had failed; nothing else is computed. */
    result->digest = sh_mix64(flags->seed ^ game->balls);
}

/* Records the catch; true when this was the last one. */
static bool ball_catch(struct side *side, uint32_t ball)
{
    uint64_t now_ns = sh_bench_now_ns();
    struct game *game = side->game;
    SH_ASSERT(ball > side->caught);
    side->caught = ball;
    sh_hist_add(&side->latency_ns, now_ns - side->thrown_ns);
    if (ball < game->balls && now_ns < game->deadline_ns) {
        return false;
    }
    game->end_ns = now_ns;
    return true;
}

static void ball_throw(struct side *to, uint32_t ball)
{
    to->thrown_ns = sh_bench_now_ns();
    /* release: thrown_ns; pairs with acquire where the ball is caught. */
    atomic_store_explicit(&to->ball, ball, memory_order_release);
}

/* Ours. */

static unsigned side_step(void *arg)
{
    struct side *side = arg;
    uint32_t ball = atomic_load_explicit(&side->ball, memory_order_acquire);
    uint64_t parks = side->parks ? sh_crew_stats_get(side->crew, 0).parks : 0;
    if (side->holds ? parks == side->parks_before : ball == side->caught) {
        return 0;
    }
    if (!side->holds && ball_catch(side, ball)) {
        sem_post(&side->game->over);
        return 1;
    }
    side->holds = side->parks && !side->holds;
    side->parks_before = parks;
    if (!side->holds) {
        ball_throw(side->other, ball + 1);
        sh_crew_wake(side->other->crew, 0);
    }
    return 1;
}

static enum shoal_err side_start(struct side *side, struct sh_idle_policy idle,
                                 enum sh_placement placement, unsigned index)
{
    struct sh_crew_config config = {
        .name = "bench", .threads = 1, .spin_forced = true, .idle = idle, .now_ns = clock_now};
    enum shoal_err err = sh_crew_create(&config, &side->crew);
    if (err) {
        return err;
    }
    sh_crew_step_add(side->crew, 0,
                     (struct sh_step){.name = "ball", .run = side_step, .arg = side});
    sh_bench_pin(placement, index);
    err = sh_crew_start(side->crew);
    sh_bench_pin(SH_PLACE_FREE, 0);
    return err;
}

static void side_stop(struct side *side)
{
    if (side->crew != NULL) {
        sh_crew_stop(side->crew);
    }
}

/* NULL: out of memory. */
static struct game *game_make(void)
{
    struct game *game = aligned_alloc(_Alignof(struct game), sizeof *game);
    if (game != NULL) {
        *game = (struct game){.begin_ns = 0};
        sem_init(&game->over, 0, 0);
    }
    return game;
}

static void game_free(struct game *game)
{
    sem_destroy(&game->over);
    free(game);
}

static void over_await(struct game *game)
{
    while (sem_wait(&game->over) != 0) {
        SH_ASSERT(errno == EINTR);
    }
}

static enum shoal_err crew_run(void *arg, const struct sh_bench_flags *flags,
                               enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct sh_idle_policy idle = *(const struct sh_idle_policy *)arg;
    struct game *game = game_make();
    if (game == NULL) {
        return SHOAL_ENOMEM;
    }
    if (sh_bench_spins(placement)) {
        idle.spin_ns = SH_NEVER;
    }
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < 2 && !err; i++) {
        game->sides[i].parks = idle.park_ns > 0;
        err = side_start(&game->sides[i], idle, placement, i);
    }
    if (!err) {
        uint64_t cpu_ns = sh_bench_cpu_ns();
        game_prepare(game, flags);
        ball_throw(&game->sides[0], 1);
        sh_crew_wake(game->sides[0].crew, 0);
        over_await(game);
        result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    }
    /* Each side's step wakes the other's crew: both stop before either is freed. */
    side_stop(&game->sides[0]);
    side_stop(&game->sides[1]);
    if (!err) {
        game_result(game, flags, result_out);
    }
    sh_crew_destroy(game->sides[0].crew);
    sh_crew_destroy(game->sides[1].crew);
    game_free(game);
    return err;
}

/* The baseline. */

static void futex_throw(struct side *to, uint32_t ball)
{
    ball_throw(to, ball);
    if (!sh_bench_spins(to->placement)) {
        (void)syscall(SYS_futex, &to->ball, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

static uint32_t futex_await(struct side *side)
{
    for (;;) {
        uint32_t ball = atomic_load_explicit(&side->ball, memory_order_acquire);
        if (ball != side->caught) {
            return ball;
        }
        if (!sh_bench_spins(side->placement)) {
            (void)syscall(SYS_futex, &side->ball, FUTEX_WAIT_PRIVATE, ball, NULL, NULL, 0);
        }
    }
}

static void *futex_main(void *arg)
{
    struct side *side = arg;
    sh_bench_pin(side->placement, side->index);
    for (;;) {
        uint32_t ball = futex_await(side);
        if (ball == END_BALL) {
            return NULL;
        }
        if (ball_catch(side, ball)) {
            futex_throw(side->other, END_BALL);
            sem_post(&side->game->over);
            return NULL;
        }
        futex_throw(side->other, ball + 1);
    }
}

static enum shoal_err futex_run(void *arg, const struct sh_bench_flags *flags,
                                enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)arg;
    pthread_t threads[2];
    struct game *game = game_make();
    if (game == NULL) {
        return SHOAL_ENOMEM;
    }
    game_prepare(game, flags);
    unsigned made = 0;
    for (; made < 2; made++) {
        struct side *side = &game->sides[made];
        side->placement = placement;
        side->index = made;
        if (pthread_create(&threads[made], NULL, futex_main, side) != 0) {
            break;
        }
    }
    uint64_t cpu_ns = sh_bench_cpu_ns();
    if (made == 2) {
        game->begin_ns = sh_bench_now_ns();
        futex_throw(&game->sides[0], 1);
        over_await(game);
        result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    } else if (made == 1) {
        futex_throw(&game->sides[0], END_BALL);
    }
    for (unsigned i = 0; i < made; i++) {
        pthread_join(threads[i], NULL);
    }
    if (made == 2) {
        game_result(game, flags, result_out);
    }
    game_free(game);
    return made == 2 ? SHOAL_OK : SHOAL_ENOMEM;
}

static enum shoal_err case_measure(struct sh_bench *bench, const char *name,
                                   struct sh_idle_policy *idle)
{
    enum sh_placement placements[SH_PLACEMENTS];
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    const char *vs = flags->vs;
    unsigned count = sh_bench_placements(bench, placements);
    char extra[64] = "threads=2";
    enum shoal_err err = SHOAL_OK;
    if (!sh_bench_case_wanted(bench, name)) {
        return SHOAL_OK;
    }
    if (flags->count) {
        snprintf(extra, sizeof extra, "threads=2 count=%llu", (unsigned long long)flags->count);
    }
    for (unsigned i = 0; i < count && !err; i++) {
        if (idle->park_ns > 0 && sh_bench_spins(placements[i])) {
            continue;
        }
        err = sh_bench_measure(bench, name, placements[i], extra, crew_run, idle, vs,
                               vs != NULL ? futex_run : NULL, NULL);
    }
    return err;
}

enum shoal_err sh_bench_crew(struct sh_bench *bench)
{
    struct sh_idle_policy sleeps = {.spin_ns = 0, .park_ns = 0, .silence_ns = 0};
    struct sh_idle_policy parks = {.spin_ns = 0, .park_ns = PARK_NS, .silence_ns = SH_NEVER};
    if (sh_bench_flags_get(bench)->count >= END_BALL) {
        return sh_bench_refuse(bench, "it takes --count below 2^32 - 1");
    }
    enum shoal_err err = case_measure(bench, "wakeup", &sleeps);
    return err ? err : case_measure(bench, "parked", &parks);
}
