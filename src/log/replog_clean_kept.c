/* Which entries the cleaner may drop though they are current, as others are the same. */
#include "base/hash.h"
#include "log/replog_clean_int.h"

/* The parts of a chunk have the same size, but for a few bytes, and each is more than half of the most that a piece may have. Pieces of
 * zeros take no room in a slot; those that the table has no room for count as not kept. */
void sh_replog_kept_pieces_make(struct sh_replog_kept_pieces *kept,
                                const struct sh_replog_zone *zone,
                                struct sh_replog_clean_memory *memory)
{
    const struct sh_replog *log = zone->log;
    size_t each = 2 * (log->head.slot_bytes / sh_replog_piece_max(log));
    size_t most = zone->slots.count * each;
    kept->room = most + most / 3 + 2;
    kept->count = 0;
    kept->pieces = sh_replog_clean_memory_pieces(memory, kept->room);
}

static bool is_same(const struct sh_replog_kept_piece *piece, const struct sh_replog_entry *entry)
{
    return piece->chunk == sh_replog_chunk_of(entry) &&
           piece->version.epoch == entry->version.epoch &&
           piece->version.number == entry->version.number && piece->piece == entry->piece;
}

/* The place of a piece, or the free one where it belongs. */
static struct sh_replog_kept_piece *piece_find(const struct sh_replog_kept_pieces *kept,
                                               const struct sh_replog_entry *entry)
{
    uint64_t hash = sh_mix64(sh_replog_chunk_of(entry) ^ sh_mix64(entry->piece + 1u));
    size_t at = (size_t)(hash % kept->room);
    while (kept->pieces[at].chunk && !is_same(&kept->pieces[at], entry))
        at = at + 1 < kept->room ? at + 1 : 0;
    return &kept->pieces[at];
}

void sh_replog_clean_keep(struct sh_replog_clean *clean, const struct sh_replog_entry *entry)
{
    struct sh_replog_kept_pieces *kept = &clean->kept;
    if (entry->pieces == 1) {
        sh_currents_keep(clean->currents, sh_replog_chunk_of(entry), entry->version);
        return;
    }
    if (!kept->pieces || kept->count + 1 == kept->room) /* one place stays free */
        return;
    struct sh_replog_kept_piece *piece = piece_find(kept, entry);
    kept->count += !piece->chunk;
    *piece = (struct sh_replog_kept_piece){sh_replog_chunk_of(entry), entry->version, entry->piece};
}

bool sh_replog_clean_is_kept(const struct sh_replog_clean *clean,
                             const struct sh_replog_entry *entry)
{
    if (entry->pieces == 1)
        return sh_currents_is_kept(clean->currents, sh_replog_chunk_of(entry), entry->version);
    return clean->kept.pieces && piece_find(&clean->kept, entry)->chunk;
}
