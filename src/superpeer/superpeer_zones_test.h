/* A superpeer that keeps records of zones in its journal, and a peer that asks for them (cluster/zones.h): what the
 * tests of both share. */
#ifndef SH_SUPERPEER_SUPERPEER_ZONES_TEST_H
#define SH_SUPERPEER_SUPERPEER_ZONES_TEST_H

#include "cluster/zones.h"
#include "superpeer/registry_int.h"
#include "superpeer/superpeer_rig_test.h"
#include "superpeer/superpeer_ring_int.h"

#define OTHER_DISK 1000
#define LIFE(peer) (10u + (peer)) /* of the rig's peers, see registry_fill */

static struct sh_disk *disk;
static bool is_disk_held;    /* its operations do not complete */
static struct sh_msg *asker; /* of the peer that asks */
static struct sh_directory *directory;
static struct sh_zones *zones;
static struct sh_consensus_ops at_once;

static void carry_out(struct sh_consensus *consensus, struct sh_bytes bytes, bool is_verdict)
{
    (void)consensus;
    (void)is_verdict;
    sh_shared_apply(&superpeer, bytes, false);
}

static void on_view(void *arg, const struct sh_view *view)
{
    (void)arg;
    (void)view;
}

static void ring_open(void)
{
    superpeer.env.disk = disk;
    superpeer.life = 0;
    superpeer.life_lsn = 0;
    assert_int_equal(sh_superpeer_ring_open(&superpeer), SHOAL_OK);
    sh_superpeer_zone_handlers(&superpeer);
}

static void step(uint64_t duration_ns)
{
    now_ns += duration_ns;
    agreed.led_ns = now_ns;
    sh_shared_lease_step(&superpeer, now_ns);
    if (superpeer.ring)
        (void)sh_superpeer_ring_step(&superpeer, now_ns);
    for (unsigned i = 0; zones && i < 4; i++) {
        struct sh_step own = sh_zones_step(zones);
        (void)own.run(own.arg);
        carry();
        if (superpeer.ring)
            (void)sh_superpeer_ring_step(&superpeer, now_ns);
        carry();
    }
}

static void settle(void)
{
    for (unsigned i = 0; i < 20; i++)
        step(HEARTBEAT);
}

/* The peer that asks from now on. Its view says that the superpeers are up. */
static void act_as(unsigned peer)
{
    sh_zones_destroy(zones);
    sh_directory_destroy(directory);
    sh_msg_destroy(asker);
    if (wires[2])
        wires[2]->ops->destroy(wires[2]);
    asker = msg_open(2, peers[peer].v);
    assert_int_equal(sh_msg_node_set(asker, (shoal_nid){OWN}, "loop:own"), SHOAL_OK);
    assert_int_equal(sh_msg_node_set(asker, (shoal_nid){OTHER}, "loop:other"), SHOAL_OK);
    struct sh_directory_config known = {
        .msg = asker, .clock = superpeer.env.clock, .cache_ranges_max = 8, .is_client = true};
    assert_int_equal(sh_directory_create(&known, &directory), SHOAL_OK);
    assert_int_equal(sh_directory_view_apply(directory, sh_registry_view(superpeer.registry)),
                     SHOAL_OK);
    struct sh_zones_config config = {
        .msg = asker, .directory = directory, .clock = superpeer.env.clock};
    assert_int_equal(sh_zones_create(&config, &zones), SHOAL_OK);
    for (unsigned i = 0; i < 64; i++)
        sh_directory_superpeer_set(directory, (shoal_nid){(uint16_t)(64 + i)}, (shoal_nid){OWN});
}

static int zones_setup(void **state)
{
    (void)setup(state);
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    at_once = ops;
    at_once.propose = carry_out;
    agreed.base.ops = &at_once;
    superpeer.on_view = on_view;
    asker = NULL;
    directory = NULL;
    zones = NULL;
    wires[2] = NULL;
    memset(&steps[4], 0, 2 * sizeof steps[4]);
    lead();
    ring_open();
    assert_int_equal(sh_superpeer_services_open(&superpeer), SHOAL_OK);
    assert_int_equal(sh_superpeer_forget_open(&superpeer), SHOAL_OK);
    act_as(0);
    settle();
    return 0;
}

static int zones_teardown(void **state)
{
    is_disk_held = false;
    sh_zones_destroy(zones);
    sh_directory_destroy(directory);
    sh_msg_destroy(asker);
    wires[2]->ops->destroy(wires[2]);
    sh_superpeer_ring_close(&superpeer);
    sh_superpeer_forget_close(&superpeer);
    sh_superpeer_services_close(&superpeer);
    disk->ops->destroy(disk);
    superpeer.env.disk = NULL;
    return teardown(state);
}

/* --- Asking ---------------------------------------------------------------------------------- */

static struct {
    struct sh_zone_op op;
    unsigned done;
    enum shoal_err err;
    bool is_answered;
    struct sh_zone_answer answer;
} asked;

static void asked_done(struct sh_zone_op *op, enum shoal_err err,
                       const struct sh_zone_answer *answer)
{
    assert_ptr_equal(op, &asked.op);
    asked.done++;
    asked.err = err;
    asked.is_answered = answer;
    if (answer)
        asked.answer = *answer;
}

static void begin(void)
{
    memset(&asked, 0, sizeof asked);
    asked.op = (struct sh_zone_op){.done = asked_done, .arg = NULL};
}

/* Lets time pass until there is an answer. */
static enum shoal_err end(void)
{
    assert_int_equal(asked.done, 0); /* never from the call itself */
    for (unsigned i = 0; i < 2000 && !asked.done; i++)
        step(HEARTBEAT / 10);
    assert_int_equal(asked.done, 1);
    return asked.err;
}

static inline enum shoal_err made(unsigned peer, const struct sh_zone *zone)
{
    begin();
    sh_zones_new(zones, LIFE(peer), zone, &asked.op);
    return end();
}

static inline enum shoal_err change(unsigned peer, const struct sh_zone *zone)
{
    begin();
    sh_zones_change(zones, LIFE(peer), zone, &asked.op);
    return end();
}

static inline enum shoal_err removal(unsigned peer, uint64_t id, uint32_t version)
{
    begin();
    sh_zones_remove(zones, LIFE(peer), id, version, &asked.op);
    return end();
}

static inline enum shoal_err get(uint64_t id)
{
    begin();
    sh_zones_get(zones, id, &asked.op);
    return end();
}

static struct sh_zone zone_of(unsigned peer, uint64_t number)
{
    return (struct sh_zone){.id = sh_zone_id(peers[peer], number),
                            .owner = peers[peer],
                            .life = LIFE(peer),
                            .incarnation = 1,
                            .version = 1,
                            .wanted = 2,
                            .count = 2,
                            .backups = {{peers[1], 7}, {peers[0], 8}}};
}

/* Makes a zone as the state has it, whatever superpeers would say. */
static inline void zone_put(const struct sh_zone *zone)
{
    struct sh_metadata_update update = {
        .kind = SH_METADATA_ZONE_NEW, .from = zone->owner, .sequence = zone->life, .zone = *zone};
    assert_int_equal(
        sh_metadata_apply(superpeer.ring->metadata, sh_zone_shard(zone->id), &update).err,
        SHOAL_OK);
}

static inline void zone_change(struct sh_zone *zone)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_ZONE_CHANGE,
                                        .condition = SH_ZONE_BY_OTHER,
                                        .from = zone->owner,
                                        .sequence = zone->life,
                                        .zone = *zone};
    assert_int_equal(
        sh_metadata_apply(superpeer.ring->metadata, sh_zone_shard(zone->id), &update).err,
        SHOAL_OK);
    zone->version++;
}

#endif
