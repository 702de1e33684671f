#include "graph/edges.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "graph/input_int.h"

#define BLOCK_BYTES (SH_LINE_BYTES_MAX * 2)
#define DETAIL_BYTES 256

struct sh_edges {
    struct sh_input *input;
    struct sh_types *types;
    uint64_t line; /* number of the line taken last */
    struct sh_wrong_lines wrong;
    char detail[DETAIL_BYTES];
    bool input_end;
    size_t at; /* unread part of block */
    size_t end;
    uint8_t block[BLOCK_BYTES];
};

static enum shoal_err reader_new(struct sh_types *types, struct sh_edges **reader_out)
{
    struct sh_edges *reader = malloc(sizeof *reader);
    if (!reader)
        return SHOAL_ENOMEM;
    memset(reader, 0, offsetof(struct sh_edges, block));
    reader->types = types;
    *reader_out = reader;
    return SHOAL_OK;
}

enum shoal_err sh_edges_open(const char *path, struct sh_types *types, struct sh_edges **reader_out,
                             char *detail)
{
    struct sh_edges *reader;
    detail[0] = '\0';
    enum shoal_err err = reader_new(types, &reader);
    if (err)
        return err;
    err = sh_input_open(path, &reader->input, detail);
    if (err) {
        free(reader);
        return err;
    }
    *reader_out = reader;
    return SHOAL_OK;
}

enum shoal_err sh_edges_open_bytes(struct sh_bytes bytes, struct sh_types *types,
                                   struct sh_edges **reader_out)
{
    struct sh_edges *reader;
    enum shoal_err err = reader_new(types, &reader);
    if (err)
        return err;
    err = sh_input_open_bytes(bytes, &reader->input);
    if (err) {
        free(reader);
        return err;
    }
    *reader_out = reader;
    return SHOAL_OK;
}

void sh_edges_close(struct sh_edges *reader)
{
    if (!reader)
        return;
    sh_input_close(reader->input);
    free(reader);
}

/* Notes that the current line is wrong. word (may be empty) is quoted, shortened and made
 * printable. */
static void note_wrong(struct sh_edges *reader, const char *what, struct sh_bytes word)
{
    struct sh_wrong_lines *wrong = &reader->wrong;
    wrong->count++;
    if (wrong->kept == SH_WRONG_LINES_KEPT)
        return;
    struct sh_wrong_line *line = &wrong->lines[wrong->kept++];
    char quoted[36];
    size_t size = word.size < 32 ? word.size : 32;
    for (size_t i = 0; i < size; i++)
        quoted[i] = word.at[i] >= 0x20 && word.at[i] < 0x7f ? (char)word.at[i] : '?';
    quoted[size] = '\0';
    if (size < word.size)
        memcpy(quoted + size, "...", 4);
    line->line = reader->line;
    if (word.size)
        (void)snprintf(line->text, sizeof line->text, "\"%s\" %s", quoted, what);
    else
        (void)snprintf(line->text, sizeof line->text, "%s", what);
}

/* Moves the unread bytes to the front and reads more behind them. */
static enum shoal_err fill(struct sh_edges *reader)
{
    memmove(reader->block, reader->block + reader->at, reader->end - reader->at);
    reader->end -= reader->at;
    reader->at = 0;
    size_t size;
    enum shoal_err err = sh_input_read(reader->input, reader->block + reader->end,
                                       BLOCK_BYTES - reader->end, &size, reader->detail);
    if (err) {
        reader->input_end = true;
        reader->end = 0;
        return err;
    }
    reader->end += size;
    reader->input_end = size == 0;
    return SHOAL_OK;
}

/* Skips the rest of a line that is longer than any may be. */
static enum shoal_err skip_line(struct sh_edges *reader)
{
    for (;;) {
        uint8_t *from = reader->block + reader->at;
        uint8_t *newline = memchr(from, '\n', reader->end - reader->at);
        if (newline) {
            reader->at = (size_t)(newline - reader->block) + 1;
            return SHOAL_OK;
        }
        reader->at = reader->end;
        if (reader->input_end)
            return SHOAL_OK;
        enum shoal_err err = fill(reader);
        if (err)
            return err;
    }
}

/* The next line that is neither empty nor a comment, without its end. */
static enum shoal_err next_line(struct sh_edges *reader, struct sh_bytes *line_out, bool *end_out)
{
    size_t searched = 0; /* bytes after `at` that hold no newline */
    for (;;) {
        uint8_t *from = reader->block + reader->at;
        size_t left = reader->end - reader->at;
        uint8_t *newline = left > searched ? memchr(from + searched, '\n', left - searched) : NULL;
        size_t size = newline ? (size_t)(newline - from) : left;
        if (!newline && !reader->input_end && left <= SH_LINE_BYTES_MAX) {
            searched = left;
            enum shoal_err err = fill(reader);
            if (err)
                return err;
            continue;
        }
        if (!newline && left == 0) {
            *end_out = true;
            return SHOAL_OK;
        }
        reader->line++;
        searched = 0;
        if (size > SH_LINE_BYTES_MAX) {
            note_wrong(reader, "line is longer than 1 MiB", (struct sh_bytes){NULL, 0});
            enum shoal_err err = skip_line(reader);
            if (err)
                return err;
            continue;
        }
        reader->at += size + (newline != NULL);
        if (size > 0 && from[size - 1] == '\r')
            size--;
        size_t blank = 0;
        while (blank < size && (from[blank] == ' ' || from[blank] == '\t'))
            blank++;
        if (blank == size || from[blank] == '#' || from[blank] == '%')
            continue;
        *line_out = sh_bytes_make(from + blank, size - blank);
        *end_out = false;
        return SHOAL_OK;
    }
}

/* Takes the next column off the line; empty when there is none. */
static struct sh_bytes next_word(struct sh_bytes *line)
{
    size_t from = 0;
    while (from < line->size && (line->at[from] == ' ' || line->at[from] == '\t'))
        from++;
    size_t to = from;
    while (to < line->size && line->at[to] != ' ' && line->at[to] != '\t')
        to++;
    struct sh_bytes word = sh_bytes_make(line->at + from, to - from);
    *line = sh_bytes_make(line->at + to, line->size - to);
    return word;
}

/* Reads a vertex name; on failure notes the line as wrong. */
static bool parse_name(struct sh_edges *reader, struct sh_bytes word, uint64_t *name_out)
{
    uint64_t name = 0;
    if (word.at[0] == '-' && word.size > 1 && word.at[1] >= '0' && word.at[1] <= '9') {
        note_wrong(reader, "is negative: vertices are 0 to 2^64 - 1", word);
        return false;
    }
    for (size_t i = 0; i < word.size; i++) {
        uint8_t digit = (uint8_t)(word.at[i] - '0');
        if (digit > 9) {
            note_wrong(reader, "is not a number", word);
            return false;
        }
        if (__builtin_mul_overflow(name, (uint64_t)10, &name) ||
            __builtin_add_overflow(name, (uint64_t)digit, &name)) {
            note_wrong(reader, "is over 2^64 - 1", word);
            return false;
        }
    }
    *name_out = name;
    return true;
}

/* Reads one line into an edge. *wrong_out: the line was noted as wrong. */
static enum shoal_err parse_edge(struct sh_edges *reader, struct sh_bytes line,
                                 struct sh_edge *edge_out, bool *wrong_out)
{
    struct sh_edge edge = {0};
    struct sh_bytes source = next_word(&line);
    struct sh_bytes target = next_word(&line);
    *wrong_out = true;
    if (!parse_name(reader, source, &edge.source))
        return SHOAL_OK;
    if (target.size == 0) {
        note_wrong(reader, "has no target after it", source);
        return SHOAL_OK;
    }
    if (!parse_name(reader, target, &edge.target))
        return SHOAL_OK;
    if (reader->types) {
        struct sh_bytes type = next_word(&line);
        enum shoal_err err = sh_types_number(reader->types, type, &edge.type);
        if (err == SHOAL_EINVAL) {
            note_wrong(reader,
                       type.size ? "is too long for a relation (255 bytes)"
                                 : "relation is missing (third column)",
                       type);
            return SHOAL_OK;
        }
        if (err) {
            (void)snprintf(reader->detail, DETAIL_BYTES,
                           err == SHOAL_ELIMIT ? "line %llu: more than %d different relations"
                                               : "line %llu: no memory for relation %d",
                           (unsigned long long)reader->line, SH_TYPES_MAX);
            return err;
        }
    }
    *wrong_out = false;
    *edge_out = edge;
    return SHOAL_OK;
}

enum shoal_err sh_edges_next(struct sh_edges *reader, struct sh_edge *edge_out, bool *end_out)
{
    for (;;) {
        struct sh_bytes line;
        bool wrong;
        enum shoal_err err = next_line(reader, &line, end_out);
        if (err || *end_out)
            return err;
        err = parse_edge(reader, line, edge_out, &wrong);
        if (err) {
            reader->input_end = true;
            reader->at = reader->end = 0;
        }
        if (err || !wrong)
            return err;
    }
}

enum shoal_err sh_records_next(struct sh_edges *reader, struct sh_record *record_out, bool *end_out)
{
    for (;;) {
        struct sh_bytes line;
        struct sh_record record;
        enum shoal_err err = next_line(reader, &line, end_out);
        if (err || *end_out)
            return err;
        struct sh_bytes word = next_word(&line);
        if (!parse_name(reader, word, &record.name))
            continue;
        if (line.size > 0) /* the one separator; what follows is the record's own */
            line = sh_bytes_make(line.at + 1, line.size - 1);
        record.text = line;
        *record_out = record;
        return SHOAL_OK;
    }
}

const char *sh_edges_detail(const struct sh_edges *reader)
{
    return reader->detail;
}

const struct sh_wrong_lines *sh_edges_wrong(const struct sh_edges *reader)
{
    return &reader->wrong;
}

uint64_t sh_edges_bytes_done(const struct sh_edges *reader)
{
    return sh_input_bytes_done(reader->input);
}

uint64_t sh_edges_bytes_total(const struct sh_edges *reader)
{
    return sh_input_bytes_total(reader->input);
}
