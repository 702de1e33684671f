/* Two peers of which at each allocation one fails once, or memory is short for a while, while clients call
 * for chunks and a migration moves all of them: every call is answered, with an error where it was not
 * done; once memory is back, the migration can be had, and what was acknowledged is there, once.
 *
 * SHOAL_TEST_SEED: which seed. */
#include "tests/alloc_int.h"

#include "tests/migrate_rig_int.h"
#include "tests/seed_int.h"

#define A 1 /* hosts: 0 is the superpeer, A has all chunks */
#define B 2
#define BIG 600000u
#define MEDIUM 100000u
#define OF_CLIENT 2000

static struct world world;
static struct sh_once_numbers numbers;
static size_t due, times_failing;
static uint8_t payload[BIG + 64];

/* --- Calls ----------------------------------------------------------------------------------- */

struct call {
    struct sh_request request;
    bool is_done;
    enum shoal_err err;
    uint64_t first; /* of the answer's bytes */
    size_t size;
};

static void on_called(struct sh_request *request, enum shoal_err err, struct sh_reader *answer)
{
    struct call *call = request->arg;
    call->is_done = true;
    call->err = err;
    if (err)
        return;
    call->size = sh_reader_left(answer);
    for (unsigned i = 0; i < 8 && i < call->size; i++)
        call->first |= (uint64_t)sh_get8(answer) << 8 * i;
}

static bool is_called(void *arg)
{
    (void)watch(&world);
    return ((struct call *)arg)->is_done;
}

static struct host *client(void)
{
    return &world.hosts[world.superpeers + world.peers];
}

static shoal_nid nid_of(unsigned host)
{
    return sh_msg_nid(world.hosts[host].msg);
}

/* Whether nobody can tell if it was done. */
static bool is_unclear(enum shoal_err err)
{
    return err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT;
}

/* One try; without memory the client itself may not get it off. It must be over in the end. */
static struct call call_once(unsigned host, sh_msg_type type, size_t size)
{
    static struct call call;
    struct sh_out out;
    for (unsigned i = 0; i < 100; i++) {
        call = (struct call){.request = {.done = on_called, .arg = &call, .timeout_ns = 5 * S}};
        call.err = sh_msg_request(client()->msg, nid_of(host), type, size, &call.request, &out);
        if (call.err != SHOAL_EAGAIN)
            break;
        run_for(&world, 10 * MS); /* there is no room yet, or a large message waits for its turn */
    }
    if (call.err)
        return call;
    sh_put_raw(&out.w, sh_bytes_make(payload, size));
    sh_msg_end(client()->msg, &out);
    if (!sh_world_run_until(world.sim, is_called, &call, sh_world_now(world.sim) + 10 * S))
        fail_msg("allocation %zu: no answer, not even that it took too long", due);
    return call;
}

/* Errors after which a call may have been done, or was not for reasons that pass. ELIMIT: the other side
 * has no memory for the connection. */
static bool may_pass(enum shoal_err err)
{
    return err == SHOAL_ENOMEM || err == SHOAL_EBUSY || err == SHOAL_EUNREACHABLE ||
           err == SHOAL_EFENCED || err == SHOAL_ENOTOWNER || err == SHOAL_ELIMIT || is_unclear(err);
}

/* The same, where only such errors are allowed. */
static struct call call_any(unsigned host, sh_msg_type type, size_t size)
{
    struct call call = call_once(host, type, size);
    /* Where one allocation fails, there is memory to say so. */
    if (call.err && (!may_pass(call.err) || (call.err == SHOAL_ETIMEOUT && times_failing == 1)))
        fail_msg("allocation %zu: type %x ended with %s", due, type, shoal_err_name(call.err));
    return call;
}

static struct sh_writer payload_begin(void)
{
    return sh_writer_make(payload, sizeof payload);
}

/* The prefix of a call that is done once, under a number of its own. */
static uint64_t once_put(struct sh_writer *w)
{
    uint64_t number = sh_once_number(&numbers);
    sh_once_id_put(w, &(struct sh_once_id){OF_CLIENT, number, numbers.finished});
    return number;
}

static size_t size_of(const struct sh_writer *w)
{
    assert_true(sh_writer_ok(w));
    return (size_t)(w->at - payload);
}

/* --- The test's own chunk -------------------------------------------------------------------- */

/* What it may have: the bytes of one fill, or of another where a call has no clear end. */
static shoal_cid big, medium;
static uint8_t fills[2];
static uint64_t
    put_number; /* of the last write that was acknowledged, whose answer nobody has confirmed; 0: none */

static void big_make(void)
{
    struct host *a = &world.hosts[A];
    sh_lid lid;
    assert_int_equal(sh_store_new_many(a->store, MEDIUM, 1, &lid), SHOAL_OK);
    medium = shoal_cid_make(nid_of(A), lid.v);
    assert_int_equal(sh_store_new_many(a->store, BIG, 1, &lid), SHOAL_OK);
    big = shoal_cid_make(nid_of(A), lid.v);
    fills[0] = fills[1] = 1;
    memset(payload, 1, BIG);
    assert_int_equal(sh_store_put(a->store, lid, sh_bytes_make(payload, BIG)), SHOAL_OK);
}

/* Writes all of it, in pieces. */
static void big_put(unsigned host, bool once, uint8_t fill)
{
    struct sh_writer w = payload_begin();
    uint64_t number = once ? once_put(&w) : 0;
    sh_put64(&w, big.v);
    memset(sh_writer_take(&w, BIG), fill, BIG);
    struct call call = call_any(host, once ? SH_CHUNKS_PUT_ONCE : SH_CHUNKS_PUT, size_of(&w));
    if (number)
        sh_once_finish(&numbers, number);
    put_number = call.err ? 0 : number;
    if (!call.err)
        fills[0] = fills[1] = fill;
    else if (is_unclear(call.err))
        fills[1] = fill;
}

static void big_check(void)
{
    static uint8_t bytes[BIG];
    for (unsigned k = A; k <= B; k++) {
        struct host *host = &world.hosts[k];
        uint32_t size;
        sh_lid lid;
        if (sh_holdings_look(sh_chunks_holdings(host->chunks), nid_of(k), big, false, &lid))
            continue;
        assert_int_equal(sh_store_get(host->store, lid, bytes, BIG, &size), SHOAL_OK);
        if (size != BIG || (bytes[0] != fills[0] && bytes[0] != fills[1]) ||
            memcmp(bytes, bytes + 1, BIG - 1) != 0)
            fail_msg("allocation %zu: the large chunk is not what was acknowledged", due);
        assert_int_equal(sh_store_release(host->store, lid), SHOAL_OK);
        return;
    }
    fail_msg("allocation %zu: nobody serves the large chunk", due);
}

/* What came of the last write is known where the chunk is now. */
static void outcome_check(void)
{
    if (!put_number)
        return;
    struct sh_writer w = payload_begin();
    sh_put64(&w, big.v);
    sh_put64(&w, OF_CLIENT);
    sh_put16(&w, nid_of(A).v);
    sh_put64(&w, put_number);
    struct call call = call_once(B, SH_MOVES_OUTCOME, size_of(&w));
    if (call.err || call.size != SH_MOVES_OUTCOME_ANSWER_BYTES || (call.first & 0xFFFFFF) != 1)
        fail_msg("allocation %zu: what came of a write has not moved with its chunk (%s)", due,
                 shoal_err_name(call.err));
}

/* --- The story ------------------------------------------------------------------------------- */

/* A chunk from its creation to its end, where no call fails. */
static void small_chunk(void)
{
    struct sh_writer w = payload_begin();
    uint64_t number = once_put(&w);
    sh_put32(&w, 40);
    struct call call = call_any(A, SH_CHUNKS_CREATE_ONCE, size_of(&w));
    sh_once_finish(&numbers, number);
    if (call.err)
        return; /* left over, maybe */
    uint64_t cid = call.first;
    w = payload_begin();
    number = once_put(&w);
    sh_put64(&w, cid);
    sh_put32(&w, 300);
    (void)call_any(A, SH_CHUNKS_RESIZE_ONCE, size_of(&w));
    sh_once_finish(&numbers, number);
    w = payload_begin();
    sh_put64(&w, cid);
    (void)call_any(A, SH_CHUNKS_REMOVE, size_of(&w));
}

static void several_at_once(void)
{
    struct sh_writer w = payload_begin();
    sh_put32(&w, 50);
    sh_put8(&w, 0);
    sh_put32(&w, 24);
    struct call call = call_any(A, SH_CHUNKS_CREATE, size_of(&w));
    uint64_t first = call.first;
    w = payload_begin();
    for (unsigned i = 0; i < 8; i++) {
        sh_put64(&w, world.cids[i].v);
        sh_put32(&w, 40000);
    }
    (void)call_any(A, SH_CHUNKS_MULTI_GET, size_of(&w));
    w = payload_begin();
    for (unsigned i = 0; i < 50; i++)
        sh_put64(&w, first + i);
    if (!call.err)
        (void)call_any(A, SH_CHUNKS_MULTI_REMOVE, size_of(&w));
}

static void looks(void)
{
    struct sh_writer w = payload_begin();
    sh_put64(&w, big.v);
    sh_put32(&w, BIG);
    struct call call = call_any(A, SH_CHUNKS_GET, size_of(&w));
    if (!call.err && call.size > SH_CHUNKS_GET_HEAD_BYTES)
        assert_int_equal(call.size, SH_CHUNKS_GET_HEAD_BYTES + BIG);
    w = payload_begin();
    sh_put64(&w, medium.v);
    sh_put32(&w, MEDIUM);
    (void)call_any(A, SH_CHUNKS_GET, size_of(&w));
    w = payload_begin();
    sh_put64(&w, 0);
    (void)call_any(A, SH_CHUNKS_RANGES, size_of(&w));
    (void)call_any(A, SH_CHUNKS_STATUS, 0);
}

/* Asks A to move its chunks from one on to B. */
static struct call move_ask(shoal_cid first)
{
    static uint64_t number;
    struct sh_writer w = payload_begin();
    sh_put64(&w, ++number);
    sh_put64(&w, first.v);
    sh_put64(&w, big.v);
    sh_put16(&w, nid_of(B).v);
    sh_put8(&w, 0);
    sh_put64(&w, 0);
    sh_put64(&w, 0);
    return call_once(A, SH_MOVES_MOVE, size_of(&w));
}

static bool all_moved(void)
{
    sh_lid lid;
    struct sh_holdings *holdings = sh_chunks_holdings(world.hosts[B].chunks);
    for (unsigned i = 0; i < CHUNKS; i++)
        if (sh_holdings_look(holdings, nid_of(B), world.cids[i], false, &lid))
            return false;
    return sh_holdings_look(holdings, nid_of(B), big, false, &lid) == SHOAL_OK;
}

/* Memory is back: clients come to an end, the migration can be had, and nothing is lost or left. */
static void all_is_well(void)
{
    world.ends = true;
    if (!sh_world_run_until(world.sim, clients_idle, &world, sh_world_now(world.sim) + 60 * S))
        fail_msg("allocation %zu: the clients do not come to an end", due);
    for (unsigned i = 0; i < 60 && !all_moved(); i++) {
        (void)move_ask(shoal_cid_make(nid_of(A), 1)); /* EBUSY: there is a job under way */
        run_for(&world, S);
    }
    if (!all_moved())
        fail_msg("allocation %zu: the chunks can't be moved", due);
    run_for(&world, 10 * S);
    big_check();
    outcome_check();
}

static bool run_story(void)
{
    world_open(&world, 1, 2, true);
    put_number = 0;
    numbers = (struct sh_once_numbers){0};
    big_make();
    alloc_fail_at(due, times_failing);
    small_chunk();
    several_at_once();
    big_put(A, false, 2);
    big_put(A, true, 3);
    looks();
    (void)move_ask(big); /* with the only result that is asked for below */
    run_for(&world, S);
    (void)move_ask(shoal_cid_make(nid_of(A), 1));
    run_for(&world, S);
    size_t failed = alloc_fail_end();
    all_is_well();
    world_close(&world);
    return failed > 0;
}

static void each_allocation(size_t times)
{
    times_failing = times;
    due = 1;
    while (run_story())
        due++;
    print_message("%zu allocations\n", due - 1);
    assert_true(due > 80);
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

/* A client without memory lost a connection over which an add had been done, and took it for not done. Which seeds show that
 * depends on all that allocates before. */
static void a_lost_connection_leaves_it_open(void **state)
{
    (void)state;
    static const uint64_t shows[] = {618682, 951280, 900601844};
    uint64_t given = seed;
    times_failing = 40;
    due = 90;
    for (size_t i = 0; i < sizeof shows / sizeof shows[0]; i++) {
        seed = shows[i];
        assert_true(run_story());
    }
    seed = given;
}

int main(void)
{
    test_logs_set();
    seed = test_seed(UINT64_C(0x6d6f766573));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fails_once),
        cmocka_unit_test(from_each_on_many_fail),
        cmocka_unit_test(a_lost_connection_leaves_it_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
