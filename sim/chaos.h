/* Faults at random: cuts, partitions, pauses, crashes, blackouts, and disks that are slow, fail or
 * are full, drawn from a world's seed, until stopped.
 */
#ifndef SIM_CHAOS_H
#define SIM_CHAOS_H

#include "sim/world.h"

struct sh_chaos_config {
    unsigned nodes; /* the world's nodes 0 to nodes - 1 suffer */
    /* Nodes 0 to reach - 1 are cut off, parted, paused and stopped: at least nodes. */
    unsigned reach;
    uint64_t gap_ns_max;    /* from one fault to the next; at least a tenth of it */
    uint64_t length_ns_max; /* of a partition, pause or outage; likewise */
    /* How often each is drawn, relative to the others. */
    unsigned cuts;
    unsigned partitions;
    unsigned pauses;
    unsigned crashes;
    unsigned stops;      /* pauses that begin in the middle of a step (sh_world_stop_inside) */
    unsigned slow_disks; /* a disk's operations take up to a tenth of length_ns_max */
    unsigned bad_disks;  /* a disk fails or is full (sh_world_disk_trouble_set) */
    uint64_t bad_disk_mask;
    uint64_t crash_mask; /* who may crash; 0: all */
    /* All of a mask crash at once, for 20 ms at most; half of the times one of the others has been
     * paused for length_ns_max by then. */
    unsigned blackouts;
    uint64_t blackout_mask;
    /* Nodes that crash beside all that is drawn above, from numbers of their own: one of the mask
     * every kill_gap_ns_max at most, for length_ns_max at most. 0: none. */
    uint64_t kill_mask;
    uint64_t kill_gap_ns_max;
    uint64_t kill_seed;
    bool restarts_soon; /* half of the outages last 20 ms at most */
    bool flaps;         /* half of the partitions come twice: for up to 200 ms, and soon again */
};

struct sh_chaos;

/* Begins. Frees nothing by itself: destroy it after its world. */
struct sh_chaos *sh_chaos_start(struct sh_world *world, const struct sh_chaos_config *config);
/* Ends all faults at once: every node runs, or if it stopped inside a step goes on within
 * length_ns_max, and every way is open. Between runs of the world only. */
void sh_chaos_stop(struct sh_chaos *chaos);
void sh_chaos_destroy(struct sh_chaos *chaos);

#endif
