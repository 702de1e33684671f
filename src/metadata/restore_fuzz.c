/* Hostile pieces for sh_metadata_restore_piece: refused without a change, or taken in whole; then
 * what is written again is the same. The checksum and the number of each piece are set right, as no
 * fuzzer would find them: u16 size and so many bytes are one piece's records. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "metadata/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 8

static enum shoal_err feed(struct sh_metadata *metadata, unsigned shard, struct sh_reader *r)
{
    struct sh_metadata_restore *restore;
    static uint8_t piece[HEAD + UINT16_MAX];
    enum shoal_err err = sh_metadata_restore_begin(metadata, shard, &restore);
    SH_ASSERT(!err);
    for (uint32_t number = 0; !err && sh_reader_left(r); number++) {
        size_t size = sh_get16(r);
        size = size < sh_reader_left(r) ? size : sh_reader_left(r);
        const uint8_t *records = sh_reader_take(r, size);
        if (records && size)
            memcpy(piece + HEAD, records, size);
        sh_store32(piece + 4, number);
        sh_store32(piece, sh_crc32c(0, sh_bytes_make(piece + 4, HEAD - 4 + size)));
        err = sh_metadata_restore_piece(restore, sh_bytes_make(piece, HEAD + size));
    }
    enum shoal_err ended = sh_metadata_restore_end(restore, true);
    return err ? err : ended;
}

/* The records of all pieces that are written, without the pieces' heads. */
static size_t written(struct sh_metadata *metadata, unsigned shard, uint8_t *into, size_t room,
                      bool durable)
{
    struct sh_metadata_snapshot *snapshot;
    static uint8_t piece[1 << 16];
    size_t all = 0, size;
    if (sh_metadata_snapshot_begin(metadata, shard, durable ? SH_METADATA_DURABLE : SH_METADATA_ALL,
                                   &snapshot))
        abort();
    while ((size = sh_metadata_snapshot_next(snapshot, piece, sizeof piece))) {
        SH_ASSERT(all + size - HEAD <= room);
        memcpy(into + all, piece + HEAD, size - HEAD);
        all += size - HEAD;
    }
    sh_metadata_snapshot_end(snapshot);
    return all;
}

/* The input: a byte for the shard, pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    unsigned shard = sh_get8(&r) % 64;
    struct sh_metadata *metadata;
    if (sh_metadata_create(&metadata))
        abort();
    uint8_t *in = malloc(size + 1), *out = malloc(size + 4096);
    size_t in_size = 0;
    if (!in || !out)
        abort();
    for (struct sh_reader all = r; sh_reader_left(&all);) {
        size_t each = sh_get16(&all);
        each = each < sh_reader_left(&all) ? each : sh_reader_left(&all);
        const uint8_t *records = sh_reader_take(&all, each);
        if (records && each)
            memcpy(in + in_size, records, each);
        in_size += each;
    }
    bool is_former = in_size && in[0] == 5; /* snapshot.h: what is written is of this version */
    if (!feed(metadata, shard, &r) && !is_former) {
        size_t out_size = written(metadata, shard, out, size + 4096, in_size > 2 && in[2] == 1);
        SH_ASSERT(out_size == in_size && memcmp(in, out, in_size) == 0);
    } else if (!is_former) {
        SH_ASSERT(!sh_metadata_incarnation(metadata, shard));
    }
    free(in);
    free(out);
    sh_metadata_destroy(metadata);
    return 0;
}
