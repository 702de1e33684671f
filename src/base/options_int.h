/* What the files of options share. The table is passed around, so that tests can bring their own
 * with every kind of option in it. */
#ifndef SH_BASE_OPTIONS_INT_H
#define SH_BASE_OPTIONS_INT_H

#include "base/options.h"

enum sh_option_kind { SH_OPTION_BOOL, SH_OPTION_U64, SH_OPTION_TEXT, SH_OPTION_LIST };

struct sh_option_row {
    const char *name;
    enum sh_option_kind kind;
    const char *unit;
    uint64_t min;
    uint64_t max;
    const char *preset;
    const char *meaning;
    size_t offset; /* of the member in the struct of values */
};

struct sh_option_table {
    const struct sh_option_row *rows;
    size_t count;
};

/* A table and the struct whose members it describes (struct sh_options for the house's own). */
struct sh_option_set {
    struct sh_option_table table;
    void *values;
};

extern const struct sh_option_table sh_option_table;

/* The same as their namesakes in options.h, for any table. */
SHOAL_NODISCARD enum shoal_err sh_option_set_init(struct sh_option_set set);
void sh_option_set_destroy(struct sh_option_set set);
SHOAL_NODISCARD enum shoal_err sh_option_set_text(struct sh_option_set set, const char *name,
                                                  const char *value, const char *source,
                                                  struct sh_options_error *error_out);
SHOAL_NODISCARD enum shoal_err sh_option_set_file(struct sh_option_set set, const char *path,
                                                  struct sh_options_error *error_out);
SHOAL_NODISCARD enum shoal_err sh_option_set_env(struct sh_option_set set, char *const *env,
                                                 struct sh_options_error *error_out);
SHOAL_NODISCARD enum shoal_err sh_option_set_flags(struct sh_option_set set, int *argc_inout,
                                                   char **argv, struct sh_options_error *error_out);
void sh_option_set_print_json(struct sh_option_set set, FILE *out);

/* Bytes of flag and variable names: "--" or "SHOAL_", a name, and the NUL. */
#define SH_OPTION_WORD_MAX 80
/* "--ring-bytes" and "SHOAL_RING_BYTES". */
void sh_option_flag_name(const struct sh_option_row *row, char text_out[SH_OPTION_WORD_MAX]);
void sh_option_variable_name(const struct sh_option_row *row, char text_out[SH_OPTION_WORD_MAX]);

/* The row of a name; '-' counts as '_'. NULL when there is none. */
const struct sh_option_row *sh_option_find(struct sh_option_table table, const char *name);
const char *sh_option_nearest(struct sh_option_table table, const char *name);

/* The member of a row. */
void *sh_option_member(struct sh_option_set set, const struct sh_option_row *row);

/* Puts the sentence "SOURCE: ..." together; what does not fit is cut. */
__attribute__((format(printf, 3, 4))) void
sh_option_error(struct sh_options_error *error_out, const char *source, const char *format, ...);
/* EOPTION and its sentence, with the nearest known name if one is near. */
SHOAL_NODISCARD enum shoal_err sh_option_unknown(struct sh_option_table table, const char *name,
                                                 const char *source,
                                                 struct sh_options_error *error_out);

/* Quotes a value for a sentence: shortened, and without bytes that a terminal would obey. */
#define SH_OPTION_QUOTE_MAX 80
const char *sh_option_quote(const char *value, char text_out[SH_OPTION_QUOTE_MAX]);

#endif
