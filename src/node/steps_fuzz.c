/* What a client reads of how long a node's steps take: whatever is taken comes out as it was. */
#include <string.h>

#include "base/assert.h"
#include "node/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_steps_row rows[SH_STEPS_ROWS_MAX];
    static uint8_t again[SH_STEPS_ROWS_MAX * (SH_STEPS_NAME_MAX + 18) + 2];
    size_t count;
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    if (!sh_steps_get(&r, rows, &count))
        return 0;
    SH_ASSERT(sh_steps_bytes(rows, count) == size);
    struct sh_writer w = sh_writer_make(again, size);
    sh_steps_put(&w, rows, count);
    SH_ASSERT(sh_writer_ok(&w));
    SH_ASSERT(memcmp(again, data, size) == 0);
    return 0;
}
