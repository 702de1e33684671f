/* What superpeers keep on the ring, in whole clusters: names that were given are there, whichever
 * superpeer is asked, killed, started again or dismissed; lookups are pointed to who can tell. */
#include "cluster/proto.h"
#include "cluster/report.h"
#include "metadata/metadata.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

struct asked {
    struct sh_request request;
    bool done;
    enum shoal_err err, result;
    shoal_nid owner; /* who is to be asked instead; 0: it was the right one */
    shoal_cid cid;
    bool is_update;
};

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->done = true;
    asked->err = err;
    if (err)
        return;
    asked->owner.v = sh_get16(payload);
    if (asked->is_update) {
        asked->result = (enum shoal_err)sh_get16(payload);
        (void)sh_get8(payload);
    }
    if (asked->is_update || !asked->owner.v)
        asked->cid.v = sh_get64(payload);
    assert_true(sh_reader_done(payload));
}

/* An answer that says nothing but that it was done. */
static void on_answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->done = true;
    asked->err = err;
    assert_true(err || sh_reader_done(payload));
}

static bool asked_is_done(void *arg)
{
    return ((struct asked *)arg)->done;
}

static void name_question_put(struct sh_writer *w, struct sh_bytes name)
{
    sh_put8(w, SH_ASK_NAME);
    sh_put8(w, 0);
    sh_put32(w, 0);
    for (unsigned i = 0; i < 3; i++)
        sh_put64(w, 0);
    sh_put_text(w, name);
    sh_put16(w, 0);
}

/* Asks one superpeer: an update, or if it is NULL whose a name is. */
static void ask_one(struct host *asker, shoal_nid to, const struct sh_metadata_update *update,
                    struct sh_bytes name, struct asked *asked)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    if (update)
        sh_metadata_update_put(&w, update);
    else
        name_question_put(&w, name);
    size_t size = (size_t)(w.at - bytes);
    *asked = (struct asked){.is_update = update};
    asked->request = (struct sh_request){.done = on_done, .arg = asked, .timeout_ns = S};
    struct sh_out out;
    asked->err = sh_msg_request(asker->msg, to, update ? SH_CLUSTER_METADATA : SH_CLUSTER_ASK, size,
                                &asked->request, &out);
    if (asked->err)
        return;
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    sh_msg_end(asker->msg, &out);
    assert_true(run_until(asker->cluster, asked_is_done, asked, 10 * S));
}

/* Asks until one says something: those who are up in turn, and those to whom they point. */
static struct asked ask_any(struct host *asker, const struct sh_metadata_update *update,
                            struct sh_bytes name)
{
    static struct asked asked;
    for (unsigned i = 0; i < 60; i++) {
        struct host *superpeer = &asker->cluster->hosts[i % asker->cluster->superpeer_count];
        if (!superpeer->msg)
            continue;
        ask_one(asker, nid_of(superpeer), update, name, &asked);
        for (unsigned hops = 0; !asked.err && asked.owner.v && hops < 3; hops++)
            ask_one(asker, asked.owner, update, name, &asked);
        if ((!asked.err && !asked.owner.v) || asked.err == SHOAL_ENONAME)
            return asked;
        run_for(asker->cluster, S / 5);
    }
    fail_msg("seed %" PRIu64 ": nobody answers for a name: %s", seed, shoal_err_name(asked.err));
    return asked;
}

#define NAMES 20

static struct sh_bytes name_of(unsigned i, char *into)
{
    return sh_bytes_make(into, (size_t)snprintf(into, 16, "name %u", i));
}

static void give_names(struct host *asker, uint64_t from)
{
    for (unsigned i = 0; i < NAMES; i++) {
        char text[16];
        struct sh_metadata_update update = {.kind = SH_METADATA_NAME,
                                            .condition = SH_NAME_ANY,
                                            .cid = {from + i},
                                            .name = name_of(i, text)};
        struct asked asked = ask_any(asker, &update, update.name);
        assert_int_equal(asked.err, SHOAL_OK);
        assert_int_equal(asked.result, SHOAL_OK);
    }
}

static void assert_names(struct host *asker, uint64_t from)
{
    for (unsigned i = 0; i < NAMES; i++) {
        char text[16];
        struct asked asked = ask_any(asker, NULL, name_of(i, text));
        assert_int_equal(asked.err, SHOAL_OK);
        assert_true(asked.cid.v == from + i);
    }
}

static void names_outlive_superpeers(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 3, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 20 * S);
    run_for(&cluster, 5 * S); /* all three hold everything, and not its owner alone */
    give_names(peer, 1000);
    for (unsigned i = 0; i < 3; i++) {
        sh_world_crash(cluster.world, i);
        assert_names(peer, 1000 + 100 * i);
        give_names(peer, 1100 + 100 * i);
        assert_seen(&cluster, (shoal_nid){(uint16_t)(i + 1)}, SH_NODE_FAILED, 20 * S);
        assert_names(peer, 1100 + 100 * i);
        sh_world_restart(cluster.world, i);
        assert_int_equal(cluster.hosts[i].boot_err, SHOAL_OK);
        assert_seen(&cluster, (shoal_nid){(uint16_t)(i + 1)}, SH_NODE_UP, 20 * S);
        run_for(&cluster, 5 * S); /* it is caught up */
        assert_names(peer, 1100 + 100 * i);
    }
    cluster_close(&cluster);
}

/* Adds a peer, which joins, and a client, which knows the superpeers then. */
static void members_start(struct cluster *cluster, struct host **peer_out, struct host **client_out)
{
    struct host *peer = host_start(host_add(cluster, PEER));
    struct host *client = host_start(host_add(cluster, CLIENT));
    assert_joined(cluster, 20 * S);
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
    *peer_out = peer;
    *client_out = client;
}

/* A superpeer that was called failed behind a cut, and is slow to learn of it, must not answer for
 * what others have changed meanwhile, although the leader hears it again. */
static void a_replaced_superpeer_is_back(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned i = 0; i < 3; i++) {
        cluster_open(&cluster, 3, true);
        struct host *peer, *client;
        members_start(&cluster, &peer, &client);
        run_for(&cluster, 5 * S);
        give_names(client, 1000);
        struct host *away = &cluster.hosts[i];
        sh_world_partition(cluster.world, UINT64_C(1) << away->node,
                           7 & ~(UINT64_C(1) << away->node), false);
        run_for(&cluster, 5 * S);
        give_names(peer, 2000);
        sh_world_disk_delay_set(cluster.world, away->node, 200 * MS, 600 * MS);
        sh_world_heal(cluster.world);
        for (unsigned n = 0; n < 40 * NAMES; n++) {
            char text[16];
            struct asked asked;
            ask_one(client, nid_of(away), NULL, name_of(n % NAMES, text), &asked);
            if (!asked.err && !asked.owner.v)
                assert_true(asked.cid.v == 2000 + n % NAMES);
            run_for(&cluster, 5 * MS);
        }
        assert_names(peer, 2000);
        cluster_close(&cluster);
    }
}

/* When all superpeers are started again, their disks have the names; and chunks are found again. */
static void all_superpeers_are_killed(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 3, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    struct host *other = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 20 * S);
    give_names(peer, 1000);
    run_for(&cluster, 5 * S);
    for (unsigned i = 0; i < 3; i++)
        sh_world_crash(cluster.world, i);
    run_for(&cluster, S);
    for (unsigned i = 0; i < 3; i++)
        sh_world_restart(cluster.world, i);
    assert_seen(&cluster, nid_of(other), SH_NODE_UP, 20 * S);
    assert_names(peer, 1000);
    give_names(peer, 2000); /* and they can be changed */
    assert_names(peer, 2000);
    struct outcome outcome = {.err = SHOAL_EBUSY};
    for (unsigned i = 0; i < 40 && outcome.err; i++) {
        outcome = locate(peer, shoal_cid_make(nid_of(other), 7));
        run_for(&cluster, S / 4);
    }
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(outcome.nid.v, nid_of(other).v);
    cluster_close(&cluster);
}

/* Superpeers whose disks are in memory lose what is on them one by one, but not what the others
 * have; a single one loses all, and begins anew. */
static void names_without_disks(void **state)
{
    (void)state;
    for (unsigned superpeers = 1; superpeers <= 3; superpeers += 2) {
        static struct cluster cluster;
        cluster_open(&cluster, superpeers, false);
        struct host *peer = host_start(host_add(&cluster, PEER));
        assert_joined(&cluster, 20 * S);
        give_names(peer, 1000);
        assert_names(peer, 1000);
        run_for(&cluster, 5 * S); /* all three hold everything */
        for (unsigned i = 0; i < superpeers; i++) {
            sh_world_crash(cluster.world, i);
            run_for(&cluster, S);
            sh_world_restart(cluster.world, i);
            assert_joined(&cluster, 20 * S);
            run_for(&cluster, 5 * S);
        }
        char text[16];
        if (superpeers > 1)
            assert_names(peer, 1000);
        else
            assert_int_equal(ask_any(peer, NULL, name_of(0, text)).err, SHOAL_ENONAME);
        give_names(peer, 2000);
        assert_names(peer, 2000);
        assert_int_equal(locate(peer, shoal_cid_make(nid_of(peer), 7)).err, SHOAL_OK);
        cluster_close(&cluster);
    }
}

static unsigned waiting_count(const struct sh_report *report)
{
    unsigned count = 0;
    for (unsigned i = 0; report && i < report->shard_count; i++)
        count += sh_report_waits(report, i);
    return count;
}

static unsigned alone_count(const struct sh_report *report, unsigned nid)
{
    unsigned count = 0;
    for (unsigned i = 0; report && i < report->shard_count; i++)
        count += report->shards[i].replicas == sh_arc_bit(nid);
    return count;
}

static unsigned origin_count(const struct sh_report *report, enum sh_shard_origin origin)
{
    unsigned count = 0;
    for (unsigned i = 0; report && i < report->shard_count; i++)
        count += report->shards[i].origin == origin;
    return count;
}

static enum shoal_err declare_lost(struct host *asker, shoal_nid to, unsigned nid)
{
    static struct asked asked;
    struct sh_out out;
    asked = (struct asked){.done = false};
    asked.request = (struct sh_request){.done = on_answered, .arg = &asked, .timeout_ns = 3 * S};
    asked.err = sh_msg_request(asker->msg, to, SH_CLUSTER_LOST, 2, &asked.request, &out);
    if (asked.err)
        return asked.err;
    sh_put16(&out.w, (uint16_t)nid);
    sh_msg_end(asker->msg, &out);
    assert_true(run_until(asker->cluster, asked_is_done, &asked, 10 * S));
    return asked.err;
}

/* Lets superpeer 1 be the last one with some shards, and kills it: superpeer 3 was cut off while
 * names were given, and catches up with a slow disk when superpeer 2 is killed. */
static unsigned leave_the_first_alone(struct cluster *cluster, struct host *asker)
{
    give_names(asker, 1000);
    sh_world_partition(cluster->world, 1 << 2, 3, false);
    run_for(cluster, 5 * S);
    give_names(asker, 2000);
    sh_world_disk_delay_set(cluster->world, 2, 100 * MS, 300 * MS);
    sh_world_heal(cluster->world);
    sh_world_crash(cluster->world, 1);
    unsigned alone = 0;
    for (unsigned i = 0; i < 2000 && !alone; i++) {
        alone = alone_count(report_of(asker, nid_of(&cluster->hosts[0])), 1);
        run_for(cluster, MS);
    }
    sh_world_crash(cluster->world, 0);
    sh_world_disk_delay_set(cluster->world, 2, 0, MS);
    sh_world_restart(cluster->world, 1);
    return alone;
}

/* The last disk with a shard is waited for; when an operator declares it lost, the most advanced
 * old copy is there, and with it what was answered. */
static void a_lost_disk_is_declared(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *client;
    cluster_open(&cluster, 3, true);
    members_start(&cluster, &peer, &client);
    run_for(&cluster, 5 * S); /* all three hold everything */
    shoal_nid first = nid_of(&cluster.hosts[0]), second = nid_of(&cluster.hosts[1]);
    assert_int_equal(declare_lost(client, second, 1), SHOAL_EINVAL); /* it is up */
    assert_int_equal(declare_lost(client, second, 7), SHOAL_ENONODE);
    assert_true(leave_the_first_alone(&cluster, client));
    assert_seen(&cluster, first, SH_NODE_FAILED, 20 * S);
    run_for(&cluster, 10 * S); /* however long it takes, nothing is given up */
    unsigned waiting = waiting_count(report_of(client, second));
    assert_true(waiting);
    assert_int_equal(declare_lost(client, second, 1), SHOAL_OK);
    run_for(&cluster, 5 * S);
    const struct sh_report *report = report_of(client, second);
    assert_non_null(report);
    assert_int_equal(waiting_count(report), 0);
    assert_true(origin_count(report, SH_ORIGIN_COPY) + origin_count(report, SH_ORIGIN_PEERS) ==
                waiting);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        assert_true(report->shards[i].origin != SH_ORIGIN_COPY || report->shards[i].copy_nid != 1);
    /* Superpeer 3 may have caught up with a shard; its older copy of another lacks names. */
    assert_names(client, 2000);
    assert_int_equal(locate(peer, shoal_cid_make(nid_of(peer), 7)).err, SHOAL_OK);
    /* The disk that is back after all is refused; with a new one the superpeer takes part. */
    sh_world_restart(cluster.world, 0);
    run_for(&cluster, 5 * S);
    assert_names(client, 2000);
    give_names(client, 3000);
    assert_int_equal(alone_count(report_of(client, second), 1), 0);
    sh_world_crash(cluster.world, 0);
    assert_seen(&cluster, first, SH_NODE_FAILED, 20 * S);
    cluster.hosts[0].forgets = true;
    sh_world_restart(cluster.world, 0);
    run_for(&cluster, 10 * S);
    report = report_of(client, second);
    for (unsigned i = 0; report && i < SH_SHARDS; i++)
        assert_int_equal(report->shards[i].replicas, 14);
    assert_names(client, 3000);
    cluster_close(&cluster);
}

/* What a peer says that it has of the chunks of 64 creators, one of each shard: a page of ten at a
 * time. */
struct held {
    enum sh_claim kind;
    uint64_t first, last;
    unsigned pages;
};

static void on_holds(void *arg, struct sh_msg_in *in)
{
    struct held *held = arg;
    shoal_cid from = {sh_get64(&in->payload)};
    struct sh_out out;
    unsigned creator = SH_PEER_NID_MIN;
    while (shoal_cid_make((shoal_nid){(uint16_t)creator}, held->first).v < from.v)
        creator++;
    unsigned end =
        creator + 10 < SH_PEER_NID_MIN + SH_SHARDS ? creator + 10 : SH_PEER_NID_MIN + SH_SHARDS;
    size_t size = SH_HOLDS_ANSWER_BYTES + (end - creator) * SH_HOLDS_RANGE_BYTES;
    held->pages++;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, size, &out), SHOAL_OK);
    sh_put8(&out.w, end < SH_PEER_NID_MIN + SH_SHARDS);
    sh_put64(&out.w, 7);
    for (; creator < end; creator++) {
        sh_put64(&out.w, shoal_cid_make((shoal_nid){(uint16_t)creator}, held->first).v);
        sh_put64(&out.w, shoal_cid_make((shoal_nid){(uint16_t)creator}, held->last).v);
        sh_put8(&out.w, (uint8_t)held->kind);
    }
    sh_msg_end(in->msg, &out);
}

/* Asserts who has chunk `local` of a creator of each shard that was lost, or why nobody is named. Of
 * the first two creators, which are up, the chunks are there that nobody else has. */
static void assert_located(struct host *asker, uint64_t lost, uint64_t local, enum shoal_err err,
                           shoal_nid owner)
{
    for (unsigned i = 2; i < SH_SHARDS; i++) {
        shoal_nid creator = {(uint16_t)(SH_PEER_NID_MIN + i)};
        if (!(lost >> sh_arc_shard(creator) & 1))
            continue;
        struct outcome outcome = {.err = SHOAL_EUNREACHABLE};
        for (unsigned at = 0; at < 40 && outcome.err == SHOAL_EUNREACHABLE; at++) {
            run_for(asker->cluster, S / 4);
            outcome = locate(asker, shoal_cid_make(creator, local));
        }
        assert_int_equal(outcome.err, err);
        assert_true(err || outcome.nid.v == owner.v);
    }
}

static bool is_renewed(void *arg)
{
    const struct host *host = arg;
    return host->fences && host->member;
}

/* Where the chunks of a lost shard are, the peers say. Of what nobody has named, the next life of one that has
 * failed may still speak: until then the shard is not known. What a peer serves goes before what another one
 * may have given away. */
static void peers_say_what_they_have(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *client;
    cluster_open(&cluster, 3, true);
    members_start(&cluster, &peer, &client);
    struct host *failing = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 20 * S);
    struct held held = {SH_CLAIM_SERVES, 10, 19, 0}, late = {SH_CLAIM_FROZEN, 15, 29, 0};
    sh_msg_handler_set(peer->msg, SH_CLUSTER_HOLDS, SH_MSG_INLINE, on_holds, &held);
    sh_msg_handler_set(failing->msg, SH_CLUSTER_HOLDS, SH_MSG_INLINE, on_holds, &late);
    run_for(&cluster, 5 * S);
    held.pages = late.pages = 0; /* they are asked of shards that began when they had joined */
    shoal_nid first = nid_of(&cluster.hosts[0]), second = nid_of(&cluster.hosts[1]);
    shoal_nid last = nid_of(failing);
    assert_true(leave_the_first_alone(&cluster, client));
    assert_seen(&cluster, first, SH_NODE_FAILED, 20 * S);
    run_for(&cluster, 5 * S);
    const struct sh_report *report = report_of(client, second);
    uint64_t lost = 0;
    for (unsigned i = 0; report && i < SH_SHARDS; i++)
        lost |= (uint64_t)sh_report_waits(report, i) << i;
    assert_true(lost);
    assert_int_equal(held.pages, 0); /* of shards that no operator gave up nobody is asked */
    sh_world_partition(cluster.world, UINT64_C(1) << failing->node, 7, false);
    run_for(&cluster, 10 * S); /* it has failed */
    assert_int_equal(declare_lost(client, second, 1), SHOAL_OK);
    run_for(&cluster, 5 * S);
    assert_true(held.pages >= 7 && !late.pages);
    assert_located(peer, lost, 15, SHOAL_OK, nid_of(peer));
    assert_located(peer, lost, 25, SHOAL_EFAILED, SHOAL_NID_NONE);
    sh_world_heal(cluster.world);
    assert_true(run_until(&cluster, is_renewed, failing, 20 * S));
    sh_msg_handler_set(failing->msg, SH_CLUSTER_HOLDS, SH_MSG_INLINE, on_holds, &late);
    assert_seen(&cluster, last, SH_NODE_UP, 20 * S);
    run_for(&cluster, 5 * S);
    assert_true(late.pages >= 7);
    assert_located(peer, lost, 15, SHOAL_OK, nid_of(peer));
    assert_located(peer, lost, 25, SHOAL_OK, last);
    assert_located(peer, lost, 35, SHOAL_ENOCHUNK, SHOAL_NID_NONE);
    report = report_of(client, second);
    for (unsigned i = 0; report && i < SH_SHARDS; i++)
        assert_true(report->shards[i].is_known);
    cluster_close(&cluster);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_outlive_superpeers),  cmocka_unit_test(a_replaced_superpeer_is_back),
        cmocka_unit_test(all_superpeers_are_killed), cmocka_unit_test(names_without_disks),
        cmocka_unit_test(a_lost_disk_is_declared),   cmocka_unit_test(peers_say_what_they_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
