/* A node as the placement of backups sees it, and its failure domains.
 *
 * The list of all peers, sorted by node ID, is made from the view, the nodes' heartbeats and the owner's zones. It has the nodes
 * that failed or left, too, until they are forgotten: their places in copysets are theirs so long (copysets.h). Whether a node can back up, and its domains, must
 * come with the view: copysets depend on them.
 *
 * Threads: plain values. */
#ifndef SH_BACKUP_CANDIDATE_H
#define SH_BACKUP_CANDIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal/types.h"

#define SH_BACKUPS_MAX 4 /* of a zone */

/* What fails together, the smallest first: two replicas in one machine are worse than two in one rack, and these are worse than two
 * behind one switch. */
enum sh_domain { SH_DOMAIN_MACHINE, SH_DOMAIN_RACK, SH_DOMAIN_SWITCH, SH_DOMAINS };
#define SH_DOMAIN_BIT(domain) (1u << (domain))
#define SH_DOMAIN_ALL ((1u << SH_DOMAINS) - 1)

struct sh_candidate {
    shoal_nid nid;
    bool is_up;
    bool can_backup;
    uint32_t domains
        [SH_DOMAINS]; /* a number or hash of its machine, rack, switch; 0: not known, and like no other */
    /* What changes without a new view. It decides whether and how often a node is drawn, never which copysets there are. */
    uint64_t disk_bytes, disk_free_bytes; /* free: neither used nor promised to a zone */
    uint32_t zones, zones_max;            /* that it keeps, and may keep; zones_max 0: no bound */
    uint32_t firsts; /* zones of the owner whose first backup it is (sh_candidates_count_firsts) */
};

/* Where the node of that ID is in a list sorted by ID, or count. */
size_t sh_candidate_find(const struct sh_candidate *nodes, size_t count, shoal_nid nid);

/* The domains, as bits, that both nodes are in and that both name. */
unsigned sh_candidate_shared(const struct sh_candidate *a, const struct sh_candidate *b);

/* Sets each node's `firsts` from the first backups of all zones of the owner. Borrows both. IDs that are not in the list count for
 * nobody. */
void sh_candidates_count_firsts(struct sh_candidate *nodes, size_t count, const shoal_nid *firsts,
                                size_t zones);

#endif
