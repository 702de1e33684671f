/* Reading the bytes of a primary log. */
#include <stdlib.h>

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

static int by_zone(const void *a, const void *b)
{
    uint64_t one = ((const struct sh_replog_latest *)a)->zone;
    uint64_t other = ((const struct sh_replog_latest *)b)->zone;
    return (one > other) - (one < other);
}

static enum shoal_err latest_add(struct sh_replog_marks *marks, const struct sh_span *span)
{
    void *items = marks->latest;
    enum shoal_err err = sh_replog_room_make(&items, marks->latest_count, &marks->latest_room,
                                             sizeof *marks->latest);
    marks->latest = items;
    if (!err)
        marks->latest[marks->latest_count++] =
            (struct sh_replog_latest){span->zone, span->incarnation};
    return err;
}

/* Leaves one for each zone. */
static void latest_settle(struct sh_replog_marks *marks)
{
    size_t count = 0;
    if (marks->latest_count)
        qsort(marks->latest, marks->latest_count, sizeof *marks->latest, by_zone);
    for (size_t i = 0; i < marks->latest_count; i++) {
        struct sh_replog_latest *last = count ? &marks->latest[count - 1] : NULL;
        if (!last || last->zone != marks->latest[i].zone)
            marks->latest[count++] = marks->latest[i];
        else if (last->incarnation < marks->latest[i].incarnation)
            last->incarnation = marks->latest[i].incarnation;
    }
    marks->latest_count = count;
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
        const struct sh_replog_dropped mark = {span.zone, span.incarnation, SH_SLOT_NONE};
        if (!span.zone || (uint32_t)span.use + 1 < last)
            continue;
        err = span.life ? latest_add(marks, &span) : sh_replog_marks_add(marks, &mark);
    }
    latest_settle(marks);
    return err;
}

bool sh_replog_ring_counts(const struct sh_replog_marks *marks, const struct sh_span *span)
{
    const struct sh_replog_latest key = {.zone = span->zone};
    const struct sh_replog_latest *latest =
        marks->latest_count ? bsearch(&key, marks->latest, marks->latest_count, sizeof key, by_zone)
                            : NULL;
    return span->zone && span->life && (!latest || span->incarnation >= latest->incarnation) &&
           !sh_replog_marks_have(marks, span->zone, span->incarnation);
}
