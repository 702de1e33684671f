/* Handlers that do their work in pieces: inline ones one at a time and in order, while other streams
 * are served; pooled ones; and what becomes of them when the connection or this end goes. */
#include "msg/bulk.h"
#include "msg/stream_test.h"

#define TYPE_SLOW SH_MSG_TYPE(9, 1)
#define TYPE_QUICK SH_MSG_TYPE(9, 2)
#define TYPE_POOLED SH_MSG_TYPE(9, 3)
#define PIECES 20
#define LARGE (3 << 20)

static struct {
    unsigned begun, over, ended, quick;
    unsigned pieces;
    unsigned quick_meanwhile; /* while a slow one was at work */
    bool is_at_work;
    size_t answer_bytes; /* of a slow one */
} seen;

/* A request says how many bytes its payload's first byte is repeated. */
static void on_slow(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    if (in->is_ending) {
        assert_true(in->goes_on);
        seen.ended++;
        free(in->state);
        return;
    }
    if (!in->goes_on) {
        seen.begun++;
        in->goes_on = true;
        return;
    }
    unsigned *left = in->state;
    if (!left) {
        assert_false(seen.is_at_work);
        in->state = left = malloc(sizeof *left);
        assert_non_null(left);
        *left = PIECES;
        seen.is_at_work = true;
    }
    seen.pieces++;
    if (--*left > 0)
        return;
    free(left);
    seen.is_at_work = false;
    seen.over++;
    in->goes_on = false;
    struct sh_bulk *bulk;
    assert_int_equal(sh_bulk_open(in->msg, seen.answer_bytes, &bulk), SHOAL_OK);
    memset(sh_writer_take(sh_bulk_writer(bulk), seen.answer_bytes), *in->payload.at,
           seen.answer_bytes);
    sh_bulk_reply(bulk, in->reply_to, in->type, true);
}

static void on_quick(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    seen.quick++;
    seen.quick_meanwhile += seen.is_at_work;
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

struct asked {
    struct sh_request request;
    unsigned done;
    enum shoal_err err;
    size_t bytes;
    uint8_t byte;
};

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->done++;
    asked->err = err;
    if (err != SHOAL_OK)
        return;
    asked->bytes = sh_reader_left(payload);
    for (size_t i = 0; i < asked->bytes; i++)
        assert_int_equal(payload->at[i], asked->byte);
}

static void ask(struct pair *pair, int from, sh_msg_type type, size_t bytes, struct asked *asked)
{
    struct sh_out out;
    asked->request = (struct sh_request){.done = on_answer, .arg = asked};
    assert_int_equal(sh_msg_request(pair->ends[from].msg, (shoal_nid){(uint16_t)(2 - from)}, type,
                                    bytes, &asked->request, &out),
                     SHOAL_OK);
    memset(sh_writer_take(&out.w, bytes), asked->byte, bytes);
    sh_msg_end(pair->ends[from].msg, &out);
}

static void open_pair(struct pair *pair)
{
    memset(&seen, 0, sizeof seen);
    seen.answer_bytes = 100;
    pair_open(pair, &(struct sh_msg_config){.ring_bytes = 8 << 20});
    struct sh_msg *msg = pair->ends[1].msg;
    sh_msg_handler_set(msg, TYPE_SLOW, SH_MSG_INLINE, on_slow, NULL);
    sh_msg_handler_set(msg, TYPE_QUICK, SH_MSG_INLINE, on_quick, NULL);
    sh_msg_handler_set(msg, TYPE_POOLED, SH_MSG_POOLED, on_slow, NULL);
}

/* The message behind one that goes on waits for it, whatever size both have. */
static void in_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 5000, 2 << 20};
    for (unsigned i = 0; i < 3; i++) {
        struct pair pair;
        struct asked slow[3] = {{.byte = 1}, {.byte = 2}, {.byte = 3}}, quick = {.byte = 4};
        open_pair(&pair);
        for (unsigned n = 0; n < 3; n++)
            ask(&pair, 0, TYPE_SLOW, sizes[i], &slow[n]);
        ask(&pair, 0, TYPE_QUICK, 1, &quick);
        while (slow[1].done == 0) {
            (void)pair_round(&pair);
            assert_int_equal(quick.done, 0);
        }
        pair_settle(&pair);
        assert_int_equal(seen.over, 3);
        assert_int_equal(seen.pieces, 3 * PIECES);
        assert_int_equal(seen.quick_meanwhile, 0);
        assert_int_equal(quick.done, 1);
        for (unsigned n = 0; n < 3; n++) {
            assert_int_equal(slow[n].done, 1);
            assert_int_equal(slow[n].bytes, 100);
        }
        pair_close(&pair);
    }
}

/* Answers of any size, from rings, blocks and mappings. */
static void large_answers(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 5000, 1 << 20, (1 << 20) + 1, 20 << 20};
    struct pair pair;
    open_pair(&pair);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct asked asked = {.byte = (uint8_t)(i + 1)};
        seen.answer_bytes = sizes[i];
        ask(&pair, 0, TYPE_SLOW, 10, &asked);
        pair_settle(&pair);
        assert_int_equal(asked.done, 1);
        assert_int_equal(asked.err, SHOAL_OK);
        assert_int_equal(asked.bytes, sizes[i]);
    }
    struct sh_bulk *bulk;
    assert_int_equal(sh_bulk_open(pair.ends[1].msg, (64 << 20) + 1, &bulk), SHOAL_ETOOBIG);
    pair_close(&pair);
}

/* What has begun is done to its end, though nobody waits for it any more. */
static void connection_lost(void **state)
{
    (void)state;
    struct pair pair;
    struct asked asked = {.byte = 1};
    open_pair(&pair);
    ask(&pair, 0, TYPE_SLOW, LARGE, &asked);
    while (seen.pieces < 3)
        (void)pair_round(&pair);
    sh_msg_node_remove(pair.ends[0].msg, (shoal_nid){2});
    (void)pair_round(&pair);
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_ECONNLOST);
    sh_memwire_cut(&pair.ends[1].memwire, 0);
    for (unsigned i = 0; i < 3 * PIECES; i++)
        (void)pair.ends[1].transport.run(pair.ends[1].msg);
    assert_int_equal(seen.over, 1);
    pair_close(&pair);
    assert_int_equal(seen.ended, 0);
}

/* Destroying this end calls the handler once more, of whatever mode. */
static void cut_short(void **state)
{
    (void)state;
    static const sh_msg_type types[] = {TYPE_SLOW, TYPE_POOLED};
    for (unsigned i = 0; i < 2; i++) {
        struct pair pair;
        struct asked asked = {.byte = 1}, next = {.byte = 1};
        open_pair(&pair);
        ask(&pair, 0, types[i], 10, &asked);
        ask(&pair, 0, types[i], 10, &next);
        while (seen.pieces < 3) {
            (void)pair_round(&pair);
            (void)pair_handle(&pair);
        }
        pair_close(&pair);
        assert_int_equal(seen.ended, 1);
        assert_int_equal(seen.over, 0);
    }
}

/* A handler step stays with a message until it is over, and takes the next one then. */
static void pooled(void **state)
{
    (void)state;
    struct pair pair;
    struct asked asked[3] = {{.byte = 1}, {.byte = 2}, {.byte = 3}};
    open_pair(&pair);
    for (unsigned i = 0; i < 3; i++)
        ask(&pair, 0, TYPE_POOLED, 10, &asked[i]);
    pair_settle(&pair);
    assert_int_equal(seen.over, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(asked[i].done, 1);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order),        cmocka_unit_test(large_answers),
        cmocka_unit_test(connection_lost), cmocka_unit_test(cut_short),
        cmocka_unit_test(pooled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
