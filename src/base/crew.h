/* Crews: threads that run steps, and the one idle policy. DESIGN: Steps and crews; DXNet §VII.
 *
 * A step is a function that does a bounded amount of ready work and returns how much it did. It
 * never blocks. A crew deals its steps to threads as its owner says; each thread runs its steps
 * round after round, and when a round finds no work it spins, yields, parks for tens of
 * microseconds, and after at most a second of silence sleeps until woken (or until the earliest
 * time that one of its steps is due). Where threads outnumber cores it sleeps at once, since
 * spinning, yielding and parking would take cores from threads that have work.
 *
 *       work published            thread finds nothing
 *   [running] <--------- [spin] -> [yield] -> [park x us, again and again] -> [sleep]
 *        ^------------------------- sh_crew_wake ------------------------------'
 *
 * No wake-up is lost: who publishes work calls sh_crew_wake after it, which leaves a note in one
 * atomic word; a thread goes to sleep by a swap of that same word which fails while a note is
 * there, and runs a round after it removed one. crew_int.h has the argument. The caller's own
 * stores need no particular order.
 *
 * Lending: an application thread that waits for something a crew thread will bring about runs that
 * thread's steps itself while nobody else does (sh_crew_wait), so that a program with one thread
 * pays for no hand-over. Only one thread at a time runs a crew thread's steps: the one that holds
 * its baton. Of such a crew only those that wait spin; its own threads go on to yield and park.
 * While lenders come and go, the crew's own thread stands by and looks by a timer. It
 * takes over at the first look that finds work announced and nobody to run it, or that finds that
 * no lender has come since the look before: 2 ms after the last one left at the latest in the first
 * case, 4 ms in the second (0.5 and 1 ms while the crew is busy). docs/crews.md has the costs.
 */
#ifndef SH_BASE_CREW_H
#define SH_BASE_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/steptime.h"
#include "shoal/err.h"

#define SH_CREW_THREADS_MAX 64
#define SH_CREW_STEPS_MAX 32
#define SH_NEVER UINT64_MAX

struct sh_crew;
struct sh_waiter;
struct sh_crew_lane; /* one of its threads (crew_int.h) */

struct sh_step {
    const char *name;
    /* Does a bounded amount of ready work; returns how much (0: there was none). */
    unsigned (*run)(void *arg);
    /* When run will have work even if nobody wakes it, by the crew's clock; SH_NEVER: not before
     * it is woken. NULL means never. Called by the thread that runs the step. */
    uint64_t (*due_ns)(void *arg);
    void *arg;
};

/* When the first of some steps will have work even if nobody wakes it; SH_NEVER: none will. */
static inline uint64_t sh_steps_due_ns(const struct sh_step *steps, size_t count)
{
    uint64_t first_ns = SH_NEVER;
    for (size_t i = 0; i < count; i++) {
        uint64_t due_ns = steps[i].due_ns ? steps[i].due_ns(steps[i].arg) : SH_NEVER;
        first_ns = due_ns < first_ns ? due_ns : first_ns;
    }
    return first_ns;
}

/* Where a crew thread waits, when its steps have sources of their own such as sockets. Without
 * one a thread waits on a futex. Timeouts need a resolution of microseconds (epoll_pwait2, not
 * epoll_wait); 0 only looks, SH_NEVER waits without limit. Returning early does no harm. */
struct sh_parker {
    /* Waits until something is ready for the steps, or wake was called, or the time is over; may
     * gather what it found for the next round; consumes wakes. Called by the baton's holder only,
     * never from within a step. */
    void (*wait)(void *arg, uint64_t timeout_ns);
    /* Returns when wait would have, but touches nothing: for a thread that parks without the
     * baton, maybe while another is in wait. Called by the crew's own thread, in crews that lend
     * (elsewhere it may be NULL). */
    void (*watch)(void *arg, uint64_t timeout_ns);
    /* Makes the current wait and watch return, or the next ones, until a wait has consumed it. Any
     * thread, also from within steps. */
    void (*wake)(void *arg);
    void *arg;
};

struct sh_idle_policy {
    uint64_t spin_ns; /* spin this long after the last work; SH_NEVER: spin for ever */
    uint64_t park_ns; /* then park this long at a time; 0: go to sleep at once */
    /* Sleep until woken after this long without work; sooner, down to 1/1024 of it, where the
     * thread has been in use for less than this since it last slept, so that a heartbeat twice a
     * second does not keep it parking for ever. */
    uint64_t silence_ns;
};

/* What runs a crew's steps in place of threads, where time is simulated: it has them from step_add,
 * and waits as sh_crew_wait does. Such a crew has no threads, and wakes nobody. */
struct sh_crew_world {
    void (*step_add)(void *arg, struct sh_step step);
    void (*stop)(void *arg); /* its steps are not run any more; NULL: they end with the world */
    bool (*wait)(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns);
    void *arg;
};

struct sh_crew_config {
    const struct sh_crew_world *world; /* kept; NULL: none, as usual */
    const char *name;                  /* borrowed; threads are called NAME-0, NAME-1, ... */
    unsigned threads;                  /* 1 to SH_CREW_THREADS_MAX */
    bool lends;                        /* application threads may run steps through sh_crew_wait */
    bool spin_forced; /* spin even where threads outnumber cores: for benchmarks that pin */
    struct sh_idle_policy idle;
    uint64_t (*now_ns)(void *arg); /* the clock of due_ns and of deadlines */
    void *now_arg;
    /* NULL, or: true while something that nobody may be waiting for is under way (asynchronous
     * calls): then the crew's own thread, while it stands by, looks every 0.5 ms instead of every
     * 2 ms. Asked when such a time begins, so the first look may still be 2 ms away. Called by the
     * crew's own thread without the baton; no more than a few loads. */
    bool (*busy)(void *arg);
    void *busy_arg;
};

/* Makes a crew; no thread runs yet. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_crew_create(const struct sh_crew_config *config,
                                              struct sh_crew **crew_out);
/* Stops, if that was not done, and frees. NULL is allowed. */
void sh_crew_destroy(struct sh_crew *crew);

/* Before start: adds a step to a thread's list, at its end; gives a thread its parker. */
void sh_crew_step_add(struct sh_crew *crew, unsigned thread, struct sh_step step);
void sh_crew_parker_set(struct sh_crew *crew, unsigned thread, struct sh_parker parker);

/* Starts the threads. ENOMEM when one can't be made: then none runs. */
SHOAL_NODISCARD enum shoal_err sh_crew_start(struct sh_crew *crew);
/* Lets each thread end its round, and joins them. Waits of sh_crew_wait must have ended. Not from
 * within a step. */
void sh_crew_stop(struct sh_crew *crew);

/* Says that there may be work for a thread's steps. Call it after the work is written. Cheap (one
 * read-modify-write) unless the thread sleeps; a thread in a park of up to 200 us is left to wake
 * by itself, and so is one that stands by for lenders (2 ms at most), unless it is a step that
 * calls. Any thread, also from within steps. Not concurrently with sh_crew_destroy. */
void sh_crew_wake(struct sh_crew *crew, unsigned thread);

/* What an application thread waits for. Zero-initialize, also to use it again after it was done.
 * One thread at a time waits for it, always with the same crew thread. */
struct sh_waiter {
    _Atomic uint32_t state;
    struct sh_crew_lane *_Atomic lane; /* the crew thread whose steps its thread runs */
};

/* Completes a waiter, once. Called from steps (or any thread); everything written before it is
 * visible to the waiting thread after sh_crew_wait returns true. The waiter may be gone as soon
 * as this has been called. */
void sh_waiter_complete(struct sh_waiter *waiter);
bool sh_waiter_done(const struct sh_waiter *waiter);

/* Waits until the waiter is done (true) or the clock reaches deadline_ns (false: still pending, and
 * may be waited for again), running the thread's steps when nobody else does and the crew lends.
 * Application threads only: never from within a step. A thread that parks here has its timer slack
 * set to 1 ns (PR_SET_TIMERSLACK), once. */
bool sh_crew_wait(struct sh_crew *crew, unsigned thread, struct sh_waiter *waiter,
                  uint64_t deadline_ns);

/* Counters since the start, for tests and metrics. */
struct sh_crew_stats {
    uint64_t rounds;      /* rounds of steps, with work or without */
    uint64_t parks;       /* timed parks */
    uint64_t sleeps;      /* sleeps until woken */
    uint64_t wakes;       /* wake-ups that had to call the kernel */
    uint64_t lent_rounds; /* rounds run by application threads */
    bool crowded;         /* threads were found to outnumber cores; spinning is off */
};
struct sh_crew_stats sh_crew_stats_get(const struct sh_crew *crew, unsigned thread);

/* How long its steps took since the start; those of one name, on several threads, are one. */
struct sh_crew_step_report {
    const char *name; /* borrowed from the step */
    struct sh_step_report time;
};
/* At most SH_CREW_STEPS_MAX rows are needed where threads have the same steps. Returns how many
 * there are. Any thread, once the crew has started. */
size_t sh_crew_step_reports(const struct sh_crew *crew, struct sh_crew_step_report *reports_out,
                            size_t room);

#endif
