/* A run of the log: one thread appends, and steps the log every 64 writes and while it has no room. */
#ifndef SH_BENCH_LOG_RUN_H
#define SH_BENCH_LOG_RUN_H

#include "bench/log_plan.h"

/* A run for sh_bench_measure; arg is a struct sh_log_plan, which learns what was written. Opens a log
 * in the plan's folder, loads it unless the load is what is measured, and measures until all writes
 * are durable; then the file goes. cpu_ns lacks what idle steps took, while the thread had nothing to
 * do but to wait. Figures, of the measured part:
 *
 *   bytes_per_write                    of a batch on its way to a slot, heads and padding included
 *   fill_percent                       most slots in use, of those that all zones may have
 *   fill_mean_percent                  the same on average
 *   memory_bytes                       most that the process had more than before the log was opened
 *   log_per_memory                     most bytes of slots in use, divided by that
 *   amplification_all, and by source   bytes written for one of the payload: _primary, _slots (batches
 *                                      that were appended), _survivors (that cleaning copied), _versions (version
 *                                      logs)
 *   amplification_segments             bytes written to slots for one of a write with its header, and
 *   theory                             the same by the theory of the selection, with as many slots in use on
 *                                      average, were the writes uniform and the run without end
 *   of_theory                          the former divided by the latter; 0: there is no theory
 *   slots_cleaned
 *
 * ENOSPC, EIO: the log's. ETIMEOUT: the log took no write for a minute. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_log_run(void *arg, const struct sh_bench_flags *flags,
                                          enum sh_placement placement,
                                          struct sh_bench_result *result_out);

/* Runs the plan once, unmeasured: a load, and then the updates of its case; and leaves the log's file, all of it durable. Errors as above. */
SHOAL_NODISCARD enum shoal_err sh_log_make(struct sh_log_plan *plan);
/* How the plan's log is opened on that disk. */
struct sh_replog_config sh_log_plan_config(const struct sh_log_plan *plan, struct sh_disk *disk);
#define SH_LOG_OWNER 64 /* of its zones, which have the numbers from 1 on, as their chunks do */

/* Bytes that are written for one by a cleaner that takes slots by that selection, of whose bytes `live` are current, where writes
 * are uniform (docs/log.md, "Which slots"). 0: live is not between 0 and 1. */
double sh_log_theory(enum sh_replog_selection selection, double live);

#endif
