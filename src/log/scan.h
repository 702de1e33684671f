/* Reading spans back: of a slot behind its head, or of the primary log.
 *
 * Spans of one write lie one behind the other; each write begins at a block of 4 KiB and is filled up with zeros. In a
 * slot the writes touch each other; what a crash has torn, or what is damaged, is passed over: behind it a span may begin at any
 * block.
 *
 * Pure functions over bytes that were read; any thread. */
#ifndef SH_LOG_SCAN_H
#define SH_LOG_SCAN_H

#include "log/span.h"

#define SH_SCAN_BLOCK_BYTES 4096u

struct sh_scan {
    struct sh_bytes bytes; /* borrowed; begins at a block */
    uint64_t use, mask;    /* only spans of this use count, by the bits of the mask */
    size_t at;             /* where the next span is looked for */
    size_t begin;          /* of the last one */
    bool is_behind_gap;    /* before it something was passed over */
};

/* The next span, with its entries, which lie in the scan's bytes. False: there is none. A span whose bytes are not
 * all there gives those that are. */
bool sh_scan_next(struct sh_scan *scan, struct sh_span *span_out, struct sh_reader *entries_out);

#endif
