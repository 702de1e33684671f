/* Which events are logged. The levels are read by every thread at every event and changed at any
 * time, so they are single atomic words: a level for all modules and a small table that holds, for
 * each module with a level of its own, a hash of its name and that level in one word. */
#include "base/log.h"

#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"

#define MODULES_MAX 16
#define MODULE_NAME_MAX 15
#define LEVEL_BITS 8
#define LEVEL_MASK ((UINT64_C(1) << LEVEL_BITS) - 1)

struct levels {
    enum sh_log_level all;
    size_t count;
    uint64_t modules[MODULES_MAX]; /* upper 56 bits: hash of the name; lower 8: level + 1 */
};

static _Atomic int level_all = SH_LOG_INFO;
static _Atomic int level_highest = SH_LOG_INFO; /* of any module: the quick way out */
static _Atomic uint64_t module_levels[MODULES_MAX];
static struct sh_lock lock = SH_LOCK_STATIC(SH_LOCK_LOG); /* of those who change them */

/* Two names with equal hashes would share a level; of 16 names among 2^56 values none will. */
static uint64_t module_hash(const char *name, size_t size)
{
    return sh_hash64(sh_bytes_make(name, size), 0) & ~LEVEL_MASK;
}

static bool parse_level(const char *word, size_t size, enum sh_log_level *level_out)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (size == strlen(names[i]) && memcmp(word, names[i], size) == 0) {
            *level_out = (enum sh_log_level)i;
            return true;
        }
    }
    return false;
}

static bool is_module_name(const char *word, size_t size)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    return size >= 1 && size <= MODULE_NAME_MAX && strspn(word, allowed) >= size;
}

static bool parse_word(const char *word, size_t size, struct levels *levels)
{
    const char *equals = memchr(word, '=', size);
    if (!equals)
        return parse_level(word, size, &levels->all);
    size_t name_size = (size_t)(equals - word);
    enum sh_log_level level;
    if (!is_module_name(word, name_size) || !parse_level(equals + 1, size - name_size - 1, &level))
        return false;
    uint64_t hash = module_hash(word, name_size);
    size_t at = 0;
    while (at < levels->count && (levels->modules[at] & ~LEVEL_MASK) != hash)
        at++;
    if (at == MODULES_MAX)
        return false;
    levels->modules[at] = hash | (uint64_t)(level + 1);
    if (at == levels->count)
        levels->count++;
    return true;
}

static enum shoal_err parse(const char *spec, struct levels *levels, const char **bad_out,
                            size_t *bad_len_out)
{
    *levels = (struct levels){.all = SH_LOG_INFO};
    for (const char *word = spec;; word++) {
        size_t size = strcspn(word, ",");
        if (!parse_word(word, size, levels)) {
            *bad_out = word;
            *bad_len_out = size;
            return SHOAL_EPARSE;
        }
        word += size;
        if (*word == '\0')
            return SHOAL_OK;
    }
}

enum shoal_err sh_log_levels_check(const char *spec, const char **bad_out, size_t *bad_len_out)
{
    struct levels levels;
    return parse(spec, &levels, bad_out, bad_len_out);
}

enum shoal_err sh_log_levels_set(const char *spec, const char **bad_out, size_t *bad_len_out)
{
    SH_ASSERT(spec != NULL);
    struct levels levels;
    enum shoal_err err = parse(spec, &levels, bad_out, bad_len_out);
    if (err != SHOAL_OK)
        return err;
    int highest = (int)levels.all;
    sh_lock_take(&lock);
    /* relaxed, here and in sh_log_enabled: each word stands for itself and publishes nothing. */
    for (size_t i = 0; i < MODULES_MAX; i++) {
        int level = (int)(levels.modules[i] & LEVEL_MASK) - 1;
        highest = level > highest ? level : highest;
        atomic_store_explicit(&module_levels[i], levels.modules[i], memory_order_relaxed);
    }
    atomic_store_explicit(&level_all, (int)levels.all, memory_order_relaxed);
    atomic_store_explicit(&level_highest, highest, memory_order_relaxed);
    sh_lock_release(&lock);
    return SHOAL_OK;
}

bool sh_log_enabled(enum sh_log_level level, const char *module)
{
    SH_ASSERT(module != NULL);
    if ((int)level > atomic_load_explicit(&level_highest, memory_order_relaxed))
        return false;
    uint64_t hash = 0;
    for (size_t i = 0; i < MODULES_MAX; i++) {
        uint64_t entry = atomic_load_explicit(&module_levels[i], memory_order_relaxed);
        if (entry == 0)
            break;
        if (hash == 0)
            hash = module_hash(module, strlen(module));
        if ((entry & ~LEVEL_MASK) == hash)
            return (int)level <= (int)(entry & LEVEL_MASK) - 1;
    }
    return (int)level <= atomic_load_explicit(&level_all, memory_order_relaxed);
}
