#include "proto/logs.h"

#include <string.h>

#include "base/assert.h"

const char *sh_log_sink_name(uint64_t state)
{
    static const char *const names[] = {"none",    "home",      "closed", "opening",
                                        "closing", "streaming", "full",   "lost"};
    return state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}

uint64_t sh_log_table_value(const struct sh_log_table *table, uint32_t row, const char *name)
{
    SH_ASSERT(row < table->rows);
    for (unsigned i = 0; i < table->columns; i++) {
        if (strcmp(table->names[i], name) == 0)
            return table->values[(size_t)row * table->columns + i];
    }
    return 0;
}

size_t sh_log_table_bytes(const struct sh_log_table *table)
{
    size_t bytes = 8 + 2 + 4 + (size_t)table->columns * table->rows * 8;
    for (unsigned i = 0; i < table->columns; i++)
        bytes += 2 + strlen(table->names[i]);
    return bytes;
}

void sh_log_table_put(struct sh_writer *w, const struct sh_log_table *table)
{
    size_t values = (size_t)table->columns * table->rows;
    SH_ASSERT(table->columns <= SH_LOG_COLUMNS_MAX);
    SH_ASSERT(values <= SH_LOG_VALUES_MAX);
    sh_put64(w, table->next);
    sh_put16(w, table->columns);
    for (unsigned i = 0; i < table->columns; i++)
        sh_put_text(w, sh_bytes_text(table->names[i]));
    sh_put32(w, table->rows);
    for (size_t i = 0; i < values; i++)
        sh_put64(w, table->values[i]);
}

static bool name_read(struct sh_bytes text, char *name_out)
{
    if (text.size == 0 || text.size >= SH_LOG_NAME_MAX)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.at[i] <= ' ' || text.at[i] > '~')
            return false;
    }
    memcpy(name_out, text.at, text.size);
    name_out[text.size] = '\0';
    return true;
}

bool sh_log_table_get(struct sh_reader *r, struct sh_log_table *table_out)
{
    uint64_t next = sh_get64(r);
    unsigned columns = sh_get16(r);
    if (!sh_reader_ok(r) || columns > SH_LOG_COLUMNS_MAX)
        return false;
    for (unsigned i = 0; i < columns; i++) {
        struct sh_bytes name = sh_get_text(r);
        if (!sh_reader_ok(r) || !name_read(name, table_out->names[i]))
            return false;
    }
    uint32_t rows = sh_get32(r);
    if (!sh_reader_ok(r) || rows > SH_LOG_VALUES_MAX || (rows && !columns) ||
        (size_t)rows * columns > SH_LOG_VALUES_MAX)
        return false;
    for (size_t i = 0; i < (size_t)rows * columns; i++)
        table_out->values[i] = sh_get64(r);
    table_out->next = next;
    table_out->columns = (uint16_t)columns;
    table_out->rows = rows;
    return sh_reader_done(r);
}

void sh_log_dump_ask_put(struct sh_writer *w, const struct sh_log_dump_ask *ask)
{
    sh_put64(w, ask->dump);
    sh_put64(w, ask->zone);
    sh_put64(w, ask->chunk);
    sh_put32(w, ask->page);
}

bool sh_log_dump_ask_get(struct sh_reader *r, struct sh_log_dump_ask *ask_out)
{
    struct sh_log_dump_ask ask;
    ask.dump = sh_get64(r);
    ask.zone = sh_get64(r);
    ask.chunk = sh_get64(r);
    ask.page = sh_get32(r);
    if (!sh_reader_done(r) || !ask.page || (!ask.dump && ask.page != 1))
        return false;
    *ask_out = ask;
    return true;
}

bool sh_log_dump_get(struct sh_reader *r, uint64_t *dump_out, struct sh_log_table *table_out)
{
    uint64_t dump = sh_get64(r);
    if (!sh_reader_ok(r) || !dump || !sh_log_table_get(r, table_out))
        return false;
    *dump_out = dump;
    return true;
}
