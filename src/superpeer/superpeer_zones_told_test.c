/* Superpeers tell of zones beside their records: which nodes they refer to, and how many there are. */
#include "cluster/report.h"
#include "superpeer/superpeer_zones_test.h"

/* --- Nodes that are forgotten ------------------------------------------------------------------ */

static struct {
    struct sh_request request;
    unsigned done;
    uint32_t zones;
} refers;

static void refers_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    assert_int_equal(err, SHOAL_OK);
    refers.done++;
    (void)sh_get64(payload);
    (void)sh_get32(payload);
    (void)sh_get32(payload);
    refers.zones = sh_get32(payload);
    assert_true(sh_reader_done(payload));
}

/* How many zones refer to a peer, as another superpeer is told. */
static uint32_t zones_that_refer(shoal_nid nid)
{
    struct sh_out out;
    memset(&refers, 0, sizeof refers);
    refers.request = (struct sh_request){.done = refers_done, .timeout_ns = 10 * S};
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_REFERS, SH_REFERS_BYTES + 2,
                                    &refers.request, &out),
                     SHOAL_OK);
    sh_put64(&out.w, 0);
    sh_put16(&out.w, 1);
    sh_put64(&out.w, 0);
    sh_put16(&out.w, nid.v);
    sh_msg_end(other, &out);
    carry();
    assert_int_equal(refers.done, 1);
    return refers.zones;
}

static void zones_refer_to_nodes(void **state)
{
    (void)state;
    static const struct sh_metadata_update known = {.kind = SH_METADATA_KNOWN};
    struct sh_zone zone = zone_of(0, 1);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        (void)sh_metadata_apply(superpeer.ring->metadata, i, &known);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    assert_int_equal(zones_that_refer(peers[0]), 1);
    assert_int_equal(zones_that_refer(peers[1]), 1);
    zone.count = 1;
    zone.backups[0] = zone.backups[1];
    assert_int_equal(change(0, &zone), SHOAL_OK);
    assert_int_equal(zones_that_refer(peers[1]), 0);
    assert_int_equal(removal(0, zone.id, 2), SHOAL_OK);
    assert_int_equal(zones_that_refer(peers[0]), 0);
}

static void consensus_report(const struct sh_consensus *consensus, struct sh_report *report_out)
{
    (void)consensus;
    report_out->kind = SH_REPORT_MEMORY;
}

static void reported(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(sh_report_get(payload, request->arg), SHOAL_OK);
}

/* Each shard's owner counts its zones, and `shoal status` adds them up. */
static void zones_are_counted(void **state)
{
    (void)state;
    static struct sh_report report;
    struct sh_request request = {.done = reported, .arg = &report, .timeout_ns = 10 * S};
    struct sh_zone zone = zone_of(0, 1);
    struct sh_out out;
    for (; sh_zone_number(zone.id) < 4;
         zone.id++, zone.wanted = 3) /* all but the first are short */
        assert_int_equal(made(0, &zone), SHOAL_OK);
    zone.count = 0;
    zone.flags = SH_ZONE_LOST;
    assert_int_equal(made(0, &zone), SHOAL_OK);
    zone.id++;
    zone.flags = 0;
    sh_zone_former_set(&zone, peers[1], 5);
    zone_put(&zone);
    at_once.report = consensus_report;
    sh_superpeer_report_handler(&superpeer);
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_REPORT, 0, &request, &out),
                     SHOAL_OK);
    sh_msg_end(other, &out);
    settle();
    const struct sh_report_shard *shard = &report.shards[sh_zone_shard(zone.id)];
    assert_true(shard->owner == OWN && report.shard_count == SH_SHARDS);
    assert_true(shard->zones == 5 && shard->zones_short == 4 && shard->zones_lost == 1 &&
                shard->zones_recovering == 1);
}

/* A shard says nothing of what refers to nodes while a change of a zone is under way. */
static void a_change_under_way_is_waited_for(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    begin();
    sh_zones_new(zones, LIFE(0), &zone, &asked.op);
    struct sh_step own = sh_zones_step(zones);
    (void)own.run(own.arg);
    carry();
    assert_true(sh_superpeer_ring_is_deciding(&superpeer, sh_zone_shard(zone.id)));
    assert_int_equal(end(), SHOAL_OK);
    assert_false(sh_superpeer_ring_is_deciding(&superpeer, sh_zone_shard(zone.id)));
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, zones_setup, zones_teardown)
    const struct CMUnitTest tests[] = {
        CASE(zones_refer_to_nodes),
        CASE(zones_are_counted),
        CASE(a_change_under_way_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
