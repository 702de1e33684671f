/* The log of replicas on a simulated disk of which bits go bad while its process is away, after it has been cut off as in replog_crash_test.c:
 * each zone has all acknowledged writes, with the right bytes, or the log says that it is damaged, or ends before them; nothing wrong is ever
 * handed out. Where no bit has gone bad, nothing is called damaged, by the log or by a look at its file.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds (default 40). SHOAL_TEST_SEED: the first of them. */
#include "tests/replog_crash_int.h"

#define EPOCHS                                                                                     \
    16 /* of an eon; those of a quarter are for starts, of which there are LIVES after the first */

static void run_seed(uint64_t seed, uint64_t at)
{
    (void)at;
    run_as(seed, &(struct run_kind){.flips = true,
                                    .has_drops = seed % 4 == 1,
                                    .has_no_primary = seed % 5 == 2,
                                    .epoch_max = seed % 6 == 3 ? EPOCHS : 0});
}

static void fixed_seeds_tell_of_damage(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 170; seed++)
        run_seed(seed, seed);
    print_message("%u flips; damage: %u times told, %u times writes are missing at the end, %u "
                  "times a drop was forgotten; %u chunks read\n",
                  all_flips, all_told, all_ended_early, all_orphans, all_taken);
    assert_true(all_flips > 200 && all_told > 50 && all_ended_early > 2 && all_taken > 10000);
}

static void fresh_seeds_tell_of_damage(void **state)
{
    (void)state;
    test_fresh_seeds(40, run_seed);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds_tell_of_damage),
        cmocka_unit_test(fresh_seeds_tell_of_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
