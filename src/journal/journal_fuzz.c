/* Opening a journal of any bytes: nothing breaks, and what was opened once is opened again, to the
 * same.
 *
 * The first byte says what the others are. Even: two files, the second from the middle on. Odd: the
 * records of one batch, around which the rest is built, so that their decoder is reached. */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "journal/journal_int.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILES 16
#define FILE_BYTES (1u << 17)
#define STREAMS 2

/* --- A disk in memory, done with each operation at once -------------------------------------- */

struct disk {
    struct sh_disk base;
    struct {
        bool is_there;
        size_t size;
        uint8_t bytes[FILE_BYTES];
    } files[FILES];
    struct sh_disk_op *done[4];
    unsigned done_count;
};

static struct disk disk;

static int file_of(const char *name)
{
    unsigned slot;
    return sscanf(name, "journal.%3u", &slot) == 1 && slot < FILES ? (int)slot : -1;
}

static enum shoal_err disk_open(struct sh_disk *base, const char *name, bool create, int *file_out)
{
    (void)base;
    int file = file_of(name);
    if (file < 0)
        return create ? SHOAL_ENOSPC : SHOAL_ENONAME;
    if (!disk.files[file].is_there && !create)
        return SHOAL_ENONAME;
    if (!disk.files[file].is_there)
        disk.files[file].size = 0;
    disk.files[file].is_there = true;
    *file_out = file;
    return SHOAL_OK;
}

static void disk_close(struct sh_disk *base, int file)
{
    (void)base;
    (void)file;
}

static enum shoal_err disk_size(struct sh_disk *base, int file, uint64_t *bytes_out)
{
    (void)base;
    *bytes_out = disk.files[file].size;
    return SHOAL_OK;
}

static enum shoal_err disk_remove(struct sh_disk *base, const char *name)
{
    (void)base;
    int file = file_of(name);
    if (file < 0 || !disk.files[file].is_there)
        return SHOAL_ENONAME;
    disk.files[file].is_there = false;
    return SHOAL_OK;
}

static enum shoal_err disk_submit(struct sh_disk *base, struct sh_disk_op *op)
{
    (void)base;
    SH_ASSERT(disk.done_count < 4);
    op->err = SHOAL_OK;
    op->done_bytes = 0;
    if (op->kind == SH_DISK_READ) {
        size_t size = disk.files[op->file].size;
        size_t left = op->offset < size ? size - (size_t)op->offset : 0;
        op->done_bytes = op->size < left ? op->size : left;
        if (op->done_bytes)
            memcpy(op->data, disk.files[op->file].bytes + op->offset, op->done_bytes);
    } else if (op->kind == SH_DISK_WRITE_SYNC && op->offset + op->size > FILE_BYTES) {
        op->err = SHOAL_ENOSPC;
    } else if (op->kind == SH_DISK_WRITE_SYNC) {
        size_t end = (size_t)op->offset + op->size;
        memcpy(disk.files[op->file].bytes + op->offset, op->data, op->size);
        if (end > disk.files[op->file].size)
            disk.files[op->file].size = end;
        op->done_bytes = op->size;
    }
    disk.done[disk.done_count++] = op;
    return SHOAL_OK;
}

static unsigned disk_poll(struct sh_disk *base, bool wait)
{
    (void)base;
    (void)wait;
    unsigned count = disk.done_count;
    disk.done_count = 0;
    for (unsigned i = 0; i < count; i++)
        disk.done[i]->done(disk.done[i]);
    return count;
}

static const struct sh_disk_ops disk_ops = {.open = disk_open,
                                            .close = disk_close,
                                            .size = disk_size,
                                            .remove = disk_remove,
                                            .submit = disk_submit,
                                            .poll = disk_poll};

/* --- State machines that only add up what they were given ------------------------------------ */

static uint64_t sums[STREAMS], snapshots[STREAMS];

static void add(uint64_t *sum, uint64_t a, uint64_t b, struct sh_bytes bytes)
{
    *sum = sh_mix64(*sum + sh_mix64(a) + 3 * b + sh_crc32c(0, bytes));
}

static enum shoal_err load_state(void *arg, struct sh_bytes state)
{
    add(&sums[*(unsigned *)arg], 1, 0, state);
    return SHOAL_OK;
}

static enum shoal_err load_entry(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    add(&sums[*(unsigned *)arg], index + kind, term, bytes);
    return SHOAL_OK;
}

static enum shoal_err load_begin(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    snapshots[*(unsigned *)arg] = 0;
    add(&snapshots[*(unsigned *)arg], index + is_first, term, (struct sh_bytes){0});
    return SHOAL_OK;
}

static enum shoal_err load_piece(void *arg, struct sh_bytes piece)
{
    add(&snapshots[*(unsigned *)arg], 2, 0, piece);
    return SHOAL_OK;
}

static enum shoal_err load_end(void *arg, bool is_reset)
{
    sums[*(unsigned *)arg] += snapshots[*(unsigned *)arg] + is_reset;
    return SHOAL_OK;
}

static enum shoal_err load_drop(void *arg)
{
    sums[*(unsigned *)arg] = 0;
    return SHOAL_OK;
}

static bool save_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    (void)arg;
    (void)index_out;
    (void)term_out;
    return false;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, 5, size);
}

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return 1;
}

static enum shoal_err open_it(void)
{
    static unsigned numbers[STREAMS] = {0, 1};
    struct sh_journal_stream streams[STREAMS];
    struct sh_journal *journal;
    for (unsigned i = 0; i < STREAMS; i++) {
        sums[i] = snapshots[i] = 0;
        streams[i] = (struct sh_journal_stream){.load_state = load_state,
                                                .load_entry = load_entry,
                                                .load_snapshot_begin = load_begin,
                                                .load_snapshot_piece = load_piece,
                                                .load_snapshot_end = load_end,
                                                .load_drop = load_drop,
                                                .snapshot_begin = save_begin,
                                                .arg = &numbers[i]};
    }
    struct sh_journal_config config = {
        .env = {.clock = {now_ns, now_ns, NULL}, .random = {random_fill, NULL}, .disk = &disk.base},
        .label = sh_bytes_text("fuzz"),
        .segment_bytes = FILE_BYTES / 2,
        .streams = streams,
        .streams_count = STREAMS};
    enum shoal_err err = sh_journal_open(&config, &journal);
    if (!err)
        sh_journal_close(journal);
    return err;
}

/* --- Files ----------------------------------------------------------------------------------- */

static void file_put(unsigned file, struct sh_bytes bytes)
{
    size_t size = bytes.size < FILE_BYTES ? bytes.size : FILE_BYTES;
    disk.files[file].is_there = true;
    disk.files[file].size = size;
    if (size)
        memcpy(disk.files[file].bytes, bytes.at, size);
}

/* A segment with one batch of those records. */
static void segment_put(struct sh_bytes records)
{
    static struct sh_journal journal;
    uint8_t *bytes = disk.files[3].bytes, *head = bytes + SH_JOURNAL_BLOCK;
    size_t size = SH_JOURNAL_HEAD_BYTES + records.size;
    if (size > FILE_BYTES / 4)
        return;
    journal.id = journal.segment = journal.needed = journal.batch = 9;
    memcpy(journal.label, "fuzz", 4);
    journal.label_size = 4;
    sh_journal_header_put(bytes, &journal);
    struct sh_writer w = sh_writer_make(head, size);
    sh_put64(&w, SH_JOURNAL_BATCH_MAGIC);
    sh_put64(&w, journal.id);
    sh_put64(&w, journal.batch);
    sh_put32(&w, (uint32_t)records.size);
    sh_put32(&w, 0);
    sh_put_raw(&w, records);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    sh_store32(head + SH_JOURNAL_HEAD_BYTES - 4,
               sh_journal_crc(head, size, SH_JOURNAL_HEAD_BYTES - 4));
    disk.files[3].is_there = true;
    disk.files[3].size = SH_JOURNAL_BLOCK + (size_t)sh_journal_padded(size);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return sh_log_output_set("/dev/null", SH_LOG_AS_TEXT) ? 1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    memset(&disk, 0, sizeof disk);
    disk.base.ops = &disk_ops;
    struct sh_bytes rest = sh_bytes_make(data + 1, size - 1);
    if (data[0] % 2) {
        segment_put(rest);
    } else {
        size_t half = rest.size / 2;
        file_put(1, sh_bytes_make(rest.at, half));
        file_put(2, sh_bytes_make(rest.at + half, rest.size - half));
    }
    if (open_it())
        return 0;
    uint64_t first[STREAMS] = {sums[0], sums[1]};
    enum shoal_err err = open_it();
    SH_ASSERT(!err);
    SH_ASSERT(first[0] == sums[0] && first[1] == sums[1]);
    return 0;
}
