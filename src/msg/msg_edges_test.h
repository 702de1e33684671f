/* Several ends over wires in memory, one thread, time set by the test: what tests of msg share. */
#ifndef SH_MSG_MSG_EDGES_TEST_H
#define SH_MSG_MSG_EDGES_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <unistd.h>

#include "msg/memwire.h"
#include "msg/msg_int.h"

#define TYPE_ECHO SH_MSG_TYPE(9, 1)
#define TYPE_SILENT SH_MSG_TYPE(9, 2)
#define TYPE_POOLED SH_MSG_TYPE(9, 3)
#define TYPE_ORDERED SH_MSG_TYPE(9, 4)
#define REQUESTS_MAX 16
#define RING_BYTES 65536
#define ENDS_MAX 4
#define SECOND UINT64_C(1000000000)

struct end {
    struct sh_memwire memwire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
    char address[16];
    unsigned ups, losses, closes;
    enum shoal_err loss;
    shoal_nid up_nid, up_real_nid; /* of the last one */
    struct sh_reply_to held[64];   /* by on_silent, in order */
    unsigned held_count;
    uint64_t ordered; /* messages of TYPE_ORDERED, which count up */
};

/* Two links that are one stream. */
struct pipe {
    struct end *ends[2];
    sh_link links[2];
    size_t carried[2];
};

static struct end ends[ENDS_MAX];
static unsigned ends_count;
static struct pipe pipes[32];
static unsigned pipes_count;

static inline void wake(void *arg)
{
    (void)arg;
}

static inline void on_event(void *arg, const struct sh_msg_event *event)
{
    struct end *end = arg;
    if (event->kind == SH_MSG_UP) {
        end->ups++;
        end->up_nid = event->nid;
        end->up_real_nid = event->real_nid;
    } else if (event->kind == SH_MSG_CLOSED) {
        end->closes++;
    } else {
        end->losses++;
        end->loss = event->err;
    }
}

static inline void on_echo(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    size_t size = sh_reader_left(&in->payload);
    struct sh_out out;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, size, &out), SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(sh_reader_take(&in->payload, size), size));
    sh_msg_end(in->msg, &out);
}

static inline void on_silent(void *arg, struct sh_msg_in *in)
{
    struct end *end = arg;
    assert_true(end->held_count < 64);
    end->held[end->held_count++] = in->reply_to;
}

static inline void on_ordered(void *arg, struct sh_msg_in *in)
{
    struct end *end = arg;
    assert_int_equal(sh_get64(&in->payload), end->ordered);
    end->ordered++;
}

/* Of limits, connections_max, hellos_max and flow_window_bytes count. */
static inline struct end *end_open_as(uint16_t nid, const struct sh_msg_config *limits)
{
    assert_true(ends_count < ENDS_MAX);
    struct end *end = &ends[ends_count++];
    *end = (struct end){0};
    snprintf(end->address, sizeof end->address, "end%u:1", ends_count);
    sh_memwire_init(&end->memwire);
    end->memwire.random = ends_count;
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "test",
        .secret = sh_bytes_text("a secret of the test"),
        .connections_max = limits->connections_max,
        .hellos_max = limits->hellos_max,
        .flow_window_bytes = limits->flow_window_bytes,
        .requests_max = REQUESTS_MAX,
        .ring_bytes = RING_BYTES,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = 10 * SECOND,
        .connect_timeout_ns = 5 * SECOND,
        .env = sh_memwire_env(&end->memwire),
        .on_event = on_event,
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = end,
    };
    assert_int_equal(sh_msg_create(&config, &end->msg), SHOAL_OK);
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
    sh_msg_handler_set(end->msg, TYPE_ECHO, SH_MSG_INLINE, on_echo, end);
    sh_msg_handler_set(end->msg, TYPE_SILENT, SH_MSG_INLINE, on_silent, end);
    sh_msg_handler_set(end->msg, TYPE_POOLED, SH_MSG_POOLED, on_echo, end);
    sh_msg_handler_set(end->msg, TYPE_ORDERED, SH_MSG_ORDERED, on_ordered, end);
    return end;
}

static inline struct end *end_open_with(uint16_t nid, uint32_t connections_max)
{
    return end_open_as(nid, &(struct sh_msg_config){.connections_max = connections_max});
}

static inline struct end *end_open(uint16_t nid)
{
    return end_open_with(nid, 32);
}

static inline int close_all(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ends_count; i++) {
        sh_msg_destroy(ends[i].msg);
        sh_memwire_free(&ends[i].memwire);
    }
    ends_count = pipes_count = 0;
    return 0;
}

static inline void knows(struct end *a, const struct end *b, uint16_t nid_of_b)
{
    assert_int_equal(sh_msg_node_set(a->msg, (shoal_nid){nid_of_b}, b->address), SHOAL_OK);
}

/* Gives the link that an end has opened its other half. */
static inline void pipe_add(struct end *from, sh_link link)
{
    for (unsigned i = 0; i < pipes_count; i++) {
        if (pipes[i].ends[0] == from && pipes[i].links[0] == link)
            return;
    }
    for (unsigned i = 0; i < ends_count; i++) {
        if (strcmp(ends[i].address, from->memwire.links[link].address) != 0)
            continue;
        assert_true(pipes_count < sizeof pipes / sizeof pipes[0]);
        sh_link other = sh_memwire_accept(&ends[i].memwire);
        pipes[pipes_count++] = (struct pipe){{from, &ends[i]}, {link, other}, {0, 0}};
        return;
    }
    sh_memwire_cut(&from->memwire, link); /* nobody listens there */
}

static inline bool pipe_run(struct pipe *pipe)
{
    bool is_done = false;
    for (int i = 0; i < 2; i++) {
        struct end *from = pipe->ends[i], *to = pipe->ends[1 - i];
        struct sh_memlink *here = &from->memwire.links[pipe->links[i]];
        struct sh_memlink *there = &to->memwire.links[pipe->links[1 - i]];
        if (there->is_there && !there->is_lost)
            is_done |= sh_memwire_carry(&from->memwire, pipe->links[i], &pipe->carried[i],
                                        &to->memwire, pipe->links[1 - i]) > 0;
        /* A close arrives after what was sent before it was read. */
        if ((!here->is_there || here->is_lost) && there->is_there && !there->is_lost &&
            there->is_announced && there->in_size == 0) {
            sh_memwire_cut(&to->memwire, pipe->links[1 - i]);
            is_done = true;
        }
    }
    return is_done;
}

/* One round of everything; false when nothing happened. Ends in the mask `resting` do not run. */
static inline bool round_run(unsigned resting)
{
    unsigned done = 0;
    for (unsigned i = 0; i < ends_count; i++) {
        if (resting & 1u << i)
            continue;
        done += ends[i].transport.run(ends[i].msg);
        done += ends[i].handlers.run(ends[i].handlers.arg);
        for (sh_link link = 0; link < ends[i].memwire.count; link++) {
            if (ends[i].memwire.links[link].was_opened_by_us)
                pipe_add(&ends[i], link);
        }
    }
    for (unsigned i = 0; i < pipes_count; i++)
        done += pipe_run(&pipes[i]);
    return done > 0;
}

static inline void run_all(void)
{
    unsigned rounds = 0;
    while (round_run(0))
        assert_true(++rounds < 100000);
}

static inline void pass(uint64_t ns)
{
    for (unsigned i = 0; i < ends_count; i++)
        ends[i].memwire.now_ns += ns;
    run_all();
}

/* Cuts every link between two ends. */
static inline void cut(const struct end *a, const struct end *b)
{
    for (unsigned i = 0; i < pipes_count; i++) {
        if ((pipes[i].ends[0] == a && pipes[i].ends[1] == b) ||
            (pipes[i].ends[0] == b && pipes[i].ends[1] == a)) {
            for (int side = 0; side < 2; side++) {
                struct sh_memwire *memwire = &pipes[i].ends[side]->memwire;
                if (memwire->links[pipes[i].links[side]].is_there)
                    sh_memwire_cut(memwire, pipes[i].links[side]);
            }
        }
    }
}

struct asked {
    struct sh_request request;
    unsigned done;
    enum shoal_err err;
    uint64_t first;
};

static inline void on_done(struct sh_request *request, enum shoal_err err,
                           struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->done++;
    asked->err = err;
    asked->first = err == SHOAL_OK ? sh_get64(payload) : 0;
}

static inline enum shoal_err ask(struct end *end, uint16_t to, sh_msg_type type, uint64_t value,
                                 struct asked *asked)
{
    *asked = (struct asked){.request = {.done = on_done, .arg = asked}};
    struct sh_out out;
    enum shoal_err err = sh_msg_request(end->msg, (shoal_nid){to}, type, 8, &asked->request, &out);
    if (err != SHOAL_OK)
        return err;
    sh_put64(&out.w, value);
    sh_msg_end(end->msg, &out);
    return SHOAL_OK;
}

static inline enum shoal_err tell(struct end *end, uint16_t to, sh_msg_type type, uint64_t value,
                                  size_t bytes)
{
    struct sh_out out;
    enum shoal_err err = sh_msg_begin(end->msg, (shoal_nid){to}, type, bytes, &out);
    if (err != SHOAL_OK)
        return err;
    sh_put64(&out.w, value);
    memset(sh_writer_take(&out.w, bytes - 8), 0, bytes - 8);
    sh_msg_end(end->msg, &out);
    return SHOAL_OK;
}

static inline void answer(struct end *end, struct sh_reply_to to, uint64_t value)
{
    struct sh_out out;
    assert_int_equal(sh_msg_reply(end->msg, to, TYPE_SILENT, 8, &out), SHOAL_OK);
    sh_put64(&out.w, value);
    sh_msg_end(end->msg, &out);
}

static inline uint64_t dropped_of(const struct end *end)
{
    struct sh_msg_stats stats;
    sh_msg_stats_get(end->msg, &stats);
    return stats.answers_dropped;
}

static inline bool works_are_free(const struct end *end)
{
    return sh_queue_count(end->msg->works_free) == SH_WORKS_MAX;
}

#endif
