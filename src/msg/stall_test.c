/* Who asks and reads no answers is not read either, and cut off in the end; two nodes that both do
 * so for a while get on. */
#include "msg/stream_test.h"

#define TYPE SH_MSG_TYPE(9, 1)
#define ASKED_MAX 60 /* pair_open allows 64 requests */
#define RING 65536
#define USUAL (4 * RING) /* what may be unsent before requests wait */

static uint32_t answer_bytes;
static unsigned handled;

static void on_ask(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_out out;
    handled++;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, answer_bytes, &out) != SHOAL_OK)
        return;
    memset(sh_writer_take(&out.w, answer_bytes), 1, answer_bytes);
    sh_msg_end(in->msg, &out);
}

struct asked {
    struct sh_request request;
    unsigned done;
    enum shoal_err err;
};

static struct asked all_asked[2][ASKED_MAX];

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    (void)payload;
    asked->done++;
    asked->err = err;
}

static void ask(struct pair *pair, unsigned from, unsigned index)
{
    struct asked *asked = &all_asked[from][index];
    struct sh_out out;
    *asked = (struct asked){
        .request = {.done = on_done, .arg = asked, .timeout_ns = 1000 * PAIR_SECOND}};
    assert_int_equal(sh_msg_request(pair->ends[from].msg, (shoal_nid){(uint16_t)(2 - from)}, TYPE,
                                    0, &asked->request, &out),
                     SHOAL_OK);
    sh_msg_end(pair->ends[from].msg, &out);
}

static unsigned answered(unsigned from, unsigned count)
{
    unsigned done = 0;
    for (unsigned i = 0; i < count; i++) {
        done += all_asked[from][i].done;
        assert_int_equal(all_asked[from][i].err, SHOAL_OK);
    }
    return done;
}

/* Two ends that have exchanged one request. */
static void open_pair(struct pair *pair)
{
    handled = 0;
    pair_open(pair, &(struct sh_msg_config){.ring_bytes = RING, .silence_ns = 1000 * PAIR_SECOND});
    for (unsigned i = 0; i < 2; i++)
        sh_msg_handler_set(pair->ends[i].msg, TYPE, SH_MSG_INLINE, on_ask, NULL);
    answer_bytes = 1;
    ask(pair, 0, 0);
    pair_settle(pair);
    assert_int_equal(answered(0, 1), 1);
    handled = 0;
}

static void pass(struct pair *pair, uint64_t ns)
{
    for (int i = 0; i < 2; i++)
        pair->ends[i].memwire.now_ns += ns;
}

static uint64_t unsent_of(const struct pair *pair)
{
    struct sh_msg_conn_stats stats;
    assert_true(sh_msg_conn_stats_get(pair->ends[1].msg, (shoal_nid){1}, &stats));
    return stats.unsent_bytes;
}

static void requests_wait_for_answers_to_go(void **state)
{
    (void)state;
    struct pair pair;
    open_pair(&pair);
    pair.ends[1].memwire.links[0].push_room = 0;
    answer_bytes = RING;
    for (unsigned i = 0; i < ASKED_MAX; i++)
        ask(&pair, 0, i);
    pair_settle(&pair);
    /* Past the bound with one answer at most, though all the requests came at once. */
    assert_true(unsent_of(&pair) > USUAL);
    assert_true(unsent_of(&pair) <= USUAL + SH_MSG_HEADER_BYTES + RING);
    unsigned before = handled;
    for (unsigned i = 0; i < 20; i++) {
        pass(&pair, 1000000);
        pair_settle(&pair);
    }
    assert_int_equal(handled, before);
    pair.ends[1].memwire.links[0].push_room = SIZE_MAX;
    pair_settle(&pair);
    assert_int_equal(handled, ASKED_MAX);
    assert_int_equal(answered(0, ASKED_MAX), ASKED_MAX);
    assert_int_equal(pair.ends[1].msg->stalled_count, 0);
    pair_close(&pair);
}

static void who_never_reads_is_cut_off(void **state)
{
    (void)state;
    struct pair pair;
    open_pair(&pair);
    pair.ends[1].memwire.links[0].push_room = 0;
    answer_bytes = 2 << 20;
    unsigned rounds = 0;
    for (unsigned i = 0; i < ASKED_MAX; i++)
        ask(&pair, 0, i);
    for (; pair.ends[1].losses == 0 && rounds < 1000; rounds++) {
        pair_settle(&pair);
        assert_true(unsent_of(&pair) <= SH_UNSENT_BYTES_MAX + answer_bytes + SH_MSG_HEADER_BYTES);
        pass(&pair, 10000000);
    }
    assert_int_equal(pair.ends[1].losses, 1);
    assert_true(rounds > 100); /* a second and more, in which it could have begun to read */
    assert_int_equal(unsent_of(&pair), 0);
    assert_int_equal(pair.ends[1].msg->stalled_count, 0);
    pair_close(&pair);
}

/* What the wire holds and the other side has not read is bounded, each way. */
static void window_set(struct pair *pair, size_t window)
{
    for (unsigned i = 0; i < 2; i++) {
        struct sh_memlink *to = &pair->ends[1 - i].memwire.links[0];
        pair->ends[i].memwire.links[0].push_room = to->in_size < window ? window - to->in_size : 0;
    }
}

static void two_that_wait_for_each_other(void **state)
{
    (void)state;
    struct pair pair;
    open_pair(&pair);
    assert_int_equal(sh_msg_node_set(pair.ends[1].msg, (shoal_nid){1}, "one:1"), SHOAL_OK);
    answer_bytes = RING;
    for (unsigned i = 0; i < ASKED_MAX; i++) {
        ask(&pair, 0, i);
        ask(&pair, 1, i);
    }
    unsigned stood = 0, done = 0;
    for (unsigned round = 0; done < 2 * ASKED_MAX; round++) {
        assert_true(round < 100000);
        window_set(&pair, 4096);
        pair_round(&pair);
        pass(&pair, 1000000);
        stood += pair.ends[0].msg->stalled_count && pair.ends[1].msg->stalled_count;
        done = answered(0, ASKED_MAX) + answered(1, ASKED_MAX);
    }
    assert_true(stood > 0); /* both waited at the same time */
    assert_int_equal(pair.ends[0].losses + pair.ends[1].losses, 0);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_wait_for_answers_to_go),
        cmocka_unit_test(who_never_reads_is_cut_off),
        cmocka_unit_test(two_that_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
