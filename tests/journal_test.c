/* The journal on a simulated disk, which loses, tears and delays what is not synced, and fails at
 * times: after each crash everything that was called synced is there, in order, and nothing that
 * was dropped or replaced.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds (default 40). SHOAL_TEST_SEED: the first of them. */
#include "tests/journal_rig_int.h"

static struct sh_disk_faults faults_of(struct sh_prng *prng)
{
    return (struct sh_disk_faults){
        .delay_ns_min = 10000,
        .delay_ns_max = 10001 + sh_prng_below(prng, 3 * MS),
        .again_ppm = 20000,
        .write_err_ppm = sh_prng_below(prng, 3) ? 0 : 10000,
        .sync_err_ppm = sh_prng_below(prng, 3) ? 0 : 10000,
        .survive_ppm = (uint32_t)sh_prng_below(prng, 1000001),
        .torn_ppm = (uint32_t)sh_prng_below(prng, 1000001),
    };
}

static unsigned all_saves, all_troubles, all_boots, all_installs, all_drops;

static void run_seed(uint64_t seed, uint64_t at)
{
    static struct rig rig;
    (void)at;
    struct sh_prng prng = sh_prng_make(seed);
    struct sh_disk_faults faults = faults_of(&prng);
    struct sh_disk_faults calm = faults;
    calm.write_err_ppm = calm.sync_err_ppm = calm.again_ppm = 0;
    rig_open(&rig, seed, &calm);
    for (unsigned life = 0; life < 6; life++) {
        assert_int_equal(rig.opened, SHOAL_OK);
        notes_begin(&rig);
        unsigned saves = rig.saves;
        sh_world_disk_faults_set(rig.world, &faults);
        unsigned acts = (unsigned)sh_prng_below(&rig.prng, 500);
        for (unsigned i = 0; i < acts; i++) {
            act(&rig);
            if (sh_prng_below(&rig.prng, 4) == 0)
                rig_run(&rig, sh_prng_below(&rig.prng, 2 * MS));
        }
        if (sh_prng_below(&rig.prng, 3) == 0) {
            sh_world_disk_faults_set(rig.world, &calm);
            rig_run(&rig, 20 * S);
            assert_int_equal(sh_journal_synced(rig.journal), sh_journal_last(rig.journal));
            assert_int_equal(sh_journal_trouble(rig.journal), SHOAL_OK);
            assert_false(sh_journal_is_saving(rig.journal));
            assert_true(sh_journal_bytes(rig.journal) <=
                        KEPT_BYTES + 2 * STREAMS * 5000 + 2 * SEGMENT_BYTES);
            struct sh_journal_counts counts = sh_journal_counts(rig.journal);
            assert_int_equal(counts.snapshots, rig.saves - saves);
            assert_true(counts.bytes >= counts.snapshot_bytes && counts.batches > 0);
        }
        sh_lsn synced = sh_journal_synced(rig.journal);
        sh_world_disk_faults_set(rig.world, &calm);
        sh_world_crash(rig.world, rig.node);
        sh_world_restart(rig.world, rig.node);
        assert_int_equal(rig.opened, SHOAL_OK);
        check(&rig, synced, seed);
    }
    all_saves += rig.saves;
    all_troubles += rig.troubles;
    all_boots += rig.boots;
    all_installs += rig.installs;
    all_drops += rig.drops;
    rig_close(&rig);
}

static void fixed_seeds_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_seed(seed, seed);
    print_message("%u boots, %u snapshots, %u installed, %u dropped, %u steps in trouble\n",
                  all_boots, all_saves, all_installs, all_drops, all_troubles);
    assert_true(all_saves > 60 && all_installs > 60 && all_drops > 20 && all_troubles > 20);
}

static void fresh_seeds_hold(void **state)
{
    (void)state;
    test_fresh_seeds(40, run_seed);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds_hold),
        cmocka_unit_test(fresh_seeds_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
