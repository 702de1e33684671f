/* A node's store has no room for a zone that it is to bring back (recover/restorer_room.c): in the world of restorer_test, where a model makes room, or says who has some.
 *
 * SHOAL_TEST_SEED as of restorer_test. */
#include "tests/restorer_rig_int.h"

#define CHUNKS 400u
#define CHUNK_BYTES (100 + SH_ZONE_CHUNK_BYTES)
#define FILLER 93 /* who made the chunks that fill the store */

static unsigned fillers;
static struct sh_room_wish wished;
static uint64_t filled_most; /* bytes that the store had, full */

static void fillers_drop(uint64_t first, uint64_t last)
{
    sh_store_witness_pause(true);
    for (uint64_t local = first; local <= last; local++)
        assert_int_equal(
            sh_store_hand_back(owner.store, (shoal_cid){(uint64_t)FILLER << 48 | local}), SHOAL_OK);
    sh_store_witness_pause(false);
}

/* Fills the store with what no zone claims, but for some chunks of the zone. */
static void store_fill(void)
{
    static const uint32_t sizes[] = {600000, 60000, 4000, 100};
    fillers = 0;
    sh_store_witness_pause(true);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        while (!sh_store_take_over(owner.store, (shoal_cid){(uint64_t)FILLER << 48 | (fillers + 1)},
                                   sh_bytes_make(NULL, sizes[i])))
            fillers++;
    }
    sh_store_witness_pause(false);
    fillers_drop(fillers - 11, fillers);
    struct sh_store_status now;
    sh_store_status_get(owner.store, &now);
    filled_most = now.payload_bytes;
}

static uint64_t payload_now(void)
{
    struct sh_store_status now;
    sh_store_status_get(owner.store, &now);
    return now.payload_bytes;
}

/* As if chunks had moved to other peers. */
static void room_free(void)
{
    fillers_drop(1, 4);
}

static void zone_make(void)
{
    fill_begin(EARLY);
    fill_claim(0, cid_of(0).v, cid_of(511).v);
    for (uint64_t local = 1; local <= CHUNKS; local++)
        fill_image(local, (uint8_t)(1 + local % 250));
    replica_make(EARLY, own.next[EARLY]);
    record_make(EARLY, false);
    rig_begin();
    store_fill();
    wished = (struct sh_room_wish){.record = NULL};
}

/* Nothing of the zone is in the store while room is made for it. */
static void wish_check(const struct sh_room_wish *wish)
{
    assert_int_equal(wish->record->id, zone_of(EARLY));
    assert_int_equal(wish->zone_bytes, CHUNKS * CHUNK_BYTES);
    assert_in_range(wish->missing_bytes, CHUNK_BYTES, CHUNKS * CHUNK_BYTES);
    assert_int_equal(wish->missing_bytes % CHUNK_BYTES, 0);
    for (uint64_t local = 1; local <= CHUNKS; local++)
        assert_int_equal(stamp_of(local), 0);
    assert_false(sh_backup_is_claimed(owner.backup, cid_of(1).v));
    wished = *wish;
}

static void zone_check(void)
{
    for (uint64_t local = 1; local <= CHUNKS; local++)
        assert_true(stamp_of(local) == 1 + local % 250 && own.is_served[local]);
    assert_int_equal(record_of(EARLY).former.v, 0);
}

static enum shoal_err frees_some(const struct sh_room_wish *wish, struct sh_room_found *found_out)
{
    wish_check(wish);
    assert_true(wish->may_move);
    *found_out = (struct sh_room_found){.has_moved = true};
    if (own.rooms < 4)
        return SHOAL_EAGAIN;
    assert_int_equal(payload_now(), filled_most);
    room_free();
    return SHOAL_OK;
}

static bool is_room_asked_for(void *arg)
{
    (void)arg;
    return own.rooms;
}

/* Room is made, which takes a while, and the zone comes back here. Who asks meanwhile is told how much is missing. */
static void room_is_made(void **state)
{
    (void)state;
    rig_open(1);
    zone_make();
    own.make_room = frees_some;
    recover(EARLY);
    owner_until(&owner, is_room_asked_for, NULL);
    recover(EARLY);
    owner_pass(&owner, FAKE_MS);
    assert_int_equal(own.rooms, 1);
    assert_int_equal(progress.missing, wished.missing_bytes);
    owner_until(&owner, is_back, NULL);
    assert_int_equal(own.rooms, 4);
    assert_int_equal(status().failed, 1);
    zone_check();
    recover(EARLY);
    owner_until(&owner, is_over, NULL);
    owner_pass(&owner, 10 * FAKE_MS);
    recover(EARLY);
    owner_pass(&owner, 10 * FAKE_MS);
    assert_int_equal(progress.missing, 0);
    rig_close();
}

static enum shoal_err second_has_room(const struct sh_room_wish *wish,
                                      struct sh_room_found *found_out)
{
    wish_check(wish);
    *found_out = (struct sh_room_found){.backup = owner.backups[1].nid};
    return SHOAL_OK;
}

/* A recorded backup has room for all of the zone: that one brings it back, whichever is next in the record. */
static void a_backup_has_room(void **state)
{
    (void)state;
    rig_open(1);
    zone_make();
    struct sh_zone record = record_of(EARLY);
    record.count = record.wanted = 3;
    record.backups[2] = (struct sh_zone_backup){owner.backups[1].nid, owner.backups[1].disk};
    record_apply(SH_METADATA_ZONE_CHANGE, &record, FAKE_SUPERPEER, 1);
    own.make_room = second_has_room;
    recover(EARLY);
    owner_until(&owner, has_failed, NULL);
    owner_until(&owner, is_over, NULL);
    assert_int_equal(own.rooms, 1);
    assert_int_equal(record_of(EARLY).owner.v, owner.backups[1].nid.v);
    assert_int_equal(payload_now(), filled_most);
    rig_close();
}

static enum shoal_err none_has_room(const struct sh_room_wish *wish,
                                    struct sh_room_found *found_out)
{
    *found_out = (struct sh_room_found){.has_moved = false};
    wish_check(wish);
    return SHOAL_EFULL;
}

/* Nobody has room: the next backup is to try, and the replica stays in the log. If the zone comes back it rests here for two seconds. */
static void there_is_no_room(void **state)
{
    (void)state;
    rig_open(1);
    zone_make();
    own.make_room = none_has_room;
    recover(EARLY);
    owner_until(&owner, has_failed, NULL);
    owner_pass(&owner, 1500 * FAKE_MS);
    assert_true(status().zones == 1 && own.rooms == 1);
    assert_int_equal(record_of(EARLY).owner.v, owner.backups[0].nid.v);
    recover(EARLY);
    owner_pass(&owner, 10 * FAKE_MS);
    assert_true(progress.phase == SH_RESTORE_RETRIES && progress.missing == wished.missing_bytes);
    owner_until(&owner, is_over, NULL);
    assert_int_equal(record_of(EARLY).owner.v, owner.backups[0].nid.v);
    assert_true(record_of(EARLY).former.v);
    assert_non_null(sh_replog_zone_find(own.log, zone_of(EARLY)));
    assert_true(own.rooms == 1 && payload_now() == filled_most);
    rig_close();
}

static unsigned moved;

static enum shoal_err moves_in_vain(const struct sh_room_wish *wish,
                                    struct sh_room_found *found_out)
{
    wish_check(wish);
    *found_out = (struct sh_room_found){
        .backup = owner.backups[0]
                      .nid}; /* which does not become the owner, as the superpeer refuses that */
    if (!wish->may_move)
        return SHOAL_EFULL;
    *found_out = (struct sh_room_found){.has_moved = true};
    moved++;
    return moved % 2 ? SHOAL_OK : SHOAL_EFULL; /* some has moved, and then there was no more room */
}

/* Others have used the room each time: it is made at longer and longer intervals, and not in circles. */
static void it_moves_less_and_less(void **state)
{
    (void)state;
    rig_open(1);
    zone_make();
    moved = 0;
    own.make_room = moves_in_vain;
    ranges.refusals[SH_CLUSTER_ZONE & 0xff].err = SHOAL_EINVAL;
    ranges.refusals[SH_CLUSTER_ZONE & 0xff].count = UINT32_MAX;
    recover(EARLY);
    for (unsigned i = 0; i < 32; i++)
        owner_pass(&owner, 1000 * FAKE_MS);
    assert_in_range(moved, 3, 6);
    assert_int_equal(record_of(EARLY).owner.v, FAKE_OWNER);
    ranges.refusals[SH_CLUSTER_ZONE & 0xff].count = 0;
    room_free();
    owner_until(&owner, is_back, NULL);
    zone_check();
    rig_close();
}

/* The process ends while room is made. */
static void it_ends_while_room_is_made(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 40; i++) {
        rig_open(i + 1);
        zone_make();
        own.make_room = frees_some;
        recover(EARLY);
        owner_pass(&owner, i * FAKE_MS / 4);
        rig_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_made),
        cmocka_unit_test(a_backup_has_room),
        cmocka_unit_test(there_is_no_room),
        cmocka_unit_test(it_moves_less_and_less),
        cmocka_unit_test(it_ends_while_room_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
