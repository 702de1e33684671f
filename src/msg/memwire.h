/* A wire in memory for tests and fuzz targets: they decide what arrives, in which pieces, how much
 * the wire takes, and when a link is opened or lost. Nothing runs by itself, time is a number, and
 * random bytes are the same in each run. Not part of the library: no source file includes it.
 *
 * Links are numbered from 0 and never reused within a wire, so that a test can look at what was
 * sent over a link that is closed. One thread. */
#ifndef SH_MSG_MEMWIRE_H
#define SH_MSG_MEMWIRE_H

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "env/env.h"

#define SH_MEMWIRE_LINKS 64

struct sh_memlink {
    bool is_there, is_lost;
    bool was_opened_by_us;
    bool is_announced; /* OPENED or ACCEPTED was reported */
    bool was_short;    /* a push took less than all */
    bool is_paused;
    uint64_t tag;
    char address[64]; /* where we opened it to */
    size_t push_room; /* bytes that it still takes */
    uint8_t *in;      /* what pull gives */
    size_t in_size;
    uint8_t *out; /* all that was pushed */
    size_t out_size;
};

struct sh_memwire {
    struct sh_wire wire;
    struct sh_memlink links[SH_MEMWIRE_LINKS];
    unsigned count;
    size_t push_room; /* what a new link takes */
    uint64_t now_ns;
    uint64_t random;
};

static inline struct sh_memwire *sh_memwire_of(struct sh_wire *wire)
{
    return (struct sh_memwire *)wire;
}

static inline void sh_memwire_append(uint8_t **to, size_t *size, struct sh_bytes bytes)
{
    if (bytes.size == 0)
        return;
    *to = realloc(*to, *size + bytes.size);
    SH_ASSERT(*to != NULL);
    memcpy(*to + *size, bytes.at, bytes.size);
    *size += bytes.size;
}

/* --- For the test -------------------------------------------------------------------------- */

/* A link that somebody opened to us: the next poll says ACCEPTED. */
static inline sh_link sh_memwire_accept(struct sh_memwire *memwire)
{
    SH_ASSERT(memwire->count < SH_MEMWIRE_LINKS);
    memwire->links[memwire->count] =
        (struct sh_memlink){.is_there = true, .push_room = memwire->push_room};
    return memwire->count++;
}

/* Bytes that arrive over a link. */
static inline void sh_memwire_feed(struct sh_memwire *memwire, sh_link link, struct sh_bytes bytes)
{
    SH_ASSERT(link < memwire->count);
    struct sh_memlink *to = &memwire->links[link];
    sh_memwire_append(&to->in, &to->in_size, bytes);
}

/* The other side closes the link: what has arrived and was not pulled is lost. */
static inline void sh_memwire_cut(struct sh_memwire *memwire, sh_link link)
{
    SH_ASSERT(link < memwire->count);
    memwire->links[link].is_lost = true;
}

/* --- The operations ------------------------------------------------------------------------ */

static inline enum shoal_err sh_memwire_listen(struct sh_wire *wire, const char *address,
                                               char *bound_out)
{
    (void)wire;
    snprintf(bound_out, 64, "%s", address);
    return SHOAL_OK;
}

static inline enum shoal_err sh_memwire_open(struct sh_wire *wire, const char *address,
                                             uint64_t tag, sh_link *link_out)
{
    struct sh_memwire *memwire = sh_memwire_of(wire);
    if (memwire->count == SH_MEMWIRE_LINKS)
        return SHOAL_ELIMIT;
    *link_out = sh_memwire_accept(memwire);
    memwire->links[*link_out].was_opened_by_us = true;
    memwire->links[*link_out].tag = tag;
    snprintf(memwire->links[*link_out].address, 64, "%s", address);
    return SHOAL_OK;
}

static inline void sh_memwire_close(struct sh_wire *wire, sh_link link)
{
    struct sh_memwire *memwire = sh_memwire_of(wire);
    SH_ASSERT(link < memwire->count);
    memwire->links[link].is_there = false;
}

static inline size_t sh_memwire_push(struct sh_wire *wire, sh_link link, struct sh_bytes bytes)
{
    struct sh_memlink *to = &sh_memwire_of(wire)->links[link];
    SH_ASSERT(to->is_there);
    if (to->is_lost || !to->is_announced)
        return 0;
    size_t taken = bytes.size < to->push_room ? bytes.size : to->push_room;
    sh_memwire_append(&to->out, &to->out_size, sh_bytes_make(bytes.at, taken));
    to->push_room -= taken;
    to->was_short |= taken < bytes.size;
    return taken;
}

static inline size_t sh_memwire_pull(struct sh_wire *wire, sh_link link, void *into, size_t room)
{
    struct sh_memlink *from = &sh_memwire_of(wire)->links[link];
    SH_ASSERT(from->is_there && room > 0);
    size_t taken = from->in_size < room ? from->in_size : room;
    if (from->is_lost || taken == 0)
        return 0;
    memcpy(into, from->in, taken);
    from->in_size -= taken;
    memmove(from->in, from->in + taken, from->in_size);
    return taken;
}

/* What is to be said of one link; false: nothing. */
static inline bool sh_memwire_event(struct sh_memwire *memwire, sh_link number,
                                    struct sh_wire_event *event_out)
{
    struct sh_memlink *link = &memwire->links[number];
    struct sh_wire_event event = {.link = number, .tag = link->tag};
    if (!link->is_there)
        return false;
    if (link->is_lost && (link->is_announced || link->was_opened_by_us)) {
        event.kind = SH_WIRE_LOST;
        event.err = link->is_announced ? SHOAL_ECONNLOST : SHOAL_EUNREACHABLE;
        event.is_refused = !link->is_announced;
        link->is_there = false;
    } else if (!link->is_announced) {
        event.kind = link->was_opened_by_us ? SH_WIRE_OPENED : SH_WIRE_ACCEPTED;
        link->is_announced = true;
    } else if (link->was_short && link->push_room > 0) {
        event.kind = SH_WIRE_WRITABLE;
        link->was_short = false;
    } else if (link->in_size > 0 && !link->is_paused) {
        event.kind = SH_WIRE_READABLE;
    } else {
        return false;
    }
    *event_out = event;
    return true;
}

static inline unsigned sh_memwire_poll(struct sh_wire *wire, struct sh_wire_event *events,
                                       unsigned events_max, uint64_t timeout_ns)
{
    struct sh_memwire *memwire = sh_memwire_of(wire);
    unsigned count = 0;
    (void)timeout_ns;
    for (sh_link link = 0; link < memwire->count && count < events_max; link++)
        count += sh_memwire_event(memwire, link, &events[count]);
    return count;
}

static inline void sh_memwire_nothing(struct sh_wire *wire)
{
    (void)wire;
}

static inline void sh_memwire_peer(struct sh_wire *wire, sh_link link, char *text_out)
{
    (void)wire;
    snprintf(text_out, SH_WIRE_ADDRESS_MAX, "memory, link %u", link);
}

static inline void sh_memwire_pause(struct sh_wire *wire, sh_link link, bool is_paused)
{
    sh_memwire_of(wire)->links[link].is_paused = is_paused;
}

static inline void sh_memwire_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    (void)wire;
    (void)timeout_ns;
}

static inline uint64_t sh_memwire_now(void *arg)
{
    return ((struct sh_memwire *)arg)->now_ns;
}

static inline void sh_memwire_random(void *arg, void *into, size_t size)
{
    struct sh_memwire *memwire = arg;
    uint8_t *at = into;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(++memwire->random * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

/* Makes the wire, with links that take everything. Free it with sh_memwire_free. */
static inline void sh_memwire_init(struct sh_memwire *memwire)
{
    static const struct sh_wire_ops ops = {
        .listen = sh_memwire_listen,
        .open = sh_memwire_open,
        .close = sh_memwire_close,
        .push = sh_memwire_push,
        .pull = sh_memwire_pull,
        .poll = sh_memwire_poll,
        .watch = sh_memwire_watch,
        .signal = sh_memwire_nothing,
        .destroy = sh_memwire_nothing,
        .peer = sh_memwire_peer,
        .pause = sh_memwire_pause,
    };
    *memwire = (struct sh_memwire){.wire = {&ops}, .push_room = SIZE_MAX, .now_ns = 1000000000};
}

static inline void sh_memwire_free(struct sh_memwire *memwire)
{
    for (unsigned i = 0; i < memwire->count; i++) {
        free(memwire->links[i].in);
        free(memwire->links[i].out);
    }
}

static inline struct sh_env sh_memwire_env(struct sh_memwire *memwire)
{
    return (struct sh_env){.clock = {sh_memwire_now, sh_memwire_now, memwire},
                           .random = {sh_memwire_random, memwire},
                           .wire = &memwire->wire};
}

/* Carries what one side sent over a link to the other side's link; returns how many bytes. */
static inline size_t sh_memwire_carry(struct sh_memwire *from, sh_link from_link, size_t *from_at,
                                      struct sh_memwire *to, sh_link to_link)
{
    struct sh_memlink *link = &from->links[from_link];
    size_t size = link->out_size - *from_at;
    if (size > 0)
        sh_memwire_feed(to, to_link, sh_bytes_make(link->out + *from_at, size));
    *from_at += size;
    return size;
}

#endif
