/* Membership and lookup on real messaging in simulated worlds: superpeers, peers and a client.
 *
 * SHOAL_TEST_SEED: the seed of the worlds (default: random; printed). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

/* --- Tests ---------------------------------------------------------------------------------- */

static void join_lookup_leave(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peers[4];
    for (unsigned i = 0; i < 4; i++)
        peers[i] = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(nid_of(peers[i]).v, nid_of(peers[j]).v);
    }
    struct host *client = host_start(host_add(&cluster, CLIENT));
    struct outcome outcome;
    bootstrap(client, &outcome, "node2:1", NULL); /* a peer answers as well */
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(sh_directory_nodes(client->directory, NULL, 0), 5);

    shoal_cid cid = shoal_cid_make(nid_of(peers[1]), 77);
    shoal_nid owner;
    assert_int_equal(sh_directory_owner(client->directory, cid, &owner), SHOAL_EAGAIN);
    outcome = locate(client, cid);
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(outcome.nid.v, nid_of(peers[1]).v);
    cid.v += 1000000;
    assert_int_equal(sh_directory_owner(client->directory, cid, &owner), SHOAL_OK);
    assert_int_equal(owner.v, nid_of(peers[1]).v);
    assert_int_equal(sh_directory_cached(client->directory), 1);
    sh_directory_forget(client->directory, cid);
    assert_int_equal(sh_directory_owner(client->directory, cid, &owner), SHOAL_EAGAIN);
    assert_int_equal(locate(client, shoal_cid_make((shoal_nid){9999}, 1)).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(client, shoal_cid_make((shoal_nid){1}, 1)).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(peers[0], cid).err, SHOAL_OK);

    bool picked[4] = {false};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(locate(client, shoal_cid_make(nid_of(peers[i]), 1)).err, SHOAL_OK);
        assert_int_equal(sh_directory_pick_peer(client->directory, &owner), SHOAL_OK);
        for (unsigned j = 0; j < 4; j++)
            picked[j] |= owner.v == nid_of(peers[j]).v;
    }
    assert_true(picked[0] && picked[1] && picked[2] && picked[3]);
    assert_int_equal(sh_directory_cached(client->directory), 2); /* as many as it may */
    leave(peers[1]);
    assert_int_equal(peers[1]->left, SHOAL_OK);
    assert_seen(&cluster, nid_of(peers[1]), SH_NODE_LEFT, 5 * S);
    sh_directory_forget(client->directory, cid); /* nobody tells a client of a leave */
    assert_int_equal(locate(client, cid).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(peers[0], cid).err, SHOAL_ENOCHUNK);
    assert_int_equal(sh_directory_cached(peers[0]->directory), 0);
    cluster_close(&cluster);
}

/* Lookups of one creator that are made together cost one question, and all are answered. */
static void lookups_together(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    struct host *client = host_start(host_add(&cluster, CLIENT));
    assert_joined(&cluster, 5 * S);
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
    shoal_cid any = shoal_cid_make(nid_of(peer), 0);
    while (locate(client, any).err == SHOAL_EBUSY) /* the superpeer has just begun */
        run_for(&cluster, HEARTBEAT);
    sh_directory_forget(client->directory, any);
    enum { LOOKUPS = 50 };
    struct sh_locate ops[LOOKUPS];
    struct outcome outcomes[LOOKUPS];
    memset(ops, 0, sizeof ops);
    memset(outcomes, 0, sizeof outcomes);
    uint32_t before = sh_msg_requests_pending(client->msg);
    for (unsigned i = 0; i < LOOKUPS; i++) {
        ops[i].done = on_located;
        ops[i].arg = &outcomes[i];
        sh_directory_locate(client->directory, shoal_cid_make(nid_of(peer), i), &ops[i]);
    }
    assert_int_equal(sh_msg_requests_pending(client->msg), before + 1);
    for (unsigned i = 0; i < LOOKUPS; i++) {
        assert_true(run_until(&cluster, is_done, &outcomes[i], 5 * S));
        assert_int_equal(outcomes[i].err, SHOAL_OK);
        assert_int_equal(outcomes[i].nid.v, nid_of(peer).v);
    }
    cluster_close(&cluster);
}

/* A crashed peer is found out by its lost connection, long before silence would tell. */
static void failure_by_lost_connection(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    struct host *other = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    run_for(&cluster, 2 * HEARTBEAT); /* now it is connected under its ID */
    shoal_nid nid = nid_of(peer);
    shoal_cid cid = shoal_cid_make(nid, 5);
    assert_int_equal(locate(other, cid).err, SHOAL_OK);
    sh_world_crash(cluster.world, peer->node);
    assert_seen(&cluster, nid, SH_NODE_FAILED, FAILURE / 2);
    assert_int_equal(sh_directory_cached(other->directory), 0);
    assert_int_equal(locate(other, cid).err, SHOAL_EFAILED);
    /* The process that takes its place is another node. */
    peer->joins = 0;
    sh_world_restart(cluster.world, peer->node);
    assert_joined(&cluster, 5 * S);
    assert_int_not_equal(nid_of(peer).v, nid.v);
    assert_int_equal(state_in(other, nid), SH_NODE_FAILED);
    cluster_close(&cluster);
}

/* A node that is told that there is a newer view has it at once, and not with its next heartbeat, whenever that is due. */
static void views_come_in_a_hurry(void **state)
{
    enum { ROUNDS = 4 };
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *hasty = host_start(host_add(&cluster, PEER));
    struct host *other = host_start(host_add(&cluster, PEER));
    struct host *victims[ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++)
        victims[i] = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    unsigned late = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        run_for(&cluster, 2 * HEARTBEAT + i * HEARTBEAT / ROUNDS);
        shoal_nid nid = nid_of(victims[i]);
        sh_world_crash(cluster.world, victims[i]->node);
        for (unsigned ms = 0; state_in(&cluster.hosts[0], nid) != SH_NODE_FAILED; ms++) {
            assert_true(ms < FAILURE / MS);
            run_for(&cluster, MS);
        }
        sh_member_hurry(hasty->member);
        run_for(&cluster, HEARTBEAT / 10);
        assert_int_equal(state_in(hasty, nid), SH_NODE_FAILED);
        late += state_in(other, nid) != SH_NODE_FAILED;
    }
    assert_true(late); /* who is not told waits */
    cluster_close(&cluster);
}

/* A cut connection of a live node is no failure. */
static void cut_is_no_failure(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    uint64_t epoch = sh_directory_epoch(peer->directory);
    for (unsigned i = 0; i < 20; i++) {
        sh_world_cut(cluster.world, 0, peer->node);
        run_for(&cluster, 130 * MS);
    }
    run_for(&cluster, 2 * FAILURE);
    assert_int_equal(sh_directory_epoch(peer->directory), epoch);
    assert_int_equal(peer->failures, 0);
    cluster_close(&cluster);
}

/* A silent node fails; when it goes on it hears that its life is over, and its next one is up. */
static void failure_by_silence(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    struct host *other = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    sh_world_pause(cluster.world, peer->node);
    run_for(&cluster, FAILURE / 2);
    assert_int_equal(state_in(other, nid_of(peer)), SH_NODE_UP);
    run_for(&cluster, FAILURE);
    assert_int_equal(state_in(other, nid_of(peer)), SH_NODE_FAILED);
    uint64_t epoch = sh_directory_epoch(other->directory), before = peer->instance;
    shoal_nid nid = nid_of(peer);
    sh_world_resume(cluster.world, peer->node);
    assert_seen(&cluster, nid, SH_NODE_UP, 5 * S);
    assert_int_equal(nid_of(peer).v, nid.v);
    assert_true(sh_directory_epoch(other->directory) > epoch);
    assert_int_equal(peer->failures, 1);
    assert_int_equal(peer->fences, 1);
    struct sh_node node;
    assert_int_equal(sh_directory_node(other->directory, nid_of(peer), &node), SHOAL_OK);
    assert_true(node.instance == peer->instance && node.instance != before);
    assert_int_equal(locate(other, shoal_cid_make(nid_of(peer), 1)).err, SHOAL_OK);
    cluster_close(&cluster);
}

/* A superpeer that was stopped itself blames nobody. */
static void stopped_superpeer_blames_nobody(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    uint64_t epoch = sh_directory_epoch(peer->directory);
    sh_world_pause(cluster.world, 0);
    run_for(&cluster, 5 * FAILURE);
    sh_world_resume(cluster.world, 0);
    run_for(&cluster, 3 * FAILURE);
    assert_int_equal(sh_directory_epoch(peer->directory), epoch);
    assert_int_equal(peer->failures, 0);
    cluster_close(&cluster);
}

static void restarted_superpeer(bool has_disk)
{
    struct cluster cluster;
    cluster_open(&cluster, 1, has_disk);
    struct host *peers[3];
    uint16_t nids[3];
    for (unsigned i = 0; i < 3; i++)
        peers[i] = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    struct host *client = host_start(host_add(&cluster, CLIENT));
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
    for (unsigned i = 0; i < 3; i++)
        nids[i] = nid_of(peers[i]).v;
    shoal_cid cid = shoal_cid_make((shoal_nid){nids[2]}, 9);
    uint64_t epoch = sh_directory_epoch(peers[0]->directory);
    sh_world_crash(cluster.world, 0);
    run_for(&cluster, 3 * FAILURE);
    assert_int_equal(refresh(client).err, SHOAL_OK); /* a peer answers */
    assert_int_not_equal(locate(client, cid).err, SHOAL_OK);
    sh_world_restart(cluster.world, 0);
    assert_int_equal(cluster.hosts[0].boot_err, SHOAL_OK);
    struct host *fresh = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 6 * S);
    run_for(&cluster, 2 * FAILURE);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(nid_of(peers[i]).v, nids[i]);
        /* After a long time without any superpeer a peer may join again in any case. */
        assert_in_range(peers[i]->joins, 1, 2);
        assert_int_equal(peers[i]->failures, 0);
        assert_int_not_equal(nid_of(fresh).v, nids[i]);
        assert_int_equal(state_in(fresh, (shoal_nid){nids[i]}), SH_NODE_UP);
    }
    assert_true(sh_directory_epoch(peers[0]->directory) > epoch);
    assert_int_equal(refresh(client).err, SHOAL_OK);
    assert_true(sh_directory_epoch(client->directory) > epoch);
    outcome = locate(client, cid);
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(outcome.nid.v, nids[2]);
    cluster_close(&cluster);
}

static void restarted_superpeer_with_or_without_disk(void **state)
{
    restarted_superpeer(*state != NULL);
}

/* Every ID that a node was told stays its own, wherever the superpeer crashes. */
static void crashes_lose_no_member(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peers[8];
    uint16_t nids[8] = {0};
    struct sh_prng *prng = sh_world_prng(cluster.world);
    for (unsigned i = 0; i < 8; i++) {
        peers[i] = host_start(host_add(&cluster, PEER));
        run_for(&cluster, sh_prng_below(prng, 12 * MS));
        sh_world_crash(cluster.world, 0);
        for (unsigned j = 0; j <= i; j++) {
            uint16_t nid = nid_of(peers[j]).v;
            assert_true(!nids[j] || nids[j] == nid);
            nids[j] = nid;
        }
        run_for(&cluster, 20 * MS);
        sh_world_restart(cluster.world, 0);
        assert_int_equal(cluster.hosts[0].boot_err, SHOAL_OK);
    }
    assert_joined(&cluster, 20 * S);
    for (unsigned i = 0; i < 8; i++) {
        assert_true(!nids[i] || nids[i] == nid_of(peers[i]).v);
        assert_int_equal(peers[i]->joins, 1);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(nid_of(peers[i]).v, nid_of(peers[j]).v);
    }
    cluster_close(&cluster);
}

/* --- The registry's file ------------------------------------------------------------------- */

static void do_now(struct sh_disk *disk, struct sh_disk_op op)
{
    assert_int_equal(sh_disk_do(disk, &op), SHOAL_OK);
}

/* Overwrites part of a file of a superpeer whose process is up but idle. */
static void overwrite(struct host *host, const char *name, uint64_t offset, struct sh_bytes bytes)
{
    uint8_t data[8];
    assert_true(bytes.size <= sizeof data);
    memcpy(data, bytes.at, bytes.size);
    struct sh_disk *disk = sh_world_env(host->cluster->world, host->node)->disk;
    int file;
    assert_int_equal(sh_disk_open(disk, name, false, &file), SHOAL_OK);
    do_now(disk, (struct sh_disk_op){.kind = SH_DISK_WRITE,
                                     .file = file,
                                     .offset = offset,
                                     .data = data,
                                     .size = bytes.size});
    do_now(disk, (struct sh_disk_op){.kind = SH_DISK_SYNC, .file = file});
    disk->ops->close(disk, file);
}

/* Damage to what is stored is noticed, and not passed over. */
static void spoiled_registry(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    (void)host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    run_for(&cluster, FAILURE / 4);
    overwrite(&cluster.hosts[0], "journal.000", 16, sh_bytes_text("spoiled!"));
    sh_world_crash(cluster.world, 0);
    sh_world_restart(cluster.world, 0);
    assert_int_equal(cluster.hosts[0].boot_err, SHOAL_ECORRUPT);
    assert_null(cluster.hosts[0].superpeer);
    cluster_close(&cluster);
}

/* A registry from before there was a journal is refused, and stays as it is. */
static void old_registry(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    run_for(&cluster, FAILURE);
    uint16_t index = 7;
    assert_int_equal(sh_superpeer_stored(sh_world_env(cluster.world, 0), &index), SHOAL_OK);
    assert_int_equal(index, 0);
    struct host *host = host_start(host_add(&cluster, PEER)); /* any other node with a disk */
    const struct sh_env *env = sh_world_env(cluster.world, host->node);
    assert_int_equal(sh_superpeer_stored(env, &index), SHOAL_ENONAME);
    int file;
    assert_int_equal(sh_disk_open(env->disk, "raft.log", true, &file), SHOAL_OK);
    env->disk->ops->close(env->disk, file);
    assert_int_equal(sh_superpeer_stored(env, &index), SHOAL_EVERSION);
    assert_int_equal(sh_disk_open(env->disk, "raft.log", false, &file), SHOAL_OK);
    env->disk->ops->close(env->disk, file);
    cluster_close(&cluster);
}

/* What can't be stored is not promised; once it can be, the join goes through by itself. */
static void broken_disk(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct sh_disk_faults faults = {.write_err_ppm = 1000000};
    sh_world_disk_faults_set(cluster.world, &faults);
    struct host *peer = host_start(host_add(&cluster, PEER));
    run_for(&cluster, 5 * S);
    assert_false(sh_member_joined(peer->member));
    faults.write_err_ppm = 0;
    sh_world_disk_faults_set(cluster.world, &faults);
    assert_joined(&cluster, 10 * S);
    shoal_nid nid = nid_of(peer);
    sh_world_crash(cluster.world, 0);
    sh_world_restart(cluster.world, 0);
    assert_int_equal(cluster.hosts[0].boot_err, SHOAL_OK);
    assert_seen(&cluster, nid, SH_NODE_UP, 5 * S);
    assert_int_equal(peer->joins, 1);
    cluster_close(&cluster);
}

static void refused_clients(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *client = host_add(&cluster, CLIENT);
    client->secret = "another secret!!";
    host_start(client);
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", "node7:1"); /* the more telling error wins */
    assert_int_equal(outcome.err, SHOAL_ESECRET);
    bootstrap(client, &outcome, "node7:1", "node0:1");
    assert_int_equal(outcome.err, SHOAL_ESECRET);
    assert_non_null(strstr(outcome.detail, "node0:1"));
    bootstrap(client, &outcome, "node7:1", NULL);
    assert_int_equal(outcome.err, SHOAL_EUNREACHABLE);
    cluster_close(&cluster);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(join_lookup_leave),
        cmocka_unit_test(lookups_together),
        cmocka_unit_test(failure_by_lost_connection),
        cmocka_unit_test(views_come_in_a_hurry),
        cmocka_unit_test(cut_is_no_failure),
        cmocka_unit_test(failure_by_silence),
        cmocka_unit_test(stopped_superpeer_blames_nobody),
        cmocka_unit_test_prestate(restarted_superpeer_with_or_without_disk, &seed),
        cmocka_unit_test(restarted_superpeer_with_or_without_disk),
        cmocka_unit_test(crashes_lose_no_member),
        cmocka_unit_test(spoiled_registry),
        cmocka_unit_test(old_registry),
        cmocka_unit_test(broken_disk),
        cmocka_unit_test(refused_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
