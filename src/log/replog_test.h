/* What tests of the log share: a log with its clock, and all that its file says, read back without the log. */
#ifndef SH_LOG_REPLOG_TEST_H
#define SH_LOG_REPLOG_TEST_H

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "log/replog_int.h"
#include "log/scan.h"
#include "log/slot.h"
#include "log/version_log.h"

#define RIG __attribute__((unused)) static
#define RIG_CHUNKS 600u  /* of a zone, local IDs from 1 on */
#define RIG_OF_ZONE 592u /* those from there on are records about the zone: their creator is 0 */
#define RIG_ZONES 8u
#define RIG_PARTS 60u        /* versions of a chunk in pieces that a file has at most */
#define RIG_ZEROS UINT32_MAX /* in place of a stamp: the payload is zeros */
#define RIG_CLUSTER 77
#define RIG_NODE 65
#define RIG_OWNER 64
#define RIG_MS UINT64_C(1000000)

/* What an entry says of a chunk. */
struct rig_fact {
    unsigned chunk;
    struct sh_replog_version version;
    bool is_removal;
    uint32_t size, stamp;
};

/* The newest that is known of a chunk; its payload follows from its ID and a stamp. */
struct rig_chunk {
    bool is_there, is_removal;
    bool is_in_versions; /* the version log says so, too */
    struct sh_replog_version version;
    uint32_t size, stamp;
    struct rig_parts {
        struct sh_replog_version version;
        uint64_t seen; /* a bit for each piece */
        uint32_t size;
        bool has_with; /* with its number came this, too */
        struct rig_fact with;
    } parts[RIG_PARTS];
};

struct rig_zone {
    struct sh_replog_zone *zone;
    uint64_t id;
    struct sh_replog_lives lives; /* that spans tell of */
    uint16_t epoch;               /* the highest of an entry */
    uint16_t versions_epoch;      /* and in the version log */
    uint64_t flush;               /* the highest number */
    struct rig_chunk chunks[RIG_CHUNKS];
};

struct rig {
    struct sh_replog_config config;
    struct sh_replog *log;
    uint64_t now_ns;
    uint32_t zeros_one_in; /* writes whose stamp this divides are zeros; 0: none */
    void (*step_begin)(struct rig *rig), (*step_end)(struct rig *rig); /* or NULL */
    uint32_t last_lap; /* of the primary log, when the file is read */
    unsigned flushes;  /* of version logs, too */
    unsigned slots;    /* that are in use by what their heads say */
    struct rig_zone zones[RIG_ZONES];
};

static uint64_t rig_random_state = 88172645463325252u;

RIG void rig_random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    uint8_t *at = into;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)test_draw(&rig_random_state);
}

RIG void rig_config(struct rig *rig, struct sh_disk *disk)
{
    rig->config = (struct sh_replog_config){
        .disk = disk,
        .name = "log",
        .random = {rig_random_fill, NULL},
        .cluster = RIG_CLUSTER,
        .node = RIG_NODE,
        .slot_bytes = 64 << 10,
        .slots = 400,
        .primary_blocks = 512,
        .buffer_bytes = 2 << 20,
        .batch_bytes = 16 << 10,
        .linger_ns = 100 * RIG_MS,
        .versions_max = 4096,
    };
}

RIG uint64_t rig_zone_id(unsigned zone)
{
    return (uint64_t)RIG_OWNER << 48 | (zone + 1);
}

RIG void rig_open(struct rig *rig)
{
    assert_int_equal(sh_replog_open(&rig->config, rig->now_ns,
                                    (uint32_t)(rig->now_ns / (1000 * RIG_MS)), &rig->log),
                     SHOAL_OK);
}

RIG void rig_step(struct rig *rig, uint64_t ns)
{
    rig->now_ns += ns;
    if (rig->step_begin)
        rig->step_begin(rig);
    (void)sh_replog_step(rig->log, rig->now_ns, (uint32_t)(rig->now_ns / (1000 * RIG_MS)));
    if (rig->step_end)
        rig->step_end(rig);
}

RIG struct sh_replog_zone_config rig_zone_config(unsigned zone, uint32_t incarnation,
                                                 uint64_t first, uint64_t bytes_max)
{
    return (struct sh_replog_zone_config){.id = rig_zone_id(zone),
                                          .owner = RIG_OWNER,
                                          .incarnation = incarnation,
                                          .first = first,
                                          .bytes_max = bytes_max,
                                          .range_first = (uint64_t)RIG_OWNER << 48 | 1,
                                          .range_count = RIG_CHUNKS / 2,
                                          .rest_max = RIG_CHUNKS};
}

RIG void rig_zone_add(struct rig *rig, unsigned zone, uint32_t incarnation, uint64_t first)
{
    rig->zones[zone].id = rig_zone_id(zone);
    const struct sh_replog_zone_config config =
        rig_zone_config(zone, incarnation, first, 44 * 65536);
    assert_int_equal(sh_replog_zone_add(rig->log, &config, &rig->zones[zone].zone), SHOAL_OK);
}

RIG uint16_t rig_creator(unsigned chunk)
{
    return chunk < RIG_OF_ZONE ? RIG_OWNER : 0;
}

/* The stamp, and what follows from it; 4 bytes at least. */
RIG void rig_payload(uint64_t local_id, uint32_t stamp, uint8_t *into, size_t size)
{
    assert_true(size >= 4);
    sh_store32(into, stamp);
    for (size_t i = 4; i < size; i++)
        into[i] = (uint8_t)(stamp * 31 + local_id * 7 + i + i / 256);
}

/* In how many pieces so many bytes come. */
RIG unsigned rig_pieces(const struct rig *rig, size_t size)
{
    size_t most = sh_replog_piece_max(rig->log);
    return size ? (unsigned)((size + most - 1) / most) : 1;
}

/* What will be found in place of a stamp. */
RIG uint32_t rig_stamp(const struct rig *rig, uint32_t stamp, size_t size)
{
    return size && rig->zeros_one_in && stamp % rig->zeros_one_in == 0 ? RIG_ZEROS : stamp;
}

/* A piece of a write of a chunk, or its removal: size 0. Each has the stamp, and bytes of its own. */
RIG struct sh_replog_write rig_write(const struct rig *rig, unsigned chunk, uint32_t stamp,
                                     size_t size, unsigned piece)
{
    static uint8_t payloads[2][1 << 20]; /* of a pair */
    uint8_t *payload = payloads[chunk >= RIG_OF_ZONE];
    unsigned pieces = rig_pieces(rig, size);
    size_t each = (size + pieces - 1) / pieces, left = size - piece * each;
    struct sh_replog_write write = {.local_id = chunk + 1,
                                    .creator = rig_creator(chunk),
                                    .is_removal = !size,
                                    .piece = (uint16_t)piece,
                                    .pieces = (uint16_t)pieces,
                                    .total = pieces > 1 ? (uint32_t)size : 0,
                                    .payload = {payload, left < each ? left : each}};
    if (rig_stamp(rig, stamp, size) == RIG_ZEROS)
        write.payload.at = NULL;
    else if (size)
        rig_payload(write.local_id + piece, stamp, payload, write.payload.size);
    return write;
}

RIG void rig_written(struct rig *rig, unsigned zone, unsigned chunk, uint32_t stamp, size_t size)
{
    struct rig_chunk *of = &rig->zones[zone].chunks[chunk];
    of->is_there = true;
    of->is_removal = !size;
    of->stamp = rig_stamp(rig, stamp, size);
    of->size = (uint32_t)size;
}

#define RIG_ALONE UINT_MAX /* in place of a chunk that is written with another one */

/* Appends a write of a chunk, or its removal, and with it of one about the zone, or RIG_ALONE; steps until there is room. */
RIG enum shoal_err rig_append_with(struct rig *rig, unsigned zone, unsigned chunk, uint32_t stamp,
                                   size_t size, unsigned with_chunk, size_t with_size)
{
    struct rig_zone *of = &rig->zones[zone];
    enum shoal_err err = SHOAL_OK;
    for (unsigned piece = 0, tries = 0; piece < rig_pieces(rig, size); tries++) {
        struct sh_replog_write write = rig_write(rig, chunk, stamp, size, piece), with;
        if (with_chunk != RIG_ALONE && !piece) {
            with = rig_write(rig, with_chunk, stamp, with_size, 0);
            write.with = &with;
        }
        assert_true(tries < 10000);
        err = sh_replog_append(of->zone, &write);
        if (err && err != SHOAL_EAGAIN)
            return err;
        piece += !err;
        if (err)
            rig_step(rig, RIG_MS);
    }
    rig_written(rig, zone, chunk, stamp, size);
    if (with_chunk != RIG_ALONE)
        rig_written(rig, zone, with_chunk, stamp, with_size);
    return SHOAL_OK;
}

RIG enum shoal_err rig_append(struct rig *rig, unsigned zone, unsigned chunk, uint32_t stamp,
                              size_t size, bool is_removal)
{
    return rig_append_with(rig, zone, chunk, stamp, is_removal ? 0 : size, RIG_ALONE, 0);
}

/* Steps until all that was appended to these zones is durable. */
RIG void rig_sync(struct rig *rig, unsigned zones)
{
    for (unsigned i = 0; i < zones; i++)
        sh_replog_sync(rig->zones[i].zone);
    for (unsigned i = 0; i < zones; i++) {
        struct sh_replog_zone *zone = rig->zones[i].zone;
        for (unsigned tries = 0; sh_replog_durable(zone) < sh_replog_next(zone); tries++) {
            assert_true(tries < 10000);
            rig_step(rig, RIG_MS / 100);
        }
    }
}

struct rig_loaded {
    bool is_over;
    uint64_t end;
    enum shoal_err err;
};

RIG void rig_on_loaded(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    (void)zone;
    *(struct rig_loaded *)arg = (struct rig_loaded){true, end, err};
}

/* Loads a zone, which is not loaded twice meanwhile. */
RIG struct rig_loaded rig_load(struct rig *rig, unsigned zone)
{
    struct rig_loaded loaded = {.is_over = false};
    struct sh_replog_zone *of = sh_replog_zone_find(rig->log, rig_zone_id(zone));
    assert_non_null(of);
    assert_int_equal(sh_replog_zone_load(of, rig_on_loaded, &loaded), SHOAL_OK);
    assert_int_equal(sh_replog_zone_load(of, rig_on_loaded, &loaded), SHOAL_EBUSY);
    for (unsigned i = 0; !loaded.is_over; i++) {
        assert_true(i < 10000);
        rig_step(rig, RIG_MS);
    }
    return loaded;
}

/* What a reading of a zone hands out. */
struct rig_taken {
    bool is_over, is_again; /* is_again: the last one was not taken */
    uint64_t end, seed;
    enum shoal_err err;
    unsigned agains, twice; /* pieces that came twice */
    unsigned drops;
    uint64_t last; /* chunk, that was not taken, or not dropped */
    struct rig_taken_chunk {
        bool is_there; /* all of it */
        uint32_t total, bytes, stamp;
        uint64_t pieces; /* a bit for each */
    } chunks[RIG_CHUNKS];
    /* The first of what was taken since the last flush, whose bytes are lent until the next one. */
    struct sh_replog_item lent[16];
    unsigned lent_count;
};

RIG void rig_item_check(const struct sh_replog_item *item, struct rig_taken_chunk *chunk)
{
    static uint8_t expected[1 << 20];
    size_t each = (item->total + item->pieces - 1u) / item->pieces;
    assert_true(item->piece < item->pieces && item->pieces <= 64);
    assert_int_equal(item->offset, item->piece * each);
    assert_true(item->piece + 1 < item->pieces ? item->payload.size == each
                                               : item->offset + item->payload.size == item->total);
    bool is_zeros = !item->payload.at;
    uint32_t stamp = is_zeros ? RIG_ZEROS : sh_load32(item->payload.at);
    assert_true(!chunk->pieces || (chunk->stamp == stamp && chunk->total == item->total));
    chunk->stamp = stamp;
    chunk->total = item->total;
    if (is_zeros)
        return;
    rig_payload(item->local_id + item->piece, stamp, expected, item->payload.size);
    assert_memory_equal(item->payload.at, expected, item->payload.size);
}

/* Whether it is refused now. */
RIG bool rig_is_again(struct rig_taken *taken, uint64_t local_id)
{
    assert_true(!taken->is_again || taken->last == local_id);
    taken->is_again = taken->seed && test_draw(&taken->seed) % 100 == 0;
    taken->last = local_id;
    taken->agains += taken->is_again;
    return taken->is_again;
}

RIG enum shoal_err rig_on_item(void *arg, struct sh_replog_zone *zone,
                               const struct sh_replog_item *item)
{
    struct rig_taken *taken = arg;
    (void)zone;
    assert_true(item->local_id >= 1 && item->local_id <= RIG_CHUNKS && !taken->is_over);
    assert_int_equal(item->creator, rig_creator((unsigned)item->local_id - 1));
    if (rig_is_again(taken, item->local_id))
        return SHOAL_EAGAIN;
    struct rig_taken_chunk *chunk = &taken->chunks[item->local_id - 1];
    rig_item_check(item, chunk);
    uint64_t bit = UINT64_C(1) << item->piece;
    assert_true(item->pieces > 1 || !chunk->pieces); /* once */
    taken->twice += (chunk->pieces & bit) != 0;
    if (!(chunk->pieces & bit))
        chunk->bytes += (uint32_t)item->payload.size;
    chunk->pieces |= bit;
    chunk->is_there = chunk->bytes == chunk->total;
    if (taken->lent_count < sizeof taken->lent / sizeof taken->lent[0])
        taken->lent[taken->lent_count++] = *item;
    return SHOAL_OK;
}

RIG enum shoal_err rig_on_flush(void *arg, struct sh_replog_zone *zone)
{
    struct rig_taken *taken = arg;
    (void)zone;
    assert_true(taken->lent_count && !taken->is_over);
    for (unsigned i = 0; i < taken->lent_count; i++) {
        const struct sh_replog_item *item = &taken->lent[i];
        struct rig_taken_chunk chunk = {.is_there = false};
        rig_item_check(item, &chunk);
    }
    taken->lent_count = 0;
    return SHOAL_OK;
}

/* Of a chunk that was taken nothing counts. */
RIG enum shoal_err rig_on_drop(void *arg, struct sh_replog_zone *zone, uint16_t creator,
                               uint64_t local_id)
{
    struct rig_taken *taken = arg;
    (void)zone;
    assert_true(local_id >= 1 && local_id <= RIG_CHUNKS && !taken->is_over);
    assert_int_equal(creator, rig_creator((unsigned)local_id - 1));
    struct rig_taken_chunk *chunk = &taken->chunks[local_id - 1];
    assert_true(chunk->pieces);
    if (rig_is_again(taken, local_id))
        return SHOAL_EAGAIN;
    memset(chunk, 0, sizeof *chunk);
    taken->drops++;
    return SHOAL_OK;
}

RIG void rig_on_taken(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct rig_taken *taken = arg;
    (void)zone;
    assert_true(!taken->is_over && !taken->is_again && !taken->lent_count);
    taken->is_over = true;
    taken->end = end;
    taken->err = err;
}

/* Begins to read a zone. seed: of the times when it is not taken at once; 0: always. drops: what is handed out may be dropped. */
RIG void rig_take_begin(struct rig *rig, unsigned zone, uint64_t seed, bool drops,
                        struct rig_taken *taken)
{
    *taken = (struct rig_taken){.seed = seed};
    const struct sh_replog_read read = {.take = rig_on_item,
                                        .drop = drops ? rig_on_drop : NULL,
                                        .flush = rig_on_flush,
                                        .done = rig_on_taken,
                                        .arg = taken};
    struct sh_replog_zone *of = sh_replog_zone_find(rig->log, rig_zone_id(zone));
    assert_int_equal(sh_replog_zone_read(of, &read), SHOAL_OK);
}

/* --- Reading back ------------------------------------------------------------------------------ */

RIG void rig_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

/* Reads so many bytes of the file; what it does not have is zero. */
RIG void rig_read(struct sh_disk *disk, int file, uint64_t offset, uint8_t *into, size_t size)
{
    bool is_done = false;
    struct sh_disk_op op = {.kind = SH_DISK_READ,
                            .file = file,
                            .offset = offset,
                            .data = into,
                            .size = size,
                            .done = rig_done,
                            .arg = &is_done};
    assert_int_equal(sh_disk_submit(disk, &op), SHOAL_OK);
    while (!is_done)
        (void)sh_disk_poll(disk, true);
    assert_int_equal(op.err, SHOAL_OK);
    memset(into + op.done_bytes, 0, size - op.done_bytes);
}

/* Zeros a block of the file. */
RIG void rig_zero(struct sh_disk *disk, int file, uint64_t offset)
{
    static uint8_t zeros[SH_SLOT_HEAD_BYTES] __attribute__((aligned(4096)));
    bool is_done = false;
    struct sh_disk_op op = {.kind = SH_DISK_WRITE,
                            .file = file,
                            .offset = offset,
                            .data = zeros,
                            .size = sizeof zeros,
                            .done = rig_done,
                            .arg = &is_done};
    assert_int_equal(sh_disk_submit(disk, &op), SHOAL_OK);
    while (!is_done)
        (void)sh_disk_poll(disk, true);
    assert_int_equal(op.err, SHOAL_OK);
}

RIG bool rig_is_newer(struct sh_replog_version a, struct sh_replog_version b)
{
    return a.epoch > b.epoch || (a.epoch == b.epoch && a.number > b.number);
}

/* The parts that are known of a version of a chunk; NULL: as many versions are known as there is room for. */
RIG struct rig_parts *rig_parts_of(struct rig_chunk *chunk, struct sh_replog_version version)
{
    for (unsigned i = 0; i < RIG_PARTS; i++) {
        struct rig_parts *parts = &chunk->parts[i];
        bool is_same =
            parts->version.epoch == version.epoch && parts->version.number == version.number;
        if (!parts->seen || is_same) {
            parts->version = version;
            return parts;
        }
    }
    return NULL;
}

RIG void rig_fact_take(struct rig_zone *zone, const struct rig_fact *fact)
{
    struct rig_chunk *chunk = &zone->chunks[fact->chunk];
    if (chunk->is_there && !rig_is_newer(fact->version, chunk->version))
        return;
    chunk->is_there = true;
    chunk->is_removal = fact->is_removal;
    chunk->version = fact->version;
    chunk->size = fact->size;
    chunk->stamp = fact->stamp;
}

/* Whether all pieces of the entry's chunk are there: then *fact has its size. with: what came before it with its number; NULL: nothing.
 */
RIG bool rig_is_whole(struct rig_zone *zone, const struct sh_replog_entry *entry,
                      struct rig_fact *fact, const struct rig_fact *with)
{
    if (entry->pieces == 1 && with)
        rig_fact_take(zone, with);
    if (entry->pieces == 1)
        return true;
    struct rig_parts *parts = rig_parts_of(&zone->chunks[fact->chunk], fact->version);
    assert_non_null(parts);
    assert_true(entry->pieces <= 64);
    if (with) {
        parts->has_with = true;
        parts->with = *with;
    }
    uint64_t bit = UINT64_C(1) << entry->piece, all = ~UINT64_C(0) >> (64 - entry->pieces);
    if (!(parts->seen & bit))
        parts->size += (uint32_t)entry->payload.size;
    parts->seen |= bit;
    fact->size = parts->size;
    if (parts->seen == all && parts->has_with)
        rig_fact_take(zone, &parts->with);
    return parts->seen == all;
}

/* What an entry says of its chunk. */
RIG struct rig_fact rig_fact_of(struct rig_zone *zone, const struct sh_replog_entry *entry)
{
    static uint8_t expected[1 << 20];
    assert_true(entry->local_id >= 1 && entry->local_id <= RIG_CHUNKS);
    unsigned chunk = (unsigned)entry->local_id - 1;
    assert_int_equal(entry->creator, rig_creator(chunk));
    if (entry->version.epoch > zone->epoch)
        zone->epoch = entry->version.epoch;
    bool is_zeros = !entry->is_removal && !entry->payload.at;
    uint32_t stamp = is_zeros ? RIG_ZEROS : entry->is_removal ? 0 : sh_load32(entry->payload.at);
    if (!entry->is_removal && !is_zeros) {
        rig_payload(entry->local_id + entry->piece, stamp, expected, entry->payload.size);
        assert_memory_equal(entry->payload.at, expected, entry->payload.size);
    }
    return (struct rig_fact){
        .chunk = chunk,
        .version = sh_replog_version_in(entry->version, sh_replog_lives_eon(&zone->lives)),
        .is_removal = entry->is_removal,
        .size = (uint32_t)entry->payload.size,
        .stamp = stamp};
}

/* The same of entries of one number, at the last one, or of a piece. with: NULL: it is alone. */
RIG void rig_entry_take(struct rig_zone *zone, const struct sh_replog_entry *entry,
                        const struct rig_fact *with)
{
    struct rig_fact fact = rig_fact_of(zone, entry);
    if (rig_is_whole(zone, entry, &fact, with))
        rig_fact_take(zone, &fact);
}

/* What spans say: of the zones' lives, or of chunks, by what counts of each life. */
RIG void rig_spans_take(struct rig *found, struct sh_scan *scan, uint64_t zone_only,
                        bool is_survivors, bool is_of_lives)
{
    struct sh_span span;
    struct sh_reader entries;
    while (sh_scan_next(scan, &span, &entries)) {
        struct sh_replog_entry entry;
        unsigned zone = (unsigned)(span.zone & 0xffff) - 1;
        /* That a lap has begun; or of a lap that a start does not read. */
        if (!span.zone || (!zone_only && (uint32_t)span.use + 1 < found->last_lap))
            continue;
        assert_true(zone < RIG_ZONES && rig_zone_id(zone) == span.zone);
        assert_true(!zone_only || span.zone == zone_only);
        struct sh_replog_lives *lives = &found->zones[zone].lives;
        if (is_of_lives)
            assert_int_equal(sh_replog_lives_add(lives, span.life, span.life_first, span.whole),
                             SHOAL_OK);
        uint64_t end = sh_replog_lives_end(lives, span.life);
        uint64_t at = span.first;
        bool has_with = false;
        struct rig_fact with;
        while (!is_of_lives &&
               sh_replog_entry_get(&entries, &span.context, &entry) == SH_REPLOG_ENTRY) {
            bool counts = is_survivors || at < end;
            at += sh_replog_is_last(&entry);
            if (!counts)
                continue;
            if (!entry.is_with_next)
                rig_entry_take(&found->zones[zone], &entry, has_with ? &with : NULL);
            else
                with = rig_fact_of(&found->zones[zone], &entry);
            has_with = entry.is_with_next;
        }
    }
}

/* Whole flushes of the version log; how many. What they say of a chunk is no newer than an entry that is there. */
RIG unsigned rig_versions_check(struct rig *found, struct sh_bytes bytes, uint64_t zone_id,
                                uint64_t flush_least)
{
    struct rig_zone *zone = &found->zones[(zone_id & 0xffff) - 1];
    unsigned flushes = 0;
    for (size_t at = 0; at < bytes.size;) {
        struct sh_version_reader reader;
        struct sh_version_tuple tuple;
        if (sh_version_reader_open(sh_bytes_make(bytes.at + at, bytes.size - at), zone_id,
                                   &reader)) {
            if (at % 4096 == 0)
                break;
            at += 4096 - at % 4096; /* the next write */
            continue;
        }
        if (reader.piece.flush < flush_least)
            break;
        at += reader.size;
        flushes += reader.piece.is_last;
        if (reader.piece.flush > zone->flush)
            zone->flush = reader.piece.flush;
        while (sh_version_reader_next(&reader, &tuple) == SH_VERSION_TUPLE) {
            tuple.version = sh_replog_version_in(tuple.version, sh_replog_lives_eon(&zone->lives));
            for (uint64_t i = tuple.first; i <= tuple.last; i++) {
                uint64_t local = i & SH_REPLOG_LOCAL_ID_MAX;
                assert_true(local >= 1 && local <= RIG_CHUNKS &&
                            i >> 48 == rig_creator((unsigned)local - 1));
                struct rig_chunk *chunk = &zone->chunks[local - 1];
                if (tuple.version.epoch > zone->versions_epoch)
                    zone->versions_epoch = tuple.version.epoch;
                if (!chunk->is_there) /* the mark of its removal has been dropped */
                    continue;
                assert_false(rig_is_newer(tuple.version, chunk->version));
                bool is_same = !rig_is_newer(chunk->version, tuple.version);
                assert_true(!is_same || chunk->is_removal == tuple.is_removal);
                chunk->is_in_versions |= is_same;
            }
        }
    }
    return flushes;
}

/* Goes over the spans of the primary log, and of all slots of entries; and over the version log, if it is not for lives. */
RIG void rig_read_pass(struct sh_disk *disk, int file, const struct sh_log_file *head,
                       struct rig *found, bool is_of_lives)
{
    static uint8_t bytes[4 << 20];
    const enum sh_log_slot_kind kinds[] = {SH_SLOT_ENTRIES, SH_SLOT_SURVIVORS, SH_SLOT_VERSIONS};
    size_t size = (size_t)head->primary_blocks * SH_SLOT_HEAD_BYTES;
    assert_true(size <= sizeof bytes && head->slot_bytes <= sizeof bytes);
    rig_read(disk, file, sh_log_primary_at(), bytes, size);
    struct sh_scan primary = {
        .bytes = sh_bytes_make(bytes, size), .use = head->number, .mask = ~(uint64_t)UINT32_MAX};
    struct sh_scan laps = primary;
    struct sh_span span;
    struct sh_reader entries;
    while (sh_scan_next(&laps, &span, &entries)) {
        if ((uint32_t)span.use > found->last_lap)
            found->last_lap = (uint32_t)span.use;
    }
    rig_spans_take(found, &primary, 0, false, is_of_lives);
    for (unsigned k = 0; k < 3; k++) {
        enum sh_log_slot_kind kind = kinds[k];
        for (uint32_t i = 0; i < head->slots; i++) {
            struct sh_log_slot_head slot;
            rig_read(disk, file, sh_log_slot_at(head, i), bytes, head->slot_bytes);
            if (!sh_log_slot_get(bytes, head->number, &slot) || slot.kind != kind)
                continue;
            found->slots += !is_of_lives;
            struct sh_bytes behind =
                sh_bytes_make(bytes + SH_SLOT_HEAD_BYTES, head->slot_bytes - SH_SLOT_HEAD_BYTES);
            struct sh_scan scan = {.bytes = behind, .use = slot.use, .mask = UINT64_MAX};
            if (kind != SH_SLOT_VERSIONS)
                rig_spans_take(found, &scan, slot.zone, kind == SH_SLOT_SURVIVORS, is_of_lives);
            else if (!is_of_lives)
                found->flushes +=
                    rig_versions_check(found, behind, slot.zone, sh_replog_flush_least_in(&slot));
        }
    }
}

/* All that the file says of the zones' chunks, by its format alone. */
RIG void rig_read_all(struct sh_disk *disk, struct rig *found)
{
    static uint8_t block[SH_SLOT_HEAD_BYTES] __attribute__((aligned(4096)));
    int file;
    struct sh_log_file head;
    for (unsigned i = 0; i < RIG_ZONES; i++)
        free(found->zones[i].lives.lives);
    memset(found, 0, sizeof *found);
    assert_int_equal(sh_disk_open(disk, "log", false, &file), SHOAL_OK);
    rig_read(disk, file, 0, block, sizeof block);
    assert_int_equal(sh_log_file_get(block, &head), SHOAL_OK);
    rig_read_pass(disk, file, &head, found, true);
    rig_read_pass(disk, file, &head, found, false);
    disk->ops->close(disk, file);
}

/* The file has the newest of each chunk of these zones, and nothing of others. Returns what was found. */
RIG const struct rig *rig_assert_all(const struct rig *rig, unsigned zones)
{
    static struct rig found;
    rig_read_all(rig->config.disk, &found);
    for (unsigned z = 0; z < RIG_ZONES; z++) {
        for (unsigned i = 0; i < RIG_CHUNKS; i++) {
            const struct rig_chunk *is = &found.zones[z].chunks[i],
                                   *should = &rig->zones[z].chunks[i];
            /* The mark of a removal may have been dropped. */
            bool may_be_gone = z >= zones || !should->is_there || should->is_removal;
            assert_true(is->is_there ? z < zones && should->is_there : may_be_gone);
            if (!is->is_there)
                continue;
            assert_int_equal(is->is_removal, should->is_removal);
            assert_int_equal(is->size, should->size);
            assert_true(is->is_removal || is->stamp == should->stamp);
        }
    }
    return &found;
}

#endif
