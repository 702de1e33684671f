/* The keeper by example: what an owner is answered and told, case by case. Random streams are in keeper_model_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backup/keeper_test.h"

static struct rig rig;
static struct rig_append append;
static struct rig_owner *const owner = &rig.owners[0], *const other = &rig.owners[1];

static int setup(void **state)
{
    (void)state;
    const char *bad;
    size_t bad_size;
    /* Errors are provoked. */
    SH_ASSERT(!sh_log_output_set("/dev/null", SH_LOG_AS_TEXT));
    SH_ASSERT(!sh_log_levels_set("error", &bad, &bad_size));
    rig_open(&rig, 4711);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&rig);
    return 0;
}

/* --- Helpers ----------------------------------------------------------------------------------- */

static enum shoal_err open_anew(struct rig_owner *by, unsigned zone, uint32_t incarnation,
                                uint64_t first)
{
    struct sh_replication_opened opened;
    struct sh_replication_open open = rig_open_of(by, zone, incarnation, first);
    open.flags = SH_REPLICATION_ANEW;
    enum shoal_err err = rig_zone_open(by, &open, &opened);
    if (!err)
        assert_true(opened.next == first && !opened.part);
    return err;
}

/* The stream goes on; *next: where. */
static enum shoal_err open_on(const struct sh_replication_open *open, struct rig_owner *by,
                              uint64_t *next, uint32_t *part)
{
    struct sh_replication_opened opened;
    enum shoal_err err = rig_zone_open(by, open, &opened);
    if (!err) {
        *next = opened.next;
        *part = opened.part;
    }
    return err;
}

static uint8_t image_bytes[64 << 10];

static void put(const struct sh_replication_entry *entry)
{
    sh_replication_entry_put(&append.w, entry);
}

/* An image whose bytes follow from a stamp. */
static void put_image(unsigned chunk, uint32_t size, uint8_t stamp)
{
    memset(image_bytes, stamp, size);
    put(&(struct sh_replication_entry){
        .chunk = rig_chunk(chunk), .size = size, .pieces = 1, .bytes = {image_bytes, size}});
}

static void put_piece(unsigned chunk, uint16_t piece, uint16_t pieces, uint32_t each, uint8_t stamp)
{
    memset(image_bytes, stamp, each);
    put(&(struct sh_replication_entry){.chunk = rig_chunk(chunk),
                                       .size = each,
                                       .piece = piece,
                                       .pieces = pieces,
                                       .total = pieces * each,
                                       .bytes = {image_bytes, each}});
}

static void put_abandon(void)
{
    put(&(struct sh_replication_entry){.kind = SH_REPLICATION_ABANDON, .pieces = 1});
}

static void begin(unsigned zone, uint64_t number, uint32_t part, uint8_t wish)
{
    rig_append_begin(&append, zone, 1, number, part, wish);
}

static void send(void)
{
    rig_append_send(owner, &append);
    rig_settle(&rig);
}

/* So many images of 64 bytes, from that number on, of chunks of that number. */
static void send_images(unsigned zone, uint64_t number, unsigned count, uint8_t wish)
{
    begin(zone, number, 0, wish);
    for (unsigned i = 0; i < count; i++)
        put_image((unsigned)number + i, 64, (uint8_t)(number + i));
    send();
}

static const struct sh_replication_ack *told(unsigned zone)
{
    return &owner->told[zone].last;
}

static struct sh_keeper_status status(void)
{
    struct sh_keeper_status now;
    sh_keeper_status_get(rig.keeper, &now);
    return now;
}

/* What a zone's replica has, chunk by chunk, after the backup's process has ended. */
struct found {
    bool is_over;
    enum shoal_err err;
    uint64_t end;
    unsigned count;
    uint32_t sizes[2000]; /* by local ID */
    uint8_t stamps[2000]; /* of all bytes; 0 of zeros, too */
};

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    struct found *found = arg;
    (void)zone;
    assert_true(item->creator == RIG_OWNER_NID && item->local_id < 2000);
    found->count += !item->piece;
    found->sizes[item->local_id] += (uint32_t)item->payload.size;
    for (size_t i = 0; item->payload.at && i < item->payload.size; i++) {
        assert_true(!found->stamps[item->local_id] ||
                    found->stamps[item->local_id] == item->payload.at[i]);
        found->stamps[item->local_id] = item->payload.at[i];
    }
    return SHOAL_OK;
}

static void on_read(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct found *found = arg;
    (void)zone;
    found->is_over = true;
    found->err = err;
    found->end = end;
}

static const struct found *read_back(unsigned zone)
{
    static struct found found;
    found = (struct found){.is_over = false};
    rig_stop(&rig);
    rig_start(&rig);
    const struct sh_replog_read read = {
        .rest_max = 10000, .take = on_item, .done = on_read, .arg = &found};
    struct sh_replog_zone *of = sh_replog_zone_find(rig.log, rig_zone(zone));
    assert_non_null(of);
    assert_int_equal(sh_replog_zone_read(of, &read), SHOAL_OK);
    for (unsigned i = 0; !found.is_over; i++) {
        assert_true(i < 10000);
        rig_pass(&rig, RIG_MS);
    }
    assert_int_equal(found.err, SHOAL_OK);
    return &found;
}

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
    /* What comes meanwhile is dropped without a word. */
    unsigned before = owner->told[0].count;
    begin(0, next, 0, SH_REPLICATION_ACK);
    put_image(1, 64, 1);
    send();
    rig_pass(&rig, 100 * RIG_MS);
    assert_int_equal(owner->told[0].count, before);
    /* The log gets on. */
    rig.is_stalled = false;
    rig_settle(&rig);
    rig_pass(&rig, RIG_MS);
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 1);
    assert_int_equal(told(0)->next, next);
    /* What was on its way is beyond. */
    begin(0, next + 1, 0, SH_REPLICATION_ACK);
    put_image(1, 64, 1);
    send();
    assert_int_equal(owner->told[0].of_state[SH_REPLICATION_AGAIN], 1);
    begin(0, next, 0, SH_REPLICATION_DURABLE);
    put_image(1, 64, 99);
    send();
    assert_int_equal(told(0)->next, next + 1);
    assert_int_equal(told(0)->state, SH_REPLICATION_GOES_ON);
    assert_int_equal(status().full, 1);
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
    assert_int_equal(open_on(&on, owner, &number, &part), SHOAL_ENOSPC);
    assert_int_equal(rig_zone_close(owner, 0, 1), SHOAL_OK);
}

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
        .local_id = 1, .creator = RIG_NID, .pieces = 1, .payload = {image_bytes, 10}};
    assert_int_equal(sh_replog_append(zone, &write), SHOAL_OK);
    rig_pass(&rig, 200 * RIG_MS);
    assert_true(rig.not_ours > 0);
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

static void test_a_node_that_keeps_none(void **state)
{
    (void)state;
    rig_stop(&rig);
    const struct sh_keeper_config config = {.msg = rig.backup.msg,
                                            .clock = sh_memwire_env(&rig.backup.memwire).clock,
                                            .zones_max = 1,
                                            .credit_bytes = RIG_CREDIT,
                                            .life_of = rig_life_of,
                                            .wake = rig_wake,
                                            .arg = &rig};
    assert_int_equal(sh_keeper_create(&config, &rig.keeper), SHOAL_OK);
    assert_false(space().keeps);
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_ENONODE);
    assert_int_equal(rig_zone_close(owner, 0, 1), SHOAL_OK);
    send_images(0, 1, 1, SH_REPLICATION_NONE);
    assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
    sh_keeper_destroy(rig.keeper);
    rig.keeper = NULL;
    rig_start(&rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
        TEST(test_a_zone_that_is_not_open),
        TEST(test_when_acks_go),
        TEST(test_acks_share_messages),
        TEST(test_a_lost_connection_drops_acks),
        TEST(test_full),
        TEST(test_a_full_stream_is_opened_again),
        TEST(test_a_zone_without_room_is_lost),
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
        TEST(test_a_node_that_keeps_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
