/* A shard's chunks that were moved, and what was decided about batches. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

/* Leaves of a tree: enough for all ranges at the worst fill, 20 boundaries each. */
#define RANGE_NODES_MAX 65536
_Static_assert(RANGE_NODES_MAX * 20u > SH_METADATA_CLAIMS_MAX + 512 * 20u,
               "what may be claimed has room, beside leaves that are not in use yet or any more");

static shoal_cid first_of(shoal_nid creator)
{
    return shoal_cid_make(creator, 0);
}

static shoal_cid last_of(shoal_nid creator)
{
    return shoal_cid_make(creator, SHOAL_LOCAL_ID_MAX);
}

enum shoal_err sh_metadata_ranges(struct sh_metadata_shard *shard)
{
    return shard->ranges ? SHOAL_OK : sh_ranges_create(RANGE_NODES_MAX, &shard->ranges);
}

/* --- Sources --------------------------------------------------------------------------------- */

/* Makes room for so many more, and for twice as many where it has to. */
static enum shoal_err sources_room_make(struct sh_metadata_shard *shard, size_t more)
{
    if (shard->source_room - shard->source_count >= more)
        return SHOAL_OK;
    size_t room = shard->source_count + 2 * more;
    room = room < 2 * shard->source_room ? 2 * shard->source_room : room;
    struct sh_metadata_source *sources = realloc(shard->sources, room * sizeof *sources);
    if (!sources)
        return SHOAL_ENOMEM;
    shard->sources = sources;
    shard->source_room = room;
    return SHOAL_OK;
}

uint64_t sh_metadata_missed(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].missed;
}

enum shoal_err sh_metadata_moves_reserve(struct sh_metadata_shard *shard)
{
    enum shoal_err err = sh_metadata_ranges(shard);
    return err ? err : sources_room_make(shard, SH_METADATA_AHEAD_MAX);
}

/* Where a source is among those of a shard, or would be. */
static size_t source_place(const struct sh_metadata_shard *shard, shoal_nid nid)
{
    size_t at = 0;
    while (at < shard->source_count && shard->sources[at].nid.v < nid.v)
        at++;
    return at;
}

/* NULL: nothing was decided, or claimed, that the node is the source of. */
static struct sh_metadata_source *source_find(const struct sh_metadata_shard *shard, shoal_nid nid)
{
    size_t at = source_place(shard, nid);
    bool is_there = at < shard->source_count && shard->sources[at].nid.v == nid.v;
    return is_there ? &shard->sources[at] : NULL;
}

bool sh_metadata_has_source(const struct sh_metadata *metadata, unsigned number, shoal_nid nid)
{
    SH_ASSERT(number < SH_SHARDS);
    return source_find(&metadata->shards[number], nid);
}

uint64_t sh_metadata_committed(const struct sh_metadata *metadata, unsigned number, shoal_nid nid)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_metadata_source *source = source_find(&metadata->shards[number], nid);
    return source && source->decided & 1 ? source->decided >> 1 : 0;
}

struct sh_metadata_source *sh_metadata_source(struct sh_metadata_shard *shard, shoal_nid nid)
{
    struct sh_metadata_source *source = source_find(shard, nid);
    if (source)
        return source;
    size_t at = source_place(shard, nid);
    if (shard->source_count == shard->source_room && sources_room_make(shard, 1))
        return NULL;
    source = &shard->sources[at];
    memmove(source + 1, source, (shard->source_count - at) * sizeof *source);
    *source = (struct sh_metadata_source){.nid = nid};
    shard->source_count++;
    return source;
}

/* --- Moved chunks ---------------------------------------------------------------------------- */

static struct sh_range find(const struct sh_metadata_shard *shard, shoal_cid cid)
{
    shoal_nid creator = shoal_cid_creator(cid);
    struct sh_range range;
    if (shard->ranges && sh_ranges_find(shard->ranges, cid, &range))
        return range;
    /* A creator's IDs are all in the tree, or none is. */
    return (struct sh_range){first_of(creator), last_of(creator), creator.v};
}

struct sh_range sh_metadata_find(const struct sh_metadata *metadata, shoal_cid cid)
{
    return find(&metadata->shards[sh_arc_shard(shoal_cid_creator(cid))], cid);
}

static void set(struct sh_metadata_shard *shard, shoal_cid first, shoal_cid last, shoal_nid owner)
{
    enum shoal_err err = sh_ranges_set(shard->ranges, first, last, owner.v);
    SH_ASSERT(!err); /* the tree has room for more ranges than we let in, at the worst fill */
}

/* Sees to it that the update's runs can be set: all of the creator's IDs are in the tree then. */
static enum shoal_err room_make(struct sh_metadata_shard *shard,
                                const struct sh_metadata_update *update)
{
    size_t most =
        update->kind == SH_METADATA_CLAIM ? SH_METADATA_CLAIMS_MAX : SH_METADATA_RANGES_MAX;
    if (sh_ranges_count(shard->ranges) + 2 * update->count + 1 > most)
        return SHOAL_ELIMIT;
    struct sh_range whole = find(shard, update->runs[0].first);
    set(shard, whole.first, whole.last, (shoal_nid){(uint16_t)whole.value});
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
    struct sh_metadata_source *source = sh_metadata_source(shard, update->from);
    SH_ASSERT(source);
    uint64_t last = source->decided >> 1;
    if (update->sequence < last)
        return result;
    if (update->sequence > last) {
        result.err = update->kind == SH_METADATA_MOVE ? runs_give(shard, update) : SHOAL_ENONODE;
        decide(source, update->sequence, result.err == SHOAL_OK);
    } else if (source->decided & 1) {
        result.err = SHOAL_OK;
    }
    return result;
}

static struct sh_metadata_result resolve(struct sh_metadata_shard *shard,
                                         const struct sh_metadata_update *update)
{
    struct sh_metadata_source *source = sh_metadata_source(shard, update->from);
    SH_ASSERT(source);
    uint64_t last = source->decided >> 1;
    bool is_committed = source->decided & 1;
    if (update->sequence > last) {
        decide(source, update->sequence, false);
        is_committed = false;
    } else if (update->sequence < last && last - update->sequence <= 64) {
        is_committed = source->before >> (last - update->sequence - 1) & 1;
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
    struct sh_metadata_source *source = sh_metadata_source(shard, update->from);
    SH_ASSERT(source);
    shoal_nid creator = shoal_cid_creator(update->runs[0].first);
    /* What it says that it has it may have given away with its last batch, and not have heard that
     * yet; it does nothing else before it has. */
    bool has_heard = !(source->decided & 1) || update->sequence >= source->decided >> 1;
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
    /* All that an update takes is there before it changes anything. */
    enum shoal_err err = sh_metadata_moves_reserve(shard);
    if (err)
        return (struct sh_metadata_result){.err = err};
    if (update->kind == SH_METADATA_RESOLVE)
        return resolve(shard, update);
    return update->kind == SH_METADATA_CLAIM ? claim(shard, update) : move(shard, update);
}
