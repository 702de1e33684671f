/* A node's locks, message by message: answers that come later, owners that fall, hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/locks_test.h"

#define LONG_NS UINT64_C(1000000000000)
#define WAIT_NS UINT64_C(1000000)

/* A request and its answer. */
struct ask {
    struct sh_request request;
    bool is_done;
    enum shoal_err err; /* of the message, or in the answer */
    size_t size;
    uint8_t mode;
    shoal_nid nid;
    uint64_t token, left_ns;
    uint32_t listed;
};

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct ask *ask = request->arg;
    assert_false(ask->is_done);
    ask->is_done = true;
    ask->err = err;
    ask->size = sh_reader_left(payload);
    ask->listed = (uint32_t)(ask->size / SH_LOCKS_LIST_BYTES);
    if (err != SHOAL_OK || ask->size != SH_LOCKS_ANSWER_BYTES)
        return;
    ask->err = (enum shoal_err)sh_get16(payload);
    ask->mode = sh_get8(payload);
    ask->nid.v = sh_get16(payload);
    ask->token = sh_get64(payload);
    ask->left_ns = sh_get64(payload);
}

static void ask_bytes(struct rig *rig, unsigned who, sh_msg_type type, struct sh_bytes payload,
                      struct ask *ask)
{
    struct sh_out out;
    *ask = (struct ask){.request = {.done = on_answer}};
    ask->request.arg = ask;
    assert_int_equal(sh_msg_request(rig->askers[who].msg, (shoal_nid){RIG_NID}, type, payload.size,
                                    &ask->request, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, payload);
    sh_msg_end(rig->askers[who].msg, &out);
    rig_settle(rig);
}

static struct sh_bytes lock_bytes(uint8_t *room, shoal_cid cid, uint64_t token, uint8_t mode,
                                  uint64_t lease_ns, uint64_t wait_ns)
{
    struct sh_writer w = sh_writer_make(room, 33);
    sh_put64(&w, cid.v);
    sh_put64(&w, token);
    sh_put64(&w, lease_ns);
    sh_put64(&w, wait_ns);
    sh_put8(&w, mode);
    return sh_bytes_make(room, 33);
}

static void lock(struct rig *rig, unsigned who, shoal_cid cid, uint64_t token, uint8_t mode,
                 uint64_t wait_ns, struct ask *ask)
{
    uint8_t room[33];
    ask_bytes(rig, who, SH_LOCKS_LOCK, lock_bytes(room, cid, token, mode, LONG_NS, wait_ns), ask);
}

static enum shoal_err unlock(struct rig *rig, unsigned who, shoal_cid cid, uint64_t token)
{
    uint8_t room[16];
    struct ask ask;
    sh_store64(room, cid.v);
    sh_store64(room + 8, token);
    ask_bytes(rig, who, SH_LOCKS_UNLOCK, sh_bytes_make(room, sizeof room), &ask);
    assert_true(ask.is_done);
    return ask.err;
}

/* How many locks and waits there are. */
static uint32_t listed(struct rig *rig)
{
    uint8_t room[18] = {0};
    struct ask ask;
    unsigned who = rig->is_cut[RIG_CLIENT] ? RIG_PEER : RIG_CLIENT;
    ask_bytes(rig, who, SH_LOCKS_LIST, sh_bytes_make(room, sizeof room), &ask);
    assert_true(ask.is_done);
    assert_int_equal(ask.err, SHOAL_OK);
    return ask.listed;
}

static shoal_cid chunk_make(struct rig *rig)
{
    shoal_cid local;
    assert_int_equal(sh_store_new_many(rig->store, 8, 1, &local), SHOAL_OK);
    return shoal_cid_make((shoal_nid){RIG_NID}, local.v);
}

/* The one node of interest, as a view has it. */
static void view_say(struct rig *rig, uint64_t epoch, enum sh_node_state state, uint64_t instance)
{
    struct sh_view view = {.epoch = epoch, .superpeers = 1};
    struct sh_node self = {.nid = {RIG_NID}, .role = SH_ROLE_PEER, .instance = 1};
    struct sh_node node = {
        .nid = {RIG_PEER_NID}, .role = SH_ROLE_PEER, .state = state, .instance = instance};
    assert_int_equal(sh_view_put(&view, &self), SHOAL_OK);
    if (instance != 0)
        assert_int_equal(sh_view_put(&view, &node), SHOAL_OK);
    sh_locks_view(rig->locks, &view);
    sh_view_destroy(&view);
    rig_settle(rig);
}

/* A locked chunk is removed, and a zone of a former life is lost, in which the chunk may have been, as far as the node can tell: the lock can be given back, and none be taken. */
static void unlocked_though_the_chunk_may_be_lost(void **state)
{
    (void)state;
    struct rig rig;
    struct ask held;
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig);
    lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, 0, &held);
    assert_int_equal(held.err, SHOAL_OK);
    assert_int_equal(sh_store_remove(rig.store, (shoal_cid){shoal_cid_local(cid)}), SHOAL_OK);
    sh_holdings_lost_set(sh_chunks_holdings(rig.chunks), rig.store, shoal_cid_local(cid));
    lock(&rig, RIG_CLIENT, cid, 2, SH_LEASE_WRITER, 0, &held);
    assert_int_equal(held.err, SHOAL_ELOST);
    assert_int_equal(unlock(&rig, RIG_PEER, cid, 1), SHOAL_OK);
    assert_int_equal(listed(&rig), 0);
    sh_holdings_lost_clear(sh_chunks_holdings(rig.chunks)); /* an operator has accepted the loss */
    lock(&rig, RIG_CLIENT, cid, 3, SH_LEASE_WRITER, 0, &held);
    assert_int_equal(held.err, SHOAL_ENOCHUNK);
    rig_close(&rig);
}

/* --- Waiting ------------------------------------------------------------------------------- */

static void answered_when_granted(void **state)
{
    (void)state;
    struct rig rig;
    struct ask held, first, second;
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig);
    lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, 0, &held);
    assert_true(held.is_done && held.err == SHOAL_OK);
    lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_WRITER, 0, &first);
    assert_true(first.is_done && first.err == SHOAL_EBUSY);
    assert_true(first.nid.v == RIG_PEER_NID && first.token == 1 && first.mode == SH_LEASE_WRITER);
    assert_int_equal(first.left_ns, LONG_NS);
    lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_WRITER, WAIT_NS, &first);
    lock(&rig, RIG_CLIENT, cid, 2, SH_LEASE_WRITER, UINT64_MAX, &second);
    assert_false(first.is_done || second.is_done);
    assert_int_equal(listed(&rig), 3);

    /* A wait is over in time and not before, and whom it waited for is named. */
    rig_advance(&rig, WAIT_NS - 1);
    assert_false(first.is_done);
    assert_int_equal(rig.step.due_ns(rig.step.arg), rig.node.memwire.now_ns + 1);
    rig_advance(&rig, 1);
    assert_true(first.is_done && first.err == SHOAL_ETIMEOUT && first.token == 1);
    assert_int_equal(first.left_ns, LONG_NS - WAIT_NS);
    assert_false(second.is_done);

    /* And so is a lease. */
    rig_advance(&rig, LONG_NS - WAIT_NS - 1);
    assert_false(second.is_done);
    rig_advance(&rig, 1);
    assert_true(second.is_done && second.err == SHOAL_OK);
    assert_int_equal(unlock(&rig, RIG_PEER, cid, 1), SHOAL_ENOLOCK);
    assert_int_equal(unlock(&rig, RIG_CLIENT, cid, 2), SHOAL_OK);
    assert_int_equal(listed(&rig), 0);
    assert_true(rig.step.due_ns(rig.step.arg) == SH_NEVER);
    rig_close(&rig);
}

static void asked_again(void **state)
{
    (void)state;
    struct rig rig;
    struct ask held, first, second, again;
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig);
    lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, 0, &held);
    lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_WRITER, LONG_NS / 2, &first);
    lock(&rig, RIG_CLIENT, cid, 2, SH_LEASE_WRITER, LONG_NS / 2, &second);
    lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_WRITER, LONG_NS / 2, &again);
    assert_true(first.is_done && first.err == SHOAL_ECANCELED);
    assert_false(again.is_done);
    /* Who holds it and asks again extends it. */
    rig_advance(&rig, LONG_NS / 4);
    lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, 0, &held);
    assert_true(held.is_done && held.err == SHOAL_OK);
    assert_int_equal(unlock(&rig, RIG_PEER, cid, 1), SHOAL_OK);
    assert_true(again.is_done && again.err == SHOAL_OK);
    assert_false(second.is_done);
    assert_int_equal(unlock(&rig, RIG_CLIENT, cid, 2), SHOAL_OK);
    assert_true(second.is_done && second.err == SHOAL_ECANCELED);
    rig_close(&rig);
}

static void no_room_to_wait(void **state)
{
    (void)state;
    struct rig rig;
    struct ask asks[4];
    rig_open(&rig, 2);
    shoal_cid cid = chunk_make(&rig), other = chunk_make(&rig);
    for (uint64_t i = 0; i < 4; i++)
        lock(&rig, RIG_CLIENT, cid, i, SH_LEASE_WRITER, LONG_NS / 2, &asks[i]);
    assert_true(asks[0].is_done && asks[0].err == SHOAL_OK);
    assert_false(asks[1].is_done || asks[2].is_done);
    assert_true(asks[3].is_done && asks[3].err == SHOAL_ELIMIT);
    /* What need not wait finds its place all the same. */
    lock(&rig, RIG_CLIENT, other, 3, SH_LEASE_WRITER, LONG_NS / 2, &asks[3]);
    assert_true(asks[3].is_done && asks[3].err == SHOAL_OK);
    assert_int_equal(unlock(&rig, RIG_CLIENT, cid, 0), SHOAL_OK);
    assert_true(asks[1].is_done && asks[1].err == SHOAL_OK);
    lock(&rig, RIG_CLIENT, other, 9, SH_LEASE_WRITER, LONG_NS / 2, &asks[3]);
    assert_false(asks[3].is_done);
    rig_cut(&rig, RIG_CLIENT);
    assert_int_equal(listed(&rig), 0);
    rig_close(&rig);
}

/* --- Falling ------------------------------------------------------------------------------- */

static void client_gone(void **state)
{
    (void)state;
    struct rig rig;
    struct ask held, waits, mine;
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig), other = chunk_make(&rig);
    lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_WRITER, 0, &held);
    lock(&rig, RIG_PEER, other, 1, SH_LEASE_WRITER, 0, &mine);
    lock(&rig, RIG_CLIENT, other, 1, SH_LEASE_WRITER, UINT64_MAX, &waits);
    lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, UINT64_MAX, &mine);
    assert_false(mine.is_done || waits.is_done);
    rig_cut(&rig, RIG_CLIENT);
    assert_true(mine.is_done && mine.err == SHOAL_OK);
    assert_int_equal(listed(&rig), 2);
    rig_close(&rig);
}

static void lock_numbered(struct rig *rig, shoal_cid cid, uint64_t token, uint64_t client)
{
    uint8_t room[41];
    struct ask ask;
    (void)lock_bytes(room, cid, token, SH_LEASE_WRITER, LONG_NS, 0);
    sh_store64(room + 33, client);
    ask_bytes(rig, RIG_CLIENT, SH_LOCKS_LOCK, sh_bytes_make(room, sizeof room), &ask);
    assert_true(ask.is_done);
    assert_int_equal(ask.err, SHOAL_OK);
}

/* Its chunk was about to move, and did not: what fell meanwhile is not put back. */
static void client_gone_during_move(void **state)
{
    (void)state;
    struct rig rig;
    struct ask mine;
    struct sh_locks_bag bag = {0};
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig), other = chunk_make(&rig);
    lock_numbered(&rig, cid, 1, 77);
    lock(&rig, RIG_PEER, other, 1, SH_LEASE_WRITER, 0, &mine);
    for (int goes = 0; goes < 2; goes++) {
        assert_int_equal(sh_locks_pack(rig.locks, cid, other, &bag), SHOAL_OK);
        assert_int_equal(bag.count, 2);
        if (goes)
            rig_cut(&rig, RIG_CLIENT);
        sh_locks_unpack(rig.locks, &bag);
        assert_int_equal(listed(&rig), goes ? 1 : 2);
    }
    lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, 0, &mine);
    assert_int_equal(mine.err, SHOAL_OK);
    sh_locks_bag_free(&bag);
    rig_close(&rig);
}

/* A node's locks outlast its connection, but not its place in the view. */
static void node_gone(void **state)
{
    static const struct {
        enum sh_node_state state;
        uint64_t instance; /* 0: not in the view */
    } ends[] = {{SH_NODE_FAILED, 9}, {SH_NODE_LEFT, 9}, {SH_NODE_UP, 10}, {SH_NODE_UP, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct rig rig;
        struct ask held, mine;
        rig_open(&rig, 0);
        shoal_cid cid = chunk_make(&rig);
        view_say(&rig, 1, SH_NODE_UP, 9);
        lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, 0, &held);
        assert_int_equal(held.err, SHOAL_OK);
        lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_READER, UINT64_MAX, &mine);
        rig_cut(&rig, RIG_PEER);
        view_say(&rig, 2, SH_NODE_UP, 9);
        assert_false(mine.is_done);
        assert_int_equal(listed(&rig), 2);
        view_say(&rig, 3, ends[i].state, ends[i].instance);
        assert_true(mine.is_done && mine.err == SHOAL_OK);
        assert_int_equal(listed(&rig), 1);
        rig_close(&rig);
    }
}

/* A lock that is granted to a node which can't be told goes to the next. */
static void granted_to_nobody(void **state)
{
    (void)state;
    struct rig rig;
    struct ask held, lost, mine;
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig);
    lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_WRITER, 0, &held);
    lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, UINT64_MAX, &lost);
    lock(&rig, RIG_CLIENT, cid, 2, SH_LEASE_WRITER, UINT64_MAX, &mine);
    rig_cut(&rig, RIG_PEER);
    assert_int_equal(unlock(&rig, RIG_CLIENT, cid, 1), SHOAL_OK);
    assert_true(mine.is_done && mine.err == SHOAL_OK);
    assert_int_equal(listed(&rig), 1);
    rig_close(&rig);
}

static void chunk_gone(void **state)
{
    static const sh_msg_type types[] = {SH_CHUNKS_REMOVE, SH_CHUNKS_MULTI_REMOVE};
    (void)state;
    struct rig rig;
    rig_open(&rig, 0);
    for (size_t i = 0; i < 2; i++) {
        struct ask held, waits, removed;
        shoal_cid cid = chunk_make(&rig);
        uint8_t room[8];
        sh_store64(room, cid.v);
        lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_READER, 0, &held);
        lock(&rig, RIG_PEER, cid, 1, SH_LEASE_WRITER, UINT64_MAX, &waits);
        ask_bytes(&rig, RIG_PEER, types[i], sh_bytes_make(room, sizeof room), &removed);
        assert_true(removed.is_done && removed.err == SHOAL_OK);
        assert_true(waits.is_done && waits.err == SHOAL_ENOCHUNK);
        assert_int_equal(listed(&rig), 0);
        lock(&rig, RIG_CLIENT, cid, 1, SH_LEASE_READER, LONG_NS, &held);
        assert_true(held.is_done && held.err == SHOAL_ENOCHUNK);
    }
    rig_close(&rig);
}

/* --- Hostile ------------------------------------------------------------------------------- */

static void nonsense_is_refused(void **state)
{
    static const struct {
        sh_msg_type type;
        size_t bytes;
    } types[] = {{SH_LOCKS_LOCK, 33},
                 {SH_LOCKS_UNLOCK, 16},
                 {SH_LOCKS_EXTEND, 24},
                 {SH_LOCKS_SWAP, 25},
                 {SH_LOCKS_LIST, 18}};
    (void)state;
    struct rig rig;
    struct ask ask;
    uint8_t room[64] = {0};
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (size_t bytes = 0; bytes < sizeof room; bytes++) {
            /* All but the list may have a client's number at the end. */
            if (bytes == types[i].bytes ||
                (types[i].type != SH_LOCKS_LIST && bytes == types[i].bytes + 8))
                continue;
            memset(room, 1, sizeof room);
            sh_store64(room, cid.v);
            ask_bytes(&rig, RIG_CLIENT, types[i].type, sh_bytes_make(room, bytes), &ask);
            assert_true(ask.is_done && ask.err == SHOAL_EPROTO);
        }
    }
    for (unsigned mode = 0; mode < 256; mode += 3) {
        ask_bytes(&rig, RIG_CLIENT, SH_LOCKS_LOCK,
                  lock_bytes(room, cid, 1, (uint8_t)mode, LONG_NS, 0), &ask);
        assert_true(ask.is_done && ask.err == SHOAL_EPROTO);
    }
    ask_bytes(&rig, RIG_CLIENT, SH_LOCKS_LOCK, lock_bytes(room, cid, 1, 1, 0, 0), &ask);
    assert_int_equal(ask.err, SHOAL_EPROTO);
    lock(&rig, RIG_CLIENT, shoal_cid_make((shoal_nid){RIG_NID + 1}, 1), 1, 1, 0, &ask);
    assert_int_equal(ask.err, SHOAL_ENOTOWNER);
    assert_int_equal(listed(&rig), 0);
    /* The longest of all is cut, and overflows nothing. */
    ask_bytes(&rig, RIG_CLIENT, SH_LOCKS_LOCK,
              lock_bytes(room, cid, UINT64_MAX, 2, UINT64_MAX, UINT64_MAX), &ask);
    assert_int_equal(ask.err, SHOAL_OK);
    rig_advance(&rig, SH_LEASE_NS_MAX);
    assert_int_equal(listed(&rig), 0);
    rig_close(&rig);
}

/* A message that expects no answer takes no lock, since nobody would know. */
static void one_way(void **state)
{
    (void)state;
    struct rig rig;
    uint8_t room[33];
    struct sh_out out;
    rig_open(&rig, 0);
    shoal_cid cid = chunk_make(&rig);
    assert_int_equal(
        sh_msg_begin(rig.askers[RIG_CLIENT].msg, (shoal_nid){RIG_NID}, SH_LOCKS_LOCK, 33, &out),
        SHOAL_OK);
    sh_put_raw(&out.w, lock_bytes(room, cid, 1, 1, LONG_NS, 0));
    sh_msg_end(rig.askers[RIG_CLIENT].msg, &out);
    rig_settle(&rig);
    assert_int_equal(listed(&rig), 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unlocked_though_the_chunk_may_be_lost),
        cmocka_unit_test(answered_when_granted),
        cmocka_unit_test(asked_again),
        cmocka_unit_test(no_room_to_wait),
        cmocka_unit_test(client_gone),
        cmocka_unit_test(client_gone_during_move),
        cmocka_unit_test(node_gone),
        cmocka_unit_test(granted_to_nobody),
        cmocka_unit_test(chunk_gone),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(one_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
