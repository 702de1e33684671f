/* The journal's records, and the chunks that they are gathered in. */
#include "journal/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "journal/journal_int.h"

#define SEGMENT_BYTES (8u << 20)
#define BYTES_KEPT (32u << 20)
#define REMOVING "journal.removing"

/* --- Records --------------------------------------------------------------------------------- */

static void chunk_free(struct sh_journal_chunk *chunk)
{
    if (!chunk)
        return;
    free(chunk->bytes);
    free(chunk);
}

static void chunks_free(struct sh_journal_chunk *chunks)
{
    while (chunks) {
        struct sh_journal_chunk *chunk = chunks;
        chunks = chunk->next;
        chunk_free(chunk);
    }
}

/* NULL: out of memory. */
static struct sh_journal_chunk *chunk_make(size_t room)
{
    struct sh_journal_chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return NULL;
    chunk->room = room;
    chunk->bytes =
        malloc(SH_JOURNAL_BLOCK + (size_t)sh_journal_padded(SH_JOURNAL_HEAD_BYTES + room));
    if (chunk->bytes)
        return chunk;
    free(chunk);
    return NULL;
}

static void chunk_add(struct sh_journal *journal, struct sh_journal_chunk *chunk)
{
    chunk->next = NULL;
    *journal->chunks_end = chunk;
    journal->chunks_end = &chunk->next;
    journal->tail = chunk;
    journal->chunks_count++;
}

/* The chunk that takes a record of that size: the last one, if it is not being written and has
 * room. */
static struct sh_journal_chunk *chunk_for(struct sh_journal *journal, size_t size)
{
    struct sh_journal_chunk *chunk = journal->tail;
    if (chunk && !chunk->is_written && chunk->room - chunk->size >= size)
        return chunk;
    chunk = journal->unused;
    if (chunk)
        journal->unused = chunk->next;
    else
        chunk = chunk_make(journal->chunk_bytes);
    SH_ASSERT(chunk); /* callers that heed is_full never need more than there are */
    SH_ASSERT(chunk->room - chunk->size >= size); /* a segment takes the longest record */
    chunk_add(journal, chunk);
    return chunk;
}

void sh_journal_chunk_begin(struct sh_journal *journal)
{
    if (!journal->chunks)
        chunk_for(journal, 0)->last = journal->last;
}

enum shoal_err sh_journal_chunk_again(struct sh_journal *journal, struct sh_bytes records)
{
    SH_ASSERT(!journal->chunks);
    struct sh_journal_chunk *chunk = chunk_make(records.size);
    if (!chunk)
        return SHOAL_ENOMEM;
    if (records.size)
        memcpy(chunk->bytes + SH_JOURNAL_BLOCK + SH_JOURNAL_HEAD_BYTES, records.at, records.size);
    chunk->size = records.size;
    chunk_add(journal, chunk);
    return SHOAL_OK;
}

static void mark(struct sh_journal_mark *mark, enum sh_journal_kind kind)
{
    switch (kind) {
    case SH_JOURNAL_START:
        mark->need = SH_NEED_THIS;
        break;
    case SH_JOURNAL_BEGIN:
        mark->begins = true;
        break;
    case SH_JOURNAL_END:
        mark->need = mark->begins ? SH_NEED_THIS : SH_NEED_BEGINNING;
        mark->ends = true;
        break;
    case SH_JOURNAL_DROP: /* begun again behind it, the stream is there */
        mark->need = SH_NEED_NONE;
        break;
    default:
        break;
    }
}

struct sh_writer sh_journal_record(struct sh_journal *journal, enum sh_journal_kind kind,
                                   unsigned stream, size_t size)
{
    SH_ASSERT(stream < journal->streams_count);
    size_t all = SH_JOURNAL_RECORD_BYTES + size;
    struct sh_journal_chunk *chunk = chunk_for(journal, all);
    struct sh_writer w =
        sh_writer_make(chunk->bytes + SH_JOURNAL_BLOCK + SH_JOURNAL_HEAD_BYTES + chunk->size, all);
    sh_put8(&w, (uint8_t)kind);
    sh_put8(&w, (uint8_t)stream);
    sh_put16(&w, 0);
    sh_put32(&w, (uint32_t)size);
    chunk->size += all;
    chunk->last = ++journal->last;
    mark(&chunk->marks[stream], kind);
    return w;
}

/* What is said of a stream that is not there begins it. */
static struct sh_journal_stream_log *log_of(struct sh_journal *journal, unsigned stream)
{
    SH_ASSERT(stream < journal->streams_count);
    struct sh_journal_stream_log *log = &journal->streams[stream];
    if (!log->is_there) {
        (void)sh_journal_record(journal, SH_JOURNAL_START, stream, 0);
        log->is_there = true;
    }
    return log;
}

static void state_put(struct sh_journal *journal, unsigned stream)
{
    const struct sh_journal_stream_log *log = &journal->streams[stream];
    if (!log->state_size)
        return;
    struct sh_writer w = sh_journal_record(journal, SH_JOURNAL_STATE, stream, log->state_size);
    sh_put_raw(&w, sh_bytes_make(log->state, log->state_size));
}

sh_lsn sh_journal_state_set(struct sh_journal *journal, unsigned stream, struct sh_bytes state)
{
    struct sh_journal_stream_log *log = log_of(journal, stream);
    SH_ASSERT(state.size && state.size <= SH_JOURNAL_STATE_BYTES_MAX);
    memcpy(log->state, state.at, state.size);
    log->state_size = state.size;
    state_put(journal, stream);
    return journal->last;
}

sh_lsn sh_journal_append(struct sh_journal *journal, unsigned stream, uint64_t index, uint64_t term,
                         uint8_t kind, struct sh_bytes bytes)
{
    (void)log_of(journal, stream);
    SH_ASSERT(index && bytes.size <= SH_JOURNAL_ENTRY_BYTES_MAX);
    SH_ASSERT(!journal->is_repeating || journal->saving == (int)stream);
    enum sh_journal_kind of = journal->is_repeating ? SH_JOURNAL_AGAIN : SH_JOURNAL_ENTRY;
    struct sh_writer w = sh_journal_record(journal, of, stream, 17 + bytes.size);
    sh_put64(&w, index);
    sh_put64(&w, term);
    sh_put8(&w, kind);
    sh_put_raw(&w, bytes);
    SH_ASSERT(sh_writer_ok(&w));
    return journal->last;
}

void sh_journal_install_begin(struct sh_journal *journal, unsigned stream, uint64_t index,
                              uint64_t term)
{
    struct sh_journal_stream_log *log = log_of(journal, stream);
    if (journal->saving == (int)stream)
        sh_journal_save_give_up(journal);
    log->is_installing = true;
    log->bytes_now = 0;
    struct sh_writer w = sh_journal_record(journal, SH_JOURNAL_BEGIN, stream, 17);
    sh_put64(&w, index);
    sh_put64(&w, term);
    sh_put8(&w, 1);
}

void sh_journal_install_piece(struct sh_journal *journal, unsigned stream, struct sh_bytes piece)
{
    struct sh_journal_stream_log *log = &journal->streams[stream];
    SH_ASSERT(log->is_installing && piece.size <= SH_JOURNAL_PIECE_BYTES_MAX);
    struct sh_writer w = sh_journal_record(journal, SH_JOURNAL_PIECE, stream, piece.size);
    sh_put_raw(&w, piece);
    log->bytes_now += piece.size;
}

sh_lsn sh_journal_install_end(struct sh_journal *journal, unsigned stream)
{
    struct sh_journal_stream_log *log = &journal->streams[stream];
    SH_ASSERT(log->is_installing);
    log->is_installing = false;
    struct sh_writer w = sh_journal_record(journal, SH_JOURNAL_END, stream, 1);
    sh_put8(&w, 1);
    state_put(journal, stream); /* a reader that knows nothing of the stream begins here */
    return journal->last;
}

void sh_journal_install_cancel(struct sh_journal *journal, unsigned stream)
{
    SH_ASSERT(stream < journal->streams_count);
    journal->streams[stream].is_installing = false;
    journal->is_changed = true;
}

sh_lsn sh_journal_drop(struct sh_journal *journal, unsigned stream)
{
    SH_ASSERT(stream < journal->streams_count);
    struct sh_journal_stream_log *log = &journal->streams[stream];
    if (!log->is_there)
        return journal->last;
    if (journal->saving == (int)stream)
        sh_journal_save_give_up(journal);
    (void)sh_journal_record(journal, SH_JOURNAL_DROP, stream, 0);
    log->is_there = log->is_installing = log->is_saved = false;
    log->state_size = 0;
    log->bytes = log->bytes_now = 0;
    return journal->last;
}

sh_lsn sh_journal_last(const struct sh_journal *journal)
{
    return journal->last;
}

sh_lsn sh_journal_synced(const struct sh_journal *journal)
{
    return journal->synced;
}

bool sh_journal_is_full(const struct sh_journal *journal)
{
    return journal->chunks_count >= SH_JOURNAL_CHUNKS_FULL;
}

enum shoal_err sh_journal_trouble(const struct sh_journal *journal)
{
    return journal->trouble;
}

/* What the records of a chunk that is durable mean for the segments that streams need. */
static void marks_take(struct sh_journal *journal, const struct sh_journal_chunk *chunk)
{
    for (unsigned i = 0; i < journal->streams_count; i++) {
        const struct sh_journal_mark *mark = &chunk->marks[i];
        struct sh_journal_stream_log *log = &journal->streams[i];
        const uint64_t needs[] = {[SH_NEED_SAME] = log->segment,
                                  [SH_NEED_NONE] = 0,
                                  [SH_NEED_THIS] = journal->segment,
                                  [SH_NEED_BEGINNING] = log->beginning};
        log->segment = needs[mark->need];
        if (mark->begins)
            log->beginning = journal->segment;
        if (mark->ends) {
            log->bytes = log->bytes_now;
            log->is_saved = false;
        }
    }
}

void sh_journal_chunk_end(struct sh_journal *journal)
{
    struct sh_journal_chunk *chunk = journal->chunks;
    SH_ASSERT(chunk && chunk->is_written);
    marks_take(journal, chunk);
    if (chunk->last)
        journal->synced = chunk->last;
    journal->chunks = chunk->next;
    journal->chunks_count--;
    if (!chunk->next) {
        journal->chunks_end = &journal->chunks;
        journal->tail = NULL;
    }
    if (chunk->room != journal->chunk_bytes || journal->chunks_count >= SH_JOURNAL_CHUNKS) {
        chunk_free(chunk);
        return;
    }
    memset(chunk->marks, 0, sizeof chunk->marks);
    chunk->size = 0;
    chunk->is_written = false;
    chunk->last = 0;
    chunk->next = journal->unused;
    journal->unused = chunk;
}

/* --- Life ------------------------------------------------------------------------------------ */

static const char *hint(enum shoal_err err)
{
    switch (err) {
    case SHOAL_ECLUSTER:
        return "the journal in data_dir is another node's: give each node a folder of its own";
    case SHOAL_EVERSION:
        return "the journal in data_dir is of a newer shoal: start that version";
    case SHOAL_ENOSPC:
        return "no room for the journal in data_dir: free some, or choose another folder";
    case SHOAL_EIO:
        return "the journal in data_dir can't be read or written: see to the disk, the folder's "
               "permissions, and whether it is read-only";
    case SHOAL_ENOMEM:
        return "no memory to read the journal in data_dir: give the process more";
    default:
        return "the journal in data_dir is unusable: restore it, or remove the files journal.*; "
               "then a superpeer that is started with the others' addresses catches up from them, "
               "and a store in a process has lost its names";
    }
}

/* Syncs the files' names. */
static enum shoal_err names_sync(const struct sh_env *env)
{
    struct sh_disk_op sync = {.kind = SH_DISK_SYNC_DIR};
    return sh_disk_do(env->disk, &sync);
}

/* Writes the batch that was read last once more, or an empty one, in a new segment: the disk is
 * known to work then, and what was read to be there. */
static enum shoal_err settle(struct sh_journal *journal)
{
    sh_journal_chunk_begin(journal);
    while (journal->chunks && !journal->trouble) {
        if (!sh_journal_step(journal, 0))
            (void)sh_disk_poll(journal->env.disk, true);
    }
    return journal->trouble;
}

static enum shoal_err make(const struct sh_journal_config *config, struct sh_journal **journal_out)
{
    struct sh_journal *journal = calloc(1, sizeof *journal);
    if (!journal)
        return SHOAL_ENOMEM;
    journal->env = config->env;
    journal->segment_bytes = config->segment_bytes ? config->segment_bytes : SEGMENT_BYTES;
    journal->bytes_kept = config->bytes_kept ? config->bytes_kept : BYTES_KEPT;
    journal->piece_bytes = config->piece_bytes ? config->piece_bytes : SH_JOURNAL_PIECE_BYTES_MAX;
    journal->chunk_bytes =
        (size_t)journal->segment_bytes - SH_JOURNAL_BLOCK - SH_JOURNAL_HEAD_BYTES;
    if (journal->chunk_bytes > SH_JOURNAL_CHUNK_BYTES)
        journal->chunk_bytes = SH_JOURNAL_CHUNK_BYTES;
    journal->saving = -1;
    journal->chunks_end = &journal->chunks;
    journal->label_size = config->label.size;
    memcpy(journal->label, config->label.at, config->label.size);
    journal->streams_count = config->streams_count;
    for (unsigned i = 0; i < config->streams_count; i++)
        journal->streams[i].machine = sh_journal_stream_whole(config->streams[i]);
    journal->zeros = calloc(1, SH_JOURNAL_ZEROS_BYTES);
    journal->piece = malloc(journal->piece_bytes);
    bool is_short = !journal->zeros || !journal->piece;
    for (unsigned i = 0; i < SH_JOURNAL_CHUNKS && !is_short; i++) {
        struct sh_journal_chunk *chunk = chunk_make(journal->chunk_bytes);
        is_short = !chunk;
        if (is_short)
            break;
        chunk->next = journal->unused;
        journal->unused = chunk;
    }
    if (is_short) {
        sh_journal_close(journal);
        return SHOAL_ENOMEM;
    }
    *journal_out = journal;
    return SHOAL_OK;
}

enum shoal_err sh_journal_open(const struct sh_journal_config *config,
                               struct sh_journal **journal_out)
{
    SH_ASSERT(config->label.size && config->label.size <= SH_JOURNAL_LABEL_BYTES_MAX);
    SH_ASSERT(config->streams_count && config->streams_count <= SH_JOURNAL_STREAMS_MAX);
    SH_ASSERT(config->piece_bytes <= SH_JOURNAL_PIECE_BYTES_MAX);
    SH_ASSERT(config->segment_bytes % SH_JOURNAL_BLOCK == 0);
    struct sh_journal *journal;
    enum shoal_err err = make(config, &journal);
    if (err)
        return err;
    sh_journal_removal_finish(&journal->env);
    err = sh_journal_load(journal);
    if (!err && !journal->id)
        journal->id = sh_random64(&journal->env.random) | 1;
    /* The process before may have ended between making a file and syncing its name. */
    if (!err)
        err = names_sync(&journal->env);
    if (!err)
        err = settle(journal);
    if (err) {
        SH_ERROR("journal", hint(err), SH_ERR(err));
        sh_journal_close(journal);
        return err;
    }
    journal->is_ready = journal->is_changed = true;
    *journal_out = journal;
    return SHOAL_OK;
}

void sh_journal_close(struct sh_journal *journal)
{
    if (!journal)
        return;
    sh_journal_save_give_up(journal);
    sh_journal_op_await(journal, &journal->op);
    sh_journal_spare_close(journal);
    if (journal->is_open)
        journal->env.disk->ops->close(journal->env.disk, journal->file);
    chunks_free(journal->chunks);
    chunks_free(journal->unused);
    free(journal->zeros);
    free(journal->piece);
    free(journal);
}

/* What a slot's file says of whose journal it is. ENONAME: nothing, as it was never written whole. */
static enum shoal_err slot_peek(const struct sh_env *env, unsigned slot, uint8_t *label_out,
                                size_t room, size_t *size_out)
{
    uint8_t *bytes;
    size_t size;
    struct sh_journal_header header;
    enum shoal_err err = sh_journal_read(env->disk, slot, SH_JOURNAL_BLOCK, &bytes, &size);
    if (err)
        return err;
    err = sh_journal_header_get(sh_bytes_make(bytes, size), &header);
    if (!err && header.label.size > room)
        err = SHOAL_ECORRUPT;
    if (!err) {
        memcpy(label_out, header.label.at, header.label.size);
        *size_out = header.label.size;
    }
    free(bytes);
    if (err != SHOAL_ECORRUPT)
        return err;
    err = sh_journal_read(env->disk, slot, SIZE_MAX, &bytes, &size);
    if (err)
        return err;
    bool is_told = sh_journal_has_batches(sh_bytes_make(bytes, size), 0, SH_JOURNAL_TOLD);
    free(bytes);
    return is_told ? SHOAL_ECORRUPT : SHOAL_ENONAME;
}

enum shoal_err sh_journal_peek(const struct sh_env *env, uint8_t *label_out, size_t room,
                               size_t *size_out)
{
    bool is_damaged = false;
    sh_journal_removal_finish(env);
    for (unsigned slot = 0; slot < SH_JOURNAL_SLOTS; slot++) {
        enum shoal_err err = slot_peek(env, slot, label_out, room, size_out);
        is_damaged |= err == SHOAL_ECORRUPT;
        if (err != SHOAL_ENONAME && err != SHOAL_ECORRUPT)
            return err;
    }
    return is_damaged ? SHOAL_ECORRUPT : SHOAL_ENONAME;
}

/* Removes all files; a file that says so first, so that no half of a journal is ever taken for a
 * whole one. */
static enum shoal_err remove_all(const struct sh_env *env)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned slot = 0; !err && slot < SH_JOURNAL_SLOTS; slot++) {
        char name[SH_JOURNAL_NAME_BYTES];
        sh_journal_name(name, slot);
        err = env->disk->ops->remove(env->disk, name);
        err = err == SHOAL_ENONAME ? SHOAL_OK : err;
    }
    if (!err)
        err = names_sync(env);
    if (!err)
        err = env->disk->ops->remove(env->disk, REMOVING);
    return err ? err : names_sync(env);
}

static void removed_note(enum shoal_err err)
{
    if (err)
        SH_ERROR("journal",
                 "the journal in data_dir can't be removed: see to the disk and the folder's "
                 "permissions, and remove the files journal.* by hand before the next start",
                 SH_ERR(err));
}

void sh_journal_removal_finish(const struct sh_env *env)
{
    int file;
    if (sh_disk_open(env->disk, REMOVING, false, &file))
        return;
    env->disk->ops->close(env->disk, file);
    enum shoal_err err = remove_all(env);
    removed_note(err);
}

void sh_journal_remove(const struct sh_env *env)
{
    int file;
    enum shoal_err err = sh_disk_open(env->disk, REMOVING, true, &file);
    if (!err) {
        env->disk->ops->close(env->disk, file);
        err = names_sync(env);
    }
    if (!err)
        err = remove_all(env);
    removed_note(err);
}
