/* A shard's scratch: small values under names, in order. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

static struct sh_bytes key_of(const struct sh_metadata_scratch *entry)
{
    return sh_bytes_make(entry->bytes, entry->key_size);
}

static struct sh_bytes value_of(const struct sh_metadata_scratch *entry)
{
    return sh_bytes_make(entry->bytes + entry->key_size, entry->value_size);
}

/* Where a key is, or would be. */
static size_t lower(const struct sh_metadata_shard *shard, struct sh_bytes key, bool *found_out)
{
    size_t low = 0;
    size_t high = shard->scratch_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sh_metadata_compare(key_of(&shard->scratch[middle]), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found_out =
        low < shard->scratch_count && sh_metadata_compare(key_of(&shard->scratch[low]), key) == 0;
    return low;
}

static enum shoal_err insert(struct sh_metadata_shard *shard, size_t at, struct sh_bytes key,
                             struct sh_bytes value)
{
    SH_ASSERT(key.size && key.size <= SH_NAME_BYTES_MAX && value.size <= SH_SCRATCH_VALUE_MAX);
    uint8_t *bytes = malloc(key.size + value.size);
    if (!bytes)
        return SHOAL_ENOMEM;
    if (shard->scratch_count == shard->scratch_room) {
        size_t room = shard->scratch_room ? 2 * shard->scratch_room : 8;
        struct sh_metadata_scratch *entries = realloc(shard->scratch, room * sizeof *entries);
        if (!entries) {
            free(bytes);
            return SHOAL_ENOMEM;
        }
        shard->scratch = entries;
        shard->scratch_room = room;
    }
    memcpy(bytes, key.at, key.size);
    if (value.size)
        memcpy(bytes + key.size, value.at, value.size);
    struct sh_metadata_scratch *entry = &shard->scratch[at];
    memmove(entry + 1, entry, (shard->scratch_count - at) * sizeof *entry);
    *entry = (struct sh_metadata_scratch){
        .bytes = bytes, .value_size = (uint16_t)value.size, .key_size = (uint8_t)key.size};
    shard->scratch_count++;
    shard->scratch_bytes += key.size + value.size;
    return SHOAL_OK;
}

static void take_out(struct sh_metadata_shard *shard, size_t at)
{
    struct sh_metadata_scratch *entry = &shard->scratch[at];
    shard->scratch_bytes -= (size_t)entry->key_size + entry->value_size;
    free(entry->bytes);
    shard->scratch_count--;
    memmove(entry, entry + 1, (shard->scratch_count - at) * sizeof *entry);
}

static size_t bytes_with(const struct sh_metadata_shard *shard, struct sh_bytes key,
                         size_t value_size)
{
    bool is_there;
    size_t at = lower(shard, key, &is_there);
    size_t bytes = shard->scratch_bytes + key.size + value_size;
    if (is_there)
        bytes -= (size_t)shard->scratch[at].key_size + shard->scratch[at].value_size;
    return bytes;
}

size_t sh_metadata_scratch_bytes(const struct sh_metadata *metadata, struct sh_bytes key,
                                 size_t value_size)
{
    return bytes_with(&metadata->shards[sh_arc_shard_of_name(key)], key, value_size);
}

struct sh_metadata_result sh_metadata_scratch_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update)
{
    bool is_there;
    size_t at = lower(shard, update->name, &is_there);
    struct sh_metadata_result result = {.err = SHOAL_OK};
    if (update->kind == SH_METADATA_SCRATCH_REMOVE) {
        if (is_there)
            take_out(shard, at);
        else
            result.err = SHOAL_ENONAME;
        return result;
    }
    size_t bytes = bytes_with(shard, update->name, update->value.size);
    if (bytes > SH_SCRATCH_BYTES_MAX || (!is_there && shard->scratch_count >= SH_SCRATCH_MAX)) {
        result.err = SHOAL_ELIMIT;
        return result;
    }
    if (is_there)
        take_out(shard, at);
    enum shoal_err err = insert(shard, at, update->name, update->value);
    SH_ASSERT(!err);
    return result;
}

enum shoal_err sh_metadata_scratch_get(const struct sh_metadata *metadata, struct sh_bytes key,
                                       struct sh_bytes *value_out)
{
    const struct sh_metadata_shard *shard = &metadata->shards[sh_arc_shard_of_name(key)];
    bool is_there;
    size_t at = lower(shard, key, &is_there);
    if (is_there)
        *value_out = value_of(&shard->scratch[at]);
    return is_there ? SHOAL_OK : SHOAL_ENONAME;
}

bool sh_metadata_scratch_next(const struct sh_metadata *metadata, unsigned number,
                              struct sh_bytes prefix, struct sh_bytes after,
                              struct sh_bytes *key_out, struct sh_bytes *value_out)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    bool is_after = after.at && sh_metadata_compare(after, prefix) >= 0;
    bool is_there;
    size_t at = lower(shard, is_after ? after : prefix, &is_there);
    at += is_after && is_there;
    if (at >= shard->scratch_count)
        return false;
    struct sh_bytes key = key_of(&shard->scratch[at]);
    if (key.size < prefix.size || (prefix.size && memcmp(key.at, prefix.at, prefix.size) != 0))
        return false;
    *key_out = key;
    *value_out = value_of(&shard->scratch[at]);
    return true;
}

size_t sh_metadata_scratch_size(const struct sh_metadata_shard *shard)
{
    return 4 + 4 * shard->scratch_count + shard->scratch_bytes;
}

void sh_metadata_scratch_put(const struct sh_metadata_shard *shard, struct sh_writer *w)
{
    sh_put32(w, (uint32_t)shard->scratch_count);
    for (size_t i = 0; i < shard->scratch_count; i++) {
        sh_put_text(w, key_of(&shard->scratch[i]));
        sh_put_text(w, value_of(&shard->scratch[i]));
    }
}

enum shoal_err sh_metadata_scratch_read(struct sh_metadata_shard *shard, struct sh_reader *r)
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
        if (lower(shard, key, &is_found) != i || is_found)
            return SHOAL_EPROTO; /* not in order */
        enum shoal_err err = insert(shard, i, key, value);
        if (err)
            return err;
    }
    return shard->scratch_bytes <= SH_SCRATCH_BYTES_MAX ? SHOAL_OK : SHOAL_EPROTO;
}

void sh_metadata_scratch_clear(struct sh_metadata_shard *shard)
{
    for (size_t i = 0; i < shard->scratch_count; i++)
        free(shard->scratch[i].bytes);
    free(shard->scratch);
    shard->scratch = NULL;
    shard->scratch_count = shard->scratch_room = shard->scratch_bytes = 0;
}
