/* Locks with ranks (base/locks.def). Debug builds (SH_VERIFY_ON) keep the ranks that the thread
 * holds and assert that they only rise and that a lock is released by its holder.
 *
 * sh_lock sleeps when contended (a pthread mutex); sh_spin is for sections of a few dozen
 * instructions: it spins briefly, then yields, so that it stays correct where threads outnumber
 * cores. Neither is recursive. Never send, block or call back while holding one. */
#ifndef SH_BASE_LOCK_H
#define SH_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum sh_lock_rank {
#define X(name, rank, guards) SH_LOCK_##name = rank,
#include "base/locks.def"
#undef X
};

struct sh_lock {
    pthread_mutex_t mutex;
    uint16_t rank;
};

/* For a lock of static storage: struct sh_lock lock = SH_LOCK_STATIC(SH_LOCK_LOG). */
#define SH_LOCK_STATIC(lock_rank)                                                                  \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (lock_rank)                                    \
    }

/* Rank must be one of locks.def. A lock must be free when it is destroyed. */
void sh_lock_init(struct sh_lock *lock, enum sh_lock_rank rank);
void sh_lock_destroy(struct sh_lock *lock);
void sh_lock_take(struct sh_lock *lock);
/* Takes the lock if it is free; any rank, since it can't deadlock. */
bool sh_lock_try(struct sh_lock *lock);
void sh_lock_release(struct sh_lock *lock);
/* Opens any function that needs the lock: asserts that this thread holds it (sh_spin_assert_held:
 * the same for a spin lock). Free in release builds. */
#ifdef SH_VERIFY_ON
void sh_lock_assert_held(const struct sh_lock *lock);
#else
static inline void sh_lock_assert_held(const struct sh_lock *lock)
{
    (void)lock;
}
#endif

/* For each round of a loop that spins: tells the core that it may serve its other thread. */
static inline void sh_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits a moment, for each round of a loop that waits for another thread to leave a section whose
 * length is bounded, at most a copy of some 100 KiB: a section in which that thread neither blocks
 * nor calls back. *spins counts the rounds, from 0. A thread that is still in it after SH_SPINS
 * rounds has lost its core: then this one sleeps, some 50 us each time, which takes no processor
 * time and lets the other go on, where to spin or to yield takes all that there is. */
#define SH_SPINS 128
void sh_spin_sleep(void);
static inline void sh_spin_wait(unsigned *spins)
{
    if (++*spins < SH_SPINS)
        sh_cpu_relax();
    else
        sh_spin_sleep();
}

struct sh_spin {
    _Atomic uint32_t taken;
    uint16_t rank;
};

void sh_spin_init(struct sh_spin *spin, enum sh_lock_rank rank);
void sh_spin_take(struct sh_spin *spin);
bool sh_spin_try(struct sh_spin *spin);
void sh_spin_release(struct sh_spin *spin);
#ifdef SH_VERIFY_ON
void sh_spin_assert_held(const struct sh_spin *spin);
#else
static inline void sh_spin_assert_held(const struct sh_spin *spin)
{
    (void)spin;
}
#endif

#endif
