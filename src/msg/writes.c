/* A frame is 8 bytes of head, for a write 16 more that say where, and the payload. The receiver
 * reads heads by themselves and payloads straight to where they belong: into what the owner gives
 * pull, or into the region. So nothing is buffered on that side, and nothing is there that the
 * inner wire does not know of: its events say all.
 *
 * Sent frames are put together in a buffer and pushed at once. What the inner wire does not take of
 * one is owed: poll sends it after WRITABLE. As push must not count bytes that are not gone (who
 * has pushed everything may close), those of an owed frame are counted by the push after. */
#include "msg/writes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "msg/rate_int.h"

#define HEAD_BYTES 8
#define PLACE_BYTES 16
#define VERSION 1
#define FRAME_BYTES_MAX (64u << 10) /* of payload */
#define ROUND_BYTES (256u << 10)    /* of writes that one event lets land: others want a turn */
#define BUCKETS 1024
#define FRAMES_KEPT 16

_Static_assert(FRAME_BYTES_MAX >= SH_WIRE_WRITE_MAX, "a write is one frame");

enum frame_kind { NONE, DATA, WRITE };

/* A frame, or what is left of one, on its way to the inner wire. */
struct frame {
    struct frame *next; /* in the pool */
    size_t size, sent;
    uint8_t bytes[HEAD_BYTES + PLACE_BYTES + FRAME_BYTES_MAX];
};

struct region {
    uint8_t *memory; /* NULL: free */
    uint64_t size, key;
};

struct writes_link {
    struct writes *writes;
    struct writes_link *bucket_next;
    struct writes_link *failed_next;
    sh_link number;
    uint64_t tag;
    bool is_open, is_failed, wants_writable, is_paused;
    enum shoal_err err; /* is_failed */
    /* Sending. */
    struct frame *frame; /* NULL: nothing is owed */
    size_t owed;         /* bytes of frames that push has not counted as taken */
    /* Receiving: the head while it comes, then what kind of payload follows. */
    uint8_t head[HEAD_BYTES + PLACE_BYTES];
    size_t head_size;
    enum frame_kind kind;
    uint64_t left;        /* of its payload */
    uint64_t key, offset; /* WRITE: where the next byte of it goes */
    bool is_word;         /* it is 8 bytes for an aligned address: they arrive whole */
    uint8_t word[8];
};

struct writes {
    struct sh_wire wire;
    struct sh_wire *inner;
    struct sh_clock clock;
    struct sh_random random;
    struct sh_rate warnings;
    struct region regions[SH_WRITES_REGIONS_MAX];
    struct writes_link *buckets[BUCKETS];
    struct writes_link *failed; /* to be reported by the next poll */
    struct frame *frames;
    unsigned frames_count;
};

static struct writes *writes_of(struct sh_wire *wire)
{
    return (struct writes *)wire;
}

/* --- Links ---------------------------------------------------------------------------------- */

static struct writes_link **bucket_of(struct writes *writes, sh_link number)
{
    return &writes->buckets[(number ^ number >> 20) % BUCKETS];
}

/* NULL: there is none of that number. */
static struct writes_link *link_find(struct writes *writes, sh_link number)
{
    struct writes_link *link = *bucket_of(writes, number);
    while (link && link->number != number)
        link = link->bucket_next;
    return link;
}

/* The link, if it can carry something. */
static struct writes_link *link_open(struct writes *writes, sh_link number)
{
    struct writes_link *link = link_find(writes, number);
    return link && link->is_open && !link->is_failed ? link : NULL;
}

/* NULL: out of memory. */
static struct writes_link *link_new(struct writes *writes, sh_link number)
{
    SH_ASSERT(!link_find(writes, number));
    struct writes_link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    struct writes_link **bucket = bucket_of(writes, number);
    link->writes = writes;
    link->number = number;
    link->bucket_next = *bucket;
    *bucket = link;
    return link;
}

static void frame_release(struct writes_link *link)
{
    struct writes *writes = link->writes;
    struct frame *frame = link->frame;
    link->frame = NULL;
    if (!frame)
        return;
    if (writes->frames_count == FRAMES_KEPT) {
        free(frame);
        return;
    }
    frame->next = writes->frames;
    writes->frames = frame;
    writes->frames_count++;
}

/* Frees the link; the inner one is the caller's to close, if it is still there. */
static void link_free(struct writes_link *link)
{
    struct writes_link **at = bucket_of(link->writes, link->number);
    while (*at != link)
        at = &(*at)->bucket_next;
    *at = link->bucket_next;
    if (link->is_failed) {
        at = &link->writes->failed;
        while (*at != link)
            at = &(*at)->failed_next;
        *at = link->failed_next;
    }
    frame_release(link);
    free(link);
}

static void inner_close(struct writes_link *link)
{
    link->writes->inner->ops->close(link->writes->inner, link->number);
}

/* The link can't go on. The inner link stays until the owner
 * has been told, so that its number can't come back before. */
static void link_fail(struct writes_link *link, enum shoal_err err, const char *reason)
{
    struct writes *writes = link->writes;
    char address[SH_WIRE_ADDRESS_MAX];
    uint64_t left_out;
    SH_ASSERT(!link->is_failed);
    if (sh_rate_allows(&writes->warnings, sh_now(&writes->clock), &left_out)) {
        sh_wire_peer(writes->inner, link->number, address);
        SH_WARN("msg", "one-sided writes: link cut", SH_TEXT("address", address),
                SH_TEXT("reason", reason), SH_U64("left_out", left_out));
    }
    link->is_failed = true;
    link->err = err;
    link->failed_next = writes->failed;
    writes->failed = link;
    /* Who watches is to have the owner poll. */
    writes->inner->ops->signal(writes->inner);
}

/* --- Sending -------------------------------------------------------------------------------- */

/* Hands on what is owed; true when nothing is left. */
static bool frame_flush(struct writes_link *link)
{
    struct sh_wire *inner = link->writes->inner;
    struct frame *frame = link->frame;
    if (!frame)
        return true;
    struct sh_bytes rest = {frame->bytes + frame->sent, frame->size - frame->sent};
    size_t taken = inner->ops->push(inner, link->number, rest);
    SH_ASSERT(taken <= rest.size);
    frame->sent += taken;
    if (taken < rest.size)
        return false;
    frame_release(link);
    return true;
}

/* Makes a frame with its head, for bytes to be appended. False: out of memory. */
static bool frame_begin(struct writes_link *link, enum frame_kind kind, size_t payload_bytes)
{
    struct writes *writes = link->writes;
    SH_ASSERT(!link->frame);
    SH_ASSERT(payload_bytes > 0 && payload_bytes <= FRAME_BYTES_MAX);
    struct frame *frame = writes->frames;
    if (frame) {
        writes->frames = frame->next;
        writes->frames_count--;
    } else {
        frame = malloc(sizeof *frame);
        if (!frame)
            return false;
    }
    frame->sent = 0;
    frame->size = HEAD_BYTES;
    memset(frame->bytes, 0, HEAD_BYTES);
    frame->bytes[0] = (uint8_t)kind;
    frame->bytes[1] = VERSION;
    sh_store32(frame->bytes + 4, (uint32_t)payload_bytes);
    link->frame = frame;
    return true;
}

static void frame_append(struct frame *frame, const void *from, size_t size)
{
    SH_ASSERT(size <= sizeof frame->bytes - frame->size);
    memcpy(frame->bytes + frame->size, from, size);
    frame->size += size;
}

static size_t writes_push(struct sh_wire *wire, sh_link number, struct sh_bytes bytes)
{
    struct writes_link *link = link_open(writes_of(wire), number);
    if (!link || bytes.size == 0)
        return 0;
    if (!frame_flush(link)) {
        link->wants_writable = true;
        return 0;
    }
    size_t taken = link->owed < bytes.size ? link->owed : bytes.size;
    link->owed -= taken;
    while (taken < bytes.size) {
        size_t size = bytes.size - taken < FRAME_BYTES_MAX ? bytes.size - taken : FRAME_BYTES_MAX;
        if (!frame_begin(link, DATA, size)) {
            link_fail(link, SHOAL_ECONNLOST, "out of memory");
            return taken;
        }
        frame_append(link->frame, bytes.at + taken, size);
        if (!frame_flush(link)) {
            link->owed = size;
            link->wants_writable = true;
            return taken;
        }
        taken += size;
    }
    return taken;
}

static enum shoal_err writes_write(struct sh_wire *wire, sh_link number, uint64_t key,
                                   uint64_t offset, struct sh_bytes bytes)
{
    struct writes_link *link = link_open(writes_of(wire), number);
    SH_ASSERT(bytes.size <= SH_WIRE_WRITE_MAX);
    if (!link)
        return SHOAL_ECONNLOST;
    if (bytes.size == 0)
        return SHOAL_OK;
    if (!frame_flush(link)) {
        link->wants_writable = true;
        return SHOAL_EAGAIN;
    }
    if (!frame_begin(link, WRITE, bytes.size)) {
        link_fail(link, SHOAL_ECONNLOST, "out of memory");
        return SHOAL_ECONNLOST;
    }
    uint8_t place[PLACE_BYTES];
    sh_store64(place, key);
    sh_store64(place + 8, offset);
    frame_append(link->frame, place, sizeof place);
    frame_append(link->frame, bytes.at, bytes.size);
    (void)frame_flush(link); /* what is left of it, poll sends */
    return SHOAL_OK;
}

/* --- Receiving ------------------------------------------------------------------------------ */

/* NULL: there is none of that key. */
static struct region *region_of(struct writes *writes, uint64_t key)
{
    struct region *region = &writes->regions[key % SH_WRITES_REGIONS_MAX];
    return region->memory && region->key == key ? region : NULL;
}

/* Where a write may put size bytes; NULL: nowhere. */
static uint8_t *region_place(struct writes *writes, uint64_t key, uint64_t offset, uint64_t size)
{
    const struct region *region = region_of(writes, key);
    if (!region || offset > region->size || size > region->size - offset)
        return NULL;
    return region->memory + offset;
}

/* The first 8 bytes are there. */
static void head_judge(struct writes_link *link)
{
    const uint8_t *head = link->head;
    uint32_t size = sh_load32(head + 4);
    uint32_t size_max = head[0] == WRITE ? SH_WIRE_WRITE_MAX : FRAME_BYTES_MAX;
    if (head[0] != DATA && head[0] != WRITE)
        link_fail(link, SHOAL_EPROTO, "not a frame: does the other side have one-sided writes?");
    else if (head[1] != VERSION)
        link_fail(link, SHOAL_EPROTO, "a frame of another version");
    else if (head[2] != 0 || head[3] != 0)
        link_fail(link, SHOAL_EPROTO, "a frame's reserved bytes are set");
    else if (size == 0 || size > size_max)
        link_fail(link, SHOAL_EPROTO, "a frame's size is out of bounds");
    link->left = size;
    if (head[0] == DATA) {
        link->kind = DATA;
        link->head_size = 0;
    }
}

/* So is where the write goes. */
static void place_judge(struct writes_link *link)
{
    link->key = sh_load64(link->head + HEAD_BYTES);
    link->offset = sh_load64(link->head + HEAD_BYTES + 8);
    link->kind = WRITE;
    link->head_size = 0;
    const uint8_t *to = region_place(link->writes, link->key, link->offset, link->left);
    if (!to)
        link_fail(link, SHOAL_EPROTO, "a write to no region, or beyond its end");
    link->is_word = link->left == sizeof link->word && (uintptr_t)to % sizeof link->word == 0;
}

static size_t inner_pull(struct writes_link *link, void *into, size_t room)
{
    struct sh_wire *inner = link->writes->inner;
    size_t got = inner->ops->pull(inner, link->number, into, room);
    SH_ASSERT(got <= room);
    return got;
}

/* Reads more of a head; returns how many bytes. */
static size_t head_read(struct writes_link *link)
{
    bool is_place = link->head_size >= HEAD_BYTES;
    size_t whole = is_place ? HEAD_BYTES + PLACE_BYTES : HEAD_BYTES;
    size_t got = inner_pull(link, link->head + link->head_size, whole - link->head_size);
    link->head_size += got;
    if (got > 0 && link->head_size == whole) {
        if (is_place)
            place_judge(link);
        else
            head_judge(link);
    }
    return got;
}

/* Reads more of a write's payload to where it belongs; returns how many bytes. */
static size_t write_read(struct writes_link *link, size_t room)
{
    /* Looked up each time: the owner may have removed the region meanwhile. */
    uint8_t *to = region_place(link->writes, link->key, link->offset, link->left);
    if (!to) {
        link_fail(link, SHOAL_EPROTO, "a write's region was removed while it came");
        return 0;
    }
    uint8_t *into = link->is_word ? link->word + sizeof link->word - link->left : to;
    size_t got = inner_pull(link, into, link->left < room ? (size_t)link->left : room);
    link->left -= got;
    if (!link->is_word)
        link->offset += got;
    if (link->left > 0)
        return got;
    link->kind = NONE;
    if (link->is_word) {
        /* release: what was written before; pairs with the reader's acquire */
        atomic_store_explicit((_Atomic uint64_t *)(void *)(to), sh_load64(link->word),
                              memory_order_release);
    }
    return got;
}

/* Reads heads and writes up to the next bytes for the owner. True: there may be some; false:
 * nothing is there now, the link has failed, or it was enough for one turn and the inner wire will
 * say READABLE again. */
static bool frames_read(struct writes_link *link)
{
    size_t room = ROUND_BYTES;
    while (link->kind != DATA && !link->is_failed && room > 0) {
        size_t got = link->kind == NONE ? head_read(link) : write_read(link, room);
        if (got == 0)
            return false;
        room -= got < room ? got : room;
    }
    return link->kind == DATA && !link->is_failed;
}

static size_t writes_pull(struct sh_wire *wire, sh_link number, void *into, size_t room)
{
    struct writes_link *link = link_open(writes_of(wire), number);
    size_t done = 0;
    while (link && done < room && frames_read(link)) {
        size_t wanted = link->left < room - done ? (size_t)link->left : room - done;
        size_t got = inner_pull(link, (uint8_t *)into + done, wanted);
        done += got;
        link->left -= got;
        if (got == 0)
            break;
        if (link->left == 0)
            link->kind = NONE;
    }
    return done;
}

/* --- Regions -------------------------------------------------------------------------------- */

static enum shoal_err writes_region_add(struct sh_wire *wire, void *memory, size_t size,
                                        uint64_t *key_out)
{
    struct writes *writes = writes_of(wire);
    SH_ASSERT(memory != NULL && size > 0);
    for (uint64_t i = 0; i < SH_WRITES_REGIONS_MAX; i++) {
        struct region *region = &writes->regions[i];
        if (region->memory)
            continue;
        uint64_t key = sh_random64(&writes->random) / SH_WRITES_REGIONS_MAX;
        *region = (struct region){memory, size, key * SH_WRITES_REGIONS_MAX + i};
        *key_out = region->key;
        return SHOAL_OK;
    }
    return SHOAL_ELIMIT;
}

static void writes_region_remove(struct sh_wire *wire, uint64_t key)
{
    struct region *region = region_of(writes_of(wire), key);
    SH_ASSERT(region != NULL);
    *region = (struct region){0};
}

/* --- The other operations ------------------------------------------------------------------- */

static enum shoal_err writes_listen(struct sh_wire *wire, const char *address, char *bound_out)
{
    struct sh_wire *inner = writes_of(wire)->inner;
    return inner->ops->listen(inner, address, bound_out);
}

static enum shoal_err writes_open(struct sh_wire *wire, const char *address, uint64_t tag,
                                  sh_link *link_out)
{
    struct writes *writes = writes_of(wire);
    sh_link number;
    enum shoal_err err = writes->inner->ops->open(writes->inner, address, tag, &number);
    if (err != SHOAL_OK)
        return err;
    struct writes_link *link = link_new(writes, number);
    if (!link) {
        writes->inner->ops->close(writes->inner, number);
        return SHOAL_ENOMEM;
    }
    link->tag = tag;
    *link_out = number;
    return SHOAL_OK;
}

static void writes_close(struct sh_wire *wire, sh_link number)
{
    struct writes_link *link = link_find(writes_of(wire), number);
    if (!link)
        return;
    (void)frame_flush(link);
    inner_close(link);
    link_free(link);
}

static unsigned failed_report(struct writes *writes, struct sh_wire_event *events,
                              unsigned events_max)
{
    unsigned count = 0;
    while (writes->failed && count < events_max) {
        struct writes_link *link = writes->failed;
        events[count++] = (struct sh_wire_event){
            .kind = SH_WIRE_LOST, .link = link->number, .tag = link->tag, .err = link->err};
        inner_close(link);
        link_free(link);
    }
    return count;
}

static bool on_accepted(struct writes *writes, sh_link number)
{
    struct writes_link *link = link_new(writes, number);
    if (link) {
        link->is_open = true;
        return true;
    }
    SH_ERROR("msg", "out of memory: refused a connection");
    writes->inner->ops->close(writes->inner, number);
    return false;
}

/* True when an event of the inner wire is one for the owner as well. */
static bool is_owners(struct writes *writes, const struct sh_wire_event *event)
{
    if (event->kind == SH_WIRE_ACCEPTED)
        return on_accepted(writes, event->link);
    struct writes_link *link = link_find(writes, event->link);
    if (!link)
        return false;
    switch (event->kind) {
    case SH_WIRE_OPENED:
        link->is_open = true;
        return true;
    case SH_WIRE_READABLE:
        if (!frames_read(link))
            return false;
        if (link->is_paused && writes->inner->ops->pause) {
            /* Up to here writes have been seen to; the next comes behind the owner's bytes. */
            writes->inner->ops->pause(writes->inner, link->number, true);
            return false;
        }
        return !link->is_paused;
    case SH_WIRE_WRITABLE:
        if (link->is_failed || !frame_flush(link) || !link->wants_writable)
            return false;
        link->wants_writable = false;
        return true;
    default:
        SH_ASSERT(event->kind == SH_WIRE_LOST);
        link_free(link);
        return true;
    }
}

static unsigned writes_poll(struct sh_wire *wire, struct sh_wire_event *events, unsigned events_max,
                            uint64_t timeout_ns)
{
    struct writes *writes = writes_of(wire);
    unsigned count = failed_report(writes, events, events_max);
    if (count == events_max)
        return count;
    unsigned found = writes->inner->ops->poll(writes->inner, events + count, events_max - count,
                                              count > 0 ? 0 : timeout_ns);
    /* In place: each event of the inner wire is one of ours or none. */
    unsigned end = count + found;
    for (unsigned i = count; i < end; i++) {
        if (is_owners(writes, &events[i]))
            events[count++] = events[i];
    }
    return count;
}

static void writes_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    struct sh_wire *inner = writes_of(wire)->inner;
    inner->ops->watch(inner, timeout_ns);
}

static void writes_signal(struct sh_wire *wire)
{
    struct sh_wire *inner = writes_of(wire)->inner;
    inner->ops->signal(inner);
}

static void writes_flush(struct sh_wire *wire)
{
    struct sh_wire *inner = writes_of(wire)->inner;
    if (inner->ops->flush)
        inner->ops->flush(inner);
}

static void writes_pause(struct sh_wire *wire, sh_link number, bool is_paused)
{
    struct writes *writes = writes_of(wire);
    struct writes_link *link = link_open(writes, number);
    if (!link)
        return;
    link->is_paused = is_paused;
    if (!is_paused && writes->inner->ops->pause)
        writes->inner->ops->pause(writes->inner, number, false);
}

static void writes_peer(struct sh_wire *wire, sh_link number, char *text_out)
{
    sh_wire_peer(writes_of(wire)->inner, number, text_out);
}

static void writes_destroy(struct sh_wire *wire)
{
    struct writes *writes = writes_of(wire);
    struct sh_wire *inner = writes->inner;
    for (unsigned i = 0; i < BUCKETS; i++) {
        while (writes->buckets[i])
            link_free(writes->buckets[i]);
    }
    while (writes->frames) {
        struct frame *frame = writes->frames;
        writes->frames = frame->next;
        free(frame);
    }
    free(writes);
    inner->ops->destroy(inner);
}

static const struct sh_wire_ops writes_ops = {
    .listen = writes_listen,
    .open = writes_open,
    .close = writes_close,
    .push = writes_push,
    .pull = writes_pull,
    .poll = writes_poll,
    .watch = writes_watch,
    .signal = writes_signal,
    .destroy = writes_destroy,
    .flush = writes_flush,
    .peer = writes_peer,
    .pause = writes_pause,
    .abilities = SH_WIRE_WRITES,
    .region_add = writes_region_add,
    .region_remove = writes_region_remove,
    .write = writes_write,
};

enum shoal_err sh_writes_create(struct sh_wire *inner, struct sh_clock clock,
                                struct sh_random random, struct sh_wire **wire_out)
{
    SH_ASSERT(inner && !(inner->ops->abilities & SH_WIRE_WRITES));
    struct writes *writes = calloc(1, sizeof *writes);
    if (!writes)
        return SHOAL_ENOMEM;
    writes->wire.ops = &writes_ops;
    writes->inner = inner;
    writes->clock = clock;
    writes->random = random;
    *wire_out = &writes->wire;
    return SHOAL_OK;
}
