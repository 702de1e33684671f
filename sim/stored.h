/* What a simulated disk has of a file: what reads see, what is on stable storage for certain, and between the
 * two the changes that no sync has made safe, in the order in which they were done. docs/simulation.md.
 *
 * A change is a write, a discard or an allocation; a sync takes those before its submission from the list
 * into the stable image, a crash lets each sector of a write, and each block of the others, decide for itself.
 * Discards are not kept apart as writes are: where one waits, a synced write makes all before it safe; and one
 * whose sync fails is done, block by block, or not, there and then.
 *
 * One of zeros is an empty file. Threads: one. */
#ifndef SIM_STORED_H
#define SIM_STORED_H

#include "env/disk.h"
#include "sim/image.h"
#include "sim/prng.h"

struct sh_unsynced;

struct sh_stored {
    struct sh_image seen;
    struct sh_image stable;
    struct sh_unsynced *unsynced; /* oldest first */
    struct sh_unsynced *newest;
    uint64_t change_number; /* of the next one */
};

/* How changes fare that were not synced. */
struct sh_stored_luck {
    struct sh_prng *prng;
    uint32_t survive_ppm, torn_ppm; /* disk.h */
    void (*told)(void *arg, uint64_t offset,
                 uint64_t size); /* what survived of each sector or block */
    void *arg;
};

/* Does a change where reads see it. kind: WRITE, of bytes (borrowed), DISCARD or ALLOCATE. */
void sh_stored_change(struct sh_stored *stored, enum sh_disk_kind kind, uint64_t offset,
                      const uint8_t *bytes, size_t size);
/* A sync of the bytes from `from` to `to` is done: changes to them before number upto are safe. One that
 * failed leaves them unsafe for good, as the page cache does, which calls them clean all the same. */
void sh_stored_sync(struct sh_stored *stored, uint64_t upto, uint64_t from, uint64_t to,
                    bool failed, const struct sh_stored_luck *luck);
/* The machine crashes: what is stable is left, and what survives of the rest. Reads do not see it before
 * sh_stored_reset; until then changes may be added that were under way. */
void sh_stored_crash(struct sh_stored *stored, const struct sh_stored_luck *luck);
void sh_stored_crash_change(struct sh_stored *stored, enum sh_disk_kind kind, uint64_t offset,
                            const uint8_t *bytes, size_t size, const struct sh_stored_luck *luck);
/* A process ends, not the machine: all changes that were done are there, as reads see them. */
void sh_stored_keep(struct sh_stored *stored);
void sh_stored_reset(struct sh_stored *stored);
/* Makes it empty. */
void sh_stored_clear(struct sh_stored *stored);

#endif
