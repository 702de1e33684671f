#include "cmd/copy_file_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "shoal/names.h"

#define MAGIC "shoalcpy"
#define VERSION 1
#define HEAD_BYTES 128
#define HEAD_CRC_AT 124
#define CLUSTER_AT 56
#define BLOCK_MAGIC "shcb"
#define BLOCK_HEAD_BYTES 32
#define BLOCK_CRC_AT 28
#define KIND_CONTENT 1
#define KIND_END 2
#define END_BYTES 24
#define PART ".part"

/* --- Writing ----------------------------------------------------------------------------------- */

enum shoal_err sh_copy_file_err(void)
{
    return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? SHOAL_ENOSPC : SHOAL_EIO;
}

static enum shoal_err put(struct sh_copy_writer *writer, struct sh_bytes bytes)
{
    writer->file_bytes += bytes.size;
    if (bytes.size && fwrite(bytes.at, bytes.size, 1, writer->file) != 1)
        return sh_copy_file_err();
    return SHOAL_OK;
}

static enum shoal_err head_write(struct sh_copy_writer *writer, const struct sh_copy_head *head)
{
    uint8_t bytes[HEAD_BYTES] = {0};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put_raw(&w, sh_bytes_text(MAGIC));
    sh_put16(&w, VERSION);
    sh_put16(&w, (uint16_t)head->kind);
    sh_put16(&w, head->node.v);
    sh_put16(&w, 0);
    sh_put64(&w, head->copy);
    sh_put64(&w, head->ordinal);
    sh_put64(&w, head->seconds);
    sh_put64(&w, head->instance);
    sh_put64(&w, head->arrivals);
    SH_ASSERT(w.at == bytes + CLUSTER_AT && strlen(head->cluster) < SH_COPY_CLUSTER_MAX);
    sh_put_raw(&w, sh_bytes_text(head->cluster));
    sh_store32(bytes + HEAD_CRC_AT, sh_crc32c(0, sh_bytes_make(bytes, HEAD_CRC_AT)));
    return put(writer, sh_bytes_make(bytes, sizeof bytes));
}

static enum shoal_err block_write(struct sh_copy_writer *writer, unsigned kind,
                                  struct sh_bytes payload)
{
    uint8_t head[BLOCK_HEAD_BYTES];
    struct sh_writer w = sh_writer_make(head, sizeof head);
    SH_ASSERT(payload.size && payload.size <= SH_SAVES_BLOCK_BYTES);
    sh_put_raw(&w, sh_bytes_text(BLOCK_MAGIC));
    sh_put32(&w, 0);
    sh_put64(&w, writer->blocks++);
    sh_put32(&w, (uint32_t)payload.size);
    sh_put32(&w, kind);
    sh_put32(&w, sh_crc32c(0, payload));
    sh_put32(&w, sh_crc32c(0, sh_bytes_make(head, BLOCK_CRC_AT)));
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    enum shoal_err err = put(writer, sh_bytes_make(head, sizeof head));
    return err ? err : put(writer, payload);
}

enum shoal_err sh_copy_write_begin(struct sh_copy_writer *writer, const char *path,
                                   const struct sh_copy_head *head)
{
    *writer = (struct sh_copy_writer){.file = NULL};
    if (strlen(path) + sizeof PART > sizeof writer->part)
        return SHOAL_EINVAL;
    (void)snprintf(writer->path, sizeof writer->path, "%s", path);
    (void)snprintf(writer->part, sizeof writer->part, "%s%s", path, PART);
    writer->file = fopen(writer->part, "wb");
    if (!writer->file)
        return sh_copy_file_err();
    enum shoal_err err = head_write(writer, head);
    if (err)
        sh_copy_write_drop(writer);
    return err;
}

enum shoal_err sh_copy_write(struct sh_copy_writer *writer, struct sh_bytes payload)
{
    return block_write(writer, KIND_CONTENT, payload);
}

enum shoal_err sh_copy_write_end(struct sh_copy_writer *writer, uint64_t records,
                                 uint64_t payload_bytes)
{
    uint8_t end[END_BYTES];
    struct sh_writer w = sh_writer_make(end, sizeof end);
    sh_put64(&w, records);
    sh_put64(&w, payload_bytes);
    sh_put64(&w, writer->blocks);
    enum shoal_err err = block_write(writer, KIND_END, sh_bytes_make(end, sizeof end));
    if (!err && (fflush(writer->file) || fsync(fileno(writer->file))))
        err = sh_copy_file_err();
    if (!err && rename(writer->part, writer->path))
        err = sh_copy_file_err();
    if (err) {
        sh_copy_write_drop(writer);
        return err;
    }
    int closed = fclose(writer->file);
    writer->file = NULL;
    return closed ? sh_copy_file_err() : SHOAL_OK;
}

void sh_copy_write_drop(struct sh_copy_writer *writer)
{
    if (!writer->file)
        return;
    (void)fclose(writer->file);
    (void)remove(writer->part);
    writer->file = NULL;
}

/* --- Reading ----------------------------------------------------------------------------------- */

static enum shoal_err wrong(struct sh_copy_reader *reader, enum shoal_err err, const char *fault)
{
    reader->fault = fault;
    return err;
}

/* Reads so many bytes. */
static enum shoal_err get(struct sh_copy_reader *reader, uint8_t *into, size_t size)
{
    size_t got = fread(into, 1, size, reader->file);
    reader->sums.file_bytes += got;
    if (got == size)
        return SHOAL_OK;
    if (ferror(reader->file))
        return wrong(reader, SHOAL_EIO, "");
    return wrong(reader, SHOAL_ETRUNCATED, "the file ends here, and is not at its end");
}

static enum shoal_err head_read(struct sh_copy_reader *reader)
{
    uint8_t bytes[HEAD_BYTES];
    struct sh_copy_head head = {.kind = SH_COPY_CHUNKS};
    enum shoal_err err = get(reader, bytes, 8);
    if (err == SHOAL_EIO)
        return err;
    if (err || memcmp(bytes, MAGIC, 8) != 0)
        return wrong(reader, SHOAL_EPARSE, "it does not begin as a file of a safety copy");
    err = get(reader, bytes + 8, HEAD_BYTES - 8);
    if (err)
        return err;
    if (sh_load32(bytes + HEAD_CRC_AT) != sh_crc32c(0, sh_bytes_make(bytes, HEAD_CRC_AT)))
        return wrong(reader, SHOAL_ECORRUPT, "the checksum of the file's header is wrong");
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes + 8, HEAD_CRC_AT - 8));
    if (sh_get16(&r) != VERSION)
        return wrong(reader, SHOAL_EVERSION, "it is of another version");
    unsigned kind = sh_get16(&r);
    head.kind = (enum sh_copy_kind)kind;
    head.node.v = sh_get16(&r);
    unsigned zero = sh_get16(&r);
    head.copy = sh_get64(&r);
    head.ordinal = sh_get64(&r);
    head.seconds = sh_get64(&r);
    head.instance = sh_get64(&r);
    head.arrivals = sh_get64(&r);
    memcpy(head.cluster, sh_reader_take(&r, SH_COPY_CLUSTER_MAX), SH_COPY_CLUSTER_MAX);
    bool is_node = head.node.v != 0;
    if ((kind != SH_COPY_CHUNKS && kind != SH_COPY_NAMES) || is_node != (kind == SH_COPY_CHUNKS) ||
        zero || sh_get32(&r) || head.cluster[SH_COPY_CLUSTER_MAX - 1])
        return wrong(reader, SHOAL_ECORRUPT, "the file's header makes no sense");
    reader->head = head;
    return SHOAL_OK;
}

enum shoal_err sh_copy_read_from(struct sh_copy_reader *reader, FILE *file)
{
    *reader = (struct sh_copy_reader){.file = file, .fault = ""};
    enum shoal_err err = head_read(reader);
    if (!err) {
        reader->bytes = malloc(SH_SAVES_BLOCK_BYTES);
        err = reader->bytes ? SHOAL_OK : SHOAL_ENOMEM;
    }
    if (err)
        sh_copy_read_end(reader);
    return err;
}

enum shoal_err sh_copy_read_begin(struct sh_copy_reader *reader, const char *path)
{
    FILE *file = fopen(path, "rb");
    *reader = (struct sh_copy_reader){.fault = ""};
    if (!file)
        return errno == ENOENT ? SHOAL_ENONAME : SHOAL_EIO;
    return sh_copy_read_from(reader, file);
}

void sh_copy_read_end(struct sh_copy_reader *reader)
{
    if (reader->file)
        (void)fclose(reader->file);
    free(reader->bytes);
    reader->file = NULL;
    reader->bytes = NULL;
}

bool sh_copy_name_get(struct sh_reader *r, shoal_cid *cid_out, struct sh_bytes *name_out)
{
    if (sh_reader_left(r) == 0)
        return false;
    shoal_cid cid = {sh_get64(r)};
    size_t size = sh_get8(r);
    const uint8_t *at = sh_reader_take(r, size);
    if (!sh_reader_ok(r) || size == 0 || memchr(at, 0, size)) {
        r->bad = true;
        return false;
    }
    *cid_out = cid;
    *name_out = sh_bytes_make(at, size);
    return true;
}

/* A chunk, or a piece: that of a chunk which has begun is the next one. */
static bool record_follows(struct sh_copy_reader *reader, const struct sh_cut_record *record)
{
    if (reader->open_at) {
        if (record->cid.v != reader->open.v || record->size != reader->open_size ||
            record->offset != reader->open_at || record->bytes.size == 0)
            return false;
    } else if (record->offset) {
        return false;
    }
    uint32_t end = record->offset + (uint32_t)record->bytes.size;
    reader->open = record->cid;
    reader->open_size = record->size;
    reader->open_at = end < record->size ? end : 0;
    return true;
}

static bool chunks_check(struct sh_copy_reader *reader, struct sh_bytes payload)
{
    struct sh_reader r = sh_reader_make(payload);
    struct sh_cut_record record;
    while (sh_cut_record_get(&r, &record)) {
        if (!record_follows(reader, &record))
            return false;
        if (!reader->open_at) {
            reader->sums.records++;
            reader->sums.payload_bytes += record.size;
        }
    }
    return sh_reader_ok(&r);
}

static bool names_check(struct sh_copy_reader *reader, struct sh_bytes payload)
{
    struct sh_reader r = sh_reader_make(payload);
    shoal_cid cid;
    struct sh_bytes name;
    while (sh_copy_name_get(&r, &cid, &name)) {
        reader->sums.records++;
        reader->sums.payload_bytes += name.size;
    }
    return sh_reader_ok(&r);
}

static enum shoal_err end_check(struct sh_copy_reader *reader, struct sh_bytes payload)
{
    struct sh_reader r = sh_reader_make(payload);
    uint64_t records = sh_get64(&r), payload_bytes = sh_get64(&r), blocks = sh_get64(&r);
    if (!sh_reader_done(&r) || reader->open_at || records != reader->sums.records ||
        payload_bytes != reader->sums.payload_bytes || blocks != reader->sums.blocks)
        return wrong(reader, SHOAL_ECORRUPT, "the end tells of something else than is there");
    if (fgetc(reader->file) != EOF)
        return wrong(reader, SHOAL_ECORRUPT, "there is more behind the end");
    return ferror(reader->file) ? wrong(reader, SHOAL_EIO, "") : SHOAL_OK;
}

enum shoal_err sh_copy_read(struct sh_copy_reader *reader, struct sh_bytes *payload_out)
{
    uint8_t head[BLOCK_HEAD_BYTES];
    reader->offset = reader->sums.file_bytes;
    enum shoal_err err = get(reader, head, sizeof head);
    if (err)
        return err;
    if (memcmp(head, BLOCK_MAGIC, 4) != 0 ||
        sh_load32(head + BLOCK_CRC_AT) != sh_crc32c(0, sh_bytes_make(head, BLOCK_CRC_AT)))
        return wrong(reader, SHOAL_ECORRUPT, "the checksum of a block's header is wrong");
    uint32_t size = sh_load32(head + 16), kind = sh_load32(head + 20);
    if (sh_load32(head + 4) || sh_load64(head + 8) != reader->sums.blocks || size == 0 ||
        size > SH_SAVES_BLOCK_BYTES || (kind != KIND_CONTENT && kind != KIND_END))
        return wrong(reader, SHOAL_ECORRUPT, "a block's header makes no sense here");
    err = get(reader, reader->bytes, size);
    if (err)
        return err;
    struct sh_bytes payload = sh_bytes_make(reader->bytes, size);
    if (sh_load32(head + 24) != sh_crc32c(0, payload))
        return wrong(reader, SHOAL_ECORRUPT, "the checksum of a block is wrong");
    if (kind == KIND_END) {
        err = end_check(reader, payload);
        payload.size = 0;
    } else {
        reader->sums.blocks++;
        bool is_good = reader->head.kind == SH_COPY_CHUNKS ? chunks_check(reader, payload)
                                                           : names_check(reader, payload);
        if (!is_good)
            err = wrong(reader, SHOAL_ECORRUPT, "a block's records make no sense");
    }
    if (!err)
        *payload_out = payload;
    return err;
}
