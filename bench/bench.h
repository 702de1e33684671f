/* The benchmarks' common frame: flags, placements, runs, rows. DESIGN: Benchmarks.
 *
 * `shoal bench NAME [flags]` finds NAME in bench/benches.c and calls its run function with the
 * parsed flags. A benchmark measures one row per (case, system, parameters) with sh_bench_measure:
 * a line of a table, or with --json one object. With --vs it alternates our runs with the
 * baseline's, --runs times, and the rows carry the medians; the ratio of medians follows.
 *
 *   shoal bench --list                            benchmarks, cases, baselines
 *   shoal bench msg --case request --vs tcp       a table and the ratios
 *   shoal bench msg --placement all --json        one object per row
 *
 * Threads: all of this runs on the program's main thread; only a benchmark's own threads are
 * others, and they call nothing here but sh_bench_pin, sh_bench_now_ns and sh_bench_spins.
 */
#ifndef SH_BENCH_BENCH_H
#define SH_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/hist.h"
#include "shoal/err.h"

enum sh_placement {
    SH_PLACE_FREE,      /* as the scheduler likes */
    SH_PLACE_SPIN,      /* both sides spin, a core each */
    SH_PLACE_ONE_CORE,  /* both block, same core */
    SH_PLACE_CROSS_CORE /* both block, a core each */
};
#define SH_PLACEMENTS 4

/* The flags, the same everywhere. Zero or NULL: not given; the benchmark has its default. Only runs
 * (5) and seed (1) have theirs from the frame. Texts are borrowed from argv. */
struct sh_bench_flags {
    const char *cases;     /* --case: one name, or "all"; NULL: all */
    uint64_t size;         /* --size, bytes */
    uint64_t count;        /* --count */
    unsigned threads;      /* --threads */
    unsigned outstanding;  /* --outstanding: requests in flight for each thread and connection */
    unsigned batch;        /* --batch: objects in one multi operation, or in a row */
    unsigned nodes;        /* --nodes */
    unsigned handlers;     /* --handlers: threads that run pooled handlers; 0: inline ones */
    unsigned processes;    /* --processes that the nodes are spread over: 1, or one for each */
    unsigned connections;  /* --connections: servers, a process each, that every thread talks to */
    const char *keys;      /* --keys: uniform or zipfian */
    const char *transport; /* --transport */
    const char *idle;      /* --idle: how threads wait, where the placement leaves it open */
    const char *catch_up;  /* --catch-up: on, or off to show what the outgoing ring saves */
    const char *sizes;     /* --sizes: fixed, or what chunks' sizes are drawn from */
    unsigned reads;        /* --reads: percent of the operations that read */
    bool small_pages;      /* --small-pages: chunks' memory has no huge pages */
    unsigned percent;      /* --percent of the chunks that have migrated */
    unsigned length;       /* --length of a run of migrated chunks */
    bool verify;           /* --verify: what is read is checked against what was written */
    const char *placement; /* --placement: spin, one-core, cross-core, free, or all */
    double seconds;        /* --seconds for each run */
    unsigned runs;         /* --runs */
    uint64_t seed;
    const char *vs; /* --vs */
    bool json;
    /* Of replicas. */
    unsigned replicas;      /* --replicas of each chunk, in logs */
    const char *durability; /* --durability: async, replicated, durable, or all */
    /* Of logs. */
    const char *folder;     /* --folder where their files go */
    unsigned zones;         /* --zones */
    uint64_t zone_bytes;    /* --zone-bytes: of a zone's chunks, with a header each */
    uint64_t segment_bytes; /* --segment-bytes */
    uint64_t buffer_bytes;  /* --buffer-bytes: the write buffer */
    const char *access;     /* --access to the disk: direct, cached, or raw */
    unsigned sync_every;    /* --sync-every so many chunks log waits until they are durable */
    uint64_t disk_writes;   /* --disk-writes: a second, that the disk takes at most */
    unsigned levels;        /* --levels: 2, or 1 without the primary log */
    const char *selection;  /* --selection of the slots that are cleaned */
    unsigned fill;          /* --fill: percent of a zone's log that its chunks are */
};

/* Named numbers that a benchmark adds to the columns that all share. Each is the
 * median of the runs, all of which have the same ones in the same order; they stand in a line of
 * their own below the row, and with --json are members of its object. */
#define SH_BENCH_FIGURES_MAX 16
struct sh_bench_figures {
    unsigned count;
    const char *keys[SH_BENCH_FIGURES_MAX]; /* static texts, "bytes_per_write" */
    double values[SH_BENCH_FIGURES_MAX];
};

void sh_bench_figure_add(struct sh_bench_figures *figures, const char *key, double value);
/* 0: there is no such figure. */
double sh_bench_figure_get(const struct sh_bench_figures *figures, const char *key);

/* One measured run. Fields that do not apply stay 0. */
struct sh_bench_result {
    double seconds;
    uint64_t ops;
    uint64_t bytes;
    double bytes_per_chunk;
    double over_per_chunk;       /* resident bytes over the payload */
    double status_per_chunk;     /* what the store's own status says of bytes_per_chunk */
    double bytes_per_connection; /* resident, of one end of an idle one */
    double messages_per_block;   /* what one push to the wire carried */
    uint64_t cpu_ns;             /* of this process and the server it measured, user and system */
    struct sh_hist latency_ns;
    struct sh_bench_figures figures;
    uint64_t digest; /* of what was computed, so that the work can't be optimized away */
};

struct sh_bench;

/* One thing to measure: run it once (flags->seconds long, or flags->count operations). */
typedef enum shoal_err (*sh_bench_run)(void *arg, const struct sh_bench_flags *flags,
                                       enum sh_placement placement,
                                       struct sh_bench_result *result_out);

/* Measures ours and, if base_run is not NULL, the baseline, alternating, flags->runs times each,
 * after one warm-up of each; prints a row for each and the ratio of medians. Returns the first
 * failure. `extra` is printed with the row's parameters ("size=64 outstanding=1"). */
SHOAL_NODISCARD enum shoal_err sh_bench_measure(struct sh_bench *bench, const char *case_name,
                                                enum sh_placement placement, const char *extra,
                                                sh_bench_run run, void *run_arg,
                                                const char *base_name, sh_bench_run base_run,
                                                void *base_arg);

/* One of several systems to measure beside each other. */
struct sh_bench_system {
    const char *name;
    sh_bench_run run;
    void *arg;
};
#define SH_BENCH_SYSTEMS_MAX 5

/* What a system's runs came to. */
struct sh_bench_medians {
    double ops_per_s;
    double mb_per_s;
    double bytes_per_chunk;
    double over_per_chunk;
    double status_per_chunk;
    double cpu_ns_per_op;
    double p50_ns, p99_ns;
    struct sh_bench_figures figures;
};

/* The same for up to SH_BENCH_SYSTEMS_MAX systems in turn: ours is the first, a baseline that
 * ratios are to, if any, the second (is_vs), and the rest are limits measured beside them, such as
 * the memory itself. medians_out has room for count. */
SHOAL_NODISCARD enum shoal_err sh_bench_measure_all(struct sh_bench *bench, const char *case_name,
                                                    enum sh_placement placement, const char *extra,
                                                    const struct sh_bench_system *systems,
                                                    unsigned count, bool is_vs,
                                                    struct sh_bench_medians *medians_out);

/* A bar: what a figure must at least, or at most, be. Printed as a line or an object with `bar`,
 * `figure`, `limit` and `met`, and where it is known `figure_cpu`: the same figure by processor
 * time, which says more where others use the cores too. `met` goes by the clock. */
struct sh_bench_bar {
    const char *case_name;
    enum sh_placement placement;
    const char *extra;
    const char *what; /* "times two dependent misses" */
    double figure;
    double figure_cpu; /* 0: none */
    double limit;
    bool at_least;
};
void sh_bench_bar_print(struct sh_bench *bench, const struct sh_bench_bar *bar);

const struct sh_bench_flags *sh_bench_flags_get(const struct sh_bench *bench);

/* True where --case is this case, "all", or not given. */
bool sh_bench_case_wanted(const struct sh_bench *bench, const char *case_name);

/* The placements of --placement ("free" when not given), in the order of the enum. Those that need
 * two cores are left out where there is one. Returns how many. */
unsigned sh_bench_placements(const struct sh_bench *bench, enum sh_placement out[SH_PLACEMENTS]);
const char *sh_placement_name(enum sh_placement placement);

/* A line for the reader of the table, e.g. why a row is missing; nothing with --json. */
void sh_bench_note(struct sh_bench *bench, const char *text);

/* Says on stderr what is wrong with the flags, for a benchmark to return what this returns (ERANGE)
 * before it has measured anything. The program then ends as one that was called wrongly. */
SHOAL_NODISCARD enum shoal_err sh_bench_refuse(struct sh_bench *bench, const char *text);

/* CLOCK_MONOTONIC. */
uint64_t sh_bench_now_ns(void);
/* Processor time of this process so far, user and system, all threads. */
uint64_t sh_bench_cpu_ns(void);

/* Pins the calling thread for its side: side 0 is the client, 1 the server. Free gives it the cores
 * that the program was started with. Threads and processes made afterwards inherit it. */
void sh_bench_pin(enum sh_placement placement, unsigned side);
/* True where both sides spin. */
static inline bool sh_bench_spins(enum sh_placement placement)
{
    return placement == SH_PLACE_SPIN;
}

struct sh_bench_entry {
    const char *name;
    const char *summary;
    const char *const *cases;     /* NULL-terminated, for --list */
    const char *const *baselines; /* NULL-terminated values of --vs */
    enum shoal_err (*run)(struct sh_bench *bench);
};

/* All benchmarks, ended by a NULL name (bench/benches.c). */
extern const struct sh_bench_entry sh_benches[];

/* `shoal bench`'s main: argv[0] is the benchmark's name. Returns the process's exit status. */
int sh_bench_main(int argc, char **argv, FILE *out);

#endif
