/* The ranges' baseline: a flat open-addressing hash table from a chunk's ID to its value.
 *
 * What one would have without ranges, at its best: 16 bytes a slot in one mapping with huge pages,
 * two thirds full, linear probing, no removal, one thread. 24 bytes an entry, by arithmetic. */
#ifndef SH_BENCH_TABLE_BASE_H
#define SH_BENCH_TABLE_BASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "shoal/err.h"

struct sh_table_slot {
    uint64_t key; /* 0: free */
    uint64_t value;
};

struct sh_table_base {
    struct sh_table_slot *slots;
    uint64_t slot_count;
};

#define SH_TABLE_BASE_ENTRY_BYTES 24

/* Makes an empty table for so many entries. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_table_base_create(uint64_t entries,
                                                    struct sh_table_base *table_out);
/* A zeroed table is allowed. */
void sh_table_base_destroy(struct sh_table_base *table);

/* The slot of a key that is not 0: its own, or the free one where it goes. The table is never
 * full. */
static inline struct sh_table_slot *sh_table_base_slot(const struct sh_table_base *table,
                                                       uint64_t key)
{
    uint64_t at = (uint64_t)((unsigned __int128)sh_mix64(key) * table->slot_count >> 64);
    while (table->slots[at].key != key && table->slots[at].key)
        at = at + 1 == table->slot_count ? 0 : at + 1;
    return &table->slots[at];
}

#endif
