/* Zones without a log, whose backlogs the test reads. */
#ifndef SH_BACKUP_ZONES_TEST_H
#define SH_BACKUP_ZONES_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "backup/backup_int.h"

#ifndef ZONES /* a test that includes this may want more, and larger ones */
#define ZONES 4u
#define LIMIT (UINT64_C(1) << 20)
#endif
#define NID UINT64_C(3)

static struct sh_store *store;
static struct sh_backup *backup;
static struct sh_own_zone *zones[ZONES];
static uint8_t scratch[SH_BACKLOG_PIECE_BYTES];

static inline void wake(void *arg)
{
    (void)arg;
}

static inline void backup_make(size_t store_bytes)
{
    const struct sh_store_config config = {
        .bytes_max = store_bytes, .chunk_bytes_max = 1 << 20, .nid = {NID}, .small_pages = true};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    const struct sh_backup_config backed = {
        .store = store, .nid = {NID}, .zone_bytes = LIMIT, .window_bytes = 16 << 20, .wake = wake};
    assert_int_equal(sh_backup_create(&backed, &backup), SHOAL_OK);
}

static inline int setup(void **state)
{
    (void)state;
    backup_make(8 << 20);
    for (unsigned i = 0; i < ZONES; i++)
        assert_int_equal(sh_zone_make(backup, i, 1, &zones[i]), SHOAL_OK);
    backup->zones.open = zones[0];
    backup->zones.spare = zones[1];
    sh_backup_witness_set(backup);
    backup->is_on = true;
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    sh_store_witness_set(store, NULL);
    backup->is_on = false;
    sh_backup_destroy(backup);
    sh_store_destroy(store);
    return 0;
}

static inline shoal_cid make(uint32_t size)
{
    shoal_cid cid;
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_REPLICATED);
    const struct sh_store_wish wish = {.size = size, .count = 1};
    assert_int_equal(sh_backup_new_as(backup, &write, &wish, &cid, NULL), SHOAL_OK);
    return cid;
}

static inline enum shoal_err resize(shoal_cid cid, uint32_t size)
{
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    const struct sh_store_rewrite rewrite = {.kind = SH_STORE_RESIZE, .cid = cid, .size = size};
    return sh_backup_rewrite(backup, &write, &rewrite);
}

/* The next entry of a zone's backlog is this. */
static inline void assert_next(unsigned zone, uint64_t chunk, enum sh_backlog_kind kind,
                               uint32_t size, bool with_next)
{
    struct sh_backlog_entry entry;
    uint64_t number;
    assert_true(sh_backlog_read(&zones[zone]->sinks[0].cursor, &entry, &number, scratch));
    assert_int_equal(entry.chunk, chunk);
    assert_int_equal(entry.kind, kind);
    assert_int_equal(entry.size, size);
    assert_int_equal(entry.with_next, with_next);
}

static inline void assert_claim(unsigned zone, uint64_t place, uint64_t first, uint64_t last,
                                bool with_next)
{
    struct sh_backlog_entry entry;
    uint64_t number;
    assert_true(sh_backlog_read(&zones[zone]->sinks[0].cursor, &entry, &number, scratch));
    assert_true(entry.chunk == 1 + place && entry.size == 16);
    assert_true(sh_load64(entry.at) == first && sh_load64(entry.at + 8) == last);
    assert_int_equal(entry.with_next, with_next);
}

static inline void assert_end(unsigned zone)
{
    struct sh_backlog_entry entry;
    uint64_t number;
    assert_false(sh_backlog_read(&zones[zone]->sinks[0].cursor, &entry, &number, scratch));
    (void)sh_backlog_take(&zones[zone]->sinks[0].cursor);
}

static inline uint64_t id_of(uint64_t local)
{
    return NID << 48 | local;
}

static inline void read_all(unsigned zone)
{
    struct sh_backlog_entry entry;
    uint64_t number;
    while (sh_backlog_read(&zones[zone]->sinks[0].cursor, &entry, &number, scratch))
        continue;
    (void)sh_backlog_take(&zones[zone]->sinks[0].cursor);
}

/* A request adds to the chunk: its completion record is in the chunk's zone. */
static inline void add_numbered(shoal_cid cid, uint64_t number)
{
    struct sh_write write;
    uint64_t old;
    const struct sh_write_request request = {.client = 9, .number = number, .acknowledged = 0};
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    sh_write_request_set(&write, &request);
    const struct sh_store_rewrite rewrite = {
        .kind = SH_STORE_ADD, .cid = cid, .width = 8, .delta = 1, .old_out = &old};
    assert_int_equal(sh_backup_rewrite(backup, &write, &rewrite), SHOAL_OK);
}

#endif
