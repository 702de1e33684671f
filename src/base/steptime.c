#include "base/steptime.h"

#include <pthread.h>
#include <time.h>

#include "base/assert.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#define CALIBRATION_NS 50000
#define PAIR_TRIES 16
/* How old the reading of the thread's processor time may be when a step begins. */
#define MARK_NS UINT64_C(100000)
/* Shorter runs are taken as the counter has them: no thread gets its core back sooner. */
#define EXACT_NS UINT64_C(20000)

struct sh_ticks_scale sh_ticks_scale = {
    .ns_q32 = UINT64_C(1) << 32, .share = SH_STEP_SHARE_NS, .group = SH_STEP_GROUP_NS};
_Thread_local bool sh_step_is_long;
_Thread_local uint64_t sh_step_share_end = UINT64_MAX;

/* Moments of this thread: the counter, and the processor time that it had had by then. One not long
 * before the step at hand began, and one where a run ended that was looked at. */
struct moment {
    uint64_t ticks;
    uint64_t cpu_ns;
};
static _Thread_local struct moment mark, recent;
static uint64_t mark_ticks = MARK_NS;

static uint64_t ticks_of(uint64_t ns, uint64_t ns_q32)
{
    return (uint64_t)(((unsigned __int128)ns << 32) / ns_q32);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#ifdef __x86_64__
static bool counter_is_steady(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
}

/* Counter and clock of one moment: of some tries the one that was interrupted least. */
static uint64_t pair_read(uint64_t *clock_out)
{
    uint64_t best = 0, least = UINT64_MAX;
    for (unsigned i = 0; i < PAIR_TRIES; i++) {
        uint64_t before = __rdtsc(), now_ns = clock_ns(CLOCK_MONOTONIC), after = __rdtsc();
        if (after - before < least) {
            least = after - before;
            best = before + least / 2;
            *clock_out = now_ns;
        }
    }
    return best;
}

static void calibrate(void)
{
    uint64_t from_ns, to_ns;
    if (!counter_is_steady()) {
        return;
    }
    uint64_t from = pair_read(&from_ns), to;
    do {
        to = pair_read(&to_ns);
    } while (to_ns - from_ns < CALIBRATION_NS);
    if (to - from < (to_ns - from_ns) / 16) {
        return; /* it stands still, or nearly so */
    }
    uint64_t ns_q32 = (uint64_t)(((unsigned __int128)(to_ns - from_ns) << 32) / (to - from));
    SH_ASSERT(ns_q32 > 0);
    sh_ticks_scale.ns_q32 = ns_q32;
    sh_ticks_scale.share = ticks_of(SH_STEP_SHARE_NS, ns_q32);
    sh_ticks_scale.group = ticks_of(SH_STEP_GROUP_NS, ns_q32);
    mark_ticks = ticks_of(MARK_NS, ns_q32);
    sh_ticks_scale.is_counter = true;
}
#else
static void calibrate(void) {}
#endif

uint64_t sh_ticks_of_clock(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

void sh_ticks_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, calibrate);
}

uint64_t sh_ticks_ns(uint64_t ticks)
{
    return (uint64_t)((unsigned __int128)ticks * sh_ticks_scale.ns_q32 >> 32);
}

void sh_step_begin(uint64_t now_ticks)
{
    if (now_ticks - mark.ticks > mark_ticks) {
        mark.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        mark.ticks = now_ticks;
    }
    sh_step_share_end = now_ticks + sh_ticks_scale.share;
}

void sh_step_time_note(struct sh_step_time *time, uint64_t began, uint64_t ended)
{
    uint64_t ticks = ended - began, ns = sh_ticks_ns(ticks);
    if (ticks > UINT64_MAX / 2) {
        return; /* cores whose counters differ by a little */
    }
    if (ns > EXACT_NS && mark.ticks != 0) {
        bool is_behind = recent.ticks > mark.ticks && recent.ticks <= began;
        uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        uint64_t took_ns = cpu_ns - (is_behind ? recent.cpu_ns : mark.cpu_ns);
        ns = took_ns < ns ? took_ns : ns;
        recent = (struct moment){.ticks = ended, .cpu_ns = cpu_ns};
    }
    /* relaxed, all: numbers for people */
    if (ns > SH_STEP_BOUND_NS) {
        atomic_fetch_add_explicit(&time->over, 1, memory_order_relaxed);
    }
    uint64_t longest_ns = atomic_load_explicit(&time->longest_ns, memory_order_relaxed);
    while (ns > longest_ns &&
           !atomic_compare_exchange_weak_explicit(&time->longest_ns, &longest_ns, ns,
                                                  memory_order_relaxed, memory_order_relaxed)) {
        continue;
    }
    longest_ns = ns > longest_ns ? ns : longest_ns;
    uint64_t least_ns = longest_ns < SH_STEP_BOUND_NS ? longest_ns : SH_STEP_BOUND_NS;
    atomic_store_explicit(&time->notable, ticks_of(least_ns, sh_ticks_scale.ns_q32),
                          memory_order_relaxed);
}

struct sh_step_report sh_step_time_get(const struct sh_step_time *time)
{
    return (struct sh_step_report){
        .longest_ns = atomic_load_explicit(&time->longest_ns, memory_order_relaxed),
        .over = atomic_load_explicit(&time->over, memory_order_relaxed),
    };
}

void sh_step_report_merge(struct sh_step_report *all, struct sh_step_report one)
{
    all->over += one.over;
    if (one.longest_ns > all->longest_ns) {
        all->longest_ns = one.longest_ns;
    }
}
