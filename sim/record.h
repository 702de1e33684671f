/* Samples of what handlers and askers received in simulated worlds, as seeds of fuzz targets: each as
 * the target of that name reads it (its *_fuzz.c says how). For shoal-sim alone, which is linked with
 * --wrap=sh_dispatch. */
#ifndef SIM_RECORD_H
#define SIM_RECORD_H

#include <stdbool.h>

/* From here on samples are kept: of each type a few that differ, small ones. */
void sh_record_begin(void);
/* Writes them to DIR/NAME_fuzz: each type's to a file, and all of a target to sim_all. Makes the folders. False: it could not, which is said on stderr. */
bool sh_record_end(const char *dir);

#endif
