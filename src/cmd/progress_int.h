/* Progress of something that may take long, on stderr: on a terminal a bar, once a second has
 * passed; elsewhere a plain line for each phase and every few seconds. */
#ifndef SH_CMD_PROGRESS_INT_H
#define SH_CMD_PROGRESS_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sh_progress {
    FILE *out;
    bool terminal;
    const char *what;
    uint64_t started_ms;
    uint64_t shown_ms; /* when something was last shown; 0: never */
    char phase[32];    /* of what was last shown */
};

/* Begins; `what` is borrowed and stands before the phase. */
void sh_progress_begin(struct sh_progress *progress, FILE *out, bool terminal, const char *what,
                       uint64_t now_ms);

/* Notes how far it is. A total of 0: not known. unit_bytes: done and total are bytes. */
void sh_progress_show(struct sh_progress *progress, const char *phase, uint64_t done,
                      uint64_t total, bool unit_bytes, uint64_t now_ms);

/* Removes the bar, if one is there. */
void sh_progress_end(struct sh_progress *progress);

#endif
