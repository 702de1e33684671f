/* What there is to measure: each benchmark's entry, put together in benches.c. */
#ifndef SH_BENCH_BENCHES_H
#define SH_BENCH_BENCHES_H

#include "bench/bench.h"

#define SH_BENCH_DECLARE(name)                                                                     \
    enum shoal_err sh_bench_##name(struct sh_bench *bench);                                        \
    extern const char *const sh_bench_##name##_cases[];                                            \
    extern const char *const sh_bench_##name##_baselines[]

/* Each runs what the flags ask for; _cases and _baselines list its words, ended by NULL. */
SH_BENCH_DECLARE(crew);
SH_BENCH_DECLARE(store);
SH_BENCH_DECLARE(ranges);
SH_BENCH_DECLARE(lookup);
SH_BENCH_DECLARE(msg);
SH_BENCH_DECLARE(kv);
SH_BENCH_DECLARE(graph);
SH_BENCH_DECLARE(failover);
SH_BENCH_DECLARE(metadata);
SH_BENCH_DECLARE(log);
SH_BENCH_DECLARE(recovery);
SH_BENCH_DECLARE(steps);

#endif
