/* Receive blocks: three sizes, reuse, and the bound on what waits for handler steps. */
#include "msg/bulk.h"
#include "msg/stream_test.h"

#define TYPE_POOLED SH_MSG_TYPE(9, 1)
#define TYPE_ORDERED SH_MSG_TYPE(9, 2)
#define TYPE_INLINE SH_MSG_TYPE(9, 3)
#define BOUND (256 * 1024)

struct seen {
    uint64_t pooled, ordered, inlined;
};

static void on_pooled(void *arg, struct sh_msg_in *in)
{
    struct seen *seen = arg;
    assert_int_equal(sh_get64(&in->payload), seen->pooled);
    seen->pooled++;
}

static void on_ordered(void *arg, struct sh_msg_in *in)
{
    struct seen *seen = arg;
    assert_int_equal(sh_get64(&in->payload), seen->ordered);
    seen->ordered++;
}

static void on_inline(void *arg, struct sh_msg_in *in)
{
    struct seen *seen = arg;
    seen->inlined++;
    assert_true(sh_reader_ok(&in->payload));
}

static void open_with(struct pair *pair, struct seen *seen, uint64_t bound)
{
    pair_open(pair, &(struct sh_msg_config){.receive_bytes_max = bound, .ring_bytes = 8 << 20});
    struct sh_msg *msg = pair->ends[1].msg;
    *seen = (struct seen){0};
    sh_msg_handler_set(msg, TYPE_POOLED, SH_MSG_POOLED, on_pooled, seen);
    sh_msg_handler_set(msg, TYPE_ORDERED, SH_MSG_ORDERED, on_ordered, seen);
    sh_msg_handler_set(msg, TYPE_INLINE, SH_MSG_INLINE, on_inline, seen);
}

/* Rounds enough for all that can arrive while no handler runs. (The wire in memory says again and
 * again that there is more to read, so that the ends never come to rest.) */
static void pair_receive(struct pair *pair)
{
    for (int i = 0; i < 1000; i++)
        pair_round(pair);
}

/* Sends messages that count up. Handlers run only where the receiver reads no further without
 * them. */
static void send_some(struct pair *pair, sh_msg_type type, unsigned count, size_t bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        struct sh_out out;
        enum shoal_err err;
        for (int tries = 0; (err = sh_msg_begin(pair->ends[0].msg, (shoal_nid){2}, type, bytes,
                                                &out)) == SHOAL_EAGAIN &&
                            tries < 1000;
             tries++) {
            pair_receive(pair);
            if (tries > 0)
                pair_settle(pair);
        }
        assert_int_equal(err, SHOAL_OK);
        sh_put64(&out.w, i);
        memset(sh_writer_take(&out.w, bytes - 8), 7, bytes - 8);
        sh_msg_end(pair->ends[0].msg, &out);
    }
}

static void sizes_and_reuse(void **state)
{
    (void)state;
    static const size_t wants[] = {1, 4096, 4097, 65536, 65537, 1 << 20};
    static const uint32_t rooms[] = {4096, 4096, 65536, 65536, 1 << 20, 1 << 20};
    struct pair pair;
    struct seen seen;
    open_with(&pair, &seen, 0);
    struct sh_msg *msg = pair.ends[0].msg;
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++) {
        struct sh_block *block = sh_block_get(msg, wants[i]);
        assert_non_null(block);
        assert_int_equal(block->room, rooms[i]);
        sh_block_release(msg, block);
        assert_ptr_equal(sh_block_get(msg, wants[i]), block);
        sh_block_share(block); /* the stream goes, one who reads stays */
        sh_block_leave(msg, block);
        assert_int_equal(atomic_load(&msg->held_bytes), rooms[i]);
        sh_block_release(msg, block);
        assert_int_equal(atomic_load(&msg->held_bytes), 0);
    }
    struct sh_block *large = sh_block_get(msg, (1 << 20) + 1);
    assert_int_equal(large->room, (1 << 20) + 1);
    sh_block_release(msg, large);
    assert_ptr_equal(sh_block_get(msg, 1 << 20 | 1), large);
    sh_block_release(msg, large);
    struct sh_block *larger = sh_block_get(msg, 3 << 20); /* that one is too small */
    assert_int_equal(larger->room, 3 << 20);
    sh_block_release(msg, larger);
    sh_block_release(msg, sh_block_get(msg, 25 << 20)); /* not kept */
    assert_int_equal(msg->larger_free_bytes, (4 << 20) + 1);
    pair_close(&pair);
}

/* The kernel has back what was sent of a large block, in pieces, however much that is. */
static void released_in_pieces(void **state)
{
    (void)state;
    struct pair pair;
    struct seen seen;
    open_with(&pair, &seen, 0);
    struct sh_msg *msg = pair.ends[0].msg;
    const size_t room = 30 * SH_UNMAP_BYTES;
    struct sh_block *block = sh_block_get(msg, room);
    memset(block->bytes, 1, room);
    size_t released = 0, calls = 0;
    for (size_t some; (some = sh_block_release_some(block, released, room)) > 0; calls++) {
        assert_in_range(some, 1, SH_UNMAP_BYTES);
        released += some;
    }
    assert_int_equal(calls, 30);
    assert_true(released > room - 4 * SH_RELEASE_BYTES);
    assert_int_equal(block->bytes[released - 1], 0); /* gone */
    assert_int_equal(block->bytes[room - 1], 1);
    sh_block_release(msg, block);
    for (size_t bytes = 1; bytes <= room; bytes *= 3) {
        uint8_t *scratch = sh_scratch_take(msg, bytes);
        assert_int_equal((uintptr_t)scratch % 8, 0);
        memset(scratch, 1, bytes);
        sh_scratch_give(msg, scratch);
    }
    sh_scratch_give(msg, NULL);
    pair_close(&pair);
}

/* 8 MiB for handlers that do not run: no more is read than the bound says; then all arrives. */
static void bound_stops_the_stream(void **state)
{
    (void)state;
    static const sh_msg_type types[] = {TYPE_POOLED, TYPE_ORDERED};
    for (int t = 0; t < 2; t++) {
        struct pair pair;
        struct seen seen;
        open_with(&pair, &seen, BOUND);
        send_some(&pair, types[t], 2000, 4096);
        pair_receive(&pair);
        struct sh_msg_stats stats;
        sh_msg_stats_get(pair.ends[1].msg, &stats);
        /* The bound, the block that reached it, and the block in the stream's hands. */
        assert_in_range(stats.bytes_in, BOUND / 2, BOUND + 2 * SH_BLOCK_LARGE_BYTES + 1000);
        assert_true(pair.ends[1].memwire.links[0].in_size > 0); /* the wire pushes back */
        /* And the step comes to rest meanwhile, instead of being told all the time. */
        assert_true(pair.ends[1].memwire.links[0].is_paused);
        assert_int_equal(pair.ends[1].transport.run(pair.ends[1].msg), 0);
        pair_settle(&pair);
        assert_int_equal(seen.pooled + seen.ordered, 2000);
        assert_int_equal(atomic_load(&pair.ends[1].msg->held_bytes), 0);
        assert_false(pair.ends[1].memwire.links[0].is_paused);
        pair_close(&pair);
    }
}

/* Inline messages of the same pair before and after: what was behind the stalled ones comes. */
static void bound_is_left_again(void **state)
{
    (void)state;
    struct pair pair;
    struct seen seen;
    open_with(&pair, &seen, 1); /* any block that is held stops the next */
    send_some(&pair, TYPE_INLINE, 100, 100);
    send_some(&pair, TYPE_POOLED, 300, 3000);
    send_some(&pair, TYPE_INLINE, 100, 100);
    send_some(&pair, TYPE_ORDERED, 300, 70000);
    pair_settle(&pair);
    assert_int_equal(seen.inlined, 200);
    assert_int_equal(seen.pooled, 300);
    assert_int_equal(seen.ordered, 300);
    assert_int_equal(pair.ends[1].losses, 0);
    pair_close(&pair);
}

/* A connection that says little holds small blocks; one that says much, large ones. */
static void size_follows_the_stream(void **state)
{
    (void)state;
    struct pair pair;
    struct seen seen;
    open_with(&pair, &seen, 0);
    send_some(&pair, TYPE_POOLED, 1, 100);
    pair_receive(&pair);
    assert_int_equal(atomic_load(&pair.ends[1].msg->held_bytes), SH_BLOCK_SMALL_BYTES);
    pair_settle(&pair);
    seen.pooled = 0;
    send_some(&pair, TYPE_POOLED, 300, 1000);
    pair_receive(&pair);
    assert_in_range(atomic_load(&pair.ends[1].msg->held_bytes), SH_BLOCK_LARGE_BYTES,
                    2 * SH_BLOCK_LARGE_BYTES);
    pair_settle(&pair);
    pair_crowd(&pair);
    seen.pooled = 0;
    send_some(&pair, TYPE_POOLED, 1, 100);
    pair_settle(&pair);
    seen.pooled = 0;
    send_some(&pair, TYPE_POOLED, 100, 1000);
    pair_receive(&pair);
    assert_in_range(atomic_load(&pair.ends[1].msg->held_bytes), SH_BLOCK_BYTES, 3 * SH_BLOCK_BYTES);
    pair_settle(&pair);
    for (int i = 0; i < 65; i++) {
        seen.pooled = 0;
        send_some(&pair, TYPE_POOLED, 1, 100);
        pair_settle(&pair);
    }
    seen.pooled = 0;
    send_some(&pair, TYPE_POOLED, 1, 100);
    pair_receive(&pair);
    assert_int_equal(atomic_load(&pair.ends[1].msg->held_bytes), SH_BLOCK_SMALL_BYTES);
    pair_settle(&pair);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_reuse),         cmocka_unit_test(released_in_pieces),
        cmocka_unit_test(bound_stops_the_stream),  cmocka_unit_test(bound_is_left_again),
        cmocka_unit_test(size_follows_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
