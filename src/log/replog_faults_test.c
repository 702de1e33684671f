/* What a log must bear while it runs: zones and logs that are full, a cleaner that fails, clocks that go back. Each was a fault once.
 */
#include "log/replog_cut_test.h"

/* --- The cleaner fails while it zeroes ----------------------------------------------------------- */

static bool is_zeroing(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    const uint8_t *at = op->data;
    if (op->kind != SH_DISK_WRITE || op->size != 4096 || op->pieces_count ||
        op->offset < slots_at() || (op->offset - slots_at()) % 65536)
        return false;
    for (unsigned i = 0; i < 4096; i++)
        if (at[i])
            return false;
    return true;
}

static void test_learn_while_zeroing(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig.config.versions_max = 32;
    rig_open(&rig);
    struct sh_replog_zone_config config = rig_zone_config(0, 1, 0, 20 * 65536);
    config.range_count = 0;
    config.rest_max = 60;
    zone_add_config(0, config);
    cut->holds = is_zeroing;
    for (unsigned i = 0; !cut->held_seen && i < 3000; i++) {
        append(0, i % 20, i, 1000);
        rig_step(&rig, RIG_MS);
    }
    assert_true(cut->held_seen > 0);
    for (unsigned i = 0; i < 200; i++) {
        append(0, 100 + 2 * i, i, 10);
        rig_step(&rig, RIG_MS);
    }
    cut->holds = NULL;
    for (unsigned i = 0; i < 100; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().slots_cleaned > 0);
}

/* --- What the cleaner waits for, and keeps ----------------------------------------------------- */

static unsigned zeroed;

/* Holds what survives back, and counts slots that are given away. */
static bool holds_survivors(const struct cut *cut, const struct sh_disk_op *op)
{
    if (is_zeroing(cut, op))
        zeroed++;
    const uint8_t *head = op->pieces_count ? op->pieces[0].iov_base : NULL;
    return head && op->offset >= slots_at() && (op->offset - slots_at()) % 65536 == 0 &&
           head[34] == SH_SLOT_SURVIVORS;
}

/* No slot is given away before its survivors are on the disk. */
static void test_survivors_are_awaited(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 20 * 65536));
    zeroed = 0;
    cut->holds = holds_survivors;
    for (unsigned i = 0; i < 50; i++)
        append(0, i, i, 1000);
    for (unsigned i = 0; !cut->held_seen && i < 3000; i++) {
        append(0, 100 + i % 20, i, 1000);
        rig_step(&rig, RIG_MS);
    }
    assert_true(cut->held_seen > 0);
    sh_replog_sync(rig.zones[0].zone);
    for (unsigned i = 0; i < 500; i++)
        rig_step(&rig, RIG_MS);
    assert_int_equal(zeroed, 0);
    cut->holds = NULL;
    for (unsigned i = 0; i < 500; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().slots_cleaned > 0);
}

/* A chunk of which a new version comes in pieces is kept as it was until the last piece is there. */
static void test_chunk_is_kept_for_a_chain(void **state)
{
    (void)state;
    static struct rig found;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    append(0, 9, 1, 40000);
    for (unsigned i = 0; rig.zones[0].zone->slots.count < 9; i++)
        append(0, 100 + i % 20, i, 1000);
    rig_sync(&rig, 1);
    assert_int_equal(status().slots_cleaned, 0);
    for (unsigned piece = 0; piece < 11;) {
        const struct sh_replog_write write = rig_write(&rig, 9, 2, 190000, piece);
        enum shoal_err err = sh_replog_append(rig.zones[0].zone, &write);
        assert_true(!err || err == SHOAL_EAGAIN);
        piece += !err;
        rig_step(&rig, RIG_MS);
    }
    for (unsigned i = 0; i < 3000; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().slots_cleaned > 0);
    shut();
    cut_power(cut_of(rig.config.disk));
    rig_read_all(rig.config.disk, &found);
    assert_true(found.zones[0].chunks[9].is_there);
    assert_int_equal(found.zones[0].chunks[9].stamp, 1);
}

/* --- The cleaner waits for what has no place ----------------------------------------------------- */

static void hot(unsigned writes, size_t size)
{
    for (unsigned i = 0; i < writes; i++)
        assert_int_equal(append_or_say(0, i % 20, i, size), SHOAL_OK);
}

static void test_settles_forever_without_primary(void **state)
{
    (void)state;
    rig.config.primary_blocks = 0;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    hot(5000, 1000); /* 20 chunks, 20 KB that are current, of 13 slots */
}

static void test_settles_forever_with_primary(void **state)
{
    (void)state;
    rig.config.disk->ops->destroy(rig.config.disk);
    rig.config.disk = cut_create((size_t)256 << 20);
    rig.config.slot_bytes = 8 << 20;
    rig.config.slots = 30;
    rig.config.batch_bytes = 128 << 10;
    rig.config.buffer_bytes = 64 << 20;
    rig.config.primary_blocks = 2048;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 16 << 20)); /* 5 slots */
    hot(40000, 4000);
}

/* --- One full zone and the primary log of all ---------------------------------------------------- */

static void test_full_zone_stops_all(void **state)
{
    (void)state;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 2 * 65536));
    rig_zone_add(&rig, 1, 1, 0);
    static uint8_t payload[2000];
    bool is_full = false;
    for (unsigned i = 0; i < 600 && !is_full; i++) { /* each chunk once */
        struct sh_replog_write write = {
            .local_id = i + 1, .creator = RIG_OWNER, .pieces = 1, .payload = {payload, 2000}};
        rig_payload(i + 1, i, payload, 2000);
        enum shoal_err err = SHOAL_EAGAIN;
        for (unsigned tries = 0; err == SHOAL_EAGAIN && tries < 1000; tries++) {
            err = sh_replog_append(rig.zones[0].zone, &write);
            rig_step(&rig, RIG_MS);
        }
        is_full = err;
        sh_replog_sync(rig.zones[0].zone);
    }
    assert_true(is_full);
    for (unsigned i = 0; i < 3000; i++) {
        append(1, i % 50, i, 100);
        sh_replog_sync(rig.zones[1].zone);
        unsigned tries = 0;
        for (; sh_replog_durable(rig.zones[1].zone) < sh_replog_next(rig.zones[1].zone); tries++) {
            if (tries > 3000)
                fail_msg("zone 1's write %u is not durable after 3 s; %u slots are free", i,
                         status().slots_free);
            rig_step(&rig, RIG_MS);
        }
    }
}

/* --- Cleaning without end ------------------------------------------------------------------------ */

static void test_cleans_without_end(void **state)
{
    (void)state;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 40 * 65536));
    for (unsigned i = 0; i < 100; i++)
        append(0, i, i, 16000); /* each once: all is current */
    rig_sync(&rig, 1);
    uint64_t before = 0;
    for (unsigned round = 0; round < 25; round++) {
        for (unsigned i = 0; i < 2000; i++)
            rig_step(&rig, RIG_MS);
        if (round == 24)
            assert_true(status().slots_cleaned - before < 20);
        before = status().slots_cleaned;
    }
}

/* --- A zone of garbage that is full for good ----------------------------------------------------- */

static bool holds_reads(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind == SH_DISK_READ;
}

static void test_full_of_garbage(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig.config.buffer_bytes = 8 << 20;
    rig.config.batch_bytes = 60 << 10;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 20 * 65536));
    unsigned stamp = 0;
    /* Eight slots of what stays, then what is superseded at once. */
    for (unsigned i = 0; i < 480; i++)
        append(0, i, stamp++, 1200);
    rig_sync(&rig, 1);
    enum shoal_err err = SHOAL_OK;
    unsigned hot_writes = 0;
    cut->holds = holds_reads; /* the cleaner's reads take long */
    static uint8_t payload[1000];
    for (; !err && hot_writes < 20000; hot_writes++) {
        unsigned chunk = 500 + hot_writes % 20;
        struct sh_replog_write write = {
            .local_id = chunk + 1, .creator = RIG_OWNER, .pieces = 1, .payload = {payload, 1000}};
        rig_payload(chunk + 1, stamp++, payload, 1000);
        unsigned tries = 0;
        while ((err = sh_replog_append(rig.zones[0].zone, &write)) == SHOAL_EAGAIN && tries++ < 500)
            rig_step(&rig, RIG_MS);
    }
    cut->holds = NULL;
    for (unsigned i = 0; i < 20000; i++)
        rig_step(&rig, RIG_MS);
    {
        err = append_or_say(0, 501, stamp++, 1000);
        for (unsigned i = 0; !err && i < 5000; i++)
            err = append_or_say(0, 500 + i % 20, stamp++, 1000);
        for (unsigned i = 0; i < 20000; i++)
            rig_step(&rig, RIG_MS);
        if (err)
            err = append_or_say(0, 501, stamp++, 1000);
    }
    assert_int_equal(err, SHOAL_OK);
}

/* What is superseded lies in the newest slots, which are cleaned before the zone is said to be full. */
static void test_full_of_one_chunk(void **state)
{
    (void)state;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 40 * 65536));
    for (unsigned i = 0; i < 390; i++)
        append(0, i, i, 5800);
    rig_sync(&rig, 1);
    for (unsigned i = 0; i < 3000; i++)
        assert_int_equal(append_or_say(0, 500, i, 5800), SHOAL_OK);
}

/* --- A large payload in a large slot ------------------------------------------------------------- */

static void test_large_payload(void **state)
{
    (void)state;
    rig.config.slot_bytes = 128 << 20;
    rig.config.slots = 10;
    rig.config.buffer_bytes = 256 << 20;
    cut_of(rig.config.disk)->has_no_ranges = true; /* the disk has not that much */
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    uint8_t *payload = calloc(1, 17 << 20);
    struct sh_replog_write write = {
        .local_id = 1, .creator = RIG_OWNER, .pieces = 1, .payload = {payload, 17 << 20}};
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_ETOOBIG);
    free(payload);
}

/* --- A clock that goes back ---------------------------------------------------------------------- */

static void step_at(uint32_t seconds)
{
    rig.now_ns += RIG_MS;
    (void)sh_replog_step(rig.log, rig.now_ns, seconds);
}

static void settle_at(uint32_t seconds, unsigned steps)
{
    sh_replog_sync(rig.zones[0].zone);
    for (unsigned i = 0; i < steps; i++)
        step_at(seconds);
}

static void write_at_second(uint32_t seconds, unsigned chunk, uint32_t stamp, size_t size)
{
    static uint8_t payload[1 << 14];
    struct sh_replog_write write = {.local_id = chunk + 1,
                                    .creator = RIG_OWNER,
                                    .pieces = 1,
                                    .is_removal = !size,
                                    .payload = {payload, size}};
    if (size)
        rig_payload(chunk + 1, stamp, payload, size);
    step_at(seconds);
    enum shoal_err err;
    while ((err = sh_replog_append(rig.zones[0].zone, &write)) == SHOAL_EAGAIN)
        step_at(seconds);
    assert_int_equal(err, SHOAL_OK);
}

static void test_clock_back(void **state)
{
    (void)state;
    rig.config.primary_blocks = 0;
    rig.config.batch_bytes = 60 << 10;
    rig_open(&rig);
    step_at(1000);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536)); /* 13 slots; cleaned from 8 on */
    for (unsigned i = 0; i < 30; i++)
        write_at_second(1000, i, i, 12000); /* six slots of what stays */
    settle_at(1000, 50);
    write_at_second(1000, 590, 100, 4000); /* a slot with much room */
    settle_at(1000, 50);
    for (unsigned i = 30; i < 35; i++)
        write_at_second(1000, i, i, 12000); /* the eighth slot: the first four are cleaned */
    settle_at(1000, 1000);
    /* The clock is put back. The mark of chunk 17's removal goes to the slot that has room. */
    write_at_second(500, 17, 0, 0);
    sh_replog_sync(rig.zones[0].zone);
    while (sh_replog_durable(rig.zones[0].zone) < sh_replog_next(rig.zones[0].zone))
        step_at(500);
    shut();
    cut_power(cut_of(rig.config.disk));
    assert_int_equal(sh_replog_open(&rig.config, rig.now_ns, 501, &rig.log), SHOAL_OK);
    struct rig_loaded loaded = {.is_over = false};
    assert_int_equal(
        sh_replog_zone_load(sh_replog_zone_find(rig.log, rig_zone_id(0)), rig_on_loaded, &loaded),
        SHOAL_OK);
    while (!loaded.is_over)
        step_at(501);
    zone_add_config(0, rig_zone_config(0, 1, loaded.end, 10 * 65536));
    for (unsigned i = 0; i < 1000; i++)
        step_at(501);
    static struct rig found;
    rig_read_all(rig.config.disk, &found);
    const struct rig_chunk *is = &found.zones[0].chunks[17];
    assert_true(!is->is_there || is->is_removal);
}

/* --- Callbacks within close; a zone that could not be added -------------------------------------- */

static bool is_closing;
static unsigned told_in_close;
static void on_durable_told(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    (void)arg, (void)zone, (void)sequence;
    told_in_close += is_closing;
}

static void test_close_calls(void **state)
{
    (void)state;
    rig.config.durable = on_durable_told;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    append(0, 0, 1, 100);
    sh_replog_sync(rig.zones[0].zone);
    rig_step(&rig, RIG_MS);
    is_closing = true;
    shut();
    assert_int_equal(told_in_close, 0);
}

/* --- IDs that are used once ---------------------------------------------------------------------- */

static void test_ids_used_once(void **state)
{
    (void)state;
    rig.config.primary_blocks = 256; /* a lap for each pack */
    rig.config.versions_max = 32;
    rig_open(&rig);
    struct sh_replog_zone_config config = rig_zone_config(0, 1, 0, 20 * 65536);
    config.range_count = 0;
    config.rest_max = 3000; /* 20 chunks are there at a time */
    zone_add_config(0, config);
    enum shoal_err err = SHOAL_OK;
    unsigned i = 0;
    static uint8_t payload[1000];
    for (; !err && i < 6000; i++) {
        for (unsigned k = 0; k < 2 && !err; k++) {
            struct sh_replog_write write = {.local_id = 1 + i - (k ? 20 : 0),
                                            .creator = RIG_OWNER,
                                            .pieces = 1,
                                            .is_removal = k,
                                            .payload = {payload, k ? 0 : sizeof payload}};
            if (k && i < 20)
                continue;
            unsigned tries = 0;
            while ((err = sh_replog_append(rig.zones[0].zone, &write)) == SHOAL_EAGAIN &&
                   tries++ < 20000)
                rig_step(&rig, RIG_MS);
        }
        sh_replog_sync(rig.zones[0].zone);
        for (unsigned k = 0; k < 40; k++)
            rig_step(&rig, RIG_MS);
    }
    assert_int_equal(err, SHOAL_OK);
}

/* --- The cleaner fails again and again, and keeps its copies ------------------------------------- */

static void test_failing_cleaner_grows(void **state)
{
    (void)state;
    rig_open(&rig);
    struct sh_replog_zone_config config = rig_zone_config(0, 1, 0, 20 * 65536);
    config.range_count = 480;
    config.rest_max = 10;
    zone_add_config(0, config);
    unsigned stamp = 0;
    for (unsigned i = 0; i < 340; i++)
        append(0, i, stamp++, 1000);
    for (unsigned i = 0; i < 60; i++) /* more than the table may have of others */
        append(0, 500 + i, stamp++, 1000);
    enum shoal_err err = SHOAL_OK;
    unsigned i = 0;
    for (; !err && i < 20000; i++)
        err = append_or_say(0, 400 + i % 60, stamp++, 1000);
    for (unsigned k = 0; k < 3000; k++)
        rig_step(&rig, RIG_MS);
    assert_true(!err && status().slots - status().slots_free < 25);
}

/* A cleaning that has failed is tried again after a pause, though nobody writes. */
static void test_failed_cleaner_again(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 20 * 65536));
    cut->fails_at = slots_at() + 20000;
    for (unsigned i = 0; !status().read_errors; i++) {
        assert_true(i < 20000);
        append(0, i % 60, i, 1000);
        rig_step(&rig, RIG_MS); /* so that it is not full before that */
    }
    rig_sync(&rig, 1);
    uint64_t before = status().slots_cleaned, errors = status().read_errors;
    assert_true(sh_replog_due_ns(rig.log) <= rig.now_ns + 1000 * RIG_MS);
    for (unsigned i = 0; i < 500; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().slots_cleaned == before && status().read_errors == errors);
    cut->fails_at = 0;
    for (unsigned i = 0; i < 1000; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().slots_cleaned > before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_learn_while_zeroing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_survivors_are_awaited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chunk_is_kept_for_a_chain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_settles_forever_without_primary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_settles_forever_with_primary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_zone_stops_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cleans_without_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_of_garbage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_of_one_chunk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_payload, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clock_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ids_used_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failing_cleaner_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_cleaner_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
