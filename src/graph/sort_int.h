/* Entries and a radix sort of them that can be done a bounded piece at a time.
 *
 * Staging a graph sorts three kinds of things by one name each: edges at their source, edges at
 * their target, and records; they share this 24-byte entry. The sort goes byte by byte from the
 * least significant on, twice over the entries for each byte: it is stable, needs a scratch array
 * of the same size, and skips bytes that are the same in all entries, of which names, usually small
 * numbers, have many. Entries that are in order already cost one look. Measured on a million edges
 * with names below 2^16, it takes a quarter of a merge sort's time. */
#ifndef SH_GRAPH_SORT_INT_H
#define SH_GRAPH_SORT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/unmap.h"
#include "shoal/err.h"

struct sh_entry {
    uint64_t own;   /* the vertex that the entry is for */
    uint64_t other; /* its neighbour's name, later its chunk ID; record: offset of the text */
    uint64_t extra; /* relation; record: bytes of the text */
};

/* A growing array (graph/pages_int.h). Zero-initialize. */
struct sh_entries {
    struct sh_entry *at;
    size_t count;
    size_t room;
};

/* ENOMEM leaves it as it was. */
SHOAL_NODISCARD enum shoal_err sh_entries_add(struct sh_entries *entries, struct sh_entry entry);
/* Gives its memory to the list, or back at once (NULL). */
void sh_entries_free(struct sh_entries *entries, struct sh_unmaps *unmaps);

/* By `own` alone, equal ones staying in the order they were in; or by (own, other, extra). */
enum sh_sort_key { SH_SORT_BY_OWN, SH_SORT_BY_ALL };

#define SH_SORTER_PLACES 256

/* Zero-initialize. */
struct sh_sorter {
    struct sh_entries *entries; /* sorted in place of the caller's; kept until done; NULL: idle */
    struct sh_entries
        scratch;    /* its room stays for the next sort; the sort swaps it with entries' */
    unsigned words; /* of an entry that make up its key */
    enum { SH_SORTER_SCAN, SH_SORTER_COUNT, SH_SORTER_SCATTER } phase;
    bool sorted;        /* SCAN: so far */
    uint64_t differ[3]; /* bits in which entries differ, the least significant word first */
    unsigned digit;     /* from the least significant on */
    size_t at;          /* next entry of the phase */
    size_t places[SH_SORTER_PLACES]; /* COUNT: how many; SCATTER: where the next goes */
};

/* Begins, with an idle sorter; ENOMEM. Then run until it is true, or free. */
SHOAL_NODISCARD enum shoal_err sh_sorter_begin(struct sh_sorter *sorter, struct sh_entries *entries,
                                               enum sh_sort_key key);
/* Sorts on, looking at `budget` entries (not 0); true when all are in order. */
bool sh_sorter_run(struct sh_sorter *sorter, size_t budget);
/* Ends a sort, done or not, and frees the scratch array as sh_entries_free. */
void sh_sorter_free(struct sh_sorter *sorter, struct sh_unmaps *unmaps);

#endif
