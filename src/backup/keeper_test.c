/* The keeper takes streams, and tells their owners. Random streams are in keeper_model_test.c. */
#include "backup/keeper_case_test.h"

/* --- Streams ----------------------------------------------------------------------------------- */

static void test_each_kind_of_entry(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    begin(0, 1, 0, SH_REPLICATION_DURABLE);
    put_image(1, 64, 11);
    put(&(struct sh_replication_entry){
        .kind = SH_REPLICATION_ZEROS, .chunk = rig_chunk(2), .size = 100, .pieces = 1});
    put_image(3, 64, 13);
    put(&(struct sh_replication_entry){
        .kind = SH_REPLICATION_REMOVAL, .chunk = rig_chunk(3), .pieces = 1});
    put(&(struct sh_replication_entry){
        .chunk = rig_chunk(4),
        .size = 16,
        .with_next = true,
        .pieces = 1,
        .bytes = {(const uint8_t *)"\4\4\4\4\4\4\4\4\4\4\4\4\4\4\4\4", 16}});
    put_image(5, 70, 15);
    for (uint16_t piece = 0; piece < 3; piece++)
        put_piece(6, piece, 3, 1000, 16);
    put(&(struct sh_replication_entry){
        .kind = SH_REPLICATION_ZEROS, .chunk = rig_chunk(7), .size = 0, .pieces = 1});
    put(&(struct sh_replication_entry){.chunk = rig_chunk(8), .pieces = 1});
    send();
    assert_int_equal(told(0)->next, 9);
    assert_int_equal(told(0)->part, 0);
    assert_int_equal(told(0)->durable, 9);
    assert_int_equal(told(0)->state, SH_REPLICATION_GOES_ON);
    const struct sh_keeper_status now = status();
    assert_int_equal(now.entries, 11);
    assert_int_equal(now.bytes, 64 + 64 + 16 + 70 + 3000);
    assert_int_equal(now.messages, 1);
    const struct found *found = read_back(0);
    assert_int_equal(found->end, 9);
    assert_int_equal(found->count, 7);
    const uint32_t sizes[] = {0, 0, 64, 100, 0, 16, 70, 3000};
    const uint8_t stamps[] = {0, 0, 11, 0, 0, 4, 15, 16};
    for (unsigned i = 0; i < 8; i++)
        assert_true(found->sizes[i] == sizes[i] && found->stamps[i] == stamps[i]);
    assert_int_equal(rig.not_ours, 0);
}

static void test_what_is_there_is_passed_over(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 5), SHOAL_OK);
    send_images(0, 5, 10, SH_REPLICATION_ACK);
    assert_int_equal(told(0)->next, 15);
    send_images(0, 5, 10, SH_REPLICATION_ACK);
    send_images(0, 10, 10, SH_REPLICATION_ACK);
    assert_int_equal(told(0)->next, 20);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_GOES_ON], owner->told[0].count);
    assert_int_equal(status().entries, 15);
    assert_int_equal(status().passed_over, 15);
}

static void test_a_gap_is_asked_for_once(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 3, SH_REPLICATION_ACK);
    for (unsigned i = 0; i < 4; i++)
        send_images(0, 5 + 2 * i, 2, SH_REPLICATION_ACK);
    assert_int_equal(told(0)->state, SH_REPLICATION_AGAIN);
    assert_int_equal(told(0)->next, 4);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 1);
    assert_int_equal(status().gaps, 1);
    send_images(0, 4, 3, SH_REPLICATION_ACK);
    assert_int_equal(told(0)->state, SH_REPLICATION_GOES_ON);
    assert_int_equal(told(0)->next, 7);
    send_images(0, 8, 1, SH_REPLICATION_ACK);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 2);
}

/* --- Chunks in pieces -------------------------------------------------------------------------- */

static void test_pieces_go_over_messages(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 1, SH_REPLICATION_ACK);
    begin(0, 2, 0, SH_REPLICATION_ACK);
    put_piece(100, 0, 4, 500, 1);
    put_piece(100, 1, 4, 500, 1);
    send();
    assert_true(told(0)->next == 2 && told(0)->part == 2);
    begin(0, 2, 3, SH_REPLICATION_ACK); /* one is missing */
    put_piece(100, 3, 4, 500, 1);
    send();
    assert_true(told(0)->next == 2 && told(0)->part == 2);
    assert_int_equal(told(0)->state, SH_REPLICATION_AGAIN);
    begin(0, 2, 1, SH_REPLICATION_DURABLE); /* one is there */
    for (uint16_t piece = 1; piece < 4; piece++)
        put_piece(100, piece, 4, 500, 1);
    put_image(101, 64, 2);
    send();
    assert_true(told(0)->next == 4 && told(0)->part == 0);
    assert_int_equal(status().passed_over, 1);
    const struct found *found = read_back(0);
    assert_int_equal(found->sizes[101], 2000);
    assert_int_equal(found->stamps[101], 1);
}

/* Pieces that were abandoned, and those of the next attempt, are told apart by their place. */
static void test_abandoned_pieces(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    begin(0, 1, 0, SH_REPLICATION_ACK);
    put_piece(100, 0, 4, 500, 1);
    put_piece(100, 1, 4, 500, 1);
    put_abandon();
    send();
    assert_true(told(0)->next == 1 && told(0)->part == 3);
    /* The log ends an epoch first: the owner is asked again. */
    for (unsigned i = 0; told(0)->next == 1 && i < 20; i++) {
        begin(0, 1, 3, SH_REPLICATION_DURABLE);
        put_piece(100, 0, 3, 500, 2);
        put_piece(100, 1, 3, 500, 2);
        put_piece(100, 2, 3, 500, 2);
        send();
        rig_pass(&rig, 70 * RIG_MS);
    }
    assert_true(told(0)->next == 2 && told(0)->part == 0);
    begin(0, 1, 0, SH_REPLICATION_ACK); /* all of it once more */
    put_piece(100, 0, 4, 500, 1);
    put_piece(100, 1, 4, 500, 1);
    put_abandon();
    put_piece(100, 0, 3, 500, 2);
    put_piece(100, 1, 3, 500, 2);
    put_piece(100, 2, 3, 500, 2);
    put_image(101, 64, 3);
    send();
    rig_pass(&rig, 1000 * RIG_MS);
    assert_int_equal(told(0)->next, 3);
    const struct found *found = read_back(0);
    assert_int_equal(found->sizes[101], 1500);
    assert_int_equal(found->stamps[101], 2);
}

/* --- What can't be ----------------------------------------------------------------------------- */

/* An image, and what can't follow it. */
static void put_malformed(unsigned i)
{
    const struct sh_replication_entry with = {.with_next = true,
                                              .chunk = rig_chunk(500),
                                              .size = 16,
                                              .pieces = 1,
                                              .bytes = {image_bytes, 16}};
    put_image(i, 64, 1);
    switch (i) {
    case 0:
        sh_put8(&append.w, 0);
        break;
    case 1:
        put_piece(100, 1, 4, 500, 1); /* not the first one */
        break;
    case 2:
        put(&with); /* with nothing */
        break;
    case 3:
        put(&with);
        put_abandon();
        break;
    case 4:
        put(&with);
        put(&with);
        break;
    case 5:
        put(&with);
        put_image(500, 64, 1); /* the same chunk */
        break;
    case 6:
        put(&with);
        put_piece(100, 1, 4, 500, 1);
        break;
    default: /* more than the pieces are together */
        put(&(struct sh_replication_entry){.chunk = rig_chunk(1),
                                           .size = 99,
                                           .piece = 0,
                                           .pieces = 2,
                                           .total = 100,
                                           .bytes = {image_bytes, 99}});
        put_piece(1, 1, 2, 50, 1);
        break;
    }
}

static void test_malformed_entries(void **state)
{
    (void)state;
    const struct sh_replication_open on = rig_open_of(owner, 0, 1, 1);
    uint64_t next;
    uint32_t part;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(open_on(&on, owner, &next, &part), SHOAL_OK);
        assert_int_equal(next, i + 1);
        begin(0, i + 1, 0, SH_REPLICATION_ACK);
        put_malformed(i);
        send();
        assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
        assert_int_equal(status().malformed, i + 1);
        assert_int_equal(told(0)->next, i + 2);       /* the image was taken */
        send_images(0, i + 2, 1, SH_REPLICATION_ACK); /* not before OPEN */
        assert_int_equal(told(0)->next, i + 2);
    }
    assert_int_equal(told(0)->part, 1); /* half a chunk */
    assert_int_equal(status().lost, 0);
}

static void test_a_message_that_is_too_large(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    begin(0, 1, 0, SH_REPLICATION_ACK);
    for (unsigned i = 0; i < 3; i++)
        put_image(i, 22 << 10, 1);
    assert_true(rig_append_size(&append) > SH_REPLICATION_BYTES_MAX);
    send();
    assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
    assert_int_equal(status().entries, 0);
    assert_int_equal(status().malformed, 1);
    append.w = sh_writer_make(append.bytes, SH_REPLICATION_APPEND_BYTES - 1);
    (void)sh_writer_take(&append.w,
                         SH_REPLICATION_APPEND_BYTES - 1); /* nor one that is cut short */
    send();
    assert_int_equal(status().malformed, 2);
}

static void test_malformed_twice_is_lost(void **state)
{
    (void)state;
    struct sh_replication_open on = rig_open_of(owner, 0, 1, 1);
    uint64_t next;
    uint32_t part;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    for (unsigned i = 0; i < 2; i++) {
        begin(0, 1, 0, SH_REPLICATION_ACK);
        sh_put8(&append.w, 9);
        send();
        assert_int_equal(told(0)->state, i ? SH_REPLICATION_LOST : SH_REPLICATION_GONE);
        assert_int_equal(open_on(&on, owner, &next, &part), i ? SHOAL_EPROTO : SHOAL_OK);
    }
    assert_int_equal(status().lost, 1);
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_EEXIST);
    assert_int_equal(open_anew(owner, 0, 2, 1), SHOAL_OK); /* anew */
}

/* A stream that is over is not asked for once more, though a gap was found just before: the owner would send what nobody takes. */
static void test_malformed_after_a_gap(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    begin(0, 3, 0, SH_REPLICATION_NONE); /* 1 and 2 are missing */
    put_image(1, 64, 1);
    rig_append_send(owner, &append);
    begin(0, 1, 0, SH_REPLICATION_NONE);
    put_malformed(0);
    send();
    assert_true(status().gaps == 1 && status().malformed == 1);
    assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 0);
}

static void test_a_zone_that_is_not_open(void **state)
{
    (void)state;
    send_images(3, 1, 1, SH_REPLICATION_NONE);
    assert_int_equal(told(3)->state, SH_REPLICATION_GONE);
    assert_int_equal(open_anew(owner, 0, 2, 1), SHOAL_OK);
    send_images(0, 1, 1, SH_REPLICATION_NONE); /* incarnation 1 */
    assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
    assert_int_equal(told(0)->incarnation, 1);
    rig_append_begin(&append, 0, 2, 1, 0, SH_REPLICATION_NONE); /* not its owner */
    put_image(1, 64, 1);
    rig_append_send(other, &append);
    rig_settle(&rig);
    assert_int_equal(other->told[0].last.state, SH_REPLICATION_GONE);
    assert_int_equal(status().entries, 0);
    assert_int_equal(status().refused, 3);
}

/* --- ACKs -------------------------------------------------------------------------------------- */

static void test_when_acks_go(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 1, SH_REPLICATION_NONE);
    assert_int_equal(owner->told[0].count, 0);
    rig_pass(&rig, RIG_MS);
    assert_int_equal(owner->told[0].count, 0);
    assert_int_equal(sh_keeper_due_ns(rig.keeper), rig_now(&rig) + RIG_MS);
    rig_pass(&rig, RIG_MS);
    assert_int_equal(owner->told[0].count, 1);
    assert_true(told(0)->next == 2 && told(0)->durable == 1);
    assert_true(sh_keeper_due_ns(rig.keeper) == UINT64_MAX);
    rig_pass(&rig, 100 * RIG_MS); /* the log's own sync is told, too */
    rig_pass(&rig, 2 * RIG_MS);
    assert_true(told(0)->next == 2 && told(0)->durable == 2);
    send_images(0, 2, 1, SH_REPLICATION_ACK);
    assert_true(told(0)->next == 3 && told(0)->durable == 2);
    send_images(0, 3, 1, SH_REPLICATION_DURABLE);
    assert_true(told(0)->next == 4 && told(0)->durable == 4);
    unsigned before = owner->told[0].count;
    send_images(0, 3, 1, SH_REPLICATION_DURABLE); /* that is there already */
    assert_int_equal(owner->told[0].count, before + 1);
    before++;
    for (unsigned i = 0; i < 3; i++) { /* half of the credit */
        assert_int_equal(owner->told[0].count, before);
        begin(0, 4 + 2 * i, 0, SH_REPLICATION_NONE);
        put_image(4 + 2 * i, 32000, 1);
        put_image(5 + 2 * i, 32000, 1);
        send();
    }
    assert_int_equal(owner->told[0].count, before + 1);
}

static void test_acks_share_messages(void **state)
{
    (void)state;
    for (unsigned zone = 0; zone < 5; zone++)
        assert_int_equal(open_anew(owner, zone, 1, 1), SHOAL_OK);
    for (unsigned zone = 0; zone < 5; zone++)
        send_images(zone, 1, 2, zone < 4 ? SH_REPLICATION_NONE : SH_REPLICATION_ACK);
    assert_int_equal(owner->messages, 1);
    for (unsigned zone = 0; zone < 5; zone++)
        assert_true(owner->told[zone].count == 1 && told(zone)->next == 3);
    assert_int_equal(status().acks, 5);
    assert_int_equal(status().ack_messages, 1);
}

static void test_a_lost_connection_drops_acks(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    send_images(0, 1, 2, SH_REPLICATION_NONE);
    rig_cut(&rig, owner);
    rig_pass(&rig, 10 * RIG_MS);
    assert_int_equal(owner->told[0].count, 0);
    const struct sh_replication_open on = rig_open_of(owner, 0, 1, 1);
    assert_int_equal(open_on(&on, owner, &next, &part), SHOAL_OK);
    assert_true(next == 3 && part == 0);
    send_images(0, 3, 1, SH_REPLICATION_ACK);
    assert_int_equal(told(0)->next, 4);
}

/* --- No room ----------------------------------------------------------------------------------- */

static void test_full(void **state)
{
    (void)state;
    uint64_t number = 1;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    rig.is_stalled = true;
    for (; !owner->told[0].of_state[SH_REPLICATION_FULL]; number++) {
        assert_true(number < 100);
        begin(0, number, 0, SH_REPLICATION_ACK);
        put_image((unsigned)number % 50, 60000, (uint8_t)number);
        send();
    }
    uint64_t next = told(0)->next;
    assert_int_equal(next, number - 1);
    /* It is asked for again soon, and then not before the log has got on. */
    while (owner->told[0].of_state[SH_REPLICATION_FULL] < 5) {
        unsigned agains = owner->told[0].of_state[SH_REPLICATION_AGAIN];
        rig_pass(&rig, RIG_MS);
        assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], agains + 1);
        begin(0, next, 0, SH_REPLICATION_ACK);
        put_image(1, 60000, 1);
        send();
    }
    rig_pass(&rig, 100 * RIG_MS);
    /* The keeper drops an APPEND that comes meanwhile, without a word. */
    unsigned before = owner->told[0].count;
    begin(0, next, 0, SH_REPLICATION_ACK);
    put_image(1, 64, 1);
    send();
    rig_pass(&rig, RIG_MS);
    assert_int_equal(owner->told[0].count, before);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 4);
    /* The log gets on. */
    rig.is_stalled = false;
    rig_settle(&rig);
    rig_pass(&rig, RIG_MS);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 5);
    assert_int_equal(told(0)->next, next);
    /* An APPEND that was on its way lies beyond the expected place. */
    begin(0, next + 1, 0, SH_REPLICATION_ACK);
    put_image(1, 64, 1);
    send();
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 5);
    begin(0, next, 0, SH_REPLICATION_DURABLE);
    put_image(1, 64, 99);
    send();
    assert_int_equal(told(0)->next, next + 1);
    assert_int_equal(told(0)->state, SH_REPLICATION_GOES_ON);
    assert_int_equal(status().full, 5);
    assert_int_equal(read_back(0)->end, next + 1);
}

static void test_a_full_stream_is_opened_again(void **state)
{
    (void)state;
    uint64_t number = 1;
    uint32_t part;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    rig.is_stalled = true;
    for (; !owner->told[0].of_state[SH_REPLICATION_FULL]; number++) {
        begin(0, number, 0, SH_REPLICATION_ACK);
        put_image((unsigned)number % 50, 60000, (uint8_t)number);
        send();
    }
    rig_cut(&rig, owner);
    rig.is_stalled = false;
    const struct sh_replication_open on = rig_open_of(owner, 0, 1, 1);
    assert_int_equal(open_on(&on, owner, &number, &part), SHOAL_OK);
    rig_pass(&rig, 1000 * RIG_MS);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 0);
    send_images(0, number, 1, SH_REPLICATION_ACK);
    assert_int_equal(told(0)->next, number + 1);
}

static void test_a_zone_without_room_is_lost(void **state)
{
    (void)state;
    uint64_t number = 1;
    struct sh_replication_opened opened;
    struct sh_replication_open large = rig_open_of(owner, 1, 1, 1);
    large.flags = SH_REPLICATION_ANEW;
    large.bytes_max = 36 << 20; /* of some 50 MiB that the log has */
    assert_int_equal(rig_zone_open(owner, &large, &opened), SHOAL_OK);
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    while (told(0)->state != SH_REPLICATION_LOST) {
        assert_true(number < 1000);
        begin(0, number, 0, SH_REPLICATION_ACK);
        put_image((unsigned)number, 60000, 1); /* each of another chunk: all of it is current */
        send();
        rig_pass(&rig, 200 * RIG_MS);
        number = told(0)->next;
    }
    const struct sh_replication_open on = rig_open_of(owner, 0, 1, 1);
    uint32_t part;
    /* It has had far more than the owner had asked for: what the log had left. */
    assert_true(2 * number * 60000 > 3 * on.bytes_max);
    assert_int_equal(open_on(&on, owner, &number, &part), SHOAL_ENOSPC);
    assert_int_equal(rig_zone_close(owner, 0, 1), SHOAL_OK);
}

/* The scrub has found damage in a zone to which nothing is written: its owner is told all the same. Of others nothing is said. */
static void test_damage_is_told_at_once(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    assert_int_equal(open_anew(owner, 1, 1, 1), SHOAL_OK);
    for (unsigned i = 0; i < 2; i++)
        send_images(i, 1, 3, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 1000 * RIG_MS);
    assert_int_equal(told(0)->state, SH_REPLICATION_GOES_ON);
    sh_keeper_damaged(rig.keeper, NULL);
    sh_keeper_damaged(rig.keeper, sh_replog_zone_find(rig.log, rig_zone(0)));
    rig_pass(&rig, 100 * RIG_MS);
    assert_int_equal(told(0)->state, SH_REPLICATION_LOST);
    assert_int_equal(told(1)->state, SH_REPLICATION_GOES_ON);
    assert_int_equal(status().lost, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_kind_of_entry),
        TEST(test_what_is_there_is_passed_over),
        TEST(test_a_gap_is_asked_for_once),
        TEST(test_pieces_go_over_messages),
        TEST(test_abandoned_pieces),
        TEST(test_malformed_entries),
        TEST(test_a_message_that_is_too_large),
        TEST(test_malformed_twice_is_lost),
        TEST(test_malformed_after_a_gap),
        TEST(test_a_zone_that_is_not_open),
        TEST(test_when_acks_go),
        TEST(test_acks_share_messages),
        TEST(test_a_lost_connection_drops_acks),
        TEST(test_full),
        TEST(test_a_full_stream_is_opened_again),
        TEST(test_a_zone_without_room_is_lost),
        TEST(test_damage_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
