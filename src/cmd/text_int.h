/* Chunk IDs, hexadecimal and chunk contents as a person types and reads them.
 *
 * A chunk ID is printed as NODE:LOCAL, both decimal ("64:17"), because logs and node lists name
 * nodes in decimal and neighbours then differ in the last digits only. It is read in that form and
 * as 16 hexadecimal digits ("0040000000000011", also behind 0x), as wire dumps show it. */
#ifndef SH_CMD_TEXT_INT_H
#define SH_CMD_TEXT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bytes.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_CID_TEXT_MAX 24

/* Writes the printed form; returns text_out. */
const char *sh_cid_format(shoal_cid cid, char text_out[SH_CID_TEXT_MAX]);

/* EPARSE: neither form, node 0, or a number that does not fit. */
SHOAL_NODISCARD enum shoal_err sh_cid_parse(const char *text, shoal_cid *cid_out);

/* A node ID, 1 to 65535. EPARSE. */
SHOAL_NODISCARD enum shoal_err sh_nid_parse(const char *text, shoal_nid *nid_out);

/* Pairs of hexadecimal digits; blanks between pairs are skipped. *bytes_out is allocated (never
 * NULL, also when there are none), *size_out its size. EPARSE: another character, or half a pair,
 * at the place *bad_out (may be NULL). ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_hex_parse(const char *text, uint8_t **bytes_out, size_t *size_out,
                                            size_t *bad_out);

/* Prints pairs of digits, without anything between or after them. */
void sh_hex_print(struct sh_bytes bytes, FILE *out);

/* Prints lines of 16 bytes: offset, digits, and the printable ASCII among them. */
void sh_dump_print(struct sh_bytes bytes, FILE *out);

/* Prints text for a terminal: what is not UTF-8, or would move or reorder what it shows, becomes
 * \xNN for each byte; line ends and tabs stay. */
void sh_text_print(struct sh_bytes bytes, FILE *out);

/* True when sh_text_print would change nothing and the bytes hold no NUL. */
bool sh_text_is_clean(struct sh_bytes bytes);

/* "1.5 MiB" and the like, for tables: at most one fraction digit. Returns text_out. */
#define SH_SIZE_TEXT_MAX 24
const char *sh_size_format(uint64_t bytes, char text_out[SH_SIZE_TEXT_MAX]);

#endif
