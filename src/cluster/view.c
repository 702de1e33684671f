/* The membership view and the arcs. */
#include "cluster/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

_Static_assert(SH_PEER_NID_MAX == SH_MSG_NID_MAX, "messaging names all peers");

#define VIEW_HEAD_BYTES 12
#define NODE_BYTES_MIN 15 /* without its address and names */
#define DISK_LOST 0x80u   /* with the state */
#define PEER_NIDS (SH_PEER_NID_MAX - SH_PEER_NID_MIN + 1)

void sh_view_destroy(struct sh_view *view)
{
    free(view->nodes);
    *view = (struct sh_view){0};
}

enum shoal_err sh_view_copy(struct sh_view *to, const struct sh_view *from)
{
    struct sh_node *nodes = NULL;
    if (from->count) {
        nodes = malloc(from->count * sizeof *nodes);
        if (!nodes)
            return SHOAL_ENOMEM;
        memcpy(nodes, from->nodes, from->count * sizeof *nodes);
    }
    free(to->nodes);
    *to = *from;
    to->nodes = nodes;
    to->room = from->count;
    return SHOAL_OK;
}

size_t sh_view_lower(const struct sh_view *view, shoal_nid nid)
{
    size_t low = 0;
    size_t high = view->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (view->nodes[middle].nid.v < nid.v)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sh_node *sh_view_find(const struct sh_view *view, shoal_nid nid)
{
    size_t at = sh_view_lower(view, nid);
    return at < view->count && view->nodes[at].nid.v == nid.v ? &view->nodes[at] : NULL;
}

bool sh_node_is_replaced(const struct sh_node *nodes, size_t count, shoal_nid nid,
                         const char *address)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i].state == SH_NODE_UP && nodes[i].nid.v != nid.v &&
            strcmp(nodes[i].address, address) == 0)
            return true;
    return false;
}

bool sh_node_has_ended(const struct sh_view *view, const struct sh_node *node)
{
    return node->state == SH_NODE_LEFT ||
           (node->state == SH_NODE_FAILED &&
            sh_node_is_replaced(view->nodes, view->count, node->nid, node->address));
}

bool sh_address_is_valid(struct sh_bytes address)
{
    bool is_valid = address.size > 0 && address.size < SH_MSG_ADDRESS_MAX;
    for (size_t i = 0; is_valid && i < address.size; i++)
        is_valid = address.at[i] >= ' ' && address.at[i] != 0x7f;
    return is_valid;
}

bool sh_node_is_at(const struct sh_node *node, struct sh_bytes address)
{
    return address.size < sizeof node->address && !node->address[address.size] &&
           memcmp(node->address, address.at, address.size) == 0;
}

const struct sh_node *sh_view_holder(const struct sh_view *view, struct sh_bytes address,
                                     uint64_t instance)
{
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->state == SH_NODE_UP && node->instance != instance && sh_node_is_at(node, address))
            return node;
    }
    return NULL;
}

enum shoal_err sh_view_reserve(struct sh_view *view, size_t room)
{
    SH_ASSERT(room >= view->count);
    struct sh_node *nodes = realloc(view->nodes, room * sizeof *nodes);
    if (!nodes)
        return SHOAL_ENOMEM;
    view->nodes = nodes;
    view->room = room;
    return SHOAL_OK;
}

enum shoal_err sh_view_put(struct sh_view *view, const struct sh_node *node)
{
    SH_ASSERT(node->nid.v && node->nid.v <= SH_PEER_NID_MAX);
    size_t at = sh_view_lower(view, node->nid);
    if (at < view->count && view->nodes[at].nid.v == node->nid.v) {
        view->nodes[at] = *node;
        return SHOAL_OK;
    }
    enum shoal_err err = SHOAL_OK;
    if (view->count == view->room)
        err = sh_view_reserve(view, view->room ? 2 * view->room : 8);
    if (err)
        return err;
    memmove(&view->nodes[at + 1], &view->nodes[at], (view->count - at) * sizeof *node);
    view->nodes[at] = *node;
    view->count++;
    return SHOAL_OK;
}

void sh_view_drop(struct sh_view *view, shoal_nid nid)
{
    size_t at = sh_view_lower(view, nid);
    if (at == view->count || view->nodes[at].nid.v != nid.v)
        return;
    view->count--;
    memmove(&view->nodes[at], &view->nodes[at + 1], (view->count - at) * sizeof view->nodes[0]);
}

size_t sh_node_size(const struct sh_node *node)
{
    size_t back = node->state == SH_NODE_AWAY ? 4 : 0;
    return NODE_BYTES_MIN - 1 + strlen(node->address) + sh_traits_size(&node->traits) + back;
}

void sh_node_put(struct sh_writer *w, const struct sh_node *node)
{
    sh_put16(w, node->nid.v);
    sh_put8(w, (uint8_t)node->role);
    sh_put8(w, (uint8_t)(node->state | (node->is_disk_lost ? DISK_LOST : 0)));
    sh_put64(w, node->instance);
    sh_put_text(w, sh_bytes_text(node->address));
    sh_traits_put(w, &node->traits);
    if (node->state == SH_NODE_AWAY)
        sh_put32(w, node->back_ms);
}

enum shoal_err sh_node_get_bare(struct sh_reader *r, struct sh_node *node_out)
{
    shoal_nid nid = {sh_get16(r)};
    unsigned role = sh_get8(r);
    unsigned flags = sh_get8(r), state = flags & ~DISK_LOST;
    bool is_disk_lost = flags & DISK_LOST;
    uint64_t instance = sh_get64(r);
    struct sh_bytes address = sh_get_text(r);
    if (!sh_reader_ok(r) || !nid.v || nid.v > SH_PEER_NID_MAX || !sh_address_is_valid(address))
        return SHOAL_EPROTO;
    if ((role != SH_ROLE_SUPERPEER && role != SH_ROLE_PEER) || state > SH_NODE_AWAY)
        return SHOAL_EPROTO;
    if (state == SH_NODE_AWAY && role != SH_ROLE_PEER)
        return SHOAL_EPROTO;
    if ((role == SH_ROLE_SUPERPEER) != (nid.v < SH_PEER_NID_MIN))
        return SHOAL_EPROTO;
    if (is_disk_lost && (role != SH_ROLE_PEER || state == SH_NODE_UP))
        return SHOAL_EPROTO;
    *node_out = (struct sh_node){.nid = nid,
                                 .role = (enum sh_role)role,
                                 .state = (enum sh_node_state)state,
                                 .instance = instance,
                                 .is_disk_lost = is_disk_lost};
    memcpy(node_out->address, address.at, address.size);
    return SHOAL_OK;
}

enum shoal_err sh_node_get(struct sh_reader *r, struct sh_node *node_out)
{
    static const struct sh_traits none;
    struct sh_node node;
    enum shoal_err err = sh_node_get_bare(r, &node);
    if (!err)
        err = sh_traits_get(r, &node.traits);
    if (!err && node.state == SH_NODE_AWAY) {
        node.back_ms = sh_get32(r);
        err = sh_reader_ok(r) && node.back_ms && node.back_ms <= SH_BACK_MS_MAX ? SHOAL_OK
                                                                                : SHOAL_EPROTO;
    }
    if (!err && node.role == SH_ROLE_SUPERPEER && !sh_traits_are_equal(&node.traits, &none))
        err = SHOAL_EPROTO;
    if (!err)
        *node_out = node;
    return err;
}

size_t sh_view_size(const struct sh_view *view)
{
    size_t size = VIEW_HEAD_BYTES;
    for (size_t i = 0; i < view->count; i++)
        size += sh_node_size(&view->nodes[i]);
    return size;
}

void sh_view_put_all(struct sh_writer *w, const struct sh_view *view)
{
    SH_ASSERT(view->count <= UINT16_MAX);
    sh_put64(w, view->epoch);
    sh_put16(w, view->superpeers);
    sh_put16(w, (uint16_t)view->count);
    for (size_t i = 0; i < view->count; i++)
        sh_node_put(w, &view->nodes[i]);
}

enum shoal_err sh_view_get(struct sh_reader *r, struct sh_view *view_out)
{
    struct sh_view view = {.epoch = sh_get64(r), .superpeers = sh_get16(r)};
    size_t count = sh_get16(r);
    enum shoal_err err = SHOAL_EPROTO;
    if (!sh_reader_ok(r) || !view.superpeers || view.superpeers > SH_SUPERPEERS_MAX)
        goto out_view;
    /* The bytes bound the memory that a hostile count could claim. */
    if (count > sh_reader_left(r) / NODE_BYTES_MIN)
        goto out_view;
    view.room = count;
    view.nodes = count ? malloc(count * sizeof view.nodes[0]) : NULL;
    if (count && !view.nodes) {
        err = SHOAL_ENOMEM;
        goto out_view;
    }
    for (; view.count < count; view.count++) {
        err = sh_node_get(r, &view.nodes[view.count]);
        if (!err && view.count && view.nodes[view.count - 1].nid.v >= view.nodes[view.count].nid.v)
            err = SHOAL_EPROTO;
        if (err)
            goto out_view;
    }
    free(view_out->nodes);
    *view_out = view;
    return SHOAL_OK;
out_view:
    free(view.nodes);
    return err;
}

static bool same_node(const struct sh_node *a, const struct sh_node *b)
{
    return a->role == b->role && a->state == b->state && a->instance == b->instance &&
           a->is_disk_lost == b->is_disk_lost && a->back_ms == b->back_ms &&
           strcmp(a->address, b->address) == 0 && sh_traits_are_equal(&a->traits, &b->traits);
}

void sh_view_diff(const struct sh_view *before, const struct sh_view *after,
                  void (*each)(void *arg, const struct sh_node *old, const struct sh_node *new),
                  void *arg)
{
    size_t i = 0;
    size_t j = 0;
    while (i < before->count || j < after->count) {
        const struct sh_node *old = i < before->count ? &before->nodes[i] : NULL;
        const struct sh_node *new = j < after->count ? &after->nodes[j] : NULL;
        if (old && new && old->nid.v != new->nid.v) {
            if (old->nid.v < new->nid.v)
                new = NULL;
            else
                old = NULL;
        }
        i += old != NULL;
        j += new != NULL;
        if (!old || !new || !same_node(old, new))
            each(arg, old, new);
    }
}

/* First and last ID of arc `index` (0 to superpeers - 1) of `superpeers` (1 to 63) equal ones. */
static shoal_nid arc_first(uint16_t index, uint16_t superpeers)
{
    SH_ASSERT(superpeers && superpeers <= SH_SUPERPEERS_MAX);
    SH_ASSERT(index <= superpeers);
    return (shoal_nid){(uint16_t)(SH_PEER_NID_MIN + PEER_NIDS * (uint32_t)index / superpeers)};
}

static shoal_nid arc_last(uint16_t index, uint16_t superpeers)
{
    SH_ASSERT(index < superpeers);
    return (shoal_nid){(uint16_t)(arc_first((uint16_t)(index + 1), superpeers).v - 1)};
}

shoal_nid sh_arc_superpeer(shoal_nid nid, uint16_t superpeers)
{
    SH_ASSERT(superpeers && superpeers <= SH_SUPERPEERS_MAX);
    if (nid.v < SH_PEER_NID_MIN || nid.v > SH_PEER_NID_MAX)
        return SHOAL_NID_NONE;
    uint16_t index = (uint16_t)((uint32_t)(nid.v - SH_PEER_NID_MIN) * superpeers / PEER_NIDS);
    while (arc_last(index, superpeers).v < nid.v)
        index++;
    SH_ASSERT(arc_first(index, superpeers).v <= nid.v);
    return (shoal_nid){(uint16_t)(index + 1)};
}
