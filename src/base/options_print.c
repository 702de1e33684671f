/* Printing options: the effective set, help, and docs/options.md. */
#include "base/options.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/options_int.h"

static void print_list(const struct sh_list *list, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0)
            fputs(", ", out);
        sh_json_print_text(list->items[i], out);
    }
    fputc(']', out);
}

static void print_value(struct sh_option_set set, const struct sh_option_row *row, FILE *out)
{
    const void *member = sh_option_member(set, row);
    switch (row->kind) {
    case SH_OPTION_BOOL:
        fputs(*(const bool *)member ? "true" : "false", out);
        return;
    case SH_OPTION_U64:
        fprintf(out, "%" PRIu64, *(const uint64_t *)member);
        return;
    case SH_OPTION_TEXT:
        sh_json_print_text(*(char *const *)member, out);
        return;
    case SH_OPTION_LIST:
        print_list(member, out);
        return;
    }
    SH_ASSERT(!"an option of unknown kind");
}

void sh_option_set_print_json(struct sh_option_set set, FILE *out)
{
    fputs("{\n", out);
    for (size_t i = 0; i < set.table.count; i++) {
        fprintf(out, "  \"%s\": ", set.table.rows[i].name);
        print_value(set, &set.table.rows[i], out);
        fputs(i + 1 < set.table.count ? ",\n" : "\n", out);
    }
    fputs("}\n", out);
}

void sh_options_print_json(const struct sh_options *options, FILE *out)
{
    sh_option_set_print_json(
        (struct sh_option_set){sh_option_table, (struct sh_options *)(uintptr_t)options}, out);
}

/* What values are allowed, e.g. "4KiB to 1GiB" or "list of texts, 1 to 63 bytes". */
#define BOUNDS_TEXT_MAX 96

static const char *describe_bounds(const struct sh_option_row *row, char text_out[BOUNDS_TEXT_MAX])
{
    char min[SH_NUMBER_TEXT_MAX], max[SH_NUMBER_TEXT_MAX];
    sh_number_format(row->min, row->unit, min);
    sh_number_format(row->max, row->unit, max);
    int size = 0;
    if (row->kind == SH_OPTION_BOOL)
        size = snprintf(text_out, BOUNDS_TEXT_MAX, "true or false");
    else if (row->kind == SH_OPTION_U64)
        size = snprintf(text_out, BOUNDS_TEXT_MAX, "%s to %s", min, max);
    else if (row->min == row->max)
        size = snprintf(text_out, BOUNDS_TEXT_MAX, "%s, %s bytes",
                        row->kind == SH_OPTION_LIST ? "list of texts" : "text", min);
    else
        size = snprintf(text_out, BOUNDS_TEXT_MAX, "%s, %s to %s bytes",
                        row->kind == SH_OPTION_LIST ? "list of texts" : "text", min, max);
    SH_ASSERT(size > 0 && size < BOUNDS_TEXT_MAX);
    return text_out;
}

/* Prints a sentence in lines of at most 90 characters behind an indent. */
static void print_wrapped(const char *text, const char *indent, FILE *out)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > 0 && column + 1 + word > 90) {
            fputc('\n', out);
            column = 0;
        }
        fprintf(out, "%s%.*s", column == 0 ? indent : " ", (int)word, text);
        column += word + (column > 0);
        text += word + (text[word] == ' ');
    }
    fputc('\n', out);
}

void sh_options_print_help(FILE *out)
{
    for (size_t i = 0; i < sh_option_table.count; i++) {
        const struct sh_option_row *row = &sh_option_table.rows[i];
        char flag[SH_OPTION_WORD_MAX], variable[SH_OPTION_WORD_MAX], bounds[BOUNDS_TEXT_MAX];
        sh_option_flag_name(row, flag);
        sh_option_variable_name(row, variable);
        fprintf(out, "%s = %s\n", row->name, *row->preset != '\0' ? row->preset : "(empty)");
        fprintf(out, "    %s, %s; %s\n", flag, variable, describe_bounds(row, bounds));
        print_wrapped(row->meaning, "    ", out);
    }
}

static const char options_head[] =
    "# Options\n"
    "\n"
    "This page is generated from `src/base/options.def` by `shoal config --markdown`.\n"
    "\n"
    "An option can be given in four places. Later ones win:\n"
    "\n"
    "1. its default;\n"
    "2. a JSON file, named by `--config PATH` or the variable `SHOAL_CONFIG`: one object whose\n"
    "   keys are the options' names, as in `{\"listen\": \"127.0.0.1:4100\", \"ring_bytes\": "
    "\"4MiB\"}`;\n"
    "3. a variable of the environment: `SHOAL_` and the name in capitals, as in\n"
    "   `SHOAL_RING_BYTES=4MiB`;\n"
    "4. a flag: `--` and the name with dashes, as in `--ring-bytes 4MiB` or "
    "`--ring-bytes=4MiB`;\n"
    "   a truth value is also set by `--name` and `--no-name`.\n"
    "\n"
    "Sizes take the suffixes B, KiB, MiB, GiB and TiB, times ns, us, ms, s and min; both may have\n"
    "a fraction (`1.5s`). Without a suffix they are bytes and nanoseconds. Lists are separated by\n"
    "commas; in the file they are arrays. An unknown name is refused, and so is a value outside "
    "of\n"
    "its bounds, before anything is opened.\n"
    "\n"
    "`shoal config` prints the options in effect, as JSON that can be used as a file.\n"
    "\n"
    "| option | default | values | meaning |\n"
    "|---|---|---|---|\n";

void sh_options_print_markdown(FILE *out)
{
    fputs(options_head, out);
    for (size_t i = 0; i < sh_option_table.count; i++) {
        const struct sh_option_row *row = &sh_option_table.rows[i];
        char bounds[BOUNDS_TEXT_MAX];
        const char *tick = *row->preset != '\0' ? "`" : "";
        fprintf(out, "| `%s` | %s%s%s | %s | %s |\n", row->name, tick,
                *row->preset != '\0' ? row->preset : "empty", tick, describe_bounds(row, bounds),
                row->meaning);
    }
}
