/* The rules of application locks, one by one; limits, damage, and memory that goes when locks go.
 * leases_model_test.c makes random calls, leases_stress_test.c makes them on several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "store/leases_int.h"

#define READER SH_LEASE_READER
#define WRITER SH_LEASE_WRITER
#define LEASE 100

static struct sh_leases *leases;
static uint64_t deadline;

static const struct sh_lease_owner a = {1, {1}}, b = {2, {1}}, c = {1, {2}}, d = {2, {2}};

static struct sh_leases *made(uint32_t locks_max, uint32_t waiters_max)
{
    struct sh_leases *table = NULL;
    struct sh_leases_config config = {
        .locks_max = locks_max, .waiters_max = waiters_max, .seed = 7};
    assert_int_equal(sh_leases_create(&config, &table), SHOAL_OK);
    return table;
}

static int setup(void **state)
{
    (void)state;
    leases = made(1000, 100);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_leases_check(leases);
    sh_leases_destroy(leases);
    return 0;
}

/* Asks for chunk cid at time now; waits until `until` if that is later. The cookie is the owner's
 * node ID and token, as in 12 for node 1, token 2. */
static enum shoal_err ask(uint64_t cid, struct sh_lease_owner owner, enum sh_lease_mode mode,
                          uint64_t now, uint64_t until)
{
    struct sh_lease_wish wish = {.cid = {cid},
                                 .owner = owner,
                                 .mode = mode,
                                 .lease_ns = LEASE,
                                 .wait_until_ns = until,
                                 .cookie = owner.nid.v * 10u + owner.token};
    deadline = 0;
    return sh_leases_acquire(leases, &wish, now, &deadline);
}

static enum shoal_err release(uint64_t cid, struct sh_lease_owner owner, uint64_t now)
{
    return sh_leases_release(leases, (shoal_cid){cid}, owner, now);
}

static enum shoal_err swap(uint64_t cid, struct sh_lease_owner owner, enum sh_lease_mode mode,
                           uint64_t now)
{
    deadline = 0;
    return sh_leases_swap(leases, (shoal_cid){cid}, owner, mode, LEASE, now, &deadline);
}

static bool holds(uint64_t cid, struct sh_lease_owner owner, enum sh_lease_mode mode, uint64_t now)
{
    return sh_leases_holds(leases, (shoal_cid){cid}, owner, mode, now);
}

/* The next end must be this one. */
static void ended(struct sh_lease_owner owner, enum shoal_err err, uint64_t deadline_ns)
{
    struct sh_lease_end end;
    assert_int_equal(sh_leases_ended(leases, &end, 1), 1);
    assert_int_equal(end.cookie, owner.nid.v * 10u + owner.token);
    assert_int_equal(end.owner.token, owner.token);
    assert_int_equal(end.owner.nid.v, owner.nid.v);
    assert_int_equal(end.err, err);
    assert_int_equal(end.deadline_ns, deadline_ns);
}

static void none_ended(void)
{
    struct sh_lease_end end;
    assert_int_equal(sh_leases_ended_count(leases), 0);
    assert_int_equal(sh_leases_ended(leases, &end, 1), 0);
}

static struct sh_leases_status status(void)
{
    struct sh_leases_status now;
    sh_leases_status_get(leases, &now);
    return now;
}

/* --- The rules ---------------------------------------------------------------------------------
 */

static void test_arguments(void **state)
{
    (void)state;
    struct sh_leases *none = NULL;
    const struct sh_leases_config bad[] = {{.locks_max = 0},
                                           {.locks_max = 5, .waiters_max = 6},
                                           {.locks_max = SH_LEASES_LOCKS_MAX + 1}};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(sh_leases_create(&bad[i], &none), SHOAL_EINVAL);
    sh_leases_destroy(none);
    struct sh_lease_wish wish = {.cid = {1}, .owner = a, .mode = READER, .lease_ns = 1};
    struct sh_lease_wish wrong = wish;
    wrong.cid.v = 0;
    assert_int_equal(sh_leases_acquire(leases, &wrong, 0, &deadline), SHOAL_EINVAL);
    wrong = wish;
    wrong.lease_ns = 0;
    assert_int_equal(sh_leases_acquire(leases, &wrong, 0, &deadline), SHOAL_EINVAL);
    wrong.lease_ns = SH_LEASE_NS_MAX + 1;
    assert_int_equal(sh_leases_acquire(leases, &wrong, 0, &deadline), SHOAL_EINVAL);
    wrong = wish;
    wrong.mode = (enum sh_lease_mode)3;
    assert_int_equal(sh_leases_acquire(leases, &wrong, 0, &deadline), SHOAL_EINVAL);
    assert_int_equal(sh_leases_acquire(leases, &wish, 0, &deadline), SHOAL_OK);
    assert_int_equal(sh_leases_swap(leases, wish.cid, a, (enum sh_lease_mode)0, 1, 0, &deadline),
                     SHOAL_EINVAL);
    assert_int_equal(sh_leases_extend(leases, wish.cid, a, 0, 0, &deadline), SHOAL_EINVAL);
}

/* Nothing is locked: everything says so. */
static void test_empty(void **state)
{
    (void)state;
    struct sh_lease lease;
    struct sh_lease_owner any = {0};
    shoal_cid cid = {1};
    assert_int_equal(release(1, a, 0), SHOAL_ENOLOCK);
    assert_int_equal(swap(1, a, WRITER, 0), SHOAL_ENOLOCK);
    assert_int_equal(sh_leases_extend(leases, cid, a, 1, 0, &deadline), SHOAL_ENOLOCK);
    assert_int_equal(sh_leases_cancel(leases, cid, a, 0), SHOAL_ENOLOCK);
    assert_int_equal(sh_leases_find(leases, cid, a, &lease), SHOAL_ENOLOCK);
    assert_false(holds(1, a, READER, 0));
    assert_int_equal(sh_leases_due_ns(leases), SH_LEASES_NEVER);
    assert_int_equal(sh_leases_expire(leases, UINT64_MAX - 1, 10), 0);
    assert_int_equal(sh_leases_owner_drop(leases, a, 0, 10), 0);
    assert_int_equal(sh_leases_node_drop(leases, a.nid, 0, 10), 0);
    assert_int_equal(sh_leases_chunk_drop(leases, cid), 0);
    assert_int_equal(sh_leases_list(leases, SHOAL_CID_NONE, any, &lease, 1), 0);
    none_ended();
    assert_int_equal(status().bytes, 0);
}

static void test_modes(void **state)
{
    (void)state;
    assert_int_equal(ask(1, a, READER, 0, 0), SHOAL_OK);
    assert_int_equal(deadline, LEASE);
    assert_int_equal(ask(1, c, READER, 5, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 5, 0), SHOAL_EBUSY);
    assert_int_equal(ask(2, b, WRITER, 5, 0), SHOAL_OK);
    assert_int_equal(ask(2, a, READER, 5, 0), SHOAL_EBUSY);
    assert_int_equal(ask(2, a, WRITER, 5, 5), SHOAL_EBUSY);
    assert_true(holds(1, a, READER, LEASE - 1));
    assert_false(holds(1, a, READER, LEASE));
    assert_false(holds(1, a, WRITER, 0));
    assert_true(holds(2, b, READER, 0) && holds(2, b, WRITER, 0));
    /* Another token, another node: another owner. */
    assert_int_equal(release(2, a, 6), SHOAL_ENOLOCK);
    assert_int_equal(release(2, d, 6), SHOAL_ENOLOCK);
    assert_int_equal(release(2, b, 6), SHOAL_OK);
    assert_int_equal(release(2, b, 6), SHOAL_ENOLOCK);
    assert_int_equal(ask(2, a, WRITER, 6, 0), SHOAL_OK);
    struct sh_leases_status now = status();
    assert_int_equal(now.readers, 2);
    assert_int_equal(now.writers, 1);
    assert_int_equal(now.chunks, 2);
    assert_int_equal(now.refused, 3);
}

static void test_order_of_arrival(void **state)
{
    (void)state;
    const struct sh_lease_owner e = {5, {3}};
    assert_int_equal(ask(1, a, READER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 0, 500), SHOAL_EAGAIN);
    /* A reader could have it beside a, but a writer waits. */
    assert_int_equal(ask(1, c, READER, 0, 0), SHOAL_EBUSY);
    assert_int_equal(ask(1, c, READER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, d, READER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, e, WRITER, 0, 500), SHOAL_EAGAIN);
    none_ended();
    assert_int_equal(release(1, a, 10), SHOAL_OK);
    ended(b, SHOAL_OK, 10 + LEASE);
    none_ended();
    assert_true(holds(1, b, WRITER, 10));
    assert_int_equal(release(1, b, 20), SHOAL_OK);
    /* Both readers at the head together, the writer behind them not. */
    ended(c, SHOAL_OK, 20 + LEASE);
    ended(d, SHOAL_OK, 20 + LEASE);
    none_ended();
    assert_int_equal(release(1, d, 30), SHOAL_OK);
    none_ended();
    assert_int_equal(release(1, c, 31), SHOAL_OK);
    ended(e, SHOAL_OK, 31 + LEASE);
    assert_int_equal(status().waiters, 0);
}

/* A writer in the queue that goes lets the readers behind it in. */
static void test_cancel(void **state)
{
    (void)state;
    assert_int_equal(ask(1, a, READER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, c, READER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(sh_leases_cancel(leases, (shoal_cid){1}, a, 5), SHOAL_ENOLOCK);
    assert_int_equal(release(1, b, 5), SHOAL_ENOLOCK);
    assert_int_equal(sh_leases_cancel(leases, (shoal_cid){1}, b, 5), SHOAL_OK);
    ended(b, SHOAL_ECANCELED, 0);
    ended(c, SHOAL_OK, 5 + LEASE);
    assert_int_equal(sh_leases_cancel(leases, (shoal_cid){1}, c, 5), SHOAL_ENOLOCK);
    /* Who quits has neither a wait nor a lock afterwards. */
    assert_int_equal(ask(1, d, WRITER, 6, 500), SHOAL_EAGAIN);
    assert_int_equal(sh_leases_quit(leases, (shoal_cid){1}, d, 7), SHOAL_OK);
    ended(d, SHOAL_ECANCELED, 0);
    assert_int_equal(sh_leases_quit(leases, (shoal_cid){1}, a, 7), SHOAL_OK);
    assert_int_equal(sh_leases_quit(leases, (shoal_cid){1}, a, 7), SHOAL_ENOLOCK);
    assert_int_equal(status().readers, 1); /* c */
}

static void test_asking_again(void **state)
{
    (void)state;
    /* Held: extends, never shortens; for a writer a reader's wish is the same. */
    assert_int_equal(ask(1, a, WRITER, 50, 0), SHOAL_OK);
    assert_int_equal(ask(1, a, READER, 60, 0), SHOAL_OK);
    assert_int_equal(deadline, 60 + LEASE);
    assert_true(holds(1, a, WRITER, 60));
    assert_int_equal(ask(1, a, WRITER, 40, 0), SHOAL_OK);
    assert_int_equal(deadline, 60 + LEASE);
    /* Waiting: the place stays, the cookie is another's. */
    assert_int_equal(ask(1, b, READER, 60, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, c, WRITER, 60, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, b, READER, 61, 600), SHOAL_EAGAIN);
    ended(b, SHOAL_ECANCELED, 0);
    /* In the other mode it is a new wish, at the end. */
    assert_int_equal(ask(1, b, WRITER, 62, 600), SHOAL_EAGAIN);
    ended(b, SHOAL_ECANCELED, 0);
    /* Not to wait: it waits no more. */
    assert_int_equal(ask(1, b, WRITER, 63, 0), SHOAL_EBUSY);
    ended(b, SHOAL_ECANCELED, 0);
    assert_int_equal(release(1, a, 64), SHOAL_OK);
    ended(c, SHOAL_OK, 64 + LEASE);
    none_ended();
    /* A reader who waits behind a writer, and asks to go in front of it at once: is refused. But
     * the only one that waits may find that its chunk can be shared. */
    assert_int_equal(swap(1, c, READER, 65), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 65, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, b, READER, 66, 0), SHOAL_OK);
    ended(b, SHOAL_ECANCELED, 0);
    /* Two readers who want to write would wait for each other. */
    assert_int_equal(ask(1, b, WRITER, 67, 500), SHOAL_EBUSY);
    assert_int_equal(release(1, c, 68), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 69, 500), SHOAL_OK);
    assert_true(holds(1, b, WRITER, 69));
}

static void test_swap(void **state)
{
    (void)state;
    assert_int_equal(ask(1, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, READER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, c, WRITER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, d, READER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(swap(1, a, READER, 10), SHOAL_OK);
    assert_int_equal(deadline, 10 + LEASE);
    ended(b, SHOAL_OK, 10 + LEASE);
    none_ended();
    assert_int_equal(swap(1, a, WRITER, 11), SHOAL_EBUSY);
    assert_int_equal(swap(1, c, WRITER, 11), SHOAL_ENOLOCK);
    assert_int_equal(swap(1, a, READER, 12), SHOAL_OK);
    assert_int_equal(deadline, 12 + LEASE);
    assert_int_equal(release(1, b, 13), SHOAL_OK);
    /* The only one, in spite of the queue. */
    assert_int_equal(swap(1, a, WRITER, 14), SHOAL_OK);
    none_ended();
    assert_int_equal(status().writers, 1);
    assert_int_equal(release(1, a, 15), SHOAL_OK);
    ended(c, SHOAL_OK, 15 + LEASE);
}

/* --- Time --------------------------------------------------------------------------------------
 */

static void test_expiry(void **state)
{
    (void)state;
    assert_int_equal(ask(1, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(2, a, WRITER, 20, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 20, 90), SHOAL_EAGAIN);
    assert_int_equal(ask(1, c, WRITER, 20, 100), SHOAL_EAGAIN);
    assert_int_equal(ask(1, d, WRITER, 20, SH_LEASES_NEVER), SHOAL_EAGAIN);
    assert_int_equal(sh_leases_due_ns(leases), 90);
    assert_int_equal(sh_leases_expire(leases, 89, 10), 0);
    assert_int_equal(sh_leases_expire(leases, 90, 10), 1);
    ended(b, SHOAL_ETIMEOUT, 0);
    assert_int_equal(sh_leases_due_ns(leases), 100);
    /* c gave up at the very time at which a's lock ends, so that d gets it. */
    assert_int_equal(sh_leases_expire(leases, 100, 10), 1);
    ended(c, SHOAL_ETIMEOUT, 0);
    ended(d, SHOAL_OK, 200);
    assert_int_equal(release(1, a, 100), SHOAL_ENOLOCK);
    /* Past its deadline, but nobody took it away: it can still be extended. */
    assert_false(holds(2, a, WRITER, 120));
    assert_int_equal(sh_leases_extend(leases, (shoal_cid){2}, a, 50, 130, &deadline), SHOAL_OK);
    assert_int_equal(deadline, 180);
    assert_int_equal(sh_leases_due_ns(leases), 180);
    assert_int_equal(sh_leases_expire(leases, 1000, 1), 1);
    assert_int_equal(sh_leases_expire(leases, 1000, 1), 1);
    assert_int_equal(sh_leases_expire(leases, 1000, 1), 0);
    struct sh_leases_status now = status();
    assert_int_equal(now.expired, 3);
    assert_int_equal(now.timed_out, 2);
    assert_int_equal(now.chunks, 0);
}

/* A clock near its end does not wrap a deadline around. */
static void test_late_clock(void **state)
{
    (void)state;
    const uint64_t late = UINT64_MAX - 5;
    assert_int_equal(ask(1, a, WRITER, late, 0), SHOAL_OK);
    assert_int_equal(deadline, SH_LEASES_NEVER - 1);
    assert_true(holds(1, a, WRITER, late));
}

/* --- Many at once ------------------------------------------------------------------------------
 */

static void test_drops(void **state)
{
    (void)state;
    for (uint64_t cid = 1; cid <= 10; cid++) {
        assert_int_equal(ask(cid, a, WRITER, 0, 0), SHOAL_OK);
        assert_int_equal(ask(cid, c, READER, 0, 500), SHOAL_EAGAIN);
        assert_int_equal(ask(cid + 100, b, READER, 0, 0), SHOAL_OK);
    }
    assert_int_equal(ask(101, a, WRITER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(sh_leases_owner_drop(leases, a, 10, 4), 4);
    for (unsigned i = 0; i < 4; i++)
        ended(c, SHOAL_OK, 10 + LEASE);
    assert_int_equal(sh_leases_owner_drop(leases, a, 10, 100), 7);
    for (unsigned i = 0; i < 6; i++)
        ended(c, SHOAL_OK, 10 + LEASE);
    ended(a, SHOAL_ECANCELED, 0);
    none_ended();
    assert_int_equal(ask(110, d, WRITER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(sh_leases_node_drop(leases, a.nid, 20, 100), 10);
    ended(d, SHOAL_OK, 20 + LEASE);
    assert_int_equal(status().readers, 10);
    assert_int_equal(status().writers, 1);
    assert_int_equal(sh_leases_node_drop(leases, c.nid, 20, 11), 11);
    assert_int_equal(status().chunks, 0);
}

static void test_chunk_drop(void **state)
{
    (void)state;
    assert_int_equal(ask(1, a, READER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, READER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, d, WRITER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, c, READER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(2, c, READER, 0, 0), SHOAL_OK);
    assert_int_equal(sh_leases_chunk_drop(leases, (shoal_cid){1}), 4);
    ended(d, SHOAL_ENOCHUNK, 0);
    ended(c, SHOAL_ENOCHUNK, 0);
    none_ended();
    assert_int_equal(status().readers, 1);
    assert_int_equal(release(1, a, 0), SHOAL_ENOLOCK);
    assert_int_equal(sh_leases_chunk_drop(leases, (shoal_cid){1}), 0);
}

static void test_limits(void **state)
{
    (void)state;
    sh_leases_destroy(leases);
    leases = made(4, 2);
    assert_int_equal(ask(1, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, c, WRITER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(1, d, WRITER, 0, 500), SHOAL_ELIMIT);
    /* Asking again needs a place for the end of the old cookie. */
    assert_int_equal(ask(1, b, WRITER, 0, 600), SHOAL_ELIMIT);
    assert_int_equal(ask(2, d, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(3, d, WRITER, 0, 0), SHOAL_ELIMIT);
    assert_int_equal(ask(2, a, WRITER, 0, 500), SHOAL_ELIMIT);
    assert_int_equal(ask(2, d, WRITER, 0, 0), SHOAL_OK);
    /* b's end was not drained yet: it keeps its place. */
    assert_int_equal(release(1, a, 1), SHOAL_OK);
    assert_int_equal(ask(1, d, WRITER, 1, 500), SHOAL_ELIMIT);
    ended(b, SHOAL_OK, 1 + LEASE);
    assert_int_equal(ask(1, d, WRITER, 1, 500), SHOAL_EAGAIN);
    assert_int_equal(status().refused, 5);
    sh_leases_destroy(leases);
    /* Nobody may wait. */
    leases = made(1, 0);
    assert_int_equal(ask(1, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, WRITER, 0, 500), SHOAL_ELIMIT);
    assert_int_equal(ask(1, b, WRITER, 0, 0), SHOAL_EBUSY);
}

/* --- Moving ------------------------------------------------------------------------------------
 */

static size_t export(uint64_t first, uint64_t last, uint64_t now, uint8_t *into, size_t room)
{
    size_t size = 0;
    assert_int_equal(
        sh_leases_export(leases, (shoal_cid){first}, (shoal_cid){last}, now, into, room, &size),
        SHOAL_OK);
    return size;
}

static enum shoal_err import(const uint8_t *bytes, size_t size, uint64_t now)
{
    return sh_leases_import(leases, sh_bytes_make(bytes, size), now);
}

static void test_move(void **state)
{
    (void)state;
    uint8_t page[2][SH_LEASES_HEAD_BYTES + 3 * SH_LEASES_LOCK_BYTES];
    assert_int_equal(ask(9, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(10, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(10, c, READER, 0, 500), SHOAL_EAGAIN);
    assert_int_equal(ask(11, a, READER, 10, 0), SHOAL_OK);
    assert_int_equal(ask(11, c, READER, 20, 0), SHOAL_OK);
    assert_int_equal(ask(11, b, READER, 30, 0), SHOAL_OK);
    assert_int_equal(ask(12, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(export(10, 11, 105, page[0], sizeof page[0]), sizeof page[0]);
    ended(c, SHOAL_ENOTOWNER, 0);
    assert_int_equal(export(10, 11, 105, page[1], sizeof page[1]),
                     SH_LEASES_HEAD_BYTES + SH_LEASES_LOCK_BYTES);
    uint8_t rest[SH_LEASES_HEAD_BYTES + SH_LEASES_LOCK_BYTES];
    assert_int_equal(export(10, 11, 105, rest, sizeof rest), SH_LEASES_HEAD_BYTES);
    assert_int_equal(release(10, a, 105), SHOAL_ENOLOCK);
    assert_int_equal(status().writers, 2);
    assert_int_equal(status().readers, 0);
    /* Another node, whose clock says 5000, and where somebody asked already. */
    sh_leases_check(leases);
    sh_leases_destroy(leases);
    leases = made(10, 10);
    assert_int_equal(ask(11, d, READER, 5000, 0), SHOAL_OK);
    assert_int_equal(ask(11, b, WRITER, 5000, 6000), SHOAL_EAGAIN);
    assert_int_equal(ask(11, c, READER, 5000, 6000), SHOAL_EAGAIN);
    assert_int_equal(import(page[0], sizeof page[0], 5000), SHOAL_OK);
    /* b, who wanted to write, has its reader's lock now: it was in c's way. */
    ended(b, SHOAL_ECANCELED, 0);
    ended(c, SHOAL_OK, 5000 + LEASE);
    for (unsigned twice = 0; twice < 2; twice++)
        assert_int_equal(import(page[1], SH_LEASES_HEAD_BYTES + SH_LEASES_LOCK_BYTES, 5000),
                         SHOAL_OK);
    none_ended();
    struct sh_lease lease;
    assert_int_equal(sh_leases_find(leases, (shoal_cid){10}, a, &lease), SHOAL_OK);
    assert_int_equal(lease.deadline_ns, 5000);
    assert_int_equal(lease.mode, WRITER);
    assert_int_equal(sh_leases_find(leases, (shoal_cid){11}, b, &lease), SHOAL_OK);
    assert_int_equal(lease.deadline_ns, 5025);
    assert_int_equal(lease.holders, 4);
    assert_int_equal(lease.waiters, 0);
    assert_int_equal(import(rest, SH_LEASES_HEAD_BYTES, 5000), SHOAL_OK);
}

static void test_import_refused(void **state)
{
    (void)state;
    uint8_t bytes[SH_LEASES_HEAD_BYTES + 4 * SH_LEASES_LOCK_BYTES], bad[sizeof bytes];
    assert_int_equal(ask(1, a, READER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(1, b, READER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(2, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(3, a, WRITER, 0, 0), SHOAL_OK);
    assert_int_equal(export(1, 9, 0, bytes, sizeof bytes), sizeof bytes);
    for (size_t size = 0; size < sizeof bytes; size++)
        assert_int_equal(import(bytes, size, 0), SHOAL_EPROTO);
    static const struct {
        size_t at;
        uint8_t value;
        enum shoal_err err;
    } damage[] = {
        {0, 2, SHOAL_EVERSION}, /* version */
        {2, 1, SHOAL_EPROTO},   /* head, zero */
        {4, 5, SHOAL_EPROTO},   /* count */
        {8, 0, SHOAL_EPROTO},   /* chunk ID 0 */
        {8, 2, SHOAL_EPROTO},   /* out of order */
        {16, 2, SHOAL_EPROTO},  /* the same owner twice */
        {26, 0, SHOAL_EPROTO},  /* no mode */
        {26, 3, SHOAL_EPROTO},  /* no mode */
        {26, 2, SHOAL_EPROTO},  /* a writer beside a reader */
        {54, 2, SHOAL_EPROTO},  /* a reader beside a writer */
        {27, 1, SHOAL_EPROTO},  /* lock, zero */
        {35, 1, SHOAL_EPROTO},  /* too long a lease */
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        memcpy(bad, bytes, sizeof bytes);
        bad[damage[i].at] = damage[i].value;
        assert_int_equal(import(bad, sizeof bad, 0), damage[i].err);
    }
    assert_int_equal(status().chunks, 0);
    /* The third of them is held by another: none comes in. */
    assert_int_equal(ask(2, c, READER, 0, 0), SHOAL_OK);
    assert_int_equal(import(bytes, sizeof bytes, 0), SHOAL_EBUSY);
    assert_int_equal(status().chunks, 1);
    assert_int_equal(release(2, c, 0), SHOAL_OK);
    sh_leases_destroy(leases);
    leases = made(3, 0);
    assert_int_equal(import(bytes, sizeof bytes, 0), SHOAL_ELIMIT);
    assert_int_equal(status().chunks, 0);
    size_t size;
    assert_int_equal(
        sh_leases_export(leases, (shoal_cid){2}, (shoal_cid){1}, 0, bytes, sizeof bytes, &size),
        SHOAL_EINVAL);
    assert_int_equal(sh_leases_export(leases, (shoal_cid){1}, (shoal_cid){1}, 0, bytes, 35, &size),
                     SHOAL_EINVAL);
}

/* --- Looking and memory ------------------------------------------------------------------------
 */

static void test_list(void **state)
{
    (void)state;
    struct sh_lease_owner highest = {UINT64_MAX, {UINT16_MAX}}, high = {UINT64_MAX, {3}};
    assert_int_equal(ask(5, highest, READER, 0, 0), SHOAL_OK);
    assert_int_equal(ask(5, a, WRITER, 0, SH_LEASES_NEVER), SHOAL_EAGAIN);
    assert_int_equal(ask(5, high, READER, 0, 300), SHOAL_EAGAIN);
    assert_int_equal(ask(UINT64_MAX, highest, WRITER, 0, 0), SHOAL_OK);
    struct sh_lease rows[4];
    shoal_cid from = {0};
    struct sh_lease_owner owner = {0};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(sh_leases_list(leases, from, owner, &rows[i], 1), 1);
        assert_int_equal(sh_lease_after(&rows[i], &from, &owner), i < 3);
    }
    assert_true(rows[0].waiting && rows[1].waiting && !rows[2].waiting && !rows[3].waiting);
    assert_int_equal(rows[0].owner.token, a.token);
    assert_int_equal(rows[0].deadline_ns, SH_LEASES_NEVER);
    assert_int_equal(rows[1].owner.nid.v, 3);
    assert_int_equal(rows[2].holders, 1);
    assert_int_equal(rows[2].waiters, 2);
    assert_int_equal(rows[3].cid.v, UINT64_MAX);
    assert_int_equal(sh_leases_list(leases, (shoal_cid){6}, a, rows, 4), 1);
}

/* One piece of each kind may stay. */
static uint64_t bytes_rest(void)
{
    return SH_LEASE_SLOTS_OF_PIECE * (sizeof(struct sh_lease_record) +
                                      sizeof(struct sh_lease_chunk) + sizeof(struct sh_lease_told));
}

/* Of what the table reserved, the bytes that the kernel backs. */
static uint64_t resident(const struct sh_lease_slots *slots)
{
    size_t pages = slots->vm.bytes / SH_PAGE_BYTES, count = 0;
    unsigned char *in = calloc(pages, 1);
    assert_non_null(in);
    assert_int_equal(mincore(slots->vm.at, slots->vm.bytes, in), 0);
    for (size_t i = 0; i < pages; i++)
        count += in[i] & 1;
    free(in);
    return count * SH_PAGE_BYTES;
}

static void test_memory(void **state)
{
    (void)state;
    const uint32_t count = 100000, step = 77773; /* a prime: another order than they came in */
    sh_leases_destroy(leases);
    leases = made(2 * count, count);
    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(ask(1 + i, a, WRITER, i, 0), SHOAL_OK);
        /* What docs/store.md says that a lock costs. */
        uint64_t full = status().bytes;
        assert_true(full >= (uint64_t)count * 100);
        assert_true(full <= (uint64_t)count * 100 + bytes_rest());
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(ask(1 + i, b, WRITER, i, SH_LEASES_NEVER), SHOAL_EAGAIN);
        sh_leases_check(leases);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(release(1 + (uint64_t)i * step % count, a, 0), SHOAL_OK);
        struct sh_lease_end ends[64];
        size_t got, all = 0;
        while ((got = sh_leases_ended(leases, ends, 64)) != 0)
            all += got;
        assert_int_equal(all, count);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(release(1 + (uint64_t)i * step % count, b, 0), SHOAL_OK);
        assert_int_equal(status().chunks, 0);
        assert_true(status().bytes <= bytes_rest());
        assert_true(resident(&leases->records) + resident(&leases->chunks) +
                        resident(&leases->ends) <=
                    bytes_rest());
    }
    /* After the rush the pages that are left in use are few: low pieces are filled first. */
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(ask(1 + i, a, READER, 0, 0), SHOAL_OK);
    for (uint32_t i = 1000; i < count; i++)
        assert_int_equal(release(1 + i, a, 0), SHOAL_OK);
    assert_true(status().bytes <= 2 * bytes_rest());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(test_modes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order_of_arrival, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asking_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_swap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expiry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drops, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chunk_drop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_move, setup, teardown),
        cmocka_unit_test_setup_teardown(test_import_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
