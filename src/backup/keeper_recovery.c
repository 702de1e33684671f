/* Replicas of owners whose life is over: how far a replica goes (PREPARE), and handing it to whoever brings the zone back.
 *
 *   [open], its owner's life over ── take ──► [taken], sealed ──┬── give back ──► [sealed], or not known
 *   [loaded], or not known        ── take ──► [taken] ──────────┴── drop ───────► [dropping]
 *
 * A replica that has been open since a stream came has all that was acknowledged: its owner waited for it. Of one that was found after a start,
 * what was only in memory is missing, until an owner that took the zone over has sent all that it had found; so the answer to PREPARE tells them apart. */
#include "backup/keeper_int.h"
#include "base/assert.h"
#include "base/log.h"

/* Whether nothing more can come of the stream. The life may be over by the view that came just now. */
static bool is_over(const struct sh_keeper *keeper, const struct sh_kept *kept)
{
    const struct sh_keeper_config *config = &keeper->config;
    return config->life_of(config->arg, kept->owner->nid, kept->life) == SH_KEEPER_LIFE_OVER;
}

/* A stream that was lost for want of room, or as the owner sent nonsense, leaves a replica that can be read; and the owner has acknowledged nothing beyond it
 * as long as the record names it. */
static enum shoal_err damage_of(const struct sh_kept *kept)
{
    return kept->lost == SHOAL_ECORRUPT || kept->lost == SHOAL_EIO ? kept->lost : SHOAL_OK;
}

/* Whether an open one has all that was acknowledged. */
static bool is_whole(const struct sh_kept *kept)
{
    SH_ASSERT(kept->state == SH_KEPT_OPEN);
    return sh_replog_next(kept->log) >= kept->whole_at;
}

/* --- PREPARE ----------------------------------------------------------------------------------- */

struct prepared {
    uint64_t end;
    bool is_whole;
};

/* Looks at a zone that the keeper does not know: it is on the disk, or nothing was ever written to it, as far as this disk has it. Where the zone is as an owner's life has made it that is
 * younger than this process, and never came to open the zone here, that has acknowledged nothing. */
static enum shoal_err unknown_prepare(struct sh_keeper *keeper, uint64_t id, uint64_t made_life,
                                      struct prepared *out)
{
    const struct sh_keeper_config *config = &keeper->config;
    struct sh_replog_zone *zone = sh_replog_zone_find(keeper->config.log, id);
    const struct sh_replog_known known =
        zone ? sh_replog_zone_known(zone) : (struct sh_replog_known){.incarnation = 0};
    if (known.is_added)
        return SHOAL_ENONAME; /* the node's own */
    if (known.has_slots)
        return sh_kept_load(keeper, zone);
    bool is_whole = made_life && config->is_younger &&
                    config->is_younger(config->arg, sh_zone_creator(id), made_life);
    *out = (struct prepared){.end = 1, .is_whole = is_whole};
    return SHOAL_OK;
}

static enum shoal_err prepare(struct sh_keeper *keeper, uint64_t id, uint64_t made_life,
                              struct prepared *out)
{
    struct sh_kept *kept = sh_keeper_find(keeper, id);
    if (!keeper->config.log)
        return SHOAL_EBUSY; /* it is not open yet: nobody knows what it has */
    if (keeper->config.is_confirmed && !keeper->config.is_confirmed(keeper->config.arg))
        return SHOAL_EBUSY;
    if (sh_replog_trouble(keeper->config.log))
        return SHOAL_EIO;
    if (!kept)
        return unknown_prepare(keeper, id, made_life, out);
    switch ((enum sh_kept_state)kept->state) {
    case SH_KEPT_OPEN:
        if (!is_over(keeper, kept)) {
            if (keeper->config.view_wanted)
                keeper->config.view_wanted(keeper->config.arg);
            return SHOAL_EBUSY;
        }
        *out = (struct prepared){.end = sh_replog_next(kept->log), .is_whole = is_whole(kept)};
        return damage_of(kept);
    case SH_KEPT_LOADED:
    case SH_KEPT_SEALED:
        *out = (struct prepared){.end = kept->end, .is_whole = kept->was_whole};
        return damage_of(kept);
    case SH_KEPT_LOADING:
    case SH_KEPT_DROPPING:
    case SH_KEPT_TAKEN:
        break;
    }
    return SHOAL_EBUSY;
}

void sh_keeper_on_prepare(void *arg, struct sh_msg_in *in)
{
    struct sh_keeper *keeper = arg;
    struct sh_msg *msg = keeper->config.msg;
    struct prepared prepared = {.end = 0};
    struct sh_out out;
    if (!in->is_request)
        return;
    uint64_t id = sh_get64(&in->payload), made_life = sh_get64(&in->payload);
    enum shoal_err err = SHOAL_EPROTO;
    if (sh_reader_done(&in->payload))
        err = prepare(keeper, id, made_life, &prepared);
    if (err) {
        sh_msg_reply_error(msg, in->reply_to, in->type, err, NULL);
        return;
    }
    if (sh_msg_reply(msg, in->reply_to, in->type, SH_PREPARED_BYTES, &out))
        return;
    sh_put64(&out.w, prepared.end);
    sh_put64(&out.w, keeper->config.disk_id);
    sh_put8(&out.w, prepared.is_whole ? SH_PREPARED_WHOLE : 0);
    sh_msg_end(msg, &out);
}

/* --- Handing it over --------------------------------------------------------------------------- */

static void on_sealed(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct sh_keeper *keeper = arg;
    struct sh_kept *kept = sh_keeper_find(keeper, sh_replog_zone_id(zone));
    SH_ASSERT(kept && kept->state == SH_KEPT_TAKEN && kept->taken);
    sh_keeper_taken taken = kept->taken;
    void *taken_arg = kept->taken_arg;
    bool has_any = !err && sh_replog_zone_known(zone).has_slots;
    kept->taken = NULL;
    kept->end = end;
    if (err)
        sh_kept_forget(keeper, kept);
    taken(taken_arg, has_any ? zone : NULL, end, err);
}

static void taken_set(struct sh_keeper *keeper, struct sh_kept *kept)
{
    sh_kept_full_leave(keeper, kept);
    sh_kept_ack_leave(keeper, kept);
    kept->log = NULL;
    sh_kept_state_set(keeper, kept, SH_KEPT_TAKEN);
    kept->owned = ++keeper->owned;
}

/* Of one that is open: it is sealed first. */
static enum shoal_err open_take(struct sh_keeper *keeper, struct sh_kept *kept,
                                sh_keeper_taken taken, void *arg)
{
    if (!is_over(keeper, kept))
        return SHOAL_EBUSY;
    enum shoal_err err = damage_of(kept);
    if (!err)
        err = sh_replog_zone_seal(kept->log, on_sealed, keeper);
    if (err)
        return err;
    kept->was_whole = is_whole(kept);
    kept->taken = taken;
    kept->taken_arg = arg;
    taken_set(keeper, kept);
    return SHOAL_OK;
}

static enum shoal_err unknown_take(struct sh_keeper *keeper, struct sh_replog_zone *zone,
                                   uint64_t id)
{
    const struct sh_replog_known known =
        zone ? sh_replog_zone_known(zone) : (struct sh_replog_known){.incarnation = 0};
    struct sh_kept *kept;
    if (known.is_added)
        return SHOAL_ENONAME;
    enum shoal_err err = sh_kept_make(keeper, id, &kept);
    if (err)
        return err;
    err = sh_keeper_owner_get(keeper, sh_zone_creator(id), &kept->owner);
    if (err) {
        sh_kept_forget(keeper, kept);
        return err;
    }
    taken_set(keeper, kept);
    kept->end = known.has_slots ? 0 : 1;
    return SHOAL_OK;
}

enum shoal_err sh_keeper_take(struct sh_keeper *keeper, uint64_t id, sh_keeper_taken taken,
                              void *arg)
{
    SH_ASSERT(taken);
    if (!keeper->config.log)
        return SHOAL_ENONAME;
    if (sh_replog_trouble(keeper->config.log))
        return SHOAL_EIO;
    struct sh_kept *kept = sh_keeper_find(keeper, id);
    struct sh_replog_zone *zone = sh_replog_zone_find(keeper->config.log, id);
    enum shoal_err err = SHOAL_EBUSY;
    if (!kept)
        err = unknown_take(keeper, zone, id);
    else if (kept->state == SH_KEPT_OPEN)
        return open_take(keeper, kept, taken, arg);
    else if (kept->state == SH_KEPT_LOADED || kept->state == SH_KEPT_SEALED)
        err = damage_of(kept);
    if (!err && kept)
        taken_set(keeper, kept);
    if (err)
        return err;
    bool has_any = zone && sh_replog_zone_known(zone).has_slots;
    taken(arg, has_any ? zone : NULL, sh_keeper_find(keeper, id)->end, SHOAL_OK);
    return SHOAL_OK;
}

/* That it is whole is to be known to the next PREPARE, of another try. */
void sh_keeper_give_back(struct sh_keeper *keeper, uint64_t id)
{
    struct sh_kept *kept = sh_keeper_find(keeper, id);
    SH_ASSERT(kept && kept->state == SH_KEPT_TAKEN && !kept->taken);
    if (kept->was_whole)
        sh_kept_state_set(keeper, kept, SH_KEPT_SEALED);
    else
        sh_kept_forget(keeper, kept);
}

enum shoal_err sh_keeper_taken_drop(struct sh_keeper *keeper, uint64_t id)
{
    struct sh_kept *kept = sh_keeper_find(keeper, id);
    SH_ASSERT(kept && kept->state == SH_KEPT_TAKEN && !kept->taken);
    if (sh_replog_zone_find(keeper->config.log, id))
        return sh_kept_drop(keeper, kept);
    sh_kept_forget(keeper, kept); /* nothing was ever written to it */
    return SHOAL_OK;
}
