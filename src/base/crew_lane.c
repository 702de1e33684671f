#include <sys/prctl.h>

#include "base/assert.h"
#include "base/crew_int.h"

/* Yields between spinning and parking. Each gives the core to whoever waits for it; more of them
 * would only be a slower way to spin. */
#define YIELDS 3

/* A rest up to this long ends by itself soon enough, so that nobody pays a kernel call to end it.
 * A park of 10 to 30 us is well below. */
#define UNKICKED_NS_MAX UINT64_C(200000)

/* How often the own thread looks while it stands by: a post that no lender meets waits for one
 * look, an answer to it that arrives after the last lender left for two. The price of a smaller
 * value is that the own thread looks this often while lenders are busy: at 2 ms, 500 times a second
 * 5 us. */
#define STANDBY_NS UINT64_C(2000000)

/* The same while something is under way that perhaps nobody waits for. */
#define STANDBY_BUSY_NS UINT64_C(500000)

/* The shortest silence before sleep, as a part of the policy's silence: 1/1024. */
#define SILENCE_SHIFT 10

_Thread_local struct sh_crew_lane *sh_lane_running;

bool sh_lane_take(struct sh_crew_lane *lane, uint32_t as)
{
    uint32_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
    uint32_t taken;
    do {
        if (word & SH_LANE_BATON) {
            return false;
        }
        taken = (word | SH_LANE_BATON | as) & ~SH_LANE_NOTED;
        /* acquire: the last holder's writes, and work published before NOTED was set; pairs with
         * release in sh_lane_leave and sh_lane_wake. */
    } while (!atomic_compare_exchange_weak_explicit(&lane->word, &word, taken, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

void sh_lane_leave(struct sh_crew_lane *lane)
{
    const uint32_t gone = SH_LANE_BATON | SH_LANE_OWN_HOLDS;
    /* release: this tenure's writes; acquire: waiters queued and work published meanwhile. */
    uint32_t word = atomic_fetch_and_explicit(&lane->word, ~gone, memory_order_acq_rel);
    SH_ASSERT(word & SH_LANE_BATON);
    sh_lane_hand_on(lane, word & ~gone);
}

/* Tells the newest queued waiter to try the baton; at most one at a time. */
static void promote(struct sh_crew_lane *lane)
{
    struct sh_waiter *sleeper = NULL;
    sh_lock_take(&lane->queue_lock);
    /* The newest will most likely need the steps for longest. Those that are done are leaving the
     * queue and hand on by themselves. One that is promoted already has not tried the baton since:
     * the swap tells it (release) that the baton is free, and no second thread is woken. */
    for (struct sh_lane_queued *queued = lane->newest; queued != NULL; queued = queued->older) {
        struct sh_waiter *waiter = queued->waiter;
        uint32_t state = atomic_load_explicit(&waiter->state, memory_order_acquire);
        while (state != SH_WAITER_DONE &&
               !atomic_compare_exchange_weak_explicit(&waiter->state, &state, SH_WAITER_PROMOTED,
                                                      memory_order_acq_rel, memory_order_acquire)) {
        }
        if (state != SH_WAITER_DONE) {
            sleeper = state == SH_WAITER_SLEEPING ? waiter : NULL;
            break;
        }
    }
    sh_lock_release(&lane->queue_lock);
    if (sleeper != NULL) {
        atomic_fetch_add_explicit(&lane->wakes, 1, memory_order_relaxed);
        sh_futex_wake(&sleeper->state); /* the address only: the waiter may be gone */
    }
}

void sh_lane_hand_on(struct sh_crew_lane *lane, uint32_t word)
{
    SH_ASSERT(!(word & SH_LANE_BATON));
    if (word >= SH_LANE_WAITER) {
        promote(lane);
    } else if (word & SH_LANE_OWN_ASLEEP) {
        /* It has no timer, or one set before the lender may have brought due times forward. */
        sh_lane_kick_own(lane);
    }
    /* Standing by, it looks by itself soon, and most likely a lender is back before that. */
}

void sh_lane_kick_own(struct sh_crew_lane *lane)
{
    uint32_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
    uint32_t next;
    do {
        if (!(word & SH_LANE_OWN_RESTS)) {
            return; /* somebody else kicked it, or it is up already */
        }
        next = word & SH_LANE_OWN_WATCHES ? word | SH_LANE_OWN_KICKED : word & ~SH_LANE_OWN_RESTS;
    } while (!atomic_compare_exchange_weak_explicit(&lane->word, &word, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    atomic_fetch_add_explicit(&lane->wakes, 1, memory_order_relaxed);
    if (word & SH_LANE_OWN_WATCHES) {
        lane->parker.wake(lane->parker.arg);
        return;
    }
    /* release: pairs with nothing but the futex's own check; the news is in the word. */
    atomic_fetch_add_explicit(&lane->own_seq, 1, memory_order_release);
    sh_futex_wake(&lane->own_seq);
}

void sh_lane_kick_holder(struct sh_crew_lane *lane)
{
    uint32_t word =
        atomic_fetch_and_explicit(&lane->word, ~SH_LANE_HOLDER_ASLEEP, memory_order_acq_rel);
    if (!(word & SH_LANE_HOLDER_ASLEEP)) {
        return;
    }
    atomic_fetch_add_explicit(&lane->wakes, 1, memory_order_relaxed);
    if (lane->has_parker) {
        lane->parker.wake(lane->parker.arg);
        return;
    }
    atomic_fetch_add_explicit(&lane->holder_seq, 1, memory_order_release);
    sh_futex_wake(&lane->holder_seq);
}

void sh_lane_wake(struct sh_crew_lane *lane)
{
    if (sh_lane_running == lane) {
        lane->rerun = true;
        return;
    }
    /* release: the caller's work; pairs with acquire where the holder clears NOTED.
     * acquire: orders our reading of the sleep bits after the work; crew_int.h has the argument. */
    uint32_t word = atomic_fetch_or_explicit(&lane->word, SH_LANE_NOTED, memory_order_acq_rel);
    if (!(word & (SH_LANE_HOLDER_ASLEEP | SH_LANE_OWN_RESTS))) {
        return;
    }
    if (word & SH_LANE_BATON) {
        if (word & SH_LANE_HOLDER_ASLEEP) {
            sh_lane_kick_holder(lane);
        }
    } else if (word & SH_LANE_OWN_ASLEEP) {
        if (!(word & SH_LANE_OWN_KICKED)) {
            sh_lane_kick_own(lane);
        }
    } else if (sh_lane_running != NULL) {
        /* Standing by. An application thread will most likely wait and run the steps itself, and
         * if it does not, the own thread looks soon. A step of another crew never will. */
        sh_lane_kick_own(lane);
    }
}

void sh_lane_awake_set(struct sh_crew_lane *lane, bool awake)
{
    if (lane->awake != awake) {
        lane->awake = awake;
        lane->woke_ns = 0;
        sh_crowd_awake_add(awake ? 1 : -1);
    }
}

/* Work ends the silence, unless a step had announced it by its due time: that a timer ran is no
 * sign that more will follow. Otherwise a node with a heartbeat would never sleep. */
static void silence_end(struct sh_crew_lane *lane)
{
    if (lane->due_ns != SH_NEVER && sh_lane_now(lane) >= lane->due_ns) {
        lane->due_ns = SH_NEVER;
        return;
    }
    lane->silent = false;
}

/* Rounds in which each step is timed by itself, after some that had no work took long. */
#define ONE_BY_ONE_ROUNDS 256

bool sh_lane_round(struct sh_crew_lane *lane)
{
    unsigned work = 0;
    SH_ASSERT(sh_lane_running == NULL);
    lane->rerun = false;
    sh_lane_running = lane;
    uint64_t began = sh_ticks();
    unsigned grouped = 0; /* steps since then that found no work */
    for (unsigned i = 0; i < lane->step_count; i++) {
        sh_step_begin(began);
        unsigned done = lane->steps[i].run(lane->steps[i].arg);
        work += done;
        grouped++;
        if (done == 0 && i + 1 < lane->step_count && lane->one_by_one == 0) {
            continue;
        }
        uint64_t ended = sh_ticks();
        sh_step_time_add(&lane->times[i], began, ended);
        if (grouped > 1 && ended - began > sh_ticks_scale.group) {
            lane->one_by_one = ONE_BY_ONE_ROUNDS;
        }
        began = ended;
        grouped = 0;
    }
    lane->one_by_one -= lane->one_by_one > 0;
    sh_step_end();
    sh_lane_running = NULL;
    sh_lane_count(&lane->rounds);
    if (work == 0) {
        return lane->rerun;
    }
    if (lane->silent) {
        silence_end(lane);
    }
    return true;
}

/* The silence to bear before sleep: as long as the lane has been in use since it last slept, within
 * the policy's bounds. A lone heartbeat then costs a millisecond of parking, not a second, and a
 * conversation that has gone on for a second is waited for a second. */
static uint64_t silence_bearable_ns(const struct sh_crew_lane *lane)
{
    uint64_t most_ns = lane->crew->config.idle.silence_ns;
    uint64_t least_ns = most_ns >> SILENCE_SHIFT;
    uint64_t used_ns = lane->since_ns > lane->woke_ns ? lane->since_ns - lane->woke_ns : 0;
    if (used_ns < least_ns) {
        return least_ns;
    }
    return used_ns < most_ns ? used_ns : most_ns;
}

static bool spinning_is_off(struct sh_crew_lane *lane, uint64_t now_ns)
{
    bool crowded = sh_crowded(now_ns);
    atomic_store_explicit(&lane->crowded, crowded, memory_order_relaxed);
    return crowded && !lane->crew->config.spin_forced;
}

bool sh_lane_note_take(struct sh_crew_lane *lane)
{
    if (!(atomic_load_explicit(&lane->word, memory_order_relaxed) & SH_LANE_NOTED)) {
        return false;
    }
    /* acquire: the work; pairs with release in sh_lane_wake. */
    atomic_fetch_and_explicit(&lane->word, ~SH_LANE_NOTED, memory_order_acq_rel);
    return true;
}

enum sh_lane_rest sh_lane_idle(struct sh_crew_lane *lane, uint64_t now_ns, bool may_spin)
{
    const struct sh_idle_policy *policy = &lane->crew->config.idle;
    if (sh_lane_note_take(lane)) {
        return SH_REST_NONE;
    }
    if (!lane->silent) {
        lane->silent = true;
        lane->since_ns = now_ns;
        lane->due_ns = SH_NEVER;
        lane->yields = 0;
    }
    if (lane->woke_ns == 0) {
        lane->woke_ns = now_ns;
    }
    uint64_t silent_ns = now_ns > lane->since_ns ? now_ns - lane->since_ns : 0;
    bool off = spinning_is_off(lane, now_ns);
    if (may_spin && silent_ns < policy->spin_ns && !off) {
        sh_cpu_relax();
        return SH_REST_NONE;
    }
    /* Where other threads have work for this core, a yield costs a slice, and a park takes the core
     * from one of them only to look; a sleeper is woken when there is something to do. */
    if (policy->park_ns == 0 || off) {
        return SH_REST_SLEEP;
    }
    bool bearable = silent_ns < silence_bearable_ns(lane);
    if (bearable && lane->yields < YIELDS) {
        lane->yields++;
        sh_crowd_yield();
        return SH_REST_NONE;
    }
    return bearable ? SH_REST_PARK : SH_REST_SLEEP;
}

uint64_t sh_lane_rest_ns(struct sh_crew_lane *lane, enum sh_lane_rest rest, uint64_t now_ns,
                         uint64_t limit_ns)
{
    uint64_t until_ns = sh_steps_due_ns(lane->steps, lane->step_count);
    lane->due_ns = until_ns;
    until_ns = limit_ns < until_ns ? limit_ns : until_ns;
    uint64_t rest_ns = until_ns == SH_NEVER ? SH_NEVER : until_ns > now_ns ? until_ns - now_ns : 0;
    uint64_t park_ns = lane->crew->config.idle.park_ns;
    return rest == SH_REST_PARK && park_ns < rest_ns ? park_ns : rest_ns;
}

/* The kernel delays short timers by up to 50 us to merge them; a park of 20 us needs them exact.
 * Once per thread, and only for threads that park. */
static void timers_exact(void)
{
    static _Thread_local bool done;
    if (!done) {
        done = true;
        (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    }
}

static void rest_count(struct sh_crew_lane *lane, enum sh_lane_rest rest)
{
    sh_lane_count(rest == SH_REST_PARK ? &lane->parks : &lane->sleeps);
}

static void holder_wait(struct sh_crew_lane *lane, uint32_t seq, uint64_t timeout_ns)
{
    timers_exact();
    if (lane->has_parker) {
        lane->parker.wait(lane->parker.arg, timeout_ns);
    } else {
        sh_futex_wait(&lane->holder_seq, seq, timeout_ns);
    }
}

void sh_lane_rest_holding(struct sh_crew_lane *lane, enum sh_lane_rest rest, uint64_t timeout_ns)
{
    uint32_t seq = atomic_load_explicit(&lane->holder_seq, memory_order_relaxed);
    if (timeout_ns == 0) {
        return;
    }
    if (rest == SH_REST_PARK && timeout_ns <= UNKICKED_NS_MAX) {
        rest_count(lane, rest);
        holder_wait(lane, seq, timeout_ns);
        return;
    }
    uint32_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
    do {
        if (word & (SH_LANE_NOTED | SH_LANE_STOP)) {
            return; /* the next sh_lane_idle clears NOTED */
        }
        /* acq_rel: a swap that succeeds is before every later NOTED, whose setter then kicks. */
    } while (!atomic_compare_exchange_weak_explicit(&lane->word, &word,
                                                    word | SH_LANE_HOLDER_ASLEEP,
                                                    memory_order_acq_rel, memory_order_relaxed));
    rest_count(lane, rest);
    if (rest == SH_REST_SLEEP) {
        sh_lane_awake_set(lane, false);
    }
    holder_wait(lane, seq, timeout_ns);
    atomic_fetch_and_explicit(&lane->word, ~SH_LANE_HOLDER_ASLEEP, memory_order_acq_rel);
    sh_lane_awake_set(lane, true);
}

/* Gives the baton back and says in the same moment how the own thread rests. False when there is
 * news: work, a waiter who could run the steps, or the end. */
static bool baton_put_down(struct sh_crew_lane *lane, uint32_t rests)
{
    const uint32_t gone = SH_LANE_BATON | SH_LANE_OWN_HOLDS;
    uint32_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
    do {
        if ((word & (SH_LANE_NOTED | SH_LANE_STOP)) || word >= SH_LANE_WAITER) {
            return false;
        }
        /* release: this tenure's writes, for the next holder; acq_rel: as when sleeping. */
    } while (!atomic_compare_exchange_weak_explicit(&lane->word, &word, (word & ~gone) | rests,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return true;
}

bool sh_lane_rest_apart(struct sh_crew_lane *lane, enum sh_lane_rest rest, uint64_t timeout_ns)
{
    uint32_t seq = atomic_load_explicit(&lane->own_seq, memory_order_relaxed);
    bool unkicked = rest == SH_REST_PARK && timeout_ns <= UNKICKED_NS_MAX;
    uint32_t rests = 0;
    if (timeout_ns == 0) {
        return false;
    }
    if (!unkicked) {
        rests = SH_LANE_OWN_ASLEEP | (lane->has_parker ? SH_LANE_OWN_WATCHES : 0);
    }
    if (rest == SH_REST_SLEEP) {
        sh_lane_awake_set(lane, false);
    }
    rest_count(lane, rest);
    if (!baton_put_down(lane, rests)) {
        sh_lane_awake_set(lane, true);
        return false;
    }
    timers_exact();
    if (lane->has_parker) {
        lane->parker.watch(lane->parker.arg, timeout_ns);
    } else {
        sh_futex_wait(&lane->own_seq, seq, timeout_ns);
    }
    if (rests != 0) {
        atomic_fetch_and_explicit(&lane->word, ~SH_LANE_OWN_RESTS, memory_order_acq_rel);
    }
    return true;
}

/* Says that the own thread stands by, with a timer, or without one while a lender holds the baton
 * for long. Returns the bit, or 0 when it should not stand by. */
static uint32_t stand_by_say(struct sh_crew_lane *lane, bool long_tenure)
{
    uint32_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
    uint32_t bit;
    do {
        bool free = !(word & SH_LANE_BATON);
        if ((word & SH_LANE_STOP) || (free && (word & SH_LANE_NOTED) && word < SH_LANE_WAITER)) {
            return 0;
        }
        bit = long_tenure && !free ? SH_LANE_OWN_ASLEEP : SH_LANE_OWN_STANDBY;
    } while (!atomic_compare_exchange_weak_explicit(&lane->word, &word, word | bit,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return bit;
}

static bool crew_is_busy(const struct sh_crew *crew)
{
    return crew->config.busy != NULL && crew->config.busy(crew->config.busy_arg);
}

void sh_lane_stand_by(struct sh_crew_lane *lane)
{
    bool long_tenure = false;
    for (;;) {
        uint32_t tenures = atomic_load_explicit(&lane->tenures, memory_order_relaxed);
        uint32_t seq = atomic_load_explicit(&lane->own_seq, memory_order_relaxed);
        uint32_t bit = stand_by_say(lane, long_tenure);
        if (bit == 0) {
            return;
        }
        uint64_t standby_ns = crew_is_busy(lane->crew) ? STANDBY_BUSY_NS : STANDBY_NS;
        sh_futex_wait(&lane->own_seq, seq, bit == SH_LANE_OWN_ASLEEP ? SH_NEVER : standby_ns);
        uint32_t word =
            atomic_fetch_and_explicit(&lane->word, ~SH_LANE_OWN_RESTS, memory_order_acq_rel);
        if (!(word & bit)) {
            return; /* kicked */
        }
        bool same = tenures == atomic_load_explicit(&lane->tenures, memory_order_relaxed);
        if (same && !(word & SH_LANE_BATON)) {
            return;
        }
        long_tenure = same;
    }
}
