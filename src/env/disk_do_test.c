/* Operations that their caller waits for, beside others of the same disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "env/disk.h"

#define OTHERS_MAX 1000

static void count_done(struct sh_disk_op *op)
{
    ++*(unsigned *)op->arg;
}

/* The disk is full of others' operations: these complete first, and their callers are told. */
static void waits_beside_others(void **state)
{
    (void)state;
    static struct sh_disk_op others[OTHERS_MAX];
    struct sh_disk *disk;
    unsigned submitted = 0, done = 0;
    int file;
    char bytes[] = "waited for";
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    assert_int_equal(sh_disk_open(disk, "a", true, &file), SHOAL_OK);
    for (enum shoal_err err = SHOAL_OK; !err && submitted < OTHERS_MAX; submitted += !err) {
        others[submitted] = (struct sh_disk_op){
            .kind = SH_DISK_SYNC, .file = file, .done = count_done, .arg = &done};
        err = sh_disk_submit(disk, &others[submitted]);
    }
    assert_in_range(submitted, 1, OTHERS_MAX - 1);
    struct sh_disk_op op = {
        .kind = SH_DISK_WRITE, .file = file, .data = bytes, .size = sizeof bytes};
    assert_int_equal(sh_disk_do(disk, &op), SHOAL_OK);
    assert_int_equal(op.done_bytes, sizeof bytes);
    assert_int_equal(done, submitted);
    disk->ops->destroy(disk);
}

/* A disk that says what it was told to, and may forget an operation. */
struct odd {
    struct sh_disk base;
    enum shoal_err refusal, err;
    bool forgets;
    struct sh_disk_op *op;
};

static enum shoal_err odd_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct odd *odd = (struct odd *)disk;
    if (!odd->refusal && !odd->forgets)
        odd->op = op;
    return odd->refusal;
}

static unsigned odd_poll(struct sh_disk *disk, bool wait)
{
    struct odd *odd = (struct odd *)disk;
    struct sh_disk_op *op = odd->op;
    assert_true(wait);
    odd->op = NULL;
    if (!op)
        return 0;
    op->err = odd->err;
    op->done(op);
    return 1;
}

static void says_why_not(void **state)
{
    (void)state;
    static const struct sh_disk_ops ops = {.submit = odd_submit, .poll = odd_poll};
    struct odd odd = {.base = {&ops}, .err = SHOAL_ENOSPC};
    struct sh_disk_op op = {.kind = SH_DISK_SYNC};
    assert_int_equal(sh_disk_do(&odd.base, &op), SHOAL_ENOSPC);
    odd.err = SHOAL_OK;
    assert_int_equal(sh_disk_do(&odd.base, &op), SHOAL_OK);
    odd.forgets = true;
    assert_int_equal(sh_disk_do(&odd.base, &op), SHOAL_EIO);
    odd.refusal = SHOAL_ENOMEM;
    assert_int_equal(sh_disk_do(&odd.base, &op), SHOAL_ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_beside_others),
        cmocka_unit_test(says_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
