/* Disks that peers lose in the worlds of world_recovery_test.c and world_power_test.c, with all that is on them: the peer comes back with an empty one, as a new
 * node, and an operator declares the former one lost. Of each zone one recorded backup keeps its disk, so that nothing that is durable may be missing; or, at
 * the end of a world, all recorded backups of some zones lose theirs: then these zones are lost, and told, and no others (recovery_clients_int.h reads what
 * their nodes had). */
#ifndef TESTS_RECOVERY_LOSSES_INT_H
#define TESTS_RECOVERY_LOSSES_INT_H

#include "tests/recovery_sizes_int.h"

#define RL_START_NS (30 * S) /* within which superpeers answer that were started again */

struct rl {
    struct rw *rw;
    struct rr *rr;
    struct rc *rc;
    bool is_lost[RW_HOSTS_MAX];      /* the host loses its disk */
    struct sh_zone before[RR_ZONES]; /* the records at the moment at which disks were lost */
    unsigned before_count;
    shoal_nid loser; /* all zones of this node are lost; NONE: only one zone is, or few */
    unsigned disks, zones, older; /* sums */
};

/* A host that is down comes back with an empty disk. */
static inline void rl_disk_lose(struct rl *rl, struct rw_host *host)
{
    struct rc *rc = rl->rc;
    SH_ASSERT(rc->disks_lost_count < RC_DISKS);
    sh_world_disk_lose(rl->rw->world, host->node);
    if (host->nid.v)
        rc->disks_lost[rc->disks_lost_count++] = host->nid;
    host->nid = SHOAL_NID_NONE;
    rl->disks++;
}

/* Whether some recorded backup keeps its disk. */
static inline bool rl_has_replica(const struct rl *rl, const struct sh_zone *zone)
{
    for (unsigned i = 0; i < zone->count; i++) {
        const struct rw_host *host = rr_host(rl->rr, zone->backups[i].nid);
        if (host && !host->is_dead && !rl->is_lost[host->node])
            return true;
    }
    return false;
}

static inline bool rl_have_replicas(const struct rl *rl)
{
    for (unsigned i = 0; i < rl->rr->count; i++) {
        if (rl->rr->records[i].count && !rl_has_replica(rl, &rl->rr->records[i]))
            return false;
    }
    return true;
}

/* Which disks are lost, by the records: as many as may be without a zone that is lost, or fewer. All peers are down. */
static inline void rl_draw(struct rl *rl)
{
    struct rw *rw = rl->rw;
    unsigned peers = rw->count - rw->superpeer_count, first = (unsigned)rw_below(rw, peers);
    for (unsigned i = 0; i < peers; i++) {
        const struct rw_host *host = rw_peer(rw, (first + i) % peers);
        if (rw_below(rw, 4) == 0)
            continue;
        rl->is_lost[host->node] = true;
        if (!rl_have_replicas(rl))
            rl->is_lost[host->node] = false;
    }
}

static inline void rl_zone_lose(struct rl *rl, const struct sh_zone *zone)
{
    for (unsigned i = 0; i < zone->count; i++) {
        const struct rw_host *host = rr_host(rl->rr, zone->backups[i].nid);
        if (host)
            rl->is_lost[host->node] = true;
    }
}

/* Which disks are lost, so that some zone has none left. */
static inline void rl_draw_loss(struct rl *rl)
{
    struct rr *rr = rl->rr;
    if (!rr->count)
        return;
    if (!rl->loser.v)
        rl_zone_lose(rl, &rr->records[rw_below(rl->rw, rr->count)]);
    for (unsigned i = 0; rl->loser.v && i < rr->count; i++) {
        if (rr->records[i].owner.v == rl->loser.v)
            rl_zone_lose(rl, &rr->records[i]);
    }
    for (unsigned i = 0; i < rr->count; i++) {
        if (rr->records[i].count && !rl_has_replica(rl, &rr->records[i]))
            rr->lost[rr->lost_count++] = rr->records[i].id;
    }
    rl->zones += rr->lost_count;
}

/* All peers are down, and superpeers up or about to be. Has disks lost by the records of the superpeers, and starts the peers. */
static inline void rl_start_without(struct rl *rl, bool has_losses)
{
    struct rw *rw = rl->rw;
    uint64_t until_ns = sh_world_now(rw->world) + RL_START_NS;
    memset(rl->is_lost, 0, sizeof rl->is_lost);
    for (unsigned i = 0; i < rw->count; i++) {
        SH_ASSERT(!rw->hosts[i].is_peer || !sh_world_is_up(rw->world, i));
        if (rw->hosts[i].is_peer)
            rw->hosts[i].boots++; /* no start that was planned before happens */
    }
    do {
        rw_run(rw, 100 * MS);
        if (sh_world_now(rw->world) > until_ns)
            RW_FAIL(rw, "superpeers do not say what they have recorded");
    } while (!rr_list(rl->rr));
    if (has_losses)
        rl_draw_loss(rl);
    else
        rl_draw(rl);
    rl->before_count = rl->rr->count;
    memcpy(rl->before, rl->rr->records, sizeof rl->before);
    for (unsigned i = 0; i < rw->count; i++) {
        if (!rw->hosts[i].is_peer || rw->hosts[i].is_dead)
            continue;
        if (rl->is_lost[i])
            rl_disk_lose(rl, &rw->hosts[i]);
        rw_start_later(&rw->hosts[i], rw_below(rw, rw_below(rw, 2) ? 100 * MS : 4 * S));
    }
}

static inline const struct sh_zone *rl_before(const struct rl *rl, uint64_t id)
{
    for (unsigned i = 0; i < rl->before_count; i++) {
        if (rl->before[i].id == id)
            return &rl->before[i];
    }
    return NULL;
}

/* Zones are back, after one power failure: none says that it may be older of which no disk is lost. */
static inline void rl_older_check(struct rl *rl)
{
    const struct rr *rr = rl->rr;
    for (unsigned i = 0; i < rr->count; i++) {
        const struct sh_zone *zone = &rr->records[i], *before = rl_before(rl, zone->id);
        if (!before || zone->flags & SH_ZONE_LOST)
            continue;
        bool has_lost = false;
        for (unsigned k = 0; k < before->count; k++)
            has_lost |= !rr_host(rr, before->backups[k].nid);
        if (zone->older != before->older && !has_lost)
            RW_FAIL(rl->rw, "zone %" PRIx64 " is said to be older, though no disk is lost",
                    zone->id);
        rl->older += zone->older != before->older;
    }
}

/* --- Losses ------------------------------------------------------------------------------------- */

/* Before the power fails, clients being still: notes where chunks are. */
static inline void rl_owners_note(const struct rl *rl, shoal_nid *owners_out)
{
    for (unsigned i = 0; i < rl->rc->chunk_count; i++) {
        owners_out[i] = SHOAL_NID_NONE;
        for (unsigned k = 0; k < rl->rw->count; k++) {
            if (rl->rw->hosts[k].is_peer && rr_serves(&rl->rw->hosts[k], rl->rc->chunks[i].cid))
                owners_out[i] = rl->rw->hosts[k].nid;
        }
    }
}

/* A node that has chunks, which are read in the end. NONE: there is none. */
static inline shoal_nid rl_loser_pick(const struct rl *rl, const shoal_nid *owners)
{
    for (unsigned i = 0; i < rl->rc->chunk_count; i++) {
        const struct rc_chunk *chunk = &rl->rc->chunks[i];
        if (owners[i].v && !(chunk->is_over && chunk->is_loose))
            return owners[i];
    }
    return SHOAL_NID_NONE;
}

/* Chunks of nodes that had zones which are lost now, and chunks that no node served at that moment, may be lost. */
static inline void rl_chunks_mark(const struct rl *rl, const shoal_nid *owners)
{
    for (unsigned i = 0; i < rl->rc->chunk_count; i++) {
        struct rc_chunk *chunk = &rl->rc->chunks[i];
        for (unsigned k = 0; k < rl->before_count; k++) {
            const struct sh_zone *zone = &rl->before[k];
            if (rr_is_to_be_lost(rl->rr, zone->id))
                chunk->may_be_lost |= !owners[i].v || owners[i].v == zone->owner.v;
        }
    }
}

static inline bool rl_is_reported(void *arg)
{
    return !((const struct rc *)arg)->is_report_wanted;
}

/* What an operator is shown has each zone that is lost, and no others. */
static inline void rl_report_check(struct rl *rl)
{
    struct rw *rw = rl->rw;
    struct rc *rc = rl->rc;
    rc->is_report_wanted = true;
    if (!sh_world_run_until(rw->world, rl_is_reported, rc, sh_world_now(rw->world) + 60 * S))
        RW_FAIL(rw, "no operator is told which zones are lost");
    for (unsigned i = 0; i < rc->reported_count; i++) {
        if (!rr_is_to_be_lost(rl->rr, rc->reported[i]))
            RW_FAIL(rw, "zone %" PRIx64 " is reported as lost, and is not", rc->reported[i]);
    }
    if (rc->reported_count != rl->rr->lost_count)
        RW_FAIL(rw, "%u zones are reported as lost, of %u", rc->reported_count, rl->rr->lost_count);
}

#endif
