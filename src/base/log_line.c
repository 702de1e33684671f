#include "base/log_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/utf8.h"

/* Kept free for what ends a line: a quote, truncated=true, a brace and the newline. */
#define TAIL_BYTES 64
#define ROOM (SH_LOG_LINE_BYTES_MAX - TAIL_BYTES)

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

/* All or nothing; false, and the line is marked as cut, when it does not fit. */
static bool append(struct sh_log_line *line, const char *bytes, size_t size)
{
    if (line->cut || line->size + size > ROOM) {
        line->cut = true;
        return false;
    }
    memcpy(line->text + line->size, bytes, size);
    line->size += size;
    return true;
}

/* For the end of things, for which TAIL_BYTES are kept. */
static void append_tail(struct sh_log_line *line, const char *text)
{
    size_t size = strlen(text);
    SH_ASSERT(line->size + size <= sizeof line->text);
    memcpy(line->text + line->size, text, size);
    line->size += size;
}

__attribute__((format(printf, 2, 3))) static bool append_format(struct sh_log_line *line,
                                                                const char *format, ...)
{
    char text[128];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    SH_ASSERT(size >= 0 && size < (int)sizeof text);
    return append(line, text, (size_t)size);
}

/* A character or bad byte that may not appear as itself. JSON knows no way to write a byte. */
static bool append_escape(struct sh_log_line *line, const uint8_t *at, size_t length, uint32_t code,
                          enum sh_log_format format)
{
    if (length > 0 && (code == '"' || code == '\\'))
        return append_format(line, "\\%c", (char)code);
    if (length > 0 && code == '\n')
        return append(line, "\\n", 2);
    if (length > 0 && code == '\t')
        return append(line, "\\t", 2);
    if (format == SH_LOG_AS_JSON)
        return append_format(line, "\\u%04" PRIx32, length > 0 ? code : 0xFFFD);
    char text[4 * 4 + 1];
    size_t count = length > 0 ? length : 1;
    for (size_t i = 0; i < count; i++)
        snprintf(text + 4 * i, sizeof text - 4 * i, "\\x%02x", at[i]);
    return append(line, text, 4 * count);
}

/* Cuts the text where the line is full, between characters. */
static void append_text(struct sh_log_line *line, const char *text, enum sh_log_format format)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t left = strlen(text);
    while (left > 0) {
        uint32_t code = 0;
        size_t length = sh_utf8_take(at, left, &code);
        bool plain = length > 0 && code != '"' && code != '\\' && !sh_utf8_hostile(code);
        bool fits = plain ? append(line, (const char *)at, length)
                          : append_escape(line, at, length, code, format);
        if (!fits)
            return;
        at += length > 0 ? length : 1;
        left -= length > 0 ? length : 1;
    }
}

static void append_quoted(struct sh_log_line *line, const char *text, enum sh_log_format format)
{
    if (!append(line, "\"", 1))
        return;
    append_text(line, text ? text : "", format);
    append_tail(line, "\"");
}

static void append_f64(struct sh_log_line *line, double value, enum sh_log_format format)
{
    if (!isfinite(value)) {
        const char *name = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
        append_format(line, "%s", format == SH_LOG_AS_JSON ? "null" : name);
        return;
    }
    char text[40];
    int size = snprintf(text, sizeof text, "%.9g", value);
    SH_ASSERT(size > 0 && size < (int)sizeof text);
    /* The program's locale may have another decimal point. */
    for (int i = 0; i < size; i++)
        if (!strchr("0123456789+-e", text[i]))
            text[i] = '.';
    append(line, text, (size_t)size);
}

static void append_err(struct sh_log_line *line, enum shoal_err err, enum sh_log_format format)
{
    if (format == SH_LOG_AS_JSON)
        append_format(line, "\"%s\"", shoal_err_name(err));
    else
        append_format(line, "\"%s (%s)\"", shoal_err_text(err), shoal_err_name(err));
}

static void append_value(struct sh_log_line *line, const struct sh_field *field,
                         enum sh_log_format format)
{
    switch (field->kind) {
    case SH_FIELD_U64:
        append_format(line, "%" PRIu64, field->u64);
        return;
    case SH_FIELD_I64:
        append_format(line, "%" PRId64, field->i64);
        return;
    case SH_FIELD_F64:
        append_f64(line, field->f64, format);
        return;
    case SH_FIELD_TEXT:
        append_quoted(line, field->text, format);
        return;
    case SH_FIELD_ERR:
        append_err(line, field->err, format);
        return;
    }
    SH_ASSERT(!"a field of unknown kind");
}

static void append_field(struct sh_log_line *line, const struct sh_field *field,
                         enum sh_log_format format)
{
    SH_ASSERT(field->key != NULL);
    size_t before = line->size;
    bool json = format == SH_LOG_AS_JSON;
    append(line, json ? ",\"" : " ", json ? 2 : 1);
    append_text(line, field->key, format);
    append(line, json ? "\":" : "=", json ? 2 : 1);
    size_t value_at = line->size;
    append_value(line, field, format);
    /* A text that was cut is worth keeping; a key without a value is not. */
    if (line->cut && (field->kind != SH_FIELD_TEXT || line->size == value_at))
        line->size = before;
}

static void append_time(struct sh_log_line *line, uint64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm tm;
    char text[32] = "";
    if (gmtime_r(&seconds, &tm))
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    append_format(line, "%s.%06uZ", text, (unsigned)(wall_ns / 1000 % 1000000));
}

void sh_log_line_make(struct sh_log_line *line, const struct sh_log_event *event,
                      enum sh_log_format format)
{
    SH_ASSERT(event->level <= SH_LOG_TRACE);
    SH_ASSERT(event->field_count <= SH_LOG_FIELDS_MAX);
    bool json = format == SH_LOG_AS_JSON;
    line->size = 0;
    line->cut = false;
    append_format(line, "%s", json ? "{\"time\":\"" : "");
    append_time(line, event->wall_ns);
    append_format(line, json ? "\",\"level\":\"%s\",\"module\":\"" : " %-5s ",
                  level_names[event->level]);
    append_text(line, event->module, format);
    append_format(line, "%s", json ? "\",\"event\":\"" : "  ");
    append_text(line, event->event, format);
    if (json)
        append_tail(line, "\"");
    if (event->node != 0) {
        struct sh_field node = SH_U64("node", event->node);
        append_field(line, &node, format);
    }
    for (size_t i = 0; i < event->field_count; i++)
        append_field(line, &event->fields[i], format);
    if (line->cut)
        append_tail(line, json ? ",\"truncated\":true" : " truncated=true");
    append_tail(line, json ? "}\n" : "\n");
}
