/* The simulated disk.
 *
 * Each file is an inode, which has its bytes (stored.h). Names are handled as they are: between a directory
 * that opens see and one that is on stable storage lies a list of changes. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/stored.h"
#include "sim/world_int.h"

#define NAME_BYTES 64
#define FILES_MAX 256

struct inode {
    struct inode *next;
    struct sh_stored stored;
};

struct directory {
    char names[FILES_MAX][NAME_BYTES];
    struct inode *inodes[FILES_MAX]; /* NULL: the entry is free */
};

enum change_kind { CHANGE_CREATE, CHANGE_RENAME, CHANGE_REMOVE };

struct change {
    struct change *next;
    uint64_t number;
    enum change_kind kind;
    struct inode *inode;
    char name[NAME_BYTES];
    char to[NAME_BYTES];
};

/* An operation under way or waiting for poll. */
struct slot {
    struct sh_disk_op *op; /* NULL: free */
    uint8_t *bytes;        /* a write's, as they were when it was submitted */
    uint64_t number;       /* tells the slot's users apart */
    uint64_t upto;         /* a sync's: writes, or changes of names, before its submission */
    bool over;             /* waits for poll */
};

struct sim_disk {
    struct sh_disk base;
    struct sh_world *world;
    unsigned node;
    struct sh_prng prng;
    struct sh_disk_faults faults;
    bool down;
    struct inode *inodes;
    struct directory seen;
    struct directory stable;
    struct change *changes; /* oldest first */
    struct change *newest;
    uint64_t change_number;
    struct inode *files[FILES_MAX]; /* by handle */
    bool claimed[FILES_MAX];        /* by handle, of files that are open */
    struct slot slots[SH_SIM_DISK_OPS_MAX];
    unsigned order[SH_SIM_DISK_OPS_MAX]; /* slots that are over, oldest first */
    unsigned over_count;
    unsigned in_flight;
    uint64_t op_number;
};

static struct sim_disk *sim_of(struct sh_disk *disk)
{
    return (struct sim_disk *)disk;
}

static void trace(struct sim_disk *disk, const char *kind, uint64_t a, uint64_t b,
                  struct sh_bytes bytes)
{
    sh_world_trace(disk->world, disk->node, kind, a, b, bytes);
}

static uint64_t bytes_used(const struct sim_disk *disk)
{
    uint64_t used = 0;
    for (const struct inode *inode = disk->inodes; inode; inode = inode->next)
        used += sh_image_space(&inode->stored.seen);
    return used;
}

/* --- Inodes and names ------------------------------------------------------------------------- */

static struct inode *inode_create(struct sim_disk *disk)
{
    struct inode *inode = sh_sim_alloc(sizeof *inode);
    inode->next = disk->inodes;
    disk->inodes = inode;
    return inode;
}

static bool is_inode_used(const struct sim_disk *disk, const struct inode *inode)
{
    for (unsigned i = 0; i < FILES_MAX; i++) {
        if (disk->files[i] == inode || disk->seen.inodes[i] == inode ||
            disk->stable.inodes[i] == inode)
            return true;
    }
    for (const struct change *change = disk->changes; change; change = change->next) {
        if (change->inode == inode)
            return true;
    }
    return false;
}

/* Frees files that no name and no handle reaches any more, nor would after a crash. */
static void sweep_inodes(struct sim_disk *disk)
{
    struct inode **at = &disk->inodes;
    while (*at) {
        struct inode *inode = *at;
        if (is_inode_used(disk, inode)) {
            at = &inode->next;
            continue;
        }
        *at = inode->next;
        sh_stored_clear(&inode->stored);
        free(inode);
    }
}

static int directory_find(const struct directory *directory, const char *name)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (directory->inodes[i] && strcmp(directory->names[i], name) == 0)
            return i;
    }
    return -1;
}

static void directory_remove(struct directory *directory, const char *name)
{
    int at = directory_find(directory, name);
    if (at >= 0)
        directory->inodes[at] = NULL;
}

static void directory_set(struct directory *directory, const char *name, struct inode *inode)
{
    int at = directory_find(directory, name);
    for (int i = 0; at < 0 && i < FILES_MAX; i++) {
        if (!directory->inodes[i])
            at = i;
    }
    SH_ASSERT(at >= 0);
    memcpy(directory->names[at], name, strlen(name) + 1);
    directory->inodes[at] = inode;
}

static void directory_apply(struct directory *directory, const struct change *change)
{
    switch (change->kind) {
    case CHANGE_CREATE:
        directory_set(directory, change->name, change->inode);
        break;
    case CHANGE_RENAME:
        directory_remove(directory, change->name);
        directory_set(directory, change->to, change->inode);
        break;
    case CHANGE_REMOVE:
        directory_remove(directory, change->name);
        break;
    }
}

/* Does a change of names where reads see it, and remembers it for the next sync. */
static void change_names(struct sim_disk *disk, enum change_kind kind, struct inode *inode,
                         const char *name, const char *to)
{
    struct change *change = sh_sim_alloc(sizeof *change);
    change->kind = kind;
    change->inode = inode;
    change->number = disk->change_number++;
    memcpy(change->name, name, strlen(name) + 1);
    memcpy(change->to, to, strlen(to) + 1);
    if (disk->newest)
        disk->newest->next = change;
    else
        disk->changes = change;
    disk->newest = change;
    directory_apply(&disk->seen, change);
    trace(disk, "change name(kind)", kind, 0, sh_bytes_text(name));
}

/* Makes the oldest changes safe: those numbered below upto. */
static void stabilize_names(struct sim_disk *disk, uint64_t upto)
{
    while (disk->changes && disk->changes->number < upto) {
        struct change *change = disk->changes;
        directory_apply(&disk->stable, change);
        disk->changes = change->next;
        free(change);
    }
    if (!disk->changes)
        disk->newest = NULL;
    sweep_inodes(disk);
}

static bool name_usable(const char *name)
{
    return name[0] && !strchr(name, '/') && strlen(name) < NAME_BYTES;
}

static enum shoal_err sim_open(struct sh_disk *disk, const char *name, bool create, int *file_out)
{
    struct sim_disk *sim = sim_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    if (sim->down)
        return SHOAL_EIO;
    int file = 0;
    while (file < FILES_MAX && sim->files[file])
        file++;
    int at = directory_find(&sim->seen, name);
    if (at < 0 && !create)
        return SHOAL_ENONAME;
    if (file == FILES_MAX)
        return SHOAL_EIO;
    if (at < 0) {
        change_names(sim, CHANGE_CREATE, inode_create(sim), name, "");
        at = directory_find(&sim->seen, name);
    }
    sim->files[file] = sim->seen.inodes[at];
    sim->claimed[file] = false;
    *file_out = file;
    return SHOAL_OK;
}

static struct inode *inode_of(struct sim_disk *disk, int file)
{
    SH_ASSERT(file >= 0 && file < FILES_MAX);
    SH_ASSERT(disk->files[file]);
    return disk->files[file];
}

static void sim_close(struct sh_disk *disk, int file)
{
    struct sim_disk *sim = sim_of(disk);
    if (sim->down)
        return;
    (void)inode_of(sim, file);
    sim->files[file] = NULL;
    sweep_inodes(sim);
}

static enum shoal_err sim_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    struct sim_disk *sim = sim_of(disk);
    if (sim->down)
        return SHOAL_EIO;
    *bytes_out = inode_of(sim, file)->stored.seen.size;
    return SHOAL_OK;
}

static enum shoal_err sim_rename(struct sh_disk *disk, const char *from, const char *to)
{
    struct sim_disk *sim = sim_of(disk);
    if (!name_usable(from) || !name_usable(to))
        return SHOAL_EINVAL;
    if (sim->down)
        return SHOAL_EIO;
    int at = directory_find(&sim->seen, from);
    if (at < 0)
        return SHOAL_ENONAME;
    if (strcmp(from, to) != 0)
        change_names(sim, CHANGE_RENAME, sim->seen.inodes[at], from, to);
    return SHOAL_OK;
}

static enum shoal_err sim_remove(struct sh_disk *disk, const char *name)
{
    struct sim_disk *sim = sim_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    if (sim->down)
        return SHOAL_EIO;
    int at = directory_find(&sim->seen, name);
    if (at < 0)
        return SHOAL_ENONAME;
    change_names(sim, CHANGE_REMOVE, sim->seen.inodes[at], name, "");
    return SHOAL_OK;
}

static enum shoal_err sim_claim(struct sh_disk *disk, const char *name, int *file_out)
{
    struct sim_disk *sim = sim_of(disk);
    int at = directory_find(&sim->seen, name);
    for (int i = 0; at >= 0 && i < FILES_MAX; i++)
        if (sim->claimed[i] && sim->files[i] == sim->seen.inodes[at])
            return SHOAL_EBUSY;
    enum shoal_err err = at >= 0 ? sim_remove(disk, name) : SHOAL_OK;
    if (!err)
        err = sim_open(disk, name, true, file_out);
    if (!err)
        sim->claimed[*file_out] = true;
    return err;
}

/* --- Operations ------------------------------------------------------------------------------- */

/* Whether the disk has room for what a write, or an allocation, adds to a file. */
static bool has_space(const struct sim_disk *disk, const struct inode *inode,
                      const struct sh_disk_op *op)
{
    uint64_t quota = disk->faults.quota_bytes;
    uint64_t more = quota ? sh_image_more(&inode->stored.seen, op->offset, op->size) : 0;
    return !more || bytes_used(disk) + more <= quota;
}

static enum shoal_err sim_space(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out)
{
    const struct sim_disk *sim = sim_of(disk);
    if (sim->down)
        return SHOAL_EIO;
    uint64_t quota = sim->faults.quota_bytes ? sim->faults.quota_bytes : UINT64_MAX;
    uint64_t used = sim->faults.quota_bytes ? bytes_used(sim) : 0;
    *bytes_out = quota;
    *free_out = used < quota ? quota - used : 0;
    return SHOAL_OK;
}

/* A write is done: reads see it from now on. */
static enum shoal_err do_write(struct sim_disk *disk, struct slot *slot)
{
    struct sh_disk_op *op = slot->op;
    struct inode *inode = inode_of(disk, op->file);
    if (!has_space(disk, inode, op))
        return SHOAL_ENOSPC;
    size_t size = op->size;
    enum shoal_err err = SHOAL_OK;
    if (sh_prng_chance(&disk->prng, disk->faults.write_err_ppm)) {
        size = (size_t)sh_prng_below(&disk->prng, size + 1);
        err = SHOAL_EIO;
    }
    if (size && sh_prng_chance(&disk->prng, disk->faults.flip_ppm)) {
        uint64_t bit = sh_prng_below(&disk->prng, 8 * (uint64_t)size);
        slot->bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        trace(disk, "flip(offset, bit)", op->offset, bit, (struct sh_bytes){0});
    }
    if (size)
        sh_stored_change(&inode->stored, SH_DISK_WRITE, op->offset, slot->bytes, size);
    op->done_bytes = err ? 0 : size;
    return err;
}

/* A discard or an allocation is done; or only its first blocks, when it fails. */
static enum shoal_err do_range(struct sim_disk *disk, struct sh_disk_op *op)
{
    struct inode *inode = inode_of(disk, op->file);
    size_t size = op->size;
    enum shoal_err err = SHOAL_OK;
    if (op->kind == SH_DISK_ALLOCATE && !has_space(disk, inode, op))
        return SHOAL_ENOSPC;
    if (sh_prng_chance(&disk->prng, disk->faults.write_err_ppm)) {
        size_t blocks = size / SH_DISK_RANGE_BYTES;
        size = (size_t)sh_prng_below(&disk->prng, blocks) * SH_DISK_RANGE_BYTES;
        err = SHOAL_EIO;
    }
    if (size)
        sh_stored_change(&inode->stored, op->kind, op->offset, NULL, size);
    op->done_bytes = err ? 0 : size;
    return err;
}

static enum shoal_err do_read(struct sim_disk *disk, struct sh_disk_op *op)
{
    const struct sh_image *seen = &inode_of(disk, op->file)->stored.seen;
    if (sh_prng_chance(&disk->prng, disk->faults.read_err_ppm))
        return SHOAL_EIO;
    size_t size = op->offset < seen->size ? seen->size - (size_t)op->offset : 0;
    size = size < op->size ? size : op->size;
    if (size)
        sh_image_read(seen, op->offset, op->data, size);
    op->done_bytes = size;
    return SHOAL_OK;
}

static void crash_told(void *arg, uint64_t offset, uint64_t size)
{
    trace(arg, "crash sector(offset, bytes)", offset, size, (struct sh_bytes){0});
}

static struct sh_stored_luck luck_of(struct sim_disk *disk)
{
    return (struct sh_stored_luck){.prng = &disk->prng,
                                   .survive_ppm = disk->faults.survive_ppm,
                                   .torn_ppm = disk->faults.torn_ppm,
                                   .told = crash_told,
                                   .arg = disk};
}

/* A sync of the bytes from `from` to `to` is done, of what was done before number upto. */
static enum shoal_err do_sync(struct sim_disk *disk, struct inode *inode, uint64_t upto,
                              uint64_t from, uint64_t to, bool failed)
{
    struct sh_stored_luck luck = luck_of(disk);
    failed |= sh_prng_chance(&disk->prng, disk->faults.sync_err_ppm);
    sh_stored_sync(&inode->stored, upto, from, to, failed, &luck);
    return failed ? SHOAL_EIO : SHOAL_OK;
}

/* The sync covers the write's place, and what was written there before. */
static enum shoal_err do_write_sync(struct sim_disk *disk, struct slot *slot)
{
    struct sh_disk_op *op = slot->op;
    struct inode *inode = inode_of(disk, op->file);
    enum shoal_err err = do_write(disk, slot);
    enum shoal_err sync_err = do_sync(disk, inode, inode->stored.change_number, op->offset,
                                      op->offset + op->size, err != SHOAL_OK);
    if (sync_err)
        op->done_bytes = 0;
    return err ? err : sync_err;
}

static enum shoal_err do_sync_dir(struct sim_disk *disk, uint64_t upto)
{
    if (sh_prng_chance(&disk->prng, disk->faults.sync_err_ppm))
        return SHOAL_EIO;
    stabilize_names(disk, upto);
    return SHOAL_OK;
}

/* Ends the operation in a slot: its effect takes place, and poll will report it. */
static void slot_end(struct sim_disk *disk, unsigned at)
{
    struct slot *slot = &disk->slots[at];
    struct sh_disk_op *op = slot->op;
    struct sh_bytes bytes = {0};
    SH_ASSERT(op && !slot->over);
    switch (op->kind) {
    case SH_DISK_READ:
        op->err = do_read(disk, op);
        bytes = sh_bytes_make(op->data, op->done_bytes);
        break;
    case SH_DISK_WRITE:
        op->err = do_write(disk, slot);
        bytes = sh_bytes_make(slot->bytes, op->done_bytes);
        break;
    case SH_DISK_SYNC:
        op->err = do_sync(disk, inode_of(disk, op->file), slot->upto, 0, UINT64_MAX, false);
        break;
    case SH_DISK_SYNC_DIR:
        op->err = do_sync_dir(disk, slot->upto);
        break;
    case SH_DISK_WRITE_SYNC:
        op->err = do_write_sync(disk, slot);
        bytes = sh_bytes_make(slot->bytes, op->done_bytes);
        break;
    case SH_DISK_DISCARD:
    case SH_DISK_ALLOCATE:
        op->err = do_range(disk, op);
        break;
    }
    static const char *const kinds[] = {
        "read(offset, error)",    "write(offset, error)",          "sync(file, error)",
        "sync folder(, error)",   "write and sync(offset, error)", "discard(offset, error)",
        "allocate(offset, error)"};
    bool has_offset = op->kind != SH_DISK_SYNC && op->kind != SH_DISK_SYNC_DIR;
    uint64_t place = has_offset ? op->offset : op->kind == SH_DISK_SYNC ? (uint64_t)op->file : 0;
    trace(disk, kinds[op->kind], place, op->err, bytes);
    slot->over = true;
    disk->order[disk->over_count++] = at;
}

static void on_slot_end(void *arg, uint64_t at, uint64_t number)
{
    struct sim_disk *disk = arg;
    struct slot *slot = &disk->slots[at];
    /* The slot may have been ended by a waiting poll, or emptied by a crash, and filled anew. */
    if (slot->op && slot->number == number && !slot->over) {
        slot_end(disk, (unsigned)at);
        sh_sim_wake(disk->world, disk->node);
    }
}

static void slot_fill(struct sim_disk *disk, unsigned at, struct sh_disk_op *op)
{
    struct slot *slot = &disk->slots[at];
    *slot = (struct slot){.op = op, .number = disk->op_number++};
    if (sh_disk_is_write(op) && op->size) {
        slot->bytes = sh_sim_alloc(op->size);
        sh_disk_gather(op, slot->bytes);
    } else if (op->kind == SH_DISK_SYNC) {
        slot->upto = inode_of(disk, op->file)->stored.change_number;
    } else if (op->kind == SH_DISK_SYNC_DIR) {
        slot->upto = disk->change_number;
    }
    uint64_t delay_ns = disk->faults.delay_ns_min;
    if (disk->faults.delay_ns_max > delay_ns)
        delay_ns = sh_prng_between(&disk->prng, delay_ns, disk->faults.delay_ns_max);
    sh_sim_at(disk->world, sh_sim_now(disk->world) + delay_ns, on_slot_end, disk, at, slot->number);
}

static enum shoal_err sim_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct sim_disk *sim = sim_of(disk);
    SH_ASSERT(op->done);
    SH_ASSERT((unsigned)op->kind <= SH_DISK_ALLOCATE);
    SH_ASSERT(!sh_disk_is_range(op) || sh_disk_range_is_sound(op));
    size_t align = sim->faults.align_bytes;
    if (align && (op->kind == SH_DISK_READ || sh_disk_is_write(op))) {
        SH_ASSERT(op->offset % align == 0);
        SH_ASSERT(op->size % align == 0);
        SH_ASSERT(op->pieces_count || (uintptr_t)op->data % align == 0);
        for (unsigned i = 0; i < op->pieces_count; i++)
            SH_ASSERT((uintptr_t)op->pieces[i].iov_base % align == 0 &&
                      op->pieces[i].iov_len % align == 0);
    }
    if (sim->down)
        return SHOAL_OK; /* a crashed node's operation, of which nobody will hear */
    if (op->kind != SH_DISK_SYNC_DIR)
        (void)inode_of(sim, op->file);
    if (sim->in_flight == SH_SIM_DISK_OPS_MAX ||
        (sim->in_flight && sh_prng_chance(&sim->prng, sim->faults.again_ppm)))
        return SHOAL_EAGAIN;
    unsigned at = 0;
    while (sim->slots[at].op)
        at++;
    op->err = SHOAL_OK;
    op->done_bytes = 0;
    slot_fill(sim, at, op);
    sim->in_flight++;
    return SHOAL_OK;
}

static void end_earliest(struct sim_disk *disk)
{
    unsigned earliest = SH_SIM_DISK_OPS_MAX;
    for (unsigned i = 0; i < SH_SIM_DISK_OPS_MAX; i++) {
        const struct slot *slot = &disk->slots[i];
        if (slot->op && !slot->over &&
            (earliest == SH_SIM_DISK_OPS_MAX || slot->number < disk->slots[earliest].number))
            earliest = i;
    }
    if (earliest < SH_SIM_DISK_OPS_MAX)
        slot_end(disk, earliest);
}

static unsigned sim_poll(struct sh_disk *disk, bool wait)
{
    struct sim_disk *sim = sim_of(disk);
    if (wait && !sim->over_count)
        end_earliest(sim);
    unsigned most = sim->over_count;
    unsigned reported = 0;
    /* A done may submit again, and only a crash, which no done can cause, empties the list. */
    while (reported < most) {
        struct slot *slot = &sim->slots[sim->order[0]];
        sim->over_count--;
        memmove(sim->order, sim->order + 1, sim->over_count * sizeof sim->order[0]);
        struct sh_disk_op *op = slot->op;
        free(slot->bytes);
        *slot = (struct slot){0};
        sim->in_flight--;
        reported++;
        op->done(op);
    }
    return reported;
}

static void forget_operations(struct sim_disk *disk)
{
    for (unsigned i = 0; i < SH_SIM_DISK_OPS_MAX; i++) {
        free(disk->slots[i].bytes);
        disk->slots[i] = (struct slot){0};
    }
    disk->over_count = 0;
    disk->in_flight = 0;
}

/* The process ends well: what is in flight still takes place, and nobody hears of it. */
static void sim_destroy(struct sh_disk *disk)
{
    struct sim_disk *sim = sim_of(disk);
    for (unsigned i = 0; i < SH_SIM_DISK_OPS_MAX && !sim->down; i++)
        end_earliest(sim);
    forget_operations(sim);
    memset(sim->files, 0, sizeof sim->files);
    sweep_inodes(sim);
}

static const struct sh_disk_ops sim_ops = {
    .open = sim_open,
    .claim = sim_claim,
    .close = sim_close,
    .size = sim_size,
    .rename = sim_rename,
    .remove = sim_remove,
    .space = sim_space,
    .submit = sim_submit,
    .poll = sim_poll,
    .destroy = sim_destroy,
};

struct sh_disk *sh_sim_disk_create(struct sh_world *world, unsigned node, struct sh_prng prng,
                                   const struct sh_disk_faults *faults)
{
    struct sim_disk *disk = sh_sim_alloc(sizeof *disk);
    disk->base.ops = &sim_ops;
    disk->world = world;
    disk->node = node;
    disk->prng = prng;
    disk->faults = *faults;
    return &disk->base;
}

void sh_sim_disk_faults_set(struct sh_disk *disk, const struct sh_disk_faults *faults)
{
    sim_of(disk)->faults = *faults;
}

/* --- Crashes ---------------------------------------------------------------------------------- */

/* Changes under way at a crash may have reached the disk in part, like those done and not synced. */
static void crash_in_flight(struct sim_disk *disk, const struct sh_stored_luck *luck)
{
    for (unsigned i = 0; i < SH_SIM_DISK_OPS_MAX; i++) {
        struct slot *slot = &disk->slots[i];
        const struct sh_disk_op *op = slot->op;
        if (!op || slot->over || (!sh_disk_is_write(op) && !sh_disk_is_range(op)))
            continue;
        struct inode *inode = inode_of(disk, op->file);
        enum sh_disk_kind kind = sh_disk_is_range(op) ? op->kind : SH_DISK_WRITE;
        if (kind == SH_DISK_DISCARD || has_space(disk, inode, op))
            sh_stored_crash_change(&inode->stored, kind, op->offset, slot->bytes, op->size, luck);
    }
}

void sh_sim_disk_crash(struct sh_disk *base)
{
    struct sim_disk *disk = sim_of(base);
    struct sh_stored_luck luck = luck_of(disk);
    for (struct inode *inode = disk->inodes; inode; inode = inode->next) {
        if (disk->faults.keeps_done)
            sh_stored_keep(&inode->stored);
        sh_stored_crash(&inode->stored, &luck);
    }
    crash_in_flight(disk, &luck);
    forget_operations(disk);
    memset(disk->files, 0, sizeof disk->files);
    uint64_t oldest = disk->changes ? disk->changes->number : disk->change_number;
    stabilize_names(disk, sh_prng_between(&disk->prng, oldest, disk->change_number));
    while (disk->changes) {
        struct change *next = disk->changes->next;
        free(disk->changes);
        disk->changes = next;
    }
    disk->newest = NULL;
    disk->seen = disk->stable;
    sweep_inodes(disk);
    for (struct inode *inode = disk->inodes; inode; inode = inode->next)
        sh_stored_reset(&inode->stored);
    disk->down = true;
}

const struct sh_image *sh_sim_disk_file(const struct sh_disk *base, const char *name)
{
    const struct sim_disk *disk = (const struct sim_disk *)base;
    int entry = directory_find(&disk->stable, name);
    return entry < 0 ? NULL : &disk->stable.inodes[entry]->stored.stable;
}

void sh_sim_disk_lose(struct sh_disk *base)
{
    struct sim_disk *disk = sim_of(base);
    SH_ASSERT(disk->down && !disk->changes);
    trace(disk, "lose()", 0, 0, (struct sh_bytes){0});
    memset(&disk->seen, 0, sizeof disk->seen);
    memset(&disk->stable, 0, sizeof disk->stable);
    sweep_inodes(disk);
}

static void image_flip(struct sh_image *image, uint64_t bit)
{
    uint8_t byte;
    sh_image_read(image, bit / 8, &byte, 1);
    byte ^= (uint8_t)(1u << bit % 8);
    sh_image_write(image, bit / 8, &byte, 1);
}

void sh_sim_disk_flip(struct sh_disk *base, const char *name, uint64_t bit)
{
    struct sim_disk *disk = sim_of(base);
    int entry = directory_find(&disk->stable, name);
    SH_ASSERT(entry >= 0);
    struct inode *inode = disk->stable.inodes[entry];
    SH_ASSERT(!inode->stored.unsynced && bit / 8 < inode->stored.stable.size);
    trace(disk, "flip(bit)", bit, 0, sh_bytes_text(name));
    image_flip(&inode->stored.stable, bit);
    image_flip(&inode->stored.seen, bit);
}

void sh_sim_disk_up(struct sh_disk *base)
{
    sim_of(base)->down = false;
}

void sh_sim_disk_free(struct sh_disk *base)
{
    struct sim_disk *disk = sim_of(base);
    forget_operations(disk);
    while (disk->changes) {
        struct change *next = disk->changes->next;
        free(disk->changes);
        disk->changes = next;
    }
    memset(&disk->seen, 0, sizeof disk->seen);
    memset(&disk->stable, 0, sizeof disk->stable);
    memset(disk->files, 0, sizeof disk->files);
    sweep_inodes(disk);
    free(disk);
}
