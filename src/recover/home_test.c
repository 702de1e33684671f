/* Bringing back a node's zones from logs that the test has written: who has a chunk that two zones have, what was about to move,
 * and logs that say what no backup wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recover/completions.h"
#include "recover/home.h"

#define NID UINT64_C(9)
#define PIECE (32u << 10)

static struct sh_disk *disk;
static struct sh_replog *log_;
static struct sh_store *store;
static struct sh_backup *backup;
static struct sh_recovered found;
static uint64_t now = 1000000000;
static uint8_t bytes[1 << 20];

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return now += 1000000;
}

static void wake(void *arg)
{
    (void)arg;
}

static void log_open(void)
{
    const struct sh_replog_config config = {.disk = disk,
                                            .name = "log",
                                            .random = sh_real_random(),
                                            .cluster = 1,
                                            .node = NID,
                                            .slot_bytes = 256 << 10,
                                            .slots = 200,
                                            .primary_blocks = 512,
                                            .buffer_bytes = 4 << 20,
                                            .batch_bytes = 64 << 10,
                                            .linger_ns = 1,
                                            .versions_max = 1024,
                                            .syncs_later = true};
    assert_int_equal(sh_replog_open(&config, now_ns(NULL), 1, &log_), SHOAL_OK);
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    log_open();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_backup_destroy(backup);
    sh_replog_close(log_);
    sh_store_destroy(store);
    disk->ops->destroy(disk);
    backup = NULL;
    log_ = NULL;
    store = NULL;
    return 0;
}

static struct sh_replog_zone *zone_add(uint64_t number)
{
    const struct sh_replog_zone_config config = {.id = NID << 48 | number,
                                                 .owner = NID,
                                                 .incarnation = 1,
                                                 .first = 1,
                                                 .bytes_max = 2 << 20,
                                                 .rest_max = 1000};
    struct sh_replog_zone *zone;
    assert_int_equal(sh_replog_zone_add(log_, &config, &zone), SHOAL_OK);
    return zone;
}

static void append(struct sh_replog_zone *zone, const struct sh_replog_write *write)
{
    enum shoal_err err;
    while ((err = sh_replog_append(zone, write)) == SHOAL_EAGAIN)
        (void)sh_replog_step(log_, now_ns(NULL), 1);
    assert_int_equal(err, SHOAL_OK);
}

static void claim(struct sh_replog_zone *zone, uint64_t place, uint64_t first, uint64_t last)
{
    uint8_t range[16];
    sh_store64(range, NID << 48 | first);
    sh_store64(range + 8, NID << 48 | last);
    const struct sh_replog_write write = {
        .local_id = 1 + place, .pieces = 1, .payload = sh_bytes_make(range, sizeof range)};
    append(zone, &write);
}

static void image(struct sh_replog_zone *zone, uint64_t id, const char *text)
{
    const struct sh_replog_write write = {
        .local_id = id, .creator = NID, .pieces = 1, .payload = sh_bytes_text(text)};
    append(zone, &write);
}

static void removal(struct sh_replog_zone *zone, uint64_t id)
{
    const struct sh_replog_write write = {
        .local_id = id, .creator = NID, .pieces = 1, .is_removal = true};
    append(zone, &write);
}

/* A chunk of so many bytes in pieces, all of that byte. */
static void large(struct sh_replog_zone *zone, uint64_t id, uint32_t size, uint8_t byte)
{
    memset(bytes, byte, PIECE);
    for (uint32_t at = 0; at < size; at += PIECE) {
        uint32_t left = size - at;
        const struct sh_replog_write write = {
            .local_id = id,
            .creator = NID,
            .piece = (uint16_t)(at / PIECE),
            .pieces = (uint16_t)((size - 1) / PIECE + 1),
            .total = size,
            .payload = sh_bytes_make(bytes, left < PIECE ? left : PIECE)};
        append(zone, &write);
    }
}

/* An image, and that it came of a client's request. */
static void done(struct sh_replog_zone *zone, uint64_t id, struct sh_completion completion)
{
    uint8_t record[SH_COMPLETION_BYTES_MAX];
    completion.chunk = NID << 48 | id;
    size_t size = sh_completion_put(&completion, record);
    const struct sh_replog_write write = {.local_id = id,
                                          .creator = NID,
                                          .pieces = 1,
                                          .payload = sh_bytes_text("done"),
                                          .completion = sh_bytes_make(record, size)};
    append(zone, &write);
}

/* The completion records that came back, by client and number. */
static struct sh_completion told[8][64];
static unsigned told_count;

static void on_completed(void *arg, const struct sh_completion *completion)
{
    (void)arg;
    assert_true(completion->client < 8 && completion->number < 64);
    told_count += !told[completion->client][completion->number].client; /* it may come twice */
    told[completion->client][completion->number] = *completion;
}

/* Ends the process, and begins another with so many bytes for its store. */
static enum shoal_err bring_back(uint64_t store_bytes)
{
    struct sh_replog_zone *zone = NULL;
    uint64_t above = UINT64_MAX;
    while ((zone = sh_replog_zone_below(log_, above))) {
        above = sh_replog_zone_id(zone);
        sh_replog_sync(zone);
        while (sh_replog_durable(zone) < sh_replog_next(zone))
            (void)sh_replog_step(log_, now_ns(NULL), 1);
    }
    sh_replog_close(log_);
    log_open();
    const struct sh_store_config config = {
        .bytes_max = store_bytes, .chunk_bytes_max = 1 << 20, .nid = {NID}, .small_pages = true};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    const struct sh_backup_config backed = {
        .store = store, .nid = {NID}, .zone_bytes = 1 << 20, .window_bytes = 4 << 20, .wake = wake};
    assert_int_equal(sh_backup_create(&backed, &backup), SHOAL_OK);
    const struct sh_recover_home home = {.log = log_,
                                         .disk = disk,
                                         .backup = backup,
                                         .store = store,
                                         .nid = {NID},
                                         .clock = {.now_ns = now_ns, .wall_ns = now_ns},
                                         .completed = on_completed};
    return sh_recover_home_run(&home, &found);
}

static void assert_text(uint64_t id, const char *text)
{
    uint32_t size;
    assert_int_equal(sh_store_get(store, (shoal_cid){NID << 48 | id}, bytes, sizeof bytes, &size),
                     SHOAL_OK);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(bytes, text, size);
}

static void assert_gone(uint64_t id)
{
    uint32_t size;
    assert_int_equal(sh_store_size(store, (shoal_cid){NID << 48 | id}, &size), SHOAL_ENOCHUNK);
}

static uint64_t live(void)
{
    struct sh_backup_status status;
    sh_backup_status_get(backup, &status);
    return status.live_bytes;
}

/* The backup writes what it has to; then the process ends, and another begins. The leftovers that the first one found are gone. */
static void assert_left_gone(uint64_t left)
{
    struct sh_recovered before = found;
    assert_int_equal(before.left, left);
    sh_backup_home_set(backup, log_);
    for (unsigned i = 0; i < 100; i++)
        (void)sh_backup_step(backup, now_ns(NULL), 1);
    sh_backup_destroy(backup);
    sh_store_destroy(store);
    assert_int_equal(bring_back(4 << 20), SHOAL_OK);
    assert_int_equal(found.left, 0);
    assert_true(found.chunks == before.chunks && found.payload_bytes == before.payload_bytes);
}

/* Of two zones that claim a chunk the later one has it, also where that has removed it. */
static void test_claims(void **state)
{
    (void)state;
    struct sh_replog_zone *first = zone_add(1), *second = zone_add(2), *third = zone_add(5);
    claim(first, 0, 0, 1023);
    image(first, 1, "one");
    image(first, 2, "two, as it was");
    image(first, 3, "three, before it was removed");
    image(first, 4, "four");
    removal(first, 4);
    image(first, 7, "seven of the first");
    claim(second, 0, 2, 2);
    image(second, 2, "two");
    claim(second, 1, 3, 3);
    image(second, 3, "three again");
    removal(second, 3);
    claim(second, 2, 7, 7);
    image(second, 7, "seven of the second");
    claim(third, 0, 7, 7);
    image(third, 7, "seven");
    assert_int_equal(bring_back(4 << 20), SHOAL_OK);
    assert_text(1, "one");
    assert_text(2, "two");
    assert_gone(3);
    assert_gone(4);
    assert_text(7, "seven");
    assert_true(found.zones == 3 && found.chunks == 3 && found.payload_bytes == 11);
    assert_int_equal(live(), 11 + 3 * SH_ZONE_CHUNK_BYTES);
    assert_left_gone(4);
    assert_text(2, "two");
    assert_gone(3);
}

/* A large chunk of which all pieces are there, but not the claim, has not moved. */
static void test_large_unclaimed(void **state)
{
    (void)state;
    uint32_t size;
    struct sh_replog_zone *first = zone_add(1), *second = zone_add(2);
    claim(first, 0, 0, 1023);
    large(first, 5, 300000, 'a');
    large(first, 6, 70000, 'b');
    image(first, 8, "eight");
    large(second, 5, 400000, 'x');
    claim(second, 0, 6, 6);
    large(second, 6, 80000, 'c');
    large(second, 9, 90000, 'y'); /* it would have been new */
    assert_int_equal(bring_back(4 << 20), SHOAL_OK);
    assert_int_equal(sh_store_get(store, (shoal_cid){NID << 48 | 5}, bytes, sizeof bytes, &size),
                     SHOAL_OK);
    assert_true(size == 300000 && bytes[0] == 'a' && bytes[299999] == 'a');
    assert_int_equal(sh_store_get(store, (shoal_cid){NID << 48 | 6}, bytes, sizeof bytes, &size),
                     SHOAL_OK);
    assert_true(size == 80000 && bytes[0] == 'c' && bytes[79999] == 'c');
    assert_gone(9);
    assert_text(8, "eight");
    assert_int_equal(found.chunks, 3);
    assert_int_equal(live(), 380005 + 3 * SH_ZONE_CHUNK_BYTES);
    assert_left_gone(3);
    assert_text(8, "eight");
}

/* Zones of other nodes, whose replicas the log has, are left alone. */
static void test_others(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = zone_add(1), *other;
    struct sh_replog_zone_config config = {.id = (NID + 1) << 48 | 1,
                                           .owner = NID + 1,
                                           .incarnation = 1,
                                           .first = 1,
                                           .bytes_max = 1 << 20,
                                           .rest_max = 1000};
    assert_int_equal(sh_replog_zone_add(log_, &config, &other), SHOAL_OK);
    config.id = (NID - 1) << 48 | UINT64_C(0xffffffffffff);
    assert_int_equal(sh_replog_zone_add(log_, &config, &other), SHOAL_OK);
    claim(zone, 0, 0, 1023);
    image(zone, 1, "one");
    claim(other, 0, 0, 1023);
    image(other, 2, "two");
    assert_int_equal(bring_back(4 << 20), SHOAL_OK);
    assert_text(1, "one");
    assert_gone(2);
    assert_int_equal(found.zones, 1);
}

/* Of a store that is too small nothing is made believe. */
static void test_full(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = zone_add(4);
    claim(zone, 0, 0, 1023);
    for (unsigned i = 1; i < 4; i++)
        large(zone, i, 400000, (uint8_t)i);
    assert_int_equal(bring_back(1 << 20), SHOAL_EFULL);
    assert_int_equal(found.zone, 4);
}

static void test_malformed(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = zone_add(1);
    const struct sh_replog_write write = {
        .local_id = 1, .pieces = 1, .payload = sh_bytes_make("short", 5)};
    append(zone, &write);
    assert_int_equal(bring_back(4 << 20), SHOAL_ECORRUPT);
}

static void test_nothing(void **state)
{
    (void)state;
    assert_int_equal(bring_back(4 << 20), SHOAL_OK);
    assert_true(found.zones == 0 && found.chunks == 0);
}

/* Of what clients have asked for, what they may still ask for, wherever that is; not a create whose chunk is gone. */
static void test_completions(void **state)
{
    (void)state;
    struct sh_replog_zone *one = zone_add(1), *two = zone_add(2);
    claim(one, 0, 1, 100);
    claim(two, 0, 101, 200);
    for (uint64_t i = 1; i <= 40; i++)
        done(i % 2 ? one : two, i % 2 ? i : 100 + i,
             (struct sh_completion){
                 .client = 3, .number = i, .acknowledged = i > 5 ? i - 5 : 0, .value = 7 * i});
    done(two, 150, (struct sh_completion){.client = 4, .number = 1, .is_create = true});
    done(one, 60, (struct sh_completion){.client = 4, .number = 2, .is_create = true});
    removal(one, 60);
    done(one, 61, (struct sh_completion){.client = 5, .number = 9});
    removal(one, 61);
    told_count = 0;
    assert_int_equal(bring_back(4 << 20), SHOAL_OK);
    assert_int_equal(told_count, 5 + 1 + 1);
    assert_true(found.completions >= told_count);
    for (uint64_t i = 36; i <= 40; i++) {
        assert_int_equal(told[3][i].value, 7 * i);
        assert_int_equal(told[3][i].chunk, NID << 48 | (i % 2 ? i : 100 + i));
    }
    assert_true(told[4][1].is_create && told[5][9].client == 5);
}

static void count_last(void *arg, const struct sh_completion *completion)
{
    assert_int_equal(completion->number, completion->client >> 32 <= 3000 ? 40 : 49);
    ++*(unsigned *)arg;
}

/* Many clients, of which each has acknowledged all but its last request. */
static void test_many_completions(void **state)
{
    (void)state;
    struct sh_completions *completions;
    static unsigned left;
    assert_int_equal(sh_completions_create(&completions), SHOAL_OK);
    for (uint64_t number = 40; number > 0; number--) {
        for (uint64_t client = 1; client <= 3000; client++) {
            const struct sh_completion completion = {
                .client = client << 32, .number = number, .acknowledged = number - 1};
            assert_int_equal(sh_completions_add(completions, &completion), SHOAL_OK);
        }
    }
    for (uint64_t number = 1; number < 50; number++) {
        for (uint64_t client = 3001; client <= 6000; client++) {
            const struct sh_completion completion = {
                .client = client << 32, .number = number, .acknowledged = number - 1};
            assert_int_equal(sh_completions_add(completions, &completion), SHOAL_OK);
        }
    }
    left = 0;
    sh_completions_each(completions, count_last, &left);
    assert_int_equal(left, 6000);
    sh_completions_destroy(completions);
}

#define BLOCK_BYTES 30000u
#define STORE 1100000u

/* How many blocks a store of STORE bytes has room for. */
static uint64_t blocks_most(void)
{
    const struct sh_store_config config = {
        .bytes_max = STORE, .chunk_bytes_max = 1 << 20, .nid = {NID}, .small_pages = true};
    struct sh_store *other;
    uint64_t count = 0;
    assert_int_equal(sh_store_create(&config, &other), SHOAL_OK);
    while (!sh_store_adopt(other, (shoal_cid){NID << 48 | (count + 1)},
                           sh_bytes_make(bytes, BLOCK_BYTES)))
        count++;
    sh_store_destroy(other);
    return count;
}

static void block(struct sh_replog_zone *zone, uint64_t id)
{
    memset(bytes, (uint8_t)id, BLOCK_BYTES);
    const struct sh_replog_write write = {
        .local_id = id, .creator = NID, .pieces = 1, .payload = sh_bytes_make(bytes, BLOCK_BYTES)};
    append(zone, &write);
}

/* Slots are looked at from the last one on. The first one, of six blocks, has chunks that are removed further on in it: these need room at the first look. There is none, so the zone is read without them. */
static void outdated_chunks_need_no_room(void **state)
{
    (void)state;
    uint64_t count = blocks_most() - 1;
    struct sh_replog_zone *zone = zone_add(1);
    claim(zone, 0, 1, 1024);
    for (uint64_t id = 1; id <= 5; id++)
        block(zone, id);
    for (uint64_t id = 1; id <= 5; id++)
        removal(zone, id);
    for (uint64_t id = 6; id < 6 + count; id++)
        block(zone, id);
    assert_int_equal(bring_back(STORE), SHOAL_OK);
    assert_int_equal(found.chunks, count);
    for (uint64_t id = 1; id < 6 + count; id++) {
        uint32_t size;
        enum shoal_err err =
            sh_store_get(store, (shoal_cid){NID << 48 | id}, bytes, sizeof bytes, &size);
        assert_int_equal(err, id > 5 ? SHOAL_OK : SHOAL_ENOCHUNK);
        assert_true(id <= 5 || (size == BLOCK_BYTES && bytes[size - 1] == id));
    }
}

/* The log has one chunk more than the store has room for; or just as many. */
static void a_zone_without_room(void **state)
{
    (void)state;
    uint64_t count = blocks_most();
    struct sh_replog_zone *zone = zone_add(1);
    claim(zone, 0, 1, 1024);
    for (uint64_t id = 1; id <= count + 1; id++)
        block(zone, id);
    assert_int_equal(bring_back(STORE), SHOAL_EFULL);
    sh_backup_destroy(backup);
    sh_store_destroy(store);
    backup = NULL;
    store = NULL;
    assert_int_equal(bring_back(STORE + 2 * BLOCK_BYTES), SHOAL_OK);
    assert_int_equal(found.chunks, count + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_zone_without_room, setup, teardown),
        cmocka_unit_test_setup_teardown(outdated_chunks_need_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claims, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_unclaimed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_others, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_completions, setup, teardown),
        cmocka_unit_test(test_many_completions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
