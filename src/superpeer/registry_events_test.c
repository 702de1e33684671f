/* The registry's list of what became of nodes: complete, in order, and honest about its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "cluster/changes.h"
#include "superpeer/registry.h"

#define S UINT64_C(1000000000)
#define KEPT 256

static struct sh_registry *registry_make(void)
{
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    return registry;
}

static shoal_nid join(struct sh_registry *registry, uint64_t instance)
{
    char address[32];
    shoal_nid nid;
    (void)snprintf(address, sizeof address, "peer:%u", (unsigned)instance);
    assert_int_equal(
        sh_registry_join(registry, S, sh_bytes_text(address), instance, SHOAL_NID_NONE, NULL, &nid),
        SHOAL_OK);
    return nid;
}

static uint64_t epoch_of(const struct sh_registry *registry)
{
    return sh_registry_view(registry)->epoch;
}

static void all_is_told_in_order(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    uint64_t begun = epoch_of(registry), first;
    assert_int_equal(sh_registry_events_after(registry, begun, &first), 0);
    assert_int_equal(sh_registry_events_after(registry, begun - 1, &first), SIZE_MAX);
    shoal_nid nid = join(registry, 100);
    sh_registry_fail(registry, nid, "test");
    const uint64_t later = UINT64_C(1) << 32 | 7;
    shoal_nid again;
    assert_int_equal(
        sh_registry_restart(registry, S, sh_bytes_text("peer:100"), later, nid, NULL, &again),
        SHOAL_OK);
    assert_int_equal(sh_registry_leave(registry, nid, later), SHOAL_OK);
    static const enum sh_node_state states[] = {SH_NODE_UP, SH_NODE_FAILED, SH_NODE_UP,
                                                SH_NODE_LEFT};
    assert_int_equal(sh_registry_events_after(registry, begun, &first), 4);
    for (unsigned i = 0; i < 4; i++) {
        const struct sh_registry_event *event = sh_registry_event(registry, first + i);
        assert_int_equal(event->epoch, begun + 1 + i);
        assert_int_equal(event->node.nid.v, nid.v);
        assert_int_equal(event->node.state, states[i]);
    }
    assert_int_equal(sh_registry_events_after(registry, begun + 3, &first), 1);
    assert_int_equal(sh_registry_events_after(registry, begun + 4, &first), 0);
    assert_int_equal(sh_registry_events_after(registry, begun + 9, &first), 0);
    sh_registry_destroy(registry);
}

static void old_ones_are_forgotten(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    uint64_t begun = epoch_of(registry), first;
    for (uint64_t i = 1; i <= KEPT; i++)
        (void)join(registry, i);
    assert_int_equal(sh_registry_events_after(registry, begun, &first), KEPT);
    (void)join(registry, KEPT + 1);
    assert_int_equal(sh_registry_events_after(registry, begun, &first), SIZE_MAX);
    assert_int_equal(sh_registry_events_after(registry, begun + 1, &first), KEPT);
    assert_int_equal(sh_registry_event(registry, first)->epoch, begun + 2);
    assert_int_equal(sh_registry_event(registry, first + KEPT - 1)->epoch, epoch_of(registry));
    sh_registry_destroy(registry);
}

/* That a node is forgotten comes behind its end, marked, and those who know its end can be told. */
static void forgotten_ones_are_marked(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = join(registry, 100), nids[SH_CHANGES_MAX];
    sh_registry_fail(registry, nid, "test");
    uint64_t known = epoch_of(registry), first;
    assert_int_equal(sh_registry_forget(registry, nid, 100), SHOAL_OK);
    assert_int_equal(sh_registry_events_after(registry, known - 1, &first), 2);
    assert_false(sh_registry_event(registry, first)->is_forgotten);
    assert_true(sh_registry_event(registry, first + 1)->is_forgotten);
    assert_int_equal(sh_registry_changed_since(registry, known, nids), 1);
    assert_int_equal(nids[0].v, nid.v);
    sh_registry_destroy(registry);
}

/* A registry's log is named once, by the same process at each superpeer, and its image takes
 * the name along; one that is begun anew has another name. */
static void logs_have_names(void **state)
{
    (void)state;
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S};
    struct sh_registry *one, *other;
    static uint8_t image[8192];
    assert_int_equal(sh_registry_create(&config, &one), SHOAL_OK);
    assert_int_equal(sh_registry_create(&config, &other), SHOAL_OK);
    assert_int_equal(sh_registry_events_log(one), 1);
    sh_registry_events_name(one, 0);
    assert_int_equal(sh_registry_events_log(one), 1);
    sh_registry_events_name(one, 77);
    uint64_t log = sh_registry_events_log(one);
    assert_int_equal(log % 2, 0);
    sh_registry_events_name(one, 78);
    assert_int_equal(sh_registry_events_log(one), log);
    sh_registry_events_name(other, 78);
    assert_int_not_equal(sh_registry_events_log(other), log);
    size_t size = sh_registry_image_size(one);
    assert_true(size <= sizeof image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, one, 0);
    sh_registry_destroy(other);
    assert_int_equal(sh_registry_create(&config, &other), SHOAL_OK);
    assert_int_equal(sh_registry_image_load(other, S, sh_bytes_make(image, size)), SHOAL_OK);
    assert_int_equal(sh_registry_events_log(other), log);
    sh_registry_destroy(one);
    sh_registry_destroy(other);
}

static struct sh_registry *shared_copy(const struct sh_registry *of)
{
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S};
    struct sh_registry *copy;
    static uint8_t image[8192];
    assert_int_equal(sh_registry_create(&config, &copy), SHOAL_OK);
    if (!of)
        return copy;
    size_t size = sh_registry_image_size(of);
    assert_true(size <= sizeof image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, of, 0);
    assert_int_equal(sh_registry_image_load(copy, S, sh_bytes_make(image, size)), SHOAL_OK);
    return copy;
}

/* Who goes on from an image tells what came of one epoch; of more it knows no order, and who asks
 * for that is to be given the view. */
static void an_image_is_no_list(void **state)
{
    (void)state;
    uint64_t first;
    struct sh_registry *one = shared_copy(NULL);
    sh_registry_events_name(one, 77);
    struct sh_registry *early = shared_copy(one);
    join(one, 100);
    struct sh_registry *before = shared_copy(one);
    uint64_t known = epoch_of(one);
    join(one, 101);
    struct sh_registry *copy = shared_copy(one);
    sh_registry_times_take(copy, before);
    assert_int_equal(sh_registry_events_after(copy, known, &first), 1);
    assert_int_equal(sh_registry_event(copy, first)->node.instance, 101);
    sh_registry_destroy(copy);
    copy = shared_copy(one);
    sh_registry_times_take(copy, early);
    assert_int_equal(sh_registry_events_after(copy, known, &first), SIZE_MAX);
    assert_int_equal(sh_registry_events_after(copy, epoch_of(one), &first), 0);
    sh_registry_destroy(copy);
    sh_registry_destroy(before);
    sh_registry_destroy(early);
    sh_registry_destroy(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_told_in_order),      cmocka_unit_test(old_ones_are_forgotten),
        cmocka_unit_test(forgotten_ones_are_marked), cmocka_unit_test(logs_have_names),
        cmocka_unit_test(an_image_is_no_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
