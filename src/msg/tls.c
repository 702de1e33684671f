/* TLS around a wire, by OpenSSL. Received bytes are pulled by OpenSSL straight from the inner wire
 * through a BIO of ours; encrypted ones collect in a buffer that the same BIO fills, up to four
 * records at a time, and go out with one push.
 *
 * Where the kernel encrypts (kTLS; the inner wire knows), it takes over what is sent once the
 * handshake is through, and push goes straight to the inner wire: a copy and two walks through the
 * bytes less. What is received OpenSSL goes on to decrypt, since it may have pulled parts of
 * records already. From then on OpenSSL may not send anything: there is no closing alert, which
 * messaging does not look at (it has its own CLOSE), and a peer that asks for new keys loses the
 * link.
 *
 * Push never takes bytes that the inner wire has not taken: what is encrypted when the inner wire
 * is full is owed, and counted as taken by the push after WRITABLE. So who has pushed everything
 * may close, as on other wires. */
#include "msg/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "msg/tls_files.h"
#include "msg/tls_int.h"

static struct tls *tls_of(struct sh_wire *wire)
{
    return (struct tls *)wire;
}

static void inner_close(struct tls_link *link)
{
    link->tls->inner->ops->close(link->tls->inner, link->number);
}

/* --- Between OpenSSL and the inner wire ----------------------------------------------------- */

/* How many bytes of the record at hand have not come: of its header until that is there. */
static size_t record_wants(const struct tls_link *link)
{
    return link->head_size < RECORD_HEAD_BYTES ? RECORD_HEAD_BYTES - link->head_size
                                               : link->record_left;
}

/* Bytes of a handshake have come, no more than record_wants. */
static void record_got(struct tls_link *link, const uint8_t *bytes, size_t size)
{
    SH_ASSERT(size <= record_wants(link));
    if (link->head_size == RECORD_HEAD_BYTES) {
        link->record_left -= size;
    } else {
        memcpy(link->head + link->head_size, bytes, size);
        link->head_size += size;
        link->record_left = (size_t)link->head[3] << 8 | link->head[4];
    }
    if (link->head_size == RECORD_HEAD_BYTES && link->record_left == 0) {
        link->head_size = 0;
        link->has_record = true;
    }
}

/* During the handshake OpenSSL is given one record in each step: what the other side sends at once
 * are up to five messages, and the certificate, its signature and our answer take 150 to 350 us
 * each. The inner wire says at the next poll that there is more. */
static int bio_read(BIO *bio, char *into, size_t room, size_t *got_out)
{
    struct tls_link *link = BIO_get_data(bio);
    struct sh_wire *inner = link->tls->inner;
    bool is_shaking = link->is_in[SHAKING];
    if (is_shaking && room > record_wants(link))
        room = record_wants(link);
    bool may_pull = room > 0 && !link->is_cut && !(is_shaking && link->has_record);
    size_t got = may_pull ? inner->ops->pull(inner, link->number, into, room) : 0;
    if (is_shaking)
        record_got(link, (const uint8_t *)into, got);
    BIO_clear_retry_flags(bio);
    if (got == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    for (size_t i = 0; i < got && link->first_size < sizeof link->first; i++)
        link->first[link->first_size++] = (uint8_t)into[i];
    *got_out = got;
    return 1;
}

/* Whoever encrypts makes sure of room first. What OpenSSL sends by itself (alerts, answers to key
 * updates) fits into what is left; a peer that asks for so many that it does not loses the link. */
static int bio_write(BIO *bio, const char *from, size_t size, size_t *taken_out)
{
    struct tls_link *link = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    struct tls_cipher *cipher = link->is_kernels ? NULL : sh_tls_cipher_of(link);
    if (!cipher || sizeof cipher->bytes - cipher->size < size)
        return 0;
    memcpy(cipher->bytes + cipher->size, from, size);
    cipher->size += size;
    *taken_out = size;
    return 1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* Pushes what is encrypted; true when nothing is left. */
static bool flush(struct tls_link *link)
{
    struct sh_wire *inner = link->tls->inner;
    struct tls_cipher *cipher = link->cipher;
    if (!cipher)
        return true;
    struct sh_bytes rest = {cipher->bytes + cipher->sent, cipher->size - cipher->sent};
    size_t taken = inner->ops->push(inner, link->number, rest);
    SH_ASSERT(taken <= rest.size);
    cipher->sent += taken;
    if (taken < rest.size)
        return false;
    sh_tls_cipher_release(link);
    return true;
}

/* --- Failing -------------------------------------------------------------------------------- */

static bool peer_is_plain(const struct tls_link *link)
{
    return link->first_size == sizeof link->first && memcmp(link->first, "SHOL", 4) == 0;
}

/* Why OpenSSL failed, for the log. */
static const char *reason_of(const struct tls_link *link)
{
    long verified = SSL_get_verify_result(link->ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    if (peer_is_plain(link))
        return "the other side speaks without TLS";
    if (verified != X509_V_OK)
        return X509_verify_cert_error_string(verified);
    return reason ? reason : "not TLS";
}

/* A plain dialler understands no alert: it gets the hello's refusal instead (docs/wire-format.md),
 * unless something was sent already. */
static void refuse_plain(struct tls_link *link)
{
    static const uint8_t refusal[] = {'S', 'H', 'O', 'L', 4, 0, 10, 0, SHOAL_ETLS, 0};
    _Static_assert(SHOAL_ETLS < 256, "the error's number takes two bytes");
    if (link->cipher && link->cipher->sent > 0)
        return;
    struct tls_cipher *cipher = sh_tls_cipher_of(link);
    if (!cipher)
        return;
    memcpy(cipher->bytes, refusal, sizeof refusal);
    cipher->size = sizeof refusal;
}

static void refusal_log(struct tls_link *link)
{
    struct tls *tls = link->tls;
    char address[SH_WIRE_ADDRESS_MAX];
    uint64_t left_out;
    if (!sh_rate_allows(&tls->warnings, sh_now(&tls->clock), &left_out))
        return;
    sh_wire_peer(tls->inner, link->number, address);
    SH_WARN("msg", "TLS refused", SH_TEXT("address", address), SH_TEXT("reason", reason_of(link)),
            SH_TEXT("opened_by", link->is_dialled ? "us" : "them"), SH_U64("left_out", left_out));
}

/* The link can't go on. What OpenSSL has to say to the other side is still sent if it can be. The
 * inner link stays until the owner has been told, so that its number can't come back before. An
 * accepted link that was not announced is simply gone: true. */
static bool link_fail(struct tls_link *link, enum shoal_err err)
{
    bool was_open = link->state == OPEN;
    SH_ASSERT(link->state != FAILED);
    if (err == SHOAL_ETLS)
        refusal_log(link);
    if (!was_open && !link->is_dialled && peer_is_plain(link))
        refuse_plain(link);
    if (!link->is_cut)
        (void)flush(link);
    if (!was_open && !link->is_dialled) {
        inner_close(link);
        sh_tls_link_free(link);
        return true;
    }
    link->state = FAILED;
    link->err = err;
    sh_tls_list_add(link, READY);
    return false;
}

/* What a call of OpenSSL that returned no success means for the link. True: it only waits for more
 * bytes. False: it has failed; and the link of a handshake may be gone. */
static bool only_waits(struct tls_link *link, int result)
{
    switch (SSL_get_error(link->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return true;
    case SSL_ERROR_ZERO_RETURN:
        (void)link_fail(link, SHOAL_ECONNLOST);
        return false;
    default:
        (void)link_fail(link, SHOAL_ETLS);
        return false;
    }
}

/* --- The handshake -------------------------------------------------------------------------- */

static int on_ticket(SSL *ssl, SSL_SESSION *session)
{
    struct tls_link *link = SSL_get_app_data(ssl);
    (void)session;
    link->is_confirmed = true;
    return 0; /* OpenSSL keeps the session: nobody resumes it */
}

/* Goes on with the handshake; true and an event when the link has become open. */
static bool handshake_step(struct tls_link *link, struct sh_wire_event *event_out)
{
    ERR_clear_error();
    link->has_record = false;
    if (link->state == HANDSHAKE) {
        int result = SSL_do_handshake(link->ssl);
        if (result != 1 && !only_waits(link, result))
            return false;
        (void)flush(link);
        if (result != 1)
            return false;
        link->state = CONFIRM;
    }
    if (link->is_dialled && !link->is_confirmed) {
        uint8_t byte;
        size_t got;
        int result = SSL_peek_ex(link->ssl, &byte, 1, &got);
        if (result != 1 && !only_waits(link, result))
            return false;
        (void)flush(link);
        if (result != 1 && !link->is_confirmed)
            return false;
    }
    link->state = OPEN;
    sh_tls_list_remove(link, YOUNG);
    sh_tls_list_remove(link, SHAKING);
    sh_tls_list_add(link, READY); /* what followed the handshake may lie in OpenSSL already */
    *event_out = (struct sh_wire_event){
        .kind = link->is_dialled ? SH_WIRE_OPENED : SH_WIRE_ACCEPTED,
        .link = link->number,
        .tag = link->tag,
    };
    return true;
}

/* Closes accepted links whose handshake takes too long. Returns when the next one is due. */
static uint64_t young_expire(struct tls *tls)
{
    struct tls_link *link = tls->lists[YOUNG];
    if (!link)
        return UINT64_MAX;
    uint64_t now_ns = sh_now(&tls->clock);
    while (link && link->deadline_ns <= now_ns) {
        uint64_t left_out;
        if (sh_rate_allows(&tls->warnings, now_ns, &left_out)) {
            char address[SH_WIRE_ADDRESS_MAX];
            sh_wire_peer(tls->inner, link->number, address);
            SH_WARN("msg", "TLS handshake took too long: closed", SH_TEXT("address", address),
                    SH_U64("left_out", left_out));
        }
        inner_close(link);
        sh_tls_link_free(link);
        link = tls->lists[YOUNG];
    }
    return link ? link->deadline_ns - now_ns : UINT64_MAX;
}

/* --- The operations ------------------------------------------------------------------------- */

static enum shoal_err tls_listen(struct sh_wire *wire, const char *address, char *bound_out)
{
    struct tls *tls = tls_of(wire);
    return tls->inner->ops->listen(tls->inner, address, bound_out);
}

static enum shoal_err tls_open(struct sh_wire *wire, const char *address, uint64_t tag,
                               sh_link *link_out)
{
    struct tls *tls = tls_of(wire);
    sh_link number;
    enum shoal_err err = tls->inner->ops->open(tls->inner, address, tag, &number);
    if (err != SHOAL_OK)
        return err;
    struct tls_link *link = sh_tls_link_new(tls, number, true);
    if (!link) {
        tls->inner->ops->close(tls->inner, number);
        return SHOAL_ENOMEM;
    }
    link->tag = tag;
    *link_out = number;
    return SHOAL_OK;
}

static void tls_close(struct sh_wire *wire, sh_link number)
{
    struct tls_link *link = sh_tls_link_find(tls_of(wire), number);
    if (!link)
        return;
    if (link->state == OPEN && !link->is_kernels && !link->is_cut) {
        ERR_clear_error();
        (void)SSL_shutdown(link->ssl);
        (void)flush(link);
    }
    inner_close(link);
    sh_tls_link_free(link);
}

/* Encrypts from the front of bytes, as much as the empty buffer holds. Returns how many plain bytes
 * that were; 0: the link has failed. */
static size_t encrypt(struct tls_link *link, struct sh_bytes bytes)
{
    size_t done = 0;
    SH_ASSERT(!link->cipher && bytes.size > 0);
    ERR_clear_error();
    while (done < bytes.size &&
           (!link->cipher || sizeof link->cipher->bytes - link->cipher->size >= RECORD_ROOM)) {
        size_t size = bytes.size - done < RECORD_BYTES ? bytes.size - done : RECORD_BYTES;
        size_t taken;
        int result = SSL_write_ex(link->ssl, bytes.at + done, size, &taken);
        if (result != 1) {
            (void)link_fail(link, SHOAL_ETLS);
            return 0;
        }
        done += taken;
    }
    return done;
}

static void on_secret(const SSL *ssl, const char *line)
{
    struct tls_link *link = SSL_get_app_data(ssl);
    if (link->tls->has_kernel)
        (void)sh_tls_secret_read(line, link->is_dialled, &link->secret);
}

/* Lets the kernel encrypt from here on, if it can; tried once for each link, before OpenSSL has
 * encrypted any of what was pushed. The acceptor's ticket was a record. */
static void kernel_try(struct tls_link *link)
{
    struct tls *tls = link->tls;
    struct sh_tls_keys keys;
    SH_ASSERT(!link->cipher && link->owed == 0);
    if (tls->has_kernel && sh_tls_keys_make(SSL_get_current_cipher(link->ssl), &link->secret,
                                            link->is_dialled ? 0 : 1, &keys)) {
        link->is_kernels = tls->inner->ops->encrypt(tls->inner, link->number, &keys, keys.size);
    }
    OPENSSL_cleanse(&keys, sizeof keys);
    OPENSSL_cleanse(&link->secret, sizeof link->secret);
}

static size_t kernel_push(struct tls_link *link, struct sh_bytes bytes)
{
    struct sh_wire *inner = link->tls->inner;
    size_t taken = inner->ops->push(inner, link->number, bytes);
    link->wants_writable |= taken < bytes.size;
    return taken;
}

static size_t tls_push(struct sh_wire *wire, sh_link number, struct sh_bytes bytes)
{
    struct tls_link *link = sh_tls_link_find(tls_of(wire), number);
    if (!link || link->state != OPEN || link->is_cut || bytes.size == 0)
        return 0;
    sh_tls_link_used(link);
    if (!flush(link)) {
        link->wants_writable = true;
        return 0;
    }
    if (link->secret.size > 0)
        kernel_try(link);
    if (link->is_kernels)
        return kernel_push(link, bytes);
    size_t taken = link->owed < bytes.size ? link->owed : bytes.size;
    link->owed -= taken;
    while (taken < bytes.size) {
        size_t made = encrypt(link, sh_bytes_make(bytes.at + taken, bytes.size - taken));
        if (made == 0)
            return taken;
        if (!flush(link)) {
            link->owed = made;
            link->wants_writable = true;
            return taken;
        }
        taken += made;
    }
    return taken;
}

static size_t tls_pull(struct sh_wire *wire, sh_link number, void *into, size_t room)
{
    struct tls_link *link = sh_tls_link_find(tls_of(wire), number);
    if (!link || link->state != OPEN || room == 0)
        return 0;
    sh_tls_link_used(link);
    size_t done = 0;
    ERR_clear_error();
    while (done < room) {
        size_t got;
        int result = SSL_read_ex(link->ssl, (uint8_t *)into + done, room - done, &got);
        if (result != 1) {
            if (!only_waits(link, result))
                return done;
            break;
        }
        done += got;
    }
    /* With room left there is nothing more in OpenSSL than part of a record. */
    if (done == room && !link->is_paused)
        sh_tls_list_add(link, READY);
    else
        sh_tls_list_remove(link, READY);
    if (link->is_cut && done < room)
        (void)link_fail(link, link->err);
    else if (!link->is_cut)
        (void)flush(link);
    return done;
}

/* What poll says of links without asking the inner wire: each once, the longest waiting first. */
static unsigned ready_report(struct tls *tls, struct sh_wire_event *events, unsigned events_max)
{
    uint32_t left = atomic_load(&tls->ready_count);
    unsigned count = 0;
    for (; left > 0 && count < events_max; left--, count++) {
        struct tls_link *link = tls->lists[READY];
        sh_tls_list_remove(link, READY);
        if (link->state == FAILED) {
            events[count] = (struct sh_wire_event){
                .kind = SH_WIRE_LOST, .link = link->number, .tag = link->tag, .err = link->err};
            inner_close(link);
            sh_tls_link_free(link);
        } else {
            SH_ASSERT(link->state == OPEN);
            events[count] = (struct sh_wire_event){.kind = SH_WIRE_READABLE, .link = link->number};
            sh_tls_list_add(link, READY); /* until pull has found the end */
        }
    }
    return count;
}

static void on_accepted(struct tls *tls, sh_link number)
{
    /* The oldest has had the most time: so who says nothing can't keep others out. */
    if (tls->counts[YOUNG] >= tls->handshakes_max) {
        struct tls_link *oldest = tls->lists[YOUNG];
        inner_close(oldest); /* not worth a line in the log: there may be many */
        sh_tls_link_free(oldest);
    }
    struct tls_link *link = sh_tls_link_new(tls, number, false);
    if (!link) {
        SH_ERROR("msg", "out of memory: refused a connection");
        tls->inner->ops->close(tls->inner, number);
        return;
    }
    link->deadline_ns = sh_now(&tls->clock) + tls->handshake_timeout_ns;
    sh_tls_list_add(link, YOUNG);
    sh_tls_list_add(link, SHAKING);
}

static bool on_lost(struct tls_link *link, const struct sh_wire_event *event,
                    struct sh_wire_event *event_out)
{
    enum shoal_err err = event->err;
    bool is_refused = event->is_refused;
    bool was_announced = link->is_dialled || link->state == OPEN || link->state == FAILED;
    bool was_open = link->state == OPEN;
    if (was_open && (link->is_in[READY] || link->is_paused)) {
        /* What it has received comes first. */
        link->is_cut = true;
        link->err = err;
        return false;
    }
    if (link->state == FAILED)
        err = link->err;
    else if (!was_open && link->is_dialled)
        err = SHOAL_EUNREACHABLE;
    *event_out = (struct sh_wire_event){.kind = SH_WIRE_LOST,
                                        .link = link->number,
                                        .tag = link->tag,
                                        .err = err,
                                        .is_refused = is_refused};
    sh_tls_link_free(link);
    return was_announced;
}

/* What an event of the inner wire means to the owner; false: nothing. */
static bool translate(struct tls *tls, struct sh_wire_event event, struct sh_wire_event *event_out)
{
    if (event.kind == SH_WIRE_ACCEPTED) {
        on_accepted(tls, event.link);
        return false;
    }
    struct tls_link *link = sh_tls_link_find(tls, event.link);
    if (!link)
        return false;
    if (event.kind == SH_WIRE_LOST)
        return on_lost(link, &event, event_out);
    if (event.kind == SH_WIRE_OPENED) {
        link->state = HANDSHAKE;
        sh_tls_list_add(link, SHAKING);
    }
    if (event.kind == SH_WIRE_WRITABLE) {
        if (!flush(link) || !link->wants_writable || link->state != OPEN)
            return false;
        link->wants_writable = false;
        *event_out = event;
        return true;
    }
    if (link->state == HANDSHAKE || link->state == CONFIRM)
        return handshake_step(link, event_out);
    *event_out = event;
    return link->state == OPEN;
}

/* An event may go on with a handshake by a record, whose certificate takes 350 us of a step. So while
 * there are any, a poll asks for so many events; the next one, a round later, for the next. */
#define EVENTS_SHAKING 1

static unsigned tls_poll(struct sh_wire *wire, struct sh_wire_event *events, unsigned events_max,
                         uint64_t timeout_ns)
{
    struct tls *tls = tls_of(wire);
    uint64_t young_ns = young_expire(tls);
    tls->odd ^= 1;
    unsigned count = ready_report(tls, events, (events_max + tls->odd) / 2);
    if (count == events_max)
        return count;
    if (atomic_load(&tls->ready_count) > 0 || count > 0)
        timeout_ns = 0;
    else if (young_ns < timeout_ns)
        timeout_ns = young_ns;
    unsigned most = events_max - count;
    if (tls->counts[SHAKING] > 0 && most > EVENTS_SHAKING)
        most = EVENTS_SHAKING;
    unsigned found = tls->inner->ops->poll(tls->inner, events + count, most, timeout_ns);
    /* In place: each event of the inner wire gives at most one of ours. */
    unsigned end = count + found;
    for (unsigned i = count; i < end; i++)
        count += translate(tls, events[i], &events[count]);
    return count;
}

static void tls_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    struct tls *tls = tls_of(wire);
    atomic_fetch_add(&tls->watchers, 1);
    if (atomic_load(&tls->ready_count) == 0)
        tls->inner->ops->watch(tls->inner, timeout_ns);
    atomic_fetch_sub(&tls->watchers, 1);
}

static void tls_signal(struct sh_wire *wire)
{
    struct tls *tls = tls_of(wire);
    tls->inner->ops->signal(tls->inner);
}

static void tls_flush(struct sh_wire *wire)
{
    struct tls *tls = tls_of(wire);
    if (tls->inner->ops->flush)
        tls->inner->ops->flush(tls->inner);
}

static void tls_pause(struct sh_wire *wire, sh_link number, bool is_paused)
{
    struct tls *tls = tls_of(wire);
    struct tls_link *link = sh_tls_link_find(tls, number);
    if (!link || link->state != OPEN)
        return;
    link->is_paused = is_paused;
    if (is_paused)
        sh_tls_list_remove(link, READY);
    else
        sh_tls_list_add(link, READY); /* OpenSSL may hold some, or has been cut */
    if (!link->is_cut && tls->inner->ops->pause)
        tls->inner->ops->pause(tls->inner, number, is_paused);
}

static void tls_peer(struct sh_wire *wire, sh_link number, char *text_out)
{
    sh_wire_peer(tls_of(wire)->inner, number, text_out);
}

/* All but the inner wire; accepts a half-built one. */
static void tls_free(struct tls *tls)
{
    for (unsigned i = 0; i < BUCKETS; i++) {
        while (tls->buckets[i])
            sh_tls_link_free(tls->buckets[i]);
    }
    while (tls->ciphers) {
        struct tls_cipher *cipher = tls->ciphers;
        tls->ciphers = cipher->next;
        free(cipher);
    }
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    free(tls);
}

static void tls_destroy(struct sh_wire *wire)
{
    struct tls *tls = tls_of(wire);
    struct sh_wire *inner = tls->inner;
    tls_free(tls);
    inner->ops->destroy(inner);
}

/* --- Making it ------------------------------------------------------------------------------ */

static void context_rules(SSL_CTX *context)
{
    int is_set = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SH_ASSERT(is_set == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    /* One ticket, which tells the dialler that it was accepted; nothing is cached or resumed. */
    is_set = SSL_CTX_set_num_tickets(context, 1);
    SH_ASSERT(is_set == 1);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, on_ticket);
    /* Fewer pulls: as many bytes as there are, not header and record apart. Buffers are kept while
     * a link is warm: SSL_MODE_RELEASE_BUFFERS would allocate them anew for each record. */
    SSL_CTX_set_read_ahead(context, 1);
}

static const struct sh_wire_ops tls_ops = {
    .listen = tls_listen,
    .open = tls_open,
    .close = tls_close,
    .push = tls_push,
    .pull = tls_pull,
    .poll = tls_poll,
    .watch = tls_watch,
    .signal = tls_signal,
    .destroy = tls_destroy,
    .flush = tls_flush,
    .peer = tls_peer,
    .pause = tls_pause,
};

enum shoal_err sh_tls_create(struct sh_wire *inner, const struct sh_tls_config *config,
                             struct sh_wire **wire_out, char *detail)
{
    detail[0] = '\0';
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return SHOAL_ENOMEM;
    tls->wire.ops = &tls_ops;
    tls->inner = inner;
    tls->clock = config->clock;
    tls->handshake_timeout_ns = config->handshake_timeout_ns;
    tls->handshakes_max = config->handshakes_max ? config->handshakes_max : HANDSHAKES_MAX_DEFAULT;
    tls->context = SSL_CTX_new(TLS_method());
    tls->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "shoal wire");
    enum shoal_err err = SHOAL_ENOMEM;
    if (!tls->context || !tls->method || BIO_meth_set_read_ex(tls->method, bio_read) != 1 ||
        BIO_meth_set_write_ex(tls->method, bio_write) != 1 ||
        BIO_meth_set_ctrl(tls->method, bio_control) != 1)
        goto out_free;
    context_rules(tls->context);
    tls->has_kernel = inner->ops->encrypt != NULL;
    if (tls->has_kernel)
        SSL_CTX_set_keylog_callback(tls->context, on_secret);
    err = sh_tls_files_load(tls->context, config, detail);
    if (err != SHOAL_OK)
        goto out_free;
    *wire_out = &tls->wire;
    return SHOAL_OK;
out_free:
    tls_free(tls);
    return err;
}
