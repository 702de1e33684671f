/* Reading options from the environment and from flags, and everything in order. */
#include "base/options.h"

#include <string.h>

#include "base/assert.h"
#include "base/options_int.h"

#define ENV_PREFIX "SHOAL_"
#define ENV_CONFIG "SHOAL_CONFIG"

/* Variables that are no options. */
static bool is_other_variable(const char *key)
{
    return strcmp(key, ENV_CONFIG) == 0 || strcmp(key, "SHOAL_STATE_DIR") == 0;
}

static const struct sh_option_row *find_variable(struct sh_option_table table, const char *key)
{
    char variable[SH_OPTION_WORD_MAX];
    for (size_t i = 0; i < table.count; i++) {
        sh_option_variable_name(&table.rows[i], variable);
        if (strcmp(variable, key) == 0)
            return &table.rows[i];
    }
    return NULL;
}

static enum shoal_err unknown_variable(struct sh_option_table table, const char *key,
                                       struct sh_options_error *error_out)
{
    char name[SH_OPTION_WORD_MAX], quoted[SH_OPTION_QUOTE_MAX];
    size_t i = 0;
    for (const char *at = key + strlen(ENV_PREFIX); *at != '\0'; at++)
        name[i++] = *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at;
    name[i] = '\0';
    const char *nearest = sh_option_nearest(table, name);
    if (!nearest) {
        sh_option_error(error_out, "environment", "unknown variable %s",
                        sh_option_quote(key, quoted));
        return SHOAL_EOPTION;
    }
    char variable[SH_OPTION_WORD_MAX];
    const struct sh_option_row *row = sh_option_find(table, nearest);
    SH_ASSERT(row != NULL);
    sh_option_variable_name(row, variable);
    sh_option_error(error_out, "environment", "unknown variable %s; did you mean \"%s\"?",
                    sh_option_quote(key, quoted), variable);
    return SHOAL_EOPTION;
}

static enum shoal_err read_variable(struct sh_option_set set, const char *entry,
                                    struct sh_options_error *error_out)
{
    size_t size = strcspn(entry, "=");
    if (strncmp(entry, ENV_PREFIX, strlen(ENV_PREFIX)) != 0 || entry[size] == '\0')
        return SHOAL_OK;
    char key[SH_OPTION_WORD_MAX];
    if (size >= sizeof key) {
        char quoted[SH_OPTION_QUOTE_MAX];
        sh_option_error(error_out, "environment", "unknown variable %s",
                        sh_option_quote(entry, quoted));
        return SHOAL_EOPTION;
    }
    memcpy(key, entry, size);
    key[size] = '\0';
    if (is_other_variable(key))
        return SHOAL_OK;
    const struct sh_option_row *row = find_variable(set.table, key);
    if (!row)
        return unknown_variable(set.table, key, error_out);
    char source[SH_OPTION_WORD_MAX + 16];
    snprintf(source, sizeof source, "variable %s", key);
    return sh_option_set_text(set, row->name, entry + size + 1, source, error_out);
}

enum shoal_err sh_option_set_env(struct sh_option_set set, char *const *env,
                                 struct sh_options_error *error_out)
{
    SH_ASSERT(env != NULL);
    for (; *env; env++) {
        enum shoal_err err = read_variable(set, *env, error_out);
        if (err != SHOAL_OK)
            return err;
    }
    return SHOAL_OK;
}

/* What a word of the command line means to us. */
struct flag {
    const struct sh_option_row *row; /* NULL: not a flag of ours */
    const char *value;               /* NULL: it is missing, or is_apart */
    int words;                       /* of argv: 1 or 2 */
    bool is_apart;                   /* a truth value that is a word of its own */
};

/* The value of the flag at argv[at], whose text is `length` bytes long before any '='. */
static struct flag with_value(const struct sh_option_row *row, int argc, char **argv, int at,
                              size_t length)
{
    struct flag flag = {row, NULL, 1, false};
    const char *next = at + 1 < argc ? argv[at + 1] : "";
    if (argv[at][length] == '=') {
        flag.value = argv[at] + length + 1;
    } else if (row && row->kind == SH_OPTION_BOOL) {
        /* It needs no value, so the next word is none of it; but "true" or "false" would be meant as one. */
        flag.is_apart = strcmp(next, "true") == 0 || strcmp(next, "false") == 0;
        flag.value = flag.is_apart ? NULL : "true";
    } else if (at + 1 < argc && strncmp(argv[at + 1], "--", 2) != 0) {
        flag.value = argv[at + 1];
        flag.words = 2;
    }
    return flag;
}

static struct flag match_flag(struct sh_option_table table, int argc, char **argv, int at)
{
    static const struct flag none = {NULL, NULL, 1, false};
    const char *word = argv[at];
    size_t length = strcspn(word, "=");
    char name[SH_OPTION_WORD_MAX];
    if (strncmp(word, "--", 2) != 0 || length >= sizeof name)
        return none;
    memcpy(name, word + 2, length - 2);
    name[length - 2] = '\0';
    const struct sh_option_row *row = sh_option_find(table, name);
    if (row)
        return with_value(row, argc, argv, at, length);
    bool negated = strncmp(name, "no-", 3) == 0 && word[length] == '\0';
    row = negated ? sh_option_find(table, name + 3) : NULL;
    if (row && row->kind == SH_OPTION_BOOL)
        return (struct flag){row, "false", 1, false};
    return none;
}

static enum shoal_err apply_flag(struct sh_option_set set, const struct flag *flag,
                                 struct sh_options_error *error_out)
{
    char name[SH_OPTION_WORD_MAX], source[SH_OPTION_WORD_MAX + 8];
    sh_option_flag_name(flag->row, name);
    snprintf(source, sizeof source, "flag %s", name);
    if (flag->is_apart) {
        sh_option_error(error_out, source,
                        "takes its value in the same word: write %s=true or %s=false", name, name);
        return SHOAL_EPARSE;
    }
    if (!flag->value) {
        sh_option_error(error_out, source, "needs a value");
        return SHOAL_EPARSE;
    }
    return sh_option_set_text(set, flag->row->name, flag->value, source, error_out);
}

enum shoal_err sh_option_set_flags(struct sh_option_set set, int *argc_inout, char **argv,
                                   struct sh_options_error *error_out)
{
    int argc = *argc_inout;
    SH_ASSERT(argc == 0 || argv != NULL);
    /* First everything is set, then argv is shortened: a failure leaves it as it was. */
    for (int at = 1; at < argc && strcmp(argv[at], "--") != 0;) {
        struct flag flag = match_flag(set.table, argc, argv, at);
        enum shoal_err err = flag.row ? apply_flag(set, &flag, error_out) : SHOAL_OK;
        if (err != SHOAL_OK)
            return err;
        at += flag.words;
    }
    int kept = 1, at = 1;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        struct flag flag = match_flag(set.table, argc, argv, at);
        if (!flag.row)
            argv[kept++] = argv[at];
        at += flag.words;
    }
    while (at < argc)
        argv[kept++] = argv[at++];
    if (kept < argc) {
        argv[kept] = NULL;
        *argc_inout = kept;
    }
    return SHOAL_OK;
}

static bool is_config_flag(const char *word)
{
    return strcmp(word, "--config") == 0 || strncmp(word, "--config=", 9) == 0;
}

/* The file that the flags or the environment name; NULL: none. */
static enum shoal_err find_config(int argc, char **argv, char *const *env, const char **path_out,
                                  struct sh_options_error *error_out)
{
    const char *path = NULL;
    for (; *env; env++)
        if (strncmp(*env, ENV_CONFIG "=", strlen(ENV_CONFIG "=")) == 0)
            path = *env + strlen(ENV_CONFIG "=");
    for (int at = 1; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (!is_config_flag(argv[at]))
            continue;
        path = with_value(NULL, argc, argv, at, strlen("--config")).value;
        if (!path || *path == '\0') {
            sh_option_error(error_out, "flag --config", "needs the path of a file");
            return SHOAL_EPARSE;
        }
    }
    *path_out = path && *path != '\0' ? path : NULL;
    return SHOAL_OK;
}

static void remove_config(int *argc_inout, char **argv)
{
    int kept = 1, at = 1, argc = *argc_inout;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (is_config_flag(argv[at]))
            at += with_value(NULL, argc, argv, at, strlen("--config")).words - 1;
        else
            argv[kept++] = argv[at];
    }
    while (at < argc)
        argv[kept++] = argv[at++];
    if (kept < argc) {
        argv[kept] = NULL;
        *argc_inout = kept;
    }
}

enum shoal_err sh_options_read_env(struct sh_options *options, char *const *env,
                                   struct sh_options_error *error_out)
{
    return sh_option_set_env((struct sh_option_set){sh_option_table, options}, env, error_out);
}

enum shoal_err sh_options_read_flags(struct sh_options *options, int *argc_inout, char **argv,
                                     struct sh_options_error *error_out)
{
    return sh_option_set_flags((struct sh_option_set){sh_option_table, options}, argc_inout, argv,
                               error_out);
}

enum shoal_err sh_options_load(struct sh_options *options, int *argc_inout, char **argv,
                               char *const *env, struct sh_options_error *error_out)
{
    const char *path = NULL;
    enum shoal_err err = find_config(*argc_inout, argv, env, &path, error_out);
    if (err == SHOAL_OK && path)
        err = sh_options_read_file(options, path, error_out);
    if (err == SHOAL_OK)
        err = sh_options_read_env(options, env, error_out);
    if (err == SHOAL_OK)
        err = sh_options_read_flags(options, argc_inout, argv, error_out);
    if (err != SHOAL_OK)
        return err;
    remove_config(argc_inout, argv);
    return sh_options_check(options, error_out);
}
