/* Which backups a zone gets. */
#include <string.h>

#include "backup/candidates_test.h"
#include "backup/placement.h"

#define NODES 200
#define REPLICA (TEST_GIB / 2)

static struct sh_candidate nodes[NODES];
static uint64_t memory[NODES * (4 + 8)];
static struct sh_copysets sets;
static uint64_t random_state;

/* Three backups for node 64 among so many nodes. */
static struct sh_placement_request request_of(size_t count)
{
    return (struct sh_placement_request){.nodes = nodes,
                                         .count = count,
                                         .owner = {64},
                                         .wanted = 3,
                                         .flags = SH_PLACEMENT_DISJOINT,
                                         .domains = SH_DOMAIN_ALL,
                                         .replica_bytes = REPLICA,
                                         .reserve_percent = 5,
                                         .random = test_random(&random_state)};
}

static void sets_make(struct sh_placement_request *request)
{
    const struct sh_copysets_config config = {
        .seed = 7, .replicas = request->wanted, .domains = request->domains};
    assert_true(sh_copysets_bytes(&config, request->count) <= sizeof memory);
    sh_copysets_compute(&config, nodes, request->count, memory, &sets);
    request->copysets = &sets;
}

static struct sh_placement place(const struct sh_placement_request *request)
{
    struct sh_placement placement;
    sh_placement_choose(request, &placement);
    assert_int_equal(placement.count + placement.missing, request->wanted);
    return placement;
}

static bool has_backup(const struct sh_placement *placement, unsigned nid)
{
    for (size_t i = 0; i < placement->count; i++) {
        if (placement->backups[i].v == nid)
            return true;
    }
    return false;
}

static int setup(void **state)
{
    (void)state;
    random_state = 77;
    nodes_make(nodes, NODES);
    return 0;
}

static void test_all_there_are(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(4);
    struct sh_placement placement = place(&request);
    assert_int_equal(placement.missing, 0);
    assert_true(has_backup(&placement, 65) && has_backup(&placement, 66) &&
                has_backup(&placement, 67));
    request.owner.v = 500; /* not listed */
    request.wanted = 4;
    placement = place(&request);
    assert_int_equal(placement.missing, 0);
    assert_true(has_backup(&placement, 64));
}

static void test_too_few(void **state)
{
    (void)state;
    char text[200];
    struct sh_placement_request request = request_of(6);
    nodes[1].is_up = false;
    nodes[2].can_backup = false;
    nodes[3].disk_free_bytes = 5 * TEST_GIB + REPLICA - 1;
    struct sh_placement placement = place(&request);
    assert_int_equal(placement.count, 2);
    assert_int_equal(placement.missing, 1);
    assert_true(has_backup(&placement, 68) && has_backup(&placement, 69));
    assert_int_equal(placement.others, 3);
    sh_placement_explain(&placement, text, sizeof text);
    assert_string_equal(text, "2 of 3 backups: of 3 other nodes 1 are not up, 1 keep no backups, "
                              "1 have no room");
    sh_placement_explain(&placement, text, 10);
    assert_string_equal(text, "2 of 3 ba");
    assert_int_equal(sh_placement_possible(nodes, 6, (shoal_nid){64}), 3);
    nodes[3].disk_free_bytes++; /* exactly a replica beside the reserve */
    placement = place(&request);
    assert_int_equal(placement.missing, 0);
    nodes[3].zones = nodes[3].zones_max = 20;
    placement = place(&request);
    assert_int_equal(placement.missing, 1);
    assert_int_equal(placement.full, 1);
    assert_int_equal(sh_placement_possible(nodes, NODES, (shoal_nid){64}), SH_BACKUPS_MAX);
    request.count = 1;
    placement = place(&request);
    assert_int_equal(placement.missing, 3);
    assert_int_equal(sh_placement_possible(nodes, 1, (shoal_nid){64}), 0);
    nodes[0].disk_free_bytes = 0;
    request.count = 0;
    assert_int_equal(place(&request).missing, 3);
}

static void test_completed_when_nodes_join(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(2);
    struct sh_placement placement = place(&request);
    assert_int_equal(placement.count, 1);
    assert_int_equal(placement.backups[0].v, 65);
    for (size_t count = 3; count <= 4; count++) {
        shoal_nid kept[SH_BACKUPS_MAX];
        memcpy(kept, placement.backups, sizeof kept);
        request.kept = kept;
        request.kept_count = placement.count;
        request.count = count;
        placement = place(&request);
        assert_int_equal(placement.count, count - 1);
        for (size_t i = 0; i < placement.count; i++)
            assert_int_equal(placement.backups[i].v, 65 + i); /* in the order of their coming */
    }
    assert_int_equal(placement.missing, 0);
}

static void test_first_ones_are_disjoint(void **state)
{
    (void)state;
    shoal_nid firsts[3 * 19];
    for (unsigned with_sets = 0; with_sets < 2; with_sets++) {
        struct sh_placement_request request = request_of(20);
        size_t others = 19;
        if (with_sets) {
            sets_make(&request);
            others = 15; /* in sets that are complete, and not the owner's */
        }
        for (size_t zone = 0; zone < 3 * others; zone++) {
            sh_candidates_count_firsts(nodes, 20, firsts, zone);
            firsts[zone] = place(&request).backups[0];
        }
        sh_candidates_count_firsts(nodes, 20, firsts, 3 * others);
        size_t three_times = 0;
        for (size_t i = 0; i < 20; i++)
            three_times += nodes[i].firsts == 3;
        assert_int_equal(three_times, others);
        request.flags = 0; /* then it is chance */
        size_t most = 0;
        for (size_t zone = 0; zone < 3 * others; zone++)
            firsts[zone] = place(&request).backups[0];
        sh_candidates_count_firsts(nodes, 20, firsts, 3 * others);
        for (size_t i = 0; i < 20; i++)
            most = nodes[i].firsts > most ? nodes[i].firsts : most;
        assert_true(most > 3);
    }
}

static void test_racks_then_switches(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(13);
    for (size_t i = 0; i < 13; i++) {
        nodes[i].domains[SH_DOMAIN_RACK] = (uint32_t)(1 + i % 6);
        nodes[i].domains[SH_DOMAIN_SWITCH] = (uint32_t)(1 + i % 3);
    }
    for (size_t i = 0; i < 100; i++) {
        struct sh_placement placement = place(&request);
        assert_int_equal(placement.missing, 0);
        assert_int_equal(placement.shared, 0);
    }
    request.wanted = 4; /* more than there are switches */
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(place(&request).shared, SH_DOMAIN_BIT(SH_DOMAIN_SWITCH));
    request.domains = SH_DOMAIN_BIT(SH_DOMAIN_MACHINE);
    unsigned free = 0;
    for (size_t i = 0; i < 100; i++) {
        struct sh_placement placement = place(&request);
        assert_int_equal(placement.shared, 0); /* what does not count is not reported */
        free |= 1u << (placement.backups[0].v + placement.backups[1].v) % 6;
    }
    assert_int_equal(free, 0x3F);
}

static void test_two_racks(void **state)
{
    (void)state;
    char text[100];
    struct sh_placement_request request = request_of(9);
    for (size_t i = 0; i < 9; i++)
        nodes[i].domains[SH_DOMAIN_RACK] = i < 8 ? 1 : 2;
    for (unsigned with_sets = 0; with_sets < 2; with_sets++) {
        for (size_t i = 0; i < 50; i++) {
            struct sh_placement placement = place(&request);
            assert_true(has_backup(&placement, 72));
            assert_int_equal(placement.shared, SH_DOMAIN_BIT(SH_DOMAIN_RACK));
            sh_placement_explain(&placement, text, sizeof text);
            assert_string_equal(text, "3 of 3 backups: copies share a rack");
        }
        sets_make(&request);
    }
    request.copysets = NULL;
    nodes[8].disk_free_bytes = 0; /* sooner in one rack than not at all */
    assert_int_equal(place(&request).missing, 0);
}

static void test_owners_machine(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(8);
    for (size_t i = 0; i < 8; i++) {
        nodes[i].domains[SH_DOMAIN_MACHINE] = (uint32_t)(1 + i / 2);
        nodes[i].domains[SH_DOMAIN_RACK] = i < 6 ? 1 : 2;
    }
    for (size_t i = 0; i < 50; i++) {
        struct sh_placement placement = place(&request);
        assert_false(has_backup(&placement, 65));
        assert_int_equal(placement.shared, SH_DOMAIN_BIT(SH_DOMAIN_RACK));
    }
    request.wanted = 1; /* the only backup is not in the owner's rack */
    for (size_t i = 0; i < 50; i++) {
        struct sh_placement placement = place(&request);
        assert_true(placement.backups[0].v >= 70);
        assert_int_equal(placement.shared, 0);
    }
    request.count = 2;
    struct sh_placement placement = place(&request);
    assert_int_equal(placement.backups[0].v, 65);
    assert_int_equal(placement.shared,
                     SH_DOMAIN_BIT(SH_DOMAIN_MACHINE) | SH_DOMAIN_BIT(SH_DOMAIN_RACK));
}

static void test_replaced(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(6);
    const shoal_nid kept[] = {{67}, {300}, {66}}; /* 300 is not listed */
    request.kept = kept;
    request.kept_count = 2;
    nodes[3].firsts = 1;
    struct sh_placement placement = place(&request);
    assert_int_equal(placement.count, 3);
    assert_int_equal(placement.backups[0].v, 67);
    assert_int_equal(placement.backups[1].v, 300);
    assert_true(placement.backups[2].v > 64 && placement.backups[2].v != 67);
    request.kept_count = 3; /* nothing to do, but for who is first */
    placement = place(&request);
    assert_int_equal(placement.backups[0].v, 67);
    assert_int_equal(placement.backups[2].v, 66);
    request.first_is_gone = true;
    placement = place(&request);
    assert_int_equal(placement.backups[0].v, 66); /* first for no zone yet */
    assert_int_equal(placement.backups[1].v, 67);
    assert_int_equal(placement.backups[2].v, 300);
}

static bool is_set(const struct sh_placement *placement)
{
    for (size_t i = 0; i < sets.count; i++) {
        size_t found = 0;
        for (size_t j = 0; j < placement->count; j++)
            found += has_backup(placement, nodes[sets.sets[i].members[j]].nid.v);
        if (found == placement->count)
            return true;
    }
    return false;
}

static void test_a_copyset(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(30);
    sets_make(&request);
    unsigned first_places = 0;
    for (size_t i = 0; i < 300; i++) {
        struct sh_placement placement = place(&request);
        assert_true(placement.is_copyset && is_set(&placement));
        assert_false(has_backup(&placement, 65)); /* the owner's set is not used */
        first_places |= 1u << (placement.backups[0].v - 64) % 3;
    }
    assert_int_equal(first_places, 7);
    nodes[10].disk_free_bytes = 0; /* nor one with a full node */
    for (size_t i = 0; i < 100; i++) {
        struct sh_placement placement = place(&request);
        assert_true(placement.is_copyset && !has_backup(&placement, 74));
        assert_false(has_backup(&placement, 73) || has_backup(&placement, 75));
    }
}

/* The third member of the set that has 67 and 69. */
static uint16_t replacement_of_68(void)
{
    for (size_t i = 0; i < sets.count; i++) {
        const uint16_t *set = sets.sets[i].members;
        if (nodes[set[0]].nid.v == 67 && nodes[set[1]].nid.v == 69)
            return nodes[set[2]].nid.v;
    }
    fail();
    return 0;
}

/* Node 68 of the set 67, 68, 69 fails: two owners replace it by the same node, which is in the set that took its place. */
static void test_copyset_replaced(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(30);
    const shoal_nid kept[] = {{69}, {67}};
    nodes[4].is_up = false;
    sets_make(&request);
    request.kept = kept;
    request.kept_count = 2;
    uint16_t drawn = replacement_of_68();
    for (uint16_t owner = 70; owner < 94; owner++) {
        request.owner.v = owner;
        struct sh_placement placement = place(&request);
        assert_int_equal(placement.backups[0].v, 69);
        assert_int_equal(placement.backups[1].v, 67);
        assert_int_equal(placement.backups[2].v == drawn, owner != drawn);
        assert_int_equal(placement.is_copyset, owner != drawn);
    }
    nodes[drawn - 64].disk_free_bytes = 0; /* then by the same other one */
    uint16_t second = 0;
    for (uint16_t owner = 70; owner < 94; owner++) {
        request.owner.v = owner;
        struct sh_placement placement = place(&request);
        assert_int_equal(placement.missing, 0);
        assert_false(placement.is_copyset);
        assert_int_not_equal(placement.backups[2].v, drawn);
        if (second && owner != second)
            assert_int_equal(placement.backups[2].v, second);
        if (!second)
            second = placement.backups[2].v;
    }
}

/* With few nodes every set has the owner, or somebody is missing: the rest of one is completed. */
static void test_copysets_of_few(void **state)
{
    (void)state;
    for (size_t count = 2; count < 9; count++) {
        struct sh_placement_request request = request_of(count);
        sets_make(&request);
        for (uint16_t owner = 64; owner < 64 + count; owner++) {
            request.owner.v = owner;
            struct sh_placement placement = place(&request);
            assert_int_equal(placement.count, count < 4 ? count - 1 : 3);
            if (count >= 4)
                assert_true(is_set(&placement) == placement.is_copyset);
        }
    }
}

static void test_drawn_by_free_bytes(void **state)
{
    (void)state;
    struct sh_placement_request request = request_of(11);
    size_t large = 0, draws = 20000;
    request.flags = 0;
    request.wanted = 1;
    request.reserve_percent = 0;
    for (size_t i = 1; i < 11; i++)
        nodes[i].disk_free_bytes = i == 1 ? 30 * TEST_GIB : 10 * TEST_GIB;
    for (size_t i = 0; i < draws; i++)
        large += place(&request).backups[0].v == 65;
    assert_in_range(large, draws / 4 - 400, draws / 4 + 400); /* 3 of 12 parts; 6.5 deviations */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_all_there_are, setup),
        cmocka_unit_test_setup(test_too_few, setup),
        cmocka_unit_test_setup(test_completed_when_nodes_join, setup),
        cmocka_unit_test_setup(test_first_ones_are_disjoint, setup),
        cmocka_unit_test_setup(test_racks_then_switches, setup),
        cmocka_unit_test_setup(test_two_racks, setup),
        cmocka_unit_test_setup(test_owners_machine, setup),
        cmocka_unit_test_setup(test_replaced, setup),
        cmocka_unit_test_setup(test_a_copyset, setup),
        cmocka_unit_test_setup(test_copyset_replaced, setup),
        cmocka_unit_test_setup(test_copysets_of_few, setup),
        cmocka_unit_test_setup(test_drawn_by_free_bytes, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
