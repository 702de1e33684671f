/* Errors: one enum for the whole of shoal, from the table in err.def.
 *
 * Zero is success. Every function that can fail returns enum shoal_err and is marked
 * SHOAL_NODISCARD, so that ignoring a failure does not compile.
 */
#ifndef SHOAL_ERR_H
#define SHOAL_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SHOAL_NODISCARD __attribute__((warn_unused_result))
#define SHOAL_API __attribute__((visibility("default")))
#else
#define SHOAL_NODISCARD
#define SHOAL_API
#endif

enum shoal_err {
#define X(name, number, text, hint) SHOAL_##name = number,
#include "shoal/err.def"
#undef X
};

/* The error's name ("SHOAL_EFULL"), what happened, and what to do about it. Static strings, never
 * NULL; an unknown number gives "SHOAL_E?" and a text that says so. Any thread. */
SHOAL_API const char *shoal_err_name(enum shoal_err err);
SHOAL_API const char *shoal_err_text(enum shoal_err err);
SHOAL_API const char *shoal_err_hint(enum shoal_err err);

#ifdef __cplusplus
}
#endif

#endif
