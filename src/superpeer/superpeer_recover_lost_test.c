/* Recoveries of zones after an operator has declared that disks of their backups never come back. */
#include "superpeer/superpeer_recover_test.h"

/* Without a whole replica, one that is away is waited for: until its disk is lost. */
static void a_lost_disk_is_not_waited_for(void **state)
{
    (void)state;
    put(1, 3);
    for (unsigned i = 0; i < 3; i++)
        nodes[i].flags = 0;
    nodes[1].end = 9;
    fails(nodes[2].nid);
    fails(peers[0]);
    (void)run_for(5 * S);
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    disk_lost(&nodes[2]);
    (void)run_for(300 * MS);
    assert_true(is_with(1, &nodes[0]));
}

/* The zone is lost once the last disk is, and only then. */
static void a_zone_is_lost_with_the_last_disk(void **state)
{
    (void)state;
    put(1, 2);
    put(2, 3);
    fails(nodes[0].nid);
    fails(nodes[1].nid);
    fails(peers[0]);
    (void)run_for(S);
    disk_lost(&nodes[0]);
    (void)run_for(5 * S);
    assert_int_equal(record_of(1).version, 1);
    leave(&nodes[1]);
    (void)run_for(S);
    assert_int_equal(record_of(1).version, 1);
    disk_lost(&nodes[1]);
    (void)run_for(300 * MS);
    assert_int_equal(record_of(1).flags, SH_ZONE_LOST);
    assert_true(is_with(2, &nodes[2])); /* the third has a replica */
    recovered(2);
    (void)run_for(S);
    assert_true(is_idle()); /* a lost zone is no work */
}

/* --- What is said of chunks -------------------------------------------------------------------- */

/* Nothing is said to be lost before all zones of the owner are with others, or lost; and it is not said that it was never there. */
static void chunks_are_said_to_be_lost(void **state)
{
    (void)state;
    put(1, 1);
    put(2, 3);
    for (unsigned i = 0; i < 3; i++)
        nodes[i].flags = 0;
    fails(nodes[0].nid);
    fails(nodes[1].nid);
    fails(peers[0]);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    disk_lost(&nodes[0]);
    (void)run_for(S);
    assert_int_equal(record_of(1).flags, SH_ZONE_LOST);
    assert_int_equal(lookup(), SHOAL_EFAILED); /* the other zone may have it */
    disk_lost(&nodes[1]);
    (void)run_for(S);
    recovered(2);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_ELOST);
}

/* --- What is told ------------------------------------------------------------------------------ */

static struct told {
    struct sh_recovery recoveries[64];
    unsigned count;
} told;

static bool on_told(void *arg, const struct sh_recovery *recovery)
{
    (void)arg;
    assert_true(told.count < 64);
    told.recoveries[told.count++] = *recovery;
    return true;
}

/* All pages about a shard, as a client would read them. */
static void tell(void)
{
    unsigned shard = sh_arc_shard(peers[0]);
    struct sh_recoveries_head head = {.is_more = true};
    uint64_t epoch = sh_registry_view(superpeer.registry)->epoch;
    told.count = 0;
    while (head.is_more) {
        static uint8_t page[SH_RECOVERIES_PAGE_BYTES];
        size_t size = sh_superpeer_recoveries_page(&superpeer, shard, head.after, page);
        struct sh_reader r = sh_reader_make(sh_bytes_make(page, size));
        assert_int_equal(sh_recoveries_page_get(&r, shard, head.after, on_told, NULL, &head),
                         SHOAL_OK);
        assert_int_equal(head.epoch, epoch);
    }
}

static enum sh_recovery_state told_of(uint64_t number)
{
    tell();
    for (unsigned i = 0; i < told.count; i++) {
        if (sh_zone_number(told.recoveries[i].zone.id) == number)
            return told.recoveries[i].state;
    }
    return 0;
}

/* A zone is asked about, waits for what is away, is restored, and came back older. */
static void what_becomes_of_a_zone_is_told(void **state)
{
    (void)state;
    put(1, 3);
    for (unsigned i = 0; i < 3; i++)
        nodes[i].flags = 0;
    assert_int_equal(told_of(1), 0);
    nodes[1].err = SHOAL_EBUSY;
    fails(nodes[2].nid);
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_int_equal(told_of(1), SH_RECOVERY_WAITS); /* also while another one is to answer */
    assert_int_equal(told.recoveries[0].waits, 1u << 2);
    nodes[1].err = SHOAL_OK;
    (void)run_for(S);
    assert_int_equal(told_of(1), SH_RECOVERY_WAITS);
    disk_lost(&nodes[2]);
    (void)run_for(S);
    assert_int_equal(told_of(1), SH_RECOVERY_RESTORES);
    assert_int_equal(told.recoveries[0].zone.former.v, peers[0].v);
    recovered(1);
    (void)run_for(S);
    assert_int_equal(told_of(1), SH_RECOVERY_OLDER);
    assert_int_equal(told.recoveries[0].zone.older, 1);
}

/* The owner of a zone says how far it has come each time that it is told of the zone; what another one had said, or what is no answer, does not count. */
static void how_far_a_zone_is_is_told(void **state)
{
    (void)state;
    const struct sh_restore_progress *told_progress = &told.recoveries[0].progress;
    put(1, 2);
    fails(nodes[1].nid);
    fails(peers[0]);
    nodes[0].is_silent = true;
    (void)run_for(3 * S);
    assert_true(is_with(1, &nodes[0]) && told_of(1) == SH_RECOVERY_RESTORES);
    assert_true(told_progress->phase == SH_RESTORE_UNKNOWN && !told_progress->bytes);
    nodes[0].is_silent = false;
    nodes[0].progress = (struct sh_restore_progress){SH_RESTORE_QUEUED, 0, 100, 0};
    (void)run_for(2 * S);
    assert_int_equal(told_of(1), SH_RECOVERY_RESTORES);
    assert_memory_equal(told_progress, &nodes[0].progress, sizeof *told_progress);
    nodes[0].progress = (struct sh_restore_progress){SH_RESTORE_READS, 60, 100, 0};
    (void)run_for(S);
    tell();
    assert_memory_equal(told_progress, &nodes[0].progress, sizeof *told_progress);
    nodes[0].recover_size = 0; /* of another version */
    (void)run_for(S);
    tell();
    assert_memory_equal(told_progress, &nodes[0].progress, sizeof *told_progress);
    /* The next one has said nothing yet. */
    nodes[1].is_silent = true;
    back(&nodes[1], false);
    fails(nodes[0].nid);
    (void)run_for(3 * S);
    assert_true(is_with(1, &nodes[1]) && told_of(1) == SH_RECOVERY_RESTORES);
    assert_true(told_progress->phase == SH_RESTORE_UNKNOWN && !told_progress->bytes);
    recovered(1);
    (void)run_for(S);
    tell();
    assert_int_equal(told.count, 0);
}

/* What came back from a replica that has all, or the longest of all that there are, is nothing to tell. */
static void a_whole_zone_is_not_older(void **state)
{
    (void)state;
    put(1, 3);
    put(2, 2);
    fails(nodes[2].nid); /* the others have had the stream of the first */
    disk_lost(&nodes[2]);
    fails(peers[0]);
    (void)run_for(5 * S);
    recovered(1);
    recovered(2);
    assert_int_equal(record_of(1).older, 0);
    (void)run_for(S);
    tell();
    assert_int_equal(told.count, 0);
}

static void all_replicas_after_a_start_are_not_older(void **state)
{
    (void)state;
    put(1, 3);
    for (unsigned i = 0; i < 3; i++)
        nodes[i].flags = 0;
    fails(peers[0]);
    (void)run_for(5 * S);
    recovered(1);
    assert_int_equal(record_of(1).older, 0);
}

/* A backup that is started again between two steps is asked anew: what it said before does not count, nor harm who asks for the list. */
static void a_backup_starts_while_it_is_told(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].flags = nodes[1].flags = 0;
    nodes[1].err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_int_equal(told_of(1), SH_RECOVERY_ASKS);
    fails(nodes[0].nid);
    assert_int_equal(told_of(1), SH_RECOVERY_WAITS);
    back(&nodes[0], true);
    assert_int_equal(told_of(1), SH_RECOVERY_ASKS);
}

static void a_lost_zone_is_told(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 40; i++)
        put(i, 1);
    nodes[0].err = SHOAL_ENONAME;
    fails(peers[0]);
    (void)run_for(5 * S);
    tell();
    assert_int_equal(told.count, 40);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(told.recoveries[i].state, SH_RECOVERY_LOST);
}

/* A disk that is found again counts as any other, as long as the zone is not lost. */
static void a_lost_disk_is_back(void **state)
{
    (void)state;
    put(1, 2);
    fails(nodes[0].nid);
    fails(nodes[1].nid);
    fails(peers[0]);
    (void)run_for(S);
    disk_lost(&nodes[0]);
    (void)run_for(S);
    known_of(nodes[0].nid)->is_disk_lost = false; /* its next life has joined */
    back(&nodes[0], true);
    (void)run_for(S);
    assert_int_equal(record_of(1).version, 1); /* the other may have more */
    disk_lost(&nodes[1]);
    (void)run_for(300 * MS);
    assert_true(is_with(1, &nodes[0]));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, recover_setup, recover_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_lost_disk_is_not_waited_for),
        CASE(a_zone_is_lost_with_the_last_disk),
        CASE(a_lost_disk_is_back),
        CASE(chunks_are_said_to_be_lost),
        CASE(what_becomes_of_a_zone_is_told),
        CASE(how_far_a_zone_is_is_told),
        CASE(a_whole_zone_is_not_older),
        CASE(all_replicas_after_a_start_are_not_older),
        CASE(a_backup_starts_while_it_is_told),
        CASE(a_lost_zone_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
