/* Completion records: each counts if its write does, for as long as it is to, and costs no room in the log once it is over. */
#include "log/replog_cut_test.h"

#define WRITES_MAX 100000u
#define BYTES 22u /* of a record: the number of its write, and bytes that follow from it */

/* The write with that number has a record, which was appended at that second. */
static struct told {
    bool has_one, is_found;
    uint32_t seconds;
} told[WRITES_MAX];
static uint64_t over; /* records of writes before that are over */
static unsigned asked, noted;

static uint32_t seconds_now(void)
{
    return (uint32_t)(rig.now_ns / (1000 * RIG_MS));
}

static void record_make(uint64_t number, uint8_t *into)
{
    sh_store64(into, number);
    for (unsigned i = 8; i < BYTES; i++)
        into[i] = (uint8_t)(number * 7 + i);
}

static bool is_over(void *arg, uint16_t owner, struct sh_bytes completion)
{
    (void)arg;
    assert_int_equal(owner, RIG_OWNER);
    assert_int_equal(completion.size, BYTES);
    asked++;
    return sh_load64(completion.at) < over;
}

static void on_noted(void *arg, uint16_t owner, struct sh_bytes completion)
{
    (void)arg;
    assert_int_equal(owner, RIG_OWNER);
    assert_int_equal(sh_load64(completion.at), sh_replog_next(rig.zones[0].zone));
    noted++;
}

/* Appends a write, with another one or RIG_ALONE, and a record of it. */
static void append_told(unsigned chunk, uint32_t stamp, size_t size, unsigned with_chunk)
{
    struct sh_replog_zone *zone = rig.zones[0].zone;
    uint8_t record[BYTES];
    uint64_t number = sh_replog_next(zone);
    record_make(number, record);
    for (unsigned piece = 0, tries = 0; piece < rig_pieces(&rig, size); tries++) {
        struct sh_replog_write write = rig_write(&rig, chunk, stamp, size, piece), with;
        if (piece + 1 == write.pieces)
            write.completion = sh_bytes_make(record, sizeof record);
        if (!piece && with_chunk != RIG_ALONE) {
            with = rig_write(&rig, with_chunk, stamp, 16, 0);
            write.with = &with;
        }
        assert_true(tries < 10000);
        enum shoal_err err = sh_replog_append(zone, &write);
        assert_true(!err || err == SHOAL_EAGAIN);
        if (err)
            rig_step(&rig, RIG_MS);
        else if (piece + 1 == write.pieces)
            told[number] = (struct told){.has_one = true, .seconds = seconds_now()};
        piece += !err;
    }
    rig_written(&rig, 0, chunk, stamp, size);
    if (with_chunk != RIG_ALONE)
        rig_written(&rig, 0, with_chunk, stamp, 16);
}

/* --- Reading ----------------------------------------------------------------------------------- */

static struct taken {
    bool is_over;
    uint64_t end;
    bool is_there[RIG_CHUNKS + 1]; /* by local ID */
    unsigned records;
} taken;

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    (void)arg, (void)zone;
    if (item->creator || item->local_id != SH_REPLOG_COMPLETION_ID) {
        taken.is_there[item->local_id] = true;
        return SHOAL_OK;
    }
    uint8_t expected[BYTES];
    assert_int_equal(item->payload.size, BYTES);
    uint64_t number = sh_load64(item->payload.at);
    record_make(number, expected);
    assert_memory_equal(item->payload.at, expected, BYTES);
    assert_true(number < WRITES_MAX && told[number].has_one);
    taken.records += !told[number].is_found; /* it may be there twice */
    told[number].is_found = true;
    return SHOAL_OK;
}

static void on_done(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    (void)arg, (void)zone;
    assert_int_equal(err, SHOAL_OK);
    taken.is_over = true;
    taken.end = end;
}

static enum shoal_err on_drop(void *arg, struct sh_replog_zone *zone, uint16_t creator,
                              uint64_t local_id)
{
    (void)arg, (void)zone;
    assert_true(local_id <= RIG_CHUNKS && taken.is_there[local_id]);
    assert_true(creator || local_id != SH_REPLOG_COMPLETION_ID);
    taken.is_there[local_id] = false;
    return SHOAL_OK;
}

static void read_once(bool drops)
{
    const struct sh_replog_read read = {
        .take = on_item, .drop = drops ? on_drop : NULL, .done = on_done};
    taken = (struct taken){.is_over = false};
    for (unsigned i = 0; i < WRITES_MAX; i++)
        told[i].is_found = false;
    struct sh_replog_zone *of = sh_replog_zone_find(rig.log, rig_zone_id(0));
    assert_int_equal(sh_replog_zone_read(of, &read), SHOAL_OK);
    for (unsigned i = 0; !taken.is_over; i++) {
        assert_true(i < 100000);
        rig_step(&rig, 0);
    }
}

/* The same is found by two looks and by one. */
static void read_all(void)
{
    read_once(false);
    static struct taken twice;
    twice = taken;
    read_once(true);
    assert_int_equal(taken.end, twice.end);
    assert_memory_equal(taken.is_there, twice.is_there, sizeof twice.is_there);
    assert_int_equal(taken.records, twice.records);
}

/* Records of writes that are there are found while they count, others are not. Records behind the end are forgotten. */
static void check(uint32_t seconds_max)
{
    for (uint64_t i = 0; i < WRITES_MAX; i++) {
        bool is_old = seconds_now() - told[i].seconds > seconds_max;
        bool is_there = i < taken.end;
        if (told[i].has_one && is_there && !is_old && i >= over && !told[i].is_found)
            fail_msg("the record of write %llu of %llu is not there", (unsigned long long)i,
                     (unsigned long long)taken.end);
        if (told[i].is_found && (is_old || !is_there))
            fail_msg("the record of write %llu of %llu is there", (unsigned long long)i,
                     (unsigned long long)taken.end);
        if (!is_there)
            told[i].has_one = false;
    }
}

static int begin(void **state)
{
    memset(told, 0, sizeof told);
    over = asked = 0;
    return setup(state);
}

/* --- The tests --------------------------------------------------------------------------------- */

/* Lives that end in a power cut, in which the log is cleaned again and again; half of the records are over before they are old. */
static void test_lives(void **state)
{
    (void)state;
    uint64_t seed = test_seed(2);
    rig.config.completions.seconds = 40;
    rig.config.completions.is_over = is_over;
    rig.config.completions.noted = on_noted;
    rig.config.versions_max = 1024;
    rig.zeros_one_in = 11;
    uint64_t first = 1;
    unsigned records = 0, lost = 0;
    for (unsigned life = 0; life < 4; life++) {
        rig_open(&rig);
        if (life) {
            read_all();
            lost += taken.end < first;
            check(40);
            records += taken.records;
            first = taken.end;
        }
        zone_add_config(0, rig_zone_config(0, 1, first, 20 * 65536));
        for (unsigned i = 0; i < 6000; i++) {
            uint64_t draw = test_draw(&seed);
            unsigned chunk = (unsigned)(draw >> 8) % RIG_OF_ZONE;
            size_t size = 4 + (draw >> 40) % (chunk % 100 == 7 ? 60000 : 200);
            unsigned with = (draw >> 36) % 5 ? RIG_ALONE : RIG_OF_ZONE + (unsigned)(draw >> 28) % 8;
            if (draw % 3)
                append_told(chunk, i + 1, (draw >> 20) % 10 ? size : 0, with);
            else
                append(0, chunk, i + 1, size);
            if ((draw >> 56) % 16 == 0)
                rig_step(&rig, (draw >> 50 & 63) * 10 * RIG_MS);
            if (i % 200 == 0 && life % 2)
                over = sh_replog_next(rig.zones[0].zone) - 100;
        }
        assert_true(status().slots_cleaned > 10);
        first = sh_replog_next(rig.zones[0].zone);
        shut();
        cut_power(cut_of(rig.config.disk));
    }
    assert_true(records > 1000 && lost > 0 && asked > 1000 && noted > 10000);
}

/* A pack, or a batch of a slot, ends behind a record, or within it: its write does not count, and so neither does the record. */
static void is_torn(size_t at_byte, bool is_packed)
{
    struct cut *cut = cut_of(rig.config.disk);
    if (!is_packed)
        rig.config.primary_blocks = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    append_told(5, 5, 100, RIG_ALONE);
    rig_sync(&rig, 1);
    uint64_t at = is_packed ? sh_log_primary_at() + rig.log->primary_at * 4096 : slots_at() + 8192;
    append_told(6, 8, 100, RIG_OF_ZONE);
    rig_sync(&rig, 1);
    shut();
    cut->now[at + SH_SPAN_HEAD_BYTES + at_byte] ^= 1;
    rig_open(&rig);
    read_all();
    assert_int_equal(taken.end, 1);
    assert_int_equal(taken.records, 1);
    check(SH_REPLOG_COMPLETION_SECONDS);
    /* Neither does it once the number is given again. */
    rig_zone_add(&rig, 0, 1, 1);
    append(0, 7, 6, 100);
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    read_all();
    assert_int_equal(taken.end, 2);
    assert_int_equal(taken.records, 1);
}

static void test_torn_within(void **state)
{
    (void)state;
    is_torn(20, true);
}

static void test_torn_behind(void **state)
{
    (void)state;
    is_torn(100, true);
}

static void test_slot_torn_behind(void **state)
{
    (void)state;
    is_torn(100, false);
}

/* The last of a row of writes has survived a power cut, with its record; those before have not: it does not count. */
static void test_behind_a_gap(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 5; i++)
        append_told(i, i, 100, RIG_ALONE);
    rig_sync(&rig, 1);
    cut->holds = holds_slots;
    for (unsigned i = 10; i < 60 && !cut->count; i++) { /* to a slot, which does not get them */
        append(0, i, i, 500);
        rig_step(&rig, 0);
    }
    assert_true(cut->count > 0);
    append_told(100, 2000, 100, RIG_ALONE); /* to the primary log, which does */
    sh_replog_sync(rig.zones[0].zone);
    for (unsigned i = 0; i < 50; i++)
        rig_step(&rig, RIG_MS);
    shut();
    cut_power(cut);
    rig_open(&rig);
    read_all();
    assert_int_equal(taken.end, 5);
    assert_int_equal(taken.records, 5);
    check(SH_REPLOG_COMPLETION_SECONDS);
}

/* A chunk in pieces, of which the first went to a slot and the last, with the record, to the primary log, or to another slot. */
static void test_pieces(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 1);
    for (unsigned i = 0; i < 24; i++) {
        append_told(5 + i, i + 1, 15000 + 3000 * i, i % 2 ? RIG_ALONE : RIG_OF_ZONE + i % 8);
        if (i % 5 == 0)
            rig_sync(&rig, 1);
    }
    rig_sync(&rig, 1);
    shut();
    for (unsigned i = 0; i < 2; i++) {
        rig_open(&rig);
        read_all();
        assert_int_equal(taken.end, 25);
        assert_int_equal(taken.records, 24);
        shut();
    }
}

/* Nobody says that they are over: they go by their age, and so the log does not fill up. */
static void test_age(void **state)
{
    (void)state;
    rig.config.completions.seconds = 5;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 1, 20 * 65536));
    append_told(5, 5, 100, RIG_ALONE);
    rig_step(&rig, 6001 * RIG_MS);
    for (unsigned i = 0; i < 80000; i++) {
        append_told(i % 50, i, 40, RIG_ALONE);
        rig_step(&rig, RIG_MS);
    }
    assert_true(status().slots_cleaned > 20);
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    read_all();
    check(5);
    assert_true(taken.records > 2000 && taken.records < 7000);
    /* A clock that was put back: what is from the future stays. */
    shut();
    rig.now_ns -= 60000 * RIG_MS;
    rig_open(&rig);
    read_all();
    assert_true(taken.records > 2000);
}

/* A zone that is full of records that are not over yet takes writes again when they are: nothing else makes room, as writes are refused. */
static void test_full_of_records(void **state)
{
    (void)state;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 10 * 65536));
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0, tries = 0; err != SHOAL_ENOSPC; tries++) {
        uint8_t record[BYTES];
        struct sh_replog_write write = rig_write(&rig, i % 50, i, 20, 0);
        record_make(sh_replog_next(rig.zones[0].zone), record);
        write.completion = sh_bytes_make(record, sizeof record);
        err = sh_replog_append(rig.zones[0].zone, &write);
        assert_true(tries < 200000 && (!err || err == SHOAL_EAGAIN || err == SHOAL_ENOSPC));
        i += !err;
        if (err)
            rig_step(&rig, RIG_MS);
    }
    uint64_t next = sh_replog_next(rig.zones[0].zone);
    assert_true(next > 10000);
    assert_int_equal(append_or_say(0, 1, 1, 20), SHOAL_ENOSPC);
    rig_step(
        &rig,
        60000 *
            RIG_MS); /* nothing is over, and the cleaner sees that; it may gain a slot of some that are not full */
    unsigned more = 0;
    while ((err = append_or_say(0, 1, 1, 20)) == SHOAL_OK)
        assert_true(++more < 2500);
    assert_int_equal(err, SHOAL_ENOSPC);
    rig_step(&rig, 240000 * RIG_MS);
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(append_or_say(0, i % 50, i, 20), SHOAL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lives, begin, teardown),
        cmocka_unit_test_setup_teardown(test_torn_within, begin, teardown),
        cmocka_unit_test_setup_teardown(test_torn_behind, begin, teardown),
        cmocka_unit_test_setup_teardown(test_slot_torn_behind, begin, teardown),
        cmocka_unit_test_setup_teardown(test_behind_a_gap, begin, teardown),
        cmocka_unit_test_setup_teardown(test_pieces, begin, teardown),
        cmocka_unit_test_setup_teardown(test_age, begin, teardown),
        cmocka_unit_test_setup_teardown(test_full_of_records, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
