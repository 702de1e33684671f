/* The traits of a peer: what it says of itself when it joins, for the placement of replicas
 * (backup/candidate.h). They come with the membership view, so that all owners with the same view know the
 * same. A superpeer has none: it keeps no replicas.
 *
 * Failure domains are named by the operator (options machine, rack, network_switch). Only equality counts,
 * and a name is the same thing wherever it is said: two racks of one name are one rack.
 *
 * A peer whose own chunks are in a log on its own disk brings them back when it is started again: clients wait for it. Those of a peer that has
 * replicas at others are brought back by these.
 *
 * Encoded: u8 flags (1: keeps replicas; 2, 4, 8: its machine, rack, switch is known, and its name follows; 16: keeps its own chunks; 32: others have replicas of
 * them),
 * the names that are known, each a text of 1 to 31 bytes. A name that is not known takes no byte.
 */
#ifndef SH_CLUSTER_TRAITS_H
#define SH_CLUSTER_TRAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

/* Nodes in one such domain fail together. The smallest is first: two replicas in one machine are worse than
 * two in one rack, and these are worse than two behind one switch. Part of the wire format. */
enum sh_domain { SH_DOMAIN_MACHINE, SH_DOMAIN_RACK, SH_DOMAIN_SWITCH, SH_DOMAINS };

#define SH_DOMAIN_NAME_MAX 32 /* with the NUL */
#define SH_TRAITS_BYTES_MAX (1 + SH_DOMAINS * (2 + SH_DOMAIN_NAME_MAX - 1))

struct sh_traits {
    bool keeps_replicas; /* for other peers, on its disk */
    bool keeps_chunks;   /* its own, in its own log (replicas_at self) */
    bool is_replicated;  /* its chunks are in other peers' logs (replicas_at peers) */
    char domains[SH_DOMAINS][SH_DOMAIN_NAME_MAX]; /* by enum sh_domain; empty: not known */
};

/* Whether each name is one word (base/bytes.h), or empty. */
bool sh_traits_are_valid(const struct sh_traits *traits);

bool sh_traits_are_equal(const struct sh_traits *a, const struct sh_traits *b);

/* Encodes exactly sh_traits_size bytes. */
size_t sh_traits_size(const struct sh_traits *traits);
void sh_traits_put(struct sh_writer *w, const struct sh_traits *traits);
/* EPROTO: what no shoal node writes (an unknown flag, a name that is empty, too long or no word). */
SHOAL_NODISCARD enum shoal_err sh_traits_get(struct sh_reader *r, struct sh_traits *traits_out);

/* Equal traits have the same, others another one. */
uint64_t sh_traits_digest(const struct sh_traits *traits, uint64_t seed);

#endif
