/* What the tests of crews share: crews of one thread with one step, and waiting on them. */
#ifndef SH_BASE_CREW_TEST_H
#define SH_BASE_CREW_TEST_H

#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crew.h"

#define MS UINT64_C(1000000)
/* Generous: reached only by a test that fails. */
#define PATIENCE_NS (60000 * MS)

static inline uint64_t now_ns(void *arg)
{
    struct timespec now;
    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static const struct sh_idle_policy sleeper = {.spin_ns = 0, .park_ns = 0, .silence_ns = 0};
/* Through every stage within microseconds, so that stress meets all the transitions. */
static const struct sh_idle_policy mixed = {.spin_ns = 2000, .park_ns = 5000, .silence_ns = 20000};
static const struct sh_idle_policy usual = {
    .spin_ns = 20000, .park_ns = 20000, .silence_ns = 1000 * MS};

/* A parker on an eventfd, as a transport would have one on its epoll. */

static inline void eventfd_poll(int fd, uint64_t timeout_ns)
{
    struct pollfd waited = {.fd = fd, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000U),
                             .tv_nsec = (long)(timeout_ns % 1000000000U)};
    (void)ppoll(&waited, 1, timeout_ns == SH_NEVER ? NULL : &limit, NULL);
}

static inline void parker_wait(void *arg, uint64_t timeout_ns)
{
    uint64_t count;
    int fd = *(int *)arg;
    eventfd_poll(fd, timeout_ns);
    (void)!read(fd, &count, sizeof count);
}

static inline void parker_watch(void *arg, uint64_t timeout_ns)
{
    eventfd_poll(*(int *)arg, timeout_ns);
}

static inline void parker_wake(void *arg)
{
    uint64_t one = 1;
    (void)!write(*(int *)arg, &one, sizeof one);
}

/* A crew of one thread with one step. */

struct rig {
    struct sh_crew *crew;
    int fd; /* of the parker; -1: none */
};

static inline void rig_make(struct rig *rig, struct sh_crew_config config, bool with_parker,
                            struct sh_step step)
{
    config.name = config.name != NULL ? config.name : "test";
    config.threads = 1;
    config.now_ns = now_ns;
    rig->fd = -1;
    assert_int_equal(sh_crew_create(&config, &rig->crew), SHOAL_OK);
    sh_crew_step_add(rig->crew, 0, step);
    if (with_parker) {
        rig->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        assert_true(rig->fd >= 0);
        sh_crew_parker_set(
            rig->crew, 0,
            (struct sh_parker){
                .wait = parker_wait, .watch = parker_watch, .wake = parker_wake, .arg = &rig->fd});
    }
}

static inline void rig_end(struct rig *rig)
{
    sh_crew_destroy(rig->crew);
    if (rig->fd >= 0) {
        close(rig->fd);
    }
}

/* Polls a counter until it has reached a value; fails after PATIENCE_NS. */
static inline void await(const _Atomic uint64_t *value, uint64_t at_least)
{
    uint64_t start_ns = now_ns(NULL);
    while (atomic_load(value) < at_least) {
        assert_true(now_ns(NULL) - start_ns < PATIENCE_NS);
        sched_yield();
    }
}

#endif
