/* Telling others that a node serves: the service manager and the ready file. */
#ifndef SH_CMD_NOTIFY_INT_H
#define SH_CMD_NOTIFY_INT_H

#include <stdint.h>

#include "shoal/err.h"
#include "shoal/types.h"

/* Sends a state ("READY=1", "STOPPING=1") to the service manager, whose socket is named by
 * $NOTIFY_SOCKET: a path, or @NAME for an abstract one. Without it nothing is done. This is
 * sd_notify(3) without its library. EADDRESS: a name that no socket can have; EIO. */
SHOAL_NODISCARD enum shoal_err sh_notify_send(const char *state);

/* The ready file appears whole or not at all: it is written under a temporary name and renamed.
 *
 * Begin before anything else: opens the temporary file, so that a folder that can't be written to
 * refuses the start, and removes a ready file that an earlier process has left. An empty path means
 * no file: then all of this does nothing. detail has 256 bytes. EIO, ENOSPC. */
struct sh_ready {
    const char *path; /* borrowed */
    char temporary[4096 + 32];
    int fd; /* -1: none */
};
SHOAL_NODISCARD enum shoal_err sh_ready_begin(struct sh_ready *ready, const char *path,
                                              char *detail);
/* Writes nid, address and pid, a line KEY=VALUE each, and puts the file in its place. */
SHOAL_NODISCARD enum shoal_err sh_ready_publish(struct sh_ready *ready, shoal_nid nid,
                                                const char *address, char *detail);
/* Removes it again, in whatever state it is. */
void sh_ready_end(struct sh_ready *ready);

#endif
