/* The baseline nng: REQ to REP (both raw, so that several requests can be in flight on a
 * socket) and PUSH to PULL one-way, over tcp. bench/msg_base.h
 * says what it shares with the others. */
#ifndef SH_BENCH_NNG_BASE_H
#define SH_BENCH_NNG_BASE_H

#include "bench/bench.h"

/* Runs for sh_bench_measure; arg as in bench/tcp_base.h. EINVAL where shoal was built without it.
 */
SHOAL_NODISCARD enum shoal_err sh_nng_base_request(void *arg, const struct sh_bench_flags *flags,
                                                   enum sh_placement placement,
                                                   struct sh_bench_result *result_out);
SHOAL_NODISCARD enum shoal_err sh_nng_base_oneway(void *arg, const struct sh_bench_flags *flags,
                                                  enum sh_placement placement,
                                                  struct sh_bench_result *result_out);

#endif
