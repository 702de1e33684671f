#include "log/span.h"

#include "base/assert.h"
#include "base/hash.h"

#define SIZE_MAX_24 ((1u << 24) - 1)
#define SYNCED_LATER 1u
#define TELLS 2u
#define TELLS_SLOTTED 4u
#define GIVES 8u

static uint32_t checksum(const uint8_t head[SH_SPAN_HEAD_BYTES])
{
    return sh_crc32c(0, sh_bytes_make(head + 4, SH_SPAN_HEAD_BYTES - 4));
}

static uint16_t flags_of(const struct sh_span *span)
{
    return (span->is_synced_later ? SYNCED_LATER : 0) | (span->tells ? TELLS : 0) |
           (span->tells_slotted ? TELLS_SLOTTED : 0) | (span->gives ? GIVES : 0);
}

void sh_span_put(const struct sh_span *span, uint8_t into[SH_SPAN_HEAD_BYTES])
{
    const struct sh_replog_context *context = &span->context;
    SH_ASSERT(context->local_id <= SH_REPLOG_LOCAL_ID_MAX && context->size <= SIZE_MAX_24);
    sh_store64(into + 4, span->zone);
    sh_store64(into + 12, span->use);
    sh_store64(into + 20, span->first);
    sh_store32(into + 28, span->sequences);
    sh_store32(into + 32, span->bytes);
    sh_store32(into + 36, span->incarnation);
    sh_store64(into + 40, span->gives ? span->given_use
                                      : (context->local_id | (uint64_t)context->creator << 48));
    sh_store32(into + 48, context->size);
    sh_store32(into + 52, span->gives ? span->given_parts : context->seconds);
    sh_store32(into + 56, context->sum);
    sh_store16(into + 60, context->epoch);
    sh_store16(into + 62, span->life);
    sh_store64(into + 64, span->whole);
    sh_store64(into + 72, span->life_first);
    sh_store32(into + 80, span->sound);
    sh_store16(into + 84, flags_of(span));
    sh_store16(into + 86, span->unslotted_piece);
    sh_store64(into + 88, span->ordinal);
    sh_store64(into + 96, span->teller);
    sh_store16(into + 104, span->unsettled);
    sh_store16(into + 106, span->noted);
    sh_store32(into + 108, span->counted);
    sh_store32(into + 112, span->unslotted);
    sh_store32(into + 116, span->flushes);
    sh_store32(into, checksum(into));
}

bool sh_span_get(const uint8_t from[SH_SPAN_HEAD_BYTES], struct sh_span *span_out)
{
    if (sh_load32(from) != checksum(from) || sh_load32(from + 48) > SIZE_MAX_24 ||
        sh_load16(from + 84) > (SYNCED_LATER | TELLS | TELLS_SLOTTED | GIVES))
        return false;
    uint64_t last = sh_load64(from + 40);
    *span_out = (struct sh_span){.zone = sh_load64(from + 4),
                                 .use = sh_load64(from + 12),
                                 .first = sh_load64(from + 20),
                                 .sequences = sh_load32(from + 28),
                                 .bytes = sh_load32(from + 32),
                                 .whole = sh_load64(from + 64),
                                 .incarnation = sh_load32(from + 36),
                                 .life = sh_load16(from + 62),
                                 .life_first = sh_load64(from + 72),
                                 .sound = sh_load32(from + 80),
                                 .is_synced_later = sh_load16(from + 84) & SYNCED_LATER,
                                 .ordinal = sh_load64(from + 88),
                                 .tells = sh_load16(from + 84) & TELLS,
                                 .unslotted_piece = sh_load16(from + 86),
                                 .tells_slotted = sh_load16(from + 84) & TELLS_SLOTTED,
                                 .teller = sh_load64(from + 96),
                                 .unsettled = sh_load16(from + 104),
                                 .noted = sh_load16(from + 106),
                                 .counted = sh_load32(from + 108),
                                 .flushes = sh_load32(from + 116),
                                 .unslotted = sh_load32(from + 112),
                                 .context = {.local_id = last & SH_REPLOG_LOCAL_ID_MAX,
                                             .size = sh_load32(from + 48),
                                             .seconds = sh_load32(from + 52),
                                             .sum = sh_load32(from + 56),
                                             .creator = (uint16_t)(last >> 48),
                                             .epoch = sh_load16(from + 60)}};
    if (sh_load16(from + 84) & GIVES) {
        span_out->gives = true;
        span_out->given_use = last;
        span_out->given_parts = sh_load32(from + 52);
        span_out->context = (struct sh_replog_context){.size = 0};
    }
    return true;
}
