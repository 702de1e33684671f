#include "backup/keeper.h"

#include <stdlib.h>

#include "backup/keeper_int.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "log/currents.h"

#define ACK_NS UINT64_C(2000000)
#define SPACE_NS UINT64_C(1000000000)
#define REST_MAX 65536
#define CHUNK_BYTES 24u /* of log, that a zone's smallest chunk takes */

/* --- What the keeper knows --------------------------------------------------------------------- */

static struct sh_kept **bucket_of(const struct sh_keeper *keeper, uint64_t id)
{
    return &keeper->buckets[sh_mix64(id) & keeper->mask];
}

struct sh_kept *sh_keeper_find(const struct sh_keeper *keeper, uint64_t id)
{
    struct sh_kept *kept = *bucket_of(keeper, id);
    while (kept && kept->id != id)
        kept = kept->next;
    return kept;
}

/* ENOSPC, ENOMEM. */
enum shoal_err sh_kept_make(struct sh_keeper *keeper, uint64_t id, struct sh_kept **kept_out)
{
    if (keeper->status.zones == keeper->config.zones_max)
        return SHOAL_ENOSPC;
    struct sh_kept *kept = calloc(1, sizeof *kept);
    if (!kept)
        return SHOAL_ENOMEM;
    struct sh_kept **bucket = bucket_of(keeper, id);
    kept->id = id;
    kept->next = *bucket;
    *bucket = kept;
    keeper->status.zones++;
    *kept_out = kept;
    return SHOAL_OK;
}

/* Nothing of it is to be sent any more. */
static void sh_kept_quiet(struct sh_keeper *keeper, struct sh_kept *kept)
{
    sh_kept_full_leave(keeper, kept);
    sh_kept_ack_leave(keeper, kept);
}

void sh_kept_state_set(struct sh_keeper *keeper, struct sh_kept *kept, enum sh_kept_state state)
{
    keeper->status.open -= kept->state == SH_KEPT_OPEN;
    keeper->status.open += state == SH_KEPT_OPEN;
    kept->state = (uint8_t)state;
}

void sh_kept_forget(struct sh_keeper *keeper, struct sh_kept *kept)
{
    struct sh_kept **at = bucket_of(keeper, kept->id);
    while (*at != kept)
        at = &(*at)->next;
    *at = kept->next;
    sh_kept_quiet(keeper, kept);
    sh_kept_state_set(keeper, kept, SH_KEPT_LOADING);
    keeper->status.zones--;
    free(kept);
}

/* ENOMEM. */
enum shoal_err sh_keeper_owner_get(struct sh_keeper *keeper, shoal_nid nid,
                                   struct sh_keeper_owner **owner_out)
{
    struct sh_keeper_owner *owner = keeper->owners[nid.v];
    if (!owner) {
        owner = calloc(1, sizeof *owner);
        if (!owner)
            return SHOAL_ENOMEM;
        owner->nid = nid;
        keeper->owners[nid.v] = owner;
    }
    *owner_out = owner;
    return SHOAL_OK;
}

/* --- Who may ----------------------------------------------------------------------------------- */

/* The sender and the zone that a request names. */
struct claim {
    uint64_t zone, life;
    uint32_t incarnation;
    shoal_nid nid;
    struct sh_keeper_owner *owner;
};

/* Whether the sender may speak of a zone at all: a later life of it is not known, nor is this one known to be over. */
static enum shoal_err sender_check(struct sh_keeper *keeper, struct claim *claim)
{
    if (!claim->nid.v || claim->nid.v > SH_MSG_NID_MAX)
        return SHOAL_EFENCED;
    switch (keeper->config.life_of(keeper->config.arg, claim->nid, claim->life)) {
    case SH_KEEPER_LIFE_UP:
        return sh_keeper_owner_get(keeper, claim->nid, &claim->owner);
    case SH_KEEPER_LIFE_UNKNOWN:
        return SHOAL_EBUSY;
    case SH_KEEPER_LIFE_OVER:
        break;
    }
    return SHOAL_EFENCED;
}

/* Whether what is known of the zone lets the sender own it: each incarnation has one owner. */
static enum shoal_err owner_check(const struct sh_kept *kept, const struct claim *claim)
{
    if (claim->incarnation < kept->incarnation)
        return SHOAL_EFENCED;
    bool is_same = kept->owner == claim->owner && kept->life == claim->life;
    return claim->incarnation == kept->incarnation && !is_same ? SHOAL_EFENCED : SHOAL_OK;
}

/* From now on older incarnations are refused. */
static void owner_set(struct sh_keeper *keeper, struct sh_kept *kept, const struct claim *claim)
{
    sh_kept_quiet(keeper, kept);
    kept->owner = claim->owner;
    kept->life = claim->life;
    kept->incarnation = claim->incarnation;
    kept->is_quiet = false;
    kept->owned = ++keeper->owned;
}

/* --- Loading and dropping ---------------------------------------------------------------------- */

static void on_loaded(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct sh_keeper *keeper = arg;
    struct sh_kept *kept = sh_keeper_find(keeper, sh_replog_zone_id(zone));
    SH_ASSERT(kept && kept->state == SH_KEPT_LOADING);
    if (err && err != SHOAL_ECORRUPT) {
        sh_kept_forget(keeper, kept); /* the next OPEN tries again */
        return;
    }
    kept->end = end;
    kept->lost = err;
    sh_kept_state_set(keeper, kept, SH_KEPT_LOADED);
}

/* Begins to load a zone that is on the disk from an earlier process. EBUSY: that was begun, or another one is loaded now. */
static enum shoal_err load_begin(struct sh_keeper *keeper, struct sh_replog_zone *zone,
                                 const struct claim *claim)
{
    struct sh_kept *kept;
    enum shoal_err err = sh_kept_make(keeper, claim->zone, &kept);
    if (err)
        return err;
    kept->found = sh_replog_zone_known(zone).incarnation;
    owner_set(keeper, kept, claim);
    err = sh_replog_zone_load(zone, on_loaded, keeper);
    if (err)
        sh_kept_forget(keeper, kept);
    return err ? err : SHOAL_EBUSY;
}

enum shoal_err sh_kept_load(struct sh_keeper *keeper, struct sh_replog_zone *zone)
{
    /* No owner has said a word: the one that wrote to it last may go on. */
    struct claim claim = {.zone = sh_replog_zone_id(zone),
                          .incarnation = sh_replog_zone_known(zone).incarnation - 1,
                          .nid = sh_zone_creator(sh_replog_zone_id(zone))};
    enum shoal_err err = sh_keeper_owner_get(keeper, claim.nid, &claim.owner);
    return err ? err : load_begin(keeper, zone, &claim);
}

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    struct sh_keeper *keeper = arg;
    struct sh_kept *kept = sh_keeper_find(keeper, id);
    SH_ASSERT(kept && kept->state == SH_KEPT_DROPPING);
    if (kept->has_closer && err)
        sh_msg_reply_error(keeper->config.msg, kept->closer, SH_REPLICATION_CLOSE, err, NULL);
    else if (kept->has_closer)
        sh_msg_reply_ok(keeper->config.msg, kept->closer, SH_REPLICATION_CLOSE);
    sh_kept_forget(keeper, kept);
}

enum shoal_err sh_kept_drop(struct sh_keeper *keeper, struct sh_kept *kept)
{
    struct sh_replog_zone *zone = sh_replog_zone_find(keeper->config.log, kept->id);
    SH_ASSERT(zone);
    enum shoal_err err = sh_replog_zone_drop(zone, on_dropped, keeper);
    if (err)
        return err;
    kept->log = NULL;
    sh_kept_state_set(keeper, kept, SH_KEPT_DROPPING);
    return SHOAL_OK;
}

/* Begins to drop all that the log has of a zone, as its owner says. EBUSY: that was begun, or the log can't now. */
static enum shoal_err drop_begin(struct sh_keeper *keeper, struct sh_kept *kept,
                                 const struct claim *claim)
{
    enum shoal_err err = sh_kept_drop(keeper, kept);
    if (err)
        return err;
    owner_set(keeper, kept, claim);
    return SHOAL_EBUSY;
}

/* The same of one that the keeper does not know yet. */
static enum shoal_err found_drop(struct sh_keeper *keeper, const struct claim *claim,
                                 struct sh_kept **kept_out)
{
    struct sh_kept *kept;
    enum shoal_err err = sh_kept_make(keeper, claim->zone, &kept);
    if (err)
        return err;
    err = drop_begin(keeper, kept, claim);
    if (kept->state != SH_KEPT_DROPPING)
        sh_kept_forget(keeper, kept);
    else
        *kept_out = kept;
    return err;
}

/* --- OPEN -------------------------------------------------------------------------------------- */

/* Whether the range that the owner names is one that the cleaner can have an array for. */
static bool range_is_sound(const struct sh_replication_open *open)
{
    return open->range_count <= open->bytes_max / CHUNK_BYTES &&
           open->range_count <= SH_CURRENTS_CHUNKS_MAX &&
           open->range_first <= UINT64_MAX - open->range_count;
}

/* Adds the zone to the log, where it begins with that number. */
static enum shoal_err log_add(struct sh_keeper *keeper, struct sh_kept *kept,
                              const struct sh_replication_open *open, uint64_t first)
{
    const struct sh_replog_zone_config added = {
        .id = open->zone,
        /* Also of a zone that another node has taken over: whose requests completion records are that name no node, and whose chunks the range has. */
        .owner = sh_zone_creator(open->zone).v,
        .incarnation = open->incarnation,
        .first = first,
        .bytes_max = open->bytes_max,
        .range_first = open->range_first,
        .range_count = open->range_count,
        .rest_max = REST_MAX,
    };
    enum shoal_err err = sh_replog_zone_add(keeper->config.log, &added, &kept->log);
    if (err)
        return err == SHOAL_EINVAL ? SHOAL_EEXIST : err;
    sh_kept_state_set(keeper, kept, SH_KEPT_OPEN);
    kept->part = 0;
    /* An owner that has made the zone has acknowledged nothing that it can't send any more. An owner that took the zone over may send what others acknowledged, up to there. */
    kept->whole_at = open->flags & SH_REPLICATION_ANEW ? 0 : open->begun;
    return SHOAL_OK;
}

/* Begins a stream of which the log has nothing. */
static enum shoal_err begin(struct sh_keeper *keeper, const struct sh_replication_open *open,
                            struct sh_kept **kept_out)
{
    enum shoal_err err = sh_kept_make(keeper, open->zone, kept_out);
    if (err)
        return err;
    err = log_add(keeper, *kept_out, open, open->first);
    if (err) {
        sh_kept_forget(keeper, *kept_out);
        return err;
    }
    (*kept_out)->began = open->first;
    return SHOAL_OK;
}

/* A zone that the keeper does not know: nothing is there, or it is on the disk from an earlier process. */
static enum shoal_err open_unknown(struct sh_keeper *keeper, const struct sh_replication_open *open,
                                   const struct claim *claim, struct sh_kept **kept_out)
{
    struct sh_replog_zone *zone = sh_replog_zone_find(keeper->config.log, open->zone);
    const struct sh_replog_known known =
        zone ? sh_replog_zone_known(zone) : (struct sh_replog_known){.incarnation = 0};
    bool is_anew = open->flags & SH_REPLICATION_ANEW;
    if (known.is_added)
        return SHOAL_EEXIST; /* the node's own */
    if (!known.has_slots) {
        bool has_all = open->first == 1 && !open->first_part;
        return is_anew || has_all ? begin(keeper, open, kept_out) : SHOAL_EDIFFERS;
    }
    if (open->incarnation < known.incarnation)
        return SHOAL_EFENCED;
    if (!is_anew)
        return load_begin(keeper, zone, claim);
    if (open->incarnation == known.incarnation)
        return SHOAL_EEXIST;
    return found_drop(keeper, claim, kept_out);
}

/* Whether the stream can go on from a replica that ends there, and whose last owner wrote in that incarnation. The owner must have
 * what comes next. Where its life has taken the zone over since, the replica must not have more than was taken over: an earlier life wrote
 * the rest, and the numbers were given again. */
static bool goes_on(const struct sh_replication_open *open, uint32_t written, uint64_t number,
                    uint32_t part)
{
    bool has_hole = open->first > number || (open->first == number && open->first_part > part);
    bool is_from_before = written < open->since;
    return !has_hole && !(is_from_before && number > open->begun);
}

static enum shoal_err open_loaded(struct sh_keeper *keeper, struct sh_kept *kept,
                                  const struct sh_replication_open *open, const struct claim *claim)
{
    if (open->flags & SH_REPLICATION_ANEW)
        return open->incarnation > kept->found ? drop_begin(keeper, kept, claim) : SHOAL_EEXIST;
    if (kept->lost)
        return kept->lost;
    if (!goes_on(open, kept->found, kept->end, 0))
        return SHOAL_EDIFFERS;
    return log_add(keeper, kept, open, kept->end);
}

static enum shoal_err open_again(struct sh_keeper *keeper, struct sh_kept *kept,
                                 const struct sh_replication_open *open, const struct claim *claim)
{
    bool is_same = kept->owner == claim->owner && kept->life == claim->life;
    uint64_t number = sh_replog_next(kept->log);
    /* Pieces of a chunk that an earlier life sent are not part of this life's stream. */
    uint32_t part = is_same ? kept->part : 0;
    if (open->flags & SH_REPLICATION_ANEW) {
        bool is_repeated = kept->began == open->first && number == open->first && !kept->part;
        if (is_repeated && !kept->lost)
            return SHOAL_OK;
        return open->incarnation > kept->incarnation ? drop_begin(keeper, kept, claim)
                                                     : SHOAL_EEXIST;
    }
    if (kept->lost)
        return kept->lost;
    if (!goes_on(open, kept->incarnation, number, part))
        return SHOAL_EDIFFERS;
    enum shoal_err err = is_same ? SHOAL_OK : sh_replog_abandon(kept->log);
    if (err)
        return err;
    if (number < kept->whole_at)
        kept->whole_at = open->begun;
    kept->part = part;
    return SHOAL_OK;
}

static enum shoal_err open_known(struct sh_keeper *keeper, struct sh_kept *kept,
                                 const struct sh_replication_open *open, const struct claim *claim)
{
    enum shoal_err err = owner_check(kept, claim);
    if (err)
        return err;
    switch ((enum sh_kept_state)kept->state) {
    case SH_KEPT_LOADED:
        return open_loaded(keeper, kept, open, claim);
    case SH_KEPT_OPEN:
        return open_again(keeper, kept, open, claim);
    case SH_KEPT_LOADING:
    case SH_KEPT_DROPPING:
        owner_set(keeper, kept, claim);
        break;
    case SH_KEPT_TAKEN:
    case SH_KEPT_SEALED:
        break;
    }
    return SHOAL_EBUSY;
}

/* The log has a sealed zone as one from an earlier process, and so has the keeper once somebody may open it. */
static bool is_unsealed(struct sh_keeper *keeper, struct sh_kept *kept, const struct claim *claim)
{
    if (!kept || kept->state != SH_KEPT_SEALED || owner_check(kept, claim))
        return false;
    sh_kept_forget(keeper, kept);
    return true;
}

static enum shoal_err open_zone(struct sh_keeper *keeper, const struct sh_replication_open *open,
                                struct claim *claim, struct sh_kept **kept_out)
{
    if (!keeper->config.log)
        return SHOAL_ENONODE;
    if (sh_replog_trouble(keeper->config.log))
        return SHOAL_EIO;
    if (!range_is_sound(open))
        return SHOAL_EPROTO;
    enum shoal_err err = sender_check(keeper, claim);
    if (err)
        return err;
    *kept_out = sh_keeper_find(keeper, open->zone);
    if (is_unsealed(keeper, *kept_out, claim))
        *kept_out = NULL;
    return *kept_out ? open_known(keeper, *kept_out, open, claim)
                     : open_unknown(keeper, open, claim, kept_out);
}

static void on_open(void *arg, struct sh_msg_in *in)
{
    struct sh_keeper *keeper = arg;
    struct sh_msg *msg = keeper->config.msg;
    struct sh_replication_open open;
    struct sh_kept *kept;
    struct sh_out out;
    if (!in->is_request)
        return;
    bool is_sound = sh_replication_open_get(&in->payload, &open);
    struct claim claim = {.zone = open.zone,
                          .life = open.life,
                          .incarnation = open.incarnation,
                          .nid = in->reply_to.nid};
    enum shoal_err err = is_sound ? open_zone(keeper, &open, &claim, &kept) : SHOAL_EPROTO;
    if (err) {
        sh_msg_reply_error(msg, in->reply_to, in->type, err, NULL);
        return;
    }
    SH_ASSERT(kept->state == SH_KEPT_OPEN && !kept->lost);
    owner_set(keeper, kept, &claim);
    kept->stream = SH_KEPT_GOES_ON;
    kept->is_again = false;
    kept->unacked = 0;
    kept->wanted = 0;
    const struct sh_replication_opened opened = {.next = sh_replog_next(kept->log),
                                                 .part = kept->part,
                                                 .durable = sh_replog_durable(kept->log),
                                                 .credit = keeper->config.credit_bytes,
                                                 .disk = keeper->config.disk_id};
    if (sh_msg_reply(msg, in->reply_to, in->type, SH_REPLICATION_OPENED_BYTES, &out))
        return;
    sh_replication_opened_put(&out.w, &opened);
    sh_msg_end(msg, &out);
}

/* --- CLOSE ------------------------------------------------------------------------------------- */

/* OK: there is nothing of the zone. EBUSY, and *kept_out: it is being dropped. */
static enum shoal_err close_zone(struct sh_keeper *keeper, struct claim *claim,
                                 struct sh_kept **kept_out)
{
    *kept_out = NULL;
    if (!keeper->config.log)
        return SHOAL_OK;
    enum shoal_err err = sender_check(keeper, claim);
    struct sh_kept *kept = sh_keeper_find(keeper, claim->zone);
    if (!err && kept)
        err = owner_check(kept, claim);
    if (err)
        return err;
    if (kept && (kept->state == SH_KEPT_LOADING || kept->state == SH_KEPT_TAKEN))
        return SHOAL_EBUSY;
    if (kept) {
        err = kept->state == SH_KEPT_DROPPING ? SHOAL_EBUSY : drop_begin(keeper, kept, claim);
        *kept_out = kept->state == SH_KEPT_DROPPING ? kept : NULL;
        return err;
    }
    struct sh_replog_zone *zone = sh_replog_zone_find(keeper->config.log, claim->zone);
    const struct sh_replog_known known =
        zone ? sh_replog_zone_known(zone) : (struct sh_replog_known){.incarnation = 0};
    if (known.is_added)
        return SHOAL_EEXIST;
    if (!known.has_slots)
        return SHOAL_OK;
    if (claim->incarnation < known.incarnation)
        return SHOAL_EFENCED;
    return found_drop(keeper, claim, kept_out);
}

static void on_close(void *arg, struct sh_msg_in *in)
{
    struct sh_keeper *keeper = arg;
    struct sh_replication_close close;
    struct sh_kept *kept = NULL;
    if (!in->is_request)
        return;
    bool is_sound = sh_replication_close_get(&in->payload, &close);
    struct claim claim = {.zone = close.zone,
                          .life = close.life,
                          .incarnation = close.incarnation,
                          .nid = in->reply_to.nid};
    enum shoal_err err = is_sound ? close_zone(keeper, &claim, &kept) : SHOAL_EPROTO;
    if (err == SHOAL_EBUSY && kept && !kept->has_closer) {
        kept->has_closer = true;
        kept->closer = in->reply_to;
    } else if (err) {
        sh_msg_reply_error(keeper->config.msg, in->reply_to, in->type, err, NULL);
    } else {
        sh_msg_reply_ok(keeper->config.msg, in->reply_to, in->type);
    }
}

enum shoal_err sh_keeper_close(struct sh_keeper *keeper, const struct sh_replication_close *close,
                               shoal_nid owner)
{
    struct sh_kept *kept;
    struct claim claim = {
        .zone = close->zone, .life = close->life, .incarnation = close->incarnation, .nid = owner};
    return close_zone(keeper, &claim, &kept);
}

/* --- SPACE ------------------------------------------------------------------------------------- */

/* The bytes of the disk, and those that the file can still grow by; asked of the kernel now and then only, as anybody may ask for it. */
static void disk_look(struct sh_keeper *keeper)
{
    uint64_t now_ns = sh_now(&keeper->config.clock);
    if (!keeper->config.disk)
        keeper->disk_bytes = keeper->disk_free = UINT64_MAX;
    if (!keeper->config.disk || (keeper->space_ns && now_ns - keeper->space_ns < SPACE_NS))
        return;
    keeper->space_ns = now_ns;
    if (sh_disk_space(keeper->config.disk, &keeper->disk_bytes, &keeper->disk_free))
        keeper->disk_bytes = keeper->disk_free = 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void on_space(void *arg, struct sh_msg_in *in)
{
    struct sh_keeper *keeper = arg;
    struct sh_msg *msg = keeper->config.msg;
    struct sh_replog *log = keeper->config.log;
    struct sh_replication_space space = {.keeps = log && !sh_replog_trouble(log)};
    struct sh_out out;
    if (!in->is_request)
        return;
    if (!log) { /* it is being opened: whoever asks does so again soon */
        sh_msg_reply_error(msg, in->reply_to, in->type, SHOAL_EAGAIN, NULL);
        return;
    }
    if (space.keeps) {
        struct sh_replog_space slots;
        sh_replog_space_get(log, &slots);
        disk_look(keeper);
        uint64_t left = keeper->disk_free;
        left = left == UINT64_MAX ? left : left > slots.to_come ? left - slots.to_come : 0;
        space.disk = keeper->config.disk_id;
        space.disk_bytes = least(slots.all, keeper->disk_bytes);
        space.disk_free_bytes = least(slots.free, left);
        space.zones = keeper->status.zones;
        space.zones_max = keeper->config.zones_max;
    }
    if (sh_msg_reply(msg, in->reply_to, in->type, SH_REPLICATION_SPACE_BYTES, &out))
        return;
    sh_replication_space_put(&out.w, &space);
    sh_msg_end(msg, &out);
}

/* --- The whole --------------------------------------------------------------------------------- */

static void each_open(struct sh_keeper *keeper,
                      void (*each)(struct sh_keeper *keeper, struct sh_kept *kept))
{
    for (uint64_t i = 0; i <= keeper->mask; i++) {
        for (struct sh_kept *kept = keeper->buckets[i]; kept; kept = kept->next) {
            if (kept->state == SH_KEPT_OPEN)
                each(keeper, kept);
        }
    }
}

enum shoal_err sh_keeper_create(const struct sh_keeper_config *config,
                                struct sh_keeper **keeper_out)
{
    SH_ASSERT(config->life_of && config->wake && (!config->log || config->disk_id));
    SH_ASSERT(config->credit_bytes >= SH_REPLICATION_BYTES_MAX && config->zones_max);
    struct sh_keeper *keeper = calloc(1, sizeof *keeper);
    if (!keeper)
        return SHOAL_ENOMEM;
    keeper->config = *config;
    if (!config->ack_ns)
        keeper->config.ack_ns = ACK_NS;
    keeper->mask = 15;
    while (keeper->mask + 1 < config->zones_max)
        keeper->mask = 2 * keeper->mask + 1;
    keeper->buckets = calloc(keeper->mask + 1, sizeof(struct sh_kept *));
    keeper->owners = calloc(SH_MSG_NID_MAX + 1, sizeof(struct sh_keeper_owner *));
    if (!keeper->buckets || !keeper->owners) {
        free(keeper->buckets);
        free(keeper->owners);
        free(keeper);
        return SHOAL_ENOMEM;
    }
    struct sh_msg *msg = config->msg;
    sh_msg_handler_set(msg, SH_REPLICATION_OPEN, SH_MSG_INLINE, on_open, keeper);
    sh_msg_handler_set(msg, SH_REPLICATION_APPEND, SH_MSG_INLINE, sh_keeper_on_append, keeper);
    sh_msg_handler_set(msg, SH_REPLICATION_CLOSE, SH_MSG_INLINE, on_close, keeper);
    sh_msg_handler_set(msg, SH_REPLICATION_SPACE, SH_MSG_INLINE, on_space, keeper);
    sh_msg_handler_set(msg, SH_CLUSTER_PREPARE, SH_MSG_INLINE, sh_keeper_on_prepare, keeper);
    *keeper_out = keeper;
    return SHOAL_OK;
}

void sh_keeper_log_set(struct sh_keeper *keeper, struct sh_replog *log, uint64_t disk_id)
{
    SH_ASSERT(!keeper->config.log && log && disk_id);
    keeper->config.log = log;
    keeper->config.disk_id = disk_id;
}

void sh_keeper_destroy(struct sh_keeper *keeper)
{
    if (!keeper)
        return;
    sh_msg_handlers_drop(keeper->config.msg, keeper);
    sh_keeper_orphans_end(keeper);
    for (uint64_t i = 0; i <= keeper->mask; i++) {
        while (keeper->buckets[i])
            sh_kept_forget(keeper, keeper->buckets[i]);
    }
    for (unsigned i = 0; i <= SH_MSG_NID_MAX; i++)
        free(keeper->owners[i]);
    free(keeper->buckets);
    free(keeper->owners);
    free(keeper);
}

bool sh_keeper_durable(struct sh_keeper *keeper, struct sh_replog_zone *zone, uint64_t sequence)
{
    struct sh_kept *kept = sh_keeper_find(keeper, sh_replog_zone_id(zone));
    if (!kept || kept->log != zone)
        return false;
    bool is_wanted = kept->wanted && sequence >= kept->wanted;
    if (is_wanted)
        kept->wanted = 0;
    sh_kept_ack(keeper, kept, is_wanted ? SH_KEPT_ACK_NOW : SH_KEPT_ACK_SOON);
    return true;
}

/* Of a zone that is not open, the load for the next OPEN finds the damage. */
void sh_keeper_damaged(struct sh_keeper *keeper, const struct sh_replog_zone *zone)
{
    struct sh_kept *kept = zone ? sh_keeper_find(keeper, sh_replog_zone_id(zone)) : NULL;
    if (kept && kept->state == SH_KEPT_OPEN && kept->log == zone)
        sh_kept_lose(keeper, kept, SHOAL_ECORRUPT);
}

void sh_keeper_link_event(struct sh_keeper *keeper, const struct sh_msg_event *event)
{
    if (event->kind == SH_MSG_LOST && event->nid.v <= SH_MSG_NID_MAX &&
        keeper->owners[event->nid.v])
        sh_keeper_acks_drop(keeper, keeper->owners[event->nid.v]);
}

static void life_check(struct sh_keeper *keeper, struct sh_kept *kept)
{
    const struct sh_keeper_config *config = &keeper->config;
    if (kept->stream == SH_KEPT_GONE ||
        config->life_of(config->arg, kept->owner->nid, kept->life) != SH_KEEPER_LIFE_OVER)
        return;
    sh_kept_full_leave(keeper, kept);
    kept->stream = SH_KEPT_GONE;
    kept->is_again = false;
    sh_kept_ack(keeper, kept, SH_KEPT_ACK_NOW);
}

void sh_keeper_view_changed(struct sh_keeper *keeper)
{
    each_open(keeper, life_check);
}

static void trouble_tell(struct sh_keeper *keeper, struct sh_kept *kept)
{
    sh_kept_lose(keeper, kept, SHOAL_EIO);
}

unsigned sh_keeper_step(struct sh_keeper *keeper, uint64_t now_ns)
{
    if (!keeper->config.log)
        return 0;
    unsigned work = 0;
    if (!keeper->has_failed && sh_replog_trouble(keeper->config.log)) {
        keeper->has_failed = true;
        each_open(keeper, trouble_tell);
        work++;
    }
    work += sh_keeper_full_step(keeper, now_ns);
    work += sh_keeper_orphans_step(keeper, now_ns);
    return work + sh_keeper_acks_step(keeper, now_ns);
}

uint64_t sh_keeper_due_ns(const struct sh_keeper *keeper)
{
    uint64_t due_ns = least(sh_keeper_acks_due_ns(keeper), sh_keeper_orphans_due_ns(keeper));
    if (keeper->full)
        due_ns = least(due_ns, sh_keeper_full_due_ns(keeper, sh_now(&keeper->config.clock)));
    return due_ns;
}

void sh_keeper_status_get(const struct sh_keeper *keeper, struct sh_keeper_status *status_out)
{
    *status_out = keeper->status;
}
