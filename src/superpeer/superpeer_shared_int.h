/* The inside of a shared registry: superpeer_shared.c (life, messages), superpeer_commands.c (what
 * is agreed on, and the requests that wait for it), superpeer_watch.c (failure detection),
 * superpeer_grant.c (leases), and below them, behind consensus.h, superpeer_raft.c or
 * superpeer_zookeeper.c (the consensus).
 *
 *   join, leave ------> pending --> leader, or itself --consensus--> carried out ----> answer, where
 *                         '--- again until it was carried out ---'                    it was asked
 *   heartbeats -------> heard ----HEARD----> leader: a silent node has failed
 *   lost connection --> PING --FAIL--------> leader
 *
 * Only the leader decides that a node is silent, by what all superpeers have heard, so that a
 * superpeer that is cut off from a node declares no failure. Joins and leaves may be carried out twice: an instance
 * that is a member gets the ID that it has.
 *
 * Superpeers are nodes of the registry too, with the IDs 1 to 63. The registry names the nodes that
 * should be superpeers, and the consensus changes its members to these.
 *
 * A command:
 *   0   u8   kind
 *   1   u8   STATE: the state; FAIL: 1 if it is dead for sure, 2 if it was away and is not back in time; LEAVE:
 *            1 if it is to be back; JOIN: bits, 1 if the peer is started again,
 *            with its ID on its disk, 2 if its traits are there, which those of before had not; FORGET: 1
 *            if first of all it is given up (sh_registry_give_up); else 0
 *   2   u16  node ID; JOIN: its previous one, or 0; SUPERPEER: its ID, or 0 for a new one
 *   4   u64  number, by which the superpeer that proposed it finds the request that waits; 0: none does
 *   12  u64  instance; EPOCH: the epoch
 *   20  text address (JOIN, SUPERPEER); ARC: the change, as in arcs.h; FORGET of before: 8 bytes that are
 *            passed over
 *   then JOIN: with bit 2, the peer's traits, as in traits.h; LEAVE: with 1, u32 within how many ms it is to be back
 *
 * Logs of before have commands that bring a failed peer back. All superpeers pass over these: the peer stays
 * failed, hears that with its next heartbeat, and joins as its next life. */
#ifndef SH_SUPERPEER_SUPERPEER_SHARED_INT_H
#define SH_SUPERPEER_SUPERPEER_SHARED_INT_H

#include "superpeer/consensus.h"
#include "superpeer/superpeer_int.h"

#define SH_SHARED_NIDS (SH_PEER_NID_MAX + 1)

enum sh_command_kind {
    SH_COMMAND_JOIN = 1,
    SH_COMMAND_LEAVE,
    SH_COMMAND_FAIL,
    SH_COMMAND_FORMER_BACK, /* of logs of before: passed over */
    SH_COMMAND_STATE,       /* of a superpeer */
    SH_COMMAND_SUPERPEER,   /* a superpeer's address, or its admission */
    SH_COMMAND_EPOCH,       /* members know a higher epoch than the registry has */
    SH_COMMAND_RING,        /* a superpeer's process has begun: it keeps nothing of the ring yet */
    SH_COMMAND_ARC,         /* a change of a shard */
    SH_COMMAND_LOST = 11,   /* the disk of a superpeer, or of a peer, as an operator has declared */
    SH_COMMAND_FORCE,       /* the cluster goes on with that superpeer alone (superpeer_force.c) */
    SH_COMMAND_FORGET,      /* a peer that is gone (superpeer_forget.c) */
};

#define SH_COMMAND_FAIL_DEAD 1u
#define SH_COMMAND_FAIL_LATE 2u /* it was away, and is not back in time */
_Static_assert(SH_COMMAND_FAIL_LATE <= SH_NODE_FAILED, "sh_command_get takes states up to that");

struct sh_command {
    uint8_t kind;
    uint8_t state; /* JOIN: whether the peer is started again */
    bool has_traits;
    shoal_nid nid;
    uint32_t back_ms; /* LEAVE: within which it is to be back; 0: it is not */
    uint64_t number, instance;
    struct sh_bytes address;
    struct sh_traits traits;
};

/* A request that waits for its command to be applied. */
struct sh_pending {
    struct sh_pending *next;
    uint64_t number;
    struct sh_reply_to reply_to;
    sh_msg_type type;
    uint64_t resend_ns, deadline_ns;
    size_t size;
    uint8_t command[];
};

struct sh_shared {
    struct sh_consensus *consensus;                    /* NULL: not made yet */
    uint64_t superpeer_gone_ns[SH_SUPERPEERS_MAX + 1]; /* when it was found dead last */
    char cluster[64];
    char address[SH_MSG_ADDRESS_MAX];
    uint64_t instance;
    void (*on_dismissed)(void *arg);
    bool is_dismissed, was_told; /* was_told: on_dismissed was called */
    /* Where the superpeers are, by ID, as was heard last; empty: not known. */
    char contacts[SH_SUPERPEERS_MAX + 1][SH_MSG_ADDRESS_MAX];
    char former[SH_MSG_ADDRESS_MAX]; /* of this one, by its disk; empty: not known */
    uint64_t election_ns;
    struct sh_pending *pending, **pending_end;
    size_t pending_count;
    uint64_t number; /* of the last command */
    uint64_t watch_ns, watched_ns;
    uint64_t touch_ns; /* when a PING next keeps the connections to the other superpeers open */
    uint64_t turned_away_ns; /* since when others have another process of this superpeer; 0: not */
    bool has_told_of_it;
    uint64_t led_since_ns; /* 0: somebody else leads */
    uint64_t claimed;      /* highest epoch that a member claimed since the last HEARD */
    uint64_t heard[SH_SHARED_NIDS / 64 + 1]; /* nodes heard since then, by ID */
    /* Leases (superpeer_grant.c). Of this superpeer: what the leader is being told, since when, and
     * when it was told last, with its consent, that a node was heard: 458 KB, used as far as there
     * are nodes. */
    struct sh_request report;
    bool is_reporting;
    uint64_t reported_ns;
    uint64_t reported[SH_SHARED_NIDS / 64 + 1];
    uint64_t confirmed_ns[SH_SHARED_NIDS];
    struct {
        uint64_t from_ns, epoch; /* this superpeer's own lease, from the leader at that epoch */
    } offer;                     /* from_ns 0: none */
    /* Of the leader: when it was sure to lead last, and the nodes whose failure is being decided. */
    uint64_t led_ns;
    uint64_t doomed[SH_SHARED_NIDS / 64 + 1];
};

/* superpeer_commands.c */
void sh_command_put(struct sh_writer *w, const struct sh_command *command);
bool sh_command_get(struct sh_bytes bytes, struct sh_command *command_out);
/* Gives a command to the leader, if there is one. The command may be lost on the way. */
void sh_shared_hand_in(struct sh_superpeer *superpeer, struct sh_bytes bytes);
/* The same with a command for which no request waits. */
void sh_shared_decide(struct sh_superpeer *superpeer, const struct sh_command *command);
/* Carries a command out on a registry; *nid_out: the node that the command is about. */
enum shoal_err sh_shared_carry_out(struct sh_superpeer *superpeer, struct sh_registry *registry,
                                   const struct sh_command *command, shoal_nid *nid_out);
/* Answers the request of that command, and ends its waiting. */
void sh_shared_answer(struct sh_superpeer *superpeer, const struct sh_command *command,
                      enum shoal_err err, shoal_nid nid);
/* Carries out a committed command. was_loaded: it was in the log when that was loaded. */
void sh_shared_apply(struct sh_superpeer *superpeer, struct sh_bytes bytes, bool was_loaded);
void sh_shared_recruit(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                       struct sh_bytes address, uint64_t instance);
void sh_shared_dismiss(struct sh_superpeer *superpeer, const struct sh_msg_in *in, shoal_nid nid);
void sh_shared_lost(struct sh_superpeer *superpeer, const struct sh_msg_in *in, shoal_nid nid);
/* Forgets a peer to which nothing refers; the FORGET of an operator is answered then. */
void sh_shared_forget(struct sh_superpeer *superpeer, struct sh_reply_to reply_to, shoal_nid nid,
                      uint64_t instance);
/* Whether a request still waits for the command of that number. */
bool sh_shared_is_pending(const struct sh_superpeer *superpeer, uint64_t number);
unsigned sh_shared_pending_step(struct sh_superpeer *superpeer, uint64_t now_ns);
void sh_shared_pending_drop(struct sh_superpeer *superpeer);

/* superpeer_watch.c */
unsigned sh_shared_watch_step(struct sh_superpeer *superpeer, uint64_t now_ns);
/* Another superpeer does not answer. is_dead: its process is no more. */
void sh_shared_superpeer_gone(struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead);
void sh_shared_on_heard(void *arg, struct sh_msg_in *in);
/* The voters of the consensus that are not in the registry yet, as right after a cluster's start: bit
 * n is superpeer n. And whether the registry has superpeers and there is no such voter. */
uint64_t sh_shared_strangers(const struct sh_superpeer *superpeer);
bool sh_shared_is_whole(const struct sh_superpeer *superpeer);
bool sh_shared_leads(const struct sh_superpeer *superpeer);
/* The leader, as far as is known here; NONE: none is known. */
shoal_nid sh_shared_leader(const struct sh_superpeer *superpeer);

/* superpeer_grant.c */
/* Notes whether this superpeer leads: in each step, before leases are granted. */
void sh_shared_lease_step(struct sh_superpeer *superpeer, uint64_t now_ns);
/* Reports to the leader which nodes were heard here, and that this superpeer lives, unless a report is
 * under way. Not at the leader. */
void sh_shared_report(struct sh_superpeer *superpeer, uint64_t now_ns);
/* The same, if no report has been sent since then; nothing at the leader, or where none is known. */
void sh_shared_report_since(struct sh_superpeer *superpeer, uint64_t since_ns, uint64_t now_ns);
void sh_shared_report_cancel(struct sh_superpeer *superpeer);
/* Answers another superpeer's report, whose content the caller has taken. */
void sh_shared_report_answer(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                             struct sh_bytes nids, uint64_t now_ns);
/* For how long from now on this superpeer may answer for the ring; 0: not at all. In each step. */
uint64_t sh_shared_own_lease_ns(struct sh_superpeer *superpeer, uint64_t now_ns);
/* Whether a node may be declared failed. is_dead: for sure, so that it holds no lease. */
bool sh_shared_may_fail(const struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead);
/* A failure of the node has been proposed: the node gets no lease until that is decided. */
void sh_shared_doom(struct sh_superpeer *superpeer, shoal_nid nid);
bool sh_shared_is_doomed(const struct sh_superpeer *superpeer, shoal_nid nid);
/* A node has joined by a request that came at that time. */
void sh_shared_joined(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t asked_ns);
void sh_shared_dismissed(struct sh_superpeer *superpeer);

/* superpeer_shared.c: another superpeer is said to be at that address. */
void sh_shared_contact_set(struct sh_superpeer *superpeer, shoal_nid nid, struct sh_bytes address);
/* The same of all superpeers in a view. */
void sh_shared_contacts_take(struct sh_superpeer *superpeer, const struct sh_view *view);
SHOAL_NODISCARD enum shoal_err sh_shared_registry_make(const struct sh_superpeer *superpeer,
                                                       struct sh_registry **registry_out);
/* A registry as an image says. ECLUSTER, ECORRUPT, EVERSION, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_shared_registry_read(const struct sh_superpeer *superpeer,
                                                       struct sh_bytes image,
                                                       struct sh_registry **registry_out);
/* Puts a registry (taken) in the place of the one that there is. */
void sh_shared_registry_set(struct sh_superpeer *superpeer, struct sh_registry *registry);
bool sh_shared_is_other(const struct sh_superpeer *superpeer, shoal_nid nid);
/* Sends a message of the consensus or the ring to another superpeer. A message that can't be sent is
 * lost: consensus and ring repeat theirs. */
void sh_shared_send(struct sh_superpeer *superpeer, shoal_nid to, sh_msg_type type,
                    struct sh_bytes bytes);

#endif
