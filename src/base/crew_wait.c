#include "base/assert.h"
#include "base/crew_int.h"

/* Application threads: how they wait, and how one of them at a time runs the steps. */

/* A waiter that meets the crew's own thread at work spins this long for the baton, which that
 * thread gives up after its round. */
#define GIVE_WAY_NS UINT64_C(20000)

/* A lender that finds work in every round still looks at the clock now and then. */
#define ROUNDS_PER_LOOK 32

bool sh_waiter_done(const struct sh_waiter *waiter)
{
    /* acquire: what the completer wrote; pairs with release in sh_waiter_complete. */
    return atomic_load_explicit(&waiter->state, memory_order_acquire) == SH_WAITER_DONE;
}

void sh_waiter_complete(struct sh_waiter *waiter)
{
    struct sh_crew_lane *lane;
    uint32_t state = atomic_load_explicit(&waiter->state, memory_order_acquire);
    do {
        SH_ASSERT(state != SH_WAITER_DONE);
        lane = atomic_load_explicit(&waiter->lane, memory_order_relaxed);
        /* release: what the waiting thread may read once it is done. */
    } while (!atomic_compare_exchange_weak_explicit(&waiter->state, &state, SH_WAITER_DONE,
                                                    memory_order_acq_rel, memory_order_acquire));
    /* From here on the waiter may be gone: only its address is used, and only as a number. */
    if (state == SH_WAITER_SLEEPING) {
        sh_futex_wake(&waiter->state);
    } else if (state == SH_WAITER_RUNNER) {
        sh_lane_wake(lane); /* it may rest in its parker; nothing to do if it is this very thread */
    }
}

/* Takes the waiter from any pending state to another. False when it is done. */
static bool waiter_set(struct sh_waiter *waiter, uint32_t to)
{
    uint32_t state = atomic_load_explicit(&waiter->state, memory_order_acquire);
    do {
        if (state == SH_WAITER_DONE) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&waiter->state, &state, to,
                                                    memory_order_acq_rel, memory_order_acquire));
    return true;
}

/* Sleeps until woken or the deadline, unless told something since the state was last PENDING. Does
 * not say why it returned. */
static void waiter_sleep(struct sh_waiter *waiter, uint64_t timeout_ns)
{
    uint32_t state = SH_WAITER_PENDING;
    if (atomic_compare_exchange_strong_explicit(&waiter->state, &state, SH_WAITER_SLEEPING,
                                                memory_order_acq_rel, memory_order_acquire)) {
        sh_futex_wait(&waiter->state, SH_WAITER_SLEEPING, timeout_ns);
    }
    /* acquire: a promotion comes after the baton was put down; the next try must see that. */
    (void)waiter_set(waiter, SH_WAITER_PENDING);
}

static uint64_t left_ns(uint64_t now_ns, uint64_t deadline_ns)
{
    return deadline_ns == SH_NEVER ? SH_NEVER : deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

static void queue_enter(struct sh_crew_lane *lane, struct sh_lane_queued *queued)
{
    sh_lock_take(&lane->queue_lock);
    queued->newer = NULL;
    queued->older = lane->newest;
    if (lane->newest != NULL) {
        lane->newest->newer = queued;
    }
    lane->newest = queued;
    sh_lock_release(&lane->queue_lock);
    /* After the list: who reads the count finds the waiter, or one that has left since. */
    atomic_fetch_add_explicit(&lane->word, SH_LANE_WAITER, memory_order_acq_rel);
}

/* Returns false when the waiter is done. */
static bool queue_exit(struct sh_crew_lane *lane, struct sh_lane_queued *queued)
{
    sh_lock_take(&lane->queue_lock);
    if (queued->newer != NULL) {
        queued->newer->older = queued->older;
    } else {
        lane->newest = queued->older;
    }
    if (queued->older != NULL) {
        queued->older->newer = queued->newer;
    }
    bool pending = waiter_set(queued->waiter, SH_WAITER_PENDING);
    sh_lock_release(&lane->queue_lock);
    uint32_t word = atomic_fetch_sub_explicit(&lane->word, SH_LANE_WAITER, memory_order_acq_rel);
    SH_ASSERT(word >= SH_LANE_WAITER);
    if (!(word & SH_LANE_BATON)) {
        /* We may have been the one whom the last holder relied on. */
        sh_lane_hand_on(lane, word - SH_LANE_WAITER);
    }
    return pending;
}

/* The own thread, at its next look between two rounds, gives the baton up for a queued waiter. */
static bool take_from_own(struct sh_crew_lane *lane, const struct sh_waiter *waiter)
{
    uint64_t start_ns = sh_lane_now(lane);
    uint64_t now_ns = start_ns;
    if (sh_crowded(start_ns) && !lane->crew->config.spin_forced) {
        return false;
    }
    while (now_ns - start_ns < GIVE_WAY_NS && !sh_waiter_done(waiter)) {
        if (sh_lane_take(lane, 0)) {
            return true;
        }
        uint32_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
        if (!(word & SH_LANE_OWN_HOLDS)) {
            return false;
        }
        sh_cpu_relax();
        now_ns = sh_lane_now(lane);
    }
    return false;
}

/* Waits in the queue until the baton is taken (true), or the waiter is done or the time is over
 * (false). */
static bool queue_wait(struct sh_crew_lane *lane, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    struct sh_lane_queued queued = {.waiter = waiter};
    bool taken = false;
    queue_enter(lane, &queued);
    if (atomic_load_explicit(&lane->word, memory_order_relaxed) & SH_LANE_OWN_HOLDS) {
        taken = take_from_own(lane, waiter);
    }
    while (!taken && !sh_waiter_done(waiter)) {
        uint64_t now_ns = deadline_ns == SH_NEVER ? 0 : sh_lane_now(lane);
        taken = sh_lane_take(lane, 0);
        if (taken || now_ns >= deadline_ns) {
            break;
        }
        waiter_sleep(waiter, left_ns(now_ns, deadline_ns));
    }
    (void)queue_exit(lane, &queued);
    return taken;
}

/* Runs the lane's steps until the waiter is done (true) or the time is over (false). */
static bool lend(struct sh_crew_lane *lane, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    atomic_fetch_add_explicit(&lane->tenures, 1, memory_order_relaxed);
    sh_lane_awake_set(lane, true);
    lane->silent = false;
    atomic_store_explicit(&waiter->lane, lane, memory_order_relaxed);
    /* Done already or not, one round is due: taking the baton cleared NOTED. */
    (void)waiter_set(waiter, SH_WAITER_RUNNER);
    for (uint64_t rounds = 1;; rounds++) {
        /* Before each round, so that a note left behind means work that no round has met, and the
         * own thread need not be woken for it. */
        (void)sh_lane_note_take(lane);
        bool worked = sh_lane_round(lane);
        sh_lane_count(&lane->lent_rounds);
        if (sh_waiter_done(waiter)) {
            return true;
        }
        if (worked && rounds % ROUNDS_PER_LOOK != 0) {
            continue;
        }
        uint64_t now_ns = sh_lane_now(lane);
        if (now_ns >= deadline_ns) {
            return !waiter_set(waiter, SH_WAITER_PENDING);
        }
        enum sh_lane_rest rest = worked ? SH_REST_NONE : sh_lane_idle(lane, now_ns, true);
        if (rest != SH_REST_NONE) {
            uint64_t rest_ns = sh_lane_rest_ns(lane, rest, now_ns, deadline_ns);
            sh_lane_rest_holding(lane, rest, rest_ns);
        }
    }
}

/* Of a crew that does not lend: spins as the policy says, then sleeps. */
static bool wait_only(struct sh_crew_lane *lane, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    const struct sh_crew_config *config = &lane->crew->config;
    uint64_t start_ns = sh_lane_now(lane);
    for (uint64_t now_ns = start_ns;; now_ns = sh_lane_now(lane)) {
        if (sh_waiter_done(waiter)) {
            return true;
        }
        if (now_ns >= deadline_ns) {
            return !waiter_set(waiter, SH_WAITER_PENDING);
        }
        if (now_ns - start_ns < config->idle.spin_ns &&
            (config->spin_forced || !sh_crowded(now_ns))) {
            sh_cpu_relax();
        } else {
            waiter_sleep(waiter, left_ns(now_ns, deadline_ns));
        }
    }
}

bool sh_crew_wait(struct sh_crew *crew, unsigned thread, struct sh_waiter *waiter,
                  uint64_t deadline_ns)
{
    SH_ASSERT(thread < crew->config.threads);
    SH_ASSERT(sh_lane_running == NULL);
    struct sh_crew_lane *lane = &crew->lanes[thread];
    if (sh_waiter_done(waiter)) {
        return true;
    }
    if (crew->config.world != NULL) {
        return crew->config.world->wait(crew->config.world->arg, waiter, deadline_ns);
    }
    if (!crew->config.lends) {
        return wait_only(lane, waiter, deadline_ns);
    }
    if (!sh_lane_take(lane, 0) && !queue_wait(lane, waiter, deadline_ns)) {
        return sh_waiter_done(waiter);
    }
    bool done = lend(lane, waiter, deadline_ns);
    sh_lane_leave(lane);
    return done;
}
