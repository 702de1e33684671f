/* JSON, by jansson, which is included only behind this header.
 *
 * Writing: a stream of calls that appends to a growing text, with escaping and commas done here.
 * Reading: sh_json_parse gives a tree with line and column of the first error. */
#ifndef SH_BASE_JSON_H
#define SH_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "shoal/err.h"

/* A value being built or read; NULL-safe accessors. Owned by its root. */
struct sh_json;

struct sh_json *sh_json_object(void);
struct sh_json *sh_json_array(void);
void sh_json_free(struct sh_json *root);

/* Set members of an object; keys and texts are copied. Texts that are not UTF-8 are stored with
 * their bad bytes replaced. sh_json_set and sh_json_append take the child. */
void sh_json_set_u64(struct sh_json *object, const char *key, uint64_t value);
void sh_json_set_f64(struct sh_json *object, const char *key, double value);
void sh_json_set_bool(struct sh_json *object, const char *key, bool value);
void sh_json_set_text(struct sh_json *object, const char *key, const char *value);
void sh_json_set(struct sh_json *object, const char *key, struct sh_json *child);
void sh_json_append_u64(struct sh_json *array, uint64_t value);
void sh_json_append_text(struct sh_json *array, const char *value);
void sh_json_append(struct sh_json *array, struct sh_json *child);

/* Prints on one line, keys in order of insertion, with a newline at the end. */
void sh_json_print(const struct sh_json *root, FILE *out);

struct sh_json_error {
    int line;   /* from 1 */
    int column; /* from 1 */
    char text[160];
};

/* Parses one whole text (duplicate keys refused). EPARSE fills *error_out. Free the root. */
SHOAL_NODISCARD enum shoal_err sh_json_parse(const char *text, size_t size,
                                             struct sh_json **root_out,
                                             struct sh_json_error *error_out);

/* Reading. A missing member gives NULL, false or 0. */
const struct sh_json *sh_json_get(const struct sh_json *object, const char *key);
const struct sh_json *sh_json_at(const struct sh_json *array, size_t index);
size_t sh_json_count(const struct sh_json *value);
bool sh_json_is_text(const struct sh_json *value);
bool sh_json_is_number(const struct sh_json *value); /* integer */
bool sh_json_is_bool(const struct sh_json *value);
bool sh_json_is_object(const struct sh_json *value);
bool sh_json_is_array(const struct sh_json *value);
const char *sh_json_text(const struct sh_json *value); /* borrowed from the root */
uint64_t sh_json_u64(const struct sh_json *value);
double sh_json_f64(const struct sh_json *value);
bool sh_json_bool(const struct sh_json *value);
/* Calls back for each member of an object, in order, until it returns false. */
void sh_json_each(const struct sh_json *object,
                  bool (*each)(void *arg, const char *key, const struct sh_json *value), void *arg);

#endif
