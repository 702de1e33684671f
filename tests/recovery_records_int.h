/* A node that looks at a cluster from outside, for world_recovery_test.c: which records of zones the superpeers have, and what the stores of the
 * peers have. */
#ifndef TESTS_RECOVERY_RECORDS_INT_H
#define TESTS_RECOVERY_RECORDS_INT_H

#include "node/chunks.h"
#include "node/holdings.h"
#include "superpeer/superpeer.h"
#include "tests/recovery_clients_int.h"

#define RR_ZONES 512
#define RR_NIDS 256
#define RR_WELL_NS (40 * S)
#define RR_MOVES_NS (20 * S) /* within which moves end that nodes were at when they ended */

struct rr {
    struct rw *rw;
    unsigned node;
    struct sh_msg *msg;
    struct sh_directory *directory;
    struct sh_zones *zones;
    bool is_refreshing, is_listed;
    struct sh_directory_op refresh;
    enum shoal_err list_err;
    struct sh_zone records[RR_ZONES];
    unsigned count;
    char why[200];           /* all is not well */
    shoal_nid nids[RR_NIDS]; /* that peers have, or had before they lost their disks */
    unsigned nid_count;
    uint64_t lost[RR_ZONES]; /* zones that are to be lost */
    unsigned lost_count;
    bool are_back; /* all zones are served, as far as rr_is_well has seen */
};

static inline void rr_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct rr *rr = arg;
    const struct sh_env *env = sh_world_env(world, node);
    struct sh_msg_config config = sh_sim_msg_config(env);
    rr->node = node;
    config.connections_max = 64;
    config.ring_bytes = 256 << 10;
    assert_int_equal(sh_msg_create(&config, &rr->msg), SHOAL_OK);
    sh_world_step_add(world, node, sh_msg_transport_step(rr->msg));
    sh_world_step_add(world, node, sh_msg_handler_step(rr->msg));
    const struct sh_directory_config known = {
        .msg = rr->msg, .clock = env->clock, .cache_ranges_max = 8, .is_client = true};
    assert_int_equal(sh_directory_create(&known, &rr->directory), SHOAL_OK);
    const struct sh_zones_config zones = {
        .msg = rr->msg, .directory = rr->directory, .clock = env->clock};
    assert_int_equal(sh_zones_create(&zones, &rr->zones), SHOAL_OK);
    sh_world_step_add(world, node, sh_zones_step(rr->zones));
}

static inline void rr_crash(void *arg, struct sh_world *world, unsigned node)
{
    struct rr *rr = arg;
    (void)world;
    (void)node;
    sh_zones_destroy(rr->zones);
    sh_msg_destroy(rr->msg);
    sh_directory_destroy(rr->directory);
}

static inline void rr_open(struct rr *rr, struct rw *rw)
{
    *rr = (struct rr){.rw = rw};
    const struct sh_world_node node = {.boot = rr_boot, .crash = rr_crash, .arg = rr};
    (void)sh_world_node_add(rw->world, &node);
}

static inline void rr_close(struct rr *rr)
{
    sh_world_crash(rr->rw->world, rr->node);
}

/* --- Records ------------------------------------------------------------------------------------ */

static inline void rr_refreshed(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct rr *rr = op->arg;
    (void)err;
    (void)detail;
    rr->is_refreshing = false;
}

static inline bool rr_is_refreshed(void *arg)
{
    return !((struct rr *)arg)->is_refreshing;
}

static inline void rr_on_zone(struct sh_zone_list *list, const struct sh_zone *zone)
{
    struct rr *rr = list->arg;
    assert_true(rr->count < RR_ZONES);
    rr->records[rr->count++] = *zone;
}

static inline void rr_on_over(struct sh_zone_list *list, enum shoal_err err)
{
    struct rr *rr = list->arg;
    rr->list_err = err;
    rr->is_listed = true;
}

static inline bool rr_is_listed(void *arg)
{
    return ((struct rr *)arg)->is_listed;
}

static inline void rr_refresh(struct rr *rr)
{
    rr->is_refreshing = true;
    rr->refresh = (struct sh_directory_op){.done = rr_refreshed, .arg = rr};
    if (sh_directory_epoch(rr->directory))
        sh_directory_refresh(rr->directory, &rr->refresh);
    else
        sh_directory_bootstrap(rr->directory, rr->rw->superpeers, rr->rw->superpeer_count,
                               &rr->refresh);
    (void)sh_world_run_until(rr->rw->world, rr_is_refreshed, rr,
                             sh_world_now(rr->rw->world) + 60 * S);
}

static inline void rr_nid_note(struct rr *rr, shoal_nid nid)
{
    for (unsigned i = 0; i < rr->nid_count; i++) {
        if (rr->nids[i].v == nid.v)
            return;
    }
    SH_ASSERT(rr->nid_count < RR_NIDS);
    rr->nids[rr->nid_count++] = nid;
}

/* Reads all records. False: the superpeers do not answer now. */
static inline bool rr_list(struct rr *rr)
{
    rr->count = 0;
    rr_refresh(rr);
    for (unsigned i = 0; i < rr->rw->count; i++) {
        if (rr->rw->hosts[i].is_peer && rr->rw->hosts[i].nid.v)
            rr_nid_note(rr, rr->rw->hosts[i].nid);
    }
    for (unsigned i = 0; i < rr->nid_count; i++) {
        struct sh_zone_list list = {.each = rr_on_zone, .done = rr_on_over, .arg = rr};
        rr->is_listed = false;
        sh_zones_list(rr->zones, SH_ZONES_OF_CREATOR, rr->nids[i], 0, &list);
        bool is_told = sh_world_run_until(rr->rw->world, rr_is_listed, rr,
                                          sh_world_now(rr->rw->world) + 60 * S);
        assert_true(is_told);
        if (rr->list_err)
            return false;
    }
    return true;
}

static inline const struct rw_host *rr_host(const struct rr *rr, shoal_nid nid)
{
    for (unsigned i = 0; i < rr->rw->count; i++) {
        if (rr->rw->hosts[i].is_peer && rr->rw->hosts[i].nid.v == nid.v)
            return &rr->rw->hosts[i];
    }
    return NULL;
}

static inline bool rr_runs(const struct rw_host *host)
{
    return host && sh_world_is_up(host->rw->world, host->node) &&
           !sh_world_is_paused(host->rw->world, host->node) && host->process && rw_is_joined(host);
}

static inline unsigned rr_up(const struct rr *rr)
{
    unsigned up = 0;
    for (unsigned i = 0; i < rr->rw->count; i++)
        up += rr->rw->hosts[i].is_peer && rr_runs(&rr->rw->hosts[i]);
    return up;
}

static inline bool rr_is_to_be_lost(const struct rr *rr, uint64_t zone)
{
    for (unsigned i = 0; i < rr->lost_count; i++) {
        if (rr->lost[i] == zone)
            return true;
    }
    return false;
}

static inline bool rr_zone_is_well(struct rr *rr, const struct sh_zone *zone)
{
    bool is_to_be_lost = rr_is_to_be_lost(rr, zone->id);
    const struct rw_host *owner = rr_host(rr, zone->owner);
    unsigned others = rr_up(rr) - 1, wanted = zone->wanted < others ? zone->wanted : others;
    const char *why = NULL;
    if (zone->flags & SH_ZONE_LOST && !is_to_be_lost)
        RW_FAIL(rr->rw, "zone %" PRIx64 " is lost", zone->id);
    if (zone->flags & SH_ZONE_LOST)
        return true;
    if (is_to_be_lost)
        why = "should be lost";
    else if (zone->former.v)
        why = "is being brought back";
    else if (!rr_runs(owner) || sh_msg_instance(owner->msg) != zone->life)
        why = "has an owner that is gone";
    rr->are_back &= !why;
    if (!why && zone->count < wanted)
        why = "has too few backups";
    for (unsigned i = 0; !why && i < zone->count; i++) {
        if (!rr_runs(rr_host(rr, zone->backups[i].nid)))
            why = "has a backup that is gone";
        else if (zone->backups[i].nid.v == zone->owner.v)
            why = "has a backup that its owner is";
    }
    if (!why)
        return true;
    (void)snprintf(rr->why, sizeof rr->why,
                   "zone %" PRIx64 " %s: owner %u, former %u, %u backups of %u", zone->id, why,
                   zone->owner.v, zone->former.v, zone->count, zone->wanted);
    return false;
}

/* Whether all peers that run have joined, and all zones have their owners and backups. */
static inline bool rr_is_well(struct rr *rr)
{
    (void)snprintf(rr->why, sizeof rr->why, "the superpeers do not answer: %s",
                   shoal_err_name(rr->list_err));
    rr->are_back = false;
    if (!rr_list(rr))
        return false;
    for (unsigned i = 0; i < rr->rw->count; i++) {
        const struct rw_host *host = &rr->rw->hosts[i];
        if (host->is_peer && sh_world_is_up(rr->rw->world, i) && !rr_runs(host)) {
            (void)snprintf(rr->why, sizeof rr->why, "host %u has not joined", i);
            return false;
        }
    }
    bool are_well = true;
    rr->are_back = true;
    for (unsigned i = 0; i < rr->count; i++)
        are_well &= rr_zone_is_well(rr, &rr->records[i]);
    return are_well;
}

/* The zones that are being brought back. */
static inline void rr_zones_print(const struct rr *rr)
{
    for (unsigned i = 0; i < rr->count; i++) {
        const struct sh_zone *zone = &rr->records[i];
        if (!zone->former.v)
            continue;
        print_message("  zone %" PRIx64 ": former %u (life %" PRIx64 "), owner %u (life %" PRIx64
                      "); backups:",
                      zone->id, zone->former.v, zone->former_life, zone->owner.v, zone->life);
        for (unsigned k = 0; k < zone->count; k++)
            print_message(" %u", zone->backups[k].nid.v);
        print_message("\n");
    }
}

static inline void rr_wait_well(struct rr *rr)
{
    uint64_t until_ns = sh_world_now(rr->rw->world) + RR_WELL_NS;
    while (!rr_is_well(rr)) {
        rw_run(rr->rw, 100 * MS);
        if (sh_world_now(rr->rw->world) > until_ns) {
            rr_zones_print(rr);
            RW_FAIL(rr->rw, "all is not well again: %s", rr->why);
        }
    }
}

/* Waits until all zones are served, whether or not they have all backups. */
static inline void rr_wait_back(struct rr *rr)
{
    uint64_t until_ns = sh_world_now(rr->rw->world) + RR_WELL_NS;
    while (!rr_is_well(rr) && !rr->are_back) {
        rw_run(rr->rw, 100 * MS);
        if (sh_world_now(rr->rw->world) > until_ns) {
            rr_zones_print(rr);
            RW_FAIL(rr->rw, "zones are not back: %s", rr->why);
        }
    }
}

/* --- Stores ------------------------------------------------------------------------------------- */

static inline bool rr_serves(const struct rw_host *host, shoal_cid cid)
{
    sh_lid lid;
    uint32_t size;
    if (!rr_runs(host))
        return false;
    struct sh_node_parts parts = sh_node_parts(host->process->node);
    return parts.chunks &&
           !sh_holdings_look(sh_chunks_holdings(parts.chunks), host->nid, cid, false, &lid) &&
           !sh_store_size(parts.store, lid, &size);
}

static inline bool rr_has(const struct rw_host *host, shoal_cid cid)
{
    uint32_t size;
    if (!rr_runs(host))
        return false;
    struct sh_node_parts parts = sh_node_parts(host->process->node);
    return parts.store && !sh_store_size(parts.store, sh_holdings_lid(host->nid, cid), &size);
}

/* How many nodes serve a chunk, and how many have it in their stores. */
static inline void rr_count(const struct rr *rr, shoal_cid cid, unsigned *served_out,
                            unsigned *has_out)
{
    *served_out = *has_out = 0;
    for (unsigned i = 0; i < rr->rw->count; i++) {
        const struct rw_host *host = &rr->rw->hosts[i];
        *served_out += host->is_peer && rr_serves(host, cid);
        *has_out += host->is_peer && rr_has(host, cid);
    }
}

static inline void rr_where(const struct rr *rr, shoal_cid cid)
{
    for (unsigned i = 0; i < rr->rw->count; i++) {
        const struct rw_host *host = &rr->rw->hosts[i];
        if (host->is_peer)
            print_message("  node %u: process %u, life %" PRIx64 "%s, %s, %s\n", host->nid.v,
                          (unsigned)host->boots, rr_runs(host) ? sh_msg_instance(host->msg) : 0,
                          rr_runs(host) ? "" : ", does not run",
                          rr_has(host, cid) ? "has it" : "has it not",
                          rr_serves(host, cid) ? "serves it" : "does not serve it");
    }
}

static inline void rr_chunk_fail(const struct rr *rr, const struct rc_chunk *chunk)
{
    rr_where(rr, chunk->cid);
    rc_chunk_print(chunk);
    RW_FAIL(rr->rw, "chunk %" PRIx64 " is in several stores, or in one that does not serve it",
            chunk->cid.v);
}

/* While all goes on: no chunk is served by two nodes. */
static inline void rr_owners_watch(const struct rr *rr, const struct rc *rc)
{
    unsigned served, has;
    for (unsigned i = 0; i < rc->chunk_count; i++) {
        rr_count(rr, rc->chunks[i].cid, &served, &has);
        if (served > 1)
            rr_chunk_fail(rr, &rc->chunks[i]);
    }
}

/* A chunk that is in several stores, or in one that does not serve it; NULL: there is none. */
static inline const struct rc_chunk *rr_astray(const struct rr *rr, const struct rc *rc)
{
    unsigned served, has;
    for (unsigned i = 0; i < rc->chunk_count; i++) {
        rr_count(rr, rc->chunks[i].cid, &served, &has);
        if (served != has || has > 1)
            return &rc->chunks[i];
    }
    return NULL;
}

/* Clients are still: each chunk is in one store, which serves it, or in none, once moves that were under way when nodes ended are over. */
static inline void rr_stores_check(const struct rr *rr, const struct rc *rc)
{
    uint64_t until_ns = sh_world_now(rr->rw->world) + (rc->moves ? RR_MOVES_NS : 0);
    const struct rc_chunk *astray;
    while ((astray = rr_astray(rr, rc)) && sh_world_now(rr->rw->world) < until_ns)
        rw_run(rr->rw, 100 * MS);
    if (astray)
        rr_chunk_fail(rr, astray);
}

/* Clients begin no more calls, and those under way end. */
static inline void rr_calls_end(struct rr *rr, struct rc *rc)
{
    struct sh_world *world = rr->rw->world;
    rc->is_still = true;
    if (!sh_world_run_until(world, rc_is_idle, rc, sh_world_now(world) + RC_TIMEOUT_NS + S))
        RW_FAIL(rr->rw, "calls do not end");
}

/* All chunks are read, and each addition that was acknowledged counts once. Clients are still. */
static inline void rr_all_check(struct rr *rr, struct rc *rc)
{
    struct sh_world *world = rr->rw->world;
    rc->is_reading_all = true;
    rc->read_next = 0;
    if (!sh_world_run_until(world, rc_is_idle, rc, sh_world_now(world) + RC_TIMEOUT_NS + S))
        RW_FAIL(rr->rw, "reads do not end");
    rc->is_reading_all = false;
    rr_stores_check(rr, rc);
    rc_counters_check(rc);
}

#endif
