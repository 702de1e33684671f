/* A sector's scratch: small values under names, in order. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/metadata_int.h"

static struct sh_bytes key_of(const struct sh_metadata_scratch *entry)
{
    return sh_bytes_make(entry->bytes, entry->key_size);
}

static struct sh_bytes value_of(const struct sh_metadata_scratch *entry)
{
    return sh_bytes_make(entry->bytes + entry->key_size, entry->value_size);
}

/* Where a key is, or would be. */
static size_t lower(const struct sh_metadata_sector *sector, struct sh_bytes key, bool *found_out)
{
    size_t low = 0;
    size_t high = sector->scratch_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sh_metadata_compare(key_of(&sector->scratch[middle]), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found_out =
        low < sector->scratch_count && sh_metadata_compare(key_of(&sector->scratch[low]), key) == 0;
    return low;
}

static enum shoal_err insert(struct sh_metadata_sector *sector, size_t at, struct sh_bytes key,
                             struct sh_bytes value)
{
    SH_ASSERT(key.size && key.size <= SH_NAME_BYTES_MAX && value.size <= SH_SCRATCH_VALUE_MAX);
    uint8_t *bytes = malloc(key.size + value.size);
    if (!bytes)
        return SHOAL_ENOMEM;
    if (sector->scratch_count == sector->scratch_room) {
        size_t room = sector->scratch_room ? 2 * sector->scratch_room : 8;
        struct sh_metadata_scratch *entries = realloc(sector->scratch, room * sizeof *entries);
        if (!entries) {
            free(bytes);
            return SHOAL_ENOMEM;
        }
        sector->scratch = entries;
        sector->scratch_room = room;
    }
    memcpy(bytes, key.at, key.size);
    if (value.size)
        memcpy(bytes + key.size, value.at, value.size);
    struct sh_metadata_scratch *entry = &sector->scratch[at];
    memmove(entry + 1, entry, (sector->scratch_count - at) * sizeof *entry);
    *entry = (struct sh_metadata_scratch){
        .bytes = bytes, .value_size = (uint16_t)value.size, .key_size = (uint8_t)key.size};
    sector->scratch_count++;
    sector->scratch_bytes += key.size + value.size;
    return SHOAL_OK;
}

static void take_out(struct sh_metadata_sector *sector, size_t at)
{
    struct sh_metadata_scratch *entry = &sector->scratch[at];
    sector->scratch_bytes -= (size_t)entry->key_size + entry->value_size;
    free(entry->bytes);
    sector->scratch_count--;
    memmove(entry, entry + 1, (sector->scratch_count - at) * sizeof *entry);
}

static size_t bytes_with(const struct sh_metadata_sector *sector, struct sh_bytes key,
                         size_t value_size)
{
    bool is_there;
    size_t at = lower(sector, key, &is_there);
    size_t bytes = sector->scratch_bytes + key.size + value_size;
    if (is_there)
        bytes -= (size_t)sector->scratch[at].key_size + sector->scratch[at].value_size;
    return bytes;
}

size_t sh_metadata_scratch_bytes(const struct sh_metadata *metadata, struct sh_bytes key,
                                 size_t value_size)
{
    return bytes_with(&metadata->sectors[sh_arc_sector_of_name(key)], key, value_size);
}

struct sh_metadata_result sh_metadata_scratch_apply(struct sh_metadata_sector *sector,
                                                    const struct sh_metadata_update *update)
{
    bool is_there;
    size_t at = lower(sector, update->name, &is_there);
    struct sh_metadata_result result = {.err = SHOAL_OK};
    if (update->kind == SH_METADATA_SCRATCH_REMOVE) {
        if (is_there)
            take_out(sector, at);
        else
            result.err = SHOAL_ENONAME;
        return result;
    }
    size_t bytes = bytes_with(sector, update->name, update->value.size);
    if (bytes > SH_SCRATCH_BYTES_MAX || (!is_there && sector->scratch_count >= SH_SCRATCH_MAX)) {
        result.err = SHOAL_ELIMIT;
        return result;
    }
    if (is_there)
        take_out(sector, at);
    enum shoal_err err = insert(sector, at, update->name, update->value);
    SH_ASSERT(!err);
    return result;
}

enum shoal_err sh_metadata_scratch_get(const struct sh_metadata *metadata, struct sh_bytes key,
                                       struct sh_bytes *value_out)
{
    const struct sh_metadata_sector *sector = &metadata->sectors[sh_arc_sector_of_name(key)];
    bool is_there;
    size_t at = lower(sector, key, &is_there);
    if (is_there)
        *value_out = value_of(&sector->scratch[at]);
    return is_there ? SHOAL_OK : SHOAL_ENONAME;
}

bool sh_metadata_scratch_next(const struct sh_metadata *metadata, unsigned number,
                              struct sh_bytes prefix, struct sh_bytes after,
                              struct sh_bytes *key_out, struct sh_bytes *value_out)
{
    SH_ASSERT(number < SH_SECTORS);
    const struct sh_metadata_sector *sector = &metadata->sectors[number];
    bool is_after = after.at && sh_metadata_compare(after, prefix) >= 0;
    bool is_there;
    size_t at = lower(sector, is_after ? after : prefix, &is_there);
    at += is_after && is_there;
    if (at >= sector->scratch_count)
        return false;
    struct sh_bytes key = key_of(&sector->scratch[at]);
    if (key.size < prefix.size || (prefix.size && memcmp(key.at, prefix.at, prefix.size) != 0))
        return false;
    *key_out = key;
    *value_out = value_of(&sector->scratch[at]);
    return true;
}

size_t sh_metadata_scratch_size(const struct sh_metadata_sector *sector)
{
    return 4 + 4 * sector->scratch_count + sector->scratch_bytes;
}

void sh_metadata_scratch_put(const struct sh_metadata_sector *sector, struct sh_writer *w)
{
    sh_put32(w, (uint32_t)sector->scratch_count);
    for (size_t i = 0; i < sector->scratch_count; i++) {
        sh_put_text(w, key_of(&sector->scratch[i]));
        sh_put_text(w, value_of(&sector->scratch[i]));
    }
}

enum shoal_err sh_metadata_scratch_read(struct sh_metadata_sector *sector, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    if (count > SH_SCRATCH_MAX)
        return SHOAL_EPROTO;
    for (uint32_t i = 0; i < count; i++) {
        struct sh_bytes key = sh_get_text(r);
        struct sh_bytes value = sh_get_text(r);
        bool is_found;
        if (!sh_reader_ok(r) || !sh_metadata_is_name(key) || value.size > SH_SCRATCH_VALUE_MAX)
            return SHOAL_EPROTO;
        if (lower(sector, key, &is_found) != i || is_found)
            return SHOAL_EPROTO; /* not in order */
        enum shoal_err err = insert(sector, i, key, value);
        if (err)
            return err;
    }
    return sector->scratch_bytes <= SH_SCRATCH_BYTES_MAX ? SHOAL_OK : SHOAL_EPROTO;
}

void sh_metadata_scratch_clear(struct sh_metadata_sector *sector)
{
    for (size_t i = 0; i < sector->scratch_count; i++)
        free(sector->scratch[i].bytes);
    free(sector->scratch);
    sector->scratch = NULL;
    sector->scratch_count = sector->scratch_room = sector->scratch_bytes = 0;
}
