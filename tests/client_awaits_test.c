/* libshoal while a peer has failed that keeps its chunks in a log of its own: calls for many chunks, those that create many and those on locks
 * wait for the peer's next life, until their time is over. A superpeer that says what became of the peer, and a peer that serves its chunks when
 * it is back. */
#include "tests/client_ends_int.h"

#include <stdatomic.h>

#include "backup/backup.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "cluster/view.h"
#include "node/chunks.h"
#include "node/locks.h"
#include "store/store.h"

#define PEER 64
#define CHUNKS 8
#define OWNER ((shoal_owner){7})

static struct world {
    struct end superpeer, peer;
    struct sh_store *held;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    bool keeps_chunks;
    _Atomic bool is_up;
    _Atomic unsigned views, lookups; /* that the superpeer has answered */
    _Atomic unsigned questions;      /* after so many of both the peer is back; 0: never */
    shoal *store;
    shoal_cid cids[CHUNKS];
} world;

/* --- What the superpeer says ------------------------------------------------------------------ */

/* The peer is back once somebody has asked often enough. */
static bool is_up(void)
{
    unsigned asked = atomic_load(&world.views) + atomic_load(&world.lookups);
    if (atomic_load(&world.questions) && asked >= atomic_load(&world.questions))
        atomic_store(&world.is_up, true);
    return atomic_load(&world.is_up);
}

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    atomic_fetch_add(&world.views, 1);
    bool is_here = is_up();
    struct sh_node all[2] = {
        {.nid = {1}, .role = SH_ROLE_SUPERPEER, .instance = 1},
        {.nid = {PEER},
         .role = SH_ROLE_PEER,
         .state = is_here ? SH_NODE_UP : SH_NODE_FAILED,
         .instance = PEER,
         .traits = {.keeps_chunks = world.keeps_chunks}},
    };
    memcpy(all[0].address, world.superpeer.address, SH_MSG_ADDRESS_MAX);
    memcpy(all[1].address, world.peer.address, SH_MSG_ADDRESS_MAX);
    view_reply(in, 5 + is_here, all, 2);
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    atomic_fetch_add(&world.lookups, 1);
    uint16_t answer = is_up() ? PEER : SH_LOOKUP_FAILED;
    lookup_reply(in, PEER, answer);
}

/* --- The world -------------------------------------------------------------------------------- */

static void world_open(bool keeps_chunks, unsigned questions, uint64_t timeout_ns)
{
    memset(&world, 0, sizeof world);
    world.keeps_chunks = keeps_chunks;
    atomic_store(&world.questions, questions);
    end_open(&world.superpeer, 1, 10000 * MS);
    end_open(&world.peer, PEER, 10000 * MS);
    sh_msg_handler_set(world.superpeer.msg, SH_CLUSTER_VIEW_GET, SH_MSG_INLINE, on_view_get, NULL);
    sh_msg_handler_set(world.superpeer.msg, SH_CLUSTER_LOOKUP, SH_MSG_INLINE, on_lookup, NULL);
    const struct sh_store_config held = {.bytes_max = 32 << 20, .chunk_bytes_max = 1 << 16};
    assert_int_equal(sh_store_create(&held, &world.held), SHOAL_OK);
    assert_int_equal(sh_store_new_many(world.held, 8, CHUNKS, world.cids), SHOAL_OK);
    for (unsigned i = 0; i < CHUNKS; i++)
        world.cids[i] = shoal_cid_make((shoal_nid){PEER}, world.cids[i].v);
    chunks_serve(world.peer.msg, world.held, &world.backup, &world.chunks);
    const struct sh_locks_config locks = {.msg = world.peer.msg,
                                          .store = world.held,
                                          .clock = sh_real_clock(),
                                          .wake = end_wake,
                                          .arg = &world.peer};
    assert_int_equal(sh_locks_create(&locks, &world.locks), SHOAL_OK);
    sh_crew_step_add(world.peer.crew, 0, sh_locks_step(world.locks));
    end_start(&world.superpeer);
    end_start(&world.peer);
    world.store = rig_open(world.superpeer.address, timeout_ns);
}

static void world_close(void)
{
    shoal_close(world.store);
    end_close(&world.peer);
    end_close(&world.superpeer);
    sh_locks_destroy(world.locks);
    sh_chunks_destroy(world.chunks);
    sh_backup_destroy(world.backup);
    sh_store_destroy(world.held);
}

static void ops_fill(struct shoal_op *ops, uint64_t *values, uint32_t size)
{
    for (unsigned i = 0; i < CHUNKS; i++)
        ops[i] = (struct shoal_op){.cid = world.cids[i], .data = &values[i], .size = size};
}

/* --- The tests -------------------------------------------------------------------------------- */

/* From its first question on, that all of them ask together, each waits until a later one is answered with where its chunk is. */
static void calls_for_many_wait(void **state)
{
    (void)state;
    enum shoal_err (*const calls[])(shoal *, struct shoal_op *, size_t) = {
        shoal_multi_put, shoal_multi_get, shoal_multi_resize, shoal_multi_remove};
    uint64_t values[CHUNKS];
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct shoal_op ops[CHUNKS];
        struct sh_store_status status;
        world_open(true, 6, 10000 * MS);
        memset(values, 1, sizeof values);
        ops_fill(ops, values, 8);
        assert_int_equal(calls[i](world.store, ops, CHUNKS), SHOAL_OK);
        sh_store_status_get(world.held, &status);
        assert_int_equal(status.chunks, calls[i] == shoal_multi_remove ? 0 : CHUNKS);
        world_close();
    }
}

static void creating_many_waits(void **state)
{
    (void)state;
    shoal_cid cids[3];
    world_open(true, 6, DEADLINE_NS);
    assert_int_equal(shoal_create_many(world.store, (shoal_nid){PEER}, 8, 3, cids), SHOAL_OK);
    assert_int_equal(shoal_cid_creator(cids[2]).v, PEER);
    world_close();
}

/* The lock that its owner had at the life before fell with that. */
static void locks_wait(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        enum shoal_err err;
        world_open(true, 6, DEADLINE_NS);
        if (i == 0)
            err = shoal_lock(world.store, world.cids[0], OWNER, SHOAL_LOCK_WRITE, MS, 0);
        else if (i == 1)
            err = shoal_unlock(world.store, world.cids[0], OWNER);
        else if (i == 2)
            err = shoal_lock_extend(world.store, world.cids[0], OWNER, MS);
        else
            err = shoal_lock_swap(world.store, world.cids[0], OWNER, SHOAL_LOCK_READ, MS);
        assert_int_equal(err, i == 0 ? SHOAL_OK : SHOAL_ENOLOCK);
        world_close();
    }
}

/* Its last question may have been without an answer. */
static void assert_given_up(enum shoal_err err)
{
    assert_true(err == SHOAL_EFAILED || err == SHOAL_EUNREACHABLE || err == SHOAL_ETIMEOUT);
}

/* Also a lock that may be waited for much longer. */
static void no_call_waits_for_longer(void **state)
{
    (void)state;
    uint64_t values[CHUNKS] = {0};
    struct shoal_op ops[CHUNKS];
    shoal_cid cid;
    world_open(true, 0, 100 * MS);
    ops_fill(ops, values, 8);
    uint64_t begun_ns = rig_now();
    assert_given_up(shoal_lock(world.store, world.cids[0], OWNER, SHOAL_LOCK_WRITE, MS, 3000 * MS));
    assert_true(rig_now() - begun_ns >= 60 * MS);
    assert_true(rig_now() - begun_ns < 3000 * MS);
    assert_given_up(shoal_multi_get(world.store, ops, CHUNKS));
    assert_given_up(shoal_create_many(world.store, (shoal_nid){PEER}, 8, 1, &cid));
    assert_true(rig_now() - begun_ns >= 180 * MS);
    world_close();
}

static void nobody_waits_for_what_is_lost(void **state)
{
    (void)state;
    uint64_t values[CHUNKS] = {0};
    struct shoal_op ops[CHUNKS];
    shoal_cid cid;
    world_open(false, 0, DEADLINE_NS);
    ops_fill(ops, values, 8);
    assert_int_equal(shoal_multi_put(world.store, ops, CHUNKS), SHOAL_EFAILED);
    assert_int_equal(shoal_create_many(world.store, (shoal_nid){PEER}, 8, 1, &cid), SHOAL_EFAILED);
    assert_int_equal(shoal_unlock(world.store, world.cids[0], OWNER), SHOAL_EFAILED);
    world_close();
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("warn", &bad, &bad_size) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_for_many_wait),
        cmocka_unit_test(creating_many_waits),
        cmocka_unit_test(locks_wait),
        cmocka_unit_test(no_call_waits_for_longer),
        cmocka_unit_test(nobody_waits_for_what_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
