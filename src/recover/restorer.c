#include "recover/restorer.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "base/node_ids.h"
#include "cluster/proto.h"
#include "recover/restorer_int.h"

/* Before the same is tried again, doubled each time. */
#define PAUSE_MIN_NS UINT64_C(5000000)
#define PAUSE_MAX_NS UINT64_C(200000000)
#define ANSWER_NS UINT64_C(1000000000)
#define ENDS_NS UINT64_C(500000000)   /* for which other backups are waited for */
#define FAILED_NS UINT64_C(200000000) /* until a zone is tried again that failed */
#define TAIL_BYTES_MAX (UINT64_C(4) << 20)
#define JOBS_MAX 65536u

static uint64_t now_of(const struct sh_restorer *restorer)
{
    return sh_now(&restorer->config.clock);
}

/* --- Phases ------------------------------------------------------------------------------------ */

void sh_restoring_answered(struct sh_restoring *job)
{
    SH_ASSERT(job->is_asking);
    job->is_asking = false;
    job->restorer->next_ns = 0;
}

void sh_restoring_to(struct sh_restoring *job, enum sh_restoring_phase phase)
{
    job->phase = phase;
    job->pause_ns = 0;
    job->due_ns = 0;
    job->restorer->next_ns = 0;
    job->restorer->config.wake(job->restorer->config.arg);
}

void sh_restoring_again(struct sh_restoring *job)
{
    uint64_t pause_ns = 2 * job->pause_ns;
    job->pause_ns = pause_ns < PAUSE_MIN_NS   ? PAUSE_MIN_NS
                    : pause_ns > PAUSE_MAX_NS ? PAUSE_MAX_NS
                                              : pause_ns;
    job->due_ns = now_of(job->restorer) + job->pause_ns;
    if (job->due_ns < job->restorer->next_ns)
        job->restorer->next_ns = job->due_ns;
}

/* What fails again and again is logged now and then. */
void sh_restoring_fail(struct sh_restoring *job, enum shoal_err err)
{
    uint64_t now_ns = now_of(job->restorer);
    SH_ASSERT(err && !job->is_asking && !job->is_reading);
    job->err = err;
    if (job->warned != err || now_ns - job->warned_ns >= WARN_NS) {
        job->warned = err;
        job->warned_ns = now_ns;
        SH_WARN("recover", "a zone is not brought back here now", SH_U64("zone", job->id),
                SH_U64("chunks", job->images.chunks), SH_ERR(err));
    }
    sh_restoring_to(job, SH_RESTORING_UNDOES);
}

/* Whether an error of a question to the superpeers may pass. */
bool sh_restoring_may_repeat(enum shoal_err err)
{
    return err == SHOAL_EBUSY || err == SHOAL_ETIMEOUT || err == SHOAL_EUNREACHABLE ||
           err == SHOAL_ENONODE || err == SHOAL_ECONNLOST || err == SHOAL_EROLE;
}

/* --- Jobs -------------------------------------------------------------------------------------- */

static struct sh_restoring *job_find(const struct sh_restorer *restorer, uint64_t id)
{
    struct sh_restoring *job = restorer->jobs;
    while (job && job->id != id)
        job = job->next;
    return job;
}

/* Whether a chunk that a zone of this node claims is that zone's: one that is brought back here goes first, unless it is served by now; else what this node has. */
static bool claim_counts(void *arg, shoal_cid cid, uint64_t number)
{
    const struct sh_restorer *restorer = arg;
    for (const struct sh_restoring *job = restorer->jobs; job; job = job->next) {
        if (job->number == number && job->phase <= SH_RESTORING_SERVES)
            return true;
    }
    return !restorer->config.may_have || restorer->config.may_have(restorer->config.arg, cid);
}

static enum shoal_err job_begin(struct sh_restorer *restorer, uint64_t id)
{
    const struct sh_restorer_config *config = &restorer->config;
    struct sh_restoring *job = calloc(1, sizeof *job);
    if (!job)
        return SHOAL_ENOMEM;
    job->restorer = restorer;
    job->id = id;
    job->begun_ns = now_of(restorer);
    job->images = (struct sh_images){.store = config->store,
                                     .backup = config->backup,
                                     .nid = restorer->nid,
                                     .is_nameless = !sh_store_has_nid(config->store),
                                     .is_online = true,
                                     .counts = claim_counts,
                                     .arg = restorer,
                                     .completer = sh_zone_creator(id)};
    /* Of zones that were one owner's the later ones come first (docs/recovery.md). */
    struct sh_restoring **at = &restorer->jobs;
    while (*at && (*at)->id > id)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    restorer->status.begun++;
    restorer->status.zones++;
    sh_restoring_to(job, SH_RESTORING_RECORD);
    return SHOAL_OK;
}

static void job_free(struct sh_restoring *job)
{
    struct sh_restorer *restorer = job->restorer;
    struct sh_restoring **at = &restorer->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    restorer->status.zones--;
    if (restorer->reading == job)
        restorer->reading = NULL;
    sh_completions_destroy(job->images.completions);
    sh_images_end(&job->images);
    sh_tail_end(&job->tail);
    sh_restoring_parts_end(job);
    free(job);
}

static void recover_answer(const struct sh_restoring *job, struct sh_msg_in *in)
{
    const struct sh_restore_progress progress = sh_restoring_progress(job);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_RECOVER_ANSWER_BYTES, &out))
        return;
    sh_restore_progress_put(&out.w, &progress);
    sh_msg_end(in->msg, &out);
}

static void on_recover(void *arg, struct sh_msg_in *in)
{
    struct sh_restorer *restorer = arg;
    const struct sh_restorer_config *config = &restorer->config;
    if (!in->is_request)
        return;
    uint64_t id = sh_get64(&in->payload), epoch = sh_get64(&in->payload);
    enum shoal_err err = SHOAL_OK;
    if (!sh_reader_done(&in->payload) || !sh_zone_number(id) ||
        !sh_nid_is_peer(sh_zone_creator(id)))
        err = SHOAL_EPROTO;
    else if (!restorer->log || sh_directory_epoch(config->directory) < epoch)
        err = SHOAL_EBUSY;
    else if (config->is_confirmed && !config->is_confirmed(config->arg))
        err = SHOAL_EBUSY;
    else if (!job_find(restorer, id) && restorer->status.zones == JOBS_MAX)
        err = SHOAL_EBUSY;
    else if (!job_find(restorer, id))
        err = job_begin(restorer, id);
    if (err)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
    else
        recover_answer(job_find(restorer, id), in);
}

/* --- RECORD, ORDER ----------------------------------------------------------------------------- */

/* Whether one life of a node had both zones. */
static bool were_one_owners(const struct sh_restoring *job, const struct sh_restoring *other)
{
    const struct sh_zone *a = &job->record, *b = &other->record;
    return a->former.v == b->former.v && a->former_life == b->former_life;
}

/* Whether of two zones that were one owner's the first has a chunk that both have. */
static bool outweighs(const struct sh_restoring *job, const struct sh_restoring *other)
{
    shoal_nid former = job->record.former;
    bool was_made = sh_zone_creator(job->id).v == former.v;
    bool was_other_made = sh_zone_creator(other->id).v == former.v;
    return were_one_owners(job, other) && was_made && (!was_other_made || job->id > other->id);
}

/* Whether a zone is here that goes first, and is not read yet: a superpeer has told of it late, when it was known already that this one may be read. */
static bool is_any_first(const struct sh_restoring *job)
{
    for (const struct sh_restoring *other = job->restorer->jobs; other; other = other->next) {
        if (other != job && !other->number && outweighs(other, job))
            return true;
    }
    return false;
}

/* Whether the claims of a zone here may be out of date, whose former owner is another one, or was in another life, or had brought one of the two back. By the notes of the metadata a chunk is of zones of one owner:
 * so a zone that is read while other zones claim but what is theirs by its note finds its own chunks. */
static bool is_unsifted(const struct sh_restoring *other, const struct sh_restoring *job)
{
    bool is_taken = (other->record.flags | job->record.flags) & SH_ZONE_TAKEN;
    if (other == job || !other->number || (were_one_owners(other, job) && !is_taken))
        return false;
    bool may_change = other->phase == SH_RESTORING_ORDER ||
                      (other->phase == SH_RESTORING_SIFTS && !other->is_ordered);
    if (may_change)
        return !other->sifted_ns || other->sifted_ns < job->begun_ns;
    return other->phase >= SH_RESTORING_ADOPTS && other->phase <= SH_RESTORING_WHOSE;
}

/* Has the claims of zones looked at that are here already, for one that is to be read. True: it has to wait for that. */
static bool waits_for_sifts(const struct sh_restoring *job)
{
    bool waits = false;
    for (struct sh_restoring *other = job->restorer->jobs; other; other = other->next) {
        if (!is_unsifted(other, job))
            continue;
        waits = true;
        if (other->phase == SH_RESTORING_ORDER && !other->is_awaited) {
            other->is_awaited = true;
            other->due_ns = 0;
            job->restorer->next_ns = 0;
        }
    }
    return waits;
}

/* Whether a zone is leaving the store, or is to leave it as this one outweighs it: of what both have its images would be taken for this one's, and go with it. */
static bool is_any_leaving(const struct sh_restoring *job)
{
    for (const struct sh_restoring *other = job->restorer->jobs; other; other = other->next) {
        bool leaves = (other->phase == SH_RESTORING_UNDOES && other->number) ||
                      (other->is_outweighed && outweighs(job, other));
        if (other != job && leaves)
            return true;
    }
    return false;
}

/* Zones that this one outweighs have been read already, as a superpeer has told of this one late: they are read again, once it has been. */
static void outweighed_undo(const struct sh_restoring *job)
{
    for (struct sh_restoring *other = job->restorer->jobs; other; other = other->next) {
        if (other == job || !outweighs(job, other))
            continue;
        if (other->is_reading)
            other->is_outweighed = true;
        else if (other->phase > SH_RESTORING_WAITS && other->phase < SH_RESTORING_ORDER &&
                 !other->is_asking)
            sh_restoring_fail(other, SHOAL_ECANCELED);
        else if (other->phase > SH_RESTORING_WAITS && other->phase <= SH_RESTORING_SIFTS)
            other->is_outweighed = true;
    }
}

static void on_record(struct sh_zone_op *op, enum shoal_err err,
                      const struct sh_zone_answer *answer)
{
    struct sh_restoring *job = op->arg;
    const struct sh_restorer *restorer = job->restorer;
    sh_restoring_answered(job);
    if (err == SHOAL_ESTOPPED)
        return;
    if (!answer && sh_restoring_may_repeat(err)) {
        sh_restoring_again(job);
        return;
    }
    bool is_its = !err && answer && answer->is_there && answer->zone.owner.v == restorer->nid.v &&
                  answer->zone.life == restorer->config.life && answer->zone.former.v;
    if (!is_its) {
        sh_restoring_to(job, SH_RESTORING_OVER); /* done, or another node's by now */
        return;
    }
    job->record = answer->zone;
    job->record.flags &= (uint8_t)~SH_ZONE_OLD;
    outweighed_undo(job);
    sh_restoring_to(job, SH_RESTORING_NEAR);
}

static void record_ask(struct sh_restoring *job)
{
    job->zone_op = (struct sh_zone_op){.done = on_record, .arg = job};
    job->is_asking = true;
    sh_zones_get(job->restorer->config.zones, job->id, &job->zone_op);
}

/* A zone that goes first has its chunks in the store here, or is another node's to bring back: the next one is looked for. */
static void on_near(struct sh_order_op *op, enum shoal_err err, uint64_t zone)
{
    struct sh_restoring *job = op->arg;
    sh_restoring_answered(job);
    if (err == SHOAL_ESTOPPED)
        return;
    const struct sh_restoring *first = zone ? job_find(job->restorer, zone) : NULL;
    if (!err && !zone) {
        job->near = 0;
        sh_restoring_to(job, SH_RESTORING_ENDS);
    } else if (!err && first && first->number) {
        job->near = zone;
    } else if (!err || sh_restoring_may_repeat(err)) {
        job->near = 0;
        sh_restoring_again(job);
    } else {
        sh_restoring_fail(job, err);
    }
}

void sh_restoring_order_ask(struct sh_restoring *job, uint64_t above, bool near,
                            void (*done)(struct sh_order_op *op, enum shoal_err err, uint64_t zone))
{
    /* A zone that the former owner had taken over is outweighed by any that it made: what moved went to these. */
    bool was_made = sh_zone_creator(job->id).v == job->record.former.v;
    if (!above && was_made)
        above = job->id;
    job->order_op = (struct sh_order_op){.done = done, .arg = job};
    job->is_asking = true;
    sh_zones_order(job->restorer->config.zones, job->record.former, job->record.former_life, above,
                   near, &job->order_op);
}

/* --- ENDS -------------------------------------------------------------------------------------- */

static void on_end(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_restoring_end *end = request->arg;
    end->is_asking = false;
    if (!err) {
        end->end = sh_get64(payload);
        bool is_its = sh_get64(payload) == end->disk;
        (void)sh_get8(payload);
        end->has_answered = true;
        if (!sh_reader_done(payload) || !is_its)
            end->end = 0;
    } else if (err == SHOAL_ENONAME || err == SHOAL_ECORRUPT || err == SHOAL_EIO ||
               err == SHOAL_ENONODE) {
        end->has_answered = true;
    }
    end->due_ns = now_of(end->job->restorer) + PAUSE_MIN_NS;
}

static void end_ask(struct sh_restoring_end *end, uint64_t now_ns)
{
    struct sh_msg *msg = end->job->restorer->config.msg;
    struct sh_out out;
    end->request = (struct sh_request){.done = on_end, .arg = end, .timeout_ns = ANSWER_NS};
    end->due_ns = now_ns + PAUSE_MIN_NS;
    if (sh_msg_request(msg, end->nid, SH_CLUSTER_PREPARE, SH_PREPARE_BYTES, &end->request, &out))
        return;
    end->is_asking = true;
    sh_put64(&out.w, end->job->id);
    sh_put64(&out.w, 0);
    sh_msg_end(msg, &out);
}

static void ends_begin(struct sh_restoring *job, uint64_t now_ns)
{
    const struct sh_zone *record = &job->record;
    unsigned count = record->flags & SH_ZONE_AGAIN ? 0 : record->count; /* else they do not go on */
    job->ends_count = 0;
    job->ends_ns = now_ns + ENDS_NS;
    for (unsigned i = 0; i < count; i++) {
        if (record->backups[i].nid.v == job->restorer->nid.v)
            continue;
        job->ends[job->ends_count++] = (struct sh_restoring_end){
            .job = job, .nid = record->backups[i].nid, .disk = record->backups[i].disk};
    }
}

static void ends_cancel(struct sh_restoring *job)
{
    for (unsigned i = 0; i < job->ends_count; i++) {
        if (job->ends[i].is_asking)
            (void)sh_msg_cancel(job->restorer->config.msg, &job->ends[i].request);
        job->ends[i].is_asking = false;
    }
}

/* Asks the other backups how far they go: what they lack is to be read in its order. Who does not answer in time is asked by OPEN, and is replaced if it
 * lacks more. */
static void ends_step(struct sh_restoring *job, uint64_t now_ns)
{
    bool are_all = true;
    if (!job->ends_ns)
        ends_begin(job, now_ns);
    for (unsigned i = 0; i < job->ends_count; i++) {
        struct sh_restoring_end *end = &job->ends[i];
        are_all &= end->has_answered;
        if (!end->has_answered && !end->is_asking && now_ns >= end->due_ns)
            end_ask(end, now_ns);
    }
    if (!are_all && now_ns < job->ends_ns) {
        job->due_ns = now_ns + PAUSE_MIN_NS;
        return;
    }
    ends_cancel(job);
    job->least = UINT64_MAX;
    for (unsigned i = 0; i < job->ends_count; i++) {
        if (job->ends[i].has_answered && job->ends[i].end && job->ends[i].end < job->least)
            job->least = job->ends[i].end;
    }
    sh_restoring_to(job, SH_RESTORING_TAKES);
}

/* --- TAKES, READS ------------------------------------------------------------------------------ */

static void on_taken(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct sh_restoring *job = arg;
    job->is_taking = false;
    if (err) {
        sh_restoring_fail(job, err);
        return;
    }
    job->has_replica = true;
    job->log = zone;
    job->end = end;
    sh_restoring_to(job, SH_RESTORING_WAITS);
}

/* A batch of the former owner's that is undecided is in the store, and may go: what the replica has of the same chunks would not be put there. */
static void replica_take(struct sh_restoring *job)
{
    const struct sh_restorer_config *config = &job->restorer->config;
    if (config->may_take && !config->may_take(config->arg, job->record.former)) {
        sh_restoring_again(job);
        return;
    }
    job->is_taking = true;
    enum shoal_err err = sh_keeper_take(config->keeper, job->id, on_taken, job);
    if (err)
        job->is_taking = false;
    if (err == SHOAL_EBUSY)
        sh_restoring_again(job);
    else if (err)
        sh_restoring_fail(job, err);
}

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    struct sh_restoring *job = arg;
    (void)zone;
    return sh_images_take(&job->images, item);
}

static enum shoal_err on_drop(void *arg, struct sh_replog_zone *zone, uint16_t creator,
                              uint64_t local_id)
{
    struct sh_restoring *job = arg;
    (void)zone;
    return sh_images_drop(&job->images, creator, local_id);
}

static enum shoal_err on_flush(void *arg, struct sh_replog_zone *zone)
{
    struct sh_restoring *job = arg;
    (void)zone;
    return sh_images_flush(&job->images);
}

static enum shoal_err on_tail(void *arg, struct sh_replog_zone *zone, uint64_t sequence,
                              const struct sh_replog_write *write)
{
    struct sh_restoring *job = arg;
    (void)zone;
    return sh_tail_add(&job->tail, sequence, write);
}

static void on_read(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct sh_restoring *job = arg;
    (void)zone;
    job->is_reading = false;
    job->end = end;
    if (err == SHOAL_EFULL && !job->reads_versions) {
        SH_INFO("recover", "a zone is read once more, as outdated chunks took room, too",
                SH_U64("zone", job->id));
        job->reads_versions = true;
        sh_restoring_to(job, SH_RESTORING_UNDOES);
        return;
    }
    if (!err && job->is_outweighed)
        err = SHOAL_ECANCELED;
    if (!err && job->images.missing) {
        job->missing = job->lacked = job->images.missing;
        job->needed = job->images.live + job->missing;
        err = SHOAL_EFULL;
    }
    if (!err)
        job->lacked = 0;
    if (err)
        sh_restoring_fail(job, err);
    else
        sh_restoring_to(job, SH_RESTORING_RUNS);
}

/* One zone is read at a time, and has its claims in the backup before the next one begins. */
static void read_begin(struct sh_restoring *job)
{
    struct sh_restorer *restorer = job->restorer;
    if ((restorer->reading && restorer->reading != job) || is_any_first(job) ||
        is_any_leaving(job) || waits_for_sifts(job)) {
        sh_restoring_again(job);
        return;
    }
    restorer->reading = job;
    sh_images_begin(&job->images);
    job->images.counts_missing = job->reads_versions;
    sh_restoring_parts_end(job);
    job->missing = 0;
    enum shoal_err err = SHOAL_OK;
    if (!job->images.completions)
        err = sh_completions_create(&job->images.completions);
    if (err) {
        sh_restoring_fail(job, err);
        return;
    }
    if (!job->log) {
        sh_restoring_to(job, SH_RESTORING_RUNS); /* nothing was ever written to the zone */
        return;
    }
    const struct sh_replog_read read = {.take = on_item,
                                        .drop = job->reads_versions ? NULL : on_drop,
                                        .flush = on_flush,
                                        .done = on_read,
                                        .tail_from = job->least == UINT64_MAX ? 0 : job->least,
                                        .tail_bytes_max = TAIL_BYTES_MAX,
                                        .tail = on_tail,
                                        .arg = job};
    job->is_reading = true;
    err = sh_replog_zone_read(job->log, &read);
    if (err)
        job->is_reading = false;
    if (err == SHOAL_EBUSY) { /* the log reads another one */
        restorer->reading = NULL;
        sh_restoring_again(job);
    } else if (err) {
        sh_restoring_fail(job, err);
    }
}

/* --- DROPS: this node's own replica ------------------------------------------------------------ */

/* The zone is open, and served. The replica goes once the record names others. */
static void replica_drop(struct sh_restoring *job)
{
    const struct sh_restorer_config *config = &job->restorer->config;
    if (sh_backup_adopted_needs_own(config->backup, job->id)) {
        sh_restoring_again(job);
        return;
    }
    enum shoal_err err = sh_keeper_taken_drop(config->keeper, job->id);
    if (err == SHOAL_EBUSY) {
        sh_restoring_again(job);
        return;
    }
    if (err)
        SH_WARN("recover", "a replica that is not needed any more stays until the next start",
                SH_U64("zone", job->id), SH_ERR(err));
    job->has_replica = false;
    sh_restoring_to(job, SH_RESTORING_OVER);
}

/* --- UNDOES ------------------------------------------------------------------------------------ */

/* It begins anew with the record, which says whether this node is still to bring the zone back. */
static void job_reset(struct sh_restoring *job, uint64_t now_ns)
{
    bool is_for_another =
        job->err == SHOAL_EFULL || job->err == SHOAL_ETOOBIG || job->err == SHOAL_ECORRUPT;
    bool lacks_room = job->err == SHOAL_EFULL && job->missing;
    job->why = job->err;
    bool is_at_once = !job->err || job->err == SHOAL_ECANCELED || is_for_another;
    uint64_t pause_ns = is_at_once ? 0 : FAILED_NS;
    sh_completions_destroy(job->images.completions);
    job->images.completions = NULL;
    sh_tail_end(&job->tail);
    job->served.count = job->away.count = job->told = 0;
    job->near = job->ends_ns = 0;
    job->log = NULL;
    job->err = SHOAL_OK;
    job->is_outweighed = job->is_ordered = job->is_awaited = false;
    job->sifted_ns = 0;
    job->next_owner = SHOAL_NID_NONE;
    sh_restoring_to(job, lacks_room       ? SH_RESTORING_MAKES_ROOM
                         : is_for_another ? SH_RESTORING_HANDS_ON
                                          : SH_RESTORING_RECORD);
    job->missing = 0;
    job->due_ns = now_ns + pause_ns;
}

static void undo(struct sh_restoring *job, uint64_t now_ns)
{
    const struct sh_restorer_config *config = &job->restorer->config;
    ends_cancel(job);
    enum shoal_err err = sh_images_undo(&job->images, job->number);
    if (err == SHOAL_EBUSY)
        sh_restoring_again(job); /* a chunk is pinned */
    if (err)
        return; /* EAGAIN: there are more */
    sh_restoring_adopted_cancel(job);
    if (job->has_replica)
        sh_keeper_give_back(config->keeper, job->id);
    job->has_replica = false;
    if (job->restorer->reading == job)
        job->restorer->reading = NULL;
    job->restorer->status.failed += job->err != SHOAL_OK;
    job_reset(job, now_ns);
}

/* --- The step ---------------------------------------------------------------------------------- */

static void job_step(struct sh_restoring *job, uint64_t now_ns)
{
    switch (job->phase) {
    case SH_RESTORING_RECORD:
        record_ask(job);
        break;
    case SH_RESTORING_NEAR:
        sh_restoring_order_ask(job, job->near, true, on_near);
        break;
    case SH_RESTORING_ENDS:
        ends_step(job, now_ns);
        break;
    case SH_RESTORING_TAKES:
        replica_take(job);
        break;
    case SH_RESTORING_WAITS:
        read_begin(job);
        break;
    case SH_RESTORING_RUNS:
    case SH_RESTORING_ADOPTS:
    case SH_RESTORING_ORDER:
    case SH_RESTORING_SIFTS:
    case SH_RESTORING_TAKES_OVER:
    case SH_RESTORING_WHOSE:
    case SH_RESTORING_OPENS:
    case SH_RESTORING_SERVES:
        sh_restoring_claims_step(job, now_ns);
        break;
    case SH_RESTORING_DROPS:
        replica_drop(job);
        break;
    case SH_RESTORING_UNDOES:
        undo(job, now_ns);
        break;
    case SH_RESTORING_MAKES_ROOM:
        sh_restoring_room_step(job, now_ns);
        break;
    case SH_RESTORING_HANDS_ON:
        sh_restoring_hand_on(job, now_ns);
        break;
    case SH_RESTORING_OVER:
        break;
    }
}

/* Whether somebody calls it. */
static bool is_called(const struct sh_restoring *job)
{
    return job->is_asking || job->is_taking || job->is_reading;
}

unsigned sh_restorer_step(struct sh_restorer *restorer, uint64_t now_ns)
{
    unsigned work = 0;
    if (now_ns < restorer->next_ns)
        return 0;
    restorer->next_ns = SH_NEVER;
    for (struct sh_restoring *job = restorer->jobs, *next; job; job = next) {
        next = job->next;
        bool is_due = !is_called(job) && now_ns >= job->due_ns;
        work += is_due;
        if (is_due && job->phase == SH_RESTORING_OVER) {
            job_free(job);
            continue;
        }
        if (is_due)
            job_step(job, now_ns);
        if (!is_called(job) && job->due_ns < restorer->next_ns)
            restorer->next_ns = job->due_ns;
    }
    return work;
}

uint64_t sh_restorer_due_ns(const struct sh_restorer *restorer)
{
    return restorer->next_ns;
}

/* --- Life -------------------------------------------------------------------------------------- */

enum shoal_err sh_restorer_create(const struct sh_restorer_config *config,
                                  struct sh_restorer **restorer_out)
{
    SH_ASSERT(config->keeper && config->zones && config->serves && config->wake && config->life);
    struct sh_restorer *restorer = calloc(1, sizeof *restorer);
    if (!restorer)
        return SHOAL_ENOMEM;
    restorer->config = *config;
    restorer->next_ns = SH_NEVER;
    sh_msg_handler_set(config->msg, SH_CLUSTER_RECOVER, SH_MSG_INLINE, on_recover, restorer);
    *restorer_out = restorer;
    return SHOAL_OK;
}

void sh_restorer_begin(struct sh_restorer *restorer, struct sh_replog *log, shoal_nid nid)
{
    SH_ASSERT(!restorer->log && log && nid.v);
    restorer->log = log;
    restorer->nid = nid;
}

void sh_restorer_destroy(struct sh_restorer *restorer)
{
    if (!restorer)
        return;
    sh_msg_handlers_drop(restorer->config.msg, restorer);
    while (restorer->jobs) {
        ends_cancel(restorer->jobs);
        job_free(restorer->jobs);
    }
    free(restorer);
}

bool sh_restorer_is_reading(const struct sh_restorer *restorer)
{
    return restorer->reading && restorer->reading->is_reading;
}

bool sh_restorer_is_filling(const struct sh_restorer *restorer)
{
    return restorer->reading;
}

bool sh_restorer_is_opening(const struct sh_restorer *restorer)
{
    const struct sh_restoring *job = restorer->jobs;
    while (job && job->phase != SH_RESTORING_OPENS && job->phase != SH_RESTORING_SERVES)
        job = job->next;
    return job;
}

void sh_restorer_status_get(const struct sh_restorer *restorer,
                            struct sh_restorer_status *status_out)
{
    *status_out = restorer->status;
}
