/* A shard's scratch: small values under keys. */
#include "base/assert.h"
#include "metadata/metadata_int.h"

/* Bytes of keys and values with another value of a key; whether the key is there. */
static size_t bytes_with(const struct sh_metadata_shard *shard, struct sh_bytes key,
                         size_t value_size, bool *is_there_out)
{
    struct sh_bytes value;
    *is_there_out = sh_metadata_item_get(shard, SH_ITEM_SCRATCH, key, &value);
    return shard->scratch_bytes + key.size + value_size -
           (*is_there_out ? key.size + value.size : 0);
}

size_t sh_metadata_scratch_bytes(const struct sh_metadata *metadata, struct sh_bytes key,
                                 size_t value_size)
{
    bool is_there;
    return bytes_with(&metadata->shards[sh_arc_shard_of_name(key)], key, value_size, &is_there);
}

struct sh_metadata_result sh_metadata_scratch_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update)
{
    SH_ASSERT(update->kind == SH_METADATA_SCRATCH_PUT ||
              update->kind == SH_METADATA_SCRATCH_REMOVE);
    bool is_there, is_removal = update->kind == SH_METADATA_SCRATCH_REMOVE;
    size_t bytes = bytes_with(shard, update->name, is_removal ? 0 : update->value.size, &is_there);
    struct sh_metadata_result result = {.err = SHOAL_OK};
    if (is_removal && !is_there)
        result.err = SHOAL_ENONAME;
    else if (!is_removal && (bytes > SH_SCRATCH_BYTES_MAX ||
                             (!is_there && shard->counts[SH_ITEM_SCRATCH] >= SH_SCRATCH_MAX)))
        result.err = SHOAL_ELIMIT;
    if (result.err)
        return result;
    if (is_removal)
        sh_metadata_item_remove(shard, SH_ITEM_SCRATCH, update->name);
    else
        sh_metadata_item_put(shard, SH_ITEM_SCRATCH, update->name, update->value);
    shard->scratch_bytes = is_removal ? bytes - update->name.size : bytes;
    SH_ASSERT(shard->scratch_bytes <= SH_SCRATCH_BYTES_MAX);
    SH_ASSERT(shard->counts[SH_ITEM_SCRATCH] <= SH_SCRATCH_MAX);
    return result;
}

enum shoal_err sh_metadata_scratch_get(const struct sh_metadata *metadata, struct sh_bytes key,
                                       struct sh_bytes *value_out)
{
    if (!key.size || key.size > SH_NAME_BYTES_MAX)
        return SHOAL_ENONAME;
    const struct sh_metadata_shard *shard = &metadata->shards[sh_arc_shard_of_name(key)];
    return sh_metadata_item_get(shard, SH_ITEM_SCRATCH, key, value_out) ? SHOAL_OK : SHOAL_ENONAME;
}

bool sh_metadata_scratch_next(const struct sh_metadata *metadata, unsigned number,
                              struct sh_bytes prefix, struct sh_bytes after,
                              struct sh_bytes *key_out, struct sh_bytes *value_out)
{
    SH_ASSERT(number < SH_SHARDS);
    return sh_metadata_item_search(&metadata->shards[number], SH_ITEM_SCRATCH, prefix, after,
                                   key_out, value_out);
}
