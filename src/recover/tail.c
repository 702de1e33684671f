#include "recover/tail.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define NOTHING SIZE_MAX /* an offset: there are no bytes */

struct part {
    struct sh_replog_write write;
    size_t payload, completion; /* offsets */
};

struct sh_tail_entry {
    struct part main, with;
    bool has_with;
};

/* Copies bytes; *at_out is where they are. */
static enum shoal_err bytes_add(struct sh_tail *tail, struct sh_bytes bytes, size_t *at_out)
{
    *at_out = NOTHING;
    if (!bytes.at)
        return SHOAL_OK;
    if (!tail->bytes || tail->bytes_used + bytes.size > tail->bytes_room) {
        size_t room = 2 * tail->bytes_room + bytes.size + 4096;
        uint8_t *grown = realloc(tail->bytes, room);
        if (!grown)
            return SHOAL_ENOMEM;
        tail->bytes = grown;
        tail->bytes_room = room;
    }
    memcpy(tail->bytes + tail->bytes_used, bytes.at, bytes.size);
    *at_out = tail->bytes_used;
    tail->bytes_used += bytes.size;
    return SHOAL_OK;
}

static enum shoal_err part_add(struct sh_tail *tail, const struct sh_replog_write *write,
                               struct part *part)
{
    part->write = *write;
    part->write.with = NULL;
    enum shoal_err err = bytes_add(tail, write->payload, &part->payload);
    return err ? err : bytes_add(tail, write->completion, &part->completion);
}

enum shoal_err sh_tail_add(struct sh_tail *tail, uint64_t number,
                           const struct sh_replog_write *write)
{
    SH_ASSERT(number + 1 >= tail->next);
    if (tail->count == tail->room) {
        size_t room = tail->room ? 2 * tail->room : 64;
        struct sh_tail_entry *grown = realloc(tail->entries, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        tail->entries = grown;
        tail->room = room;
    }
    struct sh_tail_entry *entry = &tail->entries[tail->count];
    *entry = (struct sh_tail_entry){.has_with = write->with != NULL};
    enum shoal_err err = part_add(tail, write, &entry->main);
    if (!err && write->with)
        err = part_add(tail, write->with, &entry->with);
    if (!err) {
        tail->count++;
        tail->next = number + 1;
    }
    return err;
}

/* The write again, whose bytes are in the tail. */
static struct sh_replog_write write_of(const struct sh_tail *tail, const struct part *part)
{
    struct sh_replog_write write = part->write;
    write.payload.at = part->payload == NOTHING ? NULL : tail->bytes + part->payload;
    write.completion.at = part->completion == NOTHING ? NULL : tail->bytes + part->completion;
    return write;
}

enum shoal_err sh_tail_tell(const struct sh_tail *tail, struct sh_backup *backup, uint64_t zone)
{
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; !err && i < tail->count; i++) {
        const struct sh_tail_entry *entry = &tail->entries[i];
        struct sh_replog_write with = write_of(tail, &entry->with);
        struct sh_replog_write write = write_of(tail, &entry->main);
        write.with = entry->has_with ? &with : NULL;
        err = sh_backup_adopt_write(backup, zone, &write);
    }
    return err;
}

void sh_tail_end(struct sh_tail *tail)
{
    free(tail->entries);
    free(tail->bytes);
    *tail = (struct sh_tail){.count = 0};
}
