/* Gates: what chunks that move to another zone wait for, who shares one, and who hears when there is none any more. */
#include "backup/zones_test.h"

/* Fills a zone, which becomes the open one and has the next IDs, so that its chunk, which has a record that is not durable, moves when it grows. */
static shoal_cid fill_and_tell(unsigned zone, uint64_t first)
{
    const struct sh_zone_claim claim = {id_of(first), id_of(first + 5)};
    assert_int_equal(sh_zone_claimed(zones[zone], &claim), SHOAL_OK);
    backup->zones.open = zones[zone];
    shoal_cid cid = make(100);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    add_numbered(cid, 1 + zone);
    read_all(zone);
    return cid;
}

/* Chunks of one zone share a gate until one of them has moved: so several that are made at once, under IDs of that zone, are not in each other's way. */
static void test_moves_share_a_gate(void **state)
{
    (void)state;
    shoal_cid gone[2] = {make(10), make(10)}, cids[2];
    (void)fill_and_tell(0, 3);
    struct sh_zone_place first, second;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sh_store_remove(store, gone[i]), SHOAL_OK);
    read_all(0);
    uint64_t next = sh_backlog_next(&zones[0]->backlog), told = zones[0]->told_end;
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    const struct sh_store_wish wish = {.size = 150000, .count = 2};
    assert_int_equal(sh_backup_new_as(backup, &write, &wish, cids, NULL), SHOAL_OK);
    assert_true(cids[0].v == gone[0].v && cids[1].v == gone[1].v);
    assert_end(1);
    assert_int_equal(atomic_load(&backup->zones.gates), 1);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, told);
    assert_true(sh_zone_gate_look(zones[1]));
    assert_claim(1, 0, gone[0].v, gone[0].v, true);
    read_all(1);
    assert_int_equal(zones[1]->gate.under_way, 0);
    /* The caller cancels one of two moves: the gate stays for the other move, which sets it, and waits for the later one of the records. */
    add_numbered((shoal_cid){id_of(3)}, 7);
    assert_int_equal(sh_zones_place(backup, id_of(4), 100, 200000, &first), SHOAL_OK);
    add_numbered((shoal_cid){id_of(3)}, 8);
    assert_int_equal(sh_zones_place(backup, id_of(5), 100, 200000, &second), SHOAL_OK);
    assert_true(first.gate && second.gate && zones[0]->told_end > next);
    sh_zones_move_cancel(backup, &second, NULL);
    assert_ptr_equal(zones[1]->gate.from, zones[0]);
    assert_int_equal(zones[1]->gate.end, zones[0]->told_end);
    sh_zones_move_cancel(backup, &first, NULL);
    assert_null(zones[1]->gate.from);
}

/* A gate that was opened is none of a later one's moves: of two zones none keeps the other's back, nor the gate of a zone from which nothing moves. */
static void test_gate_that_was_opened(void **state)
{
    (void)state;
    shoal_cid grows = fill_and_tell(0, 1), other = fill_and_tell(2, 7);
    struct sh_zone_place first, foreign;
    backup->zones.open = zones[1];
    assert_int_equal(sh_zones_place(backup, id_of(3), 100, 200000, &first), SHOAL_OK);
    assert_true(first.gate);
    assert_int_equal(resize(grows, 200000), SHOAL_OK);
    assert_true(zones[1]->gate.is_set);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, zones[1]->gate.end);
    assert_true(sh_zone_gate_look(zones[1]));
    assert_int_equal(sh_zones_place(backup, other.v, 100, 200000, &foreign), SHOAL_OK);
    assert_ptr_equal(zones[1]->gate.from, zones[2]);
    sh_zones_move_cancel(backup, &foreign, NULL);
    assert_null(zones[1]->gate.from);
    assert_int_equal(zones[2]->moves_away, 0);
    /* The first one's move is cancelled while there is another gate: that stays. */
    assert_int_equal(sh_zones_place(backup, other.v, 100, 200000, &foreign), SHOAL_OK);
    sh_zones_move_cancel(backup, &first, NULL);
    assert_ptr_equal(zones[1]->gate.from, zones[2]);
    assert_int_equal(zones[1]->gate.under_way, 1);
    sh_zones_move_cancel(backup, &foreign, NULL);
    assert_null(zones[1]->gate.from);
}

static void on_room(void *arg, enum shoal_err err)
{
    assert_int_equal(err, SHOAL_OK);
    ++*(unsigned *)arg;
}

/* Whoever was refused for a gate hears that it is none any more, as its move was cancelled; but not the write that cancels: it would try at once, for ever. If
 * nobody was refused for the gate, nobody hears of it. */
static void test_gate_that_goes_is_told(void **state)
{
    (void)state;
    shoal_cid grows = fill_and_tell(0, 1), other = fill_and_tell(2, 7);
    struct sh_zone_place place;
    struct sh_write mover, refused;
    unsigned moved = 0, called = 0;
    backup->zones.open = zones[1];
    sh_write_begin(&mover, SH_LEVEL_ASYNC);
    mover.room_seen = atomic_load(&backup->rooms);
    assert_int_equal(sh_zones_place(backup, grows.v, 100, 200000, &place), SHOAL_OK);
    assert_true(place.gate);
    sh_write_begin(&refused, SH_LEVEL_ASYNC);
    const struct sh_store_rewrite rewrite = {.kind = SH_STORE_RESIZE, .cid = other, .size = 200000};
    assert_int_equal(sh_backup_rewrite(backup, &refused, &rewrite), SHOAL_EAGAIN);
    assert_true(sh_write_was_refused(&refused));
    sh_backup_room_wait(backup, &refused, on_room, &called);
    assert_int_equal(sh_waits_call(backup), 0);
    sh_zones_move_cancel(backup, &place, &mover);
    sh_backup_room_wait(backup, &mover, on_room, &moved);
    assert_int_equal(sh_waits_call(backup), 1);
    assert_true(called == 1 && moved == 0);
    /* The one that was told tries again, and is cancelled for want of something else. */
    refused.room_seen = atomic_load(&backup->rooms);
    assert_int_equal(sh_zones_place(backup, other.v, 100, 200000, &place), SHOAL_OK);
    sh_zones_move_cancel(backup, &place, &refused);
    sh_backup_room_wait(backup, &refused, on_room, &called);
    assert_int_equal(sh_waits_call(backup), 0);
    /* Room that others have given since the write began counts. */
    sh_waits_room(backup);
    assert_int_equal(sh_waits_call(backup), 2);
    mover.room_seen = atomic_load(&backup->rooms);
    sh_waits_room(backup);
    sh_waits_room_by(backup, &mover);
    sh_backup_room_wait(backup, &mover, on_room, &moved);
    assert_int_equal(sh_waits_call(backup), 1);
    assert_true(called == 2 && moved == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_moves_share_a_gate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gate_that_was_opened, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gate_that_goes_is_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
