/* TLS whose sending the kernel encrypts. The kernel is played by the test: it makes the records
 * from the keys that it is given, and OpenSSL on the other side judges them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <openssl/evp.h>
#include <time.h>

#include "msg/memwire.h"
#include "msg/tls.h"
#include "msg/tls_keys.h"
#include "msg/tls_test.h"

#define TIMEOUT_NS UINT64_C(5000000000)
#define TURNS_MAX 10000
#define RECORD_BYTES 16384
#define HEADER_BYTES 5
#define TAG_BYTES 16

struct side {
    struct sh_memwire memory; /* the first member */
    struct sh_wire_ops ops;   /* memory's, and the kernel's */
    bool refuses;
    struct sh_tls_keys keys; /* size 0: the kernel does nothing yet */
    uint64_t record;
    struct sh_wire *wire;
    size_t carried;
    bool is_open, is_lost;
};

static bool kernel_encrypt(struct sh_wire *wire, sh_link link, const void *keys, size_t size)
{
    struct side *side = (struct side *)wire;
    (void)link;
    assert_int_equal(side->keys.size, 0);
    if (side->refuses)
        return false;
    assert_int_equal(size, sizeof side->keys.aes_256);
    memcpy(&side->keys.aes_256, keys, size);
    assert_int_equal(side->keys.aes_256.info.version, TLS_1_3_VERSION);
    assert_int_equal(side->keys.aes_256.info.cipher_type, TLS_CIPHER_AES_GCM_256);
    side->keys.size = size;
    for (int i = 0; i < 8; i++)
        side->record = side->record << 8 | side->keys.aes_256.rec_seq[i];
    return true;
}

static void record_push(struct side *side, sh_link link, struct sh_bytes plain)
{
    uint8_t record[HEADER_BYTES + RECORD_BYTES + 1 + TAG_BYTES];
    size_t inner = plain.size + 1, sealed = inner + TAG_BYTES;
    const uint8_t header[HEADER_BYTES] = {0x17, 3, 3, (uint8_t)(sealed >> 8), (uint8_t)sealed};
    uint8_t nonce[12], type = 0x17;
    memcpy(nonce, side->keys.aes_256.salt, 4);
    memcpy(nonce + 4, side->keys.aes_256.iv, 8);
    for (int i = 0; i < 8; i++)
        nonce[4 + i] ^= (uint8_t)(side->record >> (56 - 8 * i));
    side->record++;
    memcpy(record, header, sizeof header);
    int size;
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    assert_non_null(context);
    assert_int_equal(
        EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, side->keys.aes_256.key, nonce), 1);
    assert_int_equal(EVP_EncryptUpdate(context, NULL, &size, header, sizeof header), 1);
    assert_int_equal(
        EVP_EncryptUpdate(context, record + HEADER_BYTES, &size, plain.at, (int)plain.size), 1);
    assert_int_equal(
        EVP_EncryptUpdate(context, record + HEADER_BYTES + plain.size, &size, &type, 1), 1);
    assert_int_equal(EVP_EncryptFinal_ex(context, record + HEADER_BYTES + inner, &size), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_BYTES,
                                         record + HEADER_BYTES + inner),
                     1);
    EVP_CIPHER_CTX_free(context);
    struct sh_bytes bytes = {record, HEADER_BYTES + sealed};
    assert_int_equal(sh_memwire_push(&side->memory.wire, link, bytes), bytes.size);
}

static size_t kernel_push(struct sh_wire *wire, sh_link link, struct sh_bytes bytes)
{
    struct side *side = (struct side *)wire;
    if (side->keys.size == 0)
        return sh_memwire_push(wire, link, bytes);
    for (size_t done = 0; done < bytes.size;) {
        size_t left = bytes.size - done, size = left < RECORD_BYTES ? left : RECORD_BYTES;
        record_push(side, link, sh_bytes_make(bytes.at + done, size));
        done += size;
    }
    return bytes.size;
}

static void side_open(struct side *side, bool has_kernel, bool refuses)
{
    char cert[TLS_TEST_PATH_MAX], key[TLS_TEST_PATH_MAX], authority[TLS_TEST_PATH_MAX];
    char detail[SH_TLS_DETAIL_BYTES];
    *side = (struct side){.refuses = refuses};
    sh_memwire_init(&side->memory);
    side->ops = *side->memory.wire.ops;
    if (has_kernel) {
        side->ops.encrypt = kernel_encrypt;
        side->ops.push = kernel_push;
    }
    side->memory.wire.ops = &side->ops;
    tls_test_path(cert, "node.pem");
    tls_test_path(key, "node.key");
    tls_test_path(authority, "ca.pem");
    struct sh_tls_config config = {.cert_file = cert,
                                   .key_file = key,
                                   .ca_file = authority,
                                   .clock = sh_memwire_env(&side->memory).clock,
                                   .handshake_timeout_ns = TIMEOUT_NS};
    assert_int_equal(sh_tls_create(&side->memory.wire, &config, &side->wire, detail), SHOAL_OK);
}

static void side_turn(struct side *side, struct side *other)
{
    struct sh_wire_event events[4];
    unsigned count = side->wire->ops->poll(side->wire, events, 4, 0);
    for (unsigned i = 0; i < count; i++) {
        side->is_open |= events[i].kind == SH_WIRE_OPENED || events[i].kind == SH_WIRE_ACCEPTED;
        side->is_lost |= events[i].kind == SH_WIRE_LOST;
    }
    struct sh_memlink *link = &side->memory.links[0];
    size_t size = link->out_size - side->carried;
    if (size > 0 && other->memory.links[0].is_there)
        sh_memwire_feed(&other->memory, 0, sh_bytes_make(link->out + side->carried, size));
    side->carried += size;
}

/* Sends bytes of both sizes that matter: less than a record, and more. */
static void send_and_check(struct side *from, struct side *to)
{
    static uint8_t sent[50000], got[sizeof sent];
    for (size_t size = 1; size <= sizeof sent; size = size * 7 + 3) {
        for (size_t i = 0; i < size; i++)
            sent[i] = (uint8_t)(i * 31 + size);
        assert_int_equal(from->wire->ops->push(from->wire, 0, sh_bytes_make(sent, size)), size);
        size_t have = 0;
        for (int i = 0; i < TURNS_MAX && have < size; i++) {
            side_turn(from, to);
            have += to->wire->ops->pull(to->wire, 0, got + have, size - have);
        }
        assert_int_equal(have, size);
        assert_memory_equal(got, sent, size);
    }
    assert_false(to->is_lost);
}

static void run_with(bool dialler_has, bool acceptor_has, bool refuses)
{
    static struct side dialler, acceptor;
    sh_link link;
    side_open(&dialler, dialler_has, refuses);
    side_open(&acceptor, acceptor_has, refuses);
    assert_int_equal(dialler.wire->ops->open(dialler.wire, "there", 1, &link), SHOAL_OK);
    assert_int_equal(sh_memwire_accept(&acceptor.memory), 0);
    for (int i = 0; i < TURNS_MAX && !(dialler.is_open && acceptor.is_open); i++) {
        side_turn(&dialler, &acceptor);
        side_turn(&acceptor, &dialler);
    }
    assert_true(dialler.is_open && acceptor.is_open);
    for (int round = 0; round < 3; round++) {
        send_and_check(&dialler, &acceptor);
        send_and_check(&acceptor, &dialler);
    }
    assert_int_equal(dialler.keys.size > 0, dialler_has && !refuses);
    assert_int_equal(acceptor.keys.size > 0, acceptor_has && !refuses);
    /* Closing says nothing that the kernel would encrypt again. */
    size_t before = dialler.memory.links[0].out_size;
    dialler.wire->ops->close(dialler.wire, 0);
    if (dialler.keys.size > 0)
        assert_int_equal(dialler.memory.links[0].out_size, before);
    dialler.wire->ops->destroy(dialler.wire);
    acceptor.wire->ops->destroy(acceptor.wire);
    sh_memwire_free(&dialler.memory);
    sh_memwire_free(&acceptor.memory);
}

static void what_the_kernel_encrypts_is_understood(void **state)
{
    (void)state;
    run_with(true, true, false);
    run_with(true, false, false);
    run_with(false, true, false);
}

static void a_kernel_that_can_not_is_done_without(void **state)
{
    (void)state;
    run_with(true, true, true);
}

/* RFC 8448 §3: the server's application traffic secret and the keys made of it. */
static void keys_are_those_of_the_standard(void **state)
{
    static const char line[] =
        "SERVER_TRAFFIC_SECRET_0 cb34ecb1e78163ba1c38c6dacb196a6dffa21a8d9912ec18a2ef6283024dece7 "
        "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
    static const uint8_t key[] = {0x9f, 0x02, 0x28, 0x3b, 0x6c, 0x9c, 0x07, 0xef,
                                  0xc2, 0x6b, 0xb9, 0xf2, 0xac, 0x92, 0xe3, 0x56};
    static const uint8_t iv[] = {0xcf, 0x78, 0x2b, 0x88, 0xdd, 0x83,
                                 0x54, 0x9a, 0xad, 0xf1, 0xe9, 0x84};
    static const uint8_t suite[] = {0x13, 0x01};
    static const uint8_t record[] = {0, 0, 0, 0, 0, 0, 1, 2};
    (void)state;
    struct sh_tls_secret secret = {.size = 0};
    assert_false(sh_tls_secret_read(line, true, &secret));
    assert_int_equal(secret.size, 0);
    assert_true(sh_tls_secret_read(line, false, &secret));
    assert_int_equal(secret.size, 32);
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL *ssl = context ? SSL_new(context) : NULL;
    assert_non_null(ssl);
    struct sh_tls_keys keys;
    assert_true(sh_tls_keys_make(SSL_CIPHER_find(ssl, suite), &secret, 0x102, &keys));
    assert_int_equal(keys.size, sizeof keys.aes_128);
    assert_int_equal(keys.aes_128.info.cipher_type, TLS_CIPHER_AES_GCM_128);
    assert_memory_equal(keys.aes_128.key, key, sizeof key);
    assert_memory_equal(keys.aes_128.salt, iv, 4);
    assert_memory_equal(keys.aes_128.iv, iv + 4, 8);
    assert_memory_equal(keys.aes_128.rec_seq, record, sizeof record);
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static void other_lines_are_no_secrets(void **state)
{
    static const char *const lines[] = {
        "",
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET 00 11",
        "SERVER_TRAFFIC_SECRET_0 00 ",
        "SERVER_TRAFFIC_SECRET_0 00 1g",
        "SERVER_TRAFFIC_SECRET_0 00 "
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
        "00112233445566778899aabbccddeeff00",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct sh_tls_secret secret = {.size = 0};
        assert_false(sh_tls_secret_read(lines[i], false, &secret));
        assert_int_equal(secret.size, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_kernel_encrypts_is_understood),
        cmocka_unit_test(a_kernel_that_can_not_is_done_without),
        cmocka_unit_test(keys_are_those_of_the_standard),
        cmocka_unit_test(other_lines_are_no_secrets),
    };
    return cmocka_run_group_tests(tests, tls_test_setup, tls_test_teardown);
}
