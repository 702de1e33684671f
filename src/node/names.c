#include "node/names.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"

#define LID ((sh_lid){0})
#define PAUSE_NS UINT64_C(200000000)
#define PAUSE_NS_PER_BYTE 100 /* 200 times what it takes to copy one */
#define RETRY_NS UINT64_C(5000000000)

struct sh_names {
    struct sh_names_config config;
    uint64_t written; /* of the keeper's changes */
    uint64_t due_ns;
    bool is_loading;
    bool is_refused; /* the store had no room, which was logged */
};

static enum shoal_err chunk_set(struct sh_store *store, struct sh_bytes bytes)
{
    uint32_t size;
    enum shoal_err err = sh_store_size(store, LID, &size);
    if (err == SHOAL_ENOCHUNK)
        return sh_store_adopt(store, LID, bytes);
    if (!err && size != bytes.size)
        err = sh_store_resize(store, LID, (uint32_t)bytes.size);
    return err ? err : sh_store_put(store, LID, bytes);
}

static enum shoal_err chunk_write(struct sh_names *names)
{
    size_t size = sh_keeper_chunk_size(names->config.keeper);
    if (!size) {
        enum shoal_err err = sh_store_remove(names->config.store, LID);
        return err == SHOAL_ENOCHUNK ? SHOAL_OK : err;
    }
    if (size > UINT32_MAX)
        return SHOAL_ETOOBIG;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return SHOAL_ENOMEM;
    sh_keeper_chunk_put(names->config.keeper, sh_msg_nid(names->config.msg), bytes);
    enum shoal_err err = chunk_set(names->config.store, sh_bytes_make(bytes, size));
    free(bytes);
    return err;
}

static bool is_written(const struct sh_names *names)
{
    return names->written == sh_keeper_changes(names->config.keeper) || names->is_loading ||
           !sh_msg_nid(names->config.msg).v;
}

enum shoal_err sh_names_write(struct sh_names *names)
{
    uint64_t changes = sh_keeper_changes(names->config.keeper);
    if (is_written(names))
        return SHOAL_OK;
    enum shoal_err err = chunk_write(names);
    uint64_t pause_ns =
        PAUSE_NS + PAUSE_NS_PER_BYTE * (uint64_t)sh_keeper_chunk_size(names->config.keeper);
    names->due_ns = sh_now(&names->config.clock) + (err ? RETRY_NS : pause_ns);
    if (!err)
        names->written = changes;
    else if (!names->is_refused)
        SH_WARN("node", "names can't be written to a chunk; trying on", SH_ERR(err));
    names->is_refused = err != SHOAL_OK;
    return err;
}

static unsigned run(void *arg)
{
    struct sh_names *names = arg;
    if (is_written(names) || sh_now(&names->config.clock) < names->due_ns)
        return 0;
    (void)!sh_names_write(names); /* tried again */
    return 1;
}

static uint64_t due_ns(void *arg)
{
    struct sh_names *names = arg;
    return is_written(names) ? SH_NEVER : names->due_ns;
}

struct sh_step sh_names_step(struct sh_names *names)
{
    return (struct sh_step){.name = "names", .run = run, .due_ns = due_ns, .arg = names};
}

/* --- Loads --------------------------------------------------------------------------------- */

void sh_names_load_begin(struct sh_names *names)
{
    SH_ASSERT(!names->is_loading);
    names->is_loading = true;
    enum shoal_err err = sh_store_remove(names->config.store, LID);
    if (err && err != SHOAL_ENOCHUNK)
        SH_WARN("node", "the chunk of names is in the way of a load", SH_ERR(err));
}

/* Reads the chunk that was loaded. ENOCHUNK: there was none in the file. */
static enum shoal_err chunk_take(struct sh_names *names)
{
    uint32_t size;
    enum shoal_err err = sh_store_size(names->config.store, LID, &size);
    if (err)
        return err;
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    err = sh_store_get(names->config.store, LID, bytes, size, &size);
    if (!err)
        err = sh_keeper_chunk_load(names->config.keeper, sh_msg_nid(names->config.msg),
                                   sh_bytes_make(bytes, size));
    free(bytes);
    return err;
}

void sh_names_load_end(struct sh_names *names, enum shoal_err err)
{
    SH_ASSERT(names->is_loading);
    names->is_loading = false;
    if (!err) {
        err = chunk_take(names);
        if (err && err != SHOAL_ENOCHUNK)
            SH_WARN("node", "not all names of a dump were loaded", SH_ERR(err));
    }
    names->written = UINT64_MAX; /* the chunk is another one, or gone */
    names->due_ns = 0;
}

/* --- Life ---------------------------------------------------------------------------------- */

enum shoal_err sh_names_create(const struct sh_names_config *config, struct sh_names **names_out)
{
    struct sh_names *names = calloc(1, sizeof *names);
    if (!names)
        return SHOAL_ENOMEM;
    names->config = *config;
    names->written = sh_keeper_changes(config->keeper);
    *names_out = names;
    return SHOAL_OK;
}

void sh_names_destroy(struct sh_names *names)
{
    free(names);
}
