/* A disk in memory: the same operations, without anything that survives the process. Each operation
 * is carried out when it is submitted, and completed by the next poll. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "env/disk.h"

#define NAME_BYTES 64
#define OPS_MAX 64
#define BYTES_MIN 4096

struct memory_file {
    struct memory_file *next;
    char name[NAME_BYTES]; /* empty: it has lost its name, and goes with its last opener */
    unsigned openers;
    bool is_claimed;
    uint8_t *bytes;
    size_t size, room;
    int number;
};

struct memory_disk {
    struct sh_disk base;
    struct memory_file *files;
    int numbers; /* that were given out */
    struct sh_disk_op *done[OPS_MAX];
    unsigned done_count;
};

static struct memory_disk *memory_of(struct sh_disk *disk)
{
    return (struct memory_disk *)disk;
}

static struct memory_file *named(const struct memory_disk *memory, const char *name)
{
    struct memory_file *file = memory->files;
    while (file && strcmp(file->name, name) != 0)
        file = file->next;
    return file;
}

static struct memory_file *numbered(const struct memory_disk *memory, int number)
{
    struct memory_file *file = memory->files;
    while (file && file->number != number)
        file = file->next;
    SH_ASSERT(file && file->openers);
    return file;
}

static bool name_usable(const char *name)
{
    return name[0] && strlen(name) < NAME_BYTES && !strchr(name, '/');
}

/* Frees a file that has neither a name nor an opener. */
static void file_sweep(struct memory_disk *memory, struct memory_file *file)
{
    if (file->name[0] || file->openers)
        return;
    struct memory_file **at = &memory->files;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
    free(file->bytes);
    free(file);
}

static struct memory_file *file_make(struct memory_disk *memory, const char *name)
{
    struct memory_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    strcpy(file->name, name);
    file->number = memory->numbers++;
    file->next = memory->files;
    memory->files = file;
    return file;
}

static enum shoal_err memory_open(struct sh_disk *disk, const char *name, bool create,
                                  int *file_out)
{
    struct memory_disk *memory = memory_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    struct memory_file *file = named(memory, name);
    if (!file && !create)
        return SHOAL_ENONAME;
    if (!file)
        file = file_make(memory, name);
    if (!file)
        return SHOAL_ENOMEM;
    file->openers++;
    *file_out = file->number;
    return SHOAL_OK;
}

static enum shoal_err memory_claim(struct sh_disk *disk, const char *name, int *file_out)
{
    struct memory_disk *memory = memory_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    struct memory_file *file = named(memory, name);
    if (file && file->is_claimed)
        return SHOAL_EBUSY;
    if (file) {
        file->name[0] = '\0';
        file_sweep(memory, file);
    }
    file = file_make(memory, name);
    if (!file)
        return SHOAL_ENOMEM;
    file->is_claimed = true;
    file->openers = 1;
    *file_out = file->number;
    return SHOAL_OK;
}

static void memory_close(struct sh_disk *disk, int number)
{
    struct memory_disk *memory = memory_of(disk);
    struct memory_file *file = numbered(memory, number);
    file->openers--;
    file->is_claimed &= file->openers > 0;
    file_sweep(memory, file);
}

static enum shoal_err memory_size(struct sh_disk *disk, int number, uint64_t *bytes_out)
{
    *bytes_out = numbered(memory_of(disk), number)->size;
    return SHOAL_OK;
}

static enum shoal_err memory_remove(struct sh_disk *disk, const char *name)
{
    struct memory_disk *memory = memory_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    struct memory_file *file = named(memory, name);
    if (!file)
        return SHOAL_ENONAME;
    file->name[0] = '\0';
    file_sweep(memory, file);
    return SHOAL_OK;
}

static enum shoal_err memory_rename(struct sh_disk *disk, const char *from, const char *to)
{
    struct memory_disk *memory = memory_of(disk);
    if (!name_usable(from) || !name_usable(to))
        return SHOAL_EINVAL;
    struct memory_file *file = named(memory, from);
    if (!file)
        return SHOAL_ENONAME;
    if (strcmp(from, to) != 0)
        (void)memory_remove(disk, to);
    strcpy(file->name, to);
    return SHOAL_OK;
}

static enum shoal_err memory_space(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out)
{
    (void)disk;
    *bytes_out = *free_out = UINT64_MAX;
    return SHOAL_OK;
}

static enum shoal_err grow(struct memory_file *file, size_t size)
{
    if (size <= file->room)
        return SHOAL_OK;
    size_t room = file->room ? file->room : BYTES_MIN;
    while (room < size)
        room *= 2;
    uint8_t *bytes = realloc(file->bytes, room);
    if (!bytes)
        return SHOAL_ENOSPC;
    memset(bytes + file->room, 0, room - file->room);
    file->bytes = bytes;
    file->room = room;
    return SHOAL_OK;
}

static void carry_out(struct memory_disk *memory, struct sh_disk_op *op)
{
    op->err = SHOAL_OK;
    op->done_bytes = 0;
    if (op->kind == SH_DISK_SYNC || op->kind == SH_DISK_SYNC_DIR)
        return;
    struct memory_file *file = numbered(memory, op->file);
    if (op->kind == SH_DISK_READ) {
        size_t left = op->offset < file->size ? file->size - (size_t)op->offset : 0;
        op->done_bytes = op->size < left ? op->size : left;
        if (op->done_bytes)
            memcpy(op->data, file->bytes + op->offset, op->done_bytes);
        return;
    }
    size_t end = (size_t)op->offset + op->size;
    if (op->kind == SH_DISK_DISCARD) {
        size_t to = end < file->size ? end : file->size;
        if (op->offset < to)
            memset(file->bytes + op->offset, 0, to - (size_t)op->offset);
        op->done_bytes = op->size; /* their memory stays for what comes next */
        return;
    }
    op->err = grow(file, end);
    if (op->err)
        return;
    op->done_bytes = op->size;
    if (end > file->size)
        file->size = end;
    if (op->kind != SH_DISK_ALLOCATE)
        sh_disk_gather(op, file->bytes + op->offset);
}

static enum shoal_err memory_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct memory_disk *memory = memory_of(disk);
    if (memory->done_count == OPS_MAX)
        return SHOAL_EAGAIN;
    SH_ASSERT(!sh_disk_is_range(op) || sh_disk_range_is_sound(op));
    carry_out(memory, op);
    memory->done[memory->done_count++] = op;
    return SHOAL_OK;
}

static unsigned memory_poll(struct sh_disk *disk, bool wait)
{
    struct memory_disk *memory = memory_of(disk);
    struct sh_disk_op *done[OPS_MAX];
    unsigned count = memory->done_count;
    (void)wait;
    memcpy(done, memory->done, count * sizeof done[0]);
    memory->done_count = 0;
    for (unsigned i = 0; i < count; i++)
        done[i]->done(done[i]); /* may submit more */
    return count;
}

static void memory_destroy(struct sh_disk *disk)
{
    struct memory_disk *memory = memory_of(disk);
    while (memory->files) {
        struct memory_file *file = memory->files;
        memory->files = file->next;
        free(file->bytes);
        free(file);
    }
    free(memory);
}

enum shoal_err sh_memory_disk_create(struct sh_disk **disk_out)
{
    static const struct sh_disk_ops ops = {.open = memory_open,
                                           .claim = memory_claim,
                                           .close = memory_close,
                                           .size = memory_size,
                                           .rename = memory_rename,
                                           .remove = memory_remove,
                                           .space = memory_space,
                                           .submit = memory_submit,
                                           .poll = memory_poll,
                                           .destroy = memory_destroy};
    struct memory_disk *memory = calloc(1, sizeof *memory);
    if (!memory)
        return SHOAL_ENOMEM;
    memory->base.ops = &ops;
    *disk_out = &memory->base;
    return SHOAL_OK;
}
