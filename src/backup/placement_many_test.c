/* Placement in random clusters, and what it is for: few losses, parallel recovery, disks that fill alike. */
#include <string.h>

#include "backup/candidates_test.h"
#include "backup/placement.h"

#define NODES 100
#define RACK SH_DOMAIN_BIT(SH_DOMAIN_RACK)

static struct sh_candidate nodes[NODES];
static uint64_t memory[NODES * (4 + 8)];
static struct sh_copysets sets;
static uint64_t random_state;

static void sets_make(struct sh_placement_request *request)
{
    const struct sh_copysets_config config = {
        .seed = 7, .replicas = request->wanted, .scatter = 4, .domains = request->domains};
    assert_true(sh_copysets_bytes(&config, request->count) <= sizeof memory);
    sh_copysets_compute(&config, nodes, request->count, memory, &sets);
    request->copysets = &sets;
}

/* --- Random clusters, against what a slow look finds ------------------------------------------ */

static bool is_kept(const struct sh_placement_request *request, shoal_nid nid)
{
    for (size_t i = 0; i < request->kept_count; i++) {
        if (request->kept[i].v == nid.v)
            return true;
    }
    return false;
}

static bool fits(const struct sh_placement_request *request, const struct sh_candidate *node)
{
    return node->nid.v != request->owner.v && node->is_up && node->can_backup &&
           node->disk_free_bytes >=
               request->replica_bytes + node->disk_bytes / 100 * request->reserve_percent &&
           !(node->zones_max && node->zones >= node->zones_max) && !is_kept(request, node->nid);
}

static uint32_t rack_of(const struct sh_placement_request *request, shoal_nid nid)
{
    size_t at = sh_candidate_find(nodes, request->count, nid);
    return at < request->count ? nodes[at].domains[SH_DOMAIN_RACK] : 0;
}

static void cluster_draw(size_t count)
{
    uint32_t racks = (uint32_t)(1 + test_draw(&random_state) % 6);
    unsigned trouble = (unsigned)(test_draw(&random_state) % 5);
    nodes_make(nodes, count);
    for (size_t i = 0; i < count; i++) {
        nodes[i].nid.v = (uint16_t)(64 + 2 * i + test_draw(&random_state) % 2);
        nodes[i].is_up = test_draw(&random_state) % 10 >= trouble;
        nodes[i].can_backup = test_draw(&random_state) % 10 >= trouble;
        nodes[i].domains[SH_DOMAIN_RACK] = (uint32_t)(test_draw(&random_state) % (racks + 1));
        nodes[i].firsts = (uint32_t)(test_draw(&random_state) % 3);
        if (test_draw(&random_state) % 10 < trouble)
            nodes[i].disk_free_bytes = test_draw(&random_state) % (8 * TEST_GIB);
        nodes[i].zones = 5;
        nodes[i].zones_max = (uint32_t)(test_draw(&random_state) % 4 ? 0 : 4 + i % 3);
    }
}

static void backups_check(const struct sh_placement_request *request,
                          const struct sh_placement *placement)
{
    size_t fitting = 0, added = placement->count - request->kept_count;
    for (size_t i = 0; i < request->count; i++)
        fitting += fits(request, &nodes[i]);
    size_t lacking = request->wanted - request->kept_count;
    assert_int_equal(added, fitting < lacking ? fitting : lacking);
    assert_int_equal(placement->missing, lacking - added);
    assert_int_equal(placement->others,
                     placement->gone + placement->incapable + placement->full + (fitting - added));
    for (size_t i = 0; i < placement->count; i++) {
        if (i < request->kept_count)
            assert_int_equal(placement->backups[i].v, request->kept[i].v);
        else
            assert_true(fits(
                request, &nodes[sh_candidate_find(nodes, request->count, placement->backups[i])]));
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(placement->backups[i].v, placement->backups[j].v);
    }
}

/* As many backups as can be have a rack that none before them has. */
static void racks_check(const struct sh_placement_request *request,
                        const struct sh_placement *placement)
{
    uint32_t used[2 * NODES];
    size_t count = 0, unused = 0, alone = 0;
    for (size_t i = 0; i < request->kept_count; i++)
        used[count++] = rack_of(request, request->kept[i]);
    for (size_t i = 0; i < request->count; i++) {
        bool is_new = fits(request, &nodes[i]);
        uint32_t rack = nodes[i].domains[SH_DOMAIN_RACK];
        for (size_t j = 0; j < count && rack; j++)
            is_new &= used[j] != rack;
        unused += is_new;
        if (is_new)
            used[count++] = rack;
    }
    for (size_t i = request->kept_count; i < placement->count; i++) {
        uint32_t rack = rack_of(request, placement->backups[i]);
        bool is_alone = true;
        for (size_t j = 0; j < i; j++)
            is_alone &= !rack || rack_of(request, placement->backups[j]) != rack;
        alone += is_alone;
    }
    size_t added = placement->count - request->kept_count;
    assert_int_equal(alone, unused < added ? unused : added);
}

/* The fewest firsts of a node that can be a new zone's first backup. */
static void first_check(const struct sh_placement_request *request,
                        const struct sh_placement *placement)
{
    uint32_t least = UINT32_MAX;
    if (request->kept_count || !placement->count)
        return;
    for (size_t i = 0; i < request->count; i++) {
        if (fits(request, &nodes[i]) && nodes[i].firsts < least)
            least = nodes[i].firsts;
    }
    size_t first = sh_candidate_find(nodes, request->count, placement->backups[0]);
    assert_int_equal(nodes[first].firsts, least);
}

/* A set is chosen if one has all the backups that stay and only others that can be chosen. */
static void set_check(const struct sh_placement_request *request,
                      const struct sh_placement *placement)
{
    bool is_one = false, is_possible = false;
    for (size_t i = 0; i < sets.count; i++) {
        size_t usable = 0, kept = 0, chosen = 0;
        for (size_t j = 0; j < request->wanted; j++) {
            const struct sh_candidate *node = &nodes[sets.sets[i].members[j]];
            kept += is_kept(request, node->nid);
            usable += fits(request, node);
            for (size_t k = 0; k < placement->count; k++)
                chosen += placement->backups[k].v == node->nid.v;
        }
        is_possible |= kept == request->kept_count && kept + usable == request->wanted;
        is_one |= chosen == request->wanted;
    }
    if (request->kept_count < request->wanted)
        assert_int_equal(placement->is_copyset, is_possible);
    assert_true(!placement->is_copyset || is_one);
}

static void test_random_clusters(void **state)
{
    (void)state;
    random_state = test_seed(51);
    size_t sets_seen = 0, short_seen = 0;
    for (size_t round = 0; round < 4000; round++) {
        size_t count = 1 + test_draw(&random_state) % 25;
        shoal_nid kept[SH_BACKUPS_MAX];
        cluster_draw(count);
        struct sh_placement_request request = {
            .nodes = nodes,
            .count = count,
            .owner = nodes[test_draw(&random_state) % count].nid,
            .wanted = (uint8_t)(1 + test_draw(&random_state) % SH_BACKUPS_MAX),
            .flags = SH_PLACEMENT_DISJOINT,
            .domains = RACK,
            .replica_bytes = TEST_GIB,
            .reserve_percent = 5,
            .random = test_random(&random_state),
            .kept = kept};
        size_t stay = test_draw(&random_state) % (request.wanted + 1u);
        for (size_t i = 0; i < stay; i++) {
            shoal_nid nid = nodes[test_draw(&random_state) % count].nid;
            if (nid.v != request.owner.v && !is_kept(&request, nid))
                kept[request.kept_count++] = nid;
        }
        struct sh_placement placement, again;
        uint64_t before = random_state;
        sh_placement_choose(&request, &placement);
        backups_check(&request, &placement);
        if (request.wanted > 1) { /* or the owner's rack counts, too */
            racks_check(&request, &placement);
            first_check(&request, &placement);
        }
        random_state = before;
        sh_placement_choose(&request, &again);
        assert_memory_equal(&again, &placement, sizeof again);
        short_seen += placement.missing > 0;
        if (request.wanted == 1)
            continue;
        sets_make(&request);
        sh_placement_choose(&request, &placement);
        backups_check(&request, &placement);
        set_check(&request, &placement);
        sets_seen += placement.is_copyset;
    }
    assert_true(sets_seen > 100 && short_seen > 100);
}

/* --- Losses ----------------------------------------------------------------------------------- */

#define LOSS_NODES 60
#define LOSS_ZONES 40 /* of each node */

static uint8_t is_used[LOSS_NODES][LOSS_NODES][LOSS_NODES]; /* by ascending index */

/* Places zones of all nodes, and counts the different sets of backups that they have. */
static size_t used_sets(struct sh_placement_request *request)
{
    size_t count = 0;
    memset(is_used, 0, sizeof is_used);
    for (size_t zone = 0; zone < (size_t)LOSS_NODES * LOSS_ZONES; zone++) {
        struct sh_placement placement;
        request->owner.v = (uint16_t)(64 + zone % LOSS_NODES);
        sh_placement_choose(request, &placement);
        assert_int_equal(placement.count, 3);
        size_t low = LOSS_NODES, high = 0, sum = 0;
        for (size_t i = 0; i < 3; i++) {
            size_t index = placement.backups[i].v - 64u;
            low = index < low ? index : low;
            high = index > high ? index : high;
            sum += index;
        }
        uint8_t *used = &is_used[low][sum - low - high][high];
        count += !*used;
        *used = 1;
    }
    return count;
}

/* How often in a thousand times the loss of so many random nodes takes all backups of a zone. */
static double losses(size_t failing)
{
    size_t lost = 0, times = 20000;
    for (size_t i = 0; i < times; i++) {
        bool is_gone[LOSS_NODES] = {false}, is_lost = false;
        for (size_t gone = 0; gone < failing;) {
            size_t node = test_draw(&random_state) % LOSS_NODES;
            gone += !is_gone[node];
            is_gone[node] = true;
        }
        for (size_t a = 0; a < LOSS_NODES; a++) {
            for (size_t b = a + 1; is_gone[a] && b < LOSS_NODES; b++) {
                for (size_t c = b + 1; is_gone[b] && c < LOSS_NODES; c++)
                    is_lost |= is_gone[c] && is_used[a][b][c];
            }
        }
        lost += is_lost;
    }
    return 1000.0 * (double)lost / (double)times;
}

static double power(double base, size_t exponent)
{
    double result = 1;
    for (; exponent; exponent--)
        result *= base;
    return result;
}

static bool is_near(double a, double b, double distance)
{
    return a - b < distance && b - a < distance;
}

static double triples(size_t nodes_count)
{
    return (double)(nodes_count * (nodes_count - 1) * (nodes_count - 2)) / 6;
}

/* The paper's formula: each of the sets is lost with that probability by itself. */
static double predicted(size_t sets_count, size_t failing)
{
    double whole = triples(failing) / triples(LOSS_NODES);
    return 1000 * (1 - power(1 - whole, sets_count));
}

static void test_losses(void **state)
{
    (void)state;
    random_state = test_seed(52);
    nodes_make(nodes, LOSS_NODES);
    struct sh_placement_request request = {.nodes = nodes,
                                           .count = LOSS_NODES,
                                           .wanted = 3,
                                           .replica_bytes = TEST_GIB,
                                           .random = test_random(&random_state)};
    size_t zones = (size_t)LOSS_NODES * LOSS_ZONES, random_sets = used_sets(&request);
    /* Z draws of T triples: T (1 - (1 - 1/T)^Z) different ones */
    double expected = triples(LOSS_NODES) * (1 - power(1 - 1 / triples(LOSS_NODES), zones));
    assert_true(is_near((double)random_sets, expected, 0.02 * expected));
    double random_losses = losses(6);
    print_message("random: %zu sets, 6 of 60 nodes lose a zone %.0f times of 1000, by the formula "
                  "%.0f\n",
                  random_sets, random_losses, predicted(random_sets, 6));
    assert_true(is_near(random_losses, predicted(random_sets, 6), 60));
    for (uint16_t scatter = 2; scatter <= 4; scatter += 2) {
        const struct sh_copysets_config config = {.seed = 7, .replicas = 3, .scatter = scatter};
        sh_copysets_compute(&config, nodes, LOSS_NODES, memory, &sets);
        request.copysets = &sets;
        assert_int_equal(used_sets(&request), sets.count);
        double set_losses = losses(6);
        print_message("copysets, scatter width %u: %zu sets, %.1f times, by the formula %.1f\n",
                      scatter, sets.count, set_losses, predicted(sets.count, 6));
        assert_true(is_near(set_losses, predicted(sets.count, 6), 6));
        assert_true(set_losses * 10 < random_losses);
    }
}

/* --- Disks ------------------------------------------------------------------------------------ */

/* Half of the disks have 300 GiB, half 100. Zones are placed until 70 % of the whole are used; were they drawn alike, each disk of
 * 100 GiB would be full. Returns by how many percent the small ones are fuller on average. */
static double disks_fill(bool with_sets)
{
    nodes_make(nodes, NODES);
    struct sh_placement_request request = {.nodes = nodes,
                                           .count = NODES,
                                           .wanted = 3,
                                           .flags = SH_PLACEMENT_DISJOINT,
                                           .domains = SH_DOMAIN_ALL,
                                           .replica_bytes = TEST_GIB,
                                           .reserve_percent = 5,
                                           .random = test_random(&random_state)};
    for (size_t i = 0; i < NODES; i++)
        nodes[i].disk_bytes = nodes[i].disk_free_bytes = (i / 3 % 2 ? 300 : 100) * TEST_GIB;
    if (with_sets)
        sets_make(&request);
    double least = 1, most = 0, sums[2] = {0};
    for (size_t zone = 0; zone < 20000 * 7 / 10 / 3; zone++) {
        struct sh_placement placement;
        request.owner.v = (uint16_t)(64 + test_draw(&random_state) % NODES);
        for (size_t i = 0; i < NODES; i++)
            nodes[i].firsts = (uint32_t)test_draw(&random_state) % 2;
        sh_placement_choose(&request, &placement);
        assert_int_equal(placement.missing, 0);
        for (size_t i = 0; i < 3; i++) {
            struct sh_candidate *node = &nodes[placement.backups[i].v - 64];
            assert_true(node->disk_free_bytes >= TEST_GIB + node->disk_bytes / 20);
            node->disk_free_bytes -= TEST_GIB;
        }
    }
    for (size_t i = 0; i < NODES; i++) {
        double used = 1 - (double)nodes[i].disk_free_bytes / (double)nodes[i].disk_bytes;
        least = used < least ? used : least;
        most = used > most ? used : most;
        sums[i / 3 % 2] += used;
    }
    print_message("%s: disks are %.0f to %.0f %% full\n", with_sets ? "copysets" : "random",
                  100 * least, 100 * most);
    return (sums[0] / (NODES - NODES / 6 * 3) - sums[1] / (NODES / 6 * 3)) * 100;
}

static void test_disks_fill_alike(void **state)
{
    (void)state;
    random_state = test_seed(53);
    for (unsigned with_sets = 0; with_sets < 2; with_sets++) {
        double fuller = disks_fill(with_sets);
        print_message("    small ones %.1f %% fuller than large ones\n", fuller);
        /* Where a set has disks of both kinds, the small one decides how much goes to it. */
        assert_true(is_near(fuller, 0, with_sets ? 20 : 8));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_clusters),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_disks_fill_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
