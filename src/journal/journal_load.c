/* Opening: reads the segments in the order of their numbers, and gives the records to the streams.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "journal/journal_int.h"

/* A segment's file in memory; the number of its first batch as its header says, and as that batch
 * does (0: it can't be read, or was never there). */
struct loaded {
    unsigned slot;
    uint64_t number, begins, first;
    uint8_t *bytes;
    size_t size;
};

/* What is known of a stream while the segments are read.
 *
 *   nothing --BEGIN of its own--> its entries --END, or START--> all of it
 *
 * What comes before the first BEGIN is from before what is needed. A BEGIN may have been given up,
 * and a later one begin further back, as the process was another one: until an END each begins
 * anew. A snapshot that a process gave up may lack the last of its repeated entries (AGAIN), since the
 * process ended before it wrote them. The entries that the next process appended then leave a gap here, as
 * they follow on segments that are not needed any more. The reader skips that snapshot and all behind
 * it, until the next BEGIN. */
struct reading {
    bool is_known[SH_JOURNAL_STREAMS_MAX]; /* its entries */
    bool is_whole[SH_JOURNAL_STREAMS_MAX];
    /* A BEGIN was given up, whose END is still to come if no other is. */
    bool is_broken[SH_JOURNAL_STREAMS_MAX];
    uint8_t *last; /* the records of the batch that was read last; NULL: none was */
    size_t last_size;
};

static struct sh_bytes bytes_of(const struct loaded *loaded)
{
    return sh_bytes_make(loaded->bytes, loaded->size);
}

static enum shoal_err corrupt(unsigned slot, uint64_t at, const char *what)
{
    char name[SH_JOURNAL_NAME_BYTES];
    sh_journal_name(name, slot);
    SH_ERROR("journal", "the journal in data_dir is damaged", SH_TEXT("file", name),
             SH_U64("offset", at), SH_TEXT("what", what));
    return SHOAL_ECORRUPT;
}

/* --- Records --------------------------------------------------------------------------------- */

static enum shoal_err load_begin(struct sh_journal *journal, struct reading *reading,
                                 unsigned stream, uint64_t segment, struct sh_reader *r)
{
    struct sh_journal_stream_log *log = &journal->streams[stream];
    uint64_t index = sh_get64(r);
    uint64_t term = sh_get64(r);
    uint8_t is_install = sh_get8(r);
    if (!sh_reader_done(r) || is_install > 1)
        return SHOAL_ECORRUPT;
    bool is_first = !is_install && !reading->is_whole[stream];
    log->is_there = true;
    log->is_installing = is_install;
    log->beginning = segment;
    log->bytes_now = 0;
    reading->is_known[stream] |= is_first;
    return log->machine.load_snapshot_begin(log->machine.arg, index, term, is_first);
}

static enum shoal_err load_end(struct sh_journal *journal, struct reading *reading, unsigned stream,
                               struct sh_reader *r)
{
    struct sh_journal_stream_log *log = &journal->streams[stream];
    uint8_t is_install = sh_get8(r);
    if (!sh_reader_done(r) || is_install != log->is_installing)
        return SHOAL_ECORRUPT;
    log->segment = log->beginning;
    log->bytes = log->bytes_now;
    log->beginning = 0;
    reading->is_known[stream] = reading->is_whole[stream] = true;
    return log->machine.load_snapshot_end(log->machine.arg, is_install);
}

static void load_start(struct sh_journal_stream_log *log, uint64_t segment)
{
    log->is_there = true;
    log->segment = segment;
    log->beginning = log->bytes = 0;
    log->state_size = 0;
}

static enum shoal_err load_state(struct sh_journal_stream_log *log, struct sh_bytes state)
{
    if (state.size > sizeof log->state)
        return SHOAL_ECORRUPT;
    memcpy(log->state, state.at, state.size);
    log->state_size = state.size;
    return log->machine.load_state(log->machine.arg, state);
}

/* Loads an entry. A gap before it ends the snapshot that the stream had begun itself, but not one that it installs from
 * another server, which replaces all entries before. */
static enum shoal_err load_entry(struct reading *reading, unsigned stream,
                                 struct sh_journal_stream_log *log, uint64_t segment,
                                 uint64_t index, uint64_t term, uint8_t of_kind,
                                 struct sh_bytes bytes)
{
    enum shoal_err err = log->machine.load_entry(log->machine.arg, index, term, of_kind, bytes);
    if (err != SHOAL_ECORRUPT || reading->is_whole[stream])
        return err;
    reading->is_known[stream] = false;
    reading->is_broken[stream] = true;
    if (!log->is_installing)
        log->beginning = 0;
    SH_INFO("journal", "a snapshot that was given up has a gap: the next one counts",
            SH_U64("stream", stream), SH_U64("segment", segment), SH_U64("index", index));
    return SHOAL_OK;
}

static enum shoal_err load_record(struct sh_journal *journal, struct reading *reading,
                                  uint64_t segment, enum sh_journal_kind kind, unsigned stream,
                                  struct sh_bytes bytes)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_journal_stream_log *log = &journal->streams[stream];
    const struct sh_journal_stream *machine = &log->machine;
    bool is_known =
        reading->is_known[stream] && (kind != SH_JOURNAL_AGAIN || !reading->is_whole[stream]);
    uint64_t index, term;
    uint8_t of_kind;
    switch (kind) {
    case SH_JOURNAL_START:
        reading->is_known[stream] = reading->is_whole[stream] = true;
        load_start(log, segment);
        return SHOAL_OK;
    case SH_JOURNAL_STATE:
        return is_known ? load_state(log, bytes) : SHOAL_OK;
    case SH_JOURNAL_AGAIN:
    case SH_JOURNAL_ENTRY:
        index = sh_get64(&r);
        term = sh_get64(&r);
        of_kind = sh_get8(&r);
        if (!sh_reader_ok(&r))
            return SHOAL_ECORRUPT;
        return is_known ? load_entry(reading, stream, log, segment, index, term, of_kind,
                                     sh_bytes_make(bytes.at + 17, bytes.size - 17))
                        : SHOAL_OK;
    case SH_JOURNAL_BEGIN:
        return load_begin(journal, reading, stream, segment, &r);
    case SH_JOURNAL_PIECE:
        log->bytes_now += bytes.size;
        return log->beginning ? machine->load_snapshot_piece(machine->arg, bytes) : SHOAL_OK;
    case SH_JOURNAL_END:
        return log->beginning ? load_end(journal, reading, stream, &r) : SHOAL_OK;
    case SH_JOURNAL_DROP:
        reading->is_known[stream] = reading->is_whole[stream] = reading->is_broken[stream] = false;
        load_start(log, 0);
        return machine->load_drop(machine->arg);
    default:
        return SHOAL_ECORRUPT;
    }
}

static enum shoal_err load_batch(struct sh_journal *journal, struct reading *reading,
                                 uint64_t segment, struct sh_bytes records)
{
    struct sh_reader r = sh_reader_make(records);
    while (sh_reader_left(&r)) {
        uint8_t kind = sh_get8(&r);
        uint8_t stream = sh_get8(&r);
        uint16_t zero = sh_get16(&r);
        uint32_t size = sh_get32(&r);
        const uint8_t *at = sh_reader_take(&r, size);
        if (!sh_reader_ok(&r) || zero || stream >= journal->streams_count)
            return SHOAL_ECORRUPT;
        enum shoal_err err = load_record(journal, reading, segment, (enum sh_journal_kind)kind,
                                         stream, sh_bytes_make(at, size));
        if (err)
            return err;
    }
    return SHOAL_OK;
}

/* --- Segments -------------------------------------------------------------------------------- */

/* Keeps the batch that was read last. */
static enum shoal_err last_keep(struct reading *reading, struct sh_bytes records)
{
    uint8_t *bytes = realloc(reading->last, records.size ? records.size : 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    if (records.size)
        memcpy(bytes, records.at, records.size);
    reading->last = bytes;
    reading->last_size = records.size;
    return SHOAL_OK;
}

/* Reads the batches of a segment that come before `until`, the first batch of the next one (0:
 * there is no next one, so the last one may be torn). */
static enum shoal_err load_segment(struct sh_journal *journal, struct reading *reading,
                                   const struct loaded *loaded, uint64_t until)
{
    struct sh_bytes file = bytes_of(loaded);
    struct sh_journal_batch batch;
    size_t at = SH_JOURNAL_BLOCK;
    while ((!until || journal->batch < until) &&
           sh_journal_batch_get(file, at, journal->id, &batch) && batch.number == journal->batch) {
        enum shoal_err err = load_batch(journal, reading, loaded->number, batch.records);
        if (err == SHOAL_ECORRUPT)
            return corrupt(loaded->slot, at, "a record that its stream does not take");
        if (!err)
            err = last_keep(reading, batch.records);
        if (err)
            return err;
        at += (size_t)sh_journal_padded(SH_JOURNAL_HEAD_BYTES + batch.records.size);
        journal->batch++;
    }
    if (until)
        return journal->batch == until ? SHOAL_OK
                                       : corrupt(loaded->slot, at, "a batch with others behind it");
    return sh_journal_has_batches(file, journal->id, journal->batch + 1)
               ? corrupt(loaded->slot, at, "a batch with others behind it")
               : SHOAL_OK;
}

/* Reads a slot's file. */
static enum shoal_err segment_read(struct sh_journal *journal, unsigned slot, struct loaded *out)
{
    struct sh_journal_batch batch;
    struct sh_journal_header header;
    *out = (struct loaded){.slot = slot, .number = journal->slots[slot].number};
    enum shoal_err err =
        sh_journal_read(journal->env.disk, slot, SIZE_MAX, &out->bytes, &out->size);
    if (err)
        return err;
    if (!sh_journal_header_get(bytes_of(out), &header))
        out->begins = header.first;
    if (sh_journal_batch_get(bytes_of(out), SH_JOURNAL_BLOCK, journal->id, &batch))
        out->first = batch.number;
    return SHOAL_OK;
}

/* Looks at what was not read: files without a good header, and segments behind the last one, whose
 * first batch can't be read. A header and the first batch are written together, and may be torn
 * apart; then that batch is good, or nothing of the file is, and there is no second one. A good batch
 * without a header is the last one, so it is written once more (resume): what begins in it is in the
 * segment that has it then, and until then in none, since a file without a header has no number. */
static enum shoal_err others_load(struct sh_journal *journal, struct reading *reading,
                                  uint64_t last)
{
    for (unsigned slot = 0; slot < SH_JOURNAL_SLOTS; slot++) {
        enum sh_journal_slot kind = journal->slots[slot].kind;
        uint64_t from = journal->batch ? journal->batch : SH_JOURNAL_TOLD;
        struct loaded loaded;
        if (kind == SH_JOURNAL_NO_FILE ||
            (kind == SH_JOURNAL_SEGMENT && journal->slots[slot].number <= last))
            continue;
        enum shoal_err err = segment_read(journal, slot, &loaded);
        if (!err && kind == SH_JOURNAL_FREE_FILE && journal->batch &&
            loaded.first == journal->batch) {
            journal->slots[slot].kind = SH_JOURNAL_SEGMENT;
            journal->slots[slot].number = 0; /* free once the batch is in the next segment */
            loaded.number = SH_JOURNAL_NEXT;
            err = load_segment(journal, reading, &loaded, 0);
            if (!err && journal->batch > loaded.first + 1)
                err = corrupt(slot, 0, "the header of a segment that is needed");
        } else if (!err && sh_journal_has_batches(bytes_of(&loaded), journal->id, from)) {
            err = corrupt(slot, 0, "the beginning of a segment that is needed");
        }
        free(loaded.bytes);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

/* The slot of the segment with the lowest number above that one; SH_JOURNAL_SLOTS: there is none.
 */
static unsigned slot_after(const struct sh_journal *journal, uint64_t number)
{
    unsigned found = SH_JOURNAL_SLOTS;
    for (unsigned i = 0; i < SH_JOURNAL_SLOTS; i++) {
        bool is_behind =
            journal->slots[i].kind == SH_JOURNAL_SEGMENT && journal->slots[i].number > number;
        if (is_behind &&
            (found == SH_JOURNAL_SLOTS || journal->slots[i].number < journal->slots[found].number))
            found = i;
    }
    return found;
}

/* The next segment behind that number in which something counts: the lowest of all, or one with a
 * first batch. bytes is NULL: there is none. */
static enum shoal_err segment_next(struct sh_journal *journal, uint64_t number, struct loaded *out)
{
    bool is_lowest = !number;
    unsigned slot;
    *out = (struct loaded){.slot = SH_JOURNAL_SLOTS};
    while ((slot = slot_after(journal, number)) < SH_JOURNAL_SLOTS) {
        enum shoal_err err = segment_read(journal, slot, out);
        if (err || is_lowest || out->first == out->begins)
            return err;
        number = out->number;
        free(out->bytes);
        *out = (struct loaded){.slot = SH_JOURNAL_SLOTS};
    }
    return SHOAL_OK;
}

static enum shoal_err segments_load(struct sh_journal *journal, struct reading *reading,
                                    uint64_t *last_out)
{
    struct loaded now, next = {.slot = SH_JOURNAL_SLOTS};
    enum shoal_err err = segment_next(journal, 0, &now);
    if (!err && now.bytes)
        journal->batch = now.begins;
    *last_out = 0;
    while (!err && now.bytes) {
        err = segment_next(journal, now.number, &next);
        if (!err)
            err = load_segment(journal, reading, &now, next.first);
        *last_out = now.number;
        free(now.bytes);
        now = next;
        if (err)
            free(next.bytes);
    }
    return err;
}

/* What had not ended never will; and what was read of each stream must be all of it. */
static enum shoal_err streams_end(struct sh_journal *journal, const struct reading *reading)
{
    for (unsigned i = 0; i < journal->streams_count; i++) {
        struct sh_journal_stream_log *log = &journal->streams[i];
        log->beginning = log->bytes_now = 0;
        log->is_installing = false;
        if (reading->is_whole[i])
            continue;
        if (reading->is_known[i] || reading->is_broken[i]) {
            SH_ERROR("journal", "the journal in data_dir lacks the end of a snapshot",
                     SH_U64("stream", i));
            return SHOAL_ECORRUPT;
        }
        log->is_there = false;
    }
    return SHOAL_OK;
}

/* Notes what a slot's file says of itself; *needed_out: of the newest header so far. */
static enum shoal_err slot_look(struct sh_journal *journal, unsigned slot, uint64_t *needed_out)
{
    uint8_t *bytes;
    size_t size;
    struct sh_journal_header header;
    enum shoal_err err = sh_journal_read(journal->env.disk, slot, SH_JOURNAL_BLOCK, &bytes, &size);
    if (err)
        return err == SHOAL_ENONAME ? SHOAL_OK : err;
    err = sh_journal_header_get(sh_bytes_make(bytes, size), &header);
    bool is_other = !err && (header.label.size != journal->label_size ||
                             memcmp(header.label.at, journal->label, header.label.size) != 0);
    free(bytes);
    journal->slots[slot].kind = err ? SH_JOURNAL_FREE_FILE : SH_JOURNAL_SEGMENT;
    if (err)
        return err == SHOAL_EVERSION ? err : SHOAL_OK;
    if (is_other)
        return SHOAL_ECLUSTER;
    if (journal->id && journal->id != header.journal)
        return corrupt(slot, 16, "segments of two journals");
    journal->id = header.journal;
    journal->slots[slot].number = header.number;
    if (header.number > journal->segment) {
        journal->segment = header.number;
        *needed_out = header.needed;
    }
    return SHOAL_OK;
}

/* Looks which files there are; those below what the newest header calls needed are free. */
static enum shoal_err slots_look(struct sh_journal *journal)
{
    uint64_t needed = 0;
    enum shoal_err err = SHOAL_OK;
    for (unsigned slot = 0; !err && slot < SH_JOURNAL_SLOTS; slot++)
        err = slot_look(journal, slot, &needed);
    bool is_there = !needed;
    for (unsigned slot = 0; slot < SH_JOURNAL_SLOTS; slot++) {
        if (journal->slots[slot].kind != SH_JOURNAL_SEGMENT)
            continue;
        is_there |= journal->slots[slot].number == needed;
        if (journal->slots[slot].number < needed)
            journal->slots[slot].kind = SH_JOURNAL_FREE_FILE;
    }
    if (!err && !is_there)
        err = corrupt(0, 0, "a segment is missing");
    return err;
}

/* The batch that was read last is the first one to be written. */
static enum shoal_err resume(struct sh_journal *journal, const struct reading *reading)
{
    if (!journal->batch)
        journal->batch = 1;
    if (!reading->last)
        return SHOAL_OK;
    journal->batch--;
    enum shoal_err err =
        sh_journal_chunk_again(journal, sh_bytes_make(reading->last, reading->last_size));
    for (unsigned i = 0; !err && i < journal->streams_count; i++) {
        if (journal->streams[i].segment == SH_JOURNAL_NEXT)
            journal->chunks->marks[i].need = SH_NEED_THIS;
    }
    return err;
}

enum shoal_err sh_journal_load(struct sh_journal *journal)
{
    struct reading reading = {.last = NULL};
    uint64_t last;
    enum shoal_err err = slots_look(journal);
    if (!err)
        err = segments_load(journal, &reading, &last);
    if (!err)
        err = others_load(journal, &reading, last);
    if (!err)
        err = streams_end(journal, &reading);
    if (!err)
        err = resume(journal, &reading);
    free(reading.last);
    return err;
}
