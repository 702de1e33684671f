#include "bench/malloc_base.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"

#define STRIPES 4096
/* No keys: a slot that never had one, one that had, and one whose object is on its way. */
#define KEY_NONE UINT64_MAX
#define KEY_GONE (UINT64_MAX - 1)
#define KEY_COMING (UINT64_MAX - 2)

struct place {
    _Atomic uint64_t key;
    uint8_t *object; /* under the key's lock */
};

struct stripe {
    _Alignas(64) struct sh_spin lock;
};

struct sh_malloc_base {
    struct stripe stripes[STRIPES];
    const struct sh_allocator *allocator;
    struct place *places;
    uint64_t mask;
    uint64_t objects_max;
    _Alignas(64) _Atomic uint64_t objects;
};

static void glibc_trim(void)
{
    malloc_trim(0);
}

static const struct sh_allocator glibc = {.calloc = calloc, .free = free, .trim = glibc_trim};
static struct sh_allocator mimalloc;
static void (*mimalloc_collect)(bool force);

static void mimalloc_trim(void)
{
    mimalloc_collect(true);
}

/* POSIX promises that a symbol's pointer can be made one to a function; ISO C does not. */
static void symbol_find(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    memcpy(function_out, &symbol, sizeof symbol);
}

static enum shoal_err mimalloc_load(void)
{
    if (mimalloc.calloc)
        return SHOAL_OK;
    /* RTLD_LOCAL: its own malloc must not take the place of glibc's. */
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *cause = dlerror();
        SH_ERROR("bench", "mimalloc cannot be loaded; Debian has it in libmimalloc2.0",
                 SH_TEXT("cause", cause ? cause : "unknown"));
        return SHOAL_ENONAME;
    }
    struct sh_allocator found = {.trim = mimalloc_trim};
    symbol_find(library, "mi_calloc", &found.calloc);
    symbol_find(library, "mi_free", &found.free);
    symbol_find(library, "mi_collect", &mimalloc_collect);
    if (!found.calloc || !found.free || !mimalloc_collect) {
        SH_ERROR("bench", "libmimalloc.so.2 lacks mi_calloc, mi_free or mi_collect");
        dlclose(library);
        return SHOAL_ENONAME;
    }
    mimalloc = found;
    return SHOAL_OK;
}

enum shoal_err sh_allocator_find(const char *name, const struct sh_allocator **allocator_out)
{
    bool is_glibc = strcmp(name, "malloc") == 0;
    SH_ASSERT(is_glibc || strcmp(name, "mimalloc") == 0);
    enum shoal_err err = is_glibc ? SHOAL_OK : mimalloc_load();
    if (!err)
        *allocator_out = is_glibc ? &glibc : &mimalloc;
    return err;
}

enum shoal_err sh_malloc_base_create(const struct sh_allocator *allocator, uint64_t objects_max,
                                     struct sh_malloc_base **base_out)
{
    SH_ASSERT(objects_max > 0 && objects_max < UINT64_C(1) << 48);
    struct sh_malloc_base *base = aligned_alloc(64, sizeof *base);
    if (!base)
        return SHOAL_ENOMEM;
    uint64_t places = 2;
    while (places * 2 < objects_max * 3)
        places *= 2;
    base->allocator = allocator;
    base->mask = places - 1;
    base->objects_max = objects_max;
    atomic_init(&base->objects, 0);
    for (unsigned i = 0; i < STRIPES; i++)
        sh_spin_init(&base->stripes[i].lock, SH_LOCK_TEST);
    base->places = malloc(places * sizeof *base->places);
    if (!base->places) {
        free(base);
        return SHOAL_ENOMEM;
    }
    for (uint64_t i = 0; i < places; i++) {
        atomic_init(&base->places[i].key, KEY_NONE);
        base->places[i].object = NULL;
    }
    *base_out = base;
    return SHOAL_OK;
}

void sh_malloc_base_destroy(struct sh_malloc_base *base)
{
    if (!base)
        return;
    for (uint64_t i = 0; i <= base->mask; i++)
        base->allocator->free(base->places[i].object);
    base->allocator->trim();
    free(base->places);
    free(base);
    malloc_trim(0);
}

/* acquire: the object under a key; pairs with the release in sh_malloc_base_add */
static uint64_t key_at(struct sh_malloc_base *base, uint64_t at)
{
    return atomic_load_explicit(&base->places[at & base->mask].key, memory_order_acquire);
}

/* The key's place; NULL where there is none. */
static struct place *place_of(struct sh_malloc_base *base, uint64_t key)
{
    uint64_t at = sh_mix64(key);
    for (uint64_t tries = 0; tries <= base->mask; tries++, at++) {
        uint64_t found = key_at(base, at);
        if (found == key)
            return &base->places[at & base->mask];
        if (found == KEY_NONE)
            break;
    }
    return NULL;
}

static struct sh_spin *lock_of(struct sh_malloc_base *base, uint64_t key)
{
    return &base->stripes[sh_mix64(key) % STRIPES].lock;
}

/* The key's place with the key's lock held, which keeps it there; NULL, and no lock, where the key
 * is not in the table. */
static struct place *place_take(struct sh_malloc_base *base, uint64_t key)
{
    for (;;) {
        struct place *place = place_of(base, key);
        if (!place)
            return NULL;
        sh_spin_take(lock_of(base, key));
        /* relaxed: only a holder of this lock adds or removes this key */
        if (atomic_load_explicit(&place->key, memory_order_relaxed) == key)
            return place;
        sh_spin_release(lock_of(base, key));
    }
}

enum shoal_err sh_malloc_base_add(struct sh_malloc_base *base, uint64_t key, uint32_t size)
{
    SH_ASSERT(key < UINT64_C(1) << 63);
    uint8_t *object = base->allocator->calloc(1, size ? size : 1);
    if (!object)
        return SHOAL_ENOMEM;
    uint64_t objects = atomic_fetch_add_explicit(&base->objects, 1, memory_order_relaxed);
    SH_ASSERT(objects < base->objects_max);
    sh_spin_take(lock_of(base, key));
    /* A third of the slots or more holds nothing, so there is one; others may take it first. */
    for (uint64_t at = sh_mix64(key);; at++) {
        uint64_t found = key_at(base, at);
        SH_ASSERT(found != key);
        struct place *place = &base->places[at & base->mask];
        /* acquire: the slot as its last key left it; pairs with the release in remove */
        if ((found == KEY_NONE || found == KEY_GONE) &&
            atomic_compare_exchange_strong_explicit(&place->key, &found, KEY_COMING,
                                                    memory_order_acquire, memory_order_relaxed)) {
            place->object = object;
            /* release: the object; pairs with the acquire in key_at */
            atomic_store_explicit(&place->key, key, memory_order_release);
            break;
        }
    }
    sh_spin_release(lock_of(base, key));
    return SHOAL_OK;
}

bool sh_malloc_base_get(struct sh_malloc_base *base, uint64_t key, void *into, uint32_t size)
{
    struct place *place = place_take(base, key);
    if (!place)
        return false;
    memcpy(into, place->object, size);
    sh_spin_release(lock_of(base, key));
    return true;
}

bool sh_malloc_base_put(struct sh_malloc_base *base, uint64_t key, const void *from, uint32_t size)
{
    struct place *place = place_take(base, key);
    if (!place)
        return false;
    memcpy(place->object, from, size);
    sh_spin_release(lock_of(base, key));
    return true;
}

bool sh_malloc_base_remove(struct sh_malloc_base *base, uint64_t key)
{
    struct place *place = place_take(base, key);
    if (!place)
        return false;
    uint8_t *object = place->object;
    place->object = NULL;
    /* release: the cleared object; pairs with the claim in sh_malloc_base_add */
    atomic_store_explicit(&place->key, KEY_GONE, memory_order_release);
    atomic_fetch_sub_explicit(&base->objects, 1, memory_order_relaxed);
    sh_spin_release(lock_of(base, key));
    base->allocator->free(object);
    return true;
}
