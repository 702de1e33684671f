/* The table of distinct values, but for small ones: each has a number of 16 bits while boundaries use it. */
#include <sys/mman.h>

#include "base/hash.h"
#include "ranges/ranges_int.h"

#define SLOTS (SH_CODES_TABLED * 2)
#define VALUES_BYTES (SH_CODES_TABLED * sizeof(sh_word))
#define COUNTS_BYTES (SH_CODES_TABLED * sizeof(uint32_t))
#define SLOTS_BYTES (SLOTS * sizeof(uint16_t))
#define SPARE_BYTES (SH_CODES_TABLED * sizeof(uint16_t))
#define MAP_BYTES (VALUES_BYTES + COUNTS_BYTES + SLOTS_BYTES + SPARE_BYTES)

enum shoal_err sh_codes_create(struct sh_codes *codes)
{
    /* 0.9 MB of addresses; pages come as values do. */
    uint8_t *at = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return SHOAL_ENOMEM;
    codes->map = at;
    codes->values = (sh_word *)at;
    codes->counts = (uint32_t *)(at + VALUES_BYTES);
    codes->slots = (uint16_t *)(at + VALUES_BYTES + COUNTS_BYTES);
    codes->spare = (uint16_t *)(at + VALUES_BYTES + COUNTS_BYTES + SLOTS_BYTES);
    atomic_store_explicit(&codes->used, 1, memory_order_relaxed); /* 0 is the gap */
    return SHOAL_OK;
}

void sh_codes_destroy(struct sh_codes *codes)
{
    if (codes->map)
        (void)munmap(codes->map, MAP_BYTES);
    codes->map = NULL;
}

static uint32_t home(uint64_t value)
{
    return sh_mix64(value) % SLOTS;
}

/* The slot that has the value's code, or the free one where it would be. */
static uint32_t slot_find(const struct sh_codes *codes, uint64_t value)
{
    uint32_t slot = home(value);
    while (codes->slots[slot] && sh_codes_value(codes, codes->slots[slot]) != value)
        slot = (slot + 1) % SLOTS;
    return slot;
}

uint32_t sh_codes_hold(struct sh_codes *codes, uint64_t value)
{
    if (value < SH_VALUES_SMALL)
        return SH_CODES_TABLED + (uint32_t)value;
    uint32_t slot = slot_find(codes, value);
    uint32_t code = codes->slots[slot];
    if (!code) {
        /* relaxed: written by the changer, which this is */
        uint32_t used = atomic_load_explicit(&codes->used, memory_order_relaxed);
        if (codes->spares) {
            code = codes->spare[--codes->spares];
        } else if (used < SH_CODES_TABLED) {
            code = used;
            atomic_store_explicit(&codes->used, used + 1, memory_order_relaxed);
        } else {
            return SH_CODE_RAW;
        }
        SH_ASSERT(codes->counts[code] == 0);
        /* Leaves that used the code before have their new generation: see ranges_int.h. */
        sh_word_set(&codes->values[code], value);
        codes->slots[slot] = (uint16_t)code;
    }
    sh_codes_use(codes, code);
    return code;
}

/* Empties a slot; what was pushed behind it by others moves up. */
static void slot_clear(struct sh_codes *codes, uint32_t slot)
{
    uint32_t hole = slot;
    for (uint32_t at = (slot + 1) % SLOTS; codes->slots[at]; at = (at + 1) % SLOTS) {
        uint32_t wanted = home(sh_codes_value(codes, codes->slots[at]));
        if ((at - wanted) % SLOTS < (at - hole) % SLOTS)
            continue;
        codes->slots[hole] = codes->slots[at];
        hole = at;
    }
    codes->slots[hole] = 0;
}

void sh_codes_drop(struct sh_codes *codes, uint32_t code)
{
    if (code >= SH_CODES_TABLED)
        return;
    SH_ASSERT(code && codes->counts[code]);
    if (--codes->counts[code])
        return;
    uint32_t slot = slot_find(codes, sh_codes_value(codes, code));
    SH_ASSERT(codes->slots[slot] == code);
    slot_clear(codes, slot);
    codes->spare[codes->spares++] = (uint16_t)code;
}

size_t sh_codes_bytes(const struct sh_codes *codes)
{
    size_t used = atomic_load_explicit(&codes->used, memory_order_relaxed);
    /* A page of slots for each value, until all are there. */
    size_t slots = (used - 1) * 4096;
    return used * (sizeof(sh_word) + sizeof(uint32_t) + sizeof(uint16_t)) +
           (slots < SLOTS_BYTES ? slots : SLOTS_BYTES);
}
