#include "bench/table_base.h"

#include <sys/mman.h>

#include "base/assert.h"

enum shoal_err sh_table_base_create(uint64_t entries, struct sh_table_base *table_out)
{
    SH_ASSERT(entries > 0 && entries < UINT64_C(1) << 40);
    uint64_t slots = entries + entries / 2 + 1;
    size_t bytes = slots * sizeof(struct sh_table_slot);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return SHOAL_ENOMEM;
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    *table_out = (struct sh_table_base){at, slots};
    return SHOAL_OK;
}

void sh_table_base_destroy(struct sh_table_base *table)
{
    if (table->slots)
        (void)munmap(table->slots, table->slot_count * sizeof *table->slots);
    *table = (struct sh_table_base){NULL, 0};
}
