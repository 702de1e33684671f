/* A log that syncs later: what is handed survives the process, what is durable the power, and neither is said too early. */
#include "log/replog_cut_test.h"

static int setup_later(void **state)
{
    (void)setup(state);
    rig.config.syncs_later = true;
    return 0;
}

static struct sh_replog_zone *zone(void)
{
    return rig.zones[0].zone;
}

static void assert_at(uint64_t handed, uint64_t durable)
{
    assert_int_equal(sh_replog_handed(zone()), handed);
    assert_int_equal(sh_replog_durable(zone()), durable);
}

static void steps(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        rig_step(&rig, RIG_MS / 100);
}

/* Ten writes that are durable, and five that are handed. */
static void write_both(void)
{
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 10; i++)
        append(0, i, i, 100);
    rig_sync(&rig, 1);
    assert_at(10, 10);
    for (unsigned i = 10; i < 15; i++)
        append(0, i, i, 100);
    steps(5);
    assert_at(10, 10);
    sh_replog_hand(zone());
    assert_true(sh_replog_due_ns(rig.log) <= rig.now_ns);
    steps(5);
    assert_at(15, 10);
}

static void test_killed(void **state)
{
    (void)state;
    write_both();
    shut();
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).end, 15);
}

static void test_cut(void **state)
{
    (void)state;
    write_both();
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).end, 10);
}

static bool holds_syncs(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind == SH_DISK_SYNC;
}

/* Writes that a start has found are durable, though the process that was killed had not synced them: batches that went to slots at once, none of
 * which a start copies. */
static void test_killed_then_cut(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    struct cut *cut = cut_of(rig.config.disk);
    for (unsigned i = 0; sh_replog_handed(zone()) < 20; i++) {
        append(0, i % RIG_CHUNKS, i, 500);
        steps(1);
    }
    assert_int_equal(sh_replog_durable(zone()), 0);
    assert_int_equal(status().primary_writes, 0);
    shut();
    assert_int_equal(cut->count, 0);
    uint64_t syncs = cut->syncs;
    rig_open(&rig);
    assert_true(cut->syncs > syncs);
    uint64_t end = rig_load(&rig, 0).end;
    assert_true(end >= 20);
    shut();
    cut_power(cut);
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).end, end);
}

/* Nobody waits: what is handed is synced after a while, once for all zones. */
static void test_synced_later(void **state)
{
    (void)state;
    write_both();
    rig_zone_add(&rig, 1, 1, 0);
    append(1, 0, 1, 100);
    sh_replog_hand(rig.zones[1].zone);
    steps(5);
    uint64_t syncs = status().syncs;
    assert_int_equal(sh_replog_due_ns(rig.log), rig.log->unsynced_ns + rig.config.linger_ns);
    rig_step(&rig, 99 * RIG_MS);
    steps(2);
    assert_int_equal(status().syncs, syncs);
    rig_step(&rig, 2 * RIG_MS);
    steps(2);
    assert_int_equal(status().syncs, syncs + 1);
    assert_at(15, 15);
    assert_int_equal(sh_replog_durable(rig.zones[1].zone), 1);
    assert_int_equal(sh_replog_due_ns(rig.log), UINT64_MAX);
}

/* A sync covers what had been handed when it began, and no more. */
static void test_sync_covers_what_was_before(void **state)
{
    (void)state;
    write_both();
    struct cut *cut = cut_of(rig.config.disk);
    cut->holds = holds_syncs;
    sh_replog_sync(zone());
    steps(2);
    assert_true(cut->held_seen > 0);
    append(0, 20, 20, 100);
    sh_replog_hand(zone());
    steps(5);
    assert_at(16, 10);
    cut->holds = NULL;
    steps(1);
    assert_at(16, 15);
    shut();
    cut_power(cut);
    rig_open(&rig);
    assert_true(rig_load(&rig, 0).end >= 15);
}

/* Where somebody waits for what is not handed yet, and all packs before are synced, its pack is synced itself. */
static void test_sync_of_what_is_fresh(void **state)
{
    (void)state;
    write_both();
    rig_sync(&rig, 1);
    uint64_t syncs = status().syncs;
    append(0, 20, 20, 100);
    rig_sync(&rig, 1);
    assert_at(16, 16);
    assert_int_equal(status().syncs, syncs);
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).end, 16);
}

/* Nothing is handed before what was written before it: the slot's batch that is on its way. */
static void test_order(void **state)
{
    (void)state;
    write_both();
    struct cut *cut = cut_of(rig.config.disk);
    cut->holds = holds_slots;
    for (unsigned i = 20; !cut->held_seen; i++) {
        append(0, i, i, 500);
        rig_step(&rig, 0);
    }
    append(0, 100, 1, 100);
    sh_replog_hand(zone());
    uint64_t packs = status().primary_writes;
    steps(20);
    assert_true(status().primary_writes > packs);
    assert_at(15, 10);
    cut->holds = NULL;
    steps(2);
    assert_int_equal(sh_replog_handed(zone()), sh_replog_next(zone()));
}

/* The next lap begins once all packs of this one are synced, and its first pack is synced itself. */
static unsigned firsts, unsynced_firsts;
static bool is_lap_watched(const struct cut *cut, const struct sh_disk_op *op)
{
    bool is_write = op->kind == SH_DISK_WRITE || op->kind == SH_DISK_WRITE_SYNC;
    firsts += is_write && op->offset == sh_log_primary_at();
    unsynced_firsts += op->kind == SH_DISK_WRITE && op->offset == sh_log_primary_at();
    bool is_late = rig.log && rig.log->lap == 4 && rig.log->primary_at % 512 > 200;
    return is_late && holds_syncs(cut, op);
}

static void test_laps(void **state)
{
    (void)state;
    rig.config.batch_bytes = 60 << 10;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    struct cut *cut = cut_of(rig.config.disk);
    cut->holds = is_lap_watched;
    firsts = unsynced_firsts = 0;
    unsigned i = 0;
    for (; sh_replog_handed(zone()) == i; i++) {
        append(0, i % RIG_CHUNKS, i, 100);
        sh_replog_hand(zone());
        steps(4);
        assert_true(i < 10000);
    }
    assert_int_equal(rig.log->lap, 4);
    assert_true(firsts > 0 && unsynced_firsts == 0);
    cut->holds = NULL;
    steps(20);
    assert_int_equal(sh_replog_handed(zone()), sh_replog_next(zone()));
    assert_int_equal(rig.log->lap, 5);
    rig_sync(&rig, 1);
    shut();
    cut_power(cut);
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).end, i);
}

/* A log that does not sync later: handed comes with durable, or when a slot's batch was written. */
static uint64_t told_handed, told_durable;

static void on_handed(void *arg, struct sh_replog_zone *of, uint64_t sequence)
{
    (void)arg;
    assert_true(sequence > told_handed && sequence == sh_replog_handed(of));
    told_handed = sequence;
}

static void on_durable(void *arg, struct sh_replog_zone *of, uint64_t sequence)
{
    (void)arg;
    assert_true(sequence > told_durable && sequence == sh_replog_durable(of));
    assert_true(sequence <= told_handed);
    told_durable = sequence;
}

static void test_without(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    told_handed = told_durable = 0;
    rig.config.syncs_later = false;
    rig.config.handed = on_handed;
    rig.config.durable = on_durable;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    append(0, 0, 0, 100);
    sh_replog_hand(zone());
    steps(2);
    assert_at(1, 1);
    cut->holds = holds_syncs;
    for (unsigned i = 1; i < 40; i++)
        append(0, i, i, 500);
    steps(2);
    assert_true(told_handed > 20 && told_durable == 1);
    cut->holds = NULL;
    rig_sync(&rig, 1);
    assert_at(40, 40);
    assert_true(told_handed == 40 && told_durable == 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_cut, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_killed_then_cut, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_synced_later, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_sync_covers_what_was_before, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_sync_of_what_is_fresh, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_laps, setup_later, teardown),
        cmocka_unit_test_setup_teardown(test_without, setup_later, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
