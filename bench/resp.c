#include "bench/resp.h"

#include <string.h>

#include "base/assert.h"

#define LENGTH_DIGITS_MAX 10
#define ARRAY_MAX 65536
#define BULK_MAX (UINT64_C(512) << 20) /* Redis's own limit */

static uint8_t *text_put(uint8_t *at, const char *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}

#define TEXT_PUT(at, text) text_put(at, text, sizeof(text) - 1)

static uint8_t *number_put(uint8_t *at, uint64_t number)
{
    uint8_t digits[20];
    unsigned count = 0;
    do {
        digits[count++] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count)
        *at++ = digits[--count];
    return at;
}

static unsigned digits_of(uint64_t number)
{
    unsigned digits = 1;
    for (; number >= 10; number /= 10)
        digits++;
    return digits;
}

static uint8_t *key_put(uint8_t *at, uint64_t key)
{
    at = TEXT_PUT(at, "$");
    at = number_put(at, digits_of(key));
    at = TEXT_PUT(at, "\r\n");
    at = number_put(at, key);
    return TEXT_PUT(at, "\r\n");
}

uint8_t *sh_resp_mget(uint8_t *into, const uint64_t *keys, unsigned count)
{
    SH_ASSERT(count > 0);
    into = TEXT_PUT(into, "*");
    into = number_put(into, count + 1);
    into = TEXT_PUT(into, "\r\n$4\r\nMGET\r\n");
    for (unsigned i = 0; i < count; i++)
        into = key_put(into, keys[i]);
    return into;
}

uint8_t *sh_resp_get(uint8_t *into, uint64_t key)
{
    return key_put(TEXT_PUT(into, "*2\r\n$3\r\nGET\r\n"), key);
}

uint8_t *sh_resp_set(uint8_t *into, uint64_t key, size_t value_bytes, uint8_t **value_out)
{
    into = key_put(TEXT_PUT(into, "*3\r\n$3\r\nSET\r\n"), key);
    into = TEXT_PUT(into, "$");
    into = number_put(into, value_bytes);
    into = TEXT_PUT(into, "\r\n");
    *value_out = into;
    return TEXT_PUT(into + value_bytes, "\r\n");
}

/* A line's length without its end; SIZE_MAX where the end has not come. */
static size_t line_length(struct sh_bytes input)
{
    const uint8_t *end = memchr(input.at, '\r', input.size);
    if (!end || (size_t)(end - input.at) + 2 > input.size)
        return SIZE_MAX;
    return (size_t)(end - input.at);
}

/* The number of a length line; false for anything but 1 to 10 digits. */
static bool length_read(struct sh_bytes digits, uint64_t *length_out)
{
    if (digits.size == 0 || digits.size > LENGTH_DIGITS_MAX)
        return false;
    uint64_t length = 0;
    for (size_t i = 0; i < digits.size; i++) {
        if (digits.at[i] < '0' || digits.at[i] > '9')
            return false;
        length = length * 10 + (uint64_t)(digits.at[i] - '0');
    }
    *length_out = length;
    return true;
}

static struct sh_resp bulk_read(struct sh_bytes input, struct sh_bytes line, size_t taken)
{
    uint64_t length = 0;
    if (line.size == 2 && memcmp(line.at, "-1", 2) == 0)
        return (struct sh_resp){.kind = SH_RESP_NIL, .taken = taken};
    if (!length_read(line, &length) || length > BULK_MAX)
        return (struct sh_resp){.kind = SH_RESP_BAD};
    if (input.size - taken < length + 2)
        return (struct sh_resp){.kind = SH_RESP_PARTIAL};
    return (struct sh_resp){.kind = SH_RESP_BULK,
                            .bytes = sh_bytes_make(input.at + taken, length),
                            .taken = taken + length + 2};
}

struct sh_resp sh_resp_read(struct sh_bytes input)
{
    size_t length = input.size ? line_length(input) : SIZE_MAX;
    if (length == SIZE_MAX)
        return (struct sh_resp){.kind = SH_RESP_PARTIAL};
    if (length == 0)
        return (struct sh_resp){.kind = SH_RESP_BAD};
    struct sh_bytes line = sh_bytes_make(input.at + 1, length - 1);
    uint64_t count = 0;
    switch (input.at[0]) {
    case '+':
        return (struct sh_resp){.kind = SH_RESP_STATUS, .bytes = line, .taken = length + 2};
    case '-':
        return (struct sh_resp){.kind = SH_RESP_ERROR, .bytes = line, .taken = length + 2};
    case '$':
        return bulk_read(input, line, length + 2);
    case '*':
        if (length_read(line, &count) && count <= ARRAY_MAX)
            return (struct sh_resp){
                .kind = SH_RESP_ARRAY, .count = (uint32_t)count, .taken = length + 2};
        return (struct sh_resp){.kind = SH_RESP_BAD};
    default:
        return (struct sh_resp){.kind = SH_RESP_BAD};
    }
}
