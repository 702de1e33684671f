/* An owner of zones meets these fakes in simulated worlds: a superpeer that keeps records, by the state that real ones have
 * (metadata), and backups that follow the protocol of replication.h as clumsily as it lets them, and keep their replicas as a model. */
#ifndef TESTS_BACKUP_FAKES_INT_H
#define TESTS_BACKUP_FAKES_INT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/replication.h"
#include "base/assert.h"
#include "cluster/proto.h"
#include "cluster/view.h"
#include "cluster/zones.h"
#include "metadata/metadata.h"
#include "sim/world.h"

#define FAKE_MS UINT64_C(1000000)
#define FAKE_SUPERPEER 1
#define FAKE_OWNER 64 /* node ID; backups have those behind it */
#define FAKE_BACKUPS 5u
#define FAKE_ZONES 96u
#define FAKE_CHUNKS 200u
#define FAKE_CLAIMS 400u
#define FAKE_LIFE ((UINT64_C(1) << 32) | 77)
#define FAKE_CREDIT (128u << 10)
#define FAKE_LOCALS ((UINT64_C(1) << 48) - 1)

static inline void fake_wake(void *arg)
{
    (void)arg;
}

static inline struct sh_msg *fake_msg(struct sh_world *world, unsigned node, uint16_t nid,
                                      uint64_t life,
                                      void (*on_event)(void *arg, const struct sh_msg_event *event),
                                      void *arg)
{
    char address[SH_MSG_ADDRESS_MAX], bound[SH_MSG_ADDRESS_MAX];
    struct sh_msg *msg;
    const struct sh_msg_config config = {.nid = {nid},
                                         .cluster = "fakes",
                                         .connections_max = 16,
                                         .requests_max = 1024,
                                         .ring_bytes = 256 << 10,
                                         .payload_bytes_max = 1 << 20,
                                         .request_timeout_ns = 300 * FAKE_MS,
                                         .connect_timeout_ns = 300 * FAKE_MS,
                                         .silence_ns = 400 * FAKE_MS,
                                         .env = *sh_world_env(world, node),
                                         .on_event = on_event,
                                         .wake_transport = fake_wake,
                                         .wake_handlers = fake_wake,
                                         .arg = arg};
    assert_int_equal(sh_msg_create(&config, &msg), SHOAL_OK);
    sh_msg_instance_set(msg, life);
    snprintf(address, sizeof address, "node%u:4100", node);
    assert_int_equal(sh_msg_listen(msg, address, bound), SHOAL_OK);
    sh_world_step_add(world, node, sh_msg_transport_step(msg));
    return msg;
}

/* --- Images ------------------------------------------------------------------------------------ */

/* Of an image that comes in pieces, too; 0 of zeros, whatever their number. */
static inline uint64_t fake_hash(uint64_t before, const uint8_t *at, size_t size)
{
    for (size_t i = 0; i < size; i++)
        before = before * 31 + at[i];
    return before;
}

struct fake_chunk {
    bool is_there;
    uint32_t size;
    uint64_t hash;
};

/* --- The superpeer ----------------------------------------------------------------------------- */

struct fake_superpeer {
    struct sh_world *world;
    struct sh_msg *msg;
    struct sh_metadata *metadata;
    uint32_t lost_ppm, refused_ppm; /* answers that don't come, though it is done; refusals */
    bool is_fencing;                /* the owner's life is over */
    bool is_doubtful;               /* its records were lost at some time */
    bool are_down[FAKE_BACKUPS];    /* backups, as it sees them */
    unsigned changes, gets, lists;
    /* An old copy of its records. */
    struct sh_zone saved[FAKE_ZONES * 4];
    unsigned saved_count;
};

static inline bool fake_chance(struct sh_world *world, uint32_t ppm)
{
    return sh_prng_below(sh_world_prng(world), 1000000) < ppm;
}

static inline void fake_zone_answer(struct fake_superpeer *superpeer, struct sh_msg_in *in,
                                    uint64_t id, enum shoal_err result)
{
    uint8_t record[SH_ZONE_BYTES_MAX];
    struct sh_writer w = sh_writer_make(record, sizeof record);
    struct sh_zone zone;
    struct sh_out out;
    bool is_there = sh_metadata_zone(superpeer->metadata, id, &zone);
    if (is_there)
        sh_zone_put(&w, &zone);
    size_t size = (size_t)(w.at - record);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_ZONE_ANSWER_BYTES + size, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put16(&out.w, (uint16_t)result);
    sh_put8(&out.w, (uint8_t)((is_there ? SH_ZONE_ANSWER_RECORD : 0) |
                              (superpeer->is_doubtful ? SH_ZONE_ANSWER_DOUBT : 0)));
    sh_put64(&out.w, sh_metadata_zone_last(superpeer->metadata, sh_zone_creator(id)));
    sh_put_raw(&out.w, sh_bytes_make(record, size));
    sh_msg_end(in->msg, &out);
}

static inline void fake_on_zone(void *arg, struct sh_msg_in *in)
{
    struct fake_superpeer *superpeer = arg;
    struct sh_metadata_update update;
    size_t size = sh_reader_left(&in->payload);
    const uint8_t *at = sh_reader_take(&in->payload, size);
    assert_int_equal(sh_metadata_update_get_any(sh_bytes_make(at, size), &update), SHOAL_OK);
    enum shoal_err err = superpeer->is_fencing ? SHOAL_EFENCED : SHOAL_OK;
    struct sh_zone old;
    bool is_old = sh_metadata_zone(superpeer->metadata, update.zone.id, &old);
    for (unsigned i = 0; !err && i < update.zone.count; i++) {
        const struct sh_zone_backup *backup = &update.zone.backups[i];
        bool is_new = !is_old || !sh_zone_has_backup(&old, backup->nid, backup->disk);
        if (backup->nid.v > FAKE_OWNER && is_new &&
            superpeer->are_down[backup->nid.v - FAKE_OWNER - 1])
            err = SHOAL_ENONODE;
    }
    if (!err && fake_chance(superpeer->world, superpeer->refused_ppm))
        err = SHOAL_EBUSY;
    if (err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
        return;
    }
    unsigned shard = sh_metadata_shard(&update);
    if (update.kind == SH_METADATA_ZONE_NEW && superpeer->is_doubtful &&
        update.zone.version > SH_ZONE_JUMP)
        update.condition = SH_ZONE_BY_OTHER; /* as superpeer_zones.c */
    if (!sh_metadata_incarnation(superpeer->metadata, shard))
        sh_metadata_begin(superpeer->metadata, shard, 1, true);
    err = sh_metadata_apply(superpeer->metadata, shard, &update).err;
    superpeer->changes++;
    if (!fake_chance(superpeer->world, superpeer->lost_ppm))
        fake_zone_answer(superpeer, in, update.zone.id, err);
}

/* Whether a question about records gets an answer. */
static inline bool fake_is_answered(struct fake_superpeer *superpeer, struct sh_msg_in *in)
{
    if (fake_chance(superpeer->world, superpeer->refused_ppm)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return false;
    }
    return !fake_chance(superpeer->world, superpeer->lost_ppm);
}

static inline void fake_on_zone_get(void *arg, struct sh_msg_in *in)
{
    struct fake_superpeer *superpeer = arg;
    uint64_t id = sh_get64(&in->payload);
    struct sh_zone zone;
    bool is_there = sh_metadata_zone(superpeer->metadata, id, &zone);
    superpeer->gets++;
    if (fake_is_answered(superpeer, in))
        fake_zone_answer(superpeer, in, id, is_there ? SHOAL_OK : SHOAL_ENONAME);
}

/* The zones that a node has made, four to a page. */
static inline void fake_on_zones(void *arg, struct sh_msg_in *in)
{
    struct fake_superpeer *superpeer = arg;
    uint8_t page[4 * SH_ZONE_BYTES_MAX];
    struct sh_writer w = sh_writer_make(page, sizeof page);
    struct sh_out out;
    assert_int_equal(sh_get8(&in->payload), SH_ZONES_OF_CREATOR);
    unsigned shard = sh_get8(&in->payload), count = 0;
    shoal_nid nid = {sh_get16(&in->payload)};
    (void)sh_get64(&in->payload);
    struct sh_zone zone = {.id = sh_get64(&in->payload)};
    assert_true(sh_reader_done(&in->payload) && nid.v == FAKE_OWNER);
    uint64_t after = zone.id;
    superpeer->lists++;
    while (count < 4 && sh_metadata_zone_next(superpeer->metadata, shard, after, &zone)) {
        sh_zone_put(&w, &zone);
        after = zone.id;
        count++;
    }
    size_t size = (size_t)(w.at - page);
    if (!fake_is_answered(superpeer, in) ||
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_ZONES_ANSWER_BYTES + size, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put8(&out.w, (uint8_t)((count == 4 ? SH_ZONES_ANSWER_MORE : 0) |
                              (superpeer->is_doubtful ? SH_ZONE_ANSWER_DOUBT : 0)));
    sh_put64(&out.w, after);
    sh_put_raw(&out.w, sh_bytes_make(page, size));
    sh_msg_end(in->msg, &out);
}

static inline unsigned fake_shard(void)
{
    return sh_zone_shard(sh_zone_id((shoal_nid){FAKE_OWNER}, 1));
}

/* A record comes to its state, whatever the state says of the asker. */
static inline void fake_record_put(struct fake_superpeer *superpeer, const struct sh_zone *record)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_ZONE_NEW,
                                        .condition = SH_ZONE_BY_OTHER,
                                        .from = record->owner,
                                        .sequence = record->life,
                                        .zone = *record};
    update.zone.flags &= (uint8_t)~SH_ZONE_OLD;
    assert_int_equal(sh_metadata_apply(superpeer->metadata, fake_shard(), &update).err, SHOAL_OK);
}

/* It makes a copy of its records, */
static inline void fake_superpeer_save(struct fake_superpeer *superpeer)
{
    struct sh_zone record = {.id = 0};
    superpeer->saved_count = 0;
    while (sh_metadata_zone_next(superpeer->metadata, fake_shard(), record.id, &record)) {
        assert_true(superpeer->saved_count < FAKE_ZONES * 4);
        superpeer->saved[superpeer->saved_count++] = record;
    }
}

/* and that is all that is left: whatever was changed since is lost. */
static inline void fake_superpeer_age(struct fake_superpeer *superpeer)
{
    uint64_t incarnation = sh_metadata_incarnation(superpeer->metadata, fake_shard());
    sh_metadata_begin(superpeer->metadata, fake_shard(), incarnation + 1, true);
    for (unsigned i = 0; i < superpeer->saved_count; i++)
        fake_record_put(superpeer, &superpeer->saved[i]);
    const struct sh_metadata_update restored = {.kind = SH_METADATA_RESTORED,
                                                .sequence = incarnation + 2};
    assert_int_equal(sh_metadata_apply(superpeer->metadata, fake_shard(), &restored).err, SHOAL_OK);
    superpeer->is_doubtful = true;
}

/* All replicas of its records are lost. */
static inline void fake_superpeer_lose(struct fake_superpeer *superpeer)
{
    unsigned shard = fake_shard();
    uint64_t incarnation = sh_metadata_incarnation(superpeer->metadata, shard);
    sh_metadata_begin(superpeer->metadata, shard, incarnation + 1, true);
    superpeer->is_doubtful = true;
}

static inline void fake_superpeer_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct fake_superpeer *superpeer = arg;
    superpeer->world = world;
    superpeer->msg = fake_msg(world, node, FAKE_SUPERPEER, 1, NULL, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ZONE, SH_MSG_INLINE, fake_on_zone, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ZONE_GET, SH_MSG_INLINE, fake_on_zone_get,
                       superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ZONES, SH_MSG_INLINE, fake_on_zones, superpeer);
    assert_int_equal(sh_metadata_create(&superpeer->metadata), SHOAL_OK);
}

/* --- A backup ---------------------------------------------------------------------------------- */

/* A replica as it is, or as it would be after the backup's power failed. */
struct fake_replica {
    uint64_t next;
    struct fake_chunk chunks[FAKE_CHUNKS]; /* by local ID */
    struct {
        uint64_t first, last;
    } claims[FAKE_CLAIMS];
    size_t claims_count;
};

enum fake_stream { FAKE_GOES_ON, FAKE_FULL, FAKE_WAITS };

struct fake_zone {
    bool is_there, is_open, is_lost;
    uint64_t id, began;
    uint64_t cut; /* it had all before that, but the power failed since, and it has not yet again */
    uint32_t incarnation;
    struct fake_replica now, durable;
    uint32_t part;
    enum fake_stream stream;
    struct {
        bool is_begun;
        uint64_t chunk, hash;
        uint32_t size;
        uint16_t next;
    } pieces;
    struct { /* a claim, that counts with the write behind it */
        bool is_there;
        uint64_t slot;
        uint8_t bytes[16];
    } note;
    uint64_t pace_at;                   /* when it takes the next entry, where it is slow */
    uint64_t again_ns, sync_ns, ack_ns; /* when these are due; 0: not */
    bool is_again;
};

struct fake_backup {
    struct sh_world *world;
    struct fake_superpeer *superpeer;
    unsigned node;
    shoal_nid nid;
    uint64_t disk, life;
    struct sh_msg *msg;
    bool keeps;
    uint64_t free_bytes; /* of its disk; 0: half of it */
    uint32_t full_ppm, gone_ppm, lost_ppm, busy_ppm, mute_ppm;
    bool is_lenient; /* chunks that its model has no place for are left out */
    /* Is told each entry that it takes, with its number; NULL: nobody wants to know. */
    void (*on_entry)(const struct fake_backup *backup, const struct fake_zone *zone,
                     const struct sh_replication_entry *entry);
    bool is_stuck;    /* its disk does not get on */
    uint64_t pace_ns; /* it takes one entry of a zone in that time */
    struct fake_zone zones[FAKE_ZONES];
    unsigned messages, anews, opens, closes;
    uint64_t alone; /* removals of no chunk */
};

static inline uint64_t fake_now(const struct fake_backup *backup)
{
    return sh_now(&sh_world_env(backup->world, backup->node)->clock);
}

static inline uint64_t fake_soon(struct fake_backup *backup, uint64_t most_ns)
{
    return fake_now(backup) + sh_prng_below(sh_world_prng(backup->world), (uint32_t)most_ns) + 1;
}

static inline struct fake_zone *fake_find(struct fake_backup *backup, uint64_t id)
{
    for (unsigned i = 0; i < FAKE_ZONES; i++) {
        if (backup->zones[i].is_there && backup->zones[i].id == id)
            return &backup->zones[i];
    }
    return NULL;
}

static inline void fake_refuse(struct sh_msg_in *in, enum shoal_err err)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
}

static inline struct fake_zone *fake_begin(struct fake_backup *backup,
                                           const struct sh_replication_open *open)
{
    unsigned i = 0;
    while (i < FAKE_ZONES && backup->zones[i].is_there)
        i++;
    assert_true(i < FAKE_ZONES);
    struct fake_zone *zone = &backup->zones[i];
    memset(zone, 0, sizeof *zone);
    zone->is_there = true;
    zone->id = open->zone;
    zone->began = open->first;
    zone->now.next = zone->durable.next = open->first;
    return zone;
}

/* Whether the log has dropped that zone in this incarnation, or in a higher one: then it begins the zone only in a higher one. */
static inline bool fake_is_grave(const struct fake_backup *backup,
                                 const struct sh_replication_open *open)
{
    for (unsigned i = 0; i < FAKE_ZONES; i++) {
        const struct fake_zone *zone = &backup->zones[i];
        if (!zone->is_there && zone->id == open->zone && zone->incarnation >= open->incarnation)
            return true;
    }
    return false;
}

static inline enum shoal_err fake_open(struct fake_backup *backup,
                                       const struct sh_replication_open *open,
                                       struct fake_zone **zone_out)
{
    struct fake_zone *zone = fake_find(backup, open->zone);
    bool is_anew = open->flags & SH_REPLICATION_ANEW;
    assert_true(open->life == FAKE_LIFE && open->range_count && open->bytes_max);
    if (zone && open->incarnation < zone->incarnation)
        return SHOAL_EFENCED;
    if (fake_chance(backup->world, backup->busy_ppm))
        return SHOAL_EBUSY;
    if (!zone) {
        if (!is_anew && open->first != 1)
            return SHOAL_EDIFFERS;
        if (fake_is_grave(backup, open))
            return SHOAL_EEXIST;
        zone = fake_begin(backup, open);
        backup->anews++;
    } else if (is_anew) {
        bool is_repeated =
            zone->began == open->first && zone->now.next == open->first && !zone->part;
        if (open->incarnation == zone->incarnation && !is_repeated)
            return SHOAL_EEXIST;
        if (open->incarnation > zone->incarnation) {
            zone->is_there = false;
            return SHOAL_EBUSY;
        }
    } else if (zone->is_lost) {
        return SHOAL_ECORRUPT;
    } else if (open->first > zone->now.next ||
               (open->first == zone->now.next && open->first_part > zone->part)) {
        return SHOAL_EDIFFERS;
    } else if (zone->incarnation < open->since && zone->now.next > open->begun) {
        return SHOAL_EDIFFERS; /* an earlier owner wrote what is beyond */
    }
    *zone_out = zone;
    return SHOAL_OK;
}

static inline void fake_on_open(void *arg, struct sh_msg_in *in)
{
    struct fake_backup *backup = arg;
    struct sh_replication_open open;
    struct fake_zone *zone;
    struct sh_out out;
    assert_true(sh_replication_open_get(&in->payload, &open));
    backup->opens++;
    enum shoal_err err = backup->keeps ? fake_open(backup, &open, &zone) : SHOAL_ENONODE;
    if (err) {
        fake_refuse(in, err);
        return;
    }
    zone->is_open = true;
    zone->incarnation = open.incarnation;
    zone->stream = FAKE_GOES_ON;
    zone->is_again = false;
    zone->again_ns = 0;
    zone->ack_ns = fake_soon(backup, 4 * FAKE_MS);
    if (fake_chance(backup->world, backup->mute_ppm) ||
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_REPLICATION_OPENED_BYTES, &out))
        return;
    const struct sh_replication_opened opened = {
        .next = zone->now.next, .part = zone->part, .credit = FAKE_CREDIT, .disk = backup->disk};
    sh_replication_opened_put(&out.w, &opened);
    sh_msg_end(in->msg, &out);
}

static inline void fake_on_close(void *arg, struct sh_msg_in *in)
{
    struct fake_backup *backup = arg;
    struct sh_replication_close close;
    assert_true(sh_replication_close_get(&in->payload, &close));
    struct fake_zone *zone = fake_find(backup, close.zone);
    backup->closes++;
    if (zone && close.incarnation < zone->incarnation) {
        fake_refuse(in, SHOAL_EFENCED);
        return;
    }
    if (zone)
        zone->is_there = false;
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

static inline void fake_on_space(void *arg, struct sh_msg_in *in)
{
    const struct fake_backup *backup = arg;
    struct sh_out out;
    const struct sh_replication_space space = {
        .keeps = backup->keeps,
        .disk = backup->disk,
        .disk_bytes = UINT64_C(1) << 40,
        .disk_free_bytes = backup->free_bytes ? backup->free_bytes : UINT64_C(1) << 39,
        .zones_max = FAKE_ZONES};
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_REPLICATION_SPACE_BYTES, &out))
        return;
    sh_replication_space_put(&out.w, &space);
    sh_msg_end(in->msg, &out);
}

/* --- Its stream -------------------------------------------------------------------------------- */

static inline void fake_claim_take(struct fake_replica *replica, uint64_t slot,
                                   const struct sh_replication_entry *entry)
{
    assert_true(slot < FAKE_CLAIMS && entry->size == 16);
    for (; replica->claims_count <= slot; replica->claims_count++) {
        replica->claims[replica->claims_count].first = 1; /* an empty place */
        replica->claims[replica->claims_count].last = 0;
    }
    replica->claims[slot].first = sh_load64(entry->bytes.at);
    replica->claims[slot].last = sh_load64(entry->bytes.at + 8);
}

static inline void fake_image_take(struct fake_backup *backup, struct fake_replica *replica,
                                   const struct sh_replication_entry *entry,
                                   const struct fake_chunk *image)
{
    uint64_t local = entry->chunk & FAKE_LOCALS;
    if (!(entry->chunk >> 48)) {
        if (entry->kind == SH_REPLICATION_IMAGE)
            fake_claim_take(replica, local - 1, entry);
        else
            assert_true(entry->kind == SH_REPLICATION_REMOVAL && local == FAKE_LOCALS);
        backup->alone += entry->kind == SH_REPLICATION_REMOVAL;
        return;
    }
    bool is_known = entry->chunk >> 48 == FAKE_OWNER && local < FAKE_CHUNKS;
    assert_true(is_known || backup->is_lenient);
    if (is_known)
        replica->chunks[local] = *image;
}

static inline void fake_piece_take(struct fake_backup *backup, struct fake_zone *zone,
                                   const struct sh_replication_entry *entry)
{
    if (!entry->piece) {
        assert_false(zone->pieces.is_begun);
        zone->pieces.is_begun = true;
        zone->pieces.chunk = entry->chunk;
        zone->pieces.hash = zone->pieces.size = zone->pieces.next = 0;
    }
    assert_true(zone->pieces.is_begun && zone->pieces.chunk == entry->chunk &&
                zone->pieces.next == entry->piece);
    if (entry->kind == SH_REPLICATION_IMAGE)
        zone->pieces.hash = fake_hash(zone->pieces.hash, entry->bytes.at, entry->bytes.size);
    zone->pieces.size += entry->size;
    zone->pieces.next++;
    if (zone->pieces.next < entry->pieces)
        return;
    assert_int_equal(zone->pieces.size, entry->total);
    const struct fake_chunk image = {true, entry->total, zone->pieces.hash};
    zone->pieces.is_begun = false;
    fake_image_take(backup, &zone->now, entry, &image);
}

static inline void fake_note_count(struct fake_zone *zone)
{
    const struct sh_replication_entry claim = {
        .kind = SH_REPLICATION_IMAGE, .size = 16, .bytes = sh_bytes_make(zone->note.bytes, 16)};
    if (zone->note.is_there)
        fake_claim_take(&zone->now, zone->note.slot, &claim);
    zone->note.is_there = false;
}

static inline void fake_entry_take(struct fake_backup *backup, struct fake_zone *zone,
                                   const struct sh_replication_entry *entry)
{
    uint64_t before = zone->now.next;
    if (entry->kind == SH_REPLICATION_ABANDON) {
        zone->pieces.is_begun = zone->note.is_there = false;
    } else if (entry->with_next) {
        assert_true(!zone->note.is_there && !(entry->chunk >> 48) && entry->size == 16);
        zone->note.is_there = true;
        zone->note.slot = entry->chunk - 1;
        memcpy(zone->note.bytes, entry->bytes.at, 16);
    } else if (entry->pieces > 1) {
        fake_piece_take(backup, zone, entry);
    } else {
        assert_false(zone->pieces.is_begun);
        const struct fake_chunk image = {.is_there = entry->kind != SH_REPLICATION_REMOVAL,
                                         .size = entry->size,
                                         .hash = fake_hash(0, entry->bytes.at, entry->bytes.size)};
        fake_image_take(backup, &zone->now, entry, &image);
    }
    sh_replication_pass(entry, &zone->now.next, &zone->part);
    if (zone->now.next != before)
        fake_note_count(zone);
}

static inline void fake_again(struct fake_backup *backup, struct fake_zone *zone)
{
    zone->stream = FAKE_WAITS;
    zone->is_again = true;
    zone->ack_ns = fake_now(backup);
}

static inline void fake_entries_take(struct fake_backup *backup, struct fake_zone *zone,
                                     const struct sh_replication_append *append,
                                     struct sh_reader *r)
{
    uint64_t number = append->number;
    uint32_t part = append->part;
    struct sh_replication_entry entry;
    bool is_within = false; /* a pair */
    while (sh_reader_left(r)) {
        assert_true(sh_replication_entry_get(r, &entry));
        /* In the middle of a message, but not of a pair. */
        bool is_early = backup->pace_ns && fake_now(backup) < zone->pace_at;
        if (!is_within && (is_early || fake_chance(backup->world, backup->full_ppm))) {
            zone->stream = FAKE_FULL;
            zone->again_ns = is_early ? zone->pace_at : fake_soon(backup, 5 * FAKE_MS);
            zone->ack_ns = fake_now(backup);
            return;
        }
        is_within = entry.with_next;
        bool is_there = number < zone->now.next || (number == zone->now.next && part < zone->part);
        if (!is_there) {
            assert_true(number == zone->now.next && part == zone->part);
            if (backup->on_entry)
                backup->on_entry(backup, zone, &entry);
            fake_entry_take(backup, zone, &entry);
            zone->pace_at = fake_now(backup) + backup->pace_ns;
        }
        sh_replication_pass(&entry, &number, &part);
    }
    assert_false(is_within);
}

static inline void fake_gone_tell(struct fake_backup *backup, shoal_nid to,
                                  const struct sh_replication_append *append)
{
    struct sh_out out;
    const struct sh_replication_ack ack = {
        .zone = append->zone, .incarnation = append->incarnation, .state = SH_REPLICATION_GONE};
    if (sh_msg_begin(backup->msg, to, SH_REPLICATION_ACKS, SH_REPLICATION_ACK_BYTES, &out))
        return;
    sh_replication_ack_put(&out.w, &ack);
    sh_msg_end(backup->msg, &out);
}

static inline void fake_on_append(void *arg, struct sh_msg_in *in)
{
    struct fake_backup *backup = arg;
    struct sh_replication_append append;
    assert_true(sh_reader_left(&in->payload) <= SH_REPLICATION_BYTES_MAX);
    assert_true(sh_replication_append_get(&in->payload, &append));
    struct fake_zone *zone = fake_find(backup, append.zone);
    backup->messages++;
    if (zone && fake_chance(backup->world, backup->gone_ppm))
        zone->is_open = false;
    if (!zone || !zone->is_open || zone->incarnation != append.incarnation) {
        fake_gone_tell(backup, in->reply_to.nid, &append);
        return;
    }
    if (fake_chance(backup->world, backup->lost_ppm)) {
        zone->is_lost = true;
        zone->ack_ns = fake_now(backup);
    }
    if (zone->is_lost)
        return;
    bool is_beyond = append.number > zone->now.next ||
                     (append.number == zone->now.next && append.part > zone->part);
    if (is_beyond || zone->stream == FAKE_FULL) {
        if (zone->stream == FAKE_GOES_ON)
            fake_again(backup, zone);
        return;
    }
    zone->stream = FAKE_GOES_ON;
    fake_entries_take(backup, zone, &append, &in->payload);
    if (append.wish == SH_REPLICATION_DURABLE && !zone->sync_ns)
        zone->sync_ns = fake_soon(backup, 4 * FAKE_MS);
    if (!zone->ack_ns)
        zone->ack_ns = fake_soon(backup, append.wish ? FAKE_MS / 2 : 4 * FAKE_MS);
}

static inline void fake_ack(struct fake_backup *backup, struct fake_zone *zone)
{
    struct sh_out out;
    struct sh_replication_ack ack = {.zone = zone->id,
                                     .incarnation = zone->incarnation,
                                     .next = zone->now.next,
                                     .part = zone->part,
                                     .durable = zone->durable.next,
                                     .state = SH_REPLICATION_GOES_ON};
    if (zone->is_lost)
        ack.state = SH_REPLICATION_LOST;
    else if (zone->is_again)
        ack.state = SH_REPLICATION_AGAIN;
    else if (zone->stream == FAKE_FULL)
        ack.state = SH_REPLICATION_FULL;
    if (!zone->is_open || sh_msg_begin(backup->msg, (shoal_nid){FAKE_OWNER}, SH_REPLICATION_ACKS,
                                       SH_REPLICATION_ACK_BYTES, &out))
        return;
    zone->is_again = false;
    sh_replication_ack_put(&out.w, &ack);
    sh_msg_end(backup->msg, &out);
}

static inline bool fake_due(uint64_t *at_ns, uint64_t now_ns)
{
    bool is_due = *at_ns && *at_ns <= now_ns;
    if (is_due)
        *at_ns = 0;
    return is_due;
}

static inline unsigned fake_backup_run(void *arg)
{
    struct fake_backup *backup = arg;
    uint64_t now_ns = fake_now(backup);
    unsigned work = 0;
    for (unsigned i = 0; i < FAKE_ZONES; i++) {
        struct fake_zone *zone = &backup->zones[i];
        if (!zone->is_there)
            continue;
        if (fake_due(&zone->again_ns, now_ns) && zone->stream == FAKE_FULL)
            fake_again(backup, zone);
        if (!backup->is_stuck && fake_due(&zone->sync_ns, now_ns)) {
            zone->durable = zone->now;
            zone->ack_ns = now_ns;
        }
        if (!fake_due(&zone->ack_ns, now_ns))
            continue;
        if (zone->durable.next != zone->now.next && !zone->sync_ns)
            zone->sync_ns = fake_soon(backup, 40 * FAKE_MS);
        fake_ack(backup, zone);
        work++;
    }
    return work;
}

static inline uint64_t fake_backup_due(void *arg)
{
    const struct fake_backup *backup = arg;
    uint64_t due_ns = UINT64_MAX;
    for (unsigned i = 0; i < FAKE_ZONES; i++) {
        const struct fake_zone *zone = &backup->zones[i];
        const uint64_t times[] = {zone->again_ns, backup->is_stuck ? 0 : zone->sync_ns,
                                  zone->ack_ns};
        for (unsigned k = 0; zone->is_there && k < 3; k++)
            due_ns = times[k] && times[k] < due_ns ? times[k] : due_ns;
    }
    return due_ns;
}

static inline void fake_backup_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct fake_backup *backup = arg;
    backup->world = world;
    backup->node = node;
    backup->msg = fake_msg(world, node, backup->nid.v, backup->life, NULL, backup);
    sh_msg_handler_set(backup->msg, SH_REPLICATION_OPEN, SH_MSG_INLINE, fake_on_open, backup);
    sh_msg_handler_set(backup->msg, SH_REPLICATION_CLOSE, SH_MSG_INLINE, fake_on_close, backup);
    sh_msg_handler_set(backup->msg, SH_REPLICATION_SPACE, SH_MSG_INLINE, fake_on_space, backup);
    sh_msg_handler_set(backup->msg, SH_REPLICATION_APPEND, SH_MSG_INLINE, fake_on_append, backup);
    sh_world_step_add(
        world, node,
        (struct sh_step){
            .name = "backup", .run = fake_backup_run, .due_ns = fake_backup_due, .arg = backup});
}

/* What a log does before its node stops in order. */
static inline void fake_backup_sync(struct fake_backup *backup)
{
    for (unsigned i = 0; i < FAKE_ZONES; i++)
        backup->zones[i].durable = backup->zones[i].now;
}

/* The power fails: what is not durable is lost. */
static inline void fake_backup_crash(void *arg, struct sh_world *world, unsigned node)
{
    struct fake_backup *backup = arg;
    (void)world;
    (void)node;
    sh_msg_destroy(backup->msg);
    backup->msg = NULL;
    for (unsigned i = 0; i < FAKE_ZONES; i++) {
        struct fake_zone *zone = &backup->zones[i];
        zone->is_open = zone->pieces.is_begun = zone->note.is_there = false;
        if (zone->now.next > zone->durable.next && zone->now.next > zone->cut)
            zone->cut = zone->now.next;
        zone->now = zone->durable;
        zone->part = 0;
        zone->began = 0;
        zone->again_ns = zone->sync_ns = zone->ack_ns = 0;
    }
}

#endif
