/* Pieces of a version log from any bytes: what can be read is sound, and written again it is the same bytes.
 *
 * The first byte says what the others are, as a checksum guards each piece: 0: a piece; 1: tuples, behind a header that is
 * made; 2: fields, from which a piece is written, which must be read to its end. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/version_log_test.h"
#include "log/versions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOM (1u << 16)
#define FORMAT 1

static uint8_t made[ROOM], again[ROOM];

/* The first byte says what the flush is, the others are tuples. */
static struct sh_bytes tuples_sealed(struct sh_bytes rest)
{
    size_t tuples = rest.size ? rest.size - 1 : 0;
    if (tuples > ROOM - SH_VERSION_LOG_HEAD)
        tuples = ROOM - SH_VERSION_LOG_HEAD;
    if (tuples)
        memcpy(made + SH_VERSION_LOG_HEAD, rest.at + 1, tuples);
    return piece_sealed(made, FORMAT, rest.size ? rest.at[0] % 4 : 0, tuples);
}

/* A piece of what the bytes say, in a buffer that may be small. */
static struct sh_bytes piece_written(struct sh_bytes rest)
{
    struct sh_reader r = sh_reader_make(rest);
    const struct sh_version_piece piece = {.zone = PIECE_ZONE, .flush = sh_get8(&r)};
    size_t room = SH_VERSION_LOG_HEAD + sh_get16(&r) % (ROOM - SH_VERSION_LOG_HEAD);
    struct sh_version_writer w = sh_version_writer_begin(&piece, made, room);
    uint64_t last = 0;
    while (sh_reader_left(&r)) {
        unsigned shifts = sh_get8(&r), flags = sh_get8(&r);
        uint64_t gap = flags & 1 ? sh_get64(&r) >> shifts % 64 : 0;
        uint64_t more = flags & 2 ? sh_get64(&r) >> shifts % 64 : 0;
        struct sh_version_tuple tuple = {.is_removal = flags & 4};
        tuple.version.number = flags & 8 ? sh_get32(&r) & SH_REPLOG_NUMBER_MAX : flags >> 6;
        tuple.version.epoch = flags & 16 ? sh_get16(&r) : 7;
        if (gap >= UINT64_MAX - last || more > UINT64_MAX - last - gap - 1)
            break;
        tuple.first = last + gap + 1;
        tuple.last = tuple.first + more;
        if (!sh_version_writer_put(&w, &tuple))
            break;
        last = tuple.last;
    }
    return sh_bytes_make(made, sh_version_writer_end(&w, last % 2));
}

/* Reads a piece and writes what was read: after each tuple both stand at the same byte. */
static void check(struct sh_bytes bytes, bool is_written)
{
    struct sh_version_reader reader;
    enum shoal_err err = sh_version_reader_open(bytes, PIECE_ZONE, &reader);
    SH_ASSERT(!is_written || !err);
    if (err || reader.size > ROOM)
        return;
    struct sh_version_writer w = sh_version_writer_begin(&reader.piece, again, reader.size);
    struct sh_version_tuple tuple;
    enum sh_version_got got;
    for (uint64_t last = 0; (got = sh_version_reader_next(&reader, &tuple)) == SH_VERSION_TUPLE;
         last = tuple.last) {
        SH_ASSERT(tuple.first > last && tuple.last >= tuple.first);
        SH_ASSERT(tuple.version.number <= SH_REPLOG_NUMBER_MAX);
        SH_ASSERT(sh_version_writer_put(&w, &tuple));
        SH_ASSERT(w.size == (size_t)(reader.in.at - bytes.at));
    }
    SH_ASSERT(!memcmp(again + SH_VERSION_LOG_HEAD, bytes.at + SH_VERSION_LOG_HEAD,
                      w.size - SH_VERSION_LOG_HEAD));
    SH_ASSERT(!is_written || got == SH_VERSION_END);
    if (got != SH_VERSION_END)
        return;
    SH_ASSERT(sh_version_writer_end(&w, reader.piece.is_last) == reader.size);
    SH_ASSERT(!memcmp(again, bytes.at, reader.size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    struct sh_bytes rest = sh_bytes_make(data + 1, size - 1);
    switch (data[0] % 3) {
    case 0:
        check(rest, false);
        break;
    case 1:
        check(tuples_sealed(rest), false);
        break;
    default:
        check(piece_written(rest), true);
    }
    return 0;
}
