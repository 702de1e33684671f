#include "bench/glib_base.h"

#ifdef SHOAL_HAS_GLIB

#include <glib.h>
#include <malloc.h>

#include "base/assert.h"

enum shoal_err sh_glib_base_create(struct sh_glib_base **base_out)
{
    *base_out = (struct sh_glib_base *)g_hash_table_new(NULL, NULL);
    return SHOAL_OK;
}

static GHashTable *table_of(struct sh_glib_base *base)
{
    SH_ASSERT(base);
    return (GHashTable *)base;
}

void sh_glib_base_destroy(struct sh_glib_base *base)
{
    if (!base)
        return;
    g_hash_table_destroy(table_of(base));
    malloc_trim(0);
}

void sh_glib_base_set(struct sh_glib_base *base, uint64_t key, uint64_t value)
{
    SH_ASSERT(key);
    g_hash_table_insert(table_of(base), (gpointer)(uintptr_t)key, (gpointer)(uintptr_t)value);
}

uint64_t sh_glib_base_get(struct sh_glib_base *base, uint64_t key)
{
    return (uintptr_t)g_hash_table_lookup(table_of(base), (gconstpointer)(uintptr_t)key);
}

#else

#include "base/log.h"

enum shoal_err sh_glib_base_create(struct sh_glib_base **base_out)
{
    (void)base_out;
    SH_ERROR("bench", "built without GLib: install libglib2.0-dev and build shoal again",
             SH_TEXT("baseline", "glib"));
    return SHOAL_EINVAL;
}

void sh_glib_base_destroy(struct sh_glib_base *base)
{
    (void)base;
}

void sh_glib_base_set(struct sh_glib_base *base, uint64_t key, uint64_t value)
{
    (void)base;
    (void)key;
    (void)value;
}

uint64_t sh_glib_base_get(struct sh_glib_base *base, uint64_t key)
{
    (void)base;
    (void)key;
    return 0;
}

#endif
