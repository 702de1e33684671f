/* Recovery, as far as superpeers order it (docs/recovery.md): of each zone whose owner's life is over, this superpeer asks the backups how far their
 * replicas go, has the record name the one that has most as the next owner, and tells that one.
 *
 *   a zone whose owner's life is over, as a look at all records finds
 *        |
 *   [PREPARES] ── the backups have answered; the record names the next owner ──► [TELLS] ── `former` is gone ──► over
 *        ▲  │                                                                        │
 *        │  │── there never was a backup: the record is removed ──► over              │
 *        │  '── none has a replica, and none may have one that comes back: LOST ──► over
 *        └──────────────────── that owner's life is over ────────────────────────────┘
 *
 * The records say all: a job goes by the record as it is in each step, and whichever superpeer orders for the shard finds the same zones.
 *
 * A backup that has had the stream all the time has all that was acknowledged, so one such answer is enough: others that are up are waited for no
 * longer than PATIENCE_NS. Where all of them were started since, each may lack what was only in its memory: then all that the record names have
 * to answer, but for nodes whose disks are lost, as an operator has declared. An answer counts only while the process runs that gave it. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

#define JOBS_MAX 256
#define LOOKS_MAX 2048 /* records in a step: 0.4 ms */
#define LOOK_NS                                                                                    \
    UINT64_C(100000000) /* in which all are looked at again while a zone is to be recovered */
#define AGAIN_NS UINT64_C(10000000) /* before a node is asked again, doubled each time */
#define AGAIN_MAX_NS UINT64_C(320000000)
#define REMIND_NS UINT64_C(500000000)  /* before an owner that is at it is told again */
#define ANSWER_NS UINT64_C(1000000000) /* for which one is waited for */
/* Since the backups were asked, for which one that is up is waited for if another one has all. */
#define PATIENCE_NS UINT64_C(2000000000)

struct job;

/* A recorded backup. */
struct asked {
    struct job *job;
    struct sh_request request;
    bool is_asking;
    /* FAILED: that process cannot say; another one may, on the same disk. */
    enum { ASKED_NOT, ASKED_HAS, ASKED_HAS_NONE, ASKED_FAILED } state;
    shoal_nid nid;
    uint64_t instance; /* of the process that is asked; 0: none was up yet */
    uint64_t disk, end;
    bool is_whole;
    uint64_t due_ns, pause_ns;
};

struct job {
    struct sh_superpeer *superpeer;
    uint64_t zone; /* 0: the place is free */
    enum { JOB_NEW, JOB_PREPARES, JOB_TELLS } phase;
    bool is_changed;  /* the record, since the last step */
    uint64_t wake_ns; /* when it is to be looked at again, if no backup answers before */
    shoal_nid chosen; /* PREPARES: as the next owner, NONE: not yet; TELLS: the owner */
    /* PREPARES */
    uint32_t version;   /* of the record, when the backups were asked */
    uint64_t made_life; /* of the owner, if the record is as that has made it; else 0 */
    unsigned count;
    struct asked asked[SH_ZONE_BACKUPS_MAX];
    uint64_t begun_ns, due_ns; /* due_ns: when it is chosen, and ordered, again */
    /* RECOVER */
    struct sh_request request;
    bool is_telling;
    uint64_t tell_ns, pause_ns;
    struct sh_restore_progress progress; /* of the owner, as its last answer says */
};

struct sh_recoveries {
    struct job jobs[JOBS_MAX];
    unsigned jobs_count;
    /* The look at all records. */
    unsigned shard;
    uint64_t after; /* the zone up to which it has come in that shard */
    bool is_looking, has_found;
    uint64_t due_ns; /* of the next one */
    uint64_t table,
        looked_table; /* of the ring when it began, see table_of; and when the last one did that is complete */
    struct sh_looked found,
        known;       /* by it, in the view when it began; and by the last one that is complete */
    uint64_t number; /* of what is known: rises with each change of that */
};

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static const struct sh_node *node_of(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return sh_view_find(sh_registry_view(superpeer->registry), nid);
}

/* The process that is up under that ID; 0: none. */
static uint64_t instance_up(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = node_of(superpeer, nid);
    bool is_up = node && node->role == SH_ROLE_PEER && node->state == SH_NODE_UP;
    return is_up ? node->instance : 0;
}

static void bit_set(uint64_t *bits, shoal_nid nid)
{
    bits[nid.v / 64] |= UINT64_C(1) << nid.v % 64;
}

static bool is_over(const struct sh_superpeer *superpeer, const struct sh_zone *zone)
{
    return sh_superpeer_owner_check(superpeer, zone) == SHOAL_EFENCED;
}

/* Whether the zone is to be recovered, or being. */
static bool is_undone(const struct sh_superpeer *superpeer, const struct sh_zone *zone)
{
    return !(zone->flags & SH_ZONE_LOST) && (zone->former.v || is_over(superpeer, zone));
}

/* --- Jobs -------------------------------------------------------------------------------------- */

static void requests_cancel(struct job *job)
{
    struct sh_msg *msg = job->superpeer->msg;
    for (unsigned i = 0; i < job->count; i++) {
        if (job->asked[i].is_asking)
            (void)sh_msg_cancel(msg, &job->asked[i].request);
        job->asked[i].is_asking = false;
    }
    if (job->is_telling)
        (void)sh_msg_cancel(msg, &job->request);
    job->is_telling = false;
}

static void job_end(struct job *job)
{
    struct sh_recoveries *recoveries = job->superpeer->recoveries;
    requests_cancel(job);
    job->zone = 0;
    recoveries->jobs_count--;
    if (!recoveries->jobs_count)
        recoveries->due_ns = 0; /* all may be done, and who waits for a zone hears of it */
}

static struct job *job_find(struct sh_recoveries *recoveries, uint64_t zone)
{
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        if (recoveries->jobs[i].zone == zone)
            return &recoveries->jobs[i];
    }
    return NULL;
}

/* Begins to ask the backups that the record names. */
static void prepares_begin(struct job *job, const struct sh_zone *zone, uint64_t now_ns)
{
    requests_cancel(job);
    job->phase = JOB_PREPARES;
    job->version = zone->version;
    bool is_as_made = zone->incarnation == 1 && !(zone->flags & SH_ZONE_OLD) && !zone->former.v;
    job->made_life = is_as_made ? zone->life : 0;
    job->chosen = SHOAL_NID_NONE;
    job->count = zone->count;
    job->begun_ns = now_ns;
    job->due_ns = 0;
    for (unsigned i = 0; i < zone->count; i++)
        job->asked[i] =
            (struct asked){.job = job, .nid = zone->backups[i].nid, .disk = zone->backups[i].disk};
}

/* --- PREPARES ---------------------------------------------------------------------------------- */

/* Whether the backup has no replica that could be recovered, now or later. */
static bool is_none(enum shoal_err err)
{
    return err == SHOAL_ENONAME || err == SHOAL_ECORRUPT || err == SHOAL_EDIFFERS;
}

static void prepared(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    SH_ASSERT(asked->is_asking);
    asked->is_asking = false;
    if (!err) {
        asked->end = sh_get64(payload);
        uint64_t disk = sh_get64(payload);
        uint8_t flags = sh_get8(payload);
        asked->is_whole = flags & SH_PREPARED_WHOLE;
        if (!sh_reader_done(payload) || disk != asked->disk)
            err = SHOAL_EDIFFERS; /* another disk: what was on the recorded one is not there */
    }
    if (!err)
        asked->state = ASKED_HAS;
    else if (is_none(err))
        asked->state = ASKED_HAS_NONE;
    else if (err == SHOAL_EIO)
        asked->state = ASKED_FAILED;
    uint64_t pause_ns = asked->pause_ns ? 2 * asked->pause_ns : AGAIN_NS;
    asked->pause_ns = pause_ns < AGAIN_MAX_NS ? pause_ns : AGAIN_MAX_NS;
    asked->due_ns = now_of(asked->job->superpeer) + asked->pause_ns;
}

static void prepare_ask(struct asked *asked, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = asked->job->superpeer;
    struct sh_out out;
    asked->request = (struct sh_request){.done = prepared, .arg = asked, .timeout_ns = ANSWER_NS};
    asked->due_ns = now_ns + AGAIN_NS;
    if (sh_msg_request(superpeer->msg, asked->nid, SH_CLUSTER_PREPARE, SH_PREPARE_BYTES,
                       &asked->request, &out))
        return;
    asked->is_asking = true;
    sh_put64(&out.w, asked->job->zone);
    sh_put64(&out.w, asked->job->made_life);
    sh_msg_end(superpeer->msg, &out);
}

/* A backup that was started again: what it has said, its former process had said, in whose memory there may have been more. */
static void asked_renew(struct asked *asked, uint64_t instance)
{
    if (asked->is_asking)
        (void)sh_msg_cancel(asked->job->superpeer->msg, &asked->request);
    *asked = (struct asked){
        .job = asked->job, .nid = asked->nid, .disk = asked->disk, .instance = instance};
}

/* Asks the backups that are up and have not answered. False: one may still answer. */
static bool prepares_step(struct job *job, uint64_t now_ns)
{
    bool are_all = true;
    for (unsigned i = 0; i < job->count; i++) {
        struct asked *asked = &job->asked[i];
        uint64_t instance = instance_up(job->superpeer, asked->nid);
        if (instance && instance != asked->instance)
            asked_renew(asked, instance);
        if (asked->state != ASKED_NOT || !instance)
            continue;
        are_all = false;
        if (!asked->is_asking && now_ns >= asked->due_ns)
            prepare_ask(asked, now_ns);
    }
    return are_all;
}

/* How many other zones a node brings back by this superpeer's order. */
static unsigned load_of(const struct job *job, shoal_nid nid)
{
    const struct sh_recoveries *recoveries = job->superpeer->recoveries;
    unsigned load = 0;
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        const struct job *other = &recoveries->jobs[i];
        load += other != job && other->zone && other->chosen.v == nid.v;
    }
    return load;
}

/* Whether the node's disk never comes back, as an operator has declared. */
static bool is_disk_lost(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = node_of(superpeer, nid);
    return node && node->is_disk_lost;
}

/* Whether the backup has a replica, and the process is up that has said so. */
static bool has_replica(const struct sh_superpeer *superpeer, const struct asked *asked)
{
    return asked->state == ASKED_HAS && instance_up(superpeer, asked->nid) == asked->instance;
}

/* Whether the backup may say one day that it has a replica. What one has said that is not up now, its next process may say otherwise,
 * also where it has left, unless its disk is lost. */
static bool may_return(const struct sh_superpeer *superpeer, const struct asked *asked)
{
    uint64_t instance = instance_up(superpeer, asked->nid);
    bool has_answered = asked->state != ASKED_NOT && asked->state != ASKED_FAILED;
    if (!instance)
        return !is_disk_lost(superpeer, asked->nid);
    return instance != asked->instance || !has_answered;
}

/* Whether one replica has more that counts. One that is not whole may end later, by what was never acknowledged: a restorer that failed has given the same
 * numbers again. Of whole ones each has all that counts. */
static bool is_further(const struct asked *asked, const struct asked *other)
{
    if (asked->is_whole != other->is_whole)
        return asked->is_whole;
    return asked->end > other->end;
}

/* The backup whose replica goes furthest, and of several the node that has least to do. EAGAIN: others have to answer first. ENOCHUNK: there
 * is no replica any more. */
static enum shoal_err choose(const struct job *job, shoal_nid *nid_out)
{
    const struct asked *best = NULL;
    bool is_any_whole = false, may_any_return = false;
    unsigned best_load = 0;
    for (unsigned i = 0; i < job->count; i++) {
        const struct asked *asked = &job->asked[i];
        may_any_return |= may_return(job->superpeer, asked);
        if (!has_replica(job->superpeer, asked))
            continue;
        is_any_whole |= asked->is_whole;
        unsigned load = load_of(job, asked->nid);
        bool is_better =
            !best || is_further(asked, best) || (!is_further(best, asked) && load < best_load);
        if (is_better) {
            best = asked;
            best_load = load;
        }
    }
    if (!is_any_whole && may_any_return)
        return SHOAL_EAGAIN;
    *nid_out = best ? best->nid : SHOAL_NID_NONE;
    return best ? SHOAL_OK : SHOAL_ENOCHUNK;
}

/* Whether changes that were acknowledged may be missing in each replica that there is: the processes that had them all in their memory are no more, and a
 * replica is lost, or on a disk that does not come back, that may have more. Where all recorded replicas are there the longest has all that any disk had. */
static bool is_older(const struct job *job)
{
    bool is_any_whole = false, has_all = true;
    for (unsigned i = 0; i < job->count; i++) {
        bool has = has_replica(job->superpeer, &job->asked[i]);
        is_any_whole |= has && job->asked[i].is_whole;
        has_all &= has;
    }
    return !is_any_whole && !has_all;
}

/* --- CHANGES ----------------------------------------------------------------------------------- */

/* kind: SH_METADATA_ZONE_CHANGE to what the zone says, or SH_METADATA_ZONE_REMOVE. */
static void record_order(struct job *job, uint8_t kind, const struct sh_zone *zone)
{
    struct sh_superpeer *superpeer = job->superpeer;
    struct sh_metadata_update update = {.kind = kind,
                                        .condition = SH_ZONE_BY_OTHER,
                                        .from = {(uint16_t)(superpeer->index + 1)},
                                        .sequence = 1,
                                        .zone = *zone};
    update.zone.flags &= (uint8_t)~SH_ZONE_OLD;
    /* If it is not ordered, or not carried out, it is again. */
    enum shoal_err err = sh_superpeer_ring_order(superpeer, sh_zone_shard(zone->id), &update);
    job->due_ns = now_of(superpeer) + (err ? AGAIN_NS : REMIND_NS);
}

/* The record is to name the next owner, and the one that failed. An owner that is one of its own backups had brought the zone back, and no other backup has all of it yet. */
static void owner_order(struct job *job, const struct sh_zone *record)
{
    const struct sh_node *node = node_of(job->superpeer, job->chosen);
    struct sh_zone zone = *record;
    SH_ASSERT(node && node->state == SH_NODE_UP);
    bool is_again = zone.former.v || sh_zone_has_backup(&zone, zone.owner, 0);
    /* Notes that were made anew do not say for which zone a node took what it has. */
    bool was_back = is_again && !zone.former.v && !job->superpeer->ring->gather.has_noted;
    if (!zone.former.v)
        sh_zone_former_set(&zone, zone.owner, zone.life);
    zone.flags |= is_again ? SH_ZONE_AGAIN : 0;
    zone.flags |= was_back ? SH_ZONE_TAKEN : 0;
    if (is_older(job))
        sh_zone_older_set(&zone, zone.older + 1);
    zone.owner = node->nid;
    zone.life = node->instance;
    SH_INFO("cluster", "a zone gets another owner, which brings it back", SH_U64("zone", zone.id),
            SH_U64("former", zone.former.v), SH_U64("owner", zone.owner.v));
    record_order(job, SH_METADATA_ZONE_CHANGE, &zone);
}

/* Whether the zone has no backup, and never had any: the record has the incarnation with which each zone begins, and that rises with each change of backups
 * or owner. Of an old record, changes may be missing. */
static bool never_had_backup(const struct sh_zone *zone)
{
    return !zone->count && zone->incarnation == 1 && !zone->former.v &&
           !(zone->flags & SH_ZONE_OLD);
}

/* No change in a zone that never had a backup was acknowledged as replicated or durable: nothing is lost that counts. */
static void removal_order(struct job *job, const struct sh_zone *record)
{
    SH_ASSERT(never_had_backup(record));
    SH_WARN("cluster",
            "a zone ends with its owner: it never had a backup, so no change in it was "
            "acknowledged as replicated",
            SH_U64("zone", record->id), SH_U64("owner", record->owner.v));
    record_order(job, SH_METADATA_ZONE_REMOVE, record);
}

static void lost_order(struct job *job, const struct sh_zone *record)
{
    struct sh_zone zone = *record;
    zone.flags |= SH_ZONE_LOST;
    SH_ERROR("cluster", "no backup of a zone has a replica any more: its chunks are lost",
             SH_U64("zone", zone.id), SH_U64("owner", zone.owner.v), SH_U64("first", zone.first.v),
             SH_U64("last", zone.last.v));
    record_order(job, SH_METADATA_ZONE_CHANGE, &zone);
}

/* Of a zone whose owner's life is over. */
static void owner_find(struct job *job, const struct sh_zone *zone, uint64_t now_ns)
{
    if (job->phase != JOB_PREPARES || job->version != zone->version)
        prepares_begin(job, zone, now_ns);
    bool have_all = prepares_step(job, now_ns);
    uint64_t until_ns = have_all ? job->due_ns : job->begun_ns + PATIENCE_NS;
    until_ns = job->due_ns > until_ns ? job->due_ns : until_ns;
    job->wake_ns = until_ns;
    if (now_ns < until_ns)
        return;
    enum shoal_err err = choose(job, &job->chosen);
    if (err == SHOAL_OK)
        owner_order(job, zone);
    else if (err == SHOAL_ENOCHUNK && never_had_backup(zone))
        removal_order(job, zone);
    else if (err == SHOAL_ENOCHUNK)
        lost_order(job, zone);
    else
        job->due_ns = now_ns + LOOK_NS;
    job->wake_ns = job->due_ns;
}

/* --- TELLS ------------------------------------------------------------------------------------- */

static void told(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct job *job = request->arg;
    struct sh_restore_progress progress;
    SH_ASSERT(job->is_telling);
    job->is_telling = false;
    if (!err && sh_restore_progress_get(payload, &progress)) {
        /* Until the owner has read the zone, there was no room with the owner before. */
        bool is_read = progress.phase > SH_RESTORE_READS && progress.phase < SH_RESTORE_RETRIES;
        if (!progress.missing && !is_read)
            progress.missing = job->progress.missing;
        job->progress = progress;
    }
    uint64_t pause_ns = job->pause_ns ? 2 * job->pause_ns : AGAIN_NS;
    job->pause_ns = !err ? REMIND_NS : pause_ns < AGAIN_MAX_NS ? pause_ns : AGAIN_MAX_NS;
    job->wake_ns = job->tell_ns = now_of(job->superpeer) + job->pause_ns;
}

static void tells_begin(struct job *job, const struct sh_zone *zone)
{
    requests_cancel(job);
    job->phase = JOB_TELLS;
    job->chosen = zone->owner;
    job->tell_ns = job->pause_ns = 0;
    /* What there was no room for with an owner before, the next one does not know until it has tried. */
    job->progress =
        (struct sh_restore_progress){.phase = SH_RESTORE_UNKNOWN, .missing = job->progress.missing};
}

static void owner_tell(struct job *job, const struct sh_zone *zone, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = job->superpeer;
    struct sh_out out;
    if (job->phase != JOB_TELLS || job->chosen.v != zone->owner.v)
        tells_begin(job, zone);
    job->wake_ns = job->is_telling ? SH_NEVER : job->tell_ns;
    if (job->is_telling || now_ns < job->tell_ns)
        return;
    job->wake_ns = job->tell_ns = now_ns + AGAIN_NS;
    job->request = (struct sh_request){.done = told, .arg = job, .timeout_ns = ANSWER_NS};
    if (sh_msg_request(superpeer->msg, zone->owner, SH_CLUSTER_RECOVER, SH_RECOVER_BYTES,
                       &job->request, &out))
        return;
    job->is_telling = true;
    sh_put64(&out.w, job->zone);
    sh_put64(&out.w, sh_registry_view(superpeer->registry)->epoch);
    sh_msg_end(superpeer->msg, &out);
}

static void job_step(struct job *job, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = job->superpeer;
    struct sh_zone zone;
    shoal_nid other;
    job->is_changed = false;
    bool is_here = !sh_superpeer_ring_reads(superpeer, sh_zone_shard(job->zone), &other) &&
                   sh_metadata_zone(superpeer->ring->metadata, job->zone, &zone);
    if (!is_here || !is_undone(superpeer, &zone)) {
        job_end(job);
    } else if (is_over(superpeer, &zone)) {
        owner_find(job, &zone, now_ns);
    } else {
        owner_tell(job, &zone, now_ns);
    }
}

/* Answers come at any time: a step is due soon after. */
static uint64_t job_due_ns(const struct job *job, uint64_t now_ns)
{
    uint64_t due_ns = job->wake_ns;
    bool is_asking = job->is_telling;
    if (job->is_changed || job->phase == JOB_NEW)
        return 0;
    for (unsigned i = 0; job->phase == JOB_PREPARES && i < job->count; i++) {
        const struct asked *asked = &job->asked[i];
        is_asking |= asked->is_asking;
        bool waits = asked->state == ASKED_NOT && !asked->is_asking && asked->instance;
        if (waits && instance_up(job->superpeer, asked->nid) && asked->due_ns < due_ns)
            due_ns = asked->due_ns;
    }
    uint64_t soon_ns = now_ns + AGAIN_NS / 4;
    return is_asking && soon_ns < due_ns ? soon_ns : due_ns;
}

bool sh_superpeer_recoveries_look(const struct sh_superpeer *superpeer,
                                  struct sh_recovery *recovery)
{
    const struct sh_zone *zone = &recovery->zone;
    struct job *job = superpeer->recoveries ? job_find(superpeer->recoveries, zone->id) : NULL;
    recovery->waits = 0;
    recovery->progress = (struct sh_restore_progress){.phase = SH_RESTORE_UNKNOWN};
    recovery->state = zone->flags & SH_ZONE_LOST ? SH_RECOVERY_LOST : SH_RECOVERY_OLDER;
    if (!is_undone(superpeer, zone))
        return zone->flags & SH_ZONE_LOST || zone->older;
    recovery->state = SH_RECOVERY_RESTORES;
    if (!is_over(superpeer, zone)) {
        if (job && job->phase == JOB_TELLS && job->chosen.v == zone->owner.v)
            recovery->progress = job->progress;
        return true;
    }
    recovery->state = SH_RECOVERY_ASKS;
    shoal_nid nid;
    bool waits = job && job->phase == JOB_PREPARES && job->version == zone->version &&
                 choose(job, &nid) == SHOAL_EAGAIN;
    for (unsigned i = 0; waits && i < job->count; i++) {
        bool is_away = !instance_up(superpeer, job->asked[i].nid);
        recovery->waits |= (uint8_t)((is_away && may_return(superpeer, &job->asked[i])) << i);
    }
    if (recovery->waits)
        recovery->state = SH_RECOVERY_WAITS;
    return true;
}

/* --- Looking at all records -------------------------------------------------------------------- */

/* The shards that this superpeer may answer for. */
static uint64_t own_shards(struct sh_superpeer *superpeer)
{
    uint64_t shards = 0;
    shoal_nid other;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        shards |= (uint64_t)!sh_superpeer_ring_reads(superpeer, i, &other) << i;
    return shards;
}

/* Rises with each change of who has which shard. */
static uint64_t table_of(const struct sh_superpeer *superpeer)
{
    uint64_t table = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        table += superpeer->ring->seen.shards[i].version;
    return table;
}

static void look_begin(struct sh_superpeer *superpeer)
{
    struct sh_recoveries *recoveries = superpeer->recoveries;
    recoveries->is_looking = true;
    recoveries->due_ns = SH_NEVER;
    recoveries->has_found = false;
    recoveries->shard = 0;
    recoveries->after = 0;
    recoveries->table = table_of(superpeer);
    memset(&recoveries->found, 0, sizeof recoveries->found);
    recoveries->found.epoch = sh_registry_view(superpeer->registry)->epoch;
    recoveries->found.shards = own_shards(superpeer);
}

static void look_end(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_recoveries *recoveries = superpeer->recoveries;
    recoveries->is_looking = false;
    recoveries->looked_table = recoveries->table;
    recoveries->found.shards &= own_shards(superpeer);
    if (memcmp(&recoveries->known, &recoveries->found, sizeof recoveries->known) != 0)
        recoveries->number++;
    recoveries->known = recoveries->found;
    /* It is due at once if a zone came that this look may have passed. */
    if (recoveries->due_ns && recoveries->has_found)
        recoveries->due_ns = now_ns + LOOK_NS;
}

/* Notes in a set of nodes those as whose chunks of a zone may be noted that is not with its owner: the one that failed; the former owner; and a restorer that failed, after
 * which another one came. That one the record does not name: it is found by the creator of the zone that the note names. */
static void owners_note(uint64_t *bits, const struct sh_zone *zone, bool is_owner)
{
    bit_set(bits, sh_zone_creator(zone->id));
    if (is_owner)
        bit_set(bits, zone->owner);
    if (zone->former.v)
        bit_set(bits, zone->former);
}

/* Notes a zone that is to be recovered. False: there is no place for a job now. */
static bool zone_note(struct sh_superpeer *superpeer, const struct sh_zone *zone)
{
    struct sh_recoveries *recoveries = superpeer->recoveries;
    recoveries->has_found = true;
    owners_note(recoveries->found.owners.undone, zone, is_over(superpeer, zone));
    if (job_find(recoveries, zone->id))
        return true;
    struct job *job = job_find(recoveries, 0);
    if (!job)
        return false;
    *job = (struct job){.superpeer = superpeer, .zone = zone->id};
    recoveries->jobs_count++;
    return true;
}

static void look_some(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_recoveries *recoveries = superpeer->recoveries;
    const struct sh_metadata *metadata = superpeer->ring->metadata;
    struct sh_zone zone;
    for (unsigned i = 0; i < LOOKS_MAX; i++) {
        while (recoveries->shard < SH_SHARDS &&
               (!(recoveries->found.shards >> recoveries->shard & 1) ||
                !sh_metadata_zone_next(metadata, recoveries->shard, recoveries->after, &zone))) {
            recoveries->shard++;
            recoveries->after = 0;
        }
        if (recoveries->shard == SH_SHARDS) {
            look_end(superpeer, now_ns);
            return;
        }
        recoveries->after = zone.id;
        if (zone.flags & SH_ZONE_LOST)
            owners_note(recoveries->found.owners.lost, &zone, true);
        if (is_undone(superpeer, &zone) && !zone_note(superpeer, &zone))
            continue; /* it is found by the next look */
    }
}

/* Whether the last look was in this view, and with this table. */
static bool is_look_new(const struct sh_superpeer *superpeer)
{
    const struct sh_recoveries *recoveries = superpeer->recoveries;
    return recoveries->known.epoch == sh_registry_view(superpeer->registry)->epoch &&
           recoveries->looked_table == table_of(superpeer);
}

static bool is_look_due(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    return !is_look_new(superpeer) || now_ns >= superpeer->recoveries->due_ns;
}

const struct sh_looked *sh_superpeer_recoveries_looked(const struct sh_superpeer *superpeer,
                                                       uint64_t *number_out)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    if (!superpeer->recoveries || !part || !part->is_started || !is_look_new(superpeer))
        return NULL;
    *number_out = superpeer->recoveries->number;
    return &superpeer->recoveries->known;
}

/* A record that a superpeer had removed was one of a zone that is lost, or was to be recovered: what the last look found is true no more. Owners
 * remove those of empty zones, which no look finds. */
void sh_superpeer_recoveries_changed(struct sh_superpeer *superpeer,
                                     const struct sh_metadata_update *update)
{
    struct sh_recoveries *recoveries = superpeer->recoveries;
    struct sh_zone zone;
    shoal_nid other;
    uint64_t id = update->zone.id;
    bool is_removal = update->kind == SH_METADATA_ZONE_REMOVE;
    if (!recoveries || sh_superpeer_ring_reads(superpeer, sh_zone_shard(id), &other))
        return;
    struct job *job = recoveries->jobs_count ? job_find(recoveries, id) : NULL;
    if (job)
        job->is_changed = true;
    else if (is_removal && !sh_nid_is_peer(update->from))
        recoveries->due_ns = 0;
    else if (sh_metadata_zone(superpeer->ring->metadata, id, &zone) && is_undone(superpeer, &zone))
        recoveries->due_ns = 0; /* it was ordered before the owner's life was over */
}

/* --- Life -------------------------------------------------------------------------------------- */

unsigned sh_superpeer_recoveries_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_recoveries *recoveries = superpeer->recoveries;
    if (!superpeer->ring || !superpeer->ring->is_started)
        return 0;
    bool looks = recoveries->is_looking || is_look_due(superpeer, now_ns) ||
                 own_shards(superpeer) & ~recoveries->known.shards;
    if (looks && !recoveries->is_looking)
        look_begin(superpeer);
    if (looks)
        look_some(superpeer, now_ns);
    for (unsigned i = 0; recoveries->jobs_count && i < JOBS_MAX; i++) {
        if (recoveries->jobs[i].zone)
            job_step(&recoveries->jobs[i], now_ns);
    }
    return looks;
}

uint64_t sh_superpeer_recoveries_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_recoveries *recoveries = superpeer->recoveries;
    if (!superpeer->ring || !superpeer->ring->is_started)
        return SH_NEVER;
    if (recoveries->is_looking || is_look_due(superpeer, now_ns))
        return 0;
    uint64_t due_ns = recoveries->due_ns;
    for (unsigned i = 0; recoveries->jobs_count && i < JOBS_MAX; i++) {
        const struct job *job = &recoveries->jobs[i];
        uint64_t job_ns = job->zone ? job_due_ns(job, now_ns) : SH_NEVER;
        due_ns = job_ns < due_ns ? job_ns : due_ns;
    }
    return due_ns;
}

enum shoal_err sh_superpeer_recoveries_open(struct sh_superpeer *superpeer)
{
    superpeer->recoveries = calloc(1, sizeof *superpeer->recoveries);
    return superpeer->recoveries ? SHOAL_OK : SHOAL_ENOMEM;
}

void sh_superpeer_recoveries_close(struct sh_superpeer *superpeer)
{
    struct sh_recoveries *recoveries = superpeer->recoveries;
    for (unsigned i = 0; recoveries && i < JOBS_MAX; i++) {
        if (recoveries->jobs[i].zone)
            requests_cancel(&recoveries->jobs[i]);
    }
    superpeer->recoveries = NULL;
    free(recoveries);
}
