/* What a migration does with answers that decide nothing, with targets that can't be asked, and
 * with more results than fit into a batch; and what superpeers hear that ask: in a simulated world,
 * against a superpeer whose decisions are told here. Drains: migrate_drain_test.c.
 *
 * SHOAL_TEST_SEED: the world (default: random; printed). */
#include "tests/migrate_says_int.h"

/* --- Tests ----------------------------------------------------------------------------------- */

/* An answer that decides nothing leaves the batch as it is: it may be committed. */
static void unclear_answers(void **state)
{
    (void)state;
    static const enum shoal_err errs[] = {
        SHOAL_ENOMEM, SHOAL_ENOTYPE, SHOAL_EPROTO,   SHOAL_EINVAL, SHOAL_EROLE, SHOAL_EINTERNAL,
        SHOAL_EBUSY,  SHOAL_EFENCED, SHOAL_ESTOPPED, SHOAL_ELIMIT, SHOAL_EIO,   SHOAL_ENONODE};
    open_quiet(2);
    for (unsigned i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        says_set(errs[i], 3, SHOAL_OK);
        (void)move_begin(A, B, i, i, 0);
        struct sh_move_job job = job_end(A, 20 * S);
        assert_int_equal(job.err, SHOAL_OK);
        assert_int_equal(job.chunks, 1);
        assert_true(says.is_same && says.commits == 4);
        assert_true(serves(B, world.cids[i]) && !serves(A, world.cids[i]));
    }
    /* What was decided is believed. */
    static const enum shoal_err refusals[] = {SHOAL_ECANCELED, SHOAL_ENOTOWNER};
    for (unsigned i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        says_set(refusals[i], 1, SHOAL_OK);
        (void)move_begin(A, B, 20 + i, 20 + i, 0);
        assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
        assert_true(!says.is_same && says.commits == 2);
    }
    world_close(&world);
}

/* ELIMIT is a refusal whose answer may be lost: the repetition says ECANCELED, but the job ends
 * with what was the reason. */
static void limit_is_told(void **state)
{
    (void)state;
    open_quiet(2);
    says_set(SHOAL_ELIMIT, 1, SHOAL_ECANCELED);
    says.each = true;
    (void)move_begin(A, B, 0, 0, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_ELIMIT);
    assert_true(says.commits > 2);
    assert_true(serves(A, world.cids[0]));
    world_close(&world);
}

static bool is_committed_at_b(void *arg)
{
    (void)watch(&world);
    return serves(B, *(shoal_cid *)arg);
}

/* The same from A to B, which are cut from each other: B has the chunk by the superpeer's word. */
static void move_behind_a_cut(void)
{
    move_undecided(A, B, 0);
    sh_world_partition(world.sim, 1 << A, 1 << B, false);
    assert_true(sh_world_run_until(world.sim, is_committed_at_b, &world.cids[0],
                                   sh_world_now(world.sim) + 20 * S));
}

/* The superpeer that had decided has forgotten it, and the target, which serves the batch, is taken
 * for dead: that is no proof that it has not got it. */
static void target_out_of_sight(void **state)
{
    (void)state;
    open_quiet(2);
    move_behind_a_cut();
    sh_world_partition(world.sim, 1 << B, ~(UINT64_C(1) << B), false);
    run_for(&world, 4 * FAILURE); /* A knows that B has failed */
    says_set(SHOAL_EDIFFERS, UINT32_MAX, SHOAL_EDIFFERS);
    run_for(&world, 5 * S); /* watched: nobody else serves it */
    assert_false(serves(A, world.cids[0]));
    assert_false(job_of(A).is_over);
    sh_world_heal(world.sim);
    assert_int_equal(job_end(A, 60 * S).err, SHOAL_OK);
    assert_true(serves(B, world.cids[0]) && !serves(A, world.cids[0]));
    world_close(&world);
}

/* A target that has a batch by the superpeer's word gives it to nobody else while the source lives
 * and has not heard of it: it would take the batch for its own if all forgot it but the target, and
 * that one had gone. */
static void source_unaware(void **state)
{
    (void)state;
    open_quiet(3);
    move_behind_a_cut();
    (void)move_begin(B, C, 0, 0, 0);
    run_for(&world, 3 * S);
    assert_false(job_of(B).is_over);
    assert_int_equal(job_of(B).chunks, 0);
    sh_world_heal(world.sim);
    says_set(SHOAL_EBUSY, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_int_equal(job_end(B, 20 * S).err, SHOAL_OK);
    assert_true(serves(C, world.cids[0]) && !serves(B, world.cids[0]));
    world_close(&world);
}

static void on_left(void *arg, enum shoal_err err)
{
    (void)arg;
    (void)err;
}

static bool a_serves(void *arg)
{
    (void)arg;
    return serves(A, world.cids[0]);
}

/* A target that has said that it leaves serves on until its lease is over: only then the source
 * serves its copy. */
static void target_that_leaves(void **state)
{
    (void)state;
    open_quiet(2);
    move_behind_a_cut();
    says_set(SHOAL_EDIFFERS, UINT32_MAX, SHOAL_EDIFFERS);
    run_for(&world, S);
    sh_member_leave(world.hosts[B].member, on_left, NULL);
    uint64_t until_ns = sh_world_now(world.sim) + 10 * S;
    assert_true(sh_world_run_until(world.sim, a_serves, NULL, until_ns));
    assert_true(sh_msg_is_fenced(world.hosts[B].msg));
    world_close(&world);
}

/* If another process listens where the target did, that one has ended: whatever it had is gone, and
 * the source serves its copy. */
static void target_replaced(void **state)
{
    (void)state;
    open_quiet(2);
    move_undecided(A, B, 0);
    sh_world_crash(world.sim, B);
    says_set(SHOAL_EDIFFERS, UINT32_MAX, SHOAL_EDIFFERS);
    run_for(&world, 4 * FAILURE);
    assert_false(serves(A, world.cids[0]));
    sh_world_restart(world.sim, B);
    assert_int_not_equal(job_end(A, 60 * S).err, SHOAL_OK); /* its target is gone */
    assert_true(serves(A, world.cids[0]));
    world_close(&world);
}

/* So also if the superpeer, which has no disk, died with the target: nobody knows it any more. */
static void target_forgotten(void **state)
{
    (void)state;
    world_open(&world, 1, 3, false);
    world.ends = true;
    run_for(&world, S);
    shoal_nid target = nid_of(B);
    move_undecided(A, B, 0);
    sh_world_crash(world.sim, B);
    sh_world_crash(world.sim, 0);
    sh_world_restart(world.sim, 0);
    says_set(SHOAL_EDIFFERS, UINT32_MAX, SHOAL_EDIFFERS);
    run_for(&world, 4 * FAILURE);
    struct sh_node node;
    assert_int_equal(sh_directory_node(world.hosts[A].directory, target, &node), SHOAL_ENONODE);
    assert_false(serves(A, world.cids[0]));
    sh_world_restart(world.sim, B);
    assert_int_not_equal(job_end(A, 60 * S).err, SHOAL_OK);
    assert_true(serves(A, world.cids[0]));
    world_close(&world);
}

/* --- What superpeers ask --------------------------------------------------------------------- */

static struct told *holds_ask(unsigned host, shoal_nid first, shoal_nid last)
{
    uint8_t bytes[SH_HOLDS_BYTES];
    sh_store64(bytes, 0);
    sh_store16(bytes + 8, first.v);
    sh_store16(bytes + 10, last.v);
    return tell(client(), nid_of(host), SH_CLUSTER_HOLDS, sh_bytes_make(bytes, sizeof bytes));
}

static enum shoal_err holds(unsigned host, shoal_nid first, shoal_nid last)
{
    return holds_ask(host, first, last)->err;
}

/* Of what is asked about the node can tell, though a batch of other chunks is not decided. */
static void holds_of_others(void **state)
{
    (void)state;
    open_quiet(3);
    move_undecided(A, B, 0);
    shoal_nid creator = nid_of(A), behind = {(uint16_t)(creator.v + 1)};
    assert_int_equal(holds(B, creator, creator), SHOAL_EBUSY);
    assert_int_equal(holds(B, behind, (shoal_nid){SH_PEER_NID_MAX}), SHOAL_OK);
    assert_int_equal(holds(A, creator, creator), SHOAL_OK); /* the source leaves it out */
    assert_int_equal(holds_ask(A, creator, creator)->bytes[0], SH_HOLDS_LEFT_OUT);
    assert_int_equal(holds_ask(A, behind, behind)->bytes[0], 0);
    assert_int_equal(holds(A, behind, (shoal_nid){SH_PEER_NID_MAX}), SHOAL_OK);
    run_for(&world, 4 * S);
    assert_int_equal(holds(B, creator, creator), SHOAL_OK); /* nobody waits for ever */
    says_set(SHOAL_EBUSY, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    world_close(&world);
}

/* A batch that is on its way home is left out, too, by the creator that gave its chunks away
 * before: who asks could have heard already that it is home. */
static void holds_of_its_own(void **state)
{
    (void)state;
    open_quiet(2);
    shoal_nid creator = nid_of(A);
    says_set(SHOAL_EBUSY, 0, SHOAL_OK);
    (void)move_begin(A, B, 0, 9, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    struct told *told = holds_ask(A, creator, creator);
    assert_int_equal(told->bytes[0], 0);
    assert_int_equal(told->size, SH_HOLDS_ANSWER_BYTES + SH_HOLDS_RANGE_BYTES);
    move_undecided(B, A, 4);
    run_for(&world, 4 * S);
    told = holds_ask(A, creator, creator);
    assert_int_equal(told->bytes[0], SH_HOLDS_LEFT_OUT);
    assert_int_equal(told->size, SH_HOLDS_ANSWER_BYTES + 2 * SH_HOLDS_RANGE_BYTES);
    const uint8_t *ranges = told->bytes + SH_HOLDS_ANSWER_BYTES;
    assert_true(sh_load64(ranges) == world.cids[0].v && sh_load64(ranges + 8) == world.cids[3].v);
    ranges += SH_HOLDS_RANGE_BYTES;
    assert_true(sh_load64(ranges) == world.cids[5].v && sh_load64(ranges + 8) == world.cids[9].v);
    /* Nor is it sure before the superpeer has noted that it has them. */
    sh_world_partition(world.sim, 1 << 0, 1 << A, false);
    says_set(SHOAL_EBUSY, 0, SHOAL_OK);
    run_for(&world, S);
    assert_true(serves(A, world.cids[4]));
    told = holds_ask(A, creator, creator);
    assert_int_equal(told->bytes[0], SH_HOLDS_LEFT_OUT);
    sh_world_heal(world.sim);
    run_for(&world, 4 * S);
    assert_int_equal(holds_ask(A, creator, creator)->bytes[0], 0);
    world_close(&world);
}

static size_t chunks_at(unsigned host)
{
    struct sh_store_status status;
    sh_store_status_get(world.hosts[host].store, &status);
    return status.chunks;
}

/* A batch that came from a node that has ended, of which the superpeers have forgotten what they
 * decided, is kept as long as that node may come back; then it is in nobody's way. */
static void nobody_can_tell(void **state)
{
    (void)state;
    open_quiet(3);
    shoal_nid creator = nid_of(A);
    move_undecided(A, B, 0);
    says.resolve = SHOAL_EDIFFERS;
    sh_world_crash(world.sim, A);
    run_for(&world, 6 * S);
    assert_int_equal(chunks_at(B), 1);
    assert_false(serves(B, world.cids[0]));
    struct told *told = holds_ask(B, creator, creator);
    assert_true(!told->err && told->bytes[0] == SH_HOLDS_ALONE);
    sh_world_restart(world.sim, A);
    run_for(&world, 2 * S);
    assert_int_equal(chunks_at(B), 0);
    told = holds_ask(B, creator, creator);
    assert_true(!told->err && told->bytes[0] == 0);
    world_close(&world);
}

static struct told *lookup(shoal_cid cid)
{
    uint8_t bytes[SH_LOOKUP_BYTES] = {0};
    sh_store64(bytes, cid.v);
    return tell(client(), nid_of(0), SH_CLUSTER_LOOKUP, sh_bytes_make(bytes, sizeof bytes));
}

static shoal_nid owner_by_superpeer(shoal_cid cid)
{
    struct told *told = lookup(cid);
    assert_int_equal(told->err, SHOAL_OK);
    assert_true(told->size >= SH_LOOKUP_ANSWER_BYTES);
    return (shoal_nid){sh_load16(told->bytes + 16)};
}

/* Begins to move a chunk, and has both asked what they have while that is not decided. */
static void move_and_ask(unsigned from, unsigned to, unsigned chunk)
{
    shoal_nid creator = nid_of(A);
    move_undecided(from, to, chunk);
    run_for(&world, 4 * S); /* the target waits for word of it */
    assert_int_equal(holds(from, creator, creator), SHOAL_OK);
    assert_int_equal(holds(to, creator, creator), SHOAL_OK);
}

/* Nodes are asked what they have while nobody knows who has a batch: who has it in the end says so,
 * if it was committed before all was forgotten, away from the creator and home, and if it was
 * not. */
static void claimed_later(void **state)
{
    (void)state;
    open_quiet(3);
    static const unsigned ways[][2] = {{A, B}, {B, A}};
    for (unsigned way = 0; way < 2; way++) {
        unsigned from = ways[way][0], to = ways[way][1];
        move_and_ask(from, to, 0);
        says_set(SHOAL_EBUSY, 0, SHOAL_OK); /* the superpeer notes nothing of it */
        assert_int_equal(job_end(from, 20 * S).err, SHOAL_OK);
        run_for(&world, S);
        assert_true(serves(to, world.cids[0]) && !serves(from, world.cids[0]));
        assert_int_equal(owner_by_superpeer(world.cids[0]).v, nid_of(to).v);
    }
    says_set(SHOAL_EBUSY, 0, SHOAL_OK);
    (void)move_begin(A, B, 1, 1, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_int_equal(owner_by_superpeer(world.cids[1]).v, nid_of(A).v); /* it has forgotten that */
    move_and_ask(B, A, 1);
    says_set(SHOAL_ECANCELED, UINT32_MAX, SHOAL_ECANCELED);
    assert_int_not_equal(job_end(B, 20 * S).err, SHOAL_OK);
    run_for(&world, S);
    assert_true(serves(B, world.cids[1]) && !serves(A, world.cids[1]));
    assert_int_equal(owner_by_superpeer(world.cids[1]).v, nid_of(B).v);
    world_close(&world);
}

static enum shoal_err batch_tell(unsigned host, sh_msg_type type, shoal_nid from, shoal_nid to)
{
    uint8_t creator[SH_WHO_BYTES], bytes[SH_COMMIT_BYTES + 16];
    sh_store16(creator, shoal_cid_creator(world.cids[0]).v);
    struct told *told =
        tell(&world.hosts[host], nid_of(0), SH_CLUSTER_WHO, sh_bytes_make(creator, sizeof creator));
    assert_int_equal(told->err, SHOAL_OK);
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put16(&w, from.v);
    sh_put16(&w, to.v);
    sh_put64(&w, sh_load64(told->bytes + 2));
    sh_put64(&w, UINT64_C(1) << 40);
    sh_put16(&w, 1);
    sh_put64(&w, world.cids[0].v);
    sh_put64(&w, world.cids[0].v);
    enum shoal_err err;
    do { /* until the registry has noted the nodes */
        err = tell(&world.hosts[host], nid_of(0), type, sh_bytes_make(bytes, sizeof bytes))->err;
        run_for(&world, 20 * MS);
    } while (err == SHOAL_EBUSY);
    return err;
}

/* Nobody but its source has a batch committed, and nobody but its target has it called off. */
static void senders(void **state)
{
    (void)state;
    open_quiet(3);
    for (unsigned host = B; host <= C; host++)
        assert_int_equal(batch_tell(host, SH_CLUSTER_COMMIT, nid_of(A), nid_of(B)), SHOAL_EINVAL);
    assert_int_equal(batch_tell(A, SH_CLUSTER_RESOLVE, nid_of(A), nid_of(B)), SHOAL_EINVAL);
    assert_int_equal(batch_tell(C, SH_CLUSTER_RESOLVE, nid_of(A), nid_of(B)), SHOAL_EINVAL);
    assert_int_equal(batch_tell(A, SH_CLUSTER_COMMIT, nid_of(A), (shoal_nid){4000}), SHOAL_ENONODE);
    /* Nothing of it has changed what the source may do, but its numbers begin higher. */
    assert_int_equal(batch_tell(A, SH_CLUSTER_COMMIT, nid_of(A), nid_of(B)), SHOAL_ECANCELED);
    world_close(&world);
}

/* --- Results --------------------------------------------------------------------------------- */

#define RESULTS_EACH 4000 /* of a client, which acknowledges none */
#define RESULT_CLIENTS 6

static struct told adds[64];

static bool all_added(void *arg)
{
    (void)watch(&world);
    for (unsigned i = 0; i < *(unsigned *)arg; i++) {
        if (!adds[i].done)
            return false;
    }
    return true;
}

/* Adds 1 to the last field's bytes of chunks, with numbers from first on. */
static void adds_send(uint64_t of_client, uint64_t first, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct sh_once_id id = {of_client, first + i, 0};
        struct sh_out out;
        adds[i] = (struct told){.request = {.done = on_told, .arg = &adds[i]}};
        enum shoal_err err = sh_msg_request(client()->msg, nid_of(A), SH_CHUNKS_ADD_ONCE,
                                            SH_ONCE_PREFIX_BYTES + 21, &adds[i].request, &out);
        assert_int_equal(err, SHOAL_OK);
        sh_once_id_put(&out.w, &id);
        sh_put64(&out.w, world.cids[(first + i) % CHUNKS].v);
        sh_put32(&out.w, 0);
        sh_put8(&out.w, 8);
        sh_put64(&out.w, 1);
        sh_msg_end(client()->msg, &out);
    }
    assert_true(sh_world_run_until(world.sim, all_added, &count, sh_world_now(world.sim) + 60 * S));
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(adds[i].err, SHOAL_OK);
}

/* More results than one batch carries: they go with fewer chunks at a time, all of them. */
static void many_results(void **state)
{
    (void)state;
    open_quiet(2);
    (void)tell(client(), nid_of(A), SH_MOVES_JOB, sh_bytes_make(adds[0].bytes, 8));
    for (unsigned i = 0; i < RESULT_CLIENTS; i++) {
        for (unsigned at = 0; at < RESULTS_EACH; at += 50)
            adds_send(9000 + i, 1 + at, 50);
    }
    (void)move_begin(A, B, 0, CHUNKS - 1, 0);
    struct sh_move_job job = job_end(A, 60 * S);
    assert_int_equal(job.err, SHOAL_OK);
    assert_int_equal(job.chunks, CHUNKS);
    for (unsigned i = 0; i < 20; i++) {
        uint8_t bytes[SH_MOVES_OUTCOME_BYTES];
        uint64_t number = 1 + below(&world, RESULTS_EACH);
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_put64(&w, world.cids[number % CHUNKS].v);
        sh_put64(&w, 9000 + i % RESULT_CLIENTS);
        sh_put16(&w, nid_of(A).v);
        sh_put64(&w, number);
        struct told *told =
            tell(client(), nid_of(B), SH_MOVES_OUTCOME, sh_bytes_make(bytes, sizeof bytes));
        assert_int_equal(told->err, SHOAL_OK);
        assert_int_equal(told->bytes[0], 1);
    }
    world_close(&world);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unclear_answers),
        cmocka_unit_test(limit_is_told),
        cmocka_unit_test(target_out_of_sight),
        cmocka_unit_test(source_unaware),
        cmocka_unit_test(target_replaced),
        cmocka_unit_test(target_forgotten),
        cmocka_unit_test(target_that_leaves),
        cmocka_unit_test(holds_of_others),
        cmocka_unit_test(holds_of_its_own),

        cmocka_unit_test(nobody_can_tell),
        cmocka_unit_test(claimed_later),
        cmocka_unit_test(senders),
        cmocka_unit_test(many_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
