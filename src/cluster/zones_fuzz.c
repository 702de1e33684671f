/* Answers about zones out of any bytes: a record that is read is a good one of that zone; pages go on behind each
 * other, with zones of the node that was asked for, and so have an end. The first byte says what it is: bit 0 a
 * page, else an answer; of a page bits 1 and 2 by what it was asked. */
#include <stdint.h>

#include "base/assert.h"
#include "cluster/zones_int.h"
#include "ring/arcs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODE 64
#define PAGES_MAX 8

static uint64_t told; /* the last zone */

/* What was read can be written, to the same. */
static void zone_check(const struct sh_zone *zone)
{
    uint8_t bytes[SH_ZONE_BYTES_MAX];
    struct sh_zone again;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_zone_put(&w, zone);
    SH_ASSERT(sh_writer_ok(&w));
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    enum shoal_err err = sh_zone_get(&r, SH_ZONE_CONCLUDED | SH_ZONE_LOST | SH_ZONE_OLD, &again);
    SH_ASSERT(!err && sh_reader_done(&r));
    SH_ASSERT(sh_zone_is_same(zone, &again) && zone->version == again.version);
    SH_ASSERT(zone->count <= SH_ZONE_BACKUPS_MAX && zone->wanted <= SH_ZONE_BACKUPS_MAX);
}

static void on_each(struct sh_zone_list *list, const struct sh_zone *zone)
{
    zone_check(zone);
    SH_ASSERT(zone->id > told && sh_zone_shard(zone->id) == list->ask.shard);
    SH_ASSERT(list->by != SH_ZONES_OF_CREATOR || sh_zone_creator(zone->id).v == NODE);
    SH_ASSERT(list->by != SH_ZONES_OF_OWNER || zone->owner.v == NODE);
    SH_ASSERT(list->by != SH_ZONES_OF_BACKUP || sh_zone_has_backup(zone, (shoal_nid){NODE}, 0));
    told = zone->id;
}

/* Pages, each behind u16 its size. */
static void pages(struct sh_reader *r, unsigned by)
{
    struct sh_zone_list list = {
        .each = on_each, .by = (enum sh_zones_of)(SH_ZONES_OF_CREATOR + by % 3), .nid = {NODE}};
    bool is_more = true;
    list.ask.shard = (uint8_t)sh_arc_shard((shoal_nid){NODE});
    told = 0;
    for (unsigned i = 0; i < PAGES_MAX && is_more; i++) {
        size_t size = sh_get16(r), left = sh_reader_left(r);
        size = size < left ? size : left;
        uint64_t before = list.after;
        struct sh_reader page = sh_reader_make(sh_bytes_make(sh_reader_take(r, size), size));
        if (sh_zone_page_get(&list, &page, &is_more))
            return;
        SH_ASSERT(!is_more || list.after > before);
        SH_ASSERT(!is_more || list.after >= told);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    uint8_t how = sh_get8(&r);
    if (how & 1) {
        pages(&r, how >> 1);
        return 0;
    }
    struct sh_zone_answer answer;
    uint64_t id = sh_zone_id((shoal_nid){NODE}, 1);
    if (sh_zone_answer_get(&r, id, &answer) != SHOAL_EPROTO && answer.is_there) {
        zone_check(&answer.zone);
        SH_ASSERT(answer.zone.id == id);
    }
    return 0;
}
