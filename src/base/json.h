/* JSON, by jansson, which is included only behind this header.
 *
 * Writing: build a tree, print it. Building aborts the program when memory runs out (programs
 * build JSON to print it; a tree with holes would be a lie). Reading: sh_json_parse gives a tree,
 * or line and column of the first error. A tree has one owner: no locking, one thread at a time.
 *
 * Numbers are whole (0 to 2^64-1 when written; -2^63 to 2^63-1 when read) or double. */
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
 * their bad bytes replaced (U+FFFD); keys must be UTF-8. A text of NULL and a double that is not
 * finite become null. sh_json_set and sh_json_append take the child. Setting a member again
 * replaces it. A NULL object or array is left alone, and the child freed. */
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

/* Prints one text as a JSON string, with its quotes: for a program that lays out JSON itself. */
void sh_json_print_text(const char *text, FILE *out);

struct sh_json_error {
    int line;   /* from 1 */
    int column; /* from 1 */
    char text[160];
};

/* Parses one whole text: an object or an array (duplicate keys refused). EPARSE fills *error_out
 * with the place where the first wrong token begins (columns count characters). ENOMEM
 * does not. Free the root. */
SHOAL_NODISCARD enum shoal_err sh_json_parse(const char *text, size_t size,
                                             struct sh_json **root_out,
                                             struct sh_json_error *error_out);

/* Finds the place of an object's member in the text that was parsed: where the index-th key of
 * the outermost object begins. False when there is none. For errors about a value. */
bool sh_json_member_place(const char *text, size_t size, size_t index, int *line_out,
                          int *column_out);

/* Reading. A missing member or one of another type gives NULL, false or 0. */
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
bool sh_json_is_negative(const struct sh_json *value); /* integer below 0: sh_json_u64 gives 0 */
double sh_json_f64(const struct sh_json *value);       /* of any number */
bool sh_json_bool(const struct sh_json *value);
/* Calls back for each member of an object, in order, until it returns false. */
void sh_json_each(const struct sh_json *object,
                  bool (*each)(void *arg, const char *key, const struct sh_json *value), void *arg);

#endif
