/* What the store commands share. */
#ifndef SH_CMD_STORE_INT_H
#define SH_CMD_STORE_INT_H

#include "cmd/command_int.h"
#include "cmd/progress_int.h"

/* Begins to show progress; interrupts cancel from now on. */
void sh_store_watch(struct sh_progress *progress, const char *what);
/* Reads the first word, a node ID, opens the cluster and begins to show progress; interrupts cancel
 * from now on. An exit status. */
int sh_store_open(struct sh_cmd *cmd, const char *what, struct sh_progress *progress,
                  shoal_nid *nid_out);

/* For calls of the library that take long; arg is the progress. False after an interrupt. */
bool sh_store_progress(void *arg, const char *phase, uint64_t done, uint64_t all);

/* Says what failed at a node. The exit status. */
int sh_store_fail(struct sh_cmd *cmd, enum shoal_err err, shoal_nid nid);

#endif
