/* Which nodes keep the replicas of a zone.
 *
 *   nodes, their disks ──┐
 *   zone's backups so far ├──► sh_placement_choose ──► backups in order, how many are missing, and why
 *   copysets or none ────┘
 *
 * One function places a new zone, completes one that has too few backups, and replaces a backup that is gone: the ones that stay are
 * given to it, and it adds what is missing. It decides by nothing but its arguments.
 *
 * Never chosen: the owner, a node that is there already, one that is not up, keeps no backups, or whose disk is full: it would have less
 * than its reserve beside the replica, or keeps as many zones as it may. Of the others, each backup in turn is one that
 *
 *   1. shares a machine with the fewest of the owner and the backups before it,
 *   2. then a rack with the fewest backups before it,
 *   3. then a switch,
 *   4. for the first backup, with SH_PLACEMENT_DISJOINT: is the first backup of the fewest zones of the owner,
 *
 * and among these it is drawn by the free bytes of its disk, so that all disks fill at the same rate of what they have left. Racks and switches so
 * are left out of account in that order where there are too few. The owner's rack and switch count where one backup is wanted: with more,
 * a copy is outside of them anyway.
 *
 * With copysets, a set and its first backup are drawn in the same way, from the sets that do not have the owner; the emptiness of a set is that
 * of its fullest member. In a set that has the owner, or a node which can't be chosen now, that one is replaced by a
 * seeded draw (copysets.h), but only when there is no better set. A zone that lost a backup gets the missing member of a set with those that are left, and
 * without such a set a draw seeded by these, so that other owners with the same backups choose the same.
 *
 * The order is the zone's: the first backup is asked first when the owner is gone. Backups that stay keep their order, new ones come
 * behind them.
 *
 * Arithmetic: two passes over the nodes, or sets, a backup; docs/placement.md has the times.
 * Threads: plain values; nothing is allocated. */
#ifndef SH_BACKUP_PLACEMENT_H
#define SH_BACKUP_PLACEMENT_H

#include "backup/candidate.h"
#include "backup/copysets.h"
#include "env/env.h"

#define SH_PLACEMENT_DISJOINT 1u /* first backups of an owner's zones on different nodes */

struct sh_placement_request {
    const struct sh_candidate *nodes; /* sorted by ID; borrowed */
    size_t count;
    const struct sh_copysets
        *copysets; /* of these nodes, for `wanted` replicas; NULL: each node for itself. Borrowed */
    shoal_nid owner; /* one of the nodes, or not */
    uint8_t wanted;  /* 1 to SH_BACKUPS_MAX */
    unsigned flags;
    unsigned domains;        /* which ones count: SH_DOMAIN_BIT */
    uint64_t replica_bytes;  /* what a replica may take of the disk */
    uint8_t reserve_percent; /* of the disk, which no zone gets; below 100 */
    struct sh_random random;
    const shoal_nid *kept; /* backups that stay, in order, different ones; borrowed */
    uint8_t kept_count;    /* up to `wanted` */
    bool
        first_is_gone; /* the one before them: the one of them that is first for the fewest zones becomes it */
};

struct sh_placement {
    uint8_t count; /* kept ones, too */
    uint8_t missing;
    bool is_copyset; /* all are one of the sets */
    uint8_t
        shared; /* domains that two backups, or a backup and the owner, have in common; of those that count */
    shoal_nid backups[SH_BACKUPS_MAX];
    /* Why there are not more: of the nodes that are neither the owner nor a backup now. Each is counted once. */
    uint32_t others, gone, incapable, full;
};

/* Never fails: where there are too few nodes it says how many are missing. */
void sh_placement_choose(const struct sh_placement_request *request,
                         struct sh_placement *placement_out);

/* Whether a node has no room for a replica of so many bytes beside its reserve, or keeps as many zones as it may. */
bool sh_placement_is_full(const struct sh_candidate *node, uint64_t replica_bytes,
                          uint8_t reserve_percent);

/* How many backups a zone of the owner can have at most as long as no node joins, or returns: what asks for more can't be had. A full disk
 * counts, since it may be emptied. */
size_t sh_placement_possible(const struct sh_candidate *nodes, size_t count, shoal_nid owner);

/* Writes a sentence for people: "2 of 3 backups: of 5 other nodes 1 is not up, 1 keeps no backups, 1 has no room". Cut to room bytes, with the
 * final zero. room: at least 1. */
void sh_placement_explain(const struct sh_placement *placement, char *text, size_t room);

#endif
