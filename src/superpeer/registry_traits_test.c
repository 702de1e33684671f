/* The traits of peers in the registry: told at a join, replaced by the next life, kept in images, and read from
 * the images and entries of before as not known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "cluster/changes.h"
#include "superpeer/registry.h"

#define S UINT64_C(1000000000)
#define LIFE(starts, random) ((uint64_t)(starts) << 32 | (random))

static const struct sh_traits none;
static const struct sh_traits first = {.keeps_replicas = true, .domains = {"m1", "r1", "s1"}};
static const struct sh_traits second = {.keeps_replicas = true, .domains = {"m1", "r2", "s1"}};

static struct sh_registry *registry_make(void)
{
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 3 * S};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, &registry), SHOAL_OK);
    return registry;
}

static shoal_nid joined(struct sh_registry *registry, uint64_t instance, shoal_nid previous,
                        const struct sh_traits *traits)
{
    shoal_nid nid;
    assert_int_equal(
        sh_registry_join(registry, S, sh_bytes_text("one:1"), instance, previous, traits, &nid),
        SHOAL_OK);
    return nid;
}

static void assert_traits(const struct sh_registry *registry, shoal_nid nid,
                          const struct sh_traits *traits)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(registry), nid);
    assert_non_null(node);
    assert_true(sh_traits_are_equal(&node->traits, traits));
}

static void a_join_tells_them(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = joined(registry, 11, SHOAL_NID_NONE, &first);
    assert_traits(registry, nid, &first);
    sh_registry_fail(registry, nid, "test");
    assert_traits(registry, nid, &first); /* its places in copysets stay */
    sh_registry_destroy(registry);
}

/* The next life says what holds from then on, also where it is less. */
static void a_new_life_replaces_them(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid got, nid = joined(registry, LIFE(1, 11), SHOAL_NID_NONE, &first);
    const struct sh_traits *const lives[] = {&second, &none};
    for (unsigned i = 0; i < 2; i++) {
        sh_registry_fail(registry, nid, "test");
        uint64_t epoch = sh_registry_view(registry)->epoch;
        assert_int_equal(sh_registry_restart(registry, S, sh_bytes_text("one:1"), LIFE(2 + i, 12),
                                             nid, lives[i], &got),
                         SHOAL_OK);
        assert_traits(registry, nid, lives[i]);
        assert_int_equal(sh_registry_view(registry)->epoch, epoch + 1);
    }
    sh_registry_destroy(registry);
}

/* The process that joined may be followed by one with the same life, if that was not confirmed: its traits count,
 * and are news to all who follow the view. */
static void the_same_life_may_say_others(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid got, nid = joined(registry, LIFE(2, 11), SHOAL_NID_NONE, &first),
                   nids[SH_CHANGES_MAX];
    uint64_t epoch = sh_registry_view(registry)->epoch, event;
    uint64_t digest = sh_registry_digest(registry);
    assert_int_equal(
        sh_registry_restart(registry, S, sh_bytes_text("one:1"), LIFE(2, 11), nid, &second, &got),
        SHOAL_OK);
    assert_int_equal(got.v, nid.v);
    assert_traits(registry, nid, &second);
    assert_int_equal(sh_registry_view(registry)->epoch, epoch + 1);
    assert_int_equal(sh_registry_events_after(registry, epoch, &event), 1);
    assert_true(sh_traits_are_equal(&sh_registry_event(registry, event)->node.traits, &second));
    assert_int_equal(sh_registry_changed_since(registry, epoch, nids), 1);
    assert_int_equal(nids[0].v, nid.v);
    assert_true(sh_registry_digest(registry) != digest);
    sh_registry_destroy(registry);
}

/* A join that is done again is no change; one that says nothing, as entries of before, takes nothing back. */
static void repeated_joins_change_nothing(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = joined(registry, 11, SHOAL_NID_NONE, &first);
    uint64_t epoch = sh_registry_view(registry)->epoch, changes = sh_registry_changes(registry);
    assert_int_equal(joined(registry, 11, nid, &first).v, nid.v);
    assert_int_equal(joined(registry, 11, SHOAL_NID_NONE, &first).v, nid.v);
    assert_int_equal(joined(registry, 11, nid, NULL).v, nid.v);
    assert_traits(registry, nid, &first);
    assert_int_equal(sh_registry_view(registry)->epoch, epoch);
    assert_int_equal(sh_registry_changes(registry), changes);
    sh_registry_destroy(registry);
}

static uint8_t *image_of(const struct sh_registry *registry, size_t *size_out)
{
    *size_out = sh_registry_image_size(registry);
    uint8_t *image = malloc(*size_out);
    assert_non_null(image);
    struct sh_writer w = sh_writer_make(image, *size_out);
    sh_registry_image_put(&w, registry, 42);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    return image;
}

static struct sh_registry *loaded(struct sh_bytes image)
{
    struct sh_registry *registry = registry_make();
    uint64_t sequence;
    assert_int_equal(sh_registry_image_check(image, &sequence), SHOAL_OK);
    assert_int_equal(sequence, 42);
    assert_int_equal(sh_registry_image_load(registry, S, image), SHOAL_OK);
    return registry;
}

static void images_keep_them(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = joined(registry, 11, SHOAL_NID_NONE, &first);
    size_t size;
    uint8_t *image = image_of(registry, &size);
    struct sh_registry *again = loaded(sh_bytes_make(image, size));
    assert_traits(again, nid, &first);
    assert_int_equal(sh_registry_digest(again), sh_registry_digest(registry));
    free(image);
    sh_registry_destroy(again);
    sh_registry_destroy(registry);
}

/* An image as shoal wrote it before nodes had traits (format 7), when returns of failed peers were counted: a superpeer, a
 * peer that is up, and one that has left. It holds an empty table of the ring, which is zeros, and the name of no log. */
#define IMAGE_BARE_BYTES 3908
static const uint8_t image_bare_head[] = {
    'S',  'H',  'O',  'A',  'L', 'R', 'E', 'G', 7,   0,   0,   0,   1,   0,  0x42, 0,    42, 0,
    0,    0,    0,    0,    0,   0,   5,   0,   0,   0,   0,   0,   0,   0,  0x1c, 0x0f, 0,  0,
    0x7c, 0xf4, 0xe1, 0x5f, 4,   0,   't', 'e', 's', 't', 3,   0,   1,   0,  1,    0,    9,  0,
    0,    0,    0,    0,    0,   0,   4,   0,   's', '1', ':', '1', 64,  0,  2,    0,    11, 0,
    0,    0,    0,    0,    0,   0,   5,   0,   'p', '1', '1', ':', '1', 65, 0,    2,    1,  12,
    0,    0,    0,    0,    0,   0,   0,   5,   0,   'p', '1', '2', ':', '1'};

static void images_of_before_are_read(void **state)
{
    (void)state;
    static uint8_t image[IMAGE_BARE_BYTES];
    memcpy(image, image_bare_head, sizeof image_bare_head);
    image[IMAGE_BARE_BYTES - 16] = 1;
    struct sh_registry *registry = loaded(sh_bytes_make(image, sizeof image));
    const struct sh_view *view = sh_registry_view(registry);
    assert_int_equal(view->count, 3);
    assert_int_equal(view->superpeers, 1);
    for (uint16_t nid = SH_PEER_NID_MIN; nid < SH_PEER_NID_MIN + 2; nid++)
        assert_traits(registry, (shoal_nid){nid}, &none);
    assert_string_equal(view->nodes[1].address, "p11:1");
    assert_int_equal(view->nodes[1].instance, 11);
    assert_int_equal(view->nodes[2].state, SH_NODE_LEFT);

    /* It is stored in the present format from then on. */
    size_t size;
    uint8_t *now = image_of(registry, &size);
    assert_int_equal(size, IMAGE_BARE_BYTES + 3 * 1 - 8); /* a byte of traits for each node */
    assert_int_equal(now[8], 9);
    struct sh_registry *again = loaded(sh_bytes_make(now, size));
    assert_int_equal(sh_registry_digest(again), sh_registry_digest(registry));
    free(now);
    sh_registry_destroy(again);

    /* The peer that was up then says more at its next join. */
    const struct sh_traits *traits = &first;
    shoal_nid nid;
    assert_int_equal(sh_registry_join(registry, S, sh_bytes_text("p11:1"), 11,
                                      (shoal_nid){SH_PEER_NID_MIN}, traits, &nid),
                     SHOAL_OK);
    assert_traits(registry, nid, &first);
    sh_registry_destroy(registry);
}

/* Between the two was format 8, with traits, and a count of returns in front of the last two numbers. */
static void images_with_returns_are_read(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    shoal_nid nid = joined(registry, 11, SHOAL_NID_NONE, &first);
    sh_registry_events_name(registry, 77);
    size_t size;
    uint8_t *image = image_of(registry, &size);
    image = realloc(image, size + 8);
    assert_non_null(image);
    memmove(image + size - 8, image + size - 16, 16);
    memset(image + size - 16, 0x5a, 8);
    image[8] = 8;
    sh_store32(image + 32, (uint32_t)(size + 8 - 40));
    memset(image + 36, 0, 4);
    sh_store32(image + 36, sh_crc32c(0, sh_bytes_make(image, size + 8)));
    struct sh_registry *again = loaded(sh_bytes_make(image, size + 8));
    assert_traits(again, nid, &first);
    assert_true(sh_registry_cluster(again) == sh_registry_cluster(registry));
    assert_true(sh_registry_events_log(again) == sh_registry_events_log(registry));
    free(image);
    sh_registry_destroy(again);
    sh_registry_destroy(registry);
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    struct sh_registry *registry = registry_make();
    size_t size;
    uint64_t sequence;
    uint8_t *image = image_of(registry, &size);
    static const uint8_t formats[] = {6, 10};
    for (unsigned i = 0; i < 2; i++) {
        image[8] = formats[i];
        memset(image + 36, 0, 4);
        sh_store32(image + 36, sh_crc32c(0, sh_bytes_make(image, size)));
        assert_int_equal(sh_registry_image_check(sh_bytes_make(image, size), &sequence),
                         SHOAL_EVERSION);
    }
    free(image);
    sh_registry_destroy(registry);
}

struct told {
    unsigned count;
    const struct sh_node *last;
};

static void tell(void *arg, const struct sh_node *old, const struct sh_node *new)
{
    struct told *told = arg;
    assert_true(old && new);
    told->count++;
    told->last = new;
}

/* Views that differ in nothing else are different views. */
static void differences_count(void **state)
{
    (void)state;
    struct sh_node node = {
        .nid = {64}, .role = SH_ROLE_PEER, .instance = 7, .address = "p:1", .traits = first};
    struct sh_view before = {.epoch = 1, .superpeers = 1}, after = {.epoch = 1, .superpeers = 1};
    struct told told = {0};
    assert_int_equal(sh_view_put(&before, &node), SHOAL_OK);
    node.traits = second;
    assert_int_equal(sh_view_put(&after, &node), SHOAL_OK);
    sh_view_diff(&before, &after, tell, &told);
    assert_int_equal(told.count, 1);
    assert_true(sh_traits_are_equal(&told.last->traits, &second));
    assert_true(sh_view_digest(&before) != sh_view_digest(&after));
    sh_view_diff(&after, &after, tell, &told);
    assert_int_equal(told.count, 1);
    sh_view_destroy(&before);
    sh_view_destroy(&after);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_tells_them),
        cmocka_unit_test(a_new_life_replaces_them),
        cmocka_unit_test(the_same_life_may_say_others),
        cmocka_unit_test(repeated_joins_change_nothing),
        cmocka_unit_test(images_keep_them),
        cmocka_unit_test(images_of_before_are_read),
        cmocka_unit_test(images_with_returns_are_read),
        cmocka_unit_test(other_formats_are_refused),
        cmocka_unit_test(differences_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
