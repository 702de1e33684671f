/* The ranges' other baseline: GLib's hash table from a chunk's ID to its value, both in the
 * pointers themselves. Where shoal was built without libglib2.0-dev, create says EINVAL. */
#ifndef SH_BENCH_GLIB_BASE_H
#define SH_BENCH_GLIB_BASE_H

#include <stdint.h>

#include "shoal/err.h"

struct sh_glib_base;

SHOAL_NODISCARD enum shoal_err sh_glib_base_create(struct sh_glib_base **base_out);
/* NULL is allowed. Makes malloc give back what it can. */
void sh_glib_base_destroy(struct sh_glib_base *base);
/* The key is not 0. */
void sh_glib_base_set(struct sh_glib_base *base, uint64_t key, uint64_t value);
/* 0 if there is none. */
uint64_t sh_glib_base_get(struct sh_glib_base *base, uint64_t key);

#endif
