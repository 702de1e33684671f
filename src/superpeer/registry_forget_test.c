/* Nodes that are gone are forgotten: who may be, what becomes of their IDs, and that neither the view
 * nor the registry grows, nor IDs run out, however often all nodes of a cluster of 1,000 are
 * restarted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "superpeer/registry.h"

#define S UINT64_C(1000000000)
#define GONE (3600 * S)
#define PEERS 1000

static struct sh_registry *registry_make(void)
{
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S};
    struct sh_registry *registry;
    shoal_nid nid;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    assert_int_equal(
        sh_registry_superpeer_put(registry, sh_bytes_text("superpeer:1"), 1, SHOAL_NID_NONE, &nid),
        SHOAL_OK);
    return registry;
}

static enum shoal_err join(struct sh_registry *registry, uint64_t now_ns, unsigned place,
                           uint64_t instance, shoal_nid previous, shoal_nid *nid_out)
{
    char address[32];
    (void)snprintf(address, sizeof address, "10.1.%u.%u:4100", place / 250, place % 250);
    return sh_registry_join(registry, now_ns, sh_bytes_text(address), instance, previous, NULL,
                            nid_out);
}

static shoal_nid joined(struct sh_registry *registry, uint64_t now_ns, unsigned place,
                        uint64_t instance)
{
    shoal_nid nid;
    assert_int_equal(join(registry, now_ns, place, instance, SHOAL_NID_NONE, &nid), SHOAL_OK);
    return nid;
}

static enum shoal_err forget(struct sh_registry *registry, shoal_nid nid, uint64_t instance)
{
    return sh_registry_forget(registry, nid, instance);
}

static size_t nodes_of(const struct sh_registry *registry)
{
    return sh_registry_view(registry)->count;
}

/* Only those that are not up, and only the instance that is meant. A forgotten node that lives is
 * refused, also by who has the registry from an image: its chunks are gone. */
static void who_is_forgotten(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid a = joined(registry, S, 1, 11), b = joined(registry, S, 2, 12), nid;
    assert_int_equal(forget(registry, a, 11), SHOAL_EINVAL);
    assert_int_equal(forget(registry, (shoal_nid){1}, 1), SHOAL_ENONODE);
    sh_registry_fail(registry, a, "test");
    assert_int_equal(sh_registry_leave(registry, b, 12), SHOAL_OK);
    assert_int_equal(forget(registry, a, 12), SHOAL_EEXIST);
    uint64_t epoch = sh_registry_view(registry)->epoch;
    assert_int_equal(forget(registry, a, 11), SHOAL_OK);
    assert_int_equal(forget(registry, b, 12), SHOAL_OK);
    assert_true(sh_registry_view(registry)->epoch == epoch + 2);
    assert_int_equal(nodes_of(registry), 1);
    assert_int_equal(forget(registry, a, 11), SHOAL_ENONODE);
    assert_int_equal(sh_registry_heartbeat(registry, S, a, 11, epoch), SHOAL_ENONODE);
    assert_int_equal(join(registry, S, 1, 11, a, &nid), SHOAL_EEXIST);
    uint8_t image[4096];
    struct sh_writer w = sh_writer_make(image, sizeof image);
    sh_registry_image_put(&w, registry, 1);
    assert_true(sh_writer_ok(&w));
    struct sh_registry *copy = registry_make();
    assert_int_equal(sh_registry_image_load(copy, S, sh_bytes_make(image, (size_t)(w.at - image))),
                     SHOAL_OK);
    assert_int_equal(join(copy, S, 1, 11, a, &nid), SHOAL_EEXIST);
    /* One that the registry has never heard of was not forgotten. */
    assert_int_equal(join(copy, S, 3, 13, (shoal_nid){(uint16_t)(a.v + 7)}, &nid), SHOAL_OK);
    assert_int_equal(join(copy, S, 1, 11, SHOAL_NID_NONE, &nid), SHOAL_OK);
    sh_registry_destroy(copy);
    sh_registry_destroy(registry);
}

/* Who is given up has left, in another life than any process has: neither it nor a copy is taken in, but for a
 * process that its folder has begun since. */
static void who_is_given_up(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    const uint64_t life = (UINT64_C(3) << 32) | 11;
    shoal_nid a = joined(registry, S, 1, life), b = joined(registry, S, 2, 1), nid;
    assert_int_equal(sh_registry_give_up(registry, a, life), SHOAL_EINVAL);
    sh_registry_fail(registry, a, "test");
    sh_registry_fail(registry, b, "test");
    assert_int_equal(sh_registry_give_up(registry, a, life + 1), SHOAL_EEXIST);
    assert_int_equal(sh_registry_give_up(registry, a, life), SHOAL_OK);
    assert_int_equal(sh_registry_give_up(registry, b, 1), SHOAL_OK);
    assert_true(sh_view_find(sh_registry_view(registry), b)->instance);
    const struct sh_node *node = sh_view_find(sh_registry_view(registry), a);
    assert_int_equal(node->state, SH_NODE_LEFT);
    assert_int_equal(sh_registry_give_up(registry, a, node->instance), SHOAL_OK);
    uint64_t epoch = sh_registry_view(registry)->epoch;
    assert_int_equal(sh_registry_heartbeat(registry, S, a, life, epoch), SHOAL_EEXIST);
    assert_int_equal(join(registry, S, 1, life, a, &nid), SHOAL_EEXIST);
    struct sh_bytes address = sh_bytes_text("10.1.0.1:4100");
    assert_int_equal(sh_registry_restart(registry, S, address, life, a, NULL, &nid), SHOAL_EEXIST);
    assert_int_equal(sh_view_find(sh_registry_view(registry), a)->state, SH_NODE_LEFT);
    assert_int_equal(
        sh_registry_restart(registry, S, address, life + (UINT64_C(1) << 32), a, NULL, &nid),
        SHOAL_OK);
    assert_int_equal(nid.v, a.v);
    sh_registry_destroy(registry);
}

/* What was found out about a gone node is void when its next life has come since, though that is gone as well. */
static void the_next_life_voids_it(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    const uint64_t life = (UINT64_C(1) << 32) | 11, next = (UINT64_C(2) << 32) | 12;
    shoal_nid a = joined(registry, S, 1, life), nid;
    sh_registry_fail(registry, a, "test");
    struct sh_bytes address = sh_bytes_text("10.1.0.1:4100");
    assert_int_equal(sh_registry_restart(registry, S, address, next, a, NULL, &nid), SHOAL_OK);
    assert_int_equal(nid.v, a.v);
    assert_int_equal(forget(registry, a, life), SHOAL_EEXIST);
    sh_registry_fail(registry, a, "test");
    assert_int_equal(forget(registry, a, life), SHOAL_EEXIST);
    assert_int_equal(sh_registry_give_up(registry, a, life), SHOAL_EEXIST);
    assert_int_equal(forget(registry, a, next), SHOAL_OK);
    sh_registry_destroy(registry);
}

static struct sh_registry *copy_of(const struct sh_registry *registry,
                                   const struct sh_registry_config *config)
{
    static uint8_t image[65536];
    struct sh_registry *copy;
    struct sh_writer w = sh_writer_make(image, sizeof image);
    sh_registry_image_put(&w, registry, 1);
    assert_true(sh_writer_ok(&w));
    assert_int_equal(sh_registry_create(config, &copy), SHOAL_OK);
    assert_int_equal(sh_registry_image_load(copy, S, sh_bytes_make(image, (size_t)(w.at - image))),
                     SHOAL_OK);
    return copy;
}

/* With 4 IDs, which so go round: one that was forgotten comes last, whoever left or failed keeps its own,
 * and the former bearer of one that was given out anew is refused still, by a copy as well. */
static void few_ids_go_round(void **state)
{
    (void)state;
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S, .nids = 4};
    struct sh_registry *registry, *copy;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    shoal_nid a = joined(registry, S, 1, 11), b = joined(registry, S, 2, 12), nid;
    sh_registry_fail(registry, a, "test");
    assert_int_equal(sh_registry_leave(registry, b, 12), SHOAL_OK);
    assert_int_equal(forget(registry, a, 11), SHOAL_OK);
    shoal_nid c = joined(registry, S, 3, 13), d = joined(registry, S, 4, 14);
    assert_true(c.v == b.v + 1 && d.v == c.v + 1);
    assert_int_equal(joined(registry, S, 5, 15).v, a.v);
    assert_int_equal(join(registry, S, 6, 16, SHOAL_NID_NONE, &nid), SHOAL_ELIMIT);
    copy = copy_of(registry, &config);
    assert_int_equal(join(copy, S, 1, 11, a, &nid), SHOAL_EEXIST);
    assert_int_equal(join(copy, S, 6, 16, SHOAL_NID_NONE, &nid), SHOAL_ELIMIT);
    /* The one that has it now may join again, and leave; forgotten, it is refused as well. */
    assert_int_equal(join(copy, S, 5, 15, a, &nid), SHOAL_OK);
    assert_int_equal(sh_registry_leave(copy, a, 15), SHOAL_OK);
    assert_int_equal(forget(copy, a, 15), SHOAL_OK);
    assert_int_equal(join(copy, S, 5, 15, a, &nid), SHOAL_EEXIST);
    assert_int_equal(joined(copy, S, 7, 17).v, a.v);
    sh_registry_destroy(copy);
    sh_registry_destroy(registry);
}

/* A survivor that is forced to go on has not heard of some joins: their nodes come back with their IDs,
 * also where it has forgotten others, and new ones get none of these before. */
static void the_forced_take_back_whom_they_lack(void **state)
{
    (void)state;
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S};
    struct sh_registry *lost = registry_make();
    assert_int_equal(sh_registry_arcs_start(lost, (shoal_nid){1}, 7, false), SHOAL_OK);
    shoal_nid gone = joined(lost, S, 1, 11), nid;
    assert_int_equal(sh_registry_leave(lost, gone, 11), SHOAL_OK);
    assert_int_equal(forget(lost, gone, 11), SHOAL_OK);
    struct sh_registry *survivor = copy_of(lost, &config);
    shoal_nid late[8], fresh[8];
    for (unsigned i = 0; i < 8; i++)
        late[i] = joined(lost, S, 10 + i, 100 + i);
    assert_int_equal(sh_registry_force(survivor, (shoal_nid){1}, 77), SHOAL_OK);
    for (unsigned i = 0; i < 8; i++)
        fresh[i] = joined(survivor, S, 20 + i, 200 + i);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(join(survivor, S, 10 + i, 100 + i, late[i], &nid), SHOAL_OK);
        assert_int_equal(nid.v, late[i].v);
        assert_true(fresh[i].v - late[0].v >= 19000);
    }
    assert_int_equal(join(survivor, S, 1, 11, gone, &nid), SHOAL_EEXIST);
    sh_registry_destroy(survivor);
    sh_registry_destroy(lost);
}

/* Who was not heard for the time is found, in order, and nobody who is up, or may be cut off only. */
static void who_is_gone(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    const shoal_nid first = {64};
    shoal_nid a = joined(registry, S, 1, 11), b = joined(registry, 2 * S, 2, 12);
    shoal_nid c = joined(registry, S, 3, 13);
    assert_int_equal(sh_registry_gone(registry, 9 * GONE, GONE, first).v, 0);
    assert_int_equal(sh_registry_leave(registry, a, 11), SHOAL_OK);
    sh_registry_fail(registry, b, "test");
    assert_int_equal(sh_registry_gone(registry, S + GONE - 1, GONE, first).v, 0);
    assert_int_equal(sh_registry_gone(registry, S + GONE, GONE, first).v, a.v);
    assert_int_equal(sh_registry_gone(registry, S + GONE, GONE, b).v, 0);
    assert_int_equal(sh_registry_gone(registry, 2 * S + GONE, GONE, b).v, 0);
    shoal_nid again = joined(registry, 3 * S, 2, 14); /* at its address */
    assert_int_not_equal(again.v, b.v);
    assert_int_equal(sh_registry_gone(registry, 2 * S + GONE, GONE, b).v, b.v);
    assert_int_equal(sh_registry_gone(registry, 2 * S + GONE, GONE, c).v, 0);
    /* A new leader does not know since when. */
    sh_registry_heard(registry, 5 * S, SHOAL_NID_NONE);
    assert_int_equal(sh_registry_gone(registry, 2 * S + GONE, GONE, first).v, 0);
    sh_registry_destroy(registry);
}

static void forget_all_gone(struct sh_registry *registry, uint64_t now_ns)
{
    for (shoal_nid nid = {64}; (nid = sh_registry_gone(registry, now_ns, GONE, nid)).v;) {
        const struct sh_node *node = sh_view_find(sh_registry_view(registry), nid);
        assert_int_equal(forget(registry, nid, node->instance), SHOAL_OK);
    }
}

/* Every node of 1,000 is restarted, one each 4 s; one of three is killed, the others leave. Five
 * rounds, as an operator may do them in an afternoon, and then as many as would take all IDs twice. */
static void rolling_restarts(void **state)
{
    (void)state;
    static shoal_nid nids[PEERS];
    static uint64_t instances[PEERS];
    struct sh_registry *registry = registry_make();
    uint64_t now_ns = S, instance = 0;
    size_t image = 0, most = 0, rounds = 2 * SH_PEER_NIDS / PEERS + 2;
    for (unsigned i = 0; i < PEERS; i++)
        nids[i] = joined(registry, now_ns, i, instances[i] = ++instance);
    for (unsigned round = 1; round <= rounds; round++) {
        for (unsigned i = 0; i < PEERS; i++) {
            now_ns += 4 * S;
            if (i % 3 == 0)
                sh_registry_fail(registry, nids[i], "restarted");
            else
                assert_int_equal(sh_registry_leave(registry, nids[i], instances[i]), SHOAL_OK);
            sh_registry_heard(registry, now_ns, nids[i]);
            nids[i] = joined(registry, now_ns, i, instances[i] = ++instance);
            forget_all_gone(registry, now_ns);
            most = nodes_of(registry) > most ? nodes_of(registry) : most;
        }
        if (round == 1)
            image = sh_registry_image_size(registry);
        assert_true(sh_registry_image_size(registry) <= image + 64);
        if (round == 5)
            print_message(
                "5 rolling restarts of %u: at most %zu nodes in a view, registry %zu bytes\n",
                PEERS, most, sh_registry_image_size(registry));
    }
    assert_true(most <= 1 + PEERS + GONE / (4 * S) + 1);
    forget_all_gone(registry, now_ns + GONE);
    assert_int_equal(nodes_of(registry), 1 + PEERS);
    sh_registry_destroy(registry);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_forgotten), cmocka_unit_test(the_next_life_voids_it),
        cmocka_unit_test(few_ids_go_round), cmocka_unit_test(the_forced_take_back_whom_they_lack),
        cmocka_unit_test(who_is_gone),      cmocka_unit_test(rolling_restarts),
        cmocka_unit_test(who_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
