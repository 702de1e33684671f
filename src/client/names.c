/* The public calls on names and scratch. */
#include <stdlib.h>
#include <string.h>

#include "client/service_int.h"
#include "cluster/proto.h"

_Static_assert(SHOAL_NAME_MAX == SH_NAME_BYTES_MAX && SHOAL_SCRATCH_MAX == SH_SCRATCH_VALUE_MAX,
               "the library's limits are the superpeers'");
_Static_assert((int)SHOAL_NAME_ALWAYS == SH_NAME_ANY && (int)SHOAL_NAME_ABSENT == SH_NAME_ABSENT &&
                   (int)SHOAL_NAME_CURRENT == SH_NAME_CURRENT,
               "conditions go as they are");

/* --- Names ----------------------------------------------------------------------------------- */

static enum shoal_err name_change(shoal *store, const char *name, struct sh_metadata_update *update,
                                  shoal_cid *previous_out)
{
    struct sh_metadata_result result = {.cid = SHOAL_CID_NONE};
    enum shoal_err err = sh_service_begin(store);
    if (!err && store->is_embedded)
        err = sh_embedded_level_check(store);
    if (!err)
        err = sh_service_key(name, &update->name);
    if (!err)
        err = sh_service_update(store, update, &result);
    if (previous_out && (err == SHOAL_OK || err == SHOAL_EEXIST || err == SHOAL_EDIFFERS))
        *previous_out = result.cid;
    return err;
}

enum shoal_err shoal_name_set(shoal *store, const char *name, shoal_cid cid,
                              enum shoal_name_if when, shoal_cid expected, shoal_cid *previous_out)
{
    struct sh_metadata_update update = {
        .kind = SH_METADATA_NAME, .condition = (uint8_t)when, .cid = cid, .expected = expected};
    if (!cid.v || (unsigned)when > SHOAL_NAME_CURRENT)
        return SHOAL_EINVAL;
    return name_change(store, name, &update, previous_out);
}

enum shoal_err shoal_name_remove(shoal *store, const char *name, enum shoal_name_if when,
                                 shoal_cid expected, shoal_cid *previous_out)
{
    struct sh_metadata_update update = {
        .kind = SH_METADATA_UNNAME, .condition = (uint8_t)when, .expected = expected};
    if (when != SHOAL_NAME_ALWAYS && when != SHOAL_NAME_CURRENT)
        return SHOAL_EINVAL;
    return name_change(store, name, &update, previous_out);
}

static enum shoal_err name_ask(shoal *store, const char *name, uint64_t wait_ns, shoal_cid *cid_out)
{
    struct sh_service_ask ask = {.kind = SH_ASK_NAME};
    enum shoal_err err = sh_service_begin(store);
    if (!err && !cid_out)
        err = SHOAL_EINVAL;
    if (!err)
        err = sh_service_key(name, &ask.key);
    if (err)
        return err;
    uint64_t now_ns = sh_now(&store->env.clock);
    uint64_t longest_ns = UINT64_MAX / 2;
    ask.deadline_ns = sh_client_deadline_ns(store);
    if (wait_ns) {
        ask.wait_until_ns = now_ns + (wait_ns < longest_ns ? wait_ns : longest_ns);
        ask.deadline_ns = ask.wait_until_ns + store->timeout_ns;
    }
    uint8_t *answer;
    struct sh_reader r;
    err = sh_service_ask(store, &ask, &answer, &r);
    if (err)
        return err;
    shoal_cid cid = {sh_get64(&r)};
    bool is_good = sh_reader_done(&r);
    free(answer);
    if (!is_good)
        return SHOAL_EPROTO;
    *cid_out = cid;
    return SHOAL_OK;
}

enum shoal_err shoal_name_get(shoal *store, const char *name, shoal_cid *cid_out)
{
    return name_ask(store, name, 0, cid_out);
}

enum shoal_err shoal_name_wait(shoal *store, const char *name, uint64_t timeout_ns,
                               shoal_cid *cid_out)
{
    enum shoal_err err = name_ask(store, name, timeout_ns ? timeout_ns : 1, cid_out);
    if (err != SHOAL_EAGAIN && err != SHOAL_ENONAME)
        return err;
    sh_client_detail_set("nobody has given that name");
    return SHOAL_ETIMEOUT;
}

struct name_visit {
    shoal_name_each each;
    void *arg;
};

static bool name_visit(void *arg, const char *text, uint64_t value)
{
    struct name_visit *visit = arg;
    return visit->each(visit->arg, text, (shoal_cid){value});
}

enum shoal_err shoal_name_list(shoal *store, const char *prefix, shoal_name_each each, void *arg)
{
    struct name_visit visit = {each, arg};
    return sh_service_list(store, SH_ASK_NAMES, prefix, each ? name_visit : NULL, &visit);
}

/* --- Scratch --------------------------------------------------------------------------------- */

enum shoal_err shoal_scratch_put(shoal *store, const char *key, const void *value, uint32_t size)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_SCRATCH_PUT,
                                        .value = sh_bytes_make(value, size)};
    struct sh_metadata_result result;
    enum shoal_err err = sh_service_begin(store);
    if (!err && size && !value)
        err = SHOAL_EINVAL;
    if (!err && size > SHOAL_SCRATCH_MAX) {
        sh_client_detail_set("a scratch value is at most %d bytes", SHOAL_SCRATCH_MAX);
        err = SHOAL_ETOOBIG;
    }
    if (!err)
        err = sh_service_key(key, &update.name);
    return err ? err : sh_service_update(store, &update, &result);
}

enum shoal_err shoal_scratch_remove(shoal *store, const char *key)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_SCRATCH_REMOVE};
    struct sh_metadata_result result;
    enum shoal_err err = sh_service_begin(store);
    if (!err)
        err = sh_service_key(key, &update.name);
    return err ? err : sh_service_update(store, &update, &result);
}

enum shoal_err shoal_scratch_get(shoal *store, const char *key, void *into, size_t room,
                                 uint32_t *size_out)
{
    struct sh_service_ask ask = {.kind = SH_ASK_SCRATCH};
    enum shoal_err err = sh_service_begin(store);
    if (!err && room && !into)
        err = SHOAL_EINVAL;
    if (!err)
        err = sh_service_key(key, &ask.key);
    if (err)
        return err;
    uint8_t *answer;
    struct sh_reader r;
    ask.deadline_ns = sh_client_deadline_ns(store);
    err = sh_service_ask(store, &ask, &answer, &r);
    if (err)
        return err;
    size_t size = sh_reader_left(&r);
    if (size > SHOAL_SCRATCH_MAX)
        err = SHOAL_EPROTO;
    else if (size > room)
        err = SHOAL_ESIZE;
    else if (size)
        memcpy(into, r.at, size);
    free(answer);
    if (size_out && (err == SHOAL_OK || err == SHOAL_ESIZE))
        *size_out = (uint32_t)size;
    if (err == SHOAL_ESIZE)
        sh_client_detail_set("the value is %zu bytes, the buffer %zu", size, room);
    return err;
}

struct scratch_visit {
    shoal_scratch_each each;
    void *arg;
};

static bool scratch_visit(void *arg, const char *text, uint64_t value)
{
    struct scratch_visit *visit = arg;
    return visit->each(visit->arg, text, (uint32_t)value);
}

enum shoal_err shoal_scratch_list(shoal *store, const char *prefix, shoal_scratch_each each,
                                  void *arg)
{
    struct scratch_visit visit = {each, arg};
    return sh_service_list(store, SH_ASK_SCRATCHES, prefix, each ? scratch_visit : NULL, &visit);
}
