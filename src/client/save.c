/* Whole shards of the metadata, and barriers with the IDs that they had. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/service_int.h"
#include "metadata/metadata_barriers.h"

#define TRIES_MAX 8 /* a shard's owner may change while it is copied */

struct growing {
    uint8_t *bytes;
    size_t size, room;
};

/* Adds a piece, with its size before it. */
static enum shoal_err piece_add(struct growing *all, struct sh_bytes piece)
{
    size_t needed = all->size + 4 + piece.size;
    if (needed > all->room) {
        size_t room = 2 * needed;
        uint8_t *bytes = realloc(all->bytes, room);
        if (!bytes)
            return SHOAL_ENOMEM;
        all->bytes = bytes;
        all->room = room;
    }
    sh_store32(all->bytes + all->size, (uint32_t)piece.size);
    if (piece.size)
        memcpy(all->bytes + all->size + 4, piece.at, piece.size);
    all->size = needed;
    return SHOAL_OK;
}

/* One try. ENONAME: the snapshot is not there any more. */
static enum shoal_err copy(shoal *store, unsigned shard, struct growing *all)
{
    struct sh_service_ask ask = {.kind = SH_ASK_COPY, .shard = (uint8_t)shard};
    all->size = 0;
    for (;; ask.round++) {
        uint8_t *answer;
        struct sh_reader r;
        ask.deadline_ns = sh_client_deadline_ns(store);
        enum shoal_err err = sh_service_ask(store, &ask, &answer, &r);
        if (err)
            return err;
        ask.barrier = sh_get64(&r);
        size_t size = sh_reader_left(&r);
        struct sh_bytes piece = sh_bytes_make(sh_reader_take(&r, size), size);
        err = sh_reader_ok(&r) && size <= SH_SAVE_PIECE_BYTES ? SHOAL_OK : SHOAL_EPROTO;
        if (!err && size)
            err = piece_add(all, piece);
        free(answer);
        if (err || !size)
            return err;
    }
}

enum shoal_err sh_client_shard_save(shoal *store, unsigned shard, uint8_t **bytes_out,
                                    size_t *size_out)
{
    struct growing all = {.bytes = NULL};
    SH_ASSERT(shard < SH_SHARDS);
    enum shoal_err err = sh_service_begin(store);
    if (!err && store->is_embedded)
        err = SHOAL_EROLE;
    if (err)
        return err;
    err = SHOAL_ENONAME;
    for (unsigned i = 0; err == SHOAL_ENONAME && i < TRIES_MAX; i++)
        err = copy(store, shard, &all);
    if (err) {
        free(all.bytes);
        return err == SHOAL_ENONAME ? SHOAL_EBUSY : err;
    }
    *bytes_out = all.bytes;
    *size_out = all.size;
    return SHOAL_OK;
}

enum shoal_err sh_client_barrier_put(shoal *store, uint64_t barrier, uint32_t size, uint8_t flags)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_BARRIER_NEW,
                                        .barrier = barrier,
                                        .size = size,
                                        .flags = flags & SH_BARRIER_SURVIVORS};
    struct sh_metadata_result result;
    enum shoal_err err = sh_service_begin(store);
    return err ? err : sh_service_update(store, &update, &result);
}
