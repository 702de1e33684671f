#include "base/crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew_int.h"
#include "base/log.h"
#include "base/thread.h"

/* Making, starting and stopping crews, and what their own threads do. How a thread rests is in
 * crew_lane.c, what application threads do in crew_wait.c. */

enum shoal_err sh_crew_create(const struct sh_crew_config *config, struct sh_crew **crew_out)
{
    SH_ASSERT(config->threads >= 1 && config->threads <= SH_CREW_THREADS_MAX);
    SH_ASSERT(config->name != NULL);
    SH_ASSERT(config->now_ns != NULL);
    sh_ticks_init();
    size_t bytes = sizeof(struct sh_crew) + config->threads * sizeof(struct sh_crew_lane);
    struct sh_crew *crew = aligned_alloc(alignof(struct sh_crew), bytes);
    if (crew == NULL) {
        SH_ERROR("crew", "no memory for a crew", SH_U64("bytes", bytes));
        return SHOAL_ENOMEM;
    }
    *crew = (struct sh_crew){.config = *config};
    for (unsigned i = 0; i < config->threads; i++) {
        struct sh_crew_lane *lane = &crew->lanes[i];
        *lane = (struct sh_crew_lane){.crew = crew, .index = i, .due_ns = SH_NEVER};
        atomic_init(&lane->word, config->lends ? 0 : SH_LANE_BATON | SH_LANE_OWN_HOLDS);
        sh_lock_init(&lane->queue_lock, SH_LOCK_CREW);
    }
    *crew_out = crew;
    return SHOAL_OK;
}

void sh_crew_destroy(struct sh_crew *crew)
{
    if (crew == NULL) {
        return;
    }
    sh_crew_stop(crew);
    for (unsigned i = 0; i < crew->config.threads; i++) {
        /* Before start, and after the stop, application threads may have lent themselves. */
        sh_lane_awake_set(&crew->lanes[i], false);
        sh_lock_destroy(&crew->lanes[i].queue_lock);
    }
    free(crew);
}

static struct sh_crew_lane *lane_of(struct sh_crew *crew, unsigned thread)
{
    SH_ASSERT(thread < crew->config.threads);
    return &crew->lanes[thread];
}

void sh_crew_step_add(struct sh_crew *crew, unsigned thread, struct sh_step step)
{
    struct sh_crew_lane *lane = lane_of(crew, thread);
    SH_ASSERT(!crew->started);
    SH_ASSERT(lane->step_count < SH_CREW_STEPS_MAX);
    SH_ASSERT(step.run != NULL);
    if (crew->config.world != NULL) {
        crew->config.world->step_add(crew->config.world->arg, step);
        return;
    }
    lane->steps[lane->step_count++] = step;
}

void sh_crew_parker_set(struct sh_crew *crew, unsigned thread, struct sh_parker parker)
{
    struct sh_crew_lane *lane = lane_of(crew, thread);
    SH_ASSERT(!crew->started);
    SH_ASSERT(parker.wait != NULL && parker.wake != NULL);
    SH_ASSERT(parker.watch != NULL || !crew->config.lends);
    lane->parker = parker;
    lane->has_parker = true;
}

/* The own thread's turn with the baton: until it rests without it, a lender wants it, or the end.
 * A crew that does not lend keeps the baton and has one turn for life. */
static void turn(struct sh_crew_lane *lane)
{
    bool lends = lane->crew->config.lends;
    sh_lane_awake_set(lane, true);
    if (lane->has_parker) {
        /* What watch returned for is still to be gathered, and a wake to be consumed. */
        lane->parker.wait(lane->parker.arg, 0);
    }
    for (;;) {
        bool worked = sh_lane_round(lane);
        uint32_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
        if (word & SH_LANE_STOP) {
            break;
        }
        if (word >= SH_LANE_WAITER) {
            sh_lane_leave(lane);
            sh_lane_stand_by(lane);
            return;
        }
        if (worked) {
            continue;
        }
        uint64_t now_ns = sh_lane_now(lane);
        /* Where threads lend themselves, those that wait spin; the own thread would only keep the
         * baton, and perhaps the core, from the next of them. */
        enum sh_lane_rest rest = sh_lane_idle(lane, now_ns, !lane->crew->config.lends);
        if (rest == SH_REST_NONE) {
            continue;
        }
        uint64_t rest_ns = sh_lane_rest_ns(lane, rest, now_ns, SH_NEVER);
        if (!lends) {
            sh_lane_rest_holding(lane, rest, rest_ns);
        } else if (sh_lane_rest_apart(lane, rest, rest_ns)) {
            return;
        }
    }
    if (lends) {
        sh_lane_leave(lane);
    }
}

static void *thread_main(void *arg)
{
    struct sh_crew_lane *lane = arg;
    bool lends = lane->crew->config.lends;
    while (!(atomic_load_explicit(&lane->word, memory_order_relaxed) & SH_LANE_STOP)) {
        if (!lends || sh_lane_take(lane, SH_LANE_OWN_HOLDS)) {
            turn(lane);
        } else {
            sh_lane_stand_by(lane);
        }
    }
    return NULL;
}

static bool thread_start(struct sh_crew_lane *lane)
{
    char name[16];
    snprintf(name, sizeof name, "%.11s-%u", lane->crew->config.name, lane->index % 1000);
    int failed = sh_thread_start(&lane->thread, thread_main, lane, name);
    if (failed) {
        SH_ERROR("crew", "thread can't be made", SH_TEXT("crew", lane->crew->config.name),
                 SH_U64("thread", lane->index), SH_I64("errno", failed));
        return false;
    }
    return true;
}

/* Ends the first `count` threads. */
static void threads_stop(struct sh_crew *crew, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct sh_crew_lane *lane = &crew->lanes[i];
        /* Like NOTED, STOP is in the word: a thread that sleeps is seen, one about to can't. */
        atomic_fetch_or_explicit(&lane->word, SH_LANE_STOP, memory_order_acq_rel);
        sh_lane_kick_own(lane);
        sh_lane_kick_holder(lane);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(crew->lanes[i].thread, NULL);
        sh_lane_awake_set(&crew->lanes[i], false);
        atomic_fetch_and_explicit(&crew->lanes[i].word, ~SH_LANE_STOP, memory_order_relaxed);
    }
}

enum shoal_err sh_crew_start(struct sh_crew *crew)
{
    SH_ASSERT(!crew->started);
    for (unsigned i = 0; i < crew->config.threads && crew->config.world == NULL; i++) {
        if (!thread_start(&crew->lanes[i])) {
            threads_stop(crew, i);
            return SHOAL_ENOMEM;
        }
    }
    crew->started = crew->config.world == NULL;
    return SHOAL_OK;
}

void sh_crew_stop(struct sh_crew *crew)
{
    SH_ASSERT(sh_lane_running == NULL);
    const struct sh_crew_world *world = crew->config.world;
    if (world != NULL && world->stop != NULL) {
        world->stop(world->arg);
    }
    if (crew->started) {
        threads_stop(crew, crew->config.threads);
        crew->started = false;
    }
}

void sh_crew_wake(struct sh_crew *crew, unsigned thread)
{
    if (crew->config.world == NULL) {
        sh_lane_wake(lane_of(crew, thread));
    }
}

struct sh_crew_stats sh_crew_stats_get(const struct sh_crew *crew, unsigned thread)
{
    SH_ASSERT(thread < crew->config.threads);
    const struct sh_crew_lane *lane = &crew->lanes[thread];
    return (struct sh_crew_stats){
        .rounds = atomic_load_explicit(&lane->rounds, memory_order_relaxed),
        .parks = atomic_load_explicit(&lane->parks, memory_order_relaxed),
        .sleeps = atomic_load_explicit(&lane->sleeps, memory_order_relaxed),
        .wakes = atomic_load_explicit(&lane->wakes, memory_order_relaxed),
        .lent_rounds = atomic_load_explicit(&lane->lent_rounds, memory_order_relaxed),
        .crowded = atomic_load_explicit(&lane->crowded, memory_order_relaxed),
    };
}

/* The row of a step's name, or a new one; NULL when there is no room for it. */
static struct sh_crew_step_report *row_of(struct sh_crew_step_report *reports, size_t *count,
                                          size_t room, const char *name)
{
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(reports[i].name, name) == 0) {
            return &reports[i];
        }
    }
    if (*count == room) {
        return NULL;
    }
    reports[*count] = (struct sh_crew_step_report){.name = name};
    return &reports[(*count)++];
}

size_t sh_crew_step_reports(const struct sh_crew *crew, struct sh_crew_step_report *reports_out,
                            size_t room)
{
    size_t count = 0;
    for (unsigned i = 0; i < crew->config.threads; i++) {
        const struct sh_crew_lane *lane = &crew->lanes[i];
        for (unsigned k = 0; k < lane->step_count; k++) {
            const char *name = lane->steps[k].name;
            struct sh_crew_step_report *row =
                row_of(reports_out, &count, room, name != NULL ? name : "step");
            if (row != NULL) {
                sh_step_report_merge(&row->time, sh_step_time_get(&lane->times[k]));
            }
        }
    }
    return count;
}
