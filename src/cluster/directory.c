/* The view and the cache of lookups. */
#include "cluster/directory.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/connect_int.h"
#include "cluster/directory_int.h"
#include "cluster/proto.h"

/* A copy of the view as bytes, so that nothing is sent under the lock. NULL: out of memory. */
static uint8_t *view_bytes(struct sh_directory *directory, size_t *size_out)
{
    sh_lock_take(&directory->lock);
    size_t size = sh_view_size(&directory->view);
    uint8_t *bytes = malloc(size);
    if (bytes) {
        struct sh_writer w = sh_writer_make(bytes, size);
        sh_view_put_all(&w, &directory->view);
        SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    }
    sh_lock_release(&directory->lock);
    *size_out = size;
    return bytes;
}

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    struct sh_directory *directory = arg;
    uint64_t known = sh_get64(&in->payload);
    enum shoal_err err = sh_reader_done(&in->payload) ? SHOAL_OK : SHOAL_EPROTO;
    uint64_t epoch = sh_directory_epoch(directory);
    if (!err && !epoch)
        err = SHOAL_EAGAIN;
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (!err && known != epoch) {
        bytes = view_bytes(directory, &size);
        err = bytes ? SHOAL_OK : SHOAL_ENOMEM;
    }
    struct sh_out out;
    if (err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err,
                           err == SHOAL_EAGAIN ? "the node has not joined its cluster yet" : NULL);
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, 1 + (bytes ? size : 0), &out)) {
        sh_put8(&out.w, bytes ? SH_ANSWER_VIEW : 0);
        if (bytes)
            sh_put_raw(&out.w, sh_bytes_make(bytes, size));
        sh_msg_end(in->msg, &out);
    }
    free(bytes);
}

enum shoal_err sh_directory_create(const struct sh_directory_config *config,
                                   struct sh_directory **directory_out)
{
    SH_ASSERT(config->msg && config->cache_ranges_max);
    struct sh_directory *directory = calloc(1, sizeof *directory);
    if (!directory)
        return SHOAL_ENOMEM;
    /* A node for each range is the worst fill; they are taken as they are needed. */
    enum shoal_err err = sh_ranges_create((size_t)config->cache_ranges_max + 64, &directory->cache);
    if (err) {
        free(directory);
        return err;
    }
    directory->msg = config->msg;
    directory->clock = config->clock;
    directory->cache_ranges_max = config->cache_ranges_max;
    directory->search.ops_end = &directory->search.ops;
    sh_lock_init(&directory->lock, SH_LOCK_CLUSTER);
    if (!config->is_client)
        sh_msg_handler_set(config->msg, SH_CLUSTER_VIEW_GET, SH_MSG_INLINE, on_view_get, directory);
    *directory_out = directory;
    return SHOAL_OK;
}

void sh_directory_destroy(struct sh_directory *directory)
{
    if (!directory)
        return;
    sh_directory_search_stop(directory);
    sh_directory_locate_stop(directory);
    sh_view_destroy(&directory->view);
    sh_ranges_destroy(directory->cache);
    sh_lock_destroy(&directory->lock);
    free(directory);
}

/* Drops the cached ranges of nodes that are not up any more. */
static void cache_prune(struct sh_directory *directory)
{
    sh_lock_assert_held(&directory->lock);
    struct sh_range range;
    shoal_cid from = {0};
    while (sh_ranges_next(directory->cache, from, &range)) {
        if (sh_directory_state(directory, (shoal_nid){(uint16_t)range.value}) != SH_NODE_UP) {
            enum shoal_err err = sh_ranges_remove(directory->cache, range.first, range.last);
            SH_ASSERT(!err); /* whole ranges */
        }
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
}

enum shoal_err sh_directory_view_apply(struct sh_directory *directory, const struct sh_view *view)
{
    SH_ASSERT(view->superpeers && view->superpeers <= SH_SUPERPEERS_MAX);
    if (view->epoch <= directory->view.epoch)
        return SHOAL_OK;
    struct sh_view copy = {0};
    enum shoal_err err = sh_view_copy(&copy, view);
    if (err)
        return err;
    sh_lock_take(&directory->lock);
    struct sh_view before = directory->view;
    directory->view = copy;
    memset(directory->states, 0, sizeof directory->states);
    for (size_t i = 0; i < view->count; i++)
        directory->states[view->nodes[i].nid.v] = (uint8_t)(view->nodes[i].state + 1);
    cache_prune(directory);
    sh_lock_release(&directory->lock);
    sh_connect_view(directory->msg, &before, view);
    sh_view_destroy(&before);
    return SHOAL_OK;
}

uint64_t sh_directory_epoch(struct sh_directory *directory)
{
    sh_lock_take(&directory->lock);
    uint64_t epoch = directory->view.epoch;
    sh_lock_release(&directory->lock);
    return epoch;
}

size_t sh_directory_nodes(struct sh_directory *directory, struct sh_node *nodes, size_t room)
{
    sh_lock_take(&directory->lock);
    size_t count = directory->view.count;
    size_t copied = count < room ? count : room;
    if (copied)
        memcpy(nodes, directory->view.nodes, copied * sizeof nodes[0]);
    sh_lock_release(&directory->lock);
    return count;
}

enum shoal_err sh_directory_node(struct sh_directory *directory, shoal_nid nid,
                                 struct sh_node *node_out)
{
    sh_lock_take(&directory->lock);
    const struct sh_node *node = sh_view_find(&directory->view, nid);
    if (node)
        *node_out = *node;
    sh_lock_release(&directory->lock);
    return node ? SHOAL_OK : SHOAL_ENONODE;
}

shoal_nid sh_directory_superpeer_locked(const struct sh_directory *directory, shoal_nid creator)
{
    sh_lock_assert_held(&directory->lock);
    uint16_t superpeers = directory->view.superpeers;
    shoal_nid first = sh_arc_superpeer(creator, superpeers);
    shoal_nid owner = {directory->owners[sh_arc_sector(creator)]};
    if (owner.v && sh_directory_state(directory, owner) == SH_NODE_UP)
        return owner;
    for (uint16_t i = 0; first.v && i < superpeers; i++) {
        shoal_nid nid = {(uint16_t)((first.v - 1 + i) % superpeers + 1)};
        if (sh_directory_state(directory, nid) == SH_NODE_UP)
            return nid;
    }
    return first;
}

shoal_nid sh_directory_superpeer(struct sh_directory *directory, shoal_nid creator)
{
    shoal_nid nid = SHOAL_NID_NONE;
    sh_lock_take(&directory->lock);
    if (directory->view.superpeers)
        nid = sh_directory_superpeer_locked(directory, creator);
    sh_lock_release(&directory->lock);
    return nid;
}

void sh_directory_superpeer_set(struct sh_directory *directory, shoal_nid creator,
                                shoal_nid superpeer)
{
    if (!superpeer.v || superpeer.v > SH_SUPERPEERS_MAX)
        return;
    sh_lock_take(&directory->lock);
    directory->owners[sh_arc_sector(creator)] = (uint8_t)superpeer.v;
    sh_lock_release(&directory->lock);
}

/* Where the cache has nothing to say the superpeer must, also about chunks whose creator is no
 * more: they may have moved before. */
enum shoal_err sh_directory_owner_locked(struct sh_directory *directory, shoal_cid cid,
                                         shoal_nid *nid_out)
{
    sh_lock_assert_held(&directory->lock);
    struct sh_range range;
    if (sh_ranges_find(directory->cache, cid, &range)) {
        *nid_out = (shoal_nid){(uint16_t)range.value};
        return SHOAL_OK;
    }
    shoal_nid creator = shoal_cid_creator(cid);
    if (creator.v < SH_PEER_NID_MIN || creator.v > SH_PEER_NID_MAX)
        return SHOAL_ENOCHUNK;
    return SHOAL_EAGAIN;
}

enum shoal_err sh_directory_owner(struct sh_directory *directory, shoal_cid cid, shoal_nid *nid_out)
{
    sh_lock_take(&directory->lock);
    enum shoal_err err = sh_directory_owner_locked(directory, cid, nid_out);
    sh_lock_release(&directory->lock);
    return err;
}

void sh_directory_forget(struct sh_directory *directory, shoal_cid cid)
{
    sh_lock_take(&directory->lock);
    struct sh_range range;
    if (sh_ranges_find(directory->cache, cid, &range)) {
        enum shoal_err err = sh_ranges_remove(directory->cache, range.first, range.last);
        SH_ASSERT(!err); /* a whole range */
    }
    sh_lock_release(&directory->lock);
}

enum shoal_err sh_directory_pick_peer(struct sh_directory *directory, shoal_nid *nid_out)
{
    enum shoal_err err = SHOAL_ENONODE;
    sh_lock_take(&directory->lock);
    const struct sh_view *view = &directory->view;
    size_t start = sh_view_lower(view, (shoal_nid){(uint16_t)(directory->picked.v + 1)});
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[(start + i) % view->count];
        if (node->role != SH_ROLE_PEER || node->state != SH_NODE_UP)
            continue;
        directory->picked = node->nid;
        *nid_out = node->nid;
        err = SHOAL_OK;
        break;
    }
    sh_lock_release(&directory->lock);
    return err;
}

size_t sh_directory_cached(struct sh_directory *directory)
{
    sh_lock_take(&directory->lock);
    size_t count = sh_ranges_count(directory->cache);
    sh_lock_release(&directory->lock);
    return count;
}
