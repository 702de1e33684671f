/* The checkers of simulated clusters find mistakes that were planted (sim/planted): the quick ones,
 * within few seeds. tools/planted tries them all. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_BYTES 4096

/* Beside the folder of this program is bin/planted, with a simulator for each mistake. */
static void program_of(const char *name, char *path_out)
{
    char self[PATH_BYTES / 2];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(size > 0);
    self[size] = 0;
    *strrchr(self, '/') = 0;
    (void)snprintf(path_out, PATH_BYTES, "%s/../bin/planted/%s", self, name);
}

static void is_found(const char *name)
{
    char path[PATH_BYTES];
    program_of(name, path);
    if (access(path, X_OK)) /* there is no patch program here, so nothing was planted */
        skip();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(127);
        execl(path, name, "cluster", "--seed", "1", "--seeds", "40", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    /* A checker outside of the nodes found it, or an assertion inside. */
    bool is_asserted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    assert_true(is_asserted || (WIFEXITED(status) && WEXITSTATUS(status) == 1));
}

static void writes_during_a_move(void **state)
{
    (void)state;
    is_found("moves-writes-go-on");
}

static void two_owners(void **state)
{
    (void)state;
    is_found("moves-thaw-too-early");
}

static void an_id_given_out_twice(void **state)
{
    (void)state;
    is_found("store-reuses-ids");
}

static void a_condition_ignored(void **state)
{
    (void)state;
    is_found("names-condition-ignored");
}

static void a_barrier_too_early(void **state)
{
    (void)state;
    is_found("barrier-releases-early");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_during_a_move),  cmocka_unit_test(two_owners),
        cmocka_unit_test(an_id_given_out_twice), cmocka_unit_test(a_condition_ignored),
        cmocka_unit_test(a_barrier_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
