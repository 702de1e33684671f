/* libshoal creates a chunk on a peer that fails before it has answered: what came of that is known to whoever brought the peer's zones back, or to a node to
 * which the chunk has moved on. Or it removes a chunk there: that is asked of the chunk's next owner, and of all, where the owner does not know.
 * A superpeer that says what became of the peer's zones, the peer in two lives, and two other peers. */
#include "tests/client_ends_int.h"

#include <stdatomic.h>

#include "proto/chunks.h"
#include "proto/moves.h"

#define MAKER 64
#define OTHERS 2
#define CHUNK                                                                                      \
    shoal_cid_make((shoal_nid){70},                                                                \
                   5) /* one that is removed; its next owner is the first other peer */
#define MADE 77       /* the chunk that the peer has made, if it has */
#define MADE_ANEW 88  /* one that is made anew */

static struct world {
    struct end superpeer, maker, others[OTHERS];
    char maker_addresses
        [2]
        [SH_MSG_ADDRESS_MAX]; /* of each of its lives; the second is written before is_back is set */
    _Atomic unsigned
        failed_answers; /* so often the superpeer says that zones are still to be brought back */
    _Atomic unsigned busy_answers; /* so often the next life says that it does not know yet */
    _Atomic bool has_failed, is_back;
    _Atomic unsigned epoch;
    _Atomic unsigned creates, asked,
        known_by; /* known_by: the peer that knows that the chunk was made; 0: none */
    _Atomic bool asked_early;
    _Atomic unsigned removes, owner_asked;
    shoal *store;
    struct shoal_call call;
} world;

/* --- What the superpeer says -------------------------------------------------------------------- */

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    bool is_back = atomic_load(&world.is_back), has_failed = atomic_load(&world.has_failed);
    const struct sh_traits replicated = {.is_replicated = true};
    struct sh_node all[2 + OTHERS] = {
        {.nid = {1}, .role = SH_ROLE_SUPERPEER, .instance = 1},
        {.nid = {MAKER},
         .role = SH_ROLE_PEER,
         .state = has_failed && !is_back ? SH_NODE_FAILED : SH_NODE_UP,
         .instance = is_back ? MAKER + 100 : MAKER,
         .traits = replicated},
    };
    memcpy(all[0].address, world.superpeer.address, SH_MSG_ADDRESS_MAX);
    memcpy(all[1].address, world.maker_addresses[is_back], SH_MSG_ADDRESS_MAX);
    for (unsigned i = 0; i < OTHERS; i++) {
        all[2 + i] = (struct sh_node){.nid = {(uint16_t)(MAKER + 1 + i)},
                                      .role = SH_ROLE_PEER,
                                      .instance = MAKER + 1 + i,
                                      .traits = replicated};
        memcpy(all[2 + i].address, world.others[i].address, SH_MSG_ADDRESS_MAX);
    }
    view_reply(in, 5 + atomic_load(&world.epoch), all, 2 + OTHERS);
}

/* The chunk has its next owner at once. The first answers are that other zones of the peer are still to be brought back; or it is back, and its own chunks are looked for there. */
static void on_lookup(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    if (shoal_cid_creator((shoal_cid){sh_get64(&in->payload)}).v == shoal_cid_creator(CHUNK).v) {
        lookup_reply(in, shoal_cid_creator(CHUNK).v,
                     atomic_load(&world.has_failed) ? MAKER + 1 : MAKER);
        return;
    }
    bool is_failed = atomic_load(&world.failed_answers) > 0;
    if (is_failed)
        atomic_fetch_sub(&world.failed_answers, 1);
    bool is_at_maker = atomic_load(&world.is_back);
    lookup_reply(in, MAKER, is_failed ? SH_LOOKUP_FAILED : is_at_maker ? MAKER : SH_LOOKUP_NOBODY);
}

/* --- The peers ---------------------------------------------------------------------------------- */

/* The first life never answers. */
static void on_create(void *arg, struct sh_msg_in *in)
{
    const struct end *end = arg;
    struct sh_out out;
    atomic_fetch_add(&world.creates, 1);
    if (!atomic_load(&world.has_failed))
        return;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, 12, &out), SHOAL_OK);
    sh_put64(&out.w, shoal_cid_make(sh_msg_nid(end->msg), MADE_ANEW).v);
    sh_put32(&out.w, 1);
    sh_msg_end(in->msg, &out);
}

static void on_remove(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    atomic_fetch_add(&world.removes, 1);
    if (atomic_load(&world.has_failed))
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* The chunk's next owner does not know; of the others, one may. */
static void on_outcome(void *arg, struct sh_msg_in *in)
{
    struct end *end = arg;
    shoal_nid self = sh_msg_nid(end->msg);
    struct sh_out out;
    uint64_t cid = sh_get64(&in->payload);
    bool is_of_chunk = cid == CHUNK.v;
    assert_true(is_of_chunk || cid == shoal_cid_make((shoal_nid){MAKER}, 0).v);
    (void)sh_get64(&in->payload);
    assert_int_equal(sh_get16(&in->payload), MAKER);
    assert_int_equal(sh_get64(&in->payload), 1); /* the client's first number for that node */
    assert_true(sh_reader_done(&in->payload));
    if (self.v == MAKER && atomic_load(&world.busy_answers)) {
        atomic_fetch_sub(&world.busy_answers, 1);
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    bool is_early = atomic_load(&world.failed_answers) > 0 || atomic_load(&world.busy_answers) > 0;
    if (is_of_chunk) {
        assert_int_equal(self.v, MAKER + 1);
        atomic_fetch_add(&world.owner_asked, 1);
    } else {
        atomic_store(&world.asked_early, atomic_load(&world.asked_early) || is_early);
        atomic_fetch_or(&world.asked, 1u << (self.v - MAKER));
    }
    assert_int_equal(
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVES_OUTCOME_ANSWER_BYTES, &out),
        SHOAL_OK);
    bool is_known = !is_of_chunk && self.v == atomic_load(&world.known_by);
    sh_put8(&out.w, is_known);
    sh_put16(&out.w, SHOAL_OK);
    sh_put64(&out.w, is_known ? MADE : 0);
    sh_msg_end(in->msg, &out);
}

static void peer_open(struct end *end, uint16_t nid, uint64_t instance)
{
    end_open(end, nid, 10000 * MS);
    sh_msg_instance_set(end->msg, instance);
    sh_msg_handler_set(end->msg, SH_CHUNKS_CREATE_ONCE, SH_MSG_INLINE, on_create, end);
    sh_msg_handler_set(end->msg, SH_CHUNKS_REMOVE_ONCE, SH_MSG_INLINE, on_remove, end);
    sh_msg_handler_set(end->msg, SH_MOVES_OUTCOME, SH_MSG_INLINE, on_outcome, end);
    end_start(end);
}

/* --- The world ---------------------------------------------------------------------------------- */

static void nodes_open(void)
{
    memset(&world, 0, sizeof world);
    end_open(&world.superpeer, 1, 10000 * MS);
    sh_msg_handler_set(world.superpeer.msg, SH_CLUSTER_VIEW_GET, SH_MSG_INLINE, on_view_get, NULL);
    sh_msg_handler_set(world.superpeer.msg, SH_CLUSTER_LOOKUP, SH_MSG_INLINE, on_lookup, NULL);
    peer_open(&world.maker, MAKER, MAKER);
    memcpy(world.maker_addresses[0], world.maker.address, SH_MSG_ADDRESS_MAX);
    for (unsigned i = 0; i < OTHERS; i++)
        peer_open(&world.others[i], (uint16_t)(MAKER + 1 + i), MAKER + 1 + i);
    end_start(&world.superpeer);
    world.store = rig_open(world.superpeer.address, DEADLINE_NS);
}

/* A create is with the peer, which fails. */
static void world_open(shoal_nid where)
{
    nodes_open();
    assert_int_equal(shoal_create_async(world.store, where, 8, &world.call), SHOAL_OK);
    uint64_t deadline = rig_now() + DEADLINE_NS;
    while (!atomic_load(&world.creates))
        assert_true(rig_now() < deadline);
}

/* The same of a removal. */
static void world_open_removing(void)
{
    nodes_open();
    assert_int_equal(shoal_remove_async(world.store, CHUNK, &world.call), SHOAL_OK);
    uint64_t deadline = rig_now() + DEADLINE_NS;
    while (!atomic_load(&world.removes))
        assert_true(rig_now() < deadline);
}

static void maker_fails(bool is_back)
{
    if (is_back)
        atomic_store(&world.failed_answers, UINT32_MAX); /* as long as it is not back */
    atomic_store(&world.has_failed, true);
    atomic_store(&world.epoch, 1);
    end_close(&world.maker);
    if (is_back) {
        peer_open(&world.maker, MAKER, MAKER + 100);
        memcpy(world.maker_addresses[1], world.maker.address, SH_MSG_ADDRESS_MAX);
        atomic_store(&world.is_back, true);
        atomic_store(&world.failed_answers, 0);
        atomic_store(&world.epoch, 2);
    }
}

static void world_close(void)
{
    shoal_close(world.store);
    if (!atomic_load(&world.has_failed) || atomic_load(&world.is_back))
        end_close(&world.maker);
    for (unsigned i = 0; i < OTHERS; i++)
        end_close(&world.others[i]);
    end_close(&world.superpeer);
}

/* --- The tests ---------------------------------------------------------------------------------- */

/* Nobody is asked before all of the peer's zones are with others; then each is, until one knows. */
static void somebody_knows(void **state)
{
    (void)state;
    for (unsigned i = 0; i < OTHERS; i++) {
        world_open((shoal_nid){MAKER});
        atomic_store(&world.failed_answers, 3);
        atomic_store(&world.known_by, MAKER + 1 + i);
        maker_fails(false);
        assert_int_equal(shoal_wait(world.store, &world.call), SHOAL_OK);
        assert_int_equal(world.call.cid.v, shoal_cid_make((shoal_nid){MAKER}, MADE).v);
        assert_int_equal(atomic_load(&world.creates), 1);
        assert_int_equal(atomic_load(&world.asked), i ? 6 : 2);
        assert_false(atomic_load(&world.asked_early));
        assert_int_equal(atomic_load(&world.failed_answers), 0);
        world_close();
    }
}

/* The peer is back in another life: that is asked first, and says when its zones are with others. */
static void the_next_life_is_asked_first(void **state)
{
    (void)state;
    for (unsigned i = 0; i <= OTHERS; i++) {
        world_open((shoal_nid){MAKER});
        atomic_store(&world.busy_answers, 3);
        atomic_store(&world.known_by, MAKER + i);
        maker_fails(true);
        assert_int_equal(shoal_wait(world.store, &world.call), SHOAL_OK);
        assert_int_equal(world.call.cid.v, shoal_cid_make((shoal_nid){MAKER}, MADE).v);
        assert_int_equal(atomic_load(&world.creates), 1);
        assert_int_equal(atomic_load(&world.asked), (2u << i) - 1);
        assert_false(atomic_load(&world.asked_early));
        world_close();
    }
}

/* Nobody knows: nothing was made, and another peer makes one, or the next life where it must be that one. */
static void nobody_knows(void **state)
{
    (void)state;
    world_open((shoal_nid){MAKER});
    maker_fails(true);
    assert_int_equal(shoal_wait(world.store, &world.call), SHOAL_OK);
    assert_int_equal(world.call.cid.v, shoal_cid_make((shoal_nid){MAKER}, MADE_ANEW).v);
    assert_int_equal(atomic_load(&world.creates), 2);
    assert_int_equal(atomic_load(&world.asked), 7);
    world_close();
}

/* The chunk's owner does not know of the removal, as the record of that is in another zone than the chunk was: all are asked, once all zones are with others. The
 * removal is done once. */
static void somebody_knows_of_a_removal(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bool is_back = i / 2;
        world_open_removing();
        atomic_store(&world.failed_answers, is_back ? 0 : 3);
        atomic_store(&world.busy_answers, is_back ? 3 : 0);
        atomic_store(&world.known_by, MAKER + 1 + i % 2);
        maker_fails(is_back);
        assert_int_equal(shoal_wait(world.store, &world.call), SHOAL_OK);
        assert_int_equal(atomic_load(&world.removes), 1);
        assert_int_equal(atomic_load(&world.owner_asked), 1);
        assert_int_equal(atomic_load(&world.asked), (is_back ? 1 : 0) + (i % 2 ? 6 : 2));
        assert_false(atomic_load(&world.asked_early));
        world_close();
    }
}

static void nobody_knows_of_a_removal(void **state)
{
    (void)state;
    for (unsigned is_back = 0; is_back < 2; is_back++) {
        world_open_removing();
        maker_fails(is_back);
        assert_int_equal(shoal_wait(world.store, &world.call), SHOAL_OK);
        assert_int_equal(atomic_load(&world.removes), 2);
        assert_int_equal(atomic_load(&world.owner_asked), 1);
        assert_int_equal(atomic_load(&world.asked), is_back ? 7 : 6);
        world_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(somebody_knows),
        cmocka_unit_test(the_next_life_is_asked_first),
        cmocka_unit_test(nobody_knows),
        cmocka_unit_test(somebody_knows_of_a_removal),
        cmocka_unit_test(nobody_knows_of_a_removal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
