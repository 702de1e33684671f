#include "log/version_log.h"

#include "base/assert.h"
#include "base/hash.h"
#include "log/field_int.h"
#include "log/versions.h"

#define WRITE_BYTES 4096u          /* each begins at such a block */
#define MAGIC UINT32_C(0x4c564853) /* "SHVL" */
#define FORMAT 1
#define IS_LAST 1u
#define IS_COMPACTION 2u

/* Where the fields of the header are. */
enum head_at {
    MAGIC_AT = 0,
    FORMAT_AT = 4,
    FLAGS_AT = 6,
    ZONE_AT = 8,
    FLUSH_AT = 16,
    PLACE_AT = 24,
    TUPLES_AT = 28,
    CHECKSUM_AT = 32
};

_Static_assert(CHECKSUM_AT + 4 == SH_VERSION_LOG_HEAD, "the checksum is the last field");

enum type_bits {
    GAP_SHIFT = 0,
    NUMBER_SHIFT = 3,
    HAS_EPOCH = 1 << 5,
    IS_REMOVAL = 1 << 6,
    IS_RUN = 1 << 7
};

/* How many more chunks fit into the byte itself; above are the counts of the bytes that follow. */
#define MORE_SHORT 247

static const uint8_t gap_bytes[] = {0, 1, 2, 3, 4, 5, 6, 8}, number_bytes[] = {0, 1, 2, 4};

/* The type's code for a field: the shortest that has room. */
static unsigned gap_code(uint64_t gap)
{
    unsigned bytes = sh_field_bytes(gap);
    return bytes < 7 ? bytes : 7;
}

static unsigned number_code(uint32_t number)
{
    unsigned bytes = sh_field_bytes(number);
    return bytes < 3 ? bytes : 3;
}

static bool has_same_version(const struct sh_version_tuple *a, const struct sh_version_tuple *b)
{
    return a->version.epoch == b->version.epoch && a->version.number == b->version.number &&
           a->is_removal == b->is_removal;
}

/* Whether two tuples must be one. The none before the first tuple of a piece never goes on. */
static bool goes_on(const struct sh_version_tuple *before, const struct sh_version_tuple *tuple)
{
    return before->first && tuple->first - before->last == 1 && has_same_version(before, tuple);
}

static uint32_t checksum(const uint8_t *head, struct sh_bytes tuples)
{
    return sh_crc32c(sh_crc32c(0, sh_bytes_make(head, CHECKSUM_AT)), tuples);
}

/* --- Writing ---------------------------------------------------------------------------------- */

struct sh_version_writer sh_version_writer_begin(const struct sh_version_piece *piece,
                                                 uint8_t *into, size_t room)
{
    SH_ASSERT(room >= SH_VERSION_LOG_HEAD && room <= UINT32_MAX);
    return (struct sh_version_writer){.piece = *piece,
                                      .into = into,
                                      .room = room,
                                      .size = SH_VERSION_LOG_HEAD,
                                      .latest_at = SH_VERSION_LOG_HEAD};
}

static uint8_t *put_more(uint8_t *at, uint64_t more)
{
    unsigned bytes = more > MORE_SHORT ? sh_field_bytes(more) : 0;
    *at++ = (uint8_t)(bytes ? MORE_SHORT + bytes : more);
    return sh_field_put(at, more, bytes);
}

/* Returns the tuple's bytes. */
static size_t encode(const struct sh_version_tuple *tuple, const struct sh_version_tuple *before,
                     uint8_t into[SH_VERSION_LOG_TUPLE_MAX])
{
    uint64_t gap = tuple->first - before->last - 1;
    bool has_epoch = tuple->version.epoch != before->version.epoch;
    bool is_run = tuple->first != tuple->last;
    unsigned gap_at = gap_code(gap), number_at = number_code(tuple->version.number);
    uint8_t *at = into;
    *at++ =
        (uint8_t)(gap_at << GAP_SHIFT | number_at << NUMBER_SHIFT | (has_epoch ? HAS_EPOCH : 0u) |
                  (tuple->is_removal ? IS_REMOVAL : 0u) | (is_run ? IS_RUN : 0u));
    at = sh_field_put(at, gap, gap_bytes[gap_at]);
    if (is_run)
        at = put_more(at, tuple->last - tuple->first);
    at = sh_field_put(at, tuple->version.epoch, has_epoch ? 2 : 0);
    at = sh_field_put(at, tuple->version.number, number_bytes[number_at]);
    return (size_t)(at - into);
}

/* A tuple that goes on where the latest one ends is written once more, with it, in its place. */
bool sh_version_writer_put(struct sh_version_writer *w, const struct sh_version_tuple *tuple)
{
    SH_ASSERT(tuple->first > w->latest.last && tuple->first <= tuple->last);
    SH_ASSERT(tuple->version.number <= SH_REPLOG_NUMBER_MAX);
    bool is_more = goes_on(&w->latest, tuple);
    struct sh_version_tuple whole = *tuple;
    if (is_more)
        whole.first = w->latest.first;
    size_t at = is_more ? w->latest_at : w->size;
    uint8_t encoded[SH_VERSION_LOG_TUPLE_MAX];
    size_t size = encode(&whole, is_more ? &w->before : &w->latest, encoded);
    if (size > w->room - at)
        return false;
    memcpy(w->into + at, encoded, size);
    if (!is_more)
        w->before = w->latest;
    w->latest = whole;
    w->latest_at = at;
    w->size = at + size;
    return true;
}

size_t sh_version_writer_end(struct sh_version_writer *w, bool is_last)
{
    SH_ASSERT(w->size >= SH_VERSION_LOG_HEAD && w->size <= w->room);
    size_t tuples = w->size - SH_VERSION_LOG_HEAD;
    uint8_t *head = w->into;
    unsigned flags = (is_last ? IS_LAST : 0) | (w->piece.is_compaction ? IS_COMPACTION : 0);
    sh_store32(head + MAGIC_AT, MAGIC);
    sh_store16(head + FORMAT_AT, FORMAT);
    sh_store16(head + FLAGS_AT, (uint16_t)flags);
    sh_store64(head + ZONE_AT, w->piece.zone);
    sh_store64(head + FLUSH_AT, w->piece.flush);
    sh_store32(head + PLACE_AT, w->piece.place);
    sh_store32(head + TUPLES_AT, (uint32_t)tuples);
    sh_store32(head + CHECKSUM_AT,
               checksum(head, sh_bytes_make(head + SH_VERSION_LOG_HEAD, tuples)));
    return w->size;
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* The checksum is looked at before all that it covers, so what another format or zone says has been written so. */
enum shoal_err sh_version_reader_open(struct sh_bytes bytes, uint64_t zone,
                                      struct sh_version_reader *reader_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    const uint8_t *head = sh_reader_take(&r, SH_VERSION_LOG_HEAD);
    if (!head || sh_load32(head + MAGIC_AT) != MAGIC)
        return SHOAL_ECORRUPT;
    size_t size = sh_load32(head + TUPLES_AT);
    struct sh_bytes tuples = sh_bytes_make(sh_reader_take(&r, size), size);
    if (!tuples.at || sh_load32(head + CHECKSUM_AT) != checksum(head, tuples))
        return SHOAL_ECORRUPT;
    if (sh_load16(head + FORMAT_AT) != FORMAT)
        return SHOAL_EVERSION;
    unsigned flags = sh_load16(head + FLAGS_AT);
    if (flags & ~(IS_LAST | IS_COMPACTION))
        return SHOAL_ECORRUPT;
    if (sh_load64(head + ZONE_AT) != zone)
        return SHOAL_EDIFFERS;
    struct sh_version_reader reader = {.size = SH_VERSION_LOG_HEAD + size,
                                       .in = sh_reader_make(tuples)};
    reader.piece = (struct sh_version_piece){.zone = zone,
                                             .flush = sh_load64(head + FLUSH_AT),
                                             .place = sh_load32(head + PLACE_AT),
                                             .is_last = flags & IS_LAST,
                                             .is_compaction = flags & IS_COMPACTION};
    *reader_out = reader;
    return SHOAL_OK;
}

/* How many chunks a run has more than one; 0, which no run has, where the field is longer than it need be. */
static uint64_t get_more(struct sh_reader *r)
{
    unsigned byte = sh_get8(r);
    if (byte <= MORE_SHORT)
        return byte;
    unsigned bytes = byte - MORE_SHORT;
    uint64_t more = sh_field_get(r, bytes);
    return more > MORE_SHORT && sh_field_bytes(more) == bytes ? more : 0;
}

/* Whether the tuple that was read would be written with this type, behind the tuple before. */
static bool is_shortest(unsigned type, const struct sh_version_tuple *tuple,
                        const struct sh_version_tuple *before)
{
    uint64_t gap = tuple->first - before->last - 1;
    bool has_epoch = type & HAS_EPOCH;
    return gap_code(gap) == (type >> GAP_SHIFT & 7) &&
           number_code(tuple->version.number) == (type >> NUMBER_SHIFT & 3) &&
           has_epoch == (tuple->version.epoch != before->version.epoch) && !goes_on(before, tuple);
}

enum sh_version_got sh_version_reader_next(struct sh_version_reader *reader,
                                           struct sh_version_tuple *tuple_out)
{
    struct sh_reader in = reader->in;
    const struct sh_version_tuple *before = &reader->before;
    if (!sh_reader_left(&in))
        return SH_VERSION_END;
    unsigned type = sh_get8(&in);
    struct sh_version_tuple tuple = {.is_removal = type & IS_REMOVAL};
    uint64_t gap = sh_field_get(&in, gap_bytes[type >> GAP_SHIFT & 7]);
    uint64_t more = type & IS_RUN ? get_more(&in) : 0, left = UINT64_MAX - before->last;
    tuple.version.epoch = type & HAS_EPOCH ? sh_get16(&in) : before->version.epoch;
    tuple.version.number = (uint32_t)sh_field_get(&in, number_bytes[type >> NUMBER_SHIFT & 3]);
    if (!sh_reader_ok(&in) || (type & IS_RUN && !more))
        return SH_VERSION_DAMAGED;
    if (gap >= left || more > left - gap - 1) /* behind the last ID that there is */
        return SH_VERSION_DAMAGED;
    tuple.first = before->last + gap + 1;
    tuple.last = tuple.first + more;
    if (tuple.version.number > SH_REPLOG_NUMBER_MAX || !is_shortest(type, &tuple, before))
        return SH_VERSION_DAMAGED;
    reader->before = tuple;
    reader->in = in;
    *tuple_out = tuple;
    return SH_VERSION_TUPLE;
}

bool sh_version_piece_next(struct sh_bytes slot, size_t *at, uint64_t zone, uint64_t flush_least,
                           struct sh_version_reader *reader_out)
{
    while (*at < slot.size) {
        struct sh_bytes rest = sh_bytes_make(slot.at + *at, slot.size - *at);
        if (!sh_version_reader_open(rest, zone, reader_out)) {
            *at += reader_out->size;
            return reader_out->piece.flush >= flush_least;
        }
        if (*at % WRITE_BYTES == 0)
            break;
        *at += WRITE_BYTES - *at % WRITE_BYTES;
    }
    return false;
}
