/* A vertex in a chunk: name, out neighbours with their relations, in neighbours, record.
 *
 *   offset       bytes     field
 *   0            1         format: version 2 in bits 0-3; bit 4: relations; bit 5: wide counts
 *   1            4         seal: a hash of the graph's ID and the chunk's (sh_vertex_seal)
 *   5            1 or 4    out neighbours (4 when wide)
 *   .            1 or 4    in neighbours
 *   .            8         name
 *   .            8 * out   chunk IDs of the out neighbours, ascending; equal ones: parallel edges
 *   .            8 * in    chunk IDs of the in neighbours, likewise
 *   .            2 * out   relation of each out neighbour, if the format says so
 *   .            rest      record
 *
 * Little-endian, no padding. 15 bytes a vertex (21 when it has more than 255 neighbours on a side),
 * 16 bytes an edge (18 with relation): 8 at its source and 8 at its target, so that a traversal can
 * go either way. The bits 6-7 of the format are zero.
 *
 * The seal tells whoever knows the graph's ID that a chunk is a vertex of it (graph/scan_int.h): any other chunk, and a
 * copy of a vertex in another chunk, has it by chance only, once in 2^32. */
#ifndef SH_GRAPH_VERTEX_H
#define SH_GRAPH_VERTEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "shoal/err.h"
#include "shoal/types.h"

/* A decoded vertex: spans borrow the chunk's bytes. */
struct sh_vertex {
    uint64_t name;
    uint32_t seal;
    uint32_t out_count;
    uint32_t in_count;
    bool typed;
    const uint8_t *out;   /* out_count chunk IDs */
    const uint8_t *in;    /* in_count chunk IDs */
    const uint8_t *types; /* out_count relations, NULL unless typed */
    struct sh_bytes record;
};

/* Decodes a chunk, any bytes: whatever is accepted can be accessed safely. ECORRUPT: not a vertex,
 * or counts that do not fit in it. (The order of neighbours is not checked.) */
SHOAL_NODISCARD enum shoal_err sh_vertex_decode(struct sh_bytes chunk,
                                                struct sh_vertex *vertex_out);

/* What the vertex in that chunk has as its seal. */
static inline uint32_t sh_vertex_seal(uint64_t graph_id, shoal_cid cid)
{
    return (uint32_t)(sh_mix64(graph_id ^ cid.v) >> 32);
}

/* Whether a vertex may begin with that byte. */
bool sh_vertex_may_begin(uint8_t format);

static inline shoal_cid sh_vertex_out(const struct sh_vertex *vertex, uint32_t index)
{
    return (shoal_cid){sh_load64(vertex->out + (size_t)index * 8)};
}

static inline shoal_cid sh_vertex_in(const struct sh_vertex *vertex, uint32_t index)
{
    return (shoal_cid){sh_load64(vertex->in + (size_t)index * 8)};
}

/* The relation's number; 0 in an untyped graph. */
static inline uint16_t sh_vertex_type(const struct sh_vertex *vertex, uint32_t index)
{
    return vertex->types ? sh_load16(vertex->types + (size_t)index * 2) : 0;
}

/* Bytes of a vertex's chunk. */
static inline uint64_t sh_vertex_bytes(uint32_t out_count, uint32_t in_count, bool typed,
                                       uint64_t record_bytes)
{
    uint64_t header = out_count > UINT8_MAX || in_count > UINT8_MAX ? 21 : 15;
    return header + (uint64_t)out_count * (typed ? 10 : 8) + (uint64_t)in_count * 8 + record_bytes;
}

/* Writes everything but neighbours and relations into a chunk of exactly sh_vertex_bytes and says
 * where those go (written by the caller with sh_store64 and sh_store16). types_out is NULL unless
 * typed. */
struct sh_vertex_room {
    uint8_t *out;
    uint8_t *in;
    uint8_t *types;
};
struct sh_vertex_room sh_vertex_encode(uint8_t *chunk, size_t size, uint32_t seal, uint64_t name,
                                       uint32_t out_count, uint32_t in_count, bool typed,
                                       struct sh_bytes record);

#endif
