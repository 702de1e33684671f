#include "log/slot.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"

#define FILE_MAGIC 0x676f6c73u /* "slog" */
#define SLOT_MAGIC 0x746f6c73u /* "slot" */
#define MEANING_BYTES 64

static uint32_t checksum(const uint8_t *block)
{
    return sh_crc32c(0, sh_bytes_make(block + 8, MEANING_BYTES - 8));
}

static void seal(uint8_t *block, uint32_t magic)
{
    sh_store32(block, magic);
    sh_store32(block + 4, checksum(block));
}

static bool is_zero(const uint8_t *at, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (at[i])
            return false;
    }
    return true;
}

bool sh_log_file_is_sound(const struct sh_log_file *file)
{
    return file->slot_bytes >= SH_LOG_SLOT_BYTES_MIN && file->slot_bytes <= SH_LOG_SLOT_BYTES_MAX &&
           file->slot_bytes % SH_SLOT_HEAD_BYTES == 0 && file->slots > 0 &&
           file->slots <= SH_LOG_SLOTS_MAX &&
           (!file->primary_blocks || file->primary_blocks >= SH_LOG_PRIMARY_BLOCKS_MIN);
}

void sh_log_file_put(const struct sh_log_file *file, uint8_t into[SH_SLOT_HEAD_BYTES])
{
    SH_ASSERT(sh_log_file_is_sound(file));
    memset(into, 0, SH_SLOT_HEAD_BYTES);
    sh_store64(into + 8, file->cluster);
    sh_store16(into + 16, file->node);
    sh_store16(into + 18, SH_LOG_FORMAT);
    sh_store32(into + 20, file->slot_bytes);
    sh_store32(into + 24, file->slots);
    sh_store32(into + 28, file->primary_blocks);
    sh_store64(into + 32, file->number);
    seal(into, FILE_MAGIC);
}

enum shoal_err sh_log_file_get(const uint8_t from[SH_SLOT_HEAD_BYTES], struct sh_log_file *file_out)
{
    if (is_zero(from, SH_SLOT_HEAD_BYTES))
        return SHOAL_ENONAME;
    if (sh_load32(from) != FILE_MAGIC || sh_load32(from + 4) != checksum(from))
        return SHOAL_ECORRUPT;
    if (sh_load16(from + 18) != SH_LOG_FORMAT)
        return SHOAL_EVERSION;
    struct sh_log_file file = {.cluster = sh_load64(from + 8),
                               .number = sh_load64(from + 32),
                               .node = sh_load16(from + 16),
                               .slot_bytes = sh_load32(from + 20),
                               .slots = sh_load32(from + 24),
                               .primary_blocks = sh_load32(from + 28)};
    if (!sh_log_file_is_sound(&file))
        return SHOAL_ECORRUPT;
    *file_out = file;
    return SHOAL_OK;
}

static bool is_kind(unsigned kind)
{
    return kind >= SH_SLOT_ENTRIES && kind <= SH_SLOT_DROPPED;
}

#define COPY_AT 2048 /* another sector */

void sh_log_slot_put(const struct sh_log_slot_head *head, uint8_t into[SH_SLOT_HEAD_BYTES])
{
    SH_ASSERT(is_kind(head->kind));
    memset(into, 0, SH_SLOT_HEAD_BYTES);
    sh_store64(into + 8, head->zone);
    sh_store64(into + 16, head->use);
    sh_store64(into + 24, head->file);
    sh_store16(into + 32, head->owner);
    into[34] = (uint8_t)head->kind;
    sh_store32(into + 36, head->incarnation);
    sh_store32(into + 40, head->seconds);
    sh_store64(into + 48, head->flush_least);
    seal(into, SLOT_MAGIC);
    memcpy(into + COPY_AT, into, MEANING_BYTES);
}

static bool copy_get(const uint8_t *from, uint64_t file, struct sh_log_slot_head *head_out)
{
    if (sh_load32(from) != SLOT_MAGIC || sh_load32(from + 4) != checksum(from) ||
        sh_load64(from + 24) != file || !is_kind(from[34]))
        return false;
    *head_out = (struct sh_log_slot_head){.zone = sh_load64(from + 8),
                                          .use = sh_load64(from + 16),
                                          .file = file,
                                          .owner = sh_load16(from + 32),
                                          .kind = (enum sh_log_slot_kind)from[34],
                                          .incarnation = sh_load32(from + 36),
                                          .seconds = sh_load32(from + 40),
                                          .flush_least = sh_load64(from + 48)};
    return true;
}

bool sh_log_slot_get(const uint8_t from[SH_SLOT_HEAD_BYTES], uint64_t file,
                     struct sh_log_slot_head *head_out)
{
    return copy_get(from, file, head_out) || copy_get(from + COPY_AT, file, head_out);
}

bool sh_log_slot_is_half(const uint8_t from[SH_SLOT_HEAD_BYTES])
{
    /* One that is zero is what a crash has left of the head's write, or of the zeros that took its place. */
    return !is_zero(from, MEANING_BYTES) && !is_zero(from + COPY_AT, MEANING_BYTES) &&
           memcmp(from, from + COPY_AT, MEANING_BYTES) != 0;
}

/* A copy of this file that fails its checksum. A crash may leave a part of a write over zeros: then a field lacks that is never zero, or what
 * comes last. */
static bool is_damaged_copy(const uint8_t *from, uint64_t file)
{
    bool is_sound = sh_load32(from) == SLOT_MAGIC && sh_load32(from + 4) == checksum(from);
    bool is_own = sh_load32(from) == SLOT_MAGIC || sh_load64(from + 24) == file;
    bool is_part = !sh_load32(from) || !sh_load32(from + 4) || !sh_load64(from + 16) ||
                   !sh_load64(from + 24) || !from[34];
    return !is_sound && is_own && !is_part;
}

bool sh_log_slot_is_damaged(const uint8_t from[SH_SLOT_HEAD_BYTES], uint64_t file)
{
    return is_damaged_copy(from, file) || is_damaged_copy(from + COPY_AT, file);
}

uint64_t sh_log_slot_use_of(const uint8_t from[SH_SLOT_HEAD_BYTES], unsigned copy)
{
    return sh_load64(from + (copy ? COPY_AT : 0) + 16);
}
