/* libshoal writes requests about one chunk, and reads the answers (proto/chunks.h). */
#include "client/client_int.h"
#include "proto/chunks.h"

/* --- Questions ----------------------------------------------------------------------------- */

sh_msg_type sh_ask_type(const struct sh_ask *ask)
{
    static const sh_msg_type types[] = {
        [SH_CALL_CREATE] = SH_CHUNKS_CREATE_ONCE,     [SH_CALL_GET] = SH_CHUNKS_GET,
        [SH_CALL_PUT] = SH_CHUNKS_PUT_ONCE,           [SH_CALL_REMOVE] = SH_CHUNKS_REMOVE_ONCE,
        [SH_CALL_GET_PART] = SH_CHUNKS_GET_PART,      [SH_CALL_PUT_PART] = SH_CHUNKS_PUT_PART_ONCE,
        [SH_CALL_RESIZE] = SH_CHUNKS_RESIZE_ONCE,     [SH_CALL_PUT_IF] = SH_CHUNKS_PUT_IF_ONCE,
        [SH_CALL_PUT_HASH] = SH_CHUNKS_PUT_HASH_ONCE, [SH_CALL_ADD] = SH_CHUNKS_ADD_ONCE,
        [SH_CALL_FILL] = SH_CHUNKS_FILL_ONCE,         [SH_CALL_FREE] = SH_CHUNKS_FREE_ONCE,
    };
    if (sh_call_is_lock(ask->kind))
        return sh_lock_request_type(ask->kind);
    return sh_call_reads(ask->kind)
               ? types[ask->kind]
               : sh_client_type(types[ask->kind], (enum shoal_level)ask->level);
}

/* What stands between the chunk's ID and the bytes to the end, or instead of all of it. */
static size_t head_bytes(const struct sh_ask *ask)
{
    switch (ask->kind) {
    case SH_CALL_CREATE:
    case SH_CALL_GET:
    case SH_CALL_PUT_PART:
    case SH_CALL_RESIZE:
        return 4;
    case SH_CALL_GET_PART:
    case SH_CALL_PUT_HASH:
        return 8;
    case SH_CALL_PUT_IF:
        return 4 + (size_t)ask->expected_size;
    case SH_CALL_ADD:
        return 13;
    default:
        return 0;
    }
}

static bool has_data(enum sh_call_kind kind)
{
    return kind == SH_CALL_PUT || kind == SH_CALL_PUT_PART || kind == SH_CALL_PUT_IF ||
           kind == SH_CALL_PUT_HASH || kind == SH_CALL_FILL;
}

size_t sh_ask_bytes(const struct sh_ask *ask)
{
    if (sh_call_is_lock(ask->kind))
        return sh_lock_request_bytes(ask->kind);
    return (sh_call_reads(ask->kind) ? 0 : SH_ONCE_PREFIX_BYTES) +
           (ask->kind == SH_CALL_CREATE ? 0 : 8) + head_bytes(ask) +
           (has_data(ask->kind) ? ask->size : 0);
}

static void head_write(const struct sh_ask *ask, struct sh_writer *w)
{
    uint32_t size = ask->size > UINT32_MAX ? UINT32_MAX : (uint32_t)ask->size;
    switch (ask->kind) {
    case SH_CALL_CREATE:
    case SH_CALL_GET:
    case SH_CALL_RESIZE:
        sh_put32(w, size);
        break;
    case SH_CALL_GET_PART:
        sh_put32(w, ask->offset);
        sh_put32(w, size);
        break;
    case SH_CALL_PUT_PART:
        sh_put32(w, ask->offset);
        break;
    case SH_CALL_PUT_IF:
        sh_put32(w, ask->expected_size);
        sh_put_raw(w, sh_bytes_make(ask->expected, ask->expected_size));
        break;
    case SH_CALL_PUT_HASH:
        sh_put64(w, ask->value);
        break;
    case SH_CALL_ADD:
        sh_put32(w, ask->offset);
        sh_put8(w, ask->width);
        sh_put64(w, ask->value);
        break;
    default:
        break;
    }
}

void sh_ask_write(const struct sh_ask *ask, const struct sh_once_id *id, shoal_cid cid,
                  struct sh_writer *w)
{
    if (!sh_call_reads(ask->kind))
        sh_once_id_put(w, id);
    if (ask->kind != SH_CALL_CREATE)
        sh_put64(w, cid.v);
    head_write(ask, w);
    if (has_data(ask->kind))
        sh_put_raw(w, sh_bytes_make(ask->from, ask->size));
}

/* --- Answers ------------------------------------------------------------------------------- */

void sh_call_describe_bytes(struct sh_codec *c, unsigned err, uint32_t size, void *into,
                            size_t room)
{
    /* A chunk that was removed or resized between its size and its bytes leaves padding of that size. */
    bool is_padding = (err == SHOAL_ENOCHUNK || err == SHOAL_EBUSY) && size > 0;
    bool has_bytes = err == SHOAL_OK || is_padding;
    bool fits = size <= room;
    if ((has_bytes && !fits) || (err == SHOAL_ESIZE && fits))
        sh_codec_fail(c, SHOAL_EPROTO);
    else if (has_bytes)
        sh_codec_bytes(c, into, size);
}

static void describe_got(struct sh_codec *c, void *object)
{
    struct sh_call_state *state = object;
    sh_codec_u16(c, &state->got_err);
    sh_codec_u32(c, &state->got_size);
    if (!sh_codec_reading(c))
        return;
    sh_call_describe_bytes(c, state->got_err, state->got_size, state->ask.into, state->ask.size);
}

/* Of a part come as many bytes as were asked for or, with an error, maybe none. */
static void describe_part(struct sh_codec *c, void *object)
{
    struct sh_call_state *state = object;
    sh_codec_u16(c, &state->got_err);
    sh_codec_u32(c, &state->got_size);
    sh_codec_u32(c, &state->got_bytes);
    if (!sh_codec_reading(c))
        return;
    bool is_none = state->got_bytes == 0 && state->got_err != SHOAL_OK;
    if (!is_none && state->got_bytes != state->ask.size)
        sh_codec_fail(c, SHOAL_EPROTO);
    else if (!is_none)
        sh_codec_bytes(c, state->ask.into, state->got_bytes);
}

sh_codec_describe sh_ask_describe(enum sh_call_kind kind)
{
    return kind == SH_CALL_GET ? describe_got : kind == SH_CALL_GET_PART ? describe_part : NULL;
}

static enum shoal_err created(struct sh_call_state *state, struct sh_reader *r)
{
    shoal_cid cid = {sh_get64(r)};
    uint32_t count = sh_get32(r);
    if (!sh_reader_done(r) || count != 1 || shoal_cid_creator(cid).v != state->request.to.v)
        return SHOAL_EPROTO;
    sh_call_of(state)->cid = cid;
    return SHOAL_OK;
}

enum shoal_err sh_ask_answer(struct sh_call_state *state, struct sh_reader *r)
{
    struct shoal_call *call = sh_call_of(state);
    enum sh_call_kind kind = state->ask.kind;
    if (kind == SH_CALL_GET || kind == SH_CALL_GET_PART) {
        bool is_part = kind == SH_CALL_GET_PART && state->got_err == SHOAL_OK;
        call->size = is_part ? state->got_bytes : state->got_size;
        return sh_err_get(state->got_err);
    }
    if (kind == SH_CALL_CREATE)
        return created(state, r);
    if (kind == SH_CALL_ADD) {
        uint64_t old = sh_get64(r);
        if (!sh_reader_done(r))
            return SHOAL_EPROTO;
        call->value = old;
    }
    return SHOAL_OK;
}
