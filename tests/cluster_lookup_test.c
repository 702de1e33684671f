/* Caches of lookups while chunks move and nodes fail, in simulated worlds: what is out of date is
 * found out by whoever is asked wrongly, once, and never comes back.
 *
 * There are no chunks: batches of migrations are sent to the superpeers as a source would, and a
 * model says who has what. SHOAL_TEST_SEED: the seed of the worlds (default: random; printed). */
#include "base/random_test.h"
#include "cluster/proto.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

#define PEERS 4
#define EACH 300 /* chunks that each peer has made */
#define RUNS 20  /* of a batch */

/* Peers, what they hold, and a client that touches it. */
struct scene {
    struct cluster cluster;
    struct host *peers[PEERS];
    struct host *client;
    unsigned owners[PEERS][EACH]; /* by creator and local ID: the peer that has the chunk */
    uint64_t sequences[PEERS];
    uint64_t random;
    uint64_t asks, wrong; /* the client's */
};

static shoal_cid cid_at(const struct scene *scene, unsigned creator, uint64_t at)
{
    return shoal_cid_make(nid_of(scene->peers[creator]), at);
}

/* --- Batches ------------------------------------------------------------------------------- */

struct told {
    struct outcome outcome;
    shoal_nid other; /* is to be asked instead */
};

static void on_told(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct told *told = request->arg;
    told->outcome.done = true;
    told->outcome.err = err;
    if (err)
        return;
    told->other.v = sh_get16(payload);
}

/* Asks the superpeer of a creator until it decides: the ring may be beginning. */
static void tell(struct scene *scene, unsigned from, shoal_nid creator, sh_msg_type type,
                 struct sh_bytes payload)
{
    struct host *host = scene->peers[from];
    struct told told = {.outcome = {.err = SHOAL_EBUSY}};
    for (unsigned i = 0; i < 100 && (told.outcome.err || told.other.v); i++) {
        struct sh_request request = {.done = on_told, .arg = &told, .timeout_ns = 5 * S};
        struct sh_out out;
        sh_directory_superpeer_set(host->directory, creator, told.other);
        told = (struct told){.outcome = {.err = SHOAL_EBUSY}};
        shoal_nid superpeer = sh_directory_superpeer(host->directory, creator);
        if (!sh_msg_request(host->msg, superpeer, type, payload.size, &request, &out)) {
            sh_put_raw(&out.w, payload);
            sh_msg_end(host->msg, &out);
            assert_true(run_until(&scene->cluster, is_done, &told.outcome, 20 * S));
        }
        if (told.outcome.err)
            run_for(&scene->cluster, S / 10);
    }
    if (told.outcome.err)
        fail_msg("seed %" PRIu64 ": the superpeer says %s", seed, shoal_err_name(told.outcome.err));
}

/* How a peer's next batch begins: as COMMIT, but for the number of its runs. */
static void batch_put(struct sh_writer *w, struct scene *scene, unsigned from, unsigned to)
{
    sh_put64(w, sh_msg_instance(scene->peers[from]->msg));
    sh_put16(w, nid_of(scene->peers[from]).v);
    sh_put16(w, nid_of(scene->peers[to]).v);
    sh_put64(w, sh_msg_instance(scene->peers[to]->msg));
    sh_put64(w, ++scene->sequences[from]);
}

/* Moves some of what a peer has of one creator to another, and says so to the superpeer. */
static void batch_move(struct scene *scene, unsigned creator, unsigned from, unsigned to)
{
    uint8_t bytes[SH_COMMIT_BYTES + 16 * RUNS];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    uint16_t count = 0;
    batch_put(&w, scene, from, to);
    uint8_t *count_at = w.at;
    sh_put16(&w, 0);
    for (unsigned at = test_draw(&scene->random) % 20; at < EACH && count < RUNS;) {
        unsigned first = at;
        unsigned most = 1 + test_draw(&scene->random) % 10;
        while (at < EACH && at - first < most && scene->owners[creator][at] == from)
            scene->owners[creator][at++] = to;
        if (at > first) {
            sh_put64(&w, cid_at(scene, creator, first).v);
            sh_put64(&w, cid_at(scene, creator, at - 1).v);
            count++;
        }
        at += 1 + (unsigned)(test_draw(&scene->random) % 30);
    }
    sh_store16(count_at, count);
    if (count)
        tell(scene, from, nid_of(scene->peers[creator]), SH_CLUSTER_COMMIT,
             sh_bytes_make(bytes, (size_t)(w.at - bytes)));
}

static void some_move(struct scene *scene, unsigned alive)
{
    for (unsigned i = 0; i < 3; i++) {
        unsigned from = (unsigned)(test_draw(&scene->random) % alive);
        unsigned to = (from + 1 + (unsigned)(test_draw(&scene->random) % (alive - 1))) % alive;
        unsigned creator = (unsigned)(test_draw(&scene->random) % PEERS);
        batch_move(scene, i ? creator : from, from, to); /* of its own it has some */
    }
    run_for(&scene->cluster, 5 * HEARTBEAT); /* all superpeers know it */
}

/* --- Touching ------------------------------------------------------------------------------ */

/* The owner as far as the client knows, or by asking; as a call does it. */
static enum shoal_err owner_ask(struct scene *scene, shoal_cid cid, shoal_nid *owner_out)
{
    enum shoal_err err = sh_directory_owner(scene->client->directory, cid, owner_out);
    for (unsigned i = 0;
         i < 100 && (err == SHOAL_EAGAIN || err == SHOAL_EBUSY || err == SHOAL_EUNREACHABLE ||
                     err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT);
         i++) {
        if (err != SHOAL_EAGAIN) {
            (void)refresh(scene->client);
            run_for(&scene->cluster, S / 10);
        }
        struct outcome outcome = locate(scene->client, cid);
        scene->asks++;
        err = outcome.err;
        *owner_out = outcome.nid;
    }
    return err;
}

/* Touches one chunk: an owner that does not have it says so, and then the next answer is right. */
static void touch(struct scene *scene, unsigned creator, unsigned at)
{
    shoal_cid cid = cid_at(scene, creator, at);
    shoal_nid right = nid_of(scene->peers[scene->owners[creator][at]]), owner;
    assert_int_equal(owner_ask(scene, cid, &owner), SHOAL_OK);
    if (owner.v == right.v)
        return;
    scene->wrong++;
    sh_directory_forget(scene->client->directory, cid);
    assert_int_equal(owner_ask(scene, cid, &owner), SHOAL_OK);
    if (owner.v != right.v)
        fail_msg("seed %" PRIu64 ": chunk %u of peer %u is said to be with %u again, is with %u",
                 seed, at, creator, owner.v, right.v);
}

/* Touches all in an order that looks random. */
static void touch_all(struct scene *scene)
{
    uint64_t start = test_draw(&scene->random);
    for (uint64_t i = 0; i < PEERS * EACH; i++) {
        uint64_t at = (start % 1000 + i * 389) % (PEERS * EACH); /* 389 and 1200: no divisor */
        touch(scene, (unsigned)(at / EACH), (unsigned)(at % EACH));
    }
}

static size_t ranges_of_all(const struct scene *scene)
{
    size_t ranges = 0;
    for (unsigned creator = 0; creator < PEERS; creator++)
        for (unsigned at = 0; at < EACH; at++)
            ranges += at == 0 || scene->owners[creator][at] != scene->owners[creator][at - 1];
    return ranges;
}

/* --- Tests --------------------------------------------------------------------------------- */

static void scene_open(struct scene *scene, uint16_t superpeers, uint32_t cache_ranges_max)
{
    memset(scene, 0, sizeof *scene);
    scene->random = seed | 1;
    cluster_open(&scene->cluster, superpeers, true);
    for (unsigned i = 0; i < PEERS; i++) {
        scene->peers[i] = host_start(host_add(&scene->cluster, PEER));
        for (unsigned at = 0; at < EACH; at++)
            scene->owners[i][at] = i;
    }
    assert_joined(&scene->cluster, 20 * S);
    scene->client = host_add(&scene->cluster, CLIENT);
    scene->client->cache_ranges_max = cache_ranges_max;
    host_start(scene->client);
    struct outcome outcome;
    bootstrap(scene->client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
}

static void heals_after_moves(uint16_t superpeers)
{
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    scene_open(scene, superpeers, 2000);
    for (unsigned round = 0; round < 8; round++) {
        size_t cached = sh_directory_cached(scene->client->directory);
        scene->wrong = scene->asks = 0;
        touch_all(scene);
        /* A range that is out of date is asked wrongly once, and then dropped. */
        if (scene->wrong > cached)
            fail_msg("seed %" PRIu64 ": %" PRIu64 " wrong asks with %zu ranges cached", seed,
                     scene->wrong, cached);
        /* What was dropped comes again with 64 ranges at once. */
        if (scene->asks > PEERS + 2 * scene->wrong + ranges_of_all(scene) / 4)
            fail_msg("seed %" PRIu64 ": %" PRIu64 " questions for %zu ranges, %" PRIu64 " wrong",
                     seed, scene->asks, ranges_of_all(scene), scene->wrong);
        /* Now there is only to be asked again for what was dropped along with something wrong. */
        uint64_t dropped = scene->wrong;
        scene->wrong = scene->asks = 0;
        touch_all(scene);
        assert_int_equal(scene->wrong, 0);
        assert_true(scene->asks <= dropped);
        some_move(scene, PEERS);
    }
    struct sh_directory_stats stats = sh_directory_stats(scene->client->directory);
    assert_true(stats.cache.drops > 0);
    assert_true(stats.requests > 0 && stats.cache.hits > stats.cache.misses);
    cluster_close(&scene->cluster);
    free(scene);
}

static void heals_with_one_superpeer(void **state)
{
    (void)state;
    heals_after_moves(1);
}

static void heals_with_three_superpeers(void **state)
{
    (void)state;
    heals_after_moves(3);
}

/* A cache that is far too small is right all the same, and never too large. */
static void heals_when_small(void **state)
{
    (void)state;
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    scene_open(scene, 1, 16);
    size_t most = 0;
    for (unsigned round = 0; round < 4; round++) {
        touch_all(scene);
        assert_true(sh_directory_cached(scene->client->directory) <= 16);
        most = ranges_of_all(scene) > most ? ranges_of_all(scene) : most;
        for (unsigned i = 0; i < 4; i++)
            some_move(scene, PEERS);
    }
    uint64_t evictions = sh_directory_stats(scene->client->directory).cache.evictions;
    assert_true(most <= 16 || evictions > 0);
    cluster_close(&scene->cluster);
    free(scene);
}

/* A node fails: with the next view nothing that is cached names it, and what it had is EFAILED. The
 * others' chunks are where they were. A superpeer fails: the others answer. */
static void after_failures(void **state)
{
    (void)state;
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    scene_open(scene, 3, 2000);
    some_move(scene, PEERS);
    touch_all(scene);
    struct host *lost = scene->peers[PEERS - 1];
    shoal_nid nid = nid_of(lost), owner;
    sh_world_crash(scene->cluster.world, lost->node);
    assert_seen(&scene->cluster, nid, SH_NODE_FAILED, 20 * S);
    sh_world_crash(scene->cluster.world, scene->cluster.hosts[0].node);
    run_for(&scene->cluster, 5 * S);
    for (unsigned i = 0; i < 50 && state_in(scene->client, nid) != SH_NODE_FAILED; i++)
        (void)refresh(scene->client);
    assert_int_equal(state_in(scene->client, nid), SH_NODE_FAILED);
    for (unsigned creator = 0; creator < PEERS - 1; creator++) {
        for (unsigned at = 0; at < EACH; at++) {
            shoal_cid cid = cid_at(scene, creator, at);
            if (scene->owners[creator][at] < PEERS - 1) {
                touch(scene, creator, at);
                continue;
            }
            enum shoal_err err = sh_directory_owner(scene->client->directory, cid, &owner);
            assert_int_equal(err, SHOAL_EAGAIN);
            if (at % 16 == 0)
                assert_int_equal(owner_ask(scene, cid, &owner), SHOAL_EFAILED);
        }
    }
    cluster_close(&scene->cluster);
    free(scene);
}

static void on_looked(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct outcome *outcome = request->arg;
    *outcome = (struct outcome){.done = true, .err = err};
    if (err)
        return;
    (void)sh_get64(payload);
    (void)sh_get64(payload);
    if (sh_get16(payload) == SH_LOOKUP_NOBODY && sh_reader_ok(payload))
        outcome->err = SHOAL_ENOCHUNK;
}

/* Asks superpeer 1; `done` fills an outcome. */
static struct outcome superpeer_ask(struct cluster *cluster, struct host *asker, sh_msg_type type,
                                    void (*done)(struct sh_request *, enum shoal_err,
                                                 struct sh_reader *),
                                    struct sh_bytes payload)
{
    struct outcome outcome = {0};
    struct sh_request request = {.done = done, .arg = &outcome, .timeout_ns = 5 * S};
    struct sh_out out;
    assert_int_equal(sh_msg_request(asker->msg, (shoal_nid){1}, type, payload.size, &request, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, payload);
    sh_msg_end(asker->msg, &out);
    assert_true(run_until(cluster, is_done, &outcome, 20 * S));
    return outcome;
}

static enum shoal_err looked_up(struct cluster *cluster, struct host *asker, shoal_cid cid,
                                uint64_t epoch)
{
    uint8_t bytes[SH_LOOKUP_BYTES];
    sh_store64(bytes, cid.v);
    sh_store64(bytes + 8, epoch);
    return superpeer_ask(cluster, asker, SH_CLUSTER_LOOKUP, on_looked,
                         sh_bytes_make(bytes, sizeof bytes))
        .err;
}

/* A superpeer that has not heard yet of a join, which the client knows of, does not say that there
 * is no such chunk. */
static void superpeer_is_behind(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 20 * S);
    run_for(&cluster, S);
    shoal_cid cid = shoal_cid_make((shoal_nid){(uint16_t)(nid_of(peer).v + 1)}, 1);
    uint64_t epoch = sh_superpeer_view(cluster.hosts[0].superpeer)->epoch;
    assert_int_equal(looked_up(&cluster, peer, cid, epoch), SHOAL_ENOCHUNK);
    assert_int_equal(looked_up(&cluster, peer, cid, epoch + 1), SHOAL_EBUSY);
    cluster_close(&cluster);
}

/* Writes the COMMIT by which peer 0 gives one chunk to peer 1. */
static struct sh_bytes one_put(struct scene *scene, uint8_t bytes[SH_COMMIT_BYTES + 16],
                               uint64_t at)
{
    struct sh_writer w = sh_writer_make(bytes, SH_COMMIT_BYTES + 16);
    batch_put(&w, scene, 0, 1);
    sh_put16(&w, 1);
    sh_put64(&w, cid_at(scene, 0, at).v);
    sh_put64(&w, cid_at(scene, 0, at).v);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    return sh_bytes_make(bytes, SH_COMMIT_BYTES + 16);
}

/* The superpeer has answered TREE: notes who has the first range. */
static void on_tree(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct outcome *outcome = request->arg;
    *outcome = (struct outcome){.done = true, .err = err};
    if (err)
        return;
    (void)sh_get16(payload);
    (void)sh_get8(payload);
    (void)sh_get64(payload);
    (void)sh_get64(payload);
    outcome->nid.v = sh_get16(payload);
    assert_true(sh_reader_ok(payload));
}

static struct outcome tree_ask(struct scene *scene, struct host *asker, shoal_cid cid)
{
    uint8_t bytes[SH_TREE_BYTES] = {0};
    sh_store64(bytes, cid.v);
    return superpeer_ask(&scene->cluster, asker, SH_CLUSTER_TREE, on_tree,
                         sh_bytes_make(bytes, sizeof bytes));
}

/* A peer that was started again asks for good where its chunks are: it is told when the batch is
 * decided that its former life asked for. A program is told what is so. */
static void a_batch_under_way_is_awaited(void **state)
{
    (void)state;
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    scene_open(scene, 1, 2000);
    uint8_t bytes[SH_COMMIT_BYTES + 16];
    tell(scene, 0, nid_of(scene->peers[0]), SH_CLUSTER_COMMIT, one_put(scene, bytes, 1));
    struct outcome there = tree_ask(scene, scene->peers[0], cid_at(scene, 0, 1));
    assert_true(there.err == SHOAL_OK && there.nid.v == nid_of(scene->peers[1]).v);
    sh_world_disk_delay_set(scene->cluster.world, 0, S / 2, S / 2);
    struct told told = {.outcome = {.err = SHOAL_EBUSY}};
    struct sh_request request = {.done = on_told, .arg = &told, .timeout_ns = 5 * S};
    struct sh_bytes payload = one_put(scene, bytes, 2);
    struct sh_out out;
    assert_int_equal(sh_msg_request(scene->peers[0]->msg, (shoal_nid){1}, SH_CLUSTER_COMMIT,
                                    payload.size, &request, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, payload);
    sh_msg_end(scene->peers[0]->msg, &out);
    there = tree_ask(scene, scene->peers[0], cid_at(scene, 0, 2));
    assert_false(told.outcome.done);
    assert_int_equal(there.err, SHOAL_EBUSY);
    there = tree_ask(scene, scene->client, cid_at(scene, 0, 2));
    assert_true(there.err == SHOAL_OK && there.nid.v == nid_of(scene->peers[0]).v);
    assert_false(told.outcome.done);
    assert_true(run_until(&scene->cluster, is_done, &told.outcome, 20 * S));
    assert_int_equal(told.outcome.err, SHOAL_OK);
    there = tree_ask(scene, scene->peers[0], cid_at(scene, 0, 2));
    assert_true(there.err == SHOAL_OK && there.nid.v == nid_of(scene->peers[1]).v);
    cluster_close(&scene->cluster);
    free(scene);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heals_with_one_superpeer), cmocka_unit_test(heals_with_three_superpeers),
        cmocka_unit_test(heals_when_small),         cmocka_unit_test(after_failures),
        cmocka_unit_test(superpeer_is_behind),      cmocka_unit_test(a_batch_under_way_is_awaited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
