/* Processes that `shoal up` starts and `shoal down` ends.
 *
 * A process is named by its ID and its start time, so that an ID which the kernel has given to
 * another program since is never signalled. */
#ifndef SH_CMD_PROCESS_INT_H
#define SH_CMD_PROCESS_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shoal/err.h"

/* When a process was started, in clock ticks since the machine was; 0 when there is none, or it
 * has ended and only waits to be reaped. */
uint64_t sh_process_started(pid_t pid);

/* True while it runs. A process that was started at 0 never did. */
bool sh_process_runs(pid_t pid, uint64_t started);

/* Starts a program detached: a session of its own, no input, output and errors appended to the log
 * file, no descriptor of ours. argv[0] is its path, or its name, to be found through PATH. detail
 * (256 bytes) says what failed. EIO, ENOSPC, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_process_start(const char *const *argv, const char *log_path,
                                                pid_t *pid_out, uint64_t *started_out,
                                                char *detail);

/* Signals it if it still runs; false when it does not. */
bool sh_process_signal(pid_t pid, uint64_t started, int number);

/* Sleeps for a few milliseconds, between two looks at what is waited for. */
void sh_process_pause(void);

/* Milliseconds of the monotonic clock. */
uint64_t sh_process_now_ms(void);

/* Writes the last lines of a file, at most room - 1 bytes and a NUL; "" when it can't be read. */
void sh_file_tail(const char *path, unsigned lines, char *text_out, size_t room);

#endif
