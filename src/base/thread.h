/* Threads of the library's own. */
#ifndef SH_BASE_THREAD_H
#define SH_BASE_THREAD_H

#include <pthread.h>

#include "shoal/err.h"

/* Starts a thread that takes no signals, which are the application's business, under a name of at
 * most 15 characters. 0, or the error's number: the system has no thread to give. */
SHOAL_NODISCARD int sh_thread_start(pthread_t *thread_out, void *(*run)(void *arg), void *arg,
                                    const char *name);

#endif
