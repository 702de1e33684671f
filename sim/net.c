/* The simulated network: connections between wires, bytes under way, partitions and cuts. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/net_int.h"

#define WINDOW_BYTES_MIN 64

static struct sh_bytes no_bytes(void)
{
    return (struct sh_bytes){0};
}

struct sh_sim_net *sh_sim_net_create(struct sh_world *world, struct sh_prng prng,
                                     const struct sh_wire_faults *faults)
{
    struct sh_sim_net *net = sh_sim_alloc(sizeof *net);
    net->world = world;
    net->prng = prng;
    net->faults = *faults;
    return net;
}

static void conn_free(struct sim_conn *conn)
{
    if (conn->previous)
        conn->previous->next = conn->next;
    else
        conn->net->conns = conn->next;
    if (conn->next)
        conn->next->previous = conn->previous;
    free(conn->flow[0].bytes);
    free(conn->flow[1].bytes);
    free(conn);
}

void sh_sim_net_destroy(struct sh_sim_net *net)
{
    while (net->conns)
        conn_free(net->conns);
    for (unsigned i = 0; i < net->wire_count; i++) {
        free(net->wires[i]);
        free(net->inner[i]);
    }
    free(net);
}

void sh_sim_net_faults_set(struct sh_sim_net *net, const struct sh_wire_faults *faults)
{
    net->faults = *faults;
}

uint64_t sim_delay_ns(struct sh_sim_net *net)
{
    const struct sh_wire_faults *faults = &net->faults;
    uint64_t delay = faults->delay_ns_min;
    if (faults->delay_ns_max > faults->delay_ns_min)
        delay = sh_prng_between(&net->prng, faults->delay_ns_min, faults->delay_ns_max);
    if (sh_prng_chance(&net->prng, faults->slow_ppm))
        delay += sh_prng_below(&net->prng, faults->slow_ns_max + 1);
    return delay;
}

bool sim_is_blocked(const struct sh_sim_net *net, unsigned from, unsigned to)
{
    if (from >= SH_WORLD_MASKED_MAX || to >= SH_WORLD_MASKED_MAX)
        return false;
    return (net->blocked[from] >> to) & 1;
}

/* Whether what end e sends is stopped by a partition. */
static bool is_flow_blocked(const struct sim_conn *conn, unsigned e)
{
    return sim_is_blocked(conn->net, conn->end[e].node, conn->end[1 - e].node);
}

static void conn_at(struct sim_conn *conn, uint64_t at_ns, sh_world_event event, uint64_t a,
                    uint64_t b)
{
    conn->events++;
    sh_sim_at(conn->net->world, at_ns, event, conn, a, b);
}

/* The end's node has something to poll for. */
static void end_wake(const struct sim_conn *conn, unsigned e)
{
    const struct sim_end *end = &conn->end[e];
    if (!end->wire)
        return; /* not accepted */
    sim_wire_news(end->wire, end->link);
    sh_sim_wake(conn->net->world, end->node);
}

/* After an event of the connection, and when an end is gone. */
static void conn_release(struct sim_conn *conn)
{
    bool used = conn->events > 0;
    for (unsigned e = 0; e < 2; e++)
        used = used || (conn->end[e].wire && conn->end[e].state != SIM_END_GONE);
    if (!used)
        conn_free(conn);
}

static struct sim_conn *event_conn(void *arg)
{
    struct sim_conn *conn = arg;
    SH_ASSERT(conn->events > 0);
    conn->events--;
    return conn;
}

static void end_lose(struct sim_conn *conn, unsigned e, enum shoal_err err)
{
    struct sim_end *end = &conn->end[e];
    if (end->state != SIM_END_OPENING && end->state != SIM_END_OPEN)
        return;
    end->err =
        end->state == SIM_END_OPENING || (e == 0 && end->new_here) ? SHOAL_EUNREACHABLE : err;
    end->state = SIM_END_LOST;
    end_wake(conn, e);
    sh_world_trace(conn->net->world, end->node, "lost(conn, end)", conn->number, e, no_bytes());
}

static void on_lose(void *arg, uint64_t e, uint64_t unused)
{
    (void)unused;
    struct sim_conn *conn = event_conn(arg);
    end_lose(conn, (unsigned)e, SHOAL_ECONNLOST);
    conn_release(conn);
}

/* The end learns of a loss within lost_ns_max. */
static void end_lose_later(struct sim_conn *conn, unsigned e)
{
    struct sh_sim_net *net = conn->net;
    uint64_t in_ns = sh_prng_below(&net->prng, net->faults.lost_ns_max + 1);
    conn_at(conn, sh_sim_now(net->world) + in_ns, on_lose, e, 0);
}

/* For those who must know whether a node may have lost a connection. */
static void count_loss(const struct sim_conn *conn)
{
    for (unsigned e = 0; e < 2; e++) {
        if (conn->end[e].node < SH_WORLD_NODES_MAX)
            conn->net->losses[conn->end[e].node]++;
    }
}

void sim_conn_cut(struct sim_conn *conn)
{
    if (conn->cut)
        return;
    conn->cut = true;
    count_loss(conn);
    sh_world_trace(conn->net->world, SH_WORLD_NOBODY, "cut(conn)", conn->number, 0, no_bytes());
    end_lose_later(conn, 0);
    end_lose_later(conn, 1);
}

void sim_end_gone(struct sim_conn *conn, unsigned e)
{
    conn->end[e].state = SIM_END_GONE;
    conn_release(conn);
}

/* An end whose way is stopped by a partition gives the connection up, if it is still stopped. */
static void on_give_up(void *arg, uint64_t e, uint64_t unused)
{
    (void)unused;
    struct sim_conn *conn = event_conn(arg);
    if (!conn->cut && (is_flow_blocked(conn, 0) || is_flow_blocked(conn, 1))) {
        conn->cut = true;
        count_loss(conn);
        end_lose(conn, (unsigned)e, SHOAL_ECONNLOST);
        end_lose_later(conn, 1 - (unsigned)e);
    }
    conn_release(conn);
}

static void end_give_up_later(struct sim_conn *conn, unsigned e)
{
    struct sh_sim_net *net = conn->net;
    uint64_t most = net->faults.give_up_ns_max;
    uint64_t in_ns = sh_prng_between(&net->prng, most / 2, most);
    conn_at(conn, sh_sim_now(net->world) + in_ns, on_give_up, e, 0);
}

/* The acceptor's answer is back at the opener. */
static void on_answer(void *arg, uint64_t accepted, uint64_t nobody)
{
    struct sim_conn *conn = event_conn(arg);
    struct sim_end *end = &conn->end[0];
    if (end->state == SIM_END_OPENING && accepted && !conn->cut) {
        end->state = SIM_END_OPEN;
        end->new_here = true;
        end_wake(conn, 0);
        sh_world_trace(conn->net->world, end->node, "opened(conn)", conn->number, 0, no_bytes());
    } else {
        end->refused = nobody && !conn->cut;
        end_lose(conn, 0, SHOAL_EUNREACHABLE);
    }
    conn_release(conn);
}

/* The wish to connect has arrived at the acceptor's node. */
static void on_knock(void *arg, uint64_t node, uint64_t unused)
{
    (void)unused;
    struct sim_conn *conn = event_conn(arg);
    struct sh_sim_net *net = conn->net;
    struct sim_wire *wire = node < net->wire_count ? net->wires[node] : NULL;
    if (wire && net->inner[node] && sim_wire_listens(net->inner[node], conn->port))
        wire = net->inner[node];
    uint64_t now = sh_sim_now(net->world);
    bool open = conn->end[0].state == SIM_END_OPENING && !conn->cut;
    /* A crash is a process's: its host is there, and refuses for it. */
    bool stopped = is_flow_blocked(conn, 0) || is_flow_blocked(conn, 1);
    if (open && stopped) {
        /* Nobody answers: the opener gives up, even if the way is free again by then. */
        uint64_t most = net->faults.give_up_ns_max;
        conn_at(conn, now + sh_prng_between(&net->prng, most / 2, most), on_answer, 0, 0);
    } else if (open) {
        bool refused = sh_prng_chance(&net->prng, net->faults.refuse_ppm);
        bool listens = wire && sim_wire_listens(wire, conn->port);
        bool accepted = listens && !refused && sim_wire_accept(wire, conn, 1);
        if (accepted) {
            conn->end[1].state = SIM_END_OPEN;
            conn->end[1].new_here = true;
            end_wake(conn, 1);
            sh_world_trace(net->world, (unsigned)node, "accepted(conn, from)", conn->number,
                           conn->end[0].node, no_bytes());
        }
        conn->flow[1].last_arrival_ns = now + sim_delay_ns(net);
        conn_at(conn, conn->flow[1].last_arrival_ns, on_answer, accepted, !listens);
    }
    conn_release(conn);
}

struct sim_conn *sim_conn_open(struct sim_wire *wire, unsigned to, uint16_t port, sh_link link,
                               uint64_t tag)
{
    struct sh_sim_net *net = wire->net;
    struct sim_conn *conn = sh_sim_alloc(sizeof *conn);
    conn->net = net;
    conn->number = net->conn_number++;
    conn->port = port;
    size_t low = net->faults.window_bytes_min;
    size_t high = net->faults.window_bytes_max;
    low = low < WINDOW_BYTES_MIN ? WINDOW_BYTES_MIN : low;
    conn->window = high > low ? (size_t)sh_prng_between(&net->prng, low, high) : low;
    conn->end[0] = (struct sim_end){
        .wire = wire, .node = wire->node, .link = link, .tag = tag, .state = SIM_END_OPENING};
    conn->end[1].node = to;
    conn->next = net->conns;
    if (conn->next)
        conn->next->previous = conn;
    net->conns = conn;
    sh_world_trace(net->world, wire->node, "open(conn, node)", conn->number, to, no_bytes());
    conn_at(conn, sh_sim_now(net->world) + sim_delay_ns(net), on_knock, to, 0);
    return conn;
}

/* The sender may have room now: it hears of it a little later, once. */
static void on_room(void *arg, uint64_t e, uint64_t unused)
{
    (void)unused;
    struct sim_conn *conn = event_conn(arg);
    struct sim_end *end = &conn->end[e];
    end->room_event = false;
    if (end->state == SIM_END_OPEN && end->wants_room) {
        end->has_room = true;
        end_wake(conn, (unsigned)e);
    }
    conn_release(conn);
}

static size_t room_left(const struct sim_conn *conn, unsigned e)
{
    const struct sim_flow *flow = &conn->flow[e];
    size_t held = flow->sent - flow->head;
    return held < conn->window ? conn->window - held : 0;
}

static void tell_of_room(struct sim_conn *conn, unsigned e)
{
    struct sim_end *end = &conn->end[e];
    bool has = room_left(conn, e) > 0;
    if (!end->wants_room || end->room_event || end->has_room || !has)
        return;
    end->room_event = true;
    conn_at(conn, sh_sim_now(conn->net->world) + sim_delay_ns(conn->net), on_room, e, 0);
}

static void flow_arrive(struct sim_conn *conn, unsigned e, size_t size)
{
    struct sim_flow *flow = &conn->flow[e];
    struct sim_end *receiver = &conn->end[1 - e];
    SH_ASSERT(flow->arrived + size <= flow->sent);
    flow->arrived += size;
    sh_world_trace(conn->net->world, receiver->node, "arrive(conn, bytes)", conn->number, size,
                   sh_bytes_make(flow->bytes + flow->arrived - size, size));
    if (receiver->state == SIM_END_OPEN) {
        receiver->readable = true;
        end_wake(conn, 1 - e);
        return;
    }
    /* Nobody is there to read: the network lets the bytes go. */
    flow->head = flow->arrived;
    tell_of_room(conn, e);
}

static void on_arrive(void *arg, uint64_t e, uint64_t size)
{
    struct sim_conn *conn = event_conn(arg);
    struct sim_flow *flow = &conn->flow[e];
    if (!conn->cut) {
        if (flow->stalled || is_flow_blocked(conn, (unsigned)e))
            flow->stalled += size;
        else
            flow_arrive(conn, (unsigned)e, size);
    }
    conn_release(conn);
}

static void close_arrive(struct sim_conn *conn, unsigned e)
{
    conn->end[1 - e].at_end = true;
    end_wake(conn, 1 - e);
}

static void on_close_arrive(void *arg, uint64_t e, uint64_t unused)
{
    (void)unused;
    struct sim_conn *conn = event_conn(arg);
    if (!conn->cut) {
        if (conn->flow[e].stalled || is_flow_blocked(conn, (unsigned)e))
            conn->flow[e].closing_stalled = true;
        else
            close_arrive(conn, (unsigned)e);
    }
    conn_release(conn);
}

/* What a partition held back goes on its way again. */
static void on_unstall(void *arg, uint64_t e, uint64_t unused)
{
    (void)unused;
    struct sim_conn *conn = event_conn(arg);
    struct sim_flow *flow = &conn->flow[e];
    if (!conn->cut && !is_flow_blocked(conn, (unsigned)e)) {
        size_t size = flow->stalled;
        flow->stalled = 0;
        if (size)
            flow_arrive(conn, (unsigned)e, size);
        if (flow->closing_stalled)
            close_arrive(conn, (unsigned)e);
        flow->closing_stalled = false;
    }
    conn_release(conn);
}

/* Room for size more bytes at the flow's end: pulled bytes make way first. */
static void flow_make_room(struct sim_flow *flow, size_t size)
{
    if (flow->head > 0) {
        memmove(flow->bytes, flow->bytes + flow->head, flow->sent - flow->head);
        flow->sent -= flow->head;
        flow->arrived -= flow->head;
        flow->head = 0;
    }
    if (flow->sent + size > flow->room) {
        flow->room = 2 * (flow->sent + size);
        flow->bytes = sh_sim_realloc(flow->bytes, flow->room);
    }
}

static void flow_append(struct sim_flow *flow, struct sh_bytes bytes)
{
    if (!bytes.size)
        return;
    flow_make_room(flow, bytes.size);
    memcpy(flow->bytes + flow->sent, bytes.at, bytes.size);
    flow->sent += bytes.size;
}

/* Puts bytes into the flow as a wire with this lie would; returns how many went in. Only canaries
 * have lies. */
static size_t append_lying(struct sh_sim_net *net, struct sim_flow *flow, struct sh_bytes bytes)
{
    size_t before = flow->sent - flow->head;
    size_t first = (size_t)sh_prng_below(&net->prng, bytes.size);
    size_t count = (size_t)sh_prng_between(&net->prng, 1, bytes.size - first);
    struct sh_bytes head = sh_bytes_make(bytes.at, first);
    struct sh_bytes run = sh_bytes_make(bytes.at + first, count);
    struct sh_bytes tail = sh_bytes_make(bytes.at + first + count, bytes.size - first - count);
    bool twice = net->faults.lie == SH_WIRE_TWICE;
    if (net->faults.lie == SH_WIRE_SWAP) {
        flow_append(flow, run);
        flow_append(flow, head);
    } else {
        flow_append(flow, head);
        if (twice)
            flow_append(flow, run);
        if (twice)
            flow_append(flow, run);
    }
    flow_append(flow, tail);
    sh_world_trace(net->world, SH_WORLD_NOBODY, "lie(first, count)", first, count, run);
    return flow->sent - flow->head - before;
}

size_t sim_conn_push(struct sim_conn *conn, unsigned e, struct sh_bytes bytes)
{
    struct sh_sim_net *net = conn->net;
    struct sim_end *end = &conn->end[e];
    if (end->state != SIM_END_OPEN || !bytes.size)
        return 0;
    if (sh_prng_chance(&net->prng, net->faults.cut_ppm))
        sim_conn_cut(conn);
    size_t left = room_left(conn, e);
    size_t taken = bytes.size < left ? bytes.size : left;
    if (taken && sh_prng_chance(&net->prng, net->faults.piece_ppm))
        taken = (size_t)sh_prng_between(&net->prng, 1, taken);
    if (taken < bytes.size) {
        end->wants_room = true;
        tell_of_room(conn, e);
    }
    if (!taken)
        return 0;
    struct sim_flow *flow = &conn->flow[e];
    struct sh_bytes went = sh_bytes_make(bytes.at, taken);
    sh_world_trace(net->world, end->node, "push(conn, bytes)", conn->number, taken, went);
    size_t size = taken;
    if (net->faults.lie && sh_prng_chance(&net->prng, net->faults.lie_ppm))
        size = append_lying(net, flow, went);
    else
        flow_append(flow, went);
    if (!size)
        return taken;
    uint64_t at_ns = sh_sim_now(net->world) + sim_delay_ns(net);
    flow->last_arrival_ns = at_ns > flow->last_arrival_ns ? at_ns : flow->last_arrival_ns;
    conn_at(conn, flow->last_arrival_ns, on_arrive, e, size);
    return taken;
}

size_t sim_conn_pull(struct sim_conn *conn, unsigned e, void *into, size_t room)
{
    struct sh_sim_net *net = conn->net;
    struct sim_end *end = &conn->end[e];
    struct sim_flow *flow = &conn->flow[1 - e];
    if (end->state != SIM_END_OPEN || !room)
        return 0;
    size_t size = flow->arrived - flow->head;
    size = size < room ? size : room;
    if (!size) {
        end->readable = false;
        return 0;
    }
    if (sh_prng_chance(&net->prng, net->faults.piece_ppm))
        size = (size_t)sh_prng_between(&net->prng, 1, size);
    memcpy(into, flow->bytes + flow->head, size);
    flow->head += size;
    sh_world_trace(net->world, end->node, "pull(conn, bytes)", conn->number, size, no_bytes());
    tell_of_room(conn, 1 - e);
    return size;
}

void sim_conn_close(struct sim_conn *conn, unsigned e, bool abrupt)
{
    struct sh_sim_net *net = conn->net;
    struct sim_end *end = &conn->end[e];
    sh_world_trace(net->world, end->node, "close(conn, abrupt)", conn->number, abrupt, no_bytes());
    bool was_open = end->state == SIM_END_OPEN;
    end->state = SIM_END_GONE;
    count_loss(conn);
    struct sim_flow *incoming = &conn->flow[1 - e];
    incoming->head = incoming->arrived;
    if (conn->end[1 - e].wire) {
        tell_of_room(conn, 1 - e);
        struct sim_flow *flow = &conn->flow[e];
        uint64_t at_ns = sh_sim_now(net->world) + sim_delay_ns(net);
        flow->last_arrival_ns = at_ns > flow->last_arrival_ns ? at_ns : flow->last_arrival_ns;
        if (abrupt || !was_open)
            sim_conn_cut(conn);
        else
            conn_at(conn, flow->last_arrival_ns, on_close_arrive, e, 0);
    }
    conn_release(conn);
}

void sh_sim_net_partition(struct sh_sim_net *net, uint64_t from_mask, uint64_t to_mask)
{
    for (unsigned from = 0; from < net->wire_count && from < SH_WORLD_MASKED_MAX; from++) {
        if ((from_mask >> from) & 1)
            net->blocked[from] |= to_mask & ~(UINT64_C(1) << from);
    }
    for (struct sim_conn *conn = net->conns; conn; conn = conn->next) {
        if (!conn->end[1].wire || conn->cut)
            continue;
        if (is_flow_blocked(conn, 0) || is_flow_blocked(conn, 1)) {
            end_give_up_later(conn, 0);
            end_give_up_later(conn, 1);
        }
    }
}

void sh_sim_net_heal(struct sh_sim_net *net)
{
    memset(net->blocked, 0, sizeof net->blocked);
    for (struct sim_conn *conn = net->conns; conn; conn = conn->next) {
        for (unsigned e = 0; e < 2; e++) {
            if (conn->flow[e].stalled || conn->flow[e].closing_stalled)
                conn_at(conn, sh_sim_now(net->world) + sim_delay_ns(net), on_unstall, e, 0);
        }
    }
}

uint64_t sh_sim_net_losses(const struct sh_sim_net *net, unsigned node)
{
    SH_ASSERT(node < SH_WORLD_NODES_MAX);
    return net->losses[node];
}

void sh_sim_net_cut(struct sh_sim_net *net, unsigned a, unsigned b)
{
    for (struct sim_conn *conn = net->conns; conn; conn = conn->next) {
        unsigned x = conn->end[0].node;
        unsigned y = conn->end[1].node;
        bool between = a == b ? x == a || y == a : (x == a && y == b) || (x == b && y == a);
        if (between && conn->end[1].wire)
            sim_conn_cut(conn);
    }
}
