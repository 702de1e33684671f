/* A node as the placement of backups sees it, and its failure domains.
 *
 * The list of all peers, sorted by node ID, is made from the view, the nodes' heartbeats and the owner's zones. It has the nodes
 * that failed or left, too, until they are forgotten: their places in copysets are theirs so long (copysets.h). Whether a node can back up, and its domains,
 * come with the view (sh_candidates_from_view), since copysets depend on them: two owners with the same view have the same sets.
 *
 * Threads: plain values. */
#ifndef SH_BACKUP_CANDIDATE_H
#define SH_BACKUP_CANDIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/view.h"
#include "shoal/types.h"

#define SH_BACKUPS_MAX 4 /* of a zone */

/* Of a failure domain (cluster/traits.h). */
#define SH_DOMAIN_BIT(domain) (1u << (domain))
#define SH_DOMAIN_ALL ((1u << SH_DOMAINS) - 1)

struct sh_candidate {
    shoal_nid nid;
    bool is_up;
    bool is_away; /* the node was stopped in order, and is to be back soon */
    bool can_backup;
    uint32_t domains
        [SH_DOMAINS]; /* a number or hash of its machine, rack, switch; 0: not known, and like no other */
    /* What changes without a new view. It decides whether and how often a node is drawn, never which copysets there are. */
    uint64_t disk_bytes, disk_free_bytes; /* free: neither used nor promised to a zone */
    uint32_t zones, zones_max;            /* that it keeps, and may keep; zones_max 0: no bound */
    uint32_t firsts; /* zones of the owner whose first backup it is (sh_candidates_count_firsts) */
};

/* Writes the peers of a view to nodes_out, by ascending ID: at most room of them, where the number of the view's nodes is enough. Sets what
 * comes with the view (nid, is_up, is_away, can_backup, domains), and zeros the rest, which is the caller's to set. Returns how many were written. Borrows view.
 * domains are hashes of 32 bits: among 1,000 machines two get the same with a probability of 0.01 %, and would count as one machine. */
size_t sh_candidates_from_view(const struct sh_view *view, struct sh_candidate *nodes_out,
                               size_t room);

/* Where the node of that ID is in a list sorted by ID, or count. */
size_t sh_candidate_find(const struct sh_candidate *nodes, size_t count, shoal_nid nid);

/* The domains, as bits, that both nodes are in and that both name. */
unsigned sh_candidate_shared(const struct sh_candidate *a, const struct sh_candidate *b);

/* Sets each node's `firsts` from the first backups of all zones of the owner. Borrows both. IDs that are not in the list count for
 * nobody. */
void sh_candidates_count_firsts(struct sh_candidate *nodes, size_t count, const shoal_nid *firsts,
                                size_t zones);

#endif
