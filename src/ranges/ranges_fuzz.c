/* Sets, removals and fills drawn from the input, against an array with a value for each slot. */
#include <string.h>

#include "base/assert.h"
#include "ranges/ranges.h"

#define SLOTS 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t model[SLOTS];
static uint64_t base, unit;

static shoal_cid first_of(unsigned slot)
{
    return (shoal_cid){base + slot * unit};
}

static shoal_cid last_of(unsigned slot)
{
    return (shoal_cid){base + slot * unit + (unit - 1)};
}

static void compare(const struct sh_ranges *ranges)
{
    size_t count = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        struct sh_range range;
        bool has = sh_ranges_find(ranges, last_of(slot), &range);
        SH_ASSERT(has == (model[slot] != 0));
        SH_ASSERT(!has || range.value == model[slot]);
        bool begins = has && (!slot || model[slot - 1] != model[slot]);
        SH_ASSERT(!has || (range.first.v == first_of(slot).v) == begins);
        count += begins;
    }
    SH_ASSERT(count == sh_ranges_count(ranges));
    sh_ranges_check(ranges);
}

static bool slot_next(void *arg, struct sh_range *range_out)
{
    unsigned *slot = arg;
    while (*slot < SLOTS && !model[*slot])
        ++*slot;
    if (*slot == SLOTS)
        return false;
    *range_out = (struct sh_range){first_of(*slot), last_of(*slot), model[*slot]};
    ++*slot;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t units[] = {1, 1000, UINT64_C(1) << 33, UINT64_C(1) << 55};
    if (size < 2)
        return 0;
    unit = units[data[0] % 4];
    base = data[0] & 4 ? UINT64_MAX - SLOTS * unit + 1 : 0;
    struct sh_ranges *ranges;
    if (sh_ranges_create(data[1] % 64 + 64, &ranges))
        return 0;
    memset(model, 0, sizeof model);
    for (size_t at = 2; at + 4 <= size; at += 4) {
        unsigned first = (data[at] | data[at + 1] << 8) % SLOTS;
        unsigned last = first + data[at + 2] % 16 * (data[at + 2] / 16);
        if (last >= SLOTS)
            last = SLOTS - 1;
        uint64_t value = data[at + 3];
        unsigned slot = 0;
        enum shoal_err err = SHOAL_OK;
        if (value == 255)
            err = sh_ranges_fill(ranges, slot_next, &slot);
        else if (value)
            err = sh_ranges_set(ranges, first_of(first), last_of(last), value);
        else
            err = sh_ranges_remove(ranges, first_of(first), last_of(last));
        SH_ASSERT(!err || err == SHOAL_ELIMIT);
        for (slot = first; !err && value != 255 && slot <= last; slot++)
            model[slot] = value;
    }
    compare(ranges);
    sh_ranges_destroy(ranges);
    return 0;
}
