/* The baseline of updates that go to replicas: a bare program that does for an update what a network
 * and disks need, and nothing else. An owner and its replicas, a process each, send as many bytes over
 * TCP as shoal does, and make synced writes of 4 KiB blocks, each into a file of 16 MiB, all on one
 * disk, which were written to their ends before.
 *
 *   client      owner                          replicas
 *     | request   |                               |
 *     |---------->| append, to each               |
 *     |           |------------------------------>|
 *     |           | (writes and syncs)            | each writes and syncs
 *     |           |<------------------------------| confirmation
 *     |<----------| answer, when all are done
 *
 * The requests that have arrived when the owner is done with a round make up the next one (group
 * commit), which has one append, one write and one confirmation for each replica. As the client has all
 * its answers at once, and then sends as many requests, a round has as many as are outstanding: the
 * best that such a program can do, since a write of one block takes as long as the write of sixty-four.
 * Each process has one thread, which blocks. There are no versions, no checksums, nothing is kept in
 * memory, and when one process fails the others end. */
#ifndef SH_BENCH_ROUNDS_BASE_H
#define SH_BENCH_ROUNDS_BASE_H

#include "bench/child.h"

#define SH_ROUNDS_REPLICAS_MAX 4

enum sh_rounds_level {
    SH_ROUNDS_ASYNC,  /* the owner answers, and then sends; nobody confirms or writes anything */
    SH_ROUNDS_MEMORY, /* the replicas confirm, but write nothing */
    SH_ROUNDS_DISK,
};

struct sh_rounds_shape {
    unsigned replicas;
    bool owner_writes; /* as the replicas do */
    enum sh_rounds_level level;
    /* Bytes of messages: a request and its answer; an append, and what it has for each update. */
    size_t request_bytes, answer_bytes, append_bytes, entry_bytes, confirm_bytes;
    /* Bytes of a write, and what it has for each update, rounded up to 4 KiB in all. */
    size_t write_bytes, written_bytes;
    unsigned outstanding_max;
};

struct sh_rounds_base {
    struct sh_rounds_shape shape;
    struct sh_child children[SH_ROUNDS_REPLICAS_MAX + 1]; /* the owner is behind the replicas */
    char folder[128];
    unsigned outstanding; /* of the next run */
    double seconds;
};

/* Starts the processes, which then wait for a run. The caller has no other threads. EIO, ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_rounds_base_start(struct sh_rounds_base *base,
                                                    const struct sh_rounds_shape *shape);
/* Stops the processes and removes their files. One of zeros is allowed. */
void sh_rounds_base_stop(struct sh_rounds_base *base);
/* A run as sh_bench_measure wants it; `arg` is a struct sh_rounds_base. */
SHOAL_NODISCARD enum shoal_err sh_rounds_base_run(void *arg, const struct sh_bench_flags *flags,
                                                  enum sh_placement placement,
                                                  struct sh_bench_result *result_out);

#endif
