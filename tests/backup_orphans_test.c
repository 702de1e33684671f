/* Real backups that were replaced while they were down or cut off, or whose zone was dropped then: once they are back they find out that nobody needs
 * their replicas, and drop them; and no replica goes that a record names, nor any whose owner has failed.
 *
 * SHOAL_TEST_SEEDS: how many random runs (default 2). SHOAL_TEST_SEED: the first of them (default: random; printed). */
#include "tests/backup_keepers_int.h"
#include "tests/seed_int.h"

#define SECOND (1000 * FAKE_MS)
#define CHUNKS 150 /* of several zones */
#define ROUNDS                                                                                     \
    (240 *                                                                                         \
     SECOND) /* two looks for orphans at least, the second of which asks about what was quiet since the first */

static struct sh_world_config config_of(uint64_t seed)
{
    return (struct sh_world_config){
        .seed = seed,
        .wire = {.delay_ns_min = 10000,
                 .delay_ns_max = seed % 2 ? 200000 : 2000000,
                 .lost_ns_max = 5 * FAKE_MS,
                 .window_bytes_min = 1 << 15,
                 .window_bytes_max = 1 << 18},
        .disk = {.delay_ns_min = 20000, .delay_ns_max = 3 * FAKE_MS, .survive_ppm = 500000}};
}

static void open_seeded(uint64_t seed)
{
    const struct sh_world_config config = config_of(seed);
    has_owner_failed = false;
    owner_open_with(&owner, &config, 4, 4, 2, node_of);
    owner.chunks_most = CHUNKS;
    write_for(800 * FAKE_MS);
    owner_settle_only(&owner);
}

static bool is_named(const struct fake_backup *backup, uint64_t id)
{
    struct sh_zone record;
    return sh_metadata_zone(owner.superpeer.metadata, id, &record) &&
           sh_zone_has_backup(&record, backup->nid, backup->disk);
}

/* Replicas that no record names, of the backups that are up. */
static unsigned orphans_count(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < owner.backups_count; i++) {
        const struct sh_replog_zone *zone;
        uint64_t above = UINT64_MAX;
        while (backups[i].keeper && (zone = sh_replog_zone_below(backups[i].log, above))) {
            above = sh_replog_zone_id(zone);
            count += !is_named(&owner.backups[i], above);
        }
    }
    return count;
}

static uint64_t orphans_dropped(void)
{
    uint64_t dropped = 0;
    for (unsigned i = 0; i < owner.backups_count; i++) {
        struct sh_keeper_status status = {.zones = 0};
        if (backups[i].keeper)
            sh_keeper_status_get(backups[i].keeper, &status);
        dropped += status.orphans;
    }
    return dropped;
}

/* The backup that the owner's first zone has at that place. */
static unsigned backup_of_first(unsigned place)
{
    struct sh_zone_state zone;
    assert_true(sh_backup_zone_state(owner.backup, 0, &zone) && place < zone.count);
    return zone.backups[place].nid.v - FAKE_OWNER - 1u;
}

/* A backup of the first zone was away until its zones had other ones, and has returned. */
static void replaced_while_down(void)
{
    unsigned i = backup_of_first(0);
    backup_fail(i, true);
    write_for(200 * FAKE_MS);
    owner_settle_only(&owner);
    backup_return(i);
    owner_pass(&owner, SECOND);
}

static void end(void)
{
    write_for(100 * FAKE_MS);
    owner_settle_only(&owner);
    logs_check();
    owner_close(&owner);
}

/* --- Cases ------------------------------------------------------------------------------------- */

static void a_replica_that_was_replaced_goes(void **state)
{
    (void)state;
    open_seeded(3);
    replaced_while_down();
    assert_true(orphans_count() > 0);
    owner_pass(&owner, ROUNDS);
    assert_int_equal(orphans_count(), 0);
    assert_true(orphans_dropped() > 0);
    end();
}

/* Most chunks go, and with them zones. */
static void chunks_remove(void)
{
    owner.chunks_most = 2;
    write_for(800 * FAKE_MS);
    owner_settle_only(&owner);
    owner_pass(&owner, SECOND);
}

static bool is_first_concluded(void)
{
    struct sh_zone_state zone;
    return sh_backup_zone_state(owner.backup, 0, &zone) && zone.is_concluded;
}

static void a_replica_of_a_dropped_zone_goes(void **state)
{
    (void)state;
    owner.config.sparse_zones = 1; /* the last chunks of a zone move to another one */
    open_seeded(4);
    for (unsigned i = 0; !is_first_concluded(); i++) {
        assert_true(i < 100);
        write_for(100 * FAKE_MS);
    }
    owner.config.sparse_zones = 0; /* of the next owner */
    /* The owner does not reach it, and the superpeers do. */
    unsigned away = backup_of_first(0);
    sh_world_partition(owner.world, 2, UINT64_C(4) << away, false);
    owner.are_failed[away] = true;
    owner_view(&owner);
    chunks_remove();
    assert_true(owner_status(&owner).dropped > 0);
    assert_true(orphans_count() > 0);
    uint64_t dropped = orphans_dropped();
    owner_pass(&owner, ROUNDS);
    assert_true(orphans_count() > 0 && orphans_dropped() == dropped); /* nobody tells it */
    sh_world_heal(owner.world);
    backup_return(away);
    owner_pass(&owner, ROUNDS);
    assert_int_equal(orphans_count(), 0);
    owner.chunks_most = CHUNKS;
    end();
}

/* Superpeers that do not answer, or not always, delay it. */
static void lost_answers_keep_it(void **state)
{
    (void)state;
    open_seeded(5);
    replaced_while_down();
    unsigned count = orphans_count();
    owner.superpeer.lost_ppm = 1000000;
    owner_pass(&owner, ROUNDS);
    assert_true(count > 0 && orphans_count() == count);
    owner.superpeer.lost_ppm = 300000;
    owner_pass(&owner, 2 * ROUNDS);
    owner.superpeer.lost_ppm = 0;
    owner_pass(&owner, ROUNDS);
    assert_int_equal(orphans_count(), 0);
    end();
}

/* The superpeers have lost all records, and say of no zone that it is there: nothing goes by that. Once they are registered again, orphans do. */
static void lost_records_keep_them(void **state)
{
    (void)state;
    open_seeded(6);
    replaced_while_down();
    unsigned count = orphans_count();
    fake_superpeer_lose(&owner.superpeer);
    owner_pass(&owner, 20 * SECOND);
    assert_true(count > 0 && !orphans_dropped());
    owner_pass(&owner, 2 * ROUNDS);
    assert_int_equal(orphans_count(), 0);
    assert_true(orphans_dropped() >= count && owner_status(&owner).records_lost > 0);
    assert_int_equal(owner_status(&owner).copies, 0);
    end();
}

/* An old copy of the records names nodes that were replaced since, and not those that have the zones now. */
static void old_records_keep_them(void **state)
{
    (void)state;
    open_seeded(7);
    fake_superpeer_save(&owner.superpeer);
    replaced_while_down();
    uint64_t copies = owner_status(&owner).copies_done;
    fake_superpeer_age(&owner.superpeer);
    owner_pass(&owner, 2 * ROUNDS);
    assert_int_equal(orphans_count(), 0);
    assert_int_equal(owner_status(&owner).copies_done, copies); /* none was needed: all stayed */
    end();
}

/* The owner is gone: what it has left is a recovery's, even what no record names. */
static void a_failed_owner_keeps_them(void **state)
{
    (void)state;
    open_seeded(8);
    replaced_while_down();
    unsigned count = orphans_count();
    assert_true(count > 0);
    has_owner_failed = true;
    for (unsigned i = 0; i < owner.backups_count; i++)
        sh_keeper_view_changed(backups[i].keeper);
    owner_pass(&owner, ROUNDS); /* it still answers, as if it had not heard */
    assert_true(orphans_count() >= count && !orphans_dropped());
    for (unsigned i = 0; i < owner.backups_count; i++)
        sh_world_crash(owner.world, 2 + i);
    owner_close(&owner);
}

/* --- At random --------------------------------------------------------------------------------- */

static void trouble_make(void)
{
    unsigned which = owner_draw(&owner, owner.backups_count), up = 0;
    for (unsigned k = 0; k < owner.backups_count; k++)
        up += backups[k].keeper != NULL;
    switch (owner_draw(&owner, 5)) {
    case 0:
        sh_world_cut(owner.world, owner_draw(&owner, 2), 2 + which);
        break;
    case 1:
    case 2:
        if (up > 2)
            backup_fail(which, owner_draw(&owner, 3));
        break;
    default:
        backup_return(which);
        break;
    }
    owner.superpeer.lost_ppm = owner_draw(&owner, 3) ? 0 : 300000;
    owner.superpeer.refused_ppm = owner_draw(&owner, 3) ? 0 : 300000;
    owner.chunks_most = owner_draw(&owner, 3) ? CHUNKS : 5;
}

/* Minutes pass between bursts of writes: looks for orphans and comparisons meet whatever is under way. */
static void run_seed(uint64_t seed, uint64_t at)
{
    (void)at;
    print_message("seed %llu\n", (unsigned long long)seed);
    open_seeded(seed);
    for (unsigned i = 0; i < 30; i++) {
        write_for(owner_draw(&owner, 60) * FAKE_MS);
        owner_pass(&owner, owner_draw(&owner, owner_draw(&owner, 2) ? 100 : 50000) * FAKE_MS);
        trouble_make();
    }
    owner.superpeer.lost_ppm = owner.superpeer.refused_ppm = 0;
    owner.chunks_most = CHUNKS;
    for (unsigned i = 0; i < owner.backups_count; i++)
        backup_return(i);
    owner_settle_only(&owner);
    owner_pass(&owner, ROUNDS);
    assert_int_equal(orphans_count(), 0);
    end();
}

static void random_runs_keep_what_is_named(void **state)
{
    (void)state;
    test_fresh_seeds(2, run_seed);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_that_was_replaced_goes),
        cmocka_unit_test(a_replica_of_a_dropped_zone_goes),
        cmocka_unit_test(lost_answers_keep_it),
        cmocka_unit_test(lost_records_keep_them),
        cmocka_unit_test(old_records_keep_them),
        cmocka_unit_test(a_failed_owner_keeps_them),
        cmocka_unit_test(random_runs_keep_what_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
