#include "log/scan.h"

static size_t block_behind(size_t at)
{
    return (at / SH_SCAN_BLOCK_BYTES + 1) * SH_SCAN_BLOCK_BYTES;
}

/* A span of this use at a place. */
static bool is_span(const struct sh_scan *scan, size_t at, struct sh_span *span_out)
{
    if (at >= scan->bytes.size || scan->bytes.size - at < SH_SPAN_HEAD_BYTES ||
        !sh_span_get(scan->bytes.at + at, span_out))
        return false;
    return !((span_out->use ^ scan->use) & scan->mask);
}

bool sh_scan_next(struct sh_scan *scan, struct sh_span *span_out, struct sh_reader *entries_out)
{
    struct sh_span span;
    size_t at = scan->at;
    bool is_found = is_span(scan, at, &span);
    /* The rest of a write's last block is zero. */
    if (!is_found && at % SH_SCAN_BLOCK_BYTES) {
        at = block_behind(at);
        is_found = is_span(scan, at, &span);
    }
    scan->is_behind_gap = !is_found;
    while (!is_found && at < scan->bytes.size) {
        at += SH_SCAN_BLOCK_BYTES;
        is_found = is_span(scan, at, &span);
    }
    if (!is_found) {
        scan->at = scan->bytes.size;
        return false;
    }
    size_t left = scan->bytes.size - at - SH_SPAN_HEAD_BYTES;
    size_t size = span.bytes < left ? span.bytes : left;
    *entries_out = sh_reader_make(sh_bytes_make(scan->bytes.at + at + SH_SPAN_HEAD_BYTES, size));
    *span_out = span;
    scan->begin = at;
    scan->at = at + SH_SPAN_HEAD_BYTES + size;
    return true;
}
