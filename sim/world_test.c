/* Worlds replay: virtual time, order, faults and the trace come from the seed alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/world.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)

/* A node that ticks: due every millisecond of its clock. */
struct ticker {
    struct sh_world *world;
    unsigned node;
    uint64_t next_ns;
    unsigned ticks;
    unsigned runs; /* of its step */
    uint64_t drawn;
};

static uint64_t node_now(const struct ticker *ticker)
{
    return sh_now(&sh_world_env(ticker->world, ticker->node)->clock);
}

static unsigned ticker_step(void *arg)
{
    struct ticker *ticker = arg;
    ticker->runs++;
    if (node_now(ticker) < ticker->next_ns)
        return 0;
    ticker->next_ns += MS;
    ticker->ticks++;
    ticker->drawn = sh_random64(&sh_world_env(ticker->world, ticker->node)->random);
    sh_world_trace(ticker->world, ticker->node, "tick(drawn)", ticker->drawn, 0,
                   (struct sh_bytes){0});
    return 1;
}

static uint64_t ticker_due(void *arg)
{
    return ((struct ticker *)arg)->next_ns;
}

static void ticker_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct ticker *ticker = arg;
    ticker->world = world;
    ticker->node = node;
    ticker->next_ns = sh_now(&sh_world_env(world, node)->clock) + MS;
    struct sh_step step = {
        .name = "ticker", .run = ticker_step, .due_ns = ticker_due, .arg = ticker};
    sh_world_step_add(world, node, step);
}

static void ticker_crash(void *arg, struct sh_world *world, unsigned node)
{
    (void)world;
    (void)node;
    ((struct ticker *)arg)->ticks = 0;
}

static struct sh_world *make_tickers(struct ticker *tickers, unsigned count, uint64_t seed,
                                     FILE *trace)
{
    struct sh_world_config config = {.seed = seed, .skip_ppm = 100000, .trace = trace};
    struct sh_world *world = sh_world_create(&config);
    memset(tickers, 0, count * sizeof *tickers);
    for (unsigned i = 0; i < count; i++) {
        struct sh_world_node node = {.clock_offset_ns = (int64_t)i * 12345678 - 5000000,
                                     .boot = ticker_boot,
                                     .crash = ticker_crash,
                                     .arg = &tickers[i]};
        assert_int_equal(sh_world_node_add(world, &node), i);
    }
    return world;
}

static void time_is_virtual(void **state)
{
    (void)state;
    struct ticker tickers[3];
    struct sh_world *world = make_tickers(tickers, 3, 1, NULL);
    uint64_t started = node_now(&tickers[0]);
    assert_int_equal(sh_world_now(world), 0);
    assert_false(sh_world_run_until(world, NULL, NULL, 10 * S));
    assert_in_range(sh_world_now(world), 10 * S, 10 * S + MS);
    assert_int_equal(node_now(&tickers[0]) - started, sh_world_now(world));
    assert_int_equal(node_now(&tickers[2]) - node_now(&tickers[1]), 12345678);
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(tickers[i].ticks, 9999, 10000);
    sh_world_destroy(world);
}

static bool has_ticked(void *arg)
{
    return ((struct ticker *)arg)->ticks >= 7;
}

static void run_ends_when_the_predicate_holds(void **state)
{
    (void)state;
    struct ticker tickers[2];
    struct sh_world *world = make_tickers(tickers, 2, 2, NULL);
    assert_true(sh_world_run_until(world, has_ticked, &tickers[1], 10 * S));
    assert_int_equal(tickers[1].ticks, 7);
    assert_in_range(sh_world_now(world), 7 * MS, 8 * MS);
    sh_world_destroy(world);
}

static uint64_t run_tickers(uint64_t seed, char **text_out)
{
    struct ticker tickers[3];
    size_t size = 0;
    FILE *trace = text_out ? open_memstream(text_out, &size) : NULL;
    struct sh_world *world = make_tickers(tickers, 3, seed, trace);
    (void)sh_world_run_until(world, NULL, NULL, 20 * MS);
    uint64_t hash = sh_world_trace_hash(world);
    sh_world_destroy(world);
    if (trace) {
        assert_int_equal(fclose(trace), 0);
        assert_true(size > 0);
    }
    return hash;
}

static void same_seed_same_trace(void **state)
{
    (void)state;
    char *first;
    char *second;
    uint64_t hash = run_tickers(42, &first);
    assert_int_equal(run_tickers(42, &second), hash);
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "tick(drawn)"));
    assert_int_equal(run_tickers(42, NULL), hash); /* with lines or without */
    free(first);
    free(second);
    for (uint64_t seed = 43; seed < 63; seed++)
        assert_true(run_tickers(seed, NULL) != hash);
}

struct order_check {
    struct sh_world *world;
    uint64_t last_ns;
    uint64_t last_number;
    unsigned count;
    bool wrong;
};

static void on_order(void *arg, uint64_t at_ns, uint64_t number)
{
    struct order_check *check = arg;
    bool late = sh_world_now(check->world) != at_ns;
    bool turned = at_ns < check->last_ns;
    bool tie_turned = at_ns == check->last_ns && check->count && number < check->last_number;
    check->wrong = check->wrong || late || turned || tie_turned;
    check->last_ns = at_ns;
    check->last_number = number;
    check->count++;
}

static void events_come_in_order_of_time_then_making(void **state)
{
    (void)state;
    struct sh_world_config config = {.seed = 9};
    struct sh_world *world = sh_world_create(&config);
    struct order_check check = {.world = world};
    for (uint64_t i = 0; i < 5000; i++) {
        uint64_t at_ns = sh_prng_below(sh_world_prng(world), 1000);
        sh_world_at(world, at_ns, on_order, &check, at_ns, i);
    }
    (void)sh_world_run_until(world, NULL, NULL, 1000);
    assert_int_equal(check.count, 5000);
    assert_false(check.wrong);
    sh_world_destroy(world);
}

static void paused_and_crashed_nodes_do_nothing(void **state)
{
    (void)state;
    struct ticker tickers[3];
    struct sh_world *world = make_tickers(tickers, 3, 4, NULL);
    (void)sh_world_run_until(world, NULL, NULL, 10 * MS + MS / 2);
    sh_world_pause(world, 1);
    sh_world_crash(world, 2);
    assert_int_equal(tickers[2].ticks, 0);
    (void)sh_world_run_until(world, NULL, NULL, 50 * MS + MS / 2);
    assert_int_equal(tickers[0].ticks, 50);
    assert_int_equal(tickers[1].ticks, 10);
    assert_int_equal(tickers[2].ticks, 0);
    sh_world_resume(world, 1);
    sh_world_restart(world, 2);
    (void)sh_world_run_until(world, NULL, NULL, 60 * MS + MS / 4);
    assert_int_equal(tickers[1].ticks, 60); /* it catches up */
    assert_int_equal(tickers[2].ticks, 9);  /* it began anew, at half a millisecond */
    sh_world_destroy(world);
}

static unsigned endless_step(void *arg)
{
    ++*(uint64_t *)arg;
    return 1;
}

static uint64_t overdue(void *arg)
{
    (void)arg;
    return 0;
}

static unsigned idle_step(void *arg)
{
    ++*(uint64_t *)arg;
    return 0;
}

/* A step that never runs out of work, or is due for ever without any, can't stop time. */
/* A node that, once its link is open, pushes a byte, looks at its clock, and pushes another; or, at
 * the other end, notes when each came. */
struct talker {
    struct sh_world *world;
    unsigned node;
    bool sends;
    sh_link link;
    unsigned count; /* of bytes pushed or pulled */
    unsigned runs;
    uint64_t at_ns[2];
};

static unsigned talker_step(void *arg)
{
    struct talker *talker = arg;
    struct sh_wire *wire = sh_world_env(talker->world, talker->node)->wire;
    const struct sh_clock *clock = &sh_world_env(talker->world, talker->node)->clock;
    struct sh_wire_event events[4];
    char byte;
    talker->runs++;
    unsigned seen = wire->ops->poll(wire, events, 4, 0);
    for (unsigned i = 0; i < seen; i++) {
        bool is_open = events[i].kind == SH_WIRE_OPENED;
        while (talker->sends && is_open && talker->count < 2) {
            assert_int_equal(wire->ops->push(wire, talker->link, sh_bytes_text("x")), 1);
            talker->at_ns[talker->count++] = sh_now(clock);
        }
        while (!talker->sends && talker->count < 2 && events[i].kind == SH_WIRE_READABLE &&
               wire->ops->pull(wire, events[i].link, &byte, 1) == 1)
            talker->at_ns[talker->count++] = sh_world_now(talker->world);
    }
    return seen;
}

static void talker_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct talker *talker = arg;
    char bound[SH_WIRE_ADDRESS_MAX];
    struct sh_wire *wire = sh_world_env(world, node)->wire;
    talker->world = world;
    talker->node = node;
    if (talker->sends)
        assert_int_equal(wire->ops->open(wire, "node0:4100", 1, &talker->link), SHOAL_OK);
    else
        assert_int_equal(wire->ops->listen(wire, "node0:4100", bound), SHOAL_OK);
    sh_world_step_add(world, node,
                      (struct sh_step){.name = "talker", .run = talker_step, .arg = talker});
}

/* What a node did before it looked at its clock reaches others at once; what it did after it, when
 * it goes on. Until then it is not run. */
static void a_node_stops_inside_a_step(void **state)
{
    (void)state;
    struct sh_world *world = sh_world_create(&(struct sh_world_config){.seed = 1});
    struct talker talkers[2] = {{.sends = false}, {.sends = true}};
    for (unsigned i = 0; i < 2; i++)
        sh_world_node_add(world, &(struct sh_world_node){.boot = talker_boot, .arg = &talkers[i]});
    sh_world_stop_inside(world, 1, 1, 5 * MS);
    assert_false(sh_world_run_until(world, NULL, NULL, 2 * MS));
    assert_true(sh_world_is_paused(world, 1));
    assert_false(sh_world_is_paused(world, 0));
    assert_int_equal(talkers[1].count, 2);
    assert_true(talkers[1].at_ns[1] >= talkers[1].at_ns[0]);
    assert_int_equal(talkers[0].count, 1);
    assert_true(talkers[0].at_ns[0] < 2 * MS);
    unsigned runs = talkers[1].runs;
    assert_false(sh_world_run_until(world, NULL, NULL, 4 * MS));
    assert_int_equal(talkers[1].runs, runs);
    assert_false(sh_world_run_until(world, NULL, NULL, 8 * MS));
    assert_false(sh_world_is_paused(world, 1));
    assert_int_equal(talkers[0].count, 2);
    assert_true(talkers[0].at_ns[1] >= 5 * MS);
    assert_true(talkers[1].runs > runs);
    sh_world_destroy(world);
}

static void time_passes_whatever_steps_do(void **state)
{
    (void)state;
    struct sh_world_config config = {.seed = 5};
    struct sh_world *world = sh_world_create(&config);
    struct sh_world_node node = {0};
    uint64_t runs = 0;
    unsigned number = sh_world_node_add(world, &node);
    sh_world_step_add(world, number, (struct sh_step){.run = endless_step, .arg = &runs});
    assert_false(sh_world_run_until(world, NULL, NULL, MS));
    assert_in_range(runs, 1000, 10000); /* 1 to 1000 ns each */
    sh_world_destroy(world);

    world = sh_world_create(&config);
    number = sh_world_node_add(world, &node);
    runs = 0;
    sh_world_step_add(world, number,
                      (struct sh_step){.run = idle_step, .due_ns = overdue, .arg = &runs});
    assert_false(sh_world_run_until(world, NULL, NULL, MS));
    assert_in_range(runs, 900, 1100);
    sh_world_destroy(world);
}

static void streams_of_random_numbers_are_apart(void **state)
{
    (void)state;
    struct sh_prng parent = sh_prng_make(7);
    struct sh_prng first = sh_prng_split(&parent);
    struct sh_prng second = sh_prng_split(&parent);
    unsigned equal = 0;
    unsigned low = 0;
    for (unsigned i = 0; i < 10000; i++) {
        equal += sh_prng_next(&first) == sh_prng_next(&second);
        uint64_t number = sh_prng_between(&first, 10, 19);
        assert_in_range(number, 10, 19);
        low += number < 15;
    }
    assert_int_equal(equal, 0);
    assert_in_range(low, 4700, 5300); /* six standard deviations */
    assert_false(sh_prng_chance(&first, 0));
    assert_true(sh_prng_chance(&first, SH_PRNG_MILLION));
}

/* A node costs nothing while others are busy: that is what makes large worlds fast. */
static void steps_run_only_when_there_may_be_work(void **state)
{
    (void)state;
    struct ticker tickers[2];
    struct sh_world *world = make_tickers(tickers, 2, 1, NULL);
    tickers[1].next_ns += 9 * MS; /* node 0 ticks ten times before */
    assert_false(sh_world_run_until(world, NULL, NULL, 9 * MS + MS / 2));
    assert_int_equal(tickers[0].ticks, 9);
    assert_int_equal(tickers[1].ticks, 0);
    assert_true(tickers[0].runs >= 9);
    assert_true(tickers[1].runs >= 1 && tickers[1].runs <= 3);
    sh_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_virtual),
        cmocka_unit_test(run_ends_when_the_predicate_holds),
        cmocka_unit_test(same_seed_same_trace),
        cmocka_unit_test(events_come_in_order_of_time_then_making),
        cmocka_unit_test(paused_and_crashed_nodes_do_nothing),
        cmocka_unit_test(a_node_stops_inside_a_step),
        cmocka_unit_test(time_passes_whatever_steps_do),
        cmocka_unit_test(streams_of_random_numbers_are_apart),
        cmocka_unit_test(steps_run_only_when_there_may_be_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
