/* Two ends over wires in memory, for tests of what crosses between them: one thread, time set by
 * the test, and each round carries as many bytes as the test says. */
#ifndef SH_MSG_STREAM_TEST_H
#define SH_MSG_STREAM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "msg/memwire.h"
#include "msg/msg_int.h"

#define PAIR_SECOND UINT64_C(1000000000)

struct pair_end {
    struct sh_memwire memwire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
    unsigned losses;
};

struct pair {
    struct pair_end ends[2]; /* nodes 1 and 2; the first dials */
    bool is_linked;
    size_t carried[2];
    size_t carry_max; /* bytes a round, each way; 0: all */
    uint64_t random;
};

static inline uint64_t pair_random(struct pair *pair)
{
    pair->random += UINT64_C(0x9E3779B97F4A7C15);
    return sh_mix64(pair->random);
}

static inline void pair_wake(void *arg)
{
    (void)arg;
}

static inline void pair_event(void *arg, const struct sh_msg_event *event)
{
    struct pair_end *end = arg;
    end->losses += event->kind == SH_MSG_LOST;
}

/* Opens both ends with what the configuration says of limits (zeros: the usual ones). */
static inline void pair_open(struct pair *pair, const struct sh_msg_config *limits)
{
    const char *text = getenv("SHOAL_TEST_SEED");
    *pair = (struct pair){.random = text ? strtoull(text, NULL, 0) : 4711};
    print_message("seed %llu\n", (unsigned long long)pair->random);
    for (uint16_t i = 0; i < 2; i++) {
        struct pair_end *end = &pair->ends[i];
        sh_memwire_init(&end->memwire);
        end->memwire.random = i;
        struct sh_msg_config config = *limits;
        config.nid = (shoal_nid){(uint16_t)(i + 1)};
        config.cluster = "test";
        config.connections_max = 8;
        config.requests_max = 64;
        config.ring_bytes = limits->ring_bytes ? limits->ring_bytes : 65536;
        config.payload_bytes_max = 64 << 20;
        config.request_timeout_ns = 10 * PAIR_SECOND;
        config.connect_timeout_ns = 5 * PAIR_SECOND;
        config.env = sh_memwire_env(&end->memwire);
        config.on_event = pair_event;
        config.wake_transport = config.wake_handlers = pair_wake;
        config.arg = end;
        assert_int_equal(sh_msg_create(&config, &end->msg), SHOAL_OK);
        end->transport = sh_msg_transport_step(end->msg);
        end->handlers = sh_msg_handler_step(end->msg);
    }
    assert_int_equal(sh_msg_node_set(pair->ends[0].msg, (shoal_nid){2}, "two:1"), SHOAL_OK);
}

static inline void pair_close(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        sh_msg_destroy(pair->ends[i].msg);
        sh_memwire_free(&pair->ends[i].memwire);
    }
}

/* Carries what one end has sent, carry_max at most. */
static inline size_t pair_carry(struct pair *pair, int from)
{
    struct sh_memlink *link = &pair->ends[from].memwire.links[0];
    size_t size = link->out_size - pair->carried[from];
    if (pair->carry_max > 0 && size > pair->carry_max)
        size = pair->carry_max;
    if (size > 0)
        sh_memwire_feed(&pair->ends[1 - from].memwire, 0,
                        sh_bytes_make(link->out + pair->carried[from], size));
    pair->carried[from] += size;
    return size;
}

/* One round of both transport steps and the wire between; false: nothing happened. */
static inline bool pair_round(struct pair *pair)
{
    size_t done = 0;
    for (int i = 0; i < 2; i++)
        done += pair->ends[i].transport.run(pair->ends[i].msg);
    if (!pair->is_linked && pair->ends[0].memwire.count > 0) {
        sh_memwire_accept(&pair->ends[1].memwire);
        pair->is_linked = true;
    }
    for (int i = 0; pair->is_linked && i < 2; i++)
        done += pair_carry(pair, i);
    return done > 0;
}

static inline bool pair_handle(struct pair *pair)
{
    unsigned done = 0;
    for (int i = 0; i < 2; i++)
        done += pair->ends[i].handlers.run(pair->ends[i].handlers.arg);
    return done > 0;
}

/* Both ends behave as if they had many connections: no large blocks for streams. For a connection
 * that is open. */
static inline void pair_crowd(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        atomic_store(&pair->ends[i].msg->share_bytes, SH_SHARE_BYTES_MIN);
}

/* Until nothing happens any more. */
static inline void pair_settle(struct pair *pair)
{
    unsigned quiet = 0;
    while (quiet < 3) {
        bool is_busy = pair_round(pair);
        is_busy |= pair_handle(pair);
        quiet = is_busy ? 0 : quiet + 1;
    }
}

#endif
