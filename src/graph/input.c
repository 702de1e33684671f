#include "graph/input_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/assert.h"

#define PACKED_BYTES (256u * 1024)
#define DETAIL_BYTES 256

enum packing { PLAIN, GZIP, ZSTD };

struct sh_input {
    int fd; /* -1: bytes in memory */
    struct sh_bytes memory;
    enum packing packing;
    bool file_end;   /* nothing more comes from the file */
    bool stream_end; /* between two compressed streams, or after the last */
    uint64_t bytes_done;
    uint64_t bytes_total;
    z_stream gzip;
    ZSTD_DStream *zstd;
    const uint8_t *packed_at; /* unread bytes of packed[] */
    size_t packed_size;
    uint8_t packed[PACKED_BYTES];
};

/* Fetches more of the file behind what is still unread. */
static enum shoal_err refill(struct sh_input *input, char *detail)
{
    if (input->file_end)
        return SHOAL_OK;
    memmove(input->packed, input->packed_at, input->packed_size);
    input->packed_at = input->packed;
    size_t room = PACKED_BYTES - input->packed_size;
    size_t got;
    if (input->fd < 0) {
        got = input->memory.size < room ? input->memory.size : room;
        memcpy(input->packed + input->packed_size, input->memory.at, got);
        input->memory.at += got;
        input->memory.size -= got;
    } else {
        ssize_t result;
        do
            result = read(input->fd, input->packed + input->packed_size, room);
        while (result < 0 && errno == EINTR);
        if (result < 0) {
            (void)snprintf(detail, DETAIL_BYTES, "cannot be read: %s", strerror(errno));
            return SHOAL_EIO;
        }
        got = (size_t)result;
    }
    input->packed_size += got;
    input->bytes_done += got;
    input->file_end = got == 0;
    return SHOAL_OK;
}

/* Tells the packing by the first bytes and makes its unpacker. */
static enum shoal_err begin(struct sh_input *input, char *detail)
{
    while (input->packed_size < 4 && !input->file_end) {
        enum shoal_err err = refill(input, detail);
        if (err)
            return err;
    }
    const uint8_t *at = input->packed_at;
    if (input->packed_size >= 2 && at[0] == 0x1f && at[1] == 0x8b) {
        /* 15 window bits, and 16 for "gzip only". */
        if (inflateInit2(&input->gzip, 15 + 16) != Z_OK)
            return SHOAL_ENOMEM;
        input->packing = GZIP;
    } else if (input->packed_size >= 4 && sh_load32(at) == ZSTD_MAGICNUMBER) {
        input->zstd = ZSTD_createDStream();
        if (!input->zstd)
            return SHOAL_ENOMEM;
        input->packing = ZSTD;
    }
    return SHOAL_OK;
}

static enum shoal_err input_new(struct sh_input **input_out)
{
    struct sh_input *input = malloc(sizeof *input);
    if (!input)
        return SHOAL_ENOMEM;
    memset(input, 0, offsetof(struct sh_input, packed));
    input->fd = -1;
    input->packed_at = input->packed;
    *input_out = input;
    return SHOAL_OK;
}

enum shoal_err sh_input_open(const char *path, struct sh_input **input_out, char *detail)
{
    SH_ASSERT(path && detail);
    detail[0] = '\0';
    struct sh_input *input;
    enum shoal_err err = input_new(&input);
    if (err)
        return err;
    struct stat about;
    input->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0 || fstat(input->fd, &about) != 0) {
        (void)snprintf(detail, DETAIL_BYTES, "%s: %s", path, strerror(errno));
        err = SHOAL_EIO;
        goto out_close;
    }
    if (S_ISDIR(about.st_mode)) {
        (void)snprintf(detail, DETAIL_BYTES, "%s: is a folder", path);
        err = SHOAL_EIO;
        goto out_close;
    }
    input->bytes_total = (uint64_t)about.st_size;
    err = begin(input, detail);
    if (err)
        goto out_close;
    *input_out = input;
    return SHOAL_OK;
out_close:
    sh_input_close(input);
    return err;
}

enum shoal_err sh_input_open_bytes(struct sh_bytes bytes, struct sh_input **input_out)
{
    struct sh_input *input;
    enum shoal_err err = input_new(&input);
    if (err)
        return err;
    input->memory = bytes.size ? bytes : sh_bytes_text("");
    input->bytes_total = bytes.size;
    char detail[DETAIL_BYTES];
    err = begin(input, detail);
    if (err) {
        sh_input_close(input);
        return err;
    }
    *input_out = input;
    return SHOAL_OK;
}

void sh_input_close(struct sh_input *input)
{
    if (!input)
        return;
    if (input->packing == GZIP)
        (void)inflateEnd(&input->gzip);
    ZSTD_freeDStream(input->zstd);
    if (input->fd >= 0)
        (void)close(input->fd);
    free(input);
}

static void take(struct sh_input *input, size_t size)
{
    SH_ASSERT(size <= input->packed_size);
    input->packed_at += size;
    input->packed_size -= size;
}

/* One call of zlib. A file may hold several streams one after the other. */
static enum shoal_err unpack_gzip(struct sh_input *input, uint8_t *into, size_t room,
                                  size_t *size_out, char *detail)
{
    if (input->stream_end && inflateReset(&input->gzip) != Z_OK)
        return SHOAL_EINTERNAL;
    input->stream_end = false;
    input->gzip.next_in = (Bytef *)(uintptr_t)input->packed_at;
    input->gzip.avail_in = (uInt)input->packed_size;
    input->gzip.next_out = into;
    input->gzip.avail_out = (uInt)room;
    int result = inflate(&input->gzip, Z_NO_FLUSH);
    take(input, input->packed_size - input->gzip.avail_in);
    *size_out = room - input->gzip.avail_out;
    input->stream_end = result == Z_STREAM_END;
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR)
        return SHOAL_OK;
    if (result == Z_MEM_ERROR)
        return SHOAL_ENOMEM;
    (void)snprintf(detail, DETAIL_BYTES, "gzip data are corrupt: %s",
                   input->gzip.msg ? input->gzip.msg : "unknown reason");
    return SHOAL_ECORRUPT;
}

static enum shoal_err unpack_zstd(struct sh_input *input, uint8_t *into, size_t room,
                                  size_t *size_out, char *detail)
{
    ZSTD_inBuffer in = {input->packed_at, input->packed_size, 0};
    ZSTD_outBuffer out = {into, room, 0};
    size_t result = ZSTD_decompressStream(input->zstd, &out, &in);
    take(input, in.pos);
    *size_out = out.pos;
    if (ZSTD_isError(result)) {
        (void)snprintf(detail, DETAIL_BYTES, "zstd data are corrupt: %s",
                       ZSTD_getErrorName(result));
        return SHOAL_ECORRUPT;
    }
    input->stream_end = result == 0;
    return SHOAL_OK;
}

static enum shoal_err read_plain(struct sh_input *input, uint8_t *into, size_t room,
                                 size_t *size_out, char *detail)
{
    if (input->packed_size == 0) {
        enum shoal_err err = refill(input, detail);
        if (err)
            return err;
    }
    size_t size = input->packed_size < room ? input->packed_size : room;
    memcpy(into, input->packed_at, size);
    take(input, size);
    *size_out = size;
    return SHOAL_OK;
}

enum shoal_err sh_input_read(struct sh_input *input, uint8_t *into, size_t room, size_t *size_out,
                             char *detail)
{
    SH_ASSERT(room > 0 && room <= UINT32_MAX);
    if (input->packing == PLAIN)
        return read_plain(input, into, room, size_out, detail);
    for (;;) {
        bool packed_before = input->packed_size > 0;
        size_t size = 0;
        enum shoal_err err = SHOAL_OK;
        /* Called without packed bytes too: the library may still hold unpacked ones. After the end
         * of a stream it is called only if another one follows. */
        if (packed_before || !input->stream_end)
            err = input->packing == GZIP ? unpack_gzip(input, into, room, &size, detail)
                                         : unpack_zstd(input, into, room, &size, detail);
        if (err || size > 0) {
            *size_out = size;
            return err;
        }
        if (input->packed_size > 0 && packed_before)
            continue;
        if (input->file_end) {
            *size_out = 0;
            if (input->stream_end)
                return SHOAL_OK;
            (void)snprintf(detail, DETAIL_BYTES, "%s data end too early: the file is incomplete",
                           input->packing == GZIP ? "gzip" : "zstd");
            return SHOAL_ETRUNCATED;
        }
        err = refill(input, detail);
        if (err)
            return err;
    }
}

uint64_t sh_input_bytes_done(const struct sh_input *input)
{
    return input->bytes_done - input->packed_size;
}

uint64_t sh_input_bytes_total(const struct sh_input *input)
{
    return input->bytes_total;
}
