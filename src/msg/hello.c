/* The hello: versions, cluster, node IDs, and proof of the cluster's secret, both ways.
 *
 *   dialler                                  acceptor
 *   HELLO (versions, nid, cluster, nonce)  ->
 *                                         <- WELCOME (the same of its own, and its proof)
 *   PROOF, and messages right behind it    ->
 *
 * A proof is HMAC-SHA256, keyed with the secret, over a word for the side, the hello and the
 * welcome: so neither side can replay or mirror the other's. Whoever refuses says why in a REFUSAL
 * frame before it closes. docs/wire-format.md has every byte. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/hash.h"
#include "msg/msg_int.h"

#define MAGIC 0x4c4f4853u /* "SHOL" */
#define FRAME_HEADER_BYTES 8
#define REFUSAL_BYTES (FRAME_HEADER_BYTES + 2)

enum frame { FRAME_HELLO = 1, FRAME_WELCOME, FRAME_PROOF, FRAME_REFUSAL };

/* The part that hello and welcome share, SH_HELLO_BYTES long. */
static void hello_write(struct sh_msg *msg, uint8_t *at, enum frame kind, size_t frame_bytes,
                        shoal_nid nid)
{
    struct sh_writer w = sh_writer_make(at, SH_HELLO_BYTES);
    sh_put32(&w, MAGIC);
    sh_put16(&w, kind);
    sh_put16(&w, (uint16_t)frame_bytes);
    sh_put16(&w, SH_MSG_VERSION_MIN);
    sh_put16(&w, SH_MSG_VERSION);
    sh_put16(&w, nid.v);
    sh_put16(&w, 0);
    sh_put64(&w, msg->cluster_hash);
    sh_put64(&w, msg->instance);
    uint8_t *nonce = sh_writer_take(&w, 16);
    SH_ASSERT(nonce != NULL && sh_writer_ok(&w) && w.at == w.end);
    msg->config.env.random.fill(msg->config.env.random.arg, nonce, 16);
}

static void proof_make(const struct sh_msg *msg, const char *side, const struct sh_stream *stream,
                       uint8_t *proof_out)
{
    uint8_t said[16 + 2 * SH_HELLO_BYTES] = {0};
    SH_ASSERT(strlen(side) < 16);
    memcpy(said, side, strlen(side));
    memcpy(said + 16, stream->hello, SH_HELLO_BYTES);
    memcpy(said + 16 + SH_HELLO_BYTES, stream->welcome, SH_HELLO_BYTES);
    struct sh_bytes secret = msg->config.secret;
    unsigned size = 0;
    unsigned char *made = HMAC(EVP_sha256(), secret.size ? (const void *)secret.at : "",
                               (int)secret.size, said, sizeof said, proof_out, &size);
    SH_ASSERT(made != NULL && size == SH_PROOF_BYTES);
}

void sh_hello_init(void)
{
    uint8_t proof[SH_PROOF_BYTES];
    unsigned size;
    unsigned char *made = HMAC(EVP_sha256(), "", 0, proof, 0, proof, &size);
    SH_ASSERT(made != NULL);
}

static bool proof_holds(const struct sh_msg *msg, const char *side, const struct sh_stream *stream,
                        const uint8_t *proof)
{
    uint8_t expected[SH_PROOF_BYTES];
    proof_make(msg, side, stream, expected);
    return CRYPTO_memcmp(expected, proof, SH_PROOF_BYTES) == 0;
}

void sh_hello_begin(struct sh_msg *msg, struct sh_stream *stream)
{
    SH_ASSERT(stream->is_dialled && stream->conn);
    struct sh_conn *conn = stream->conn;
    /* To whom we know only by address we are a client, so that the node's own connection to us, if
     * there is one, is not mistaken for this. */
    shoal_nid nid = conn->nid.v < SH_MSG_ALIAS_MIN ? sh_msg_nid(msg) : SHOAL_NID_NONE;
    hello_write(msg, stream->hello, FRAME_HELLO, SH_HELLO_BYTES, nid);
    stream->state = SH_STREAM_WAIT_WELCOME;
    sh_stream_control(msg, stream, sh_bytes_make(stream->hello, SH_HELLO_BYTES));
}

static void refuse(struct sh_msg *msg, struct sh_stream *stream, enum shoal_err err)
{
    uint8_t frame[REFUSAL_BYTES];
    struct sh_writer w = sh_writer_make(frame, sizeof frame);
    sh_put32(&w, MAGIC);
    sh_put16(&w, FRAME_REFUSAL);
    sh_put16(&w, sizeof frame);
    sh_put16(&w, (uint16_t)err);
    SH_ASSERT(sh_writer_ok(&w));
    if (stream->control_size + sizeof frame <= sizeof stream->control)
        sh_stream_control(msg, stream, sh_bytes_make(frame, sizeof frame));
}

/* What a hello or welcome says. */
struct said {
    uint16_t version_min, version_max;
    uint16_t version; /* the one that both will speak */
    shoal_nid nid;
    uint64_t cluster_hash;
    uint64_t instance;
};

/* Reads the shared part and judges it: EVERSION, ECLUSTER, EPROTO. */
static enum shoal_err hello_read(const struct sh_msg *msg, const uint8_t *frame,
                                 struct said *said_out)
{
    struct sh_reader r = sh_reader_make(
        sh_bytes_make(frame + FRAME_HEADER_BYTES, SH_HELLO_BYTES - FRAME_HEADER_BYTES));
    struct said said = {0};
    said.version_min = sh_get16(&r);
    said.version_max = sh_get16(&r);
    said.nid.v = sh_get16(&r);
    uint16_t reserved = sh_get16(&r);
    said.cluster_hash = sh_get64(&r);
    said.instance = sh_get64(&r);
    if (said.version_min > SH_MSG_VERSION || said.version_max < SH_MSG_VERSION_MIN ||
        said.version_min > said.version_max)
        return SHOAL_EVERSION;
    /* The highest that both speak. */
    said.version = said.version_max < SH_MSG_VERSION ? said.version_max : SH_MSG_VERSION;
    if (reserved != 0 || said.nid.v > SH_MSG_NID_MAX)
        return SHOAL_EPROTO;
    if (said.cluster_hash != msg->cluster_hash)
        return SHOAL_ECLUSTER;
    *said_out = said;
    return SHOAL_OK;
}

static enum shoal_err on_hello(struct sh_msg *msg, struct sh_stream *stream, const uint8_t *frame)
{
    struct said said;
    enum shoal_err err = hello_read(msg, frame, &said);
    if (err == SHOAL_OK && said.nid.v != 0 && said.nid.v == sh_msg_nid(msg).v)
        err = SHOAL_EEXIST;
    if (err != SHOAL_OK)
        return err;
    memcpy(stream->hello, frame, SH_HELLO_BYTES);
    hello_write(msg, stream->welcome, FRAME_WELCOME, SH_WELCOME_BYTES, sh_msg_nid(msg));
    proof_make(msg, "shoal accepts", stream, stream->welcome + SH_HELLO_BYTES);
    stream->state = SH_STREAM_WAIT_PROOF;
    sh_stream_control(msg, stream, sh_bytes_make(stream->welcome, SH_WELCOME_BYTES));
    return SHOAL_OK;
}

shoal_nid sh_hello_nid(const struct sh_stream *stream)
{
    SH_ASSERT(stream->state == SH_STREAM_WAIT_PROOF);
    /* Behind the frame's header and the range of versions. */
    return (shoal_nid){sh_load16(stream->hello + FRAME_HEADER_BYTES + 4)};
}

static enum shoal_err on_welcome(struct sh_msg *msg, struct sh_stream *stream, const uint8_t *frame)
{
    struct said said;
    enum shoal_err err = hello_read(msg, frame, &said);
    if (err != SHOAL_OK)
        return err;
    memcpy(stream->welcome, frame, SH_WELCOME_BYTES);
    if (!proof_holds(msg, "shoal accepts", stream, frame + SH_HELLO_BYTES))
        return SHOAL_ESECRET;
    stream->version = said.version;
    /* The other stream of the connection has begun to close it; the other side would take this one
     * for a new connection. */
    if (stream->conn->is_closing)
        return SHOAL_ECONNLOST;
    shoal_nid meant = stream->conn->nid;
    if (meant.v < SH_MSG_ALIAS_MIN && said.nid.v != meant.v)
        return SHOAL_ENONODE;
    if (meant.v < SH_MSG_ALIAS_MIN && !sh_conn_meet(msg, stream->conn, said.instance, true))
        return SHOAL_ENONODE; /* another life of it */
    uint8_t proof[SH_PROOF_FRAME_BYTES];
    struct sh_writer w = sh_writer_make(proof, sizeof proof);
    sh_put32(&w, MAGIC);
    sh_put16(&w, FRAME_PROOF);
    sh_put16(&w, sizeof proof);
    proof_make(msg, "shoal dials", stream, sh_writer_take(&w, SH_PROOF_BYTES));
    sh_stream_control(msg, stream, sh_bytes_make(proof, sizeof proof));
    return sh_conn_attach(msg, stream, said.nid) ? SHOAL_OK : SHOAL_ELIMIT;
}

static enum shoal_err on_proof(struct sh_msg *msg, struct sh_stream *stream, const uint8_t *frame)
{
    if (!proof_holds(msg, "shoal dials", stream, frame + FRAME_HEADER_BYTES))
        return SHOAL_ESECRET;
    struct said said;
    enum shoal_err err = hello_read(msg, stream->hello, &said);
    if (err != SHOAL_OK)
        return err;
    stream->version = said.version;
    struct sh_conn *conn = sh_sole_is(msg, said.nid) ? sh_conn_make(msg, said.nid)
                           : said.nid.v              ? sh_conn_find(msg, said.nid)
                                                     : NULL;
    if (conn && !sh_conn_meet(msg, conn, said.instance, false))
        return SHOAL_EEXIST; /* a former life of it, or another process that is it */
    return sh_conn_attach(msg, stream, said.nid) ? SHOAL_OK : SHOAL_ELIMIT;
}

static enum shoal_err on_refusal(const uint8_t *frame)
{
    enum shoal_err err = (enum shoal_err)sh_load16(frame + FRAME_HEADER_BYTES);
    return err == SHOAL_OK ? SHOAL_EPROTO : err;
}

enum shoal_err sh_hello_refused(const struct sh_stream *stream, const uint8_t *header)
{
    _Static_assert(SH_MSG_HEADER_BYTES == REFUSAL_BYTES, "a refusal is as long as a header");
    /* The acceptor judges our proof when we have begun to send already. */
    bool is_refusal = stream->is_dialled && sh_load32(header) == MAGIC &&
                      sh_load16(header + 4) == FRAME_REFUSAL &&
                      sh_load16(header + 6) == REFUSAL_BYTES;
    return is_refusal ? on_refusal(header) : SHOAL_EPROTO;
}

/* The only frame kinds and sizes that a stream in its state may receive. */
static size_t frame_size(const struct sh_stream *stream, uint16_t kind)
{
    if (kind == FRAME_REFUSAL)
        return REFUSAL_BYTES;
    if (kind == FRAME_HELLO && stream->state == SH_STREAM_WAIT_HELLO)
        return SH_HELLO_BYTES;
    if (kind == FRAME_WELCOME && stream->state == SH_STREAM_WAIT_WELCOME)
        return SH_WELCOME_BYTES;
    if (kind == FRAME_PROOF && stream->state == SH_STREAM_WAIT_PROOF)
        return SH_PROOF_FRAME_BYTES;
    return 0;
}

/* A dialler that has TLS where we have not begins with a handshake record of TLS. */
static bool is_tls(const struct sh_stream *stream, const uint8_t *bytes)
{
    return stream->state == SH_STREAM_WAIT_HELLO && bytes[0] == 0x16 && bytes[1] == 3;
}

size_t sh_hello_step(struct sh_msg *msg, struct sh_stream *stream, struct sh_bytes bytes,
                     enum shoal_err *err_out)
{
    if (bytes.size < FRAME_HEADER_BYTES)
        return 0;
    if (is_tls(stream, bytes.at)) {
        refuse(msg, stream, SHOAL_ETLS);
        *err_out = SHOAL_ETLS;
        return 0;
    }
    uint16_t kind = sh_load16(bytes.at + 4);
    size_t size = frame_size(stream, kind);
    if (sh_load32(bytes.at) != MAGIC || size == 0 || sh_load16(bytes.at + 6) != size) {
        *err_out = SHOAL_EPROTO;
        return 0;
    }
    if (bytes.size < size)
        return 0;
    enum shoal_err err;
    switch ((enum frame)kind) {
    case FRAME_HELLO:
        err = on_hello(msg, stream, bytes.at);
        break;
    case FRAME_WELCOME:
        err = on_welcome(msg, stream, bytes.at);
        break;
    case FRAME_PROOF:
        err = on_proof(msg, stream, bytes.at);
        break;
    default:
        *err_out = on_refusal(bytes.at);
        return 0;
    }
    if (err != SHOAL_OK) {
        refuse(msg, stream, err);
        *err_out = err;
        return 0;
    }
    return size;
}
