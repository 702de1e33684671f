/* Members of barriers in whole clusters, in virtual time: who is dead is noticed, soon after its
 * connection was lost, and who is alive is not taken for dead when superpeers change hands.
 *
 * SHOAL_TEST_SEED: which seed. */
#include "cluster/proto.h"
#include "metadata/metadata_barriers.h"
#include "ring/arcs.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

struct exchange {
    struct sh_request request;
    bool done;
    enum shoal_err err, result;
    shoal_nid owner; /* who is to be asked instead; 0: it was the right one */
    uint64_t round;
    bool is_update;
};

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct exchange *ex = request->arg;
    ex->done = true;
    ex->err = err;
    if (err)
        return;
    ex->owner.v = sh_get16(payload);
    if (ex->owner.v)
        return;
    if (ex->is_update) {
        ex->result = (enum shoal_err)sh_get16(payload);
        (void)sh_get8(payload);
    } else {
        (void)sh_get32(payload);
        (void)sh_get8(payload);
    }
    ex->round = sh_get64(payload);
}

/* Sends to one superpeer; the answer comes later. */
static void send_to(struct host *asker, shoal_nid to, sh_msg_type type, struct sh_bytes bytes,
                    uint64_t timeout_ns, struct exchange *ex)
{
    struct sh_out out;
    *ex = (struct exchange){.is_update = type == SH_CLUSTER_METADATA};
    ex->request = (struct sh_request){.done = on_done, .arg = ex, .timeout_ns = timeout_ns};
    ex->err = sh_msg_request(asker->msg, to, type, bytes.size, &ex->request, &out);
    ex->done = ex->err;
    if (ex->err)
        return;
    sh_put_raw(&out.w, bytes);
    sh_msg_end(asker->msg, &out);
}

static bool is_over(void *arg)
{
    return ((struct exchange *)arg)->done;
}

static struct sh_bytes ask_bytes(uint8_t *into, uint32_t wait_ms, uint64_t barrier, uint64_t round,
                                 uint64_t member)
{
    struct sh_writer w = sh_writer_make(into, SH_METADATA_BYTES_MAX);
    sh_put8(&w, SH_ASK_BARRIER);
    sh_put8(&w, 0);
    sh_put32(&w, wait_ms);
    sh_put64(&w, barrier);
    sh_put64(&w, round);
    sh_put64(&w, member);
    sh_put_text(&w, sh_bytes_text(""));
    sh_put_text(&w, sh_bytes_text(""));
    return sh_bytes_make(into, (size_t)(w.at - into));
}

/* Until the owner answers. */
static struct exchange exchange(struct host *asker, sh_msg_type type, struct sh_bytes bytes,
                                shoal_nid *owner_out)
{
    static struct exchange ex;
    shoal_nid to = {1};
    for (unsigned i = 0; i < 100; i++) {
        send_to(asker, to, type, bytes, S, &ex);
        assert_true(run_until(asker->cluster, is_over, &ex, 10 * S));
        if (!ex.err && !ex.owner.v) {
            *owner_out = to;
            return ex;
        }
        if (ex.err)
            run_for(asker->cluster, S / 10);
        to.v = ex.owner.v ? ex.owner.v : to.v % asker->cluster->superpeer_count + 1;
    }
    fail_msg("seed %" PRIu64 ": nobody answers: %s", seed, shoal_err_name(ex.err));
    return ex;
}

static struct exchange update(struct host *asker, const struct sh_metadata_update *what,
                              shoal_nid *owner_out)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, what);
    struct exchange ex = exchange(asker, SH_CLUSTER_METADATA,
                                  sh_bytes_make(bytes, (size_t)(w.at - bytes)), owner_out);
    assert_int_equal(ex.result, SHOAL_OK);
    return ex;
}

static uint64_t open_round(struct host *asker, uint64_t barrier, shoal_nid *owner_out)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    return exchange(asker, SH_CLUSTER_ASK, ask_bytes(bytes, 0, barrier, 0, 0), owner_out).round;
}

/* A member that waits dies: the round is broken failure_ns after its connection was lost, long
 * before its question would have been answered. */
static void a_lost_member_is_out_soon(void **state)
{
    (void)state;
    static struct cluster cluster;
    static struct exchange waiting;
    cluster_open(&cluster, 1, false);
    run_for(&cluster, 2 * S); /* until it leads */
    struct host *member = host_start(host_add(&cluster, CLIENT));
    struct host *other = host_start(host_add(&cluster, CLIENT));
    struct outcome outcome;
    bootstrap(member, &outcome, "node0:1", NULL);
    bootstrap(other, &outcome, "node0:1", NULL);
    run_for(&cluster, 10 * S);
    shoal_nid owner;
    uint64_t barrier = 0x1234;
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    (void)update(other,
                 &(struct sh_metadata_update){
                     .kind = SH_METADATA_BARRIER_NEW, .barrier = barrier, .size = 2},
                 &owner);
    (void)update(member,
                 &(struct sh_metadata_update){
                     .kind = SH_METADATA_BARRIER_SIGN, .barrier = barrier, .member = 7},
                 &owner);
    send_to(member, owner, SH_CLUSTER_ASK, ask_bytes(bytes, 10000, barrier, 1, 7), 20 * S,
            &waiting);
    run_for(&cluster, S);
    /* A change lets the superpeer look at all that wait, again and again. */
    (void)update(other,
                 &(struct sh_metadata_update){
                     .kind = SH_METADATA_BARRIER_NEW, .barrier = barrier + SH_SHARDS, .size = 2},
                 &owner);
    run_for(&cluster, S);
    assert_false(waiting.done);
    sh_world_crash(cluster.world, member->node);
    run_for(&cluster, 3 * S);
    assert_int_equal(open_round(other, barrier, &owner), 2);
    cluster_close(&cluster);
}

/* Asks as a member does, a second at a time, until it was answered that the round is over, or for
 * so long. */
static void member_asks(struct host *member, uint64_t barrier, uint64_t ns)
{
    static struct exchange ex;
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    uint64_t end_ns = sh_world_now(member->cluster->world) + ns;
    shoal_nid to = {1};
    while (sh_world_now(member->cluster->world) < end_ns) {
        send_to(member, to, SH_CLUSTER_ASK, ask_bytes(bytes, 500, barrier, 1, 7), S, &ex);
        assert_true(run_until(member->cluster, is_over, &ex, 10 * S));
        if (ex.err && ex.err != SHOAL_EAGAIN)
            run_for(member->cluster, S / 10);
        assert_int_not_equal(ex.err, SHOAL_EBROKEN);
        if (!ex.err && ex.owner.v)
            to = ex.owner;
        else if (ex.err != SHOAL_EAGAIN)
            to.v = to.v % member->cluster->superpeer_count + 1;
        assert_true(ex.err || ex.owner.v || ex.round == 1);
    }
}

/* The owner is paused until another one has the shard, and so on: each may get it back with what
 * it heard long ago. */
static void takeovers_kill_nobody(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 3, true);
    struct host *member = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 20 * S);
    run_for(&cluster, 10 * S);
    shoal_nid owner, next = {0};
    uint64_t barrier = 0x1234;
    (void)update(member,
                 &(struct sh_metadata_update){
                     .kind = SH_METADATA_BARRIER_NEW, .barrier = barrier, .size = 2},
                 &owner);
    (void)update(member,
                 &(struct sh_metadata_update){
                     .kind = SH_METADATA_BARRIER_SIGN, .barrier = barrier, .member = 7},
                 &owner);
    member_asks(member, barrier, 2 * S);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(open_round(member, barrier, &owner), 1);
        uint64_t mask = UINT64_C(1) << (owner.v - 1u);
        sh_world_partition(cluster.world, mask, ~mask & 0xf, false);
        member_asks(member, barrier, 4 * S);
        sh_world_heal(cluster.world);
        member_asks(member, barrier, 8 * S);
        assert_int_equal(open_round(member, barrier, &next), 1);
    }
    cluster_close(&cluster);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_member_is_out_soon),
        cmocka_unit_test(takeovers_kill_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
