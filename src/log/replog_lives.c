/* The lives of a zone: which numbers of which process count (span.h). */
#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_int.h"

enum shoal_err sh_replog_lives_add(struct sh_replog_lives *lives, uint16_t life, uint64_t first,
                                   uint64_t whole)
{
    unsigned at = lives->count;
    while (at > 0 && lives->lives[at - 1].life > life)
        at--;
    struct sh_replog_life *same = at > 0 ? &lives->lives[at - 1] : NULL;
    if (same && same->life == life) {
        same->whole = whole > same->whole ? whole : same->whole;
        return SHOAL_OK;
    }
    if (lives->count == lives->room) {
        unsigned room = lives->room ? 2 * lives->room : 4;
        struct sh_replog_life *grown = realloc(lives->lives, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        lives->lives = grown;
        lives->room = room;
    }
    for (unsigned i = lives->count++; i > at; i--)
        lives->lives[i] = lives->lives[i - 1];
    lives->lives[at] = (struct sh_replog_life){life, first, whole};
    return SHOAL_OK;
}

uint64_t sh_replog_lives_end(const struct sh_replog_lives *lives, uint16_t life)
{
    uint64_t end = UINT64_MAX;
    for (unsigned i = lives->count; i-- > 0 && lives->lives[i].life > life;) {
        if (lives->lives[i].first < end)
            end = lives->lives[i].first;
    }
    return end;
}
