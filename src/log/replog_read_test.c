/* Reading a zone: what is handed out is what was written, by a model. */
#include "log/replog_cut_test.h"

static struct rig_taken taken;

/* How far the reading was said to be, from one step to the next. */
static struct {
    uint64_t bytes, last, most;
    unsigned falls; /* how often it was less than before */
} far;

static void far_note(unsigned zone)
{
    struct sh_replog_progress now =
        sh_replog_zone_progress(sh_replog_zone_find(rig.log, rig_zone_id(zone)));
    assert_int_equal(now.bytes, far.bytes);
    assert_true(now.read <= now.bytes);
    far.falls += now.read < far.last;
    far.last = now.read;
    far.most = now.read > far.most ? now.read : far.most;
}

static void read_once(unsigned zone, uint64_t seed, bool drops)
{
    const struct sh_replog_zone *of = sh_replog_zone_find(rig.log, rig_zone_id(zone));
    memset(&far, 0, sizeof far);
    far.bytes = sh_replog_zone_progress(of).bytes;
    far_note(zone);
    assert_int_equal(far.last, 0);
    rig_take_begin(&rig, zone, seed, drops, &taken);
    for (unsigned i = 0; !taken.is_over; i++) {
        assert_true(i < 100000);
        far_note(zone);
        rig_step(&rig, RIG_MS);
    }
    unsigned falls = far.falls;
    far_note(zone); /* it is not being read any more */
    assert_int_equal(far.last, 0);
    far.falls = falls;
}

/* The same is handed out by two looks and by one. */
static void read_zone(unsigned zone, uint64_t seed)
{
    static struct rig_taken twice;
    read_once(zone, seed, false);
    twice = taken;
    assert_int_equal(twice.drops, 0);
    read_once(zone, seed, true);
    assert_true(taken.end == twice.end && taken.err == twice.err);
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        const struct rig_taken_chunk *a = &taken.chunks[i], *b = &twice.chunks[i];
        assert_true(a->is_there == b->is_there && a->stamp == b->stamp && a->bytes == b->bytes);
    }
}

static void assert_taken(unsigned zone)
{
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        const struct rig_chunk *should = &rig.zones[zone].chunks[i];
        const struct rig_taken_chunk *is = &taken.chunks[i];
        bool is_there = should->is_there && !should->is_removal;
        if (is->is_there != is_there || (is_there && is->stamp != should->stamp))
            fail_msg("chunk %u: %s, stamp %u instead of %u", i, is->pieces ? "there" : "not there",
                     is->stamp, should->stamp);
        assert_true(is_there ? is->total == should->size : !is->pieces);
    }
}

/* Small ones and large ones, zeros, removals, and pairs. */
static void write_at_random(uint64_t *seed, unsigned zones, unsigned writes)
{
    for (unsigned i = 0; i < writes; i++) {
        uint64_t draw = test_draw(seed);
        unsigned zone = (unsigned)(draw % zones), chunk = (unsigned)(draw >> 8) % RIG_CHUNKS;
        size_t size = 4 + (draw >> 40) % (chunk % 100 == 7 ? 60000 : 200);
        bool is_pair = (draw >> 36) % 5 == 0 && chunk < RIG_OF_ZONE;
        unsigned with = is_pair ? RIG_OF_ZONE + (unsigned)(draw >> 28) % 8 : RIG_ALONE;
        size = (draw >> 20) % 10 == 0 ? 0 : size;
        assert_int_equal(
            rig_append_with(&rig, zone, chunk, i + 1, size, with, 4 + (draw >> 44) % 40), SHOAL_OK);
        if ((draw >> 56) % 16 == 0)
            rig_step(&rig, (draw >> 50 & 63) * 5 * RIG_MS);
    }
}

/* Lives of some zones that are cleaned, whose epochs end, and whose processes end, of some with what nobody said was durable. */
static void read_for_lives(uint64_t seed, size_t versions_max)
{
    enum { ZONES = 2 };
    rig.config.versions_max = versions_max;
    rig.zeros_one_in = 9;
    rig_open(&rig);
    for (unsigned i = 0; i < ZONES; i++)
        zone_add_config(i, rig_zone_config(i, 1, 0, 12 * 65536));
    uint64_t cleaned = 0, drops = 0;
    for (unsigned life = 0; life < 4; life++) {
        uint64_t ends[ZONES];
        write_at_random(&seed, ZONES, 6000);
        rig_sync(&rig, ZONES);
        for (unsigned i = 0; i < ZONES; i++)
            ends[i] = sh_replog_next(rig.zones[i].zone);
        cleaned += status().slots_cleaned;
        shut();
        if (life % 2)
            cut_power(cut_of(rig.config.disk));
        rig_open(&rig);
        for (unsigned i = 0; i < ZONES; i++) {
            read_zone(i, test_draw(&seed));
            drops += taken.drops;
            assert_int_equal(taken.err, SHOAL_OK);
            assert_int_equal(taken.end, ends[i]);
            assert_true(taken.agains > 0);
            assert_taken(i);
            zone_add_config(i, rig_zone_config(i, 1, taken.end, 12 * 65536));
        }
    }
    assert_true(cleaned > 20 && drops > 20);
}

static void test_model(void **state)
{
    (void)state;
    read_for_lives(test_seed(21), 256);
}

/* Epochs end all the time. */
static void test_model_epochs(void **state)
{
    (void)state;
    read_for_lives(test_seed(22), 32);
}

/* Chunks that were written again and again, though the version log knows nothing of it: hardly one is handed out and dropped, since the slots
 * that were begun last are looked at first. */
static void test_newest_first(void **state)
{
    enum { CHUNKS = 50, TIMES = 60, SIZE = 500 };
    (void)state;
    rig.config.versions_max = 4096;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 64 * 65536));
    for (unsigned i = 0; i < CHUNKS * TIMES; i++) {
        append(0, i % CHUNKS, i, SIZE);
        if (i % CHUNKS)
            continue;
        rig_sync(&rig, 1);
        rig_step(&rig, 1000 * RIG_MS); /* slots tell when they were begun by the second */
    }
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    read_zone(0, 0);
    assert_taken(0);
    assert_in_range(taken.drops, 1, 3 * 65536 / SIZE);
}

/* What lies behind a gap is not handed out, and hides nothing: neither a chunk nor the other one of a pair. */
static void test_gap(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 98; i < 103; i++)
        append(0, i, i, 100);
    append(0, RIG_OF_ZONE, 7, 100);
    rig_sync(&rig, 1);
    cut->holds = holds_slots;
    for (unsigned i = 10; !cut->held_seen; i++) {
        append(0, i, i, 500);
        rig_step(&rig, 0);
    }
    assert_int_equal(rig_append_with(&rig, 0, 100, 2000, 100, RIG_OF_ZONE, 100), SHOAL_OK);
    append(0, 101, 1, 0);
    sh_replog_sync(rig.zones[0].zone);
    for (unsigned i = 0; i < 50; i++)
        rig_step(&rig, RIG_MS);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), 6);
    shut();
    cut_power(cut);
    rig_open(&rig);
    read_zone(0, 0);
    assert_int_equal(taken.end, 6);
    for (unsigned i = 0; i < RIG_CHUNKS; i++)
        assert_int_equal(taken.chunks[i].is_there, (i >= 98 && i < 103) || i == RIG_OF_ZONE);
    assert_int_equal(taken.chunks[100].stamp, 100);
    assert_int_equal(taken.chunks[RIG_OF_ZONE].stamp, 7);
}

/* A pack, or a batch of a slot, ends within a pair: neither is there, whichever it is that is torn. */
static void pair_is_torn(bool is_second, bool is_packed)
{
    struct cut *cut = cut_of(rig.config.disk);
    if (!is_packed)
        rig.config.primary_blocks = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    append(0, 5, 5, 100);
    append(0, RIG_OF_ZONE, 7, 100);
    rig_sync(&rig, 1);
    uint64_t at = is_packed ? sh_log_primary_at() + rig.log->primary_at * 4096 : slots_at() + 8192;
    assert_int_equal(rig_append_with(&rig, 0, 5, 8, 100, RIG_OF_ZONE, 100), SHOAL_OK);
    rig_sync(&rig, 1);
    shut();
    cut->now[at + SH_SPAN_HEAD_BYTES + (is_second ? 150 : 50)] ^= 1;
    rig_open(&rig);
    read_zone(0, 0);
    assert_int_equal(taken.end, 2);
    assert_true(taken.chunks[5].stamp == 5 && taken.chunks[RIG_OF_ZONE].stamp == 7);
    /* The number is given again, and the process ends. */
    rig_zone_add(&rig, 0, 1, 2);
    append(0, 6, 6, 100);
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    read_zone(0, 0);
    assert_int_equal(taken.end, 3);
    assert_true(taken.chunks[5].stamp == 5 && taken.chunks[RIG_OF_ZONE].stamp == 7);
    assert_true(taken.chunks[6].stamp == 6);
}

static void test_pair_without_its_first(void **state)
{
    (void)state;
    pair_is_torn(false, true);
}

static void test_slot_without_the_first(void **state)
{
    (void)state;
    pair_is_torn(false, false);
}

static void test_slot_without_the_second(void **state)
{
    (void)state;
    pair_is_torn(true, false);
}

static void test_pair_without_its_second(void **state)
{
    (void)state;
    pair_is_torn(true, true);
}

static enum shoal_err on_item_full(void *arg, struct sh_replog_zone *zone,
                                   const struct sh_replog_item *item)
{
    (void)zone, (void)item;
    ++*(unsigned *)arg;
    return SHOAL_EFULL;
}

static enum shoal_err done_err;
static void on_done(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    (void)arg, (void)zone, (void)end;
    done_err = err;
}

/* One at a time; nothing is written meanwhile; an error of the taker ends it, and a close within. */
static void test_refused(void **state)
{
    (void)state;
    struct sh_replog_zone *other;
    unsigned offered = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    const struct sh_replog_read read = {.take = on_item_full, .done = on_done, .arg = &offered};
    assert_int_equal(sh_replog_zone_read(rig.zones[0].zone, &read), SHOAL_EBUSY);
    for (unsigned i = 0; i < 100; i++)
        append(0, i, i, 500);
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(0));
    read_zone(0, 0);
    done_err = SHOAL_OK;
    assert_int_equal(sh_replog_zone_read(zone, &read), SHOAL_OK);
    assert_int_equal(sh_replog_zone_read(zone, &read), SHOAL_EBUSY);
    const struct sh_replog_zone_config config = rig_zone_config(0, 1, taken.end, 65536);
    assert_int_equal(sh_replog_zone_add(rig.log, &config, &other), SHOAL_EBUSY);
    while (!done_err)
        rig_step(&rig, RIG_MS);
    assert_true(done_err == SHOAL_EFULL && offered == 1);
    assert_int_equal(sh_replog_zone_read(zone, &read), SHOAL_OK);
    rig_step(&rig, RIG_MS);
    shut();
}

/* How far a reading is rises with each slot, to all of them, be they read once or twice. */
static void test_progress(void **state)
{
    (void)state;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 12 * 65536));
    for (unsigned i = 0; i < 600; i++) {
        append(0, i % RIG_CHUNKS, i, 1000);
        if (i % 50 == 0)
            rig_sync(&rig, 1);
    }
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    for (unsigned drops = 0; drops < 2; drops++) {
        read_once(0, 0, drops);
        assert_true(far.bytes >= 8 * rig.config.slot_bytes);
        assert_int_equal(far.falls, 0);
        assert_true(far.most >= far.bytes - rig.config.slot_bytes);
    }
}

/* A damaged zone is read, and said to be. */
static void test_damage(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 200; i++) {
        append(0, i, i, 1000);
        if (i % 10 == 0)
            rig_sync(&rig, 1);
    }
    rig_sync(&rig, 1);
    shut();
    cut_of(rig.config.disk)->now[slots_at() + 4096 + 200] ^= 1;
    rig_open(&rig);
    read_zone(0, 0);
    assert_int_equal(taken.err, SHOAL_ECORRUPT);
    unsigned there = 0;
    for (unsigned i = 0; i < RIG_CHUNKS; i++)
        there += taken.chunks[i].is_there;
    assert_true(there > 100 && there < 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model_epochs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newest_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pair_without_its_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pair_without_its_second, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slot_without_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slot_without_the_second, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
