/* Backups that are up by the view, and stand still, or are slow: they are replaced, and until the superpeers have them out of the record, nothing is
 * acknowledged without them. What an owner's node sees of that when it stood still itself, or was cut off; and records that superpeers lose. */
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

#define SECOND (1000 * FAKE_MS)

/* The backup that the owner's first zone has at that place. */
static unsigned backup_of_first(unsigned place)
{
    struct sh_zone_state zone;
    assert_true(sh_backup_zone_state(owner.backup, 0, &zone) && place < zone.count);
    return zone.backups[place].nid.v - FAKE_OWNER - 1u;
}

/* In how many zones the backup is recorded. A zone that owes it nothing keeps it, though it stands still. */
static unsigned recorded_in(unsigned i)
{
    unsigned shard = sh_zone_shard(sh_zone_id((shoal_nid){FAKE_OWNER}, 1)), count = 0;
    const struct fake_backup *backup = &owner.backups[i];
    struct sh_zone record = {.id = 0};
    while (sh_metadata_zone_next(owner.superpeer.metadata, shard, record.id, &record))
        count += sh_zone_has_backup(&record, backup->nid, backup->disk);
    return count;
}

/* How many zones with chunks have a backup. The next one, of which it owes nothing yet, may go to one that stands still. */
static unsigned chunks_in(unsigned i)
{
    struct sh_zone_state zone;
    unsigned count = 0;
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
         from = zone.number + 1) {
        for (unsigned k = 0; zone.live_bytes && k < zone.count; k++)
            count += zone.backups[k].nid.v == owner.backups[i].nid.v;
    }
    return count;
}

static void open_and_write(unsigned backups, uint8_t replicas)
{
    owner_open(&owner, &calm, backups, backups, replicas);
    owner.is_checking = true;
    owner.checks_one_in = 4;
    write_for(400 * FAKE_MS);
    owner_settle(&owner);
    assert_int_equal(owner_status(&owner).given_up, 0);
}

/* The third backup is up from now on, and takes nothing: zones are copied to it, and don't come to an end. */
static void copies_begin(void)
{
    owner.backups[2].full_ppm = 1000000;
    owner.are_failed[2] = false;
    owner_view(&owner);
}

/* The ways in which a backup stands still. */
static void falls_silent(unsigned i)
{
    sh_world_pause(owner.world, 2 + i);
}

static void is_full_always(unsigned i)
{
    owner.backups[i].full_ppm = 1000000;
}

static void syncs_nothing(unsigned i)
{
    owner.backups[i].is_stuck = true;
}

static void opens_nothing(unsigned i)
{
    owner.backups[i].mute_ppm = 1000000;
    sh_world_cut(owner.world, 1, 2 + i);
}

static void standstill_end(unsigned i)
{
    struct fake_backup *backup = &owner.backups[i];
    backup->full_ppm = backup->mute_ppm = 0;
    backup->is_stuck = false;
    if (sh_world_is_paused(owner.world, 2 + i))
        sh_world_resume(owner.world, 2 + i);
}

/* For a while all wait for the backup; then it is out of the records, others get the zones, and writes go on. */
static void standstill_replace(void (*stand_still)(unsigned i))
{
    open_and_write(4, 3);
    unsigned i = backup_of_first(1), recorded = recorded_in(i);
    stand_still(i);
    write_for(1500 * FAKE_MS);
    assert_int_equal(owner_status(&owner).given_up, 0);
    assert_true(recorded_in(i) >= recorded);
    owner_pass(&owner, 6 * SECOND);
    struct sh_backup_status status = owner_status(&owner);
    assert_true(status.given_up > 0 && status.copies_done > 0 && !status.stalled);
    assert_true(recorded_in(i) < recorded);
    unsigned acknowledged = owner.acknowledged;
    write_for(400 * FAKE_MS);
    assert_true(owner.acknowledged > acknowledged + 100);
    standstill_end(i);
    owner_settle(&owner);
    owner_close(&owner);
}

static void a_silent_backup_is_replaced(void **state)
{
    (void)state;
    standstill_replace(falls_silent);
}

static void a_full_backup_is_replaced(void **state)
{
    (void)state;
    standstill_replace(is_full_always);
}

static void a_disk_that_hangs_is_replaced(void **state)
{
    (void)state;
    standstill_replace(syncs_nothing);
}

static void a_backup_that_opens_nothing_is_replaced(void **state)
{
    (void)state;
    standstill_replace(opens_nothing);
}

/* A backup whose buffer is full now and then asks for the stream from there, gets it, and stays: nobody takes it for one that stands still. */
static void a_backup_that_is_full_at_times_stays(void **state)
{
    (void)state;
    open_and_write(4, 3);
    for (unsigned i = 0; i < 4; i++)
        owner.backups[i].full_ppm = 50000;
    unsigned copies = owner_status(&owner).copies_done;
    write_for(600 * FAKE_MS);
    owner_pass(&owner, 5 * SECOND);
    struct sh_backup_status status = owner_status(&owner);
    assert_true(status.again_bytes > 0);
    assert_int_equal(status.given_up, 0);
    assert_int_equal(status.stalled, 0);
    assert_int_equal(status.copies_done, copies);
    owner_close(&owner);
}

/* Without another node zones go on with the backups that they have, and are completed when the one is well again; not at once, and each
 * time later, so that no zone goes in circles. */
static void without_another_node_fewer_are_left(void **state)
{
    (void)state;
    uint64_t before_ns = 0;
    open_and_write(3, 3);
    for (unsigned round = 0; round < 3; round++) {
        unsigned given_up = owner_status(&owner).given_up, zones = owner_records(&owner);
        falls_silent(0);
        write_for(500 * FAKE_MS);
        owner_pass(&owner, 5 * SECOND);
        assert_true(recorded_in(0) < zones && owner_status(&owner).under_replicated > 0);
        assert_true(owner_status(&owner).given_up > given_up);
        unsigned acknowledged = owner.acknowledged;
        write_for(400 * FAKE_MS);
        assert_true(owner.acknowledged > acknowledged + 100);
        standstill_end(0);
        uint64_t begin_ns = sh_world_now(owner.world);
        owner_settle(&owner);
        uint64_t out_ns = sh_world_now(owner.world) - begin_ns;
        assert_true(out_ns > 4 * SECOND && out_ns > before_ns + before_ns / 2);
        before_ns = out_ns;
    }
    owner_close(&owner);
}

/* A backup that gets on, and is far behind the others for long, is replaced if another node can be had; and else stays. */
static void slow_one(unsigned backups, bool is_replaced)
{
    open_and_write(backups, 3);
    unsigned i = backup_of_first(0);
    owner.backups[i].pace_ns = 1500 * FAKE_MS;
    write_for(8 * SECOND);
    assert_int_equal(owner_status(&owner).given_up, 0);
    for (unsigned seconds = 0; seconds < 25 && !owner_status(&owner).given_up; seconds++)
        write_for(SECOND);
    assert_int_equal(owner_status(&owner).given_up > 0, is_replaced);
    owner.backups[i].pace_ns = 0;
    owner_settle(&owner);
    assert_int_equal(owner_status(&owner).copies_done > 0, is_replaced);
    owner_close(&owner);
}

static void a_slow_backup_is_replaced(void **state)
{
    (void)state;
    slow_one(4, true);
}

static void a_slow_backup_stays_without_another_node(void **state)
{
    (void)state;
    slow_one(3, false);
}

/* The only backup stands still: it stays until another node has the zone. */
static void the_only_backup_stays_until_another_has_the_zone(void **state)
{
    (void)state;
    open_and_write(2, 1);
    unsigned i = backup_of_first(0);
    falls_silent(i);
    write_for(1 * SECOND);
    assert_int_equal(owner_status(&owner).copies, 0);
    owner_pass(&owner, 20 * SECOND);
    assert_true(owner_status(&owner).copies_done > 0 && !owner_status(&owner).stalled);
    assert_int_equal(owner.refused_bare, 0);
    unsigned acknowledged = owner.acknowledged;
    write_for(400 * FAKE_MS);
    assert_true(owner.acknowledged > acknowledged + 100);
    standstill_end(i);
    owner_settle(&owner);
    owner_close(&owner);
}

/* And without another node it just stays. */
static void the_only_backup_stays(void **state)
{
    (void)state;
    const shoal_nid own = {FAKE_OWNER};
    open_and_write(1, 1);
    uint64_t last = sh_metadata_zone_last(owner.superpeer.metadata, own);
    falls_silent(0);
    write_for(10 * SECOND);
    struct sh_backup_status status = owner_status(&owner);
    assert_true(status.stalled > 0 && !status.given_up && !status.bare);
    standstill_end(0);
    owner_settle(&owner);
    owner_pass(&owner, SECOND);
    status = owner_status(&owner);
    assert_true(!status.stalled && !status.given_up);
    /* Zones that are made meanwhile get their backup with a copy; the others have theirs. */
    assert_true(status.copies_done <= sh_metadata_zone_last(owner.superpeer.metadata, own) - last);
    owner_close(&owner);
}

/* An owner that stood still itself finds all of its backups silent, and blames none. */
static void an_owner_that_stood_still_gives_nobody_up(void **state)
{
    (void)state;
    open_and_write(4, 3);
    for (unsigned round = 0; round < 3; round++) {
        owner.backups[round].is_stuck = true;
        write_for(50 * FAKE_MS);
        sh_world_pause(owner.world, 1);
        owner_pass(&owner, 20 * SECOND);
        sh_world_resume(owner.world, 1);
        owner_pass(&owner, 50 * FAKE_MS);
        owner.backups[round].is_stuck = false;
        owner_settle(&owner);
    }
    assert_int_equal(owner_status(&owner).given_up, 0);
    owner_close(&owner);
}

/* Nor does it give up the copy of a zone that was under way. */
static void an_owner_that_stood_still_goes_on_copying(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 3, 2, 3);
    owner.is_checking = true;
    write_for(400 * FAKE_MS);
    copies_begin();
    owner_pass(&owner, 1 * SECOND);
    assert_true(owner_status(&owner).copies > 0);
    sh_world_pause(owner.world, 1);
    owner_pass(&owner, 20 * SECOND);
    owner.backups[2].full_ppm = 0;
    sh_world_resume(owner.world, 1);
    owner_settle(&owner);
    assert_int_equal(owner_status(&owner).given_up, 0);
    assert_int_equal(chunks_in(2), chunks_in(0));
    owner_close(&owner);
}

/* Nor does one that is cut off from all of them. */
static void an_owner_that_is_cut_off_gives_nobody_up(void **state)
{
    (void)state;
    open_and_write(3, 3);
    /* One of them has all of it before. */
    sh_world_partition(owner.world, 2, 4 | 8, false);
    write_for(50 * FAKE_MS);
    owner_pass(&owner, 200 * FAKE_MS);
    sh_world_partition(owner.world, 2, 4 | 8 | 16, false);
    owner_pass(&owner, 20 * SECOND);
    assert_true(owner_status(&owner).stalled > 0);
    sh_world_heal(owner.world);
    owner_pass(&owner, 5 * SECOND);
    owner_settle(&owner);
    assert_int_equal(owner_status(&owner).given_up, 0);
    owner_close(&owner);
}

/* A backup that stands still while zones are copied to it is not waited for: others get the zones. */
static void a_copy_that_stands_still_goes_elsewhere(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 4, 2, 3);
    owner.is_checking = true;
    write_for(400 * FAKE_MS);
    owner_pass(&owner, 100 * FAKE_MS);
    assert_int_equal(owner_status(&owner).copies_done, 0);
    copies_begin();
    owner_pass(&owner, 1 * SECOND);
    assert_true(owner_status(&owner).copies > 0);
    owner.are_failed[3] = false;
    owner_view(&owner);
    owner_settle(&owner);
    assert_true(owner_status(&owner).given_up > 0);
    assert_true(!chunks_in(2) && chunks_in(3));
    owner.backups[2].full_ppm = 0;
    owner_close(&owner);
}

/* Without others it gets them itself in the end: its log, which has dropped what it had of them, begins them anew in a higher incarnation only. */
static void a_copy_that_was_given_up_begins_anew(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 3, 2, 3);
    owner.is_checking = true;
    write_for(400 * FAKE_MS);
    copies_begin();
    while (!owner_status(&owner).given_up)
        owner_pass(&owner, 100 * FAKE_MS);
    owner.backups[2].full_ppm = 0;
    owner_pass(&owner, 30 * SECOND);
    assert_int_equal(owner_status(&owner).under_replicated, 0);
    owner_settle(&owner);
    assert_int_equal(chunks_in(2), chunks_in(0));
    owner_close(&owner);
}

/* The superpeers lose all records: zones are registered again, with the backups that they have, when the owner asks for a change. */
static void lost_records_are_made_anew(void **state)
{
    (void)state;
    open_and_write(4, 3);
    unsigned records = owner_records(&owner);
    owner.is_checking = false; /* recovery finds nothing of zones that were not registered again */
    fake_superpeer_lose(&owner.superpeer);
    assert_true(records > 3 && owner_records(&owner) == 0);
    for (unsigned i = 0; i < 4; i++) {
        backup_fail(i, true); /* each zone has lost one of these */
        write_for(300 * FAKE_MS);
        owner_pass(&owner, 3 * SECOND);
        assert_true(owner_records(&owner) > i);
        backup_return(i);
    }
    owner_settle(&owner);
    assert_true(owner_records(&owner) >= records && !owner_status(&owner).trouble);
    owner_close(&owner);
}

/* A record that is not there, though none were lost: another owner has had the zone, and has removed it. */
static void a_removed_record_fences(void **state)
{
    (void)state;
    open_and_write(4, 3);
    fake_superpeer_lose(&owner.superpeer);
    owner.superpeer.is_doubtful = false;
    backup_fail(backup_of_first(0), true);
    owner_pass(&owner, 2 * SECOND);
    assert_int_equal(owner_status(&owner).trouble, SHOAL_EFENCED);
    owner_close(&owner);
}

/* Zones that have too few backups, while there is no other node, want nothing done. */
static void zones_that_can_have_no_more_cost_nothing(void **state)
{
    (void)state;
    uint64_t longest_ns = 0;
    owner_open(&owner, &calm, 3, 2, 3);
    write_for(500 * FAKE_MS);
    owner_pass(&owner, 5 * SECOND);
    assert_true(owner_status(&owner).under_replicated > 3);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t now_ns = sh_now(&sh_world_env(owner.world, owner.node)->clock);
        uint64_t due_ns = sh_backup_due_ns(owner.backup);
        if (due_ns > now_ns && due_ns - now_ns > longest_ns)
            longest_ns = due_ns - now_ns;
        owner_pass(&owner, SECOND);
    }
    assert_true(longest_ns > 4 * SECOND); /* until nodes are asked again what room they have */
    owner.are_failed[2] = false;
    owner_view(&owner);
    owner_settle(&owner);
    owner_close(&owner);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_backup_is_replaced),
        cmocka_unit_test(a_full_backup_is_replaced),
        cmocka_unit_test(a_disk_that_hangs_is_replaced),
        cmocka_unit_test(a_backup_that_opens_nothing_is_replaced),
        cmocka_unit_test(a_backup_that_is_full_at_times_stays),
        cmocka_unit_test(without_another_node_fewer_are_left),
        cmocka_unit_test(a_slow_backup_is_replaced),
        cmocka_unit_test(a_slow_backup_stays_without_another_node),
        cmocka_unit_test(the_only_backup_stays_until_another_has_the_zone),
        cmocka_unit_test(the_only_backup_stays),
        cmocka_unit_test(an_owner_that_stood_still_gives_nobody_up),
        cmocka_unit_test(an_owner_that_stood_still_goes_on_copying),
        cmocka_unit_test(an_owner_that_is_cut_off_gives_nobody_up),
        cmocka_unit_test(a_copy_that_stands_still_goes_elsewhere),
        cmocka_unit_test(a_copy_that_was_given_up_begins_anew),
        cmocka_unit_test(lost_records_are_made_anew),
        cmocka_unit_test(a_removed_record_fences),
        cmocka_unit_test(zones_that_can_have_no_more_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
