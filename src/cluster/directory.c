/* The view and the cache of lookups. */
#include "cluster/directory.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/connect.h"
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
    enum shoal_err err = sh_lookups_create(config->cache_ranges_max, &directory->lookups);
    if (err) {
        free(directory);
        return err;
    }
    directory->msg = config->msg;
    directory->clock = config->clock;
    directory->search.later_end = &directory->search.later;
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
    sh_lookups_destroy(directory->lookups);
    sh_lock_destroy(&directory->lock);
    free(directory);
}

/* What was cached in the view before, of an owner that is the same process and up, is good still. */
struct kept {
    const struct sh_directory *directory;
    const struct sh_view *before;
};

static bool has_another_life(const struct sh_node *old, const struct sh_node *node)
{
    return old && sh_nid_is_peer(node->nid) && old->instance != node->instance;
}

static bool is_kept(const void *arg, shoal_nid nid)
{
    const struct kept *kept = arg;
    const struct sh_node *node = sh_view_find(&kept->directory->view, nid);
    return node && node->state == SH_NODE_UP &&
           !has_another_life(sh_view_find(kept->before, nid), node);
}

/* A node that is in the view no more was forgotten: the next one with its ID is another one. */
static void lives_count(struct sh_directory *directory, const struct sh_view *before)
{
    for (size_t i = 0; i < before->count; i++) {
        shoal_nid nid = before->nodes[i].nid;
        if (sh_nid_is_peer(nid) && !sh_view_find(&directory->view, nid))
            atomic_fetch_add_explicit(&directory->lives[nid.v], 1, memory_order_relaxed);
    }
    for (size_t i = 0; i < directory->view.count; i++) {
        const struct sh_node *node = &directory->view.nodes[i];
        /* relaxed: a number that publishes nothing; the lock orders the writers */
        if (has_another_life(sh_view_find(before, node->nid), node))
            atomic_fetch_add_explicit(&directory->lives[node->nid.v], 1, memory_order_relaxed);
    }
}

uint32_t sh_directory_life(const struct sh_directory *directory, shoal_nid nid)
{
    return atomic_load_explicit(&directory->lives[nid.v], memory_order_relaxed);
}

/* Whether a node that is not up in the view was, or was not there, in the one before: only then can
 * something be cached of it. Nodes that a view does not name any more count, too. */
static bool has_lost(const struct sh_view *before, const struct sh_view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        const struct sh_node *old = sh_view_find(before, node->nid);
        if ((node->state != SH_NODE_UP && (!old || old->state != node->state)) ||
            has_another_life(old, node))
            return true;
    }
    for (size_t i = 0; i < before->count; i++) {
        if (!sh_view_find(view, before->nodes[i].nid))
            return true;
    }
    return false;
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
    SH_ASSERT(copy.epoch > before.epoch);
    memset(directory->states, 0, sizeof directory->states);
    for (size_t i = 0; i < view->count; i++)
        directory->states[view->nodes[i].nid.v] = (uint8_t)(view->nodes[i].state + 1);
    lives_count(directory, &before);
    if (has_lost(&before, &copy))
        sh_lookups_prune(directory->lookups, is_kept, &(struct kept){directory, &before});
    sh_lock_release(&directory->lock);
    sh_connect_view(directory->msg, &before, view);
    sh_view_destroy(&before);
    return SHOAL_OK;
}

enum shoal_err sh_directory_view_copy(struct sh_directory *directory, struct sh_view *view_out)
{
    sh_lock_take(&directory->lock);
    enum shoal_err err = sh_view_copy(view_out, &directory->view);
    sh_lock_release(&directory->lock);
    return err;
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

shoal_nid sh_directory_peer_after(struct sh_directory *directory, shoal_nid nid)
{
    shoal_nid found = SHOAL_NID_NONE;
    sh_lock_take(&directory->lock);
    const struct sh_view *view = &directory->view;
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        bool is_one =
            node->role == SH_ROLE_PEER && node->state == SH_NODE_UP && node->nid.v > nid.v;
        if (is_one && (!found.v || node->nid.v < found.v))
            found = node->nid;
    }
    sh_lock_release(&directory->lock);
    return found;
}

/* Whether a node's chunks come back: with the node, or at others, which only those wait for who want a chunk that is there. */
static bool comes_back(const struct sh_node *node, bool is_chunk)
{
    bool may_return = node->traits.keeps_chunks && node->state != SH_NODE_LEFT;
    return may_return || (is_chunk && node->traits.is_replicated);
}

/* The superpeer that has said EFAILED may know more than this view: so a node that keeps its chunks counts also while it is up here. */
bool sh_directory_may_return(struct sh_directory *directory, shoal_nid asked, shoal_nid creator,
                             bool is_chunk)
{
    const shoal_nid known[] = {asked, creator};
    bool may_return = false, is_decided = false;
    sh_lock_take(&directory->lock);
    const struct sh_view *view = &directory->view;
    for (size_t i = 0; !is_decided && i < sizeof known / sizeof known[0]; i++) {
        const struct sh_node *node = sh_view_find(view, known[i]);
        may_return = node && comes_back(node, is_chunk);
        is_decided = may_return || (node && sh_node_may_return(node));
    }
    for (size_t i = 0; !is_decided && !may_return && i < view->count; i++)
        may_return = view->nodes[i].state != SH_NODE_UP && comes_back(&view->nodes[i], is_chunk);
    sh_lock_release(&directory->lock);
    return may_return;
}

shoal_nid sh_directory_superpeer_locked(const struct sh_directory *directory, shoal_nid creator)
{
    sh_lock_assert_held(&directory->lock);
    uint16_t superpeers = directory->view.superpeers;
    SH_ASSERT(superpeers && superpeers <= SH_SUPERPEERS_MAX);
    shoal_nid first = sh_arc_superpeer(creator, superpeers);
    shoal_nid owner = {directory->owners[sh_arc_shard(creator)]};
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

void sh_directory_suspect(struct sh_directory *directory, shoal_nid nid)
{
    shoal_nid superpeer = SHOAL_NID_NONE;
    struct sh_out out;
    sh_lock_take(&directory->lock);
    if (nid.v >= SH_PEER_NID_MIN && nid.v <= SH_PEER_NID_MAX &&
        sh_directory_state(directory, nid) == SH_NODE_UP)
        superpeer = sh_directory_superpeer_locked(directory, nid);
    sh_lock_release(&directory->lock);
    /* Whether it arrives does not matter much: silence tells too. */
    if (!superpeer.v ||
        sh_msg_begin(directory->msg, superpeer, SH_CLUSTER_SUSPECT, SH_SUSPECT_BYTES, &out))
        return;
    sh_put16(&out.w, nid.v);
    sh_msg_end(directory->msg, &out);
}

void sh_directory_superpeer_set(struct sh_directory *directory, shoal_nid creator,
                                shoal_nid superpeer)
{
    if (!superpeer.v || superpeer.v > SH_SUPERPEERS_MAX)
        return;
    sh_lock_take(&directory->lock);
    directory->owners[sh_arc_shard(creator)] = (uint8_t)superpeer.v;
    sh_lock_release(&directory->lock);
}

/* Without the lock: this is what every call begins with. Where the cache has nothing to say the
 * superpeer must, also about chunks whose creator is no more: they may have moved before. */
enum shoal_err sh_directory_owner(struct sh_directory *directory, shoal_cid cid, shoal_nid *nid_out)
{
    if (sh_lookups_find(directory->lookups, cid, nid_out))
        return SHOAL_OK;
    shoal_nid creator = shoal_cid_creator(cid);
    if (creator.v < SH_PEER_NID_MIN || creator.v > SH_PEER_NID_MAX)
        return SHOAL_ENOCHUNK;
    return SHOAL_EAGAIN;
}

bool sh_directory_range(struct sh_directory *directory, shoal_cid cid, struct sh_range *range_out)
{
    return sh_lookups_look(directory->lookups, cid, range_out);
}

void sh_directory_forget(struct sh_directory *directory, shoal_cid cid)
{
    sh_lock_take(&directory->lock);
    sh_lookups_drop(directory->lookups, cid);
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
    return (size_t)sh_lookups_stats(directory->lookups).ranges;
}

struct sh_directory_stats sh_directory_stats(struct sh_directory *directory)
{
    return (struct sh_directory_stats){
        .cache = sh_lookups_stats(directory->lookups),
        .requests = atomic_load_explicit(&directory->requests, memory_order_relaxed),
    };
}
