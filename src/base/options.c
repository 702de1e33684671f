/* The table, and setting an option from text. */
#include "base/options.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/options_int.h"
#include "base/utf8.h"

static const struct sh_option_row rows[] = {
#define X(name, kind, unit, min, max, preset, meaning)                                             \
    {#name, SH_OPTION_##kind, unit, min, max, preset, meaning, offsetof(struct sh_options, name)},
#include "base/options.def"
#undef X
};

const struct sh_option_table sh_option_table = {rows, sizeof rows / sizeof rows[0]};

static struct sh_option_set house_set(struct sh_options *options)
{
    return (struct sh_option_set){sh_option_table, options};
}

void *sh_option_member(struct sh_option_set set, const struct sh_option_row *row)
{
    return (char *)set.values + row->offset;
}

static bool same_name(const char *known, const char *name)
{
    size_t i = 0;
    for (; known[i] != '\0'; i++)
        if (name[i] != known[i] && !(name[i] == '-' && known[i] == '_'))
            return false;
    return name[i] == '\0';
}

const struct sh_option_row *sh_option_find(struct sh_option_table table, const char *name)
{
    for (size_t i = 0; i < table.count; i++)
        if (same_name(table.rows[i].name, name))
            return &table.rows[i];
    return NULL;
}

const char *sh_option_nearest(struct sh_option_table table, const char *name)
{
    char word[SH_OPTION_WORD_MAX];
    const char *known[SH_OPTION_WORD_MAX];
    SH_ASSERT(table.count <= sizeof known / sizeof known[0]);
    if (strlen(name) >= sizeof word)
        return NULL;
    size_t i = 0;
    for (; name[i] != '\0'; i++)
        word[i] = name[i] == '-' ? '_' : name[i];
    word[i] = '\0';
    for (i = 0; i < table.count; i++)
        known[i] = table.rows[i].name;
    return sh_nearest_word(word, known, table.count);
}

const char *sh_options_nearest(const char *name)
{
    return sh_option_nearest(sh_option_table, name);
}

void sh_option_error(struct sh_options_error *error_out, const char *source, const char *format,
                     ...)
{
    SH_ASSERT(error_out != NULL && source != NULL);
    int used = snprintf(error_out->text, sizeof error_out->text, "%s: ", source);
    SH_ASSERT(used > 0);
    if ((size_t)used >= sizeof error_out->text)
        return;
    va_list values;
    va_start(values, format);
    (void)vsnprintf(error_out->text + used, sizeof error_out->text - (size_t)used, format, values);
    va_end(values);
}

enum shoal_err sh_option_unknown(struct sh_option_table table, const char *name, const char *source,
                                 struct sh_options_error *error_out)
{
    char quoted[SH_OPTION_QUOTE_MAX];
    const char *nearest = sh_option_nearest(table, name);
    if (nearest)
        sh_option_error(error_out, source, "unknown option %s; did you mean \"%s\"?",
                        sh_option_quote(name, quoted), nearest);
    else
        sh_option_error(error_out, source, "unknown option %s", sh_option_quote(name, quoted));
    return SHOAL_EOPTION;
}

const char *sh_option_quote(const char *value, char text_out[SH_OPTION_QUOTE_MAX])
{
    static const char more[] = "...\"";
    const uint8_t *at = (const uint8_t *)value;
    size_t left = strlen(value), used = 0;
    text_out[used++] = '"';
    while (left > 0) {
        uint32_t code = 0;
        size_t length = sh_utf8_take(at, left, &code);
        bool plain = length > 0 && !sh_utf8_hostile(code);
        size_t need = plain ? length : 1;
        if (used + need + sizeof more > SH_OPTION_QUOTE_MAX) {
            memcpy(text_out + used, more, sizeof more);
            return text_out;
        }
        memcpy(text_out + used, plain ? (const char *)at : "?", need);
        used += need;
        at += length > 0 ? length : 1;
        left -= length > 0 ? length : 1;
    }
    memcpy(text_out + used, "\"", 2);
    return text_out;
}

void sh_option_flag_name(const struct sh_option_row *row, char text_out[SH_OPTION_WORD_MAX])
{
    int size = snprintf(text_out, SH_OPTION_WORD_MAX, "--%s", row->name);
    SH_ASSERT(size > 0 && size < SH_OPTION_WORD_MAX);
    for (char *at = text_out; *at != '\0'; at++)
        *at = *at == '_' ? '-' : *at;
}

void sh_option_variable_name(const struct sh_option_row *row, char text_out[SH_OPTION_WORD_MAX])
{
    int size = snprintf(text_out, SH_OPTION_WORD_MAX, "SHOAL_%s", row->name);
    SH_ASSERT(size > 0 && size < SH_OPTION_WORD_MAX);
    for (char *at = text_out; *at != '\0'; at++)
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
}

/* One value on its way in: who it is for, what was given, and where from. */
struct input {
    const struct sh_option_row *row;
    const char *value;
    const char *source;
    struct sh_options_error *error_out;
};

static enum shoal_err set_bool(bool *member, const struct input *in)
{
    bool yes = strcmp(in->value, "true") == 0;
    if (!yes && strcmp(in->value, "false") != 0) {
        char quoted[SH_OPTION_QUOTE_MAX];
        sh_option_error(in->error_out, in->source, "%s is not a truth value: %s is true or false",
                        sh_option_quote(in->value, quoted), in->row->name);
        return SHOAL_EPARSE;
    }
    *member = yes;
    return SHOAL_OK;
}

static enum shoal_err refuse_number(const struct input *in, enum shoal_err err)
{
    const struct sh_option_row *row = in->row;
    char quoted[SH_OPTION_QUOTE_MAX], min[SH_NUMBER_TEXT_MAX], max[SH_NUMBER_TEXT_MAX];
    sh_option_quote(in->value, quoted);
    sh_number_format(row->min, row->unit, min);
    sh_number_format(row->max, row->unit, max);
    const char *suffixes = sh_number_suffixes(row->unit);
    if (err == SHOAL_ERANGE)
        sh_option_error(in->error_out, in->source, "%s is out of range: %s must be %s to %s",
                        quoted, row->name, min, max);
    else if (suffixes)
        sh_option_error(in->error_out, in->source,
                        "%s is not a number for %s: write digits and %s, with no blank between",
                        quoted, row->name, suffixes);
    else
        sh_option_error(in->error_out, in->source, "%s is not a whole number: %s must be %s to %s",
                        quoted, row->name, min, max);
    return err;
}

static enum shoal_err set_u64(uint64_t *member, const struct input *in)
{
    uint64_t value = 0;
    enum shoal_err err = sh_number_parse(in->value, in->row->unit, &value);
    bool outside = err == SHOAL_OK && (value < in->row->min || value > in->row->max);
    if (err != SHOAL_OK || outside)
        return refuse_number(in, outside ? SHOAL_ERANGE : err);
    *member = value;
    return SHOAL_OK;
}

static enum shoal_err check_length(const struct input *in)
{
    size_t size = strlen(in->value);
    if (size >= in->row->min && size <= in->row->max)
        return SHOAL_OK;
    char quoted[SH_OPTION_QUOTE_MAX];
    sh_option_error(in->error_out, in->source,
                    "%s is out of range: %s must have %" PRIu64 " to %" PRIu64 " bytes, not %zu",
                    sh_option_quote(in->value, quoted), in->row->name, in->row->min, in->row->max,
                    size);
    return SHOAL_ERANGE;
}

static enum shoal_err out_of_memory(const struct input *in)
{
    sh_option_error(in->error_out, in->source, "%s", shoal_err_text(SHOAL_ENOMEM));
    return SHOAL_ENOMEM;
}

static enum shoal_err set_text(char **member, const struct input *in)
{
    enum shoal_err err = check_length(in);
    if (err != SHOAL_OK)
        return err;
    char *copy = strdup(in->value);
    if (!copy)
        return out_of_memory(in);
    free(*member);
    *member = copy;
    return SHOAL_OK;
}

static void list_clear(struct sh_list *list)
{
    while (list->count > 0)
        free(list->items[--list->count]);
}

/* Adds one item, without the blanks around it. */
static enum shoal_err list_add(struct sh_list *list, const char *item, size_t size,
                               const struct input *in)
{
    for (; size > 0 && *item == ' '; size--)
        item++;
    for (; size > 0 && item[size - 1] == ' '; size--)
        continue;
    char quoted[SH_OPTION_QUOTE_MAX];
    sh_option_quote(in->value, quoted);
    if (size == 0) {
        sh_option_error(in->error_out, in->source, "%s has an empty item: %s is a list", quoted,
                        in->row->name);
        return SHOAL_EPARSE;
    }
    if (list->count == SH_OPTION_LIST_MAX) {
        sh_option_error(in->error_out, in->source, "%s is out of range: %s has at most %d items",
                        quoted, in->row->name, SH_OPTION_LIST_MAX);
        return SHOAL_ERANGE;
    }
    char *copy = strndup(item, size);
    if (!copy)
        return out_of_memory(in);
    list->items[list->count++] = copy;
    return SHOAL_OK;
}

static enum shoal_err set_list(struct sh_list *member, const struct input *in)
{
    struct sh_list list = {.count = 0};
    enum shoal_err err = check_length(in);
    const char *at = in->value;
    while (err == SHOAL_OK && *in->value != '\0') {
        size_t size = strcspn(at, ",");
        err = list_add(&list, at, size, in);
        if (at[size] == '\0')
            break;
        at += size + 1;
    }
    if (err != SHOAL_OK) {
        list_clear(&list);
        return err;
    }
    list_clear(member);
    *member = list;
    return SHOAL_OK;
}

enum shoal_err sh_option_set_text(struct sh_option_set set, const char *name, const char *value,
                                  const char *source, struct sh_options_error *error_out)
{
    SH_ASSERT(name != NULL && value != NULL);
    const struct sh_option_row *row = sh_option_find(set.table, name);
    if (!row)
        return sh_option_unknown(set.table, name, source, error_out);
    struct input in = {row, value, source, error_out};
    void *member = sh_option_member(set, row);
    switch (row->kind) {
    case SH_OPTION_BOOL:
        return set_bool(member, &in);
    case SH_OPTION_U64:
        return set_u64(member, &in);
    case SH_OPTION_TEXT:
        return set_text(member, &in);
    case SH_OPTION_LIST:
        return set_list(member, &in);
    }
    SH_ASSERT(!"an option of unknown kind");
    return SHOAL_EINTERNAL;
}

static void member_destroy(struct sh_option_set set, const struct sh_option_row *row)
{
    if (row->kind == SH_OPTION_TEXT) {
        char **text = sh_option_member(set, row);
        free(*text);
        *text = NULL;
    } else if (row->kind == SH_OPTION_LIST) {
        list_clear(sh_option_member(set, row));
    }
}

void sh_option_set_destroy(struct sh_option_set set)
{
    for (size_t i = 0; i < set.table.count; i++)
        member_destroy(set, &set.table.rows[i]);
}

enum shoal_err sh_option_set_init(struct sh_option_set set)
{
    /* The caller has zeroed the values. */
    struct sh_options_error error;
    for (size_t i = 0; i < set.table.count; i++) {
        const struct sh_option_row *row = &set.table.rows[i];
        enum shoal_err err = sh_option_set_text(set, row->name, row->preset, "default", &error);
        /* Only memory can be missing: the table's own defaults are valid. */
        SH_ASSERT(err == SHOAL_OK || err == SHOAL_ENOMEM);
        if (err != SHOAL_OK) {
            sh_option_set_destroy(set);
            return err;
        }
    }
    return SHOAL_OK;
}

enum shoal_err sh_options_init(struct sh_options *options)
{
    memset(options, 0, sizeof *options);
    return sh_option_set_init(house_set(options));
}

void sh_options_destroy(struct sh_options *options)
{
    sh_option_set_destroy(house_set(options));
}

enum shoal_err sh_options_set(struct sh_options *options, const char *name, const char *value,
                              const char *source, struct sh_options_error *error_out)
{
    return sh_option_set_text(house_set(options), name, value, source, error_out);
}
