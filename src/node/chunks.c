/* The handlers of a peer's chunks. Single gets, puts, creates and removes run inline, in the parse
 * step: they take less time than a hand-over. Those that handle many chunks are pooled. */
#include "node/chunks_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/resident.h"

#define MULTI_AT_ONCE 64

static enum shoal_err look(const struct sh_chunks *chunks, uint64_t cid, bool writes,
                           sh_lid *lid_out)
{
    return sh_holdings_look(&chunks->holdings, sh_msg_nid(chunks->msg), (shoal_cid){cid}, writes,
                            lid_out);
}

enum shoal_err sh_chunks_own(struct sh_chunks *chunks, uint64_t cid, bool writes, sh_lid *lid_out)
{
    enum shoal_err err = look(chunks, cid, writes, lid_out);
    if (err == SHOAL_ENOTOWNER)
        atomic_fetch_add_explicit(&chunks->misdirected, 1, memory_order_relaxed);
    return err;
}

static bool is_not_here(enum shoal_err err)
{
    return err == SHOAL_ENOTOWNER || err == SHOAL_EBUSY;
}

static enum shoal_err remove_one(struct sh_chunks *chunks, uint64_t cid, sh_lid lid)
{
    if (chunks->remove)
        return chunks->remove(chunks->remove_arg, (shoal_cid){cid}, lid);
    return sh_store_remove(chunks->store, lid);
}

void sh_chunks_refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

void sh_chunks_refuse_own(struct sh_msg_in *in, enum shoal_err err)
{
    sh_chunks_refuse(
        in, err, err == SHOAL_EINVAL ? "the chunk with the local ID 0 is the node's names" : NULL);
}

void sh_chunks_refuse_store(struct sh_chunks *chunks, struct sh_msg_in *in, sh_lid lid,
                            enum shoal_err err)
{
    char text[200] = "";
    uint32_t size;
    if (err == SHOAL_ESIZE && sh_store_size(chunks->store, lid, &size) == SHOAL_OK) {
        snprintf(text, sizeof text, "the chunk is %u bytes", size);
    } else if (err == SHOAL_EFULL) {
        int length = snprintf(text, sizeof text, "on node %u ", sh_msg_nid(chunks->msg).v);
        sh_store_shortage_text(chunks->store, text + length, sizeof text - (size_t)length);
    } else if (err == SHOAL_ETOOBIG) {
        snprintf(text, sizeof text, "chunk_bytes_max on node %u is %u", sh_msg_nid(chunks->msg).v,
                 chunks->chunk_bytes_max);
    }
    sh_chunks_refuse(in, err, text);
}

/* --- One chunk ----------------------------------------------------------------------------- */

/* Writes a GET answer's head and, if the chunk was read, its bytes. */
static void put_got(struct sh_writer *w, enum shoal_err err, uint32_t size, const uint8_t *bytes)
{
    sh_put16(w, (uint16_t)err);
    sh_put32(w, size);
    if (err == SHOAL_OK)
        sh_put_raw(w, sh_bytes_make(bytes, size));
}

/* Answers a GET of a chunk too large for the stack: reads it where it is sent from. A chunk that
 * changes in between is answered as gone, with padding. */
static void get_large(struct sh_chunks *chunks, struct sh_msg_in *in, sh_lid lid, uint32_t size)
{
    struct sh_out out;
    sh_step_long();
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_CHUNKS_GET_HEAD_BYTES + (size_t)size,
                     &out) != SHOAL_OK)
        return;
    uint8_t *head = sh_writer_take(&out.w, SH_CHUNKS_GET_HEAD_BYTES);
    uint8_t *bytes = sh_writer_take(&out.w, size);
    SH_ASSERT(head && bytes);
    uint32_t got = 0;
    enum shoal_err err = sh_store_get(chunks->store, lid, bytes, size, &got);
    if (err == SHOAL_OK && got != size)
        err = SHOAL_ENOCHUNK;
    if (err != SHOAL_OK)
        memset(bytes, 0, size);
    sh_store16(head, (uint16_t)(err == SHOAL_ESIZE ? SHOAL_ENOCHUNK : err));
    sh_store32(head + 2, size);
    sh_msg_end(in->msg, &out);
}

static void on_get(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    uint64_t cid = sh_get64(&in->payload);
    uint32_t room = sh_get32(&in->payload);
    sh_lid lid = {0};
    if (!sh_reader_done(&in->payload)) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a get is 12 bytes");
        return;
    }
    uint8_t small[SH_CHUNKS_SMALL_BYTES];
    uint32_t size = 0;
    enum shoal_err err = sh_chunks_own(chunks, cid, false, &lid);
    if (err == SHOAL_OK)
        err = sh_store_get(chunks->store, lid, small, sizeof small, &size);
    if (is_not_here(err)) {
        sh_chunks_refuse(in, err, NULL);
        return;
    }
    if (err == SHOAL_ESIZE && size <= room) {
        get_large(chunks, in, lid, size);
        return;
    }
    if (err == SHOAL_OK && size > room)
        err = SHOAL_ESIZE;
    struct sh_out out;
    size_t bytes = SH_CHUNKS_GET_HEAD_BYTES + (err == SHOAL_OK ? size : 0);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, bytes, &out) != SHOAL_OK)
        return;
    put_got(&out.w, err, size, small);
    sh_msg_end(in->msg, &out);
}

static void on_put(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    uint64_t cid = sh_get64(&in->payload);
    size_t size = sh_reader_left(&in->payload);
    if (!sh_reader_ok(&in->payload)) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a put begins with a chunk ID");
        return;
    }
    sh_lid lid = {0};
    enum shoal_err err = sh_chunks_own(chunks, cid, true, &lid);
    if (err == SHOAL_OK)
        err = sh_store_put(chunks->store, lid,
                           sh_bytes_make(sh_reader_take(&in->payload, size), size));
    if (err == SHOAL_OK)
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
    else
        sh_chunks_refuse_store(chunks, in, lid, err);
}

static void on_remove(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    uint64_t cid = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload)) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a remove is a chunk ID");
        return;
    }
    sh_lid lid = {0};
    enum shoal_err err = sh_chunks_own(chunks, cid, true, &lid);
    if (err == SHOAL_OK)
        err = remove_one(chunks, cid, lid);
    if (err == SHOAL_OK)
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
    else
        sh_chunks_refuse_own(in, err);
}

/* --- At most once -------------------------------------------------------------------------- */

/* What has not been done, as this node does not have the chunk, is not kept: the client asks again,
 * under the same number if it is this node once more. */

static void on_create_once(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct sh_once_id id;
    struct sh_once_result result = {.err = SHOAL_OK};
    enum sh_once_state state = sh_once_begin(chunks->once, in, &id, &result);
    if (state == SH_ONCE_REFUSED)
        return;
    uint32_t size = sh_get32(&in->payload);
    shoal_nid self = sh_msg_nid(chunks->msg);
    bool is_well = sh_reader_done(&in->payload);
    if (!is_well || (state == SH_ONCE_FIRST && !sh_chunks_may_create(chunks))) {
        sh_chunks_refuse(in, is_well ? SHOAL_ENOTOWNER : SHOAL_EPROTO,
                         is_well ? SH_CHUNKS_NO_CREATES : NULL);
        return;
    }
    if (state == SH_ONCE_FIRST) {
        sh_lid lid;
        result.err = sh_store_new_many(chunks->store, size, 1, &lid);
        if (result.err == SHOAL_OK)
            result.value = lid.v;
        sh_once_end(chunks->once, &id, &result);
    }
    if (result.err == SHOAL_OK)
        sh_chunks_create_answer(in->msg, in->reply_to, in->type, self, &(sh_lid){result.value}, 1);
    else
        sh_chunks_refuse_store(chunks, in, (sh_lid){0}, result.err);
}

/* A put or remove. */
static void change_once(struct sh_chunks *chunks, struct sh_msg_in *in, bool is_put)
{
    struct sh_once_id id;
    struct sh_once_result result = {.err = SHOAL_OK};
    enum sh_once_state state = sh_once_begin(chunks->once, in, &id, &result);
    if (state == SH_ONCE_REFUSED)
        return;
    uint64_t cid = sh_get64(&in->payload);
    size_t size = sh_reader_left(&in->payload);
    sh_lid lid = {0};
    enum shoal_err err = SHOAL_EPROTO;
    if (sh_reader_ok(&in->payload) && (is_put || size == 0))
        err = sh_chunks_own(chunks, cid, true, &lid);
    /* What was done here stays done, wherever the chunk is by now. */
    if (err != SHOAL_OK && (err == SHOAL_EPROTO || state == SH_ONCE_FIRST)) {
        sh_chunks_refuse_own(in, err);
        return;
    }
    if (state == SH_ONCE_FIRST) {
        result.about = cid;
        struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&in->payload, size), size);
        result.err =
            is_put ? sh_store_put(chunks->store, lid, bytes) : remove_one(chunks, cid, lid);
        sh_once_end(chunks->once, &id, &result);
    }
    if (result.err == SHOAL_OK)
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
    else
        sh_chunks_refuse_store(chunks, in, lid, result.err);
}

static void on_put_once(void *arg, struct sh_msg_in *in)
{
    change_once(arg, in, true);
}

static void on_remove_once(void *arg, struct sh_msg_in *in)
{
    change_once(arg, in, false);
}

/* --- Many chunks --------------------------------------------------------------------------- */

/* In the place of a size: the chunk is not here, or just moving. */
#define SIZE_NOT_HERE UINT32_MAX
#define SIZE_MOVING (UINT32_MAX - 1)

/* The answer's size, from the chunks' sizes as they are now. */
static size_t multi_get_sizes(struct sh_chunks *chunks, struct sh_reader r, uint32_t *sizes,
                              size_t count)
{
    size_t bytes = count * SH_CHUNKS_GET_HEAD_BYTES;
    for (size_t i = 0; i < count; i++) {
        sh_lid lid;
        uint64_t cid = sh_get64(&r);
        uint32_t room = sh_get32(&r);
        enum shoal_err err = sh_chunks_own(chunks, cid, false, &lid);
        sizes[i] = err == SHOAL_OK ? 0 : err == SHOAL_EBUSY ? SIZE_MOVING : SIZE_NOT_HERE;
        if (err == SHOAL_OK && sh_store_size(chunks->store, lid, &sizes[i]) == SHOAL_OK &&
            sizes[i] <= room)
            bytes += sizes[i];
    }
    return bytes;
}

/* Gets at most MULTI_AT_ONCE chunks straight into the answer. */
static void multi_get_some(struct sh_chunks *chunks, struct sh_reader *r, const uint32_t *sizes,
                           size_t count, struct sh_writer *w)
{
    struct sh_store_op ops[MULTI_AT_ONCE];
    uint8_t *heads[MULTI_AT_ONCE];
    size_t of[MULTI_AT_ONCE], ops_count = 0;
    shoal_nid self = sh_msg_nid(chunks->msg);
    for (size_t i = 0; i < count; i++) {
        uint64_t cid = sh_get64(r);
        uint32_t room = sh_get32(r);
        uint32_t size = sizes[i];
        enum shoal_err err = SHOAL_OK;
        if (size >= SIZE_MOVING) {
            err = size == SIZE_MOVING ? SHOAL_EBUSY : SHOAL_ENOTOWNER;
            size = 0;
        }
        heads[i] = sh_writer_take(w, SH_CHUNKS_GET_HEAD_BYTES);
        SH_ASSERT(heads[i] != NULL);
        if (err == SHOAL_OK && size > room)
            err = SHOAL_ESIZE;
        sh_store16(heads[i], (uint16_t)err);
        sh_store32(heads[i] + 2, size);
        if (err != SHOAL_OK)
            continue;
        of[ops_count] = i;
        ops[ops_count++] = (struct sh_store_op){.lid = sh_holdings_lid(self, (shoal_cid){cid}),
                                                .data = sh_writer_take(w, size),
                                                .size = size};
    }
    (void)sh_store_get_multi(chunks->store, ops, ops_count);
    for (size_t i = 0; i < ops_count; i++) {
        uint32_t expected = sizes[of[i]];
        /* Gone, or removed and made anew, since its size was looked up: the room stays padding. */
        if (ops[i].err == SHOAL_OK && ops[i].size == expected)
            continue;
        if (expected > 0)
            memset(ops[i].data, 0, expected);
        sh_store16(heads[of[i]], SHOAL_ENOCHUNK);
    }
}

static void run_multi_get(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    size_t left = sh_reader_left(&in->payload);
    size_t count = left / 12;
    if (left % 12 != 0 || count > SH_CHUNKS_MANY_MAX) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a multi-get is chunk IDs and rooms, 12 bytes each");
        return;
    }
    uint32_t *sizes = malloc((count ? count : 1) * sizeof *sizes);
    struct sh_out out;
    size_t bytes = sizes ? multi_get_sizes(chunks, in->payload, sizes, count) : 0;
    if (!sizes) {
        sh_chunks_refuse(in, SHOAL_ENOMEM, NULL);
        return;
    }
    enum shoal_err err = sh_msg_reply(in->msg, in->reply_to, in->type, bytes, &out);
    if (err == SHOAL_OK) {
        for (size_t i = 0; i < count; i += MULTI_AT_ONCE) {
            size_t some = count - i < MULTI_AT_ONCE ? count - i : MULTI_AT_ONCE;
            multi_get_some(chunks, &in->payload, sizes + i, some, &out.w);
        }
        sh_msg_end(in->msg, &out);
    } else if (err == SHOAL_ETOOBIG) {
        sh_chunks_refuse(in, err, "the answer would be too large: ask for fewer chunks at once");
    }
    free(sizes);
}

/* Puts or removes at most MULTI_AT_ONCE chunks and writes their errors. */
static void multi_put_some(struct sh_chunks *chunks, struct sh_store_op *ops,
                           const enum shoal_err *owns, size_t count, struct sh_writer *w)
{
    struct sh_store_op mine[MULTI_AT_ONCE];
    size_t mine_count = 0, next = 0;
    for (size_t i = 0; i < count; i++) {
        if (owns[i] == SHOAL_OK)
            mine[mine_count++] = ops[i];
    }
    (void)sh_store_put_multi(chunks->store, mine, mine_count);
    for (size_t i = 0; i < count; i++)
        sh_put16(w, (uint16_t)(owns[i] == SHOAL_OK ? mine[next++].err : owns[i]));
}

/* Counts the puts of a MULTI_PUT; false when it is malformed. */
static bool multi_put_count(struct sh_reader r, size_t *count_out)
{
    size_t count = 0;
    while (sh_reader_ok(&r) && sh_reader_left(&r) > 0) {
        sh_get64(&r);
        (void)sh_reader_take(&r, sh_get32(&r));
        count++;
    }
    *count_out = count;
    return sh_reader_done(&r) && count <= SH_CHUNKS_MANY_MAX;
}

static void run_multi_put(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    size_t count;
    struct sh_out out;
    if (!multi_put_count(in->payload, &count)) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a multi-put is chunk IDs, sizes and bytes");
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, count * 2, &out) != SHOAL_OK)
        return;
    while (count > 0) {
        struct sh_store_op ops[MULTI_AT_ONCE];
        enum shoal_err owns[MULTI_AT_ONCE];
        size_t some = count < MULTI_AT_ONCE ? count : MULTI_AT_ONCE;
        for (size_t i = 0; i < some; i++) {
            owns[i] = sh_chunks_own(chunks, sh_get64(&in->payload), true, &ops[i].lid);
            ops[i].size = sh_get32(&in->payload);
            ops[i].data = (void *)(uintptr_t)sh_reader_take(&in->payload, ops[i].size);
        }
        multi_put_some(chunks, ops, owns, some, &out.w);
        count -= some;
    }
    sh_msg_end(in->msg, &out);
}

static void run_multi_remove(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    size_t left = sh_reader_left(&in->payload);
    size_t count = left / 8;
    struct sh_out out;
    if (left % 8 != 0 || count > SH_CHUNKS_MANY_MAX) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a multi-remove is chunk IDs");
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, count * 2, &out) != SHOAL_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        sh_lid lid;
        uint64_t cid = sh_get64(&in->payload);
        enum shoal_err err = sh_chunks_own(chunks, cid, true, &lid);
        if (err == SHOAL_OK)
            err = remove_one(chunks, cid, lid);
        sh_put16(&out.w, (uint16_t)err);
    }
    sh_msg_end(in->msg, &out);
}

/* --- Looking around ------------------------------------------------------------------------ */

/* The next range that is served here, at or behind *from_inout in the store's order, which it moves
 * behind it. What is only staged, or was given away, is left out. */
static bool range_next(struct sh_chunks *chunks, shoal_nid self, sh_lid *from_inout,
                       struct sh_range *range_out)
{
    sh_lid first, last;
    while (sh_store_range(chunks->store, *from_inout, &first, &last)) {
        shoal_cid begin = sh_holdings_cid(self, first), end = sh_holdings_cid(self, last), until;
        shoal_nid nid;
        enum sh_holding what = sh_holdings_find(&chunks->holdings, begin, &until, &nid);
        bool is_own = shoal_cid_creator(begin).v == self.v;
        if (until.v < end.v)
            end = until;
        *from_inout = sh_holdings_lid(self, end);
        from_inout->v++;
        *range_out = (struct sh_range){.first = begin, .last = end};
        if (what != SH_HOLDING_AWAY && (is_own || what != SH_HOLDING_PLAIN))
            return true;
    }
    return false;
}

static void run_ranges(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    shoal_nid self = sh_msg_nid(chunks->msg);
    sh_lid from = sh_holdings_lid(self, (shoal_cid){sh_get64(&in->payload)});
    enum shoal_err err = self.v ? SHOAL_OK : SHOAL_ENOTOWNER;
    if (!sh_reader_done(&in->payload))
        err = SHOAL_EPROTO;
    if (err != SHOAL_OK) {
        sh_chunks_refuse(in, err, NULL);
        return;
    }
    struct sh_range *found = malloc(SH_CHUNKS_RANGES_MAX * sizeof *found);
    size_t count = 0;
    while (found && count < SH_CHUNKS_RANGES_MAX && range_next(chunks, self, &from, &found[count]))
        count++;
    struct sh_out out;
    if (!found) {
        sh_chunks_refuse(in, SHOAL_ENOMEM, NULL);
    } else if (sh_msg_reply(in->msg, in->reply_to, in->type, count * 16, &out) == SHOAL_OK) {
        for (size_t i = 0; i < count; i++) {
            sh_put64(&out.w, found[i].first.v);
            sh_put64(&out.w, found[i].last.v);
        }
        sh_msg_end(in->msg, &out);
    }
    free(found);
}

static void on_status(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct sh_store_status status;
    sh_store_status_get(chunks->store, &status);
    struct sh_msg_stats stats;
    sh_msg_stats_get(in->msg, &stats);
    const uint64_t values[] = {
        status.chunks,
        status.payload_bytes,
        status.table_bytes,
        status.block_bytes,
        status.free_bytes,
        status.other_bytes,
        status.used_bytes,
        status.bytes_max,
        status.creates,
        status.removes,
        status.gets,
        status.puts,
        sh_resident_bytes(),
        atomic_load_explicit(&chunks->misdirected, memory_order_relaxed),
        stats.fences,
        sh_msg_is_fenced(in->msg),
        sh_chunks_creates_refused(chunks),
    };
    _Static_assert(sizeof values == SH_CHUNKS_STATUS_BYTES, "as the wire has it");
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sizeof values, &out) != SHOAL_OK)
        return;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        sh_put64(&out.w, values[i]);
    sh_msg_end(in->msg, &out);
}

/* --- Pooled requests, while whose chunks may begin to move ----------------------------------- */

static void on_multi_get(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    unsigned entered = sh_holdings_enter(&chunks->holdings);
    run_multi_get(chunks, in);
    sh_holdings_leave(&chunks->holdings, entered);
}

static void on_multi_put(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    unsigned entered = sh_holdings_enter(&chunks->holdings);
    run_multi_put(chunks, in);
    sh_holdings_leave(&chunks->holdings, entered);
}

static void on_multi_remove(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    unsigned entered = sh_holdings_enter(&chunks->holdings);
    run_multi_remove(chunks, in);
    sh_holdings_leave(&chunks->holdings, entered);
}

static void on_ranges(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    unsigned entered = sh_holdings_enter(&chunks->holdings);
    run_ranges(chunks, in);
    sh_holdings_leave(&chunks->holdings, entered);
}

static const struct {
    sh_msg_type type;
    enum sh_msg_mode mode;
    sh_msg_handler handler;
} handlers[] = {
    {SH_CHUNKS_GET, SH_MSG_INLINE, on_get},
    {SH_CHUNKS_PUT, SH_MSG_INLINE, on_put},
    {SH_CHUNKS_REMOVE, SH_MSG_INLINE, on_remove},
    {SH_CHUNKS_MULTI_GET, SH_MSG_POOLED, on_multi_get},
    {SH_CHUNKS_MULTI_PUT, SH_MSG_POOLED, on_multi_put},
    {SH_CHUNKS_MULTI_REMOVE, SH_MSG_POOLED, on_multi_remove},
    {SH_CHUNKS_RANGES, SH_MSG_POOLED, on_ranges},
    {SH_CHUNKS_STATUS, SH_MSG_INLINE, on_status},
    {SH_CHUNKS_CREATE_ONCE, SH_MSG_INLINE, on_create_once},
    {SH_CHUNKS_PUT_ONCE, SH_MSG_INLINE, on_put_once},
    {SH_CHUNKS_REMOVE_ONCE, SH_MSG_INLINE, on_remove_once},
};

void sh_chunks_prefetch(void *arg, struct sh_bytes payload, unsigned round)
{
    struct sh_chunks *chunks = arg;
    sh_lid lid;
    if (payload.size >= 8 && look(chunks, sh_load64(payload.at), false, &lid) == SHOAL_OK)
        sh_store_prefetch(chunks->store, lid, round == 0 ? SH_STORE_ENTRY : SH_STORE_DATA);
}

void sh_chunks_prefetch_once(void *arg, struct sh_bytes payload, unsigned round)
{
    if (payload.size >= SH_ONCE_PREFIX_BYTES + 8)
        sh_chunks_prefetch(arg, sh_bytes_make(payload.at + SH_ONCE_PREFIX_BYTES, 8), round);
}

enum shoal_err sh_chunks_create(struct sh_msg *msg, struct sh_store *store,
                                uint32_t chunk_bytes_max, struct sh_chunks **chunks_out)
{
    struct sh_chunks *chunks = calloc(1, sizeof *chunks);
    if (!chunks)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_once_create(msg, &(struct sh_once_config){0}, &chunks->once);
    if (err == SHOAL_OK)
        err = sh_holdings_init(&chunks->holdings);
    if (err != SHOAL_OK) {
        sh_chunks_destroy(chunks);
        return err;
    }
    chunks->msg = msg;
    chunks->store = store;
    chunks->chunk_bytes_max = chunk_bytes_max;
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(msg, handlers[i].type, handlers[i].mode, handlers[i].handler, chunks);
    sh_msg_prefetch_set(msg, SH_CHUNKS_GET, sh_chunks_prefetch);
    sh_msg_prefetch_set(msg, SH_CHUNKS_PUT, sh_chunks_prefetch);
    sh_msg_prefetch_set(msg, SH_CHUNKS_PUT_ONCE, sh_chunks_prefetch_once);
    sh_fields_register(chunks);
    sh_create_register(chunks);
    *chunks_out = chunks;
    return SHOAL_OK;
}

void sh_chunks_remover_set(struct sh_chunks *chunks,
                           enum shoal_err (*remove)(void *arg, shoal_cid cid, sh_lid lid),
                           void *arg)
{
    chunks->remove = remove;
    chunks->remove_arg = arg;
}

void sh_chunks_destroy(struct sh_chunks *chunks)
{
    if (!chunks)
        return;
    sh_once_destroy(chunks->once);
    sh_holdings_destroy(&chunks->holdings);
    free(chunks);
}

struct sh_holdings *sh_chunks_holdings(struct sh_chunks *chunks)
{
    return &chunks->holdings;
}

const struct sh_once *sh_chunks_once(const struct sh_chunks *chunks)
{
    return chunks->once;
}

void sh_chunks_creates_refuse(struct sh_chunks *chunks, bool refuses)
{
    /* relaxed: it publishes nothing */
    atomic_store_explicit(&chunks->refuses_creates, refuses, memory_order_relaxed);
}

bool sh_chunks_creates_refused(const struct sh_chunks *chunks)
{
    return atomic_load_explicit(&chunks->refuses_creates, memory_order_relaxed);
}
