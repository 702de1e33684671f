/* Shared by the keeper's cases: a rig for each, the messages of its owners, and the replica's chunks in the end. */
#ifndef SH_BACKUP_KEEPER_CASE_TEST_H
#define SH_BACKUP_KEEPER_CASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backup/keeper_test.h"

#define CASE __attribute__((unused)) static

static struct rig rig;
static struct rig_append append;
static struct rig_owner *const owner = &rig.owners[0], *const other = &rig.owners[1];

CASE int setup(void **state)
{
    (void)state;
    const char *bad;
    size_t bad_size;
    /* Errors are provoked. */
    SH_ASSERT(!sh_log_output_set("/dev/null", SH_LOG_AS_TEXT));
    SH_ASSERT(!sh_log_levels_set("error", &bad, &bad_size));
    rig_open(&rig, 4711);
    return 0;
}

CASE int teardown(void **state)
{
    (void)state;
    rig_close(&rig);
    return 0;
}

/* --- Helpers ----------------------------------------------------------------------------------- */

CASE enum shoal_err open_anew(struct rig_owner *by, unsigned zone, uint32_t incarnation,
                              uint64_t first)
{
    struct sh_replication_opened opened;
    struct sh_replication_open open = rig_open_of(by, zone, incarnation, first);
    open.flags = SH_REPLICATION_ANEW;
    enum shoal_err err = rig_zone_open(by, &open, &opened);
    if (!err)
        assert_true(opened.next == first && !opened.part);
    return err;
}

/* The stream goes on; *next: where. */
CASE enum shoal_err open_on(const struct sh_replication_open *open, struct rig_owner *by,
                            uint64_t *next, uint32_t *part)
{
    struct sh_replication_opened opened;
    enum shoal_err err = rig_zone_open(by, open, &opened);
    if (!err) {
        *next = opened.next;
        *part = opened.part;
    }
    return err;
}

static uint8_t image_bytes[64 << 10];

CASE void put(const struct sh_replication_entry *entry)
{
    sh_replication_entry_put(&append.w, entry);
}

/* An image whose bytes follow from a stamp. */
CASE void put_image(unsigned chunk, uint32_t size, uint8_t stamp)
{
    memset(image_bytes, stamp, size);
    put(&(struct sh_replication_entry){
        .chunk = rig_chunk(chunk), .size = size, .pieces = 1, .bytes = {image_bytes, size}});
}

CASE void put_piece(unsigned chunk, uint16_t piece, uint16_t pieces, uint32_t each, uint8_t stamp)
{
    memset(image_bytes, stamp, each);
    put(&(struct sh_replication_entry){.chunk = rig_chunk(chunk),
                                       .size = each,
                                       .piece = piece,
                                       .pieces = pieces,
                                       .total = pieces * each,
                                       .bytes = {image_bytes, each}});
}

CASE void put_abandon(void)
{
    put(&(struct sh_replication_entry){.kind = SH_REPLICATION_ABANDON, .pieces = 1});
}

CASE void begin(unsigned zone, uint64_t number, uint32_t part, uint8_t wish)
{
    rig_append_begin(&append, zone, 1, number, part, wish);
}

CASE void send(void)
{
    rig_append_send(owner, &append);
    rig_settle(&rig);
}

/* So many images of 64 bytes, from that number on, of chunks of that number. */
CASE void send_images(unsigned zone, uint64_t number, unsigned count, uint8_t wish)
{
    begin(zone, number, 0, wish);
    for (unsigned i = 0; i < count; i++)
        put_image((unsigned)number + i, 64, (uint8_t)(number + i));
    send();
}

CASE const struct sh_replication_ack *told(unsigned zone)
{
    return &owner->told[zone].last;
}

CASE struct sh_keeper_status status(void)
{
    struct sh_keeper_status now;
    sh_keeper_status_get(rig.keeper, &now);
    return now;
}

/* A zone's replica, chunk by chunk, after the backup's process has ended. */
struct found {
    bool is_over;
    enum shoal_err err;
    uint64_t end;
    unsigned count;
    uint32_t sizes[2000]; /* by local ID */
    uint8_t stamps[2000]; /* of all bytes; 0 of zeros, too */
};

CASE enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                            const struct sh_replog_item *item)
{
    struct found *found = arg;
    (void)zone;
    assert_true(item->creator == RIG_OWNER_NID && item->local_id < 2000);
    found->count += !item->piece;
    found->sizes[item->local_id] += (uint32_t)item->payload.size;
    for (size_t i = 0; item->payload.at && i < item->payload.size; i++) {
        assert_true(!found->stamps[item->local_id] ||
                    found->stamps[item->local_id] == item->payload.at[i]);
        found->stamps[item->local_id] = item->payload.at[i];
    }
    return SHOAL_OK;
}

CASE void on_read(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct found *found = arg;
    (void)zone;
    found->is_over = true;
    found->err = err;
    found->end = end;
}

CASE const struct found *read_back(unsigned zone)
{
    static struct found found;
    found = (struct found){.is_over = false};
    rig_stop(&rig);
    rig_start(&rig);
    const struct sh_replog_read read = {.take = on_item, .done = on_read, .arg = &found};
    struct sh_replog_zone *of = sh_replog_zone_find(rig.log, rig_zone(zone));
    assert_non_null(of);
    assert_int_equal(sh_replog_zone_read(of, &read), SHOAL_OK);
    for (unsigned i = 0; !found.is_over; i++) {
        assert_true(i < 10000);
        rig_pass(&rig, RIG_MS);
    }
    assert_int_equal(found.err, SHOAL_OK);
    return &found;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
