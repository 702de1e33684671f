#include "bench/disk_base.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "env/env.h"

#define FILE_NAME "raw"
#define EACH_BYTES (UINT64_C(8) << 20)
#define IN_FLIGHT 4
#define BLOCK_BYTES 4096u

struct raw {
    struct sh_disk *disk;
    enum sh_disk_kind kind; /* WRITE, READ */
    int file;
    uint8_t *bytes;
    uint64_t file_bytes, left, offset;
    unsigned in_flight;
    enum shoal_err err; /* the first one */
    struct sh_disk_op ops[IN_FLIGHT];
};

static void submit(struct raw *raw, struct sh_disk_op *op)
{
    raw->in_flight++;
    enum shoal_err err = sh_disk_submit(raw->disk, op);
    if (!err)
        return;
    raw->in_flight--;
    raw->err = raw->err ? raw->err : err;
}

/* Writes, or reads, what comes next, if there is more. */
static void go_on(struct raw *raw, struct sh_disk_op *op)
{
    uint64_t size = raw->left < EACH_BYTES ? raw->left : EACH_BYTES;
    if (!size || raw->err)
        return;
    if (raw->offset + size > raw->file_bytes)
        raw->offset = 0;
    *op = (struct sh_disk_op){.kind = raw->kind,
                              .file = raw->file,
                              .offset = raw->offset,
                              .data = raw->bytes,
                              .size = size,
                              .done = op->done,
                              .arg = raw};
    raw->offset += size;
    raw->left -= size;
    submit(raw, op);
}

static void on_done(struct sh_disk_op *op)
{
    struct raw *raw = op->arg;
    raw->in_flight--;
    if (!raw->err && (op->err || op->done_bytes != op->size))
        raw->err = op->err ? op->err : SHOAL_EIO;
    if (op->kind == raw->kind)
        go_on(raw, op);
}

static enum shoal_err all_do(struct raw *raw, enum sh_disk_kind kind, uint64_t bytes)
{
    raw->kind = kind;
    raw->left = bytes;
    raw->offset = 0;
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        raw->ops[i].done = on_done;
        go_on(raw, &raw->ops[i]);
    }
    while (raw->in_flight)
        (void)sh_disk_poll(raw->disk, true);
    return raw->err;
}

static enum shoal_err raw_write(struct raw *raw, uint64_t bytes)
{
    enum shoal_err err = all_do(raw, SH_DISK_WRITE, bytes);
    raw->ops[0] =
        (struct sh_disk_op){.kind = SH_DISK_SYNC, .file = raw->file, .done = on_done, .arg = raw};
    if (!err)
        submit(raw, &raw->ops[0]);
    while (raw->in_flight)
        (void)sh_disk_poll(raw->disk, true);
    return raw->err;
}

static enum shoal_err raw_measure(struct raw *raw, const struct sh_log_plan *plan, bool reads,
                                  struct sh_bench_result *result_out)
{
    enum shoal_err err = sh_disk_open(raw->disk, FILE_NAME, true, &raw->file);
    if (err)
        return err;
    for (uint64_t i = 0; i < EACH_BYTES; i++)
        raw->bytes[i] = plan->source[i % SH_LOG_SOURCE_BYTES];
    if (reads)
        err = raw_write(raw, plan->run_bytes);
    uint64_t begin_ns = sh_bench_now_ns(), cpu_ns = sh_bench_cpu_ns();
    if (!err)
        err = reads ? all_do(raw, SH_DISK_READ, plan->run_bytes) : raw_write(raw, plan->run_bytes);
    result_out->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->ops = plan->run_ops;
    result_out->bytes = plan->run_bytes;
    result_out->digest = plan->run_bytes;
    raw->disk->ops->close(raw->disk, raw->file);
    return err;
}

static enum shoal_err run_of(const struct sh_log_plan *plan, bool reads,
                             enum sh_placement placement, struct sh_bench_result *result_out)
{
    uint64_t file_bytes = sh_log_plan_file_bytes(plan);
    struct raw raw = {.file_bytes = file_bytes > EACH_BYTES ? file_bytes : EACH_BYTES};
    SH_ASSERT(plan->run_ops > 0 && plan->run_bytes % BLOCK_BYTES == 0);
    sh_bench_pin(placement, 0);
    raw.bytes = aligned_alloc(BLOCK_BYTES, EACH_BYTES);
    if (!raw.bytes)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_real_disk_create(plan->folder, true, &raw.disk);
    if (!err) {
        err = raw_measure(&raw, plan, reads, result_out);
        (void)raw.disk->ops->remove(raw.disk, FILE_NAME); /* the folder goes anyway */
        raw.disk->ops->destroy(raw.disk);
    }
    free(raw.bytes);
    return err;
}

enum shoal_err sh_disk_base_run(void *arg, const struct sh_bench_flags *flags,
                                enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return run_of(arg, false, placement, result_out);
}

enum shoal_err sh_disk_base_read_run(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out)
{
    (void)flags;
    return run_of(arg, true, placement, result_out);
}
