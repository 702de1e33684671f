/* Answers with a description: decoded while they come, cut at every byte; canceled, timed out and
 * lost half way, after which nothing more is written; and none allocates. */
#include <pthread.h>
#include <stdatomic.h>

#include "msg/stream_test.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#endif

/* Every byte takes minutes where every access is watched. */
#ifdef IS_SANITIZED
#define CUT_STEP 13
#else
#define CUT_STEP 1
#endif

static _Atomic uint64_t allocations;

#ifndef IS_SANITIZED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);

void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}
#endif

#define TYPE SH_MSG_TYPE(9, 1)
#define BYTES_MAX (1 << 20)
#define NUMBERS 5
#define UNTOUCHED 0xA5

/* What is asked for, and the memory that it comes to. */
struct load {
    uint32_t size;
    uint8_t *bytes;
    uint64_t numbers[NUMBERS];
};

struct asked {
    struct sh_request request;
    struct load load;
    enum shoal_err err;
    unsigned done;
    size_t text_bytes;
};

static uint8_t source[BYTES_MAX], target[BYTES_MAX];
static struct load answer;
static struct sh_object_out answer_out;
static bool is_out, spoil;

static void describe(struct sh_codec *c, void *object)
{
    struct load *load = object;
    sh_codec_u32(c, &load->size);
    if (sh_codec_reading(c) && load->size > BYTES_MAX)
        sh_codec_fail(c, SHOAL_ETOOBIG);
    sh_codec_bytes(c, load->bytes, load->size);
    sh_codec_compacts(c, load->numbers, NUMBERS);
}

static void on_sent(struct sh_object_out *out, enum shoal_err err)
{
    (void)out;
    (void)err;
    is_out = false;
}

/* Answers with as many bytes as are asked for, in the first byte's image. */
static void on_ask(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    uint32_t size = sh_get32(&in->payload);
    if (size == UINT32_MAX) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOCHUNK, "none");
        return;
    }
    answer = (struct load){.size = spoil ? UINT32_MAX - 1 : size, .bytes = source};
    for (unsigned i = 0; i < NUMBERS; i++)
        answer.numbers[i] = sh_mix64(size + i) >> 13 * i;
    if (spoil) {
        struct sh_out out;
        assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, size, &out), SHOAL_OK);
        memset(sh_writer_take(&out.w, size), 0xFF, size);
        sh_msg_end(in->msg, &out);
        return;
    }
    assert_false(is_out);
    is_out = true;
    answer_out = (struct sh_object_out){.done = on_sent};
    assert_int_equal(
        sh_msg_reply_object(in->msg, in->reply_to, in->type, describe, &answer, &answer_out),
        SHOAL_OK);
}

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->err = err;
    asked->done++;
    asked->text_bytes = sh_reader_left(payload);
}

static void open_with(struct pair *pair, uint32_t ring_bytes)
{
    is_out = spoil = false;
    for (size_t i = 0; i < BYTES_MAX; i++)
        source[i] = (uint8_t)sh_mix64(i);
    pair_open(pair, &(struct sh_msg_config){.ring_bytes = ring_bytes});
    sh_msg_handler_set(pair->ends[1].msg, TYPE, SH_MSG_INLINE, on_ask, NULL);
}

static void ask(struct pair *pair, struct asked *asked, uint32_t size, uint64_t timeout_ns)
{
    struct sh_out out;
    memset(asked, 0, sizeof *asked);
    memset(target, UNTOUCHED, size < BYTES_MAX ? size : 0);
    asked->load.bytes = target;
    asked->request = (struct sh_request){.done = on_done,
                                         .arg = asked,
                                         .timeout_ns = timeout_ns,
                                         .describe = describe,
                                         .object = &asked->load};
    assert_int_equal(
        sh_msg_request(pair->ends[0].msg, (shoal_nid){2}, TYPE, 4, &asked->request, &out),
        SHOAL_OK);
    sh_put32(&out.w, size);
    sh_msg_end(pair->ends[0].msg, &out);
}

static void asked_check(const struct asked *asked, uint32_t size)
{
    assert_int_equal(asked->done, 1);
    assert_int_equal(asked->err, SHOAL_OK);
    assert_int_equal(asked->text_bytes, 0);
    assert_int_equal(asked->load.size, size);
    assert_memory_equal(target, source, size);
    for (unsigned i = 0; i < NUMBERS; i++)
        assert_true(asked->load.numbers[i] == sh_mix64(size + i) >> 13 * i);
}

/* One comparison: an assertion for each byte takes a minute where every access is watched. */
static void untouched_check(const void *at, size_t size)
{
    const uint8_t *bytes = at;
    assert_int_equal(bytes[0], UNTOUCHED);
    assert_memory_equal(bytes, bytes + 1, size - 1);
}

/* Asks, and lets only the first `cut` bytes of the answer come. */
static void ask_cut(struct pair *pair, struct asked *asked, uint32_t size, uint64_t timeout_ns,
                    size_t cut)
{
    pair->carry_max = 0;
    ask(pair, asked, size, timeout_ns);
    size_t until = pair->carried[1] + cut;
    pair->ends[0].transport.run(pair->ends[0].msg);
    pair_carry(pair, 0);
    for (int i = 0; i < 1000 && pair->carried[1] < until; i++) {
        pair->ends[1].transport.run(pair->ends[1].msg);
        pair->carry_max = until - pair->carried[1];
        pair_carry(pair, 1);
        pair->ends[0].transport.run(pair->ends[0].msg);
    }
    assert_int_equal(pair->carried[1], until);
    for (int i = 0; i < 3; i++) /* all that came is looked at */
        pair->ends[0].transport.run(pair->ends[0].msg);
    pair->carry_max = 0;
}

/* Each cut of an answer that is decoded in pieces, and then its rest at once or in crumbs. */
static void cut_at_every_byte(void **state)
{
    (void)state;
    enum { SIZE = 4200 };
    struct pair pair;
    struct asked asked;
    open_with(&pair, 0);
    ask(&pair, &asked, SIZE, 0);
    pair_settle(&pair);
    asked_check(&asked, SIZE);
    for (size_t cut = 1; cut < SH_MSG_HEADER_BYTES + SIZE; cut += cut < 40 ? 1 : CUT_STEP) {
        ask_cut(&pair, &asked, SIZE, 0, cut);
        assert_int_equal(asked.done, 0);
        pair.carry_max = cut % 16 ? 0 : 1 + cut % 300;
        pair_settle(&pair);
        asked_check(&asked, SIZE);
    }
    pair_close(&pair);
}

/* Sizes from nothing to a streamed megabyte in pieces of any size, small ones that come whole, and
 * no block beyond the usual. */
static void sizes_and_pieces(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 100, 4095, 5000, 70000, BYTES_MAX - 8, BYTES_MAX};
    static const size_t carry[] = {0, 1000, 65536, 70001};
    for (size_t i = 0; i < sizeof carry / sizeof carry[0]; i++) {
        struct pair pair;
        struct asked asked;
        open_with(&pair, i % 2 ? 8 << 20 : 0);
        pair_settle(&pair);
        ask(&pair, &asked, 1, 0);
        pair_settle(&pair);
        asked_check(&asked, 1);
        pair_crowd(&pair);
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            pair.carry_max = carry[i];
            ask(&pair, &asked, sizes[s], 0);
            pair_settle(&pair);
            asked_check(&asked, sizes[s]);
        }
        assert_int_equal(pair.ends[0].msg->blocks_free_count[SH_BLOCK_SIZES - 1], 0);
        pair_close(&pair);
    }
}

static void malformed_and_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct asked asked;
    open_with(&pair, 0);
    static const uint32_t sizes[] = {100, 100000};
    for (int i = 0; i < 2; i++) {
        spoil = true;
        ask(&pair, &asked, sizes[i], 0);
        pair_settle(&pair);
        assert_int_equal(asked.done, 1);
        assert_int_equal(asked.err, SHOAL_ETOOBIG);
        assert_int_equal(target[0], UNTOUCHED);
        spoil = false;
        ask(&pair, &asked, UINT32_MAX, 0);
        pair_settle(&pair);
        assert_int_equal(asked.err, SHOAL_ENOCHUNK);
        assert_int_equal(asked.text_bytes, 4);
        ask(&pair, &asked, sizes[i], 0);
        pair_settle(&pair);
        asked_check(&asked, sizes[i]);
    }
    assert_int_equal(pair.ends[0].losses, 0);
    pair_close(&pair);
}

enum ending { CANCEL, CANCEL_NODE, TIME_OUT, LOSE, ENDINGS };

static void end_it(struct pair *pair, struct asked *asked, enum ending ending)
{
    struct sh_msg *msg = pair->ends[0].msg;
    enum shoal_err err[] = {SHOAL_OK, SHOAL_ECANCELED, SHOAL_ETIMEOUT, SHOAL_ECONNLOST};
    switch (ending) {
    case CANCEL:
        assert_true(sh_msg_cancel(msg, &asked->request));
        break;
    case CANCEL_NODE:
        assert_int_equal(sh_msg_cancel_node(msg, (shoal_nid){2}), 1);
        break;
    case TIME_OUT:
        pair->ends[0].memwire.now_ns += PAIR_SECOND / 10;
        pair->ends[0].transport.run(msg);
        break;
    default:
        sh_memwire_cut(&pair->ends[0].memwire, 0);
        pair->ends[0].transport.run(msg);
        break;
    }
    assert_int_equal(asked->done, ending != CANCEL);
    assert_int_equal(asked->err, err[ending]);
}

/* Ends the request when `cut` bytes of its answer are in: what it named is not touched by the rest,
 * and the next answer is. */
static void ended_at(struct pair *pair, enum ending ending, uint32_t size, size_t cut)
{
    static struct asked asked;
    ask_cut(pair, &asked, size, PAIR_SECOND / 20, cut);
    assert_int_equal(asked.done, 0);
    end_it(pair, &asked, ending);
    memset(target, UNTOUCHED, size);
    memset(&asked, UNTOUCHED, sizeof asked); /* the request's memory has another owner */
    if (ending == LOSE)
        return;
    uint64_t dropped = atomic_load(&pair->ends[0].msg->dropped);
    pair_settle(pair);
    assert_int_equal(atomic_load(&pair->ends[0].msg->dropped), dropped + 1);
    untouched_check(target, size);
    untouched_check(&asked, sizeof asked);
    /* The slot that was given up is free again, and its generation another. */
    assert_int_equal(sh_msg_requests_pending(pair->ends[0].msg), 0);
    assert_int_equal(atomic_load(&sh_conn_find(pair->ends[0].msg, (shoal_nid){2})->awaited), 0);
}

static void ended_half_way(void **state)
{
    (void)state;
    enum { SIZE = 4200 };
    struct pair pair;
    struct asked asked;
    open_with(&pair, 0);
    pair_settle(&pair);
    ask(&pair, &asked, SIZE, 0);
    pair_settle(&pair);
    for (int ending = CANCEL; ending < LOSE; ending++) {
        for (size_t cut = 1; cut < SH_MSG_HEADER_BYTES + SIZE; cut += cut < 40 ? 1 : 13) {
            ended_at(&pair, (enum ending)ending, SIZE, cut);
            if (cut % 7 == 0) {
                ask(&pair, &asked, SIZE, 0);
                pair_settle(&pair);
                asked_check(&asked, SIZE);
            }
        }
        ended_at(&pair, (enum ending)ending, 300000, 200000); /* streamed */
    }
    pair_close(&pair);
    for (size_t cut = 1; cut < SH_MSG_HEADER_BYTES + SIZE; cut += 97) {
        open_with(&pair, 0);
        pair_settle(&pair);
        ask(&pair, &asked, SIZE, 0);
        pair_settle(&pair);
        ended_at(&pair, LOSE, SIZE, cut);
        pair_close(&pair);
        untouched_check(target, SIZE);
    }
}

/* Two answers to one request, as no honest node sends: the second changes nothing. */
static void answered_twice(void **state)
{
    (void)state;
    struct pair pair;
    struct asked asked;
    open_with(&pair, 0);
    pair_settle(&pair);
    ask(&pair, &asked, 5000, 0);
    pair_settle(&pair);
    ask_cut(&pair, &asked, 5000, 0, 3000);
    struct sh_msg *msg = pair.ends[0].msg;
    sh_requests_answer(msg, (shoal_nid){2}, asked.request.id, SH_KIND_ANSWER,
                       sh_bytes_make(source, 4));
    struct sh_partial second = {.id = asked.request.id, .codec = sh_codec_reader(5000)};
    assert_true(sh_requests_answer_begin(msg, (shoal_nid){2}, &second));
    sh_requests_answer_feed(msg, (shoal_nid){2}, &second, sh_bytes_make(source + 7, 5000));
    sh_requests_answer_end(msg, (shoal_nid){2}, &second);
    assert_int_equal(asked.done, 0);
    pair_settle(&pair);
    asked_check(&asked, 5000);
    pair_close(&pair);
}

static void nothing_is_allocated(void **state)
{
    (void)state;
    struct pair pair;
    struct asked asked;
    open_with(&pair, 1 << 20);
    for (int i = 0; i < 3; i++) {
        ask(&pair, &asked, 500000, 0);
        pair_settle(&pair);
    }
    uint64_t before = atomic_load(&allocations);
    for (int i = 0; i < 50; i++) {
        ask(&pair, &asked, 500000, 0);
        pair_settle(&pair);
        asked_check(&asked, 500000);
    }
    assert_int_equal(atomic_load(&allocations), before);
#ifndef IS_SANITIZED
    assert_true(before > 0); /* the counter counts */
#endif
    pair_close(&pair);
}

/* --- Canceled by another thread while the transport step writes ----------------------------- */

#ifdef IS_SANITIZED
#define CANCELS 60
#else
#define CANCELS 300
#endif
#define CANCEL_SIZE 200000

static _Atomic unsigned canceler_turn; /* odd: the canceler's */
static struct pair cancel_pair;
static struct asked cancel_asked;
static _Atomic bool was_canceled;

static void *canceler(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CANCELS; i++) {
        while (atomic_load(&canceler_turn) != 2 * i + 1)
            (void)sched_yield();
        for (unsigned spin = 0; spin < i * 7919 % 60000; spin++)
            (void)atomic_load(&canceler_turn);
        bool is_mine = sh_msg_cancel(cancel_pair.ends[0].msg, &cancel_asked.request);
        /* A write by the transport step from here on would show, as a changed byte or as a race. */
        if (is_mine) {
            memset(&cancel_asked.load, 0, sizeof cancel_asked.load);
            memset(target, UNTOUCHED, CANCEL_SIZE);
        }
        atomic_store(&was_canceled, is_mine);
        atomic_store(&canceler_turn, 2 * i + 2);
    }
    return NULL;
}

static void canceled_while_written(void **state)
{
    (void)state;
    pthread_t thread;
    unsigned canceled = 0;
    open_with(&cancel_pair, 1 << 20);
    ask(&cancel_pair, &cancel_asked, CANCEL_SIZE, 0);
    pair_settle(&cancel_pair);
    assert_int_equal(pthread_create(&thread, NULL, canceler, NULL), 0);
    for (unsigned i = 0; i < CANCELS; i++) {
        ask(&cancel_pair, &cancel_asked, CANCEL_SIZE, 0);
        atomic_store(&canceler_turn, 2 * i + 1);
        pair_settle(&cancel_pair);
        while (atomic_load(&canceler_turn) != 2 * i + 2)
            (void)sched_yield();
        pair_settle(&cancel_pair);
        if (!atomic_load(&was_canceled)) {
            asked_check(&cancel_asked, CANCEL_SIZE);
            continue;
        }
        canceled++;
        assert_int_equal(cancel_asked.done, 0);
        untouched_check(target, CANCEL_SIZE);
    }
    print_message("%u of %u canceled\n", canceled, CANCELS);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pair_close(&cancel_pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_at_every_byte),      cmocka_unit_test(sizes_and_pieces),
        cmocka_unit_test(malformed_and_refused),  cmocka_unit_test(ended_half_way),
        cmocka_unit_test(answered_twice),         cmocka_unit_test(nothing_is_allocated),
        cmocka_unit_test(canceled_while_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
