#include "bench/slow_disk.h"

#include <poll.h>
#include <stdlib.h>

#include "base/assert.h"
#include "bench/bench.h"

#define HELD_MAX 256
#define SECOND_NS UINT64_C(1000000000)
#define MILLISECOND_NS UINT64_C(1000000)

struct slow {
    struct sh_disk disk; /* first */
    struct sh_disk *below;
    uint64_t each_ns; /* between two writes */
    uint64_t next_ns; /* when the next one may begin */
    /* A ring of writes that wait. */
    struct sh_disk_op *held[HELD_MAX];
    unsigned first, count;
};

static struct slow *slow_of(struct sh_disk *disk)
{
    return (struct slow *)disk;
}

/* Whether a write may begin now; then the next one is due later. */
static bool take_turn(struct slow *slow)
{
    uint64_t now_ns = sh_bench_now_ns();
    if (now_ns < slow->next_ns)
        return false;
    /* A thread that comes late has not lost its turns: it may make up for a millisecond of them. */
    if (slow->next_ns + MILLISECOND_NS < now_ns)
        slow->next_ns = now_ns - MILLISECOND_NS;
    slow->next_ns += slow->each_ns;
    return true;
}

/* Hands over what is due. An operation that the disk below refuses keeps its turn. */
static void held_release(struct slow *slow)
{
    while (slow->count > 0) {
        uint64_t turn_ns = slow->next_ns;
        struct sh_disk_op *op = slow->held[slow->first];
        if (!take_turn(slow))
            return;
        enum shoal_err err = sh_disk_submit(slow->below, op);
        if (err == SHOAL_EAGAIN) {
            slow->next_ns = turn_ns;
            return;
        }
        slow->first = (slow->first + 1) % HELD_MAX;
        slow->count--;
        if (err) { /* as if it had failed in flight */
            op->err = err;
            op->done_bytes = 0;
            op->done(op);
        }
    }
}

static enum shoal_err slow_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct slow *slow = slow_of(disk);
    if (!sh_disk_is_write(op))
        return sh_disk_submit(slow->below, op);
    if (slow->count == HELD_MAX)
        return SHOAL_EAGAIN;
    slow->held[(slow->first + slow->count++) % HELD_MAX] = op;
    held_release(slow);
    return SHOAL_OK;
}

static unsigned slow_poll(struct sh_disk *disk, bool wait)
{
    struct slow *slow = slow_of(disk);
    held_release(slow);
    unsigned done = sh_disk_poll(slow->below, false);
    while (wait && !done && slow->count > 0) {
        (void)poll(NULL, 0, 1);
        held_release(slow);
        done = sh_disk_poll(slow->below, false);
    }
    return wait && !done ? sh_disk_poll(slow->below, true) : done;
}

static enum shoal_err slow_open(struct sh_disk *disk, const char *name, bool create, int *file_out)
{
    return sh_disk_open(slow_of(disk)->below, name, create, file_out);
}

static enum shoal_err slow_claim(struct sh_disk *disk, const char *name, int *file_out)
{
    struct sh_disk *below = slow_of(disk)->below;
    return below->ops->claim(below, name, file_out);
}

static void slow_close(struct sh_disk *disk, int file)
{
    struct sh_disk *below = slow_of(disk)->below;
    below->ops->close(below, file);
}

static enum shoal_err slow_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    struct sh_disk *below = slow_of(disk)->below;
    return below->ops->size(below, file, bytes_out);
}

static enum shoal_err slow_rename(struct sh_disk *disk, const char *from, const char *to)
{
    struct sh_disk *below = slow_of(disk)->below;
    return below->ops->rename(below, from, to);
}

static enum shoal_err slow_remove(struct sh_disk *disk, const char *name)
{
    struct sh_disk *below = slow_of(disk)->below;
    return below->ops->remove(below, name);
}

static enum shoal_err slow_space(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out)
{
    return sh_disk_space(slow_of(disk)->below, bytes_out, free_out);
}

static enum shoal_err slow_wake_set(struct sh_disk *disk, void (*wake)(void *arg), void *arg)
{
    return sh_disk_wake_set(slow_of(disk)->below, wake, arg);
}

static void slow_destroy(struct sh_disk *disk)
{
    struct slow *slow = slow_of(disk);
    slow->below->ops->destroy(slow->below);
    free(slow);
}

enum shoal_err sh_slow_disk_create(struct sh_disk *below, uint64_t writes_per_s,
                                   struct sh_disk **disk_out)
{
    static const struct sh_disk_ops ops = {
        .open = slow_open,
        .claim = slow_claim,
        .close = slow_close,
        .size = slow_size,
        .rename = slow_rename,
        .remove = slow_remove,
        .space = slow_space,
        .submit = slow_submit,
        .poll = slow_poll,
        .wake_set = slow_wake_set,
        .destroy = slow_destroy,
    };
    SH_ASSERT(below != NULL && writes_per_s > 0 && writes_per_s <= SECOND_NS);
    struct slow *slow = calloc(1, sizeof *slow);
    if (!slow)
        return SHOAL_ENOMEM;
    slow->disk.ops = &ops;
    slow->below = below;
    slow->each_ns = SECOND_NS / writes_per_s;
    *disk_out = &slow->disk;
    return SHOAL_OK;
}
