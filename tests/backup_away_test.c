/* Backups whose nodes were stopped in order, and are to be back soon: a zone with another backup goes on without them, and they go on where they were. */
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

#define SECOND (1000 * FAKE_MS)

/* In how many records the backup is. */
static unsigned recorded(unsigned i)
{
    struct sh_zone_state zone;
    unsigned count = 0;
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
         from = zone.number + 1) {
        for (unsigned k = 0; k < zone.count; k++)
            count += zone.backups[k].nid.v == owner.backups[i].nid.v && zone.backups[k].is_recorded;
    }
    return count;
}

static void open_with(unsigned backups, unsigned replicas)
{
    owner_open(&owner, &calm, backups, backups, (uint8_t)replicas);
    owner.is_checking = true;
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    assert_true(recorded(0) > 0);
}

/* Writes are acknowledged by the others, and no other node gets a copy; when it is there again it gets what it lacks, and counts. */
static void it_goes_on_where_it_was(void **state)
{
    (void)state;
    open_with(3, 2);
    const struct sh_backup_status before = owner_status(&owner);
    backup_stop(0);
    owner_pass(&owner, 100 * FAKE_MS);
    assert_int_equal(recorded(0), 0);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t local = owner_change(&owner, OWNER_NEW, 0, 100);
        (void)owner_change(&owner, OWNER_PUT, local, 100);
    }
    owner_pass(&owner, 20 * SECOND);
    assert_int_equal(owner_status(&owner).copied_bytes, before.copied_bytes);
    assert_true(owner_status(&owner).under_replicated > 0);
    unsigned anews = owner.backups[0].anews;
    backup_return(0);
    owner_settle(&owner);
    assert_true(recorded(0) > 0);
    assert_int_equal(owner_status(&owner).copied_bytes, before.copied_bytes);
    assert_int_equal(owner.backups[0].anews, anews);
    owner_close(&owner);
}

/* What it lacks keeps no room that writes need. */
static void it_is_given_up_for_room(void **state)
{
    (void)state;
    open_with(3, 2);
    const struct sh_backup_status before = owner_status(&owner);
    backup_stop(0);
    write_for(3 * SECOND);
    unsigned acknowledged = owner.acknowledged;
    write_for(SECOND);
    assert_true(owner.acknowledged > acknowledged + 20);
    owner_pass(&owner, 20 * SECOND);
    assert_true(owner_status(&owner).copied_bytes > before.copied_bytes);
    backup_return(0);
    owner_settle(&owner);
    owner_close(&owner);
}

/* When its time is over it is a backup that has failed. */
static void it_is_replaced_when_it_is_late(void **state)
{
    (void)state;
    open_with(3, 2);
    backup_stop(0);
    owner_pass(&owner, 5 * SECOND);
    assert_true(owner_status(&owner).under_replicated > 0);
    owner.are_away[0] = false;
    owner_view(&owner);
    owner_settle(&owner);
    assert_int_equal(owner_status(&owner).under_replicated, 0);
    assert_int_equal(recorded(0), 0);
    owner_close(&owner);
}

/* Of a zone's only backup, another node takes the place at once. */
static void the_only_one_is_replaced(void **state)
{
    (void)state;
    open_with(2, 1);
    backup_stop(0);
    owner_pass(&owner, 10 * SECOND);
    assert_int_equal(owner_status(&owner).bare, 0);
    assert_int_equal(owner_status(&owner).under_replicated, 0);
    unsigned acknowledged = owner.acknowledged;
    write_for(200 * FAKE_MS);
    assert_true(owner.acknowledged > acknowledged + 20);
    backup_return(0);
    owner_settle(&owner);
    owner_close(&owner);
}

/* One is away, another one fails: that one is replaced. */
static void another_one_fails(void **state)
{
    (void)state;
    open_with(4, 3);
    backup_stop(0);
    owner_pass(&owner, 100 * FAKE_MS);
    backup_fail(1, true);
    owner_pass(&owner, 20 * SECOND);
    assert_true(owner_status(&owner).copies_done > 0);
    assert_int_equal(recorded(1), 0);
    write_for(20 * FAKE_MS);
    backup_return(0);
    owner_settle(&owner);
    assert_int_equal(owner_status(&owner).under_replicated, 0);
    owner_close(&owner);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_where_it_was),
        cmocka_unit_test(it_is_given_up_for_room),
        cmocka_unit_test(it_is_replaced_when_it_is_late),
        cmocka_unit_test(the_only_one_is_replaced),
        cmocka_unit_test(another_one_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
