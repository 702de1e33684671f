/* Which chunks of a zone's replica are the zone's by the notes of the metadata (sh_metadata_note_is_of). What others have by now, as it was given away, or
 * as a later zone has it, is let go of; then the zone opens. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "metadata/metadata.h"
#include "recover/restorer_int.h"

#define OPEN_NS UINT64_C(1000000) /* in which it is looked whether a zone is open */
#define LEFT_A_STEP 4096u         /* images that are left, and completion records */
#define LOOKS_A_STEP 16u          /* at up to 8,192 IDs each */
#define THERE_MAX 128u            /* parts of a zone, and twice as many as there were before */

void sh_restoring_parts_end(struct sh_restoring *job)
{
    free(job->runs);
    free(job->served.runs);
    free(job->away.runs);
    free(job->there.runs);
    job->runs = NULL;
    job->served = job->away = job->there = (struct sh_restoring_parts){.count = 0};
    job->runs_count = 0;
}

/* --- RUNS -------------------------------------------------------------------------------------- */

static void runs_rewind(struct sh_restoring *job)
{
    job->run = job->taking = 0;
    job->at = job->asked_to = 0;
}

static void runs_step(struct sh_restoring *job)
{
    struct sh_images *images = &job->images;
    enum shoal_err err = sh_images_settle(images);
    if (err == SHOAL_EBUSY)
        sh_restoring_again(job); /* a chunk is pinned */
    else if (err && err != SHOAL_EAGAIN)
        sh_restoring_fail(job, err);
    if (err)
        return;
    SH_ASSERT(!job->runs);
    job->runs = images->runs;
    job->runs_count = images->runs_count;
    images->runs = NULL;
    runs_rewind(job);
    sh_restoring_to(job, SH_RESTORING_ADOPTS);
}

/* --- Taking ------------------------------------------------------------------------------------ */

/* The part of the runs that is asked for is done. False: that was the last one. */
static bool taken_pass(struct sh_restoring *job)
{
    if (job->asked_to) {
        job->at = job->asked_to + 1;
        job->asked_to = 0;
    } else {
        job->run += job->taking;
        job->at = 0;
    }
    job->taking = 0;
    return job->run < job->runs_count;
}

/* The runs are cut by too many ranges: fewer are asked for, or half of one. False: that was a single ID. */
static bool taken_halve(struct sh_restoring *job)
{
    const struct sh_metadata_run *run = &job->runs[job->run];
    uint64_t from = job->at ? job->at : run->first.v;
    uint64_t to = job->asked_to ? job->asked_to : run->last.v;
    if (job->taking > 1)
        job->taking = 1;
    else if (from < to)
        job->asked_to = from + (to - from) / 2;
    else
        return false;
    return true;
}

static void on_take(struct sh_take_op *op, enum shoal_err err)
{
    struct sh_restoring *job = op->arg;
    sh_restoring_answered(job);
    if (err == SHOAL_ESTOPPED)
        return;
    if (err == SHOAL_ETOOBIG) {
        if (!taken_halve(job))
            sh_restoring_fail(job, SHOAL_EPROTO);
    } else if (!err) {
        if (!taken_pass(job)) {
            runs_rewind(job);
            sh_restoring_to(job, SH_RESTORING_WHOSE);
        }
    } else if (sh_restoring_may_repeat(err)) {
        sh_restoring_again(job);
    } else {
        if (err == SHOAL_ELIMIT && !job->takes_all) {
            job->takes_all = true;
            SH_WARN("recover",
                    "superpeers keep no more ranges: where another zone of that owner is lost, "
                    "chunks that may have been in it are told as if they had never been",
                    SH_U64("zone", job->id));
        }
        sh_restoring_fail(job, err);
    }
}

/* Has the next runs noted as this node's that are the zone's. */
static void take_ask(struct sh_restoring *job)
{
    const struct sh_restorer *restorer = job->restorer;
    struct sh_metadata_run runs[SH_TAKE_RUNS_MAX];
    size_t most = job->taking ? job->taking : SH_TAKE_RUNS_MAX, count = 0;
    while (count < most && job->run + count < job->runs_count) {
        const struct sh_metadata_run *run = &job->runs[job->run + count];
        if (count && shoal_cid_creator(run->first).v != shoal_cid_creator(runs[0].first).v)
            break;
        runs[count++] = *run;
    }
    SH_ASSERT(count);
    if (job->at)
        runs[0].first.v = job->at;
    if (job->asked_to)
        runs[0].last.v = job->asked_to;
    job->taking = job->asked_to ? 1 : count;
    job->take_op = (struct sh_take_op){.done = on_take, .arg = job};
    job->is_asking = true;
    sh_zones_take(restorer->config.zones, &job->record, runs, job->taking, &job->take_op);
}

static void take_step(struct sh_restoring *job)
{
    if (job->run < job->runs_count) {
        take_ask(job);
        return;
    }
    runs_rewind(job);
    sh_restoring_to(job, SH_RESTORING_WHOSE);
}

/* --- ADOPTS ------------------------------------------------------------------------------------ */

void sh_restoring_adopted_cancel(struct sh_restoring *job)
{
    if (job->number)
        job->has_sent |= sh_backup_adopt_cancel(job->restorer->config.backup, job->number);
    job->number = 0;
}

static enum shoal_err adopt_from(struct sh_restoring *job, uint64_t begin)
{
    struct sh_backup *backup = job->restorer->config.backup;
    enum shoal_err err = sh_backup_zone_adopt(backup, &job->record, begin, job->end, &job->number);
    if (!err && begin < job->end)
        err = sh_tail_tell(&job->tail, backup, job->number);
    if (err)
        sh_restoring_adopted_cancel(job);
    return err;
}

static void adopt(struct sh_restoring *job)
{
    struct sh_backup *backup = job->restorer->config.backup;
    struct sh_images *images = &job->images;
    enum shoal_err err = SHOAL_EAGAIN;
    if (!job->end)
        job->end = 1;
    /* Backups that lack what can't be told again are replaced. */
    bool has_tail = job->least < job->end && job->tail.next == job->end;
    if (has_tail)
        err = adopt_from(job, job->least);
    if (err == SHOAL_EAGAIN || err == SHOAL_ECORRUPT)
        err = adopt_from(job, job->end);
    sh_tail_end(&job->tail);
    if (!err)
        err = sh_backup_adopt_claims(backup, job->number, images->claims, images->claims_count,
                                     images->live, images->has_completions);
    for (size_t i = 0; !err && i < images->returned_count; i++)
        err = sh_backup_adopt_chunk(backup, job->number, images->returned[i]);
    if (err) {
        /* Of chunks that it has not claimed yet nobody would know that they are its. */
        sh_restoring_adopted_cancel(job);
        sh_restoring_fail(job, err);
        return;
    }
    job->restorer->reading = NULL;
    runs_rewind(job);
    sh_restoring_to(job, SH_RESTORING_ORDER);
}

/* Has images that are left removed from the zone's replicas. False: there are more. */
static bool left_tell(struct sh_restoring *job)
{
    struct sh_images *images = &job->images;
    for (unsigned i = 0; images->left_count && i < LEFT_A_STEP; i++)
        sh_backup_left_found(job->restorer->config.backup, job->number,
                             images->left[--images->left_count].chunk);
    return !images->left_count;
}

/* --- ORDER ------------------------------------------------------------------------------------- */

/* Once no zone goes first any more, nor any batch is under way for a life that is over, what is this zone's by its note is, and nothing else. */
static void sift_begin(struct sh_restoring *job, bool is_ordered)
{
    job->is_ordered = is_ordered;
    job->is_awaited = false;
    job->served.count = job->away.count = job->there.count = 0;
    job->there_run = 0;
    job->there_at = 0;
    job->sift_ns = sh_now(&job->restorer->config.clock);
    runs_rewind(job);
    sh_restoring_to(job, SH_RESTORING_SIFTS);
}

static void on_order(struct sh_order_op *op, enum shoal_err err, uint64_t zone)
{
    struct sh_restoring *job = op->arg;
    sh_restoring_answered(job);
    if (err == SHOAL_ESTOPPED)
        return;
    if (job->is_outweighed)
        sh_restoring_fail(job, SHOAL_ECANCELED);
    else if (!err && !zone) {
        job->is_beside_lost = op->has_lost && !job->takes_all;
        sift_begin(job, true);
    } else if (!err || sh_restoring_may_repeat(err))
        sh_restoring_again(job);
    else
        sh_restoring_fail(job, err);
}

/* --- SIFTS, WHOSE ------------------------------------------------------------------------------------- */

static enum shoal_err part_add(struct sh_restoring_parts *parts, struct sh_metadata_run run)
{
    struct sh_metadata_run *last = parts->count ? &parts->runs[parts->count - 1] : NULL;
    if (last && last->last.v + 1 == run.first.v &&
        shoal_cid_creator(last->first).v == shoal_cid_creator(run.first).v) {
        last->last = run.last;
        return SHOAL_OK;
    }
    if (parts->count == parts->room) {
        size_t room = parts->room ? 2 * parts->room : 8;
        struct sh_metadata_run *grown = realloc(parts->runs, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        parts->runs = grown;
        parts->room = room;
    }
    parts->runs[parts->count++] = run;
    return SHOAL_OK;
}

/* Whether chunks are the zone's by their note: to be taken, or, behind that, taken by this life. */
static bool is_its(const struct sh_restoring *job, const struct sh_metadata_note *note)
{
    const struct sh_zone *record = &job->record;
    bool is_taken =
        note->owner.v == record->owner.v && note->life == record->life && note->zone == record->id;
    return job->phase == SH_RESTORING_WHOSE ? is_taken : sh_metadata_note_is_of(note, record);
}

static void on_range(struct sh_tree_op *op, const struct sh_metadata_range *range)
{
    struct sh_restoring *job = op->arg;
    struct sh_restoring_parts *parts = is_its(job, &range->note) ? &job->served : &job->away;
    while (!job->err && job->run < job->runs_count) {
        const struct sh_metadata_run *run = &job->runs[job->run];
        uint64_t from = job->at ? job->at : run->first.v;
        if (from > range->last.v)
            break;
        SH_ASSERT(from >= range->first.v);
        uint64_t to = run->last.v < range->last.v ? run->last.v : range->last.v;
        job->err = part_add(parts, (struct sh_metadata_run){{from}, {to}});
        job->at = to + 1;
        if (to < run->last.v)
            continue;
        job->run++;
        job->at = 0;
    }
}

static void on_ranges_over(struct sh_tree_op *op, enum shoal_err err, bool is_more)
{
    struct sh_restoring *job = op->arg;
    (void)is_more;
    sh_restoring_answered(job);
    if (err == SHOAL_ESTOPPED)
        return;
    if (job->err)
        sh_restoring_fail(job, job->err);
    else if (err && !sh_restoring_may_repeat(err))
        sh_restoring_fail(job, err);
    else if (err)
        sh_restoring_again(job);
}

/* Lets go of what is others', from the last part on. False: there is more. */
static bool away_leave(struct sh_restoring *job)
{
    struct sh_restoring_parts *away = &job->away;
    if (!away->count)
        return true;
    const struct sh_metadata_run *part = &away->runs[away->count - 1];
    enum shoal_err err = sh_images_leave(&job->images, job->number, part->first.v, part->last.v);
    if (!err)
        away->count--;
    else if (err == SHOAL_EBUSY)
        sh_restoring_again(job); /* a chunk is pinned */
    else if (err != SHOAL_EAGAIN)
        sh_restoring_fail(job, err);
    return false;
}

/* Of what is the zone's, the next part that has chunks. False: there is none. */
static bool there_next(const struct sh_restoring *job, struct sh_metadata_run *run_out)
{
    const struct sh_metadata_run *run = &job->served.runs[job->there_run];
    uint64_t from = job->there_at ? job->there_at : run->first.v;
    const struct sh_zone_claim all = {from, run->last.v};
    const struct sh_backup *backup = job->restorer->config.backup;
    uint64_t first, last;
    if (from > run->last.v || !sh_backup_chunk_next(backup, &all, from, &first))
        return false;
    shoal_cid at, to;
    shoal_cid cid = sh_images_cid(&job->images, first);
    bool is_there = sh_store_range(job->restorer->config.store, cid, &at, &to);
    SH_ASSERT(is_there && at.v == cid.v);
    last = first + (to.v - at.v);
    *run_out = (struct sh_metadata_run){{first}, {last < run->last.v ? last : run->last.v}};
    return true;
}

/* Whether all from the end of one part to the beginning of the next one is the zone's. */
static bool is_gap_its(const struct sh_restoring *job, const struct sh_metadata_run *part,
                       const struct sh_metadata_run *next)
{
    const struct sh_restoring_parts *served = &job->served;
    size_t found = sh_metadata_runs_find(served->runs, served->count, part->last.v);
    return found < served->count && next->first.v <= served->runs[found].last.v;
}

/* Each part is a range of the superpeers'. Where there are too many the smallest gaps are taken with the parts around them, until half as many are left. */
static void there_join(struct sh_restoring *job)
{
    struct sh_restoring_parts *there = &job->there;
    size_t half = THERE_MAX / 2 + job->served.count;
    if (there->count <= 2 * half)
        return;
    for (uint64_t gap = 1; there->count > half; gap *= 2) {
        size_t kept = 1;
        for (size_t i = 1; i < there->count; i++) {
            struct sh_metadata_run *last = &there->runs[kept - 1], *next = &there->runs[i];
            bool is_joined = next->first.v - last->last.v <= gap + 1 && is_gap_its(job, last, next);
            if (is_joined)
                last->last = next->last;
            else
                there->runs[kept++] = *next;
        }
        there->count = kept;
    }
}

/* Beside a zone that is lost: an ID without a chunk may have been that one's, so it is not taken, and who asks for it is told so (docs/recovery.md). False: there
 * is more, or no memory. */
static bool served_cut(struct sh_restoring *job)
{
    struct sh_restoring_parts *served = &job->served, *there = &job->there;
    for (unsigned i = 0; i < LOOKS_A_STEP && job->there_run < served->count; i++) {
        struct sh_metadata_run run;
        bool is_any = there_next(job, &run);
        enum shoal_err err = is_any ? part_add(there, run) : SHOAL_OK;
        if (err) {
            sh_restoring_fail(job, err);
            return false;
        }
        there_join(job);
        job->there_at = is_any ? run.last.v + 1 : 0;
        job->there_run += !is_any;
    }
    if (job->there_run < served->count)
        return false;
    free(served->runs);
    *served = *there;
    *there = (struct sh_restoring_parts){.count = 0};
    job->is_beside_lost = false;
    return true;
}

/* Zones that waited for this one may be read. */
static void awaiters_wake(const struct sh_restoring *job)
{
    for (struct sh_restoring *other = job->restorer->jobs; other; other = other->next) {
        if (other->phase == SH_RESTORING_WAITS && !other->is_reading)
            other->due_ns = 0;
    }
}

/* Whether the zone has to wait until another one is adopted, or undone, with what it keeps: that one's images may be in the store under claims that this one is to take from
 * zones of this node's own. While the other one is looked through no claim at all changes. */
static bool waits_to_keep(const struct sh_restoring *job)
{
    const struct sh_restoring *reading = job->restorer->reading;
    const struct sh_restoring_parts *served = &job->served;
    if (!reading || reading == job)
        return false;
    return !reading->is_reading ||
           (job->is_ordered && sh_backup_adopt_takes(job->restorer->config.backup, job->number,
                                                     served->runs, served->count));
}

/* From here on the zone claims what is its, and nothing else. Before any of that is noted as this node's, it is recorded, also that no zone of this node's own claims it: if this
 * node fails then, whoever brings these back takes what they claim and is noted as this node's. */
static void sift_end(struct sh_restoring *job)
{
    struct sh_backup *backup = job->restorer->config.backup;
    struct sh_restoring_parts *served = &job->served;
    if (!away_leave(job))
        return;
    if (job->is_ordered && (!left_tell(job) || (job->is_beside_lost && !served_cut(job))))
        return;
    if (waits_to_keep(job)) {
        sh_restoring_again(job);
        return;
    }
    enum shoal_err err =
        job->is_ordered ? sh_backup_adopt_keep(backup, job->number, served->runs, served->count)
                        : sh_backup_adopt_narrow(backup, job->number, served->runs, served->count);
    if (err == SHOAL_EAGAIN) {
        sh_restoring_again(job);
        return;
    }
    if (err) {
        sh_restoring_fail(job, err);
        return;
    }
    free(job->runs);
    job->runs = served->runs;
    job->runs_count = served->count;
    *served = (struct sh_restoring_parts){.count = 0};
    job->sifted_ns = job->sift_ns;
    awaiters_wake(job);
    runs_rewind(job);
    sh_restoring_to(job, job->is_ordered ? SH_RESTORING_TAKES_OVER : SH_RESTORING_ORDER);
}

/* It is known of all runs whose they are: this node's, or the ranges have changed in a way that nobody takes part in who brings zones back. */
static void whose_end(struct sh_restoring *job)
{
    struct sh_backup *backup = job->restorer->config.backup;
    if (job->away.count) {
        sh_restoring_fail(job, SHOAL_EDIFFERS);
        return;
    }
    sh_backup_adopt_settle(backup, job->number, job->images.live);
    sh_backup_adopt_open(backup, job->number);
    sh_restoring_to(job, SH_RESTORING_OPENS);
}

static void whose_ask(struct sh_restoring *job)
{
    if (job->run == job->runs_count) {
        if (job->phase == SH_RESTORING_SIFTS)
            sift_end(job);
        else
            whose_end(job);
        return;
    }
    shoal_cid from = job->at ? (shoal_cid){job->at} : job->runs[job->run].first;
    job->tree_op = (struct sh_tree_op){.each = on_range, .done = on_ranges_over, .arg = job};
    job->is_asking = true;
    sh_zones_tree(job->restorer->config.zones, from, &job->tree_op);
}

/* --- OPENS, SERVES ----------------------------------------------------------------------------- */

static void open_look(struct sh_restoring *job, uint64_t now_ns)
{
    enum shoal_err err = sh_backup_adopt_state(job->restorer->config.backup, job->number);
    if (!err) {
        job->run = 0;
        sh_restoring_to(job, SH_RESTORING_SERVES);
        return;
    }
    job->due_ns = now_ns + OPEN_NS; /* of a backup that is out of service nothing comes any more */
}

static bool is_served(const struct sh_restoring *job, uint64_t chunk)
{
    const struct sh_restoring_parts *served = &job->served;
    size_t found = sh_metadata_runs_find(served->runs, served->count, chunk);
    return found < served->count && served->runs[found].first.v <= chunk;
}

/* A create whose chunk is gone may as well be done again (home.c). */
static void completion_tell(void *arg, const struct sh_completion *completion)
{
    const struct sh_restoring *job = arg;
    const struct sh_restorer_config *config = &job->restorer->config;
    uint32_t size;
    shoal_cid cid = sh_images_cid(&job->images, completion->chunk);
    if (completion->is_create && sh_store_size(config->store, cid, &size))
        return;
    struct sh_completion told = *completion;
    told.is_with_chunk =
        completion->node != sh_zone_creator(job->id).v && completion->node != job->record.former.v;
    if (told.is_with_chunk && !is_served(job, completion->chunk))
        return;
    if (config->completed)
        config->completed(config->arg, &told);
}

/* Whether another zone has those chunks that is on its way here still: they are served with that one, once it is open and what came of requests is known. */
static bool is_on_its_way(const struct sh_restoring *job, uint64_t number)
{
    for (const struct sh_restoring *other = job->restorer->jobs; other; other = other->next) {
        if (other != job && other->number == number && other->phase <= SH_RESTORING_SERVES)
            return true;
    }
    return false;
}

/* False: not now. */
static bool run_serve(const struct sh_restoring *job, const struct sh_metadata_run *run)
{
    const struct sh_restorer_config *config = &job->restorer->config;
    for (uint64_t at = run->first.v, last; at <= run->last.v; at = last + 1) {
        uint64_t number = sh_backup_claimant(config->backup, at, &last);
        last = last < run->last.v ? last : run->last.v;
        if (number && is_on_its_way(job, number))
            continue;
        if (!config->serves(config->arg, (shoal_cid){at}, (shoal_cid){last}))
            return false;
    }
    return true;
}

static void serve(struct sh_restoring *job, uint64_t now_ns)
{
    struct sh_restorer *restorer = job->restorer;
    struct sh_restorer_status *status = &restorer->status;
    if (sh_completions_some(job->images.completions, LEFT_A_STEP, &job->told, completion_tell, job))
        return;
    for (; job->run < job->served.count; job->run++) {
        if (!run_serve(job, &job->served.runs[job->run])) {
            sh_restoring_again(job);
            return;
        }
    }
    status->restored++;
    restorer->moves_ns = restorer->moves_pause_ns = 0;
    status->chunks += job->images.chunks;
    status->payload_bytes += job->images.payload_bytes;
    if (now_ns - job->begun_ns > status->longest_ns)
        status->longest_ns = now_ns - job->begun_ns;
    SH_INFO("recover", "a zone is back", SH_U64("zone", job->id),
            SH_U64("former", job->record.former.v), SH_U64("chunks", job->images.chunks),
            SH_U64("ns", now_ns - job->begun_ns));
    /* Its own replica may be needed for hours yet; nothing else is. */
    sh_images_end(&job->images);
    sh_completions_destroy(job->images.completions);
    job->images.completions = NULL;
    sh_restoring_parts_end(job);
    sh_restoring_to(job, job->has_replica ? SH_RESTORING_DROPS : SH_RESTORING_OVER);
}

void sh_restoring_claims_step(struct sh_restoring *job, uint64_t now_ns)
{
    switch (job->phase) {
    case SH_RESTORING_RUNS:
        runs_step(job);
        break;
    case SH_RESTORING_ADOPTS:
        adopt(job);
        break;
    case SH_RESTORING_ORDER:
        if (job->is_outweighed)
            sh_restoring_fail(job, SHOAL_ECANCELED);
        else if (job->is_awaited)
            sift_begin(job, false);
        else if (left_tell(job))
            sh_restoring_order_ask(job, 0, false, on_order);
        break;
    case SH_RESTORING_SIFTS:
        if (job->is_outweighed)
            sh_restoring_fail(job, SHOAL_ECANCELED);
        else
            whose_ask(job);
        break;
    case SH_RESTORING_TAKES_OVER:
        take_step(job);
        break;
    case SH_RESTORING_WHOSE:
        whose_ask(job);
        break;
    case SH_RESTORING_OPENS:
        open_look(job, now_ns);
        break;
    case SH_RESTORING_SERVES:
        serve(job, now_ns);
        break;
    default:
        SH_ASSERT(!"a phase of the zone's claims");
    }
}
