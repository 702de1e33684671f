/* libshoal against nodes that lie: a superpeer and a peer that speak the protocol as far as the
 * header of each message, and answer what the test tells them to. Whatever they say, the client
 * writes nothing outside its buffers, nothing to its outputs on failure, and ends in time.
 *
 * SHOAL_TEST_SEED: the seed of the random answers (default: from the clock; printed). */
#include "base/random_test.h"
#include "tests/client_ends_int.h"

#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "cluster/view.h"
#include "node/chunks.h"

#define PEER 64
#define ANSWER_MAX 4096

struct liar {
    struct end end;
    /* Under the lock: the answer to everything, but of an honest superpeer. */
    struct sh_lock lock;
    uint8_t answer[ANSWER_MAX];
    size_t size;
    uint8_t once[32]; /* is answered once, before the answer */
    size_t once_size;
    enum shoal_err err; /* not OK: answer with it, and with the answer as its text */
    bool lies_as_superpeer;
    const struct liar *peer; /* a superpeer's: whom its view names */
};

static void on_any(void *arg, struct sh_msg_in *in)
{
    struct liar *liar = arg;
    struct sh_out out;
    sh_lock_take(&liar->lock);
    uint8_t answer[ANSWER_MAX + 1];
    enum shoal_err err = liar->err;
    size_t size = liar->size;
    memcpy(answer, liar->answer, size);
    if (liar->once_size) {
        size = liar->once_size;
        memcpy(answer, liar->once, size);
        liar->once_size = 0;
    }
    answer[size] = 0;
    sh_lock_release(&liar->lock);
    if (err != SHOAL_OK) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, (const char *)answer);
    } else if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out) == SHOAL_OK) {
        sh_put_raw(&out.w, sh_bytes_make(answer, size));
        sh_msg_end(in->msg, &out);
    }
}

static bool lies(struct liar *liar)
{
    sh_lock_take(&liar->lock);
    bool is_so = liar->lies_as_superpeer;
    sh_lock_release(&liar->lock);
    return is_so;
}

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    struct liar *liar = arg;
    struct sh_node nodes[2] = {
        {.nid = {1}, .role = SH_ROLE_SUPERPEER, .instance = 1},
        {.nid = {PEER}, .role = SH_ROLE_PEER, .instance = PEER},
    };
    if (lies(liar)) {
        on_any(liar, in);
        return;
    }
    memcpy(nodes[0].address, liar->end.address, sizeof liar->end.address);
    memcpy(nodes[1].address, liar->peer->end.address, sizeof liar->end.address);
    view_reply(in, 5, nodes, 2);
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    if (lies(arg)) {
        on_any(arg, in);
        return;
    }
    lookup_reply(in, PEER, PEER);
}

static void liar_run(struct liar *liar, uint16_t nid, const struct liar *peer)
{
    *liar = (struct liar){.peer = peer};
    sh_lock_init(&liar->lock, SH_LOCK_TEST);
    end_open(&liar->end, nid, 1000 * MS);
    sh_msg_handler_set(liar->end.msg, SH_CLUSTER_VIEW_GET, SH_MSG_INLINE,
                       peer ? on_view_get : on_any, liar);
    sh_msg_handler_set(liar->end.msg, SH_CLUSTER_LOOKUP, SH_MSG_INLINE, peer ? on_lookup : on_any,
                       liar);
    for (sh_msg_type type = SH_CHUNKS_CREATE; type <= SH_CHUNKS_SYNC; type++)
        sh_msg_handler_set(liar->end.msg, type, SH_MSG_INLINE, on_any, liar);
    end_start(&liar->end);
}

static void liar_end(struct liar *liar)
{
    end_close(&liar->end);
    sh_lock_destroy(&liar->lock);
}

static void says(struct liar *liar, enum shoal_err err, const void *answer, size_t size)
{
    sh_lock_take(&liar->lock);
    assert_true(size <= sizeof liar->answer);
    memcpy(liar->answer, answer, size);
    liar->size = size;
    liar->err = err;
    sh_lock_release(&liar->lock);
}

struct liars {
    struct liar superpeer, peer;
    shoal *store;
};

/* Most calls are answered at once; those that are tried again until the end should not take long.
 */
#define LONG_NS (20000 * MS)
#define SHORT_NS (300 * MS)

static void open_all(struct liars *liars, uint64_t timeout_ns)
{
    liar_run(&liars->peer, PEER, NULL);
    liar_run(&liars->superpeer, 1, &liars->peer);
    liars->store = rig_open(liars->superpeer.end.address, timeout_ns);
}

static void close_all(struct liars *liars)
{
    shoal_close(liars->store);
    liar_end(&liars->superpeer);
    liar_end(&liars->peer);
}

/* --- What is answered, byte by byte -------------------------------------------------------- */

struct bytes {
    uint8_t at[256];
    size_t size;
};

/* Values of 2, 4 and 8 bytes, little-endian. */
static struct bytes join(const char *sizes, const uint64_t *values)
{
    struct bytes bytes = {.size = 0};
    for (size_t i = 0; sizes[i]; i++) {
        for (int byte = 0; byte < sizes[i] - '0'; byte++)
            bytes.at[bytes.size++] = (uint8_t)(values[i] >> 8 * byte);
    }
    return bytes;
}
#define ANSWER(sizes, ...) join(sizes, (const uint64_t[]){__VA_ARGS__})

#define CANARY 0xA5
#define ROOM 16

/* A buffer with canaries around it. */
struct guarded {
    uint8_t before[64], buffer[ROOM], after[64];
};

static void guard(struct guarded *guarded)
{
    memset(guarded, CANARY, sizeof *guarded);
}

static void assert_guarded(const struct guarded *guarded)
{
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(guarded->before[i], CANARY);
        assert_int_equal(guarded->after[i], CANARY);
    }
}

static shoal_cid own(uint64_t local)
{
    return shoal_cid_make((shoal_nid){PEER}, local);
}

static void get_says(struct liars *liars, struct bytes answer, enum shoal_err expected)
{
    struct guarded guarded;
    guard(&guarded);
    uint32_t size = 77;
    says(&liars->peer, SHOAL_OK, answer.at, answer.size);
    assert_int_equal(shoal_get(liars->store, own(1), guarded.buffer, ROOM, &size), expected);
    assert_guarded(&guarded);
    if (expected != SHOAL_OK && expected != SHOAL_ESIZE)
        assert_int_equal(size, 77);
}

static void lying_gets(void **state)
{
    (void)state;
    struct liars liars;
    open_all(&liars, LONG_NS);
    get_says(&liars, ANSWER("244", SHOAL_OK, 4, 1), SHOAL_OK);
    get_says(&liars, ANSWER("24", SHOAL_ESIZE, ROOM + 1), SHOAL_ESIZE);
    get_says(&liars, ANSWER("", 0), SHOAL_EPROTO);
    get_says(&liars, ANSWER("22", 0, 0), SHOAL_EPROTO);
    get_says(&liars, ANSWER("24", SHOAL_OK, UINT32_MAX), SHOAL_EPROTO);
    get_says(&liars, ANSWER("244", SHOAL_OK, 5, 1), SHOAL_EPROTO);
    get_says(&liars, ANSWER("248888", SHOAL_OK, ROOM + 8, 1, 2, 3, 4), SHOAL_EPROTO);
    get_says(&liars, ANSWER("24", SHOAL_ESIZE, ROOM), SHOAL_EPROTO);
    get_says(&liars, ANSWER("24", 9999, 0), SHOAL_EPROTO);
    close_all(&liars);
}

static void says_once(struct liar *liar, struct bytes answer)
{
    sh_lock_take(&liar->lock);
    assert_true(answer.size <= sizeof liar->once);
    memcpy(liar->once, answer.at, answer.size);
    liar->once_size = answer.size;
    sh_lock_release(&liar->lock);
}

/* A chunk that was resized while it was read: so many bytes of padding, and another question. */
static void resized_meanwhile(void **state)
{
    (void)state;
    struct liars liars;
    uint8_t bytes[2][ROOM];
    struct shoal_op ops[2];
    uint32_t size;
    struct bytes got = ANSWER("244", SHOAL_OK, 4, 9);
    open_all(&liars, LONG_NS);
    says(&liars.peer, SHOAL_OK, got.at, got.size);
    says_once(&liars.peer, ANSWER("248", SHOAL_EBUSY, 8, 0));
    assert_int_equal(shoal_get(liars.store, own(1), bytes[0], ROOM, &size), SHOAL_OK);
    assert_int_equal(size, 4);
    assert_int_equal(bytes[0][0], 9);
    says_once(&liars.peer, ANSWER("248244", SHOAL_EBUSY, 8, 0, SHOAL_OK, 4, 7));
    for (size_t i = 0; i < 2; i++)
        ops[i] = (struct shoal_op){.cid = own(i + 1), .data = bytes[i], .size = ROOM};
    assert_int_equal(shoal_multi_get(liars.store, ops, 2), SHOAL_OK);
    assert_true(ops[0].size == 4 && ops[1].size == 4);
    assert_true(bytes[0][0] == 9 && bytes[1][0] == 7);
    says_once(&liars.peer, ANSWER("244", SHOAL_EBUSY, 0, 0));
    says(&liars.peer, SHOAL_OK, (const uint8_t[18]){[6] = 8, [10] = 5}, 18);
    assert_int_equal(shoal_get_part(liars.store, own(1), 3, bytes[0], 8), SHOAL_OK);
    assert_int_equal(bytes[0][0], 5);
    close_all(&liars);
}

static void part_says(struct liars *liars, struct bytes answer, enum shoal_err expected)
{
    struct guarded guarded;
    guard(&guarded);
    says(&liars->peer, SHOAL_OK, answer.at, answer.size);
    assert_int_equal(shoal_get_part(liars->store, own(1), 3, guarded.buffer, 8), expected);
    assert_guarded(&guarded);
    for (size_t i = 8; i < ROOM; i++)
        assert_int_equal(guarded.buffer[i], CANARY);
}

static void lying_parts(void **state)
{
    (void)state;
    struct liars liars;
    uint64_t old = 77;
    open_all(&liars, LONG_NS);
    part_says(&liars, ANSWER("2448", SHOAL_OK, 0, 8, 1), SHOAL_OK);
    part_says(&liars, ANSWER("244", SHOAL_ESIZE, 10, 0), SHOAL_ESIZE);
    part_says(&liars, ANSWER("2448", SHOAL_ENOCHUNK, 0, 8, 0), SHOAL_ENOCHUNK);
    part_says(&liars, ANSWER("244", SHOAL_OK, 0, 0), SHOAL_EPROTO);
    part_says(&liars, ANSWER("244", SHOAL_OK, 0, 8), SHOAL_EPROTO);
    part_says(&liars, ANSWER("2444", SHOAL_OK, 0, 4, 1), SHOAL_EPROTO);
    part_says(&liars, ANSWER("24484", SHOAL_OK, 0, 12, 1, 2), SHOAL_EPROTO);
    part_says(&liars, ANSWER("24484", SHOAL_OK, 0, 8, 1, 2), SHOAL_EPROTO);
    part_says(&liars, ANSWER("244", SHOAL_ENOCHUNK, 0, UINT32_MAX), SHOAL_EPROTO);
    part_says(&liars, ANSWER("24", SHOAL_ESIZE, 4), SHOAL_EPROTO);
    part_says(&liars, ANSWER("244", 9999, 0, 0), SHOAL_EPROTO);
    says(&liars.peer, SHOAL_OK, "1234567", 7);
    assert_int_equal(shoal_add(liars.store, own(1), 0, 8, 1, &old), SHOAL_EPROTO);
    says(&liars.peer, SHOAL_OK, "123456789", 9);
    assert_int_equal(shoal_add(liars.store, own(1), 0, 8, 1, &old), SHOAL_EPROTO);
    assert_int_equal(old, 77);
    close_all(&liars);
}

/* "Ask another", for ever: that ends too. */
static void evasive_peer(void **state)
{
    (void)state;
    struct liars liars;
    struct bytes answer = ANSWER("24", SHOAL_ENOTOWNER, 0);
    uint8_t byte;
    open_all(&liars, SHORT_NS);
    says(&liars.peer, SHOAL_OK, answer.at, answer.size);
    enum shoal_err err = shoal_get(liars.store, own(1), &byte, 1, NULL);
    /* EUNREACHABLE: of a slow machine, which has no connection by then. */
    assert_true(err == SHOAL_ENOTOWNER || err == SHOAL_ETIMEOUT || err == SHOAL_EUNREACHABLE);
    close_all(&liars);
}

static void create_says(struct liars *liars, struct bytes answer, enum shoal_err expected,
                        size_t count)
{
    shoal_cid cids[3] = {{7}, {7}, {7}};
    says(&liars->peer, SHOAL_OK, answer.at, answer.size);
    enum shoal_err err = count == 1
                             ? shoal_create(liars->store, SHOAL_NID_NONE, 8, cids)
                             : shoal_create_many(liars->store, SHOAL_NID_NONE, 8, count, cids);
    assert_int_equal(err, expected);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(cids[i].v, err == SHOAL_OK && i < count ? own(i + 1).v : 7);
}

static void lying_creates(void **state)
{
    (void)state;
    struct liars liars;
    uint64_t first = own(1).v, last = own(SHOAL_LOCAL_ID_MAX).v;
    open_all(&liars, LONG_NS);
    create_says(&liars, ANSWER("84", first, 1), SHOAL_OK, 1);
    create_says(&liars, ANSWER("84", first, 2), SHOAL_EPROTO, 1);
    create_says(&liars, ANSWER("8", first), SHOAL_EPROTO, 1);
    create_says(&liars, ANSWER("84", 0, 1), SHOAL_EPROTO, 1);
    create_says(&liars, ANSWER("84", shoal_cid_make((shoal_nid){PEER + 1}, 1).v, 1), SHOAL_EPROTO,
                1);
    create_says(&liars, ANSWER("84", first, 2), SHOAL_OK, 2);
    create_says(&liars, ANSWER("8484", first, 1, first + 1, 1), SHOAL_OK, 2);
    create_says(&liars, ANSWER("84", first, 1), SHOAL_EPROTO, 2);
    create_says(&liars, ANSWER("84", first, 3), SHOAL_EPROTO, 2);
    create_says(&liars, ANSWER("84", first, UINT32_MAX), SHOAL_EPROTO, 2);
    create_says(&liars, ANSWER("84", first, 0), SHOAL_EPROTO, 2);
    create_says(&liars, ANSWER("84", last, 2), SHOAL_EPROTO, 2);
    create_says(&liars, ANSWER("84", UINT64_MAX, 2), SHOAL_EPROTO, 2);
    create_says(&liars, ANSWER("8484", first, 1, 5, 1), SHOAL_EPROTO, 2);
    create_says(&liars, ANSWER("848", first, 2, 0), SHOAL_EPROTO, 2);
    close_all(&liars);
}

static void multi_says(struct liars *liars, struct bytes answer, enum shoal_err expected)
{
    struct guarded guarded[2];
    struct shoal_op ops[2];
    for (size_t i = 0; i < 2; i++) {
        guard(&guarded[i]);
        ops[i] = (struct shoal_op){.cid = own(i + 1), .data = guarded[i].buffer, .size = ROOM};
    }
    says(&liars->peer, SHOAL_OK, answer.at, answer.size);
    assert_int_equal(shoal_multi_get(liars->store, ops, 2), expected);
    for (size_t i = 0; i < 2; i++)
        assert_guarded(&guarded[i]);
}

static bool no_more(void *arg, shoal_cid first, shoal_cid last)
{
    unsigned *count = arg;
    assert_true(first.v <= last.v);
    return ++*count < 100000;
}

static void lying_multi(void **state)
{
    (void)state;
    struct liars liars;
    struct shoal_op op = {.cid = own(1), .data = &liars, .size = 8};
    open_all(&liars, LONG_NS);
    multi_says(&liars, ANSWER("242244", SHOAL_OK, 2, 1, SHOAL_OK, 4, 9), SHOAL_OK);
    multi_says(&liars, ANSWER("24224", SHOAL_OK, 2, 1, SHOAL_OK, 4), SHOAL_EPROTO);
    multi_says(&liars, ANSWER("24", SHOAL_OK, UINT32_MAX), SHOAL_EPROTO);
    multi_says(&liars, ANSWER("2488824", SHOAL_OK, ROOM + 8, 1, 2, 3, 0, 0), SHOAL_EPROTO);
    multi_says(&liars, ANSWER("2424", SHOAL_ENOCHUNK, UINT32_MAX, 0, 0), SHOAL_EPROTO);
    multi_says(&liars, ANSWER("2424", SHOAL_ESIZE, 1, SHOAL_ENOCHUNK, 0), SHOAL_EPROTO);
    multi_says(&liars, ANSWER("24248", SHOAL_OK, 0, SHOAL_OK, 0, 1), SHOAL_EPROTO);
    multi_says(&liars, ANSWER("2424", 4711, 0, SHOAL_OK, 0), SHOAL_EPROTO);
    says(&liars.peer, SHOAL_OK, "\0\0\0", 3);
    assert_int_equal(shoal_multi_remove(liars.store, &op, 1), SHOAL_EPROTO);
    assert_int_equal(shoal_multi_put(liars.store, &op, 1), SHOAL_EPROTO);
    close_all(&liars);
}

static void lying_looks(void **state)
{
    (void)state;
    struct liars liars;
    struct shoal_status status = {.chunks = 3};
    unsigned count = 0;
    shoal_nid nid = {PEER};
    open_all(&liars, LONG_NS);
    struct bytes bad[] = {
        ANSWER("8", own(1).v),
        ANSWER("88", own(2).v, own(1).v),
        ANSWER("88", own(1).v, UINT64_MAX),
        ANSWER("88", 5, 6),
        /* Behind the last ID of all the list would begin anew. */
        ANSWER("88", UINT64_MAX, UINT64_MAX),
        ANSWER("8888", own(5).v, own(6).v, own(6).v, own(7).v),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        says(&liars.peer, SHOAL_OK, bad[i].at, bad[i].size);
        assert_int_equal(shoal_ranges(liars.store, nid, no_more, &count), SHOAL_EPROTO);
        assert_int_equal(shoal_status(liars.store, nid, &status), SHOAL_EPROTO);
        assert_int_equal(status.chunks, 3);
    }
    /* A text that would play with the terminal. */
    says(&liars.peer, SHOAL_EFULL, "no\033[2Jroom\007", 11);
    shoal_cid cid;
    assert_int_equal(shoal_create(liars.store, SHOAL_NID_NONE, 8, &cid), SHOAL_EFULL);
    assert_string_equal(shoal_error_detail(), "no?[2Jroom?");
    assert_int_equal(shoal_status(liars.store, nid, &status), SHOAL_EFULL);
    assert_string_equal(shoal_error_detail(), "no?[2Jroom?");
    close_all(&liars);
}

/* --- At random ----------------------------------------------------------------------------- */

static uint64_t seed;

static uint64_t draw(void)
{
    static uint64_t drawn;
    return sh_mix64(seed + ++drawn);
}

/* Small numbers, lengths and errors among noise, so that some of it goes deep. */
static size_t nonsense(uint8_t *into)
{
    size_t size = draw() % 128;
    for (size_t i = 0; i < size; i++)
        into[i] = draw() % 4 ? (uint8_t)(draw() % 3) : (uint8_t)draw();
    return size;
}

static void call_all(struct liars *liars)
{
    struct guarded guarded;
    struct shoal_op op = {.cid = own(1), .data = guarded.buffer, .size = ROOM};
    struct shoal_status status;
    shoal_cid cids[3];
    unsigned ranges = 0;
    uint64_t old;
    enum shoal_err err[11];
    guard(&guarded);
    err[0] = shoal_get(liars->store, own(1), guarded.buffer, ROOM, NULL);
    err[1] = shoal_multi_get(liars->store, &op, 1);
    op.size = ROOM;
    err[2] = shoal_put(liars->store, own(1), guarded.buffer, ROOM);
    err[3] = shoal_multi_remove(liars->store, &op, 1);
    err[4] = shoal_create_many(liars->store, SHOAL_NID_NONE, 8, 3, cids);
    err[5] = shoal_ranges(liars->store, (shoal_nid){PEER}, no_more, &ranges);
    err[6] = shoal_status(liars->store, (shoal_nid){PEER}, &status);
    err[7] = shoal_create(liars->store, SHOAL_NID_NONE, 8, cids);
    err[8] = shoal_get_part(liars->store, own(1), 2, guarded.buffer, ROOM);
    err[9] = shoal_add(liars->store, own(1), 0, 8, 1, &old);
    err[10] = shoal_multi_resize(liars->store, &op, 1);
    assert_guarded(&guarded);
    for (size_t i = 0; i < sizeof err / sizeof err[0]; i++)
        assert_string_not_equal(shoal_err_name(err[i]), "SHOAL_E?");
}

static void random_answers(void **state)
{
    (void)state;
    struct liars liars;
    uint8_t answer[128];
    open_all(&liars, SHORT_NS);
    for (int i = 0; i < 300; i++) {
        size_t size = nonsense(answer);
        /* Errors that the client does not try again: those would only take time. */
        says(&liars.peer, draw() % 4 ? SHOAL_OK : SHOAL_EFULL, answer, size);
        call_all(&liars);
    }
    close_all(&liars);
}

/* The superpeer lies: about the view to who opens, about owners to who asks. */
static void lying_superpeer(void **state)
{
    (void)state;
    struct liars liars;
    uint8_t answer[128], byte;
    open_all(&liars, SHORT_NS);
    sh_lock_take(&liars.superpeer.lock);
    liars.superpeer.lies_as_superpeer = true;
    sh_lock_release(&liars.superpeer.lock);
    struct shoal_options options = {.addresses = liars.superpeer.end.address,
                                    .timeout_ns = 200 * MS};
    for (int i = 0; i < 30; i++) {
        shoal *other = NULL;
        says(&liars.superpeer, SHOAL_OK, answer, nonsense(answer));
        enum shoal_err err = shoal_open(&options, &other);
        assert_true(err == SHOAL_EPROTO || err == SHOAL_OK || err == SHOAL_ETIMEOUT);
        assert_true((other != NULL) == (err == SHOAL_OK));
        shoal_close(other);
        err = shoal_get(liars.store, own(1), &byte, 1, NULL);
        /* By chance it may name another superpeer, which is not there, or say that nobody has the
         * chunk, or that a failed node had it. */
        assert_true(err == SHOAL_EPROTO || err == SHOAL_ETIMEOUT || err == SHOAL_EUNREACHABLE ||
                    err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED);
    }
    /* An owner that exists nowhere. */
    struct bytes nobody = ANSWER("882", own(0).v, own(9).v, 777);
    says(&liars.superpeer, SHOAL_OK, nobody.at, nobody.size);
    enum shoal_err err = shoal_get(liars.store, own(1), &byte, 1, NULL);
    assert_true(err == SHOAL_EUNREACHABLE || err == SHOAL_ETIMEOUT);
    close_all(&liars);
}

/* A peer without a log says so, or is an older one, which says so otherwise. Whatever it says, what a sync comes to is told. */
static void unlogged_peer(void **state)
{
    (void)state;
    static const struct {
        enum shoal_err says, comes_to;
        const char *detail;
    } cases[] = {
        {SHOAL_OK, SHOAL_OK, ""},
        {SHOAL_ENOBACKUP, SHOAL_ENOBACKUP, "option replicas"},
        {SHOAL_EINVAL, SHOAL_ENOBACKUP, "option replicas"},
        {SHOAL_ENOTYPE, SHOAL_ENOBACKUP, "option replicas"},
        {SHOAL_EIO, SHOAL_EIO, ""},
    };
    struct liars liars;
    open_all(&liars, LONG_NS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        says(&liars.peer, cases[i].says, "", 0);
        assert_int_equal(shoal_sync(liars.store), cases[i].comes_to);
        assert_non_null(strstr(shoal_error_detail(), cases[i].detail));
    }
    close_all(&liars);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    seed = test_seed(rig_now());
    if (sh_log_levels_set("off", &bad, &bad_len) != SHOAL_OK &&
        sh_log_levels_set("error", &bad, &bad_len) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lying_gets),      cmocka_unit_test(resized_meanwhile),
        cmocka_unit_test(lying_parts),     cmocka_unit_test(evasive_peer),
        cmocka_unit_test(lying_creates),   cmocka_unit_test(lying_multi),
        cmocka_unit_test(lying_looks),     cmocka_unit_test(random_answers),
        cmocka_unit_test(lying_superpeer), cmocka_unit_test(unlogged_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
