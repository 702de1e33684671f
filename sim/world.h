/* The simulator: nodes in one process, on one thread, in virtual time, replayed by a seed.
 * docs/simulation.md. DESIGN: Steps and crews; The outside world.
 *
 * A world is the crew of all its nodes. It runs their steps in an order drawn from the seed; when
 * no step finds work, virtual time jumps to the next event (bytes arrive, a disk operation ends, a
 * fault strikes) or to the earliest time at which a step is due. A step that worked costs a little
 * virtual time, so time passes even where work never ends. A node to which nothing has happened
 * since its steps found no work is left alone until one of them is due: its steps' due_ns must say
 * so.
 *
 *   world -- nodes: clock, random, disk, wire (an sh_env each), steps
 *        \-- events by time, with ties in order of their making
 *        \-- trace: a hash of everything that happened, and its lines if wanted
 *
 * Everything is called from one thread. Nothing blocks: sh_disk_poll(wait) completes an operation
 * at once, and a wire's poll and watch ignore their timeouts. Functions without an error assert
 * that memory suffices: a simulator that runs out of it has nothing to tell.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/crew.h"
#include "env/env.h"
#include "sim/disk.h"
#include "sim/prng.h"
#include "sim/wire.h"

#define SH_WORLD_NODES_MAX 1100
/* Nodes from here on are in no mask: no partition has them, and no chaos. */
#define SH_WORLD_MASKED_MAX 64
#define SH_WORLD_STEPS_MAX SH_CREW_STEPS_MAX
/* In traces, what no node did: a fault, the test. */
#define SH_WORLD_NOBODY UINT32_MAX

struct sh_world;

struct sh_world_config {
    uint64_t seed;
    struct sh_wire_faults wire;
    struct sh_disk_faults disk;
    uint64_t step_cost_ns_max; /* a step that worked costs 1 ns to this; 0 means 1000 */
    uint32_t skip_ppm;         /* per step and round: it is left out, as if its thread was late */
    FILE *trace;               /* lines go here; NULL: only the hash is kept. Kept until destroy */
};

struct sh_world *sh_world_create(const struct sh_world_config *config);
/* Frees the world, its wires and its disks. The nodes' own objects must be gone. NULL is allowed.
 */
void sh_world_destroy(struct sh_world *world);

/* Virtual time since the world began, in nanoseconds. */
uint64_t sh_world_now(const struct sh_world *world);
/* The stream for what a test draws; nothing else draws from it. */
struct sh_prng *sh_world_prng(struct sh_world *world);

struct sh_world_node {
    int64_t clock_offset_ns; /* added to both its clocks; above minus 1000 seconds */
    /* How much faster than the world's time its clocks run, in millionths; at most 100000 either
     * way. */
    int32_t clock_drift_ppm;
    /* Makes the node's objects from its env and adds its steps; called by add and by restart. */
    void (*boot)(void *arg, struct sh_world *world, unsigned node);
    /* Drops the node's objects after a crash. Its wire and disk take every call, do nothing, and
     * will call nothing back. */
    void (*crash)(void *arg, struct sh_world *world, unsigned node);
    void *arg;
};

/* Adds a node and boots it. Its number is the count of nodes before it. */
unsigned sh_world_node_add(struct sh_world *world, const struct sh_world_node *node);
/* The node's outside world; valid as long as the world. Destroying its wire or disk only closes
 * what is open there. */
const struct sh_env *sh_world_env(const struct sh_world *world, unsigned node);
/* The same for a second node in its process: with the same clock, random numbers and files, and a wire
 * of its own at the same host. It crashes with the first. */
struct sh_env sh_world_env_inner(struct sh_world *world, unsigned node);
/* Adds a step to a node. Not from within a step. */
void sh_world_step_add(struct sh_world *world, unsigned node, struct sh_step step);

/* Faults of nodes; from events and between runs, never from within a step. A crashed node has lost
 * its memory, its links and the writes that it had not synced; the other ends of its links learn it
 * within lost_ns_max. A paused node does nothing while the world goes on. */
void sh_world_crash(struct sh_world *world, unsigned node);
void sh_world_restart(struct sh_world *world, unsigned node);
void sh_world_pause(struct sh_world *world, unsigned node);
void sh_world_resume(struct sh_world *world, unsigned node);
/* Stops a node in the middle of a step, as a signal or a suspended machine does: where it looks at
 * its clock for the looks-th time from now on (1: the next). From that look on its clock is stop_ns
 * later, and so is all that it sends or writes; it is not run again, and hears nothing, before the
 * world is at that time. A later call replaces one that has not struck; a crash ends it. */
void sh_world_stop_inside(struct sh_world *world, unsigned node, unsigned looks, uint64_t stop_ns);
/* Takes a call back that has not struck. */
void sh_world_stop_inside_not(struct sh_world *world, unsigned node);
bool sh_world_is_up(const struct sh_world *world, unsigned node);
/* By either of the two. */
bool sh_world_is_paused(const struct sh_world *world, unsigned node);

/* Faults of the network. Nodes are bits of a mask. A partition stops what goes from the nodes of
 * one mask to those of the other, and back unless it is one way; bytes wait at its edge until it
 * heals or an end gives up. Cut loses every link between two nodes (any that has an end at a, if a
 * is b). */
void sh_world_partition(struct sh_world *world, uint64_t from_mask, uint64_t to_mask, bool one_way);
void sh_world_heal(struct sh_world *world);
/* Whether a partition stops what goes from one node to the other, or back. */
bool sh_world_is_parted(const struct sh_world *world, unsigned a, unsigned b);
void sh_world_cut(struct sh_world *world, unsigned a, unsigned b);
/* How many connections of a node have been cut or closed so far, by whichever end, seen or not. */
uint64_t sh_world_losses(const struct sh_world *world, unsigned node);
/* Changes the wire's faults for what happens from now on. */
void sh_world_wire_faults_set(struct sh_world *world, const struct sh_wire_faults *faults);
void sh_world_disk_faults_set(struct sh_world *world, const struct sh_disk_faults *faults);
/* Each operation that begins on a node's disk from now on takes so long; 0, 0: as long as in the
 * faults that all disks have. The disk is well otherwise. */
void sh_world_disk_delay_set(struct sh_world *world, unsigned node, uint64_t min_ns,
                             uint64_t max_ns);
bool sh_world_disk_is_slow(const struct sh_world *world, unsigned node); /* by that */
/* What is wrong with a node's disk from now on, beside the faults that all disks have: FAILS, some
 * of its reads, writes and syncs end with EIO; FULL, no file can grow (ENOSPC). */
enum sh_disk_trouble { SH_DISK_WELL, SH_DISK_FAILS, SH_DISK_FULL };
void sh_world_disk_trouble_set(struct sh_world *world, unsigned node, enum sh_disk_trouble trouble);
enum sh_disk_trouble sh_world_disk_trouble(const struct sh_world *world, unsigned node);
struct sh_image;
/* What a file of the node is after a crash, until it is written to (image.h); NULL: there is none. */
const struct sh_image *sh_world_disk_file(const struct sh_world *world, unsigned node,
                                          const char *name);
/* The disk of a node that has crashed is replaced by an empty one. */
void sh_world_disk_lose(struct sh_world *world, unsigned node);
/* A bit of a file that the node has written before it crashed is wrong from now on; again: right. */
void sh_world_disk_flip(struct sh_world *world, unsigned node, const char *name, uint64_t bit);

/* Calls event(arg, a, b) at a virtual time, not before now. */
typedef void (*sh_world_event)(void *arg, uint64_t a, uint64_t b);
void sh_world_at(struct sh_world *world, uint64_t at_ns, sh_world_event event, void *arg,
                 uint64_t a, uint64_t b);

/* Runs the world until the predicate holds (true; NULL never does) or virtual time reaches
 * deadline_ns (false). The predicate is looked at between rounds of steps. */
bool sh_world_run_until(struct sh_world *world, bool (*predicate)(void *arg), void *arg,
                        uint64_t deadline_ns);

/* Adds an event to the trace: its kind with the names of a and b, like "open(link, node)". */
void sh_world_trace(struct sh_world *world, unsigned node, const char *kind, uint64_t a, uint64_t b,
                    struct sh_bytes bytes);
/* The hash of everything traced so far: time, node, kind, numbers and bytes of each event. */
uint64_t sh_world_trace_hash(const struct sh_world *world);

#endif
