/* The baseline of `shoal bench metadata`: a bare program that does for an update what a disk and a
 * network need, and nothing else. An owner and two replicas, a process each, send as many bytes over
 * TCP as shoal does for a name, and make synced writes of 4 KiB into files of 16 MiB on one disk,
 * which were written to their ends before.
 *
 *   client      owner                          replicas
 *     | request   |                               |
 *     |---------->| append, to both               |
 *     |           |------------------------------>|
 *     |           | writes and syncs 4 KiB        | each writes and syncs 4 KiB
 *     |           |<------------------------------| answer
 *     |<----------| answer, when all three are done
 *
 * The requests that have arrived when the owner is done with a round make up the next one (group
 * commit); a round's write is rounded up to 4 KiB. Each process has one thread, which blocks. There
 * are no names, no versions, no checksums, and when one of the three fails the others end. */
#ifndef SH_BENCH_METADATA_BASE_H
#define SH_BENCH_METADATA_BASE_H

#include "bench/child.h"

struct sh_metadata_base {
    struct sh_child children[3]; /* the owner is the last one */
    char folder[128];
    bool is_durable;      /* else no process writes anything */
    unsigned outstanding; /* of the next run */
    double seconds;
};

/* Starts the processes, which then wait for a run. The caller has no other threads. EIO, ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_metadata_base_start(struct sh_metadata_base *base,
                                                      bool is_durable);
/* Stops the processes and removes their files. One of zeros is allowed. */
void sh_metadata_base_stop(struct sh_metadata_base *base);
/* A run as sh_bench_measure wants it; `arg` is a struct sh_metadata_base. */
SHOAL_NODISCARD enum shoal_err sh_metadata_base_run(void *arg, const struct sh_bench_flags *flags,
                                                    enum sh_placement placement,
                                                    struct sh_bench_result *result_out);

#endif
