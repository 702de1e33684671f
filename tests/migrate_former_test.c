/* A peer that was started again finds out, in a simulated world, which of its own chunks are elsewhere,
 * and which ranges of others its former life had. The tests tell the superpeer what to answer (TREE,
 * COMMIT and RESOLVE).
 *
 * SHOAL_TEST_SEED: the world (default: random; printed). */
#include "tests/migrate_says_int.h"

#define RANGES_MAX 8

/* What TREE is answered with: `err`, or the ranges from the one that the chunk asked for is in. */
static struct {
    enum shoal_err err;
    shoal_nid other; /* is to be asked instead */
    struct sh_range ranges[RANGES_MAX];
    uint64_t lives
        [RANGES_MAX]; /* of the owner, which has taken the range for a zone that it brings back; 0: it has it otherwise */
    size_t count;
    bool are_all; /* answered with, also those before the chunk */
    unsigned asks;
    shoal_cid asked; /* last */
    bool keeps;      /* it is not answered, but `kept` */
    struct sh_reply_to kept;
} tree;

static void ranges_answer(struct sh_reply_to to, shoal_cid cid)
{
    struct sh_msg *msg = world.hosts[0].msg;
    struct sh_out out;
    size_t from = 0;
    while (!tree.are_all && from < tree.count && tree.ranges[from].last.v < cid.v)
        from++;
    size_t count = tree.count - from;
    assert_int_equal(sh_msg_reply(msg, to, SH_CLUSTER_TREE,
                                  SH_TREE_ANSWER_BYTES + count * SH_TREE_RANGE_BYTES, &out),
                     SHOAL_OK);
    sh_put16(&out.w, tree.other.v);
    sh_put8(&out.w, 0);
    for (size_t i = from; i < tree.count; i++) {
        sh_put64(&out.w, tree.ranges[i].first.v);
        sh_put64(&out.w, tree.ranges[i].last.v);
        sh_put16(&out.w, (uint16_t)tree.ranges[i].value);
        sh_put64(&out.w, tree.lives[i]);
        sh_put64(&out.w, tree.lives[i] ? sh_zone_id(nid_of(A), 1) : 0);
        sh_put32(&out.w, tree.lives[i] ? 3 : 0);
    }
    sh_msg_end(msg, &out);
}

static void on_tree(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    tree.asks++;
    tree.asked.v = sh_get64(&in->payload);
    (void)sh_get64(&in->payload); /* the epoch */
    assert_true(sh_reader_done(&in->payload));
    if (tree.keeps)
        tree.kept = in->reply_to;
    else if (tree.err)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, tree.err, NULL);
    else
        ranges_answer(in->reply_to, tree.asked);
}

static void tree_says(const struct sh_range *ranges, size_t count)
{
    memset(&tree, 0, sizeof tree);
    tree.count = count;
    for (size_t i = 0; i < count; i++)
        tree.ranges[i] = ranges[i];
}

/* A chunk of host A or B, by its local ID. */
static shoal_cid chunk(unsigned creator, uint64_t local)
{
    return shoal_cid_make(nid_of(creator), local);
}

static struct sh_range range(unsigned creator, uint64_t first, uint64_t last, unsigned owner)
{
    return (struct sh_range){chunk(creator, first), chunk(creator, last), nid_of(owner).v};
}

/* What B says when somebody asks for a chunk. */
static enum shoal_err asked_for(shoal_cid cid)
{
    uint8_t bytes[16];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, cid.v);
    sh_put32(&w, 0);
    sh_put32(&w, 8);
    struct told *told =
        tell(client(), nid_of(B), SH_CHUNKS_GET_PART, sh_bytes_make(bytes, sizeof bytes));
    if (told->err)
        return told->err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(told->bytes, told->size));
    return (enum shoal_err)sh_get16(&r);
}

/* B is another life of a node, and has not been told anything yet. */
static void open_restarted(void)
{
    open_quiet(2);
    tree_says(NULL, 0);
    tree.err = SHOAL_EBUSY;
    sh_msg_handler_set(world.hosts[0].msg, SH_CLUSTER_TREE, SH_MSG_INLINE, on_tree, NULL);
    sh_store_ids_begin(world.hosts[B].store, SH_STORE_IDS_BLOCK, 2 * SH_STORE_IDS_BLOCK);
    sh_moves_joined(world.hosts[B].moves);
}

/* Nothing is said of own chunks of before until the superpeer has told where they are; then some are
 * elsewhere, and the others are gone. New ones are not waited with. */
static void own_chunks(void **state)
{
    (void)state;
    open_restarted();
    shoal_cid last = chunk(B, SH_STORE_IDS_BLOCK), first_new = chunk(B, SH_STORE_IDS_BLOCK + 1);
    assert_int_equal(asked_for(chunk(B, 1)), SHOAL_EBUSY);
    assert_int_equal(asked_for(last), SHOAL_EBUSY);
    assert_int_equal(asked_for(first_new), SHOAL_ENOCHUNK);
    run_for(&world, S);
    assert_true(tree.asks > 2); /* it asks again */
    assert_int_equal(asked_for(chunk(B, 1)), SHOAL_EBUSY);
    const struct sh_range ranges[] = {range(B, 0, 9, B), range(B, 10, 29, A), range(B, 30, 99, B)};
    tree_says(ranges, 3);
    run_for(&world, S); /* there is more to be asked for, behind those */
    assert_int_equal(tree.asked.v, chunk(B, 100).v);
    assert_int_equal(asked_for(chunk(B, 9)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_for(chunk(B, 10)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(chunk(B, 29)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(chunk(B, 30)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_for(chunk(B, 100)), SHOAL_EBUSY);
    const struct sh_range rest[] = {range(B, 100, SHOAL_LOCAL_ID_MAX, A)};
    tree_says(rest, 1);
    run_for(&world, S);
    assert_int_equal(asked_for(chunk(B, 100)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(last), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(first_new), SHOAL_ENOCHUNK); /* of which no former life had any */
    assert_int_equal(tree.asks, 1);
    world_close(&world);
}

static void own_known(void)
{
    const struct sh_range own[] = {range(B, 0, SHOAL_LOCAL_ID_MAX, B)};
    tree_says(own, 1);
    run_for(&world, S);
    assert_int_equal(asked_for(chunk(B, 1)), SHOAL_ENOCHUNK);
}

/* What B says of a chunk that somebody has asked it for, once it has asked the superpeer. */
static enum shoal_err asked_again(shoal_cid cid)
{
    assert_int_equal(asked_for(cid), SHOAL_ENOTOWNER);
    run_for(&world, S / 2);
    assert_int_equal(tree.asked.v, cid.v);
    return asked_for(cid);
}

/* The peer takes nothing from an answer that is malformed, or about other chunks than it asked for. */
static void wrong_answers(void **state)
{
    (void)state;
    open_restarted();
    const struct sh_range before = range(B, 0, 0, A), behind = range(B, 2, 99, A),
                          others = range(A, 0, 99, A),
                          beyond = {chunk(B, 0), chunk(A, 99), nid_of(A).v};
    const struct sh_range *wrong[] = {&before, &behind, &others, &beyond};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (wrong[i]->first.v > wrong[i]->last.v)
            continue; /* whichever of the two has the lower ID */
        tree_says(wrong[i], 1);
        tree.are_all = true;
        run_for(&world, S);
        assert_true(tree.asks > 2 && tree.asked.v == chunk(B, 1).v);
        assert_int_equal(asked_for(chunk(B, 1)), SHOAL_EBUSY);
    }
    tree_says(NULL, 0);
    tree.other = nid_of(0);
    run_for(&world, S);
    assert_true(tree.asks > 2);
    assert_int_equal(asked_for(chunk(B, 1)), SHOAL_EBUSY);
    own_known();
    const struct sh_range early = range(A, 0, 999, B);
    tree_says(&early, 1);
    tree.are_all = true;
    assert_int_equal(asked_again(chunk(A, 1500)), SHOAL_ENOTOWNER);
    world_close(&world);
}

/* A range of another creator that is this node's by what the superpeer knows is served, without
 * chunks; what is somebody else's is not. */
static void others_chunks(void **state)
{
    (void)state;
    open_restarted();
    own_known();
    const struct sh_range ranges[] = {range(A, 0, 999, A), range(A, 1000, 1999, B),
                                      range(A, 2000, SHOAL_LOCAL_ID_MAX, A)};
    tree_says(ranges, 3);
    assert_int_equal(asked_again(chunk(A, 999)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_again(chunk(A, 1500)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_for(chunk(A, 1999)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_again(chunk(A, 2000)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_again(chunk(A, 1000)), SHOAL_ENOCHUNK);
    world_close(&world);
}

/* What this life has taken for a zone that it brings back is served once the zone is open, be it the node's own, and whatever is known of that by then. Of what a former life had taken the
 * superpeers say what becomes: another node may be bringing it back. */
static void chunks_that_are_brought_back(void **state)
{
    (void)state;
    open_restarted();
    struct sh_moves *moves = world.hosts[B].moves;
    uint64_t life = sh_msg_instance(world.hosts[B].msg);
    assert_int_equal(asked_for(chunk(B, 60)), SHOAL_EBUSY);
    assert_true(sh_moves_serves(moves, chunk(B, 60), chunk(B, 69)));
    assert_int_equal(asked_for(chunk(B, 60)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_for(chunk(B, 70)), SHOAL_EBUSY);
    const struct sh_range own[] = {range(B, 0, 9, B), range(B, 10, 29, B), range(B, 30, 59, B),
                                   range(B, 60, SHOAL_LOCAL_ID_MAX, B)};
    tree_says(own, 4);
    tree.lives[0] = tree.lives[3] = life;
    tree.lives[1] = life + 1;
    run_for(&world, S);
    assert_int_equal(asked_for(chunk(B, 9)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(chunk(B, 10)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(chunk(B, 30)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_for(chunk(B, 60)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_for(chunk(B, 70)), SHOAL_ENOTOWNER);
    assert_true(sh_moves_serves(moves, chunk(B, 5), chunk(B, 9)));
    assert_int_equal(asked_for(chunk(B, 4)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(chunk(B, 5)), SHOAL_ENOCHUNK);
    const struct sh_range others[] = {range(A, 0, 999, A), range(A, 1000, 1999, B),
                                      range(A, 2000, SHOAL_LOCAL_ID_MAX, B)};
    tree_says(others, 3);
    tree.lives[1] = life;
    tree.lives[2] = life + 1;
    assert_int_equal(asked_again(chunk(A, 1500)), SHOAL_ENOTOWNER);
    assert_int_equal(asked_again(chunk(A, 2500)), SHOAL_ENOTOWNER);
    assert_true(sh_moves_serves(moves, chunk(A, 1500), chunk(A, 1500)));
    assert_int_equal(asked_for(chunk(A, 1500)), SHOAL_ENOCHUNK);
    world_close(&world);
}

/* Three more chunks of A, one behind the other, that no client knows; and what the superpeer says then:
 * that they and what is behind them are B's. */
static void more_chunks(shoal_cid cids[3])
{
    assert_int_equal(sh_store_new_many(world.hosts[A].store, 8, 3, cids), SHOAL_OK);
    for (unsigned i = 0; i < 3; i++)
        cids[i] = chunk(A, shoal_cid_local(cids[i]));
    assert_true(cids[1].v == cids[0].v + 1 && cids[2].v == cids[1].v + 1);
    const struct sh_range ranges[] = {range(A, shoal_cid_local(cids[0]), SHOAL_LOCAL_ID_MAX, B)};
    tree_says(ranges, 1);
}

/* Chunks that have come and are not decided about are left out, asked for or not: the batch says
 * whether they are here. */
static void chunks_that_come(void **state)
{
    (void)state;
    shoal_cid cids[3];
    open_restarted();
    own_known();
    more_chunks(cids);
    move_undecided(A, B, cids[1]);
    assert_int_equal(asked_again(cids[1]), SHOAL_ENOTOWNER);
    assert_int_equal(asked_again(cids[0]), SHOAL_ENOCHUNK);
    assert_int_equal(asked_for(cids[1]), SHOAL_ENOTOWNER);
    assert_int_equal(asked_for(cids[2]), SHOAL_ENOTOWNER);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, cids[1]));
    assert_int_equal(asked_for(cids[1]), SHOAL_OK);
    (void)asked_for(cids[2]); /* what was said of it before the batch was decided does not count */
    run_for(&world, S / 2);
    assert_int_equal(asked_for(cids[2]), SHOAL_ENOCHUNK);
    world_close(&world);
}

/* An answer from before a batch came and went says nothing of now. */
static void answer_of_before(void **state)
{
    (void)state;
    shoal_cid cids[3];
    open_restarted();
    own_known();
    more_chunks(cids);
    tree.keeps = true;
    assert_int_equal(asked_for(cids[1]), SHOAL_ENOTOWNER);
    run_for(&world, S / 10);
    assert_int_equal(tree.asks, 1);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    (void)move_ask(A, nid_of(B), cids[1], cids[1], 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, cids[1]));
    (void)move_ask(B, nid_of(A), cids[1], cids[1], 0);
    assert_int_equal(job_end(B, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(A, cids[1]));
    tree.keeps = false;
    ranges_answer(tree.kept, cids[1]);
    run_for(&world, S / 2);
    assert_int_equal(tree.asks, 1);
    assert_int_equal(asked_for(cids[1]), SHOAL_ENOTOWNER);
    world_close(&world);
}

/* A zone of a former life is lost, which may have had chunks of others that were here: a chunk is said to be lost, not to be none, and its range does not go back to a
 * creator that is gone; until an operator accepts the loss. What moves here in this life is none of that. */
static void others_chunks_that_may_be_lost(void **state)
{
    (void)state;
    shoal_cid cids[3];
    open_restarted();
    world.are_former_lost = true;
    const struct sh_range own[] = {range(B, 0, SHOAL_LOCAL_ID_MAX, B)};
    tree_says(own, 1);
    run_for(&world, S);
    assert_int_equal(asked_for(chunk(B, 1)), SHOAL_ELOST);
    more_chunks(cids);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    (void)move_ask(A, nid_of(B), cids[1], cids[1], 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, cids[1]));
    for (unsigned i = 0; i < 3; i += 2) {
        for (unsigned k = 0; k < 2; k++) { /* before it is known whose the range is, and after */
            says_set(SHOAL_OK, 0, SHOAL_OK);
            vacate(B, cids[i], cids[i]);
            assert_int_equal(says.commits, 0);
            assert_int_equal(k ? asked_for(cids[i]) : asked_again(cids[i]), SHOAL_ELOST);
        }
    }
    assert_int_equal(asked_for(cids[1]), SHOAL_OK);
    assert_int_equal(sh_store_remove(world.hosts[B].store, cids[1]), SHOAL_OK);
    assert_int_equal(asked_for(cids[1]), SHOAL_ENOCHUNK);
    world.are_former_lost = false; /* it is accepted, and B looks when it is asked for something */
    (void)asked_for(chunk(B, 1));
    run_for(&world, S);
    assert_int_equal(asked_for(chunk(B, 1)), SHOAL_ENOCHUNK);
    assert_int_equal(asked_again(cids[0]), SHOAL_ENOCHUNK);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    vacate(B, cids[2], cids[2]);
    assert_int_equal(says.commits, 1);
    world.ends = false; /* the chunks are nowhere */
    world_close(&world);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    has_large = false;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_chunks),
        cmocka_unit_test(wrong_answers),
        cmocka_unit_test(others_chunks),
        cmocka_unit_test(chunks_that_come),
        cmocka_unit_test(answer_of_before),
        cmocka_unit_test(chunks_that_are_brought_back),
        cmocka_unit_test(others_chunks_that_may_be_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
