/* Which other nodes could keep replicas, and what room they have. */
#include <stdlib.h>

#include "backup/backup_int.h"
#include "backup/placement.h"
#include "base/assert.h"
#include "cluster/view.h"

#define ASK_NS UINT64_C(10000000000)      /* after an answer */
#define ASK_AGAIN_NS UINT64_C(1000000000) /* after none */
#define ASK_TIMEOUT_NS UINT64_C(2000000000)
/* For which a node that has failed as a backup gets no replica; doubled each time, so that zones do not go in circles where one disk is slow.
 * A node that is declared failed is not kept out: when it is there again, it is in another life. */
#define KEPT_OUT_MIN_NS UINT64_C(10000000000)
#define STALE_NS UINT64_C(2000000000) /* for which nodes are waited for that have no old replica */
#define KEPT_OUT_MAX_NS UINT64_C(320000000000)
#define FORGIVEN_NS UINT64_C(600000000000) /* after which the first time counts as the first */
#define LAST_RESORT_NS                                                                             \
    UINT64_C(1000000000) /* the same, of a node that a zone without any backup gets */
/* After a start, and after a node has come, in which others are expected. */
#define SETTLED_NS UINT64_C(2000000000)

/* --- Finding one ------------------------------------------------------------------------------- */

struct sh_backup_peer *sh_backup_peer_find(struct sh_backup *backup, shoal_nid nid)
{
    struct sh_backup_peers *peers = &backup->peers;
    size_t low = 0, high = peers->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (peers->all[middle].nid.v < nid.v)
            low = middle + 1;
        else
            high = middle;
    }
    return low < peers->count && peers->all[low].nid.v == nid.v ? &peers->all[low] : NULL;
}

/* --- Which of them could get a replica --------------------------------------------------------- */

static uint64_t replica_bytes(const struct sh_backup *backup)
{
    return 2 * backup->config.zone_bytes;
}

/* Makes the candidate that a node is, by its last answer. */
static struct sh_candidate candidate_of(const struct sh_backup_peer *peer)
{
    struct sh_candidate candidate = peer->base;
    candidate.disk_bytes = peer->space.disk_bytes;
    candidate.disk_free_bytes = peer->space.disk_free_bytes;
    candidate.zones = peer->space.zones;
    candidate.zones_max = peer->space.zones_max;
    candidate.firsts = peer->firsts;
    return candidate;
}

/* The own node, which has failure domains and else is none, may be known later than the view. */
static bool is_asked(const struct sh_backup *backup, const struct sh_backup_peer *peer)
{
    return peer->is_up && peer->base.can_backup && peer->nid.v != backup->config.nid.v;
}

/* Whether a node could take a replica of that size, as far as is known: one that has not answered yet, or answers no more, may have room. */
static bool may_have_room(const struct sh_backup *backup, const struct sh_backup_peer *peer,
                          uint64_t bytes)
{
    const struct sh_candidate candidate = candidate_of(peer);
    bool is_full = sh_placement_is_full(&candidate, bytes, backup->config.cluster.reserve_percent);
    return is_asked(backup, peer) &&
           (!peer->is_known || peer->is_silent || (peer->space.keeps && !is_full));
}

/* Whether other nodes may be there soon, of which nothing is known yet. */
static bool are_others_expected(const struct sh_backup *backup)
{
    const struct sh_backup_peers *peers = &backup->peers;
    return !peers->has_view || peers->are_coming || backup->now_ns < peers->settled_ns;
}

/* All zones are looked at when no node could take a replica of the usual size any more, nor is any expected; or when that ends. */
static void hope_look(struct sh_backup *backup)
{
    struct sh_backup_peers *peers = &backup->peers;
    bool is_hopeless = !peers->with_room && !are_others_expected(backup);
    if (peers->is_hopeless == is_hopeless)
        return;
    peers->is_hopeless = is_hopeless;
    sh_zones_tend(backup);
}

bool sh_zone_is_large(const struct sh_own_zone *zone)
{
    return sh_zone_log_bytes(zone) > replica_bytes(zone->backup);
}

bool sh_backup_is_hopeful(const struct sh_own_zone *zone)
{
    const struct sh_backup *backup = zone->backup;
    const struct sh_backup_peers *peers = &backup->peers;
    bool is_hopeful = zone->copy || are_others_expected(backup);
    if (!sh_zone_is_large(zone))
        return is_hopeful || peers->with_room;
    uint64_t bytes = sh_zone_log_bytes(zone);
    for (size_t i = 0; i < peers->count && !is_hopeful; i++)
        is_hopeful = may_have_room(backup, &peers->all[i], bytes);
    return is_hopeful;
}

/* Says anew whether a node could get a replica. Zones that want one more are looked at when it could, and could not before. */
static void peer_look(struct sh_backup *backup, struct sh_backup_peer *peer)
{
    struct sh_backup_peers *peers = &backup->peers;
    bool has_room = may_have_room(backup, peer, replica_bytes(backup));
    bool may_get =
        has_room && peer->is_known && !peer->is_silent && backup->now_ns >= peer->not_before_ns;
    peers->with_room += (size_t)has_room - (size_t)peer->has_room;
    peers->may_get += (size_t)may_get - (size_t)peer->may_get;
    bool is_better = (may_get && !peer->may_get) || (has_room && !peer->has_room);
    peer->has_room = has_room;
    peer->may_get = may_get;
    if (is_better)
        sh_zones_tend(backup);
    hope_look(backup);
}

void sh_backup_peer_heard(struct sh_backup *backup, shoal_nid nid)
{
    struct sh_backup_peer *peer = sh_backup_peer_find(backup, nid);
    if (peer)
        peer->heard_ns = backup->attended_ns;
}

void sh_backup_peer_ask(struct sh_backup *backup, struct sh_backup_peer *peer)
{
    if (peer->is_asking)
        return;
    peer->due_ns = 0;
    backup->peers.due_ns = 0;
}

static bool is_backup_of(const struct sh_own_zone *zone, shoal_nid nid)
{
    bool is_one = false;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++)
        is_one |= sh_sink_is_node(&zone->sinks[i]) && zone->sinks[i].nid.v == nid.v;
    return is_one;
}

bool sh_backup_has_other(const struct sh_own_zone *zone)
{
    struct sh_backup *backup = zone->backup;
    const struct sh_backup_peers *peers = &backup->peers;
    uint64_t bytes = sh_zone_log_bytes(zone);
    size_t own = 0;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        const struct sh_sink *sink = &zone->sinks[i];
        const struct sh_backup_peer *peer =
            sh_sink_is_node(sink) ? sh_backup_peer_find(backup, sink->nid) : NULL;
        own += peer && peer->may_get;
    }
    if (peers->may_get <= own || !sh_zone_is_large(zone))
        return peers->may_get > own;
    /* Nodes are counted that have room for a replica of the usual size; fewer have room for this one. */
    for (size_t i = 0; i < peers->count; i++) {
        const struct sh_backup_peer *peer = &peers->all[i];
        if (peer->may_get && may_have_room(backup, peer, bytes) && !is_backup_of(zone, peer->nid))
            return true;
    }
    return false;
}

void sh_backup_peer_give_up(struct sh_backup *backup, shoal_nid nid)
{
    struct sh_backup_peer *peer = sh_backup_peer_find(backup, nid);
    uint64_t now_ns = backup->now_ns;
    if (!peer)
        return;
    peer->given_up_ns = now_ns;
    if (now_ns >= peer->not_before_ns) {
        bool is_again = peer->pause_ns && now_ns - peer->not_before_ns < FORGIVEN_NS;
        peer->pause_ns = is_again ? 2 * peer->pause_ns : KEPT_OUT_MIN_NS;
        if (peer->pause_ns > KEPT_OUT_MAX_NS)
            peer->pause_ns = KEPT_OUT_MAX_NS;
        peer->not_before_ns = now_ns + peer->pause_ns;
        backup->peers.due_ns = 0;
    }
    peer_look(backup, peer);
}

static void first_count(struct sh_backup *backup, const struct sh_zone *record, bool is_more)
{
    struct sh_backup_peer *peer =
        record && record->count ? sh_backup_peer_find(backup, record->backups[0].nid) : NULL;
    if (peer)
        peer->firsts += is_more ? 1 : UINT32_MAX;
}

void sh_backup_first_changed(struct sh_backup *backup, const struct sh_zone *before,
                             const struct sh_zone *now)
{
    first_count(backup, before, false);
    first_count(backup, now, true);
}

/* --- The view ---------------------------------------------------------------------------------- */

/* Computes the sets of these nodes; *memory_out NULL: there are none. */
static enum shoal_err copysets_make(const struct sh_backup *backup,
                                    const struct sh_candidate *nodes, size_t count,
                                    struct sh_copysets *sets_out, void **memory_out)
{
    const struct sh_backup_cluster *cluster = &backup->config.cluster;
    const struct sh_copysets_config config = {
        .replicas = cluster->replicas, .scatter = cluster->scatter, .domains = cluster->domains};
    *memory_out = NULL;
    if (!cluster->has_copysets || cluster->replicas < 2 || !count)
        return SHOAL_OK;
    *memory_out = malloc(sh_copysets_bytes(&config, count));
    if (!*memory_out)
        return SHOAL_ENOMEM;
    sh_copysets_compute(&config, nodes, count, *memory_out, sets_out);
    return SHOAL_OK;
}

/* All that is counted is counted anew. */
static void peers_count(struct sh_backup *backup)
{
    struct sh_backup_peers *peers = &backup->peers;
    peers->with_room = peers->may_get = 0;
    for (size_t i = 0; i < peers->count; i++) {
        struct sh_backup_peer *peer = &peers->all[i];
        peer->has_room = peer->may_get = false;
        peer->firsts = 0;
    }
    for (struct sh_own_zone *zone = backup->zones.first; zone; zone = zone->next_entered)
        first_count(backup, &zone->record, true);
    if (backup->making)
        first_count(backup, &backup->making->record, true);
    for (size_t i = 0; i < peers->count; i++)
        peer_look(backup, &peers->all[i]);
    hope_look(backup);
}

enum shoal_err sh_backup_view(struct sh_backup *backup, const struct sh_view *view)
{
    struct sh_backup_peers *peers = &backup->peers;
    size_t room = view->count ? view->count : 1;
    struct sh_backup_peer *all = calloc(room, sizeof *all);
    struct sh_candidate *candidates = calloc(room, sizeof *candidates);
    if (!all || !candidates) {
        free(all);
        free(candidates);
        return SHOAL_ENOMEM;
    }
    struct sh_copysets copysets;
    void *copysets_memory;
    bool are_coming = !peers->has_view;
    size_t count = sh_candidates_from_view(view, candidates, view->count);
    if (copysets_make(backup, candidates, count, &copysets, &copysets_memory)) {
        free(all);
        free(candidates);
        return SHOAL_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const struct sh_node *node = sh_view_find(view, candidates[i].nid);
        const struct sh_backup_peer *before = sh_backup_peer_find(backup, node->nid);
        bool is_known = before && before->instance == node->instance;
        if (is_known)
            all[i] = *before;
        are_coming |= candidates[i].is_up && !(is_known && before->is_up);
        all[i].nid = node->nid;
        all[i].instance = node->instance;
        all[i].is_up = candidates[i].is_up;
        all[i].is_away = candidates[i].is_away;
        all[i].base = candidates[i];
    }
    free(peers->all);
    free(peers->candidates);
    free(peers->copysets_memory);
    peers->all = all;
    peers->candidates = candidates;
    peers->copysets_memory = copysets_memory;
    if (copysets_memory)
        peers->copysets = copysets;
    peers->count = count;
    peers->has_view = true;
    peers->due_ns = 0;
    peers->are_coming |= are_coming;
    peers_count(backup);
    sh_zones_tend(backup);
    return SHOAL_OK;
}

void sh_backup_peers_end(struct sh_backup *backup)
{
    struct sh_backup_peers *peers = &backup->peers;
    for (unsigned i = 0; i < SH_SPACE_CALLS; i++) {
        if (peers->calls[i].is_busy)
            (void)sh_msg_cancel(backup->config.cluster.msg, &peers->calls[i].request);
    }
    free(peers->all);
    free(peers->candidates);
    free(peers->copysets_memory);
}

/* --- Room -------------------------------------------------------------------------------------- */

static void on_space(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_space_call *call = request->arg;
    struct sh_backup *backup = call->backup;
    struct sh_backup_peer *peer = sh_backup_peer_find(backup, call->nid);
    struct sh_replication_space space;
    call->is_busy = false;
    if (!err && !sh_replication_space_get(payload, &space))
        err = SHOAL_EPROTO;
    backup->peers.due_ns = 0;
    if (!peer || !peer->is_asking)
        return;
    peer->is_asking = false;
    peer->is_known = true;
    if (!err)
        peer->heard_ns = backup->attended_ns;
    peer->is_silent = err != SHOAL_OK;
    if (!err)
        peer->space = space;
    peer->due_ns = backup->now_ns + (err ? ASK_AGAIN_NS : ASK_NS);
    peer_look(backup, peer);
}

/* False: nothing more can be asked now. */
static bool peer_ask(struct sh_backup *backup, struct sh_backup_peer *peer, uint64_t now_ns)
{
    struct sh_msg *msg = backup->config.cluster.msg;
    struct sh_out out;
    unsigned i = 0;
    while (i < SH_SPACE_CALLS && backup->peers.calls[i].is_busy)
        i++;
    if (i == SH_SPACE_CALLS)
        return false;
    struct sh_space_call *call = &backup->peers.calls[i];
    *call = (struct sh_space_call){.backup = backup, .nid = peer->nid};
    call->request =
        (struct sh_request){.done = on_space, .arg = call, .timeout_ns = ASK_TIMEOUT_NS};
    if (sh_msg_request(msg, peer->nid, SH_REPLICATION_SPACE, 0, &call->request, &out)) {
        peer->is_known = peer->is_silent = true; /* it can't be reached */
        peer->due_ns = now_ns + ASK_AGAIN_NS;
        peer_look(backup, peer);
        return true;
    }
    sh_msg_end(msg, &out);
    call->is_busy = true;
    peer->is_asking = true;
    return true;
}

bool sh_backup_peers_are_known(const struct sh_backup *backup)
{
    const struct sh_backup_peers *peers = &backup->peers;
    bool are_known = peers->has_view;
    for (size_t i = 0; i < peers->count; i++)
        are_known &= !is_asked(backup, &peers->all[i]) || peers->all[i].is_known;
    return are_known;
}

unsigned sh_backup_peers_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_backup_peers *peers = &backup->peers;
    unsigned asked = 0;
    bool is_full = false;
    if (now_ns < peers->due_ns)
        return 0;
    peers->due_ns = UINT64_MAX;
    if (peers->are_coming)
        peers->settled_ns = now_ns + SETTLED_NS;
    peers->are_coming = false;
    if (now_ns < peers->settled_ns)
        peers->due_ns = peers->settled_ns;
    hope_look(backup);
    for (size_t i = 0; i < peers->count; i++) {
        struct sh_backup_peer *peer = &peers->all[i];
        if (peer->has_room && !peer->may_get)
            peer_look(backup, peer);
        if (now_ns < peer->not_before_ns && peer->not_before_ns < peers->due_ns)
            peers->due_ns = peer->not_before_ns;
        if (!is_asked(backup, peer) || peer->is_asking)
            continue;
        if (peer->due_ns <= now_ns && !is_full) {
            is_full = !peer_ask(backup, peer, now_ns); /* an answer comes first */
            asked += !is_full;
        }
        if (!peer->is_asking && !is_full && peer->due_ns < peers->due_ns)
            peers->due_ns = peer->due_ns;
    }
    return asked;
}

/* --- Choosing ---------------------------------------------------------------------------------- */

/* is_bare: as the last resort, for a zone that has no backup: with nodes that have failed as backups not long ago, and with those whose replica is
 * old, and goes. That may be the only one there is, until the zone was copied: so others are to come first, if there are any. Where this node has a replica itself, with which it has brought the zone back, that is not waited for as long. */
static void candidates_make(struct sh_own_zone *zone, uint64_t now_ns, bool is_bare)
{
    struct sh_backup_peers *peers = &zone->backup->peers;
    bool has_own = sh_zone_has_backup(&zone->record, zone->backup->config.nid, 0);
    uint64_t stale_ns = has_own ? STALE_NS : KEPT_OUT_MIN_NS;
    for (size_t i = 0; i < peers->count; i++) {
        const struct sh_backup_peer *peer = &peers->all[i];
        const struct sh_sink *sink = sh_sink_find(zone, peer->nid);
        bool is_stale = sh_zone_has_backup(&zone->record, peer->nid, 0) &&
                        (!sink || sink->state == SH_SINK_LOST);
        bool may_go = is_bare && (!sink || now_ns >= sink->lost_ns + stale_ns);
        bool may_again = is_bare && peer->is_known && !peer->is_silent && peer->space.keeps &&
                         (!peer->given_up_ns || now_ns >= peer->given_up_ns + LAST_RESORT_NS);
        bool is_slow = sink && sink->is_stalled;
        peers->candidates[i] = candidate_of(peer);
        peers->candidates[i].can_backup &=
            !is_slow && (peer->may_get || may_again) && (!is_stale || may_go);
    }
}

static unsigned choose(struct sh_own_zone *zone, const struct sh_placement_request *request,
                       struct sh_zone_backup chosen_out[SH_ZONE_BACKUPS_MAX])
{
    struct sh_placement placement;
    unsigned count = 0;
    sh_placement_choose(request, &placement);
    for (unsigned i = request->kept_count; i < placement.count; i++) {
        struct sh_backup_peer *peer = sh_backup_peer_find(zone->backup, placement.backups[i]);
        SH_ASSERT(peer);
        chosen_out[count++] = (struct sh_zone_backup){peer->nid, peer->space.disk};
        /* Until it is asked again: others of this owner's zones may be on their way there. */
        if (peer->space.disk_free_bytes > request->replica_bytes)
            peer->space.disk_free_bytes -= request->replica_bytes;
        peer_look(zone->backup, peer);
    }
    return count;
}

unsigned sh_backup_choose(struct sh_own_zone *zone, unsigned wanted, uint64_t now_ns,
                          struct sh_zone_backup chosen_out[SH_ZONE_BACKUPS_MAX])
{
    struct sh_backup *backup = zone->backup;
    const struct sh_backup_cluster *cluster = &backup->config.cluster;
    shoal_nid kept[SH_BACKUPS_MAX];
    struct sh_placement_request request = {
        .nodes = backup->peers.candidates,
        .count = backup->peers.count,
        .owner = backup->config.nid,
        .wanted = (uint8_t)(wanted < SH_BACKUPS_MAX ? wanted : SH_BACKUPS_MAX),
        .flags = cluster->placement,
        .domains = cluster->domains,
        .replica_bytes = sh_zone_log_bytes(zone),
        .reserve_percent = cluster->reserve_percent,
        .random = cluster->random,
        .kept = kept,
    };
    if (backup->peers.copysets_memory && request.wanted == cluster->replicas)
        request.copysets = &backup->peers.copysets;
    for (unsigned i = 0; i < SH_SINKS_MAX && request.kept_count < request.wanted; i++) {
        const struct sh_sink *sink = &zone->sinks[i];
        if (sh_sink_is_node(sink) && sh_sink_keeps_up(sink))
            kept[request.kept_count++] = sink->nid;
    }
    if (request.kept_count == request.wanted)
        return 0;
    candidates_make(zone, now_ns, false);
    unsigned count = choose(zone, &request, chosen_out);
    if (!count && !request.kept_count) {
        candidates_make(zone, now_ns, true);
        count = choose(zone, &request, chosen_out);
    }
    return count;
}
