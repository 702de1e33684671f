/* Nodes for the tests of placement. */
#ifndef SH_BACKUP_CANDIDATES_TEST_H
#define SH_BACKUP_CANDIDATES_TEST_H

#include <stdlib.h>

#include "backup/candidate.h"
#include "base/random_test.h"
#include "env/env.h"

#define TEST_GIB (UINT64_C(1) << 30)

/* Nodes 64, 65, ... that are up, with empty disks of 100 GiB, nothing known of where they are. */
static inline void nodes_make(struct sh_candidate *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        nodes[i] = (struct sh_candidate){.nid = {(uint16_t)(64 + i)},
                                         .is_up = true,
                                         .can_backup = true,
                                         .disk_bytes = 100 * TEST_GIB,
                                         .disk_free_bytes = 100 * TEST_GIB};
}

static inline void test_random_fill(void *arg, void *into, size_t size)
{
    unsigned char *bytes = into;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(test_draw(arg) >> 24);
}

/* Random numbers from a test's seed. */
static inline struct sh_random test_random(uint64_t *state)
{
    return (struct sh_random){.fill = test_random_fill, .arg = state};
}

#endif
