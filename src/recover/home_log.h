/* A node's log on its own disk: which file, and how large, for whoever opens one. */
#ifndef SH_RECOVER_HOME_LOG_H
#define SH_RECOVER_HOME_LOG_H

#include "backup/backup.h"
#include "env/env.h"
#include "log/replog.h"

#define SH_HOME_LOG_NAME "replicas.log"
#define SH_HOME_ZONE_BYTES (UINT64_C(256) << 20)
#define SH_HOME_SLOT_BYTES (UINT32_C(8) << 20)
#define SH_HOME_SCRUB_BYTES (UINT64_C(4) << 20)   /* that its scrub reads a second */
#define SH_HOME_WINDOW_BYTES (UINT64_C(32) << 20) /* of its backup */

struct sh_home_log {
    struct sh_disk *disk; /* borrowed, as in sh_replog_config */
    struct sh_random random;
    /* As in sh_replog_config. */
    void (*handed)(void *arg, struct sh_replog_zone *zone, uint64_t sequence);
    void (*durable)(void *arg, struct sh_replog_zone *zone, uint64_t sequence);
    void (*damaged)(void *arg, struct sh_replog_zone *zone, uint32_t slot, uint64_t offset);
    void *arg;
    struct sh_replog_completions completions;
    uint64_t cluster; /* both 0: nobody's yet, as in sh_replog_config */
    shoal_nid nid;
    uint64_t store_bytes_max; /* of the store whose zones it has, of all stores together */
    uint64_t zone_bytes;      /* as its backup has; 0: as above */
    uint32_t slot_bytes, primary_blocks; /* 0: as above; 16 MiB */
    bool is_one_level;                   /* a log that is new has no primary log */
    uint64_t buffer_bytes;               /* of the write buffer, a multiple of 64 KiB; 0: 64 MiB */
    uint64_t bytes_max;                  /* of its slots; 0: as many as the store can fill */
    uint64_t
        device_bytes; /* the disk is a raw one, of so many bytes: a log that is new takes as many slots as fit; 0: it is none */
    uint64_t reserve_bytes, scrub_bytes; /* as in sh_replog_config */
    enum sh_replog_selection selection;  /* that, too */
};
/* How many bytes a new log takes at least: with two zones. */
uint64_t sh_home_log_least(const struct sh_home_log *home);

/* Opens it, and makes the file if it is not there; waits for the disk. EINVAL: bytes_max is not enough for two zones. ERANGE:
 * sh_replog_open says EINVAL of buffer_bytes or of the sizes. Else errors of sh_replog_open: ENOSPC also of a raw disk that is not enough for two
 * zones, or for the log that is there. */
SHOAL_NODISCARD enum shoal_err sh_home_log_open(const struct sh_home_log *home, uint64_t now_ns,
                                                uint32_t seconds, struct sh_replog **log_out);

#endif
