/* The registry and the view, fed by hand: time, events and bytes. */
#include "base/random_test.h"
#include "superpeer/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/crew.h"
#include "base/hash.h"
#include "base/log.h"

#define MS UINT64_C(1000000)
#define FAILURE (1000 * MS)
#define START (77 * MS)

static uint64_t rng_state;

static uint64_t rng(void)
{
    rng_state += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(rng_state);
}

static struct sh_registry *registry_make(uint16_t index, uint16_t count, bool is_volatile)
{
    const char *addresses[SH_SUPERPEERS_MAX];
    for (uint16_t i = 0; i < count; i++)
        addresses[i] = "s:1";
    struct sh_registry_config config = {.cluster = "test",
                                        .addresses = addresses,
                                        .count = count,
                                        .index = index,
                                        .instance = 1000u + index,
                                        .failure_ns = FAILURE,
                                        .is_volatile = is_volatile,
                                        .seed = rng_state};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, START, &registry), SHOAL_OK);
    return registry;
}

static enum shoal_err join(struct sh_registry *registry, uint64_t now_ns, uint64_t instance,
                           uint16_t previous, shoal_nid *nid_out)
{
    char address[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "p%u:1", (unsigned)instance);
    return sh_registry_join(registry, now_ns, sh_bytes_text(address), instance,
                            (shoal_nid){previous}, nid_out);
}

static shoal_nid joined(struct sh_registry *registry, uint64_t now_ns, uint64_t instance)
{
    shoal_nid nid;
    assert_int_equal(join(registry, now_ns, instance, 0, &nid), SHOAL_OK);
    return nid;
}

static int state_of(const struct sh_registry *registry, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(registry), nid);
    return node ? (int)node->state : -1;
}

static uint64_t epoch_of(const struct sh_registry *registry)
{
    return sh_registry_view(registry)->epoch;
}

static enum shoal_err heartbeat(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid,
                                uint64_t instance)
{
    bool failed;
    return sh_registry_heartbeat(registry, now_ns, nid, instance, epoch_of(registry), &failed);
}

static void test_arcs(void **state)
{
    (void)state;
    for (uint16_t count = 1; count <= SH_SUPERPEERS_MAX; count++) {
        uint32_t next = SH_PEER_NID_MIN;
        for (uint16_t index = 0; index < count; index++) {
            assert_int_equal(sh_arc_first(index, count).v, next);
            next = sh_arc_last(index, count).v + 1u;
            assert_true(next - sh_arc_first(index, count).v >= 57280u / count);
        }
        assert_int_equal(next, SH_PEER_NID_MAX + 1);
        for (uint32_t nid = SH_PEER_NID_MIN; nid <= SH_PEER_NID_MAX; nid += 1 + nid % 7) {
            shoal_nid superpeer = sh_arc_superpeer((shoal_nid){(uint16_t)nid}, count);
            assert_true(superpeer.v >= 1 && superpeer.v <= count);
            uint16_t index = (uint16_t)(superpeer.v - 1);
            assert_true(sh_arc_first(index, count).v <= nid);
            assert_true(sh_arc_last(index, count).v >= nid);
        }
        assert_int_equal(sh_arc_superpeer((shoal_nid){63}, count).v, 0);
        assert_int_equal(sh_arc_superpeer((shoal_nid){0xE000}, count).v, 0);
    }
}

static void test_join(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make(0, 1, false);
    uint64_t epoch = epoch_of(registry);
    shoal_nid a = joined(registry, START, 11);
    shoal_nid b = joined(registry, START, 12);
    assert_int_equal(a.v, 64);
    assert_int_equal(b.v, 65);
    assert_int_equal(epoch_of(registry), epoch + 2);
    /* The same question again, because the answer was lost: the same ID, and nothing new. */
    uint64_t changes = sh_registry_changes(registry);
    assert_int_equal(joined(registry, START, 11).v, a.v);
    assert_int_equal(sh_registry_changes(registry), changes);
    shoal_nid nid;
    assert_int_equal(join(registry, START, 12, b.v, &nid), SHOAL_OK);
    assert_int_equal(nid.v, b.v);
    assert_int_equal(join(registry, START, 13, b.v, &nid), SHOAL_EEXIST);
    assert_int_equal(join(registry, START, 13, 63, &nid), SHOAL_EROLE);
    assert_int_equal(join(registry, START, 0, 0, &nid), SHOAL_EINVAL);
    assert_int_equal(heartbeat(registry, START, b, 13), SHOAL_EEXIST);
    assert_int_equal(heartbeat(registry, START, (shoal_nid){66}, 13), SHOAL_ENONODE);
    /* Another process at the address of one that is up is refused: that one may live. */
    struct sh_bytes address = sh_bytes_text("p11:1");
    changes = sh_registry_changes(registry);
    assert_int_equal(sh_registry_join(registry, START, address, 14, SHOAL_NID_NONE, &nid),
                     SHOAL_EADDRINUSE);
    assert_int_equal(state_of(registry, a), SH_NODE_UP);
    assert_int_equal(sh_registry_changes(registry), changes);
    assert_int_equal(sh_registry_holder(registry, address, 14)->nid.v, a.v);
    assert_null(sh_registry_holder(registry, address, 11));
    assert_null(sh_registry_holder(registry, sh_bytes_text("p11:11"), 14));
    /* Nor may one that is up move there. */
    assert_int_equal(sh_registry_join(registry, START, address, 12, b, &nid), SHOAL_EADDRINUSE);
    /* Once that one's lease is over it may join. */
    sh_registry_fail(registry, a, "silent");
    assert_int_equal(sh_registry_join(registry, START, address, 14, SHOAL_NID_NONE, &nid), 0);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    /* What was heard of the old one, and comes late, does not bring it back. */
    sh_registry_back(registry, a, 11);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    assert_int_equal(heartbeat(registry, START, a, 11), SHOAL_OK);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    /* Nor does its own join, done once more. */
    shoal_nid again;
    assert_int_equal(sh_registry_join(registry, START, address, 11, SHOAL_NID_NONE, &again),
                     SHOAL_EEXIST);
    assert_int_equal(sh_registry_join(registry, START, address, 11, a, &again), SHOAL_EEXIST);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    assert_int_equal(state_of(registry, nid), SH_NODE_UP);
    assert_int_equal(sh_registry_leave(registry, b, 13), SHOAL_EEXIST);
    assert_int_equal(sh_registry_leave(registry, b, 12), SHOAL_OK);
    changes = sh_registry_changes(registry);
    assert_int_equal(sh_registry_leave(registry, b, 12), SHOAL_OK);
    assert_int_equal(sh_registry_changes(registry), changes);
    assert_int_equal(heartbeat(registry, START, b, 12), SHOAL_ENONODE);
    sh_registry_destroy(registry);
}

static void test_failure(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make(0, 1, false);
    assert_true(sh_registry_due_ns(registry) == SH_NEVER);
    shoal_nid a = joined(registry, START, 11);
    shoal_nid b = joined(registry, START, 12);
    uint64_t known = epoch_of(registry);
    uint64_t now = START;
    for (unsigned i = 0; i < 9; i++) {
        now += FAILURE / 10;
        assert_int_equal(heartbeat(registry, now, b, 12), SHOAL_OK);
        assert_int_equal(sh_registry_tick(registry, now), 0);
    }
    assert_true(sh_registry_due_ns(registry) <= START + FAILURE);
    assert_int_equal(sh_registry_tick(registry, START + FAILURE - 1), 0);
    assert_int_equal(sh_registry_tick(registry, START + FAILURE), 1);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    assert_int_equal(state_of(registry, b), SH_NODE_UP);
    assert_int_equal(epoch_of(registry), known + 1);
    /* Heard again: up, and told so until its epoch shows that it has heard. */
    bool failed = false;
    assert_int_equal(sh_registry_heartbeat(registry, now, a, 11, known, &failed), SHOAL_OK);
    assert_true(failed);
    assert_int_equal(epoch_of(registry), known + 2);
    assert_int_equal(sh_registry_heartbeat(registry, now, a, 11, known, &failed), SHOAL_OK);
    assert_true(failed);
    assert_int_equal(sh_registry_heartbeat(registry, now, a, 11, known + 2, &failed), SHOAL_OK);
    assert_false(failed);
    assert_int_equal(epoch_of(registry), known + 2);
    /* We slept: nobody is blamed for it. */
    now = START + 50 * FAILURE;
    assert_int_equal(sh_registry_tick(registry, now), 0);
    for (unsigned i = 0; i < 20 && state_of(registry, b) == SH_NODE_UP; i++)
        (void)sh_registry_tick(registry, now += FAILURE / 10);
    assert_int_equal(state_of(registry, b), SH_NODE_FAILED);
    sh_registry_destroy(registry);
}

static void test_ids_run_out(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make(5, SH_SUPERPEERS_MAX, true);
    uint32_t arc = sh_arc_last(5, SH_SUPERPEERS_MAX).v - sh_arc_first(5, SH_SUPERPEERS_MAX).v + 1u;
    static char seen[65536];
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < arc; i++) {
        shoal_nid nid = joined(registry, START, 5 + i);
        assert_int_equal(sh_arc_superpeer(nid, SH_SUPERPEERS_MAX).v, 6);
        assert_false(seen[nid.v]);
        seen[nid.v] = 1;
    }
    shoal_nid nid;
    assert_int_equal(join(registry, START, 5000, 0, &nid), SHOAL_ELIMIT);
    /* A failed node keeps its ID, one that left does not. */
    shoal_nid failed = joined(registry, START, 7);
    sh_registry_fail(registry, failed, "test");
    assert_int_equal(join(registry, START, 5000, 0, &nid), SHOAL_ELIMIT);
    shoal_nid left = joined(registry, START, 8);
    assert_int_equal(sh_registry_leave(registry, left, 8), SHOAL_OK);
    assert_int_equal(joined(registry, START, 5000).v, left.v);
    /* Nor does one that the ring knows. */
    sh_registry_moved_set(registry, left);
    assert_true(sh_registry_is_moved(registry, left));
    assert_int_equal(sh_registry_leave(registry, left, 5000), SHOAL_OK);
    assert_int_equal(join(registry, START, 5001, 0, &nid), SHOAL_ELIMIT);
    sh_registry_destroy(registry);
}

/* A superpeer without a disk finds out that it was restarted, and waits for its members. */
static void test_settling(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make(0, 1, true);
    sh_registry_epoch_known(registry, START + MS, UINT64_MAX); /* nonsense */
    assert_true(epoch_of(registry) < 10);
    sh_registry_epoch_known(registry, START + MS, 1234);
    assert_true(epoch_of(registry) > 1234);
    assert_true(sh_registry_settling(registry));
    shoal_nid nid;
    assert_int_equal(join(registry, START + MS, 77, 500, &nid), SHOAL_OK);
    assert_int_equal(nid.v, 500);
    for (uint64_t now = START; now < START + FAILURE; now += FAILURE / 10)
        (void)sh_registry_tick(registry, now);
    assert_true(sh_registry_settling(registry));
    assert_true(sh_registry_due_ns(registry) <= START + FAILURE);
    (void)sh_registry_tick(registry, START + FAILURE);
    assert_false(sh_registry_settling(registry));
    sh_registry_destroy(registry);
}

static struct sh_bytes table_of(const struct sh_registry *registry)
{
    size_t size = sh_registry_table_size(registry);
    uint8_t *bytes = malloc(size);
    struct sh_writer w = sh_writer_make(bytes, size);
    sh_registry_table_put(&w, registry);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    return sh_bytes_make(bytes, size);
}

static void test_tables(void **state)
{
    (void)state;
    struct sh_registry *first = registry_make(0, 2, false);
    struct sh_registry *second = registry_make(1, 2, false);
    shoal_nid a = joined(first, START, 11);
    shoal_nid b = joined(second, START, 12);
    struct sh_bytes table = table_of(second);
    struct sh_reader r = sh_reader_make(table);
    uint64_t version = sh_registry_version(second, 1);
    assert_int_equal(sh_registry_table_get(first, 1, version, &r), SHOAL_OK);
    assert_int_equal(state_of(first, a), SH_NODE_UP);
    assert_int_equal(state_of(first, b), SH_NODE_UP);
    assert_int_equal(epoch_of(first), sh_registry_version(first, 0) + version);
    /* Any shorter table, or one of the wrong arc, changes nothing. */
    uint64_t epoch = epoch_of(first);
    for (size_t size = 0; size < table.size; size++) {
        r = sh_reader_make(sh_bytes_make(table.at, size));
        assert_int_equal(sh_registry_table_get(first, 1, version + 1, &r), SHOAL_EPROTO);
    }
    struct sh_bytes wrong = table_of(first);
    r = sh_reader_make(wrong);
    assert_int_equal(sh_registry_table_get(first, 1, version + 1, &r), SHOAL_EPROTO);
    assert_int_equal(epoch_of(first), epoch);
    assert_int_equal(sh_registry_version(first, 1), version);
    /* A superpeer that lost its memory steps over what the other one holds. */
    struct sh_registry *again = registry_make(1, 2, true);
    sh_registry_superpeer_heard(again, START, 0, 999);
    assert_true(sh_registry_version(again, 1) > 999);
    assert_true(sh_registry_settling(again));
    /* A silent superpeer is declared failed, here only, and is back when heard. */
    for (uint64_t now = START; now <= START + FAILURE; now += FAILURE / 10)
        (void)sh_registry_tick(again, now);
    assert_int_equal(state_of(again, (shoal_nid){1}), SH_NODE_FAILED);
    assert_int_equal(state_of(again, (shoal_nid){2}), SH_NODE_UP);
    sh_registry_superpeer_heard(again, START + FAILURE, 0, 0);
    assert_int_equal(state_of(again, (shoal_nid){1}), SH_NODE_UP);
    free((void *)table.at);
    free((void *)wrong.at);
    sh_registry_destroy(first);
    sh_registry_destroy(second);
    sh_registry_destroy(again);
}

/* A shared registry's image has the ring's table, and the IDs that the ring knows. */
static void test_shared_image(void **state)
{
    (void)state;
    struct sh_registry_config config = {
        .cluster = "test", .failure_ns = FAILURE, .is_shared = true};
    struct sh_registry *registry, *again;
    assert_int_equal(sh_registry_create(&config, START, &registry), SHOAL_OK);
    shoal_nid superpeer;
    assert_int_equal(
        sh_registry_superpeer_put(registry, sh_bytes_text("s1:1"), 5, SHOAL_NID_NONE, &superpeer),
        SHOAL_OK);
    assert_int_equal(sh_registry_arcs_start(registry, superpeer, 7, false), SHOAL_OK);
    shoal_nid one = joined(registry, START, 11), other = joined(registry, START, 12);
    sh_registry_moved_set(registry, one);
    uint64_t changes = sh_registry_changes(registry);
    sh_registry_moved_set(registry, one);
    sh_registry_moved_set(registry, superpeer); /* no peer's ID: of no effect */
    assert_true(sh_registry_changes(registry) == changes);
    size_t size = sh_registry_image_size(registry);
    uint8_t *image = malloc(size);
    assert_non_null(image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, registry, 1);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    uint64_t sequence;
    assert_int_equal(sh_registry_image_check(sh_bytes_make(image, size), &sequence), SHOAL_OK);
    assert_int_equal(sh_registry_create(&config, START, &again), SHOAL_OK);
    assert_int_equal(sh_registry_image_load(again, START, sh_bytes_make(image, size)), SHOAL_OK);
    assert_true(sh_registry_is_moved(again, one));
    assert_false(sh_registry_is_moved(again, other));
    assert_memory_equal(sh_registry_arcs(again), sh_registry_arcs(registry),
                        sizeof(struct sh_arcs));
    free(image);
    sh_registry_destroy(registry);
    sh_registry_destroy(again);
}

static void test_image(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make(0, 1, false);
    shoal_nid a = joined(registry, START, 11);
    shoal_nid b = joined(registry, START, 12);
    shoal_nid c = joined(registry, START, 13);
    assert_int_equal(sh_registry_leave(registry, b, 12), SHOAL_OK);
    sh_registry_fail(registry, c, "test");
    size_t size = sh_registry_image_size(registry);
    uint8_t *image = calloc(1, size + 8);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, registry, 42);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    uint64_t sequence;
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(sh_registry_image_check(sh_bytes_make(image, cut), &sequence),
                         SHOAL_ECORRUPT);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        image[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(sh_registry_image_check(sh_bytes_make(image, size), &sequence),
                         SHOAL_ECORRUPT);
        image[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* With the rest of a longer image behind it. */
    struct sh_bytes whole = sh_bytes_make(image, size + 8);
    assert_int_equal(sh_registry_image_check(whole, &sequence), SHOAL_OK);
    assert_int_equal(sequence, 42);
    struct sh_registry *again = registry_make(0, 1, false);
    assert_int_equal(sh_registry_image_load(again, START, whole), SHOAL_OK);
    assert_int_equal(state_of(again, a), SH_NODE_UP);
    assert_int_equal(state_of(again, b), SH_NODE_LEFT);
    assert_int_equal(state_of(again, c), SH_NODE_FAILED);
    assert_true(epoch_of(again) > epoch_of(registry) + 1000);
    assert_int_equal(joined(again, START, 14).v, c.v + 1);
    assert_int_equal(joined(again, START, 11).v, a.v);
    struct sh_registry *other = registry_make(0, 2, false);
    assert_int_equal(sh_registry_image_load(other, START, whole), SHOAL_ECLUSTER);
    free(image);
    sh_registry_destroy(registry);
    sh_registry_destroy(again);
    sh_registry_destroy(other);
}

/* --- Views ---------------------------------------------------------------------------------- */

static struct sh_view random_view(size_t count)
{
    struct sh_view view = {.epoch = rng(), .superpeers = 2};
    for (size_t i = 0; i < count; i++) {
        struct sh_node node = {.nid = {(uint16_t)(1 + rng() % 200)},
                               .state = (enum sh_node_state)(rng() % 3),
                               .instance = rng() % 2};
        node.role = node.nid.v < SH_PEER_NID_MIN ? SH_ROLE_SUPERPEER : SH_ROLE_PEER;
        (void)snprintf(node.address, sizeof node.address, "h%u:%u", node.nid.v,
                       (unsigned)(rng() % 2));
        assert_int_equal(sh_view_put(&view, &node), SHOAL_OK);
    }
    return view;
}

struct patch {
    struct sh_view *view;
    unsigned last;
};

static void patch_one(void *arg, const struct sh_node *old, const struct sh_node *new)
{
    struct patch *patch = arg;
    unsigned nid = new ? new->nid.v : old->nid.v;
    assert_true(nid > patch->last);
    patch->last = nid;
    assert_int_equal(old != NULL, sh_view_find(patch->view, (shoal_nid){(uint16_t)nid}) != NULL);
    if (new)
        assert_int_equal(sh_view_put(patch->view, new), SHOAL_OK);
    else
        sh_view_drop(patch->view, old->nid);
}

static uint8_t *encoded(const struct sh_view *view, size_t *size_out)
{
    *size_out = sh_view_size(view);
    uint8_t *bytes = malloc(*size_out);
    struct sh_writer w = sh_writer_make(bytes, *size_out);
    sh_view_put_all(&w, view);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    return bytes;
}

/* What diff tells, applied to the old view, gives the new one; and bytes come back as they were. */
static void test_view(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct sh_view before = random_view(rng() % 60);
        struct sh_view after = random_view(rng() % 60);
        struct patch patch = {&before, 0};
        struct sh_view old = {0};
        assert_int_equal(sh_view_copy(&old, &before), SHOAL_OK);
        sh_view_diff(&old, &after, patch_one, &patch);
        before.epoch = after.epoch;
        size_t size, size_patched;
        uint8_t *bytes = encoded(&after, &size);
        uint8_t *patched = encoded(&before, &size_patched);
        assert_int_equal(size, size_patched);
        assert_memory_equal(bytes, patched, size);
        struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
        assert_int_equal(sh_view_get(&r, &old), SHOAL_OK);
        assert_true(sh_reader_done(&r));
        free(patched);
        patched = encoded(&old, &size_patched);
        assert_int_equal(size, size_patched);
        assert_memory_equal(bytes, patched, size);
        for (size_t cut = 0; cut < size; cut += 1 + rng() % 5) {
            r = sh_reader_make(sh_bytes_make(bytes, cut));
            assert_int_equal(sh_view_get(&r, &old), SHOAL_EPROTO);
        }
        free(bytes);
        free(patched);
        sh_view_destroy(&old);
        sh_view_destroy(&before);
        sh_view_destroy(&after);
    }
}

static void refused(uint8_t *bytes, size_t size, size_t at, uint8_t value)
{
    uint8_t kept = bytes[at];
    bytes[at] = value;
    struct sh_view view = {0};
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
    assert_int_equal(sh_view_get(&r, &view), SHOAL_EPROTO);
    assert_null(view.nodes);
    bytes[at] = kept;
}

static void test_hostile_view(void **state)
{
    (void)state;
    struct sh_view view = {.epoch = 1, .superpeers = 1};
    struct sh_node nodes[] = {{.nid = {1}, .role = SH_ROLE_SUPERPEER, .address = "a:1"},
                              {.nid = {64}, .role = SH_ROLE_PEER, .address = "b:1"}};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sh_view_put(&view, &nodes[i]), SHOAL_OK);
    size_t size;
    uint8_t *bytes = encoded(&view, &size);
    size_t second = 12 + 14 + 3;
    refused(bytes, size, 8, 0);             /* no superpeer */
    refused(bytes, size, 8, 64);            /* too many */
    refused(bytes, size, 11, 0xFF);         /* more nodes than bytes */
    refused(bytes, size, 12, 0);            /* ID 0 */
    refused(bytes, size, 12, 65);           /* a superpeer with a peer's ID */
    refused(bytes, size, 14, 3);            /* role */
    refused(bytes, size, 15, 3);            /* state */
    refused(bytes, size, 24, 0);            /* no address */
    refused(bytes, size, 25, 1);            /* an address beyond the end */
    refused(bytes, size, 26, 0);            /* a NUL in the address */
    refused(bytes, size, second, 1);        /* a peer with a superpeer's ID */
    refused(bytes, size, second + 1, 0xE0); /* no node's ID */
    free(bytes);
    sh_view_destroy(&view);
}

/* Many claims, each just credible, never wrap the epoch. */
static void test_claims(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make(0, 1, false);
    for (int i = 0; i < 600; i++) {
        uint64_t before = epoch_of(registry);
        sh_registry_epoch_known(registry, START, before + (UINT64_C(1) << 56) - 1);
        assert_true(epoch_of(registry) >= before);
    }
    assert_true(epoch_of(registry) <= UINT64_C(1) << 63);
    sh_registry_destroy(registry);
}

static shoal_nid superpeer_started(struct sh_registry *registry, const char *address, uint32_t life)
{
    shoal_nid nid;
    assert_int_equal(
        sh_registry_superpeer_put(registry, sh_bytes_text(address), life, SHOAL_NID_NONE, &nid),
        SHOAL_OK);
    assert_int_equal(sh_registry_arcs_start(registry, nid, life, false), SHOAL_OK);
    return nid;
}

/* A disk is declared lost only while its superpeer is away; a cluster that is forced has no other
 * superpeer left, an epoch above any, and events that nobody has heard of. */
static void test_lost_and_forced(void **state)
{
    (void)state;
    struct sh_registry_config config = {
        .cluster = "test", .failure_ns = FAILURE, .is_shared = true};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, START, &registry), SHOAL_OK);
    sh_registry_events_name(registry, 5);
    shoal_nid one = superpeer_started(registry, "s1:1", 7);
    shoal_nid two = superpeer_started(registry, "s2:1", 8);
    shoal_nid peer = joined(registry, START, 11);
    assert_int_equal(sh_registry_superpeer_lost(registry, one), SHOAL_EINVAL);
    assert_int_equal(sh_registry_superpeer_lost(registry, peer), SHOAL_ENONODE);
    assert_int_equal(sh_registry_superpeer_set(registry, one, SH_NODE_FAILED), SHOAL_OK);
    assert_int_equal(sh_registry_superpeer_lost(registry, one), SHOAL_OK);
    assert_int_equal(sh_registry_arcs_start(registry, one, UINT64_C(2) << 32 | 7, false),
                     SHOAL_EDIFFERS);
    assert_int_equal(sh_registry_arcs_start(registry, one, 9, false), SHOAL_OK); /* a new disk */
    uint64_t epoch = epoch_of(registry), log = sh_registry_events_log(registry);
    assert_int_equal(sh_registry_force(registry, peer, 77), SHOAL_ENONODE);
    assert_int_equal(sh_registry_force(registry, two, 77), SHOAL_OK);
    assert_int_equal(state_of(registry, one), SH_NODE_LEFT);
    assert_int_equal(state_of(registry, two), SH_NODE_UP);
    assert_int_equal(state_of(registry, peer), SH_NODE_UP);
    assert_true(epoch_of(registry) > epoch + (UINT64_C(1) << 31));
    assert_true(sh_registry_events_log(registry) != log);
    assert_int_equal(sh_registry_arcs(registry)->up, sh_arc_bit(two.v));
    sh_registry_destroy(registry);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    rng_state = test_seed((uint64_t)time(NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arcs),     cmocka_unit_test(test_join),
        cmocka_unit_test(test_failure),  cmocka_unit_test(test_ids_run_out),
        cmocka_unit_test(test_settling), cmocka_unit_test(test_tables),
        cmocka_unit_test(test_image),    cmocka_unit_test(test_shared_image),
        cmocka_unit_test(test_view),     cmocka_unit_test(test_hostile_view),
        cmocka_unit_test(test_claims),   cmocka_unit_test(test_lost_and_forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
