#include <string.h>

#include "base/assert.h"
#include "store/dump_int.h"

bool sh_dump_name_is_good(const char *name)
{
    size_t size = strlen(name);
    return size > 0 && size <= SH_DUMP_NAME_BYTES_MAX && !strchr(name, '/') &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static void note_done(struct sh_disk_op *op)
{
    struct sh_dump_io *io = op->arg;
    SH_ASSERT(io->is_flying);
    io->is_flying = false;
}

static void submit(struct sh_dump_io *io)
{
    enum shoal_err err = sh_disk_submit(io->disk, &io->op);
    io->is_wanted = err == SHOAL_EAGAIN;
    io->is_flying = err == SHOAL_OK;
    if (err && err != SHOAL_EAGAIN)
        io->op.err = err;
}

void sh_dump_io_begin(struct sh_dump_io *io, const struct sh_disk_op *op)
{
    SH_ASSERT(sh_dump_io_is_idle(io));
    io->op = *op;
    io->op.done = note_done;
    io->op.arg = io;
    submit(io);
}

bool sh_dump_io_settled(struct sh_dump_io *io, enum shoal_err *err_out)
{
    if (io->is_wanted)
        submit(io);
    if (!sh_dump_io_is_idle(io))
        (void)sh_disk_poll(io->disk, false);
    if (!sh_dump_io_is_idle(io))
        return false;
    *err_out = io->op.err;
    return true;
}

void sh_dump_io_wait(struct sh_dump_io *io)
{
    while (!sh_dump_io_is_idle(io)) {
        if (io->is_wanted)
            submit(io);
        if (!sh_dump_io_is_idle(io) && sh_disk_poll(io->disk, true) == 0 && io->is_flying) {
            /* The disk knows nothing of it: it has crashed, and will call nothing back. */
            io->is_flying = false;
            io->op.err = SHOAL_EIO;
        }
    }
}
