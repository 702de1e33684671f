/* The simulated disk keeps what env/disk.h promises, and loses all else as it may. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/world.h"

#define MS UINT64_C(1000000)
#define SECTOR SH_SIM_SECTOR_BYTES

static void count_done(struct sh_disk_op *op)
{
    ++*(unsigned *)op->arg;
}

static struct sh_world *make_world(uint64_t seed, const struct sh_disk_faults *faults,
                                   struct sh_disk **disk_out)
{
    struct sh_world_config config = {.seed = seed, .disk = *faults};
    struct sh_world *world = sh_world_create(&config);
    struct sh_world_node node = {0};
    unsigned number = sh_world_node_add(world, &node);
    *disk_out = sh_world_env(world, number)->disk;
    return world;
}

static int open_file(struct sh_disk *disk, const char *name)
{
    int file;
    assert_int_equal(sh_disk_open(disk, name, true, &file), SHOAL_OK);
    return file;
}

/* Runs an operation to its end and returns its error; op keeps the bytes done. */
static enum shoal_err run_op(struct sh_disk *disk, struct sh_disk_op *op)
{
    unsigned done = 0;
    op->done = count_done;
    op->arg = &done;
    while (sh_disk_submit(disk, op) == SHOAL_EAGAIN)
        (void)sh_disk_poll(disk, true);
    while (!done)
        (void)sh_disk_poll(disk, true);
    assert_int_equal(done, 1);
    return op->err;
}

static enum shoal_err write_bytes(struct sh_disk *disk, int file, uint64_t offset, uint8_t value,
                                  size_t size)
{
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, value, size);
    struct sh_disk_op op = {
        .kind = SH_DISK_WRITE, .file = file, .offset = offset, .data = bytes, .size = size};
    enum shoal_err err = run_op(disk, &op);
    assert_int_equal(op.done_bytes, err ? 0 : size);
    free(bytes);
    return err;
}

static size_t read_bytes(struct sh_disk *disk, int file, uint8_t *bytes, size_t size)
{
    struct sh_disk_op op = {.kind = SH_DISK_READ, .file = file, .data = bytes, .size = size};
    assert_int_equal(run_op(disk, &op), SHOAL_OK);
    return op.done_bytes;
}

static enum shoal_err sync_file(struct sh_disk *disk, int file)
{
    return run_op(disk, &(struct sh_disk_op){.kind = SH_DISK_SYNC, .file = file});
}

static enum shoal_err sync_names(struct sh_disk *disk)
{
    return run_op(disk, &(struct sh_disk_op){.kind = SH_DISK_SYNC_DIR});
}

static void crash_and_restart(struct sh_world *world)
{
    sh_world_crash(world, 0);
    sh_world_restart(world, 0);
}

static void writes_are_read_back(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {.delay_ns_min = 1000, .delay_ns_max = MS};
    struct sh_disk *disk;
    struct sh_world *world = make_world(1, &faults, &disk);
    int file = open_file(disk, "a");
    assert_int_equal(write_bytes(disk, file, 0, 'x', 1000), SHOAL_OK);
    assert_int_equal(write_bytes(disk, file, 2000, 'y', 1000), SHOAL_OK);
    uint8_t bytes[4000];
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), 3000);
    for (unsigned i = 0; i < 3000; i++)
        assert_int_equal(bytes[i], i < 1000 ? 'x' : i < 2000 ? 0 : 'y');
    assert_int_equal(bytes[3000], 0xff);
    uint64_t size;
    assert_int_equal(disk->ops->size(disk, file, &size), SHOAL_OK);
    assert_int_equal(size, 3000);
    sh_world_destroy(world);
}

static void operations_take_virtual_time_and_overtake(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {.delay_ns_min = MS, .delay_ns_max = 5 * MS};
    unsigned overtakes = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct sh_disk *disk;
        struct sh_world *world = make_world(seed, &faults, &disk);
        int file = open_file(disk, "a");
        uint8_t byte = 'b';
        unsigned done[2] = {0};
        struct sh_disk_op ops[2];
        for (unsigned i = 0; i < 2; i++) {
            ops[i] = (struct sh_disk_op){.kind = SH_DISK_WRITE,
                                         .file = file,
                                         .offset = i,
                                         .data = &byte,
                                         .size = 1,
                                         .done = count_done,
                                         .arg = &done[i]};
            assert_int_equal(sh_disk_submit(disk, &ops[i]), SHOAL_OK);
        }
        (void)sh_world_run_until(world, NULL, NULL, MS - 1);
        assert_int_equal(sh_disk_poll(disk, false), 0);
        while (!done[0] && !done[1]) {
            (void)sh_world_run_until(world, NULL, NULL, sh_world_now(world) + 1000);
            (void)sh_disk_poll(disk, false);
        }
        overtakes += done[1] && !done[0];
        (void)sh_world_run_until(world, NULL, NULL, 6 * MS);
        (void)sh_disk_poll(disk, false);
        assert_int_equal(done[0] + done[1], 2);
        sh_world_destroy(world);
    }
    assert_in_range(overtakes, 3, 17);
}

static void synced_writes_survive_and_others_may_not(void **state)
{
    (void)state;
    unsigned survived = 0;
    unsigned vanished = 0;
    unsigned torn = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct sh_disk_faults faults = {.survive_ppm = 300000, .torn_ppm = 300000};
        struct sh_disk *disk;
        struct sh_world *world = make_world(seed, &faults, &disk);
        int file = open_file(disk, "a");
        assert_int_equal(write_bytes(disk, file, 0, 'o', 8 * SECTOR), SHOAL_OK);
        assert_int_equal(sync_file(disk, file), SHOAL_OK);
        assert_int_equal(sync_names(disk), SHOAL_OK);
        assert_int_equal(write_bytes(disk, file, 2 * SECTOR, 'n', 4 * SECTOR), SHOAL_OK);
        crash_and_restart(world);
        uint8_t bytes[8 * SECTOR];
        file = open_file(disk, "a");
        assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), sizeof bytes);
        for (unsigned sector = 0; sector < 8; sector++) {
            unsigned fresh = 0;
            for (unsigned i = 0; i < SECTOR; i++) {
                uint8_t byte = bytes[sector * SECTOR + i];
                assert_true(byte == 'o' || byte == 'n');
                fresh += byte == 'n';
            }
            if (sector < 2 || sector >= 6) {
                assert_int_equal(fresh, 0);
                continue;
            }
            survived += fresh == SECTOR;
            vanished += fresh == 0;
            torn += fresh > 0 && fresh < SECTOR;
        }
        sh_world_destroy(world);
    }
    assert_int_equal(survived + vanished + torn, 200);
    assert_in_range(survived, 20, 80); /* 0.7 x 0.3 x 200 = 42 */
    assert_in_range(torn, 30, 90);     /* 0.3 x 200 = 60 */
    assert_in_range(vanished, 60, 140);
}

/* A sync covers what was done before it was submitted, and nothing more. */
static void sync_covers_only_earlier_writes(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {.delay_ns_min = MS, .delay_ns_max = MS};
    struct sh_disk *disk;
    struct sh_world *world = make_world(8, &faults, &disk);
    int file = open_file(disk, "a");
    assert_int_equal(sync_names(disk), SHOAL_OK);
    assert_int_equal(write_bytes(disk, file, 0, '1', SECTOR), SHOAL_OK);
    unsigned synced = 0;
    struct sh_disk_op sync = {
        .kind = SH_DISK_SYNC, .file = file, .done = count_done, .arg = &synced};
    assert_int_equal(sh_disk_submit(disk, &sync), SHOAL_OK);
    uint8_t later[SECTOR];
    memset(later, '2', sizeof later);
    unsigned written = 0;
    struct sh_disk_op write = {.kind = SH_DISK_WRITE,
                               .file = file,
                               .offset = SECTOR,
                               .data = later,
                               .size = SECTOR,
                               .done = count_done,
                               .arg = &written};
    assert_int_equal(sh_disk_submit(disk, &write), SHOAL_OK);
    while (!synced || !written) {
        (void)sh_world_run_until(world, NULL, NULL, sh_world_now(world) + MS);
        (void)sh_disk_poll(disk, false);
    }
    crash_and_restart(world);
    uint8_t bytes[2 * SECTOR];
    file = open_file(disk, "a");
    assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), SECTOR);
    assert_int_equal(bytes[0], '1');
    assert_int_equal(bytes[SECTOR - 1], '1');
    sh_world_destroy(world);
}

static void writes_under_way_at_a_crash_call_nobody(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {.delay_ns_min = MS, .delay_ns_max = MS, .survive_ppm = 1000000};
    struct sh_disk *disk;
    struct sh_world *world = make_world(8, &faults, &disk);
    int file = open_file(disk, "a");
    assert_int_equal(sync_names(disk), SHOAL_OK);
    unsigned done = 0;
    uint8_t *bytes = malloc(SECTOR);
    assert_non_null(bytes);
    memset(bytes, 'w', SECTOR);
    struct sh_disk_op write = {.kind = SH_DISK_WRITE,
                               .file = file,
                               .data = bytes,
                               .size = SECTOR,
                               .done = count_done,
                               .arg = &done};
    assert_int_equal(sh_disk_submit(disk, &write), SHOAL_OK);
    sh_world_crash(world, 0);
    free(bytes); /* as the crash callback of a node would */
    assert_int_equal(sh_disk_open(disk, "a", true, &file), SHOAL_EIO);
    (void)sh_world_run_until(world, NULL, NULL, 10 * MS);
    sh_world_restart(world, 0);
    assert_int_equal(sh_disk_poll(disk, true), 0);
    assert_int_equal(done, 0);
    uint8_t back[SECTOR];
    file = open_file(disk, "a");
    assert_int_equal(read_bytes(disk, file, back, sizeof back), SECTOR);
    assert_int_equal(back[0], 'w');
    sh_world_destroy(world);
}

static bool is_there(struct sh_disk *disk, const char *name, uint8_t *first_out)
{
    int file;
    enum shoal_err err = sh_disk_open(disk, name, false, &file);
    if (err) {
        assert_int_equal(err, SHOAL_ENONAME);
        return false;
    }
    if (!read_bytes(disk, file, first_out, 1))
        *first_out = 0;
    disk->ops->close(disk, file);
    return true;
}

/* The way to replace a file safely: write beside it, sync, rename, sync the names. At every crash
 * either the old file is there or the new one, whole. */
static void rename_replaces_atomically(void **state)
{
    (void)state;
    unsigned olds = 0;
    unsigned news = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sh_disk_faults faults = {.survive_ppm = 500000};
        struct sh_disk *disk;
        struct sh_world *world = make_world(seed, &faults, &disk);
        int file = open_file(disk, "table");
        assert_int_equal(write_bytes(disk, file, 0, 'o', 100), SHOAL_OK);
        assert_int_equal(sync_file(disk, file), SHOAL_OK);
        assert_int_equal(sync_names(disk), SHOAL_OK);
        int fresh = open_file(disk, "table.new");
        assert_int_equal(write_bytes(disk, fresh, 0, 'n', 100), SHOAL_OK);
        assert_int_equal(sync_file(disk, fresh), SHOAL_OK);
        assert_int_equal(disk->ops->rename(disk, "table.new", "table"), SHOAL_OK);
        bool synced = seed % 3 == 0;
        if (synced)
            assert_int_equal(sync_names(disk), SHOAL_OK);
        crash_and_restart(world);
        uint8_t first = 0;
        assert_true(is_there(disk, "table", &first));
        assert_true(first == 'n' || (first == 'o' && !synced));
        olds += first == 'o';
        news += first == 'n' && !synced;
        uint8_t other = 0;
        if (is_there(disk, "table.new", &other))
            assert_true(first == 'o' && other == 'n');
        sh_world_destroy(world);
    }
    assert_true(olds > 5 && news > 5);
}

static void removed_and_renamed_names(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {0};
    struct sh_disk *disk;
    struct sh_world *world = make_world(3, &faults, &disk);
    uint8_t first;
    int file = open_file(disk, "a");
    assert_int_equal(write_bytes(disk, file, 0, 'a', 10), SHOAL_OK);
    assert_int_equal(sync_file(disk, file), SHOAL_OK);
    assert_int_equal(disk->ops->rename(disk, "a", "b"), SHOAL_OK);
    assert_false(is_there(disk, "a", &first));
    assert_true(is_there(disk, "b", &first));
    assert_int_equal(disk->ops->rename(disk, "a", "b"), SHOAL_ENONAME);
    assert_int_equal(disk->ops->remove(disk, "a"), SHOAL_ENONAME);
    assert_int_equal(sh_disk_open(disk, "a/b", true, &file), SHOAL_EINVAL);
    assert_int_equal(sync_names(disk), SHOAL_OK);
    assert_int_equal(disk->ops->remove(disk, "b"), SHOAL_OK);
    /* An open file outlives its name. */
    uint8_t bytes[10];
    assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), 10);
    assert_int_equal(sync_names(disk), SHOAL_OK);
    crash_and_restart(world);
    assert_false(is_there(disk, "a", &first));
    assert_false(is_there(disk, "b", &first));
    sh_world_destroy(world);
}

static void full_disk_says_so_and_changes_nothing(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {.quota_bytes = 10000};
    struct sh_disk *disk;
    struct sh_world *world = make_world(3, &faults, &disk);
    int first = open_file(disk, "a");
    int second = open_file(disk, "b");
    assert_int_equal(write_bytes(disk, first, 0, 'a', 6000), SHOAL_OK);
    assert_int_equal(write_bytes(disk, second, 0, 'b', 4001), SHOAL_ENOSPC);
    uint64_t size;
    assert_int_equal(disk->ops->size(disk, second, &size), SHOAL_OK);
    assert_int_equal(size, 0);
    assert_int_equal(write_bytes(disk, second, 0, 'b', 4000), SHOAL_OK);
    assert_int_equal(write_bytes(disk, first, 100, 'c', 5900), SHOAL_OK); /* within its size */
    disk->ops->close(disk, first);
    assert_int_equal(disk->ops->remove(disk, "a"), SHOAL_OK);
    assert_int_equal(sync_names(disk), SHOAL_OK);
    assert_int_equal(write_bytes(disk, second, 4000, 'b', 6000), SHOAL_OK);
    sh_world_destroy(world);
}

#define BLOCK SH_DISK_RANGE_BYTES

static enum shoal_err range_do(struct sh_disk *disk, enum sh_disk_kind kind, int file,
                               unsigned first, unsigned count)
{
    struct sh_disk_op op = {
        .kind = kind, .file = file, .offset = first * BLOCK, .size = (size_t)count * BLOCK};
    enum shoal_err err = run_op(disk, &op);
    assert_int_equal(op.done_bytes, err ? 0 : count * BLOCK);
    return err;
}

static uint64_t space_left(struct sh_disk *disk)
{
    uint64_t bytes, left;
    assert_int_equal(sh_disk_space(disk, &bytes, &left), SHOAL_OK);
    assert_true(left <= bytes);
    return left;
}

/* What is reserved is kept from others, what is discarded is theirs, and what a write leaves out is not
 * counted. */
static void space_is_reserved_and_given_back(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {0};
    struct sh_disk *disk;
    struct sh_world *world = make_world(3, &faults, &disk);
    int first = open_file(disk, "a"), second = open_file(disk, "b");
    assert_true(space_left(disk) == UINT64_MAX);
    faults.quota_bytes = 10 * BLOCK;
    sh_world_disk_faults_set(world, &faults);
    assert_int_equal(space_left(disk), 10 * BLOCK);
    assert_int_equal(range_do(disk, SH_DISK_ALLOCATE, first, 0, 8), SHOAL_OK);
    assert_int_equal(space_left(disk), 2 * BLOCK);
    assert_int_equal(range_do(disk, SH_DISK_ALLOCATE, second, 0, 3), SHOAL_ENOSPC);
    assert_int_equal(write_bytes(disk, second, 0, 'b', 3 * BLOCK), SHOAL_ENOSPC);
    assert_int_equal(write_bytes(disk, second, 7 * BLOCK, 'b', 2 * BLOCK), SHOAL_OK);
    assert_int_equal(space_left(disk), 0);
    assert_int_equal(write_bytes(disk, second, 0, 'b', 1), SHOAL_ENOSPC);
    assert_int_equal(write_bytes(disk, first, 0, 'a', 8 * BLOCK), SHOAL_OK);
    assert_int_equal(range_do(disk, SH_DISK_DISCARD, first, 2, 3), SHOAL_OK);
    assert_int_equal(space_left(disk), 3 * BLOCK);
    assert_int_equal(write_bytes(disk, second, 0, 'b', 3 * BLOCK), SHOAL_OK);
    assert_int_equal(write_bytes(disk, first, 2 * BLOCK, 'a', 1), SHOAL_ENOSPC);
    uint8_t bytes[8 * BLOCK];
    assert_int_equal(read_bytes(disk, first, bytes, sizeof bytes), sizeof bytes);
    for (unsigned i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], i / BLOCK >= 2 && i / BLOCK < 5 ? 0 : 'a');
    faults.write_err_ppm = SH_PRNG_MILLION;
    sh_world_disk_faults_set(world, &faults);
    assert_int_equal(range_do(disk, SH_DISK_DISCARD, second, 0, 1), SHOAL_EIO);
    sh_world_destroy(world);
}

/* A discard without a sync leaves old bytes or zeros; one under way at the crash, too. */
static void discards_are_safe_once_synced(void **state)
{
    (void)state;
    static uint8_t bytes[40 * BLOCK];
    struct sh_disk_faults faults = {
        .delay_ns_min = MS, .delay_ns_max = MS, .survive_ppm = SH_PRNG_MILLION / 2};
    struct sh_disk *disk;
    struct sh_world *world = make_world(4, &faults, &disk);
    unsigned zeros[4] = {0}, done = 0;
    int file = open_file(disk, "a");
    assert_int_equal(sync_names(disk), SHOAL_OK);
    assert_int_equal(write_bytes(disk, file, 0, 'a', sizeof bytes), SHOAL_OK);
    assert_int_equal(sync_file(disk, file), SHOAL_OK);
    assert_int_equal(range_do(disk, SH_DISK_DISCARD, file, 0, 10), SHOAL_OK);
    assert_int_equal(sync_file(disk, file), SHOAL_OK);
    assert_int_equal(range_do(disk, SH_DISK_DISCARD, file, 10, 10), SHOAL_OK);
    struct sh_disk_op op = {.kind = SH_DISK_DISCARD,
                            .file = file,
                            .offset = 20 * BLOCK,
                            .size = 10 * BLOCK,
                            .done = count_done,
                            .arg = &done};
    assert_int_equal(sh_disk_submit(disk, &op), SHOAL_OK);
    crash_and_restart(world);
    assert_int_equal(done, 0);
    file = open_file(disk, "a");
    assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), sizeof bytes);
    for (unsigned i = 0; i < 40; i++) {
        zeros[i / 10] += bytes[i * BLOCK] == 0;
        for (unsigned k = 0; k < BLOCK; k++)
            assert_true(bytes[i * BLOCK + k] == bytes[i * BLOCK] &&
                        (bytes[i * BLOCK] == 0 || bytes[i * BLOCK] == 'a'));
    }
    assert_int_equal(zeros[0], 10);
    assert_in_range(zeros[1], 1, 9);
    assert_in_range(zeros[2], 1, 9);
    assert_int_equal(zeros[3], 0);
    sh_world_destroy(world);
}

static void trouble_of_one_disk_begins_and_ends(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {0};
    struct sh_disk *disk;
    struct sh_world *world = make_world(3, &faults, &disk);
    int file = open_file(disk, "a");
    assert_int_equal(write_bytes(disk, file, 0, 'a', 100), SHOAL_OK);
    sh_world_disk_trouble_set(world, 0, SH_DISK_FULL);
    assert_int_equal(sh_world_disk_trouble(world, 0), SH_DISK_FULL);
    assert_int_equal(write_bytes(disk, file, 100, 'b', 1), SHOAL_ENOSPC);
    assert_int_equal(write_bytes(disk, file, 0, 'b', 100), SHOAL_OK); /* within its size */
    sh_world_disk_trouble_set(world, 0, SH_DISK_FAILS);
    unsigned failed = 0;
    for (unsigned i = 0; i < 100; i++) {
        enum shoal_err err = write_bytes(disk, file, 0, 'c', 100);
        assert_true(err == SHOAL_OK || err == SHOAL_EIO);
        failed += err == SHOAL_EIO;
    }
    assert_in_range(failed, 1, 99);
    sh_world_disk_trouble_set(world, 0, SH_DISK_WELL);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(write_bytes(disk, file, 100, 'd', 100), SHOAL_OK);
    assert_int_equal(sh_world_disk_trouble(world, 0), SH_DISK_WELL);
    sh_world_destroy(world);
}

static void a_bit_is_flipped_and_back(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {0};
    struct sh_disk *disk;
    struct sh_world *world = make_world(4, &faults, &disk);
    assert_int_equal(write_bytes(disk, open_file(disk, "a"), 0, 'a', 100), SHOAL_OK);
    assert_int_equal(sync_file(disk, open_file(disk, "a")), SHOAL_OK);
    assert_int_equal(sync_names(disk), SHOAL_OK);
    uint8_t wanted[100], bytes[100];
    memset(wanted, 'a', sizeof wanted);
    for (unsigned i = 0; i < 2; i++) {
        crash_and_restart(world);
        sh_world_disk_flip(world, 0, "a", 8 * 99 + 1);
        wanted[99] ^= 2;
        assert_int_equal(read_bytes(disk, open_file(disk, "a"), bytes, sizeof bytes), 100);
        assert_memory_equal(bytes, wanted, sizeof bytes);
    }
    sh_world_destroy(world);
}

static void a_lost_disk_has_nothing(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {0};
    struct sh_disk *disk;
    int file;
    struct sh_world *world = make_world(4, &faults, &disk);
    assert_int_equal(write_bytes(disk, open_file(disk, "a"), 0, 'a', 100), SHOAL_OK);
    assert_int_equal(sync_file(disk, open_file(disk, "a")), SHOAL_OK);
    assert_int_equal(sync_names(disk), SHOAL_OK);
    sh_world_crash(world, 0);
    sh_world_disk_lose(world, 0);
    sh_world_restart(world, 0);
    assert_int_equal(sh_disk_open(disk, "a", false, &file), SHOAL_ENONAME);
    assert_int_equal(write_bytes(disk, open_file(disk, "a"), 0, 'b', 10), SHOAL_OK);
    sh_world_destroy(world);
}

static void errors_and_flips_happen_by_chance(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {
        .read_err_ppm = 100000, .write_err_ppm = 100000, .again_ppm = 200000, .flip_ppm = 200000};
    struct sh_disk *disk;
    struct sh_world *world = make_world(77, &faults, &disk);
    int file = open_file(disk, "a");
    unsigned write_errors = 0;
    unsigned read_errors = 0;
    unsigned flips = 0;
    for (unsigned i = 0; i < 500; i++) {
        uint8_t bytes[100];
        if (write_bytes(disk, file, 0, (uint8_t)i, sizeof bytes)) {
            write_errors++;
            continue;
        }
        struct sh_disk_op op = {
            .kind = SH_DISK_READ, .file = file, .data = bytes, .size = sizeof bytes};
        if (run_op(disk, &op)) {
            assert_int_equal(op.err, SHOAL_EIO);
            read_errors++;
            continue;
        }
        unsigned wrong = 0;
        for (unsigned k = 0; k < sizeof bytes; k++)
            wrong += (unsigned)__builtin_popcount(bytes[k] ^ (uint8_t)i);
        assert_true(wrong <= 1);
        flips += wrong;
    }
    assert_in_range(write_errors, 25, 80);
    assert_in_range(read_errors, 20, 75);
    assert_in_range(flips, 45, 125);
    sh_world_destroy(world);
}

/* After a failed sync the bytes are still read, and no later sync makes them safe. */
static void failed_sync_is_never_made_good(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {.sync_err_ppm = SH_PRNG_MILLION};
    struct sh_disk *disk;
    struct sh_world *world = make_world(5, &faults, &disk);
    int file = open_file(disk, "a");
    assert_int_equal(write_bytes(disk, file, 0, 'a', 100), SHOAL_OK);
    assert_int_equal(sync_file(disk, file), SHOAL_EIO);
    assert_int_equal(sync_names(disk), SHOAL_EIO);
    faults.sync_err_ppm = 0;
    sh_world_disk_faults_set(world, &faults);
    assert_int_equal(sync_file(disk, file), SHOAL_OK);
    assert_int_equal(sync_names(disk), SHOAL_OK);
    uint8_t bytes[100];
    assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), 100);
    crash_and_restart(world);
    file = open_file(disk, "a");
    assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), 0);
    sh_world_destroy(world);
}

static enum shoal_err write_synced(struct sh_disk *disk, int file, uint64_t offset, uint8_t fill,
                                   size_t size)
{
    uint8_t bytes[4 * SECTOR];
    memset(bytes, fill, sizeof bytes);
    struct sh_disk_op op = {
        .kind = SH_DISK_WRITE_SYNC, .file = file, .offset = offset, .data = bytes, .size = size};
    enum shoal_err err = run_op(disk, &op);
    assert_int_equal(op.done_bytes, err ? 0 : size);
    return err;
}

/* A synced write survives, what was written elsewhere before need not; one that fails is never made
 * good. */
static void synced_write_covers_its_place_alone(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {0};
    struct sh_disk *disk;
    struct sh_world *world = make_world(5, &faults, &disk);
    int file = open_file(disk, "a");
    assert_int_equal(sync_names(disk), SHOAL_OK);
    assert_int_equal(write_bytes(disk, file, 0, 'u', SECTOR), SHOAL_OK);
    assert_int_equal(write_bytes(disk, file, SECTOR, 'v', SECTOR), SHOAL_OK);
    assert_int_equal(write_synced(disk, file, SECTOR + 1, 's', SECTOR - 1), SHOAL_OK);
    faults.sync_err_ppm = SH_PRNG_MILLION;
    sh_world_disk_faults_set(world, &faults);
    assert_int_equal(write_synced(disk, file, 2 * SECTOR, 'f', SECTOR), SHOAL_EIO);
    faults.sync_err_ppm = 0;
    faults.quota_bytes = 3 * SECTOR;
    sh_world_disk_faults_set(world, &faults);
    assert_int_equal(write_synced(disk, file, 3 * SECTOR, 'n', SECTOR), SHOAL_ENOSPC);
    crash_and_restart(world);
    uint8_t bytes[4 * SECTOR];
    file = open_file(disk, "a");
    assert_int_equal(read_bytes(disk, file, bytes, sizeof bytes), 2 * SECTOR);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(bytes[SECTOR], 'v');
    assert_int_equal(bytes[SECTOR + 1], 's');
    assert_int_equal(bytes[2 * SECTOR - 1], 's');
    sh_world_destroy(world);
}

static void too_many_operations_are_refused(void **state)
{
    (void)state;
    struct sh_disk_faults faults = {.delay_ns_min = MS, .delay_ns_max = MS};
    struct sh_disk *disk;
    struct sh_world *world = make_world(5, &faults, &disk);
    struct sh_disk_op ops[SH_SIM_DISK_OPS_MAX + 1];
    unsigned done = 0;
    for (unsigned i = 0; i <= SH_SIM_DISK_OPS_MAX; i++) {
        ops[i] = (struct sh_disk_op){.kind = SH_DISK_SYNC_DIR, .done = count_done, .arg = &done};
        assert_int_equal(sh_disk_submit(disk, &ops[i]),
                         i < SH_SIM_DISK_OPS_MAX ? SHOAL_OK : SHOAL_EAGAIN);
    }
    (void)sh_world_run_until(world, NULL, NULL, 2 * MS);
    assert_int_equal(sh_disk_poll(disk, false), SH_SIM_DISK_OPS_MAX);
    assert_int_equal(done, SH_SIM_DISK_OPS_MAX);
    sh_world_destroy(world);
}

static void claims_keep_others_away(void **state)
{
    (void)state;
    struct sh_disk *disk;
    struct sh_disk_faults faults = {.delay_ns_min = MS, .delay_ns_max = MS};
    struct sh_world *world = make_world(6, &faults, &disk);
    int file = open_file(disk, "a"), second;
    uint64_t bytes;
    assert_int_equal(write_bytes(disk, file, 0, 'l', 4), SHOAL_OK);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->claim(disk, "a", &file), SHOAL_OK);
    assert_int_equal(disk->ops->size(disk, file, &bytes), SHOAL_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(disk->ops->claim(disk, "a", &second), SHOAL_EBUSY);
    assert_int_equal(disk->ops->rename(disk, "a", "b"), SHOAL_OK);
    assert_int_equal(disk->ops->claim(disk, "b", &second), SHOAL_EBUSY);
    assert_int_equal(disk->ops->claim(disk, "a", &second), SHOAL_OK);
    disk->ops->close(disk, second);
    assert_int_equal(disk->ops->claim(disk, "a", &second), SHOAL_OK);
    /* Nobody is left after a crash. */
    crash_and_restart(world);
    assert_int_equal(disk->ops->claim(disk, "a", &file), SHOAL_OK);
    sh_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_are_read_back),
        cmocka_unit_test(operations_take_virtual_time_and_overtake),
        cmocka_unit_test(synced_writes_survive_and_others_may_not),
        cmocka_unit_test(sync_covers_only_earlier_writes),
        cmocka_unit_test(writes_under_way_at_a_crash_call_nobody),
        cmocka_unit_test(rename_replaces_atomically),
        cmocka_unit_test(removed_and_renamed_names),
        cmocka_unit_test(full_disk_says_so_and_changes_nothing),
        cmocka_unit_test(space_is_reserved_and_given_back),
        cmocka_unit_test(discards_are_safe_once_synced),
        cmocka_unit_test(trouble_of_one_disk_begins_and_ends),
        cmocka_unit_test(a_bit_is_flipped_and_back),
        cmocka_unit_test(a_lost_disk_has_nothing),
        cmocka_unit_test(errors_and_flips_happen_by_chance),
        cmocka_unit_test(failed_sync_is_never_made_good),
        cmocka_unit_test(synced_write_covers_its_place_alone),
        cmocka_unit_test(too_many_operations_are_refused),
        cmocka_unit_test(claims_keep_others_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
