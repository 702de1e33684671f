/* A life names one process on one disk: how many starts of the disk the registry has confirmed, this one
 * included (upper half), and random bits (lower half, so that a copy of the disk that is started as often
 * is told apart). Processes that end before they are confirmed share one (superpeer/superpeer_journal.c,
 * node/identity.h). 0 starts: a process that has no disk, or has not been confirmed on it yet.
 *
 * Threads: plain values. */
#ifndef SH_BASE_LIFE_H
#define SH_BASE_LIFE_H

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t sh_life_starts(uint64_t life)
{
    return (uint32_t)(life >> 32);
}

/* Whether a process of that life is not the latest of its node, by one that is known: a former one, or a
 * copy of its disk. Nothing is known of one without starts. */
static inline bool sh_life_is_former(uint64_t life, uint64_t known)
{
    return sh_life_starts(life) && life != known && sh_life_starts(life) <= sh_life_starts(known);
}

#endif
