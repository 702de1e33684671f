/* What tests of env/wire.h share: two ends of a kind, what they saw, and waiting for more of it. */
#ifndef SH_MSG_WIRE_TEST_H
#define SH_MSG_WIRE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "env/env.h"
#include "msg/tls.h"
#include "msg/tls_test.h"
#include "msg/wires.h"
#include "msg/writes.h"

#define LINKS 64
#define SEEN_MAX 1024
#define DEADLINE_NS UINT64_C(30000000000)
#define FOREVER UINT64_MAX

struct variant {
    const char *wire;
    const char *address; /* NULL: a Unix-domain socket of its own */
    bool has_tls;
    bool has_writes; /* those of msg/writes.h, around it */
};

/* One end and the events that no test has asked for yet. */
struct end {
    struct sh_wire *wire;
    struct sh_wire_event seen[SEEN_MAX];
    unsigned seen_count;
};

struct rig {
    const struct variant *variant;
    struct end a, b; /* b listens */
    char address[64];
    uint64_t random;
};

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t prng(struct rig *rig)
{
    rig->random = rig->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return rig->random >> 33;
}

static inline void listen_address(const struct variant *variant, char *out)
{
    static unsigned number;
    if (variant->address)
        snprintf(out, 64, "%s", variant->address);
    else
        snprintf(out, 64, "unix:/tmp/shoal-wire-%d-%u", (int)getpid(), number++);
}

static inline struct sh_wire *wire_around_tls(struct sh_wire *wire)
{
    char cert[TLS_TEST_PATH_MAX], key[TLS_TEST_PATH_MAX], authority[TLS_TEST_PATH_MAX];
    tls_test_path(cert, "node.pem");
    tls_test_path(key, "node.key");
    tls_test_path(authority, "ca.pem");
    struct sh_tls_config tls = {cert, key, authority, sh_real_clock(), DEADLINE_NS, 0};
    char detail[SH_TLS_DETAIL_BYTES];
    assert_int_equal(sh_tls_create(wire, &tls, &wire, detail), SHOAL_OK);
    return wire;
}

static inline struct sh_wire *wire_new(const struct variant *variant, uint32_t links_max)
{
    struct sh_wire *wire;
    assert_int_equal(sh_wire_create(variant->wire, links_max, &wire), SHOAL_OK);
    if (variant->has_tls)
        wire = wire_around_tls(wire);
    if (variant->has_writes)
        assert_int_equal(sh_writes_create(wire, sh_real_clock(), sh_real_random(), &wire),
                         SHOAL_OK);
    return wire;
}

static inline struct rig *rig_new(void **state, uint32_t links_max)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->variant = *state;
    const char *seed = getenv("SHOAL_TEST_SEED");
    rig->random = seed ? strtoull(seed, NULL, 0) : now_ns();
    print_message("seed %llu\n", (unsigned long long)rig->random);
    rig->a.wire = wire_new(rig->variant, links_max);
    rig->b.wire = wire_new(rig->variant, links_max);
    char address[64];
    listen_address(rig->variant, address);
    assert_int_equal(rig->b.wire->ops->listen(rig->b.wire, address, rig->address), SHOAL_OK);
    return rig;
}

static inline void rig_free(struct rig *rig)
{
    if (rig->a.wire)
        rig->a.wire->ops->destroy(rig->a.wire);
    if (rig->b.wire)
        rig->b.wire->ops->destroy(rig->b.wire);
    free(rig);
}

static inline void end_poll(struct end *end, uint64_t timeout_ns)
{
    struct sh_wire_event events[16];
    if (!end->wire)
        return;
    unsigned count = end->wire->ops->poll(end->wire, events, 16, timeout_ns);
    assert_true(count <= 16);
    for (unsigned i = 0; i < count; i++) {
        bool is_known = false; /* READABLE is repeated */
        for (unsigned k = 0; k < end->seen_count; k++)
            is_known |= events[i].kind == SH_WIRE_READABLE &&
                        end->seen[k].kind == SH_WIRE_READABLE &&
                        end->seen[k].link == events[i].link;
        if (is_known)
            continue;
        assert_true(end->seen_count < SEEN_MAX);
        end->seen[end->seen_count++] = events[i];
    }
}

static inline bool end_take(struct end *end, enum sh_wire_kind kind, sh_link link,
                            struct sh_wire_event *event_out)
{
    for (unsigned i = 0; i < end->seen_count; i++) {
        struct sh_wire_event event = end->seen[i];
        if (event.kind != kind || (link != SH_LINK_NONE && event.link != link))
            continue;
        memmove(&end->seen[i], &end->seen[i + 1], (--end->seen_count - i) * sizeof event);
        *event_out = event;
        return true;
    }
    return false;
}

/* Polls both ends until one of them has seen an event of a link (SH_LINK_NONE: of any). */
static inline struct sh_wire_event await(struct rig *rig, struct end *end, enum sh_wire_kind kind,
                                         sh_link link)
{
    struct end *other = end == &rig->a ? &rig->b : &rig->a;
    uint64_t deadline_ns = now_ns() + DEADLINE_NS;
    struct sh_wire_event event;
    while (!end_take(end, kind, link, &event)) {
        assert_true(now_ns() < deadline_ns);
        end_poll(other, 0);
        end_poll(end, 1000000);
    }
    return event;
}

/* Nothing more is to be said of any link. */
static inline void assert_quiet(struct end *end, enum sh_wire_kind kind, sh_link link)
{
    struct sh_wire_event event;
    end_poll(end, 0);
    assert_false(end_take(end, kind, link, &event));
}

static inline size_t pull(struct end *end, sh_link link, void *into, size_t room)
{
    size_t got = end->wire->ops->pull(end->wire, link, into, room);
    assert_true(got <= room);
    return got;
}

/* Awaits the loss of a link that has nothing for its owner. It is pulled from meanwhile: what the
 * wire itself had to say (TLS: its closing alert) stands before the loss. */
static inline struct sh_wire_event await_lost(struct rig *rig, struct end *end, sh_link link)
{
    uint64_t deadline_ns = now_ns() + DEADLINE_NS;
    struct end *other = end == &rig->b ? &rig->a : &rig->b;
    struct sh_wire_event lost;
    uint8_t byte;
    while (!end_take(end, SH_WIRE_LOST, link, &lost)) {
        assert_true(now_ns() < deadline_ns);
        end_poll(other, 0);
        end_poll(end, 1000000);
        assert_int_equal(pull(end, link, &byte, 1), 0);
    }
    return lost;
}

static inline void connect_pair(struct rig *rig, uint64_t tag, sh_link *a_out, sh_link *b_out)
{
    struct sh_wire *wire = rig->a.wire;
    assert_int_equal(wire->ops->open(wire, rig->address, tag, a_out), SHOAL_OK);
    struct sh_wire_event opened = await(rig, &rig->a, SH_WIRE_OPENED, *a_out);
    assert_int_equal(opened.tag, tag);
    *b_out = await(rig, &rig->b, SH_WIRE_ACCEPTED, SH_LINK_NONE).link;
}

static inline size_t push(struct end *end, sh_link link, const void *bytes, size_t size)
{
    struct sh_wire *wire = end->wire;
    size_t taken = wire->ops->push(wire, link, sh_bytes_make(bytes, size));
    assert_true(taken <= size);
    if (wire->ops->flush)
        wire->ops->flush(wire);
    return taken;
}

/* Receives exactly these bytes. */
static inline void expect(struct rig *rig, struct end *end, sh_link link, const void *bytes,
                          size_t size)
{
    uint8_t *got = malloc(size);
    assert_non_null(got);
    for (size_t at = 0; at < size;) {
        (void)await(rig, end, SH_WIRE_READABLE, link);
        at += pull(end, link, got + at, size - at);
    }
    assert_memory_equal(got, bytes, size);
    free(got);
}

static inline uint8_t pattern(uint64_t at)
{
    return (uint8_t)(at * UINT64_C(0x9E3779B97F4A7C15) >> 40);
}

#endif
