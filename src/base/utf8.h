/* UTF-8, as far as output needs it: telling good text from bad bytes. */
#ifndef SH_BASE_UTF8_H
#define SH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length (1 to 4) of the well-formed character that starts at `at`, of which `left` bytes may
 * be read, and its code point; 0 when there is none: overlong forms, surrogates, values over
 * U+10FFFF and cut characters are not well-formed (Unicode 15, table 3-7). code_out is written on
 * success only. */
size_t sh_utf8_take(const uint8_t *at, size_t left, uint32_t *code_out);

/* True for characters that would move, hide or reorder what a terminal shows: controls (C0, DEL,
 * C1), line and paragraph separators, and the marks that change the direction of writing. */
bool sh_utf8_hostile(uint32_t code);

#endif
