/* Shared by the tests of libshoal: nodes in this process, nodes in processes of their own that can
 * be stopped and killed, and the time. */
#ifndef SH_TESTS_CLIENT_RIG_H
#define SH_TESTS_CLIENT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client.h"
#include "env/env.h"
#include "node/node.h"

#define DEADLINE_NS UINT64_C(60000000000)
#define MS UINT64_C(1000000)
#define RIG __attribute__((unused)) static

RIG uint64_t rig_now(void)
{
    struct sh_clock clock = sh_real_clock();
    return sh_now(&clock);
}

/* --- Nodes in this process ----------------------------------------------------------------- */

struct rig_node {
    struct sh_options options;
    struct sh_node_run *node;
};

RIG void rig_set(struct sh_options *options, const char *name, const char *value)
{
    struct sh_options_error error;
    assert_int_equal(sh_options_set(options, name, value, "test", &error), SHOAL_OK);
}

RIG void rig_node_run(struct rig_node *running, const char *role, const char *listen,
                      const char *superpeers)
{
    char detail[256];
    assert_int_equal(sh_options_init(&running->options), SHOAL_OK);
    rig_set(&running->options, "roles", role);
    rig_set(&running->options, "registry", "memory");
    rig_set(&running->options, "listen", listen);
    rig_set(&running->options, "superpeers", superpeers);
    rig_set(&running->options, "store_bytes_max", "32MiB");
    rig_set(&running->options, "heartbeat_ns", "50ms");
    rig_set(&running->options, "failure_ns", "3s");
    assert_int_equal(sh_node_create(&running->options, &running->node, detail), SHOAL_OK);
    assert_int_equal(sh_node_start(running->node), SHOAL_OK);
    assert_true(sh_node_wait_ready(running->node));
}

RIG void rig_node_end(struct rig_node *running)
{
    sh_node_stop(running->node);
    assert_int_equal(sh_node_wait_stopped(running->node), SHOAL_OK);
    sh_node_destroy(running->node);
    sh_options_destroy(&running->options);
    running->node = NULL;
}

/* --- Nodes in processes of their own ------------------------------------------------------- */

struct rig_process {
    pid_t pid;
    shoal_nid nid;
    char address[SH_MSG_ADDRESS_MAX];
};

/* Starts a node by forking: to be called while this process has one thread. */
RIG void rig_spawn(struct rig_process *process, const char *role, const char *superpeers)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    process->pid = fork();
    assert_true(process->pid >= 0);
    if (process->pid == 0) {
        static struct rig_node running;
        char report[SH_MSG_ADDRESS_MAX + sizeof(shoal_nid)] = {0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig_node_run(&running, role, "127.0.0.1:0", superpeers);
        shoal_nid nid = sh_node_nid(running.node);
        memcpy(report, &nid, sizeof nid);
        memcpy(report + sizeof nid, sh_node_address(running.node),
               strlen(sh_node_address(running.node)));
        if (write(ends[1], report, sizeof report) != (ssize_t)sizeof report)
            _exit(1);
        for (;;)
            pause();
    }
    char report[SH_MSG_ADDRESS_MAX + sizeof(shoal_nid)];
    close(ends[1]);
    assert_int_equal(read(ends[0], report, sizeof report), sizeof report);
    close(ends[0]);
    memcpy(&process->nid, report, sizeof process->nid);
    memcpy(process->address, report + sizeof process->nid, sizeof process->address);
}

RIG void rig_kill(struct rig_process *process)
{
    if (process->pid <= 0)
        return;
    assert_int_equal(kill(process->pid, SIGKILL), 0);
    assert_int_equal(waitpid(process->pid, NULL, 0), process->pid);
    process->pid = 0;
}

/* Stops a process, so that its sockets stay open and nothing is read; returns once it stands. */
RIG void rig_freeze(const struct rig_process *process)
{
    int status;
    assert_int_equal(kill(process->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(process->pid, &status, WUNTRACED), process->pid);
    assert_true(WIFSTOPPED(status));
}

RIG void rig_thaw(const struct rig_process *process)
{
    assert_int_equal(kill(process->pid, SIGCONT), 0);
}

/* A superpeer and two peers, a process each. */
struct rig_cluster {
    struct rig_process superpeer, peers[2];
};

RIG void rig_cluster_spawn(struct rig_cluster *cluster)
{
    rig_spawn(&cluster->superpeer, "superpeer", "");
    for (int i = 0; i < 2; i++)
        rig_spawn(&cluster->peers[i], "peer", cluster->superpeer.address);
}

RIG void rig_cluster_kill(struct rig_cluster *cluster)
{
    for (int i = 0; i < 2; i++)
        rig_kill(&cluster->peers[i]);
    rig_kill(&cluster->superpeer);
}

RIG shoal *rig_open(const char *address, uint64_t timeout_ns)
{
    struct shoal_options options = {
        .addresses = address, .timeout_ns = timeout_ns, .store_bytes_max = 32 << 20};
    shoal *store = NULL;
    enum shoal_err err = shoal_open(&options, &store);
    if (err != SHOAL_OK)
        print_message("%s %s\n", shoal_err_name(err), shoal_error_detail());
    assert_int_equal(err, SHOAL_OK);
    return store;
}

#endif
