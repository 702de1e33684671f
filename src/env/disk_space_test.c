/* Space that is given back, reserved and counted: on the real disk, on io_uring and on its worker, with and
 * without O_DIRECT, and in memory. sim/disk_test.c has the simulated one. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "env/disk.h"
#include "env/disk_int.h"
#include "env/refuse_test.h"

#define BLOCK_BYTES SH_DISK_RANGE_BYTES
#define BLOCKS 64u
#define FOLDER_BYTES 256

struct variant {
    bool is_memory, uring, direct;
};

static char root[FOLDER_BYTES];
static uint8_t blocks[BLOCKS * BLOCK_BYTES] __attribute__((aligned(BLOCK_BYTES)));
static uint8_t back[BLOCKS * BLOCK_BYTES] __attribute__((aligned(BLOCK_BYTES)));

static int make_root(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/shoal-space-XXXXXX", base ? base : "/tmp");
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (uint8_t)(1 + i % 251);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return rmdir(root);
}

static struct sh_disk *open_disk(const struct variant *variant)
{
    struct sh_disk *disk;
    enum shoal_err err = variant->is_memory
                             ? sh_memory_disk_create(&disk)
                             : sh_real_disk_create_as(root, variant->direct, variant->uring, &disk);
    assert_int_equal(err, SHOAL_OK);
    return disk;
}

static struct sh_disk_op op_of(enum sh_disk_kind kind, int file, unsigned first, unsigned count)
{
    bool is_read = kind == SH_DISK_READ;
    bool has_data = is_read || kind == SH_DISK_WRITE || kind == SH_DISK_WRITE_SYNC;
    return (struct sh_disk_op){.kind = kind,
                               .file = file,
                               .offset = (uint64_t)first * BLOCK_BYTES,
                               .data = !has_data ? NULL
                                                 : (is_read ? back : blocks) + first * BLOCK_BYTES,
                               .size = (size_t)count * BLOCK_BYTES};
}

/* Does it, which succeeds; how many blocks were done. */
static size_t done_of(struct sh_disk *disk, enum sh_disk_kind kind, int file, unsigned first,
                      unsigned count)
{
    struct sh_disk_op op = op_of(kind, file, first, count);
    assert_int_equal(sh_disk_do(disk, &op), SHOAL_OK);
    return op.done_bytes / BLOCK_BYTES;
}

static uint64_t size_of(struct sh_disk *disk, int file)
{
    uint64_t bytes;
    assert_int_equal(disk->ops->size(disk, file, &bytes), SHOAL_OK);
    return bytes;
}

/* The bytes that a file takes; not of one in memory. */
static uint64_t space_of(const struct variant *variant, int file)
{
    struct stat facts;
    if (variant->is_memory)
        return 0;
    assert_int_equal(fstat(file, &facts), 0);
    return (uint64_t)facts.st_blocks * 512;
}

static void zeros_at(unsigned first, unsigned count)
{
    static const uint8_t zeros[BLOCK_BYTES];
    for (unsigned i = first; i < first + count; i++)
        assert_memory_equal(back + (size_t)i * BLOCK_BYTES, zeros, BLOCK_BYTES);
}

static void same_at(unsigned first, unsigned count)
{
    size_t at = (size_t)first * BLOCK_BYTES;
    assert_memory_equal(back + at, blocks + at, (size_t)count * BLOCK_BYTES);
}

static void discarded_space_comes_back(void **state)
{
    const struct variant *variant = *state;
    struct sh_disk *disk = open_disk(variant);
    int file;
    assert_int_equal(sh_disk_open(disk, "a", true, &file), SHOAL_OK);
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, 0, BLOCKS), BLOCKS);
    (void)done_of(disk, SH_DISK_SYNC, file, 0, 0);
    uint64_t before = space_of(variant, file);
    size_t done = done_of(disk, SH_DISK_DISCARD, file, 16, 32);
    (void)done_of(disk, SH_DISK_SYNC, file, 0, 0);
    assert_true(done == 32 || done == 0);
    if (done && before)
        assert_true(space_of(variant, file) + 32ul * BLOCK_BYTES <= before);
    assert_int_equal(done_of(disk, SH_DISK_READ, file, 0, BLOCKS), BLOCKS);
    same_at(0, 16);
    if (done)
        zeros_at(16, 32);
    same_at(48, 16);
    /* Written again it is what it was. */
    assert_int_equal(done_of(disk, SH_DISK_WRITE_SYNC, file, 16, 32), 32);
    assert_int_equal(done_of(disk, SH_DISK_READ, file, 0, BLOCKS), BLOCKS);
    same_at(0, BLOCKS);
    /* At the end, and beyond it, the size stays. */
    (void)done_of(disk, SH_DISK_DISCARD, file, BLOCKS - 1, 2);
    (void)done_of(disk, SH_DISK_DISCARD, file, 2 * BLOCKS, 2);
    assert_int_equal(size_of(disk, file), sizeof blocks);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "a"), SHOAL_OK);
    disk->ops->destroy(disk);
    if (!done)
        skip(); /* this file system has no holes */
}

static void reserved_space_is_there(void **state)
{
    const struct variant *variant = *state;
    struct sh_disk *disk = open_disk(variant);
    int file;
    assert_int_equal(sh_disk_open(disk, "a", true, &file), SHOAL_OK);
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, 0, 1), 1);
    size_t done = done_of(disk, SH_DISK_ALLOCATE, file, 0, BLOCKS);
    assert_true(done == BLOCKS || done == 0);
    assert_int_equal(size_of(disk, file), done ? sizeof blocks : BLOCK_BYTES);
    if (done) {
        assert_true(variant->is_memory || space_of(variant, file) >= sizeof blocks);
        assert_int_equal(done_of(disk, SH_DISK_READ, file, 0, BLOCKS), BLOCKS);
        same_at(0, 1);
        zeros_at(1, BLOCKS - 1);
    }
    /* What is there already stays, and so does the size. */
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, 0, BLOCKS), BLOCKS);
    (void)done_of(disk, SH_DISK_ALLOCATE, file, 3, 4);
    assert_int_equal(done_of(disk, SH_DISK_READ, file, 0, BLOCKS), BLOCKS);
    same_at(0, BLOCKS);
    assert_int_equal(size_of(disk, file), sizeof blocks);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "a"), SHOAL_OK);
    disk->ops->destroy(disk);
    if (!done)
        skip(); /* this file system reserves nothing */
}

static void space_is_counted(void **state)
{
    const struct variant *variant = *state;
    struct sh_disk *disk = open_disk(variant);
    uint64_t bytes, left;
    assert_int_equal(sh_disk_space(disk, &bytes, &left), SHOAL_OK);
    if (variant->is_memory) {
        assert_true(bytes == UINT64_MAX && left == UINT64_MAX);
    } else {
        struct statvfs facts;
        assert_int_equal(statvfs(root, &facts), 0);
        assert_true(bytes == (uint64_t)facts.f_blocks * facts.f_frsize);
        assert_true(left < bytes);
    }
    disk->ops->destroy(disk);
}

/* A tmpfs says at once when it has less than what is to be reserved; others try. */
static void full_disk_is_reported_at_once(void **state)
{
    const struct variant *variant = *state;
    char folder[] = "/dev/shm/shoal-space-XXXXXX";
    struct statfs facts;
    if (statfs("/dev/shm", &facts) || facts.f_type != TMPFS_MAGIC || !facts.f_blocks ||
        !mkdtemp(folder))
        skip();
    struct sh_disk *disk;
    int file;
    uint64_t bytes, left;
    assert_int_equal(sh_real_disk_create_as(folder, variant->direct, variant->uring, &disk),
                     SHOAL_OK);
    assert_int_equal(sh_disk_space(disk, &bytes, &left), SHOAL_OK);
    assert_int_equal(sh_disk_open(disk, "a", true, &file), SHOAL_OK);
    struct sh_disk_op op = op_of(SH_DISK_ALLOCATE, file, 0, 1);
    op.size = (size_t)(bytes / BLOCK_BYTES + 1) * BLOCK_BYTES;
    assert_int_equal(sh_disk_do(disk, &op), SHOAL_ENOSPC);
    assert_int_equal(op.done_bytes, 0);
    assert_int_equal(size_of(disk, file), 0);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "a"), SHOAL_OK);
    disk->ops->destroy(disk);
    assert_int_equal(rmdir(folder), 0);
}

/* Some file systems have no such operations. */
static int use_disk_without(void)
{
    struct sh_disk *disk;
    int file;
    uint64_t bytes;
    if (!test_refuse(__NR_fallocate, false, 0, EOPNOTSUPP))
        return TEST_NO_FILTERS;
    if (sh_real_disk_create_as(root, false, false, &disk) || sh_disk_open(disk, "a", true, &file))
        return 1;
    struct sh_disk_op write = op_of(SH_DISK_WRITE, file, 0, 4);
    struct sh_disk_op discard = op_of(SH_DISK_DISCARD, file, 1, 2);
    struct sh_disk_op allocate = op_of(SH_DISK_ALLOCATE, file, 0, BLOCKS);
    struct sh_disk_op read = op_of(SH_DISK_READ, file, 0, 4);
    if (sh_disk_do(disk, &write) || sh_disk_do(disk, &discard) || sh_disk_do(disk, &allocate) ||
        sh_disk_do(disk, &read))
        return 2;
    if (discard.done_bytes || allocate.done_bytes || read.done_bytes != 4ul * BLOCK_BYTES)
        return 3;
    if (memcmp(back, blocks, 4ul * BLOCK_BYTES) != 0)
        return 4;
    if (disk->ops->size(disk, file, &bytes) || bytes != 4ul * BLOCK_BYTES)
        return 5;
    disk->ops->close(disk, file);
    if (disk->ops->remove(disk, "a"))
        return 6;
    disk->ops->destroy(disk);
    return 0;
}

static void what_the_disk_lacks_changes_nothing(void **state)
{
    (void)state;
    test_in_child(use_disk_without);
}

static struct variant memory = {.is_memory = true};
static struct variant uring_cached = {.uring = true};
static struct variant uring_direct = {.uring = true, .direct = true};
static struct variant worker_cached;
static struct variant worker_direct = {.direct = true};

#define REAL(test)                                                                                 \
    {#test " uring cached", test, NULL, NULL, &uring_cached},                                      \
        {#test " uring direct", test, NULL, NULL, &uring_direct},                                  \
        {#test " worker cached", test, NULL, NULL, &worker_cached},                                \
    {                                                                                              \
#test " worker direct", test, NULL, NULL, &worker_direct                                   \
    }
#define ALL(test)                                                                                  \
    REAL(test),                                                                                    \
    {                                                                                              \
#test " memory", test, NULL, NULL, &memory                                                 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(discarded_space_comes_back),
        ALL(reserved_space_is_there),
        ALL(space_is_counted),
        REAL(full_disk_is_reported_at_once),
        cmocka_unit_test(what_the_disk_lacks_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
