/* What the witness records, and in which zone: zones without a log, whose backlogs the test reads. */
#include "backup/zones_test.h"

static uint8_t data[400000];

/* Fresh IDs are claimed 1024 at a time, before the first image; the claim grows with them. */
static void test_fresh(void **state)
{
    (void)state;
    shoal_cid first = make(10);
    assert_int_equal(first.v, id_of(1));
    assert_claim(0, 0, id_of(0), id_of(1023), false);
    assert_next(0, id_of(1), SH_BACKLOG_ZEROS, 10, false);
    for (unsigned i = 2; i < 1024; i++) {
        assert_int_equal(make(1).v, id_of(i));
        assert_next(0, id_of(i), SH_BACKLOG_ZEROS, 1, false);
    }
    (void)make(5);
    assert_claim(0, 0, id_of(0), id_of(2047), false);
    assert_next(0, id_of(1024), SH_BACKLOG_ZEROS, 5, false);
    assert_end(0);
    assert_int_equal(zones[0]->live, 10 + 1022 + 5 + 1024 * SH_ZONE_CHUNK_BYTES);
    /* An ID that is used again is in its old zone, also after the next one was opened. */
    backup->zones.open = zones[1];
    assert_int_equal(sh_store_remove(store, first), SHOAL_OK);
    assert_int_equal(make(7).v, first.v);
    assert_next(0, id_of(1), SH_BACKLOG_REMOVAL, 0, false);
    assert_next(0, id_of(1), SH_BACKLOG_ZEROS, 7, false);
    assert_end(0);
    assert_end(1);
}

/* A chunk that outgrows its zone moves: claim and image have one number; what the old zone has of it goes only once that is
 * durable. */
static void test_moves(void **state)
{
    (void)state;
    shoal_cid grows = make(100), removed = make(200000);
    for (unsigned i = 0; i < 4; i++)
        (void)make(200000);
    read_all(0);
    assert_int_equal(resize(grows, 200000), SHOAL_OK);
    assert_claim(1, 0, grows.v, grows.v, true);
    assert_next(1, grows.v, SH_BACKLOG_IMAGE, SH_BACKLOG_PIECE_BYTES, false);
    read_all(1);
    assert_ptr_equal(sh_zones_find(backup, grows.v), zones[1]);
    assert_ptr_equal(sh_zones_find(backup, removed.v), zones[0]);
    assert_int_equal(zones[1]->live, 200000 + SH_ZONE_CHUNK_BYTES);
    assert_int_equal(zones[0]->live, 5 * (200000 + SH_ZONE_CHUNK_BYTES));
    uint64_t number = sh_backlog_next(&zones[1]->backlog) - 1;
    assert_int_equal(sh_zones_leftovers(backup), 0);
    sh_zone_acked(zones[1], SH_LEVEL_REPLICATED, number + 1);
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, number);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_end(0);
    assert_true(sh_zone_has_left(zones[0], grows.v));
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, number + 1);
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_next(0, grows.v, SH_BACKLOG_REMOVAL, 0, false);
    assert_end(0);
    assert_false(sh_zone_has_left(zones[0], grows.v));
    /* Neither zone may go before the removal is durable: the claims of the old one would hold again, or its image be the last one. */
    assert_true(sh_zone_is_leaving(zones[0]) && sh_zone_is_leaving(zones[1]));
    number = sh_backlog_next(&zones[0]->backlog) - 1;
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, number);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_true(sh_zone_is_leaving(zones[0]) && sh_zone_is_leaving(zones[1]));
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, number + 1);
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_false(sh_zone_is_leaving(zones[0]) || sh_zone_is_leaving(zones[1]));
    /* From now on it is the other zone's. */
    assert_int_equal(resize(grows, 300), SHOAL_OK);
    assert_next(1, grows.v, SH_BACKLOG_IMAGE, 300, false);
    assert_int_equal(sh_store_remove(store, grows), SHOAL_OK);
    assert_next(1, grows.v, SH_BACKLOG_REMOVAL, 0, false);
    assert_end(0);
    assert_int_equal(zones[1]->live, 0);
}

/* No backup gets a chunk's image in the zone that it moves to before the records of requests in its former zone are durable; nor what is behind
 * that, but what was before it. */
static void test_moves_behind_records(void **state)
{
    (void)state;
    shoal_cid before = make(100), grows = make(100), behind = make(100);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    assert_int_equal(resize(before, 200000), SHOAL_OK);
    add_numbered(grows, 1);
    read_all(0);
    uint64_t next = sh_backlog_next(&zones[0]->backlog);
    assert_int_equal(resize(grows, 200000), SHOAL_OK);
    assert_int_equal(resize(before, 10), SHOAL_OK);
    assert_claim(1, 0, before.v, before.v, true);
    for (unsigned i = 0; i < 6; i++)
        assert_next(1, before.v, SH_BACKLOG_IMAGE, SH_BACKLOG_PIECE_BYTES, false);
    assert_next(1, before.v, SH_BACKLOG_IMAGE, 200000 % SH_BACKLOG_PIECE_BYTES, false);
    assert_end(1);
    sh_zone_acked(zones[0], SH_LEVEL_REPLICATED, next);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, next - 1);
    assert_false(sh_zone_gate_look(zones[1]));
    assert_int_equal(sh_sink_home(zones[0])->needed, next);
    assert_end(1);
    /* Another chunk can't follow meanwhile; it can when the records are durable. */
    assert_int_equal(resize(behind, 200000), SHOAL_EAGAIN);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, next);
    assert_true(sh_zone_gate_look(zones[1]));
    assert_claim(1, 0, before.v, grows.v, true);
    read_all(1);
    assert_int_equal(resize(behind, 200000), SHOAL_OK);
    assert_claim(1, 0, before.v, behind.v, true);
    read_all(1);
}

/* A move that does not come about has no gate; nor has one out of a zone whose log has no room, where records may wait for ever. */
static void test_moves_without_a_gate(void **state)
{
    (void)state;
    shoal_cid grows = make(100), other = make(100);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    add_numbered(grows, 1);
    read_all(0);
    struct sh_zone_place place;
    assert_int_equal(sh_zones_place(backup, grows.v, 100, 200000, &place), SHOAL_OK);
    assert_true(place.gate);
    sh_zones_move_cancel(backup, &place, NULL);
    assert_int_equal(sh_zones_place(backup, other.v, 100, 200000, &place), SHOAL_OK);
    assert_true(place.gate);
    sh_zones_move_cancel(backup, &place, NULL);
    assert_int_equal(resize(grows, 200000), SHOAL_OK);
    assert_end(1);
    atomic_store(&zones[0]->is_full, true);
    assert_true(sh_zone_gate_look(zones[1]));
    assert_claim(1, 0, grows.v, grows.v, true);
    assert_int_equal(resize(other, 200000), SHOAL_OK);
    read_all(1);
    assert_int_equal(atomic_load(&backup->zones.gates), 0);
    atomic_store(&zones[0]->is_full, false);
}

/* A reused ID for which its zone has no room goes to the open one; its old zone has nothing of it to be removed. But while the first removal there is not
 * durable, the open one may not go: the chunk that was there before would be back. */
static void test_reused_elsewhere(void **state)
{
    (void)state;
    shoal_cid small = make(10);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    assert_int_equal(sh_store_remove(store, small), SHOAL_OK);
    read_all(0);
    assert_int_equal(make(150000).v, small.v);
    assert_claim(1, 0, small.v, small.v, true);
    assert_next(1, small.v, SH_BACKLOG_ZEROS, 150000, false);
    assert_end(0);
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, 100);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_true(sh_zone_is_leaving(zones[1]));
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, sh_backlog_next(&zones[0]->backlog));
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_false(sh_zone_is_leaving(zones[0]) || sh_zone_is_leaving(zones[1]));
}

/* While there is no next zone a full one refuses; when there can be none, it says so. */
static void test_no_zone(void **state)
{
    (void)state;
    shoal_cid cid, grows = make(10);
    struct sh_write write;
    const struct sh_store_wish wish = {.size = 200000, .count = 1};
    backup->zones.spare = NULL;
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    uint64_t live = zones[0]->live;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    assert_int_equal(sh_backup_new_as(backup, &write, &wish, &cid, NULL), SHOAL_EAGAIN);
    assert_true(sh_write_was_refused(&write));
    assert_int_equal(resize(grows, 150000), SHOAL_EAGAIN);
    atomic_store(&backup->no_zone, SHOAL_ENOSPC);
    assert_int_equal(sh_backup_new_as(backup, &write, &wish, &cid, NULL), SHOAL_ENOSPC);
    assert_false(sh_write_was_refused(&write));
    assert_int_equal(resize(grows, 12), SHOAL_OK); /* what fits goes on */
    assert_int_equal(zones[0]->live, live + 2);
    backup->zones.spare = zones[1];
    assert_int_equal(sh_backup_new_as(backup, &write, &wish, &cid, NULL), SHOAL_OK);
    assert_ptr_equal(backup->zones.open, zones[1]);
}

/* A change that fails for want of chunk memory leaves no trace. */
static void test_no_memory(void **state)
{
    (void)state;
    struct sh_write write;
    shoal_cid cids[64], cid;
    uint32_t sizes[64];
    for (unsigned i = 0; i < 64; i++)
        sizes[i] = i < 40 ? 100 : 900000;
    uint64_t live[ZONES];
    cid = make(100);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    for (unsigned i = 0; i < ZONES; i++)
        live[i] = zones[i]->live;
    const struct sh_store_wish wish = {.sizes = sizes, .count = 64};
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    backup->zones.open = zones[0];
    enum shoal_err err = sh_backup_new_as(backup, &write, &wish, cids, NULL);
    assert_true(err == SHOAL_EFULL || err == SHOAL_EAGAIN);
    for (unsigned i = 0; i < ZONES; i++) {
        assert_int_equal(zones[i]->live, live[i]);
        assert_int_equal(zones[i]->claims_promised, 0);
        assert_int_equal(zones[i]->backlog.reserved, 0);
    }
    assert_int_equal(backup->zones.leftovers_promised, 0);
    assert_int_equal(resize(cid, 101), SHOAL_OK);
}

/* One that was admitted, and finds no memory for its group, is taken back. */
static void test_cancelled(void **state)
{
    (void)state;
    enum shoal_err err = SHOAL_OK;
    struct sh_store_status status;
    backup->config.zone_bytes = 1 << 30;
    while (!err) {
        shoal_cid cid;
        const struct sh_store_wish wish = {.size = 0, .count = 1};
        struct sh_write write;
        sh_write_begin(&write, SH_LEVEL_ASYNC);
        err = sh_backup_new_as(backup, &write, &wish, &cid, NULL);
        if (!err)
            err = resize(cid, 250);
        read_all(0);
    }
    assert_int_equal(err, SHOAL_EFULL);
    sh_store_status_get(store, &status);
    assert_int_equal(zones[0]->live, status.payload_bytes + status.chunks * SH_ZONE_CHUNK_BYTES);
    assert_int_equal(zones[0]->backlog.reserved, 0);
}

static void leave(unsigned zone, uint64_t chunk)
{
    const struct sh_zone_place place = {.zone = zones[zone], .number = zone};
    sh_zones_leave(backup, &place, chunk);
}

/* The removal of a create that failed has no room: it is recorded later, but not where the ID is in use again. */
static void test_left(void **state)
{
    (void)state;
    shoal_cid first = make(10), second = make(10);
    read_all(0);
    leave(0, first.v);
    leave(0, second.v);
    assert_int_equal(sh_store_remove(store, first), SHOAL_OK);
    assert_int_equal(make(20).v, first.v);
    assert_next(0, first.v, SH_BACKLOG_REMOVAL, 0, false);
    assert_next(0, first.v, SH_BACKLOG_ZEROS, 20, false);
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_next(0, second.v, SH_BACKLOG_REMOVAL, 0, false);
    assert_end(0);
    assert_int_equal(backup->zones.at_once, 0);
    /* A removal that is recorded stays, though the ID is in use again. */
    assert_int_equal(sh_store_remove(store, second), SHOAL_OK);
    assert_int_equal(make(30).v, second.v);
    assert_true(sh_zone_is_leaving(zones[0]));
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, sh_backlog_next(&zones[0]->backlog));
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_false(sh_zone_is_leaving(zones[0]));
}

/* A zone that is closed goes with its images, but not before what moved from it is durable where it is now. */
static void test_closed(void **state)
{
    (void)state;
    shoal_cid grows = make(100);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    read_all(0);
    assert_int_equal(resize(grows, 200000), SHOAL_OK);
    uint64_t number = sh_backlog_next(&zones[1]->backlog) - 1;
    backup->zones.drop.zone = zones[0];
    backup->zones.drop.phase = SH_DROP_LEAVES;
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, number);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_true(sh_zone_is_leaving(zones[0]));
    assert_int_equal(sh_sink_home(zones[1])->needed, number + 1);
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, number + 1);
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_false(sh_zone_is_leaving(zones[0]));
    assert_end(0);
    backup->zones.drop.phase = SH_DROP_NONE;
}

static bool is_dirty(unsigned zone)
{
    bool was_dirty = atomic_exchange(&zones[zone]->is_dirty, false);
    backup->dirty = NULL; /* the test is the step */
    return was_dirty;
}

/* A zone that is to go waits for a removal in the zone that one of its chunks came from: what that waits for is on the disk soon, and each is asked for
 * once. Where no zone waits, nothing is asked for. */
static void test_closed_hurries(void **state)
{
    (void)state;
    shoal_cid grows = make(100);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    assert_int_equal(resize(grows, 200000), SHOAL_OK);
    uint64_t number = sh_backlog_next(&zones[1]->backlog) - 1;
    (void)is_dirty(0), (void)is_dirty(1);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_int_equal(sh_sink_home(zones[1])->needed, 0);
    backup->zones.drop.zone = zones[1];
    backup->zones.drop.phase = SH_DROP_LEAVES;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sh_zones_leftovers(backup), 0);
        assert_int_equal(sh_sink_home(zones[1])->needed, number + 1);
        assert_int_equal(is_dirty(1), i == 0);
    }
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, number + 1);
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_true(is_dirty(0)); /* it has the removal */
    number = sh_backlog_next(&zones[0]->backlog) - 1;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sh_zones_leftovers(backup), 0);
        assert_int_equal(sh_sink_home(zones[0])->needed, number + 1);
        assert_int_equal(is_dirty(0), i == 0);
        assert_true(sh_zone_is_leaving(zones[1]));
    }
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, number + 1);
    assert_int_equal(sh_zones_leftovers(backup), 1);
    assert_false(sh_zone_is_leaving(zones[1]));
    backup->zones.drop.phase = SH_DROP_NONE;
}

/* A create was undone, and there was no room for the removal; then the ID is used again in another zone: that one stays until the removal is durable, or the
 * image of the undone chunk would be the last one. */
static void test_undone_and_made_elsewhere(void **state)
{
    (void)state;
    shoal_cid small = make(10);
    for (unsigned i = 0; i < 5; i++)
        (void)make(200000);
    assert_int_equal(sh_store_remove(store, small), SHOAL_OK);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, sh_backlog_next(&zones[0]->backlog));
    leave(0, id_of(900));
    leave(0, small.v);
    assert_int_equal(make(150000).v, small.v);
    assert_ptr_equal(sh_zones_find(backup, small.v), zones[1]);
    assert_true(sh_zone_is_leaving(zones[0]) && sh_zone_is_leaving(zones[1]));
    assert_int_equal(zones[1]->left_behind, 1);
    assert_int_equal(sh_zones_leftovers(backup), 2);
    assert_int_equal(backup->zones.at_once, 0);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_true(sh_zone_is_leaving(zones[1]));
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, sh_backlog_next(&zones[0]->backlog));
    assert_int_equal(sh_zones_leftovers(backup), 2);
    assert_false(sh_zone_is_leaving(zones[0]) || sh_zone_is_leaving(zones[1]));
}

/* A start finds an image that a later zone's claim outweighs: neither zone goes before its removal is durable, a third one does. */
static void test_left_found(void **state)
{
    (void)state;
    const uint64_t chunk = id_of(77);
    const struct sh_zone_claim claim = {id_of(70), id_of(80)};
    assert_int_equal(sh_zone_claimed(zones[2], &claim), SHOAL_OK);
    sh_backup_left_found(backup, 1, chunk);
    assert_next(1, chunk, SH_BACKLOG_REMOVAL, 0, false);
    assert_end(1);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    assert_true(sh_zone_is_leaving(zones[1]) && sh_zone_is_leaving(zones[2]));
    assert_false(sh_zone_is_leaving(zones[0]) || sh_zone_is_leaving(zones[3]));
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, 2);
    assert_int_equal(sh_zones_leftovers(backup), 1);
    for (unsigned i = 0; i < ZONES; i++)
        assert_false(sh_zone_is_leaving(zones[i]));
}

/* A large chunk in pieces, given up and made; that of another zone moves with its claim behind it. */
static void test_large(void **state)
{
    (void)state;
    shoal_cid cid = make(400000);
    struct sh_store_rewriting *rewriting;
    const struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(data, sizeof data)};
    read_all(0);
    assert_int_equal(sh_store_rewriting_begin(store, &put, &rewriting), SHOAL_OK);
    while (sh_backlog_next(&zones[0]->backlog) == 3 && !zones[0]->backlog.has_pieces)
        assert_false(sh_store_rewriting_step(rewriting));
    assert_int_equal(sh_store_rewriting_end(rewriting), SHOAL_ECANCELED);
    struct sh_backlog_entry entry;
    uint64_t number;
    unsigned pieces = 0;
    while (sh_backlog_read(&zones[0]->sinks[0].cursor, &entry, &number, scratch)) {
        assert_int_equal(number, 3);
        pieces += entry.kind == SH_BACKLOG_IMAGE;
    }
    assert_true(pieces > 0 && entry.kind == SH_BACKLOG_ABANDON);
    (void)sh_backlog_take(&zones[0]->sinks[0].cursor);
    assert_int_equal(zones[0]->live, 400000 + SH_ZONE_CHUNK_BYTES);
    const struct sh_store_rewrite grow = {.kind = SH_STORE_RESIZE, .cid = cid, .size = 900000};
    (void)make(500000);
    read_all(0);
    assert_int_equal(sh_store_rewriting_begin(store, &grow, &rewriting), SHOAL_OK);
    while (!sh_store_rewriting_step(rewriting))
        continue;
    assert_int_equal(sh_store_rewriting_end(rewriting), SHOAL_OK);
    assert_end(0);
    for (unsigned i = 0; i < 28; i++)
        assert_next(1, cid.v, SH_BACKLOG_IMAGE, i < 27 ? SH_BACKLOG_PIECE_BYTES : 900000 % 32768,
                    false);
    assert_claim(1, 0, cid.v, cid.v, false);
    assert_end(1);
    assert_int_equal(zones[1]->live, 900000 + SH_ZONE_CHUNK_BYTES);
    assert_int_equal(zones[0]->live, 500000 + SH_ZONE_CHUNK_BYTES);
    assert_int_equal(backup->zones.leftovers_count, 1);
    assert_null(backup->zones.larges);
}

static struct sh_store_rewriting *rewriting_of(const struct sh_store_rewrite *rewrite)
{
    struct sh_store_rewriting *rewriting;
    assert_int_equal(sh_store_rewriting_begin(store, rewrite, &rewriting), SHOAL_OK);
    return rewriting;
}

static void on_done(void *arg, enum shoal_err err)
{
    assert_int_equal(err, SHOAL_OK);
    ++*(unsigned *)arg;
}

/* Who is refused while a large chunk comes is called when that is given up, also where nothing of it was recorded. */
static void test_large_given_up(void **state)
{
    (void)state;
    shoal_cid large = make(400000), small = make(10);
    struct sh_write write;
    unsigned dones = 0;
    const struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = large, .data = sh_bytes_make(data, sizeof data)};
    const struct sh_store_rewrite shrink = {.kind = SH_STORE_RESIZE, .cid = small, .size = 9};
    for (unsigned with_pieces = 0; with_pieces < 2; with_pieces++) {
        struct sh_store_rewriting *rewriting = rewriting_of(&put);
        while (!zones[0]->backlog.is_held || (with_pieces && !zones[0]->backlog.has_pieces))
            assert_false(sh_store_rewriting_step(rewriting));
        read_all(0);
        sh_write_begin(&write, SH_LEVEL_ASYNC);
        assert_int_equal(sh_backup_rewrite(backup, &write, &shrink), SHOAL_EAGAIN);
        sh_backup_room_wait(backup, &write, on_done, &dones);
        assert_int_equal(sh_waits_call(backup), 0);
        atomic_store(&zones[0]->is_dirty, false);
        assert_int_equal(sh_store_rewriting_end(rewriting), SHOAL_ECANCELED);
        assert_int_equal(sh_waits_call(backup), 1);
        assert_int_equal(dones, 1 + with_pieces);
        assert_int_equal(atomic_load(&zones[0]->is_dirty), with_pieces);
        read_all(0);
    }
}

/* While a large chunk is on its way to another zone, no other change of it goes to the zone where it still is. */
static void test_large_moves_alone(void **state)
{
    (void)state;
    shoal_cid large = make(300000), small = make(100);
    (void)make(700000);
    const struct sh_store_rewrite grows[] = {
        {.kind = SH_STORE_RESIZE, .cid = large, .size = 500000},
        {.kind = SH_STORE_RESIZE, .cid = small, .size = 500000},
    };
    const struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = large, .data = sh_bytes_make(data, 300000)};
    for (unsigned i = 0; i < 2; i++) {
        struct sh_store_rewriting *grow = rewriting_of(&grows[i]);
        while (!zones[1]->backlog.is_held || !zones[1]->backlog.has_pieces)
            assert_false(sh_store_rewriting_step(grow));
        if (i == 0) {
            struct sh_store_rewriting *other = rewriting_of(&put);
            for (unsigned step = 0; step < 100; step++)
                assert_false(sh_store_rewriting_step(other));
            assert_false(zones[0]->backlog.is_held);
            assert_int_equal(sh_store_rewriting_end(other), SHOAL_ECANCELED);
        } else {
            assert_int_equal(resize(small, 101), SHOAL_EAGAIN);
        }
        while (!sh_store_rewriting_step(grow))
            continue;
        assert_int_equal(sh_store_rewriting_end(grow), SHOAL_OK);
        assert_ptr_equal(sh_zones_find(backup, grows[i].cid.v), zones[1]);
        read_all(1);
    }
    assert_int_equal(resize(small, 101), SHOAL_OK);
}

/* The copy of a zone wants a large chunk that has left it, while that is written where it is now: it waits, and wakes nobody who waits for room. */
static void test_large_that_left_waits(void **state)
{
    (void)state;
    shoal_cid large = make(300000);
    (void)make(700000);
    const struct sh_store_rewrite grows[] = {
        {.kind = SH_STORE_RESIZE, .cid = large, .size = 500000},
        {.kind = SH_STORE_RESIZE, .cid = large, .size = 520000},
    };
    const struct sh_store_rewrite retell = {.kind = SH_STORE_RETELL, .cid = large};
    struct sh_store_rewriting *grow = rewriting_of(&grows[0]);
    while (!sh_store_rewriting_step(grow))
        continue;
    assert_int_equal(sh_store_rewriting_end(grow), SHOAL_OK);
    assert_true(sh_zone_has_left(zones[0], large.v));
    read_all(1);
    grow = rewriting_of(&grows[1]);
    while (!zones[1]->backlog.is_held || !zones[1]->backlog.has_pieces)
        assert_false(sh_store_rewriting_step(grow));
    uint64_t rooms = backup->rooms;
    sh_backup_teller_set(zones[0], 1);
    struct sh_store_rewriting *told = rewriting_of(&retell);
    for (unsigned step = 0; step < 100; step++)
        assert_false(sh_store_rewriting_step(told));
    sh_backup_teller_set(NULL, 0);
    assert_int_equal(backup->rooms, rooms);
    while (!sh_store_rewriting_step(grow))
        continue;
    assert_int_equal(sh_store_rewriting_end(grow), SHOAL_OK);
    /* Then it is told, and the removal of it comes behind. */
    sh_backup_teller_set(zones[0], 1);
    for (unsigned step = 0; !zones[0]->backlog.is_held || !zones[0]->backlog.has_pieces; step++)
        assert_true(step < 1000 && !sh_store_rewriting_step(told));
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, 100);
    assert_int_equal(sh_zones_leftovers(backup), 0);
    while (!sh_store_rewriting_step(told))
        continue;
    assert_int_equal(sh_store_rewriting_end(told), SHOAL_OK);
    sh_backup_teller_set(NULL, 0);
    assert_ptr_equal(sh_zones_find(backup, large.v), zones[1]);
    assert_int_equal(sh_zones_leftovers(backup), 1);
}

/* While a large image of a chunk is on its way to its zone, the chunk is not evacuated from there: the image would be in a zone that has it no more. */
static void test_large_is_not_evacuated(void **state)
{
    (void)state;
    shoal_cid small = make(100);
    struct sh_evacuation *evacuation = &backup->zones.evacuation;
    const struct sh_store_rewrite grows = {.kind = SH_STORE_RESIZE, .cid = small, .size = 300000};
    backup->zones.open = zones[1];
    backup->zones.spare = NULL;
    read_all(0);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, sh_backlog_next(&zones[0]->backlog));
    struct sh_store_rewriting *grow = rewriting_of(&grows);
    while (!zones[0]->backlog.is_held || !zones[0]->backlog.has_pieces)
        assert_false(sh_store_rewriting_step(grow));
    atomic_store(&evacuation->zone, zones[0]);
    assert_true(sh_evacuation_moves(zones[0], small.v, 100));
    sh_backup_evacuator_set(true);
    assert_int_equal(sh_store_retell(store, small), SHOAL_ENOTOWNER);
    sh_backup_evacuator_set(false);
    assert_ptr_equal(sh_zones_find(backup, small.v), zones[0]);
    while (!sh_store_rewriting_step(grow))
        continue;
    assert_int_equal(sh_store_rewriting_end(grow), SHOAL_OK);
    assert_ptr_equal(sh_zones_find(backup, small.v), zones[0]);
    assert_int_equal(zones[0]->moves_away, 0);
    /* Nor does such an image begin while the chunk may just be on its way elsewhere. */
    atomic_store(&evacuation->zone, NULL);
    read_all(0);
    zones[0]->moves_away = 1;
    const struct sh_store_rewrite shrinks = {.kind = SH_STORE_RESIZE, .cid = small, .size = 280000};
    struct sh_store_rewriting *shrink = rewriting_of(&shrinks);
    for (unsigned step = 0; step < 100; step++)
        assert_false(sh_store_rewriting_step(shrink));
    assert_false(zones[0]->backlog.is_held);
    zones[0]->moves_away = 0;
    while (!sh_store_rewriting_step(shrink))
        continue;
    assert_int_equal(sh_store_rewriting_end(shrink), SHOAL_OK);
}

/* A life's numbers begin where no other one's do; zones of earlier ones, if there are any, are found as well. */
static void test_numbers(void **state)
{
    (void)state;
    static struct sh_backup bare;
    struct sh_own_zones *fresh = &bare.zones;
    struct sh_own_zone *zone;
    struct sh_zone_state found;
    const uint64_t first = UINT64_C(3) << 24;
    sh_lock_init(&fresh->lock, SH_LOCK_BACKUP);
    assert_int_equal(sh_zones_make(fresh, 3), SHOAL_OK);
    assert_int_equal(sh_zones_next(&bare), first);
    assert_int_equal(sh_zones_places(fresh), 0);
    sh_zones_end(fresh);
    backup->zones.begin = backup->zones.end = first;
    assert_int_equal(sh_zone_make(backup, first + 9, 1, &zone), SHOAL_OK);
    assert_int_equal(sh_zones_places(&backup->zones), 10);
    assert_int_equal(sh_zones_next(backup), first + 10);
    for (uint64_t from = 0; from <= first + 9; from += first) {
        assert_true(sh_backup_zone_state(backup, from, &found));
        assert_int_equal(found.number, first + 9);
    }
    assert_false(sh_backup_zone_state(backup, first + 10, &found));
    assert_int_equal(sh_zone_make(backup, 70, 1, &zone), SHOAL_OK);
    assert_int_equal(sh_zones_next(backup), first + 10);
    assert_true(sh_backup_zone_state(backup, 10, &found) && found.number == 70);
    assert_true(sh_backup_zone_state(backup, 71, &found) && found.number == first + 9);
    struct sh_own_zone *making = backup->making;
    struct sh_own_zone next = {.number = first + 10};
    backup->making = &next; /* has its number already */
    assert_int_equal(sh_zones_next(backup), first + 11);
    backup->making = making;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fresh, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moves_behind_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moves_without_a_gate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reused_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_zone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closed_hurries, setup, teardown),
        cmocka_unit_test_setup_teardown(test_undone_and_made_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_moves_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_that_left_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_is_not_evacuated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
