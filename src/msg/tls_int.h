/* What the files of the TLS wire share: tls.c has the operations, tls_link.c the links, the lists
 * that they stand in and the buffers for what is encrypted. */
#ifndef SH_MSG_TLS_INT_H
#define SH_MSG_TLS_INT_H

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"
#include "env/wire.h"
#include "msg/rate_int.h"
#include "msg/tls_keys.h"

#define BUCKETS 1024
#define RECORD_BYTES 16384 /* plain bytes in a record at most */
#define RECORD_HEAD_BYTES 5
#define RECORD_ROOM (17 << 10) /* what one may take encrypted */
#define CIPHER_BYTES (4 * RECORD_ROOM)
#define CIPHERS_KEPT 64
#define HANDSHAKES_MAX_DEFAULT 128
#define WARM_MAX 256 /* links that keep OpenSSL's buffers, 33 KiB each */

enum tls_state {
    OPENING,   /* dialled: the inner wire has not opened it yet */
    HANDSHAKE, /* as it says */
    CONFIRM,   /* dialled: the acceptor has not said that it accepted our certificate */
    OPEN,
    FAILED, /* to be reported as lost by the next poll */
};

/* Lists of links: READY ones poll has something to say of without asking the inner wire (bytes that
 * are decrypted or lie in OpenSSL, a failure); YOUNG ones are accepted and in handshake; WARM ones
 * were used last, the last of them last; SHAKING ones are in handshake, dialled ones too. */
enum tls_list { READY, YOUNG, WARM, SHAKING, LISTS };

/* Encrypted bytes that the inner wire has not taken. */
struct tls_cipher {
    struct tls_cipher *next; /* in the pool */
    size_t size, sent;
    uint8_t bytes[CIPHER_BYTES];
};

struct tls_link {
    struct tls *tls;
    struct tls_link *bucket_next;
    struct tls_link *next[LISTS], *prev[LISTS];
    bool is_in[LISTS];
    sh_link number;
    enum tls_state state;
    enum shoal_err err; /* FAILED */
    bool is_dialled;
    bool is_confirmed; /* the acceptor's ticket has come */
    bool wants_writable;
    bool is_cut;     /* the inner link is gone; what OpenSSL has of it is still to be pulled */
    bool is_kernels; /* what is pushed the kernel encrypts */
    struct sh_tls_secret secret; /* until it was tried to hand it to the kernel */
    uint64_t tag;
    uint64_t deadline_ns; /* YOUNG */
    SSL *ssl;
    bool is_paused;            /* then not READY, unless it FAILED */
    struct tls_cipher *cipher; /* NULL: nothing waits */
    size_t owed;               /* plain bytes in cipher that push has not counted as taken */
    uint8_t first[4];          /* the first bytes received, as they came */
    size_t first_size;
    /* Of the record of the handshake that is being received. */
    uint8_t head[RECORD_HEAD_BYTES];
    size_t head_size;   /* bytes of its header that have come */
    size_t record_left; /* bytes that have not, once its header has */
    bool has_record;    /* it was handed on whole in this step, so the next record waits */
};

struct tls {
    struct sh_wire wire;
    struct sh_wire *inner;
    struct sh_clock clock;
    uint64_t handshake_timeout_ns;
    uint32_t handshakes_max;
    uint32_t counts[LISTS]; /* of READY: see ready_count */
    struct sh_rate warnings;
    SSL_CTX *context;
    BIO_METHOD *method;
    struct tls_link *buckets[BUCKETS];
    struct tls_link *lists[LISTS], *tails[LISTS];
    struct tls_cipher *ciphers;
    unsigned ciphers_count;
    bool has_kernel; /* the inner wire may encrypt */
    unsigned odd;    /* alternates, so that with room for one event neither source starves */
    /* seq_cst each: either who watches sees that a link is ready, or who makes it ready sees the
     * watcher and signals. */
    _Atomic uint32_t ready_count;
    _Atomic uint32_t watchers;
};

/* The link was used: it keeps its buffers, and another one may have to give its up. */
void sh_tls_link_used(struct tls_link *link);
/* Adds to the end, or takes off; nothing, if the link is there or is not. */
void sh_tls_list_add(struct tls_link *link, enum tls_list list);
void sh_tls_list_remove(struct tls_link *link, enum tls_list list);
/* NULL: there is none of that number. */
struct tls_link *sh_tls_link_find(struct tls *tls, sh_link number);
/* NULL: out of memory. */
struct tls_link *sh_tls_link_new(struct tls *tls, sh_link number, bool is_dialled);
/* Frees the link; the inner one is the caller's to close, if it is still there. */
void sh_tls_link_free(struct tls_link *link);
/* The link's buffer, fetched if it has none; NULL: out of memory. */
struct tls_cipher *sh_tls_cipher_of(struct tls_link *link);
/* Gives the buffer back, if there is one. */
void sh_tls_cipher_release(struct tls_link *link);

#endif
