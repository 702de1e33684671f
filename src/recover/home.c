#include "recover/home.h"

#include "env/disk.h"
#include "recover/images.h"

struct recovering {
    const struct sh_recover_home *home;
    struct sh_recovered *found;
    struct sh_completions *completions; /* NULL: nobody wants to know */
    struct sh_images images;
    bool is_over;
    enum shoal_err err;
    uint64_t end; /* the number of the zone's next write */
};

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    struct recovering *recovering = arg;
    (void)zone;
    return sh_images_take(&recovering->images, item);
}

static enum shoal_err on_drop(void *arg, struct sh_replog_zone *zone, uint16_t creator,
                              uint64_t local_id)
{
    struct recovering *recovering = arg;
    (void)zone;
    return sh_images_drop(&recovering->images, creator, local_id);
}

static enum shoal_err on_flush(void *arg, struct sh_replog_zone *zone)
{
    struct recovering *recovering = arg;
    (void)zone;
    return sh_images_flush(&recovering->images);
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

/* reads_versions: before it takes any chunk, so that no outdated one takes room. */
static enum shoal_err zone_read(struct recovering *recovering, struct sh_replog_zone *zone,
                                bool reads_versions)
{
    const struct sh_replog_read read = {.take = on_item,
                                        .drop = reads_versions ? NULL : on_drop,
                                        .flush = on_flush,
                                        .done = on_done,
                                        .arg = recovering};
    recovering->is_over = false;
    sh_images_begin(&recovering->images);
    enum shoal_err err = sh_replog_zone_read(zone, &read);
    return err ? err : await(recovering);
}

static enum shoal_err zone_bring_back(struct recovering *recovering, struct sh_replog_zone *zone)
{
    const struct sh_recover_home *home = recovering->home;
    struct sh_recovered *found = recovering->found;
    struct sh_images *images = &recovering->images;
    uint64_t number = sh_replog_zone_id(zone) & ~(UINT64_MAX << 48);
    found->zone = number;
    enum shoal_err err = zone_read(recovering, zone, false);
    if (err == SHOAL_EFULL) {
        do
            err = sh_images_undo(images, 0);
        while (err == SHOAL_EAGAIN);
        if (!err)
            err = zone_read(recovering, zone, true);
    }
    while (!err && (err = sh_images_settle(images)) == SHOAL_EAGAIN)
        err = SHOAL_OK;
    found->chunks += images->chunks;
    found->payload_bytes += images->payload_bytes;
    if (!err)
        err = sh_backup_zone_found(home->backup, home->log, number, images->claims,
                                   images->claims_count, images->live, recovering->end);
    if (err)
        return err;
    for (size_t i = 0; i < images->left_count; i++)
        sh_backup_left_found(home->backup, number, images->left[i].chunk);
    found->zones++;
    found->left += images->left_count;
    return SHOAL_OK;
}

/* A create whose chunk is gone, as the create was cut short, or nobody has heard of the chunk that others have removed, may as well
 * be done again. */
static void completion_tell(void *arg, const struct sh_completion *completion)
{
    const struct recovering *recovering = arg;
    uint32_t size;
    shoal_cid cid = sh_images_cid(&recovering->images, completion->chunk);
    if (completion->is_create && sh_store_size(recovering->home->store, cid, &size))
        return;
    struct sh_completion told = *completion;
    told.is_with_chunk = completion->node;
    recovering->home->completed(recovering->home->arg, &told);
    recovering->found->completions++;
}

enum shoal_err sh_recover_home_run(const struct sh_recover_home *home,
                                   struct sh_recovered *found_out)
{
    struct recovering recovering = {.home = home,
                                    .found = found_out,
                                    .images = {.store = home->store,
                                               .backup = home->backup,
                                               .nid = home->nid,
                                               .is_nameless = home->is_nameless}};
    enum shoal_err err = SHOAL_OK;
    *found_out = (struct sh_recovered){0};
    if (home->completed)
        err = sh_completions_create(&recovering.completions);
    recovering.images.completions = recovering.completions;
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
    sh_images_end(&recovering.images);
    return err;
}
