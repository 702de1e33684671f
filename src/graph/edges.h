/* Reading graphs from text files: edge lists and vertex records, plain, gzip or zstd (told by
 * their first bytes, whatever the file is called).
 *
 * Edge list: a line is SOURCE TARGET [more columns], separated by blanks or tabs; vertex names are
 * decimal numbers from 0 to 2^64 - 1. Vertex records: the first column is the name, the rest of
 * the line, tabs kept, the record. In both, empty lines and those that start with # or % are
 * skipped, and CR before the line's end is dropped. A wrong line is noted by its number and
 * skipped, so that one reading finds them all. Lines are at most SH_LINE_BYTES_MAX long.
 *
 * A reader belongs to one thread and does blocking reads: application threads only. */
#ifndef SH_GRAPH_EDGES_H
#define SH_GRAPH_EDGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

#define SH_LINE_BYTES_MAX (1u << 20)
#define SH_WRONG_LINES_KEPT 10
#define SH_TYPES_MAX 65535
#define SH_TYPE_NAME_MAX 255

struct sh_wrong_line {
    uint64_t line; /* from 1 */
    char text[120];
};

/* The wrong lines of a file: how many in all, and the first few. */
struct sh_wrong_lines {
    uint64_t count;
    unsigned kept;
    struct sh_wrong_line lines[SH_WRONG_LINES_KEPT];
};

/* A dictionary of relation names: numbers from 0 in order of first use. One thread at a time. */
struct sh_types;
SHOAL_NODISCARD enum shoal_err sh_types_create(struct sh_types **types_out);
void sh_types_destroy(struct sh_types *types);
/* The number of a name, a new one if needed. ELIMIT: SH_TYPES_MAX names are there already. EINVAL:
 * the name is empty or longer than SH_TYPE_NAME_MAX. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_types_number(struct sh_types *types, struct sh_bytes name,
                                               uint16_t *number_out);
size_t sh_types_count(const struct sh_types *types);
/* The name of a number below the count; lives as long as the dictionary. */
struct sh_bytes sh_types_name(const struct sh_types *types, uint16_t number);

struct sh_edge {
    uint64_t source;
    uint64_t target;
    uint16_t type; /* 0 in an untyped graph */
};

struct sh_record {
    uint64_t name;
    struct sh_bytes text; /* borrowed until the next call to the reader */
};

struct sh_edges;

/* Opens a file. types, if not NULL, makes the third column the relation, looked up there (kept
 * until close). detail (256 bytes) says on failure what is wrong. EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_edges_open(const char *path, struct sh_types *types,
                                             struct sh_edges **reader_out, char *detail);
/* The same over bytes in memory (borrowed until close). */
SHOAL_NODISCARD enum shoal_err sh_edges_open_bytes(struct sh_bytes bytes, struct sh_types *types,
                                                   struct sh_edges **reader_out);
void sh_edges_close(struct sh_edges *reader);

/* The next edge or vertex record (use one of the two on a reader); *end_out is set instead when
 * there is none left. ETRUNCATED, ECORRUPT: a compressed file; EIO; ELIMIT: too many relations;
 * ENOMEM: then sh_edges_detail says more, and the reader is at its end. */
SHOAL_NODISCARD enum shoal_err sh_edges_next(struct sh_edges *reader, struct sh_edge *edge_out,
                                             bool *end_out);
SHOAL_NODISCARD enum shoal_err sh_records_next(struct sh_edges *reader,
                                               struct sh_record *record_out, bool *end_out);

const char *sh_edges_detail(const struct sh_edges *reader);
const struct sh_wrong_lines *sh_edges_wrong(const struct sh_edges *reader);
/* Bytes of the file used so far and its size (compressed, if it is): for progress. */
uint64_t sh_edges_bytes_done(const struct sh_edges *reader);
uint64_t sh_edges_bytes_total(const struct sh_edges *reader);

#endif
