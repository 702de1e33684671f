/* Makes a log of replicas in a folder, for the end-to-end tests of `shoal log`: e2e_log FOLDER NAME, which is created anew.
 *
 * Zone 64:1 has the chunks 64:1 to 64:200, of which the first 50 are written twice, 64:7 is removed, and 64:300 comes in pieces;
 * zone 65:2 has chunk 65:1, and one of node 64's. Zone 64:3 was written, and dropped. All of it is durable. It prints "made",
 * and keeps the folder taken until its standard input ends, as a node would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "log/replog.h"

#define CHUNKS 200u
#define TWICE 50u
#define SETTLES_EACH 40u
#define SIZE 500u
#define LARGE 40000u

static struct sh_replog *log_;
static uint64_t now_ns = UINT64_C(1000000000);

static void check(enum shoal_err err, const char *text)
{
    if (!err)
        return;
    fprintf(stderr, "%s: %s\n", text, shoal_err_name(err));
    exit(1);
}

static void step(void)
{
    now_ns += 100000;
    (void)sh_replog_step(log_, now_ns, (uint32_t)(now_ns / 1000000000));
    check(sh_replog_trouble(log_), "step");
}

static void append(struct sh_replog_zone *zone, const struct sh_replog_write *write)
{
    enum shoal_err err;
    while ((err = sh_replog_append(zone, write)) == SHOAL_EAGAIN)
        step();
    check(err, "append");
}

static void write_chunk(struct sh_replog_zone *zone, uint16_t creator, uint64_t local_id,
                        uint8_t fill, size_t size)
{
    static uint8_t payload[LARGE];
    size_t most = sh_replog_piece_max(log_);
    uint16_t pieces = size ? (uint16_t)((size + most - 1) / most) : 1;
    memset(payload, fill, size);
    for (uint16_t i = 0; i < pieces; i++) {
        size_t at = i * most, left = size - at;
        append(zone, &(struct sh_replog_write){
                         .local_id = local_id,
                         .creator = creator,
                         .is_removal = !size,
                         .piece = i,
                         .pieces = pieces,
                         .total = pieces > 1 ? (uint32_t)size : 0,
                         .payload = sh_bytes_make(payload + at, left < most ? left : most)});
    }
}

static struct sh_replog_zone *zone_make(uint16_t owner, uint64_t number)
{
    struct sh_replog_zone *zone;
    const struct sh_replog_zone_config config = {.id = (uint64_t)owner << 48 | number,
                                                 .owner = owner,
                                                 .incarnation = 1,
                                                 .bytes_max = 1 << 20,
                                                 .range_first = (uint64_t)owner << 48 | 1,
                                                 .range_count = 1000,
                                                 .rest_max = 1000};
    check(sh_replog_zone_add(log_, &config, &zone), "zone");
    return zone;
}

static void settle(struct sh_replog_zone *zone)
{
    sh_replog_sync(zone);
    while (sh_replog_durable(zone) < sh_replog_next(zone))
        step();
}

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    (void)id;
    check(err, "drop");
    *(bool *)arg = true;
}

static void fill(void)
{
    struct sh_replog_zone *first = zone_make(64, 1), *second = zone_make(65, 2),
                          *third = zone_make(64, 3);
    bool is_dropped = false;
    for (unsigned i = 1; i <= CHUNKS; i++) {
        write_chunk(first, 64, i, 0x11, SIZE);
        if (i % SETTLES_EACH == 0)
            settle(first); /* so that later spans say that the ones before were on the disk */
    }
    write_chunk(third, 64, 900, 0x33, SIZE);
    settle(third);
    check(sh_replog_zone_drop(third, on_dropped, &is_dropped), "drop");
    while (!is_dropped)
        step();
    for (unsigned i = 1; i <= TWICE; i++)
        write_chunk(first, 64, i, 0x22, SIZE);
    write_chunk(first, 64, 7, 0, 0);
    write_chunk(first, 64, 300, 0x44, LARGE);
    write_chunk(second, 65, 1, 0x55, 10);
    write_chunk(second, 64, 1000, 0x66, 10);
    /* A pair, of which one is zeros. */
    static const uint8_t bytes[10] = {0x77};
    const struct sh_replog_write with = {.local_id = 1001,
                                         .creator = 64,
                                         .pieces = 1,
                                         .payload = sh_bytes_make(bytes, sizeof bytes)};
    append(second, &(struct sh_replog_write){.local_id = 2,
                                             .creator = 65,
                                             .pieces = 1,
                                             .payload = sh_bytes_make(NULL, 100),
                                             .with = &with});
    settle(first);
    settle(second);
}

int main(int argc, char **argv)
{
    struct sh_disk *disk;
    if (argc != 3)
        return 2;
    check(sh_real_disk_create(argv[1], false, &disk), "folder");
    check(sh_real_disk_take(disk), "take");
    const struct sh_replog_config config = {.disk = disk,
                                            .name = argv[2],
                                            .random = sh_real_random(),
                                            .cluster = 4711,
                                            .node = 66,
                                            .slot_bytes = 64 << 10,
                                            .slots = 80,
                                            .primary_blocks = 256,
                                            .buffer_bytes = 2 << 20,
                                            .batch_bytes = 16 << 10,
                                            .linger_ns = 1000000,
                                            .versions_max = 64};
    check(sh_replog_open(&config, now_ns, 1, &log_), "open");
    fill();
    sh_replog_close(log_);
    puts("made");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    disk->ops->destroy(disk);
    return 0;
}
