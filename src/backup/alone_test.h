/* A node alone, with a store, a backup of it, and its log on a disk in memory: what the tests of its zones share. */
#ifndef SH_BACKUP_ALONE_TEST_H
#define SH_BACKUP_ALONE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backup/backup.h"
#include "base/random_test.h"
#include "log/replog.h"

#define NID UINT64_C(3)
#define MS UINT64_C(1000000)
#define SLOT_BYTES (128u << 10)
#define STEPS_MAX 200000u
#define ALONE __attribute__((unused)) static

static struct sh_disk *disk;
static struct sh_store *store;
static struct sh_backup *backup;
static struct sh_replog *replicas;
static uint64_t now_ns;

ALONE void wake(void *arg)
{
    (void)arg;
}

ALONE void random_fill(void *arg, void *into, size_t size)
{
    static uint64_t state = 88172645463325252u;
    uint8_t *at = into;
    (void)arg;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)test_draw(&state);
}

/* Makes the store and its backup, which is told the rest of what it needs. */
ALONE void store_open(size_t bytes_max, struct sh_backup_config backed)
{
    const struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = 4 << 20, .nid = {NID}, .small_pages = true};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    backed.store = store;
    backed.nid.v = NID;
    backed.wake = wake;
    assert_int_equal(sh_backup_create(&backed, &backup), SHOAL_OK);
}

/* Of a log on the disk, for the backup. */
ALONE struct sh_replog_config log_config(uint32_t slots)
{
    return (struct sh_replog_config){.disk = disk,
                                     .name = "log",
                                     .random = {random_fill, NULL},
                                     .cluster = 5,
                                     .node = NID,
                                     .slot_bytes = SLOT_BYTES,
                                     .slots = slots,
                                     .primary_blocks = 256,
                                     .buffer_bytes = 8 << 20,
                                     .batch_bytes = 32 << 10,
                                     .linger_ns = 10 * MS,
                                     .versions_max = 256,
                                     .syncs_later = true,
                                     .handed = sh_backup_handed,
                                     .durable = sh_backup_durable,
                                     .arg = backup};
}

/* The process ends; the disk stays. */
ALONE void node_end(void)
{
    sh_backup_destroy(backup);
    sh_replog_close(replicas);
    sh_store_destroy(store);
}

ALONE int teardown(void **state)
{
    (void)state;
    node_end();
    disk->ops->destroy(disk);
    return 0;
}

ALONE void step(void)
{
    now_ns += MS;
    (void)sh_backup_step(backup, now_ns, (uint32_t)(now_ns / (1000 * MS)));
    assert_int_equal(sh_replog_trouble(replicas), SHOAL_OK);
}

/* The backup has the log from now on, and has made what it needs at first. */
ALONE void home_set(void)
{
    sh_backup_home_set(backup, replicas);
    for (unsigned i = 0; i < 10; i++)
        step();
}

ALONE struct sh_backup_status status(void)
{
    struct sh_backup_status got;
    sh_backup_status_get(backup, &got);
    return got;
}

struct waited {
    bool is_over;
    enum shoal_err err;
};

ALONE void on_done(void *arg, enum shoal_err err)
{
    *(struct waited *)arg = (struct waited){true, err};
}

/* Waits until a write is acknowledged. */
ALONE void write_settle(struct sh_write *write)
{
    struct waited waited = {false, SHOAL_OK};
    if (!sh_write_wait(backup, write, on_done, &waited))
        return;
    for (unsigned i = 0; !waited.is_over; i++) {
        assert_true(i < STEPS_MAX);
        step();
    }
    assert_int_equal(waited.err, SHOAL_OK);
}

/* Makes a chunk, which is acknowledged at that level. */
ALONE enum shoal_err chunk_new(enum sh_level level, uint32_t size, shoal_cid *cid_out)
{
    struct sh_write write;
    sh_write_begin(&write, level);
    const struct sh_store_wish wish = {.size = size, .count = 1};
    enum shoal_err err;
    for (unsigned i = 0;
         (err = sh_backup_new_as(backup, &write, &wish, cid_out, NULL)) == SHOAL_EAGAIN; i++) {
        assert_true(i < STEPS_MAX);
        step();
    }
    if (!err)
        write_settle(&write);
    return err;
}

/* Begins a write of that level and changes a chunk by it, as soon as there is room for that. */
ALONE enum shoal_err chunk_rewrite(enum sh_level level, struct sh_write *write,
                                   const struct sh_store_rewrite *rewrite)
{
    enum shoal_err err;
    sh_write_begin(write, level);
    for (unsigned i = 0; (err = sh_backup_rewrite(backup, write, rewrite)) == SHOAL_EAGAIN; i++) {
        assert_true(i < STEPS_MAX);
        step();
    }
    return err;
}

#endif
