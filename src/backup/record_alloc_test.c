/* A chunk that is written again and again takes nothing from the heap: not to record the write, nor to have it in the log, nor to acknowledge it. A node
 * alone, with a log on a disk in memory, which is not counted. */
#include "base/alloc_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backup/backup_int.h"
#include "base/log.h"
#include "base/random_test.h"

#define NID UINT64_C(3)
#define MS UINT64_C(1000000)
#define CHUNKS 300u
#define STEPS_MAX 100000u

static struct sh_disk *disk;
static struct sh_store *store;
static struct sh_backup *backup;
static struct sh_replog *replicas;
static uint64_t now_ns, seed;
static shoal_cid cids[CHUNKS];
static uint8_t data[4000];

static unsigned draw(unsigned below)
{
    return (unsigned)(test_draw(&seed) % below);
}

static void wake(void *arg)
{
    (void)arg;
}

static void random_fill(void *arg, void *into, size_t size)
{
    uint8_t *at = into;
    (void)arg;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)test_draw(&seed);
}

/* The disk's memory is not the log's: its file has its size at once. */
static void file_grow(const struct sh_replog_config *logged)
{
    static uint8_t zeros[4096];
    struct sh_disk_op op = {.kind = SH_DISK_WRITE,
                            .offset = (uint64_t)(logged->slots + 16) * logged->slot_bytes,
                            .data = zeros,
                            .size = sizeof zeros};
    assert_int_equal(sh_disk_open(disk, logged->name, false, &op.file), SHOAL_OK);
    assert_int_equal(sh_disk_do(disk, &op), SHOAL_OK);
    disk->ops->close(disk, op.file);
}

static void step(void)
{
    now_ns += MS;
    (void)sh_backup_step(backup, now_ns, (uint32_t)(now_ns / (1000 * MS)));
}

static int setup(void **state)
{
    (void)state;
    seed = test_seed(62);
    now_ns = 1000 * MS;
    const struct sh_store_config config = {
        .bytes_max = 32 << 20, .chunk_bytes_max = 1 << 20, .nid = {NID}, .small_pages = true};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    const struct sh_backup_config backed = {
        .store = store, .nid = {NID}, .zone_bytes = 2 << 20, .window_bytes = 4 << 20, .wake = wake};
    assert_int_equal(sh_backup_create(&backed, &backup), SHOAL_OK);
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    const struct sh_replog_config logged = {.disk = disk,
                                            .name = "log",
                                            .random = {random_fill, NULL},
                                            .cluster = 5,
                                            .node = NID,
                                            .slot_bytes = 128 << 10,
                                            .slots = 200,
                                            .primary_blocks = 256,
                                            .buffer_bytes = 8 << 20,
                                            .batch_bytes = 32 << 10,
                                            .linger_ns = 10 * MS,
                                            .versions_max = 256,
                                            .syncs_later = true,
                                            .handed = sh_backup_handed,
                                            .durable = sh_backup_durable,
                                            .arg = backup};
    assert_int_equal(sh_replog_open(&logged, now_ns, 1, &replicas), SHOAL_OK);
    file_grow(&logged);
    sh_backup_home_set(backup, replicas);
    for (unsigned i = 0; i < 10; i++)
        step();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_backup_destroy(backup);
    sh_replog_close(replicas);
    sh_store_destroy(store);
    disk->ops->destroy(disk);
    return 0;
}

static void on_done(void *arg, enum shoal_err err)
{
    assert_int_equal(err, SHOAL_OK);
    *(bool *)arg = true;
}

static void settle(struct sh_write *write)
{
    bool is_over = false;
    if (!sh_write_wait(backup, write, on_done, &is_over))
        return;
    unsigned steps = 0;
    while (!is_over) {
        assert_true(++steps < STEPS_MAX);
        step();
    }
}

static void make(shoal_cid *cid_out)
{
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_REPLICATED);
    const struct sh_store_wish wish = {.size = 1000, .count = 1};
    assert_int_equal(sh_backup_new_as(backup, &write, &wish, cid_out, NULL), SHOAL_OK);
    settle(&write);
}

/* The whole chunk, at one of the levels; now and then acknowledged at once. */
static void put_some(void)
{
    static const enum sh_level levels[] = {SH_LEVEL_ASYNC, SH_LEVEL_REPLICATED, SH_LEVEL_DURABLE};
    struct sh_write write;
    memset(data, (int)draw(256), sizeof data);
    const struct sh_store_rewrite rewrite = {
        .kind = SH_STORE_PUT, .cid = cids[draw(CHUNKS)], .data = sh_bytes_make(data, 1000)};
    enum shoal_err err;
    for (unsigned i = 0;; i++) {
        assert_true(i < STEPS_MAX);
        sh_write_begin(&write, levels[draw(3)]);
        err = sh_backup_rewrite(backup, &write, &rewrite);
        if (err != SHOAL_EAGAIN)
            break;
        step();
    }
    assert_int_equal(err, SHOAL_OK);
    if (draw(4) == 0)
        settle(&write);
    else if (draw(4) == 0)
        step();
}

static void test_written_again_and_again(void **state)
{
    (void)state;
    struct sh_replog_status before, after;
    for (unsigned i = 0; i < CHUNKS; i++)
        make(&cids[i]);
    for (unsigned i = 0; i < 20000; i++)
        put_some();
    sh_replog_status_get(replicas, &before);
    alloc_fail_at(1, SIZE_MAX);
    for (unsigned i = 0; i < 20000; i++)
        put_some();
    assert_int_equal(alloc_fail_end(), 0);
    sh_replog_status_get(replicas, &after);
    assert_true(before.cleanings > 2 && after.cleanings > before.cleanings + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_written_again_and_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
