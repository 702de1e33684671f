/* The commands of shoal: one table (commands.def), what a command is given, how it answers.
 *
 * A command's function gets a struct sh_cmd, prints its answer to cmd->out, and returns the exit
 * status, which sh_cmd_fail and sh_cmd_usage give for a failure. Everything runs on the main
 * thread. */
#ifndef SH_CMD_COMMAND_INT_H
#define SH_CMD_COMMAND_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "base/options.h"
#include "shoal/err.h"
#include "shoal/shoal.h"

/* Exit statuses; man/shoal.1 and --help name them. */
enum sh_exit {
    SH_EXIT_OK = 0,
    SH_EXIT_FAILED = 1,
    SH_EXIT_USAGE = 2,
    SH_EXIT_NO_CLUSTER = 3 /* none is running, or it can't be reached or refuses us */
};

enum sh_flag_id {
#define FLAG(ident, name, kind, value, meaning) SH_FLAG_##ident,
#include "cmd/flags.def"
#undef FLAG
    SH_FLAGS
};

#define SH_FLAG_TYPE_SWITCH bool
#define SH_FLAG_TYPE_TEXT const char *
#define SH_FLAG_TYPE_COUNT uint64_t
#define SH_FLAG_TYPE_NODE shoal_nid
#define SH_FLAG_TYPE_BYTES struct sh_flag_bytes

struct sh_flag_bytes {
    bool is_given;
    uint32_t bytes;
};

/* The flags as given: false, NULL, 0 and SHOAL_NID_NONE when not. Texts borrow argv, and are not
 * judged yet. */
struct sh_flags {
#define FLAG(ident, name, kind, value, meaning) SH_FLAG_TYPE_##kind ident;
#include "cmd/flags.def"
#undef FLAG
};

struct sh_cmd;

struct sh_command {
    const char *name;
    const char *arguments;
    unsigned arguments_min;
    unsigned arguments_max;
    uint64_t flags; /* a bit for each enum sh_flag_id */
    const char *summary;
    const char *more;
    const char *examples;
    int (*run)(struct sh_cmd *cmd);
};

extern const struct sh_command sh_commands[];
extern const size_t sh_command_count;

/* What a command is given. */
struct sh_cmd {
    const struct sh_command *command; /* NULL until one is known */
    struct sh_flags flags;
    struct sh_options options;
    bool options_ready; /* to be destroyed */
    char **words;       /* the arguments; borrow argv */
    size_t word_count;
    char **option_words; /* the flags that were options, as typed, with their values */
    size_t option_word_count;
    shoal *store; /* after sh_cmd_open */
    FILE *out;
};

/* The command that the first words name (names have one or two words): NULL when there is none;
 * *used_out says how many words it took. */
const struct sh_command *sh_command_find(char *const *words, size_t count, size_t *used_out);

/* Takes the command's flags (and help, json and -h, -o) out of argv from argv[1] on, everything
 * else stays in order; stops at "--". EPARSE: a value is missing or wrong; text_out says more. */
#define SH_FLAGS_TEXT_MAX 256
SHOAL_NODISCARD enum shoal_err sh_flags_take(const struct sh_command *command, int *argc_inout,
                                             char **argv, struct sh_flags *flags_out,
                                             char text_out[SH_FLAGS_TEXT_MAX]);

/* What to say about a flag that neither the command nor the options know, with the nearest. */
void sh_flag_unknown(const struct sh_command *command, const char *word,
                     char text_out[SH_FLAGS_TEXT_MAX]);
/* The same about a word that is no command. */
void sh_command_unknown(char *const *words, size_t count, char text_out[SH_FLAGS_TEXT_MAX]);

/* Help: of all commands, or of one. */
void sh_help_print(FILE *out);
void sh_command_help_print(const struct sh_command *command, FILE *out);
/* Of the commands whose first word this is, such as "chunk"; false, and nothing printed, when there
 * are none. */
bool sh_group_help_print(const char *group, FILE *out);

/* Prints an error for people on stderr, or with --json as an object {"error", "text", "detail",
 * "hint"} on cmd->out, and returns the exit status for it. detail is one sentence, or "". */
int sh_cmd_fail(struct sh_cmd *cmd, enum shoal_err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with a hint of its own instead of the error's. */
int sh_cmd_fail_hint(struct sh_cmd *cmd, enum shoal_err err, const char *detail, const char *hint);
/* The same for what a node was asked for, with libshoal's own detail behind the node's ID. */
int sh_cmd_fail_node(struct sh_cmd *cmd, enum shoal_err err, shoal_nid nid);
/* Called wrongly: prints the sentence and where the help is. Returns SH_EXIT_USAGE. */
int sh_cmd_usage(struct sh_cmd *cmd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads a time that a flag --NAME gives: a number and its unit, or 0; NULL leaves *ns_inout as it is. SH_EXIT_OK; or SH_EXIT_USAGE, after it has said that it is no time, or
 * not from least_ns to most_ns (UINT64_MAX: without end). Before anything is opened. */
int sh_cmd_time(struct sh_cmd *cmd, const char *name, const char *text, uint64_t least_ns,
                uint64_t most_ns, uint64_t *ns_inout);

/* Opens the cluster that --connect names, or the one of the state folder. Returns SH_EXIT_OK, or
 * the exit status after it has said why not. */
int sh_cmd_open(struct sh_cmd *cmd);

/* The same for a command whose first word, if there is one, is a node ID; else NONE. */
int sh_cmd_open_for_node(struct sh_cmd *cmd, shoal_nid *nid_out);

/* Calls back for one node, or with NONE for every peer that is up; ends with the first error, which
 * it prints. The cluster is open. An exit status. */
int sh_cmd_each_peer(struct sh_cmd *cmd, shoal_nid only,
                     enum shoal_err (*visit)(void *arg, shoal_nid nid), void *arg);

/* All nodes that the cluster knows, by ID; allocated. ENOMEM, and what shoal_nodes may say. */
SHOAL_NODISCARD enum shoal_err sh_cmd_nodes_read(struct sh_cmd *cmd, struct shoal_node **nodes_out,
                                                 size_t *count_out);
/* The same, which prints the error. An exit status. */
int sh_cmd_nodes(struct sh_cmd *cmd, struct shoal_node **nodes_out, size_t *count_out);

/* Prints a tree and frees it; SH_EXIT_OK. */
int sh_cmd_answer(struct sh_cmd *cmd, struct sh_json *root);

#define COMMAND(ident, name, arguments, min, max, flags, summary, more, examples)                  \
    int sh_cmd_run_##ident(struct sh_cmd *cmd);
#include "cmd/commands.def"
#undef COMMAND

#endif
