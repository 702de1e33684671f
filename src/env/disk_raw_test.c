/* A disk of one file: a regular one, and a block device (a loop device, where the process may make one), on io_uring
 * and on the worker, with and without O_DIRECT. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/open_files_test.h"
#include "env/disk.h"
#include "env/disk_int.h"
#include "env/refuse_test.h"

#define BLOCK_BYTES SH_DISK_RANGE_BYTES
#define BLOCKS 256u
#define NAME "log"
#define PATH_BYTES 256

struct variant {
    bool uring, direct, is_device;
};

static char root[PATH_BYTES], file_path[PATH_BYTES + 16], loop_path[PATH_BYTES];
static uint8_t blocks[BLOCKS * BLOCK_BYTES] __attribute__((aligned(BLOCK_BYTES)));
static uint8_t back[BLOCKS * BLOCK_BYTES] __attribute__((aligned(BLOCK_BYTES)));
static int backing = -1, loop = -1;

static int make_root(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/shoal-raw-XXXXXX", base ? base : "/tmp");
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (uint8_t)(1 + i % 251);
    if (!mkdtemp(root))
        return -1;
    snprintf(file_path, sizeof file_path, "%s/file", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    return rmdir(root);
}

/* A loop device on the file, which goes with the last descriptor of it, however this process ends. */
static bool loop_make(void)
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (uint32_t)backing, .block_size = 4096};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    for (unsigned i = 0; control >= 0 && loop < 0 && i < 20; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        snprintf(loop_path, sizeof loop_path, "/dev/loop%d", number);
        loop = number < 0 ? -1 : open(loop_path, O_RDWR | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config)) {
            close(loop); /* another process was faster */
            loop = -1;
        }
    }
    if (control >= 0)
        close(control);
    return loop >= 0;
}

/* Each test has a file of its own. */
static int setup(void **state)
{
    (void)state;
    backing = open(file_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return backing < 0 || ftruncate(backing, sizeof blocks) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    if (loop >= 0)
        close(loop);
    close(backing);
    loop = backing = -1;
    return unlink(file_path);
}

/* The path of the variant's file or device; skips the test where there is none. */
static const char *path_of(const struct variant *variant)
{
    if (!variant->is_device)
        return file_path;
    if (loop < 0 && !loop_make())
        skip();
    return loop_path;
}

static struct sh_disk *open_disk(const struct variant *variant)
{
    struct sh_disk *disk;
    assert_int_equal(
        sh_raw_disk_create_as(path_of(variant), NAME, variant->direct, variant->uring, &disk),
        SHOAL_OK);
    return disk;
}

static int open_file(struct sh_disk *disk)
{
    int file;
    assert_int_equal(sh_disk_open(disk, NAME, true, &file), SHOAL_OK);
    return file;
}

static struct sh_disk_op op_of(enum sh_disk_kind kind, int file, unsigned first, unsigned count)
{
    return (struct sh_disk_op){.kind = kind,
                               .file = file,
                               .offset = (uint64_t)first * BLOCK_BYTES,
                               .data = kind == SH_DISK_READ ? back : blocks,
                               .size = (size_t)count * BLOCK_BYTES};
}

static size_t done_of(struct sh_disk *disk, enum sh_disk_kind kind, int file, unsigned first,
                      unsigned count)
{
    struct sh_disk_op op = op_of(kind, file, first, count);
    assert_int_equal(sh_disk_do(disk, &op), SHOAL_OK);
    return op.done_bytes / BLOCK_BYTES;
}

static void holds_what_was_written(struct sh_disk *disk, int file)
{
    assert_int_equal(done_of(disk, SH_DISK_READ, file, 0, BLOCKS), BLOCKS);
    assert_memory_equal(back, blocks, sizeof blocks);
}

static void one_file_is_the_disk(void **state)
{
    unsigned before = test_open_files();
    bool was_attached = loop >= 0;
    struct sh_disk *disk = open_disk(*state);
    uint64_t bytes, left;
    int file = open_file(disk), other;
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, 0, BLOCKS), BLOCKS);
    assert_int_equal(done_of(disk, SH_DISK_WRITE_SYNC, file, 3, 0), 0);
    (void)done_of(disk, SH_DISK_SYNC, file, 0, 0);
    (void)done_of(disk, SH_DISK_SYNC_DIR, file, 0, 0);
    /* Another open finds what is there, whether or not it would create the file. */
    other = open_file(disk);
    assert_true(other != file);
    holds_what_was_written(disk, other);
    disk->ops->close(disk, other);
    assert_int_equal(sh_disk_open(disk, NAME, false, &other), SHOAL_OK);
    disk->ops->close(disk, other);
    assert_int_equal(disk->ops->size(disk, file, &bytes), SHOAL_OK);
    assert_int_equal(bytes, sizeof blocks);
    assert_int_equal(sh_disk_space(disk, &bytes, &left), SHOAL_OK);
    assert_int_equal(bytes, sizeof blocks);
    assert_int_equal(left, 0);
    assert_int_equal(sh_disk_open(disk, "other", false, &other), SHOAL_ENONAME);
    assert_int_equal(sh_disk_open(disk, "other", true, &other), SHOAL_EINVAL);
    assert_int_equal(disk->ops->claim(disk, NAME, &other), SHOAL_EINVAL);
    assert_int_equal(disk->ops->rename(disk, NAME, "other"), SHOAL_EINVAL);
    assert_int_equal(disk->ops->remove(disk, NAME), SHOAL_EINVAL);
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
    disk = open_disk(*state);
    file = open_file(disk);
    holds_what_was_written(disk, file);
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
    assert_int_equal(test_open_files(), before + (loop >= 0 && !was_attached));
}

/* Nothing goes beyond the end, and a read ends there. */
static void it_keeps_its_size(void **state)
{
    static const enum sh_disk_kind kinds[] = {SH_DISK_WRITE, SH_DISK_WRITE_SYNC, SH_DISK_ALLOCATE,
                                              SH_DISK_DISCARD};
    struct sh_disk *disk = open_disk(*state);
    struct stat facts;
    int file = open_file(disk);
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct sh_disk_op op = op_of(kinds[i], file, BLOCKS - 1, 2);
        assert_int_equal(sh_disk_do(disk, &op), SHOAL_ENOSPC);
        op.offset = UINT64_MAX / BLOCK_BYTES * BLOCK_BYTES;
        assert_int_equal(sh_disk_do(disk, &op), SHOAL_ENOSPC);
    }
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, BLOCKS - 1, 1), 1);
    assert_int_equal(done_of(disk, SH_DISK_READ, file, BLOCKS - 1, 2), 1);
    assert_int_equal(done_of(disk, SH_DISK_READ, file, BLOCKS, 1), 0);
    assert_int_equal(fstat(backing, &facts), 0);
    assert_int_equal(facts.st_size, sizeof blocks);
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
}

static uint64_t backing_space(void)
{
    struct stat facts;
    assert_int_equal(fsync(backing), 0);
    assert_int_equal(fstat(backing, &facts), 0);
    return (uint64_t)facts.st_blocks * 512;
}

/* Space that is given back is free below: of a device, in the file that it is on. */
static void discarded_space_comes_back(void **state)
{
    struct sh_disk *disk = open_disk(*state);
    int file = open_file(disk);
    assert_int_equal(done_of(disk, SH_DISK_ALLOCATE, file, 0, BLOCKS), BLOCKS);
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, 0, BLOCKS), BLOCKS);
    (void)done_of(disk, SH_DISK_SYNC, file, 0, 0);
    uint64_t before = backing_space();
    assert_true(before >= sizeof blocks);
    /* Many at once. */
    struct sh_disk_op ops[8];
    for (unsigned i = 0; i < 8; i++) {
        ops[i] = op_of(SH_DISK_DISCARD, file, 16 * i, 16);
        if (i % 2 == 0)
            assert_int_equal(sh_disk_do(disk, &ops[i]), SHOAL_OK);
    }
    size_t done = ops[0].done_bytes;
    assert_true(done == ops[0].size || done == 0);
    (void)done_of(disk, SH_DISK_SYNC, file, 0, 0);
    assert_int_equal(done_of(disk, SH_DISK_READ, file, 0, BLOCKS), BLOCKS);
    for (unsigned i = 0; i < BLOCKS / 16; i++)
        if (i >= 8 || i % 2)
            assert_memory_equal(back + i * 16ul * BLOCK_BYTES, blocks + i * 16ul * BLOCK_BYTES,
                                16ul * BLOCK_BYTES);
    if (done)
        assert_true(backing_space() + 64ul * BLOCK_BYTES <= before);
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, 0, BLOCKS), BLOCKS);
    holds_what_was_written(disk, file);
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
    if (!done)
        skip(); /* this file system has no holes */
}

/* In a process of its own; the error is its exit status. */
static enum shoal_err error_elsewhere(const struct variant *variant, const char *path)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sh_disk *disk;
        _exit((int)sh_raw_disk_create_as(path, NAME, variant->direct, variant->uring, &disk));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (enum shoal_err)WEXITSTATUS(status);
}

static void it_has_one_user(void **state)
{
    const struct variant *variant = *state;
    struct sh_disk *disk = open_disk(variant), *second;
    const char *path = path_of(variant);
    assert_int_equal(sh_raw_disk_create_as(path, NAME, variant->direct, variant->uring, &second),
                     SHOAL_EBUSY);
    assert_int_equal(error_elsewhere(variant, path), SHOAL_EBUSY);
    disk->ops->destroy(disk);
    assert_int_equal(error_elsewhere(variant, path), SHOAL_OK);
    disk = open_disk(variant);
    disk->ops->destroy(disk);
}

#define LATE_NS 30000000

/* An operation that is under way leaves this behind when its process is killed: an open descriptor, with the lock that goes with it. */
static struct late {
    int file;
    _Atomic bool is_over;
} late;

static void *late_end(void *arg)
{
    const struct timespec a_while = {.tv_nsec = LATE_NS};
    (void)nanosleep(&a_while, NULL);
    late.is_over = true;
    close(late.file);
    return arg;
}

/* A killed process's last write is over before the next one begins. */
static void late_writes_end_first(void **state)
{
    const struct variant *variant = *state;
    pthread_t thread;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    late = (struct late){.file = open(path_of(variant), O_RDWR | O_CLOEXEC)};
    assert_true(late.file >= 0);
    assert_int_equal(fcntl(late.file, F_OFD_SETLK, &whole), 0);
    assert_int_equal(pthread_create(&thread, NULL, late_end, NULL), 0);
    struct sh_disk *disk = open_disk(variant);
    assert_true(late.is_over);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* This disk's own operations have that lock as well, through each of its descriptors. */
    int file = open_file(disk), other = open(path_of(variant), O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(file, F_OFD_SETLK, &whole), 0);
    assert_int_equal(fcntl(other, F_OFD_SETLK, &whole), -1);
    close(other);
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
}

/* Who looks has it alone, too, and changes nothing. */
static void a_look_only_reads(void **state)
{
    const struct variant *variant = *state;
    const char *path = path_of(variant);
    struct sh_disk *disk = open_disk(variant), *look;
    int file = open_file(disk);
    assert_int_equal(done_of(disk, SH_DISK_WRITE, file, 0, BLOCKS), BLOCKS);
    (void)done_of(disk, SH_DISK_SYNC, file, 0, 0);
    assert_int_equal(sh_raw_disk_look(path, NAME, &look), SHOAL_EBUSY);
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
    assert_int_equal(sh_raw_disk_look(path, NAME, &look), SHOAL_OK);
    assert_int_equal(error_elsewhere(variant, path), SHOAL_EBUSY);
    assert_int_equal(sh_disk_open(look, NAME, false, &file), SHOAL_OK);
    holds_what_was_written(look, file);
    struct sh_disk_op write = op_of(SH_DISK_WRITE, file, 0, 1);
    assert_int_equal(sh_disk_do(look, &write), SHOAL_EIO);
    holds_what_was_written(look, file);
    look->ops->close(look, file);
    look->ops->destroy(look);
}

/* Discards the second half, after which the first one must be what it was; how much was given back. */
static size_t half_discard(void)
{
    struct sh_disk *disk;
    int file;
    if (sh_raw_disk_create_as(loop_path, NAME, true, false, &disk) ||
        sh_disk_open(disk, NAME, false, &file))
        return 1;
    struct sh_disk_op write = op_of(SH_DISK_WRITE, file, 0, BLOCKS);
    struct sh_disk_op discard = op_of(SH_DISK_DISCARD, file, BLOCKS / 2, BLOCKS / 2);
    struct sh_disk_op read = op_of(SH_DISK_READ, file, 0, BLOCKS);
    if (sh_disk_do(disk, &write) || sh_disk_do(disk, &discard) || sh_disk_do(disk, &read) ||
        memcmp(back, blocks, sizeof back / 2) != 0)
        return 1;
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
    return discard.done_bytes;
}

/* A device that refuses a discard takes zeros, and if it refuses these, too, nothing happens. */
static int use_device_without(void)
{
    static const uint8_t zeros[sizeof back / 2];
    if (!test_refuse(__NR_ioctl, true, BLKDISCARD, EOPNOTSUPP))
        return TEST_NO_FILTERS;
    if (half_discard() != sizeof back / 2 || memcmp(back + sizeof zeros, zeros, sizeof zeros) != 0)
        return 1;
    if (!test_refuse(__NR_fallocate, false, 0, EOPNOTSUPP))
        return 2;
    return half_discard() != 0 || memcmp(back, blocks, sizeof back) != 0 ? 3 : 0;
}

static void devices_may_refuse(void **state)
{
    (void)path_of(*state);
    test_in_child(use_device_without);
}

static void only_files_and_devices(void **state)
{
    (void)state;
    unsigned before = test_open_files();
    char path[PATH_BYTES + 32];
    struct sh_disk *disk;
    assert_int_equal(sh_raw_disk_create(root, NAME, false, &disk), SHOAL_EINVAL);
    assert_int_equal(sh_raw_disk_create("/dev/null", NAME, false, &disk), SHOAL_EINVAL);
    snprintf(path, sizeof path, "%s/none", root);
    assert_int_equal(sh_raw_disk_create(path, NAME, false, &disk), SHOAL_ENONAME);
    assert_int_equal(test_open_files(), before);
}

static struct variant variants[] = {
    {.uring = true},
    {.uring = true, .direct = true},
    {.direct = false},
    {.direct = true},
    {.uring = true, .is_device = true},
    {.uring = true, .direct = true, .is_device = true},
    {.is_device = true},
    {.direct = true, .is_device = true},
};

#define FILES(test)                                                                                \
    {#test " uring cached", test, setup, teardown, &variants[0]},                                  \
        {#test " uring direct", test, setup, teardown, &variants[1]},                              \
        {#test " worker cached", test, setup, teardown, &variants[2]},                             \
    {                                                                                              \
#test " worker direct", test, setup, teardown, &variants[3]                                \
    }
#define DEVICES(test)                                                                              \
    {#test " uring cached device", test, setup, teardown, &variants[4]},                           \
        {#test " uring direct device", test, setup, teardown, &variants[5]},                       \
        {#test " worker cached device", test, setup, teardown, &variants[6]},                      \
    {                                                                                              \
#test " worker direct device", test, setup, teardown, &variants[7]                         \
    }
#define ALL(test) FILES(test), DEVICES(test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(one_file_is_the_disk),
        ALL(it_keeps_its_size),
        ALL(discarded_space_comes_back),
        ALL(it_has_one_user),
        ALL(a_look_only_reads),
        ALL(late_writes_end_first),
        {"devices_may_refuse", devices_may_refuse, setup, teardown, &variants[7]},
        cmocka_unit_test(only_files_and_devices),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
