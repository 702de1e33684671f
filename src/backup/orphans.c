/* Orphans: replicas that nobody needs, whose CLOSE did not come through. The keeper looks for them now and then, over all that its log has, a page at
 * a time, one question after the other:
 *
 *   REST ── a page that got nothing since the last look ──► OWNERS ──► RECORDS ──► REST
 *                                                           │    ▲      │     ▲
 *                                                     KEPT  ▼    │      ▼     │ get
 *                                                        OWNER_ASKED   RECORD_ASKED
 *
 * A replica may be the last one of something that was acknowledged, so it goes only where two agree that it is none:
 *
 * (1) the owner's word, of a life that is up: the zone is its own and has this node neither as a backup nor on the way to be one
 * (ELSEWHERE), or that very life has made the zone and dropped it (DROPPED). So a replica whose owner has failed stays, as does one whose owner
 * does not know the zone: some recovery may want it.
 *
 * (2) the superpeers' record, asked for after that: of ELSEWHERE it is there, that owner's, not old, in no lower incarnation than the
 * replica, and does not name this node or its disk; of DROPPED there is none. So neither a record that was lost nor one that came back late is
 * enough to drop a replica.
 *
 * (3) Nothing was opened or closed here since (1) was asked. The owner makes this node a backup again only by an OPEN that begins anew, which comes
 * here before any record names the node: so what (1) and (2) have said still holds when it is acted on.
 *
 * Then the replica goes as on CLOSE: all or nothing, also in a crash. The keeper asks again in the next round where it is in doubt. */
#include "backup/keeper_int.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

#define ROUND_NS UINT64_C(60000000000)
#define PAGE_NS UINT64_C(50000000)      /* between two pages */
#define ANSWER_NS UINT64_C(2000000000)  /* for which an owner is waited for */
#define RECORD_NS UINT64_C(10000000000) /* and the superpeers */

static uint64_t round_ns(const struct sh_keeper *keeper)
{
    return keeper->config.orphans_ns ? keeper->config.orphans_ns : ROUND_NS;
}

/* The step goes on. */
static void goes_on(struct sh_keeper *keeper, enum sh_orphans_phase phase)
{
    keeper->orphans.phase = phase;
    keeper->config.wake(keeper->config.arg);
}

/* --- A page ------------------------------------------------------------------------------------ */

/* Whether a replica may be an orphan: other nodes' it is, no stream has brought anything since the last look, and its owner is not known to have failed. */
static bool is_suspect(const struct sh_keeper *keeper, const struct sh_replog_look_zone *zone,
                       struct sh_kept *kept)
{
    const struct sh_keeper_config *config = &keeper->config;
    if (!kept)
        return zone->known.has_slots && !zone->known.is_added;
    bool was_quiet = kept->is_quiet;
    kept->is_quiet = true;
    if (!was_quiet || (kept->state != SH_KEPT_LOADED && kept->state != SH_KEPT_OPEN))
        return false;
    return config->life_of(config->arg, kept->owner->nid, kept->life) != SH_KEEPER_LIFE_OVER;
}

/* Takes the next page of replicas; true: there are any that may be orphans. */
static bool page_take(struct sh_keeper *keeper)
{
    struct sh_orphans *orphans = &keeper->orphans;
    struct sh_replog_look_zone zones[SH_REPLICATION_KEPT_MAX];
    size_t count =
        sh_replog_look_zones(keeper->config.log, &orphans->cursor, zones, SH_REPLICATION_KEPT_MAX);
    orphans->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct sh_kept *kept = sh_keeper_find(keeper, zones[i].id);
        shoal_nid owner = kept ? kept->owner->nid : (shoal_nid){zones[i].owner};
        bool is_other = owner.v && owner.v != sh_msg_nid(keeper->config.msg).v;
        if (!is_other || !is_suspect(keeper, &zones[i], kept))
            continue;
        orphans->zones[orphans->count++] =
            (struct sh_orphan){.id = zones[i].id,
                               .owned = kept ? kept->owned : 0,
                               .incarnation = kept ? kept->incarnation : zones[i].known.incarnation,
                               .owner = owner,
                               .need = SH_REPLICATION_NEEDED};
    }
    return orphans->count > 0;
}

static void page_end(struct sh_keeper *keeper, uint64_t now_ns)
{
    struct sh_orphans *orphans = &keeper->orphans;
    uint64_t next_ns = orphans->began_ns + round_ns(keeper);
    orphans->phase = SH_ORPHANS_REST;
    orphans->due_ns = now_ns + PAGE_NS;
    if (!orphans->cursor && next_ns > orphans->due_ns)
        orphans->due_ns = next_ns;
}

/* --- Owners ------------------------------------------------------------------------------------ */

static bool is_in_question(const struct sh_orphans *orphans, const struct sh_orphan *orphan)
{
    return orphan->is_asked && orphan->owner.v == orphans->asked.v;
}

static void on_needs(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_keeper *keeper = request->arg;
    struct sh_orphans *orphans = &keeper->orphans;
    SH_ASSERT(orphans->phase == SH_ORPHANS_OWNER_ASKED);
    uint64_t life = err ? 0 : sh_get64(payload);
    for (unsigned i = 0; !err && i < orphans->count; i++) {
        struct sh_orphan *orphan = &orphans->zones[i];
        if (!is_in_question(orphans, orphan))
            continue;
        orphan->life = life;
        orphan->need = sh_get8(payload);
        if (orphan->need >= SH_REPLICATION_NEEDS)
            err = SHOAL_EPROTO;
    }
    if (!err && !sh_reader_done(payload))
        err = SHOAL_EPROTO;
    for (unsigned i = 0; err && i < orphans->count; i++) {
        if (is_in_question(orphans, &orphans->zones[i]))
            orphans->zones[i].need = SH_REPLICATION_NEEDED;
    }
    goes_on(keeper, SH_ORPHANS_OWNERS);
}

/* Asks the next owner of the page's replicas; false: all were. */
static bool owner_ask(struct sh_keeper *keeper)
{
    struct sh_orphans *orphans = &keeper->orphans;
    struct sh_out out;
    unsigned first = 0, count = 0;
    while (first < orphans->count && orphans->zones[first].is_asked)
        first++;
    if (first == orphans->count)
        return false;
    orphans->asked = orphans->zones[first].owner;
    for (unsigned i = first; i < orphans->count; i++) {
        bool is_its = orphans->zones[i].owner.v == orphans->asked.v;
        orphans->zones[i].is_asked |= is_its;
        count += is_its;
    }
    orphans->request =
        (struct sh_request){.done = on_needs, .arg = keeper, .timeout_ns = ANSWER_NS};
    if (sh_msg_request(keeper->config.msg, orphans->asked, SH_REPLICATION_KEPT, 8 * (size_t)count,
                       &orphans->request, &out))
        return true; /* it can't be reached now: its replicas stay */
    for (unsigned i = first; i < orphans->count; i++) {
        if (is_in_question(orphans, &orphans->zones[i]))
            sh_put64(&out.w, orphans->zones[i].id);
    }
    orphans->phase = SH_ORPHANS_OWNER_ASKED;
    sh_msg_end(keeper->config.msg, &out);
    keeper->status.asked += count;
    return true;
}

/* --- Records ----------------------------------------------------------------------------------- */

/* Whether the record, or that there is none, agrees with the owner that the replica is an orphan. */
static bool is_orphan(const struct sh_keeper *keeper, const struct sh_orphan *orphan,
                      enum shoal_err err, const struct sh_zone_answer *answer)
{
    const struct sh_zone *zone = &answer->zone;
    if (orphan->need == SH_REPLICATION_DROPPED)
        return err == SHOAL_ENONAME && !answer->is_there;
    bool is_its = !err && answer->is_there && !(zone->flags & SH_ZONE_OLD) &&
                  zone->owner.v == orphan->owner.v && zone->life == orphan->life;
    return is_its && zone->incarnation >= orphan->incarnation &&
           !sh_zone_has_backup(zone, sh_msg_nid(keeper->config.msg), 0) &&
           !sh_zone_has_backup(zone, SHOAL_NID_NONE, keeper->config.disk_id);
}

static void orphan_drop(struct sh_keeper *keeper, const struct sh_orphan *orphan,
                        uint32_t incarnation)
{
    const struct sh_kept *kept = sh_keeper_find(keeper, orphan->id);
    const struct sh_replication_close close = {
        .zone = orphan->id, .incarnation = incarnation, .life = orphan->life};
    if ((kept ? kept->owned : 0) != orphan->owned)
        return;
    enum shoal_err err = sh_keeper_close(keeper, &close, orphan->owner);
    kept = sh_keeper_find(keeper, orphan->id);
    if (err != SHOAL_EBUSY || !kept || kept->state != SH_KEPT_DROPPING)
        return; /* it is tried again in the next round */
    keeper->status.orphans++;
    SH_INFO("backup", "a replica that nobody needs is dropped", SH_U64("zone", orphan->id),
            SH_U64("owner", orphan->owner.v));
}

static void on_record(struct sh_zone_op *op, enum shoal_err err,
                      const struct sh_zone_answer *answer)
{
    struct sh_keeper *keeper = op->arg;
    struct sh_orphans *orphans = &keeper->orphans;
    SH_ASSERT(orphans->phase == SH_ORPHANS_RECORD_ASKED && orphans->at < orphans->count);
    const struct sh_orphan *orphan = &orphans->zones[orphans->at++];
    orphans->phase = SH_ORPHANS_RECORDS;
    if (err == SHOAL_ESTOPPED)
        return;
    if (answer && is_orphan(keeper, orphan, err, answer))
        orphan_drop(keeper, orphan,
                    answer->is_there ? answer->zone.incarnation : orphan->incarnation);
    goes_on(keeper, SH_ORPHANS_RECORDS);
}

/* Asks for the next record; false: there is none left. */
static bool record_ask(struct sh_keeper *keeper, uint64_t now_ns)
{
    struct sh_orphans *orphans = &keeper->orphans;
    while (orphans->at < orphans->count &&
           orphans->zones[orphans->at].need == SH_REPLICATION_NEEDED)
        orphans->at++;
    if (orphans->at == orphans->count)
        return false;
    orphans->op =
        (struct sh_zone_op){.done = on_record, .arg = keeper, .deadline_ns = now_ns + RECORD_NS};
    orphans->phase = SH_ORPHANS_RECORD_ASKED;
    keeper->config.record_get(keeper->config.arg, orphans->zones[orphans->at].id, &orphans->op);
    return true;
}

/* --- The step ---------------------------------------------------------------------------------- */

/* Begins the first round after a time of its own, so that backups that were started together do not all ask at once. */
static void first_set(struct sh_keeper *keeper, uint64_t now_ns)
{
    uint64_t each_ns = round_ns(keeper);
    keeper->orphans.began_ns = now_ns;
    keeper->orphans.due_ns = now_ns + each_ns / 2 + sh_mix64(keeper->config.disk_id) % each_ns;
}

static unsigned rest_step(struct sh_keeper *keeper, uint64_t now_ns)
{
    struct sh_orphans *orphans = &keeper->orphans;
    if (!orphans->due_ns)
        first_set(keeper, now_ns);
    if (now_ns < orphans->due_ns || sh_replog_trouble(keeper->config.log))
        return 0;
    if (!orphans->cursor)
        orphans->began_ns = now_ns;
    if (page_take(keeper))
        orphans->phase = SH_ORPHANS_OWNERS;
    else
        page_end(keeper, now_ns);
    return 1;
}

unsigned sh_keeper_orphans_step(struct sh_keeper *keeper, uint64_t now_ns)
{
    struct sh_orphans *orphans = &keeper->orphans;
    SH_ASSERT(keeper->config.log);
    if (!keeper->config.record_get)
        return 0;
    switch (orphans->phase) {
    case SH_ORPHANS_REST:
        return rest_step(keeper, now_ns);
    case SH_ORPHANS_OWNERS:
        orphans->at = 0;
        if (!owner_ask(keeper))
            orphans->phase = SH_ORPHANS_RECORDS;
        return 1;
    case SH_ORPHANS_RECORDS:
        if (!record_ask(keeper, now_ns))
            page_end(keeper, now_ns);
        return 1;
    case SH_ORPHANS_OWNER_ASKED:
    case SH_ORPHANS_RECORD_ASKED:
        break;
    }
    return 0;
}

uint64_t sh_keeper_orphans_due_ns(const struct sh_keeper *keeper)
{
    const struct sh_orphans *orphans = &keeper->orphans;
    if (!keeper->config.log || !keeper->config.record_get || sh_replog_trouble(keeper->config.log))
        return UINT64_MAX;
    switch (orphans->phase) {
    case SH_ORPHANS_REST:
        return orphans->due_ns;
    case SH_ORPHANS_OWNERS:
    case SH_ORPHANS_RECORDS:
        return 0;
    case SH_ORPHANS_OWNER_ASKED:
    case SH_ORPHANS_RECORD_ASKED:
        break;
    }
    return UINT64_MAX;
}

void sh_keeper_orphans_end(struct sh_keeper *keeper)
{
    struct sh_orphans *orphans = &keeper->orphans;
    SH_ASSERT(orphans->phase != SH_ORPHANS_RECORD_ASKED);
    if (orphans->phase == SH_ORPHANS_OWNER_ASKED)
        (void)sh_msg_cancel(keeper->config.msg, &orphans->request);
    orphans->phase = SH_ORPHANS_REST;
}
