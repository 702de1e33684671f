/* A node refuses before it does anything: a change at a level that only a log can keep, on a node without one; and where as many answers wait
 * as may, a lock whose answer would have to wait, too. */
#include "node/levels_test.h"

static uint64_t chunks_count(void)
{
    struct sh_store_status status;
    sh_store_status_get(test.rig.store, &status);
    return status.chunks;
}

/* On a node without a log: who names a level that only a log can keep is refused, and nothing was done, so that the same request, under the same
 * number, can still be done; who names none, or async, is answered at once. */
static void unlogged_check(const struct row *row, unsigned level)
{
    static struct ask refused, done; /* a failed test leaves them to the teardown */
    static uint8_t bytes[LARGE];
    bool has_promise = level == SH_LEVEL_REPLICATED || level == SH_LEVEL_DURABLE;
    sh_msg_type type = level == SH_LEVELS ? row->form : SH_CHUNKS_AT(row->form, level);
    shoal_cid cid = chunk_of(row);
    struct sh_bytes payload = payload_of(row, cid);
    uint64_t chunks = chunks_count();
    uint32_t size;
    if (has_promise) {
        ask_send(&refused, type, payload);
        if (!refused.is_done || refused.err != SHOAL_ENOBACKUP)
            fail_msg("%s, level %u: %s", row->name, level,
                     refused.is_done ? shoal_err_name(refused.err) : "not answered");
        assert_int_equal(chunks_count(), chunks);
        if (row->chunk_bytes) {
            sh_lid lid = {shoal_cid_local(cid)};
            assert_int_equal(sh_store_get(test.rig.store, lid, bytes, sizeof bytes, &size),
                             SHOAL_OK);
            assert_int_equal(size, row->chunk_bytes);
            assert_memory_equal(bytes, pattern, size);
        }
        type = SH_CHUNKS_AT(row->form, SH_LEVEL_ASYNC);
    }
    ask_send(&done, type, payload);
    assert_answered(row, "there is no log", &done, true);
    assert_int_equal(done.err, SHOAL_OK);
    if (cid.v)
        chunks_drop(cid, 1);
    else
        chunks_drop((shoal_cid){sh_load64(done.answer)}, sh_load32(done.answer + 8));
}

static void test_unlogged(void **state)
{
    (void)state;
    static struct ask sync; /* a failed test leaves them to the teardown */
    const struct row all = {"sync", SH_CHUNKS_SYNC, 0, 0, false};
    for (size_t i = 0; i < CHANGES; i++) {
        for (unsigned level = 0; level <= SH_LEVELS; level++)
            unlogged_check(&changes[i], level);
    }
    ask_send(&sync, SH_CHUNKS_SYNC, payload_of(&all, (shoal_cid){0}));
    assert_true(sync.is_done && sync.err == SHOAL_ENOBACKUP);
}

/* --- Locks while too many answers wait --------------------------------------------------------- */

static struct ask writes[RIG_HELDS_MAX]; /* a failed test leaves them to the teardown */

static void fill(shoal_cid cid)
{
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    for (unsigned i = 0; i < RIG_HELDS_MAX; i++)
        ask_send(&writes[i], SH_CHUNKS_PUT, payload_of(&put, cid));
    assert_int_equal(sh_helds_count(sh_chunks_helds(test.rig.chunks)), RIG_HELDS_MAX);
}

static void assert_filled_answered(void)
{
    for (unsigned i = 0; i < RIG_HELDS_MAX; i++)
        assert_true(writes[i].is_done && !writes[i].err);
    assert_int_equal(sh_helds_count(sh_chunks_helds(test.rig.chunks)), 0);
}

static void lock_send(unsigned who, struct ask *ask, shoal_cid cid, uint64_t token,
                      enum sh_lease_mode mode, uint64_t wait_ns)
{
    uint8_t bytes[33];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, cid.v);
    sh_put64(&w, token);
    sh_put64(&w, RIG_SILENCE_NS / 1000); /* of the lease: longer than the test */
    sh_put64(&w, wait_ns);
    sh_put8(&w, (uint8_t)mode);
    assert_true(w.at == w.end);
    ask_send_by(who, ask, SH_LOCKS_LOCK, sh_bytes_make(bytes, sizeof bytes));
}

static void unlock_send(unsigned who, struct ask *ask, shoal_cid cid, uint64_t token)
{
    uint8_t bytes[16];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, cid.v);
    sh_put64(&w, token);
    ask_send_by(who, ask, SH_LOCKS_UNLOCK, sh_bytes_make(bytes, sizeof bytes));
}

/* The chunk's locks and waits. */
static size_t locks_list(struct sh_lease *leases_out, size_t max)
{
    return sh_locks_list(test.rig.locks, (shoal_cid){0}, (struct sh_lease_owner){0}, leases_out,
                         max);
}

static void assert_said(const struct ask *ask, enum shoal_err err)
{
    assert_true(ask->is_done);
    assert_int_equal(ask->err, SHOAL_OK);
    assert_int_equal(sh_load16(ask->answer), err);
}

/* Of a chunk whose write is on its way nobody can be told that it is locked: nobody gets it. */
static void test_lock_not_told(void **state)
{
    (void)state;
    static struct ask lock, clean; /* a failed test leaves them to the teardown */
    struct sh_lease leases[2];
    shoal_cid cid = chunk_make(SMALL), other = chunk_make(SMALL);
    disk_catches_up();
    gate_hold(&test.gate, true);
    fill(cid);
    lock_send(RIG_PEER, &lock, cid, 1, SH_LEASE_WRITER, 0);
    assert_true(lock.is_done && lock.err == SHOAL_EBUSY);
    lock_send(RIG_PEER, &lock, cid, 1, SH_LEASE_WRITER, RIG_SILENCE_NS / 1000);
    assert_true(lock.is_done && lock.err == SHOAL_EBUSY);
    assert_int_equal(locks_list(leases, 2), 0);
    lock_send(RIG_PEER, &clean, other, 1, SH_LEASE_WRITER, 0);
    assert_said(&clean, SHOAL_OK);
    log_steps();
    assert_filled_answered();
    lock_send(RIG_CLIENT, &lock, cid, 2, SH_LEASE_WRITER, 0);
    assert_said(&lock, SHOAL_OK);
}

/* An owner that asks again for what it has keeps it, as it is. */
static void test_lock_asked_again(void **state)
{
    (void)state;
    static struct ask lock; /* a failed test leaves it to the teardown */
    struct sh_lease leases[2];
    shoal_cid cid = chunk_make(SMALL);
    disk_catches_up();
    lock_send(RIG_PEER, &lock, cid, 1, SH_LEASE_READER, 0);
    assert_said(&lock, SHOAL_OK);
    gate_hold(&test.gate, true);
    fill(cid);
    lock_send(RIG_PEER, &lock, cid, 1, SH_LEASE_WRITER, 0);
    assert_true(lock.is_done && lock.err == SHOAL_EBUSY);
    assert_int_equal(locks_list(leases, 2), 1);
    assert_int_equal(leases[0].owner.token, 1);
    assert_int_equal(leases[0].mode, SH_LEASE_READER);
    log_steps();
    assert_filled_answered();
}

/* Who waits gets a lock at a moment when it can't be told: it hears that, and the next in line gets the lock, when it can be told. */
static void test_lock_waited_for(void **state)
{
    (void)state;
    static struct ask first, second, unlock; /* a failed test leaves them to the teardown */
    struct sh_lease leases[2];
    shoal_cid cid = chunk_make(SMALL);
    disk_catches_up();
    lock_send(RIG_PEER, &first, cid, 1, SH_LEASE_WRITER, 0);
    assert_said(&first, SHOAL_OK);
    lock_send(RIG_CLIENT, &second, cid, 2, SH_LEASE_WRITER, RIG_SILENCE_NS / 1000);
    assert_false(second.is_done);
    gate_hold(&test.gate, true);
    fill(cid);
    unlock_send(RIG_PEER, &unlock, cid, 1);
    assert_said(&unlock, SHOAL_OK);
    assert_true(second.is_done && second.err == SHOAL_EBUSY);
    assert_int_equal(locks_list(leases, 2), 0);
    log_steps();
    assert_filled_answered();
    lock_send(RIG_CLIENT, &second, cid, 2, SH_LEASE_WRITER, 0);
    assert_said(&second, SHOAL_OK);
}

/* An answer that is kept ready for a lock and is not needed takes no room. */
static void test_lock_waits(void **state)
{
    (void)state;
    static struct ask first, second, write; /* a failed test leaves them to the teardown */
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    shoal_cid cid = chunk_make(SMALL);
    disk_catches_up();
    lock_send(RIG_PEER, &first, cid, 1, SH_LEASE_WRITER, 0);
    assert_said(&first, SHOAL_OK);
    gate_hold(&test.gate, true);
    ask_send(&write, SH_CHUNKS_PUT, payload_of(&put, cid));
    lock_send(RIG_CLIENT, &second, cid, 2, SH_LEASE_WRITER, 0);
    assert_said(&second, SHOAL_EBUSY);
    lock_send(RIG_CLIENT, &second, cid, 2, SH_LEASE_WRITER, RIG_SILENCE_NS / 1000);
    assert_false(second.is_done);
    assert_int_equal(sh_helds_count(sh_chunks_helds(test.rig.chunks)), 1);
    unlock_send(RIG_PEER, &first, cid, 1);
    assert_said(&first, SHOAL_OK);
    assert_false(second.is_done); /* it has the lock, of a chunk that is not logged as it is */
    log_steps();
    assert_said(&second, SHOAL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unlogged, setup_unlogged, teardown),
        cmocka_unit_test_setup_teardown(test_lock_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock_asked_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock_waits, setup, teardown),
    };
    return cmocka_run_group_tests_name("refused levels", tests, NULL, NULL);
}
