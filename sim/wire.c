/* The simulated wire: struct sh_wire over the connections of sim/net.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/net_int.h"

#define PORT_FIRST 4100
#define ADDRESS_BYTES 64

static struct sim_wire *sim_of(struct sh_wire *wire)
{
    return (struct sim_wire *)wire;
}

static bool read_number(const char **at, unsigned long max, unsigned long *number_out)
{
    if (**at < '0' || **at > '9')
        return false;
    char *end;
    unsigned long number = strtoul(*at, &end, 10);
    *at = end;
    *number_out = number;
    return number <= max;
}

/* Takes "nodeN:PORT" apart. */
static bool read_address(const char *address, unsigned *node_out, uint16_t *port_out)
{
    unsigned long node;
    unsigned long port;
    if (strncmp(address, "node", 4) != 0)
        return false;
    const char *at = address + 4;
    if (!read_number(&at, SH_WORLD_NODES_MAX - 1, &node) || *at++ != ':')
        return false;
    if (!read_number(&at, UINT16_MAX, &port) || *at)
        return false;
    *node_out = (unsigned)node;
    *port_out = (uint16_t)port;
    return true;
}

bool sim_wire_listens(const struct sim_wire *wire, uint16_t port)
{
    for (unsigned i = 0; i < wire->port_count; i++) {
        if (wire->ports[i] == port)
            return true;
    }
    return false;
}

void sim_wire_news(struct sim_wire *wire, sh_link link)
{
    SH_ASSERT(link < SH_SIM_LINKS_MAX);
    wire->has_news = true;
    wire->news[link / 64] |= UINT64_C(1) << link % 64;
}

/* The first entry from `from` on, below `until`, that may have news; until: there is none. */
static unsigned news_next(const struct sim_wire *wire, unsigned from, unsigned until)
{
    while (from < until) {
        uint64_t left = wire->news[from / 64] >> from % 64;
        if (left) {
            from += (unsigned)__builtin_ctzll(left);
            return from < until ? from : until;
        }
        from += 64 - from % 64;
    }
    return until;
}

/* The lowest free number, as a kernel would give, so that old numbers soon mean new links. */
static sh_link entry_take(struct sim_wire *wire)
{
    for (unsigned i = 0; i < SH_SIM_LINKS_MAX; i++) {
        if (wire->entries[i].used)
            continue;
        wire->entries[i] = (struct sim_entry){.used = true};
        if (i >= wire->entries_high)
            wire->entries_high = i + 1;
        return i;
    }
    return SH_LINK_NONE;
}

/* A link that is neither open nor lost since the last poll is a mistake of the node's. */
static struct sim_entry *entry_of(struct sim_wire *wire, sh_link link)
{
    SH_ASSERT(link < SH_SIM_LINKS_MAX);
    SH_ASSERT(wire->entries[link].used);
    return &wire->entries[link];
}

bool sim_wire_accept(struct sim_wire *wire, struct sim_conn *conn, unsigned e)
{
    sh_link link = entry_take(wire);
    if (link == SH_LINK_NONE)
        return false;
    wire->entries[link].conn = conn;
    wire->entries[link].end = (uint8_t)e;
    conn->end[e].wire = wire;
    conn->end[e].link = link;
    return true;
}

static enum shoal_err sim_listen(struct sh_wire *wire, const char *address, char *bound_out)
{
    struct sim_wire *sim = sim_of(wire);
    unsigned node;
    uint16_t port;
    if (!read_address(address, &node, &port) || node != sim->node)
        return SHOAL_EADDRESS;
    if (sim->down || sim->port_count == SH_SIM_PORTS_MAX)
        return SHOAL_EIO;
    if (port && sim_wire_listens(sim, port))
        return SHOAL_EADDRINUSE;
    while (!port || sim_wire_listens(sim, port))
        port = sim->port_next++;
    sim->ports[sim->port_count++] = port;
    snprintf(bound_out, ADDRESS_BYTES, "node%u:%u", node, (unsigned)port);
    return SHOAL_OK;
}

static enum shoal_err sim_open(struct sh_wire *wire, const char *address, uint64_t tag,
                               sh_link *link_out)
{
    struct sim_wire *sim = sim_of(wire);
    unsigned node;
    uint16_t port;
    if (!read_address(address, &node, &port) || !port)
        return SHOAL_EADDRESS;
    sh_link link = sim->down ? SH_LINK_NONE : entry_take(sim);
    if (link == SH_LINK_NONE)
        return SHOAL_ELIMIT;
    sim->entries[link].conn = sim_conn_open(sim, node, port, link, tag);
    *link_out = link;
    return SHOAL_OK;
}

static void sim_close(struct sh_wire *wire, sh_link link)
{
    struct sim_wire *sim = sim_of(wire);
    if (sim->down)
        return;
    struct sim_entry *entry = entry_of(sim, link);
    if (entry->zombie)
        return;
    struct sim_conn *conn = entry->conn;
    unsigned e = entry->end;
    *entry = (struct sim_entry){0};
    if (conn->end[e].state == SIM_END_LOST)
        sim_end_gone(conn, e);
    else
        sim_conn_close(conn, e, sh_prng_chance(&sim->net->prng, sim->net->faults.abrupt_ppm));
}

static size_t sim_push(struct sh_wire *wire, sh_link link, struct sh_bytes bytes)
{
    struct sim_wire *sim = sim_of(wire);
    if (sim->down)
        return 0;
    struct sim_entry *entry = entry_of(sim, link);
    return entry->zombie ? 0 : sim_conn_push(entry->conn, entry->end, bytes);
}

static size_t sim_pull(struct sh_wire *wire, sh_link link, void *into, size_t room)
{
    struct sim_wire *sim = sim_of(wire);
    if (sim->down)
        return 0;
    struct sim_entry *entry = entry_of(sim, link);
    return entry->zombie ? 0 : sim_conn_pull(entry->conn, entry->end, into, room);
}

static void sim_pause(struct sh_wire *wire, sh_link link, bool is_paused)
{
    struct sim_wire *sim = sim_of(wire);
    if (sim->down)
        return;
    struct sim_entry *entry = entry_of(sim, link);
    if (!entry->zombie)
        entry->conn->end[entry->end].paused = is_paused;
    sim_wire_news(sim, link);
}

/* Has the other side's close been reached by pulling everything before it? */
static bool is_drained(const struct sim_conn *conn, unsigned e)
{
    return conn->end[e].at_end && conn->flow[1 - e].head == conn->flow[1 - e].arrived;
}

/* What one link has to report, one event a call; false when there is nothing (more). */
static bool report(struct sim_entry *entry, unsigned turn, struct sh_wire_event *event_out)
{
    struct sim_conn *conn = entry->conn;
    struct sim_end *end = &conn->end[entry->end];
    *event_out = (struct sh_wire_event){.link = end->link};
    if (end->state == SIM_END_OPEN && !end->new_here && is_drained(conn, entry->end)) {
        end->state = SIM_END_LOST;
        end->err = SHOAL_ECONNLOST;
    }
    if (end->state == SIM_END_LOST) {
        if (turn)
            return false; /* on its own, in the next poll, so that no stale event comes with it */
        *event_out = (struct sh_wire_event){.kind = SH_WIRE_LOST,
                                            .link = end->link,
                                            .tag = end->tag,
                                            .err = end->err,
                                            .is_refused = end->refused};
        unsigned e = entry->end;
        bool never_seen = end->new_here && e == 1;
        *entry = (struct sim_entry){.used = !never_seen, .zombie = !never_seen};
        conn->end[e].wire->zombies += !never_seen;
        sim_end_gone(conn, e);
        return !never_seen;
    }
    if (end->new_here) {
        end->new_here = false;
        event_out->kind = entry->end == 0 ? SH_WIRE_OPENED : SH_WIRE_ACCEPTED;
        event_out->tag = end->tag;
        return true;
    }
    if (end->has_room) {
        end->has_room = false;
        end->wants_room = false;
        event_out->kind = SH_WIRE_WRITABLE;
        return true;
    }
    if (end->readable && !end->paused && end->state == SIM_END_OPEN) {
        event_out->kind = SH_WIRE_READABLE;
        return true;
    }
    return false;
}

/* Lets go of the numbers of links whose loss the last poll reported. */
static void bury_zombies(struct sim_wire *wire)
{
    for (unsigned i = 0; wire->zombies && i < wire->entries_high; i++) {
        if (!wire->entries[i].zombie)
            continue;
        wire->entries[i] = (struct sim_entry){0};
        wire->zombies--;
    }
}

/* Appends what one link has to report, which is looked at again with the next poll. */
static unsigned entry_poll(struct sim_wire *wire, unsigned link, struct sh_wire_event *events,
                           unsigned events_max)
{
    struct sim_entry *entry = &wire->entries[link];
    unsigned count = 0;
    for (unsigned turn = 0; entry->used && !entry->zombie && count < events_max; turn++) {
        if (!report(entry, turn, &events[count]))
            break;
        bool readable = events[count].kind == SH_WIRE_READABLE;
        count++;
        if (readable)
            break; /* it repeats until pull gave nothing */
    }
    if (!count && events_max)
        wire->news[link / 64] &= ~(UINT64_C(1) << link % 64);
    return count;
}

static unsigned sim_poll(struct sh_wire *wire, struct sh_wire_event *events, unsigned events_max,
                         uint64_t timeout_ns)
{
    (void)timeout_ns;
    struct sim_wire *sim = sim_of(wire);
    if (sim->down || !sim->has_news)
        return 0;
    bury_zombies(sim);
    unsigned high = sim->entries_high;
    if (!high)
        return 0;
    unsigned count = 0;
    unsigned start = (unsigned)sh_prng_below(&sim->net->prng, high);
    for (unsigned i = start; (i = news_next(sim, i, high)) < high; i++)
        count += entry_poll(sim, i, events + count, events_max - count);
    for (unsigned i = 0; (i = news_next(sim, i, start)) < start; i++)
        count += entry_poll(sim, i, events + count, events_max - count);
    sim->has_news = count > 0; /* and zombies to bury, perhaps */
    return count;
}

static void sim_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    (void)wire;
    (void)timeout_ns;
}

/* Who signals is the node itself, which is looked at until its steps find no work. */
static void sim_signal(struct sh_wire *wire)
{
    (void)wire;
}

/* What a process leaves behind when it ends well: its links close. The world keeps the wire. */
static void sim_destroy(struct sh_wire *wire)
{
    struct sim_wire *sim = sim_of(wire);
    if (sim->down)
        return;
    sim->port_count = 0;
    for (unsigned i = 0; i < sim->entries_high; i++) {
        if (sim->entries[i].used && !sim->entries[i].zombie)
            sim_close(wire, i);
    }
    bury_zombies(sim);
}

static void sim_peer(struct sh_wire *wire, sh_link link, char *text_out)
{
    const struct sim_entry *entry = entry_of(sim_of(wire), link);
    text_out[0] = '\0';
    if (!entry->zombie)
        snprintf(text_out, SH_WIRE_ADDRESS_MAX, "simulated, node %u",
                 entry->conn->end[1 - entry->end].node);
}

static const struct sh_wire_ops sim_ops = {
    .listen = sim_listen,
    .open = sim_open,
    .close = sim_close,
    .push = sim_push,
    .pull = sim_pull,
    .poll = sim_poll,
    .watch = sim_watch,
    .signal = sim_signal,
    .destroy = sim_destroy,
    .peer = sim_peer,
    .pause = sim_pause,
};

static struct sim_wire *wire_create(struct sh_sim_net *net, unsigned node)
{
    struct sim_wire *wire = sh_sim_alloc(sizeof *wire);
    wire->base.ops = &sim_ops;
    wire->net = net;
    wire->node = node;
    wire->port_next = PORT_FIRST;
    return wire;
}

struct sh_wire *sh_sim_net_wire_add(struct sh_sim_net *net, unsigned node)
{
    SH_ASSERT(node == net->wire_count && node < SH_WORLD_NODES_MAX);
    struct sim_wire *wire = wire_create(net, node);
    net->wires[net->wire_count++] = wire;
    return &wire->base;
}

struct sh_wire *sh_sim_net_wire_inner(struct sh_sim_net *net, unsigned node)
{
    SH_ASSERT(node < net->wire_count);
    if (!net->inner[node])
        net->inner[node] = wire_create(net, node);
    return &net->inner[node]->base;
}

static void wire_down(struct sim_wire *wire)
{
    wire->port_count = 0;
    for (unsigned i = 0; i < wire->entries_high; i++) {
        struct sim_entry entry = wire->entries[i];
        wire->entries[i] = (struct sim_entry){0};
        if (entry.used && !entry.zombie)
            sim_conn_close(entry.conn, entry.end, true);
    }
    wire->entries_high = wire->zombies = 0;
    memset(wire->news, 0, sizeof wire->news);
    wire->down = true;
}

void sh_sim_net_wire_down(struct sh_sim_net *net, unsigned node)
{
    SH_ASSERT(node < net->wire_count);
    wire_down(net->wires[node]);
    if (net->inner[node])
        wire_down(net->inner[node]);
}

void sh_sim_net_wire_up(struct sh_sim_net *net, unsigned node)
{
    SH_ASSERT(node < net->wire_count);
    net->wires[node]->down = false;
    if (net->inner[node])
        net->inner[node]->down = false;
}
