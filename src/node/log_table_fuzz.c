/* A client reads a table of a peer's logs: each table that the reader takes comes out as it was. */
#include <string.h>

#include "base/assert.h"
#include "proto/logs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_log_table table;
    static uint8_t again[sizeof table];
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    if (!sh_log_table_get(&r, &table))
        return 0;
    SH_ASSERT(sh_log_table_bytes(&table) == size && size <= sizeof again);
    struct sh_writer w = sh_writer_make(again, size);
    sh_log_table_put(&w, &table);
    SH_ASSERT(sh_writer_ok(&w));
    SH_ASSERT(memcmp(again, data, size) == 0);
    for (uint32_t i = 0; i < table.rows; i++)
        (void)sh_log_table_value(&table, i, table.names[table.columns - 1]);
    return 0;
}
