/* A baseline of `shoal bench log`: RocksDB, where librocksdb-dev was installed when shoal was built.
 * One thread puts the same chunks one by one, under 8-byte keys, with RocksDB's own defaults: its log
 * is written and not synced until the end, and its threads flush and compact beside. */
#ifndef SH_BENCH_ROCKSDB_BASE_H
#define SH_BENCH_ROCKSDB_BASE_H

#include "bench/log_plan.h"

/* A run for sh_bench_measure; arg is a struct sh_log_plan. The load, where it is not what is measured,
 * comes before. EINVAL: built without RocksDB. EIO. */
SHOAL_NODISCARD enum shoal_err sh_rocksdb_base_run(void *arg, const struct sh_bench_flags *flags,
                                                   enum sh_placement placement,
                                                   struct sh_bench_result *result_out);

#endif
