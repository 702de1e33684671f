/* The keys that a TLS 1.3 link sends with, as Linux's kTLS wants them (linux/tls.h).
 *
 * OpenSSL hands out no keys, but it logs the secrets that they are made of (RFC 8446 §7.1, §7.3) to
 * a callback. */
#ifndef SH_MSG_TLS_KEYS_H
#define SH_MSG_TLS_KEYS_H

#include <linux/tls.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SH_TLS_SECRET_BYTES 48 /* at most */

/* What one side encrypts application data with. */
struct sh_tls_secret {
    uint8_t bytes[SH_TLS_SECRET_BYTES];
    size_t size; /* 0: not known */
};

/* What setsockopt(SOL_TLS, TLS_TX) takes: one of the structures, size bytes of it. */
struct sh_tls_keys {
    union {
        struct tls12_crypto_info_aes_gcm_128 aes_128;
        struct tls12_crypto_info_aes_gcm_256 aes_256;
    };
    size_t size;
};

/* Reads a line of OpenSSL's key log, if it is the secret that the side sends application data with.
 * False: it is another one; secret_out is left alone. */
bool sh_tls_secret_read(const char *line, bool is_dialler, struct sh_tls_secret *secret_out);

/* Makes the keys for the record with that number and those after it. False: the cipher is
 * not one that kTLS is asked for here (AES-GCM), or OpenSSL failed. The caller cleanses both. */
bool sh_tls_keys_make(const SSL_CIPHER *cipher, const struct sh_tls_secret *secret, uint64_t record,
                      struct sh_tls_keys *keys_out);

#endif
