/* Connections: hellos, versions, and counters. */
#include "msg/msg_edges_test.h"

/* Who connects and says nothing is closed, the oldest first, and keeps nobody out. */
static void test_hellos_max(void **state)
{
    (void)state;
    struct end *b = end_open_as(2, &(struct sh_msg_config){.connections_max = 32, .hellos_max = 4});
    struct end *a = end_open(1);
    struct asked asked;
    for (unsigned i = 0; i < 10; i++)
        (void)sh_memwire_accept(&b->memwire);
    run_all();
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(b->memwire.links[i].is_there, i >= 6);
    assert_int_equal(b->msg->accepted_hellos.count, 4);
    assert_int_equal(b->msg->streams_count, 4);
    knows(a, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 5, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 5);
    assert_false(b->memwire.links[6].is_there);
    assert_int_equal(b->msg->accepted_hellos.count, 3); /* a's is over */
    struct sh_msg_stats stats;
    sh_msg_stats_get(b->msg, &stats);
    assert_int_equal(stats.hellos_refused, 7);
    pass(6 * SECOND);
    assert_int_equal(b->msg->accepted_hellos.count, 0);
    assert_int_equal(b->msg->streams_count, 1);
    assert_true(sh_streams_due(b->msg) == SH_NEVER);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 6, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 6);
}

/* A dialler takes its stream for open when it has sent its proof. It may be refused all the same:
 * here because the acceptor has no alias left for a client. */
static void test_refused_after_proof(void **state)
{
    (void)state;
    struct end *a = end_open(0), *b = end_open(2);
    struct asked asked;
    for (unsigned alias = SH_MSG_ALIAS_MIN; alias <= SH_MSG_ALIAS_MAX; alias++) {
        struct sh_conn *conn = sh_conn_make(b->msg, (shoal_nid){(uint16_t)alias});
        assert_non_null(conn);
        conn->is_known = true;
    }
    knows(a, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 5, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_ELIMIT);
    assert_int_equal(a->loss, SHOAL_ELIMIT);
    sh_conn_find(b->msg, (shoal_nid){SH_MSG_ALIAS_MIN})->is_known = false;
    assert_int_equal(ask(a, 2, TYPE_ECHO, 6, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 6);
}

/* Hellos that are over are taken from the middle and the ends of the list. */
static void test_hellos_in_turn(void **state)
{
    (void)state;
    struct end *b = end_open(2);
    for (unsigned i = 0; i < 5; i++) {
        (void)sh_memwire_accept(&b->memwire);
        pass(SECOND / 2);
    }
    assert_int_equal(b->msg->accepted_hellos.count, 5);
    const unsigned order[] = {2, 4, 0};
    for (unsigned i = 0; i < 3; i++) {
        sh_memwire_cut(&b->memwire, order[i]);
        run_all();
        assert_int_equal(b->msg->accepted_hellos.count, 4 - i);
    }
    /* 1 was seen at 1 s and 3 at 2 s; now is 2.5 s. */
    pass(7 * SECOND / 2 - 1);
    assert_int_equal(b->msg->accepted_hellos.count, 2);
    pass(1);
    assert_false(b->memwire.links[1].is_there);
    assert_int_equal(b->msg->accepted_hellos.count, 1);
    pass(SECOND);
    assert_false(b->memwire.links[3].is_there);
    assert_int_equal(b->msg->accepted_hellos.count, 0);
}

/* What an end answers to a hello with that range of versions: the frame's kind, and the error. */
static unsigned kind_answered(struct end *end, const uint8_t *hello, uint16_t min, uint16_t max,
                              uint16_t *err_out)
{
    uint8_t bytes[SH_HELLO_BYTES];
    memcpy(bytes, hello, sizeof bytes);
    sh_store16(bytes + 8, min);
    sh_store16(bytes + 10, max);
    sh_link link = sh_memwire_accept(&end->memwire);
    sh_memwire_feed(&end->memwire, link, sh_bytes_make(bytes, sizeof bytes));
    run_all();
    const struct sh_memlink *at = &end->memwire.links[link];
    assert_true(at->out_size >= 10);
    *err_out = sh_load16(at->out + 8);
    return sh_load16(at->out + 4);
}

static void test_versions(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    struct asked asked;
    uint16_t err;
    knows(a, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 5, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(sh_conn_find(a->msg, (shoal_nid){2})->dialled->version, SH_MSG_VERSION);
    assert_int_equal(sh_conn_find(b->msg, (shoal_nid){1})->accepted->version, SH_MSG_VERSION);
    const uint8_t *hello = a->memwire.links[0].out;
    assert_int_equal(kind_answered(b, hello, SH_MSG_VERSION, SH_MSG_VERSION + 9, &err), 2);
    assert_int_equal(kind_answered(b, hello, 0, SH_MSG_VERSION_MIN, &err), 2);
    const uint16_t refused[][2] = {{SH_MSG_VERSION + 1, SH_MSG_VERSION + 9},
                                   {0, SH_MSG_VERSION_MIN - 1},
                                   {SH_MSG_VERSION + 1, SH_MSG_VERSION_MIN}};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(kind_answered(b, hello, refused[i][0], refused[i][1], &err), 4);
        assert_int_equal(err, SHOAL_EVERSION);
    }
}

static void test_counters(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    struct sh_msg_conn_stats stats;
    struct asked asked;
    assert_false(sh_msg_conn_stats_get(a->msg, (shoal_nid){2}, &stats));
    knows(a, b, 2);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(tell(a, 2, TYPE_ORDERED, i, 100), SHOAL_OK);
    assert_true(sh_msg_conn_stats_get(a->msg, (shoal_nid){2}, &stats));
    assert_int_equal(stats.messages_out, 10);
    assert_int_equal(stats.unsent_bytes, 10 * 110);
    assert_int_equal(stats.bytes_out, 0);
    assert_false(sh_msg_drained(a->msg));
    run_all();
    assert_true(sh_msg_drained(a->msg));
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    assert_true(sh_msg_conn_stats_get(a->msg, (shoal_nid){2}, &stats));
    assert_int_equal(stats.messages_out, 11);
    assert_int_equal(stats.bytes_out, 10 * 110 + 18);
    assert_int_equal(stats.blocks_out, 2); /* ten messages went as one block */
    assert_int_equal(stats.messages_in, 1);
    assert_int_equal(stats.bytes_in, 18);
    assert_int_equal(stats.opened, 1);
    assert_int_equal(stats.room_waits, 0);
    assert_int_equal(stats.unsent_bytes, 0);
    assert_true(sh_msg_conn_stats_get(b->msg, (shoal_nid){1}, &stats));
    assert_int_equal(stats.messages_in, 11);
    assert_int_equal(stats.bytes_in, 10 * 110 + 18);
    assert_int_equal(tell(a, 2, TYPE_SILENT, 1, RING_BYTES - 10), SHOAL_OK);
    assert_int_equal(tell(a, 2, TYPE_SILENT, 1, 8), SHOAL_EAGAIN);
    assert_true(sh_msg_conn_stats_get(a->msg, (shoal_nid){2}, &stats));
    assert_int_equal(stats.room_waits, 1);
    assert_int_equal(stats.window_waits, 0);
    assert_int_equal(stats.retries, 0);
    sh_msg_retried(a->msg, (shoal_nid){2});
    assert_true(sh_msg_conn_stats_get(a->msg, (shoal_nid){2}, &stats));
    assert_int_equal(stats.retries, 1);
    struct sh_msg_stats all;
    sh_msg_stats_get(a->msg, &all);
    assert_int_equal(all.retries, 1);
    cut(a, b);
    run_all();
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    assert_true(sh_msg_conn_stats_get(a->msg, (shoal_nid){2}, &stats));
    assert_int_equal(stats.opened, 2);
}

/* A peer that vanished without a word is noticed; one that is only idle is not, nor is anybody
 * after this process stood still itself. */
static void test_silence(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    struct asked asked;
    knows(a, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    for (unsigned i = 0; i < 100; i++)
        pass(SECOND / 4);
    assert_int_equal(a->losses + b->losses, 0);
    struct sh_msg_conn_stats stats;
    assert_true(sh_msg_conn_stats_get(a->msg, (shoal_nid){2}, &stats));
    assert_in_range(stats.messages_in, 15, 35); /* 25 s: a beat every 1.5 s at least */
    pass(100 * SECOND);
    assert_int_equal(a->losses + b->losses, 0);
    /* b vanishes: it runs no more, and nothing that a sends is answered. */
    assert_int_equal(ask(a, 2, TYPE_ECHO, 2, &asked), SHOAL_OK);
    for (unsigned i = 0; i < 16 && a->losses == 0; i++) {
        assert_int_equal(asked.done, 0);
        a->memwire.now_ns += SECOND / 4;
        while (round_run(1u << 1))
            continue;
    }
    assert_int_equal(a->losses, 1);
    assert_int_equal(a->loss, SHOAL_ECONNLOST);
    assert_int_equal(asked.err, SHOAL_ECONNLOST);
    assert_null(a->msg->beats_first);
    assert_true(sh_beats_due(a->msg) == SH_NEVER);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 3, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 3);
}

/* Whose turn to be read has not come, or who is looked at late, is not silent. */
static void test_unread_is_not_silent(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    struct asked asked;
    knows(a, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    struct sh_conn *conn = sh_conn_find(a->msg, (shoal_nid){2});
    uint8_t beat[SH_MSG_HEADER_BYTES] = {0};
    sh_store16(beat + 4, SH_MSG_TYPE(0, SH_CONTROL_BEAT));
    sh_memwire_feed(&a->memwire, conn->sends_on->link, sh_bytes_make(beat, sizeof beat));
    /* Looks alone: no event is seen to, as when others have too many. */
    for (unsigned i = 0; i < 7; i++) {
        a->msg->polls++;
        a->memwire.now_ns = sh_beats_due(a->msg);
        sh_beats_run(a->msg, a->memwire.now_ns);
    }
    assert_int_equal(a->losses, 0);
    assert_int_equal(a->memwire.links[conn->sends_on->link].in_size, 0);
    for (unsigned i = 0; i < 10; i++) { /* each look a second late */
        a->msg->polls++;
        a->memwire.now_ns = sh_beats_due(a->msg) + SECOND;
        sh_beats_run(a->msg, a->memwire.now_ns);
    }
    for (unsigned i = 0; i < 10; i++) { /* nothing polled */
        a->memwire.now_ns = sh_beats_due(a->msg);
        sh_beats_run(a->msg, a->memwire.now_ns);
    }
    assert_int_equal(a->losses, 0);
    for (unsigned i = 0; i < 5 && a->losses == 0; i++) {
        a->msg->polls++;
        a->memwire.now_ns = sh_beats_due(a->msg);
        sh_beats_run(a->msg, a->memwire.now_ns);
    }
    assert_int_equal(a->losses, 1);
}

/* Asks until there is room; run_all makes it. */
static void ask_surely(struct end *from, uint16_t to, uint64_t value)
{
    struct asked asked;
    enum shoal_err err = ask(from, to, TYPE_ECHO, value, &asked);
    assert_int_equal(err, SHOAL_OK);
    run_all();
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_OK);
    assert_int_equal(asked.first, value);
}

static bool is_open(struct end *from, uint16_t to)
{
    struct sh_conn *conn = sh_conn_find(from->msg, (shoal_nid){to});
    return conn && conn->state == SH_CONN_OPEN;
}

static unsigned losses_of_all(void)
{
    unsigned losses = 0;
    for (unsigned i = 0; i < ends_count; i++)
        losses += ends[i].losses;
    return losses;
}

/* At the limit the least recently used one makes room, for who comes and for who is called. */
static void test_least_used_closes(void **state)
{
    (void)state;
    struct end *b = end_open_with(2, 2);
    struct end *others[3] = {end_open(1), end_open(3), end_open(4)};
    static const uint16_t nids[3] = {1, 3, 4};
    for (unsigned i = 0; i < 3; i++) {
        knows(others[i], b, 2);
        knows(b, others[i], nids[i]);
    }
    ask_surely(others[0], 2, 1);
    ask_surely(others[1], 2, 2);
    ask_surely(others[0], 2, 3);
    assert_int_equal(b->closes, 0);
    ask_surely(others[2], 2, 4); /* in comes a third */
    assert_true(is_open(b, 1) && !is_open(b, 3) && is_open(b, 4));
    assert_int_equal(b->closes, 1);
    assert_int_equal(others[1]->closes, 1);
    ask_surely(b, 3, 5); /* and the one that was closed is called */
    assert_true(!is_open(b, 1) && is_open(b, 3) && is_open(b, 4));
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(tell(others[i % 3], 2, TYPE_ORDERED, i, 100), SHOAL_OK);
        if (i % 2)
            ask_surely(others[i % 3], 2, i);
        else
            ask_surely(b, nids[i % 3], i);
        assert_int_equal(b->ordered, i + 1);
        assert_in_range(b->msg->streams_count, 1, 2); /* 3 if both dialled, hence 1 later */
    }
    assert_true(b->closes >= 10);
    assert_int_equal(losses_of_all(), 0);
    assert_int_equal(b->msg->closing_count, 0);
    struct sh_msg_stats stats;
    sh_msg_stats_get(b->msg, &stats);
    assert_int_equal(stats.connections_lost, 0);
}

/* Both want to close at the same time. */
static void test_both_close(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    knows(b, a, 1);
    for (unsigned i = 0; i < 4; i++) {
        ask_surely(i % 2 ? b : a, i % 2 ? 1 : 2, 7);
        assert_true(sh_close_one(a->msg));
        assert_true(sh_close_one(b->msg));
        assert_false(sh_close_one(b->msg)); /* it is closing already */
        run_all();
        assert_false(is_open(a, 2) || is_open(b, 1));
        assert_int_equal(a->closes, i + 1);
        assert_int_equal(b->closes, i + 1);
        assert_int_equal(a->msg->streams_count + b->msg->streams_count, 0);
    }
    assert_int_equal(losses_of_all(), 0);
}

/* Who owes an answer may ask to close, is told to keep, and still answers; who waits for room
 * meanwhile gets it. */
static void test_close_refused(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    struct asked asked;
    knows(a, b, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &asked), SHOAL_OK);
        run_all();
        assert_int_equal(b->held_count, i + 1);
        assert_true(sh_close_one(b->msg));
        struct sh_waiter waiter = {0};
        struct asked other;
        assert_int_equal(ask(b, 1, TYPE_ECHO, 1, &other), SHOAL_EAGAIN);
        assert_false(sh_msg_has_room(b->msg, (shoal_nid){1}, 8));
        sh_msg_wait_room(b->msg, (shoal_nid){1}, 8, &waiter);
        assert_false(sh_waiter_done(&waiter));
        if (i == 1)
            answer(b, b->held[i], 9); /* before the verdict */
        run_all();
        assert_true(sh_waiter_done(&waiter));
        if (i == 0)
            answer(b, b->held[i], 9);
        run_all();
        assert_int_equal(asked.first, 9);
        assert_true(is_open(b, 1));
        ask_surely(b, 1, 10);
        assert_int_equal(b->msg->closing_count, 0);
    }
    assert_false(sh_close_one(b->msg) && ask(a, 2, TYPE_SILENT, 1, &asked) == SHOAL_EAGAIN);
    run_all();
    assert_int_equal(a->closes + b->closes, 0); /* a's request crossed the question */
    answer(b, b->held[2], 11);
    run_all();
    assert_int_equal(asked.first, 11);
    /* Messages that cross it are handled, and a's connection stays or comes again as needed. */
    assert_true(sh_close_one(b->msg));
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 50), SHOAL_OK);
    run_all();
    assert_int_equal(b->ordered, 1);
    ask_surely(a, 2, 12);
    /* The other side goes away instead of answering. */
    assert_true(sh_close_one(b->msg));
    cut(a, b);
    run_all();
    assert_int_equal(b->msg->closing_count, 0);
    ask_surely(a, 2, 13);
}

/* A peer that beats and never answers the CLOSE loses its place, and who waits for it gets it. */
static void test_close_unanswered(void **state)
{
    (void)state;
    struct end *b = end_open_with(2, 1);
    struct end *a = end_open(1), *c = end_open(3);
    knows(a, b, 2);
    knows(b, c, 3);
    ask_surely(a, 2, 1);
    unsigned losses = 0;
    struct asked asked;
    assert_int_equal(ask(b, 3, TYPE_ECHO, 2, &asked), SHOAL_OK);
    /* a is not run, and says only what is fed here: beats. */
    uint8_t beat[SH_MSG_HEADER_BYTES] = {0};
    sh_store16(beat + 4, SH_MSG_TYPE(0, SH_CONTROL_BEAT));
    for (unsigned i = 0; i < 24 && b->losses == losses; i++) {
        sh_memwire_feed(&b->memwire, 0, sh_bytes_make(beat, sizeof beat));
        while (round_run(1u << 1))
            continue;
        assert_int_equal(b->msg->closing_count, 1 - b->losses);
        if (b->losses == 0) {
            assert_true(b->transport.due_ns(b->msg) <= b->memwire.now_ns + 5 * SECOND);
            b->memwire.now_ns += SECOND / 4;
        }
    }
    assert_int_equal(b->losses, 1);
    assert_int_equal(b->loss, SHOAL_ECONNLOST);
    run_all();
    assert_int_equal(asked.first, 2);
    assert_int_equal(sh_closes_due(b->msg) == SH_NEVER, 1);
    /* And a comes again when there is room. */
    ask_surely(a, 2, 3);
}

/* A peer that reads nothing repeats CLOSE, alone and with KEEP in between, while the node closes
 * the connection: the node says as much as one closing needs, and lives. */
static void test_close_repeated(void **state)
{
    (void)state;
    for (unsigned with_keep = 0; with_keep < 2; with_keep++) {
        struct end *b = end_open(2), *a = end_open(1);
        knows(a, b, 2);
        ask_surely(a, 2, 1);
        struct sh_conn *conn = sh_conn_find(b->msg, (shoal_nid){1});
        const struct sh_stream *stream = conn->sends_on;
        struct sh_memlink *link = &b->memwire.links[0];
        link->push_room = 0;
        uint8_t close[SH_MSG_HEADER_BYTES] = {0}, keep[SH_MSG_HEADER_BYTES] = {0};
        sh_store16(close + 4, SH_MSG_TYPE(0, SH_CONTROL_CLOSE));
        sh_store16(keep + 4, SH_MSG_TYPE(0, SH_CONTROL_KEEP));
        assert_true(sh_close_one(b->msg));
        for (unsigned i = 0; i < 100; i++) {
            sh_memwire_feed(&b->memwire, 0, sh_bytes_make(close, sizeof close));
            while (round_run(1u << 1))
                continue;
            assert_ptr_equal(conn->sends_on, stream);
            assert_true(stream->control_size <= 2 * SH_MSG_HEADER_BYTES);
            if (with_keep) {
                sh_memwire_feed(&b->memwire, 0, sh_bytes_make(keep, sizeof keep));
                while (round_run(1u << 1))
                    continue;
                (void)sh_close_one(b->msg);
            }
        }
        assert_true(sh_out_unsent(conn) <= 100 * SH_MSG_HEADER_BYTES);
        cut(a, b);
        run_all();
        assert_int_equal(b->msg->closing_count, 0);
        link->push_room = SIZE_MAX;
        ask_surely(a, 2, 2);
        close_all(state);
    }
}

/* Runs two ends, and carries what they say over the pipes in the mask alone. */
static void run_over(struct end *a, struct end *b, unsigned pipes_mask)
{
    for (unsigned i = 0; i < 50; i++) {
        (void)a->transport.run(a->msg);
        (void)a->handlers.run(a->handlers.arg);
        (void)b->transport.run(b->msg);
        (void)b->handlers.run(b->handlers.arg);
        for (struct end *end = ends; end < ends + ends_count; end++) {
            for (sh_link link = 0; link < end->memwire.count; link++) {
                if (end->memwire.links[link].was_opened_by_us)
                    pipe_add(end, link);
            }
        }
        for (unsigned at = 0; at < pipes_count; at++) {
            if (pipes_mask & 1u << at)
                (void)pipe_run(&pipes[at]);
        }
    }
}

#define TYPE_NUMBERED SH_MSG_TYPE(9, 5)

/* What the messages of that type said, in the order in which they were handled. */
static uint64_t numbers[8];
static unsigned numbers_count;

static void on_numbered(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    numbers[numbers_count++ % 8] = sh_get64(&in->payload);
}

/* Two nodes that know each other; the first notes the messages that it gets. */
static void two_open(struct end **a_out, struct end **b_out)
{
    *a_out = end_open(1);
    *b_out = end_open(2);
    knows(*a_out, *b_out, 2);
    knows(*b_out, *a_out, 1);
    sh_msg_handler_set((*a_out)->msg, TYPE_NUMBERED, SH_MSG_INLINE, on_numbered, NULL);
    numbers_count = 0;
}

/* b loses the stream of a pipe, which a does not notice yet. */
static void lose_alone(struct end *b, unsigned pipe)
{
    unsigned losses = b->losses;
    sh_memwire_cut(&b->memwire, pipes[pipe].links[pipes[pipe].ends[1] == b]);
    b->transport.run(b->msg);
    assert_int_equal(b->losses, losses + 1);
}

static void test_both_dial(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    knows(b, a, 1);
    struct asked of_a[2], of_b[2];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ask(a, 2, TYPE_ECHO, i, &of_a[i]), SHOAL_OK);
        assert_int_equal(ask(b, 1, TYPE_ECHO, i, &of_b[i]), SHOAL_OK);
        assert_int_equal(tell(a, 2, TYPE_ORDERED, i, 8), SHOAL_OK);
        assert_int_equal(tell(b, 1, TYPE_ORDERED, i, 8), SHOAL_OK);
        run_all();
        assert_int_equal(of_a[i].err, SHOAL_OK);
        assert_int_equal(of_b[i].err, SHOAL_OK);
        assert_int_equal(a->ordered, i + 1);
        assert_int_equal(b->ordered, i + 1);
    }
    const struct sh_conn *conn = sh_conn_find(a->msg, (shoal_nid){2});
    assert_true(conn->dialled && conn->accepted);
    /* Each side has sent on one of them. */
    assert_int_equal(conn->dialled->has_carried + conn->accepted->has_carried, 1);
    pass(4 * SECOND);
    assert_int_equal(a->losses + b->losses, 0);
}

/* The other side has lost the connection and dials anew before we have noticed the loss: its new
 * messages are none of the old connection, the last of which are still on their way. */
static void test_anew_before_the_loss(void **state)
{
    (void)state;
    struct end *a, *b;
    two_open(&a, &b);
    ask_surely(a, 2, 1); /* a dials */
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 0, 8), SHOAL_OK);
    run_all();
    assert_int_equal(numbers_count, 1);
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 1, 8), SHOAL_OK);
    b->transport.run(b->msg); /* the message is on its way */
    lose_alone(b, 0);
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 2, 8), SHOAL_OK);
    run_over(a, b, 1u << 1);
    assert_int_equal(pipes_count, 2);
    run_all();
    assert_int_equal(numbers_count, 1); /* or they were 0, 2, 1 */
    assert_int_equal(a->losses, 1);
    assert_int_equal(b->losses, 2); /* it is told that 2 may not have arrived */
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 3, 8), SHOAL_OK);
    ask_surely(a, 2, 2);
    assert_int_equal(numbers_count, 2);
    assert_int_equal(numbers[1], 3);
    assert_int_equal(a->losses, 1);
}

/* The same, but that the first messages to come are those of the new connection: what is left of
 * the old one is not handled behind them. */
static void test_anew_overtakes(void **state)
{
    (void)state;
    struct end *a, *b;
    two_open(&a, &b);
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 8), SHOAL_OK); /* a dials */
    run_all();
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 0, 8), SHOAL_OK);
    b->transport.run(b->msg);
    lose_alone(b, 0);
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 1, 8), SHOAL_OK);
    run_over(a, b, 1u << 1);
    assert_int_equal(numbers_count, 1);
    assert_int_equal(numbers[0], 1);
    assert_int_equal(a->losses, 0);
    run_all();
    assert_int_equal(numbers_count, 1);
    assert_int_equal(a->losses, 1);
    ask_surely(b, 1, 2);
    assert_int_equal(a->losses, 1);
}

/* The new stream may also be the one that we have dialled: when the other side was faster with its
 * own, and has lost that when ours arrives. */
static void test_anew_on_the_dialled(void **state)
{
    (void)state;
    struct end *a, *b;
    two_open(&a, &b);
    assert_int_equal(tell(a, 2, TYPE_SILENT, 0, 8), SHOAL_OK);
    run_over(a, b, 0); /* its hello is on its way */
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 0, 8), SHOAL_OK);
    run_over(a, b, 1u << 1);
    assert_int_equal(numbers_count, 1);
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 1, 8), SHOAL_OK);
    b->transport.run(b->msg);
    lose_alone(b, 1);
    run_over(a, b, 1u << 0);
    assert_int_equal(b->ups, 2);
    assert_int_equal(a->losses, 0);
    assert_int_equal(tell(b, 1, TYPE_NUMBERED, 2, 8), SHOAL_OK);
    run_over(a, b, 1u << 0);
    run_all();
    assert_int_equal(numbers_count, 1); /* or they were 0, 2, 1 */
    assert_int_equal(a->losses, 1);
    ask_surely(b, 1, 2);
    assert_int_equal(a->losses, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_hellos_max, close_all),
        cmocka_unit_test_teardown(test_refused_after_proof, close_all),
        cmocka_unit_test_teardown(test_hellos_in_turn, close_all),
        cmocka_unit_test_teardown(test_versions, close_all),
        cmocka_unit_test_teardown(test_counters, close_all),
        cmocka_unit_test_teardown(test_silence, close_all),
        cmocka_unit_test_teardown(test_unread_is_not_silent, close_all),
        cmocka_unit_test_teardown(test_least_used_closes, close_all),
        cmocka_unit_test_teardown(test_both_close, close_all),
        cmocka_unit_test_teardown(test_close_refused, close_all),
        cmocka_unit_test_teardown(test_close_unanswered, close_all),
        cmocka_unit_test_teardown(test_close_repeated, close_all),
        cmocka_unit_test_teardown(test_both_dial, close_all),
        cmocka_unit_test_teardown(test_anew_before_the_loss, close_all),
        cmocka_unit_test_teardown(test_anew_overtakes, close_all),
        cmocka_unit_test_teardown(test_anew_on_the_dialled, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
