/* Several zones that claim the same chunks are brought back by one node (recover/restorer.h): of one owner, of one that had taken both over, of two owners. Each finds
 * what is its own, whichever comes first. The rig is that of restorer_test.c. */
#include "tests/restorer_rig_int.h"

static void two_zones_make(void)
{
    fill_begin(EARLY);
    fill_claim(0, cid_of(0).v, cid_of(127).v);
    for (uint64_t local = 1; local <= 100; local++)
        fill_image(local, 1);
    fill_begin(LATE);
    fill_claim(0, cid_of(50).v, cid_of(60).v);
    for (uint64_t local = 50; local <= 60; local += 2)
        fill_image(local, 2);
    for (uint64_t number = EARLY; number <= LATE; number++) {
        replica_make(number, own.next[number]);
        record_make(number, false);
    }
}

static void two_zones_check(uint64_t seed)
{
    for (uint64_t local = 1; local <= 100; local++) {
        bool is_late = local >= 50 && local <= 60;
        if (stamp_of(local) != (is_late ? local % 2 ? 0 : 2 : 1))
            fail_msg("seed %llu: chunk %llu is %u", (unsigned long long)seed,
                     (unsigned long long)local, stamp_of(local));
    }
}

/* Of two zones of an owner the later one has a chunk that both have, whenever the node hears of which. */
static void the_later_zone_counts(uint64_t seed)
{
    rig_open(seed);
    uint64_t wait_ns = owner_draw(&owner, 60 * FAKE_MS / 20) * 10;
    two_zones_make();
    rig_begin();
    ranges.is_late_unknown = true;
    recover(EARLY);
    owner_pass(&owner, wait_ns);
    ranges.is_late_unknown = false;
    /* Superpeers know of all zones that are to be brought back; where the earlier one has asked for the order before this one does, nothing is to be seen. */
    bool is_taken = ranges.takes > 0;
    recover(LATE);
    owner_until(&owner, are_both_back, NULL);
    if (!is_taken)
        two_zones_check(seed);
    rig_close();
}

static void the_later_zones_count(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        the_later_zone_counts(seed);
}

/* Until a zone is in the store, and has asked for the order; that question is held. */
static void order_hold(void)
{
    ranges.holds_orders = true;
    while (!ranges.is_order_held)
        owner_pass(&owner, FAKE_MS / 50);
    ranges.holds_orders = false;
}

/* The earlier one is in the store and has asked for the order, whose answer comes late: the later one, of which the node hears meanwhile, is not read before the earlier one has left the store. */
static void the_later_zone_waits_for_the_earlier_to_leave(void **state)
{
    (void)state;
    rig_open(1);
    two_zones_make();
    rig_begin();
    ranges.is_late_unknown = true;
    recover(EARLY);
    order_hold();
    ranges.is_late_unknown = false;
    recover(LATE);
    owner_pass(&owner, 50 * FAKE_MS);
    assert_true(sh_backup_is_claimed(owner.backup, cid_of(1).v));
    order_answer(ranges.held_order, true);
    owner_until(&owner, are_both_back, NULL);
    two_zones_check(1);
    rig_close();
}

static bool are_three_back(void *arg)
{
    (void)arg;
    return status().restored == 3;
}

/* The earlier one leaves the store for the later one, and can't at once, as a chunk is pinned. Another owner's zone has chunks that it claims still, and is not read before it has left. */
static void another_owners_zone_waits(bool has_none)
{
    uint8_t *at;
    uint32_t size;
    const uint64_t other = zone_of_other(EARLY);
    rig_open(1);
    own.has_none = has_none;
    two_zones_make();
    fill_begin_id(other);
    fill_claim(0, cid_of(70).v, cid_of(80).v);
    for (uint64_t local = 70; local <= 80; local++)
        fill_image(local, 3);
    replica_make_id(other, own.next[EARLY]);
    record_make_id(other, false);
    node_note(70, 80, OTHER);
    rig_begin();
    ranges.is_late_unknown = true;
    recover(EARLY);
    order_hold();
    ranges.is_late_unknown = false;
    recover(LATE);
    owner_pass(&owner, 50 * FAKE_MS);
    assert_int_equal(sh_store_pin(owner.store, cid_of(1), &at, &size), SHOAL_OK);
    order_answer(ranges.held_order, true);
    owner_pass(&owner, 20 * FAKE_MS);
    recover_id(other);
    owner_pass(&owner, 50 * FAKE_MS);
    assert_true(stamp_of(70) != 3 && status().restored == 0);
    assert_int_equal(sh_store_unpin(owner.store, cid_of(1)), SHOAL_OK);
    owner_until(&owner, are_three_back, NULL);
    for (uint64_t local = 70; local <= 80; local++)
        assert_int_equal(stamp_of(local), 3);
    rig_close();
}

static void another_owners_zone_waits_for_one_that_leaves(void **state)
{
    (void)state;
    another_owners_zone_waits(false);
    another_owners_zone_waits(true);
}

/* This node had chunk 15 once, and its own zone claims it still. It is the first zone's by its note, where it was removed; the second one, which is being read when the first one's order comes,
 * has an old image of it. The first one takes that claim, and serves, once the image is out of the store again. */
static void a_claim_is_taken_when_no_other_zone_is_read(void **state)
{
    const uint8_t bytes[100] = {1};
    const uint64_t other = zone_of_other(EARLY);
    (void)state;
    rig_open(1);
    own.has_none = true;
    owner_pass(&owner, 500 * FAKE_MS);
    assert_int_equal(sh_store_take_over(owner.store, cid_of(15), sh_bytes_make(bytes, 100)),
                     SHOAL_OK);
    assert_int_equal(sh_store_hand_back(owner.store, cid_of(15)), SHOAL_OK);
    fill_begin_id(other);
    fill_claim(0, cid_of(11).v, cid_of(20).v);
    for (uint64_t local = 16; local <= 20; local++)
        fill_image(local, 2);
    replica_make_id(other, own.next[EARLY]);
    record_make_of(other, (shoal_nid){FORMER}, FORMER_LIFE + 1, false);
    taken_note(11, 20, FORMER, FORMER_LIFE + 1, other);
    fill_begin(EARLY);
    fill_claim(0, cid_of(0).v, cid_of(127).v);
    for (uint64_t local = 1; local <= 30; local++)
        fill_image(local, 1);
    replica_make(EARLY, own.next[EARLY]);
    record_make(EARLY, false);
    rig_begin();
    uint64_t last, claimant = sh_backup_claimant(owner.backup, cid_of(15).v, &last);
    assert_true(claimant);
    recover_id(other);
    order_hold();
    own.holds_reads = true;
    recover(EARLY);
    owner_pass(&owner, 20 * FAKE_MS);
    order_answer(ranges.held_order, true);
    owner_pass(&owner, 200 * FAKE_MS);
    assert_int_equal(sh_backup_claimant(owner.backup, cid_of(15).v, &last), claimant);
    assert_true(sh_restorer_is_filling(own.restorer) && stamp_of(15) == 1);
    assert_int_equal(status().restored, 0);
    own.holds_reads = false;
    owner_until(&owner, are_both_back, NULL);
    assert_true(own.is_served[15] && !stamp_of(15) && stamp_of(16) == 2 && stamp_of(21) == 1);
    rig_close();
}

/* Zones of two owners that have failed claim the same chunks: IDs 10 to 20 had moved from one to the other, as the notes say; or, is_other_life, they are both the former owner's, whose second life had
 * brought the other zone back. Each finds what is its own, whichever comes first, and also while the one that has been read waits for a zone that goes first. */
static void each_owner_has_its_own(uint64_t seed, bool is_other_late, bool is_other_life)
{
    const uint64_t other = zone_of_other(EARLY);
    /* What the other zone claims. What is noted without a life is none that a second life has. */
    const uint64_t first = is_other_life ? 11 : 5, last = is_other_life ? 19 : 25;
    rig_open(seed);
    fill_begin(EARLY);
    fill_claim(0, cid_of(0).v, cid_of(127).v);
    for (uint64_t local = 1; local <= 30; local++)
        fill_image(local, 1);
    replica_make(EARLY, own.next[EARLY]);
    record_make(EARLY, false);
    fill_begin_id(other);
    fill_claim(0, cid_of(first).v, cid_of(last).v);
    for (uint64_t local = first; local <= last; local += 2)
        fill_image(local, 2);
    replica_make_id(other, own.next[EARLY]);
    if (is_other_life) {
        record_make_of(other, (shoal_nid){FORMER}, FORMER_LIFE + 1, false);
        taken_note((unsigned)first, (unsigned)last, FORMER, FORMER_LIFE + 1, other);
    } else {
        record_make_id(other, false);
        node_note(10, 20, OTHER);
    }
    rig_begin();
    if (is_other_late) {
        ranges.is_late_unknown = true;
        recover(EARLY);
        while (!sh_backup_is_claimed(owner.backup, cid_of(1).v))
            owner_pass(&owner, FAKE_MS / 50);
        ranges.is_late_unknown = false;
        record_make(LATE, false); /* nobody is told of it yet */
        owner_pass(&owner, owner_draw(&owner, 20) * FAKE_MS);
        recover_id(other);
        owner_until(&owner, is_back, NULL);
        assert_true(own.is_served[11] && stamp_of(11) == 2 && !own.is_served[1]);
        ranges.is_late_unknown = true;
    } else {
        bool is_first = owner_draw(&owner, 2);
        recover_id(is_first ? other : zone_of(EARLY));
        owner_pass(&owner, owner_draw(&owner, 80) * FAKE_MS / 4);
        recover_id(is_first ? zone_of(EARLY) : other);
    }
    owner_until(&owner, are_both_back, NULL);
    for (uint64_t local = 1; local <= 30; local++) {
        bool is_others =
            is_other_life ? local >= first && local <= last : local >= 10 && local <= 20;
        unsigned is = !is_others ? 1 : local % 2 ? 2 : 0;
        if (stamp_of(local) != is || !own.is_served[local])
            fail_msg("seed %llu: chunk %llu is %u", (unsigned long long)seed,
                     (unsigned long long)local, stamp_of(local));
    }
    rig_close();
}

static void taken_over_make(uint64_t zone, uint64_t first, uint64_t last, uint8_t stamp,
                            uint8_t flags)
{
    fill_begin_id(zone);
    fill_claim(0, cid_of(first).v, cid_of(last).v);
    for (uint64_t local = first; local <= last; local++)
        fill_image(local, stamp);
    replica_make_id(zone, own.next[EARLY]);
    record_make_of(zone, (shoal_nid){FORMER}, FORMER_LIFE, false);
    struct sh_zone record;
    assert_true(sh_metadata_zone(owner.superpeer.metadata, zone, &record));
    record.flags |= flags;
    record_apply(SH_METADATA_ZONE_CHANGE, &record, FAKE_SUPERPEER, 1);
}

/* The former owner had taken over two zones. Of one it needed its own replica, which claims what had moved away by then; and that came back to it in the other zone. */
static void each_zone_has_its_own(uint64_t seed)
{
    const uint64_t needed = zone_of_other(EARLY), other = zone_of_other(LATE);
    rig_open(seed);
    taken_over_make(needed, 1, 20, 1, SH_ZONE_AGAIN | SH_ZONE_TAKEN);
    taken_over_make(other, 11, 30, 2, 0);
    node_note(0, 60, FORMER);
    taken_note(1, 10, FORMER, FORMER_LIFE, needed);
    taken_note(21, 30, FORMER, FORMER_LIFE, other);
    rig_begin();
    if (seed % 2) {
        recover_id(needed);
        order_hold();
        recover_id(other);
        owner_pass(&owner, 50 * FAKE_MS);
        assert_int_equal(stamp_of(30),
                         0); /* it waits for the first one to have its claims looked at */
        order_answer(ranges.held_order, true);
    } else {
        recover_id(other);
        owner_pass(&owner, owner_draw(&owner, 80) * FAKE_MS / 4);
        recover_id(needed);
    }
    owner_until(&owner, are_both_back, NULL);
    for (uint64_t local = 1; local <= 30; local++) {
        unsigned is = local <= 10 ? 1 : 2;
        if (stamp_of(local) != is || !own.is_served[local])
            fail_msg("seed %llu: chunk %llu is %u", (unsigned long long)seed,
                     (unsigned long long)local, stamp_of(local));
    }
    rig_close();
}

static void zones_of_one_owner_have_their_own(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        each_zone_has_its_own(seed);
}

static void all_owners_have_their_own(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        each_owner_has_its_own(seed, seed % 2, seed % 4 > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_later_zones_count),
        cmocka_unit_test(the_later_zone_waits_for_the_earlier_to_leave),
        cmocka_unit_test(another_owners_zone_waits_for_one_that_leaves),
        cmocka_unit_test(a_claim_is_taken_when_no_other_zone_is_read),
        cmocka_unit_test(zones_of_one_owner_have_their_own),
        cmocka_unit_test(all_owners_have_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
