#include "node/saves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "msg/bulk.h"
#include "node/holdings.h"

/* About 50 us of a round. */
#define STEP_BYTES (64u << 10)
#define AGAIN_NS UINT64_C(1000000) /* a section of another thread is waited for */
#define RECORDS_AT_ONCE 64u        /* where no step is timed */
#define KEPT_BYTES_MAX (UINT64_C(256) << 20)

/* A block: the one that was answered last, which may be asked for again, and the next one, on its way or full. */
struct block {
    uint8_t *bytes; /* SH_SAVES_BLOCK_BYTES */
    struct sh_writer w;
    struct sh_saves_block head;
    bool is_full;
};

struct sh_saves {
    struct sh_saves_config config;
    uint64_t number;  /* of the copy that is under way; 0: none is */
    shoal_nid reader; /* who has asked last, and when */
    uint64_t asked_ns;
    uint64_t arrivals; /* when it began */
    uint64_t due_ns;
    uint64_t answered; /* blocks, so far */
    struct block last, next;
    bool is_awaited; /* who has asked for the next block, and waits: */
    struct sh_reply_to reply_to;
};

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* --- Handing out ----------------------------------------------------------------------------- */

static void block_begin(struct block *block)
{
    block->w = sh_writer_make(block->bytes, SH_SAVES_BLOCK_BYTES);
    block->is_full = false;
}

static void copy_end(struct sh_saves *saves, enum shoal_err err)
{
    if (saves->is_awaited)
        sh_msg_reply_error(saves->config.msg, saves->reply_to, SH_SAVES_READ, err, NULL);
    saves->is_awaited = false;
    saves->number = 0;
    sh_cut_end(saves->config.store);
    free(saves->last.bytes);
    free(saves->next.bytes);
    saves->last.bytes = saves->next.bytes = NULL;
}

static void block_answer(struct sh_saves *saves, struct sh_reply_to to)
{
    const struct block *block = &saves->last;
    size_t size = (size_t)(block->w.at - block->bytes);
    struct sh_bulk *bulk;
    enum shoal_err err = sh_bulk_open(saves->config.msg, SH_SAVES_BLOCK_HEAD_BYTES + size, &bulk);
    if (err) {
        sh_msg_reply_error(saves->config.msg, to, SH_SAVES_READ, err, NULL);
        return;
    }
    sh_saves_block_put(sh_bulk_writer(bulk), &block->head);
    sh_put_raw(sh_bulk_writer(bulk), sh_bytes_make(block->bytes, size));
    sh_bulk_reply(bulk, to, SH_SAVES_READ, true);
}

/* The next block is full, and is asked for: answers with it, and begins another one. */
static void block_pass(struct sh_saves *saves, struct sh_reply_to to)
{
    struct block answered = saves->next;
    SH_ASSERT(answered.is_full);
    saves->next = saves->last;
    saves->last = answered;
    block_begin(&saves->next);
    saves->answered++;
    saves->due_ns = 0;
    block_answer(saves, to);
}

static void block_close(struct sh_saves *saves, const struct sh_cut_state *cut)
{
    struct block *block = &saves->next;
    struct sh_bytes records = sh_bytes_make(block->bytes, (size_t)(block->w.at - block->bytes));
    block->is_full = true;
    block->head = (struct sh_saves_block){.instance = sh_msg_instance(saves->config.msg),
                                          .arrivals = saves->arrivals,
                                          .chunks = cut->chunks,
                                          .payload_bytes = cut->payload_bytes,
                                          .all_bytes = cut->all_bytes,
                                          .crc = sh_crc32c(0, records),
                                          .is_last = cut->is_over};
}

static unsigned run(void *arg)
{
    struct sh_saves *saves = arg;
    struct block *block = &saves->next;
    uint64_t now_ns = sh_now(&saves->config.clock);
    bool is_full = false;
    unsigned done = 0;
    if (!saves->number)
        return 0;
    if (now_ns - saves->asked_ns > SH_SAVES_LAPSE_NS) {
        SH_WARN("node", "nobody reads the safety copy any more: it ends");
        copy_end(saves, SHOAL_ECANCELED);
        return 0;
    }
    if (!block->is_full)
        done = sh_cut_fill(saves->config.store, &block->w, STEP_BYTES, &is_full);
    struct sh_cut_state cut = sh_cut_state_get(saves->config.store);
    if (cut.err) {
        SH_WARN("node", "no safety copy", SH_ERR(cut.err), SH_U64("chunks", cut.chunks));
        copy_end(saves, cut.err);
        return 1;
    }
    if (!block->is_full && (is_full || cut.is_over))
        block_close(saves, &cut);
    if (block->is_full && saves->is_awaited) {
        saves->is_awaited = false;
        block_pass(saves, saves->reply_to);
        done++;
    }
    saves->due_ns = done             ? 0
                    : block->is_full ? saves->asked_ns + SH_SAVES_LAPSE_NS + 1
                                     : now_ns + AGAIN_NS;
    return done;
}

static uint64_t due_ns(void *arg)
{
    const struct sh_saves *saves = arg;
    return saves->number ? saves->due_ns : SH_NEVER;
}

struct sh_step sh_saves_step(struct sh_saves *saves)
{
    return (struct sh_step){.name = "saves", .run = run, .due_ns = due_ns, .arg = saves};
}

static enum shoal_err copy_begin(struct sh_saves *saves, uint64_t number)
{
    saves->last.bytes = malloc(SH_SAVES_BLOCK_BYTES);
    saves->next.bytes = malloc(SH_SAVES_BLOCK_BYTES);
    enum shoal_err err = saves->last.bytes && saves->next.bytes ? SHOAL_OK : SHOAL_ENOMEM;
    saves->arrivals = sh_store_arrivals(saves->config.store);
    if (!err)
        err = sh_cut_begin(saves->config.store, sh_msg_nid(saves->config.msg), KEPT_BYTES_MAX);
    if (err) {
        copy_end(saves, err);
        return err;
    }
    saves->number = number;
    saves->answered = 0;
    saves->due_ns = 0;
    block_begin(&saves->last);
    block_begin(&saves->next);
    return SHOAL_OK;
}

void sh_saves_link_event(struct sh_saves *saves, const struct sh_msg_event *event)
{
    if (saves->number && event->nid.v == saves->reader.v && event->kind != SH_MSG_UP) {
        SH_INFO("node", "a safety copy ends, as its reader is gone", SH_U64("by", event->nid.v));
        saves->is_awaited = false;
        copy_end(saves, SHOAL_ECONNLOST);
    }
}

static void asked(struct sh_saves *saves, const struct sh_msg_in *in)
{
    saves->reader = in->reply_to.nid;
    saves->asked_ns = sh_now(&saves->config.clock);
}

static void on_begin(void *arg, struct sh_msg_in *in)
{
    struct sh_saves *saves = arg;
    uint64_t number = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || number == 0) {
        refuse(in, SHOAL_EPROTO, "a safety copy begins with its number");
        return;
    }
    if (sh_msg_nid(in->msg).v == 0) {
        refuse(in, SHOAL_ENOTOWNER, "this node has not joined yet");
        return;
    }
    if (saves->number && saves->number != number) {
        refuse(in, SHOAL_EBUSY, "another safety copy is made of this node");
        return;
    }
    asked(saves, in);
    enum shoal_err err = saves->number ? SHOAL_OK : copy_begin(saves, number);
    if (err) {
        refuse(in, err, NULL);
        return;
    }
    SH_INFO("node", "a safety copy begins", SH_U64("by", in->reply_to.nid.v));
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

static void on_read(void *arg, struct sh_msg_in *in)
{
    struct sh_saves *saves = arg;
    uint64_t number = sh_get64(&in->payload), block = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || number == 0) {
        refuse(in, SHOAL_EPROTO, "a safety copy's number and a block's are asked for");
        return;
    }
    bool is_again = saves->answered && block == saves->answered - 1;
    if (number != saves->number || (!is_again && block != saves->answered)) {
        refuse(in, SHOAL_ENONAME, "that safety copy is not made here any more");
        return;
    }
    asked(saves, in);
    if (is_again) {
        block_answer(saves, in->reply_to);
        return;
    }
    if (saves->next.is_full) {
        block_pass(saves, in->reply_to);
        return;
    }
    if (saves->is_awaited) /* it was asked for before, and that answer is not waited for any more */
        sh_msg_reply_error(in->msg, saves->reply_to, in->type, SHOAL_ECANCELED, NULL);
    saves->is_awaited = true;
    saves->reply_to = in->reply_to;
    saves->due_ns = 0;
}

static void on_end(void *arg, struct sh_msg_in *in)
{
    struct sh_saves *saves = arg;
    uint64_t number = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || number == 0) {
        refuse(in, SHOAL_EPROTO, "a safety copy's number is asked for");
        return;
    }
    if (saves->number == number)
        copy_end(saves, SHOAL_ECANCELED);
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

static void on_arrivals(void *arg, struct sh_msg_in *in)
{
    struct sh_saves *saves = arg;
    struct sh_out out;
    if (!sh_reader_done(&in->payload)) {
        refuse(in, SHOAL_EPROTO, "arrivals are asked for with nothing");
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 16, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, sh_msg_instance(in->msg));
    sh_put64(&out.w, sh_store_arrivals(saves->config.store));
    sh_msg_end(in->msg, &out);
}

/* --- Taking back ----------------------------------------------------------------------------- */

/* A restore that is under way. */
struct restore {
    struct sh_saves *saves;
    struct sh_write write;
    enum sh_saves_policy policy;
    struct sh_saves_restored done;
};

/* A record of a RESTORE. At NULL: so many zeros. */
struct record {
    shoal_cid cid;
    struct sh_bytes data;
};

static bool record_get(struct sh_reader *r, struct record *record_out)
{
    shoal_cid cid = {sh_get64(r)};
    uint32_t size = sh_get32(r);
    bool is_zeros = size & SH_SAVES_ZEROS;
    size &= ~SH_SAVES_ZEROS;
    const uint8_t *at = is_zeros ? NULL : sh_reader_take(r, size);
    if (!is_zeros && size > SH_CUT_LARGE_BYTES)
        r->bad = true;
    *record_out = (struct record){.cid = cid, .data = sh_bytes_make(at, size)};
    return sh_reader_ok(r);
}

static bool is_same(struct sh_store *store, sh_lid lid, struct sh_bytes data)
{
    static uint8_t bytes[SH_CUT_LARGE_BYTES]; /* the transport step's */
    uint32_t size;
    return data.at && sh_store_get(store, lid, bytes, sizeof bytes, &size) == SHOAL_OK &&
           size == data.size && memcmp(bytes, data.at, size) == 0;
}

/* Puts the record's bytes in the place of a chunk that is there. */
static enum shoal_err replace(struct restore *restore, sh_lid lid, struct sh_bytes data)
{
    struct sh_backup *backup = restore->saves->config.backup;
    enum shoal_err err = SHOAL_ESIZE;
    if (data.at)
        err = sh_backup_put(backup, &restore->write, lid, data);
    if (err != SHOAL_ESIZE)
        return err == SHOAL_ENOCHUNK ? SHOAL_EEXIST : err;
    err = sh_backup_remove(backup, &restore->write, lid);
    if (!err || err == SHOAL_ENOCHUNK)
        err = sh_backup_adopt(backup, &restore->write, lid, data);
    return err;
}

/* The chunk's ID is in use. EEXIST: by other bytes, or for something else than a chunk. */
static enum shoal_err conflict(struct restore *restore, sh_lid lid, struct sh_bytes data)
{
    if (is_same(restore->saves->config.store, lid, data)) {
        restore->done.same++;
        return SHOAL_OK;
    }
    if (restore->policy == SH_SAVES_SKIP) {
        restore->done.skipped++;
        return SHOAL_OK;
    }
    if (restore->policy != SH_SAVES_OVERWRITE)
        return SHOAL_EEXIST;
    enum shoal_err err = replace(restore, lid, data);
    restore->done.replaced += !err;
    return err;
}

static enum shoal_err record_restore(struct restore *restore, const struct record *record)
{
    const struct sh_saves_config *config = &restore->saves->config;
    shoal_nid self = sh_msg_nid(config->msg), nid;
    shoal_cid last;
    if (shoal_cid_creator(record->cid).v != self.v || shoal_cid_local(record->cid) == 0)
        return SHOAL_EINVAL;
    if (sh_holdings_find(sh_chunks_holdings(config->chunks), record->cid, &last, &nid) !=
        SH_HOLDING_PLAIN) {
        restore->done.skipped += restore->policy == SH_SAVES_SKIP;
        return restore->policy == SH_SAVES_SKIP ? SHOAL_OK : SHOAL_EEXIST;
    }
    sh_lid lid = sh_holdings_lid(self, record->cid);
    enum shoal_err err = sh_backup_adopt(config->backup, &restore->write, lid, record->data);
    if (err == SHOAL_EEXIST)
        return conflict(restore, lid, record->data);
    restore->done.made += !err;
    return err;
}

static void restored_answer(struct sh_msg_in *in, const struct restore *restore)
{
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_SAVES_RESTORED_BYTES, &out) != SHOAL_OK)
        return;
    sh_saves_restored_put(&out.w, &restore->done);
    sh_msg_end(in->msg, &out);
}

/* Restores some records; false: there are no more, or one can't be. */
static bool records_restore(struct restore *restore, struct sh_reader *r)
{
    unsigned some = 0;
    while (!restore->done.err && sh_reader_left(r)) {
        struct record record;
        if (some++ == RECORDS_AT_ONCE || sh_step_spent())
            return true;
        enum shoal_err err =
            record_get(r, &record) ? record_restore(restore, &record) : SHOAL_EPROTO;
        restore->done.err = err;
        restore->done.records += !err;
        restore->done.cid = err ? record.cid : (shoal_cid){0};
    }
    return false;
}

static void restore_answer(struct sh_msg_in *in, const struct restore *restore)
{
    enum shoal_err err = restore->done.err;
    shoal_cid cid = restore->done.cid;
    char text[96];
    if (!err || err == SHOAL_EAGAIN || err == SHOAL_EEXIST) {
        restored_answer(in, restore);
        return;
    }
    snprintf(text, sizeof text, "chunk %u:%llu", shoal_cid_creator(cid).v,
             (unsigned long long)shoal_cid_local(cid));
    refuse(in, err, err == SHOAL_EPROTO ? "a record of a restore is cut off, or too long" : text);
}

/* False: it has been refused. */
static bool restore_begin(struct sh_saves *saves, struct sh_msg_in *in)
{
    unsigned policy = sh_get8(&in->payload);
    if (!sh_reader_ok(&in->payload) || policy > SH_SAVES_OVERWRITE ||
        sh_reader_left(&in->payload) > SH_SAVES_RESTORE_BYTES) {
        refuse(in, SHOAL_EPROTO, "a restore is a policy and records");
        return false;
    }
    if (sh_chunks_creates_refused(saves->config.chunks)) {
        refuse(in, SHOAL_ENONODE, SH_CHUNKS_DRAINED_TEXT);
        return false;
    }
    struct restore *restore = calloc(1, sizeof *restore);
    if (!restore) {
        refuse(in, SHOAL_ENOMEM, NULL);
        return false;
    }
    restore->saves = saves;
    restore->policy = (enum sh_saves_policy)policy;
    sh_write_begin(&restore->write, SH_LEVEL_ASYNC);
    in->state = restore;
    return true;
}

/* In steps, a chunk at a time: what was done stays done, and the asker goes on behind it. */
static void on_restore(void *arg, struct sh_msg_in *in)
{
    if (!in->state && !restore_begin(arg, in)) {
        in->goes_on = false;
        return;
    }
    struct restore *restore = in->state;
    in->goes_on = !in->is_ending && records_restore(restore, &in->payload);
    if (in->goes_on)
        return;
    if (!in->is_ending)
        restore_answer(in, restore);
    free(restore);
    in->state = NULL;
}

/* --- Making it ------------------------------------------------------------------------------- */

enum shoal_err sh_saves_create(const struct sh_saves_config *config, struct sh_saves **saves_out)
{
    static const struct {
        sh_msg_type type;
        sh_msg_handler handler;
    } handlers[] = {
        {SH_SAVES_BEGIN, on_begin},       {SH_SAVES_READ, on_read},       {SH_SAVES_END, on_end},
        {SH_SAVES_ARRIVALS, on_arrivals}, {SH_SAVES_RESTORE, on_restore},
    };
    struct sh_saves *saves = calloc(1, sizeof *saves);
    if (!saves)
        return SHOAL_ENOMEM;
    saves->config = *config;
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(config->msg, handlers[i].type, SH_MSG_INLINE, handlers[i].handler,
                           saves);
    *saves_out = saves;
    return SHOAL_OK;
}

void sh_saves_destroy(struct sh_saves *saves)
{
    if (!saves)
        return;
    saves->is_awaited = false;
    if (saves->number)
        copy_end(saves, SHOAL_ESTOPPED);
    free(saves);
}
