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

/* Notes that a batch of a source is decided about. False: that one, or a later one, was before. */
static bool decide(struct sh_metadata_shard *shard, shoal_nid source, uint64_t sequence)
{
    const uint8_t key[2] = {(uint8_t)(source.v >> 8), (uint8_t)source.v};
    uint8_t value[8];
    struct sh_bytes last;
    if (sh_metadata_item_get(shard, SH_ITEM_SOURCE, sh_bytes_make(key, 2), &last) &&
        sh_load64(last.at) >= sequence)
        return false;
    sh_store64(value, sequence);
    sh_metadata_item_put(shard, SH_ITEM_SOURCE, sh_bytes_make(key, 2), sh_bytes_make(value, 8));
    return true;
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

static struct sh_metadata_range find(const struct sh_metadata_shard *shard, shoal_cid cid)
{
    shoal_nid creator = shoal_cid_creator(cid);
    struct sh_metadata_range range = {first_of(creator), last_of(creator), {.owner = creator}};
    struct range_key key;
    struct sh_bytes found, value;
    if (!sh_metadata_item_floor(shard, SH_ITEM_RANGE, key_of(cid, &key), &found, &value) ||
        shoal_cid_creator(first_in(found)).v != creator.v)
        return range;
    range.first = first_in(found);
    range.note = sh_metadata_note_read(value);
    if (sh_metadata_item_next(shard, SH_ITEM_RANGE, key_of(cid, &key), true, &found, &value) &&
        shoal_cid_creator(first_in(found)).v == creator.v)
        range.last.v = first_in(found).v - 1;
    return range;
}

struct sh_metadata_range sh_metadata_find(const struct sh_metadata *metadata, shoal_cid cid)
{
    return find(&metadata->shards[sh_arc_shard(shoal_cid_creator(cid))], cid);
}

bool sh_metadata_is_note(struct sh_bytes value)
{
    if (value.size != SH_NOTE_BYTES && value.size != SH_NOTE_TAKEN_BYTES)
        return false;
    struct sh_metadata_note note = sh_metadata_note_read(value);
    bool is_peer = sh_metadata_is_peer(note.owner);
    if (value.size == SH_NOTE_BYTES)
        return !note.owner.v || note.owner.v == SH_METADATA_LOST || is_peer;
    return is_peer && note.life && sh_zone_is_id(note.zone) && note.incarnation;
}

struct sh_metadata_note sh_metadata_note_read(struct sh_bytes value)
{
    struct sh_metadata_note note = {.owner = {sh_load16(value.at)}};
    if (value.size == SH_NOTE_BYTES)
        return note;
    note.life = sh_load64(value.at + 2);
    note.zone = sh_load64(value.at + 10);
    note.incarnation = sh_load32(value.at + 18);
    return note;
}

bool sh_metadata_note_is_of(const struct sh_metadata_note *note, const struct sh_zone *record)
{
    bool is_its_life = !note->life || note->life == record->former_life;
    bool is_formers = note->owner.v == record->former.v && is_its_life;
    bool is_late = note->incarnation > record->incarnation;
    return (is_formers && !(record->flags & SH_ZONE_TAKEN)) ||
           (note->zone == record->id && !is_late);
}

static void range_put(struct sh_metadata_shard *shard, shoal_cid first,
                      const struct sh_metadata_note *note)
{
    struct range_key key;
    uint8_t value[SH_NOTE_TAKEN_BYTES];
    sh_store16(value, note->owner.v);
    sh_store64(value + 2, note->life);
    sh_store64(value + 10, note->zone);
    sh_store32(value + 18, note->incarnation);
    sh_metadata_item_put(shard, SH_ITEM_RANGE, key_of(first, &key),
                         sh_bytes_make(value, note->life ? SH_NOTE_TAKEN_BYTES : SH_NOTE_BYTES));
}

/* Notes whose some IDs of one creator are. Ranges that touch and have the same note are one range. */
static void set(struct sh_metadata_shard *shard, shoal_cid first, shoal_cid last,
                const struct sh_metadata_note *note)
{
    shoal_nid creator = shoal_cid_creator(first);
    struct sh_metadata_range before = find(shard, first);
    bool is_first = first.v == first_of(creator).v, is_last = last.v == last_of(creator).v;
    shoal_cid next = {last.v + 1};
    if (before.first.v == first.v && !is_first)
        before = find(shard, (shoal_cid){first.v - 1});
    struct sh_metadata_range after = is_last ? before : find(shard, next);
    struct range_key from;
    struct sh_bytes key, value;
    /* Ranges that begin within, and one that begins behind if it is to be a part of this one. */
    bool is_after_same = sh_metadata_note_is_same(&after.note, note);
    uint64_t end = last.v + (!is_last && is_after_same);
    while (sh_metadata_item_next(shard, SH_ITEM_RANGE, key_of(first, &from), false, &key, &value) &&
           first_in(key).v <= end) {
        struct range_key copy;
        sh_metadata_item_remove(shard, SH_ITEM_RANGE, key_of(first_in(key), &copy));
    }
    if (is_first || !sh_metadata_note_is_same(&before.note, note))
        range_put(shard, first, note);
    if (!is_last && !is_after_same)
        range_put(shard, next, &after.note);
}

/* Gives IDs of one creator an owner, which has them otherwise than by TAKE. */
static void owner_set(struct sh_metadata_shard *shard, shoal_cid first, shoal_cid last,
                      shoal_nid owner)
{
    const struct sh_metadata_note note = {.owner = owner};
    set(shard, first, last, &note);
}

/* Sees to it that the update's runs can be set: all of the creator's IDs are in the tree then. */
static enum shoal_err room_make(struct sh_metadata_shard *shard,
                                const struct sh_metadata_update *update)
{
    /* What goes back to its creator leaves fewer than there were. */
    bool is_move = update->kind == SH_METADATA_MOVE &&
                   update->to.v != shoal_cid_creator(update->runs[0].first).v;
    size_t most = is_move ? SH_METADATA_RANGES_MAX : SH_METADATA_CLAIMS_MAX;
    if (shard->counts[SH_ITEM_RANGE] + 2 * update->count + 1 > most)
        return SHOAL_ELIMIT;
    struct sh_metadata_range whole = find(shard, update->runs[0].first);
    range_put(shard, whole.first, &whole.note);
    return SHOAL_OK;
}

/* Whether a node owns a run, by however many ranges. */
static bool owns(const struct sh_metadata_shard *shard, const struct sh_metadata_run *run,
                 shoal_nid nid)
{
    struct sh_metadata_range range = find(shard, run->first);
    while (range.note.owner.v == nid.v && range.last.v < run->last.v)
        range = find(shard, (shoal_cid){range.last.v + 1});
    return range.note.owner.v == nid.v;
}

static enum shoal_err runs_give(struct sh_metadata_shard *shard,
                                const struct sh_metadata_update *update, shoal_nid from)
{
    for (size_t i = 0; i < update->count; i++)
        if (!owns(shard, &update->runs[i], from))
            return SHOAL_ENOTOWNER;
    enum shoal_err err = room_make(shard, update);
    for (size_t i = 0; !err && i < update->count; i++)
        owner_set(shard, update->runs[i].first, update->runs[i].last, update->to);
    return err;
}

/* Of a batch that was decided about before, the ranges tell what came of it: its source owns the
 * chunks unless the batch was committed, whoever has them by now. */
static struct sh_metadata_result move(struct sh_metadata_shard *shard,
                                      const struct sh_metadata_update *update)
{
    enum shoal_err err = SHOAL_OK;
    if (decide(shard, update->from, update->sequence))
        err = update->kind == SH_METADATA_MOVE ? runs_give(shard, update, update->from)
                                               : SHOAL_ENONODE;
    else if (find(shard, update->runs[0].first).note.owner.v == update->from.v)
        err = SHOAL_ECANCELED;
    return (struct sh_metadata_result){.err = err};
}

/* The target serves none of the batch before it knows the answer, so it owns the chunks only if the
 * batch was committed. After a loss they may be nobody's: then the source gave them away. */
static struct sh_metadata_result resolve(struct sh_metadata_shard *shard,
                                         const struct sh_metadata_update *update)
{
    (void)decide(shard, update->from, update->sequence);
    enum shoal_err err = runs_give(shard, update, SHOAL_NID_NONE);
    if (err == SHOAL_ELIMIT)
        return (struct sh_metadata_result){.err = err};
    shoal_nid owner = find(shard, update->runs[0].first).note.owner;
    return (struct sh_metadata_result){.is_committed = owner.v == update->to.v};
}

/* A node's word about one run, in the pieces that the ranges cut it into. What it serves is its own,
 * whatever others have said. What it gave away is nobody's until another node says that it has it; a
 * batch of which its source does not know whether it was committed is the source's until then. */
static void run_claim(struct sh_metadata_shard *shard, const struct sh_metadata_update *update,
                      const struct sh_metadata_run *run)
{
    shoal_nid creator = shoal_cid_creator(run->first);
    bool gave = update->condition == SH_CLAIM_GAVE;
    shoal_cid at = run->first;
    if (update->condition == SH_CLAIM_SERVES) {
        owner_set(shard, run->first, run->last, update->from);
        return;
    }
    while (at.v <= run->last.v) {
        struct sh_metadata_range range = find(shard, at);
        uint16_t owner = range.note.owner.v;
        shoal_cid last = {range.last.v < run->last.v ? range.last.v : run->last.v};
        if (owner == creator.v || (!gave && owner == SHOAL_NID_NONE.v))
            owner_set(shard, at, last, gave ? SHOAL_NID_NONE : update->from);
        at.v = last.v + 1;
    }
}

static struct sh_metadata_result claim(struct sh_metadata_shard *shard,
                                       const struct sh_metadata_update *update)
{
    if (shard->is_known)
        return (struct sh_metadata_result){.err = SHOAL_ECANCELED};
    if (update->sequence)
        (void)decide(shard, update->from, update->sequence);
    enum shoal_err err = update->count ? room_make(shard, update) : SHOAL_OK;
    for (size_t i = 0; !err && i < update->count; i++)
        run_claim(shard, update, &update->runs[i]);
    return (struct sh_metadata_result){.err = err};
}

/* Whether the part of a run, from `at` on, that lies in one range is to be taken. */
static bool part_takes(const struct sh_metadata_shard *shard,
                       const struct sh_metadata_update *update, const struct sh_metadata_run *run,
                       shoal_cid at, shoal_cid *last_out)
{
    struct sh_metadata_range range = find(shard, at);
    SH_ASSERT(run->first.v <= at.v && at.v <= run->last.v);
    *last_out = range.last.v < run->last.v ? range.last : run->last;
    return sh_metadata_note_is_of(&range.note, &update->zone);
}

/* Counts the parts of the runs that are to be taken. ETOOBIG: there are too many parts, whose ever they are: what an update may
 * do is bounded. */
static enum shoal_err parts_count(const struct sh_metadata_shard *shard,
                                  const struct sh_metadata_update *update, size_t *count_out)
{
    size_t all = 0, count = 0;
    for (size_t i = 0; i < update->count; i++) {
        const struct sh_metadata_run *run = &update->runs[i];
        for (shoal_cid at = run->first, last; at.v <= run->last.v; at.v = last.v + 1) {
            count += part_takes(shard, update, run, at, &last);
            if (++all > SH_METADATA_TAKE_MAX)
                return SHOAL_ETOOBIG;
        }
    }
    *count_out = count;
    return SHOAL_OK;
}

/* All parts, or none: they are counted before the first one changes. A repetition notes the same. */
static struct sh_metadata_result take(struct sh_metadata_shard *shard,
                                      const struct sh_metadata_update *update)
{
    const struct sh_zone *zone = &update->zone;
    const struct sh_metadata_note note = {zone->owner, zone->life, zone->id, zone->incarnation};
    size_t count = 0;
    enum shoal_err err = parts_count(shard, update, &count);
    if (!err && count)
        err = room_make(shard, update);
    for (size_t i = 0; !err && count && i < update->count; i++) {
        const struct sh_metadata_run *run = &update->runs[i];
        for (shoal_cid at = run->first, last; at.v <= run->last.v; at.v = last.v + 1)
            if (part_takes(shard, update, run, at, &last))
                set(shard, at, last, &note);
    }
    return (struct sh_metadata_result){.err = err};
}

/* Whole ranges change their owner, so there are no more of them than before. */
static struct sh_metadata_result gone(struct sh_metadata_shard *shard, shoal_nid nid)
{
    shoal_cid at = {0};
    struct range_key from;
    struct sh_bytes key, value;
    unsigned left = SH_METADATA_GONE_MAX;
    while (left &&
           sh_metadata_item_next(shard, SH_ITEM_RANGE, key_of(at, &from), false, &key, &value)) {
        struct sh_metadata_range range = find(shard, first_in(key));
        uint16_t owner = range.note.owner.v;
        bool is_own = shoal_cid_creator(range.first).v == nid.v;
        bool is_nobodys = owner == SHOAL_NID_NONE.v || owner == SH_METADATA_LOST;
        at.v = range.last.v + 1;
        if (is_own ? !is_nobodys : owner != nid.v)
            continue;
        owner_set(shard, range.first, range.last, is_own ? nid : (shoal_nid){SH_METADATA_LOST});
        left--;
    }
    return (struct sh_metadata_result){.err = SHOAL_OK};
}

struct sh_metadata_result sh_metadata_move_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update)
{
    if (update->kind == SH_METADATA_RESOLVE)
        return resolve(shard, update);
    if (update->kind == SH_METADATA_GONE)
        return gone(shard, update->from);
    if (update->kind == SH_METADATA_TAKE)
        return take(shard, update);
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
