#include "msg/tls_keys.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <string.h>

#include "base/assert.h"

#define NONCE_BYTES 12
#define LABEL_BYTES 32

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sh_tls_secret_read(const char *line, bool is_dialler, struct sh_tls_secret *secret_out)
{
    static const char dialler[] = "CLIENT_TRAFFIC_SECRET_0 ";
    static const char acceptor[] = "SERVER_TRAFFIC_SECRET_0 ";
    const char *label = is_dialler ? dialler : acceptor;
    if (strncmp(line, label, sizeof dialler - 1) != 0)
        return false;
    const char *hex = strrchr(line, ' ') + 1; /* behind the client's random number */
    struct sh_tls_secret secret = {.size = strlen(hex) / 2};
    if (secret.size == 0 || secret.size > sizeof secret.bytes)
        return false;
    for (size_t i = 0; i < secret.size; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        secret.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *secret_out = secret;
    return true;
}

/* HKDF-Expand-Label of RFC 8446 §7.1 with an empty context. */
static bool expand(const EVP_MD *digest, const struct sh_tls_secret *secret, const char *label,
                   uint8_t *out, size_t size)
{
    uint8_t info[LABEL_BYTES] = {(uint8_t)(size >> 8), (uint8_t)size};
    size_t label_bytes = strlen(label);
    SH_ASSERT(label_bytes + 4 <= sizeof info);
    info[2] = (uint8_t)label_bytes;
    memcpy(info + 3, label, label_bytes);
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)EVP_MD_get0_name(digest),
                                         0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret->bytes, secret->size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, label_bytes + 4),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    bool is_done = context && EVP_KDF_derive(context, out, size, params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return is_done;
}

static void record_write(uint64_t record, uint8_t *out)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(record >> (56 - 8 * i));
}

bool sh_tls_keys_make(const SSL_CIPHER *cipher, const struct sh_tls_secret *secret, uint64_t record,
                      struct sh_tls_keys *keys_out)
{
    const EVP_MD *digest = cipher ? SSL_CIPHER_get_handshake_digest(cipher) : NULL;
    uint8_t nonce[NONCE_BYTES];
    *keys_out = (struct sh_tls_keys){0};
    if (!digest || secret->size == 0 || !expand(digest, secret, "tls13 iv", nonce, sizeof nonce))
        return false;
    switch (SSL_CIPHER_get_cipher_nid(cipher)) {
    case NID_aes_128_gcm:
        keys_out->size = sizeof keys_out->aes_128;
        keys_out->aes_128.info.version = TLS_1_3_VERSION;
        keys_out->aes_128.info.cipher_type = TLS_CIPHER_AES_GCM_128;
        memcpy(keys_out->aes_128.salt, nonce, sizeof keys_out->aes_128.salt);
        memcpy(keys_out->aes_128.iv, nonce + 4, sizeof keys_out->aes_128.iv);
        record_write(record, keys_out->aes_128.rec_seq);
        return expand(digest, secret, "tls13 key", keys_out->aes_128.key,
                      sizeof keys_out->aes_128.key);
    case NID_aes_256_gcm:
        keys_out->size = sizeof keys_out->aes_256;
        keys_out->aes_256.info.version = TLS_1_3_VERSION;
        keys_out->aes_256.info.cipher_type = TLS_CIPHER_AES_GCM_256;
        memcpy(keys_out->aes_256.salt, nonce, sizeof keys_out->aes_256.salt);
        memcpy(keys_out->aes_256.iv, nonce + 4, sizeof keys_out->aes_256.iv);
        record_write(record, keys_out->aes_256.rec_seq);
        return expand(digest, secret, "tls13 key", keys_out->aes_256.key,
                      sizeof keys_out->aes_256.key);
    default:
        return false;
    }
}
