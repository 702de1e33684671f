/* The entries of a replicated log that are in memory: those behind a base, one for each index. Raft
 * and each shard of the ring have one; the journal has on disk what is here, and more.
 *
 *   base ............ base + 1 ... last
 *   (forgotten)       [  at[first], at[first + 1], ...  ]
 *
 * The base is an entry too, of which only the term is kept. Threads: one at a time. */
#ifndef SH_JOURNAL_ENTRIES_H
#define SH_JOURNAL_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

typedef uint64_t sh_lsn; /* journal.h */

struct sh_entry {
    uint64_t term;
    sh_lsn lsn; /* the owner's: with which the journal has it */
    uint32_t size;
    uint8_t kind;   /* the owner's */
    uint8_t *bytes; /* NULL if size is 0 */
};

/* All zero: no entry behind index 0, which has term 0. */
struct sh_entries {
    uint64_t base, base_term;
    struct sh_entry *at;
    size_t first, count, room; /* of `at`: dropped ones before `first` are overwritten later */
};

uint64_t sh_entries_last(const struct sh_entries *entries);
/* The term of an entry, or of the base; false: it is forgotten, or not there. */
bool sh_entries_term(const struct sh_entries *entries, uint64_t index, uint64_t *term_out);
/* An entry behind the base, up to the last; valid until the entries change. */
struct sh_entry *sh_entries_at(const struct sh_entries *entries, uint64_t index);
/* Adds one (copied) behind the last, with LSN 0. ENOMEM changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_entries_append(struct sh_entries *entries, uint64_t term,
                                                 uint8_t kind, struct sh_bytes bytes);
/* Drops the entries from an index on, which is behind the base. */
void sh_entries_cut(struct sh_entries *entries, uint64_t index);
/* Drops the entries up to an index, the base at least and the last at most, which becomes the base.
 */
void sh_entries_shift(struct sh_entries *entries, uint64_t index);
/* Drops all, and begins behind another base. */
void sh_entries_reset(struct sh_entries *entries, uint64_t base, uint64_t base_term);

#endif
