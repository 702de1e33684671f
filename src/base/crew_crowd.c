#include <sched.h>
#include <sys/resource.h>

#include "base/crew_int.h"

/* A thread that spins while another waits for its core costs that one a scheduler slice of 2 to
 * 8 ms, a thousand times what the spin could save. Two signs tell:
 *
 *  - our own lanes that are awake outnumber the cores we may use;
 *  - this thread keeps losing its core: involuntary switches, or a sched_yield that came back late.
 *    Two spinning threads on one core lose it every 4 to 16 ms each; on a core to itself a thread
 *    loses it to kernel threads a few times a second.
 *
 * The second sign vanishes once we stop spinning, so it is remembered for a while, and longer each
 * time that it comes back. */
#define LOOK_NS UINT64_C(50000000)
#define LOSSES_MIN 3
#define LOSS_GAP_NS UINT64_C(17000000) /* on average one in less than this */
#define CALM_NS_MIN UINT64_C(200000000)
#define CALM_NS_MAX UINT64_C(3200000000)
#define YIELD_LATE_NS 50000

struct crowd {
    bool begun;
    bool losing;           /* the second sign was seen, until calm_ns */
    unsigned cores;        /* that this thread may use */
    unsigned late_yields;  /* since the last look */
    long switches;         /* involuntary ones, at the last look */
    uint64_t looked_ns;    /* time of the last look */
    uint64_t calm_ns;      /* when to try spinning again */
    uint64_t calm_next_ns; /* how long to wait the next time */
};

static _Atomic int lanes_awake;
static _Thread_local struct crowd crowd;

void sh_crowd_awake_add(int delta)
{
    atomic_fetch_add_explicit(&lanes_awake, delta, memory_order_relaxed);
}

static unsigned cores_allowed(void)
{
    cpu_set_t set;
    /* Fails where the machine has more cores than the set has bits: then they are plenty. */
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return CPU_SETSIZE;
    }
    return (unsigned)CPU_COUNT(&set);
}

static long switches_forced(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static void crowd_look(uint64_t now_ns)
{
    long switches = switches_forced();
    uint64_t losses = (uint64_t)(switches - crowd.switches) + crowd.late_yields;
    uint64_t elapsed_ns = now_ns - crowd.looked_ns;
    bool begun = crowd.begun;

    crowd.begun = true;
    crowd.cores = cores_allowed();
    crowd.switches = switches;
    crowd.late_yields = 0;
    crowd.looked_ns = now_ns;
    if (!begun) {
        crowd.calm_next_ns = CALM_NS_MIN;
        return;
    }
    if (losses >= LOSSES_MIN && elapsed_ns / losses < LOSS_GAP_NS) {
        crowd.calm_ns = now_ns + crowd.calm_next_ns;
        /* Doubled only when it follows a fresh try, not while we already keep calm. */
        if (!crowd.losing && crowd.calm_next_ns < CALM_NS_MAX) {
            crowd.calm_next_ns *= 2;
        }
        crowd.losing = true;
    } else if (crowd.losing && now_ns >= crowd.calm_ns) {
        crowd.losing = false;
    } else if (!crowd.losing && now_ns - crowd.calm_ns > CALM_NS_MAX) {
        crowd.calm_next_ns = CALM_NS_MIN;
    }
}

bool sh_crowded(uint64_t now_ns)
{
    if (!crowd.begun || now_ns - crowd.looked_ns >= LOOK_NS) {
        crowd_look(now_ns);
    }
    int awake = atomic_load_explicit(&lanes_awake, memory_order_relaxed);
    return crowd.losing || (awake > 0 && (unsigned)awake > crowd.cores);
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void sh_crowd_yield(void)
{
    uint64_t before_ns = monotonic_ns();
    sched_yield();
    if (monotonic_ns() - before_ns > YIELD_LATE_NS) {
        crowd.late_yields++;
    }
}
