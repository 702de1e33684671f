/* Spans, heads of slots and of log files from any bytes: whatever they say, what is read lies within the bytes.
 *
 * An odd first byte: heads get the sums and the use that they need, so that what is behind those checks is reached.
 * Its next bit: the primary log. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "log/scan.h"
#include "log/slot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX (4 * SH_SCAN_BLOCK_BYTES)
#define USE UINT64_C(7)

static uint8_t bytes[BYTES_MAX];

static void span_seal(size_t at)
{
    if (BYTES_MAX - at < SH_SPAN_HEAD_BYTES)
        return;
    sh_store64(bytes + at + 12, USE);
    bytes[at + 51] = bytes[at + 62] = bytes[at + 63] = 0;
    sh_store32(bytes + at, sh_crc32c(0, sh_bytes_make(bytes + at + 4, SH_SPAN_HEAD_BYTES - 4)));
}

static void block_seal(uint32_t magic)
{
    sh_store32(bytes, magic);
    sh_store32(bytes + 4, sh_crc32c(0, sh_bytes_make(bytes + 8, 56)));
}

static void heads_read(bool is_sealed)
{
    struct sh_log_file file;
    struct sh_log_slot_head slot;
    if (is_sealed)
        block_seal(0x676f6c73);
    if (!sh_log_file_get(bytes, &file))
        SH_ASSERT(sh_log_file_bytes(&file) > sh_log_slot_at(&file, file.slots - 1));
    if (is_sealed)
        block_seal(0x746f6c73);
    if (sh_log_slot_get(bytes, sh_load64(bytes + 24), &slot))
        SH_ASSERT(slot.kind >= SH_SLOT_ENTRIES && slot.kind <= SH_SLOT_DROPPED);
}

static void spans_read(bool is_sealed)
{
    struct sh_scan scan = {
        .bytes = sh_bytes_make(bytes, BYTES_MAX), .use = USE, .mask = UINT64_MAX};
    for (;;) {
        struct sh_span span;
        struct sh_reader entries;
        struct sh_replog_entry entry;
        size_t before = scan.at;
        if (is_sealed)
            span_seal(before);
        if (!sh_scan_next(&scan, &span, &entries))
            break;
        SH_ASSERT(scan.at >= before + SH_SPAN_HEAD_BYTES && scan.at <= BYTES_MAX);
        SH_ASSERT(sh_reader_left(&entries) <= span.bytes);
        while (sh_replog_entry_get(&entries, &span.context, &entry) == SH_REPLOG_ENTRY)
            SH_ASSERT(!sh_replog_entry_stored(&entry) ||
                      entry.payload.at + entry.payload.size <= entries.end);
    }
    SH_ASSERT(scan.at == BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    bool is_sealed = data[0] & 1;
    size_t used = size - 1 < BYTES_MAX ? size - 1 : BYTES_MAX;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, data + 1, used);
    spans_read(is_sealed);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, data + 1, used);
    heads_read(is_sealed);
    return 0;
}
