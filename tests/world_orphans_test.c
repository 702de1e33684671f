/* Whole nodes in a simulated world: a peer is away until its zones have other backups, and returns. Within minutes it finds out that nobody needs its replicas,
 * and drops them; whatever a record names stays, and has all that it needs. */
#include "tests/replicas_logs_int.h"
#include "tests/seed_int.h"

static struct rw rw;
static struct rw_client client;
static struct rw_logs logs;

static const struct sh_world_config calm = {
    .wire = {.delay_ns_min = MS / 20,
             .delay_ns_max = MS,
             .window_bytes_min = 1 << 16,
             .window_bytes_max = 1 << 18},
    .disk = {.delay_ns_min = MS / 20, .delay_ns_max = 3 * MS, .survive_ppm = 400000}};

static bool has_begun(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < RW_PEERS; i++) {
        if (!rw_is_joined(rw_peer(&rw, i)))
            return false;
    }
    return client.acked[SH_LEVEL_DURABLE] > 2;
}

/* All peers but one are there all the time; returns how many replicas there are in the end that no record names. */
static unsigned orphans_after(uint64_t seed, uint64_t quiet_ns)
{
    struct sh_world_config config = calm;
    config.seed = seed;
    rw_open(&rw, &config, 1, 2);
    rw_client_open(&client, &rw, 12);
    if (!sh_world_run_until(rw.world, has_begun, NULL, 30 * S))
        RW_FAIL(&rw, "the cluster does not begin");
    rw_run(&rw, 2 * S);
    rw_crash(rw_peer(&rw, 0), false);
    rw_start_later(rw_peer(&rw, 0), 5 * S);
    rw_run(&rw, 8 * S);
    client.is_still = true;
    rw_run(&rw, 2 * S + quiet_ns);
    for (unsigned i = 0; i < RW_PEERS; i++) {
        rw_peer(&rw, i)->is_read = true;
        rw_crash(rw_peer(&rw, i), false);
    }
    rw_client_ends(&client);
    rw_logs_check(&logs, &rw, &client);
    assert_true(logs.replica_count > 4 && logs.checks[SH_LEVEL_DURABLE] > 10);
    rw_client_close(&client);
    rw_close(&rw);
    return logs.orphans;
}

static void orphans_go(void **state)
{
    (void)state;
    unsigned before = 0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        before += orphans_after(seed, 0);
        assert_int_equal(orphans_after(seed, 240 * S), 0);
    }
    assert_true(before > 0);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orphans_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
