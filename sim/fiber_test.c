/* Fibers take turns with who resumes them, and a crew whose world is simulated leaves its steps and
 * its waiting to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crew.h"
#include "sim/fiber.h"

struct story {
    char text[16];
    unsigned length;
    struct sh_crew *crew;
    struct sh_waiter waiter;
    struct sh_step step;
    bool was_done;
};

static void tell(struct story *story, char letter)
{
    assert_true(story->length + 1 < sizeof story->text);
    story->text[story->length++] = letter;
}

static void run(void *arg)
{
    struct story *story = arg;
    tell(story, 'b');
    sh_fiber_pause();
    tell(story, 'd');
    sh_fiber_pause();
    tell(story, 'f');
}

static void fibers_take_turns(void **state)
{
    (void)state;
    struct story story = {.length = 0}, other = {.length = 0};
    struct sh_fiber *fiber = sh_fiber_create(run, &story);
    struct sh_fiber *second = sh_fiber_create(run, &other);
    tell(&story, 'a');
    sh_fiber_resume(fiber);
    tell(&story, 'c');
    sh_fiber_resume(second);
    sh_fiber_resume(fiber);
    tell(&story, 'e');
    assert_false(sh_fiber_ended(fiber));
    sh_fiber_resume(fiber);
    assert_true(sh_fiber_ended(fiber));
    assert_string_equal(story.text, "abcdef");
    assert_string_equal(other.text, "b");
    sh_fiber_resume(second);
    sh_fiber_resume(second);
    assert_string_equal(other.text, "bdf");
    sh_fiber_destroy(fiber);
    sh_fiber_destroy(second);
    sh_fiber_destroy(sh_fiber_create(run, &story)); /* one that never began */
    sh_fiber_destroy(NULL);
}

static void on_step_add(void *arg, struct sh_step step)
{
    ((struct story *)arg)->step = step;
}

static bool on_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    (void)arg;
    assert_int_equal(deadline_ns, 7);
    sh_fiber_pause();
    return sh_waiter_done(waiter);
}

static uint64_t on_now(void *arg)
{
    (void)arg;
    return 0;
}

static unsigned complete(void *arg)
{
    sh_waiter_complete(arg);
    return 1;
}

static void wait(void *arg)
{
    struct story *story = arg;
    story->was_done = sh_crew_wait(story->crew, 0, &story->waiter, 7);
    tell(story, 'w');
}

static void world_waits_for_a_crew(void **state)
{
    (void)state;
    struct story story = {.length = 0};
    struct sh_crew_world world = {.step_add = on_step_add, .wait = on_wait, .arg = &story};
    struct sh_crew_config config = {
        .world = &world, .name = "test", .threads = 1, .lends = true, .now_ns = on_now};
    assert_int_equal(sh_crew_create(&config, &story.crew), SHOAL_OK);
    sh_crew_step_add(story.crew, 0,
                     (struct sh_step){.name = "step", .run = complete, .arg = &story.waiter});
    assert_int_equal(sh_crew_start(story.crew), SHOAL_OK);
    sh_crew_wake(story.crew, 0);
    struct sh_fiber *fiber = sh_fiber_create(wait, &story);
    sh_fiber_resume(fiber);
    assert_int_equal(story.length, 0);
    assert_int_equal(story.step.run(story.step.arg), 1);
    sh_fiber_resume(fiber);
    assert_true(story.was_done);
    assert_int_equal(story.length, 1);
    sh_fiber_destroy(fiber);
    assert_true(sh_crew_wait(story.crew, 0, &story.waiter, 7)); /* done: nobody is asked */
    sh_crew_stop(story.crew);
    sh_crew_destroy(story.crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fibers_take_turns),
        cmocka_unit_test(world_waits_for_a_crew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
