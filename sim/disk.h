/* The simulated disk: files in memory, as safe as the real ones are. docs/simulation.md.
 *
 * A write is seen by reads once it is done, and survives a crash for certain once a later sync is
 * done. Until then each of its 512-byte sectors may survive, vanish or be torn, on its own.
 * Creating, renaming and removing a name survive in the order in which they were done, the last of
 * them only after SH_DISK_SYNC_DIR. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SH_SIM_SECTOR_BYTES 512
#define SH_SIM_DISK_OPS_MAX 64

/* Chances are in millionths. All zero is a disk that is instant and faultless, but still loses what
 * was not synced. */
struct sh_disk_faults {
    uint64_t delay_ns_min; /* of each operation; they overtake one another */
    uint64_t delay_ns_max;
    uint32_t again_ppm;     /* per submit: EAGAIN, as if too many were in flight */
    uint32_t read_err_ppm;  /* per read: EIO */
    uint32_t write_err_ppm; /* per write: EIO, any part of it may have been written */
    uint32_t sync_err_ppm;  /* per sync: EIO, and what it covered is never made safe by another */
    uint32_t flip_ppm;      /* per write: one bit of what it stored is wrong from then on */
    uint32_t survive_ppm;   /* per unsynced sector, at a crash: it is on the disk */
    uint32_t torn_ppm;      /* per unsynced sector, at a crash: a part of it is */
    bool keeps_done;        /* a crash is a process's end: writes that were done are on the disk */
    uint64_t quota_bytes;   /* all files together; 0: no limit. Beyond it: ENOSPC */
    size_t align_bytes;     /* operations must be aligned to it, which is asserted; 0: to nothing */
};

#endif
