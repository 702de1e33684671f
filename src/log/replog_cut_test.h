/* A disk of one file that knows what is stable, and on which a test holds operations back. */
#ifndef SH_LOG_REPLOG_CUT_TEST_H
#define SH_LOG_REPLOG_CUT_TEST_H

#include "log/replog_test.h"

#define CUT_OPS 256
struct cut {
    struct sh_disk base;
    uint8_t *now, *stable;
    size_t size, stable_size, room;
    struct sh_disk_op *ops[CUT_OPS];
    unsigned count, syncs;
    /* Whether the test holds an operation back: poll passes over it, but one that waits. */
    bool (*holds)(const struct cut *cut, const struct sh_disk_op *op);
    unsigned held_seen;
    uint64_t fails_at; /* reads of that offset fail */
    /* Room, in blocks. limit 0: there is enough. */
    uint64_t limit, used, refused, discards;
    uint8_t *backed; /* a byte for each block */
    bool has_no_ranges;
};

static struct cut *cut_of(struct sh_disk *disk)
{
    return (struct cut *)disk;
}

static enum shoal_err cut_open(struct sh_disk *disk, const char *name, bool create, int *file_out)
{
    (void)disk, (void)name, (void)create;
    *file_out = 1;
    return SHOAL_OK;
}

static void cut_close(struct sh_disk *disk, int file)
{
    (void)disk, (void)file;
}

static enum shoal_err cut_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    (void)file;
    *bytes_out = cut_of(disk)->size;
    return SHOAL_OK;
}

static enum shoal_err cut_space(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out)
{
    const struct cut *cut = cut_of(disk);
    *bytes_out = *free_out = UINT64_MAX;
    if (cut->limit) {
        *bytes_out = cut->limit * 4096;
        *free_out = cut->limit > cut->used ? (cut->limit - cut->used) * 4096 : 0;
    }
    return SHOAL_OK;
}

static enum shoal_err cut_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct cut *cut = cut_of(disk);
    if (cut->count == CUT_OPS)
        return SHOAL_EAGAIN;
    cut->ops[cut->count++] = op;
    return SHOAL_OK;
}

/* Where the test has set a limit, only so many blocks of the file may have room. */
static bool cut_has_room(const struct cut *cut, const struct sh_disk_op *op)
{
    uint64_t more = 0;
    for (uint64_t at = op->offset / 4096; at < (op->offset + op->size) / 4096; at++)
        more += !cut->backed[at];
    return !cut->limit || cut->used + more <= cut->limit;
}

static void cut_back(struct cut *cut, const struct sh_disk_op *op, bool is_backed)
{
    for (uint64_t at = op->offset / 4096; at < (op->offset + op->size) / 4096; at++) {
        cut->used += (uint64_t)is_backed - cut->backed[at];
        cut->backed[at] = is_backed;
    }
}

static void cut_range(struct cut *cut, struct sh_disk_op *op)
{
    bool is_discard = op->kind == SH_DISK_DISCARD;
    if (cut->has_no_ranges)
        return;
    assert_true(op->offset + op->size <= cut->room && sh_disk_range_is_sound(op));
    if (!is_discard && !cut_has_room(cut, op)) {
        op->err = SHOAL_ENOSPC;
        return;
    }
    cut_back(cut, op, !is_discard);
    if (is_discard) { /* of what is there then nothing may count */
        memset(cut->now + op->offset, 0xa5, op->size);
        cut->discards++;
    } else if (cut->size < op->offset + op->size) {
        cut->size = op->offset + op->size;
    }
    op->done_bytes = op->size;
}

static void cut_carry_out(struct cut *cut, struct sh_disk_op *op)
{
    op->err = SHOAL_OK;
    op->done_bytes = 0;
    if (op->kind == SH_DISK_READ) {
        if (cut->fails_at && op->offset <= cut->fails_at && cut->fails_at < op->offset + op->size) {
            op->err = SHOAL_EIO;
            return;
        }
        size_t left = op->offset < cut->size ? cut->size - op->offset : 0;
        op->done_bytes = left < op->size ? left : op->size;
        memcpy(op->data, cut->now + op->offset, op->done_bytes);
        return;
    }
    if (op->kind == SH_DISK_SYNC) {
        cut->syncs++;
        memcpy(cut->stable, cut->now, cut->size);
        cut->stable_size = cut->size;
        return;
    }
    if (op->kind == SH_DISK_SYNC_DIR)
        return;
    if (sh_disk_is_range(op)) {
        cut_range(cut, op);
        return;
    }
    assert_true(op->offset + op->size <= cut->room);
    if (!cut_has_room(cut, op)) {
        op->err = SHOAL_ENOSPC;
        cut->refused++;
        return;
    }
    cut_back(cut, op, true);
    sh_disk_gather(op, cut->now + op->offset);
    if (cut->size < op->offset + op->size)
        cut->size = op->offset + op->size;
    if (op->kind == SH_DISK_WRITE_SYNC) {
        sh_disk_gather(op, cut->stable + op->offset);
        if (cut->stable_size < op->offset + op->size)
            cut->stable_size = op->offset + op->size;
    }
    op->done_bytes = op->size;
}

static unsigned cut_poll(struct sh_disk *disk, bool wait)
{
    struct cut *cut = cut_of(disk);
    struct sh_disk_op *due[CUT_OPS], *held[CUT_OPS];
    unsigned due_count = 0, held_count = 0;
    for (unsigned i = 0; i < cut->count; i++) {
        if (!wait && cut->holds && cut->holds(cut, cut->ops[i]))
            held[held_count++] = cut->ops[i];
        else
            due[due_count++] = cut->ops[i];
    }
    cut->held_seen += held_count;
    memcpy(cut->ops, held, held_count * sizeof *held);
    cut->count = held_count;
    for (unsigned i = 0; i < due_count; i++) {
        cut_carry_out(cut, due[i]);
        due[i]->done(due[i]);
    }
    return due_count;
}

static void cut_destroy(struct sh_disk *disk)
{
    free(cut_of(disk)->now);
    free(cut_of(disk)->stable);
    free(cut_of(disk)->backed);
    free(disk);
}

RIG void cut_power(struct cut *cut)
{
    memcpy(cut->now, cut->stable, cut->room);
    cut->size = cut->stable_size;
}

static struct sh_disk *cut_create(size_t room)
{
    static const struct sh_disk_ops ops = {.open = cut_open,
                                           .close = cut_close,
                                           .size = cut_size,
                                           .space = cut_space,
                                           .submit = cut_submit,
                                           .poll = cut_poll,
                                           .destroy = cut_destroy};
    struct cut *cut = calloc(1, sizeof *cut);
    cut->base.ops = &ops;
    cut->room = room;
    cut->now = calloc(1, room);
    cut->stable = calloc(1, room);
    cut->backed = calloc(1, room / 4096 + 1);
    return &cut->base;
}

/* --- What the tests share ---------------------------------------------------------------------- */

static struct rig rig;

RIG int setup(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof rig);
    rig.now_ns = 1000 * RIG_MS;
    rig_config(&rig, cut_create((size_t)64 << 20));
    return 0;
}

RIG int teardown(void **state)
{
    (void)state;
    cut_of(rig.config.disk)->holds = NULL;
    sh_replog_close(rig.log);
    rig.config.disk->ops->destroy(rig.config.disk);
    return 0;
}

RIG void append(unsigned zone, unsigned chunk, uint32_t stamp, size_t size)
{
    assert_int_equal(rig_append(&rig, zone, chunk, stamp, size, false), SHOAL_OK);
}

RIG void zone_add_config(unsigned number, struct sh_replog_zone_config config)
{
    rig.zones[number].id = rig_zone_id(number);
    assert_int_equal(sh_replog_zone_add(rig.log, &config, &rig.zones[number].zone), SHOAL_OK);
}

RIG void shut(void)
{
    cut_of(rig.config.disk)->holds = NULL;
    sh_replog_close(rig.log);
    rig.log = NULL;
}

RIG struct sh_replog_status status(void)
{
    struct sh_replog_status is;
    sh_replog_status_get(rig.log, &is);
    return is;
}

/* Appends, which comes to an end, be it with an error. */
RIG enum shoal_err append_or_say(unsigned zone, unsigned chunk, uint32_t stamp, size_t size)
{
    const struct sh_replog_write write = rig_write(&rig, chunk, stamp, size, 0);
    enum shoal_err err;
    for (unsigned i = 0; (err = sh_replog_append(rig.zones[zone].zone, &write)) == SHOAL_EAGAIN;
         i++) {
        if (i == 20000)
            fail_msg("EAGAIN for 20000 steps, write %u", stamp);
        rig_step(&rig, RIG_MS);
    }
    return err;
}

/* The process ends, with a power cut or without, and another one opens the log. */
RIG void start_again(bool is_cut)
{
    shut();
    if (is_cut)
        cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
}

/* A reading of the zone, which is not written to, hands out what the rig has written. Returns where the zone ends. */
RIG uint64_t taken_is_all(unsigned zone)
{
    static struct rig_taken taken;
    for (unsigned drops = 0; drops < 2; drops++) {
        rig_take_begin(&rig, zone, 0, drops, &taken);
        for (unsigned i = 0; !taken.is_over; i++) {
            assert_true(i < 100000);
            rig_step(&rig, RIG_MS);
        }
        assert_int_equal(taken.err, SHOAL_OK);
        for (unsigned i = 0; i < RIG_CHUNKS; i++) {
            const struct rig_chunk *should = &rig.zones[zone].chunks[i];
            const struct rig_taken_chunk *is = &taken.chunks[i];
            assert_int_equal(is->is_there, should->is_there && !should->is_removal);
            if (is->is_there)
                assert_int_equal(is->stamp, should->stamp);
        }
    }
    return taken.end;
}

RIG uint64_t slots_at(void)
{
    return sh_log_primary_at() + (uint64_t)rig.config.primary_blocks * 4096;
}

/* For cut.holds: all writes to slots. */
RIG bool holds_slots(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind == SH_DISK_WRITE && op->offset >= slots_at();
}

#endif
