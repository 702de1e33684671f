#include "bench/malloc_base.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"

#define STRIPES 4096
#define NO_KEY UINT64_MAX

struct place {
    uint64_t key;
    uint8_t *object;
};

struct stripe {
    _Alignas(64) struct sh_spin lock;
};

struct sh_malloc_base {
    struct stripe stripes[STRIPES];
    struct place *places;
    uint64_t mask;
    uint64_t objects;
    uint64_t objects_max;
};

enum shoal_err sh_malloc_base_create(uint64_t objects_max, struct sh_malloc_base **base_out)
{
    SH_ASSERT(objects_max > 0 && objects_max < UINT64_C(1) << 48);
    struct sh_malloc_base *base = aligned_alloc(64, sizeof *base);
    if (!base)
        return SHOAL_ENOMEM;
    uint64_t places = 2;
    while (places * 2 < objects_max * 3)
        places *= 2;
    base->mask = places - 1;
    base->objects = 0;
    base->objects_max = objects_max;
    for (unsigned i = 0; i < STRIPES; i++)
        sh_spin_init(&base->stripes[i].lock, SH_LOCK_TEST);
    base->places = malloc(places * sizeof *base->places);
    if (!base->places) {
        free(base);
        return SHOAL_ENOMEM;
    }
    memset(base->places, 0xff, places * sizeof *base->places); /* NO_KEY everywhere */
    *base_out = base;
    return SHOAL_OK;
}

void sh_malloc_base_destroy(struct sh_malloc_base *base)
{
    if (!base)
        return;
    for (uint64_t i = 0; i <= base->mask; i++)
        if (base->places[i].key != NO_KEY)
            free(base->places[i].object);
    free(base->places);
    free(base);
    malloc_trim(0);
}

/* The key's place, or the free one where it would go. */
static struct place *place_of(struct sh_malloc_base *base, uint64_t key)
{
    uint64_t at = sh_mix64(key) & base->mask;
    while (base->places[at].key != key && base->places[at].key != NO_KEY)
        at = (at + 1) & base->mask;
    return &base->places[at];
}

enum shoal_err sh_malloc_base_add(struct sh_malloc_base *base, uint64_t key, uint32_t size)
{
    SH_ASSERT(key != NO_KEY && base->objects < base->objects_max);
    struct place *place = place_of(base, key);
    SH_ASSERT(place->key == NO_KEY);
    place->object = calloc(1, size ? size : 1);
    if (!place->object)
        return SHOAL_ENOMEM;
    place->key = key;
    base->objects++;
    return SHOAL_OK;
}

static struct sh_spin *lock_of(struct sh_malloc_base *base, uint64_t key)
{
    return &base->stripes[sh_mix64(key) % STRIPES].lock;
}

bool sh_malloc_base_get(struct sh_malloc_base *base, uint64_t key, void *into, uint32_t size)
{
    struct place *place = place_of(base, key);
    if (place->key == NO_KEY)
        return false;
    struct sh_spin *lock = lock_of(base, key);
    sh_spin_take(lock);
    memcpy(into, place->object, size);
    sh_spin_release(lock);
    return true;
}

bool sh_malloc_base_put(struct sh_malloc_base *base, uint64_t key, const void *from, uint32_t size)
{
    struct place *place = place_of(base, key);
    if (place->key == NO_KEY)
        return false;
    struct sh_spin *lock = lock_of(base, key);
    sh_spin_take(lock);
    memcpy(place->object, from, size);
    sh_spin_release(lock);
    return true;
}
