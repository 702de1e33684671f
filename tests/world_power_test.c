/* Clusters that lose their power while clients write, in simulated worlds: all nodes, superpeers and peers, end at one moment, each with what its disk
 * has by then. Of the writes that no sync covers, each disk keeps all, none, or any sectors, torn ones included (sim/disk.h): so each one's log ends at a
 * point of its own, and may have holes. Then all are started again, in any order; at times the power fails again while they bring their
 * zones back, or before these have all backups again. Nothing that was acknowledged as durable is missing (recovery_clients_int.h), however often that
 * happens, and all zones are back, and served, each time.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds to try beside the fixed ones (default 1). SHOAL_TEST_SEED: the first of them (default: random;
 * printed); with it the fixed ones are left out. */
#define RW_PEERS 19
#define RW_SUPERPEERS_MAX 5

#include "sim/chaos.h"
#include "tests/recovery_losses_int.h"
#include "tests/seed_int.h"

#define SEEDS 5
#define FAILURES 4
#define LARGE_FAILURES 2
#define SMALL_PEERS_MAX 6

static struct rw rw;
static struct rc rc;
static struct rr rr;
static struct rl rl;
static struct sh_chaos *chaos[FAILURES];

static struct {
    struct rz_time time;
    uint64_t calls, adds, words_put, removes, reads, moved, gone;
    uint64_t told_lost;
    unsigned failures, again, zones, disks, older, lost;
} sums;

static void where(shoal_cid cid)
{
    rr_where(&rr, cid);
}

static unsigned peers_count(void)
{
    return rw.count - rw.superpeer_count;
}

static bool has_begun(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < peers_count(); i++) {
        if (!rw_is_joined(rw_peer(&rw, i)))
            return false;
    }
    return rc.calls > 100;
}

/* --- The power ---------------------------------------------------------------------------------- */

/* What a disk keeps of the writes that no sync covers. */
static void luck_draw(void)
{
    static const uint32_t survive_ppm[] = {0, 100000, 500000, 900000, 1000000};
    rw.disk.survive_ppm = survive_ppm[rw_below(&rw, sizeof survive_ppm / sizeof survive_ppm[0])];
    rw.disk.torn_ppm = rw_below(&rw, 2) ? 0 : 300000;
}

static void power_off(void)
{
    sums.failures++;
    for (unsigned i = 0; i < rw.count; i++) {
        luck_draw();
        if (sh_world_is_up(rw.world, i))
            rw_crash(&rw.hosts[i], false);
    }
}

static void power_fail(void)
{
    power_off();
    for (unsigned i = 0; i < rw.count; i++)
        rw_start_later(&rw.hosts[i], rw_below(&rw, rw_below(&rw, 2) ? 100 * MS : 4 * S));
}

/* The same, and disks are lost meanwhile: by the records of the superpeers, which are back first. */
static void power_fail_without(bool has_losses)
{
    power_off();
    for (unsigned i = 0; i < rw.superpeer_count; i++)
        rw_start_later(&rw.hosts[i], rw_below(&rw, 100 * MS));
    rl_start_without(&rl, has_losses);
}

static void chaos_begin(unsigned at)
{
    const struct sh_chaos_config config = {.nodes = rw.count,
                                           .reach = rw.count,
                                           .gap_ns_max = 200 * MS + rw_below(&rw, S),
                                           .length_ns_max = 100 * MS + rw_below(&rw, 200 * MS),
                                           .cuts = 1,
                                           .slow_disks = true};
    chaos[at] = sh_chaos_start(rw.world, &config);
}

/* --- Checking ----------------------------------------------------------------------------------- */

static void quiet(void)
{
    rr_calls_end(&rr, &rc);
    rr_wait_back(&rr);
}

/* All chunks are read, and each addition that was acknowledged counts once. */
static void check_all(void)
{
    quiet();
    rr_all_check(&rr, &rc);
    rc.is_still = false;
}

/* --- Worlds ------------------------------------------------------------------------------------- */

static void failure_run(unsigned at)
{
    chaos_begin(at);
    rw_run(&rw, rw_below(&rw, 2 * S));
    bool has_lost = rw_below(&rw, 3) == 0, fails_again = false;
    if (has_lost)
        power_fail_without(false);
    else
        power_fail();
    while (rw_below(&rw, 3) ==
           0) { /* while zones are brought back, or nodes have not even joined */
        rw_run(&rw, rw_below(&rw, rw_below(&rw, 2) ? S : 8 * S));
        power_fail();
        sums.again++;
        fails_again = true;
    }
    sh_chaos_stop(chaos[at]);
    rr_wait_back(&rr);
    if (has_lost && !fails_again)
        rl_older_check(&rl);
    if (rw_below(&rw, 2))
        check_all();
}

/* All disks that had some zone are lost, or all zones of one node that has chunks: these zones are told as lost, and no others; of their nodes' chunks a read says that one is lost, or has what was
 * acknowledged. All others are there. */
static void loss_run(void)
{
    static shoal_nid owners[RC_CHUNKS];
    rr_wait_well(&rr);
    rl_owners_note(&rl, owners);
    rl.loser = rw.seed % 2 ? SHOAL_NID_NONE : rl_loser_pick(&rl, owners);
    power_fail_without(true);
    rl_chunks_mark(&rl, owners);
    rr_wait_back(&rr);
    rl_report_check(&rl);
    check_all();
    quiet();
}

static void run_world(uint64_t seed)
{
    const struct sh_world_config config = rw_config(seed, seed % 3 ? 3 * MS : 20 * MS);
    const struct rz_size size = rz_size_of(seed, 1, SMALL_PEERS_MAX);
    unsigned failures = size.is_large ? LARGE_FAILURES : FAILURES;
    print_message("seed %" PRIu64 "\n", seed);
    rw_open_some(&rw, &config, size.superpeers, size.peers, size.replicas);
    rc_open(&rc, &rw, 1 + (unsigned)(seed / 3 % RC_CLIENTS_MAX));
    rr_open(&rr, &rw);
    rl = (struct rl){.rw = &rw, .rr = &rr, .rc = &rc};
    rc.where = where;
    rc.firm = SHOAL_DURABLE;
    rc.moves = seed % 7 != 0;
    if (!sh_world_run_until(rw.world, has_begun, NULL, 60 * S))
        RW_FAIL(&rw, "the cluster does not begin");
    for (unsigned i = 0; i < failures; i++)
        failure_run(i);
    check_all();
    quiet();
    if (seed % 3 == 1)
        loss_run();
    sums.disks += rl.disks;
    sums.older += rl.older;
    sums.lost += rl.zones;
    sums.told_lost += rc.told_lost;
    sums.calls += rc.calls;
    sums.adds += rc.adds;
    sums.words_put += rc.words_put;
    sums.removes += rc.removes;
    sums.reads += rc.reads;
    sums.moved += rc.moved;
    sums.gone += rc.gone;
    sums.zones += rr.count;
    rz_time_add(&sums.time, &rw, size.is_large);
    rr_close(&rr);
    rc_close(&rc);
    rw_close(&rw);
    for (unsigned i = 0; i < failures; i++)
        sh_chaos_destroy(chaos[i]);
}

static void sums_print(void)
{
    print_message("%" PRIu64 " calls, %" PRIu64 " additions, %" PRIu64 " words put, %" PRIu64
                  " removed, %" PRIu64 " reads, %" PRIu64 " chunks moved, %" PRIu64
                  " loose ones gone; %u power failures, %u of them during a cold start; %u zones\n",
                  sums.calls, sums.adds, sums.words_put, sums.removes, sums.reads, sums.moved,
                  sums.gone, sums.failures, sums.again, sums.zones);
    print_message("%u disks lost; %u zones that may be older; %u zones lost, and %" PRIu64
                  " chunks told as lost\n",
                  sums.disks, sums.older, sums.lost, sums.told_lost);
    rz_time_print(&sums.time);
}

static void fixed_seeds_lose_nothing(void **state)
{
    (void)state;
    if (getenv("SHOAL_TEST_SEED"))
        skip();
    memset(&sums, 0, sizeof sums);
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_world(seed);
    sums_print();
    assert_true(sums.calls > 1000 && sums.adds > 100 && sums.words_put > 20 && sums.removes > 10);
    /* Disks must lose something, or nothing is tested. */
    assert_true(sums.moved > 20 && sums.disks > 1 && sums.lost > 0 && sums.told_lost > 0);
    assert_true(sums.failures >= SEEDS * FAILURES && sums.again > 0 && sums.gone + sums.older > 0);
}

static void run_fresh(uint64_t seed, uint64_t at)
{
    (void)at;
    run_world(seed);
}

static void fresh_seeds_lose_nothing(void **state)
{
    (void)state;
    memset(&sums, 0, sizeof sums);
    test_fresh_seeds(1, run_fresh);
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
