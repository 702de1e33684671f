/* Decoders of the cluster module on any bytes: what is accepted is encoded to the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/changes.h"
#include "cluster/connect.h"
#include "cluster/proto.h"
#include "superpeer/registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void view_round_trip(struct sh_bytes bytes)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_view view = {0};
    if (sh_view_get(&r, &view))
        return;
    size_t taken = (size_t)(r.at - bytes.at);
    SH_ASSERT(sh_view_size(&view) == taken);
    uint8_t *again = malloc(taken);
    SH_ASSERT(again);
    struct sh_writer w = sh_writer_make(again, taken);
    sh_view_put_all(&w, &view);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    SH_ASSERT(memcmp(again, bytes.at, taken) == 0);
    for (size_t i = 0; i < view.count; i++)
        SH_ASSERT(sh_view_find(&view, view.nodes[i].nid) == &view.nodes[i]);
    free(again);
    sh_view_destroy(&view);
}

/* Changes to a view of one node; what they lead to has the digest that they name. */
static void changes_applied(struct sh_bytes bytes)
{
    struct sh_node node = {.nid = {64}, .role = SH_ROLE_PEER, .address = "p:1", .instance = 7};
    struct sh_view view = {0}, result = {0};
    struct sh_reader r = sh_reader_make(bytes);
    if (sh_view_put(&view, &node))
        return;
    view.superpeers = 1;
    view.epoch = bytes.size < 16 ? 1 : sh_load64(bytes.at + 8);
    enum shoal_err err = sh_changes_get(&r, &view, &result);
    SH_ASSERT(!err == !!result.superpeers);
    if (!err)
        SH_ASSERT(sh_view_digest(&result) == sh_load64(bytes.at + 16));
    for (size_t i = 1; i < result.count; i++)
        SH_ASSERT(result.nodes[i - 1].nid.v < result.nodes[i].nid.v);
    sh_view_destroy(&view);
    sh_view_destroy(&result);
}

static struct sh_registry *registry_of(struct sh_bytes bytes)
{
    struct sh_registry_config config = {.cluster = "fuzz", .failure_ns = 1000};
    struct sh_registry *registry;
    if (sh_registry_create(&config, &registry))
        return NULL;
    uint64_t sequence;
    if (!sh_registry_image_check(bytes, &sequence) && !sh_registry_image_load(registry, 0, bytes))
        return registry;
    sh_registry_destroy(registry);
    return NULL;
}

/* An image of whatever format that is taken is stored in the present one, which is the same registry. */
static void registry_takes(struct sh_bytes bytes)
{
    struct sh_registry *registry = registry_of(bytes);
    if (!registry)
        return;
    size_t size = sh_registry_image_size(registry);
    uint8_t *image = malloc(size);
    SH_ASSERT(image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, registry, 1);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    struct sh_registry *again = registry_of(sh_bytes_make(image, size));
    SH_ASSERT(again && sh_registry_digest(again) == sh_registry_digest(registry));
    sh_registry_destroy(again);
    sh_registry_destroy(registry);
    free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    struct sh_bytes rest = sh_bytes_make(data + 1, size - 1);
    struct sh_reader r = sh_reader_make(rest);
    struct sh_view view = {0};
    uint8_t flags;
    switch (data[0] % 4) {
    case 0:
        view_round_trip(rest);
        break;
    case 1:
        if (!sh_answer_view_get(&r, SH_ANSWER_VIEW, &flags, &view))
            SH_ASSERT(sh_reader_done(&r));
        sh_view_destroy(&view);
        break;
    case 2:
        changes_applied(rest);
        break;
    default:
        registry_takes(rest);
        break;
    }
    return 0;
}
