#include "graph/manifest_int.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "graph/edges.h"
#include "graph/graph.h"

#define TYPED 1u
#define CRC_FROM 12

static const uint8_t magic[SH_MANIFEST_MAGIC_BYTES] = {'S', 'H', 'O', 'A', 'L', 'G', 'R', '1'};

bool sh_manifest_is(struct sh_bytes chunk)
{
    return chunk.size >= sizeof magic && memcmp(chunk.at, magic, sizeof magic) == 0;
}

void sh_manifest_encode(uint8_t *chunk, size_t size, shoal_cid cid,
                        const struct sh_manifest *manifest)
{
    SH_ASSERT(size == sh_manifest_bytes(manifest->peer_count, manifest->types.size));
    struct sh_writer w = sh_writer_make(chunk, size);
    sh_put_raw(&w, sh_bytes_make(magic, sizeof magic));
    sh_put32(&w, 0);
    sh_put64(&w, cid.v);
    sh_put64(&w, manifest->graph_id);
    sh_put64(&w, manifest->generation);
    sh_put8(&w, manifest->typed ? TYPED : 0);
    sh_put64(&w, manifest->vertices);
    sh_put64(&w, manifest->edges);
    sh_put32(&w, manifest->peer_count);
    sh_put_raw(&w, sh_bytes_make(manifest->peers, (size_t)manifest->peer_count * 2));
    sh_put32(&w, manifest->types_count);
    sh_put_raw(&w, manifest->types);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    sh_store32(chunk + 8, sh_crc32c(0, sh_bytes_make(chunk + CRC_FROM, size - CRC_FROM)));
}

static bool are_texts(struct sh_bytes texts, uint32_t count)
{
    struct sh_reader r = sh_reader_make(texts);
    for (uint32_t i = 0; i < count && sh_reader_ok(&r); i++)
        (void)sh_get_text(&r);
    return sh_reader_done(&r);
}

enum shoal_err sh_manifest_decode(struct sh_bytes chunk, shoal_cid cid,
                                  struct sh_manifest *manifest_out)
{
    struct sh_reader r = sh_reader_make(chunk);
    struct sh_manifest manifest = {0};
    if (!sh_manifest_is(chunk) || !sh_reader_take(&r, sizeof magic))
        return SHOAL_ECORRUPT;
    uint32_t crc = sh_get32(&r);
    if (!sh_reader_ok(&r) || crc != sh_crc32c(0, sh_bytes_make(r.at, sh_reader_left(&r))) ||
        sh_get64(&r) != cid.v)
        return SHOAL_ECORRUPT;
    manifest.graph_id = sh_get64(&r);
    manifest.generation = sh_get64(&r);
    uint8_t flags = sh_get8(&r);
    manifest.typed = flags & TYPED;
    manifest.vertices = sh_get64(&r);
    manifest.edges = sh_get64(&r);
    manifest.peer_count = sh_get32(&r);
    if (!sh_reader_ok(&r) || !manifest.graph_id || (flags & ~TYPED) || !manifest.peer_count ||
        manifest.peer_count > SH_GRAPH_PEERS_MAX)
        return SHOAL_ECORRUPT;
    manifest.peers = sh_reader_take(&r, (size_t)manifest.peer_count * 2);
    manifest.types_count = sh_get32(&r);
    manifest.types = sh_bytes_make(r.at, sh_reader_left(&r));
    if (!sh_reader_ok(&r) || manifest.types_count > SH_TYPES_MAX ||
        !are_texts(manifest.types, manifest.types_count))
        return SHOAL_ECORRUPT;
    *manifest_out = manifest;
    return SHOAL_OK;
}
