/* Updates of names, scratch and barriers: their bytes, and that each is done once. */
#include <stdlib.h>

#include "base/assert.h"
#include "cluster/metadata_barriers.h"
#include "cluster/metadata_int.h"

static bool is_of_name(uint8_t kind)
{
    return kind >= SH_METADATA_NAME && kind <= SH_METADATA_SCRATCH_REMOVE;
}

unsigned sh_metadata_service_sector(const struct sh_metadata_update *update)
{
    if (is_of_name(update->kind))
        return sh_arc_sector_of_name(update->name);
    return sh_barrier_sector(update->barrier);
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

bool sh_metadata_service_get(struct sh_reader *r, unsigned sector,
                             struct sh_metadata_update *update)
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
        if (update->condition > SH_NAME_GATHERED ||
            (update->kind == SH_METADATA_NAME && !update->cid.v))
            return false;
    }
    if (!is_of_name(update->kind)) {
        update->barrier = sh_get64(r);
        return sh_barrier_sector(update->barrier) == sector && barrier_get(r, update);
    }
    update->name = sh_get_text(r);
    if (update->kind == SH_METADATA_SCRATCH_PUT)
        update->value = sh_get_text(r);
    return sh_reader_ok(r) && sh_metadata_is_name(update->name) &&
           update->value.size <= SH_SCRATCH_VALUE_MAX &&
           sh_arc_sector_of_name(update->name) == sector;
}

/* --- Once ------------------------------------------------------------------------------------ */

uint64_t sh_metadata_updates(const struct sh_metadata *metadata, unsigned sector)
{
    SH_ASSERT(sector < SH_SECTORS);
    return metadata->sectors[sector].updates;
}

static struct sh_metadata_caller *caller_find(struct sh_metadata_sector *sector, uint64_t caller)
{
    for (size_t i = 0; i < sector->caller_count; i++)
        if (sector->callers[i].caller == caller)
            return &sector->callers[i];
    return NULL;
}

/* A place for a new caller: in a full table that of the one that was heard longest ago. */
static struct sh_metadata_caller *caller_add(struct sh_metadata_sector *sector)
{
    if (!sector->callers)
        sector->callers = calloc(SH_METADATA_CALLERS_MAX, sizeof *sector->callers);
    SH_ASSERT(sector->callers);
    if (sector->caller_count < SH_METADATA_CALLERS_MAX)
        return &sector->callers[sector->caller_count++];
    struct sh_metadata_caller *oldest = sector->callers;
    for (size_t i = 1; i < sector->caller_count; i++)
        if (sector->callers[i].update < oldest->update)
            oldest = &sector->callers[i];
    sector->forgotten = oldest->update; /* above all that were forgotten before */
    return oldest;
}

static struct sh_metadata_result carry_out(struct sh_metadata_sector *sector,
                                           const struct sh_metadata_update *update)
{
    if (update->kind <= SH_METADATA_UNNAME)
        return sh_metadata_name_apply(sector, update);
    if (is_of_name(update->kind))
        return sh_metadata_scratch_apply(sector, update);
    return sh_metadata_barrier_apply(sector, update);
}

struct sh_metadata_result sh_metadata_service_apply(struct sh_metadata_sector *sector,
                                                    const struct sh_metadata_update *update)
{
    if (!update->caller)
        return carry_out(sector, update);
    struct sh_metadata_caller *caller = caller_find(sector, update->caller);
    if (caller && update->number == caller->number)
        return caller->result;
    if (caller && update->number < caller->number)
        return (struct sh_metadata_result){.err = SHOAL_ECANCELED};
    /* Also a first try may be a copy of one that was done: it may have been long on its way. */
    if (!caller && update->since < sector->forgotten)
        return (struct sh_metadata_result){.err =
                                               update->is_repeat ? SHOAL_ETIMEOUT : SHOAL_EAGAIN};
    struct sh_metadata_result result = carry_out(sector, update);
    if (!caller)
        caller = caller_add(sector);
    *caller = (struct sh_metadata_caller){.caller = update->caller,
                                          .number = update->number,
                                          .update = ++sector->updates,
                                          .result = result};
    return result;
}

/* --- Images ---------------------------------------------------------------------------------- */

#define CALLER_BYTES 34

size_t sh_metadata_services_size(const struct sh_metadata_sector *sector)
{
    return sh_metadata_scratch_size(sector) + sh_metadata_barriers_size(sector) + 37 +
           CALLER_BYTES * sector->caller_count;
}

void sh_metadata_services_put(const struct sh_metadata_sector *sector, struct sh_writer *w)
{
    sh_metadata_scratch_put(sector, w);
    sh_metadata_barriers_put(sector, w);
    sh_put8(w, sector->names_known);
    sh_put64(w, sector->name_changes);
    sh_put64(w, sector->name_base);
    sh_put64(w, sector->updates);
    sh_put64(w, sector->forgotten);
    sh_put32(w, (uint32_t)sector->caller_count);
    for (size_t i = 0; i < sector->caller_count; i++) {
        const struct sh_metadata_caller *caller = &sector->callers[i];
        sh_put64(w, caller->caller);
        sh_put64(w, caller->number);
        sh_put64(w, caller->update);
        sh_put64(w, caller->result.cid.v);
        sh_put16(w, (uint16_t)caller->result.err);
    }
}

static enum shoal_err callers_get(struct sh_metadata_sector *sector, struct sh_reader *r)
{
    uint8_t names_known = sh_get8(r);
    sector->names_known = names_known;
    sector->name_changes = sh_get64(r);
    sector->name_base = sh_get64(r);
    sector->updates = sh_get64(r);
    sector->forgotten = sh_get64(r);
    uint32_t count = sh_get32(r);
    if (count > SH_METADATA_CALLERS_MAX || sector->forgotten > sector->updates || names_known > 1)
        return SHOAL_EPROTO;
    if (count && !sector->callers)
        sector->callers = calloc(SH_METADATA_CALLERS_MAX, sizeof *sector->callers);
    if (count && !sector->callers)
        return SHOAL_ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        struct sh_metadata_caller *caller = &sector->callers[i];
        caller->caller = sh_get64(r);
        caller->number = sh_get64(r);
        caller->update = sh_get64(r);
        caller->result.cid.v = sh_get64(r);
        caller->result.err = (enum shoal_err)sh_get16(r);
        if (!sh_reader_ok(r) || !caller->caller || !caller->number)
            return SHOAL_EPROTO;
        sector->caller_count++;
    }
    return SHOAL_OK;
}

enum shoal_err sh_metadata_services_get(struct sh_metadata_sector *sector, struct sh_reader *r)
{
    enum shoal_err err = sh_metadata_scratch_read(sector, r);
    if (!err)
        err = sh_metadata_barriers_read(sector, r);
    if (!err)
        err = callers_get(sector, r);
    return err;
}

void sh_metadata_services_clear(struct sh_metadata_sector *sector)
{
    sh_metadata_scratch_clear(sector);
    sh_metadata_barriers_clear(sector);
    free(sector->callers);
    sector->callers = NULL;
    sector->caller_count = 0;
}
