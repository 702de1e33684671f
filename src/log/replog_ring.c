/* Reading the bytes of a primary log. */
#include "log/replog_int.h"

#define SECRET (~(uint64_t)UINT32_MAX) /* the half of a primary use that is drawn at random */

struct sh_scan sh_replog_ring_scan(const struct sh_log_file *file, const uint8_t *ring)
{
    size_t size = (size_t)file->primary_blocks * SH_BLOCK_BYTES;
    return (struct sh_scan){
        .bytes = sh_bytes_make(ring, size), .use = file->number, .mask = SECRET};
}

uint32_t sh_replog_ring_last(const struct sh_log_file *file, const uint8_t *ring)
{
    struct sh_scan scan = sh_replog_ring_scan(file, ring);
    struct sh_span span;
    struct sh_reader entries;
    uint32_t last = 0;
    while (sh_scan_next(&scan, &span, &entries)) {
        if ((uint32_t)span.use > last)
            last = (uint32_t)span.use;
    }
    return last;
}

uint32_t sh_replog_ring_sound(const struct sh_log_file *file, const uint8_t *ring, uint32_t lap)
{
    struct sh_scan scan = sh_replog_ring_scan(file, ring);
    struct sh_span span;
    struct sh_reader entries;
    uint32_t sound = 0;
    while (sh_scan_next(&scan, &span, &entries)) {
        if ((uint32_t)span.use == lap && span.sound > sound)
            sound = span.sound;
    }
    return sound;
}

/* A span that is no mark: what the primary log has of its zone's former incarnations does not count. */
static enum shoal_err former_mark(struct sh_replog_marks *marks, const struct sh_span *span)
{
    if (!span->incarnation)
        return SHOAL_OK;
    for (unsigned i = 0; i < marks->count; i++) {
        struct sh_replog_dropped *mark = &marks->marks[i];
        if (!mark->is_of_ring || mark->zone != span->zone)
            continue;
        if (mark->incarnation < span->incarnation - 1)
            mark->incarnation = span->incarnation - 1;
        return SHOAL_OK;
    }
    return sh_replog_marks_add(
        marks, &(struct sh_replog_dropped){span->zone, span->incarnation - 1, SH_SLOT_NONE, true});
}

enum shoal_err sh_replog_ring_marks(const struct sh_log_file *file, const uint8_t *ring,
                                    struct sh_replog_marks *marks)
{
    struct sh_scan scan = sh_replog_ring_scan(file, ring);
    struct sh_span span;
    struct sh_reader entries;
    uint32_t last = sh_replog_ring_last(file, ring);
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_scan_next(&scan, &span, &entries)) {
        const struct sh_replog_dropped mark = {span.zone, span.incarnation, SH_SLOT_NONE, false};
        if (!span.zone || (uint32_t)span.use + 1 < last)
            continue;
        err = span.life ? former_mark(marks, &span) : sh_replog_marks_add(marks, &mark);
    }
    return err;
}

bool sh_replog_ring_counts(const struct sh_replog_marks *marks, const struct sh_span *span)
{
    bool is_former = false;
    for (unsigned i = 0; i < marks->count; i++)
        is_former |=
            marks->marks[i].zone == span->zone && span->incarnation <= marks->marks[i].incarnation;
    return span->zone && span->life && !is_former;
}
