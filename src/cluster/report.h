/* What a superpeer says of itself and of the metadata that it keeps, to whoever asks: for people
 * (`shoal metadata`), never to act on, so one that is cut off from the others answers too, and says
 * that it is.
 *
 * Encoded (little-endian, no padding):
 *   0   u8   format (5)
 *   1   u8   kind
 *   2   u8   flags: 1 current, 2 recovering
 *   3   u8   role
 *   4   u16  the superpeer's ID
 *   6   u16  the leader's ID; 0: none is known
 *   8   the numbers of struct sh_report in its order, each u64
 *       u16  number of shards: 0 or SH_SHARDS; each: u8 owner, u8 flags (1 its whole state is
 *            here, 2 known, 4 more have moved than were counted, 8 old copies are being looked for),
 *            u8 origin, u8 the copy's superpeer, and the numbers of struct sh_report_shard in its
 *            order, each u64
 *
 * Memory: 9 KB; 8 KB encoded. Threads: plain values. */
#ifndef SH_CLUSTER_REPORT_H
#define SH_CLUSTER_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "ring/arcs.h"
#include "shoal/err.h"
#include "shoal/types.h"

/* Where the registry is. */
enum sh_report_kind {
    SH_REPORT_MEMORY = 1, /* the superpeers, by Raft, in memory only */
    SH_REPORT_RAFT,       /* on the superpeers' disks */
    SH_REPORT_ZOOKEEPER,
};

/* Those of raft; in ZooKeeper, who decides who is silent is the leader. */
enum sh_report_role { SH_REPORT_FOLLOWER, SH_REPORT_CANDIDATE, SH_REPORT_LEADER, SH_REPORT_ROLES };

/* One shard of the ring. What is behind `replicas` is 0 where its state is not here. */
struct sh_report_shard {
    uint8_t owner; /* 0: nobody */
    bool is_here;
    bool is_known; /* not so: after a loss the nodes are being asked what they have */
    bool has_more; /* more ranges have moved than `moved` */
    /* It has no replica, and this superpeer looks for an old copy, for which it waits for `missing`. */
    bool is_searching;
    uint8_t origin; /* what its state began with, and the rest of that: struct sh_shard (arcs.h) */
    uint8_t copy_nid;
    uint64_t version;
    uint64_t replicas; /* bit n: superpeer n */
    uint64_t applied;  /* updates that all replicas have */
    uint64_t ranges;   /* of chunk IDs with one owner, of creators whose chunks have moved */
    uint64_t moved;    /* those of them that are not with their creators */
    uint64_t sources;  /* of migrations */
    uint64_t names;
    /* With fewer backups than wanted; that are being brought back; with no backup left. */
    uint64_t zones, zones_short, zones_recovering, zones_lost;
    uint64_t bytes; /* of memory that these take */
    uint64_t origin_version, copy_epoch, copy_sequence;
    uint64_t missing; /* superpeers that have not said yet which old copy they have */
};

#define SH_REPORT_SHARD_NUMBERS 16

struct sh_report {
    enum sh_report_kind kind;
    bool is_current;    /* what it knows is up to date: it hears a majority */
    bool is_recovering; /* it neither votes nor counts: it may have forgotten what it promised */
    enum sh_report_role role;
    shoal_nid nid, leader;
    /* 0 to raft_last: of the registry. */
    uint64_t epoch;
    uint64_t peers_up, peers_left, peers_failed, peers_away;
    uint64_t superpeers_up, superpeers_failed;
    uint64_t registry_bytes; /* of memory */
    uint64_t term, commit, applied, raft_last;
    uint64_t voters, learners; /* bit n: superpeer n */
    uint64_t resident_bytes;   /* of the whole process */
    uint64_t lookups;          /* that it answered, since it was started */
    uint64_t lookups_nobody;   /* those of them that nobody, or a failed node, has the chunk */
    uint64_t present;          /* superpeers that take part in the ring now */
    /* Its journal's work since it was started (struct sh_journal_counts). */
    uint64_t journal_batches, journal_bytes;
    uint64_t journal_snapshots, journal_snapshot_bytes, journal_saving_ns;
    unsigned shard_count; /* SH_SHARDS; 0: with ZooKeeper, before it has its ID */
    struct sh_report_shard shards[SH_SHARDS];
};

#define SH_REPORT_NUMBERS 23
#define SH_REPORT_BYTES_MAX                                                                        \
    (10 + 8 * SH_REPORT_NUMBERS + SH_SHARDS * (4 + 8 * SH_REPORT_SHARD_NUMBERS))

/* Whether all of a shard's replicas are away, so that nothing is answered about it until one is
 * back. */
static inline bool sh_report_waits(const struct sh_report *report, unsigned shard)
{
    uint64_t replicas = report->shards[shard].replicas;
    return replicas && !(replicas & report->present);
}

/* Encodes a good one: exactly sh_report_size bytes. */
size_t sh_report_size(const struct sh_report *report);
void sh_report_put(struct sh_writer *w, const struct sh_report *report);
/* Decodes a whole answer. EPROTO (malformed, or what no superpeer says): *report_out is as it was.
 * EVERSION: of another format. */
SHOAL_NODISCARD enum shoal_err sh_report_get(struct sh_reader *r, struct sh_report *report_out);

#endif
