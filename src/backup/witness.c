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

void sh_backup_writer_set(struct sh_write *write)
{
    writer = write;
}

static void live_add(struct sh_zone *zone, uint64_t bytes)
{
    atomic_fetch_add_explicit(&zone->live, bytes, memory_order_relaxed);
}

static void place_count(const struct admitted *admitted)
{
    struct sh_zone *from = admitted->place.from ? admitted->place.from : admitted->place.zone;
    live_add(from, -admitted->before);
    live_add(admitted->place.zone, admitted->after);
}

static enum shoal_err on_admit(void *arg, shoal_cid cid, enum sh_store_event event,
                               uint32_t size_before, uint32_t size)
{
    struct sh_backup *backup = arg;
    bool is_made = event == SH_STORE_MADE, is_written = event == SH_STORE_WRITTEN;
    struct admitted admitted = {.cid = cid,
                                .before = is_made ? 0 : sh_zone_bytes_of(size_before),
                                .after = is_made || is_written ? sh_zone_bytes_of(size) : 0};
    enum shoal_err err = sh_zones_place(backup, sh_backup_chunk(backup, cid), admitted.before,
                                        admitted.after, &admitted.place);
    if (err)
        return err;
    /* What is larger and does not come in pieces is zeros. */
    bool has_bytes = admitted.after && size <= SH_STORE_PIECE_BYTES;
    admitted.room = sh_backlog_bytes(has_bytes ? size : 0);
    if (admitted.place.from)
        admitted.room += SH_CLAIM_BYTES;
    err = sh_backlog_admit(&admitted.place.zone->backlog, admitted.room);
    if (err && event == SH_STORE_UNMADE) {
        admitted.is_left = true;
        err = SHOAL_OK;
    }
    if (err) {
        if (admitted.place.from)
            sh_zones_move_cancel(backup, &admitted.place);
        return err;
    }
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
    struct sh_backlog_entry entry = {.local_id = chunk & SH_LOCAL_IDS,
                                     .creator = (uint16_t)(chunk >> 48),
                                     .kind = SH_BACKLOG_REMOVAL,
                                     .pieces = 1,
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
    struct sh_zone *zone = admitted.place.zone;
    uint64_t chunk = sh_backup_chunk(backup, cid), number;
    const struct sh_backlog_entry entry = entry_of(chunk, event, image);
    if (admitted.is_left) {
        sh_zones_leave(backup, zone, chunk);
        return;
    }
    if (event == SH_STORE_MADE)
        sh_zones_made(backup, chunk);
    if (admitted.place.from)
        number = sh_zones_move(backup, chunk, &admitted.place, event == SH_STORE_MADE, &entry);
    else
        number = sh_backlog_record(&zone->backlog, NULL, &entry);
    uint64_t used = sh_backlog_bytes(entry.kind == SH_BACKLOG_IMAGE ? entry.size : 0) +
                    (admitted.place.from ? SH_CLAIM_BYTES : 0);
    if (used < admitted.room)
        sh_backlog_cancel(&zone->backlog, admitted.room - used);
    if (writer)
        sh_write_mark(backup, writer, chunk, zone, number);
    sh_zone_dirty(zone);
}

static void on_cancel(void *arg, shoal_cid cid, enum sh_store_event event, uint32_t size)
{
    struct sh_backup *backup = arg;
    struct admitted admitted = admitted_take(cid), undo = admitted;
    (void)event;
    (void)size;
    if (!admitted.is_left)
        sh_backlog_cancel(&admitted.place.zone->backlog, admitted.room);
    if (admitted.place.from)
        sh_zones_move_cancel(backup, &admitted.place);
    undo.before = -admitted.before;
    undo.after = -admitted.after;
    place_count(&undo);
}

/* --- In pieces --------------------------------------------------------------------------------- */

/* A large chunk that is told of is all that its zone's backlog gets meanwhile, so the zone has its state. */
