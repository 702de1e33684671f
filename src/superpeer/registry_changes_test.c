/* Views as differences: whoever follows a registry by changes has its view, whichever epoch it
 * knew; and what a change costs in a cluster of 1,000 nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "cluster/changes.h"
#include "superpeer/registry.h"

#define FOLLOWERS 8

static struct sh_registry *open_registry(void)
{
    struct sh_registry_config config = {.cluster = "changes", .failure_ns = 1000000000};
    struct sh_registry *registry;
    shoal_nid nid;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    assert_int_equal(
        sh_registry_superpeer_put(registry, sh_bytes_text("superpeer:1"), 1, SHOAL_NID_NONE, &nid),
        SHOAL_OK);
    return registry;
}

static shoal_nid join(struct sh_registry *registry, uint64_t instance)
{
    char address[32];
    shoal_nid nid;
    (void)snprintf(address, sizeof address, "10.1.%u.%u:4100", (unsigned)(instance / 250),
                   (unsigned)(instance % 250));
    struct sh_traits traits = {.keeps_replicas = instance % 2};
    (void)snprintf(traits.domains[SH_DOMAIN_RACK], SH_DOMAIN_NAME_MAX, "r%u",
                   (unsigned)(instance % 5));
    assert_int_equal(sh_registry_join(registry, 1, sh_bytes_text(address), instance, SHOAL_NID_NONE,
                                      &traits, &nid),
                     SHOAL_OK);
    return nid;
}

static void assert_same(const struct sh_view *a, const struct sh_view *b)
{
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->superpeers, b->superpeers);
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->nodes[i].nid.v, b->nodes[i].nid.v);
        assert_int_equal(a->nodes[i].role, b->nodes[i].role);
        assert_int_equal(a->nodes[i].state, b->nodes[i].state);
        assert_int_equal(a->nodes[i].instance, b->nodes[i].instance);
        assert_string_equal(a->nodes[i].address, b->nodes[i].address);
        assert_true(sh_traits_are_equal(&a->nodes[i].traits, &b->nodes[i].traits));
    }
}

/* What a follower that has a view is sent; returns the bytes, or 0: it is to be sent the whole. */
static size_t encoded(struct sh_registry *registry, uint64_t epoch, uint8_t **bytes_out)
{
    const struct sh_view *view = sh_registry_view(registry);
    shoal_nid nids[SH_CHANGES_MAX];
    size_t count = sh_registry_changed_since(registry, epoch, nids);
    if (count == SIZE_MAX)
        return 0;
    size_t size = sh_changes_size(view, nids, count);
    *bytes_out = malloc(size);
    assert_non_null(*bytes_out);
    struct sh_writer w = sh_writer_make(*bytes_out, size);
    sh_changes_put(&w, view, epoch, sh_registry_digest(registry), nids, count);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    return size;
}

/* Returns the bytes of the changes; 0: the whole view was needed. */
static size_t follow(struct sh_registry *registry, struct sh_view *view)
{
    uint8_t *bytes;
    size_t size = encoded(registry, view->epoch, &bytes);
    if (!size) {
        assert_int_equal(sh_view_copy(view, sh_registry_view(registry)), SHOAL_OK);
        return 0;
    }
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
    assert_int_equal(sh_changes_get(&r, view, view), SHOAL_OK);
    assert_true(sh_reader_done(&r));
    free(bytes);
    return size;
}

/* The node's next life begins. */
static void restart(struct sh_registry *registry, const struct sh_node *node)
{
    uint64_t life = node->instance + (UINT64_C(1) << 32);
    shoal_nid nid;
    assert_int_equal(
        sh_registry_restart(registry, 1, sh_bytes_text(node->address), life, node->nid, NULL, &nid),
        SHOAL_OK);
}

static void some_change(struct sh_registry *registry, uint64_t *random, uint64_t *instance)
{
    const struct sh_view *view = sh_registry_view(registry);
    const struct sh_node node = view->nodes[test_draw(random) % view->count];
    switch (test_draw(random) % 7) {
    case 0:
        sh_registry_fail(registry, node.nid, "drawn");
        break;
    case 1:
        if (node.role == SH_ROLE_PEER && node.state != SH_NODE_UP)
            restart(registry, &node);
        break;
    case 2:
        if (node.role == SH_ROLE_PEER)
            assert_int_equal(sh_registry_leave(registry, node.nid, node.instance), SHOAL_OK);
        break;
    case 3:
        sh_registry_epoch_lift(registry, view->epoch + test_draw(random) % 5);
        break;
    case 4:
        if (node.role == SH_ROLE_PEER && node.state != SH_NODE_UP)
            assert_int_equal(sh_registry_forget(registry, node.nid, node.instance), SHOAL_OK);
        break;
    default:
        (void)join(registry, ++*instance);
        break;
    }
}

static void followers_have_the_view(void **state)
{
    (void)state;
    uint64_t random = test_seed(UINT64_C(0x5eed)), instance = 1;
    struct sh_registry *registry = open_registry();
    struct sh_view views[FOLLOWERS] = {{0}};
    size_t by_changes = 0, whole = 0;
    for (unsigned i = 0; i < 4000; i++) {
        some_change(registry, &random, &instance);
        unsigned number = (unsigned)(test_draw(&random) % FOLLOWERS);
        if (number == 0 && test_draw(&random) % 100)
            continue; /* it is late, for more changes than are known */
        size_t size = follow(registry, &views[number]);
        by_changes += size > 0;
        whole += size == 0;
        assert_same(&views[number], sh_registry_view(registry));
    }
    assert_true(by_changes > 1000 && whole >= FOLLOWERS);
    for (unsigned i = 0; i < FOLLOWERS; i++)
        sh_view_destroy(&views[i]);
    sh_registry_destroy(registry);
}

/* A view of another registry with the same epoch is not what the changes are of: that is noticed.
 */
static void other_histories_are_noticed(void **state)
{
    (void)state;
    struct sh_registry *one = open_registry(), *other = open_registry();
    struct sh_view view = {0}, result = {0};
    (void)join(one, 11);
    (void)join(other, 12);
    assert_int_equal(sh_view_copy(&view, sh_registry_view(one)), SHOAL_OK);
    assert_int_equal(view.epoch, sh_registry_view(other)->epoch);
    (void)join(other, 13);
    uint8_t *bytes;
    size_t size = encoded(other, view.epoch, &bytes);
    assert_true(size > 0);
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
    assert_int_equal(sh_changes_get(&r, &view, &result), SHOAL_EDIFFERS);
    assert_int_equal(result.count, 0);
    for (size_t cut = 0; cut < size; cut++) {
        r = sh_reader_make(sh_bytes_make(bytes, cut));
        assert_int_equal(sh_changes_get(&r, &view, &result), SHOAL_EPROTO);
    }
    free(bytes);
    sh_view_destroy(&view);
    sh_registry_destroy(one);
    sh_registry_destroy(other);
}

static void a_change_costs_each_node_little(void **state)
{
    (void)state;
    struct sh_registry *registry = open_registry();
    struct sh_view view = {0};
    for (unsigned i = 1; i <= 1000; i++)
        (void)join(registry, i);
    assert_int_equal(follow(registry, &view), 0);
    shoal_nid nid = join(registry, 1001);
    size_t joined = follow(registry, &view);
    assert_int_equal(sh_registry_leave(registry, nid, 1001), SHOAL_OK);
    size_t left = follow(registry, &view);
    assert_int_equal(sh_registry_forget(registry, nid, 1001), SHOAL_OK);
    size_t forgotten = follow(registry, &view);
    size_t whole = sh_view_size(&view);
    print_message("1,000 nodes: a join is told each in %zu bytes, a leave in %zu, that the node is "
                  "forgotten in %zu; the view has %zu\n",
                  joined, left, forgotten, whole);
    assert_true(joined && joined <= 100 && left && left <= 100 && forgotten && forgotten <= 40);
    assert_null(sh_view_find(&view, nid));
    assert_true(whole > 20000);
    sh_view_destroy(&view);
    sh_registry_destroy(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followers_have_the_view),
        cmocka_unit_test(other_histories_are_noticed),
        cmocka_unit_test(a_change_costs_each_node_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
