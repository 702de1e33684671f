/* Updates of names, scratch and barriers: their bytes, and that each is done once. */
#include "base/assert.h"
#include "metadata/metadata_barriers.h"
#include "metadata/metadata_int.h"

static bool is_of_name(uint8_t kind)
{
    return kind >= SH_METADATA_NAME && kind <= SH_METADATA_SCRATCH_REMOVE;
}

unsigned sh_metadata_service_shard(const struct sh_metadata_update *update)
{
    if (is_of_name(update->kind))
        return sh_arc_shard_of_name(update->name);
    return sh_barrier_shard(update->barrier);
}

/* --- Updates as bytes ------------------------------------------------------------------------ */

/* All: u64 caller, u64 number, u8 whether it is a repetition, u64 since. NAME, UNNAME: u8
 * condition, u64 chunk ID, u64 expected, text name. SCRATCH_PUT: text key, text value.
 * SCRATCH_REMOVE: text key. BARRIER: u64 barrier, and NEW: u32 size, u8 flags; RESIZE: u32 size;
 * SIGN: u64 member, text data; OFF, GONE: u64 member, u64 round. */
void sh_metadata_service_put(struct sh_writer *w, const struct sh_metadata_update *update)
{
    sh_put64(w, update->caller);
    sh_put64(w, update->number);
    sh_put8(w, update->is_repeat);
    sh_put64(w, update->since);
    if (update->kind <= SH_METADATA_UNNAME) {
        sh_put8(w, update->condition);
        sh_put64(w, update->cid.v);
        sh_put64(w, update->expected.v);
    }
    if (is_of_name(update->kind))
        sh_put_text(w, update->name);
    else
        sh_put64(w, update->barrier);
    switch (update->kind) {
    case SH_METADATA_SCRATCH_PUT:
        sh_put_text(w, update->value);
        break;
    case SH_METADATA_BARRIER_NEW:
        sh_put32(w, update->size);
        sh_put8(w, update->flags);
        break;
    case SH_METADATA_BARRIER_RESIZE:
        sh_put32(w, update->size);
        break;
    case SH_METADATA_BARRIER_SIGN:
        sh_put64(w, update->member);
        sh_put_text(w, update->value);
        break;
    case SH_METADATA_BARRIER_OFF:
    case SH_METADATA_BARRIER_GONE:
        sh_put64(w, update->member);
        sh_put64(w, update->round);
        break;
    default:
        break;
    }
}

static bool barrier_get(struct sh_reader *r, struct sh_metadata_update *update)
{
    switch (update->kind) {
    case SH_METADATA_BARRIER_NEW:
    case SH_METADATA_BARRIER_RESIZE:
        update->size = sh_get32(r);
        update->flags = update->kind == SH_METADATA_BARRIER_NEW ? sh_get8(r) : 0;
        return update->size && update->size <= SH_BARRIER_MEMBERS_MAX &&
               update->flags <= SH_BARRIER_SURVIVORS;
    case SH_METADATA_BARRIER_FREE:
        return true;
    case SH_METADATA_BARRIER_SIGN:
        update->member = sh_get64(r);
        update->value = sh_get_text(r);
        return update->member && update->value.size <= SH_BARRIER_DATA_MAX;
    case SH_METADATA_BARRIER_OFF:
    case SH_METADATA_BARRIER_GONE:
        update->member = sh_get64(r);
        update->round = sh_get64(r);
        return update->member && update->round;
    default:
        return false;
    }
}

bool sh_metadata_service_get(struct sh_reader *r, struct sh_metadata_update *update)
{
    if (update->kind < SH_METADATA_NAME)
        return false;
    update->caller = sh_get64(r);
    update->number = sh_get64(r);
    uint8_t repeat = sh_get8(r);
    update->is_repeat = repeat;
    update->since = sh_get64(r);
    if (repeat > 1 || (update->caller != 0) != (update->number != 0))
        return false;
    if (update->kind <= SH_METADATA_UNNAME) {
        update->condition = sh_get8(r);
        update->cid.v = sh_get64(r);
        update->expected.v = sh_get64(r);
        if (update->condition > SH_NAME_CURRENT ||
            (update->kind == SH_METADATA_NAME && !update->cid.v))
            return false;
    }
    if (!is_of_name(update->kind)) {
        update->barrier = sh_get64(r);
        return barrier_get(r, update);
    }
    update->name = sh_get_text(r);
    if (update->kind == SH_METADATA_SCRATCH_PUT)
        update->value = sh_get_text(r);
    return sh_reader_ok(r) && sh_metadata_is_name(update->name) &&
           update->value.size <= SH_SCRATCH_VALUE_MAX;
}

/* --- Once ------------------------------------------------------------------------------------ */

uint64_t sh_metadata_updates(const struct sh_metadata *metadata, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    return metadata->shards[shard].updates;
}

static struct sh_metadata_completion *completion_find(struct sh_metadata_shard *shard,
                                                      uint64_t caller)
{
    for (size_t i = 0; i < shard->completion_count; i++)
        if (shard->completions[i].caller == caller)
            return &shard->completions[i];
    return NULL;
}

/* A place for a new caller's record: in a full table that of the caller whose last update is the
 * oldest. */
static struct sh_metadata_completion *completion_add(struct sh_metadata_shard *shard)
{
    if (shard->completion_count < SH_METADATA_CALLERS_MAX)
        return &shard->completions[shard->completion_count++];
    struct sh_metadata_completion *oldest = shard->completions;
    for (size_t i = 1; i < shard->completion_count; i++)
        if (shard->completions[i].update < oldest->update)
            oldest = &shard->completions[i];
    shard->forgotten = oldest->update; /* above all that were forgotten before */
    return oldest;
}

static struct sh_metadata_result carry_out(struct sh_metadata_shard *shard,
                                           const struct sh_metadata_update *update)
{
    if (update->kind <= SH_METADATA_UNNAME)
        return sh_metadata_name_apply(shard, update);
    if (is_of_name(update->kind))
        return sh_metadata_scratch_apply(shard, update);
    return sh_metadata_barrier_apply(shard, update);
}

struct sh_metadata_result sh_metadata_service_apply(struct sh_metadata_shard *shard,
                                                    const struct sh_metadata_update *update)
{
    if (!update->caller)
        return carry_out(shard, update);
    struct sh_metadata_completion *done = completion_find(shard, update->caller);
    SH_ASSERT(!done || done->update <= shard->updates);
    if (done && update->number == done->number)
        return done->result;
    if (done && update->number < done->number)
        return (struct sh_metadata_result){.err = SHOAL_ECANCELED};
    /* Also a first try may be a copy of one that was done: it may have been long on its way. */
    if (!done && (update->since < shard->forgotten || update->since > shard->updates))
        return (struct sh_metadata_result){.err =
                                               update->is_repeat ? SHOAL_ETIMEOUT : SHOAL_EAGAIN};
    struct sh_metadata_result result = carry_out(shard, update);
    if (!done)
        done = completion_add(shard);
    *done = (struct sh_metadata_completion){.caller = update->caller,
                                            .number = update->number,
                                            .update = ++shard->updates,
                                            .result = result};
    return result;
}
