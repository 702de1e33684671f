/* Lives of a superpeer's processes: starts count when the registry has confirmed them, and nothing is kept
 * or answered before the disk says so. */
#include "superpeer/superpeer_rig_test.h"

#include "superpeer/superpeer_ring_int.h"

static const shoal_nid own = {OWN};
static struct sh_disk *disk;

static int lives_setup(void **state)
{
    int failed = setup(state);
    if (!failed)
        assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    return failed;
}

static int lives_teardown(void **state)
{
    disk->ops->destroy(disk);
    superpeer.env.disk = NULL;
    return teardown(state);
}

static void begin(void)
{
    superpeer.env.disk = disk;
    agreed.leads = true; /* so that the consensus takes down what is decided */
    assert_int_equal(sh_superpeer_ring_open(&superpeer), SHOAL_OK);
}

static void end(void)
{
    sh_superpeer_ring_close(&superpeer);
    superpeer.life = superpeer.life_lsn = 0;
    superpeer.is_confirmed = false;
    agreed.count = 0;
}

static void step(void)
{
    (void)sh_superpeer_ring_step(&superpeer, now_ns += HEARTBEAT);
}

/* Steps until it asks to be admitted; says with which life. */
static uint64_t asks(void)
{
    for (unsigned i = 0; i < 8 && !decided(SH_COMMAND_RING, own); i++)
        step();
    assert_int_equal(decided(SH_COMMAND_RING, own), 1);
    assert_true(agreed.decided[0].instance == superpeer.life);
    return superpeer.life;
}

static enum shoal_err admit(uint64_t life)
{
    return sh_registry_arcs_start(superpeer.registry, own, life, false);
}

static bool serves(void)
{
    for (unsigned i = 0; i < 8 && !superpeer.ring->is_started; i++)
        step();
    return superpeer.ring->is_started;
}

/* A process on an empty disk, which the registry counts; says with which life it ends. */
static uint64_t first_process(void)
{
    begin();
    assert_int_equal(admit(asks()), SHOAL_OK);
    assert_true(serves());
    uint64_t life = superpeer.life;
    end();
    return life;
}

static void a_confirmed_start_counts(void **state)
{
    (void)state;
    uint64_t first = first_process();
    assert_int_equal(sh_life_starts(first), 2); /* the rig's own disk was started once */
    for (unsigned starts = 3; starts < 6; starts++) {
        begin();
        assert_int_equal(sh_life_starts(asks()), starts);
        assert_int_equal(admit(superpeer.life), SHOAL_OK);
        step();
        assert_false(
            superpeer.ring->is_started); /* the disk does not say yet that it is admitted */
        assert_true(serves());
        assert_true(sh_superpeer_journal_is_confirmed(&superpeer));
        end();
    }
}

static void who_is_not_admitted_stays_at_its_life(void **state)
{
    (void)state;
    (void)first_process();
    begin();
    uint64_t life = asks();
    end();
    for (unsigned i = 0; i < 4; i++) {
        begin();
        assert_true(asks() == life);
        assert_false(serves());
        end();
    }
    /* A copy of its disk came before it: it is refused, however often it is started. */
    assert_int_equal(admit(life ^ 1 << 8), SHOAL_OK);
    for (unsigned i = 0; i < 4; i++) {
        begin();
        assert_int_equal(admit(superpeer.life), SHOAL_EDIFFERS);
        assert_false(serves());
        assert_true(superpeer.ring->is_stale);
        end();
    }
}

static void admitted_and_killed_it_goes_on(void **state)
{
    (void)state;
    (void)first_process();
    begin();
    uint64_t life = asks();
    assert_int_equal(admit(life), SHOAL_OK);
    end();
    for (unsigned i = 0; i < 2; i++) {
        begin();
        assert_int_equal(sh_life_starts(superpeer.life), sh_life_starts(life) + i);
        assert_int_equal(admit(superpeer.life), SHOAL_OK);
        assert_true(serves());
        end();
    }
}

/* Journals of before have the starts alone. */
static void a_former_state_is_confirmed(void **state)
{
    (void)state;
    uint8_t starts[4];
    sh_store32(starts, 6);
    begin();
    struct sh_bytes bytes = sh_bytes_make(starts, sizeof starts);
    (void)sh_journal_state_set(superpeer.journal, SH_SUPERPEER_IDENTITY_STREAM, bytes);
    for (unsigned i = 0; i < 4; i++)
        step();
    end();
    begin();
    assert_int_equal(sh_life_starts(asks()), 7);
    end();
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("fatal", &bad, &bad_len) && sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_confirmed_start_counts, lives_setup, lives_teardown),
        cmocka_unit_test_setup_teardown(who_is_not_admitted_stays_at_its_life, lives_setup,
                                        lives_teardown),
        cmocka_unit_test_setup_teardown(admitted_and_killed_it_goes_on, lives_setup,
                                        lives_teardown),
        cmocka_unit_test_setup_teardown(a_former_state_is_confirmed, lives_setup, lives_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
