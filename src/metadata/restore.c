/* Reading a snapshot into a fresh state, record by record, in the one order that snapshot.h names.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "metadata/snapshot_int.h"

struct sh_metadata_restore {
    struct sh_metadata *metadata;
    unsigned number;
    uint8_t last;   /* kind of the record before; 0: there was none */
    bool is_former; /* an image of the version before */
    bool is_bad;
    bool is_short; /* of memory, for the record at hand */
    uint32_t piece;
    uint64_t records;
    enum sh_metadata_parts parts;
    size_t key_size;              /* of the last item's key, */
    uint8_t key[SH_MAP_KEY_MAX];  /* which is here */
    shoal_cid range;              /* the last one's first chunk ID, */
    struct sh_metadata_note note; /* and its note */
    shoal_nid zone_creator;       /* of the last zone */
    size_t zone_creators;         /* of zones, */
    size_t last_creators;         /* and those of them whose last zone is known */
    struct sh_barrier *barrier;   /* the last one, */
    size_t open, closed;          /* and how many of its members are missing */
    struct sh_metadata_shard shard;
};

enum shoal_err sh_metadata_restore_begin(struct sh_metadata *metadata, unsigned number,
                                         struct sh_metadata_restore **restore_out)
{
    SH_ASSERT(number < SH_SHARDS);
    struct sh_metadata_restore *restore = sh_cells_malloc(&metadata->cells, sizeof *restore);
    if (!restore)
        return SHOAL_ENOMEM;
    *restore = (struct sh_metadata_restore){.metadata = metadata, .number = number};
    restore->shard.cells = &metadata->cells;
    metadata->open++;
    *restore_out = restore;
    return SHOAL_OK;
}

/* --- Records --------------------------------------------------------------------------------- */

static bool head_get(struct sh_metadata_restore *restore, struct sh_reader *r)
{
    struct sh_metadata_shard *shard = &restore->shard;
    uint8_t version = sh_get8(r), parts = sh_get8(r), known = sh_get8(r);
    shard->incarnation = sh_get64(r);
    shard->updates = sh_get64(r);
    shard->forgotten = sh_get64(r);
    shard->is_known = known;
    restore->parts = parts;
    uint8_t expected = restore->is_former ? SH_SNAPSHOT_FORMER_VERSION : SH_SNAPSHOT_VERSION;
    return !restore->last && version == expected &&
           (parts == SH_METADATA_DURABLE || parts == SH_METADATA_ALL) && known <= 1 &&
           shard->forgotten <= shard->updates;
}

/* Of a creator all IDs are in ranges, and neighbours have different notes. */
static bool is_range(struct sh_metadata_restore *restore, struct sh_bytes key,
                     struct sh_bytes value)
{
    if (key.size != 8 || !sh_metadata_is_note(value))
        return false;
    shoal_cid first = {__builtin_bswap64(sh_load64(key.at))};
    shoal_nid creator = shoal_cid_creator(first);
    struct sh_metadata_note note = sh_metadata_note_read(value);
    bool is_next =
        restore->shard.counts[SH_ITEM_RANGE] && creator.v == shoal_cid_creator(restore->range).v;
    restore->range = first;
    bool differs = !sh_metadata_note_is_same(&note, &restore->note);
    restore->note = note;
    return sh_metadata_is_peer(creator) && sh_arc_shard(creator) == restore->number &&
           (is_next ? differs : shoal_cid_local(first) == 0) &&
           restore->shard.counts[SH_ITEM_RANGE] < SH_METADATA_CLAIMS_MAX;
}

static bool is_zone(struct sh_metadata_restore *restore, struct sh_bytes key, struct sh_bytes value)
{
    struct sh_zone zone;
    if (!sh_metadata_zone_read(key, value, &zone) || sh_zone_shard(zone.id) != restore->number)
        return false;
    shoal_nid creator = sh_zone_creator(zone.id);
    restore->zone_creators += creator.v != restore->zone_creator.v;
    restore->zone_creator = creator;
    return restore->shard.counts[SH_ITEM_ZONE] < SH_METADATA_ZONES_MAX;
}

/* A node's last zone is none before those that are there. */
static bool is_last_zone(struct sh_metadata_restore *restore, struct sh_bytes key,
                         struct sh_bytes value)
{
    struct sh_bytes found, record;
    uint8_t end[8];
    if (key.size != 2 || value.size != 8)
        return false;
    shoal_nid creator = {(uint16_t)(key.at[0] << 8 | key.at[1])};
    uint64_t last = sh_load64(value.at);
    if (!sh_metadata_is_peer(creator) || sh_arc_shard(creator) != restore->number || !last ||
        last > SH_ZONE_NUMBER_MAX)
        return false;
    sh_store64(end, __builtin_bswap64(sh_zone_id(creator, SH_ZONE_NUMBER_MAX)));
    if (!sh_metadata_item_floor(&restore->shard, SH_ITEM_ZONE, sh_bytes_make(end, 8), &found,
                                &record))
        return true;
    uint64_t id = __builtin_bswap64(sh_load64(found.at));
    bool is_own = sh_zone_creator(id).v == creator.v;
    restore->last_creators += is_own;
    return !is_own || sh_zone_number(id) <= last;
}

static bool is_item(struct sh_metadata_restore *restore, uint8_t kind, struct sh_bytes key,
                    struct sh_bytes value)
{
    const struct sh_metadata_shard *shard = &restore->shard;
    switch (kind) {
    case SH_ITEM_SOURCE:
        return key.size == 2 && value.size == 8;
    case SH_ITEM_RANGE:
        return is_range(restore, key, value);
    case SH_ITEM_NAME:
        return sh_metadata_is_name(key) && sh_arc_shard_of_name(key) == restore->number &&
               value.size == 8 && sh_load64(value.at) &&
               shard->counts[SH_ITEM_NAME] < SH_METADATA_NAMES_MAX;
    case SH_ITEM_ZONE:
        return is_zone(restore, key, value);
    case SH_ITEM_LAST:
        return is_last_zone(restore, key, value);
    default:
        return restore->parts == SH_METADATA_ALL && sh_metadata_is_name(key) &&
               sh_arc_shard_of_name(key) == restore->number && value.size <= SH_SCRATCH_VALUE_MAX &&
               shard->counts[SH_ITEM_SCRATCH] < SH_SCRATCH_MAX &&
               shard->scratch_bytes + key.size + value.size <= SH_SCRATCH_BYTES_MAX;
    }
}

/* Whether an item comes behind the last record, in the order of kinds and keys. */
static bool is_in_order(const struct sh_metadata_restore *restore, uint8_t kind,
                        struct sh_bytes key)
{
    if (restore->last != kind)
        return restore->last == SH_RECORD_HEAD || (restore->last && restore->last < kind);
    return sh_bytes_order(sh_bytes_make(restore->key, restore->key_size), key) < 0;
}

static bool item_get(struct sh_metadata_restore *restore, uint8_t kind, struct sh_reader *r)
{
    struct sh_metadata_shard *shard = &restore->shard;
    size_t key_size = sh_get8(r), value_size = sh_get16(r);
    struct sh_bytes key = sh_bytes_make(sh_reader_take(r, key_size), key_size);
    struct sh_bytes value = sh_bytes_make(sh_reader_take(r, value_size), value_size);
    if (!sh_reader_ok(r) || !is_in_order(restore, kind, key) || !is_item(restore, kind, key, value))
        return false;
    restore->key_size = key.size;
    memcpy(restore->key, key.at, key.size);
    restore->is_short = sh_metadata_refs_fill_item(shard, kind, key, value);
    if (restore->is_short)
        return false;
    sh_metadata_item_append(shard, kind, key, value);
    shard->scratch_bytes += kind == SH_ITEM_SCRATCH ? key.size + value.size : 0;
    return true;
}

static bool completion_get(struct sh_metadata_restore *restore, struct sh_reader *r)
{
    struct sh_metadata_shard *shard = &restore->shard;
    if (!restore->last || restore->last > SH_RECORD_COMPLETION ||
        shard->completion_count == SH_METADATA_CALLERS_MAX)
        return false;
    struct sh_metadata_completion *done = &shard->completions[shard->completion_count++];
    done->caller = sh_get64(r);
    done->number = sh_get64(r);
    done->update = sh_get64(r);
    done->result = (struct sh_metadata_result){.cid = {sh_get64(r)}};
    done->result.err = (enum shoal_err)sh_get16(r);
    return sh_reader_ok(r) && done->caller && done->number && done->update <= shard->updates;
}

static size_t round_get(struct sh_barrier_round *round, struct sh_reader *r)
{
    round->number = sh_get64(r);
    round->gone = sh_get64(r);
    return sh_get32(r);
}

static bool barrier_get(struct sh_metadata_restore *restore, struct sh_reader *r)
{
    struct sh_metadata_shard *shard = &restore->shard;
    struct sh_barrier made = {.id = sh_get64(r)};
    made.size = sh_get32(r);
    made.flags = sh_get8(r);
    restore->open = round_get(&made.open, r);
    restore->closed = round_get(&made.last, r);
    size_t count = shard->barrier_count;
    bool is_next = restore->last && (!count || shard->barriers[count - 1]->id < made.id);
    if (!sh_reader_ok(r) || !is_next || count == SH_BARRIERS_MAX || !made.size ||
        made.size > SH_BARRIER_MEMBERS_MAX || made.flags > SH_BARRIER_SURVIVORS ||
        !made.open.number || made.open.gone || restore->open >= made.size ||
        restore->closed > SH_BARRIER_MEMBERS_MAX || sh_barrier_shard(made.id) != restore->number)
        return false;
    restore->barrier = sh_metadata_barrier_insert(shard, &made);
    return true;
}

static bool member_get(struct sh_metadata_restore *restore, struct sh_reader *r)
{
    SH_ASSERT(restore->barrier || !(restore->open + restore->closed));
    struct sh_metadata_shard *shard = &restore->shard;
    uint64_t id = sh_get64(r);
    struct sh_bytes data = sh_get_text(r);
    if (!sh_reader_ok(r) || !id || data.size > SH_BARRIER_DATA_MAX ||
        !(restore->open + restore->closed) || shard->barrier_bytes > SH_BARRIER_BYTES_MAX)
        return false;
    bool is_open = restore->open;
    struct sh_barrier_round *round = is_open ? &restore->barrier->open : &restore->barrier->last;
    restore->open -= is_open;
    restore->closed -= !is_open;
    sh_metadata_member_add(shard, round, id, data);
    bool is_last = is_open ? !restore->open : !restore->closed;
    return !is_last || sh_metadata_round_bytes(round) <= SH_BARRIER_ROUND_BYTES_MAX;
}

static bool record_get(struct sh_metadata_restore *restore, uint8_t kind, struct sh_reader *r)
{
    bool is_within = restore->open + restore->closed; /* a barrier, whose members come first */
    if (is_within != (kind == SH_RECORD_MEMBER) || restore->last == SH_RECORD_END)
        return false;
    switch (kind) {
    case SH_RECORD_HEAD:
        return head_get(restore, r);
    case SH_ITEM_SOURCE:
    case SH_ITEM_RANGE:
    case SH_ITEM_NAME:
    case SH_ITEM_ZONE:
    case SH_ITEM_LAST:
    case SH_ITEM_SCRATCH:
        return item_get(restore, kind, r);
    case SH_RECORD_COMPLETION:
        return completion_get(restore, r);
    case SH_RECORD_BARRIER:
        return barrier_get(restore, r);
    case SH_RECORD_MEMBER:
        return member_get(restore, r);
    case SH_RECORD_END:
        return restore->last && restore->last_creators == restore->zone_creators &&
               sh_get64(r) == restore->records && sh_reader_ok(r);
    default:
        return false;
    }
}

/* --- Pieces ---------------------------------------------------------------------------------- */

/* The kind of a record as it is numbered now; the first record says which version it is. 0: none. */
static uint8_t kind_of(struct sh_metadata_restore *restore, uint8_t kind)
{
    if (!restore->last && kind == SH_SNAPSHOT_FORMER_HEAD)
        restore->is_former = true;
    if (!restore->is_former || kind < SH_SNAPSHOT_FORMER_MOVED)
        return kind;
    return kind <= SH_SNAPSHOT_FORMER_END ? (uint8_t)(kind + SH_SNAPSHOT_FORMER_BY) : 0;
}

static enum shoal_err piece_get(struct sh_metadata_restore *restore, struct sh_bytes piece)
{
    struct sh_metadata *metadata = restore->metadata;
    struct sh_reader r = sh_reader_make(piece);
    uint32_t crc = sh_get32(&r), number = sh_get32(&r);
    if (!sh_reader_left(&r) || number != restore->piece++ ||
        crc != sh_crc32c(0, sh_bytes_make(piece.at + 4, piece.size - 4)))
        return SHOAL_EPROTO;
    while (sh_reader_left(&r)) {
        /* An item, or a barrier or member: five cells are more than those take. */
        size_t cells =
            5 + sh_map_cells_max(&restore->shard.items, 1, SH_MAP_KEY_MAX + SH_MAP_VALUE_MAX);
        if (sh_cells_fill(&metadata->cells, metadata->reserved + cells))
            return SHOAL_ENOMEM;
        uint8_t kind = kind_of(restore, sh_get8(&r));
        if (!record_get(restore, kind, &r) || !sh_reader_ok(&r))
            return restore->is_short ? SHOAL_ENOMEM : SHOAL_EPROTO;
        restore->last = kind;
        restore->records++;
    }
    return SHOAL_OK;
}

enum shoal_err sh_metadata_restore_piece(struct sh_metadata_restore *restore, struct sh_bytes piece)
{
    SH_ASSERT(!restore->is_bad);
    enum shoal_err err = piece_get(restore, piece);
    restore->is_bad = err;
    return err;
}

/* Exchanges the states, if what is reserved has its cells in the new one too. */
static enum shoal_err exchange(struct sh_metadata_restore *restore)
{
    SH_ASSERT(!restore->is_bad && restore->last == SH_RECORD_END);
    struct sh_metadata_shard *shard = &restore->metadata->shards[restore->number];
    struct sh_metadata_shard old = *shard;
    enum shoal_err err = sh_metadata_refs_grow(&restore->shard, old.refs_room);
    if (err)
        return err;
    *shard = restore->shard;
    err = sh_metadata_ahead_fill(restore->metadata, restore->number);
    if (err)
        *shard = old;
    else
        restore->shard = old;
    return err;
}

enum shoal_err sh_metadata_restore_end(struct sh_metadata_restore *restore, bool install)
{
    if (!restore)
        return SHOAL_OK;
    enum shoal_err err = SHOAL_OK;
    if (install)
        err = restore->is_bad || restore->last != SH_RECORD_END ? SHOAL_EPROTO : exchange(restore);
    SH_ASSERT(restore->metadata->open);
    restore->metadata->open--;
    sh_metadata_shard_clear(&restore->shard);
    free(restore->shard.refs);
    free(restore);
    return err;
}
