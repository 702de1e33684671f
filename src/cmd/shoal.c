/* shoal: commands for a cluster. Finds the command, takes its flags and the options, runs it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "cmd/command_int.h"

/* A negative number is a word like any other: no flag begins with a digit. */
static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && (word[1] < '0' || word[1] > '9');
}

/* The words that are neither flags nor values of options: the command's name first. Which flags
 * are options, and so take a value, only reading them tells; what is wrong with them is said later,
 * when they are read in earnest. */
static size_t bare_words(int argc, char **argv, char **words_out)
{
    struct sh_options scratch;
    struct sh_options_error error;
    size_t count = 0;
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    enum shoal_err err = sh_options_init(&scratch);
    if (copy && err == SHOAL_OK) {
        memcpy(copy, argv, (size_t)argc * sizeof *copy);
        err = sh_options_read_flags(&scratch, &argc, copy, &error);
        for (int i = 1; i < argc; i++) {
            if (strcmp(copy[i], "--") == 0)
                break;
            if (strcmp(copy[i], "--config") == 0 || strcmp(copy[i], "--dir") == 0)
                i++;
            else if (!is_flag(copy[i]))
                words_out[count++] = copy[i];
        }
    }
    sh_options_destroy(&scratch);
    free(copy);
    return count;
}

static bool asked(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

/* Notes which words the options took: those of before that are not among those of after. */
static void note_option_words(struct sh_cmd *cmd, char **before, int before_count, char **after,
                              int after_count)
{
    int at = 1;
    for (int i = 1; i < before_count; i++) {
        if (at < after_count && before[i] == after[at])
            at++;
        else
            cmd->option_words[cmd->option_word_count++] = before[i];
    }
}

/* Reads the options and leaves the command's arguments in cmd->words. */
static int read_words(struct sh_cmd *cmd, int argc, char **argv, char **before)
{
    char text[SH_FLAGS_TEXT_MAX];
    struct sh_options_error error;
    if (sh_flags_take(cmd->command, &argc, argv, &cmd->flags, text) != SHOAL_OK)
        return sh_cmd_usage(cmd, "%s", text);
    enum shoal_err err = sh_options_init(&cmd->options);
    cmd->options_ready = true;
    if (err != SHOAL_OK)
        return sh_cmd_fail(cmd, err, "%s", "");
    int before_count = argc;
    memcpy(before, argv, (size_t)argc * sizeof *before);
    err = sh_options_load(&cmd->options, &argc, argv, environ, &error);
    if (err != SHOAL_OK)
        return sh_cmd_usage(cmd, "%s", error.text);
    note_option_words(cmd, before, before_count, argv, argc);
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = true;
        } else if (!only_words && is_flag(argv[i])) {
            sh_flag_unknown(cmd->command, argv[i], text);
            return sh_cmd_usage(cmd, "%s", text);
        } else {
            cmd->words[cmd->word_count++] = argv[i];
        }
    }
    return SH_EXIT_OK;
}

/* Takes the command's name off its words and checks how many are left. */
static int check_words(struct sh_cmd *cmd)
{
    size_t used = 0;
    const struct sh_command *command = sh_command_find(cmd->words, cmd->word_count, &used);
    if (command != cmd->command)
        return sh_cmd_usage(cmd, "the command comes before its arguments");
    cmd->words += used;
    cmd->word_count -= used;
    if (cmd->word_count < command->arguments_min)
        return sh_cmd_usage(cmd, "it needs %s", command->arguments);
    if (cmd->word_count > command->arguments_max)
        return sh_cmd_usage(cmd, "\"%.60s\" is one word too many",
                            cmd->words[command->arguments_max]);
    return SH_EXIT_OK;
}

static int run_command(struct sh_cmd *cmd, int argc, char **argv)
{
    char **room = calloc((size_t)argc * 3 + 3, sizeof *room);
    if (!room)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    cmd->words = room;
    cmd->option_words = room + argc + 1;
    int status = read_words(cmd, argc, argv, room + 2 * (argc + 1));
    if (status == SH_EXIT_OK)
        status = check_words(cmd);
    if (status == SH_EXIT_OK)
        status = cmd->command->run(cmd);
    shoal_close(cmd->store);
    if (cmd->options_ready)
        sh_options_destroy(&cmd->options);
    free(room);
    if (fflush(cmd->out) != 0 || ferror(cmd->out)) {
        fprintf(stderr, "shoal: the answer could not be written: %s\n", strerror(errno));
        return status == SH_EXIT_OK ? SH_EXIT_FAILED : status;
    }
    return status;
}

/* No command was named, or one that does not exist. */
static int refuse(struct sh_cmd *cmd, char **words, size_t word_count, int argc, char **argv)
{
    char text[SH_FLAGS_TEXT_MAX];
    if (word_count > 0) {
        sh_command_unknown(words, word_count, text);
        return sh_cmd_usage(cmd, "%s", text);
    }
    struct sh_options_error error;
    enum shoal_err err = sh_options_init(&cmd->options);
    if (err == SHOAL_OK)
        err = sh_options_read_flags(&cmd->options, &argc, argv, &error);
    sh_options_destroy(&cmd->options);
    if (err != SHOAL_OK)
        return sh_cmd_usage(cmd, "%s", error.text);
    for (int i = 1; i < argc; i++) {
        if (!is_flag(argv[i]) || strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--") == 0)
            continue;
        sh_flag_unknown(NULL, argv[i], text);
        return sh_cmd_usage(cmd, "%s", text);
    }
    return sh_cmd_usage(cmd, "name a command");
}

int main(int argc, char **argv)
{
    struct sh_cmd cmd = {.out = stdout};
    /* A reader that has gone shows as a failed write. */
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return sh_bench_main(argc - 2, argv + 2, stdout);
    if (argc < 1)
        return SH_EXIT_USAGE;
    cmd.flags.json = asked(argc, argv, "--json");
    char **words = calloc((size_t)argc + 1, sizeof *words);
    if (!words)
        return sh_cmd_fail(&cmd, SHOAL_ENOMEM, "%s", "");
    size_t used, word_count = bare_words(argc, argv, words);
    cmd.command = sh_command_find(words, word_count, &used);
    int status = SH_EXIT_OK;
    if (asked(argc, argv, "--help") || asked(argc, argv, "-h")) {
        if (cmd.command)
            sh_command_help_print(cmd.command, stdout);
        else if (word_count != 1 || !sh_group_help_print(words[0], stdout))
            sh_help_print(stdout);
    } else if (!cmd.command && asked(argc, argv, "--version")) {
        printf("shoal %s\n", shoal_version());
    } else if (!cmd.command) {
        status = refuse(&cmd, words, word_count, argc, argv);
    } else {
        status = run_command(&cmd, argc, argv);
    }
    free(words);
    return status;
}
