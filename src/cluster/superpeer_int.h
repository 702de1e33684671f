/* The inside of a superpeer, shared by superpeer*.c. */
#ifndef SH_CLUSTER_SUPERPEER_INT_H
#define SH_CLUSTER_SUPERPEER_INT_H

#include "cluster/registry.h"
#include "cluster/superpeer.h"
#include "ranges/ranges.h"

#define SH_PROBES_MAX 32 /* lost connections looked into at once; silence tells of the others */
/* One other superpeer. */
struct sh_sibling {
    struct sh_superpeer *superpeer;
    struct sh_request request;
    bool is_asking;
    uint64_t due_ns;
    enum shoal_err logged; /* the last trouble that was logged */
};

struct sh_shared; /* superpeer_shared.c */

enum sh_probe_state { SH_PROBE_FREE, SH_PROBE_WANTED, SH_PROBE_ASKING };

struct sh_probe {
    struct sh_superpeer *superpeer;
    struct sh_request request;
    enum sh_probe_state state;
    shoal_nid nid;
    uint64_t due_ns;
};

struct sh_superpeer_overlay; /* superpeer_overlay_int.h */

struct sh_superpeer {
    struct sh_msg *msg;
    struct sh_env env;
    uint16_t count, index;
    uint64_t heartbeat_ns, failure_ns;
    void (*on_view)(void *arg, const struct sh_view *view);
    void *arg;
    struct sh_registry *registry;
    struct sh_shared *shared;          /* NULL: the registry is this superpeer's own */
    struct sh_superpeer_overlay *ring; /* NULL: with ZooKeeper, until it has an ID */
    struct sh_view announced;          /* what msg and on_view were told last */
    uint64_t tick_ns;                  /* when time has to be let pass next, at the latest */
    struct sh_sibling siblings[SH_SUPERPEERS_MAX];
    struct sh_probe probes[SH_PROBES_MAX];
};

/* superpeer_shared.c: a registry that superpeers with a disk share. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_shared_open(struct sh_superpeer *superpeer,
                                                        const struct sh_superpeer_config *config,
                                                        uint64_t now_ns);
void sh_superpeer_shared_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_shared_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_shared_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns);
/* Whether what is known here is not long out of date: a majority was heard lately. */
bool sh_superpeer_shared_is_current(const struct sh_superpeer *superpeer);
/* msg forgets failed nodes; but failed superpeers must be heard to be up again. */
void sh_superpeer_shared_connect(struct sh_superpeer *superpeer);

/* superpeer_commands.c: the request in is answered once the others agree. */
void sh_superpeer_shared_join(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                              struct sh_bytes address, uint64_t instance, shoal_nid previous);
void sh_superpeer_shared_leave(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                               shoal_nid nid, uint64_t instance);

/* superpeer_overlay.c: the part in the ring, of which nothing is answered before open, which needs
 * an ID; again after close. ENOMEM. */
void sh_superpeer_ring_handlers(struct sh_superpeer *superpeer);
SHOAL_NODISCARD enum shoal_err sh_superpeer_ring_open(struct sh_superpeer *superpeer);
void sh_superpeer_ring_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_ring_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_ring_due_ns(const struct sh_superpeer *superpeer);
/* The shared registry has heard of this process's beginning. */
void sh_superpeer_ring_joined(struct sh_superpeer *superpeer);

/* superpeer_moves.c: the range that holds a chunk and its owner, or of superpeers that share their
 * registry, with `first` and `last` the chunk alone, the superpeer to be asked. ENOCHUNK, EFAILED,
 * EROLE, EBUSY. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_lookup(struct sh_superpeer *superpeer, shoal_cid cid,
                                                   struct sh_range *range_out);

/* superpeer_watch.c */
void sh_superpeer_shared_heard(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t epoch);
void sh_superpeer_shared_fail(struct sh_superpeer *superpeer, shoal_nid nid);

/* superpeer.c: answers a join of that node, or of that superpeer. */
void sh_superpeer_join_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                              sh_msg_type type, shoal_nid nid);

/* superpeer_peers.c: what a superpeer asks other nodes. */
void sh_superpeer_sync_handler(void *arg, struct sh_msg_in *in);
unsigned sh_superpeer_siblings_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_siblings_due_ns(const struct sh_superpeer *superpeer);
void sh_superpeer_probe(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns);
unsigned sh_superpeer_probes_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_probes_due_ns(const struct sh_superpeer *superpeer);
void sh_superpeer_requests_cancel(struct sh_superpeer *superpeer);

#endif
