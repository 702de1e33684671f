/* A shard's state as one run of bytes, to compare states: the pieces of a snapshot, each behind its size
 * (4 bytes). */
#ifndef SH_METADATA_IMAGE_TEST_H
#define SH_METADATA_IMAGE_TEST_H

#include "base/assert.h"
#include "metadata/snapshot.h"

#define IMAGE_PIECE_BYTES SH_METADATA_PIECE_BYTES_MIN

static inline size_t image_size(struct sh_metadata *metadata, unsigned number)
{
    struct sh_metadata_snapshot *snapshot;
    uint8_t piece[IMAGE_PIECE_BYTES];
    size_t size = 0, piece_size;
    if (sh_metadata_snapshot_begin(metadata, number, SH_METADATA_ALL, &snapshot))
        return 0;
    while ((piece_size = sh_metadata_snapshot_next(snapshot, piece, sizeof piece)))
        size += 4 + piece_size;
    sh_metadata_snapshot_end(snapshot);
    return size;
}

static inline void image_put(struct sh_metadata *metadata, unsigned number, struct sh_writer *w)
{
    struct sh_metadata_snapshot *snapshot;
    uint8_t piece[IMAGE_PIECE_BYTES];
    size_t size;
    if (w->at == w->end)
        return; /* image_size had no memory */
    enum shoal_err err = sh_metadata_snapshot_begin(metadata, number, SH_METADATA_ALL, &snapshot);
    SH_ASSERT(!err);
    while ((size = sh_metadata_snapshot_next(snapshot, piece, sizeof piece))) {
        sh_put32(w, (uint32_t)size);
        sh_put_raw(w, sh_bytes_make(piece, size));
    }
    sh_metadata_snapshot_end(snapshot);
}

static inline enum shoal_err image_get(struct sh_metadata *metadata, unsigned number,
                                       struct sh_bytes image)
{
    struct sh_metadata_restore *restore;
    struct sh_reader r = sh_reader_make(image);
    enum shoal_err err = sh_metadata_restore_begin(metadata, number, &restore);
    if (err)
        return err;
    while (!err && sh_reader_left(&r)) {
        size_t size = sh_get32(&r);
        const uint8_t *piece = sh_reader_take(&r, size);
        err = piece ? sh_metadata_restore_piece(restore, sh_bytes_make(piece, size)) : SHOAL_EPROTO;
    }
    enum shoal_err ended = sh_metadata_restore_end(restore, !err);
    return err ? err : ended;
}

#endif
