/* What a store is made of: how large its chunks are, what the bytes beyond them are for, how its
 * IDs lie. A walk over all groups in bounded steps, while everybody else goes on.
 *
 *   used = payload + table + pointers + headers + rounding + room + free + other
 *
 * exactly while no thread is at work; else each figure is of some moment of the walk. */
#ifndef SH_STORE_ANALYZE_H
#define SH_STORE_ANALYZE_H

#include "base/bytes.h"
#include "store/store.h"

/* Sizes that are counted one by one: 0 to 255 bytes. */
#define SH_ANALYZE_EXACT 256
/* Powers of two: of size 0; 1; 2 to 3; 4 to 7; ...; 2^30. */
#define SH_ANALYZE_POWERS 32
/* Longest runs that are named. */
#define SH_ANALYZE_RUNS 8

struct sh_size_class {
    uint64_t chunks;
    uint64_t payload_bytes;
};

struct sh_id_run {
    shoal_cid first;
    uint64_t count; /* 0: there is no such run */
};

struct sh_analysis {
    uint64_t chunks;
    uint64_t payload_bytes;
    uint64_t packed;   /* chunks in a group's block */
    uint64_t longs;    /* chunks with a block of their own */
    uint64_t pinned;   /* of these */
    uint64_t foreign;  /* chunks of other creators */
    uint64_t reserved; /* IDs that are handed out, and have no chunk yet */
    uint64_t groups;   /* groups of 16 IDs with a chunk */
    /* Where memory goes beyond the payload: */
    uint64_t table_bytes;    /* groups, and the bitmap of free IDs */
    uint64_t pointer_bytes;  /* long chunks' places in their groups */
    uint64_t header_bytes;   /* long chunks' sizes and pins, medium ones' bytes */
    uint64_t rounding_bytes; /* of blocks to the sizes that the allocator has */
    uint64_t room_bytes;     /* in groups' blocks, for chunks that are yet to be created */
    uint64_t free_bytes;     /* touched and in no block: between blocks, and idle pages */
    uint64_t other_bytes;    /* allocator's and store's own structures */
    uint64_t used_bytes;     /* all, with the payload */
    uint64_t bytes_max;
    /* Own IDs; runs of chunks are those of all creators. */
    uint64_t free_ids; /* below the largest that is in use */
    uint64_t free_runs;
    uint64_t used_runs;
    struct sh_id_run longest_used[SH_ANALYZE_RUNS]; /* the longest first */
    struct sh_id_run longest_free[SH_ANALYZE_RUNS];
    uint64_t exact[SH_ANALYZE_EXACT]; /* chunks of that size */
    struct sh_size_class powers[SH_ANALYZE_POWERS];
};

struct sh_analyze;

/* Begins. own: the node ID under which own chunks are named in a store that has none; NONE: the
 * store's. Keeps store until the end. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_analyze_begin(struct sh_store *store, shoal_nid own,
                                                struct sh_analyze **analyze_out);
/* Looks at up to `groups` groups (a few microseconds for each dozen). False: it is over. Any
 * thread, one at a time. */
bool sh_analyze_step(struct sh_analyze *analyze, unsigned groups);
/* How many groups it has behind it, and about how many there are. */
void sh_analyze_progress(const struct sh_analyze *analyze, uint64_t *done_out, uint64_t *all_out);
/* What was found so far; all of it once a step has returned false. Valid until the end. */
const struct sh_analysis *sh_analyze_result(const struct sh_analyze *analyze);
/* Frees it. NULL is allowed. */
void sh_analyze_end(struct sh_analyze *analyze);

/* All in one call, for programs and tests. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_store_analyze(struct sh_store *store, shoal_nid own,
                                                struct sh_analysis *analysis_out);

/* An analysis as bytes: its u64 in the order of the struct. False: bytes of another number. */
#define SH_ANALYSIS_BYTES sizeof(struct sh_analysis)
void sh_analysis_put(struct sh_writer *w, const struct sh_analysis *analysis);
bool sh_analysis_get(struct sh_reader *r, struct sh_analysis *analysis_out);

#endif
