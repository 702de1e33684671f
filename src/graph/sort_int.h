/* Entries and a merge sort of them that can be done a bounded piece at a time.
 *
 * Staging a graph sorts three kinds of things by one name each: edges at their source, edges at
 * their target, and records; they share this 24-byte entry. Bottom-up merge sort: stable memory
 * (one scratch array of the same size), sequential access, and cheap where the input is in order
 * already, as edge lists often are. */
#ifndef SH_GRAPH_SORT_INT_H
#define SH_GRAPH_SORT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal/err.h"

struct sh_entry {
    uint64_t own;   /* the vertex that the entry is for */
    uint64_t other; /* its neighbour's name, later its chunk ID; record: offset of the text */
    uint64_t extra; /* relation; record: bytes of the text */
};

/* A growing array. Zero-initialize; free() what `at` points to. */
struct sh_entries {
    struct sh_entry *at;
    size_t count;
    size_t room;
};

/* ENOMEM leaves it as it was. */
SHOAL_NODISCARD enum shoal_err sh_entries_add(struct sh_entries *entries, struct sh_entry entry);
void sh_entries_free(struct sh_entries *entries);

struct sh_sorter {
    struct sh_entries *entries; /* sorted in place of the caller's; kept until done */
    struct sh_entry *scratch;
    size_t width;       /* entries in a sorted run; 0: the runs are being made */
    size_t at;          /* next entry to make runs of or to write */
    size_t left, right; /* the next of each of the two runs being merged */
};

/* Begins; ENOMEM. Then run until it is true, or cancel. */
SHOAL_NODISCARD enum shoal_err sh_sorter_begin(struct sh_sorter *sorter,
                                               struct sh_entries *entries);
/* Sorts on for about `budget` entries (at least 4096); true when all are in order of (own, other,
 * extra). */
bool sh_sorter_run(struct sh_sorter *sorter, size_t budget);
void sh_sorter_cancel(struct sh_sorter *sorter);

#endif
