/* Messages with a description: decoded whole or in pieces of any size, in each mode; refused,
 * malformed and lost ones. */
#include "msg/stream_test.h"

#define MODES 3
#define TYPE(mode) SH_MSG_TYPE(9, 1 + (mode))
#define TYPE_PLAIN SH_MSG_TYPE(9, 9)
#define BYTES_MAX (1 << 20)
#define NUMBERS_MAX 64

struct load {
    uint64_t number;
    size_t bytes_count;
    uint8_t *bytes;
    size_t numbers_count;
    uint64_t numbers[NUMBERS_MAX];
};

struct seen {
    uint64_t begun[MODES], done[MODES];
    uint64_t plain;
    enum shoal_err err; /* of the last one that failed */
    unsigned failed;
    bool refuse;
    bool in_handlers; /* the handler steps are running */
};

static struct seen seen;

static void describe(struct sh_codec *c, void *object)
{
    struct load *load = object;
    sh_codec_u64(c, &load->number);
    sh_codec_length(c, &load->bytes_count, BYTES_MAX);
    if (sh_codec_reading(c) && !load->bytes) {
        load->bytes = malloc(load->bytes_count ? load->bytes_count : 1);
        assert_non_null(load->bytes);
    }
    sh_codec_bytes(c, load->bytes, load->bytes_count);
    sh_codec_length(c, &load->numbers_count, NUMBERS_MAX);
    sh_codec_compacts(c, load->numbers, load->numbers_count);
}

static uint64_t expected(uint64_t number, uint64_t i)
{
    return sh_mix64(number * 1000003 + i);
}

static void load_make(struct load *load, uint64_t number, size_t bytes)
{
    memset(load, 0, sizeof *load);
    load->number = number;
    load->bytes_count = bytes;
    load->bytes = malloc(bytes ? bytes : 1);
    assert_non_null(load->bytes);
    for (size_t i = 0; i < bytes; i++)
        load->bytes[i] = (uint8_t)expected(number, i);
    load->numbers_count = number % NUMBERS_MAX;
    for (size_t i = 0; i < load->numbers_count; i++)
        load->numbers[i] = expected(number, i) >> number % 64;
}

static void load_check(const struct load *load)
{
    for (size_t i = 0; i < load->bytes_count; i++)
        assert_int_equal(load->bytes[i], (uint8_t)expected(load->number, i));
    assert_int_equal(load->numbers_count, load->number % NUMBERS_MAX);
    for (size_t i = 0; i < load->numbers_count; i++)
        assert_true(load->numbers[i] == expected(load->number, i) >> load->number % 64);
}

static void *on_begin(void *arg, const struct sh_msg_in *in, size_t payload_bytes)
{
    assert_true(payload_bytes > 0);
    assert_int_equal(sh_reader_left(&in->payload), 0);
    if (seen.refuse)
        return NULL;
    seen.begun[(uintptr_t)arg]++;
    return calloc(1, sizeof(struct load));
}

static void on_done(void *arg, struct sh_msg_in *in, void *object, enum shoal_err err)
{
    uintptr_t mode = (uintptr_t)arg;
    struct load *load = object;
    if (err == SHOAL_OK) {
        load_check(load);
        assert_int_equal(load->number, seen.done[mode]);
        assert_int_equal(seen.in_handlers, mode != SH_MSG_INLINE);
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
    } else {
        seen.failed++;
        seen.err = err;
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
    }
    seen.done[mode]++;
    free(load->bytes);
    free(load);
}

static void on_plain(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    assert_true(sh_reader_ok(&in->payload));
    seen.plain++;
}

static void open_with(struct pair *pair, uint64_t bound)
{
    memset(&seen, 0, sizeof seen);
    pair_open(pair, &(struct sh_msg_config){.receive_bytes_max = bound, .ring_bytes = 32 << 20});
    for (uintptr_t mode = 0; mode < MODES; mode++)
        sh_msg_object_set(pair->ends[1].msg, (sh_msg_type)TYPE(mode), (enum sh_msg_mode)mode,
                          describe, on_begin, on_done, (void *)mode);
    sh_msg_handler_set(pair->ends[1].msg, TYPE_PLAIN, SH_MSG_INLINE, on_plain, NULL);
}

static void rounds(struct pair *pair)
{
    for (unsigned quiet = 0; quiet < 3;) {
        bool is_busy = pair_round(pair);
        seen.in_handlers = true;
        is_busy |= pair_handle(pair);
        seen.in_handlers = false;
        quiet = is_busy ? 0 : quiet + 1;
    }
}

/* Sends one load as bytes; those from `spoil` on (if it is within) are garbage. */
static void send_load(struct pair *pair, unsigned mode, uint64_t number, size_t bytes,
                      struct sh_request *request, size_t spoil)
{
    struct load load;
    struct sh_out out;
    load_make(&load, number, bytes);
    size_t size = (size_t)sh_codec_size(describe, &load);
    struct sh_msg *msg = pair->ends[0].msg;
    shoal_nid to = {2};
    enum shoal_err err;
    for (;;) {
        if (request)
            err = sh_msg_request(msg, to, (sh_msg_type)TYPE(mode), size, request, &out);
        else
            err = sh_msg_begin(msg, to, (sh_msg_type)TYPE(mode), size, &out);
        if (err != SHOAL_EAGAIN)
            break;
        rounds(pair);
    }
    assert_int_equal(err, SHOAL_OK);
    struct sh_codec c = sh_codec_writer(size);
    uint8_t *at = sh_writer_take(&out.w, size);
    sh_codec_write(&c, describe, &load, at, size);
    if (spoil < size)
        memset(at + spoil, 0xff, size - spoil);
    sh_msg_end(msg, &out);
    free(load.bytes);
}

static void send_plain(struct pair *pair, size_t bytes)
{
    struct sh_out out;
    assert_int_equal(sh_msg_begin(pair->ends[0].msg, (shoal_nid){2}, TYPE_PLAIN, bytes, &out),
                     SHOAL_OK);
    memset(sh_writer_take(&out.w, bytes), 1, bytes);
    sh_msg_end(pair->ends[0].msg, &out);
}

/* Every kind of cut: of the header, before it, in the middle of what is decoded piecewise. */
static void pieces_of_any_size(void **state)
{
    (void)state;
    static const size_t carry[] = {0, 7, 1000, 4096, 70000};
    for (size_t i = 0; i < sizeof carry / sizeof carry[0]; i++) {
        struct pair pair;
        open_with(&pair, 0);
        pair_settle(&pair);
        pair.carry_max = carry[i];
        size_t most = carry[i] == 7 ? 9000 : 300000;
        for (uint64_t n = 0; n < 24; n++) {
            for (unsigned mode = 0; mode < MODES; mode++)
                send_load(&pair, mode, n, pair_random(&pair) % (n % 3 ? most : 200), NULL,
                          SIZE_MAX);
            send_plain(&pair, 1 + pair_random(&pair) % 100);
        }
        rounds(&pair);
        for (unsigned mode = 0; mode < MODES; mode++) {
            assert_int_equal(seen.begun[mode], 24);
            assert_int_equal(seen.done[mode], 24);
        }
        assert_int_equal(seen.plain, 24);
        assert_int_equal(seen.failed, 0);
        pair_close(&pair);
    }
}

/* A message far larger than any block is not copied together: no large block is ever made. */
static void no_large_blocks(void **state)
{
    (void)state;
    struct pair pair;
    open_with(&pair, 0);
    send_load(&pair, SH_MSG_INLINE, 0, 100, NULL, SIZE_MAX);
    rounds(&pair);
    pair_crowd(&pair);
    for (uint64_t n = 1; n < 5; n++)
        send_load(&pair, SH_MSG_INLINE, n, BYTES_MAX - n, NULL, SIZE_MAX);
    rounds(&pair);
    assert_int_equal(seen.done[SH_MSG_INLINE], 5);
    assert_int_equal(pair.ends[1].msg->blocks_free_count[SH_BLOCK_SIZES - 1], 0);
    pair_close(&pair);
}

struct asked {
    struct sh_request request;
    enum shoal_err err;
    unsigned done;
};

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)payload;
    struct asked *asked = request->arg;
    asked->err = err;
    asked->done++;
}

static void asked_be(struct pair *pair, unsigned mode, size_t bytes, size_t spoil,
                     enum shoal_err expected_err)
{
    struct asked asked = {.request = {.done = on_answer}};
    asked.request.arg = &asked;
    uint64_t number = seen.done[mode];
    send_load(pair, mode, number, bytes, &asked.request, spoil);
    rounds(pair);
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, expected_err);
}

static void requests_refused_and_malformed(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 100000};
    struct pair pair;
    open_with(&pair, 0);
    for (unsigned mode = 0; mode < MODES; mode++) {
        for (int s = 0; s < 2; s++) {
            asked_be(&pair, mode, sizes[s], SIZE_MAX, SHOAL_OK);
            asked_be(&pair, mode, sizes[s], 8, SHOAL_EPROTO); /* the length */
            asked_be(&pair, mode, sizes[s], sizes[s] + 8, SHOAL_EPROTO);
            seen.refuse = true;
            asked_be(&pair, mode, sizes[s], SIZE_MAX, SHOAL_ENOMEM);
            seen.refuse = false;
            asked_be(&pair, mode, sizes[s], SIZE_MAX, SHOAL_OK);
        }
        assert_int_equal(seen.begun[mode], seen.done[mode]);
    }
    assert_int_equal(pair.ends[1].losses, 0); /* a malformed payload harms nobody else */
    pair_close(&pair);
}

/* Cuts the connection, or takes the end down, when half of a message has come. */
static void lost_half_way(void **state)
{
    (void)state;
    for (unsigned mode = 0; mode < MODES; mode++) {
        for (int is_cut = 0; is_cut < 2; is_cut++) {
            struct pair pair;
            open_with(&pair, 0);
            pair_settle(&pair);
            pair.carry_max = 50000;
            send_load(&pair, mode, 0, 200000, NULL, SIZE_MAX);
            for (int i = 0; i < 1000 && seen.begun[mode] == 0; i++)
                pair_round(&pair);
            assert_int_equal(seen.begun[mode], 1);
            assert_int_equal(seen.done[mode], 0);
            if (is_cut) {
                sh_memwire_cut(&pair.ends[1].memwire, 0);
                pair.ends[1].transport.run(pair.ends[1].msg);
                assert_int_equal(seen.err, SHOAL_ECONNLOST);
            }
            pair_close(&pair);
            assert_int_equal(seen.done[mode], 1);
            assert_int_equal(seen.err, is_cut ? SHOAL_ECONNLOST : SHOAL_ESTOPPED);
        }
    }
}

/* Decoded objects that wait for a handler step when the connection is lost: an ordered one is given
 * back, a pooled one is still handled. */
static void lost_in_the_queue(void **state)
{
    (void)state;
    struct pair pair;
    open_with(&pair, 0);
    pair_settle(&pair);
    send_load(&pair, SH_MSG_POOLED, 0, 200000, NULL, SIZE_MAX);
    send_load(&pair, SH_MSG_ORDERED, 0, 200000, NULL, SIZE_MAX);
    for (int i = 0; i < 100; i++)
        pair_round(&pair);
    assert_int_equal(seen.begun[SH_MSG_ORDERED], 1);
    sh_memwire_cut(&pair.ends[1].memwire, 0);
    pair.ends[1].transport.run(pair.ends[1].msg);
    assert_int_equal(seen.done[SH_MSG_ORDERED], 1);
    assert_int_equal(seen.err, SHOAL_ECONNLOST);
    assert_int_equal(seen.done[SH_MSG_POOLED], 0);
    rounds(&pair);
    assert_int_equal(seen.done[SH_MSG_POOLED], 1);
    assert_int_equal(seen.failed, 1);
    pair_close(&pair);
}

/* With works held, what was decoded waits for its turn, even when nothing more comes. */
static void stalled_at_its_end(void **state)
{
    (void)state;
    struct pair pair;
    open_with(&pair, 1);
    pair_settle(&pair);
    send_load(&pair, SH_MSG_ORDERED, 0, 3000, NULL, SIZE_MAX); /* leaves its block held */
    for (int i = 0; i < 50; i++)
        pair_round(&pair);
    assert_true(sh_blocks_are_many(pair.ends[1].msg));
    send_load(&pair, SH_MSG_ORDERED, 1, 200000, NULL, SIZE_MAX);
    for (int i = 0; i < 50; i++)
        pair_round(&pair);
    assert_int_equal(seen.begun[SH_MSG_ORDERED], 1); /* the first has not begun */
    rounds(&pair);
    assert_int_equal(seen.done[SH_MSG_ORDERED], 2);
    assert_int_equal(seen.failed, 0);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size),
        cmocka_unit_test(no_large_blocks),
        cmocka_unit_test(requests_refused_and_malformed),
        cmocka_unit_test(lost_half_way),
        cmocka_unit_test(lost_in_the_queue),
        cmocka_unit_test(stalled_at_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
