/* A shard's names, in order. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

int sh_metadata_compare(struct sh_bytes a, struct sh_bytes b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size ? memcmp(a.at, b.at, size) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

bool sh_metadata_is_name(struct sh_bytes name)
{
    return name.size && name.size <= SH_NAME_BYTES_MAX && !memchr(name.at, 0, name.size);
}

static struct sh_bytes bytes_of(const struct sh_metadata_name *name)
{
    return sh_bytes_make(name->bytes, name->size);
}

size_t sh_metadata_name_lower(const struct sh_metadata_shard *shard, struct sh_bytes name,
                              bool *found_out)
{
    size_t low = 0;
    size_t high = shard->name_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sh_metadata_compare(bytes_of(&shard->names[middle]), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found_out =
        low < shard->name_count && sh_metadata_compare(bytes_of(&shard->names[low]), name) == 0;
    return low;
}

enum shoal_err sh_metadata_name_insert(struct sh_metadata_shard *shard, size_t at,
                                       struct sh_bytes name, shoal_cid cid)
{
    SH_ASSERT(name.size && name.size <= SH_NAME_BYTES_MAX && at <= shard->name_count);
    uint8_t *copy = malloc(name.size);
    if (!copy)
        return SHOAL_ENOMEM;
    memcpy(copy, name.at, name.size);
    if (shard->name_count == shard->name_room) {
        size_t room = shard->name_room ? 2 * shard->name_room : 8;
        struct sh_metadata_name *names = realloc(shard->names, room * sizeof *names);
        if (!names) {
            free(copy);
            return SHOAL_ENOMEM;
        }
        shard->names = names;
        shard->name_room = room;
    }
    struct sh_metadata_name *entry = &shard->names[at];
    memmove(entry + 1, entry, (shard->name_count - at) * sizeof *entry);
    *entry = (struct sh_metadata_name){.cid = cid, .bytes = copy, .size = (uint8_t)name.size};
    shard->name_count++;
    return SHOAL_OK;
}

static void take_out(struct sh_metadata_shard *shard, size_t at)
{
    struct sh_metadata_name *entry = &shard->names[at];
    free(entry->bytes);
    shard->name_count--;
    memmove(entry, entry + 1, (shard->name_count - at) * sizeof *entry);
}

void sh_metadata_names_clear(struct sh_metadata_shard *shard)
{
    for (size_t i = 0; i < shard->name_count; i++)
        free(shard->names[i].bytes);
    free(shard->names);
    shard->names = NULL;
    shard->name_count = shard->name_room = 0;
}

/* Whether the condition keeps the update from being done. */
static enum shoal_err refusal(const struct sh_metadata_shard *shard,
                              const struct sh_metadata_update *update, bool is_there,
                              shoal_cid current)
{
    bool is_removal = update->kind == SH_METADATA_UNNAME;
    if (update->condition == SH_NAME_GATHERED)
        return is_removal || is_there || shard->names_known ? SHOAL_EEXIST : SHOAL_OK;
    if (!is_there)
        return is_removal || update->condition == SH_NAME_CURRENT ? SHOAL_ENONAME : SHOAL_OK;
    if (!is_removal && update->condition == SH_NAME_ABSENT)
        return SHOAL_EEXIST;
    bool differs = update->condition == SH_NAME_CURRENT && current.v != update->expected.v;
    return differs ? SHOAL_EDIFFERS : SHOAL_OK;
}

struct sh_metadata_result sh_metadata_name_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update)
{
    bool is_there;
    size_t at = sh_metadata_name_lower(shard, update->name, &is_there);
    struct sh_metadata_result result = {.cid = is_there ? shard->names[at].cid : SHOAL_CID_NONE};
    result.err = refusal(shard, update, is_there, result.cid);
    if (result.err)
        return result;
    shard->name_changes++;
    if (update->kind == SH_METADATA_UNNAME) {
        take_out(shard, at);
    } else if (is_there) {
        shard->names[at].cid = update->cid;
    } else if (shard->name_count >= SH_METADATA_NAMES_MAX) {
        result.err = SHOAL_ELIMIT;
    } else {
        enum shoal_err err = sh_metadata_name_insert(shard, at, update->name, update->cid);
        SH_ASSERT(!err);
    }
    return result;
}

uint64_t sh_metadata_name_changes(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].name_changes;
}

uint64_t sh_metadata_name_base(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].name_base;
}

bool sh_metadata_names_known(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].names_known;
}

enum shoal_err sh_metadata_lookup(const struct sh_metadata *metadata, struct sh_bytes name,
                                  shoal_cid *cid_out)
{
    const struct sh_metadata_shard *shard = &metadata->shards[sh_arc_shard_of_name(name)];
    bool is_there;
    size_t at = sh_metadata_name_lower(shard, name, &is_there);
    if (is_there)
        *cid_out = shard->names[at].cid;
    return is_there ? SHOAL_OK : SHOAL_ENONAME;
}

bool sh_metadata_name_next(const struct sh_metadata *metadata, unsigned number,
                           struct sh_bytes prefix, struct sh_bytes after, struct sh_bytes *name_out,
                           shoal_cid *cid_out)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    bool is_after = after.at && sh_metadata_compare(after, prefix) >= 0;
    bool is_there;
    size_t at = sh_metadata_name_lower(shard, is_after ? after : prefix, &is_there);
    at += is_after && is_there;
    if (at >= shard->name_count)
        return false;
    struct sh_bytes name = bytes_of(&shard->names[at]);
    if (name.size < prefix.size || (prefix.size && memcmp(name.at, prefix.at, prefix.size) != 0))
        return false;
    *name_out = name;
    *cid_out = shard->names[at].cid;
    return true;
}
