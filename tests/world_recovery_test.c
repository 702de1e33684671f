/* Clusters that lose peers while clients write, in simulated worlds: peers are killed, alone, several at once or one after the other, also those that bring back
 * zones just then, or stand still for a while and go on; superpeers are killed and started again; killed peers come back as new lives, on their disks or
 * on empty ones, or never. The zones of each
 * are brought back by its backups (docs/recovery.md), and nothing that was acknowledged is missing (recovery_clients_int.h).
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds to try beside the fixed ones (default 2). SHOAL_TEST_SEED: the first of them (default: random;
 * printed); with it the fixed ones are left out. */
#define RW_PEERS 19
#define RW_SUPERPEERS_MAX 5

#include "sim/chaos.h"
#include "tests/recovery_losses_int.h"
#include "tests/seed_int.h"

#define ROUNDS 3
#define LARGE_ROUNDS 2
#define SMALL_PEERS_MAX 8
#define ROLL_MAX 8 /* peers that are killed in the end */
#define PAUSE_NS_MAX (6 * S)

static struct rw rw;
static struct rc rc;
static struct rr rr;
static struct rl rl;
static struct sh_chaos *chaos[ROUNDS]; /* of each round: events of it are left in the world */

static void where(shoal_cid cid)
{
    rr_where(&rr, cid);
}

static struct {
    struct rz_time time;
    uint64_t calls, refused, adds, words_put, words_not, large, resizes, removes, reads, moved,
        gone;
    uint64_t longest_ns;
    unsigned kills, crashes, pauses, fenced, restarts, superpeers, blackouts, zones, disks;
} sums;

static void sums_add(void)
{
    sums.calls += rc.calls;
    sums.refused += rc.refused;
    sums.adds += rc.adds;
    sums.words_put += rc.words_put;
    sums.words_not += rc.words_not;
    sums.large += rc.large;
    sums.resizes += rc.resizes;
    sums.removes += rc.removes;
    sums.reads += rc.reads;
    sums.moved += rc.moved;
    sums.gone += rc.gone;
    sums.longest_ns = rc.longest_ns > sums.longest_ns ? rc.longest_ns : sums.longest_ns;
    sums.kills += rw.kills;
    sums.crashes += rw.crashes;
    sums.zones += rr.count;
    sums.disks += rl.disks;
}

static void sums_print(void)
{
    print_message("%" PRIu64 " calls, %" PRIu64 " refused, %" PRIu64 " additions, %" PRIu64
                  " words put and %" PRIu64 " not, %" PRIu64 " large, %" PRIu64 " resized, %" PRIu64
                  " removed, %" PRIu64 " reads, %" PRIu64 " chunks moved, %" PRIu64
                  " loose ones gone; the longest call took %" PRIu64 " ms\n",
                  sums.calls, sums.refused, sums.adds, sums.words_put, sums.words_not, sums.large,
                  sums.resizes, sums.removes, sums.reads, sums.moved, sums.gone,
                  sums.longest_ns / MS);
    print_message("%u kills, %u crashes, %u pauses that fenced %u, %u restarts, %u superpeers, "
                  "%u blackouts; %u disks lost; %u zones\n",
                  sums.kills, sums.crashes, sums.pauses, sums.fenced, sums.restarts,
                  sums.superpeers, sums.blackouts, sums.disks, sums.zones);
    rz_time_print(&sums.time);
}

/* --- Faults ------------------------------------------------------------------------------------- */

static unsigned peers_count(void)
{
    return rw.count - rw.superpeer_count;
}

static bool does_run(const struct rw_host *host)
{
    return sh_world_is_up(rw.world, host->node) && !sh_world_is_paused(rw.world, host->node) &&
           host->process;
}

/* Whether some superpeer shows the node as failed, or in another life than the host was killed in. */
static const struct rw_host *missed;
static bool is_missed(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < rw.superpeer_count; i++) {
        if (!does_run(&rw.hosts[i]))
            continue;
        struct sh_node_parts parts = sh_node_parts(rw.hosts[i].process->node);
        if (!parts.superpeer)
            continue;
        const struct sh_node *node = sh_view_find(sh_superpeer_view(parts.superpeer), missed->nid);
        if (node && node->state != SH_NODE_UP)
            return true;
    }
    return false;
}

static void restart_later(struct rw_host *host)
{
    uint64_t in_ns = rw_below(&rw, 3) ? rw_below(&rw, 6 * S) : rw_below(&rw, 100 * MS);
    rw_start_later(host, in_ns);
    sums.restarts++;
}

static void on_resume(void *arg, uint64_t boots, uint64_t unused)
{
    struct rw_host *host = arg;
    (void)unused;
    if (host->boots == boots && sh_world_is_up(rw.world, host->node))
        sh_world_resume(rw.world, host->node);
}

/* The host stands still for some time, in half of the cases from the middle of a step on, and goes on as if nothing had been. */
static void pause_host(struct rw_host *host, uint64_t ns)
{
    if (rw_below(&rw, 2)) {
        sh_world_stop_inside(rw.world, host->node, 1 + (unsigned)rw_below(&rw, 200), ns + 1);
        return;
    }
    sh_world_pause(rw.world, host->node);
    sh_world_at(rw.world, sh_world_now(rw.world) + ns, on_resume, host, host->boots, 0);
}

static bool is_any_paused(void)
{
    for (unsigned i = 0; i < rw.count; i++) {
        if (sh_world_is_up(rw.world, i) && sh_world_is_paused(rw.world, i))
            return true;
    }
    return false;
}

/* All go on, and have learned whether they were declared failed. */
static void pauses_end(void)
{
    for (unsigned i = 0; i < rw.count; i++)
        sh_world_stop_inside_not(rw.world, i);
    while (is_any_paused())
        rw_run(&rw, 100 * MS);
    rw_run(&rw, 2 * RW_FAILURE_NS);
}

static void superpeer_strike(void)
{
    struct rw_host *host = &rw.hosts[rw_below(&rw, rw.superpeer_count)];
    if (!does_run(host))
        return;
    sums.superpeers++;
    if (rw_below(&rw, 3) == 0) {
        pause_host(host, rw_below(&rw, rw_below(&rw, 2) ? RW_FAILURE_NS : 3 * S));
        return;
    }
    rw_crash(host, true);
    rw_start_later(host, rw_below(&rw, 2) ? rw_below(&rw, 100 * MS) : rw_below(&rw, 2 * S));
}

/* Whether the peer has a copy of everything at others: the owner, or all but one backup of a zone at most may be killed. A life that stood still long
 * enough to be declared failed has none. */
static bool may_kill(const struct rw_host *host)
{
    if (!does_run(host) || !host->nid.v)
        return false;
    if (!rr_list(&rr))
        return false;
    for (unsigned i = 0; i < rr.count; i++) {
        const struct sh_zone *zone = &rr.records[i];
        unsigned left = 0;
        const struct rw_host *owner = rr_host(&rr, zone->owner);
        if (owner && owner != host && rr_runs(owner) && !zone->former.v &&
            sh_msg_instance(owner->msg) == zone->life && zone->life != owner->doomed)
            left++;
        for (unsigned k = 0; k < zone->count; k++) {
            const struct rw_host *backup = rr_host(&rr, zone->backups[k].nid);
            left +=
                backup && backup != host && backup != owner && rr_runs(backup) && !backup->is_young;
        }
        if (!left)
            return false;
    }
    return does_run(host);
}

static struct rw_host *victim_pick(void)
{
    struct rw_host *host = rw_peer(&rw, (unsigned)rw_below(&rw, peers_count()));
    if (rw_below(&rw, 2) && rr_list(&rr)) { /* one that brings zones back */
        for (unsigned i = 0; i < rr.count; i++) {
            const struct rw_host *owner = rr_host(&rr, rr.records[i].owner);
            if (rr.records[i].former.v && owner)
                return &rw.hosts[owner->node];
        }
    }
    return host;
}

/* What passes between two kills of a round. */
static void pause_between(const struct rw_host *last)
{
    switch (rw_below(&rw, 4)) {
    case 0:
        break;
    case 1:
        rw_run(&rw, rw_below(&rw, 50 * MS));
        break;
    case 2:
        rw_run(&rw, rw_below(&rw, 3 * S));
        break;
    default:
        missed = last;
        (void)sh_world_run_until(rw.world, is_missed, NULL, sh_world_now(rw.world) + 5 * S);
        rw_run(&rw, rw_below(&rw, rw_below(&rw, 2) ? 20 * MS : 400 * MS));
        break;
    }
}

static unsigned dead; /* for good */

static void kill_peer(struct rw_host *host)
{
    rw_crash(host, rw_below(&rw, 4) > 0);
    host->is_young = true;
    bool may_stay = peers_count() - dead - 1 > rw.replicas + 1; /* two are up in any case */
    if (may_stay && rw_below(&rw, 3) == 0) {
        dead++;
        host->is_dead = true;
    } else {
        if (rw_below(&rw, 4) == 0)
            rl_disk_lose(&rl, host);
        restart_later(host);
    }
}

/* A peer stands still for shorter than its lease, about as long, or longer. If it may have been declared failed by the time that it goes on, that is as if it
 * had been killed: its life is fenced, and has been taken over. */
static void pause_peer(struct rw_host *host)
{
    uint64_t kind = rw_below(&rw, 3);
    uint64_t ns = kind == 0   ? rw_below(&rw, RW_FAILURE_NS / 3)
                  : kind == 1 ? RW_FAILURE_NS / 2 + rw_below(&rw, RW_FAILURE_NS)
                              : RW_FAILURE_NS + rw_below(&rw, PAUSE_NS_MAX - RW_FAILURE_NS);
    if (kind) {
        host->is_young = true;
        host->doomed = sh_msg_instance(host->msg);
    }
    pause_host(host, ns);
    sums.pauses++;
}

static void round_run(void)
{
    unsigned kills = 1 + (unsigned)rw_below(&rw, rw.replicas);
    const struct rw_host *last = NULL;
    for (unsigned i = 0; i < kills; i++) {
        if (last)
            pause_between(last);
        if (rw_below(&rw, 3) == 0)
            superpeer_strike();
        struct rw_host *host = victim_pick();
        if (!may_kill(host))
            continue;
        last = host;
        if (rw_below(&rw, 3) == 0)
            pause_peer(host);
        else
            kill_peer(host);
    }
    if (rw_below(&rw, 3) == 0) {
        rw_run(&rw, rw_below(&rw, 3 * S));
        superpeer_strike();
    }
}

/* All peers end at one moment; in half of the cases some disks are lost, of each zone all but one at most. */
static void blackout(void)
{
    bool has_lost = rw_below(&rw, 2) > 0;
    sums.blackouts++;
    for (unsigned i = 0; i < peers_count(); i++) {
        struct rw_host *host = rw_peer(&rw, i);
        if (!sh_world_is_up(rw.world, host->node))
            continue;
        rw_crash(host, rw_below(&rw, 2));
        if (!has_lost)
            rw_start_later(host, rw_below(&rw, 4 * S));
    }
    if (has_lost)
        rl_start_without(&rl, false);
}

/* --- Worlds ------------------------------------------------------------------------------------- */

static bool has_begun(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < peers_count(); i++) {
        if (!rw_is_joined(rw_peer(&rw, i)))
            return false;
    }
    return rc.calls > 100;
}

static void chaos_begin(unsigned at)
{
    const struct sh_chaos_config config = {.nodes = rw.count,
                                           .reach = rw.count,
                                           .gap_ns_max = 200 * MS + rw_below(&rw, S),
                                           .length_ns_max = 100 * MS + rw_below(&rw, 200 * MS),
                                           .cuts = 2,
                                           .partitions = rw_below(&rw, 2) > 0,
                                           .slow_disks = rw_below(&rw, 2) > 0};
    chaos[at] = sh_chaos_start(rw.world, &config);
}

static void quiet(void)
{
    rr_calls_end(&rr, &rc);
    rr_wait_well(&rr);
}

static void check_all(void)
{
    quiet();
    rw_run(&rw, S);
    rr_all_check(&rr, &rc);
    rc.is_still = false;
}

static void youth_end(void)
{
    for (unsigned i = 0; i < peers_count(); i++) {
        struct rw_host *host = rw_peer(&rw, i);
        sums.fenced += host->doomed && rr_runs(host) && sh_msg_instance(host->msg) != host->doomed;
        host->is_young = false;
        host->doomed = 0;
    }
}

/* Each peer is killed once, or of many some, so that each zone is read from what backups have. */
static void roll(void)
{
    for (unsigned i = 0; i < peers_count() && i < ROLL_MAX; i++) {
        struct rw_host *host = rw_peer(&rw, i);
        if (!does_run(host))
            continue;
        rw_crash(host, true);
        rw_start_later(host, RW_FAILURE_NS + rw_below(&rw, 2 * S));
        rr_wait_well(&rr);
        rr_owners_watch(&rr, &rc);
    }
}

static void run_world(uint64_t seed)
{
    const struct sh_world_config config = rw_config(seed, 3 * MS);
    const struct rz_size size = rz_size_of(seed, 2, SMALL_PEERS_MAX);
    unsigned rounds = size.is_large ? LARGE_ROUNDS : ROUNDS;
    print_message("seed %" PRIu64 "\n", seed);
    rw_open_some(&rw, &config, size.superpeers, size.peers, size.replicas);
    rc_open(&rc, &rw, 1 + (unsigned)(seed / 3 % RC_CLIENTS_MAX));
    rr_open(&rr, &rw);
    rl = (struct rl){.rw = &rw, .rr = &rr, .rc = &rc};
    rc.where = where;
    dead = 0;
    bool has_blackouts = seed % 5 == 4;
    rc.firm = has_blackouts ? SHOAL_DURABLE : SHOAL_REPLICATED;
    rc.moves = seed % 7 != 0;
    if (!sh_world_run_until(rw.world, has_begun, NULL, 60 * S))
        RW_FAIL(&rw, "the cluster does not begin");
    for (unsigned i = 0; i < rounds; i++) {
        chaos_begin(i);
        rw_run(&rw, rw_below(&rw, S));
        if (has_blackouts && rw_below(&rw, 2))
            blackout();
        else
            round_run();
        rw_run(&rw, rw_below(&rw, 3 * S));
        sh_chaos_stop(chaos[i]);
        pauses_end();
        rr_wait_well(&rr);
        if (rw_below(&rw, 2))
            check_all();
        youth_end();
    }
    check_all();
    rc.is_still = true;
    quiet();
    roll();
    check_all();
    rc.is_still = true;
    quiet();
    sums_add();
    rz_time_add(&sums.time, &rw, size.is_large);
    rr_close(&rr);
    rc_close(&rc);
    rw_close(&rw);
    for (unsigned i = 0; i < rounds; i++)
        sh_chaos_destroy(chaos[i]);
}

static void fixed_seeds_lose_nothing(void **state)
{
    (void)state;
    if (getenv("SHOAL_TEST_SEED"))
        skip();
    memset(&sums, 0, sizeof sums);
    static const uint64_t seeds[] = {1, 2, 4, 5, 6, 51}; /* 51: 3 superpeers and 17 peers */
    for (unsigned i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        run_world(seeds[i]);
    sums_print();
    /* Worlds must not be so rough that nothing is written, nor so calm that nothing could be lost. */
    assert_true(sums.calls > 1000 && sums.adds > 100 && sums.words_put > 20 && sums.words_not > 5);
    assert_true(sums.large > 10 && sums.resizes > 10 && sums.removes > 10 && sums.moved > 20);
    assert_true(sums.disks > 0 && sums.pauses > 3 && sums.fenced > 0);
    assert_true(sums.kills + sums.crashes > 20 && sums.restarts > 5 && sums.superpeers > 1);
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
