/* A shard's barriers. */
#include "metadata/metadata_barriers.h"

#include <stdlib.h>
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

static void round_clear(struct sh_metadata_shard *shard, struct sh_barrier_round *round)
{
    for (size_t i = 0; i < round->count; i++) {
        shard->barrier_bytes -= MEMBER_COST + round->members[i].size;
        free(round->members[i].bytes);
    }
    free(round->members);
    *round = (struct sh_barrier_round){0};
}

/* The round is over; who breaks it is in `gone`. */
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
    while (at < round->count && round->members[at].id != id)
        at++;
    return at;
}

static enum shoal_err member_data(struct sh_barrier_member *member, struct sh_bytes data)
{
    uint8_t *bytes = data.size ? malloc(data.size) : NULL;
    if (data.size && !bytes)
        return SHOAL_ENOMEM;
    if (data.size)
        memcpy(bytes, data.at, data.size);
    free(member->bytes);
    member->bytes = bytes;
    member->size = (uint32_t)data.size;
    return SHOAL_OK;
}

static enum shoal_err member_add(struct sh_metadata_shard *shard, struct sh_barrier_round *round,
                                 uint64_t id, struct sh_bytes data)
{
    if (round->count == round->room) {
        size_t room = round->room ? 2 * round->room : 4;
        struct sh_barrier_member *members = realloc(round->members, room * sizeof *members);
        if (!members)
            return SHOAL_ENOMEM;
        round->members = members;
        round->room = room;
    }
    struct sh_barrier_member *member = &round->members[round->count];
    *member = (struct sh_barrier_member){.id = id};
    enum shoal_err err = member_data(member, data);
    if (err)
        return err;
    round->count++;
    shard->barrier_bytes += MEMBER_COST + data.size;
    return SHOAL_OK;
}

static void member_remove(struct sh_metadata_shard *shard, struct sh_barrier_round *round,
                          size_t at)
{
    struct sh_barrier_member *member = &round->members[at];
    shard->barrier_bytes -= MEMBER_COST + member->size;
    free(member->bytes);
    round->count--;
    memmove(member, member + 1, (round->count - at) * sizeof *member);
}

/* --- Updates --------------------------------------------------------------------------------- */

static enum shoal_err barrier_insert(struct sh_metadata_shard *shard, size_t at,
                                     const struct sh_barrier *made)
{
    if (shard->barrier_count == shard->barrier_room) {
        size_t room = shard->barrier_room ? 2 * shard->barrier_room : 8;
        struct sh_barrier **barriers = realloc(shard->barriers, room * sizeof *barriers);
        if (!barriers)
            return SHOAL_ENOMEM;
        shard->barriers = barriers;
        shard->barrier_room = room;
    }
    struct sh_barrier *barrier = malloc(sizeof *barrier);
    if (!barrier)
        return SHOAL_ENOMEM;
    *barrier = *made;
    struct sh_barrier **place = &shard->barriers[at];
    memmove(place + 1, place, (shard->barrier_count - at) * sizeof *place);
    *place = barrier;
    shard->barrier_count++;
    return SHOAL_OK;
}

static void barrier_free(struct sh_metadata_shard *shard, struct sh_barrier *barrier)
{
    round_clear(shard, &barrier->open);
    round_clear(shard, &barrier->last);
    free(barrier);
}

static size_t round_bytes(const struct sh_barrier_round *round)
{
    size_t bytes = 0;
    for (size_t i = 0; i < round->count; i++)
        bytes += round->members[i].size;
    return bytes;
}

static struct sh_metadata_result sign(struct sh_metadata_shard *shard, struct sh_barrier *barrier,
                                      const struct sh_metadata_update *update)
{
    struct sh_barrier_round *round = &barrier->open;
    struct sh_metadata_result result = {.cid = {round->number}};
    size_t at = member_find(round, update->member);
    bool is_new = at == round->count;
    size_t before = is_new ? 0 : MEMBER_COST + round->members[at].size;
    size_t bytes = shard->barrier_bytes - before + MEMBER_COST + update->value.size;
    size_t data_bytes =
        round_bytes(round) - (is_new ? 0 : round->members[at].size) + update->value.size;
    bool is_over = update->value.size && data_bytes > SH_BARRIER_ROUND_BYTES_MAX;
    if (bytes > SH_BARRIER_BYTES_MAX || is_over) {
        result.err = SHOAL_ELIMIT;
        return result;
    }
    enum shoal_err err;
    if (is_new) {
        err = member_add(shard, round, update->member, update->value);
    } else {
        err = member_data(&round->members[at], update->value);
        shard->barrier_bytes = bytes;
    }
    SH_ASSERT(!err);
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

static struct sh_metadata_result create(struct sh_metadata_shard *shard, size_t at, bool is_there,
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
    enum shoal_err err = barrier_insert(shard, at, &made);
    SH_ASSERT(!err);
    return result;
}

struct sh_metadata_result sh_metadata_barrier_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update)
{
    bool is_there;
    size_t at = lower(shard, update->barrier, &is_there);
    if (update->kind == SH_METADATA_BARRIER_NEW)
        return create(shard, at, is_there, update);
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
        barrier_free(shard, barrier);
        shard->barrier_count--;
        memmove(&shard->barriers[at], &shard->barriers[at + 1],
                (shard->barrier_count - at) * sizeof *shard->barriers);
        return result;
    default:
        return leave(shard, barrier, update);
    }
}

/* --- Images ---------------------------------------------------------------------------------- */

/* u32 barriers, each u64 ID, u32 size, u8 flags, and two rounds, the open and the last one: u64
 * number, u64 who is gone, u32 members, each u64 ID, text data. */
static size_t round_size(const struct sh_barrier_round *round)
{
    size_t size = 20;
    for (size_t i = 0; i < round->count; i++)
        size += 10 + round->members[i].size;
    return size;
}

size_t sh_metadata_barriers_size(const struct sh_metadata_shard *shard)
{
    size_t size = 4;
    for (size_t i = 0; i < shard->barrier_count; i++)
        size += 13 + round_size(&shard->barriers[i]->open) + round_size(&shard->barriers[i]->last);
    return size;
}

static void round_put(const struct sh_barrier_round *round, struct sh_writer *w)
{
    sh_put64(w, round->number);
    sh_put64(w, round->gone);
    sh_put32(w, (uint32_t)round->count);
    for (size_t i = 0; i < round->count; i++) {
        sh_put64(w, round->members[i].id);
        sh_put_text(w, sh_bytes_make(round->members[i].bytes, round->members[i].size));
    }
}

void sh_metadata_barriers_put(const struct sh_metadata_shard *shard, struct sh_writer *w)
{
    sh_put32(w, (uint32_t)shard->barrier_count);
    for (size_t i = 0; i < shard->barrier_count; i++) {
        const struct sh_barrier *barrier = shard->barriers[i];
        sh_put64(w, barrier->id);
        sh_put32(w, barrier->size);
        sh_put8(w, barrier->flags);
        round_put(&barrier->open, w);
        round_put(&barrier->last, w);
    }
}

static enum shoal_err round_read(struct sh_metadata_shard *shard, struct sh_barrier_round *round,
                                 struct sh_reader *r)
{
    round->number = sh_get64(r);
    round->gone = sh_get64(r);
    uint32_t count = sh_get32(r);
    if (!sh_reader_ok(r) || count > SH_BARRIER_MEMBERS_MAX)
        return SHOAL_EPROTO;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id = sh_get64(r);
        struct sh_bytes data = sh_get_text(r);
        if (!sh_reader_ok(r) || !id || data.size > SH_BARRIER_DATA_MAX)
            return SHOAL_EPROTO;
        enum shoal_err err = member_add(shard, round, id, data);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

enum shoal_err sh_metadata_barriers_read(struct sh_metadata_shard *shard, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    if (count > SH_BARRIERS_MAX)
        return SHOAL_EPROTO;
    for (uint32_t i = 0; i < count; i++) {
        struct sh_barrier made = {.id = sh_get64(r)};
        made.size = sh_get32(r);
        made.flags = sh_get8(r);
        bool is_there;
        if (!sh_reader_ok(r) || !made.size || made.size > SH_BARRIER_MEMBERS_MAX ||
            made.flags > SH_BARRIER_SURVIVORS || lower(shard, made.id, &is_there) != i || is_there)
            return SHOAL_EPROTO;
        enum shoal_err err = barrier_insert(shard, i, &made);
        struct sh_barrier *barrier = err ? NULL : shard->barriers[i];
        if (!err)
            err = round_read(shard, &barrier->open, r);
        if (!err)
            err = round_read(shard, &barrier->last, r);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

void sh_metadata_barriers_clear(struct sh_metadata_shard *shard)
{
    for (size_t i = 0; i < shard->barrier_count; i++)
        barrier_free(shard, shard->barriers[i]);
    free(shard->barriers);
    shard->barriers = NULL;
    shard->barrier_count = shard->barrier_room = shard->barrier_bytes = 0;
}
