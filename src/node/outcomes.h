/* Results of requests that were run on a chunk by the node that had it before (msg/once.h): they
 * move with the chunk, so that a client whose answer was lost learns from the new node what came of
 * it, and nothing is done twice. RIFL (Lee and others, SOSP 2015) §4.3, where they are found by the
 * object as well.
 *
 * A result is named by the client, the node that ran the request, and the number that the client
 * gave it for that node. It is kept for SH_ONCE_KEEP_NS, twice as long as a client repeats.
 *
 * Memory: 104 bytes each, and 320 KiB for the tables; at most SH_OUTCOMES_MAX.
 *
 * Threads: the transport step's only. */
#ifndef SH_NODE_OUTCOMES_H
#define SH_NODE_OUTCOMES_H

#include "base/bytes.h"
#include "msg/once.h"

#define SH_OUTCOMES_MAX (1u << 16)

struct sh_outcome {
    uint64_t client, number;
    shoal_nid nid; /* who ran it */
    enum shoal_err err;
    uint64_t value;
    uint64_t cid;
    bool is_with_chunk; /* it counts where the chunk is; not in its bytes */
};

/* u64 client, u64 number, u16 node ID, u16 error, u64 value, u64 chunk ID */
#define SH_OUTCOME_BYTES 36
void sh_outcome_put(struct sh_writer *w, const struct sh_outcome *outcome);
/* False: no error of ours. The reader says whether there was enough. */
bool sh_outcome_get(struct sh_reader *r, struct sh_outcome *outcome_out);

struct sh_outcomes;

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_outcomes_create(struct sh_outcomes **outcomes_out);
void sh_outcomes_destroy(struct sh_outcomes *outcomes);

/* Forgets what is too old, and says for how many more there is room. */
uint32_t sh_outcomes_room(struct sh_outcomes *outcomes, uint64_t now_ns);
/* Keeps a result; one that is there already stays, and counts anywhere if this one does. ELIMIT, ENOMEM; neither if it is there. */
SHOAL_NODISCARD enum shoal_err sh_outcomes_add(struct sh_outcomes *outcomes,
                                               const struct sh_outcome *outcome, uint64_t now_ns);
/* A result that came with a chunk, of a batch of which nothing comes, is none any more; but one that is known otherwise stays. */
void sh_outcomes_void(struct sh_outcomes *outcomes, const struct sh_outcome *outcome);
/* The result of that name, or NULL. */
const struct sh_outcome *sh_outcomes_find(const struct sh_outcomes *outcomes, uint64_t client,
                                          shoal_nid nid, uint64_t number);
/* Calls each for those of the chunks first to last. It must not change the outcomes. Looks at no others, but for a
 * few, and at one list for each 64 IDs. */
void sh_outcomes_each(const struct sh_outcomes *outcomes, uint64_t first, uint64_t last,
                      void (*each)(void *arg, const struct sh_outcome *outcome), void *arg);

#endif
