/* How the superpeers agree on the registry: by Raft among themselves (superpeer_raft.c), or in a
 * ZooKeeper (superpeer_zookeeper.c). The rest of a superpeer uses either through this table alone.
 *
 *   a command ---> propose ---> [consensus] ---> sh_shared_carry_out, sh_shared_answer
 *                                    '---------> sh_shared_registry_set: another superpeer's registry
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
    /* Whether all commands go through the leader, which so knows each command before it is carried out;
     * else every superpeer proposes its own. */
    bool is_led;
    void (*destroy)(struct sh_consensus *consensus);

    /* What lies in the superpeer's journal, or NULL: to be given to the journal when that is opened;
     * begun afterwards; and told after each step of the journal that more may be durable. */
    struct sh_journal_stream (*stream)(struct sh_consensus *consensus);
    void (*start)(struct sh_consensus *consensus, uint64_t now_ns);
    void (*synced)(struct sh_consensus *consensus, uint64_t now_ns);

    /* step does what is due, send sends the messages that came of it; both return how much they did. */
    unsigned (*step)(struct sh_consensus *consensus, uint64_t now_ns);
    unsigned (*send)(struct sh_consensus *consensus, uint64_t now_ns);
    uint64_t (*due_ns)(const struct sh_consensus *consensus, uint64_t now_ns);

    /* Takes a command (borrowed): at the leader, or without is_led at any superpeer. The command may be
     * lost. is_verdict: the leader should not look at the nodes again before this command has been
     * carried out or lost, which is_settled says. */
    void (*propose)(struct sh_consensus *consensus, struct sh_bytes command, bool is_verdict);
    bool (*is_settled)(const struct sh_consensus *consensus);

    bool (*leads)(const struct sh_consensus *consensus);
    /* The leader as far as is known; 0: none. And, at the leader, its term: a later leader's is higher. */
    uint16_t (*leader)(const struct sh_consensus *consensus);
    uint64_t (*term)(const struct sh_consensus *consensus);
    /* When this superpeer surely was the leader last, with a registry that has all that was decided
     * before it led; 0: it does not lead, or that is not known yet. No other superpeer leads before
     * failure_ns, or with is_led an election's time, has passed since then. An answer that was read
     * late, as after the process was stopped, makes the time no later. */
    uint64_t (*led_ns)(const struct sh_consensus *consensus, uint64_t now_ns);
    /* Whether the registry here lacks no more than what was decided lately. */
    bool (*is_current)(const struct sh_consensus *consensus, uint64_t now_ns);

    /* heard_ns: when another superpeer was heard last; 0: never. heard, or NULL: a superpeer has sent a
     * report, which asks for leases. gone, or NULL: the superpeer's process has ended for sure. */
    uint64_t (*heard_ns)(const struct sh_consensus *consensus, shoal_nid nid);
    void (*heard)(struct sh_consensus *consensus, shoal_nid nid, uint64_t now_ns);
    void (*gone)(struct sh_consensus *consensus, shoal_nid nid, uint64_t now_ns);

    /* members: the voters, in the registry or not; bit n is superpeer n. lead, or NULL: makes the voters
     * those superpeers that the registry names, at the end of each look of the leader. needs: whether
     * the vote of a superpeer is still needed, even if the registry says that it has left. */
    uint64_t (*members)(const struct sh_consensus *consensus);
    void (*lead)(struct sh_consensus *consensus);
    bool (*needs)(const struct sh_consensus *consensus, shoal_nid nid);
    /* The latest life of a superpeer (arcs.h), or NULL. */
    void (*life_set)(struct sh_consensus *consensus, shoal_nid nid, uint64_t life);

    /* Once in each heartbeat, or NULL. */
    void (*beat)(struct sh_consensus *consensus, uint64_t now_ns);
    /* Writes the consensus's part of a report: kind, role, leader and its counts. */
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
