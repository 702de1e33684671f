/* Giving slots away: a block is written over the head of each, and synced, so that a start does not find them as they were. */
#include "base/assert.h"
#include "log/replog_int.h"

static void on_written(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    op->giving->in_flight--;
    op->log->status.head_bytes += done->done_bytes;
    (void)sh_replog_op_end(op);
}

static void on_synced(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    struct sh_replog_giving *giving = op->giving;
    giving->in_flight--;
    giving->is_synced = !sh_replog_op_end(op);
}

static bool go(struct sh_replog_giving *giving, const struct sh_disk_op *op)
{
    struct sh_replog *log = giving->log;
    if (log->free_ops)
        log->free_ops->giving = giving;
    giving->in_flight++;
    if (sh_replog_submit(log, NULL, op))
        return true;
    giving->in_flight--;
    return false;
}

unsigned sh_replog_giving_step(struct sh_replog_giving *giving)
{
    struct sh_replog *log = giving->log;
    unsigned work = 0;
    SH_ASSERT(!giving->is_synced);
    while (giving->written < giving->count) {
        const struct sh_disk_op op = {
            .kind = SH_DISK_WRITE,
            .offset = sh_log_slot_at(&log->head, giving->slots[giving->written]),
            .data = (void *)(uintptr_t)giving->block,
            .size = SH_SLOT_HEAD_BYTES,
            .done = on_written};
        if (!go(giving, &op))
            return work;
        giving->written++;
        work++;
    }
    const struct sh_disk_op op = {.kind = SH_DISK_SYNC, .done = on_synced};
    if (giving->in_flight || !go(giving, &op))
        return work;
    return work + 1;
}
