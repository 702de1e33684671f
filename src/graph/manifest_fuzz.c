/* Any bytes as a manifest, under the checksum and the chunk that they need: what is accepted lies within the chunk, and is written as it was
 * read. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "graph/edges.h"
#include "graph/graph.h"
#include "graph/manifest_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const shoal_cid cid = {UINT64_C(0x40000000000007)};
    struct sh_manifest manifest;
    /* A copy of just this size, so that the sanitizer sees each byte beyond. */
    uint8_t *copy = malloc(size ? size : 1), *again = malloc(size ? size : 1);
    if (!copy || !again)
        abort();
    if (size)
        memcpy(copy, data, size);
    SH_ASSERT(sh_manifest_decode(sh_bytes_make(copy, size), (shoal_cid){1}, &manifest) ==
              SHOAL_ECORRUPT);
    if (size >= 20) {
        sh_store64(copy + 12, cid.v);
        sh_store32(copy + 8, sh_crc32c(0, sh_bytes_make(copy + 12, size - 12)));
    }
    if (sh_manifest_decode(sh_bytes_make(copy, size), cid, &manifest) == SHOAL_OK) {
        SH_ASSERT(manifest.peer_count <= SH_GRAPH_PEERS_MAX);
        SH_ASSERT(manifest.types_count <= SH_TYPES_MAX);
        SH_ASSERT(sh_manifest_bytes(manifest.peer_count, manifest.types.size) == size);
        sh_manifest_encode(again, size, cid, &manifest);
        SH_ASSERT(memcmp(again, copy, size) == 0);
    }
    free(copy);
    free(again);
    return 0;
}
