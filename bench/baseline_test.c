/* The baselines in miniature: they do what is asked, twice the same, and leave no process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/child.h"
#include "bench/cluster.h"
#include "bench/disk_base.h"
#include "bench/glib_base.h"
#include "bench/log_run.h"
#include "bench/nng_base.h"
#include "bench/redis_base.h"
#include "bench/redis_log_base.h"
#include "bench/redis_restart_base.h"
#include "bench/redis_server.h"
#include "bench/rocksdb_base.h"
#include "bench/rounds_base.h"
#include "bench/table_base.h"
#include "bench/tcp_base.h"
#include "bench/zeromq_base.h"

static struct sh_bench_result result;

static void no_child_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void tcp_counts_every_message(void **state)
{
    (void)state;
    static const struct sh_bench_flags shapes[] = {
        {.size = 64, .count = 501, .threads = 1, .outstanding = 1, .connections = 1},
        {.size = 64, .count = 2001, .threads = 2, .outstanding = 16, .connections = 2},
        {.size = 300000, .count = 40, .threads = 1, .outstanding = 4, .connections = 1},
        {.size = 1, .count = 3, .threads = 2, .outstanding = 8, .connections = 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct sh_bench_flags shape = shapes[i];
        memset(&result, 0, sizeof result);
        assert_int_equal(sh_tcp_base_request(&shape, &shape, SH_PLACE_FREE, &result), SHOAL_OK);
        assert_int_equal(result.ops, shape.count);
        assert_int_equal(result.latency_ns.count, shape.count);
        assert_int_equal(result.bytes, shape.count * shape.size);
        assert_true(result.cpu_ns > 0 && result.seconds > 0);
        uint64_t digest = result.digest;
        memset(&result, 0, sizeof result);
        assert_int_equal(sh_tcp_base_oneway(&shape, &shape, SH_PLACE_ONE_CORE, &result), SHOAL_OK);
        assert_int_equal(result.ops, shape.count);
        assert_true(result.digest == digest);
    }
    no_child_is_left();
}

static void tcp_runs_for_its_time(void **state)
{
    (void)state;
    struct sh_bench_flags shape = {
        .size = 64, .seconds = 0.02, .threads = 1, .outstanding = 2, .connections = 1};
    memset(&result, 0, sizeof result);
    assert_int_equal(sh_tcp_base_request(&shape, &shape, SH_PLACE_FREE, &result), SHOAL_OK);
    assert_true(result.ops > 0);
    assert_true(result.seconds >= 0.02);
}

/* Twice the bytes that are current: of the slots cleaned, nearly a fifth is still. And three quarters of them in
 * use, of a log that may be twice as large: 1.7, as theory has it. */
static void slots_cost_what_theory_says(void **state)
{
    (void)state;
    assert_float_equal(sh_log_theory(SH_REPLOG_OLDEST, 0.5), 1.255, 0.002);
    assert_float_equal(sh_log_theory(SH_REPLOG_OLDEST, 0.5 / 0.75), 1.716, 0.002);
    assert_float_equal(sh_log_theory(SH_REPLOG_OLDEST, 0.75), 2.199, 0.002);
    assert_float_equal(sh_log_theory(SH_REPLOG_COST_BENEFIT, 0.75), 2.199, 0.002);
    assert_float_equal(sh_log_theory(SH_REPLOG_RANDOM, 0.5 / 0.75), 3, 0.001);
    for (int selection = 0; selection < SH_REPLOG_SELECTIONS; selection++) {
        assert_float_equal(sh_log_theory((enum sh_replog_selection)selection, 0), 0, 0);
        assert_float_equal(sh_log_theory((enum sh_replog_selection)selection, 1), 0, 0);
    }
}

/* Each level, with more than one round's requests, and with none but the owner; and the files are gone. */
static void rounds_answer_every_request(void **state)
{
    (void)state;
    static const struct {
        unsigned replicas, outstanding;
        enum sh_rounds_level level;
    } cases[] = {{3, 64, SH_ROUNDS_DISK},
                 {3, 1, SH_ROUNDS_MEMORY},
                 {2, 300, SH_ROUNDS_ASYNC},
                 {0, 5, SH_ROUNDS_DISK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sh_rounds_shape shape = {.replicas = cases[i].replicas,
                                              .owner_writes = cases[i].replicas == 0,
                                              .level = cases[i].level,
                                              .request_bytes = 100,
                                              .answer_bytes = 30,
                                              .append_bytes = 64,
                                              .entry_bytes = 80,
                                              .confirm_bytes = 60,
                                              .written_bytes = 64,
                                              .outstanding_max = cases[i].outstanding};
        struct sh_rounds_base base;
        memset(&result, 0, sizeof result);
        assert_int_equal(sh_rounds_base_start(&base, &shape), SHOAL_OK);
        assert_int_equal(access(base.folder, F_OK), 0);
        char folder[sizeof base.folder];
        memcpy(folder, base.folder, sizeof folder);
        base.outstanding = cases[i].outstanding;
        base.seconds = 0.01;
        assert_int_equal(sh_rounds_base_run(&base, NULL, SH_PLACE_FREE, &result), SHOAL_OK);
        assert_true(result.ops >= cases[i].outstanding);
        assert_int_equal(result.latency_ns.count, result.ops);
        assert_true(result.cpu_ns > 0 && result.seconds >= 0.01);
        sh_rounds_base_stop(&base);
        assert_int_equal(access(folder, F_OK), -1);
    }
    no_child_is_left();
}

/* The two libraries, each where shoal was built with it. */
static void libraries_count_every_message(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* the libraries are not built with it, so it sees only half of what they do */
#endif
    static const sh_bench_run runs[][2] = {{sh_zeromq_base_request, sh_zeromq_base_oneway},
                                           {sh_nng_base_request, sh_nng_base_oneway}};
    struct sh_bench_flags shapes[] = {
        {.size = 64, .count = 501, .threads = 1, .outstanding = 1, .connections = 1},
        {.size = 1, .count = 600, .threads = 3, .outstanding = 5, .connections = 2},
        {.size = 300000, .count = 20, .threads = 1, .outstanding = 4, .connections = 1},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            memset(&result, 0, sizeof result);
            enum shoal_err err = runs[i][0](&shapes[k], &shapes[k], SH_PLACE_FREE, &result);
            if (err == SHOAL_EINVAL) {
                print_message("built without library %zu: nothing to test\n", i);
                break;
            }
            assert_int_equal(err, SHOAL_OK);
            assert_int_equal(result.ops, shapes[k].count);
            assert_int_equal(result.latency_ns.count, shapes[k].count);
            assert_true(result.cpu_ns > 0 && result.seconds > 0);
            uint64_t digest = result.digest;
            memset(&result, 0, sizeof result);
            assert_int_equal(runs[i][1](&shapes[k], &shapes[k], SH_PLACE_ONE_CORE, &result),
                             SHOAL_OK);
            assert_int_equal(result.ops, shapes[k].count);
            assert_true(result.digest == digest);
        }
    }
    no_child_is_left();
}

static void tables_hold_what_was_set(void **state)
{
    (void)state;
    struct sh_table_base table;
    struct sh_glib_base *glib = NULL;
    assert_int_equal(sh_table_base_create(1000, &table), SHOAL_OK);
    bool has_glib = sh_glib_base_create(&glib) == SHOAL_OK;
    for (uint64_t i = 1; i <= 1000; i++) {
        *sh_table_base_slot(&table, i << 40) = (struct sh_table_slot){i << 40, i};
        if (has_glib)
            sh_glib_base_set(glib, i << 40, i << 33);
    }
    for (uint64_t i = 1; i <= 1000; i++) {
        assert_int_equal(sh_table_base_slot(&table, i << 40)->value, i);
        assert_int_equal(sh_table_base_slot(&table, (i << 40) + 1)->key, 0);
        assert_true(!has_glib || sh_glib_base_get(glib, i << 40) == i << 33);
        assert_true(!has_glib || sh_glib_base_get(glib, (i << 40) + 1) == 0);
    }
    sh_table_base_destroy(&table);
    sh_glib_base_destroy(glib);
}

/* Several times through its file, and one block. */
static void the_raw_disk_does_as_much(void **state)
{
    (void)state;
    static uint8_t source[SH_LOG_SOURCE_BYTES];
    static const uint64_t sizes[] = {4096, UINT64_C(40) << 20};
    char folder[128];
    assert_int_equal(sh_bench_folder_make("test", folder, sizeof folder), SHOAL_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct sh_log_plan plan = {.zones = 1,
                                   .slots_each = 3,
                                   .segment_bytes = 64 << 10,
                                   .buffer_bytes = 1 << 20,
                                   .source = source,
                                   .folder = folder,
                                   .run_ops = 7,
                                   .run_bytes = sizes[i]};
        for (unsigned reads = 0; reads < 2; reads++) {
            sh_bench_run run = reads ? sh_disk_base_read_run : sh_disk_base_run;
            memset(&result, 0, sizeof result);
            assert_int_equal(run(&plan, NULL, SH_PLACE_FREE, &result), SHOAL_OK);
            assert_int_equal(result.ops, 7);
            assert_int_equal(result.bytes, sizes[i]);
            assert_true(result.seconds > 0);
        }
    }
    assert_int_equal(rmdir(folder), 0); /* its file has gone */
}

/* A plan of so many chunks, in a folder that is to be removed. */
static struct sh_log_plan small_plan(enum sh_log_case what, uint64_t chunks, char *folder,
                                     size_t room)
{
    static uint8_t source[SH_LOG_SOURCE_BYTES + 100];
    assert_int_equal(sh_bench_folder_make("test", folder, room), SHOAL_OK);
    return (struct sh_log_plan){.what = what,
                                .size = 100,
                                .zones = 3,
                                .chunks = chunks,
                                .batch = 3,
                                .seed = 5,
                                .source = source,
                                .folder = folder};
}

/* Both take a load, and twice as many updates, draw the same, and leave nothing. */
static void others_take_what_a_log_takes(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* RocksDB is not built with it, so it sees only half of what that does */
#endif
    static const sh_bench_run runs[] = {sh_rocksdb_base_run, sh_redis_log_base_run};
    uint64_t digests[SH_LOG_CASES] = {0};
    for (size_t i = 0; i < 2 * sizeof runs / sizeof *runs; i++) {
        char folder[128];
        enum sh_log_case what = i % 2 ? SH_LOG_HOTCOLD : SH_LOG_LOAD;
        struct sh_log_plan plan = small_plan(what, 333, folder, sizeof folder);
        memset(&result, 0, sizeof result);
        enum shoal_err err = runs[i / 2](&plan, NULL, SH_PLACE_FREE, &result);
        if (err == SHOAL_EINVAL || err == SHOAL_ENONAME) {
            print_message("system %zu is not installed: nothing to test\n", i / 2);
        } else {
            assert_int_equal(err, SHOAL_OK);
            assert_int_equal(result.ops, what == SH_LOG_LOAD ? 999 : 1998);
            assert_int_equal(result.bytes, result.ops * 100);
            assert_true(result.seconds > 0 && result.cpu_ns > 0 && result.digest != 0);
            assert_true(!digests[what] || digests[what] == result.digest);
            digests[what] = result.digest;
        }
        assert_int_equal(rmdir(folder), 0);
    }
    no_child_is_left();
}

static void silent_child(void *arg, int report_fd)
{
    (void)arg;
    (void)report_fd;
}

static void a_child_that_ends_is_an_error(void **state)
{
    (void)state;
    struct sh_child child = {.pid = 0};
    assert_int_equal(sh_child_start(silent_child, NULL, SH_PLACE_FREE, &child), SHOAL_EIO);
    assert_int_equal(child.pid, 0);
    no_child_is_left();
}

static void redis_answers_with_what_was_put(void **state)
{
    (void)state;
    uint64_t digests[2] = {0, 0};
    for (unsigned what = SH_KV_GET; what <= SH_KV_MULTI; what++) {
        struct sh_kv_shape shape = {.what = (enum sh_kv_case)what,
                                    .flags = {.size = what == SH_KV_GET ? 5 : 64,
                                              .count = 1000,
                                              .threads = 2,
                                              .outstanding = 8,
                                              .batch = 3,
                                              .seed = 9,
                                              .seconds = 0.05}};
        memset(&result, 0, sizeof result);
        enum shoal_err err = sh_redis_base_run(&shape, &shape.flags, SH_PLACE_FREE, &result);
        if (err == SHOAL_ENONAME) {
            print_message("redis-server is not installed: nothing to test\n");
            skip();
        }
        assert_int_equal(err, SHOAL_OK);
        assert_true(result.ops > 0 && result.bytes == result.ops * shape.flags.size);
        assert_true(result.cpu_ns > 0 && result.latency_ns.count > 0);
        if (what == SH_KV_GET || what == SH_KV_MULTI)
            digests[what == SH_KV_MULTI] = result.digest;
    }
    no_child_is_left();
    assert_true(digests[0] != 0 && digests[1] != 0);
}

/* A server that was killed has everything again, however its values' sizes are; nothing is left in the folder. */
static void redis_has_all_after_a_restart(void **state)
{
    (void)state;
    char folder[] = "/tmp/shoal-test-XXXXXX";
    static const struct {
        uint64_t count;
        uint32_t size;
    } shapes[] = {{1, 1}, {1000, 64}, {300, 100000}};
    static const struct sh_bench_flags flags;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct sh_redis_restart restart = {
            .above = folder, .count = shapes[i].count, .size = shapes[i].size, .seed = 7};
        memset(&result, 0, sizeof result);
        enum shoal_err err = sh_redis_restart_base_run(&restart, &flags, SH_PLACE_FREE, &result);
        if (err == SHOAL_ENONAME) {
            print_message("redis-server is not installed: nothing to test\n");
            assert_int_equal(rmdir(folder), 0);
            skip();
        }
        assert_int_equal(err, SHOAL_OK);
        assert_int_equal(result.ops, shapes[i].count);
        assert_int_equal(result.bytes, shapes[i].count * shapes[i].size);
        assert_true(result.seconds > 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

static void a_missing_redis_is_said(void **state)
{
    (void)state;
    const char *path = getenv("PATH");
    char *saved = strdup(path ? path : "");
    struct sh_child server = {.pid = 0};
    assert_non_null(saved);
    assert_int_equal(setenv("PATH", "/nonexistent:", 1), 0);
    assert_int_equal(sh_redis_server_start(SH_PLACE_FREE, &server), SHOAL_ENONAME);
    assert_int_equal(server.pid, 0);
    assert_int_equal(setenv("PATH", saved, 1), 0);
    free(saved);
    no_child_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_counts_every_message),
        cmocka_unit_test(tcp_runs_for_its_time),
        cmocka_unit_test(slots_cost_what_theory_says),
        cmocka_unit_test(rounds_answer_every_request),
        cmocka_unit_test(libraries_count_every_message),
        cmocka_unit_test(tables_hold_what_was_set),
        cmocka_unit_test(the_raw_disk_does_as_much),
        cmocka_unit_test(others_take_what_a_log_takes),
        cmocka_unit_test(a_child_that_ends_is_an_error),
        cmocka_unit_test(redis_answers_with_what_was_put),
        cmocka_unit_test(redis_has_all_after_a_restart),
        cmocka_unit_test(a_missing_redis_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
