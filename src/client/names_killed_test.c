/* A process that sets names in a store of its own is killed, again and again, while its journal is small and so
 * takes one snapshot after the other: all that was acknowledged is found, in order. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/folder_test.h"
#include "base/random_test.h"
#include "client/client_int.h"
#include "client/names_durable_int.h"
#include "shoal/names.h"

#define NAMES 50u
#define CALLS 16u /* under way at a time */
#define ROUNDS 6u

static enum shoal_err try_open(shoal **store_out)
{
    const struct shoal_options options = {
        .data_dir = folder, .store_bytes_max = 64 << 20, .small_pages = true};
    const struct sh_durable_sizes sizes = {.names_segment_bytes = 16 << 10,
                                           .names_bytes_kept = 64 << 10};
    return sh_embedded_open(&options, &sizes, store_out);
}

static shoal *open_store(void)
{
    shoal *store;
    enum shoal_err err = try_open(&store);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), shoal_error_detail());
    return store;
}

/* The n-th change of a round: which name, and whose it is then (0: nobody's). */
struct change {
    char name[16];
    shoal_cid cid;
    enum shoal_name_if when;
};

static struct change change_draw(uint64_t *seed)
{
    struct change change = {.when = SHOAL_NAME_ALWAYS};
    snprintf(change.name, sizeof change.name, "n%u", (unsigned)(test_draw(seed) % NAMES));
    if (test_draw(seed) % 4)
        change.cid.v = 1 + test_draw(seed) % 100000;
    if (change.cid.v && test_draw(seed) % 4 == 0)
        change.when = SHOAL_NAME_ABSENT;
    return change;
}

static enum shoal_err change_begin(shoal *store, const struct change *change,
                                   struct shoal_call *call)
{
    return change->cid.v
               ? shoal_name_set_async(store, change->name, change->cid, change->when,
                                      SHOAL_CID_NONE, call)
               : shoal_name_remove_async(store, change->name, change->when, SHOAL_CID_NONE, call);
}

/* Changes names until it is killed; writes a byte for each that has ended, in their order. */
static void victim(int out, uint64_t seed)
{
    static struct shoal_call calls[CALLS];
    shoal *store;
    if (try_open(&store))
        _exit(1);
    for (unsigned i = 0;; i++) {
        struct shoal_call *call = &calls[i % CALLS];
        const struct change change = change_draw(&seed);
        if (i >= CALLS) {
            enum shoal_err err = shoal_wait(store, call);
            if (err && err != SHOAL_EEXIST && err != SHOAL_ENONAME)
                _exit(2);
            if (write(out, "x", 1) != 1)
                _exit(3);
        }
        *call = (struct shoal_call){.done = NULL};
        if (change_begin(store, &change, call))
            _exit(4);
    }
}

static void model_apply(uint64_t cids[NAMES], const struct change *change)
{
    uint64_t *cid = &cids[strtoul(change->name + 1, NULL, 10)];
    if (!*cid || change->when != SHOAL_NAME_ABSENT)
        *cid = change->cid.v;
}

static bool is_found(shoal *store, const uint64_t cids[NAMES])
{
    for (unsigned i = 0; i < NAMES; i++) {
        char name[16];
        shoal_cid cid = {0};
        snprintf(name, sizeof name, "n%u", i);
        enum shoal_err err = shoal_name_get(store, name, &cid);
        assert_true(err == SHOAL_OK || err == SHOAL_ENONAME);
        if (cid.v != cids[i])
            return false;
    }
    return true;
}

/* Runs a victim until so many of its changes were acknowledged; returns how many were. */
static unsigned victim_kill(uint64_t seed, unsigned most)
{
    int ends[2], status;
    unsigned count = 0;
    char x;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        victim(ends[1], seed);
    }
    close(ends[1]);
    while (read(ends[0], &x, 1) == 1) {
        if (++count == most)
            kill(pid, SIGKILL);
    }
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(count >= most);
    return count;
}

static void test_killed(void **state)
{
    (void)state;
    uint64_t seed = test_seed(31), cids[NAMES] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t changes = test_draw(&seed);
        unsigned acked = victim_kill(changes, 50 + (unsigned)(test_draw(&seed) % 1500));
        shoal *store = open_store();
        unsigned i = 0;
        for (; i < acked; i++) {
            const struct change change = change_draw(&changes);
            model_apply(cids, &change);
        }
        while (!is_found(store, cids)) {
            /* Those under way, and one that has ended and of which nothing was written. */
            if (i++ == acked + CALLS + 1)
                fail_msg("round %u: other names are found than after %u changes", round, acked);
            const struct change change = change_draw(&changes);
            model_apply(cids, &change);
        }
        shoal_close(store);
    }
}

/* The journal does not grow with the changes. */
static void test_snapshots(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static struct shoal_call calls[CALLS];
    shoal *store = open_store();
    uint64_t seed = test_seed(32), cids[NAMES] = {0};
    for (unsigned i = 0; i < COUNT + CALLS; i++) {
        struct shoal_call *call = &calls[i % CALLS];
        if (i >= CALLS) {
            enum shoal_err err = shoal_wait(store, call);
            assert_true(err == SHOAL_OK || err == SHOAL_EEXIST || err == SHOAL_ENONAME);
        }
        if (i >= COUNT)
            continue;
        const struct change change = change_draw(&seed);
        model_apply(cids, &change);
        *call = (struct shoal_call){.done = NULL};
        assert_int_equal(change_begin(store, &change, call), SHOAL_OK);
    }
    assert_true(is_found(store, cids));
    shoal_close(store);
    unsigned segments = 0;
    DIR *listed = opendir(folder);
    assert_non_null(listed);
    for (const struct dirent *entry; (entry = readdir(listed));)
        segments += strncmp(entry->d_name, "journal.", 8) == 0;
    closedir(listed);
    assert_in_range(segments, 2, 40);
    store = open_store();
    assert_true(is_found(store, cids));
    shoal_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_snapshots, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
