/* What the key-value benchmark does, the same for every system that it measures.
 *
 *   get     one object by key            put    one object replaced
 *   mixed   19 gets to each put          multi  `batch` gets in one request
 *   add     1 added to an object's first bytes
 *
 * Objects 0 to count - 1 have a value that follows from their index, and puts write that same
 * value, so that every get can be checked. Keys are drawn from the seed and the thread's number, so
 * that every system is asked the same. */
#ifndef SH_BENCH_KV_H
#define SH_BENCH_KV_H

#include "bench/bench.h"
#include "bench/zipf.h"
#include "shoal/shoal.h"

enum sh_kv_case { SH_KV_GET, SH_KV_PUT, SH_KV_MIXED, SH_KV_MULTI, SH_KV_ADD };

struct sh_kv_shape {
    enum sh_kv_case what;
    struct sh_bench_flags flags; /* size, count, threads, outstanding, batch, seconds filled in */
    const struct sh_zipf *zipf;  /* NULL: uniform */
    /* Of shoal alone. */
    unsigned replicas; /* 0: nothing is logged */
    unsigned nodes;    /* peers, where something is logged */
    enum shoal_level level;
};

/* A thread's operations. */
struct sh_kv_source {
    const struct sh_kv_shape *shape;
    struct sh_keys keys;
    struct sh_keys dice; /* whether a mixed operation is a put */
};

struct sh_kv_op {
    bool put;          /* or an addition */
    unsigned count;    /* of indexes: batch for multi, else 1 */
    uint64_t *indexes; /* room for batch, given by the caller */
};

/* What a thread measured. */
struct sh_kv_tally {
    uint64_t objects;
    uint64_t wrong; /* values that were not what was put */
    uint64_t digest;
    uint64_t digested;
    uint64_t begin_ns;
    uint64_t end_ns;
    struct sh_hist latency_ns; /* of requests */
};

unsigned sh_kv_batch(const struct sh_kv_shape *shape);
void sh_kv_source_init(struct sh_kv_source *source, const struct sh_kv_shape *shape,
                       unsigned thread);
void sh_kv_next(struct sh_kv_source *source, struct sh_kv_op *op);

void sh_kv_value(uint64_t index, uint8_t *into, size_t size);
/* Bytes of the number at an object's beginning that `add` adds to; 0: it is too small for one. */
static inline unsigned sh_kv_add_width(size_t size)
{
    return size >= 8 ? 8 : size >= 4 ? 4 : 0;
}
/* True when the value is the index's: size and first bytes. */
bool sh_kv_value_is(uint64_t index, const uint8_t *value, size_t size, size_t expected);

/* Notes the drawing of an operation: the digest covers the first few of each thread, so that it is
 * the same however many a run gets done. */
void sh_kv_drawn(struct sh_kv_tally *tally, const struct sh_kv_op *op);

/* Sums threads up. EINTERNAL when a value was wrong. */
SHOAL_NODISCARD enum shoal_err sh_kv_sum(const struct sh_kv_tally *tallies, unsigned count,
                                         size_t size, struct sh_bench_result *result);

#endif
