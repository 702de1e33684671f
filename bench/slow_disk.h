/* A disk that takes so many writes a second, whatever their size, as an SSD does where they are small: it holds
 * each write back until the one before it is due, and then hands it to the disk below. All else goes there at
 * once. Writes that were not asked for in time are not made up for. For measurements, on the real clock. */
#ifndef SH_BENCH_SLOW_DISK_H
#define SH_BENCH_SLOW_DISK_H

#include "env/env.h"

/* Takes the disk below, and destroys it with this one; after an error it is still the caller's. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_slow_disk_create(struct sh_disk *below, uint64_t writes_per_s,
                                                   struct sh_disk **disk_out);

#endif
