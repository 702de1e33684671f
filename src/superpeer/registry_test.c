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

static struct sh_registry *registry_make(void)
{
    struct sh_registry_config config = {.cluster = "test", .failure_ns = FAILURE};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    return registry;
}

static enum shoal_err join(struct sh_registry *registry, uint64_t now_ns, uint64_t instance,
                           uint16_t previous, shoal_nid *nid_out)
{
    char address[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "p%u:1", (unsigned)instance);
    return sh_registry_join(registry, now_ns, sh_bytes_text(address), instance,
                            (shoal_nid){previous}, NULL, nid_out);
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
    return sh_registry_heartbeat(registry, now_ns, nid, instance, epoch_of(registry));
}

static void test_join(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
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
    assert_int_equal(sh_registry_join(registry, START, address, 14, SHOAL_NID_NONE, NULL, &nid),
                     SHOAL_EADDRINUSE);
    assert_int_equal(state_of(registry, a), SH_NODE_UP);
    assert_int_equal(sh_registry_changes(registry), changes);
    assert_int_equal(sh_view_holder(sh_registry_view(registry), address, 14)->nid.v, a.v);
    assert_null(sh_view_holder(sh_registry_view(registry), address, 11));
    assert_null(sh_view_holder(sh_registry_view(registry), sh_bytes_text("p11:11"), 14));
    /* Nor may one that is up move there. */
    assert_int_equal(sh_registry_join(registry, START, address, 12, b, NULL, &nid),
                     SHOAL_EADDRINUSE);
    /* Once that one's lease is over it may join. */
    sh_registry_fail(registry, a, "silent");
    assert_int_equal(sh_registry_join(registry, START, address, 14, SHOAL_NID_NONE, NULL, &nid), 0);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    assert_int_equal(heartbeat(registry, START, a, 11), SHOAL_EFENCED);
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

/* A node is overdue failure_ns after it was heard last; one that has failed is told so, however often it
 * asks and whatever it knows, and is not heard. */
static void test_failure(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid a = joined(registry, START, 11);
    shoal_nid b = joined(registry, START, 12);
    uint64_t known = epoch_of(registry), now = START + FAILURE;
    assert_int_equal(heartbeat(registry, now - 1, b, 12), SHOAL_OK);
    assert_int_equal(sh_registry_overdue(registry, now - 1, SHOAL_NID_NONE).v, 0);
    assert_int_equal(sh_registry_overdue(registry, now, SHOAL_NID_NONE).v, a.v);
    assert_int_equal(sh_registry_overdue(registry, now, b).v, 0);
    sh_registry_fail(registry, a, "silent");
    assert_int_equal(sh_registry_overdue(registry, now, SHOAL_NID_NONE).v, 0);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    assert_int_equal(state_of(registry, b), SH_NODE_UP);
    assert_int_equal(epoch_of(registry), known + 1);
    uint64_t changes = sh_registry_changes(registry);
    for (uint64_t epoch = known - 1; epoch <= known + 2; epoch++)
        assert_int_equal(sh_registry_heartbeat(registry, now, a, 11, epoch), SHOAL_EFENCED);
    assert_true(sh_registry_heard_ns(registry, a) == START);
    assert_true(sh_registry_spoke_ns(registry, a) == 0);
    assert_int_equal(state_of(registry, a), SH_NODE_FAILED);
    assert_int_equal(sh_registry_changes(registry), changes);
    sh_registry_destroy(registry);
}

/* Nor do its joins bring a life back that failed or has left: not with the ID nor without, not at its address, which
 * somebody else may have by now, nor at another one. Its process joins as another life. */
static void a_life_that_is_over_never_is_up(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid failed = joined(registry, START, 11), left = joined(registry, START, 12), nid;
    struct sh_bytes elsewhere = sh_bytes_text("elsewhere:1");
    sh_registry_fail(registry, failed, "silent");
    assert_int_equal(sh_registry_leave(registry, left, 12), SHOAL_OK);
    uint64_t changes = sh_registry_changes(registry);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(join(registry, START, 11, 0, &nid), SHOAL_EFENCED);
        assert_int_equal(join(registry, START, 11, failed.v, &nid), SHOAL_EFENCED);
        assert_int_equal(sh_registry_join(registry, START, elsewhere, 11, failed, NULL, &nid),
                         SHOAL_EFENCED);
        assert_int_equal(join(registry, START, 12, 0, &nid), SHOAL_EFENCED);
        assert_int_equal(join(registry, START, 12, left.v, &nid), SHOAL_EFENCED);
        assert_int_equal(heartbeat(registry, START, failed, 11), SHOAL_EFENCED);
        assert_int_equal(heartbeat(registry, START, left, 12), SHOAL_ENONODE);
        assert_int_equal(state_of(registry, failed), SH_NODE_FAILED);
        assert_int_equal(state_of(registry, left), SH_NODE_LEFT);
        assert_int_equal(sh_registry_changes(registry), changes);
        /* Now others are at their addresses: the processes' next lives. */
        for (uint64_t instance = 13; !round && instance < 15; instance++) {
            struct sh_bytes address = sh_bytes_text(instance == 13 ? "p11:1" : "p12:1");
            assert_int_equal(
                sh_registry_join(registry, START, address, instance, SHOAL_NID_NONE, NULL, &nid),
                SHOAL_OK);
            assert_true(nid.v > left.v);
        }
        changes = sh_registry_changes(registry);
    }
    /* A failed node may say that its process ends. */
    assert_int_equal(sh_registry_leave(registry, failed, 11), SHOAL_OK);
    assert_int_equal(state_of(registry, failed), SH_NODE_LEFT);
    assert_int_equal(join(registry, START, 11, failed.v, &nid), SHOAL_EFENCED);
    sh_registry_destroy(registry);
}

static void test_ids_run_out(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    static char seen[65536];
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < SH_PEER_NIDS; i++) {
        shoal_nid nid = joined(registry, START, 5 + i);
        assert_false(seen[nid.v]);
        seen[nid.v] = 1;
    }
    shoal_nid nid;
    assert_int_equal(join(registry, START, 500000, 0, &nid), SHOAL_ELIMIT);
    /* Failed nodes and those that left keep their IDs until they are forgotten. */
    shoal_nid failed = joined(registry, START, 7);
    sh_registry_fail(registry, failed, "test");
    assert_int_equal(join(registry, START, 500000, 0, &nid), SHOAL_ELIMIT);
    shoal_nid left = joined(registry, START, 8);
    assert_int_equal(sh_registry_leave(registry, left, 8), SHOAL_OK);
    assert_int_equal(join(registry, START, 500000, 0, &nid), SHOAL_ELIMIT);
    assert_int_equal(sh_registry_forget(registry, left, 8), SHOAL_OK);
    assert_int_equal(joined(registry, START, 500000).v, left.v);
    assert_int_equal(join(registry, START, 500001, 0, &nid), SHOAL_ELIMIT);
    sh_registry_destroy(registry);
}

/* A registry's image has the ring's table. */
static void test_shared_image(void **state)
{
    (void)state;
    struct sh_registry_config config = {.cluster = "test", .failure_ns = FAILURE};
    struct sh_registry *registry, *again;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    shoal_nid superpeer;
    assert_int_equal(
        sh_registry_superpeer_put(registry, sh_bytes_text("s1:1"), 5, SHOAL_NID_NONE, &superpeer),
        SHOAL_OK);
    assert_int_equal(sh_registry_arcs_start(registry, superpeer, 7, false), SHOAL_OK);
    size_t size = sh_registry_image_size(registry);
    uint8_t *image = malloc(size);
    assert_non_null(image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, registry, 1);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    uint64_t sequence;
    assert_int_equal(sh_registry_image_check(sh_bytes_make(image, size), &sequence), SHOAL_OK);
    assert_int_equal(sh_registry_create(&config, &again), SHOAL_OK);
    assert_int_equal(sh_registry_image_load(again, START, sh_bytes_make(image, size)), SHOAL_OK);
    assert_memory_equal(sh_registry_arcs(again), sh_registry_arcs(registry),
                        sizeof(struct sh_arcs));
    free(image);
    sh_registry_destroy(registry);
    sh_registry_destroy(again);
}

static void test_image(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
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
    struct sh_registry *again = registry_make();
    assert_int_equal(sh_registry_image_load(again, START, whole), SHOAL_OK);
    assert_int_equal(state_of(again, a), SH_NODE_UP);
    assert_int_equal(state_of(again, b), SH_NODE_LEFT);
    assert_int_equal(state_of(again, c), SH_NODE_FAILED);
    assert_true(epoch_of(again) >= epoch_of(registry));
    assert_int_equal(joined(again, START, 14).v, c.v + 1);
    assert_int_equal(joined(again, START, 11).v, a.v);
    struct sh_registry_config config = {.cluster = "other", .failure_ns = FAILURE};
    struct sh_registry *other;
    assert_int_equal(sh_registry_create(&config, &other), SHOAL_OK);
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
        node.traits.keeps_replicas = node.role == SH_ROLE_PEER && rng() % 2;
        node.traits.keeps_chunks = node.role == SH_ROLE_PEER && rng() % 2;
        for (unsigned k = 0; node.role == SH_ROLE_PEER && k < SH_DOMAINS; k++)
            (void)snprintf(node.traits.domains[k], SH_DOMAIN_NAME_MAX, "%s",
                           rng() % 2 ? "row2-rack7" : "");
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
    size_t second = 12 + 15 + 3;
    refused(bytes, size, 8, 0);       /* no superpeer */
    refused(bytes, size, 8, 64);      /* too many */
    refused(bytes, size, 11, 0xFF);   /* more nodes than bytes */
    refused(bytes, size, 12, 0);      /* ID 0 */
    refused(bytes, size, 12, 65);     /* a superpeer with a peer's ID */
    refused(bytes, size, 14, 3);      /* role */
    refused(bytes, size, 15, 3);      /* state */
    refused(bytes, size, 24, 0);      /* no address */
    refused(bytes, size, 25, 1);      /* an address beyond the end */
    refused(bytes, size, 26, 0);      /* a NUL in the address */
    refused(bytes, size, 26, '\x1f'); /* other control characters */
    refused(bytes, size, 27, '\x7f');
    refused(bytes, size, 29, 1);            /* a superpeer that keeps replicas */
    refused(bytes, size, size - 1, 64);     /* an unknown trait */
    refused(bytes, size, size - 1, 2);      /* a name that is not there */
    refused(bytes, size, second, 1);        /* a peer with a superpeer's ID */
    refused(bytes, size, second + 1, 0xE0); /* no node's ID */
    free(bytes);
    sh_view_destroy(&view);
}

/* Nobody gets into the registry with an address that nobody could decode. */
static void test_hostile_address(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    char too_long[SH_MSG_ADDRESS_MAX + 1];
    memset(too_long, 'a', sizeof too_long);
    const struct sh_bytes addresses[] = {
        {NULL, 0},
        sh_bytes_make("a\0b", 3),
        sh_bytes_text("p1:1\x1b[2J"),
        sh_bytes_text("\x7f:1"),
        sh_bytes_make(too_long, SH_MSG_ADDRESS_MAX),
    };
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        shoal_nid nid;
        uint64_t changes = sh_registry_changes(registry);
        assert_int_equal(
            sh_registry_join(registry, START, addresses[i], 11, SHOAL_NID_NONE, NULL, &nid),
            SHOAL_EINVAL);
        assert_int_equal(
            sh_registry_restart(registry, START, addresses[i], 11, SHOAL_NID_NONE, NULL, &nid),
            SHOAL_EINVAL);
        assert_int_equal(
            sh_registry_superpeer_put(registry, addresses[i], 11, SHOAL_NID_NONE, &nid),
            SHOAL_EINVAL);
        assert_int_equal(sh_registry_changes(registry), changes);
    }
    sh_registry_destroy(registry);
}

/* Many claims, each just credible, never wrap the epoch. */
static void test_claims(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    for (int i = 0; i < 600; i++) {
        uint64_t before = epoch_of(registry);
        sh_registry_epoch_lift(registry, before + (UINT64_C(1) << 56) - 1);
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
    struct sh_registry *registry = registry_make();
    sh_registry_events_name(registry, 5);
    shoal_nid one = superpeer_started(registry, "s1:1", 7);
    shoal_nid two = superpeer_started(registry, "s2:1", 8);
    shoal_nid peer = joined(registry, START, 11);
    /* A peer's address is no superpeer's. */
    shoal_nid nid;
    assert_int_equal(
        sh_registry_superpeer_put(registry, sh_bytes_text("p11:1"), 9, SHOAL_NID_NONE, &nid),
        SHOAL_EADDRINUSE);
    assert_int_equal(sh_registry_superpeer_lost(registry, one), SHOAL_EINVAL);
    assert_int_equal(sh_registry_superpeer_lost(registry, peer), SHOAL_ENONODE);
    assert_int_equal(sh_registry_superpeer_set(registry, one, SH_NODE_FAILED), SHOAL_OK);
    assert_int_equal(sh_registry_superpeer_lost(registry, one), SHOAL_OK);
    assert_int_equal(sh_registry_arcs_start(registry, one, UINT64_C(2) << 32 | 7, false),
                     SHOAL_EDIFFERS);
    assert_int_equal(sh_registry_arcs_start(registry, one, 9, false), SHOAL_OK); /* a new disk */
    /* A superpeer that starts is up: else the leader would never call it failed. */
    assert_int_equal(state_of(registry, one), SH_NODE_UP);
    assert_int_equal(sh_registry_superpeer_set(registry, one, SH_NODE_FAILED), SHOAL_OK);
    assert_int_equal(sh_registry_arcs(registry)->present, sh_arc_bit(two.v));
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

/* A peer's disk is declared lost only while the peer is not up; the next life of the peer has a disk again. */
static void test_peer_lost(void **state)
{
    (void)state;
    const uint64_t life = UINT64_C(1) << 32 | 5, next = UINT64_C(2) << 32 | 5;
    struct sh_registry *registry = registry_make(), *again = registry_make();
    shoal_nid one = superpeer_started(registry, "s1:1", 7), nid;
    assert_int_equal(sh_registry_restart(registry, START, sh_bytes_text("p:1"), life,
                                         (shoal_nid){70}, NULL, &nid),
                     SHOAL_OK);
    assert_int_equal(sh_registry_peer_lost(registry, nid), SHOAL_EINVAL);
    assert_int_equal(sh_registry_peer_lost(registry, (shoal_nid){71}), SHOAL_ENONODE);
    assert_int_equal(sh_registry_peer_lost(registry, one), SHOAL_ENONODE);
    sh_registry_fail(registry, nid, "a test");
    uint64_t epoch = epoch_of(registry), digest = sh_registry_digest(registry);
    for (unsigned i = 0; i < 2; i++) { /* once more it changes nothing */
        assert_int_equal(sh_registry_peer_lost(registry, nid), SHOAL_OK);
        assert_int_equal(epoch_of(registry), epoch + 1);
    }
    assert_true(sh_registry_digest(registry) != digest);
    assert_int_equal(state_of(registry, nid), SH_NODE_FAILED);
    uint8_t image[SH_ARCS_BYTES + 512];
    struct sh_writer w = sh_writer_make(image, sizeof image);
    sh_registry_image_put(&w, registry, 1);
    assert_true(sh_writer_ok(&w));
    assert_int_equal(
        sh_registry_image_load(again, START, sh_bytes_make(image, (size_t)(w.at - image))),
        SHOAL_OK);
    assert_true(sh_view_find(sh_registry_view(again), nid)->is_disk_lost);
    assert_int_equal(sh_registry_digest(again), sh_registry_digest(registry));
    assert_int_equal(sh_registry_restart(again, START, sh_bytes_text("p:1"), next, nid, NULL, &nid),
                     SHOAL_OK);
    assert_false(sh_view_find(sh_registry_view(again), nid)->is_disk_lost);
    sh_registry_destroy(again);
    sh_registry_destroy(registry);
}

/* Only a peer that is not up can have lost its disk. */
static void test_node_lost_bytes(void **state)
{
    (void)state;
    struct sh_node node = {.nid = {70},
                           .role = SH_ROLE_PEER,
                           .state = SH_NODE_LEFT,
                           .instance = 1,
                           .address = "p:1",
                           .is_disk_lost = true},
                   read;
    for (unsigned i = 0; i < 3; i++) {
        uint8_t bytes[64];
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        node.state = i == 1 ? SH_NODE_UP : SH_NODE_LEFT;
        node.nid.v = i == 2 ? 3 : 70;
        node.role = i == 2 ? SH_ROLE_SUPERPEER : SH_ROLE_PEER;
        sh_node_put(&w, &node);
        assert_true(sh_writer_ok(&w));
        struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, (size_t)(w.at - bytes)));
        assert_int_equal(sh_node_get(&r, &read), i ? SHOAL_EPROTO : SHOAL_OK);
    }
    assert_true(read.is_disk_lost && read.state == SH_NODE_LEFT);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    rng_state = test_seed((uint64_t)time(NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(a_life_that_is_over_never_is_up),
        cmocka_unit_test(test_ids_run_out),
        cmocka_unit_test(test_image),
        cmocka_unit_test(test_shared_image),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_hostile_view),
        cmocka_unit_test(test_hostile_address),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_lost_and_forced),
        cmocka_unit_test(test_peer_lost),
        cmocka_unit_test(test_node_lost_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
