/* A load on the messaging of a simulated cluster, and the checkers that watch it.
 *
 * Every node sends one-way messages (to inline and to ordered handlers) and requests (to inline and
 * to pooled handlers) to the others while faults strike. The checkers stand outside of the nodes
 * and remember across crashes:
 *  - a request completes exactly once, with its own answer or an error that it may have, and not at
 *    all once it was canceled; no request is handled twice;
 *  - what arrives is what was sent;
 *  - within one connection, as the sender counts them by its LOST events, one-way messages of each
 *    kind arrive in order, none twice, none left out before one that arrived; and all
 *    that arrives within one connection, as the receiver counts them, is of one of the sender's;
 *  - when the faults have stopped, every request completes, and every node gets an answer from
 * every other one, within a bounded virtual time. */
#ifndef SIM_MSG_LOAD_H
#define SIM_MSG_LOAD_H

#include "sim/chaos.h"
#include "sim/world.h"

#define SH_MSG_LOAD_NODES_MAX 8
#define SH_MSG_LOAD_TEXT_BYTES 256

/* Ways in which the load itself breaks the protocol. Only a canary sets one. */
enum sh_msg_load_break {
    SH_MSG_LOAD_WHOLE,
    SH_MSG_LOAD_TWICE,   /* a message is sent twice */
    SH_MSG_LOAD_LATE,    /* a message is sent after its successor */
    SH_MSG_LOAD_DROP,    /* a message is not sent */
    SH_MSG_LOAD_MIX_UP,  /* an answer is sent to another request */
    SH_MSG_LOAD_SILENCE, /* a completion is forgotten */
};

struct sh_msg_load_config {
    uint64_t seed;
    unsigned nodes;       /* 2 to SH_MSG_LOAD_NODES_MAX */
    uint64_t faults_ns;   /* virtual time during which faults strike */
    bool crashes;         /* among them */
    enum sh_wire_lie lie; /* for canaries, like broken */
    enum sh_msg_load_break broken;
    FILE *trace; /* or NULL */
};

struct sh_msg_load_result {
    bool failed;
    char text[SH_MSG_LOAD_TEXT_BYTES]; /* what the first checker to fail saw, and when */
    uint64_t trace_hash;
    uint64_t ended_ns; /* virtual time at the end */
    uint64_t messages; /* one-way messages that arrived */
    uint64_t requests; /* sent */
    uint64_t answers;  /* of those, answered */
    uint64_t losses;   /* LOST events */
};

/* The whole world of a seed, as tests and shoal-sim run it: a second of faults, with crashes if the
 * seed is even. */
struct sh_msg_load_config sh_msg_load_config_of(uint64_t seed, unsigned nodes);

/* Runs one world to its end. The same config gives the same result. */
void sh_msg_load_run(const struct sh_msg_load_config *config,
                     struct sh_msg_load_result *result_out);

#endif
