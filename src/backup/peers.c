/* Which other nodes could keep replicas, and what room they have. */
#include <stdlib.h>

#include "backup/backup_int.h"
#include "backup/placement.h"
#include "base/assert.h"
#include "cluster/view.h"

#define ASK_NS UINT64_C(10000000000)      /* after an answer */
#define ASK_AGAIN_NS UINT64_C(1000000000) /* after none */
#define ASK_TIMEOUT_NS UINT64_C(2000000000)

/* --- The view ---------------------------------------------------------------------------------- */

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
    size_t count = sh_candidates_from_view(view, candidates, view->count);
    if (copysets_make(backup, candidates, count, &copysets, &copysets_memory)) {
        free(all);
        free(candidates);
        return SHOAL_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const struct sh_node *node = sh_view_find(view, candidates[i].nid);
        const struct sh_backup_peer *before = sh_backup_peer_find(backup, node->nid);
        if (before && before->instance == node->instance)
            all[i] = *before;
        all[i].nid = node->nid;
        all[i].instance = node->instance;
        all[i].is_up = candidates[i].is_up;
        all[i].base = candidates[i];
        /* Its own node is nobody whom it would ask, but has failure domains. */
        all[i].is_asked = node->nid.v != backup->config.nid.v && candidates[i].can_backup;
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
    peer->space = err ? (struct sh_replication_space){.keeps = false} : space;
    peer->due_ns = backup->now_ns + (err ? ASK_AGAIN_NS : ASK_NS);
    if (!err && space.keeps)
        sh_zones_tend(backup);
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
        peer->is_known = true; /* that it can't be reached */
        peer->due_ns = now_ns + ASK_AGAIN_NS;
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
        are_known &= !peers->all[i].is_up || !peers->all[i].is_asked || peers->all[i].is_known;
    return are_known;
}

unsigned sh_backup_peers_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_backup_peers *peers = &backup->peers;
    unsigned asked = 0;
    if (now_ns < peers->due_ns)
        return 0;
    peers->due_ns = UINT64_MAX;
    for (size_t i = 0; i < peers->count; i++) {
        struct sh_backup_peer *peer = &peers->all[i];
        if (!peer->is_up || !peer->is_asked || peer->is_asking)
            continue;
        if (peer->due_ns <= now_ns) {
            if (!peer_ask(backup, peer, now_ns))
                break; /* an answer comes first */
            asked++;
        }
        if (!peer->is_asking && peer->due_ns < peers->due_ns)
            peers->due_ns = peer->due_ns;
    }
    return asked;
}

/* --- Choosing ---------------------------------------------------------------------------------- */

static void firsts_count(struct sh_backup *backup)
{
    struct sh_backup_peers *peers = &backup->peers;
    uint64_t places = sh_zones_places(&backup->zones);
    for (uint64_t i = 0; i < places; i++) {
        const struct sh_own_zone *zone = backup->zones.all[i];
        if (!zone || !zone->record.count)
            continue;
        size_t at = sh_candidate_find(peers->candidates, peers->count, zone->record.backups[0].nid);
        if (at < peers->count)
            peers->candidates[at].firsts++;
    }
}

static void candidates_make(struct sh_own_zone *zone, uint64_t now_ns, bool with_stale)
{
    struct sh_backup_peers *peers = &zone->backup->peers;
    for (size_t i = 0; i < peers->count; i++) {
        const struct sh_backup_peer *peer = &peers->all[i];
        const struct sh_sink *sink = sh_sink_find(zone, peer->nid);
        bool is_stale = sh_zone_has_backup(&zone->record, peer->nid, 0) &&
                        (!sink || sink->state == SH_SINK_LOST);
        struct sh_candidate *candidate = &peers->candidates[i];
        *candidate = peer->base;
        candidate->can_backup &= peer->is_known && peer->space.keeps &&
                                 now_ns >= peer->not_before_ns && (with_stale || !is_stale);
        candidate->disk_bytes = peer->space.disk_bytes;
        candidate->disk_free_bytes = peer->space.disk_free_bytes;
        candidate->zones = peer->space.zones;
        candidate->zones_max = peer->space.zones_max;
    }
    if (zone->backup->config.cluster.placement & SH_PLACEMENT_DISJOINT)
        firsts_count(zone->backup);
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
        if (sh_sink_is_node(sink) && sh_sink_serves(sink))
            kept[request.kept_count++] = sink->nid;
    }
    if (request.kept_count == request.wanted)
        return 0;
    candidates_make(zone, now_ns, false);
    unsigned count = choose(zone, &request, chosen_out);
    if (!count && !request.kept_count) {
        /* The last resort: nodes whose replica is old, and goes. */
        candidates_make(zone, now_ns, true);
        count = choose(zone, &request, chosen_out);
    }
    return count;
}
