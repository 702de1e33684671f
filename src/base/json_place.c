#include "base/json.h"

#include "base/assert.h"
#include "base/json_int.h"

void sh_json_place(const char *text, size_t offset, int *line_out, int *column_out)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xC0) != 0x80) {
            column++; /* a byte that begins a character */
        }
    }
    *line_out = line;
    *column_out = column;
}

/* The offset just behind the string that begins at the quote at `at`. */
static size_t string_end(const char *text, size_t size, size_t at)
{
    SH_ASSERT(text[at] == '"');
    for (at++; at < size && text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at < size ? at + 1 : size;
}

bool sh_json_member_place(const char *text, size_t size, size_t index, int *line_out,
                          int *column_out)
{
    /* The text has been parsed, so brackets match and a string of the outermost object is a key
     * exactly when it comes first in it or behind one of its commas. */
    unsigned depth = 0;
    bool key_next = false;
    bool in_object = false; /* the outermost value is one */
    for (size_t at = 0; at < size;) {
        char byte = text[at];
        if (byte == '"') {
            if (key_next && index == 0) {
                sh_json_place(text, at, line_out, column_out);
                return true;
            }
            index -= key_next;
            key_next = false;
            at = string_end(text, size, at);
            continue;
        }
        if (byte == '{' || byte == '[') {
            in_object = depth == 0 ? byte == '{' : in_object;
            key_next = in_object && depth == 0;
            depth++;
        } else if (byte == '}' || byte == ']') {
            depth -= depth > 0;
        } else if (byte == ',' && depth == 1) {
            key_next = in_object;
        }
        at++;
    }
    return false;
}
