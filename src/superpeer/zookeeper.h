/* One value that a cluster keeps in ZooKeeper, and who leads: /shoal/CLUSTER/registry, which is
 * replaced on condition that nobody else has done so meanwhile, and /shoal/CLUSTER/leader, which
 * goes with the session of whoever made it.
 *
 * libzookeeper has threads of its own; what they bring is queued for step, and nothing waits.
 *
 * Threads: as the superpeer's. */
#ifndef SH_SUPERPEER_ZOOKEEPER_H
#define SH_SUPERPEER_ZOOKEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

/* ZooKeeper's own bound for a value is 1 MiB, of a whole message. */
#define SH_ZOOKEEPER_VALUE_BYTES_MAX 1000000

struct sh_zookeeper;

/* servers: HOST:PORT,HOST:PORT/PATH, as libzookeeper has them; cluster: its name. Both copied.
 * session_ns: silence after which ZooKeeper gives the leadership to another. confirm_ns: how often
 * whoever leads asks whether it still does. Names of hosts are resolved here, which may block.
 * ENOMEM, EADDRESS (servers make no sense). */
SHOAL_NODISCARD enum shoal_err sh_zookeeper_create(const char *servers, const char *cluster,
                                                   uint64_t session_ns, uint64_t confirm_ns,
                                                   struct sh_zookeeper **zookeeper_out);
/* Ends the session, which may block for some seconds. NULL is allowed. */
void sh_zookeeper_destroy(struct sh_zookeeper *zookeeper);

/* Carries everything on; returns how much was done. */
unsigned sh_zookeeper_step(struct sh_zookeeper *zookeeper, uint64_t now_ns);
/* When it should be called next, unless something is begun. */
uint64_t sh_zookeeper_due_ns(const struct sh_zookeeper *zookeeper, uint64_t now_ns);

/* Connected, and the value was read since. */
bool sh_zookeeper_is_current(const struct sh_zookeeper *zookeeper);

/* The value as it was read or written last, empty at first; valid until step or write. Its number
 * changes with it; 0: nothing was read yet. */
struct sh_bytes sh_zookeeper_value(const struct sh_zookeeper *zookeeper);
uint64_t sh_zookeeper_number(const struct sh_zookeeper *zookeeper);

/* Whether write would begin now. */
bool sh_zookeeper_can_write(const struct sh_zookeeper *zookeeper);
/* Begins to replace the value (copied). EBUSY: not current, or a write is under way. ETOOBIG.
 * ENOMEM.
 */
SHOAL_NODISCARD enum shoal_err sh_zookeeper_write(struct sh_zookeeper *zookeeper,
                                                  struct sh_bytes value);
/* How the last write ended: EAGAIN (not yet), OK, ECONNLOST (nobody knows), EBUSY (another was
 * faster). After the last two nothing is current until the value has been read again. */
enum shoal_err sh_zookeeper_written(const struct sh_zookeeper *zookeeper);

/* From now on this client tries to become the leader, as that superpeer. */
void sh_zookeeper_stand(struct sh_zookeeper *zookeeper, uint16_t as);
bool sh_zookeeper_leads(const struct sh_zookeeper *zookeeper);
/* Which leadership this is: a later one of any superpeer has a higher number. 0: it does not lead. */
uint64_t sh_zookeeper_term(const struct sh_zookeeper *zookeeper);
/* When this one surely led last, with the value known as it was then: when a question whether it
 * leads was sent that ZooKeeper has answered, however late that was read. 0: it does not lead, or
 * has no answer yet. */
uint64_t sh_zookeeper_led_ns(const struct sh_zookeeper *zookeeper);
/* Reads the value of the leader's entry, the decimal ID of a superpeer; false: it is something else. */
bool sh_zookeeper_leader_get(struct sh_bytes bytes, uint16_t *leader_out);
/* The leader, as far as is known; 0: none. */
uint16_t sh_zookeeper_leader(const struct sh_zookeeper *zookeeper);

#endif
