/* One simulated cluster from its beginning to its end. */
#include "sim/cluster_world.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/chaos.h"
#include "sim/cluster_world_int.h"
#include "sim/world_int.h"

/* Within so long a cluster without faults is whole. */
#define OPEN_NS (20 * CW_S)
/* One world in so many. */
#define ZOOKEEPER_WORLDS 8

struct sh_cluster_world_config sh_cluster_world_config_of(uint64_t seed, unsigned superpeers,
                                                          unsigned peers, unsigned clients)
{
    struct sh_prng prng = sh_prng_make(sh_mix64(seed + UINT64_C(0x636c7573746572)));
    /* Most worlds are small: they are fast, and find most. */
    static const unsigned counts[] = {1, 3, 3, 3, 5};
    unsigned drawn_superpeers = counts[sh_prng_below(&prng, 5)];
    bool is_large = sh_prng_below(&prng, 16) == 0;
    unsigned drawn_peers = (unsigned)sh_prng_between(&prng, 2, is_large ? 20 : 6);
    unsigned drawn_clients = (unsigned)sh_prng_between(&prng, 1, is_large ? 12 : 3);
    struct sh_cluster_world_config config = {
        .seed = seed,
        .superpeers = superpeers ? superpeers : drawn_superpeers,
        .peers = peers ? peers : drawn_peers,
        .clients = clients ? clients : drawn_clients,
        .rounds = 2,
        .round_ns = sh_prng_between(&prng, 5, 30) * CW_S,
        .move_gap_ns_max = CW_S,
        .think_ns_max = sh_prng_between(&prng, 50, 500) * CW_MS};
    config.kind = (enum sh_cluster_world_kind)sh_prng_below(&prng, 3);
    config.programs = (unsigned)sh_prng_between(&prng, 1, 3);
    config.spares = (unsigned)sh_prng_below(&prng, SH_CLUSTER_SPARES_MAX + 1);
    if (config.kind == SH_CLUSTER_MIGRATION)
        config.move_gap_ns_max = sh_prng_between(&prng, 50, 200) * CW_MS;
    config.locks = sh_mix64(seed + UINT64_C(0x6c6f636b73)) % 2;
    config.multis = sh_mix64(seed + UINT64_C(0x6d756c746973)) % 2;
    config.flips = sh_mix64(seed + UINT64_C(0x666c697073)) % 3 == 0;
    config.zones = sh_mix64(seed + UINT64_C(0x7a6f6e6573)) % 3 == 0;
    config.is_zookeeper = sh_mix64(seed + UINT64_C(0x7a6f6f6b)) % ZOOKEEPER_WORLDS == 0;
    return config;
}

static struct sh_world_config world_config(const struct cw_world *world)
{
    /* How soon connections end whose way is stopped: what they held back arrives late otherwise. */
    static const uint64_t patiences_ns[] = {CW_FAILURE_NS / 10, CW_FAILURE_NS / 2,
                                            2 * CW_FAILURE_NS};
    uint64_t drawn = sh_mix64(world->config.seed + UINT64_C(0x7061746965));
    return (struct sh_world_config){
        .seed = world->config.seed,
        .wire = {.delay_ns_min = CW_MS / 20,
                 .delay_ns_max = 2 * CW_MS,
                 .slow_ppm = 10000,
                 .slow_ns_max = 20 * CW_MS,
                 .piece_ppm = 100000,
                 .abrupt_ppm = 100000,
                 .lost_ns_max = 5 * CW_MS,
                 .give_up_ns_max = patiences_ns[drawn % 3],
                 .window_bytes_min = 4096,
                 .window_bytes_max = 65536},
        .disk = {.delay_ns_min = CW_MS / 10,
                 .delay_ns_max = 5 * CW_MS,
                 .again_ppm = 10000,
                 .survive_ppm = 300000,
                 .torn_ppm = 300000},
        .skip_ppm = 2000, /* more would cost many rounds for each moment of so many nodes */
        .trace = world->config.trace};
}

/* Which nodes may crash: superpeers and clients, and of the peers few, as each takes its chunks
 * with it. */
static uint64_t crash_mask(struct cw_world *world)
{
    uint64_t mask = 0;
    unsigned most = world->config.peers / 2;
    world->mortals = (unsigned)cw_below(world, 2) * (unsigned)cw_below(world, most + 1);
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        bool may =
            host->kind == CW_PEER ? host->index < world->mortals : sh_world_is_up(world->sim, i);
        if (may)
            mask |= UINT64_C(1) << i;
    }
    return mask;
}

/* All superpeers: when they crash at once, nothing is left but what their disks have. */
static uint64_t superpeers_mask(const struct cw_world *world)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        bool may = host->kind == CW_SPARE || host->index < world->mortals;
        if (host->kind == CW_SUPERPEER || (host->superpeer && may))
            mask |= UINT64_C(1) << i;
    }
    return mask;
}

/* Whose disks may fail or be full: superpeers that are so by now, and peers that none promotes. One that
 * can't store that it has become a superpeer would have to be dismissed by an operator. */
static uint64_t bad_disk_mask(const struct cw_world *world)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        bool is_plain = host->kind == CW_PEER && !cw_may_promote(host);
        if (host->kind == CW_SUPERPEER || is_plain || (host->kind == CW_PEER && host->superpeer))
            mask |= UINT64_C(1) << i;
    }
    return mask;
}

/* In a third of the worlds disks fail or are full. Drawn beside the world's numbers. */
static unsigned bad_disks(const struct cw_world *world)
{
    uint64_t drawn = sh_mix64(world->config.seed + UINT64_C(0x6261646469736b));
    return drawn % 3 == 0 ? 1 + (unsigned)(drawn / 3 % 4) : 0;
}

/* In half of the worlds programs die in the middle of what they call. Drawn beside the world's
 * numbers, and each round anew. */
static void kills_set(const struct cw_world *world, struct sh_chaos_config *config)
{
    uint64_t drawn = sh_mix64(world->config.seed + UINT64_C(0x6b696c6c));
    if (drawn % 2)
        return;
    for (unsigned i = 0; i < world->count; i++) {
        if (world->hosts[i].kind == CW_PROGRAM)
            config->kill_mask |= UINT64_C(1) << i;
    }
    config->kill_gap_ns_max = (2 + drawn / 2 % 8) * CW_S;
    config->kill_seed = sh_mix64(drawn + world->chaos_count);
}

static struct sh_chaos_config chaos_config_of_kind(struct cw_world *world)
{
    switch (world->config.kind) {
    case SH_CLUSTER_REGISTRY:
        return (struct sh_chaos_config){.nodes = world->config.superpeers,
                                        .gap_ns_max = (300 + cw_below(world, 1200)) * CW_MS,
                                        .length_ns_max = (300 + cw_below(world, 2000)) * CW_MS,
                                        .cuts = (unsigned)cw_below(world, 3),
                                        .partitions = (unsigned)cw_below(world, 4),
                                        .pauses = (unsigned)cw_below(world, 4),
                                        .crashes = 1 + (unsigned)cw_below(world, 4),
                                        .slow_disks = (unsigned)cw_below(world, 3),
                                        .stops = (unsigned)cw_below(world, 4),
                                        .restarts_soon = true,
                                        .flaps = true};
    case SH_CLUSTER_MIGRATION:
        return (struct sh_chaos_config){.nodes = world->config.superpeers + world->config.peers,
                                        .gap_ns_max = (200 + cw_below(world, 800)) * CW_MS,
                                        .length_ns_max = (500 + cw_below(world, 2500)) * CW_MS,
                                        .cuts = 1 + (unsigned)cw_below(world, 6),
                                        .partitions = (unsigned)cw_below(world, 3),
                                        .pauses = 1 + (unsigned)cw_below(world, 6),
                                        .stops = (unsigned)cw_below(world, 4),
                                        .crashes = (unsigned)cw_below(world, 2),
                                        .blackouts = (unsigned)cw_below(world, 3),
                                        .crash_mask = crash_mask(world),
                                        .blackout_mask = superpeers_mask(world),
                                        .restarts_soon = true,
                                        .flaps = true};
    default:
        return (struct sh_chaos_config){.nodes = world->count,
                                        .gap_ns_max = (1 + cw_below(world, 4)) * CW_S,
                                        .length_ns_max = (1 + cw_below(world, 4)) * CW_S,
                                        .cuts = (unsigned)cw_below(world, 6),
                                        .partitions = (unsigned)cw_below(world, 4),
                                        .pauses = (unsigned)cw_below(world, 4),
                                        .crashes = 1 + (unsigned)cw_below(world, 6),
                                        .blackouts = (unsigned)cw_below(world, 2),
                                        .slow_disks = (unsigned)cw_below(world, 3),
                                        .stops = (unsigned)cw_below(world, 4),
                                        .crash_mask = crash_mask(world),
                                        .blackout_mask = superpeers_mask(world),
                                        .restarts_soon = true,
                                        .flaps = true};
    }
}

/* In half of the worlds whose faults are the superpeers' or peers' own, clients and programs are cut
 * off and stopped too. Drawn beside the world's numbers. */
static unsigned reach(const struct cw_world *world, unsigned nodes)
{
    return sh_mix64(world->config.seed + UINT64_C(0x7265616368)) % 2 ? world->count : nodes;
}

static struct sh_chaos *chaos_start(struct cw_world *world)
{
    struct sh_chaos_config config = chaos_config_of_kind(world);
    config.reach = reach(world, config.nodes);
    config.bad_disks = bad_disks(world);
    config.bad_disk_mask = world->bad_disk_mask = bad_disk_mask(world);
    kills_set(world, &config);
    return sh_chaos_start(world->sim, &config);
}

static bool all_open(void *arg)
{
    struct cw_world *world = arg;
    for (unsigned i = 0; i < world->config.peers; i++) {
        if (!cw_is_joined(cw_peer(world, i)))
            return false;
    }
    return true;
}

static void open_world(struct cw_world *world)
{
    struct sh_world_config config = world_config(world);
    world->sim = sh_world_create(&config);
    world->prng = sh_world_prng(world->sim);
    if (world->config.is_zookeeper)
        world->zookeeper = sh_zookeeper_model_create(world->sim, world->config.seed);
    sh_zookeeper_model_calm_set(world->zookeeper, true);
    for (unsigned i = 0; i < world->config.superpeers; i++) {
        (void)snprintf(world->addresses[i], sizeof world->addresses[i], "node%u:1", i);
        world->superpeers[i] = world->addresses[i];
    }
    for (unsigned i = 0; i < world->config.superpeers; i++)
        (void)cw_host_add(world, CW_SUPERPEER, (uint16_t)i);
    for (unsigned i = 0; i < world->config.peers; i++)
        (void)cw_host_add(world, CW_PEER, (uint16_t)i);
    if (!sh_world_run_until(world->sim, all_open, world, OPEN_NS))
        cw_fail(world, "not all peers could join a new cluster");
    for (unsigned i = 0; i < world->config.clients; i++)
        (void)cw_host_add(world, CW_CLIENT, (uint16_t)world->clients_added++);
    for (unsigned i = 0; i < world->config.programs; i++)
        (void)cw_host_add(world, CW_PROGRAM, (uint16_t)i);
    for (unsigned i = 0; i < world->config.spares && !world->zookeeper; i++)
        (void)cw_host_add(world, CW_SPARE, (uint16_t)i);
}

/* Faults for a time; then there are none, and soon everything must be well. */
static void run_round(struct cw_world *world)
{
    struct sh_world *sim = world->sim;
    struct sh_chaos *chaos = world->config.is_quiet ? NULL : chaos_start(world);
    sh_zookeeper_model_calm_set(world->zookeeper, world->config.is_quiet);
    (void)sh_world_run_until(sim, cw_watch, world, sh_world_now(sim) + world->config.round_ns);
    if (chaos)
        sh_chaos_stop(chaos);
    sh_zookeeper_model_calm_set(world->zookeeper, true);
    world->ends = true;
    cw_programs_end(world);
    cw_zones_end(world);
    uint64_t until_ns = sh_world_now(sim) + SH_CLUSTER_SETTLE_NS;
    if (!world->result->failed && !sh_world_run_until(sim, cw_has_settled, world, until_ns))
        cw_not_settled(world);
    if (!world->result->failed)
        cw_end_check(world);
    if (!world->result->failed)
        cw_check_end(world);
    world->ends = false;
    /* Its events are still in the world's queue, so it goes with the world. */
    world->chaos[world->chaos_count++] = chaos;
}

static void close_world(struct cw_world *world)
{
    world->result->virtual_ns = sh_world_now(world->sim);
    world->result->trace_hash = sh_world_trace_hash(world->sim);
    for (unsigned i = 0; i < world->count; i++)
        cw_host_drop(&world->hosts[i]);
    sh_zookeeper_model_destroy(world->zookeeper);
    sh_world_destroy(world->sim);
    for (unsigned i = 0; i < world->chaos_count; i++)
        sh_chaos_destroy(world->chaos[i]);
    cw_programs_close(world);
    cw_zones_close(world);
    free(world->scratch);
    free(world);
}

void sh_cluster_world_run(const struct sh_cluster_world_config *config,
                          struct sh_cluster_world_result *result_out)
{
    SH_ASSERT(config->superpeers >= 1 && config->superpeers <= SH_CLUSTER_SUPERPEERS_MAX);
    SH_ASSERT(config->peers >= 2 && config->peers <= SH_CLUSTER_PEERS_MAX);
    SH_ASSERT(config->clients >= 1 && config->clients <= SH_CLUSTER_CLIENTS_MAX);
    SH_ASSERT(config->programs <= SH_CLUSTER_PROGRAMS_MAX);
    SH_ASSERT(config->spares <= SH_CLUSTER_SPARES_MAX);
    SH_ASSERT(config->rounds <= CW_ROUNDS_MAX);
    struct cw_world *world = sh_sim_alloc(sizeof *world);
    *result_out = (struct sh_cluster_world_result){.failed = false};
    world->config = *config;
    world->result = result_out;
    world->scratch = sh_sim_alloc(CW_CHUNK_BYTES_MAX);
    cw_programs_open(world);
    cw_zones_open(world);
    open_world(world);
    for (unsigned round = 0; round < config->rounds && !result_out->failed; round++)
        run_round(world);
    close_world(world);
}
