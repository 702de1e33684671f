/* The slow disk: a rate that is not exceeded, and writes that come out as they went in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/bench.h"
#include "bench/slow_disk.h"

#define WRITES 60
#define RATE 2000

struct counted {
    struct sh_disk_op op;
    unsigned *done;
    uint8_t bytes[16];
};

static void count(struct sh_disk_op *op)
{
    struct counted *counted = op->arg;
    assert_int_equal(op->err, SHOAL_OK);
    assert_int_equal(op->done_bytes, op->size);
    ++*counted->done;
}

static struct sh_disk *disk_make(uint64_t rate, int *file_out)
{
    struct sh_disk *below, *disk;
    assert_int_equal(sh_memory_disk_create(&below), SHOAL_OK);
    assert_int_equal(sh_slow_disk_create(below, rate, &disk), SHOAL_OK);
    assert_int_equal(sh_disk_open(disk, "file", true, file_out), SHOAL_OK);
    return disk;
}

static void op_make(struct counted *counted, enum sh_disk_kind kind, int file, unsigned index,
                    unsigned *done)
{
    *counted = (struct counted){.done = done};
    memset(counted->bytes, (int)index, sizeof counted->bytes);
    counted->op = (struct sh_disk_op){.kind = kind,
                                      .file = file,
                                      .offset = (uint64_t)index * sizeof counted->bytes,
                                      .data = counted->bytes,
                                      .size = sizeof counted->bytes,
                                      .done = count,
                                      .arg = counted};
}

static void writes_are_paced_and_whole(void **state)
{
    (void)state;
    static struct counted counted[WRITES];
    unsigned done = 0;
    int file;
    struct sh_disk *disk = disk_make(RATE, &file);
    uint64_t begin_ns = sh_bench_now_ns();
    for (unsigned i = 0; i < WRITES; i++) {
        op_make(&counted[i], i % 2 ? SH_DISK_WRITE : SH_DISK_WRITE_SYNC, file, i, &done);
        assert_int_equal(sh_disk_submit(disk, &counted[i].op), SHOAL_OK);
    }
    while (done < WRITES)
        (void)sh_disk_poll(disk, true);
    /* But for those that one that is late may make up for. */
    uint64_t least_ns = UINT64_C(1000000000) / RATE * (WRITES - 1) - 1000000;
    assert_true(sh_bench_now_ns() - begin_ns >= least_ns);
    for (unsigned i = 0; i < WRITES; i++) {
        struct counted read;
        uint8_t expected[16];
        memset(expected, (int)i, sizeof expected);
        op_make(&read, SH_DISK_READ, file, i, &done);
        memset(read.bytes, 0xff, sizeof read.bytes);
        assert_int_equal(sh_disk_do(disk, &read.op), SHOAL_OK);
        assert_memory_equal(read.bytes, expected, sizeof expected);
    }
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
}

/* A disk that takes one write a second holds so many back, and lets all else pass. */
static void what_is_held_has_a_bound(void **state)
{
    (void)state;
    static struct counted counted[300];
    unsigned done = 0, held = 0;
    int file;
    struct sh_disk *below, *disk;
    struct sh_disk_op sync = {.kind = SH_DISK_SYNC};
    assert_int_equal(sh_memory_disk_create(&below), SHOAL_OK);
    assert_int_equal(sh_slow_disk_create(below, 1, &disk), SHOAL_OK);
    assert_int_equal(sh_disk_open(disk, "file", true, &file), SHOAL_OK);
    enum shoal_err err = SHOAL_OK;
    while (!err && held < 300) {
        op_make(&counted[held], SH_DISK_WRITE, file, held, &done);
        err = sh_disk_submit(disk, &counted[held].op);
        held += !err;
    }
    assert_int_equal(err, SHOAL_EAGAIN);
    assert_in_range(held, 256, 299);
    sync.file = file;
    assert_int_equal(sh_disk_do(disk, &sync), SHOAL_OK);
    assert_true(done < held);
    disk->ops->close(disk, file);
    disk->ops->destroy(disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_are_paced_and_whole),
        cmocka_unit_test(what_is_held_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
