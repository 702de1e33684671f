/* Reading options from a JSON file. */
#include "base/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/options_int.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
/* Of a long path, its end says more than its beginning. */
#define PATH_SHOWN_MAX 160

/* The whole text, or NULL and errno; EFBIG when it is too large. */
static char *read_text(const char *path, size_t *size_out)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    char *text = malloc(FILE_BYTES_MAX + 1);
    int cause = text ? 0 : ENOMEM;
    if (text) {
        errno = 0;
        *size_out = fread(text, 1, FILE_BYTES_MAX + 1, file);
        cause = ferror(file) ? errno : *size_out > FILE_BYTES_MAX ? EFBIG : 0;
    }
    (void)fclose(file); /* only read: nothing to lose */
    if (cause == 0)
        return text;
    free(text);
    errno = cause;
    return NULL;
}

struct reading {
    struct sh_option_set set;
    const char *shown_path;
    const char *text;
    size_t size;
    size_t index; /* of the member in the file */
    enum shoal_err err;
    struct sh_options_error *error_out;
};

/* What an array of texts looks like on a command line; to be freed. */
static enum shoal_err join_list(const struct sh_json *list, const char *name, const char *source,
                                char **text_out, struct sh_options_error *error_out)
{
    size_t count = sh_json_count(list), size = 1;
    for (size_t i = 0; i < count; i++) {
        const char *item = sh_json_text(sh_json_at(list, i));
        if (!item || strchr(item, ',')) {
            sh_option_error(error_out, source, "%s must be an array of texts without commas", name);
            return SHOAL_EPARSE;
        }
        size += strlen(item) + 1;
    }
    char *text = malloc(size);
    if (!text) {
        sh_option_error(error_out, source, "%s", shoal_err_text(SHOAL_ENOMEM));
        return SHOAL_ENOMEM;
    }
    char *at = text;
    *at = '\0';
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            *at++ = ',';
        at = stpcpy(at, sh_json_text(sh_json_at(list, i)));
    }
    *text_out = text;
    return SHOAL_OK;
}

static enum shoal_err wrong_type(const struct sh_option_row *row, const char *source,
                                 struct sh_options_error *error_out)
{
    static const char *const expected[] = {
        [SH_OPTION_BOOL] = "true or false",
        [SH_OPTION_U64] = "a whole number",
        [SH_OPTION_TEXT] = "a text",
        [SH_OPTION_LIST] = "an array of texts",
    };
    const char *suffixes = row->kind == SH_OPTION_U64 ? sh_number_suffixes(row->unit) : NULL;
    if (suffixes)
        sh_option_error(error_out, source, "%s must be a whole number, or a text with %s",
                        row->name, suffixes);
    else
        sh_option_error(error_out, source, "%s must be %s", row->name, expected[row->kind]);
    return SHOAL_EPARSE;
}

static enum shoal_err set_number(struct reading *reading, const struct sh_option_row *row,
                                 const struct sh_json *value, const char *source)
{
    char text[SH_NUMBER_TEXT_MAX];
    if (sh_json_is_negative(value)) {
        char min[SH_NUMBER_TEXT_MAX], max[SH_NUMBER_TEXT_MAX];
        sh_option_error(reading->error_out, source, "%.0f is out of range: %s must be %s to %s",
                        sh_json_f64(value), row->name, sh_number_format(row->min, row->unit, min),
                        sh_number_format(row->max, row->unit, max));
        return SHOAL_ERANGE;
    }
    /* No unit: the digits alone. */
    sh_number_format(sh_json_u64(value), "", text);
    return sh_option_set_text(reading->set, row->name, text, source, reading->error_out);
}

static enum shoal_err set_member(struct reading *reading, const struct sh_option_row *row,
                                 const struct sh_json *value, const char *source)
{
    bool is_list = row->kind == SH_OPTION_LIST && sh_json_is_array(value);
    if (row->kind == SH_OPTION_U64 && sh_json_is_number(value))
        return set_number(reading, row, value, source);
    if (row->kind == SH_OPTION_BOOL && sh_json_is_bool(value))
        return sh_option_set_text(reading->set, row->name, sh_json_bool(value) ? "true" : "false",
                                  source, reading->error_out);
    if (row->kind != SH_OPTION_BOOL && sh_json_is_text(value))
        return sh_option_set_text(reading->set, row->name, sh_json_text(value), source,
                                  reading->error_out);
    if (!is_list)
        return wrong_type(row, source, reading->error_out);
    char *text = NULL;
    enum shoal_err err = join_list(value, row->name, source, &text, reading->error_out);
    if (err != SHOAL_OK)
        return err;
    err = sh_option_set_text(reading->set, row->name, text, source, reading->error_out);
    free(text);
    return err;
}

static bool read_member(void *arg, const char *key, const struct sh_json *value)
{
    struct reading *reading = arg;
    int line = 0, column = 0;
    bool found =
        sh_json_member_place(reading->text, reading->size, reading->index++, &line, &column);
    SH_ASSERT(found);
    char source[PATH_SHOWN_MAX + 40];
    snprintf(source, sizeof source, "%s:%d:%d", reading->shown_path, line, column);
    const struct sh_option_row *row = sh_option_find(reading->set.table, key);
    if (row)
        reading->err = set_member(reading, row, value, source);
    else
        reading->err = sh_option_unknown(reading->set.table, key, source, reading->error_out);
    return reading->err == SHOAL_OK;
}

static enum shoal_err read_members(struct reading *reading)
{
    struct sh_json *root = NULL;
    struct sh_json_error error;
    enum shoal_err err = sh_json_parse(reading->text, reading->size, &root, &error);
    if (err == SHOAL_EPARSE) {
        char source[PATH_SHOWN_MAX + 40];
        snprintf(source, sizeof source, "%s:%d:%d", reading->shown_path, error.line, error.column);
        sh_option_error(reading->error_out, source, "malformed JSON: %s", error.text);
        return err;
    }
    if (err != SHOAL_OK) {
        sh_option_error(reading->error_out, reading->shown_path, "%s", shoal_err_text(err));
        return err;
    }
    if (sh_json_is_object(root)) {
        sh_json_each(root, read_member, reading);
    } else {
        char source[PATH_SHOWN_MAX + 40];
        snprintf(source, sizeof source, "%s:1:1", reading->shown_path);
        sh_option_error(reading->error_out, source, "must hold a JSON object");
        reading->err = SHOAL_EPARSE;
    }
    sh_json_free(root);
    return reading->err;
}

enum shoal_err sh_option_set_file(struct sh_option_set set, const char *path,
                                  struct sh_options_error *error_out)
{
    SH_ASSERT(path != NULL);
    char shown_path[PATH_SHOWN_MAX];
    size_t length = strlen(path);
    bool whole = length < sizeof shown_path;
    snprintf(shown_path, sizeof shown_path, "%s%s", whole ? "" : "...",
             whole ? path : path + length - (sizeof shown_path - 4));
    struct reading reading = {.set = set, .shown_path = shown_path, .error_out = error_out};
    char *text = read_text(path, &reading.size);
    if (!text) {
        int code = errno;
        const char *cause = code == EFBIG ? "it has more than 1 MiB" : strerrordesc_np(code);
        sh_option_error(error_out, shown_path, "cannot be read: %s",
                        cause ? cause : "unknown cause");
        return code == ENOMEM ? SHOAL_ENOMEM : SHOAL_EIO;
    }
    reading.text = text;
    enum shoal_err err = read_members(&reading);
    free(text);
    return err;
}

enum shoal_err sh_options_read_file(struct sh_options *options, const char *path,
                                    struct sh_options_error *error_out)
{
    return sh_option_set_file((struct sh_option_set){sh_option_table, options}, path, error_out);
}
