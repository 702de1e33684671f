/* Recovery by real processes: a superpeer and --nodes peers (4) with --replicas (2) of each chunk in the logs of others, and
 * default options otherwise. --count chunks of --size bytes (64) are made and are durable; then processes are killed with SIGKILL,
 * and a client asks for chunks of all parts until it has been given them (bench/filled.h).
 *
 *   cluster     one peer has all chunks (10 million), and is killed: until all are back at the others
 *   under-load  the same, while --threads (4) call for its chunks and for others (recovery_load.h); for --seconds (5) before
 *               and after
 *   cold        all peers have some (40 million in all); all processes are killed, and started again on their folders
 *
 * Every run then reads and compares all chunks, and counts them; a call that is lost, too, fails it. --vs redis: in cluster and cold, a Redis server
 * that is killed, and started again on as many objects (redis_restart_base.h).
 *
 * An operation is a chunk that is back, under load a call. The time of a run, but for under-load, ends with the later of the last answer to the client
 * and the last zone that a peer logs to be back. Figures:
 *
 *   SIGKILL ──► detect_ms ────► owners_ms ────────► served_ms ──► first_ms .. all_ms
 *    or start   a superpeer     the last zone's     the last      the first and the last of the chunks
 *               logs that the   record names its    zone is       that the client asks for has been
 *               peer failed     next owner          served        read, and has its bytes
 *
 *   declared_ms    until a program that watches the cluster is told
 *   zone_longest_ms  of the restorer that took longest for a zone
 *   zones          that were brought back
 *   check_s        what reading and comparing all chunks took afterwards */
#ifndef SH_BENCH_RECOVERY_CLUSTER_H
#define SH_BENCH_RECOVERY_CLUSTER_H

#include "bench/recovery_plan.h"

/* Measures the plan's case, and prints its rows and, with as many chunks as they were set for, its bars. vs: "redis", or NULL. */
SHOAL_NODISCARD enum shoal_err sh_recovery_cluster_measure(struct sh_bench *bench,
                                                           const struct sh_recovery_plan *plan,
                                                           const char *vs);

#endif
