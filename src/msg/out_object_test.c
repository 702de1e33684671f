/* Sending objects: those that fit the ring and those that are streamed, in order with all else,
 * with wires that take any number of bytes at a time, and with connections that are lost. */
#include <pthread.h>
#include <sched.h>

#include "msg/stream_test.h"

#define TYPE_OBJECT SH_MSG_TYPE(9, 1)
#define TYPE_PLAIN SH_MSG_TYPE(9, 2)
#define TYPE_ASK SH_MSG_TYPE(9, 3)
#define TYPE_ECHO SH_MSG_TYPE(9, 4)
#define RING_BYTES 65536
#define BYTES_MAX (4 << 20)
#define THREADS 4
#define TWO ((shoal_nid){2})

struct load {
    uint32_t sender, number;
    size_t bytes_count;
    uint8_t *bytes;
    struct sh_object_out out;
    struct asked *asked;
};

struct asked {
    struct sh_request request;
    enum shoal_err err;
    unsigned done;
    size_t bytes;
};

static struct {
    uint32_t next[THREADS]; /* number expected from each sender */
    unsigned received, echoed;
    _Atomic unsigned sent_ok, sent_failed;
    _Atomic int err;
} seen;

static void describe(struct sh_codec *c, void *object)
{
    struct load *load = object;
    sh_codec_u32(c, &load->sender);
    sh_codec_u32(c, &load->number);
    sh_codec_length(c, &load->bytes_count, BYTES_MAX);
    if (sh_codec_reading(c) && !load->bytes)
        load->bytes = malloc(load->bytes_count ? load->bytes_count : 1);
    sh_codec_bytes(c, load->bytes, load->bytes_count);
}

static uint8_t expected(uint32_t sender, uint32_t number, size_t i)
{
    return (uint8_t)(sender * 31 + number * 7 + i + i / 251);
}

static void load_free(struct load *load)
{
    free(load->bytes);
    free(load);
}

static void on_sent(struct sh_object_out *out, enum shoal_err err)
{
    if (err == SHOAL_OK) {
        atomic_fetch_add(&seen.sent_ok, 1);
    } else {
        atomic_fetch_add(&seen.sent_failed, 1);
        atomic_store(&seen.err, (int)err);
    }
    load_free(out->arg); /* it is ours again: the address sanitizer sees who still reads it */
}

static struct load *load_make(uint32_t sender, uint32_t number, size_t bytes)
{
    struct load *load = calloc(1, sizeof *load);
    assert_non_null(load);
    *load = (struct load){.sender = sender, .number = number, .bytes_count = bytes};
    load->bytes = malloc(bytes ? bytes : 1);
    assert_non_null(load->bytes);
    for (size_t i = 0; i < bytes; i++)
        load->bytes[i] = expected(sender, number, i);
    load->out = (struct sh_object_out){.done = on_sent, .arg = load};
    return load;
}

static void load_check(const struct load *load)
{
    assert_true(load->sender < THREADS);
    assert_int_equal(load->number, seen.next[load->sender]);
    seen.next[load->sender]++;
    for (size_t i = 0; i < load->bytes_count; i++)
        if (load->bytes[i] != expected(load->sender, load->number, i))
            fail_msg("byte %zu of message %u", i, load->number);
    seen.received++;
}

static void *on_begin(void *arg, const struct sh_msg_in *in, size_t payload_bytes)
{
    (void)arg;
    (void)in;
    assert_true(payload_bytes > 0);
    return calloc(1, sizeof(struct load));
}

static void on_done(void *arg, struct sh_msg_in *in, void *object, enum shoal_err err)
{
    (void)arg;
    struct load *load = object;
    if (err == SHOAL_OK)
        load_check(load);
    if (!in->is_request || err != SHOAL_OK) {
        load_free(load);
        return;
    }
    load->out = (struct sh_object_out){.done = on_sent, .arg = load}; /* the same comes back */
    enum shoal_err sent =
        sh_msg_reply_object(in->msg, in->reply_to, in->type, describe, load, &load->out);
    assert_int_equal(sent, SHOAL_OK);
}

static void on_plain(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    uint32_t sender = sh_get32(&in->payload), number = sh_get32(&in->payload);
    assert_true(sh_reader_done(&in->payload) && sender < THREADS);
    assert_int_equal(number, seen.next[sender]);
    seen.next[sender]++;
    seen.received++;
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* Small answers meet the streamed ones on their way. */
static void on_echo(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_out out;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, 30000, &out), SHOAL_OK);
    memset(sh_writer_take(&out.w, 30000), 1, 30000);
    sh_msg_end(in->msg, &out);
    seen.echoed++;
}

static void open_with(struct pair *pair)
{
    memset(&seen, 0, sizeof seen);
    pair_open(pair, &(struct sh_msg_config){.ring_bytes = RING_BYTES});
    struct sh_msg *msg = pair->ends[1].msg;
    sh_msg_object_set(msg, TYPE_OBJECT, SH_MSG_INLINE, describe, on_begin, on_done, NULL);
    sh_msg_object_set(msg, TYPE_ASK, SH_MSG_INLINE, describe, on_begin, on_done, NULL);
    sh_msg_handler_set(msg, TYPE_PLAIN, SH_MSG_INLINE, on_plain, NULL);
    sh_msg_handler_set(msg, TYPE_ECHO, SH_MSG_INLINE, on_echo, NULL);
}

static enum shoal_err plain_send(struct pair *pair, uint32_t sender, uint32_t number)
{
    struct sh_out out;
    enum shoal_err err = sh_msg_begin(pair->ends[0].msg, TWO, TYPE_PLAIN, 8, &out);
    if (err != SHOAL_OK)
        return err;
    sh_put32(&out.w, sender);
    sh_put32(&out.w, number);
    sh_msg_end(pair->ends[0].msg, &out);
    return SHOAL_OK;
}

/* Sends what a random number says; EAGAIN leaves everything as it was. */
static enum shoal_err any_send(struct pair *pair, uint32_t sender, uint32_t number, uint64_t random)
{
    if (random % 3 == 0)
        return plain_send(pair, sender, number);
    size_t bytes = random % 3 == 1 ? random / 3 % 3000 : random / 3 % (5 * RING_BYTES);
    struct load *load = load_make(sender, number, bytes);
    enum shoal_err err =
        sh_msg_send_object(pair->ends[0].msg, TWO, TYPE_OBJECT, describe, load, &load->out);
    if (err != SHOAL_OK)
        load_free(load);
    return err;
}

/* Lets the wires take so much more, from nothing to everything. */
static void wires_turn(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        struct sh_memlink *link = &pair->ends[i].memwire.links[0];
        if (pair->ends[i].memwire.count > 0)
            link->push_room = pair_random(pair) >> 40 >> pair_random(pair) % 24;
    }
}

static void in_order_with_all_else(void **state)
{
    (void)state;
    struct pair pair;
    open_with(&pair);
    for (uint32_t n = 0; n < 300; n++) {
        uint64_t random = pair_random(&pair);
        enum shoal_err err;
        while ((err = any_send(&pair, 0, n, random)) == SHOAL_EAGAIN) {
            wires_turn(&pair);
            pair_round(&pair);
        }
        assert_int_equal(err, SHOAL_OK);
        wires_turn(&pair);
        pair_round(&pair);
    }
    struct sh_conn *conn = sh_conn_find(pair.ends[0].msg, TWO);
    assert_int_equal(conn->out.room, RING_BYTES); /* never grew */
    while (seen.received < 300) {
        assert_false(sh_msg_drained(pair.ends[0].msg) && !pair_round(&pair));
        wires_turn(&pair);
        pair_round(&pair);
    }
    assert_true(sh_msg_drained(pair.ends[0].msg));
    assert_int_equal(seen.sent_failed, 0);
    pair_close(&pair);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->err = err;
    asked->done++;
    asked->bytes = sh_reader_left(payload);
}

static void ask(struct pair *pair, struct asked *asked, uint32_t number, size_t bytes)
{
    struct load *load = load_make(0, number, bytes);
    *asked = (struct asked){.request = {.done = on_answer, .arg = asked}};
    enum shoal_err err;
    while ((err = sh_msg_request_object(pair->ends[0].msg, TWO, TYPE_ASK, describe, load,
                                        &asked->request, &load->out)) == SHOAL_EAGAIN)
        pair_round(pair);
    assert_int_equal(err, SHOAL_OK);
}

static void requests_and_answers(void **state)
{
    (void)state;
    static const size_t sizes[] = {10, 60000, 300000, 1 << 20, 0, 65536};
    struct pair pair;
    struct asked asked[6], echoes[30];
    open_with(&pair);
    for (uint32_t i = 0; i < 6; i++)
        ask(&pair, &asked[i], i, sizes[i]);
    /* Answers that make the other side's ring grow while it streams. */
    for (int i = 0; i < 30; i++) {
        struct sh_out out;
        echoes[i] = (struct asked){.request = {.done = on_answer, .arg = &echoes[i]}};
        while (sh_msg_request(pair.ends[0].msg, TWO, TYPE_ECHO, 0, &echoes[i].request, &out) !=
               SHOAL_OK)
            pair_round(&pair);
        sh_msg_end(pair.ends[0].msg, &out);
    }
    for (int i = 0; i < 100000 && sh_msg_requests_pending(pair.ends[0].msg) > 0; i++) {
        wires_turn(&pair);
        pair_round(&pair);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(asked[i].done, 1);
        assert_int_equal(asked[i].err, SHOAL_OK);
        struct load like = {.bytes_count = sizes[i]};
        struct sh_codec size = {.mode = SH_CODEC_SIZE};
        describe(&size, &like);
        assert_int_equal(asked[i].bytes, size.bytes);
    }
    for (int i = 0; i < 30; i++)
        assert_true(echoes[i].done == 1 && echoes[i].bytes == 30000);
    assert_int_equal(seen.sent_ok, 12);
    pair_close(&pair);
}

/* Three that are streamed, one begun: all are given back, with the reason. */
static void lost_and_stopped(void **state)
{
    (void)state;
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        struct pair pair;
        struct asked asked;
        open_with(&pair);
        assert_int_equal(plain_send(&pair, 0, 0), SHOAL_OK);
        pair_settle(&pair);
        pair.ends[0].memwire.links[0].push_room = 100000;
        for (uint32_t n = 1; n < 3; n++) {
            struct load *load = load_make(0, n, 300000);
            assert_int_equal(
                sh_msg_send_object(pair.ends[0].msg, TWO, TYPE_OBJECT, describe, load, &load->out),
                SHOAL_OK);
        }
        ask(&pair, &asked, 3, 300000);
        for (int i = 0; i < 10; i++)
            pair_round(&pair);
        assert_int_equal(seen.sent_ok + seen.sent_failed, 0);
        assert_false(sh_msg_drained(pair.ends[0].msg));
        if (is_cut) {
            sh_memwire_cut(&pair.ends[0].memwire, 0);
            pair.ends[0].transport.run(pair.ends[0].msg);
            assert_int_equal(seen.sent_failed, 3);
            assert_true(sh_msg_drained(pair.ends[0].msg));
        }
        pair_close(&pair);
        assert_int_equal(seen.sent_failed, 3);
        assert_int_equal(seen.err, is_cut ? SHOAL_ECONNLOST : SHOAL_ESTOPPED);
        assert_int_equal(asked.done, 1);
        assert_int_equal(asked.err, is_cut ? SHOAL_ECONNLOST : SHOAL_ESTOPPED);
    }
}

static void refused(void **state)
{
    (void)state;
    struct pair pair;
    open_with(&pair);
    struct load *load = load_make(0, 0, 100000);
    struct sh_msg *msg = pair.ends[0].msg;
    enum shoal_err err =
        sh_msg_send_object(msg, (shoal_nid){77}, TYPE_OBJECT, describe, load, &load->out);
    assert_int_equal(err, SHOAL_EUNREACHABLE);
    err = sh_msg_reply_object(msg, (struct sh_reply_to){TWO, 0, 0}, TYPE_OBJECT, describe, load,
                              &load->out);
    assert_int_equal(err, SHOAL_EINVAL);
    err = sh_msg_reply_object(msg, (struct sh_reply_to){TWO, 5, 99}, TYPE_OBJECT, describe, load,
                              &load->out);
    assert_int_equal(err, SHOAL_ECONNLOST);
    assert_int_equal(seen.sent_ok + seen.sent_failed, 0);
    load_free(load);
    pair_close(&pair);
}

/* --- Many threads -------------------------------------------------------------------------- */

#define EACH 20

struct sender {
    struct pair *pair;
    uint32_t number;
};

static void *sender_run(void *arg)
{
    struct sender *sender = arg;
    uint64_t random = sender->number;
    for (uint32_t n = 0; n < EACH; n++) {
        random = sh_mix64(random + n);
        while (any_send(sender->pair, sender->number, n, random) != SHOAL_OK)
            sched_yield();
    }
    return NULL;
}

static void senders_side_by_side(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t threads[THREADS];
    struct sender senders[THREADS];
    open_with(&pair);
    for (uint32_t i = 0; i < THREADS; i++) {
        senders[i] = (struct sender){&pair, i};
        assert_int_equal(pthread_create(&threads[i], NULL, sender_run, &senders[i]), 0);
    }
    while (seen.received < THREADS * EACH)
        if (!pair_round(&pair))
            sched_yield();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pair_settle(&pair);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(seen.next[i], EACH);
    assert_int_equal(seen.sent_failed, 0);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_with_all_else), cmocka_unit_test(requests_and_answers),
        cmocka_unit_test(lost_and_stopped),       cmocka_unit_test(refused),
        cmocka_unit_test(senders_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
