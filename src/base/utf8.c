#include "base/utf8.h"

#include "base/assert.h"

static bool is_tail(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t sh_utf8_take(const uint8_t *at, size_t left, uint32_t *code_out)
{
    SH_ASSERT(at != NULL && code_out != NULL);
    if (left == 0)
        return 0;
    if (at[0] < 0x80) {
        *code_out = at[0];
        return 1;
    }
    size_t length = at[0] >= 0xF0 ? 4 : at[0] >= 0xE0 ? 3 : 2;
    if (at[0] < 0xC2 || at[0] > 0xF4 || left < length)
        return 0;
    uint32_t code = at[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (!is_tail(at[i]))
            return 0;
        code = code << 6 | (at[i] & 0x3Fu);
    }
    bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (overlong || surrogate || code > 0x10FFFF)
        return 0;
    *code_out = code;
    return length;
}

bool sh_utf8_hostile(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    bool separator = code == 0x2028 || code == 0x2029;
    bool direction = code == 0x200E || code == 0x200F || code == 0x061C ||
                     (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return control || separator || direction;
}
