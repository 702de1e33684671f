#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "graph/edges.h"

#define SLOTS (1u << 17) /* twice the most names: probes stay short */

struct name {
    uint8_t size;
    uint8_t text[SH_TYPE_NAME_MAX];
};

struct sh_types {
    size_t count;
    struct name **names; /* SH_TYPES_MAX pointers */
    uint16_t *slots;     /* number + 1; 0: empty. SH_TYPES_MAX + 1 does not occur. */
};

enum shoal_err sh_types_create(struct sh_types **types_out)
{
    struct sh_types *types = calloc(1, sizeof *types);
    if (!types)
        return SHOAL_ENOMEM;
    types->names = calloc(SH_TYPES_MAX, sizeof *types->names);
    types->slots = calloc(SLOTS, sizeof *types->slots);
    if (!types->names || !types->slots) {
        sh_types_destroy(types);
        return SHOAL_ENOMEM;
    }
    *types_out = types;
    return SHOAL_OK;
}

void sh_types_destroy(struct sh_types *types)
{
    if (!types)
        return;
    for (size_t i = 0; i < types->count; i++)
        free(types->names[i]);
    free(types->names);
    free(types->slots);
    free(types);
}

enum shoal_err sh_types_number(struct sh_types *types, struct sh_bytes name, uint16_t *number_out)
{
    if (name.size == 0 || name.size > SH_TYPE_NAME_MAX)
        return SHOAL_EINVAL;
    uint32_t slot = (uint32_t)sh_hash64(name, 0) & (SLOTS - 1);
    for (; types->slots[slot]; slot = (slot + 1) & (SLOTS - 1)) {
        uint16_t number = (uint16_t)(types->slots[slot] - 1);
        const struct name *known = types->names[number];
        if (known->size == name.size && memcmp(known->text, name.at, name.size) == 0) {
            *number_out = number;
            return SHOAL_OK;
        }
    }
    if (types->count == SH_TYPES_MAX)
        return SHOAL_ELIMIT;
    struct name *added = malloc(offsetof(struct name, text) + name.size);
    if (!added)
        return SHOAL_ENOMEM;
    added->size = (uint8_t)name.size;
    memcpy(added->text, name.at, name.size);
    *number_out = (uint16_t)types->count;
    types->names[types->count++] = added;
    types->slots[slot] = (uint16_t)types->count;
    return SHOAL_OK;
}

size_t sh_types_count(const struct sh_types *types)
{
    return types->count;
}

struct sh_bytes sh_types_name(const struct sh_types *types, uint16_t number)
{
    SH_ASSERT(number < types->count);
    return sh_bytes_make(types->names[number]->text, types->names[number]->size);
}
