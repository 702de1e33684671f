/* Snapshots of shards for whoever saves the cluster's metadata (`shoal metadata save`): piece by piece,
 * of one moment each, while updates go on.
 *
 *   ASK COPY: save 0, piece 0 --> a snapshot is begun --> its number, piece 0
 *   ASK COPY: that number, piece n --> piece n; the last one again, if its answer was lost; none: the end
 *
 * A snapshot that is not asked for any more is given up after IDLE_NS; a client that comes back later
 * begins anew. */
#include <stdlib.h>

#include "base/assert.h"
#include "cluster/proto.h"
#include "metadata/snapshot.h"
#include "superpeer/superpeer_ring_int.h"

#define SAVES_MAX 4 /* at a time; a client that saves asks for one shard after the other */
#define IDLE_NS UINT64_C(10000000000)

struct save {
    struct sh_metadata_snapshot *snapshot; /* NULL: free */
    uint64_t number;
    uint8_t shard;
    uint64_t piece; /* the last one that was given */
    uint64_t used_ns;
    size_t size;
    uint8_t bytes[SH_SAVE_PIECE_BYTES];
};

struct sh_saves {
    struct save saves[SAVES_MAX];
};

_Static_assert(SH_SAVE_PIECE_BYTES >= SH_METADATA_PIECE_BYTES_MIN, "a piece of a snapshot fits");

static void save_end(struct save *save)
{
    sh_metadata_snapshot_end(save->snapshot);
    save->snapshot = NULL;
}

static void piece_take(struct save *save)
{
    SH_ASSERT(save->snapshot);
    save->size = sh_metadata_snapshot_next(save->snapshot, save->bytes, sizeof save->bytes);
    SH_ASSERT(save->size <= sizeof save->bytes);
}

static enum shoal_err save_begin(struct sh_superpeer *superpeer, unsigned shard,
                                 struct save **save_out)
{
    struct sh_saves *saves = superpeer->ring->saves;
    struct save *save = saves->saves;
    while (save < saves->saves + SAVES_MAX && save->snapshot)
        save++;
    if (save == saves->saves + SAVES_MAX)
        return SHOAL_EBUSY;
    enum shoal_err err = sh_metadata_snapshot_begin(superpeer->ring->metadata, shard,
                                                    SH_METADATA_ALL, &save->snapshot);
    if (err) {
        save->snapshot = NULL;
        return err;
    }
    save->number = sh_random64(&superpeer->env.random) | 1;
    save->shard = (uint8_t)shard;
    save->piece = 0;
    piece_take(save);
    *save_out = save;
    return SHOAL_OK;
}

/* The save of that number, at that piece. ENONAME: it was given up, or is not there yet. */
static enum shoal_err save_go_on(struct sh_saves *saves, unsigned shard, uint64_t number,
                                 uint64_t piece, struct save **save_out)
{
    SH_ASSERT(number);
    for (unsigned i = 0; i < SAVES_MAX; i++) {
        struct save *save = &saves->saves[i];
        if (!save->snapshot || save->number != number || save->shard != shard)
            continue;
        if (piece != save->piece && piece != save->piece + 1)
            return SHOAL_ENONAME;
        if (piece != save->piece)
            piece_take(save);
        save->piece = piece;
        *save_out = save;
        return SHOAL_OK;
    }
    return SHOAL_ENONAME;
}

enum shoal_err sh_superpeer_save_piece(struct sh_superpeer *superpeer, unsigned shard,
                                       uint64_t number, uint64_t piece, uint64_t *number_out,
                                       struct sh_bytes *bytes_out)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    struct save *save;
    SH_ASSERT(shard < SH_SHARDS);
    if (!part->saves)
        part->saves = calloc(1, sizeof *part->saves);
    if (!part->saves)
        return SHOAL_ENOMEM;
    enum shoal_err err = number ? save_go_on(part->saves, shard, number, piece, &save)
                                : save_begin(superpeer, shard, &save);
    if (err)
        return err;
    save->used_ns = sh_now(&superpeer->env.clock);
    *number_out = save->number;
    *bytes_out = sh_bytes_make(save->bytes, save->size);
    return SHOAL_OK;
}

void sh_superpeer_save_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_saves *saves = superpeer->ring->saves;
    for (unsigned i = 0; saves && i < SAVES_MAX; i++) {
        struct save *save = &saves->saves[i];
        /* Its last piece, which is empty, may be asked for again; who has it asks for other shards. */
        uint64_t idle_ns = save->size ? IDLE_NS : superpeer->heartbeat_ns;
        if (save->snapshot && now_ns >= save->used_ns + idle_ns)
            save_end(save);
    }
}

void sh_superpeer_save_close(struct sh_superpeer *superpeer)
{
    struct sh_saves *saves = superpeer->ring->saves;
    for (unsigned i = 0; saves && i < SAVES_MAX; i++)
        save_end(&saves->saves[i]);
    free(saves);
    superpeer->ring->saves = NULL;
}
