/* Zones whose owner has failed, at a superpeer that keeps their records in its journal (docs/recovery.md): which backups are asked,
 * which one the record names, and how that one is told. */
#include <unistd.h>

#include "superpeer/superpeer_recover_test.h"

/* --- Choosing -------------------------------------------------------------------------------- */

static void nothing_is_to_be_recovered(void **state)
{
    (void)state;
    put(1, 2);
    (void)run_for(100 * MS);
    assert_true(is_idle());
    fails(peers[1]); /* which has no zone of its own */
    assert_int_equal(sh_superpeer_recoveries_due_ns(&superpeer, now_ns), 0);
    (void)run_for(10 * MS);
    assert_true(is_idle());
    assert_int_equal(nodes[0].prepares + nodes[1].prepares, 0);
}

static void the_longest_replica_is_chosen(void **state)
{
    (void)state;
    put(1, 3);
    nodes[1].end = 12;
    nodes[2].end = 11;
    (void)run_for(100 * MS);
    fails(peers[0]);
    (void)run_for(20 * MS);
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(nodes[i].prepares, i < 3);
    struct sh_zone zone = record_of(1);
    assert_true(is_with(1, &nodes[1]));
    assert_true(zone.version == 2 && zone.incarnation == 2 && zone.count == 3);
    (void)run_for(20 * MS);
    assert_int_equal(nodes[1].recovers, 1);
    assert_true(nodes[1].zone == zone.id &&
                nodes[1].epoch == sh_registry_view(superpeer.registry)->epoch);
    (void)run_for(2 * S); /* it is told again, now and then */
    assert_in_range(nodes[1].recovers, 3, 6);
    unsigned recovers = nodes[1].recovers;
    recovered(1);
    (void)run_for(S);
    assert_int_equal(nodes[1].recovers, recovers);
    assert_int_equal(nodes[0].recovers + nodes[2].recovers, 0);
    assert_true(is_idle());
}

/* Of several nodes that have as much, the one that has the fewest zones to bring back. */
static void zones_are_spread(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 9; i++)
        put(i, 3);
    fails(peers[0]);
    (void)run_for(50 * MS);
    unsigned with[3] = {0};
    for (uint64_t i = 1; i <= 9; i++) {
        for (unsigned k = 0; k < 3; k++)
            with[k] += is_with(i, &nodes[k]);
    }
    assert_true(with[0] == 3 && with[1] == 3 && with[2] == 3);
}

static void who_is_busy_is_asked_again(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].err = SHOAL_EBUSY;
    nodes[0].end = 12;
    nodes[1].end = 11;
    fails(peers[0]);
    (void)run_for(S);
    assert_in_range(nodes[0].prepares, 4, 12);
    assert_int_equal(nodes[1].prepares, 1);
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    nodes[0].err = SHOAL_OK;
    (void)run_for(500 * MS);
    assert_true(is_with(1, &nodes[0]));
}

/* A backup that never answers well is not waited for long if another one has all that was acknowledged; else it is. */
static void patience_ends(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(1900 * MS);
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    (void)run_for(200 * MS);
    assert_true(is_with(1, &nodes[1]));
    recovered(1);
    nodes[1].flags = 0;
    struct sh_zone zone = zone_at(2, 2);
    zone_put(&zone);
    fails(nodes[2].nid); /* so that all are looked at again */
    (void)run_for(10 * S);
    assert_int_equal(record_of(2).owner.v, peers[0].v);
    nodes[0].err = SHOAL_ENONAME;
    (void)run_for(S);
    assert_true(is_with(2, &nodes[1]));
}

static void who_has_none_does_not_count(void **state)
{
    (void)state;
    static const enum shoal_err errs[] = {SHOAL_ECORRUPT, SHOAL_ENONAME, SHOAL_EIO};
    put(1, 3);
    nodes[0].end = 30;
    nodes[0].disk++; /* what was on the recorded disk is not there */
    nodes[1].end = 20;
    nodes[1].size += 1; /* no good answer */
    nodes[2].end = 10;
    fails(peers[0]);
    (void)run_for(50 * MS);
    assert_true(is_with(1, &nodes[2]));
    for (unsigned i = 0; i < 3; i++) {
        recovered(i + 1);
        put(2 + i, 3);
        nodes[1].err = errs[i];
        fails(nodes[3].nid);
        back(&nodes[3], false);
        (void)run_for(50 * MS);
        assert_true(is_with(2 + i, &nodes[2]));
    }
}

/* A node that has joined may not have opened its log yet: its replica is none that is lost. */
static void who_has_no_log_open_yet_is_asked_again(void **state)
{
    (void)state;
    put(1, 1);
    nodes[0].err = SHOAL_ENONODE;
    fails(peers[0]);
    (void)run_for(5 * S);
    assert_false(record_of(1).flags & SH_ZONE_LOST);
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    nodes[0].err = SHOAL_OK;
    (void)run_for(S);
    assert_true(is_with(1, &nodes[0]));
}

/* Where all were started again, each may lack what only its memory had: all that may have more are waited for. */
static void without_a_whole_one_all_are_waited_for(void **state)
{
    (void)state;
    put(1, 3);
    for (unsigned i = 0; i < 3; i++)
        nodes[i].flags = 0;
    nodes[2].end = 15;
    fails(nodes[2].nid);
    fails(peers[0]);
    (void)run_for(10 * S);
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    assert_true(nodes[0].prepares == 1 && nodes[1].prepares == 1 && nodes[2].prepares == 0);
    back(&nodes[2], true);
    (void)run_for(300 * MS);
    assert_true(is_with(1, &nodes[2]));
}

/* A node that left has its disk: it may return. */
static void who_has_left_is_waited_for(void **state)
{
    (void)state;
    put(1, 3);
    for (unsigned i = 0; i < 3; i++)
        nodes[i].flags = 0;
    nodes[2].end = 9;
    nodes[1].end = 11;
    fails(nodes[2].nid);
    fails(peers[0]);
    (void)run_for(S);
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    leave(&nodes[2]);
    (void)run_for(S);
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    back(&nodes[2], true);
    (void)run_for(300 * MS);
    assert_true(is_with(1, &nodes[1]));
}

/* A whole replica is enough, whoever else is down. */
static void a_whole_one_is_enough(void **state)
{
    (void)state;
    put(1, 3);
    nodes[1].flags = 0;
    fails(nodes[2].nid);
    fails(peers[0]);
    (void)run_for(50 * MS);
    assert_true(is_with(1, &nodes[0]) || is_with(1, &nodes[1]));
}

/* What a process has said counts only as long as it runs: its successor may have less, and is asked again. */
static void who_was_started_again_is_asked_again(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].end = 20;
    nodes[1].flags = 0;
    nodes[1].err = SHOAL_EBUSY; /* so that it goes on for a while */
    fails(peers[0]);
    (void)run_for(50 * MS);
    assert_int_equal(nodes[0].prepares, 1);
    fails(nodes[0].nid);
    nodes[1].err = SHOAL_OK;
    (void)run_for(S); /* the first has a replica, and is not up */
    assert_int_equal(record_of(1).owner.v, peers[0].v);
    assert_int_equal(record_of(1).flags, 0);
    nodes[0].end = 5;
    back(&nodes[0], true);
    (void)run_for(300 * MS);
    assert_int_equal(nodes[0].prepares, 2);
    assert_true(is_with(1, &nodes[1]));
}

/* The node that has most fails before it is chosen: that is no reason to call the zone lost. */
static void who_failed_behind_its_answer_is_waited_for(void **state)
{
    (void)state;
    put(1, 2);
    nodes[1].err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(50 * MS);
    fails(nodes[0].nid);
    nodes[1].err = SHOAL_ENONAME;
    (void)run_for(5 * S);
    assert_int_equal(record_of(1).version, 1);
    back(&nodes[0], false);
    (void)run_for(300 * MS);
    assert_true(is_with(1, &nodes[0]));
}

static void a_zone_is_lost(void **state)
{
    (void)state;
    char path[] = "/tmp/recover_test_XXXXXX", text[4096];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(sh_log_output_set(path, SH_LOG_AS_TEXT), SHOAL_OK);
    put(1, 3);
    nodes[0].err = SHOAL_ECORRUPT;
    nodes[1].disk++;
    nodes[2].err = SHOAL_EIO; /* another process may find more on that disk */
    fails(peers[0]);
    (void)run_for(5 * S);
    assert_int_equal(record_of(1).version, 1);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    fails(nodes[2].nid);
    (void)run_for(5 * S);
    assert_int_equal(record_of(1).version, 1);
    leave(&nodes[2]);
    (void)run_for(S);
    assert_int_equal(record_of(1).version, 1);
    nodes[2].err = SHOAL_ENONAME; /* it is back, with none on its disk */
    back(&nodes[2], true);
    (void)run_for(300 * MS);
    struct sh_zone zone = record_of(1);
    assert_true(zone.flags == SH_ZONE_LOST && zone.version == 2 && zone.owner.v == peers[0].v);
    assert_int_equal(sh_log_output_set(NULL, SH_LOG_AS_TEXT), SHOAL_OK);
    ssize_t size = read(fd, text, sizeof text - 1);
    assert_true(size > 0);
    text[size] = 0;
    const char *line = strstr(text, "its chunks are lost");
    assert_true(line && !strstr(line + 1, "its chunks are lost")); /* once */
    (void)close(fd);
    (void)unlink(path);
    (void)run_for(S);
    assert_true(is_idle());
    assert_int_equal(lookup(), SHOAL_ELOST);
    nodes[0].prepares = 0;
    fails(nodes[3].nid);
    (void)run_for(S);
    assert_int_equal(nodes[0].prepares, 0);
}

/* Backups are told the life that made the zone, as long as the record is as that has made it: one that has never heard of it then has all. */
static void who_made_a_zone_is_told(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 3; i++)
        put(i, 2);
    struct sh_zone zone = record_of(2);
    zone.count = 1; /* so there is another incarnation */
    zone_change(&zone);
    nodes[0].err = SHOAL_EBUSY;
    fails(peers[0]);
    for (uint64_t i = 1; i <= 3; i++) {
        unsigned prepares = nodes[0].prepares;
        while (nodes[0].prepares == prepares)
            (void)run_for(MS);
    }
    assert_true(nodes[0].made_lives[1] == LIFE(0) && nodes[0].made_lives[3] == LIFE(0));
    assert_int_equal(nodes[0].made_lives[2], 0);
    /* Nor is it told of one that a restorer has left. */
    nodes[0].err = SHOAL_OK;
    nodes[0].end = 12;
    (void)run_for(S);
    assert_true(is_with(1, &nodes[0]));
    fails(nodes[0].nid);
    (void)run_for(100 * MS);
    assert_int_equal(nodes[1].made_lives[1], 0);
}

/* --- Restorers that fail ---------------------------------------------------------------------- */

static void a_restorer_fails(void **state)
{
    (void)state;
    put(1, 3);
    nodes[2].end = 12;
    nodes[1].end = 11;
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_true(is_with(1, &nodes[2]) && nodes[2].recovers == 1);
    assert_false(record_of(1).flags & SH_ZONE_AGAIN);
    fails(nodes[2].nid);
    (void)run_for(100 * MS); /* at once, though another one was told just now */
    assert_true(is_with(1, &nodes[1]) && nodes[1].recovers == 1);
    assert_true((record_of(1).flags & SH_ZONE_OF_FORMER) == SH_ZONE_AGAIN);
    assert_true(nodes[0].prepares == 2 && nodes[1].prepares == 2);
    fails(nodes[1].nid);
    (void)run_for(100 * MS);
    assert_true(is_with(1, &nodes[0]) && nodes[0].recovers == 1);
    assert_int_equal(record_of(1).former_life, LIFE(0));
}

/* A restorer has opened the zone, and fails before another backup has all of it: the record names it among the backups. */
static void a_restorer_fails_while_it_needs_its_own(void **state)
{
    (void)state;
    put(1, 3);
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_false(record_of(1).flags & SH_ZONE_AGAIN);
    recovered(1);
    const struct sh_zone opened = record_of(1);
    assert_true(sh_zone_has_backup(&opened, opened.owner, 0));
    fails(opened.owner);
    (void)run_for(100 * MS);
    assert_true((record_of(1).flags & SH_ZONE_OF_FORMER) == SH_ZONE_OF_FORMER);
    assert_int_equal(record_of(1).former.v, opened.owner.v);
    /* Nor has the next one opened the zone. */
    fails(record_of(1).owner);
    (void)run_for(100 * MS);
    assert_true((record_of(1).flags & SH_ZONE_OF_FORMER) == SH_ZONE_OF_FORMER);
    assert_int_equal(record_of(1).former.v, opened.owner.v);
}

/* The same, once notes were made anew, as a shard was lost: they do not say what was taken for the zone, so all that is noted as the owner's may be. */
static void a_restorer_fails_after_notes_were_lost(void **state)
{
    (void)state;
    put(1, 3);
    fails(peers[0]);
    (void)run_for(100 * MS);
    recovered(1);
    superpeer.ring->gather.has_noted = true;
    fails(record_of(1).owner);
    (void)run_for(100 * MS);
    assert_true((record_of(1).flags & SH_ZONE_OF_FORMER) == SH_ZONE_AGAIN);
}

/* One that fails before it was told of the zone: nobody but the record knows of it. */
static void a_restorer_fails_before_it_is_told(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].end = 12;
    nodes[0].recover_err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(S);
    assert_true(is_with(1, &nodes[0]));
    assert_in_range(nodes[0].recovers, 4, 12); /* it is told until it says yes */
    fails(nodes[0].nid);
    (void)run_for(100 * MS);
    assert_true(is_with(1, &nodes[1]) && nodes[1].recovers == 1);
}

/* One that does not answer is told again once its answer is not waited for any more. */
static void a_restorer_is_silent(void **state)
{
    (void)state;
    put(1, 1);
    nodes[0].is_silent = true;
    fails(peers[0]);
    (void)run_for(900 * MS);
    assert_int_equal(nodes[0].recovers, 1);
    nodes[0].is_silent = false;
    (void)run_for(300 * MS);
    assert_int_equal(nodes[0].recovers, 2);
}

static struct sh_recovery looked_at(uint64_t number)
{
    struct sh_recovery recovery = {.zone = record_of(number)};
    (void)sh_superpeer_recoveries_look(&superpeer, &recovery);
    return recovery;
}

/* What a restorer says that it has no room for is told to those who ask, also while the next one, which has not tried yet, is at it, until the zone is back. */
static void a_restorer_has_no_room(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].progress.missing = nodes[1].progress.missing = 1000;
    fails(peers[0]);
    (void)run_for(900 * MS);
    assert_int_equal(looked_at(1).state, SH_RECOVERY_RESTORES);
    assert_int_equal(looked_at(1).progress.missing, 1000);
    nodes[0].progress.missing = nodes[1].progress.missing = 0;
    (void)run_for(2 * S);
    assert_int_equal(looked_at(1).progress.missing, 1000);
    nodes[0].progress.missing = nodes[1].progress.missing = 3000;
    (void)run_for(2 * S);
    assert_int_equal(looked_at(1).progress.missing, 3000);
    /* Once the zone has been read there was room; before, the owner has not said. */
    nodes[0].progress = nodes[1].progress = (struct sh_restore_progress){SH_RESTORE_READS, 5, 6, 0};
    (void)run_for(2 * S);
    assert_int_equal(looked_at(1).progress.missing, 3000);
    nodes[0].progress = nodes[1].progress = (struct sh_restore_progress){SH_RESTORE_ORDER, 6, 6, 0};
    (void)run_for(2 * S);
    assert_int_equal(looked_at(1).progress.missing, 0);
    fails(record_of(1).owner); /* nobody is at it for a moment */
    assert_int_equal(looked_at(1).progress.missing, 0);
}

/* The same node in its next life: it has the replica on its disk, and nothing in its memory. */
static void a_restorer_starts_again(void **state)
{
    (void)state;
    put(1, 1);
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_true(is_with(1, &nodes[0]));
    uint64_t life = record_of(1).life;
    fails(nodes[0].nid);
    (void)run_for(S);
    back(&nodes[0], true);
    (void)run_for(300 * MS);
    assert_true(is_with(1, &nodes[0]) && nodes[0].recovers >= 2);
    assert_true(record_of(1).life != life);
}

/* A restorer that was called failed, and is back before the record names another one, goes on. */
static void a_restorer_is_back(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].end = 12;
    fails(peers[0]);
    (void)run_for(100 * MS);
    nodes[1].err = SHOAL_EBUSY;
    fails(nodes[0].nid);
    (void)run_for(50 * MS);
    nodes[0].recovers = 0;
    back(&nodes[0], false);
    (void)run_for(50 * MS);
    assert_int_equal(nodes[0].recovers, 1);
    unsigned prepares = nodes[1].prepares;
    (void)run_for(S);
    assert_int_equal(nodes[1].prepares, prepares);
    assert_int_equal(record_of(1).version, 2);
}

/* The record is changed by somebody else meanwhile: it is gone by as it is then. */
static void a_record_changes_meanwhile(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(50 * MS);
    struct sh_zone zone = record_of(1);
    zone.backups[0] = (struct sh_zone_backup){nodes[3].nid, DISK(3)};
    nodes[3].end = 20;
    zone_change(&zone);
    (void)run_for(50 * MS);
    assert_true(is_with(1, &nodes[3]));
    assert_int_equal(record_of(1).backups[0].nid.v, nodes[3].nid.v);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, recover_setup, recover_teardown)
    const struct CMUnitTest tests[] = {
        CASE(nothing_is_to_be_recovered),
        CASE(the_longest_replica_is_chosen),
        CASE(zones_are_spread),
        CASE(who_is_busy_is_asked_again),
        CASE(patience_ends),
        CASE(who_has_none_does_not_count),
        CASE(who_has_no_log_open_yet_is_asked_again),
        CASE(without_a_whole_one_all_are_waited_for),
        CASE(who_has_left_is_waited_for),
        CASE(a_whole_one_is_enough),
        CASE(who_was_started_again_is_asked_again),
        CASE(who_failed_behind_its_answer_is_waited_for),
        CASE(a_zone_is_lost),
        CASE(who_made_a_zone_is_told),
        CASE(a_restorer_fails),
        CASE(a_restorer_fails_while_it_needs_its_own),
        CASE(a_restorer_fails_after_notes_were_lost),
        CASE(a_restorer_fails_before_it_is_told),
        CASE(a_restorer_is_silent),
        CASE(a_restorer_has_no_room),
        CASE(a_restorer_starts_again),
        CASE(a_restorer_is_back),
        CASE(a_record_changes_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
