/* Messaging in simulated worlds: the checkers of sim/msg_load.h hold under every fault, and notice
 * when something is broken on purpose.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds to try beside the fixed ones (default 4).
 * SHOAL_TEST_SEED: the first of them (default: random; printed). */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/msg_load.h"
#include "tests/seed_int.h"

#define CANARY_SEEDS 10

static void run_whole(uint64_t seed, unsigned nodes, struct sh_msg_load_result *result)
{
    struct sh_msg_load_config config = sh_msg_load_config_of(seed, nodes);
    sh_msg_load_run(&config, result);
    if (result->failed) {
        print_error("seed %" PRIu64 ", %u nodes: %s\n", seed, nodes, result->text);
        print_error("replay: shoal-sim --seed %" PRIu64 " --nodes %u --trace\n", seed, nodes);
    }
    assert_false(result->failed);
}

/* The worlds must not be so calm, nor so rough, that the checkers see nothing. */
static void fixed_seeds_hold(void **state)
{
    (void)state;
    struct sh_msg_load_result sum = {0};
    static const unsigned nodes[] = {2, 5};
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct sh_msg_load_result result;
        run_whole(seed, nodes[seed % 2], &result);
        sum.messages += result.messages;
        sum.requests += result.requests;
        sum.answers += result.answers;
        sum.losses += result.losses;
    }
    assert_true(sum.messages > 1000);
    assert_true(sum.requests > 1000);
    assert_true(sum.answers > sum.requests / 4);
    assert_true(sum.answers < sum.requests);
    assert_true(sum.losses > 50);
}

static void fresh_seed(uint64_t seed, uint64_t at)
{
    struct sh_msg_load_result result;
    run_whole(seed, at % 2 ? 5 : 2, &result);
}

static void fresh_seeds_hold(void **state)
{
    (void)state;
    test_fresh_seeds(4, fresh_seed);
}

static void same_seed_same_trace(void **state)
{
    (void)state;
    struct sh_msg_load_result first;
    struct sh_msg_load_result second;
    struct sh_msg_load_result other;
    run_whole(4, 5, &first);
    run_whole(4, 5, &second);
    run_whole(6, 5, &other);
    assert_true(first.trace_hash == second.trace_hash);
    assert_true(first.ended_ns == second.ended_ns);
    assert_int_equal(first.messages, second.messages);
    assert_true(first.trace_hash != other.trace_hash);
}

static void assert_caught(struct sh_msg_load_config config, const char *what)
{
    for (uint64_t seed = 1; seed <= CANARY_SEEDS; seed++) {
        struct sh_msg_load_result result;
        config.seed = seed;
        sh_msg_load_run(&config, &result);
        if (result.failed) {
            print_message("%s: caught with seed %" PRIu64 ": %s\n", what, seed, result.text);
            return;
        }
    }
    fail_msg("%s: not caught with %d seeds", what, CANARY_SEEDS);
}

static void a_lying_wire_is_caught(void **state)
{
    (void)state;
    static const char *const names[] = {"", "bytes twice", "bytes swapped", "bytes dropped"};
    for (enum sh_wire_lie lie = SH_WIRE_TWICE; lie <= SH_WIRE_DROP; lie++) {
        struct sh_msg_load_config config = sh_msg_load_config_of(0, 2);
        config.lie = lie;
        assert_caught(config, names[lie]);
    }
}

static void a_broken_protocol_is_caught(void **state)
{
    (void)state;
    static const char *const names[] = {"",
                                        "message twice",
                                        "message late",
                                        "message dropped",
                                        "answer mixed up",
                                        "completion lost"};
    for (int broken = SH_MSG_LOAD_TWICE; broken <= SH_MSG_LOAD_SILENCE; broken++) {
        struct sh_msg_load_config config = sh_msg_load_config_of(0, 2);
        config.broken = (enum sh_msg_load_break)broken;
        assert_caught(config, names[broken]);
    }
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds_hold),
        cmocka_unit_test(fresh_seeds_hold),
        cmocka_unit_test(same_seed_same_trace),
        cmocka_unit_test(a_lying_wire_is_caught),
        cmocka_unit_test(a_broken_protocol_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
