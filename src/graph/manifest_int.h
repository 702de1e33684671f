/* The manifest: a chunk that says which graph there is. Each peer that a graph is loaded onto makes one, as the graph goes live; all say
 * the same. A manifest moves and comes back as any chunk, and whoever has one knows the graph.
 *
 *   offset       bytes     field
 *   0            8         "SHOALGR1"
 *   8            4         CRC32C of all that follows
 *   12           8         the chunk's ID: a copy in another chunk is no manifest
 *   20           8         the graph's ID
 *   28           8         its generation: of two graphs that with the higher one is the cluster's
 *   36           1         flags: 1: it has relations
 *   37           8         vertices in all
 *   45           8         edges in all
 *   53           4         peers that it was loaded onto, at least one
 *   57           2 * peers their node IDs
 *   .            4         relations
 *   .            rest      their names (sh_put_text), by number
 *
 * Little-endian, no padding. */
#ifndef SH_GRAPH_MANIFEST_INT_H
#define SH_GRAPH_MANIFEST_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"
#include "shoal/types.h"

struct sh_manifest {
    uint64_t graph_id, generation;
    bool typed;
    uint64_t vertices, edges;
    uint32_t peer_count;
    const uint8_t *peers; /* u16 each; borrowed, as the types are */
    uint32_t types_count;
    struct sh_bytes types;
};

#define SH_MANIFEST_MAGIC_BYTES 8

static inline uint64_t sh_manifest_bytes(uint32_t peer_count, uint64_t types_bytes)
{
    return 61 + (uint64_t)peer_count * 2 + types_bytes;
}

/* Whether the bytes begin as a manifest does. */
bool sh_manifest_is(struct sh_bytes chunk);
/* Writes all of a chunk of sh_manifest_bytes. */
void sh_manifest_encode(uint8_t *chunk, size_t size, shoal_cid cid,
                        const struct sh_manifest *manifest);
/* Any bytes. ECORRUPT: that chunk is no manifest. */
SHOAL_NODISCARD enum shoal_err sh_manifest_decode(struct sh_bytes chunk, shoal_cid cid,
                                                  struct sh_manifest *manifest_out);

#endif
