/* Creates of several chunks that failed. Such a create takes back what it has made, and a crash may keep the one without the other (docs/backup.md, "Not right
 * yet"): then chunks of zeros are there, of sizes that it asked for. */
#ifndef TESTS_CUT_CREATES_INT_H
#define TESTS_CUT_CREATES_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUT_SIZES 4096u

struct cut_creates {
    uint32_t sizes[CUT_SIZES];
    unsigned count; /* of all */
};

/* A create of chunks of those sizes has failed. */
static inline void cut_creates_note(struct cut_creates *cuts, const uint32_t *sizes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cuts->sizes[cuts->count++ % CUT_SIZES] = sizes[i];
}

/* Whether a chunk of these bytes may be left of one. */
static inline bool cut_creates_left(const struct cut_creates *cuts, const uint8_t *bytes,
                                    uint32_t size)
{
    unsigned known = cuts->count < CUT_SIZES ? cuts->count : CUT_SIZES;
    bool was_asked = cuts->count > CUT_SIZES; /* some have been forgotten */
    for (unsigned i = 0; i < known; i++)
        was_asked |= cuts->sizes[i] == size;
    for (uint32_t i = 0; was_asked && i < size; i++)
        was_asked = !bytes[i];
    return was_asked;
}

#endif
