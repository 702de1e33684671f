/* A sector's state: chunks that were moved, decisions about batches, and its bytes. */
#include "cluster/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/metadata_int.h"
#include "cluster/view.h"

/* Leaves of a tree: enough for all ranges at the worst fill, 20 boundaries each. */
#define RANGE_NODES_MAX 16384

static shoal_cid first_of(shoal_nid creator)
{
    return shoal_cid_make(creator, 0);
}

static shoal_cid last_of(shoal_nid creator)
{
    return shoal_cid_make(creator, SHOAL_LOCAL_ID_MAX);
}

enum shoal_err sh_metadata_create(struct sh_metadata **metadata_out)
{
    *metadata_out = calloc(1, sizeof **metadata_out);
    return *metadata_out ? SHOAL_OK : SHOAL_ENOMEM;
}

void sh_metadata_destroy(struct sh_metadata *metadata)
{
    for (unsigned i = 0; metadata && i < SH_SECTORS; i++)
        sh_metadata_clear(metadata, i);
    free(metadata);
}

static void sector_clear(struct sh_metadata_sector *sector)
{
    sh_ranges_destroy(sector->ranges);
    free(sector->sources);
    sh_metadata_names_clear(sector);
    *sector = (struct sh_metadata_sector){0};
}

void sh_metadata_clear(struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SECTORS);
    sector_clear(&metadata->sectors[number]);
}

enum shoal_err sh_metadata_ranges(struct sh_metadata_sector *sector)
{
    return sector->ranges ? SHOAL_OK : sh_ranges_create(RANGE_NODES_MAX, &sector->ranges);
}

/* --- Sources --------------------------------------------------------------------------------- */

struct sh_metadata_source *sh_metadata_source(struct sh_metadata_sector *sector, shoal_nid nid)
{
    size_t at = 0;
    while (at < sector->source_count && sector->sources[at].nid.v < nid.v)
        at++;
    if (at < sector->source_count && sector->sources[at].nid.v == nid.v)
        return &sector->sources[at];
    if (sector->source_count == sector->source_room) {
        size_t room = sector->source_room ? 2 * sector->source_room : 8;
        struct sh_metadata_source *sources = realloc(sector->sources, room * sizeof *sources);
        if (!sources)
            return NULL;
        sector->sources = sources;
        sector->source_room = room;
    }
    struct sh_metadata_source *source = &sector->sources[at];
    memmove(source + 1, source, (sector->source_count - at) * sizeof *source);
    *source = (struct sh_metadata_source){.nid = nid};
    sector->source_count++;
    return source;
}

/* --- Moved chunks ---------------------------------------------------------------------------- */

static struct sh_range find(const struct sh_metadata_sector *sector, shoal_cid cid)
{
    shoal_nid creator = shoal_cid_creator(cid);
    struct sh_range range;
    if (sector->ranges && sh_ranges_find(sector->ranges, cid, &range))
        return range;
    /* A creator's IDs are all in the tree, or none is. */
    return (struct sh_range){first_of(creator), last_of(creator), creator.v};
}

struct sh_range sh_metadata_find(const struct sh_metadata *metadata, shoal_cid cid)
{
    return find(&metadata->sectors[sh_arc_sector(shoal_cid_creator(cid))], cid);
}

static enum shoal_err runs_give(struct sh_metadata_sector *sector,
                                const struct sh_metadata_update *update)
{
    for (size_t i = 0; i < update->count; i++) {
        struct sh_range range = find(sector, update->runs[i].first);
        if (range.value != update->from.v || range.last.v < update->runs[i].last.v)
            return SHOAL_ENOTOWNER;
    }
    enum shoal_err err = sh_metadata_ranges(sector);
    SH_ASSERT(!err);
    if (sh_ranges_count(sector->ranges) + 2 * update->count + 1 > SH_METADATA_RANGES_MAX)
        return SHOAL_ELIMIT;
    struct sh_range whole = find(sector, update->runs[0].first);
    err = sh_ranges_set(sector->ranges, whole.first, whole.last, whole.value);
    SH_ASSERT(!err); /* the tree has room for more ranges than we let in, at the worst fill */
    for (size_t i = 0; i < update->count; i++) {
        err = sh_ranges_set(sector->ranges, update->runs[i].first, update->runs[i].last,
                            update->to.v);
        SH_ASSERT(!err);
    }
    return SHOAL_OK;
}

static struct sh_metadata_result move(struct sh_metadata_sector *sector,
                                      const struct sh_metadata_update *update)
{
    struct sh_metadata_result result = {.err = SHOAL_ECANCELED};
    struct sh_metadata_source *source = sh_metadata_source(sector, update->from);
    SH_ASSERT(source);
    uint64_t last = source->decided >> 1;
    if (update->sequence < last)
        return result;
    if (update->sequence > last) {
        result.err = runs_give(sector, update);
        source->decided = update->sequence << 1 | (result.err == SHOAL_OK);
    } else if (source->decided & 1) {
        result.err = SHOAL_OK;
    }
    return result;
}

static struct sh_metadata_result resolve(struct sh_metadata_sector *sector,
                                         const struct sh_metadata_update *update)
{
    struct sh_metadata_source *source = sh_metadata_source(sector, update->from);
    SH_ASSERT(source);
    uint64_t last = source->decided >> 1;
    if (update->sequence > last)
        source->decided = update->sequence << 1;
    /* An older one: the target would have had to learn of it before it could give anything away, so
     * who owns it now says what became of it. */
    bool is_committed = update->sequence < last
                            ? find(sector, update->runs[0].first).value == update->to.v
                            : source->decided & 1;
    return (struct sh_metadata_result){.is_committed = is_committed};
}

/* What the node held is nobody's. If nothing that it created is anywhere, its ID may be another
 * node's, who begins with all of it. */
static struct sh_metadata_result forget(struct sh_metadata_sector *sector, shoal_nid nid)
{
    struct sh_range range;
    shoal_cid from = {0};
    while (sector->ranges && sh_ranges_next(sector->ranges, from, &range)) {
        if (range.value == nid.v) {
            enum shoal_err err = sh_ranges_set(sector->ranges, range.first, range.last, 0);
            SH_ASSERT(!err); /* no range more than before */
        }
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
    if (sector->ranges && sh_ranges_find(sector->ranges, first_of(nid), &range) &&
        range.value == 0 && range.last.v >= last_of(nid).v) {
        enum shoal_err err = sh_ranges_remove(sector->ranges, first_of(nid), last_of(nid));
        SH_ASSERT(!err);
    }
    struct sh_metadata_source *source = sh_metadata_source(sector, nid);
    SH_ASSERT(source);
    source->decided = 0;
    return (struct sh_metadata_result){.err = SHOAL_OK};
}

struct sh_metadata_result sh_metadata_apply(struct sh_metadata *metadata, unsigned number,
                                            const struct sh_metadata_update *update)
{
    SH_ASSERT(number < SH_SECTORS);
    struct sh_metadata_sector *sector = &metadata->sectors[number];
    switch (update->kind) {
    case SH_METADATA_MOVE:
        return move(sector, update);
    case SH_METADATA_RESOLVE:
        return resolve(sector, update);
    case SH_METADATA_FORGET:
        return forget(sector, update->from);
    default:
        return sh_metadata_name_apply(sector, update);
    }
}

/* --- Updates as bytes ------------------------------------------------------------------------ */

/* MOVE, RESOLVE: u16 from, u16 to, u64 sequence, u16 count, runs. FORGET: u16 from. NAME, UNNAME:
 * u8 condition, u64 chunk ID, u64 expected, text name. Before all of them u8 kind. */
void sh_metadata_update_put(struct sh_writer *w, const struct sh_metadata_update *update)
{
    sh_put8(w, update->kind);
    if (update->kind >= SH_METADATA_NAME) {
        sh_put8(w, update->condition);
        sh_put64(w, update->cid.v);
        sh_put64(w, update->expected.v);
        sh_put_text(w, update->name);
        return;
    }
    sh_put16(w, update->from.v);
    if (update->kind == SH_METADATA_FORGET)
        return;
    sh_put16(w, update->to.v);
    sh_put64(w, update->sequence);
    sh_put16(w, (uint16_t)update->count);
    for (size_t i = 0; i < update->count; i++) {
        sh_put64(w, update->runs[i].first.v);
        sh_put64(w, update->runs[i].last.v);
    }
}

static bool is_peer(shoal_nid nid)
{
    return nid.v >= SH_PEER_NID_MIN && nid.v <= SH_PEER_NID_MAX;
}

static bool batch_get(struct sh_reader *r, unsigned sector, struct sh_metadata_update *update)
{
    update->to.v = sh_get16(r);
    update->sequence = sh_get64(r);
    update->count = sh_get16(r);
    if (!sh_reader_ok(r) || !is_peer(update->to) || update->from.v == update->to.v ||
        !update->sequence || update->sequence > UINT64_MAX >> 1 || !update->count ||
        update->count > SH_METADATA_RUNS_MAX ||
        (update->kind == SH_METADATA_RESOLVE && update->count > 1))
        return false;
    for (size_t i = 0; i < update->count; i++) {
        struct sh_metadata_run *run = &update->runs[i];
        run->first.v = sh_get64(r);
        run->last.v = sh_get64(r);
        shoal_nid creator = shoal_cid_creator(run->first);
        if (run->last.v < run->first.v || shoal_cid_creator(run->last).v != creator.v ||
            !is_peer(creator) || sh_arc_sector(creator) != sector ||
            (i > 0 &&
             (run->first.v <= run[-1].last.v || shoal_cid_creator(run[-1].first).v != creator.v)))
            return false;
    }
    return true;
}

enum shoal_err sh_metadata_update_get(struct sh_bytes bytes, unsigned sector,
                                      struct sh_metadata_update *update_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    memset(update_out, 0, sizeof *update_out);
    update_out->kind = sh_get8(&r);
    bool is_good = true;
    switch (update_out->kind) {
    case SH_METADATA_MOVE:
    case SH_METADATA_RESOLVE:
        update_out->from.v = sh_get16(&r);
        is_good = is_peer(update_out->from) && batch_get(&r, sector, update_out);
        break;
    case SH_METADATA_FORGET:
        update_out->from.v = sh_get16(&r);
        is_good = is_peer(update_out->from);
        break;
    case SH_METADATA_NAME:
    case SH_METADATA_UNNAME:
        update_out->condition = sh_get8(&r);
        update_out->cid.v = sh_get64(&r);
        update_out->expected.v = sh_get64(&r);
        update_out->name = sh_get_text(&r);
        is_good = update_out->condition <= SH_NAME_CURRENT && update_out->name.size &&
                  update_out->name.size <= SH_NAME_BYTES_MAX &&
                  sh_arc_sector_of_name(update_out->name) == sector;
        break;
    default:
        is_good = false;
    }
    return is_good && sh_reader_done(&r) ? SHOAL_OK : SHOAL_EPROTO;
}

unsigned sh_metadata_sector(const struct sh_metadata_update *update)
{
    if (update->kind == SH_METADATA_NAME || update->kind == SH_METADATA_UNNAME)
        return sh_arc_sector_of_name(update->name);
    SH_ASSERT(update->kind != SH_METADATA_FORGET && update->count); /* that one is of all sectors */
    return sh_arc_sector(shoal_cid_creator(update->runs[0].first));
}

/* --- Images ---------------------------------------------------------------------------------- */

#define RANGE_BYTES 18
#define SOURCE_BYTES 10
#define NAME_BYTES 10 /* with the length */

size_t sh_metadata_image_size(const struct sh_metadata *metadata, unsigned number)
{
    const struct sh_metadata_sector *sector = &metadata->sectors[number];
    size_t size = 12 + SOURCE_BYTES * sector->source_count + NAME_BYTES * sector->name_count;
    if (sector->ranges)
        size += RANGE_BYTES * sh_ranges_count(sector->ranges);
    for (size_t i = 0; i < sector->name_count; i++)
        size += sector->names[i].size;
    return size;
}

void sh_metadata_image_put(const struct sh_metadata *metadata, unsigned number, struct sh_writer *w)
{
    const struct sh_metadata_sector *sector = &metadata->sectors[number];
    struct sh_range range;
    shoal_cid from = {0};
    sh_put32(w, sector->ranges ? (uint32_t)sh_ranges_count(sector->ranges) : 0);
    while (sector->ranges && sh_ranges_next(sector->ranges, from, &range)) {
        sh_put64(w, range.first.v);
        sh_put64(w, range.last.v);
        sh_put16(w, (uint16_t)range.value);
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
    sh_put32(w, (uint32_t)sector->source_count);
    for (size_t i = 0; i < sector->source_count; i++) {
        sh_put16(w, sector->sources[i].nid.v);
        sh_put64(w, sector->sources[i].decided);
    }
    sh_put32(w, (uint32_t)sector->name_count);
    for (size_t i = 0; i < sector->name_count; i++) {
        sh_put64(w, sector->names[i].cid.v);
        sh_put_text(w, sh_bytes_make(sector->names[i].bytes, sector->names[i].size));
    }
}

static enum shoal_err ranges_get(struct sh_metadata_sector *sector, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    if (count > SH_METADATA_RANGES_MAX)
        return SHOAL_EPROTO;
    enum shoal_err err = count ? sh_metadata_ranges(sector) : SHOAL_OK;
    for (uint32_t i = 0; !err && i < count; i++) {
        struct sh_range range = {.first = {sh_get64(r)}};
        range.last.v = sh_get64(r);
        range.value = sh_get16(r);
        if (!sh_reader_ok(r) || range.last.v < range.first.v)
            return SHOAL_EPROTO;
        err = sh_ranges_set(sector->ranges, range.first, range.last, range.value);
    }
    return err;
}

static enum shoal_err names_get(struct sh_metadata_sector *sector, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    if (count > SH_METADATA_NAMES_MAX)
        return SHOAL_EPROTO;
    for (uint32_t i = 0; i < count; i++) {
        shoal_cid cid = {sh_get64(r)};
        struct sh_bytes name = sh_get_text(r);
        bool is_found;
        if (!sh_reader_ok(r) || !name.size || name.size > SH_NAME_BYTES_MAX)
            return SHOAL_EPROTO;
        if (sh_metadata_name_lower(sector, name, &is_found) != i || is_found)
            return SHOAL_EPROTO; /* not in order */
        enum shoal_err err = sh_metadata_name_insert(sector, i, name, cid);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

static enum shoal_err sources_get(struct sh_metadata_sector *sector, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    for (uint32_t i = 0; i < count; i++) {
        shoal_nid nid = {sh_get16(r)};
        uint64_t decided = sh_get64(r);
        if (!sh_reader_ok(r))
            return SHOAL_EPROTO;
        struct sh_metadata_source *source = sh_metadata_source(sector, nid);
        if (!source)
            return SHOAL_ENOMEM;
        source->decided = decided;
    }
    return SHOAL_OK;
}

enum shoal_err sh_metadata_image_get(struct sh_metadata *metadata, unsigned number,
                                     struct sh_bytes image)
{
    SH_ASSERT(number < SH_SECTORS);
    struct sh_metadata_sector fresh = {0};
    struct sh_reader r = sh_reader_make(image);
    enum shoal_err err = ranges_get(&fresh, &r);
    if (!err)
        err = sources_get(&fresh, &r);
    if (!err)
        err = names_get(&fresh, &r);
    if (!err && !sh_reader_done(&r))
        err = SHOAL_EPROTO;
    if (err) {
        sector_clear(&fresh);
        return err;
    }
    sector_clear(&metadata->sectors[number]);
    metadata->sectors[number] = fresh;
    return SHOAL_OK;
}
