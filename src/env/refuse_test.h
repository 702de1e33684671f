/* A kernel that refuses a system call, as a container's filter does, or an old kernel. */
#ifndef SH_ENV_REFUSE_TEST_H
#define SH_ENV_REFUSE_TEST_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* From now on that call fails with this error number, in this process and for good; with is_second, only where its
 * second argument is `second`. False: there are no such filters here. */
static inline bool test_refuse(unsigned number, bool is_second, uint32_t second, unsigned code)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, is_second ? 3 : 1),
        is_second ? (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                 offsetof(struct seccomp_data, args[1]))
                  : (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, is_second ? 1 : 0),
        BPF_STMT(BPF_RET | BPF_K, is_second ? SECCOMP_RET_ERRNO | code : SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#define TEST_NO_FILTERS 77

/* Runs it in a process of its own, which may have the kernel refuse it something. It returns 0 when all was well,
 * TEST_NO_FILTERS where the kernel has no filters: the test is skipped. */
static inline void test_in_child(int (*run)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(run());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == TEST_NO_FILTERS)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
