/* Inside the benchmark of chunk memory: its parameters, its subjects, its cases.
 *
 *   bench_store.c     flags, cases, bars
 *   store_subject.c   one store, or one table of an allocator's objects, behind the same calls
 *   store_load.c      creating and removing, each run in a process of its own
 *   store_touch.c     threads that read and write what was loaded before
 *   store_memvar.c    threads that create, read, write and remove
 *   store_limits.c    what the memory itself takes for the same
 */
#ifndef SH_BENCH_STORE_BENCH_INT_H
#define SH_BENCH_STORE_BENCH_INT_H

#include "bench/bench.h"
#include "bench/malloc_base.h"
#include "bench/store_sizes.h"
#include "bench/zipf.h"
#include "store/store.h"

#define SH_STORE_THREADS_MAX 128
#define SH_STORE_BATCH_MAX 4096
/* Chunks that a case may create beside the loaded ones. */
#define SH_STORE_SPARE 4096
/* Multi operations on drawn sizes go in pieces of so many bytes, or of one chunk. */
#define SH_STORE_BATCH_BYTES (UINT64_C(1) << 20)
/* Single operations are timed one in so many, so that the clock costs little. */
#define SH_STORE_SAMPLE_EVERY 64

/* What is measured, in one case. Shared by its threads, which only read it. */
struct sh_store_plan {
    struct sh_sizes sizes;
    uint64_t count;
    unsigned threads;
    unsigned batch;      /* chunks of one operation */
    unsigned load_batch; /* chunks of one creation */
    unsigned reads;      /* percent */
    double seconds;
    uint64_t seed;
    const struct sh_zipf *zipf; /* NULL: uniform */
    bool verify;
    bool small_pages; /* no huge ones for chunks, and the limits do as the store does */
    bool chained;     /* each operation's key depends on what the one before read */
    bool churned;     /* one more thread creates and removes */
};

/* The size of a key's chunk in a generation: 0 as loaded, others as replaced. */
uint32_t sh_store_plan_size(const struct sh_store_plan *plan, uint64_t key, unsigned generation);
/* The bytes of all chunks as loaded. */
uint64_t sh_store_plan_payload(const struct sh_store_plan *plan, unsigned generation);

/* A chunk's content follows from its key and a version below 2^16; a run without --verify writes
 * version 0 alone. check: true for any one version, so half of one put and half of another fails.
 */
void sh_store_content_make(uint64_t key, uint16_t version, void *bytes, uint64_t size);
bool sh_store_content_check(uint64_t key, const void *bytes, uint64_t size);

/* One of the systems, with what it holds. */
struct sh_subject {
    const struct sh_store_plan *plan;
    const struct sh_allocator *allocator; /* NULL: ours */
    struct sh_store *store;
    struct sh_malloc_base *base;
};

/* Opens an empty one, for so many chunks at a time, of so many bytes in all. ENOMEM, EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_subject_open(struct sh_subject *subject, uint64_t chunks_max,
                                               uint64_t payload_max);
/* A closed one is allowed. */
void sh_subject_close(struct sh_subject *subject);

/* Creates count chunks, at most SH_STORE_BATCH_MAX. handles: in, what the table shall call them, no
 * two the same; out, what ours does. A fresh store's are 1, 2, ... in this order. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_subject_create(struct sh_subject *subject, const uint32_t *sizes,
                                                 unsigned count, uint64_t *handles);

/* One get, put or remove of many. */
struct sh_touch {
    uint64_t handle;
    void *bytes;
    uint32_t size; /* of the chunk and of bytes */
};
/* True when all succeeded, with the sizes that were expected. Of ours, one goes by the single call
 * and several by the multi call; of the table, all go one by one. */
bool sh_subject_get(struct sh_subject *subject, const struct sh_touch *touches, unsigned count);
bool sh_subject_put(struct sh_subject *subject, const struct sh_touch *touches, unsigned count);
bool sh_subject_remove(struct sh_subject *subject, const uint64_t *handles, unsigned count);

/* One whole round of defragmentation; of the table, what its allocator can give back. */
void sh_subject_defragment(struct sh_subject *subject);

/* Opens the subject, unless it is open, and creates the plan's chunks, load_batch at a time,
 * handles 1, 2, ...; fills them with content where fill is set. */
SHOAL_NODISCARD enum shoal_err sh_subject_load(struct sh_subject *subject, bool fill);
/* Of a fixed sample of the loaded chunks: their contents, or that they are good with --verify.
 * EINTERNAL when one can't be read or is not what was written. */
SHOAL_NODISCARD enum shoal_err sh_subject_digest(struct sh_subject *subject, uint64_t *digest_out);

/* --- store_load.c. The runs' arg is a struct sh_subject, closed before and after. */

/* Creates and fills. */
enum shoal_err sh_store_load_run(void *arg, const struct sh_bench_flags *flags,
                                 enum sh_placement placement, struct sh_bench_result *result_out);
/* Creates only. */
enum shoal_err sh_store_create_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out);
/* Creates, removes, and creates again, which is measured. */
enum shoal_err sh_store_recreate_run(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out);
/* The same by the plan's threads at once, each a share. */
enum shoal_err sh_store_together_run(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out);
/* Loads, replaces every chunk three times, and defragments. */
enum shoal_err sh_store_churn_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out);
/* The limits beside them: the plan's bytes, load_batch chunks at a time, copied to memory that was
 * never touched, or that was. The arg's plan is all that is used. */
enum shoal_err sh_store_memcpy_fresh_run(void *arg, const struct sh_bench_flags *flags,
                                         enum sh_placement placement,
                                         struct sh_bench_result *result_out);
enum shoal_err sh_store_memcpy_touched_run(void *arg, const struct sh_bench_flags *flags,
                                           enum sh_placement placement,
                                           struct sh_bench_result *result_out);

/* --- store_touch.c. */

/* A loaded subject under a plan of its own: what a case does to it. */
struct sh_toucher {
    struct sh_subject *subject;
    const struct sh_store_plan *plan;
    double churned_per_s; /* out: chunks that the other thread created and removed, last run */
};
/* arg: a struct sh_toucher. */
enum shoal_err sh_store_touch_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out);

/* --- store_limits.c. */

/* Memory as large as a store's tables and chunks, all touched. */
struct sh_misses {
    const struct sh_store_plan *plan;
    uint64_t *table; /* 2 bytes for each chunk */
    uint64_t table_words;
    uint64_t *data; /* the payload */
    uint64_t data_words;
};
/* Chunks of a fixed size. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_misses_open(const struct sh_store_plan *plan,
                                              struct sh_misses *misses_out);
void sh_misses_close(struct sh_misses *misses);
/* The plan's threads read a word of the table at random, then a chunk's first word, whose place the
 * first tells; the next key depends on that. An operation is one such pair. arg: a struct
 * sh_misses. */
enum shoal_err sh_store_misses_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out);

/* --- store_memvar.c. */

struct sh_memvar;
#define SH_MEMVAR_GETS 60 /* percent of the operations */
/* Loads the plan's chunks and deals them to its threads. The subject is closed before; it is the
 * caller's to close, after the memvar. */
SHOAL_NODISCARD enum shoal_err sh_memvar_open(struct sh_subject *subject,
                                              struct sh_memvar **memvar_out);
void sh_memvar_close(struct sh_memvar *memvar);
/* arg: a struct sh_memvar. */
enum shoal_err sh_store_memvar_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out);

#endif
