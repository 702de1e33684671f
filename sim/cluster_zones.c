/* Peers make zones, change and remove their records, take over those of peers that are gone, read and list them
 * (cluster/zones.h), while superpeers are killed. What was acknowledged is there, whichever superpeer answers:
 *
 *   - each version of a record is one content for good, told to whoever asks;
 *   - who asks is told no version below one that was acknowledged, or told to anybody, before;
 *   - a change that was acknowledged is the version behind the one that it named, by the life that owned that
 *     one, or by its next owner;
 *   - the incarnation rises with each change of the owner or the backups, and with no other;
 *   - a zone whose removal was acknowledged is gone for ever, and none is gone whose removal was not begun, but such as never had a backup;
 *   - lists have all zones that were there before and stay. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cluster/zones.h"
#include "node/identity.h"
#include "sim/cluster_world_int.h"
#include "sim/world_int.h"

#define ZONES 48
#define VERSIONS 64 /* of a zone, that are remembered */
#define WORKERS 2   /* of a peer */
#define GAP_NS_MAX (60 * CW_MS)
#define CALL_NS (4 * CW_S)

enum zone_act { ZONE_NEW, ZONE_CHANGE, ZONE_TAKE, ZONE_REMOVE, ZONE_GET, ZONE_LIST };

struct version {
    struct sh_zone zone;
    bool is_whole; /* its incarnation is known too */
};

/* What is known of a zone from outside. */
struct zone {
    bool is_used;
    uint64_t id;
    uint32_t
        seen; /* the highest version that was acknowledged or read; 0: nobody knows that it was made */
    bool is_removing,
        is_removed;    /* a removal was begun; acknowledged, or it was refused for good */
    bool is_read;      /* since the last fault */
    unsigned changing; /* changes that were begun, and are under way or ended without an answer */
    struct version versions[VERSIONS];
};

struct worker {
    struct cw_host *host;
    enum zone_act act;
    bool is_busy;
    unsigned at; /* the zone */
    uint64_t id; /* its ID: the place may be another zone's by then */
    uint32_t seen;
    bool was_removed;
    uint64_t life, due_ns;
    struct sh_zone asked;
    struct sh_zone_op op;
    struct sh_zone_list list;
    uint64_t expected[ZONES]; /* zones that a list is to have, by their places; 0: none */
    uint64_t listed;          /* places: bit n is zones[n] */
};

/* A peer's process. */
struct cw_zone_peer {
    struct sh_zones *zones;
    uint64_t last; /* number that it has given, as far as it knows */
    bool is_closing;
    bool is_listed; /* since the last fault */
    struct worker workers[WORKERS];
};

struct cw_zones {
    struct zone zones[ZONES];
};

static struct zone *zone_at(struct cw_world *world, unsigned at)
{
    return &world->zones->zones[at];
}

/* --- What is known --------------------------------------------------------------------------- */

static bool has_same_holders(const struct sh_zone *a, const struct sh_zone *b)
{
    struct sh_zone as = *b;
    sh_zone_former_set(&as, a->former, a->former_life);
    as.flags = a->flags;
    as.wanted = a->wanted;
    as.first = a->first;
    as.last = a->last;
    return sh_zone_is_same(a, &as);
}

static struct version *version_of(struct zone *zone, uint32_t version)
{
    struct version *at = &zone->versions[version % VERSIONS];
    return at->zone.version == version ? at : NULL;
}

/* A version's content is known, with its incarnation if is_whole. */
static void version_see(struct cw_world *world, struct zone *zone, const struct sh_zone *seen,
                        bool is_whole)
{
    struct version *at = version_of(zone, seen->version);
    if (seen->version + VERSIONS <= zone->seen)
        return; /* long ago */
    if (!at) {
        at = &zone->versions[seen->version % VERSIONS];
        *at = (struct version){.zone = *seen, .is_whole = is_whole};
    }
    CW_HOLDS(world, sh_zone_is_same(&at->zone, seen),
             "two different contents of version %u of zone %" PRIx64, seen->version, zone->id);
    CW_HOLDS(world, !at->is_whole || !is_whole || at->zone.incarnation == seen->incarnation,
             "version %u of zone %" PRIx64 " has two incarnations", seen->version, zone->id);
    if (is_whole) {
        at->zone.incarnation = seen->incarnation;
        at->is_whole = true;
    }
    const struct version *before = version_of(zone, seen->version - 1);
    if (at->is_whole && before && before->is_whole) {
        uint32_t rise = !has_same_holders(&before->zone, &at->zone);
        CW_HOLDS(world, at->zone.incarnation == before->zone.incarnation + rise,
                 "zone %" PRIx64 " came to incarnation %u from %u, with version %u", zone->id,
                 at->zone.incarnation, before->zone.incarnation, seen->version);
    }
    if (seen->version > zone->seen)
        zone->seen = seen->version;
}

/* Whether superpeers remove it once its owner has failed: it never had a backup. */
static bool has_none_to_keep_it(struct zone *zone)
{
    const struct version *at = version_of(zone, zone->seen);
    return at && at->is_whole && at->zone.incarnation == 1 && !at->zone.count;
}

/* A record, or that there is none, as an answer to what was asked when `seen` was the highest version. */
static void record_see(struct cw_world *world, const struct worker *worker, struct zone *zone,
                       const struct sh_zone_answer *answer)
{
    CW_HOLDS(world, !answer->is_doubtful, "zones are said to be lost, though no disk is");
    if (!answer->is_there) {
        zone->is_removing |= has_none_to_keep_it(zone);
        CW_HOLDS(world, zone->is_removing || zone->is_removed || !worker->seen,
                 "zone %" PRIx64 ", which was there, is gone", zone->id);
        return;
    }
    CW_HOLDS(world, !worker->was_removed, "zone %" PRIx64 ", which was removed, is there",
             zone->id);
    CW_HOLDS(world, answer->zone.version >= worker->seen,
             "zone %" PRIx64 " has version %u, and had %u before", zone->id, answer->zone.version,
             worker->seen);
    version_see(world, zone, &answer->zone, true);
}

/* A change was acknowledged: the version behind the one it named is what it asked for. */
static void change_see(struct cw_world *world, const struct worker *worker, struct zone *zone)
{
    struct sh_zone made = worker->asked;
    const struct version *before = version_of(zone, made.version);
    shoal_nid nid = sh_msg_nid(worker->host->msg);
    made.version++;
    version_see(world, zone, &made, false);
    if (!before)
        return;
    bool is_owner = before->zone.owner.v == nid.v && before->zone.life == worker->life;
    bool is_heir = made.owner.v == nid.v && made.life == worker->life;
    CW_HOLDS(world, is_owner || is_heir,
             "zone %" PRIx64 " was changed from version %u by node %u, which does not own it",
             zone->id, made.version - 1, nid.v);
}

/* --- Answers --------------------------------------------------------------------------------- */

static void worker_over(struct worker *worker)
{
    struct cw_host *host = worker->host;
    uint64_t most_ns = host->world->ends ? 10 * CW_MS : GAP_NS_MAX;
    worker->is_busy = false;
    worker->due_ns = cw_now(host) + cw_below(host->world, most_ns);
}

static void update_see(struct cw_world *world, struct worker *worker, struct zone *zone,
                       enum shoal_err err, const struct sh_zone_answer *answer)
{
    if (worker->act == ZONE_NEW && err == SHOAL_ECANCELED) {
        /* Whose answer was lost asks again, and is refused too once the zone has come and gone. */
        CW_HOLDS(world,
                 (!zone->seen || zone->is_removing) && answer->last >= sh_zone_number(zone->id),
                 "zone %" PRIx64 " was refused, and is there", zone->id);
        zone->is_removed = true; /* it will never be */
    }
    if (worker->act == ZONE_NEW && answer->last > worker->host->zones->last)
        worker->host->zones->last = answer->last;
    CW_HOLDS(world, worker->act != ZONE_NEW || err != SHOAL_EEXIST,
             "zone %" PRIx64 " is another life's", zone->id);
    if (err)
        return;
    if (worker->act == ZONE_NEW && answer->is_there && answer->zone.version == 1)
        CW_HOLDS(world, sh_zone_is_same(&answer->zone, &worker->asked),
                 "zone %" PRIx64 " was made, but otherwise", zone->id);
    if (worker->act == ZONE_CHANGE || worker->act == ZONE_TAKE)
        change_see(world, worker, zone);
    if (worker->act == ZONE_REMOVE)
        zone->is_removed = true;
    world->result->zones++;
}

static void on_done(struct sh_zone_op *op, enum shoal_err err, const struct sh_zone_answer *answer)
{
    struct worker *worker = op->arg;
    struct cw_host *host = worker->host;
    struct cw_world *world = host->world;
    struct zone *zone = zone_at(world, worker->at);
    if (host->zones->is_closing)
        return;
    cw_tell(world, host->node, "zone answered(zone, error)", worker->id, (uint64_t)err);
    if (answer && zone->id == worker->id) {
        zone->changing -= worker->act == ZONE_CHANGE || worker->act == ZONE_TAKE;
        record_see(world, worker, zone, answer);
        update_see(world, worker, zone, err, answer);
        zone->is_read |= worker->act == ZONE_GET;
    }
    worker_over(worker);
}

static void on_each(struct sh_zone_list *list, const struct sh_zone *found)
{
    struct worker *worker = list->arg;
    for (unsigned i = 0; i < ZONES; i++) {
        struct zone *zone = zone_at(worker->host->world, i);
        if (zone->is_used && zone->id == found->id) {
            worker->listed |= UINT64_C(1) << i;
            version_see(worker->host->world, zone, found, true);
        }
    }
}

static void on_listed(struct sh_zone_list *list, enum shoal_err err)
{
    struct worker *worker = list->arg;
    struct cw_host *host = worker->host;
    if (host->zones->is_closing)
        return;
    for (unsigned i = 0; !err && i < ZONES; i++) {
        struct zone *zone = zone_at(host->world, i);
        bool is_expected = zone->is_used && worker->expected[i] == zone->id && !zone->is_removing &&
                           !has_none_to_keep_it(zone);
        CW_HOLDS(host->world, !is_expected || worker->listed >> i & 1,
                 "zone %" PRIx64 " is not in the list of node %u", zone->id, list->nid.v);
    }
    if (!err && host->world->ends)
        host->zones->is_listed = true;
    worker_over(worker);
}

/* --- Asking ---------------------------------------------------------------------------------- */

/* A disk of a peer: each has two. */
static struct sh_zone_backup backup_draw(struct cw_world *world)
{
    const struct cw_host *host = cw_peer(world, (unsigned)cw_below(world, world->config.peers));
    if (!cw_is_joined(host))
        return (struct sh_zone_backup){SHOAL_NID_NONE, 0};
    return (struct sh_zone_backup){sh_msg_nid(host->msg), 2u * host->node + 1 + cw_below(world, 2)};
}

static void backups_draw(struct cw_world *world, struct sh_zone *zone)
{
    unsigned wanted = (unsigned)cw_below(world, SH_ZONE_BACKUPS_MAX + 1);
    zone->count = 0;
    for (unsigned i = 0; i < wanted; i++) {
        struct sh_zone_backup backup = backup_draw(world);
        if (backup.nid.v && !sh_zone_has_backup(zone, SHOAL_NID_NONE, backup.disk))
            zone->backups[zone->count++] = backup;
    }
    zone->wanted = (uint8_t)wanted;
}

static void change_draw(struct cw_world *world, struct sh_zone *zone)
{
    shoal_nid creator = sh_zone_creator(zone->id);
    if (cw_below(world, 3)) {
        backups_draw(world, zone);
    } else if (!(zone->flags & SH_ZONE_CONCLUDED)) {
        zone->flags |= SH_ZONE_CONCLUDED;
        zone->first = shoal_cid_make(creator, 1 + cw_below(world, 100));
        zone->last = shoal_cid_make(creator, 100 + cw_below(world, 100));
    } else {
        zone->wanted = (uint8_t)(1 + cw_below(world, SH_ZONE_BACKUPS_MAX));
    }
}

/* The next number of a node that no zone here has. */
static uint64_t number_draw(struct cw_world *world, const struct cw_zone_peer *peer, shoal_nid nid)
{
    uint64_t number = peer->last + 1;
    for (unsigned i = 0; i < ZONES; i++)
        if (zone_at(world, i)->is_used && zone_at(world, i)->id == sh_zone_id(nid, number)) {
            number++;
            i = UINT32_MAX; /* from the first one again */
        }
    return number;
}

static void new_begin(struct worker *worker, struct zone *zone)
{
    struct cw_host *host = worker->host;
    shoal_nid nid = sh_msg_nid(host->msg);
    uint64_t number = number_draw(host->world, host->zones, nid);
    *zone = (struct zone){.is_used = true, .id = sh_zone_id(nid, number)};
    worker->id = zone->id;
    worker->asked = (struct sh_zone){
        .id = zone->id, .owner = nid, .life = worker->life, .incarnation = 1, .version = 1};
    backups_draw(host->world, &worker->asked);
    host->zones->last = number;
    sh_zones_new(host->zones->zones, worker->life, &worker->asked, &worker->op);
}

/* Draws what is done with a zone that is there, or may be. */
static enum zone_act act_draw(struct worker *worker, struct zone *zone)
{
    struct cw_world *world = worker->host->world;
    const struct version *known = version_of(zone, zone->seen);
    uint64_t drawn = cw_below(world, 100);
    if (world->ends || !zone->seen || !known || zone->is_removed || drawn < 20)
        return ZONE_GET;
    bool is_owner =
        known->zone.owner.v == sh_msg_nid(worker->host->msg).v && known->zone.life == worker->life;
    if (!is_owner)
        return drawn < 60 ? ZONE_TAKE : ZONE_GET;
    return drawn < 97 ? ZONE_CHANGE : ZONE_REMOVE;
}

static void act_begin(struct worker *worker, struct zone *zone)
{
    struct cw_host *host = worker->host;
    struct sh_zones *zones = host->zones->zones;
    worker->act = act_draw(worker, zone);
    if (worker->act == ZONE_GET) {
        sh_zones_get(zones, zone->id, &worker->op);
        return;
    }
    worker->asked = version_of(zone, zone->seen)->zone;
    if (worker->act == ZONE_REMOVE) {
        zone->is_removing = true;
        sh_zones_remove(zones, worker->life, zone->id, worker->asked.version, &worker->op);
        return;
    }
    change_draw(host->world, &worker->asked);
    if (worker->act == ZONE_CHANGE && cw_below(host->world, 3) == 0)
        sh_zone_former_set(&worker->asked, SHOAL_NID_NONE, 0);
    if (worker->act == ZONE_TAKE) {
        if (!worker->asked.former.v)
            sh_zone_former_set(&worker->asked, worker->asked.owner, worker->asked.life);
        worker->asked.owner = sh_msg_nid(host->msg);
        worker->asked.life = worker->life;
    }
    zone->changing++;
    worker->asked.version -= worker->asked.version > 1 && cw_below(host->world, 20) == 0;
    sh_zones_change(zones, worker->life, &worker->asked, &worker->op);
}

/* Lists the zones of a node: those that it has created; or, when nothing is changed any more, for which it has a
 * disk. A change that nobody knows the end of may come late. */
static void list_begin(struct worker *worker)
{
    struct cw_host *host = worker->host;
    struct cw_world *world = host->world;
    shoal_nid nid = sh_msg_nid(host->msg);
    enum sh_zones_of by =
        world->ends && cw_below(world, 2) ? SH_ZONES_OF_BACKUP : SH_ZONES_OF_CREATOR;
    worker->act = ZONE_LIST;
    worker->listed = 0;
    for (unsigned i = 0; i < ZONES; i++) {
        struct zone *zone = zone_at(world, i);
        const struct version *known = version_of(zone, zone->seen);
        bool is_there = zone->is_used && zone->seen && !zone->is_removing && known;
        bool is_its = by == SH_ZONES_OF_CREATOR ? sh_zone_creator(zone->id).v == nid.v
                                                : is_there && zone->is_read && !zone->changing &&
                                                      sh_zone_has_backup(&known->zone, nid, 0);
        worker->expected[i] = is_there && is_its ? zone->id : 0;
    }
    worker->list = (struct sh_zone_list){
        .each = on_each, .done = on_listed, .arg = worker, .deadline_ns = cw_now(host) + CALL_NS};
    sh_zones_list(host->zones->zones, by, nid, 0, &worker->list);
}

/* The zone that is to be read after the last fault; ZONES: none. */
static unsigned unread(struct cw_world *world)
{
    unsigned at = 0;
    while (at < ZONES && (!zone_at(world, at)->is_used || zone_at(world, at)->is_read))
        at++;
    return at;
}

static void worker_begin(struct worker *worker)
{
    struct cw_host *host = worker->host;
    struct cw_world *world = host->world;
    unsigned at = world->ends ? unread(world) : (unsigned)cw_below(world, ZONES);
    worker->life = sh_identity_life(host->identity);
    worker->is_busy = true;
    if (at == ZONES || cw_below(world, 30) == 0) {
        list_begin(worker);
        return;
    }
    struct zone *zone = zone_at(world, at);
    if (zone->is_used && zone->is_removed && !world->ends && cw_below(world, 2))
        zone->is_used = false; /* it has been looked at long enough */
    worker->act = ZONE_NEW;
    worker->at = at;
    worker->id = zone->id;
    worker->seen = zone->is_used ? zone->seen : 0;
    worker->was_removed = zone->is_used && zone->is_removed;
    worker->op =
        (struct sh_zone_op){.done = on_done, .arg = worker, .deadline_ns = cw_now(host) + CALL_NS};
    if (zone->is_used)
        act_begin(worker, zone);
    else
        new_begin(worker, zone);
    cw_tell(world, host->node, "asks for zone(act, zone)", worker->act, worker->id);
}

/* --- A peer's step --------------------------------------------------------------------------- */

static bool is_idle(const struct cw_host *host)
{
    return host->world->ends && unread(host->world) == ZONES && host->zones->is_listed;
}

static unsigned run(void *arg)
{
    struct cw_host *host = arg;
    if (!host->zones)
        return 0;
    struct sh_step step = sh_zones_step(host->zones->zones);
    unsigned work = step.run(step.arg);
    for (unsigned i = 0; i < WORKERS && cw_is_joined(host) && !is_idle(host); i++) {
        struct worker *worker = &host->zones->workers[i];
        if (worker->is_busy || cw_now(host) < worker->due_ns)
            continue;
        worker_begin(worker);
        work++;
    }
    return work;
}

static uint64_t due_ns(void *arg)
{
    const struct cw_host *host = arg;
    if (!host->zones)
        return SH_NEVER;
    struct sh_step step = sh_zones_step(host->zones->zones);
    uint64_t due = step.due_ns(step.arg);
    for (unsigned i = 0; i < WORKERS && cw_is_joined(host) && !is_idle(host); i++) {
        const struct worker *worker = &host->zones->workers[i];
        if (!worker->is_busy && worker->due_ns < due)
            due = worker->due_ns;
    }
    return due;
}

void cw_zones_boot(struct cw_host *host)
{
    struct cw_world *world = host->world;
    if (!world->zones)
        return;
    SH_ASSERT(!host->zones && host->msg && host->identity);
    struct cw_zone_peer *peer = sh_sim_alloc(sizeof *peer);
    struct sh_zones_config config = {.msg = host->msg,
                                     .directory = host->directory,
                                     .clock = sh_world_env(world->sim, host->node)->clock};
    enum shoal_err err = sh_zones_create(&config, &peer->zones);
    SH_ASSERT(!err);
    for (unsigned i = 0; i < WORKERS; i++)
        peer->workers[i] =
            (struct worker){.host = host, .due_ns = cw_now(host) + cw_below(world, CW_S)};
    host->zones = peer;
}

void cw_zones_step_add(struct cw_host *host)
{
    if (host->world->zones)
        sh_world_step_add(
            host->world->sim, host->node,
            (struct sh_step){.name = "zones", .run = run, .due_ns = due_ns, .arg = host});
}

void cw_zones_drop(struct cw_host *host)
{
    struct cw_zone_peer *peer = host->zones;
    if (!peer)
        return;
    peer->is_closing = true;
    sh_zones_destroy(peer->zones);
    host->zones = NULL;
    free(peer);
}

/* --- The world's part ------------------------------------------------------------------------ */

void cw_zones_open(struct cw_world *world)
{
    _Static_assert(ZONES <= 64, "a set of zones has a bit for each");
    if (world->config.zones)
        world->zones = sh_sim_alloc(sizeof *world->zones);
}

void cw_zones_close(struct cw_world *world)
{
    free(world->zones);
}

void cw_zones_end(struct cw_world *world)
{
    for (unsigned i = 0; world->zones && i < ZONES; i++)
        zone_at(world, i)->is_read = false;
    for (unsigned i = 0; world->zones && i < world->config.peers; i++)
        if (cw_peer(world, i)->zones)
            cw_peer(world, i)->zones->is_listed = false;
}

const char *cw_zones_wait(struct cw_world *world)
{
    if (!world->zones)
        return NULL;
    if (unread(world) < ZONES)
        return "a zone can't be read";
    for (unsigned i = 0; i < world->config.peers; i++)
        if (cw_peer(world, i)->zones && !cw_peer(world, i)->zones->is_listed)
            return "zones can't be listed";
    return NULL;
}
