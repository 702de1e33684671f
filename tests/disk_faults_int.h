/* Faults of a simulated disk, drawn for a run: any share of unsynced writes survives a crash, in part or not. */
#ifndef SH_TESTS_DISK_FAULTS_INT_H
#define SH_TESTS_DISK_FAULTS_INT_H

#include "sim/disk.h"
#include "sim/prng.h"

/* Of so many runs one has writes and syncs that fail, at these rates. */
static inline struct sh_disk_faults disk_faults_draw(struct sh_prng *prng, unsigned fails_one_in,
                                                     uint32_t write_err_ppm, uint32_t sync_err_ppm)
{
    bool fails = sh_prng_below(prng, fails_one_in) == 0;
    return (struct sh_disk_faults){
        .delay_ns_min = 10000,
        .delay_ns_max = 10001 + sh_prng_below(prng, 3000000),
        .again_ppm = 20000,
        .write_err_ppm = fails ? write_err_ppm : 0,
        .sync_err_ppm = fails ? sync_err_ppm : 0,
        .survive_ppm = (uint32_t)sh_prng_below(prng, 1000001),
        .torn_ppm = (uint32_t)sh_prng_below(prng, 1000001),
    };
}

#endif
