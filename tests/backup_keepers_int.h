/* Real backups of an owner in a simulated world: keepers with their logs, on simulated disks, who ask the superpeer for records. In the end what their
 * logs have is read back into the fakes' models. */
#ifndef TESTS_BACKUP_KEEPERS_INT_H
#define TESTS_BACKUP_KEEPERS_INT_H

#include "backup/keeper.h"
#include "log/replog.h"
#include "tests/backup_owner_int.h"

struct real_backup {
    struct fake_backup
        *fake; /* whose life, disk and node ID it has, and whose replicas are filled in the end */
    struct sh_world *world;
    unsigned node;
    struct sh_directory *directory;
    struct sh_zones *zones;
    struct sh_replog *log;
    struct sh_keeper *keeper;
};

static struct owner owner;
static struct real_backup backups[FAKE_BACKUPS];
static bool has_owner_failed; /* by the backups' views */

static inline uint64_t now_of(const struct real_backup *backup)
{
    return sh_now(&sh_world_env(backup->world, backup->node)->clock);
}

static inline void on_durable(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    struct real_backup *backup = arg;
    bool is_its = !backup->keeper || sh_keeper_durable(backup->keeper, zone, sequence);
    assert_true(is_its);
}

static inline void on_event(void *arg, const struct sh_msg_event *event)
{
    struct real_backup *backup = arg;
    if (backup->keeper)
        sh_keeper_link_event(backup->keeper, event);
}

static inline enum sh_keeper_life life_of(void *arg, shoal_nid nid, uint64_t life)
{
    (void)arg;
    if (nid.v != FAKE_OWNER || life != FAKE_LIFE)
        return SH_KEEPER_LIFE_UNKNOWN;
    return has_owner_failed ? SH_KEEPER_LIFE_OVER : SH_KEEPER_LIFE_UP;
}

static inline void log_open(struct real_backup *backup)
{
    const struct sh_env *env = sh_world_env(backup->world, backup->node);
    const struct sh_replog_config config = {.disk = env->disk,
                                            .name = "replicas",
                                            .random = env->random,
                                            .cluster = 77,
                                            .node = backup->fake->nid.v,
                                            .slot_bytes = 128 << 10,
                                            .slots = 700,
                                            .primary_blocks = 512,
                                            .buffer_bytes = 4 << 20,
                                            .batch_bytes = 32 << 10,
                                            .linger_ns = 20 * FAKE_MS,
                                            .versions_max = 4096,
                                            .durable = on_durable,
                                            .arg = backup};
    assert_int_equal(sh_replog_open(&config, now_of(backup), 1, &backup->log), SHOAL_OK);
}

static inline void record_get(void *arg, uint64_t zone, struct sh_zone_op *op)
{
    const struct real_backup *backup = arg;
    sh_zones_get(backup->zones, zone, op);
}

static inline void zones_open(struct real_backup *backup)
{
    const struct sh_clock clock = sh_world_env(backup->world, backup->node)->clock;
    const struct sh_directory_config directory = {
        .msg = backup->fake->msg, .clock = clock, .cache_ranges_max = 16, .is_client = true};
    struct sh_view view = {.epoch = 1, .superpeers = 1};
    assert_int_equal(sh_directory_create(&directory, &backup->directory), SHOAL_OK);
    owner_node_put(&view, FAKE_SUPERPEER, 0, SH_NODE_UP, 1);
    owner_node_put(&view, FAKE_OWNER, 1, SH_NODE_UP, FAKE_LIFE);
    assert_int_equal(sh_directory_view_apply(backup->directory, &view), SHOAL_OK);
    sh_view_destroy(&view);
    const struct sh_zones_config zones = {
        .msg = backup->fake->msg, .directory = backup->directory, .clock = clock};
    assert_int_equal(sh_zones_create(&zones, &backup->zones), SHOAL_OK);
    sh_world_step_add(backup->world, backup->node, sh_zones_step(backup->zones));
}

static inline unsigned backup_run(void *arg)
{
    struct real_backup *backup = arg;
    uint64_t now_ns = now_of(backup);
    (void)sh_disk_poll(sh_world_env(backup->world, backup->node)->disk, false);
    unsigned work = sh_replog_step(backup->log, now_ns, (uint32_t)(now_ns / 1000000000));
    return work + sh_keeper_step(backup->keeper, now_ns);
}

static inline uint64_t backup_due_ns(void *arg)
{
    const struct real_backup *backup = arg;
    uint64_t log_ns = sh_replog_due_ns(backup->log), acks_ns = sh_keeper_due_ns(backup->keeper);
    return log_ns < acks_ns ? log_ns : acks_ns;
}

static inline void boot(void *arg, struct sh_world *world, unsigned node)
{
    struct real_backup *backup = arg;
    backup->world = world;
    backup->node = node;
    backup->fake->msg =
        fake_msg(world, node, backup->fake->nid.v, backup->fake->life, on_event, backup);
    log_open(backup);
    zones_open(backup);
    const struct sh_keeper_config config = {.msg = backup->fake->msg,
                                            .log = backup->log,
                                            .disk_id = backup->fake->disk,
                                            .clock = sh_world_env(world, node)->clock,
                                            .zones_max = FAKE_ZONES,
                                            .credit_bytes = FAKE_CREDIT,
                                            .life_of = life_of,
                                            .record_get = record_get,
                                            .wake = fake_wake,
                                            .arg = backup};
    assert_int_equal(sh_keeper_create(&config, &backup->keeper), SHOAL_OK);
    sh_world_step_add(
        world, node,
        (struct sh_step){
            .name = "keeper", .run = backup_run, .due_ns = backup_due_ns, .arg = backup});
}

static inline void crash(void *arg, struct sh_world *world, unsigned node)
{
    struct real_backup *backup = arg;
    (void)world;
    (void)node;
    sh_replog_close(backup->log);
    sh_zones_destroy(backup->zones);
    sh_keeper_destroy(backup->keeper);
    sh_directory_destroy(backup->directory);
    backup->log = NULL;
    backup->keeper = NULL; /* msg tells of its connections yet */
    sh_msg_destroy(backup->fake->msg);
    backup->fake->msg = NULL;
}

static inline struct sh_world_node node_of(struct owner *of, unsigned i)
{
    backups[i] = (struct real_backup){.fake = &of->backups[i]};
    return (struct sh_world_node){.boot = boot, .crash = crash, .arg = &backups[i]};
}

/* --- Contents of the logs in the end --------------------------------------------------------- */

struct reading {
    struct fake_zone *zone;
    bool is_over;
    uint8_t *bytes; /* of all chunks, OWNER_CHUNK_MAX each */
};

static inline enum shoal_err on_item(void *arg, struct sh_replog_zone *logged,
                                     const struct sh_replog_item *item)
{
    struct reading *reading = arg;
    struct fake_replica *replica = &reading->zone->now;
    (void)logged;
    if (!item->creator) {
        const struct sh_replication_entry claim = {.size = 16, .bytes = item->payload};
        assert_true(item->local_id != FAKE_LOCALS);
        fake_claim_take(replica, item->local_id - 1, &claim);
        return SHOAL_OK;
    }
    assert_true(item->creator == FAKE_OWNER && item->local_id < FAKE_CHUNKS);
    struct fake_chunk *chunk = &replica->chunks[item->local_id];
    chunk->is_there = true;
    chunk->size = item->total;
    assert_true(item->offset + item->payload.size <= OWNER_CHUNK_MAX);
    if (item->payload.at)
        memcpy(reading->bytes + item->local_id * OWNER_CHUNK_MAX + item->offset, item->payload.at,
               item->payload.size);
    return SHOAL_OK;
}

static inline void on_read(void *arg, struct sh_replog_zone *logged, uint64_t end,
                           enum shoal_err err)
{
    struct reading *reading = arg;
    (void)logged;
    assert_int_equal(err, SHOAL_OK);
    reading->zone->now.next = end;
    reading->is_over = true;
}

static inline void zone_read(struct real_backup *backup, struct sh_replog_zone *logged,
                             struct fake_zone *zone)
{
    struct reading reading = {.zone = zone, .bytes = calloc(FAKE_CHUNKS, OWNER_CHUNK_MAX)};
    const struct sh_replog_read read = {.take = on_item, .done = on_read, .arg = &reading};
    memset(zone, 0, sizeof *zone);
    zone->is_there = true;
    zone->id = sh_replog_zone_id(logged);
    assert_int_equal(sh_replog_zone_read(logged, &read), SHOAL_OK);
    while (!reading.is_over) {
        (void)sh_replog_step(backup->log, now_of(backup), 1);
        (void)sh_disk_poll(sh_world_env(backup->world, backup->node)->disk, true);
    }
    for (unsigned i = 0; i < FAKE_CHUNKS; i++)
        zone->now.chunks[i].hash =
            fake_hash(0, reading.bytes + (size_t)i * OWNER_CHUNK_MAX, zone->now.chunks[i].size);
    zone->durable = zone->now;
    free(reading.bytes);
}

/* The backup's process begins anew, and finds what it had. */
static inline void backup_read(struct real_backup *backup)
{
    unsigned count = 0;
    uint64_t above = UINT64_MAX;
    struct sh_replog_zone *logged;
    if (backup->keeper)
        sh_world_crash(backup->world, backup->node);
    sh_world_restart(backup->world, backup->node);
    while ((logged = sh_replog_zone_below(backup->log, above))) {
        above = sh_replog_zone_id(logged);
        assert_true(count < FAKE_ZONES);
        zone_read(backup, logged, &backup->fake->zones[count++]);
    }
    /* Of a zone to which nothing was written the disk knows nothing. */
    struct sh_zone_state zone;
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
         from = zone.number + 1) {
        uint64_t id = sh_zone_id((shoal_nid){FAKE_OWNER}, zone.number);
        if (zone.live_bytes || fake_find(backup->fake, id))
            continue;
        assert_true(count < FAKE_ZONES);
        backup->fake->zones[count].is_there = true;
        backup->fake->zones[count++].id = id;
    }
}

static inline void logs_check(void)
{
    for (unsigned i = 0; i < owner.backups_count; i++)
        backup_read(&backups[i]);
    owner_check_equal(&owner);
    assert_true(owner.checks > 20);
    for (unsigned i = 0; i < owner.backups_count; i++)
        sh_world_crash(owner.world, 2 + i);
}

/* --- Weather ----------------------------------------------------------------------------------- */

static inline void write_for(uint64_t ns)
{
    owner.is_quiet = false;
    owner_pass(&owner, ns);
    owner.is_quiet = true;
}

static inline void backup_return(unsigned i)
{
    if (!backups[i].keeper) {
        owner.backups[i].life += UINT64_C(1) << 32;
        sh_world_restart(owner.world, 2 + i);
    }
    owner.are_failed[i] = false;
    owner_view(&owner);
}

static inline void backup_fail(unsigned i, bool is_seen)
{
    if (backups[i].keeper)
        sh_world_crash(owner.world, 2 + i);
    owner.are_failed[i] |= is_seen;
    owner_view(&owner);
}

#endif
