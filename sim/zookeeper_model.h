/* A ZooKeeper for simulated worlds: in a program that links it, the functions of libzookeeper that
 * superpeer/zookeeper.c calls are these, in virtual time. Others there are not.
 *
 * Its servers keep one order of changes; a client reads from a server that may be some changes behind,
 * and never goes back behind what it has seen. The faults, until it is calm: answers and watches come
 * late; a connection is lost, and whether what was under way is done is drawn; a session whose client
 * was not heard for its time expires then or as late again, another one at once; all servers stand
 * still. Sessions of nodes that crash or are paused are not heard of.
 *
 * At most one at a time in a process. Threads: the simulator's. */
#ifndef SIM_ZOOKEEPER_MODEL_H
#define SIM_ZOOKEEPER_MODEL_H

#include "sim/world.h"

#define SH_ZOOKEEPER_MODEL_SERVERS_BYTES 16

struct sh_zookeeper_model;

struct sh_zookeeper_model *sh_zookeeper_model_create(struct sh_world *world, uint64_t seed);
/* After all nodes' objects are gone. NULL is allowed. */
void sh_zookeeper_model_destroy(struct sh_zookeeper_model *model);

/* The servers as that node names them. */
void sh_zookeeper_model_servers(unsigned node, char into[SH_ZOOKEEPER_MODEL_SERVERS_BYTES]);
/* A node's process has ended: its session is not closed. Before its objects go. NULL is allowed. */
void sh_zookeeper_model_crash(struct sh_zookeeper_model *model, unsigned node);
/* Nothing goes wrong from now on, or again. NULL is allowed. */
void sh_zookeeper_model_calm_set(struct sh_zookeeper_model *model, bool is_calm);

/* Whether the entry "leader" was that of the node's present session, at a time of the world. */
bool sh_zookeeper_model_led(const struct sh_zookeeper_model *model, unsigned node, uint64_t at_ns);

#endif
