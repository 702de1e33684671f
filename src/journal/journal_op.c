/* The journal's operations of the disk. */
#include "base/assert.h"
#include "journal/journal_int.h"

static void on_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

static void submit(struct sh_journal *journal, struct sh_journal_op *op)
{
    enum shoal_err err = sh_disk_submit(journal->env.disk, &op->op);
    op->is_waiting = err == SHOAL_EAGAIN;
    if (err && err != SHOAL_EAGAIN) {
        op->op.err = err;
        op->is_done = true;
    }
}

void sh_journal_op_begin(struct sh_journal *journal, struct sh_journal_op *op,
                         enum sh_disk_kind kind, int file, uint64_t offset, struct sh_bytes bytes)
{
    SH_ASSERT(!op->is_busy);
    op->op = (struct sh_disk_op){.kind = kind,
                                 .file = file,
                                 .offset = offset,
                                 .data = (void *)(uintptr_t)bytes.at,
                                 .size = bytes.size,
                                 .done = on_done,
                                 .arg = &op->is_done};
    op->is_busy = true;
    op->is_done = false;
    submit(journal, op);
}

bool sh_journal_op_end(struct sh_journal *journal, struct sh_journal_op *op,
                       enum shoal_err *err_out)
{
    if (op->is_busy && op->is_waiting)
        submit(journal, op);
    if (!op->is_busy || !op->is_done)
        return false;
    op->is_busy = false;
    *err_out = op->op.err;
    if (!op->op.err && op->op.kind == SH_DISK_WRITE_SYNC && op->op.done_bytes != op->op.size)
        *err_out = SHOAL_EIO;
    return true;
}

void sh_journal_op_await(struct sh_journal *journal, struct sh_journal_op *op)
{
    while (op->is_busy && !op->is_done && !op->is_waiting && sh_disk_poll(journal->env.disk, true))
        continue;
}
