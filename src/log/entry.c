#include "log/entry.h"

#include "base/assert.h"
#include "base/hash.h"
#include "log/field_int.h"

enum type_bits {
    LOCAL_ID_SHIFT = 0,
    LENGTH_SHIFT = 3,
    VERSION_SHIFT = 5,
    HAS_CREATOR = 1 << 8,
    HAS_EPOCH = 1 << 9,
    HAS_SECONDS = 1 << 10,
    HAS_PIECE = 1 << 11,
    IS_REMOVAL = 1 << 12,
    IS_ZEROS = 1 << 13,
    IS_WITH_NEXT = 1 << 14,
    IS_ENTRY = 1 << 15
};

#define COMPLETION 7u /* in the place of the local ID's bytes */
#define MEANING_BYTES 32
#define MEANING_PIECE_BYTES 40
/* Flags in the meaning. */
#define MEANS_REMOVAL 1
#define MEANS_ZEROS 2
#define MEANS_WITH_NEXT 4

struct sh_replog_version sh_replog_version_renamed(struct sh_replog_version version, uint16_t eon)
{
    uint32_t epoch = sh_replog_epoch_in_eon(version.epoch);
    uint32_t number =
        version.number < SH_REPLOG_EPOCH_NUMBER_MAX ? version.number : SH_REPLOG_EPOCH_NUMBER_MAX;
    return (struct sh_replog_version){eon, epoch ? epoch << 16 | number : 0};
}

struct sh_replog_context sh_replog_context_first(uint16_t owner, uint16_t epoch, uint32_t seconds,
                                                 uint32_t sum)
{
    return (struct sh_replog_context){.local_id = SH_REPLOG_LOCAL_ID_MAX,
                                      .seconds = seconds,
                                      .sum = sum,
                                      .creator = owner,
                                      .epoch = epoch};
}

static struct sh_replog_context context_after(const struct sh_replog_context *before,
                                              const struct sh_replog_entry *entry, uint32_t sum)
{
    if (sh_replog_is_completion(entry)) {
        struct sh_replog_context after = *before;
        after.seconds = entry->seconds;
        after.sum = sum;
        return after;
    }
    return (struct sh_replog_context){.local_id = entry->local_id,
                                      .size = (uint32_t)entry->payload.size,
                                      .seconds = entry->seconds,
                                      .sum = sum,
                                      .creator = entry->creator,
                                      .epoch = entry->version.epoch};
}

static uint64_t id_after(uint64_t local_id)
{
    return (local_id + 1) & SH_REPLOG_LOCAL_ID_MAX;
}

static bool is_zeros(const struct sh_replog_entry *entry)
{
    return !entry->payload.at && entry->payload.size;
}

static uint32_t checksum(const struct sh_replog_entry *entry, uint32_t sum_before)
{
    uint8_t meaning[MEANING_PIECE_BYTES];
    bool is_piece = entry->pieces > 1;
    sh_store64(meaning, entry->local_id | (uint64_t)entry->creator << 48);
    sh_store32(meaning + 8, (uint32_t)entry->payload.size);
    sh_store32(meaning + 12, entry->version.number);
    sh_store32(meaning + 16, entry->seconds);
    sh_store16(meaning + 20, entry->version.epoch);
    sh_store16(meaning + 22, entry->piece);
    sh_store16(meaning + 24, entry->pieces);
    sh_store16(meaning + 26, (entry->is_removal ? MEANS_REMOVAL : 0) |
                                 (is_zeros(entry) ? MEANS_ZEROS : 0) |
                                 (entry->is_with_next ? MEANS_WITH_NEXT : 0));
    sh_store32(meaning + 28, 0);
    sh_store32(meaning + 32, entry->offset);
    sh_store32(meaning + 36, entry->total);
    size_t size = is_piece ? MEANING_PIECE_BYTES : MEANING_BYTES;
    uint32_t sum = sh_crc32c(sum_before, sh_bytes_make(meaning, size));
    return sh_crc32c(sum, sh_bytes_make(entry->payload.at, sh_replog_entry_stored(entry)));
}

/* Whether a piece has a place in its chunk, which ends with the last one. */
static bool is_piece_sound(const struct sh_replog_entry *entry)
{
    uint64_t end = (uint64_t)entry->offset + entry->payload.size;
    bool is_last = entry->piece + 1 == entry->pieces;
    return entry->pieces > 1 && entry->piece < entry->pieces && !entry->is_with_next &&
           (is_last ? end == entry->total : end <= entry->total);
}

/* Whether a completion record has nothing that only chunks have. */
static bool is_completion_sound(const struct sh_replog_entry *entry)
{
    return entry->payload.at && entry->payload.size <= SH_REPLOG_COMPLETION_MAX &&
           entry->pieces == 1 && !entry->is_removal && !entry->version.number &&
           !entry->version.epoch;
}

size_t sh_replog_entry_head(const struct sh_replog_entry *entry, struct sh_replog_context *context,
                            uint8_t *into)
{
    SH_ASSERT(entry->local_id <= SH_REPLOG_LOCAL_ID_MAX);
    SH_ASSERT(entry->payload.size <= SH_REPLOG_PAYLOAD_MAX);
    SH_ASSERT(entry->creator || entry->local_id);
    SH_ASSERT(entry->version.number <= SH_REPLOG_NUMBER_MAX);
    SH_ASSERT(entry->pieces == 1 ? !entry->piece : is_piece_sound(entry));
    SH_ASSERT(!entry->is_removal || !entry->payload.size);
    bool is_completion = sh_replog_is_completion(entry);
    SH_ASSERT(!is_completion || is_completion_sound(entry));
    bool has_creator = !is_completion && entry->creator != context->creator;
    bool has_id = !is_completion && (has_creator || entry->local_id != id_after(context->local_id));
    bool has_size = is_completion || entry->payload.size != context->size;
    bool has_epoch = !is_completion && entry->version.epoch != context->epoch;
    bool has_seconds = entry->seconds != context->seconds;
    bool has_piece = entry->pieces > 1;
    unsigned id_bytes = has_id ? sh_field_bytes(entry->local_id | 1) : 0;
    unsigned size_bytes = has_size ? sh_field_bytes(entry->payload.size | 1) : 0;
    unsigned version_bytes = sh_field_bytes(entry->version.number);
    unsigned type = IS_ENTRY | (is_completion ? COMPLETION : id_bytes) << LOCAL_ID_SHIFT |
                    size_bytes << LENGTH_SHIFT | version_bytes << VERSION_SHIFT |
                    (has_creator ? HAS_CREATOR : 0u) | (has_epoch ? HAS_EPOCH : 0u) |
                    (has_seconds ? HAS_SECONDS : 0u) | (has_piece ? HAS_PIECE : 0u) |
                    (entry->is_removal ? IS_REMOVAL : 0u) | (is_zeros(entry) ? IS_ZEROS : 0u) |
                    (entry->is_with_next ? IS_WITH_NEXT : 0u);
    uint8_t *at = sh_field_put(into, type, 2);
    at = sh_field_put(at, entry->creator, has_creator ? 2 : 0);
    at = sh_field_put(at, entry->local_id, id_bytes);
    at = sh_field_put(at, entry->payload.size, size_bytes);
    at = sh_field_put(at, entry->version.epoch, has_epoch ? 2 : 0);
    at = sh_field_put(at, entry->version.number, version_bytes);
    at = sh_field_put(at, entry->seconds, has_seconds ? 4 : 0);
    at = sh_field_put(at, entry->piece, has_piece ? 2 : 0);
    at = sh_field_put(at, entry->pieces, has_piece ? 2 : 0);
    at = sh_field_put(at, entry->offset, has_piece ? 4 : 0);
    at = sh_field_put(at, entry->total, has_piece ? 4 : 0);
    uint32_t sum = checksum(entry, context->sum);
    at = sh_field_put(at, sum, 4);
    *context = context_after(context, entry, sum);
    return (size_t)(at - into);
}

/* Whether the parts of a header fit together; one that an encoder would make shorter is read too. A bad reader's 0
 * is no type. */
static bool is_type(unsigned type)
{
    unsigned version_bytes = type >> VERSION_SHIFT & 7, id_bytes = type >> LOCAL_ID_SHIFT & 7;
    if (id_bytes == COMPLETION)
        return type & IS_ENTRY && type >> LENGTH_SHIFT & 3 && !version_bytes &&
               !(type & (HAS_CREATOR | HAS_EPOCH | HAS_PIECE | IS_REMOVAL | IS_ZEROS));
    return type & IS_ENTRY && version_bytes <= 4 && !(type & HAS_CREATOR && !id_bytes);
}

static bool is_sound(const struct sh_replog_entry *entry, unsigned type)
{
    if (type & HAS_PIECE && !is_piece_sound(entry))
        return false;
    if (sh_replog_is_completion(entry) && !is_completion_sound(entry))
        return false;
    if (entry->version.number > SH_REPLOG_NUMBER_MAX || (!entry->creator && !entry->local_id))
        return false;
    if (type & IS_ZEROS && !entry->payload.size)
        return false;
    return !entry->is_removal || !entry->payload.size;
}

enum sh_replog_got sh_replog_entry_get(struct sh_reader *r, struct sh_replog_context *context,
                                       struct sh_replog_entry *entry_out)
{
    struct sh_reader in = *r;
    if (!sh_reader_left(&in))
        return SH_REPLOG_END;
    unsigned type = sh_get16(&in);
    if (!is_type(type))
        return SH_REPLOG_DAMAGED;
    unsigned id_bytes = type >> LOCAL_ID_SHIFT & 7, size_bytes = type >> LENGTH_SHIFT & 3;
    struct sh_replog_entry entry = {
        .pieces = 1, .is_removal = type & IS_REMOVAL, .is_with_next = type & IS_WITH_NEXT};
    bool is_completion = id_bytes == COMPLETION;
    if (is_completion) {
        entry.local_id = SH_REPLOG_COMPLETION_ID;
    } else {
        entry.creator = type & HAS_CREATOR ? sh_get16(&in) : context->creator;
        entry.local_id = id_bytes ? sh_field_get(&in, id_bytes) : id_after(context->local_id);
    }
    size_t size = size_bytes ? (size_t)sh_field_get(&in, size_bytes) : context->size;
    if (!is_completion)
        entry.version.epoch = type & HAS_EPOCH ? sh_get16(&in) : context->epoch;
    entry.version.number = (uint32_t)sh_field_get(&in, type >> VERSION_SHIFT & 7);
    entry.seconds = type & HAS_SECONDS ? sh_get32(&in) : context->seconds;
    if (type & HAS_PIECE) {
        entry.piece = sh_get16(&in);
        entry.pieces = sh_get16(&in);
        entry.offset = sh_get32(&in);
        entry.total = sh_get32(&in);
    }
    uint32_t sum = sh_get32(&in);
    entry.payload = sh_bytes_make(type & IS_ZEROS ? NULL : sh_reader_take(&in, size), size);
    if (!sh_reader_ok(&in) || !is_sound(&entry, type) || sum != checksum(&entry, context->sum))
        return SH_REPLOG_DAMAGED;
    *context = context_after(context, &entry, sum);
    *entry_out = entry;
    *r = in;
    return SH_REPLOG_ENTRY;
}
