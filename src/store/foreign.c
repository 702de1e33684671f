#include "store/foreign_int.h"

#include "base/assert.h"

#define FAN (1u << SH_FOREIGN_BITS)
#define LEAF_GROUPS (1u << SH_FOREIGN_LEAF_BITS)
#define NUMBER_BITS 60

_Static_assert(LEAF_GROUPS * sizeof(struct sh_group) == SH_PAGE_BYTES, "a leaf is a page");
_Static_assert(FAN * sizeof(uint64_t) == SH_PAGE_BYTES, "a node is a page");
_Static_assert(SH_FOREIGN_LEVELS *SH_FOREIGN_BITS + SH_FOREIGN_LEAF_BITS >= NUMBER_BITS, "all IDs");

enum shoal_err sh_foreign_init(struct sh_foreign *foreign, uint64_t bytes_max,
                               struct sh_budget *budget)
{
    foreign->budget = budget;
    atomic_init(&foreign->pages, 0);
    enum shoal_err err = sh_vm_reserve(bytes_max, &foreign->vm);
    if (!err)
        sh_lock_init(&foreign->lock, SH_LOCK_STORE_IDS);
    return err;
}

void sh_foreign_destroy(struct sh_foreign *foreign)
{
    if (foreign->vm.at)
        sh_lock_destroy(&foreign->lock);
    sh_vm_release(&foreign->vm);
}

static unsigned shift_of(unsigned level)
{
    return SH_FOREIGN_LEAF_BITS + (SH_FOREIGN_LEVELS - 1 - level) * SH_FOREIGN_BITS;
}

/* The word of a node that leads towards a number. */
static _Atomic uint64_t *word_of(const struct sh_foreign *foreign, uint64_t page, unsigned level,
                                 uint64_t number)
{
    _Atomic uint64_t *words = (_Atomic uint64_t *)(void *)(foreign->vm.at + (page << SH_PAGE_BITS));
    return words + ((number >> shift_of(level)) & (FAN - 1));
}

static struct sh_group *group_of(const struct sh_foreign *foreign, uint64_t page, uint64_t number)
{
    struct sh_group *leaf = (struct sh_group *)(void *)(foreign->vm.at + (page << SH_PAGE_BITS));
    return leaf + (number & (LEAF_GROUPS - 1));
}

struct sh_group *sh_foreign_find(const struct sh_foreign *foreign, uint64_t number)
{
    /* acquire: the root; pairs with the release in page_make */
    if (atomic_load_explicit(&foreign->pages, memory_order_acquire) == 0)
        return NULL;
    uint64_t page = 0; /* the root */
    for (unsigned level = 0; level < SH_FOREIGN_LEVELS; level++) {
        /* acquire: that the page is made; pairs with the release in sh_foreign_make */
        page = atomic_load_explicit(word_of(foreign, page, level, number), memory_order_acquire);
        if (page == 0)
            return NULL;
    }
    return group_of(foreign, page, number);
}

static bool page_make(struct sh_foreign *foreign, uint64_t *page_out)
{
    uint64_t page = atomic_load_explicit(&foreign->pages, memory_order_relaxed);
    if ((page + 1) << SH_PAGE_BITS > foreign->vm.bytes ||
        !sh_budget_charge(foreign->budget, SH_PAGE_BYTES, true))
        return false;
    /* release: the charge; pairs with the acquire in sh_foreign_find */
    atomic_store_explicit(&foreign->pages, page + 1, memory_order_release);
    *page_out = page;
    return true;
}

enum shoal_err sh_foreign_make(struct sh_foreign *foreign, uint64_t number,
                               struct sh_group **group_out)
{
    enum shoal_err err = SHOAL_OK;
    uint64_t page = 0;
    sh_lock_take(&foreign->lock);
    if (atomic_load_explicit(&foreign->pages, memory_order_relaxed) == 0 &&
        !page_make(foreign, &page))
        err = SHOAL_EFULL;
    for (unsigned level = 0; !err && level < SH_FOREIGN_LEVELS; level++) {
        _Atomic uint64_t *word = word_of(foreign, page, level, number);
        page = atomic_load_explicit(word, memory_order_relaxed);
        if (page != 0)
            continue;
        if (!page_make(foreign, &page))
            err = SHOAL_EFULL;
        else
            /* release: pairs with the acquire in sh_foreign_find */
            atomic_store_explicit(word, page, memory_order_release);
    }
    sh_lock_release(&foreign->lock);
    if (!err)
        *group_out = group_of(foreign, page, number);
    return err;
}

struct sh_group *sh_foreign_next(const struct sh_foreign *foreign, uint64_t number, uint64_t last,
                                 uint64_t *number_out)
{
    if (atomic_load_explicit(&foreign->pages, memory_order_acquire) == 0)
        return NULL;
    while (number <= last && number >> NUMBER_BITS == 0) {
        uint64_t page = 0;
        unsigned level = 0;
        for (; level < SH_FOREIGN_LEVELS; level++) {
            page =
                atomic_load_explicit(word_of(foreign, page, level, number), memory_order_acquire);
            if (page == 0)
                break;
        }
        if (level == SH_FOREIGN_LEVELS) {
            *number_out = number;
            return group_of(foreign, page, number);
        }
        number = ((number >> shift_of(level)) + 1) << shift_of(level);
    }
    return NULL;
}
