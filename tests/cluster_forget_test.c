/* Nodes that are gone are forgotten, in whole clusters in simulated worlds: by an operator's word, or by
 * themselves after a time, and not while a name refers to them. SHOAL_TEST_SEED: the seed of the
 * worlds (default: random; printed). */
#include "cluster/proto.h"
#include "metadata/metadata.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

#define FORGET (20 * S)
#define GONE (-1) /* the state of a node that a view has not */

struct scene {
    struct cluster cluster;
    struct host *peers[3];
    struct host *client;
};

static void scene_open(struct scene *scene, uint64_t forget)
{
    memset(scene, 0, sizeof *scene);
    forget_ns = forget;
    cluster_open(&scene->cluster, 3, true);
    forget_ns = 0;
    for (unsigned i = 0; i < 3; i++)
        scene->peers[i] = host_start(host_add(&scene->cluster, PEER));
    scene->client = host_start(host_add(&scene->cluster, CLIENT));
    assert_joined(&scene->cluster, 20 * S);
    struct outcome outcome;
    bootstrap(scene->client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
    run_for(&scene->cluster, 5 * S);
}

struct asked {
    struct sh_request request;
    bool done;
    enum shoal_err err, result;
    shoal_nid owner;
    bool is_update;
};

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->done = true;
    asked->err = err;
    if (err || !asked->is_update)
        return;
    asked->owner.v = sh_get16(payload);
    asked->result = (enum shoal_err)sh_get16(payload);
}

static bool asked_is_done(void *arg)
{
    return ((struct asked *)arg)->done;
}

static struct asked ask(struct scene *scene, shoal_nid to, sh_msg_type type, struct sh_bytes bytes)
{
    struct asked asked = {.is_update = type == SH_CLUSTER_METADATA};
    struct sh_out out;
    asked.request = (struct sh_request){.done = on_done, .arg = &asked, .timeout_ns = 5 * S};
    asked.err = sh_msg_request(scene->client->msg, to, type, bytes.size, &asked.request, &out);
    if (asked.err)
        return asked;
    sh_put_raw(&out.w, bytes);
    sh_msg_end(scene->client->msg, &out);
    assert_true(run_until(&scene->cluster, asked_is_done, &asked, 20 * S));
    return asked;
}

static enum shoal_err forget(struct scene *scene, unsigned superpeer, shoal_nid nid)
{
    uint8_t bytes[SH_FORGET_BYTES];
    sh_store16(bytes, nid.v);
    return ask(scene, (shoal_nid){(uint16_t)(superpeer + 1)}, SH_CLUSTER_FORGET,
               sh_bytes_make(bytes, sizeof bytes))
        .err;
}

/* Names a chunk of a node, or takes the name away. */
static void name(struct scene *scene, uint8_t kind, shoal_nid nid)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_metadata_update update = {.kind = kind,
                                        .condition = SH_NAME_ANY,
                                        .cid = shoal_cid_make(nid, 7),
                                        .name = sh_bytes_text("a name")};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, &update);
    struct sh_bytes encoded = sh_bytes_make(bytes, (size_t)(w.at - bytes));
    shoal_nid to = {1};
    for (unsigned i = 0; i < 60; i++) {
        struct asked asked = ask(scene, to, SH_CLUSTER_METADATA, encoded);
        if (!asked.err && !asked.owner.v) {
            assert_int_equal(asked.result, SHOAL_OK);
            return;
        }
        to = asked.err ? (shoal_nid){(uint16_t)(to.v % 3 + 1)} : asked.owner;
        run_for(&scene->cluster, S / 10);
    }
    fail_msg("seed %" PRIu64 ": the name is not taken", seed);
}

/* Refused while the node is up, or a name refers to it; by whichever superpeer. */
static void an_operator_forgets(void **state)
{
    (void)state;
    static struct scene scene;
    scene_open(&scene, 0);
    shoal_nid nid = nid_of(scene.peers[0]);
    assert_int_equal(forget(&scene, 0, nid), SHOAL_EINVAL);
    assert_int_equal(forget(&scene, 1, (shoal_nid){2}), SHOAL_EROLE);
    assert_int_equal(forget(&scene, 1, (shoal_nid){999}), SHOAL_ENONODE);
    name(&scene, SH_METADATA_NAME, nid);
    sh_world_crash(scene.cluster.world, scene.peers[0]->node);
    assert_seen(&scene.cluster, nid, SH_NODE_FAILED, 20 * S);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(forget(&scene, i, nid), SHOAL_EBUSY);
    run_for(&scene.cluster, 10 * FORGET);
    assert_seen(&scene.cluster, nid, SH_NODE_FAILED, S);
    name(&scene, SH_METADATA_UNNAME, nid);
    assert_int_equal(forget(&scene, 2, nid), SHOAL_OK);
    assert_seen(&scene.cluster, nid, GONE, 5 * S);
    assert_int_equal(forget(&scene, 2, nid), SHOAL_ENONODE);
    /* Superpeers that are started again have forgotten it too. */
    for (unsigned i = 0; i < 3; i++)
        sh_world_crash(scene.cluster.world, i);
    for (unsigned i = 0; i < 3; i++)
        sh_world_restart(scene.cluster.world, i);
    assert_joined(&scene.cluster, 20 * S);
    assert_seen(&scene.cluster, nid, GONE, 5 * S);
    cluster_close(&scene.cluster);
}

/* One that left and those in whose place others are go by themselves when their time is over, one whose
 * chunks have a name only when it is gone. One that has failed, and may be cut off only, stays. */
static void they_go_by_themselves(void **state)
{
    (void)state;
    static struct scene scene;
    scene_open(&scene, FORGET);
    shoal_nid named = nid_of(scene.peers[0]), failed = nid_of(scene.peers[1]);
    shoal_nid left = nid_of(scene.peers[2]);
    name(&scene, SH_METADATA_NAME, named);
    sh_world_crash(scene.cluster.world, scene.peers[0]->node);
    sh_world_crash(scene.cluster.world, scene.peers[1]->node);
    leave(scene.peers[2]);
    sh_world_crash(scene.cluster.world, scene.peers[2]->node);
    assert_seen(&scene.cluster, named, SH_NODE_FAILED, 10 * S);
    assert_seen(&scene.cluster, failed, SH_NODE_FAILED, 10 * S);
    assert_seen(&scene.cluster, left, SH_NODE_LEFT, 2 * S);
    run_for(&scene.cluster, 2 * FORGET);
    assert_seen(&scene.cluster, left, GONE, FORGET);
    assert_seen(&scene.cluster, failed, SH_NODE_FAILED, S);
    sh_world_restart(scene.cluster.world, scene.peers[0]->node);
    sh_world_restart(scene.cluster.world, scene.peers[1]->node);
    assert_seen(&scene.cluster, failed, GONE, 2 * FORGET);
    run_for(&scene.cluster, FORGET);
    assert_seen(&scene.cluster, named, SH_NODE_FAILED, S);
    name(&scene, SH_METADATA_UNNAME, named);
    assert_seen(&scene.cluster, named, GONE, FORGET);
    cluster_close(&scene.cluster);
}

static bool has_failed(void *arg)
{
    const struct host *host = arg;
    return host->failure != SHOAL_OK;
}

/* A node that was only cut off, of which an operator says that it is gone, is a member no more. */
static void a_forgotten_node_lives(void **state)
{
    (void)state;
    static struct scene scene;
    scene_open(&scene, 0);
    struct host *away = scene.peers[1];
    shoal_nid nid = nid_of(away);
    sh_world_partition(scene.cluster.world, UINT64_C(1) << away->node, ~(UINT64_C(1) << away->node),
                       false);
    struct seen failed = {&scene.cluster, nid, SH_NODE_FAILED}, gone = {&scene.cluster, nid, GONE};
    away->has_left = true; /* it sees nothing meanwhile */
    assert_true(run_until(&scene.cluster, is_seen, &failed, 20 * S));
    assert_int_equal(forget(&scene, 0, nid), SHOAL_OK);
    assert_true(run_until(&scene.cluster, is_seen, &gone, 20 * S));
    away->has_left = false;
    sh_world_heal(scene.cluster.world);
    assert_true(run_until(&scene.cluster, has_failed, away, 60 * S));
    assert_int_equal(away->failure, SHOAL_EEXIST);
    assert_seen(&scene.cluster, nid, GONE, S);
    cluster_close(&scene.cluster);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operator_forgets),
        cmocka_unit_test(they_go_by_themselves),
        cmocka_unit_test(a_forgotten_node_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
