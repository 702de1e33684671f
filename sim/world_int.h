/* What the parts of the simulator know of each other. */
#ifndef SIM_WORLD_INT_H
#define SIM_WORLD_INT_H

#include "sim/world.h"

/* Something happened to a node: its steps are run, though none may be due. A node that nothing
 * happened to since its steps found no work is left alone until one is due. */
void sh_sim_wake(struct sh_world *world, unsigned node);
/* The time of whoever acts now: within a step its node's, which may be stopped until later, so that
 * what it does from there on happens then; else the world's. */
uint64_t sh_sim_now(const struct sh_world *world);
/* As sh_world_at, but the event itself wakes whom it concerns, where that one wakes all nodes. */
void sh_sim_at(struct sh_world *world, uint64_t at_ns, sh_world_event event, void *arg, uint64_t a,
               uint64_t b);

/* sim/wire.c: the network of a world, and a wire for each node. */
struct sh_sim_net;
struct sh_sim_net *sh_sim_net_create(struct sh_world *world, struct sh_prng prng,
                                     const struct sh_wire_faults *faults);
void sh_sim_net_destroy(struct sh_sim_net *net);
void sh_sim_net_faults_set(struct sh_sim_net *net, const struct sh_wire_faults *faults);
struct sh_wire *sh_sim_net_wire_add(struct sh_sim_net *net, unsigned node);
/* A second wire of that node, made when it is first asked for. */
struct sh_wire *sh_sim_net_wire_inner(struct sh_sim_net *net, unsigned node);
/* Takes a node's wire down with all its links, as a crash does, and brings it up again, empty. */
void sh_sim_net_wire_down(struct sh_sim_net *net, unsigned node);
void sh_sim_net_wire_up(struct sh_sim_net *net, unsigned node);
void sh_sim_net_partition(struct sh_sim_net *net, uint64_t from_mask, uint64_t to_mask);
void sh_sim_net_heal(struct sh_sim_net *net);
void sh_sim_net_cut(struct sh_sim_net *net, unsigned a, unsigned b);
uint64_t sh_sim_net_losses(const struct sh_sim_net *net, unsigned node);

/* sim/disk.c */
struct sh_disk *sh_sim_disk_create(struct sh_world *world, unsigned node, struct sh_prng prng,
                                   const struct sh_disk_faults *faults);
void sh_sim_disk_free(struct sh_disk *disk);
/* sim/disk_inner.c: the same files for somebody else in the node's process: destroying it leaves them open.
 * To be freed before the disk. */
struct sh_disk *sh_sim_disk_inner(struct sh_disk *disk);
void sh_sim_disk_faults_set(struct sh_disk *disk, const struct sh_disk_faults *faults);
/* Loses what was not synced, forgets what is in flight and every open file. */
void sh_sim_disk_crash(struct sh_disk *disk);
/* The disk takes calls again. */
void sh_sim_disk_up(struct sh_disk *disk);
const struct sh_image *sh_sim_disk_file(const struct sh_disk *disk, const char *name);
void sh_sim_disk_lose(struct sh_disk *disk);
void sh_sim_disk_flip(struct sh_disk *disk, const char *name, uint64_t bit);

/* malloc and realloc that assert. */
void *sh_sim_alloc(size_t size);
void *sh_sim_realloc(void *old, size_t size);

#endif
