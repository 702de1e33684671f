/* Makes a manual page from its template: a line @OPTIONS@ becomes a list of every option, @ERRORS@
 * one of every error, @COMMANDS@ one of every command and @FLAGS@ one of the commands' flags, from
 * the tables that the programs are built from, and @VERSION@ within a line the version. Runs during
 * the build.
 *
 *     man_tables TEMPLATE PAGE */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 4096

/* Text as roff: backslashes and hyphens are escaped, and so is a point or quote that begins a line,
 * which would be a request. */
static void print_text(FILE *page, const char *text)
{
    if (*text == '.' || *text == '\'') {
        fputs("\\&", page);
    }
    for (; *text; text++) {
        if (*text == '\\') {
            fputs("\\e", page);
        } else if (*text == '-') {
            fputs("\\-", page);
        } else {
            fputc(*text, page);
        }
    }
}

static void print_option(FILE *page, const char *name, const char *kind, const char *unit,
                         const char *preset, const char *meaning)
{
    fputs(".TP\n.B \\-\\-", page);
    for (const char *c = name; *c; c++) {
        fputs(*c == '_' ? "\\-" : (char[2]){*c, 0}, page);
    }
    if (strcmp(kind, "BOOL") != 0) {
        const char *value = strcmp(kind, "U64") == 0    ? "NUMBER"
                            : strcmp(kind, "LIST") == 0 ? "TEXT,TEXT..."
                                                        : "TEXT";
        fprintf(page, " \\fI%s\\fR", value);
    }
    fputc('\n', page);
    print_text(page, meaning);
    fputs(".\n", page);
    if (*unit) {
        fprintf(page, "Unit: %s.\n", unit);
    }
    if (*preset) {
        fputs("Default: ", page);
        print_text(page, preset);
        fputs(".\n", page);
    }
}

static void print_options(FILE *page)
{
#define X(name, kind, unit, min, max, preset, meaning)                                             \
    print_option(page, #name, #kind, unit, preset, meaning);
#include "base/options.def"
#undef X
}

static void print_error(FILE *page, const char *name, int number, const char *text,
                        const char *hint)
{
    fprintf(page, ".TP\n.B SHOAL_%s \\fR(%d)\n", name, number);
    print_text(page, text);
    if (*hint) {
        fputs(": ", page);
        print_text(page, hint);
    }
    fputs(".\n", page);
}

static void print_errors(FILE *page)
{
#define X(name, number, text, hint) print_error(page, #name, number, text, hint);
#include "shoal/err.def"
#undef X
}

static void print_command(FILE *page, const char *name, const char *arguments, const char *summary,
                          const char *more, const char *examples)
{
    fputs(".TP\n.B ", page);
    print_text(page, name);
    if (*arguments) {
        fputs(" \\fI", page);
        print_text(page, arguments);
        fputs("\\fR", page);
    }
    fputc('\n', page);
    print_text(page, summary);
    fputs(".\n", page);
    if (*more) {
        print_text(page, more);
        fputc('\n', page);
    }
    fputs(".RS\n.PP\n.nf\n", page);
    while (*examples) {
        char line[LINE_BYTES_MAX];
        size_t size = strcspn(examples, "\n");
        snprintf(line, sizeof line, "%.*s", (int)size, examples);
        print_text(page, line);
        fputc('\n', page);
        examples += size + (examples[size] == '\n');
    }
    fputs(".fi\n.RE\n", page);
}

static void print_commands(FILE *page)
{
#define COMMAND(ident, name, arguments, min, max, flags, summary, more, examples)                  \
    print_command(page, name, arguments, summary, more, examples);
#include "cmd/commands.def"
#undef COMMAND
}

static void print_flag(FILE *page, const char *name, const char *value, const char *meaning)
{
    fputs(".TP\n.B \\-\\-", page);
    print_text(page, name);
    if (*value) {
        fputs(" \\fI", page);
        print_text(page, value);
        fputs("\\fR", page);
    }
    fputc('\n', page);
    print_text(page, meaning);
    fputs(".\n", page);
}

static void print_flags(FILE *page)
{
#define FLAG(ident, name, kind, value, meaning) print_flag(page, name, value, meaning);
#include "cmd/flags.def"
#undef FLAG
}

static void print_line(FILE *page, const char *line)
{
    const char mark[] = "@VERSION@";
    const char *found;

    if (strcmp(line, "@OPTIONS@\n") == 0) {
        print_options(page);
        return;
    }
    if (strcmp(line, "@COMMANDS@\n") == 0) {
        print_commands(page);
        return;
    }
    if (strcmp(line, "@FLAGS@\n") == 0) {
        print_flags(page);
        return;
    }
    if (strcmp(line, "@ERRORS@\n") == 0) {
        print_errors(page);
        return;
    }
    while ((found = strstr(line, mark)) != NULL) {
        fprintf(page, "%.*s%s", (int)(found - line), line, SHOAL_VERSION);
        line = found + strlen(mark);
    }
    fputs(line, page);
}

int main(int argc, char **argv)
{
    char line[LINE_BYTES_MAX];

    if (argc != 3) {
        fputs("usage: man_tables TEMPLATE PAGE\n", stderr);
        return 2;
    }
    FILE *template = fopen(argv[1], "r");
    if (!template) {
        perror(argv[1]);
        return 1;
    }
    FILE *page = fopen(argv[2], "w");
    if (!page) {
        perror(argv[2]);
        fclose(template);
        return 1;
    }
    while (fgets(line, sizeof line, template)) {
        print_line(page, line);
    }
    bool failed = ferror(template) || ferror(page);
    failed |= fclose(page) != 0;
    fclose(template);
    if (failed) {
        fprintf(stderr, "man_tables: %s could not be written\n", argv[2]);
        remove(argv[2]);
    }
    return failed;
}
