#include "cmd/text_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

#define DUMP_COLUMNS 16

const char *sh_cid_format(shoal_cid cid, char text_out[SH_CID_TEXT_MAX])
{
    int size = snprintf(text_out, SH_CID_TEXT_MAX, "%u:%" PRIu64,
                        (unsigned)shoal_cid_creator(cid).v, shoal_cid_local(cid));
    SH_ASSERT(size > 0 && size < SH_CID_TEXT_MAX);
    return text_out;
}

/* Decimal digits up to `end`, at most max; strtoull alone would take signs and blanks. */
static bool parse_decimal(const char *text, const char *end, uint64_t max, uint64_t *value_out)
{
    uint64_t value = 0;
    if (text == end)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *value_out = value;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool parse_hex_cid(const char *text, uint64_t *value_out)
{
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        text += 2;
    if (strlen(text) != 16)
        return false;
    uint64_t value = 0;
    for (; *text; text++) {
        int digit = hex_digit(*text);
        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *value_out = value;
    return true;
}

enum shoal_err sh_cid_parse(const char *text, shoal_cid *cid_out)
{
    shoal_cid cid = SHOAL_CID_NONE;
    const char *colon = strchr(text, ':');
    if (colon) {
        uint64_t node, local;
        if (!parse_decimal(text, colon, UINT16_MAX, &node) ||
            !parse_decimal(colon + 1, text + strlen(text), SHOAL_LOCAL_ID_MAX, &local))
            return SHOAL_EPARSE;
        cid = shoal_cid_make((shoal_nid){(uint16_t)node}, local);
    } else if (!parse_hex_cid(text, &cid.v)) {
        return SHOAL_EPARSE;
    }
    if (shoal_cid_creator(cid).v == 0)
        return SHOAL_EPARSE;
    *cid_out = cid;
    return SHOAL_OK;
}

enum shoal_err sh_nid_parse(const char *text, shoal_nid *nid_out)
{
    uint64_t value;
    if (!parse_decimal(text, text + strlen(text), UINT16_MAX, &value) || value == 0)
        return SHOAL_EPARSE;
    *nid_out = (shoal_nid){(uint16_t)value};
    return SHOAL_OK;
}

enum shoal_err sh_hex_parse(const char *text, uint8_t **bytes_out, size_t *size_out,
                            size_t *bad_out)
{
    size_t size = 0, at = 0;
    uint8_t *bytes = malloc(strlen(text) / 2 + 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    for (;;) {
        at += strspn(&text[at], " \t\r\n");
        if (text[at] == '\0')
            break;
        int high = hex_digit(text[at]);
        int low = high < 0 ? -1 : hex_digit(text[at + 1]);
        if (low < 0) {
            if (bad_out)
                *bad_out = at + (high >= 0);
            free(bytes);
            return SHOAL_EPARSE;
        }
        bytes[size++] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    *bytes_out = bytes;
    *size_out = size;
    return SHOAL_OK;
}

void sh_hex_print(struct sh_bytes bytes, FILE *out)
{
    for (size_t i = 0; i < bytes.size; i++)
        fprintf(out, "%02x", bytes.at[i]);
}

static void dump_line(const uint8_t *at, size_t count, uint64_t offset, FILE *out)
{
    fprintf(out, "%08" PRIx64 " ", offset);
    for (size_t i = 0; i < DUMP_COLUMNS; i++) {
        if (i == DUMP_COLUMNS / 2)
            fputc(' ', out);
        if (i < count)
            fprintf(out, " %02x", at[i]);
        else
            fputs("   ", out);
    }
    fputs("  |", out);
    for (size_t i = 0; i < count; i++)
        fputc(at[i] >= 0x20 && at[i] < 0x7f ? at[i] : '.', out);
    fputs("|\n", out);
}

void sh_dump_print(struct sh_bytes bytes, FILE *out)
{
    for (size_t at = 0; at < bytes.size; at += DUMP_COLUMNS) {
        size_t left = bytes.size - at;
        dump_line(bytes.at + at, left < DUMP_COLUMNS ? left : DUMP_COLUMNS, at, out);
    }
}

/* The length of the character at `at` when a terminal may have it as it is; else 0. */
static size_t clean_take(struct sh_bytes bytes, size_t at)
{
    uint32_t code;
    size_t size = sh_utf8_take(bytes.at + at, bytes.size - at, &code);
    if (size == 0 || (sh_utf8_hostile(code) && code != '\n' && code != '\t'))
        return 0;
    return size;
}

void sh_text_print(struct sh_bytes bytes, FILE *out)
{
    for (size_t at = 0; at < bytes.size;) {
        size_t size = clean_take(bytes, at);
        if (size == 0)
            fprintf(out, "\\x%02x", bytes.at[at++]);
        else
            fwrite(bytes.at + at, 1, size, out);
        at += size;
    }
}

bool sh_text_is_clean(struct sh_bytes bytes)
{
    for (size_t at = 0; at < bytes.size;) {
        size_t size = clean_take(bytes, at);
        if (size == 0)
            return false;
        at += size;
    }
    return true;
}

const char *sh_size_format(uint64_t bytes, char text_out[SH_SIZE_TEXT_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;
    while (value >= 1023.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    int size =
        snprintf(text_out, SH_SIZE_TEXT_MAX, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    SH_ASSERT(size > 0 && size < SH_SIZE_TEXT_MAX);
    return text_out;
}
