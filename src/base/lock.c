#include "base/lock.h"

#include <time.h>

#include "base/assert.h"

/* Spinning this many rounds covers a section of a few dozen instructions; a holder that takes
 * longer has most likely lost its core, and then only yielding gives it back. */
#define SLEEP_NS 20000

#ifdef SH_VERIFY_ON

/* Ranks only rise, so a thread holds no more locks than there are ranks, and those taken by
 * sh_lock_try; the bound is generous for both. */
#define HELD_MAX 64

struct held {
    const void *lock;
    uint16_t rank;
};

static _Thread_local struct held held[HELD_MAX];
static _Thread_local unsigned held_count;

static void held_check_rises(uint16_t rank)
{
    for (unsigned i = 0; i < held_count; i++)
        SH_ASSERT(held[i].rank < rank);
}

static void held_push(const void *lock, uint16_t rank)
{
    SH_ASSERT(held_count < HELD_MAX);
    held[held_count++] = (struct held){lock, rank};
}

static bool held_has(const void *lock)
{
    for (unsigned i = 0; i < held_count; i++)
        if (held[i].lock == lock)
            return true;
    return false;
}

static void held_pop(const void *lock)
{
    bool thread_holds_the_lock = held_has(lock);
    SH_ASSERT(thread_holds_the_lock);
    unsigned at = 0;
    while (held[at].lock != lock)
        at++;
    /* Order does not matter to the checks: the last entry fills the gap. */
    held[at] = held[--held_count];
}

void sh_lock_assert_held(const struct sh_lock *lock)
{
    bool thread_holds_the_lock = held_has(lock);
    SH_ASSERT(thread_holds_the_lock);
}

void sh_spin_assert_held(const struct sh_spin *spin)
{
    bool thread_holds_the_lock = held_has(spin);
    SH_ASSERT(thread_holds_the_lock);
}

#else

static inline void held_check_rises(uint16_t rank)
{
    (void)rank;
}

static inline void held_push(const void *lock, uint16_t rank)
{
    (void)lock;
    (void)rank;
}

static inline void held_pop(const void *lock)
{
    (void)lock;
}

#endif

void sh_lock_init(struct sh_lock *lock, enum sh_lock_rank rank)
{
    SH_ASSERT(rank > 0 && rank <= UINT16_MAX);
    int failure = pthread_mutex_init(&lock->mutex, NULL);
    SH_ASSERT(failure == 0);
    lock->rank = (uint16_t)rank;
}

void sh_lock_destroy(struct sh_lock *lock)
{
    int failure = pthread_mutex_destroy(&lock->mutex);
    SH_ASSERT(failure == 0);
}

void sh_lock_take(struct sh_lock *lock)
{
    /* Before waiting: a thread that is about to deadlock must say so and not hang. */
    held_check_rises(lock->rank);
    int failure = pthread_mutex_lock(&lock->mutex);
    SH_ASSERT(failure == 0);
    held_push(lock, lock->rank);
}

bool sh_lock_try(struct sh_lock *lock)
{
    if (pthread_mutex_trylock(&lock->mutex) != 0)
        return false;
    held_push(lock, lock->rank);
    return true;
}

void sh_lock_release(struct sh_lock *lock)
{
    held_pop(lock);
    int failure = pthread_mutex_unlock(&lock->mutex);
    SH_ASSERT(failure == 0);
}

void sh_spin_init(struct sh_spin *spin, enum sh_lock_rank rank)
{
    SH_ASSERT(rank > 0 && rank <= UINT16_MAX);
    atomic_init(&spin->taken, 0);
    spin->rank = (uint16_t)rank;
}

void sh_spin_sleep(void)
{
    struct timespec moment = {.tv_nsec = SLEEP_NS};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL); /* a signal only ends it early */
}

static bool spin_grab(struct sh_spin *spin)
{
    /* acquire: what the last holder wrote; pairs with release in sh_spin_release */
    return atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) == 0;
}

void sh_spin_take(struct sh_spin *spin)
{
    held_check_rises(spin->rank);
    unsigned rounds = 0;
    while (!spin_grab(spin)) {
        /* relaxed: only waits without claiming the line; spin_grab orders. */
        while (atomic_load_explicit(&spin->taken, memory_order_relaxed) != 0) {
            sh_spin_wait(&rounds);
        }
    }
    held_push(spin, spin->rank);
}

bool sh_spin_try(struct sh_spin *spin)
{
    /* relaxed: a look that saves the exchange when taken; spin_grab orders. */
    if (atomic_load_explicit(&spin->taken, memory_order_relaxed) != 0 || !spin_grab(spin))
        return false;
    held_push(spin, spin->rank);
    return true;
}

void sh_spin_release(struct sh_spin *spin)
{
    held_pop(spin);
    /* release: the section's writes; pairs with acquire in spin_grab */
    atomic_store_explicit(&spin->taken, 0, memory_order_release);
}
