/* The simulated wire keeps what env/wire.h promises, and has the faults it is told to have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/world.h"

#define MS UINT64_C(1000000)
#define EVENTS 16
#define LINKS 8

/* One side of a stream: sends bytes of a known sequence and checks those of the other side. */
struct stream {
    sh_link link;
    bool open;
    bool lost;
    enum shoal_err err;
    uint64_t tag;
    uint64_t to_send;
    uint64_t sent;
    uint64_t received;
    bool reads;
    bool may_push;
    unsigned writable_events;
};

struct peer {
    struct sh_world *world;
    unsigned node;
    struct stream streams[LINKS];
    unsigned count;
    bool wrong; /* a byte was not the one expected */
    uint64_t to_send_accepted;
};

static uint8_t byte_at(uint64_t place)
{
    return (uint8_t)(sh_mix64(place / 8) >> (8 * (place % 8)));
}

static struct sh_wire *wire_of(const struct peer *peer)
{
    return sh_world_env(peer->world, peer->node)->wire;
}

static struct stream *stream_of(struct peer *peer, sh_link link)
{
    for (unsigned i = 0; i < peer->count; i++) {
        if (peer->streams[i].link == link && !peer->streams[i].lost)
            return &peer->streams[i];
    }
    return NULL;
}

static struct stream *stream_add(struct peer *peer, sh_link link)
{
    assert_true(peer->count < LINKS);
    struct stream *stream = &peer->streams[peer->count++];
    *stream = (struct stream){.link = link, .reads = true, .to_send = peer->to_send_accepted};
    return stream;
}

static void handle(struct peer *peer, const struct sh_wire_event *event)
{
    struct stream *stream = stream_of(peer, event->link);
    switch (event->kind) {
    case SH_WIRE_ACCEPTED:
        assert_null(stream);
        stream = stream_add(peer, event->link);
        stream->open = stream->may_push = true;
        break;
    case SH_WIRE_OPENED:
        assert_non_null(stream);
        assert_int_equal(event->tag, stream->tag);
        stream->open = stream->may_push = true;
        break;
    case SH_WIRE_READABLE:
        assert_non_null(stream);
        assert_true(stream->open);
        break;
    case SH_WIRE_WRITABLE:
        assert_non_null(stream);
        assert_false(stream->may_push);
        stream->may_push = true;
        stream->writable_events++;
        break;
    case SH_WIRE_LOST:
        assert_non_null(stream);
        assert_int_equal(event->tag, stream->tag);
        stream->lost = true;
        stream->open = false;
        stream->err = event->err;
        break;
    }
}

static unsigned stream_work(struct peer *peer, struct stream *stream)
{
    uint8_t buffer[300];
    unsigned worked = 0;
    if (stream->may_push && stream->sent < stream->to_send) {
        uint64_t left = stream->to_send - stream->sent;
        size_t size = left < sizeof buffer ? (size_t)left : sizeof buffer;
        for (size_t i = 0; i < size; i++)
            buffer[i] = byte_at(stream->sent + i);
        size_t took =
            wire_of(peer)->ops->push(wire_of(peer), stream->link, sh_bytes_make(buffer, size));
        assert_true(took <= size);
        stream->sent += took;
        stream->may_push = took == size;
        worked += took > 0;
    }
    if (stream->reads) {
        size_t got = wire_of(peer)->ops->pull(wire_of(peer), stream->link, buffer, sizeof buffer);
        assert_true(got <= sizeof buffer);
        for (size_t i = 0; i < got; i++)
            peer->wrong = peer->wrong || buffer[i] != byte_at(stream->received + i);
        stream->received += got;
        worked += got > 0;
    }
    return worked;
}

static unsigned peer_step(void *arg)
{
    struct peer *peer = arg;
    struct sh_wire_event events[EVENTS];
    unsigned worked = 0;
    unsigned count = wire_of(peer)->ops->poll(wire_of(peer), events, EVENTS, 0);
    for (unsigned i = 0; i < count; i++) {
        handle(peer, &events[i]);
        worked += events[i].kind != SH_WIRE_READABLE;
    }
    for (unsigned i = 0; i < peer->count; i++) {
        if (peer->streams[i].open)
            worked += stream_work(peer, &peer->streams[i]);
    }
    return worked;
}

static void peer_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct peer *peer = arg;
    char address[64];
    char bound[64];
    peer->world = world;
    peer->node = node;
    peer->count = 0;
    snprintf(address, sizeof address, "node%u:4100", node);
    assert_int_equal(wire_of(peer)->ops->listen(wire_of(peer), address, bound), SHOAL_OK);
    assert_string_equal(bound, address);
    sh_world_step_add(world, node, (struct sh_step){.name = "peer", .run = peer_step, .arg = peer});
}

static void peer_crash(void *arg, struct sh_world *world, unsigned node)
{
    (void)world;
    (void)node;
    ((struct peer *)arg)->count = 0;
}

static struct sh_world *two_peers(struct peer *peers, const struct sh_wire_faults *faults,
                                  uint64_t seed)
{
    struct sh_world_config config = {.seed = seed, .wire = *faults};
    struct sh_world *world = sh_world_create(&config);
    memset(peers, 0, 2 * sizeof *peers);
    for (unsigned i = 0; i < 2; i++) {
        struct sh_world_node node = {.boot = peer_boot, .crash = peer_crash, .arg = &peers[i]};
        sh_world_node_add(world, &node);
    }
    return world;
}

static struct stream *connect_to(struct peer *peer, const char *address, uint64_t to_send)
{
    sh_link link;
    assert_int_equal(wire_of(peer)->ops->open(wire_of(peer), address, 77, &link), SHOAL_OK);
    struct stream *stream = stream_add(peer, link);
    stream->tag = 77;
    stream->to_send = to_send;
    return stream;
}

static void run_for(struct sh_world *world, uint64_t ns)
{
    (void)sh_world_run_until(world, NULL, NULL, sh_world_now(world) + ns);
}

static const struct sh_wire_faults rough = {.delay_ns_min = 1000,
                                            .delay_ns_max = 200000,
                                            .slow_ppm = 50000,
                                            .slow_ns_max = 5 * MS,
                                            .piece_ppm = 500000,
                                            .lost_ns_max = 20 * MS,
                                            .give_up_ns_max = 100 * MS,
                                            .window_bytes_min = 64,
                                            .window_bytes_max = 4096};

static void bytes_arrive_whole_and_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct peer peers[2];
        struct sh_world *world = two_peers(peers, &rough, seed);
        peers[1].to_send_accepted = 20000;
        connect_to(&peers[0], "node1:4100", 30000);
        run_for(world, 60000 * MS);
        assert_int_equal(peers[0].count, 1);
        assert_int_equal(peers[1].count, 1);
        assert_int_equal(peers[1].streams[0].received, 30000);
        assert_int_equal(peers[0].streams[0].received, 20000);
        assert_false(peers[0].wrong || peers[1].wrong);
        assert_true(peers[0].streams[0].writable_events > 0);
        sh_world_destroy(world);
    }
}

static void window_bounds_what_is_under_way(void **state)
{
    (void)state;
    struct peer peers[2];
    struct sh_wire_faults faults = {.window_bytes_min = 1000, .window_bytes_max = 1000};
    struct sh_world *world = two_peers(peers, &faults, 3);
    struct stream *stream = connect_to(&peers[0], "node1:4100", 5000);
    run_for(world, MS / 1000000); /* not long enough for the other side to do anything */
    sh_world_pause(world, 1);
    run_for(world, 100 * MS);
    assert_true(stream->sent <= 1000);
    sh_world_resume(world, 1);
    run_for(world, 1 * MS);
    peers[1].streams[0].reads = false;
    uint64_t before = peers[1].streams[0].received;
    assert_true(before > 0);
    run_for(world, 100 * MS);
    assert_true(stream->sent - peers[1].streams[0].received <= 1000);
    peers[1].streams[0].reads = true;
    run_for(world, 100 * MS);
    assert_int_equal(peers[1].streams[0].received, 5000);
    assert_false(peers[1].wrong);
    sh_world_destroy(world);
}

static void addresses_are_checked(void **state)
{
    (void)state;
    struct peer peers[2];
    struct sh_wire_faults faults = {0};
    struct sh_world *world = two_peers(peers, &faults, 1);
    struct sh_wire *wire = wire_of(&peers[0]);
    sh_link link;
    char bound[64];
    static const char *const bad[] = {
        "",          "node",        "node1",      "node1:",  "node1:x",  "node1:0",
        "1.2.3.4:5", "node1:70000", "node1100:1", "nodex:1", "node1:1 ", "node-1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(wire->ops->open(wire, bad[i], 0, &link), SHOAL_EADDRESS);
    assert_int_equal(wire->ops->listen(wire, "node0:4100", bound), SHOAL_EADDRINUSE);
    assert_int_equal(wire->ops->listen(wire, "node1:5000", bound), SHOAL_EADDRESS);
    assert_int_equal(wire->ops->listen(wire, "node0:5000", bound), SHOAL_OK);
    assert_string_equal(bound, "node0:5000");
    assert_int_equal(wire->ops->listen(wire, "node0:0", bound), SHOAL_OK);
    assert_string_equal(bound, "node0:4101"); /* 4100 is taken */
    struct stream *nobody = connect_to(&peers[0], "node1:9", 10);
    struct stream *nowhere = connect_to(&peers[0], "node7:4100", 10);
    run_for(world, 10 * MS);
    assert_true(nobody->lost && nowhere->lost);
    assert_int_equal(nobody->err, SHOAL_EUNREACHABLE);
    assert_int_equal(nowhere->err, SHOAL_EUNREACHABLE);
    sh_world_destroy(world);
}

static void close_delivers_what_was_pushed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct peer peers[2];
        struct sh_wire_faults faults = rough;
        faults.window_bytes_min = faults.window_bytes_max = 10000;
        struct sh_world *world = two_peers(peers, &faults, seed);
        struct stream *stream = connect_to(&peers[0], "node1:4100", 5000);
        while (stream->sent < 5000)
            run_for(world, MS / 10);
        stream->open = false;
        wire_of(&peers[0])->ops->close(wire_of(&peers[0]), stream->link);
        run_for(world, 1000 * MS);
        assert_true(peers[1].streams[0].lost);
        assert_int_equal(peers[1].streams[0].err, SHOAL_ECONNLOST);
        assert_int_equal(peers[1].streams[0].received, 5000);
        assert_false(peers[1].wrong);
        assert_false(stream->lost); /* no event for who closed it */
        sh_world_destroy(world);
    }
}

static void cut_loses_the_link_at_both_ends(void **state)
{
    (void)state;
    bool bytes_were_lost = false;
    bool ends_differed = false;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct peer peers[2];
        struct sh_world *world = two_peers(peers, &rough, seed);
        struct stream *stream = connect_to(&peers[0], "node1:4100", 1u << 30);
        run_for(world, 50 * MS);
        assert_true(stream->open);
        sh_world_cut(world, 0, 1);
        for (uint64_t i = 0; i < 400; i++) {
            run_for(world, MS / 10);
            ends_differed = ends_differed || stream->lost != peers[1].streams[0].lost;
        }
        assert_true(stream->lost && peers[1].streams[0].lost);
        assert_int_equal(stream->err, SHOAL_ECONNLOST);
        assert_false(peers[1].wrong);
        bytes_were_lost = bytes_were_lost || peers[1].streams[0].received < stream->sent;
        /* A new link works at once, and begins at the beginning. */
        connect_to(&peers[0], "node1:4100", 1000);
        run_for(world, 1000 * MS);
        assert_int_equal(peers[1].streams[1].received, 1000);
        sh_world_destroy(world);
    }
    assert_true(bytes_were_lost);
    assert_true(ends_differed);
}

static void partition_holds_bytes_back_until_it_heals(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct peer peers[2];
        struct sh_world *world = two_peers(peers, &rough, seed);
        peers[1].to_send_accepted = 1u << 30;
        struct stream *stream = connect_to(&peers[0], "node1:4100", 20000);
        run_for(world, 10 * MS);
        bool one_way = seed % 2;
        sh_world_partition(world, 1, 2, one_way);
        run_for(world, 6 * MS); /* the slowest piece that was past the edge is there */
        uint64_t arrived = peers[1].streams[0].received;
        uint64_t back = stream->received;
        run_for(world, 30 * MS);
        assert_int_equal(peers[1].streams[0].received, arrived);
        assert_true(one_way ? stream->received > back : stream->received >= back);
        sh_world_heal(world);
        run_for(world, 2000 * MS);
        assert_false(stream->lost || peers[1].streams[0].lost);
        assert_int_equal(peers[1].streams[0].received, 20000);
        assert_false(peers[0].wrong || peers[1].wrong);
        sh_world_destroy(world);
    }
}

static void long_partition_loses_links_and_opens(void **state)
{
    (void)state;
    struct peer peers[2];
    struct sh_world *world = two_peers(peers, &rough, 11);
    struct stream *stream = connect_to(&peers[0], "node1:4100", 1u << 30);
    run_for(world, 50 * MS);
    assert_true(stream->open);
    sh_world_partition(world, 2, 1, true);
    struct stream *late = connect_to(&peers[0], "node1:4100", 100);
    run_for(world, 300 * MS);
    assert_true(stream->lost && peers[1].streams[0].lost && late->lost);
    assert_int_equal(late->err, SHOAL_EUNREACHABLE);
    assert_int_equal(peers[1].count, 1);
    sh_world_heal(world);
    connect_to(&peers[0], "node1:4100", 100);
    run_for(world, 300 * MS);
    assert_int_equal(peers[1].streams[1].received, 100);
    sh_world_destroy(world);
}

static void crash_loses_links_and_restart_listens(void **state)
{
    (void)state;
    struct peer peers[2];
    struct sh_world *world = two_peers(peers, &rough, 5);
    struct stream *stream = connect_to(&peers[0], "node1:4100", 1u << 30);
    run_for(world, 50 * MS);
    assert_true(stream->open);
    sh_world_crash(world, 1);
    assert_false(sh_world_is_up(world, 1));
    run_for(world, 100 * MS);
    assert_true(stream->lost);
    assert_int_equal(stream->err, SHOAL_ECONNLOST);
    struct stream *dead = connect_to(&peers[0], "node1:4100", 10);
    run_for(world, 300 * MS);
    assert_int_equal(dead->err, SHOAL_EUNREACHABLE);
    char bound[64];
    struct sh_wire *wire = wire_of(&peers[1]);
    assert_int_equal(wire->ops->listen(wire, "node1:1", bound), SHOAL_EIO);
    sh_world_restart(world, 1);
    connect_to(&peers[0], "node1:4100", 1000);
    run_for(world, 1000 * MS);
    assert_int_equal(peers[1].streams[0].received, 1000);
    sh_world_destroy(world);
}

static void refusals_and_cuts_happen_by_chance(void **state)
{
    (void)state;
    unsigned refused = 0;
    unsigned cut = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct peer peers[2];
        struct sh_wire_faults faults = rough;
        faults.refuse_ppm = 300000;
        faults.cut_ppm = 20000;
        struct sh_world *world = two_peers(peers, &faults, seed);
        struct stream *stream = connect_to(&peers[0], "node1:4100", 20000);
        run_for(world, 5000 * MS);
        refused += stream->lost && stream->err == SHOAL_EUNREACHABLE;
        cut += stream->lost && stream->err == SHOAL_ECONNLOST;
        assert_false(peers[1].wrong);
        sh_world_destroy(world);
    }
    assert_in_range(refused, 5, 40);
    assert_in_range(cut, 5, 50);
}

/* Each lie shows in the bytes: the canary of this file's own checks. */
static void lies_are_noticed(void **state)
{
    (void)state;
    for (enum sh_wire_lie lie = SH_WIRE_TWICE; lie <= SH_WIRE_DROP; lie++) {
        unsigned noticed = 0;
        for (uint64_t seed = 1; seed <= 10; seed++) {
            struct peer peers[2];
            struct sh_wire_faults faults = rough;
            faults.lie = lie;
            faults.lie_ppm = 50000;
            struct sh_world *world = two_peers(peers, &faults, seed);
            connect_to(&peers[0], "node1:4100", 30000);
            run_for(world, 60000 * MS);
            noticed += peers[1].wrong;
            sh_world_destroy(world);
        }
        assert_int_equal(noticed, 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_whole_and_in_order),
        cmocka_unit_test(window_bounds_what_is_under_way),
        cmocka_unit_test(addresses_are_checked),
        cmocka_unit_test(close_delivers_what_was_pushed),
        cmocka_unit_test(cut_loses_the_link_at_both_ends),
        cmocka_unit_test(partition_holds_bytes_back_until_it_heals),
        cmocka_unit_test(long_partition_loses_links_and_opens),
        cmocka_unit_test(crash_loses_links_and_restart_listens),
        cmocka_unit_test(refusals_and_cuts_happen_by_chance),
        cmocka_unit_test(lies_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
