/* The inside of a superpeer, shared by superpeer*.c. */
#ifndef SH_CLUSTER_SUPERPEER_INT_H
#define SH_CLUSTER_SUPERPEER_INT_H

#include "cluster/registry.h"
#include "cluster/superpeer.h"

#define SH_PROBES_MAX 32 /* lost connections looked into at once; silence tells of the others */
#define SH_SHARED_MIN 3  /* fewer superpeers can't lose one and still have a majority */
#define SH_SAVE_RETRY_NS UINT64_C(1000000000)

/* An answer to a join or leave that waits until it is stored. */
struct sh_promise {
    struct sh_promise *next;
    uint64_t changes; /* how far the registry must have been stored */
    struct sh_reply_to reply_to;
    sh_msg_type type;
    shoal_nid nid; /* JOIN: the ID that was given */
};

enum sh_saving { SH_SAVE_NONE, SH_SAVE_WRITE, SH_SAVE_SYNC };

/* The files registry.0 and registry.1, written in turn: whatever happens to one write, the other
 * file holds the state before it. */
struct sh_store_files {
    struct sh_disk *disk; /* NULL: nothing is stored */
    int file[2];
    bool is_open[2];
    uint64_t sequence; /* of the last write */
    enum sh_saving saving;
    uint64_t saving_changes; /* what the write in flight holds */
    uint64_t saved_changes;
    uint64_t retry_ns;  /* after a failure: not before */
    enum shoal_err err; /* of the last write */
    bool is_ended;      /* a write has just ended, well or not */
    struct sh_disk_op op;
    uint8_t *image;
    size_t image_room;
};

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

struct sh_superpeer {
    struct sh_msg *msg;
    struct sh_env env;
    uint16_t count, index;
    uint64_t heartbeat_ns, failure_ns;
    void (*on_view)(void *arg, const struct sh_view *view);
    void *arg;
    struct sh_registry *registry;
    struct sh_shared *shared; /* NULL: the registry is this superpeer's own */
    struct sh_view announced; /* what msg and on_view were told last */
    uint64_t tick_ns;         /* when time has to be let pass next, at the latest */
    struct sh_promise *promises, **promises_end;
    struct sh_store_files files;
    struct sh_sibling siblings[SH_SUPERPEERS_MAX];
    struct sh_probe probes[SH_PROBES_MAX];
};

/* superpeer_disk.c */
SHOAL_NODISCARD enum shoal_err sh_superpeer_files_open(struct sh_superpeer *superpeer,
                                                       uint64_t now_ns);
void sh_superpeer_files_close(struct sh_superpeer *superpeer);
/* Carries storing on; returns how much was done. */
unsigned sh_superpeer_files_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_files_due_ns(const struct sh_superpeer *superpeer);

/* superpeer_shared.c: a registry that three superpeers or more share. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_shared_open(struct sh_superpeer *superpeer,
                                                        const struct sh_superpeer_config *config,
                                                        uint64_t now_ns);
void sh_superpeer_shared_close(struct sh_superpeer *superpeer);
unsigned sh_superpeer_shared_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_shared_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns);
/* Whether a majority was heard lately, so that what is known here is not long out of date. */
bool sh_superpeer_shared_is_current(const struct sh_superpeer *superpeer);
/* The request in is answered once the others agree. */
void sh_superpeer_shared_join(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                              struct sh_bytes address, uint64_t instance, shoal_nid previous);
void sh_superpeer_shared_leave(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                               shoal_nid nid, uint64_t instance);
void sh_superpeer_shared_heard(struct sh_superpeer *superpeer, shoal_nid nid);
void sh_superpeer_shared_fail(struct sh_superpeer *superpeer, shoal_nid nid);
/* msg forgets failed nodes; but failed superpeers must be heard to be up again. */
void sh_superpeer_shared_connect(struct sh_superpeer *superpeer);

/* superpeer.c: answers a join of that node. */
void sh_superpeer_join_answer(struct sh_superpeer *superpeer, struct sh_reply_to to, shoal_nid nid);

/* superpeer_peers.c: what a superpeer asks other nodes. */
void sh_superpeer_sync_handler(void *arg, struct sh_msg_in *in);
unsigned sh_superpeer_siblings_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_siblings_due_ns(const struct sh_superpeer *superpeer);
void sh_superpeer_probe(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns);
unsigned sh_superpeer_probes_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_probes_due_ns(const struct sh_superpeer *superpeer);
void sh_superpeer_requests_cancel(struct sh_superpeer *superpeer);

#endif
