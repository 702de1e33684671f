/* Views as differences. */
#include "cluster/changes.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define HEAD_BYTES 30

static uint64_t node_digest(const struct sh_node *node)
{
    uint64_t who = (uint64_t)node->is_disk_lost << 63 | (uint64_t)node->back_ms << 32 |
                   (uint64_t)node->nid.v << 16 | (uint64_t)node->role << 8 | (uint64_t)node->state;
    uint64_t rest = sh_traits_digest(&node->traits, node->instance ^ sh_mix64(who));
    return sh_hash64(sh_bytes_text(node->address), rest);
}

uint64_t sh_view_digest(const struct sh_view *view)
{
    uint64_t digest = sh_mix64(view->superpeers);
    for (size_t i = 0; i < view->count; i++)
        digest ^= node_digest(&view->nodes[i]);
    return digest;
}

size_t sh_changes_size(const struct sh_view *view, const shoal_nid *nids, size_t count)
{
    size_t size = HEAD_BYTES;
    for (size_t i = 0; i < count; i++) {
        const struct sh_node *node = sh_view_find(view, nids[i]);
        size += node ? sh_node_size(node) : sizeof(uint16_t);
    }
    return size;
}

void sh_changes_put(struct sh_writer *w, const struct sh_view *view, uint64_t base, uint64_t digest,
                    const shoal_nid *nids, size_t count)
{
    SH_ASSERT(count <= SH_CHANGES_MAX);
    SH_ASSERT(base <= view->epoch);
    sh_put64(w, view->epoch);
    sh_put64(w, base);
    sh_put64(w, digest);
    size_t gone = 0;
    for (size_t i = 0; i < count; i++) {
        SH_ASSERT(!i || nids[i - 1].v < nids[i].v);
        gone += !sh_view_find(view, nids[i]);
    }
    sh_put16(w, view->superpeers);
    sh_put16(w, (uint16_t)(count - gone));
    sh_put16(w, (uint16_t)gone);
    for (size_t i = 0; i < count; i++) {
        const struct sh_node *node = sh_view_find(view, nids[i]);
        if (node)
            sh_node_put(w, node);
    }
    for (size_t i = 0; gone && i < count; i++) {
        if (!sh_view_find(view, nids[i]))
            sh_put16(w, nids[i].v);
    }
}

/* Reads the nodes into a view that has the others already. */
static enum shoal_err nodes_get(struct sh_reader *r, size_t count, struct sh_view *view)
{
    uint16_t last = 0;
    for (size_t i = 0; i < count; i++) {
        struct sh_node node;
        enum shoal_err err = sh_node_get(r, &node);
        if (!err && node.nid.v <= last)
            err = SHOAL_EPROTO;
        if (!err)
            err = sh_view_put(view, &node);
        if (err)
            return err;
        last = node.nid.v;
    }
    return SHOAL_OK;
}

/* Takes nodes out of a view; one that came and went since may never have been in it. */
static enum shoal_err gone_get(struct sh_reader *r, size_t count, struct sh_view *view)
{
    uint16_t last = 0;
    for (size_t i = 0; i < count; i++) {
        uint16_t nid = sh_get16(r);
        if (!sh_reader_ok(r) || nid <= last)
            return SHOAL_EPROTO;
        sh_view_drop(view, (shoal_nid){nid});
        last = nid;
    }
    return SHOAL_OK;
}

enum shoal_err sh_changes_get(struct sh_reader *r, const struct sh_view *view,
                              struct sh_view *view_out)
{
    uint64_t epoch = sh_get64(r), base = sh_get64(r), digest = sh_get64(r);
    uint16_t superpeers = sh_get16(r);
    size_t count = sh_get16(r), gone = sh_get16(r);
    struct sh_view result = {0};
    if (!sh_reader_ok(r) || !superpeers || superpeers > SH_SUPERPEERS_MAX ||
        count + gone > SH_CHANGES_MAX || base > epoch)
        return SHOAL_EPROTO;
    enum shoal_err err = sh_view_copy(&result, view);
    if (!err)
        err = nodes_get(r, count, &result);
    if (!err)
        err = gone_get(r, gone, &result);
    result.epoch = epoch;
    result.superpeers = superpeers;
    if (!err && (base != view->epoch || sh_view_digest(&result) != digest))
        err = SHOAL_EDIFFERS;
    if (err) {
        sh_view_destroy(&result);
        return err;
    }
    sh_view_destroy(view_out);
    *view_out = result;
    return SHOAL_OK;
}
