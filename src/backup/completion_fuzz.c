/* Completion records from any bytes: what can be read is written as the same bytes again, but for a value that is 0. */
#include <string.h>

#include "backup/completion.h"
#include "base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_completion completion, again;
    uint8_t bytes[SH_COMPLETION_BYTES_MAX];
    if (!sh_completion_get(sh_bytes_make(data, size), &completion))
        return 0;
    SH_ASSERT(size <= SH_COMPLETION_BYTES_MAX && completion.client);
    SH_ASSERT(completion.number > completion.acknowledged);
    size_t put = sh_completion_put(&completion, bytes);
    SH_ASSERT(put <= size);
    SH_ASSERT(sh_completion_get(sh_bytes_make(bytes, put), &again));
    SH_ASSERT(again.client == completion.client && again.number == completion.number &&
              again.acknowledged == completion.acknowledged && again.node == completion.node &&
              again.chunk == completion.chunk && again.is_create == completion.is_create &&
              again.value == completion.value);
    return 0;
}
