/* A node alone, for tests: a small store with its backup and its log, on some disk. Its zones and slots are small, so that a short
 * run fills several of them and the cleaner works; a zone's log has room for two of the largest chunks, and for pieces of a third
 * that were given up. */
#ifndef TESTS_BACKUP_NODE_INT_H
#define TESTS_BACKUP_NODE_INT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backup/backup.h"
#include "recover/home.h"

#define NODE_MS UINT64_C(1000000)
#define NODE_NID 7
#define NODE_LOG "replicas.log"
#define NODE_CHUNK_BYTES_MAX (300u << 10)
#define NODE_ZONE_BYTES (UINT64_C(1) << 20)

struct backup_node {
    bool
        syncs_at_once; /* set before: its log syncs each pack, as that of a peer with replicas at others does */
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_replog *log;
    struct sh_recovered found;
};

/* The log's seconds, as recovery has them (recover/home.c). */
static inline uint32_t backup_node_seconds(const struct sh_clock *clock)
{
    return (uint32_t)(clock->wall_ns(clock->arg) / 1000000000);
}

static inline void backup_node_wake(void *arg)
{
    (void)arg; /* whoever acts steps, too */
}

/* Opens it, and brings back what the disk has. */
static inline enum shoal_err backup_node_open(struct backup_node *node, struct sh_disk *disk,
                                              struct sh_clock clock)
{
    const struct sh_store_config store = {.bytes_max = UINT64_C(32) << 20,
                                          .chunk_bytes_max = NODE_CHUNK_BYTES_MAX,
                                          .nid = {NODE_NID},
                                          .small_pages = true};
    struct sh_backup_config backup = {.nid = {NODE_NID},
                                      .zone_bytes = NODE_ZONE_BYTES,
                                      .sparse_zones = 1,
                                      .window_bytes = UINT64_C(4) << 20,
                                      .wake = backup_node_wake};
    struct sh_replog_config log = {.disk = disk,
                                   .name = NODE_LOG,
                                   .random = sh_real_random(),
                                   .cluster = 5,
                                   .node = NODE_NID,
                                   .slot_bytes = 128 << 10,
                                   .slots = 800,
                                   .primary_blocks = 256,
                                   .buffer_bytes = 4 << 20,
                                   .batch_bytes = 16 << 10,
                                   .linger_ns = 20 * NODE_MS,
                                   .versions_max = 1024,
                                   .syncs_later = !node->syncs_at_once,
                                   .handed = sh_backup_handed,
                                   .durable = sh_backup_durable};
    assert_int_equal(sh_store_create(&store, &node->store), SHOAL_OK);
    backup.store = node->store;
    assert_int_equal(sh_backup_create(&backup, &node->backup), SHOAL_OK);
    log.arg = node->backup;
    node->log = NULL;
    enum shoal_err err =
        sh_replog_open(&log, sh_now(&clock), backup_node_seconds(&clock), &node->log);
    if (err)
        return err;
    const struct sh_recover_home home = {.log = node->log,
                                         .disk = disk,
                                         .backup = node->backup,
                                         .store = node->store,
                                         .nid = {NODE_NID},
                                         .clock = clock};
    err = sh_recover_home_run(&home, &node->found);
    if (!err)
        sh_backup_home_set(node->backup, node->log);
    return err;
}

static inline void backup_node_close(struct backup_node *node)
{
    sh_backup_destroy(node->backup);
    sh_replog_close(node->log);
    sh_store_destroy(node->store);
}

#endif
