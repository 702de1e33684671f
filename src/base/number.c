#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/options.h"

struct suffix {
    const char *text;
    uint64_t factor;
};

/* Smallest first. */
static const struct suffix byte_suffixes[] = {
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
};
static const struct suffix time_suffixes[] = {
    {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"min", 60000000000},
};
#define SUFFIX_COUNT 5

/* Five of them, or NULL for a unit without. */
static const struct suffix *suffixes_of(const char *unit)
{
    if (strcmp(unit, "bytes") == 0)
        return byte_suffixes;
    return strcmp(unit, "ns") == 0 ? time_suffixes : NULL;
}

const char *sh_number_suffixes(const char *unit)
{
    const struct suffix *suffixes = suffixes_of(unit);
    if (!suffixes)
        return NULL;
    return suffixes == byte_suffixes ? "B, KiB, MiB, GiB or TiB" : "ns, us, ms, s or min";
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static enum shoal_err parse_factor(const char *text, const char *unit, uint64_t *factor_out)
{
    *factor_out = 1;
    if (*text == '\0')
        return SHOAL_OK;
    const struct suffix *suffixes = suffixes_of(unit);
    for (size_t i = 0; suffixes && i < SUFFIX_COUNT; i++) {
        if (strcmp(text, suffixes[i].text) == 0) {
            *factor_out = suffixes[i].factor;
            return SHOAL_OK;
        }
    }
    return SHOAL_EPARSE;
}

enum shoal_err sh_number_parse(const char *text, const char *unit, uint64_t *value_out)
{
    SH_ASSERT(text != NULL && unit != NULL);
    /* Digits first and meaning later: "99999999999999999999x" is malformed before it is large. */
    const char *at = text;
    bool overflow = false;
    uint64_t whole = 0;
    for (; is_digit(*at); at++) {
        overflow |= __builtin_mul_overflow(whole, 10, &whole);
        overflow |= __builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole);
    }
    if (at == text)
        return SHOAL_EPARSE;
    uint64_t fraction = 0, fraction_scale = 1;
    if (*at == '.' && suffixes_of(unit)) {
        if (!is_digit(*++at))
            return SHOAL_EPARSE;
        /* Eighteen places are as exact as 64 bits; further ones can't reach a whole byte. */
        for (; is_digit(*at); at++) {
            if (fraction_scale < UINT64_C(1000000000000000000)) {
                fraction = fraction * 10 + (uint64_t)(*at - '0');
                fraction_scale *= 10;
            }
        }
    }
    uint64_t factor = 1;
    enum shoal_err err = parse_factor(at, unit, &factor);
    if (err != SHOAL_OK)
        return err;
    uint64_t value = 0;
    uint64_t rest = (uint64_t)((unsigned __int128)fraction * factor / fraction_scale);
    overflow |= __builtin_mul_overflow(whole, factor, &value);
    overflow |= __builtin_add_overflow(value, rest, &value);
    if (overflow)
        return SHOAL_ERANGE;
    *value_out = value;
    return SHOAL_OK;
}

const char *sh_number_format(uint64_t value, const char *unit, char text_out[SH_NUMBER_TEXT_MAX])
{
    const struct suffix *suffixes = suffixes_of(unit);
    uint64_t factor = 1;
    const char *suffix = "";
    for (size_t i = 1; suffixes && value > 0 && i < SUFFIX_COUNT; i++) {
        if (value % suffixes[i].factor == 0) {
            factor = suffixes[i].factor;
            suffix = suffixes[i].text;
        }
    }
    if (factor == 1 && suffixes == time_suffixes && value > 0)
        suffix = "ns";
    snprintf(text_out, SH_NUMBER_TEXT_MAX, "%" PRIu64 "%s", value / factor, suffix);
    return text_out;
}
