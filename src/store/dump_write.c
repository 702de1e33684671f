#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/dump_int.h"

#define NAME_BYTES_MAX 200

/* A file being written, one section at a time. */
struct dump {
    struct sh_store *store;
    struct sh_disk *disk;
    int file;
    uint8_t *section;   /* header and payload */
    struct sh_writer w; /* the payload */
    uint32_t records;
    uint8_t *run_count;   /* where the open run's count is; NULL: no run is open */
    uint64_t run_next;    /* the ID that would continue it */
    uint64_t begun_bytes; /* payload when the dump began */
    struct sh_dump_sums sums;
    sh_dump_progress progress;
    void *arg;
};

static void note_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

static enum shoal_err do_now(struct sh_disk *disk, struct sh_disk_op *op)
{
    bool done = false;
    op->done = note_done;
    op->arg = &done;
    enum shoal_err err;
    while ((err = sh_disk_submit(disk, op)) == SHOAL_EAGAIN)
        (void)sh_disk_poll(disk, true);
    while (!err && !done)
        (void)sh_disk_poll(disk, true);
    return err ? err : op->err;
}

static enum shoal_err append(struct dump *dump, void *bytes, size_t size)
{
    struct sh_disk_op op = {.kind = SH_DISK_WRITE,
                            .file = dump->file,
                            .offset = dump->sums.file_bytes,
                            .data = bytes,
                            .size = size};
    enum shoal_err err = do_now(dump->disk, &op);
    dump->sums.file_bytes += size;
    return err;
}

static void section_begin(struct dump *dump)
{
    dump->w = sh_writer_make(dump->section + SH_SECTION_HEADER_BYTES, SH_SECTION_BYTES_MAX);
    dump->records = 0;
    dump->run_count = NULL;
}

static enum shoal_err section_end(struct dump *dump, enum sh_section_kind kind)
{
    uint8_t *payload = dump->section + SH_SECTION_HEADER_BYTES;
    size_t size = (size_t)(dump->w.at - payload);
    SH_ASSERT(sh_writer_ok(&dump->w));
    if (size == 0)
        return SHOAL_OK;
    uint8_t header[SH_SECTION_HEADER_BYTES];
    struct sh_writer w = sh_writer_make(header, sizeof header);
    sh_put_raw(&w, sh_bytes_text(SH_SECTION_MAGIC));
    sh_put16(&w, (uint16_t)kind);
    sh_put16(&w, 0);
    sh_put64(&w, dump->sums.sections);
    sh_put32(&w, (uint32_t)size);
    sh_put32(&w, dump->records);
    sh_put32(&w, sh_crc32c(0, sh_bytes_make(payload, size)));
    sh_put32(&w, sh_crc32c(0, sh_bytes_make(header, SH_SECTION_CRC_AT)));
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    memcpy(dump->section, header, sizeof header);
    enum shoal_err err = append(dump, dump->section, SH_SECTION_HEADER_BYTES + size);
    if (kind != SH_SECTION_END)
        dump->sums.sections++;
    if (dump->progress)
        dump->progress(dump->arg, dump->sums.payload_bytes, dump->begun_bytes);
    section_begin(dump);
    return err;
}

static enum shoal_err header_write(struct dump *dump)
{
    uint8_t bytes[SH_DUMP_HEADER_BYTES] = {0};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put_raw(&w, sh_bytes_text(SH_DUMP_MAGIC));
    sh_put16(&w, SH_DUMP_VERSION);
    sh_store32(bytes + SH_SECTION_CRC_AT, sh_crc32c(0, sh_bytes_make(bytes, SH_SECTION_CRC_AT)));
    return append(dump, bytes, sizeof bytes);
}

/* Writes a chunk that is too long for a section of chunks, in pieces, from memory: so that they are
 * of the same moment. */
static enum shoal_err long_write(struct dump *dump, shoal_cid cid, uint32_t size)
{
    enum shoal_err err = section_end(dump, SH_SECTION_CHUNKS);
    uint8_t *bytes = NULL;
    /* It may grow in between. */
    enum shoal_err got = SHOAL_ESIZE;
    while (!err && got == SHOAL_ESIZE) {
        uint8_t *more = realloc(bytes, size);
        if (more) {
            bytes = more;
            got = sh_store_get(dump->store, cid, bytes, size, &size);
        } else {
            err = SHOAL_ENOMEM;
        }
    }
    if (!err && !got) {
        dump->sums.chunks++;
        dump->sums.payload_bytes += size;
    }
    for (uint32_t at = 0; !err && !got && at < size;) {
        uint32_t some = SH_SECTION_BYTES_MAX - SH_PIECE_HEADER_BYTES;
        some = size - at < some ? size - at : some;
        sh_put64(&dump->w, cid.v);
        sh_put32(&dump->w, size);
        sh_put32(&dump->w, at);
        sh_put_raw(&dump->w, sh_bytes_make(bytes + at, some));
        dump->records = 1;
        err = section_end(dump, SH_SECTION_PIECE);
        at += some;
    }
    free(bytes);
    return err;
}

/* Tries to put a chunk into the section as it is. *size_out: its size, where it did not fit
 * (ESIZE). */
static enum shoal_err chunk_put(struct dump *dump, shoal_cid cid, uint32_t *size_out)
{
    bool continues = dump->run_count && dump->run_next == cid.v;
    size_t head = 4 + (continues ? 0 : SH_RUN_HEADER_BYTES);
    size_t left = (size_t)(dump->w.end - dump->w.at);
    if (left < head)
        return sh_store_size(dump->store, cid, size_out) ? SHOAL_ENOCHUNK : SHOAL_ESIZE;
    enum shoal_err err = sh_store_get(dump->store, cid, dump->w.at + head, left - head, size_out);
    if (err)
        return err;
    if (!continues) {
        sh_put64(&dump->w, cid.v);
        dump->run_count = dump->w.at;
        sh_put32(&dump->w, 0);
        dump->records++;
    }
    sh_store32(dump->run_count, sh_load32(dump->run_count) + 1);
    sh_put32(&dump->w, *size_out);
    (void)sh_writer_take(&dump->w, *size_out); /* the get has put them there */
    dump->run_next = cid.v + 1;
    dump->sums.chunks++;
    dump->sums.payload_bytes += *size_out;
    return SHOAL_OK;
}

static enum shoal_err chunk_write(struct dump *dump, shoal_cid cid)
{
    uint32_t size = 0;
    enum shoal_err err = chunk_put(dump, cid, &size);
    while (err == SHOAL_ESIZE) {
        if (size > SH_WHOLE_BYTES_MAX)
            return long_write(dump, cid, size);
        err = section_end(dump, SH_SECTION_CHUNKS);
        if (!err)
            err = chunk_put(dump, cid, &size);
    }
    return err == SHOAL_ENOCHUNK ? SHOAL_OK : err; /* removed in between */
}

static enum shoal_err chunks_write(struct dump *dump)
{
    shoal_cid from = {0}, first, last;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_store_range(dump->store, from, &first, &last)) {
        for (uint64_t cid = first.v; !err && cid <= last.v; cid++)
            err = chunk_write(dump, (shoal_cid){cid});
        from.v = last.v + 1;
    }
    if (!err)
        err = section_end(dump, SH_SECTION_CHUNKS);
    if (err)
        return err;
    sh_put64(&dump->w, dump->sums.chunks);
    sh_put64(&dump->w, dump->sums.payload_bytes);
    sh_put64(&dump->w, dump->sums.sections);
    dump->records = 1;
    return section_end(dump, SH_SECTION_END);
}

/* Makes the file, whole and on the disk, under its temporary name. */
static enum shoal_err file_write(struct dump *dump, const char *temporary)
{
    /* What an earlier dump left when it was cut off could be longer. */
    (void)dump->disk->ops->remove(dump->disk, temporary);
    enum shoal_err err = sh_disk_open(dump->disk, temporary, true, &dump->file);
    if (err)
        return err;
    section_begin(dump);
    err = header_write(dump);
    if (!err)
        err = chunks_write(dump);
    struct sh_disk_op sync = {.kind = SH_DISK_SYNC, .file = dump->file};
    if (!err)
        err = do_now(dump->disk, &sync);
    dump->disk->ops->close(dump->disk, dump->file);
    return err;
}

enum shoal_err sh_store_dump(struct sh_store *store, struct sh_disk *disk, const char *name,
                             sh_dump_progress progress, void *arg, struct sh_dump_sums *sums_out)
{
    char temporary[NAME_BYTES_MAX + 8];
    if (strlen(name) == 0 || strlen(name) > NAME_BYTES_MAX)
        return SHOAL_EINVAL;
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    struct dump dump = {.store = store, .disk = disk, .progress = progress, .arg = arg};
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    dump.begun_bytes = status.payload_bytes;
    dump.section = malloc(SH_SECTION_HEADER_BYTES + SH_SECTION_BYTES_MAX);
    if (!dump.section)
        return SHOAL_ENOMEM;
    enum shoal_err err = file_write(&dump, temporary);
    free(dump.section);
    if (!err)
        err = disk->ops->rename(disk, temporary, name);
    struct sh_disk_op sync = {.kind = SH_DISK_SYNC_DIR};
    if (!err)
        err = do_now(disk, &sync);
    else
        (void)disk->ops->remove(disk, temporary);
    if (!err)
        *sums_out = dump.sums;
    else
        SH_ERROR("store", "not dumped", SH_TEXT("name", name),
                 SH_TEXT("cause", shoal_err_text(err)), SH_U64("at", dump.sums.file_bytes));
    return err;
}
