/* The ring: the large metadata of the superpeers, each shard of it (arcs.h) with an owner and up to
 * three more replicas, on the disks of all of them; a state machine without input or output but its
 * journal. docs/ring.md.
 *
 *   update --> [owner's log] --APPEND--> [replica's log] --journal synced--> ANSWER --> owner
 *                   '--journal synced--------------------------------------------------> '
 *                                        all have it on disk: fsm.apply, and the answer
 *
 * Vertical Paxos II (Lamport, Malkhi and Zhou, PODC 2009), with a log for each shard: within one
 * version of a shard its owner orders the updates, and applies (and lets be answered) what *all*
 * replicas have on their disks. The registry alone changes versions: arcs_set tells which ones are
 * in force, and change_next says what an owner wants to be changed. Entries are named by sequence
 * and by the version in which they were ordered, their *epoch*, so that two logs with the same
 * epoch at a sequence agree up to it, as in Raft. A process that begins anew never orders in a
 * version in which an earlier one ordered: its start changes the versions (arcs.h).
 *
 *   an owner fails         its successor among the replicas has all that was answered. It brings
 *                          the others to its own log, and serves when all have that log's end
 *   a replica fails        the owner goes on without it, once the registry has taken it out
 *   a replica is silent    for patience_ns, though the registry hears it: the owner has it dropped,
 *                          if two are left
 *   the owner's own disk   is silent for patience_ns: the owner hands over to another replica
 *   a replica is missing   it gets the state as a snapshot in pieces, then the entries since; when
 *                          it has caught up the owner awaits its answers too, and has it added
 *   another is to own      the owner stops taking updates, and hands over when all have everything
 *   all are killed         each has on its disk all that was answered; the first that the registry
 *                          makes the owner brings the others to its own log
 *   all are lost           for good, as an operator has declared: the owner asks the superpeers that
 *                          are there for old copies, and has the most advanced one made the shard's
 *                          state; if there is none, fsm.build makes one. So a superpeer that is no
 *                          replica keeps its copy until all that are to be replicas are
 *
 * Which superpeer may answer: an owner whose version is old can't get the answers of all replicas, since
 * the next owner is one of these, or was chosen by the old owner itself. But the old owner could answer
 * reads, and as the only replica could apply updates. So an owner does both only while it has a *lease*:
 * the leader that declares a superpeer failed (arcs.h: gone) must have waited until the lease of that
 * superpeer has run out, or must know that its process has ended.
 *
 * Departures: the owner that is replaced takes no part in the change; a replica takes entries into
 * its log before it knows that all have them, and drops what another owner orders otherwise.
 *
 * An update that fsm calls *volatile* is answered when all replicas have it in memory. It is in the
 * journals too, so that after all superpeers were killed some prefix of a shard's updates is there.
 *
 * Memory: beside fsm's state up to 2 * entries_kept entries of each shard held, and what came since
 * a snapshot began that is being sent; 400 KB for who has what.
 * Threads: one at a time. Nothing here blocks. The same events in the same order give the same
 * effects. */
#ifndef SH_RING_RING_H
#define SH_RING_RING_H

#include "base/bytes.h"
#include "journal/journal.h"
#include "ring/arcs.h"
#include "shoal/err.h"

#define SH_RING_COMMAND_BYTES_MAX 65536
#define SH_RING_BACKLOG_MAX 1024 /* updates of a shard that not all replicas have yet */

struct sh_ring;

/* What is kept: of each shard a state. Called from within receive, arcs_set, lease_set, start,
 * built, step, and from the journal's opening and step; may not call the ring. */
struct sh_ring_fsm {
    /* An update (borrowed) that all replicas have, at the owner and, somewhat later, at each of
     * them: in the same order. */
    void (*apply)(void *arg, unsigned shard, uint64_t epoch, uint64_t sequence,
                  struct sh_bytes command);
    /* Whether an update need not be on disks before it is answered. NULL: each must be. */
    bool (*is_volatile)(void *arg, unsigned shard, struct sh_bytes command);
    /* An update is about to be taken, here or from its owner: sees to it that apply will not lack
     * memory. Any error: it is not taken. NULL: apply takes none. */
    enum shoal_err (*reserve)(void *arg, unsigned shard, struct sh_bytes command);
    /* A snapshot of a shard's state after the last apply, which later applies do not change.
     * ENOMEM. Several of a shard may be open. next writes a piece, at most room
     * (config.piece_bytes) bytes, and returns its size; 0: there is no more. end releases it, whole
     * or not. */
    enum shoal_err (*snapshot_begin)(void *arg, unsigned shard, void **snapshot_out);
    size_t (*snapshot_next)(void *arg, void *snapshot, uint8_t *into, size_t room);
    void (*snapshot_end)(void *arg, void *snapshot);
    /* Takes a state in pieces; end with install puts it in the place of the shard's state, without
     * it drops it; either way the restore is released. EPROTO: not what snapshots give. */
    enum shoal_err (*restore_begin)(void *arg, unsigned shard, void **restore_out);
    enum shoal_err (*restore_piece)(void *arg, void *restore, struct sh_bytes piece);
    enum shoal_err (*restore_end)(void *arg, void *restore, bool install);
    /* The shard is not held here any more. */
    void (*clear)(void *arg, unsigned shard);
    /* The shard has no replica, no superpeer that is there has an old copy, and this superpeer is to
     * make the state, in that version; when it has, sh_ring_built. Called again it begins anew. */
    void (*build)(void *arg, unsigned shard, uint64_t version);
    void *arg;
};

struct sh_ring_config {
    uint8_t server;        /* this superpeer's ID */
    uint64_t resend_ns;    /* what was not answered for so long is said again */
    uint64_t patience_ns;  /* a replica whose log does not advance for so long is to be dropped */
    uint32_t entries_kept; /* of each shard, for replicas that have missed something; at least 1 */
    uint32_t piece_bytes;  /* entries or snapshot in one message, roughly; at least 64 */
    struct sh_ring_fsm fsm;
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_ring_create(const struct sh_ring_config *config,
                                              struct sh_ring **ring_out);
/* After the journal is closed. */
void sh_ring_destroy(struct sh_ring *ring);

/* The state machine of a shard, for the journal that is about to be opened. */
struct sh_journal_stream sh_ring_stream(struct sh_ring *ring, unsigned shard);
/* The journal (kept) has been opened with those streams; shard n is stream first_stream + n. */
void sh_ring_journal_set(struct sh_ring *ring, struct sh_journal *journal, unsigned first_stream);

/* From now on it takes part. The table (borrowed) must be one in which this process has been
 * started (sh_arcs_start), and a later table than any that was set before. */
void sh_ring_start(struct sh_ring *ring, uint64_t now_ns, const struct sh_arcs *arcs);
/* The registry's table has changed (borrowed). Tables come in order; some may be left out. */
void sh_ring_arcs_set(struct sh_ring *ring, uint64_t now_ns, const struct sh_arcs *arcs);
/* The superpeer may answer until then, by its own clock. A lease never gets shorter. */
void sh_ring_lease_set(struct sh_ring *ring, uint64_t now_ns, uint64_t until_ns);

/* Does what is to be done since messages came, updates were ordered, the journal was synced, and
 * time has passed; returns how much. To be called after each of them, and at sh_ring_due_ns at the
 * latest.
 */
unsigned sh_ring_step(struct sh_ring *ring, uint64_t now_ns);
uint64_t sh_ring_due_ns(const struct sh_ring *ring);

/* A message of another superpeer, borrowed; what is malformed or out of place is dropped. */
void sh_ring_receive(struct sh_ring *ring, uint64_t now_ns, uint8_t from, struct sh_bytes message);

/* Whether the state that fsm has of a shard may be answered with: it contains all updates that
 * were answered before. EROLE: another superpeer owns it. EBUSY: not now. */
SHOAL_NODISCARD enum shoal_err sh_ring_reads(const struct sh_ring *ring, uint64_t now_ns,
                                             unsigned shard);
/* Orders an update (copied). It is done when fsm.apply gets it, which is in a later step; when this
 * superpeer is not the shard's owner any more, or another epoch's comes at its sequence, nobody
 * here knows what becomes of it. EROLE, EBUSY (also: too many are not done yet), ETOOBIG, ENOMEM:
 * nothing was done. */
SHOAL_NODISCARD enum shoal_err sh_ring_update(struct sh_ring *ring, uint64_t now_ns, unsigned shard,
                                              struct sh_bytes command, uint64_t *epoch_out,
                                              uint64_t *sequence_out);
/* The state of a shard without replicas has been made, and is in fsm; of no effect in another
 * version. Where memory is lacking for it, build is called again. */
void sh_ring_built(struct sh_ring *ring, uint64_t now_ns, unsigned shard, uint64_t version);

/* --- Effects --------------------------------------------------------------------------------- */

struct sh_ring_message {
    struct sh_ring_message *next; /* the ring's */
    uint8_t to;
    size_t size;
    uint8_t bytes[];
};

/* The next message that is to be sent, or NULL; the caller's to free(). */
struct sh_ring_message *sh_ring_message_next(struct sh_ring *ring);
/* The next change that the registry is to be asked for; false: none. Repeated until the shard's
 * version is another one. */
bool sh_ring_change_next(struct sh_ring *ring, uint64_t now_ns, struct sh_arc_change *change_out);

/* --- State ----------------------------------------------------------------------------------- */

/* The owner of a shard, as far as is known here; 0: there is none. */
uint8_t sh_ring_owner(const struct sh_ring *ring, unsigned shard);
/* Whether the whole state of a shard is here; the last update that fsm got, and its log's end. */
bool sh_ring_holds(const struct sh_ring *ring, unsigned shard);
uint64_t sh_ring_applied(const struct sh_ring *ring, unsigned shard);
uint64_t sh_ring_last(const struct sh_ring *ring, unsigned shard);
/* Of an old copy, or one in use: the epoch and sequence of its log's end. False: there is none. */
bool sh_ring_copy(const struct sh_ring *ring, unsigned shard, uint64_t *epoch_out,
                  uint64_t *sequence_out);
/* Whether this superpeer is to make the state of a shard without replicas, and waits for what others
 * say of their old copies: *missing_out is the set of those that have not answered. */
bool sh_ring_searches(const struct sh_ring *ring, unsigned shard, uint64_t *missing_out);

#endif
