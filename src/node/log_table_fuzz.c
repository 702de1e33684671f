/* A client reads a table of a peer's logs, or a page of a dump, and a peer what is asked for: what the reader takes comes out as it was. */
#include <string.h>

#include "base/assert.h"
#include "proto/logs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void table_again(const struct sh_log_table *table, const uint8_t *data, size_t size)
{
    static uint8_t again[sizeof *table];
    SH_ASSERT(sh_log_table_bytes(table) == size && size <= sizeof again);
    struct sh_writer w = sh_writer_make(again, size);
    sh_log_table_put(&w, table);
    SH_ASSERT(sh_writer_ok(&w));
    SH_ASSERT(memcmp(again, data, size) == 0);
    for (uint32_t i = 0; i < table->rows; i++)
        (void)sh_log_table_value(table, i, table->names[table->columns - 1]);
}

static void ask_again(const uint8_t *data, size_t size)
{
    uint8_t again[SH_LOG_DUMP_ASK_BYTES];
    struct sh_log_dump_ask ask;
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    if (!sh_log_dump_ask_get(&r, &ask))
        return;
    struct sh_writer w = sh_writer_make(again, sizeof again);
    sh_log_dump_ask_put(&w, &ask);
    SH_ASSERT(sh_writer_ok(&w) && size == sizeof again && memcmp(again, data, size) == 0);
    SH_ASSERT(ask.page && (ask.dump || ask.page == 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_log_table table;
    uint64_t dump;
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    if (sh_log_table_get(&r, &table))
        table_again(&table, data, size);
    r = sh_reader_make(sh_bytes_make(data, size));
    if (sh_log_dump_get(&r, &dump, &table)) {
        SH_ASSERT(dump && size >= 8);
        table_again(&table, data + 8, size - 8);
    }
    ask_again(data, size);
    return 0;
}
