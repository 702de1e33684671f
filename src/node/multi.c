/* The handlers of requests on many chunks: pooled, and done in pieces (msg/msg.h).
 *
 *   COUNT, of what is malformed nothing is done --> SIZE, of a get's answer --> WORK --> answer
 *
 * A piece takes some operations that are short together, or a part of one on a large chunk, which is
 * written or read as reads.c and changes.c do it. From its first piece to its last no migration
 * copies the chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/steptime.h"
#include "msg/bulk.h"
#include "node/chunks_int.h"

#define MULTI_AT_ONCE 64
/* Operations that are counted or looked up before a look at the clock. */
#define LOOKS_AT_ONCE 1024
/* Pieces in one step where no step is timed. */
#define PIECES_MOST 64

/* In the place of a size: the chunk is not here, or just moving. */
#define SIZE_NOT_HERE UINT32_MAX
#define SIZE_MOVING (UINT32_MAX - 1)
#define SIZE_LOST (UINT32_MAX - 2)

enum phase { COUNT, SIZE, WORK };

struct multi {
    enum phase phase;
    unsigned entered;
    struct sh_reader r;   /* what COUNT and SIZE have not seen */
    size_t count, done;   /* operations; those that the phase is through with */
    uint32_t *sizes;      /* of a get: as they were in SIZE */
    size_t bytes;         /* of the answer */
    struct sh_bulk *bulk; /* the answer, from WORK on */
    struct sh_writer *w;  /* of it */
    /* An operation on a large chunk, which is not over. */
    bool is_large;
    bool is_refused; /* too many answers are held: it was answered */
    uint8_t *head;   /* of its part of a get's answer */
    struct sh_store_reading reading;
    struct sh_store_rewriting *rewriting;
    sh_lid lid;          /* of its chunk */
    uint64_t refused_ns; /* since when there has been no room in a log for it; 0: there is */
    struct sh_held
        *held; /* of all its changes, or of what it has seen; NULL: there is nothing to wait for */
};

/* --- Gets ---------------------------------------------------------------------------------- */

/* Adds up the answer's size, from the chunks' sizes as they are now. */
static void size_some(struct sh_chunks *chunks, struct multi *multi)
{
    size_t end =
        multi->count - multi->done < LOOKS_AT_ONCE ? multi->count : multi->done + LOOKS_AT_ONCE;
    for (; multi->done < end; multi->done++) {
        sh_lid lid;
        uint64_t cid = sh_get64(&multi->r);
        uint32_t room = sh_get32(&multi->r);
        uint32_t *size = &multi->sizes[multi->done];
        enum shoal_err err = sh_chunks_own(chunks, cid, false, &lid);
        *size = err == SHOAL_OK      ? 0
                : err == SHOAL_EBUSY ? SIZE_MOVING
                : err == SHOAL_ELOST ? SIZE_LOST
                                     : SIZE_NOT_HERE;
        if (err == SHOAL_OK && sh_store_size(chunks->store, lid, size) == SHOAL_OK && *size <= room)
            multi->bytes += *size;
    }
}

/* Why a chunk is not read, from its size. */
static enum shoal_err got_err(uint32_t size, uint32_t room)
{
    if (size == SIZE_LOST)
        return SHOAL_ELOST;
    if (size >= SIZE_MOVING)
        return size == SIZE_MOVING ? SHOAL_EBUSY : SHOAL_ENOTOWNER;
    return size > room ? SHOAL_ESIZE : SHOAL_OK;
}

/* A chunk that is gone, or is of another size, since its size was looked up: the room stays padding. */
static void got_nothing(uint8_t *head, void *data, uint32_t size, enum shoal_err err)
{
    if (size > 0)
        memset(data, 0, size);
    sh_store16(head, (uint16_t)err);
}

/* Gets some chunks straight into the answer, or begins with a large one. */
static void get_some(struct sh_chunks *chunks, struct multi *multi, struct sh_msg_in *in)
{
    struct sh_store_op ops[MULTI_AT_ONCE];
    uint8_t *heads[MULTI_AT_ONCE];
    uint32_t expected[MULTI_AT_ONCE];
    shoal_cid seen[MULTI_AT_ONCE];
    size_t ops_count = 0, looked = 0, bytes = 0, seen_count = 0;
    shoal_nid self = sh_msg_nid(chunks->msg);
    for (; looked < MULTI_AT_ONCE && multi->done < multi->count; looked++) {
        uint32_t size = multi->sizes[multi->done];
        struct sh_reader r = in->payload;
        shoal_cid cid = {sh_get64(&r)};
        enum shoal_err err = got_err(size, sh_get32(&r));
        if (err == SHOAL_OK && ops_count > 0 && bytes + size > SH_STORE_PIECE_BYTES)
            break;
        in->payload = r;
        multi->done++;
        uint8_t *head = sh_writer_take(multi->w, SH_CHUNKS_GET_HEAD_BYTES);
        SH_ASSERT(head != NULL);
        sh_store16(head, (uint16_t)err);
        sh_store32(head + 2, size >= SIZE_LOST ? 0 : size);
        /* A large one is seen when it is read. */
        if (err == SHOAL_ESIZE || (err == SHOAL_OK && size <= SH_STORE_PIECE_BYTES))
            seen[seen_count++] = sh_holdings_lid(self, cid);
        if (err != SHOAL_OK)
            continue;
        void *data = sh_writer_take(multi->w, size);
        if (size > SH_STORE_PIECE_BYTES) {
            multi->is_large = true;
            multi->head = head;
            multi->reading = (struct sh_store_reading){
                .cid = sh_holdings_lid(self, cid), .into = data, .size = size, .is_whole = true};
            break;
        }
        bytes += size;
        heads[ops_count] = head;
        expected[ops_count] = size;
        ops[ops_count++] =
            (struct sh_store_op){.lid = sh_holdings_lid(self, cid), .data = data, .size = size};
    }
    (void)sh_store_get_multi(chunks->store, ops, ops_count);
    for (size_t i = 0; i < ops_count; i++) {
        enum shoal_err err = sh_chunks_got_err(ops[i].err, ops[i].size == expected[i]);
        if (err != SHOAL_OK)
            got_nothing(heads[i], ops[i].data, expected[i], err);
    }
    for (size_t i = 0; i < seen_count && !multi->is_refused; i++)
        multi->is_refused = !sh_held_saw(chunks->helds, in, seen[i], &multi->held);
}

/* --- Changes ------------------------------------------------------------------------------- */

/* The next put or resize. */
static void op_read(sh_msg_type form, struct sh_reader *r, uint64_t *cid_out,
                    struct sh_store_op *op_out)
{
    *cid_out = sh_get64(r);
    op_out->size = sh_get32(r);
    op_out->data = NULL;
    if (form == SH_CHUNKS_MULTI_PUT)
        op_out->data = (void *)(uintptr_t)sh_reader_take(r, op_out->size);
}

/* Begins with a put or resize of a large chunk. False: out of memory. */
static bool large_begin(struct sh_chunks *chunks, struct multi *multi, sh_msg_type form,
                        const struct sh_store_op *op)
{
    bool is_put = form == SH_CHUNKS_MULTI_PUT;
    struct sh_store_rewrite rewrite = {
        .kind = is_put ? SH_STORE_PUT : SH_STORE_RESIZE, .cid = op->lid, .size = op->size};
    if (is_put)
        rewrite.data = sh_bytes_make(op->data, op->size);
    if (sh_store_rewriting_begin(chunks->store, &rewrite, &multi->rewriting))
        return false;
    multi->lid = op->lid;
    multi->is_large = true;
    return true;
}

/* Writes what came of a change of a chunk that is here. Of one that was not made it tells what the chunk is. */
static void change_put(struct sh_chunks *chunks, struct multi *multi, const struct sh_msg_in *in,
                       sh_lid lid, enum shoal_err err)
{
    if (err == SHOAL_ELIMIT && multi->held)
        err = SHOAL_ENOMEM; /* of a large one: for what it takes to do it in pieces */
    if (err != SHOAL_OK) {
        bool is_held = sh_held_saw(chunks->helds, in, lid, &multi->held);
        SH_ASSERT(is_held); /* it was begun for the changes */
    }
    sh_put16(multi->w, (uint16_t)sh_chunks_change_err(err));
}

/* Puts or resizes some chunks, or begins with a large one. */
static void change_some(struct sh_chunks *chunks, struct multi *multi, struct sh_msg_in *in)
{
    struct sh_store_op ops[MULTI_AT_ONCE];
    enum shoal_err owns[MULTI_AT_ONCE];
    size_t looked = 0, mine = 0, bytes = 0, next = 0;
    sh_msg_type form = sh_chunks_form(in->type);
    struct sh_write *write = sh_held_write(multi->held);
    for (; looked < MULTI_AT_ONCE && multi->done < multi->count; looked++) {
        struct sh_reader r = in->payload;
        struct sh_store_op *op = &ops[mine];
        uint64_t cid;
        op_read(form, &r, &cid, op);
        bool is_large = op->size > SH_STORE_PIECE_BYTES;
        if (looked > 0 && bytes + op->size > SH_STORE_PIECE_BYTES)
            break;
        in->payload = r;
        multi->done++;
        owns[looked] = sh_chunks_own(chunks, cid, true, &op->lid);
        if (owns[looked] == SHOAL_OK && is_large && large_begin(chunks, multi, form, op))
            return; /* it is the first */
        mine += owns[looked] == SHOAL_OK;
        bytes += op->size;
    }
    if (form == SH_CHUNKS_MULTI_PUT)
        (void)sh_backup_put_multi(chunks->backup, write, ops, mine);
    else
        (void)sh_backup_resize_multi(chunks->backup, write, ops, mine);
    for (size_t i = 0; i < looked; i++) {
        if (owns[i] != SHOAL_OK) {
            sh_put16(multi->w, (uint16_t)owns[i]);
            continue;
        }
        change_put(chunks, multi, in, ops[next].lid, ops[next].err);
        next++;
    }
}

static void remove_some(struct sh_chunks *chunks, struct multi *multi, struct sh_msg_in *in)
{
    for (unsigned i = 0; i < MULTI_AT_ONCE && multi->done < multi->count; i++) {
        sh_lid lid;
        uint64_t cid = sh_get64(&in->payload);
        enum shoal_err err = sh_chunks_own(chunks, cid, true, &lid);
        if (err == SHOAL_OK)
            change_put(chunks, multi, in, lid,
                       sh_chunks_remove_one(chunks, sh_held_write(multi->held), cid, lid));
        else
            sh_put16(multi->w, (uint16_t)err);
        multi->done++;
    }
}

/* --- All of them --------------------------------------------------------------------------- */

/* Goes on with a put or resize of a large chunk; false: it is not over. Where there is no room in the log for
 * long, it is given up. */
static bool rewriting_some(struct sh_chunks *chunks, struct multi *multi,
                           const struct sh_msg_in *in)
{
    struct sh_write *write = sh_held_write(multi->held);
    bool is_over = sh_backup_rewriting_step(chunks->backup, write, multi->rewriting);
    bool was_refused = !is_over && write && sh_write_was_refused(write);
    if (!was_refused)
        multi->refused_ns = 0;
    if (!is_over && !(was_refused && sh_chunks_gives_up(chunks, &multi->refused_ns)))
        return false;
    enum shoal_err err = sh_store_rewriting_end(multi->rewriting);
    change_put(chunks, multi, in, multi->lid, err == SHOAL_ECANCELED ? SHOAL_EBUSY : err);
    multi->rewriting = NULL;
    return true;
}

/* Goes on with a large chunk. */
static void large_some(struct sh_chunks *chunks, struct multi *multi, const struct sh_msg_in *in)
{
    enum shoal_err err;
    if (multi->rewriting) {
        multi->is_large = !rewriting_some(chunks, multi, in);
        return;
    }
    if (!sh_store_reading_step(chunks->store, &multi->reading, &err))
        return;
    err = sh_chunks_got_err(err, true);
    if (err != SHOAL_OK)
        got_nothing(multi->head, multi->reading.into, multi->reading.size, err);
    multi->is_refused = !sh_held_saw(chunks->helds, in, multi->reading.cid, &multi->held);
    multi->is_large = false;
}

static void work_some(struct sh_chunks *chunks, struct multi *multi, struct sh_msg_in *in)
{
    sh_msg_type form = sh_chunks_form(in->type);
    if (multi->is_large)
        large_some(chunks, multi, in);
    else if (form == SH_CHUNKS_MULTI_GET)
        get_some(chunks, multi, in);
    else if (form == SH_CHUNKS_MULTI_REMOVE)
        remove_some(chunks, multi, in);
    else
        change_some(chunks, multi, in);
}

/* How many bytes an operation takes in a request. */
static size_t op_bytes(sh_msg_type form)
{
    return form == SH_CHUNKS_MULTI_REMOVE ? 8 : 12;
}

static const char *shape_of(sh_msg_type form)
{
    switch (form) {
    case SH_CHUNKS_MULTI_GET:
        return "a multi-get is chunk IDs and rooms, 12 bytes each";
    case SH_CHUNKS_MULTI_PUT:
        return "a multi-put is chunk IDs, sizes and bytes";
    case SH_CHUNKS_MULTI_REMOVE:
        return "a multi-remove is chunk IDs";
    default:
        return "a multi-resize is chunk IDs and sizes, 12 bytes each";
    }
}

/* Counts operations; those of one size, all at once. False: the request is malformed. */
static bool count_some(struct multi *multi, sh_msg_type form)
{
    if (form != SH_CHUNKS_MULTI_PUT) {
        size_t left = sh_reader_left(&multi->r);
        multi->count = left / op_bytes(form);
        (void)sh_reader_take(&multi->r, left);
        return left % op_bytes(form) == 0 && multi->count <= SH_CHUNKS_MANY_MAX;
    }
    for (unsigned i = 0; i < LOOKS_AT_ONCE && sh_reader_left(&multi->r) > 0; i++) {
        sh_get64(&multi->r);
        (void)sh_reader_take(&multi->r, sh_get32(&multi->r));
        multi->count++;
        if (!sh_reader_ok(&multi->r))
            return false;
    }
    return multi->count <= SH_CHUNKS_MANY_MAX;
}

/* All sizes are known: makes room for the answer. */
static enum shoal_err work_begin(struct multi *multi, struct sh_msg_in *in)
{
    enum shoal_err err = sh_bulk_open(in->msg, multi->bytes, &multi->bulk);
    if (err != SHOAL_OK)
        return err;
    multi->w = sh_bulk_writer(multi->bulk);
    multi->phase = WORK;
    multi->done = 0;
    return SHOAL_OK;
}

/* All operations are counted. */
static enum shoal_err size_begin(struct multi *multi, struct sh_msg_in *in)
{
    bool is_get = in->type == SH_CHUNKS_MULTI_GET;
    multi->bytes = multi->count * (is_get ? SH_CHUNKS_GET_HEAD_BYTES : 2);
    if (!is_get)
        return work_begin(multi, in);
    multi->sizes = malloc((multi->count ? multi->count : 1) * sizeof *multi->sizes);
    multi->r = in->payload;
    multi->phase = SIZE;
    return multi->sizes ? SHOAL_OK : SHOAL_ENOMEM;
}

/* Does a piece. True: it is over, and was answered. */
static bool piece(struct sh_chunks *chunks, struct multi *multi, struct sh_msg_in *in)
{
    enum shoal_err err = SHOAL_OK;
    const char *text = NULL;
    sh_msg_type form = sh_chunks_form(in->type);
    if (multi->phase == COUNT) {
        if (!count_some(multi, form)) {
            err = SHOAL_EPROTO;
            text = shape_of(form);
        } else if (sh_reader_left(&multi->r) == 0) {
            err = size_begin(multi, in);
        }
    } else if (multi->phase == SIZE) {
        size_some(chunks, multi);
        if (multi->done == multi->count) {
            sh_chunks_looked(chunks);
            err = work_begin(multi, in);
        }
        if (err == SHOAL_ETOOBIG)
            text = "the answer would be too large: ask for fewer chunks at once";
    } else {
        work_some(chunks, multi, in);
        if (multi->is_refused)
            return true;
        if (multi->done < multi->count || multi->is_large)
            return false;
        sh_answer_bulk(in, multi->held, multi->bulk, multi->bytes, form == SH_CHUNKS_MULTI_GET);
        multi->bulk = NULL;
        multi->held = NULL;
        return true;
    }
    if (err != SHOAL_OK)
        sh_chunks_refuse(in, err, text);
    return err != SHOAL_OK;
}

static struct multi *multi_begin(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    struct sh_held *held = NULL;
    if (in->type != SH_CHUNKS_MULTI_GET && !sh_held_begin(chunks->helds, in, &held))
        return NULL;
    struct multi *multi = calloc(1, sizeof *multi);
    if (!multi) {
        sh_answer_error(in, held, SHOAL_ENOMEM, NULL);
        return NULL;
    }
    multi->entered = sh_holdings_enter(&chunks->holdings);
    multi->r = in->payload;
    multi->held = held;
    return multi;
}

static void multi_end(struct sh_chunks *chunks, struct multi *multi)
{
    if (multi->rewriting)
        (void)!sh_store_rewriting_end(multi->rewriting);
    sh_holdings_leave(&chunks->holdings, multi->entered);
    sh_held_drop(multi->held);
    sh_bulk_drop(multi->bulk);
    free(multi->sizes);
    free(multi);
}

static void on_multi(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct multi *multi = in->state ? in->state : multi_begin(chunks, in);
    bool is_over = !multi || in->is_ending;
    for (unsigned i = 0; !is_over && i < PIECES_MOST; i++) {
        is_over = piece(chunks, multi, in);
        if (sh_step_spent())
            break;
    }
    in->goes_on = !is_over;
    in->state = is_over ? NULL : multi;
    if (is_over && multi)
        multi_end(chunks, multi);
}

void sh_multi_register(struct sh_chunks *chunks)
{
    static const sh_msg_type forms[] = {SH_CHUNKS_MULTI_PUT, SH_CHUNKS_MULTI_REMOVE,
                                        SH_CHUNKS_MULTI_RESIZE};
    sh_msg_handler_set(chunks->msg, SH_CHUNKS_MULTI_GET, SH_MSG_POOLED, on_multi, chunks);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        sh_chunks_changes_set(chunks, forms[i], SH_MSG_POOLED, on_multi, NULL);
}
