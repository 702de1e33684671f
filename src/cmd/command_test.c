#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/command_int.h"

#define WORDS_MAX 16

/* A command line, cut at its blanks. */
struct line {
    char text[256];
    char *argv[WORDS_MAX + 1];
    int argc;
};

static void line_cut(struct line *line, const char *text)
{
    *line = (struct line){0};
    snprintf(line->text, sizeof line->text, "%s", text);
    for (char *word = strtok(line->text, " "); word; word = strtok(NULL, " ")) {
        assert_true(line->argc < WORDS_MAX);
        line->argv[line->argc++] = word;
    }
}

static const struct sh_command *find(const char *first, const char *second)
{
    char *words[] = {(char *)(uintptr_t)first, (char *)(uintptr_t)second};
    size_t used;
    return sh_command_find(words, second ? 2 : 1, &used);
}

static void commands_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sh_command_count; i++) {
        char first[32], *blank;
        snprintf(first, sizeof first, "%s", sh_commands[i].name);
        blank = strchr(first, ' ');
        if (blank)
            *blank = '\0';
        assert_ptr_equal(find(first, blank ? blank + 1 : "argument"), &sh_commands[i]);
        assert_true(*sh_commands[i].summary && *sh_commands[i].examples);
        assert_true(sh_commands[i].arguments_min <= sh_commands[i].arguments_max);
    }
    assert_null(find("graph", NULL));
    assert_null(find("grap", "load"));
    assert_null(find("statuses", NULL));
}

static void unknown(const char *words, char text_out[SH_FLAGS_TEXT_MAX])
{
    struct line line;
    line_cut(&line, words);
    sh_command_unknown(line.argv, (size_t)line.argc, text_out);
}

static void the_nearest_command_is_named(void **state)
{
    (void)state;
    char text[SH_FLAGS_TEXT_MAX];
    unknown("statsu", text);
    assert_non_null(strstr(text, "did you mean \"status\"?"));
    unknown("graph laod", text);
    assert_non_null(strstr(text, "did you mean \"graph load\"?"));
    unknown("graph", text);
    assert_non_null(strstr(text, "load, bfs, vertex, status or drop"));
    unknown("chunk elephants", text);
    assert_non_null(strstr(text, "there is create, get, put, put-if, resize, add, remove or list"));
    unknown("elephants", text);
    assert_non_null(strstr(text, "shoal --help"));
}

static void flags_are_taken_out(void **state)
{
    (void)state;
    struct sh_flags flags;
    char text[SH_FLAGS_TEXT_MAX];
    struct line line;
    line_cut(&line,
             "shoal chunk create --text=a=b --node 64 --connect x --json --count 3 -- --hex 00");
    char **argv = line.argv;
    assert_int_equal(sh_flags_take(find("chunk", "create"), &line.argc, line.argv, &flags, text),
                     SHOAL_OK);
    assert_int_equal(line.argc, 8);
    assert_string_equal(argv[3], "--connect");
    assert_string_equal(argv[5], "--");
    assert_string_equal(argv[6], "--hex");
    assert_null(argv[8]);
    assert_string_equal(flags.text, "a=b");
    assert_int_equal(flags.node.v, 64);
    assert_int_equal(flags.count, 3);
    assert_true(flags.json);
    assert_null(flags.hex);
}

/* The same name is a switch of one command and takes a value in another. */
static void flags_are_those_of_the_command(void **state)
{
    (void)state;
    struct sh_flags flags;
    char text[SH_FLAGS_TEXT_MAX];
    struct line line;
    line_cut(&line, "shoal chunk get --text 64:1 -o file --count 3");
    char **argv = line.argv;
    assert_int_equal(sh_flags_take(find("chunk", "get"), &line.argc, line.argv, &flags, text),
                     SHOAL_OK);
    assert_true(flags.as_text);
    assert_null(flags.text);
    assert_string_equal(flags.output, "file");
    assert_int_equal(line.argc, 6);
    assert_string_equal(argv[4], "--count");
}

static void groups_have_help_of_their_own(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_false(sh_group_help_print("up", out));
    assert_false(sh_group_help_print("chunks", out));
    assert_false(sh_group_help_print("", out));
    fflush(out);
    assert_int_equal(size, 0);
    assert_true(sh_group_help_print("store", out));
    fclose(out);
    assert_non_null(strstr(text, "store dump NID NAME"));
    assert_non_null(strstr(text, "store analyze"));
    assert_null(strstr(text, "chunk list"));
    free(text);
}

static void wrong_flags_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *says;
    } wrong[] = {
        {"--text", "needs a value"},      {"--node 0", "not a node ID"},
        {"--node x", "not a node ID"},    {"--count 0", "not a number from 1"},
        {"--count many", "not a number"}, {"--json=yes", "takes no value"},
        {"--count=4294967297", "from 1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sh_flags flags;
        char text[SH_FLAGS_TEXT_MAX];
        char words[64];
        struct line line;
        snprintf(words, sizeof words, "shoal %s", wrong[i].words);
        line_cut(&line, words);
        assert_int_equal(
            sh_flags_take(find("chunk", "create"), &line.argc, line.argv, &flags, text),
            SHOAL_EPARSE);
        assert_non_null(strstr(text, wrong[i].says));
    }
}

static void the_nearest_flag_is_named(void **state)
{
    (void)state;
    char text[SH_FLAGS_TEXT_MAX];
    sh_flag_unknown(find("status", NULL), "--jsno", text);
    assert_non_null(strstr(text, "did you mean --json?"));
    sh_flag_unknown(find("graph", "load"), "--vertxies=x", text);
    assert_non_null(strstr(text, "did you mean --vertices?"));
    /* Options of every node are flags too. */
    sh_flag_unknown(find("up", NULL), "--store-byte-max", text);
    assert_non_null(strstr(text, "did you mean --store-bytes-max?"));
    sh_flag_unknown(NULL, "--elephants", text);
    assert_null(strstr(text, "did you mean"));
}

static void help_names_everything(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    sh_help_print(out);
    fclose(out);
    for (size_t i = 0; i < sh_command_count; i++)
        assert_non_null(strstr(text, sh_commands[i].name));
    free(text);
    out = open_memstream(&text, &size);
    sh_command_help_print(find("graph", "load"), out);
    fclose(out);
    assert_non_null(strstr(text, "usage: shoal graph load EDGES"));
    assert_non_null(strstr(text, "--vertices FILE"));
    assert_non_null(strstr(text, "examples:\n  shoal graph load edges.txt\n"));
    assert_null(strstr(text, "--undirected"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_found),
        cmocka_unit_test(the_nearest_command_is_named),
        cmocka_unit_test(flags_are_taken_out),
        cmocka_unit_test(flags_are_those_of_the_command),
        cmocka_unit_test(groups_have_help_of_their_own),
        cmocka_unit_test(wrong_flags_are_refused),
        cmocka_unit_test(the_nearest_flag_is_named),
        cmocka_unit_test(help_names_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
