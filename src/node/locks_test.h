/* What the tests of locks share: a node that serves chunks and locks, and two that ask it, a node
 * and a client, over wires in memory, in one thread and in a time that the test decides. */
#ifndef SH_NODE_LOCKS_TEST_H
#define SH_NODE_LOCKS_TEST_H

#include "base/log.h"
#include "msg/memwire.h"
#include "node/chunks.h"
#include "node/locks.h"
#include "store/leases.h"

#define RIG_NID 5
#define RIG_HELDS_MAX 256
#define RIG_PEER_NID 6
#define RIG_SILENCE_NS (UINT64_C(1) << 60) /* of no test */
enum { RIG_PEER, RIG_CLIENT, RIG_ASKERS };

struct rig_end {
    struct sh_memwire memwire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
};

struct rig {
    struct rig_end node, askers[RIG_ASKERS];
    bool is_cut[RIG_ASKERS];
    size_t carried[RIG_ASKERS][2]; /* to the node, from it */
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_step step;
};

static inline void rig_wake(void *arg)
{
    (void)arg;
}

static inline void rig_event(void *arg, const struct sh_msg_event *event)
{
    struct rig *rig = arg;
    if (rig->locks)
        sh_locks_link_event(rig->locks, event);
}

static inline void rig_end_open(struct rig *rig, struct rig_end *end, uint16_t nid)
{
    sh_memwire_init(&end->memwire);
    end->memwire.random = 77 + nid;
    end->memwire.now_ns = 1000;
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "locks",
        .connections_max = 8,
        .requests_max = 1024,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = RIG_SILENCE_NS / 4,
        .connect_timeout_ns = RIG_SILENCE_NS / 4,
        .silence_ns = RIG_SILENCE_NS,
        .env = sh_memwire_env(&end->memwire),
        .on_event = end == &rig->node ? rig_event : NULL,
        .wake_transport = rig_wake,
        .wake_handlers = rig_wake,
        .arg = rig,
    };
    enum shoal_err err = sh_msg_create(&config, &end->msg);
    SH_ASSERT(err == SHOAL_OK);
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
}

static inline void rig_end_close(struct rig_end *end)
{
    sh_msg_destroy(end->msg);
    sh_memwire_free(&end->memwire);
}

/* One round; what an asker whose link was cut says does not arrive. */
static inline unsigned rig_round(struct rig *rig)
{
    unsigned done = rig->node.transport.run(rig->node.msg);
    done += rig->node.handlers.run(rig->node.handlers.arg);
    done += rig->step.run(rig->step.arg);
    for (unsigned i = 0; i < RIG_ASKERS; i++) {
        struct rig_end *asker = &rig->askers[i];
        done += asker->transport.run(asker->msg);
        if (rig->is_cut[i])
            continue;
        done +=
            sh_memwire_carry(&asker->memwire, 0, &rig->carried[i][0], &rig->node.memwire, i) > 0;
        done +=
            sh_memwire_carry(&rig->node.memwire, i, &rig->carried[i][1], &asker->memwire, 0) > 0;
    }
    return done;
}

static inline void rig_settle(struct rig *rig)
{
    while (rig_round(rig) > 0)
        continue;
}

static inline void rig_advance(struct rig *rig, uint64_t ns)
{
    rig->node.memwire.now_ns += ns;
    for (unsigned i = 0; i < RIG_ASKERS; i++)
        rig->askers[i].memwire.now_ns += ns;
    rig_settle(rig);
}

/* Opens the asker's connection by a word that nobody minds. */
static inline void rig_meet(struct rig *rig, unsigned who)
{
    struct rig_end *asker = &rig->askers[who];
    struct sh_out out;
    enum shoal_err err = sh_msg_node_set(asker->msg, (shoal_nid){RIG_NID}, "node:1");
    SH_ASSERT(err == SHOAL_OK);
    err = sh_msg_begin(asker->msg, (shoal_nid){RIG_NID}, SH_NODE_STOP, 0, &out);
    SH_ASSERT(err == SHOAL_OK);
    sh_msg_end(asker->msg, &out);
    asker->transport.run(asker->msg);
    sh_link link = sh_memwire_accept(&rig->node.memwire);
    SH_ASSERT(link == who);
    rig_settle(rig);
}

/* backed: of a node whose chunks are backed up, but for the store. */
static inline void rig_open_backed(struct rig *rig, uint32_t waiters_max,
                                   struct sh_backup_config backed)
{
    const char *bad;
    size_t bad_size;
    *rig = (struct rig){0};
    enum shoal_err err = sh_log_levels_set("error", &bad, &bad_size);
    SH_ASSERT(err == SHOAL_OK);
    struct sh_store_config stored = {.bytes_max = 4 << 20, .chunk_bytes_max = 512 << 10};
    rig_end_open(rig, &rig->node, RIG_NID);
    rig_end_open(rig, &rig->askers[RIG_PEER], RIG_PEER_NID);
    rig_end_open(rig, &rig->askers[RIG_CLIENT], 0);
    err = sh_store_create(&stored, &rig->store);
    SH_ASSERT(err == SHOAL_OK);
    backed.store = rig->store;
    err = sh_backup_create(&backed, &rig->backup);
    SH_ASSERT(err == SHOAL_OK);
    struct sh_chunks_config served = {.msg = rig->node.msg,
                                      .store = rig->store,
                                      .backup = rig->backup,
                                      .chunk_bytes_max = stored.chunk_bytes_max,
                                      .level = SH_LEVEL_REPLICATED,
                                      .helds_max = RIG_HELDS_MAX,
                                      .clock = sh_memwire_env(&rig->node.memwire).clock};
    err = sh_chunks_create(&served, &rig->chunks);
    SH_ASSERT(err == SHOAL_OK);
    struct sh_locks_config config = {.msg = rig->node.msg,
                                     .store = rig->store,
                                     .backup = rig->backup,
                                     .helds = sh_chunks_helds(rig->chunks),
                                     .holdings = sh_chunks_holdings(rig->chunks),
                                     .clock = sh_memwire_env(&rig->node.memwire).clock,
                                     .locks_max = 1000,
                                     .waiters_max = waiters_max,
                                     .wake = rig_wake};
    err = sh_locks_create(&config, &rig->locks);
    SH_ASSERT(err == SHOAL_OK);
    sh_chunks_remover_set(rig->chunks, sh_locks_remove, rig->locks);
    rig->step = sh_locks_step(rig->locks);
    for (unsigned i = 0; i < RIG_ASKERS; i++)
        rig_meet(rig, i);
}

static inline void rig_open(struct rig *rig, uint32_t waiters_max)
{
    rig_open_backed(rig, waiters_max, (struct sh_backup_config){0});
}

static inline void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < RIG_ASKERS; i++)
        rig_end_close(&rig->askers[i]);
    rig_end_close(&rig->node);
    sh_locks_destroy(rig->locks);
    sh_chunks_destroy(rig->chunks);
    sh_backup_destroy(rig->backup);
    sh_store_destroy(rig->store);
}

static inline void rig_cut(struct rig *rig, unsigned who)
{
    rig->is_cut[who] = true;
    sh_memwire_cut(&rig->node.memwire, who);
    rig_settle(rig);
}

#endif
