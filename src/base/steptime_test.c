/* How long steps take, as their crew has it. */
#include <string.h>

#include "base/crew_test.h"
#include "base/steptime.h"

/* Processor time of this thread. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void burn(uint64_t ns)
{
    uint64_t until = cpu_ns() + ns;
    while (cpu_ns() < until) {
        continue;
    }
}

/* A step that burns, and one that sleeps, as one would that has lost its core. */
struct story {
    struct sh_waiter waiter;
    bool is_over;
    bool was_spent;
};

static unsigned burning_run(void *arg)
{
    struct story *story = arg;
    if (story->is_over) {
        return 0;
    }
    burn(5 * MS);
    story->was_spent = sh_step_spent();
    return 1;
}

static unsigned sleeping_run(void *arg)
{
    struct story *story = arg;
    if (story->is_over) {
        return 0;
    }
    struct timespec pause = {.tv_nsec = 20 * MS};
    nanosleep(&pause, NULL);
    story->is_over = true;
    sh_waiter_complete(&story->waiter);
    return 1;
}

static struct sh_step_report report_of(const struct sh_crew_step_report *reports, size_t count,
                                       const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(reports[i].name, name) == 0) {
            return reports[i].time;
        }
    }
    fail_msg("no step is called %s", name);
    return (struct sh_step_report){0};
}

/* What burns its processor's time is above the bound; what waits for its core is not. */
static void test_processor_time_counts(void **state)
{
    (void)state;
    struct sh_crew_config config = {.name = "times", .threads = 1, .now_ns = now_ns};
    config.idle = sleeper;
    struct story story = {0};
    struct sh_crew *crew;
    assert_int_equal(sh_crew_create(&config, &crew), SHOAL_OK);
    sh_crew_step_add(crew, 0, (struct sh_step){"burning", burning_run, NULL, &story});
    sh_crew_step_add(crew, 0, (struct sh_step){"sleeping", sleeping_run, NULL, &story});
    assert_int_equal(sh_crew_start(crew), SHOAL_OK);
    assert_true(sh_crew_wait(crew, 0, &story.waiter, now_ns(NULL) + PATIENCE_NS));
    sh_crew_stop(crew);
    struct sh_crew_step_report reports[4];
    size_t count = sh_crew_step_reports(crew, reports, 4);
    assert_int_equal(count, 2);
    struct sh_step_report burning = report_of(reports, count, "burning");
    struct sh_step_report sleeping = report_of(reports, count, "sleeping");
    assert_true(burning.longest_ns >= 5 * MS);
    assert_int_equal(burning.over, 1);
    assert_true(sleeping.longest_ns < 20 * MS);
    assert_true(story.was_spent);
    assert_false(sh_step_spent()); /* this thread runs no step */
    sh_crew_destroy(crew);
}

/* Only what is longer than all before, or above the bound, changes anything. */
static void test_longest_and_over(void **state)
{
    (void)state;
    struct sh_step_time time = {0};
    struct sh_step_report all = {0};
    sh_ticks_init();
    uint64_t ms = 1;
    while (sh_ticks_ns(ms) < MS) {
        ms *= 2; /* in ticks, 1 to 2 ms */
    }
    sh_step_time_add(&time, 1000, 1000 + ms / 200);
    uint64_t first_ns = sh_step_time_get(&time).longest_ns;
    assert_true(first_ns > 0);
    sh_step_time_add(&time, 1000, 1000 + ms / 300);
    assert_int_equal(sh_step_time_get(&time).longest_ns, first_ns);
    assert_int_equal(sh_step_time_get(&time).over, 0);
    sh_step_time_add(&time, 1000, 900); /* counters of two cores */
    assert_int_equal(sh_step_time_get(&time).longest_ns, first_ns);
    for (unsigned i = 0; i < 3; i++) {
        sh_step_time_add(&time, 1000, 1000 + 2 * ms);
    }
    assert_int_equal(sh_step_time_get(&time).over, 3);
    assert_int_equal(sh_step_time_get(&time).longest_ns, sh_ticks_ns(2 * ms));
    sh_step_report_merge(&all, sh_step_time_get(&time));
    sh_step_report_merge(&all, (struct sh_step_report){.longest_ns = 1, .over = 1});
    assert_int_equal(all.over, 4);
    assert_int_equal(all.longest_ns, sh_ticks_ns(2 * ms));
}

/* The counter is as fast as the clock. */
static void test_ticks(void **state)
{
    (void)state;
    sh_ticks_init();
    uint64_t outer_ns = now_ns(NULL), began = sh_ticks(), inner_ns = now_ns(NULL);
    burn(20 * MS);
    inner_ns = now_ns(NULL) - inner_ns;
    uint64_t took_ns = sh_ticks_ns(sh_ticks() - began);
    outer_ns = now_ns(NULL) - outer_ns;
    assert_true(took_ns >= inner_ns - inner_ns / 20);
    assert_true(took_ns <= outer_ns + outer_ns / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processor_time_counts),
        cmocka_unit_test(test_longest_and_over),
        cmocka_unit_test(test_ticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
