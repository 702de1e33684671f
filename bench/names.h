/* Many names: how benchmarks register them, change them, and check that all are there.
 *
 * Name i is "name/NNNNNNNN" for a chunk ID that is made of i, so that a name that was mixed up with
 * another one is noticed. Several updates are under way at a time by the library's asynchronous
 * calls; one alone is the blocking call. */
#ifndef SH_BENCH_NAMES_H
#define SH_BENCH_NAMES_H

#include "bench/bench.h"
#include "shoal/shoal.h"

#define SH_BENCH_NAME_BYTES 24
#define SH_BENCH_NAMES_OUTSTANDING_MAX 64 /* what one store has under way */

void sh_bench_name(uint64_t index, char into[SH_BENCH_NAME_BYTES]);

/* Which names are set, and for how long. */
struct sh_bench_names {
    uint64_t first, count; /* the names first to first + count - 1 */
    bool is_drawn;         /* drawn from these until the time is over; else each once, in order */
    double seconds;        /* 0: no limit */
    unsigned outstanding;
    uint64_t seed;
    uint8_t *acknowledged; /* NULL, or a byte for each of the names: becomes 1 */
    bool may_end;          /* an update that fails ends the run, which is then no failure */
    /* NULL, or called once, by a thread of the library, when hook_at updates are done. Must be short
     * and call nothing of the library. */
    void (*hook)(void *arg);
    void *hook_arg;
    uint64_t hook_at;
    /* NULL, or called by the caller's thread every 20 ms: only the times of updates that ended since
     * the last call are kept for which it returns true. May call the library. */
    bool (*counts)(void *arg);
    void *counts_arg;
};

/* Sets the names. Adds operations, seconds, times and digest to *result_out. The first error that an
 * update has. */
SHOAL_NODISCARD enum shoal_err sh_bench_names_set(shoal *store, const struct sh_bench_names *names,
                                                  struct sh_bench_result *result_out);

/* Reads all names. EDIFFERS: one of the first `count`, or of the acknowledged_count names behind one
 * whose byte is 1, is missing or is another chunk's. */
SHOAL_NODISCARD enum shoal_err sh_bench_names_check(shoal *store, uint64_t count,
                                                    const uint8_t *acknowledged,
                                                    uint64_t acknowledged_count);

#endif
