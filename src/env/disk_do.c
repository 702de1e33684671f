/* Operations of a disk that their caller waits for. */
#include "env/disk.h"

static void on_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

enum shoal_err sh_disk_do(struct sh_disk *disk, struct sh_disk_op *op)
{
    bool is_done = false;
    op->done = on_done;
    op->arg = &is_done;
    enum shoal_err err;
    while ((err = sh_disk_submit(disk, op)) == SHOAL_EAGAIN)
        (void)sh_disk_poll(disk, true);
    while (!err && !is_done && sh_disk_poll(disk, true) > 0)
        continue;
    op->done = NULL;
    op->arg = NULL;
    if (!err && !is_done)
        err = SHOAL_EIO;
    return err ? err : op->err;
}
