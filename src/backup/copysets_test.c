/* Copysets: which ones there are, and what a join, a failure and a forgotten node change. */
#include <string.h>

#include "backup/candidates_test.h"
#include "backup/copysets.h"

#define NODES 400
#define CLASSES 4

static struct sh_candidate nodes[NODES];
static uint64_t memory[2][NODES * (CLASSES + 8)];
static struct sh_copysets sets;

/* Sets as node IDs, in an order that does not depend on where they stand. */
struct listed {
    uint16_t ids[NODES * CLASSES][SH_BACKUPS_MAX];
    size_t count;
};
static struct listed before, after;

static int by_ids(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(uint16_t[SH_BACKUPS_MAX]));
}

static int by_id(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

static void compute(const struct sh_copysets_config *config, size_t count, struct listed *listed)
{
    assert_true(sh_copysets_bytes(config, count) <= sizeof memory[0]);
    sh_copysets_compute(config, nodes, count, memory[0], &sets);
    memset(listed, 0, sizeof *listed);
    for (size_t i = 0; i < sets.count; i++) {
        for (size_t j = 0; j < config->replicas; j++)
            listed->ids[i][j] = nodes[sets.sets[i].members[j]].nid.v;
        qsort(listed->ids[i], config->replicas, sizeof(uint16_t), by_id);
    }
    listed->count = sets.count;
    qsort(listed->ids, sets.count, sizeof listed->ids[0], by_ids);
}

static bool has_node(const uint16_t *set, uint16_t nid)
{
    for (size_t i = 0; i < SH_BACKUPS_MAX; i++) {
        if (set[i] == nid)
            return true;
    }
    return false;
}

static size_t sets_with(const struct listed *listed, uint16_t nid)
{
    size_t count = 0;
    for (size_t i = 0; i < listed->count; i++)
        count += has_node(listed->ids[i], nid);
    return count;
}

static bool has_set(const struct listed *listed, uint16_t a, uint16_t b, uint16_t c, uint16_t d)
{
    for (size_t i = 0; i < listed->count; i++) {
        const uint16_t *set = listed->ids[i];
        if (set[0] == a && set[1] == b && set[2] == c && set[3] == d)
            return true;
    }
    return false;
}

static bool is_equal(const struct listed *a, const struct listed *b)
{
    return a->count == b->count && !memcmp(a->ids, b->ids, sizeof a->ids);
}

/* How many sets of one list the other one lacks. Each of them must have that node; 0: any. */
static size_t lacking(const struct listed *of, const struct listed *in, uint16_t nid)
{
    size_t lacks = 0;
    for (size_t i = 0, j = 0; i < of->count; i++) {
        while (j < in->count && by_ids(in->ids[j], of->ids[i]) < 0)
            j++;
        if (j < in->count && !by_ids(in->ids[j], of->ids[i])) {
            j++;
            continue;
        }
        lacks++;
        assert_true(!nid || has_node(of->ids[i], nid));
    }
    return lacks;
}

static const struct sh_copysets_config three = {.seed = 7, .replicas = 3, .domains = SH_DOMAIN_ALL};

static void test_rows(void **state)
{
    (void)state;
    struct sh_copysets_config config = three;
    nodes_make(nodes, NODES);
    compute(&config, 9, &after);
    assert_int_equal(after.count, 3);
    assert_true(has_set(&after, 64, 65, 66, 0));
    assert_true(has_set(&after, 67, 68, 69, 0));
    assert_true(has_set(&after, 70, 71, 72, 0));
    config.replicas = 2;
    compute(&config, 5, &after);
    assert_int_equal(after.count, 2);
    assert_true(has_set(&after, 64, 65, 0, 0) && has_set(&after, 66, 67, 0, 0));
    config.replicas = 4;
    compute(&config, 8, &after);
    assert_int_equal(after.count, 2);
    assert_true(has_set(&after, 64, 65, 66, 67) && has_set(&after, 68, 69, 70, 71));
    compute(&config, 3, &after);
    assert_int_equal(after.count, 0);
}

static void test_joining_nodes_wait(void **state)
{
    (void)state;
    nodes_make(nodes, NODES);
    compute(&three, 9, &before);
    for (size_t count = 10; count < 12; count++) {
        compute(&three, count, &after);
        assert_true(is_equal(&before, &after));
    }
    compute(&three, 12, &after);
    assert_int_equal(after.count, 4);
    assert_true(has_set(&after, 73, 74, 75, 0));
    assert_true(has_set(&after, 64, 65, 66, 0) && has_set(&after, 70, 71, 72, 0));
}

static void test_failed_one_is_replaced(void **state)
{
    (void)state;
    nodes_make(nodes, NODES);
    compute(&three, 30, &before);
    nodes[4].is_up = false; /* 68 */
    compute(&three, 30, &after);
    assert_int_equal(lacking(&before, &after, 68), 1);
    assert_int_equal(after.count, 10);
    assert_int_equal(sets_with(&after, 68), 0);
    size_t both = 0;
    for (size_t i = 0; i < after.count; i++)
        both += has_node(after.ids[i], 67) && has_node(after.ids[i], 69);
    assert_int_equal(both, 1);
    struct listed failed = after;
    nodes[4].is_up = true;
    nodes[4].can_backup = false;
    compute(&three, 30, &after);
    assert_true(is_equal(&failed, &after));
    memmove(&nodes[4], &nodes[5], 25 * sizeof nodes[0]); /* forgotten */
    compute(&three, 29, &after);
    assert_true(is_equal(&failed, &after));
    nodes_make(nodes, NODES);
    compute(&three, 30, &after);
    assert_true(is_equal(&before, &after));
}

/* The seed and the other members decide who is drawn: not always the same node. */
static void test_draws_spread(void **state)
{
    (void)state;
    size_t in_sets[NODES], most = 0;
    nodes_make(nodes, NODES);
    for (size_t i = 0; i < 300; i++)
        nodes[i].domains[SH_DOMAIN_RACK] = (uint32_t)(1 + i / 30); /* started rack by rack */
    compute(&three, 300, &before);
    assert_int_equal(before.count, 300); /* each node has one, with draws */
    for (size_t i = 0; i < 300; i++) {
        in_sets[i] = sets_with(&before, nodes[i].nid.v);
        assert_true(in_sets[i] >= 1);
        most = in_sets[i] > most ? in_sets[i] : most;
    }
    print_message("in rows of one rack: a node is in 3 sets on average, in %zu at most\n", most);
    assert_true(most <= 12);
    struct sh_copysets_config other = three;
    other.seed = 8;
    compute(&other, 300, &after);
    assert_false(is_equal(&before, &after));
}

/* With which other nodes a node shares sets. */
static size_t width(const struct listed *listed, uint16_t nid)
{
    bool is_mate[65536] = {false};
    size_t mates = 0;
    for (size_t i = 0; i < listed->count; i++) {
        for (size_t j = 0; has_node(listed->ids[i], nid) && j < SH_BACKUPS_MAX; j++) {
            uint16_t mate = listed->ids[i][j];
            mates += mate && mate != nid && !is_mate[mate];
            is_mate[mate] = true;
        }
    }
    return mates;
}

static void test_scatter_width(void **state)
{
    (void)state;
    struct sh_copysets_config config = three;
    nodes_make(nodes, NODES);
    for (uint16_t scatter = 0; scatter <= 8; scatter++) {
        config.scatter = scatter;
        unsigned classes = sh_copysets_classes(&config);
        assert_int_equal(classes, scatter <= 2 ? 1 : (scatter + 1) / 2);
        compute(&config, 300, &after);
        assert_in_range(after.count, 100 * classes, 100 * classes + 4 * classes * classes);
        for (uint16_t nid = 64 + 60; nid < 64 + 240; nid++) { /* away from the ends: exactly */
            size_t others = width(&after, nid);
            assert_true(others >= 2u * classes);
            assert_true(others <= 2u * classes + 8);
        }
    }
    config.scatter = 4;
    compute(&config, 12, &after);
    assert_true(has_set(&after, 64, 65, 66, 0));
    assert_true(has_set(&after, 64, 68, 72, 0));
    assert_true(has_set(&after, 67, 71, 75, 0));
    for (uint16_t nid = 64; nid < 76; nid++)
        assert_true(sets_with(&after, nid) >= 2);
}

static void test_racks(void **state)
{
    (void)state;
    nodes_make(nodes, NODES);
    for (size_t i = 0; i < 12; i++)
        nodes[i].domains[SH_DOMAIN_RACK] = (uint32_t)(1 + i % 3);
    compute(&three, 12, &before);
    assert_int_equal(before.count, 4); /* rows have three racks each */
    assert_true(has_set(&before, 64, 65, 66, 0));
    nodes[1].domains[SH_DOMAIN_RACK] = 1; /* 65 beside 64 */
    compute(&three, 12, &after);
    assert_int_equal(after.count, 5);
    assert_false(has_set(&after, 64, 65, 66, 0));
    for (size_t i = 0; i < after.count; i++)
        assert_false(has_node(after.ids[i], 64) && has_node(after.ids[i], 65));
    for (size_t i = 0; i < 12; i++)
        nodes[i].domains[SH_DOMAIN_RACK] = i < 6 ? 1 : 2; /* two racks: two of three in one */
    compute(&three, 12, &after);
    for (size_t i = 0; i < after.count; i++) {
        size_t first = 0;
        for (size_t j = 0; j < 3; j++)
            first += after.ids[i][j] < 70;
        assert_in_range(first, 1, 2);
    }
    for (size_t i = 0; i < 12; i++)
        nodes[i].domains[SH_DOMAIN_RACK] = 1;
    compute(&three, 12, &after);
    assert_int_equal(after.count, 4); /* one rack is no rule */
}

/* A node's rack counts for the other members while it is only down, so that they stay as they are. */
static void test_failed_one_keeps_its_place(void **state)
{
    (void)state;
    nodes_make(nodes, NODES);
    for (size_t i = 0; i < 30; i++)
        nodes[i].domains[SH_DOMAIN_RACK] = (uint32_t)(1 + i / 2 % 5);
    compute(&three, 30, &before);
    nodes[0].is_up =
        false; /* 65 stays in the set of its own that it has since it shares the rack */
    compute(&three, 30, &after);
    assert_true(lacking(&before, &after, 64) > 0);
}

/* --- Random memberships ----------------------------------------------------------------------- */

static void racks_draw(uint64_t *random, size_t count)
{
    uint32_t racks = (uint32_t)(test_draw(random) % 8), zero = (uint32_t)(test_draw(random) % 2);
    for (size_t i = 0; i < count; i++) {
        nodes[i].domains[SH_DOMAIN_RACK] =
            racks ? (uint32_t)(1 - zero + test_draw(random) % racks) : 0;
        nodes[i].domains[SH_DOMAIN_MACHINE] =
            test_draw(random) % 4 ? 0 : (uint32_t)(1000 + test_draw(random) % count);
    }
}

/* Distinct values of a domain among nodes that can be drawn, up to a bound; unknown ones count each. */
static size_t values_up(enum sh_domain domain, size_t count, size_t bound)
{
    size_t values = 0;
    for (size_t i = 0; i < count && values < bound; i++) {
        bool is_new = nodes[i].is_up && nodes[i].can_backup;
        for (size_t j = 0; j < i && nodes[i].domains[domain]; j++)
            is_new &= !(nodes[j].is_up && nodes[j].can_backup &&
                        nodes[j].domains[domain] == nodes[i].domains[domain]);
        values += is_new;
    }
    return values;
}

static void sets_check(const struct sh_copysets_config *config, size_t count)
{
    bool rack_rule = config->domains == SH_DOMAIN_BIT(SH_DOMAIN_RACK) &&
                     values_up(SH_DOMAIN_RACK, count, config->replicas) == config->replicas;
    size_t up = 0, in_set = 0;
    bool is_member[NODES] = {false};
    for (size_t i = 0; i < sets.count; i++) {
        for (size_t j = 0; j < config->replicas; j++) {
            size_t member = sets.sets[i].members[j];
            assert_true(member < count && nodes[member].is_up && nodes[member].can_backup);
            is_member[member] = true;
            for (size_t k = 0; k < j; k++) {
                size_t other = sets.sets[i].members[k];
                assert_int_not_equal(member, other);
                unsigned shared = sh_candidate_shared(&nodes[member], &nodes[other]);
                assert_false(rack_rule && (shared & SH_DOMAIN_BIT(SH_DOMAIN_RACK)));
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        up += nodes[i].is_up && nodes[i].can_backup;
        in_set += is_member[i];
    }
    assert_true(up < config->replicas ? !sets.count : up - in_set < config->replicas);
}

static void test_random_memberships(void **state)
{
    (void)state;
    uint64_t random = test_seed(41);
    for (size_t round = 0; round < 1000; round++) {
        size_t count = 1 + test_draw(&random) % 60;
        struct sh_copysets_config config = {
            .seed = test_draw(&random),
            .replicas = (uint8_t)(2 + test_draw(&random) % 3),
            .domains = test_draw(&random) % 2 ? SH_DOMAIN_BIT(SH_DOMAIN_RACK) : SH_DOMAIN_ALL};
        config.scatter = (uint16_t)(test_draw(&random) % (3 * config.replicas));
        nodes_make(nodes, count);
        racks_draw(&random, count);
        unsigned down = (unsigned)(test_draw(&random) % 4);
        for (size_t i = 0; i < count; i++) {
            nodes[i].is_up = test_draw(&random) % 10 >= down;
            nodes[i].can_backup = test_draw(&random) % 10 >= down;
            if (i) /* others were forgotten */
                nodes[i].nid.v =
                    (uint16_t)(nodes[i - 1].nid.v + 1 + (test_draw(&random) % 8 ? 0 : 2));
        }
        compute(&config, count, &before);
        sets_check(&config, count);
        /* On another owner: other memory, and other disks and zones. */
        memset(memory[1], 0xAA, sizeof memory[1]);
        for (size_t i = 0; i < count; i++) {
            nodes[i].disk_free_bytes = test_draw(&random);
            nodes[i].zones = nodes[i].zones_max = 9;
            nodes[i].firsts = (uint32_t)test_draw(&random);
        }
        struct sh_copysets other;
        sh_copysets_compute(&config, nodes, count, memory[1], &other);
        assert_int_equal(other.count, sets.count);
        assert_memory_equal(other.sets, sets.sets, sets.count * sizeof sets.sets[0]);
        assert_memory_equal(other.ring, sets.ring, sets.points * sizeof sets.ring[0]);
    }
}

/* Nodes join, fail, come back and are forgotten: what changes are sets with that node. */
static void test_random_changes(void **state)
{
    (void)state;
    uint64_t random = test_seed(42);
    for (size_t round = 0; round < 300; round++) {
        struct sh_copysets_config config = {.seed = test_draw(&random),
                                            .replicas = (uint8_t)(2 + test_draw(&random) % 3),
                                            .domains = SH_DOMAIN_ALL};
        config.scatter = (uint16_t)(test_draw(&random) % (3 * config.replicas));
        size_t count = 12 + test_draw(&random) % 30;
        bool has_racks = test_draw(&random) % 2;
        nodes_make(nodes, NODES);
        if (has_racks)
            racks_draw(&random, count);
        for (size_t change = 0; change < 20 && count > 8; change++) {
            compute(&config, count, &before);
            size_t at = test_draw(&random) % count;
            uint16_t nid = nodes[at].nid.v;
            unsigned kind = (unsigned)(test_draw(&random) % 3);
            if (kind == 0) { /* fails, or is back */
                nodes[at].is_up = !nodes[at].is_up;
                compute(&config, count, &after);
                if (!before.count || !after.count)
                    continue; /* too few to make a set */
                if (nodes[at].is_up)
                    assert_true(lacking(&after, &before, nid) >= lacking(&before, &after, 0));
                else
                    assert_true(lacking(&before, &after, nid) >= lacking(&after, &before, 0));
            } else if (kind == 1 && !has_racks) { /* joins */
                nid = (uint16_t)(nodes[count - 1].nid.v + 1);
                nodes[count].nid.v = nid;
                nodes[count].is_up = nodes[count].can_backup = true;
                compute(&config, ++count, &after);
                if (before.count)
                    assert_true(lacking(&after, &before, nid) >= lacking(&before, &after, 0));
            } else if (at + 1 < count && !has_racks) { /* fails and is forgotten */
                nodes[at].is_up = false;
                compute(&config, count, &before);
                memmove(&nodes[at], &nodes[at + 1], (count - at - 1) * sizeof nodes[0]);
                compute(&config, --count, &after);
                assert_true(is_equal(&before, &after));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_joining_nodes_wait),
        cmocka_unit_test(test_failed_one_is_replaced),
        cmocka_unit_test(test_draws_spread),
        cmocka_unit_test(test_scatter_width),
        cmocka_unit_test(test_racks),
        cmocka_unit_test(test_failed_one_keeps_its_place),
        cmocka_unit_test(test_random_memberships),
        cmocka_unit_test(test_random_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
