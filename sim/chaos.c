/* Faults at random. */
#include "sim/chaos.h"

#include <stdlib.h>

#include "base/assert.h"
#include "sim/world_int.h"

#define SOON_NS UINT64_C(20000000)
#define STOP_LOOKS_MAX 64
/* A network that flaps: it is parted for a moment, well for another, and parted again. */
#define FLAP_PARTED_NS UINT64_C(200000000)
#define FLAP_WELL_NS UINT64_C(4000000)

enum fault { FAULT_NONE, FAULT_PAUSE, FAULT_CRASH };

struct sh_chaos {
    struct sh_world *world;
    struct sh_chaos_config config;
    struct sh_prng prng, kill_prng;
    enum fault faults[SH_WORLD_MASKED_MAX]; /* by node: what it suffers now */
    bool partitioned;
    uint64_t flap_mask;                    /* who will be parted again; 0: nobody */
    bool is_disk_odd[SH_WORLD_MASKED_MAX]; /* slow, failing or full */
    bool stopped;
};

static uint64_t draw_length(struct sh_chaos *chaos, uint64_t max)
{
    return sh_prng_between(&chaos->prng, max / 10, max);
}

static void node_recover(struct sh_chaos *chaos, unsigned node)
{
    if (chaos->faults[node] == FAULT_PAUSE)
        sh_world_resume(chaos->world, node);
    if (chaos->faults[node] == FAULT_CRASH)
        sh_world_restart(chaos->world, node);
    chaos->faults[node] = FAULT_NONE;
}

static void on_recover(void *arg, uint64_t node, uint64_t unused)
{
    struct sh_chaos *chaos = arg;
    (void)unused;
    if (!chaos->stopped)
        node_recover(chaos, (unsigned)node);
}

static uint64_t end_of_fault(struct sh_chaos *chaos)
{
    return sh_world_now(chaos->world) + draw_length(chaos, chaos->config.length_ns_max);
}

static void strike_node(struct sh_chaos *chaos, enum fault fault, unsigned nodes)
{
    unsigned node = (unsigned)sh_prng_below(&chaos->prng, nodes);
    uint64_t mask = chaos->config.crash_mask;
    if (chaos->faults[node] != FAULT_NONE || (fault == FAULT_CRASH && mask && !(mask >> node & 1)))
        return;
    chaos->faults[node] = fault;
    if (fault == FAULT_PAUSE)
        sh_world_pause(chaos->world, node);
    else
        sh_world_crash(chaos->world, node);
    bool soon =
        fault == FAULT_CRASH && chaos->config.restarts_soon && sh_prng_below(&chaos->prng, 2);
    uint64_t end_ns =
        soon ? sh_world_now(chaos->world) + draw_length(chaos, SOON_NS) : end_of_fault(chaos);
    sh_world_at(chaos->world, end_ns, on_recover, chaos, node, 0);
}

/* Somewhere in the steps that the node runs next: a message that is handled looks at the clock a
 * few times. It goes on by itself. */
static void strike_inside(struct sh_chaos *chaos)
{
    unsigned node = (unsigned)sh_prng_below(&chaos->prng, chaos->config.reach);
    unsigned looks = 1 + (unsigned)sh_prng_below(&chaos->prng, STOP_LOOKS_MAX);
    if (chaos->faults[node] == FAULT_NONE)
        sh_world_stop_inside(chaos->world, node, looks,
                             draw_length(chaos, chaos->config.length_ns_max));
}

static void on_blackout(void *arg, uint64_t unused, uint64_t unused_too)
{
    struct sh_chaos *chaos = arg;
    (void)unused;
    (void)unused_too;
    for (unsigned node = 0; !chaos->stopped && node < chaos->config.nodes; node++) {
        if (!(chaos->config.blackout_mask >> node & 1) || chaos->faults[node] == FAULT_CRASH)
            continue;
        chaos->faults[node] = FAULT_CRASH;
        sh_world_crash(chaos->world, node);
        sh_world_at(chaos->world, sh_world_now(chaos->world) + draw_length(chaos, SOON_NS),
                    on_recover, chaos, node, 0);
    }
}

/* Half of the blackouts find a node away, which comes back to superpeers that have begun anew. */
static void strike_blackout(struct sh_chaos *chaos)
{
    uint64_t now_ns = sh_world_now(chaos->world), length_ns = chaos->config.length_ns_max;
    unsigned away = (unsigned)sh_prng_below(&chaos->prng, chaos->config.nodes);
    bool is_away = sh_prng_below(&chaos->prng, 2) && chaos->faults[away] == FAULT_NONE &&
                   !(chaos->config.blackout_mask >> away & 1);
    if (!is_away) {
        on_blackout(chaos, 0, 0);
        return;
    }
    chaos->faults[away] = FAULT_PAUSE;
    sh_world_pause(chaos->world, away);
    sh_world_at(chaos->world, now_ns + length_ns, on_blackout, chaos, 0, 0);
    sh_world_at(chaos->world, now_ns + length_ns + draw_length(chaos, length_ns), on_recover, chaos,
                away, 0);
}

static uint64_t all_nodes(const struct sh_chaos *chaos)
{
    return chaos->config.reach == 64 ? UINT64_MAX : (UINT64_C(1) << chaos->config.reach) - 1;
}

static void part(struct sh_chaos *chaos, uint64_t mask, bool one_way, uint64_t end_ns);

static void on_flap(void *arg, uint64_t unused, uint64_t unused_too)
{
    struct sh_chaos *chaos = arg;
    (void)unused;
    (void)unused_too;
    uint64_t mask = chaos->flap_mask;
    chaos->flap_mask = 0;
    if (!chaos->stopped)
        part(chaos, mask, sh_prng_below(&chaos->prng, 2), end_of_fault(chaos));
}

static void on_heal(void *arg, uint64_t unused, uint64_t unused_too)
{
    struct sh_chaos *chaos = arg;
    (void)unused;
    (void)unused_too;
    if (chaos->stopped)
        return;
    sh_world_heal(chaos->world);
    chaos->partitioned = chaos->flap_mask != 0;
    if (chaos->flap_mask)
        sh_world_at(chaos->world,
                    sh_world_now(chaos->world) + sh_prng_below(&chaos->prng, FLAP_WELL_NS), on_flap,
                    chaos, 0, 0);
}

static void part(struct sh_chaos *chaos, uint64_t mask, bool one_way, uint64_t end_ns)
{
    chaos->partitioned = true;
    sh_world_partition(chaos->world, mask, all_nodes(chaos) & ~mask, one_way);
    sh_world_at(chaos->world, end_ns, on_heal, chaos, 0, 0);
}

static void strike_network(struct sh_chaos *chaos)
{
    if (chaos->partitioned)
        return;
    uint64_t mask = sh_prng_next(&chaos->prng) & all_nodes(chaos);
    bool one_way = sh_prng_below(&chaos->prng, 2);
    bool flaps = chaos->config.flaps && sh_prng_below(&chaos->prng, 2);
    chaos->flap_mask = flaps ? mask : 0;
    part(chaos, mask, one_way,
         flaps ? sh_world_now(chaos->world) + draw_length(chaos, FLAP_PARTED_NS)
               : end_of_fault(chaos));
}

static void strike_link(struct sh_chaos *chaos)
{
    unsigned a = (unsigned)sh_prng_below(&chaos->prng, chaos->config.reach);
    unsigned b = (unsigned)sh_prng_below(&chaos->prng, chaos->config.reach);
    sh_world_cut(chaos->world, a, b); /* a again: all of its links */
}

static void disk_recover(struct sh_chaos *chaos, unsigned node)
{
    if (chaos->is_disk_odd[node])
        sh_world_disk_delay_set(chaos->world, node, 0, 0);
    chaos->is_disk_odd[node] = false;
}

static void on_disk_recover(void *arg, uint64_t node, uint64_t unused)
{
    struct sh_chaos *chaos = arg;
    (void)unused;
    if (!chaos->stopped)
        disk_recover(chaos, (unsigned)node);
}

static void strike_disk(struct sh_chaos *chaos)
{
    unsigned node = (unsigned)sh_prng_below(&chaos->prng, chaos->config.nodes);
    if (chaos->is_disk_odd[node])
        return;
    chaos->is_disk_odd[node] = true;
    sh_world_disk_delay_set(chaos->world, node, 0, 1 + chaos->config.length_ns_max / 10);
    sh_world_at(chaos->world, end_of_fault(chaos), on_disk_recover, chaos, node, 0);
}

static void strike_bad_disk(struct sh_chaos *chaos)
{
    unsigned node = (unsigned)sh_prng_below(&chaos->prng, chaos->config.nodes);
    bool fails = sh_prng_below(&chaos->prng, 2);
    if (chaos->is_disk_odd[node] || !(chaos->config.bad_disk_mask >> node & 1))
        return;
    chaos->is_disk_odd[node] = true;
    sh_world_disk_trouble_set(chaos->world, node, fails ? SH_DISK_FAILS : SH_DISK_FULL);
    sh_world_at(chaos->world, end_of_fault(chaos), on_disk_recover, chaos, node, 0);
}

/* --- Kills: beside the other faults, with draws of their own ----------------------------------
 */

static uint64_t kill_length(struct sh_chaos *chaos, uint64_t max)
{
    return sh_prng_between(&chaos->kill_prng, max / 10, max);
}

/* Half of those that are killed are back within a moment, before their connections are missed. */
static void kill(struct sh_chaos *chaos, unsigned node)
{
    uint64_t most = sh_prng_below(&chaos->kill_prng, 2) ? SOON_NS : chaos->config.length_ns_max;
    uint64_t end_ns = sh_world_now(chaos->world) + kill_length(chaos, most);
    chaos->faults[node] = FAULT_CRASH;
    sh_world_crash(chaos->world, node);
    sh_world_at(chaos->world, end_ns, on_recover, chaos, node, 0);
}

static void on_kill(void *arg, uint64_t unused, uint64_t unused_too)
{
    struct sh_chaos *chaos = arg;
    (void)unused;
    (void)unused_too;
    if (chaos->stopped)
        return;
    uint64_t left = chaos->config.kill_mask;
    uint64_t drawn = sh_prng_below(&chaos->kill_prng, (uint64_t)__builtin_popcountll(left));
    for (; drawn; drawn--)
        left &= left - 1;
    unsigned node = (unsigned)__builtin_ctzll(left);
    if (chaos->faults[node] == FAULT_NONE && sh_world_is_up(chaos->world, node))
        kill(chaos, node);
    sh_world_at(chaos->world,
                sh_world_now(chaos->world) + kill_length(chaos, chaos->config.kill_gap_ns_max),
                on_kill, chaos, 0, 0);
}

static void kills_begin(struct sh_chaos *chaos)
{
    chaos->kill_prng = sh_prng_make(chaos->config.kill_seed);
    if (!chaos->config.kill_mask)
        return;
    sh_world_at(chaos->world,
                sh_world_now(chaos->world) + kill_length(chaos, chaos->config.kill_gap_ns_max),
                on_kill, chaos, 0, 0);
}

static unsigned weights(const struct sh_chaos_config *config)
{
    return config->cuts + config->partitions + config->pauses + config->crashes +
           config->blackouts + config->slow_disks + config->stops + config->bad_disks;
}

static void on_strike(void *arg, uint64_t unused, uint64_t unused_too)
{
    struct sh_chaos *chaos = arg;
    const struct sh_chaos_config *config = &chaos->config;
    (void)unused;
    (void)unused_too;
    if (chaos->stopped)
        return;
    uint64_t drawn = sh_prng_below(&chaos->prng, weights(config));
    if (drawn < config->cuts)
        strike_link(chaos);
    else if ((drawn -= config->cuts) < config->partitions)
        strike_network(chaos);
    else if ((drawn -= config->partitions) < config->pauses)
        strike_node(chaos, FAULT_PAUSE, config->reach);
    else if ((drawn -= config->pauses) < config->crashes)
        strike_node(chaos, FAULT_CRASH, config->nodes);
    else if ((drawn -= config->crashes) < config->blackouts)
        strike_blackout(chaos);
    else if ((drawn -= config->blackouts) < config->slow_disks)
        strike_disk(chaos);
    else if (drawn - config->slow_disks < config->stops)
        strike_inside(chaos);
    else
        strike_bad_disk(chaos);
    uint64_t next_ns = sh_world_now(chaos->world) + draw_length(chaos, config->gap_ns_max);
    sh_world_at(chaos->world, next_ns, on_strike, chaos, 0, 0);
}

struct sh_chaos *sh_chaos_start(struct sh_world *world, const struct sh_chaos_config *config)
{
    SH_ASSERT(config->nodes > 0 && config->nodes <= config->reach);
    SH_ASSERT(config->reach <= SH_WORLD_MASKED_MAX);
    SH_ASSERT(weights(config) > 0);
    struct sh_chaos *chaos = sh_sim_alloc(sizeof *chaos);
    chaos->world = world;
    chaos->config = *config;
    chaos->prng = sh_prng_split(sh_world_prng(world));
    sh_world_at(world, sh_world_now(world) + draw_length(chaos, config->gap_ns_max), on_strike,
                chaos, 0, 0);
    kills_begin(chaos);
    return chaos;
}

void sh_chaos_stop(struct sh_chaos *chaos)
{
    if (chaos->stopped)
        return;
    sh_world_heal(chaos->world);
    for (unsigned node = 0; node < chaos->config.reach; node++)
        sh_world_stop_inside_not(chaos->world, node);
    for (unsigned node = 0; node < SH_WORLD_MASKED_MAX; node++)
        node_recover(chaos, node);
    for (unsigned node = 0; node < chaos->config.nodes; node++)
        disk_recover(chaos, node);
    chaos->stopped = true;
}

void sh_chaos_destroy(struct sh_chaos *chaos)
{
    free(chaos);
}
