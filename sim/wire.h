/* The simulated wire: streams of bytes between the nodes of a world. docs/simulation.md.
 *
 * Addresses are texts "nodeN:PORT", N the node's number in the world. Bytes of one direction of a
 * link arrive in order or not at all; directions and links are delayed independently of each other.
 * A push takes and a pull gives any part of what it could, so that every byte boundary is met.
 *
 *   push -> [ under way ............ | arrived ......... ] -> pull
 *            at most window bytes in both parts together
 */
#ifndef SIM_WIRE_H
#define SIM_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* Faults that a wire must not have. Only a canary sets one: it proves that the checkers notice. */
enum sh_wire_lie {
    SH_WIRE_TRUE,
    SH_WIRE_TWICE, /* bytes are delivered twice */
    SH_WIRE_SWAP,  /* two neighbouring runs of bytes change places */
    SH_WIRE_DROP,  /* bytes in the middle of a stream are missing */
};

/* Chances are in millionths. All zero is a wire that is instant, whole and faultless but for its
 * window, which has a lowest size of 64 bytes. */
struct sh_wire_faults {
    uint64_t delay_ns_min; /* of each piece of bytes, and of opening and closing */
    uint64_t delay_ns_max; /* drawn anew for each */
    uint32_t slow_ppm;     /* per piece: it takes up to slow_ns_max longer */
    uint64_t slow_ns_max;
    uint32_t piece_ppm;      /* per push and pull: only a part is taken or given */
    uint32_t cut_ppm;        /* per push: the link is lost, with whatever is under way */
    uint32_t refuse_ppm;     /* per open: it fails */
    uint32_t abrupt_ppm;     /* per close: as if cut, bytes under way are lost */
    uint64_t lost_ns_max;    /* each end learns of a cut within this time, on its own */
    uint64_t give_up_ns_max; /* an end behind a partition gives up in half this time to all of it */
    size_t window_bytes_min; /* per link */
    size_t window_bytes_max;
    enum sh_wire_lie lie;
    uint32_t lie_ppm; /* per push */
};

#endif
