/* Writing a snapshot: a copy of the shard's struct that shares its cells, and a place in it. */
#include "metadata/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "metadata/snapshot_int.h"

/* The largest record: an item of scratch. */
#define RECORD_BYTES_MAX (4 + SH_MAP_KEY_MAX + SH_MAP_VALUE_MAX)
_Static_assert(SH_SNAPSHOT_HEAD_BYTES + RECORD_BYTES_MAX <= SH_METADATA_PIECE_BYTES_MIN,
               "a piece has room for one record at least");
_Static_assert(SH_RECORD_HEAD == 7 && SH_RECORD_END == 11,
               "kinds of records are as snapshot.h says");

struct sh_metadata_snapshot {
    struct sh_metadata *metadata;
    enum sh_metadata_parts parts;
    uint8_t next; /* kind of the record that comes next; SH_ITEM_SOURCE: any item; 0: none */
    uint32_t piece;
    uint64_t records;
    struct sh_map_cursor cursor;
    size_t at, member; /* the completion or barrier that comes next, and the barrier's member */
    struct sh_metadata_shard shard; /* barriers are those behind */
    struct sh_barrier barriers[];
};

enum shoal_err sh_metadata_snapshot_begin(struct sh_metadata *metadata, unsigned number,
                                          enum sh_metadata_parts parts,
                                          struct sh_metadata_snapshot **snapshot_out)
{
    SH_ASSERT(number < SH_SHARDS);
    SH_ASSERT(parts == SH_METADATA_DURABLE || parts == SH_METADATA_ALL);
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    struct sh_metadata_snapshot *snapshot = sh_cells_malloc(
        &metadata->cells, sizeof *snapshot + shard->barrier_count * sizeof snapshot->barriers[0]);
    if (!snapshot)
        return SHOAL_ENOMEM;
    *snapshot = (struct sh_metadata_snapshot){
        .metadata = metadata, .parts = parts, .next = SH_RECORD_HEAD, .shard = *shard};
    if (shard->items.root)
        shard->items.root->refs++;
    for (size_t i = 0; i < shard->barrier_count; i++) {
        snapshot->barriers[i] = *shard->barriers[i];
        snapshot->shard.barriers[i] = &snapshot->barriers[i];
        sh_metadata_round_share(&snapshot->barriers[i].open);
        sh_metadata_round_share(&snapshot->barriers[i].last);
    }
    metadata->open++;
    /* Updates that are ahead have to copy what they change. */
    enum shoal_err err = sh_metadata_ahead_fill(metadata, number);
    if (err) {
        sh_metadata_snapshot_end(snapshot);
        return err;
    }
    *snapshot_out = snapshot;
    return SHOAL_OK;
}

void sh_metadata_snapshot_end(struct sh_metadata_snapshot *snapshot)
{
    if (!snapshot)
        return;
    struct sh_metadata *metadata = snapshot->metadata;
    SH_ASSERT(metadata->open);
    metadata->open--;
    sh_map_clear(&snapshot->shard.items, &metadata->cells);
    for (size_t i = 0; i < snapshot->shard.barrier_count; i++) {
        sh_metadata_round_drop(&metadata->cells, &snapshot->barriers[i].open);
        sh_metadata_round_drop(&metadata->cells, &snapshot->barriers[i].last);
    }
    free(snapshot);
}

static void head_put(struct sh_metadata_snapshot *snapshot, struct sh_writer *w)
{
    const struct sh_metadata_shard *shard = &snapshot->shard;
    static const uint8_t lowest[1] = {0};
    sh_put8(w, SH_RECORD_HEAD);
    sh_put8(w, SH_SNAPSHOT_VERSION);
    sh_put8(w, (uint8_t)snapshot->parts);
    sh_put8(w, shard->is_known);
    sh_put64(w, shard->incarnation);
    sh_put64(w, shard->updates);
    sh_put64(w, shard->forgotten);
    snapshot->next = SH_ITEM_SOURCE;
    sh_map_seek(&shard->items, sh_bytes_make(lowest, 1), &snapshot->cursor);
}

/* False: there is no further one. */
static bool item_put(struct sh_metadata_snapshot *snapshot, struct sh_writer *w)
{
    struct sh_bytes key, value;
    bool is_there = sh_map_item(&snapshot->cursor, &key, &value);
    if (!is_there || (key.at[0] == SH_ITEM_SCRATCH && snapshot->parts == SH_METADATA_DURABLE)) {
        _Static_assert(SH_ITEM_SCRATCH + 1 == SH_ITEM_KINDS, "scratch comes last");
        snapshot->next = SH_RECORD_COMPLETION;
        return false;
    }
    sh_put8(w, key.at[0]);
    sh_put8(w, (uint8_t)(key.size - 1));
    sh_put16(w, (uint16_t)value.size);
    sh_put_raw(w, sh_bytes_make(key.at + 1, key.size - 1));
    sh_put_raw(w, value);
    sh_map_next(&snapshot->cursor);
    return true;
}

static bool completion_put(struct sh_metadata_snapshot *snapshot, struct sh_writer *w)
{
    SH_ASSERT(snapshot->at <= snapshot->shard.completion_count);
    if (snapshot->at == snapshot->shard.completion_count) {
        snapshot->at = 0;
        snapshot->next = SH_RECORD_BARRIER;
        return false;
    }
    const struct sh_metadata_completion *done = &snapshot->shard.completions[snapshot->at++];
    sh_put8(w, SH_RECORD_COMPLETION);
    sh_put64(w, done->caller);
    sh_put64(w, done->number);
    sh_put64(w, done->update);
    sh_put64(w, done->result.cid.v);
    sh_put16(w, (uint16_t)done->result.err);
    return true;
}

static void round_put(const struct sh_barrier_round *round, struct sh_writer *w)
{
    sh_put64(w, round->number);
    sh_put64(w, round->gone);
    sh_put32(w, (uint32_t)round->count);
}

static bool barrier_put(struct sh_metadata_snapshot *snapshot, struct sh_writer *w)
{
    SH_ASSERT(snapshot->at <= snapshot->shard.barrier_count);
    if (snapshot->at == snapshot->shard.barrier_count) {
        snapshot->next = SH_RECORD_END;
        return false;
    }
    const struct sh_barrier *barrier = &snapshot->barriers[snapshot->at];
    sh_put8(w, SH_RECORD_BARRIER);
    sh_put64(w, barrier->id);
    sh_put32(w, barrier->size);
    sh_put8(w, barrier->flags);
    round_put(&barrier->open, w);
    round_put(&barrier->last, w);
    snapshot->member = 0;
    snapshot->next = SH_RECORD_MEMBER;
    return true;
}

static bool member_put(struct sh_metadata_snapshot *snapshot, struct sh_writer *w)
{
    SH_ASSERT(snapshot->at < snapshot->shard.barrier_count);
    const struct sh_barrier *barrier = &snapshot->barriers[snapshot->at];
    size_t at = snapshot->member++;
    const struct sh_barrier_member *member;
    if (at < barrier->open.count) {
        member = sh_barrier_member(&barrier->open, at);
    } else if (at - barrier->open.count < barrier->last.count) {
        member = sh_barrier_member(&barrier->last, at - barrier->open.count);
    } else {
        snapshot->at++;
        snapshot->next = SH_RECORD_BARRIER;
        return false;
    }
    sh_put8(w, SH_RECORD_MEMBER);
    sh_put64(w, member->id);
    sh_put_text(w, sh_bytes_make(member->bytes, member->size));
    return true;
}

/* Writes what comes next, if anything of its kind is left. */
static bool record_put(struct sh_metadata_snapshot *snapshot, struct sh_writer *w)
{
    switch (snapshot->next) {
    case SH_RECORD_HEAD:
        head_put(snapshot, w);
        return true;
    case SH_ITEM_SOURCE:
        return item_put(snapshot, w);
    case SH_RECORD_COMPLETION:
        return completion_put(snapshot, w);
    case SH_RECORD_BARRIER:
        return barrier_put(snapshot, w);
    case SH_RECORD_MEMBER:
        return member_put(snapshot, w);
    default:
        SH_ASSERT(snapshot->next == SH_RECORD_END);
        sh_put8(w, SH_RECORD_END);
        sh_put64(w, snapshot->records);
        snapshot->next = 0;
        return true;
    }
}

size_t sh_metadata_snapshot_next(struct sh_metadata_snapshot *snapshot, uint8_t *into, size_t room)
{
    SH_ASSERT(room >= SH_METADATA_PIECE_BYTES_MIN);
    if (!snapshot->next)
        return 0;
    struct sh_writer w =
        sh_writer_make(into + SH_SNAPSHOT_HEAD_BYTES, room - SH_SNAPSHOT_HEAD_BYTES);
    while (snapshot->next && (size_t)(w.end - w.at) >= RECORD_BYTES_MAX)
        snapshot->records += record_put(snapshot, &w);
    SH_ASSERT(sh_writer_ok(&w));
    size_t size = (size_t)(w.at - into);
    sh_store32(into + 4, snapshot->piece++);
    sh_store32(into, sh_crc32c(0, sh_bytes_make(into + 4, size - 4)));
    return size;
}
