/* Taking a zone's stream. */
#include "backup/keeper_int.h"
#include "base/assert.h"
#include "base/log.h"

/* Until a full stream is asked for again; doubled while nothing of it is taken. Short ones are for the end of an epoch, which takes
 * some steps; longer ones end only when the log has got on. */
#define PAUSE_MIN_NS UINT64_C(100000)
#define PAUSE_SHORT_NS UINT64_C(1000000)
#define PAUSE_MAX_NS UINT64_C(64000000)
#define PATIENCE_NS UINT64_C(250000000) /* then also where the log has not got on */
#define WARN_NS UINT64_C(1000000000)

/* --- Streams that end or pause ----------------------------------------------------------------- */

void sh_kept_lose(struct sh_keeper *keeper, struct sh_kept *kept, enum shoal_err err)
{
    if (kept->lost)
        return;
    SH_ERROR("backup", "a replica is given up here: its zone needs another backup",
             SH_U64("owner", sh_zone_creator(kept->id).v), SH_U64("zone", sh_zone_number(kept->id)),
             SH_ERR(err));
    sh_kept_full_leave(keeper, kept);
    kept->lost = err;
    kept->stream = SH_KEPT_LOST;
    kept->is_again = false;
    keeper->status.lost++;
    sh_kept_ack(keeper, kept, SH_KEPT_ACK_NOW);
}

/* The owner's message can't be as the owner wrote it. The owner may send it again; but twice the same is no accident. */
static void malformed(struct sh_keeper *keeper, struct sh_kept *kept, shoal_nid from)
{
    uint64_t now_ns = sh_now(&keeper->config.clock);
    keeper->status.malformed++;
    if (!keeper->warned_ns || now_ns - keeper->warned_ns >= WARN_NS) {
        keeper->warned_ns = now_ns;
        SH_ERROR("backup", "an owner of a zone sends what is no stream of writes",
                 SH_U64("node", from.v), SH_U64("zone", kept ? sh_zone_number(kept->id) : 0),
                 SH_U64("messages", keeper->status.malformed));
    }
    if (!kept)
        return;
    if (kept->is_suspect) {
        sh_kept_lose(keeper, kept, SHOAL_EPROTO);
        return;
    }
    kept->is_suspect = true;
    kept->is_again = false;
    kept->stream = SH_KEPT_GONE;
    sh_kept_ack(keeper, kept, SH_KEPT_ACK_NOW);
}

/* Rises when the log has got something to the disk, or slots back. */
static uint64_t log_progress(const struct sh_keeper *keeper)
{
    struct sh_replog_status status;
    sh_replog_status_get(keeper->config.log, &status);
    return status.slot_writes + status.primary_writes + status.syncs + status.slots_cleaned;
}

static void full(struct sh_keeper *keeper, struct sh_kept *kept, bool has_taken)
{
    uint64_t now_ns = sh_now(&keeper->config.clock);
    uint64_t pause_ns = has_taken || !kept->pause_ns ? PAUSE_MIN_NS : 2 * kept->pause_ns;
    kept->pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    kept->full_ns = now_ns;
    kept->again_ns = now_ns + kept->pause_ns;
    kept->progress = log_progress(keeper);
    kept->stream = SH_KEPT_FULL;
    kept->next_full = keeper->full;
    keeper->full = kept;
    keeper->status.full++;
    keeper->status.refused++;
    sh_kept_ack(keeper, kept, SH_KEPT_ACK_NOW);
}

void sh_kept_full_leave(struct sh_keeper *keeper, struct sh_kept *kept)
{
    struct sh_kept **at = &keeper->full;
    if (kept->stream != SH_KEPT_FULL)
        return;
    while (*at != kept)
        at = &(*at)->next_full;
    *at = kept->next_full;
    kept->stream = SH_KEPT_WAITS;
}

/* Asks for the stream from where it is expected, once: what comes until then is passed over. */
static void ask_again(struct sh_keeper *keeper, struct sh_kept *kept)
{
    kept->stream = SH_KEPT_WAITS;
    kept->is_again = true;
    sh_kept_ack(keeper, kept, SH_KEPT_ACK_NOW);
}

unsigned sh_keeper_full_step(struct sh_keeper *keeper, uint64_t now_ns)
{
    unsigned work = 0;
    if (!keeper->full)
        return 0;
    uint64_t progress = log_progress(keeper);
    for (struct sh_kept *kept = keeper->full, *next; kept; kept = next) {
        next = kept->next_full;
        bool has_room = kept->pause_ns < PAUSE_SHORT_NS || progress != kept->progress ||
                        now_ns - kept->full_ns >= PATIENCE_NS;
        if (now_ns < kept->again_ns || !has_room)
            continue;
        sh_kept_full_leave(keeper, kept);
        ask_again(keeper, kept);
        work++;
    }
    return work;
}

uint64_t sh_keeper_full_due_ns(const struct sh_keeper *keeper, uint64_t now_ns)
{
    uint64_t due_ns = UINT64_MAX;
    for (const struct sh_kept *kept = keeper->full; kept; kept = kept->next_full)
        due_ns = kept->again_ns < due_ns ? kept->again_ns : due_ns;
    /* Where the time is over, the log is waited for, by looking now and then. */
    return due_ns > now_ns ? due_ns : now_ns + PAUSE_MIN_NS;
}

/* --- Entries ----------------------------------------------------------------------------------- */

/* An entry, and the one with which it counts: `with` comes before it in the stream. */
struct pair {
    struct sh_replication_entry entry, with;
    bool has_with;
};

/* False: it is none. */
static bool pair_get(struct sh_reader *r, struct pair *pair_out)
{
    if (!sh_replication_entry_get(r, &pair_out->entry))
        return false;
    pair_out->has_with = pair_out->entry.with_next;
    if (!pair_out->has_with)
        return true;
    pair_out->with = pair_out->entry;
    const struct sh_replication_entry *entry = &pair_out->entry;
    return sh_replication_entry_get(r, &pair_out->entry) && !entry->with_next && !entry->piece &&
           entry->kind != SH_REPLICATION_ABANDON && entry->chunk != pair_out->with.chunk;
}

static void pair_pass(const struct pair *pair, uint64_t *number, uint32_t *part)
{
    if (pair->has_with)
        sh_replication_pass(&pair->with, number, part);
    sh_replication_pass(&pair->entry, number, part);
}

static struct sh_replog_write write_of(const struct sh_replication_entry *entry)
{
    static const uint8_t none[1];
    bool is_removal = entry->kind == SH_REPLICATION_REMOVAL;
    struct sh_bytes payload = entry->bytes;
    if (entry->kind == SH_REPLICATION_ZEROS)
        payload = sh_bytes_make(entry->size ? NULL : none, entry->size);
    return (struct sh_replog_write){.local_id = shoal_cid_local((shoal_cid){entry->chunk}),
                                    .creator = shoal_cid_creator((shoal_cid){entry->chunk}).v,
                                    .is_removal = is_removal,
                                    .piece = entry->piece,
                                    .pieces = entry->pieces,
                                    .total = entry->total,
                                    .payload = payload};
}

/* ENOSPC: the log has all that the zone may have, and no more. */
static enum shoal_err pair_append(struct sh_kept *kept, const struct pair *pair)
{
    if (pair->entry.kind == SH_REPLICATION_ABANDON)
        return sh_replog_abandon(kept->log);
    struct sh_replog_write write = write_of(&pair->entry), with;
    if (pair->has_with) {
        with = write_of(&pair->with);
        write.with = &with;
    }
    write.completion = pair->entry.completion;
    return sh_replog_append(kept->log, &write);
}

/* The owner may have asked for too little room, as a chunk has grown since: the keeper asks its log for more. */
static enum shoal_err pair_take(struct sh_kept *kept, const struct pair *pair)
{
    enum shoal_err err = pair_append(kept, pair);
    if (err != SHOAL_ENOSPC)
        return err;
    return sh_replog_zone_grow(kept->log) ? err : pair_append(kept, pair);
}

/* Takes the entries of a message that begins at that place, which is not beyond the one that is expected. The keeper passes over entries
 * before that. The error is the log's, with which the entry that is expected now was not taken; EPROTO: it is none. */
static enum shoal_err entries_take(struct sh_keeper *keeper, struct sh_kept *kept,
                                   struct sh_reader *r, uint64_t number, uint32_t part)
{
    struct sh_keeper_status *status = &keeper->status;
    struct pair pair;
    while (sh_reader_left(r)) {
        if (!pair_get(r, &pair))
            return SHOAL_EPROTO;
        uint64_t next = sh_replog_next(kept->log);
        bool is_passed_over = number < next || (number == next && part < kept->part);
        if (!is_passed_over && (number != next || part != kept->part))
            return SHOAL_EPROTO; /* the place that is expected was within a pair, or is none of this stream */
        enum shoal_err err = is_passed_over ? SHOAL_OK : pair_take(kept, &pair);
        if (err)
            return err == SHOAL_EINVAL ? SHOAL_EPROTO : err;
        pair_pass(&pair, &number, &part);
        if (is_passed_over) {
            status->passed_over += 1u + pair.has_with;
            continue;
        }
        SH_ASSERT(sh_replog_next(kept->log) == number);
        kept->part = part;
        kept->is_suspect = false;
        status->entries += 1u + pair.has_with;
        status->bytes += pair.entry.bytes.size + (pair.has_with ? pair.with.bytes.size : 0);
    }
    return SHOAL_OK;
}

/* --- APPEND ------------------------------------------------------------------------------------ */

/* Handles an APPEND that the keeper took in part, or not at all. */
static void settle(struct sh_keeper *keeper, struct sh_kept *kept, shoal_nid from,
                   enum shoal_err err, bool has_taken)
{
    switch (err) {
    case SHOAL_OK:
        return;
    case SHOAL_EAGAIN:
    case SHOAL_ENOMEM:
        full(keeper, kept, has_taken);
        return;
    case SHOAL_EPROTO:
        malformed(keeper, kept, from);
        return;
    default:
        sh_kept_lose(keeper, kept, err);
        return;
    }
}

/* Tells the owner how far the stream got, as soon as the message wishes it. */
static void acknowledge(struct sh_keeper *keeper, struct sh_kept *kept, uint8_t wish,
                        size_t message_bytes)
{
    kept->unacked += (uint32_t)message_bytes;
    bool is_urgent =
        wish != SH_REPLICATION_NONE || kept->unacked >= keeper->config.credit_bytes / 2;
    if (wish == SH_REPLICATION_DURABLE) {
        sh_replog_sync(kept->log);
        uint64_t next = sh_replog_next(kept->log);
        kept->wanted = sh_replog_durable(kept->log) < next ? next : 0;
    }
    sh_kept_ack(keeper, kept, is_urgent ? SH_KEPT_ACK_NOW : SH_KEPT_ACK_SOON);
}

/* Whether the message's stream is taken now; where it begins beyond what is expected, that is asked for. */
static bool is_taken(struct sh_keeper *keeper, struct sh_kept *kept,
                     const struct sh_replication_append *append)
{
    uint64_t next = sh_replog_next(kept->log);
    bool is_beyond = append->number > next || (append->number == next && append->part > kept->part);
    bool waits = kept->stream == SH_KEPT_WAITS;
    if (!is_beyond && (waits || kept->stream == SH_KEPT_GOES_ON)) {
        kept->stream = SH_KEPT_GOES_ON;
        return true;
    }
    keeper->status.refused++;
    if (is_beyond && kept->stream == SH_KEPT_GOES_ON) {
        keeper->status.gaps++;
        ask_again(keeper, kept);
    }
    return false;
}

void sh_keeper_on_append(void *arg, struct sh_msg_in *in)
{
    struct sh_keeper *keeper = arg;
    struct sh_replication_append append;
    shoal_nid from = in->reply_to.nid;
    size_t bytes = sh_reader_left(&in->payload);
    keeper->status.messages++;
    if (!sh_replication_append_get(&in->payload, &append)) {
        malformed(keeper, NULL, from);
        return;
    }
    struct sh_kept *kept = sh_keeper_find(keeper, append.zone);
    if (!kept || kept->state != SH_KEPT_OPEN || kept->incarnation != append.incarnation ||
        kept->owner->nid.v != from.v) {
        keeper->status.refused++;
        sh_keeper_gone_tell(keeper,
                            &(struct sh_keeper_gone){from, append.zone, append.incarnation});
        return;
    }
    kept->is_quiet = false;
    if (!is_taken(keeper, kept, &append))
        return;
    uint64_t before = keeper->status.entries;
    enum shoal_err err = bytes > SH_REPLICATION_BYTES_MAX
                             ? SHOAL_EPROTO
                             : entries_take(keeper, kept, &in->payload, append.number, append.part);
    acknowledge(keeper, kept, append.wish, bytes);
    settle(keeper, kept, from, err, keeper->status.entries > before);
}
