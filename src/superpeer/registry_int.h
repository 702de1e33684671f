/* The inside of a registry, shared by registry*.c. */
#ifndef SH_SUPERPEER_REGISTRY_INT_H
#define SH_SUPERPEER_REGISTRY_INT_H

#include "superpeer/registry.h"

#define SH_CLUSTER_NAME_MAX 63
/* A claim further ahead than the first, or above the second, is no epoch that any cluster reached;
 * the second keeps any number of claims from wrapping it. */
#define SH_REGISTRY_EPOCH_AHEAD_MAX (UINT64_C(1) << 56)
#define SH_REGISTRY_EPOCH_MAX (UINT64_C(1) << 63)

#define SH_REGISTRY_EVENTS_MAX 256

struct sh_nid_set {
    uint64_t bits[(UINT16_MAX + 1) / 64]; /* by node ID */
};

static inline bool sh_nid_set_has(const struct sh_nid_set *set, shoal_nid nid)
{
    return set->bits[nid.v / 64] >> (nid.v % 64) & 1;
}

static inline void sh_nid_set_put(struct sh_nid_set *set, shoal_nid nid, bool is_in)
{
    uint64_t bit = UINT64_C(1) << (nid.v % 64);
    set->bits[nid.v / 64] = is_in ? set->bits[nid.v / 64] | bit : set->bits[nid.v / 64] & ~bit;
}

static inline size_t sh_nid_set_count(const struct sh_nid_set *set)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof set->bits / sizeof set->bits[0]; i++)
        count += (size_t)__builtin_popcountll(set->bits[i]);
    return count;
}

struct sh_registry {
    char cluster[SH_CLUSTER_NAME_MAX + 1];
    uint64_t failure_ns;
    struct sh_view view;
    uint64_t version; /* rises with each change; and so does the view's epoch */
    struct sh_arcs arcs;
    shoal_nid next_nid; /* where the search for a free ID begins */
    uint32_t nids;      /* IDs for peers that may be given out, from SH_PEER_NID_MIN on */
    uint64_t changes;
    uint64_t cluster_id;         /* 0: none yet */
    struct sh_nid_set forgotten; /* IDs whose last bearer was forgotten, and that nobody has */
    struct sh_nid_set reissued;  /* IDs that more than one node has borne */
    /* By ID - SH_PEER_NID_MIN, 0.9 MB: */
    uint64_t *heard_ns; /* when each node was heard last */
    uint64_t *spoke_ns; /* when it sent something here last; 0: not yet */
    /* registry_events.c: 30 KB. All that came after the epoch floor is there. */
    struct sh_registry_event *events;
    uint64_t events_count, events_floor, events_log;
    uint64_t digest, digest_epoch; /* of the view, when it had that epoch; 0: of none */
    uint64_t digest_changes;       /* and when that much had changed */
};

static inline bool sh_registry_is_credible(uint64_t claimed, uint64_t own)
{
    return claimed > own && claimed - own < SH_REGISTRY_EPOCH_AHEAD_MAX &&
           claimed < SH_REGISTRY_EPOCH_MAX;
}

/* Something changed: the epoch rises, and it is to be stored. */
void sh_registry_touch(struct sh_registry *registry);
/* The same, by what became of a node. */
void sh_registry_touch_node(struct sh_registry *registry, const struct sh_node *node);

/* The same, of a node that the view has no more. */
void sh_registry_touch_forgotten(struct sh_registry *registry, const struct sh_node *node);

/* The search for a free ID goes on so many IDs further. */
void sh_registry_nids_skip(struct sh_registry *registry, uint32_t count);

/* registry_events.c */
/* Nothing is known of what was before. */
void sh_registry_events_begin(struct sh_registry *registry);
/* This registry takes the place of another one, whose events it goes on with. */
void sh_registry_events_take(struct sh_registry *registry, const struct sh_registry *from);

#endif
