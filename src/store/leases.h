/* Application locks, as leases: who may read or write a chunk, until when, and who waits.
 *
 * A chunk that nobody has locked costs nothing. A locked one has one writer or any number of
 * readers, and a queue of those who wait:
 *
 *   chunk --> held by: [owner, mode, deadline] ...      one writer, or readers
 *             waiting: [owner, mode, cookie, until] --> ...   in order of arrival
 *
 * A lock belongs to an owner: a node and a 64-bit token that the node gives to one client or
 * thread. An owner has at most one lock or one wait on a chunk; locks do not nest, so one release
 * ends what any number of acquires took. A lock is a promise until its deadline: it stays until it
 * is released or sh_leases_expire, called after the deadline, takes it away, and nobody else gets
 * the chunk before. The owner itself must regard it as lost when its deadline has passed.
 *
 * Fairness is the order of arrival: whoever finds a queue goes to its end, even a reader while
 * readers hold the chunk. When the head of the queue can have the chunk it gets it, and if it is
 * a reader, so do the readers directly behind it.
 *
 * Waiting is a state, never a block. An acquire that has to wait returns SHOAL_EAGAIN, and its
 * cookie comes out of sh_leases_ended exactly once, later: with SHOAL_OK when the lock was
 * granted, or with the reason why the wait ended without. With several threads that can be before
 * the acquire has returned to its caller, who must be prepared for it. Every call may end waits;
 * whoever called should drain the list afterwards, and so should the step that calls
 * sh_leases_expire.
 *
 * This module does not know which chunks exist, and sends nothing. It reads no clock: now_ns is
 * the caller's, on one monotonic clock, and need not rise from call to call of different threads.
 *
 * Threads: every function but create and destroy may be called from any thread. One lock,
 * STORE_LEASES, is taken inside and nothing is called with it held; a caller may hold any lock of
 * a lower rank. sh_leases_due_ns, sh_leases_ended_count and the calls that find an empty table
 * take no lock at all. Work is O(log n) a call, and as much again for each lock or wait that the
 * call ends or grants: waiters_max bounds how many readers can come in at once. */
#ifndef SH_STORE_LEASES_H
#define SH_STORE_LEASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"
#include "shoal/types.h"

struct sh_leases;

/* The longest lease, one day; who wants a chunk for longer extends. */
#define SH_LEASE_NS_MAX (UINT64_C(24) * 3600 * 1000000000)
/* The most locks and waits that a table can be made for. */
#define SH_LEASES_LOCKS_MAX (UINT32_C(1) << 26)
/* A time that never comes: a wait without end, or nothing due. */
#define SH_LEASES_NEVER UINT64_MAX

struct sh_leases_config {
    uint32_t locks_max;   /* locks and waits together; 1 to SH_LEASES_LOCKS_MAX */
    uint32_t waiters_max; /* waits, and ends that were not drained; at most locks_max; 0: nobody
                           * may wait */
    uint64_t seed; /* random: keeps others from choosing chunk IDs that make the table slow */
};

/* Reserves address ranges; memory comes as locks do, in pieces for 1024 of them, and goes with
 * them, but for one piece of each kind that is kept for the next. ENOMEM, EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_leases_create(const struct sh_leases_config *config,
                                                struct sh_leases **leases_out);
/* Frees everything, whatever is locked or waits. NULL is allowed. No other thread may use it. */
void sh_leases_destroy(struct sh_leases *leases);

enum sh_lease_mode {
    SH_LEASE_READER = 1,
    SH_LEASE_WRITER = 2,
};

struct sh_lease_owner {
    uint64_t token;
    shoal_nid nid; /* any, 0 included */
};

/* --- One chunk, one owner ---------------------------------------------------------------- */

struct sh_lease_wish {
    shoal_cid cid; /* not 0 */
    struct sh_lease_owner owner;
    enum sh_lease_mode mode;
    uint64_t lease_ns;      /* length of the lease, from the grant on; 1 to SH_LEASE_NS_MAX */
    uint64_t wait_until_ns; /* when to give up waiting; not after now_ns: do not wait */
    uint64_t cookie;        /* the caller's, for the end of the wait */
};

/* Takes the lock, or waits for it.
 *
 *   OK      it is held; *deadline_ns_out says until when
 *   EAGAIN  the owner waits; the cookie's end will come
 *   EBUSY   somebody holds it or waits for it, and the wish was not to wait; nothing changes
 *   ELIMIT  locks_max or waiters_max is reached; nothing changes
 *   EINVAL  an argument is out of its range
 *
 * Who holds it already: asking for the same mode, or as a writer for a reader's, only extends, as
 * sh_leases_extend, and leaves the mode as it is; a reader who asks for a writer's is swapped or
 * refused at once with EBUSY, as sh_leases_swap, and never waits, since two such would wait for
 * each other. Who waits already (it asked again): the old cookie ends with ECANCELED and the new
 * wish takes its place in the queue, unless it is of the other mode (then it goes to the end) or
 * not to wait (then it waits no more: OK or EBUSY). So asking again after a lost answer is safe. */
SHOAL_NODISCARD enum shoal_err sh_leases_acquire(struct sh_leases *leases,
                                                 const struct sh_lease_wish *wish, uint64_t now_ns,
                                                 uint64_t *deadline_ns_out);

/* Makes the deadline now_ns + lease_ns, unless it is later already. ENOLOCK when the owner does
 * not hold the chunk; EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_leases_extend(struct sh_leases *leases, shoal_cid cid,
                                                struct sh_lease_owner owner, uint64_t lease_ns,
                                                uint64_t now_ns, uint64_t *deadline_ns_out);

/* Changes the mode of a lock that the owner holds, and extends it as sh_leases_extend. Writer to
 * reader succeeds always, and lets readers at the head of the queue in; reader to writer succeeds
 * when the owner is the only one who holds the chunk, whoever waits, else EBUSY: nothing changes.
 * To the mode that it has: extends. ENOLOCK, EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_leases_swap(struct sh_leases *leases, shoal_cid cid,
                                              struct sh_lease_owner owner, enum sh_lease_mode mode,
                                              uint64_t lease_ns, uint64_t now_ns,
                                              uint64_t *deadline_ns_out);

/* Gives a lock back. ENOLOCK when the owner does not hold it: it ran out, or only waits. */
SHOAL_NODISCARD enum shoal_err sh_leases_release(struct sh_leases *leases, shoal_cid cid,
                                                 struct sh_lease_owner owner, uint64_t now_ns);

/* Ends the owner's wait; its cookie comes out with ECANCELED. ENOLOCK when it does not wait: the
 * wait has ended, maybe with the lock. */
SHOAL_NODISCARD enum shoal_err sh_leases_cancel(struct sh_leases *leases, shoal_cid cid,
                                                struct sh_lease_owner owner, uint64_t now_ns);

/* Ends whichever the owner has, its wait or its lock. ENOLOCK: neither. */
SHOAL_NODISCARD enum shoal_err sh_leases_quit(struct sh_leases *leases, shoal_cid cid,
                                              struct sh_lease_owner owner, uint64_t now_ns);

/* Whether the owner holds the chunk in this mode (a writer holds a reader's too) and its deadline
 * is after now_ns. */
bool sh_leases_holds(struct sh_leases *leases, shoal_cid cid, struct sh_lease_owner owner,
                     enum sh_lease_mode mode, uint64_t now_ns);

/* --- Ends of waits ----------------------------------------------------------------------- */

struct sh_lease_end {
    uint64_t cookie;
    shoal_cid cid;
    struct sh_lease_owner owner;
    uint64_t deadline_ns; /* of the lock, with OK; else 0 */
    enum sh_lease_mode mode;
    /* OK         the lock is the owner's
     * ETIMEOUT   wait_until_ns has passed
     * ECANCELED  sh_leases_cancel; the owner asked again; it or its node was dropped
     * ENOCHUNK   the chunk was removed
     * ENOTOWNER  the chunk is moving away: ask its new owner */
    enum shoal_err err;
};

/* Takes up to `max` ends off the list, oldest first, and says how many. An end is one caller's:
 * two threads that drain never get the same. */
size_t sh_leases_ended(struct sh_leases *leases, struct sh_lease_end *ends_out, size_t max);
/* How many are on the list: a hint for a step, which other threads may have outdated. */
size_t sh_leases_ended_count(const struct sh_leases *leases);

/* --- Time -------------------------------------------------------------------------------- */

/* Takes away up to `max` locks whose deadline is now_ns or before, and ends waits whose time is
 * up, in order of deadline; of one deadline, locks before waits, then by chunk ID and owner.
 * Returns how many; `max` means that there may be more. */
size_t sh_leases_expire(struct sh_leases *leases, uint64_t now_ns, size_t max);
/* The next deadline, or SH_LEASES_NEVER. Any call may bring it forward. */
uint64_t sh_leases_due_ns(const struct sh_leases *leases);

/* --- Many at once ------------------------------------------------------------------------ */

/* Releases up to `max` locks and cancels waits of an owner (its connection is lost) or of all
 * owners of a node (it failed or left), in order of owner and chunk ID. Returns how many; `max`
 * means that there may be more: call again. The ends of such waits come out like all others. */
size_t sh_leases_owner_drop(struct sh_leases *leases, struct sh_lease_owner owner, uint64_t now_ns,
                            size_t max);
size_t sh_leases_node_drop(struct sh_leases *leases, shoal_nid nid, uint64_t now_ns, size_t max);

/* Forgets all locks of a removed chunk; waits for it end with ENOCHUNK. Returns how many locks and
 * waits there were. Removing first and then calling this leaves a moment in which somebody can
 * lock what no longer exists; who acquires should therefore look for the chunk afterwards. Such a
 * lock does no harm: it expires. */
size_t sh_leases_chunk_drop(struct sh_leases *leases, shoal_cid cid);

/* --- Moving ------------------------------------------------------------------------------ */

/* Locks as bytes, little-endian, for the node that a range of chunks moves to:
 *
 *   0 version (1): 2  2 zero: 2  4 count: 4  8 locks, of 28 bytes each:
 *     0 chunk ID: 8  8 token: 8  16 node ID: 2  18 mode: 1  19 zero: 1  20 ns that are left: 8
 *
 * in rising order of chunk ID, node ID and token. Time that is left travels instead of deadlines,
 * as clocks of two nodes have nothing in common; the time on the way is the owner's gain. A lock
 * whose deadline has passed has 0 left. Waits are not moved. */
#define SH_LEASES_HEAD_BYTES 8
#define SH_LEASES_LOCK_BYTES 28
#define SH_LEASES_EXPORT_VERSION 1

/* Takes the locks of the chunks first to last (inclusive) out of the table and writes as many as
 * fit into `into`, whose room is at least SH_LEASES_HEAD_BYTES + SH_LEASES_LOCK_BYTES. Waits for
 * those chunks end with ENOTOWNER. *size_out: bytes written; SH_LEASES_HEAD_BYTES means that there
 * was no lock left: call until then. If the move fails, import them again. The caller keeps
 * acquires for the range away from before the first call until the chunks are gone. EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_leases_export(struct sh_leases *leases, shoal_cid first,
                                                shoal_cid last, uint64_t now_ns, void *into,
                                                size_t room, size_t *size_out);

/* Puts exported locks into the table: all, or none. A lock that its owner has here already, in the
 * same mode, is extended, so importing twice does no harm; the wait of an owner who asked here for
 * the same mode ends with OK, for the other mode with ECANCELED. EPROTO: bytes that
 * sh_leases_export did not write; EVERSION; EBUSY: a lock excludes one that is held here; ELIMIT.
 */
SHOAL_NODISCARD enum shoal_err sh_leases_import(struct sh_leases *leases, struct sh_bytes bytes,
                                                uint64_t now_ns);

/* --- Looking ----------------------------------------------------------------------------- */

/* One lock or one wait. */
struct sh_lease {
    shoal_cid cid;
    struct sh_lease_owner owner;
    uint64_t deadline_ns; /* of the lock, or of the wait (SH_LEASES_NEVER: without end) */
    enum sh_lease_mode mode;
    bool waiting;
    uint32_t holders; /* of the chunk */
    uint32_t waiters; /* of the chunk */
};

/* What the owner has on the chunk. ENOLOCK: neither lock nor wait. */
SHOAL_NODISCARD enum shoal_err sh_leases_find(struct sh_leases *leases, shoal_cid cid,
                                              struct sh_lease_owner owner,
                                              struct sh_lease *lease_out);

/* Copies up to `max` locks and waits, in rising order of chunk ID, node ID and token, from the
 * first one that is not below (from, from_owner) on, and says how many; 0: there are none.
 * A page goes on behind the last one's token + 1 (or nid + 1, cid + 1, as each overflows):
 * sh_lease_after. What changes between two pages may be seen or not. */
size_t sh_leases_list(struct sh_leases *leases, shoal_cid from, struct sh_lease_owner from_owner,
                      struct sh_lease *leases_out, size_t max);
/* Sets where the page after the one that ended with `last` begins. False: there is none. */
bool sh_lease_after(const struct sh_lease *last, shoal_cid *from_out,
                    struct sh_lease_owner *from_owner_out);

struct sh_leases_status {
    uint32_t chunks; /* locked or waited for */
    uint32_t readers;
    uint32_t writers;
    uint32_t waiters;
    uint32_t ended;     /* on the list */
    uint64_t granted;   /* since create, as all below: locks given out, at once or after a wait */
    uint64_t expired;   /* locks whose deadline passed */
    uint64_t timed_out; /* waits */
    uint64_t refused;   /* acquires and swaps with EBUSY or ELIMIT */
    uint64_t bytes;     /* resident now, besides a fixed part */
};
void sh_leases_status_get(struct sh_leases *leases, struct sh_leases_status *status_out);

#endif
