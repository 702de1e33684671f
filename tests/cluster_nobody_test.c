/* Lookups of chunks that nobody has, and of whom nobody says for a time where they are, in
 * simulated worlds: one question for a whole range, no answer that was true once only, and
 * everybody's own deadline. SHOAL_TEST_SEED: the seed of the worlds (default: random; printed). */
#include "cluster/proto.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

#define MANY 2000

/* A superpeer, peers and a client who knows them. */
struct scene {
    struct cluster cluster;
    struct host *peers[2];
    struct host *client;
};

static void scene_open(struct scene *scene)
{
    memset(scene, 0, sizeof *scene);
    cluster_open(&scene->cluster, 1, true);
    for (unsigned i = 0; i < 2; i++)
        scene->peers[i] = host_start(host_add(&scene->cluster, PEER));
    assert_joined(&scene->cluster, 20 * S);
    scene->client = host_add(&scene->cluster, CLIENT);
    scene->client->cache_ranges_max = 1000;
    host_start(scene->client);
    struct outcome outcome;
    bootstrap(scene->client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
    run_for(&scene->cluster, 3 * S); /* a superpeer that has just begun says nothing of nobody */
}

/* The ID that the next node will have. */
static shoal_nid nobody_of(const struct scene *scene)
{
    uint16_t a = nid_of(scene->peers[0]).v, b = nid_of(scene->peers[1]).v;
    return (shoal_nid){(uint16_t)((a > b ? a : b) + 1)};
}

static uint64_t questions(const struct scene *scene)
{
    return sh_directory_stats(scene->client->directory).requests;
}

static enum shoal_err locate_marked(struct scene *scene, shoal_cid cid, uint64_t mark)
{
    struct outcome outcome = {.done = false};
    struct sh_locate op = {.done = on_located, .arg = &outcome, .mark = mark};
    sh_directory_locate(scene->client->directory, cid, &op);
    assert_true(run_until(&scene->cluster, is_done, &outcome, 20 * S));
    return outcome.err;
}

/* A call that looks up many chunks of a creator that is nobody, one after the other, asks once; one
 * that begins later asks again. */
static void one_question_for_nobody(void **state)
{
    (void)state;
    static struct scene scene;
    scene_open(&scene);
    struct sh_directory *directory = scene.client->directory;
    shoal_nid nobody = nobody_of(&scene);
    uint64_t before = questions(&scene);
    for (unsigned call = 0; call < 3; call++) {
        uint64_t mark = sh_directory_mark(directory);
        for (uint64_t i = 0; i < MANY; i++)
            assert_int_equal(locate_marked(&scene, shoal_cid_make(nobody, i * 1000), mark),
                             SHOAL_ENOCHUNK);
    }
    assert_int_equal(questions(&scene) - before, 3);
    cluster_close(&scene.cluster);
}

/* Many that are under way together, without a mark: those that came behind the first question need
 * a second one, and no more. */
static void all_that_wait_together(void **state)
{
    (void)state;
    static struct scene scene;
    static struct sh_locate ops[MANY];
    static struct outcome outcomes[MANY];
    scene_open(&scene);
    memset(ops, 0, sizeof ops);
    memset(outcomes, 0, sizeof outcomes);
    shoal_nid nobody = nobody_of(&scene);
    uint64_t before = questions(&scene);
    for (unsigned i = 0; i < MANY; i++) {
        ops[i] = (struct sh_locate){.done = on_located, .arg = &outcomes[i]};
        sh_directory_locate(scene.client->directory, shoal_cid_make(nobody, i), &ops[i]);
    }
    for (unsigned i = 0; i < MANY; i++) {
        assert_true(run_until(&scene.cluster, is_done, &outcomes[i], 20 * S));
        assert_int_equal(outcomes[i].err, SHOAL_ENOCHUNK);
    }
    assert_int_equal(questions(&scene) - before, 2);
    cluster_close(&scene.cluster);
}

/* What nobody had is found at once when its node has joined, by a client whose view is old; and so
 * is what was with a node that had failed, and whose next life has begun. */
static void found_once_it_is_there(void **state)
{
    (void)state;
    static struct scene scene;
    scene_open(&scene);
    shoal_nid next = nobody_of(&scene);
    shoal_cid cid = shoal_cid_make(next, 7);
    uint64_t epoch = sh_directory_epoch(scene.client->directory);
    uint64_t mark = sh_directory_mark(scene.client->directory);
    assert_int_equal(locate_marked(&scene, cid, 0), SHOAL_ENOCHUNK);
    struct host *late = host_start(host_add(&scene.cluster, PEER));
    assert_joined(&scene.cluster, 20 * S);
    assert_int_equal(nid_of(late).v, next.v);
    assert_int_equal(sh_directory_epoch(scene.client->directory), epoch);
    /* Who began before it was there may still be told so, and nobody else. */
    assert_int_equal(locate_marked(&scene, cid, mark), SHOAL_ENOCHUNK);
    assert_int_equal(locate_marked(&scene, cid, 0), SHOAL_OK);

    shoal_nid lost = nid_of(scene.peers[0]);
    cid = shoal_cid_make(lost, 7);
    sh_world_partition(scene.cluster.world, UINT64_C(1) << scene.peers[0]->node, 1, false);
    run_for(&scene.cluster, 5 * S);
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    assert_int_equal(state_in(scene.client, lost), SH_NODE_FAILED);
    assert_int_equal(locate_marked(&scene, cid, 0), SHOAL_EFAILED);
    uint64_t before = questions(&scene);
    mark = sh_directory_mark(scene.client->directory);
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(locate_marked(&scene, shoal_cid_make(lost, i), mark), SHOAL_EFAILED);
    assert_int_equal(questions(&scene) - before, 1);
    sh_world_heal(scene.cluster.world);
    assert_seen(&scene.cluster, lost, SH_NODE_UP, 20 * S);
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    assert_int_equal(locate_marked(&scene, cid, 0), SHOAL_OK);
    cluster_close(&scene.cluster);
}

/* --- Deadlines ------------------------------------------------------------------------------- */

struct waiting {
    struct outcome outcome;
    struct sh_locate op;
    uint64_t begun_ns, ended_ns, wait_ns;
    struct host *client;
};

static void on_waited(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct waiting *waiting = op->arg;
    assert_false(waiting->outcome.done);
    waiting->outcome = (struct outcome){.done = true, .err = err, .nid = nid};
    waiting->ended_ns = sh_world_now(waiting->client->cluster->world);
}

static void wait_begin(struct scene *scene, struct waiting *waiting, shoal_cid cid,
                       uint64_t wait_ns)
{
    const struct sh_env *env = sh_world_env(scene->cluster.world, scene->client->node);
    *waiting = (struct waiting){.client = scene->client, .wait_ns = wait_ns};
    waiting->begun_ns = sh_world_now(scene->cluster.world);
    waiting->op = (struct sh_locate){
        .done = on_waited, .arg = waiting, .deadline_ns = sh_now(&env->clock) + wait_ns};
    sh_directory_locate(scene->client->directory, cid, &waiting->op);
}

static void assert_timed_out(const struct waiting *waiting)
{
    assert_true(waiting->outcome.done);
    assert_int_equal(waiting->outcome.err, SHOAL_ETIMEOUT);
    uint64_t took = waiting->ended_ns - waiting->begun_ns;
    assert_in_range(took, waiting->wait_ns - waiting->wait_ns / 10,
                    waiting->wait_ns + waiting->wait_ns / 10 + 50 * MS);
}

/* The superpeer stands still. Whoever asks first, each gives up when its own time is over, and who
 * has time when the superpeer goes on is answered. */
static void each_its_own_deadline(void **state)
{
    (void)state;
    static const uint64_t waits_ms[] = {200, 20000, 80, 150, 15000, 300, 250, 20000};
    enum { COUNT = sizeof waits_ms / sizeof waits_ms[0] };
    static struct scene scene;
    static struct waiting waits[COUNT];
    scene_open(&scene);
    shoal_nid nid = nid_of(scene.peers[0]);
    assert_int_equal(locate_marked(&scene, shoal_cid_make(nid, 1), 0), SHOAL_OK);
    sh_directory_forget(scene.client->directory, shoal_cid_make(nid, 1));
    uint64_t before = questions(&scene);
    sh_world_pause(scene.cluster.world, scene.cluster.hosts[0].node);
    for (unsigned i = 0; i < COUNT; i++)
        wait_begin(&scene, &waits[i], shoal_cid_make(nid, i), waits_ms[i] * MS);
    run_for(&scene.cluster, 4 * FAILURE / 10); /* not so long that it begins anew */
    for (unsigned i = 0; i < COUNT; i++) {
        if (waits_ms[i] < 1000)
            assert_timed_out(&waits[i]);
        else
            assert_false(waits[i].outcome.done);
    }
    /* 200, 80, and those that took over from them. */
    assert_true(questions(&scene) - before <= COUNT - 1);
    sh_world_resume(scene.cluster.world, scene.cluster.hosts[0].node);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(run_until(&scene.cluster, is_done, &waits[i].outcome, 10 * S));
        if (waits_ms[i] >= 1000)
            assert_int_equal(waits[i].outcome.err, SHOAL_OK);
    }
    cluster_close(&scene.cluster);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_question_for_nobody),
        cmocka_unit_test(all_that_wait_together),
        cmocka_unit_test(found_once_it_is_there),
        cmocka_unit_test(each_its_own_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
