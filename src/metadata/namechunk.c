/* Names as the bytes of a chunk. */
#include "metadata/namechunk.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "metadata/metadata_int.h"

#define MAGIC "shoalnam"
#define VERSION 1
#define HEAD_CRC_AT 28

void sh_name_chunk_head(uint8_t *chunk, size_t size, shoal_nid nid)
{
    SH_ASSERT(size >= SH_NAME_CHUNK_HEAD_BYTES);
    struct sh_bytes entries =
        sh_bytes_make(chunk + SH_NAME_CHUNK_HEAD_BYTES, size - SH_NAME_CHUNK_HEAD_BYTES);
    memcpy(chunk, MAGIC, 8);
    sh_store16(chunk + 8, VERSION);
    sh_store16(chunk + 10, nid.v);
    sh_store32(chunk + 12, 0);
    sh_store64(chunk + 16, entries.size);
    sh_store32(chunk + 24, sh_crc32c(0, entries));
    sh_store32(chunk + HEAD_CRC_AT, sh_crc32c(0, sh_bytes_make(chunk, HEAD_CRC_AT)));
}

bool sh_name_entry_get(struct sh_reader *r, shoal_cid *cid_out, struct sh_bytes *name_out)
{
    if (!sh_reader_left(r))
        return false;
    shoal_cid cid = {sh_get64(r)};
    struct sh_bytes name = sh_get_text(r);
    if (!sh_reader_ok(r) || !cid.v || !sh_metadata_is_name(name)) {
        r->bad = true;
        return false;
    }
    *cid_out = cid;
    *name_out = name;
    return true;
}

enum shoal_err sh_name_chunk_get(struct sh_bytes chunk, shoal_nid *nid_out,
                                 struct sh_bytes *entries_out)
{
    struct sh_reader r = sh_reader_make(chunk);
    const uint8_t *magic = sh_reader_take(&r, strlen(MAGIC));
    uint16_t version = sh_get16(&r);
    shoal_nid nid = {sh_get16(&r)};
    uint32_t zero = sh_get32(&r);
    uint64_t size = sh_get64(&r);
    uint32_t crc = sh_get32(&r), head_crc = sh_get32(&r);
    if (!sh_reader_ok(&r) || memcmp(magic, MAGIC, strlen(MAGIC)) != 0 ||
        sh_crc32c(0, sh_bytes_make(chunk.at, HEAD_CRC_AT)) != head_crc)
        return SHOAL_ECORRUPT;
    if (version != VERSION)
        return SHOAL_EVERSION;
    if (zero || size != sh_reader_left(&r))
        return SHOAL_ECORRUPT;
    struct sh_bytes entries = sh_bytes_make(sh_reader_take(&r, size), size), name;
    if (sh_crc32c(0, entries) != crc)
        return SHOAL_ECORRUPT;
    shoal_cid cid;
    r = sh_reader_make(entries);
    while (sh_name_entry_get(&r, &cid, &name))
        ;
    if (!sh_reader_done(&r))
        return SHOAL_ECORRUPT;
    *nid_out = nid;
    *entries_out = entries;
    return SHOAL_OK;
}
