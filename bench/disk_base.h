/* The baseline of `shoal bench log` that is no log: as many bytes as the log's last run wrote, in
 * writes of 8 MiB with O_DIRECT, four of them in flight, one behind the other into one new file, and a
 * sync at the end. At the end of a file as large as the log's it begins again in front. */
#ifndef SH_BENCH_DISK_BASE_H
#define SH_BENCH_DISK_BASE_H

#include "bench/log_plan.h"

/* A run for sh_bench_measure; arg is a struct sh_log_plan, of which our log has made a run. Its
 * operations are as many chunks as the log wrote, its bytes those that went to the disk. */
SHOAL_NODISCARD enum shoal_err sh_disk_base_run(void *arg, const struct sh_bench_flags *flags,
                                                enum sh_placement placement,
                                                struct sh_bench_result *result_out);
/* The same, but what is measured is the reading of so many bytes, which it has written before. */
SHOAL_NODISCARD enum shoal_err sh_disk_base_read_run(void *arg, const struct sh_bench_flags *flags,
                                                     enum sh_placement placement,
                                                     struct sh_bench_result *result_out);

#endif
