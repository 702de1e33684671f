/* A thousand meters, each with its last reading, in a log: written over and over, found again at the next start.
 *
 *   cc meters.c $(pkg-config --cflags --libs shoallog) && ./a.out && ./a.out
 *
 * A meter is a chunk of one zone. The log keeps every reading until its cleaner sees that a newer one is on the disk; so
 * the file stays small, however often the meters are read. A program steps the log, and is never made to wait by it. */
#include <stdio.h>
#include <string.h>

#include <shoallog/replog.h>

#define METERS 1000u
#define READINGS 200000u
#define ZONE 1u

struct reading {
    uint64_t count; /* of this meter, since ever */
    char text[56];
};

static struct sh_replog *meters_log;
static struct sh_clock clock_;
static struct reading readings[METERS];
static uint64_t zone_end = 1; /* number of the next write */
static bool zone_is_read;

static uint32_t seconds_now(void)
{
    return (uint32_t)(clock_.wall_ns(clock_.arg) / 1000000000);
}

static void step(void)
{
    (void)sh_replog_step(meters_log, sh_now(&clock_), seconds_now());
}

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    (void)arg;
    (void)zone;
    if (item->local_id <= METERS && item->payload.size == sizeof(struct reading))
        memcpy(&readings[item->local_id - 1], item->payload.at, sizeof(struct reading));
    return SHOAL_OK;
}

static void on_read(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    (void)zone;
    *(enum shoal_err *)arg = err;
    zone_end = end;
    zone_is_read = true;
}

/* Reads what the log has of the zone, if it has it. */
static enum shoal_err zone_read(void)
{
    enum shoal_err err = SHOAL_OK, read_err = SHOAL_OK;
    struct sh_replog_zone *zone = sh_replog_zone_find(meters_log, ZONE);
    const struct sh_replog_read read = {.take = on_item, .done = on_read, .arg = &read_err};
    if (!zone)
        return SHOAL_OK;
    err = sh_replog_zone_read(zone, &read);
    while (!err && !zone_is_read)
        step();
    return err ? err : read_err;
}

static enum shoal_err meters_write(struct sh_replog_zone *zone)
{
    for (unsigned i = 0; i < READINGS; i++) {
        struct reading *reading = &readings[i % METERS];
        const struct sh_replog_write write = {
            .local_id = i % METERS + 1,
            .creator = 1,
            .pieces = 1,
            .payload = {(const uint8_t *)reading, sizeof *reading},
        };
        enum shoal_err err;
        reading->count++;
        snprintf(reading->text, sizeof reading->text, "reading %u", i);
        while ((err = sh_replog_append(zone, &write)) == SHOAL_EAGAIN)
            step(); /* no room in memory: the disk is behind */
        if (err)
            return err;
    }
    sh_replog_sync(zone);
    while (sh_replog_durable(zone) < sh_replog_next(zone) && !sh_replog_trouble(meters_log))
        step();
    return sh_replog_trouble(meters_log);
}

static enum shoal_err run(struct sh_disk *disk)
{
    const struct sh_replog_config config = {.disk = disk,
                                            .name = "meters.log",
                                            .random = sh_real_random(),
                                            .cluster = 1,
                                            .node = 1,
                                            .slot_bytes = 1 << 20,
                                            .slots = 40,
                                            .primary_blocks = 1024,
                                            .buffer_bytes = 8 << 20,
                                            .batch_bytes = 128 << 10,
                                            .linger_ns = 100000000,
                                            .versions_max = 4096};
    enum shoal_err err = sh_replog_open(&config, sh_now(&clock_), seconds_now(), &meters_log);
    if (!err)
        err = zone_read();
    const struct sh_replog_zone_config zone_config = {.id = ZONE,
                                                      .owner = 1,
                                                      .incarnation = 1,
                                                      .first = zone_end,
                                                      .bytes_max = 8 << 20,
                                                      .rest_max = METERS};
    struct sh_replog_zone *zone;
    if (!err)
        err = sh_replog_zone_add(meters_log, &zone_config, &zone);
    if (!err)
        err = meters_write(zone);
    if (!err)
        printf("meter 7: %llu readings since ever, the last one \"%s\"\n",
               (unsigned long long)readings[6].count, readings[6].text);
    sh_replog_close(meters_log);
    return err;
}

int main(int argc, char **argv)
{
    struct sh_disk *disk;
    clock_ = sh_real_clock();
    enum shoal_err err = sh_real_disk_create(argc > 1 ? argv[1] : "meters-log", false, &disk);
    if (!err) {
        err = run(disk);
        disk->ops->destroy(disk);
    }
    if (err)
        fprintf(stderr, "meters: %s\n", shoal_err_text(err));
    return err != SHOAL_OK;
}
