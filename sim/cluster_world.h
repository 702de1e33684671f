/* Whole clusters in simulated worlds: superpeers that share a registry on their disks and come and
 * go, peers with chunks, clients that create, read, write, remove, lock and move them, and programs
 * on libshoal that do the same, with names and barriers, under faults; and the checkers that watch.
 * docs/simulation.md.
 *
 * What must hold, whatever happens:
 *   - no chunk is served by two nodes, and no chunk ID is given out twice while its chunk is there;
 *   - a chunk is an atomic register: a read returns the last write that was acknowledged before it
 *     began or one that was begun before it ended, never one older than another read had returned;
 *   - what was acknowledged is there, unless the life of a node that had a copy of it is over: it died, or was
 *     declared failed, though it was only slow. Such a life is never up again;
 *   - writers' leases on a chunk never overlap, by the clocks of those who hold them;
 *   - no peer has a lease while the superpeers' leader may declare it failed, or has; none answers
 *     what it was asked after that; no two superpeers answer for one shard of the ring;
 *   - of one epoch there is one view; it has a node's instance once; epochs only rise;
 *   - records of zones: no version of one has two contents, none that was acknowledged is lost, and a
 *     life that does not own a zone changes nothing of it;
 *   - names, and the chunks that programs share, are linearizable; no shard of the metadata is ever
 *     forgotten, also when all superpeers die at once;
 *   - who is let go on at a barrier, is with as many as it is for, all of whom had signed on, and
 *     all are told the same; a member that was seen to wait and died has broken its round;
 *   - what programs are told of nodes has rising epochs, and is the same for all of them;
 *   - once the faults have ended, within SH_CLUSTER_SETTLE_NS of virtual time all nodes have the
 *     same view, every operation has ended, and every chunk is readable that was not lost; nobody
 *     dead is left at a barrier, and each program has been told of all nodes what became of them;
 *     no peer has a chunk that it does not serve, one that stands still, a migration that is not
 *     over, or a lock; and none has more of what it keeps for others than they can account for.
 *
 * A client's chunk is written by one slot of it, one write after the other. So its history is
 * checked as it happens, whatever its length, without a search. What programs do with a name or a
 * chunk is recorded, and searched for an order that explains it (linear.h). */
#ifndef SIM_CLUSTER_WORLD_H
#define SIM_CLUSTER_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SH_CLUSTER_SUPERPEERS_MAX 5
#define SH_CLUSTER_PEERS_MAX 20
#define SH_CLUSTER_CLIENTS_MAX 20
#define SH_CLUSTER_PROGRAMS_MAX 5
#define SH_CLUSTER_SPARES_MAX 2
#define SH_CLUSTER_SETTLE_NS UINT64_C(30000000000)

/* What a world is hard on: all nodes now and then; superpeers all the time; or migrations, of which
 * there are many, with everybody cut off or stopped for moments. */
enum sh_cluster_world_kind { SH_CLUSTER_MIXED, SH_CLUSTER_REGISTRY, SH_CLUSTER_MIGRATION };

struct sh_cluster_world_config {
    uint64_t seed;
    unsigned superpeers; /* 1 to 5 */
    unsigned peers;      /* 2 to 20 */
    unsigned clients;    /* 1 to 20 */
    unsigned programs;   /* 0 to 5: clients that use libshoal itself */
    unsigned spares;     /* 0 to 2: superpeers that programs let come and go */
    unsigned rounds;     /* of faults, each with a check in the end */
    uint64_t round_ns;   /* virtual time with faults in each */
    enum sh_cluster_world_kind kind;
    uint64_t move_gap_ns_max; /* from one migration that a client asks for to the next */
    uint64_t think_ns_max;    /* a client's pause between two operations */
    bool locks;               /* programs lock the chunks that they share */
    bool multis;              /* programs operate on many chunks at once */
    bool flips;        /* bits of superpeers' journals go bad while their processes are away */
    bool zones;        /* peers make zones and change their records */
    bool is_quiet;     /* no faults */
    bool is_still;     /* no chunk moves, and no node comes or goes but by faults */
    bool is_zookeeper; /* the registry is in the model of a ZooKeeper; no spares */
    FILE *story;       /* what clients did and what failed, line by line; NULL: not told */
    FILE *trace;       /* everything; NULL: not told */
};

struct sh_cluster_world_result {
    bool failed;
    char text[256];
    uint64_t virtual_ns;
    uint64_t trace_hash;
    uint64_t creates, puts, gets, removes, moves, locks; /* that succeeded */
    uint64_t names;                                      /* calls on names that succeeded */
    uint64_t recruits, dismissals;                       /* of superpeers */
    uint64_t drains;                                     /* peers drained, and stopped */
    uint64_t stops;                                      /* of nodes in order, without a drain */
    uint64_t words;    /* calls of programs on chunks that succeeded */
    uint64_t events;   /* of nodes that programs were told */
    uint64_t multis;   /* operations of programs on many chunks at once that succeeded */
    uint64_t leases;   /* locks that programs were granted, or that were extended */
    uint64_t zones;    /* updates of zones that were acknowledged, and questions answered */
    uint64_t barriers; /* members of barriers that were let go on */
    uint64_t lost;     /* chunks that were lost with the lives of their nodes */
    uint64_t crashes;
    uint64_t
        renewals; /* lives of peers that were declared failed, and after which the next began in the same process */
    uint64_t flips;    /* bits that went bad, and were noticed */
    uint64_t judged;   /* calls of programs, in histories that were checked */
    uint64_t unjudged; /* histories that were too long for a verdict */
};

/* A world as it is drawn from a seed; a number of nodes that is not 0 stays as it is given. */
struct sh_cluster_world_config sh_cluster_world_config_of(uint64_t seed, unsigned superpeers,
                                                          unsigned peers, unsigned clients);

/* Runs one world to its end, or until a checker fails. */
void sh_cluster_world_run(const struct sh_cluster_world_config *config,
                          struct sh_cluster_world_result *result_out);

#endif
