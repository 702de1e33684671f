/* Decisions about migrations, by hand-fed events: once for each batch, whatever comes late or
 * twice; and what is known after a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/log.h"
#include "cluster/owners.h"

#define START UINT64_C(1000000000)
#define FAILURE UINT64_C(1000000000)

static struct sh_registry *registry_open(uint64_t seed)
{
    static const char *const addresses[] = {"s0:1", "s1:1"};
    struct sh_registry_config config = {.cluster = "test",
                                        .addresses = addresses,
                                        .count = 1,
                                        .index = 0,
                                        .instance = 77,
                                        .failure_ns = FAILURE,
                                        .seed = seed};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, START, &registry), SHOAL_OK);
    return registry;
}

static shoal_nid join(struct sh_registry *registry, uint64_t instance)
{
    char address[16];
    shoal_nid nid;
    (void)snprintf(address, sizeof address, "p%u:1", (unsigned)instance);
    assert_int_equal(
        sh_registry_join(registry, START, sh_bytes_text(address), instance, SHOAL_NID_NONE, &nid),
        SHOAL_OK);
    return nid;
}

static shoal_nid owner(const struct sh_registry *registry, shoal_cid cid)
{
    struct sh_range range;
    assert_int_equal(sh_registry_lookup(registry, cid, &range), SHOAL_OK);
    return (shoal_nid){(uint16_t)range.value};
}

struct rig {
    struct sh_registry *registry;
    shoal_nid a, b, c;
    struct sh_owner_run run;
};

static struct sh_owners_batch batch_of(const struct rig *rig, shoal_nid from, shoal_nid to,
                                       uint64_t sequence)
{
    return (struct sh_owners_batch){.from = from,
                                    .to = to,
                                    .incarnation = sh_owners_incarnation(rig->registry),
                                    .sequence = sequence,
                                    .runs = &rig->run,
                                    .count = 1};
}

static struct rig rig_open(void)
{
    struct rig rig = {.registry = registry_open(1)};
    rig.a = join(rig.registry, 11);
    rig.b = join(rig.registry, 12);
    rig.c = join(rig.registry, 13);
    rig.run = (struct sh_owner_run){shoal_cid_make(rig.a, 100), shoal_cid_make(rig.a, 199)};
    return rig;
}

static void commits_once(void **state)
{
    (void)state;
    struct rig rig = rig_open();
    struct sh_owners_batch batch = batch_of(&rig, rig.a, rig.b, 1);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_OK);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_OK); /* repeated */
    assert_int_equal(owner(rig.registry, rig.run.first).v, rig.b.v);
    assert_int_equal(owner(rig.registry, rig.run.last).v, rig.b.v);
    assert_int_equal(owner(rig.registry, shoal_cid_make(rig.a, 99)).v, rig.a.v);
    assert_int_equal(owner(rig.registry, shoal_cid_make(rig.a, 200)).v, rig.a.v);
    /* Home again; then the first one comes once more, late. */
    struct sh_owners_batch back = batch_of(&rig, rig.b, rig.a, 1);
    assert_int_equal(sh_owners_commit(rig.registry, &back), SHOAL_OK);
    struct sh_owners_batch next = batch_of(&rig, rig.a, rig.c, 2);
    assert_int_equal(sh_owners_commit(rig.registry, &next), SHOAL_OK);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_ECANCELED);
    assert_int_equal(owner(rig.registry, rig.run.first).v, rig.c.v);
    sh_registry_destroy(rig.registry);
}

static void resolves(void **state)
{
    (void)state;
    struct rig rig = rig_open();
    bool is_committed = true;
    struct sh_owners_batch batch = batch_of(&rig, rig.a, rig.b, 5);
    assert_int_equal(sh_owners_resolve(rig.registry, &batch, &is_committed), SHOAL_OK);
    assert_false(is_committed);
    /* Whoever was told so may have dropped it. */
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_ECANCELED);
    assert_int_equal(owner(rig.registry, rig.run.first).v, rig.a.v);
    batch.sequence = 6;
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_OK);
    assert_int_equal(sh_owners_resolve(rig.registry, &batch, &is_committed), SHOAL_OK);
    assert_true(is_committed);
    /* Another incarnation decides and tells nothing. */
    batch.sequence = 7;
    batch.incarnation++;
    assert_int_equal(sh_owners_resolve(rig.registry, &batch, &is_committed), SHOAL_EBUSY);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_EDIFFERS);
    sh_registry_destroy(rig.registry);
}

static void refuses(void **state)
{
    (void)state;
    struct rig rig = rig_open();
    struct sh_owners_batch batch = batch_of(&rig, rig.b, rig.c, 1);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_ENOTOWNER);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_ECANCELED); /* for good */
    sh_registry_fail(rig.registry, rig.c, "test");
    batch = batch_of(&rig, rig.a, rig.c, 1);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_ENONODE);
    batch = batch_of(&rig, rig.a, rig.a, 2);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_EPROTO);
    batch = batch_of(&rig, rig.a, rig.b, 0);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_EPROTO);
    batch = batch_of(&rig, rig.a, rig.b, 2);
    rig.run.last = shoal_cid_make(rig.b, 1); /* of two creators */
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_EPROTO);
    struct sh_owner_run runs[] = {{shoal_cid_make(rig.a, 5), shoal_cid_make(rig.a, 6)},
                                  {shoal_cid_make(rig.a, 6), shoal_cid_make(rig.a, 7)}};
    batch.runs = runs; /* which overlap */
    batch.count = 2;
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_EPROTO);
    /* All or none. */
    runs[1].first.v++;
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_OK);
    runs[0] = (struct sh_owner_run){shoal_cid_make(rig.a, 1), shoal_cid_make(rig.a, 2)};
    batch.sequence = 3;
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_ENOTOWNER);
    assert_int_equal(owner(rig.registry, runs[0].first).v, rig.a.v);
    sh_registry_destroy(rig.registry);
}

/* A creator leaves: what has moved stays, and its ID is not another's. */
static void survives_its_creator(void **state)
{
    (void)state;
    struct rig rig = rig_open();
    struct sh_range range;
    struct sh_owners_batch batch = batch_of(&rig, rig.a, rig.b, 1);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_OK);
    assert_int_equal(sh_registry_leave(rig.registry, rig.a, 11), SHOAL_OK);
    assert_int_equal(owner(rig.registry, rig.run.first).v, rig.b.v);
    assert_int_equal(sh_registry_lookup(rig.registry, shoal_cid_make(rig.a, 99), &range),
                     SHOAL_ENOCHUNK);
    assert_true(sh_owners_survive(rig.registry, rig.a));
    assert_int_equal(sh_registry_leave(rig.registry, rig.b, 12), SHOAL_OK);
    assert_int_equal(sh_registry_lookup(rig.registry, rig.run.first, &range), SHOAL_ENOCHUNK);
    assert_false(sh_owners_survive(rig.registry, rig.a));
    sh_registry_destroy(rig.registry);
}

/* A registry that was loaded knows the nodes, and asks them for the rest. */
static void asks_after_a_restart(void **state)
{
    (void)state;
    struct rig rig = rig_open();
    struct sh_owners_batch batch = batch_of(&rig, rig.a, rig.b, 1);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_OK);
    uint8_t image[4096];
    size_t size = sh_registry_image_size(rig.registry);
    assert_true(size <= sizeof image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, rig.registry, 1);
    sh_registry_destroy(rig.registry);
    rig.registry = registry_open(2);
    assert_int_equal(sh_registry_image_load(rig.registry, START, sh_bytes_make(image, size)),
                     SHOAL_OK);
    assert_false(sh_owners_known(rig.registry));
    batch = batch_of(&rig, rig.a, rig.b, 2);
    assert_int_equal(sh_owners_commit(rig.registry, &batch), SHOAL_EBUSY);
    /* The creator says that b has a part which b says to have, and c what it gave on to a dead one.
     */
    struct sh_range held = {rig.run.first, shoal_cid_make(rig.a, 149), rig.b.v};
    assert_int_equal(sh_owners_claim(rig.registry, rig.b, &held), SHOAL_OK);
    struct sh_range away = {rig.run.first, rig.run.last, rig.c.v};
    assert_int_equal(sh_owners_claim(rig.registry, rig.a, &away), SHOAL_OK);
    assert_int_equal(owner(rig.registry, rig.run.first).v, rig.b.v);
    assert_int_equal(owner(rig.registry, rig.run.last).v, rig.c.v);
    assert_int_equal(owner(rig.registry, shoal_cid_make(rig.a, 99)).v, rig.a.v);
    assert_int_equal(sh_owners_claim(rig.registry, rig.b, &away), SHOAL_EPROTO);
    shoal_nid next = SHOAL_NID_NONE;
    for (unsigned i = 0; i < 3; i++) {
        assert_false(sh_owners_known(rig.registry));
        next = sh_owners_to_ask(rig.registry, next);
        assert_int_not_equal(next.v, 0);
        sh_owners_asked(rig.registry, next);
    }
    assert_int_equal(sh_owners_to_ask(rig.registry, next).v, 0);
    assert_true(sh_owners_known(rig.registry));
    sh_registry_destroy(rig.registry);
}

static struct sh_registry *shared_open(void)
{
    struct sh_registry_config config = {
        .cluster = "test", .failure_ns = FAILURE, .is_shared = true};
    struct sh_registry *registry;
    assert_int_equal(sh_registry_create(&config, START, &registry), SHOAL_OK);
    return registry;
}

/* A shared registry's image has the decisions and the ranges, so nobody is asked. */
static void shared_forgets_nothing(void **state)
{
    (void)state;
    struct rig rig = {.registry = shared_open()};
    assert_int_equal(sh_owners_incarnation(rig.registry), 0);
    sh_owners_begin(rig.registry, 4711);
    uint64_t incarnation = sh_owners_incarnation(rig.registry);
    assert_int_not_equal(incarnation, 0);
    sh_owners_begin(rig.registry, 4712);
    assert_int_equal(sh_owners_incarnation(rig.registry), incarnation);
    rig.a = join(rig.registry, 11);
    rig.b = join(rig.registry, 12);
    rig.c = join(rig.registry, 13);
    rig.run = (struct sh_owner_run){shoal_cid_make(rig.a, 100), shoal_cid_make(rig.a, 199)};
    struct sh_owners_batch first = batch_of(&rig, rig.a, rig.b, 1);
    struct sh_owners_batch given_up = batch_of(&rig, rig.b, rig.c, 7);
    bool is_committed = true;
    uint64_t changes = sh_registry_changes(rig.registry);
    assert_int_equal(sh_owners_commit(rig.registry, &first), SHOAL_OK);
    assert_int_equal(sh_owners_resolve(rig.registry, &given_up, &is_committed), SHOAL_OK);
    assert_false(is_committed);
    assert_int_equal(sh_registry_changes(rig.registry), changes + 2);
    uint8_t image[4096];
    size_t size = sh_registry_image_size(rig.registry);
    assert_true(size <= sizeof image);
    struct sh_writer w = sh_writer_make(image, size);
    sh_registry_image_put(&w, rig.registry, 1);
    assert_true(sh_writer_ok(&w));
    sh_registry_destroy(rig.registry);
    rig.registry = shared_open();
    assert_int_equal(sh_registry_image_load(rig.registry, START, sh_bytes_make(image, size)),
                     SHOAL_OK);
    assert_int_equal(sh_owners_incarnation(rig.registry), incarnation);
    assert_true(sh_owners_known(rig.registry));
    assert_int_equal(owner(rig.registry, rig.run.first).v, rig.b.v);
    assert_int_equal(owner(rig.registry, shoal_cid_make(rig.a, 99)).v, rig.a.v);
    assert_int_equal(owner(rig.registry, shoal_cid_make(rig.c, 1)).v, rig.c.v);
    assert_int_equal(sh_owners_commit(rig.registry, &first), SHOAL_OK);
    assert_int_equal(sh_owners_resolve(rig.registry, &first, &is_committed), SHOAL_OK);
    assert_true(is_committed);
    assert_int_equal(sh_owners_commit(rig.registry, &given_up), SHOAL_ECANCELED);
    first.incarnation++;
    assert_int_equal(sh_owners_commit(rig.registry, &first), SHOAL_EDIFFERS);
    sh_registry_destroy(rig.registry);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commits_once),
        cmocka_unit_test(resolves),
        cmocka_unit_test(refuses),
        cmocka_unit_test(survives_its_creator),
        cmocka_unit_test(asks_after_a_restart),
        cmocka_unit_test(shared_forgets_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
