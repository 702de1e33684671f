/* A superpeer that has zones of failed owners brought back, and nodes that keep replicas, which say what the test wants: what the tests of both
 * share. */
#ifndef SH_SUPERPEER_SUPERPEER_RECOVER_TEST_H
#define SH_SUPERPEER_SUPERPEER_RECOVER_TEST_H

#include "superpeer/superpeer_zones_test.h"

#include "ring/arcs.h"

#define NODES 4
#define WHOLE SH_PREPARED_WHOLE
#define DISK(node) (100u + (node))

/* Those that keep replicas: the rig's second peer, and further ones. */
static struct node {
    shoal_nid nid;
    struct sh_msg *msg;
    /* What it says to PREPARE. */
    enum shoal_err err;
    uint64_t end, disk;
    uint8_t flags;
    size_t size; /* of its answer */
    enum shoal_err recover_err;
    struct sh_restore_progress progress; /* that it answers to RECOVER */
    size_t recover_size;                 /* of that answer */
    bool is_silent;                      /* does not answer RECOVER */
    unsigned prepares, recovers;
    uint64_t made_lives[8]; /* that PREPARE named last, by the zone's number */
    uint64_t zone, epoch;   /* of the last RECOVER */
} nodes[NODES];

static inline void on_prepare(void *arg, struct sh_msg_in *in)
{
    struct node *node = arg;
    struct sh_out out;
    uint8_t bytes[SH_PREPARED_BYTES + 8] = {0};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    uint64_t number = sh_zone_number(sh_get64(&in->payload));
    node->made_lives[number % 8] = sh_get64(&in->payload);
    assert_true(number && sh_reader_done(&in->payload));
    node->prepares++;
    if (node->err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, node->err, NULL);
        return;
    }
    sh_put64(&w, node->end);
    sh_put64(&w, node->disk);
    sh_put8(&w, node->flags);
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, node->size, &out), SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(bytes, node->size));
    sh_msg_end(in->msg, &out);
}

static inline void on_recover(void *arg, struct sh_msg_in *in)
{
    struct node *node = arg;
    node->zone = sh_get64(&in->payload);
    node->epoch = sh_get64(&in->payload);
    assert_true(sh_reader_done(&in->payload));
    node->recovers++;
    if (node->is_silent)
        return;
    if (node->recover_err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, node->recover_err, NULL);
        return;
    }
    struct sh_out out;
    uint8_t bytes[SH_RECOVER_ANSWER_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_restore_progress_put(&w, &node->progress);
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, node->recover_size, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(bytes, node->recover_size));
    sh_msg_end(in->msg, &out);
}

static inline void node_open(unsigned i)
{
    struct node *node = &nodes[i];
    char address[16];
    (void)snprintf(address, sizeof address, "loop:peer%u", i + 1);
    *node = (struct node){.nid = peers[1],
                          .end = 10,
                          .disk = DISK(i),
                          .flags = WHOLE,
                          .size = SH_PREPARED_BYTES,
                          .recover_size = SH_RECOVER_ANSWER_BYTES};
    if (i)
        assert_int_equal(sh_registry_join(superpeer.registry, now_ns, sh_bytes_text(address),
                                          LIFE(1 + i), SHOAL_NID_NONE, NULL, &node->nid),
                         SHOAL_OK);
    node->msg = msg_open(3 + i, node->nid.v);
    sh_msg_handler_set(node->msg, SH_CLUSTER_PREPARE, SH_MSG_INLINE, on_prepare, node);
    sh_msg_handler_set(node->msg, SH_CLUSTER_RECOVER, SH_MSG_INLINE, on_recover, node);
    assert_int_equal(sh_msg_node_set(superpeer.msg, node->nid, address), SHOAL_OK);
}

static inline struct sh_node *known_of(shoal_nid nid)
{
    return sh_view_find(&superpeer.registry->view, nid);
}

static inline void shard_known_set(unsigned shard, bool is_known)
{
    struct sh_metadata_update update = {.kind = is_known ? SH_METADATA_KNOWN : SH_METADATA_RESTORED,
                                        .sequence = 99};
    assert_int_equal(sh_metadata_apply(superpeer.ring->metadata, shard, &update).err, SHOAL_OK);
}

static inline void known_set(bool is_known)
{
    shard_known_set(sh_arc_shard(peers[0]), is_known);
}

/* A superpeer has a shard from now on; 0: none. */
static inline void shard_owner_set(unsigned shard, uint8_t owner)
{
    struct sh_arcs *arcs = (struct sh_arcs *)(uintptr_t)sh_registry_arcs(superpeer.registry);
    arcs->shards[shard].owner = owner;
    arcs->shards[shard].version++;
    arcs->shards[shard].replicas |= owner ? UINT64_C(1) << owner : 0;
}

static inline int recover_setup(void **state)
{
    (void)zones_setup(state);
    for (unsigned i = 0; i < NODES; i++)
        node_open(i);
    known_of(peers[0])->traits.is_replicated = true;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        shard_known_set(i, true);
    assert_int_equal(sh_superpeer_recoveries_open(&superpeer), SHOAL_OK);
    assert_int_equal(sh_superpeer_former_open(&superpeer), SHOAL_OK);
    return 0;
}

static inline int recover_teardown(void **state)
{
    sh_superpeer_former_close(&superpeer);
    sh_superpeer_recoveries_close(&superpeer);
    for (unsigned i = 0; i < NODES; i++) {
        sh_msg_destroy(nodes[i].msg);
        wires[3 + i]->ops->destroy(wires[3 + i]);
        wires[3 + i] = NULL;
    }
    memset(&steps[6], 0, 2 * NODES * sizeof steps[0]);
    return zones_teardown(state);
}

/* --- What happens ---------------------------------------------------------------------------- */

/* Lets time pass by steps of 5 ms; returns in how many of them there was something to be done. */
static inline unsigned run_for(uint64_t duration_ns)
{
    unsigned busy = 0;
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns;) {
        step(5 * MS);
        busy += sh_superpeer_recoveries_due_ns(&superpeer, now_ns) <= now_ns;
        /* Nothing waits by turning. */
        unsigned steps_left = 12;
        do {
            (void)sh_superpeer_recoveries_step(&superpeer, now_ns);
            (void)sh_superpeer_former_step(&superpeer, now_ns);
            carry();
            assert_int_not_equal(steps_left--, 0);
        } while (sh_superpeer_recoveries_due_ns(&superpeer, now_ns) <= now_ns);
    }
    return busy;
}

static inline bool is_idle(void)
{
    return sh_superpeer_recoveries_due_ns(&superpeer, now_ns) == SH_NEVER && !run_for(S);
}

static inline struct sh_zone record_of(uint64_t number)
{
    struct sh_zone zone;
    assert_true(sh_metadata_zone(superpeer.ring->metadata, sh_zone_id(peers[0], number), &zone));
    return zone;
}

/* The first peer's zone, with replicas at so many nodes. */
static inline struct sh_zone zone_at(uint64_t number, unsigned count)
{
    struct sh_zone zone = zone_of(0, number);
    zone.wanted = zone.count = (uint8_t)count;
    for (unsigned i = 0; i < count; i++)
        zone.backups[i] = (struct sh_zone_backup){nodes[i].nid, DISK(i)};
    return zone;
}

static inline void put(uint64_t number, unsigned count)
{
    struct sh_zone zone = zone_at(number, count);
    zone_put(&zone);
}

static inline void fails(shoal_nid nid)
{
    sh_registry_fail(superpeer.registry, nid, "a test");
}

/* The node is up again; as another process: what was in its memory is gone. */
static inline void back(struct node *node, bool is_other)
{
    struct sh_node *known = known_of(node->nid);
    if (is_other) {
        known->instance += 100;
        node->flags = 0;
    }
    known->state = SH_NODE_UP;
    sh_registry_touch_node(superpeer.registry, known);
    assert_int_equal(known_of(node->nid)->state, SH_NODE_UP);
}

static inline void leave(struct node *node)
{
    assert_int_equal(
        sh_registry_leave(superpeer.registry, node->nid, known_of(node->nid)->instance), SHOAL_OK);
}

static inline void disk_lost(const struct node *node)
{
    assert_int_equal(sh_registry_peer_lost(superpeer.registry, node->nid), SHOAL_OK);
}

/* The zone's owner has it all. */
static inline void recovered(uint64_t number)
{
    struct sh_zone zone = record_of(number);
    sh_zone_former_set(&zone, SHOAL_NID_NONE, 0);
    zone_change(&zone);
}

/* The record names that node as the next owner, for the first peer. */
static inline bool is_with(uint64_t number, const struct node *node)
{
    struct sh_zone zone = record_of(number);
    return zone.owner.v == node->nid.v && zone.life == known_of(node->nid)->instance &&
           zone.former.v == peers[0].v;
}

static inline enum shoal_err lookup(void)
{
    struct sh_range range;
    return sh_superpeer_lookup(&superpeer, shoal_cid_make(peers[0], 5), &range);
}

/* Whether the records of a shard have been looked at, in the view as it is. */
static inline bool is_looked_at(unsigned shard)
{
    uint64_t number;
    const struct sh_looked *looked = sh_superpeer_recoveries_looked(&superpeer, &number);
    return looked && looked->shards >> shard & 1;
}

#endif
