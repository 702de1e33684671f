/* The registry as bytes: what raft's snapshots hold. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "superpeer/registry_int.h"

#define IMAGE_MAGIC UINT64_C(0x4745524c414f4853) /* "SHOALREG" */
#define IMAGE_FORMAT 9
#define IMAGE_FORMAT_RETURNS 8 /* when failed peers returned, which was counted */
#define IMAGE_FORMAT_BARE 7    /* and before nodes had traits */
#define IMAGE_HEAD_BYTES 40
#define IMAGE_CRC_AT 36

/* --- Images ---------------------------------------------------------------------------------- */

/* The first ID from one on that is in a set, or is not; one above all if there is none. */
static uint32_t nid_find(const struct sh_nid_set *set, uint32_t from, bool is_in)
{
    for (uint32_t nid = from; nid <= SH_PEER_NID_MAX; nid += 64 - nid % 64) {
        uint64_t bits = (is_in ? set->bits[nid / 64] : ~set->bits[nid / 64]) >> (nid % 64);
        uint32_t found = bits ? nid + (uint32_t)__builtin_ctzll(bits) : UINT32_MAX;
        if (found <= SH_PEER_NID_MAX)
            return found;
    }
    return SH_PEER_NID_MAX + 1;
}

/* The next run of IDs in a set, from one on. False: there is none. IDs are given out in sequence, so
 * that those which are gone are few runs. */
static bool run_next(const struct sh_nid_set *set, uint32_t from, uint32_t *first_out,
                     uint32_t *last_out)
{
    *first_out = nid_find(set, from, true);
    *last_out = nid_find(set, *first_out, false) - 1;
    return *first_out <= SH_PEER_NID_MAX;
}

static size_t runs_count(const struct sh_nid_set *set)
{
    size_t count = 0;
    uint32_t first, last = SH_PEER_NID_MIN - 1;
    while (run_next(set, last + 1, &first, &last))
        count++;
    return count;
}

static size_t set_size(const struct sh_nid_set *set)
{
    return 2 + 4 * runs_count(set);
}

static void set_put(struct sh_writer *w, const struct sh_nid_set *set)
{
    uint32_t first, last = SH_PEER_NID_MIN - 1;
    sh_put16(w, (uint16_t)runs_count(set));
    while (run_next(set, last + 1, &first, &last)) {
        sh_put16(w, (uint16_t)first);
        sh_put16(w, (uint16_t)last);
    }
}

static enum shoal_err set_get(struct sh_nid_set *set, struct sh_reader *r)
{
    uint16_t count = sh_get16(r);
    for (uint16_t i = 0; i < count; i++) {
        uint32_t first = sh_get16(r), last = sh_get16(r);
        if (!sh_reader_ok(r) || first < SH_PEER_NID_MIN || last > SH_PEER_NID_MAX || first > last)
            return SHOAL_ECORRUPT;
        for (uint32_t nid = first; nid <= last; nid++)
            sh_nid_set_put(set, (shoal_nid){(uint16_t)nid}, true);
    }
    return sh_reader_ok(r) ? SHOAL_OK : SHOAL_ECORRUPT;
}

size_t sh_registry_image_size(const struct sh_registry *registry)
{
    size_t nodes = 2;
    for (size_t i = 0; i < registry->view.count; i++)
        nodes += sh_node_size(&registry->view.nodes[i]);
    return IMAGE_HEAD_BYTES + 2 + strlen(registry->cluster) + nodes + SH_ARCS_BYTES +
           set_size(&registry->forgotten) + set_size(&registry->reissued) + 16;
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
    sh_put16(w, 0);
    sh_put16(w, registry->view.superpeers);
    sh_put16(w, registry->next_nid.v);
    sh_put64(w, sequence);
    sh_put64(w, registry->version);
    sh_put32(w, (uint32_t)(size - IMAGE_HEAD_BYTES));
    sh_put32(w, 0);
    sh_put_text(w, sh_bytes_text(registry->cluster));
    sh_put16(w, (uint16_t)registry->view.count);
    for (size_t i = 0; i < registry->view.count; i++)
        sh_node_put(w, &registry->view.nodes[i]);
    sh_arcs_put(w, &registry->arcs);
    set_put(w, &registry->forgotten);
    set_put(w, &registry->reissued);
    sh_put64(w, registry->events_log);
    sh_put64(w, registry->cluster_id);
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
    uint16_t format = sh_load16(image.at + 8);
    if (format < IMAGE_FORMAT_BARE || format > IMAGE_FORMAT)
        return SHOAL_EVERSION;
    *sequence_out = sh_load64(image.at + 16);
    return SHOAL_OK;
}

static enum shoal_err load_nodes(struct sh_registry *registry, uint64_t now_ns, uint16_t format,
                                 uint16_t superpeers, struct sh_reader *r)
{
    size_t count = sh_get16(r);
    for (size_t i = 0; i < count; i++) {
        struct sh_node node;
        if (format == IMAGE_FORMAT_BARE ? sh_node_get_bare(r, &node) : sh_node_get(r, &node))
            return SHOAL_ECORRUPT;
        bool is_superpeer = node.role == SH_ROLE_SUPERPEER;
        if (is_superpeer ? node.nid.v > superpeers : !sh_nid_is_peer(node.nid))
            return SHOAL_ECORRUPT;
        enum shoal_err err = sh_view_put(&registry->view, &node);
        if (err)
            return err;
        if (!is_superpeer)
            registry->heard_ns[node.nid.v - SH_PEER_NID_MIN] = now_ns;
    }
    return sh_reader_ok(r) ? SHOAL_OK : SHOAL_ECORRUPT;
}

enum shoal_err sh_registry_image_load(struct sh_registry *registry, uint64_t now_ns,
                                      struct sh_bytes image)
{
    if (!image_trim(&image))
        return SHOAL_ECORRUPT;
    struct sh_reader r = sh_reader_make(image);
    (void)sh_get64(&r);
    uint16_t format = sh_get16(&r);
    uint16_t zero = sh_get16(&r);
    uint16_t count = sh_get16(&r);
    shoal_nid next = {sh_get16(&r)};
    (void)sh_get64(&r);
    uint64_t version = sh_get64(&r);
    (void)sh_get64(&r);
    struct sh_bytes cluster = sh_get_text(&r);
    if (!sh_reader_ok(&r) || zero || count > SH_SUPERPEERS_MAX || !sh_nid_is_peer(next))
        return SHOAL_ECORRUPT;
    if (cluster.size != strlen(registry->cluster) ||
        memcmp(cluster.at, registry->cluster, cluster.size) != 0) {
        SH_ERROR("cluster", "the stored registry is of another cluster");
        return SHOAL_ECLUSTER;
    }
    enum shoal_err err = load_nodes(registry, now_ns, format, count, &r);
    if (!err && sh_arcs_get(&r, &registry->arcs))
        err = SHOAL_ECORRUPT;
    if (!err)
        err = set_get(&registry->forgotten, &r);
    if (!err)
        err = set_get(&registry->reissued, &r);
    if (!err) {
        if (format <= IMAGE_FORMAT_RETURNS)
            (void)sh_get64(&r);
        registry->events_log = sh_get64(&r);
        registry->cluster_id = sh_get64(&r);
    }
    if (!err && !sh_reader_done(&r))
        err = SHOAL_ECORRUPT;
    if (err)
        return err;
    registry->view.superpeers = count;
    registry->next_nid = next;
    registry->view.epoch += version - registry->version;
    registry->version = version;
    registry->changes++;
    sh_registry_events_begin(registry);
    return SHOAL_OK;
}
