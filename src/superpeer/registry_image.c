/* The registry as bytes: tables between superpeers, images on disk. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "superpeer/registry_int.h"

#define IMAGE_MAGIC UINT64_C(0x4745524c414f4853) /* "SHOALREG" */
#define IMAGE_FORMAT 5
#define IMAGE_HEAD_BYTES 40
#define IMAGE_CRC_AT 36

/* A table holds the superpeer itself and the nodes of its arc; a shared one holds all. */
static bool in_table(const struct sh_registry *registry, uint16_t index, const struct sh_node *node)
{
    return registry->is_shared || node->nid.v == index + 1 ||
           sh_arc_superpeer(node->nid, registry->count).v == index + 1;
}

size_t sh_registry_table_size(const struct sh_registry *registry)
{
    size_t size = 2;
    for (size_t i = 0; i < registry->view.count; i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        if (in_table(registry, registry->index, node))
            size += sh_node_size(node);
    }
    return size;
}

void sh_registry_table_put(struct sh_writer *w, const struct sh_registry *registry)
{
    uint16_t count = 0;
    for (size_t i = 0; i < registry->view.count; i++)
        count += in_table(registry, registry->index, &registry->view.nodes[i]);
    sh_put16(w, count);
    for (size_t i = 0; i < registry->view.count; i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        if (in_table(registry, registry->index, node))
            sh_node_put(w, node);
    }
}

/* The view without one arc's nodes, but with its superpeer's entry: so that it can't get lost. */
static enum shoal_err view_without(const struct sh_registry *registry, uint16_t index,
                                   struct sh_view *view_out)
{
    enum shoal_err err = sh_view_copy(view_out, &registry->view);
    if (err)
        return err;
    size_t kept = 0;
    for (size_t i = 0; i < view_out->count; i++) {
        const struct sh_node *node = &view_out->nodes[i];
        if (node->role == SH_ROLE_SUPERPEER || !in_table(registry, index, node))
            view_out->nodes[kept++] = *node;
    }
    view_out->count = kept;
    return SHOAL_OK;
}

enum shoal_err sh_registry_table_get(struct sh_registry *registry, uint16_t index, uint64_t version,
                                     struct sh_reader *r)
{
    SH_ASSERT(index < registry->count && index != registry->index);
    struct sh_view view = {0};
    enum shoal_err err = view_without(registry, index, &view);
    size_t count = sh_get16(r);
    for (size_t i = 0; !err && i < count; i++) {
        struct sh_node node;
        err = sh_node_get(r, &node);
        if (!err && !in_table(registry, index, &node))
            err = SHOAL_EPROTO;
        /* Whether a superpeer is up, each other one finds out itself: this one is. */
        if (!err)
            err = sh_view_put(&view, &node);
    }
    if (!err && !sh_reader_done(r))
        err = SHOAL_EPROTO;
    if (err) {
        sh_view_destroy(&view);
        return err;
    }
    /* Versions only rise, or the other superpeer has lost its memory; we make it step over ours. */
    if (version < registry->versions[index])
        view.epoch = registry->view.epoch;
    else
        view.epoch = registry->view.epoch + (version - registry->versions[index]);
    if (version >= registry->versions[index])
        registry->versions[index] = version;
    struct sh_view before = registry->view;
    registry->view = view;
    sh_registry_events_differ(registry, &before);
    sh_view_destroy(&before);
    return SHOAL_OK;
}

/* --- Images ---------------------------------------------------------------------------------- */

static size_t moved_size(const struct sh_registry *registry)
{
    size_t size = 2;
    for (size_t i = 0; i < sizeof registry->moved / sizeof registry->moved[0]; i++)
        size += 2 * (size_t)__builtin_popcountll(registry->moved[i]);
    return size;
}

static void moved_put(struct sh_writer *w, const struct sh_registry *registry)
{
    sh_put16(w, (uint16_t)((moved_size(registry) - 2) / 2));
    for (uint32_t nid = registry->arc_first.v; nid <= registry->arc_last.v; nid++) {
        if (sh_registry_is_moved(registry, (shoal_nid){(uint16_t)nid}))
            sh_put16(w, (uint16_t)nid);
    }
}

static enum shoal_err moved_get(struct sh_registry *registry, struct sh_reader *r)
{
    uint16_t count = sh_get16(r);
    for (uint16_t i = 0; i < count; i++) {
        shoal_nid nid = {sh_get16(r)};
        if (!sh_reader_ok(r) || !sh_registry_has(registry, nid))
            return SHOAL_ECORRUPT;
        sh_registry_moved_set(registry, nid);
    }
    return sh_reader_ok(r) ? SHOAL_OK : SHOAL_ECORRUPT;
}

size_t sh_registry_image_size(const struct sh_registry *registry)
{
    return IMAGE_HEAD_BYTES + 2 + strlen(registry->cluster) + sh_registry_table_size(registry) +
           (registry->is_shared ? SH_ARCS_BYTES + moved_size(registry) + 8 : 0);
}

static uint32_t image_crc(struct sh_bytes image)
{
    static const uint8_t zero[4];
    uint32_t crc = sh_crc32c(0, sh_bytes_make(image.at, IMAGE_CRC_AT));
    crc = sh_crc32c(crc, sh_bytes_make(zero, sizeof zero));
    return sh_crc32c(crc,
                     sh_bytes_make(image.at + IMAGE_HEAD_BYTES, image.size - IMAGE_HEAD_BYTES));
}

void sh_registry_image_put(struct sh_writer *w, const struct sh_registry *registry,
                           uint64_t sequence)
{
    uint8_t *start = w->at;
    size_t size = sh_registry_image_size(registry);
    sh_put64(w, IMAGE_MAGIC);
    sh_put16(w, IMAGE_FORMAT);
    sh_put16(w, registry->index);
    sh_put16(w, registry->view.superpeers);
    sh_put16(w, registry->next_nid.v);
    sh_put64(w, sequence);
    sh_put64(w, registry->versions[registry->index]);
    sh_put32(w, (uint32_t)(size - IMAGE_HEAD_BYTES));
    sh_put32(w, 0);
    sh_put_text(w, sh_bytes_text(registry->cluster));
    sh_registry_table_put(w, registry);
    if (registry->is_shared) {
        sh_arcs_put(w, &registry->arcs);
        moved_put(w, registry);
        sh_put64(w, registry->events_log);
    }
    if (!sh_writer_ok(w))
        return;
    SH_ASSERT((size_t)(w->at - start) == size);
    sh_store32(start + IMAGE_CRC_AT, image_crc(sh_bytes_make(start, size)));
}

/* Cuts what lies behind the image: an older, longer one that it was written over. */
static bool image_trim(struct sh_bytes *image)
{
    if (image->size < IMAGE_HEAD_BYTES || sh_load64(image->at) != IMAGE_MAGIC)
        return false;
    size_t size = (size_t)IMAGE_HEAD_BYTES + sh_load32(image->at + 32);
    if (size > image->size)
        return false;
    image->size = size;
    return true;
}

enum shoal_err sh_registry_image_check(struct sh_bytes image, uint64_t *sequence_out)
{
    if (!image_trim(&image))
        return SHOAL_ECORRUPT;
    if (sh_load32(image.at + IMAGE_CRC_AT) != image_crc(image))
        return SHOAL_ECORRUPT;
    if (sh_load16(image.at + 8) != IMAGE_FORMAT)
        return SHOAL_EVERSION;
    *sequence_out = sh_load64(image.at + 16);
    return SHOAL_OK;
}

static enum shoal_err load_nodes(struct sh_registry *registry, uint64_t now_ns, uint16_t superpeers,
                                 struct sh_reader *r)
{
    size_t count = sh_get16(r);
    for (size_t i = 0; i < count; i++) {
        struct sh_node node;
        if (sh_node_get(r, &node) || !in_table(registry, registry->index, &node))
            return SHOAL_ECORRUPT;
        bool is_superpeer = node.role == SH_ROLE_SUPERPEER;
        if (is_superpeer && !registry->is_shared)
            continue; /* where it is, the options say; and this one is up, with a new instance */
        if (is_superpeer ? node.nid.v > superpeers : !sh_registry_has(registry, node.nid))
            return SHOAL_ECORRUPT;
        enum shoal_err err = sh_view_put(&registry->view, &node);
        if (err)
            return err;
        if (!is_superpeer)
            registry->heard_ns[node.nid.v - registry->arc_first.v] = now_ns;
    }
    return sh_reader_ok(r) ? SHOAL_OK : SHOAL_ECORRUPT;
}

enum shoal_err sh_registry_image_load(struct sh_registry *registry, uint64_t now_ns,
                                      struct sh_bytes image)
{
    if (!image_trim(&image))
        return SHOAL_ECORRUPT;
    struct sh_reader r = sh_reader_make(image);
    (void)sh_reader_take(&r, 10);
    uint16_t index = sh_get16(&r);
    uint16_t count = sh_get16(&r);
    shoal_nid next = {sh_get16(&r)};
    (void)sh_get64(&r);
    uint64_t version = sh_get64(&r);
    (void)sh_get64(&r);
    struct sh_bytes cluster = sh_get_text(&r);
    bool is_like_ours =
        index == registry->index && (registry->is_shared || count == registry->count);
    if (!sh_reader_ok(&r) || count > SH_SUPERPEERS_MAX ||
        (is_like_ours && !sh_registry_has(registry, next)))
        return SHOAL_ECORRUPT;
    if (!is_like_ours || cluster.size != strlen(registry->cluster) ||
        memcmp(cluster.at, registry->cluster, cluster.size) != 0) {
        SH_ERROR("cluster", "the stored registry is of another cluster or superpeer",
                 SH_U64("stored_index", index), SH_U64("stored_count", count));
        return SHOAL_ECLUSTER;
    }
    enum shoal_err err = load_nodes(registry, now_ns, count, &r);
    if (!err && registry->is_shared && sh_arcs_get(&r, &registry->arcs))
        err = SHOAL_ECORRUPT;
    if (!err && registry->is_shared)
        err = moved_get(registry, &r);
    if (!err && registry->is_shared)
        registry->events_log = sh_get64(&r);
    if (!err && !sh_reader_done(&r))
        err = SHOAL_ECORRUPT;
    if (err)
        return err;
    registry->view.superpeers = count;
    registry->next_nid = next;
    registry->due_ns = now_ns + registry->failure_ns;
    uint64_t own = version + (registry->is_shared ? 0 : SH_REGISTRY_LOAD_LEAP);
    registry->view.epoch += own - registry->versions[registry->index];
    registry->versions[registry->index] = own;
    registry->changes++;
    sh_registry_events_begin(registry);
    return SHOAL_OK;
}
