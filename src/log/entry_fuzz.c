/* Entries from any bytes: what can be read means the same when it is written and read again.
 *
 * An odd first byte: the others are fields, from which entries are made, so that whole spans are reached though
 * a checksum guards each entry. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SPAN_MAX (1u << 16)

static uint8_t made[SPAN_MAX], again[SPAN_MAX];

static size_t add(uint8_t *span, size_t at, const struct sh_replog_entry *entry,
                  struct sh_replog_context *context)
{
    size_t stored = sh_replog_entry_stored(entry);
    if (at + SH_REPLOG_ENTRY_HEAD_MAX + stored > SPAN_MAX)
        return at;
    at += sh_replog_entry_head(entry, context, span + at);
    if (stored)
        memcpy(span + at, entry->payload.at, stored);
    return at + stored;
}

/* A span of what the bytes say. */
static struct sh_bytes make(struct sh_reader *r)
{
    struct sh_replog_context context = sh_replog_context_first(64, 1, 1, 0);
    size_t at = 0;
    while (sh_reader_left(r)) {
        struct sh_replog_entry entry = {.local_id = sh_get64(r) >> 16, .creator = sh_get8(r)};
        entry.creator += !entry.creator && !entry.local_id;
        entry.version = (struct sh_replog_version){sh_get8(r), sh_get16(r)};
        entry.seconds = sh_get8(r);
        unsigned flags = sh_get8(r);
        entry.pieces = (uint16_t)(1 + flags % 8);
        entry.is_removal = flags / 8 % 4 == 0;
        entry.is_with_next = flags > 250 && entry.pieces == 1;
        size_t size = entry.is_removal ? 0 : sh_get8(r);
        bool is_zeros = flags / 32 % 4 == 0;
        const uint8_t *bytes = is_zeros ? NULL : sh_reader_take(r, size);
        entry.payload = sh_bytes_make(bytes, bytes || is_zeros ? size : 0);
        if (entry.pieces > 1) {
            entry.offset = flags << 20;
            entry.total = entry.offset + (uint32_t)entry.payload.size;
        }
        bool is_completion = !entry.creator && bytes && flags % 3 == 0;
        if (is_completion && entry.payload.size <= SH_REPLOG_COMPLETION_MAX)
            entry = (struct sh_replog_entry){.local_id = SH_REPLOG_COMPLETION_ID,
                                             .seconds = entry.seconds,
                                             .pieces = 1,
                                             .is_with_next = flags > 200,
                                             .payload = entry.payload};
        entry.creator += sh_replog_is_completion(&entry) && !is_completion;
        at = add(made, at, &entry, &context);
    }
    return sh_bytes_make(made, at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    struct sh_reader r = sh_reader_make(sh_bytes_make(data + 1, size - 1));
    bool is_made = data[0] & 1;
    if (is_made)
        r = sh_reader_make(make(&r));
    struct sh_replog_context context = sh_replog_context_first(64, 1, 1, 0), writing = context;
    struct sh_replog_entry entry;
    enum sh_replog_got got;
    size_t at = 0, read = 0;
    for (; (got = sh_replog_entry_get(&r, &context, &entry)) == SH_REPLOG_ENTRY; read++) {
        at = add(again, at, &entry, &writing);
        SH_ASSERT(at <= SPAN_MAX && entry.piece < entry.pieces);
    }
    SH_ASSERT(!is_made || got == SH_REPLOG_END);
    r = sh_reader_make(sh_bytes_make(again, at));
    context = sh_replog_context_first(64, 1, 1, 0);
    for (; sh_replog_entry_get(&r, &context, &entry) == SH_REPLOG_ENTRY; read--)
        SH_ASSERT(read);
    SH_ASSERT(read == 0 || at + SH_REPLOG_ENTRY_HEAD_MAX + 256 > SPAN_MAX);
    return 0;
}
