/* No message allocates: two ends over TCP, with TLS and without, and an allocator that counts. The
 * sanitizers bring their own allocator, so with them there is nothing to count with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "msg/msg.h"
#include "msg/tcp.h"
#include "msg/tls.h"
#include "msg/tls_test.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#endif

static _Atomic uint64_t allocations;

/* Those that count are larger. OpenSSL 3.0 makes small ones for each record that it writes (three,
 * the parts of a WPACKET, freed before it returns), which nobody can turn off. What is ours is the
 * same with TLS as without, where all count. */
static size_t uncounted_bytes;
#define OPENSSL_BYTES 64

#ifndef IS_SANITIZED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *at, size_t size);

static void count(size_t bytes)
{
    if (bytes > uncounted_bytes)
        atomic_fetch_add(&allocations, 1);
}

/* Seen by the shared libraries too: what OpenSSL allocates counts. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED void *malloc(size_t size)
{
    count(size);
    return __libc_malloc(size);
}

EXPORTED void *calloc(size_t number, size_t size)
{
    count(number * size);
    return __libc_calloc(number, size);
}

EXPORTED void *realloc(void *at, size_t size)
{
    count(size);
    return __libc_realloc(at, size);
}
#endif

#define MODES 3
#define TYPE(mode) ((sh_msg_type)SH_MSG_TYPE(9, 1 + (mode)))
#define TYPE_OBJECT SH_MSG_TYPE(9, 9)
#define OBJECT_BYTES (1 << 20)
#define TYPE_FILL SH_MSG_TYPE(9, 10)
#define FILL_BYTES 1000

struct end {
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
};

static struct end ends[2];
static uint8_t sent[OBJECT_BYTES], got[OBJECT_BYTES];
static unsigned handled, answered, objects, objects_sent, filled;

static void wake(void *arg)
{
    (void)arg;
}

static void on_message(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    handled++;
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

static void on_fill(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    (void)in;
    filled++;
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)payload;
    (void)request;
    assert_int_equal(err, SHOAL_OK);
    answered++;
}

static void describe(struct sh_codec *c, void *object)
{
    sh_codec_bytes(c, object, OBJECT_BYTES);
}

static void *on_begin(void *arg, const struct sh_msg_in *in, size_t payload_bytes)
{
    (void)in;
    assert_int_equal(payload_bytes, OBJECT_BYTES);
    return arg;
}

static void on_done(void *arg, struct sh_msg_in *in, void *object, enum shoal_err err)
{
    (void)arg;
    (void)in;
    assert_int_equal(err, SHOAL_OK);
    assert_memory_equal(object, sent, OBJECT_BYTES);
    objects++;
}

static void on_sent(struct sh_object_out *out, enum shoal_err err)
{
    (void)out;
    assert_int_equal(err, SHOAL_OK);
    objects_sent++;
}

static void tls_add(struct sh_wire **wire)
{
    char cert[TLS_TEST_PATH_MAX], key[TLS_TEST_PATH_MAX], authority[TLS_TEST_PATH_MAX];
    char detail[SH_TLS_DETAIL_BYTES];
    tls_test_path(cert, "node.pem");
    tls_test_path(key, "node.key");
    tls_test_path(authority, "ca.pem");
    struct sh_tls_config tls = {cert, key, authority, sh_real_clock(), UINT64_C(60000000000), 0};
    assert_int_equal(sh_tls_create(*wire, &tls, wire, detail), SHOAL_OK);
}

static void end_open(struct end *end, uint16_t nid, bool has_tls)
{
    assert_int_equal(sh_tcp_create(8, &end->wire), SHOAL_OK);
    if (has_tls)
        tls_add(&end->wire);
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "test",
        .connections_max = 8,
        .requests_max = 64,
        .ring_bytes = 65536,
        .payload_bytes_max = 4 << 20,
        .request_timeout_ns = UINT64_C(60000000000),
        .connect_timeout_ns = UINT64_C(60000000000),
        .env = {.clock = sh_real_clock(), .random = sh_real_random(), .wire = end->wire},
        .wake_transport = wake,
        .wake_handlers = wake,
    };
    assert_int_equal(sh_msg_create(&config, &end->msg), SHOAL_OK);
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
}

static void round_run(void)
{
    for (int i = 0; i < 2; i++) {
        ends[i].transport.run(ends[i].msg);
        ends[i].handlers.run(ends[i].handlers.arg);
    }
}

/* Fills the ring and waits for room. */
static void room_once(void)
{
    struct sh_waiter waiter = {0};
    struct sh_out out;
    shoal_nid to = {2};
    unsigned messages = 0;
    enum shoal_err err;
    while ((err = sh_msg_begin(ends[0].msg, to, TYPE_FILL, FILL_BYTES, &out)) == SHOAL_OK) {
        (void)sh_writer_take(&out.w, FILL_BYTES);
        sh_msg_end(ends[0].msg, &out);
        messages++;
    }
    assert_int_equal(err, SHOAL_EAGAIN);
    assert_true(messages > 0);
    sh_msg_wait_room(ends[0].msg, to, FILL_BYTES, &waiter);
    assert_false(sh_waiter_done(&waiter));
    while (!sh_waiter_done(&waiter))
        round_run();
    while (filled < messages)
        round_run();
    filled = 0;
}

/* A few of everything: one-way and request in each mode, and an object that is streamed. */
static void all_once(void)
{
    static struct sh_request requests[MODES];
    static struct sh_object_out object = {.done = on_sent};
    struct sh_out out;
    shoal_nid to = {2};
    handled = answered = objects = objects_sent = 0;
    for (int mode = 0; mode < MODES; mode++) {
        requests[mode] = (struct sh_request){.done = on_answer};
        assert_int_equal(sh_msg_begin(ends[0].msg, to, TYPE(mode), 0, &out), SHOAL_OK);
        sh_msg_end(ends[0].msg, &out);
        assert_int_equal(sh_msg_request(ends[0].msg, to, TYPE(mode), 0, &requests[mode], &out),
                         SHOAL_OK);
        sh_msg_end(ends[0].msg, &out);
    }
    assert_int_equal(sh_msg_send_object(ends[0].msg, to, TYPE_OBJECT, describe, sent, &object),
                     SHOAL_OK);
    while (handled < 2 * MODES || answered < MODES || objects < 1 || objects_sent < 1)
        round_run();
    room_once();
}

static void nothing_is_allocated(void **state)
{
    bool has_tls = *state != NULL;
    uncounted_bytes = has_tls ? OPENSSL_BYTES : 0;
    char address[SH_MSG_ADDRESS_MAX];
    for (int i = 0; i < OBJECT_BYTES; i++)
        sent[i] = (uint8_t)(i + i / 251);
    for (uint16_t i = 0; i < 2; i++)
        end_open(&ends[i], (uint16_t)(i + 1), has_tls);
    for (int mode = 0; mode < MODES; mode++)
        sh_msg_handler_set(ends[1].msg, TYPE(mode), (enum sh_msg_mode)mode, on_message, NULL);
    sh_msg_object_set(ends[1].msg, TYPE_OBJECT, SH_MSG_INLINE, describe, on_begin, on_done, got);
    sh_msg_handler_set(ends[1].msg, TYPE_FILL, SH_MSG_INLINE, on_fill, NULL);
    assert_int_equal(sh_msg_listen(ends[1].msg, "127.0.0.1:0", address), SHOAL_OK);
    assert_int_equal(sh_msg_node_set(ends[0].msg, (shoal_nid){2}, address), SHOAL_OK);
    for (int i = 0; i < 20; i++)
        all_once(); /* connections, pools */
    uint64_t before = atomic_load(&allocations);
    for (int i = 0; i < 50; i++)
        all_once();
    /* 500 messages and answers. A pool may still grow by a block when more arrives at once than
     * ever before. */
    assert_in_range(atomic_load(&allocations) - before, 0, 8);
#ifndef IS_SANITIZED
    assert_true(before > 0); /* the counter counts */
#endif
    for (int i = 0; i < 2; i++) {
        sh_msg_destroy(ends[i].msg);
        ends[i].wire->ops->destroy(ends[i].wire);
    }
}

int main(void)
{
    static bool tls = true;
    const struct CMUnitTest tests[] = {
        {"nothing_is_allocated", nothing_is_allocated, NULL, NULL, NULL},
        {"nothing_is_allocated, tls", nothing_is_allocated, NULL, NULL, &tls},
    };
    return cmocka_run_group_tests(tests, tls_test_setup, tls_test_teardown);
}
