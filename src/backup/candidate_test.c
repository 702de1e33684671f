/* The nodes of a view as placement sees them. */
#include <stdio.h>
#include <string.h>

#include "backup/candidates_test.h"

static struct sh_view view;

static int view_make(void **state)
{
    (void)state;
    static const struct sh_node nodes[] = {
        {.nid = {1}, .role = SH_ROLE_SUPERPEER, .address = "s:1"},
        {.nid = {64},
         .role = SH_ROLE_PEER,
         .address = "a:1",
         .traits = {.keeps_replicas = true, .domains = {"m1", "r1", ""}}},
        {.nid = {65},
         .role = SH_ROLE_PEER,
         .state = SH_NODE_FAILED,
         .address = "b:1",
         .traits = {.keeps_replicas = true, .domains = {"m2", "r1", "s1"}}},
        {.nid = {70}, .role = SH_ROLE_PEER, .address = "c:1", .traits = {.domains = {"r1", "m1"}}},
        {.nid = {99},
         .role = SH_ROLE_PEER,
         .state = SH_NODE_LEFT,
         .address = "d:1",
         .traits = {.keeps_replicas = true}},
    };
    for (size_t i = sizeof nodes / sizeof nodes[0]; i-- > 0;)
        if (sh_view_put(&view, &nodes[i]))
            return 1;
    return 0;
}

static int view_unmake(void **state)
{
    (void)state;
    sh_view_destroy(&view);
    return 0;
}

/* All peers that are not forgotten, with what the view says, by ascending ID; no superpeer. */
static void peers_are_candidates(void **state)
{
    (void)state;
    static const struct {
        uint16_t nid;
        bool is_up, can_backup;
    } expected[] = {{64, true, true}, {65, false, true}, {70, true, false}, {99, false, true}};
    struct sh_candidate nodes[5];
    memset(nodes, 0xA5, sizeof nodes);
    assert_int_equal(sh_candidates_from_view(&view, nodes, 5), 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(nodes[i].nid.v, expected[i].nid);
        assert_int_equal(nodes[i].is_up, expected[i].is_up);
        assert_int_equal(nodes[i].can_backup, expected[i].can_backup);
        assert_int_equal(nodes[i].disk_bytes + nodes[i].disk_free_bytes, 0);
        assert_int_equal(nodes[i].zones + nodes[i].zones_max + nodes[i].firsts, 0);
    }
    assert_int_equal(nodes[4].nid.v, 0xA5A5);
}

/* Equal names are one domain, and only those of one kind; what is not named is like no other. */
static void names_make_domains(void **state)
{
    (void)state;
    struct sh_candidate nodes[5];
    (void)sh_candidates_from_view(&view, nodes, 5);
    assert_int_equal(sh_candidate_shared(&nodes[0], &nodes[1]), SH_DOMAIN_BIT(SH_DOMAIN_RACK));
    assert_int_equal(sh_candidate_shared(&nodes[0], &nodes[2]), 0);
    assert_int_equal(sh_candidate_shared(&nodes[3], &nodes[3]), 0);
    assert_int_equal(sh_candidate_shared(&nodes[1], &nodes[1]), SH_DOMAIN_ALL);
    assert_int_equal(nodes[0].domains[SH_DOMAIN_SWITCH], 0);
}

/* The room is a bound; and a view without peers has none. */
static void the_room_bounds(void **state)
{
    (void)state;
    struct sh_candidate nodes[3] = {{.zones = 7}, {.zones = 7}, {.zones = 7}};
    assert_int_equal(sh_candidates_from_view(&view, nodes, 2), 2);
    assert_int_equal(nodes[1].nid.v, 65);
    assert_int_equal(nodes[2].zones, 7);
    const struct sh_view empty = {0};
    assert_int_equal(sh_candidates_from_view(&empty, nodes, 3), 0);
}

/* A cluster's names get different numbers, as far as hashes of 32 bits can, and the same ones in every view. */
static void many_names_are_told_apart(void **state)
{
    (void)state;
    enum { PEERS = 1000 };
    struct sh_view many = {.epoch = 1, .superpeers = 1};
    static struct sh_candidate nodes[PEERS], again[PEERS];
    for (unsigned i = 0; i < PEERS; i++) {
        struct sh_node node = {.nid = {(uint16_t)(64 + i)}, .role = SH_ROLE_PEER, .address = "p:1"};
        (void)snprintf(node.traits.domains[SH_DOMAIN_MACHINE], SH_DOMAIN_NAME_MAX, "host%u", i);
        (void)snprintf(node.traits.domains[SH_DOMAIN_RACK], SH_DOMAIN_NAME_MAX, "r%u", i % 20);
        assert_int_equal(sh_view_put(&many, &node), SHOAL_OK);
    }
    assert_int_equal(sh_candidates_from_view(&many, nodes, PEERS), PEERS);
    for (unsigned i = 0; i < PEERS; i++) {
        for (unsigned k = 0; k < i; k++) {
            unsigned same = i % 20 == k % 20 ? SH_DOMAIN_BIT(SH_DOMAIN_RACK) : 0;
            assert_int_equal(sh_candidate_shared(&nodes[i], &nodes[k]), same);
        }
    }
    sh_view_drop(&many, (shoal_nid){64});
    assert_int_equal(sh_candidates_from_view(&many, again, PEERS), PEERS - 1);
    assert_memory_equal(again, nodes + 1, (PEERS - 1) * sizeof again[0]);
    sh_view_destroy(&many);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, view_make, view_unmake)
    const struct CMUnitTest tests[] = {
        TEST(peers_are_candidates),
        TEST(names_make_domains),
        TEST(the_room_bounds),
        TEST(many_names_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
