/* The keeper takes streams, and its log writes and cleans them, without memory of the heap. Messaging, which carries the stream, is not counted here: the
 * test hands them to the keeper. */
#include "base/alloc_test.h"

#include "backup/keeper_case_test.h"

#include "backup/keeper_int.h"
#include "base/random_test.h"

#define ZONES 3u
#define CHUNKS 900u
#define PIECES 3u
#define MESSAGES 4000u

static uint64_t seed, numbers[ZONES];

static unsigned draw(unsigned below)
{
    return (unsigned)(test_draw(&seed) % below);
}

/* Puts what one number of a stream can have: an image, zeros, a removal, two writes that count together, or a chunk in pieces. */
static void put_some(unsigned zone)
{
    unsigned chunk = 10 + draw(CHUNKS - 10), what = draw(20);
    uint8_t stamp = (uint8_t)(1 + draw(200));
    if (what == 0)
        for (uint16_t piece = 0; piece < PIECES; piece++)
            put_piece(0, piece, PIECES, 3000, stamp);
    else if (what < 4)
        put(&(struct sh_replication_entry){
            .kind = SH_REPLICATION_REMOVAL, .chunk = rig_chunk(chunk), .pieces = 1});
    else if (what < 6)
        put(&(struct sh_replication_entry){
            .kind = SH_REPLICATION_ZEROS, .chunk = rig_chunk(chunk), .size = 100, .pieces = 1});
    else if (what < 8) {
        put(&(struct sh_replication_entry){.chunk = rig_chunk(1),
                                           .size = 16,
                                           .with_next = true,
                                           .pieces = 1,
                                           .bytes = {image_bytes, 16}});
        put_image(chunk, 70, stamp);
    } else
        put_image(chunk, 10 + draw(400), stamp);
    numbers[zone]++;
}

/* The keeper and its log do what there is to be done, uncounted only where messages are sent. */
static void steps(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        rig.backup.memwire.now_ns += RIG_MS;
        (void)sh_replog_step(rig.log, rig_now(&rig), rig_seconds(&rig));
        alloc_plan.is_held = true;
        (void)sh_keeper_step(rig.keeper, rig_now(&rig));
        rig_settle(&rig);
        alloc_plan.is_held = false;
    }
}

/* Hands a message to the keeper, and again as long as its log has no room. */
static void message_take(unsigned zone)
{
    struct sh_replog_zone *of = sh_replog_zone_find(rig.log, rig_zone(zone));
    uint64_t first = numbers[zone];
    rig_append_begin(&append, zone, 1, first, 0,
                     draw(4) ? SH_REPLICATION_NONE : SH_REPLICATION_DURABLE);
    for (unsigned i = 1 + draw(20); i > 0; i--)
        put_some(zone);
    struct sh_msg_in in = {
        .msg = rig.backup.msg, .type = SH_REPLICATION_APPEND, .reply_to = {.nid = owner->nid}};
    for (unsigned i = 0; sh_replog_next(of) < numbers[zone]; i++) {
        assert_true(i < 10000);
        in.payload = sh_reader_make(sh_bytes_make(append.bytes, rig_append_size(&append)));
        sh_keeper_on_append(rig.keeper, &in);
        steps(1);
    }
    assert_int_equal(sh_replog_next(of), numbers[zone]);
}

static void messages_take(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        message_take(draw(ZONES));
        if (draw(50) == 0)
            steps(150);
    }
}

/* The disk's memory is not the log's: its file has its size at once. */
static void file_grow(void)
{
    static uint8_t zeros[4096];
    struct sh_disk_op op = {.kind = SH_DISK_WRITE,
                            .offset = (uint64_t)(rig.logged.slots + 8) * rig.logged.slot_bytes,
                            .data = zeros,
                            .size = sizeof zeros};
    assert_int_equal(sh_disk_open(rig.disk, rig.logged.name, false, &op.file), SHOAL_OK);
    assert_int_equal(sh_disk_do(rig.disk, &op), SHOAL_OK);
    rig.disk->ops->close(rig.disk, op.file);
}

static void test_streams_take_nothing(void **state)
{
    (void)state;
    struct sh_replog_status before, after;
    seed = test_seed(61);
    for (unsigned i = 0; i < ZONES; i++) {
        numbers[i] = 1;
        assert_int_equal(open_anew(owner, i, 1, 1), SHOAL_OK);
    }
    file_grow();
    messages_take(MESSAGES / 2);
    sh_replog_status_get(rig.log, &before);
    alloc_fail_at(1, SIZE_MAX);
    messages_take(MESSAGES / 2);
    assert_int_equal(alloc_fail_end(), 0);
    sh_replog_status_get(rig.log, &after);
    assert_true(before.cleanings > 2 && after.cleanings > before.cleanings + 2);
    assert_true(after.slot_writes > before.slot_writes + 10);
    assert_true(after.primary_writes > before.primary_writes + 10);
    assert_int_equal(status().malformed, 0);
    assert_int_equal(status().lost, 0);
    sh_replog_sync(sh_replog_zone_find(rig.log, rig_zone(0)));
    steps(200);
    assert_int_equal(read_back(0)->end, numbers[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_streams_take_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
