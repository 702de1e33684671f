/* A superpeer's report from any bytes: what is accepted is encoded to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_report report;
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    if (sh_report_get(&r, &report))
        return 0;
    SH_ASSERT(sh_report_size(&report) == size && size <= SH_REPORT_BYTES_MAX);
    uint8_t *again = malloc(size);
    SH_ASSERT(again);
    struct sh_writer w = sh_writer_make(again, size);
    sh_report_put(&w, &report);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    SH_ASSERT(memcmp(again, data, size) == 0);
    free(again);
    return 0;
}
