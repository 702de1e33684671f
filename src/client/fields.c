/* The public calls on a part of a chunk, on its size, and on what it was before. */
#include "base/hash.h"
#include "client/client_int.h"

/* What each call asks for, once for its two forms. */

static struct sh_ask part_get_ask(uint32_t offset, void *into, uint32_t size)
{
    return (struct sh_ask){.kind = SH_CALL_GET_PART, .offset = offset, .into = into, .size = size};
}

static struct sh_ask part_put_ask(uint32_t offset, const void *data, uint32_t size)
{
    return (struct sh_ask){.kind = SH_CALL_PUT_PART, .offset = offset, .from = data, .size = size};
}

static struct sh_ask resize_ask(uint32_t size)
{
    return (struct sh_ask){.kind = SH_CALL_RESIZE, .size = size};
}

static struct sh_ask put_if_ask(const void *expected, uint32_t expected_size, const void *data,
                                uint32_t size)
{
    return (struct sh_ask){.kind = SH_CALL_PUT_IF,
                           .expected = expected,
                           .expected_size = expected_size,
                           .from = data,
                           .size = size};
}

static struct sh_ask put_hash_ask(uint64_t expected, const void *data, uint32_t size)
{
    return (struct sh_ask){.kind = SH_CALL_PUT_HASH, .value = expected, .from = data, .size = size};
}

static struct sh_ask add_ask(uint32_t offset, unsigned width, uint64_t delta)
{
    /* No width that fits is cut to one that is right. */
    return (struct sh_ask){.kind = SH_CALL_ADD,
                           .offset = offset,
                           .width = width > 8 ? 0 : (uint8_t)width,
                           .value = delta};
}

static struct sh_ask fill_ask(const void *data, uint32_t size)
{
    return (struct sh_ask){.kind = SH_CALL_FILL, .from = data, .size = size};
}

/* --- Blocking ------------------------------------------------------------------------------ */

enum shoal_err shoal_size(shoal *store, shoal_cid cid, uint32_t *size_out)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_GET};
    enum shoal_err err = size_out ? sh_ask_run(store, &ask, cid, &call) : SHOAL_EINVAL;
    if (err == SHOAL_ESIZE)
        err = SHOAL_OK;
    if (err == SHOAL_OK)
        *size_out = call.size;
    return err;
}

enum shoal_err shoal_get_part(shoal *store, shoal_cid cid, uint32_t offset, void *into,
                              uint32_t size)
{
    struct shoal_call call;
    struct sh_ask ask = part_get_ask(offset, into, size);
    enum shoal_err err = sh_ask_run(store, &ask, cid, &call);
    if (err == SHOAL_ESIZE)
        sh_client_detail_set("the chunk is %u bytes", call.size);
    return err;
}

enum shoal_err shoal_put_part(shoal *store, shoal_cid cid, uint32_t offset, const void *data,
                              uint32_t size)
{
    struct shoal_call call;
    struct sh_ask ask = part_put_ask(offset, data, size);
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_resize(shoal *store, shoal_cid cid, uint32_t size)
{
    struct shoal_call call;
    struct sh_ask ask = resize_ask(size);
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_put_if(shoal *store, shoal_cid cid, const void *expected,
                            uint32_t expected_size, const void *data, uint32_t size)
{
    struct shoal_call call;
    struct sh_ask ask = put_if_ask(expected, expected_size, data, size);
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_put_if_hash(shoal *store, shoal_cid cid, uint64_t expected, const void *data,
                                 uint32_t size)
{
    struct shoal_call call;
    struct sh_ask ask = put_hash_ask(expected, data, size);
    return sh_ask_run(store, &ask, cid, &call);
}

uint64_t shoal_hash(const void *data, size_t size)
{
    return sh_hash64(sh_bytes_make(data, size), 0);
}

enum shoal_err shoal_add(shoal *store, shoal_cid cid, uint32_t offset, unsigned width,
                         uint64_t delta, uint64_t *old_out)
{
    struct shoal_call call;
    struct sh_ask ask = add_ask(offset, width, delta);
    enum shoal_err err = sh_ask_run(store, &ask, cid, &call);
    if (err == SHOAL_OK && old_out)
        *old_out = call.value;
    return err;
}

enum shoal_err shoal_fill(shoal *store, shoal_cid cid, const void *data, uint32_t size)
{
    struct shoal_call call;
    struct sh_ask ask = fill_ask(data, size);
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_unreserve(shoal *store, shoal_cid cid)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_FREE};
    return sh_ask_run(store, &ask, cid, &call);
}

/* --- Asynchronous -------------------------------------------------------------------------- */

enum shoal_err shoal_get_part_async(shoal *store, shoal_cid cid, uint32_t offset, void *into,
                                    uint32_t size, struct shoal_call *call)
{
    struct sh_ask ask = part_get_ask(offset, into, size);
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_put_part_async(shoal *store, shoal_cid cid, uint32_t offset, const void *data,
                                    uint32_t size, struct shoal_call *call)
{
    struct sh_ask ask = part_put_ask(offset, data, size);
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_resize_async(shoal *store, shoal_cid cid, uint32_t size,
                                  struct shoal_call *call)
{
    struct sh_ask ask = resize_ask(size);
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_put_if_async(shoal *store, shoal_cid cid, const void *expected,
                                  uint32_t expected_size, const void *data, uint32_t size,
                                  struct shoal_call *call)
{
    struct sh_ask ask = put_if_ask(expected, expected_size, data, size);
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_put_if_hash_async(shoal *store, shoal_cid cid, uint64_t expected,
                                       const void *data, uint32_t size, struct shoal_call *call)
{
    struct sh_ask ask = put_hash_ask(expected, data, size);
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_add_async(shoal *store, shoal_cid cid, uint32_t offset, unsigned width,
                               uint64_t delta, struct shoal_call *call)
{
    struct sh_ask ask = add_ask(offset, width, delta);
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_fill_async(shoal *store, shoal_cid cid, const void *data, uint32_t size,
                                struct shoal_call *call)
{
    struct sh_ask ask = fill_ask(data, size);
    return sh_ask_begin(store, &ask, cid, call);
}
