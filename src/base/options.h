/* Options: one table (base/options.def), read from defaults, a JSON file, the environment and
 * flags, later ones winning. Everything is validated before anything is opened. */
#ifndef SH_BASE_OPTIONS_H
#define SH_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "shoal/err.h"

#define SH_OPTION_LIST_MAX 64

/* A list of texts, owned by the struct sh_options that holds it. */
struct sh_list {
    size_t count;
    char *items[SH_OPTION_LIST_MAX];
};

#define SH_OPTION_TYPE_BOOL bool
#define SH_OPTION_TYPE_U64 uint64_t
#define SH_OPTION_TYPE_TEXT char *
#define SH_OPTION_TYPE_LIST struct sh_list

/* One member per row of the table: options.listen, options.ring_bytes, ... Texts are never NULL. */
struct sh_options {
#define X(name, kind, unit, min, max, preset, meaning) SH_OPTION_TYPE_##kind name;
#include "base/options.def"
#undef X
};

/* Where and why reading failed, as one sentence for a person: says the source (file:line:column,
 * variable or flag), the value, the bounds, and for an unknown key the nearest known one. */
struct sh_options_error {
    char text[512];
};

/* Fills *options with the defaults. ENOMEM. Destroy afterwards, also after a later failure. */
SHOAL_NODISCARD enum shoal_err sh_options_init(struct sh_options *options);
void sh_options_destroy(struct sh_options *options);

/* Sets one option from text, e.g. ("ring_bytes", "4MiB"). `source` names where it comes from in
 * the error ("flag --ring-bytes"). EOPTION, EPARSE, ERANGE, ENOMEM; *options is unchanged on
 * failure. Every failure of this and the functions below fills *error_out. */
SHOAL_NODISCARD enum shoal_err sh_options_set(struct sh_options *options, const char *name,
                                              const char *value, const char *source,
                                              struct sh_options_error *error_out);

/* Reads a JSON object of options from a file of at most 1 MiB: keys are the options' names; values
 * are numbers or texts ("4MiB"), texts, true or false, arrays of texts. EIO, EPARSE (line and
 * column), EOPTION, ERANGE, ENOMEM. After a failure in this or a function below, options that came
 * before the wrong one have been set. */
SHOAL_NODISCARD enum shoal_err sh_options_read_file(struct sh_options *options, const char *path,
                                                    struct sh_options_error *error_out);

/* Reads every SHOAL_... variable of the given environment (NULL-terminated "K=V" texts). Unknown
 * SHOAL_ variables are refused, except SHOAL_CONFIG (the file) and SHOAL_STATE_DIR. */
SHOAL_NODISCARD enum shoal_err sh_options_read_env(struct sh_options *options, char *const *env,
                                                   struct sh_options_error *error_out);

/* Takes every flag that is an option (--name VALUE, --name=VALUE; booleans also --name, --no-name)
 * out of argv and shortens it (argc_inout); other words stay in order, and everything after "--"
 * is left alone. An unknown flag is left for the caller. After a failure argv is unchanged. */
SHOAL_NODISCARD enum shoal_err sh_options_read_flags(struct sh_options *options, int *argc_inout,
                                                     char **argv,
                                                     struct sh_options_error *error_out);

/* File (--config PATH or SHOAL_CONFIG, if given; --config is taken out of argv), environment,
 * flags, and then the checks that concern an option's meaning or several options at once (roles
 * known, addresses parsable, no wildcard told to others, loopback only without a secret, log format
 * and levels known, failure_ns ten times heartbeat_ns, files named for TLS: EPARSE, EADDRESS,
 * ERANGE or ETLS). */
SHOAL_NODISCARD enum shoal_err sh_options_load(struct sh_options *options, int *argc_inout,
                                               char **argv, char *const *env,
                                               struct sh_options_error *error_out);

/* Whether an option that is set has no effect with the others, and which, and what to do: such a node starts all the same, since nodes of several roles
 * may share a file of options. */
bool sh_options_idle(const struct sh_options *options, struct sh_options_error *text_out);

/* The checks of sh_options_load alone. */
SHOAL_NODISCARD enum shoal_err sh_options_check(const struct sh_options *options,
                                                struct sh_options_error *error_out);

/* Whether an address, HOST:PORT, stands for all addresses of its machine, as 0.0.0.0:1 and [::]:1
 * do: nobody can connect to it from elsewhere. */
bool sh_address_is_wildcard(const char *text);

/* The nearest known option name to a wrong one (insertions, deletions, changed letters and swapped
 * neighbours, at most a third of its length of them; '-' counts as '_'), or NULL. The same for a
 * caller's own words (commands, cases), as they are. */
const char *sh_options_nearest(const char *name);
const char *sh_nearest_word(const char *word, const char *const *known, size_t known_count);

/* The effective set, as a JSON object with a line per option. */
void sh_options_print_json(const struct sh_options *options, FILE *out);
/* As lines "name = value" with where each is described: flag, unit, bounds, meaning. */
void sh_options_print_help(FILE *out);
/* docs/options.md, whole. */
void sh_options_print_markdown(FILE *out);
/* docs/errors.md, whole: from shoal/err.def. */
void sh_errors_print_markdown(FILE *out);

/* Parses "4MiB" or "1.5s" style numbers for an option's unit ("bytes", "ns" or ""): digits, for
 * bytes and times also a fraction (what is then less than one byte or nanosecond is cut off), and
 * without a blank a suffix: B, KiB, MiB, GiB, TiB; ns, us, ms, s, min. None means bytes or
 * nanoseconds. EPARSE, ERANGE on overflow. */
SHOAL_NODISCARD enum shoal_err sh_number_parse(const char *text, const char *unit,
                                               uint64_t *value_out);

/* Writes a number in the largest of those units in which it is whole, e.g. "64MiB" or "1500ms",
 * so that sh_number_parse gives it back. Returns text_out. */
#define SH_NUMBER_TEXT_MAX 32
const char *sh_number_format(uint64_t value, const char *unit, char text_out[SH_NUMBER_TEXT_MAX]);

/* What may follow the digits for a unit, for a sentence: "B, KiB, MiB, GiB or TiB"; NULL: nothing.
 */
const char *sh_number_suffixes(const char *unit);

#endif
