#include "store/idtable_int.h"

#include "base/assert.h"

enum shoal_err sh_idtable_init(struct sh_idtable *table, uint64_t ids_max, struct sh_budget *budget)
{
    SH_ASSERT(ids_max > 0 && ids_max <= SH_IDTABLE_IDS_MAX);
    table->budget = budget;
    table->ids_max = ids_max;
    table->kept = 0;
    table->huge_bytes = 0;
    atomic_init(&table->limit, 0);
    return sh_vm_reserve(sh_idtable_bytes(ids_max), &table->vm);
}

void sh_idtable_destroy(struct sh_idtable *table)
{
    sh_vm_release(&table->vm);
}

/* A table of this size spends a TLB miss on almost each lookup with small pages, and one huge page
 * more than it needs is little beside it. */
#define HUGE_FROM_BYTES (UINT64_C(32) << 20)

static void huge_extend(struct sh_idtable *table, uint64_t limit)
{
    uint64_t bytes = sh_idtable_bytes(limit);
    if (bytes < HUGE_FROM_BYTES || bytes <= table->huge_bytes)
        return;
    uint64_t end = (bytes + SH_HUGE_BYTES - 1) / SH_HUGE_BYTES * SH_HUGE_BYTES;
    if (end > table->vm.bytes)
        end = table->vm.bytes;
    sh_vm_huge(&table->vm, table->huge_bytes, end - table->huge_bytes);
    table->huge_bytes = end;
}

enum shoal_err sh_idtable_grow(struct sh_idtable *table, uint64_t limit, bool may_dip)
{
    SH_ASSERT(limit >= atomic_load_explicit(&table->limit, memory_order_relaxed));
    if (limit > table->ids_max)
        return SHOAL_EFULL;
    if (limit > table->kept) {
        uint64_t more = sh_idtable_bytes(limit) - sh_idtable_bytes(table->kept);
        if (!sh_budget_charge(table->budget, more, may_dip))
            return SHOAL_EFULL;
        huge_extend(table, limit);
        table->kept = limit;
    }
    /* release: the charge; pairs with the acquire in sh_idtable_limit */
    atomic_store_explicit(&table->limit, limit, memory_order_release);
    return SHOAL_OK;
}

/* Hands pages of groups without chunks back. A thread that looks for a chunk that is gone may be
 * about to set a bit, or hold one, in a group that is to become zeros: all groups are held first,
 * so that no bit is lost. Zeros let everybody on. */
static void groups_discard(struct sh_idtable *table, uint64_t offset, uint64_t bytes)
{
    struct sh_group *groups = (struct sh_group *)(void *)(table->vm.at + offset);
    size_t count = bytes / sizeof *groups;
    /* relaxed: who makes a group of the table anew has taken the ID pool's lock since */
    uint64_t epoch = atomic_load_explicit(&table->epoch, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        sh_group_layout_begin(&groups[i]);
        uint64_t own = sh_idtable_epoch(&groups[i]);
        epoch = own > epoch ? own : epoch;
    }
    atomic_store_explicit(&table->epoch, epoch + 1, memory_order_relaxed);
    if (sh_vm_discard(&table->vm, offset, bytes))
        return;
    for (size_t i = 0; i < count; i++)
        sh_group_layout_end(&groups[i], false);
}

void sh_idtable_shrink(struct sh_idtable *table, uint64_t limit, uint64_t kept)
{
    SH_ASSERT(limit <= atomic_load_explicit(&table->limit, memory_order_relaxed));
    SH_ASSERT(limit <= kept && kept <= table->kept);
    atomic_store_explicit(&table->limit, limit, memory_order_release);
    uint64_t bytes = sh_idtable_bytes(kept);
    uint64_t dropped = sh_idtable_bytes(table->kept) - bytes;
    table->kept = kept;
    /* Where the kernel keeps the pages, they stay charged only in its books: all their codes are
     * zero either way, and growing charges them again. */
    if (dropped > 0) {
        groups_discard(table, bytes, dropped);
        sh_budget_refund(table->budget, dropped);
    }
}
