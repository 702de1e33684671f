/* A shard's chunks that were moved, and what was decided about batches. */
#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

static shoal_cid first_of(shoal_nid creator)
{
    return shoal_cid_make(creator, 0);
}

static shoal_cid last_of(shoal_nid creator)
{
    return shoal_cid_make(creator, SHOAL_LOCAL_ID_MAX);
}

/* --- Sources --------------------------------------------------------------------------------- */

uint64_t sh_metadata_missed(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].missed;
}

bool sh_metadata_source_get(const struct sh_metadata_shard *shard, shoal_nid nid,
                            struct sh_metadata_source *source_out)
{
    const uint8_t key[2] = {(uint8_t)(nid.v >> 8), (uint8_t)nid.v};
    struct sh_bytes value;
    if (!sh_metadata_item_get(shard, SH_ITEM_SOURCE, sh_bytes_make(key, 2), &value))
        return false;
    *source_out = (struct sh_metadata_source){sh_load64(value.at), sh_load64(value.at + 8)};
    return true;
}

static void source_put(struct sh_metadata_shard *shard, shoal_nid nid,
                       const struct sh_metadata_source *source)
{
    const uint8_t key[2] = {(uint8_t)(nid.v >> 8), (uint8_t)nid.v};
    uint8_t value[16];
    sh_store64(value, source->decided);
    sh_store64(value + 8, source->before);
    sh_metadata_item_put(shard, SH_ITEM_SOURCE, sh_bytes_make(key, 2), sh_bytes_make(value, 16));
}

bool sh_metadata_has_source(const struct sh_metadata *metadata, unsigned number, shoal_nid nid)
{
    SH_ASSERT(number < SH_SHARDS);
    struct sh_metadata_source source;
    return sh_metadata_source_get(&metadata->shards[number], nid, &source);
}

uint64_t sh_metadata_committed(const struct sh_metadata *metadata, unsigned number, shoal_nid nid)
{
    SH_ASSERT(number < SH_SHARDS);
    struct sh_metadata_source source = {0};
    (void)sh_metadata_source_get(&metadata->shards[number], nid, &source);
    return source.decided & 1 ? source.decided >> 1 : 0;
}

/* --- Moved chunks ---------------------------------------------------------------------------- */

struct range_key {
    uint8_t bytes[8];
};

static struct sh_bytes key_of(shoal_cid first, struct range_key *into)
{
    sh_store64(into->bytes, __builtin_bswap64(first.v));
    return sh_bytes_make(into->bytes, sizeof into->bytes);
}

static shoal_cid first_in(struct sh_bytes key)
{
    return (shoal_cid){__builtin_bswap64(sh_load64(key.at))};
}

static struct sh_range find(const struct sh_metadata_shard *shard, shoal_cid cid)
{
    shoal_nid creator = shoal_cid_creator(cid);
    struct sh_range range = {first_of(creator), last_of(creator), creator.v};
    struct range_key key;
    struct sh_bytes found, value;
    if (!sh_metadata_item_floor(shard, SH_ITEM_RANGE, key_of(cid, &key), &found, &value) ||
        shoal_cid_creator(first_in(found)).v != creator.v)
        return range;
    range.first = first_in(found);
    range.value = sh_load16(value.at);
    if (sh_metadata_item_next(shard, SH_ITEM_RANGE, key_of(cid, &key), true, &found, &value) &&
        shoal_cid_creator(first_in(found)).v == creator.v)
        range.last.v = first_in(found).v - 1;
    return range;
}

struct sh_range sh_metadata_find(const struct sh_metadata *metadata, shoal_cid cid)
{
    return find(&metadata->shards[sh_arc_shard(shoal_cid_creator(cid))], cid);
}

static void range_put(struct sh_metadata_shard *shard, shoal_cid first, uint64_t owner)
{
    struct range_key key;
    uint8_t value[2];
    sh_store16(value, (uint16_t)owner);
    sh_metadata_item_put(shard, SH_ITEM_RANGE, key_of(first, &key), sh_bytes_make(value, 2));
}

/* Gives IDs of one creator an owner. Ranges that touch and have one owner are one range. */
static void set(struct sh_metadata_shard *shard, shoal_cid first, shoal_cid last, shoal_nid owner)
{
    shoal_nid creator = shoal_cid_creator(first);
    struct sh_range before = find(shard, first);
    bool is_first = first.v == first_of(creator).v, is_last = last.v == last_of(creator).v;
    shoal_cid next = {last.v + 1};
    if (before.first.v == first.v && !is_first)
        before = find(shard, (shoal_cid){first.v - 1});
    struct sh_range after = is_last ? before : find(shard, next);
    struct range_key from;
    struct sh_bytes key, value;
    /* Ranges that begin within, and one that begins behind if it is to be a part of this one. */
    uint64_t end = last.v + (!is_last && after.value == owner.v);
    while (sh_metadata_item_next(shard, SH_ITEM_RANGE, key_of(first, &from), false, &key, &value) &&
           first_in(key).v <= end) {
        struct range_key copy;
        sh_metadata_item_remove(shard, SH_ITEM_RANGE, key_of(first_in(key), &copy));
    }
    if (is_first || before.value != owner.v)
        range_put(shard, first, owner.v);
    if (!is_last && after.value != owner.v)
        range_put(shard, next, after.value);
}

/* Sees to it that the update's runs can be set: all of the creator's IDs are in the tree then. */
static enum shoal_err room_make(struct sh_metadata_shard *shard,
                                const struct sh_metadata_update *update)
{
    size_t most =
        update->kind == SH_METADATA_CLAIM ? SH_METADATA_CLAIMS_MAX : SH_METADATA_RANGES_MAX;
    if (shard->counts[SH_ITEM_RANGE] + 2 * update->count + 1 > most)
        return SHOAL_ELIMIT;
    struct sh_range whole = find(shard, update->runs[0].first);
    range_put(shard, whole.first, whole.value);
    return SHOAL_OK;
}

static enum shoal_err runs_give(struct sh_metadata_shard *shard,
                                const struct sh_metadata_update *update)
{
    for (size_t i = 0; i < update->count; i++) {
        struct sh_range range = find(shard, update->runs[i].first);
        if (range.value != update->from.v || range.last.v < update->runs[i].last.v)
            return SHOAL_ENOTOWNER;
    }
    enum shoal_err err = room_make(shard, update);
    for (size_t i = 0; !err && i < update->count; i++)
        set(shard, update->runs[i].first, update->runs[i].last, update->to);
    return err;
}

/* A source's later batch is decided about. */
static void decide(struct sh_metadata_source *source, uint64_t sequence, bool is_committed)
{
    uint64_t step = sequence - (source->decided >> 1);
    source->before = step < 64 ? source->before << step : 0;
    if (step <= 64)
        source->before |= (source->decided & 1) << (step - 1);
    source->decided = sequence << 1 | is_committed;
}

static struct sh_metadata_result move(struct sh_metadata_shard *shard,
                                      const struct sh_metadata_update *update)
{
    struct sh_metadata_result result = {.err = SHOAL_ECANCELED};
    struct sh_metadata_source source = {0};
    (void)sh_metadata_source_get(shard, update->from, &source);
    uint64_t last = source.decided >> 1;
    if (update->sequence > last) {
        result.err = update->kind == SH_METADATA_MOVE ? runs_give(shard, update) : SHOAL_ENONODE;
        decide(&source, update->sequence, result.err == SHOAL_OK);
        source_put(shard, update->from, &source);
    } else if (update->sequence == last && source.decided & 1) {
        result.err = SHOAL_OK;
    }
    return result;
}

static struct sh_metadata_result resolve(struct sh_metadata_shard *shard,
                                         const struct sh_metadata_update *update)
{
    struct sh_metadata_source source = {0};
    (void)sh_metadata_source_get(shard, update->from, &source);
    uint64_t last = source.decided >> 1;
    bool is_committed = source.decided & 1;
    if (update->sequence > last) {
        decide(&source, update->sequence, false);
        source_put(shard, update->from, &source);
        is_committed = false;
    } else if (update->sequence < last && last - update->sequence <= 64) {
        is_committed = source.before >> (last - update->sequence - 1) & 1;
    } else if (update->sequence < last) {
        /* A much older one: the target would have had to learn of it before it could give anything
         * away, so who owns it now says what became of it, unless the source's own word is missing
         * since a loss. */
        is_committed = find(shard, update->runs[0].first).value == update->to.v;
    }
    return (struct sh_metadata_result){.is_committed = is_committed};
}

/* Given away by its creator: who has it now says so itself, or has said so already. */
static void run_leave(struct sh_metadata_shard *shard, const struct sh_metadata_run *run,
                      shoal_nid from)
{
    for (uint64_t at = run->first.v; at <= run->last.v;) {
        struct sh_range range = find(shard, (shoal_cid){at});
        uint64_t last = range.last.v < run->last.v ? range.last.v : run->last.v;
        if (range.value == from.v)
            set(shard, (shoal_cid){at}, (shoal_cid){last}, SHOAL_NID_NONE);
        if (last == UINT64_MAX)
            break;
        at = last + 1;
    }
}

static struct sh_metadata_result claim(struct sh_metadata_shard *shard,
                                       const struct sh_metadata_update *update)
{
    struct sh_metadata_result result = {.err = room_make(shard, update)};
    if (result.err) {
        shard->is_short = true;
        shard->is_known = shard->is_partial = false;
    }
    struct sh_metadata_source source = {0};
    if (!sh_metadata_source_get(shard, update->from, &source))
        source_put(shard, update->from, &source);
    shoal_nid creator = shoal_cid_creator(update->runs[0].first);
    /* What it says that it has it may have given away with its last batch, and not have heard that
     * yet; it does nothing else before it has. */
    bool has_heard = !(source.decided & 1) || update->sequence >= source.decided >> 1;
    bool is_sure = update->from.v == update->to.v && has_heard;
    bool is_whole = shard->is_known && !shard->is_partial; /* all who have chunks have said so */
    for (size_t i = 0; !result.err && i < update->count; i++) {
        if (is_sure)
            set(shard, update->runs[i].first, update->runs[i].last, update->to);
        else if (update->from.v != update->to.v && !is_whole)
            run_leave(shard, &update->runs[i], creator);
    }
    if (!result.err && update->from.v == update->to.v && !has_heard) {
        shard->missed++;
        result.err = SHOAL_EBUSY;
    }
    return result;
}

struct sh_metadata_result sh_metadata_move_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update)
{
    if (update->kind == SH_METADATA_RESOLVE)
        return resolve(shard, update);
    return update->kind == SH_METADATA_CLAIM ? claim(shard, update) : move(shard, update);
}

void sh_metadata_moves_clear(struct sh_metadata_shard *shard)
{
    static const enum sh_metadata_item kinds[] = {SH_ITEM_SOURCE, SH_ITEM_RANGE};
    struct sh_bytes key, value;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        while (
            sh_metadata_item_next(shard, kinds[i], sh_bytes_make(NULL, 0), false, &key, &value)) {
            uint8_t copy[SH_MAP_KEY_MAX];
            memcpy(copy, key.at, key.size);
            sh_metadata_item_remove(shard, kinds[i], sh_bytes_make(copy, key.size));
        }
    }
}
