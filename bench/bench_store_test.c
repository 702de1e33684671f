/* The benchmark of chunk memory in miniature: its parts do what they measure, and its bars, sizes
 * and checks are right. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "bench/benches.h"
#include "bench/store_bench_int.h"

#define SEED 4242

static struct sh_store_plan plan_of(uint64_t count, const char *sizes, uint32_t size)
{
    struct sh_store_plan plan = {.count = count,
                                 .threads = 2,
                                 .batch = 5,
                                 .load_batch = 48,
                                 .reads = 50,
                                 .seconds = 0.02,
                                 .seed = SEED,
                                 .verify = true};
    sh_sizes_init(&plan.sizes, sizes, size);
    return plan;
}

/* What a distribution draws at a few marks: its mean, and the share under 64 bytes. */
static void sizes_are_those_of_the_traces(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double mean, mean_within, under_64;
    } known[] = {
        {"assocs", 1408, 150, 0.618}, {"objects", 326, 10, 0.175}, {"etc", 195, 10, 0.551}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct sh_sizes sizes;
        sh_sizes_init(&sizes, known[i].name, 0);
        double sum = 0;
        double under = 0;
        const unsigned draws = 200000;
        for (uint64_t k = 0; k < draws; k++) {
            uint32_t size = sh_sizes_draw(&sizes, sh_mix64(k * 31 + SEED));
            assert_true(size <= sizes.most);
            assert_int_equal(size, sh_sizes_draw(&sizes, sh_mix64(k * 31 + SEED)));
            sum += size;
            under += size < 64;
        }
        print_message("%s: mean %.1f, under 64 bytes %.3f\n", known[i].name, sum / draws,
                      under / draws);
        assert_true(sum / draws > known[i].mean - known[i].mean_within);
        assert_true(sum / draws < known[i].mean + known[i].mean_within);
        assert_true(under / draws > known[i].under_64 - 0.02);
        assert_true(under / draws < known[i].under_64 + 0.02);
    }
}

static void uniform_sizes_keep_their_bounds(void **state)
{
    (void)state;
    struct sh_sizes sizes;
    bool seen[12] = {false};
    sh_sizes_uniform(&sizes, 3, 11);
    for (uint64_t k = 0; k < 5000; k++)
        seen[sh_sizes_draw(&sizes, sh_mix64(k))] = true;
    for (unsigned size = 0; size < 12; size++)
        assert_int_equal(seen[size], size >= 3);
    sh_sizes_init(&sizes, NULL, 77);
    assert_int_equal(sh_sizes_draw(&sizes, 123), 77);
}

/* A content passes as its own, in any version, and fails with a byte changed, as another's, or half
 * of one version and half of another. */
static void contents_tell_torn_ones(void **state)
{
    (void)state;
    for (unsigned size = 0; size <= 100; size++) {
        uint8_t one[100];
        uint8_t two[100];
        sh_store_content_make(9, 0, one, size);
        sh_store_content_make(9, 77, two, size);
        assert_true(sh_store_content_check(9, one, size));
        assert_true(sh_store_content_check(9, two, size));
        if (size > 2)
            assert_false(sh_store_content_check(10, one, size));
        for (unsigned cut = 8; cut < size; cut += 8) {
            uint8_t torn[100];
            memcpy(torn, one, size);
            memcpy(torn + cut, two + cut, size - cut);
            assert_false(sh_store_content_check(9, torn, size));
        }
        for (unsigned at = 2; at < size; at++) {
            one[at] ^= 1;
            assert_false(sh_store_content_check(9, one, size));
            one[at] ^= 1;
        }
    }
}

static const struct sh_allocator *allocator_of(const char *name)
{
    const struct sh_allocator *allocator = NULL;
    enum shoal_err err = sh_allocator_find(name, &allocator);
    if (err == SHOAL_ENONAME && strcmp(name, "mimalloc") == 0)
        return NULL;
    assert_int_equal(err, SHOAL_OK);
    return allocator;
}

/* Adds, removes and adds again, so often that every slot has had a key. */
static void the_table_forgets_what_is_removed(void **state)
{
    (void)state;
    static const char *const names[] = {"malloc", "mimalloc"};
    for (size_t n = 0; n < 2; n++) {
        const struct sh_allocator *allocator = allocator_of(names[n]);
        if (!allocator) {
            print_message("mimalloc is not installed: not tested\n");
            continue;
        }
        struct sh_malloc_base *base = NULL;
        assert_int_equal(sh_malloc_base_create(allocator, 10, &base), SHOAL_OK);
        for (uint64_t round = 0; round < 100; round++) {
            for (uint64_t key = round * 10; key < round * 10 + 10; key++) {
                uint64_t value = key * 3;
                assert_int_equal(sh_malloc_base_add(base, key, 8), SHOAL_OK);
                assert_true(sh_malloc_base_put(base, key, &value, 8));
            }
            for (uint64_t key = round * 10; key < round * 10 + 10; key++) {
                uint64_t value = 0;
                assert_true(sh_malloc_base_get(base, key, &value, 8));
                assert_true(value == key * 3);
                assert_true(sh_malloc_base_remove(base, key));
                assert_false(sh_malloc_base_get(base, key, &value, 8));
                assert_false(sh_malloc_base_remove(base, key));
                assert_false(sh_malloc_base_put(base, key, &value, 8));
            }
        }
        sh_malloc_base_destroy(base);
    }
}

struct table_user {
    pthread_t thread;
    struct sh_malloc_base *base;
    uint64_t first;
    unsigned wrong;
};

/* Each its own keys, in a table that is as full as it may be. */
static void *table_use(void *arg)
{
    struct table_user *user = arg;
    for (unsigned round = 0; round < 2000; round++) {
        uint64_t keys[8];
        for (unsigned i = 0; i < 8; i++) {
            keys[i] = user->first + round % 7 * 8 + i;
            uint64_t value = keys[i] + round;
            user->wrong += sh_malloc_base_add(user->base, keys[i], 8) != SHOAL_OK;
            user->wrong += !sh_malloc_base_put(user->base, keys[i], &value, 8);
        }
        for (unsigned i = 0; i < 8; i++) {
            uint64_t value = 0;
            user->wrong += !sh_malloc_base_get(user->base, keys[i], &value, 8);
            user->wrong += value != keys[i] + round;
            user->wrong += !sh_malloc_base_remove(user->base, keys[i]);
        }
    }
    return NULL;
}

static void the_table_takes_many_threads(void **state)
{
    (void)state;
    struct table_user users[4];
    struct sh_malloc_base *base = NULL;
    assert_int_equal(sh_malloc_base_create(allocator_of("malloc"), 32, &base), SHOAL_OK);
    for (unsigned i = 0; i < 4; i++) {
        users[i] = (struct table_user){.base = base, .first = 1000 * (uint64_t)i};
        assert_int_equal(pthread_create(&users[i].thread, NULL, table_use, &users[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(users[i].thread, NULL);
        assert_int_equal(users[i].wrong, 0);
    }
    sh_malloc_base_destroy(base);
}

/* Each run that loads, with ours and the table: the same digest, the memory counted. */
static void loads_count_memory(void **state)
{
    (void)state;
    static const sh_bench_run runs[] = {sh_store_load_run, sh_store_together_run,
                                        sh_store_create_run, sh_store_recreate_run,
                                        sh_store_churn_run};
    static struct sh_bench_result result;
    const struct sh_bench_flags flags = {.runs = 1};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct sh_store_plan plan = plan_of(3001, "objects", 0);
        uint64_t digests[2] = {0, 1};
        for (unsigned is_base = 0; is_base < 2; is_base++) {
            struct sh_subject subject = {.plan = &plan};
            if (is_base)
                subject.allocator = allocator_of("malloc");
            memset(&result, 0, sizeof result);
            assert_int_equal(runs[i](&subject, &flags, SH_PLACE_FREE, &result), SHOAL_OK);
            assert_int_equal(result.ops, runs[i] == sh_store_churn_run ? 9003 : 3001);
            assert_true(result.bytes > 0 && result.seconds > 0);
            assert_true(result.bytes_per_chunk > 200 || runs[i] == sh_store_together_run);
            assert_true(is_base || runs[i] == sh_store_together_run
                            ? result.status_per_chunk == 0
                            : result.status_per_chunk > 200);
            assert_null(subject.store);
            assert_null(subject.base);
            digests[is_base] = result.digest;
        }
        assert_true(digests[0] == digests[1]);
    }
}

static void copies_move_the_payload(void **state)
{
    (void)state;
    static struct sh_bench_result result;
    struct sh_store_plan plan = plan_of(1000, NULL, 64);
    struct sh_subject subject = {.plan = &plan};
    assert_int_equal(sh_store_memcpy_fresh_run(&subject, NULL, SH_PLACE_FREE, &result), SHOAL_OK);
    assert_int_equal(result.bytes, 64000);
    assert_int_equal(result.digest, 64000 + 0x5a);
    assert_int_equal(sh_store_memcpy_touched_run(&subject, NULL, SH_PLACE_FREE, &result), SHOAL_OK);
    assert_int_equal(result.ops, 1000);
    assert_int_equal(result.digest, 64000 + 0x5a);
}

/* --verify finds a chunk that is not as it was written. */
static void a_wrong_content_fails_the_run(void **state)
{
    (void)state;
    static struct sh_bench_result result;
    struct sh_store_plan plan = plan_of(500, NULL, 64);
    struct sh_subject subject = {.plan = &plan};
    struct sh_toucher toucher = {.subject = &subject, .plan = &plan};
    assert_int_equal(sh_subject_load(&subject, true), SHOAL_OK);
    assert_int_equal(sh_store_touch_run(&toucher, NULL, SH_PLACE_FREE, &result), SHOAL_OK);
    assert_true(result.ops > 0 && result.bytes == result.ops * 64);
    assert_true(result.latency_ns.count > 0);
    uint8_t bytes[64] = {1};
    uint64_t digest = 0;
    plan.reads = 100; /* no put may mend them */
    for (uint64_t handle = 1; handle <= plan.count; handle++) {
        struct sh_touch touch = {handle, bytes, 64};
        assert_true(sh_subject_put(&subject, &touch, 1));
    }
    assert_int_equal(sh_store_touch_run(&toucher, NULL, SH_PLACE_FREE, &result), SHOAL_EINTERNAL);
    assert_int_equal(sh_subject_digest(&subject, &digest), SHOAL_EINTERNAL);
    sh_subject_close(&subject);
}

/* Readers and writers beside a thread that creates and removes; both systems. */
static void churned_reads_are_whole(void **state)
{
    (void)state;
    static struct sh_bench_result result;
    for (unsigned is_base = 0; is_base < 2; is_base++) {
        struct sh_store_plan plan = plan_of(2000, NULL, 100);
        plan.churned = true;
        struct sh_subject subject = {.plan = &plan};
        if (is_base)
            subject.allocator = allocator_of("malloc");
        struct sh_toucher toucher = {.subject = &subject, .plan = &plan};
        assert_int_equal(sh_subject_load(&subject, true), SHOAL_OK);
        memset(&result, 0, sizeof result);
        assert_int_equal(sh_store_touch_run(&toucher, NULL, SH_PLACE_FREE, &result), SHOAL_OK);
        assert_true(result.ops > 0);
        sh_subject_close(&subject);
    }
}

static void mem_var_keeps_its_chunks(void **state)
{
    (void)state;
    static struct sh_bench_result result;
    for (unsigned is_base = 0; is_base < 2; is_base++) {
        struct sh_store_plan plan = plan_of(1500, "objects", 0);
        struct sh_subject subject = {.plan = &plan};
        struct sh_memvar *memvar = NULL;
        if (is_base)
            subject.allocator = allocator_of("malloc");
        assert_int_equal(sh_memvar_open(&subject, &memvar), SHOAL_OK);
        for (unsigned run = 0; run < 3; run++) {
            memset(&result, 0, sizeof result);
            assert_int_equal(sh_store_memvar_run(memvar, NULL, SH_PLACE_FREE, &result), SHOAL_OK);
            assert_true(result.ops > 0 && result.bytes > 0 && result.latency_ns.count > 0);
        }
        sh_memvar_close(memvar);
        sh_subject_close(&subject);
    }
}

/* Runs `shoal bench store` with words separated by blanks. */
static int bench(const char *line, char **text_out)
{
    char copy[256];
    char *argv[24];
    int argc = 0;
    size_t size = 0;
    snprintf(copy, sizeof copy, "store --seconds 0.02 --runs 1 %s", line);
    for (char *word = strtok(copy, " "); word && argc < 24; word = strtok(NULL, " "))
        argv[argc++] = word;
    FILE *out = open_memstream(text_out, &size);
    assert_non_null(out);
    int status = sh_bench_main(argc, argv, out);
    fclose(out);
    return status;
}

/* Every case against the table, verified; both systems' digests are the same. */
static void every_case_agrees_with_the_table(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(bench("--count 1500 --threads 2 --vs malloc --verify --json", &text), 0);
    uint64_t digests = 0;
    unsigned bars = 0;
    char last[20] = "";
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        struct sh_json *row = NULL;
        struct sh_json_error error;
        assert_int_equal(sh_json_parse(line, strcspn(line, "\n"), &row, &error), SHOAL_OK);
        bars += sh_json_get(row, "bar") != NULL;
        const struct sh_json *system = sh_json_get(row, "system");
        if (system && strcmp(sh_json_text(system), "malloc") == 0) {
            snprintf(last, sizeof last, "%s", sh_json_text(sh_json_get(row, "digest")));
        } else if (system && strcmp(sh_json_text(system), "shoal") == 0) {
            assert_string_equal(last, sh_json_text(sh_json_get(row, "digest")));
            assert_string_equal(sh_json_text(sh_json_get(row, "verify")), "yes");
            digests++;
        }
        sh_json_free(row);
    }
    unsigned cases = 0;
    while (sh_bench_store_cases[cases])
        cases++;
    assert_int_equal(digests, cases);
    assert_true(bars >= 13);
    free(text);
}

static void flags_shape_the_cases(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(
        bench("--case mixed --count 900 --reads 70 --sizes etc --keys zipfian --json", &text), 0);
    assert_non_null(strstr(text, "\"sizes\":\"etc\""));
    assert_non_null(strstr(text, "\"reads\":70"));
    assert_non_null(strstr(text, "\"keys\":\"zipfian\""));
    free(text);
    assert_int_equal(bench("--case get --count 900 --size 8 --small-pages", &text), 0);
    assert_non_null(strstr(text, "bar: times two dependent misses"));
    assert_non_null(strstr(text, "two-misses"));
    assert_non_null(strstr(text, "pages=small"));
    free(text);
    assert_int_equal(bench("--case churned-reads --count 900 --placement one-core", &text), 0);
    assert_non_null(strstr(text, "the other thread created and removed"));
    free(text);
    assert_int_equal(bench("--sizes large", &text), 2);
    free(text);
    assert_int_equal(bench("--reads 100", &text), 2);
    free(text);
}

int main(void)
{
    sh_bench_pin(SH_PLACE_FREE, 0); /* as the frame does, before there are threads */
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_traces),
        cmocka_unit_test(uniform_sizes_keep_their_bounds),
        cmocka_unit_test(contents_tell_torn_ones),
        cmocka_unit_test(the_table_forgets_what_is_removed),
        cmocka_unit_test(the_table_takes_many_threads),
        cmocka_unit_test(loads_count_memory),
        cmocka_unit_test(copies_move_the_payload),
        cmocka_unit_test(a_wrong_content_fails_the_run),
        cmocka_unit_test(churned_reads_are_whole),
        cmocka_unit_test(mem_var_keeps_its_chunks),
        cmocka_unit_test(every_case_agrees_with_the_table),
        cmocka_unit_test(flags_shape_the_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
