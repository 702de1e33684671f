#include "store/memory_int.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/log.h"

enum shoal_err sh_vm_reserve(uint64_t bytes, struct sh_vm *vm_out)
{
    SH_ASSERT(bytes > 0);
    bytes = sh_pages(bytes) << SH_PAGE_BITS;
    /* More than is needed, so that a huge page can begin where the range does. */
    uint8_t *at = mmap(NULL, bytes + SH_HUGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        SH_ERROR("store", "address range refused", SH_U64("bytes", bytes),
                 SH_I64("errno", (int64_t)errno));
        return SHOAL_ENOMEM;
    }
    uint64_t before = -(uintptr_t)at & (SH_HUGE_BYTES - 1);
    if (before > 0)
        munmap(at, before);
    munmap(at + before + bytes, SH_HUGE_BYTES - before);
    /* Where the system hands out huge pages unasked, a touched byte would make 2 MiB resident and
     * the budget's count wrong. Kernels without huge pages refuse this, rightly. */
    *vm_out = (struct sh_vm){at + before, bytes};
    (void)sh_vm_small(vm_out, 0, bytes);
    return SHOAL_OK;
}

void sh_vm_release(struct sh_vm *vm)
{
    if (vm->at)
        munmap(vm->at, vm->bytes);
    *vm = (struct sh_vm){NULL, 0};
}

bool sh_vm_discard(const struct sh_vm *vm, uint64_t offset, uint64_t bytes)
{
    SH_ASSERT(offset % SH_PAGE_BYTES == 0 && bytes % SH_PAGE_BYTES == 0);
    SH_ASSERT(offset + bytes <= vm->bytes);
    return madvise(vm->at + offset, bytes, MADV_DONTNEED) == 0;
}

void sh_vm_huge(const struct sh_vm *vm, uint64_t offset, uint64_t bytes)
{
    SH_ASSERT(offset + bytes <= vm->bytes);
    /* A kernel without huge pages says EINVAL, and nothing is lost. */
    (void)madvise(vm->at + offset, bytes, MADV_HUGEPAGE);
}

void sh_vm_populate(const struct sh_vm *vm, uint64_t offset, uint64_t bytes)
{
    SH_ASSERT(offset + bytes <= vm->bytes);
#ifdef MADV_POPULATE_WRITE
    if (madvise(vm->at + offset, bytes, MADV_POPULATE_WRITE) == 0)
        return;
#endif
    /* Kernels before 5.14. */
    for (uint64_t at = offset; at < offset + bytes; at += SH_PAGE_BYTES)
        *(volatile uint8_t *)(vm->at + at) = 0;
}

bool sh_vm_small(const struct sh_vm *vm, uint64_t offset, uint64_t bytes)
{
    SH_ASSERT(offset + bytes <= vm->bytes);
    /* EINVAL: a kernel that has no other pages. */
    return madvise(vm->at + offset, bytes, MADV_NOHUGEPAGE) == 0 || errno == EINVAL;
}
