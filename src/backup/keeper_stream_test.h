/* Streams of writes for the keeper's tests, beside its rig: what two owners write to a few zones, and how they send it. Connections are lost,
 * messages are sent twice, in part and with gaps; the backup's process starts again; owners fail, and their next life finds more or less
 * than the backup has, and gives the numbers again.
 *
 * On the way: what was told to be taken is never asked for again by the same process, and what was told to be durable by none. */
#ifndef SH_BACKUP_KEEPER_STREAM_TEST_H
#define SH_BACKUP_KEEPER_STREAM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backup/keeper_test.h"
#include "base/random_test.h"

#define STREAM __attribute__((unused)) static

#define CHUNKS 120u
#define NOTES 20u /* more, of creator 0 */
#define ENTRIES_MAX 20000u
#define ZONES 4u

struct sent_entry {
    struct sh_replication_entry entry; /* without bytes */
    uint64_t number;
    uint32_t part, stamp, offset;
};

/* One zone's stream, and how far its owner has got with it. */
struct stream {
    struct rig_owner *owner;
    unsigned zone;
    struct sent_entry *entries;
    size_t count;
    uint64_t number; /* of the next write */
    uint32_t part;
    unsigned writes;    /* that are still to be made */
    uint64_t bytes_max; /* of OPEN */
    uint32_t incarnation, since;
    uint64_t begun;
    bool is_open, is_full, is_anew, has_asked;
    bool may_skip;         /* nothing is asked for again, or what was has come */
    bool is_outdated;      /* what was asked was by an earlier life */
    bool keeps_all;        /* what is not durable is kept; else what is not taken */
    size_t cursor;         /* the next to send */
    size_t sent;           /* up to there this life has sent, or found */
    size_t freed;          /* what was before can't be sent any more, but by telling it all */
    size_t taken, durable; /* by what was told; taken: by this process of the backup */
    struct rig_answer answer;
};

struct model {
    uint64_t seed;
    struct rig rig;
    struct rig_append append;
    struct stream streams[ZONES];
    unsigned cuts_max; /* a wire in memory has SH_MEMWIRE_LINKS of them */
    unsigned cuts, restarts, takeovers, anews, fulls, agains;
};

STREAM unsigned draw(struct model *model, unsigned below)
{
    return (unsigned)(test_draw(&model->seed) % below);
}

/* --- What is written --------------------------------------------------------------------------- */

STREAM void entry_add(struct stream *stream, struct sh_replication_entry entry, uint32_t stamp,
                      uint32_t offset)
{
    assert_true(stream->count < ENTRIES_MAX);
    stream->entries[stream->count++] = (struct sent_entry){.entry = entry,
                                                           .number = stream->number,
                                                           .part = stream->part,
                                                           .stamp = stamp,
                                                           .offset = offset};
    sh_replication_pass(&entry, &stream->number, &stream->part);
}

/* Pieces of a chunk, all of them or the first few, and then that these are abandoned. */
STREAM void pieces_add(struct model *model, struct stream *stream, uint64_t chunk, uint32_t stamp)
{
    uint16_t pieces = (uint16_t)(2 + draw(model, 5)), last = pieces;
    uint32_t each = 100 + draw(model, draw(model, 4) ? 2000 : 30000);
    uint32_t total = (pieces - 1u) * each + 1 + draw(model, each);
    bool is_zeros = draw(model, 8) == 0, is_abandoned = draw(model, 4) == 0;
    if (is_abandoned)
        last = (uint16_t)(1 + draw(model, pieces - 1u));
    for (uint16_t piece = 0; piece < last; piece++) {
        uint32_t offset = piece * each, left = total - offset;
        const struct sh_replication_entry entry = {.kind = is_zeros ? SH_REPLICATION_ZEROS
                                                                    : SH_REPLICATION_IMAGE,
                                                   .chunk = chunk,
                                                   .size = left < each ? left : each,
                                                   .piece = piece,
                                                   .pieces = pieces,
                                                   .total = total};
        entry_add(stream, entry, stamp, offset);
    }
    if (is_abandoned)
        entry_add(stream,
                  (struct sh_replication_entry){.kind = SH_REPLICATION_ABANDON, .pieces = 1}, 0, 0);
}

STREAM void write_add(struct model *model, struct stream *stream)
{
    uint64_t chunk = rig_chunk(draw(model, CHUNKS));
    uint32_t stamp = 1 + draw(model, 1 << 20);
    unsigned kind = draw(model, 20);
    if (draw(model, 10) == 0) { /* it comes with another one */
        const struct sh_replication_entry note = {.kind = draw(model, 4) ? SH_REPLICATION_IMAGE
                                                                         : SH_REPLICATION_REMOVAL,
                                                  .with_next = true,
                                                  .chunk = 1 + draw(model, NOTES),
                                                  .size = 16,
                                                  .pieces = 1};
        struct sh_replication_entry with = note;
        with.size = note.kind == SH_REPLICATION_IMAGE ? 16 : 0;
        entry_add(stream, with, stamp + 1, 0);
    }
    if (kind < 3) {
        pieces_add(model, stream, chunk, stamp);
    } else {
        uint32_t size = kind < 5 ? 20000 + draw(model, 40000) : draw(model, 300);
        uint8_t of = kind < 7   ? SH_REPLICATION_REMOVAL
                     : kind < 9 ? SH_REPLICATION_ZEROS
                                : SH_REPLICATION_IMAGE;
        if (kind < 5)
            of = SH_REPLICATION_IMAGE;
        const struct sh_replication_entry entry = {.kind = of,
                                                   .chunk = chunk,
                                                   .size = of == SH_REPLICATION_REMOVAL ? 0 : size,
                                                   .pieces = 1};
        entry_add(stream, entry, stamp, 0);
    }
}

STREAM uint8_t byte_of(uint32_t stamp, uint32_t at)
{
    return (uint8_t)(stamp * 31 + at * 7 + at / 256);
}

/* --- Sending ----------------------------------------------------------------------------------- */

/* The first entry from one on that has that place; `count` where it is the next one to be written. Behind pieces that were abandoned the places
 * of their write are there once more. */
STREAM size_t index_of(const struct stream *stream, uint64_t number, uint32_t part, size_t from)
{
    size_t low = 0, high = stream->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (stream->entries[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < stream->count && stream->entries[low].number == number &&
           (low < from || stream->entries[low].part != part))
        low++;
    if (low < stream->count)
        assert_true(stream->entries[low].number == number && stream->entries[low].part == part);
    else
        assert_true(stream->number == number && stream->part == part);
    return low;
}

STREAM void place_of(const struct stream *stream, size_t index, uint64_t *number, uint32_t *part)
{
    bool is_end = index == stream->count;
    *number = is_end ? stream->number : stream->entries[index].number;
    *part = is_end ? stream->part : stream->entries[index].part;
}

/* The first of a pair goes with the next. */
STREAM bool splits_pair(const struct stream *stream, size_t index)
{
    return index > 0 && index < stream->count && stream->entries[index - 1].entry.with_next;
}

STREAM void entry_put(struct model *model, const struct sent_entry *sent)
{
    static uint8_t bytes[64 << 10];
    struct sh_replication_entry entry = sent->entry;
    if (entry.kind == SH_REPLICATION_IMAGE) {
        for (uint32_t i = 0; i < entry.size; i++)
            bytes[i] = byte_of(sent->stamp, sent->offset + i);
        entry.bytes = sh_bytes_make(bytes, entry.size);
    }
    sh_replication_entry_put(&model->append.w, &entry);
}

/* The bytes that these entries take in a message. */
STREAM size_t bytes_of(const struct stream *stream, size_t first, size_t last)
{
    size_t bytes = 0;
    for (size_t i = first; i <= last; i++)
        bytes += sh_replication_entry_size(&stream->entries[i].entry);
    return bytes;
}

/* Sends some of what comes next. */
STREAM void stream_send(struct model *model, struct stream *stream)
{
    uint64_t number;
    uint32_t part;
    size_t from = stream->cursor;
    unsigned most = 1 + draw(model, draw(model, 2) ? 4 : 100);
    if (draw(model, 20) == 0) /* once more */
        from = stream->freed + draw(model, (unsigned)(from - stream->freed) + 1);
    else if (stream->may_skip && draw(model, 30) == 0) { /* something is missing */
        from += draw(model, 5);
        stream->may_skip = false;
    }
    from = from < stream->count ? from : stream->count;
    from += splits_pair(stream, from);
    place_of(stream, from, &number, &part);
    rig_append_begin(&model->append, stream->zone, stream->incarnation, number, part,
                     (uint8_t)draw(model, 3));
    size_t at = from;
    for (unsigned i = 0; at < stream->count && i < most; i++) {
        size_t last = at + stream->entries[at].entry.with_next;
        if (rig_append_size(&model->append) + bytes_of(stream, at, last) > SH_REPLICATION_BYTES_MAX)
            break;
        for (; at <= last; at++)
            entry_put(model, &stream->entries[at]);
    }
    assert_true(rig_append_size(&model->append) <= SH_REPLICATION_BYTES_MAX);
    if (!rig_append_try(stream->owner, &model->append))
        return;
    stream->cursor = at > stream->cursor ? at : stream->cursor;
    stream->sent = at > stream->sent ? at : stream->sent;
}

STREAM void open_send(struct stream *stream)
{
    struct sh_replication_open open =
        rig_open_of(stream->owner, stream->zone, stream->incarnation, 1);
    open.bytes_max = stream->bytes_max;
    open.since = stream->since;
    open.begun = stream->begun;
    open.flags = stream->is_anew ? SH_REPLICATION_ANEW : 0;
    if (!stream->is_anew)
        place_of(stream, stream->freed, &open.first, &open.first_part);
    stream->has_asked = rig_open_ask(stream->owner, &open, &stream->answer);
}

/* Nothing that this owner has can follow on what the replica has: all of it is told once more. */
STREAM void begin_anew(struct model *model, struct stream *stream)
{
    stream->is_anew = true;
    stream->incarnation++;
    stream->freed = stream->taken = stream->durable = stream->cursor = 0;
    model->anews++;
}

STREAM void opened(struct model *model, struct stream *stream)
{
    struct rig_answer *answer = &stream->answer;
    struct sh_replication_opened got;
    stream->has_asked = false;
    if (stream->is_outdated) {
        stream->is_outdated = false;
        return;
    }
    if (answer->err == SHOAL_EDIFFERS) {
        assert_false(stream->is_anew);
        begin_anew(model, stream);
        return;
    }
    if (answer->err) {
        assert_true(answer->err == SHOAL_EBUSY || answer->err == SHOAL_ECONNLOST);
        return;
    }
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer->bytes, answer->size));
    assert_true(sh_replication_opened_get(&r, &got));
    size_t next = index_of(stream, got.next, got.part, stream->taken);
    assert_true(next >= stream->taken && next >= stream->durable && next >= stream->freed);
    assert_true(!stream->is_anew || next == 0);
    stream->is_open = true;
    stream->is_full = stream->is_anew = false;
    stream->cursor = stream->taken = next;
    stream->durable = index_of(stream, got.durable, 0, 0);
    stream->may_skip = true;
}

STREAM void told(struct model *model, struct stream *stream)
{
    struct rig_told *now = &stream->owner->told[stream->zone];
    if (!now->count)
        return;
    const struct sh_replication_ack ack = now->last;
    /* The backup sent an ACK of the stream before, if it came before the answer to OPEN. */
    bool is_former = now->arrived < stream->answer.arrived;
    bool is_again = now->of_state[SH_REPLICATION_AGAIN],
         is_gone = now->of_state[SH_REPLICATION_GONE];
    assert_int_equal(now->of_state[SH_REPLICATION_LOST], 0);
    model->fulls += now->of_state[SH_REPLICATION_FULL];
    model->agains += is_again;
    *now = (struct rig_told){.count = 0};
    if (!stream->is_open || is_former || ack.incarnation != stream->incarnation)
        return;
    if (is_gone) { /* the backup has started again */
        stream->is_open = false;
        return;
    }
    size_t next = index_of(stream, ack.next, ack.part, stream->taken);
    size_t durable = index_of(stream, ack.durable, 0, 0);
    if (next < stream->taken || durable < stream->durable || durable > next || next > stream->sent)
        fail_msg(
            "zone %u, incarnation %u: taken before %zu, durable before %zu, sent before %zu; told "
            "%zu (%llu, part %u), durable before %zu (%llu), state %u, again %d",
            stream->zone, stream->incarnation, stream->taken, stream->durable, stream->sent, next,
            (unsigned long long)ack.next, ack.part, durable, (unsigned long long)ack.durable,
            ack.state, is_again);
    stream->may_skip |= next > stream->taken;
    stream->taken = next;
    stream->durable = durable;
    if (!stream->keeps_all && next > stream->freed)
        stream->freed = next;
    else if (durable > stream->freed)
        stream->freed = durable;
    stream->is_full = ack.state == SH_REPLICATION_FULL;
    if (is_again || next > stream->cursor) {
        stream->cursor = next;
        stream->may_skip = false;
    }
}

/* --- What happens ------------------------------------------------------------------------------ */

STREAM void owner_cut(struct model *model, struct rig_owner *owner)
{
    if (model->cuts == model->cuts_max)
        return;
    model->cuts++;
    rig_cut(&model->rig, owner);
    for (unsigned i = 0; i < ZONES; i++) {
        struct stream *stream = &model->streams[i];
        if (stream->owner != owner)
            continue;
        stream->is_open = false;
        stream->has_asked &= !stream->answer.is_over;
        owner->told[i] = (struct rig_told){.count = 0};
    }
}

STREAM void backup_restart(struct model *model)
{
    if (model->cuts + 2 > model->cuts_max)
        return;
    model->restarts++;
    for (unsigned i = 0; i < RIG_OWNERS; i++)
        owner_cut(model, &model->rig.owners[i]);
    rig_stop(&model->rig);
    rig_start(&model->rig);
    for (unsigned i = 0; i < ZONES; i++)
        model->streams[i].taken = model->streams[i].durable;
}

/* The owner's next life finds a zone's writes up to some number, and gives those from there on again. */
STREAM void take_over(struct model *model, struct rig_owner *owner)
{
    if (model->cuts == model->cuts_max)
        return;
    owner_cut(model, owner);
    model->takeovers++;
    owner->life++;
    sh_keeper_view_changed(model->rig.keeper);
    for (unsigned i = 0; i < ZONES; i++) {
        struct stream *stream = &model->streams[i];
        if (stream->owner != owner)
            continue;
        size_t least = stream->durable > 3 ? stream->durable - draw(model, 3) : stream->durable;
        size_t end = least + draw(model, (unsigned)(stream->count - least) + 1);
        while (end > 0 && end < stream->count && stream->entries[end].part)
            end--;
        place_of(stream, end, &stream->number, &stream->part);
        if (stream->part) { /* pieces were the last */
            while (stream->entries[end - 1].number == stream->number)
                end--;
            stream->part = 0;
        }
        stream->count = end;
        stream->begun = stream->number;
        stream->since = ++stream->incarnation;
        stream->is_anew = false;
        stream->is_outdated = stream->has_asked;
        stream->freed = stream->cursor = stream->sent = end;
        /* Replicas of which it knows nothing any more. */
        stream->taken = stream->durable = 0;
    }
}

STREAM void stream_step(struct model *model, struct stream *stream)
{
    if (stream->has_asked && stream->answer.is_over)
        opened(model, stream);
    told(model, stream);
    if (!stream->is_open && !stream->has_asked)
        open_send(stream);
    for (unsigned i = draw(model, 4); i > 0 && stream->writes > 0; i--, stream->writes--)
        write_add(model, stream);
    if (stream->is_open && !stream->is_full && stream->cursor < stream->count)
        stream_send(model, stream);
}

STREAM bool streams_are_over(const struct model *model)
{
    for (unsigned i = 0; i < ZONES; i++) {
        const struct stream *stream = &model->streams[i];
        /* Pieces that were abandoned last are of no write. */
        if (!stream->is_open || stream->writes || stream->taken < stream->count ||
            stream->durable < index_of(stream, stream->number, 0, 0))
            return false;
    }
    return true;
}

/* Where it does not get on, that is why. */
STREAM void streams_print(const struct model *model)
{
    for (unsigned i = 0; i < ZONES; i++) {
        const struct stream *stream = &model->streams[i];
        print_message(
            "zone %u: open %d full %d anew %d asked %d answer %d; cursor %zu freed %zu taken %zu "
            "durable %zu of %zu, %u writes to come\n",
            i, stream->is_open, stream->is_full, stream->is_anew, stream->has_asked,
            stream->answer.err, stream->cursor, stream->freed, stream->taken, stream->durable,
            stream->count, stream->writes);
    }
}

#endif
