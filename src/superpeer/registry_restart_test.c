/* Peers that are started again on their disks: who keeps an ID, who has to wait, and who is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "superpeer/registry.h"

#define S UINT64_C(1000000000)
#define LIFE(starts, random) (UINT64_C(starts) << 32 | (random))

static struct sh_registry *registry_make(void)
{
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    return registry;
}

static enum shoal_err restart(struct sh_registry *registry, const char *address, uint64_t life,
                              shoal_nid previous, shoal_nid *nid_out)
{
    return sh_registry_restart(registry, S, sh_bytes_text(address), life, previous, NULL, nid_out);
}

static shoal_nid first_life(struct sh_registry *registry, const char *address)
{
    shoal_nid nid;
    assert_int_equal(sh_registry_join(registry, S, sh_bytes_text(address), LIFE(1, 11),
                                      SHOAL_NID_NONE, NULL, &nid),
                     SHOAL_OK);
    return nid;
}

static const struct sh_node *node_of(const struct sh_registry *registry, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(registry), nid);
    assert_non_null(node);
    return node;
}

/* The former life is waited for; then the ID is the new one's, at whichever address, once and for good:
 * what comes late of the former life changes nothing. */
static void a_new_life_keeps_the_id(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = first_life(registry, "one:1"), got;
    assert_int_equal(restart(registry, "one:1", LIFE(2, 5), nid, &got), SHOAL_EAGAIN);
    assert_int_equal(restart(registry, "two:1", LIFE(2, 5), nid, &got), SHOAL_EAGAIN);
    sh_registry_spoke(registry, 2 * S, nid);
    sh_registry_fail(registry, nid, "test");
    uint64_t epoch = sh_registry_view(registry)->epoch;
    assert_int_equal(restart(registry, "two:1", LIFE(2, 5), nid, &got), SHOAL_OK);
    assert_int_equal(got.v, nid.v);
    assert_true(sh_registry_spoke_ns(registry, nid) == 0); /* that was the former life */
    assert_int_equal(node_of(registry, nid)->state, SH_NODE_UP);
    assert_true(node_of(registry, nid)->instance == LIFE(2, 5));
    assert_true(sh_registry_view(registry)->epoch == epoch + 1);
    assert_int_equal(restart(registry, "two:1", LIFE(2, 5), nid, &got), SHOAL_OK);
    assert_true(sh_registry_view(registry)->epoch == epoch + 1);
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(1, 11), epoch), SHOAL_EEXIST);
    /* Nor has the new life failed, whatever it knows of the view. */
    for (uint64_t known = 0; known <= epoch + 1; known += epoch + 1) {
        assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(2, 5), known), SHOAL_OK);
    }
    /* The same life elsewhere: its former process is waited for. */
    assert_int_equal(restart(registry, "three:1", LIFE(2, 5), nid, &got), SHOAL_EAGAIN);
    /* A registry that has not heard of a life yet refuses it only for now. */
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(3, 7), epoch + 4), SHOAL_EBUSY);
    assert_int_equal(sh_registry_leave(registry, nid, LIFE(1, 11)), SHOAL_EEXIST);
    assert_int_equal(
        sh_registry_join(registry, S, sh_bytes_text("one:1"), LIFE(1, 11), nid, NULL, &got),
        SHOAL_EEXIST);
    /* One that left is followed likewise, by another life. */
    assert_int_equal(sh_registry_leave(registry, nid, LIFE(2, 5)), SHOAL_OK);
    assert_int_equal(restart(registry, "one:1", LIFE(2, 5), nid, &got), SHOAL_EFENCED);
    assert_int_equal(restart(registry, "one:1", LIFE(3, 9), nid, &got), SHOAL_OK);
    assert_int_equal(got.v, nid.v);
    sh_registry_destroy(registry);
}

/* A life that the disk does not have as confirmed may be gone on with by the next process: but not once it has failed, however
 * it comes. */
static void a_failed_life_is_not_gone_on_with(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = first_life(registry, "one:1"), got;
    sh_registry_fail(registry, nid, "test");
    uint64_t epoch = sh_registry_view(registry)->epoch;
    static const char *const addresses[] = {"one:1", "two:1"};
    for (unsigned i = 0; i < 2; i++) {
        struct sh_bytes address = sh_bytes_text(addresses[i]);
        assert_int_equal(restart(registry, addresses[i], LIFE(1, 11), nid, &got), SHOAL_EFENCED);
        assert_int_equal(sh_registry_join(registry, S, address, LIFE(1, 11), nid, NULL, &got),
                         SHOAL_EFENCED);
    }
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(1, 11), epoch), SHOAL_EFENCED);
    assert_true(sh_registry_view(registry)->epoch == epoch);
    assert_int_equal(restart(registry, "one:1", LIFE(2, 5), nid, &got), SHOAL_OK);
    assert_int_equal(got.v, nid.v);
    sh_registry_destroy(registry);
}

/* A peer was started again, and the registry lacks that start, as the cluster was forced to go on without the
 * superpeers that knew of it. The peer keeps its ID once the lease of its former life is over; a process
 * of an earlier start is refused. */
static void an_unheard_start_joins_again(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = first_life(registry, "one:1"), got;
    sh_registry_fail(registry, nid, "test");
    assert_int_equal(restart(registry, "one:1", LIFE(4, 5), nid, &got), SHOAL_OK);
    uint64_t epoch = sh_registry_view(registry)->epoch;
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(5, 7), epoch), SHOAL_ENONODE);
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(3, 7), epoch), SHOAL_EEXIST);
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(4, 7), epoch), SHOAL_EEXIST);
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, 7, epoch), SHOAL_EEXIST);
    struct sh_bytes address = sh_bytes_text("one:1");
    assert_int_equal(sh_registry_join(registry, S, address, LIFE(5, 7), nid, NULL, &got),
                     SHOAL_EAGAIN);
    assert_int_equal(sh_registry_join(registry, S, address, LIFE(3, 7), nid, NULL, &got),
                     SHOAL_EEXIST);
    assert_int_equal(sh_registry_join(registry, S, address, LIFE(4, 7), nid, NULL, &got),
                     SHOAL_EEXIST);
    sh_registry_fail(registry, nid, "test");
    assert_int_equal(sh_registry_join(registry, S, address, LIFE(3, 7), nid, NULL, &got),
                     SHOAL_EEXIST);
    assert_int_equal(sh_registry_join(registry, S, address, LIFE(5, 7), nid, NULL, &got), SHOAL_OK);
    assert_int_equal(got.v, nid.v);
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(5, 7), epoch + 2), SHOAL_OK);
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(4, 5), epoch), SHOAL_EEXIST);
    sh_registry_destroy(registry);
    /* A peer without a disk has no starts, so a life with starts is another node's. */
    registry = registry_make();
    assert_int_equal(sh_registry_join(registry, S, address, 9, SHOAL_NID_NONE, NULL, &nid),
                     SHOAL_OK);
    assert_int_equal(sh_registry_heartbeat(registry, S, nid, LIFE(5, 7), 0), SHOAL_EEXIST);
    sh_registry_destroy(registry);
}

/* A disk whose life is not above the last is a copy, or an old backup, whatever became of the other. */
static void old_disks_are_refused(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = first_life(registry, "one:1"), got;
    sh_registry_fail(registry, nid, "test");
    assert_int_equal(restart(registry, "one:1", LIFE(3, 5), nid, &got), SHOAL_OK);
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(restart(registry, "two:1", LIFE(2, 6), nid, &got), SHOAL_EEXIST);
        assert_int_equal(restart(registry, "two:1", LIFE(3, 6), nid, &got), SHOAL_EEXIST);
        if (round == 0)
            sh_registry_fail(registry, nid, "test");
        else
            assert_int_equal(sh_registry_leave(registry, nid, LIFE(3, 5)), SHOAL_OK);
    }
    assert_int_equal(restart(registry, "one:1", LIFE(4, 7), (shoal_nid){1}, &got), SHOAL_EROLE);
    assert_int_equal(restart(registry, "one:1", 7, nid, &got), SHOAL_EINVAL);
    assert_int_equal(restart(registry, "", LIFE(4, 7), nid, &got), SHOAL_EINVAL);
    sh_registry_destroy(registry);
}

/* One that was forgotten has its ID still if nobody else has; and an address is one node's. */
static void forgotten_and_crowded(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = first_life(registry, "one:1"), got, other;
    sh_registry_fail(registry, nid, "test");
    assert_int_equal(
        sh_registry_join(registry, S, sh_bytes_text("one:1"), 77, SHOAL_NID_NONE, NULL, &other),
        SHOAL_OK);
    assert_int_equal(restart(registry, "one:1", LIFE(2, 5), nid, &got), SHOAL_EADDRINUSE);
    assert_int_equal(sh_registry_forget(registry, nid, LIFE(1, 11)), SHOAL_OK);
    assert_int_equal(restart(registry, "two:1", LIFE(2, 5), nid, &got), SHOAL_OK);
    assert_int_equal(got.v, nid.v);
    sh_registry_destroy(registry);
}

/* A folder of somebody who had the ID before is not taken for a later life of who has it now, however
 * often it was started; nor, when the ID is nobody's again, is either of both. */
static void an_id_of_several(void **state)
{
    (void)state;
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S, .nids = 1};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    shoal_nid nid = first_life(registry, "one:1"), got;
    assert_int_equal(sh_registry_leave(registry, nid, LIFE(1, 11)), SHOAL_OK);
    assert_int_equal(sh_registry_forget(registry, nid, LIFE(1, 11)), SHOAL_OK);
    assert_int_equal(sh_registry_join(registry, S, sh_bytes_text("two:1"), LIFE(1, 12),
                                      SHOAL_NID_NONE, NULL, &got),
                     SHOAL_OK);
    assert_int_equal(got.v, nid.v);
    sh_registry_fail(registry, nid, "test");
    assert_int_equal(restart(registry, "one:1", LIFE(9, 5), nid, &got), SHOAL_EEXIST);
    assert_int_equal(restart(registry, "two:1", LIFE(2, 5), nid, &got), SHOAL_OK);
    assert_int_equal(sh_registry_leave(registry, nid, LIFE(2, 5)), SHOAL_OK);
    assert_int_equal(sh_registry_forget(registry, nid, LIFE(2, 5)), SHOAL_OK);
    assert_int_equal(restart(registry, "one:1", LIFE(10, 5), nid, &got), SHOAL_EEXIST);
    assert_int_equal(restart(registry, "two:1", LIFE(3, 5), nid, &got), SHOAL_EEXIST);
    sh_registry_destroy(registry);
}

/* The same registry as an image has it. */
static struct sh_registry *through_an_image(const struct sh_registry *registry)
{
    size_t size = sh_registry_image_size(registry);
    uint8_t *image = malloc(size);
    assert_non_null(image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, registry, 1);
    struct sh_registry *again = registry_make();
    assert_int_equal(sh_registry_image_load(again, S, sh_bytes_make(image, size)), SHOAL_OK);
    free(image);
    return again;
}

/* Which cluster it is lasts: in its images, and when it is forced to go on; begun anew, it is another. */
static void the_cluster_lasts(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make(), *again = registry_make();
    shoal_nid nid;
    assert_true(sh_registry_cluster(registry) == 0);
    sh_registry_events_name(registry, 5);
    uint64_t cluster = sh_registry_cluster(registry);
    assert_true(cluster != 0);
    sh_registry_events_name(again, 6);
    assert_true(sh_registry_cluster(again) != cluster);
    sh_registry_destroy(again);
    assert_int_equal(
        sh_registry_superpeer_put(registry, sh_bytes_text("s:1"), 5, SHOAL_NID_NONE, &nid),
        SHOAL_OK);
    assert_int_equal(sh_registry_arcs_start(registry, nid, 7, false), SHOAL_OK);
    assert_int_equal(sh_registry_force(registry, nid, 99), SHOAL_OK);
    assert_true(sh_registry_cluster(registry) == cluster);
    again = through_an_image(registry);
    assert_true(sh_registry_cluster(again) == cluster);
    sh_registry_destroy(again);
    sh_registry_destroy(registry);
}

/* A peer that is stopped to be back is away so long, and then has failed; its life is over at once. */
static void one_that_is_away_is_waited_for(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = first_life(registry, "one:1");
    assert_int_equal(sh_registry_away(registry, 2 * S, nid, LIFE(2, 5), 90000), SHOAL_EEXIST);
    assert_int_equal(sh_registry_away(registry, 2 * S, nid, LIFE(1, 11), 90000), SHOAL_OK);
    uint64_t epoch = sh_registry_view(registry)->epoch;
    assert_int_equal(sh_registry_away(registry, 3 * S, nid, LIFE(1, 11), 50000), SHOAL_OK);
    assert_true(sh_registry_view(registry)->epoch == epoch);
    assert_int_equal(node_of(registry, nid)->state, SH_NODE_AWAY);
    assert_int_equal(node_of(registry, nid)->back_ms, 90000);
    assert_int_equal(sh_registry_heartbeat(registry, 3 * S, nid, LIFE(1, 11), epoch),
                     SHOAL_EFENCED);
    assert_false(sh_registry_watches(registry, nid));
    sh_registry_fail(registry, nid, "what was decided before it stopped");
    assert_int_equal(node_of(registry, nid)->state, SH_NODE_AWAY);
    assert_int_equal(sh_registry_forget(registry, nid, LIFE(1, 11)), SHOAL_EINVAL);
    shoal_nid other;
    assert_int_equal(sh_registry_join(registry, 2 * S, sh_bytes_text("one:1"), LIFE(1, 77),
                                      SHOAL_NID_NONE, NULL, &other),
                     SHOAL_OK); /* another node at its address, which it may not need again */
    assert_int_equal(sh_registry_gone(registry, 80 * S, S, (shoal_nid){SH_PEER_NID_MIN}).v, 0);
    assert_int_equal(sh_registry_leave(registry, other, LIFE(1, 77)), SHOAL_OK);
    assert_int_equal(sh_registry_overdue(registry, 92 * S - 1, SHOAL_NID_NONE).v, 0);
    assert_int_equal(sh_registry_overdue(registry, 92 * S, SHOAL_NID_NONE).v, nid.v);
    struct sh_registry *again = through_an_image(registry);
    assert_int_equal(node_of(again, nid)->state, SH_NODE_AWAY);
    assert_int_equal(node_of(again, nid)->back_ms, 90000);
    sh_registry_destroy(again);
    sh_registry_late(registry, nid);
    assert_int_equal(node_of(registry, nid)->state, SH_NODE_FAILED);
    assert_int_equal(node_of(registry, nid)->back_ms, 0);
    assert_int_equal(sh_registry_overdue(registry, 200 * S, SHOAL_NID_NONE).v, 0);
    sh_registry_destroy(registry);
}

/* Its next life takes its place; or it leaves for good. */
static void one_that_is_away_is_back(void **state)
{
    (void)state;
    for (unsigned is_back = 0; is_back < 2; is_back++) {
        struct sh_registry *registry = registry_make();
        shoal_nid nid = first_life(registry, "one:1"), got;
        assert_int_equal(sh_registry_away(registry, S, nid, LIFE(1, 11), 5000), SHOAL_OK);
        assert_int_equal(restart(registry, "one:1", LIFE(1, 11), nid, &got), SHOAL_EFENCED);
        if (is_back)
            assert_int_equal(restart(registry, "two:1", LIFE(2, 5), nid, &got), SHOAL_OK);
        else
            assert_int_equal(sh_registry_leave(registry, nid, LIFE(1, 11)), SHOAL_OK);
        assert_int_equal(node_of(registry, nid)->state, is_back ? SH_NODE_UP : SH_NODE_LEFT);
        assert_int_equal(node_of(registry, nid)->back_ms, 0);
        sh_registry_late(registry, nid);
        assert_int_equal(node_of(registry, nid)->state, is_back ? SH_NODE_UP : SH_NODE_LEFT);
        sh_registry_destroy(registry);
    }
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_life_keeps_the_id),
        cmocka_unit_test(a_failed_life_is_not_gone_on_with),
        cmocka_unit_test(an_unheard_start_joins_again),
        cmocka_unit_test(old_disks_are_refused),
        cmocka_unit_test(forgotten_and_crowded),
        cmocka_unit_test(an_id_of_several),
        cmocka_unit_test(the_cluster_lasts),
        cmocka_unit_test(one_that_is_away_is_waited_for),
        cmocka_unit_test(one_that_is_away_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
