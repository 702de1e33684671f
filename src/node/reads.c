/* The handlers of what reads one chunk, or a part of it. What is short is copied once, into the
 * stack; more is read where it is sent from; what is large, in pieces (msg/msg.h): others may write
 * to it meanwhile, and the answer is what it was at one moment. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/steptime.h"
#include "msg/bulk.h"
#include "node/chunks_int.h"

/* Pieces of a large chunk that are read in one step where no step is timed. */
#define PIECES_MOST 16

/* --- In pieces ----------------------------------------------------------------------------- */

/* A large answer on its way. */
struct read_job {
    unsigned entered;
    struct sh_store_reading reading;
    struct sh_bulk *bulk;
    uint8_t *head;
};

static void job_free(struct sh_chunks *chunks, struct read_job *job)
{
    sh_bulk_drop(job->bulk);
    sh_holdings_leave(&chunks->holdings, job->entered);
    free(job);
}

/* Begins to read into an answer that starts with a head of so many bytes. From now on no migration
 * copies the chunk. */
static void job_begin(struct sh_chunks *chunks, struct sh_msg_in *in, unsigned entered,
                      const struct sh_store_reading *reading, size_t head_bytes)
{
    struct read_job *job = malloc(sizeof *job);
    struct sh_bulk *bulk;
    enum shoal_err err =
        job ? sh_bulk_open(in->msg, head_bytes + reading->size, &bulk) : SHOAL_ENOMEM;
    if (err) {
        free(job);
        sh_holdings_leave(&chunks->holdings, entered);
        sh_chunks_refuse(in, err, NULL);
        in->goes_on = false;
        return;
    }
    *job = (struct read_job){.entered = entered, .reading = *reading, .bulk = bulk};
    job->head = sh_writer_take(sh_bulk_writer(bulk), head_bytes);
    job->reading.into = sh_writer_take(sh_bulk_writer(bulk), reading->size);
    in->state = job;
}

/* Reads some pieces. True: it is over, with *err_out. */
static bool job_read(struct sh_chunks *chunks, struct read_job *job, enum shoal_err *err_out)
{
    for (unsigned i = 0; i < PIECES_MOST; i++) {
        if (sh_store_reading_step(chunks->store, &job->reading, err_out))
            return true;
        if (sh_step_spent())
            break;
    }
    return false;
}

/* All is read, behind a head of so many bytes. */
static void job_answer(struct sh_chunks *chunks, const struct sh_msg_in *in, struct read_job *job,
                       size_t head_bytes)
{
    struct sh_held *held = NULL;
    if (!sh_held_saw(chunks->helds, in, job->reading.cid, &held))
        return;
    sh_answer_bulk(in, held, job->bulk, head_bytes + job->reading.size, true);
    job->bulk = NULL;
}

/* --- All of a chunk ------------------------------------------------------------------------ */

enum shoal_err sh_chunks_got_err(enum shoal_err err, bool is_its_size)
{
    return err == SHOAL_ESIZE || (err == SHOAL_OK && !is_its_size) ? SHOAL_EBUSY : err;
}

/* Writes a GET answer's head and, if the chunk was read, its bytes. */
static void put_got(struct sh_writer *w, enum shoal_err err, uint32_t size, const uint8_t *bytes)
{
    sh_put16(w, (uint16_t)err);
    sh_put32(w, size);
    if (err == SHOAL_OK)
        sh_put_raw(w, sh_bytes_make(bytes, size));
}

/* Where something is backed up, what is read can't go straight into the ring: whether its answer has to wait is known only
 * then. NULL: out of memory, and the asker knows. */
static uint8_t *medium_take(struct sh_chunks *chunks, const struct sh_msg_in *in)
{
    if (!chunks->medium)
        chunks->medium = malloc(SH_STORE_PIECE_BYTES);
    if (!chunks->medium)
        sh_answer_error(in, NULL, SHOAL_ENOMEM, NULL);
    return chunks->medium;
}

/* Answers a GET whose bytes, if there are any, are at hand. */
static void get_answer(struct sh_chunks *chunks, const struct sh_msg_in *in, sh_lid lid,
                       enum shoal_err err, uint32_t size, const uint8_t *bytes)
{
    struct sh_held *held = NULL;
    struct sh_answer answer;
    if (!sh_held_saw(chunks->helds, in, lid, &held) ||
        !sh_answer_begin(in, held, SH_CHUNKS_GET_HEAD_BYTES + (err == SHOAL_OK ? size : 0),
                         &answer))
        return;
    put_got(answer.w, err, size, bytes);
    sh_answer_end(in, &answer);
}

/* Reads into memory of the step's, which has room for whatever is not read in pieces, and answers then. Others may have resized the chunk since
 * it was looked at: the answer is of what is read now, or, if that is large, comes from a turn of its own. */
static void get_medium_backed(struct sh_chunks *chunks, struct sh_msg_in *in, sh_lid lid,
                              uint32_t room)
{
    uint8_t *bytes = medium_take(chunks, in);
    uint32_t size = 0;
    if (!bytes)
        return;
    enum shoal_err err = sh_store_get(chunks->store, lid, bytes, SH_STORE_PIECE_BYTES, &size);
    if (err == SHOAL_OK && size > room)
        err = SHOAL_ESIZE;
    in->goes_on = err == SHOAL_ESIZE && size <= room;
    if (!in->goes_on)
        get_answer(chunks, in, lid, err, size, bytes);
}

/* Answers a GET of a chunk too large for the stack: reads it where it is sent from. The answer's size is fixed by then: of a chunk that was
 * resized in between the asker hears EBUSY, with padding, and asks again. */
static void get_medium(struct sh_chunks *chunks, struct sh_msg_in *in, sh_lid lid, uint32_t size,
                       uint32_t room)
{
    struct sh_answer answer;
    sh_step_long();
    sh_chunks_looked(chunks);
    if (sh_backup_is_on(chunks->backup)) {
        get_medium_backed(chunks, in, lid, room);
        return;
    }
    if (!sh_answer_begin(in, NULL, SH_CHUNKS_GET_HEAD_BYTES + (size_t)size, &answer))
        return;
    uint8_t *head = sh_writer_take(answer.w, SH_CHUNKS_GET_HEAD_BYTES);
    uint8_t *bytes = sh_writer_take(answer.w, size);
    SH_ASSERT(head && bytes);
    uint32_t got = 0;
    enum shoal_err err = sh_store_get(chunks->store, lid, bytes, size, &got);
    err = sh_chunks_got_err(err, got == size);
    if (err != SHOAL_OK)
        memset(bytes, 0, size);
    sh_store16(head, (uint16_t)err);
    sh_store32(head + 2, size);
    sh_answer_end(in, &answer);
}

/* Does a piece of a GET, and answers after the last. A chunk of another size by now is read anew.
 */
static void get_go_on(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    struct read_job *job = in->state;
    enum shoal_err err = SHOAL_OK;
    if (!in->is_ending && !job_read(chunks, job, &err))
        return;
    in->state = NULL;
    in->goes_on = in->is_ending ? false : err == SHOAL_ESIZE;
    if (!in->is_ending && err == SHOAL_OK) {
        sh_store16(job->head, SHOAL_OK);
        sh_store32(job->head + 2, job->reading.size);
        job_answer(chunks, in, job, SH_CHUNKS_GET_HEAD_BYTES);
    } else if (!in->goes_on && !in->is_ending) {
        get_answer(chunks, in, job->reading.cid, err, 0, NULL);
    }
    job_free(chunks, job);
}

/* Answers, or sees to it that the chunk is read in pieces. */
static void get_begin(struct sh_chunks *chunks, struct sh_msg_in *in, uint64_t cid, uint32_t room)
{
    uint8_t small[SH_CHUNKS_SMALL_BYTES];
    uint32_t size = 0;
    sh_lid lid = {0};
    bool was_long = in->goes_on;
    unsigned entered = was_long ? sh_holdings_enter(&chunks->holdings) : 0;
    enum shoal_err err = sh_chunks_own(chunks, cid, false, &lid);
    if (err == SHOAL_OK)
        err = sh_store_get(chunks->store, lid, small, sizeof small, &size);
    bool is_long = err == SHOAL_ESIZE && size <= room && size > SH_STORE_PIECE_BYTES;
    in->goes_on = is_long;
    if (is_long && was_long) {
        job_begin(chunks, in, entered,
                  &(struct sh_store_reading){.cid = lid, .size = size, .is_whole = true},
                  SH_CHUNKS_GET_HEAD_BYTES);
        return;
    }
    if (was_long)
        sh_holdings_leave(&chunks->holdings, entered);
    if (is_long)
        return;
    if (err == SHOAL_ENOTOWNER || err == SHOAL_EBUSY || err == SHOAL_ELOST) {
        sh_chunks_refuse(in, err, NULL);
        return;
    }
    if (err == SHOAL_ESIZE && size <= room) {
        get_medium(chunks, in, lid, size, room);
        return;
    }
    if (err == SHOAL_OK && size > room)
        err = SHOAL_ESIZE;
    get_answer(chunks, in, lid, err, size, small);
}

static void on_get(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct sh_reader r = in->payload;
    if (in->state) {
        get_go_on(chunks, in);
        return;
    }
    uint64_t cid = sh_get64(&r);
    uint32_t room = sh_get32(&r);
    if (in->is_ending)
        in->goes_on = false;
    else if (sh_reader_done(&r))
        get_begin(chunks, in, cid, room);
    else
        sh_chunks_refuse(in, SHOAL_EPROTO, "a get is 12 bytes");
}

/* --- A part -------------------------------------------------------------------------------- */

struct part {
    sh_lid lid;
    uint32_t offset;
    uint32_t size;
};

static void part_head_put(struct sh_writer *w, enum shoal_err err, uint32_t chunk_bytes,
                          uint32_t bytes)
{
    sh_put16(w, (uint16_t)err);
    sh_put32(w, err == SHOAL_ESIZE ? chunk_bytes : 0);
    sh_put32(w, bytes);
}

/* The error for a part that was not read; the chunk's size, if that is why. It may have been resized since: one that is long enough by now is to be asked
 * for again. */
static enum shoal_err part_err(struct sh_chunks *chunks, const struct part *part,
                               enum shoal_err err, uint32_t *chunk_bytes_out)
{
    if (err != SHOAL_ESIZE)
        return err;
    sh_chunks_looked(chunks);
    if (sh_store_size(chunks->store, part->lid, chunk_bytes_out) != SHOAL_OK)
        return SHOAL_ENOCHUNK;
    bool is_long_enough =
        part->offset <= *chunk_bytes_out && part->size <= *chunk_bytes_out - part->offset;
    return is_long_enough ? SHOAL_EBUSY : SHOAL_ESIZE;
}

static void part_answer(struct sh_chunks *chunks, const struct sh_msg_in *in, enum shoal_err err,
                        const struct part *part, const uint8_t *bytes)
{
    struct sh_held *held = NULL;
    struct sh_answer answer;
    uint32_t size = err == SHOAL_OK ? part->size : 0;
    uint32_t chunk_bytes = 0;
    err = part_err(chunks, part, err, &chunk_bytes);
    if (!sh_held_saw(chunks->helds, in, part->lid, &held) ||
        !sh_answer_begin(in, held, SH_CHUNKS_PART_HEAD_BYTES + (size_t)size, &answer))
        return;
    part_head_put(answer.w, err, chunk_bytes, size);
    sh_put_raw(answer.w, sh_bytes_make(bytes, size));
    sh_answer_end(in, &answer);
}

/* Reads a part that is too long for the stack where it is sent from. One whose chunk has become
 * too short since its size was looked at leaves padding. */
static void part_get_medium(struct sh_chunks *chunks, struct sh_msg_in *in, const struct part *part)
{
    struct sh_answer answer;
    if (sh_backup_is_on(chunks->backup)) {
        uint8_t *medium = medium_take(chunks, in);
        if (medium)
            part_answer(
                chunks, in,
                sh_store_get_part(chunks->store, part->lid, part->offset, medium, part->size), part,
                medium);
        return;
    }
    if (!sh_answer_begin(in, NULL, SH_CHUNKS_PART_HEAD_BYTES + (size_t)part->size, &answer))
        return;
    uint8_t *head = sh_writer_take(answer.w, SH_CHUNKS_PART_HEAD_BYTES);
    uint8_t *bytes = sh_writer_take(answer.w, part->size);
    SH_ASSERT(head && bytes);
    uint32_t now = 0;
    enum shoal_err err = part_err(
        chunks, part, sh_store_get_part(chunks->store, part->lid, part->offset, bytes, part->size),
        &now);
    if (err != SHOAL_OK)
        memset(bytes, 0, part->size);
    struct sh_writer w = sh_writer_make(head, SH_CHUNKS_PART_HEAD_BYTES);
    part_head_put(&w, err, now, part->size);
    sh_answer_end(in, &answer);
}

/* Does a piece of a GET_PART, and answers after the last. */
static void part_go_on(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    struct read_job *job = in->state;
    struct part part = {
        .lid = job->reading.cid, .offset = job->reading.offset, .size = job->reading.size};
    enum shoal_err err = SHOAL_OK;
    if (!in->is_ending && !job_read(chunks, job, &err))
        return;
    in->state = NULL;
    in->goes_on = false;
    if (!in->is_ending && err == SHOAL_OK) {
        struct sh_writer w = sh_writer_make(job->head, SH_CHUNKS_PART_HEAD_BYTES);
        part_head_put(&w, SHOAL_OK, 0, part.size);
        job_answer(chunks, in, job, SH_CHUNKS_PART_HEAD_BYTES);
    } else if (!in->is_ending) {
        part_answer(chunks, in, err, &part, NULL);
    }
    job_free(chunks, job);
}

/* Answers, or sees to it that the part is read in pieces. Room is taken in the answer only for what
 * is there. */
static void part_begin(struct sh_chunks *chunks, struct sh_msg_in *in, uint64_t cid,
                       struct part *part)
{
    uint8_t small[SH_CHUNKS_SMALL_BYTES];
    uint32_t size = 0;
    bool was_long = in->goes_on;
    unsigned entered = was_long ? sh_holdings_enter(&chunks->holdings) : 0;
    enum shoal_err err = sh_chunks_own(chunks, cid, false, &part->lid);
    bool is_here = err == SHOAL_OK;
    if (is_here && part->size <= sizeof small)
        err = sh_store_get_part(chunks->store, part->lid, part->offset, small, part->size);
    else if (is_here)
        err = sh_store_size(chunks->store, part->lid, &size);
    if (err == SHOAL_OK && part->size > sizeof small &&
        (part->offset > size || part->size > size - part->offset))
        err = SHOAL_ESIZE;
    in->goes_on = err == SHOAL_OK && part->size > SH_STORE_PIECE_BYTES;
    if (in->goes_on && was_long) {
        job_begin(chunks, in, entered,
                  &(struct sh_store_reading){
                      .cid = part->lid, .offset = part->offset, .size = part->size},
                  SH_CHUNKS_PART_HEAD_BYTES);
        return;
    }
    if (was_long)
        sh_holdings_leave(&chunks->holdings, entered);
    if (!is_here)
        sh_chunks_refuse(in, err, NULL);
    else if (err != SHOAL_OK || part->size <= sizeof small)
        part_answer(chunks, in, err, part, small);
    else if (!in->goes_on)
        part_get_medium(chunks, in, part);
}

static void on_get_part(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct sh_reader r = in->payload;
    struct part part;
    if (in->state) {
        part_go_on(chunks, in);
        return;
    }
    uint64_t cid = sh_get64(&r);
    part.offset = sh_get32(&r);
    part.size = sh_get32(&r);
    if (in->is_ending)
        in->goes_on = false;
    else if (sh_reader_done(&r))
        part_begin(chunks, in, cid, &part);
    else
        sh_chunks_refuse(in, SHOAL_EPROTO, NULL);
}

void sh_reads_register(struct sh_chunks *chunks)
{
    sh_msg_handler_set(chunks->msg, SH_CHUNKS_GET, SH_MSG_INLINE, on_get, chunks);
    sh_msg_prefetch_set(chunks->msg, SH_CHUNKS_GET, sh_chunks_prefetch);
    sh_msg_handler_set(chunks->msg, SH_CHUNKS_GET_PART, SH_MSG_INLINE, on_get_part, chunks);
    sh_msg_prefetch_set(chunks->msg, SH_CHUNKS_GET_PART, sh_chunks_prefetch);
}
