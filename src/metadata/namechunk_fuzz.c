/* A chunk of names from any bytes: what is accepted has good entries, to its last byte. The header
 * is made anew first, or no input would get past its checksums. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "metadata/namechunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_bytes entries, name;
    shoal_nid nid;
    shoal_cid cid;
    (void)!sh_name_chunk_get(sh_bytes_make(data, size), &nid, &entries);
    uint8_t *chunk = malloc(SH_NAME_CHUNK_HEAD_BYTES + size);
    SH_ASSERT(chunk);
    if (size)
        memcpy(chunk + SH_NAME_CHUNK_HEAD_BYTES, data, size);
    size += SH_NAME_CHUNK_HEAD_BYTES;
    sh_name_chunk_head(chunk, size, (shoal_nid){64});
    if (!sh_name_chunk_get(sh_bytes_make(chunk, size), &nid, &entries)) {
        SH_ASSERT(nid.v == 64 && entries.size == size - SH_NAME_CHUNK_HEAD_BYTES);
        struct sh_reader r = sh_reader_make(entries);
        while (sh_name_entry_get(&r, &cid, &name))
            SH_ASSERT(cid.v && name.size && name.size <= 255);
        SH_ASSERT(sh_reader_done(&r));
    }
    free(chunk);
    return 0;
}
