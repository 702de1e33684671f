/* Zones whose replicas are larger than the usual one, of a large chunk above all, and nodes that have room for the usual size and not for these: what nobody
 * can take is refused, and backups are not given up for nobody. A zone that is being copied to the last node that has room is no such zone. */
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

#define SECOND (1000 * FAKE_MS)
#define USUAL_BYTES (2 * OWNER_ZONE_BYTES) /* of a replica */
#define LARGE 600000u                      /* bytes of a chunk, whose zone has no other */
#define MUCH_BYTES (UINT64_C(1) << 30)

static shoal_nid backup_nid(unsigned i)
{
    return owner.backups[i].nid;
}

/* The zone that has the chunk. */
static struct sh_zone_state zone_of(uint64_t local)
{
    uint64_t number;
    struct sh_zone_state zone;
    assert_true(sh_backup_zone_number(owner.backup, owner_cid(local), &number));
    assert_true(sh_backup_zone_state(owner.backup, number, &zone) && zone.number == number);
    return zone;
}

static bool is_at(uint64_t local, unsigned i)
{
    const struct sh_zone_state zone = zone_of(local);
    for (unsigned k = 0; k < zone.count; k++) {
        if (zone.backups[k].nid.v == backup_nid(i).v && zone.backups[k].is_recorded)
            return true;
    }
    return false;
}

static struct owner_op *put_begin(uint64_t local, uint32_t size)
{
    return owner_op_begin(&owner, OWNER_PUT, local, size, SH_LEVEL_REPLICATED);
}

/* One node of two is up, and has two zones, of a large chunk and of a small one. The other node will have room for replicas of so many bytes. */
static void two_zones_make(uint64_t free_bytes, uint64_t *large_out, uint64_t *small_out)
{
    owner_open(&owner, &calm, 2, 1, 1);
    owner.is_checking = true;
    owner.backups[1].free_bytes = free_bytes;
    *small_out = owner_change(&owner, OWNER_NEW, 0, 100000);
    *large_out = owner_change(&owner, OWNER_NEW, 0, LARGE);
    assert_int_not_equal(zone_of(*large_out).number, zone_of(*small_out).number);
    owner_pass(&owner, 3 * SECOND); /* nobody else is expected any more */
}

/* The large zone's backup fails, and the only other node has no room for it: a write that waits while that node is new is refused, and the same
 * at once from then on; the small zone goes there. When there is room the large one goes there as well. */
static void what_nobody_has_room_for_is_refused(void **state)
{
    (void)state;
    uint64_t large, small;
    two_zones_make(USUAL_BYTES + 1000, &large, &small);
    backup_fail(0, false);
    owner.are_failed[0] = true;
    backup_return(1);
    owner_pass(&owner, 200 * FAKE_MS);
    struct owner_op *of_large = put_begin(large, LARGE), *of_small = put_begin(small, 100000);
    owner_pass(&owner, SECOND);
    assert_true(of_large->is_busy && !owner.refused_bare);
    owner_pass(&owner, 4 * SECOND);
    assert_true(!of_large->is_busy && owner.refused_bare == 1);
    owner_until(&owner, owner_op_is_over, of_small);
    assert_true(is_at(small, 1) && !is_at(large, 1));
    /* The node is asked again, as often as it takes until all other zones are there, and has as much room as before. */
    owner_pass(&owner, 40 * SECOND);
    of_large = put_begin(large, LARGE);
    owner_pass(&owner, 10 * FAKE_MS);
    assert_true(!of_large->is_busy && owner.refused_bare == 2);
    owner.backups[1].free_bytes = MUCH_BYTES;
    owner_pass(&owner, 15 * SECOND);
    owner_until(&owner, owner_op_is_over, put_begin(large, LARGE));
    assert_int_equal(owner.refused_bare, 2);
    assert_true(is_at(large, 1));
    owner_settle_only(&owner);
    owner_close(&owner);
}

/* The only other node has room for one replica, and gets it: until the copy is there, a write waits, though nobody has room for another one. */
static void what_is_being_copied_waits(void **state)
{
    (void)state;
    uint64_t large, small;
    owner.config.cluster.copy_bytes_per_s = 65536;
    two_zones_make(USUAL_BYTES + 1000, &large, &small);
    owner.config.cluster.copy_bytes_per_s = 0; /* of the next owner */
    backup_return(1);
    owner_pass(&owner, 3 * SECOND);
    backup_fail(0, true);
    owner_pass(&owner, 20 * FAKE_MS);
    assert_int_equal(owner_status(&owner).copies, 1);
    struct owner_op *op = put_begin(small, 100000);
    owner_pass(&owner, 300 * FAKE_MS);
    assert_true(op->is_busy && owner_status(&owner).copies_done == 0);
    owner_until(&owner, owner_op_is_over, op);
    assert_true(is_at(small, 1) && !owner.refused_bare);
    owner_close(&owner);
}

/* A zone that is a little larger than others has a slow backup. It stays while no node has room for the zone, though one has for others; and is
 * given up when it has. */
static void a_slow_backup_is_not_given_up_for_nobody(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 4, 4, 3);
    for (unsigned i = 0; i < 4; i++)
        owner.backups[i].free_bytes = MUCH_BYTES;
    uint64_t grows = owner_change(&owner, OWNER_NEW, 0, 100000);
    (void)owner_change(&owner, OWNER_NEW, 0, 150000);
    (void)owner_change(&owner, OWNER_RESIZE, grows, 115000);
    const struct sh_zone_state zone = zone_of(grows);
    assert_true(zone.live_bytes > OWNER_ZONE_BYTES);
    unsigned other = 0, slow = zone.backups[0].nid.v - FAKE_OWNER - 1u;
    while (is_at(grows, other))
        other++;
    owner.backups[other].free_bytes = USUAL_BYTES + 1000;
    owner_pass(&owner, 12 * SECOND); /* it was asked */
    owner.backups[slow].pace_ns = 1500 * FAKE_MS;
    for (unsigned i = 0; i < 25; i++) {
        (void)owner_op_begin(&owner, OWNER_PUT, grows, 115000, SH_LEVEL_ASYNC);
        owner_pass(&owner, SECOND);
    }
    assert_true(!owner_status(&owner).given_up && is_at(grows, slow));
    owner.backups[other].free_bytes = MUCH_BYTES;
    owner_pass(&owner, 15 * SECOND);
    assert_true(owner_status(&owner).given_up > 0);
    owner.backups[slow].pace_ns = 0;
    owner_settle_only(&owner);
    assert_true(is_at(grows, other));
    owner_close(&owner);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_has_room_for_is_refused),
        cmocka_unit_test(what_is_being_copied_waits),
        cmocka_unit_test(a_slow_backup_is_not_given_up_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
