/* Lookups of a client in a cluster of a superpeer and peers: how many questions they take, and what
 * a superpeer tells of a tree that does not fit into one answer. */
#include "tests/client_rig.h"

#include "base/log.h"
#include "cluster/directory.h"
#include "cluster/proto.h"
#include "metadata/metadata.h"

#define PEERS 3
#define CHUNKS 200

static struct {
    struct rig_node superpeer, peers[PEERS];
    shoal_nid nids[PEERS];
    shoal *store;
} rig;

static int open_all(void **state)
{
    (void)state;
    rig_node_run(&rig.superpeer, "superpeer", "127.0.0.1:0", "");
    for (unsigned i = 0; i < PEERS; i++) {
        rig_node_run(&rig.peers[i], "peer", "127.0.0.1:0", sh_node_address(rig.superpeer.node));
        rig.nids[i] = sh_node_nid(rig.peers[i].node);
    }
    rig.store = rig_open(sh_node_address(rig.superpeer.node), 20000 * MS);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    shoal_close(rig.store);
    for (unsigned i = 0; i < PEERS; i++)
        rig_node_end(&rig.peers[i]);
    rig_node_end(&rig.superpeer);
    return 0;
}

static struct sh_directory_stats stats(void)
{
    return sh_directory_stats(sh_client_directory(rig.store));
}

/* Gets of many chunks ask once for each creator, however many of his chunks are among them. */
static void one_question_for_a_range(void **state)
{
    (void)state;
    static shoal_cid cids[PEERS * CHUNKS];
    static struct shoal_op ops[PEERS * CHUNKS];
    static uint8_t data[PEERS * CHUNKS];
    for (unsigned i = 0; i < PEERS; i++)
        assert_int_equal(shoal_create_many(rig.store, rig.nids[i], 1, CHUNKS, &cids[i * CHUNKS]),
                         SHOAL_OK);
    for (unsigned i = 0; i < PEERS * CHUNKS; i++) {
        /* Of all peers in turn. */
        shoal_cid cid = cids[i % PEERS * CHUNKS + i / PEERS];
        ops[i] = (struct shoal_op){.cid = cid, .data = &data[i], .size = 1};
        sh_directory_forget(sh_client_directory(rig.store), cid);
    }
    uint64_t before = stats().requests;
    assert_int_equal(shoal_multi_get(rig.store, ops, PEERS * CHUNKS), SHOAL_OK);
    assert_int_equal(stats().requests, before + PEERS);
    assert_int_equal(sh_directory_cached(sh_client_directory(rig.store)), PEERS);
    assert_int_equal(shoal_multi_get(rig.store, ops, PEERS * CHUNKS), SHOAL_OK);
    assert_int_equal(stats().requests, before + PEERS);
    assert_true(stats().cache.hits >= PEERS * CHUNKS);
}

/* What nobody has costs a question for each range, too, not one for each chunk. */
static void one_question_for_nobody(void **state)
{
    (void)state;
    enum { NOWHERE = 10000 };
    struct shoal_op *ops = calloc(NOWHERE, sizeof *ops);
    uint8_t *data = calloc(NOWHERE, 1);
    assert_true(ops && data);
    uint64_t asked = 0;
    for (unsigned call = 0; call < 2; call++) {
        for (unsigned i = 0; i < NOWHERE; i++)
            ops[i] = (struct shoal_op){
                .cid = shoal_cid_make((shoal_nid){(uint16_t)(5000 + i % 2)}, i * UINT64_C(100000)),
                .data = &data[i],
                .size = 1};
        uint64_t before = stats().requests;
        assert_int_equal(shoal_multi_get(rig.store, ops, NOWHERE), SHOAL_ENOCHUNK);
        asked = stats().requests - before;
        for (unsigned i = 0; i < NOWHERE; i++)
            assert_int_equal(ops[i].err, SHOAL_ENOCHUNK);
    }
    /* In the first call the superpeer may not have been sure yet. */
    assert_int_equal(asked, 2);
    free(data);
    free(ops);
}

/* After a move the cache is wrong about two ranges; each costs one refused batch and a question. */
static void multi_heals(void **state)
{
    (void)state;
    static shoal_cid cids[CHUNKS];
    static struct shoal_op ops[CHUNKS];
    static uint8_t data[CHUNKS];
    assert_int_equal(shoal_create_many(rig.store, rig.nids[0], 1, CHUNKS, cids), SHOAL_OK);
    for (unsigned i = 0; i < CHUNKS; i++)
        ops[i] = (struct shoal_op){.cid = cids[i], .data = &data[i], .size = 1};
    assert_int_equal(shoal_multi_get(rig.store, ops, CHUNKS), SHOAL_OK);
    struct shoal_migration migration = {.first = cids[50], .last = cids[99], .target = rig.nids[1]};
    struct shoal_migration_sums sums;
    assert_int_equal(shoal_migrate(rig.store, rig.nids[0], &migration, NULL, NULL, &sums),
                     SHOAL_OK);
    assert_int_equal(sums.chunks, 50);
    uint64_t before = stats().requests;
    assert_int_equal(shoal_multi_get(rig.store, ops, CHUNKS), SHOAL_OK);
    uint64_t asked = stats().requests - before;
    print_message("%llu questions after a move\n", (unsigned long long)asked);
    assert_true(asked >= 1 && asked <= 3);
    shoal_nid owner;
    assert_int_equal(sh_client_locate(rig.store, cids[50], 0, &owner), SHOAL_OK);
    assert_int_equal(owner.v, rig.nids[1].v);
    struct sh_client_lookup found;
    assert_int_equal(sh_client_lookup(rig.store, cids[60], &found), SHOAL_OK);
    assert_int_equal(found.owner.v, rig.nids[1].v);
    assert_int_equal(found.first.v, cids[50].v);
    assert_int_equal(found.last.v, cids[99].v);
    assert_int_equal(found.superpeer.v, 1);
}

/* --- A large tree ---------------------------------------------------------------------------- */

#define RUNS 1500 /* every other of the IDs from `far` on is with the next peer */

static uint64_t far; /* a local ID */

/* A peer's chunks of which every other one is gone: what is left makes a run of each. */
static void runs_move(shoal_nid from, shoal_nid to)
{
    static shoal_cid cids[2 * RUNS];
    assert_int_equal(shoal_create_many(rig.store, from, 8, 2 * RUNS, cids), SHOAL_OK);
    far = shoal_cid_local(cids[0]);
    for (unsigned i = 0; i < 2 * RUNS; i++) {
        assert_int_equal(cids[i].v, cids[0].v + i);
        if (i % 2)
            assert_int_equal(shoal_remove(rig.store, cids[i]), SHOAL_OK);
    }
    struct shoal_migration all = {.first = cids[0], .last = cids[2 * RUNS - 1], .target = to};
    struct shoal_migration_sums sums;
    assert_int_equal(shoal_migrate(rig.store, from, &all, NULL, NULL, &sums), SHOAL_OK);
    assert_int_equal(sums.chunks, RUNS);
}

struct walk {
    shoal_nid creator, other;
    uint64_t at; /* the next local ID */
    uint64_t count, moved, most;
};

static bool on_range(void *arg, const struct sh_client_lookup *range)
{
    struct walk *walk = arg;
    assert_int_equal(range->first.v, shoal_cid_make(walk->creator, walk->at).v);
    assert_true(range->last.v >= range->first.v);
    assert_int_equal(range->superpeer.v, 1);
    bool is_far = walk->at >= far && walk->at < far + 2 * RUNS;
    shoal_nid owner = is_far && (walk->at - far) % 2 == 0 ? walk->other : walk->creator;
    assert_int_equal(range->owner.v, owner.v);
    if (is_far)
        assert_true(range->first.v == range->last.v || walk->at == far + 2 * RUNS - 1);
    walk->moved += range->owner.v == walk->other.v;
    walk->count++;
    walk->at = shoal_cid_local(range->last) + 1;
    return !walk->most || walk->count < walk->most;
}

static void tree_in_pages(void **state)
{
    (void)state;
    shoal_nid creator = rig.nids[1], other = rig.nids[2];
    runs_move(creator, other);
    struct walk walk = {.creator = creator, .other = other};
    assert_int_equal(sh_client_lookup_tree(rig.store, creator, on_range, &walk), SHOAL_OK);
    assert_int_equal(walk.moved, RUNS);
    assert_int_equal(walk.count, 2 * RUNS + 1);
    assert_int_equal(walk.at, SHOAL_LOCAL_ID_MAX + 1);
    walk = (struct walk){.creator = creator, .other = other, .most = 700};
    assert_int_equal(sh_client_lookup_tree(rig.store, creator, on_range, &walk), SHOAL_OK);
    assert_int_equal(walk.count, 700);
    assert_int_equal(sh_client_lookup_tree(rig.store, (shoal_nid){1}, on_range, &walk),
                     SHOAL_EROLE);
    assert_int_equal(sh_client_lookup_tree(rig.store, (shoal_nid){5000}, on_range, &walk),
                     SHOAL_ENONODE);
}

/* A client that touches all of it asks once for 64 ranges. */
static void prefetches(void **state)
{
    (void)state;
    sh_directory_forget(sh_client_directory(rig.store), shoal_cid_make(rig.nids[1], 1));
    uint64_t before = stats().requests;
    for (uint64_t at = far; at < far + 2 * RUNS; at++) {
        shoal_nid owner;
        assert_int_equal(sh_client_locate(rig.store, shoal_cid_make(rig.nids[1], at), 0, &owner),
                         SHOAL_OK);
        assert_int_equal(owner.v, rig.nids[(at - far) % 2 ? 1 : 2].v);
    }
    uint64_t asked = stats().requests - before;
    assert_true(asked >= 2 * RUNS / 64 && asked <= 2 * RUNS / 64 + 2);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("warn", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_question_for_a_range),
        cmocka_unit_test(one_question_for_nobody),
        cmocka_unit_test(multi_heals),
        cmocka_unit_test(tree_in_pages),
        cmocka_unit_test(prefetches),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
