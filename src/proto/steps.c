#include "proto/steps.h"

#include <string.h>

#include "base/assert.h"

size_t sh_steps_bytes(const struct sh_steps_row *rows, size_t count)
{
    size_t bytes = 2;
    for (size_t i = 0; i < count; i++)
        bytes += 2 + strlen(rows[i].name) + 16;
    return bytes;
}

void sh_steps_put(struct sh_writer *w, const struct sh_steps_row *rows, size_t count)
{
    SH_ASSERT(count <= SH_STEPS_ROWS_MAX);
    sh_put16(w, (uint16_t)count);
    for (size_t i = 0; i < count; i++) {
        sh_put_text(w, sh_bytes_text(rows[i].name));
        sh_put64(w, rows[i].time.longest_ns);
        sh_put64(w, rows[i].time.over);
    }
}

static bool name_read(struct sh_bytes text, char *name_out)
{
    if (text.size == 0 || text.size >= SH_STEPS_NAME_MAX)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.at[i] < ' ' || text.at[i] > '~')
            return false;
    }
    memcpy(name_out, text.at, text.size);
    name_out[text.size] = '\0';
    return true;
}

bool sh_steps_get(struct sh_reader *r, struct sh_steps_row *rows_out, size_t *count_out)
{
    size_t count = sh_get16(r);
    if (!sh_reader_ok(r) || count > SH_STEPS_ROWS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct sh_bytes name = sh_get_text(r);
        rows_out[i].time.longest_ns = sh_get64(r);
        rows_out[i].time.over = sh_get64(r);
        if (!sh_reader_ok(r) || !name_read(name, rows_out[i].name))
            return false;
    }
    *count_out = count;
    return sh_reader_done(r);
}
