/* Memory for updates that were reserved and are not applied yet.
 *
 * A reservation adds what the update may take to the shard's `newer` window; applying it takes the
 * same off, from `older` first. At most SH_METADATA_AHEAD_MAX updates are ahead (metadata.h), so
 * when as many were reserved in the newer window, all that were in the older one are applied or
 * will never be: the newer one becomes the older. Reservations whose updates are never applied so
 * are forgotten by themselves. The spare cells of all shards are one store; what they need is the
 * sum. */
#include "base/assert.h"
#include "metadata/metadata_int.h"

#define SPARES_KEPT 64 /* beside those that are reserved */
#define TRIMMED_MAX 32 /* with one update */
#define ITEM_BYTES 8   /* of an item, beside key and value: 1 kind, 5 head, 2 offset */
#define RANGE_BYTES (ITEM_BYTES + 8 + SH_NOTE_TAKEN_BYTES)
#define SOURCE_BYTES (ITEM_BYTES + 10)
#define ZONE_BYTES (2 * ITEM_BYTES + 8 + SH_ZONE_VALUE_MAX + 10) /* and the creator's last */
#define BARRIER_CELLS 5 /* chunks of a round, and a member or a barrier */

/* A run sets two boundaries and takes two out at most: it lies in one range. The creator's first
 * boundary and the source come once. CLAIMs and RESTORED take out any number; each range that GONE changes
 * is a run, and each part that TAKE changes, of which only those at the ends of its runs make more ranges. */
static struct sh_metadata_need need_of(const struct sh_metadata_update *update)
{
    struct sh_metadata_need need = {.updates = 1};
    if (sh_metadata_is_batch(update->kind)) {
        bool is_take = update->kind == SH_METADATA_TAKE;
        size_t parts = is_take ? SH_METADATA_TAKE_MAX : update->count;
        need.changes = update->kind == SH_METADATA_CLAIM ? SIZE_MAX : 2 + 4 * parts;
        need.bytes = SOURCE_BYTES + RANGE_BYTES * (1 + 2 * parts);
    } else if (update->kind >= SH_METADATA_NAME && update->kind <= SH_METADATA_SCRATCH_REMOVE) {
        need.changes = 1;
        need.bytes = ITEM_BYTES + update->name.size + 8 + update->value.size;
    } else if (update->kind >= SH_METADATA_BARRIER_NEW && update->kind < SH_METADATA_CLAIM) {
        need.cells = BARRIER_CELLS;
    } else if (sh_metadata_is_zone(update->kind)) {
        need.changes = 2;
        need.bytes = ZONE_BYTES;
    } else if (update->kind == SH_METADATA_RESTORED) {
        need.changes = SIZE_MAX;
    } else if (update->kind == SH_METADATA_GONE) {
        need.changes = 4 * SH_METADATA_GONE_MAX;
        need.bytes = RANGE_BYTES * 2 * SH_METADATA_GONE_MAX;
    }
    return need;
}

static struct sh_metadata_need sum(const struct sh_metadata_need *a,
                                   const struct sh_metadata_need *b)
{
    bool is_any = a->changes == SIZE_MAX || b->changes == SIZE_MAX;
    return (struct sh_metadata_need){.updates = a->updates + b->updates,
                                     .changes = is_any ? SIZE_MAX : a->changes + b->changes,
                                     .bytes = a->bytes + b->bytes,
                                     .cells = a->cells + b->cells};
}

static size_t cells_of(const struct sh_metadata_shard *shard, const struct sh_metadata_need *need)
{
    if (!need->updates)
        return 0;
    size_t changes = need->changes > SIZE_MAX / 64 ? SIZE_MAX / 64 : need->changes;
    return sh_map_cells_max(&shard->items, changes, need->bytes) + need->cells;
}

/* What a shard's reservations take now, and with that all. */
static void ahead_count(struct sh_metadata *metadata, unsigned number)
{
    struct sh_metadata_ahead *ahead = &metadata->ahead[number];
    struct sh_metadata_need all = sum(&ahead->older, &ahead->newer);
    size_t cells = cells_of(&metadata->shards[number], &all);
    SH_ASSERT(metadata->reserved >= ahead->cells);
    metadata->reserved = metadata->reserved - ahead->cells + cells;
    ahead->cells = cells;
}

enum shoal_err sh_metadata_ahead_fill(struct sh_metadata *metadata, unsigned number)
{
    ahead_count(metadata, number);
    return sh_cells_fill(&metadata->cells, metadata->reserved);
}

enum shoal_err sh_metadata_reserve(struct sh_metadata *metadata, unsigned number,
                                   const struct sh_metadata_update *update)
{
    SH_ASSERT(number < SH_SHARDS);
    if (sh_metadata_refs_fill(&metadata->shards[number], update))
        return SHOAL_ENOMEM;
    struct sh_metadata_ahead *ahead = &metadata->ahead[number], before = *ahead;
    struct sh_metadata_need need = need_of(update);
    if (ahead->newer.updates >= SH_METADATA_AHEAD_MAX) {
        ahead->older = ahead->newer;
        ahead->newer = (struct sh_metadata_need){.updates = 0};
    }
    ahead->newer = sum(&ahead->newer, &need);
    enum shoal_err err = sh_metadata_ahead_fill(metadata, number);
    if (err) {
        before.cells = ahead->cells;
        *ahead = before;
        ahead_count(metadata, number);
    }
    SH_ASSERT(err || metadata->cells.spare_count >= metadata->reserved);
    return err;
}

enum shoal_err sh_metadata_ahead_check(struct sh_metadata *metadata, unsigned number,
                                       const struct sh_metadata_update *update)
{
    const struct sh_metadata_ahead *ahead = &metadata->ahead[number];
    if (ahead->older.updates || ahead->newer.updates)
        return SHOAL_OK;
    if (sh_metadata_refs_fill(&metadata->shards[number], update))
        return SHOAL_ENOMEM;
    struct sh_metadata_need need = need_of(update);
    return sh_cells_fill(&metadata->cells,
                         metadata->reserved + cells_of(&metadata->shards[number], &need));
}

/* Takes off what a window has of a need; the rest stays in the need. */
static void window_done(struct sh_metadata_need *window, struct sh_metadata_need *need)
{
    struct sh_metadata_need off = {
        .updates = need->updates < window->updates ? need->updates : window->updates,
        .changes = need->changes < window->changes ? need->changes : window->changes,
        .bytes = need->bytes < window->bytes ? need->bytes : window->bytes,
        .cells = need->cells < window->cells ? need->cells : window->cells};
    window->updates -= off.updates;
    /* Any number less any number is any number, until the window is empty. */
    window->changes -= window->changes == SIZE_MAX ? 0 : off.changes;
    window->bytes -= off.bytes;
    window->cells -= off.cells;
    need->updates -= off.updates;
    need->changes -= off.changes;
    need->bytes -= off.bytes;
    need->cells -= off.cells;
    if (!window->updates)
        *window = (struct sh_metadata_need){.updates = 0};
}

void sh_metadata_ahead_done(struct sh_metadata *metadata, unsigned number,
                            const struct sh_metadata_update *update)
{
    struct sh_metadata_ahead *ahead = &metadata->ahead[number];
    struct sh_metadata_need need = need_of(update);
    window_done(&ahead->older, &need);
    window_done(&ahead->newer, &need);
    ahead_count(metadata, number);
    sh_cells_trim(&metadata->cells, metadata->reserved + SPARES_KEPT, TRIMMED_MAX);
}
