/* Answers about zones out of any bytes: a record that is read is a good one of that zone; pages go on behind each
 * other, with zones of the node that was asked for, and so have an end; and what a recovery is told. The first byte says
 * what it is, by its upper half: 1 an answer to TAKE, 2 to ORDER, 3 to TREE; else bit 0 a page, or an answer;
 * of a page bits 1 and 2 by what it was asked. */
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
    enum shoal_err err = sh_zone_get(&r, SH_ZONE_RECORDED | SH_ZONE_OLD, &again);
    SH_ASSERT(!err && sh_reader_done(&r));
    SH_ASSERT(sh_zone_is_same(zone, &again) && zone->version == again.version);
    SH_ASSERT(zone->count <= SH_ZONE_BACKUPS_MAX && zone->wanted <= SH_ZONE_BACKUPS_MAX);
    SH_ASSERT(!(zone->flags & SH_ZONE_FORMER) == !zone->former.v);
}

static void on_each(struct sh_zone_list *list, const struct sh_zone *zone)
{
    zone_check(zone);
    SH_ASSERT(zone->id > told && sh_zone_shard(zone->id) == list->ask.shard);
    SH_ASSERT(list->by != SH_ZONES_OF_CREATOR || sh_zone_creator(zone->id).v == NODE);
    SH_ASSERT(list->by != SH_ZONES_OF_OWNER || zone->owner.v == NODE);
    SH_ASSERT(list->by != SH_ZONES_OF_BACKUP || sh_zone_has_backup(zone, (shoal_nid){NODE}, 0));
    SH_ASSERT(list->by != SH_ZONES_OF_FORMER || zone->former.v == NODE || zone->owner.v == NODE);
    told = zone->id;
}

/* Pages, each behind u16 its size. */
static void pages(struct sh_reader *r, unsigned by)
{
    struct sh_zone_list list = {
        .each = on_each, .by = (enum sh_zones_of)(SH_ZONES_OF_CREATOR + by % 4), .nid = {NODE}};
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

/* An answer to ORDER names zones of the node that was asked for, above the last one. */
static void order(struct sh_reader *r)
{
    const uint64_t after = sh_zone_id((shoal_nid){NODE}, 5);
    struct sh_order_op op = {.former = {NODE}, .after = after};
    enum sh_order result;
    if (sh_order_answer_get(&op, r, &result)) {
        SH_ASSERT(op.after == after);
        return;
    }
    SH_ASSERT(result <= SH_ORDER_MORE && (op.after > after) == (result != SH_ORDER_NONE));
    SH_ASSERT(sh_zone_creator(op.after).v == NODE);
}

static shoal_cid behind; /* the last range that was told */
static size_t ranges;

static void on_range(struct sh_tree_op *op, const struct sh_metadata_range *range)
{
    shoal_cid first = range->first, last = range->last;
    const struct sh_metadata_note *note = &range->note;
    (void)op;
    SH_ASSERT(ranges ? first.v == behind.v : first.v <= behind.v && last.v >= behind.v);
    SH_ASSERT(first.v <= last.v && shoal_cid_creator(last).v == NODE);
    SH_ASSERT(!note->owner.v || sh_nid_is_peer(note->owner));
    SH_ASSERT(!note->life == !note->zone && (note->owner.v || !note->life));
    behind.v = last.v + 1;
    ranges++;
}

/* An answer to TREE tells all of a creator's chunks up to where it ends, or nothing. */
static void tree(struct sh_reader *r)
{
    struct sh_tree_op op = {.each = on_range};
    const shoal_cid from = shoal_cid_make((shoal_nid){NODE}, 5);
    bool is_more;
    behind = from;
    ranges = 0;
    if (sh_tree_answer_get(&op, from, r, &is_more)) {
        SH_ASSERT(!ranges);
        return;
    }
    SH_ASSERT(ranges && ranges <= SH_TREE_RANGES_MAX);
    SH_ASSERT(is_more == (shoal_cid_creator(behind).v == NODE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    uint8_t how = sh_get8(&r);
    switch (how >> 4) {
    case 1:
        (void)sh_take_answer_get(&r);
        return 0;
    case 2:
        order(&r);
        return 0;
    case 3:
        tree(&r);
        return 0;
    default:
        break;
    }
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
