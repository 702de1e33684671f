/* The value of the leader's entry in ZooKeeper, which anybody may have written there: what is read is
 * a superpeer's ID, and written again it is the same bytes. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/view.h"
#include "superpeer/zookeeper.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint16_t leader = 0;
    char text[8];
    if (!sh_zookeeper_leader_get(sh_bytes_make(data, size), &leader)) {
        SH_ASSERT(!leader);
        return 0;
    }
    SH_ASSERT(leader && leader <= SH_SUPERPEERS_MAX);
    int written = snprintf(text, sizeof text, "%u", (unsigned)leader);
    SH_ASSERT((size_t)written == size && memcmp(text, data, size) == 0);
    return 0;
}
