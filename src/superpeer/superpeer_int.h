/* The inside of a superpeer, shared by superpeer*.c. */
#ifndef SH_SUPERPEER_SUPERPEER_INT_H
#define SH_SUPERPEER_SUPERPEER_INT_H

#include "cluster/recoveries.h"
#include "metadata/metadata.h"
#include "ranges/ranges.h"
#include "superpeer/registry.h"
#include "superpeer/superpeer.h"

#define SH_PROBES_MAX 32 /* lost connections looked into at once; silence tells of the others */

struct sh_shared; /* superpeer_shared.c */

enum sh_probe_state { SH_PROBE_FREE, SH_PROBE_WANTED, SH_PROBE_ASKING };

struct sh_probe {
    struct sh_superpeer *superpeer;
    struct sh_request request;
    enum sh_probe_state state;
    shoal_nid nid;
    /* Of the node: what is known of a former one says nothing of the next. */
    uint64_t process;
    shoal_nid alias; /* ASKING: of the fresh connection */
    uint64_t due_ns;
    uint64_t begun_ns;
    uint64_t ended_ns; /* FREE: when it did */
    /* 0: has not. When the connection that the node itself had here ended, or at another superpeer;
     * when nobody listened at its address last, as found here and there; and when it was not at its
     * address last: nobody was, or another process. */
    uint64_t lost_ns, others_lost_ns;
    uint64_t refused_ns, others_refused_ns;
    uint64_t absent_ns;
    uint64_t
        others_heard_ns; /* when another superpeer heard the node last, by its word; 0: never */
    uint64_t asked_ns;   /* when the other superpeers were asked */
    uint64_t agreed;     /* the superpeers that have agreed since: bit n is superpeer n */
};

/* A join that is refused: the reason, and the node that asked. */
struct sh_refused_join {
    enum shoal_err err;
    struct sh_bytes address;
    uint64_t instance;
    shoal_nid previous;
    bool is_restart;
};

#define SH_LOOKUPS_WAITING_MAX 256

/* A LOOKUP whose answer waits (superpeer_lookup.c). */
struct sh_waiting_lookup {
    struct sh_reply_to reply_to;
    shoal_cid cid;
    uint64_t epoch;    /* the asker's */
    uint64_t asked_ns; /* when the request arrived */
};

#define SH_NIDS_WORDS ((UINT16_MAX + 1) / 64)

/* Owners that failed, and makers of zones, by ID: of which zones are to be recovered, and of which zones are lost. 16 KB. */
struct sh_former_owners {
    uint64_t undone[SH_NIDS_WORDS], lost[SH_NIDS_WORDS];
};

/* What a look at all records of zones in some shards (bit n is shard n) has found, in the view of an epoch. */
struct sh_looked {
    uint64_t epoch, shards;
    struct sh_former_owners owners;
};

struct sh_journal;
struct sh_ring;
struct sh_superpeer_ring; /* superpeer_ring_int.h */

struct sh_superpeer {
    struct sh_msg *msg;
    struct sh_env env;
    uint16_t index;
    uint64_t instance;
    uint64_t heartbeat_ns, failure_ns;
    uint64_t forget_ns;         /* 0: no node is forgotten unless an operator asks for it */
    uint32_t peer_nids;         /* 0: all */
    uint32_t scratch_bytes_max; /* of a shard that this one owns */
    void (*on_view)(void *arg, const struct sh_view *view);
    void *arg;
    struct sh_registry *registry;
    struct sh_shared *shared;       /* the registry's replication */
    struct sh_superpeer_ring *ring; /* NULL: until it has an ID */
    struct sh_journal *journal;     /* opened with the ring */
    struct sh_disk *memory_disk;    /* the journal's, if nothing is to be kept beyond the process */
    uint64_t life;                  /* of this process (arcs.h); the upper half 0: not on a disk */
    uint64_t life_lsn;              /* with which the journal has it, confirmed or not */
    bool is_confirmed;              /* the registry's table has shown it */
    uint64_t stored_cluster;        /* which cluster's the journal is; 0: none's yet */
    struct sh_view announced;       /* what msg and on_view were told last */
    uint64_t lookups,
        lookups_nobody; /* answered; of these the ones about chunks that no node has */
    struct sh_waiting_lookup waiting[SH_LOOKUPS_WAITING_MAX];
    unsigned waiting_count;
    struct sh_probe probes[SH_PROBES_MAX];
    struct sh_services *services;
    struct sh_forgetting *forgetting;
    struct sh_recoveries *recoveries;
    struct sh_former *former;
};

/* superpeer_shared.c: the registry, which superpeers share. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_shared_open(struct sh_superpeer *superpeer,
                                                        const struct sh_superpeer_config *config,
                                                        uint64_t now_ns);
void sh_superpeer_shared_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_shared_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_shared_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns);
/* Whether what is known here is not long out of date: a majority was heard lately. */
bool sh_superpeer_shared_is_current(const struct sh_superpeer *superpeer);
/* msg forgets failed nodes; but failed superpeers must be heard to be up again. */
void sh_superpeer_shared_connect(struct sh_superpeer *superpeer);

/* superpeer_commands.c: the request in is answered once the others agree. */
void sh_superpeer_shared_join(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                              struct sh_bytes address, uint64_t instance, shoal_nid previous,
                              bool is_restart, const struct sh_traits *traits);
/* back_ms: within which it is to be back; 0: it is not. */
void sh_superpeer_shared_leave(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                               shoal_nid nid, uint64_t instance, uint32_t back_ms);

/* superpeer_ring.c: the part in the ring, of which nothing is answered before open, which needs
 * an ID; again after close. ENOMEM. */
void sh_superpeer_ring_handlers(struct sh_superpeer *superpeer);
SHOAL_NODISCARD enum shoal_err sh_superpeer_ring_open(struct sh_superpeer *superpeer);
void sh_superpeer_ring_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_ring_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_ring_due_ns(const struct sh_superpeer *superpeer);

/* superpeer_journal.c: the journal of the registry's log, the ring's shards and the identity. Opening
 * gives the consensus and the ring what was stored, and begins this process's life.
 * ECORRUPT, ECLUSTER, EVERSION, EIO, ENOSPC, ENOMEM, logged. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_journal_open(struct sh_superpeer *superpeer,
                                                         struct sh_ring *ring);
unsigned sh_superpeer_journal_step(struct sh_superpeer *superpeer, uint64_t now_ns);
/* Whether this process's life is on the disk, so that others may hear of it. */
bool sh_superpeer_journal_lives(const struct sh_superpeer *superpeer);
/* The registry's table shows this process's life, which on a new disk comes from there. */
void sh_superpeer_journal_confirm(struct sh_superpeer *superpeer, uint64_t life);
/* Whether the disk says so: nothing of the ring is kept or answered before. */
bool sh_superpeer_journal_is_confirmed(const struct sh_superpeer *superpeer);
/* The journal is this cluster's from now on (0: no cluster is known yet); with a registry that is in the
 * journal it is what that says, and else the consensus has seen to it that it was no other's. */
void sh_superpeer_journal_cluster_note(struct sh_superpeer *superpeer, uint64_t cluster);
/* Before the consensus and the ring are destroyed. */
void sh_superpeer_journal_close(struct sh_superpeer *superpeer);
/* How its journal is labelled and divided, for those that open it without a superpeer: the label of a
 * superpeer's, in a buffer of SH_JOURNAL_LABEL_BYTES_MAX; the number of streams, the first of which
 * is the registry's log. */
#define SH_SUPERPEER_REGISTRY_STREAM 0
#define SH_SUPERPEER_IDENTITY_STREAM (1 + SH_SHARDS)
struct sh_bytes sh_superpeer_journal_label(unsigned nid, char *into);
unsigned sh_superpeer_journal_streams(void);
/* Removes what is stored; not while it is open. */
void sh_superpeer_journal_remove(const struct sh_env *env);

/* superpeer_moves.c: the range that holds a chunk and its owner, or of superpeers that share their
 * registry, with `first` and `last` the chunk alone, the superpeer to be asked. ENOCHUNK, EFAILED,
 * ELOST, EROLE, EBUSY. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_lookup(struct sh_superpeer *superpeer, shoal_cid cid,
                                                   struct sh_range *range_out);

/* superpeer_services.c: names, barriers and scratch. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_services_open(struct sh_superpeer *superpeer);
void sh_superpeer_services_close(struct sh_superpeer *superpeer);
/* A shard has changed: the requests that wait for that are answered in the next step. */
void sh_superpeer_services_changed(struct sh_superpeer *superpeer, unsigned shard);
unsigned sh_superpeer_services_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_services_due_ns(const struct sh_superpeer *superpeer);
/* The shard's state as far as names, barriers and scratch are concerned. EROLE: `other` is to be
 * asked; EBUSY: not now. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_services_state(struct sh_superpeer *superpeer,
                                                           unsigned shard,
                                                           struct sh_metadata **metadata_out,
                                                           shoal_nid *other_out);
/* A connection was lost. */
void sh_superpeer_services_lost(struct sh_superpeer *superpeer, shoal_nid nid);
/* Answers a METADATA request: with the result, or (other not NONE) with the superpeer to be asked. */
void sh_superpeer_metadata_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                  sh_msg_type type, shoal_nid other,
                                  const struct sh_metadata_result *result);

/* superpeer_report.c */
void sh_superpeer_report_handler(struct sh_superpeer *superpeer);

/* superpeer_watch.c */
void sh_superpeer_shared_heard(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t epoch);
/* A connection has ended. A node that asked over it to join may be dead, and another process may have
 * its address by now, so its join is not handed in again. */
void sh_superpeer_shared_lost(struct sh_superpeer *superpeer, shoal_nid nid);
/* Another superpeer has refused a connection, since another process of this one is connected there. */
void sh_superpeer_shared_turned_away(struct sh_superpeer *superpeer, uint64_t now_ns);
void sh_superpeer_shared_fail(struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead);
/* Takes a node out of the next report to the leader: it was heard before its connection was lost. */
void sh_shared_unheard(struct sh_superpeer *superpeer, shoal_nid nid);

/* superpeer_grant.c: which peers may serve until when. */
/* For how long from now on a node may serve that is heard now, in ns; 0: not at all. */
uint64_t sh_superpeer_lease_ns(const struct sh_superpeer *superpeer, shoal_nid nid,
                               uint64_t now_ns);
/* As of when this superpeer knows all that is decided about the registry: when it sent the last report to the leader
 * whose answer it has caught up with, or began the last round of heartbeats that a majority answered. */
uint64_t sh_superpeer_known_ns(const struct sh_superpeer *superpeer, uint64_t now_ns);
/* Whether no lease of a node of this registry can hold any more. */
bool sh_superpeer_lease_is_over(const struct sh_superpeer *superpeer, shoal_nid nid,
                                uint64_t now_ns);

/* superpeer.c: answers a join of that node, or of that superpeer. */
void sh_superpeer_join_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                              sh_msg_type type, shoal_nid nid);
/* Refuses a peer's join, and says why. The node that has its address is asked whether it lives. */
void sh_superpeer_join_refuse(struct sh_superpeer *superpeer, struct sh_reply_to to,
                              sh_msg_type type, const struct sh_refused_join *join);

/* superpeer_lookup.c. */
/* Answers a LOOKUP of cid from a node whose view has that epoch, at once or in a later step. */
void sh_superpeer_lookup_ask(struct sh_superpeer *superpeer, struct sh_reply_to to, shoal_cid cid,
                             uint64_t epoch);
/* Answers the lookups that wait, as far as they can be. Returns how many. */
unsigned sh_superpeer_lookups_step(struct sh_superpeer *superpeer, uint64_t now_ns);
void sh_superpeer_lookups_close(struct sh_superpeer *superpeer); /* refuses those that wait */
void sh_superpeer_tree_handler(void *arg, struct sh_msg_in *in);

/* superpeer_peers.c: questions that every superpeer answers. */
/* The time-out of a question: well below failure_ns, so that it ends before silence is a failure. */
uint64_t sh_superpeer_question_ns(const struct sh_superpeer *superpeer);
void sh_superpeer_ping_handler(void *arg, struct sh_msg_in *in);
void sh_superpeer_requests_cancel(struct sh_superpeer *superpeer);

/* superpeer_probe.c: suspicion. */
void sh_superpeer_refused_handler(void *arg, struct sh_msg_in *in);
void sh_superpeer_suspect_handler(void *arg, struct sh_msg_in *in);
/* Asks a node whether it lives, if it counts as up and has not been asked within a heartbeat. */
void sh_superpeer_probe(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns);
/* The same, of a node whose own connection has ended. */
void sh_superpeer_probe_lost(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns);
unsigned sh_superpeer_probes_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_probes_due_ns(const struct sh_superpeer *superpeer);

/* superpeer_forget.c: nodes that are gone. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_forget_open(struct sh_superpeer *superpeer);
void sh_superpeer_forget_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_forget_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_forget_due_ns(const struct sh_superpeer *superpeer);

/* superpeer_recover.c: zones whose owners have failed. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_recoveries_open(struct sh_superpeer *superpeer);
void sh_superpeer_recoveries_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_recoveries_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_recoveries_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns);
/* An update of a zone (ZONE_NEW, ZONE_CHANGE, ZONE_REMOVE) was carried out, or refused by the state. */
void sh_superpeer_recoveries_changed(struct sh_superpeer *superpeer,
                                     const struct sh_metadata_update *update);
/* What the last look at all records of zones found that is complete; NULL: there is none yet in the view as it is, and with the ring's table. Valid until
 * the next step. *number_out: rises with each change. */
const struct sh_looked *sh_superpeer_recoveries_looked(const struct sh_superpeer *superpeer,
                                                       uint64_t *number_out);

/* Of a record that is looked at, what becomes of the zone. False: nothing, its owner has it. */
bool sh_superpeer_recoveries_look(const struct sh_superpeer *superpeer,
                                  struct sh_recovery *recovery);

/* superpeer_former.c: what superpeers tell each other of owners that failed. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_former_open(struct sh_superpeer *superpeer);
void sh_superpeer_former_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_former_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_former_due_ns(const struct sh_superpeer *superpeer);
/* What is to be said of chunks that are noted as that node's still, whose life is over: EFAILED, some zone that was the node's is to be recovered; ELOST,
 * none is, but some are lost; ENOCHUNK. EAGAIN: that is not known of all shards, in the view as it is. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_former_of(const struct sh_superpeer *superpeer,
                                                      shoal_nid former);

/* superpeer_recover_told.c: writes the page that answers RECOVERIES, and returns its size. */
size_t sh_superpeer_recoveries_page(const struct sh_superpeer *superpeer, unsigned shard,
                                    uint64_t after, uint8_t page[SH_RECOVERIES_PAGE_BYTES]);

/* superpeer_events.c */
void sh_superpeer_events_handler(void *arg, struct sh_msg_in *in);
#endif
