/* How large the worlds of world_recovery_test.c and world_power_test.c are, by their seeds, and how long they have run. */
#ifndef TESTS_RECOVERY_SIZES_INT_H
#define TESTS_RECOVERY_SIZES_INT_H

#include "tests/recovery_records_int.h"

#define RZ_NODES_MAX 20
#define RZ_PEERS_MAX (RZ_NODES_MAX - 1)
_Static_assert(RW_PEERS == RZ_PEERS_MAX, "hosts for the largest world");
_Static_assert(RW_SUPERPEERS_MAX >= 5, "the most superpeers");

struct rz_size {
    unsigned superpeers, peers;
    uint64_t replicas;
    bool is_large;
};

/* Most worlds are small: there the faults meet most often. One of 32 is large, of 13 to 20 nodes. A small one has `spare` more peers than a zone has
 * replicas at least, and at most `peers_max`. */
static inline struct rz_size rz_size_of(uint64_t seed, unsigned spare, unsigned peers_max)
{
    static const unsigned superpeers[] = {1, 3, 2, 1};
    struct rz_size size = {.superpeers = superpeers[seed % 4],
                           .replicas = 2 + seed / 4 % 2,
                           .is_large = seed % 32 == 19};
    size.peers =
        (unsigned)(size.replicas + spare + seed / 8 % (peers_max + 1 - spare - size.replicas));
    if (seed % 16 == 13)
        size.superpeers = 5;
    if (size.is_large) {
        static const unsigned of_large[] = {1, 3, 5};
        size.superpeers = of_large[seed / 32 % 3];
        size.peers = (unsigned)(RZ_NODES_MAX - seed / 96 % 8) - size.superpeers;
    }
    return size;
}

/* --- Simulated time ----------------------------------------------------------------------------- */

struct rz_time {
    uint64_t ns;
    unsigned worlds, large;
};

static inline void rz_time_add(struct rz_time *time, const struct rw *rw, bool is_large)
{
    time->ns += sh_world_now(rw->world);
    time->worlds++;
    time->large += is_large;
}

static inline void rz_time_print(const struct rz_time *time)
{
    print_message("%u worlds, %u of them large: %.3f simulated hours\n", time->worlds, time->large,
                  (double)time->ns / 3600 / (double)S);
}

#endif
