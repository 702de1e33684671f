#include "base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 5000

struct shared {
    struct sh_lock lock;
    struct sh_spin spin;
    /* Plain words on purpose: only the locks keep the threads apart. */
    uint64_t under_lock;
    uint64_t under_spin;
    _Atomic uint64_t tries_won;
};

static void *contend(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < ROUNDS; i++) {
        sh_lock_take(&shared->lock);
        sh_lock_assert_held(&shared->lock);
        shared->under_lock++;
        sh_spin_take(&shared->spin);
        sh_spin_assert_held(&shared->spin);
        shared->under_spin++;
        sh_spin_release(&shared->spin);
        sh_lock_release(&shared->lock);

        if (sh_spin_try(&shared->spin)) {
            shared->under_spin++;
            sh_spin_release(&shared->spin);
            /* relaxed: read after the join. */
            atomic_fetch_add_explicit(&shared->tries_won, 1, memory_order_relaxed);
        }
    }
    return NULL;
}

static void test_contended_sections_exclude(void **state)
{
    (void)state;
    struct shared shared = {.under_lock = 0};
    sh_lock_init(&shared.lock, SH_LOCK_STORE_IDS);
    sh_spin_init(&shared.spin, SH_LOCK_TEST);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, contend, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(shared.under_lock, THREADS * ROUNDS);
    assert_int_equal(shared.under_spin,
                     THREADS * ROUNDS +
                         atomic_load_explicit(&shared.tries_won, memory_order_relaxed));
    sh_lock_destroy(&shared.lock);
}

static void *try_both(void *arg)
{
    struct shared *shared = arg;
    bool lock_won = sh_lock_try(&shared->lock);
    bool spin_won = sh_spin_try(&shared->spin);
    if (spin_won)
        sh_spin_release(&shared->spin);
    if (lock_won)
        sh_lock_release(&shared->lock);
    shared->under_lock = lock_won;
    shared->under_spin = spin_won;
    return NULL;
}

static void try_in_a_thread(struct shared *shared)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, try_both, shared), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_try_fails_only_while_taken(void **state)
{
    (void)state;
    struct shared shared = {.lock = SH_LOCK_STATIC(SH_LOCK_CREW)};
    sh_spin_init(&shared.spin, SH_LOCK_TEST);
    sh_lock_take(&shared.lock);
    sh_spin_take(&shared.spin);
    try_in_a_thread(&shared);
    assert_int_equal(shared.under_lock, 0);
    assert_int_equal(shared.under_spin, 0);
    sh_spin_release(&shared.spin);
    sh_lock_release(&shared.lock);
    try_in_a_thread(&shared);
    assert_int_equal(shared.under_lock, 1);
    assert_int_equal(shared.under_spin, 1);
    sh_lock_destroy(&shared.lock);
}

static void test_try_and_any_order_of_release(void **state)
{
    (void)state;
    struct sh_lock low, high;
    sh_lock_init(&low, SH_LOCK_CLIENT);
    sh_lock_init(&high, SH_LOCK_CREW);
    sh_lock_take(&high);
    assert_true(sh_lock_try(&low));
    sh_lock_release(&high);
    sh_lock_assert_held(&low);
    sh_lock_take(&high);
    sh_lock_release(&low);
    sh_lock_release(&high);
    sh_lock_destroy(&high);
    sh_lock_destroy(&low);
}

#ifdef SH_VERIFY_ON

static struct sh_lock outer, outer_twin, inner;
static struct sh_spin inner_spin;

static void take_falling_ranks(void)
{
    sh_lock_take(&inner);
    sh_lock_take(&outer);
}

static void take_equal_ranks(void)
{
    sh_lock_take(&outer);
    sh_lock_take(&outer_twin);
}

static void take_recursively(void)
{
    sh_lock_take(&outer);
    sh_lock_take(&outer);
}

static void take_below_a_try(void)
{
    if (sh_lock_try(&inner))
        sh_lock_take(&outer);
}

static void take_below_a_spin(void)
{
    sh_spin_take(&inner_spin);
    sh_lock_take(&outer);
}

static void release_unheld(void)
{
    sh_lock_release(&outer);
}

static void release_unheld_spin(void)
{
    sh_spin_release(&inner_spin);
}

static void assert_unheld(void)
{
    sh_lock_assert_held(&outer);
}

static void assert_unheld_spin(void)
{
    sh_spin_assert_held(&inner_spin);
}

static void take_rightly(void)
{
    sh_lock_take(&outer);
    sh_lock_take(&inner);
    sh_lock_release(&inner);
    sh_lock_release(&outer);
}

/* Runs it in a child; returns the signal that ended the child, or 0. */
static int signal_of(void (*misuse)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        int sink = open("/dev/null", O_WRONLY);
        if (sink >= 0)
            (void)dup2(sink, STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        misuse();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_misuse_aborts(void **state)
{
    (void)state;
    sh_lock_init(&outer, SH_LOCK_CLIENT);
    sh_lock_init(&outer_twin, SH_LOCK_CLIENT);
    sh_lock_init(&inner, SH_LOCK_STORE_IDS);
    sh_spin_init(&inner_spin, SH_LOCK_STORE_ALLOC);
    assert_int_equal(signal_of(take_rightly), 0);
    void (*const misuses[])(void) = {take_falling_ranks, take_equal_ranks,   take_recursively,
                                     take_below_a_try,   take_below_a_spin,  release_unheld,
                                     assert_unheld,      assert_unheld_spin, release_unheld_spin};
    for (size_t i = 0; i < sizeof misuses / sizeof misuses[0]; i++)
        assert_int_equal(signal_of(misuses[i]), SIGABRT);
}

#endif

/* The page's table has each row of locks.def, and ranks rise down the list. */
static void test_page_matches_the_table(void **state)
{
    (void)state;
    static const char *const rows[] = {
#define X(name, rank, guards) "| `" #name "` | " #rank " | " guards " |\n",
#include "base/locks.def"
#undef X
    };
    static const int ranks[] = {
#define X(name, rank, guards) rank,
#include "base/locks.def"
#undef X
    };
    const size_t count = sizeof ranks / sizeof ranks[0];
    char path[4096];
    const char *slash = strrchr(__FILE__, '/');
    assert_non_null(slash);
    snprintf(path, sizeof path, "%.*s/../../docs/locking.md", (int)(slash - __FILE__), __FILE__);
    FILE *page = fopen(path, "r");
    if (!page)
        fail_msg("%s cannot be read", path);
    size_t found = 0;
    char line[512];
    while (fgets(line, sizeof line, page))
        if (found < count && strcmp(line, rows[found]) == 0)
            found++;
    assert_int_equal(found, count);
    assert_int_equal(fclose(page), 0);
    for (size_t i = 1; i < count; i++)
        assert_true(ranks[i - 1] < ranks[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef SH_VERIFY_ON
        /* First: it forks, which wants a process without threads. */
        cmocka_unit_test(test_misuse_aborts),
#endif
        cmocka_unit_test(test_page_matches_the_table),
        cmocka_unit_test(test_contended_sections_exclude),
        cmocka_unit_test(test_try_fails_only_while_taken),
        cmocka_unit_test(test_try_and_any_order_of_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
