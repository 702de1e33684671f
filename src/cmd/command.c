/* The table of commands, and finding what somebody meant. */
#include "cmd/command_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/text_int.h"

#define F(ident) (UINT64_C(1) << SH_FLAG_##ident)

const struct sh_command sh_commands[] = {
#define COMMAND(ident, name, arguments, min, max, flags, summary, more, examples)                  \
    {name,     arguments,         min, max, (flags) | F(json) | F(help), summary, more,            \
     examples, sh_cmd_run_##ident},
#include "cmd/commands.def"
#undef COMMAND
};
const size_t sh_command_count = sizeof sh_commands / sizeof *sh_commands;

enum flag_kind { KIND_SWITCH, KIND_TEXT, KIND_COUNT, KIND_NODE, KIND_BYTES };

struct flag_row {
    const char *name;
    enum flag_kind kind;
    const char *value;
    const char *meaning;
    size_t offset;
};

static const struct flag_row flag_rows[] = {
#define FLAG(ident, name, kind, value, meaning)                                                    \
    {name, KIND_##kind, value, meaning, offsetof(struct sh_flags, ident)},
#include "cmd/flags.def"
#undef FLAG
};
_Static_assert(sizeof flag_rows / sizeof *flag_rows == SH_FLAGS && SH_FLAGS <= 64,
               "a flag is a bit of a 64-bit set");

#define COUNT_MAX UINT64_C(4294967296)
#define BYTES_MAX (UINT64_C(1) << 30) /* no chunk has more */

/* True when the first words are those of the name, which has one word or two. */
static bool name_matches(const char *name, char *const *words, size_t count, size_t *used_out)
{
    const char *blank = strchr(name, ' ');
    size_t size = blank ? (size_t)(blank - name) : strlen(name);
    if (count == 0 || strlen(words[0]) != size || strncmp(words[0], name, size) != 0)
        return false;
    if (blank && (count < 2 || strcmp(words[1], blank + 1) != 0))
        return false;
    *used_out = blank ? 2 : 1;
    return true;
}

const struct sh_command *sh_command_find(char *const *words, size_t count, size_t *used_out)
{
    for (size_t i = 0; i < sh_command_count; i++)
        if (name_matches(sh_commands[i].name, words, count, used_out))
            return &sh_commands[i];
    return NULL;
}

/* --- Unknown words ------------------------------------------------------------------------- */

#define WORDS_MAX 64

/* The second words of the commands that begin with `group`. */
static size_t group_words(const char *group, const char *words_out[WORDS_MAX])
{
    size_t count = 0, size = strlen(group);
    for (size_t i = 0; i < sh_command_count && count < WORDS_MAX; i++) {
        const char *name = sh_commands[i].name;
        if (strncmp(name, group, size) == 0 && name[size] == ' ')
            words_out[count++] = name + size + 1;
    }
    return count;
}

static void list_words(const char *const *words, size_t count, char *text_out, size_t room)
{
    size_t used = 0;
    *text_out = '\0';
    for (size_t i = 0; i < count && used < room; i++)
        used += (size_t)snprintf(text_out + used, room - used, "%s%s",
                                 i == 0           ? ""
                                 : i + 1 == count ? " or "
                                                  : ", ",
                                 words[i]);
}

/* The first words of all commands, each once; they are cut at the blank into storage. */
static size_t first_words(char storage[][16], const char *words_out[WORDS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < sh_command_count && count < WORDS_MAX; i++) {
        snprintf(storage[count], 16, "%.*s", (int)strcspn(sh_commands[i].name, " "),
                 sh_commands[i].name);
        if (count > 0 && strcmp(storage[count], words_out[count - 1]) == 0)
            continue;
        words_out[count] = storage[count];
        count++;
    }
    return count;
}

void sh_command_unknown(char *const *words, size_t count, char text_out[SH_FLAGS_TEXT_MAX])
{
    const char *known[WORDS_MAX];
    char storage[WORDS_MAX][16], list[160];
    SH_ASSERT(count > 0);
    size_t known_count = group_words(words[0], known);
    if (known_count > 0) {
        const char *nearest = count > 1 ? sh_nearest_word(words[1], known, known_count) : NULL;
        list_words(known, known_count, list, sizeof list);
        if (nearest)
            snprintf(text_out, SH_FLAGS_TEXT_MAX,
                     "no command \"%.20s %.40s\"; did you mean \"%.20s %s\"?", words[0], words[1],
                     words[0], nearest);
        else if (count > 1)
            snprintf(text_out, SH_FLAGS_TEXT_MAX, "no command \"%.20s %.40s\"; there is %s",
                     words[0], words[1], list);
        else
            snprintf(text_out, SH_FLAGS_TEXT_MAX, "%.20s what? Add %s", words[0], list);
        return;
    }
    known_count = first_words(storage, known);
    const char *nearest = sh_nearest_word(words[0], known, known_count);
    snprintf(text_out, SH_FLAGS_TEXT_MAX, "no command \"%.40s\"%s%s%s", words[0],
             nearest ? "; did you mean \"" : "; shoal --help lists all", nearest ? nearest : "",
             nearest ? "\"?" : "");
}

void sh_flag_unknown(const struct sh_command *command, const char *word,
                     char text_out[SH_FLAGS_TEXT_MAX])
{
    const char *known[SH_FLAGS];
    size_t known_count = 0;
    for (unsigned i = 0; i < SH_FLAGS; i++)
        if (!command || command->flags >> i & 1)
            known[known_count++] = flag_rows[i].name;
    char name[64];
    const char *bare = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    const char *nearest = sh_nearest_word(name, known, known_count);
    char dashed[64] = "";
    if (!nearest && (nearest = sh_options_nearest(name)) != NULL) {
        snprintf(dashed, sizeof dashed, "%s", nearest);
        for (char *c = dashed; *c; c++)
            *c = *c == '_' ? '-' : *c;
        nearest = dashed;
    }
    snprintf(text_out, SH_FLAGS_TEXT_MAX, "unknown flag %.60s%s%s%s", word,
             nearest ? "; did you mean --" : "", nearest ? nearest : "", nearest ? "?" : "");
}

/* --- Flags --------------------------------------------------------------------------------- */

/* The command's flag of this name, or NULL. */
static const struct flag_row *flag_find(const struct sh_command *command, const char *name,
                                        size_t size)
{
    for (unsigned i = 0; i < SH_FLAGS; i++)
        if (command->flags >> i & 1 && strlen(flag_rows[i].name) == size &&
            strncmp(flag_rows[i].name, name, size) == 0)
            return &flag_rows[i];
    return NULL;
}

/* The flag that a word of argv is, or NULL; *value_out is what stands behind its "=", or NULL. */
static const struct flag_row *flag_match(const struct sh_command *command, char *word,
                                         char **value_out)
{
    *value_out = NULL;
    if (strcmp(word, "-h") == 0)
        return flag_find(command, "help", 4);
    if (strcmp(word, "-o") == 0)
        return flag_find(command, "output", 6);
    if (strncmp(word, "--", 2) != 0)
        return NULL;
    size_t size = strcspn(word + 2, "=");
    if (word[2 + size] == '=')
        *value_out = word + 2 + size + 1;
    return flag_find(command, word + 2, size);
}

static enum shoal_err flag_set(const struct flag_row *row, const char *value,
                               struct sh_flags *flags, char text_out[SH_FLAGS_TEXT_MAX])
{
    void *member = (char *)flags + row->offset;
    uint64_t number;
    switch (row->kind) {
    case KIND_SWITCH:
        *(bool *)member = true;
        return SHOAL_OK;
    case KIND_TEXT:
        *(const char **)member = value;
        return SHOAL_OK;
    case KIND_COUNT:
        if (sh_number_parse(value, "", &number) == SHOAL_OK && number >= 1 && number <= COUNT_MAX) {
            *(uint64_t *)member = number;
            return SHOAL_OK;
        }
        snprintf(text_out, SH_FLAGS_TEXT_MAX, "--%s: \"%.40s\" is not a number from 1 to %" PRIu64,
                 row->name, value, COUNT_MAX);
        return SHOAL_EPARSE;
    case KIND_BYTES:
        if (sh_number_parse(value, "bytes", &number) == SHOAL_OK && number <= BYTES_MAX) {
            *(struct sh_flag_bytes *)member = (struct sh_flag_bytes){true, (uint32_t)number};
            return SHOAL_OK;
        }
        snprintf(text_out, SH_FLAGS_TEXT_MAX,
                 "--%s: \"%.40s\" is not a size: write bytes, or B, KiB, MiB or GiB behind the "
                 "number, at most 1GiB",
                 row->name, value);
        return SHOAL_EPARSE;
    case KIND_NODE:
        if (sh_nid_parse(value, member) == SHOAL_OK)
            return SHOAL_OK;
        snprintf(text_out, SH_FLAGS_TEXT_MAX,
                 "--%s: \"%.40s\" is not a node ID (1 to 65535; see `shoal node list`)", row->name,
                 value);
        return SHOAL_EPARSE;
    }
    SH_ASSERT(!"a flag of unknown kind");
    return SHOAL_EINTERNAL;
}

enum shoal_err sh_flags_take(const struct sh_command *command, int *argc_inout, char **argv,
                             struct sh_flags *flags_out, char text_out[SH_FLAGS_TEXT_MAX])
{
    struct sh_flags flags = {0};
    int kept = 1, at = 1, argc = *argc_inout;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        char *value, *word = argv[at];
        const struct flag_row *row = flag_match(command, word, &value);
        if (!row) {
            argv[kept++] = word;
            continue;
        }
        if (row->kind == KIND_SWITCH && value) {
            snprintf(text_out, SH_FLAGS_TEXT_MAX, "--%s takes no value", row->name);
            return SHOAL_EPARSE;
        }
        if (row->kind != KIND_SWITCH && !value) {
            if (at + 1 == argc) {
                snprintf(text_out, SH_FLAGS_TEXT_MAX, "--%s needs a value: %s", row->name,
                         row->value);
                return SHOAL_EPARSE;
            }
            value = argv[++at];
        }
        enum shoal_err err = flag_set(row, value, &flags, text_out);
        if (err != SHOAL_OK)
            return err;
    }
    while (at < argc)
        argv[kept++] = argv[at++];
    argv[kept] = NULL;
    *argc_inout = kept;
    *flags_out = flags;
    return SHOAL_OK;
}

/* --- Help ---------------------------------------------------------------------------------- */

/* Prints a text in lines of at most 90 characters behind an indent. */
static void wrapped_print(const char *text, unsigned indent, FILE *out)
{
    size_t column = 0;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > 0 && column + 1 + word > 90 - indent) {
            fputc('\n', out);
            column = 0;
        }
        if (column == 0)
            fprintf(out, "%*s", (int)indent, "");
        fprintf(out, "%s%.*s", column == 0 ? "" : " ", (int)word, text);
        column += word + (column > 0);
        text += word + (text[word] == ' ');
    }
    fputc('\n', out);
}

static void lines_print(const char *lines, unsigned indent, FILE *out)
{
    while (*lines) {
        size_t size = strcspn(lines, "\n");
        fprintf(out, "%*s%.*s\n", (int)indent, "", (int)size, lines);
        lines += size + (lines[size] == '\n');
    }
}

static void exit_statuses_print(FILE *out)
{
    fputs("exit status: 0 done; 1 failed; 2 called wrongly, or wrong options; 3 no cluster: none\n"
          "is running, it can't be reached, or it refuses us\n",
          out);
}

static void command_line_print(const struct sh_command *command, FILE *out)
{
    char usage[80];
    snprintf(usage, sizeof usage, "%s%s%s", command->name, *command->arguments ? " " : "",
             command->arguments);
    fprintf(out, "  %-26s %s\n", usage, command->summary);
}

bool sh_group_help_print(const char *group, FILE *out)
{
    const char *words[WORDS_MAX];
    size_t size = strlen(group);
    if (group_words(group, words) == 0)
        return false;
    fprintf(out, "usage: shoal %s COMMAND [ARGUMENT...] [FLAG...]\n\ncommands:\n", group);
    for (size_t i = 0; i < sh_command_count; i++)
        if (strncmp(sh_commands[i].name, group, size) == 0 && sh_commands[i].name[size] == ' ')
            command_line_print(&sh_commands[i], out);
    fprintf(out,
            "\n`shoal %s COMMAND --help` says more about one of them, `shoal --help` lists all "
            "commands.\n",
            group);
    return true;
}

void sh_help_print(FILE *out)
{
    fputs("usage: shoal COMMAND [ARGUMENT...] [FLAG...]\n\ncommands:\n", out);
    for (size_t i = 0; i < sh_command_count; i++)
        command_line_print(&sh_commands[i], out);
    fputs("\nflags of every command:\n"
          "  --json                     print the answer, or the error, as JSON\n"
          "  --help                     say how the command is used\n"
          "  --connect HOST:PORT,...    the cluster to talk to, by any of its nodes, or by\n"
          "                             unix:/PATH through a node's local_socket; else that of\n"
          "                             --dir DIR, SHOAL_STATE_DIR or the default folder\n"
          "  --version                  print the version\n"
          "and all options of `shoal config` (docs/options.md).\n\n"
          "examples:\n"
          "  shoal up 3\n"
          "  shoal graph load edges.txt\n"
          "  shoal graph bfs 1\n"
          "  shoal chunk create --text 'hello'\n"
          "  shoal status\n"
          "  shoal down\n\n",
          out);
    exit_statuses_print(out);
}

void sh_command_help_print(const struct sh_command *command, FILE *out)
{
    fprintf(out, "usage: shoal %s%s%s [FLAG...]\n\n", command->name, *command->arguments ? " " : "",
            command->arguments);
    fprintf(out, "%s.\n", command->summary);
    if (*command->more) {
        fputc('\n', out);
        wrapped_print(command->more, 0, out);
    }
    fputs("\nflags:\n", out);
    for (unsigned i = 0; i < SH_FLAGS; i++) {
        const struct flag_row *row = &flag_rows[i];
        if (!(command->flags >> i & 1))
            continue;
        fprintf(out, "  --%s%s%s\n", row->name, *row->value ? " " : "", row->value);
        wrapped_print(row->meaning, 6, out);
    }
    fputs("\nexamples:\n", out);
    lines_print(command->examples, 2, out);
    fputc('\n', out);
    exit_statuses_print(out);
}
