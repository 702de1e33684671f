/* Chunks that are not with their creator: what a superpeer decides about migrations, and what it
 * keeps of them. Part of the registry's state machine (registry.h), without input or output.
 * docs/migration.md.
 *
 * A migration goes in batches. Each has a source, a target, and a sequence number that rises by
 * source; the superpeer of the chunks' creator decides once for each whether it is committed or
 * aborted, and repeats its decision to whoever asks again. It remembers the last one of each
 * source, since a source has one batch under way at a time.
 *
 * A superpeer that has lost its memory has another incarnation, and refuses to commit what was
 * begun under the one before: source and target settle that between them.
 *
 * A shared registry has all of it in its log and its image (superpeer_commands.c): decisions are
 * commands, which all superpeers carry out in the same order, so any of them may be asked, and
 * nothing is forgotten. Its incarnation is the cluster's, given by the first node that joined.
 *
 * Memory: a range of the tree for each run of IDs that are together elsewhere (8 to 16 bytes), at
 * most SH_OWNERS_RANGES_MAX; 16 bytes for each source, 1 MiB at most.
 *
 * Threads: as the registry's. */
#ifndef SH_CLUSTER_OWNERS_H
#define SH_CLUSTER_OWNERS_H

#include "cluster/registry.h"

#define SH_OWNERS_RANGES_MAX (1u << 20)
#define SH_OWNERS_RUNS_MAX 256 /* of one batch */

/* Chunk IDs first to last, both included. */
struct sh_owner_run {
    shoal_cid first, last;
};

struct sh_owners_batch {
    shoal_nid from, to;
    uint64_t incarnation; /* of the superpeer, as the source was told it */
    uint64_t sequence;    /* not 0 */
    /* In rising order, all of one creator; at most SH_OWNERS_RUNS_MAX, at least 1; borrowed. */
    const struct sh_owner_run *runs;
    size_t count;
};

/* This superpeer's incarnation: drawn at its start, never 0; a shared registry's is 0 until a node
 * has joined. */
uint64_t sh_owners_incarnation(const struct sh_registry *registry);

/* Gives the batch's chunks to its target, all or none. What cannot be committed is aborted: the
 * same batch is never committed later. ECANCELED: it was aborted, or is older than the source's
 * last one. ENOTOWNER: the source does not own all of it. ENONODE: the target is not up. ELIMIT:
 * too many ranges. Nothing was decided: EDIFFERS, another incarnation; EBUSY, it is not known yet
 * what the nodes hold; EROLE, another arc; EPROTO. */
SHOAL_NODISCARD enum shoal_err sh_owners_commit(struct sh_registry *registry,
                                                const struct sh_owners_batch *batch);

/* What became of a batch, of which runs[0].first is looked at only; one that was not committed yet
 * is aborted by the question. EBUSY: that is not known, or was decided by an incarnation before;
 * then the source alone can tell. EROLE, EPROTO. */
SHOAL_NODISCARD enum shoal_err sh_owners_resolve(struct sh_registry *registry,
                                                 const struct sh_owners_batch *batch,
                                                 bool *committed_out);

/* What a node says that it holds (value: its own ID) or gave away (value: to whom), of this arc.
 * Used after a restart, since the tree is not stored. EPROTO, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_owners_claim(struct sh_registry *registry, shoal_nid nid,
                                               const struct sh_range *range);

/* The range of IDs with one owner, whatever has become of him, that holds `from`, or else the next
 * one; false: there is none. */
bool sh_owners_next(const struct sh_registry *registry, shoal_cid from, struct sh_range *range_out);

/* True once every node that is up has said what it holds, or none had to. */
bool sh_owners_known(const struct sh_registry *registry);
/* Notes that this is so; who comes later is asked, but nothing waits for him. */
void sh_owners_settle(struct sh_registry *registry);
/* A node that is up and is still to be asked, from `after` on in turn; NONE: there is none now. */
shoal_nid sh_owners_to_ask(const struct sh_registry *registry, shoal_nid after);
/* The node has said all. */
void sh_owners_asked(struct sh_registry *registry, shoal_nid nid);

/* For the registry. A node leaves: what it holds in this arc is gone. */
void sh_owners_leave(struct sh_registry *registry, shoal_nid nid);
/* Gives a node what nobody has of its ID space. ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_owners_give(struct sh_registry *registry, shoal_nid nid);
/* Whether chunks of a creator are still somewhere, so that its ID can't be another node's. */
bool sh_owners_survive(const struct sh_registry *registry, shoal_nid creator);
/* A node is new to the cluster, and so holds nothing of others. */
void sh_owners_new(struct sh_registry *registry, shoal_nid nid);
/* The memory was lost: everybody has to be asked. */
void sh_owners_forget(struct sh_registry *registry);
/* A shared registry has no incarnation yet: it gets one from that number. */
void sh_owners_begin(struct sh_registry *registry, uint64_t number);

/* What a shared registry's image has behind the nodes: u64 incarnation, u32 sources, u32 ranges,
 * each source: u16 node ID, u64 sequence << 1 | whether it was committed; each range, ascending:
 * u64 first, u64 last chunk ID, u16 owner. */
size_t sh_owners_image_size(const struct sh_registry *registry);
void sh_owners_image_put(struct sh_writer *w, const struct sh_registry *registry);
/* Into a fresh registry. ECORRUPT, ELIMIT, ENOMEM: it is of no use then. */
SHOAL_NODISCARD enum shoal_err sh_owners_image_get(struct sh_registry *registry,
                                                   struct sh_reader *r);

#endif
