/* The hello byte by byte: the test plays the other side, with proofs that it computes by itself as
 * docs/wire-format.md says. Neither side may rely on the other to refuse a proof. */
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/hash.h"
#include "msg/msg_edges_test.h"

enum { HELLO = 1, WELCOME, PROOF, REFUSAL };

static const char secret[] = "a secret of the test"; /* that of all ends */

/* Only the steps of one end: nobody else answers. */
static void steps(struct end *end)
{
    for (unsigned i = 0; i < 20; i++) {
        (void)end->transport.run(end->msg);
        (void)end->handlers.run(end->handlers.arg);
    }
}

static void head_write(uint8_t *frame, uint16_t kind, uint16_t size)
{
    memcpy(frame, "SHOL", 4);
    sh_store16(frame + 4, kind);
    sh_store16(frame + 6, size);
}

struct said {
    uint16_t version_min, version_max, nid, reserved;
    const char *cluster;
    uint8_t nonce; /* 16 times */
    uint64_t instance;
};

static void hello_write(uint8_t *frame, uint16_t kind, const struct said *said)
{
    head_write(frame, kind, kind == HELLO ? SH_HELLO_BYTES : SH_WELCOME_BYTES);
    sh_store16(frame + 8, said->version_min);
    sh_store16(frame + 10, said->version_max);
    sh_store16(frame + 12, said->nid);
    sh_store16(frame + 14, said->reserved);
    sh_store64(frame + 16, sh_hash64(sh_bytes_text(said->cluster), 0));
    sh_store64(frame + 24, said->instance);
    memset(frame + 32, said->nonce, 16);
}

static void proof_write(uint8_t *proof, const char *side, const uint8_t *hello,
                        const uint8_t *welcome)
{
    uint8_t said[16 + 2 * SH_HELLO_BYTES] = {0};
    unsigned size;
    memcpy(said, side, strlen(side));
    memcpy(said + 16, hello, SH_HELLO_BYTES);
    memcpy(said + 16 + SH_HELLO_BYTES, welcome, SH_HELLO_BYTES);
    assert_non_null(HMAC(EVP_sha256(), secret, sizeof secret - 1, said, sizeof said, proof, &size));
    assert_int_equal(size, SH_PROOF_BYTES);
}

static const struct said usual = {SH_MSG_VERSION_MIN, SH_MSG_VERSION, .nid = 1, .cluster = "test",
                                  .nonce = 7};

/* --- The test dials -------------------------------------------------------------------------- */

/* Says hello over a new link: the kind of the answer, and its bytes. */
static unsigned hello_say(struct end *end, const struct said *said, sh_link *link_out,
                          uint8_t *hello_out, uint8_t *welcome_out)
{
    hello_write(hello_out, HELLO, said);
    *link_out = sh_memwire_accept(&end->memwire);
    sh_memwire_feed(&end->memwire, *link_out, sh_bytes_make(hello_out, SH_HELLO_BYTES));
    steps(end);
    const struct sh_memlink *link = &end->memwire.links[*link_out];
    size_t size = link->out_size < SH_WELCOME_BYTES ? link->out_size : SH_WELCOME_BYTES;
    assert_true(size >= 10);
    memcpy(welcome_out, link->out, size);
    return sh_load16(welcome_out + 4);
}

/* Sends a proof; returns what the end refuses it with, SHOAL_OK if it takes it. */
static enum shoal_err proof_say(struct end *end, sh_link link, const uint8_t *proof)
{
    uint8_t frame[SH_PROOF_FRAME_BYTES];
    struct sh_memlink *at = &end->memwire.links[link];
    size_t before = at->out_size;
    unsigned ups = end->ups;
    head_write(frame, PROOF, sizeof frame);
    memcpy(frame + 8, proof, SH_PROOF_BYTES);
    sh_memwire_feed(&end->memwire, link, sh_bytes_make(frame, sizeof frame));
    steps(end);
    if (at->out_size >= before + 10 && memcmp(at->out + before, "SHOL", 4) == 0) {
        assert_int_equal(sh_load16(at->out + before + 4), REFUSAL);
        assert_int_equal(end->ups, ups);
        return (enum shoal_err)sh_load16(at->out + before + 8);
    }
    assert_int_equal(end->ups, ups + 1);
    return SHOAL_OK;
}

static void test_dialler_must_prove(void **state)
{
    (void)state;
    struct end *end = end_open(2);
    uint8_t hello[SH_HELLO_BYTES], welcome[SH_WELCOME_BYTES], proof[SH_PROOF_BYTES] = {0};
    uint8_t old_proof[SH_PROOF_BYTES];
    sh_link link;
    assert_int_equal(hello_say(end, &usual, &link, hello, welcome), WELCOME);
    assert_int_equal(proof_say(end, link, proof), SHOAL_ESECRET);
    /* The end's own proof, sent back. */
    assert_int_equal(hello_say(end, &usual, &link, hello, welcome), WELCOME);
    assert_int_equal(proof_say(end, link, welcome + SH_HELLO_BYTES), SHOAL_ESECRET);
    /* All but the last bit. */
    assert_int_equal(hello_say(end, &usual, &link, hello, welcome), WELCOME);
    proof_write(proof, "shoal dials", hello, welcome);
    proof[SH_PROOF_BYTES - 1] ^= 1;
    assert_int_equal(proof_say(end, link, proof), SHOAL_ESECRET);
    assert_int_equal(end->ups, 0);
    assert_int_equal(hello_say(end, &usual, &link, hello, welcome), WELCOME);
    proof_write(old_proof, "shoal dials", hello, welcome);
    assert_int_equal(proof_say(end, link, old_proof), SHOAL_OK);
    /* Recorded and played again: each welcome has another nonce. */
    assert_int_equal(hello_say(end, &usual, &link, hello, welcome), WELCOME);
    assert_int_equal(proof_say(end, link, old_proof), SHOAL_ESECRET);
}

static void test_hello_is_judged(void **state)
{
    (void)state;
    struct end *end = end_open(2);
    const struct {
        struct said said;
        enum shoal_err expected;
    } cases[] = {
        {{1, SH_MSG_VERSION, 1, .reserved = 1, .cluster = "test"}, SHOAL_EPROTO},
        {{1, SH_MSG_VERSION, 1, .reserved = 0x8000, .cluster = "test"}, SHOAL_EPROTO},
        {{1, SH_MSG_VERSION, SH_MSG_NID_MAX + 1, .cluster = "test"}, SHOAL_EPROTO},
        {{1, SH_MSG_VERSION, 0xffff, .cluster = "test"}, SHOAL_EPROTO},
        {{1, SH_MSG_VERSION, 1, .cluster = "tesu"}, SHOAL_ECLUSTER},
        {{1, SH_MSG_VERSION, 1, .cluster = ""}, SHOAL_ECLUSTER},
        {{1, SH_MSG_VERSION, 2, .cluster = "test"}, SHOAL_EEXIST},
        {{SH_MSG_VERSION + 1, SH_MSG_VERSION + 1, 1, .cluster = "test"}, SHOAL_EVERSION},
        {{0, 0, 1, .cluster = "test"}, SHOAL_EVERSION},
    };
    uint8_t hello[SH_HELLO_BYTES], welcome[SH_WELCOME_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sh_link link;
        assert_int_equal(hello_say(end, &cases[i].said, &link, hello, welcome), REFUSAL);
        assert_int_equal(sh_load16(welcome + 8), cases[i].expected);
        assert_int_equal(end->memwire.links[link].out_size, 10);
    }
    assert_int_equal(end->ups, 0);
}

/* A node of which is said which process it is can't be another one, but for a later life, which this end
 * has yet to hear of. */
static void test_former_lives_are_refused(void **state)
{
    (void)state;
    const uint64_t life = UINT64_C(5) << 32 | 77;
    const struct {
        uint64_t instance;
        enum shoal_err expected;
    } cases[] = {{life, SHOAL_OK},
                 {life + 1, SHOAL_EEXIST}, /* a copy */
                 {life - (UINT64_C(1) << 32), SHOAL_EEXIST},
                 {1, SHOAL_EEXIST},
                 {life + (UINT64_C(1) << 32), SHOAL_OK}};
    uint8_t hello[SH_HELLO_BYTES], welcome[SH_WELCOME_BYTES], proof[SH_PROOF_BYTES];
    struct end *end = end_open(2);
    for (uint16_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct said said = usual;
        shoal_nid nid = {(uint16_t)(10 + i)};
        sh_link link;
        said.nid = nid.v;
        said.instance = cases[i].instance;
        sh_msg_node_instance_set(end->msg, nid, life);
        assert_int_equal(hello_say(end, &said, &link, hello, welcome), WELCOME);
        proof_write(proof, "shoal dials", hello, welcome);
        assert_int_equal(proof_say(end, link, proof), cases[i].expected);
        /* One that is connected is given up once it is another that is meant. */
        if (cases[i].expected)
            continue;
        unsigned losses = end->losses;
        sh_msg_node_instance_set(end->msg, nid, said.instance);
        steps(end);
        assert_int_equal(end->losses, losses);
        sh_msg_node_instance_set(end->msg, nid, said.instance + (UINT64_C(1) << 32));
        steps(end);
        assert_int_equal(end->losses, losses + 1);
    }
}

/* Says hello as a process of that instance, to the end: what it is refused with. */
static enum shoal_err enter(struct end *end, uint64_t instance)
{
    uint8_t hello[SH_HELLO_BYTES], welcome[SH_WELCOME_BYTES], proof[SH_PROOF_BYTES];
    struct said said = usual;
    sh_link link;
    said.instance = instance;
    assert_int_equal(hello_say(end, &said, &link, hello, welcome), WELCOME);
    proof_write(proof, "shoal dials", hello, welcome);
    return proof_say(end, link, proof);
}

static void leave(struct end *end)
{
    sh_msg_node_remove(end->msg, (shoal_nid){usual.nid});
    steps(end);
}

/* Of a node that is one process at a time a second process is let in only once the first is gone; and if it
 * was there beside the first, only after the time in which that may be started again. */
static void test_one_process_at_a_time(void **state)
{
    (void)state;
    const uint64_t wait_ns = 2000, one = UINT64_C(5) << 32 | 77, copy = UINT64_C(6) << 32 | 88,
                   next = UINT64_C(6) << 32 | 99, fresh = 11;
    const shoal_nid nid = {usual.nid};
    struct end *end = end_open(2);
    sh_msg_sole_set(end->msg, nid, wait_ns);
    assert_int_equal(enter(end, one), SHOAL_OK);
    unsigned losses = end->losses;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(enter(end, copy), SHOAL_EEXIST);
        end->memwire.now_ns += wait_ns;
    }
    assert_int_equal(end->losses, losses);
    /* The one is killed, and started again; the copy waits for as long as that may take. */
    leave(end);
    assert_int_equal(enter(end, copy), SHOAL_EEXIST);
    assert_int_equal(enter(end, next), SHOAL_OK);
    assert_int_equal(enter(end, copy), SHOAL_EEXIST);
    end->memwire.now_ns += wait_ns;
    leave(end);
    end->memwire.now_ns += wait_ns;
    assert_int_equal(enter(end, copy), SHOAL_OK);
    /* The one that is known takes the place of another one, though it has to dial twice. */
    sh_msg_node_instance_set(end->msg, nid, next);
    steps(end);
    assert_int_equal(enter(end, next), SHOAL_EEXIST);
    assert_int_equal(enter(end, next), SHOAL_OK);
    /* A former one keeps nobody out; nor does one whose end is noticed late keep out the next for long. */
    sh_msg_node_instance_set(end->msg, nid, next + (UINT64_C(1) << 32));
    assert_int_equal(enter(end, fresh), SHOAL_EEXIST);
    assert_int_equal(enter(end, fresh), SHOAL_OK);
    assert_int_equal(enter(end, UINT64_C(8) << 32 | 12), SHOAL_EEXIST);
    leave(end);
    assert_int_equal(enter(end, UINT64_C(8) << 32 | 12), SHOAL_OK);
}

/* Both sides speak the highest version that both know. */
static void test_older_dialler(void **state)
{
    (void)state;
    struct end *end = end_open(2);
    uint8_t hello[SH_HELLO_BYTES], welcome[SH_WELCOME_BYTES], proof[SH_PROOF_BYTES];
    for (uint16_t version = SH_MSG_VERSION_MIN; version <= SH_MSG_VERSION + 1; version++) {
        struct said said = usual;
        sh_link link;
        said.nid = (uint16_t)(10 + version);
        said.version_max = version;
        assert_int_equal(hello_say(end, &said, &link, hello, welcome), WELCOME);
        proof_write(proof, "shoal dials", hello, welcome);
        assert_int_equal(proof_say(end, link, proof), SHOAL_OK);
        const struct sh_conn *conn = sh_conn_find(end->msg, (shoal_nid){said.nid});
        assert_int_equal(conn->accepted->version,
                         version < SH_MSG_VERSION ? version : SH_MSG_VERSION);
    }
}

/* --- The test accepts ------------------------------------------------------------------------ */

/* Has an end dial node 2, whose address nobody but the test has: its link. */
static sh_link dial(struct end *end, struct asked *asked)
{
    sh_link link = end->memwire.count;
    assert_int_equal(sh_msg_node_set(end->msg, (shoal_nid){2}, "test:1"), SHOAL_OK);
    assert_int_equal(ask(end, 2, TYPE_ECHO, 5, asked), SHOAL_OK);
    steps(end);
    assert_int_equal(end->memwire.count, link + 1);
    assert_int_equal(end->memwire.links[link].out_size, SH_HELLO_BYTES);
    return link;
}

/* Answers the hello of a link; changes one bit of the proof if told to. */
static void welcome_say(struct end *end, sh_link link, const struct said *said, uint8_t spoil)
{
    uint8_t frame[SH_WELCOME_BYTES];
    hello_write(frame, WELCOME, said);
    proof_write(frame + SH_HELLO_BYTES, "shoal accepts", end->memwire.links[link].out, frame);
    frame[SH_WELCOME_BYTES - 1] ^= spoil;
    sh_memwire_feed(&end->memwire, link, sh_bytes_make(frame, sizeof frame));
    steps(end);
}

/* The end has refused, and has sent nothing of its own: neither its proof nor the request. */
static void assert_refused(struct end *end, sh_link link, const struct asked *asked,
                           enum shoal_err expected)
{
    const struct sh_memlink *at = &end->memwire.links[link];
    assert_int_equal(asked->done, 1);
    assert_int_equal(asked->err, expected);
    assert_int_equal(end->ups, 0);
    assert_true(at->out_size == SH_HELLO_BYTES || at->out_size == SH_HELLO_BYTES + 10);
}

static void test_acceptor_must_prove(void **state)
{
    (void)state;
    struct end *end = end_open(1);
    static struct asked asked; /* some are done only when the end is closed */
    struct said two = usual;
    two.nid = 2;
    sh_link link = dial(end, &asked);
    welcome_say(end, link, &two, 1);
    assert_refused(end, link, &asked, SHOAL_ESECRET);
    /* A welcome for another hello, played again: each hello has another nonce. */
    uint8_t other[SH_HELLO_BYTES], frame[SH_WELCOME_BYTES];
    memcpy(other, end->memwire.links[link].out, sizeof other);
    link = dial(end, &asked);
    hello_write(frame, WELCOME, &two);
    proof_write(frame + SH_HELLO_BYTES, "shoal accepts", other, frame);
    sh_memwire_feed(&end->memwire, link, sh_bytes_make(frame, sizeof frame));
    steps(end);
    assert_refused(end, link, &asked, SHOAL_ESECRET);
    link = dial(end, &asked);
    welcome_say(end, link, &two, 0);
    assert_int_equal(end->ups, 1);
    /* Behind the hello comes the right proof, and then the request. */
    const struct sh_memlink *at = &end->memwire.links[link];
    uint8_t proof[SH_PROOF_BYTES];
    proof_write(proof, "shoal dials", at->out, frame);
    assert_true(at->out_size > SH_HELLO_BYTES + SH_PROOF_FRAME_BYTES);
    assert_memory_equal(at->out + SH_HELLO_BYTES + 8, proof, sizeof proof);
}

static void test_welcome_is_judged(void **state)
{
    (void)state;
    const struct {
        struct said said;
        enum shoal_err expected;
    } cases[] = {
        {{1, SH_MSG_VERSION, 3, .cluster = "test"}, SHOAL_ENONODE}, /* not the one meant */
        {{1, SH_MSG_VERSION, 0, .cluster = "test"}, SHOAL_ENONODE},
        {{1, SH_MSG_VERSION, 2, .reserved = 1, .cluster = "test"}, SHOAL_EPROTO},
        {{1, SH_MSG_VERSION, 2, .cluster = "other"}, SHOAL_ECLUSTER},
        {{SH_MSG_VERSION + 1, SH_MSG_VERSION + 1, 2, .cluster = "test"}, SHOAL_EVERSION},
        /* Neither a former nor a later life of the one meant. */
        {{1, SH_MSG_VERSION, 2, .cluster = "test", .instance = 1}, SHOAL_ENONODE},
        {{1, SH_MSG_VERSION, 2, .cluster = "test", .instance = UINT64_C(6) << 32}, SHOAL_ENONODE},
    };
    struct end *end = end_open(1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct asked asked;
        if (cases[i].said.instance)
            sh_msg_node_instance_set(end->msg, (shoal_nid){2}, UINT64_C(5) << 32 | 1);
        sh_link link = dial(end, &asked);
        welcome_say(end, link, &cases[i].said, 0);
        assert_refused(end, link, &asked, cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_dialler_must_prove, close_all),
        cmocka_unit_test_teardown(test_hello_is_judged, close_all),
        cmocka_unit_test_teardown(test_former_lives_are_refused, close_all),
        cmocka_unit_test_teardown(test_one_process_at_a_time, close_all),
        cmocka_unit_test_teardown(test_older_dialler, close_all),
        cmocka_unit_test_teardown(test_acceptor_must_prove, close_all),
        cmocka_unit_test_teardown(test_welcome_is_judged, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
