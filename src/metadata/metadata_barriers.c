/* A shard's barriers. */
#include "metadata/metadata_barriers.h"

#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

/* What a member counts for, beside its data. */
#define MEMBER_COST 32

static size_t lower(const struct sh_metadata_shard *shard, uint64_t id, bool *found_out)
{
    size_t low = 0;
    size_t high = shard->barrier_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shard->barriers[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    *found_out = low < shard->barrier_count && shard->barriers[low]->id == id;
    return low;
}

struct sh_barrier *sh_metadata_barrier(const struct sh_metadata *metadata, uint64_t id)
{
    const struct sh_metadata_shard *shard = &metadata->shards[sh_barrier_shard(id)];
    bool is_there;
    size_t at = lower(shard, id, &is_there);
    return is_there ? shard->barriers[at] : NULL;
}

struct sh_barrier *sh_metadata_barrier_at(const struct sh_metadata *metadata, unsigned number,
                                          size_t at)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    return at < shard->barrier_count ? shard->barriers[at] : NULL;
}

/* --- Rounds ---------------------------------------------------------------------------------- */

/* Members of a round are cells, referred to by chunks of up to SH_METADATA_CHUNK_MEMBERS, which are
 * cells too. A chunk that others refer to as well is copied before it is changed; a member is never
 * changed, but for what is the owner's alone. */
struct sh_barrier_chunk {
    struct sh_cell cell;
    uint32_t count, room;
    struct member *members[];
};

struct member {
    struct sh_cell cell;
    struct sh_barrier_member member;
    uint8_t bytes[];
};

_Static_assert(SH_METADATA_CHUNK_MEMBERS *SH_BARRIER_CHUNKS_MAX >= SH_BARRIER_MEMBERS_MAX,
               "all members have room in the chunks of a round");
_Static_assert(sizeof(struct sh_barrier_chunk) + SH_METADATA_CHUNK_MEMBERS * sizeof(void *) <=
                   SH_CELL_BYTES,
               "a chunk is a cell");
_Static_assert(sizeof(struct member) + SH_BARRIER_DATA_MAX <= SH_CELL_BYTES, "so is a member");
_Static_assert(SH_METADATA_CHUNK_MEMBERS <= SH_CELL_CHILDREN_MAX, "as a cell may have");

void sh_metadata_members_drop(struct sh_cells *cells, struct sh_cell *cell)
{
    struct sh_barrier_chunk *chunk = (struct sh_barrier_chunk *)cell;
    for (uint32_t i = 0; i < chunk->count; i++)
        sh_cells_drop(cells, &chunk->members[i]->cell);
}

struct sh_barrier_member *sh_barrier_member(const struct sh_barrier_round *round, size_t at)
{
    SH_ASSERT(at < round->count);
    return &round->chunks[at / SH_METADATA_CHUNK_MEMBERS]
                ->members[at % SH_METADATA_CHUNK_MEMBERS]
                ->member;
}

size_t sh_metadata_round_bytes(const struct sh_barrier_round *round)
{
    size_t bytes = 0;
    for (size_t i = 0; i < round->count; i++)
        bytes += sh_barrier_member(round, i)->size;
    return bytes;
}

void sh_metadata_round_share(struct sh_barrier_round *round)
{
    for (unsigned i = 0; i < SH_BARRIER_CHUNKS_MAX; i++)
        if (round->chunks[i])
            round->chunks[i]->cell.refs++;
}

void sh_metadata_round_drop(struct sh_cells *cells, struct sh_barrier_round *round)
{
    for (unsigned i = 0; i < SH_BARRIER_CHUNKS_MAX; i++)
        if (round->chunks[i])
            sh_cells_drop(cells, &round->chunks[i]->cell);
    *round = (struct sh_barrier_round){0};
}

static void round_clear(struct sh_metadata_shard *shard, struct sh_barrier_round *round)
{
    SH_ASSERT(shard->barrier_bytes >= MEMBER_COST * round->count);
    shard->barrier_bytes -= MEMBER_COST * round->count + sh_metadata_round_bytes(round);
    sh_metadata_round_drop(shard->cells, round);
}

/* A round's chunk, which may be changed and has room for so many members. */
static struct sh_barrier_chunk *chunk_own(struct sh_metadata_shard *shard,
                                          struct sh_barrier_round *round, size_t at, uint32_t room)
{
    struct sh_barrier_chunk *chunk = round->chunks[at];
    if (chunk && chunk->cell.refs == 1 && chunk->room >= room)
        return chunk;
    if (chunk && chunk->room < room)
        room = 2 * chunk->room; /* above what is needed: it grows by one */
    if (chunk && room < chunk->count)
        room = chunk->count;
    room = room < 4 ? 4 : room;
    SH_ASSERT(room <= SH_METADATA_CHUNK_MEMBERS);
    struct sh_barrier_chunk *copy =
        sh_cells_take(shard->cells, sizeof *copy + room * sizeof copy->members[0], SH_CELL_MEMBERS);
    copy->count = chunk ? chunk->count : 0;
    copy->room = room;
    for (uint32_t i = 0; i < copy->count; i++) {
        copy->members[i] = chunk->members[i];
        copy->members[i]->cell.refs++;
    }
    if (chunk)
        sh_cells_drop(shard->cells, &chunk->cell);
    round->chunks[at] = copy;
    return copy;
}

/* The round is over; the member that breaks it is in `gone`. */
static void release(struct sh_metadata_shard *shard, struct sh_barrier *barrier, uint64_t gone)
{
    round_clear(shard, &barrier->last);
    barrier->last = barrier->open;
    barrier->last.gone = gone;
    barrier->open = (struct sh_barrier_round){.number = barrier->last.number + 1};
}

static void release_if_full(struct sh_metadata_shard *shard, struct sh_barrier *barrier)
{
    if (barrier->open.count && barrier->open.count >= barrier->size)
        release(shard, barrier, 0);
}

static size_t member_find(const struct sh_barrier_round *round, uint64_t id)
{
    size_t at = 0;
    while (at < round->count && sh_barrier_member(round, at)->id != id)
        at++;
    return at;
}

static struct member *member_make(struct sh_cells *cells, uint64_t id, struct sh_bytes data)
{
    struct member *member = sh_cells_take(cells, sizeof *member + data.size, SH_CELL_PLAIN);
    member->member = (struct sh_barrier_member){
        .id = id, .bytes = data.size ? member->bytes : NULL, .size = (uint32_t)data.size};
    if (data.size)
        memcpy(member->bytes, data.at, data.size);
    return member;
}

void sh_metadata_member_add(struct sh_metadata_shard *shard, struct sh_barrier_round *round,
                            uint64_t id, struct sh_bytes data)
{
    SH_ASSERT(round->count < SH_BARRIER_MEMBERS_MAX);
    uint32_t at = (uint32_t)(round->count % SH_METADATA_CHUNK_MEMBERS);
    struct sh_barrier_chunk *chunk =
        chunk_own(shard, round, round->count / SH_METADATA_CHUNK_MEMBERS, at + 1);
    chunk->members[at] = member_make(shard->cells, id, data);
    chunk->count++;
    round->count++;
    shard->barrier_bytes += MEMBER_COST + data.size;
}

/* The member's data is another. */
static void member_replace(struct sh_metadata_shard *shard, struct sh_barrier_round *round,
                           size_t at, struct sh_bytes data)
{
    size_t index = at % SH_METADATA_CHUNK_MEMBERS;
    struct sh_barrier_chunk *chunk =
        chunk_own(shard, round, at / SH_METADATA_CHUNK_MEMBERS, (uint32_t)index + 1);
    struct member *old = chunk->members[index];
    struct member *made = member_make(shard->cells, old->member.id, data);
    made->member.heard_ns = old->member.heard_ns;
    made->member.nid = old->member.nid;
    chunk->members[index] = made;
    shard->barrier_bytes += data.size - old->member.size;
    sh_cells_drop(shard->cells, &old->cell);
}

/* Those behind move up, from chunk to chunk. */
static void member_remove(struct sh_metadata_shard *shard, struct sh_barrier_round *round,
                          size_t at)
{
    SH_ASSERT(at < round->count);
    const uint32_t full = SH_METADATA_CHUNK_MEMBERS;
    size_t chunks = (round->count + full - 1) / full;
    uint32_t index = (uint32_t)(at % full);
    struct member *gone = NULL;
    for (size_t i = at / full; i < chunks; i++) {
        struct sh_barrier_chunk *chunk = chunk_own(shard, round, i, index + 1);
        struct member *first = chunk->members[index];
        memmove(&chunk->members[index], &chunk->members[index + 1],
                (chunk->count - index - 1) * sizeof chunk->members[0]);
        if (gone)
            round->chunks[i - 1]->members[full - 1] = first;
        else
            gone = first;
        if (i + 1 == chunks)
            chunk->count--;
        index = 0;
    }
    shard->barrier_bytes -= MEMBER_COST + gone->member.size;
    sh_cells_drop(shard->cells, &gone->cell);
    round->count--;
    struct sh_barrier_chunk *last = round->chunks[chunks - 1];
    if (last->count)
        return;
    sh_cells_drop(shard->cells, &last->cell);
    round->chunks[chunks - 1] = NULL;
}

/* --- Updates --------------------------------------------------------------------------------- */

/* A barrier's cell. */
struct place {
    struct sh_cell cell;
    struct sh_barrier barrier;
};

static struct sh_cell *cell_of(struct sh_barrier *barrier)
{
    return (struct sh_cell *)(void *)((uint8_t *)barrier - offsetof(struct place, barrier));
}

struct sh_barrier *sh_metadata_barrier_insert(struct sh_metadata_shard *shard,
                                              const struct sh_barrier *made)
{
    bool is_there;
    size_t at = lower(shard, made->id, &is_there);
    SH_ASSERT(!is_there && shard->barrier_count < SH_BARRIERS_MAX);
    struct place *place = sh_cells_take(shard->cells, sizeof *place, SH_CELL_PLAIN);
    place->barrier = *made;
    memmove(&shard->barriers[at + 1], &shard->barriers[at],
            (shard->barrier_count - at) * sizeof shard->barriers[0]);
    shard->barriers[at] = &place->barrier;
    shard->barrier_count++;
    return &place->barrier;
}

static void barrier_drop(struct sh_metadata_shard *shard, struct sh_barrier *barrier)
{
    sh_metadata_round_drop(shard->cells, &barrier->open);
    sh_metadata_round_drop(shard->cells, &barrier->last);
    sh_cells_drop(shard->cells, cell_of(barrier));
}

static struct sh_metadata_result sign(struct sh_metadata_shard *shard, struct sh_barrier *barrier,
                                      const struct sh_metadata_update *update)
{
    struct sh_barrier_round *round = &barrier->open;
    struct sh_metadata_result result = {.cid = {round->number}};
    size_t at = member_find(round, update->member);
    bool is_new = at == round->count;
    size_t old = is_new ? 0 : sh_barrier_member(round, at)->size;
    size_t bytes = shard->barrier_bytes - old + (is_new ? MEMBER_COST : 0) + update->value.size;
    size_t data_bytes = sh_metadata_round_bytes(round) - old + update->value.size;
    bool is_over = update->value.size && data_bytes > SH_BARRIER_ROUND_BYTES_MAX;
    if (bytes > SH_BARRIER_BYTES_MAX || is_over) {
        result.err = SHOAL_ELIMIT;
        return result;
    }
    if (is_new)
        sh_metadata_member_add(shard, round, update->member, update->value);
    else
        member_replace(shard, round, at, update->value);
    SH_ASSERT(shard->barrier_bytes == bytes);
    release_if_full(shard, barrier);
    return result;
}

static struct sh_metadata_result leave(struct sh_metadata_shard *shard, struct sh_barrier *barrier,
                                       const struct sh_metadata_update *update)
{
    struct sh_metadata_result result = {.cid = {barrier->open.number}};
    if (update->round != barrier->open.number) {
        result.err = SHOAL_ECANCELED;
        return result;
    }
    size_t at = member_find(&barrier->open, update->member);
    if (at == barrier->open.count)
        return result;
    member_remove(shard, &barrier->open, at);
    if (update->kind == SH_METADATA_BARRIER_OFF)
        return result;
    if (!(barrier->flags & SH_BARRIER_SURVIVORS)) {
        release(shard, barrier, update->member);
        return result;
    }
    barrier->size -= barrier->size > 1;
    release_if_full(shard, barrier);
    return result;
}

static struct sh_metadata_result create(struct sh_metadata_shard *shard, bool is_there,
                                        const struct sh_metadata_update *update)
{
    struct sh_metadata_result result = {.cid = {1}};
    if (is_there)
        result.err = SHOAL_EEXIST;
    else if (shard->barrier_count >= SH_BARRIERS_MAX)
        result.err = SHOAL_ELIMIT;
    if (result.err)
        return result;
    struct sh_barrier made = {
        .id = update->barrier, .size = update->size, .flags = update->flags, .open = {.number = 1}};
    (void)sh_metadata_barrier_insert(shard, &made);
    return result;
}

struct sh_metadata_result sh_metadata_barrier_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update)
{
    SH_ASSERT(update->kind >= SH_METADATA_BARRIER_NEW && update->kind < SH_METADATA_CLAIM);
    bool is_there;
    size_t at = lower(shard, update->barrier, &is_there);
    if (update->kind == SH_METADATA_BARRIER_NEW)
        return create(shard, is_there, update);
    if (!is_there)
        return (struct sh_metadata_result){.err = SHOAL_ENONAME};
    struct sh_barrier *barrier = shard->barriers[at];
    struct sh_metadata_result result = {.cid = {barrier->open.number}};
    switch (update->kind) {
    case SH_METADATA_BARRIER_SIGN:
        return sign(shard, barrier, update);
    case SH_METADATA_BARRIER_RESIZE:
        barrier->size = update->size;
        release_if_full(shard, barrier);
        return result;
    case SH_METADATA_BARRIER_FREE:
        round_clear(shard, &barrier->open);
        round_clear(shard, &barrier->last);
        barrier_drop(shard, barrier);
        shard->barrier_count--;
        memmove(&shard->barriers[at], &shard->barriers[at + 1],
                (shard->barrier_count - at) * sizeof *shard->barriers);
        return result;
    default:
        return leave(shard, barrier, update);
    }
}

void sh_metadata_barriers_clear(struct sh_metadata_shard *shard)
{
    for (size_t i = 0; i < shard->barrier_count; i++)
        barrier_drop(shard, shard->barriers[i]);
    shard->barrier_count = shard->barrier_bytes = 0;
}
