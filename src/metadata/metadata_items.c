/* A shard's items: kind and key in front of the map. */
#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

_Static_assert(1 + SH_NAME_BYTES_MAX <= SH_MAP_KEY_MAX, "a kind and a name are a key");
_Static_assert(SH_SCRATCH_VALUE_MAX <= SH_MAP_VALUE_MAX, "a value of scratch is a value");

/* What is counted of items beside their number. */
static void count(struct sh_metadata_shard *shard, enum sh_metadata_item kind, struct sh_bytes key,
                  struct sh_bytes value, bool is_more)
{
    sh_metadata_refs_count(shard, kind, key, value, is_more);
    if (kind == SH_ITEM_ZONE)
        sh_metadata_zone_count(shard, value, is_more);
}

struct key {
    size_t size;
    uint8_t bytes[SH_MAP_KEY_MAX];
};

static struct sh_bytes key_make(enum sh_metadata_item kind, struct sh_bytes key, struct key *into)
{
    SH_ASSERT(kind && kind < SH_ITEM_KINDS && key.size < SH_MAP_KEY_MAX);
    into->bytes[0] = (uint8_t)kind;
    if (key.size)
        memcpy(into->bytes + 1, key.at, key.size);
    return sh_bytes_make(into->bytes, 1 + key.size);
}

/* Whether a key of the map is of a kind; cuts the kind off. */
static bool key_cut(enum sh_metadata_item kind, struct sh_bytes *key)
{
    bool is_of_kind = key->at[0] == kind;
    *key = sh_bytes_make(key->at + 1, key->size - 1);
    return is_of_kind;
}

bool sh_metadata_item_get(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                          struct sh_bytes key, struct sh_bytes *value_out)
{
    struct key made;
    return sh_map_get(&shard->items, key_make(kind, key, &made), value_out);
}

void sh_metadata_item_put(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                          struct sh_bytes key, struct sh_bytes value)
{
    struct key made;
    struct sh_bytes old;
    if (sh_metadata_item_get(shard, kind, key, &old))
        count(shard, kind, key, old, false);
    count(shard, kind, key, value, true);
    shard->counts[kind] +=
        sh_map_put(&shard->items, shard->cells, key_make(kind, key, &made), value);
}

void sh_metadata_item_append(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                             struct sh_bytes key, struct sh_bytes value)
{
    struct key made;
    count(shard, kind, key, value, true);
    sh_map_append(&shard->items, shard->cells, key_make(kind, key, &made), value);
    shard->counts[kind]++;
}

void sh_metadata_item_remove(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                             struct sh_bytes key)
{
    struct key made;
    struct sh_bytes old;
    if (sh_metadata_item_get(shard, kind, key, &old))
        count(shard, kind, key, old, false);
    bool was_there = sh_map_remove(&shard->items, shard->cells, key_make(kind, key, &made));
    SH_ASSERT(was_there && shard->counts[kind]);
    shard->counts[kind]--;
}

bool sh_metadata_item_next(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                           struct sh_bytes key, bool is_after, struct sh_bytes *key_out,
                           struct sh_bytes *value_out)
{
    struct key made;
    struct sh_map_cursor cursor;
    struct sh_bytes from = key_make(kind, key, &made), found, value;
    sh_map_seek(&shard->items, from, &cursor);
    bool is_there = sh_map_item(&cursor, &found, &value);
    if (is_there && is_after && sh_bytes_order(found, from) == 0) {
        sh_map_next(&cursor);
        is_there = sh_map_item(&cursor, &found, &value);
    }
    if (!is_there || !key_cut(kind, &found))
        return false;
    *key_out = found;
    *value_out = value;
    return true;
}

bool sh_metadata_item_floor(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                            struct sh_bytes key, struct sh_bytes *key_out,
                            struct sh_bytes *value_out)
{
    struct key made;
    struct sh_bytes found, value;
    if (!sh_map_floor(&shard->items, key_make(kind, key, &made), &found, &value) ||
        !key_cut(kind, &found))
        return false;
    *key_out = found;
    *value_out = value;
    return true;
}

bool sh_metadata_item_search(const struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                             struct sh_bytes prefix, struct sh_bytes after,
                             struct sh_bytes *key_out, struct sh_bytes *value_out)
{
    bool is_after = after.at && sh_bytes_order(after, prefix) >= 0;
    struct sh_bytes key, value;
    if (!sh_metadata_item_next(shard, kind, is_after ? after : prefix, is_after, &key, &value))
        return false;
    if (key.size < prefix.size || (prefix.size && memcmp(key.at, prefix.at, prefix.size) != 0))
        return false;
    *key_out = key;
    *value_out = value;
    return true;
}
