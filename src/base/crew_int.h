/* Crews, inside: what crew.c, crew_lane.c, crew_wait.c and crew_crowd.c share.
 *
 * A lane is one thread's place in a crew: its steps, its parker, and one atomic word in which
 * everything is said that must not be missed:
 *
 *     bits 9 to 31: how many application threads wait in the queue
 *     bits 0 to 8:   the flags below
 *
 * BATON          somebody may run the steps; in a crew that does not lend it is set for ever
 * NOTED          sh_crew_wake was called since the holder last cleared this bit
 * HOLDER_ASLEEP  the holder waits and must be kicked
 * OWN_ASLEEP     the crew's own thread, without the baton, waits and must be kicked
 * OWN_STANDBY    the crew's own thread leaves the steps to lenders and looks again by itself
 * OWN_WATCHES    beside OWN_ASLEEP: it is in its parker's watch, not in a futex
 * OWN_KICKED     beside OWN_WATCHES: the parker was told already, and nobody has held the baton
 *                since. A holder's wait may consume that wake before watch saw it; so the own
 *                thread alone says that it is up, and a lender that leaves tells the parker anew.
 * OWN_HOLDS      the crew's own thread has the baton
 * STOP           the threads shall end
 *
 * Why no wake-up is lost. Every change of the word is a read-modify-write, so all of them have one
 * order, and each sees what was written before the earlier ones (all release, readers acquire).
 * Who publishes work then sets NOTED. Who wants to sleep sets its ASLEEP bit by compare-and-swap
 * from a value without NOTED. Take one setting of NOTED. If the sleeper cleared it before it slept,
 * it acquired the work and ran a round after that. If not, the swap failed had it come later;
 * so it came earlier, and the publisher reads the ASLEEP bit and kicks. The same argument covers
 * the baton: a lender that leaves reads from its own release of the baton whether a waiter queued
 * or the own thread fell asleep while it held the baton, and a waiter that queued later finds the
 * baton free. STANDBY needs no kick: the own thread gets up by its timer, and takes the baton
 * rather than stand by again while it is free, NOTED is set and nobody queues for it. One word
 * makes sequential consistency over two unnecessary, whatever order the caller's own stores have.
 */
#ifndef SH_BASE_CREW_INT_H
#define SH_BASE_CREW_INT_H

#include <linux/futex.h>
#include <pthread.h>
#include <stdalign.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/lock.h"
#include "base/steptime.h"

#define SH_LANE_BATON UINT32_C(0x01)
#define SH_LANE_NOTED UINT32_C(0x02)
#define SH_LANE_HOLDER_ASLEEP UINT32_C(0x04)
#define SH_LANE_OWN_ASLEEP UINT32_C(0x08)
#define SH_LANE_OWN_STANDBY UINT32_C(0x10)
#define SH_LANE_OWN_WATCHES UINT32_C(0x20)
#define SH_LANE_OWN_HOLDS UINT32_C(0x40)
#define SH_LANE_STOP UINT32_C(0x80)
#define SH_LANE_OWN_KICKED UINT32_C(0x100)
#define SH_LANE_WAITER UINT32_C(0x200) /* one queued waiter */
#define SH_LANE_OWN_RESTS                                                                          \
    (SH_LANE_OWN_ASLEEP | SH_LANE_OWN_STANDBY | SH_LANE_OWN_WATCHES | SH_LANE_OWN_KICKED)

/* A waiter's state. */
enum {
    SH_WAITER_PENDING = 0,
    SH_WAITER_DONE,
    SH_WAITER_SLEEPING, /* pending; its thread is in futex_wait */
    SH_WAITER_PROMOTED, /* pending; its thread was told to try the baton */
    SH_WAITER_RUNNER    /* pending; its thread runs the lane's steps */
};

/* What a round without work is followed by. */
enum sh_lane_rest { SH_REST_NONE, SH_REST_PARK, SH_REST_SLEEP };

/* A waiting application thread that does not hold the baton; lives on its stack. */
struct sh_lane_queued {
    struct sh_lane_queued *newer;
    struct sh_lane_queued *older;
    struct sh_waiter *waiter;
};

struct sh_crew_lane {
    struct sh_crew *crew;
    unsigned index;
    unsigned step_count;
    bool has_parker;
    struct sh_parker parker;
    struct sh_step steps[SH_CREW_STEPS_MAX];
    struct sh_step_time times[SH_CREW_STEPS_MAX]; /* of the steps */
    pthread_t thread;

    /* The holder's: written with the baton only. */
    bool rerun;          /* a step woke its own lane: run another round */
    bool awake;          /* counted by sh_crowd_awake_add */
    bool silent;         /* the last round found nothing */
    unsigned one_by_one; /* so many rounds more in which each step is timed by itself */
    unsigned yields;     /* since the silence began */
    uint64_t since_ns;   /* when the silence began */
    uint64_t woke_ns;    /* when the lane last woke from sleep; 0: not yet looked at the clock */
    uint64_t due_ns;     /* earliest step's due time when the holder last rested */

    /* Written by the holder, read by anybody; relaxed, since nothing hangs on them. */
    _Atomic uint64_t rounds;
    _Atomic uint64_t parks;
    _Atomic uint64_t sleeps;
    _Atomic uint64_t lent_rounds;
    _Atomic bool crowded;
    _Atomic uint64_t wakes; /* by any thread, only after a kernel call */

    /* Publishers write this line, and nothing else is in it. */
    alignas(64) _Atomic uint32_t word;

    /* Futexes: one for the holder's sleep, one for the own thread's rest without the baton. */
    alignas(64) _Atomic uint32_t holder_seq;
    _Atomic uint32_t own_seq;
    _Atomic uint32_t tenures; /* times that a lender took the baton */

    struct sh_lock queue_lock; /* rank CREW: the list of queued waiters */
    struct sh_lane_queued *newest;
};

struct sh_crew {
    struct sh_crew_config config;
    bool started;
    struct sh_crew_lane lanes[];
};

/* The lane whose steps this thread is running, or NULL. */
extern _Thread_local struct sh_crew_lane *sh_lane_running;

static inline uint64_t sh_lane_now(const struct sh_crew_lane *lane)
{
    return lane->crew->config.now_ns(lane->crew->config.now_arg);
}

/* Only one thread at a time writes these counters, so no read-modify-write is needed. */
static inline void sh_lane_count(_Atomic uint64_t *counter)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

/* Waits while *word is `expected`, at most timeout_ns (SH_NEVER: without limit). May return early.
 * These are bare futexes, not locks: nothing is held, so ranks have nothing to say. */
static inline void sh_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000U),
                             .tv_nsec = (long)(timeout_ns % 1000000000U)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected,
                  timeout_ns == SH_NEVER ? NULL : &limit, NULL, 0);
}

/* Wakes one waiter. Harmless if the memory is another's by now: it may cost that one a look. */
static inline void sh_futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* crew_lane.c: rounds, rest, baton, kicks. */

/* Takes the baton if it is free, and with it clears NOTED: run a round before resting or leaving.
 * `as` is SH_LANE_OWN_HOLDS or 0. */
bool sh_lane_take(struct sh_crew_lane *lane, uint32_t as);
/* Gives the baton back and sees to it that whoever is needed goes on. Holder only. */
void sh_lane_leave(struct sh_crew_lane *lane);
/* For a thread that saw the word without BATON after it left the queue or gave the baton back:
 * wakes one queued waiter, or the crew's own thread where it is needed. */
void sh_lane_hand_on(struct sh_crew_lane *lane, uint32_t word);
/* sh_crew_wake. */
void sh_lane_wake(struct sh_crew_lane *lane);
/* Wakes the crew's own thread if it rests without the baton; repeats itself if told twice. */
void sh_lane_kick_own(struct sh_crew_lane *lane);
void sh_lane_kick_holder(struct sh_crew_lane *lane);

/* Runs every step once; true when there was work. Holder only. */
bool sh_lane_round(struct sh_crew_lane *lane);
/* Clears NOTED; true if it was set, and then a round is due. Holder only. */
bool sh_lane_note_take(struct sh_crew_lane *lane);
/* After a round without work: spins or yields by itself and asks for another round (REST_NONE), or
 * names the rest that the caller should take. Holder only. */
enum sh_lane_rest sh_lane_idle(struct sh_crew_lane *lane, uint64_t now_ns, bool may_spin);
/* How long a rest may take: until a step is due, or limit_ns; 0 when that is now. Holder only. */
uint64_t sh_lane_rest_ns(struct sh_crew_lane *lane, enum sh_lane_rest rest, uint64_t now_ns,
                         uint64_t limit_ns);
/* Rests with the baton: a crew that does not lend, and lenders. Holder only. */
void sh_lane_rest_holding(struct sh_crew_lane *lane, enum sh_lane_rest rest, uint64_t timeout_ns);
/* Rests without the baton: the own thread of a crew that lends. It gives the baton back first
 * (true), unless there is news that calls for another round (false). */
bool sh_lane_rest_apart(struct sh_crew_lane *lane, enum sh_lane_rest rest, uint64_t timeout_ns);
/* Leaves the lane to lenders until none has been there for a while, or until kicked. */
void sh_lane_stand_by(struct sh_crew_lane *lane);
/* Counts the lane among those awake, or not any more. Holder only. */
void sh_lane_awake_set(struct sh_crew_lane *lane, bool awake);

/* crew_crowd.c: do threads outnumber cores? */

/* How many lanes of the process are awake: each of them wants a core. */
void sh_crowd_awake_add(int delta);
/* True when the calling thread should not spin. Cheap: looks closer every 50 ms. */
bool sh_crowded(uint64_t now_ns);
/* Yields, and takes note when another thread used the core meanwhile. */
void sh_crowd_yield(void);

#endif
