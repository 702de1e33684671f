/* Copysets: the few sets of nodes that zones may have as backups, so that few losses of several nodes at once lose a zone (Cidon et
 * al., Copysets, ATC 2013; DXRAM thesis 6 X).
 *
 * Every owner computes the sets by itself, from the nodes of one view and the cluster's seed, and all get the same: nothing in it
 * depends on how the owner came to that view. No history is needed, since node IDs are given out in the order of joining, and so tell who
 * joined together. With three replicas, the IDs from 64 on are laid out in rows of three:
 *
 *            column 0   1   2
 *   row 0          64  65  66     class 0: the rows       {64 65 66} {67 68 69} {70 71 72}
 *   row 1          67  68  69     class 1: the diagonals  {64 68 72} {67 71 75} ...
 *   row 2          70  71  72     class 2: those that go down two rows a column: {64 71 78} ...
 *
 * - One class gives each node the least scatter width, replicas - 1. Each further one adds replicas - 1 nodes, and no two nodes are
 *   in two groups together. The paper draws permutations in the place of classes, which change when a node joins.
 * - Three nodes that join are the next row, a new set. Until the row is complete its nodes wait: they are only drawn. The further
 *   classes do not wait: a node that is not there yet is replaced.
 * - A member that is not up, cannot back up or was forgotten is replaced by a draw: a ring of hashes has each node at several points,
 *   and the set's own hash is where the search begins (consistent hashing). So only sets change that had the node, and
 *   they get it back when it is up again.
 * - Members of a row that share a machine, rack or switch more often than their number makes necessary (three racks: not at all; two:
 *   two of three) are divided among several sets, each completed by draws.
 *
 * Arithmetic: N nodes in P classes are at least P * N / replicas sets, at most P * N where every row is in one rack. 8 bytes a set
 * and 64 a node: 72 KB for 1000 nodes.
 * Threads: plain values; nothing is allocated. */
#ifndef SH_BACKUP_COPYSETS_H
#define SH_BACKUP_COPYSETS_H

#include "backup/candidate.h"

/* The same on every node of the cluster. */
struct sh_copysets_config {
    uint64_t seed;
    uint8_t replicas; /* 2 to SH_BACKUPS_MAX */
    uint16_t
        scatter; /* with how many others a node shares sets; rounded up to a multiple of replicas - 1, 0: that */
    unsigned domains; /* which ones sets avoid: SH_DOMAIN_BIT */
};

struct sh_copyset {
    uint16_t members[SH_BACKUPS_MAX]; /* indices of nodes, `replicas` of them */
};

struct sh_copysets {
    struct sh_copysets_config config;
    size_t count;
    struct sh_copyset *sets;
    uint64_t *
        ring; /* points of nodes that are up and can back up, sorted: hash (48 bits), index of the node (16) */
    size_t points;
    size_t nodes;             /* of how many it was made */
    uint8_t room[SH_DOMAINS]; /* how many members may share one; SH_BACKUPS_MAX: all */
};

/* How many sets each node is in where none is replaced: the paper's number of permutations. */
unsigned sh_copysets_classes(const struct sh_copysets_config *config);

/* How much memory so many nodes (up to 65,535) take. */
size_t sh_copysets_bytes(const struct sh_copysets_config *config, size_t nodes);

/* Computes the sets of a list of nodes, sorted by ID, whose disks and firsts do not matter. None if there are fewer nodes that are
 * up and can back up than a set has members. memory: sh_copysets_bytes, aligned to 8; kept by *sets_out. O(N * classes + N log N):
 * once a view. */
void sh_copysets_compute(const struct sh_copysets_config *config, const struct sh_candidate *nodes,
                         size_t count, void *memory, struct sh_copysets *sets_out);

/* Draws a node to complete members, `members_count` of the nodes' indices: the same for the same key, members and `may` on every owner. It is one that does not share
 * more than needed: no switch, or else no rack, or else no machine. may(arg, index): whether that node can be drawn at
 * all; NULL: each. SIZE_MAX: no node can. */
size_t sh_copysets_draw(const struct sh_copysets *sets, const struct sh_candidate *nodes,
                        uint64_t key, const uint16_t *members, size_t members_count,
                        bool (*may)(void *arg, size_t index), void *arg);

#endif
