/* What json.c and json_place.c share. */
#ifndef SH_BASE_JSON_INT_H
#define SH_BASE_JSON_INT_H

#include <stddef.h>

/* Line and column, both from 1, of a byte of the text; columns count characters. */
void sh_json_place(const char *text, size_t offset, int *line_out, int *column_out);

#endif
