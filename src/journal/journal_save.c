/* Snapshots of the journal's own, taken while it is written, so that old segments can go. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/crew.h"
#include "journal/journal_int.h"

#define AGAIN_NS UINT64_C(10000000)
#define BYTES_A_BATCH (32u << 10)
#define PIECES_A_BATCH 32

uint64_t sh_journal_needed(const struct sh_journal *journal)
{
    uint64_t needed = journal->segment;
    for (unsigned i = 0; i < journal->streams_count; i++) {
        const struct sh_journal_stream_log *log = &journal->streams[i];
        if (log->segment && log->segment < needed)
            needed = log->segment;
    }
    return needed;
}

static uint64_t bytes_of(const struct sh_journal *journal, enum sh_journal_slot lowest)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < SH_JOURNAL_SLOTS; i++)
        bytes += journal->slots[i].kind >= lowest ? journal->segment_bytes : 0;
    return bytes;
}

uint64_t sh_journal_bytes(const struct sh_journal *journal)
{
    return bytes_of(journal, SH_JOURNAL_FREE_FILE);
}

bool sh_journal_is_saving(const struct sh_journal *journal)
{
    return journal->saving >= 0;
}

struct sh_journal_counts sh_journal_counts(const struct sh_journal *journal)
{
    struct sh_journal_counts counts = journal->counts;
    if (journal->saving >= 0)
        counts.saving_ns += journal->now_ns - journal->begun_ns;
    return counts;
}

uint64_t sh_journal_allowed(const struct sh_journal *journal)
{
    uint64_t snapshots = 0;
    for (unsigned i = 0; i < journal->streams_count; i++)
        snapshots += journal->streams[i].bytes;
    return journal->bytes_kept + 2 * snapshots;
}

/* Whether the segments take more than they are to. */
static bool is_large(const struct sh_journal *journal)
{
    return bytes_of(journal, SH_JOURNAL_SEGMENT) > sh_journal_allowed(journal);
}

/* The stream whose snapshot is to begin; -1: none. It is the one whose last snapshot is the oldest, so
 * that a segment can go; while that one is being installed from elsewhere none can, whatever others
 * write, and it would only be more. */
static int oldest(const struct sh_journal *journal)
{
    int found = -1;
    for (unsigned i = 0; i < journal->streams_count; i++) {
        const struct sh_journal_stream_log *log = &journal->streams[i];
        if (log->is_there && log->segment && log->segment < journal->segment && !log->is_saved &&
            (found < 0 || log->segment < journal->streams[found].segment))
            found = (int)i;
    }
    bool is_due = found >= 0 && !journal->streams[found].is_installing && is_large(journal);
    return is_due ? found : -1;
}

bool sh_journal_save_is_over(const struct sh_journal *journal)
{
    return journal->saving < 0 && sh_journal_needed(journal) > journal->needed &&
           is_large(journal) && oldest(journal) < 0;
}

/* No snapshot is being written any more. */
static void saving_end(struct sh_journal *journal)
{
    SH_ASSERT(journal->saving >= 0);
    journal->saving = -1;
    journal->counts.saving_ns += journal->now_ns - journal->begun_ns;
}

static void begin(struct sh_journal *journal, uint64_t now_ns, unsigned stream)
{
    struct sh_journal_stream_log *log = &journal->streams[stream];
    uint64_t index, term;
    if (!log->machine.snapshot_begin(log->machine.arg, &index, &term)) {
        journal->save_ns = now_ns + AGAIN_NS;
        return;
    }
    journal->saving = (int)stream;
    journal->begun_ns = journal->now_ns;
    log->bytes_now = 0;
    struct sh_writer w = sh_journal_record(journal, SH_JOURNAL_BEGIN, stream, 17);
    sh_put64(&w, index);
    sh_put64(&w, term);
    sh_put8(&w, 0);
    if (log->state_size) {
        w = sh_journal_record(journal, SH_JOURNAL_STATE, stream, log->state_size);
        sh_put_raw(&w, sh_bytes_make(log->state, log->state_size));
    }
    journal->is_repeating = true;
    log->machine.snapshot_entries(log->machine.arg);
    journal->is_repeating = false;
}

/* Writes the next piece, or the end; returns the bytes of it. */
static size_t piece(struct sh_journal *journal)
{
    unsigned stream = (unsigned)journal->saving;
    struct sh_journal_stream_log *log = &journal->streams[stream];
    size_t size =
        log->machine.snapshot_next(log->machine.arg, journal->piece, journal->piece_bytes);
    SH_ASSERT(size <= journal->piece_bytes);
    if (size) {
        struct sh_writer w = sh_journal_record(journal, SH_JOURNAL_PIECE, stream, size);
        sh_put_raw(&w, sh_bytes_make(journal->piece, size));
        log->bytes_now += size;
        journal->counts.snapshot_bytes += size;
        return size;
    }
    struct sh_writer w = sh_journal_record(journal, SH_JOURNAL_END, stream, 1);
    sh_put8(&w, 0);
    journal->counts.snapshots++;
    saving_end(journal);
    log->is_saved = true;
    log->machine.snapshot_end(log->machine.arg, true);
    return 0;
}

void sh_journal_save_give_up(struct sh_journal *journal)
{
    if (journal->saving < 0)
        return;
    struct sh_journal_stream_log *log = &journal->streams[journal->saving];
    saving_end(journal);
    log->machine.snapshot_end(log->machine.arg, false);
}

uint64_t sh_journal_save_due_ns(const struct sh_journal *journal)
{
    bool is_due = journal->saving >= 0 || oldest(journal) >= 0 || sh_journal_save_is_over(journal);
    return is_due ? journal->save_ns : SH_NEVER;
}

void sh_journal_save_step(struct sh_journal *journal, uint64_t now_ns)
{
    /* So much in each batch, behind what waits already. */
    if (journal->chunks && journal->chunks->next)
        return;
    size_t bytes = 0;
    for (unsigned i = 0; i < PIECES_A_BATCH && bytes < BYTES_A_BATCH; i++) {
        int stream = journal->saving >= 0 || now_ns < journal->save_ns ? -1 : oldest(journal);
        if (stream >= 0)
            begin(journal, now_ns, (unsigned)stream);
        if (journal->saving < 0)
            return;
        bytes += piece(journal);
    }
}
