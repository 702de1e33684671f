/* Locks on a node's chunks, as clients and other nodes ask for them. The locks themselves are
 * leases (store/leases.h), the messages are in proto/locks.h; here is who is told what, and when locks fall.
 *
 * Locks fall, and waits end, when the chunk is removed, when a client's connection ends in
 * whichever way, and when the view says of a node that it failed, left or was started anew. They do
 * not fall when the connection to a node is lost, since the view decides about nodes.
 *
 * Threads: the handlers are inline (but that of LOCKS, which only looks) and, like the step, the
 * events and the view, belong to the thread that runs msg's transport step. Only sh_locks_remove
 * may be called from any. */
#ifndef SH_NODE_LOCKS_H
#define SH_NODE_LOCKS_H

#include "backup/backup.h"
#include "base/crew.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/msg.h"
#include "node/held.h"
#include "node/holdings.h"
#include "proto/locks.h"
#include "store/leases.h"
#include "store/store.h"

struct sh_locks;

struct sh_locks_config {
    struct sh_msg *msg;       /* kept, as is the store */
    struct sh_store *store;   /* the chunks that can be locked */
    struct sh_backup *backup; /* of the store; kept */
    struct sh_helds *helds;   /* kept; answers that wait. NULL: nothing is backed up */
    /* Kept; which of them are here. NULL: all that the node created. */
    struct sh_holdings *holdings;
    struct sh_clock clock;
    uint64_t seed;        /* random */
    uint32_t locks_max;   /* locks and waits together; 0: 2^20 */
    uint32_t waiters_max; /* 16 bytes each, and a lease's; 0: 2^16 */
    /* Wakes the thread that runs the step; from any thread. */
    void (*wake)(void *arg);
    void *arg;
};

/* Registers the handlers, before msg's steps run. ENOMEM, EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_locks_create(const struct sh_locks_config *config,
                                               struct sh_locks **locks_out);
/* What waits is not answered any more. After msg is destroyed or its steps have stopped. NULL is
 * allowed. */
void sh_locks_destroy(struct sh_locks *locks);

/* Takes away what has run out, and answers those whose wait is over. */
struct sh_step sh_locks_step(struct sh_locks *locks);

/* Takes an event of msg's on_event: a client that is gone loses its locks. */
void sh_locks_link_event(struct sh_locks *locks, const struct sh_msg_event *event);
/* Takes a new view: nodes that are gone lose theirs. */
void sh_locks_view(struct sh_locks *locks, const struct sh_view *view);

/* Copies the locks and waits of all chunks, as sh_leases_list does. Any thread. */
size_t sh_locks_list(const struct sh_locks *locks, shoal_cid from, struct sh_lease_owner from_owner,
                     struct sh_lease *leases_out, size_t max);

/* How many requests wait for a lock, as far as places are taken for them. Transport step's thread. */
uint32_t sh_locks_waiting(const struct sh_locks *locks);

/* --- Moving (docs/migration.md) ------------------------------------------------------------ */

/* The locks of chunks that are about to move: as they are here, to put them back, and as they
 * travel. An owner is known by the alias of its connection here, which means nothing elsewhere: of
 * a client's lock the owner travels as SH_LOCKS_STRAY_NID with a token made of the client's number
 * and its own, and whoever shows both at the new node gets the lock. Until then it lasts as long as
 * its lease. Zeros are an empty one. */
#define SH_LOCKS_STRAY_NID 0xFFFF
struct sh_locks_bag {
    uint8_t *bytes; /* as sh_leases_export writes them, with one head */
    size_t room;
    uint32_t count;
    /* Of each lock, the number of the client whose connection's alias its owner is; 0: a node's. */
    uint64_t *clients;
};
#define SH_LOCKS_BAG_MAX 16384
void sh_locks_bag_free(struct sh_locks_bag *bag);

/* Whether all locks on the chunks first to last can move; if not, *stays_out is the first chunk
 * with a lock whose owner has told no number. */
bool sh_locks_can_move(struct sh_locks *locks, shoal_cid first, shoal_cid last,
                       shoal_cid *stays_out);
/* Takes the locks of chunks first to last, above those of the calls before, out into the bag. Waits
 * end: who waited asks again. Nobody may ask for these chunks' locks until they are put back or the
 * chunks are gone. ENOMEM, ELIMIT: some are in the bag. */
SHOAL_NODISCARD enum shoal_err sh_locks_pack(struct sh_locks *locks, shoal_cid first,
                                             shoal_cid last, struct sh_locks_bag *bag);
/* Puts them back, and empties the bag. A client's lock falls if its connection was lost meanwhile. */
void sh_locks_unpack(struct sh_locks *locks, struct sh_locks_bag *bag);
/* Writes count times SH_LEASES_LOCK_BYTES, as they travel. */
void sh_locks_bag_put(const struct sh_locks_bag *bag, struct sh_writer *w);
/* Takes locks that came with chunks. ELIMIT, EPROTO, ENOMEM, EBUSY: none was taken. */
SHOAL_NODISCARD enum shoal_err sh_locks_receive(struct sh_locks *locks, struct sh_bytes travelled,
                                                uint32_t count);
/* Forgets the locks of chunks first to last, which did not come after all. */
void sh_locks_discard(struct sh_locks *locks, shoal_cid first, shoal_cid last);

/* Removes a chunk from the store, for a write, and with it its locks; as sh_backup_remove. Any thread; takes
 * arg for a callback's sake. */
SHOAL_NODISCARD enum shoal_err sh_locks_remove(void *arg, struct sh_write *write, shoal_cid cid,
                                               sh_lid lid);

#endif
