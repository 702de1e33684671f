/* Which replicas go that nobody needs, and which stay. */
#include "backup/keeper_case_test.h"

#define LOOK_NS (1000 * RIG_MS) /* between two looks for orphans */

/* The owners' words, by zone, and how they put them. */
static struct {
    uint8_t needs[RIG_ZONES];
    const struct rig_owner *owners[RIG_ZONES]; /* NULL: the first */
    uint64_t life;                             /* 0: the owner's */
    unsigned asked, zones;
    bool is_short, is_long;
} words;

static void on_kept(void *arg, struct sh_msg_in *in)
{
    const struct rig_owner *by = arg;
    struct sh_out out;
    size_t count = sh_reader_left(&in->payload) / 8;
    assert_true(in->is_request && count && count <= SH_REPLICATION_KEPT_MAX &&
                count * 8 == sh_reader_left(&in->payload));
    words.asked++;
    words.zones += (unsigned)count;
    size_t size = 8 + count + words.is_long - words.is_short;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, size, &out), SHOAL_OK);
    sh_put64(&out.w, words.life ? words.life : by->life);
    for (size_t i = 0; i < size - 8; i++) {
        uint64_t zone = i < count ? sh_get64(&in->payload) - rig_zone(0) : 0;
        assert_true(zone >= RIG_ZONES ||
                    by == (words.owners[zone] ? words.owners[zone] : rig.owners));
        sh_put8(&out.w, zone < RIG_ZONES ? words.needs[zone] : SH_REPLICATION_NEEDED);
    }
    sh_msg_end(in->msg, &out);
}

static int case_setup(void **state)
{
    (void)setup(state);
    memset(&words, 0, sizeof words);
    rig_stop(&rig);
    rig.orphans_ns = LOOK_NS;
    rig_start(&rig);
    for (unsigned i = 0; i < RIG_OWNERS; i++)
        sh_msg_handler_set(rig.owners[i].end.msg, SH_REPLICATION_KEPT, SH_MSG_INLINE, on_kept,
                           &rig.owners[i]);
    return 0;
}

#define CASE_TEST(name) cmocka_unit_test_setup_teardown(name, case_setup, teardown)

/* A zone that the owner has opened here, with something in it. */
static void make(unsigned zone, uint32_t incarnation)
{
    assert_int_equal(open_anew(owner, zone, incarnation, 1), SHOAL_OK);
    rig_append_begin(&append, zone, incarnation, 1, 0, SH_REPLICATION_DURABLE);
    put_image(1, 64, 7);
    send();
    rig_pass(&rig, 200 * RIG_MS);
    assert_true(told(zone)->durable == 2);
}

/* The record names another node instead of this one. */
static struct sh_zone *record_elsewhere(unsigned zone, uint32_t incarnation)
{
    struct rig_record *record = &rig.records[zone];
    record->is_there = true;
    record->zone = (struct sh_zone){.id = rig_zone(zone),
                                    .owner = owner->nid,
                                    .life = owner->life,
                                    .incarnation = incarnation,
                                    .version = incarnation,
                                    .wanted = 1,
                                    .count = 1,
                                    .backups = {{{RIG_NID + 1}, RIG_DISK + 1}}};
    words.needs[zone] = SH_REPLICATION_ELSEWHERE;
    return &record->zone;
}

/* Time for two looks at least, and for the first one to begin. */
static void looks_pass(void)
{
    for (unsigned i = 0; i < 50; i++)
        rig_pass(&rig, LOOK_NS / 10);
}

static bool is_kept(unsigned zone)
{
    return sh_replog_zone_find(rig.log, rig_zone(zone)) != NULL;
}

static void again(void)
{
    rig_stop(&rig);
    rig_start(&rig);
}

/* --- Cases ------------------------------------------------------------------------------------- */

static void test_replica_that_is_elsewhere_goes(void **state)
{
    (void)state;
    make(0, 1);
    make(1, 1);
    (void)record_elsewhere(0, 2);
    looks_pass();
    assert_true(!is_kept(0) && is_kept(1));
    assert_int_equal(status().orphans, 1);
    assert_int_equal(rig.gets, 1); /* of the one that is needed nobody asks the superpeers */
    again();
    assert_true(!is_kept(0) && is_kept(1));
    /* The owner may have it here again. */
    assert_int_equal(open_anew(owner, 0, 3, 1), SHOAL_OK);
}

/* A copy that was given up: the record has changed in nothing. */
static void test_replica_of_the_same_incarnation_goes(void **state)
{
    (void)state;
    make(0, 4);
    (void)record_elsewhere(0, 4);
    looks_pass();
    assert_false(is_kept(0));
}

/* After the backup's start nobody has opened it. */
static void test_replica_that_was_found_goes(void **state)
{
    (void)state;
    make(0, 1);
    make(1, 1);
    again();
    (void)record_elsewhere(0, 2);
    looks_pass();
    assert_true(!is_kept(0) && is_kept(1));
    again();
    assert_true(!is_kept(0) && is_kept(1));
}

/* Of several owners, each is asked about its own, and what one says is of no other's. */
static void test_each_owner_says_of_its_own(void **state)
{
    (void)state;
    make(0, 1);
    make(2, 1);
    words.owners[1] = words.owners[3] = other;
    assert_int_equal(open_anew(other, 1, 1, 1), SHOAL_OK);
    assert_int_equal(open_anew(other, 3, 1, 1), SHOAL_OK);
    (void)record_elsewhere(0, 2);
    record_elsewhere(3, 2)->owner = other->nid;
    rig.records[3].zone.life = other->life;
    looks_pass();
    assert_true(!is_kept(0) && is_kept(1) && is_kept(2) && !is_kept(3));
    assert_int_equal(status().orphans, 2);
}

static void test_replica_of_a_dropped_zone_goes(void **state)
{
    (void)state;
    make(0, 1);
    make(1, 1);
    words.needs[0] = words.needs[1] = SH_REPLICATION_DROPPED;
    (void)record_elsewhere(1, 2);
    words.needs[1] = SH_REPLICATION_DROPPED; /* and its record came back */
    looks_pass();
    assert_true(!is_kept(0) && is_kept(1));
}

/* The owner's word alone is not enough: the record says otherwise, or nothing. */
static void test_record_that_does_not_agree_keeps_it(void **state)
{
    (void)state;
    for (unsigned zone = 0; zone < RIG_ZONES - 1; zone++) {
        make(zone, 3);
        (void)record_elsewhere(zone, 4);
    }
    rig.records[0].is_there = false;
    rig.records[1].is_silent = true;
    rig.records[2].zone.backups[0].nid.v = RIG_NID;
    rig.records[3].zone.backups[0].disk = RIG_DISK;
    rig.records[4].zone.flags = SH_ZONE_OLD;
    rig.records[5].zone.incarnation = 2;
    rig.records[6].zone.life++;
    looks_pass();
    for (unsigned zone = 0; zone < RIG_ZONES - 1; zone++)
        assert_true(is_kept(zone));
    assert_true(rig.gets >= 2 * (RIG_ZONES - 1)); /* and it is asked again */
    rig.records[6].zone.life--;
    rig.records[6].zone.owner.v++;
    looks_pass();
    assert_true(is_kept(6));
    rig.records[6].zone.owner.v--;
    rig.records[1].is_silent = false;
    looks_pass();
    assert_true(!is_kept(1) && !is_kept(6));
    assert_int_equal(status().orphans, 2);
}

/* Nor is the record, without the owner's word. */
static void test_owner_that_needs_it_keeps_it(void **state)
{
    (void)state;
    make(0, 1);
    (void)record_elsewhere(0, 2);
    words.needs[0] = SH_REPLICATION_NEEDED;
    make(1, 1); /* it has no record, and may be lost */
    looks_pass();
    assert_true(is_kept(0) && is_kept(1));
    assert_true(words.asked >= 2 && !rig.gets);
}

/* An answer of the owner that is not clear counts for nothing. */
static void test_malformed_word_keeps_it(void **state)
{
    (void)state;
    make(0, 1);
    make(1, 1);
    (void)record_elsewhere(0, 2);
    (void)record_elsewhere(1, 2);
    words.is_short = true;
    looks_pass();
    words.is_short = false;
    words.is_long = true;
    looks_pass();
    words.is_long = false;
    words.needs[1] = SH_REPLICATION_NEEDS;
    looks_pass();
    assert_true(is_kept(0) && is_kept(1) && !rig.gets);
}

/* A replica of a failed owner may be all that is left of its chunks. */
static void test_replica_of_a_failed_owner_stays(void **state)
{
    (void)state;
    make(0, 1);
    (void)record_elsewhere(0, 2);
    rig.is_over[0] = true;
    looks_pass();
    assert_int_equal(words.asked, 0);
    again(); /* and it forgets whose life it was */
    looks_pass();
    assert_true(is_kept(0) && words.asked > 0);
    rig.is_over[0] = false;
    words.life = owner->life + 1; /* one that no view has */
    rig.records[0].zone.life++;
    looks_pass();
    assert_true(is_kept(0));
}

static void test_owner_that_is_away_keeps_it(void **state)
{
    (void)state;
    make(0, 1);
    (void)record_elsewhere(0, 2);
    rig_cut(&rig, owner);
    looks_pass();
    assert_true(is_kept(0) && !words.asked);
}

/* The owner opens the zone again while the superpeers are asked: what was true when they were is not any more. */
static void opened_meanwhile(unsigned zone, bool is_found)
{
    struct sh_replication_opened opened;
    struct sh_replication_open open = rig_open_of(owner, zone, 3, 1);
    make(zone, 2);
    if (is_found)
        again();
    (void)record_elsewhere(zone, 3);
    rig.are_held = true;
    looks_pass();
    assert_non_null(rig.asked);
    open.flags = SH_REPLICATION_ANEW;
    assert_int_equal(rig_zone_open(owner, &open, &opened), SHOAL_OK);
    words.needs[zone] = SH_REPLICATION_NEEDED;
    rig.are_held = false;
    looks_pass();
    assert_true(is_kept(zone) && !status().orphans);
    assert_int_equal(status().open, 1);
}

static void test_replica_that_is_opened_meanwhile_stays(void **state)
{
    (void)state;
    opened_meanwhile(0, false);
}

static void test_replica_that_is_found_and_opened_meanwhile_stays(void **state)
{
    (void)state;
    opened_meanwhile(0, true);
}

/* Nobody is asked about a stream that brings something. */
static void test_replica_that_is_written_to_is_not_asked_about(void **state)
{
    (void)state;
    make(0, 1);
    for (unsigned i = 0; i < 50; i++) {
        rig_pass(&rig, LOOK_NS / 10);
        send_images(0, 2 + i, 1, SH_REPLICATION_NONE);
    }
    assert_int_equal(words.asked, 0);
    looks_pass();
    assert_true(words.asked > 0 && is_kept(0));
}

/* The process ends while it asks. */
static void test_end_while_asking(void **state)
{
    (void)state;
    make(0, 1);
    (void)record_elsewhere(0, 2);
    rig.are_held = true;
    looks_pass();
    assert_non_null(rig.asked);
    again();
    assert_true(is_kept(0));
    rig.are_held = false;
    looks_pass();
    assert_false(is_kept(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE_TEST(test_replica_that_is_elsewhere_goes),
        CASE_TEST(test_replica_of_the_same_incarnation_goes),
        CASE_TEST(test_replica_that_was_found_goes),
        CASE_TEST(test_each_owner_says_of_its_own),
        CASE_TEST(test_replica_of_a_dropped_zone_goes),
        CASE_TEST(test_record_that_does_not_agree_keeps_it),
        CASE_TEST(test_owner_that_needs_it_keeps_it),
        CASE_TEST(test_malformed_word_keeps_it),
        CASE_TEST(test_replica_of_a_failed_owner_stays),
        CASE_TEST(test_owner_that_is_away_keeps_it),
        CASE_TEST(test_replica_that_is_opened_meanwhile_stays),
        CASE_TEST(test_replica_that_is_found_and_opened_meanwhile_stays),
        CASE_TEST(test_replica_that_is_written_to_is_not_asked_about),
        CASE_TEST(test_end_while_asking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
