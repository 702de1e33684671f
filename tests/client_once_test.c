/* libshoal where answers get lost: a peer executes each request, and now and then its connection
 * breaks before the answer has left. Creates, puts, removes, additions and all other changes
 * succeed all the same, and the peer has done each of them exactly once. Locks fall with the
 * connection, and are asked for again. A change is not sent again to another life of the peer, which is asked what came of it.
 *
 * SHOAL_TEST_SEED: which answers are lost (default: from the clock; printed). */
#include <pthread.h>

#include "base/random_test.h"
#include "tests/client_ends_int.h"

#include "base/hash.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "cluster/view.h"
#include "msg/tcp.h"
#include "node/chunks.h"
#include "node/locks.h"
#include "proto/moves.h"
#include "store/store.h"
#include "tests/linear_run_int.h"

#define PEER 64
#define CHUNK_BYTES 32
#define LOSS_ONE_IN 6
#define CHANGES 20
#define ROUNDS 4 /* of each kind */

/* TCP that loses what is pushed, and the link with it: now and then, or the answer to one put. */
struct lossy {
    struct sh_wire wire;
    struct sh_wire *inner;
    uint64_t random; /* 0: loses nothing now and then */
    sh_link doomed;
    _Atomic unsigned losses;
    struct sh_store *held; /* whose put lost_put loses its answer; NULL: none does */
    uint64_t lost_put;     /* counted from 1 */
    bool
        is_final; /* after that loss nothing is heard of any link: the process is as good as dead */
};

static struct lossy *of(struct sh_wire *wire)
{
    return (struct lossy *)wire;
}

static enum shoal_err lossy_listen(struct sh_wire *wire, const char *address, char *bound_out)
{
    return of(wire)->inner->ops->listen(of(wire)->inner, address, bound_out);
}

static enum shoal_err lossy_open(struct sh_wire *wire, const char *address, uint64_t tag,
                                 sh_link *link_out)
{
    return of(wire)->inner->ops->open(of(wire)->inner, address, tag, link_out);
}

static void lossy_close(struct sh_wire *wire, sh_link link)
{
    if (of(wire)->doomed == link)
        of(wire)->doomed = SH_LINK_NONE;
    of(wire)->inner->ops->close(of(wire)->inner, link);
}

/* Dooms a link before what it pushes first since the put was done: the answer, or what is ahead of it. */
static void put_lose(struct lossy *lossy, sh_link link)
{
    struct sh_store_status status;
    sh_store_status_get(lossy->held, &status);
    if (status.puts < lossy->lost_put || lossy->losses)
        return;
    lossy->doomed = link;
    lossy->losses++;
}

static size_t lossy_push(struct sh_wire *wire, sh_link link, struct sh_bytes bytes)
{
    struct lossy *lossy = of(wire);
    if (lossy->held && lossy->doomed == SH_LINK_NONE)
        put_lose(lossy, link);
    if (lossy->random && lossy->doomed == SH_LINK_NONE) {
        lossy->random = sh_mix64(lossy->random) | 1;
        if ((lossy->random >> 20) % LOSS_ONE_IN == 0) {
            lossy->doomed = link;
            lossy->losses++;
        }
    }
    return lossy->doomed == link ? bytes.size : lossy->inner->ops->push(lossy->inner, link, bytes);
}

static size_t lossy_pull(struct sh_wire *wire, sh_link link, void *into, size_t room)
{
    return of(wire)->inner->ops->pull(of(wire)->inner, link, into, room);
}

static unsigned lossy_poll(struct sh_wire *wire, struct sh_wire_event *events, unsigned events_max,
                           uint64_t timeout_ns)
{
    struct lossy *lossy = of(wire);
    if (lossy->doomed == SH_LINK_NONE && lossy->is_final && lossy->losses)
        return 0;
    if (lossy->doomed == SH_LINK_NONE)
        return lossy->inner->ops->poll(lossy->inner, events, events_max, timeout_ns);
    lossy->inner->ops->close(lossy->inner, lossy->doomed);
    events[0] =
        (struct sh_wire_event){.kind = SH_WIRE_LOST, .link = lossy->doomed, .err = SHOAL_ECONNLOST};
    lossy->doomed = SH_LINK_NONE;
    return 1;
}

static void lossy_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    of(wire)->inner->ops->watch(of(wire)->inner, timeout_ns);
}

static void lossy_signal(struct sh_wire *wire)
{
    of(wire)->inner->ops->signal(of(wire)->inner);
}

static void lossy_flush(struct sh_wire *wire)
{
    if (of(wire)->inner->ops->flush)
        of(wire)->inner->ops->flush(of(wire)->inner);
}

static void lossy_destroy(struct sh_wire *wire)
{
    of(wire)->inner->ops->destroy(of(wire)->inner);
}

static const struct sh_wire_ops lossy_ops = {
    .listen = lossy_listen,
    .open = lossy_open,
    .close = lossy_close,
    .push = lossy_push,
    .pull = lossy_pull,
    .poll = lossy_poll,
    .watch = lossy_watch,
    .signal = lossy_signal,
    .flush = lossy_flush,
    .destroy = lossy_destroy,
};

/* --- A superpeer that knows one peer, and that peer ---------------------------------------- */

struct member {
    struct end end;
    struct lossy lossy;
    uint64_t instance; /* as the view has it, whose epoch it is too where it is the peer's */
    const struct member *superpeer;
    const struct member *_Atomic peer; /* its present life */
    struct sh_locks *locks;            /* the peer's, in the test of locks */
};

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct member *member = arg;
    if (member->locks)
        sh_locks_link_event(member->locks, event);
}

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    const struct member *member = arg;
    const struct member *peer = member->peer;
    struct sh_node nodes[2] = {
        {.nid = {1}, .role = SH_ROLE_SUPERPEER, .instance = 1},
        {.nid = {PEER}, .role = SH_ROLE_PEER, .instance = peer->instance},
    };
    memcpy(nodes[0].address, member->superpeer->end.address, SH_MSG_ADDRESS_MAX);
    memcpy(nodes[1].address, peer->end.address, SH_MSG_ADDRESS_MAX);
    view_reply(in, peer->instance, nodes, 2);
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    lookup_reply(in, PEER, PEER);
}

static void member_open(struct member *member, uint16_t nid, uint64_t random)
{
    member->lossy = (struct lossy){.wire = {&lossy_ops}, .random = random, .doomed = SH_LINK_NONE};
    assert_int_equal(sh_tcp_create(64, &member->lossy.inner), SHOAL_OK);
    member->end = (struct end){.wire = &member->lossy.wire, .on_event = on_event};
    end_open(&member->end, nid, 1000 * MS);
    member->instance = nid;
    sh_msg_handler_set(member->end.msg, SH_CLUSTER_VIEW_GET, SH_MSG_INLINE, on_view_get, member);
    sh_msg_handler_set(member->end.msg, SH_CLUSTER_LOOKUP, SH_MSG_INLINE, on_lookup, member);
}

static void member_run(struct member *member, const struct member *superpeer,
                       const struct member *peer)
{
    member->superpeer = superpeer;
    member->peer = peer;
    if (member->locks)
        sh_crew_step_add(member->end.crew, 0, sh_locks_step(member->locks));
    end_start(&member->end);
}

static void member_end(struct member *member)
{
    end_close(&member->end);
    sh_locks_destroy(member->locks);
    member->locks = NULL;
}

/* --- The test ------------------------------------------------------------------------------ */

static void work(shoal *store, unsigned count, unsigned *removed_out)
{
    for (unsigned i = 0; i < count; i++) {
        shoal_cid cid;
        uint8_t in[CHUNK_BYTES], out[CHUNK_BYTES];
        uint32_t size;
        memset(in, (int)(i + 1), sizeof in);
        assert_int_equal(shoal_create(store, SHOAL_NID_NONE, CHUNK_BYTES, &cid), SHOAL_OK);
        assert_int_equal(shoal_put(store, cid, in, sizeof in), SHOAL_OK);
        assert_int_equal(shoal_get(store, cid, out, sizeof out, &size), SHOAL_OK);
        assert_memory_equal(in, out, sizeof in);
        if (i % 2 == 0)
            continue;
        /* Done twice, it would say that there is no such chunk. */
        assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
        assert_int_equal(shoal_get(store, cid, out, sizeof out, &size), SHOAL_ENOCHUNK);
        ++*removed_out;
    }
}

/* Each of these would fail, or leave another value, if it was done twice. */
static void change(shoal *store, unsigned count)
{
    uint64_t sum = 0, old, before[2] = {0}, after[2] = {0};
    shoal_cid cid;
    for (unsigned i = 0; i < count; i++) {
        enum shoal_err err;
        /* Reserving is not repeated by the library: an ID may be reserved that nobody knows. */
        while ((err = shoal_reserve(store, (shoal_nid){PEER}, 1, &cid)) == SHOAL_ECONNLOST)
            ;
        assert_int_equal(err, SHOAL_OK);
        assert_int_equal(shoal_fill(store, cid, before, 8), SHOAL_OK);
        assert_int_equal(shoal_resize(store, cid, 16), SHOAL_OK);
        sum = 0;
        for (unsigned k = 1; k <= 3; k++, sum += k - 1) {
            assert_int_equal(shoal_add(store, cid, 0, 8, k, &old), SHOAL_OK);
            assert_int_equal(old, sum);
        }
        before[0] = sum;
        after[1] = i + 1;
        assert_int_equal(shoal_put_if(store, cid, before, 16, after, 16), SHOAL_OK);
        assert_int_equal(shoal_put_if_hash(store, cid, shoal_hash(after, 16), before, 16),
                         SHOAL_OK);
        assert_int_equal(shoal_put_part(store, cid, 0, after, 8), SHOAL_OK);
        before[0] = 0;
        assert_int_equal(shoal_get_part(store, cid, 0, &old, 8), SHOAL_OK);
        assert_int_equal(old, 0);
        assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    }
}

/* A superpeer, a peer that loses answers, and a client. */
struct world {
    struct member superpeer, peer;
    struct sh_store *held;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    shoal *store;
};

static void world_open(struct world *world, uint64_t seed)
{
    struct sh_store_config held = {.bytes_max = 32 << 20, .chunk_bytes_max = 1 << 16};
    member_open(&world->superpeer, 1, 0);
    member_open(&world->peer, PEER, seed | 1);
    assert_int_equal(sh_store_create(&held, &world->held), SHOAL_OK);
    chunks_serve(world->peer.end.msg, world->held, &world->backup, &world->chunks);
    member_run(&world->superpeer, &world->superpeer, &world->peer);
    member_run(&world->peer, &world->superpeer, &world->peer);
    struct shoal_options options = {.addresses = world->superpeer.end.address,
                                    .timeout_ns = DEADLINE_NS};
    assert_int_equal(shoal_open(&options, &world->store), SHOAL_OK);
}

/* Stops all; what the peer holds can still be looked at. */
static void world_end(struct world *world)
{
    shoal_close(world->store);
    member_end(&world->peer);
    member_end(&world->superpeer);
}

static void world_close(struct world *world)
{
    sh_chunks_destroy(world->chunks);
    sh_backup_destroy(world->backup);
    sh_store_destroy(world->held);
}

static void test_lost_answers(void **state)
{
    (void)state;
    const unsigned count = 120;
    static struct world world;
    struct sh_store_status status;
    unsigned removed = 0;
    world_open(&world, test_seed(rig_now()));
    work(world.store, count, &removed);
    sh_store_status_get(world.held, &status);
    assert_int_equal(status.creates, count);
    assert_int_equal(status.puts, count);
    assert_int_equal(status.removes, removed);
    change(world.store, CHANGES);
    struct sh_msg_stats stats;
    sh_msg_stats_get(world.peer.end.msg, &stats);
    print_message("%llu repeats\n", (unsigned long long)stats.repeats);
    assert_true(stats.repeats > 0);
    world_end(&world);

    sh_store_status_get(world.held, &status);
    assert_int_equal(status.creates, count + CHANGES);
    assert_int_equal(status.chunks, count - removed);
    print_message("%u losses\n", world.peer.lossy.losses);
    assert_true(world.peer.lossy.losses > 10);
    world_close(&world);
}

/* --- Another life -------------------------------------------------------------------------- */

/* A life of the peer, on the chunks that the lives before it left. */
static void life_open(struct member *peer, struct sh_store *held, uint64_t instance,
                      struct sh_backup **backup_out, struct sh_chunks **chunks_out)
{
    member_open(peer, PEER, 0);
    peer->instance = instance;
    sh_msg_instance_set(peer->end.msg, instance);
    peer->lossy.held = held;
    chunks_serve(peer->end.msg, held, backup_out, chunks_out);
}

static void loss_await(const struct member *peer)
{
    uint64_t deadline = rig_now() + DEADLINE_NS;
    while (!peer->lossy.losses)
        assert_true(rig_now() < deadline);
}

/* A put whose answer one life of the peer has lost, and another life on the same chunks. */
struct lives {
    struct member superpeer, former, latter;
    struct sh_store *held;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    shoal *store;
    shoal_cid cid;
    uint64_t value;
    struct shoal_call call;
};

/* The former life has done the put, and is gone; the latter one is yet to be run. */
static void lives_open(struct lives *lives)
{
    struct sh_store_config held = {.bytes_max = 32 << 20, .chunk_bytes_max = 1 << 16};
    shoal_cid local;
    *lives = (struct lives){.value = 7};
    assert_int_equal(sh_store_create(&held, &lives->held), SHOAL_OK);
    assert_int_equal(sh_store_new_many(lives->held, sizeof lives->value, 1, &local), SHOAL_OK);
    lives->cid = shoal_cid_make((shoal_nid){PEER}, local.v);
    member_open(&lives->superpeer, 1, 0);
    life_open(&lives->former, lives->held, PEER, &lives->backup, &lives->chunks);
    lives->former.lossy.lost_put = 1;
    lives->former.lossy.is_final = true;
    member_run(&lives->superpeer, &lives->superpeer, &lives->former);
    member_run(&lives->former, &lives->superpeer, &lives->former);
    lives->store = rig_open(lives->superpeer.end.address, DEADLINE_NS);
    assert_int_equal(
        shoal_put_async(lives->store, lives->cid, &lives->value, sizeof lives->value, &lives->call),
        SHOAL_OK);
    loss_await(&lives->former);
    member_end(&lives->former);
    sh_chunks_destroy(lives->chunks);
    sh_backup_destroy(lives->backup);
    life_open(&lives->latter, lives->held, PEER + 1, &lives->backup, &lives->chunks);
}

static void latter_run(struct lives *lives)
{
    member_run(&lives->latter, &lives->superpeer, &lives->latter);
    lives->superpeer.peer = &lives->latter;
}

static uint64_t puts_of(const struct lives *lives)
{
    struct sh_store_status status;
    sh_store_status_get(lives->held, &status);
    return status.puts;
}

static void lives_close(struct lives *lives)
{
    shoal_close(lives->store);
    member_end(&lives->latter);
    member_end(&lives->superpeer);
    sh_chunks_destroy(lives->chunks);
    sh_backup_destroy(lives->backup);
    sh_store_destroy(lives->held);
}

/* A put whose answer was lost is not sent again to another life of the peer, though that has the same chunk
 * and would do it; what is sent to that life first is sent to it again. */
static void test_another_life(void **state)
{
    (void)state;
    static struct lives lives;
    lives_open(&lives);
    lives.latter.lossy.lost_put = 2;
    latter_run(&lives);
    assert_int_equal(shoal_wait(lives.store, &lives.call), SHOAL_ECONNLOST);
    assert_int_equal(puts_of(&lives), 1);
    assert_int_equal(shoal_put(lives.store, lives.cid, &lives.value, sizeof lives.value), SHOAL_OK);
    assert_int_equal(lives.latter.lossy.losses, 1);
    assert_int_equal(puts_of(&lives), 2);
    lives_close(&lives);
}

/* Another life of the peer answers this when it is asked. */
static struct {
    enum shoal_err err; /* in place of an answer */
    bool is_known;
    uint64_t value;
    unsigned asked;
} outcome;

static void on_outcome(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    shoal_cid cid = {sh_get64(&in->payload)};
    struct sh_out out;
    (void)sh_get64(&in->payload);
    assert_int_equal(sh_get16(&in->payload), PEER);
    assert_int_equal(sh_get64(&in->payload), 1); /* the client's first number for that node */
    assert_true(sh_reader_done(&in->payload) && cid.v >> 48 == PEER);
    outcome.asked++;
    if (outcome.err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, outcome.err, NULL);
        return;
    }
    assert_int_equal(
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVES_OUTCOME_ANSWER_BYTES, &out),
        SHOAL_OK);
    sh_put8(&out.w, outcome.is_known);
    sh_put16(&out.w, SHOAL_OK);
    sh_put64(&out.w, outcome.value);
    sh_msg_end(in->msg, &out);
}

/* A put is done by one life, whose answer is lost, and the next life is asked; returns what came of the call. *puts_out: how often
 * the store was written to. */
static enum shoal_err put_over_lives(uint64_t *puts_out)
{
    static struct lives lives;
    lives_open(&lives);
    sh_msg_handler_set(lives.latter.end.msg, SH_MOVES_OUTCOME, SH_MSG_INLINE, on_outcome, NULL);
    outcome.asked = 0;
    latter_run(&lives);
    enum shoal_err err = shoal_wait(lives.store, &lives.call);
    *puts_out = puts_of(&lives);
    assert_true(outcome.asked > 0);
    lives_close(&lives);
    return err;
}

/* It knows that the put was done; or that it was not; or it has forgotten all. */
static void test_another_life_knows(void **state)
{
    (void)state;
    uint64_t puts;
    outcome.err = SHOAL_OK;
    outcome.is_known = true;
    assert_int_equal(put_over_lives(&puts), SHOAL_OK);
    assert_int_equal(puts, 1);
    outcome.is_known = false;
    assert_int_equal(put_over_lives(&puts), SHOAL_OK);
    assert_int_equal(puts, 2);
    outcome.err = SHOAL_EFAILED;
    assert_int_not_equal(put_over_lives(&puts), SHOAL_OK);
    assert_int_equal(puts, 1);
}

/* --- Many threads, judged ------------------------------------------------------------------ */

static enum shoal_err on_create(void *arg, uint32_t size, shoal_cid *cid_out)
{
    return shoal_create(arg, SHOAL_NID_NONE, size, cid_out);
}

static enum shoal_err on_get(void *arg, shoal_cid cid, void *into, uint32_t room,
                             uint32_t *size_out)
{
    return shoal_get(arg, cid, into, room, size_out);
}

static enum shoal_err on_put(void *arg, shoal_cid cid, const void *data, uint32_t size)
{
    return shoal_put(arg, cid, data, size);
}

static enum shoal_err on_put_if(void *arg, shoal_cid cid, const void *expected, const void *data,
                                uint32_t size)
{
    return shoal_put_if(arg, cid, expected, size, data, size);
}

static enum shoal_err on_add(void *arg, shoal_cid cid, uint64_t delta, uint64_t *old_out)
{
    return shoal_add(arg, cid, 0, 8, delta, old_out);
}

static enum shoal_err on_resize(void *arg, shoal_cid cid, uint32_t size)
{
    return shoal_resize(arg, cid, size);
}

static enum shoal_err on_remove(void *arg, shoal_cid cid)
{
    return shoal_remove(arg, cid);
}

/* What is repeated must not be done twice, and not after what came later: both would show. */
static void test_lost_answers_in_order(void **state)
{
    (void)state;
    uint64_t drawn = test_seed(rig_now());
    struct linear_store good = {.create = on_create,
                                .get = on_get,
                                .put = on_put,
                                .put_if = on_put_if,
                                .add = on_add,
                                .resize = on_resize,
                                .remove = on_remove};
    static struct world world;
    world_open(&world, drawn);
    good.arg = world.store;
    assert_int_equal(linear_rounds(&good, false, drawn, ROUNDS, true), ROUNDS);
    assert_int_equal(linear_rounds(&good, true, drawn, ROUNDS, true), ROUNDS);
    world_end(&world);
    print_message("%u losses\n", world.peer.lossy.losses);
    assert_true(world.peer.lossy.losses > 10);
    world_close(&world);
}

/* --- Locks --------------------------------------------------------------------------------- */

#define LOCKERS 3
#define LOCK_ROUNDS 60
#define LEASE_NS (600000 * MS)

struct locker {
    pthread_t thread;
    const char *address;
    shoal_cid cid;
    unsigned fell; /* locks that were gone when they were used */
};

/* A lock that was granted may be gone, since each answer may be the last on its connection; but it
 * is always granted, in spite of that, and the next one need not wait for its lease. */
static void *locker_main(void *arg)
{
    struct locker *locker = arg;
    shoal *store = rig_open(locker->address, DEADLINE_NS);
    for (int i = 0; i < LOCK_ROUNDS; i++) {
        assert_int_equal(shoal_lock(store, locker->cid, SHOAL_OWNER_HANDLE, SHOAL_LOCK_WRITE,
                                    LEASE_NS, DEADLINE_NS),
                         SHOAL_OK);
        enum shoal_err err =
            i % 2 ? shoal_lock_extend(store, locker->cid, SHOAL_OWNER_HANDLE, LEASE_NS)
                  : shoal_lock_swap(store, locker->cid, SHOAL_OWNER_HANDLE, SHOAL_LOCK_READ,
                                    LEASE_NS);
        assert_true(err == SHOAL_OK || err == SHOAL_ENOLOCK);
        locker->fell += err == SHOAL_ENOLOCK;
        err = shoal_unlock(store, locker->cid, SHOAL_OWNER_HANDLE);
        assert_true(err == SHOAL_OK || err == SHOAL_ENOLOCK);
    }
    shoal_close(store);
    return NULL;
}

static bool none(void *arg, const struct shoal_lock_info *lock)
{
    bool *found = arg;
    (void)lock;
    *found = true;
    return false;
}

static void lockers_run(const struct member *superpeer, struct sh_store *held)
{
    static struct locker lockers[LOCKERS];
    shoal_cid local;
    assert_int_equal(sh_store_new_many(held, 8, 1, &local), SHOAL_OK);
    for (size_t i = 0; i < LOCKERS; i++) {
        lockers[i] = (struct locker){.address = superpeer->end.address,
                                     .cid = shoal_cid_make((shoal_nid){PEER}, local.v)};
        assert_int_equal(pthread_create(&lockers[i].thread, NULL, locker_main, &lockers[i]), 0);
    }
    unsigned fell = 0;
    for (size_t i = 0; i < LOCKERS; i++) {
        pthread_join(lockers[i].thread, NULL);
        fell += lockers[i].fell;
    }
    print_message("%u locks fell\n", fell);
    assert_true(fell > 0);
}

static void test_locks(void **state)
{
    (void)state;
    uint64_t seed = test_seed(rig_now());
    static struct member superpeer, peer;
    struct sh_store *held;
    struct sh_store_config held_config = {.bytes_max = 32 << 20, .chunk_bytes_max = 1 << 16};
    member_open(&superpeer, 1, 0);
    member_open(&peer, PEER, seed | 1);
    assert_int_equal(sh_store_create(&held_config, &held), SHOAL_OK);
    struct sh_locks_config config = {.msg = peer.end.msg,
                                     .store = held,
                                     .clock = sh_real_clock(),
                                     .wake = end_wake,
                                     .arg = &peer.end};
    assert_int_equal(sh_locks_create(&config, &peer.locks), SHOAL_OK);
    member_run(&superpeer, &superpeer, &peer);
    member_run(&peer, &superpeer, &peer);
    lockers_run(&superpeer, held);

    /* All that is left falls with the connections of those who are gone. */
    shoal *store = rig_open(superpeer.end.address, DEADLINE_NS);
    uint64_t deadline = rig_now() + DEADLINE_NS;
    bool found = true;
    while (found) {
        found = false;
        enum shoal_err err = shoal_locks(store, (shoal_nid){PEER}, none, &found);
        assert_true(err == SHOAL_OK || err == SHOAL_ECONNLOST || err == SHOAL_EUNREACHABLE);
        found |= err != SHOAL_OK;
        assert_true(rig_now() < deadline);
    }
    shoal_close(store);
    member_end(&peer);
    member_end(&superpeer);
    print_message("%u losses\n", peer.lossy.losses);
    assert_true(peer.lossy.losses > 10);
    sh_store_destroy(held);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("warn", &bad, &bad_size) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_answers), cmocka_unit_test(test_another_life),
        cmocka_unit_test(test_another_life_knows), cmocka_unit_test(test_lost_answers_in_order),
        cmocka_unit_test(test_locks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
