/* A disk for tests: another one, whose syncs the test holds back, or all of whose writes fail. */
#ifndef SH_NODE_GATE_TEST_H
#define SH_NODE_GATE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "env/disk.h"

struct gate {
    struct sh_disk base;
    struct sh_disk *inner;
    bool holds;
    bool fails;
    struct sh_disk_op *held[64], *failed[64];
    unsigned count, failed_count;
};

static inline enum shoal_err gate_open_file(struct sh_disk *disk, const char *name, bool create,
                                            int *out)
{
    struct gate *gate = (struct gate *)disk;
    return gate->inner->ops->open(gate->inner, name, create, out);
}

static inline enum shoal_err gate_claim(struct sh_disk *disk, const char *name, int *out)
{
    struct gate *gate = (struct gate *)disk;
    return gate->inner->ops->claim(gate->inner, name, out);
}

static inline void gate_close_file(struct sh_disk *disk, int file)
{
    struct gate *gate = (struct gate *)disk;
    gate->inner->ops->close(gate->inner, file);
}

static inline enum shoal_err gate_size(struct sh_disk *disk, int file, uint64_t *out)
{
    struct gate *gate = (struct gate *)disk;
    return gate->inner->ops->size(gate->inner, file, out);
}

static inline enum shoal_err gate_rename(struct sh_disk *disk, const char *from, const char *to)
{
    struct gate *gate = (struct gate *)disk;
    return gate->inner->ops->rename(gate->inner, from, to);
}

static inline enum shoal_err gate_remove(struct sh_disk *disk, const char *name)
{
    struct gate *gate = (struct gate *)disk;
    return gate->inner->ops->remove(gate->inner, name);
}

static inline enum shoal_err gate_space(struct sh_disk *disk, uint64_t *bytes_out,
                                        uint64_t *free_out)
{
    struct gate *gate = (struct gate *)disk;
    return gate->inner->ops->space(gate->inner, bytes_out, free_out);
}

static inline enum shoal_err gate_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct gate *gate = (struct gate *)disk;
    bool is_sync = op->kind == SH_DISK_SYNC || op->kind == SH_DISK_WRITE_SYNC;
    if (gate->fails && (sh_disk_is_write(op) || is_sync)) {
        assert_true(gate->failed_count < 64);
        gate->failed[gate->failed_count++] = op;
        return SHOAL_OK;
    }
    if (!gate->holds || !is_sync)
        return gate->inner->ops->submit(gate->inner, op);
    assert_true(gate->count < 64);
    gate->held[gate->count++] = op;
    return SHOAL_OK;
}

static inline unsigned gate_poll(struct sh_disk *disk, bool wait)
{
    struct gate *gate = (struct gate *)disk;
    unsigned failed = gate->failed_count;
    gate->failed_count = 0;
    for (unsigned i = 0; i < failed; i++) {
        struct sh_disk_op *op = gate->failed[i];
        op->err = SHOAL_EIO;
        op->done_bytes = 0;
        op->done(op);
    }
    return failed + gate->inner->ops->poll(gate->inner, wait);
}

static inline void gate_hold(struct gate *gate, bool holds)
{
    gate->holds = holds;
    for (unsigned i = 0; !holds && i < gate->count; i++)
        assert_int_equal(gate->inner->ops->submit(gate->inner, gate->held[i]), SHOAL_OK);
    if (!holds)
        gate->count = 0;
}

static const struct sh_disk_ops gate_ops = {.open = gate_open_file,
                                            .claim = gate_claim,
                                            .close = gate_close_file,
                                            .size = gate_size,
                                            .rename = gate_rename,
                                            .remove = gate_remove,
                                            .space = gate_space,
                                            .submit = gate_submit,
                                            .poll = gate_poll};

#endif
