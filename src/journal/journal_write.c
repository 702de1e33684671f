/* How chunks become batches on the disk, one at a time. */
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "journal/journal_int.h"

#define RETRY_NS UINT64_C(1000000000)

static void file_close(struct sh_journal *journal)
{
    if (journal->is_open)
        journal->env.disk->ops->close(journal->env.disk, journal->file);
    journal->is_open = false;
}

/* Logs that the disk failed, and what to do. */
static void failure_log(struct sh_journal *journal, unsigned slot, enum shoal_err err)
{
    char name[SH_JOURNAL_NAME_BYTES];
    sh_journal_name(name, slot);
    if (journal->trouble != err)
        SH_ERROR("journal",
                 "the journal in data_dir can't be written; tried again every second: make room, "
                 "or see to the disk and whether it is read-only",
                 SH_TEXT("file", name), SH_ERR(err));
    journal->trouble = err;
}

/* A write has failed: nothing more is written to that file. What it holds already counts, but a
 * file in which nothing was synced can go. A second one that fails at once is not followed by a
 * third. */
static void fail(struct sh_journal *journal, uint64_t now_ns, enum shoal_err err)
{
    failure_log(journal, journal->slot, err);
    file_close(journal);
    journal->slots[journal->slot].is_spoilt = true;
    if (journal->offset)
        return;
    sh_journal_slot_remove(journal, journal->slot);
    journal->retry_ns = now_ns + RETRY_NS;
}

static uint64_t batch_bytes(const struct sh_journal_chunk *chunk)
{
    return sh_journal_padded(SH_JOURNAL_HEAD_BYTES + chunk->size);
}

/* Writes the first chunk; the first batch of a segment with the segment's header. */
static void batch_write(struct sh_journal *journal)
{
    struct sh_journal_chunk *chunk = journal->chunks;
    uint8_t *head = chunk->bytes + SH_JOURNAL_BLOCK;
    size_t size = SH_JOURNAL_HEAD_BYTES + chunk->size, padded = (size_t)batch_bytes(chunk);
    chunk->is_written = true;
    struct sh_writer w = sh_writer_make(head, SH_JOURNAL_HEAD_BYTES);
    sh_put64(&w, SH_JOURNAL_BATCH_MAGIC);
    sh_put64(&w, journal->id);
    sh_put64(&w, journal->batch);
    sh_put32(&w, (uint32_t)chunk->size);
    sh_put32(&w, 0);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    sh_store32(head + SH_JOURNAL_HEAD_BYTES - 4,
               sh_journal_crc(head, size, SH_JOURNAL_HEAD_BYTES - 4));
    memset(head + size, 0, padded - size);
    struct sh_bytes bytes = sh_bytes_make(head, padded);
    if (!journal->offset) {
        journal->needed = sh_journal_needed(journal);
        sh_journal_header_put(chunk->bytes, journal);
        bytes = sh_bytes_make(chunk->bytes, SH_JOURNAL_BLOCK + padded);
    }
    sh_journal_op_begin(journal, &journal->op, SH_DISK_WRITE_SYNC, journal->file, journal->offset,
                        bytes);
}

static void batch_end(struct sh_journal *journal, uint64_t now_ns, enum shoal_err err)
{
    journal->is_changed = true;
    if (err) {
        fail(journal, now_ns, err);
        return;
    }
    if (journal->trouble)
        SH_INFO("journal", "the journal is written again");
    journal->trouble = SHOAL_OK;
    if (!journal->offset)
        sh_journal_slots_release(journal);
    (void)sh_journal_slots_trim(journal);
    journal->offset += journal->op.op.size;
    journal->batch++;
    journal->counts.batches++;
    journal->counts.bytes += journal->op.op.size;
    sh_journal_chunk_end(journal);
}

/* Begins what is to be written next; whether there was anything. */
static bool begin(struct sh_journal *journal, uint64_t now_ns)
{
    bool is_quiet = !journal->chunks && !journal->is_changed && journal->saving < 0;
    if (is_quiet || now_ns < journal->retry_ns)
        return false;
    if (journal->is_ready && !journal->trouble)
        sh_journal_save_step(journal, now_ns);
    bool is_over = journal->is_ready && sh_journal_save_is_over(journal);
    if (is_over)
        sh_journal_chunk_begin(journal);
    const struct sh_journal_chunk *chunk = journal->chunks;
    if (!chunk) {
        /* Steps find nothing to do far more often than something: they need not look again. */
        bool has_trimmed = sh_journal_slots_trim(journal);
        journal->is_changed = has_trimmed || sh_journal_save_due_ns(journal) != SH_NEVER;
        return has_trimmed;
    }
    /* A segment of its own takes a batch of any size. */
    bool has_room =
        !journal->offset || journal->offset + batch_bytes(chunk) <= journal->segment_bytes;
    if (journal->is_open && (!has_room || is_over))
        file_close(journal);
    if (!journal->is_open && !sh_journal_spare_take(journal)) {
        if (journal->spare.phase == SH_SPARE_NONE && journal->spare.trouble)
            failure_log(journal, journal->spare.slot % SH_JOURNAL_SLOTS, journal->spare.trouble);
        return false;
    }
    batch_write(journal);
    return true;
}

unsigned sh_journal_step(struct sh_journal *journal, uint64_t now_ns)
{
    unsigned work = 0;
    enum shoal_err err;
    journal->now_ns = now_ns;
    if (journal->op.is_busy || journal->spare.op.is_busy)
        (void)sh_disk_poll(journal->env.disk, false);
    if (sh_journal_op_end(journal, &journal->op, &err)) {
        batch_end(journal, now_ns, err);
        work++;
    }
    work += sh_journal_spare_step(journal, now_ns);
    if (!journal->op.is_busy)
        work += begin(journal, now_ns);
    if (work && (journal->op.is_busy || journal->spare.op.is_busy))
        (void)sh_disk_poll(journal->env.disk, false); /* sends what was begun */
    return work;
}

uint64_t sh_journal_due_ns(const struct sh_journal *journal, uint64_t now_ns)
{
    uint64_t due_ns = sh_journal_spare_due_ns(journal, now_ns), writes_ns = SH_NEVER;
    if (journal->op.is_busy)
        writes_ns = journal->op.is_done ? now_ns : SH_NEVER; /* else the disk wakes */
    else if (journal->chunks)
        writes_ns = journal->is_open || journal->spare.phase == SH_SPARE_READY ? journal->retry_ns
                                                                               : SH_NEVER;
    else if (journal->saving >= 0 || journal->is_changed)
        writes_ns = sh_journal_save_due_ns(journal);
    return writes_ns < due_ns ? writes_ns : due_ns;
}
