/* Who may have a replica kept, where its stream goes on, and where it begins anew. */
#include "backup/keeper_case_test.h"

/* --- Who may ----------------------------------------------------------------------------------- */

static void test_lives(void **state)
{
    (void)state;
    struct sh_replication_opened opened;
    struct sh_replication_open open = rig_open_of(owner, 0, 3, 1);
    struct rig_answer answer;
    rig.has_view = false;
    rig_open_ask(owner, &open, &answer);
    rig_settle(&rig);
    assert_int_equal(answer.err, SHOAL_EBUSY);
    rig.has_view = true;
    open.life = owner->life + 1; /* not heard of yet */
    rig_open_ask(owner, &open, &answer);
    rig_settle(&rig);
    assert_int_equal(answer.err, SHOAL_EBUSY);
    open.life = owner->life - 1;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EFENCED);
    open.life = owner->life;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_OK);
    assert_int_equal(status().open, 1);
    /* Another one with the same incarnation, and an older one. */
    open.life = other->life;
    assert_int_equal(rig_zone_open(other, &open, &opened), SHOAL_EFENCED);
    open.incarnation = 2;
    assert_int_equal(rig_zone_open(other, &open, &opened), SHOAL_EFENCED);
    assert_int_equal(rig_zone_close(other, 0, 3), SHOAL_EFENCED);
    open.life = owner->life;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EFENCED);
    assert_int_equal(rig_zone_close(owner, 0, 2), SHOAL_EFENCED);
    /* The next life of the same node needs a higher incarnation, too. */
    owner->life++;
    open.life = owner->life;
    open.incarnation = 3;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EFENCED);
    open.incarnation = 4;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_OK);
}

static void test_a_life_that_is_over_appends_nothing(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 2, SH_REPLICATION_ACK);
    rig.is_over[0] = true;
    sh_keeper_view_changed(rig.keeper);
    rig_settle(&rig);
    assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
    send_images(0, 3, 2, SH_REPLICATION_ACK);
    assert_int_equal(status().entries, 2);
    struct sh_replication_open open = rig_open_of(owner, 0, 1, 1);
    struct sh_replication_opened opened;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EFENCED);
    open.incarnation = 9;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EFENCED);
    assert_int_equal(rig_zone_close(owner, 0, 9), SHOAL_EFENCED);
    /* Nor after the backup has started again. */
    rig_stop(&rig);
    rig_start(&rig);
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EFENCED);
}

/* Another node takes the zone over, in the middle of a chunk. */
static void test_another_owner_goes_on(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 4, SH_REPLICATION_ACK);
    begin(0, 5, 0, SH_REPLICATION_ACK);
    put_piece(100, 0, 4, 500, 1);
    put_piece(100, 1, 4, 500, 1);
    send();
    assert_true(told(0)->next == 5 && told(0)->part == 2);
    struct sh_replication_open open = rig_open_of(other, 0, 2, 5);
    open.since = 2;
    open.begun = 4; /* it has found less: what the replica has beyond was never acknowledged */
    uint64_t next;
    uint32_t part;
    assert_int_equal(open_on(&open, other, &next, &part), SHOAL_EDIFFERS);
    open.begun = open.first = 6; /* it has found more */
    assert_int_equal(open_on(&open, other, &next, &part), SHOAL_EDIFFERS);
    open.begun = open.first = 5;
    assert_int_equal(open_on(&open, other, &next, &part), SHOAL_OK);
    assert_true(next == 5 && part == 0);
    for (unsigned i = 0; other->told[0].last.next < 6; i++) {
        assert_true(i < 20);
        rig_append_begin(&append, 0, 2, 5, 0, SH_REPLICATION_DURABLE);
        put_image(100, 700, 7);
        rig_append_send(other, &append);
        rig_settle(&rig);
        rig_pass(&rig, 70 * RIG_MS);
    }
    /* The same life may say so again, though the replica has more by now. */
    open.first = 5;
    assert_int_equal(open_on(&open, other, &next, &part), SHOAL_OK);
    assert_int_equal(next, 6);
    const struct found *found = read_back(0);
    assert_int_equal(found->end, 6);
    assert_int_equal(found->sizes[101], 700);
    assert_int_equal(found->stamps[101], 7);
}

/* --- Restarts ---------------------------------------------------------------------------------- */

static void test_a_backup_starts_again(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    assert_int_equal(open_anew(owner, 0, 2, 1), SHOAL_OK);
    rig_append_begin(&append, 0, 2, 1, 0, SH_REPLICATION_DURABLE);
    put_image(1, 64, 1);
    put_image(2, 64, 2);
    send();
    rig_append_begin(&append, 0, 2, 3, 0, SH_REPLICATION_ACK); /* which is lost */
    put_image(3, 64, 3);
    put_piece(100, 0, 4, 500, 1);
    send();
    assert_true(told(0)->next == 4 && told(0)->part == 1);
    rig_stop(&rig);
    rig_start(&rig);
    struct sh_replication_open open = rig_open_of(owner, 0, 1, 1);
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_EFENCED);
    open.incarnation = 2;
    struct rig_answer answer;
    rig_open_ask(owner, &open, &answer); /* loads */
    rig_settle(&rig);
    assert_int_equal(answer.err, SHOAL_EBUSY);
    open.first = 4; /* what the backup has lost has left the backlog */
    open.first_part = 1;
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_EDIFFERS);
    open.first = 3;
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_EDIFFERS);
    open.first_part = 0;
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_OK);
    assert_true(next == 3 && part == 0);
    rig_append_begin(&append, 0, 2, 3, 0, SH_REPLICATION_DURABLE);
    put_image(4, 64, 4);
    send();
    assert_int_equal(told(0)->next, 4);
    const struct found *found = read_back(0);
    assert_true(found->end == 4 && found->count == 3);
    assert_true(found->stamps[2] == 1 && found->stamps[3] == 2 && found->stamps[5] == 4);
}

/* After a start the log says which incarnation wrote what. */
static void test_an_owner_that_found_less(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 4, SH_REPLICATION_DURABLE);
    rig_stop(&rig);
    rig_start(&rig);
    owner->life++;
    struct sh_replication_open open = rig_open_of(owner, 0, 2, 4);
    open.since = 2;
    open.begun = 4;
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_EDIFFERS);
    open.flags = SH_REPLICATION_ANEW;
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_OK);
    assert_int_equal(next, 4);
    rig_append_begin(&append, 0, 2, 4, 0, SH_REPLICATION_DURABLE);
    put_image(7, 64, 7);
    send();
    const struct found *found = read_back(0);
    assert_true(found->end == 5 && found->count == 1 && found->stamps[8] == 7);
    /* It wrote that itself. */
    open.flags = 0;
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_OK);
    assert_int_equal(next, 5);
}

/* --- Anew -------------------------------------------------------------------------------------- */

static void test_anew(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    struct sh_replication_open on = rig_open_of(owner, 0, 1, 100);
    assert_int_equal(open_on(&on, owner, &next, &part), SHOAL_EDIFFERS); /* nothing is there */
    on.first = 1;
    on.first_part = 1;
    assert_int_equal(open_on(&on, owner, &next, &part), SHOAL_EDIFFERS);
    assert_int_equal(status().zones, 0);
    assert_int_equal(open_anew(owner, 0, 1, 100), SHOAL_OK);
    assert_int_equal(open_anew(owner, 0, 1, 100), SHOAL_OK); /* repeated */
    assert_int_equal(open_anew(owner, 0, 1, 99), SHOAL_EEXIST);
    send_images(0, 100, 5, SH_REPLICATION_DURABLE);
    assert_int_equal(open_anew(owner, 0, 1, 100), SHOAL_EEXIST);
    assert_int_equal(open_anew(owner, 0, 2, 50), SHOAL_OK);
    assert_int_equal(open_anew(owner, 0, 2, 50), SHOAL_OK);
    rig_append_begin(&append, 0, 2, 50, 0, SH_REPLICATION_DURABLE);
    put_image(7, 64, 7);
    send();
    const struct found *found = read_back(0);
    assert_true(found->end == 51 && found->count == 1 && found->stamps[8] == 7);
    /* From the disk, not loaded. */
    assert_int_equal(open_anew(owner, 0, 1, 60), SHOAL_EFENCED);
    assert_int_equal(open_anew(owner, 0, 2, 60), SHOAL_EEXIST);
    assert_int_equal(open_anew(owner, 0, 3, 60), SHOAL_OK);
    /* One of which the owner still has everything may begin without being told so. */
    on = rig_open_of(owner, 1, 1, 1);
    assert_int_equal(open_on(&on, owner, &next, &part), SHOAL_OK);
    assert_true(next == 1 && part == 0);
}

static void test_close(void **state)
{
    (void)state;
    assert_int_equal(rig_zone_close(owner, 0, 1), SHOAL_OK); /* nothing is there */
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 3, SH_REPLICATION_DURABLE);
    assert_int_equal(rig_zone_close(owner, 0, 1), SHOAL_OK);
    assert_null(sh_replog_zone_find(rig.log, rig_zone(0)));
    assert_int_equal(status().zones, 0);
    assert_int_equal(rig_zone_close(owner, 0, 1), SHOAL_OK);
    send_images(0, 4, 1, SH_REPLICATION_NONE);
    assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
    /* While it is dropped, another one that asks is put off. */
    assert_int_equal(open_anew(owner, 0, 2, 1), SHOAL_OK);
    rig_append_begin(&append, 0, 2, 1, 0, SH_REPLICATION_DURABLE);
    put_image(7, 64, 7);
    send();
    rig.is_stalled = true;
    struct rig_answer answer;
    struct sh_replication_open open = rig_open_of(owner, 0, 3, 1);
    open.flags = SH_REPLICATION_ANEW;
    rig_open_ask(owner, &open, &answer);
    rig_settle(&rig);
    assert_int_equal(answer.err, SHOAL_EBUSY);
    uint8_t bytes[SH_REPLICATION_CLOSE_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_replication_close_put(&w, &(struct sh_replication_close){rig_zone(0), 3, owner->life});
    struct rig_answer closes[2];
    for (unsigned i = 0; i < 2; i++)
        rig_ask(owner, SH_REPLICATION_CLOSE, sh_bytes_make(bytes, sizeof bytes), &closes[i]);
    rig_settle(&rig);
    assert_true(!closes[0].is_over && closes[1].is_over && closes[1].err == SHOAL_EBUSY);
    rig.is_stalled = false;
    rig_settle(&rig);
    assert_true(closes[0].is_over && !closes[0].err);
    /* From the disk. */
    assert_int_equal(open_anew(owner, 0, 4, 1), SHOAL_OK);
    rig_append_begin(&append, 0, 4, 1, 0, SH_REPLICATION_DURABLE);
    put_image(7, 64, 7);
    send();
    (void)read_back(0);
    assert_int_equal(rig_zone_close(owner, 0, 3), SHOAL_EFENCED);
    assert_int_equal(rig_zone_close(owner, 0, 4), SHOAL_OK);
    assert_null(sh_replog_zone_find(rig.log, rig_zone(0)));
}

/* --- The log and the disk ---------------------------------------------------------------------- */

static void test_zones_of_its_own(void **state)
{
    (void)state;
    const struct sh_replog_zone_config own = {
        .id = rig_zone(2), .owner = RIG_NID, .incarnation = 1, .first = 1, .bytes_max = 1 << 20};
    struct sh_replog_zone *zone;
    assert_int_equal(sh_replog_zone_add(rig.log, &own, &zone), SHOAL_OK);
    assert_int_equal(open_anew(owner, 2, 9, 1), SHOAL_EEXIST);
    assert_int_equal(rig_zone_close(owner, 2, 9), SHOAL_EEXIST);
    const struct sh_replog_write write = {
        .local_id = 1, .creator = RIG_NID, .pieces = 1, .payload = {image_bytes, 60000}};
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sh_replog_append(zone, &write), SHOAL_OK);
    rig_pass(&rig, 200 * RIG_MS);
    assert_true(rig.not_ours > 0);
    assert_true(sh_replog_zone_known(zone).has_slots);
    assert_int_equal(open_anew(owner, 2, 9, 1), SHOAL_EEXIST);
    assert_ptr_equal(sh_replog_zone_find(rig.log, rig_zone(2)), zone);
    assert_int_equal(sh_replog_next(zone), 4);
}

static void test_limits(void **state)
{
    (void)state;
    for (unsigned zone = 0; zone < RIG_ZONES; zone++)
        assert_int_equal(open_anew(owner, zone, 1, 1),
                         zone < RIG_ZONES - 1 ? SHOAL_OK : SHOAL_ENOSPC);
    assert_int_equal(rig_zone_close(owner, 3, 1), SHOAL_OK);
    struct sh_replication_open open = rig_open_of(owner, 7, 1, 1);
    struct sh_replication_opened opened;
    open.bytes_max = UINT64_C(1) << 40;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_ENOSPC);
    open.bytes_max = 5 << 20;
    open.range_count = 1 << 20; /* more chunks than that has */
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EPROTO);
    open.range_count = 10;
    open.range_first = UINT64_MAX - 5;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_EPROTO);
    assert_int_equal(open_anew(owner, 7, 1, 1), SHOAL_OK);
}

static struct sh_replication_space space(void)
{
    struct sh_replication_space told_space;
    struct rig_answer answer;
    rig_ask(owner, SH_REPLICATION_SPACE, sh_bytes_make("", 0), &answer);
    rig_settle(&rig);
    assert_int_equal(answer.err, SHOAL_OK);
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer.bytes, answer.size));
    assert_true(sh_replication_space_get(&r, &told_space));
    return told_space;
}

static void test_space(void **state)
{
    (void)state;
    uint64_t slot = rig.logged.slot_bytes;
    struct sh_replication_space before = space(), after;
    assert_true(before.keeps && before.disk == RIG_DISK && before.zones == 0);
    assert_int_equal(before.zones_max, RIG_ZONES - 1);
    assert_int_equal(before.disk_bytes, rig.logged.slots * slot);
    assert_int_equal(before.disk_free_bytes, (rig.logged.slots - SH_REPLOG_SPARE_SLOTS) * slot);
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    after = space();
    assert_int_equal(after.zones, 1);
    assert_int_equal(before.disk_free_bytes - after.disk_free_bytes,
                     sh_replog_slots_for((uint32_t)slot, 5 << 20) * slot);
    begin(0, 1, 0, SH_REPLICATION_DURABLE); /* what it gets is promised already */
    put_image(1, 60000, 1);
    send();
    assert_int_equal(space().disk_free_bytes, after.disk_free_bytes);
}

static enum shoal_err small_space(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out)
{
    (void)disk;
    *bytes_out = 20 << 20;
    *free_out = 12 << 20;
    return SHOAL_OK;
}

/* The log may grow to more than its disk has: what counts is the disk, of which a part stays free. */
static void test_space_of_a_small_disk(void **state)
{
    (void)state;
    static const struct sh_disk_ops ops = {.space = small_space};
    struct sh_disk small = {.ops = &ops};
    rig_stop(&rig);
    rig_start(&rig);
    sh_keeper_destroy(rig.keeper);
    struct sh_keeper_config config = rig_keeper_config(&rig);
    config.disk = &small;
    config.zones_max = 1;
    assert_int_equal(sh_keeper_create(&config, &rig.keeper), SHOAL_OK);
    assert_true((uint64_t)rig.logged.slots * rig.logged.slot_bytes > 20 << 20);
    assert_int_equal(space().disk_bytes, 20 << 20);
    assert_int_equal(space().disk_free_bytes, 12 << 20);
}

/* Its log is being opened, and it does not say yet what room it has. */
static void test_a_node_that_keeps_none_yet(void **state)
{
    struct rig_answer answer;
    (void)state;
    rig_stop(&rig);
    struct sh_keeper_config config = rig_keeper_config(&rig);
    config.log = NULL;
    config.disk_id = 0;
    config.zones_max = 1;
    assert_int_equal(sh_keeper_create(&config, &rig.keeper), SHOAL_OK);
    rig_ask(owner, SH_REPLICATION_SPACE, sh_bytes_make("", 0), &answer);
    rig_settle(&rig);
    assert_int_equal(answer.err, SHOAL_EAGAIN);
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_ENONODE);
    assert_int_equal(rig_zone_close(owner, 0, 1), SHOAL_OK);
    send_images(0, 1, 1, SH_REPLICATION_NONE);
    assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
    sh_keeper_destroy(rig.keeper);
    rig.keeper = NULL;
    rig_start(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_lives),
        TEST(test_a_life_that_is_over_appends_nothing),
        TEST(test_another_owner_goes_on),
        TEST(test_a_backup_starts_again),
        TEST(test_an_owner_that_found_less),
        TEST(test_anew),
        TEST(test_close),
        TEST(test_zones_of_its_own),
        TEST(test_limits),
        TEST(test_space),
        TEST(test_space_of_a_small_disk),
        TEST(test_a_node_that_keeps_none_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
