/* Any bytes as a file of `shoal metadata save`: an error says why, and what is accepted has at most as
 * many nodes as it says and shards that can be walked. The magic, the format and the file's checksum
 * are set right first, or no input would get past them; those of the pieces are the input's. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cmd/metadata_file_int.h"
#include "ring/arcs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAGIC UINT64_C(0x54454d4c414f4853)
#define HEAD 10
#define TAIL 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = calloc(1, HEAD + size + TAIL);
    if (!bytes)
        return 0;
    sh_store64(bytes, MAGIC);
    sh_store16(bytes + 8, 1);
    if (size)
        memcpy(bytes + HEAD, data, size);
    size_t checked = HEAD + size + TAIL - 4;
    sh_store32(bytes + checked, sh_crc32c(0, sh_bytes_make(bytes, checked)));
    struct sh_metadata_saved saved;
    enum shoal_err err = sh_metadata_file_parse(sh_bytes_make(bytes, checked + 4), &saved);
    SH_ASSERT(err != SHOAL_EVERSION && (err != SHOAL_ETRUNCATED || checked < 24));
    if (!err) {
        SH_ASSERT(saved.count * 6 <= size && strlen(saved.cluster) < sizeof saved.cluster);
        for (unsigned i = 0; i < SH_SHARDS; i++)
            (void)sh_metadata_measure(saved.metadata, i);
        sh_metadata_saved_free(&saved);
    }
    free(bytes);
    return 0;
}
