/* The lives of a zone: which numbers of which process count (span.h). */
#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_int.h"

enum shoal_err sh_replog_room_make(void **items, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return SHOAL_OK;
    size_t more = *room ? 2 * *room : 64;
    void *grown = realloc(*items, more * size);
    if (!grown)
        return SHOAL_ENOMEM;
    *items = grown;
    *room = more;
    return SHOAL_OK;
}

enum shoal_err sh_replog_lives_reserve(struct sh_replog_lives *lives)
{
    if (lives->count < lives->room)
        return SHOAL_OK;
    unsigned room = lives->room ? 2 * lives->room : 4;
    struct sh_replog_life *grown = realloc(lives->lives, room * sizeof *grown);
    if (!grown)
        return SHOAL_ENOMEM;
    lives->lives = grown;
    lives->room = room;
    return SHOAL_OK;
}

/* Whether a slot, or the primary log, may have pieces of a chunk that was abandoned. */
static bool has_abandoned(const struct sh_replog_zone *zone)
{
    const struct sh_replog *log = zone->log;
    const struct sh_log_slot *slots = log->slots.slots;
    if (log->head.primary_blocks && log->lap < zone->void_lap + SH_REPLOG_LAPS)
        return true;
    uint32_t i = zone->slots.first;
    while (i != SH_SLOT_NONE &&
           (slots[i].kind != SH_SLOT_ENTRIES || slots[i].order >= zone->void_order))
        i = slots[i].next;
    return i != SH_SLOT_NONE;
}

void sh_replog_lives_forget(struct sh_replog_zone *zone)
{
    struct sh_replog_lives *lives = &zone->lives;
    if (!zone->has_void || has_abandoned(zone))
        return;
    SH_ASSERT(lives->lives[lives->count - 1].life == zone->life);
    zone->has_void = false;
    lives->lives[0] = lives->lives[lives->count - 1];
    lives->count = 1;
}

/* Whether a life came after another one. They are named by epochs; two eons' are told apart by the zone's numbers, which go on. */
static bool is_later(const struct sh_replog_life *than, uint16_t life, uint64_t first)
{
    if (sh_replog_eon_of(than->life) == sh_replog_eon_of(life))
        return than->life > life;
    return than->first != first ? than->first > first : (int16_t)(than->life - life) > 0;
}

enum shoal_err sh_replog_lives_add(struct sh_replog_lives *lives, uint16_t life, uint64_t first,
                                   uint64_t whole)
{
    unsigned at = lives->count;
    while (at > 0 && is_later(&lives->lives[at - 1], life, first))
        at--;
    struct sh_replog_life *same = at > 0 ? &lives->lives[at - 1] : NULL;
    if (same && same->life == life) {
        same->whole = whole > same->whole ? whole : same->whole;
        return SHOAL_OK;
    }
    enum shoal_err err = sh_replog_lives_reserve(lives);
    if (err)
        return err;
    for (unsigned i = lives->count++; i > at; i--)
        lives->lives[i] = lives->lives[i - 1];
    lives->lives[at] = (struct sh_replog_life){life, first, whole};
    return SHOAL_OK;
}

uint64_t sh_replog_lives_end(const struct sh_replog_lives *lives, uint16_t life)
{
    uint64_t end = UINT64_MAX;
    for (unsigned i = lives->count; i-- > 0 && lives->lives[i].life != life;) {
        if (lives->lives[i].first < end)
            end = lives->lives[i].first;
    }
    return end;
}

uint16_t sh_replog_lives_eon(const struct sh_replog_lives *lives)
{
    return lives->count ? sh_replog_eon_of(lives->lives[lives->count - 1].life) : 0;
}

void sh_replog_lives_keep_eon(struct sh_replog_lives *lives, uint16_t eon)
{
    unsigned count = 0;
    for (unsigned i = 0; i < lives->count; i++) {
        if (sh_replog_eon_of(lives->lives[i].life) == eon)
            lives->lives[count++] = lives->lives[i];
    }
    lives->count = count;
}
