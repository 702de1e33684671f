#include "base/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json_int.h"
#include "base/utf8.h"

/* A struct sh_json is a json_t; nobody else sees inside.
 *
 * jansson's integers are signed. A larger one is kept as its digits behind a NUL, which no other
 * text in a tree can hold: built texts are C strings, and the parser refuses \u0000. */
#define LARGE_BYTES_MAX 24

static json_t *of(const struct sh_json *value)
{
    return (json_t *)(uintptr_t)value;
}

static struct sh_json *to(json_t *value)
{
    return (struct sh_json *)value;
}

/* The one place that decides what running out of memory means while building. */
static json_t *made(json_t *value)
{
    if (value)
        return value;
    fputs("out of memory while building JSON\n", stderr);
    abort();
}

static void done(int failure)
{
    if (failure)
        (void)made(NULL);
}

struct sh_json *sh_json_object(void)
{
    return to(made(json_object()));
}

struct sh_json *sh_json_array(void)
{
    return to(made(json_array()));
}

void sh_json_free(struct sh_json *root)
{
    json_decref(of(root));
}

static bool is_large(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           json_string_value(value)[0] == '\0';
}

static json_t *make_u64(uint64_t value)
{
    if (value <= INT64_MAX)
        return made(json_integer((json_int_t)value));
    char digits[LARGE_BYTES_MAX];
    int size = snprintf(digits + 1, sizeof digits - 1, "%" PRIu64, value);
    SH_ASSERT(size == 19 || size == 20);
    digits[0] = '\0';
    return made(json_stringn_nocheck(digits, (size_t)size + 1));
}

/* Copies text with U+FFFD in place of each byte that is not UTF-8. */
static json_t *make_repaired(const char *text, size_t size)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    char *copy = malloc(3 * size);
    if (!copy)
        return made(NULL);
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code = 0;
        size_t length = sh_utf8_take((const uint8_t *)text + at, size - at, &code);
        memcpy(copy + used, length ? text + at : replacement, length ? length : 3);
        used += length ? length : 3;
        at += length ? length : 1;
    }
    json_t *value = json_stringn(copy, used);
    free(copy);
    return made(value);
}

static json_t *make_text(const char *text)
{
    if (!text)
        return json_null();
    /* json_string refuses what is not UTF-8; running out of memory shows up below. */
    json_t *value = json_string(text);
    return value ? value : make_repaired(text, strlen(text));
}

static json_t *make_f64(double value)
{
    return isfinite(value) ? made(json_real(value)) : json_null();
}

static void set(struct sh_json *object, const char *key, json_t *child)
{
    SH_ASSERT(key != NULL);
    if (!object) {
        json_decref(child);
        return;
    }
    SH_ASSERT(json_is_object(of(object)));
    done(json_object_set_new(of(object), key, child));
}

static void append(struct sh_json *array, json_t *child)
{
    if (!array) {
        json_decref(child);
        return;
    }
    SH_ASSERT(json_is_array(of(array)));
    done(json_array_append_new(of(array), child));
}

void sh_json_set_u64(struct sh_json *object, const char *key, uint64_t value)
{
    set(object, key, make_u64(value));
}

void sh_json_set_f64(struct sh_json *object, const char *key, double value)
{
    set(object, key, make_f64(value));
}

void sh_json_set_bool(struct sh_json *object, const char *key, bool value)
{
    set(object, key, json_boolean(value));
}

void sh_json_set_text(struct sh_json *object, const char *key, const char *value)
{
    set(object, key, make_text(value));
}

void sh_json_set(struct sh_json *object, const char *key, struct sh_json *child)
{
    set(object, key, child ? of(child) : json_null());
}

void sh_json_append_u64(struct sh_json *array, uint64_t value)
{
    append(array, make_u64(value));
}

void sh_json_append_text(struct sh_json *array, const char *value)
{
    append(array, make_text(value));
}

void sh_json_append(struct sh_json *array, struct sh_json *child)
{
    append(array, child ? of(child) : json_null());
}

static void print(const json_t *value, FILE *out);

static void print_object(const json_t *object, FILE *out)
{
    const char *separator = "";
    fputc('{', out);
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        fputs(separator, out);
        sh_json_print_text(json_object_iter_key(at), out);
        fputc(':', out);
        print(json_object_iter_value(at), out);
        separator = ",";
    }
    fputc('}', out);
}

static void print_array(const json_t *array, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i > 0)
            fputc(',', out);
        print(json_array_get(array, i), out);
    }
    fputc(']', out);
}

/* 15 digits are all that a double holds for sure, and 0.1 stays 0.1; but near the largest double
 * they could round up to more than any double holds. */
static unsigned digits_of(const json_t *value)
{
    return fabs(json_real_value(value)) < 1e308 ? 15 : 17;
}

/* Recursion is bounded: the parser refuses more than 2048 levels, and builders nest by hand. */
static void print(const json_t *value, FILE *out)
{
    if (json_is_object(value))
        print_object(value, out);
    else if (json_is_array(value))
        print_array(value, out);
    else if (is_large(value))
        fputs(json_string_value(value) + 1, out);
    else
        (void)json_dumpf(value, out, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits_of(value)));
}

void sh_json_print(const struct sh_json *root, FILE *out)
{
    SH_ASSERT(root != NULL);
    print(of(root), out);
    fputc('\n', out);
}

void sh_json_print_text(const char *text, FILE *out)
{
    SH_ASSERT(text != NULL);
    json_t *value = make_text(text);
    print(value, out);
    json_decref(value);
}

/* jansson counts to the end of the token it choked on and quotes that token ("near '...'") when it
 * is short. People look for where the token begins. */
static size_t token_begin(const json_error_t *error, size_t size)
{
    size_t end = error->position > 0 ? (size_t)error->position : 0;
    if (end > size)
        end = size;
    const char *near = strstr(error->text, " near '");
    const char *quoted = near ? near + strlen(" near '") : NULL;
    if (quoted && *quoted != '\0') {
        size_t length = strlen(quoted) - 1;
        return length < end ? end - length : 0;
    }
    return end;
}

enum shoal_err sh_json_parse(const char *text, size_t size, struct sh_json **root_out,
                             struct sh_json_error *error_out)
{
    SH_ASSERT(text != NULL || size == 0);
    SH_ASSERT(error_out != NULL);
    json_error_t error;
    json_t *root = json_loadb(text ? text : "", size, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return SHOAL_ENOMEM;
        sh_json_place(text, token_begin(&error, size), &error_out->line, &error_out->column);
        snprintf(error_out->text, sizeof error_out->text, "%s", error.text);
        return SHOAL_EPARSE;
    }
    *root_out = to(root);
    return SHOAL_OK;
}

const struct sh_json *sh_json_get(const struct sh_json *object, const char *key)
{
    return to(json_object_get(of(object), key));
}

const struct sh_json *sh_json_at(const struct sh_json *array, size_t index)
{
    return to(json_array_get(of(array), index));
}

size_t sh_json_count(const struct sh_json *value)
{
    return json_is_object(of(value)) ? json_object_size(of(value)) : json_array_size(of(value));
}

bool sh_json_is_text(const struct sh_json *value)
{
    return json_is_string(of(value)) && !is_large(of(value));
}

bool sh_json_is_number(const struct sh_json *value)
{
    return json_is_integer(of(value)) || is_large(of(value));
}

bool sh_json_is_negative(const struct sh_json *value)
{
    return json_integer_value(of(value)) < 0;
}

bool sh_json_is_bool(const struct sh_json *value)
{
    return json_is_boolean(of(value));
}

bool sh_json_is_object(const struct sh_json *value)
{
    return json_is_object(of(value));
}

bool sh_json_is_array(const struct sh_json *value)
{
    return json_is_array(of(value));
}

const char *sh_json_text(const struct sh_json *value)
{
    return sh_json_is_text(value) ? json_string_value(of(value)) : NULL;
}

uint64_t sh_json_u64(const struct sh_json *value)
{
    if (is_large(of(value)))
        return strtoull(json_string_value(of(value)) + 1, NULL, 10);
    json_int_t number = json_integer_value(of(value));
    return number > 0 ? (uint64_t)number : 0;
}

double sh_json_f64(const struct sh_json *value)
{
    return is_large(of(value)) ? (double)sh_json_u64(value) : json_number_value(of(value));
}

bool sh_json_bool(const struct sh_json *value)
{
    return json_is_true(of(value));
}

void sh_json_each(const struct sh_json *object,
                  bool (*each)(void *arg, const char *key, const struct sh_json *value), void *arg)
{
    for (void *at = json_object_iter(of(object)); at; at = json_object_iter_next(of(object), at))
        if (!each(arg, json_object_iter_key(at), to(json_object_iter_value(at))))
            return;
}
