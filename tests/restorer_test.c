/* A node brings zones of a failed owner back (recover/restorer.h), in a simulated world: its own log has their replicas, other backups are models, and the
 * superpeer, which keeps records as real ones do, knows who has which IDs, and refuses what it is told to.
 *
 * SHOAL_TEST_SEEDS: how many random runs (default 10). SHOAL_TEST_SEED: the first of them (default: random; printed). */
#include "tests/restorer_rig_int.h"

/* --- Cases --------------------------------------------------------------------------------------- */

/* Chunks 1 to 60, of IDs 0 to 127 and 200 to 263; some of which have others by now. */
static void zone_fill(uint64_t number)
{
    fill_begin(number);
    fill_claim(0, cid_of(0).v, cid_of(127).v);
    fill_claim(1, cid_of(200).v, cid_of(263).v);
    for (uint64_t local = 1; local <= 60; local++)
        fill_image(local, (uint8_t)(100 + local));
    fill_image(200, 77);
    node_note(40, 49, 70);
    node_note(200, 200, 71);
    replica_make(number, own.next[number] - 20);
}

/* All is where it belongs. */
static void zone_check(uint64_t number)
{
    const struct sh_zone record = record_of(number);
    assert_true(!record.former.v && record.owner.v == FAKE_OWNER);
    assert_true(record.count == 1 && record.backups[0].nid.v == owner.backups[0].nid.v);
    for (uint64_t local = 1; local < 300; local++) {
        bool is_claimed = local < 128 || (local >= 200 && local < 264);
        bool is_its = is_claimed && owner_of(local) == FAKE_OWNER;
        assert_int_equal(owner_of(local), (local >= 40 && local < 50) ? 70
                                          : local == 200              ? 71
                                          : is_claimed                ? FAKE_OWNER
                                                                      : FORMER);
        assert_int_equal(own.is_served[local], is_its);
        assert_int_equal(stamp_of(local), is_its && local <= 60 ? 100 + local : 0);
    }
    /* The other backup has all, and removals of what is others'. */
    const struct fake_zone *zone = fake_find(&owner.backups[0], zone_of(number));
    assert_int_equal(zone->durable.next, own.next[number] + 14); /* and the claims that are kept */
    assert_null(sh_replog_zone_find(own.log, zone_of(number)));
    struct sh_restorer_status now = status();
    assert_true(now.restored == 1 && now.chunks == 50 && now.payload_bytes == 5000 && !now.zones);
    assert_int_equal(owner_status(&owner).copies_done, 0);
    assert_int_equal(own.completed, 61);
}

/* RECOVER comes again and again, and what is there is done once. */
static void a_zone_comes_back(void **state)
{
    (void)state;
    rig_open(1);
    zone_fill(EARLY);
    record_make(EARLY, false);
    rig_begin();
    own.refuses = 3;
    ranges.runs_most = 1; /* each TAKE is of half a run, at last */
    for (unsigned i = 0; i < 20; i++) {
        recover(EARLY);
        owner_pass(&owner, FAKE_MS);
    }
    owner_until(&owner, is_over, NULL);
    assert_int_equal(status().begun, 1);
    assert_int_equal(status().failed, 0);
    assert_int_equal(ranges.takes, 4);
    owner_pass(&owner, 200 * FAKE_MS); /* its own replica is dropped */
    zone_check(EARLY);
    recover(EARLY);
    owner_until(&owner, is_over, NULL);
    owner_pass(&owner, 1000 * FAKE_MS);
    assert_true(status().restored == 1 && status().begun == 2);
    rig_close();
}

/* As long as the node's next process might live the same life, and not know what this one had taken. */
static void not_before_the_life_is_confirmed(void **state)
{
    (void)state;
    rig_open(1);
    zone_fill(EARLY);
    fill_image(1, 1);
    record_make(EARLY, false);
    rig_begin();
    own.is_unconfirmed = true;
    for (unsigned i = 0; i < 50; i++) {
        recover(EARLY);
        owner_pass(&owner, 10 * FAKE_MS);
    }
    assert_true(status().begun == 0 && ranges.takes == 0);
    own.is_unconfirmed = false;
    recover(EARLY);
    owner_pass(&owner, FAKE_MS);
    owner_until(&owner, is_over, NULL);
    assert_int_equal(status().restored, 1);
    rig_close();
}

#define FOR_EVER 1000000u

/* Whether the node says that it is at a phase; it is asked as a superpeer asks it, but more often. */
static bool is_at(void *arg)
{
    const enum sh_restore_phase *phase = arg;
    recover(EARLY);
    owner_pass(&owner, FAKE_MS / 10);
    return progress.phase == *phase;
}

static void until_at(enum sh_restore_phase phase)
{
    owner_until(&owner, is_at, &phase);
}

/* Puts questions of that type off, as long as it is not called with 0. */
static void put_off(sh_msg_type type, unsigned count)
{
    ranges.refusals[type & 0xff].err = SHOAL_EBUSY;
    ranges.refusals[type & 0xff].count = count;
}

/* Whoever tells the node of the zone hears how far it is, in each phase. */
static void how_far_it_is_is_said(void **state)
{
    (void)state;
    rig_open(1);
    zone_fill(EARLY);
    for (unsigned i = 0; i < 3000; i++)
        fill_image(1 + i % 30, (uint8_t)i);
    record_make(EARLY, false);
    rig_begin();
    put_off(SH_CLUSTER_ORDER, FOR_EVER);
    until_at(SH_RESTORE_QUEUED);
    uint64_t bytes = progress.bytes;
    assert_true(bytes && !progress.read && !sh_restorer_is_filling(own.restorer));
    put_off(SH_CLUSTER_ORDER, 0);
    own.holds_reads = true;
    until_at(SH_RESTORE_READS);
    assert_true(progress.bytes == bytes && progress.read && progress.read < bytes);
    assert_true(sh_restorer_is_filling(own.restorer));
    own.holds_reads = false;
    put_off(SH_CLUSTER_ORDER, FOR_EVER);
    until_at(SH_RESTORE_ORDER);
    assert_true(progress.read == bytes && progress.bytes == bytes);
    assert_false(sh_restorer_is_filling(own.restorer));
    put_off(SH_CLUSTER_TAKE, FOR_EVER);
    put_off(SH_CLUSTER_ORDER, 0);
    until_at(SH_RESTORE_TAKES);
    assert_true(progress.read == bytes);
    ranges.refusals[SH_CLUSTER_TAKE & 0xff].err = SHOAL_EINVAL;
    ranges.refusals[SH_CLUSTER_TAKE & 0xff].count = 1;
    until_at(SH_RESTORE_RETRIES);
    assert_true(progress.bytes == bytes && !progress.read);
    own.refuses = FOR_EVER;
    until_at(SH_RESTORE_OPENS);
    assert_true(progress.read == bytes);
    own.refuses = 0;
    owner_until(&owner, is_back, NULL);
    rig_close();
}

/* In the middle of each phase the superpeer refuses something, or the log: the node has nothing of the zone then, and begins anew. */
static void a_phase_fails(void **state)
{
    static const struct {
        sh_msg_type type;
        enum shoal_err err;
        bool has_failed_one;
    } cases[] = {
        {SH_CLUSTER_ORDER, SHOAL_EINVAL, false},
        {SH_CLUSTER_TAKE, SHOAL_EINVAL, false},
        {SH_CLUSTER_TREE, SHOAL_EINVAL, false},
        {SH_CLUSTER_TAKE, SHOAL_EFENCED, true},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned later = 0; later < (cases[i].type == SH_CLUSTER_ORDER ? 2u : 1u); later++) {
            rig_open(i + 1);
            zone_fill(EARLY);
            record_make(EARLY, cases[i].has_failed_one);
            if (cases[i].has_failed_one) /* that one had begun to take */
                taken_note(0, 29, FAILED, FAILED_LIFE, zone_of(EARLY));
            rig_begin();
            unsigned type = cases[i].type & 0xff;
            recover(EARLY);
            ranges.refusals[type].err = cases[i].err;
            if (later) { /* the second question of that type */
                while (!sh_backup_is_claimed(owner.backup, cid_of(1).v))
                    owner_pass(&owner, FAKE_MS / 50);
                assert_true(stamp_of(1));
            }
            ranges.refusals[type].count = 1;
            owner_until(&owner, has_failed, NULL);
            assert_int_equal(ranges.refusals[type].count, 0);
            for (unsigned local = 1; local < 300; local++)
                assert_true(!stamp_of(local) && !own.is_served[local] &&
                            !sh_backup_is_claimed(owner.backup, cid_of(local).v));
            assert_false(sh_backup_adopted_needs_own(owner.backup, zone_of(EARLY)));
            assert_true(record_of(EARLY).former.v);
            assert_non_null(sh_replog_zone_find(own.log, zone_of(EARLY)));
            owner_until(&owner, is_back, NULL);
            assert_int_equal(status().failed, 1);
            for (unsigned local = 1; local <= 60; local++)
                assert_int_equal(stamp_of(local), local >= 40 && local < 50 ? 0 : 100 + local);
            rig_close();
        }
    }
}

/* A restorer has failed, and this node brings back what that one was at. What that one had taken for the zone is the zone's; what it has otherwise, or has taken for another zone, that claims
 * the same IDs, is not. */
static void after_a_restorer(void **state)
{
    (void)state;
    rig_open(1);
    zone_fill(EARLY);
    record_make(EARLY, true);
    taken_note(0, 9, FAILED, FAILED_LIFE, zone_of(EARLY));
    taken_note(10, 19, FAILED, FAILED_LIFE, zone_of(LATE));
    node_note(20, 29, FAILED);
    rig_begin();
    recover(EARLY);
    owner_until(&owner, is_back, NULL);
    for (unsigned local = 1; local <= 60; local++) {
        bool is_its = local < 10 || (local >= 30 && local < 40) || local >= 50;
        assert_int_equal(stamp_of(local), is_its ? 100 + local : 0);
        assert_int_equal(own.is_served[local], is_its);
        if (is_its)
            assert_true(owner_of(local) == FAKE_OWNER &&
                        ranges.notes[local].zone == zone_of(EARLY));
    }
    assert_true(owner_of(19) == FAILED && owner_of(20) == FAILED);
    rig_close();
}

/* The former owner was started again, and has taken IDs by another recovery that this zone claims from before: these stay its own. What it had taken in the life that had this zone is the zone's. */
static void the_former_owner_is_up_again(void **state)
{
    (void)state;
    rig_open(1);
    zone_fill(EARLY);
    record_make(EARLY, false);
    taken_note(10, 19, FORMER, FORMER_LIFE, zone_of_other(LATE));
    taken_note(20, 29, FORMER, FORMER_LIFE + 1, zone_of_other(LATE));
    rig_begin();
    recover(EARLY);
    owner_until(&owner, is_back, NULL);
    for (unsigned local = 1; local <= 60; local++) {
        bool is_its = local < 20 || (local >= 30 && local < 40) || local >= 50;
        assert_int_equal(stamp_of(local), is_its ? 100 + local : 0);
    }
    assert_true(owner_of(20) == FORMER && ranges.notes[20].life == FORMER_LIFE + 1);
    rig_close();
}

/* What other nodes ran came with the chunks: it is told of those that are the zone's. A batch that was never decided has left others, too. */
static void results_come_with_chunks(void **state)
{
    (void)state;
    rig_open(1);
    own.ran_by = 71;
    zone_fill(EARLY);
    record_make(EARLY, false);
    rig_begin();
    recover(EARLY);
    owner_until(&owner, is_back, NULL);
    assert_int_equal(own.completed, 50);
    rig_close();
}

/* A replica that says what no owner has recorded does no harm: another backup is to bring the zone back. */
static void a_replica_that_is_none(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        rig_open(1);
        fill_begin(EARLY);
        fill_image(1, 1);
        if (i)
            fill_claim(0, cid_of(1).v, (uint64_t)(FORMER + 1) << 48 | 1);
        else
            fill_claim(UINT32_MAX, cid_of(1).v, cid_of(1).v);
        replica_make(EARLY, own.next[EARLY]);
        record_make(EARLY, false);
        rig_begin();
        recover(EARLY);
        owner_pass(&owner, 3000 * FAKE_MS);
        assert_true(status().failed == 1 && !status().restored && !status().zones);
        assert_true(record_of(EARLY).owner.v != FAKE_OWNER && record_of(EARLY).former.v);
        assert_int_equal(stamp_of(1), 0);
        rig_close();
    }
}

/* Of three backups the one behind this node in the record is next, so that each has its turn: the third may be the only one whose replica is whole. */
static void each_backup_has_its_turn(void **state)
{
    (void)state;
    for (unsigned place = 0; place < 3; place++) {
        rig_open(1);
        fill_begin(EARLY);
        fill_claim(UINT32_MAX, cid_of(1).v, cid_of(1).v);
        record_make(EARLY, false);
        struct sh_zone record = record_of(EARLY);
        struct sh_zone_backup all[3] = {{owner.backups[0].nid, owner.backups[0].disk},
                                        {owner.backups[1].nid, owner.backups[1].disk}};
        all[2] = all[place];
        all[place] = (struct sh_zone_backup){{FAKE_OWNER}, OWN_DISK};
        record.count = record.wanted = 3;
        memcpy(record.backups, all, sizeof all);
        record_apply(SH_METADATA_ZONE_CHANGE, &record, FAKE_SUPERPEER, 1);
        rig_begin();
        recover(EARLY);
        owner_until(&owner, has_failed, NULL);
        owner_until(&owner, is_over, NULL);
        assert_int_equal(record_of(EARLY).owner.v, all[(place + 1) % 3].nid.v);
        rig_close();
    }
}

/* A zone that no backup can bring back goes round: whenever another backup hands it on to this node at once, this node reads it once in two seconds. */
static void a_zone_goes_round_slowly(void **state)
{
    (void)state;
    rig_open(1);
    fill_begin(EARLY);
    fill_image(1, 1);
    fill_claim(UINT32_MAX, cid_of(1).v,
               cid_of(1).v); /* for which the replica is as good as damaged */
    replica_make(EARLY, own.next[EARLY]);
    record_make(EARLY, false);
    rig_begin();
    unsigned handed = 0;
    for (unsigned i = 0; i < 1000; i++) {
        struct sh_zone record = record_of(EARLY);
        if (record.owner.v != FAKE_OWNER) {
            record.owner.v = FAKE_OWNER;
            record.life = FAKE_LIFE;
            record_apply(SH_METADATA_ZONE_CHANGE, &record, FAKE_SUPERPEER, 1);
            handed++;
        }
        recover(EARLY);
        owner_pass(&owner, 10 * FAKE_MS);
    }
    assert_in_range(status().failed, 4, 6);
    assert_in_range(handed, 4, 6);
    assert_int_equal(progress.phase, SH_RESTORE_RETRIES);
    rig_close();
}

/* A later zone of the former owner's is lost. What this one claims, and has no chunk of, may have been that one's: it stays noted as the former owner's, of which superpeers say that it may be lost. */
static void beside_a_zone_that_is_lost(void **state)
{
    (void)state;
    rig_open(1);
    zone_fill(EARLY);
    record_make(EARLY, false);
    ranges.has_lost = true;
    rig_begin();
    recover(EARLY);
    owner_until(&owner, is_back, NULL);
    for (unsigned local = 1; local <= 127; local++) {
        bool is_its = local < 40 || (local >= 50 && local <= 60);
        bool is_others = local >= 40 && local < 50;
        assert_int_equal(stamp_of(local), is_its ? 100 + local : 0);
        assert_int_equal(own.is_served[local], is_its);
        assert_int_equal(owner_of(local), is_others ? 70 : is_its ? FAKE_OWNER : FORMER);
        assert_int_equal(sh_backup_is_claimed(owner.backup, cid_of(local).v), is_its);
    }
    rig_close();
}

/* Chunks of every other ID, and none at the end. Where these are many, or the superpeers keep no more ranges, the IDs between them are taken as well. */
static void many_beside_a_zone_that_is_lost(void **state)
{
    (void)state;
    enum { FEW, MANY, NO_RANGES };
    for (unsigned mode = FEW; mode <= NO_RANGES; mode++) {
        uint64_t last = mode == MANY ? 289 : 99;
        rig_open(1);
        fill_begin(EARLY);
        fill_claim(0, cid_of(0).v, cid_of(299).v);
        for (uint64_t local = 1; local <= last; local += 2)
            fill_image(local, 7);
        replica_make(EARLY, own.next[EARLY]);
        record_make(EARLY, false);
        ranges.has_lost = true;
        ranges.has_no_more = mode == NO_RANGES;
        rig_begin();
        recover(EARLY);
        owner_until(&owner, is_back, NULL);
        assert_int_equal(status().failed, mode == NO_RANGES);
        for (unsigned local = 1; local <= 99; local++) {
            assert_int_equal(stamp_of(local), local % 2 ? 7 : 0);
            assert_int_equal(owner_of(local), local % 2 || mode != FEW ? FAKE_OWNER : FORMER);
        }
        assert_int_equal(owner_of(297), mode == NO_RANGES ? FAKE_OWNER : FORMER);
        rig_close();
    }
}

/* Hundreds of small gaps, and a wide one, in two claims: the small ones are taken, the wide one is not, nor what lies between the claims. */
static void wide_gaps_beside_a_zone_that_is_lost(void **state)
{
    (void)state;
    rig_open(1);
    fill_begin(EARLY);
    fill_claim(0, cid_of(0).v, cid_of(399).v);
    fill_claim(1, cid_of(401).v, cid_of(899).v);
    for (uint64_t local = 1; local < 900; local += 2) {
        if (local < 150 || local > 250)
            fill_image(local, 7);
    }
    replica_make(EARLY, own.next[EARLY]);
    record_make(EARLY, false);
    ranges.has_lost = true;
    rig_begin();
    recover(EARLY);
    owner_until(&owner, is_back, NULL);
    assert_true(owner_of(149) == FAKE_OWNER && owner_of(100) == FAKE_OWNER);
    assert_true(owner_of(151) == FORMER && owner_of(249) == FORMER);
    assert_true(owner_of(399) == FAKE_OWNER && owner_of(400) == FORMER);
    assert_true(owner_of(401) == FAKE_OWNER && owner_of(600) == FAKE_OWNER);
    rig_close();
}

/* The former owner had brought the zone back itself, and failed before another backup had all: the replicas are those of before. What it had, and had not taken for this zone, came to it in
 * another one. */
static void after_one_that_needed_its_own(void **state)
{
    (void)state;
    rig_open(1);
    zone_fill(EARLY);
    record_make(EARLY, false);
    struct sh_zone record = record_of(EARLY);
    record.flags |= SH_ZONE_AGAIN | SH_ZONE_TAKEN;
    record_apply(SH_METADATA_ZONE_CHANGE, &record, FAKE_SUPERPEER, 1);
    node_note(0, 60, FORMER);
    taken_note(1, 19, FORMER, FORMER_LIFE, zone_of(EARLY));
    taken_note(30, 39, FORMER, FORMER_LIFE, zone_of_other(LATE));
    rig_begin();
    recover(EARLY);
    owner_until(&owner, is_back, NULL);
    for (unsigned local = 1; local <= 60; local++) {
        assert_int_equal(stamp_of(local), local < 20 ? 100 + local : 0);
        assert_int_equal(owner_of(local), local < 20 ? FAKE_OWNER : FORMER);
    }
    rig_close();
}

/* This node has chunks already that the zone claims, too: it goes on with them, and may give them away at any time. The zone serves none of them, also after it has failed when it
 * had taken over what is its own. */
static void what_this_node_has_is_not_the_zones(void **state)
{
    (void)state;
    for (unsigned fails = 0; fails < 2; fails++) {
        rig_open(1);
        zone_fill(EARLY);
        node_note(30, 39, FAKE_OWNER);
        record_make(EARLY, false);
        rig_begin();
        recover(EARLY);
        while (fails && !ranges.takes)
            owner_pass(&owner, FAKE_MS / 50);
        ranges.refusals[SH_CLUSTER_TREE & 0xff].err = SHOAL_EINVAL;
        ranges.refusals[SH_CLUSTER_TREE & 0xff].count = fails;
        owner_until(&owner, is_back, NULL);
        assert_int_equal(status().failed, fails);
        for (unsigned local = 1; local <= 60; local++) {
            bool is_its = local < 30 || local >= 50;
            assert_int_equal(own.is_served[local], is_its);
            assert_int_equal(stamp_of(local), is_its ? 100 + local : 0);
        }
        rig_close();
    }
}

/* What a backup has been told of the claims of this node's own zone, by place. */
static struct sh_zone_claim own_told[8];

static void own_claims_note(const struct fake_backup *backup, const struct fake_zone *zone,
                            const struct sh_replication_entry *entry)
{
    bool is_claim =
        !(entry->chunk >> 48) && entry->kind == SH_REPLICATION_IMAGE && entry->size == 16;
    (void)backup;
    if (is_claim && sh_zone_creator(zone->id).v == FAKE_OWNER)
        own_told[entry->chunk % 8] =
            (struct sh_zone_claim){sh_load64(entry->bytes.at), sh_load64(entry->bytes.at + 8)};
}

static bool is_told_own(uint64_t local)
{
    for (unsigned i = 0; i < 8; i++) {
        if (own_told[i].first <= cid_of(local).v && cid_of(local).v <= own_told[i].last)
            return true;
    }
    return false;
}

/* Chunk 5 was here before, and a zone of this node's own claims it still. By the time that the zone's chunks are noted as this node's, that one does not any more: if this node fails then,
 * its own zones would be found to have the chunk. */
static void own_zones_let_go_before_it_takes(void **state)
{
    const uint8_t bytes[100] = {1};
    (void)state;
    memset(own_told, 0, sizeof own_told);
    rig_open(1);
    own.has_none = true;
    for (unsigned i = 0; i < 2; i++)
        owner.backups[i].on_entry = own_claims_note;
    owner_pass(&owner, 500 * FAKE_MS);
    assert_int_equal(sh_store_take_over(owner.store, cid_of(5), sh_bytes_make(bytes, 100)),
                     SHOAL_OK);
    assert_int_equal(sh_store_hand_back(owner.store, cid_of(5)), SHOAL_OK);
    zone_fill(EARLY);
    record_make(EARLY, false);
    rig_begin();
    assert_true(is_told_own(5));
    owner.backups[0].is_stuck = owner.backups[1].is_stuck = true; /* their disks hang */
    recover(EARLY);
    owner_pass(&owner, 500 * FAKE_MS);
    assert_true(!is_told_own(5) && !ranges.takes);
    owner.backups[0].is_stuck = owner.backups[1].is_stuck = false;
    owner_until(&owner, is_back, NULL);
    assert_int_equal(stamp_of(5), 105);
    rig_close();
}

/* Two zones, while questions get no answer or are put off, connections are lost, and one question in each run fails for good. */
static void whatever_the_weather(uint64_t seed, uint64_t at)
{
    static const sh_msg_type types[] = {SH_CLUSTER_ORDER, SH_CLUSTER_TAKE, SH_CLUSTER_TREE};
    (void)at;
    rig_open(seed);
    fill_begin(EARLY);
    fill_claim(0, cid_of(0).v, cid_of(127).v);
    for (uint64_t local = 1; local <= 100; local++)
        fill_image(local, 1);
    fill_begin(LATE);
    fill_claim(0, cid_of(50).v, cid_of(60).v);
    for (uint64_t local = 50; local <= 60; local += 2)
        fill_image(local, 2);
    for (uint64_t number = EARLY; number <= LATE; number++) {
        replica_make(number, own.next[number] - owner_draw(&owner, 6));
        record_make(number, false);
    }
    node_note(90, 99, 70);
    rig_begin();
    ranges.busy_ppm = ranges.lost_ppm = owner.superpeer.lost_ppm = 200000;
    ranges.runs_most = 1;
    own.refuses = owner_draw(&owner, 5);
    unsigned type = types[owner_draw(&owner, 3)] & 0xff;
    recover(owner_draw(&owner, 2) ? EARLY : LATE);
    owner_pass(&owner, owner_draw(&owner, 40) * FAKE_MS);
    ranges.refusals[type].err = SHOAL_EINVAL;
    ranges.refusals[type].count = 1;
    for (unsigned i = 0; i < 20; i++) {
        if (owner_draw(&owner, 2))
            sh_world_cut(owner.world, 1, owner_draw(&owner, 2) * 2);
        recover(EARLY);
        recover(LATE);
        owner_pass(&owner, owner_draw(&owner, 100) * FAKE_MS);
    }
    for (unsigned i = 0; !are_both_back(NULL); i++) {
        assert_true(i < 100);
        recover(EARLY);
        recover(LATE);
        owner_pass(&owner, 600 * FAKE_MS);
    }
    for (uint64_t local = 1; local <= 100; local++) {
        bool is_late = local >= 50 && local <= 60, is_others = local >= 90 && local < 100;
        unsigned is = is_others ? 0 : is_late ? (local % 2 ? 0 : 2) : 1;
        if (stamp_of(local) != is || own.is_served[local] == is_others)
            fail_msg("seed %llu: chunk %llu is %u", (unsigned long long)seed,
                     (unsigned long long)local, stamp_of(local));
    }
    owner_until(&owner, is_over, NULL);
    for (uint64_t number = EARLY; number <= LATE; number++) {
        const struct sh_zone record = record_of(number);
        assert_true(!record.former.v && record.count == 1);
        const struct fake_zone *zone =
            fake_find(&owner.backups[record.backups[0].nid.v - FAKE_OWNER - 1u], zone_of(number));
        assert_true(zone && zone->durable.next >= own.next[number]);
    }
    rig_close();
}

static void the_weather(void **state)
{
    (void)state;
    test_fresh_seeds(10, whatever_the_weather);
}

/* The node's process ends at any time: nothing is used that is gone, and nothing is left behind (asan). */
static void it_ends_at_any_time(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        rig_open(i + 1);
        zone_fill(EARLY);
        record_make(EARLY, i % 2);
        rig_begin();
        recover(EARLY);
        owner_pass(&owner, i * FAKE_MS / 10);
        rig_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zone_comes_back),
        cmocka_unit_test(not_before_the_life_is_confirmed),
        cmocka_unit_test(how_far_it_is_is_said),
        cmocka_unit_test(a_phase_fails),
        cmocka_unit_test(after_a_restorer),
        cmocka_unit_test(the_former_owner_is_up_again),
        cmocka_unit_test(results_come_with_chunks),
        cmocka_unit_test(a_replica_that_is_none),
        cmocka_unit_test(each_backup_has_its_turn),
        cmocka_unit_test(a_zone_goes_round_slowly),
        cmocka_unit_test(beside_a_zone_that_is_lost),
        cmocka_unit_test(many_beside_a_zone_that_is_lost),
        cmocka_unit_test(wide_gaps_beside_a_zone_that_is_lost),
        cmocka_unit_test(after_one_that_needed_its_own),
        cmocka_unit_test(the_weather),
        cmocka_unit_test(it_ends_at_any_time),
        cmocka_unit_test(what_this_node_has_is_not_the_zones),
        cmocka_unit_test(own_zones_let_go_before_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
