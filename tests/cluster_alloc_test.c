/* Superpeers, members and their directories, of which at each allocation one fails once, or memory is
 * short for a while: nobody ends, every question is answered, what was acknowledged is there
 * afterwards, and all go on once memory is back.
 *
 * SHOAL_TEST_SEED: which seed. */
#include "tests/alloc_int.h"

#include "cluster/proto.h"
#include "metadata/metadata.h"
#include "ring/arcs.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

#define SUPERPEERS 3
#define NAMES 6
#define CALLS_MAX 40

static struct cluster cluster;
static struct host *peers[3], *client;
static bool is_acknowledged[NAMES];
static size_t due, times_failing;

/* --- Questions ------------------------------------------------------------------------------------ */

struct exchange {
    struct sh_request request;
    bool done;
    enum shoal_err err;
    shoal_nid owner; /* who is to be asked instead */
    uint16_t result; /* of an update */
    uint64_t cid;    /* that a name has */
};

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct exchange *ex = request->arg;
    ex->done = true;
    ex->err = err;
    if (err)
        return;
    struct sh_reader r = *payload;
    ex->owner.v = sh_get16(payload);
    ex->result = sh_get16(payload);
    (void)sh_get16(&r);
    ex->cid = sh_get64(&r);
}

static bool is_over(void *arg)
{
    return ((struct exchange *)arg)->done;
}

/* Asks, and waits for the answer, which must come. */
static void ask_at(struct host *asker, shoal_nid to, sh_msg_type type, struct sh_bytes bytes,
                   struct exchange *ex)
{
    struct sh_out out;
    *ex = (struct exchange){.request = {.done = on_answer, .arg = ex, .timeout_ns = 2 * S}};
    ex->err = sh_msg_request(asker->msg, to, type, bytes.size, &ex->request, &out);
    ex->done = ex->err;
    if (ex->err)
        return;
    sh_put_raw(&out.w, bytes);
    sh_msg_end(asker->msg, &out);
    if (!run_until(&cluster, is_over, ex, 10 * S))
        fail_msg("allocation %zu: no answer, not even that it took too long", due);
}

/* Asks superpeers in turn, so often at most, until the owner has answered. */
static struct exchange ask(struct host *asker, sh_msg_type type, struct sh_bytes bytes,
                           unsigned tries)
{
    static struct exchange ex;
    shoal_nid to = {1};
    for (unsigned i = 0; i < tries; i++) {
        ask_at(asker, to, type, bytes, &ex);
        if (!ex.err && !ex.owner.v)
            return ex;
        if (ex.err == SHOAL_ENONAME)
            return ex;
        if (ex.err || i > SUPERPEERS) /* they may each name another while none owns it */
            run_for(&cluster, S / 10);
        to.v = ex.owner.v ? ex.owner.v : to.v % SUPERPEERS + 1;
    }
    if (!ex.err)
        ex.err = SHOAL_EBUSY;
    return ex;
}

static bool update(struct host *asker, const struct sh_metadata_update *what, unsigned tries)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, what);
    struct exchange ex =
        ask(asker, SH_CLUSTER_METADATA, sh_bytes_make(bytes, (size_t)(w.at - bytes)), tries);
    return !ex.err && !ex.result;
}

static struct exchange ask_services(struct host *asker, enum sh_ask_kind kind, const char *key,
                                    uint64_t barrier, uint32_t wait_ms, unsigned tries)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put8(&w, (uint8_t)kind);
    sh_put8(&w, 0);
    sh_put32(&w, wait_ms);
    sh_put64(&w, barrier);
    sh_put64(&w, 0);
    sh_put64(&w, 0);
    sh_put_text(&w, sh_bytes_text(key));
    sh_put_text(&w, sh_bytes_text(""));
    return ask(asker, SH_CLUSTER_ASK, sh_bytes_make(bytes, (size_t)(w.at - bytes)), tries);
}

static const char *name_at(unsigned at)
{
    static char name[16];
    (void)snprintf(name, sizeof name, "name%u", at);
    return name;
}

static bool name_put(unsigned at, unsigned tries)
{
    return update(client,
                  &(struct sh_metadata_update){.kind = SH_METADATA_NAME,
                                               .cid = {at + 1},
                                               .name = sh_bytes_text(name_at(at))},
                  tries);
}

static bool name_is_there(unsigned at)
{
    struct exchange ex = ask_services(client, SH_ASK_NAME, name_at(at), 0, 0, 200);
    if (ex.err && ex.err != SHOAL_ENONAME)
        fail_msg("allocation %zu: nobody answers for a name: %s", due, shoal_err_name(ex.err));
    return !ex.err && ex.cid == at + 1;
}

/* --- The story ------------------------------------------------------------------------------------ */

static void commit_send(void)
{
    static uint64_t sequence;
    uint8_t bytes[SH_COMMIT_BYTES + 16];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    shoal_cid first = shoal_cid_make(nid_of(peers[0]), 10), last = {first.v + 5};
    sh_put64(&w, sh_msg_instance(peers[0]->msg));
    sh_put16(&w, nid_of(peers[0]).v);
    sh_put16(&w, nid_of(peers[1]).v);
    sh_put64(&w, sh_msg_instance(peers[1]->msg));
    sh_put64(&w, ++sequence);
    sh_put16(&w, 1);
    sh_put64(&w, first.v);
    sh_put64(&w, last.v);
    (void)ask(peers[0], SH_CLUSTER_COMMIT, sh_bytes_make(bytes, (size_t)(w.at - bytes)), 4);
}

static void on_found(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    *(struct outcome *)op->arg = (struct outcome){.done = true, .err = err, .nid = nid};
}

static enum shoal_err locate_once(struct host *host, shoal_cid cid)
{
    struct outcome outcome = {.done = false};
    struct sh_locate op = {.done = on_found, .arg = &outcome};
    sh_directory_locate(host->directory, cid, &op);
    if (!run_until(&cluster, is_done, &outcome, 10 * S))
        fail_msg("allocation %zu: a lookup has no end", due);
    return outcome.err;
}

/* What clients ask. */
static void questions(void)
{
    struct exchange ex;
    uint8_t known[16] = {0};
    for (unsigned i = 0; i < NAMES; i++)
        is_acknowledged[i] = name_put(i, 4);
    (void)update(
        client,
        &(struct sh_metadata_update){.kind = SH_METADATA_BARRIER_NEW, .barrier = 0x1234, .size = 2},
        4);
    (void)update(client,
                 &(struct sh_metadata_update){.kind = SH_METADATA_SCRATCH_PUT,
                                              .name = sh_bytes_text("key"),
                                              .value = sh_bytes_text("value")},
                 4);
    (void)ask_services(client, SH_ASK_SCRATCH, "later", 0, 300, 4);
    (void)ask_services(client, SH_ASK_COPY, "", 0, 0, 4);
    (void)ask_services(client, SH_ASK_NAMES, "", 0, 0, 4);
    for (uint16_t i = 0; i < SUPERPEERS; i++) {
        ask_at(client, (shoal_nid){i + 1u}, SH_CLUSTER_REPORT, sh_bytes_make(known, 0), &ex);
        ask_at(client, (shoal_nid){i + 1u}, SH_CLUSTER_EVENTS, sh_bytes_make(known, sizeof known),
               &ex);
    }
    commit_send();
    (void)locate_once(client, shoal_cid_make(nid_of(peers[0]), 12));
    (void)locate_once(client, shoal_cid_make(nid_of(peers[1]), 12));
    (void)refresh(client);
}

/* Nodes end, leave, and come, also a superpeer: its process begins when memory is there. */
static void changes(void)
{
    sh_world_crash(cluster.world, peers[2]->node);
    alloc_plan.is_held = true;
    struct host *fresh = host_start(host_add(&cluster, PEER));
    alloc_plan.is_held = false;
    run_for(&cluster, FAILURE);
    sh_member_leave(peers[1]->member, 0, on_left, peers[1]);
    if (!run_until(&cluster, has_left, peers[1], 20 * S))
        fail_msg("allocation %zu: a peer can't leave", due);
    sh_world_crash(cluster.world, 1);
    run_for(&cluster, FAILURE);
    alloc_plan.is_held = true;
    sh_world_restart(cluster.world, 1);
    alloc_plan.is_held = false;
    run_for(&cluster, FAILURE);
    peers[1] = fresh;
}

static void all_is_well(void)
{
    if (!run_until(&cluster, all_joined, &cluster, 30 * S))
        fail_msg("allocation %zu: not all members are there after memory is back", due);
    for (unsigned i = 0; i < NAMES; i++) {
        if (is_acknowledged[i] && !name_is_there(i))
            fail_msg("allocation %zu: a name that was acknowledged is lost", due);
    }
    for (unsigned i = 0; i < NAMES; i++) {
        if (!is_acknowledged[i] && !name_is_there(i) && !name_put(i, 200))
            fail_msg("allocation %zu: a name can't be given", due);
        is_acknowledged[i] = true;
    }
    enum shoal_err err = SHOAL_EBUSY;
    for (unsigned i = 0; i < 100 && err; i++) {
        err = locate_once(client, shoal_cid_make(nid_of(peers[0]), 30)); /* not moved */
        if (err)
            run_for(&cluster, S / 10);
    }
    if (err)
        fail_msg("allocation %zu: a chunk is not found: %s", due, shoal_err_name(err));
}

static void story_open(uint16_t superpeers)
{
    struct outcome outcome;
    cluster_open(&cluster, superpeers, true);
    for (unsigned i = 0; i < 3; i++)
        peers[i] = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 20 * S);
    client = host_start(host_add(&cluster, CLIENT));
    bootstrap(client, &outcome, cluster.superpeers[0], cluster.superpeers[superpeers - 1]);
    assert_int_equal(outcome.err, SHOAL_OK);
    run_for(&cluster, 2 * S);
}

static bool run_story(void)
{
    story_open(SUPERPEERS);
    alloc_fail_at(due, times_failing);
    questions();
    changes();
    size_t failed = alloc_fail_end();
    all_is_well();
    sh_world_crash(cluster.world, 0); /* what it acknowledged the others have */
    all_is_well();
    cluster_close(&cluster);
    return failed > 0;
}

static void each_allocation(size_t times)
{
    times_failing = times;
    due = 1;
    for (size_t stride = 1; run_story(); due += stride)
        stride = 1 + due / 20; /* what comes again with each heartbeat is rarely new */
    print_message("%zu allocations\n", due - 1);
    assert_true(due > 100);
}

static void each_fails_once(void **state)
{
    (void)state;
    each_allocation(1);
}

static void from_each_on_many_fail(void **state)
{
    (void)state;
    each_allocation(40);
}

/* --- Starts --------------------------------------------------------------------------------------- */

static void on_nothing(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    (void)in;
}

/* A module's table of handlers is there before: without that a process can only end. */
static void handlers_begin(struct host *host)
{
    sh_msg_handler_set(host->msg, SH_MSG_TYPE(SH_MODULE_CLUSTER, 255), SH_MSG_INLINE, on_nothing,
                       NULL);
}

static void memory_fails_from_here(struct host *host)
{
    handlers_begin(host);
    alloc_fail_at(due, 1);
}

/* A superpeer that has no memory to read its disk does not start, and changes nothing there. */
static void a_superpeer_starts_whole_or_not(void **state)
{
    (void)state;
    story_open(1);
    for (unsigned i = 0; i < NAMES; i++)
        assert_true(name_put(i, 200));
    struct host *host = &cluster.hosts[0];
    on_superpeer_boot = memory_fails_from_here;
    for (due = 1;; due++) {
        sh_world_crash(cluster.world, 0);
        host->boot_err = SHOAL_OK;
        sh_world_restart(cluster.world, 0);
        if (!alloc_fail_end())
            break;
        if (host->boot_err != SHOAL_OK && host->boot_err != SHOAL_ENOMEM)
            fail_msg("allocation %zu: %s", due, shoal_err_name(host->boot_err));
        run_for(&cluster, 10 * MS);
    }
    on_superpeer_boot = NULL;
    print_message("%zu allocations\n", due - 1);
    assert_true(due > 50);
    assert_int_equal(host->boot_err, SHOAL_OK);
    for (unsigned i = 0; i < NAMES; i++)
        assert_true(name_is_there(i));
    cluster_close(&cluster);
}

static enum shoal_err parts_make(struct host *host, const struct sh_env *env)
{
    struct sh_directory *directory = NULL;
    struct sh_member *member = NULL;
    struct sh_recruit *recruit = NULL;
    struct sh_directory_config of_directory = {
        .msg = host->msg, .clock = env->clock, .cache_ranges_max = 100};
    enum shoal_err err = sh_directory_create(&of_directory, &directory);
    struct sh_member_config of_member = {.msg = host->msg,
                                         .directory = directory,
                                         .env = *env,
                                         .superpeers = cluster.superpeers,
                                         .superpeer_count = 1,
                                         .address = "node1:1",
                                         .instance = 7,
                                         .heartbeat_ns = HEARTBEAT,
                                         .failure_ns = FAILURE};
    if (!err)
        err = sh_member_create(&of_member, &member);
    struct sh_recruit_config of_recruit = {.msg = host->msg,
                                           .env = *env,
                                           .addresses = cluster.superpeers,
                                           .count = 1,
                                           .address = "node1:1",
                                           .instance = 7,
                                           .failure_ns = FAILURE,
                                           .on_done = on_recruited};
    if (!err)
        err = sh_recruit_create(&of_recruit, &recruit);
    sh_recruit_destroy(recruit);
    sh_member_destroy(member);
    sh_directory_destroy(directory);
    return err;
}

static void members_are_made_whole_or_not(void **state)
{
    (void)state;
    cluster_open(&cluster, 1, true);
    client = host_start(host_add(&cluster, CLIENT));
    enum shoal_err err = SHOAL_ENOMEM;
    handlers_begin(client);
    for (due = 1; err; due++) {
        alloc_fail_at(due, 1);
        err = parts_make(client, sh_world_env(cluster.world, client->node));
        assert_true(alloc_fail_end() ? err == SHOAL_ENOMEM : !err);
    }
    assert_true(due > 6);
    cluster_close(&cluster);
}

int main(void)
{
    test_logs_set();
    seed = test_seed(UINT64_C(0x616c6c6f63));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fails_once),
        cmocka_unit_test(from_each_on_many_fail),
        cmocka_unit_test(a_superpeer_starts_whole_or_not),
        cmocka_unit_test(members_are_made_whole_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
