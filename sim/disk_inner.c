/* A node's disk for somebody else in its process: the same files, through a door of its own. */
#include <stdlib.h>

#include "sim/world_int.h"

struct inner {
    struct sh_disk base;
    struct sh_disk *disk;
};

static struct sh_disk *disk_of(struct sh_disk *inner)
{
    return ((struct inner *)inner)->disk;
}

static enum shoal_err inner_open(struct sh_disk *inner, const char *name, bool create,
                                 int *file_out)
{
    return disk_of(inner)->ops->open(disk_of(inner), name, create, file_out);
}

static enum shoal_err inner_claim(struct sh_disk *inner, const char *name, int *file_out)
{
    return disk_of(inner)->ops->claim(disk_of(inner), name, file_out);
}

static void inner_close(struct sh_disk *inner, int file)
{
    disk_of(inner)->ops->close(disk_of(inner), file);
}

static enum shoal_err inner_size(struct sh_disk *inner, int file, uint64_t *bytes_out)
{
    return disk_of(inner)->ops->size(disk_of(inner), file, bytes_out);
}

static enum shoal_err inner_rename(struct sh_disk *inner, const char *from, const char *to)
{
    return disk_of(inner)->ops->rename(disk_of(inner), from, to);
}

static enum shoal_err inner_remove(struct sh_disk *inner, const char *name)
{
    return disk_of(inner)->ops->remove(disk_of(inner), name);
}

static enum shoal_err inner_space(struct sh_disk *inner, uint64_t *bytes_out, uint64_t *free_out)
{
    return disk_of(inner)->ops->space(disk_of(inner), bytes_out, free_out);
}

static enum shoal_err inner_submit(struct sh_disk *inner, struct sh_disk_op *op)
{
    return disk_of(inner)->ops->submit(disk_of(inner), op);
}

/* Whoever polls calls the done of both: they are in one thread here. */
static unsigned inner_poll(struct sh_disk *inner, bool wait)
{
    return disk_of(inner)->ops->poll(disk_of(inner), wait);
}

/* The process goes on, and the files stay open; whoever closes this has closed its own. */
static void inner_destroy(struct sh_disk *inner)
{
    (void)inner;
}

static const struct sh_disk_ops inner_ops = {
    .open = inner_open,
    .claim = inner_claim,
    .close = inner_close,
    .size = inner_size,
    .rename = inner_rename,
    .remove = inner_remove,
    .space = inner_space,
    .submit = inner_submit,
    .poll = inner_poll,
    .destroy = inner_destroy,
};

struct sh_disk *sh_sim_disk_inner(struct sh_disk *disk)
{
    struct inner *inner = sh_sim_alloc(sizeof *inner);
    *inner = (struct inner){{&inner_ops}, disk};
    return &inner->base;
}
