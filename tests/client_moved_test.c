/* libshoal where an answer is lost and the chunk is elsewhere before the request is sent again: the
 * new owner is asked what came of it, and nothing is done twice. A superpeer and two peers that
 * speak as much of the protocol as that takes. */
#include "tests/client_ends_int.h"

#include <stdatomic.h>

#include "base/log.h"
#include "cluster/proto.h"
#include "cluster/view.h"
#include "msg/once.h"
#include "node/chunks.h"
#include "node/moves.h"

#define OLD 64
#define NEW 65
#define VALUE 4711

/* What the nodes say, and what they were asked. */
static struct {
    struct end superpeer, old, new;
    _Atomic bool has_moved;
    _Atomic bool is_known;              /* the new owner knows the result */
    _Atomic int outcome_err;            /* and says this instead, */
    _Atomic unsigned outcome_err_times; /* so many times */
    _Atomic unsigned old_adds, new_adds, outcomes;
    _Atomic uint64_t client, number; /* of the addition at the old node */
} nodes;

/* --- What they say --------------------------------------------------------------------------- */

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_node all[3] = {
        {.nid = {1}, .role = SH_ROLE_SUPERPEER, .instance = 1},
        {.nid = {OLD}, .role = SH_ROLE_PEER, .instance = OLD},
        {.nid = {NEW}, .role = SH_ROLE_PEER, .instance = NEW},
    };
    memcpy(all[0].address, nodes.superpeer.address, SH_MSG_ADDRESS_MAX);
    memcpy(all[1].address, nodes.old.address, SH_MSG_ADDRESS_MAX);
    memcpy(all[2].address, nodes.new.address, SH_MSG_ADDRESS_MAX);
    view_reply(in, 5, all, 3);
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    lookup_reply(in, OLD, atomic_load(&nodes.has_moved) ? NEW : OLD);
}

/* Does it, and loses the answer; to the client an error that says so is the same. */
static void on_old_add(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    atomic_store(&nodes.client, sh_get64(&in->payload));
    atomic_store(&nodes.number, sh_get64(&in->payload));
    atomic_fetch_add(&nodes.old_adds, 1);
    atomic_store(&nodes.has_moved, true);
    sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ECONNLOST, NULL);
}

static void on_new_add(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_out out;
    atomic_fetch_add(&nodes.new_adds, 1);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 8, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, VALUE + 1);
    sh_msg_end(in->msg, &out);
}

static void on_outcome(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_out out;
    uint64_t cid = sh_get64(&in->payload), client = sh_get64(&in->payload);
    uint16_t nid = sh_get16(&in->payload);
    uint64_t number = sh_get64(&in->payload);
    bool is_it = sh_reader_done(&in->payload) && cid == shoal_cid_make((shoal_nid){OLD}, 3).v &&
                 client == atomic_load(&nodes.client) && nid == OLD &&
                 number == atomic_load(&nodes.number);
    atomic_fetch_add(&nodes.outcomes, 1);
    if (atomic_load(&nodes.outcome_err_times) > 0) {
        atomic_fetch_sub(&nodes.outcome_err_times, 1);
        sh_msg_reply_error(in->msg, in->reply_to, in->type,
                           (enum shoal_err)atomic_load(&nodes.outcome_err), NULL);
        return;
    }
    bool is_known = is_it && atomic_load(&nodes.is_known);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVES_OUTCOME_ANSWER_BYTES, &out) !=
        SHOAL_OK)
        return;
    sh_put8(&out.w, is_known);
    sh_put16(&out.w, 0);
    sh_put64(&out.w, is_known ? VALUE : 0);
    sh_msg_end(in->msg, &out);
}

/* --- The tests ------------------------------------------------------------------------------- */

static enum shoal_err add(bool is_known, enum shoal_err err, unsigned times, uint64_t *old)
{
    memset(&nodes, 0, sizeof nodes);
    atomic_store(&nodes.is_known, is_known);
    atomic_store(&nodes.outcome_err, (int)err);
    atomic_store(&nodes.outcome_err_times, times);
    end_open(&nodes.superpeer, 1, 10000 * MS);
    end_open(&nodes.old, OLD, 10000 * MS);
    end_open(&nodes.new, NEW, 10000 * MS);
    sh_msg_handler_set(nodes.superpeer.msg, SH_CLUSTER_VIEW_GET, SH_MSG_INLINE, on_view_get, NULL);
    sh_msg_handler_set(nodes.superpeer.msg, SH_CLUSTER_LOOKUP, SH_MSG_INLINE, on_lookup, NULL);
    sh_msg_handler_set(nodes.old.msg, SH_CHUNKS_ADD_ONCE, SH_MSG_INLINE, on_old_add, NULL);
    sh_msg_handler_set(nodes.new.msg, SH_CHUNKS_ADD_ONCE, SH_MSG_INLINE, on_new_add, NULL);
    sh_msg_handler_set(nodes.new.msg, SH_MOVES_OUTCOME, SH_MSG_INLINE, on_outcome, NULL);
    end_start(&nodes.superpeer);
    end_start(&nodes.old);
    end_start(&nodes.new);
    shoal *store = rig_open(nodes.superpeer.address, 20000 * MS);
    enum shoal_err result = shoal_add(store, shoal_cid_make((shoal_nid){OLD}, 3), 0, 8, 1, old);
    shoal_close(store);
    end_close(&nodes.new);
    end_close(&nodes.old);
    end_close(&nodes.superpeer);
    assert_int_equal(atomic_load(&nodes.old_adds), 1);
    return result;
}

static void result_is_known(void **state)
{
    (void)state;
    uint64_t old = 0;
    assert_int_equal(add(true, SHOAL_OK, 0, &old), SHOAL_OK);
    assert_int_equal(old, VALUE);
    assert_int_equal(atomic_load(&nodes.outcomes), 1);
    assert_int_equal(atomic_load(&nodes.new_adds), 0);
}

static void result_is_unknown(void **state)
{
    (void)state;
    uint64_t old = 0;
    assert_int_equal(add(false, SHOAL_OK, 0, &old), SHOAL_OK);
    assert_int_equal(old, VALUE + 1);
    assert_int_equal(atomic_load(&nodes.new_adds), 1);
}

static void owner_is_not_ready(void **state)
{
    (void)state;
    uint64_t old = 0;
    static const enum shoal_err errs[] = {SHOAL_ENOTOWNER, SHOAL_EBUSY, SHOAL_ECONNLOST};
    for (unsigned i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        assert_int_equal(add(true, errs[i], 3, &old), SHOAL_OK);
        assert_int_equal(old, VALUE);
        assert_int_equal(atomic_load(&nodes.outcomes), 4);
        assert_int_equal(atomic_load(&nodes.new_adds), 0);
    }
}

/* A node that can't say it: then nobody knows. */
static void owner_does_not_know_the_question(void **state)
{
    (void)state;
    uint64_t old = 0;
    assert_int_equal(add(true, SHOAL_ENOTYPE, 1, &old), SHOAL_ECONNLOST);
    assert_int_equal(atomic_load(&nodes.new_adds), 0);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_is_known),
        cmocka_unit_test(result_is_unknown),
        cmocka_unit_test(owner_is_not_ready),
        cmocka_unit_test(owner_does_not_know_the_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
