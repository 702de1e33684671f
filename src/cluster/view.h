/* The membership view: which nodes there are, where, and in which state.
 *
 * A view is a plain value, sorted by node ID. Its epoch rises with every join, leave and failure,
 * so that of two views the one with the higher epoch is the newer one.
 *
 * Encoded (little-endian, no padding):
 *   0   u64  epoch
 *   8   u16  number of superpeers (their IDs are 1 to this)
 *   10  u16  number of nodes
 *   12  nodes in ascending order of ID, each:
 *       u16 ID, u8 role, u8 state (128 more: the peer's disk is lost), u64 instance, u16 length of the address, address, traits
 *       (traits.h), of one that is away u32 for how long it is waited for, in ms
 *
 * Arithmetic: 184 bytes a node in memory, 15 and its address on the wire (about 31), and with three
 * names of failure domains of eight bytes each 30 more: 1000 nodes are 184 KB, and 31 or 61 KB. Hashes in
 * place of the names would be 12 bytes, but nobody could read them; and a view is sent whole only to a
 * node that is new, or was away (changes.h).
 */
#ifndef SH_CLUSTER_VIEW_H
#define SH_CLUSTER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/node_ids.h"
#include "cluster/traits.h"
#include "msg/msg.h"
#include "shoal/err.h"
#include "shoal/types.h"

/* The numbers are those of shoal/shoal.h and are part of the wire format. */
enum sh_role { SH_ROLE_SUPERPEER = 1, SH_ROLE_PEER = 2 };
enum sh_node_state {
    SH_NODE_UP = 0,
    SH_NODE_LEFT = 1,
    SH_NODE_FAILED = 2,
    SH_NODE_AWAY = 3, /* a peer that was stopped in order, and is to be back within back_ms */
};

#define SH_BACK_MS_MAX 86400000u /* a day */

struct sh_node {
    shoal_nid nid;
    enum sh_role role;
    enum sh_node_state state;
    char address[SH_MSG_ADDRESS_MAX];
    uint64_t instance; /* drawn at random by the process at its start; tells two of them apart */
    uint32_t back_ms;  /* AWAY: for how long it is waited for, since it said so; else 0 */
    /* A peer that is not up: an operator has declared that its disk never comes back. Its next life, if there is one after
     * all, begins without that. */
    bool is_disk_lost;
    struct sh_traits traits; /* of a superpeer: none */
};

struct sh_view {
    uint64_t epoch;
    uint16_t superpeers; /* how many there are; 0: no view yet */
    size_t count;
    size_t room;
    struct sh_node *nodes; /* count of them, by ascending ID */
};

/* Whether a node is not up, but may be up again with what its disk has: it failed, or is away. A node that has left is gone for good. */
static inline bool sh_node_may_return(const struct sh_node *node)
{
    return node->state == SH_NODE_FAILED || node->state == SH_NODE_AWAY;
}

/* An empty view needs no destroying: {0}. Destroying makes it empty. */
void sh_view_destroy(struct sh_view *view);

/* Replaces *to by a copy. ENOMEM changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_view_copy(struct sh_view *to, const struct sh_view *from);

/* Room for so many nodes, which putting them then needs no memory for. ENOMEM changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_view_reserve(struct sh_view *view, size_t room);

/* The node of that ID, or NULL; valid until the view changes. */
struct sh_node *sh_view_find(const struct sh_view *view, shoal_nid nid);
/* Where the first node with an ID of at least nid is, or count. */
size_t sh_view_lower(const struct sh_view *view, shoal_nid nid);
/* Whether another one of those nodes than that one is up at an address: who was there before has
 * ended, since two processes can't listen at one. */
bool sh_node_is_replaced(const struct sh_node *nodes, size_t count, shoal_nid nid,
                         const char *address);

/* Whether a node's process is no more: it left, or failed and another one is up in its place. A failed one may
 * only be cut off. */
bool sh_node_has_ended(const struct sh_view *view, const struct sh_node *node);

/* Whether a text can be a node's address: 1 to SH_MSG_ADDRESS_MAX - 1 bytes, none of them a control character,
 * which could do harm on a terminal that shows it. */
bool sh_address_is_valid(struct sh_bytes address);

bool sh_node_is_at(const struct sh_node *node, struct sh_bytes address);
/* The node of another instance that is up at an address; NULL: there is none. Valid until the view changes. */
const struct sh_node *sh_view_holder(const struct sh_view *view, struct sh_bytes address,
                                     uint64_t instance);

/* Adds a node or replaces the one of that ID. Borrows node. ENOMEM changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_view_put(struct sh_view *view, const struct sh_node *node);
/* Takes a node out, if it is in. */
void sh_view_drop(struct sh_view *view, shoal_nid nid);

/* One node as it stands in an encoded view or table. Get refuses what no shoal node writes (EPROTO:
 * an unknown role or state, ID 0 or above the highest, an address that is not valid, a superpeer with
 * traits). */
size_t sh_node_size(const struct sh_node *node);
void sh_node_put(struct sh_writer *w, const struct sh_node *node);
SHOAL_NODISCARD enum shoal_err sh_node_get(struct sh_reader *r, struct sh_node *node_out);
/* The same of a node as it stood in tables before there were traits: without any. */
SHOAL_NODISCARD enum shoal_err sh_node_get_bare(struct sh_reader *r, struct sh_node *node_out);

/* Encodes exactly sh_view_size bytes. */
size_t sh_view_size(const struct sh_view *view);
void sh_view_put_all(struct sh_writer *w, const struct sh_view *view);
/* Decodes a view, which replaces *view_out's nodes. EPROTO (malformed, out of order, a superpeer
 * number out of range), ENOMEM; both leave *view_out as it was. The reader stands behind it. */
SHOAL_NODISCARD enum shoal_err sh_view_get(struct sh_reader *r, struct sh_view *view_out);

/* Calls each(arg, before, after) for every node that differs between two views, by ascending ID:
 * before is NULL for a new node, after is NULL for one that is gone. */
void sh_view_diff(const struct sh_view *before, const struct sh_view *after,
                  void (*each)(void *arg, const struct sh_node *old, const struct sh_node *new),
                  void *arg);

/* --- Arcs: how the IDs of peers are divided among the superpeers ------------------------------ */

/* The superpeer that a peer's ID belongs to; NONE for an ID that no peer can have. */
shoal_nid sh_arc_superpeer(shoal_nid nid, uint16_t superpeers);

#endif
