/* Ending a cluster on this machine: its processes, then its files. */
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/process_int.h"
#include "cmd/state_int.h"
#include "recover/home_log.h"

#define KILL_DEADLINE_MS 10000

size_t sh_state_running(const struct sh_state *state)
{
    size_t running = 0;
    for (size_t i = 0; i < state->count; i++)
        running += sh_process_runs(state->nodes[i].pid, state->nodes[i].started);
    return running;
}

/* Reaps those that are our own children, and counts those of one role that still run. */
static size_t running_of(const struct sh_state *state, bool superpeers)
{
    size_t running = 0;
    for (size_t i = 0; i < state->count; i++) {
        const struct sh_state_node *node = &state->nodes[i];
        waitpid(node->pid, NULL, WNOHANG);
        if (node->superpeer == superpeers)
            running += sh_process_runs(node->pid, node->started);
    }
    return running;
}

static void signal_all(const struct sh_state *state, bool superpeers, int number)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->nodes[i].superpeer == superpeers)
            sh_process_signal(state->nodes[i].pid, state->nodes[i].started, number);
}

static void wait_until_gone(const struct sh_state *state, bool superpeers, uint64_t deadline_ms)
{
    uint64_t end_ms = sh_process_now_ms() + deadline_ms;
    while (running_of(state, superpeers) > 0 && sh_process_now_ms() < end_ms)
        sh_process_pause();
}

size_t sh_state_stop(const struct sh_state *state, uint64_t deadline_ms)
{
    size_t forced = 0;
    /* Peers first: they take their leave from a superpeer. */
    for (int superpeers = 0; superpeers <= 1; superpeers++) {
        signal_all(state, superpeers, SIGTERM);
        wait_until_gone(state, superpeers, deadline_ms);
        size_t left = running_of(state, superpeers);
        if (left == 0)
            continue;
        forced += left;
        signal_all(state, superpeers, SIGKILL);
        wait_until_gone(state, superpeers, KILL_DEADLINE_MS);
    }
    return forced;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    /* What can't be removed is left; the folder is then not empty and stays as well. */
    (void)remove(path);
    return 0;
}

/* Who the peer was, its log, and what a superpeer that it was promoted to has in its folder: of a cluster that
 * is over. The next one's peer must not take them for its own, and would refuse the log. */
static void remove_of_cluster(const char *folder)
{
    static const char *const names[] = {"identity", SH_HOME_LOG_NAME};
    char path[SH_STATE_PATH_MAX + 96];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    for (unsigned i = 0; i < 1000; i++) { /* the journal's files have three digits */
        snprintf(path, sizeof path, "%s/journal.%03u", folder, i);
        unlink(path);
    }
}

void sh_state_clear(const char *folder, const struct sh_state *state)
{
    char path[SH_STATE_PATH_MAX + 64];
    for (size_t i = 0; i < state->count; i++) {
        static const char *const suffixes[] = {"log", "ready"};
        for (size_t s = 0; s < sizeof suffixes / sizeof *suffixes; s++) {
            sh_state_path(folder, state->nodes[i].name, suffixes[s], path);
            unlink(path);
        }
        sh_state_path(folder, state->nodes[i].name, "data", path);
        /* Dumps are somebody's to keep; without them a peer's folder is empty. */
        if (state->nodes[i].superpeer) {
            nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
        } else {
            remove_of_cluster(path);
            rmdir(path);
        }
    }
    sh_state_path(folder, "cluster", "json", path);
    unlink(path);
    if (state->made_folder)
        rmdir(folder);
}
