/* A peer whose superpeer is gone stops to serve when its lease is over, also a client that knows
 * where everything is; and serves again under the next lease. What happens to nodes is told. */
#include "base/log.h"
#include "tests/client_rig.h"

#define TIMEOUT_NS (200 * MS)

static struct rig_cluster cluster;

static int teardown(void **state)
{
    (void)state;
    rig_cluster_kill(&cluster);
    return 0;
}

static void peers_are_fenced(void **state)
{
    (void)state;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, TIMEOUT_NS);
    shoal_cid cid;
    uint64_t value = 7, got = 0;
    uint64_t until = rig_now() + DEADLINE_NS;
    enum shoal_err err = SHOAL_EBUSY;
    while (err != SHOAL_OK && rig_now() < until)
        err = shoal_create(store, cluster.peers[0].nid, 8, &cid);
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(shoal_put(store, cid, &value, 8), SHOAL_OK);
    assert_int_equal(shoal_get(store, cid, &got, 8, NULL), SHOAL_OK); /* from now on it is cached */
    rig_freeze(&cluster.superpeer);
    until = rig_now() + DEADLINE_NS;
    unsigned served = 0;
    while ((err = shoal_get(store, cid, &got, 8, NULL)) == SHOAL_OK && rig_now() < until)
        served++;
    /* Its refusal was heard; and then nobody could say where else the chunk might be. */
    assert_true(err == SHOAL_EFENCED || err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT ||
                err == SHOAL_EUNREACHABLE || err == SHOAL_EBUSY);
    assert_true(served > 0);
    assert_int_not_equal(shoal_put(store, cid, &value, 8), SHOAL_OK);
    rig_thaw(&cluster.superpeer);
    until = rig_now() + DEADLINE_NS;
    do
        err = shoal_get(store, cid, &got, 8, NULL);
    while (err != SHOAL_OK && rig_now() < until);
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(got, 7);
    shoal_close(store);
}

struct heard {
    unsigned present, idle;
    uint64_t epoch;
    enum shoal_event_kind last;
    shoal_nid last_nid;
    bool was_killed;
};

static bool on_event(void *arg, const struct shoal_event *event)
{
    struct heard *heard = arg;
    if (!event) {
        /* All that there is has been told. */
        heard->idle++;
        if (!heard->was_killed)
            rig_kill(&cluster.peers[1]);
        heard->was_killed = true;
        return true;
    }
    assert_true(event->epoch >= heard->epoch);
    heard->epoch = event->epoch;
    heard->present += event->kind == SHOAL_EVENT_PRESENT;
    heard->last = event->kind;
    heard->last_nid = event->node.nid;
    return event->kind == SHOAL_EVENT_PRESENT;
}

static void events_are_told(void **state)
{
    (void)state;
    struct heard heard = {0};
    rig_cluster_spawn(&cluster);
    shoal_nid doomed = cluster.peers[1].nid;
    shoal *store = rig_open(cluster.superpeer.address, 5000 * MS);
    assert_int_equal(shoal_watch(store, NULL, NULL), SHOAL_EINVAL);
    assert_int_equal(shoal_watch(store, on_event, &heard), SHOAL_OK);
    assert_int_equal(heard.present, 3);
    assert_true(heard.idle > 0);
    assert_int_equal(heard.last, SHOAL_EVENT_FAILED);
    assert_int_equal(heard.last_nid.v, doomed.v);
    shoal_close(store);
    assert_int_equal(shoal_open(NULL, &store), SHOAL_OK);
    assert_int_equal(shoal_watch(store, on_event, &heard), SHOAL_EROLE);
    shoal_close(store);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(peers_are_fenced, teardown),
        cmocka_unit_test_teardown(events_are_told, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
