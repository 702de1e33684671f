/* Chunks that move between nodes while clients read and write them: nothing is lost, nothing is
 * done twice, and whoever asks finds them. Nodes in this process, with one thread and with four.
 *
 * SHOAL_TEST_SEED: which chunks are written (default: from the clock; printed). */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/client_rig.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

#define PEERS 3
#define CHUNKS 3000
#define WRITERS 2
#define TIMEOUT_NS (20000 * MS)

static uint64_t seed;

struct nodes {
    struct rig_node superpeer, peers[PEERS];
    shoal_nid nids[PEERS];
    bool is_up[PEERS];
    shoal *store;
};

static void node_start(struct rig_node *running, const char *role, const char *superpeers,
                       const char *threads)
{
    char detail[256];
    assert_int_equal(sh_options_init(&running->options), SHOAL_OK);
    rig_set(&running->options, "roles", role);
    rig_set(&running->options, "registry", "memory");
    rig_set(&running->options, "listen", "127.0.0.1:0");
    rig_set(&running->options, "superpeers", superpeers);
    rig_set(&running->options, "store_bytes_max", "32MiB");
    rig_set(&running->options, "failure_ns", "20s");
    rig_set(&running->options, "threads", threads);
    assert_int_equal(sh_node_create(&running->options, &running->node, detail), SHOAL_OK);
    assert_int_equal(sh_node_start(running->node), SHOAL_OK);
    assert_true(sh_node_wait_ready(running->node));
}

static void nodes_open(struct nodes *nodes, const char *threads)
{
    memset(nodes, 0, sizeof *nodes);
    node_start(&nodes->superpeer, "superpeer", "", "1");
    for (unsigned i = 0; i < PEERS; i++) {
        node_start(&nodes->peers[i], "peer", sh_node_address(nodes->superpeer.node), threads);
        nodes->nids[i] = sh_node_nid(nodes->peers[i].node);
        nodes->is_up[i] = true;
    }
    nodes->store = rig_open(sh_node_address(nodes->superpeer.node), TIMEOUT_NS);
}

static void peer_end(struct nodes *nodes, unsigned i)
{
    rig_node_end(&nodes->peers[i]);
    nodes->is_up[i] = false;
}

static void nodes_close(struct nodes *nodes)
{
    shoal_close(nodes->store);
    for (unsigned i = 0; i < PEERS; i++) {
        if (nodes->is_up[i])
            rig_node_end(&nodes->peers[i]);
    }
    rig_node_end(&nodes->superpeer);
}

static bool count_ids(void *arg, shoal_cid first, shoal_cid last)
{
    *(uint64_t *)arg += last.v - first.v + 1;
    return true;
}

static uint64_t held(struct nodes *nodes, unsigned i)
{
    uint64_t count = 0;
    assert_int_equal(shoal_ranges(nodes->store, nodes->nids[i], count_ids, &count), SHOAL_OK);
    return count;
}

static struct shoal_migration whole(shoal_nid target)
{
    return (struct shoal_migration){.first = {0}, .last = {UINT64_MAX}, .target = target};
}

static struct shoal_migration_sums move(struct nodes *nodes, unsigned from,
                                        const struct shoal_migration *migration,
                                        enum shoal_err expected)
{
    struct shoal_migration_sums sums = {0};
    enum shoal_err err =
        shoal_migrate(nodes->store, nodes->nids[from], migration, NULL, NULL, &sums);
    if (err != expected)
        print_message("%s: %s\n", shoal_err_name(err), shoal_error_detail());
    assert_int_equal(err, expected);
    return sums;
}

static void fill(struct nodes *nodes, unsigned peer, shoal_cid *cids, unsigned count)
{
    assert_int_equal(shoal_create_many(nodes->store, nodes->nids[peer], 32, count, cids), SHOAL_OK);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value[4] = {cids[i].v, i, ~cids[i].v, 7};
        assert_int_equal(shoal_put(nodes->store, cids[i], value, sizeof value), SHOAL_OK);
    }
}

static void check(struct nodes *nodes, const shoal_cid *cids, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t value[4];
        uint32_t size;
        assert_int_equal(shoal_get(nodes->store, cids[i], value, sizeof value, &size), SHOAL_OK);
        assert_int_equal(size, 32);
        assert_int_equal(value[0], cids[i].v);
        assert_int_equal(value[1], i);
        assert_int_equal(value[2], ~cids[i].v);
    }
}

/* --- Quiet ----------------------------------------------------------------------------------- */

static void test_there_and_back(void **state)
{
    (void)state;
    static shoal_cid cids[CHUNKS];
    struct nodes nodes;
    nodes_open(&nodes, "1");
    fill(&nodes, 0, cids, CHUNKS);
    struct shoal_migration all = whole(nodes.nids[1]);
    struct shoal_migration_sums sums = move(&nodes, 0, &all, SHOAL_OK);
    assert_int_equal(sums.chunks, CHUNKS);
    assert_int_equal(sums.bytes, CHUNKS * 32);
    assert_true(sums.freeze_ns > 0 && sums.batches >= CHUNKS / 1024);
    assert_int_equal(held(&nodes, 0), 0);
    assert_int_equal(held(&nodes, 1), CHUNKS);
    check(&nodes, cids, CHUNKS);
    /* IDs that are elsewhere are not given out again. */
    shoal_cid more[10];
    assert_int_equal(shoal_create_many(nodes.store, nodes.nids[0], 8, 10, more), SHOAL_OK);
    for (unsigned i = 0; i < 10; i++)
        assert_true(more[i].v > cids[CHUNKS - 1].v);
    /* One chunk, and a range, on to a third node. */
    struct shoal_migration one = {.first = cids[17], .last = cids[17], .target = nodes.nids[2]};
    assert_int_equal(move(&nodes, 1, &one, SHOAL_OK).chunks, 1);
    struct shoal_migration some = {.first = cids[100], .last = cids[199], .target = nodes.nids[2]};
    assert_int_equal(move(&nodes, 1, &some, SHOAL_OK).chunks, 100);
    assert_int_equal(held(&nodes, 2), 101);
    check(&nodes, cids, CHUNKS);
    /* Home again, from both. */
    all = whole(nodes.nids[0]);
    assert_int_equal(move(&nodes, 1, &all, SHOAL_OK).chunks, CHUNKS - 101);
    assert_int_equal(move(&nodes, 2, &all, SHOAL_OK).chunks, 101);
    assert_int_equal(held(&nodes, 0), CHUNKS + 10);
    check(&nodes, cids, CHUNKS);
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_int_equal(shoal_remove(nodes.store, cids[i]), SHOAL_OK);
    assert_int_equal(held(&nodes, 0), 10);
    nodes_close(&nodes);
}

static void test_refusals(void **state)
{
    (void)state;
    static shoal_cid cids[CHUNKS];
    struct nodes nodes;
    nodes_open(&nodes, "1");
    fill(&nodes, 0, cids, CHUNKS);
    struct shoal_migration all = whole(nodes.nids[0]);
    (void)move(&nodes, 0, &all, SHOAL_EINVAL); /* to itself */
    all.target.v = 9999;
    (void)move(&nodes, 0, &all, SHOAL_ENONODE);
    all.target.v = 1;
    (void)move(&nodes, 0, &all, SHOAL_EROLE);
    struct shoal_migration wrong = {.first = {2}, .last = {1}};
    (void)move(&nodes, 0, &wrong, SHOAL_EINVAL);
    /* Nothing there is no error. */
    all = whole(nodes.nids[1]);
    assert_int_equal(move(&nodes, 2, &all, SHOAL_OK).chunks, 0);
    /* After so many bytes it ends. */
    all.bytes_max = 32 * 1500;
    struct shoal_migration_sums sums = move(&nodes, 0, &all, SHOAL_OK);
    assert_true(sums.bytes >= all.bytes_max && sums.chunks < CHUNKS);
    check(&nodes, cids, CHUNKS);
    nodes_close(&nodes);
}

static bool cancel_at_once(void *arg, const char *phase, uint64_t done, uint64_t all)
{
    (void)done;
    (void)all;
    assert_string_equal(phase, "move");
    ++*(unsigned *)arg;
    return false;
}

static void test_cancel_and_throttle(void **state)
{
    (void)state;
    static shoal_cid cids[CHUNKS];
    struct nodes nodes;
    nodes_open(&nodes, "1");
    fill(&nodes, 0, cids, CHUNKS);
    struct shoal_migration all = whole(nodes.nids[1]);
    all.bytes_per_s =
        1000; /* the first batch is 32 KiB: the second would come half a minute later */
    struct shoal_migration_sums sums;
    unsigned calls = 0;
    uint64_t before = rig_now();
    assert_int_equal(shoal_migrate(nodes.store, nodes.nids[0], &all, cancel_at_once, &calls, &sums),
                     SHOAL_ECANCELED);
    assert_true(rig_now() - before < 20000 * MS);
    assert_int_equal(calls, 1);
    assert_true(sums.chunks < CHUNKS);
    check(&nodes, cids, CHUNKS);
    /* 96 KB in batches of 32 KiB at 1 MB/s: the third may begin after 64 ms. */
    all.bytes_per_s = 1000000;
    before = rig_now();
    sums = move(&nodes, 0, &all, SHOAL_OK);
    if (sums.batches >= 3)
        assert_true(rig_now() - before >= 60 * MS);
    assert_int_equal(held(&nodes, 1), CHUNKS);
    check(&nodes, cids, CHUNKS);
    nodes_close(&nodes);
}

static void test_drain_and_leave(void **state)
{
    (void)state;
    static shoal_cid cids[CHUNKS];
    struct nodes nodes;
    nodes_open(&nodes, "1");
    fill(&nodes, 0, cids, CHUNKS);
    for (unsigned i = 1; i < PEERS; i++) { /* so that it has heard of both */
        struct shoal_migration none = {.first = {1}, .last = {1}, .target = nodes.nids[i]};
        (void)move(&nodes, 0, &none, SHOAL_OK);
    }
    shoal_cid reserved;
    assert_int_equal(shoal_reserve(nodes.store, nodes.nids[0], 1, &reserved), SHOAL_OK);
    struct shoal_migration all = whole(SHOAL_NID_NONE);
    all.drain = true;
    assert_int_equal(move(&nodes, 0, &all, SHOAL_OK).chunks, CHUNKS);
    shoal *patient = rig_open(sh_node_address(nodes.superpeer.node), 3600 * UINT64_C(1000000000));
    assert_int_equal(shoal_fill(patient, reserved, "12345678", 8), SHOAL_ENONODE); /* at once */
    shoal_close(patient);
    struct shoal_status drained;
    assert_int_equal(shoal_status(nodes.store, nodes.nids[0], &drained), SHOAL_OK);
    assert_true(drained.is_drained);
    assert_int_equal(held(&nodes, 0), 0);
    assert_true(held(&nodes, 1) > 0 && held(&nodes, 2) > 0); /* in turn */
    shoal_cid made;
    for (unsigned i = 0; i < 6; i++) { /* none there any more */
        assert_int_equal(shoal_create(nodes.store, SHOAL_NID_NONE, 8, &made), SHOAL_OK);
        assert_int_not_equal(shoal_cid_creator(made).v, nodes.nids[0].v);
    }
    assert_int_not_equal(shoal_create(nodes.store, nodes.nids[0], 8, &made), SHOAL_OK);
    assert_int_equal(shoal_undrain(nodes.store, nodes.nids[0]), SHOAL_OK);
    assert_int_equal(shoal_create(nodes.store, nodes.nids[0], 8, &made), SHOAL_OK);
    assert_int_equal(shoal_fill(nodes.store, reserved, "12345678", 8), SHOAL_OK);
    assert_int_equal(move(&nodes, 0, &all, SHOAL_OK).chunks, 2);
    assert_int_equal(shoal_undrain(nodes.store, (shoal_nid){1}), SHOAL_EROLE);
    peer_end(&nodes, 0);
    check(&nodes, cids, CHUNKS);
    shoal *late = rig_open(sh_node_address(nodes.superpeer.node), TIMEOUT_NS);
    uint64_t value[4];
    uint32_t size;
    assert_int_equal(shoal_get(late, cids[5], value, sizeof value, &size), SHOAL_OK);
    shoal_close(late);
    /* On from there. */
    all = whole(nodes.nids[2]);
    (void)move(&nodes, 1, &all, SHOAL_OK);
    check(&nodes, cids, CHUNKS);
    assert_int_equal(shoal_remove(nodes.store, cids[0]), SHOAL_OK);
    assert_int_equal(shoal_get(nodes.store, cids[0], value, sizeof value, &size), SHOAL_ENOCHUNK);
    nodes_close(&nodes);
}

static bool count_range(void *arg, shoal_cid first, shoal_cid last)
{
    (void)first;
    (void)last;
    ++*(unsigned *)arg;
    return true;
}

/* Many batches in a row go to one target, as the superpeers keep a range for each turn. */
static void test_drain_in_long_runs(void **state)
{
    (void)state;
    static shoal_cid cids[64];
    struct nodes nodes;
    nodes_open(&nodes, "1");
    assert_int_equal(shoal_create_many(nodes.store, nodes.nids[0], 128 << 10, 64, cids), SHOAL_OK);
    struct shoal_migration all = whole(SHOAL_NID_NONE);
    all.drain = true;
    struct shoal_migration_sums sums = move(&nodes, 0, &all, SHOAL_OK);
    assert_int_equal(sums.chunks, 64);
    assert_int_equal(sums.batches, 32);
    unsigned ranges[PEERS] = {0};
    for (unsigned i = 1; i < PEERS; i++)
        assert_int_equal(shoal_ranges(nodes.store, nodes.nids[i], count_range, &ranges[i]),
                         SHOAL_OK);
    assert_true(ranges[1] >= 2 && ranges[2] >= 2);
    assert_true(ranges[1] + ranges[2] <= 10);
    nodes_close(&nodes);
}

/* Locks go where their chunks go, and are still their owners', also from one node to the next and
 * home again. */
static void test_locks(void **state)
{
    (void)state;
    shoal_cid cids[10];
    struct nodes nodes;
    struct shoal_call waits = {0};
    nodes_open(&nodes, "1");
    fill(&nodes, 0, cids, 10);
    shoal *second = rig_open(sh_node_address(nodes.superpeer.node), TIMEOUT_NS);
    shoal_owner one = {1}, two = {2};
    const uint64_t lease = 60000 * MS;
    assert_int_equal(shoal_lock(nodes.store, cids[4], one, SHOAL_LOCK_WRITE, lease, 0), SHOAL_OK);
    assert_int_equal(shoal_lock(nodes.store, cids[5], one, SHOAL_LOCK_READ, lease, 0), SHOAL_OK);
    assert_int_equal(shoal_lock(second, cids[5], one, SHOAL_LOCK_READ, lease, 0), SHOAL_OK);
    assert_int_equal(
        shoal_lock_async(second, cids[4], two, SHOAL_LOCK_WRITE, lease, TIMEOUT_NS, &waits),
        SHOAL_OK);
    for (unsigned hop = 0; hop < PEERS; hop++) {
        struct shoal_migration all = whole(nodes.nids[(hop + 1) % PEERS]);
        assert_int_equal(move(&nodes, hop, &all, SHOAL_OK).chunks, 10);
        /* Two clients' owners of the same number are two. */
        assert_int_equal(shoal_lock_extend(second, cids[4], one, lease), SHOAL_ENOLOCK);
        assert_int_equal(shoal_lock(nodes.store, cids[4], two, SHOAL_LOCK_READ, lease, 0),
                         SHOAL_EBUSY);
        if (hop != 1) /* and sometimes nobody asks before it goes on */
            assert_int_equal(shoal_lock_extend(nodes.store, cids[4], one, lease), SHOAL_OK);
        assert_int_equal(shoal_lock(nodes.store, cids[5], two, SHOAL_LOCK_WRITE, lease, 0),
                         SHOAL_EBUSY);
    }
    assert_int_equal(shoal_unlock(nodes.store, cids[5], one), SHOAL_OK);
    assert_int_equal(shoal_lock(nodes.store, cids[5], two, SHOAL_LOCK_WRITE, lease, 0),
                     SHOAL_EBUSY);
    assert_int_equal(shoal_unlock(second, cids[5], one), SHOAL_OK);
    assert_int_equal(shoal_lock(nodes.store, cids[5], two, SHOAL_LOCK_WRITE, lease, 0), SHOAL_OK);
    assert_int_equal(shoal_unlock(nodes.store, cids[4], one), SHOAL_OK);
    assert_int_equal(shoal_wait(second, &waits), SHOAL_OK); /* who waited all the while */
    assert_int_equal(shoal_lock_extend(second, cids[4], two, lease), SHOAL_OK);
    check(&nodes, cids, 10);
    shoal_close(second);
    nodes_close(&nodes);
}

/* --- While others write ---------------------------------------------------------------------- */

struct writer {
    struct nodes *nodes;
    const shoal_cid *cids;
    uint64_t random;
    uint64_t *added; /* by chunk */
    _Atomic uint64_t changes;
    unsigned which;
    _Atomic bool *is_over;
};

static void writer_multi(struct writer *writer, unsigned at)
{
    struct shoal_op ops[16];
    uint64_t values[16][4];
    for (unsigned i = 0; i < 16; i++)
        ops[i] = (struct shoal_op){
            .cid = writer->cids[(at + i) % CHUNKS], .data = values[i], .size = sizeof values[i]};
    enum shoal_err err = shoal_multi_get(writer->nodes->store, ops, 16);
    SH_ASSERT(err == SHOAL_OK);
    for (unsigned i = 0; i < 16; i++)
        SH_ASSERT(ops[i].size == 32 && values[i][0] == ops[i].cid.v);
}

/* Adds to each chunk's field of its own, and knows what must be there. */
static void *write_on(void *arg)
{
    struct writer *writer = arg;
    while (!atomic_load(writer->is_over)) {
        writer->random = sh_mix64(writer->random);
        unsigned at = (unsigned)(writer->random % CHUNKS);
        uint64_t old = 0;
        enum shoal_err err = shoal_add(writer->nodes->store, writer->cids[at],
                                       8 + 8 * writer->which, 8, at + 1, &old);
        SH_ASSERT(err == SHOAL_OK);
        SH_ASSERT(old == writer->added[at]); /* nothing lost, nothing twice, nothing stale */
        writer->added[at] += at + 1;
        if (atomic_fetch_add(&writer->changes, 1) % 8 == 0)
            writer_multi(writer, at);
    }
    return NULL;
}

static void run_under_load(const char *threads, uint64_t changes_least)
{
    static shoal_cid cids[CHUNKS];
    static uint64_t added[WRITERS][CHUNKS];
    struct nodes nodes;
    struct writer writers[WRITERS];
    pthread_t ids[WRITERS];
    _Atomic bool is_over = false;
    memset(added, 0, sizeof added);
    nodes_open(&nodes, threads);
    fill(&nodes, 0, cids, CHUNKS);
    for (unsigned i = 0; i < CHUNKS; i++) {
        uint64_t value[4] = {cids[i].v, 0, 0, 7};
        assert_int_equal(shoal_put(nodes.store, cids[i], value, sizeof value), SHOAL_OK);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.nodes = &nodes,
                                     .cids = cids,
                                     .random = seed + i,
                                     .added = added[i],
                                     .which = i,
                                     .is_over = &is_over};
        assert_int_equal(pthread_create(&ids[i], NULL, write_on, &writers[i]), 0);
    }
    uint64_t freeze_ns = 0, changes = 0;
    unsigned round = 0;
    for (; changes < changes_least; round++) {
        struct shoal_migration all = whole(nodes.nids[(round + 1) % PEERS]);
        all.bytes_per_s = round % 2 ? 0 : 2000000; /* so that they get to write in between */
        struct shoal_migration_sums sums = move(&nodes, round % PEERS, &all, SHOAL_OK);
        assert_int_equal(sums.chunks, CHUNKS);
        freeze_ns = sums.freeze_ns > freeze_ns ? sums.freeze_ns : freeze_ns;
        changes = 0;
        for (unsigned i = 0; i < WRITERS; i++)
            changes += atomic_load(&writers[i].changes);
    }
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(ids[i], NULL);
    print_message("%u migrations beside %llu changes; longest freeze %.1f ms\n", round,
                  (unsigned long long)changes, (double)freeze_ns / 1e6);
    for (unsigned i = 0; i < CHUNKS; i++) {
        uint64_t value[4];
        uint32_t size;
        assert_int_equal(shoal_get(nodes.store, cids[i], value, sizeof value, &size), SHOAL_OK);
        for (unsigned w = 0; w < WRITERS; w++)
            assert_int_equal(value[1 + w], added[w][i]);
    }
    nodes_close(&nodes);
}

static void test_under_load(void **state)
{
    (void)state;
    run_under_load("1", 3000);
}

static void test_under_load_with_threads(void **state)
{
    (void)state;
    run_under_load("3", 1500);
}

int main(void)
{
    const char *wish = getenv("SHOAL_TEST_SEED");
    seed = wish ? strtoull(wish, NULL, 10) : rig_now();
    print_message("seed %llu (SHOAL_TEST_SEED)\n", (unsigned long long)seed);
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancel_and_throttle), cmocka_unit_test(test_drain_and_leave),
        cmocka_unit_test(test_drain_in_long_runs),  cmocka_unit_test(test_locks),
        cmocka_unit_test(test_under_load),          cmocka_unit_test(test_under_load_with_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
