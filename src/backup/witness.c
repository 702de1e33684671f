/* The store's witness: gives each change its number, within the chunk's write section. */
#include "backup/backup_int.h"
#include "base/assert.h"

#define ADMITTED_MAX 16 /* chunks of one group */

/* Changes that were admitted in the section that the thread is in. */
struct admitted {
    shoal_cid cid;
    struct sh_zone_place place;
    uint64_t room; /* of the backlog */
    uint64_t before, after;
    bool is_left; /* the removal of a create that failed, for which there was no room */
};
static _Thread_local struct {
    struct admitted all[ADMITTED_MAX];
    unsigned count;
} section;

/* For whom the thread changes chunks; NULL: nobody waits. */
static _Thread_local struct sh_write *writer;

/* For which cursor of which zone the thread retells chunks; NULL: it changes them. */
static _Thread_local struct {
    struct sh_own_zone *zone;
    uint8_t only;
} teller;

void sh_backup_writer_set(struct sh_write *write)
{
    writer = write;
}

void sh_backup_teller_set(struct sh_own_zone *zone, uint8_t only)
{
    teller.zone = zone;
    teller.only = only;
}

/* Whether the thread retells chunks so that they move to another zone. */
static _Thread_local bool is_evacuator;

void sh_backup_evacuator_set(bool is_one)
{
    is_evacuator = is_one;
}

/* Where a change is recorded; what is retold, in the zone for which it is, if that has the chunk still: until its move to another zone is durable
 * there, recovery may find the move or not, so it is still here, too, as it is now. ENOTOWNER: it has not. */
static enum shoal_err place_find(struct sh_backup *backup, uint64_t chunk, uint64_t before,
                                 uint64_t after, struct sh_zone_place *place_out)
{
    if (!teller.zone) {
        enum shoal_err err = sh_zones_place(backup, chunk, before, after, place_out);
        return !err && is_evacuator && !place_out->from ? SHOAL_ENOTOWNER : err;
    }
    *place_out = (struct sh_zone_place){.zone = teller.zone, .number = teller.zone->number};
    bool is_here =
        sh_zones_find(backup, chunk) == teller.zone || sh_zone_has_left(teller.zone, chunk);
    return is_here ? SHOAL_OK : SHOAL_ENOTOWNER;
}

/* Whether the zone takes the thread's write: the log of the own disk has room, and there is a backup where the write waits for any. The write waits
 * where there may be one soon, as other nodes could keep replicas, or may be about to come; else it wants more than there can be. What is
 * retold goes to another backup; a removal waits for room, like what was recorded before it. */
static enum shoal_err zone_check(const struct sh_own_zone *zone, bool is_removal)
{
    if (!teller.zone && !is_removal && atomic_load_explicit(&zone->is_full, memory_order_relaxed))
        return SHOAL_ENOSPC;
    if (!atomic_load_explicit(&zone->is_bare, memory_order_relaxed) || !writer ||
        writer->own == SH_LEVEL_ASYNC)
        return SHOAL_OK;
    return atomic_load(&zone->is_hopeful) ? SHOAL_EAGAIN : SHOAL_ENOBACKUP;
}

/* Returns what it was before. */
static uint64_t live_add(struct sh_own_zone *zone, uint64_t bytes)
{
    return atomic_fetch_add_explicit(&zone->live, bytes, memory_order_relaxed);
}

static void place_count(const struct admitted *admitted)
{
    struct sh_own_zone *to = admitted->place.zone;
    struct sh_own_zone *from = admitted->place.from ? admitted->place.from : to;
    uint64_t change = -admitted->before;
    if (from == to)
        change += admitted->after;
    else
        live_add(to, admitted->after);
    uint64_t was = live_add(from, change), is = was + change;
    uint64_t sparse = sh_zone_sparse_bytes(from->backup);
    if (is < was && (!is || (was >= sparse && is < sparse)))
        sh_zone_emptied(from);
}

static enum shoal_err refused(enum shoal_err err)
{
    if (err == SHOAL_EAGAIN && writer)
        writer->was_refused = true;
    return err;
}

/* Whether a large image of the chunk is on its way. */
static bool is_on_its_way(struct sh_own_zones *zones, uint64_t chunk)
{
    sh_lock_take(&zones->lock);
    bool is_so = sh_zones_large(zones, chunk) != NULL;
    sh_lock_release(&zones->lock);
    return is_so;
}

/* Whether it is on its way to another zone: its own zone, which is not held, then admits
 * nothing of it. Asked with the chunk held, which whoever tells that image takes once more after it has begun. */
static bool is_moving(struct sh_backup *backup, uint64_t chunk)
{
    struct sh_own_zones *zones = &backup->zones;
    return atomic_load_explicit(&zones->larges_moving, memory_order_acquire) &&
           is_on_its_way(zones, chunk);
}

/* --- What came of a request -------------------------------------------------------------------- */

/* Bytes that a completion record may take, where the next change has one. */
static uint32_t completion_room(void)
{
    return writer && writer->request && !writer->is_told ? SH_COMPLETION_BYTES_MAX : 0;
}

/* The field's value before the request added to it. */
static uint64_t summand_of(const struct sh_write_request *request, const uint8_t *field)
{
    if (request->width == 4)
        return (uint32_t)(sh_load32(field) - request->delta);
    return sh_load64(field) - request->delta;
}

/* The entry takes along what came of the writer's request, if that did not go with another one. field: of a request for a summand, 8
 * bytes from the field on, as they are now. */
static void completion_set(struct sh_backlog_entry *entry, struct sh_own_zone *zone, uint64_t chunk,
                           const uint8_t *field)
{
    if (!completion_room())
        return;
    const struct sh_write_request *request = writer->request;
    const struct sh_completion completion = {
        .client = request->client,
        .number = request->number,
        .acknowledged = zone->adopted ? 0 : request->acknowledged,
        /* In a zone that another node has made, 0 is that one (recover/images.h). */
        .node = zone->adopted ? zone->backup->config.nid.v : 0,
        .chunk = chunk,
        .is_create = request->result == SH_WRITE_CHUNK,
        .value = request->result == SH_WRITE_SUMMAND ? summand_of(request, field) : 0};
    entry->completion_size = (uint8_t)sh_completion_put(&completion, entry->completion);
    writer->is_told = true;
    atomic_fetch_add(&zone->told, 1);
}

/* Copies what a part of an image has of the field that the writer's request adds to. */
static void field_copy(uint8_t *field, uint32_t offset, struct sh_bytes bytes)
{
    const struct sh_write_request *request = writer ? writer->request : NULL;
    if (!request || request->result != SH_WRITE_SUMMAND || !bytes.at)
        return;
    for (unsigned i = 0; i < request->width; i++) {
        uint64_t at = (uint64_t)request->offset + i;
        if (at >= offset && at < offset + bytes.size)
            field[i] = bytes.at[at - offset];
    }
}

/* --- One change -------------------------------------------------------------------------------- */

static enum shoal_err backlog_admit(const struct sh_zone_place *place, uint64_t bytes)
{
    struct sh_backlog *backlog = &place->zone->backlog;
    enum shoal_err err = sh_backlog_admit(backlog, bytes);
    if (err || sh_zone_is(place))
        return err;
    /* It was dropped since it was found: the chunk is another zone's, or nobody's. */
    sh_backlog_cancel(backlog, bytes);
    return SHOAL_EAGAIN;
}

/* Takes room for a change. */
static enum shoal_err room_take(struct sh_backup *backup, struct admitted *admitted, uint64_t bytes)
{
    uint64_t chunk = sh_backup_chunk(backup, admitted->cid);
    enum shoal_err err = atomic_load_explicit(&backup->trouble, memory_order_relaxed);
    if (!err && is_moving(backup, chunk))
        err = SHOAL_EAGAIN;
    if (!err)
        err = place_find(backup, chunk, admitted->before, admitted->after, &admitted->place);
    if (err)
        return err;
    err = zone_check(admitted->place.zone, !admitted->after);
    if (err && admitted->place.from)
        sh_zones_move_cancel(backup, &admitted->place, writer);
    if (err)
        return err;
    admitted->room = bytes + completion_room() + (admitted->place.from ? SH_CLAIM_BYTES : 0);
    err = backlog_admit(&admitted->place, admitted->room);
    if (err && admitted->place.from)
        sh_zones_move_cancel(backup, &admitted->place, writer);
    return err;
}

static enum shoal_err on_admit(void *arg, shoal_cid cid, enum sh_store_event event,
                               uint32_t size_before, uint32_t size)
{
    struct sh_backup *backup = arg;
    bool is_made = event == SH_STORE_MADE, is_written = event == SH_STORE_WRITTEN;
    struct admitted admitted = {.cid = cid,
                                .before = is_made ? 0 : sh_zone_bytes_of(size_before),
                                .after = is_made || is_written ? sh_zone_bytes_of(size) : 0};
    /* What is larger and does not come in pieces is zeros. */
    bool has_bytes = admitted.after && size <= SH_STORE_PIECE_BYTES;
    enum shoal_err err =
        room_take(backup, &admitted, sh_backlog_bytes(!has_bytes, admitted.after ? size : 0));
    if (err && event == SH_STORE_UNMADE) {
        admitted.place = (struct sh_zone_place){0};
        admitted.place.zone =
            sh_zones_find_numbered(backup, sh_backup_chunk(backup, cid), &admitted.place.number);
        admitted.is_left = true;
        err = SHOAL_OK;
    }
    if (err)
        return refused(err);
    SH_ASSERT(section.count < ADMITTED_MAX);
    section.all[section.count++] = admitted;
    place_count(&admitted);
    return SHOAL_OK;
}

/* Takes the first one out that was admitted of a chunk. */
static struct admitted admitted_take(shoal_cid cid)
{
    unsigned i = 0;
    while (section.all[i].cid.v != cid.v)
        i++;
    SH_ASSERT(i < section.count);
    struct admitted admitted = section.all[i];
    section.count--;
    for (; i < section.count; i++)
        section.all[i] = section.all[i + 1];
    return admitted;
}

static struct sh_backlog_entry entry_of(uint64_t chunk, enum sh_store_event event,
                                        struct sh_bytes image)
{
    bool is_image = event == SH_STORE_MADE || event == SH_STORE_WRITTEN;
    struct sh_backlog_entry entry = {.chunk = chunk,
                                     .kind = SH_BACKLOG_REMOVAL,
                                     .pieces = 1,
                                     .only = teller.only,
                                     .size = is_image ? (uint32_t)image.size : 0,
                                     .at = image.at};
    if (is_image)
        entry.kind = image.at ? SH_BACKLOG_IMAGE : SH_BACKLOG_ZEROS;
    return entry;
}

static void on_record(void *arg, shoal_cid cid, enum sh_store_event event, struct sh_bytes image)
{
    struct sh_backup *backup = arg;
    struct admitted admitted = admitted_take(cid);
    struct sh_own_zone *zone = admitted.place.zone;
    uint64_t chunk = sh_backup_chunk(backup, cid), number;
    struct sh_backlog_entry entry = entry_of(chunk, event, image);
    uint8_t field[8] = {0};
    if (admitted.is_left) {
        sh_zones_leave(backup, &admitted.place, chunk);
        return;
    }
    field_copy(field, 0, image);
    if (event != SH_STORE_UNMADE)
        completion_set(&entry, zone, chunk, field);
    if (event == SH_STORE_MADE || admitted.place.from)
        sh_zones_made(backup, zone, chunk);
    if (admitted.place.from) {
        number = sh_zones_move(backup, chunk, &admitted.place, event == SH_STORE_MADE, &entry);
    } else {
        if (!teller.zone)
            sh_evacuation_mark(zone, chunk);
        number = sh_backlog_record(&zone->backlog, NULL, &entry);
    }
    uint64_t used = sh_backlog_bytes(entry.kind != SH_BACKLOG_IMAGE, entry.size) +
                    entry.completion_size + (admitted.place.from ? SH_CLAIM_BYTES : 0);
    if (entry.completion_size)
        sh_zone_told(zone, number);
    if (used < admitted.room)
        sh_backlog_cancel(&zone->backlog, admitted.room - used);
    if (writer)
        sh_write_mark(backup, writer, chunk, zone, number);
    sh_zone_dirty(zone);
}

/* Room was given back that others may have been refused for. Not by one who was refused then: it would be called at once, for
 * ever; and what it was refused for ends, too. */
static void room_given(struct sh_backup *backup)
{
    if (writer && writer->was_refused)
        return;
    sh_waits_room(backup);
    backup->config.wake(backup->config.arg);
}

static void on_cancel(void *arg, shoal_cid cid, enum sh_store_event event, uint32_t size)
{
    struct sh_backup *backup = arg;
    struct admitted admitted = admitted_take(cid), undo = admitted;
    (void)event;
    (void)size;
    /* First what counts as the zone's: once no room is taken a zone that looks empty may be dropped. */
    undo.before = -admitted.before;
    undo.after = -admitted.after;
    place_count(&undo);
    if (!admitted.is_left)
        sh_backlog_cancel(&admitted.place.zone->backlog, admitted.room);
    if (admitted.place.from)
        sh_zones_move_cancel(backup, &admitted.place, writer);
    room_given(backup);
}

/* A record by itself goes with the removal of a chunk that nobody has: a record counts only with a write. */
static enum shoal_err tell(struct sh_backup *backup, uint64_t chunk,
                           const struct sh_completion *completion)
{
    struct sh_backlog_entry entry = {
        .chunk = SH_BACKLOG_NO_CHUNK, .kind = SH_BACKLOG_REMOVAL, .pieces = 1};
    struct sh_zone_place place = {0};
    enum shoal_err err = atomic_load_explicit(&backup->trouble, memory_order_relaxed);
    entry.completion_size = (uint8_t)sh_completion_put(completion, entry.completion);
    place.zone = sh_zones_find_numbered(backup, chunk, &place.number);
    if (!err && !place.zone)
        err = SHOAL_EAGAIN;
    if (!err)
        err = zone_check(place.zone, false);
    if (!err)
        err = backlog_admit(&place, sh_backlog_bytes(true, 0) + entry.completion_size);
    if (err)
        return refused(err);
    /* The chunk is not held: from here on nobody takes it out of the zone ahead of the record, but it may have left before. */
    sh_evacuation_mark(place.zone, chunk);
    if (sh_zones_find(backup, chunk) != place.zone) {
        sh_backlog_cancel(&place.zone->backlog, sh_backlog_bytes(true, 0) + entry.completion_size);
        return SHOAL_EAGAIN;
    }
    atomic_fetch_add(&place.zone->told, 1);
    uint64_t number = sh_backlog_record(&place.zone->backlog, NULL, &entry);
    sh_zone_told(place.zone, number);
    sh_write_mark(backup, writer, chunk, place.zone, number);
    sh_zone_dirty(place.zone);
    return SHOAL_OK;
}

enum shoal_err sh_backup_tell(struct sh_backup *backup, struct sh_write *write, shoal_cid cid,
                              const struct sh_completion *completion)
{
    if (!backup->is_on)
        return SHOAL_OK;
    writer = write;
    enum shoal_err err = tell(backup, sh_backup_chunk(backup, cid), completion);
    writer = NULL;
    return err;
}

/* --- In pieces --------------------------------------------------------------------------------- */

/* The zone that a large chunk's pieces go to. */
static struct sh_large *large_find(struct sh_backup *backup, uint64_t chunk)
{
    sh_lock_take(&backup->zones.lock);
    struct sh_large *large = sh_zones_large(&backup->zones, chunk);
    sh_lock_release(&backup->zones.lock);
    SH_ASSERT(large);
    return large;
}

/* Whether a change that is told at once may just be taking a chunk out of the zone: of what moves away, more than the large ones, which are known. */
static bool is_left_now(const struct sh_own_zones *zones, const struct sh_own_zone *zone)
{
    sh_lock_assert_held(&zones->lock);
    unsigned large_moves = 0;
    for (const struct sh_large *large = zones->larges; large; large = large->next)
        large_moves += large->place.from == zone;
    return zone->moves_away > large_moves;
}

/* False: another image of the chunk is on its way, or has taken it to another zone since its place was found, or may just be taking it there. From then on
 * nobody takes it to another zone (move_begin). A zone that the chunk has left before tells it for a copy: the zone's removal of it, which the held backlog
 * keeps out, comes later. */
static bool large_enter(struct sh_backup *backup, struct sh_large *large)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_own_zone *from = large->place.from ? large->place.from : large->place.zone;
    sh_lock_take(&zones->lock);
    /* Where this one moves, it is among what moves away. */
    bool is_there = large->is_left || (sh_zones_find(backup, large->chunk) == from &&
                                       (large->place.from || !is_left_now(zones, from)));
    bool is_alone = is_there && sh_zone_is(&large->place) && !sh_zones_large(zones, large->chunk);
    if (is_alone) {
        large->next = zones->larges;
        zones->larges = large;
        /* release: is_moving */
        if (large->place.from || large->is_left)
            atomic_fetch_add_explicit(&zones->larges_moving, 1, memory_order_release);
    }
    sh_lock_release(&zones->lock);
    return is_alone;
}

static void large_leave(struct sh_backup *backup, struct sh_large *large)
{
    sh_lock_take(&backup->zones.lock);
    struct sh_large **at = &backup->zones.larges;
    while (*at != large)
        at = &(*at)->next;
    *at = large->next;
    if (large->place.from || large->is_left)
        atomic_fetch_sub_explicit(&backup->zones.larges_moving, 1, memory_order_release);
    sh_lock_release(&backup->zones.lock);
}

static enum shoal_err on_pieces_begin(void *arg, shoal_cid cid, uint32_t size_before, uint32_t size)
{
    struct sh_backup *backup = arg;
    struct sh_zone_place place;
    uint64_t chunk = sh_backup_chunk(backup, cid);
    bool is_new = size_before == 0; /* what grows from no bytes is all zeros, and told at once */
    enum shoal_err err = atomic_load_explicit(&backup->trouble, memory_order_relaxed);
    /* Before the backlog is held, which would end with room for others, at each try. */
    if (!err && is_on_its_way(&backup->zones, chunk))
        err = SHOAL_EAGAIN;
    if (!err)
        err = place_find(backup, chunk, is_new ? 0 : sh_zone_bytes_of(size_before),
                         sh_zone_bytes_of(size), &place);
    if (err)
        return refused(err);
    err = zone_check(place.zone, false);
    if (!err)
        err = sh_backlog_hold(&place.zone->backlog,
                              place.from ? SH_CLAIM_BYTES + completion_room() : 0);
    if (!err) {
        struct sh_large *large = &place.zone->large;
        *large = (struct sh_large){
            .chunk = chunk, .place = place, .size = size, .is_new = is_new, .only = teller.only};
        large->is_left = teller.zone && sh_zones_find(backup, chunk) != teller.zone;
        if (large_enter(backup, large))
            return SHOAL_OK;
        sh_backlog_hold_abandon(&place.zone->backlog);
        room_given(backup);
        err = SHOAL_EAGAIN;
    }
    if (place.from)
        sh_zones_move_cancel(backup, &place, writer);
    return refused(err);
}

static enum shoal_err on_piece(void *arg, shoal_cid cid, uint32_t offset, struct sh_bytes bytes,
                               bool is_last)
{
    struct sh_backup *backup = arg;
    struct sh_large *large = large_find(backup, sh_backup_chunk(backup, cid));
    struct sh_backlog *backlog = &large->place.zone->backlog;
    uint32_t end = offset + (uint32_t)bytes.size;
    struct sh_backlog_entry piece = {.chunk = large->chunk,
                                     .kind = SH_BACKLOG_IMAGE,
                                     .pieces = sh_backlog_pieces(false, large->size),
                                     .only = large->only,
                                     .total = large->size};
    /* Nothing counts before the last piece, so the chunk is what it was. */
    if (!teller.zone && atomic_load_explicit(&large->place.zone->is_full, memory_order_relaxed))
        return SHOAL_ENOSPC;
    /* Some of these bytes may have been told when there was no room for the others. */
    SH_ASSERT(large->told >= offset && is_last == (end == large->size));
    while (large->told < end) {
        uint32_t left = end - large->told;
        piece.size = left < SH_BACKLOG_PIECE_BYTES ? left : SH_BACKLOG_PIECE_BYTES;
        piece.piece = (uint16_t)(large->told / SH_BACKLOG_PIECE_BYTES);
        piece.at = bytes.at + (large->told - offset);
        bool is_last_piece = piece.piece + 1 == piece.pieces;
        enum shoal_err err = is_last_piece
                                 ? sh_backlog_last(backlog, piece.size + completion_room())
                                 : sh_backlog_piece(backlog, &piece);
        sh_zone_dirty(large->place.zone);
        if (err)
            return refused(err);
        field_copy(large->field, large->told, sh_bytes_make(piece.at, piece.size));
        large->last = piece;
        large->told += piece.size;
    }
    return SHOAL_OK;
}

static void on_pieces_end(void *arg, shoal_cid cid, uint32_t size_before, bool is_made)
{
    struct sh_backup *backup = arg;
    struct sh_large *large = large_find(backup, sh_backup_chunk(backup, cid)), done = *large;
    struct sh_own_zone *zone = large->place.zone;
    uint64_t number;
    large_leave(backup, large);
    if (!is_made) {
        bool has_pieces = done.told > 0;
        sh_backlog_hold_abandon(&zone->backlog);
        if (done.place.from)
            sh_zones_move_cancel(backup, &done.place, writer);
        if (has_pieces)
            sh_zone_dirty(zone);
        room_given(backup);
        return;
    }
    const struct admitted counted = {.place = done.place,
                                     .before = done.is_new ? 0 : sh_zone_bytes_of(size_before),
                                     .after = sh_zone_bytes_of(done.size)};
    place_count(&counted);
    if (done.is_new || done.place.from)
        sh_zones_made(backup, zone, done.chunk);
    /* Where it moves, it counts if its claim does, which comes behind it. */
    struct sh_backlog_entry *entry = done.place.from ? &done.with_claim : &done.last;
    completion_set(entry, zone, done.chunk, done.field);
    if (done.place.from) {
        number = sh_zones_move_large(backup, &done);
    } else {
        sh_evacuation_mark(zone, done.chunk);
        number = sh_backlog_hold_end(&zone->backlog, &done.last, NULL);
    }
    if (entry->completion_size)
        sh_zone_told(zone, number);
    if (writer)
        sh_write_mark(backup, writer, done.chunk, zone, number);
    sh_zone_dirty(zone);
}

void sh_backup_witness_set(struct sh_backup *backup)
{
    const struct sh_store_witness witness = {.admit = on_admit,
                                             .record = on_record,
                                             .cancel = on_cancel,
                                             .pieces_begin = on_pieces_begin,
                                             .piece = on_piece,
                                             .pieces_end = on_pieces_end,
                                             .arg = backup};
    sh_store_witness_set(backup->config.store, &witness);
}
