/* Zones whose owner has failed: how a superpeer finds them in its records, whichever superpeer has these, and what it answers to lookups meanwhile. */
#include "superpeer/superpeer_recover_test.h"

/* --- Superpeers ------------------------------------------------------------------------------- */

/* Another superpeer that has the same records goes on, wherever the first one was. */
static void another_superpeer_goes_on(void **state)
{
    (void)state;
    put(1, 2);
    put(2, 2);
    fails(peers[0]);
    nodes[0].err = nodes[1].err = SHOAL_EBUSY;
    (void)run_for(50 * MS);
    sh_superpeer_recoveries_close(&superpeer);
    assert_int_equal(sh_superpeer_recoveries_open(&superpeer), SHOAL_OK);
    nodes[0].err = nodes[1].err = SHOAL_OK;
    (void)run_for(50 * MS);
    assert_int_equal(nodes[0].recovers + nodes[1].recovers, 2);
    sh_superpeer_recoveries_close(&superpeer);
    assert_int_equal(sh_superpeer_recoveries_open(&superpeer), SHOAL_OK);
    unsigned prepares = nodes[0].prepares;
    (void)run_for(50 * MS);
    assert_int_equal(nodes[0].recovers + nodes[1].recovers, 4); /* each is told once more */
    assert_int_equal(nodes[0].prepares, prepares);
}

/* Another superpeer has the shard from now on, or this one again. */
static void shard_set(uint8_t owner)
{
    shard_owner_set(sh_arc_shard(peers[0]), owner);
}

/* While this superpeer may not answer for the shard it orders nothing, and once it may again it goes on, in the same view. */
static void a_shard_goes_and_comes(void **state)
{
    (void)state;
    shoal_nid owner;
    unsigned shard = sh_arc_shard(peers[0]);
    put(1, 2);
    nodes[0].err = nodes[1].err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(50 * MS);
    assert_true(nodes[0].prepares > 0);
    shard_set(OTHER);
    (void)run_for(50 * MS);
    assert_int_equal(sh_superpeer_ring_reads(&superpeer, shard, &owner), SHOAL_EROLE);
    assert_int_equal(owner.v, OTHER);
    unsigned prepares = nodes[0].prepares;
    nodes[0].err = nodes[1].err = SHOAL_OK;
    (void)run_for(S);
    assert_int_equal(nodes[0].prepares, prepares);
    assert_true(is_idle());
    assert_false(is_looked_at(shard));
    shard_set(OWN);
    (void)run_for(500 * MS);
    assert_int_equal(sh_superpeer_ring_reads(&superpeer, shard, &owner), SHOAL_OK);
    assert_true(is_with(1, &nodes[0]) || is_with(1, &nodes[1]));
}

/* The shard was another superpeer's for a while, which this one's looks at all records have not seen. */
static void a_shard_was_elsewhere(void **state)
{
    (void)state;
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_true(is_idle());
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    shard_set(OTHER);
    step(MS);
    put(1, 2);
    shard_set(OWN);
    for (unsigned i = 0; i < 10; i++)
        step(MS);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    (void)run_for(500 * MS);
    assert_true(is_with(1, &nodes[0]) || is_with(1, &nodes[1]));
}

/* This superpeer was cut off from the others, and may have missed that the shard is another's by now: it says nothing until it knows. */
static void a_lease_ends(void **state)
{
    (void)state;
    put(1, 2);
    (void)run_for(50 * MS);
    now_ns += 10 * FAILURE; /* no step of the ring, which would renew the lease */
    shoal_nid owner;
    assert_int_equal(sh_superpeer_ring_reads(&superpeer, sh_arc_shard(peers[0]), &owner),
                     SHOAL_EBUSY);
    fails(peers[0]);
    for (unsigned i = 0; i < 10; i++)
        (void)sh_superpeer_recoveries_step(&superpeer, now_ns);
    assert_int_equal(nodes[0].prepares + nodes[1].prepares, 0);
    assert_false(is_looked_at(sh_arc_shard(peers[0])));
    (void)run_for(500 * MS);
    assert_true(is_with(1, &nodes[0]) || is_with(1, &nodes[1]));
}

/* A zone whose record was ordered before its owner failed, and came behind the look at all records. */
static void a_late_record_is_found(void **state)
{
    (void)state;
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_true(is_idle());
    struct sh_zone zone = zone_at(1, 2);
    struct sh_metadata_update update = {
        .kind = SH_METADATA_ZONE_NEW, .from = zone.owner, .sequence = zone.life, .zone = zone};
    assert_int_equal(sh_superpeer_ring_order(&superpeer, sh_zone_shard(zone.id), &update),
                     SHOAL_OK);
    (void)run_for(100 * MS);
    assert_true(is_with(1, &nodes[0]) || is_with(1, &nodes[1]));
}

/* More zones than are brought back at a time. */
static void many_zones(void **state)
{
    (void)state;
    enum { ZONES = 700 };
    for (uint64_t i = 1; i <= ZONES; i++)
        put(i, 3);
    fails(peers[0]);
    unsigned done = 0;
    for (unsigned round = 0; done < ZONES && round < 100; round++) {
        (void)run_for(20 * MS);
        unsigned under_way = 0;
        for (uint64_t i = 1; i <= ZONES; i++)
            under_way += record_of(i).former.v != 0;
        assert_true(under_way <= 256);
        assert_int_equal(lookup(), SHOAL_EFAILED);
        for (uint64_t i = 1; i <= ZONES; i++) {
            if (record_of(i).former.v) {
                recovered(i);
                done++;
            }
        }
    }
    assert_int_equal(done, ZONES);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    assert_true(is_idle());
}

/* --- Lookups ---------------------------------------------------------------------------------- */

static void lookups_wait_for_zones(void **state)
{
    (void)state;
    put(1, 2);
    put(2, 2);
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_OK);
    fails(peers[0]);
    assert_int_equal(lookup(), SHOAL_EFAILED); /* the records have not been looked at yet */
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    recovered(1);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    recovered(2);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    /* Nothing is known of the records by a view that has come just now. */
    fails(nodes[3].nid);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    (void)run_for(10 * MS);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    known_of(peers[0])->traits.is_replicated = false;
    assert_int_equal(lookup(), SHOAL_EFAILED);
}

/* The zones of a node that has left for good are brought back as well. */
static void lookups_wait_for_zones_of_who_left(void **state)
{
    (void)state;
    put(1, 2);
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], LIFE(0)), SHOAL_OK);
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    recovered(1);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, recover_setup, recover_teardown)
    const struct CMUnitTest tests[] = {
        CASE(another_superpeer_goes_on), CASE(a_shard_goes_and_comes),
        CASE(a_shard_was_elsewhere),     CASE(a_lease_ends),
        CASE(a_late_record_is_found),    CASE(many_zones),
        CASE(lookups_wait_for_zones),    CASE(lookups_wait_for_zones_of_who_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
