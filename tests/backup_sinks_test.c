/* An owner's side of replication, in simulated worlds, with a superpeer that keeps records as real ones do, and backups that keep their
 * replicas as models, and make trouble. At each acknowledgement all recorded backups must have what was acknowledged.
 *
 * SHOAL_TEST_SEEDS: how many random runs (default 3). SHOAL_TEST_SEED: the first of them (default: random; printed). */
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

/* Three backups, and nothing goes wrong. */
static void writes_reach_all_backups(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 3, 3, 3);
    owner.is_checking = true;
    write_for(1500 * FAKE_MS);
    owner_settle(&owner);
    struct sh_backup_status status = owner_status(&owner);
    assert_true(owner.acknowledged > 300 && owner.checks > 300);
    assert_true(status.zones > 3 && !status.under_replicated && !status.bare && !status.trouble);
    assert_int_equal(status.copies_done, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_true(owner.backups[i].messages > 100 && !owner.backups[i].alone);
    owner_close(&owner);
}

/* Of six nodes, the owner among them, one set of three does not have it: all zones go there. */
static void zones_go_to_copysets(void **state)
{
    (void)state;
    struct sh_zone_state zone;
    unsigned zones = 0;
    owner.config.cluster.has_copysets = true;
    owner_open(&owner, &calm, 5, 5, 3);
    owner.config.cluster.has_copysets = false; /* of the next owner */
    write_for(600 * FAKE_MS);
    owner_settle(&owner);
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
         from = zone.number + 1, zones++) {
        assert_int_equal(zone.count, 3);
        assert_int_equal(zone.number >> 24, FAKE_LIFE >> 32); /* starts of the owner's life */
        for (unsigned i = 0; i < zone.count; i++)
            assert_in_range(zone.backups[i].nid.v, FAKE_OWNER + 3, FAKE_OWNER + 5);
    }
    assert_true(zones > 3);
    owner_close(&owner);
}

/* Each of five backups is the first one of a fifth of the zones, also after some have failed, and others have their place. */
static void first_backups_are_spread(void **state)
{
    (void)state;
    owner.config.cluster.placement = SH_PLACEMENT_DISJOINT;
    owner_open(&owner, &calm, 5, 5, 2);
    owner.config.cluster.placement = 0; /* of the next owner */
    owner.chunks_most = 150;            /* so many zones that it does not matter which of them go */
    for (unsigned round = 0; round < 2; round++) {
        unsigned firsts[FAKE_BACKUPS] = {0}, most = 0, least = UINT32_MAX;
        struct sh_zone_state zone;
        write_for(800 * FAKE_MS);
        owner_settle(&owner);
        for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
             from = zone.number + 1)
            firsts[zone.backups[0].nid.v - FAKE_OWNER - 1]++;
        for (unsigned i = 0; i < FAKE_BACKUPS; i++) {
            most = firsts[i] > most ? firsts[i] : most;
            least = firsts[i] < least ? firsts[i] : least;
        }
        assert_true(least > 0 && most - least <= 2 + 2 * round);
        if (round)
            break;
        backup_fail(1, true);
        write_for(300 * FAKE_MS);
        owner_settle(&owner);
        backup_return(1);
    }
    owner_close(&owner);
}

/* A backup that fails is replaced: the new one gets what was written before, the record says so, and the old one counts no more. */
static void failed_backup_replace(uint64_t seed)
{
    struct sh_world_config config = calm;
    config.seed = seed;
    owner_open(&owner, &config, 4, 4, 3);
    owner.is_checking = true;
    write_for(600 * FAKE_MS);
    backup_fail(1, true);
    write_for(600 * FAKE_MS);
    owner_settle(&owner);
    struct sh_backup_status status = owner_status(&owner);
    assert_true(status.copies_done > 0 && status.copied_bytes > 100);
    assert_int_equal(status.under_replicated, 0);
    backup_return(1);
    backup_fail(2, true);
    write_for(600 * FAKE_MS);
    owner_settle(&owner);
    assert_true(owner_status(&owner).copies_done > status.copies_done);
    owner_close(&owner);
}

static void a_failed_backup_is_replaced(void **state)
{
    (void)state;
    /* In these a chunk moves to another zone while its old one is copied. */
    for (uint64_t seed = 2; seed <= 4; seed++)
        failed_backup_replace(seed);
}

/* A lost connection costs what was on its way, and nothing else. */
static void a_lost_connection_goes_on(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 3, 3, 3);
    owner.is_checking = true;
    for (unsigned i = 0; i < 40; i++) {
        write_for(20 * FAKE_MS);
        sh_world_cut(owner.world, 1, 2 + i % 3);
    }
    owner_settle(&owner);
    assert_int_equal(owner_status(&owner).copies_done, 0);
    assert_true(owner.backups[0].opens > owner.backups[0].anews + 5);
    owner_close(&owner);
}

/* How many zones have had a record. */
static uint64_t zones_made(void)
{
    return sh_metadata_zone_last(owner.superpeer.metadata, (shoal_nid){FAKE_OWNER}) & FAKE_LOCALS;
}

/* A backup that starts again goes on where its disk ends, if the owner still has what is missing; else it is copied to anew. */
static void a_backup_that_starts_again_goes_on(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 3, 3, 3);
    owner.is_checking = true;
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    uint64_t before = zones_made();
    backup_fail(0, false);
    write_for(10 * FAKE_MS); /* these wait for it */
    backup_return(0);
    owner_settle(&owner);
    /* Zones that are made before it is heard of again get a copy, and none of those that were there. */
    assert_true(owner_status(&owner).copies_done <= zones_made() - before);
    write_for(100 * FAKE_MS);
    backup_fail(1, false); /* it loses writes that it has acknowledged, and not synced */
    backup_return(1);
    write_for(100 * FAKE_MS);
    owner_settle(&owner);
    assert_true(owner_status(&owner).copies_done > 0);
    owner_close(&owner);
}

/* Zones with too few backups get the others when nodes join; without any, only async writes are taken, but others wait a moment, as nodes
 * may be about to come. */
static void nodes_that_join_complete_zones(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 3, 0, 3);
    owner.is_checking = true;
    write_for(1500 * FAKE_MS);
    assert_true(!owner.refused_bare && owner.changes > 0 && !owner.acknowledged);
    owner_pass(&owner, 1000 * FAKE_MS);
    assert_true(owner.refused_bare > 10);
    write_for(300 * FAKE_MS);
    owner_pass(&owner, 100 * FAKE_MS);
    struct sh_backup_status status = owner_status(&owner);
    assert_true(owner.refused_bare > 20 && owner.changes > 10 && !owner.acknowledged);
    assert_true(status.zones > 0 && status.bare == status.zones && status.under_replicated);
    owner.are_failed[0] = false;
    owner_view(&owner);
    owner_pass(&owner, 3000 * FAKE_MS);
    assert_int_equal(owner_status(&owner).bare, 0);
    unsigned refused = owner.refused_bare;
    write_for(200 * FAKE_MS);
    owner_pass(&owner, 100 * FAKE_MS);
    assert_true(owner.acknowledged > 20 && owner.refused_bare == refused);
    assert_true(owner_status(&owner).under_replicated > 0);
    owner.are_failed[1] = owner.are_failed[2] = false;
    owner_view(&owner);
    write_for(200 * FAKE_MS);
    owner_settle(&owner);
    owner_close(&owner);
}

/* A zone without backups gets one: until the superpeers have it in the record, a recovery would ask nobody, so nothing is acknowledged. */
static void a_backup_on_its_way_acknowledges_nothing(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 2, 0, 2);
    owner.is_checking = true;
    write_for(300 * FAKE_MS);
    owner_pass(&owner, 100 * FAKE_MS);
    assert_true(sh_metadata_zone_last(owner.superpeer.metadata, (shoal_nid){FAKE_OWNER}) > 0);
    owner.superpeer.is_fencing = true;
    owner.are_failed[0] = false;
    owner_view(&owner);
    owner_pass(&owner, 3000 * FAKE_MS);
    assert_true(owner.backups[0].anews > 0); /* it has a copy by now */
    write_for(200 * FAKE_MS);
    owner_pass(&owner, 500 * FAKE_MS);
    assert_int_equal(owner.acknowledged, 0);
    owner.superpeer.is_fencing = false;
    owner_pass(&owner, 3000 * FAKE_MS);
    write_for(200 * FAKE_MS);
    owner_pass(&owner, 500 * FAKE_MS);
    assert_true(owner.acknowledged > 20);
    owner_close(&owner);
}

/* All backups have lost writes that they had acknowledged, and there are no other nodes: one of them begins anew, but not before the record is
 * without it, since what its disk has is gone then. */
static void an_old_replica_leaves_the_record_first(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 2, 2, 2);
    owner.is_checking = true;
    write_for(300 * FAKE_MS);
    backup_fail(0, false);
    backup_fail(1, false);
    backup_return(0);
    backup_return(1);
    unsigned anews = owner.backups[0].anews + owner.backups[1].anews;
    owner.superpeer.is_fencing = true;
    owner_pass(&owner, 3000 * FAKE_MS);
    assert_int_equal(owner.backups[0].anews + owner.backups[1].anews, anews);
    owner.superpeer.is_fencing = false;
    owner_pass(&owner, 3000 * FAKE_MS);
    write_for(100 * FAKE_MS);
    owner_settle(&owner);
    assert_true(owner.backups[0].anews + owner.backups[1].anews > anews);
    owner_close(&owner);
}

static uint64_t kept_id;

/* Writes that the only backup of a zone has acknowledged, and has not on its disk. */
static uint64_t lost_of(const struct sh_zone_state *zone)
{
    return zone->acked[SH_LEVEL_REPLICATED] - zone->acked[SH_LEVEL_DURABLE];
}

/* The only backup of some zones loses writes that it had acknowledged, most of them of one zone, of which its disk has what is durable, as no other has. Returns
 * which backup it is. */
static unsigned only_backup_lose(unsigned backups)
{
    struct sh_zone_state zone, most = {.number = 0};
    owner_open(&owner, &calm, backups, backups, 1);
    owner.is_checking = true;
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    for (unsigned k = 0; k < backups; k++)
        owner.backups[k].is_stuck = true;
    write_for(100 * FAKE_MS);
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
         from = zone.number + 1) {
        if (zone.live_bytes && lost_of(&zone) > lost_of(&most))
            most = zone;
    }
    assert_true(lost_of(&most) > 0);
    unsigned i = most.backups[0].nid.v - FAKE_OWNER - 1u;
    kept_id = sh_zone_id((shoal_nid){FAKE_OWNER}, most.number);
    backup_fail(i, false);
    for (unsigned k = 0; k < backups; k++)
        owner.backups[k].is_stuck = false;
    backup_return(i);
    return i;
}

/* Whether the superpeers have that backup in the zone's record. */
static bool is_recorded(unsigned i)
{
    struct sh_zone record;
    assert_true(sh_metadata_zone(owner.superpeer.metadata, kept_id, &record));
    return sh_zone_has_backup(&record, owner.backups[i].nid, owner.backups[i].disk);
}

/* Whether its replica is the one that it has had, and has not begun anew since. */
static bool is_kept(unsigned i)
{
    const struct fake_zone *replica = fake_find(&owner.backups[i], kept_id);
    return replica && !replica->began;
}

/* With another node, that one gets the zone: the old replica stays until the record names the new one. */
static void an_old_replica_stays_until_another_has_the_zone(void **state)
{
    (void)state;
    unsigned i = only_backup_lose(2), seen = 0;
    while (is_recorded(i)) {
        assert_true(is_kept(i) && seen++ < 2000);
        owner_pass(&owner, FAKE_MS);
    }
    assert_true(seen > 10 && owner_status(&owner).copies_done > 0);
    owner_settle(&owner);
    owner_close(&owner);
}

/* Without another one it stays for ten seconds, as one may come, and then begins anew in the record (docs/backup.md has what may be lost then). */
static void the_only_replica_begins_anew_last(void **state)
{
    (void)state;
    unsigned i = only_backup_lose(1);
    owner.is_checking = false;
    owner_pass(&owner, 9000 * FAKE_MS);
    assert_true(is_recorded(i) && is_kept(i));
    owner_pass(&owner, 4000 * FAKE_MS);
    assert_true(is_recorded(i) && !is_kept(i));
    owner_settle(&owner);
    owner_close(&owner);
}

/* A life that the superpeers have declared over changes nothing, and does not go out of service by itself: they may only
 * seem to, as here, where they take the life for up again. */
static void a_life_that_is_over_changes_nothing(void **state)
{
    (void)state;
    struct sh_zone_state zone;
    owner_open(&owner, &calm, 4, 4, 3);
    write_for(200 * FAKE_MS);
    owner.superpeer.is_fencing = true;
    assert_true(sh_backup_zone_state(owner.backup, 0, &zone));
    backup_fail(zone.backups[0].nid.v - FAKE_OWNER - 1u, true);
    write_for(500 * FAKE_MS);
    assert_true(owner_status(&owner).under_replicated == 0 && owner_status(&owner).copies == 0);
    owner.superpeer.is_fencing = false;
    owner_pass(&owner, 3000 * FAKE_MS); /* what was asked meanwhile is asked once more */
    owner_settle(&owner);
    assert_true(owner_status(&owner).copies_done > 0 && !owner_status(&owner).trouble);
    owner_close(&owner);
}

/* The only backup fails: writes wait until another one has the zone, which is found though nothing is written. */
static void the_only_backup_is_replaced(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 3, 3, 1);
    owner.is_checking = true;
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    for (unsigned i = 0; i < 2; i++)
        backup_fail(i, true);
    owner_pass(&owner, 200 * FAKE_MS);
    write_for(20 * FAKE_MS);
    owner_pass(&owner, 8000 * FAKE_MS);
    assert_true(owner_status(&owner).copies_done > 0);
    assert_int_equal(owner_status(&owner).bare, 0);
    unsigned acknowledged = owner.acknowledged;
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    assert_true(owner.acknowledged > acknowledged);
    owner_close(&owner);
}

/* Answers of superpeers are lost, while backups fail that were asked for: what the records name is what acknowledgements wait for. */
static void lost_answers_leave_no_doubt(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 6; round++) {
        owner_open(&owner, &calm, 5, 5, 2);
        owner.is_checking = true;
        owner.superpeer.lost_ppm = 500000;
        write_for(300 * FAKE_MS);
        backup_fail(round % 5, true);
        write_for(200 * FAKE_MS);
        backup_fail((round + 1) % 5, true);
        write_for(300 * FAKE_MS);
        owner.superpeer.lost_ppm = 0;
        owner_pass(&owner, 15000 * FAKE_MS);
        owner_settle(&owner);
        assert_true(owner.checks > 10);
        owner_close(&owner);
    }
}

/* --- At random --------------------------------------------------------------------------------- */

static void trouble_make(void)
{
    unsigned i = owner_draw(&owner, owner.backups_count);
    struct fake_backup *backup = &owner.backups[i];
    switch (owner_draw(&owner, 8)) {
    case 0:
    case 1:
        sh_world_cut(owner.world, 1, owner_draw(&owner, 2 + owner.backups_count));
        break;
    case 2:
        if (backups_up() > 1)
            backup_stop(i);
        break;
    case 3:
        if (backups_up() > 1)
            backup_fail(i, owner_draw(&owner, 2));
        break;
    case 4:
    case 5:
        backup_return(i);
        break;
    case 6:
        if (sh_world_is_paused(owner.world, 2 + i))
            sh_world_resume(owner.world, 2 + i);
        else if (backup->msg)
            sh_world_pause(owner.world, 2 + i);
        break;
    case 7:
        backup->full_ppm = owner_draw(&owner, 4) ? 0 : 20000;
        backup->gone_ppm = owner_draw(&owner, 4) ? 0 : 20000;
        backup->lost_ppm = owner_draw(&owner, 8) ? 0 : 2000;
        backup->busy_ppm = owner_draw(&owner, 3) ? 0 : 300000;
        backup->mute_ppm = owner_draw(&owner, 4) ? 0 : 100000;
        break;
    }
    owner.superpeer.lost_ppm = owner_draw(&owner, 4) ? 0 : 200000;
    owner.superpeer.refused_ppm = owner_draw(&owner, 4) ? 0 : 200000;
}

static void trouble_end(void)
{
    for (unsigned i = 0; i < owner.backups_count; i++) {
        struct fake_backup *backup = &owner.backups[i];
        backup->full_ppm = backup->gone_ppm = backup->lost_ppm = 0;
        backup->busy_ppm = backup->mute_ppm = 0;
        if (sh_world_is_paused(owner.world, 2 + i))
            sh_world_resume(owner.world, 2 + i);
        backup_return(i);
    }
    owner.superpeer.lost_ppm = owner.superpeer.refused_ppm = 0;
}

static void run_seed(uint64_t seed, uint64_t at)
{
    struct sh_world_config config = {.seed = seed,
                                     .wire = {.delay_ns_min = 10000,
                                              .delay_ns_max = at % 2 ? 200000 : 3000000,
                                              .piece_ppm = 20000,
                                              .lost_ns_max = 5 * FAKE_MS,
                                              .window_bytes_min = 1 << 15,
                                              .window_bytes_max = 1 << 18}};
    unsigned backups = 3 + (unsigned)(seed % 3);
    print_message("seed %llu\n", (unsigned long long)seed);
    /* In every other run chunks move out of zones that have few. */
    owner.config.sparse_zones = seed % 2 ? 1 : UINT32_MAX;
    owner_open(&owner, &config, backups, backups, (uint8_t)(1 + seed / 3 % 3));
    owner.is_checking = true;
    owner.checks_one_in = 4;
    for (unsigned i = 0; i < 30; i++) {
        write_for(owner_draw(&owner, 60) * FAKE_MS);
        trouble_make();
        /* Now and then for so long that backups which stand still are given up. */
        if (!owner_draw(&owner, 10))
            owner_pass(&owner, 3500 * FAKE_MS);
    }
    trouble_end();
    write_for(100 * FAKE_MS);
    owner_settle(&owner);
    owner_close(&owner);
}

static void random_runs_lose_nothing(void **state)
{
    (void)state;
    test_fresh_seeds(3, run_seed);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_reach_all_backups),
        cmocka_unit_test(zones_go_to_copysets),
        cmocka_unit_test(first_backups_are_spread),
        cmocka_unit_test(a_failed_backup_is_replaced),
        cmocka_unit_test(a_lost_connection_goes_on),
        cmocka_unit_test(a_backup_that_starts_again_goes_on),
        cmocka_unit_test(nodes_that_join_complete_zones),
        cmocka_unit_test(a_backup_on_its_way_acknowledges_nothing),
        cmocka_unit_test(an_old_replica_leaves_the_record_first),
        cmocka_unit_test(an_old_replica_stays_until_another_has_the_zone),
        cmocka_unit_test(the_only_replica_begins_anew_last),
        cmocka_unit_test(a_life_that_is_over_changes_nothing),
        cmocka_unit_test(the_only_backup_is_replaced),
        cmocka_unit_test(lost_answers_leave_no_doubt),
        cmocka_unit_test(random_runs_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
