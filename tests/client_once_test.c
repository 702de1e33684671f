/* libshoal where answers get lost: a peer executes each request, and now and then its connection
 * breaks before the answer has left. Creates, puts and removes succeed all the same, and the peer
 * has done each of them exactly once.
 *
 * SHOAL_TEST_SEED: which answers are lost (default: from the clock; printed). */
#include "tests/client_rig.h"

#include "base/hash.h"
#include "cluster/proto.h"
#include "cluster/view.h"
#include "msg/tcp.h"
#include "node/chunks.h"
#include "store/store.h"

#define PEER 64
#define CHUNK_BYTES 32
#define LOSS_ONE_IN 6

/* TCP that loses what is pushed, and the link with it. */
struct lossy {
    struct sh_wire wire;
    struct sh_wire *inner;
    uint64_t random; /* 0: loses nothing */
    sh_link doomed;
    unsigned losses;
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

static size_t lossy_push(struct sh_wire *wire, sh_link link, struct sh_bytes bytes)
{
    struct lossy *lossy = of(wire);
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
    struct lossy lossy;
    struct sh_msg *msg;
    struct sh_crew *crew;
    char address[SH_MSG_ADDRESS_MAX];
    const struct member *superpeer, *peer;
};

static void wake(void *arg)
{
    struct member *member = arg;
    sh_crew_wake(member->crew, 0);
}

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    const struct member *member = arg;
    struct sh_node nodes[2] = {
        {.nid = {1}, .role = SH_ROLE_SUPERPEER, .instance = 1},
        {.nid = {PEER}, .role = SH_ROLE_PEER, .instance = 2},
    };
    memcpy(nodes[0].address, member->superpeer->address, SH_MSG_ADDRESS_MAX);
    memcpy(nodes[1].address, member->peer->address, SH_MSG_ADDRESS_MAX);
    struct sh_view view = {.epoch = 5, .superpeers = 1, .count = 2, .nodes = nodes};
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 1 + sh_view_size(&view), &out) != SHOAL_OK)
        return;
    sh_put8(&out.w, SH_ANSWER_VIEW);
    sh_view_put_all(&out.w, &view);
    sh_msg_end(in->msg, &out);
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_LOOKUP_ANSWER_BYTES, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, shoal_cid_make((shoal_nid){PEER}, 0).v);
    sh_put64(&out.w, shoal_cid_make((shoal_nid){PEER}, SHOAL_LOCAL_ID_MAX).v);
    sh_put16(&out.w, PEER);
    sh_msg_end(in->msg, &out);
}

static void member_open(struct member *member, uint16_t nid, uint64_t random)
{
    member->lossy = (struct lossy){.wire = {&lossy_ops}, .random = random, .doomed = SH_LINK_NONE};
    assert_int_equal(sh_tcp_create(64, &member->lossy.inner), SHOAL_OK);
    struct sh_clock clock = sh_real_clock();
    struct sh_crew_config crew = {.name = "member", .threads = 1, .now_ns = clock.now_ns};
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "shoal",
        .connections_max = 64,
        .requests_max = 64,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = 1000 * MS,
        .connect_timeout_ns = 1000 * MS,
        .env = {.clock = clock, .random = sh_real_random(), .wire = &member->lossy.wire},
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = member,
    };
    assert_int_equal(sh_crew_create(&crew, &member->crew), SHOAL_OK);
    assert_int_equal(sh_msg_create(&config, &member->msg), SHOAL_OK);
    assert_int_equal(sh_msg_listen(member->msg, "127.0.0.1:0", member->address), SHOAL_OK);
    sh_msg_handler_set(member->msg, SH_CLUSTER_VIEW_GET, SH_MSG_INLINE, on_view_get, member);
    sh_msg_handler_set(member->msg, SH_CLUSTER_LOOKUP, SH_MSG_INLINE, on_lookup, member);
}

static void member_run(struct member *member, const struct member *superpeer,
                       const struct member *peer)
{
    member->superpeer = superpeer;
    member->peer = peer;
    sh_crew_parker_set(member->crew, 0, sh_msg_parker(member->msg));
    sh_crew_step_add(member->crew, 0, sh_msg_transport_step(member->msg));
    assert_int_equal(sh_crew_start(member->crew), SHOAL_OK);
}

static void member_end(struct member *member)
{
    sh_crew_stop(member->crew);
    sh_msg_destroy(member->msg);
    sh_crew_destroy(member->crew);
    member->lossy.wire.ops->destroy(&member->lossy.wire);
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

static void test_lost_answers(void **state)
{
    (void)state;
    const unsigned count = 120;
    const char *text = getenv("SHOAL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : rig_now();
    print_message("SHOAL_TEST_SEED=%llu\n", (unsigned long long)seed);
    static struct member superpeer, peer;
    struct sh_store *held;
    struct sh_chunks *chunks;
    struct sh_store_config held_config = {.bytes_max = 32 << 20, .chunk_bytes_max = 1 << 16};
    member_open(&superpeer, 1, 0);
    member_open(&peer, PEER, seed | 1);
    assert_int_equal(sh_store_create(&held_config, &held), SHOAL_OK);
    assert_int_equal(sh_chunks_create(peer.msg, held, 1 << 16, &chunks), SHOAL_OK);
    member_run(&superpeer, &superpeer, &peer);
    member_run(&peer, &superpeer, &peer);

    struct shoal_options options = {.addresses = superpeer.address, .timeout_ns = DEADLINE_NS};
    shoal *store;
    unsigned removed = 0;
    assert_int_equal(shoal_open(&options, &store), SHOAL_OK);
    work(store, count, &removed);
    shoal_close(store);

    struct sh_msg_stats stats;
    sh_msg_stats_get(peer.msg, &stats);
    print_message("%llu repeats\n", (unsigned long long)stats.repeats);
    assert_true(stats.repeats > 0);
    member_end(&peer);
    member_end(&superpeer);
    struct sh_store_status status;
    sh_store_status_get(held, &status);
    assert_int_equal(status.creates, count);
    assert_int_equal(status.puts, count);
    assert_int_equal(status.removes, removed);
    assert_int_equal(status.chunks, count - removed);
    print_message("%u losses\n", peer.lossy.losses);
    assert_true(peer.lossy.losses > 10);
    sh_chunks_destroy(chunks);
    sh_store_destroy(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lost_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
