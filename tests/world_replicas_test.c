/* Clusters whose peers have replicas at each other, in simulated worlds: clients write at all levels, while connections are cut, parts of the
 * cluster do not hear each other, nodes stand still, are killed, stop, or lose their power, and disks lose what was not synced, are slow,
 * full, fail, or have bits that go bad. Then all peers lose their power, at once or one part of them a second after the other, and what their
 * logs have is compared with what was acknowledged (replicas_logs_int.h). A peer that was down is a backup again, but its own chunks are
 * gone: only its backups' logs have them.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds to try beside the fixed ones (default 2). SHOAL_TEST_SEED: the first of them (default: random;
 * printed). */
#include "sim/chaos.h"
#include "tests/replicas_logs_int.h"
#include "tests/seed_int.h"

#define SEEDS 12
#define FAULTS 16
#define FAULT_GAP_NS (200 * MS)
#define SETTLE_NS                                                                                  \
    (900 *                                                                                         \
     MS) /* a log writes within 100 ms what it has taken, and a view is told within a few heartbeats */

static struct rw rw;
static struct rw_client client;
static struct rw_logs logs;
static struct sh_chaos *chaos;

struct sums {
    uint64_t checks[SH_LEVELS], acked[SH_LEVELS], gets, removes, large;
    unsigned zones, pairs, moved, damaged, lone, crashes, kills, stops, flips, troubles;
};
static struct sums sums;

static void sums_add(void)
{
    for (unsigned i = 0; i < SH_LEVELS; i++) {
        sums.checks[i] += logs.checks[i];
        sums.acked[i] += client.acked[i];
    }
    sums.gets += client.gets;
    sums.removes += client.removes;
    sums.large += client.large;
    sums.zones += logs.zone_count;
    sums.pairs += logs.pairs;
    sums.moved += logs.moved;
    sums.damaged += logs.damaged;
    sums.lone += logs.lone;
    sums.crashes += rw.crashes;
    sums.kills += rw.kills;
    sums.stops += rw.stops;
    sums.flips += rw.flips;
    sums.troubles += rw.troubles;
}

static void sums_print(void)
{
    print_message("%" PRIu64 ", %" PRIu64 ", %" PRIu64 " writes by level, %" PRIu64
                  " of them large, %" PRIu64 " removals, %" PRIu64
                  " gets; %u crashes, %u kills, %u stops, %u disks in trouble, %u bits\n",
                  sums.acked[0], sums.acked[1], sums.acked[2], sums.large, sums.removes, sums.gets,
                  sums.crashes, sums.kills, sums.stops, sums.troubles, sums.flips);
    print_message("%u zones, %u with too few backups, %u pairs of replicas; %" PRIu64
                  " checks of replicated writes, %" PRIu64
                  " of durable ones; %u chunks in two zones, %u damaged replicas\n",
                  sums.zones, sums.lone, sums.pairs, sums.checks[1], sums.checks[2], sums.moved,
                  sums.damaged);
}

/* --- Faults ------------------------------------------------------------------------------------- */

static void on_disk_well(void *arg, uint64_t unused, uint64_t unused_too)
{
    const struct rw_host *host = arg;
    (void)unused;
    (void)unused_too;
    sh_world_disk_trouble_set(host->rw->world, host->node, SH_DISK_WELL);
}

static void disk_trouble(struct rw_host *host)
{
    bool fails = rw_below(&rw, 2);
    uint64_t end_ns = sh_world_now(rw.world) + rw_below(&rw, S);
    if (sh_world_disk_trouble(rw.world, host->node))
        return;
    host->is_sick |= fails;
    rw.troubles++;
    sh_world_disk_trouble_set(rw.world, host->node, fails ? SH_DISK_FAILS : SH_DISK_FULL);
    sh_world_at(rw.world, end_ns, on_disk_well, host, 0, 0);
}

static void on_stop_answered(struct sh_request *request, enum shoal_err err,
                             struct sh_reader *payload)
{
    (void)request;
    (void)err;
    (void)payload;
}

/* Asks a peer to stop in order, as an operator does. */
static void stop(const struct rw_host *host)
{
    static struct sh_request requests[FAULTS];
    static unsigned next;
    struct sh_request *request = &requests[next++ % FAULTS];
    struct sh_out out;
    *request = (struct sh_request){.done = on_stop_answered};
    if (!host->nid.v || sh_msg_request(client.msg, host->nid, SH_NODE_STOP, 0, request, &out))
        return;
    sh_msg_end(client.msg, &out);
    rw.stops++;
}

static bool may_fail(const struct rw_host *host)
{
    return sh_world_is_up(rw.world, host->node) && !sh_world_is_paused(rw.world, host->node);
}

/* Half of those that are down are back before they are missed. */
static void down(struct rw_host *host, bool is_kill)
{
    rw_crash(host, is_kill);
    rw_start_later(host, rw_below(&rw, rw_below(&rw, 2) ? 100 * MS : 3 * S));
}

/* Several peers lose their power at one moment. */
static void blackout(void)
{
    for (unsigned i = 0; i < RW_PEERS; i++) {
        if (rw_below(&rw, 2) && may_fail(rw_peer(&rw, i)))
            down(rw_peer(&rw, i), false);
    }
}

static void strike(void)
{
    struct rw_host *host = rw_peer(&rw, (unsigned)rw_below(&rw, RW_PEERS));
    uint64_t drawn = rw_below(&rw, 20);
    if (!may_fail(host))
        return;
    if (drawn < 5)
        down(host, false);
    else if (drawn < 8)
        down(host, true);
    else if (drawn < 10)
        stop(host);
    else if (drawn < 13)
        disk_trouble(host);
    else if (drawn == 13)
        blackout();
}

/* --- Worlds ------------------------------------------------------------------------------------- */

static bool has_begun(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < RW_PEERS; i++) {
        if (!rw_is_joined(rw_peer(&rw, i)))
            return false;
    }
    return client.acked[SH_LEVEL_DURABLE] > 2;
}

static void chaos_run(unsigned faults)
{
    const struct sh_chaos_config config = {.nodes = rw.count,
                                           .reach = rw.count,
                                           .gap_ns_max = FAULT_GAP_NS + rw_below(&rw, S),
                                           .length_ns_max = (200 + rw_below(&rw, 1500)) * MS,
                                           .cuts = 2,
                                           .partitions = 2,
                                           .pauses = 1,
                                           .stops = 1,
                                           .slow_disks = 1};
    chaos = sh_chaos_start(rw.world, &config);
    for (unsigned i = 0; i < faults; i++) {
        rw_run(&rw, rw_below(&rw, 2 * FAULT_GAP_NS));
        strike();
    }
    sh_chaos_stop(chaos);
}

/* A node that stopped inside a step goes on by itself, in a while. */
static bool does_nobody_stand_still(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < rw.count; i++) {
        if (sh_world_is_up(rw.world, i) && sh_world_is_paused(rw.world, i))
            return false;
    }
    return true;
}

/* Some lose their power, and the others have time to write what they have taken. */
static void part_goes(void)
{
    unsigned most = 1 + (unsigned)rw_below(&rw, 3);
    for (unsigned i = 0; i < most; i++) {
        struct rw_host *host = rw_peer(&rw, (unsigned)rw_below(&rw, RW_PEERS));
        if (sh_world_is_up(rw.world, host->node))
            rw_crash(host, false);
    }
    for (unsigned i = 0; i < RW_PEERS; i++) /* a full one would keep it all in memory */
        sh_world_disk_trouble_set(rw.world, rw_peer(&rw, i)->node, SH_DISK_WELL);
    client.is_still = true;
    (void)sh_world_run_until(rw.world, does_nobody_stand_still, NULL,
                             sh_world_now(rw.world) + 10 * S);
    rw_run(&rw, SETTLE_NS);
    rw_client_ends(&client); /* what is answered from here on nobody hears */
    rw_run(&rw, SETTLE_NS);
}

static void all_go(bool had_time)
{
    for (unsigned i = 0; i < RW_PEERS; i++) {
        struct rw_host *host = rw_peer(&rw, i);
        uint64_t sound_since = host->sound_since;
        bool is_sick = host->is_sick;
        host->is_read = true;
        if (sh_world_is_up(rw.world, host->node)) {
            rw_crash(host, false);
            host->sound_since = had_time ? sound_since : host->sound_since;
            host->is_sick = is_sick;
        }
        sh_world_disk_trouble_set(rw.world, host->node, SH_DISK_WELL);
    }
    rw_client_ends(&client);
}

static void run_world(uint64_t seed, unsigned superpeers, uint64_t replicas, unsigned faults)
{
    const struct sh_world_config config = rw_config(seed, 3 * MS);
    print_message("seed %" PRIu64 "\n", seed);
    rw_open(&rw, &config, superpeers, replicas);
    rw_client_open(&client, &rw, seed % 3 ? 12 : 3);
    if (!sh_world_run_until(rw.world, has_begun, NULL, 30 * S))
        RW_FAIL(&rw, "the cluster does not begin");
    if (rw_below(&rw, 2))
        rw_peer(&rw, (unsigned)rw_below(&rw, RW_PEERS))->flips = true;
    chaos_run(faults);
    bool has_time = rw_below(&rw, 3) > 0;
    if (has_time)
        part_goes();
    all_go(has_time);
    rw_logs_check(&logs, &rw, &client);
    sums_add();
    rw_client_close(&client);
    rw_close(&rw);
    sh_chaos_destroy(chaos);
}

static void fixed_seeds_lose_nothing(void **state)
{
    (void)state;
    sums = (struct sums){.zones = 0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_world(seed, seed % 2 ? 1 : 3, 2 + seed % 2, FAULTS);
    sums_print();
    /* Worlds must not be so rough that nothing is written, nor so calm that nothing could be lost. */
    assert_true(sums.acked[SH_LEVEL_DURABLE] > 100 && sums.acked[SH_LEVEL_REPLICATED] > 100);
    assert_true(sums.checks[SH_LEVEL_DURABLE] > 1000 && sums.checks[SH_LEVEL_REPLICATED] > 0);
    assert_true(sums.large > 20 && sums.removes > 20 && sums.gets > 100 && sums.pairs > 10);
    assert_true(sums.crashes > 10 && sums.kills > 2 && sums.troubles > 2);
    assert_true(sums.flips > 0 && sums.stops > 2);
}

static void run_fresh(uint64_t seed, uint64_t at)
{
    (void)at;
    run_world(seed, seed % 4 ? 1 : 3, 2 + seed / 4 % 2, FAULTS);
}

static void fresh_seeds_lose_nothing(void **state)
{
    (void)state;
    sums = (struct sums){.zones = 0};
    test_fresh_seeds(2, run_fresh);
    sums_print();
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds_lose_nothing),
        cmocka_unit_test(fresh_seeds_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
