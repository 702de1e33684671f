/* How the superpeers agree on the registry: by Raft among themselves (superpeer_raft.c), or in a
 * ZooKeeper (superpeer_zookeeper.c). The rest of a superpeer uses either through this table alone.
 *
 *   a command ---> propose ---> [consensus] ---> sh_shared_carry_out, sh_shared_answer
 *                                    '---------> sh_shared_registry_set: what others made of it
 *
 * A leader is a superpeer that declares failures and grants leases. At any time at most one of them
 * has been confirmed within failure_ns (led_ns).
 *
 * Threads: the superpeer's step. Nothing here blocks but destroy. */
#ifndef SH_SUPERPEER_CONSENSUS_H
#define SH_SUPERPEER_CONSENSUS_H

#include "cluster/report.h"
#include "journal/journal.h"
#include "superpeer/superpeer.h"

struct sh_consensus;

/* Those marked "or NULL" have nothing to do in an implementation that lacks them. */
struct sh_consensus_ops {
    /* Whether commands go by way of the leader, who so knows of each before it is carried out; else
     * every superpeer proposes its own. */
    bool is_led;
    void (*destroy)(struct sh_consensus *consensus);

    /* What lies in the superpeer's journal, or NULL: to be given to the journal when that is opened;
     * begun afterwards; and told after each step of the journal that more may be durable. */
    struct sh_journal_stream (*stream)(struct sh_consensus *consensus);
    void (*start)(struct sh_consensus *consensus, uint64_t now_ns);
    void (*synced)(struct sh_consensus *consensus, uint64_t now_ns);

    /* Carries everything on, and sends what came of that; both return how much was done. */
    unsigned (*step)(struct sh_consensus *consensus, uint64_t now_ns);
    unsigned (*send)(struct sh_consensus *consensus, uint64_t now_ns);
    uint64_t (*due_ns)(const struct sh_consensus *consensus, uint64_t now_ns);

    /* Takes a command (borrowed): at the leader, or if it is not is_led at any superpeer. Whether it
     * is carried out, time will tell. is_verdict: the leader should not look at the nodes again
     * before this has been carried out or lost, which is_settled says. */
    void (*propose)(struct sh_consensus *consensus, struct sh_bytes command, bool is_verdict);
    bool (*is_settled)(const struct sh_consensus *consensus);

    bool (*leads)(const struct sh_consensus *consensus);
    /* The superpeer that leads as far as is known; 0: none. And, at the leader, which leadership this
     * is: a later one has a higher term. */
    uint16_t (*leader)(const struct sh_consensus *consensus);
    uint64_t (*term)(const struct sh_consensus *consensus);
    /* When this superpeer surely was the leader last, with a registry that has all that was decided
     * before it led; 0: it does not lead, or that is not known yet. Nobody else leads before that
     * time and failure_ns, or (is_led) an election's time. An answer that was read late, as after a
     * stop, makes it no later. */
    uint64_t (*led_ns)(const struct sh_consensus *consensus, uint64_t now_ns);
    /* Whether the registry here lacks no more than what was decided lately. */
    bool (*is_current)(const struct sh_consensus *consensus, uint64_t now_ns);

    /* When another superpeer was heard last; 0: never. Leases are asked for by a message, of which
     * heard (or NULL) is told. gone, or NULL: its process is no more, for sure. */
    uint64_t (*heard_ns)(const struct sh_consensus *consensus, shoal_nid nid);
    void (*heard)(struct sh_consensus *consensus, shoal_nid nid, uint64_t now_ns);
    void (*gone)(struct sh_consensus *consensus, shoal_nid nid, uint64_t now_ns);

    /* Who decides besides the registry's superpeers: bit n is superpeer n. lead, or NULL: makes them
     * those whom the registry names, at the end of each look of the leader. needs: whether a
     * superpeer's part is not over even if the registry says that it has left. */
    uint64_t (*members)(const struct sh_consensus *consensus);
    void (*lead)(struct sh_consensus *consensus);
    bool (*needs)(const struct sh_consensus *consensus, shoal_nid nid);
    /* The latest life of a superpeer (arcs.h), or NULL. */
    void (*life_set)(struct sh_consensus *consensus, shoal_nid nid, uint64_t life);

    /* Once in each heartbeat, or NULL. */
    void (*beat)(struct sh_consensus *consensus, uint64_t now_ns);
    /* Writes what it has of itself: kind, role, leader and whatever it counts. */
    void (*report)(const struct sh_consensus *consensus, struct sh_report *report);
};

/* Implementations begin with this. */
struct sh_consensus {
    const struct sh_consensus_ops *ops;
};

/* Both are kept in superpeer->shared at once, so that it can be closed after an error. The errors are
 * those of sh_superpeer_create. */
SHOAL_NODISCARD enum shoal_err sh_consensus_raft_open(struct sh_superpeer *superpeer,
                                                      const struct sh_superpeer_config *config,
                                                      uint64_t now_ns);
SHOAL_NODISCARD enum shoal_err sh_consensus_zookeeper_open(struct sh_superpeer *superpeer,
                                                           const struct sh_superpeer_config *config,
                                                           uint64_t now_ns);

#endif
