/* What a shared registry's image says of migrations. */
#include "base/assert.h"
#include "cluster/owners.h"
#include "cluster/registry_int.h"

#define HEAD_BYTES 16
#define SOURCE_BYTES 10
#define RANGE_BYTES 18

static uint32_t sources_count(const struct sh_registry *registry)
{
    uint32_t count = 0;
    for (uint32_t nid = 0; nid <= SH_PEER_NID_MAX; nid++)
        count += registry->sources[nid].decided != 0;
    return count;
}

size_t sh_owners_image_size(const struct sh_registry *registry)
{
    return HEAD_BYTES + (size_t)SOURCE_BYTES * sources_count(registry) +
           RANGE_BYTES * sh_ranges_count(registry->ranges);
}

void sh_owners_image_put(struct sh_writer *w, const struct sh_registry *registry)
{
    struct sh_range range;
    sh_put64(w, registry->incarnation);
    sh_put32(w, sources_count(registry));
    sh_put32(w, (uint32_t)sh_ranges_count(registry->ranges));
    for (uint32_t nid = 0; nid <= SH_PEER_NID_MAX; nid++) {
        if (!registry->sources[nid].decided)
            continue;
        sh_put16(w, (uint16_t)nid);
        sh_put64(w, registry->sources[nid].decided);
    }
    for (shoal_cid from = {0}; sh_ranges_next(registry->ranges, from, &range);) {
        sh_put64(w, range.first.v);
        sh_put64(w, range.last.v);
        sh_put16(w, (uint16_t)range.value);
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
}

static enum shoal_err sources_get(struct sh_registry *registry, uint32_t count, struct sh_reader *r)
{
    for (uint32_t i = 0; i < count; i++) {
        uint16_t nid = sh_get16(r);
        uint64_t decided = sh_get64(r);
        if (!sh_reader_ok(r) || nid < SH_PEER_NID_MIN || nid > SH_PEER_NID_MAX || !decided)
            return SHOAL_ECORRUPT;
        registry->sources[nid].decided = decided;
    }
    return SHOAL_OK;
}

enum shoal_err sh_owners_image_get(struct sh_registry *registry, struct sh_reader *r)
{
    SH_ASSERT(registry->is_shared);
    uint64_t incarnation = sh_get64(r);
    uint32_t sources = sh_get32(r), ranges = sh_get32(r);
    if (!sh_reader_ok(r) || ranges > SH_OWNERS_RANGES_MAX)
        return SHOAL_ECORRUPT;
    enum shoal_err err = sources_get(registry, sources, r);
    uint64_t least = 0;
    for (uint32_t i = 0; !err && i < ranges; i++) {
        shoal_cid first = {sh_get64(r)}, last = {sh_get64(r)};
        uint16_t owner = sh_get16(r);
        if (!sh_reader_ok(r) || first.v < least || last.v < first.v ||
            !sh_registry_has(registry, shoal_cid_creator(first)) ||
            !sh_registry_has(registry, shoal_cid_creator(last)) || owner < SH_PEER_NID_MIN ||
            owner > SH_PEER_NID_MAX)
            return SHOAL_ECORRUPT;
        err = sh_ranges_set(registry->ranges, first, last, owner);
        least = last.v + 1; /* the highest creator is no peer, so this does not wrap */
    }
    if (!err)
        registry->incarnation = incarnation;
    return err;
}
