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
    sh_msg_type type;
    uint64_t shards;
};

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->done = true;
    asked->err = err;
    if (err)
        return;
    if (asked->type == SH_CLUSTER_REFERS)
        asked->shards = sh_get64(payload);
    if (asked->type == SH_CLUSTER_METADATA || asked->type == SH_CLUSTER_COMMIT)
        asked->owner.v = sh_get16(payload);
    if (asked->type == SH_CLUSTER_METADATA)
        asked->result = (enum shoal_err)sh_get16(payload);
}

static bool asked_is_done(void *arg)
{
    return ((struct asked *)arg)->done;
}

static struct asked ask(struct scene *scene, shoal_nid to, sh_msg_type type, struct sh_bytes bytes)
{
    struct asked asked = {.type = type};
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

/* A peer's word that another one has some of its chunks, as a source gives it; the superpeer's answer. */
static enum shoal_err commit(struct scene *scene, struct host *from, struct host *to,
                             shoal_cid first, shoal_cid last, uint64_t sequence)
{
    uint8_t bytes[SH_COMMIT_BYTES + 16];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, sh_msg_instance(from->msg));
    sh_put16(&w, nid_of(from).v);
    sh_put16(&w, nid_of(to).v);
    sh_put64(&w, sh_msg_instance(to->msg));
    sh_put64(&w, sequence);
    sh_put16(&w, 1);
    sh_put64(&w, first.v);
    sh_put64(&w, last.v);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    struct host *client = scene->client;
    scene->client = from; /* who asks */
    shoal_nid superpeer = {1};
    struct asked asked;
    for (unsigned i = 0; i < 60; i++) {
        asked = ask(scene, superpeer, SH_CLUSTER_COMMIT, sh_bytes_make(bytes, sizeof bytes));
        if (asked.err == SHOAL_ECANCELED || (!asked.err && !asked.owner.v))
            break;
        if (!asked.err)
            superpeer = asked.owner;
        else if (asked.err != SHOAL_EBUSY)
            superpeer.v = superpeer.v % 3 + 1;
        run_for(&scene->cluster, S / 10);
    }
    scene->client = client;
    return asked.err;
}

/* What the superpeers say of a peer, which they know to be gone, to one who knows that epoch. */
static uint64_t shards_that_speak(struct scene *scene, shoal_nid nid, uint64_t epoch)
{
    uint8_t bytes[SH_REFERS_BYTES + 2];
    uint64_t shards = 0;
    sh_store64(bytes, epoch);
    sh_store16(bytes + 8, 1);
    sh_store64(bytes + 10, 0);
    sh_store16(bytes + 18, nid.v);
    for (uint16_t i = 1; i <= 3; i++)
        shards |= ask(scene, (shoal_nid){i}, SH_CLUSTER_REFERS, sh_bytes_make(bytes, sizeof bytes))
                      .shards;
    return shards;
}

static struct host *peer_add(struct scene *scene)
{
    struct host *host = host_start(host_add(&scene->cluster, PEER));
    assert_joined(&scene->cluster, 20 * S);
    run_for(&scene->cluster, S);
    return host;
}

/* There are three IDs. A peer some of whose chunks are elsewhere leaves, and keeps its ID; whoever comes
 * has to wait for one. */
static void moved_chunks_keep_it(void **state)
{
    (void)state;
    static struct scene scene;
    peer_nids = 3;
    scene_open(&scene, FORGET);
    struct host *first = scene.peers[0], *other = scene.peers[1];
    shoal_nid nid = nid_of(first);
    shoal_cid cid = shoal_cid_make(nid, 7), end = shoal_cid_make(nid, 9);
    const uint64_t number = UINT64_C(1) << 32;
    assert_int_equal(commit(&scene, first, other, cid, end, number), SHOAL_OK);
    leave(first);
    assert_seen(&scene.cluster, nid, SH_NODE_LEFT, 2 * S);
    /* Who has left has nothing decided any more. */
    shoal_cid own = shoal_cid_make(nid, 20);
    assert_int_equal(commit(&scene, first, other, own, own, number + 1), SHOAL_EBUSY);
    run_for(&scene.cluster, 3 * FORGET);
    assert_seen(&scene.cluster, nid, SH_NODE_LEFT, S);
    assert_int_equal(forget(&scene, 1, nid), SHOAL_EBUSY);
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    uint64_t epoch = sh_directory_epoch(scene.client->directory);
    assert_true(shards_that_speak(&scene, nid, epoch) == UINT64_MAX);
    assert_true(shards_that_speak(&scene, nid, epoch + 1) == 0);
    sh_world_crash(scene.cluster.world, first->node);
    sh_world_restart(scene.cluster.world, first->node);
    run_for(&scene.cluster, 2 * FORGET);
    assert_int_equal(nid_of(first).v, 0);
    assert_int_equal(locate(scene.client, cid).nid.v, nid_of(other).v);
    cluster_close(&scene.cluster);
    peer_nids = 0;
}

/* All of them are home when the peer leaves: its ID is another peer's after a while, of which nobody is
 * told what was so of the first one. */
static void an_id_comes_back(void **state)
{
    (void)state;
    static struct scene scene;
    peer_nids = 3;
    scene_open(&scene, FORGET);
    struct host *first = scene.peers[0], *other = scene.peers[1];
    shoal_nid nid = nid_of(first);
    shoal_cid cid = shoal_cid_make(nid, 7), end = shoal_cid_make(nid, 9);
    const uint64_t number = UINT64_C(1) << 32;
    assert_int_equal(commit(&scene, first, other, cid, end, number), SHOAL_OK);
    assert_int_equal(locate(scene.client, cid).nid.v, nid_of(other).v);
    assert_int_equal(commit(&scene, other, first, cid, end, number), SHOAL_OK);
    uint32_t life = sh_directory_life(scene.client->directory, nid);
    leave(first);
    assert_seen(&scene.cluster, nid, GONE, 3 * FORGET);
    struct host *next = peer_add(&scene);
    assert_int_equal(nid_of(next).v, nid.v);
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    assert_int_not_equal(sh_directory_life(scene.client->directory, nid), life);
    /* The one whose answer the client has kept tells that it has it no more; then it is asked anew. */
    sh_directory_forget(scene.client->directory, cid);
    assert_int_equal(locate(scene.client, cid).nid.v, nid.v);
    /* Its batches are numbered above those of the first one. */
    assert_int_equal(commit(&scene, next, other, cid, cid, number), SHOAL_ECANCELED);
    assert_int_equal(commit(&scene, next, other, cid, cid, number + 1), SHOAL_OK);
    assert_int_equal(locate(scene.client, shoal_cid_make(nid, 8)).nid.v, nid.v);
    cluster_close(&scene.cluster);
    peer_nids = 0;
}

/* Chunks that were lost with a peer to which they had moved keep neither its ID nor, once that is gone too,
 * their creator's, whichever superpeers own the shard by then. Nobody finds them any more, also where the
 * next bearer of the creator's ID is. IDs are lacking, so nobody waits for forget_ns. */
static void lost_chunks_keep_nobody(void **state)
{
    (void)state;
    static struct scene scene;
    peer_nids = 3;
    scene_open(&scene, 1000 * FORGET);
    struct host *first = scene.peers[0], *other = scene.peers[1];
    shoal_nid nid = nid_of(first), lost = nid_of(other);
    shoal_cid cid = shoal_cid_make(nid, 7), end = shoal_cid_make(nid, 9);
    const uint64_t number = UINT64_C(1) << 32;
    assert_int_equal(commit(&scene, first, other, cid, end, number), SHOAL_OK);
    sh_world_crash(scene.cluster.world, other->node);
    other->has_left = true; /* nobody waits for it */
    assert_seen(&scene.cluster, lost, SH_NODE_FAILED, 20 * S);
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    assert_int_equal(locate(scene.client, cid).err, SHOAL_EFAILED);
    assert_int_equal(forget(&scene, 1, lost), SHOAL_OK);
    assert_seen(&scene.cluster, lost, GONE, 5 * S);
    assert_int_equal(locate(scene.client, cid).err, SHOAL_ENOCHUNK);
    forget_ns = 1000 * FORGET; /* of those that are started again too */
    for (unsigned i = 0; i < 3; i++) {
        sh_world_crash(scene.cluster.world, i);
        run_for(&scene.cluster, 5 * S);
        sh_world_restart(scene.cluster.world, i);
        run_for(&scene.cluster, 5 * S);
    }
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    assert_int_equal(locate(scene.client, end).err, SHOAL_ENOCHUNK);
    struct host *next = peer_add(&scene);
    assert_int_equal(nid_of(next).v, lost.v);
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    assert_int_equal(locate(scene.client, cid).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(scene.client, shoal_cid_make(nid, 6)).nid.v, nid.v);
    leave(first);
    assert_int_equal(nid_of(peer_add(&scene)).v, nid.v);
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    sh_directory_forget(scene.client->directory, cid);
    assert_int_equal(locate(scene.client, cid).nid.v, nid.v);
    cluster_close(&scene.cluster);
    forget_ns = 0;
    peer_nids = 0;
}

static bool has_failed(void *arg)
{
    const struct host *host = arg;
    return host->failure != SHOAL_OK;
}

/* What others had of its chunks, and is empty, may go back to a peer that has left, and to no other one that is
 * not up: then nothing keeps it. */
static void what_is_given_back_keeps_nobody(void **state)
{
    (void)state;
    static struct scene scene;
    peer_nids = 3;
    scene_open(&scene, FORGET);
    struct host *first = scene.peers[0], *other = scene.peers[1], *third = scene.peers[2];
    shoal_nid nid = nid_of(first);
    shoal_cid cid = shoal_cid_make(nid, 7), end = shoal_cid_make(nid, 9);
    const uint64_t number = UINT64_C(1) << 32;
    assert_int_equal(commit(&scene, first, other, cid, end, number), SHOAL_OK);
    leave(first);
    assert_seen(&scene.cluster, nid, SH_NODE_LEFT, 2 * S);
    leave(third);
    assert_seen(&scene.cluster, nid_of(third), SH_NODE_LEFT, 2 * S);
    assert_int_equal(commit(&scene, other, third, cid, end, number), SHOAL_ECANCELED);
    assert_int_equal(commit(&scene, other, first, cid, end, number + 1), SHOAL_OK);
    assert_seen(&scene.cluster, nid, GONE, FORGET);
    cluster_close(&scene.cluster);
    peer_nids = 0;
}

/* A peer that is given up for what was lost with it is refused when it turns out to live, from then on. */
static void a_lost_node_lives(void **state)
{
    (void)state;
    static struct scene scene;
    scene_open(&scene, 0);
    struct host *creator = scene.peers[0], *away = scene.peers[1], *third = scene.peers[2];
    shoal_nid nid = nid_of(away);
    shoal_cid cid = shoal_cid_make(nid_of(creator), 7), own = shoal_cid_make(nid, 3);
    const uint64_t number = UINT64_C(1) << 32;
    assert_int_equal(commit(&scene, creator, away, cid, cid, number), SHOAL_OK);
    assert_int_equal(commit(&scene, away, third, own, own, number), SHOAL_OK);
    sh_world_partition(scene.cluster.world, UINT64_C(1) << away->node, ~(UINT64_C(1) << away->node),
                       false);
    struct seen failed = {&scene.cluster, nid, SH_NODE_FAILED};
    struct seen left = {&scene.cluster, nid, SH_NODE_LEFT};
    away->has_left = true; /* it sees nothing meanwhile */
    assert_true(run_until(&scene.cluster, is_seen, &failed, 20 * S));
    assert_int_equal(forget(&scene, 0, nid), SHOAL_EBUSY); /* a third one has a chunk of it */
    assert_true(run_until(&scene.cluster, is_seen, &left, 20 * S));
    assert_int_equal(refresh(scene.client).err, SHOAL_OK);
    assert_int_equal(locate(scene.client, cid).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(scene.client, own).nid.v, nid_of(third).v);
    away->has_left = false;
    sh_world_heal(scene.cluster.world);
    assert_true(run_until(&scene.cluster, has_failed, away, 60 * S));
    assert_int_equal(away->failure, SHOAL_EEXIST);
    assert_seen(&scene.cluster, nid, SH_NODE_LEFT, S);
    cluster_close(&scene.cluster);
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
        cmocka_unit_test(an_operator_forgets),    cmocka_unit_test(they_go_by_themselves),
        cmocka_unit_test(a_forgotten_node_lives), cmocka_unit_test(moved_chunks_keep_it),
        cmocka_unit_test(an_id_comes_back),       cmocka_unit_test(lost_chunks_keep_nobody),
        cmocka_unit_test(a_lost_node_lives),      cmocka_unit_test(what_is_given_back_keeps_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
