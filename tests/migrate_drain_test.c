/* Drains: what they wait for, what they may not leave behind, and what a drained node takes. In a
 * simulated world, against a superpeer whose decisions are told here.
 *
 * SHOAL_TEST_SEED: the world (default: random; printed). */
#include "tests/migrate_says_int.h"

static bool no_lease_at_b(void *arg)
{
    (void)arg;
    sh_msg_lease_set(world.hosts[B].msg, 0);
    return watch(&world);
}

/* A drain goes on while its target may not serve, says so, and gets to its end. */
static void drain_waits(void **state)
{
    (void)state;
    open_quiet(2);
    (void)move_begin(A, B, 0, CHUNKS - 1, SH_MOVES_DRAIN);
    (void)sh_world_run_until(world.sim, no_lease_at_b, NULL, sh_world_now(world.sim) + 5 * S);
    struct sh_move_job job = job_of(A);
    assert_false(job.is_over);
    assert_true(job.err == SHOAL_EFENCED || job.err == SHOAL_ECONNLOST);
    job = job_end(A, 60 * S);
    assert_int_equal(job.err, SHOAL_OK);
    assert_int_equal(job.chunks, CHUNKS);
    world_close(&world);
}

static enum shoal_err create_at(unsigned host)
{
    uint8_t bytes[9];
    sh_store32(bytes, 1);
    bytes[4] = 0;
    sh_store32(bytes + 5, 8);
    return tell(client(), nid_of(host), SH_CHUNKS_CREATE, sh_bytes_make(bytes, 9))->err;
}

/* A drain for which the superpeers have no room any more says so, and does not try for ever. */
static void drain_meets_a_limit(void **state)
{
    (void)state;
    open_quiet(2);
    says_set(SHOAL_ELIMIT, 1, SHOAL_ECANCELED);
    says.each = true;
    says.resolve = SHOAL_ECANCELED;
    (void)move_begin(A, B, 0, CHUNKS - 1, SH_MOVES_DRAIN);
    struct sh_move_job job = job_end(A, 2 * S);
    assert_int_equal(job.err, SHOAL_ELIMIT);
    assert_int_equal(job.chunks, 0);
    assert_true(says.batches_count > 4); /* as many as are under way at a time count once */
    assert_true(comes_to(A, world.cids[0]));
    assert_int_equal(create_at(A), SHOAL_OK);
    world_close(&world);
}

static void lock_tell(sh_msg_type type, shoal_cid cid)
{
    uint8_t bytes[33];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, cid.v);
    sh_put64(&w, 77);
    if (type == SH_LOCKS_LOCK) {
        sh_put64(&w, 3600 * S);
        sh_put64(&w, 0);
        sh_put8(&w, 2);
    }
    struct told *told =
        tell(client(), nid_of(A), type, sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    assert_int_equal(told->err, SHOAL_OK);
    assert_int_equal(sh_load16(told->bytes), SHOAL_OK);
}

/* A drain ends when nothing but a lock is in its way for long, and says which; what was drained can
 * have chunks again. */
static void drain_meets_a_lock(void **state)
{
    (void)state;
    open_quiet(2);
    lock_tell(SH_LOCKS_LOCK, world.cids[7]);
    (void)move_begin(A, B, 0, CHUNKS - 1, SH_MOVES_DRAIN);
    struct sh_move_job job = job_end(A, 60 * S);
    assert_int_equal(job.err, SHOAL_EBUSY);
    assert_int_equal(job.why, SH_MOVE_STAYS_LOCKED);
    assert_true(job.stays.v == world.cids[7].v);
    assert_int_equal(job.locked, 1);
    assert_int_equal(job.chunks, CHUNKS - 1);
    assert_true(serves(A, world.cids[7]));
    assert_int_equal(create_at(A), SHOAL_OK);
    lock_tell(SH_LOCKS_UNLOCK, world.cids[7]);
    (void)move_begin(A, B, 0, CHUNKS - 1, SH_MOVES_DRAIN);
    assert_int_equal(job_end(A, 60 * S).err, SHOAL_OK);
    assert_int_not_equal(create_at(A), SHOAL_OK);
    assert_int_equal(tell(client(), nid_of(A), SH_MOVES_UNDRAIN, sh_bytes_make(NULL, 0))->err,
                     SHOAL_OK);
    assert_int_equal(create_at(A), SHOAL_OK);
    world_close(&world);
}

/* All that the first node created, to all others in turn. */
static uint64_t move_anywhere(unsigned from, uint8_t flags)
{
    return move_ask(from, SHOAL_NID_NONE, world.cids[0], world.cids[CHUNKS - 1], flags);
}

/* A node that is being drained, or was, takes nothing: neither as the target that was named, nor in
 * turn; and two that drain to nobody but each other end, and do not hand everything to and fro. */
static void drained_takes_nothing(void **state)
{
    (void)state;
    open_quiet(3);
    (void)move_begin(B, C, 0, CHUNKS - 1, SH_MOVES_DRAIN);
    assert_int_equal(job_end(B, 60 * S).err, SHOAL_OK);
    (void)move_begin(A, B, 0, CHUNKS - 1, 0);
    struct sh_move_job job = job_end(A, 60 * S);
    assert_int_equal(job.err, SHOAL_ENONODE);
    assert_int_equal(job.chunks, 0);
    (void)move_anywhere(A, SH_MOVES_DRAIN);
    job = job_end(A, 60 * S);
    assert_int_equal(job.err, SHOAL_OK);
    assert_int_equal(job.chunks, CHUNKS);
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_true(comes_to(C, world.cids[i]));
    (void)move_anywhere(C, SH_MOVES_DRAIN);
    job = job_end(C, 60 * S);
    assert_int_equal(job.err, SHOAL_ENONODE);
    assert_int_equal(job.chunks, 0);
    assert_int_equal(create_at(C), SHOAL_OK); /* it could not be drained, and is not */
    assert_int_equal(tell(client(), nid_of(B), SH_MOVES_UNDRAIN, sh_bytes_make(NULL, 0))->err,
                     SHOAL_OK);
    (void)move_begin(C, B, 0, CHUNKS - 1, 0);
    assert_int_equal(job_end(C, 60 * S).err, SHOAL_OK);
    assert_true(comes_to(B, world.cids[0]));
    world_close(&world);
}

/* A drain is not over while a batch is here of which it is not known whether it came for good. */
static void drain_waits_for_word(void **state)
{
    (void)state;
    open_quiet(3);
    move_undecided(A, B, world.cids[0]);
    (void)move_begin(B, C, 0, CHUNKS - 1, SH_MOVES_DRAIN);
    run_for(&world, 2 * S);
    struct sh_move_job job = job_of(B);
    assert_false(job.is_over);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    job = job_end(B, 20 * S);
    assert_int_equal(job.err, SHOAL_OK);
    assert_int_equal(job.chunks, 1);
    assert_true(comes_to(C, world.cids[0]));
    world_close(&world);
}

/* If nobody tells, it ends with an error that names what stays. */
static void drain_hears_no_word(void **state)
{
    (void)state;
    open_quiet(3);
    move_undecided(A, B, world.cids[0]);
    (void)move_begin(B, C, 0, CHUNKS - 1, SH_MOVES_DRAIN);
    struct sh_move_job job = job_end(B, 60 * S);
    assert_int_equal(job.err, SHOAL_EBUSY);
    assert_int_equal(job.why, SH_MOVE_STAYS_UNDECIDED);
    assert_true(job.stays.v == world.cids[0].v);
    assert_int_equal(create_at(B), SHOAL_OK);
    world_close(&world);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drain_waits),          cmocka_unit_test(drain_meets_a_lock),
        cmocka_unit_test(drain_meets_a_limit),  cmocka_unit_test(drained_takes_nothing),
        cmocka_unit_test(drain_waits_for_word), cmocka_unit_test(drain_hears_no_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
