/* The commands that need no cluster: config, errors, help, bench. */

#include "cmd/command_int.h"

int sh_cmd_run_config(struct sh_cmd *cmd)
{
    if (cmd->flags.markdown)
        sh_options_print_markdown(cmd->out);
    else
        sh_options_print_json(&cmd->options, cmd->out);
    return SH_EXIT_OK;
}

static const enum shoal_err errors_known[] = {
#define X(name, number, text, hint) SHOAL_##name,
#include "shoal/err.def"
#undef X
};
#define ERRORS_KNOWN (sizeof errors_known / sizeof *errors_known)

int sh_cmd_run_errors(struct sh_cmd *cmd)
{
    if (cmd->flags.markdown) {
        sh_errors_print_markdown(cmd->out);
        return SH_EXIT_OK;
    }
    struct sh_json *list = sh_json_array();
    for (size_t i = 0; i < ERRORS_KNOWN; i++) {
        enum shoal_err err = errors_known[i];
        if (!cmd->flags.json) {
            fprintf(cmd->out, "%3d %-19s %s\n", (int)err, shoal_err_name(err), shoal_err_text(err));
            if (*shoal_err_hint(err))
                fprintf(cmd->out, "%23s %s\n", "", shoal_err_hint(err));
            continue;
        }
        struct sh_json *row = sh_json_object();
        sh_json_set_text(row, "error", shoal_err_name(err));
        sh_json_set_u64(row, "number", (uint64_t)err);
        sh_json_set_text(row, "text", shoal_err_text(err));
        sh_json_set_text(row, "hint", shoal_err_hint(err));
        sh_json_append(list, row);
    }
    if (cmd->flags.json)
        sh_json_print(list, cmd->out);
    sh_json_free(list);
    return SH_EXIT_OK;
}

int sh_cmd_run_help(struct sh_cmd *cmd)
{
    size_t used = 0;
    char text[SH_FLAGS_TEXT_MAX];
    if (cmd->word_count == 0) {
        sh_help_print(cmd->out);
        return SH_EXIT_OK;
    }
    const struct sh_command *command = sh_command_find(cmd->words, cmd->word_count, &used);
    if (!command) {
        sh_command_unknown(cmd->words, cmd->word_count, text);
        return sh_cmd_usage(cmd, "%s", text);
    }
    sh_command_help_print(command, cmd->out);
    return SH_EXIT_OK;
}

/* Reached only when something stands before `bench`: its flags would be taken for options. */
int sh_cmd_run_bench(struct sh_cmd *cmd)
{
    return sh_cmd_usage(cmd, "bench must be the first word, since its flags are its own");
}
