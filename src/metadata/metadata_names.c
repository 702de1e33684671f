/* A shard's names. */
#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

bool sh_metadata_is_name(struct sh_bytes name)
{
    return name.size && name.size <= SH_NAME_BYTES_MAX && !memchr(name.at, 0, name.size);
}

/* The chunk of a name; 0: it is not there. */
static shoal_cid cid_of(const struct sh_metadata_shard *shard, struct sh_bytes name)
{
    struct sh_bytes value;
    if (!sh_metadata_item_get(shard, SH_ITEM_NAME, name, &value))
        return SHOAL_CID_NONE;
    SH_ASSERT(value.size == 8);
    return (shoal_cid){sh_load64(value.at)};
}

/* Whether the condition keeps the update from being done. */
static enum shoal_err refusal(const struct sh_metadata_update *update, shoal_cid current)
{
    bool is_removal = update->kind == SH_METADATA_UNNAME;
    if (!current.v)
        return is_removal || update->condition == SH_NAME_CURRENT ? SHOAL_ENONAME : SHOAL_OK;
    if (!is_removal && update->condition == SH_NAME_ABSENT)
        return SHOAL_EEXIST;
    bool differs = update->condition == SH_NAME_CURRENT && current.v != update->expected.v;
    return differs ? SHOAL_EDIFFERS : SHOAL_OK;
}

struct sh_metadata_result sh_metadata_name_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update)
{
    SH_ASSERT(update->kind == SH_METADATA_NAME || update->kind == SH_METADATA_UNNAME);
    struct sh_metadata_result result = {.cid = cid_of(shard, update->name)};
    result.err = refusal(update, result.cid);
    if (result.err)
        return result;
    if (update->kind == SH_METADATA_UNNAME) {
        sh_metadata_item_remove(shard, SH_ITEM_NAME, update->name);
    } else if (!result.cid.v && shard->counts[SH_ITEM_NAME] >= SH_METADATA_NAMES_MAX) {
        result.err = SHOAL_ELIMIT;
    } else {
        uint8_t value[8];
        sh_store64(value, update->cid.v);
        sh_metadata_item_put(shard, SH_ITEM_NAME, update->name, sh_bytes_make(value, 8));
    }
    SH_ASSERT(shard->counts[SH_ITEM_NAME] <= SH_METADATA_NAMES_MAX);
    return result;
}

enum shoal_err sh_metadata_lookup(const struct sh_metadata *metadata, struct sh_bytes name,
                                  shoal_cid *cid_out)
{
    if (!name.size || name.size > SH_NAME_BYTES_MAX)
        return SHOAL_ENONAME;
    shoal_cid cid = cid_of(&metadata->shards[sh_arc_shard_of_name(name)], name);
    if (cid.v)
        *cid_out = cid;
    return cid.v ? SHOAL_OK : SHOAL_ENONAME;
}

bool sh_metadata_name_next(const struct sh_metadata *metadata, unsigned number,
                           struct sh_bytes prefix, struct sh_bytes after, struct sh_bytes *name_out,
                           shoal_cid *cid_out)
{
    SH_ASSERT(number < SH_SHARDS);
    struct sh_bytes value;
    if (!sh_metadata_item_search(&metadata->shards[number], SH_ITEM_NAME, prefix, after, name_out,
                                 &value))
        return false;
    *cid_out = (shoal_cid){sh_load64(value.at)};
    return true;
}
