#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/process_int.h"
#include "cmd/state_int.h"

static char folder[SH_STATE_PATH_MAX];

static int folder_make(void **state)
{
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.900s/shoal-state.XXXXXX", parent ? parent : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void write_file(const char *name, const char *suffix, const char *text)
{
    char path[SH_STATE_PATH_MAX + 64];
    sh_state_path(folder, name, suffix, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void the_note_comes_back(void **state)
{
    (void)state;
    struct sh_state saved, read;
    char detail[SH_STATE_TEXT_MAX], addresses[256];
    assert_int_equal(sh_state_read(folder, &read, detail), SHOAL_ENONAME);
    assert_int_equal(sh_state_create(&saved), SHOAL_OK);
    snprintf(saved.cluster, sizeof saved.cluster, "mine");
    saved.complete = true;
    saved.count = 2;
    saved.nodes[0] = (struct sh_state_node){.name = "superpeer1",
                                            .superpeer = true,
                                            .pid = 4242,
                                            .started = 77,
                                            .nid = {1},
                                            .address = "127.0.0.1:5"};
    saved.nodes[1] = (struct sh_state_node){.name = "peer1", .pid = 4243, .started = 78};
    assert_int_equal(sh_state_write(folder, &saved, detail), SHOAL_OK);
    assert_int_equal(sh_state_read(folder, &read, detail), SHOAL_OK);
    assert_int_equal(read.count, 2);
    assert_string_equal(read.cluster, "mine");
    assert_true(read.complete && !read.made_folder);
    assert_memory_equal(&read.nodes[0], &saved.nodes[0], sizeof *read.nodes);
    assert_memory_equal(&read.nodes[1], &saved.nodes[1], sizeof *read.nodes);
    sh_state_addresses(&read, 0, addresses, sizeof addresses);
    assert_string_equal(addresses, "127.0.0.1:5");
    sh_state_clear(folder, &read);
    assert_int_equal(sh_state_read(folder, &read, detail), SHOAL_ENONAME);
    sh_state_free(&saved);
    sh_state_free(&read);
}

static void damaged_notes_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"version\":2,\"nodes\":[]}",
        "{\"version\":1,\"nodes\":[{\"name\":\"../x\",\"role\":\"peer\",\"pid\":5}]}",
        "{\"version\":1,\"nodes\":[{\"name\":\"x\",\"role\":\"peer\",\"pid\":1}]}",
        "{\"version\":1,\"nodes\":[{\"name\":\"x\",\"role\":\"peer\",\"pid\":99999999999}]}",
    };
    char path[SH_STATE_PATH_MAX + 64];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sh_state read;
        char detail[SH_STATE_TEXT_MAX] = "";
        write_file("cluster", "json", bad[i]);
        assert_int_equal(sh_state_read(folder, &read, detail), SHOAL_ECORRUPT);
        assert_non_null(strstr(detail, "cluster.json:"));
    }
    sh_state_path(folder, "cluster", "json", path);
    unlink(path);
}

static void the_folder_is_found(void **state)
{
    (void)state;
    char found[SH_STATE_PATH_MAX], detail[SH_STATE_TEXT_MAX], expected[SH_STATE_PATH_MAX];
    setenv("SHOAL_STATE_DIR", "/somewhere", 1);
    assert_int_equal(sh_state_folder("/else", found, detail), SHOAL_OK);
    assert_string_equal(found, "/else");
    assert_int_equal(sh_state_folder(NULL, found, detail), SHOAL_OK);
    assert_string_equal(found, "/somewhere");
    unsetenv("SHOAL_STATE_DIR");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    snprintf(expected, sizeof expected, "%.1000s/shoal", folder);
    assert_int_equal(sh_state_folder(NULL, found, detail), SHOAL_OK);
    assert_string_equal(found, expected);
    /* In a place that others can write to, it must be ours alone. */
    assert_int_equal(mkdir(expected, 0755), 0);
    assert_int_equal(sh_state_folder(NULL, found, detail), SHOAL_EIO);
    assert_non_null(strstr(detail, "yours alone"));
    assert_int_equal(chmod(expected, 0700), 0);
    assert_int_equal(sh_state_folder(NULL, found, detail), SHOAL_OK);
    assert_int_equal(rmdir(expected), 0);
}

static void the_lock_excludes_others(void **state)
{
    (void)state;
    int lock, other;
    char detail[SH_STATE_TEXT_MAX];
    assert_int_equal(sh_state_lock(folder, &lock, detail), SHOAL_OK);
    assert_int_equal(sh_state_lock(folder, &other, detail), SHOAL_EBUSY);
    close(lock);
    assert_int_equal(sh_state_lock(folder, &other, detail), SHOAL_OK);
    close(other);
}

/* A process of `sleep`, noted as a node; its log is removed with the rest. */
static void start_sleeper(struct sh_state *cluster, const char *name, bool superpeer)
{
    char detail[256], log[SH_STATE_PATH_MAX + 64];
    const char *argv[] = {"sleep", "600", NULL};
    struct sh_state_node *node = &cluster->nodes[cluster->count++];
    snprintf(node->name, sizeof node->name, "%s", name);
    node->superpeer = superpeer;
    sh_state_path(folder, name, "log", log);
    assert_int_equal(sh_process_start(argv, log, &node->pid, &node->started, detail), SHOAL_OK);
    assert_true(node->started != 0 && sh_process_runs(node->pid, node->started));
}

static void processes_start_and_stop(void **state)
{
    (void)state;
    struct sh_state cluster;
    assert_int_equal(sh_state_create(&cluster), SHOAL_OK);
    start_sleeper(&cluster, "superpeer1", true);
    start_sleeper(&cluster, "peer1", false);
    assert_int_equal(sh_state_running(&cluster), 2);
    /* A session of its own: a hang-up of our terminal does not reach it. */
    assert_int_equal(getsid(cluster.nodes[0].pid), cluster.nodes[0].pid);
    assert_int_equal(sh_state_stop(&cluster, 30000), 0);
    assert_int_equal(sh_state_running(&cluster), 0);
    sh_state_clear(folder, &cluster);
    sh_state_free(&cluster);
}

static void a_recycled_id_is_left_alone(void **state)
{
    (void)state;
    struct sh_state cluster;
    assert_int_equal(sh_state_create(&cluster), SHOAL_OK);
    start_sleeper(&cluster, "peer1", false);
    struct sh_state_node *node = &cluster.nodes[0];
    uint64_t started = node->started;
    /* The note is of an earlier process with the same ID. */
    node->started = started - 1;
    assert_int_equal(sh_state_running(&cluster), 0);
    assert_false(sh_process_signal(node->pid, node->started, SIGKILL));
    assert_int_equal(sh_state_stop(&cluster, 1000), 0);
    assert_true(sh_process_runs(node->pid, started));
    node->started = started;
    assert_int_equal(sh_state_stop(&cluster, 30000), 0);
    assert_false(sh_process_runs(node->pid, started));
    sh_state_clear(folder, &cluster);
    sh_state_free(&cluster);
}

static void a_missing_program_is_told(void **state)
{
    (void)state;
    char detail[256], log[SH_STATE_PATH_MAX + 64];
    const char *argv[] = {"/nowhere/shoald", NULL};
    pid_t pid;
    uint64_t started;
    sh_state_path(folder, "peer1", "log", log);
    assert_int_equal(sh_process_start(argv, log, &pid, &started, detail), SHOAL_EIO);
    assert_non_null(strstr(detail, "/nowhere/shoald could not be run: No such file"));
    unlink(log);
}

static void tails_are_the_last_lines(void **state)
{
    (void)state;
    char path[SH_STATE_PATH_MAX + 64], text[64];
    write_file("peer1", "log", "one\ntwo\nthree\n\n");
    sh_state_path(folder, "peer1", "log", path);
    sh_file_tail(path, 2, text, sizeof text);
    assert_string_equal(text, "two\nthree");
    sh_file_tail(path, 9, text, sizeof text);
    assert_string_equal(text, "one\ntwo\nthree");
    sh_file_tail(path, 9, text, 8);
    assert_string_equal(text, "three");
    unlink(path);
    sh_file_tail(path, 9, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_note_comes_back),       cmocka_unit_test(damaged_notes_are_refused),
        cmocka_unit_test(the_folder_is_found),       cmocka_unit_test(the_lock_excludes_others),
        cmocka_unit_test(processes_start_and_stop),  cmocka_unit_test(a_recycled_id_is_left_alone),
        cmocka_unit_test(a_missing_program_is_told), cmocka_unit_test(tails_are_the_last_lines),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
