/* How long steps take, and the kinds of work within them: processor time, the longest of each.
 *
 * A step must be short (SH_STEP_BOUND_NS), since the others of its thread wait for it: while one
 * copies a gigabyte, no heartbeat is sent. Two things see to that. Work that may be long asks
 * sh_step_spent now and then, and leaves the rest to its next run. And each step, and each kind of
 * work that is worth a name of its own, has a struct sh_step_time that keeps its longest run, for
 * tests and for `shoal status`.
 *
 *     began = sh_ticks(); work; sh_step_time_add(&time, began, sh_ticks());
 *
 * Time is read from the processor's counter. A reading takes 10 ns, and keeps the processor from
 * beginning what comes behind it, which costs another 20 where work is short; so steps that found
 * nothing to do, and groups of 16 short messages, share a reading. Where such a group takes
 * SH_STEP_GROUP_NS or more, each is timed by itself for a while, so that what comes again is found.
 * What is known to be long says so (sh_step_long), and is timed by itself at once.
 *
 * The counter goes on while a thread waits for its core, so a run that the counter calls
 * longer than any before it is judged by the thread's processor time, which takes a system call.
 * That clock is not read when a run begins, but 100 us before the step that it is in at most
 * (sh_step_begin), or where another such run ended: a run that lost its core is reported up to so
 * much too long, and what the step had taken by then, never too short. Others are exact.
 *
 * Where there is no counter that runs at one speed (SH_TICKS_TSC), it is CLOCK_MONOTONIC, 25 ns a
 * reading. In a simulated crew no step is timed, and sh_step_spent is false: what is done depends
 * on no clock there. */
#ifndef SH_BASE_STEPTIME_H
#define SH_BASE_STEPTIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __x86_64__
#include <x86intrin.h>
#endif

/* What no step may take at any request, on a processor of today. */
#define SH_STEP_BOUND_NS UINT64_C(1000000)
/* After so much sh_step_spent says that the step should end: what it is at may take as long again
 * and more, and a slow machine three times that. */
#define SH_STEP_SHARE_NS UINT64_C(200000)

/* A group of short runs that takes so long has had one that is not short. */
#define SH_STEP_GROUP_NS UINT64_C(50000)

/* The longest run of a step or of a kind of work; all 0 at first. Any thread may add. */
struct sh_step_time {
    _Atomic uint64_t longest_ns;
    _Atomic uint64_t over;    /* runs above SH_STEP_BOUND_NS */
    _Atomic uint64_t notable; /* runs of so many ticks change nothing here */
};

/* What came of it. */
struct sh_step_report {
    uint64_t longest_ns;
    uint64_t over;
};

/* Filled by sh_ticks_init. */
struct sh_ticks_scale {
    bool is_counter; /* ticks are the processor's; else they are nanoseconds */
    uint64_t ns_q32; /* of a tick, times 2^32 */
    uint64_t share;  /* SH_STEP_SHARE_NS in ticks */
    uint64_t group;  /* SH_STEP_GROUP_NS in ticks */
};
extern struct sh_ticks_scale sh_ticks_scale;

/* When the step that this thread runs has spent its share, in ticks; UINT64_MAX outside of steps.
 */
extern _Thread_local uint64_t sh_step_share_end;

/* The handler that this thread runs has said that it takes long. */
extern _Thread_local bool sh_step_is_long;
static inline void sh_step_long(void)
{
    sh_step_is_long = true;
}

/* Finds out how fast the counter runs, once in a process: 50 us. Before any other call of this
 * header; sh_crew_create does it. Any thread. */
void sh_ticks_init(void);

/* The same where there is no such counter: the monotonic clock, in ns. */
uint64_t sh_ticks_of_clock(void);

/* Now. Only differences within one thread mean something. */
static inline uint64_t sh_ticks(void)
{
#ifdef __x86_64__
    if (sh_ticks_scale.is_counter)
        return __rdtsc();
#endif
    return sh_ticks_of_clock();
}

uint64_t sh_ticks_ns(uint64_t ticks);

/* A crew begins to run a step; and has run it. By the thread that runs it. */
void sh_step_begin(uint64_t now_ticks);
/* Within a step: what follows has a share of its own; nothing outside of steps. */
static inline void sh_step_begin_again(uint64_t now_ticks)
{
    if (sh_step_share_end != UINT64_MAX) {
        sh_step_share_end = now_ticks + sh_ticks_scale.share;
    }
}
static inline void sh_step_end(void)
{
    sh_step_share_end = UINT64_MAX;
}

/* Whether the step that this thread runs should leave what is still to be done to its next run,
 * given what sh_ticks said just now. It should do something first, or nothing ever gets on. */
static inline bool sh_step_spent_at(uint64_t now_ticks)
{
    return now_ticks >= sh_step_share_end;
}
static inline bool sh_step_spent(void)
{
    return sh_step_share_end != UINT64_MAX && sh_step_spent_at(sh_ticks());
}

/* What the times of work within steps are taken with: sh_ticks, or 0 outside of a crew's steps,
 * where nothing is timed. */
static inline uint64_t sh_step_ticks(void)
{
    return sh_step_share_end == UINT64_MAX ? 0 : sh_ticks();
}

/* Notes a run that may be the longest, or above the bound. */
void sh_step_time_note(struct sh_step_time *time, uint64_t began, uint64_t ended);

/* Adds a run from within a step of this thread. */
static inline void sh_step_time_add(struct sh_step_time *time, uint64_t began, uint64_t ended)
{
    /* relaxed: nothing hangs on it; a missed change costs a closer look */
    if (__builtin_expect(ended - began > atomic_load_explicit(&time->notable, memory_order_relaxed),
                         0)) {
        sh_step_time_note(time, began, ended);
    }
}

/* Any thread. */
struct sh_step_report sh_step_time_get(const struct sh_step_time *time);
/* Adds up what several threads or types had of one kind. */
void sh_step_report_merge(struct sh_step_report *all, struct sh_step_report one);

#endif
