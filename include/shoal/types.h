/* The identifiers that programs handle. DESIGN: Words. */
#ifndef SHOAL_TYPES_H
#define SHOAL_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A node ID (NID), 16 bits, given out by the registry when a node joins. 0 names no node. */
typedef struct shoal_nid {
    uint16_t v;
} shoal_nid;

/* A chunk ID (CID), 64 bits: the creator's node ID in the upper 16, a local ID in the lower 48.
 * DXRAM thesis §1.3.3. The value 0 names no chunk. */
typedef struct shoal_cid {
    uint64_t v;
} shoal_cid;

#define SHOAL_LOCAL_ID_BITS 48
#define SHOAL_LOCAL_ID_MAX ((UINT64_C(1) << SHOAL_LOCAL_ID_BITS) - 1)
#ifdef __cplusplus
#define SHOAL_NID_NONE (shoal_nid{0})
#define SHOAL_CID_NONE (shoal_cid{0})
#else
#define SHOAL_NID_NONE ((shoal_nid){0})
#define SHOAL_CID_NONE ((shoal_cid){0})
#endif

static inline shoal_cid shoal_cid_make(shoal_nid creator, uint64_t local_id)
{
    shoal_cid cid = {((uint64_t)creator.v << SHOAL_LOCAL_ID_BITS) |
                     (local_id & SHOAL_LOCAL_ID_MAX)};
    return cid;
}

static inline shoal_nid shoal_cid_creator(shoal_cid cid)
{
    shoal_nid nid = {(uint16_t)(cid.v >> SHOAL_LOCAL_ID_BITS)};
    return nid;
}

static inline uint64_t shoal_cid_local(shoal_cid cid)
{
    return cid.v & SHOAL_LOCAL_ID_MAX;
}

#ifdef __cplusplus
}
#endif

#endif
