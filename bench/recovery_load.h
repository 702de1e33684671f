/* A workload beside a recovery: threads that read, and now and then write, drawn chunks, one call at a time each. Every other
 * thread draws from the chunks of the peer that is killed, the others from those of its neighbours; a call that waits keeps its
 * thread, so one kind of thread alone would say nothing of the other. Writes write what is there, at the peers' own level.
 *
 * A call that fails, or whose bytes are others, is lost; its thread goes on. */
#ifndef SH_BENCH_RECOVERY_LOAD_H
#define SH_BENCH_RECOVERY_LOAD_H

#include "bench/filled.h"

#define SH_RECOVERY_LOAD_SECONDS_MAX 600
#define SH_RECOVERY_LOAD_THREADS_MAX 128

/* A call belongs to the phase in which it ends. */
enum sh_recovery_phase { SH_RECOVERY_BEFORE, SH_RECOVERY_DURING, SH_RECOVERY_AFTER };
#define SH_RECOVERY_PHASES 3

/* The calls that ended in one second, counted from the start. */
struct sh_recovery_load_second {
    uint64_t calls;
    uint64_t longest_ns;
};

struct sh_recovery_load {
    /* The caller's. */
    const struct sh_filled *filled; /* the chunks of the peer that is killed */
    const struct sh_filled *others;
    shoal *store;
    unsigned
        threads; /* 1 to SH_RECOVERY_LOAD_THREADS_MAX; the first, the third and so on call for `filled` */
    unsigned reads; /* percent of the calls */
    /* Results, once it has been stopped. */
    uint64_t calls[SH_RECOVERY_PHASES];
    uint64_t others_calls[SH_RECOVERY_PHASES]; /* of these, for `others` */
    uint64_t lost;
    uint64_t longest_ns;
    struct sh_hist latency_ns;
    double seconds[SH_RECOVERY_PHASES];
    unsigned seconds_count; /* at `each`: whole seconds, and the last part of one */
    struct sh_recovery_load_second each[SH_RECOVERY_LOAD_SECONDS_MAX];
    /* Its own. */
    atomic_uint phase;
    uint64_t began_ns[SH_RECOVERY_PHASES];
    atomic_bool is_over;
    struct sh_recovery_loader *loaders;
};

/* Starts the threads, in the phase before. ENOMEM, EINTERNAL (the system has no thread to give): nothing runs then. */
SHOAL_NODISCARD enum shoal_err sh_recovery_load_start(struct sh_recovery_load *load);
/* Begins the next phase. */
void sh_recovery_load_next(struct sh_recovery_load *load);
/* Ends the threads, each after its call, and adds up. */
void sh_recovery_load_stop(struct sh_recovery_load *load);
/* Calls a second in a phase, of all or of the chunks of others; 0 where the phase took no time. */
double sh_recovery_load_rate(const struct sh_recovery_load *load, enum sh_recovery_phase phase,
                             bool of_others);

#endif
