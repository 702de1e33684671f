/* The log of replicas on a simulated disk, which loses, tears and delays what is not synced, and fails at times: after
 * each power cut its file has everything that was called durable, after the end of a process all that was handed, and nothing that nobody
 * wrote. Half of the logs sync later.
 * What is read of a zone is exactly what its writes up to its end have made of it.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds (default 40). SHOAL_TEST_SEED: the first of them. */
#include "tests/replog_crash_int.h"

static void run(uint64_t seed, bool has_drops)
{
    run_as(seed, &(struct run_kind){.has_drops = has_drops});
}

static void run_seed(uint64_t seed, uint64_t at)
{
    (void)at;
    run(seed, false);
}

static void run_seed_with_drops(uint64_t seed, uint64_t at)
{
    (void)at;
    run(seed, true);
}

static void fixed_seeds_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_seed(seed, seed);
    print_message(
        "%u writes, %u chunks read back, %u packs, %u batches, %u slots cleaned, %u marks dropped, "
        "%u flushes, %u compactions, %u logs out of service, %u writes that were only handed, %u "
        "chunks read, %u abandoned\n",
        all_writes, all_kept, all_packs, all_batches, all_cleaned, all_marks, all_flushes,
        all_compactions, all_troubles, all_handed, all_taken, all_abandoned);
    assert_true(!all_full && all_cleaned > 400 && all_compactions > 50 && all_flushes > 1000 &&
                all_kept > 10000 && all_packs > 1000 && all_batches > 500 && all_troubles > 5 &&
                all_handed > 200 && all_taken > 10000 && all_abandoned > 100);
}

static void fresh_seeds_hold(void **state)
{
    (void)state;
    test_fresh_seeds(40, run_seed);
}

/* Zones are dropped, and added again: of one that was being dropped at a crash all is there, or nothing. */
static void fixed_seeds_with_drops_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run(seed, true);
    print_message("%u zones dropped, %u drops cut off\n", all_drops, all_drops_cut);
    assert_true(all_drops > 100 && all_drops_cut > 5);
}

static void fresh_seeds_with_drops_hold(void **state)
{
    (void)state;
    test_fresh_seeds(40, run_seed_with_drops);
}

/* The disk is full at times: the log goes on, and nothing that was durable is lost. */
static void fixed_seeds_with_full_disks_hold(void **state)
{
    (void)state;
    unsigned writes = all_writes;
    for (uint64_t seed = 1; seed <= 30; seed++)
        run_as(seed, &(struct run_kind){.fills = true});
    print_message("%u times no room, %u discards, %u writes\n", all_refused, all_discards,
                  all_writes - writes);
    assert_true(all_refused > 5 && all_discards > 50 && all_writes - writes > 10000);
}

/* Zones take turns with the memory for their tables of versions, so epochs end when others need it. */
static void fixed_seeds_with_short_tables_hold(void **state)
{
    (void)state;
    unsigned before = all_short;
    are_tables_short = true;
    for (uint64_t seed = 1; seed <= 20; seed++)
        run_seed(seed, seed);
    are_tables_short = false;
    print_message("%u times less than an eighth of the memory for tables was left\n",
                  all_short - before);
    assert_true(all_short - before > 100);
}

#define EPOCHS 12 /* of an eon; those of a quarter are for starts */

static void run_seed_with_eons(uint64_t seed, uint64_t at)
{
    run_as(seed, &(struct run_kind){.has_drops = at % 2, .epoch_max = EPOCHS});
}

/* Epochs are used up again and again: zones live through several eons, and nothing old passes for new. */
static void fixed_seeds_with_eons_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        run_seed_with_eons(seed, seed);
    run_seed_with_eons(217526449832764, 0); /* pieces of two eons come one after the other */
    print_message("%u eons\n", all_eons);
    assert_true(all_eons > 300);
}

static void fresh_seeds_with_eons_hold(void **state)
{
    (void)state;
    test_fresh_seeds(20, run_seed_with_eons);
}

/* Bits go bad in what is written: each zone has all that was called durable, or its owner is told. */
static void run_seed_with_flips(uint64_t seed, uint64_t at)
{
    (void)at;
    run_as(seed, &(struct run_kind){.flips = true, .flip_ppm = 10000, .has_drops = seed % 3 == 1});
}

static void fixed_seeds_with_flips_hold(void **state)
{
    (void)state;
    unsigned told = all_told, early = all_ended_early;
    for (uint64_t seed = 1; seed <= 40; seed++)
        run_seed_with_flips(seed, seed);
    print_message("damage: %u times told, %u times writes are missing at the end\n",
                  all_told - told, all_ended_early - early);
    assert_true(all_told - told > 5);
}

static void fresh_seeds_with_flips_hold(void **state)
{
    (void)state;
    test_fresh_seeds(20, run_seed_with_flips);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds_hold),
        cmocka_unit_test(fresh_seeds_hold),
        cmocka_unit_test(fixed_seeds_with_drops_hold),
        cmocka_unit_test(fresh_seeds_with_drops_hold),
        cmocka_unit_test(fixed_seeds_with_short_tables_hold),
        cmocka_unit_test(fixed_seeds_with_full_disks_hold),
        cmocka_unit_test(fixed_seeds_with_eons_hold),
        cmocka_unit_test(fresh_seeds_with_eons_hold),
        cmocka_unit_test(fixed_seeds_with_flips_hold),
        cmocka_unit_test(fresh_seeds_with_flips_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
