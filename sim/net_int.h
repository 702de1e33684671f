/* Connections of the simulated network, as sim/net.c keeps them and sim/wire.c shows them to nodes.
 *
 * A connection has two ends, 0 the opener's and 1 the acceptor's, and two flows; flow[e] carries
 * what end e pushed. It is freed when both ends are gone and no event names it any more. */
#ifndef SIM_NET_INT_H
#define SIM_NET_INT_H

#include "sim/world_int.h"

#define SH_SIM_LINKS_MAX 4096
#define SH_SIM_PORTS_MAX 16

struct sim_flow {
    uint8_t *bytes;
    size_t room;
    size_t head;              /* bytes before this one were pulled */
    size_t arrived;           /* [head, arrived) may be pulled */
    size_t sent;              /* [arrived, sent) is under way */
    size_t stalled;           /* of those, how many wait at a partition's edge */
    uint64_t last_arrival_ns; /* nothing pushed later arrives before this */
    bool closing_stalled;     /* the close waits at a partition's edge, behind the bytes */
};

enum sim_end_state {
    SIM_END_NONE,    /* not accepted yet */
    SIM_END_OPENING, /* the opener's, until the acceptor's answer is back */
    SIM_END_OPEN,
    SIM_END_LOST, /* poll has yet to say so */
    SIM_END_GONE,
};

struct sim_end {
    struct sim_wire *wire; /* NULL: not accepted */
    unsigned node;
    sh_link link;
    uint64_t tag;
    enum sim_end_state state;
    enum shoal_err err; /* LOST */
    bool refused;       /* likewise: nobody listens there */
    bool new_here;      /* poll has yet to report OPENED or ACCEPTED */
    bool readable;
    bool paused;
    bool wants_room; /* a push took less than all */
    bool has_room;   /* poll has yet to report WRITABLE */
    bool room_event; /* an event that will set has_room is under way */
    bool at_end;     /* the other end closed, and its close has arrived */
};

struct sim_conn {
    struct sh_sim_net *net;
    struct sim_conn *next;
    struct sim_conn *previous;
    uint64_t number;
    uint16_t port;
    unsigned events; /* that name it */
    bool cut;        /* what is under way never arrives */
    size_t window;
    struct sim_end end[2];
    struct sim_flow flow[2];
};

/* What a link number names. An entry whose end has been reported lost stays a zombie until the next
 * poll, so that a node may still close or push a link whose loss is further down in the same batch
 * of events. */
struct sim_entry {
    struct sim_conn *conn;
    uint8_t end;
    bool used;
    bool zombie;
};

struct sim_wire {
    struct sh_wire base;
    struct sh_sim_net *net;
    unsigned node;
    bool down;
    bool has_news; /* poll may have something to say; false: it has nothing */
    struct sim_entry entries[SH_SIM_LINKS_MAX];
    unsigned entries_high; /* entries from here on were never used */
    /* Entries of which poll may have something to say: a bit for each. A node may have thousands of
     * links, of which few have news. */
    uint64_t news[SH_SIM_LINKS_MAX / 64];
    unsigned zombies;
    uint16_t ports[SH_SIM_PORTS_MAX];
    unsigned port_count;
    uint16_t port_next;
};

struct sh_sim_net {
    struct sh_world *world;
    struct sh_prng prng;
    struct sh_wire_faults faults;
    struct sim_wire *wires[SH_WORLD_NODES_MAX];
    struct sim_wire *inner[SH_WORLD_NODES_MAX]; /* a node's second one; NULL: it has none */
    unsigned wire_count;
    uint64_t blocked[SH_WORLD_MASKED_MAX]; /* by sender: a mask of receivers */
    struct sim_conn *conns;
    uint64_t conn_number;
    uint64_t losses[SH_WORLD_NODES_MAX]; /* by node: of its connections, ended in whatever way */
};

/* sim/net.c */
uint64_t sim_delay_ns(struct sh_sim_net *net);
bool sim_is_blocked(const struct sh_sim_net *net, unsigned from, unsigned to);
struct sim_conn *sim_conn_open(struct sim_wire *wire, unsigned to, uint16_t port, sh_link link,
                               uint64_t tag);
/* Puts bytes of an end under way; returns how many were taken. */
size_t sim_conn_push(struct sim_conn *conn, unsigned e, struct sh_bytes bytes);
size_t sim_conn_pull(struct sim_conn *conn, unsigned e, void *into, size_t room);
/* The end is closed by its owner: what it pushed still arrives, unless abrupt. */
void sim_conn_close(struct sim_conn *conn, unsigned e, bool abrupt);
/* Both ends will learn, each in its own time, that the connection is lost. */
void sim_conn_cut(struct sim_conn *conn);
/* The end is done with: frees the connection when nothing names it. */
void sim_end_gone(struct sim_conn *conn, unsigned e);

/* sim/wire.c: gives the end a link number on its wire; false when all are taken. */
bool sim_wire_accept(struct sim_wire *wire, struct sim_conn *conn, unsigned e);
bool sim_wire_listens(const struct sim_wire *wire, uint16_t port);
/* The link has something that poll may have to say. */
void sim_wire_news(struct sim_wire *wire, sh_link link);

#endif
