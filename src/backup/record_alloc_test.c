/* A chunk that is written again and again takes nothing from the heap: not to record the write, nor to have it in the log, nor to acknowledge it. A node
 * alone, with a log on a disk in memory, which is not counted. */
#include "base/alloc_test.h"

#include <string.h>

#include "backup/alone_test.h"

#define CHUNKS 300u

static uint64_t seed;
static shoal_cid cids[CHUNKS];
static uint8_t data[4000];

static unsigned draw(unsigned below)
{
    return (unsigned)(test_draw(&seed) % below);
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

static int setup(void **state)
{
    (void)state;
    seed = test_seed(62);
    now_ns = 1000 * MS;
    store_open(32 << 20, (struct sh_backup_config){.zone_bytes = 2 << 20, .window_bytes = 4 << 20});
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    const struct sh_replog_config logged = log_config(200);
    assert_int_equal(sh_replog_open(&logged, now_ns, 1, &replicas), SHOAL_OK);
    file_grow(&logged);
    home_set();
    return 0;
}

/* The whole chunk, at one of the levels; now and then acknowledged at once. */
static void put_some(void)
{
    static const enum sh_level levels[] = {SH_LEVEL_ASYNC, SH_LEVEL_REPLICATED, SH_LEVEL_DURABLE};
    struct sh_write write;
    memset(data, (int)draw(256), sizeof data);
    const struct sh_store_rewrite rewrite = {
        .kind = SH_STORE_PUT, .cid = cids[draw(CHUNKS)], .data = sh_bytes_make(data, 1000)};
    assert_int_equal(chunk_rewrite(levels[draw(3)], &write, &rewrite), SHOAL_OK);
    if (draw(4) == 0)
        write_settle(&write);
    else if (draw(4) == 0)
        step();
}

static void test_written_again_and_again(void **state)
{
    (void)state;
    struct sh_replog_status before, after;
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_int_equal(chunk_new(SH_LEVEL_REPLICATED, 1000, &cids[i]), SHOAL_OK);
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
