/* An owner of zones and real backups: keepers with their logs, on simulated disks. Connections are cut, backups lose their power, or are
 * declared failed and replaced; in the end what their logs have is read back, and is what the store has.
 *
 * SHOAL_TEST_SEEDS: how many random runs (default 2). SHOAL_TEST_SEED: the first of them (default: random; printed). */
#include "tests/backup_keepers_int.h"
#include "tests/seed_int.h"

static void run_seed(uint64_t seed, uint64_t at)
{
    struct sh_world_config config = {
        .seed = seed,
        .wire = {.delay_ns_min = 10000,
                 .delay_ns_max = at % 2 ? 200000 : 2000000,
                 .lost_ns_max = 5 * FAKE_MS,
                 .window_bytes_min = 1 << 15,
                 .window_bytes_max = 1 << 18},
        .disk = {.delay_ns_min = 20000, .delay_ns_max = 3 * FAKE_MS, .survive_ppm = 500000}};
    print_message("seed %llu\n", (unsigned long long)seed);
    owner_open_with(&owner, &config, 4, 4, 2, node_of);
    for (unsigned i = 0; i < 25; i++) {
        write_for(owner_draw(&owner, 50) * FAKE_MS);
        unsigned which = owner_draw(&owner, owner.backups_count), up = 0;
        for (unsigned k = 0; k < owner.backups_count; k++)
            up += backups[k].keeper != NULL;
        switch (owner_draw(&owner, 4)) {
        case 0:
            sh_world_cut(owner.world, 1, 2 + which);
            break;
        case 1:
            if (up > 2)
                backup_fail(which, owner_draw(&owner, 2));
            break;
        default:
            backup_return(which);
            break;
        }
    }
    for (unsigned i = 0; i < owner.backups_count; i++)
        backup_return(i);
    write_for(50 * FAKE_MS);
    owner_settle_only(&owner);
    assert_true(owner.acknowledged > 10);
    logs_check();
    owner_close(&owner);
}

static void random_runs_lose_nothing(void **state)
{
    (void)state;
    test_fresh_seeds(2, run_seed);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_runs_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
