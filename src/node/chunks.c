/* The handlers of a peer's chunks, and those that look around. Single gets (reads.c), puts and
 * removes (changes.c) and creates (create.c) run inline, in the parse step: they take less time than
 * a hand-over. Those that handle many chunks are pooled (multi.c). */
#include "node/chunks_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/resident.h"

static enum shoal_err look(struct sh_chunks *chunks, uint64_t cid, bool writes, sh_lid *lid_out)
{
    shoal_nid self = sh_msg_nid(chunks->msg);
    enum shoal_err err =
        sh_holdings_look(&chunks->holdings, self, (shoal_cid){cid}, writes, lid_out);
    if (err == SHOAL_ENOTOWNER)
        sh_holdings_stray_note(&chunks->holdings, self, (shoal_cid){cid});
    return err;
}

enum shoal_err sh_chunks_own(struct sh_chunks *chunks, uint64_t cid, bool writes, sh_lid *lid_out)
{
    enum shoal_err err = look(chunks, cid, writes, lid_out);
    if (err == SHOAL_ENOTOWNER)
        atomic_fetch_add_explicit(&chunks->misdirected, 1, memory_order_relaxed);
    return err;
}

void sh_chunks_refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

void sh_chunks_refuse_store(struct sh_chunks *chunks, const struct sh_msg_in *in,
                            struct sh_held *held, sh_lid lid, enum shoal_err err)
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
    } else if (err == SHOAL_ENOSPC) {
        snprintf(text, sizeof text,
                 "the log of node %u has no room for the chunk, nor for another zone of chunks: "
                 "remove chunks, raise log_bytes_max, or make room on its disk",
                 sh_msg_nid(chunks->msg).v);
    } else if (err == SHOAL_EIO) {
        snprintf(text, sizeof text,
                 "the log of node %u is out of service: chunks can be read, and not changed",
                 sh_msg_nid(chunks->msg).v);
    }
    sh_answer_error(in, held, err, text);
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
    struct sh_held *held = NULL;
    struct sh_answer answer;
    if (!found) {
        sh_chunks_refuse(in, SHOAL_ENOMEM, NULL);
    } else if (sh_held_saw_all(chunks->helds, in, &held) &&
               sh_answer_begin(in, held, count * 16, &answer)) {
        for (size_t i = 0; i < count; i++) {
            sh_put64(answer.w, found[i].first.v);
            sh_put64(answer.w, found[i].last.v);
        }
        sh_answer_end(in, &answer);
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
    SH_ASSERT(values[SH_CHUNKS_STATUS_MAX] == status.bytes_max);
    SH_ASSERT(values[SH_CHUNKS_STATUS_USED] == status.used_bytes);
    SH_ASSERT(values[SH_CHUNKS_STATUS_FREE] == status.free_bytes);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sizeof values, &out) != SHOAL_OK)
        return;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        sh_put64(&out.w, values[i]);
    sh_msg_end(in->msg, &out);
}

/* A pooled request, while whose chunks may begin to move. */

static void on_ranges(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    unsigned entered = sh_holdings_enter(&chunks->holdings);
    run_ranges(chunks, in);
    sh_holdings_leave(&chunks->holdings, entered);
}

/* --- Waiting for disks --------------------------------------------------------------------- */

static void on_sync(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct sh_held *held;
    if (!sh_reader_done(&in->payload) || !sh_backup_is_on(chunks->backup)) {
        bool is_well = sh_reader_done(&in->payload);
        char text[100];
        (void)snprintf(text, sizeof text,
                       "node %u has no log, so its chunks are on no disk: see its option replicas",
                       sh_msg_nid(chunks->msg).v);
        sh_chunks_refuse(in, is_well ? SHOAL_ENOBACKUP : SHOAL_EPROTO, is_well ? text : NULL);
    } else if (sh_held_begin(chunks->helds, in, &held)) {
        sh_write_begin(sh_held_write(held), SH_LEVEL_DURABLE);
        sh_backup_write_all(chunks->backup, sh_held_write(held));
        sh_answer_ok(in, held);
    }
}

bool sh_chunks_gives_up(const struct sh_chunks *chunks, uint64_t *since_inout)
{
    uint64_t now_ns = sh_now(&chunks->clock);
    if (!*since_inout)
        *since_inout = now_ns;
    return now_ns - *since_inout >= SH_CHUNKS_ROOM_NS;
}

void sh_chunks_changes_set(struct sh_chunks *chunks, sh_msg_type form, enum sh_msg_mode mode,
                           sh_msg_handler handler, sh_msg_prefetch prefetch)
{
    for (unsigned level = 0; level <= SH_CHUNKS_LEVELS; level++) {
        sh_msg_type type = level ? SH_CHUNKS_AT(form, level - 1) : form;
        sh_msg_handler_set(chunks->msg, type, mode, handler, chunks);
        if (prefetch)
            sh_msg_prefetch_set(chunks->msg, type, prefetch);
    }
}

static const struct {
    sh_msg_type type;
    enum sh_msg_mode mode;
    sh_msg_handler handler;
} handlers[] = {
    {SH_CHUNKS_RANGES, SH_MSG_POOLED, on_ranges},
    {SH_CHUNKS_STATUS, SH_MSG_INLINE, on_status},
    {SH_CHUNKS_SYNC, SH_MSG_INLINE, on_sync},
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

enum shoal_err sh_chunks_create(const struct sh_chunks_config *config,
                                struct sh_chunks **chunks_out)
{
    struct sh_msg *msg = config->msg;
    struct sh_chunks *chunks = calloc(1, sizeof *chunks);
    if (!chunks)
        return SHOAL_ENOMEM;
    const struct sh_helds_config held = {.msg = msg,
                                         .backup = config->backup,
                                         .level = config->level,
                                         .count_max = config->helds_max};
    enum shoal_err err = sh_once_create(msg, &(struct sh_once_config){0}, &chunks->once);
    if (err == SHOAL_OK)
        err = sh_helds_create(&held, &chunks->helds);
    if (err == SHOAL_OK)
        err = sh_holdings_init(&chunks->holdings);
    if (err != SHOAL_OK) {
        sh_chunks_destroy(chunks);
        return err;
    }
    chunks->msg = msg;
    chunks->store = config->store;
    chunks->backup = config->backup;
    chunks->clock = config->clock;
    chunks->chunk_bytes_max = config->chunk_bytes_max;
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(msg, handlers[i].type, handlers[i].mode, handlers[i].handler, chunks);
    sh_reads_register(chunks);
    sh_changes_register(chunks);
    sh_multi_register(chunks);
    sh_create_register(chunks);
    *chunks_out = chunks;
    return SHOAL_OK;
}

void sh_chunks_remover_set(struct sh_chunks *chunks, sh_chunks_remover remove, void *arg)
{
    chunks->remove = remove;
    chunks->remove_arg = arg;
}

void sh_chunks_destroy(struct sh_chunks *chunks)
{
    if (!chunks)
        return;
    sh_once_destroy(chunks->once);
    sh_helds_destroy(chunks->helds);
    free(chunks->medium);
    sh_holdings_destroy(&chunks->holdings);
    free(chunks);
}

struct sh_holdings *sh_chunks_holdings(struct sh_chunks *chunks)
{
    return &chunks->holdings;
}

void sh_chunks_completed(void *arg, const struct sh_completion *completion)
{
    const struct sh_chunks *chunks = arg;
    const struct sh_once_id id = {completion->client, completion->number, completion->acknowledged};
    struct sh_once_result result = {.value = completion->value, .about = completion->chunk};
    if (completion->is_create)
        result = (struct sh_once_result){.value = shoal_cid_local((shoal_cid){completion->chunk})};
    enum shoal_err err = sh_once_enter(chunks->once, &id, &result);
    if (err)
        SH_WARN("node", "a request that is repeated may be done twice", SH_ERR(err),
                SH_U64("number", completion->number));
}

struct sh_once *sh_chunks_results(struct sh_chunks *chunks)
{
    return chunks->once;
}

const struct sh_once *sh_chunks_once(const struct sh_chunks *chunks)
{
    return chunks->once;
}

struct sh_helds *sh_chunks_helds(struct sh_chunks *chunks)
{
    return chunks->helds;
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
