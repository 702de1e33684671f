/* Memory and slots become short: when the log begins to make room, and that it keeps nobody who writes waiting. */
#include "log/replog_cut_test.h"

#include "log/replog_clean_int.h"

static uint64_t seed;

static unsigned draw(unsigned below)
{
    return (unsigned)(test_draw(&seed) % below);
}

static uint64_t flushes(void)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < SH_REPLOG_FLUSHES; i++)
        all += status().flushes[i];
    return all;
}

/* --- The buffer -------------------------------------------------------------------------------- */

#define HALF_ZONES 8u

/* Small writes stay in memory, in packs too, until half of the buffer is in use. Then the batch goes to a slot that has waited the
 * longest, and so on: so that half of the buffer is free again once the disk has got on. */
static void test_flushed_at_half(void **state)
{
    (void)state;
    seed = test_seed(50);
    rig.config.buffer_bytes = 640 << 10;
    rig.config.versions_max = 1024;
    rig.config.batch_bytes = 60 << 10; /* none grows to that */
    rig.config.primary_blocks = 1024;
    rig_open(&rig);
    const uint64_t half = rig.config.buffer_bytes / 2;
    for (unsigned i = 0; i < HALF_ZONES; i++)
        rig_zone_add(&rig, i, 1, 0);
    unsigned crossed = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        append(i % HALF_ZONES, draw(500), i, 500 + draw(500));
        bool is_over = status().buffer_used > half;
        uint64_t before = flushes();
        const struct sh_replog_batch *oldest = rig.log->primary.first;
        const struct sh_replog_zone *of = oldest ? oldest->zone : NULL;
        rig_step(&rig, RIG_MS);
        if (!is_over) {
            assert_int_equal(flushes(), before);
            continue;
        }
        crossed++;
        assert_true(flushes() > before);
        assert_true(!of || of->filling != oldest);
        for (unsigned k = 0; status().buffer_used > half; k++) {
            assert_true(k < 300);
            rig_step(&rig, RIG_MS);
        }
    }
    assert_true(crossed > 5);
    assert_int_equal(status().flushes[SH_REPLOG_FLUSH_BUFFER], flushes());
    rig_sync(&rig, HALF_ZONES);
    (void)rig_assert_all(&rig, HALF_ZONES);
}

/* --- Slots ------------------------------------------------------------------------------------- */

static unsigned held_ms; /* for which the disk has not come to what the cleaner has asked for */

/* The cleaner's reads and writes take their time. */
static bool holds_bulk(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->is_bulk && held_ms % 64 != 0;
}

/* As long as a zone may have another slot the log takes its writes at once, whatever the cleaner does, and however long it takes. */
static void test_writers_go_on(void **state)
{
    (void)state;
    seed = test_seed(51);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    cut_of(rig.config.disk)->holds = holds_bulk;
    const struct sh_replog_zone *zone = rig.zones[0].zone;
    unsigned band = 0, band_cleaned = 0, of_urgency[SH_REPLOG_URGENCIES] = {0}, waited = 0;
    for (uint32_t i = 0; band < 3000 || !of_urgency[SH_REPLOG_IDLE] || status().cleanings <= 10;
         i++) {
        assert_true(i < 60000);
        unsigned chunk = draw(400);
        const struct sh_replog_write write = rig_write(&rig, chunk, i, 1000 + chunk, 0);
        bool may_have_more = zone->slots.count + SH_REPLOG_SPARE_ZONE_SLOTS < zone->slots_max;
        bool is_in_band = zone->slots.count * 100 >= zone->slots_max * 60 && may_have_more;
        of_urgency[zone->urgency]++;
        enum shoal_err err = sh_replog_append(rig.zones[0].zone, &write);
        assert_true(!err || (err == SHOAL_EAGAIN && !may_have_more));
        band += is_in_band;
        band_cleaned += is_in_band && rig.log->clean;
        waited += err == SHOAL_EAGAIN;
        if (!err)
            rig_written(&rig, 0, chunk, i, 1000 + chunk);
        held_ms++;
        rig_step(&rig, RIG_MS);
        for (unsigned k = 0; i % 5000 == 4999 && k < 20; k++, held_ms++) /* nobody writes */
            rig_step(&rig, 100 * RIG_MS);
    }
    print_message("%u writes above 60 %%, %u of them while the zone was cleaned; %u had to wait\n",
                  band, band_cleaned, waited);
    assert_true(band_cleaned > 500);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

/* --- Steps of the cleaner ----------------------------------------------------------------------- */

#define STEP_ENTRIES 2000u /* that a step looks at; a large one counts for more, by 128 bytes */
#define STEP_BYTES (STEP_ENTRIES * 128u)
#define MANY 12000u

static void many_append(struct sh_replog_zone *zone, uint64_t local_id, size_t size)
{
    static uint8_t payload[8192];
    const struct sh_replog_write write = {.local_id = local_id,
                                          .creator = RIG_OWNER,
                                          .pieces = 1,
                                          .payload = sh_bytes_make(payload, size)};
    enum shoal_err err;
    for (unsigned i = 0; (err = sh_replog_append(zone, &write)) == SHOAL_EAGAIN; i++) {
        assert_true(i < 10000);
        rig_step(&rig, RIG_MS);
    }
    assert_int_equal(err, SHOAL_OK);
}

static uint64_t looked_at(const struct sh_replog_status *is)
{
    return is->entries_kept + is->entries_dropped + is->marks_dropped;
}

static uint64_t step_entries_most, step_read_most, steps_cleaning;
static struct sh_replog_status step_before;

static void step_begins(struct rig *of)
{
    (void)of;
    step_before = status();
}

static void step_ends(struct rig *of)
{
    struct sh_replog_status now = status();
    uint64_t entries = looked_at(&now) - looked_at(&step_before);
    uint64_t read = now.clean_read_bytes - step_before.clean_read_bytes;
    step_entries_most = entries > step_entries_most ? entries : step_entries_most;
    step_read_most = read > step_read_most ? read : step_read_most;
    steps_cleaning += of->log->clean != NULL;
}

/* Writes so many chunks of that size until their zone has been cleaned some times, and counts what each step did. */
static void clean_and_count(unsigned chunks, size_t size)
{
    rig.config.slot_bytes = 1 << 20;
    rig.config.slots = 40;
    rig.config.buffer_bytes = 8 << 20;
    rig.config.batch_bytes = 128 << 10;
    rig.config.versions_max = 65536;
    rig_open(&rig);
    struct sh_replog_zone_config config = rig_zone_config(0, 1, 0, 10 << 20);
    config.range_count = MANY;
    zone_add_config(0, config);
    step_entries_most = step_read_most = steps_cleaning = 0;
    rig.step_begin = step_begins;
    rig.step_end = step_ends;
    for (unsigned i = 0; status().slots_cleaned < 20; i++) {
        assert_true(i < 1000000);
        many_append(rig.zones[0].zone, 1 + draw(chunks), size);
        if (i % 16 == 0)
            rig_step(&rig, RIG_MS);
    }
    print_message("%zu bytes each: %llu entries in a step, at most, and %llu bytes read\n", size,
                  (unsigned long long)step_entries_most, (unsigned long long)step_read_most);
    assert_true(step_read_most <= 2u * rig.config.slot_bytes);
    assert_true(steps_cleaning > 20);
}

/* A step looks at a bounded number of entries, or bytes of them, much fewer than a slot has, however small or large they are. */
static void test_small_steps(void **state)
{
    (void)state;
    seed = test_seed(52);
    clean_and_count(MANY, 64);
    assert_true(step_entries_most > 100 && step_entries_most <= STEP_ENTRIES);
}

static void test_small_steps_of_large_ones(void **state)
{
    (void)state;
    seed = test_seed(53);
    clean_and_count(500, 8192);
    assert_true(step_entries_most > 10 && step_entries_most * 8192 <= STEP_BYTES + 8192);
}

/* --- Tables of versions ------------------------------------------------------------------------ */

static void chunks_append(unsigned zone, uint32_t *stamp)
{
    for (unsigned i = 0; i < RIG_OF_ZONE; i += 1) {
        append(zone, i * 7 % RIG_OF_ZONE, ++*stamp, 10);
        rig_step(&rig, 0);
    }
}

/* Zones that nobody writes to any more give their tables back when others need them: these have no shorter epochs. All together never have
 * more than the pool. */
static void test_idle_zones_give_tables_back(void **state)
{
    (void)state;
    uint32_t stamp = 0;
    rig.config.versions_max = 1024;
    rig.config.tables_bytes = 3 * sh_versions_table_bytes(1024);
    rig_open(&rig);
    for (unsigned i = 0; i < RIG_ZONES; i++)
        rig_zone_add(&rig, i, 1, 0);
    for (unsigned i = 0; i < RIG_ZONES; i++) {
        chunks_append(i, &stamp);
        assert_true(sh_version_pool_used(rig.log->tables) <= rig.config.tables_bytes);
        assert_true(rig.zones[i].zone->epoch <= 3);
    }
    rig_sync(&rig, RIG_ZONES);
    (void)rig_assert_all(&rig, RIG_ZONES);
}

/* Tables may have the more memory the more the zones may write. Of 1,000 zones of 16 MiB each in a log of 36,000 MiB, with all that there is beside
 * tables, that is 1/500 (docs/log.md, Memory). */
static void test_tables_have_a_part(void **state)
{
    (void)state;
    const uint32_t zones = 1000, slots = zones * 36;
    rig_open(&rig);
    uint64_t made_for = sh_version_pool_bytes(rig.log->tables);
    assert_true(made_for <= sh_replog_tables_bytes(rig.log, rig.config.slots));
    rig_zone_add(&rig, 0, 1, 0);
    uint64_t of_one = sh_version_pool_bytes(rig.log->tables);
    assert_true(of_one <= sh_replog_tables_bytes(rig.log, 48) && of_one <= made_for);
    /* Only to ask: nothing is stepped. */
    struct sh_log_file head = rig.log->head;
    rig.log->head.slots = slots;
    rig.log->head.slot_bytes = 1 << 20;
    rig.log->config.buffer_bytes = 32 << 20;
    rig.log->config.versions_max = 16384;
    uint64_t tables = sh_replog_tables_bytes(rig.log, slots);
    uint64_t cleaner = (2 << 20) + 8 * ((16 << 20) / 64) + 26 * 65536;
    uint64_t all = (32 << 20) + (2 << 20) + slots * sizeof(struct sh_log_slot) + tables + cleaner +
                   (uint64_t)zones * 2900;
    assert_true(all <= ((uint64_t)slots << 20) / 500);
    assert_true(tables > (uint64_t)zones * 28 * 1000);
    rig.log->head = head;
    rig.log->config.buffer_bytes = rig.config.buffer_bytes;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flushed_at_half, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writers_go_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_steps_of_large_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle_zones_give_tables_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tables_have_a_part, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
