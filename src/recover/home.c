#include "recover/home.h"

#include <stdlib.h>

#include "env/disk.h"
#include "recover/completions.h"

/* A chunk that came in pieces: the one thing that may be there without a claim (docs/backup.md). */
struct large {
    uint64_t chunk;
    uint32_t size;
};

struct recovering {
    const struct sh_recover_home *home;
    struct sh_recovered *found;
    struct sh_completions *completions; /* NULL: nobody wants to know */
    bool is_over;
    enum shoal_err err;
    uint64_t end; /* the number of the zone's next write */
    uint64_t live;
    struct sh_zone_claim *claims; /* by their places; those that are not there are empty */
    size_t claims_count, claims_room;
    struct large *larges;
    size_t larges_count, larges_room;
    uint64_t *left; /* chunks of which the zone has an image, but which are not its */
    size_t left_count, left_room;
};

/* --- What the log has -------------------------------------------------------------------------- */

static void *grown(void *array, size_t *room, size_t wanted, size_t each)
{
    if (wanted <= *room)
        return array;
    size_t more = 2 * *room > wanted ? 2 * *room : wanted + 7;
    void *larger = realloc(array, more * each);
    if (larger)
        *room = more;
    return larger;
}

static enum shoal_err claim_take(struct recovering *recovering, uint64_t place,
                                 const struct sh_replog_item *item)
{
    if (item->payload.size != 16 || place >= UINT32_MAX)
        return SHOAL_ECORRUPT;
    struct sh_zone_claim *claims =
        grown(recovering->claims, &recovering->claims_room, place + 1, sizeof *recovering->claims);
    if (!claims)
        return SHOAL_ENOMEM;
    recovering->claims = claims;
    for (; recovering->claims_count <= place; recovering->claims_count++)
        claims[recovering->claims_count] = (struct sh_zone_claim){.first = 1};
    claims[place] =
        (struct sh_zone_claim){sh_load64(item->payload.at), sh_load64(item->payload.at + 8)};
    return SHOAL_OK;
}

static enum shoal_err completion_take(struct recovering *recovering, struct sh_bytes bytes)
{
    struct sh_completion completion;
    if (!sh_completion_get(bytes, &completion))
        return SHOAL_ECORRUPT;
    sh_backup_completion_found(recovering->home->backup, bytes);
    return recovering->completions ? sh_completions_add(recovering->completions, &completion)
                                   : SHOAL_OK;
}

static enum shoal_err large_add(struct recovering *recovering, uint64_t chunk, uint32_t size)
{
    struct large *larges = grown(recovering->larges, &recovering->larges_room,
                                 recovering->larges_count + 1, sizeof *recovering->larges);
    if (!larges)
        return SHOAL_ENOMEM;
    recovering->larges = larges;
    larges[recovering->larges_count++] = (struct large){chunk, size};
    return SHOAL_OK;
}

static enum shoal_err left_add(struct recovering *recovering, uint64_t chunk)
{
    if (recovering->left_count && recovering->left[recovering->left_count - 1] == chunk)
        return SHOAL_OK; /* another piece of it */
    uint64_t *left = grown(recovering->left, &recovering->left_room, recovering->left_count + 1,
                           sizeof *recovering->left);
    if (!left)
        return SHOAL_ENOMEM;
    recovering->left = left;
    left[recovering->left_count++] = chunk;
    return SHOAL_OK;
}

static shoal_cid cid_of(const struct recovering *recovering, uint64_t chunk)
{
    bool is_own = chunk >> 48 == recovering->home->nid.v;
    return (shoal_cid){is_own && recovering->home->is_nameless ? chunk & ~(UINT64_MAX << 48)
                                                               : chunk};
}

/* A chunk is there, perhaps of zeros by now. */
static void count(struct recovering *recovering, uint32_t size)
{
    recovering->live += size + SH_ZONE_CHUNK_BYTES;
    recovering->found->chunks++;
    recovering->found->payload_bytes += size;
}

/* A piece goes to its place in the chunk, which the first one that comes makes. */
static enum shoal_err piece_take(struct recovering *recovering, uint64_t chunk,
                                 const struct sh_replog_item *item)
{
    struct sh_store *store = recovering->home->store;
    shoal_cid cid = cid_of(recovering, chunk);
    enum shoal_err err = sh_store_adopt(store, cid, sh_bytes_make(NULL, item->total));
    if (!err) {
        count(recovering, item->total);
        err = large_add(recovering, chunk, item->total);
    } else if (err == SHOAL_EEXIST) {
        err = SHOAL_OK;
    }
    if (!err && item->payload.at)
        err = sh_store_put_part(store, cid, item->offset, item->payload);
    return err;
}

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    struct recovering *recovering = arg;
    (void)zone;
    uint64_t chunk = (uint64_t)item->creator << 48 | item->local_id;
    if (item->creator == 0 && item->local_id == SH_REPLOG_COMPLETION_ID)
        return completion_take(recovering, item->payload);
    if (item->creator == 0)
        return claim_take(recovering, item->local_id - 1, item);
    if (sh_backup_is_claimed(recovering->home->backup, chunk))
        return left_add(recovering, chunk); /* a later zone has it, or has removed it */
    if (item->pieces > 1)
        return piece_take(recovering, chunk, item);
    enum shoal_err err =
        sh_store_adopt(recovering->home->store, cid_of(recovering, chunk), item->payload);
    if (!err)
        count(recovering, (uint32_t)item->payload.size);
    return err == SHOAL_EEXIST ? SHOAL_OK : err; /* it was found twice */
}

static void on_done(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct recovering *recovering = arg;
    (void)zone;
    recovering->end = end;
    recovering->err = err;
    recovering->is_over = true;
}

/* --- One zone after the other ------------------------------------------------------------------ */

/* Steps the log until what was begun is over. */
static enum shoal_err await(struct recovering *recovering)
{
    const struct sh_recover_home *home = recovering->home;
    const struct sh_clock *clock = &home->clock;
    while (!recovering->is_over) {
        unsigned work = sh_replog_step(home->log, sh_now(clock),
                                       (uint32_t)(clock->wall_ns(clock->arg) / 1000000000));
        if (!work && !sh_disk_poll(home->disk, true) && sh_replog_trouble(home->log))
            return sh_replog_trouble(home->log);
    }
    return recovering->err;
}

static bool is_claimed(const struct recovering *recovering, uint64_t chunk)
{
    for (size_t i = 0; i < recovering->claims_count; i++) {
        if (recovering->claims[i].first <= chunk && chunk <= recovering->claims[i].last)
            return true;
    }
    return false;
}

/* A large chunk that was about to move here when the process ended is still the earlier zone's. */
static enum shoal_err unclaimed_drop(struct recovering *recovering)
{
    for (size_t i = 0; i < recovering->larges_count; i++) {
        const struct large *large = &recovering->larges[i];
        if (is_claimed(recovering, large->chunk))
            continue;
        enum shoal_err err =
            sh_store_remove(recovering->home->store, cid_of(recovering, large->chunk));
        if (!err)
            err = left_add(recovering, large->chunk);
        if (err)
            return err;
        recovering->live -= large->size + SH_ZONE_CHUNK_BYTES;
        recovering->found->chunks--;
        recovering->found->payload_bytes -= large->size;
    }
    return SHOAL_OK;
}

static enum shoal_err zone_bring_back(struct recovering *recovering, struct sh_replog_zone *zone)
{
    const struct sh_recover_home *home = recovering->home;
    uint64_t number = sh_replog_zone_id(zone) & ~(UINT64_MAX << 48);
    recovering->is_over = false;
    recovering->live = 0;
    recovering->claims_count = recovering->larges_count = recovering->left_count = 0;
    recovering->found->zone = number;
    const struct sh_replog_read read = {
        .rest_max = 4096, .take = on_item, .done = on_done, .arg = recovering};
    enum shoal_err err = sh_replog_zone_read(zone, &read);
    if (!err)
        err = await(recovering);
    if (!err)
        err = unclaimed_drop(recovering);
    if (!err)
        err = sh_backup_zone_found(home->backup, home->log, number, recovering->claims,
                                   recovering->claims_count, recovering->live, recovering->end);
    if (err)
        return err;
    for (size_t i = 0; i < recovering->left_count; i++)
        sh_backup_left_found(home->backup, number, recovering->left[i]);
    recovering->found->zones++;
    recovering->found->left += recovering->left_count;
    return SHOAL_OK;
}

/* A create whose chunk is gone, as the create was cut short, or nobody has heard of the chunk that others have removed, may as well
 * be done again. */
static void completion_tell(void *arg, const struct sh_completion *completion)
{
    const struct recovering *recovering = arg;
    uint32_t size;
    if (completion->is_create &&
        sh_store_size(recovering->home->store, cid_of(recovering, completion->chunk), &size))
        return;
    recovering->home->completed(recovering->home->arg, completion);
    recovering->found->completions++;
}

enum shoal_err sh_recover_home_run(const struct sh_recover_home *home,
                                   struct sh_recovered *found_out)
{
    struct recovering recovering = {.home = home, .found = found_out};
    enum shoal_err err = SHOAL_OK;
    *found_out = (struct sh_recovered){0};
    if (home->completed)
        err = sh_completions_create(&recovering.completions);
    uint64_t above = (uint64_t)(home->nid.v + 1) << 48;
    struct sh_replog_zone *zone;
    while (!err && (zone = sh_replog_zone_below(home->log, above)) &&
           sh_replog_zone_id(zone) >> 48 == home->nid.v) {
        above = sh_replog_zone_id(zone);
        err = zone_bring_back(&recovering, zone);
    }
    if (!err && recovering.completions)
        sh_completions_each(recovering.completions, completion_tell, &recovering);
    sh_completions_destroy(recovering.completions);
    free(recovering.claims);
    free(recovering.larges);
    free(recovering.left);
    return err;
}
